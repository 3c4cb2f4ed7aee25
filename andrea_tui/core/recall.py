"""What was read of a long `.loss.json`, kept as columns for the next attach: the text takes a hundred times as long.

A cache in the user's own cache directory, of logs without damage. It is believed only where the log is still the same
file, as long at least, with the same bytes at its begin and before the place up to which it was read. Else the log
itself is read.
"""

import hashlib
import os
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from andrea_tui.core.deep import DeepHistory, Sparse
from andrea_tui.core.homes import cache_home
from andrea_tui.core.text import clean
from engine.rundir import names
from engine.rundir.files import open_regular

FORMAT = 1
LEAST = 1 << 20  # bytes of text: less is read as quickly
GROWN = 0.02  # of the log, for which it is not written again
HEAD, TAIL = 1 << 12, 1 << 16  # bytes that are compared
_MOST = 2 << 30  # bytes of all runs together; the oldest go first
_WAIT = 1.0  # seconds that leaving waits for a slow home directory


class Place(Struct, frozen=True):
    """Up to where a log was read, with what was read there: the file may be another text by now."""

    device: int
    inode: int
    offset: int
    head: bytes  # its first bytes
    tail: bytes  # those before the offset


class _Kept(Struct):
    format: int
    device: int
    inode: int
    offset: int
    head: int  # bytes that are in the digest
    tail: int
    digest: str
    sparse: Sparse


class Found(Struct):
    """What is kept. It is to be compared with the log."""

    history: DeepHistory
    kept: _Kept

    def place(self, fd: int) -> Place | None:
        """Where the log goes on, if it is the one."""
        k = self.kept
        head, tail = _read(fd, k.offset, k.head, k.tail)
        if _digest(head, tail) != k.digest:
            return None
        return Place(k.device, k.inode, k.offset, head, tail)


class Recall:
    """Of one run. Nothing here raises; `problem` says, once, why nothing can be kept."""

    def __init__(self, run_dir: Path) -> None:
        self._log = run_dir / names.LOSS
        self._known: tuple[int, int, int] | None = None  # device, inode, offset of what is kept
        self._thread: threading.Thread | None = None
        self.problem = ""

    def load(self) -> Found | None:
        """None where nothing is kept, or what is there is damaged."""
        try:
            with np.load(self._path(), allow_pickle=False) as data:
                kept = msgspec.json.decode(data["kept"].tobytes(), type=_Kept)
                if kept.format != FORMAT:
                    return None
                arrays = {k: data[k] for k in data.files if k != "kept"}
            return Found(DeepHistory.unpacked(kept.sparse, arrays), kept)
        except FileNotFoundError:
            return None
        except Exception:  # noqa: BLE001  a cache: whatever zip files can hold that is no history, the log is read instead
            return None

    def believed(self, place: Place) -> None:
        """What was found is that of the log."""
        self._known = (place.device, place.inode, place.offset)

    def forget(self) -> None:
        """The log starts again: keep it anew."""
        self._known = None

    def save(self, history: DeepHistory, place: Place | None) -> None:
        """Keep what the log says up to `place`, if that is much more than is kept. Returns at once."""
        if place is None or place.offset < LEAST or history.missing or not self._much(place):
            return
        if self._thread is not None and self._thread.is_alive():
            return
        sparse, arrays = history.packed()
        kept = _Kept(FORMAT, place.device, place.inode, place.offset, len(place.head), len(place.tail),
                     _digest(place.head, place.tail), sparse)  # fmt: skip
        meta = np.frombuffer(msgspec.json.encode(kept), np.uint8)
        self._thread = threading.Thread(
            target=self._save, args=(history, history.cuts, place, arrays | {"kept": meta}), daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        if self._thread is not None:
            self._thread.join(_WAIT)

    def _much(self, place: Place) -> bool:
        if self._known is None or self._known[:2] != (place.device, place.inode):
            return True
        return not 0 <= place.offset - self._known[2] < GROWN * place.offset

    def _save(
        self, history: DeepHistory, cuts: int, place: Place, arrays: Mapping[str, NDArray[Any]]
    ) -> None:
        try:
            if not self._is_still(place):
                return
            path = self._path()
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            part = path.with_name(f"{path.name}.{os.getpid()}.part")
            try:
                with open(part, "wb") as f:  # not synced: a zip file has checksums
                    np.savez(f, **arrays)  # type: ignore[arg-type]
                if history.cuts == cuts:  # else the arrays were written to meanwhile
                    os.replace(part, path)
                    self.believed(place)
            finally:
                part.unlink(missing_ok=True)
            _make_room(path)
        except (OSError, ValueError) as e:
            why = (e.strerror or str(e)) if isinstance(e, OSError) else str(e)
            self.problem = self.problem or clean(f"the history is read anew at the next attach: {why}")

    def _is_still(self, place: Place) -> bool:
        """Whether the log says now what was read of it."""
        fd = open_regular(self._log)
        try:
            info = os.fstat(fd)
            same = (info.st_dev, info.st_ino) == (place.device, place.inode)
            return same and _read(fd, place.offset, len(place.head), len(place.tail)) == (
                place.head,
                place.tail,
            )
        finally:
            os.close(fd)

    def _path(self) -> Path:
        """Raises OSError where there is no home."""
        name = hashlib.sha256(os.fsencode(self._log.parent.resolve())).hexdigest()[:32]
        return cache_home() / f"{name}.npz"


def _read(fd: int, offset: int, head: int, tail: int) -> tuple[bytes, bytes]:
    """The log's first bytes, and those before the offset."""
    return os.pread(fd, head, 0), os.pread(fd, tail, offset - tail)


def _digest(head: bytes, tail: bytes) -> str:
    return hashlib.sha256(head + b"\0" + tail).hexdigest()


def _make_room(mine: Path) -> None:
    """The oldest of other runs go, where all take too much, and what killed cockpits left half written."""
    files = []
    for path in mine.parent.iterdir():
        with suppress(OSError):  # another cockpit's, removed just now
            info = path.stat()
            if path.suffix == ".part" and info.st_mtime < time.time() - 3600:
                path.unlink()
            else:
                files.append((info.st_mtime, info.st_size, path))
    total = sum(size for _, size, _ in files)
    for _, size, path in sorted(files):
        if total <= _MOST:
            break
        if path != mine:
            with suppress(OSError):
                path.unlink()
            total -= size
