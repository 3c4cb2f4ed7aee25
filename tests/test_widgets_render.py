"""Every pane with hostile data at every size: no exception, every line exactly as wide as the pane."""

import dataclasses
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from andrea_tui.core import commands, views
from andrea_tui.core.ema import fold
from andrea_tui.core.journal import Journal
from andrea_tui.core.resources import Gpu, Resources
from andrea_tui.core.state import State
from andrea_tui.core.text import clean
from andrea_tui.screens.plan import PANES, plan
from andrea_tui.widgets import paint
from andrea_tui.widgets.alerts import AlertsLine
from andrea_tui.widgets.audit import AuditPane
from andrea_tui.widgets.chart import LossChart
from andrea_tui.widgets.checkpoints import CheckpointsPane
from andrea_tui.widgets.events import EventsPane
from andrea_tui.widgets.footer import FooterLine
from andrea_tui.widgets.mini import ArmLossPane, MiniChart
from andrea_tui.widgets.mix import MixPane
from andrea_tui.widgets.pane import Pane
from andrea_tui.widgets.resources import CompactLine, ResourcesPane
from andrea_tui.widgets.status import NumbersLine, StatusLine

EVIL = clean("日本語👩‍👩‍👧\x1b[2J\u202eabc\u200b[/red][@click=app.quit] e\u0301\x9b\ud800" + "x" * 50)
EVIL_TEXT = clean("def f():\n\treturn '日本語'\n\n\n" + "wide 語" * 40 + "\x1b]52;c;x\x07\n", "\n")
SIZES = [
    (1, 1),
    (2, 3),
    (5, 2),
    (7, 9),
    (20, 6),
    (34, 8),
    (38, 17),
    (80, 11),
    (82, 17),
    (130, 20),
    (300, 100),
]


