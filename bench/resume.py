"""What a resume costs: from the start to the first new step, and how that grows with a history of a million steps.

First the floor: `python -c "import torch"` plus reading the checkpoint's bytes, in turns with a real resume of an
andrea-12m (short rows, so that the step itself is no matter). Then a synthetic run at step 1,000,000, made of the
same records that the trainer writes: .loss.json with a million lines, the checkpoint with its event.
"""

import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import numpy as np

from bench import report, runs
from engine.config import POLICY_FILE, load_config, load_policy
from engine.data.manifest import Manifest, load_manifest
from engine.data.prepare import prepare
from engine.data.rows import Rows
from engine.layout import n_params
from engine.mix.mix import mix_of
from engine.mix.state import Lines, state_of
from engine.mix.state import encode as encode_state
from engine.resume import Replay
from engine.rundir import checkpoint, names
from engine.rundir.history import canonical_samples, read_history
from engine.rundir.lines import LineDecoder
from engine.rundir.records import LossLine, SampleLine, encode, event

QUICK = True
ROUNDS = 2
STEPS = 1_000_000
AUDITS = 10_000  # of 8 sample texts each: one at every 100th step
T = TypeVar("T")
BYTES = ["tokenizer.kind=bytes", "tokenizer.vocab=257"]


# ---- start to the first step, beside the floor ----


def cold(folder: Path, texts: Path) -> list[dict[str, str]]:
    sets = [
        "model.context=128",
        "train.rows=1",
        "audit.tokens=1",
        "train.checkpoint_every=2",
        "train.sample_every=2",
    ]
    run = runs.make_run(folder / "cold", "andrea-12m", [*BYTES, *sets], runs.make_texts(texts / "cold"))
    _must(run, 0, runs.finish(run, "--stop-at", "2"))
    starts: list[float] = []
    floors: list[float] = []
    for i in range(ROUNDS):
        newest = checkpoint.scan(run)[0][0].path
        floors.append(_floor(newest))
        starts.append(_first_step(run, 2 * (i + 1)))
    size = newest.stat().st_size / 1e6
    return [
        {
            "from the start to": f"the first step after the checkpoint ({size:.0f} MB)",
            "trainer": f"{statistics.median(starts):.2f} s",
            "import torch + read": f"{statistics.median(floors):.2f} s",
            "ratio": report.ratio(starts, floors),
        }
    ]


def _floor(path: Path) -> float:
    code = "import sys, torch; open(sys.argv[1], 'rb').read()"
    t0 = time.perf_counter()
    subprocess.run([sys.executable, "-c", code, str(path)], check=True)
    return time.perf_counter() - t0


def _first_step(run: Path, after: int) -> float:
    """Seconds from the start of the trainer until the line of the step after `after` lies in the log."""
    t0 = time.perf_counter()
    process = runs.start(run, "--stop-at", str(after + 2))
    while process.poll() is None and runs.last_step(run) <= after:
        time.sleep(0.005)
    seconds = time.perf_counter() - t0
    _must(run, 0, process.wait())
    return seconds


# ---- at step 1,000,000 ----


def synthetic(folder: Path, texts: Path, steps: int) -> Path:
    """A run of SMALL that stands at `steps`, as if it had been trained there."""
    far = [f"train.max_steps={2 * steps}", "train.checkpoint_every=100", "train.sample_every=100"]
    run = runs.make_run(
        folder / f"at-{steps}", "andrea-tiny", [*runs.SMALL, *far], runs.make_texts(texts / f"{steps}")
    )
    config, policy = load_config(run / "config.toml"), load_policy(run / POLICY_FILE)
    prepare(run, policy, config.tokenizer, config.model.context, lambda what, part: None, lambda: False)
    write_history(run / names.LOSS, steps)
    n = n_params(config.model, config.tokenizer.vocab)
    parts = [np.full(n, x, np.float32) for x in (0.01, 0.0, 1e-6)]

    def say(sha256: str) -> None:
        name = names.checkpoint_name(steps)
        line = event("checkpoint", step=steps, seg=1, text=name, file=name, sha256=sha256, why="boundary")
        (run / names.EVENTS).write_bytes(encode(line))

    checkpoint.write(run, steps, parts, say)
    write_state(run, steps)
    return run


def write_state(run: Path, steps: int) -> None:
    """`.state.json` as the trainer leaves it behind that checkpoint, but for the credits: its mix is static."""
    policy = load_policy(run / POLICY_FILE)
    history = read_history(run / names.LOSS)[0]
    mix = mix_of(policy, Rows(run, load_manifest(run), 64, 1))
    mix.count(history, steps, 1)  # the pulls of all steps, as those before a phase 1
    mix.begin(1)
    mix.step, mix.drawn = steps, dict(mix.pulls)
    state = state_of(mix, 0, 4, Lines(mix.arms, 0).sha256(history, steps), {})
    (run / names.STATE).write_bytes(encode_state(state))


