"""The line-API base of all widgets: it draws a frozen view, and repaints only the cells that changed."""

from typing import Any, Generic, TypeVar

from rich.segment import Segment
from rich.style import Style
from textual.css.styles import RenderStyles
from textual.dom import DOMNode
from textual.filter import LineFilter
from textual.geometry import Region, Size
from textual.message import Message
from textual.strip import Strip
from textual.widget import Widget

from andrea_tui.widgets.paint import STYLES, Line, changed, fill

V = TypeVar("V")
_INK = frozenset(f"pane--{s}" for s in STYLES)


class Jump(Message):
    """Asks for a step to be shown in the chart."""

    def __init__(self, step: int) -> None:
        super().__init__()
        self.step = step


class Pane(Widget, Generic[V]):
    """Give it views with `show`; a subclass turns the view into lines in `draw`, which touches nothing else."""

    DEFAULT_CSS = """
    Pane { background: $background; color: $foreground; }
    Pane .pane--text { color: $foreground; }
    Pane .pane--dim { color: $foreground 62%; }
    Pane .pane--bold { color: $foreground; text-style: bold; }
    Pane .pane--good { color: $success; text-style: bold; }
    Pane .pane--warn { color: $warning; text-style: bold; }
    Pane .pane--bad { color: $error; text-style: bold; }
    Pane .pane--raw { color: $foreground 40%; }
    Pane .pane--ema { color: $primary; text-style: bold; }
    Pane .pane--title { color: $foreground; text-style: bold; }
    Pane .pane--frame { color: $foreground 35%; }
    Pane .pane--focus { color: $primary; text-style: bold; }
    Pane .pane--key { color: $primary; text-style: bold; }
    Pane .pane--bar { color: $primary; }
    Pane .pane--mark { color: $warning; }
    Pane .pane--chosen { color: $foreground; text-style: reverse; }
    Pane .pane--changed { color: $warning; text-style: bold underline; }
    """
    view: V | None = None
    full = False  # it fills the screen

    def __init__(self, id: str | None = None) -> None:
        super().__init__(id=id)
        self._lines: list[Line] = []
        self._strips: dict[int, Strip] = {}  # as they are sent
        self._filters: list[LineFilter] = []  # that they went through
        self._looks: dict[str, Style] = {}  # of the theme; Textual's own cache is emptied by every refresh
        self._drawn = Size(0, 0)

    def draw(self, view: V, width: int, height: int) -> list[Any]:
        """Lines (runs of text and style name) of the view; too long or too few is put right by the caller."""
        raise NotImplementedError  # abstract: abc can't be used, since Textual's Widget has a metaclass of its own

    def show(self, view: V) -> None:
        if view != self.view:
            self.view = view
            self.redraw()

    def redraw(self) -> None:
        """Draw again and repaint what is different. For a change of the pane's own state: zoom, scroll, focus."""
        if not self.is_mounted or not self.size or not self.display:
            self._drawn = Size(0, 0)
            return
        if self._drawn != self.size:
            self._compose_lines()
            self.refresh()
            return
        old = self._lines
        self._compose_lines()
        regions: list[Region] = []
        for y, (a, b) in enumerate(zip(old, self._lines, strict=True)):
            regions += [Region(start, y, end - start, 1) for start, end in changed(a, b)]
        if regions:
            self.refresh(*regions)

    # ---- what keys can do with a pane in focus; each is nothing here

    searched: str | None = None  # what is looked for in it now; None: a pane without a search

    def open(self) -> bool:
        """Enter, over the whole screen: act on the selection. False: there is nothing to act on."""
        return False

    def go_back(self) -> bool:
        """Esc: leave a mode of the pane's own. False: it is in none."""
        return False

    def search(self, text: str) -> None:
        """Show only what contains the text; empty: everything."""

    def act(self, what: str) -> None:
        """A key that means something in this pane alone."""

    def render_lines(self, crop: Region) -> list[Strip]:
        """Of lines without border and padding: Textual would style and filter all of them for one that changed."""
        if self._drawn != self.size:
            self._compose_lines()
        filters = list(self.get_line_filters())
        if filters != self._filters:
            self._filters, self._strips = filters, {}
        strips = [self._strips.get(y) or self._strip(y) for y in crop.line_range]
        x1, x2 = crop.column_span
        return strips if (x1, x2) == (0, self.size.width) else [strip.crop(x1, x2) for strip in strips]

    def notify_style_update(self) -> None:
        super().notify_style_update()
        self._strips, self._looks = {}, {}
        self._component_styles.clear()

    def get_component_styles(self, *names: str) -> RenderStyles:
        """Made when they are asked for. As COMPONENT_CLASSES they would be half of the time to the first frame: sixteen
        for every pane, twice, of which a pane needs few."""
        for name in names:
            if name in _INK and name not in self._component_styles:
                node = DOMNode(classes=name)
                node._attach(self)
                self.app.stylesheet.apply(node)
                self._component_styles[name] = node.styles
        return super().get_component_styles(*names)

    def watch_has_focus(self, has_focus: bool) -> None:
        """Not on_focus and on_blur: they are called before `has_focus` is set."""
        super().watch_has_focus(has_focus)
        self.redraw()

    def _compose_lines(self) -> None:
        width, height = self.size
        lines = [] if self.view is None else self.draw(self.view, width, height)
        old, kept = self._lines, self._strips if self._drawn == self.size else {}
        self._lines = fill(lines, width, height)
        self._drawn = self.size
        self._strips = {y: strip for y, strip in kept.items() if self._lines[y] == old[y]}

    def _strip(self, y: int) -> Strip:
        line = self._lines[y] if y < len(self._lines) else ()
        strip = Strip([Segment(text, self._rich(style)) for text, style in line], self.size.width)
        for line_filter in self._filters:
            strip = strip.apply_filter(line_filter, self.background_colors[1])
        self._strips[y] = strip
        return strip

    def _rich(self, style: str) -> Style:
        if style not in self._looks:
            self._looks[style] = self.get_component_rich_style(f"pane--{style}")
        return self._looks[style]
