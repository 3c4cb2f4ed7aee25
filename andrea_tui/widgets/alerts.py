"""Alerts, worst first; blank when there are none."""

from andrea_tui.core.views import Alert, AlertsView
from andrea_tui.widgets.paint import Line, cells, clip
from andrea_tui.widgets.pane import Pane


class AlertsLine(Pane[AlertsView]):
    def draw(self, v: AlertsView, width: int, height: int) -> list[Line]:
        if height < 1:
            return []
        out: list[list[Alert]] = [[]]
        for i, a in enumerate(v.alerts):
            if out[-1] and _width([*out[-1], a]) > width:
                if len(out) == height:
                    out[-1] = _counted(out[-1], len(v.alerts) - i, width)
                    break
                out.append([])
            out[-1].append(a)
        return [_line(row, width) for row in out]


def _counted(row: list[Alert], more: int, width: int) -> list[Alert]:
    """With a count of what has no room."""
    while len(row) > 1 and _width([*row, Alert(f"(+{more})", "warn")]) > width:
        row, more = row[:-1], more + 1
    return [*row, Alert(f"(+{more})", "warn")]


def _width(row: list[Alert]) -> int:
    return sum(cells(a.text) for a in row) + 3 * (len(row) - 1)


def _line(row: list[Alert], width: int) -> Line:
    """The last item, a count of what has no room, is never the one that is cut."""
    if len(row) == 2 and row[1].text.startswith("(+"):
        row = [Alert(clip(row[0].text, max(0, width - 3 - cells(row[1].text))), row[0].tone), row[1]]
    runs = []
    for i, a in enumerate(row):
        if i:
            runs.append(("   ", "text"))
        runs.append((a.text, a.tone))
    return tuple(runs)
