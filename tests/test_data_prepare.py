"""From texts to `data/`: interruptions, added arms, the held-out parts, and what a damaged `data/` says."""

import hashlib
import json
import os
import random
from pathlib import Path

import numpy as np
import pytest

from engine.config import Arm, HeldoutConfig, Policy, TokenizerConfig
from engine.data import prepare as prepare_module
from engine.data import sample, split
from engine.data.manifest import token_path
from engine.data.prepare import Manifest, load_manifest, load_tokenizer, prepare, verify
from engine.data.rows import Rows
from engine.errors import BadInput, StopRequested

CONTEXT = 32
TOK = TokenizerConfig(vocab=300)
WORDS = [*"the a of tree river stone under over walks sings never always green old quick bird moon".split()]  # noqa: SIM905


def prose(seed: int, words: int) -> str:
    rng = random.Random(seed)
    return " ".join(rng.choice(WORDS) + rng.choice(["", "", "", ",", ".\n"]) for _ in range(words))


def policy(**arms: str) -> Policy:
    return Policy(arms={name.replace("_", "-"): Arm(path=path) for name, path in arms.items()})


POLICY = policy(many="many.jsonl", book="book.txt", notes="notes")


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    run = tmp_path / "run"
    (run / "notes").mkdir(parents=True)
    docs = [prose(i, 40) for i in range(700)]
    docs += docs[:150]  # copies
    (run / "many.jsonl").write_text("".join(json.dumps({"text": d}) + "\n" for d in docs))
    (run / "book.txt").write_text(prose(-1, 4000))
    for i in range(12):
        (run / "notes" / f"{i}.md").write_text(prose(10_000 + i, 100))
    return run


def go(run_dir: Path, p: Policy = POLICY, tok: TokenizerConfig = TOK, context: int = CONTEXT) -> Manifest:
    return prepare(run_dir, p, tok, context, lambda what, fraction: None, lambda: False)


def tree(run_dir: Path) -> dict[str, str]:
    data = run_dir / "data"
    files = [p for p in sorted(data.rglob("*")) if p.is_file()]
    return {str(p.relative_to(data)): hashlib.sha256(p.read_bytes()).hexdigest() for p in files}


def documents(run_dir: Path, m: Manifest, arm: str, part: str) -> list[bytes]:
    """The pieces of a token file, decoded."""
    t = load_tokenizer(run_dir, m)
    ids = np.fromfile(token_path(run_dir, arm, part), "<u2")
    assert ids[-1] == 0
    ends = np.flatnonzero(ids == 0)
    starts = np.concatenate([[0], ends[:-1] + 1])
    return [t.decode_bytes(ids[s:e]) for s, e in zip(starts, ends, strict=True)]


def test_what_is_written_is_what_was_read(run_dir: Path) -> None:
    m = go(run_dir)
    assert load_manifest(run_dir) == m
    verify(run_dir, m, full=True)
    assert set(tree(run_dir)) == {"manifest.json", "tokenizer.json"} | {
        f"arms/{arm}.{part}.u16" for arm in POLICY.arms for part in ("train", "heldout")
    }
    texts = [json.loads(line)["text"].encode() for line in (run_dir / "many.jsonl").open()]
    both = documents(run_dir, m, "many", "train") + documents(run_dir, m, "many", "heldout")
    assert set(both) == set(texts)
    data = m.arms["many"]
    assert data.skipped == {"copies of held-out pieces": len(texts) - len(both)}
    for part in ("train", "heldout"):
        p, pieces = getattr(data, part), documents(run_dir, m, "many", part)
        assert (p.documents, p.bytes) == (len(pieces), sum(map(len, pieces)))
    assert max(np.fromfile(token_path(run_dir, "many", "train"), "<u2")) < 300


