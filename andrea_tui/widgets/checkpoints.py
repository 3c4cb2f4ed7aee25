"""The checkpoints that are there, newest first."""

from andrea_tui.core import fmt
from andrea_tui.core.views import CheckpointRow, CheckpointsView
from andrea_tui.widgets.paint import Line, Run, boxed, fit
from andrea_tui.widgets.pane import Pane


class CheckpointsPane(Pane[CheckpointsView]):
    can_focus = True

    def __init__(self, id: str | None = None) -> None:
        super().__init__(id=id)
        self.top = 0

    def scroll_lines(self, by: int) -> None:
        self.top = max(0, self.top + by)
        self.redraw()

    def draw(self, v: CheckpointsView, width: int, height: int) -> list[Line]:
        inner = max(1, height - 2)
        self.top = min(self.top, max(0, len(v.rows) - inner))
        rows = [_row(r, width - 4) for r in v.rows[self.top : self.top + inner]]
        title: list[Run] = [("4 ", "dim"), ("checkpoints", "title"), (f" {len(v.rows)}", "dim")]
        right = fmt.size(v.total) if v.total else ""
        return boxed(title, right, rows or [[("none yet", "dim")]], width, height, self.has_focus)


def _row(r: CheckpointRow, width: int) -> list[Run]:
    step = max(9, len(fmt.count(r.step)))
    rest = width - step - 1 - 4 - 1 - 8
    asked = r.why in ("snapshot", "pivot", "branch")
    return [
        (fit(fmt.count(r.step), step, right=True), "bold" if asked else "text"),
        (" ", "text"),
        (fit(r.age, 4, right=True), "dim"),
        (" ", "text"),
        (fit(r.why, max(0, rest - 1)) + " " if rest > 3 else "", "good" if asked else "dim"),
        (fit(r.size, 8, right=True), "text"),
    ]
