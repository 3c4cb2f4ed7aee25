"""Each widget as a person sees it, at the sizes that it has in the overview and over the screen, with hostile data."""

import dataclasses
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace
from numpy.typing import NDArray

from andrea_tui.core import commands, views
from andrea_tui.core.away import AwayView
from andrea_tui.core.ema import fold
from andrea_tui.core.journal import EventRow, Journal
from andrea_tui.core.resources import Gpu, Resources
from andrea_tui.core.state import State
from andrea_tui.core.text import clean
from andrea_tui.core.views import Alert, ArmView, Audit, CheckpointRow, SampleText, TextPair
from andrea_tui.screens.plan import plan
from andrea_tui.widgets import paint
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
from tests.snapshot import Snapshots, of_pane

NOW = 1_774_089_000.0  # 21 March 2026, 10:30 UTC
HOUR = 3600.0

WIDE = clean("日本語テキスト")
FAMILY = clean("👩‍👩‍👧 🇨🇦 👍🏽")  # joined by ZWJ, a flag of two letters, a skin tone
ESC = clean("\x1b[2J\x1b]52;c;eA==\x07\x9b31m[/red][@click=app.quit]")
RIGHT_TO_LEFT = clean("שלום \u202eabc\u202c עולם مرحبا")
MARKS = clean("e\u0301 Z\u0351\u036b\u0343 \u0301x \u200b\ufeff\ud800")
EVIL = (WIDE, FAMILY, ESC, RIGHT_TO_LEFT, MARKS)

Size = tuple[int, int]


