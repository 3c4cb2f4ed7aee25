"""The cockpit: bindings, screens, signal handlers; no logic.

feed thread → message → store → frozen view → widgets;  key or palette → command → runner → signal → trainer.
"""

# isort: off
import andrea_tui.core.early  # noqa: F401  first: see there

# isort: on
import asyncio
import gc
import os
import signal
import sys
import threading
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

from textual.app import App, SystemCommand
from textual.binding import Binding, BindingType
from textual.filter import LineFilter
from textual.message import Message
from textual.screen import Screen

from andrea_tui.core import commands, fmt
from andrea_tui.core.feed import Feed
from andrea_tui.core.store import Store
from andrea_tui.core.text import clean
from andrea_tui.filters import Ascii, NoColour
from andrea_tui.runner import Runner
from andrea_tui.screens.ask import Ask
from andrea_tui.screens.help import Help
from andrea_tui.screens.overview import Overview
from andrea_tui.screens.quit import QuitPanel
from andrea_tui.themes import DARK, THEMES
from andrea_tui.widgets.audit import AuditPane
from andrea_tui.widgets.pane import Jump, Pane
from engine.errors import BadInput

gc.enable()  # `early` turned it off

REDRAW = 0.5  # seconds: at most twice a second
_MOUSE_OFF = "mouse off: the terminal selects and copies; m turns it on"
_GRACE = 3.0  # seconds for the loop to end by itself once the terminal is gone


