"""Screens kept as text, so that a change of what a person sees is seen in review.

A file `snapshots/NAME.txt` holds cases. Each is a title with its size, the characters, a rule, and below it a letter
for the style of each cell that shows something. Blanks at the end of a line are left out. `pytest --update-snapshots`
writes the files anew; a case that differs fails with a diff, and what was drawn stands beside in `NAME.txt.new`.
"""

import difflib
from collections.abc import Mapping, Sequence
from pathlib import Path

from rich.cells import get_character_cell_size

from andrea_tui.widgets.paint import Line

FOLDER = Path(__file__).parent / "snapshots"
LETTERS = {
    "text": ".", "dim": "d", "bold": "B", "good": "g", "warn": "w", "bad": "X", "raw": "r", "ema": "e", "title": "T",
    "frame": "-", "focus": "F", "key": "k", "bar": "b", "mark": "m", "chosen": "c", "changed": "u",
}  # fmt: skip
_SEEN = ("chosen", "changed")  # styles that show in a cell without a character
_DIFF = 120  # lines of a diff that are shown

Cells = Sequence[tuple[str, str, str]]  # text, the letter of its style, and that of its blanks


class Snapshots:
    """`update`: write the files anew instead of comparing."""

    def __init__(self, update: bool, folder: Path = FOLDER) -> None:
        self.update, self.folder = update, folder

    def check(self, name: str, cases: Mapping[str, str]) -> None:
        """Each case's block must be as it is in the file of that name."""
        path = self.folder / f"{name}.txt"
        drawn = "".join(f"=== {title}\n{block}\n" for title, block in cases.items())
        new = path.with_name(f"{name}.txt.new")
        if self.update:
            path.write_text(drawn, "utf-8")
            new.unlink(missing_ok=True)
            return
        kept = path.read_text("utf-8") if path.exists() else ""
        if kept == drawn:
            new.unlink(missing_ok=True)
            return
        new.write_text(drawn, "utf-8")
        raise AssertionError(_difference(path.name, kept, drawn))


def _difference(name: str, kept: str, drawn: str) -> str:
    head = (
        f"tests/snapshots/{name} is not what is drawn now ({name}.new); if that is right: --update-snapshots"
    )
    diff = list(
        difflib.unified_diff(kept.splitlines(), drawn.splitlines(), name, f"{name}.new", "", "", 2, "")
    )
    more = [f"… {len(diff) - _DIFF} more lines"] if len(diff) > _DIFF else []
    return "\n".join([head, *diff[:_DIFF], *more])


def of_pane(lines: Sequence[Line]) -> str:
    """The block of a pane's lines."""
    return block(
        [[(text, LETTERS[s], LETTERS[s] if s in _SEEN else " ") for text, s in line] for line in lines]
    )


def block(lines: Sequence[Cells]) -> str:
    """Characters, a rule, style letters."""
    text = ["".join(text for text, _, _ in line).rstrip() for line in lines]
    styles = ["".join(_letters(*run) for run in line).rstrip() for line in lines]
    return "\n".join([*text, "~" * 40, *styles])


def _letters(text: str, letter: str, blank: str) -> str:
    """One a cell."""
    return "".join((blank if c == " " else letter) * max(1, get_character_cell_size(c)) for c in text)
