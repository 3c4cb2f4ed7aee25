"""The checkpoint file: [int32 step][int32 n_params][weights][m][v], little-endian, nothing else.

Writing is one path, in the order that a power cut can't hurt: temporary file, space asked for first, data, fsync,
then `before_rename` (which makes the log and the event with the hash durable), rename, fsync of the directory.
Reading trusts nothing: size, header, name, hash and numbers are checked before anybody trains on them.
"""

import errno
import hashlib
import io
import os
import stat
import struct
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from engine.layout import HEADER_BYTES, checkpoint_bytes
from engine.rundir.files import create_file, fsync_dir, open_regular, unlink_if_there, write_all
from engine.rundir.names import checkpoint_name, checkpoint_step, is_temporary

_HEADER = struct.Struct("<ii")
_PIECE = 1 << 23  # bytes hashed and written at a time
_NUMBERS = 1 << 21  # float32 read and checked at a time


class Damaged(Exception):
    """A file under a checkpoint's name is no good checkpoint. The text is one line that says why."""


@dataclass(frozen=True)
class Checkpoint:
    """A file under a checkpoint's name whose size, header and name agree. The numbers are not looked at yet."""

    path: Path
    step: int
    n_params: int
    bytes: int
    mtime: float  # seconds since 1970


def write(
    run_dir: Path, step: int, parts: Sequence[NDArray[np.float32]], before_rename: Callable[[str], None]
) -> tuple[str, int]:
    """Write `step_N.bin` durably; returns (sha256, bytes).

    `parts` are weights, m and v, float32, n_params each. `before_rename` gets the sha256 once the data is on
    the disk and must raise OSError to forbid the file its name. On any error the temporary is unlinked, an older
    file of that name is as it was, and the error is raised. Non-finite weights raise ValueError.
    """
    n = len(parts[0])
    if len(parts) != 3 or any(p.shape != (n,) or p.dtype != np.float32 for p in parts):
        raise ValueError("a checkpoint is three float32 vectors of one length")
    if not all(_finite(p) for p in parts):
        raise ValueError(f"step {step}: non-finite numbers are not saved")
    path = run_dir / checkpoint_name(step)
    temporary = run_dir / f".{path.name}.tmp-{os.getpid()}"
    size = checkpoint_bytes(n)
    unlink_if_there(temporary)  # where an unlink failed below, the same step can still be tried again
    fd = create_file(temporary)
    try:
        try:
            os.posix_fallocate(fd, 0, size)
            digest = _write_parts(fd, _HEADER.pack(step, n), parts)
            os.fsync(fd)
        finally:
            os.close(fd)
        before_rename(digest)
        os.rename(temporary, path)
    except BaseException:  # an interrupt, too, leaves no temporary; it is raised on
        with suppress(OSError):  # the first error is the one to tell
            os.unlink(temporary)
        raise
    fsync_dir(run_dir)
    return digest, size


def _write_parts(fd: int, header: bytes, parts: Sequence[NDArray[np.float32]]) -> str:
    sha = hashlib.sha256(header)
    write_all(fd, header)
    for part in parts:
        data = np.ascontiguousarray(part, "<f4").data.cast("B")
        for i in range(0, len(data), _PIECE):
            sha.update(data[i : i + _PIECE])
            write_all(fd, data[i : i + _PIECE])
    return sha.hexdigest()


def inspect(path: Path) -> Checkpoint:
    """Size, header and name, reading 8 bytes. Raises Damaged; never blocks, never allocates by the header."""
    try:
        fd = open_regular(path)
    except OSError as e:
        raise Damaged(f"{path.name}: {_why(e, path)}") from None
    try:
        return _inspect(fd, path)
    finally:
        os.close(fd)


def _inspect(fd: int, path: Path) -> Checkpoint:
    info = os.fstat(fd)
    head = os.pread(fd, HEADER_BYTES, 0)
    if len(head) < HEADER_BYTES:
        raise Damaged(f"{path.name}: {info.st_size} bytes, shorter than its header")
    step, n = _HEADER.unpack(head)
    if step < 0 or n <= 0:
        raise Damaged(f"{path.name}: its header says step {step}, {n} parameters")
    if info.st_size != checkpoint_bytes(n):
        raise Damaged(
            f"{path.name}: {info.st_size:,} bytes where {n:,} parameters take {checkpoint_bytes(n):,}"
        )
    if checkpoint_step(path.name) != step:
        raise Damaged(f"{path.name}: its header says step {step}")
    return Checkpoint(path, step, n, info.st_size, info.st_mtime)


def load(path: Path, n_params: int, known: set[str] | None) -> tuple[int, list[NDArray[np.float32]], str]:
    """(step, [weights, m, v], sha256), all checked. `known`: the hashes that may be right, None to take any.

    Raises Damaged with one line; nothing big is allocated before size and header are right.
    """
    step, sha256, parts = _read(path, n_params, known, lambda: [np.empty(n_params, "<f4") for _ in range(3)])
    return step, parts, sha256


