"""What was read of a long `.loss.json`, kept as columns for the next attach: the text takes a hundred times as long.

A cache in the user's own cache directory. It is believed only where the log is still the same file, as long at least,
with the same bytes at its begin and before the place up to which it was read. Else the log itself is read.
"""

import hashlib
import os
import time
import zipfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import msgspec
import numpy as np
from msgspec import Struct

from andrea_tui.core.deep import DeepHistory, Sparse
from andrea_tui.core.homes import cache_home
from andrea_tui.core.text import clean
from engine.rundir import names
from engine.rundir.files import open_regular

FORMAT = 1
LEAST = 1 << 20  # bytes of text: less is read as quickly
GROWN = 0.02  # of the log, for which it is not written again
_HEAD, _TAIL = 1 << 12, 1 << 16  # bytes that are compared
_MOST = 2 << 30  # bytes of all runs together; the oldest go first


class Place(Struct, frozen=True):
    """Up to where a log was read."""

    device: int
    inode: int
    offset: int  # of the first line that was not
    bad: int  # lines before it that don't parse


class _Kept(Struct):
    format: int
    place: Place
    digest: str
    sparse: Sparse


class Found(Struct):
    history: DeepHistory
    place: Place
    digest: str

    def same(self, fd: int) -> bool:
        return _digest(fd, self.place.offset) == self.digest


class Recall:
    """Of one run. Nothing here raises; `problem` says, once, why nothing can be kept."""

    def __init__(self, run_dir: Path) -> None:
        self._log, self._offset = run_dir / names.LOSS, 0  # up to where it is kept
        self.problem = ""
        try:
            name = hashlib.sha256(os.fsencode(run_dir.resolve())).hexdigest()[:32]
            self._path: Path | None = cache_home() / f"{name}.npz"
        except OSError as e:
            self._path = None
            self._fail(e)

    def load(self) -> Found | None:
        """What is kept, for the caller to compare with the log. None where nothing is, or it is damaged."""
        if self._path is None:
            return None
        try:
            with np.load(self._path, allow_pickle=False) as data:
                kept = msgspec.json.decode(data["kept"].tobytes(), type=_Kept)
                if kept.format != FORMAT:
                    return None
                history = DeepHistory.unpacked(kept.sparse, {k: data[k] for k in data.files if k != "kept"})
        except FileNotFoundError:
            return None
        # A cache: whatever is wrong with it (ValueError: not JSON, other arrays), the log is read instead.
        except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile):
            return None
        self._offset = kept.place.offset
        return Found(history, kept.place, kept.digest)

    def save(self, history: DeepHistory, place: Place | None) -> None:
        """Keep what the log says up to `place`, if that is much more than is kept."""
        if self._path is None or place is None or not len(history):
            return
        if place.offset < LEAST or 0 <= place.offset - self._offset < GROWN * place.offset:
            return
        try:
            fd = open_regular(self._log)
            try:
                info = os.fstat(fd)
                if (info.st_dev, info.st_ino) != (place.device, place.inode):
                    return  # replaced just now
                digest = _digest(fd, place.offset)
            finally:
                os.close(fd)
            sparse, arrays = history.packed()
            self._write(_Kept(FORMAT, place, digest, sparse), arrays)
            self._offset = place.offset
        except (OSError, ValueError) as e:
            self._fail(e)

    def _write(self, kept: _Kept, arrays: Mapping[str, np.ndarray]) -> None:
        assert self._path is not None
        self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        part = self._path.with_name(f"{self._path.name}.{os.getpid()}.part")
        try:
            with open(part, "wb") as f:  # not synced: a zip file has checksums
                np.savez(f, **arrays, kept=np.frombuffer(msgspec.json.encode(kept), np.uint8))  # type: ignore[arg-type]
            os.replace(part, self._path)
        finally:
            part.unlink(missing_ok=True)
        _make_room(self._path)

    def _fail(self, e: Exception) -> None:
        why = (e.strerror or str(e)) if isinstance(e, OSError) else str(e)
        self.problem = self.problem or clean(f"the history is read anew at the next attach: {why}")


def _digest(fd: int, offset: int) -> str:
    """Of the log's begin and of what lies before the offset."""
    first = max(0, offset - _TAIL)
    return hashlib.sha256(
        os.pread(fd, min(_HEAD, offset), 0) + b"\0" + os.pread(fd, offset - first, first)
    ).hexdigest()


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
            path.unlink(missing_ok=True)
            total -= size
