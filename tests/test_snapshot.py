"""The snapshots themselves: what differs is told and kept beside, nothing is written unasked, no file is left over."""

from pathlib import Path

import pytest

from tests.snapshot import FOLDER, Snapshots, block, of_pane
from tests.test_snapshots_views import VIEWS
from tests.test_snapshots_widgets import KINDS


def test_a_difference_is_told_and_kept_beside(tmp_path: Path) -> None:
    Snapshots(True, tmp_path).check("x", {"one, 3x1": "abc", "two": "d"})
    kept = (tmp_path / "x.txt").read_bytes()
    same = Snapshots(False, tmp_path)
    same.check("x", {"one, 3x1": "abc", "two": "d"})
    with pytest.raises(AssertionError, match=r"(?s)x\.txt is not what is drawn now.*\n-d\n\+e"):
        same.check("x", {"one, 3x1": "abc", "two": "e"})
    assert (tmp_path / "x.txt").read_bytes() == kept
    assert (tmp_path / "x.txt.new").read_text("utf-8") == "=== one, 3x1\nabc\n=== two\ne\n"
    same.check("x", {"one, 3x1": "abc", "two": "d"})
    assert not (tmp_path / "x.txt.new").exists()
    with pytest.raises(AssertionError, match=r"\+=== new"):
        same.check("y", {"new": "n"})  # none is made unasked
    assert not (tmp_path / "y.txt").exists()


def test_styles_stand_below_their_cells() -> None:
    drawn = of_pane([(("ab", "bold"), (" ", "text"), ("語", "bad"), ("  ", "chosen")), (("c  ", "text"),)])
    assert drawn.split("~" * 40 + "\n")[1] == "BB XXcc\n."
    assert drawn.startswith("ab 語\nc\n")
    assert block([[("x y", "0", "0")]]).endswith("\n000")


def test_every_file_is_some_test_s() -> None:
    made = {f"widget_{k}" for k in KINDS} | {f"view_{v}" for v in VIEWS}
    assert {p.stem for p in FOLDER.glob("*.txt")} == made
