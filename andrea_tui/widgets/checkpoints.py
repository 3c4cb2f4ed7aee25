"""The checkpoints, newest first; where there is room, when each was read back and why it is kept."""

from textual.message import Message

from andrea_tui.core import fmt
from andrea_tui.core.checkpoints import GONE
from andrea_tui.core.views import CheckpointRow, CheckpointsView
from andrea_tui.widgets.listing import ListPane
from andrea_tui.widgets.paint import Line, Run, boxed, fit

TABLE_WIDTH = 70  # cells inside the frame, from which on all is said about each


class CheckpointsPane(ListPane[CheckpointsView]):
    NEWEST_FIRST = True

    class Chosen(Message):
        """Enter on a checkpoint."""

        def __init__(self, step: int) -> None:
            super().__init__()
            self.step = step

    def open(self) -> bool:
        if self.view is not None and self.view.rows:
            self.post_message(self.Chosen(self.view.rows[min(self.at, len(self.view.rows) - 1)].step))
        return True

    def draw(self, v: CheckpointsView, width: int, height: int) -> list[Line]:
        inner = width - 4
        table = inner >= TABLE_WIDTH and height > 4
        room = height - 2 - table
        self.first_line = 1 + table
        shown = self.place(len(v.rows), room, lambda i: v.rows[i].step)
        row = _table_row if table else _row
        lines = [self.shown(i, row(v.rows[i], inner), inner) for i in shown]
        if table:
            lines = [tuple(_head(inner)), *lines]
        there = sum(r.mark != GONE for r in v.rows)
        title: list[Run] = [("4 ", "dim"), ("checkpoints", "title"), (f" {fmt.count(there)}", "dim")]
        wrong = sum(bool(r.mark) and r.mark != GONE for r in v.rows)
        told = [f"{fmt.count(n)} {word}" for n, word in ((v.gone, "gone"), (wrong, "damaged")) if n]
        title.append((f" ✗ {' '.join(told)}" if told else "", "bad"))
        right = fmt.size(v.total) if v.total else ""
        none: list[Line] = [(("none yet", "dim"),)]
        return boxed(title, right, lines if v.rows else none, width, height, self.has_focus)


def _asked(r: CheckpointRow) -> bool:
    return r.why in ("snapshot", "pivot", "branch")


def _row(r: CheckpointRow, width: int) -> list[Run]:
    step = max(9, len(fmt.count(r.step)))
    rest = width - step - 1 - 4 - 1 - 8
    why, tone = (f"✗ {r.mark}", "bad") if r.mark else (r.why, "good" if _asked(r) else "dim")
    return [
        (fit(fmt.count(r.step), step, right=True), "bold" if _asked(r) else "text"),
        (" ", "text"),
        (fit(r.age, 4, right=True), "dim"),
        (" ", "text"),
        *(
            [(fit(why, max(0, rest + 8)), tone)]  # what is wrong has the room of the size
            if r.mark
            else [
                (fit(why, max(0, rest - 1)) + " " if rest > 3 else "", tone),
                (fit(r.size, 8, right=True), "text"),
            ]
        ),
    ]


def _columns(width: int) -> tuple[int, int, int, int, int, int]:
    """Cells of step, age, why, size, verified, kept; what is left is for what is wrong."""
    return (11, 4, 9, 7, 22, 12) if width >= 90 else (9, 4, 8, 6, 14, 12)


def _head(width: int) -> list[Run]:
    step, age, why, size, read, kept = _columns(width)
    text = [
        fit("step", step, right=True),
        fit("age", age, right=True),
        fit("why", why),
        fit("size", size, right=True),
    ]
    return [("  ".join([*text, fit("read back", read), fit("kept because", kept)]), "dim")]


def _table_row(r: CheckpointRow, width: int) -> list[Run]:
    step, age, why, size, read, kept = _columns(width)
    verified = r.verified.removeprefix("written, ") if len(r.verified) > read else r.verified
    bad, unread = r.verified.startswith("damaged"), r.verified.startswith("written")
    count = fmt.count(r.step)
    return [
        (
            fit(count if len(count) <= step else str(r.step), step, right=True),
            "bold" if _asked(r) else "text",
        ),
        ("  " + fit(r.age, age, right=True), "dim"),
        ("  " + fit(r.why, why), "good" if _asked(r) else "dim"),
        ("  " + fit(r.size, size, right=True), "text"),
        ("  " + fit(verified, read), "bad" if bad else ("dim" if unread else "text")),
        ("  " + fit(r.kept, kept), "warn" if r.kept == "next to go" else "dim"),
        (f" ✗ {r.mark}" if r.mark else "", "bad"),
    ]
