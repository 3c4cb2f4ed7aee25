"""A pivot that is asked for: the countdown to its cut, withdrawing it, and what came of it.

The trainer does the work. This only watches, may be left at any time, and shows the same in every cockpit.
"""

from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.message import Message
from textual.screen import Screen
from textual.widget import Widget

from andrea_tui.core.store import Store
from andrea_tui.runner import Runner
from andrea_tui.screens import pivot_text
from andrea_tui.widgets.lines import Lines
from andrea_tui.widgets.paint import Line
from engine.errors import BadInput
from engine.rundir import names, pivot
from engine.rundir.pivot import Pivot
from engine.rundir.records import Event

LOOK = 0.5  # seconds
_OUTCOMES = ("pivot", "pivot_withdrawn", "pivot_refused", "pivot_dropped")
_SILENT = 20  # looks without the request and without an event that says what became of it


class PivotScreen(Screen[str]):
    """The frame of all steps: which step it is, a text that scrolls, what is to be said, the keys.

    Ends with "", or with a line that says why it could not be.
    """

    CSS_PATH = "pivot.tcss"
    AUTO_FOCUS = ""  # `go` says what has the focus
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "back", "back", show=False)]

    def __init__(self, store: Store, runner: Runner, step: str) -> None:
        super().__init__()
        self.store, self.runner, self.step = store, runner, step
        self._said = ""

    def compose(self) -> ComposeResult:
        yield Lines(id="head")
        yield from self.more()
        with VerticalScroll(id="body"):
            yield Lines(id="text")
        yield Lines(id="said")
        yield Lines(id="keys")

    def more(self) -> Iterable[Widget]:
        return ()

    def on_mount(self) -> None:
        self.set_interval(LOOK, self.look)
        self.go(self.step)

    def go(self, step: str, said: str = "") -> None:
        self.step, self._said = step, said
        self.query_one("#body").focus()
        self.redraw()

    def look(self) -> None:
        self.redraw()

    def action_back(self) -> None:
        self.dismiss("")

    @property
    def running(self) -> bool:
        return self.store.trainer.alive

    @property
    def width(self) -> int:
        return self.size.width - 4

    def on_resize(self) -> None:
        self.redraw()

    def text(self) -> list[Line]:
        """Of the present step."""
        return []

    def said(self) -> list[Line]:
        return pivot_text.wrapped(f"▲ {self._said}", self.width, "bad") if self._said else []

    def redraw(self) -> None:
        if not self.query("#keys"):  # not composed yet
            return
        self.query_one("#head", Lines).show(pivot_text.head(self.step))
        self.query_one("#text", Lines).show(tuple(self.text()))
        self.query_one("#said", Lines).show(tuple(self.said()))
        self.query_one("#keys", Lines).show(pivot_text.keys(self.step))

    def in_thread(self, work: Callable[[], None]) -> None:
        self.run_worker(work, thread=True)


class PivotProgress(PivotScreen):
    """Asks where that is still to be done, then watches."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("w", "withdraw", show=False),
        Binding("d", "leave", show=False),
    ]

    class Came(Message):
        """From a thread: what came of a piece of work."""

        def __init__(self, what: str, error: str = "", done: Pivot | None = None, entries: int = 0) -> None:
            super().__init__()
            self.what, self.error, self.done, self.entries = what, error, done, entries

    def __init__(self, store: Store, runner: Runner, request: Pivot, ask: bool = False) -> None:
        super().__init__(store, runner, "asking" if ask else "progress")
        self.request = request
        self.done: Event | None = None  # of a pivot that was made here
        self._entries = (0, 0)  # in .loss.json before and after
        self._silent = 0

    def on_mount(self) -> None:  # Textual calls that of PivotScreen too
        self.in_thread(self._ask if self.step == "asking" else partial(self._count, "before"))

    # ---- in threads

    def _ask(self) -> None:
        """With no trainer this is the whole pivot."""
        self._count("before")
        done, error = None, ""
        try:
            done = self.runner.pivot(self.request)
        except Exception as e:  # noqa: BLE001  shown; the run is as it was, or its request stands
            error = str(e) if isinstance(e, BadInput) else f"{type(e).__name__}: {e}"
        if done is not None:
            self._count("after")
        self.post_message(self.Came("refused" if error and not self._stands() else "asked", error, done))

    def _stands(self) -> bool:
        try:
            found = pivot.read(self.store.run_dir)
        except BadInput:
            return False
        return found is not None and found.id == self.request.id

    def _count(self, which: str) -> None:
        self.post_message(self.Came(which, entries=entries(self.store.run_dir)))

    def _withdraw(self) -> None:
        """It may have to wait for a transaction under way."""
        error = ""
        try:
            self.runner.withdraw_pivot()
        except (BadInput, OSError) as e:
            error = str(e)
        self.post_message(self.Came("withdrawn", error))

    # ---- in the app's thread

    def on_pivot_progress_came(self, m: Came) -> None:
        match m.what:
            case "before":
                self._entries = (m.entries, m.entries)
            case "after":
                self._entries = (self._entries[0], m.entries)
            case "refused":
                self.dismiss(m.error)
                return
            case "asked":
                self.done = pivot_text.done(m.done) if m.done else None
                self.go("summary" if m.done else "progress", m.error)
            case "withdrawn":
                self._said = m.error
        self.redraw()

    def action_withdraw(self) -> None:
        if self.step == "progress":
            self._said = "withdrawing it …"
            self.redraw()
            self.in_thread(self._withdraw)

    def action_leave(self) -> None:
        self.dismiss("")

    def look(self) -> None:
        if self.step == "progress":
            there = self.store.pivot is not None and self.store.pivot.id == self.request.id
            outcome = None if there else self._outcome()
            self._silent = 0 if there or outcome else self._silent + 1
            if outcome is not None:
                self.in_thread(partial(self._count, "after"))
                self.go("summary")
            elif self._silent > _SILENT:
                self._said = "the request is gone, and no event says what became of it"
        self.redraw()

    def _outcome(self) -> Event | None:
        p = self.request
        for e in reversed(self.store.events):
            if e.t < p.t - 1:
                return None
            if e.event in _OUTCOMES and e.info.get("id", p.id) == p.id:
                return e
        return None

    def text(self) -> list[Line]:
        if self.step == "progress":
            return pivot_text.progress(self.store, self.request, self.width)
        outcome = self.done or self._outcome()
        if self.step == "summary" and outcome is not None:
            return pivot_text.summary(outcome, self._entries, self.running, self.width)
        return [(("asking the trainer …" if self.running else "pivoting …", "bold"),)]


def entries(run_dir: Path) -> int:
    """Lines of .loss.json."""
    n = 0
    try:
        with open(run_dir / names.LOSS, "rb") as f:
            while piece := f.read(1 << 20):
                n += piece.count(b"\n")
    except OSError:
        pass  # only a figure in the summary
    return n
