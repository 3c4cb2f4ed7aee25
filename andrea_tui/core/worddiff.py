"""Which words of two texts are not in the other one, in their order."""

import re
from difflib import SequenceMatcher
from functools import lru_cache
from typing import NamedTuple

Spans = tuple[tuple[int, int], ...]  # [first, end) characters

_WORD = re.compile(r"\w+|[^\w\s]")
_MOST = 400  # words that are compared (of one word over and over it is quadratic); from there on a text is another one


class WordDiff(NamedTuple):
    left: Spans  # what the left text has and the right has not
    right: Spans
    same: float  # share of the words that both have, 0 to 1


@lru_cache(128)
def word_diff(left: str, right: str) -> WordDiff:
    """Neighbouring words that differ are one span. Of two empty texts all is the same."""
    a, b = (list(_WORD.finditer(text)) for text in (left, right))
    matcher = SequenceMatcher(None, [m[0] for m in a[:_MOST]], [m[0] for m in b[:_MOST]], autojunk=False)
    in_left: list[tuple[int, int]] = []
    in_right: list[tuple[int, int]] = []
    for what, i, i_end, j, j_end in matcher.get_opcodes():
        if what != "equal":
            in_left += _span(a, i, i_end)
            in_right += _span(b, j, j_end)
    in_left += _span(a, _MOST, len(a))
    in_right += _span(b, _MOST, len(b))
    common = sum(block.size for block in matcher.get_matching_blocks())
    words = len(a) + len(b)
    return WordDiff(tuple(in_left), tuple(in_right), 2 * common / words if words else 1.0)


def _span(words: list[re.Match[str]], first: int, end: int) -> list[tuple[int, int]]:
    return [(words[first].start(), words[end - 1].end())] if first < end else []
