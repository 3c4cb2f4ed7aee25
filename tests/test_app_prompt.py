"""`t`: a prompt tried in the cockpit."""

import asyncio
import os
from pathlib import Path

import psutil
import pytest
from textual import events
from textual.pilot import Pilot
from textual.widgets import Input, Static

from andrea_tui.app import CockpitApp
from andrea_tui.core.tried import Output, Tried
from andrea_tui.runner import Runner
from andrea_tui.screens import prompt
from andrea_tui.screens.prompt import PromptScreen
from engine.sampler_protocol import Begin, End, Failed, Piece, Settings
from tests import engine_process as e
from tests.conftest import make_stopped
from tests.test_sampler import at_once


@pytest.fixture(scope="module")
def trained(texts: Path, prepared: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_stopped(tmp_path_factory.mktemp("prompted") / "run", texts, prepared, ["keep.last=9"], 20)


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prompt, "command", at_once)


def shown(pilot: "Pilot[int]") -> str:
    """All outputs and the line below them."""
    widgets = [*pilot.app.screen.query(".output"), pilot.app.screen.query_one("#state")]
    return "\n".join(str(w.render()) for w in widgets if isinstance(w, Static))


async def until(pilot: "Pilot[int]", text: str) -> str:
    for _ in range(1200):
        if text in shown(pilot):
            return shown(pilot)
        await asyncio.sleep(0.05)
    raise AssertionError(f"waited for {text!r}: {shown(pilot)}")


def samplers() -> list[psutil.Process]:
    return [
        p for p in psutil.Process(os.getpid()).children() if any("sampler" in part for part in p.cmdline())
    ]


def test_a_prompt_is_tried_stopped_recalled_and_kept(trained: Path) -> None:
    asyncio.run(fly(trained))


async def fly(run: Path) -> None:
    (audit,) = (x for x in e.samples(run) if (x.step, x.prompt, x.mode) == (20, "the ", "greedy"))
    before = sorted(os.listdir(run))
    app = CockpitApp(run, Runner(run), watch=True)
    async with app.run_test(size=(80, 24)) as pilot:
        while app.store.loading is not None or not app.store.events or app.store.config is None:
            await pilot.pause(0.1)
        await pilot.press("t")
        await pilot.pause(0.2)
        assert isinstance(app.screen, PromptScreen)
        field = {
            name: app.screen.query_one(f"#{name}", Input)
            for name in ("prompt", "temperature", "step", "tokens")
        }
        assert (field["step"].value, field["tokens"].value) == ("newest", "8")  # as the audits of this run
        assert app.focused is field["prompt"]
        # a field that is wrong: one line
        field["temperature"].value = "hot"
        await pilot.press(*"the", "space", "enter")
        assert "'hot' is no number" in await until(pilot, "temperature: ")
        # stopped with Esc while it loads: no process is left, and the screen is still there
        field["temperature"].value = "0"
        await pilot.press("enter")
        while not samplers():
            await pilot.pause(0.02)
        (sampler,) = samplers()
        await pilot.press("escape")
        assert "stopped after 0 tokens" in await until(pilot, "stopped")
        gone, _ = await asyncio.to_thread(psutil.wait_procs, [sampler], 20)
        assert gone
        assert not samplers()
        assert isinstance(app.screen, PromptScreen)
        # greedy, from the newest: the text of the audit
        await pilot.press("enter")
        text = await until(pilot, f"the {audit.text}")
        assert "step 20 (" in text
        assert "greedy" in text
        # another one, by the same process
        (sampler,) = samplers()
        field["tokens"].value = "3"
        await pilot.press("enter")
        await until(pilot, "3 tokens")
        assert samplers() == [sampler]
        # a step that is not there
        field["step"].value = "7"
        await pilot.press("enter")
        assert "there are 0, 10, 20" in await until(pilot, "no checkpoint of that step")
        # out with Esc, and back: what was tried is still there
        await pilot.press("escape")
        await pilot.pause(0.2)
        assert app.screen_stack == [app.overview]
        await asyncio.to_thread(psutil.wait_procs, [sampler], 20)
        assert not samplers()
        await app.run_action("try_prompt(10)")
        await pilot.pause(0.2)
        assert app.screen.query_one("#step", Input).value == "10"
        assert f"the {audit.text}" in shown(pilot)
        await pilot.press("up")
        assert app.screen.query_one("#prompt", Input).value == "the "
        await pilot.press("down")
        assert app.screen.query_one("#prompt", Input).value == ""
        app.screen.query_one("#prompt").post_message(events.Paste("two\nlines\x1b[31m"))
        await pilot.pause(0.2)
        assert app.screen.query_one("#prompt", Input).value == "two⏎lines␛[31m"
        for size in ((40, 10), (20, 4), (200, 60)):
            await pilot.resize_terminal(*size)
            await pilot.pause(0.2)
        assert app.is_running
    assert sorted(os.listdir(run)) == before


def test_leaving_the_cockpit_leaves_no_sampler(trained: Path) -> None:
    async def leave() -> None:
        app = CockpitApp(trained, Runner(trained), watch=True)
        async with app.run_test(size=(120, 40)) as pilot:
            await pilot.press("t")
            await pilot.pause(0.2)
            await pilot.press("a", "enter")
            while not samplers():
                await pilot.pause(0.02)
            left = samplers()
            await pilot.press("ctrl+q")
        gone, _ = psutil.wait_procs(left, 20)
        assert gone

    asyncio.run(leave())


# ---- what an output says

BEGIN = Begin(step=112600, sha256="ab" * 32, params=1, settings=Settings(0.8, 50, 100, 7), cut=0, notes=[])


def test_a_text_says_what_it_was_made_from_and_nothing_in_it_moves_the_terminal() -> None:
    o = Output(1, "p")
    o.take(BEGIN)
    o.take(Piece("\x1b[2Jred\nline\u202e", 3))
    assert o.made_from() == "step 112,600 (abababab)  temperature 0.8  top-k 50  seed 7"
    assert o.shown() == "␛[2Jred\nline·"
    assert o.came_to() == "3/100 tokens"
    assert not o.over
    o.take(End("length", 3, 4.0))
    assert o.came_to() == "3 tokens, 0.8 tok/s, length"
    assert o.over


@pytest.mark.parametrize(
    ("code", "why"),
    [
        (-9, "killed by signal 9; if the machine ran out of memory"),
        (1, "the sampler ended with 1 and no word"),
    ],
)
def test_a_sampler_that_dies_is_one_clear_line(code: int, why: str) -> None:
    o = Output(1, "p")
    o.exited(code)
    assert why in o.came_to()
    said = Output(2, "p")
    said.take(Failed("too little memory"))
    said.exited(2)
    assert said.came_to() == "too little memory"


def test_only_the_last_outputs_are_kept_and_each_prompt_once() -> None:
    tried = Tried()
    for i in range(30):
        tried.begin(f"p{i % 3}", f"p{i % 3}")
    assert [o.number for o in tried.outputs] == list(range(11, 31))
    assert tried.prompts == ["p0", "p1", "p2"]
