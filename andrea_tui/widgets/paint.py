"""Lines of styled text: the form in which a pane draws itself. No Textual here, so that it can be tested alone.

A line is runs of (text, style name); its cells sum to the width asked for. All text was cleaned before.
"""

import unicodedata
from collections.abc import Iterable, Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray
from rich.cells import get_character_cell_size

from andrea_tui.core.text import cells, clip, fit

Run = tuple[str, str]
Line = tuple[Run, ...]

STYLES = (
    "text", "dim", "bold", "good", "warn", "bad", "raw", "ema", "title", "frame", "focus", "key", "bar", "mark",
    "chosen", "changed",
)  # fmt: skip


_ASCII = str.maketrans({
    "█": "#", "▌": "#", "░": ".", "▁": "_", "●": "*", "■": "#", "▲": "!", "✗": "x", "◌": "o", "×": "x",
    "…": "~", "·": ".", "–": "-", "—": "-", "⏎": "$", "←": "<", "→": ">", "↑": "^", "↓": "v", "◄": "<", "°": "'",
    "�": "?", "▴": "^", "▾": "v", "▂": "_", "▃": "-", "▄": "-", "▅": "=", "▆": "=", "▇": "#", "√": "v",
    "┊": ":", "▔": "-", "▎": "|", "▊": "|", "▏": "|", "▕": "|", "🔎": "> ", "›": ">", "‹": "<",
})  # fmt: skip
_LINES = {"-": "─━┄┅┈┉╌╍═╴╶╸╺╼╾", "|": "│┃┆┇┊┋╎╏║╵╷╹╻╽╿┤├"}  # of box drawing; the others are corners: +
_ASCII |= {ord(c): a for a, glyphs in _LINES.items() for c in glyphs if ord(c) not in _ASCII}


def to_ascii(text: str) -> str:
    """The same number of cells in ASCII."""
    if text.isascii():
        return text
    return "".join(c if c.isascii() else _ascii(c) for c in text.translate(_ASCII))


def _ascii(c: str) -> str:
    if "\u2800" <= c <= "\u28ff":
        upper, lower = ord(c) & 0x1B, ord(c) & 0xE4
        return ":" if upper and lower else ("'" if upper else ("." if lower else " "))
    if "\u2500" <= c <= "\u259f":
        return "+" if c < "\u2580" else "#"
    letter = unicodedata.normalize("NFD", c)[0]  # é: e
    return letter if letter.isascii() else "?" * get_character_cell_size(c)


def exact(runs: Iterable[Run], width: int) -> Line:
    """Exactly `width` cells: cut at the end with … or filled with spaces. Empty runs are dropped."""
    out: list[Run] = []
    left = width
    for text, style in runs:
        if not text:
            continue
        used = cells(text)
        if used > left:
            text = clip(text, left)
            used = cells(text)
            if text:
                out.append((text, style))
            left -= used
            break
        out.append((text, style))
        left -= used
    if left > 0:
        out.append((" " * left, "text"))
    return tuple(out)


def width_of(runs: Iterable[Run]) -> int:
    return sum(cells(t) for t, _ in runs)


def fill(lines: Sequence[Iterable[Run]], width: int, height: int) -> list[Line]:
    """Exactly `height` lines of `width` cells."""
    out = [exact(x, width) for x in lines[:height]]
    return out + [exact((), width)] * (height - len(out))


def boxed(
    title: Sequence[Run], right: str, inner: Sequence[Iterable[Run]], width: int, height: int, focused: bool
) -> list[Line]:
    """A frame with a title on the left and a word on the right of its upper edge."""
    if width < 6 or height < 3:
        return fill(inner, width, height)
    edge = "focus" if focused else "frame"
    head: list[Run] = [("┌ ", edge)]
    room = width - 4
    for text, style in title:
        text = clip(text, room)
        room -= cells(text)
        head.append((text, style))
    if right and cells(right) + 2 <= room:
        dashes = room - cells(right) - 2
        head += [(" " + "─" * dashes + " ", edge), (right, "dim"), (" ┐", edge)]
        head[-1] = ("┐", edge) if width_of(head) > width else head[-1]
    else:
        head += [(" " + "─" * room + "┐", edge)]
    out = [exact(head, width)]
    for x in fill(inner, width - 4, height - 2):
        out.append((("│ ", edge), *x, (" │", edge)))
    out.append((("└" + "─" * (width - 2) + "┘", edge),))
    return out


