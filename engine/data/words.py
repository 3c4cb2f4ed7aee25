"""Which words, pairs of words and runs of tokens occur in the training text of the arms.

Per arm `data/arms/NAME.words` has a 64-bit hash of every word, of every pair of neighbouring words and of every run of
n tokens that stands within one piece. With 100 million of them a wrong "seen" has a chance of 2e-11 per question.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from engine.data.keys import About, Keys, build_keys, contains, find_keys, unique
from engine.data.manifest import ARMS_DIR, Manifest
from engine.data.rows import Rows, Tokens
from engine.data.tokenizer import SEPARATOR, Tokenizer
from engine.data.wordhash import BREAK, ngrams, token_hashes, word_hashes

VERSION = 2
CHUNK = 1 << 18  # tokens read at once
# A run has as many tokens as make RUN_BYTES bytes, at least LEAST_RUN. Shorter ones are mere words, longer ones are new
# in real text as well: runs of 3 at 2.7 bytes a token told salad and noise from held-out text best.
RUN_BYTES, LEAST_RUN = 8, 3
PAIR, RUN = np.uint64(1), np.uint64(2)  # added to a hash: of a pair of words, of a run of tokens

Tick = Callable[[str, float], None]  # reports, and raises StopRequested


class Shares(NamedTuple):
    """0 to 1; 0 also where the text has no such thing."""

    known: float  # of the words: those that occur in some arm
    unseen: float  # of the pairs of neighbouring words: those that occur in no arm
    novel: float  # of the runs of n tokens: those that occur in no arm


class Words:
    """What was seen in training, by hash.

    What is missing of the files, or was made from other tokens, is built: about a second for 10 MB of text. Raises
    StopRequested from `tick(what, fraction)`, BadInput on damaged token files, OSError on a full disk.
    """

    def __init__(
        self, run_dir: Path, manifest: Manifest, tokenizer: Tokenizer, arms: Sequence[str], tick: Tick
    ) -> None:
        rows = Rows(run_dir, manifest, context=1, seed=0)  # only its maps of the token files are used
        self.run = run_length(manifest.tokenizer_vocab)
        self._arms: list[Keys] = []
        for arm in arms:
            path = run_dir / ARMS_DIR / f"{arm}.words"
            about: About = {"kind": "words", "version": VERSION, "run": self.run,
                            "train_sha256": manifest.arms[arm].train.sha256,
                            "tokenizer_sha256": manifest.tokenizer_sha256}  # fmt: skip
            keys = find_keys(path, about)
            if keys is None:
                blocks = _blocks(rows.tokens(arm, "train"), f"reading the words of {arm}", tick)
                build_keys(path, about, (_keys(ids, tokenizer, self.run) for ids in blocks))
                keys = find_keys(path, about)
                assert keys is not None
            self._arms.append(keys)

    def shares(self, text: str, ids: NDArray[np.integer[Any]]) -> Shares:
        """`ids` (n,) are the tokens of the text, without a separator."""
        words = word_hashes(text)
        pairs = ngrams(words, 2) | PAIR
        runs = ngrams(token_hashes(ids), self.run) | RUN
        wanted = np.concatenate([words, pairs, runs])
        seen = np.zeros(len(wanted), np.bool_)
        for arm in self._arms:
            seen |= contains(arm, wanted)
        of_words, of_pairs, of_runs = np.split(seen, [len(words), len(words) + len(pairs)])
        return Shares(_share(of_words), _share(~of_pairs), _share(~of_runs))


def run_length(vocab: int) -> int:
    """Tokens in a run: 8 of bytes, 3 from a vocabulary of about 1,000 on; fixed for a run, as its vocabulary is.

    A token of a byte-level BPE has some 1 + ¾ · log2(vocab / 256) bytes of English or code (2.7 measured at 1,281).
    """
    return max(LEAST_RUN, round(RUN_BYTES / (1 + 0.75 * math.log2(max((vocab - 1) / 256, 1)))))


def _share(which: NDArray[np.bool_]) -> float:
    return float(which.mean()) if len(which) else 0.0


def _blocks(tokens: Tokens, what: str, tick: Tick) -> Iterator[Tokens]:
    """The tokens of a file, some at a time: whole pieces with their separators."""
    kept = tokens[:0]
    for start in range(0, len(tokens), CHUNK):
        tick(what, start / len(tokens))
        block = np.concatenate([kept, tokens[start : start + CHUNK]])
        ends = np.flatnonzero(block == SEPARATOR)
        cut = int(ends[-1]) + 1 if len(ends) else 0
        yield block[:cut]
        kept = block[cut:]
    yield kept
    tick(what, 1.0)


def _keys(ids: Tokens, tokenizer: Tokenizer, run: int) -> Keys:
    """All keys of these pieces, sorted and unique."""
    pieces = np.split(ids, np.flatnonzero(ids == SEPARATOR) + 1)
    words = word_hashes(BREAK.join([tokenizer.decode(piece.tolist()) for piece in pieces]))
    return unique(
        np.concatenate(
            [
                words[words != 0],
                ngrams(words, 2)[_within(words, 2)] | PAIR,
                ngrams(token_hashes(ids), run)[_within(ids, run)] | RUN,
            ]
        )
    )


def _within(items: NDArray[Any], n: int) -> NDArray[np.bool_]:
    """(max(len(items) − n + 1, 0),) which n items in a row have no 0, the end of a piece, among them."""
    ends = np.append(0, np.cumsum(items == 0))
    return np.asarray(ends[n:] == ends[: max(len(ends) - n, 0)])