@pytest.fixture(autouse=True)
def _fixed(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """One zone and one time on every machine."""
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    monkeypatch.setattr(time, "time", lambda: NOW)
    yield
    monkeypatch.undo()
    time.tzset()


class Cases:
    """Collects drawings: `case("normal", pane, view, size)`."""

    def __init__(self) -> None:
        self.drawn: dict[str, str] = {}

    def __call__(self, title: str, pane: Pane[Any], view: Any, size: Size) -> None:
        w, h = size
        title = f"{title}, {w}x{h}"
        assert title not in self.drawn
        lines = paint.fill(pane.draw(view, w, h), w, h)
        assert all(paint.width_of(x) == w for x in lines)
        self.drawn[title] = of_pane(lines)

    def shown(self, title: str, pane: Pane[Any], view: Any, size: Size, *keys: Callable[[Any], Any]) -> None:
        """As it is after those keys, each given the pane. They act on what was drawn."""
        pane.view = view
        pane.draw(view, *size)
        for key in keys:
            key(pane)
            pane.draw(view, *size)
        self(title, pane, view, size)


def at(name: str, w: int, h: int, full: bool = False, **more: Any) -> Size:
    box = plan(w, h, name if full else "", **more)[name]
    return box.w, box.h


def over(pane: Pane[Any]) -> Any:
    """It fills the screen."""
    pane.full = True
    return pane


# ---- the curve


def noise(n: int, salt: int = 0) -> NDArray[np.float64]:
    """−0.5 to 0.5, a function of the index alone: the same on every machine."""
    i = np.arange(1, n + 1, dtype=np.uint64) + np.uint64(salt)
    for _ in range(2):
        i = (i ^ (i >> np.uint64(16))) * np.uint64(0x45D9F3B) % np.uint64(2**32)
    return (i ^ (i >> np.uint64(16))).astype(np.float64) / 2**32 - 0.5


def curve(n: int, first: int = 1, **more: Any) -> views.ChartView:
    """It falls from 9 to 2, with a spike and a step without a loss."""
    i = np.arange(1, n + 1, dtype=np.float64)
    loss = (2 + 7 / (1 + i / 700) + 0.4 * noise(n)).astype(np.float32)
    if n > 20:
        loss[n // 2], loss[n // 3] = 40.0, np.nan
    step = np.arange(first, first + n, dtype=np.int32)
    return views.ChartView(n, step, loss, fold(loss), 0.99, **more)


N = 12_619
HELD = tuple((s, 2.1 + 7 / (1 + s / 700)) for s in range(1000, N, 1000))


def line_at(step: int) -> views.LineAt:
    arms = (("repo-docstrings", 5, 3.1), ("gutenberg", 3, 3.4), (clean("日本語"), 2, float("nan")))
    return views.LineAt(step, 3.2187, 3.2440, 2.1e-4, 0.81, 2, 4, NOW - (N - step) * 9.9, 9.93, arms)


def lost_at(step: int) -> views.LineAt:
    nan = float("nan")
    return views.LineAt(step, nan, 3.2440, 2.1e-4, nan, 0, 0, 0.0, 0.0, None)


RUN = curve(
    N,
    checkpoints=(3_000, 6_500, 9_000, 12_000, 12_500), phases=(4_000, 8_000),
    phase_names=((4_000, "v1-base", "v2-chat"), (8_000, "v2-chat", "v3-polish")),
    t=NOW - (N - np.arange(1, N + 1)) * 9.9, tokens_per_step=8192, heldout=HELD, at=line_at,
    marks=(views.Mark(2_000, "r", "text", "resumed"), views.Mark(10_000, "s", "good", "snapshot")),
)  # fmt: skip


def chart(case: Cases) -> None:
    for w, h in ((80, 24), (120, 40)):
        case(f"three phases in {w}x{h}", LossChart(), RUN, at("chart", w, h))
    case("over the screen", over(LossChart()), RUN, at("chart", 80, 24, True))


def chart_keys(case: Cases) -> None:
    small, large = at("chart", 80, 24), at("chart", 120, 40)
    case.shown("log scale", LossChart(), RUN, large, lambda p: p.log_scale())
    case.shown("by hours", LossChart(), RUN, small, lambda p: p.next_x())
    case.shown("by tokens", LossChart(), RUN, small, lambda p: p.next_x(), lambda p: p.next_x())
    case.shown("zoomed", LossChart(), RUN, small, *[lambda p: p.zoom(1)] * 4)
    case.shown(
        "zoomed and panned", LossChart(), RUN, small, *[lambda p: p.zoom(1)] * 4, *[lambda p: p.pan(1)] * 12
    )
    case.shown("cursor at the end", LossChart(), RUN, large, lambda p: p.open())
    case.shown(
        "cursor at a mark", over(LossChart()), RUN, at("chart", 80, 24, True), lambda p: p.goto(10_000)
    )
    case.shown(
        "cursor on a step without a loss",
        LossChart(),
        dataclasses.replace(RUN, at=lost_at),
        large,
        lambda p: p.goto(N // 3 + 1),
    )


def chart_hostile(case: Cases) -> None:
    size = at("chart", 80, 24)
    lost = np.full(9, np.nan)
    steps = np.arange(1, 10, dtype=np.int32)
    case("empty", LossChart(), curve(0), size)
    case("empty, loading", LossChart(), curve(0, loading=40), size)
    case("one step", LossChart(), curve(1), size)
    case("two steps", LossChart(), curve(2), size)
    case("partly loaded", LossChart(), dataclasses.replace(RUN, loading=37), size)
    case("no finite loss", LossChart(), views.ChartView(1, steps, lost.astype(np.float32), lost, 0.99), size)
    case("nine digits", LossChart(), curve(5_000, 999_990_000), size)
    large = dataclasses.replace(curve(300), loss=curve(300).loss * np.float32(1e9), ema=curve(300).ema * 1e9)
    case("of millions", LossChart(), large, size)
    tiny = dataclasses.replace(curve(300), loss=curve(300).loss * np.float32(1e-6), ema=curve(300).ema * 1e-6)
    case("of millionths", LossChart(), tiny, size)
    names = ((400, clean("日本語"), ESC), (2_500, "a" * 60, RIGHT_TO_LEFT))
    case("names of policies", LossChart(), curve(3_000, phases=(400, 2_500), phase_names=names), size)
    c = LossChart()
    flat = dataclasses.replace(curve(50), loss=np.full(50, 2.5, np.float32), ema=np.full(50, 2.5))
    case.shown("constant, log", c, flat, size, lambda p: p.log_scale())


# ---- the two lines on top


def status(case: Cases) -> None:
    training = State("●", "training", "good", True, "training")
    full = views.StatusView("run/", training, 112_619, 200_000, "10d 3h", 2, 4, "4s")
    stalled = State("▲", "stalled 4m, checkpointing", "bad", True, "stalled")
    dead = State("✗", "dead 9", "bad", False, "dead")
    new = State("■", "not started", "dim", kind="new")
    billions = replace(full, step=999_999_999, max_steps=1_000_000_000, phase=12, seg=1234)
    for w in (80, 120):
        size = at("status", w, 24 if w == 80 else 40)
        case("training", StatusLine(), full, size)
        case("watch and alarms", StatusLine(), replace(full, watch=True, alarms=3), size)
        case("loading", StatusLine(), replace(full, loading=40, eta="n/a"), size)
        case("stalled", StatusLine(), replace(full, state=stalled, eta="n/a", last="4m"), size)
        case("dead", StatusLine(), replace(full, state=dead, eta="n/a", alarms=1, last="2d"), size)
        case("not started", StatusLine(), views.StatusView("run/", new, eta="n/a"), size)
        case("nine digits", StatusLine(), billions, size)
        for name, text in zip(("wide", "joined", "escapes", "right to left", "marks"), EVIL, strict=True):
            odd = replace(full, name=text + "/", state=replace(training, word="training on " + text))
            case(name, StatusLine(), odd, size)


def numbers(case: Cases) -> None:
    full = views.NumbersView(0.99, 3.244, 3.231, 110_400, 3.219, 2.1e-4, 0.81, 6.0, 8_900.0, 0.38)
    nan = float("nan")
    huge = views.NumbersView(0.99, 1e30, -1e30, 999_999_999, 1e30, 1e-30, 1e9, 1e7, 1e12, 1.0, 10**9)
    for w in (80, 120):
        size = at("numbers", w, 24 if w == 80 else 40)
        case("usual", NumbersLine(), full, size)
        case("steps lost", NumbersLine(), replace(full, lost=3, per_minute=623.4), size)
        case("nothing known", NumbersLine(), views.NumbersView(0.99), size)
        case("NaN", NumbersLine(), replace(full, ema=nan, loss=nan, gnorm=float("inf"), lost=1_000), size)
        case("huge", NumbersLine(), huge, size)


# ---- the mix


def arm(name: str, share: float, i: int = 1, **more: Any) -> ArmView:
    spark = tuple(4 - k / 20 + 0.2 * x for k, x in enumerate(noise(24, 100 * i).tolist()))
    given: dict[str, Any] = dict(
        floor=0.05, cap=0.4, loss=3.0 + i / 10, bpb=1.2 + i / 100, trend=-0.012 * i, spark=spark, target=share,
        realised=share * 0.98, pulls=10_000 * i, epochs=0.4 * i, reward=f"{0.35 - 0.1 * i:+.2f}",
        why=f"rank {i}: mean {0.35 - 0.1 * i:+.2f}, bonus {0.1 * i:.2f}",
    )  # fmt: skip
    return ArmView(name, share, **(given | more))


OUTLOOK = (
    "ucb1: ranked anew after step 112,700; reward in spreads of the arm's own loss",
    "as of step 112,600",
)
NAMES = ("repo-docstrings", "python-source", "gutenberg", "chat", "topics", "readmes")
SHARES = (0.34, 0.22, 0.18, 0.12, 0.09, 0.05)
MIX = views.MixView(
    "v3-polish", 100, tuple(arm(n, s, i + 1) for i, (n, s) in enumerate(zip(NAMES, SHARES, strict=True))),
    "ucb1", OUTLOOK,
)  # fmt: skip
SIXTEEN = views.MixView(
    "v12-everything", 100,
    tuple(arm(f"a-very-long-arm-name-of-source-{i:02}", 1 / 16, i) for i in range(16)), "ucb1", OUTLOOK,
)  # fmt: skip
_odd = [arm(text, 0.2, i + 1, why=text, reward="–") for i, text in enumerate(EVIL)]
_gone = ArmView("zombie", 0.0, None, None, None, None)
_nan = arm(
    "nan", float("nan"), 3, loss=float("nan"), bpb=float("inf"), epochs=1e6, target=float("nan"), shut=True
)
ODD = views.MixView(WIDE + ESC, 7, (*_odd, _nan, _gone), "static", (RIGHT_TO_LEFT,))
YOUNG = views.MixView("v1", 0, (ArmView("chat", 0.0, 0.1, 0.5), ArmView("docs", 0.0, 0.0, 1.0)), "static")


def mix(case: Cases) -> None:
    for w, h in ((80, 24), (120, 40)):
        size = at("mix", w, h)
        case("six arms", MixPane(), MIX, size)
        case("sixteen", MixPane(), SIXTEEN, size)
        case("odd", MixPane(), ODD, size)
        case("before the first row", MixPane(), YOUNG, size)
    case("empty", MixPane(), views.MixView(), at("mix", 80, 24))


def mix_full(case: Cases) -> None:
    for w, h in ((80, 24), (120, 40)):
        size = at("mix", w, h, True)
        case("six arms", over(MixPane()), MIX, size)
        case("sixteen", over(MixPane()), SIXTEEN, size)
        case.shown("sixteen, to the end", over(MixPane()), SIXTEEN, size, lambda p: p.scroll_lines(99))
        case("odd", over(MixPane()), ODD, size)
    case("before the first row", over(MixPane()), YOUNG, at("mix", 80, 24, True))


def arms_loss(case: Cases) -> None:
    size = at("arms", 200, 60)
    case("six arms", ArmLossPane(), MIX, size)
    case("sixteen", ArmLossPane(), SIXTEEN, size)
    case("odd", ArmLossPane(), ODD, size)
    case("empty", ArmLossPane(), views.MixView(), size)


# ---- small charts


def mini(case: Cases) -> None:
    lr = np.minimum(3e-4, RUN.step * 1e-6).astype(np.float64)
    gnorm = 0.8 + 0.3 * noise(N)
    gnorm[N // 2] = 50.0
    dt = np.where(np.arange(N) % 500 == 0, 0.0, 9.9 + noise(N))
    nan = np.full(9, np.nan)
    full, part = (plan(w, h, "chart")["mini0"][2:] for w, h in ((120, 40), (80, 24)))
    for size in (full, part):
        case("lr", MiniChart(), views.MiniView("lr", 1, RUN.step, lr, "3e-4"), size)
        case("grad norm", MiniChart(), views.MiniView("grad norm", 1, RUN.step, gnorm, "0.81"), size)
        case("tokens/s", MiniChart(), views.MiniView("tokens/s", 1, RUN.step, dt, "827 tok/s", 8192.0), size)
    case("empty", MiniChart(), views.MiniView("lr", 1, RUN.step[:0], lr[:0]), part)
    case("one step", MiniChart(), views.MiniView("lr", 1, RUN.step[:1], lr[:1], "1e-6"), part)
    case("never finite", MiniChart(), views.MiniView("grad norm", 1, RUN.step[:9], nan, "n/a"), part)
    case("odd title", MiniChart(), views.MiniView(WIDE + ESC, 1, RUN.step, lr, "3e-4"), part)


# ---- the audit

TEXTS = (
    ("The ", "The run goes on, and so does the text that a small model writes about it. " * 6),
    ("def f(x):", "\n    return x + 1\n\n\ndef g(x):\n    return f(f(x))\n" * 3),
)
SCORES = (
    ("coherence", 71.0),
    ("distinct_2", 0.93),
    ("seq_rep_4", 0.02),
    ("zlib", 0.48),
    ("loop", 3.0),
    ("copy", 24.0),
)
REFERENCE = (("coherence", 60.0, 95.0), ("seq_rep_4", 0.0, 0.1), ("copy", 0.0, 20.0))


def sample(text: str, coherence: float, verdict: str = "") -> SampleText:
    return SampleText(text, verdict, (("coherence", coherence), *SCORES[1:]))


def audit_of(step: int, phase: int = 0, verdict: str = "") -> Audit:
    level = 40.0 + step % 3000 / 100
    pairs = tuple(
        TextPair(
            p, sample(t.replace("run", f"run {step}"), level), sample(t[20:] + t[:20], level - 5, verdict)
        )
        for p, t in TEXTS
    )
    return Audit(step, pairs, level, phase)


STEPS = (*range(1_000, 12_000, 1_000), 12_500, 12_600)
AUDITS = views.AuditView(
    tuple(audit_of(s, (s > 4_000) + (s > 8_000), "loop" if s == 6_000 else "") for s in STEPS), REFERENCE,
    frozenset((9_000, 10_000, 12_500, 12_600)), ((0, "v1-base"), (1, "v2-chat"), (2, "v3-polish")),
)  # fmt: skip
_lines = clean(
    "日本語テキスト " * 9
    + "\n\x1b[2J\tdef f():\n"
    + "👩‍👩‍👧 " * 5
    + "\n"
    + "שלום \u202eabc " * 3
    + "e\u0301" * 4,
    "\n",
)
_prompt = clean("語\n\x1b[1m: ", "\n")
HARD = views.AuditView(
    tuple(
        Audit(s, (TextPair(_prompt, SampleText(_lines, "loop", SCORES), SampleText(_lines * 2)),), 0.0)
        for s in (999_999_900, 1_000_000_000)
    ),
    (("coherence", 60.0, 95.0), (ESC, 0.0, 1e9)), frozenset(), ((0, WIDE + ESC),),
)  # fmt: skip


def audit(case: Cases) -> None:
    bare = views.AuditView((Audit(100, (TextPair("a", SampleText("b", None), SampleText("")),)),))
    for w, h in ((80, 24), (120, 40)):
        size = at("audit", w, h)
        case("usual", AuditPane(), AUDITS, size)
        case.shown("the next prompt", AuditPane(), AUDITS, size, lambda p: p.scroll_lines(1))
        case("hard texts", AuditPane(), HARD, size)
        case("a text alone, not scored", AuditPane(), bare, size)
        case("empty", AuditPane(), views.AuditView(), size)


def audit_full(case: Cases) -> None:
    for w, h in ((80, 24), (120, 40)):
        size = at("audit", w, h, True)
        case("two audits", over(AuditPane()), AUDITS, size)
        a = over(AuditPane())
        keys = (lambda p: p.act("earlier"), lambda p: p.pan(1), lambda p: p.pan(1))
        case.shown("two others", a, AUDITS, size, *keys)
        case("hard texts", over(AuditPane()), HARD, size)
    first = replace(AUDITS, audits=AUDITS.audits[:1])
    case("the first", over(AuditPane()), first, at("audit", 80, 24, True))


def audit_history(case: Cases) -> None:
    for w, h in ((80, 24), (120, 40)):
        size = at("audit", w, h, True)
        case.shown(
            "through time", over(AuditPane()), AUDITS, size, lambda p: p.open(), lambda p: p.scroll_lines(3)
        )
        case.shown("found", over(AuditPane()), AUDITS, size, lambda p: p.open(), lambda p: p.search("v2"))
        case.shown(
            "found nothing", over(AuditPane()), AUDITS, size, lambda p: p.open(), lambda p: p.search(WIDE)
        )
        case.shown("hard texts", over(AuditPane()), HARD, size, lambda p: p.open())


# ---- lists

ROWS = (
    CheckpointRow(112_600, "3m", "boundary", "1.2 GB", "written, not read back", "last 10"),
    CheckpointRow(112_500, "19m", "boundary", "1.2 GB", "2m ago", "last 10"),
    CheckpointRow(112_417, "33m", "snapshot", "1.2 GB", "12m ago", "snapshot"),
    CheckpointRow(112_400, "36m", "boundary", "1.2 GB", "damaged 1h ago", "next to go"),
    CheckpointRow(112_300, "53m", "pivot", "1.2 GB", "2h ago", "pivot"),
    CheckpointRow(112_200, "1h", "boundary", "1.1 GB", "written, not read back", "last 10", "wrong size"),
    CheckpointRow(112_100, "1h", "boundary", "1.2 GB", "", "", "gone"),
    CheckpointRow(110_000, "6h", "boundary", "1.2 GB", "5h ago", "every 10,000"),
    CheckpointRow(0, "12d", "start", "1.2 GB", "written, not read back", "every 10,000"),
)
MANY = tuple(CheckpointRow(999_999_900 - 100 * i, "999d", WIDE if i % 2 else ESC, "1184.4 GB", MARKS, FAMILY)
             for i in range(60))  # fmt: skip


def checkpoints(case: Cases) -> None:
    sizes = (at("checkpoints", 120, 40), at("checkpoints", 80, 24, True), at("checkpoints", 120, 40, True))
    for size in sizes:
        full = size[0] >= 80
        pane = over if full else (lambda p: p)
        case("usual", pane(CheckpointsPane()), views.CheckpointsView(ROWS, 9_600_000_000, 1), size)
        case("none", pane(CheckpointsPane()), views.CheckpointsView(), size)
        case.shown(
            "many and odd",
            pane(CheckpointsPane()),
            views.CheckpointsView(MANY, 10**15),
            size,
            lambda p: p.scroll_lines(30),
        )


def events() -> tuple[EventRow, ...]:
    return (
        EventRow(NOW - 30 * HOUR, "started", 0, "started at step 0", ""),
        EventRow(NOW - 20 * HOUR, "checkpoint", 100, "saved step 100", ""),
        EventRow(NOW - 3 * HOUR, "replayed", 155, "replayed 55 of 55 identical", "good"),
        EventRow(NOW - 2 * HOUR, "spike", 100_210, "spike at 100,210: chat 9.1 where 3.1 is usual", "warn"),
        EventRow(
            NOW - HOUR,
            "warning",
            112_000,
            "could not write step_112000.bin: " + "no space left " * 12,
            "warn",
        ),
        EventRow(NOW - 600, "snapshot", 112_417, "snapshot step 112417 saved", "good"),
        EventRow(NOW - 60, "failed", 112_600, "OSError: gone", "bad"),
    )


LOG = (
    "compiled in 41.2 s",
    "step 112600 loss 3.219",
    "Traceback (most recent call last):",
    '  File "train.py", line 7',
)
EVENTS = views.EventsView(Journal(events()), 1, LOG)
BAD_EVENTS = views.EventsView(
    Journal(
        [EventRow(NOW - i, text, 999_999_999, text + text, "warn") for i, text in enumerate(EVIL)]
        + [EventRow(1e30, "clock", 1, "a time that no calendar knows", ""), EventRow(0.0, "x", 0, "", "")]
    ),
    1, (*EVIL, "x" * 300), 10**6,
)  # fmt: skip
DEATH = "killed by signal 9 (SIGKILL), perhaps for want of memory"


def events_pane(case: Cases) -> None:
    size = at("events", 120, 40)
    case("usual", EventsPane(), EVENTS, size)
    case("odd", EventsPane(), BAD_EVENTS, size)
    case("empty", EventsPane(), views.EventsView(), size)
    case.shown("scrolled up", EventsPane(), EVENTS, size, lambda p: p.scroll_lines(-3))
    dead = dataclasses.replace(EVENTS, death=DEATH, can_start=True)
    case("dead", EventsPane(), dead, at("events", 80, 24, dead=True))
    case("dead", EventsPane(), dead, at("events", 120, 40, dead=True))
    case(
        "dead, odd words",
        EventsPane(),
        dataclasses.replace(BAD_EVENTS, death=ESC + WIDE * 9),
        at("events", 80, 24, dead=True),
    )


def events_full(case: Cases) -> None:
    for w, h in ((80, 24), (120, 40)):
        size = at("events", w, h, True)
        case("events", over(EventsPane()), EVENTS, size)
        case.shown("a long one chosen", over(EventsPane()), EVENTS, size, lambda p: p.scroll_lines(-2))
        case.shown("warnings", over(EventsPane()), EVENTS, size, lambda p: p.act("warnings"))
        case.shown("found", over(EventsPane()), EVENTS, size, lambda p: p.search("112"))
        case.shown("the log", over(EventsPane()), EVENTS, size, lambda p: p.act("log"))
        case("odd", over(EventsPane()), BAD_EVENTS, size)
    case.shown("odd log", over(EventsPane()), BAD_EVENTS, at("events", 80, 24, True), lambda p: p.act("log"))
    case.shown(
        "found nothing", over(EventsPane()), EVENTS, at("events", 80, 24, True), lambda p: p.search(WIDE)
    )


# ---- the machine and the lines at the bottom

GPU = Gpu("NVIDIA GeForce RTX 2070 SUPER", 0.98, 7_100_000_000, 8_200_000_000, 71, 215.0)
MACHINE = Resources(0.31, 16, (21 * 10**9, 64 * 10**9), (250 * 10**9, 10**12), 1.02, 5 * 10**9, (GPU,))
BARE = Resources(None, 1, None, None, None, None, (), "n/a: nvidia-ml-py is not installed")
HOT = replace(GPU, temperature=91, slowdown=90, throttled="thermal", util=None, power=None)
FULL = Resources(1.0, 128, (63 * 10**9, 64 * 10**9), (10**6, 10**12), None, 10**12, (HOT, HOT))


def machine(case: Cases) -> None:
    sizes = (at("resources", 120, 40), at("resources", 80, 24, True), at("resources", 120, 40, True))
    for size in sizes:
        case("usual", ResourcesPane(), views.ResourcesView(MACHINE, "cuda:0", "fp16"), size)
        case("nothing to measure", ResourcesPane(), views.ResourcesView(BARE, "cpu", "fp32"), size)
        case("two hot cards, a full disk", ResourcesPane(), views.ResourcesView(FULL, "cuda", "bf16"), size)
    case("not looked yet", ResourcesPane(), views.ResourcesView(), sizes[0])
    odd = replace(MACHINE, gpus=(), gpu_note=ESC + WIDE)
    case("eight cards", ResourcesPane(), views.ResourcesView(replace(MACHINE, gpus=(GPU,) * 8)), sizes[0])
    case("odd words", ResourcesPane(), views.ResourcesView(odd, WIDE, ESC), sizes[0])


def compact(case: Cases) -> None:
    size = at("compact", 80, 24)
    case("usual", CompactLine(), views.LineView(ROWS[0], 22, MACHINE), size)
    case(
        "no GPU",
        CompactLine(),
        views.LineView(ROWS[0], 22, replace(MACHINE, gpus=(), gpu_note="n/a: no GPU")),
        size,
    )
    case("no checkpoint", CompactLine(), views.LineView(None, 0, BARE), size)
    case("not looked yet", CompactLine(), views.LineView(None, 0, None), size)
    case("odd", CompactLine(), views.LineView(MANY[1], 10**6, FULL), size)


def alerts(case: Cases) -> None:
    some = (Alert("✗ the trainer died: exit 4: could not save a checkpoint – r starts it again", "bad"),
            Alert("▲ disk: 900 MB free, room for 0 more checkpoints", "bad"),
            Alert("▲ coherence below 45 in 5 audits in a row", "warn"),
            Alert("● snapshot step 112,417 saved", "good"))  # fmt: skip
    odd = tuple(Alert(text, "warn") for text in EVIL)
    for size in (at("alerts", 80, 24, alerts=True), at("alerts", 120, 40)):
        case("none", AlertsLine(), views.AlertsView(), size)
        case("one", AlertsLine(), views.AlertsView(some[1:2]), size)
        case("four", AlertsLine(), views.AlertsView(some), size)
        case("odd", AlertsLine(), views.AlertsView(odd), size)
        case(
            "one too long", AlertsLine(), views.AlertsView((Alert("▲ " + "long " * 60, "bad"), some[3])), size
        )


def footer(case: Cases) -> None:
    for view in ("", "chart", "mix", "audit", "checkpoints", "events", "resources"):
        for watch, alive in ((False, True), (False, False), (True, True)):
            who = "looking on" if watch else ("training" if alive else "no trainer")
            items = commands.footer(watch, alive, 78, view)
            assert sum(len(k) + len(v) + 3 for k, v in items) - 2 <= 78
            case(f"{view or 'overview'}, {who}", FooterLine(), views.FooterView(items), (80, 1))


def away(case: Cases) -> None:
    lines = (("+3,300 steps to 112,619 · ema 3.2440 → 3.2310 · 33 checkpoints", "text"),
             ("✗ the trainer died 3 times, started again 3 times", "bad"), ("▲ spike at 112,001: chat", "warn"),
             ("pivot: v1 → v2 after step 112000", ""))  # fmt: skip
    usual = AwayView("while you were away: 10h 0m", lines, True)
    odd = AwayView(f"while you were away: {WIDE}", (lines[0], *((t * 3, "warn") for t in EVIL)), True)
    for w, h in ((80, 24), (120, 40)):
        for name, view in (("usual", usual), ("odd", odd)):
            case(name, AwayPane(), view, at("away", w, h, away=rows(view)))


KINDS: dict[str, Callable[[Cases], None]] = {
    f.__name__: f for f in (
        chart, chart_keys, chart_hostile, status, numbers, mix, mix_full, arms_loss, mini, audit, audit_full,
        audit_history, checkpoints, events_pane, events_full, machine, compact, alerts, footer, away,
    )
}  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_widget(kind: str, snapshots: Snapshots) -> None:
    case = Cases()
    KINDS[kind](case)
    snapshots.check(f"widget_{kind}", case.drawn)
