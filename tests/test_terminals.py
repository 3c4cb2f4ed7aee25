"""The cockpit in terminals that can do less: no colours, 16 of them, no UTF-8, no mouse."""

import re
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import engine_process as e
from tests.conftest import make_small
from tests.terminal import Terminal

LONG = [
    "train.max_steps=1000000",
    "train.checkpoint_every=1000",
    "train.sample_every=1000",
    "train.eval_every=1000",
]


@pytest.fixture(scope="module")
def training(texts: Path, prepared: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A run whose trainer lives, but stands still: it takes no time from the terminals that look at it."""
    run = tmp_path_factory.mktemp("terminals") / "run"
    make_small(run, texts, LONG)
    shutil.copytree(prepared / "data", run / "data")
    p = e.start(run)
    e.wait_for(lambda: e.history(run).last > 0, "its first step")
    p.send_signal(signal.SIGSTOP)
    yield run
    p.kill()
    p.wait()


SHOWN = r"(training|stalled).* step [1-9].*"


def look(run: Path, *args: str, env: dict[str, str] | None = None) -> bytes:
    """What is sent until the overview stands, and on the way out."""
    with Terminal(str(run), "--watch", *args, env=env) as t:
        t.wait(SHOWN)
        t.send("d")
        assert t.ended() == 0
        assert t.restored()
        return t.raw


def tour(run: Path, *args: str, env: dict[str, str]) -> bytes:
    """Through overview, help, palette, pivot wizard and quit panel and out again; all bytes that were sent."""
    with Terminal(str(run), *args, env=env) as t:
        t.wait(SHOWN)
        for key, seen in (
            ("?", "Next pane"), ("\x10", "key shift.Tab"), ("p", "1 policy . 2 when"),
            ("q", "stopping the training cleanly in [1-5] s"),
        ):  # fmt: skip
            t.send(key)
            if key == "\x10":  # ctrl+p, the palette
                t.wait("(?i)search")
                t.send("pane")
            t.wait(seen)
            if key == "\x10" and "NO_COLOR" in env:
                assert "Next pane" in reversed_text(t)  # what is chosen
            t.send("\x1b")
            t.wait(rf"(?s)\A(?!.*({seen}))")  # before the next key: Esc and a key at once are another key
        t.send("d")
        assert t.ended() == 0
        assert t.restored()
        return t.raw


def reversed_text(t: Terminal) -> str:
    rows = (t.screen.buffer[y] for y in range(t.screen.lines))
    return "".join(row[x].data for row in rows for x in range(t.screen.columns) if row[x].reverse)


def sgr(raw: bytes) -> list[list[int]]:
    """The parameters of every sequence that sets attributes or colours."""
    return [[int(x or 0) for x in m[1].split(b";")] for m in re.finditer(rb"\x1b\[([0-9;]*)m", raw)]


def colours(raw: bytes) -> set[int]:
    """Of the first parameter of what is a colour: 30-37, 40-47 and 90-107 of the 16, 38 and 48 of others."""
    found = set()
    for codes in sgr(raw):
        while codes:
            code = codes.pop(0)
            if 30 <= code <= 49 or 90 <= code <= 107:
                found.add(code)
            if code in (38, 48):
                del codes[: 2 if codes[0] == 5 else 4]
    return found


def bare(raw: bytes) -> bytes:
    """Without control sequences."""
    return re.sub(rb"\x1b\[[0-9;?<>=]*[a-zA-Z]", b"", raw)


def test_no_color_sends_no_colour_and_still_tells_focus_and_state(training: Path) -> None:
    raw = tour(training, env={"NO_COLOR": "1"})
    assert colours(raw) == set()
    used = {c for codes in sgr(raw) for c in codes}
    assert used <= {0, 1, 2, 3, 4, 7, 22, 23, 24, 27}
    assert {1, 2, 7} <= used  # bold, dim, reverse
    assert not raw.isascii()


def test_empty_no_color_counts_as_unset(training: Path) -> None:
    assert {38, 48} <= colours(look(training, env={"NO_COLOR": ""}))  # the control of the test above


def test_a_terminal_of_16_colours_gets_its_own_16(training: Path) -> None:
    found = colours(look(training, env={"TERM": "xterm", "COLORTERM": ""}))
    assert {36, 32} & found  # cyan, green
    assert found <= {*range(30, 38), 39, *range(40, 48), 49, *range(90, 98), *range(100, 108)}


@pytest.mark.parametrize(
    ("options", "env", "wanted"),
    [
        ([], {"TERM": "screen-256color", "COLORTERM": ""}, rb"\x1b\[[0-9;]*38;5;"),
        (["--color", "truecolor"], {"TERM": "xterm", "COLORTERM": ""}, rb"\x1b\[[0-9;]*38;2;"),
        (["--color", "16"], {"NO_COLOR": "1"}, rb"\x1b\[[0-9;]*36[;m]"),
    ],
)
def test_color_says_how_many(options: list[str], env: dict[str, str], wanted: bytes, training: Path) -> None:
    assert re.search(wanted, look(training, *options, env=env))


def test_without_utf8_not_one_byte_is_other_than_ascii(training: Path) -> None:
    raw = tour(training, env={"LC_ALL": "POSIX"})
    assert raw.isascii()
    assert b"+ 1 loss" in bare(raw)  # frames are there all the same


@pytest.mark.parametrize("name", ["en_US.ISO-8859-1", "C"])
def test_nor_where_only_lang_says_so(name: str, training: Path) -> None:
    assert look(training, env={"LC_ALL": "", "LC_CTYPE": "", "LANG": name}).isascii()


def test_no_colour_and_ascii_can_be_asked_for(training: Path) -> None:
    raw = look(training, "--color", "none", "--ascii")
    assert raw.isascii()
    assert colours(raw) == set()


MOUSE = (b"1000", b"1003", b"1006")


def modes(raw: bytes) -> dict[bytes, bool]:
    found: dict[bytes, bool] = {}
    for m in re.finditer(rb"\x1b\[\?([0-9;]+)([hl])", raw):
        for mode in m[1].split(b";"):
            found[mode] = m[2] == b"h"
    return found


def test_m_gives_the_mouse_to_the_terminal_and_takes_it_again(training: Path) -> None:
    with Terminal(str(training), "--watch") as t:
        t.wait(SHOWN)
        assert all(modes(t.raw)[m] for m in MOUSE)
        t.send("m")
        t.wait(r"mouse off: the terminal selects and copies; m turns it on")
        assert not any(modes(t.raw)[m] for m in MOUSE)
        t.send("m")
        t.wait(r"mouse on")
        assert all(modes(t.raw)[m] for m in MOUSE)
        t.send("d")
        assert t.ended() == 0
        assert t.restored()


def test_no_mouse_starts_without_it_and_m_turns_it_on(training: Path) -> None:
    with Terminal(str(training), "--watch", "--no-mouse") as t:
        t.wait(SHOWN)
        t.wait(r"mouse off: the terminal selects and copies; m turns it on")
        assert not any(m in modes(t.raw) for m in MOUSE)
        t.send("m")
        t.wait(r"mouse on")
        assert all(modes(t.raw)[m] for m in MOUSE)
        t.send("m")
        t.wait(r"mouse off")
        t.send("d")
        assert t.ended() == 0
        assert t.restored()


def test_a_wrong_theme_or_colour_is_one_line_before_anything_is_made(tmp_path: Path) -> None:
    for options, says in (
        (("--theme", "pink"), "no theme 'pink'"),
        (("--color", "7"), "invalid choice: '7'"),
    ):
        with Terminal(str(tmp_path / "new"), *options) as t:
            assert t.ended() == 2
            assert says in t.text()
    assert not (tmp_path / "new").exists()
