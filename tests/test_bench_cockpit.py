"""The measuring itself is right: a program whose times, bytes, memory and CPU are known is measured as such."""

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from bench import attached, curve, report
from bench.cockpit import DISTURBED, ROUNDS, Row, Taken, table
from bench.watched import Busy, Watched, cpu_seconds, tree
from engine.rundir.history import read_history

# Says when it did what, so that a slow machine does not matter.
CHILD = """
import json, os, sys, time
note = lambda what: os.write(log, (json.dumps([what, time.monotonic()]) + "\\n").encode())
log = os.open(sys.argv[1], os.O_CREAT | os.O_WRONLY | os.O_APPEND)
import termios, tty
tty.setraw(0)
time.sleep(0.3)
note("first"); os.write(1, b"\\x1b[2J\\x1b[Hloading")
time.sleep(0.4)
note("whole"); os.write(1, b"\\x1b[H\\x1b[>1u12.5 \\xe2\\x97\\x84  ")
while True:
    key = os.read(0, 1)
    if key == b"k":  # answers in two parts; a clock elsewhere goes on
        time.sleep(0.05)
        os.write(1, b"\\x1b[2;1Hpart")
        time.sleep(0.1)
        note("answer"); os.write(1, b"\\x1b[2;1H\\x1b[7mpart\\x1b[0m")
        for i in range(4):
            time.sleep(0.04); os.write(1, b"\\x1b[5;1H%d" % i)
    elif key == b"m":
        kept = bytearray(os.urandom(1) * (64 << 20)); note("memory"); os.write(1, b"\\x1b[3;1Hmemory")
    elif key == b"w":  # so much CPU and so many bytes as it says
        end = time.process_time() + 0.5
        while time.process_time() < end: pass
        os.write(1, b"\\x1b[4;1H" + b"x" * 794)
        note("work")
    elif key == b"c":  # the same in a child
        if not os.fork():
            end = time.process_time() + 0.5
            while time.process_time() < end: pass
            note("child"); os._exit(0)
        os.wait()
"""


@pytest.fixture
def notes(tmp_path: Path) -> Callable[[str], float]:
    """When the child did that; waits until it has."""

    def of(what: str) -> float:
        end = time.monotonic() + 60
        while time.monotonic() < end:
            log = tmp_path / "log"
            for line in log.read_text().splitlines() if log.exists() else ():
                name, t = json.loads(line)
                if name == what:
                    return float(t)
            time.sleep(0.01)
        raise AssertionError(f"no {what}")

    return of


def child(tmp_path: Path) -> Watched:
    return Watched([sys.executable, "-S", "-c", CHILD, str(tmp_path / "log")])


def test_a_screen_has_the_time_at_which_it_was_painted(tmp_path: Path, notes: Callable[[str], float]) -> None:
    with child(tmp_path) as w:
        time.sleep(2)  # however late it is looked at
        first = w.when(lambda screen: any(line.strip() for line in screen))
        whole = w.when(lambda screen: "◄" in screen[0] and "loading" not in screen[0])
        assert 0 <= first - (notes("first") - w.start) < 0.5
        assert 0 <= whole - (notes("whole") - w.start) < 0.5
        assert w.text()[0].strip() == "12.5 ◄"  # the sequence that pyte doesn't know is not printed


def test_an_answer_ends_with_the_last_change_of_its_rows(
    tmp_path: Path, notes: Callable[[str], float]
) -> None:
    with child(tmp_path) as w:
        w.when(lambda screen: "◄" in screen[0])
        sent = time.monotonic()
        took = w.answer("k", range(0, 3))
        assert took is not None
        assert -0.02 < took - (notes("answer") - sent) < 0.1  # a change of style only, and not the clock's
        assert w.answer("?", range(0, 3)) is None


def test_memory_cpu_and_bytes_of_a_window(tmp_path: Path, notes: Callable[[str], float]) -> None:
    with child(tmp_path) as w:
        w.when(lambda screen: "◄" in screen[0])
        before = w.memory()
        w.answer("m", range(2, 3))
        after = w.memory()
        assert after[0] - before[0] == pytest.approx(64, abs=4)
        assert after[1] - before[1] == pytest.approx(64, abs=4)
        quiet = w.window(0.5)
        assert quiet.bytes_per_second == 0
        assert quiet.cpu <= 4  # a tick of the clock is 10 ms
        n, cpu = len(w.chunks), cpu_seconds(tree(w.process.pid))
        w.send("w")
        notes("work")
        until(lambda: sum(len(data) for _, data in w.chunks[n:]) >= 800)
        assert sum(len(data) for _, data in w.chunks[n:]) == 800
        assert cpu_seconds(tree(w.process.pid)) - cpu == pytest.approx(0.5, abs=0.1)
        cpu = cpu_seconds(tree(w.process.pid))
        w.send("c")
        notes("child")
        until(lambda: len(tree(w.process.pid)) == 1)
        assert cpu_seconds(tree(w.process.pid)) - cpu == pytest.approx(0.5, abs=0.1)


