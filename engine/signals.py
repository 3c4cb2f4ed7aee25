"""Signals as flags. Installed before torch is imported: a default SIGUSR1 in those seconds would kill."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from engine.errors import StopRequested

_OURS = (signal.SIGUSR1, signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def block() -> None:
    signal.pthread_sigmask(signal.SIG_BLOCK, _OURS)


class Flags:
    """Levels, not counts: a hundred SIGUSR1 in one step make one checkpoint, a second SIGTERM changes nothing."""

    def __init__(self) -> None:
        self.stop = False  # SIGTERM, SIGINT, SIGHUP: finish the step, checkpoint, end
        self.snapshot = False  # SIGUSR1: finish the step, checkpoint, go on
        self.by = ""  # the signal that asked for the stop
        self._at_once = ""  # what a stop cuts short wherever it stands

    def stopping(self) -> bool:
        return self.stop

    @contextmanager
    def at_once(self, what: str) -> Iterator[None]:
        """Within: a stop raises StopRequested wherever the code stands, for long work that looks at no flag."""
        if self.stop:
            raise StopRequested(what)
        self._at_once = what
        try:
            yield
        except Exception as e:
            if self.stop:
                raise StopRequested(what) from e  # torch.compile wraps what it meets in errors of its own
            raise
        finally:
            self._at_once = ""

    def install(self) -> None:
        """Handlers in place, then unblock: what the launcher held back arrives now."""
        signal.signal(signal.SIGUSR1, self._on_snapshot)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            # nohup and its kind ignore SIGHUP on purpose; so do we then
            if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:
                signal.signal(number, self._on_stop)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _OURS)

    def _on_snapshot(self, number: int, frame: FrameType | None) -> None:
        self.snapshot = True

    def _on_stop(self, number: int, frame: FrameType | None) -> None:
        self.by = self.by or signal.Signals(number).name
        self.stop = True
        if self._at_once:
            what, self._at_once = self._at_once, ""
            raise StopRequested(what)
