"""Where the last look at each run is kept: outside the run directory, which may be read-only or others'."""

import hashlib
import os
import threading
import time
from functools import partial
from pathlib import Path

import msgspec

from andrea_tui.core.away import Look
from andrea_tui.core.homes import state_home as state_home
from andrea_tui.core.text import clean
from engine.rundir.files import open_regular, read_file, replace_file, write_all
from engine.rundir.records import Event

_WAIT = 1.0  # seconds that leaving waits for a slow home directory


def log_crash(text: str) -> str:
    """Keep a traceback; says where, or why that could not be."""
    try:
        path = state_home() / "errors.log"
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        fd = open_regular(
            path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        )
        try:
            write_all(fd, f"{time.strftime('%Y-%m-%d %H:%M:%S')} pid {os.getpid()}\n{text}\n".encode())
        finally:
            os.close(fd)
    except OSError as e:
        return clean(f"not logged: {e.strerror or e}")
    return clean(f"also in {path}")


class Looks:
    """The last look at one run. Nothing here raises; `problem` says, once, why nothing can be kept."""

    def __init__(self, run_dir: Path) -> None:
        self._run_dir = run_dir
        self._thread: threading.Thread | None = None
        self.problem = ""

    def load(self, first: Event | None) -> Look | None:
        """`first`: the run's first event; a new run in the same folder is another run. None: no look is known."""
        try:
            return msgspec.json.decode(read_file(self._path(first), 1 << 20), type=Look)
        except FileNotFoundError:
            return None
        except (OSError, ValueError, RecursionError) as e:  # msgspec's errors are ValueErrors
            self._fail(e)
            return None

    def save(self, look: Look, first: Event | None) -> None:
        """Keep it; returns at once, a home on a slow disk holds nobody up."""
        if self._thread is None or not self._thread.is_alive():
            self._thread = threading.Thread(target=partial(self._save, look, first), daemon=True)
            self._thread.start()

    def close(self) -> None:
        if self._thread is not None:
            self._thread.join(_WAIT)

    def _save(self, look: Look, first: Event | None) -> None:
        try:
            path = self._path(first)
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            replace_file(path, msgspec.json.encode(look) + b"\n")
        except (OSError, ValueError) as e:
            self._fail(e)

    def _path(self, first: Event | None) -> Path:
        born = f"{first.t!r} {first.event}" if first is not None else ""
        name = hashlib.sha256(
            f"{self._run_dir.resolve()}\0{born}".encode(errors="surrogateescape")
        ).hexdigest()[:32]
        return state_home() / f"{name}.json"

    def _fail(self, e: Exception) -> None:
        why = (e.strerror or str(e)) if isinstance(e, OSError) else str(e)
        where = f"{e.filename}: " if isinstance(e, OSError) and e.filename else ""
        self.problem = self.problem or clean(f"what you saw last can't be remembered: {where}{why}")
