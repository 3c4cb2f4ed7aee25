"""The longest verbatim copy: the same as by brute force, whatever the text, and never from a stale index."""

import hashlib
import random
import time
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from engine.data import copies as copies_module
from engine.data import keys as keys_module
from engine.data.copies import LEAST, Copies, Copy
from engine.data.manifest import VERSION, ArmData, Manifest, Part, token_path
from engine.errors import StopRequested


def no_tick(what: str, fraction: float) -> None:
    pass


def make(run_dir: Path, **arms: list[int]) -> Manifest:
    """A run directory's token files with these training tokens."""
    (run_dir / "data" / "arms").mkdir(parents=True, exist_ok=True)
    found = {}
    for arm, ids in arms.items():
        data = np.array(ids, "<u2").tobytes()
        token_path(run_dir, arm, "train").write_bytes(data)
        part = Part(tokens=len(ids), bytes=len(ids), documents=1, sha256=hashlib.sha256(data).hexdigest())
        found[arm] = ArmData(source="path:x", content_sha256="", train=part, heldout=part, skipped={})
    return Manifest(
        version=VERSION, tokenizer_kind="bpe", tokenizer_vocab=60000, tokenizer_sha256="", arms=found
    )


def open_copies(run_dir: Path, m: Manifest) -> Copies:
    return Copies(run_dir, m, list(m.arms), no_tick)


def brute(text: list[int], train: list[int]) -> int:
    """Longest common stretch without a 0, by dynamic programming."""
    a, b = np.array(text), np.array(train)
    best, row = 0, np.zeros(len(b) + 1, np.int64)
    for x in a:
        row = np.append(0, np.where((b == x) & (x != 0), row[:-1] + 1, 0))
        best = max(best, int(row.max()))
    return best if best >= LEAST else 0


def planted(rng: random.Random) -> tuple[list[int], list[int]]:
    """A text and training tokens of few different ids, in pieces, with stretches of one put into the other."""
    ids = rng.choice([2, 3, 10, 1000])
    train = [rng.randint(1, ids) for _ in range(rng.randint(1, 900))]
    for i in range(0, len(train), rng.randint(20, 300)):
        train[i] = 0
    text = [rng.randint(1, ids) for _ in range(rng.randint(0, 90))]
    for _ in range(rng.randint(0, 4)):
        start, n = rng.randrange(len(train)), rng.randint(1, 60)
        at = rng.randint(0, len(text))
        text[at:at] = train[start : start + n]
    return text, train


def test_the_same_as_by_brute_force(tmp_path: Path) -> None:
    lengths = set()
    for seed in range(150):
        rng = random.Random(seed)
        text, train = planted(rng)
        copy = open_copies(tmp_path, make(tmp_path, a=train)).longest(text)
        assert copy.tokens == brute(text, train), seed
        if copy.tokens:
            part = text[copy.start_in_text :][: copy.tokens]
            assert copy.arm == "a" and brute(part, train) == copy.tokens
        lengths.add(copy.tokens)
    assert 0 in lengths and LEAST in lengths and len(lengths) > 30


@pytest.mark.parametrize("length", [14, 15, 16, 23, 24, 100])
@pytest.mark.parametrize("offset", range(9))
def test_copies_from_the_least_length_on_are_found_wherever_they_lie(
    tmp_path: Path, length: int, offset: int
) -> None:
    train = list(range(1, 40 + offset)) + list(range(1000, 1000 + length)) + list(range(50, 60))
    text = [9999, *range(1000, 1000 + length), 9999]
    copy = open_copies(tmp_path, make(tmp_path, a=train)).longest(text)
    assert copy == (Copy(length, "a", 1) if length >= LEAST else Copy(0, "", 0))


def test_the_longest_of_all_arms(tmp_path: Path) -> None:
    m = make(tmp_path, a=list(range(1, 50)), b=list(range(20, 90)), c=list(range(60, 80)))
    found = open_copies(tmp_path, m)
    assert found.longest(list(range(10, 80))) == Copy(60, "b", 10)
    assert found.longest(list(range(1, 45))) == Copy(44, "a", 0)
    assert found.longest([]) == found.longest([5]) == found.longest([7, 9] * 50) == Copy(0, "", 0)
    assert Copies(tmp_path, m, ["a"], no_tick).longest(list(range(10, 80))) == Copy(40, "a", 0)


def test_a_separator_ends_a_copy(tmp_path: Path) -> None:
    train = [*range(1, 21), 0, *range(21, 41)]
    found = open_copies(tmp_path, make(tmp_path, a=train))
    assert found.longest(train) == Copy(20, "a", 0)
    assert found.longest([0] * 100) == Copy(0, "", 0)
    assert found.longest(list(range(1, 41))).tokens == 20


