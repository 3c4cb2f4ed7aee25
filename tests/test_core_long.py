"""A history that is read newest first equals the one that is read from its start, whatever happens meanwhile."""

import os
import random
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from andrea_tui.core import course, deep, follow, losslog, recall
from andrea_tui.core.baseline import Levels
from andrea_tui.core.course import Course
from andrea_tui.core.deep import BLOCK, DeepHistory
from andrea_tui.core.ema import Ema, fold
from andrea_tui.core.health import Health
from andrea_tui.core.homes import cache_home
from andrea_tui.core.losslog import LossLog
from andrea_tui.core.recall import Place, Recall
from engine.rundir import lines as engine_lines
from engine.rundir.history import History, read_history
from engine.rundir.records import LossLine, encode

KEEP = 40  # for histories of some hundred lines


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follow, "PIECE", 1000)
    monkeypatch.setattr(follow, "TAIL", 700)
    monkeypatch.setattr(losslog, "_CHUNK", 300)
    for module in (follow, engine_lines):
        monkeypatch.setattr(module, "MAX_LINE", 600)
    for module in (deep, losslog):
        monkeypatch.setattr(module, "KEEP", KEEP)
    monkeypatch.setattr(recall, "LEAST", 1)
    monkeypatch.setattr(recall, "GROWN", 0.0)


def line(rng: random.Random, step: int, seg: int = 0) -> bytes:
    arms = rng.sample("abcd", rng.randint(1, 3))
    x = LossLine(
        step=step, phase=step // 50, loss=rng.choice([None, 2.5, float(np.float32(rng.random()))]), lr=rng.random(),
        gnorm=1.5, seg=seg, t=rng.random(), dt=0.25, rows={a: rng.randint(1, 5) for a in arms},
        rloss={a: rng.choice([None, float(np.float32(rng.random()))]) for a in arms},
        bpb={"a": rng.random()} if rng.random() < 0.1 else None, scale=float(step) if step % 7 == 0 else None,
        skipped="nonfinite" if rng.random() < 0.05 else None,
    )  # fmt: skip
    return encode(x)


DAMAGE = (
    b"",
    b"   ",
    b"\0" * 70,
    b"garbage",
    b'{"step":5,"lo',
    b"x" * 700,
    b"\0" * 5000,
    b'{"step":3}',
    b"{}{}",
    b"[",
)


def some_log(rng: random.Random, start: int, segments: int) -> bytes:
    """Segments that go back to a step before the end, with damage between the lines; goes on after step `start`."""
    out, last = [], start
    for seg in range(segments):
        back = rng.choice([0, 0, rng.randint(0, 12), rng.randint(0, max(last, 1))])
        first = max(1, last - back + rng.choice([1, 1, 1, 3]))  # or with a gap
        last = first + rng.randint(0, 60)
        for step in range(first, last + 1):
            out.append(line(rng, step, seg))
            if rng.random() < 0.04:
                out.append(rng.choice(DAMAGE) + b"\n")
    return b"".join(out)


