"""What happened while the person was away: above the chart, until a key is pressed. It covers nothing."""

from andrea_tui.core.away import AwayView
from andrea_tui.widgets.paint import Line, boxed, fill
from andrea_tui.widgets.pane import Pane


class AwayPane(Pane[AwayView]):
    def draw(self, v: AwayView, width: int, height: int) -> list[Line]:
        lines: list[Line] = [((text, tone or "text"),) for text, tone in v.lines]
        if height < 3:
            return fill(lines, width, height)
        room = height - 2
        if len(lines) > room:
            more = len(lines) - room + 1
            lines = [*lines[: room - 1], ((f"… and {more} more; 5 shows all events", "dim"),)]
        return boxed([(v.title, "title")], "any key closes", lines, width, height, True)


def rows(v: AwayView) -> int:
    """Lines that it would like to have."""
    return len(v.lines) + 2