def test_colliding_hashes_never_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copies_module, "MULTIPLIERS", np.zeros(8, np.uint64))
    rng = random.Random(1)
    train = [rng.randint(1, 500) for _ in range(2000)]
    found = open_copies(tmp_path, make(tmp_path, a=train))
    assert found.longest([rng.randint(501, 900) for _ in range(100)]) == Copy(0, "", 0)
    assert found.longest([*range(600, 650), *train[777:807], 600]) == Copy(30, "a", 50)


SPACES = [5] * 1_000_000
RULERS = ([5] * 80 + [7, 9]) * 12_000
STRETCHES = [x for i in range(60_000) for x in ([5] * 9 + [1000 + i % 5000, 7, 8 + i % 100])]
DEGENERATE = {
    "nothing but spaces in both": (SPACES, [5] * 2000, 2000),
    "rulers that are shorter than the text": (RULERS, [5] * 256, 80),
    "two ids in turn": ([3, 4] * 300_000, [4, 3] * 500, 1000),
    "short stretches everywhere": (STRETCHES, [5] * 500, 0),
    "short stretches and their neighbours": (STRETCHES, ([5] * 9 + [1001, 7, 9]) * 50, 21),
    "an end that none of them has": (RULERS, [5] * 80 + [8] + [5] * 80 + [7], 81),
}


@pytest.mark.parametrize("case", DEGENERATE)
def test_degenerate_texts_cost_little(tmp_path: Path, case: str) -> None:
    train, text, length = DEGENERATE[case]
    found = open_copies(tmp_path, make(tmp_path, a=train))
    tracemalloc.start()
    start = time.process_time()
    longest = found.longest(text).tokens
    took, peak = time.process_time() - start, tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert longest == length
    assert took < 5  # seconds; less than one on an idle machine
    assert peak < 200e6  # bytes


def test_an_index_is_made_once_and_again_when_it_is_stale(tmp_path: Path) -> None:
    m = make(tmp_path, a=list(range(1, 100)))
    path = tmp_path / "data" / "arms" / "a.grams"
    open_copies(tmp_path, m)
    first, inode = path.read_bytes(), path.stat().st_ino
    assert open_copies(tmp_path, m).longest(list(range(30, 60))).tokens == 30
    assert path.stat().st_ino == inode

    m2 = make(tmp_path, a=list(range(100, 300)))  # other text under the same name
    assert open_copies(tmp_path, m2).longest(list(range(150, 180))).tokens == 30
    assert path.read_bytes() != first

    m = make(tmp_path, a=list(range(1, 100)))
    for damage in (first[:-8], first[:100], b"", first.replace(b'"version":1', b'"version":9'), b"x" * 600):
        path.write_bytes(damage)
        assert open_copies(tmp_path, m).longest(list(range(30, 60))).tokens == 30
        assert path.read_bytes() == first


def test_a_build_that_is_stopped_leaves_nothing(tmp_path: Path) -> None:
    m = make(tmp_path, a=list(range(1, 5000)))

    def stop(what: str, fraction: float) -> None:
        assert what == "indexing a" and 0 <= fraction <= 1
        raise StopRequested(what)

    with pytest.raises(StopRequested):
        Copies(tmp_path, m, ["a"], stop)
    assert sorted(p.name for p in (tmp_path / "data" / "arms").iterdir()) == ["a.train.u16"]
    (tmp_path / "data" / "arms" / "a.grams.part").write_bytes(b"left by a crash")
    assert open_copies(tmp_path, m).longest(list(range(30, 60))).tokens == 30
    assert not (tmp_path / "data" / "arms" / "a.grams.part").exists()


def test_an_index_larger_than_memory_is_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(3)
    m = make(tmp_path, a=[rng.choice([1, 2, 3, 50, 60]) for _ in range(60_000)], b=[7] * 30_000)
    open_copies(tmp_path, m)
    paths = [tmp_path / "data" / "arms" / f"{arm}.grams" for arm in "ab"]
    whole = [p.read_bytes() for p in paths]
    for path in paths:
        path.unlink()
    monkeypatch.setattr(copies_module, "CHUNK", 300)
    monkeypatch.setattr(keys_module, "RUN", 512)
    monkeypatch.setattr(keys_module, "SAMPLED", 16)
    open_copies(tmp_path, m)
    assert [p.read_bytes() for p in paths] == whole
