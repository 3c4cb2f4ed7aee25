"""Checkpoints without stopping the training: copy to host memory between two steps, then a writer thread.

One is in flight at most. Only when it is wholly on the disk is it "saved", and only then an older one is pruned. A
failure loses nothing: the temporary is gone, it is said loudly, training goes on, the next boundary tries again.
"""

import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from engine.config import KeepConfig
from engine.keeping import ASKED_FOR, kept
from engine.layout import checkpoint_bytes
from engine.rundir import checkpoint, names
from engine.rundir.files import Appender, replace_file, say
from engine.rundir.names import checkpoint_name
from engine.rundir.records import Event, encode, event


class Saver:
    """Writes checkpoints of one run. All methods are called from the training loop's thread."""

    def __init__(
        self, run_dir: Path, keep: KeepConfig, seg: int, loss: Appender, events: Appender, asked_for: set[int]
    ) -> None:
        self.durable = -1  # step of the newest checkpoint that is wholly on the disk
        self.sha256 = ""  # of that one
        self.failed_since: float | None = None  # time.monotonic() of the first failure after the last success
        self._run_dir, self._keep, self._seg = run_dir, keep, seg
        self._loss, self._events = loss, events
        self._asked_for = asked_for  # steps of snapshots: never pruned here
        self._host: list[Tensor] = []  # weights, m, v in (pinned) host memory, reused
        self._thread: threading.Thread | None = None

    def save(self, step: int, why: str, tensors: list[Tensor], state: bytes = b"") -> None:
        """Copy weights, m and v now, write them in the background. Waits for one that is in flight.

        `state` is `.state.json` of this step, written behind the checkpoint.
        """
        self.wait()
        if not self._host:
            pin = tensors[0].is_cuda
            self._host = [torch.empty(t.shape, dtype=torch.float32, pin_memory=pin) for t in tensors]
        for host, t in zip(self._host, tensors, strict=True):
            host.copy_(t)
        if why in ASKED_FOR:
            self._asked_for.add(step)
        parts = [h.numpy() for h in self._host]
        self._thread = threading.Thread(target=self._write, args=(step, why, parts, state), name="checkpoint")
        self._thread.start()

    def wait(self) -> None:
        """Until no write is in flight."""
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def save_at_last(
        self,
        step: int,
        why: str,
        tensors: list[Tensor],
        state: bytes,
        seconds: float,
        beat: Callable[[str], None],
    ) -> bool:
        """The checkpoint that a stop waits for: retried for so many seconds. False: it could not be saved."""
        end = time.monotonic() + seconds
        while True:
            self.save(step, why, tensors, state)
            self.wait()
            if self.durable == step:
                return True
            if time.monotonic() >= end:
                return False
            beat(f"can't save step {step}; trying for {end - time.monotonic():.0f} s more")
            time.sleep(1.0)

    def _write(self, step: int, why: str, parts: list[NDArray[np.float32]], state: bytes = b"") -> None:
        t0 = time.monotonic()

        def before_rename(sha256: str) -> None:
            # No file gets its name while a loss line of its steps waits for room.
            self._loss.sync()
            name, nbytes = checkpoint_name(step), checkpoint_bytes(len(parts[0]))
            self._say(
                event("checkpoint", step=step, seg=self._seg, text=f"{name} ({why})", file=name, sha256=sha256,
                      bytes=nbytes, why=why, seconds=round(time.monotonic() - t0, 3))
            )  # fmt: skip
            self._events.sync()

        try:
            sha256, _ = checkpoint.write(self._run_dir, step, parts, before_rename)
        except (OSError, ValueError) as e:
            if self.failed_since is None:
                self.failed_since = time.monotonic()
            reason = f"{e.strerror}" if isinstance(e, OSError) and e.strerror else str(e)
            text = f"step {step} could not be saved: {reason}; the last checkpoint is step {self.durable}"
            self._say(event("warning", step=step, seg=self._seg, text=text))
            return
        self.durable, self.sha256, self.failed_since = step, sha256, None
        if why == "snapshot":
            self._say(event("snapshot", step=step, seg=self._seg, text=f"snapshot of step {step} saved"))
        if state:
            self._write_state(step, state)
        self._prune(step)

    def _write_state(self, step: int, state: bytes) -> None:
        """A cache: without it the next start folds the log."""
        try:
            replace_file(self._run_dir / names.STATE, state)
        except OSError as e:
            text = f"{names.STATE} could not be written: {e.strerror or e}"
            self._say(event("warning", step=step, seg=self._seg, text=text))

    def _prune(self, newest: int) -> None:
        try:
            good, _ = checkpoint.scan(self._run_dir)
            mine = [c for c in good if c.step <= newest]
            stay = kept([c.step for c in mine], self._keep, self._asked_for)
            gone = [c for c in mine if c.step not in stay]
            for c in gone:
                os.unlink(c.path)
        except OSError as e:
            self._say(
                event("warning", step=newest, seg=self._seg, text=f"old checkpoints were not pruned: {e}")
            )
            return
        if gone:
            steps = [c.step for c in gone]
            self._say(event("pruned", step=newest, seg=self._seg, text=f"pruned {_list(steps)}", steps=steps))

    def _say(self, e: Event) -> None:
        say(e.text)
        self._events.append(encode(e))


def _list(steps: list[int]) -> str:
    return ", ".join(f"step {s}" for s in sorted(steps))
