"""A program in a pseudo-terminal whose every byte has its time: when a screen was there, and what it costs.

A thread reads and notes (seconds since the start, bytes). An emulator (pyte) is fed from these notes afterwards, chunk
by chunk, so "when did the screen show this" has the time of a chunk, not that of a look at it.
"""

import fcntl
import os
import pty
import re
import select
import statistics
import struct
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import psutil
import pyte

QUIET = 0.2  # seconds without a change after which an answer to a key is over
PIECE = 2.0  # seconds; peers redraw every so often
_UNKNOWN = re.compile(rb"\x1b\[[<>=?][0-9;:$]*[upqc]|\x1bP.*?\x1b\\")  # what pyte would print
_UNFINISHED = re.compile(rb"\x1b(\[[0-9;:<>=?$]*|P[^\x1b]*)?$")

Screen = list[str]


@dataclass(frozen=True)
class Window:
    """Some seconds of a program's life; of its whole process tree."""

    cpu: float  # per cent of one core
    bytes_per_second: float  # to the terminal
    usual_bytes: float  # per second: the median of its pieces of PIECE seconds
    rss: float  # MiB at the end
    pss: float
    others: float  # CPU of everything else on the machine but this bench, per cent of one core


class Watched:
    """Starts a command in a pty of that size. Use as a context manager; what is left at its end is killed.

    `also`: processes that are neither the program's nor others' (a stand-in trainer).
    """

    def __init__(
        self, command: Sequence[str], columns: int = 120, lines: int = 40, env: dict[str, str] | None = None,
        cwd: Path | None = None,
    ) -> None:  # fmt: skip
        sys.setswitchinterval(0.0005)  # the reader's notes don't wait for the emulator
        self.chunks: list[tuple[float, bytes]] = []
        self.screen = pyte.Screen(columns, lines)
        self.also: list[int] = []
        self._stream, self._fed, self._tail = pyte.ByteStream(self.screen), 0, b""
        self._master, self._slave = pty.openpty()
        fcntl.ioctl(self._slave, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
        self._closing = False
        self._reader = threading.Thread(target=self._read, daemon=True)
        self.start = time.monotonic()
        self._reader.start()
        self.process = subprocess.Popen(
            command, stdin=self._slave, stdout=self._slave, stderr=self._slave, cwd=cwd,
            env=environment() | (env or {}), preexec_fn=_own_terminal,
        )  # fmt: skip
        self._busy = Busy(self._pids)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for pid in reversed(tree(self.process.pid)):
            try:
                os.kill(pid, 9)
            except ProcessLookupError:
                pass
        self.process.wait()
        self._closing = True
        self._reader.join()
        os.close(self._master)
        os.close(self._slave)

    def _read(self) -> None:
        while not self._closing:
            if select.select([self._master], [], [], 0.1)[0]:
                data = os.read(self._master, 65536)
                self.chunks.append((time.monotonic() - self.start, data))

    def _pids(self) -> list[int]:
        return [*tree(self.process.pid), *self.also]

    # ---- the screen

    def text(self) -> Screen:
        return list(self.screen.display)

    def _feed_next(self) -> float | None:
        """Feeds one chunk; its time. None: the emulator has seen all there is."""
        if self._fed == len(self.chunks):
            return None
        t, data = self.chunks[self._fed]
        self._fed += 1
        data = self._tail + data
        cut = _UNFINISHED.search(data)
        data, self._tail = (data[: cut.start()], data[cut.start() :]) if cut else (data, b"")
        self._stream.feed(_UNKNOWN.sub(b"", data))
        return t

    def when(self, there: Callable[[Screen], bool], timeout: float = 60.0) -> float:
        """Seconds from the start to the first chunk after which the screen is as wanted.

        Raises RuntimeError if it ends before, TimeoutError if it isn't by then.
        """
        while True:
            t = self._feed_next()
            if t is not None:
                if there(self.text()):
                    return t
            elif self.process.poll() is not None and self._fed == len(self.chunks):
                raise RuntimeError(f"ended with {self.process.returncode}: {self._words()}")
            elif time.monotonic() - self.start > timeout:
                raise TimeoutError(f"not within {timeout:.0f} s; it shows: {self._words()}")
            else:
                time.sleep(0.02)

    def _words(self) -> str:
        return " / ".join(x.strip() for x in self.text() if x.strip())[:300]

    def send(self, keys: str) -> None:
        os.write(self._master, keys.encode())

    def answer(self, keys: str, rows: range) -> float | None:
        """Seconds from the keys to the last of the changes that they bring about in these rows of the screen.

        None: nothing changes there. It is over when the rows have been still for QUIET seconds.
        """
        while self._feed_next() is not None:
            pass
        before, last = self._cells(rows), None
        sent = time.monotonic() - self.start
        self.send(keys)
        while True:
            t = self._feed_next()
            if t is None:
                still = time.monotonic() - self.start - (sent if last is None else last)
                if still > (2.0 if last is None else QUIET):
                    return None if last is None else last - sent
                time.sleep(0.01)
                continue
            now = self._cells(rows)
            if now != before:
                before, last = now, t

    def _cells(self, rows: range) -> list[Any]:
        """Text and style of these rows."""
        return [
            [line[x] for x in range(self.screen.columns)] for line in (self.screen.buffer[y] for y in rows)
        ]

    # ---- what it costs

    def others(self) -> float:
        """CPU of everything else on the machine since the last call, or the start; per cent of one core."""
        return self._busy.others()

    def memory(self) -> tuple[float, float]:
        """(RSS, PSS) of the whole tree in MiB."""
        rss = pss = 0
        for pid in tree(self.process.pid):
            try:
                full = psutil.Process(pid).memory_full_info()
            except psutil.Error:
                continue
            rss, pss = rss + full.rss, pss + full.pss
        return rss / 2**20, pss / 2**20

    def window(self, seconds: float) -> Window:
        busy = Busy(self._pids)
        mine, n, t0 = cpu_seconds(tree(self.process.pid)), len(self.chunks), time.monotonic()
        time.sleep(seconds)
        took = time.monotonic() - t0
        mine = cpu_seconds(tree(self.process.pid)) - mine
        rss, pss = self.memory()
        sent = self.chunks[n:]
        pieces = [0] * max(1, round(took / PIECE))
        for t, data in sent:
            pieces[min(len(pieces) - 1, int((self.start + t - t0) / PIECE))] += len(data)
        return Window(
            100 * mine / took, sum(len(data) for _, data in sent) / took, statistics.median(pieces) / PIECE, rss, pss,
            busy.others(),
        )  # fmt: skip


class Busy:
    """How busy the machine is with what is neither this bench nor the processes it measures."""

    def __init__(self, ours: Callable[[], list[int]]) -> None:
        self.ours = ours
        self._last = self._look()

    def _look(self) -> tuple[float, float, float]:
        t = psutil.cpu_times()
        busy = t.user + t.nice + t.system + t.irq + t.softirq + t.steal
        return time.monotonic(), busy, cpu_seconds(self.ours()) + time.process_time()

    def others(self) -> float:
        """Since the last call, or the start; per cent of one core."""
        before, self._last = self._last, self._look()
        took, busy, ours = (b - a for a, b in zip(before, self._last, strict=True))
        return max(0.0, 100 * (busy - ours) / took)


def environment() -> dict[str, str]:
    """That of a local 24-bit terminal, whatever this one is."""
    kept = {
        k: v
        for k, v in os.environ.items()
        if not k.startswith(("TEXTUAL", "SSH_", "NO_COLOR", "COLUMNS", "LINES"))
    }
    return kept | {"TERM": "xterm-256color", "COLORTERM": "truecolor", "LC_ALL": "C.UTF-8"}


def tree(pid: int) -> list[int]:
    """The process and all below it."""
    try:
        return [pid, *(p.pid for p in psutil.Process(pid).children(recursive=True))]
    except psutil.Error:
        return [pid]


def cpu_seconds(pids: Sequence[int]) -> float:
    """User and system, with those of children that have ended and been waited for."""
    total = 0.0
    for pid in pids:
        try:
            total += sum(psutil.Process(pid).cpu_times()[:4])
        except psutil.Error:
            pass  # it has just ended: its parent has its seconds
    return total


def middle(values: Sequence[float], digits: int = 2) -> str:
    """Median and range: `0.52 (0.50–0.61)`."""
    a, m, b = (f"{x:,.{digits}f}" for x in (min(values), statistics.median(values), max(values)))
    return m if a == b else f"{m} ({a}–{b})"


def _own_terminal() -> None:
    os.setsid()
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
