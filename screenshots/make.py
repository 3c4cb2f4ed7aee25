"""`make screenshots`: the real app on a real run while it is being trained. Every view, three sizes, two themes.

    python screenshots/make.py [--run DIR] [--steps N] [--only VIEW,VIEW]

Without --run a new `andrea-tiny` run is trained for N steps first (see `fly`). A run that is given has to have a
branch for the view `compare` and an audit for `prompt`.
"""

import argparse
import asyncio
import contextlib
import glob
import importlib.util
import io
import tempfile
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import resvg_py
from textual.pilot import Pilot
from textual.widgets import Input

from andrea_tui.app import CockpitApp
from andrea_tui.cli import make_run
from andrea_tui.cli import run as command
from andrea_tui.runner import Runner
from engine.rundir import names
from engine.rundir.history import read_history

HERE = Path(__file__).parent
SIZES = ((80, 24), (120, 40), (200, 60))
LOOKS = ("dark", "light")
MONOSPACE = "DejaVu Sans Mono"
COLOURS = 48  # of a PNG: as many as a screen has, anti-aliasing included


@dataclass(frozen=True)
class View:
    name: str
    keys: tuple[str, ...] = ()
    wait_for: str = ""  # text that has to be on the screen before the picture is taken


VIEWS = (
    View("overview"),
    View("loss", ("full 1", "plus", "enter", *["left"] * 12), "ema"),
    View("mix", ("full 2",), "next"),
    View("audit", ("full 3",), "real text"),
    View("audit-time", ("full 3", "enter")),
    View("checkpoints", ("full 4",), "boundary"),
    View("checkpoint-menu", ("full 4", "down", "enter"), "read it back"),
    View("events", ("full 5", "up", "up")),
    View("find", ("full 5", "slash", *"checkpoint")),
    View("machine", ("full 6",)),
    View("prompt", ("t",)),
    View("compare", ("c",)),
    View("pivot", ("p",), "floor"),
    View("stop", ("q",), "stopping the training"),
    View("away", ("w",), "any key closes"),
    View("help", ("question_mark",), "Training"),
    View("palette", ("ctrl+p",)),
)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--run", type=Path)
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--only", default="", help="names of views, comma separated")
    args = parser.parse_args()
    only = set(filter(None, args.only.split(",")))
    if odd := only - {v.name for v in VIEWS}:
        parser.error(f"--only: no view {', '.join(odd)}; there are {', '.join(v.name for v in VIEWS)}")
    with tempfile.TemporaryDirectory() as folder:
        run = args.run or Path(folder) / "run"
        if args.run is None:
            fly(run, args.steps)
        runner = Runner(run)
        wanted = [v for v in VIEWS if not only or v.name in only]
        runner.start()
        everything(run, [v for v in wanted if v.name != "prompt"])
        stop(runner)
        # On two cores that train, a prompt is answered in minutes: it takes only what nobody else wants.
        everything(run, [v for v in wanted if v.name == "prompt"])


def everything(run: Path, views: list[View]) -> None:
    for theme in LOOKS:
        for columns, lines in SIZES:
            if views:
                asyncio.run(shoot(run, columns, lines, theme, views))


