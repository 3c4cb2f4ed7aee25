"""Which findings there were, and since when: the events pane tells them among the run's own events."""

from collections.abc import Sequence

from andrea_tui.core.finding import Finding
from andrea_tui.core.journal import EventRow
from engine.rundir.history import History

_MOST = 200  # rows that are kept


class Noticed:
    """A finding is noticed when it comes, not again while it lasts."""

    def __init__(self) -> None:
        self.rows: tuple[EventRow, ...] = ()
        self._lasting: set[tuple[str, int]] = set()

    def look(self, findings: Sequence[Finding], history: History, now: float) -> list[EventRow]:
        """What is new. `now`: seconds since 1970, for what belongs to no step."""
        new = []
        keys = {_key(f): f for f in findings}
        for key, f in keys.items():
            if key not in self._lasting:
                i = history.index(f.step) if f.step else None
                t = float(history.t[i]) if i is not None else now
                new.append(EventRow(t, f.kind, f.step, f.text, f.tone))
        self.rows = (*self.rows, *new)[-_MOST:]
        self._lasting = set(keys)
        return new


def _key(f: Finding) -> tuple[str, int]:
    """A spike or a skipped step is one at its step; the others last over many."""
    return (f.kind, f.step if f.kind in ("spike", "skipped") else 0)
