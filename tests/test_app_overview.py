"""The app over real run directories, without a terminal: keys, sizes, death, looking on, partial redraws."""

import asyncio
import io
import json
import os
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pyte
import pytest
from textual.drivers.headless_driver import HeadlessDriver
from textual.events import Key
from textual.pilot import Pilot
from textual.widgets import Input

from andrea_tui.app import CockpitApp
from andrea_tui.core import commands
from andrea_tui.runner import Runner, TrainerState
from andrea_tui.screens.ask import Ask
from andrea_tui.screens.help import Help
from andrea_tui.screens.overview import Overview, target
from andrea_tui.screens.plan import PANES
from andrea_tui.screens.quit import QuitPanel
from engine.errors import BadInput
from engine.rundir.records import Event, LossLine, SampleLine, Status, encode


class FakeRunner(Runner):
    """A trainer that the test moves."""

    def __init__(self, run_dir: Path, alive: bool = True) -> None:
        super().__init__(run_dir)
        self.state = TrainerState(pid=77, alive=alive) if alive else TrainerState()
        self.sent: list[str] = []

    def poll(self) -> TrainerState:
        return self.state

    def start(self, extra: tuple[str, ...] = ()) -> TrainerState:
        self.sent.append("start")
        self.state = TrainerState(pid=78, alive=True, starting=True)
        return self.state

    def snapshot(self) -> None:
        self.sent.append("snapshot")

    def stop(self) -> None:
        if not self.state.alive:
            raise BadInput("no trainer runs")
        self.sent.append("stop")


def append(path: Path, *records: Any) -> None:
    with path.open("ab") as f:
        f.write(b"".join(encode(r) for r in records))


def lines(first: int, last: int) -> list[LossLine]:
    return [
        LossLine(step=i, loss=5 - i / 100, lr=1e-3, gnorm=1.0, dt=0.5, t=time.time(), seg=1,
                 rows={"chat": 5, "日本": 3}, rloss={"chat": 3.0, "日本": 2.0})
        for i in range(first, last + 1)
    ]  # fmt: skip


def set_status(run: Path, **more: Any) -> None:
    values: dict[str, Any] = dict(
        pid=77, seg=1, step=120, max_steps=1000, phase=0, doing="training", checkpoint_step=100
    )
    (run / ".status.json").write_bytes(encode(Status(**(values | more))))


@pytest.fixture
def run(tmp_path: Path) -> Path:
    d = tmp_path / "run"
    d.mkdir()
    append(d / ".loss.json", *lines(1, 120))
    append(
        d / ".events.json",
        Event(t=time.time(), event="started", text="\x1b[2J[/red][@click=app.quit]"),
        Event(t=time.time(), event="checkpoint", step=100, info={"why": "boundary", "bytes": 1000}),
    )
    for mode in ("greedy", "sampled"):
        text = "日本 \x9b2J"
        append(
            d / ".samples.json",
            SampleLine(step=100, phase=0, prompt="[b]x", mode=mode, text=text, tokens=3, t=0, seg=1),
        )
    (d / "step_000100.bin").write_bytes(bytes(1000))
    (d / "trainer.log").write_bytes(b"compiled\nTraceback\nlast words\n")
    set_status(d)
    return d


Press = Pilot[int]


async def until(pilot: Press, condition: Callable[[], Any]) -> None:
    for _ in range(500):
        await pilot.pause(0.02)
        if condition():
            return
    raise AssertionError("it never came to that")


async def loaded(pilot: Press, app: CockpitApp) -> None:
    await until(
        pilot, lambda: app.store.history.last >= 120 and app.store.loading is None and app.store.trainer.pid
    )
    app.overview.update(True)
    await pilot.pause()


def shown(app: CockpitApp) -> str:
    """The screen's text, as the compositor draws it."""
    width, height = app.size
    strips = app.screen._compositor.render_strips()
    assert len(strips) == height
    assert all(s.cell_length == width for s in strips)
    return "\n".join(s.text for s in strips)


def _shows(app: CockpitApp, text: str) -> bool:
    return text in shown(app)


def drive(body: Callable[[Press, CockpitApp, FakeRunner], Any], run_dir: Path, size: tuple[int, int] = (120, 40),
          alive: bool = True, **more: Any) -> CockpitApp:  # fmt: skip
    async def main() -> CockpitApp:
        runner = FakeRunner(run_dir, alive)
        app = CockpitApp(run_dir, runner, **more)
        async with app.run_test(size=size) as pilot:
            await body(pilot, app, runner)
        return app

    return asyncio.run(main())


