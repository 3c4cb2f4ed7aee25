"""Sends the cells that changed and not the rest of their line, and of their style only what is another one.

Textual 8.2 knows the changed span of each line, but writes it from the left edge of its widget on
(`ChopsUpdate.render_segments` crops at the right only), and names all of a style before every piece of text and takes
it back behind it. Over SSH that is most of the bytes of a quiet dashboard.
"""

from collections.abc import Iterable
from functools import lru_cache
from typing import TYPE_CHECKING

from rich.color import Color, ColorSystem
from rich.control import Control
from rich.style import Style
from textual._compositor import ChopsUpdate, Compositor
from textual.geometry import Region
from textual.strip import Strip

if TYPE_CHECKING:
    from rich.console import Console

Look = tuple[
    frozenset[str], str, str
]  # SGR parameters of the attributes, of the foreground, of the background
PLAIN: Look = (frozenset(), "39", "49")
# attribute -> SGR parameter that sets it, and that takes it back (bold and dim have one in common)
_ATTRIBUTES = {
    "bold": ("1", "22"), "dim": ("2", "22"), "italic": ("3", "23"), "underline": ("4", "24"), "blink": ("5", "25"),
    "reverse": ("7", "27"), "strike": ("9", "29"),
}  # fmt: skip
_OFF = dict(_ATTRIBUTES.values())


@lru_cache(1024)
def look(style: Style | None, system: ColorSystem) -> Look:
    """What the style is to the terminal (ECMA-48, 8.3.117)."""
    if style is None:
        return PLAIN
    attributes = frozenset(on for name, (on, _) in _ATTRIBUTES.items() if getattr(style, name))
    return attributes, _color(style.color, system, True), _color(style.bgcolor, system, False)


def _color(color: Color | None, system: ColorSystem, foreground: bool) -> str:
    if color is None:
        return "39" if foreground else "49"
    return ";".join(color.downgrade(system).get_ansi_codes(foreground))


@lru_cache(4096)
def change(old: Look, new: Look) -> str:
    """A short sequence from one look to another; "" where they are the same."""
    off = {_OFF[x] for x in old[0] - new[0]}
    on = {x for x in new[0] if x not in old[0] or _OFF[x] in off}
    codes = [
        *sorted(off),
        *sorted(on),
        *(x for x, before in zip(new[1:], old[1:], strict=True) if x != before),
    ]
    return f"\x1b[{';'.join(codes)}m" if codes else ""


class NarrowUpdate(ChopsUpdate):
    def render_segments(self, console: "Console") -> str:
        system = console._color_system  # as Strip.render asks for it
        out: list[str] = []
        now = PLAIN
        for y, x1, x2 in self.spans:
            for end, (x, strip) in zip(self.chop_ends[y], self.chops[y].items(), strict=False):
                a, b = max(x, x1), min(end, x2)
                if strip is None or a >= b:
                    continue
                out.append(Control.move_to(a, y).segment.text)
                for text, style, _ in strip.crop(a - x, b - x):
                    new = PLAIN if system is None else look(style, system)
                    out += [change(now, new), text]
                    now = new
        out.append(change(now, PLAIN))
        return "".join(out)


class NarrowCompositor(Compositor):
    def _get_renders(self, crop: Region | None = None) -> Iterable[tuple[Region, Region, list[Strip]]]:
        """Of the rows of `crop` alone. Textual asks every widget for all of its lines when a cell has changed."""
        if crop is None:
            yield from super()._get_renders()
            return
        rows = Region(0, crop.y, self.size.width, crop.height)
        for widget, (region, clip) in self.visible_widgets.items():
            clip = rows.intersection(clip)
            x, y, width, height = region.intersection(clip)
            if width and height:
                yield region, clip, widget.render_lines(Region(x - region.x, y - region.y, width, height))

    def render_partial_update(self) -> ChopsUpdate | None:
        update = super().render_partial_update()
        return None if update is None else NarrowUpdate(update.chops, update.spans, update.chop_ends)