def fly(run: Path, steps: int) -> None:
    """What a run goes through: a first look, a snapshot, a stop, a pivot with a branch before it, and on."""
    make_run(run, "andrea-tiny", ["run.name=andrea-tiny", "train.eval_every=50"])
    runner = Runner(run)
    runner.start()
    wait(run, runner, steps // 3)
    asyncio.run(look(run))
    runner.snapshot()
    wait(run, runner, steps // 3 + 20)
    stop(runner)
    other = run.parent / "run-b"
    last = read_history(run / names.LOSS)[0].last // 100 * 100
    policy = (run / "policy.toml").read_text()
    changed = run.parent / "v2-prose.toml"
    changed.write_text(
        policy.replace('name = "v1-builtin"', 'name = "v2-prose"').replace("floor = 0.0 ", "floor = 0.1 ")
    )
    for argv in (["branch", str(run), str(other), "--at", str(last), "--policy", str(changed)],
                 ["pivot", str(run), "--policy", str(changed), "--now", "--yes"]):  # fmt: skip
        if code := command(argv):
            raise SystemExit(f"andrea-tui {' '.join(argv)}: exit code {code}")
    for folder, until in ((other, steps * 2 // 3), (run, steps)):
        flown = Runner(folder)
        flown.start()
        wait(folder, flown, until)
        if folder is other:
            stop(flown)


async def look(run: Path) -> None:
    """Somebody looks at the run, so that a later look can tell what happened since."""
    async with flying(run, 120, 40, "dark"):
        pass


def stop(runner: Runner) -> None:
    runner.stop()
    runner.wait(300)


def wait(run: Path, runner: Runner, step: int) -> None:
    while read_history(run / names.LOSS)[0].last < step:
        if not runner.poll().alive:
            raise SystemExit(f"the trainer ended:\n{(run / names.LOG).read_text()[-2000:]}")
        time.sleep(0.5)


@contextlib.asynccontextmanager
async def flying(run: Path, columns: int, lines: int, theme: str) -> AsyncIterator[Pilot[int]]:
    """The app, once it has read everything. CPU per cent takes two looks at the machine."""
    app = CockpitApp(run, Runner(run), theme=theme)
    async with app.run_test(size=(columns, lines)) as pilot:
        while app.store.loading is not None or app.store.resources is None:
            await pilot.pause(0.1)
        while app.store.resources.cpu is None or app.store.state(time.time()).kind not in (
            "training",
            "stopped",
        ):
            await pilot.pause(0.1)
        yield pilot


async def shoot(run: Path, columns: int, lines: int, theme: str, views: list[View]) -> None:
    async with flying(run, columns, lines, theme) as pilot:
        app = pilot.app
        assert isinstance(app, CockpitApp)
        await pilot.press("escape")  # what happened while nobody looked: it has its own picture
        for view in views:
            for key in view.keys:
                await press(pilot, app, key)
            await prepare(view.name, pilot)
            await shows(pilot, view.wait_for)
            await pilot.pause(1.0)
            save(
                app.export_screenshot(title=f"andrea-tui {run.name}/"),
                f"{view.name}-{columns}x{lines}-{theme}",
            )
            await home(pilot, app)


async def press(pilot: Pilot[int], app: CockpitApp, key: str) -> None:
    """A key, or "full 4": that pane over the whole screen, which takes Enter only where it has room beside others."""
    word, _, number = key.partition(" ")
    await pilot.press(number or word)
    await pilot.pause(0.1)
    if number and not app.overview.full:
        await pilot.press("enter")
        await pilot.pause(0.1)


async def prepare(name: str, pilot: Pilot[int]) -> None:
    """What takes more than keys."""
    if name == "prompt":
        await pilot.pause(0.5)
        pilot.app.screen.query_one("#prompt", Input).value = "def read_file(path):"
        await pilot.press("enter")
        await shows(pilot, "tok/s,")
    elif name == "compare":
        await pilot.pause(0.5)
        assert isinstance(pilot.app, CockpitApp)
        pilot.app.screen.query_one(Input).value = str(pilot.app.run_dir.parent / "run-b")
        await pilot.press("enter")
        await shows(pilot, "fork: after")


async def shows(pilot: Pilot[int], text: str) -> None:
    end = time.monotonic() + 120
    while text and text not in screen_text(pilot):
        if time.monotonic() > end:
            raise SystemExit(f"{text!r} never came to the screen:\n{screen_text(pilot)}")
        await pilot.pause(0.2)


def screen_text(pilot: Pilot[int]) -> str:
    return "\n".join(strip.text for strip in pilot.app.screen._compositor.render_strips())


async def home(pilot: Pilot[int], app: CockpitApp) -> None:
    """Back at all panes, the chart as it was."""
    for _ in range(8):
        await pilot.press("escape")
        await pilot.pause(0.1)
        if len(app.screen_stack) == 1 and not app.overview.full:
            break
    app.overview.show_away(None)
    await pilot.press("0", "1")
    await pilot.pause(0.2)


def smaller(png: bytes) -> bytes:
    """With a palette, a quarter of the size, where Pillow is installed. (It is no dependency: its files would become
    part of the built-in corpora.)"""
    if importlib.util.find_spec("PIL") is None:
        return png
    from PIL import Image

    out, image = io.BytesIO(), Image.open(io.BytesIO(png)).convert("RGB")
    image.quantize(COLOURS, method=Image.Quantize.MEDIANCUT).save(out, "PNG", optimize=True)
    return out.getvalue()


def save(svg: str, name: str) -> None:
    """Textual names a web font that a reader may not have; the PNG is drawn with one that has all the glyphs."""
    (HERE / f"{name}.svg").write_text(svg, "utf-8")
    drawn = svg.replace("Fira Code", MONOSPACE)
    files = glob.glob("/usr/share/fonts/truetype/dejavu/*.ttf")
    png = resvg_py.svg_to_bytes(svg_string=drawn, font_files=files, monospace_family=MONOSPACE, zoom=1)
    (HERE / f"{name}.png").write_bytes(smaller(bytes(png)))
    print(f"screenshots/{name}.svg and .png")


if __name__ == "__main__":
    main()