def same(mine: DeepHistory, whole: History) -> None:
    for a, b in zip(mine.columns(), whole.columns(), strict=True):
        assert np.array_equal(a.values, b.values, equal_nan=True)
    assert (mine.bpb, mine.skipped, mine._rare) == (whole.bpb, whole.skipped, whole._rare)
    drawn = [a for a in whole.arms if whole.rows(a).any()]
    assert {a for a in mine.arms if mine.drawn(a, len(mine))} == set(drawn)
    assert len(mine) - mine.kept >= min(len(mine), KEEP // 2)
    for arm in drawn:
        assert mine.drawn(arm, len(mine)) == whole.drawn(arm, len(whole))
        assert len(mine.rows(arm)) == len(mine.rloss(arm)) == len(whole)
        assert np.array_equal(mine.rows(arm)[mine.kept :], whole.rows(arm)[mine.kept :])
        assert np.array_equal(mine.rloss(arm)[mine.kept :], whole.rloss(arm)[mine.kept :], equal_nan=True)


class Rig:
    """Reads a file as the feed does, and applies what comes as the store does."""

    def __init__(self, path: Path) -> None:
        self.path, self.log, self.course = path, LossLog(path), Course()
        self.recalled = False

    def recall(self) -> None:
        """Before the first look, as the feed does."""
        history = self.log.recall(Recall(self.path.parent))
        if history is not None:
            self.recalled = True
            self.course.adopt(history)

    def keep(self, recall: Recall) -> None:
        recall.save(self.course.history, self.log.place)
        recall.close()

    def leave(self) -> "Rig":
        """Keep what was read, if all was, and begin again."""
        self.keep(Recall(self.path.parent))
        self.log.close()
        rig = Rig(self.path)
        rig.recall()
        return rig

    def look(self) -> bool:
        """Whether there was anything new."""
        lines, fresh = self.log.look()
        if fresh:
            self.course = Course()
        self.course.extend(lines)
        return fresh or bool(lines)

    def older(self) -> None:
        if self.log.behind:
            self.course.prepend(self.log.older())

    def read(self) -> Course:
        """Until two looks in a row bring nothing: the last bytes of a file that was replaced may hold no line."""
        quiet = 0
        while quiet < 2:
            quiet = 0 if self.look() or self.log.loaded < 1.0 else quiet + 1
            self.older()
        self.course.whole()
        while self.course.work():
            pass
        return self.course

    def finish(self) -> Course:
        self.read()
        self.log.close()
        return self.course

    def check(self) -> None:
        c = self.finish()
        whole, bad = read_history(self.path)
        same(c.history, whole)
        assert self.log.bad >= bad  # of the files before as well
        ema = fold(whole.loss)
        assert np.array_equal(c.ema.values, ema, equal_nan=True)
        assert c.settled
        known = ema[np.isfinite(ema)]
        assert c.best == ((float(known.min()), int(whole.step[np.nanargmin(ema)])) if len(known) else None)
        assert c.lost == int(np.isnan(whole.loss).sum())
        change = np.flatnonzero(whole.phase[1:] != whole.phase[:-1])
        assert c.phases == whole.step[change].tolist()


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(0, 2**32), st.integers(0, 8), st.integers(1, 3000), st.booleans())
@example(1048, 2, 665, False)  # a first line of step 2, then one of step 1 with another arm
def test_backwards_it_is_the_same_history(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int, segments: int, piece: int, torn: bool
) -> None:
    monkeypatch.setattr(follow, "PIECE", piece)
    path = tmp_path / ".loss.json"
    data = some_log(random.Random(seed), 0, segments)
    path.write_bytes(data[: -3 if torn else len(data)])
    rig = Rig(path)
    rig.check()
    whole, bad = read_history(path)
    assert rig.log.bad == bad
    first = {a: int(np.flatnonzero(whole.rows(a))[0]) for a in rig.course.history.arms}
    assert list(first.values()) == sorted(first.values())


ACTS = st.sampled_from(
    ["older", "older", "look", "append", "append", "torn", "back", "replace", "cut", "leave"]
)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(0, 2**32), st.lists(ACTS, max_size=25))
@example(7, [*["older"] * 30, "leave", "append", "look", "back", "look", "leave", "torn", "leave", "append"])
@example(569, ["replace", "append", "look", "torn", "append", "replace"])
def test_whatever_happens_to_the_file_while_it_is_read(tmp_path: Path, seed: int, acts: list[str]) -> None:
    rng, path = random.Random(seed), tmp_path / ".loss.json"
    path.write_bytes(some_log(rng, 0, 6))
    rig = Rig(path)
    rig.look()
    for act in acts:
        last = max(1, rig.course.history.last)
        if act in ("older", "look"):
            getattr(rig, act)()
        elif act == "leave":
            rig = rig.leave()
        elif act == "replace":
            (tmp_path / "new").write_bytes(some_log(rng, 0, rng.randint(0, 5)))
            (tmp_path / "new").rename(path)
        elif act == "cut":
            rig.look()  # a cut is only seen by the size
            os.truncate(path, rng.randint(0, max(0, path.stat().st_size - 1)))
            rig.look()
        else:
            step = rng.randint(1, last) if act == "back" else last
            data = some_log(rng, step, 1) if act != "torn" else line(rng, last + 1)[:-20]
            with path.open("ab") as f:
                f.write((b"" if act == "torn" else b"\n") + data)
    rig.check()


