"""What the measures of a text are in real held-out text of the same length, and what is odd against that.

Up to 200 windows per arm are measured once and their quantiles kept in `data/reference.json`. A text
is odd only where it is odd for every arm: what is usual in one of them the model may have learnt there.
"""

import hashlib
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import msgspec
import numpy as np
from msgspec import Struct

from engine.data.copies import Copies
from engine.data.manifest import Manifest
from engine.data.rows import Rows, Tokens
from engine.data.tokenizer import SEPARATOR, Tokenizer
from engine.data.words import Words
from engine.measures import MEASURES, measure
from engine.rundir.files import read_file, replace_file

REFERENCE_FILE = "data/reference.json"
VERSION = 2
WINDOWS = 200  # per arm, of the full length: the 1 % quantile is then the second or third of them
SHORTER_WINDOWS = 100  # of each shorter length, which fewer sample texts have
FEW = 8  # windows; with fewer within its pieces, an arm's pieces are read as one text
LEAST_LENGTH = 16  # tokens; a shorter text says too little to be judged

Tick = Callable[[str, float], None]  # reports, and raises StopRequested


class Quantiles(Struct, kw_only=True, forbid_unknown_fields=True, frozen=True):
    p01: float
    p05: float
    p50: float
    p95: float
    p99: float


class Envelope(Struct, kw_only=True, forbid_unknown_fields=True, frozen=True):
    """One arm's held-out text, in windows of one length."""

    windows: int  # how many there were
    measures: dict[str, Quantiles]  # by the names of MEASURES


class ArmReference(Struct, kw_only=True, forbid_unknown_fields=True, frozen=True):
    key: str  # hash of all that the numbers follow from
    lengths: dict[
        int, Envelope
    ]  # tokens in a window -> its envelope; without those that the arm is too short for


class Reference(Struct, kw_only=True, forbid_unknown_fields=True, frozen=True):
    version: int
    tokens: int  # audit.tokens
    arms: dict[str, ArmReference]


def make_reference(
    run_dir: Path, manifest: Manifest, tokenizer: Tokenizer, arms: Sequence[str], tokens: int, words: Words,
    copies: Copies, tick: Tick,
) -> Reference:  # fmt: skip
    """The reference for sample texts of up to `tokens` tokens; what the file lacks is measured and kept there.

    An arm's numbers depend on the training text of every arm, so another set of arms makes them all anew. Raises
    StopRequested from `tick(what, fraction)`, BadInput on damaged token files, OSError on a full disk.
    """
    old = _load(run_dir)
    rows = Rows(run_dir, manifest, context=1, seed=0)  # only its maps of the token files are used
    found: dict[str, ArmReference] = {}
    for arm in arms:
        key = _key(manifest, arms, arm, tokens)
        there = old.arms.get(arm)
        if there is None or there.key != key:
            lengths = {}
            for length in ladder(tokens):
                most = WINDOWS if length == tokens else SHORTER_WINDOWS
                texts = windows(rows.tokens(arm, "heldout"), length, most)
                if texts:
                    what = f"measuring held-out {arm}, {length} tokens"
                    lengths[length] = _envelope(texts, tokenizer, words, copies, what, tick)
            there = ArmReference(key=key, lengths=lengths)
        found[arm] = there
    reference = Reference(version=VERSION, tokens=tokens, arms=found)
    if reference != old:
        data = msgspec.json.format(msgspec.json.encode(reference), indent=1)
        replace_file(run_dir / REFERENCE_FILE, data + b"\n")
    return reference


def ladder(tokens: int) -> list[int]:
    """The lengths that have a reference: `tokens`, its half, its quarter … down to LEAST_LENGTH. A sample text
    that the model ended early is judged by the ones next to its length."""
    return [tokens >> i for i in range(tokens.bit_length()) if tokens >> i >= LEAST_LENGTH]


def windows(tokens: Tokens, length: int, most: int) -> list[Tokens]:
    """Up to `most` evenly spaced windows of `length` ids without a separator, overlapping by half at most.

    They lie within pieces, as a sample text does. Where fewer than FEW do, all pieces together count as one.
    """
    starts = _starts(np.flatnonzero(tokens == SEPARATOR), length)
    if len(starts) < FEW:
        tokens = tokens[tokens != SEPARATOR]
        starts = _starts([len(tokens)], length)
    n = min(len(starts), most)
    return [tokens[s : s + length] for s in (starts[i * len(starts) // n] for i in range(n))]


def _starts(ends: Iterable[int], length: int) -> list[int]:
    starts: list[int] = []
    begin = 0
    for end in map(int, ends):
        starts += range(begin, end - length + 1, max(length // 2, 1))
        begin = end + 1
    return starts


def _envelope(
    texts: list[Tokens], tokenizer: Tokenizer, words: Words, copies: Copies, what: str, tick: Tick
) -> Envelope:
    found = []
    for i, ids in enumerate(texts):
        tick(what, i / len(texts))
        found.append(measure(tokenizer.decode(ids.tolist()), ids, words, copies))
    tick(what, 1.0)
    quantiles = {}
    for name in MEASURES:
        values = np.quantile([getattr(m, name) for m in found], [0.01, 0.05, 0.5, 0.95, 0.99])
        p01, p05, p50, p95, p99 = (round(float(v), 6) for v in values)
        quantiles[name] = Quantiles(p01=p01, p05=p05, p50=p50, p95=p95, p99=p99)
    return Envelope(windows=len(found), measures=quantiles)


def _load(run_dir: Path) -> Reference:
    """The file, or an empty reference where it is missing, damaged or of another version: it can be made again."""
    empty = Reference(version=VERSION, tokens=0, arms={})
    try:
        found = msgspec.json.decode(read_file(run_dir / REFERENCE_FILE), type=Reference)
    except (FileNotFoundError, msgspec.DecodeError, RecursionError):
        return empty
    return found if found.version == VERSION else empty


def _key(manifest: Manifest, arms: Sequence[str], arm: str, tokens: int) -> str:
    parts = [str(VERSION), str(tokens), manifest.tokenizer_sha256, manifest.arms[arm].heldout.sha256]
    parts += sorted(manifest.arms[a].train.sha256 for a in arms)
    return hashlib.blake2b("\0".join(parts).encode(), digest_size=16).hexdigest()
