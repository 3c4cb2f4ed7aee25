"""Sends the cells that changed, and not the rest of their line.

Textual 8.2 knows the changed span of each line, but writes it from the left edge of its widget on
(`ChopsUpdate.render_segments` crops at the right only). Over SSH that is most of the bytes of a quiet dashboard.
"""

from typing import TYPE_CHECKING

from rich.control import Control
from textual._compositor import ChopsUpdate, Compositor

if TYPE_CHECKING:
    from rich.console import Console


class NarrowUpdate(ChopsUpdate):
    def render_segments(self, console: "Console") -> str:
        out: list[str] = []
        for y, x1, x2 in self.spans:
            for end, (x, strip) in zip(self.chop_ends[y], self.chops[y].items(), strict=False):
                a, b = max(x, x1), min(end, x2)
                if strip is not None and a < b:
                    out += [Control.move_to(a, y).segment.text, strip.crop(a - x, b - x).render(console)]
        return "".join(out)


class NarrowCompositor(Compositor):
    def render_partial_update(self) -> ChopsUpdate | None:
        update = super().render_partial_update()
        return None if update is None else NarrowUpdate(update.chops, update.spans, update.chop_ends)
