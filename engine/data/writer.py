"""One token file: little-endian uint16 ids, every piece followed by a separator."""

import hashlib
import os
from pathlib import Path
from types import TracebackType
from typing import Self

import numpy as np

from engine.data.manifest import Part
from engine.data.tokenizer import SEPARATOR, Ids
from engine.rundir.files import create_file, fsync_dir, write_all

BUFFER = 1 << 20  # bytes collected for one write


class TokenFile:
    """Written as `NAME.part`, and under its own name after `commit`. Without a commit nothing is left of it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._part = path.with_name(path.name + ".part")
        self._buffer = bytearray()
        self._sha = hashlib.sha256()
        self._tokens = self._bytes = self._documents = 0
        self._committed = False
        self._unlink()
        self._fd = create_file(self._part)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, e: BaseException | None, tb: TracebackType | None
    ) -> None:
        os.close(self._fd)
        if not self._committed:
            self._unlink()

    def add(self, ids: Ids, n_bytes: int) -> None:
        """A piece and the bytes of text that it stands for."""
        self._buffer += np.append(ids, np.uint16(SEPARATOR)).astype("<u2").tobytes()
        self._tokens += len(ids) + 1
        self._bytes += n_bytes
        self._documents += 1
        if len(self._buffer) >= BUFFER:
            self._flush()

    def commit(self) -> Part:
        """On the disk under its own name; what it holds."""
        self._flush()
        os.fsync(self._fd)
        os.rename(self._part, self._path)
        self._committed = True
        fsync_dir(self._path.parent)
        return Part(
            tokens=self._tokens, bytes=self._bytes, documents=self._documents, sha256=self._sha.hexdigest()
        )

    def _flush(self) -> None:
        write_all(self._fd, bytes(self._buffer))
        self._sha.update(self._buffer)
        self._buffer.clear()

    def _unlink(self) -> None:
        try:
            os.unlink(self._part)
        except FileNotFoundError:
            pass