def test_held_out_text_is_never_trained_on(run_dir: Path) -> None:
    m = go(run_dir)
    for arm in POLICY.arms:
        held, train = documents(run_dir, m, arm, "heldout"), documents(run_dir, m, arm, "train")
        assert not set(held) & set(train)
        assert len(set(held)) == len(held)
    many = m.arms["many"]
    assert 0.005 < many.heldout.documents / many.train.documents < 0.05
    # one book of one piece: its tail is held out, its front is trained on, together they are the book
    book = [b"".join(documents(run_dir, m, "book", part)) for part in ("train", "heldout")]
    assert b"".join(book) == (run_dir / "book.txt").read_bytes()
    for arm in ("book", "notes"):
        total = m.arms[arm].train.tokens + m.arms[arm].heldout.tokens
        rows = policy_rows(total)
        assert rows <= m.arms[arm].heldout.tokens <= total // 20


def policy_rows(total: int) -> int:
    return split.target_tokens(total, Policy().heldout.rows, CONTEXT)


def test_adding_documents_moves_no_other_to_the_other_side(run_dir: Path) -> None:
    before = set(documents(run_dir, go(run_dir), "many", "heldout"))
    other = run_dir.parent / "other"
    other.mkdir()
    lines = "".join(json.dumps({"text": prose(50_000 + i, 40)}) + "\n" for i in range(400))
    (other / "many.jsonl").write_text(lines + (run_dir / "many.jsonl").read_text())
    m = go(other, policy(many="many.jsonl"))
    assert before <= set(documents(other, m, "many", "heldout"))


def test_a_piece_that_is_cut_is_trained_on_in_no_copy(run_dir: Path) -> None:
    line = json.dumps({"text": prose(1, 500)}) + "\n"
    (run_dir / "c.jsonl").write_text(line * 5)
    m = go(run_dir, Policy(arms={"c": Arm(path="c.jsonl")}), TokenizerConfig(kind="bytes", vocab=257))
    assert m.arms["c"].train.documents == m.arms["c"].heldout.documents == 1
    assert m.arms["c"].skipped == {"copies of held-out pieces": 4}


def test_an_arm_whose_only_piece_would_be_held_out_is_cut_too(run_dir: Path) -> None:
    text = next(
        t for t in (prose(i, 2000) for i in range(1000)) if split.piece_hash(t.encode()) < split.USUAL_LIMIT
    )
    (run_dir / "unlucky.txt").write_text(text)
    m = go(run_dir, policy(unlucky="unlucky.txt"), TokenizerConfig(kind="bytes", vocab=257))
    data = m.arms["unlucky"]
    assert data.heldout.tokens == policy_rows(len(text) + 1) and data.train.tokens > 10_000


def test_more_held_out_rows_can_be_asked_for(run_dir: Path) -> None:
    p = Policy(arms={"b": Arm(path="book.txt")}, heldout=HeldoutConfig(rows=2))
    m = go(run_dir, p)
    assert m.arms["b"].heldout.tokens == 2 * CONTEXT + 1
    assert Rows(run_dir, m, CONTEXT, 1).heldout_rows("b", 8).shape == (2, CONTEXT + 1)


def test_candidates_are_pruned_without_an_effect() -> None:
    rng = random.Random(3)
    pieces = [(rng.getrandbits(64), rng.randrange(1, 50)) for _ in range(20_000)]
    kept, full = split.Candidates(3000), split.Candidates(10**9)
    for digest, tokens in pieces:
        kept.add(digest, tokens)
        full.add(digest, tokens)
    assert len(kept._tokens) < 5000
    for target in (1, 33, 2999, 3000):
        rule = full.rule(target)
        assert kept.rule(target) == rule
        assert sum(t for d, t in pieces if d < rule.limit) + rule.cut_tokens == target


# ---- interruptions ----


