"""Foreign text made safe for a terminal, and text measured in cells.

Everything that a file, a model or a process wrote passes `clean` where it enters the store. After that a
character is printable, takes one or two cells, and never moves the cursor, changes a colour or turns the
writing direction.
"""

import unicodedata
from collections.abc import Sequence
from functools import lru_cache

from rich.cells import get_character_cell_size

_PICTURES = {c: chr(0x2400 + c) for c in range(32)} | {0x7F: "␡"}  # ␀ … ␛ … ␟
NEWLINE = "⏎"


def clean(text: str, newline: str = NEWLINE) -> str:
    """Visible glyphs for controls; `newline` ("\\n" to keep them) for line ends. Never raises."""
    if text.isascii() and text.isprintable():
        return text
    text = unicodedata.normalize("NFC", text.replace("\r\n", "\n"))
    return "".join([newline if c == "\n" else _safe(c) for c in text])


@lru_cache(4096)
def _safe(c: str) -> str:
    code = ord(c)
    if code in _PICTURES:
        return "    " if c == "\t" else _PICTURES[code]
    if 0xD800 <= code < 0xE000 or 0x80 <= code < 0xA0:  # lone surrogates, C1
        return "�"
    category = unicodedata.category(c)
    if category == "Cf":  # zero width, bidi overrides and isolates, tags
        return "·"
    if category in ("Zl", "Zp"):
        return NEWLINE
    if category == "Zs":
        return " " if get_character_cell_size(c) == 1 else "  "
    if category in ("Mn", "Me", "Cn", "Co", "Cs") or get_character_cell_size(c) not in (1, 2):
        return "�" if category.startswith("C") else "◌"  # marks that found no letter to join
    return c


def cells(text: str) -> int:
    """Cells that cleaned text takes."""
    return len(text) if text.isascii() else sum(map(get_character_cell_size, text))


def clip(text: str, width: int, mark: str = "…") -> str:
    """At most `width` cells; a text that is cut ends with the mark."""
    if len(text) * 2 <= width or cells(text) <= width:
        return text
    if width <= 0:
        return ""
    out, used = [], cells(mark)
    if used > width:
        return ""
    for c in text:
        used += get_character_cell_size(c)
        if used > width:
            break
        out.append(c)
    return "".join(out) + mark


def clipped(names: Sequence[str], width: int) -> list[str]:
    """Each name in at most `width` cells; in the middle of all that are cut, where their beginnings are the same."""
    out = [clip(n, width) for n in names]
    if len(set(out)) == len(set(names)) or width < 5:
        return out
    return [
        clip(n, (width + 1) // 2) + _end(n, width // 2) if c != n else n
        for n, c in zip(names, out, strict=True)
    ]


def _end(text: str, width: int) -> str:
    """The last characters that have room."""
    i = len(text)
    while i > 0 and cells(text[i - 1 :]) <= width:
        i -= 1
    return text[i:]


def fit(text: str, width: int, right: bool = False) -> str:
    """Exactly `width` cells: cut with … or filled with spaces, on the left where `right`."""
    text = clip(text, width)
    fill = " " * (width - cells(text))
    return fill + text if right else text + fill


def wrap(text: str, width: int) -> list[str]:
    """Cleaned text in lines of at most `width` cells, broken at spaces where that is not far. At least one line."""
    if width <= 1:
        return [""]
    out = []
    for line in text.split("\n"):
        out += _wrap_line(line, width)
    return out


def _wrap_line(line: str, width: int) -> list[str]:
    out, start, used, space = [], 0, 0, -1
    i = 0
    while i < len(line):
        used += get_character_cell_size(line[i])
        if used > width:
            # break behind the last space, unless that leaves more than half of the line empty
            cut = space + 1 if space - start > width // 2 else i
            out.append(line[start:cut])
            start, space, i, used = cut, -1, cut, 0
            continue
        if line[i] == " ":
            space = i
        i += 1
    out.append(line[start:])
    return out
