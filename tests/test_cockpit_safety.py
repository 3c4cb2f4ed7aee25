"""The terminal is given back, whatever ends or stops the cockpit; nothing that a terminal does touches the training.

Each of the more surprising properties has its control: the same with Textual's own driver or defaults goes wrong.
"""

import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from engine.rundir import names
from tests import engine_process as e
from tests.conftest import MakeRun, make_stopped
from tests.terminal import Terminal, end

LONG = (
    "train.max_steps=1000000",
    "train.checkpoint_every=1000",
    "train.sample_every=1000",
    "train.eval_every=1000",
)
FLY = "import sys; from andrea_tui.cli import run; sys.exit(run(sys.argv[1:]))"
PLAIN_DRIVER = """
import andrea_tui.app
from textual.drivers.linux_driver import LinuxDriver
andrea_tui.app.CockpitDriver = LinuxDriver
"""


@pytest.fixture(scope="module")
def watched(texts: Path, prepared: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of a few steps that nobody trains and nobody changes."""
    return make_stopped(
        tmp_path_factory.mktemp("watched") / "run", texts, prepared, ["train.max_steps=20"], 20
    )


def until(condition: Callable[[], bool], what: str) -> None:
    e.wait_for(condition, what, seconds=30)


def stopped(t: Terminal) -> None:
    until(t.is_stopped, "the cockpit to be stopped")
    time.sleep(0.3)  # what it wrote last is on its way through the pty


def go_on(t: Terminal) -> None:
    """As `fg` does; until the cockpit has taken the terminal again (what was typed before that is thrown away)."""
    t.screen.reset()
    n = len(t.raw)
    t.process.send_signal(signal.SIGCONT)
    until(lambda: b"\x1b[?1049h" in t.raw[n:], "the alternate screen")


def test_ctrl_z_gives_the_terminal_back_and_fg_draws_everything_at_the_size_of_now(
    small_run: MakeRun,
) -> None:
    run = small_run("run", *LONG)
    with Terminal(str(run)) as t:
        t.wait(r"● training +step [1-9]")
        t.send("\x1a")
        stopped(t)
        assert t.restored()
        at = e.history(run).last
        until(lambda: e.history(run).last > at + 20, "steps while the cockpit is stopped")
        t.resize(80, 24)
        go_on(t)
        t.wait(r"(?s)1 loss .*3? ?audit.*d detach")
        until(lambda: all(len(x) == 80 for x in t.text().splitlines()), "the new size")
        until(lambda: shown_step(t) > at, "the steps of meanwhile")
        t.send("\x1a")  # and once more
        stopped(t)
        assert t.restored()
        go_on(t)
        t.wait(r"d detach")
        t.send("d")
        assert t.ended() == 0
        assert t.restored()


def test_sigtstp_from_outside_is_ctrl_z(watched: Path) -> None:
    with Terminal(str(watched), "--watch") as t:
        t.wait(r"■ finished")
        t.process.send_signal(signal.SIGTSTP)
        stopped(t)
        assert t.restored()
        go_on(t)
        t.wait(r"(?s)■ finished.*ema [0-9.]+.*1 loss")
        t.send("d")
        assert t.ended() == 0
        assert t.restored()


@pytest.mark.parametrize("ours", [True, False])
def test_stopped_by_force_and_continued(ours: bool, watched: Path) -> None:
    """Textual's own driver would start a second time: two threads read the keys, the old settings are forgotten."""
    with Terminal(str(watched), "--watch", program=("-c", FLY if ours else PLAIN_DRIVER + FLY)) as t:
        t.wait(r"■ finished")
        t.process.send_signal(signal.SIGSTOP)
        stopped(t)
        go_on(t)
        t.wait(r"(?s)■ finished.*ema [0-9.]+.*1 loss")
        t.send("d")
        assert left_well(t, 30 if ours else 5) is ours


def left_well(t: Terminal, seconds: float) -> bool:
    try:
        t.process.wait(seconds)
        time.sleep(0.3)
        return t.restored()
    except (subprocess.TimeoutExpired, AssertionError):
        return False


def test_jobs_of_a_real_shell_stop_bg_fg(watched: Path) -> None:
    shell = "import os; os.execvp('bash', ['bash', '--norc', '--noprofile', '-i'])"
    with Terminal(program=("-c", shell), env={"PS1": "ready> "}) as t:
        t.wait("ready>")
        t.send(f"{sys.executable} -m andrea_tui --watch {watched}; echo code $?\r")
        t.wait(r"■ finished")
        t.send("\x1a")
        t.wait(r"\[1\]\+ +Stopped")
        t.screen.reset()
        t.send("bg\r")  # it can't draw in the background: it is stopped again
        t.wait(r"andrea_tui.* &")
        t.send("\r")
        t.wait(r"\[1\]\+ +Stopped")
        t.screen.reset()
        t.send("fg; echo code $?\r")
        t.wait(r"(?s)■ finished.*ema [0-9.]+.*1 loss.*d leave")
        t.send("d")
        t.wait(r"code 0")
        t.send("stty -a | grep -c 'isig icanon'\r")
        t.wait(r"\n1 ")


@pytest.mark.parametrize("number", [signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2])
def test_signals_that_kill_by_default(number: signal.Signals, watched: Path) -> None:
    with Terminal(str(watched), "--watch") as t:
        t.wait(r"■ finished")
        t.process.send_signal(number)
        if number != signal.SIGQUIT:
            t.wait(rf"{number.name} is for the trainer")
            t.send("d")
        assert t.ended() == 0
        assert t.restored()


def test_an_error_in_a_widget_is_told_on_a_terminal_that_is_whole_again(
    small_run: MakeRun, tmp_path: Path
) -> None:
    run = small_run("run", *LONG)
    trainer = e.start(run)
    script = (
        "from andrea_tui.widgets.mix import MixPane\n"
        "def draw(self, v, width, height): raise ValueError('boom \\x1b[2J')\n"
        "MixPane.draw = draw\n"
    )
    state = tmp_path / "state"
    with Terminal(str(run), program=("-c", script + FLY), env={"XDG_STATE_HOME": str(state)}) as t:
        assert t.ended() == 1
        assert t.restored()
        said = t.raw.rpartition(b"\x1b[?1049l")[2].decode()
        assert "Traceback" in said
        assert "\x1b[2J" not in said
        last = said.rstrip().splitlines()[-1]
        assert "the training goes on: ValueError: boom ␛[2J" in last
        assert str(state / "andrea-tui" / "errors.log") in last
    assert "boom ␛[2J" in (state / "andrea-tui" / "errors.log").read_text("utf-8")
    assert not any("crash" in p.name or "error" in p.name for p in run.iterdir())
    assert trainer.poll() is None
    end(trainer.pid)
    trainer.wait()


def test_what_libraries_print_stays_off_the_screen(watched: Path) -> None:
    script = (
        "import sys, warnings, threading\n"
        "from andrea_tui.core.feed import Reader\n"
        "look = Reader.look\n"
        "def noisy(self):\n"
        "    print('STRAY-print'); sys.stderr.write('STRAY-stderr\\n'); warnings.warn('STRAY-warning')\n"
        "    threading.Thread(target=lambda: 1 / 0).start()\n"
        "    return look(self)\n"
        "Reader.look = noisy\n"
    )
    with Terminal(str(watched), "--watch", program=("-c", script + FLY)) as t:
        t.wait(r"■ finished")
        t.wait(r"ema [0-9.]+")
        t.send("\t\t")
        time.sleep(1.0)
        assert b"STRAY" not in t.raw
        assert "ZeroDivisionError" not in t.text()
        t.send("d")
        assert t.ended() == 0
        assert t.restored()


def test_a_stalled_terminal_costs_neither_steps_nor_memory_and_goes_on_where_things_are(
    small_run: MakeRun,
) -> None:
    run = small_run("run", *LONG)
    with Terminal(str(run)) as t:
        t.wait(r"● training +step [1-9]")
        t.stalled = True
        for i in range(150):
            t.send("123456"[i % 6] + "\r\x1b")  # big changes of the screen: the pty is soon full
            time.sleep(0.005)
        time.sleep(1.0)
        before, at = psutil.Process(t.process.pid).memory_info().rss, e.history(run).last
        until(lambda: e.history(run).last > at + 300, "steps while nobody reads")
        used = psutil.Process(t.process.pid)
        assert used.memory_info().rss < before + 20e6
        start = used.cpu_times().user
        time.sleep(1.0)
        assert used.cpu_times().user - start < 0.5
        t.stalled = False
        now = e.history(run).last
        until(lambda: shown_step(t) >= now, "the step of now on the screen")
        t.send("d")
        assert t.ended() == 0
        assert t.restored()


def shown_step(t: Terminal) -> int:
    found = re.search(r"training +step ([0-9,]+)", t.text())
    return int(found[1].replace(",", "")) if found else -1


@pytest.mark.parametrize("ours", [True, False])
def test_sigterm_ends_it_although_the_terminal_takes_nothing(ours: bool, watched: Path) -> None:
    """With the loop's own handlers it would wait for a terminal that may never come back."""
    plain = (
        "import asyncio, andrea_tui.app as a\n"
        "old = a.CockpitApp.on_mount\n"
        "def on_mount(self):\n"
        "    old(self)\n"
        "    asyncio.get_running_loop().add_signal_handler(15, self.action_detach)\n"
        "a.CockpitApp.on_mount = on_mount\n"
    )
    with Terminal(str(watched), "--watch", program=("-c", FLY if ours else plain + FLY)) as t:
        t.wait(r"■ finished")
        t.stalled = True
        for i in range(300):
            t.send("123456"[i % 6] + "\r\x1b")
            time.sleep(0.005)
        time.sleep(1.0)
        t.process.send_signal(signal.SIGTERM)
        end_ = time.monotonic() + 6
        while t.process.poll() is None and time.monotonic() < end_:
            time.sleep(0.05)
        assert (t.process.poll() is not None) is ours


def test_the_dashboard_is_drawn_on_the_terminal_although_stderr_is_a_file(
    watched: Path, tmp_path: Path
) -> None:
    with open(tmp_path / "errors.txt", "wb") as f, Terminal(str(watched), "--watch", stderr=f.fileno()) as t:
        t.wait(r"■ finished")
        t.send("d")
        assert t.ended() == 0
        assert t.restored()
    assert (tmp_path / "errors.txt").read_bytes() == b""


@pytest.mark.parametrize("term", ["", "dumb", "unknown"])
def test_a_terminal_that_can_do_nothing_gets_lines_and_is_told_so(term: str, watched: Path) -> None:
    with Terminal(str(watched), "--watch", env={"TERM": term}) as t:
        t.wait("plain lines instead of the dashboard; Ctrl-C leaves")
        t.wait("watching the trainer")
        t.send("\x03")
        assert t.ended() == 0
        assert b"\x1b" not in t.raw


def test_one_cell(watched: Path) -> None:
    with Terminal(str(watched), "--watch", columns=1, lines=1) as t:
        until(lambda: b"\x1b[?1049h" in t.raw, "its start")
        time.sleep(1.0)
        t.resize(80, 24)
        t.wait(r"■ finished")
        t.resize(1, 1)
        time.sleep(1.5)
        t.send("d")
        assert t.ended() == 0
        assert t.restored()


EDITORS = (
    ("kill -9 $$", r"killed by signal 9: the"),
    ("exit 3", r"ended with 3: the"),
    ("trap : INT; kill -INT 0; exit 4", r"ended with 4: the"),  # Ctrl-C reaches everybody
    ("sed -i 's/^floor.*/floor = 0.3/' $1", r"arms\.alpha\.floor: 0\.2 → 0\.3"),
)


def test_the_editor_borrows_the_terminal_and_whatever_becomes_of_it_the_training_goes_on(
    small_run: MakeRun, tmp_path: Path
) -> None:
    run = small_run("run", *LONG)
    short = tempfile.mkdtemp(dir="/tmp")  # what the wizard says of a long path is wrapped
    editor = Path(short) / "editor"
    with Terminal(str(run), env={"VISUAL": "", "EDITOR": str(editor)}) as t:
        t.wait(r"● training +step [1-9]")
        t.send("p")
        t.wait(r"only the name is new")
        t.send("\x05")
        t.wait(r"▲ editor: [\s\S]*can't be started")
        for body, shown in EDITORS:
            editor.write_text(f"#!/bin/bash\nstty -a > {tmp_path}/stty\n{body}\n")
            editor.chmod(0o755)
            at = e.history(run).last
            t.send("\x05")
            t.wait(shown)
            assert {"isig", "icanon", "echo"} <= set((tmp_path / "stty").read_text().split())
            until(lambda at=at: e.history(run).last > at, "a step")  # type: ignore[misc]
        t.send("\x1b")
        t.wait(r"● training +step [1-9]")
        assert not (run / names.PIVOT).exists()
        t.send("d")
        assert t.ended() == 0
        assert t.restored()
