"""The cockpit: bindings, screens, signal handlers; no logic.

feed thread → message → store → frozen view → widgets;  key or palette → command → runner → signal → trainer.
"""

# isort: off
import andrea_tui.core.early  # noqa: F401  first: see there

# isort: on
import asyncio
import gc
import signal
import sys
import time
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

from textual import events
from textual.app import App, SystemCommand
from textual.binding import Binding, BindingType
from textual.filter import LineFilter
from textual.message import Message
from textual.screen import Screen

from andrea_tui.core import commands
from andrea_tui.core.feed import Feed
from andrea_tui.core.memory import Memory
from andrea_tui.core.store import Store
from andrea_tui.core.tried import Tried
from andrea_tui.driver import ENDING, CockpitDriver, end_soon
from andrea_tui.filters import Ascii, NoColour
from andrea_tui.runner import Runner
from andrea_tui.screens.ask import Ask
from andrea_tui.screens.help import Help
from andrea_tui.screens.overview import Overview, target
from andrea_tui.screens.quit import QuitPanel
from andrea_tui.themes import DARK, THEMES
from andrea_tui.widgets.audit import AuditPane
from andrea_tui.widgets.checkpoints import CheckpointsPane
from andrea_tui.widgets.pane import Pane
from engine.errors import BadInput

gc.freeze()  # what was imported stays, and is not looked through again
gc.enable()  # `early` turned it off

