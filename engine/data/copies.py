"""The longest verbatim copy of a text in the training tokens: exact for copies of LEAST tokens and more.

The index of an arm, `data/arms/NAME.grams`, has a hash of every GRAM-th run of GRAM training tokens, a *block*
(tokens 8b … 8b + 7). Wherever a copy of 15 tokens lies, one whole block lies in it. A text is looked up at each of its
positions, and what the index says is compared with the tokens themselves: hashes that collide never count.
"""

import hashlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from engine.data.keys import About, Keys, build_keys, find_keys
from engine.data.manifest import ARMS_DIR, Manifest
from engine.data.rows import Rows, Tokens
from engine.data.tokenizer import SEPARATOR

VERSION = 1
GRAM = 8  # tokens hashed together, and the distance between two hashes
LEAST = 2 * GRAM - 1  # tokens; a shorter copy may hold no whole block, so it is no copy
CHUNK = 1 << 18  # blocks hashed at once
CELLS = 1 << 21  # tokens compared at once
FIRST_BLOCKS = 64  # tried together, four times as many each time: a copy that is found early spares the rest
HASHED = 1 << 20  # hashes that are told apart where a mistake only costs time
# Multilinear hashing (Lemire and Kaser 2014, arXiv 1202.4961): the high 32 bits of Σ token · constant mod 2^64.
MULTIPLIERS = np.frombuffer(hashlib.blake2b(b"grams", digest_size=8 * GRAM).digest(), "<u8")

Ids = NDArray[np.int64]
Tick = Callable[[str, float], None]  # reports, and raises StopRequested


class Copy(NamedTuple):
    tokens: int  # 0: no copy of LEAST tokens or more
    arm: str  # where it stands; "" where there is none
    start_in_text: int  # the first of its tokens


class Copies:
    """The training tokens of these arms, to be searched.

    What is missing of the indexes, or was made from other tokens, is built: about a second for 50 million tokens.
    Raises StopRequested from `tick(what, fraction)`, BadInput on damaged token files, OSError on a full disk.
    """

    def __init__(self, run_dir: Path, manifest: Manifest, arms: Sequence[str], tick: Tick) -> None:
        rows = Rows(run_dir, manifest, context=1, seed=0)  # only its maps of the token files are used
        self._arms: dict[str, tuple[Keys, Tokens]] = {}
        for arm in arms:
            tokens = rows.tokens(arm, "train")
            path = run_dir / ARMS_DIR / f"{arm}.grams"
            about: About = {"kind": "grams", "version": VERSION, "n": GRAM, "stride": GRAM,
                            "train_sha256": manifest.arms[arm].train.sha256}  # fmt: skip
            keys = find_keys(path, about)
            if keys is None:
                build_keys(path, about, _block_keys(tokens, f"indexing {arm}", tick))
                keys = find_keys(path, about)
                assert keys is not None
            self._arms[arm] = keys, tokens

    def longest(self, ids: Sequence[int] | NDArray[np.integer]) -> Copy:
        """The longest stretch of `ids` (n,) that stands in the training tokens of an arm within one piece."""
        text = _grams(np.asarray(ids, np.int64))
        best = Copy(LEAST - 1, "", 0)
        for arm, (keys, tokens) in self._arms.items():
            length, start = _longest(keys, tokens, text, best.tokens)
            if length > best.tokens:
                best = Copy(length, arm, start)
        return best if best.arm else Copy(0, "", 0)


class _Text(NamedTuple):
    """A text and its different grams without a separator: gram g starts at places[starts[g]:][:counts[g]]."""

    ids: Ids  # (n,)
    hashes: NDArray[np.uint64]  # (m,) ascending
    places: Ids
    starts: Ids  # (m,)
    counts: Ids  # (m,)
    hashed: NDArray[np.bool_]  # (HASHED,) whether a gram of the text has this hash modulo HASHED