@pytest.mark.parametrize("fraction", [0.0, 0.2, 0.45, 0.5, 0.55, 0.7, 0.85, 1.0])
def test_an_interrupted_preparation_is_done_again_to_the_same_bytes(run_dir: Path, fraction: float) -> None:
    calls = 0
    stop_at = -1

    def should_stop() -> bool:
        nonlocal calls
        calls += 1
        return calls == stop_at

    prepare(run_dir, POLICY, TOK, CONTEXT, lambda w, f: None, should_stop)
    want = tree(run_dir)
    (run_dir / "data").rename(run_dir.parent / "first")
    calls, stop_at = 0, max(1, int(fraction * calls))
    with pytest.raises(StopRequested):
        prepare(run_dir, POLICY, TOK, CONTEXT, lambda w, f: None, should_stop)
    assert not (run_dir / "data" / "manifest.json").exists()
    assert not list((run_dir / "data").rglob("*.part"))
    go(run_dir)
    assert tree(run_dir) == want


def test_leftovers_of_a_killed_preparation_go(run_dir: Path) -> None:
    go(run_dir)
    want = tree(run_dir)
    arms = run_dir / "data" / "arms"
    (run_dir / "data" / "manifest.json").unlink()
    for path in (
        arms / "many.train.u16.part",
        arms / "gone.train.u16",
        run_dir / "data" / "manifest.json.tmp-7",
    ):
        path.write_bytes(b"x")
    (arms / "book.train.u16").write_bytes(b"")
    go(run_dir)
    assert tree(run_dir) == want


def test_progress_is_told(run_dir: Path) -> None:
    told: list[tuple[str, float]] = []
    prepare(run_dir, POLICY, TOK, CONTEXT, lambda w, f: told.append((w, f)), lambda: False)
    assert all(0 <= f <= 1 for _, f in told)
    assert {w for w, _ in told} >= {"reading book", "training tokenizer", "tokenising many"}


