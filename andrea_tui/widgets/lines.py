"""A widget that shows lines as they are."""

from textual.geometry import Size

from andrea_tui.widgets.paint import Line
from andrea_tui.widgets.pane import Pane


class Lines(Pane[tuple[Line, ...]]):
    """As high as they are many."""

    DEFAULT_CSS = "Lines { height: auto; width: 100%; }"

    def draw(self, view: tuple[Line, ...], width: int, height: int) -> list[Line]:
        return list(view)

    def show(self, view: tuple[Line, ...]) -> None:
        other_height = len(view) != len(self.view or ())
        super().show(view)
        if other_height:
            self.refresh(layout=True)

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        return len(self.view or ())
