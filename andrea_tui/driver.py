"""Textual's Linux driver, with what a terminal that is stopped, continued, lost or half redirected needs as well."""

import codecs
import os
import select
import signal
import sys
import termios
import threading
from contextlib import suppress
from typing import Any

from textual._xterm_parser import XTermParser
from textual.drivers.linux_driver import LinuxDriver

GRACE = 3.0  # seconds for the loop to end by itself: it may hang in a write to a terminal that takes nothing

# Everything that Textual switches on, off again: mouse, focus, paste, resize reports, kitty keys, alternate screen.
_RESTORE = (
    b"\x1b[?1000l\x1b[?1002l\x1b[?1003l\x1b[?1015l\x1b[?1006l\x1b[?1016l\x1b[?1004l\x1b[?2004l\x1b[?2048l"
    b"\x1b[?7h\x1b[<u\x1b[?1049l\x1b[?25h"
)


_TICK = 0.1  # seconds


class _Bell(threading.Event):
    """An event that a thread which waits for input can wait for as well."""

    def __init__(self) -> None:
        super().__init__()
        self.fd = os.eventfd(0)

    def set(self) -> None:
        super().set()
        os.eventfd_write(self.fd, 1)

    def clear(self) -> None:
        if self.is_set():
            os.eventfd_read(self.fd)
        super().clear()


class CockpitDriver(LinuxDriver):
    """Draws on stdout where stderr is not the terminal (`2>errors.txt`).

    Continued after a SIGSTOP, which nobody can prepare for, it takes the terminal again without a second thread
    that reads keys, and still knows the settings of before; Textual would forget them.
    """

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._stopped = False  # by SIGTSTP: the terminal was given back before
        self._taking = self._continued = False
        self.exit_event: _Bell = _Bell()
        if sys.__stderr__ is None or not sys.__stderr__.isatty():
            self._file: Any = sys.__stdout__

    def run_input_thread(self) -> None:
        """The thread that reads keys: it sleeps until there is one. Textual's looks ten times a second."""
        parser = XTermParser(self._debug)
        decode = codecs.getincrementaldecoder("utf-8")(errors="replace").decode
        while True:
            unfinished = parser._timeout_time is not None  # an Esc, which may be the beginning of a sequence
            ready, _, _ = select.select(
                [self.fileno, self.exit_event.fd], [], [], _TICK if unfinished else None
            )
            if self.exit_event.is_set():
                return
            text = decode(self._read()) if self.fileno in ready else ""
            if text:  # half a character is none yet, which to the parser would be the end
                for event in parser.feed(text):
                    self.process_message(event)
            for event in parser.tick():
                self.process_message(event)

    def _read(self) -> bytes:
        """Nothing from a terminal that is lost: whoever looks after it will say so, soon."""
        with suppress(OSError):
            if data := os.read(self.fileno, 4096):
                return data
        self.exit_event.wait(_TICK)
        return b""

    @property
    def lent(self) -> bool:
        """Whether the terminal is another program's now: an editor's."""
        return not self._auto_restart

    def _sigtstp_application(self, *args: Any) -> None:
        self._stopped = self._stopped or self._auto_restart
        super()._sigtstp_application(*args)

    def _sigcont_application(self, *_: Any) -> None:
        if self.lent:
            return
        self._continued = True
        if self._taking:  # in the background the kernel stops us in the middle of it, and SIGCONT comes again
            return
        self._taking = True
        try:
            while self._continued:
                self._continued = False
                self._take()
        finally:
            self._taking = False

    def _take(self) -> None:
        """Take the terminal again; in the background that fails, and the next SIGCONT tries anew."""
        if self._stopped:
            self.resume_application_mode()
        elif self._writer_thread is not None:
            before = self.attrs_before
            self.suspend_application_mode()
            self._must_signal_resume = True
            self.resume_application_mode()
            self.attrs_before = before
        self._stopped = self._key_thread is None or not self._key_thread.is_alive()

    def give_back(self) -> None:
        """The terminal as it was, as far as that goes without waiting for anything. From any thread."""
        with suppress(OSError, termios.error):
            if self.attrs_before is not None:
                termios.tcsetattr(self.fileno, termios.TCSANOW, self.attrs_before)
        with suppress(OSError):
            fd = os.open("/dev/tty", os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
            os.write(fd, _RESTORE)


def end_soon(driver: Any, code: int = 0) -> None:
    """End the process after GRACE, should it still be there then."""

    def end() -> None:
        if isinstance(driver, CockpitDriver):
            driver.give_back()
        os._exit(code)

    timer = threading.Timer(GRACE, end)
    timer.daemon = True
    timer.start()


ENDING = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGQUIT)
