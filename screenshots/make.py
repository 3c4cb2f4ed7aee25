"""`make screenshots`: the real app on a real run, while it is being trained. SVG and PNG at the designed sizes.

    python screenshots/make.py [--run DIR] [--steps N]

Without --run a new `andrea-tiny` run is trained for N steps first, with a snapshot and a stop and a resume in it.
"""

import argparse
import asyncio
import glob
import tempfile
import time
from pathlib import Path

import resvg_py

from andrea_tui.app import CockpitApp
from andrea_tui.cli import make_run
from andrea_tui.runner import Runner
from engine.rundir import names
from engine.rundir.history import read_history

HERE = Path(__file__).parent
SIZES = ((80, 24), (120, 40), (200, 60))
MONOSPACE = "DejaVu Sans Mono"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--run", type=Path)
    parser.add_argument("--steps", type=int, default=450)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        run = args.run or Path(folder) / "run"
        runner = Runner(run)
        if args.run is None:
            make_run(run, "andrea-tiny", ["run.name=andrea-tiny"])
            fly(run, runner, args.steps)
        else:
            runner.start()
        for columns, lines in SIZES:
            asyncio.run(shoot(run, columns, lines, f"overview-{columns}x{lines}"))
        asyncio.run(shoot(run, 120, 40, "overview-120x40-light", theme="light"))
        asyncio.run(shoot(run, 120, 40, "help-120x40", keys=["question_mark"]))
        asyncio.run(shoot(run, 120, 40, "stop-120x40", keys=["q"]))
        runner.stop()
        runner.wait(120)


def fly(run: Path, runner: Runner, steps: int) -> None:
    """Train it: to half, a snapshot, a clean stop, a resume, on to `steps`; the trainer goes on."""
    runner.start()
    wait(run, runner, steps // 2)
    runner.snapshot()
    wait(run, runner, steps // 2 + 20)
    runner.stop()
    runner.wait(120)
    runner.start()
    wait(run, runner, steps)


def wait(run: Path, runner: Runner, step: int) -> None:
    while read_history(run / names.LOSS)[0].last < step:
        if not runner.poll().alive:
            raise SystemExit(f"the trainer ended:\n{(run / names.LOG).read_text()[-2000:]}")
        time.sleep(0.5)


async def shoot(
    run: Path, columns: int, lines: int, name: str, theme: str = "", keys: list[str] | None = None
) -> None:
    app = CockpitApp(run, Runner(run))
    async with app.run_test(size=(columns, lines)) as pilot:
        if theme:
            app.theme = theme
        while app.store.loading is not None or app.store.resources is None or app.store.trainer.pid is None:
            await pilot.pause(0.1)
        await pilot.press(*(keys or []))
        await pilot.pause(0.6 if keys else 4.0)  # CPU per cent takes two looks at the machine
        svg = app.export_screenshot(title=f"andrea-tui {run.name}/")
    # Textual names a web font that a reader may not have; the PNG is drawn with one that has all the glyphs.
    (HERE / f"{name}.svg").write_text(svg, "utf-8")
    drawn = svg.replace("Fira Code", MONOSPACE)
    files = glob.glob("/usr/share/fonts/truetype/dejavu/*.ttf")
    png = resvg_py.svg_to_bytes(svg_string=drawn, font_files=files, monospace_family=MONOSPACE, zoom=1)
    (HERE / f"{name}.png").write_bytes(bytes(png))
    print(f"screenshots/{name}.svg and .png")


if __name__ == "__main__":
    main()