def write(path: Path, n: int) -> None:
    rng = random.Random(3)
    path.write_bytes(b"".join(line(rng, i) for i in range(1, n + 1)))


def test_the_newest_comes_first_and_a_part_says_so(tmp_path: Path) -> None:
    write(tmp_path / ".loss.json", 600)
    rig = Rig(tmp_path / ".loss.json")
    rig.look()
    h = rig.course.history
    assert h.last == 600
    assert 0 < len(h) < 20
    ends = []
    while rig.log.behind:
        rig.older()
        ends.append(int(h.step[0]))
        assert rig.log.loaded < 1.0 or not rig.log.behind
        assert not rig.course.settled
        assert rig.course.best is None
        assert len(rig.course.ema.values) == len(h)
    assert ends == sorted(ends, reverse=True)
    assert ends[-1] == 1
    rig.check()


def test_prepending_does_not_copy_what_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    moved: list[int] = []
    move = deep.DeepColumn.move

    def counting(self: deep.DeepColumn, front: int, back: int) -> None:
        moved.append(len(self.values))
        move(self, front, back)

    monkeypatch.setattr(deep.DeepColumn, "move", counting)
    write(tmp_path / ".loss.json", 3000)
    rig = Rig(tmp_path / ".loss.json")
    rig.check()
    columns = len(rig.course.history.columns()) + 2 * 4 + 1
    assert len(moved) <= 3 * columns
    assert sum(moved) < 3000


def test_a_rollback_beyond_what_is_kept_reads_the_rows_again(tmp_path: Path) -> None:
    path = tmp_path / ".loss.json"
    write(path, 500)
    rig = Rig(path)
    for _ in range(200):
        rig.look()
        rig.older()
    assert rig.course.history.kept == 500 - KEEP
    with path.open("ab") as f:
        f.write(line(random.Random(0), 300))
    rig.check()
    assert rig.course.history.last == 300
    assert rig.course.history.kept <= 300 - KEEP


def test_a_run_that_grows_lets_old_rows_go(tmp_path: Path) -> None:
    rng, h, whole = random.Random(1), DeepHistory(), History()
    decoder = engine_lines.LineDecoder(LossLine)
    for i in range(1, 1001):
        new = decoder.feed(line(rng, i))
        h.extend(new)
        whole.extend(new)
        assert len(h) - h.kept <= 2 * KEEP
    same(h, whole)
    with pytest.raises(ValueError, match="not kept"):
        h.drawn("a", 10)


def pair(n: int, gap: int = 0) -> tuple[DeepHistory, History]:
    """The same history, read backwards and whole."""
    rng, new = np.random.default_rng(0), []
    for i in range(1, n + 1):
        if i > 200 or i <= 200 - gap:
            loss = float(np.float32(3 - i / n + rng.normal(0, 0.1) + (i > n - 300) * 1.5))
            new.append(LossLine(step=i, loss=loss, gnorm=1.0, t=float(i), rows={"a": 3, "b": 1 + i % 2},
                                rloss={"a": loss, "b": loss + 1.0}))  # fmt: skip
    whole, h = History(), DeepHistory()
    whole.extend(new)
    h.extend(new[-30:])
    for end in range(len(new) - 30, 0, -70):
        part = History()
        part.extend(new[max(0, end - 70) : end])
        h.prepend(part)
    return h, whole


def test_levels_and_findings_are_those_of_the_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deep, "KEEP", 700)
    h, whole = pair(8_000)
    mine, full = Levels(), Levels()
    mine.follow(h)
    full.follow(whole)
    at = np.arange(full.blocks)
    for arm in "ab":
        assert np.array_equal(mine.rows(arm, at, at + 1), full.rows(arm, at, at + 1))
        assert np.allclose(mine.sums(arm, at, at + 1), full.sums(arm, at, at + 1), rtol=1e-9)
    found = Health().find(h)
    assert [f.kind for f in found] == ["divergence"]
    assert found == Health().find(whole)


