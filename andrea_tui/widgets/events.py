"""What happened: the run's events, below them the end of trainer.log. A death is told here in full.

Scrolled up, and over the whole screen, it is a list of one of both with a chosen row, whose text stands below.
"""

import time
from collections.abc import Sequence

from andrea_tui.core import fmt
from andrea_tui.core.journal import EventRow, Filter
from andrea_tui.core.text import wrap
from andrea_tui.core.views import EventsView
from andrea_tui.widgets.listing import ListPane
from andrea_tui.widgets.paint import Line, Run, boxed, cells, clip, fit
from andrea_tui.widgets.pane import Jump

EVENTS, LOG = "events", "trainer.log"
_DAY = 86400


class EventsPane(ListPane[EventsView]):
    def __init__(self, id: str | None = None) -> None:
        super().__init__(id=id)
        self.searched: str = ""
        self.worse = False  # only warnings and what is worse
        self._part = ""  # EVENTS or LOG, once a person has said so
        self._found = Filter()
        self._rows: Sequence[int] = ()  # of the part that is shown, those that the filter leaves

    # ---- keys

    @property
    def part(self) -> str:
        """Of a trainer that died its last words come first."""
        return self._part or (LOG if self.view is not None and self.view.death else EVENTS)

    def open(self) -> bool:
        """Show the event's step in the chart."""
        if self.part == EVENTS and self.view is not None and self.at < len(self._rows):
            step = self.view.events[self._rows[self.at]].step
            if step:
                self.post_message(Jump(step))
        return True

    def go_back(self) -> bool:
        """Out of the filter."""
        filtered = bool(self.searched or self.worse)
        self.worse = False
        self.search("")
        return filtered

    def search(self, text: str) -> None:
        self.searched = text
        self.follow()

    def act(self, what: str) -> None:
        if what == "follow":
            self.follow(not self.follows)
        elif what == "warnings":
            self.worse = not self.worse
            self.follow()
        elif what == "log":
            self._part = EVENTS if self.part == LOG else LOG
            self.follow()

    # ---- drawing

    def draw(self, v: EventsView, width: int, height: int) -> list[Line]:
        inner, rows = width - 4, max(1, height - 2)
        if self.full or not self.follows or self.searched or self.worse:
            lines = self._list(v, rows, inner)
            title, right = self._title(v), f"{self.fresh:,} new ↓" if self.fresh else ""
            if not right:
                right = "follows" if self.follows else "stands still"
            return boxed(title, right, lines, width, height, self.has_focus)
        self._rows = range(len(v.events))
        self.place(len(self._rows), rows, v.events.key)  # so that it knows where it stands when keys come
        title = [("5 ", "dim"), ("events", "title"), (" and trainer.log", "dim")]
        if v.death:
            return boxed([("5 ", "dim"), ("✗ the trainer died", "bad")], "", _dead(v, rows, inner), width, height,
                         self.has_focus)  # fmt: skip
        return boxed(title, "", _usual(v, rows, inner), width, height, self.has_focus)

    def _title(self, v: EventsView) -> list[Run]:
        here = self.part
        runs: list[Run] = [("5 ", "dim")]
        for name, n in ((EVENTS, len(v.events)), (LOG, len(v.log))):
            count = fmt.count(n)
            if name == here and (self.searched or (self.worse and here == EVENTS)):
                count = f"{fmt.count(len(self._rows))} of {count}"
            runs += [
                (name, "title" if name == here else "dim"),
                (f" {count}  ", "text" if name == here else "dim"),
            ]
        if self.searched:
            runs.append((f"/{self.searched} ", "focus"))
        if self.worse and here == EVENTS:
            runs.append(("! warnings only", "warn"))
        return runs

    def _list(self, v: EventsView, rows: int, width: int) -> list[Line]:
        head: list[list[Run]] = _death(v, width) if v.death else []
        head = head if rows - len(head) >= 3 else []
        self.first_line = 1 + len(head)
        room = rows - len(head)
        if self.part == LOG:
            lines, below = self._log_rows(v, room, width)
        else:
            lines, below = self._event_rows(v, room, width)
        if not lines:
            what = f"nothing with {self.searched!r}" if self.searched else "nothing yet"
            lines = [(("no warning" if self.worse and not self.searched else what, "dim"),)]
        lines += [()] * (room - len(below) - len(lines))
        return [*map(tuple, head), *lines, *below]

    def _log_rows(self, v: EventsView, room: int, width: int) -> tuple[list[Line], list[Line]]:
        """The rows on the screen, and below them all of the chosen one."""
        needle = self.searched.casefold()
        rows = self._rows = (
            [i for i, x in enumerate(v.log) if needle in x.casefold()] if needle else range(len(v.log))
        )

        def key(i: int) -> int:
            return v.log_first + rows[i]

        self.settle(len(rows), key)
        below = _below(v.log[rows[self.at]], 2, room, width) if rows else []
        shown = self.place(len(rows), room - len(below), key)
        return [self.shown(i, _log(v.log[rows[i]], "text"), width) for i in shown], below

    def _event_rows(self, v: EventsView, room: int, width: int) -> tuple[list[Line], list[Line]]:
        rows = self._rows = self._found.rows(v.events, self.searched, self.worse)

        def key(i: int) -> int:
            return v.events.key(rows[i])

        self.settle(len(rows), key)
        below = _below(_said(v.events[rows[self.at]]), _BEFORE + 1, room, width) if rows else []
        shown = self.place(len(rows), room - len(below), key)
        return [self.shown(i, _event(v.events[rows[i]], dated=True), width) for i in shown], below


