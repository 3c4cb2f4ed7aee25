"""The measures of single texts: by hand, by brute force, and defined for every text."""

import math
import random

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine import measures
from engine.config import Arm, Policy, TokenizerConfig
from engine.data.copies import Copies
from engine.data.manifest import load_tokenizer
from engine.data.prepare import prepare
from engine.data.tokenizer import Tokenizer
from engine.data.words import Words
from engine.measures import (
    MEASURES,
    Measures,
    coherence,
    longest_loop,
    measure,
    seq_rep,
    similarity,
    usual,
    zlib_ratio,
)

Fixture = tuple[Words, Copies, Tokenizer]


@pytest.fixture(scope="module")
def indexes(tmp_path_factory: pytest.TempPathFactory) -> Fixture:
    """Both indexes of a small arm of bytes."""
    run_dir = tmp_path_factory.mktemp("measured")
    rng = random.Random(1)
    words = ["river", "stone", "walks", "under", "the", "old", "bridge", "."]
    lines = [" ".join(rng.choice(words) for _ in range(20)) + "\n" for _ in range(200)]
    (run_dir / "text.jsonl").write_text(
        "".join(msgspec.json.encode({"text": x}).decode() + "\n" for x in lines)
    )
    policy = Policy(arms={"a": Arm(path="text.jsonl")})
    tok = TokenizerConfig(kind="bytes", vocab=257)
    m = prepare(run_dir, policy, tok, 32, lambda what, part: None, lambda: False)
    t = load_tokenizer(run_dir, m)
    return (
        Words(run_dir, m, t, ["a"], lambda what, part: None),
        Copies(run_dir, m, ["a"], lambda what, part: None),
        t,
    )


def of(text: str, indexes: Fixture) -> Measures:
    words, copies, t = indexes
    return measure(text, t.encode_batch([text])[0], words, copies)


def ids(text: str) -> measures.Ids:
    """One token per letter."""
    return np.array([ord(c) for c in text], np.int64)


def test_a_text_is_measured(indexes: Fixture) -> None:
    _, copies, t = indexes
    tokens = copies._arms["a"][1]
    line = t.decode(tokens[: int(np.flatnonzero(tokens == 0)[0])].tolist())
    m = of(line, indexes)
    assert (m.tokens, m.copy, m.copy_arm) == (len(line), len(line), "a")
    assert (m.known, m.unseen, m.novel) == (1, 0, 0)
    other = of("The unicorn walks under the river of gold", indexes)
    assert other.known == pytest.approx(5 / 8)
    assert other.unseen == pytest.approx(4 / 7)
    assert 0 < other.novel < 1
    assert tuple(f for f in Measures.__struct_fields__ if f not in ("tokens", "copy_arm")) == MEASURES
    with pytest.raises(AttributeError):
        m.copy = 1  # type: ignore[misc]


@pytest.mark.parametrize(
    "text", ["", " ", "\n" * 300, "a", "\ufffd", "ab", "é", "漢字" * 40, "\x00\x01", "a " * 5, "=" * 1000]
)
def test_every_text_has_numbers(text: str, indexes: Fixture) -> None:
    m = of(text, indexes)
    for name in MEASURES:
        value = getattr(m, name)
        assert math.isfinite(value) and value >= 0
        if name not in ("coherence", "zlib", "loop", "copy"):
            assert value <= 1
    assert m.coherence <= 100 and m.loop <= m.tokens and m.copy <= m.tokens
    assert Measures(**msgspec.json.decode(msgspec.json.encode(m))) == m


def test_the_empty_text(indexes: Fixture) -> None:
    assert of("", indexes) == Measures(
        tokens=0, coherence=0, seq_rep_4=0, zlib=1, loop=0, known=0, unseen=0, novel=0, copy=0, copy_arm=""
    )


def test_coherence_by_hand() -> None:
    # words: a b c a b c d — 6 pairs of which 4 differ, 5 triples of which 4 differ
    assert coherence("a b c a b c d", 0.5) == pytest.approx(35 * 4 / 6 + 35 * 4 / 5 + 20 * 0.5 + 10)
    assert coherence("one two three four", 1) == 100
    assert coherence("the " * 100, 1) == pytest.approx(30 + 35 / 99 + 35 / 98)
    assert coherence("", 0) == 0


def test_usual_characters() -> None:
    assert usual("plain\n\ttext – ä 漢 🙂") == 1
    assert usual("ab\x00\ufffd") == 0.5
    assert usual("") == 0


def test_seq_rep_by_hand() -> None:
    assert seq_rep(ids("abcdabcd"), 4) == pytest.approx(1 - 4 / 5)
    assert seq_rep(ids("aaaaaaaa"), 4) == pytest.approx(1 - 1 / 5)
    assert seq_rep(ids("abcdefgh"), 4) == seq_rep(ids("abc"), 4) == seq_rep(ids(""), 4) == 0
    rng = np.random.default_rng(0)
    for _ in range(30):
        text = rng.integers(1, 4, 60)
        grams = [tuple(text[i : i + 4]) for i in range(57)]
        assert seq_rep(text, 4) == pytest.approx(1 - len(set(grams)) / 57)


@pytest.mark.parametrize(("text", "length"), [
    ("", 0), ("a", 0), ("ab", 0), ("aa", 2), ("abab", 4), ("ababa", 5), ("xababay", 5), ("abcabcab", 8), ("abcab", 0),
    ("aab", 2), ("abcdxabcd", 0), ("--------abcabcabc", 9), ("--------abcabc", 8),
])  # fmt: skip
def test_loops_by_hand(text: str, length: int) -> None:
    assert longest_loop(ids(text)) == length


def test_loops_by_brute_force(monkeypatch: pytest.MonkeyPatch) -> None:
    def brute(x: list[int]) -> int:
        spans = [
            (i, j, p)
            for i in range(len(x))
            for j in range(i + 2, len(x) + 1)
            for p in range(1, (j - i) // 2 + 1)
        ]
        return max((j - i for i, j, p in spans if all(x[k] == x[k + p] for k in range(i, j - p))), default=0)

    rng = random.Random(4)
    for chunk in (1 << 21, 64):  # cells at once
        monkeypatch.setattr(measures, "CELLS", chunk)
        for _ in range(40):
            x = [rng.randint(1, 3) for _ in range(rng.randint(0, 26))]
            assert longest_loop(np.array(x, np.int64)) == brute(x)


def test_zlib() -> None:
    assert zlib_ratio("") == 1
    assert zlib_ratio("a") > 1
    assert zlib_ratio("the same again " * 50) < 0.1
    assert zlib_ratio("\ud800") > 0  # a lone surrogate is no error


def test_similarity() -> None:
    assert similarity("", "") == 1
    assert similarity("", "a word") == 0
    assert similarity("The same, again", "the SAME ,again") == 1
    assert similarity("word", "word") == 1
    # ⟨a a-b b-c c⟩ and ⟨a a-b b-d d⟩: 2 pairs of 6 are shared
    assert similarity("a b c", "a b d") == pytest.approx(2 / 6)
    assert similarity("a b c d", "c d a b") == pytest.approx(2 / 8)
    assert similarity("x y", "p q") == 0


@given(st.text(max_size=200), st.text(max_size=200))
def test_similarity_is_a_share(a: str, b: str) -> None:
    assert 0 <= similarity(a, b) == similarity(b, a) <= 1
    assert similarity(a, a) == 1