def until(there: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while not there():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_bytes_and_cpu_per_second(tmp_path: Path) -> None:
    steady = "import os,time\nwhile 1: os.write(1, b'x' * 50); time.sleep(0.05)"
    with Watched([sys.executable, "-S", "-c", steady]) as w:
        w.when(lambda screen: "x" in screen[0])
        window = w.window(2.0)
        assert window.bytes_per_second == pytest.approx(
            1000, rel=0.25
        )  # a little less, since writing takes time
        assert window.usual_bytes == pytest.approx(window.bytes_per_second, rel=0.1)


def test_what_others_use_is_told_from_what_is_measured() -> None:
    spin = [sys.executable, "-S", "-c", "while True: pass"]
    process = subprocess.Popen(spin)
    try:
        time.sleep(0.1)
        with_it, without = Busy(lambda: [process.pid]), Busy(lambda: [])
        time.sleep(1)
        got = cpu_seconds([process.pid])
        assert without.others() - with_it.others() > 100 * 0.25 * min(1.0, got)
    finally:
        process.kill()
        process.wait()


def test_one_that_ends_too_early_is_named() -> None:
    with (
        Watched([sys.executable, "-S", "-c", "print('no such run')"]) as w,
        pytest.raises(RuntimeError, match="ended with 0: no such run"),
    ):
        w.when(lambda screen: False)


def test_the_least_disturbed_tries_count_and_say_so() -> None:
    mine, peers = Taken(), Taken(missing="no network")
    for value, others in ((0.9, 80.0), (0.5, 1.0), (0.52, 2.0), (0.9, 50.0)):
        mine.add(others, first=value)
    assert mine.disturbed()
    mine.add(3.0, first=0.7)
    assert not mine.disturbed()
    row = table([Row("first", "first text", 2, 0.6)], mine, peers)[0]
    assert row["andrea-tui"] == "0.52 (0.50–0.70)"
    assert row["met"] == "by the median"
    assert row["terminalboard 0.5.3"] == "n/a: no network"
    assert row["CPU of others then (%)"] == "2 (1–3)"
    table([Row("key", "a key that the peer has not", 0)], mine, peers)
    assert not mine.disturbed()  # by what was not measured
    assert not peers.disturbed()
    assert DISTURBED > 3
    assert ROUNDS == 3


def test_the_cost_of_a_dashboard_that_takes_three_per_cent() -> None:
    order = attached.order(6)
    assert order[:6] == [True, False, False, True, True, False]
    rates: dict[bool, list[float]] = {True: [], False: []}
    for i, there in enumerate(order):
        wander = 1 + 0.01 * i  # the machine gets faster all the time
        rates[there].append(10 * wander * (0.97 if there else 1) * (1 + 0.002 * (-1) ** (i // 3)))
    cost, low, high = attached.interval(rates[True], rates[False])
    assert low < 3 < high
    assert cost == pytest.approx(3, abs=0.5)
    assert high - low < 3


def test_both_files_hold_one_curve(tmp_path: Path) -> None:
    curve.write_log(tmp_path / "log", 20_000)
    history = read_history(tmp_path / "log")[0]
    steps = np.arange(1, 20_001)
    assert len(history) == 20_000
    assert history.line(19_999).loss == pytest.approx(float(curve.loss(steps)[-1]), abs=1e-5)
    got = list(events(curve.event_records(steps, curve.loss(steps), steps / 2)))
    assert [s for s, _, _ in got] == steps.tolist()
    assert got[127][2] == pytest.approx(float(curve.loss(steps)[127]), abs=1e-6)
    assert got[-1][1] == 10_000.0


def events(data: bytes) -> list[tuple[int, float, float]]:
    """(step, time, value): the fields of each record by their numbers, as the format's readers go through them."""
    out, at = [], 0
    while at < len(data):
        n = int.from_bytes(data[at : at + 8], "little")
        record = data[at + 12 : at + 12 + n]
        at += n + 16
        assert record[0] == 0x09  # field 1, 64 bits
        assert record[9] == 0x10  # field 2, varint
        step, shift, i = 0, 0, 10
        while True:
            step |= (record[i] & 0x7F) << shift
            shift, i = shift + 7, i + 1
            if not record[i - 1] & 0x80:
                break
        summary = record[i:]
        assert summary[:11] == b"\x2a\x0d\x0a\x0b\x0a\x04loss\x15"
        assert summary[1] == len(summary) - 2
        assert summary[3] == len(summary) - 4
        out.append(
            (step, float(np.frombuffer(record[1:9], "<f8")[0]), float(np.frombuffer(summary[11:], "<f4")[0]))
        )
    return out


def test_tables_go_between_their_marks(tmp_path: Path) -> None:
    path = tmp_path / "doc.md"
    path.write_text("a\n<!-- bench x -->\nold\n<!-- end -->\nb <!-- end -->\n")
    report.put(path, "x", report.markdown([{"": "p", "y": "1"}]))
    assert (
        path.read_text()
        == "a\n<!-- bench x -->\n\n|  | y |\n| --- | --- |\n| p | 1 |\n\n<!-- end -->\nb <!-- end -->\n"
    )
    with pytest.raises(ValueError, match="no place"):
        report.put(path, "z", "")
