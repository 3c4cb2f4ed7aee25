"""Known words, unseen pairs and novel runs: the same as sets would say, and never from a stale file."""

import random
import re
from collections.abc import Collection, Iterable, Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.config import Arm, Policy, TokenizerConfig
from engine.data import keys as keys_module
from engine.data import words as words_module
from engine.data.manifest import Manifest, load_tokenizer
from engine.data.prepare import prepare
from engine.data.tokenizer import Tokenizer
from engine.data.wordhash import BREAK, ngrams, token_hashes, word_hashes
from engine.data.words import Words, run_length
from engine.errors import StopRequested

MARKS = ["", "", "", ",", ".", "\n\n", " –", "_x", " é", " 漢字", "'s", " A1b2"]
WORDS = [
    "the",
    "a",
    "Tree",
    "river",
    "STONE",
    "under",
    "over",
    "walks",
    "sings",
    "never",
    "quick",
    "naïve",
    "Straße",
    "12",
]


def prose(seed: int, words: int) -> str:
    rng = random.Random(seed)
    return " ".join(rng.choice(WORDS) + rng.choice(MARKS) for _ in range(words))


def split(text: str) -> list[str]:
    """The words of a text as a regular expression finds them."""
    return re.findall(r"[^\W_]+|\S", text.casefold())


def runs(items: Sequence[object], n: int) -> list[tuple[object, ...]]:
    return list(zip(*(items[i:] for i in range(n)), strict=False))


def share(items: Iterable[object], seen: Collection[object]) -> float:
    found = [item in seen for item in items]
    return sum(found) / len(found) if found else 0.0


def make(run_dir: Path, kind: str, **texts: list[str]) -> tuple[Manifest, Tokenizer]:
    for arm, documents in texts.items():
        (run_dir / arm).mkdir(parents=True, exist_ok=True)
        for i, text in enumerate(documents):
            (run_dir / arm / f"{i:04}.txt").write_text(text, "utf-8")
    policy = Policy(arms={arm: Arm(path=arm) for arm in texts})
    tok = TokenizerConfig(kind="bytes", vocab=257) if kind == "bytes" else TokenizerConfig(vocab=320)
    m = prepare(run_dir, policy, tok, 16, lambda what, part: None, lambda: False)
    return m, load_tokenizer(run_dir, m)


def no_tick(what: str, fraction: float) -> None:
    pass


def pieces(run_dir: Path, m: Manifest, t: Tokenizer, arm: str) -> list[list[int]]:
    ids = np.fromfile(run_dir / "data" / "arms" / f"{arm}.train.u16", "<u2")
    return [piece[piece != 0].tolist() for piece in np.split(ids, np.flatnonzero(ids == 0))]


@given(st.text(alphabet=st.characters() | st.sampled_from(" \n_.aZ9éßİ漢\u200b\x1c\u0301")))
def test_a_text_is_split_as_the_regular_expression_does(text: str) -> None:
    text = text.encode("utf-8", "ignore").decode()
    words, hashes = split(text), word_hashes(text)
    assert len(words) == len(hashes)
    assert len(set(words)) == len(np.unique(hashes))
    assert len(set(zip(words, hashes.tolist(), strict=True))) == len(set(words))
    assert not (hashes & np.uint64(3)).any() and (hashes != 0).all()


def test_a_hash_depends_on_the_word_alone_and_pairs_on_their_order() -> None:
    a, b, c = word_hashes("alpha beta gamma")
    assert word_hashes("Gamma, BETA!")[[0, 2]].tolist() == [c, b]
    assert word_hashes("x" * 5000 + " alpha")[1] == a
    assert ngrams(word_hashes("alpha beta"), 2) != ngrams(word_hashes("beta alpha"), 2)
    assert word_hashes(BREAK.join(["alpha", "beta"])).tolist() == [a, 0, b]
    assert word_hashes("ab") != word_hashes("ba") and word_hashes("aa") != word_hashes("a")
    ids = np.arange(300)
    one_row = np.stack(np.meshgrid(ids, ids, [0]), axis=-1).reshape(-1)  # every pair of ids, and a third
    assert len(np.unique(ngrams(token_hashes(one_row), 3)[::3])) == 300 * 300


def test_a_run_of_tokens_has_about_eight_bytes() -> None:
    assert [run_length(v) for v in (257, 320, 512, 1281, 65535)] == [8, 6, 5, 3, 3]


