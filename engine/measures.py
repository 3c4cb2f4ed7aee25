"""What can be counted in one text that tells a living model from a collapsed one. Pure functions; no model is asked.

None of the numbers means much alone: legitimate Markdown repeats itself more than a looping model. Compare them with
the same numbers of real held-out text (`engine/data/reference.py`).
"""

import zlib
from collections.abc import Sequence

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from engine.data.copies import CELLS, Copies, run_lengths
from engine.data.keys import Keys, contains, unique
from engine.data.wordhash import ngrams, token_hashes, word_hashes
from engine.data.words import Words

Ids = NDArray[np.int64]
COHERENCE = {"bigrams": 35, "trigrams": 35, "known": 20, "usual": 10}  # points, 100 in all
REPLACEMENT = "\ufffd"  # what a tokenizer gives for bytes that are no UTF-8


class Measures(Struct, kw_only=True, frozen=True):
    """Every number is finite for every text, the empty one included (all 0, but zlib 1). Shares are 0 to 1."""

    tokens: int  # ids in the text
    coherence: float  # 0 to 100: `coherence()`
    seq_rep_4: float  # share of token 4-grams that stood in the text before: `seq_rep()`
    zlib: float  # bytes after zlib / bytes of UTF-8 before; above 1 for a very short text
    loop: int  # tokens in the longest stretch that repeats itself: `longest_loop()`
    known: float  # share of words that occur in the training text of an arm
    unseen: float  # share of pairs of neighbouring words that occur in no arm's training text
    novel: float  # share of runs of n tokens (3, of bytes 8) that occur in no arm's training text
    copy: int  # tokens of the longest verbatim copy from the training tokens; 0 below 15
    copy_arm: str  # the arm that it stands in; "" where there is none


# The numbers among them that have a reference.
MEASURES = ("coherence", "seq_rep_4", "zlib", "loop", "known", "unseen", "novel", "copy")


def measure(text: str, ids: Sequence[int] | NDArray[np.integer], words: Words, copies: Copies) -> Measures:
    """Some milliseconds for a text of some hundred tokens. `ids` are the text's tokens, without a separator."""
    array = np.asarray(ids, np.int64)
    copy = copies.longest(array)
    shares = words.shares(text, array)
    return Measures(
        tokens=len(array),
        coherence=coherence(text, shares.known),
        seq_rep_4=seq_rep(array, 4),
        zlib=zlib_ratio(text),
        loop=longest_loop(array),
        known=shares.known,
        unseen=shares.unseen,
        novel=shares.novel,
        copy=copy.tokens,
        copy_arm=copy.arm,
    )


def coherence(text: str, known: float) -> float:
    """0 to 100: 35 · distinct pairs of words + 35 · distinct triples + 20 · known words + 10 · usual characters.

    Distinct is the share of different n-grams among all (distinct-n: Li et al. 2016, arXiv 1510.03055). A text
    with no pair or triple has earned nothing for it. One known word over and over comes to just over 30.
    """
    words = word_hashes(text)
    return (
        COHERENCE["bigrams"] * distinct(ngrams(words, 2))
        + COHERENCE["trigrams"] * distinct(ngrams(words, 3))
        + COHERENCE["known"] * known
        + COHERENCE["usual"] * usual(text)
    )


def distinct(keys: Keys) -> float:
    """Share of different ones; 0 of none."""
    return len(unique(keys)) / len(keys) if len(keys) else 0.0


def usual(text: str) -> float:
    """Share of characters that can be printed or are a tab or a newline, and are no sign of broken UTF-8; 0 of none."""
    good = sum(c.isprintable() or c in "\n\t" for c in text) - text.count(REPLACEMENT)
    return good / len(text) if text else 0.0


def seq_rep(ids: Ids, n: int) -> float:
    """seq-rep-n of Welleck et al. 2019 (arXiv 1908.04319): 1 − different token n-grams / token n-grams; 0 of none."""
    if len(ids) < n:
        return 0.0
    return 1 - distinct(ngrams(token_hashes(ids), n))


def zlib_ratio(text: str) -> float:
    """Compressed bytes / bytes (zlib, level 9); 1 for the empty text."""
    raw = text.encode("utf-8", "replace")
    return len(zlib.compress(raw, 9)) / len(raw) if raw else 1.0


def longest_loop(ids: Ids) -> int:
    """Tokens in the longest stretch with some period p, id[i] = id[i + p] throughout, of at least 2p tokens; else 0."""
    n = len(ids)
    longest = 0
    rows = max(CELLS // max(n, 1), 1)
    for first in range(1, n // 2 + 1, rows):
        periods = np.arange(first, min(first + rows, n // 2 + 1))[:, None]
        later = np.arange(n) + periods
        same = (ids == ids[np.minimum(later, n - 1)]) & (later < n)
        lengths = run_lengths(same).max(axis=1)
        loops = (lengths + periods[:, 0])[lengths >= periods[:, 0]]
        longest = max(longest, int(loops.max(initial=0)))
    return longest


def similarity(a: str, b: str) -> float:
    """Jaccard index, shared / all, of the sets of pairs of neighbouring words, the ends counted as words: 1 for
    equal words in equal order, 0 where no two neighbours of one text are neighbours in the other."""
    pairs = [unique(ngrams(np.concatenate([[_END], word_hashes(text), [_END]]), 2)) for text in (a, b)]
    shared = int(contains(pairs[0], pairs[1]).sum())
    return shared / (len(pairs[0]) + len(pairs[1]) - shared)


_END = np.uint64(2)  # no word's hash: those are multiples of 4