def row_of(chars: NDArray[np.uint32], styles: NDArray[np.int8]) -> Line:
    """A line from code points and indices into STYLES, one a cell."""
    cuts = np.flatnonzero(np.diff(styles)) + 1
    text = chars.astype("<u4").tobytes().decode("utf-32-le")
    bounds = [0, *cuts.tolist(), len(text)]
    return tuple((text[a:b], STYLES[int(styles[a])]) for a, b in pairwise(bounds) if b > a)


def columns(parts: Sequence[tuple[Sequence[Run], int]], gap: int = 2) -> list[Run]:
    """Runs side by side, each cut or filled to its width."""
    out: list[Run] = []
    for i, (runs, width) in enumerate(parts):
        out += exact(runs, width)
        if i < len(parts) - 1:
            out.append((" " * gap, "text"))
    return out


def fitting(items: Sequence[tuple[Sequence[Run], int]], width: int, gap: int = 2) -> list[Run]:
    """As many items (runs, importance: 1 most) as fit into the width, in their order, none of them cut."""
    kept: set[int] = set()
    used = -gap
    for i in sorted(range(len(items)), key=lambda i: items[i][1]):
        w = width_of(items[i][0])
        if w and used + gap + w <= width:
            kept.add(i)
            used += gap + w
    out: list[Run] = []
    for i in sorted(kept):
        if out:
            out.append((" " * gap, "text"))
        out += items[i][0]
    return out


_GAP = 5  # equal cells that cost less to send again than to jump over


def changed(old: Line, new: Line) -> list[tuple[int, int]]:
    """Spans [first, end) of cells in which two lines of one width differ, near ones joined; empty: equal."""
    if old == new:
        return []
    spans: list[tuple[int, int]] = []
    for i, (a, b) in enumerate(zip(_cells(old), _cells(new), strict=True)):
        if a != b:
            if spans and i - spans[-1][1] <= _GAP:
                spans[-1] = (spans[-1][0], i + 1)
            else:
                spans.append((i, i + 1))
    return spans


def _cells(line: Line) -> list[tuple[str, str]]:
    """One entry a cell; both cells of a wide character name it, so that they always change together."""
    out = []
    for text, style in line:
        if text.isascii():
            out += [(c, style) for c in text]
        else:
            for c in text:
                wide = get_character_cell_size(c) == 2
                out += [(c, style), (c + "\0", style)] if wide else [(c, style)]
    return out


_TICKS = "▁▂▃▄▅▆▇█"


def spark(values: Sequence[float | None], width: int) -> str:
    """A curve of one line, newest at the right; a blank where there is no value."""
    shown = list(values)[-width:] if width > 0 else []
    known = [v for v in shown if v is not None and v == v and abs(v) != float("inf")]
    if not known:
        return " " * max(0, width)
    low, high = min(known), max(known)
    step = (high - low) / (len(_TICKS) - 1)
    at = [None if v not in known else (round((v - low) / step) if step > 0 else 3) for v in shown]
    return "".join(" " if i is None else _TICKS[i] for i in at).rjust(width)


def bar(share: float, width: int, marks: Sequence[float | None] = ()) -> list[Run]:
    """A bar of a share of 0 to 1, with ┊ at the marks."""
    share = min(max(share, 0.0), 1.0) if share == share else 0.0
    halves = round(share * width * 2)
    text = ["█"] * (halves // 2) + ["▌"] * (halves % 2)
    text += [" "] * (width - len(text))
    at = {min(int(m * width), width - 1) for m in marks if m is not None and 0 < m < 1}
    out: list[Run] = []
    for i, c in enumerate(text):
        piece = ("┊", "mark") if i in at else (c, "bar")
        if out and out[-1][1] == piece[1]:
            out[-1] = (out[-1][0] + piece[0], piece[1])
        else:
            out.append(piece)
    return out


__all__ = [
    "STYLES", "Line", "Run", "bar", "boxed", "cells", "changed", "clip", "columns", "exact", "fill", "fit", "fitting",
    "row_of", "spark", "to_ascii", "width_of",
]  # fmt: skip
