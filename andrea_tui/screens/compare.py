"""This run beside another one: what `andrea-tui compare` says, in the cockpit."""

from pathlib import Path
from typing import ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.screen import Screen
from textual.widgets import Input, Static

from andrea_tui.compare_command import report
from andrea_tui.core.compare import compare, load
from andrea_tui.core.store import Store
from andrea_tui.core.text import clean
from engine.errors import BadInput


class CompareScreen(Screen[None]):
    """Asks for the other run's directory, compares in a thread, shows the report. Reads only."""

    DEFAULT_CSS = """
    CompareScreen { background: $background; }
    CompareScreen #title { height: 1; text-style: bold; }
    CompareScreen Input, CompareScreen Input:focus { border: none; height: 1; padding: 0; background: $surface; }
    CompareScreen VerticalScroll { height: 1fr; scrollbar-size-vertical: 1; }
    CompareScreen #report { height: auto; width: auto; }
    CompareScreen #keys { height: 1; color: $foreground 62%; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "leave", "back", show=False)]

    def __init__(self, store: Store) -> None:
        super().__init__()
        self._store = store

    def compose(self) -> ComposeResult:
        yield Static(Text(f"compare {self._store.name} with the run in"), id="title")
        yield Input(
            value=other_run(self._store), placeholder="its directory, for example ../run-b", id="other"
        )
        with VerticalScroll():
            yield Static(id="report")
        yield Static(Text("Enter compare   ↑↓ PageUp PageDown scroll   Esc back"), id="keys")

    def on_input_submitted(self, event: Input.Submitted) -> None:
        other = event.value.strip()
        if not other:
            return
        self._show("reading both histories …")
        here, width = self._store.run_dir, max(40, self.size.width - 2)
        self.run_worker(
            lambda: self._compare(here, Path(other).expanduser(), width), thread=True, exclusive=True
        )

    def _compare(self, here: Path, there: Path, width: int) -> None:
        """In a thread of its own: histories can be long."""
        try:
            lines = report(compare([load(here), load(there)]), width, False)
        except (BadInput, OSError) as e:
            lines = [clean(str(e))]
        self.app.call_from_thread(self._show, "\n".join(lines))

    def _show(self, text: str) -> None:
        if self.is_mounted:
            self.query_one("#report", Static).update(Text(text, no_wrap=True))
            self.query_one(VerticalScroll).focus()

    def action_leave(self) -> None:
        """Back to the field, then back to the overview; never out."""
        if isinstance(self.focused, Input) or not self.query_one(Input).value:
            self.dismiss()
        else:
            self.query_one(Input).focus()


def other_run(store: Store) -> str:
    """The run that this one was branched from, or that was last branched from it."""
    for e in reversed(store.events):
        place = e.info.get("to") or e.info.get("from")
        if e.event == "branch" and isinstance(place, str):
            return clean(place)
    return ""
