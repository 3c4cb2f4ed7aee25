"""The checkpoint file: format, order of what makes it durable, and everything that may lie under its name."""

import errno
import hashlib
import os
import struct
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from engine.rundir import checkpoint
from engine.rundir.checkpoint import Damaged

N = 1000


def parts(seed: int = 0) -> list[NDArray[np.float32]]:
    rng = np.random.default_rng(seed)
    return [abs(rng.standard_normal(N)).astype(np.float32) for _ in range(3)]


def save(run: Path, step: int, seed: int = 0) -> str:
    return checkpoint.write(run, step, parts(seed), lambda sha: None)[0]


def test_the_format_is_two_int32_and_three_vectors(tmp_path: Path) -> None:
    digest, size = checkpoint.write(tmp_path, 100, parts(), lambda sha: None)
    data = (tmp_path / "step_000100.bin").read_bytes()
    assert data == struct.pack("<ii", 100, N) + b"".join(p.astype("<f4").tobytes() for p in parts())
    assert (len(data), size, hashlib.sha256(data).hexdigest()) == (8 + 12 * N, 8 + 12 * N, digest)
    step, back, sha = checkpoint.load(tmp_path / "step_000100.bin", N, {digest})
    assert (step, sha) == (100, digest)
    assert all((a == b).all() for a, b in zip(back, parts(), strict=True))
    assert os.stat(tmp_path / "step_000100.bin").st_mode & 0o777 == 0o600


def test_the_file_has_its_name_only_after_the_callback(tmp_path: Path) -> None:
    seen: list[list[str]] = []
    checkpoint.write(tmp_path, 5, parts(), lambda sha: seen.append(os.listdir(tmp_path)))
    assert seen == [[f".step_000005.bin.tmp-{os.getpid()}"]]
    assert os.listdir(tmp_path) == ["step_000005.bin"]


@pytest.mark.parametrize("call", ["posix_fallocate", "write", "fsync", "rename"])
def test_any_error_leaves_the_old_file_and_no_temporary(
    call: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save(tmp_path, 7, seed=1)
    before = (tmp_path / "step_000007.bin").read_bytes()

    def fail(*args: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, call, fail)
    with pytest.raises(OSError, match="No space"):
        save(tmp_path, 7, seed=2)
    monkeypatch.undo()
    assert os.listdir(tmp_path) == ["step_000007.bin"]
    assert (tmp_path / "step_000007.bin").read_bytes() == before


def test_the_callback_can_forbid_the_name(tmp_path: Path) -> None:
    def no(sha: str) -> None:
        raise OSError("the log is behind")

    with pytest.raises(OSError, match="behind"):
        checkpoint.write(tmp_path, 7, parts(), no)
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_non_finite_weights_are_never_saved(value: float, tmp_path: Path) -> None:
    p = parts()
    p[0][3] = value
    with pytest.raises(ValueError, match="non-finite"):
        checkpoint.write(tmp_path, 1, p, lambda sha: None)
    assert os.listdir(tmp_path) == []


def spoil(run: Path, how: str) -> str:
    """Make the newest of two checkpoints bad in one way; returns its right sha256."""
    digest = save(run, 200)
    path = run / "step_000200.bin"
    data = bytearray(path.read_bytes())
    match how:
        case "zero length":
            data = bytearray()
        case "one byte short":
            data = data[:-1]
        case "one byte long":
            data += b"x"
        case "flipped bit":
            data[1234] ^= 1
        case "wrong n":
            data[4:8] = struct.pack("<i", N - 1)
        case "negative n":
            data[4:8] = struct.pack("<i", -5)
        case "huge n":
            data[4:8] = struct.pack("<i", 2**31 - 1)
        case "negative step":
            data[0:4] = struct.pack("<i", -1)
        case "other step":
            data[0:4] = struct.pack("<i", 300)
        case "NaN":
            data[100:104] = struct.pack("<f", np.nan)
        case "negative v":
            data[-4:] = struct.pack("<f", -1.0)
    path.write_bytes(data)
    if how in ("directory", "FIFO", "link", "sparse"):
        path.unlink()
    if how == "directory":
        path.mkdir()
    elif how == "FIFO":
        os.mkfifo(path)
    elif how == "link":
        path.symlink_to(run / "step_000100.bin")
    elif how == "sparse":
        with path.open("wb") as f:
            f.write(struct.pack("<ii", 200, 2**31 - 1))
            f.truncate(1 << 40)
    return digest


HOW = ["zero length", "one byte short", "one byte long", "flipped bit", "wrong n", "negative n", "huge n",
       "negative step",
       "other step", "NaN", "negative v", "directory", "FIFO", "link", "sparse"]  # fmt: skip


@pytest.mark.parametrize("how", HOW)
def test_whatever_lies_under_the_name_is_one_line_and_no_memory(how: str, tmp_path: Path) -> None:
    good = save(tmp_path, 100)
    digest = spoil(tmp_path, how)
    tracemalloc.start()
    found, bad = checkpoint.scan(tmp_path)
    why = [text for _, text in bad]
    for c in found:
        try:
            checkpoint.load(c.path, N, {digest, good})
        except Damaged as e:
            why.append(str(e))
        else:
            assert c.step == 100
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert len(why) == 1
    assert why[0].startswith("step_000200.bin: ")
    assert "\n" not in why[0]
    assert peak < 1_000_000
    new = checkpoint.set_aside(tmp_path / "step_000200.bin")
    assert new.name == "step_000200.bin.bad-1"
    assert [c.step for c in checkpoint.scan(tmp_path)[0]] == [100]


def test_numbers_are_checked_even_where_no_hash_is_known(tmp_path: Path) -> None:
    for how in ("NaN", "negative v"):
        spoil(tmp_path, how)
        with pytest.raises(Damaged):
            checkpoint.load(tmp_path / "step_000200.bin", N, None)


def test_order_is_by_the_header_and_survives_a_seventh_digit(tmp_path: Path) -> None:
    for step in (999_900, 1_000_000, 999_999, 0):
        save(tmp_path, step)
    assert (
        sorted(os.listdir(tmp_path))[-1] == "step_999999.bin"
    )  # by name the million would not be the newest
    assert [c.step for c in checkpoint.scan(tmp_path)[0]] == [1_000_000, 999_999, 999_900, 0]


@pytest.mark.parametrize(
    "name",
    ["step_100.bin", "step_0000100.bin", "step_000100.bin\n", "step_00010\u0660.bin", "xstep_000100.bin"],
)
def test_other_names_are_none_of_ours(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(b"x")
    assert checkpoint.scan(tmp_path) == ([], [])


def test_temporaries_of_dead_writers_are_removed_and_nothing_else(tmp_path: Path) -> None:
    for name in (".step_000100.bin.tmp-1", "step_000100.bin.bad-1", ".step_000100.bin.tmp-x", ".loss.json"):
        (tmp_path / name).write_bytes(b"x")
    assert checkpoint.remove_temporaries(tmp_path) == [".step_000100.bin.tmp-1"]
    assert len(os.listdir(tmp_path)) == 3
