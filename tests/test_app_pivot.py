"""The pivot wizard without a terminal: what a person sees and types, and that nothing happens before `y`."""

import contextlib
import os
import re
import shutil
import time
from pathlib import Path
from typing import Any

import pytest

from andrea_tui.app import CockpitApp
from andrea_tui.core import alerts
from andrea_tui.core.feed import Reader
from andrea_tui.core.store import Store
from andrea_tui.runner import TrainerState
from andrea_tui.screens import pivot_form
from andrea_tui.screens.overview import Overview
from andrea_tui.screens.pivot import PivotWizard
from andrea_tui.screens.pivot_form import Field, PolicyForm
from andrea_tui.screens.pivot_progress import PivotScreen
from engine import pivoting
from engine.config import load_policy
from engine.rundir import names, pivot
from engine.rundir.pivot import Pivot
from engine.rundir.records import Event, LossLine, Status, encode
from tests import engine_process as e
from tests.conftest import MakeRun, make_small
from tests.test_app_overview import FakeRunner, Press, append, drive, shown, until


def lines(first: int, last: int, phase: int = 0) -> list[LossLine]:
    return [
        LossLine(step=i, loss=5 - i / 100, lr=1e-3, gnorm=1.0, dt=0.5, t=time.time(), seg=1, phase=phase,
                 rows={"alpha": 2, "beta": 2}, rloss={"alpha": 3.0, "beta": 2.0})
        for i in range(first, last + 1)
    ]  # fmt: skip


def status(run: Path, step: int) -> None:
    s = Status(pid=77, seg=1, step=step, max_steps=200, phase=0, doing="training", checkpoint_step=20)
    (run / names.STATUS).write_bytes(encode(s))


@pytest.fixture
def run(small_run: MakeRun) -> Path:
    """23 steps of a run that "trains"; the next boundary is step 30."""
    d = small_run("run")
    append(d / names.LOSS, *lines(1, 23))
    append(d / names.EVENTS, Event(t=time.time(), event="started"))
    status(d, 23)
    return d


def files(run: Path) -> dict[str, bytes]:
    return {str(p.relative_to(run)): p.read_bytes() for p in run.rglob("*") if p.is_file()}


def wizard(app: CockpitApp) -> PivotWizard:
    assert isinstance(app.screen, PivotWizard)
    return app.screen


def flat(app: CockpitApp) -> str:
    """The screen's words, wherever they wrap."""
    return " ".join(shown(app).split())


def step(app: CockpitApp) -> str:
    return app.screen.step if isinstance(app.screen, PivotScreen) else ""


def field(app: CockpitApp, *path: str) -> Field:
    return next(f for f in app.screen.query(Field) if f.path == path)


async def opened(pilot: Press, app: CockpitApp) -> PivotWizard:
    await until(
        pilot, lambda: app.store.history.last >= 23 and app.store.loading is None and app.store.config
    )
    await pilot.press("p")
    await until(pilot, lambda: isinstance(app.screen, PivotWizard) and app.screen.query("#keys"))
    await pilot.pause()
    return wizard(app)


async def typed(pilot: Press, app: CockpitApp, value: str, *path: str) -> None:
    """Over what stands in the field, key by key, until it was checked."""
    f = field(app, *path)
    f.focus()
    await pilot.pause()
    await pilot.press("ctrl+u", *value)
    checks = 0
    while f.value != value:
        await pilot.pause(0.02)
        checks += 1
        assert checks < 200
    await pilot.pause(pivot_form.DEBOUNCE + 0.15)


async def put(pilot: Press, app: CockpitApp, value: str, *path: str) -> None:
    """As `typed`, at once."""
    f = field(app, *path)
    f.focus()
    f.value = value
    await pilot.pause()
    app.screen.query_one(PolicyForm).check()
    await pilot.pause()


async def at_review(pilot: Press, app: CockpitApp, floor: str = "0.3") -> PivotWizard:
    w = await opened(pilot, app)
    await put(pilot, app, floor, "arms", "alpha", "floor")
    await pilot.press("enter")
    await until(pilot, lambda: w.step == "when")
    await pilot.press("enter")
    await until(pilot, lambda: w.step == "review")
    await pilot.pause()
    return w


