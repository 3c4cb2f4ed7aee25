"""What a person sees in the end: the screen after partial updates, the bytes it takes, and a monkey at the keys."""

import statistics
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.soak import HARMLESS, PIVOT, Soak, descriptors, rest, soak, steady
from tests.terminal import TIMEOUT, Terminal
from tests.told import Comparing

KEYS = [
    "+", "+", "\x1b[D", "\r", "\x1b[D", "x", "\x1b", "0", "2", "\r", "\x1b", ".", "y", "3",
    "\x1b[B", "4", "\r", "\x1b[B", "\x1b", "5", "\x1b[A", "\r", "\x1b[A", "\x1b", "\x1b", "6", "1", "g1,234\r",
    "\x1b", "\x1b",
]  # fmt: skip


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A run that gets ten steps a second, 5,000 of them there already."""
    run = tmp_path_factory.mktemp("steady") / "run"
    with steady(run, "--history", "5000"):
        yield run


def until_compared(t: Comparing, more: int) -> None:
    seen, end = t.compared, time.monotonic() + TIMEOUT
    while t.compared < seen + more:
        assert time.monotonic() < end, f"{t.compared} redraws compared\n{t.text()}"
        assert t.process.poll() is None, t.crash()
        time.sleep(0.05)


@pytest.mark.parametrize("size", [(80, 24), (120, 40), (200, 60)])
def test_after_every_partial_update_the_screen_is_that_of_a_full_redraw(
    size: tuple[int, int], trained: Path, tmp_path: Path
) -> None:
    with Comparing(tmp_path / "told", trained, columns=size[0], lines=size[1]) as t:
        t.wait("training")
        until_compared(t, 3)
        for key in KEYS:
            t.send(key)
            time.sleep(0.12)
        until_compared(t, 2)
        t.resize(size[0] - 13, size[1] - 3)
        until_compared(t, 2)
        t.resize(*size)
        until_compared(t, 3)
        assert not t.different, t.different[0]
        assert t.compared >= 10


def test_control_forgetting_a_changed_cell_is_noticed(trained: Path, tmp_path: Path) -> None:
    with Comparing(tmp_path / "told", trained, "--broken") as t:
        t.wait("training")
        until_compared(t, 8)
        assert t.different


def test_at_ten_steps_a_second_the_overview_takes_a_kilobyte_a_second_at_most(trained: Path) -> None:
    """Bytes per ten steps that the log grows by, not per second of a machine that may be slow; the median of twenty."""
    log = trained / ".loss.json"
    with Terminal(str(trained), "--watch", columns=120, lines=40) as t:
        t.wait("training")
        t.wait(r"EMA d")
        time.sleep(3)  # the first layout, and what comes after it
        per_ten = []
        for _ in range(20):
            lines, sent = log.read_bytes().count(b"\n"), len(t.raw)
            while log.read_bytes().count(b"\n") < lines + 10:
                time.sleep(0.02)
            per_ten.append(len(t.raw) - sent)
    assert statistics.median(per_ten) <= 1000, per_ten
    assert statistics.median(per_ten) > 50, per_ten  # it did show something


def check(s: Soak) -> None:
    assert s.exit_code is None, f"ended by itself with {s.exit_code}: {s.crash}"
    assert s.keys > 50
    assert not s.different, s.different[0]
    assert s.signals == []
    assert len(s.rss) >= 2
    assert s.rss[-1] - min(s.rss) < 12e6, [f"{x / 1e6:.1f}" for x in s.rss]
    assert max(s.descriptors) <= min(s.descriptors) + 2, s.descriptors  # a file may be read just now


def test_a_monkey_breaks_nothing_and_no_key_of_its_signals(tmp_path: Path) -> None:
    check(soak(tmp_path, 30, seed=20, keys=HARMLESS))


def test_a_monkey_in_the_pivot_wizard_asks_for_nothing_without_a_y(tmp_path: Path) -> None:
    check(soak(tmp_path, 30, seed=21, keys=PIVOT))


def test_control_the_stand_in_trainer_does_tell_of_signals(tmp_path: Path) -> None:
    run = tmp_path / "run"
    with steady(run) as trainer, Comparing(tmp_path / "told", run) as t:
        t.wait("training")
        before = descriptors(t.process.pid)
        t.send("s")
        end = time.monotonic() + TIMEOUT
        while (run / "signals.txt").read_text().split() != ["SIGUSR1"]:
            assert time.monotonic() < end
            time.sleep(0.05)
        rest(t)
        assert abs(descriptors(t.process.pid) - before) <= 2
        t.send("q")
        t.wait("stopping the training cleanly")
        t.send("\r")
        trainer.wait(TIMEOUT)
    assert (run / "signals.txt").read_text().split() == ["SIGUSR1", "SIGTERM"]
