"""`andrea-tui plot`: what stands out is seen and counted, what is piped is plain, the numbers are those of the log."""

import io
import json
import os
import random
import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from andrea_tui.cli import make_run, run
from andrea_tui.core import decimate, plot
from andrea_tui.core.ema import fold
from engine.rundir.history import read_history
from tests.terminal import Terminal

Write = Callable[..., Path]


def losses(n: int, seed: int = 0) -> list[float | None]:
    rng = random.Random(seed)
    return [round(3 + rng.gauss(0, 0.05), 5) for _ in range(n)]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def make(
        values: Sequence[float | None], name: str = "run", pivots: Sequence[tuple[int, str, str]] = ()
    ) -> Path:
        path = tmp_path / name
        make_run(path, "andrea-tiny", [])
        lines = []
        for i, x in enumerate(values, 1):
            line: dict[str, Any] = {
                "step": i, "phase": sum(s < i for s, _, _ in pivots), "seg": 1, "loss": x, "lr": 0.00021 * (1 + 1 / i),
                "gnorm": 0.81, "dt": 9.93, "t": 1774089000.12 + 9.93 * i, "rows": {"chat": 4}, "rloss": {"chat": x},
            }  # fmt: skip
            lines.append(json.dumps(line | ({"skipped": "nonfinite"} if x is None else {})) + "\n")
        (path / ".loss.json").write_text("".join(lines))
        with open(path / ".events.json", "a") as f:
            for step, old, new in pivots:
                info = {"old": old, "new": new}
                f.write(
                    json.dumps({"t": 1.0, "event": "pivot", "step": step, "text": "", "info": info}) + "\n"
                )
        return path

    return make


def drawn(capfd: pytest.CaptureFixture[str], *args: object) -> list[str]:
    assert run(["plot", *map(str, args)]) == 0
    out, err = capfd.readouterr()
    assert err == ""
    return out.splitlines()


def around(lines: list[str]) -> tuple[str, str]:
    """What is said above and below the chart, its line ends undone."""
    edges = [i for i, x in enumerate(lines) if "┌" in x or "└" in x]
    return " ".join(lines[: edges[0]]), " ".join(lines[edges[-1] + 3 :])


def canvas(lines: list[str]) -> list[str]:
    """What stands between the chart's left and right edges, from the top."""
    return [m[1] for x in lines if (m := re.search(r"[│┤](.*)│", x))]


def band(lines: list[str]) -> int:
    """Rows that the curve takes."""
    return sum("·" in row or any("\u2800" < c <= "\u28ff" for c in row[:20]) for row in canvas(lines))


