"""One line at the bottom of the screen that asks for a text: what to find, which step to go to."""

from typing import ClassVar

from rich.text import Text
from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal
from textual.screen import ModalScreen
from textual.widgets import Input, Static


class Ask(ModalScreen[str | None]):
    """Answers with the text, or None where Esc was pressed."""

    DEFAULT_CSS = """
    Ask { align: left bottom; background: transparent; }
    Ask Horizontal { height: 1; background: $surface; }
    Ask Static { width: auto; height: 1; color: $primary; text-style: bold; padding: 0 1 0 0; }
    Ask Input, Ask Input:focus {
        width: 1fr; height: 1; border: none; padding: 0; background: $surface; color: $foreground;
    }
    """
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "leave", "back", show=False)]

    def __init__(self, label: str, hint: str = "", value: str = "") -> None:
        super().__init__()
        self._label, self._hint, self._value = label, hint, value

    def compose(self) -> ComposeResult:
        with Horizontal():
            yield Static(Text(self._label))
            yield Input(value=self._value, placeholder=self._hint)

    def on_key(self, event: events.Key) -> None:
        self.typed(event)

    def typed(self, event: events.Key) -> bool:
        """A key that came before the line had the focus; else the line takes it and it doesn't come here.

        Whether it was text: all others are what they are bound to.
        """
        line = self.query(Input)
        if line and event.key == "enter":
            self._answer(line.first().value.strip())
        elif line and event.character and event.is_printable:
            line.first().insert_text_at_cursor(event.character)
        else:
            return False
        event.stop()
        return True

    def on_input_submitted(self, event: Input.Submitted) -> None:
        self._answer(event.value.strip())

    def action_leave(self) -> None:
        self._answer(None)

    def _answer(self, text: str | None) -> None:
        if self.is_current:  # Enter and Esc at once: only the first counts
            self.dismiss(text)
