"""Each view of the real app as a person sees it, over runs that never change, at 80x24 and 120x40."""

import asyncio
import json
import shutil
import sys
import time
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeAlias

import msgspec
import pytest
from rich.style import Style
from textual.widgets import Input, OptionList, Static

from andrea_tui.app import CockpitApp
from andrea_tui.cli import make_run
from andrea_tui.core import commands
from andrea_tui.core.away import Look
from andrea_tui.core.looks import Looks
from andrea_tui.core.resources import Gpu, Probe, Resources
from andrea_tui.runner import TrainerState
from andrea_tui.screens import prompt, quit
from andrea_tui.screens.pivot_form import Field, PolicyForm
from andrea_tui.screens.pivot_progress import PivotScreen
from andrea_tui.screens.prompt import PromptScreen
from andrea_tui.widgets.paint import STYLES
from engine import pivoting
from engine.rundir import names, pivot
from engine.rundir.pivot import Pivot
from engine.rundir.records import Event, LossLine, SampleLine, encode
from tests import fixed_run
from tests.conftest import make_small
from tests.fixed_run import NOW, write_run
from tests.snapshot import LETTERS, Snapshots, block
from tests.test_app_overview import FakeRunner, Press, append, until

SIZES = ((80, 24), (120, 40))
GPU = Gpu("NVIDIA GeForce RTX 2070 SUPER", 0.98, 7_100_000_000, 8_200_000_000, 71, 215.0)
MACHINE = Resources(0.31, 16, (21 * 10**9, 64 * 10**9), (250 * 10**9, 10**12), 1.02, 5 * 10**9, (GPU,))

Drawn: TypeAlias = dict[str, dict[str, str]]  # name of the file -> title -> block
Body = Callable[[Press, CockpitApp, FakeRunner, Callable[[str, str], None]], Coroutine[Any, Any, None]]


@pytest.fixture(autouse=True, scope="module")
def fixed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """One zone, time, machine, home and width of colour everywhere. The folder in which all happens."""
    home = tmp_path_factory.mktemp("fixed")
    with pytest.MonkeyPatch.context() as m:
        m.setenv("TZ", "UTC")
        time.tzset()
        for name in ("NO_COLOR", "COLORTERM", "TERM"):
            m.delenv(name, raising=False)
        m.setenv("XDG_STATE_HOME", str(home / "state"))
        m.chdir(home)
        m.setattr(time, "time", lambda: NOW)
        m.setattr(Probe, "__init__", lambda self, run_dir: None)
        m.setattr(Probe, "look", lambda self, pid: MACHINE)
        m.setattr(Input, "_toggle_cursor", lambda self: None)
        m.setattr(quit, "time", SimpleNamespace(monotonic=lambda: 0.0))
        yield home
    time.tzset()


# ---- the screen as cells


def screen(app: CockpitApp) -> str:
    """The block of what is on the screen. Styles of Textual's own widgets get digits, told below the block."""
    pane = app.overview.pane("status")
    known: dict[Any, str] = {}
    for name in STYLES:
        known.setdefault(_look(pane.get_component_rich_style(f"pane--{name}")), LETTERS[name])
    ground = _look(pane.get_component_rich_style("pane--text"))[1]
    others: dict[Any, str] = {}
    lines = []
    for strip in app.screen._compositor.render_strips():
        cells = []
        for text, style, _ in strip:
            look = _look(style or Style())
            letter = known.get(look) or others.setdefault(look, _OTHERS[len(others)])
            flat = look[1] == ground and not (look[2] & {"reverse", "underline"})
            cells.append((text, letter, " " if flat else letter))
        lines.append(cells)
    legend = [f"{letter} {fore} on {ground}{''.join(sorted(f' {x}' for x in more))}"
              for (fore, ground, more), letter in others.items()]  # fmt: skip
    return "\n".join([block(lines), *legend])


_OTHERS = "0123456789ABCDEGHIJKLMNOPQRSUVWYZ"
_MORE = ("bold", "dim", "italic", "underline", "reverse", "strike")