def test_a_spike_of_one_step_is_seen_and_does_not_flatten_the_rest(
    write: Write, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    values = losses(5000)
    values[2499] = 40.0
    path = write(values)
    lines = drawn(capfd, path)
    rows = canvas(lines)
    assert rows[0].count("▴") == 1
    assert abs(rows[0].index("▴") - len(rows[0]) / 2) < 2
    assert band(lines) > 10
    assert "▴ 1 step above the axis, loss 40.00 at step 2,500" in around(lines)[1]
    # the control: an axis for all values leaves nothing of the curve
    monkeypatch.setattr(decimate, "robust_range", lambda v, e: (float(np.nanmin(e)), float(np.nanmax(e))))
    rows = canvas(drawn(capfd, path))
    assert sum(any("\u2800" < c <= "\u28ff" or c == "·" for c in r[:20]) for r in rows) <= 2


def test_a_step_without_a_loss_is_marked_counted_and_does_not_end_the_ema(
    write: Write, capfd: pytest.CaptureFixture[str]
) -> None:
    values = losses(3000)
    values[999] = values[1000] = None
    path = write(values)
    lines = drawn(capfd, path)
    assert canvas(lines)[-1].count("×") in (1, 2)
    assert around(lines)[1] == "× 2 steps without a finite loss"
    assert re.search(r"ema\(0\.99\) [23]\.\d\d\d\d", around(lines)[0])
    only = write([None, None, None], "nothing")
    assert drawn(capfd, only)[-2:] == ["no step here has a finite loss", "× 3 steps without a finite loss"]


def test_the_head_says_run_step_ema_best_and_the_chart_fills_its_size(
    write: Write, capfd: pytest.CaptureFixture[str]
) -> None:
    path = write(losses(400))
    history, _ = read_history(path / ".loss.json")
    ema = fold(history.loss, 0.9)
    lines = drawn(capfd, path, "--ema", 0.9, "--width", 120, "--height", 22)
    assert len(lines) == 22
    assert max(map(len, lines)) == 120
    best = f"best {ema.min():.4f} at step {int(ema.argmin()) + 1}"
    assert f"step 400 ema(0.9) {ema[-1]:.4f} {best} loss {history.loss[-1]:.4f}" in around(lines)[0].replace(
        "  ", " "
    ).replace("  ", " ")
    assert len(drawn(capfd, path)) == 30


def test_part_of_a_run_keeps_the_ema_of_the_whole(write: Write, capfd: pytest.CaptureFixture[str]) -> None:
    path = write(losses(2000))
    whole = plot.load(path, "step", 0.99, None, None)
    part = plot.load(path, "step", 0.99, 500, 900)
    assert part.step.tolist() == list(range(500, 901))
    assert np.array_equal(part.ema, whole.ema[499:900])
    assert "(steps 500 to 900)" in around(drawn(capfd, path, "--from", 500, "--to", 900))[0]


@pytest.mark.parametrize(("by", "last"), [("step", "2k"), ("hours", "5"), ("tokens", "4M")])
def test_the_x_axis(by: str, last: str, write: Write, capfd: pytest.CaptureFixture[str]) -> None:
    lines = drawn(capfd, write(losses(2000)), "--x", by)
    labels = lines[-2].split()
    assert labels[-1] == last
    assert lines[-1].split()[0] == ("steps;" if by == "step" else f"{by};")


def test_pivots_are_lines_with_the_policies_names(write: Write, capfd: pytest.CaptureFixture[str]) -> None:
    path = write(losses(2000), pivots=[(1000, "v1-\x1b[31mbase", "v2-漢"), (1500, "v2", "v3")])
    lines = drawn(capfd, path)
    rows = canvas(lines)
    assert re.search(r"v1-␛\[31mbase.* v2-\?\?.* v3", rows[0])
    at = rows[0].index("v2") - 1
    assert abs(at - len(rows[0]) / 2) < 3
    assert sum(r[at] == "│" for r in rows) > len(rows) // 3  # the curve covers the others


def test_decimation_keeps_every_extreme(write: Write) -> None:
    values = losses(7001, seed=3)
    values[17], values[5000], values[7000] = -5.0, 90.0, None
    c = plot.load(write(values), "step", 0.99, None, None)
    for n in (1, 7, 100, 7001, 20000):
        t = plot.thin(c, n)
        assert len(t.x) <= n + 1
        assert (np.nanmin(t.low), np.nanmax(t.high)) == (-5.0, 90.0)
        assert t.lost.sum() == 1
        assert t.ema[-1] == c.ema[-1]
        assert (np.diff(t.x) > 0).all()


def test_csv_is_the_history_bit_for_bit(write: Write, capfd: pytest.CaptureFixture[str]) -> None:
    values = losses(3000)
    values[99] = None
    path = write(values)
    assert run(["plot", str(path), "--csv", "--ema", "0.995"]) == 0
    text = capfd.readouterr().out
    history, _ = read_history(path / ".loss.json")
    assert text.startswith("step,loss,ema,lr,gnorm,t\n")
    table = np.loadtxt(io.StringIO(text), delimiter=",", skiprows=1)
    assert np.array_equal(table[:, 0], history.step)
    assert np.array_equal(table[:, 1].astype(np.float32), history.loss, equal_nan=True)
    assert np.array_equal(table[:, 2], fold(history.loss, 0.995))
    assert np.array_equal(table[:, 3], history.lr)
    assert np.array_equal(table[:, 4].astype(np.float32), history.gnorm)
    assert np.array_equal(table[:, 5], history.t)
    assert "\n100,nan," in text
    assert "\n1,2." in text or "\n1,3." in text
    assert max(len(x.split(",")[1]) for x in text.splitlines()) <= 9  # the shortest form of a float32


def test_several_runs_are_drawn_as_letters_with_clean_names(
    write: Write, capfd: pytest.CaptureFixture[str]
) -> None:
    a, b = write(losses(800), "one\x1b[2Jtwo"), write([x and x + 1 for x in losses(500)], "b")
    lines = drawn(capfd, a, b)
    assert "one␛[2Jtwo" in lines[0] + lines[1]
    assert any(x.startswith("b = ") and "step 500" in x for x in lines[:4])
    rows = "".join(canvas(lines))
    assert rows.count("a") > 50
    assert rows.count("b") > 30
    assert lines[-1] == "of several runs only the EMAs are drawn"


def _empty(path: Path) -> None:
    (path / ".loss.json").unlink()


def _garbage(path: Path) -> None:
    (path / ".loss.json").write_bytes(b"\0\0\n{\n[1,2]\n")


def _folder(path: Path) -> None:
    (path / ".loss.json").unlink()
    (path / ".loss.json").mkdir()


@pytest.mark.parametrize(
    ("harm", "options", "says"),
    [
        (_empty, [], "nothing was trained yet"),
        (_garbage, [], "3 damaged lines and no step"), (_folder, [], "can't be read"),
        (None, ["--from", "900"], "has the steps 1 to 100"), (None, ["--ema", "1"], "--ema 1"),
        (None, ["--csv", "other"], "one run directory"),
    ],
)  # fmt: skip
def test_what_can_not_be_drawn_is_one_line(
    harm: Callable[[Path], None] | None, options: list[str], says: str, write: Write, capfd: pytest.CaptureFixture[str]
) -> None:  # fmt: skip
    path = write(losses(100))
    if harm:
        harm(path)
    assert run(["plot", str(path), *options]) == 2
    out, err = capfd.readouterr()
    assert out == ""
    assert says in err
    assert err.count("\n") == 1


def test_a_missing_directory_and_a_damaged_log(write: Write, capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["plot", "/nowhere/at\x1ball"]) == 2
    assert capfd.readouterr().err == "/nowhere/at␛all: no run directory (config.toml is missing)\n"
    path = write(losses(500))
    lines = (path / ".loss.json").read_text().splitlines()
    lines[250] = "{broken"
    (path / ".loss.json").write_text("\n".join(lines) + "\n")
    said = "1 step of the run without a line in its log; 1 damaged line skipped"
    assert drawn(capfd, path)[-1] == said


@pytest.mark.parametrize("options", [[], ["--log"], ["--ascii", "--x", "hours"]])
def test_no_size_and_no_length_breaks_it(
    options: list[str], write: Write, capfd: pytest.CaptureFixture[str]
) -> None:
    for n in (1, 2, 3, 50):
        path = write([x and abs(x) for x in losses(n)], f"run{n}")
        for width, height in ((1, 1), (30, 8), (81, 25), (333, 60)):
            lines = drawn(capfd, path, "--width", width, "--height", height, *options)
            assert max(map(len, lines)) <= max(width, 30)
    flat = write([0.0, 0.0, -1.0, 0.0], "flat")
    assert drawn(capfd, flat, *options)


def out_of(path: Path, *options: str, **env: str) -> bytes:
    command = [sys.executable, "-m", "andrea_tui", "plot", str(path), *options]
    return subprocess.run(command, env={**os.environ, **env}, stdout=subprocess.PIPE, check=True).stdout


def test_a_pipe_gets_no_escape_codes_and_where_there_is_no_utf8_only_ascii(write: Write) -> None:
    values = losses(1000)
    values[500], values[700] = 99.0, None
    path = write(values, pivots=[(300, "alt", "größer")])
    plain = out_of(path, LC_ALL="C.UTF-8")
    assert b"\x1b" not in plain
    assert not plain.isascii()
    for env in (
        {"LC_ALL": "POSIX"},
        {"LC_ALL": "en_US.ISO-8859-1"},
        {"LC_ALL": "", "LC_CTYPE": "", "LANG": "C"},
    ):
        told = out_of(path, **env)
        assert told.isascii()
        assert b"grosser" in told or b"gro?er" in told
        assert all(mark in told for mark in (b"*", b".", b"^", b"x"))
    assert out_of(path, "--ascii", LC_ALL="C.UTF-8") == out_of(path, LC_ALL="POSIX")


def test_colours_only_on_a_terminal_without_no_color(write: Write) -> None:
    path = write(losses(1000))
    for env, coloured in (({}, True), ({"NO_COLOR": "1"}, False), ({"TERM": "dumb"}, False)):
        with Terminal("plot", str(path), columns=90, lines=25, env=env) as t:
            assert t.ended() == 0
            assert (b"\x1b[" in t.raw) == coloured
            assert "nats per token" in t.text()  # all of it fits


def test_200_000_steps_take_less_than_two_seconds(write: Write) -> None:
    path = write(losses(200_000))
    before = os.times()
    assert out_of(path).count(b"\n") == 30
    used = os.times()
    seconds = used.children_user + used.children_system - before.children_user - before.children_system
    assert seconds < 4  # of a core; room for a slower machine: here 1.3