def another(run: Path, when: str = "boundary") -> Pivot:
    """A request as somebody else makes it."""
    text = (run / names.POLICY).read_text("utf-8").replace('name = "v1-builtin"', 'name = "theirs"')
    path = run.parent / "theirs.toml"
    path.write_text(text, "utf-8")
    p = pivoting.request(text, load_policy(path), load_policy(run / names.POLICY), 23, when)
    p.by = "eve\x1b[2J@there, pid 4"
    return p


def test_a_floor_is_edited_and_the_boundary_asked_for(run: Path) -> None:
    async def body(pilot: Press, app: CockpitApp, runner: FakeRunner) -> None:
        await at_review(pilot, app)
        text = shown(app)
        for expected in ("v1-builtin → v2-builtin at the next boundary, step 30", "arms.alpha.floor: 0.2 → 0.3",
                         "KEEP    weights, m and v", ".loss.json: all 23 steps", "ARCHIVE .samples.json",
                         "RESET   the bandit"):  # fmt: skip
            assert expected in text, expected
        before = files(run)
        await pilot.press("enter", "enter", "space")
        await pilot.pause(0.3)
        assert step(app) == "review"
        assert files(run) == before
        assert runner.sent == []
        await pilot.press("y")
        await until(pilot, lambda: step(app) == "progress")
        p = pivot.read(run)
        assert p is not None
        assert (p.old_name, p.new_name, p.when, p.step) == ("v1-builtin", "v2-builtin", "boundary", 24)
        assert load_policy_text(run, p.policy).arms["alpha"].floor == 0.3
        assert runner.sent == ["snapshot"]  # the way back, and the word to the trainer
        await until(pilot, lambda: "at step 30: 7 steps, about 3s" in shown(app))
        append(run / names.LOSS, *lines(24, 26))
        await until(pilot, lambda: "step 26 of 30" in shown(app) and "4 steps, about 2s" in shown(app))
        await pilot.press("escape")
        await until(pilot, lambda: isinstance(app.screen, Overview))
        await until(pilot, lambda: "◌ pivot to v2-builtin at step 30: 4 steps" in shown(app))
        assert pivot.read(run) == p  # left, and it stands

    drive(body, run)


def load_policy_text(run: Path, text: str) -> Any:
    path = run.parent / "read.toml"
    path.write_text(text, "utf-8")
    return load_policy(path)


def test_it_is_checked_while_it_is_typed_and_the_impossible_goes_no_further(run: Path) -> None:
    async def body(pilot: Press, app: CockpitApp, runner: FakeRunner) -> None:
        await opened(pilot, app)
        before = shown(app)
        assert "only the name is new" in before
        for path, value, said in (
            (("arms", "beta", "floor"), "0.9", "the floors sum to 1.1, more than 1"),
            (("arms", "beta", "floor"), "abc", "arms.beta.floor: 'abc' is not a number"),
            (("arms", "beta", "floor"), "nan", "arms.beta.floor: nan is not a finite number"),
            (("arms", "beta", "cap"), "0.1", "arms.beta.floor: 0.2 is above cap = 0.1"),
            (("kind",), "ucb2", "kind: invalid enum value"),
            (("ucb1", "focus"), "1.5", "ucb1.focus: '1.5' is not a whole number"),
            (("heldout", "rows"), "0", "heldout.rows: expected"),
            (("warmup_steps",), "5", "warmup_arms: empty"),
            (("warmup_arms",), "alfa", "did you mean alpha"),
        ):
            old = field(app, *path).value
            await put(pilot, app, value, *path)
            assert said in flat(app), (said, shown(app))
            await pilot.press("enter")
            await pilot.pause()
            assert step(app) == "policy"
            await put(pilot, app, old, *path)
            assert "▲" not in shown(app)
        await typed(pilot, app, "0.7", "arms", "beta", "floor")
        await until(pilot, lambda: "– → 30.0%" in shown(app) and "– → 70.0%" in shown(app))
        append(run / names.LOSS, *lines(24, 25))  # the trainer goes on beside it
        await until(pilot, lambda: app.store.history.last == 25)
        await pilot.press("enter")
        await until(pilot, lambda: step(app) == "when" and "present step, 25" in shown(app))

    untouched = files(run)
    drive(body, run)
    now = files(run)
    del untouched[names.LOSS], now[names.LOSS]
    assert now == untouched


