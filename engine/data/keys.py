"""A file of sorted unique uint64 keys: made once from a stream, larger than memory if need be, and then mapped.

Both indexes of the training text are such files (`copies.py`, `words.py`). The first HEADER bytes are a line of
JSON that says what was indexed, so that a stale file is noticed; then come the keys, little-endian.
"""

import mmap
import os
from collections.abc import Iterable
from contextlib import suppress
from itertools import chain, pairwise
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from engine.rundir.files import create_file, fsync_dir, open_regular, unlink_if_there, write_all

Keys = NDArray[np.uint64]
About = dict[str, str | int]  # what the keys stand for; a file with another `About` is stale

HEADER = 512  # bytes
RUN = 1 << 22  # keys sorted at once; bounds the memory to some 100 MB
SAMPLED = 1 << 12  # every so many keys of a run are looked at to divide the merge into equal parts


def find_keys(path: Path, about: About) -> Keys | None:
    """(count,) the mapped keys of a file made for just this `about`; None where it is missing, stale or cut short.

    Raises OSError where that can't be told.
    """
    try:
        fd = open_regular(path)
    except FileNotFoundError:
        return None
    try:
        size = os.fstat(fd).st_size
        header = _parse(os.pread(fd, HEADER, 0))
        count = header.pop("count", -1)
        if header != about or not isinstance(count, int) or count < 0 or size != HEADER + 8 * count:
            return None
        return np.frombuffer(mmap.mmap(fd, size, access=mmap.ACCESS_READ), "<u8", offset=HEADER)
    finally:
        os.close(fd)


def build_keys(path: Path, about: About, chunks: Iterable[Keys]) -> None:
    """Sort the keys of all chunks into the file, each key once; the file is there whole or not at all.

    Sorted runs go to a nameless file first and are merged part by part of the range of keys. Raises OSError, and
    what the iterator raises.
    """
    part = path.with_name(f"{path.name}.part")
    unlink_if_there(part)
    fd = create_file(part)
    try:
        os.truncate(fd, HEADER)
        os.lseek(fd, HEADER, os.SEEK_SET)
        runs_fd = _nameless(path)
        try:
            count = _merge(fd, runs_fd, _write_runs(runs_fd, chunks))
        finally:
            os.close(runs_fd)
        line = msgspec.json.encode({**about, "count": count})
        os.pwrite(fd, line.ljust(HEADER - 1) + b"\n", 0)
        os.fsync(fd)
        os.rename(part, path)
        fsync_dir(path.parent)
    except BaseException:  # raised again; a stop (StopRequested from the chunks) leaves no half file either
        with suppress(OSError):  # the first error is the one to tell; the next build removes it
            unlink_if_there(part)
        raise
    finally:
        os.close(fd)


def contains(keys: Keys, wanted: Keys) -> NDArray[np.bool_]:
    """(n,) which of `wanted` (n,) are among the sorted keys."""
    if not len(keys):
        return np.zeros(len(wanted), np.bool_)
    at = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
    return np.asarray(keys[at] == wanted)


def unique(keys: Keys) -> Keys:
    """Sorted, each once."""
    keys = np.sort(keys)
    return keys[np.append(True, keys[1:] != keys[:-1])] if len(keys) else keys


def _nameless(path: Path) -> int:
    """A descriptor of a file that is gone when it is closed, however the process ends."""
    name = path.with_name(f"{path.name}.runs.part")
    unlink_if_there(name)
    fd = os.open(name, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    os.unlink(name)
    return fd


def _write_runs(fd: int, chunks: Iterable[Keys]) -> list[int]:
    """Sorted runs of about RUN keys one after the other; their lengths."""
    lengths: list[int] = []
    waiting: list[Keys] = []
    size = 0
    for chunk in chain(chunks, [None]):
        if chunk is not None:
            waiting.append(chunk)
            size += len(chunk)
        if size >= RUN or (chunk is None and size):
            run = unique(np.concatenate(waiting))
            write_all(fd, run.astype("<u8", copy=False).tobytes())
            lengths.append(len(run))
            waiting, size = [], 0
    return lengths


def _merge(fd: int, runs_fd: int, lengths: list[int]) -> int:
    """Write the union of the runs; how many keys it has."""
    total = sum(lengths)
    if not total:
        return 0
    mapped = np.frombuffer(mmap.mmap(runs_fd, 8 * total, access=mmap.ACCESS_READ), "<u8")
    runs = np.split(mapped, np.cumsum(lengths)[:-1])
    sample = np.sort(np.concatenate([run[::SAMPLED] for run in runs]))
    edges = sample[RUN // SAMPLED :: RUN // SAMPLED]
    cuts = np.stack([[0, *np.searchsorted(run, edges), len(run)] for run in runs], axis=1)
    count = 0
    for low, high in pairwise(cuts):
        merged = unique(np.concatenate([run[a:b] for run, a, b in zip(runs, low, high, strict=True)]))
        write_all(fd, merged.astype("<u8", copy=False).tobytes())
        count += len(merged)
    return count


def _parse(data: bytes) -> dict[str, Any]:
    try:
        return msgspec.json.decode(data, type=dict[str, Any])
    except (msgspec.DecodeError, RecursionError):
        return {}