@pytest.mark.parametrize("kind", ["bpe", "bytes"])
def test_the_shares_are_those_of_sets(tmp_path: Path, kind: str) -> None:
    m, t = make(
        tmp_path,
        kind,
        a=[prose(i, 25) for i in range(20)],
        b=[prose(99 + i, 9) + " zebra" for i in range(60)],
    )
    w = Words(tmp_path, m, t, ["a", "b"], no_tick)
    assert w.run == {"bytes": 8, "bpe": 6}[kind]
    train = [piece for arm in m.arms for piece in pieces(tmp_path, m, t, arm)]
    texts = [split(t.decode(piece)) for piece in train]
    known = {word for text in texts for word in text}
    pairs = {pair for text in texts for pair in runs(text, 2)}
    novel = {run for piece in train for run in runs(piece, w.run)}
    seen_some = False
    for text in [prose(i, 25) for i in range(500, 520)] + [
        "",
        "zebra",
        "zebra unicorn",
        "quick quick the zebra",
        ".",
    ]:
        ids = t.encode_batch([text])[0]
        got = w.shares(text, ids)
        found, every = split(text), runs(split(text), 2)
        assert got.known == pytest.approx(share(found, known))
        assert got.unseen == pytest.approx(1 - share(every, pairs) if every else 0)
        of_tokens = runs(ids.tolist(), w.run)
        assert got.novel == pytest.approx(1 - share(of_tokens, novel) if of_tokens else 0)
        seen_some = seen_some or (0 < got.unseen < 1 and 0 < got.novel < 1)
    assert seen_some
    alone = Words(tmp_path, m, t, ["a"], no_tick).shares("zebra", t.encode_batch(["zebra"])[0])
    assert alone.known == 0 and w.shares("zebra", t.encode_batch(["zebra"])[0]).known == 1


def test_nothing_crosses_from_one_piece_into_the_next(tmp_path: Path) -> None:
    m, t = make(tmp_path, "bytes", a=[f"{a} {b}" for a in WORDS for b in WORDS if a != b])
    w = Words(tmp_path, m, t, ["a"], no_tick)
    ends = [text for text in (split(t.decode(p)) for p in pieces(tmp_path, m, t, "a")) if len(text) == 2]
    inside = {pair for text in ends for pair in runs(text, 2)}
    crossing = [(a[1], b[0]) for a, b in pairwise(ends) if (a[1], b[0]) not in inside]
    assert len(crossing) > 10
    for pair in crossing:
        assert w.shares(" ".join(pair), np.array([1])).unseen == 1


def test_the_file_is_made_once_the_same_in_any_portions_and_again_when_stale(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    m, t = make(tmp_path, "bpe", a=[prose(i, 100) for i in range(80)])
    path = tmp_path / "data" / "arms" / "a.words"
    Words(tmp_path, m, t, ["a"], no_tick)
    whole, inode = path.read_bytes(), path.stat().st_ino
    Words(tmp_path, m, t, ["a"], no_tick)
    assert path.stat().st_ino == inode
    for damage in (
        whole[:-8],
        b"",
        whole.replace(b'"version":2', b'"version":7'),
        whole.replace(b"sha256", b"sha999"),
    ):
        path.write_bytes(damage)
        Words(tmp_path, m, t, ["a"], no_tick)
        assert path.read_bytes() == whole
    path.unlink()
    monkeypatch.setattr(words_module, "CHUNK", 257)
    monkeypatch.setattr(keys_module, "RUN", 300)
    monkeypatch.setattr(keys_module, "SAMPLED", 10)
    Words(tmp_path, m, t, ["a"], no_tick)
    assert path.read_bytes() == whole


def test_a_build_that_is_stopped_leaves_nothing(tmp_path: Path) -> None:
    m, t = make(tmp_path, "bpe", a=[prose(i, 100) for i in range(40)])
    said = []

    def stop(what: str, fraction: float) -> None:
        said.append((what, fraction))
        if fraction == 1:
            raise StopRequested(what)

    with pytest.raises(StopRequested):
        Words(tmp_path, m, t, ["a"], stop)
    assert said == [("reading the words of a", 0), ("reading the words of a", 1)]
    assert not [p.name for p in (tmp_path / "data" / "arms").iterdir() if not p.name.endswith(".u16")]