def test_levels_with_a_gap_in_what_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deep, "KEEP", 700)
    h, whole = pair(4_000, gap=37)
    mine, full = Levels(), Levels()
    mine.follow(h)
    full.follow(whole)
    assert mine.blocks == full.blocks == (4_000 - 37) // BLOCK
    at = np.arange(full.blocks)
    off = np.cumsum(mine.rows("a", at, at + 1) - full.rows("a", at, at + 1))
    assert np.abs(off).max() < BLOCK * 3  # a block's, where the gap is and where the kept rows begin
    assert abs(off[-1]) < 1e-6
    assert np.isclose(mine.mean("a", at[:1], at[-1:])[0], full.mean("a", at[:1], at[-1:])[0], rtol=1e-2)


def test_the_fold_is_done_in_slices_and_keys_have_their_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(course, "SLICE", 1000)
    c = Course()
    _, whole = pair(5_000)
    c.prepend(whole)
    c.whole()
    folded = [c.ema.folded]
    while c.work():
        folded.append(c.ema.folded)
        if len(folded) == 3:  # meanwhile the run goes on, and takes a step back
            c.extend(
                [
                    LossLine(step=4_999, loss=1.0),
                    LossLine(step=5_000, loss=2.0),
                    LossLine(step=5_001, loss=9.0),
                ]
            )
    assert np.diff(folded).max() <= 1000
    assert np.array_equal(c.ema.values, fold(c.history.loss))
    c.smooth(0.5)
    assert not c.settled
    assert c.best is None
    while c.work():
        pass
    assert np.array_equal(c.ema.values, fold(c.history.loss, 0.5))
    assert c.best == (float(c.ema.values.min()), int(c.history.step[c.ema.values.argmin()]))


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**32), st.lists(st.sampled_from(["work", "extend", "cut", "smooth"]), max_size=30))
def test_any_order_of_folding_growing_and_cutting(seed: int, acts: list[str]) -> None:
    rng = np.random.default_rng(seed)
    loss, decay, e = rng.normal(3, 1, 9000).astype(np.float32), 0.99, Ema()
    loss[rng.random(9000) < 0.1] = np.nan
    e.prepend(loss, len(loss))
    e.refold()
    for act in acts:
        if act == "work":
            e.work(loss, 3000)
        elif act == "smooth":
            decay = float(rng.random())
            e.refold(decay)
        else:
            first = len(loss) if act == "extend" else int(rng.integers(0, len(loss)))
            loss = np.append(loss[:first], rng.normal(3, 1, 1 + rng.integers(0, 3000)).astype(np.float32))
            e.extend(loss, first)
        assert len(e.values) == len(loss)
    while e.work(loss, 5000):
        pass
    assert np.array_equal(e.values, fold(loss, decay), equal_nan=True)


# ---- what an earlier look read


@pytest.fixture
def kept(tmp_path: Path) -> Path:
    """The file in which a log of 600 steps is kept, the log being there."""
    write(tmp_path / ".loss.json", 600)
    rig = Rig(tmp_path / ".loss.json")
    rig.read()
    rig = rig.leave()
    assert rig.recalled
    rig.log.close()
    (path,) = (
        p for p in cache_home().iterdir() if p.stat().st_mtime >= (tmp_path / ".loss.json").stat().st_mtime
    )
    return path


def again(tmp_path: Path) -> Rig:
    rig = Rig(tmp_path / ".loss.json")
    rig.recall()
    return rig


def test_the_next_attach_reads_only_what_is_new(tmp_path: Path, kept: Path) -> None:
    path = tmp_path / ".loss.json"
    rig = again(tmp_path)
    assert rig.log.look() == ([], False)
    assert rig.log.loaded == 1.0
    assert not rig.log.behind
    rng = random.Random(5)
    with path.open("ab") as f:
        f.write(line(rng, 601) + line(rng, 598, 1) + line(rng, 599, 1)[:-9])
    lines, fresh = rig.log.look()
    assert [x.step for x in lines] == [601, 598]
    assert not fresh
    rig.course.extend(lines)
    rig.read()
    rig = rig.leave()  # with half a line behind what is kept
    assert rig.recalled
    with path.open("ab") as f:
        f.write(b"\n" + line(rng, 600, 1))
    rig.check()


