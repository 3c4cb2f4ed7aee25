"""The text that the tokenizer learns from: at most 32 MB, evenly over the arms and over the length of each."""

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

from engine.config import Policy, TokenizerConfig
from engine.data import sources, split

SAMPLE = 32 * 1024 * 1024  # characters
FED = 8 * 1024  # characters at once; the library collects 256 of these before it works on them


class Thinned:
    """At most `limit` characters of a stream of pieces, evenly spread: when they get too many, every second goes."""

    def __init__(self, limit: int) -> None:
        self.kept: list[str] = []
        self._limit = limit
        self._size = 0
        self._stride = 1
        self._seen = 0

    def add(self, piece: str) -> None:
        if self._seen % self._stride == 0:
            self.kept.append(piece)
            self._size += len(piece)
        self._seen += 1
        while self._size > self._limit and len(self.kept) > 1:
            self.kept = self.kept[::2]
            self._size = sum(map(len, self.kept))
            self._stride *= 2


def tokenizer_sample(
    run_dir: Path, policy: Policy, tok: TokenizerConfig, tick: Callable[[str, float], None]
) -> Iterator[str]:
    """Every arm has the same share of the sample, so a huge one doesn't decide the vocabulary alone.

    What would be held out by the usual rule is not looked at. `tick(what, fraction)` is called for every piece.
    """
    if tok.kind == "bytes":
        return
    texts: list[str] = []
    for name, arm in sorted(policy.arms.items()):
        thinned = Thinned(SAMPLE // len(policy.arms))
        for fraction, piece in sources.pieces(run_dir, name, arm, Counter()):
            tick(f"reading {name}", fraction)
            if piece and split.piece_hash(piece.encode("utf-8")) >= split.USUAL_LIMIT:
                thinned.add(piece)
        texts += thinned.kept
    for i, text in enumerate(texts):
        for part in sources.split(text, FED):
            tick("training tokenizer", i / len(texts))
            yield part
