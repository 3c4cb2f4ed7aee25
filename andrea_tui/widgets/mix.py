"""The mix: what share of the last steps' rows each arm got, between its floor and its cap."""

import math

from andrea_tui.core import fmt
from andrea_tui.core.views import ArmView, MixView
from andrea_tui.widgets.paint import Line, Run, bar, boxed, cells, fit
from andrea_tui.widgets.pane import Pane


class MixPane(Pane[MixView]):
    can_focus = True

    def __init__(self, id: str | None = None) -> None:
        super().__init__(id=id)
        self.top = 0

    def scroll_lines(self, by: int) -> None:
        self.top = max(0, self.top + by)
        self.redraw()

    def draw(self, v: MixView, width: int, height: int) -> list[Line]:
        inner = max(0, height - 2)
        self.top = min(self.top, max(0, len(v.arms) - max(1, inner - 1)))
        lines = self._lines_of(v, width - 4, inner)
        title: list[Run] = [("2 ", "dim"), ("mix", "title")]
        if v.policy:
            title += [(" " + v.policy, "dim")]
        return boxed(title, f"last {v.steps}" if v.steps else "", lines, width, height, self.has_focus)

    def _lines_of(self, v: MixView, width: int, height: int) -> list[list[Run]]:
        if not v.arms:
            return [[("no row drawn yet", "dim")]]
        bpb = any(a.bpb is not None for a in v.arms) and width >= 30
        loss = width >= 22
        numbers = 4 + (5 if loss else 0) + (5 if bpb else 0)
        name = min(max(cells(a.name) for a in v.arms), max(4, (width - numbers - 1) // 2))
        top = _scale(v)
        wide = width - name - numbers - 1
        head: list[Run] = [
            (fit("", name + 1 + max(0, wide)), "dim"), (fit("%", 4, right=True), "dim"),
            (fit("loss", 5, right=True) if loss else "", "dim"), (fit("bpb", 5, right=True) if bpb else "", "dim"),
        ]  # fmt: skip
        rows = [_row(a, name, wide, loss, bpb, top, v.steps > 0) for a in v.arms[self.top :]]
        if height < 2:
            return rows
        shown = height - 1
        if len(rows) > shown:
            more = len(rows) - shown + 1
            rows = [*rows[: shown - 1], [(f"… {more} more", "dim")]]
        return [head, *rows]


def _scale(v: MixView) -> float:
    """The share at the bars' end: the greatest share or cap below 1, in tenths, so that it stands still."""
    most = max([a.share for a in v.arms] + [a.cap for a in v.arms if a.cap is not None and a.cap < 1])
    return min(1.0, math.ceil(most * 10 + 0.1) / 10)


def _row(a: ArmView, name: int, wide: int, loss: bool, bpb: bool, top: float, drawn: bool) -> list[Run]:
    gone = a.floor is None and a.cap is None
    runs: list[Run] = [(fit(a.name, name), "dim" if gone else "text"), (" ", "text")]
    if wide >= 3:
        runs += bar(a.share / top, wide, [None if m is None else m / top for m in (a.floor, a.cap)])
    runs.append((fit(f"{a.share * 100:.0f}%" if drawn else "–", 4, right=True), "bold"))
    if loss:
        runs.append((fit("–" if a.loss is None else fmt.number(a.loss, 2), 5, right=True), "text"))
    if bpb:
        runs.append((fit("–" if a.bpb is None else fmt.number(a.bpb, 2), 5, right=True), "text"))
    return runs