def chart(n: int, **more: Any) -> views.ChartView:
    rng = np.random.default_rng(n)
    loss = rng.normal(3, 0.2, n).astype(np.float32)
    if n > 20:
        loss[n // 2], loss[n // 3], loss[5] = 1e30, np.nan, -7
    step = np.arange(1, n + 1, dtype=np.int32)
    return views.ChartView(n, step, loss, fold(loss), 0.99, (0, 100, n), (n // 4,), **more)


def shifted(first: int) -> views.ChartView:
    v = chart(100)
    return views.ChartView(1, v.step + first, v.loss, v.ema, 0.99)


def arms(n: int) -> views.MixView:
    made = [
        views.ArmView(f"{EVIL[:i]}{i}", i / n, 0.01, 0.5, 3.0 + i, None if i % 3 else 1.2, -0.01)
        for i in range(n)
    ]
    odd = views.ArmView("gone", float("nan"), None, None, float("inf"), float("nan"))
    told = [
        replace(a, target=0.3, realised=0.31, pulls=10**9, epochs=1e4, reward="+0.123", why=EVIL,
                spark=(1.0, None, 3.0) * 8, shut=i % 2 == 0)
        for i, a in enumerate(made)
    ]  # fmt: skip
    return views.MixView(EVIL, 100, (*(told if n % 2 == 0 else made), odd), EVIL, (EVIL, "next"))


LOST = np.full(9, np.nan)
R = Resources(0.5, 2, (10**10, 2 * 10**10), (10**9, 10**12), 1.5, 10**9, (Gpu(EVIL, None, 0, 0, None, None),))
GPU = Gpu("H200", 0.98, 10**11, 14 * 10**10, 91, 700.0)
ROW = views.CheckpointRow(999_999_999, "999d", EVIL, "1.2 GB")
EVENT = views.EventRow(1.7e9, EVIL, 999_999_999, EVIL, "warn")
STATE = State("●", EVIL, "good", True, "training")

STATUS = views.StatusView(EVIL, STATE, 999_999_999, 10**9, "10d 3h", 2, 4, "4s", 40, True)
NUMBERS = views.NumbersView(0.99, 1e30, -1e30, 10**9, float("nan"), 2e-4, 1e9, 1e7, 1e9, 0.38, 10**6)
ALL_LOST = views.ChartView(1, np.arange(1, 10, dtype=np.int32), LOST.astype(np.float32), LOST, 0.99)
SCORES = (("coherence", 93.4), ("seq_rep_4", 0.5), ("copy", 128.0), (EVIL, -1e30), ("similarity", 0.0))
TEXT = views.SampleText(EVIL_TEXT, EVIL, SCORES)
PAIR = views.TextPair(EVIL_TEXT, TEXT, views.SampleText(""))
AUDIT = views.AuditView((views.Audit(10**9, (PAIR, PAIR), 50.0),), files=frozenset())
AUDITS = views.AuditView(
    tuple(views.Audit(i, (PAIR,) * 5, float(i)) for i in range(40)),
    (("coherence", 10.0, 90.0), (EVIL, 0.0, 1e9)),
    policies=((0, EVIL), (1, "v2")),
)
MINI = views.MiniView(EVIL, 1, chart(300).step, chart(300).loss, EVIL)

CASES: list[tuple[type[Pane[Any]], list[Any]]] = [
    (StatusLine, [views.StatusView("r/", STATE), STATUS]),
    (NumbersLine, [views.NumbersView(0.99), NUMBERS]),
    (
        LossChart,
        [
            *[chart(n) for n in (0, 1, 2, 23, 3000)],
            chart(0, loading=40),
            shifted(999_999_900),
            shifted(2**31 - 101),
            ALL_LOST,
        ],
    ),
    (MixPane, [views.MixView(), arms(1), arms(16), arms(60)]),
    (ArmLossPane, [views.MixView(), arms(16)]),
    (AuditPane, [views.AuditView(), AUDIT, AUDITS]),
    (CheckpointsPane, [views.CheckpointsView(), views.CheckpointsView((ROW,) * 300, 10**15)]),
    (
        EventsPane,
        [
            views.EventsView(),
            views.EventsView(Journal((EVENT,) * 9), 9, (EVIL,) * 9),
            views.EventsView(Journal((EVENT,)), 1, (EVIL,) * 9, 5, EVIL, True),
        ],
    ),
    (
        ResourcesPane,
        [
            views.ResourcesView(),
            views.ResourcesView(R, EVIL, EVIL),
            views.ResourcesView(Resources(gpus=(GPU, GPU))),
        ],
    ),
    (CompactLine, [views.LineView(None, 0, None), views.LineView(ROW, 3, R)]),
    (AlertsLine, [views.AlertsView(), views.AlertsView((views.Alert(EVIL, "bad"),) * 5)]),
    (FooterLine, [views.FooterView(commands.footer(False, True, 78))]),
    (
        MiniChart,
        [
            views.MiniView("lr", 1, chart(0).step, chart(0).loss),
            MINI,
            views.MiniView("x", 1, ALL_LOST.step, LOST),
        ],
    ),
]


@pytest.mark.parametrize(("kind", "shown"), CASES, ids=[k.__name__ for k, _ in CASES])
def test_every_line_is_exactly_as_wide_as_the_pane(kind: type[Pane[Any]], shown: list[Any]) -> None:
    for view in shown:
        pane = kind()
        for w, h in SIZES:
            lines = paint.fill(pane.draw(view, w, h), w, h)
            assert len(lines) == h
            for x in lines:
                assert paint.width_of(x) == w
                for text, style in x:
                    assert style in paint.STYLES
                    assert paint.cells(paint.to_ascii(text)) == paint.cells(text)
                    assert paint.to_ascii(text).isascii()


def test_the_chart_in_every_zoom_scale_axis_and_place() -> None:
    for n in (1, 50, 3000):
        c = LossChart()
        view = dataclasses.replace(
            chart(n),
            t=np.arange(n, dtype=np.float64) * 7.5 + 1.7e9,
            tokens_per_step=8192,
            heldout=((n // 2, 3.1), (n, 2.9)),
        )
        c.draw(view, 82, 17)
        for i in range(60):
            c.zoom((1, 1, 1, -1, 0)[i % 5])
            c.pan((1, 3, -2)[i % 3])
            if i % 7 == 0:
                c.next_x()
            if i % 4 == 0:
                c.open()
            c.logarithmic = bool(i % 2)
            for x in c.draw(view, 82, 17):
                assert paint.width_of(paint.exact(x, 82)) == 82


def test_a_spike_and_a_lost_step_are_marked() -> None:
    lines = LossChart().draw(chart(3000), 82, 17)
    text = ["".join(t for t, _ in x) for x in lines]
    assert "▴" in text[1]
    assert "×" in text[-3]
    assert any("◄" in x for x in text)


def test_panned_to_the_start_it_stays_there() -> None:
    c = LossChart()
    c.draw(chart(3000), 82, 17)
    c.zoom(1)
    for _ in range(50):
        c.pan(1)
    text = ["".join(t for t, _ in x) for x in c.draw(chart(3000), 82, 17)]
    assert "steps 1–" in text[0]
    c.pan(-1)
    text = ["".join(t for t, _ in x) for x in c.draw(chart(3000), 82, 17)]
    assert "steps 1–" not in text[0]  # one key back is enough


@given(st.integers(0, 300), st.integers(0, 120), st.booleans(), st.booleans(), st.sampled_from(["", *PANES]))
@settings(max_examples=400)
def test_boxes_lie_on_the_screen_and_never_overlap(
    w: int, h: int, dead: bool, alerts: bool, full: str
) -> None:
    boxes = plan(w, h, full, dead, alerts)
    used = np.zeros((h, w), int)
    for b in boxes.values():
        assert b.x >= 0
        assert b.y >= 0
        assert b.x + b.w <= w
        assert b.y + b.h <= h
        used[b.y : b.y + b.h, b.x : b.x + b.w] += 1
    assert used.max(initial=0) <= 1
    if w and h:
        assert used.min() == 1  # nor is there a hole
        assert full or "status" in boxes


def test_the_designed_size() -> None:
    p = plan(120, 40)
    assert (p["chart"].h, p["audit"].h, p["events"].h, p["alerts"].h, p["footer"].h) == (17, 10, 8, 2, 1)
    assert (p["chart"].w, p["mix"].w) == (82, 38)


@pytest.mark.parametrize("width", [5, 20, 40, 60, 78, 118])
@pytest.mark.parametrize("watch", [False, True])
@pytest.mark.parametrize("alive", [False, True])
def test_the_footer_is_never_cut_and_looks_on_without_power(width: int, watch: bool, alive: bool) -> None:
    items = commands.footer(watch, alive, width)
    text = "  ".join(f"{k} {v}" for k, v in items)
    assert len(text) <= width
    assert not watch or not any(v.startswith(("snapshot", "stop", "start")) for _, v in items)
    if width >= 78:
        assert ("?", "help") in items


CELLS = st.lists(
    st.tuples(st.text("ab語é", min_size=1, max_size=4), st.sampled_from(["text", "dim"])), max_size=6
)


@given(CELLS, CELLS, st.integers(1, 80))
def test_changed_finds_every_cell_that_differs(a: list[Any], b: list[Any], width: int) -> None:
    old, new = paint.exact(a, width), paint.exact(b, width)
    spans = paint.changed(old, new)
    before, after = paint._cells(old), paint._cells(new)
    different = {i for i in range(width) if before[i] != after[i]}
    covered = {i for start, end in spans for i in range(start, end)}
    assert different <= covered
    assert all(start in different and end - 1 in different for start, end in spans)


def test_many_held_out_points_leave_the_ema_to_be_seen() -> None:
    points = tuple((s, 3.0) for s in range(10, 3001, 10))
    text = "".join(
        t for x in LossChart().draw(dataclasses.replace(chart(3000), heldout=points), 82, 17) for t, _ in x
    )
    body = text.replace("○ held-out", "")
    assert 12 <= body.count("○") <= 82 / 4
