"""A pane that lists rows: the chosen one, what is on the screen, and a view that stands still while rows come."""

from collections.abc import Callable, Hashable, Sequence
from typing import ClassVar, TypeVar

from textual import events

from andrea_tui.widgets.paint import Line, Run, exact
from andrea_tui.widgets.pane import Pane

V = TypeVar("V")
_WHEEL = 3  # rows


class ListPane(Pane[V]):
    """`draw` asks `place` which rows to show. At the newest row it follows; elsewhere it stands still."""

    can_focus = True
    NEWEST_FIRST: ClassVar[bool] = False  # rows come at the top; else at the end
    CHOOSES: ClassVar[bool] = True  # a row is chosen; else the list only scrolls

    def __init__(self, id: str | None = None) -> None:
        super().__init__(id=id)
        self.at = 0  # the chosen row
        self.top = 0  # the first on the screen
        self.first_line = 1  # of the pane, that shows a row
        self.follows = True
        self._n, self._room, self._held = 0, 1, 0
        self._key: Hashable = None  # of the chosen row

    def place(self, n: int, room: int, key: Callable[[int], Hashable]) -> range:
        """Which of `n` rows stand in so many lines. `key(i)` tells a row apart when others come before it."""
        self.settle(n, key)
        self._room = max(1, room)
        if self.CHOOSES:
            self.top = max(min(self.top, self.at), self.at - self._room + 1)
        self.top = min(max(0, self.top), max(0, n - self._room))
        return range(self.top, min(n, self.top + self._room))

    def settle(self, n: int, key: Callable[[int], Hashable]) -> None:
        """Find the chosen row again among what are now `n` rows; the first part of `place`."""
        self._n, last = n, max(0, n - 1)
        if not self.CHOOSES:
            return
        if self.follows:
            self.at, self._held = (0 if self.NEWEST_FIRST else last), n
        elif self._key is not None:
            moved = _find(n, self.at, key, self._key) - self.at
            self.at, self.top = self.at + moved, self.top + moved
        self.at = min(self.at, last)
        self._key = key(self.at) if n else None

    @property
    def fresh(self) -> int:
        """Rows that have come since the view stands still."""
        return 0 if self.follows else max(0, self._n - self._held)

    def is_chosen(self, i: int) -> bool:
        return self.CHOOSES and i == self.at and (self.has_focus or self.full)

    def shown(self, i: int, runs: Sequence[Run], width: int) -> Line:
        """The row's line; the chosen one is reversed, which needs no colour."""
        line = exact(runs, width)
        return tuple((text, "chosen") for text, _ in line) if self.is_chosen(i) else line

    def choose(self, i: int) -> None:
        """At the newest row it follows from now on."""
        self.at, self._key = min(max(0, i), max(0, self._n - 1)), None
        self.follows = self.at == (0 if self.NEWEST_FIRST else max(0, self._n - 1))
        self.redraw()

    def follow(self, on: bool = True) -> None:
        """Stand at the newest row from now on, or stay here."""
        self.follows, self._key = on, self._key if not on else None
        self.redraw()

    # ---- keys and mouse

    def scroll_lines(self, by: int) -> None:
        """Down (1) or up (−1)."""
        if self.CHOOSES:
            self.choose(self.at + by)
        else:
            self.top = max(0, self.top + by)
            self.redraw()

    def _wheel(self, by: int) -> None:
        """Moves the view; the chosen row goes along where it would leave the screen."""
        self.top = min(max(0, self.top + by), max(0, self._n - self._room))
        end = self.top + self._room
        if (self.top == 0) if self.NEWEST_FIRST else (end >= self._n):
            self.choose(0 if self.NEWEST_FIRST else self._n)
        elif self.CHOOSES:
            self.choose(min(max(self.at, self.top), end - 1))
        else:
            self.redraw()

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        event.stop()
        self._wheel(_WHEEL)

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        event.stop()
        self._wheel(-_WHEEL)

    def on_click(self, event: events.Click) -> None:
        row = self.top + event.y - self.first_line
        if self.CHOOSES and self.top <= row < min(self._n, self.top + self._room):
            self.choose(row)


def _find(n: int, near: int, key: Callable[[int], Hashable], wanted: Hashable) -> int:
    """Where the row is now, looked for from where it was outwards; `near` if it is gone."""
    for away in range(n + 1):
        for i in (near + away, near - away):
            if 0 <= i < n and key(i) == wanted:
                return i
        if near + away >= n and near - away < 0:
            break
    return near
