"""Run directories to measure, and the real trainer as a process: start it, interrupt it, look at what it left."""

import hashlib
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import msgspec

from bench.report import ROOT
from engine.config import CONFIG_FILE, POLICY_FILE, Arm, build, config_text, policy_text
from engine.rundir import names
from engine.rundir.lines import LineDecoder
from engine.rundir.records import Event

# A model whose step takes milliseconds; two arms of generated text.
SMALL = [
    "model.n_layer=2", "model.n_head=2", "model.d_model=64", "model.context=64",
    "tokenizer.kind=bytes", "tokenizer.vocab=257", "train.rows=4", "train.max_steps=160",
    "train.checkpoint_every=20", "train.sample_every=40", "train.eval_every=30",
    "optim.warmup_steps=20", "audit.tokens=16", 'audit.prompts=["the ", "one "]', "keep.last=3", "heldout.rows=2",
]  # fmt: skip


def make_run(run: Path, preset: str, sets: list[str], arms: dict[str, Arm]) -> Path:
    """A run directory as `andrea-tui init --set …` writes it, with these arms."""
    config, policy = build(preset, sets)
    run.mkdir(parents=True)
    policy = msgspec.structs.replace(policy, arms=arms)
    (run / POLICY_FILE).write_text(policy_text(policy), "utf-8")
    (run / CONFIG_FILE).write_text(config_text(config), "utf-8")
    return run


def make_texts(folder: Path, words: int = 20_000) -> dict[str, Arm]:
    """Two arms of generated text that a small model can learn something from."""
    rng = random.Random(5)
    arms = {}
    for name, some in (("alpha", "the cat sat on a mat and saw"), ("beta", "one two three four five six")):
        (folder / name).mkdir(parents=True)
        for i in range(20):
            text = " ".join(rng.choice(some.split()) for _ in range(words // 20))
            (folder / name / f"{i:02}.txt").write_text(text + "\n", "utf-8")
        arms[name] = Arm(path=str(folder / name), floor=0.2)
    return arms


def start(run: Path, *args: str) -> subprocess.Popen[bytes]:
    """The trainer, cold, with its output in trainer.log."""
    with open(run / names.LOG, "ab") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "engine", str(run), *args],
            cwd=ROOT, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
        )  # fmt: skip


def finish(run: Path, *args: str, timeout: float = 300.0) -> int:
    """Start it and wait for its end; the exit code. One that does not end is killed, with TimeoutExpired."""
    return _wait(start(run, *args), timeout)


def interrupt(run: Path, step: int, number: signal.Signals, timeout: float = 300.0) -> int:
    """Start it and send the signal as soon as its log has this step; the exit code (0 too if it ended before)."""
    process = start(run)
    end = time.monotonic() + timeout
    while process.poll() is None and last_step(run) < step and time.monotonic() < end:
        time.sleep(0.01)
    if process.poll() is None:
        process.send_signal(number)
    return _wait(process, max(1.0, end - time.monotonic()))


def last_step(run: Path) -> int:
    """The step of the log's last whole line; 0 without one. Reads the end of the file only."""
    try:
        with open(run / names.LOSS, "rb") as f:
            f.seek(max(0, os.fstat(f.fileno()).st_size - 4096))
            lines = f.read().split(b"\n")
    except FileNotFoundError:
        return 0
    found = lines[-2].partition(b'"step":')[2] if len(lines) > 1 else b""
    return int(found.partition(b",")[0] or 0)


def events(run: Path, name: str) -> list[Event]:
    try:
        return [e for e in LineDecoder(Event).feed((run / names.EVENTS).read_bytes()) if e.event == name]
    except FileNotFoundError:
        return []


def last_words(run: Path) -> str:
    """The last line of trainer.log: why it ended."""
    lines = (run / names.LOG).read_text("utf-8", "replace").strip().splitlines()
    return lines[-1] if lines else "it said nothing"


def sha256(path: Path) -> str:
    with open(path, "rb") as f:
        return hashlib.file_digest(f, "sha256").hexdigest()


def _wait(process: subprocess.Popen[bytes], timeout: float) -> int:
    try:
        return process.wait(timeout)
    except BaseException:  # also Ctrl-C: no trainer is left behind; it is raised on
        process.kill()
        process.wait()
        raise