def _look(s: Style) -> tuple[str, str, frozenset[str]]:
    fore, back = (c.get_truecolor().hex if c is not None else "default" for c in (s.color, s.bgcolor))
    return fore, back, frozenset(x for x in _MORE if getattr(s, x))


async def settled(pilot: Press, app: CockpitApp) -> None:
    """All was read and drawn; nothing that comes later changes a cell."""
    s = app.store
    await until(
        pilot, lambda: s.revision and s.loading is None and not s.unsettled and app.memory.looked_back
    )
    await until(pilot, lambda: s.resources is not None and s.files is not None)
    await drawn(pilot, app)


async def drawn(pilot: Press, app: CockpitApp) -> None:
    await pilot.pause()
    if app.screen is app.overview:
        app.overview.update(True)
    await pilot.pause()
    # a layout may come in several steps: until two looks in a row are the same
    before, now = None, screen(app)
    while now != before:
        await pilot.pause(0.03)
        before, now = now, screen(app)


def fly(run: Path, size: tuple[int, int], body: Body, out: Drawn, alive: bool = True, **more: Any) -> None:
    """Runs `body`, whose last argument `take(name, title)` keeps what is on the screen."""

    async def main() -> None:
        runner = FakeRunner(run, alive)
        if not alive:
            runner.state = more.pop("trainer", TrainerState())
        app = CockpitApp(run, runner, **more)
        app.animation_level = "none"

        def take(name: str, title: str = "") -> None:
            w, h = app.size
            cases = out.setdefault(f"view_{name}", {})
            title = f"{title}, {w}x{h}" if title else f"{w}x{h}"
            assert title not in cases
            cases[title] = screen(app)

        async with app.run_test(size=size) as pilot:
            await settled(pilot, app)
            await body(pilot, app, runner, take)

    asyncio.run(main())


# ---- the tour through one run

PANES = ("chart", "mix", "audit", "checkpoints", "events", "resources")


async def tour(pilot: Press, app: CockpitApp, runner: FakeRunner, take: Callable[..., None]) -> None:
    async def press(*keys: str) -> None:
        await pilot.press(*keys)
        await drawn(pilot, app)

    take("overview")
    for i, name in enumerate(PANES):
        await press("escape", "escape", str(i + 1))
        if not app.overview.full:
            await press("enter")
        assert app.overview.full == name
        take(f"pane_{name}")
        if name in ("audit", "mix"):
            await press("question_mark")
            take("help", name)
            await press("escape")
        if name == "audit":
            await press("enter", "down")
            take("pane_audit", "through time")
            await press("escape")
        if name == "chart":
            await press("plus", "plus", "left", "left", "enter", "left", "left")
            take("pane_chart", "zoomed, with the cursor")
            await press("escape", "0")
        if name == "checkpoints":
            await press("down", "enter")
            await until(pilot, lambda: app.screen is not app.overview and app.screen.query("#keys"))
            await drawn(pilot, app)
            take("checkpoint_menu")
            await press("b", *"../run-b")
            take("checkpoint_menu", "branch")
            await press("escape", "escape")
    await press("escape", "escape")
    assert app.screen is app.overview
    assert not app.overview.full
    app.overview.set_focus(None)
    await press("slash")
    await press(*"warn")
    take("ask", "find")
    await press("escape", "g")
    take("ask", "go to step")
    await press("escape", "s")
    await until(pilot, lambda: runner.sent == ["snapshot"])
    await drawn(pilot, app)
    take("snapshot_asked")
    app.store.asked = None
    await drawn(pilot, app)
    await press("q")
    take("quit")
    await press("escape", "ctrl+p")
    palette: Any = app.screen
    every = len(list(app.get_system_commands(palette)))
    await until(pilot, lambda: any(x.option_count == every for x in app.screen.query(OptionList)))
    await pilot.pause()
    take("palette")
    await press("escape", "t")
    await until(pilot, lambda: app.screen.query("#state"))
    await pilot.pause()
    take("prompt", "empty")
    await press(*"The ", "enter")
    await until(pilot, lambda: app._tried.outputs and app._tried.outputs[-1].over)
    assert isinstance(app.screen, PromptScreen)
    app.screen._beat()
    await drawn(pilot, app)
    take("prompt", "a text")
    await press("escape")


