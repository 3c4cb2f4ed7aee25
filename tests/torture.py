"""Kill a run again and again and see that it ends with the same bytes.  `python -m tests.torture N [SEED]`: N kills.

Importing torch takes seconds, so most lives are forked from one parent that has imported it (`tests.forked`); the
reference and some lives are true cold starts.
"""

import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from engine.rundir import checkpoint
from engine.rundir.files import say
from engine.rundir.records import LossLine
from tests import engine_process as e
from tests import forked
from tests.conftest import make_small

STEPS = 200
# Each arm is read to its end within the run, evaluations and audits fall between the boundaries' checkpoints too.
BASE = [f"train.max_steps={STEPS}", "train.eval_every=15", "train.sample_every=20", "keep.every=10000"]
MATRIX: dict[str, list[str]] = {
    "fp32": [],
    "bf16-ucb1": ["train.precision=bf16", "kind=ucb1", "ucb1.focus=1", "ucb1.rerank=1", "ucb1.least=2"],
    "fp16": ["train.precision=fp16"],
    "accumulate-heldout": ["train.accumulate=2", "kind=heldout"],
    "compiled": ["train.compile=true", "train.max_steps=60"],
}
ENV = {**os.environ, **forked.ONE_THREAD}
ROLLBACKS = 0.1  # of the lives are followed by one, every second of which is killed too


class Life(Protocol):
    """One process that trains."""

    pid: int

    def wait(self) -> int:
        """Its exit code, −9 after SIGKILL."""
        ...


class Start(Protocol):
    def __call__(self, run: Path) -> Life: ...


def cold(run: Path) -> subprocess.Popen[bytes]:
    old = signal.pthread_sigmask(
        signal.SIG_BLOCK, forked.SIGNALS
    )  # as the launcher does; the trainer unblocks them
    try:
        with open(run / "trainer.log", "ab") as log:
            return subprocess.Popen(
                [sys.executable, "-m", "engine", run],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=ENV,
            )
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, old)


@dataclass
class Outcome:
    sha: str
    history: list[LossLine]
    texts: set[tuple[int, str, str, str]]


@dataclass
class Report:
    kills: int = 0
    runs: int = 0
    what: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)

    def __add__(self, other: "Report") -> "Report":
        return Report(
            self.kills + other.kills, self.runs + other.runs, self.what + other.what, self.wrong + other.wrong
        )


class Torture:
    """Runs of one configuration, and what becomes of one that nothing disturbs."""

    def __init__(self, folder: Path, name: str) -> None:
        self.folder, self.name = folder, name
        self.texts = folder / "texts"
        make_texts(self.texts)
        self.reference = self.outcome(self.finish(self.new_run("reference"), cold))

    def new_run(self, name: str) -> Path:
        run = self.folder / name
        make_small(run, self.texts, [*BASE, *MATRIX[self.name]])
        return run

    def finish(self, run: Path, start: Start) -> Path:
        code = start(run).wait()
        assert code == 0, f"{run}: exit code {code}: " + (run / "trainer.log").read_text()[-2000:]
        return run

    def outcome(self, run: Path) -> Outcome:
        last = e.named(run, "finished")[-1].step
        texts = {(x.step, x.prompt, x.mode, x.text) for x in e.samples(run)}
        return Outcome(e.sha(run / f"step_{last:06d}.bin"), e.canonical(run), texts)

    def kill(self, kills: int, start: Start, rng: random.Random, name: str) -> Report:
        """Runs that are interrupted at random moments, until there were so many kills and the last run has ended."""
        report = Report()
        while not report.kills or report.kills < kills:
            report += self.kill_one_run(kills - report.kills, start, rng, f"{name}-{report.runs}")
        return report

    def kill_one_run(self, kills: int, start: Start, rng: random.Random, name: str) -> Report:
        run, report, seen = self.new_run(name), Report(runs=1), Seen()
        while report.kills < kills:
            life = start(run)
            what = act(run, life.pid, rng, 5.0 if start is cold else 0.5)
            code = life.wait()
            report.what[what] += 1
            report.kills += code == -signal.SIGKILL
            report.wrong += [f"{run.name} after {what}: {x}" for x in seen.look(run)]
            if code not in (0, -signal.SIGKILL):
                report.wrong.append(f"{run.name}: exit code {code} after {what}")
            if report.wrong or e.named(run, "finished"):
                break
            if rng.random() < ROLLBACKS:
                report.what[roll_back(run, rng)] += 1
                seen.last = 0  # the log's end went back on purpose
        if not report.wrong:
            report.wrong += compare(self.outcome(self.finish(run, start)), self.reference, run)
        if report.wrong:
            report.wrong.append((run / "trainer.log").read_text()[-1500:])
        return report


def act(run: Path, pid: int, rng: random.Random, start_takes: float) -> str:
    """Wait for a random moment and do one thing to the trainer, or several; what it was."""
    moment = rng.choice(("time", "step", "save"))
    if moment == "time":
        time.sleep(rng.uniform(0, start_takes))
    elif moment == "step":
        more = size(run) + rng.randint(1, 15) * 170  # about that many lines
        wait(pid, lambda: size(run) > more)
        time.sleep(rng.uniform(0, 0.02))
    else:
        wait(pid, lambda: any(x.startswith(".step_") for x in os.listdir(run)))
        time.sleep(rng.choice((0, rng.uniform(0, 0.003))))
    what = rng.choices(
        ("kill", "term", "usr1, kill", "stop, cont, kill", "usr1, term, kill"), (6, 1, 1, 1, 1)
    )[0]
    for word in what.split(", "):
        send(pid, signal.Signals[f"SIG{word.upper()}"])
        time.sleep(rng.uniform(0, 0.03))
    return f"{moment}: {what}"


