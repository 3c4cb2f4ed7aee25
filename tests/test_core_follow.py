"""Following a file through everything that happens to files."""

import os
from pathlib import Path

import pytest

from andrea_tui.core.follow import PIECE, Follower


def everything(f: Follower) -> bytes:
    out = b""
    while (piece := f.read()) is not None:
        out = piece.data if piece.fresh else out + piece.data
    return out


def test_a_file_that_comes_grows_and_stays(tmp_path: Path) -> None:
    f = Follower(tmp_path / "x")
    assert f.read() is None
    (tmp_path / "x").write_bytes(b"one\n")
    assert everything(f) == b"one\n"
    assert f.read() is None
    with (tmp_path / "x").open("ab") as out:
        out.write(b"tw")
    assert everything(f) == b"tw"
    (tmp_path / "x").unlink()
    assert f.read() is None


def test_a_large_file_comes_in_pieces(tmp_path: Path) -> None:
    data = os.urandom(PIECE * 2 + 17)
    (tmp_path / "x").write_bytes(data)
    f = Follower(tmp_path / "x")
    first = f.read()
    assert first is not None
    assert len(first.data) == PIECE
    assert 0.4 < f.loaded < 0.6
    assert first.data + everything(f) == data
    assert f.loaded == 1.0


def test_a_replaced_file_is_finished_then_read_from_its_start(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(b"old\n")
    f = Follower(path)
    assert everything(f) == b"old\n"
    with path.open("ab") as out:
        out.write(b"end\n")
    (tmp_path / "new").write_bytes(b"new\n")
    (tmp_path / "new").rename(path)
    piece = f.read()
    assert piece is not None
    assert (piece.data, piece.fresh) == (b"end\n", False)
    piece = f.read()
    assert piece is not None
    assert (piece.data, piece.fresh) == (b"new\n", True)
    (tmp_path / "empty").write_bytes(b"")
    (tmp_path / "empty").rename(path)
    piece = f.read()
    assert piece is not None
    assert (piece.data, piece.fresh) == (b"", True)
    assert f.read() is None


def test_a_cut_file_starts_again(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(b"long line\n")
    f = Follower(path)
    everything(f)
    path.write_bytes(b"new\n")
    piece = f.read()
    assert piece is not None
    assert (piece.data, piece.fresh) == (b"new\n", True)


def test_only_the_tail_at_first(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"0123456789")
    assert everything(Follower(tmp_path / "x", tail=4)) == b"6789"


def test_a_fifo_or_a_link_is_an_error_and_never_blocks(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "link").symlink_to("/etc/passwd")
    for name in ("fifo", "link"):
        with pytest.raises(OSError, match=r"."):
            Follower(tmp_path / name).read()
