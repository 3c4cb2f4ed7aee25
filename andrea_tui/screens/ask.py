"""One line at the bottom of the screen that asks for a text: what to find, which step to go to."""

from typing import ClassVar

from rich.text import Text
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
    Ask Input { width: 1fr; height: 1; border: none; padding: 0; background: $surface; color: $foreground; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "leave", "back", show=False)]

    def __init__(self, label: str, hint: str = "", value: str = "") -> None:
        super().__init__()
        self._label, self._hint, self._value = label, hint, value

    def compose(self) -> ComposeResult:
        with Horizontal():
            yield Static(Text(self._label))
            yield Input(value=self._value, placeholder=self._hint)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        self.dismiss(event.value.strip())

    def action_leave(self) -> None:
        self.dismiss(None)
