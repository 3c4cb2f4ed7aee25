"""The run's events in one list, oldest first, with what the cockpit noticed itself; a row is made when it is shown.

The list only grows, so a view may hold it: 100,000 events cost no more to show than ten.
"""

from bisect import bisect_right
from collections.abc import Iterable, Sequence

from msgspec import Struct

from andrea_tui.core import fmt
from andrea_tui.core.text import clean
from engine.rundir.records import Event

_TONES = {"warning": "warn", "failed": "bad", "set_aside": "warn", "snapshot": "good", "pivot": "good",
          "collapse": "bad", "exhausted": "warn", "archived": "warn"}  # fmt: skip


class EventRow(Struct, frozen=True):
    t: float
    name: str
    step: int
    text: str
    tone: str  # "", warn, bad, good, dim


class Journal:
    """What happened. `version` grows with every change, `moved` where rows changed their places."""

    def __init__(self, items: Iterable[Event | EventRow] = ()) -> None:
        self._items: list[Event | EventRow] = list(items)
        self.moved = 0
        self.version = len(self._items)

    def __len__(self) -> int:
        return len(self._items)

    def __getitem__(self, i: int) -> EventRow:
        item = self._items[i]
        return item if isinstance(item, EventRow) else event_row(item)

    def last(self, n: int) -> list[EventRow]:
        return [self[i] for i in range(max(0, len(self) - n), len(self))]

    def key(self, i: int) -> int:
        """Tells rows apart as long as this list lives, wherever they stand."""
        return id(self._items[i])

    def add(self, events: Sequence[Event]) -> None:
        self._items += events
        self.version += len(events)

    def insert(self, row: EventRow) -> None:
        """Where its time says."""
        at = bisect_right(self._items, row.t, key=lambda x: x.t)
        self.moved += at < len(self._items)
        self._items.insert(at, row)
        self.version += 1


class Filter:
    """Which rows contain a text; what was looked at is not looked at again."""

    def __init__(self) -> None:
        self._about: tuple[int, int, str, bool] = (0, 0, "", False)
        self._seen = 0
        self._hits: list[int] = []

    def rows(self, journal: Journal, text: str, worse: bool) -> Sequence[int]:
        """Indices of the rows that contain `text`, in any case; `worse`: only warnings and what is worse."""
        if not text and not worse:
            return range(len(journal))
        about = (id(journal), journal.moved, text, worse)
        if about != self._about:
            self._about, self._seen, self._hits = about, 0, []
        needle = text.casefold()
        for i in range(self._seen, len(journal)):
            row = journal[i]
            if (not worse or row.tone in ("warn", "bad")) and (not needle or needle in _searched(row)):
                self._hits.append(i)
        self._seen = len(journal)
        return self._hits


def event_row(e: Event) -> EventRow:
    tone = _TONES.get(e.event, "")
    if e.event == "replayed":
        tone = "warn" if e.info.get("difference") else "good"
    elif e.event == "verified":
        tone = "bad" if e.info.get("damaged") else "good"
    return EventRow(e.t, clean(e.event), e.step, clean(e.text), tone)


def _searched(row: EventRow) -> str:
    return f"{row.name} {fmt.count(row.step)} {row.step} {row.text}".casefold()