def test_escape_at_each_step_leaves_everything_untouched(run: Path) -> None:
    before = files(run)

    async def body(pilot: Press, app: CockpitApp, runner: FakeRunner) -> None:
        w = await opened(pilot, app)
        await pilot.press("escape")
        await until(pilot, lambda: isinstance(app.screen, Overview))
        w = await at_review(pilot, app)
        await pilot.press("escape")
        assert w.step == "when"
        await pilot.press("n")
        assert w.step == "review"
        await pilot.pause()
        assert "after the present step, step 23" in shown(app)
        await pilot.press("escape", "escape")
        assert w.step == "policy"
        assert field(app, "arms", "alpha", "floor").value == "0.3"  # the draft is kept on the way back
        assert field(app, "arms", "alpha", "floor").has_focus
        await pilot.press("ctrl+o", "escape")
        assert w.step == "policy"
        await pilot.press("escape", "escape", "escape")
        await until(pilot, lambda: isinstance(app.screen, Overview))
        assert app.is_running and not app._exit
        assert runner.sent == []

    drive(body, run)
    assert files(run) == before


def test_a_standing_request_opens_at_its_progress_and_w_withdraws_it(run: Path) -> None:
    async def body(pilot: Press, app: CockpitApp, runner: FakeRunner) -> None:
        await until(pilot, lambda: app.store.history.last >= 23 and app.store.trainer.pid)
        pivot.ask(run, another(run))
        await until(pilot, lambda: "◌ pivot to theirs at step 30: 7 steps" in shown(app))
        await pilot.press("p")
        await until(pilot, lambda: step(app) == "progress" and "asked by eve␛[2J@there" in shown(app))
        await pilot.press("enter", "y")
        assert (run / names.PIVOT).exists()
        await pilot.press("w")
        await until(pilot, lambda: step(app) == "summary")
        await until(pilot, lambda: "the pivot to theirs was withdrawn" in shown(app))
        assert not (run / names.PIVOT).exists()
        await pilot.press("escape")
        await until(pilot, lambda: isinstance(app.screen, Overview) and "◌ pivot" not in shown(app))

    drive(body, run)


def test_who_looks_on_sees_it_and_cannot_open_it(run: Path) -> None:
    async def body(pilot: Press, app: CockpitApp, runner: FakeRunner) -> None:
        await until(pilot, lambda: "◌ pivot to theirs at step 30" in shown(app))
        await pilot.press("p")
        await pilot.pause()
        assert isinstance(app.screen, Overview)
        assert "p pivot" not in shown(app)

    pivot.ask(run, another(run))
    drive(body, run, watch=True)


def test_the_second_of_two_cockpits_is_refused_by_the_name_of_the_first(run: Path) -> None:
    async def body(pilot: Press, app: CockpitApp, runner: FakeRunner) -> None:
        w = await at_review(pilot, app)
        first = another(run)
        pivot.ask(run, first)
        await pilot.press("y")
        await until(pilot, lambda: app.screen is w and "asked for already, to 'theirs'" in flat(app))
        assert "eve␛[2J@there, pid 4" in flat(app)
        assert pivot.read(run) == first
        assert w.step == "review"
        await pilot.press("escape", "escape")
        await until(pilot, lambda: "▲ a pivot to theirs is asked for already" in shown(app))

    drive(body, run)