def test_the_whole_overview(run: Path) -> None:
    async def body(pilot: Press, app: CockpitApp, _: FakeRunner) -> None:
        await loaded(pilot, app)
        text = shown(app)
        for expected in ("run/  ● training", "step 120/1,000 12%", "eta 7m", "120/min", "audit 100", "chat", "日本",
                         "boundary", "last words", "s snapshot", "? help", "␛[2J[/red][@click=app.quit]"):  # fmt: skip
            assert expected in text, expected
        append(run / ".loss.json", *lines(121, 130))
        await until(pilot, lambda: "step 130" in shown(app))

    drive(body, run)


@pytest.mark.parametrize("watch", [False, True])
def test_every_size_draws_and_resizing_does_too(run: Path, watch: bool) -> None:
    async def body(pilot: Press, app: CockpitApp, runner: FakeRunner) -> None:
        await loaded(pilot, app)
        for size in [
            (80, 24),
            (200, 60),
            (1, 1),
            (3, 2),
            (79, 23),
            (40, 10),
            (300, 100),
            (81, 25),
            (120, 40),
        ]:
            await pilot.resize_terminal(*size)
            await pilot.pause()
            app.overview.update(True)
            await pilot.pause()
            text = shown(app)
            assert size[0] < 40 or "training" in text
            assert not watch or "snapshot" not in text

    drive(body, run, watch=watch)


def test_an_empty_run_and_no_directory_at_all(tmp_path: Path) -> None:
    async def body(pilot: Press, app: CockpitApp, _: FakeRunner) -> None:
        await until(pilot, lambda: app.store.revision)
        await until(pilot, lambda: "no step yet" in shown(app))
        await pilot.press("plus", "left", "y", "comma", "enter", "escape", "tab", "down", "0")
        assert "no step yet" in shown(app)

    (tmp_path / "empty").mkdir()
    drive(body, tmp_path / "empty", alive=False)
    drive(body, tmp_path / "missing", size=(80, 24), alive=False)


def test_q_counts_down_and_a_second_q_changes_nothing(run: Path) -> None:
    async def body(pilot: Press, app: CockpitApp, runner: FakeRunner) -> None:
        await loaded(pilot, app)
        await pilot.press("q", "q", "q")
        assert isinstance(app.screen, QuitPanel)
        assert "stopping the training cleanly in" in shown(app)
        await pilot.press("escape")
        assert not isinstance(app.screen, QuitPanel)
        assert runner.sent == []
        await pilot.press("q", "enter")
        await until(pilot, lambda: runner.sent == ["stop"])
        await pilot.press("q", "enter")
        assert runner.sent == ["stop"]
        assert "the step is finished" in shown(app)
        assert app.is_running
        runner.state = TrainerState(pid=77, exit_code=4)
        await until(pilot, lambda: app._exit)

    assert drive(body, run).return_value == 4