def _below(text: str, before: int, room: int, width: int) -> list[Line]:
    """A row's whole text where it does not fit into its line, `before` cells of which are something else's."""
    if room < 6 or cells(text) + before <= width:
        return []
    lines = wrap(text, width)
    most = max(2, room // 2)
    if len(lines) > most:
        lines = [*lines[: most - 1], clip(lines[most - 1] + " …", width)]
    return [(("─" * width, "frame"),), *[((x, "text"),) for x in lines]]


_BEFORE = 15  # cells of a date and the time


def _usual(v: EventsView, rows: int, width: int) -> list[list[Run]]:
    """The newest of both, half and half."""
    n_log = min(len(v.log), max(rows // 2, rows - len(v.events)))
    if rows < 3:
        n_log = 0 if len(v.events) else min(n_log, rows)
    out = [_event(e) for e in v.events.last(rows - n_log)] if rows > n_log else []
    out += [_log(x) for x in v.log[len(v.log) - n_log :]]
    return out or [[("nothing yet", "dim")]]


def _death(v: EventsView, width: int) -> list[list[Run]]:
    head: list[list[Run]] = [[(line, "bad")] for line in wrap(v.death, max(20, width))]
    if v.can_start:
        head.append([("r", "key"), (" starts it again from its newest checkpoint", "text")])
    return head


def _dead(v: EventsView, rows: int, width: int) -> list[list[Run]]:
    head = _death(v, width)
    room = max(0, rows - len(head) - 1)
    log = v.log[max(0, len(v.log) - room) :] if room else ()
    if not log:
        return [*head, [("trainer.log is empty", "dim")]]
    return [*head, [("the end of trainer.log:", "dim")], *[_log(x, "text") for x in log]]


def _said(e: EventRow) -> str:
    """Name, step and text; "started: started at step 0" is said once."""
    text = e.text.removeprefix(e.name).lstrip(": ") if e.text.startswith(e.name) else e.text
    step = f" {fmt.count(e.step)}" if e.step else ""
    return f"{e.name}{step}" + (f" {text}" if text else "")


def _event(e: EventRow, dated: bool = False) -> list[Run]:
    form = "%d %b %H:%M:%S" if dated else ("%H:%M:%S" if time.time() - e.t < _DAY else "%d %b")
    try:
        clock = time.strftime(form, time.localtime(e.t))
    except (OverflowError, ValueError, OSError):  # no time that a calendar knows
        clock = "?"
    text = _said(e).removeprefix(e.name)
    step = f" {fmt.count(e.step)}" if e.step else ""
    return [
        (fit(clock, _BEFORE if dated else 8) + " ", "dim"),
        (e.name, e.tone or "bold"),
        (step, "text"),
        (text.removeprefix(step), "dim" if not e.tone else "text"),
    ]


def _log(x: str, style: str = "dim") -> list[Run]:
    return [("│ ", "frame"), (x, style)]
