"""The feed against real files, with nobody but the test to take its updates."""

import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from andrea_tui.core import recall
from andrea_tui.core.deep import DeepHistory
from andrea_tui.core.ema import fold
from andrea_tui.core.feed import Feed, Reader, Update
from andrea_tui.core.recall import Recall
from andrea_tui.core.store import Store
from andrea_tui.runner import Runner, TrainerState
from engine.rundir.records import LossLine, Status, encode


class Rig:
    """A feed and the store that it fills, without a screen."""

    def __init__(self, run_dir: Path, runner: Runner | None = None) -> None:
        self.store = Store(run_dir)
        self.bell = threading.Event()
        self.feed = Feed(run_dir, runner or Runner(run_dir), self.bell.set)

    def until(self, condition: Callable[[Store], bool]) -> None:
        for _ in range(400):
            self.bell.wait(0.05)
            self.bell.clear()
            for u in self.feed.take():
                self.store.apply(u)
            if condition(self.store):
                return
        raise AssertionError("nothing came")


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    r = Rig(tmp_path)
    yield r
    r.feed.close()


def write(path: Path, steps: range, seg: int = 0) -> None:
    data = b"".join(encode(LossLine(step=i, loss=2.0, seg=seg, rows={"a": 8})) for i in steps)
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.write(fd, data)
    os.close(fd)


def test_it_follows_what_is_appended_torn_and_replaced(rig: Rig, tmp_path: Path) -> None:
    rig.feed.start()
    rig.until(lambda s: s.revision > 0)
    write(tmp_path / ".loss.json", range(1, 101))
    rig.until(lambda s: s.history.last == 100)
    with (tmp_path / ".loss.json").open("ab") as f:
        f.write(b'\0\0garbage\n{"step":101,"lo')
        f.flush()
        rig.until(lambda s: s.bad == 1)
        f.write(b'ss":2.5}\n')
    rig.until(lambda s: s.history.last == 101)
    write(tmp_path / ".loss.json", range(51, 60), seg=1)
    rig.until(lambda s: s.history.last == 59)
    (tmp_path / ".status.json").write_bytes(
        encode(Status(pid=1, seg=1, step=59, max_steps=100, phase=0, doing="x"))
    )
    rig.until(lambda s: s.status is not None and s.status_moved is not None)
    (tmp_path / "trainer.log").write_bytes(b"hello \x1b[31mred\nhalf")
    rig.until(lambda s: s.log == ["hello ␛[31mred"])
    rig.until(lambda s: s.resources is not None)


def test_a_long_history_comes_in_parts_and_says_so(rig: Rig, tmp_path: Path) -> None:
    write(tmp_path / ".loss.json", range(1, 20_001))
    seen: list[tuple[int | None, int, int, float | None]] = []
    rig.feed.start()

    def done(s: Store) -> bool:
        seen.append((s.loading, len(s.history), s.history.last, s.numbers_view(0).best))
        return s.revision > 0 and s.loading is None

    rig.until(done)
    parts = [x for x in seen if x[0] is not None and x[1]]
    assert len({n for _, n, _, _ in parts}) >= 2
    assert all(last == 20_000 and best is None for _, _, last, best in parts)  # newest first
    assert seen[-1][1:] == (20_000, 20_000, rig.store.numbers_view(0).best)
    assert np.array_equal(rig.store.ema.values, fold(rig.store.history.loss))


def test_while_nobody_takes_its_update_it_reads_no_further_and_still_ends(rig: Rig, tmp_path: Path) -> None:
    write(tmp_path / ".loss.json", range(1, 50_001))
    rig.feed.start()
    assert rig.bell.wait(10)
    waiting = rig.feed._update
    assert waiting is not None
    assert len(waiting.loss) < 10_000
    time.sleep(0.5)
    assert rig.feed._update is waiting
    rig.store.apply(next(rig.feed.take()))
    assert rig.store.loading is not None
    rig.feed.close()
    assert not rig.feed._thread.is_alive()