def roll_back(run: Path, rng: random.Random) -> str:
    """`andrea-tui rollback` to a random earlier checkpoint, or its death; what it was."""
    if not (run / "data" / "manifest.json").exists():
        return "no rollback: nothing there yet"
    steps = [c.step for c in checkpoint.scan(run)[0] if 0 < c.step < e.history(run).last]
    if not steps:
        return "no rollback: no checkpoint to go back to"
    command = [sys.executable, "-m", "andrea_tui", "rollback", str(run), "--to", str(rng.choice(steps))]
    process = subprocess.Popen(command, env=ENV, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    killed = rng.random() < 0.5
    if killed:
        before = size(run)
        wait(process.pid, lambda: size(run) > before or rng.random() < 0.002)  # mostly just after its commit
        time.sleep(rng.uniform(0, 0.01))
        process.kill()
    _, said = process.communicate(timeout=e.TIMEOUT)
    assert killed or process.returncode == 0, said.decode()
    return f"rollback{', killed' if process.returncode else ''}"


def size(run: Path) -> int:
    try:
        return os.stat(run / ".loss.json").st_size
    except FileNotFoundError:
        return 0


def wait(pid: int, condition: Callable[[], bool]) -> None:
    """Until the condition holds or the process has ended (a run near its end finishes)."""
    while not condition() and alive(pid):
        time.sleep(0.002)


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def send(pid: int, number: signal.Signals) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        pass  # it has ended by itself


class Seen:
    """Looks at a run directory between two lives."""

    def __init__(self) -> None:
        self.good: set[tuple[str, int, int]] = set()  # files that were loaded before
        self.last = 0  # of the log

    def look(self, run: Path) -> list[str]:
        wrong = []
        if not (run / ".loss.json").exists():
            return []  # killed before it began
        events, h = e.events(run), e.history(run)
        if h.missing or h.last < self.last:
            wrong.append(f"the log lost lines: it reached {self.last}, now {h.last} with {h.missing} missing")
        self.last = h.last
        for path in run.glob("step_*.bin"):
            info = path.stat()
            key = (path.name, info.st_ino, info.st_mtime_ns)
            if key in self.good:
                continue
            known = {
                str(x.info["sha256"])
                for x in events
                if x.event == "checkpoint" and x.info["file"] == path.name
            }
            try:
                found = checkpoint.inspect(path)
                checkpoint.load(path, found.n_params, known)
                self.good.add(key)
            except checkpoint.Damaged as err:
                wrong.append(str(err))
        for x in events:
            if x.event == "set_aside" or (x.event == "replayed" and x.info["same"] != x.info["total"]):
                wrong.append(x.text)
        return wrong


def compare(a: Outcome, b: Outcome, run: Path) -> list[str]:
    wrong = []
    if a.sha != b.sha:
        wrong.append(f"{run.name}: the last checkpoint has other bytes")
    if a.history != b.history:
        wrong.append(f"{run.name}: the history is another one")
    if not b.texts <= a.texts:
        wrong.append(f"{run.name}: sample texts are missing or others")
    return wrong


def make_texts(folder: Path) -> None:
    rng = random.Random(5)
    for arm, words in (("alpha", "the cat sat on a mat and saw"), ("beta", "one two three four five six")):
        (folder / arm).mkdir(parents=True, exist_ok=True)
        for i in range(12):
            text = " ".join(rng.choice(words.split()) for _ in range(90))
            (folder / arm / f"{i:02}.txt").write_text(text + "\n", "utf-8")


def torture_all(t: Torture, kills: int, cold_kills: int, seed: int, workers: int) -> Report:
    """Forked lives in so many runs, and cold ones, side by side."""
    name = t.name
    start = forked.server().start
    with ThreadPoolExecutor(workers + 1) as pool:
        jobs = [
            pool.submit(t.kill, kills // workers, start, random.Random(f"{seed} {name} {i}"), f"forked-{i}")
            for i in range(workers if kills else 0)
        ]
        if cold_kills:
            jobs.append(pool.submit(t.kill, cold_kills, cold, random.Random(f"{seed} {name} cold"), "cold"))
        return sum((job.result() for job in jobs), Report())


# The controls: each loses a part of the state at a resume and must be found out.


def moments_zeroed() -> None:
    from engine.train import Trainer

    real = Trainer.restore

    def restore(self: Trainer) -> bool:
        ok = real(self)
        self.adam.m.zero_()
        self.adam.v.zero_()
        return ok

    Trainer.restore = restore  # type: ignore[method-assign]


def data_from_the_start() -> None:
    from engine.train import Trainer

    real = Trainer.restore

    def restore(self: Trainer) -> bool:
        ok = real(self)
        self.mix.pulls = dict.fromkeys(self.mix.arms, 0)
        return ok

    Trainer.restore = restore  # type: ignore[method-assign]


def main(argv: list[str]) -> int:
    kills = int(argv[0]) if argv else 200
    seed = int(argv[1]) if len(argv) > 1 else random.randrange(1 << 32)
    say(f"seed {seed}")
    total = Report()
    for name in MATRIX:
        share = {"fp32": kills, "compiled": 0}.get(name, kills // 5)
        with tempfile.TemporaryDirectory() as folder:
            r = torture_all(
                Torture(Path(folder), name), share, max(1, kills // 50), seed, os.cpu_count() or 1
            )
        total += r
        say("\n  ".join([f"{name}: {r.kills} kills, {r.runs} runs, {dict(r.what)}", *r.wrong]))
    ending = "FAILED" if total.wrong else "all ended with the same bytes"
    say(f"{total.kills} kills, {total.runs} runs: {ending}")
    return bool(total.wrong)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
