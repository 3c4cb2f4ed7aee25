"""How fast one preset trains, what a checkpoint stalls it, what `deterministic = true` costs: the real Trainer.

One process: a run directory with a little built-in text, the engine's Session and Trainer, and its `make_step` timed
from outside. Blocks of steps alternate between deterministic and not (A B A B …), so that a clock that wanders hits
both. CUBLAS_WORKSPACE_CONFIG is read once and stays for both. The stall is measured with deterministic = true.
"""

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import msgspec
import torch

from bench import report, runs
from engine.config import Arm
from engine.data.manifest import load_tokenizer
from engine.data.prepare import prepare
from engine.data.rows import Rows
from engine.layout import checkpoint_bytes
from engine.mix.mix import mix_of
from engine.model import flops_per_token
from engine.session import Session
from engine.signals import Flags
from engine.train import Trainer

ARMS = {a: Arm(builtin=a) for a in ("python-topics", "repo-docstrings")}
NEVER = 10**9
DURABLE_SECONDS = 60.0


class Speed(msgspec.Struct):
    """Seconds unless said."""

    device: str
    torch: str
    precision: str
    compile: bool
    params: int
    step: float  # median, deterministic
    step_free: float  # median, not deterministic
    price: str  # step / step_free of each pair of blocks: median (range)
    tokens_per_second: float  # deterministic
    mfu: float | None  # None: the device's peak is not known
    first_step: float  # with compiling, deterministic
    checkpoint_mb: float
    gap: float  # the loop stands still, median
    stall: float  # how much longer the step at the boundary takes, median
    in_all: float  # how much later the training is when the file is durable, median
    durable: float  # from the boundary until it is

    def columns(self, name: str) -> dict[str, Any]:
        mode = f"{self.precision}, {'compiled' if self.compile else 'eager'}"
        return {"preset": name, "mode": mode}


def open_trainer(run: Path) -> Trainer:
    """What `python -m engine` builds before its loop. CUBLAS_WORKSPACE_CONFIG must be set before CUDA starts."""
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    s = Session(run, Flags())
    c, p = s.config, s.policy
    manifest = prepare(run, p, c.tokenizer, c.model.context, lambda what, part: None, s.flags.stopping)
    rows = Rows(run, manifest, c.model.context, c.run.seed)
    trainer = Trainer(s, mix_of(p, rows), rows, load_tokenizer(run, manifest))
    if not trainer.restore():
        raise RuntimeError(f"{run}: step_000000.bin could not be saved")
    return trainer


def steps(trainer: Trainer, n: int) -> list[float]:
    """Seconds of each of n steps, from end to end: each waits for its loss, so the GPU is never far behind."""
    out, before = [], time.perf_counter()
    for _ in range(n):
        trainer.make_step(trainer.step + 1)
        now = time.perf_counter()
        out.append(now - before)
        before = now
    return out


def price(trainer: Trainer, pairs: int, n: int) -> tuple[float, list[float], list[float]]:
    """(first step, medians of the deterministic blocks, of the others)."""
    medians: tuple[list[float], list[float]] = ([], [])
    first = 0.0
    for block in range(2 * pairs):
        free = block % 2
        torch.use_deterministic_algorithms(not free)
        warm = steps(trainer, 3)  # in the first block of each kind torch.compile works here
        first = first or warm[0]
        medians[free].append(statistics.median(steps(trainer, n)))
    torch.use_deterministic_algorithms(True)
    return first, *medians


def stall(trainer: Trainer, usual: float) -> dict[str, float]:
    """One checkpoint as the loop makes it at a boundary."""
    trainer.saver.wait()
    steps(trainer, 3)
    at, t0 = trainer.step, time.perf_counter()
    trainer.checkpoint()
    gap = time.perf_counter() - t0
    took: list[float] = []
    while trainer.saver.durable != at or not took:
        took += steps(trainer, 1)
        if sum(took) > DURABLE_SECONDS:
            raise RuntimeError(f"the checkpoint was not durable within {DURABLE_SECONDS:.0f} s")
    durable = gap + sum(took)
    return {
        "gap": gap,
        "stall": gap + took[0] - usual,
        "in_all": durable - usual * len(took),
        "durable": durable,
    }


def measure(run: Path, pairs: int, n: int, checkpoints: int) -> Speed:
    trainer = open_trainer(run)
    d, model = trainer.device, trainer.model
    first, fixed, free = price(trainer, pairs, n)
    step = statistics.median(fixed)
    stalls = [stall(trainer, step) for _ in range(checkpoints)]
    trainer.saver.wait()
    trainer.s.close()
    tokens = trainer.c.train.rows * model.config.context / step
    flops = flops_per_token(model.config, model.vocab)
    return Speed(
        device=d.name, torch=str(torch.__version__), precision=d.precision, compile=d.compile,
        params=model.flat.numel(), step=step, step_free=statistics.median(free), price=report.ratio(fixed, free),
        tokens_per_second=tokens, mfu=tokens * flops / d.peak_flops if d.peak_flops else None, first_step=first,
        checkpoint_mb=checkpoint_bytes(model.flat.numel()) / 1e6,
        **{k: statistics.median(s[k] for s in stalls) for k in stalls[0]},
    )  # fmt: skip


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m bench.speed", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("preset")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--pairs", type=int, default=3, help="of blocks, deterministic and not")
    parser.add_argument("--steps", type=int, default=20, help="in a block")
    parser.add_argument("--checkpoints", type=int, default=3)
    parser.add_argument("--dir", type=Path, help="write the scratch files there (else: temporary folder)")
    args = parser.parse_args(argv)
    sets = [
        f"train.checkpoint_every={NEVER}",
        f"train.sample_every={NEVER}",
        f"train.eval_every={NEVER}",
        "keep.last=1",
    ]
    with tempfile.TemporaryDirectory(prefix="andrea-bench-", dir=args.dir) as scratch:
        run = runs.make_run(Path(scratch) / "run", args.preset, [*sets, *args.set], ARMS)
        with report.words_to_stderr():
            found = measure(run, args.pairs, args.steps, args.checkpoints)
    print(json.dumps(msgspec.to_builtins(found), indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