def test_a_full_disk_is_one_line_and_leaves_no_part(run_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(fd: int, data: bytes) -> None:
        raise OSError(28, os.strerror(28))

    with monkeypatch.context() as mp:
        mp.setattr("engine.data.writer.write_all", full)
        with pytest.raises(BadInput, match=r"^[^\n]*No space left on device[^\n]*$"):
            go(run_dir)
    assert tree(run_dir) == {}
    go(run_dir)


# ---- a second time, and more arms ----


def test_a_second_time_nothing_is_read(run_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    m = go(run_dir)
    (run_dir / "book.txt").unlink()  # a run never depends on its sources again
    monkeypatch.setattr(prepare_module, "_arms", None)
    assert go(run_dir) == m


def test_an_added_arm_leaves_the_other_files_alone(run_dir: Path) -> None:
    m = go(run_dir, policy(many="many.jsonl", book="book.txt"))
    before, stamp = tree(run_dir), os.stat(token_path(run_dir, "many", "train")).st_mtime_ns
    both = go(run_dir, policy(many="many.jsonl", notes="notes"))  # book is dropped, notes is new
    after = tree(run_dir)
    assert set(both.arms) == {"many", "book", "notes"}
    assert {a: both.arms[a] for a in m.arms} == m.arms
    assert {f: h for f, h in after.items() if f in before and f != "manifest.json"} == {
        f: h for f, h in before.items() if f != "manifest.json"
    }
    assert os.stat(token_path(run_dir, "many", "train")).st_mtime_ns == stamp
    assert load_manifest(run_dir) == both


def test_an_interrupted_addition_changes_nothing(run_dir: Path) -> None:
    go(run_dir, policy(many="many.jsonl"))
    before = tree(run_dir)
    calls = iter(range(10**9))
    with pytest.raises(StopRequested):
        prepare(run_dir, POLICY, TOK, CONTEXT, lambda w, f: None, lambda: next(calls) == 5)
    assert {f: h for f, h in tree(run_dir).items() if f in before} == before


def test_what_is_frozen_is_refused(run_dir: Path) -> None:
    go(run_dir)
    with pytest.raises(
        BadInput, match=r"config\.toml: tokenizer: bpe with 401 entries, but data/ was made with"
    ):
        go(run_dir, tok=TokenizerConfig(vocab=401))
    with pytest.raises(BadInput, match=r'arms\.book: data/ holds this arm made from path = "book\.txt"'):
        go(run_dir, policy(book="notes"))


# ---- too little, and damage ----


@pytest.mark.parametrize("words", [1, 40, 60])
def test_a_short_arm_is_refused_with_its_figures(run_dir: Path, words: int) -> None:
    (run_dir / "short.txt").write_text(prose(5, words))
    with pytest.raises(
        BadInput,
        match=r"^policy\.toml: arms\.short: too short: [\d,]+ tokens to train on and [\d,]+ held out",
    ) as e:
        go(run_dir, policy(short="short.txt", many="many.jsonl"), context=128)
    assert "129 of each are needed" in str(e.value) and "\n" not in str(e.value)


def test_a_vocabulary_that_the_text_does_not_give_is_refused(run_dir: Path) -> None:
    with pytest.raises(BadInput, match=r"tokenizer\.vocab: 60000 entries asked for, .* set vocab = \d+"):
        go(run_dir, tok=TokenizerConfig(vocab=60_000))


@pytest.mark.parametrize("data", [b"", b"{", b"{}", b'{"version": 1}', b"[" * 10**5, b"\xff"])
def test_a_damaged_manifest_is_one_line(run_dir: Path, data: bytes) -> None:
    m = go(run_dir)
    (run_dir / "data" / "manifest.json").write_bytes(data)
    with pytest.raises(BadInput, match=r"^[^\n]*manifest\.json: damaged[^\n]*$"):
        load_manifest(run_dir)
    (run_dir / "data" / "manifest.json").unlink()
    with pytest.raises(BadInput, match=r"manifest\.json: missing"):
        load_manifest(run_dir)
    (run_dir / "data" / "tokenizer.json").write_bytes(b"{}")
    with pytest.raises(BadInput, match=r"tokenizer\.json: altered"):
        load_tokenizer(run_dir, m)


def test_verify_names_every_damaged_arm_and_the_pivot(run_dir: Path) -> None:
    m = go(run_dir)
    token_path(run_dir, "book", "train").unlink()
    path = token_path(run_dir, "many", "heldout")
    path.write_bytes(path.read_bytes()[:-2])
    with pytest.raises(
        BadInput, match=r"book \(train part missing\), many \(heldout part has .*andrea-tui pivot"
    ):
        verify(run_dir, m)
    verify(run_dir, m, arms=["notes"])
    with pytest.raises(BadInput, match="book"):
        go(run_dir)
    assert go(run_dir, policy(notes="notes")) == m


def test_a_flipped_bit_is_found_by_the_full_check(run_dir: Path) -> None:
    m = go(run_dir)
    path = token_path(run_dir, "notes", "train")
    data = bytearray(path.read_bytes())
    data[100] ^= 1
    path.write_bytes(data)
    verify(run_dir, m)
    with pytest.raises(BadInput, match=r"notes \(train part altered\)"):
        verify(run_dir, m, full=True)


def test_bytes_need_no_training(run_dir: Path) -> None:
    m = go(run_dir, tok=TokenizerConfig(kind="bytes", vocab=257))
    assert (m.tokenizer_kind, m.tokenizer_vocab) == ("bytes", 257)
    assert m.arms["book"].train.bytes + m.arms["book"].train.documents == m.arms["book"].train.tokens
    assert load_tokenizer(run_dir, m).vocab == 257


def test_the_sample_is_spread_over_an_arm() -> None:
    thinned = sample.Thinned(1000)
    for i in range(10_000):
        thinned.add(f"{i:010}")
    assert 500 <= sum(map(len, thinned.kept)) <= 1000
    gaps = np.diff([int(t) for t in thinned.kept])
    assert len(set(gaps)) == 1 and int(thinned.kept[-1]) > 9800
