"""The overview: one screen of panes, each shown its frozen view of the store."""

import time
from collections.abc import Callable
from typing import Any

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.geometry import NULL_OFFSET, NULL_SPACING, Region, Size
from textual.layout import ArrangeResult, Layout, WidgetPlacement
from textual.screen import Screen
from textual.widget import Widget

from andrea_tui.core import commands
from andrea_tui.core.away import AwayView
from andrea_tui.core.store import Store
from andrea_tui.core.views import FooterView
from andrea_tui.screens.narrow import NarrowCompositor
from andrea_tui.screens.plan import PANES, Plan, plan
from andrea_tui.widgets.alerts import AlertsLine
from andrea_tui.widgets.audit import AuditPane
from andrea_tui.widgets.away import AwayPane, rows
from andrea_tui.widgets.chart import LossChart
from andrea_tui.widgets.checkpoints import CheckpointsPane
from andrea_tui.widgets.events import EventsPane
from andrea_tui.widgets.footer import FooterLine
from andrea_tui.widgets.mini import ArmLossPane, MiniChart
from andrea_tui.widgets.mix import MixPane
from andrea_tui.widgets.pane import Pane
from andrea_tui.widgets.resources import CompactLine, ResourcesPane
from andrea_tui.widgets.status import NumbersLine, StatusLine

_SLOW = 10.0  # seconds between redraws of what only ages


class _Planned(Layout):
    """Places the children where the plan says; who is not in it is not drawn."""

    name = "planned"

    def arrange(
        self, parent: Widget, children: list[Widget], size: Size, greedy: bool = True
    ) -> ArrangeResult:
        assert isinstance(parent, Board)
        boxes = parent.boxes(size)
        return [
            WidgetPlacement(Region(*boxes[c.id]), NULL_OFFSET, NULL_SPACING, c)
            for c in children
            if c.id in boxes
        ]


class Board(Widget):
    """Holds the panes."""

    DEFAULT_CSS = "Board { width: 100%; height: 100%; overflow: hidden; }"

    full = ""  # the pane that fills the screen
    dead = False
    alerts = False
    away = 0  # lines that what happened before the attach would like

    def __init__(self) -> None:
        super().__init__(id="board")
        self._planned = _Planned()

    @property
    def layout(self) -> Layout:
        return self._planned

    def boxes(self, size: Size | None = None) -> Plan:
        w, h = size or self.size
        return plan(w, h, self.full, self.dead, self.alerts, self.away)

    def compose(self) -> ComposeResult:
        yield StatusLine("status")
        yield NumbersLine("numbers")
        yield AwayPane("away")
        yield LossChart("chart")
        yield MixPane("mix")
        yield AuditPane("audit")
        yield CheckpointsPane("checkpoints")
        yield EventsPane("events")
        yield ResourcesPane("resources")
        yield ArmLossPane("arms")
        for i in range(3):
            yield MiniChart(f"mini{i}")
        yield CompactLine("compact")
        yield AlertsLine("alerts")
        yield FooterLine("footer")


_REPAINTS = (0.2, 1.0)  # seconds after a change of size


class Overview(Screen[None], inherit_bindings=False):
    """Keys go to the app's actions; the panes are shown what the store holds."""

    def __init__(self, store: Store) -> None:
        super().__init__()
        self._compositor = NarrowCompositor()
        self.store = store
        self._board = Board()
        self._shown = -1  # revision of the store that is on the screen
        self._next_slow = 0.0
        self.away: AwayView | None = None  # what happened before the attach, while that is shown

    @staticmethod
    def bindings(watch: bool) -> list[BindingType]:
        out: list[BindingType] = []
        for c in commands.usable(watch):
            for key in filter(None, c.keys.split(",")):
                action = f"app.pane({key})" if c.action == "pane" else f"app.{c.action}"
                out.append(Binding(key, action, c.label or c.help, show=False))
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

    def update(self, force: bool = False) -> None:
        """Show the panes that are on the screen what changed since the last call."""
        if not self._board.children:  # not composed yet, or taken down already
            return
        now = time.time()
        store, board = self.store, self._board
        changed = force or store.revision != self._shown
        slow = changed or now >= self._next_slow
        self._shown = store.revision
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
            self._next_slow = now + _SLOW
            self._show(boxes, "checkpoints", lambda: store.checkpoints_view(now))
            self._show(boxes, "compact", lambda: store.line_view(now))
        if changed:
            self._show_changed(boxes, now)

    def _show_changed(self, boxes: Plan, now: float) -> None:
        store, board = self.store, self._board
        alive = store.trainer.alive
        width = self.size.width - 2
        self._show(boxes, "numbers", lambda: store.numbers_view(now))
        self._show(boxes, "chart", store.chart_view)
        mix = store.mix_view() if "mix" in boxes or "arms" in boxes else None
        self._show(boxes, "mix", lambda: mix)
        self._show(boxes, "arms", lambda: mix)
        self._show(boxes, "audit", store.audit_view)
        self._show(boxes, "events", lambda: store.events_view(now))
        self._show(boxes, "resources", store.resources_view)
        if "mini0" in boxes:
            chart = self.chart
            for i, view in enumerate(store.minis(chart.lens, chart.coordinates() if chart.view else None)):
                self._show(boxes, f"mini{i}", lambda view=view: view)  # type: ignore[misc]
        self._show(
            boxes, "footer", lambda: FooterView(commands.footer(store.watch, alive, width, board.full))
        )

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
        return self._board.query_one(f"#{name}", Pane)

    @property
    def chart(self) -> LossChart:
        return self._board.query_one(LossChart)

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
        for pane in self._board.query(Pane):
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
