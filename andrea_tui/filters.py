"""Applied to every line that Textual sends, whichever widget drew it."""

from functools import lru_cache

from rich.color import ColorType
from rich.segment import Segment
from rich.style import Style
from textual.color import Color
from textual.filter import LineFilter

from andrea_tui.widgets.paint import to_ascii


class Ascii(LineFilter):
    """Nothing but ASCII, cell for cell."""

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:
        return [
            s if s.control or s.text.isascii() else Segment(to_ascii(s.text), s.style, None) for s in segments
        ]


class NoColour(LineFilter):
    """No colour at all, not even the default one; bold, dim, reverse and underline stay.

    What a theme of the terminal's own colours gives a background, as the cursor and what is chosen, is reversed.
    """

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:
        return [Segment(text, style and _without(style), control) for text, style, control in segments]


@lru_cache(1024)
def _without(style: Style) -> Style:
    out = style.without_color
    behind = style.bgcolor
    if behind is not None and behind.type is ColorType.STANDARD:
        out += Style(reverse=True)
    # Rich's own way forgets what a click on the cell means.
    return out + Style.from_meta(style.meta) if style.meta else out
