"""Start, find, attach to, signal and wait for the trainer. It lives its own life; we hold a pidfd of it.

The trainer runs in its own session with stdin from /dev/null and its output in `trainer.log`, so a dropped link,
a killed cockpit or Ctrl-C never reach it. Signals go by pidfd: a reused pid is never hit.
"""

import os
import select
import signal
import subprocess
import sys
import threading
from pathlib import Path

from msgspec import Struct

from engine.errors import BadInput
from engine.rundir import lock, names, pivot
from engine.rundir.files import Appender, open_regular
from engine.rundir.pivot import Pivot
from engine.rundir.records import encode, event

WHEN = {"boundary": "at the next boundary", "now": "after the present step"}

_LOG = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_OURS = (signal.SIGUSR1, signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class TrainerState(Struct, frozen=True):
    """What is known about the trainer now."""

    pid: int | None = None
    alive: bool = False
    here: bool = True  # it runs on this machine: it can be signalled
    host: str = ""
    exit_code: int | None = None  # of a trainer that this process started; negative: killed by that signal
    starting: bool = False  # started by us, does not hold the lock yet
    error: str = ""  # why the lock can't be asked about


class Runner:
    """The trainer of one run directory, seen from outside. Safe to use from several threads."""

    def __init__(self, run_dir: Path, options: tuple[str, ...] = ()) -> None:
        """`options` of the engine's command line, for the trainers that are started from here."""
        self.run_dir = run_dir
        self._options = options
        self._child: subprocess.Popen[bytes] | None = None
        self._pidfd: int | None = None
        self._holder: lock.Holder | None = None
        self._mutex = threading.Lock()

    def poll(self) -> TrainerState:
        """Look again: is there a trainer, does it live, how did ours end. Cheap, never blocks."""
        with self._mutex:
            return self._poll()

    def start(self) -> TrainerState:
        """Start the trainer, detached, unless one holds the run. Raises OSError where that fails."""
        with self._mutex:
            state = self._poll()
            if state.alive:
                return state
            self._forget()
            self._child = _spawn(self.run_dir, self._options)
            self._pidfd = os.pidfd_open(self._child.pid)
            return self._poll()

    def snapshot(self) -> None:
        """SIGUSR1: write a checkpoint. Raises BadInput with one line where there is no trainer to ask."""
        self._send(signal.SIGUSR1)

    def stop(self) -> None:
        """SIGTERM: finish the step, write a checkpoint, end."""
        self._send(signal.SIGTERM)

    def pivot(self, request: Pivot) -> Pivot | None:
        """Ask for a pivot: the trainer is told, or, where none runs, it is done here and now and returned.

        Raises BadInput where it can't be asked (another one stands), OSError where the disk refuses.
        """
        from engine import pivoting  # tokenisers and data: not needed to look at a run

        pivot.ask(self.run_dir, request)
        events = Appender(self.run_dir / names.EVENTS)
        text = f"asked by {request.by}: {request.old_name} → {request.new_name}, {WHEN[request.when]}"
        events.append(encode(event("pivot_asked", step=request.step, text=text, id=request.id)))
        events.close()
        state = self.poll()
        if state.alive:
            if state.here:
                self.snapshot()  # a way back, and the word that there is a request
            return None
        try:
            return pivoting.execute(self.run_dir)
        except (BadInput, OSError):
            if self.poll().alive:  # a trainer has started meanwhile: it has seen the request
                return None
            left = pivot.read(self.run_dir)
            if left is not None and not left.committed:  # else the next start finishes it
                pivot.drop(self.run_dir)
            raise

    def withdraw_pivot(self) -> Pivot:
        """Take the request back. Raises BadInput where there is none or it is too late."""
        found = pivot.withdraw(self.run_dir)
        events = Appender(self.run_dir / names.EVENTS)
        text = f"the pivot to {found.new_name} was withdrawn"
        events.append(encode(event("pivot_withdrawn", step=found.step, text=text, id=found.id)))
        events.close()
        return found

    def wait(self, seconds: float) -> bool:
        """Whether the trainer that is attached has ended, after at most so many seconds."""
        fd = self._pidfd
        return fd is None or bool(select.select([fd], [], [], seconds)[0])

    def close(self) -> None:
        """Let go of the trainer; it lives on."""
        with self._mutex:
            self._forget()

    def _send(self, number: signal.Signals) -> None:
        with self._mutex:
            state = self._poll()
            if not state.alive or self._pidfd is None:
                where = f"it runs on {state.host}" if state.alive else "no trainer runs"
                raise BadInput(f"{self.run_dir}: {number.name} not sent: {where}")
            try:
                signal.pidfd_send_signal(self._pidfd, number)
            except ProcessLookupError:
                raise BadInput(
                    f"{self.run_dir}: {number.name} not sent: the trainer has just ended"
                ) from None

    def _poll(self) -> TrainerState:
        if self._pidfd is not None and select.select([self._pidfd], [], [], 0)[0]:
            code = self._child.poll() if self._child else None
            pid = self._child.pid if self._child else (self._holder.pid if self._holder else None)
            self._close_pidfd()
            self._holder = None
            if not (other := self._attach()).alive:
                return TrainerState(pid=pid, exit_code=code)
            return other
        if self._pidfd is not None:
            ours = self._child is not None
            pid = self._child.pid if self._child else (self._holder.pid if self._holder else None)
            return TrainerState(pid=pid, alive=True, starting=ours and not self._holds_lock(pid))
        state = self._attach()
        if not state.alive and self._child is not None:
            return TrainerState(pid=self._child.pid, exit_code=self._child.poll())
        return state

    def _attach(self) -> TrainerState:
        try:
            holder = lock.probe(self.run_dir)
        except OSError as e:
            return TrainerState(error=f"{self.run_dir / names.LOCK}: {e.strerror or e}")
        if holder is None or holder.pid == 0:
            return TrainerState()
        if not holder.here:
            return TrainerState(pid=holder.pid, alive=True, here=False, host=holder.host)
        try:
            fd = os.pidfd_open(holder.pid)
        except ProcessLookupError:
            return TrainerState()
        if lock.start_time(holder.pid) != holder.start:  # the pid was reused between the two looks
            os.close(fd)
            return TrainerState()
        self._pidfd, self._holder, self._child = fd, holder, None
        return TrainerState(pid=holder.pid, alive=True, host=holder.host)

    def _holds_lock(self, pid: int | None) -> bool:
        if self._holder is None:
            try:
                self._holder = lock.probe(self.run_dir)
            except OSError:
                return False
        return self._holder is not None and self._holder.pid == pid

    def _forget(self) -> None:
        self._close_pidfd()
        self._child = self._holder = None

    def _close_pidfd(self) -> None:
        if self._pidfd is not None:
            os.close(self._pidfd)
            self._pidfd = None


def _spawn(run_dir: Path, options: tuple[str, ...]) -> subprocess.Popen[bytes]:
    log = open_regular(run_dir / names.LOG, _LOG)
    # The child inherits the mask: a signal that arrives before its handlers are there waits for them.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _OURS)
    try:
        return subprocess.Popen(
            [sys.executable, "-m", "engine", str(run_dir), *options],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            close_fds=True,
        )
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        os.close(log)