def sampler(run: Path) -> list[str]:
    """Says the same to everybody."""
    from engine.sampler_protocol import Begin, End, Piece, Settings
    from engine.sampler_protocol import encode as said

    lines = b"".join(said(x) for x in (
        Begin(step=2_600, sha256="ab" * 32, params=749_000, settings=Settings(0.8, 50, 64, 7), cut=0, notes=[]),
        Piece("cat sat on the mat\nand \x1b[2J日本語 saw", 12), End("length", 64, 8.0),
    ))  # fmt: skip
    return [sys.executable, "-c", f"import sys; sys.stdin.readline(); sys.stdout.buffer.write({lines!r})"]


@pytest.fixture(scope="module")
def toured(fixed: Path) -> Drawn:
    out: Drawn = {}
    run = write_run(Path("run"))
    with pytest.MonkeyPatch.context() as m:
        m.setattr(prompt, "command", sampler)
        for size in SIZES:
            fly(run, size, tour, out)
    return out


TOUR = (
    "overview", *(f"pane_{p}" for p in PANES), "help", "checkpoint_menu", "ask", "snapshot_asked", "quit",
    "palette", "prompt",
)  # fmt: skip


@pytest.mark.parametrize("name", TOUR)
def test_of_the_tour(name: str, toured: Drawn, snapshots: Snapshots) -> None:
    snapshots.check(f"view_{name}", toured[f"view_{name}"])


KEYS = {"←→": "left", "[]": "left_square_bracket", "+/-/0": "plus", ",/.": "full_stop", "/": "slash",
        "!": "exclamation_mark", "?": "question_mark", "Esc": "escape", "Enter": "enter"}  # fmt: skip


def test_each_key_in_a_view_s_footer_does_something_there() -> None:
    async def body(pilot: Press, app: CockpitApp, runner: FakeRunner, take: Callable[..., None]) -> None:
        for name in PANES:
            for key, label in commands.footer(False, True, app.size.width - 2, name):
                if label in ("snapshot", "stop…", "detach"):
                    continue
                app.overview.show_full(name)
                app.overview.chart.zoom(1)  # of the whole run there is nothing to move
                await drawn(pilot, app)
                before = screen(app)
                await pilot.press(KEYS.get(key, key))
                await drawn(pilot, app)
                assert screen(app) != before, (name, key, label)
                while app.screen is not app.overview or app.overview.full:
                    await pilot.press("escape")
                    await pilot.pause()
                await pilot.press("0", "escape")

    fly(write_run(Path("keys")), (80, 24), body, {})


# ---- other runs, and the same one in other states


