"""Which row comes at which pull: a pure function, frozen by golden values."""

import hashlib
import time
from pathlib import Path

import numpy as np
import pytest

from engine.data.manifest import VERSION, ArmData, Manifest, Part, token_path
from engine.data.rows import Rows, permutation, unigram_nats
from engine.errors import BadInput

CONTEXT = 8


def make(run_dir: Path, **tokens: int) -> Manifest:
    """Arms whose n-th training token is n % 60000 and whose held-out tokens count from 100."""
    (run_dir / "data" / "arms").mkdir(parents=True, exist_ok=True)
    arms = {}
    for arm, n in tokens.items():
        train, held = np.arange(n, dtype="<u2") % 60000, np.arange(100, 100 + n // 10, dtype="<u2")
        parts = []
        for name, ids in (("train", train), ("heldout", held)):
            token_path(run_dir, arm, name).write_bytes(ids.tobytes())
            parts.append(Part(tokens=len(ids), bytes=len(ids), documents=1, sha256=""))
        arms[arm] = ArmData(source="path:x", content_sha256="", train=parts[0], heldout=parts[1], skipped={})
    return Manifest(
        version=VERSION, tokenizer_kind="bpe", tokenizer_vocab=60000, tokenizer_sha256="", arms=arms
    )


def test_every_epoch_reads_every_row_once_in_another_order(tmp_path: Path) -> None:
    rows = Rows(tmp_path, make(tmp_path, a=1000), CONTEXT, 1)
    n = rows.n_rows("a")
    assert n == 124
    orders = []
    for epoch in range(3):
        got = [rows.row("a", epoch * n + i) for i in range(n)]
        assert all(r.shape == (CONTEXT + 1,) and r.dtype == np.int64 for r in got)
        assert all((np.diff(r) == 1).all() for r in got)
        orders.append([int(r[0]) for r in got])
        assert sorted(orders[-1]) == [i * CONTEXT for i in range(n)]
    assert orders[0] != orders[1] != orders[2]
    assert [rows.epoch("a", p) for p in (0, n - 1, n, 3 * n - 1)] == [0, 0, 1, 2]


@pytest.mark.parametrize(("tokens", "n"), [(9, 1), (16, 1), (17, 2), (24, 2), (25, 3)])
def test_the_last_row_fits(tmp_path: Path, tokens: int, n: int) -> None:
    rows = Rows(tmp_path, make(tmp_path, a=tokens), CONTEXT, 1)
    assert rows.n_rows("a") == n
    assert max(int(rows.row("a", i)[-1]) for i in range(n)) == n * CONTEXT <= tokens - 1


def test_arms_do_not_know_of_each_other_and_seeds_differ(tmp_path: Path) -> None:
    alone = Rows(tmp_path, make(tmp_path, a=1000), CONTEXT, 1)
    both = Rows(tmp_path, make(tmp_path, a=1000, b=1000), CONTEXT, 1)
    other = Rows(tmp_path, make(tmp_path, a=1000), CONTEXT, 2)
    pulls = range(300)
    first = [alone.row("a", p).tolist() for p in pulls]
    mixed = [(both.row("b", p).tolist(), both.row("a", p).tolist()) for p in pulls]
    assert [a for _, a in mixed] == first
    assert [b for b, _ in mixed] != first
    assert [other.row("a", p).tolist() for p in pulls] != first
    assert both.row("a", 7).tolist() == first[7]  # going back changes nothing


def test_the_order_is_frozen() -> None:
    """A run must read on in the same order after any upgrade: these values may never change."""
    assert permutation(1, "repo-docs", 0, 10).tolist() == GOLDEN_10
    assert hashlib.sha256(permutation(2**62, "chat", 3, 100_000).tobytes()).hexdigest() == GOLDEN_100K


GOLDEN_10 = [4, 9, 3, 2, 5, 8, 6, 1, 0, 7]
GOLDEN_100K = "4cdf8b63ddbdee859c20b2d9bf104b2f9fd314dc82099b76b87f1966299ad625"


def test_a_far_pull_is_found_at_once(tmp_path: Path) -> None:
    rows = Rows(tmp_path, make(tmp_path, a=1_000_000), CONTEXT, 1)
    start = time.monotonic()
    row = rows.row("a", 10**9)
    assert time.monotonic() - start < 1
    assert (np.diff(row) % 60000 == 1).all()


def test_heldout_rows_are_fixed_and_evenly_spaced(tmp_path: Path) -> None:
    rows = Rows(tmp_path, make(tmp_path, a=1000), CONTEXT, 1)  # 100 held-out tokens: 12 rows
    assert rows.heldout_rows("a", 3)[:, 0].tolist() == [100, 100 + 4 * CONTEXT, 100 + 8 * CONTEXT]
    assert rows.heldout_rows("a", 99).shape == (12, CONTEXT + 1)
    assert rows.heldout_rows("a", 1).tolist() == [list(range(100, 109))]
    assert (
        rows.heldout_rows("a", 5).tolist()
        == Rows(tmp_path, make(tmp_path, a=1000), CONTEXT, 9).heldout_rows("a", 5).tolist()
    )


def test_the_unigram_model(tmp_path: Path) -> None:
    rows = Rows(tmp_path, make(tmp_path, a=90), CONTEXT, 1)
    counts = rows.train_counts("a")
    assert counts.sum() == 90 and counts[:90].tolist() == [1] * 90 and counts.shape == (60000,)
    assert unigram_nats(np.array([3, 0]), np.array([[0, 0, 1]])) == pytest.approx(
        -np.log([4 / 5, 1 / 5]).mean()
    )


def test_damage_is_one_line(tmp_path: Path) -> None:
    m = make(tmp_path, a=1000)
    token_path(tmp_path, "a", "train").write_bytes(b"\0" * 1998)
    with pytest.raises(BadInput, match=r"a\.train\.u16: 1,998 bytes, the manifest says 2,000"):
        Rows(tmp_path, m, CONTEXT, 1).row("a", 0)
    token_path(tmp_path, "a", "train").unlink()
    with pytest.raises(BadInput, match="can't be read"):
        Rows(tmp_path, m, CONTEXT, 1).row("a", 0)
    with pytest.raises(BadInput, match="no data of arm b"):
        Rows(tmp_path, m, CONTEXT, 1).row("b", 0)
