"""What a checkpoint costs the training, beside a blocking torch.save, and how fast its writer is beside dd.

A real model of andrea-12m's size (153 MB of weights, m and v) trains on short rows. In turns: a few steps, our
checkpoint (copy, then a writer thread, which is waited for here), a few steps, torch.save and fsync of the same
tensors. On a machine that others use too, the ratios say more than the milliseconds.
"""

import hashlib
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

from bench import report
from engine import device
from engine.config import KeepConfig, build
from engine.gradient import clip, forward_backward, gradient_norm
from engine.layout import checkpoint_bytes
from engine.model import GPT
from engine.optim import Adam
from engine.rundir import checkpoint, names
from engine.rundir.files import Appender, fsync_dir
from engine.saver import Saver

QUICK = True
VOCAB = 2305
ROUNDS = 3


class Training:
    """The trainer's step on one short row of made-up tokens."""

    def __init__(self) -> None:
        config, _ = build("andrea-12m", ["train.rows=1", "train.precision=fp32", "train.compile=false"])
        self.config, self.device = config, device.pick(config.train)
        self.model = GPT(config.model, VOCAB, self.device.torch)
        self.model.init(1)
        self.adam = Adam(self.model, config.optim)
        self.state = [self.model.flat, self.adam.m, self.adam.v]
        rng = np.random.default_rng(1)
        self.batch = torch.from_numpy(rng.integers(0, VOCAB, (1, 33))).to(self.device.torch)
        self.steps = 0

    def step(self) -> float:
        """One update; its seconds."""
        t0 = time.perf_counter()
        self.steps += 1
        forward_backward(self.model, self.model, self.device, self.batch, 1, None)
        clip(self.model, float(gradient_norm(self.model)), 1.0)
        self.adam.update(self.steps, 1e-4)
        return time.perf_counter() - t0

    def cost(self, save: Callable[[], None], finish: Callable[[], None]) -> list[float]:
        """Seconds: the loop stands still; until the file is durable; of CPU, by all threads."""
        for _ in range(3):
            self.step()
        t0, c0 = time.perf_counter(), time.process_time()
        save()
        gap = time.perf_counter() - t0
        finish()
        return [gap, time.perf_counter() - t0, time.process_time() - c0]


def stalls(folder: Path) -> list[dict[str, str]]:
    training = Training()
    loss, events = Appender(folder / names.LOSS), Appender(folder / names.EVENTS)
    saver = Saver(folder, KeepConfig(last=1), 1, loss, events, set())
    saver.save(0, "start", training.state)  # touches the host copy's memory for the first time
    saver.wait()
    ours, blocking = [], []
    for _ in range(ROUNDS):
        ours.append(training.cost(lambda: saver.save(training.steps, "boundary", training.state), saver.wait))
        blocking.append(training.cost(lambda: torch_save(folder / "torch.pt", training.state), lambda: None))
    rows = []
    for i, what in enumerate(("the loop stands still", "until it is durable", "CPU, all threads")):
        x, y = [c[i] for c in ours], [c[i] for c in blocking]
        rows.append(
            {"": what, "ours": report.ms(x), "torch.save + fsync": report.ms(y), "ratio": report.ratio(x, y)}
        )
    return rows


def torch_save(path: Path, tensors: list[torch.Tensor]) -> None:
    """What a training loop without a writer thread does."""
    with open(path, "wb") as f:
        torch.save(dict(zip(("weights", "m", "v"), tensors, strict=True)), f)
        f.flush()
        os.fsync(f.fileno())
    fsync_dir(path.parent)


def writer(folder: Path) -> list[dict[str, str]]:
    """Our writer, dd of the same bytes, and the same without hash and checks, in turns."""
    config, _ = build("andrea-12m", [])
    n = GPT(config.model, VOCAB, torch.device("cpu")).flat.numel()
    rng = np.random.default_rng(1)
    parts = [np.abs(rng.standard_normal(n, np.float32)) for _ in range(3)]
    size = checkpoint_bytes(n)
    seconds: dict[str, list[float]] = {
        "checkpoint.write": [],
        "dd": [],
        "sha256 alone": [],
        "is it finite, alone": [],
    }
    source = folder / names.checkpoint_name(1)
    for _ in range(ROUNDS):
        for what, f in (
            ("checkpoint.write", lambda: checkpoint.write(folder, 1, parts, lambda sha256: None)),
            ("dd", lambda: dd(source, folder / "copy")),
            ("sha256 alone", lambda: [hashlib.sha256(p.data.cast("B")) for p in parts]),
            ("is it finite, alone", lambda: [np.isfinite(p).all() for p in parts]),
        ):
            t0 = time.perf_counter()
            f()
            seconds[what].append(time.perf_counter() - t0)
    base = seconds["dd"]
    return [
        {
            "what": what,
            "MB/s": f"{size / 1e6 / statistics.median(s):.0f}",
            "seconds ÷ dd's": report.ratio(s, base),
        }
        for what, s in seconds.items()
    ]


def dd(source: Path, target: Path) -> None:
    """A copy of bytes that lie in the page cache, until they are on the disk."""
    args = ["dd", f"if={source}", f"of={target}", "bs=8M", "conv=fsync", "status=none"]
    subprocess.run(args, check=True)
    target.unlink()


def main(argv: list[str]) -> int:
    args = report.arguments("checkpoint", __doc__).parse_args(argv)
    out = report.Report(report.command("checkpoint", argv))
    with tempfile.TemporaryDirectory(prefix="andrea-bench-", dir=args.dir) as scratch:
        folder = Path(scratch)
        out.head(folder)
        with report.words_to_stderr():
            rows = stalls(folder)
        out.table(
            f"A checkpoint of 153 MB during training (median of {ROUNDS}; ratios with their range)", rows
        )
        out.table(
            f"The writer on {out.facts['files on']} (dd copies the same file: bs=8M conv=fsync)",
            writer(folder),
        )
    out.save(args.json)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