def _grams(ids: Ids) -> _Text:
    n = max(len(ids) - GRAM + 1, 0)
    wide = ids.astype(np.uint64)
    hashes = _hash([wide[j : j + n] for j in range(GRAM)])
    zeros = np.append(0, np.cumsum(ids == SEPARATOR))
    clean = np.flatnonzero(zeros[GRAM : GRAM + n] == zeros[:n])
    order = np.argsort(hashes[clean], kind="stable")
    values, starts, counts = np.unique(hashes[clean][order], return_index=True, return_counts=True)
    hashed = np.zeros(HASHED, np.bool_)
    hashed[values % np.uint64(HASHED)] = True
    return _Text(ids, values, clean[order], starts, counts, hashed)


def _hash(columns: list[NDArray[np.uint64]]) -> NDArray[np.uint64]:
    """32-bit hashes, in the low half, of the grams whose j-th tokens are columns[j]."""
    total = np.zeros_like(columns[0])
    for column, multiplier in zip(columns, MULTIPLIERS, strict=True):
        total += column * multiplier
    return total >> np.uint64(32)


def _block_keys(tokens: Tokens, what: str, tick: Tick) -> Iterator[Keys]:
    """Hash · 2^32 + b of every block b without a separator. 2^32 blocks are 2^35 tokens, a file of 64 GB."""
    n = len(tokens) // GRAM
    for start in range(0, n, CHUNK):
        tick(what, start / n)
        stop = min(start + CHUNK, n)
        blocks = tokens[start * GRAM : stop * GRAM].reshape(-1, GRAM)
        wide = blocks.astype(np.uint64)
        keys = _hash([wide[:, j] for j in range(GRAM)]) << np.uint64(32)
        keys |= np.arange(start, stop, dtype=np.uint64)
        yield keys[(blocks != SEPARATOR).all(axis=1)]
    tick(what, 1.0)