def hostile_run(run: Path) -> Path:
    """Sixteen arms with long names, wide and hostile text wherever a text can stand, steps lost, one phase."""
    make_run(run, "andrea-tiny", ["train.max_steps=2000000000"])
    head = (run / names.POLICY).read_text("utf-8").partition("[arms.")[0]
    arms = [f'"source {i:02} of a long name 日本語"' for i in range(15)] + ['"\\u001b[2J👩‍👩‍👧 שלום"']
    text = head + "".join(f'[arms.{a}]\nbuiltin = "repo-docs"\nfloor = 0.01\ncap = 0.5\n' for a in arms)
    (run / names.POLICY).write_text(text.replace("v1-builtin", "v1 日本語 \u202e"), "utf-8")
    known = [json.loads(a) for a in arms]
    (run / names.LOSS).write_bytes(
        b"".join(
            encode(LossLine(step=s, loss=None if s % 50 == 9 else 4 - s / 400 + fixed_run.noise(s), lr=1e-3, gnorm=1.0,
                            rows={a: 1 for a in known}, rloss={a: 3 + i / 10 for i, a in enumerate(known)}, dt=1.0,
                            t=NOW - 700 + s, seg=999_999_999))
            for s in range(1, 601)
        )
    )  # fmt: skip
    odd = (
        "\x1b[2J\x1b]52;c;eA==\x07[/red][@click=app.quit]",
        "日本語 👩‍👩‍👧",
        "\u202eשלום\u202c e\u0301\u0301",
    )
    append(run / names.EVENTS, *[
        Event(t=NOW - 500 + i, event=x, step=600 * (i % 2), text=x * 9, info={"why": x, "bytes": 10**15}) for i, x in
        enumerate((*odd, "checkpoint", "warning"))
    ])  # fmt: skip
    append(run / names.SAMPLES, *[
        SampleLine(step=600, phase=0, prompt=odd[0], mode=m, text="\n".join(odd * 3), tokens=9, t=NOW, seg=1,
                   scores={"coherence": 7.0, odd[1]: -1e30}, verdict=odd[2]) for m in ("greedy", "sampled")
    ])  # fmt: skip
    (run / names.LOG).write_bytes("\n".join(odd).encode("utf-8") + b"\xff\xfe\x00\n")
    fixed_run.write_status(run, 600, seg=999_999_999, phase=0, doing="evaluating", detail=odd[0])
    return run


def one_step(run: Path) -> Path:
    write_run(run, 1)
    (run / names.SAMPLES).unlink()
    shutil.rmtree(run / names.ARCHIVE)
    return run


def empty(run: Path) -> Path:
    make_run(run, "andrea-tiny", [])
    (run / names.EVENTS).unlink()
    return run


def dead(run: Path) -> Path:
    write_run(run)
    lines = ("Traceback (most recent call last):", '  File "train.py", line 166, in step', "MemoryError")
    (run / names.LOG).write_text("\n".join(lines) + "\n", "utf-8")
    return run


async def look(pilot: Press, app: CockpitApp, runner: FakeRunner, take: Callable[..., None]) -> None:
    take(app.store.run_dir.name)


KILLED = TrainerState(pid=77, exit_code=-9)


@pytest.mark.parametrize(
    ("name", "make", "more"),
    [
        ("hostile", hostile_run, {}),
        ("one_step", one_step, {}),
        ("empty", empty, {"alive": False}),
        ("dead", dead, {"alive": False, "trainer": KILLED}),
        ("looking_on", write_run, {"watch": True}),
    ],
)
def test_of_a_run(
    name: str, make: Callable[[Path], Path], more: dict[str, Any], snapshots: Snapshots
) -> None:
    out: Drawn = {}
    run = make(Path(name))
    for size in SIZES:
        fly(run, size, look, out, **more)
    snapshots.check(f"view_{name}", out[f"view_{name}"])


def test_the_large_overview(snapshots: Snapshots) -> None:
    out: Drawn = {}
    fly(write_run(Path("overview_200x60")), (200, 60), look, out)
    snapshots.check("view_overview_200x60", out["view_overview_200x60"])


def test_while_you_were_away(snapshots: Snapshots) -> None:
    """Last looked at before the night in which the trainer died and the policy was changed."""
    out: Drawn = {}
    run = write_run(Path("away"))
    first = fixed_run.events()[0]
    for size in SIZES:
        looks = Looks(run)
        looks.save(Look(t=NOW - 13 * 3600, step=900, events=11, ema=3.9, decay=0.99), first)
        looks.close()
        fly(run, size, look, out)
    snapshots.check("view_away", out["view_away"])


def curve(first: int, last: int) -> list[LossLine]:
    return [
        LossLine(step=i, loss=5 - i / 100 + 0.2 * fixed_run.noise(i), lr=1e-3, gnorm=1.0, dt=0.5, t=NOW - 300 + i,
                 seg=1, rows={"alpha": 2, "beta": 2}, rloss={"alpha": 3.0, "beta": 2.0},
                 bpb={"alpha": 2 - i / 200, "beta": 1.9} if i % 20 == 0 else None) for i in range(first, last + 1)
    ]  # fmt: skip