def test_a_log_that_went_back_far_is_read_again(tmp_path: Path, kept: Path) -> None:
    rig = again(tmp_path)
    with (tmp_path / ".loss.json").open("ab") as f:
        f.write(line(random.Random(0), 300))
    rig.check()
    assert rig.course.history.last == 300
    assert rig.course.history.kept <= 300 - KEEP


def _flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 3] ^= 1
    path.write_bytes(data)


def _cut(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


@pytest.mark.parametrize(
    "damage", [_flip, _cut, Path.unlink, lambda p: p.write_bytes(b""), lambda p: p.chmod(0)]
)
def test_a_damaged_cache_is_no_cache(tmp_path: Path, kept: Path, damage: Callable[[Path], None]) -> None:
    damage(kept)
    rig = again(tmp_path)
    assert rig.recalled == (kept.exists() and kept.stat().st_mode & 0o777 == 0 and os.geteuid() == 0)
    rig.check()


def test_of_another_format_neither(tmp_path: Path, kept: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recall, "FORMAT", 2)
    assert not again(tmp_path).recalled


@pytest.mark.parametrize("trusting", [False, True])
def test_another_text_in_the_same_file_is_noticed(
    tmp_path: Path, kept: Path, monkeypatch: pytest.MonkeyPatch, trusting: bool
) -> None:
    """`trusting`, the control: without a look at the bytes the chart would be that of another run."""
    path = tmp_path / ".loss.json"
    inode, size = path.stat().st_ino, path.stat().st_size
    path.write_bytes(b"".join(line(random.Random(4), i) for i in range(1, 601)).ljust(size))
    assert path.stat().st_ino == inode
    if trusting:
        kept_at = Recall(tmp_path).load()
        assert kept_at is not None
        at = Place(kept_at.kept.device, inode, kept_at.kept.offset, b"", b"")
        monkeypatch.setattr(recall.Found, "place", lambda self, fd: at)
    rig = again(tmp_path)
    assert rig.recalled == trusting
    loss = rig.finish().history.loss
    assert np.array_equal(loss, read_history(path)[0].loss, equal_nan=True) != trusting


def test_a_log_that_was_replaced_is_another_one(tmp_path: Path, kept: Path) -> None:
    path = tmp_path / ".loss.json"
    (tmp_path / "new").write_bytes(path.read_bytes())
    (tmp_path / "new").rename(path)
    assert not again(tmp_path).recalled


def test_nothing_is_kept_of_a_part(tmp_path: Path) -> None:
    write(tmp_path / ".loss.json", 600)
    rig = Rig(tmp_path / ".loss.json")
    rig.look()
    assert rig.log.behind
    assert not rig.leave().recalled


def test_a_short_or_hardly_longer_log_is_not_written_again(
    tmp_path: Path, kept: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = kept.stat().st_mtime_ns
    monkeypatch.setattr(recall, "GROWN", 0.5)
    mine, rig = Recall(tmp_path), Rig(tmp_path / ".loss.json")
    history = rig.log.recall(mine)
    assert history is not None
    rig.course.adopt(history)
    rig.keep(mine)
    assert kept.stat().st_mtime_ns == before
    monkeypatch.setattr(recall, "LEAST", 10**9)
    rig.keep(Recall(tmp_path))
    assert kept.stat().st_mtime_ns == before
    monkeypatch.setattr(recall, "LEAST", 1)
    rig.keep(Recall(tmp_path))
    assert kept.stat().st_mtime_ns > before


def test_a_cache_that_was_not_believed_is_made_anew(
    tmp_path: Path, kept: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recall, "GROWN", 0.5)
    path = tmp_path / ".loss.json"
    (tmp_path / "new").write_bytes(path.read_bytes())
    (tmp_path / "new").rename(path)
    mine, rig = Recall(tmp_path), Rig(path)
    assert rig.log.recall(mine) is None
    rig.read()
    rig.keep(mine)
    assert again(tmp_path).recalled


def test_where_nothing_can_be_kept_it_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / ".loss.json", 600)
    rig = Rig(tmp_path / ".loss.json")
    rig.read()
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    mine = Recall(tmp_path)
    assert mine.load() is None
    rig.keep(mine)
    assert mine.problem == "the history is read anew at the next attach: Not a directory"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", "")
    mine = Recall(tmp_path)
    assert mine.load() is None
    rig.keep(mine)
    assert mine.problem.endswith("no home directory is set")


def test_a_slow_home_holds_nobody_up(tmp_path: Path, kept: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is written meanwhile is not kept, if the history was written over: the control of that is without `cuts`."""
    rig, before = again(tmp_path), kept.stat().st_mtime_ns
    going, on = threading.Event(), threading.Event()
    savez = np.savez

    def slow(*args: Any, **arrays: Any) -> None:
        going.set()
        assert on.wait(60)
        savez(*args, **arrays)

    monkeypatch.setattr(np, "savez", slow)
    mine = Recall(tmp_path)
    mine.save(rig.course.history, rig.log.place)
    assert going.wait(60)
    rig.course.extend([LossLine(step=590, loss=9.0)])  # not in the log: as if it came while it is written
    on.set()
    mine.close()
    assert kept.stat().st_mtime_ns == before
    assert list(kept.parent.glob("*.part")) == []
    assert again(tmp_path).finish().history.last == 600


def test_a_damaged_log_is_not_kept(tmp_path: Path) -> None:
    """It may be mended in its middle, by a copy that leaves size, begin and end as they are."""
    path = tmp_path / ".loss.json"
    write(path, 600)
    whole = path.read_bytes()
    at = len(whole) // 2
    path.write_bytes(whole[:at] + b"\0" + whole[at + 1 :])
    rig = Rig(path)
    assert rig.read().history.missing == 1
    rig = rig.leave()
    assert not rig.recalled
    path.write_bytes(whole)
    rig.check()


def test_another_text_in_the_file_while_it_is_followed_is_not_kept(tmp_path: Path) -> None:
    path = tmp_path / ".loss.json"
    write(path, 600)
    rig = Rig(path)
    rig.read()
    path.write_bytes(b"".join(line(random.Random(4), i) for i in range(1, 601)).ljust(path.stat().st_size))
    assert not rig.leave().recalled


def test_going_back_a_little_at_every_attach_counts_every_row_once(tmp_path: Path) -> None:
    path, rng = tmp_path / ".loss.json", random.Random(2)
    write(path, 500)
    rig = Rig(path)
    for last in (490, 480, 471, 465, 459, 455):
        rig.read()
        rig = rig.leave()
        with path.open("ab") as f:
            f.write(line(rng, last))
    rig.check()


def test_no_flipped_bit_ends_the_reading(tmp_path: Path, kept: Path) -> None:
    data = kept.read_bytes()
    rng = random.Random(0)
    directory = range(len(data) - 2000, len(data))  # of the zip file: names, flags, sizes
    for at in [*rng.sample(range(len(data)), 100), *rng.sample(directory, 300)]:
        kept.write_bytes(data[:at] + bytes([data[at] ^ 1 << rng.randrange(8)]) + data[at + 1 :])
        found = Recall(tmp_path).load()
        assert found is None or len(found.history) == 600


def test_the_oldest_go_when_all_take_too_much(
    tmp_path: Path, kept: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    folder = cache_home()
    folder.mkdir(parents=True)
    for i, name in enumerate(("oldest.npz", "older.npz", "half.npz.1.part", "new.npz.2.part")):
        (folder / name).write_bytes(bytes(1000))
        os.utime(folder / name, (1000 + i, 1000 + i) if i < 3 else None)
    rig = Rig(tmp_path / ".loss.json")
    rig.read()
    size = kept.stat().st_size
    monkeypatch.setattr(recall, "_MOST", size + 2500)
    assert rig.leave().recalled
    assert {p.name for p in folder.iterdir()} == {kept.name, "older.npz", "new.npz.2.part"}
