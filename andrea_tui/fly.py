"""From a terminal into the cockpit and back out of it: what is said once the screen is the shell's again."""

# isort: off
import andrea_tui.core.early  # noqa: F401  first: see there

# isort: on
import sys
import traceback
from pathlib import Path

from andrea_tui.app import CockpitApp
from andrea_tui.core.looks import log_crash
from andrea_tui.core.text import clean
from andrea_tui.runner import Runner
from andrea_tui.themes import DARK


def run_cockpit(
    run_dir: Path, runner: Runner, *, watch: bool = False, start: bool | None = None, theme: str = DARK.name,
    ascii_only: bool = False, mouse: bool = True, notice: str = "",
) -> int:  # fmt: skip
    """Fly the run until the person leaves. Starts the trainer unless one runs, or only looks on; exit code.

    `notice`: told at the start for a while.
    """
    app = CockpitApp(
        run_dir, runner, watch=watch, start=not watch if start is None else start, theme=theme,
        ascii_only=ascii_only, mouse=mouse,
    )  # fmt: skip
    if notice:
        app.store.tell(clean(notice), "warn")
    code = app.run(mouse=mouse)
    state = runner.poll()
    if app.crash is not None:
        sys.stderr.write(_last_words(app.crash, run_dir, state.alive))
    if state.alive and app.return_code == 0:
        sys.stdout.write(
            f"{run_dir}: the training goes on (pid {state.pid}); `andrea-tui {run_dir}` shows it again\n"
        )
    return app.return_code or code or 0


def _last_words(error: Exception, run_dir: Path, alive: bool) -> str:
    """The traceback, and below it one line for a person."""
    text = "".join(clean(x, "\n") for x in traceback.format_exception(error))
    where, going = log_crash(text), "; the training goes on" if alive else ""
    why = clean("".join(traceback.format_exception_only(error)).strip().partition("\n")[0])
    return f"{text}andrea-tui {run_dir}: the dashboard ended by an error of its own{going}: {why} ({where})\n"