def test_the_countdown_stops_it_by_itself(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(QuitPanel.__init__, "__defaults__", (0.1,))

    async def body(pilot: Press, app: CockpitApp, runner: FakeRunner) -> None:
        await loaded(pilot, app)
        await pilot.press("q")
        await until(pilot, lambda: runner.sent == ["stop"])

    drive(body, run)


@pytest.mark.parametrize("keys", [("d",), ("ctrl+c",), ("ctrl+q",), ("q", "d"), ("q", "ctrl+c")])
def test_detaching_leaves_the_training_alone(run: Path, keys: tuple[str, ...]) -> None:
    async def body(pilot: Press, app: CockpitApp, runner: FakeRunner) -> None:
        await loaded(pilot, app)
        await pilot.press(*keys)
        await until(pilot, lambda: app._exit)
        assert runner.sent == []

    assert drive(body, run).return_value == 0


def test_escape_never_quits_and_panes_open_and_close(run: Path) -> None:
    async def body(pilot: Press, app: CockpitApp, runner: FakeRunner) -> None:
        await loaded(pilot, app)
        await pilot.press("3", "enter")
        await pilot.pause()
        assert app.overview.full == "audit"
        assert "checkpoints" not in shown(app)
        await pilot.press("tab")
        assert app.overview.full == "checkpoints"
        await pilot.press("escape", "escape", "escape", "question_mark")
        assert isinstance(app.screen, Help)
        await pilot.press("escape", "escape")
        assert app.is_running
        assert not app._exit
        assert "checkpoints" in shown(app)
        await pilot.resize_terminal(40, 10)
        await pilot.press("5")  # has no room here
        assert app.overview.full == "events"

    drive(body, run)


def test_snapshot_is_asked_and_confirmed(run: Path) -> None:
    async def body(pilot: Press, app: CockpitApp, runner: FakeRunner) -> None:
        await loaded(pilot, app)
        await pilot.press("s")
        assert runner.sent == ["snapshot"]
        await until(pilot, lambda: "snapshot asked" in shown(app))
        append(
            run / ".events.json", Event(t=time.time(), event="checkpoint", step=120, info={"why": "snapshot"})
        )
        await until(pilot, lambda: "snapshot step 120 saved" in shown(app))

    drive(body, run)


def test_a_death_shows_code_log_and_the_way_on(run: Path) -> None:
    async def body(pilot: Press, app: CockpitApp, runner: FakeRunner) -> None:
        await loaded(pilot, app)
        runner.state = TrainerState(pid=77, exit_code=-9)
        await until(pilot, lambda: "✗ dead 9" in shown(app))
        text = shown(app)
        for expected in ("SIGKILL", "last words", "r starts it again", "eta n/a"):
            assert expected in text
        await pilot.press("r")
        await until(pilot, lambda: runner.sent == ["start"])
        await until(pilot, lambda: "starting" in shown(app))

    for size in ((120, 40), (80, 24)):
        drive(body, run, size)
        set_status(run)


def test_it_starts_the_trainer_when_told_to_and_q_leaves_when_there_is_none(run: Path) -> None:
    async def starts(pilot: Press, app: CockpitApp, runner: FakeRunner) -> None:
        await until(pilot, lambda: runner.sent == ["start"])

    async def leaves(pilot: Press, app: CockpitApp, runner: FakeRunner) -> None:
        await until(pilot, lambda: app.store.revision)
        await pilot.press("q")
        await until(pilot, lambda: app._exit)

    drive(starts, run, alive=False, start=True)
    drive(leaves, run, alive=False)


def test_who_looks_on_has_no_power(run: Path) -> None:
    async def body(pilot: Press, app: CockpitApp, runner: FakeRunner) -> None:
        await loaded(pilot, app)
        await pilot.press("s", "r", "p")
        assert "looking on" in shown(app)
        text = " ".join(c.title + c.help for c in app.get_system_commands(app.screen)).lower()
        assert "stop the training" not in text
        assert "checkpoint and its audit" not in text
        await pilot.press("q")
        await until(pilot, lambda: app._exit)
        assert runner.sent == []

    drive(body, run, watch=True, start=True)


def test_every_command_has_its_action() -> None:
    for c in commands.COMMANDS:
        where, _, name = target(c.action).partition(".")
        owner = Overview if where == "screen" else CockpitApp
        assert hasattr(owner, f"action_{name.split('(')[0]}"), c.action


def test_themes_differ_and_are_changed(run: Path) -> None:
    async def body(pilot: Press, app: CockpitApp, _: FakeRunner) -> None:
        await loaded(pilot, app)
        before = app.export_screenshot()
        app.action_set_theme("light")
        await pilot.pause(0.1)
        assert app.export_screenshot() != before

    drive(body, run)


def test_after_partial_updates_the_terminal_shows_what_a_full_redraw_would(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent = io.StringIO()
    monkeypatch.setattr(HeadlessDriver, "write", lambda self, data: sent.write(data))
    monkeypatch.setattr(CockpitApp, "is_headless", property(lambda self: False))

    def emulate(data: str) -> list[str]:
        screen = pyte.Screen(120, 40)
        pyte.Stream(screen).feed(data)
        return list(screen.display)

    async def body(pilot: Press, app: CockpitApp, runner: FakeRunner) -> None:
        await loaded(pilot, app)
        rounds = [(131, 190), (191, 191), (192, 260), (251, 255)]
        for i, (first, last) in enumerate(rounds):
            append(run / ".loss.json", *lines(first, last))
            append(run / ".events.json", Event(t=time.time(), event="warning", step=i, text="日本 " * i))
            with (run / "trainer.log").open("ab") as f:
                f.write(f"line {i} 日本\n".encode())
            set_status(run, doing="checkpointing" if i == 2 else "training", behind=i % 2)
            await until(pilot, partial(_shows, app, f"step {last}/"))
            if i == 1:
                await pilot.press("plus", "y", "down")
            # it may still age by a second between two looks: wait for a moment when both agree
            await until(pilot, lambda: emulate(sent.getvalue()) == _full(app))
        assert len(sent.getvalue()) > 0

    def _full(app: CockpitApp) -> list[str]:
        update = app.screen._compositor.render_update(full=True)
        return emulate(update.render_segments(app.console))  # type: ignore[union-attr]

    drive(body, run)


def test_nothing_is_sent_while_nothing_changes(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from andrea_tui.widgets.pane import Pane

    async def body(pilot: Press, app: CockpitApp, runner: FakeRunner) -> None:
        await loaded(pilot, app)
        app.feed.close()
        await pilot.pause(0.1)
        refreshed: list[Any] = []
        monkeypatch.setattr(Pane, "refresh", lambda self, *regions, **_: refreshed.append((self.id, regions)))
        app.overview.update()
        app.overview.update(True)
        # the age of the last step and the like may turn over; nothing else
        assert {name for name, _ in refreshed} <= {"status", "checkpoints", "compact"}
        assert all(regions for _, regions in refreshed)

    drive(body, run)


def test_the_run_directory_is_left_as_it_was(run: Path) -> None:
    before = {p.name: p.read_bytes() for p in run.iterdir()}

    async def body(pilot: Press, app: CockpitApp, runner: FakeRunner) -> None:
        await loaded(pilot, app)

    drive(body, run, watch=True)
    assert {p.name: p.read_bytes() for p in run.iterdir()} == before
    assert json.loads(before[".status.json"])["pid"] == 77
    assert os.path.isdir(run)


@pytest.mark.parametrize("key", ["g", "slash"])
def test_keys_that_follow_at_once_are_text_and_none_is_lost(key: str, run: Path) -> None:
    async def body(pilot: Press, app: CockpitApp, _: FakeRunner) -> None:
        await loaded(pilot, app)
        for k in (key, "1", "2", "3", "4"):
            app.post_message(Key(k, k if len(k) == 1 else "/"))
        await until(pilot, lambda: isinstance(app.screen, Ask) and app.screen.query(Input))
        await until(pilot, lambda: app.screen.query_one(Input).value == "1234")
        assert app.overview.full == ""  # no digit chose a pane

    drive(body, run)


def test_the_keys_page_is_that_of_the_commands() -> None:
    page = Path(__file__).parent.parent / "docs" / "KEYS.md"
    assert page.read_text("utf-8") == commands.table()


def test_a_reflex_in_the_palette_changes_nothing(run: Path) -> None:
    async def body(pilot: Press, app: CockpitApp, runner: FakeRunner) -> None:
        await loaded(pilot, app)
        found = list(app.get_system_commands(app.screen))
        assert len(found) > 20
        acting = [c.help for c in commands.COMMANDS if c.changes]
        assert not any(found[0].title.startswith(text.split(";")[0]) for text in acting)
        await pilot.press("ctrl+p")
        await until(pilot, lambda: len(app.screen_stack) > 1)
        await pilot.press("enter")
        await pilot.pause(0.3)
        assert runner.sent == []

    drive(body, run)


@pytest.mark.parametrize("key", ["g", "slash"])
def test_the_line_to_type_in_is_edited_and_left(key: str, run: Path) -> None:
    async def body(pilot: Press, app: CockpitApp, _: FakeRunner) -> None:
        await loaded(pilot, app)
        await pilot.press(key)
        await until(pilot, lambda: isinstance(app.screen, Ask) and app.screen.query(Input))
        await pilot.press("a", "b", "c", "backspace", "left", "x")
        assert app.screen.query_one(Input).value == "axb"
        await pilot.press("escape")
        assert app.screen is app.overview
        assert app.overview.full == ""

    drive(body, run)


def test_the_frame_in_focus_is_that_of_the_pane_in_focus(run: Path) -> None:
    async def body(pilot: Press, app: CockpitApp, _: FakeRunner) -> None:
        await loaded(pilot, app)
        for keys in (["1"], ["3"], ["tab"], ["3", "enter", "escape", "1"], ["4", "enter", "escape", "5"]):
            await pilot.press(*keys)
            await pilot.pause(0.1)
            for name in set(app.overview._board.boxes()) & set(PANES):
                pane = app.overview.pane(name)
                assert (pane._lines[0][0][1] == "focus") is pane.has_focus, (keys, name)

    drive(body, run)