def load_weights(path: Path, into: NDArray[np.float32], known: set[str] | None) -> str:
    """Fill `into` (n_params) with the weights, all checked as by `load`; the sha256. m and v are not kept."""
    return _read(path, len(into), known, lambda: [into])[1]


def examine(
    path: Path, n_params: int, known: set[str] | None, progress: Callable[[float], None] = lambda part: None
) -> str:
    """The sha256 of a checkpoint that passes every check of `load`, in constant memory. Raises Damaged.

    `progress` gets the fraction that was read; whatever it raises ends the reading.
    """
    return _read(path, n_params, known, list, progress)[1]


def _read(
    path: Path, n_params: int, known: set[str] | None, buffers: Callable[[], list[NDArray[np.float32]]],
    progress: Callable[[float], None] = lambda part: None,
) -> tuple[int, str, list[NDArray[np.float32]]]:  # fmt: skip
    """(step, sha256, the parts that `buffers` made room for: the first of weights, m and v)."""
    try:
        fd = open_regular(path)
    except OSError as e:
        raise Damaged(f"{path.name}: {_why(e, path)}") from None
    with open(fd, "rb", buffering=0) as f:
        found = _inspect(fd, path)
        if found.n_params != n_params:
            raise Damaged(
                f"{path.name}: {found.n_params:,} parameters, but config.toml describes {n_params:,}"
            )
        sha = hashlib.sha256(f.read(HEADER_BYTES))
        kept, passing = buffers(), np.empty(min(n_params, _NUMBERS), "<f4")
        finite, negative = True, False
        for k in range(3):
            for i in range(0, n_params, _NUMBERS):
                n = min(_NUMBERS, n_params - i)
                piece = kept[k][i : i + n] if k < len(kept) else passing[:n]
                view = piece.data.cast("B")
                _fill(f, view, path)
                sha.update(view)
                finite = finite and bool(np.isfinite(piece).all())
                negative = negative or (k == 2 and bool((piece < 0).any()))
                progress((k * n_params + i + n) / (3 * n_params))
    digest = sha.hexdigest()
    if known is not None and digest not in known:
        raise Damaged(
            f"{path.name}: its sha256 {digest[:12]}… is in no checkpoint event of step {found.step}"
        )
    if not finite:
        raise Damaged(f"{path.name}: holds numbers that are not finite")
    if negative:
        raise Damaged(f"{path.name}: Adam's v holds negative numbers")
    return found.step, digest, kept


def _fill(f: io.FileIO, view: memoryview, path: Path) -> None:
    while view:
        try:
            got = f.readinto(view)
        except OSError as e:
            raise Damaged(f"{path.name}: can't be read: {e.strerror or e}") from None
        if not got:
            raise Damaged(f"{path.name}: shorter than its own size (it changed while it was read)")
        view = view[got:]


def scan(run_dir: Path) -> tuple[list[Checkpoint], list[tuple[Path, str]]]:
    """(checkpoints by the step in their header, newest first; [(path, why)] of what only bears such a name)."""
    good, bad = [], []
    for entry in os.scandir(run_dir):
        if checkpoint_step(entry.name) is not None:
            path = run_dir / entry.name
            try:
                good.append(inspect(path))
            except Damaged as e:
                bad.append((path, str(e)))
    return sorted(good, key=lambda c: -c.step), bad


def set_aside(path: Path) -> Path:
    """Rename a file out of the way, never onto another one; returns the new path."""
    for i in range(1, 1000):
        new = path.with_name(f"{path.name}.bad-{i}")
        try:
            os.lstat(new)
        except FileNotFoundError:
            os.rename(path, new)
            return new
    raise OSError(errno.EEXIST, f"{path.name}: a thousand files were set aside already")


def remove_temporaries(run_dir: Path) -> list[str]:
    """Unlink what dead writers left. Only for the holder of the lock."""
    left = sorted(e.name for e in os.scandir(run_dir) if is_temporary(e.name))
    for name in left:
        os.unlink(run_dir / name)
    return left


def _finite(part: NDArray[np.float32]) -> bool:
    return all(np.isfinite(part[i : i + _PIECE]).all() for i in range(0, len(part), _PIECE))


def _why(e: OSError, path: Path) -> str:
    try:
        mode = os.lstat(path).st_mode
    except OSError:
        return e.strerror or str(e)
    kind = {
        stat.S_IFDIR: "a directory",
        stat.S_IFLNK: "a link",
        stat.S_IFIFO: "a FIFO",
        stat.S_IFSOCK: "a socket",
    }
    what = kind.get(stat.S_IFMT(mode))
    return f"{what}, not a checkpoint" if what else (e.strerror or str(e))
