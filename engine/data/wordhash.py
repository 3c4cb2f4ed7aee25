"""A text as 64-bit hashes of its words, or of its tokens: a few passes of NumPy, some 40 MB/s.

A word is a run of letters and digits, or a single other mark; upper and lower case are the same. All hashes are
multiples of 4: the two low bits are free to say what kind of thing is meant.
"""

import functools
from typing import Any

import numpy as np
from numpy.typing import NDArray

from engine.data.keys import Keys

# Odd 64-bit numbers without a pattern: 2^64 / golden ratio, and the multipliers of SplitMix64 (Steele et al. 2014).
GOLDEN, MIX_1, MIX_2 = (np.uint64(x) for x in (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB))
GOLDEN_INVERSE = np.uint64(pow(int(GOLDEN), -1, 2**64))
FREE_BITS = np.uint64(3)
BLANK, LETTER, MARK = 0, 1, 2
BREAK = "\ud800"  # between two texts that are hashed together; no text has a lone surrogate


def word_hashes(text: str) -> Keys:
    """(n,) the hash of each word of the text, in order; a BREAK has 0.

    A word of characters c has the polynomial hash Σ mix(c_i) · GOLDEN^i mod 2^64. It is the difference of two
    running sums over the whole text, divided by the power of GOLDEN at its start.
    """
    codes = np.frombuffer(text.casefold().encode("utf-32-le", "surrogatepass"), "<u4")
    n = len(codes)
    kinds = _kinds(codes)
    letter, mark = kinds == LETTER, kinds == MARK
    starts = np.flatnonzero(mark | letter & ~np.append(False, letter)[:n])
    ends = np.flatnonzero(mark | letter & ~np.append(letter, False)[1:]) + 1
    mixed = _mix(codes.astype(np.uint64) + np.uint64(1))  # + 1: mix(0) is 0, the hash of a BREAK
    sums = np.append(np.uint64(0), np.cumsum(mixed * _powers(GOLDEN, n)))
    hashes = _mix((sums[ends] - sums[starts]) * _powers(GOLDEN_INVERSE, n)[starts]) & ~FREE_BITS
    hashes[codes[starts] == ord(BREAK)] = 0
    return hashes


def token_hashes(ids: NDArray[np.integer[Any]]) -> Keys:
    """(n,) a hash of each token id."""
    return _mix(ids.astype(np.uint64) + np.uint64(1)) & ~FREE_BITS


def ngrams(hashes: Keys, n: int) -> Keys:
    """(max(len(hashes) − n + 1, 0),) a hash of each n in a row; their order counts."""
    count = max(len(hashes) - n + 1, 0)
    total = np.zeros(count, np.uint64)
    for i in range(n):
        total = total * GOLDEN + hashes[i : i + count]
    return total


def _mix(x: Keys) -> Keys:
    """Spreads every bit over all others, one to one: the finaliser of SplitMix64."""
    x = (x ^ x >> np.uint64(30)) * MIX_1
    x = (x ^ x >> np.uint64(27)) * MIX_2
    return x ^ x >> np.uint64(31)


def _powers(base: np.uint64, n: int) -> Keys:
    """base^0 … base^(n − 1) mod 2^64."""
    return _powers_to(int(base), 1 << max(n - 1, 0).bit_length())[:n]


@functools.lru_cache(maxsize=4)
def _powers_to(base: int, n: int) -> Keys:
    powers = np.full(n, base, np.uint64)
    powers[:1] = 1
    return np.multiply.accumulate(powers)


def _kinds(codes: NDArray[np.uint32]) -> NDArray[np.uint8]:
    """(n,) what each character is: BLANK, LETTER or MARK."""
    kinds = _ASCII_KINDS[np.minimum(codes, 127)]
    others = codes > 127
    if others.any():
        values, at = np.unique(codes[others], return_inverse=True)
        kinds[others] = np.array([_kind(chr(v)) for v in values], np.uint8)[at]
    return kinds


def _kind(char: str) -> int:
    return LETTER if char.isalnum() else BLANK if char.isspace() else MARK


_ASCII_KINDS = np.array([_kind(chr(i)) for i in range(128)], np.uint8)
