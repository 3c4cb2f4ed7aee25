"""`c`: this run beside another one, in the cockpit."""

import asyncio
from pathlib import Path

from textual.pilot import Pilot
from textual.widgets import Input, Static

from andrea_tui.app import CockpitApp
from andrea_tui.runner import Runner
from andrea_tui.screens.compare import CompareScreen
from engine.branch import branch
from tests import engine_process as e
from tests.conftest import MakeRun


async def until(pilot: "Pilot[int]", text: str) -> str:
    """The report, once that is in it."""
    for _ in range(600):
        shown = str(pilot.app.screen.query_one("#report", Static).render())
        if text in shown:
            return shown
        await asyncio.sleep(0.1)
    raise AssertionError(f"waited for {text!r}: {shown}")


def test_two_runs_side_by_side_and_what_can_not_be_compared(small_run: MakeRun) -> None:
    run: Path = small_run("run")
    assert e.finish(run, "--stop-at", "30") == 0
    other = run.parent / "other"
    branch(run, other, 20, None, ["optim.lr=0.01"])
    asyncio.run(look(run, other))


async def look(run: Path, other: Path) -> None:
    app = CockpitApp(run, Runner(run), watch=True)
    async with app.run_test(size=(100, 30)) as pilot:
        while app.store.loading is not None or not app.store.events:
            await pilot.pause(0.1)
        await pilot.press("c")
        await pilot.pause(0.2)
        assert isinstance(app.screen, CompareScreen)
        field = app.screen.query_one(Input)
        assert field.value == str(other.resolve())  # the branch that was made last
        await pilot.press("enter")
        shown = await until(pilot, "fork: after step 20")
        assert "optim.lr" in shown
        await pilot.press("escape")
        field.value = str(run.parent / "nowhere")
        await pilot.press("enter")
        assert "nowhere" in await until(pilot, "nowhere")
        await pilot.press("escape")
        await pilot.press("escape")
        await pilot.pause(0.2)
        assert app.screen_stack[-1] is app.overview  # Esc never quits
        assert app.is_running