def small(run: Path, texts: Path, prepared: Path, steps: int) -> Path:
    """A run of two arms whose data are there, that "trains"."""
    make_small(run, texts, [])
    shutil.copytree(prepared / "data", run / "data")
    append(run / names.LOSS, *curve(1, steps))
    fixed_run.write_status(run, steps, max_steps=200, phase=0, seg=1)
    return run


def test_compare(texts: Path, prepared: Path, snapshots: Snapshots) -> None:
    out: Drawn = {}
    run, other = (small(Path(x), texts, prepared, 200) for x in ("compare", "run-b"))
    append(other / names.LOSS, *[msgspec.structs.replace(x, loss=x.loss + 0.3) for x in curve(101, 200)])  # type: ignore[operator]
    append(run / names.EVENTS, Event(t=NOW - 9, event="branch", step=100, info={"to": "run-b"}))

    async def body(pilot: Press, app: CockpitApp, runner: FakeRunner, take: Callable[..., None]) -> None:
        await pilot.press("c")
        await pilot.pause()
        take("compare", "asks")
        await pilot.press("enter")
        report = app.screen.query_one("#report", Static)
        await until(pilot, lambda: "audits" in str(report.render()))
        await pilot.pause()
        take("compare", "report")

    for size in SIZES:
        fly(run, size, body, out)
    snapshots.check("view_compare", out["view_compare"])


def looked(app: CockpitApp) -> None:
    """What its clock does."""
    assert isinstance(app.screen, PivotScreen)
    app.screen.look()


def test_the_pivot(
    texts: Path, prepared: Path, snapshots: Snapshots, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = pivoting.request

    def request(*args: Any) -> Pivot:
        p = real(*args)
        p.by = "ada@ship, pid 4"
        return p

    monkeypatch.setattr(pivoting, "request", request)
    out: Drawn = {}
    run = Path("pivot")

    async def body(pilot: Press, app: CockpitApp, runner: FakeRunner, take: Callable[..., None]) -> None:
        async def at(step: str) -> None:
            await until(pilot, lambda: isinstance(app.screen, PivotScreen) and app.screen.step == step)
            await until(pilot, lambda: app.screen.query("#keys"))
            await pilot.pause()
            await pilot.pause()

        await pilot.press("p")
        await at("policy")
        take("pivot", "policy")
        f = next(f for f in app.screen.query(Field) if f.path == ("arms", "alpha", "floor"))
        f.focus()
        f.value = "1.3"
        app.screen.query_one(PolicyForm).check()
        await pilot.pause()
        take("pivot", "what can't be")
        f.value = "0.3"
        app.screen.query_one(PolicyForm).check()
        await pilot.pause()
        await pilot.press("enter")
        await at("when")
        take("pivot", "when")
        await pilot.press("enter")
        await at("review")
        take("pivot", "review")
        await pilot.press("y")
        await at("progress")
        await until(pilot, lambda: app.store.pivot is not None)
        looked(app)
        await pilot.pause()
        take("pivot", "progress")
        p = pivot.read(run)
        assert p is not None
        append(run / names.EVENTS, Event(t=NOW, event="pivot", step=30, info={
            "id": p.id, "old": p.old_name, "new": p.new_name, "phase": 1, "archive": "archive/0001-step_30",
        }))  # fmt: skip
        (run / names.PIVOT).unlink()
        await at("summary")
        await until(pilot, lambda: "23 now" in screen(app))
        take("pivot", "summary")

    for size in SIZES:
        fly(small(run, texts, prepared, 23), size, body, out)
        shutil.rmtree(run)
    snapshots.check("view_pivot", out["view_pivot"])


VIEWS = (
    *TOUR,
    "hostile",
    "one_step",
    "empty",
    "dead",
    "looking_on",
    "overview_200x60",
    "away",
    "compare",
    "pivot",
)
