"""Stands in for the trainer where its speed and the signals it gets are what matters: writes so many steps a second.

    python -m bench.standin RUN --rate 10 [--history N | --after N] [--steps N]

It holds the run's lock, writes `.status.json` and `.loss.json` as the engine does, a checkpoint event (without a file)
every 100 steps and an audit with it, and each signal that it gets as a line of `RUN/signals.txt`.
"""

import argparse
import math
import os
import signal
import sys
import time
from pathlib import Path

from engine.rundir import lock, names
from engine.rundir.files import Appender, replace_file
from engine.rundir.records import LossLine, SampleLine, Status, encode, event

ARMS = ("repo-docstrings", "python-source", "python-topics", "repo-docs", "topics", "readmes")
SIZE = 10**8  # bytes of a checkpoint; its file is a hole
WORDS = (
    "the",
    "run",
    "goes",
    "on",
    "and",
    "so",
    "what",
    "was",
    "read",
    "about",
    "files",
    "comes",
    "back",
    "in",
    "a",
    "row",
)


def line(step: int, t: float, dt: float, seg: int) -> LossLine:
    """A curve that falls, with noise that is a function of the step: a spike every 5,000 steps, a NaN every 7,000."""
    noise = ((step * 2654435761) % 1000 / 1000 - 0.5) * 0.3
    loss = (
        None
        if step % 7000 == 0
        else round(1.7 + 7 * math.exp(-step / 3000) + noise + 9 * (step % 5000 == 0), 4)
    )
    rows = {a: 4 for a in ARMS}
    rloss = {a: None if loss is None else round(loss + 0.1 * i, 4) for i, a in enumerate(ARMS)}
    bpb: dict[str, float | None] | None = None
    if step % 500 == 0:
        bpb = {a: round(1.5 + math.exp(-step / 3000) + 0.1 * i, 4) for i, a in enumerate(ARMS)}
    lr = 3e-4 * min(1.0, step / 500)
    return LossLine(
        step=step, loss=loss, lr=lr, gnorm=0.8 + noise, rows=rows, rloss=rloss, dt=dt, t=t, seg=seg, bpb=bpb
    )


def audit(step: int, t: float) -> list[SampleLine]:
    """Two texts whose words depend on the step."""
    text = " ".join(WORDS[(step // 100 * (i + 1)) % len(WORDS)] for i in range(60))
    kept = {"coherence": 40.0 + step // 100 % 50, "seq_rep_4": 0.1}
    return [
        SampleLine(
            step=step,
            phase=0,
            prompt="The",
            mode=m,
            text=text,
            tokens=60,
            t=t,
            seg=0,
            scores=kept,
            verdict="",
        )
        for m in ("greedy", "sampled")
    ]


def write_history(run: Path, steps: int, dt: float = 0.1) -> None:
    """The lines of steps 1 … `steps`, the last of them written just now."""
    start = time.time() - steps * dt
    files = (run / names.LOSS, run / names.SAMPLES, run / names.EVENTS)
    with open(files[0], "ab") as loss, open(files[1], "ab") as samples, open(files[2], "ab") as events:
        for s in range(1, steps + 1):
            loss.write(encode(line(s, round(start + s * dt, 2), dt, 0)))
            if s % 100 == 0:
                saved = event("checkpoint", step=s, text=f"saved step {s}", why="boundary", bytes=SIZE)
                saved.t = round(start + s * dt, 3)
                events.write(encode(saved))
                for x in audit(s, saved.t) if s % 1000 == 0 else ():
                    samples.write(encode(x))


def checkpoint(run: Path, step: int) -> bytes:
    """Makes the file, removes the one before the last ten, and returns the event's line."""
    with open(run / names.checkpoint_name(step), "wb") as f:
        f.truncate(SIZE)
    old = run / names.checkpoint_name(max(0, step - 1000))
    if step > 1000:
        old.unlink(missing_ok=True)
    return encode(event("checkpoint", step=step, text=f"saved step {step}", why="boundary", bytes=SIZE))


def status(run: Path, step: int) -> None:
    now = Status(pid=os.getpid(), seg=0, step=step, max_steps=10**6, phase=0, doing="training", device="cpu",
                 tokens_per_step=4096, checkpoint_step=step - step % 100, t=time.time())  # fmt: skip
    replace_file(run / names.STATUS, encode(now))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("run", type=Path)
    parser.add_argument("--rate", type=float, default=10.0)
    parser.add_argument("--history", type=int, default=0, help="so many steps are written first")
    parser.add_argument("--after", type=int, default=0, help="go on after this step of a log that is there")
    parser.add_argument("--steps", type=int, default=10**9)
    args = parser.parse_args()
    run: Path = args.run
    got = os.open(run / "signals.txt", os.O_CREAT | os.O_APPEND | os.O_WRONLY)

    def note(number: int, _frame: object) -> None:
        os.write(got, f"{signal.Signals(number).name}\n".encode())
        if number == signal.SIGTERM:
            sys.exit(0)

    for number in (signal.SIGUSR1, signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, note)
    lock.acquire(run)
    if args.history:
        write_history(run, args.history)
    loss, samples, events = (Appender(run / n) for n in (names.LOSS, names.SAMPLES, names.EVENTS))
    events.append(encode(event("started", text="started")))
    first = args.after or args.history
    step, begin = first, time.monotonic()
    while step < first + args.steps:
        step += 1
        loss.append(encode(line(step, round(time.time(), 2), 1 / args.rate, 0)))
        if step % 100 == 0:
            events.append(checkpoint(run, step))
            for x in audit(step, time.time()):
                samples.append(encode(x))
        if step % max(1, int(args.rate)) == 0:
            status(run, step)
        time.sleep(max(0.0, begin + (step - first) / args.rate - time.monotonic()))
    while True:  # alive, but no step any more
        status(run, step)
        time.sleep(1)


if __name__ == "__main__":
    main()
