"""The panel that counts down before the training is stopped: `q` only leaves in every other viewer."""

import math
import time
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.screen import ModalScreen

from andrea_tui.widgets.paint import Line, boxed
from andrea_tui.widgets.pane import Pane

SECONDS = 5


class Countdown(Pane[int]):
    """Shows the seconds left."""

    DEFAULT_CSS = "Countdown { width: 74; max-width: 100%; height: 5; max-height: 100%; }"

    def draw(self, left: int, width: int, height: int) -> list[Line]:
        ask: Line = ((f"stopping the training cleanly in {left} s", "bold"),)
        keys: Line = (
            ("Enter", "key"), (" now · ", "text"), ("d", "key"), (" leave it running · ", "text"),
            ("Esc", "key"), (" cancel", "text"),
        )  # fmt: skip
        if height < 5:
            return [ask, keys]
        said: Line = (("The step is finished and a checkpoint written; nothing is lost.", "dim"),)
        return boxed([("stop", "title")], "", [ask, said, keys], width, height, True)


class QuitPanel(ModalScreen[str]):
    """Ends with "stop", "detach" or "cancel". A second `q` changes nothing."""

    DEFAULT_CSS = "QuitPanel { align: center middle; background: $background 60%; }"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "answer('stop')", "now"),
        Binding("d", "answer('detach')", "leave it running"),
        Binding("escape", "answer('cancel')", "cancel"),
        Binding("q", "nothing", show=False),
    ]

    def __init__(self, seconds: float = SECONDS) -> None:
        super().__init__()
        self._end = time.monotonic() + seconds

    def compose(self) -> ComposeResult:
        yield Countdown()

    def on_mount(self) -> None:
        self._tick()
        self.set_interval(0.2, self._tick)

    def _tick(self) -> None:
        left = self._end - time.monotonic()
        if left <= 0:
            self.action_answer("stop")
        else:
            self.query_one(Countdown).show(math.ceil(left))

    def action_answer(self, answer: str) -> None:
        if self.is_current:
            self.dismiss(answer)

    def action_nothing(self) -> None:
        """Swallows the reflex."""
