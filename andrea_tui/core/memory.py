"""What the cockpit remembers from one visit to the next: the last look, and the history that was read."""

import time
from pathlib import Path

from andrea_tui.core import away
from andrea_tui.core.away import AwayView
from andrea_tui.core.feed import Update
from andrea_tui.core.looks import Looks
from andrea_tui.core.recall import Recall
from andrea_tui.core.store import Store
from engine.rundir import names
from engine.rundir.records import Event

_TOLD = 20.0  # seconds that what is told may be read


class Memory:
    """Of one run. Nothing here raises: what can't be kept is told, once."""

    def __init__(self, run_dir: Path, store: Store) -> None:
        self._store = store
        self._looks = Looks(run_dir)
        self.recall = Recall(run_dir)
        self.away = AwayView()  # what happened before this visit
        self.looked_back = False

    def follow(self, update: Update) -> None:
        """After the store took it in."""
        if names.LOSS in update.fresh:
            self.recall.forget()

    def look_back(self) -> bool:
        """When the history is whole: whether what happened since the last look is worth being shown."""
        self.looked_back = True
        then = self._looks.load(self._born)
        if then is not None:
            self.away = away.away(then, away.known(self._store, time.time()))
        self.note()
        return self.away.worth

    def note(self) -> None:
        """What is seen now. Tells what can't be kept: one thing at a time, and none over what was told just now."""
        if not self.looked_back or self._store.loading is not None:
            return
        self._looks.save(away.look(away.known(self._store, time.time())), self._born)
        for keeper in (self._looks, self.recall):
            told = self._store.told
            if keeper.problem and (told is None or time.time() - told[1] > _TOLD):
                self._store.tell(keeper.problem, "dim")
                keeper.problem = ""

    def keep(self) -> None:
        """The history, for the next attach."""
        if self._store.loading is None:
            self.recall.save(self._store.history, self._store.place)

    def close(self) -> None:
        self.note()
        self.keep()
        self._looks.close()
        self.recall.close()

    @property
    def _born(self) -> Event | None:
        return self._store.events[0] if self._store.events else None
