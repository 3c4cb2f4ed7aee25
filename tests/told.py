"""A cockpit in a pty that tells after each redraw what the whole screen should look like, and a terminal that compares.

    python -m tests.told FILE RUN [--watch] [--broken]

Behind the bytes of a redraw the app writes a mark (an OSC that terminals ignore) with the line of FILE that holds the
screen as it would be drawn from nothing. The emulator has by then only seen partial updates. `--broken` forgets the
last changed cells of every line: the control.
"""

import json
import re
import sys
import time
import traceback
from pathlib import Path
from typing import Any

import andrea_tui.app
from andrea_tui.app import CockpitApp
from andrea_tui.runner import Runner
from andrea_tui.widgets import paint, pane
from andrea_tui.widgets.paint import fill
from andrea_tui.widgets.pane import Pane
from tests.terminal import Terminal

_MARK = re.compile(rb"\x1b\]777;told;(\d+)\x07")


class Told(CockpitApp):
    CSS_PATH = str(Path(andrea_tui.app.__file__).parent / "app.tcss")  # a subclass looks beside itself

    def __init__(self, told: Path, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self._told, self._n, self._next = told.open("a"), 0, 0.0

    def _redraw(self) -> None:
        super()._redraw()
        self.call_after_refresh(self._tell)

    def _beat(self) -> None:
        super()._beat()
        self.call_after_refresh(self._tell)

    def _tell(self) -> None:
        board = self.overview._board
        if time.monotonic() < self._next:
            return
        if (
            len(self.screen_stack) > 1
            or not board.children
            or board.size != self.size
            or self._driver is None
        ):
            return
        rows = [[" "] * self.size.width for _ in range(self.size.height)]
        boxes = board.boxes()
        for child in board.children:
            if isinstance(child, Pane) and child.view is not None and child.id in boxes:
                x, y, w, h = boxes[child.id]
                for i, runs in enumerate(fill(child.draw(child.view, w, h), w, h)):
                    rows[y + i][x : x + w] = ["".join(t for t, _ in runs), *[""] * (w - 1)]
        lines = ["".join(r) for r in rows]
        self._next = time.monotonic() + 0.4  # what is being painted now is there by then
        self._told.write(json.dumps([self.size.width, self.size.height, lines]) + "\n")
        self._told.flush()
        self._driver.write(f"\x1b]777;told;{self._n}\x07")
        self._driver.flush()
        self._n += 1


class Comparing(Terminal):
    """`different`: what the emulator showed and what it should have shown, of each redraw that went wrong."""

    def __init__(self, told: Path, run: Path, *args: str, **more: Any) -> None:
        self.compared, self.different = 0, list[tuple[int, list[tuple[int, str, str]]]]()
        self._path, self._left, self._lines = told, b"", list[str]()
        self._wrong: dict[tuple[int, int], tuple[str, str]] = {}
        told.touch()
        super().__init__(str(told), str(run), *args, program=("-m", "tests.told"), **more)

    def _feed(self, data: bytes) -> None:
        data, self._left = self._left + data, b""
        at = 0
        for m in _MARK.finditer(data):
            super()._feed(data[at : m.start()])
            at = m.end()
            self._compare(int(m[1]))
        rest = data[at:]
        cut = rest.rfind(b"\x1b]")  # a mark of which only the beginning is here
        if cut >= 0 and b"\x07" not in rest[cut:] and len(rest) - cut < 40:
            rest, self._left = rest[:cut], rest[cut:]
        super()._feed(rest)

    def crash(self) -> str:
        """What it died of."""
        path = self._path.with_suffix(".crash")
        return path.read_text()[-3000:] if path.exists() else ""

    def _compare(self, n: int) -> None:
        """A cell is wrong that was so at the mark before too: what is just being painted is right by the next one."""
        if n >= len(self._lines):
            self._lines = self._path.read_text().splitlines()
        columns, lines, wanted = json.loads(self._lines[n])
        if (columns, lines) != (self.screen.columns, self.screen.lines):
            self._wrong = {}
            return  # the size has changed since
        rows = [
            (a.ljust(columns), b.ljust(columns)) for a, b in zip(self.screen.display, wanted, strict=True)
        ]
        wrong = {
            (y, x): (p, q)
            for y, (a, b) in enumerate(rows)
            if a != b
            for x, (p, q) in enumerate(zip(a, b, strict=False))
            if p != q
        }
        stale = sorted({y for (y, x), pair in wrong.items() if self._wrong.get((y, x)) == pair})
        self._wrong = wrong
        self.compared += 1
        if stale:
            self.different.append((n, [(y, *rows[y]) for y in stale]))


def forget_the_last(old: paint.Line, new: paint.Line) -> list[tuple[int, int]]:
    return paint.changed(old, new)[:-1]


def main() -> None:
    if "--broken" in sys.argv:
        vars(pane)["changed"] = forget_the_last
    told, run = Path(sys.argv[1]), Path(sys.argv[2])
    app = Told(told, run, Runner(run), watch="--watch" in sys.argv, start=False)
    app.run()
    if app.crash is not None:
        told.with_suffix(".crash").write_text("".join(traceback.format_exception(app.crash)))
        sys.exit(1)
    sys.exit(app.return_code or 0)


if __name__ == "__main__":
    main()