def test_a_trainer_that_ends_under_the_review_makes_it_be_read_again(run: Path) -> None:
    async def body(pilot: Press, app: CockpitApp, runner: FakeRunner) -> None:
        await at_review(pilot, app)
        app.feed.close()
        runner.state = TrainerState()
        await pilot.press("y")
        await pilot.pause()
        assert "the trainer has ended meanwhile: read this again, then y" in shown(app)
        assert "at once, from step 0" in shown(app)
        assert not (run / names.PIVOT).exists()

    drive(body, run)


def test_a_policy_that_changed_under_the_review_is_not_pivoted_from(run: Path) -> None:
    async def body(pilot: Press, app: CockpitApp, runner: FakeRunner) -> None:
        await at_review(pilot, app)
        (run / names.POLICY).write_text(another(run).policy, "utf-8")
        await pilot.press("y")
        await pilot.pause()
        assert "the policy in force is theirs since" in flat(app)
        assert not (run / names.PIVOT).exists()

    drive(body, run)


@pytest.mark.parametrize("size", [(80, 24), (120, 40)])
def test_nothing_that_matters_is_cut(size: tuple[int, int], run: Path) -> None:
    async def body(pilot: Press, app: CockpitApp, runner: FakeRunner) -> None:
        w = await opened(pilot, app)

        async def whole(*expected: str) -> None:
            await until(pilot, lambda: "…" not in shown(app) and all(x in flat(app) for x in expected))

        await whole("1 policy › 2 when", "v1-builtin v2-builtin", "alpha – → 45.6% 0.2 0.2 1 1 0 0", "ctrl+e editor",
              "Esc leave",
              "heldout.power", "warmup_arms", "ucb1.focus_share 0.5 0.5")  # fmt: skip
        await typed(pilot, app, "0.95", "arms", "alpha", "floor")
        await whole("the floors sum to 1.15, more than 1; lower some")
        await typed(pilot, app, "0.35", "arms", "alpha", "floor")
        await pilot.press("enter")
        await until(pilot, lambda: w.step == "when")
        await pilot.pause()
        await whole(
            "b at the next boundary: step 30, 7 steps, about 3s",
            "n now: after the present step, 23",
            "Esc back",
        )
        await pilot.press("enter")
        await until(pilot, lambda: w.step == "review")
        await pilot.pause()
        await whole("KEEP every arm's place in its text: rows that were read are not read again in their epoch",
              "the sample log is empty",
              "y pivot", "Esc back, nothing is changed")  # fmt: skip
        await pilot.press("y")
        await until(pilot, lambda: step(app) == "progress")
        await pilot.pause(0.2)
        await whole("w withdraw it", "leave: the pivot goes on without this", "asked by")

    drive(body, run, size)


def test_it_survives_every_size(run: Path) -> None:
    async def body(pilot: Press, app: CockpitApp, runner: FakeRunner) -> None:
        await opened(pilot, app)
        for size in [(1, 1), (3, 2), (20, 5), (40, 10), (80, 24), (200, 60)]:
            await pilot.resize_terminal(*size)
            await pilot.pause(0.05)
        assert "heldout.power" in shown(app)

    drive(body, run)