class CockpitApp(App[int]):
    """The dashboard of one run directory. `watch`: looks on. `start`: starts the trainer unless one runs.

    `theme`: a key of THEMES. `ascii_only`: nothing else reaches the terminal. `mouse`: whether it starts switched on.
    """

    CSS_PATH = "app.tcss"
    TITLE = "andrea-tui"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("ctrl+q,ctrl+c", "detach", "leave; the training goes on", show=False, priority=True)
    ]

    class Fed(Message):
        """The feed has updates."""

        def can_replace(self, message: Message) -> bool:
            return isinstance(message, CockpitApp.Fed)

    class HungUp(Message):
        """The terminal is gone."""

    def __init__(
        self, run_dir: Path, runner: Runner, *, watch: bool = False, start: bool = False, theme: str = DARK.name,
        ascii_only: bool = False, mouse: bool = True,
    ) -> None:  # fmt: skip
        gc.disable()
        super().__init__()
        self._no_colour, self._ascii = NoColour(self.no_color), Ascii(ascii_only)
        self.run_dir, self.runner, self.only_watch = run_dir, runner, watch
        self._start = start and not watch
        self._stopping = False
        self._mouse_on = mouse
        self.store = Store(run_dir, watch)
        self.overview = Overview(self.store)
        tty = sys.__stdin__.fileno() if sys.__stdin__ is not None and sys.__stdin__.isatty() else None
        self.feed = Feed(run_dir, runner, self._notify, self._lost_terminal, tty)
        for t in THEMES.values():
            self.register_theme(t)
        self.theme = theme

    def get_line_filters(self) -> list[LineFilter]:
        """What every line of every widget goes through before it is sent."""
        colours = [self._no_colour] if self._no_colour.enabled else super().get_line_filters()
        return [*colours, self._ascii] if self._ascii.enabled else [*colours]

    def get_default_screen(self) -> Screen[None]:
        return self.overview

    def on_mount(self) -> None:
        loop = asyncio.get_running_loop()
        if not self.is_headless:
            for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
                loop.add_signal_handler(number, self.action_detach)
        self.feed.start()
        self.set_interval(REDRAW, self._redraw)
        if not self._mouse_on:
            self.store.tell(_MOUSE_OFF)
        if self._start:
            self.call_after_refresh(self.action_start)

    def _notify(self) -> None:
        """In the feed's thread."""
        self.post_message(self.Fed())

    def on_unmount(self) -> None:
        self.feed.close()
        gc.enable()

    def on_cockpit_app_fed(self) -> None:
        first = self.store.revision == 0
        for update in self.feed.take():
            self.store.apply(update)
        if first or (self.store.loading is None and not self._whole):
            self._whole = self.store.loading is None
            if self._whole:
                gc.freeze()
                gc.enable()
            self._redraw()  # the first look and the whole history don't wait for the next beat
        if self._stopping and not self.store.trainer.alive:
            self.exit(self.store.trainer.exit_code or 0)

    _whole = False

    def on_cockpit_app_hung_up(self) -> None:
        self.exit(0)

    def _redraw(self) -> None:
        if self.overview.is_mounted:
            self.overview.update()

    def _lost_terminal(self) -> None:
        """In the feed's thread. The loop may hang in a write to what is gone: then the process ends anyway."""
        self.post_message(self.HungUp())
        timer = threading.Timer(_GRACE, partial(os._exit, 0))
        timer.daemon = True
        timer.start()

    # ---- the training

    def action_snapshot(self) -> None:
        self._ask(self.runner.snapshot, "snapshot asked: after this step")

    def action_stop(self) -> None:
        trainer = self.store.trainer
        if self.only_watch or not trainer.alive or not trainer.here:
            self.exit(0)
        elif not self._stopping:
            self.push_screen(QuitPanel(), self._quit_answer)

    def _quit_answer(self, answer: str | None) -> None:
        if answer == "detach":
            self.action_detach()
        elif answer == "stop" and self._ask(
            self.runner.stop, "stopping: the step is finished, a checkpoint written, then this leaves"
        ):
            self._stopping = True

    def action_compare(self) -> None:
        """Beside another run."""
        from andrea_tui.screens.compare import CompareScreen  # with plotext, which only it needs

        self.push_screen(CompareScreen(self.store))

    def action_pivot(self) -> None:
        # Not at the top: the first frame does not wait for it.
        from andrea_tui.screens.pivot import PivotScreen, pivot_screen

        if self.only_watch or any(isinstance(s, PivotScreen) for s in self.screen_stack):
            return
        try:
            self.push_screen(pivot_screen(self.store, self.runner))
        except (BadInput, OSError) as e:
            self.store.fail(str(e))
            self._redraw()

    def action_start(self) -> None:
        if not self.only_watch and not self.store.trainer.alive:
            self._stopping = False
            self.run_worker(self._start_trainer, thread=True, exclusive=True, group="start")

    def _start_trainer(self) -> None:
        try:
            self.runner.start()
        except (OSError, BadInput) as e:
            self.call_later(self.store.fail, f"the trainer could not be started: {e}")

    def _ask(self, send: object, text: str) -> bool:
        if self.only_watch:
            return False
        try:
            assert callable(send)
            send()
        except (BadInput, OSError) as e:
            self.store.fail(str(e))
            done = False
        else:
            self.store.ask(text)
            done = True
        self._redraw()
        return done

    def action_detach(self) -> None:
        """Leave; the training goes on."""
        self.exit(0)

    # ---- the screen

    def action_go_back(self) -> None:
        """Out of what the pane is in (a cursor, a filter), then back to all panes; never out."""
        focused = self.overview.focused
        if isinstance(focused, Pane) and focused.go_back():
            return
        if self.overview.full:
            self.overview.show_full("")

    def action_open(self) -> None:
        """The focused pane over the whole screen; there, what the pane does with its selection."""
        focused = self.overview.focused
        if not isinstance(focused, Pane) or not focused.id:
            return
        if not self.overview.full:
            self.overview.show_full(focused.id)
        elif not focused.open():
            self.overview.show_full("")

    def action_search(self) -> None:
        """Ask what to look for in the focused pane, or else in the events."""
        focused = self.overview.focused
        pane = (
            focused
            if isinstance(focused, Pane) and focused.searched is not None
            else self.overview.pane("events")
        )

        def search(text: str | None) -> None:
            if text is not None:
                pane.search(text)

        self.push_screen(
            Ask("find", "shows only lines with this text; empty: all", pane.searched or ""), search
        )

    def action_goto(self) -> None:
        """Ask for a step and show it in the chart."""
        self.push_screen(Ask("go to step", "a step, for example 112,600 or 112.6k"), self._goto)

    def _goto(self, text: str | None) -> None:
        step = fmt.parse_step(text or "")
        if text and step is None:
            self.store.fail(f"{clean(text)!r} is no step; write for example 112,600 or 112.6k")
            self._redraw()
        elif step is not None:
            self.overview.jump(step)

    def on_jump(self, message: Jump) -> None:
        """A pane asks for a step to be shown in the chart."""
        self.overview.jump(message.step)

    def action_pane(self, number: int) -> None:
        self.overview.choose(number)

    def action_next_pane(self) -> None:
        self.overview.cycle(1)

    def action_previous_pane(self) -> None:
        self.overview.cycle(-1)

    def action_zoom(self, by: int) -> None:
        self.overview.chart.zoom(by)

    def action_pan(self, by: int) -> None:
        focused = self.overview.focused
        if focused is None or focused.id == "chart":
            self.overview.chart.pan(by)
        elif isinstance(focused, AuditPane):
            focused.pan(by)
        else:
            self.action_scroll(-by)

    def action_scroll(self, by: int) -> None:
        focused = self.overview.focused
        target = focused if hasattr(focused, "scroll_lines") else self.overview.pane("audit")
        target.scroll_lines(by)  # type: ignore[union-attr]

    def action_page(self, by: int) -> None:
        focused = self.overview.focused
        if isinstance(focused, Pane):
            self.action_scroll(by * max(1, focused.size.height - 3))

    def action_end(self, by: int) -> None:
        self.action_scroll(by * 10**9)

    def action_smooth(self, by: int) -> None:
        self.store.smooth(by)
        self._redraw()

    def action_log_scale(self) -> None:
        self.overview.chart.log_scale()

    def action_x_axis(self) -> None:
        self.overview.chart.next_x()

    def action_help(self) -> None:
        self.push_screen(Help(self.only_watch, self.overview.focused_name))

    def action_toggle_mouse(self) -> None:
        """Off: the terminal selects and copies text itself."""
        self._mouse_on = not self._mouse_on
        driver: Any = self._driver  # Textual has no public way
        if driver is not None and not self.is_headless:
            driver._mouse = True  # else it does neither
            if self._mouse_on:
                driver._enable_mouse_support()
            else:
                driver._disable_mouse_support()
            driver._mouse = self._mouse_on  # so it stays after a suspend
        self.store.tell("mouse on" if self._mouse_on else _MOUSE_OFF)
        self._redraw()

    def action_set_theme(self, name: str) -> None:
        self.theme = name

    def get_system_commands(self, screen: Screen[object]) -> Iterable[SystemCommand]:
        for c in commands.usable(self.only_watch):
            if c.action != "pane":
                yield SystemCommand(
                    c.help.split(";")[0], f"key {c.shown}" if c.shown else "", partial(self._run, c.action)
                )
        for name in THEMES:
            yield SystemCommand(f"Theme: {name}", "", partial(self.action_set_theme, name))

    async def _run(self, action: str) -> None:
        await self.run_action(action)


def run_cockpit(
    run_dir: Path, runner: Runner, *, watch: bool = False, start: bool | None = None, theme: str = DARK.name,
    ascii_only: bool = False, mouse: bool = True,
) -> int:  # fmt: skip
    """Fly the run until the person leaves. Starts the trainer unless one runs, or only looks on; exit code."""
    app = CockpitApp(
        run_dir, runner, watch=watch, start=not watch if start is None else start, theme=theme,
        ascii_only=ascii_only, mouse=mouse,
    )  # fmt: skip
    code = app.run(mouse=mouse)
    state = runner.poll()
    if state.alive and app.return_code == 0:
        sys.stdout.write(
            f"{run_dir}: the training goes on (pid {state.pid}); `andrea-tui {run_dir}` shows it again\n"
        )
    return app.return_code or code or 0


__all__ = ["CockpitApp", "Pane", "run_cockpit"]
