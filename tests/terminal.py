"""A program in a real pseudo-terminal, and an emulator (pyte) that says what a person sees."""

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import threading
import time
from pathlib import Path
from typing import Any, Self

import pyte

TIMEOUT = 120.0


class Terminal:
    """Starts `andrea-tui ARGS` in a pty of that size. Use as a context manager; it kills what is left.

    `env`: over what it has by default, TERM, COLORTERM and LC_ALL among it; "" unsets a variable.
    """

    def __init__(
        self, *args: str, columns: int = 120, lines: int = 40, cwd: Path | None = None,
        env: dict[str, str] | None = None, program: tuple[str, ...] = ("-m", "andrea_tui"),
        stderr: int | None = None,
    ) -> None:  # fmt: skip
        self.screen = pyte.Screen(columns, lines)
        self.raw = b""
        self._stream = pyte.ByteStream(self.screen)
        self._mutex = threading.Lock()
        self.master, self.slave = pty.openpty()
        fcntl.ioctl(self.slave, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
        self.before: list[Any] = termios.tcgetattr(self.slave)
        clean = {
            k: v
            for k, v in os.environ.items()
            if not k.startswith(("TEXTUAL", "SSH_", "NO_COLOR", "COLUMNS", "LINES"))
        }
        clean |= {"TERM": "xterm-256color", "COLORTERM": "truecolor", "LC_ALL": "C.UTF-8", **(env or {})}
        clean = {k: v for k, v in clean.items() if v}
        self.process = subprocess.Popen(
            [sys.executable, *program, *args], stdin=self.slave, stdout=self.slave,
            stderr=self.slave if stderr is None else stderr, env=clean, cwd=cwd, preexec_fn=self._own_terminal,
        )  # fmt: skip
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._closing = False
        self.stalled = False  # nobody reads what it writes
        self._reader.start()

    def _own_terminal(self) -> None:
        os.setsid()
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        self._closing = True
        self._reader.join(5)
        os.close(self.master)
        os.close(self.slave)

    def _read(self) -> None:
        while not self._closing:
            if self.stalled:
                time.sleep(0.02)
                continue
            if not select.select([self.master], [], [], 0.1)[0]:
                continue
            with self._mutex:
                data = os.read(self.master, 65536)
                self.raw += data
                self._feed(data)

    def _feed(self, data: bytes) -> None:
        # pyte does not know the private modes with ":" and ">" that Textual asks terminals about
        self._stream.feed(re.sub(rb"\x1b\[[<>=?][0-9;:]*[upqc]|\x1bP.*?\x1b\\", b"", data))

    def resize(self, columns: int, lines: int) -> None:
        with self._mutex:
            fcntl.ioctl(self.slave, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
            self.screen.resize(lines, columns)
        os.kill(self.process.pid, signal.SIGWINCH)

    def text(self) -> str:
        with self._mutex:
            return "\n".join(self.screen.display)

    def is_stopped(self) -> bool:
        return Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"

    def send(self, keys: str) -> None:
        os.write(self.master, keys.encode())

    def wait(self, pattern: str) -> re.Match[str]:
        """Until the screen matches; the match."""
        end = time.monotonic() + TIMEOUT
        while True:
            found = re.search(pattern, self.text())
            if found:
                return found
            assert time.monotonic() < end, f"waited {TIMEOUT} s for {pattern!r} on\n{self.text()}"
            assert self.process.poll() is None, (
                f"ended with {self.process.poll()} before {pattern!r}\n{self.text()}"
            )
            time.sleep(0.05)

    def ended(self) -> int:
        """Its exit code, once it has ended."""
        code = self.process.wait(TIMEOUT)
        end = time.monotonic() + 5
        while select.select([self.master], [], [], 0.1)[0] and time.monotonic() < end:
            time.sleep(0.01)  # what it wrote last is on its way through the pty
        with self._mutex:  # and through the emulator
            return code

    def restored(self) -> bool:
        """Line settings as before, and every terminal mode that was switched on is off again."""
        modes: dict[bytes, bool] = {}
        for m in re.finditer(rb"\x1b\[\?([0-9;]+)([hl])", self.raw):
            for mode in m[1].split(b";"):
                modes[mode] = m[2] == b"h"
        left = {
            m for m, on in modes.items() if on and m not in (b"25", b"7")
        }  # cursor and wrap are on by nature
        same = termios.tcgetattr(self.slave) == self.before
        assert not left, f"modes left on: {left}"
        return same and modes.get(b"25", True)


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def end(pid: int) -> None:
    """Stop a trainer that a test leaves behind."""
    if alive(pid):
        os.kill(pid, signal.SIGKILL)
