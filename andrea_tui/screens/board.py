"""Holds the panes and lays them where the plan says."""

from typing import Any

from textual.app import ComposeResult
from textual.geometry import NULL_OFFSET, NULL_SPACING, Region, Size
from textual.layout import ArrangeResult, Layout, WidgetPlacement
from textual.widget import Widget

from andrea_tui.screens.plan import Plan, plan
from andrea_tui.widgets.alerts import AlertsLine
from andrea_tui.widgets.audit import AuditPane
from andrea_tui.widgets.away import AwayPane
from andrea_tui.widgets.chart import LossChart
from andrea_tui.widgets.checkpoints import CheckpointsPane
from andrea_tui.widgets.events import EventsPane
from andrea_tui.widgets.footer import FooterLine
from andrea_tui.widgets.mini import ArmLossPane, MiniChart
from andrea_tui.widgets.mix import MixPane
from andrea_tui.widgets.pane import Pane
from andrea_tui.widgets.resources import CompactLine, ResourcesPane
from andrea_tui.widgets.status import NumbersLine, StatusLine


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
        self.chart = LossChart("chart")
        every: list[Pane[Any]] = [
            StatusLine("status"), NumbersLine("numbers"), AwayPane("away"), self.chart, MixPane("mix"),
            AuditPane("audit"), CheckpointsPane("checkpoints"), EventsPane("events"), ResourcesPane("resources"),
            ArmLossPane("arms"), *(MiniChart(f"mini{i}") for i in range(3)), CompactLine("compact"),
            AlertsLine("alerts"), FooterLine("footer"),
        ]  # fmt: skip
        self.panes = {str(p.id): p for p in every}

    @property
    def layout(self) -> Layout:
        return self._planned

    def boxes(self, size: Size | None = None) -> Plan:
        w, h = size or self.size
        return plan(w, h, self.full, self.dead, self.alerts, self.away)

    def compose(self) -> ComposeResult:
        yield from self.panes.values()
