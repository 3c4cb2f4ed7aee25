"""Which words, and which pairs of neighbours, occur in the training text of the arms, and which words are common.

Per arm `data/arms/NAME.words` has the 64-bit hashes of every word, of every pair that stands within one piece, and of
the COMMON most frequent words. With 100 million of them a wrong "seen" has a chance of 2e-11 per question.
"""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from engine.data.keys import About, Keys, build_keys, contains, find_keys, unique
from engine.data.manifest import ARMS_DIR, Manifest
from engine.data.rows import Rows, Tokens
from engine.data.tokenizer import SEPARATOR, Tokenizer
from engine.data.wordhash import BREAK, ngrams, word_hashes

VERSION = 1
COMMON = 256  # words per arm; the most frequent ones make up some two thirds of a text
COUNTED = 1 << 14  # words whose counts are kept while an arm is read
CHUNK = 1 << 18  # tokens read at once
PAIR, OFTEN = np.uint64(1), np.uint64(2)  # added to a hash: a pair of words, a common word

Tick = Callable[[str, float], None]  # reports, and raises StopRequested


class Shares(NamedTuple):
    """0 to 1; 0 also where the text has no such words or pairs."""

    known: float  # of the words: those that occur in some arm
    unseen: float  # of the pairs of neighbours: those that occur in no arm
    # Of the pairs of which both words are common in some arm: those that occur in no arm. Names and numbers make new
    # pairs in every real text; that two common words never met is rare there, and the rule in a salad of them.
    strange: float


class Words:
    """What was seen in training, by hash.

    What is missing of the files, or was made from other tokens, is built: about a second for 10 MB of text. Raises
    StopRequested from `tick(what, fraction)`, BadInput on damaged token files, OSError on a full disk.
    """

    def __init__(
        self, run_dir: Path, manifest: Manifest, tokenizer: Tokenizer, arms: Sequence[str], tick: Tick
    ) -> None:
        rows = Rows(run_dir, manifest, context=1, seed=0)  # only its maps of the token files are used
        self._arms: list[Keys] = []
        for arm in arms:
            path = run_dir / ARMS_DIR / f"{arm}.words"
            about: About = {"kind": "words", "version": VERSION, "common": COMMON,
                            "train_sha256": manifest.arms[arm].train.sha256,
                            "tokenizer_sha256": manifest.tokenizer_sha256}  # fmt: skip
            keys = find_keys(path, about)
            if keys is None:
                texts = _texts(rows.tokens(arm, "train"), tokenizer, f"reading the words of {arm}", tick)
                build_keys(path, about, _keys(texts))
                keys = find_keys(path, about)
                assert keys is not None
            self._arms.append(keys)

    def shares(self, text: str) -> Shares:
        words = word_hashes(text)
        pairs = ngrams(words, 2)
        wanted = np.concatenate([words, words | OFTEN, pairs | PAIR])
        found = np.zeros(len(wanted), np.bool_)
        for arm in self._arms:
            found |= contains(arm, wanted)
        known, common, seen = np.split(found, [len(words), 2 * len(words)])
        both_common = common[:-1] & common[1:]
        return Shares(_share(known), _share(~seen), _share(~seen[both_common]))


def _share(which: NDArray[np.bool_]) -> float:
    return float(which.mean()) if len(which) else 0.0


def _keys(texts: Iterator[str]) -> Iterator[Keys]:
    """All keys of these texts, those of a text sorted and unique."""
    counts = _Counts()
    for text in texts:
        words = word_hashes(text)
        whole = words != 0
        pairs = ngrams(words, 2)[whole[:-1] & whole[1:]]
        counts.add(words[whole])
        yield unique(np.concatenate([words[whole], pairs | PAIR]))
    yield counts.top(COMMON) | OFTEN


class _Counts:
    """How often each word came, exactly for a word that was always among the COUNTED most frequent ones so far."""

    def __init__(self) -> None:
        self._words = np.empty(0, np.uint64)
        self._counts = np.empty(0, np.int64)

    def add(self, words: Keys) -> None:
        values, counts = np.unique(words, return_counts=True)
        both, at = np.unique(np.concatenate([self._words, values]), return_inverse=True)
        total = np.zeros(len(both), np.int64)
        np.add.at(total, at, np.concatenate([self._counts, counts]))
        kept = np.argsort(-total, kind="stable")[:COUNTED]
        self._words, self._counts = both[kept], total[kept]

    def top(self, n: int) -> Keys:
        return self._words[:n]


def _texts(tokens: Tokens, tokenizer: Tokenizer, what: str, tick: Tick) -> Iterator[str]:
    """The pieces of a token file as text, some at a time, with a BREAK between them."""
    kept = np.empty(0, np.uint16)
    for start in range(0, len(tokens), CHUNK):
        tick(what, start / len(tokens))
        block = np.concatenate([kept, tokens[start : start + CHUNK]])
        ends = np.flatnonzero(block == SEPARATOR)
        starts = np.append(0, ends + 1)
        yield BREAK.join([tokenizer.decode(block[a:b].tolist()) for a, b in zip(starts, ends, strict=False)])
        kept = block[starts[-1] :]
    yield tokenizer.decode(kept.tolist())
    tick(what, 1.0)