def test_a_new_arm_from_a_file_is_tokenised_first_and_esc_cancels_that(
    run: Path, texts: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    new = run.parent / "new.toml"
    text = (run / names.POLICY).read_text("utf-8").replace('name = "v1-builtin"', 'name = "more"')
    new.write_text(text + f'[arms.gamma]\npath = "{texts / "beta"}/0*.txt"\nfloor = 0.1\n', "utf-8")
    real = pivoting.prepare_arms
    hold = True

    def slow(*args: Any) -> None:
        while hold and not args[4]():
            args[3]("tokenising gamma", 0.4)
            time.sleep(0.01)
        real(*args)

    monkeypatch.setattr(pivoting, "prepare_arms", slow)

    async def body(pilot: Press, app: CockpitApp, runner: FakeRunner) -> None:
        nonlocal hold
        w = await opened(pilot, app)
        await pilot.press("ctrl+o", *"/nowhere", "enter")
        await until(pilot, lambda: "/nowhere: can't be read" in shown(app))
        w.file.value = str(new)
        await pilot.press("enter")
        await until(pilot, lambda: "new: gamma: tokenised first" in shown(app))
        assert field(app, "name").value == "more"
        await pilot.press("enter")
        await until(pilot, lambda: "tokenising gamma 40%" in shown(app))
        await pilot.press("escape")
        await until(pilot, lambda: "cancelled: no arm was added" in shown(app) and w.step == "policy")
        hold = False
        await pilot.press("enter")
        await until(pilot, lambda: w.step == "when")
        assert "gamma" in w.form.now.manifest.arms
        assert not (run / names.PIVOT).exists()
        await pilot.press("enter")
        await until(pilot, lambda: "arm gamma: added" in shown(app))
        await pilot.press("y")
        await until(pilot, lambda: step(app) == "progress")
        p = pivot.read(run)
        assert p is not None
        assert p.policy == new.read_text("utf-8")  # the very file, comments and all

    drive(body, run)


def test_the_editor_gets_the_draft_and_a_typo_is_not_lost(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []

    def edit(text: str) -> str:
        seen.append(text)
        if len(seen) == 1:
            return "flor = 1\n" + text
        return re.sub('name = ".*?"', 'name = "edited"', text.removeprefix("flor = 1\n"), count=1)

    monkeypatch.setattr(pivot_form, "edited", edit)
    monkeypatch.setattr(CockpitApp, "suspend", lambda self: contextlib.nullcontext())

    async def body(pilot: Press, app: CockpitApp, runner: FakeRunner) -> None:
        await opened(pilot, app)
        await typed(pilot, app, "0.4", "arms", "alpha", "floor")
        await pilot.press("ctrl+e")
        await until(pilot, lambda: "flor: unknown key" in shown(app))
        await pilot.press("ctrl+e")
        await until(pilot, lambda: "name: v1-builtin → edited" in shown(app))
        assert "floor = 0.4" in seen[0]
        assert seen[1].startswith("flor = 1")
        assert field(app, "arms", "alpha", "floor").value == "0.4"

    drive(body, run)


def test_an_editor_that_is_not_there_is_said(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def body(pilot: Press, app: CockpitApp, runner: FakeRunner) -> None:
        await opened(pilot, app)
        await pilot.press("ctrl+e")
        await until(pilot, lambda: "can't be lent" in shown(app))
        monkeypatch.setattr(CockpitApp, "suspend", lambda self: contextlib.nullcontext())
        monkeypatch.setenv("VISUAL", "/nowhere/editor")
        await pilot.press("ctrl+e")
        await until(pilot, lambda: "editor: " in shown(app))
        monkeypatch.setenv("VISUAL", "false")
        await pilot.press("ctrl+e")
        await until(pilot, lambda: "false ended with 1" in shown(app))

    drive(body, run)


def test_a_zombie_is_named_and_dropped(run: Path) -> None:
    for path in (run / "data" / "arms").glob("beta.*"):
        path.unlink()

    async def body(pilot: Press, app: CockpitApp, runner: FakeRunner) -> None:
        await opened(pilot, app)
        assert "data gone" in shown(app)
        assert "arm beta: the bandit remembers it, but its data are gone; drop it with ctrl+d" in shown(app)
        field(app, "arms", "beta", "cap").focus()
        await pilot.pause()
        await pilot.press("ctrl+d")
        await until(pilot, lambda: "zombie: beta" in shown(app))
        assert "dropped" in shown(app)
        await pilot.press("enter", "enter")
        await until(pilot, lambda: "DROP    arm beta: the bandit remembers it" in shown(app))

    drive(body, run)


@pytest.fixture(scope="module")
def trained(texts: Path, prepared: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """15 steps, then stopped cleanly."""
    d = tmp_path_factory.mktemp("wizard") / "run"
    make_small(d, texts, [])
    shutil.copytree(prepared / "data", d / "data")
    assert e.finish(d, "--stop-at", "15") == 0
    return d


def test_without_a_trainer_it_is_done_at_once(trained: Path, tmp_path: Path) -> None:
    run = Path(shutil.copytree(trained, tmp_path / "run"))
    log = (run / names.LOSS).read_bytes()

    async def body(pilot: Press, app: CockpitApp, runner: FakeRunner) -> None:
        await until(pilot, lambda: app.store.history.last == 15 and app.store.loading is None)
        await pilot.press("p")
        await until(pilot, lambda: step(app) == "policy" and app.screen.query(Field))
        await typed(pilot, app, "0.8", "arms", "alpha", "floor")
        await pilot.press("enter")
        await until(pilot, lambda: "No trainer runs" in shown(app))
        assert "step 15" in shown(app)
        await pilot.press("n")  # there is no present step
        assert step(app) == "when"
        await pilot.press("enter")
        await until(pilot, lambda: "at once, from step 15" in shown(app))
        await pilot.press("y")
        await until(pilot, lambda: step(app) == "summary")
        await until(pilot, lambda: "15 entries before, 15 now" in shown(app))
        for expected in ("v1-builtin → v2-builtin after step 15", "1 begins with step 16", "archive/0001-step_000015/",
                         "r starts it"):  # fmt: skip
            assert expected in shown(app), expected
        await pilot.press("escape")
        await until(pilot, lambda: isinstance(app.screen, Overview))

    drive(body, run, alive=False)
    assert load_policy(run / names.POLICY).arms["alpha"].floor == 0.8
    assert (run / names.LOSS).read_bytes() == log
    assert not (run / names.PIVOT).exists()
    assert len(e.named(run, "pivot")) == 1


def test_a_damaged_request_is_a_line_and_the_feed_goes_on(run: Path) -> None:
    async def body(pilot: Press, app: CockpitApp, runner: FakeRunner) -> None:
        await until(pilot, lambda: app.store.history.last >= 23)
        (run / names.PIVOT).write_bytes(b'{"id": 5')
        await until(pilot, lambda: ".pivot.json: can't be read" in " ".join(p for p in app.store.problems))
        assert app.store.pivot is None
        await pilot.press("p")
        await until(pilot, lambda: "▲" in shown(app) and "can't be read" in app.store.error)
        assert isinstance(app.screen, Overview)
        (run / names.PIVOT).unlink()
        await until(pilot, lambda: not app.store.problems)

    drive(body, run)


def test_the_feed_brings_the_request_and_that_it_is_gone(run: Path) -> None:
    reader = Reader(run, FakeRunner(run))
    store = Store(run)

    def look() -> None:
        update, _ = reader.look()
        if update is not None:
            store.apply(update)

    look()
    assert store.pivot is None
    asked = another(run, "now")
    pivot.ask(run, asked)
    look()
    assert store.pivot == asked
    assert [a.text for a in alerts.alerts_view(store, time.time()).alerts if "pivot" in a.text] == [
        "◌ pivot to theirs after the present step"
    ]
    asked.committed, asked.cut = True, 23
    pivot.commit(run, asked)
    look()
    assert alerts.countdown(store, store.pivot) == "after step 23 is being made"
    os.unlink(run / names.PIVOT)
    look()
    assert store.pivot is None
    reader.close()


def test_the_chart_names_the_phases_at_their_mark(run: Path) -> None:
    append(run / names.LOSS, *lines(24, 60, phase=1))
    append(
        run / names.EVENTS, Event(t=time.time(), event="pivot", step=23, info={"old": "v1\x1b", "new": "v2"})
    )

    async def body(pilot: Press, app: CockpitApp, runner: FakeRunner) -> None:
        await until(pilot, lambda: app.store.history.last == 60)
        app.overview.update(True)
        await until(pilot, lambda: "v1␛ ┊ v2" in shown(app))

    drive(body, run)


def test_names_of_policies_go_on() -> None:
    assert [pivot_form.next_name(x) for x in ("v1", "v9-builtin", "mine", "mine-2", "x" * 60)] == [
        "v2", "v10-builtin", "mine-2", "mine-3", "x" * 57 + "-2"
    ]  # fmt: skip
