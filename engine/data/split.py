"""Which pieces of an arm are held out.

By the hash of their text: the smallest 2 % of all hashes. So a piece keeps its side when others are added, and
identical pieces are on the same side. A small arm whose 2 % are too little to measure anything, or by chance a large
part of it, gives as much as is needed instead: pieces in the order of their hashes, the last one only in part.
"""

import hashlib

from msgspec import Struct

SHARE = 0.02  # of the pieces
GREATEST_SHARE = 0.05  # of the tokens, unless a single row is more
_RANGE = 1 << 64
USUAL_LIMIT = int(SHARE * _RANGE)


class Rule(Struct, frozen=True):
    """Held out is a piece whose hash is below `limit`, and of the one with hash `cut` its last `cut_tokens`."""

    limit: int = USUAL_LIMIT
    cut: int = -1
    cut_tokens: int = 0


USUAL = Rule()


def piece_hash(text: bytes) -> int:
    """0 … 2^64 − 1"""
    return int.from_bytes(hashlib.blake2b(text, digest_size=8, person=b"held-out").digest(), "little")


def target_tokens(total: int, rows: int, context: int) -> int:
    """Tokens that are enough to hold out: `rows` rows, at most 5 % of all, at least one row."""
    return max(context + 1, min(rows * context + 1, int(GREATEST_SHARE * total)))


def is_fit(held: int, total: int, target: int) -> bool:
    """Whether the usual rule held out neither too little nor, of an arm of few pieces, too much."""
    return target <= held <= max(target, int(GREATEST_SHARE * total))


class Candidates:
    """The pieces with the smallest hashes, up to `most` tokens, found in one pass without keeping the others."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._tokens: dict[int, int] = {}  # hash -> tokens with separator; copies of a piece count once
        self._prune_at = 4096

    def add(self, digest: int, tokens: int) -> None:
        self._tokens[digest] = tokens
        if len(self._tokens) >= self._prune_at:
            self._prune()

    def rule(self, target: int) -> Rule:
        """The rule that holds out `target` tokens, or all there are."""
        total = 0
        for digest in sorted(self._tokens):
            if total + self._tokens[digest] >= target:
                return Rule(limit=digest, cut=digest, cut_tokens=target - total)
            total += self._tokens[digest]
        return Rule(limit=_RANGE)

    def _prune(self) -> None:
        kept, total = {}, 0
        for digest in sorted(self._tokens):
            kept[digest] = self._tokens[digest]
            total += kept[digest]
            if total >= self._most:
                break
        self._tokens = kept
        self._prune_at = max(4096, 2 * len(kept))
