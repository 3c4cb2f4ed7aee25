"""The thread that looks at the run directory and hands immutable updates to whoever draws.

It never touches the screen. One update is under way at a time: while nobody takes it (a stalled terminal) it
reads no further. It is the only reader of the run's files in the cockpit.
"""

import select
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from andrea_tui.core.reader import TICK, Reader, Update
from andrea_tui.core.recall import Recall
from andrea_tui.runner import Runner

BELL_TICK = 0.5  # where a doorbell rings for what happens meanwhile; the screen shows no more than that
QUIET_TICK = 1.0  # likewise, when the look before brought nothing
_BELL_STEP = 250  # ms between the doorbell's own looks at what rang; it tells one or two later


class Feed:
    """Start it, `take` updates when `notify` was called (in the feed's thread), close it."""

    def __init__(
        self,
        run_dir: Path,
        runner: Runner,
        notify: Callable[[], None],
        hung_up: Callable[[], None] | None = None,
        tty: int | None = None,
        recall: Recall | None = None,
    ) -> None:
        """`recall`: where what earlier cockpits read is kept.

        `hung_up` is called, once, when the terminal behind the descriptor `tty` is gone."""
        self._reader = Reader(run_dir, runner, recall)
        self._run_dir = run_dir
        self._notify, self._hung_up, self._tty = notify, hung_up, tty
        self._update: Update | None = None  # that nobody took yet
        self._stop = threading.Event()
        # Set while nothing is under way. Decoding and applying take turns: side by side they would only fight
        # for the interpreter, and a stalled screen would fill the memory.
        self._free = threading.Event()
        self._free.set()
        self._bell: Any = None
        self._quiet = False  # the last look brought nothing
        self._thread = threading.Thread(target=self._run, name="feed", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        self._stop.set()
        self._free.set()
        if self._thread.is_alive():
            self._thread.join(2)

    def take(self) -> Iterator[Update]:
        """What came since the last call, at most one; the feed goes on when it was dealt with."""
        update, self._update = self._update, None
        if update is not None:
            yield update
            self._free.set()

    def _run(self) -> None:
        self._bell = _doorbell(self._run_dir)
        try:
            while not self._stop.is_set():
                if not self._tick():
                    self._wait()
        finally:
            self._reader.close()

    def _wait(self) -> None:
        start = time.monotonic()
        if self._bell is not None:
            try:
                # On a network file system it may stay silent: then the time is what ends it.
                longest = QUIET_TICK if self._quiet else BELL_TICK
                self._bell.watch(_BELL_STEP, _BELL_STEP, int(longest * 1000), self._stop)
            except Exception:  # noqa: BLE001  the doorbell is a convenience: without it we still look
                self._bell = None
        # It rings for every write of a quick run: the screen shows no more than two looks a second.
        least = TICK if self._bell is None else BELL_TICK
        self._stop.wait(max(0.0, least - (time.monotonic() - start)))

    def _tick(self) -> bool:
        """Whether there is more to read at once."""
        if self._tty is not None and self._hung_up is not None and _is_hung_up(self._tty):
            self._tty = None
            self._hung_up()
        if not self._free.wait(TICK):
            return False
        try:
            update, more = self._reader.next()
        except Exception as e:  # noqa: BLE001  shown in the dashboard, and tried again
            update, more = self._reader.failed(e), False
        self._quiet = update is None
        if update is not None:
            self._free.clear()
            self._update = update
            self._notify()
        return more


def _doorbell(run_dir: Path) -> Any:
    """Rings when something in the directory changes, or None where that can't be had (NFS, out of watches)."""
    try:
        from watchfiles._rust_notify import RustNotify

        return RustNotify([str(run_dir)], False, False, 300, False, True)
    except Exception:  # noqa: BLE001  looking every 250 ms is enough
        return None


def _is_hung_up(fd: int) -> bool:
    poll = select.poll()
    poll.register(fd, 0)  # POLLHUP, POLLERR and POLLNVAL are always reported
    return bool(poll.poll(0))


__all__ = ["Feed", "Reader", "Update"]
