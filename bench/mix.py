"""Which kind of policy learns most from the same number of steps? Held-out bits per byte on the built-in corpora.

Every kind trains the same small model on the same data with the same seeds and bounds. What is compared is the
mean over the arms of bits per byte on held-out rows that no kind was steered by; `static` is the control.
`python -m bench.mix --steps 1500 --seeds 3` takes about ten minutes on two cores.
"""

import math
import shutil
import statistics
import sys
import tempfile
from pathlib import Path

import msgspec
import numpy as np
import torch
from numpy.typing import NDArray

from bench import runs
from bench.report import Report, arguments, command
from engine import device
from engine.config import CONFIG_FILE, POLICY_FILE, build, config_text, load_config, policy_text
from engine.data.manifest import load_manifest, load_tokenizer
from engine.data.prepare import prepare
from engine.data.rows import Rows
from engine.evaluate import bits_per_byte
from engine.model import GPT
from engine.rundir import checkpoint, names
from engine.rundir.history import read_history

ALIKE = [f"arms.{a}.prior=1" for a in ("repo-docstrings", "python-source", "python-topics", "repo-docs")]
# The second static one shows how much of a gain is only that small arms are drawn more, which their equal weight in the
# mean rewards.
KINDS = {"static": ["kind=static"], "ucb1": ["kind=ucb1"], "heldout": ["kind=heldout"],
         "static, all priors alike": ["kind=static", *ALIKE]}  # fmt: skip
MODEL = ["model.n_layer=2", "model.n_head=2", "model.d_model=96", "model.context=128", "train.rows=16",
         "train.eval_every=50", "train.checkpoint_every=500", "train.sample_every=500", "audit.tokens=8"]  # fmt: skip
STEERED_BY, JUDGED_BY = 8, 96  # held-out rows per arm


def main(argv: list[str]) -> int:
    parser = arguments("mix", __doc__)
    parser.add_argument("--steps", type=int, default=1500)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="of config or policy")
    parser.add_argument("--only", action="append", choices=list(KINDS), help="besides static")
    args = parser.parse_args(argv)
    kinds = [k for k in KINDS if k == "static" or k in (args.only or KINDS)]
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder, "data-run")
        make_data(data, args.set)
        report = Report(command("mix", argv))
        report.head(Path(folder))
        found: dict[str, list[dict[str, float]]] = {k: [] for k in kinds}
        shares: dict[str, dict[str, float]] = {}
        for seed in range(1, args.seeds + 1):
            for kind in kinds:
                run = Path(folder, f"{list(KINDS).index(kind)}-{seed}")
                always = [f"run.seed={seed}", f"train.max_steps={args.steps}"]
                make_run(run, data, [*KINDS[kind], *always, *args.set])
                code = runs.start(run).wait()
                if code:
                    print((run / names.LOG).read_text()[-2000:], file=sys.stderr)
                    return 1
                found[kind].append(judge(run, args.steps))
                shares[kind] = drawn(run)
                print(f"  {kind} seed {seed}: {mean(found[kind][-1]):.4f}", file=sys.stderr, flush=True)
        tables(report, found, shares)
        report.save(args.json)
    return 0


def make_data(run: Path, sets: list[str]) -> None:
    """The four corpora, tokenised once, with enough held out for both sets of rows."""
    write(run, [*MODEL, *sets, f"heldout.rows={2 * JUDGED_BY}"])
    c, p = load_config(run / CONFIG_FILE), msgspec.structs.replace(build("andrea-tiny", [*sets])[1])
    p = msgspec.structs.replace(p, heldout=msgspec.structs.replace(p.heldout, rows=2 * JUDGED_BY))
    prepare(run, p, c.tokenizer, c.model.context, lambda what, part: None, lambda: False)


def make_run(run: Path, data: Path, sets: list[str]) -> None:
    write(run, [*MODEL, f"heldout.rows={STEERED_BY}", *sets])
    shutil.copytree(data / names.DATA, run / names.DATA, copy_function=_link)


def write(run: Path, sets: list[str]) -> None:
    config, policy = build("andrea-tiny", sets)
    run.mkdir(parents=True)
    (run / CONFIG_FILE).write_text(config_text(config), "utf-8")
    (run / POLICY_FILE).write_text(policy_text(policy), "utf-8")


def _link(a: str, b: str) -> None:
    Path(b).hardlink_to(a)


def judge(run: Path, step: int) -> dict[str, float]:
    """arm -> bits per byte of the run's last weights on the rows that steered nothing."""
    c, m = load_config(run / CONFIG_FILE), load_manifest(run)
    where = device.pick(c.train)
    tokenizer = load_tokenizer(run, m)
    model = GPT(c.model, tokenizer.vocab, where.torch)
    path = run / names.checkpoint_name(step)
    _, parts, _ = checkpoint.load(path, model.flat.numel(), None)
    with torch.no_grad():
        model.flat.copy_(torch.from_numpy(parts[0]))
    rows = Rows(run, m, c.model.context, c.run.seed)
    judged = {a: unseen(rows, a) for a in sorted(m.arms)}
    return bits_per_byte(model, where, judged, tokenizer.n_bytes.astype(np.int64), 16, lambda: False)


def unseen(rows: Rows, arm: str) -> NDArray[np.int64]:
    steering = {r.tobytes() for r in rows.heldout_rows(arm, STEERED_BY)}
    return np.stack([r for r in rows.heldout_rows(arm, JUDGED_BY) if r.tobytes() not in steering])


def drawn(run: Path) -> dict[str, float]:
    history = read_history(run / names.LOSS)[0]
    rows = {a: float(history.rows(a).sum()) for a in sorted(history.arms)}
    return {a: n / sum(rows.values()) for a, n in rows.items()}


def mean(bpb: dict[str, float]) -> float:
    return math.fsum(bpb.values()) / len(bpb)


def tables(
    report: Report, found: dict[str, list[dict[str, float]]], shares: dict[str, dict[str, float]]
) -> None:
    control = [mean(x) for x in found["static"]]
    rows = []
    for kind, each in found.items():
        means = [mean(x) for x in each]
        gain = [b - a for a, b in zip(means, control, strict=True)]
        rows.append({
            "kind": kind, "bits per byte, mean over arms and seeds": statistics.mean(means),
            "less than static": statistics.mean(gain), "lowest gain of a seed": min(gain),
            "highest": max(gain), "seeds better": f"{sum(g > 0 for g in gain)} of {len(gain)}",
        })  # fmt: skip
    report.table("Held-out bits per byte at the last step (lower is better)", rows)
    arms = sorted(shares["static"])
    report.table(
        "Per arm: bits per byte, mean over seeds",
        [{"kind": k, **{a: statistics.mean(x[a] for x in each) for a in arms}} for k, each in found.items()],
    )
    report.table("Share of all rows (last seed)", [{"kind": k, **s} for k, s in shares.items()])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
