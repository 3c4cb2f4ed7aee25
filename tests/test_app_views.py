"""The list views in the app: filter, jump, what can be done with a checkpoint, looking on."""

import asyncio
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from textual.pilot import Pilot
from textual.widgets import Input

from andrea_tui.app import CockpitApp
from andrea_tui.core import commands
from andrea_tui.screens.checkpoint import CheckpointMenu
from andrea_tui.widgets.audit import AuditPane
from andrea_tui.widgets.checkpoints import CheckpointsPane
from andrea_tui.widgets.events import EventsPane
from engine.rundir import checkpoint, names
from engine.rundir.records import Event, encode
from tests import engine_process as e
from tests.conftest import make_stopped
from tests.test_app_overview import FakeRunner, shown

Press = Pilot[int]
Body = Callable[[Press, CockpitApp], Any]


@pytest.fixture(scope="module")
def trained(texts: Path, prepared: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """40 steps, with checkpoints at 0, 10, 20, 30 and 40."""
    run = tmp_path_factory.mktemp("trained") / "run"
    return make_stopped(run, texts, prepared, ["keep.last=9"], 40)


@pytest.fixture
def run(trained: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(trained, tmp_path / "run"))


async def until(pilot: Press, condition: Callable[[], Any]) -> None:
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end, shown(pilot.app)  # type: ignore[arg-type]
        await pilot.pause(0.02)


def drive(
    body: Body, run_dir: Path, size: tuple[int, int] = (100, 30), alive: bool = False, **more: Any
) -> None:
    async def main() -> None:
        app = CockpitApp(run_dir, FakeRunner(run_dir, alive), **more)
        async with app.run_test(size=size) as pilot:
            await until(
                pilot, lambda: app.store.loading is None and app.store.history.last >= 40 and app.store.sizes
            )
            app.overview.show_away(None)
            app.overview.update(True)
            await pilot.pause()
            await body(pilot, app)

    asyncio.run(main())


async def menu(pilot: Press, app: CockpitApp, downs: int = 0) -> CheckpointMenu:
    """Of the checkpoint so many rows below the newest."""
    app.overview.show_full("checkpoints")
    await pilot.pause()
    await pilot.press(*["home"], *["down"] * downs, "enter")
    await until(pilot, lambda: "checkpoint of step" in shown(app))
    assert isinstance(app.screen, CheckpointMenu)
    return app.screen


def pane(app: CockpitApp, kind: type[Any]) -> Any:
    return app.overview.query_one(kind)


def test_events_are_filtered_and_lead_to_the_chart(run: Path) -> None:
    async def body(pilot: Press, app: CockpitApp) -> None:
        await pilot.press("5")
        await pilot.press("slash", *"checkpoint 20", "enter")
        await until(pilot, lambda: "events 1 of" in shown(app))
        assert app.overview.full == "events"
        assert "audit" not in shown(app)
        await pilot.press("enter")
        await until(pilot, lambda: app.overview.full == "chart")
        await pilot.press("5")
        await until(pilot, lambda: "/checkpoint 20" in shown(app))
        await pilot.press("escape")  # first the filter
        await until(pilot, lambda: "/checkpoint 20" not in shown(app))
        assert app.overview.full == "events"
        await pilot.press("escape")
        assert app.overview.full == ""

    drive(body, run)


def test_keys_of_the_events_and_its_mouse(run: Path) -> None:
    async def body(pilot: Press, app: CockpitApp) -> None:
        app.overview.show_full("events")
        await pilot.pause()
        events = pane(app, EventsPane)
        last = events.at
        await pilot.press("up", "up")
        assert (events.at, events.follows) == (last - 2, False)
        with (run / names.EVENTS).open("ab") as f:
            f.write(encode(Event(t=time.time(), event="warning", text="something else")))
        await until(pilot, lambda: "1 new ↓" in shown(app))
        assert events.at == last - 2
        await pilot.press("exclamation_mark")
        await until(pilot, lambda: "warnings only" in shown(app) and "events 1 of" in shown(app))
        await pilot.press("e")
        await until(pilot, lambda: "warnings only" not in shown(app))
        await pilot.press("e", "escape")
        await until(pilot, lambda: events.follows and not events.worse)
        await pilot.click(EventsPane, offset=(20, 2))
        assert not events.follows
        assert events.at == events.top + 1
        await pilot.press("f")
        assert events.follows

    drive(body, run)


def test_a_checkpoint_is_read_back_and_an_event_tells_it(run: Path) -> None:
    async def body(pilot: Press, app: CockpitApp) -> None:
        screen = await menu(pilot, app, downs=2)
        assert screen.step == 20
        assert "written, not read back" in shown(app)
        await pilot.press("v")
        await until(pilot, lambda: "as recorded, finite" in shown(app))
        await pilot.press("escape")
        await until(pilot, lambda: "s ago" in shown(app))
        (told,) = e.named(run, "verified")
        assert list(told.info["sha256"]) == ["step_000020.bin"]
        path = checkpoint.scan(run)[0][0].path
        data = bytearray(path.read_bytes())
        data[500] ^= 4
        path.write_bytes(data)
        await menu(pilot, app)
        await pilot.press("enter")  # the first item
        await until(pilot, lambda: "damaged: its sha256" in shown(app))
        await pilot.press("escape")
        await until(pilot, lambda: "damaged 0s ago" in shown(app) or "damaged 1s ago" in shown(app))
        assert e.named(run, "verified")[-1].info["damaged"]

    drive(body, run)


def test_reading_back_can_be_cancelled(run: Path) -> None:
    async def body(pilot: Press, app: CockpitApp) -> None:
        screen = await menu(pilot, app)
        screen._cancel.set()
        screen._cancel.clear = lambda: None  # type: ignore[method-assign]  # Esc, before the first piece is read
        await pilot.press("v")
        await until(pilot, lambda: "cancelled" in shown(app))
        assert not e.named(run, "verified")

    drive(body, run)


def test_a_rollback_takes_a_typed_y(run: Path) -> None:
    log = (run / names.LOSS).read_bytes()

    async def body(pilot: Press, app: CockpitApp) -> None:
        screen = await menu(pilot, app, downs=2)
        await pilot.press("r")
        await until(pilot, lambda: "20 steps" in shown(app) and "2 later checkpoints" in shown(app))
        await pilot.press("enter", "enter", "space", "r", "q", "s")  # control: no reflex does it
        await pilot.pause(0.3)
        assert screen.stage == "rollback"
        assert (run / names.LOSS).read_bytes() == log
        await pilot.press("y")
        await until(pilot, lambda: screen.stage == "said")
        assert "stands at step 20 now (was 40)" in str(screen._said)
        await pilot.press("escape")
        await until(pilot, lambda: "step 20/" in shown(app))
        assert [c.step for c in checkpoint.scan(run)[0]] == [20, 10, 0]
        assert e.named(run, "rollback")[-1].info["back_from"] == 40

    drive(body, run)


def test_a_run_that_is_trained_is_not_rolled_back(run: Path) -> None:
    log = (run / names.LOSS).read_bytes()

    async def body(pilot: Press, app: CockpitApp) -> None:
        screen = await menu(pilot, app, downs=2)
        assert "stop it first (q)" in shown(app)
        await pilot.press("r", "y", "enter")
        assert screen.stage == "menu" or app.screen is not screen
        screen.stage = "rollback"  # the trainer was started while the question stood
        await screen.run_action("confirm")
        await pilot.pause(0.3)
        assert "nothing was changed" in shown(app)

    drive(body, run, alive=True)
    assert (run / names.LOSS).read_bytes() == log


def test_a_branch_is_made_where_a_person_says(run: Path) -> None:
    new = run.parent / "my branch"

    async def body(pilot: Press, app: CockpitApp) -> None:
        screen = await menu(pilot, app, downs=1)
        await pilot.press("b", "enter")  # no name, no branch
        assert screen.stage == "branch"
        field = screen.query_one(Input)
        await pilot.press(*"my")  # no key of the menu
        assert field.value == "my"
        field.value = str(new)
        await pilot.press("enter")
        await until(pilot, lambda: screen.stage == "said")
        assert "branched from" in str(screen._said)
        await pilot.press("escape")
        screen = await menu(pilot, app, downs=1)
        await pilot.press("b")
        screen.query_one(Input).value = str(new)
        await pilot.press("enter")
        await until(pilot, lambda: "is there already" in str(screen._said))

    drive(body, run)
    assert [c.step for c in checkpoint.scan(new)[0]] == [30]
    assert e.named(run, "branch")[-1].step == 30


def test_its_audit_and_its_place_in_the_chart(run: Path) -> None:
    async def body(pilot: Press, app: CockpitApp) -> None:
        await menu(pilot, app, downs=3)
        await pilot.press("a")
        await until(pilot, lambda: app.overview.full == "audit")
        await until(pilot, lambda: "audit 10" in shown(app))
        await pilot.press("right_square_bracket")
        await until(pilot, lambda: "audit 20" in shown(app))
        await pilot.press("enter")
        await until(pilot, lambda: "through time" in shown(app))
        await pilot.press("slash", *"30", "enter")
        await until(pilot, lambda: "1 of 5 audits" in shown(app))
        await menu(pilot, app, downs=3)
        await pilot.press("c")
        await until(pilot, lambda: app.overview.full == "chart")
        assert pane(app, AuditPane).searched == "30"

    drive(body, run)


def test_who_looks_on_can_do_what_changes_nothing(run: Path) -> None:
    before = {p.name: p.read_bytes() for p in run.iterdir() if p.is_file()}

    async def body(pilot: Press, app: CockpitApp) -> None:
        screen = await menu(pilot, app, downs=2)
        text = shown(app)
        assert "branch" not in text.split("checkpoint of step")[1]
        assert "roll back" not in text.split("checkpoint of step")[1]
        await pilot.press("r", "b", "y")
        assert screen.stage == "menu"
        await pilot.press("v")
        await until(pilot, lambda: "as recorded, finite" in shown(app))
        await pilot.press("escape")
        assert pane(app, CheckpointsPane).view is not None

    drive(body, run, watch=True)
    assert {p.name: p.read_bytes() for p in run.iterdir() if p.is_file()} == before


def test_a_file_that_is_gone_is_marked_and_can_not_be_used(run: Path) -> None:
    (run / "step_000030.bin").unlink()

    async def body(pilot: Press, app: CockpitApp) -> None:
        screen = await menu(pilot, app, downs=1)
        await until(pilot, lambda: "✗ gone" in shown(app))  # not at once: a new file may not be seen yet
        await pilot.press("v", "b", "r", "t")
        assert app.screen is screen
        assert screen.stage == "menu"

    drive(body, run)


@pytest.mark.parametrize("view", ["checkpoints", "events", "audit"])
def test_the_footer_of_a_view_has_its_keys_and_the_way_back(view: str) -> None:
    items = commands.footer(False, True, 78, view)
    assert ("Esc", "back") in items
    assert ("?", "help") in items
    assert items[0][1] not in ("snapshot", "back")
