"""What happened: the run's events, below them the end of trainer.log. A death is told here in full."""

import time

from andrea_tui.core import fmt
from andrea_tui.core.text import wrap
from andrea_tui.core.views import EventRow, EventsView
from andrea_tui.widgets.paint import Line, Run, boxed, fit
from andrea_tui.widgets.pane import Pane


class EventsPane(Pane[EventsView]):
    can_focus = True

    def __init__(self, id: str | None = None) -> None:
        super().__init__(id=id)
        self.back = 0  # lines scrolled up from the end

    def scroll_lines(self, by: int) -> None:
        """Down (1) or up (−1); at the end it follows."""
        self.back = max(0, self.back - by)
        self.redraw()

    def draw(self, v: EventsView, width: int, height: int) -> list[Line]:
        inner = max(1, height - 2)
        lines = self._dead(v, inner, width - 4) if v.death else self._usual(v, inner, width - 4)
        title: list[Run] = [("5 ", "dim"), ("events", "title"), (" and trainer.log", "dim")]
        if v.death:
            title = [("5 ", "dim"), ("✗ the trainer died", "bad")]
        right = f"{self.back} lines back ↓" if self.back else ""
        return boxed(title, right, lines, width, height, self.has_focus)

    def _usual(self, v: EventsView, rows: int, width: int) -> list[list[Run]]:
        # As a screen of its own it is scrolled as one text; else the newest of both, half and half.
        if self.back:
            every = [_event(e) for e in v.events] + [_log(x) for x in v.log]
            self.back = min(self.back, max(0, len(every) - rows))
            end = len(every) - self.back
            return every[max(0, end - rows) : end]
        n_log = min(len(v.log), max(rows // 2, rows - len(v.events)))
        if rows < 3:
            n_log = 0 if v.events else min(n_log, rows)
        out = [_event(e) for e in v.events[max(0, len(v.events) - (rows - n_log)) :]]
        out += [_log(x) for x in v.log[len(v.log) - n_log :]]
        return out or [[("nothing yet", "dim")]]

    def _dead(self, v: EventsView, rows: int, width: int) -> list[list[Run]]:
        head: list[list[Run]] = [[(line, "bad")] for line in wrap(v.death, max(20, width))]
        if v.can_start:
            head.append([("r", "key"), (" starts it again from its newest checkpoint", "text")])
        room = max(0, rows - len(head) - 1)
        log = v.log[max(0, len(v.log) - room) :] if room else ()
        if not log:
            return [*head, [("trainer.log is empty", "dim")]]
        return [*head, [("the end of trainer.log:", "dim")], *[_log(x, "text") for x in log]]


def _event(e: EventRow) -> list[Run]:
    clock = time.strftime("%H:%M:%S" if time.time() - e.t < 86400 else "%d %b %H:%M", time.localtime(e.t))
    step = f" {fmt.count(e.step)}" if e.step else ""
    # "started: started at step 0" is said once
    text = e.text.removeprefix(e.name).lstrip(": ") if e.text.startswith(e.name) else e.text
    return [
        (fit(clock, 8) + " ", "dim"),
        (e.name, e.tone or "bold"),
        (step, "text"),
        (" " + text if text else "", "dim" if not e.tone else "text"),
    ]


def _log(x: str, style: str = "dim") -> list[Run]:
    return [("│ ", "frame"), (x, style)]
