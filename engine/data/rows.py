"""Which rows come next: a pure function of (seed, arm name, pull), so a resume needs no state and no seeking.

Row i of an arm are the training tokens i·context … (i+1)·context, both ends included: the last token of a row is
the target of its last position and the first input of the next row. An epoch reads every row once, in an order of
its own.
"""

import hashlib
import math
import mmap
import os
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from engine.data.manifest import ArmData, Manifest, token_path
from engine.errors import BadInput
from engine.rundir.files import open_regular

Tokens = NDArray[np.uint16]


class Rows:
    """The tokenised arms of a run, mapped into memory as they are asked for. Raises BadInput on a damaged file."""

    def __init__(self, run_dir: Path, manifest: Manifest, context: int, seed: int) -> None:
        self.context = context
        self.run_dir = run_dir
        self.manifest = manifest
        self.seed = seed
        self._mapped: dict[tuple[str, str], Tokens] = {}
        self._order: dict[str, tuple[int, NDArray[np.uint32]]] = {}  # arm -> (epoch, its permutation)

    def n_tokens(self, arm: str) -> int:
        """Tokens to train on."""
        return self._arm(arm).train.tokens

    def n_rows(self, arm: str) -> int:
        """Rows in one epoch."""
        return (self._arm(arm).train.tokens - 1) // self.context

    def epoch(self, arm: str, pull: int) -> int:
        return pull // self.n_rows(arm)

    def row(self, arm: str, pull: int) -> NDArray[np.int64]:
        """(context + 1,) ids of the arm's row number `pull`, counted from 0 over the whole run."""
        epoch, position = divmod(pull, self.n_rows(arm))
        start = int(self._permutation(arm, epoch)[position]) * self.context
        return self.tokens(arm, "train")[start : start + self.context + 1].astype(np.int64)

    def heldout_rows(self, arm: str, n: int) -> NDArray[np.int64]:
        """(n', context + 1) ids, n' ≤ n: always the same rows, evenly spaced over the held-out part."""
        tokens = self.tokens(arm, "heldout")
        there = (len(tokens) - 1) // self.context
        if there < 1:
            raise BadInput(
                f"data/: arm {arm} has {len(tokens):,} held-out tokens, a row needs {self.context + 1:,}; drop the arm"
            )
        n = min(n, there)
        starts = [i * there // n * self.context for i in range(n)]
        return np.stack([tokens[s : s + self.context + 1] for s in starts]).astype(np.int64)

    def tokens(self, arm: str, part: str) -> Tokens:
        """All ids of an arm's "train" or "heldout" part, mapped, read-only."""
        if (arm, part) not in self._mapped:
            size = 2 * getattr(self._arm(arm), part).tokens
            self._mapped[arm, part] = _map(token_path(self.run_dir, arm, part), size)
        return self._mapped[arm, part]

    def train_counts(self, arm: str) -> NDArray[np.int64]:
        """(vocab,) how often each id occurs in the training part."""
        tokens, vocab = self.tokens(arm, "train"), self.manifest.tokenizer_vocab
        counts = np.zeros(vocab, np.int64)
        for i in range(0, len(tokens), 1 << 22):
            counts += np.bincount(tokens[i : i + (1 << 22)], minlength=vocab)
        return counts

    def _arm(self, arm: str) -> ArmData:
        try:
            return self.manifest.arms[arm]
        except KeyError:
            raise BadInput(
                f"data/: no data of arm {arm}; start the training or a pivot to prepare it"
            ) from None

    def _permutation(self, arm: str, epoch: int) -> NDArray[np.uint32]:
        cached = self._order.get(arm)
        if cached is None or cached[0] != epoch:
            cached = (epoch, permutation(self.seed, arm, epoch, self.n_rows(arm)))
            self._order[arm] = cached
        return cached[1]


def permutation(seed: int, arm: str, epoch: int, n: int) -> NDArray[np.uint32]:
    """(n,) the order of an epoch's rows.

    NumPy promises never to change RandomState's streams, which it doesn't for the newer Generator (NEP 19). The key
    has the arm's name, not its position: other arms may come and go.
    """
    key = hashlib.blake2b(f"{seed}\0{arm}\0{epoch}".encode(), digest_size=32, person=b"row order").digest()
    random = np.random.RandomState(np.random.MT19937())
    random.seed(np.frombuffer(key, "<u4"))
    order = np.arange(n, dtype=np.uint32)
    random.shuffle(order)
    return order


def unigram_nats(counts: NDArray[np.int64], rows: NDArray[np.int64]) -> float:
    """Nats per token of the add-one-smoothed unigram model of `counts` (vocab,) on the targets of `rows`
    (n, context + 1): what a model that has learnt nothing but frequencies would lose."""
    log_p = np.log(counts + 1.0) - math.log(int(counts.sum()) + len(counts))
    return float(-log_p[rows[:, 1:]].mean())


def _map(path: Path, size: int) -> Tokens:
    try:
        fd = open_regular(path)
        try:
            found = os.fstat(fd).st_size
            if found != size:
                raise BadInput(
                    f"{path}: {found:,} bytes, the manifest says {size:,}; restore it or drop the arm"
                )
            return np.frombuffer(mmap.mmap(fd, size, access=mmap.ACCESS_READ), "<u2")
        finally:
            os.close(fd)
    except OSError as e:
        raise BadInput(f"{path}: can't be read: {e.strerror or e}; restore it or drop the arm") from None
