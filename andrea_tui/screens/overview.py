"""The overview: shows each pane its frozen view of the store, and moves among the panes."""

import time
from collections.abc import Callable
from typing import Any

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.screen import Screen

from andrea_tui.core import commands, fmt
from andrea_tui.core.away import AwayView
from andrea_tui.core.store import Store
from andrea_tui.core.text import clean
from andrea_tui.core.views import FooterView
from andrea_tui.screens.ask import Ask
from andrea_tui.screens.board import Board
from andrea_tui.screens.narrow import NarrowCompositor
from andrea_tui.screens.plan import PANES, Plan
from andrea_tui.widgets.audit import AuditPane
from andrea_tui.widgets.away import rows
from andrea_tui.widgets.chart import LossChart
from andrea_tui.widgets.pane import Jump, Pane

_SLOW = 10.0  # seconds between redraws of what only ages
_SECOND = 0.85  # between redraws for nothing but an age or more steps
_REPAINTS = (0.2, 1.0)  # seconds after a change of size


class Overview(Screen[None], inherit_bindings=False):
    """What moves among the panes is done here; what acts on the training is the app's."""

    def __init__(self, store: Store) -> None:
        super().__init__()
        self._compositor = NarrowCompositor()
        self.store = store
        self._board = Board()
        self._shown = -1  # revision of the store that is on the screen
        self._next_slow = self._next_second = 0.0  # time.monotonic()
        self._news = -1  # of the store, that are on the screen
        self._saved: tuple[int, dict[int, int] | None] = (-1, None)
        self.away: AwayView | None = None  # what happened before the attach, while that is shown

    @staticmethod
    def bindings(watch: bool) -> list[BindingType]:
        out: list[BindingType] = []
        for c in commands.usable(watch):
            for key in filter(None, c.keys.split(",")):
                action = f"pane({key})" if c.action == "pane" else c.action
                out.append(Binding(key, target(action), c.label or c.help, show=False))
        if watch:
            out.append(Binding("q", "app.detach", "leave", show=False))
        return out

    def compose(self) -> ComposeResult:
        yield self._board

    def on_mount(self) -> None:
        for binding in self.bindings(self.store.watch):
            assert isinstance(binding, Binding)
            self._bindings.bind(binding.key, binding.action, binding.description, show=False)

    def on_resize(self) -> None:
        if self._board.children:
            self._replan()  # the panes may have been laid out for the size before
        for delay in _REPAINTS:
            self.set_timer(delay, self._repaint)

    def _repaint(self) -> None:
        """Every cell again: frames that were on their way at a change of size may have painted over the new one."""
        for pane in self._board.children:
            pane.refresh()

    def beat(self) -> None:
        """`update`, once a second for what always grows, at once for anything else."""
        if self.store.news != self._news or time.monotonic() >= self._next_second:
            self.update()

    def update(self, force: bool = False) -> None:
        """Show the panes that are on the screen what changed since the last call."""
        if not self._board.children:  # not composed yet, or taken down already
            return
        now = time.time()
        self._next_second = time.monotonic() + _SECOND
        store, board = self.store, self._board
        changed = force or store.revision != self._shown
        saved = (
            len(store.events),
            store.sizes,
        )  # what the rows of checkpoints are made of, but for their age
        slow = force or saved != self._saved or time.monotonic() >= self._next_slow
        self._shown, self._news = store.revision, store.news
        alerts = store.alerts_view(now)
        dead = store.state(now).kind == "dead"
        if (dead, bool(alerts.alerts)) != (board.dead, board.alerts):
            board.dead, board.alerts = dead, bool(alerts.alerts)
            self._replan()
            changed = slow = True
        boxes = board.boxes()
        self._show(boxes, "status", lambda: store.status_view(now))
        self._show(boxes, "alerts", lambda: alerts)
        self._show(boxes, "away", lambda: self.away or AwayView())
        if slow:
            self._next_slow = time.monotonic() + _SLOW
            self._saved = saved
            self._show(boxes, "checkpoints", lambda: store.checkpoints_view(now))
        if changed or slow:
            self._show(boxes, "compact", lambda: store.line_view(now))
        if changed:
            self._show_changed(boxes, now)
            self._show_charts(boxes)

    def _show_changed(self, boxes: Plan, now: float) -> None:
        store, board = self.store, self._board
        alive = store.trainer.alive
        width = self.size.width - 2
        self._show(boxes, "numbers", lambda: store.numbers_view(now))
        self._show(boxes, "audit", lambda: store.audit_view(now))
        self._show(boxes, "events", lambda: store.events_view(now))
        self._show(boxes, "resources", store.resources_view)
        self._show(
            boxes, "footer", lambda: FooterView(commands.footer(store.watch, alive, width, board.full))
        )

    def _show_charts(self, boxes: Plan) -> None:
        store, board = self.store, self._board
        self._show(boxes, "chart", store.chart_view)
        mix = store.mix_view(curves=board.full == "mix") if "mix" in boxes or "arms" in boxes else None
        self._show(boxes, "mix", lambda: mix)
        self._show(boxes, "arms", lambda: mix)
        if "mini0" in boxes:
            chart = self.chart
            for i, view in enumerate(store.minis(chart.lens, chart.coordinates() if chart.view else None)):
                self._show(boxes, f"mini{i}", lambda view=view: view)  # type: ignore[misc]

    def show_away(self, view: AwayView | None) -> None:
        """Show it above the chart, or no more."""
        self.away = view
        self._board.away = rows(view) if view is not None else 0
        self._replan()

    def _replan(self) -> None:
        # Asked of a child: a widget's layout forgets where its children lie only when one of them asks.
        self.pane("status").refresh(layout=True)
        self.call_after_refresh(self.update, True)

    def _show(self, boxes: Plan, name: str, view: Callable[[], Any]) -> None:
        if name in boxes:
            self.pane(name).show(view())

    # ---- panes

    def pane(self, name: str) -> Pane[Any]:
        return self._board.panes[name]

    @property
    def chart(self) -> LossChart:
        return self._board.chart

    @property
    def full(self) -> str:
        return self._board.full

    @property
    def focused_name(self) -> str:
        """The pane in focus, "" for none."""
        return self.focused.id or "" if self.focused is not None else ""

    def jump(self, step: int) -> None:
        """Show the step in the chart, over the whole screen."""
        self.show_full("chart")
        self.chart.goto(step)

    def show_full(self, name: str) -> None:
        """The pane over the whole screen; "" for all panes."""
        self._board.full = name
        for pane in self._board.panes.values():
            pane.full = pane.id == name
        self._replan()
        if name:
            self.pane(name).focus()

    def choose(self, number: int) -> None:
        """Focus the pane with that number; one that has no room here is opened full."""
        name = PANES[number - 1]
        if self.full or name not in self._board.boxes():
            self.show_full(name)
        else:
            self.pane(name).focus()

    def cycle(self, by: int) -> None:
        boxes = self._board.boxes()
        names = [n for n in PANES if n in boxes] if not self.full else list(PANES)
        if not names:
            return
        here = self.focused.id if self.focused is not None else None
        i = names.index(here) + by if here in names else (0 if by > 0 else -1)
        name = names[i % len(names)]
        if self.full:
            self.show_full(name)
        else:
            self.pane(name).focus()

    # ---- keys

    def action_go_back(self) -> None:
        """Out of what the pane is in (a cursor, a filter), then back to all panes; never out."""
        focused = self.focused
        if isinstance(focused, Pane) and focused.go_back():
            return
        if self.full:
            self.show_full("")

    def action_open(self) -> None:
        """The focused pane over the whole screen; there, what the pane does with its selection."""
        focused = self.focused
        if not isinstance(focused, Pane) or not focused.id:
            return
        if not self.full:
            self.show_full(focused.id)
        elif not focused.open():
            self.show_full("")

    async def action_search(self) -> None:
        """Ask what to look for in the focused pane, or else in the events."""
        focused = self.focused
        pane = focused if isinstance(focused, Pane) and focused.searched is not None else self.pane("events")

        def search(text: str | None) -> None:
            if text is not None:
                pane.search(text)
            if text and not self.full:
                self.show_full(pane.id or "")

        # awaited: keys that follow at once wait for the line and don't go to the panes
        hint = "shows only lines with this text; empty: all"
        await self.app.push_screen(Ask("find", hint, pane.searched or ""), search)

    def action_do(self, what: str) -> None:
        """What one pane alone can do."""
        focused = self.focused
        if isinstance(focused, Pane):
            focused.act(what)

    async def action_goto(self) -> None:
        """Ask for a step and show it in the chart."""
        await self.app.push_screen(Ask("go to step", "a step, for example 112,600 or 112.6k"), self._goto)

    def _goto(self, text: str | None) -> None:
        step = fmt.parse_step(text or "")
        if text and step is None:
            self.store.fail(f"{clean(text)!r} is no step; write for example 112,600 or 112.6k")
            self.update()
        elif step is not None:
            self.jump(step)

    def on_jump(self, message: Jump) -> None:
        """A pane asks for a step to be shown in the chart."""
        self.jump(message.step)

    def action_pane(self, number: int) -> None:
        self.choose(number)

    def action_next_pane(self) -> None:
        self.cycle(1)

    def action_previous_pane(self) -> None:
        self.cycle(-1)

    def action_zoom(self, by: int) -> None:
        self.chart.zoom(by)
        self.update(force=True)

    def action_pan(self, by: int) -> None:
        focused = self.focused
        if focused is None or focused.id == "chart":
            self.chart.pan(by)
            self.update(force=True)
        elif isinstance(focused, AuditPane):
            focused.pan(by)
        else:
            self.action_scroll(-by)

    def action_scroll(self, by: int) -> None:
        focused = self.focused
        target = focused if hasattr(focused, "scroll_lines") else self.pane("audit")
        target.scroll_lines(by)  # type: ignore[union-attr]

    def action_page(self, by: int) -> None:
        focused = self.focused
        if isinstance(focused, Pane):
            self.action_scroll(by * max(1, focused.size.height - 3))

    def action_end(self, by: int) -> None:
        self.action_scroll(by * 10**9)

    def action_log_scale(self) -> None:
        self.chart.log_scale()
        self.update(force=True)

    def action_x_axis(self) -> None:
        self.chart.next_x()
        self.update(force=True)


def target(action: str) -> str:
    """Whose it is: what moves among the panes is this screen's, the rest the app's."""
    name = action.partition("(")[0]
    return f"screen.{action}" if hasattr(Overview, f"action_{name}") else f"app.{action}"
