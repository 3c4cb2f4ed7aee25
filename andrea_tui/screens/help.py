"""All keys, from the one list of commands."""

from typing import ClassVar

from rich.text import Text
from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Static

from andrea_tui.core import commands
from andrea_tui.core.marks import MEANING
from andrea_tui.core.text import wrap

_MARKS = (
    ("● ■ ▲ ✗ ◌", "training, stopped, stalled, dead, busy with something else"),
    ("× on the axis", "a step without a finite loss; the EMA goes on without it"),
    ("▴ at the top", "a spike that is higher than the axis; ▴ on the axis: a checkpoint"),
    ("letters there", MEANING),
    ("○", "held-out loss, mean over the arms by their shares, nats per token"),
    ("┊", "in the chart a pivot; in the mix an arm's floor and cap"),
)

# pane -> title, what it shows and what can be done there
VIEWS = {
    "chart": (
        "Loss",
        "The raw loss as a faint band from its least to its greatest value in each column, the EMA as a line with its "
        "value at the right. Enter opens it over the screen; Enter again gives a cursor.",
    ),
    "mix": (
        "Mix",
        "Each arm's share of the rows between its floor and its cap (┊). Over the screen: why each arm has its share.",
    ),
    "audit": (
        "Audit",
        "What the model writes after the same prompts at every checkpoint, those of earlier phases too. Over the "
        "screen two audits stand side by side: words that the other one lacks are underlined, a measure outside the "
        "range of real text has a !. Enter lists one prompt through all audits; there Enter puts the chosen one on "
        "the right. ↑↓ another prompt, ←→ the right audit, [ ] the left one, / a text or a step.",
    ),
    "checkpoints": (
        "Checkpoints",
        "Every checkpoint, newest first: why it was written, when its bytes were last read back and found as "
        "recorded, and why it is kept. ✗ marks a file that is gone or has another size without an event that tells "
        "why. Enter: verify, try a prompt, branch, roll back, its audit, its place in the chart.",
    ),
    "events": (
        "Events",
        "All that happened in this run, and the end of trainer.log (e). / keeps lines with a text, ! warnings and "
        "worse; Esc takes that back. Scrolled up, the view stands still and counts what is new; End follows again. "
        "Enter shows an event's step in the chart.",
    ),
    "resources": ("Machine", "GPU, CPU, memory, disk, and what the trainer takes of them. n/a says why."),
}


class Help(ModalScreen[None]):
    DEFAULT_CSS = """
    Help { align: center middle; background: $background 60%; }
    Help VerticalScroll {
        width: 84; max-width: 100%; height: auto; max-height: 100%;
        background: $background; border: round $primary; padding: 0 1; scrollbar-size-vertical: 1;
    }
    Help Static { height: auto; width: 100%; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,question_mark,f1,enter,q", "dismiss", "back", show=False)
    ]

    def __init__(self, watch: bool, view: str = "") -> None:
        """`view`: the pane in focus, whose help comes first."""
        super().__init__()
        self._watch, self._view = watch, view

    def compose(self) -> ComposeResult:
        with VerticalScroll():
            yield Static()

    def on_resize(self, event: events.Resize) -> None:
        width = min(84, event.size.width) - 5  # without the frame and the scroll bar
        self.query_one(Static).update(_text(self._watch, self._view, width))


def _text(watch: bool, view: str, width: int) -> Text:
    text = Text(no_wrap=False)

    def row(head: str, cells: int, said: str) -> None:
        lines = wrap(said, max(20, width - cells - 2))
        text.append(f"  {head:<{cells}}", "bold")
        text.append(("\n" + " " * (cells + 2)).join(lines) + "\n")

    if view in VIEWS:
        text.append(f"{VIEWS[view][0]}\n", "bold")
        text.append(f"{VIEWS[view][1]}\n\n")
    usable = [c for c in commands.usable(watch) if c.shown]
    for group in dict.fromkeys(c.group for c in usable):
        text.append(f"{group}\n", "bold")
        for c in usable:
            if c.group == group:
                row(c.shown, 12, c.help)
    text.append("Marks\n", "bold")
    for glyphs, meaning in _MARKS:
        row(glyphs, 15, meaning)
    text.append("  ctrl+p opens the palette: every command by name. Esc goes back.")
    return text