def test_traps_are_named_and_nothing_blocks(rig: Rig, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / ".loss.json")
    (tmp_path / ".events.json").symlink_to("/etc/passwd")
    (tmp_path / ".status.json").write_bytes(b"[[[")
    (tmp_path / "config.toml").write_text("[modell]\n")
    rig.feed.start()
    rig.until(lambda s: len(s.problems) == 4)
    assert any("not a regular file" in p for p in rig.store.problems)
    (tmp_path / ".loss.json").unlink()
    write(tmp_path / ".loss.json", range(1, 4))
    rig.until(lambda s: s.history.last == 3 and len(s.problems) == 3)


def test_an_error_in_the_feed_is_shown_and_the_rest_goes_on(tmp_path: Path) -> None:
    class Broken(Runner):
        def poll(self) -> TrainerState:
            raise RuntimeError("boom \x1b[2J")

    r = Rig(tmp_path, Broken(tmp_path))
    write(tmp_path / ".loss.json", range(1, 10))
    r.feed.start()
    try:
        r.until(lambda s: s.history.last == 9 and any("boom ␛[2J" in p for p in s.problems))
        assert any("boom" in a.text for a in r.store.alerts_view(time.time()).alerts)
    finally:
        r.feed.close()


def test_nothing_new_is_no_update(tmp_path: Path) -> None:
    write(tmp_path / ".loss.json", range(1, 10))
    reader = Reader(tmp_path, Runner(tmp_path))
    first, _ = reader.look()
    assert isinstance(first, Update)
    reader._next_resources = float("inf")
    reader.look()
    assert reader.look() == (None, False)
    reader.close()


def test_at_the_next_attach_the_whole_history_is_there_at_the_first_look(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recall, "LEAST", 1)
    write(tmp_path / ".loss.json", range(1, 30_000))
    reader, store = Reader(tmp_path, Runner(tmp_path), Recall(tmp_path)), Store(tmp_path)
    looks = 0
    while store.loading is not None:
        update, _ = reader.next()
        assert update is not None
        assert update.history is None
        store.apply(update)
        while store.unsettled:
            store.work()
        looks += 1
    assert looks > 2
    mine = Recall(tmp_path)
    mine.save(store.history, store.place)
    mine.close()
    reader.close()
    reader, second = Reader(tmp_path, Runner(tmp_path), Recall(tmp_path)), Store(tmp_path)
    update, more = reader.look()
    assert update is not None
    assert not more
    second.apply(update)
    while second.unsettled:
        second.work()
    assert second.loading is None
    assert repr(second.numbers_view(0.0)) == repr(store.numbers_view(0.0))  # NaN is not NaN
    assert np.array_equal(second.ema.values, store.ema.values)
    assert repr(second.mix_view()) == repr(store.mix_view())
    reader.close()


def test_a_log_that_is_replaced_between_recalling_and_reading(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recall, "LEAST", 1)
    path = tmp_path / ".loss.json"
    write(path, range(1, 100))
    reader, store = Reader(tmp_path, Runner(tmp_path)), Store(tmp_path)
    store.apply(reader.look()[0] or Update())
    mine = Recall(tmp_path)
    mine.save(store.history, store.place)
    mine.close()
    reader.close()
    reader, store = Reader(tmp_path, Runner(tmp_path), Recall(tmp_path)), Store(tmp_path)
    recalled = reader._recalled

    def replaced() -> DeepHistory | None:
        history = recalled()
        write(tmp_path / "new", range(1, 20))
        (tmp_path / "new").rename(path)
        return history

    monkeypatch.setattr(reader, "_recalled", replaced)
    update, _ = reader.look()
    assert update is not None
    assert ".loss.json" in update.fresh
    store.apply(update)
    assert store.history.step.tolist() == list(range(1, 20))
    reader.close()