def _longest(keys: Keys, tokens: Tokens, text: _Text, best: int) -> tuple[int, int]:
    """(length, start in the text) of the longest copy of more than `best` tokens; (best, 0) where there is none.

    Every copy is looked for at its first whole block. A copy with k whole blocks has at most 8k + 14 tokens, so
    the blocks with the most successors that are in the text too are tried first, and the rest only as long as it can
    still win.
    """
    blocks, grams = _find(keys, text)
    chains = _chains(blocks, grams, text)
    order = np.argsort(-chains, kind="stable")
    blocks, grams, chains = blocks[order], grams[order], chains[order]
    start, where, at_once = 0, 0, FIRST_BLOCKS
    while start < len(blocks):
        ahead = min(GRAM * int(chains[start]) + GRAM - 1, len(text.ids))
        if best >= min(GRAM - 1 + ahead, len(text.ids)):
            break
        most = max(CELLS // (ahead + GRAM), 1)
        at_once = min(at_once, most)
        batch = slice(start, start + at_once)
        windows, which = _windows(tokens, text, blocks[batch] * GRAM, ahead, best)
        for rows, places in _pairs(text, grams[batch][which], most):
            length, begin = _compare(windows[rows], text.ids, places)
            if length > best:
                best, where = length, begin
        start, at_once = start + at_once, 4 * at_once
    return best, where


def _find(keys: Keys, text: _Text) -> tuple[Ids, Ids]:
    """(blocks, grams): the training blocks, ascending, that the text has somewhere by hash, and the number of each
    one's gram."""
    low = np.searchsorted(keys, text.hashes << np.uint64(32))
    found = np.flatnonzero(low < len(keys))
    found = found[keys[low[found]] >> np.uint64(32) == text.hashes[found]]
    high = np.searchsorted(keys, text.hashes[found] << np.uint64(32) | np.uint64(2**32 - 1), "right")
    parts = [keys[a:b] for a, b in zip(low[found], high, strict=True)]
    blocks = np.concatenate([np.empty(0, np.uint64), *parts]) & np.uint64(2**32 - 1)
    order = np.argsort(blocks)
    return blocks[order].astype(np.int64), np.repeat(found, high - low[found])[order]


def _chains(blocks: Ids, grams: Ids, text: _Text) -> Ids:
    """For each of the ascending blocks, how many may follow one another in one copy from it on, itself included: as
    long as each is the next block, and its gram stands somewhere in the text GRAM tokens behind the gram before."""
    if not len(blocks):
        return np.empty(0, np.int64)
    m = len(text.hashes)
    gram_at = np.full(len(text.ids) + GRAM, -1)
    gram_at[text.places] = np.repeat(np.arange(m), text.counts)
    pairs = gram_at[:-GRAM] * m + gram_at[GRAM:]
    pairs = np.unique(pairs[(gram_at[:-GRAM] >= 0) & (gram_at[GRAM:] >= 0)])
    follows = (np.diff(blocks) == 1) & np.isin(grams[:-1] * m + grams[1:], pairs)
    ends = np.append(np.flatnonzero(~follows), len(blocks) - 1)
    at = np.arange(len(blocks))
    return np.asarray(ends[np.searchsorted(ends, at)] - at + 1)


def _windows(tokens: Tokens, text: _Text, first: Ids, ahead: int, best: int) -> tuple[Tokens, Ids]:
    """(windows, which): the training tokens from GRAM − 1 before each of `first` up to `ahead` after it, each
    different window once, and the index in `first` of each; without those that hold no copy of more than `best`.

    What a copy through that block can't reach counts as a separator: beyond either end, and beyond a gram that
    the text doesn't have. So a text full of spaces has few windows, however much training text has spaces in it.
    """
    at = first[:, None] + np.arange(1 - GRAM, max(ahead, GRAM))
    inside = (at >= 0) & (at < len(tokens))
    windows = np.where(inside, tokens[np.clip(at, 0, len(tokens) - 1)], SEPARATOR).astype(np.uint16)
    wide, n = windows.astype(np.uint64), at.shape[1] - GRAM + 1
    ours = text.hashed[_hash([wide[:, j : j + n] for j in range(GRAM)]) % np.uint64(HASHED)]
    before = np.logical_and.accumulate(ours[:, GRAM - 1 :: -1], axis=1).sum(axis=1) - 1
    after = np.logical_and.accumulate(ours[:, GRAM - 1 :], axis=1).sum(axis=1) - 1
    columns = np.arange(at.shape[1])
    unreached = (columns < GRAM - 1 - before[:, None]) | (columns >= 2 * GRAM - 1 + after[:, None])
    windows[unreached] = SEPARATOR
    able = np.flatnonzero(before + GRAM + after > best)
    _, which = np.unique(windows[able].view(f"S{at.shape[1] * 2}")[:, 0], return_index=True)
    return windows[able[which]], able[which]


def _pairs(text: _Text, grams: Ids, at_once: int) -> Iterator[tuple[Ids, Ids]]:
    """(index in `grams`, place in the text) of each of the grams with each of its places, some at a time."""
    counts = text.counts[grams]
    ends = np.cumsum(counts)
    total = int(counts.sum())
    for start in range(0, total, at_once):
        flat = np.arange(start, min(start + at_once, total))
        rows = np.searchsorted(ends, flat, "right")
        yield rows, text.places[text.starts[grams[rows]] + flat - (ends - counts)[rows]]


def _compare(windows: Tokens, text: Ids, places: Ids) -> tuple[int, int]:
    """(length, start in the text) of the longest stretch in which a window i agrees with the text, laid so that its
    token GRAM − 1 meets the text's token places[i]."""
    at = places[:, None] + np.arange(1 - GRAM, windows.shape[1] - GRAM + 1)
    inside = (at >= 0) & (at < len(text))
    same = inside & (windows != SEPARATOR) & (windows == text[np.clip(at, 0, len(text) - 1)])
    lengths = run_lengths(same)
    row, end = np.unravel_index(int(lengths.argmax()), lengths.shape)
    length = int(lengths[row, end])
    return length, int(at[row, end]) - length + 1


def run_lengths(which: NDArray[np.bool_]) -> NDArray[np.int64]:
    """(rows, columns) how many True end here in a row, for every place of (rows, columns)."""
    columns = np.arange(which.shape[1])
    return columns - np.maximum.accumulate(np.where(which, -1, columns), axis=1)