def write_history(path: Path, steps: int) -> None:
    """A line for every step, as `encode` writes them; the numbers of 1,000 real-looking ones go round."""
    rng = np.random.default_rng(3)
    tails = []
    for i in range(1000):
        a, loss = int(rng.integers(1, 4)), round(float(2 + rng.random()), 7)
        line = LossLine(
            step=1, loss=loss, lr=0.0012, gnorm=round(float(rng.random()), 8), seg=1, dt=0.0123, t=1774089000.123 + i,
            rows={"alpha": a, "beta": 4 - a}, rloss={"alpha": loss, "beta": round(loss + 0.1, 7)},
            bpb={"alpha": 1.2345678, "beta": 2.3456789} if i % 40 == 39 else None,
        )  # fmt: skip
        tails.append(encode(line).removeprefix(b'{"step":1'))
    with open(path, "wb") as f:
        for start in range(0, steps, 1000):
            some = tails[: steps - start]
            f.write(b"".join(b'{"step":%d%b' % (start + i, tail) for i, tail in enumerate(some, 1)))


def split(run: Path, steps: int) -> list[dict[str, str]]:
    """Where the time goes, part by part, within this process."""
    config, policy = load_config(run / "config.toml"), load_policy(run / POLICY_FILE)
    out: list[dict[str, str]] = []

    def timed(what: str, f: Callable[[], T]) -> T:
        t0, c0 = time.perf_counter(), time.process_time()
        result = f()
        out.append(_part(what, t0, c0))
        return result

    size = (run / names.LOSS).stat().st_size
    history = timed(
        f"history: {steps:,} lines, {size / 1e6:.0f} MB", lambda: read_history(run / names.LOSS)[0]
    )
    manifest: Manifest = load_manifest(run)
    rows = Rows(run, manifest, config.model.context, config.run.seed)
    mix = mix_of(policy, rows)
    timed("hash of the phase's lines, for .state.json", lambda: Lines(mix.arms, 0).sha256(history, steps))
    timed("fold of the mix (only where .state.json is lost)", lambda: mix.fold(history, steps, 0))
    timed("rows: seek", lambda: [rows.row(arm, pull) for arm, pull in mix.draw(steps + 1, config.train.rows)])
    timed("replay: 100 lines to compare", lambda: Replay(history, steps - 100))
    path = run / names.checkpoint_name(steps)
    timed(
        "checkpoint: read and checked", lambda: checkpoint.load(path, checkpoint.inspect(path).n_params, None)
    )
    return out


def _part(what: str, t0: float, c0: float) -> dict[str, str]:
    """On a busy machine the CPU seconds say more than the clock."""
    return {
        "part": what,
        "seconds": f"{time.perf_counter() - t0:.3f}",
        "CPU seconds": f"{time.process_time() - c0:.3f}",
    }


def sidecar(audits: int) -> dict[str, str]:
    """Reading .samples.json of so many audits."""
    keys = [
        (100 * k, f"prompt {i}", mode)
        for k in range(audits)
        for i in range(4)
        for mode in ("greedy", "sampled")
    ]
    lines = [
        SampleLine(step=s, phase=0, prompt=p, mode=m, text="x" * 400, tokens=128, t=0.0, seg=1)
        for s, p, m in keys
    ]
    data = b"".join(map(encode, lines))
    t0, c0 = time.perf_counter(), time.process_time()
    canonical_samples([], LineDecoder(SampleLine).feed(data))
    return _part(f"samples: {audits:,} audits, {len(data) / 1e6:.1f} MB", t0, c0)


def whole(folder: Path, texts: Path, run: Path, steps: int) -> list[dict[str, str]]:
    """The real trainer from its start to the next step, at step 100 and at the million, one after the other."""
    rows = []
    for r, n in ((synthetic(folder, texts, 100), 100), (run, steps)):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        seconds = _first_step(r, n)
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        cpu = used.ru_utime + used.ru_stime - before.ru_utime - before.ru_stime
        rows.append(
            {
                "resume at": f"{n:,}",
                "first new step after": f"{seconds:.2f} s",
                "CPU seconds to the end": f"{cpu:.2f}",
            }
        )
    return rows


def _must(run: Path, wanted: int, code: int) -> None:
    if code != wanted:
        raise RuntimeError(f"the trainer ended with {code}: {runs.last_words(run)}")


def main(argv: list[str]) -> int:
    parser = report.arguments("resume", __doc__)
    parser.add_argument(
        "--steps", type=int, default=STEPS, metavar="N", help=f"of the synthetic history ({STEPS})"
    )
    parser.add_argument(
        "--audits", type=int, default=AUDITS, metavar="N", help=f"in its .samples.json ({AUDITS})"
    )
    args = parser.parse_args(argv)
    out = report.Report(report.command("resume", argv))
    with tempfile.TemporaryDirectory(prefix="andrea-bench-", dir=args.dir) as scratch:
        folder, texts = Path(scratch), Path(scratch) / "texts"
        out.head(folder)
        out.table(
            f"A cold resume in turns with its floor (median of {ROUNDS}; ratio with its range)",
            cold(folder, texts),
        )
        run = synthetic(folder, texts, args.steps)
        out.table(f"A resume at step {args.steps:,}", whole(folder, texts, run, args.steps))
        out.table(
            "Where it goes (in one process, files cached)", [*split(run, args.steps), sidecar(args.audits)]
        )
    out.save(args.json)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