REDRAW = 0.45  # seconds: about twice a second at most
_MOUSE_OFF = "mouse off: the terminal selects and copies; m turns it on"
_LOOK = 60.0  # seconds between notes of what was last seen


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
        super().__init__(driver_class=CockpitDriver)
        self._no_colour, self._ascii = NoColour(self.no_color), Ascii(ascii_only)
        self.run_dir, self.runner, self.only_watch = run_dir, runner, watch
        self._start = start and not watch
        self._stopping = False
        self._mouse_on = mouse
        self.store = Store(run_dir, watch)
        self._tried = Tried()
        self.overview = Overview(self.store)
        self.memory = Memory(run_dir, self.store)
        self.crash: Exception | None = None
        tty = sys.__stdin__.fileno() if sys.__stdin__ is not None and sys.__stdin__.isatty() else None
        self.feed = Feed(run_dir, runner, self._notify, self._lost_terminal, tty, self.memory.recall)
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
        self._loop_now = asyncio.get_running_loop()
        if not self.is_headless:
            for number in ENDING:
                signal.signal(number, self._asked_to_end)
            for number in (signal.SIGUSR1, signal.SIGUSR2):
                signal.signal(number, self._not_for_us)
        self.app_resume_signal.subscribe(self, self._resumed)
        self.feed.start()
        self.set_interval(1.0, self._second)
        if not self._mouse_on:
            self.store.tell(_MOUSE_OFF)
        if self._start:
            self.call_after_refresh(self.action_start)

    def _notify(self) -> None:
        """In the feed's thread."""
        self.post_message(self.Fed())

    def _asked_to_end(self, *_: object) -> None:
        """A signal. Not by the loop's own handlers: it may hang in a write to a terminal that takes nothing."""
        self._loop_now.call_soon_threadsafe(self.action_detach)
        if not (isinstance(self._driver, CockpitDriver) and self._driver.lent):  # an editor is let finish
            end_soon(self._driver)

    def _not_for_us(self, number: int, _: object) -> None:
        """By default they would kill the dashboard."""
        name = signal.Signals(number).name
        self._loop_now.call_soon_threadsafe(
            self.store.fail, f"{name} is for the trainer, this is the dashboard"
        )

    def _resumed(self, _: object) -> None:
        """Back from a suspend: every cell again, at the size of now."""
        for screen in self.screen_stack:
            screen.refresh(layout=True)
            for widget in screen.query("*"):
                widget.refresh()

    def on_unmount(self) -> None:
        self.memory.close()
        self.feed.close()
        gc.enable()

    def on_cockpit_app_fed(self) -> None:
        first = self.store.revision == 0
        for update in self.feed.take():
            self.store.apply(update)
            self.memory.follow(update)
        self._settle(first)
        self._draw_soon()
        if self._stopping and not self.store.trainer.alive:
            self.exit(self.store.trainer.exit_code or 0)

    def _settle(self, first: bool = False) -> None:
        """What a long history leaves to do is done in slices, between which keys have their turn."""
        if first or (self.store.loading is None and not self._whole):
            self._whole = self.store.loading is None
            if self._whole:
                self.set_timer(1.0, self.memory.keep)
                gc.freeze()
                gc.enable()
                if not self.memory.looked_back:
                    self.set_interval(_LOOK, self.memory.note)
                    if self.memory.look_back():
                        self.overview.show_away(self.memory.away)
            self._redraw()  # the first look and the whole history don't wait for the next beat
        if self.store.unsettled and not self._working:
            self._working = True
            self.set_timer(0.001, self._work)

    def _work(self) -> None:
        self._working = False
        if not self.store.work():
            self._redraw()
        self._settle()

    _whole = _working = False

    def on_cockpit_app_hung_up(self) -> None:
        self.exit(0)

    def _redraw(self) -> None:
        if self.overview.is_mounted:
            self.overview.update()

    def _draw_soon(self) -> None:
        """What the feed brought; at once, if that does not come too often."""
        wait = self._drawn + REDRAW - time.monotonic()
        if wait <= 0:
            self._beat()
        elif not self._due:
            self._due = True
            self.set_timer(wait, self._beat)

    def _second(self) -> None:
        """Ages grow also while nothing comes."""
        if time.monotonic() - self._drawn > 2 * REDRAW:
            self._beat()

    def _beat(self) -> None:
        self._due, self._drawn = False, time.monotonic()
        if self.overview.is_mounted:
            self.overview.beat()

    _due, _drawn = False, 0.0

    def _lost_terminal(self) -> None:
        """In the feed's thread. The loop may hang in a write to what is gone: then the process ends anyway."""
        self.post_message(self.HungUp())
        end_soon(None)

    # ---- what happened since the last look

    def action_away(self) -> None:
        """What happened since the last look before this one."""
        if self.overview.away is not None:
            self.overview.show_away(None)
        elif self.memory.away.lines:
            self.overview.show_away(self.memory.away)
        else:
            self.store.tell("this is the first look at this run", "dim")
            self._redraw()

    async def on_event(self, event: events.Event) -> None:
        """Any key closes what is told at the attach, and then does what it always does."""
        if isinstance(event, events.Key) and self.overview.away is not None and event.key != "w":
            self.overview.show_away(None)
        if isinstance(event, events.Key) and event.is_forwarded and self._typed_late(event):
            return
        await super().on_event(event)

    def _typed_late(self, key: events.Key) -> bool:
        """Whether a key that nobody took was on its way to a pane when the line to type in was opened."""
        return isinstance(self.screen, Ask) and self.screen.typed(key)

    # ---- errors

    def _handle_exception(self, error: Exception) -> None:
        """An error of ours ends the dashboard: told when the terminal is as it was, in words that can be sent on."""
        super()._handle_exception(error)
        self._exit_renderables.clear()  # Textual's would show the values of all variables
        self.crash = self.crash or error

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

    def action_try_prompt(self, step: int | None = None) -> None:
        """A text from the checkpoint of that step, or from the newest."""
        from andrea_tui.screens.prompt import PromptScreen

        if not isinstance(self.screen, PromptScreen):
            self.push_screen(PromptScreen(self.store, self._tried, step))

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

    def action_smooth(self, by: int) -> None:
        self.store.smooth(by)
        self._settle()
        self._redraw()

    def on_checkpoints_pane_chosen(self, message: CheckpointsPane.Chosen) -> None:
        """What can be done with it."""
        from andrea_tui.screens.checkpoint import CheckpointMenu  # the first frame does not wait for it

        def answer(chosen: tuple[str, int] | None) -> None:
            match chosen:
                case ("sample", step):
                    self.action_try_prompt(step)
                case ("audit", step):
                    self.overview.show_full("audit")
                    self.overview.query_one(AuditPane).goto(step)
                case ("chart", step):
                    self.overview.jump(step)

        self.push_screen(CheckpointMenu(self.store, message.step), answer)

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
        # What acts on the training stands last: Enter in a palette that was just opened takes the first one.
        for c in sorted(commands.usable(self.only_watch), key=lambda c: c.changes):
            if c.action != "pane":
                yield SystemCommand(
                    c.help.split(";")[0], f"key {c.shown}" if c.shown else "", partial(self._run, c.action)
                )
        for name in () if self.no_color else THEMES:
            yield SystemCommand(f"Theme: {name}", "", partial(self.action_set_theme, name))

    async def _run(self, action: str) -> None:
        await self.run_action(target(action))


__all__ = ["CockpitApp", "Pane"]
