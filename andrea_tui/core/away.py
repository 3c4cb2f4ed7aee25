"""What happened since a person last looked: a pure function of that look and of what the store knows now."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

from msgspec import Meta, Struct

from andrea_tui.core import fmt
from andrea_tui.core.finding import Finding
from andrea_tui.core.state import BEGINS, ENDS
from andrea_tui.core.text import clean
from engine.rundir.records import Event, Step

if TYPE_CHECKING:
    from andrea_tui.core.store import Store

LONG = 300.0  # seconds: shorter absences are told of only where something notable happened
_DETAILS = 8  # lines below the first
_TOLD = {"pivot": "", "rollback": "warn", "finished": "good", "stopped": "warn", "failed": "bad", "collapse": "bad",
         "set_aside": "warn", "warning": "warn", "exhausted": "warn", "pivot_refused": "warn", "pivot_dropped": "warn",
         "branch": ""}  # fmt: skip
_LASTING = ("spike", "skipped")  # findings that are one at their step; the others last over many


class Look(Struct, kw_only=True):
    """What was on the screen when a person last looked. Small: it is written once a minute."""

    t: float  # seconds since 1970
    step: Step
    events: Annotated[int, Meta(ge=0)]  # so many events were read: indices don't depend on clocks
    findings: list[tuple[str, int]] = []  # (kind, step) of the findings of then
    ema: float | None = None
    decay: float = 0.0
    alive: bool = True  # whether a trainer ran


class AwayView(Struct, frozen=True):
    """`lines` are (text, tone), cleaned, most important first."""

    title: str = ""
    lines: tuple[tuple[str, str], ...] = ()
    worth: bool = False  # to be shown without being asked for


class Now(Struct, frozen=True):
    """What the store knows."""

    t: float
    step: int
    events: Sequence[Event]
    findings: Sequence[Finding]
    ema: float | None
    decay: float
    alive: bool


def known(store: "Store", t: float) -> Now:
    """`t`: the time of now."""
    n = store.numbers_view(t)
    return Now(
        t, store.history.last, tuple(store.events), store.findings, n.ema, n.decay, store.trainer.alive
    )


def look(now: Now) -> Look:
    """To be kept until the next time."""
    found = [(f.kind, f.step) for f in now.findings]
    return Look(
        t=now.t,
        step=now.step,
        events=len(now.events),
        findings=found,
        ema=now.ema,
        decay=now.decay,
        alive=now.alive,
    )


def away(then: Look, now: Now) -> AwayView:
    """`then` is a look at the same run."""
    gone = now.t - then.t
    new = _since(then, now.events)
    deaths = _deaths(now.events[: len(now.events) - len(new)], new, then.alive, now.alive)
    starts = sum(e.event in BEGINS for e in new)
    bad = [(f"▲ {f.text}", f.tone) for f in _findings(then, now.findings)]
    told = _details(new)
    restarted = max(0, starts - sum(e.event == "pivot" for e in new))
    died = []
    if deaths:
        again = f", started again {_times(restarted)}" if restarted else ""
        died = [(f"✗ the trainer died {_times(deaths)}{again}", "bad")]
    elif restarted:
        died = [(f"started {_times(restarted)}", "warn")]
    still = now.alive and now.step == then.step and gone > LONG
    if still:
        died.append(("▲ no step was made", "bad"))
    notable = bool(died or bad or any(tone for _, tone in told) or any(e.event == "pivot" for e in new))
    happened = now.step != then.step or bool(new)
    rest = [*died, *bad, *told]
    cut = (
        [(f"… and {len(rest) - _DETAILS + 1} more; 5 shows all events", "dim")]
        if len(rest) > _DETAILS
        else []
    )
    kept = rest[: _DETAILS - len(cut)]
    return AwayView(
        f"while you were away: {fmt.duration(gone)}"
        if gone >= 0
        else "since your last look (the clock was set back)",
        ((_first(then, now, new), "text"), *kept, *cut),
        notable or (happened and (gone > LONG or gone < 0)),
    )


def _since(then: Look, events: Sequence[Event]) -> Sequence[Event]:
    if then.events <= len(events):
        return events[then.events :]
    return [e for e in events if e.t > then.t]  # the file is another one: its clock has to do


def _first(then: Look, now: Now, new: Sequence[Event]) -> str:
    """The whole of it in one line: +3,300 steps to 112,619 · ema(0.99) 3.244 → 3.231 · 33 checkpoints"""
    steps = now.step - then.step
    parts = [f"{'+' if steps >= 0 else '−'}{fmt.count(abs(steps))} steps to {fmt.count(now.step)}"]
    if steps == 0:
        parts = [f"no step; at {fmt.count(now.step)}"]
    if now.ema is not None and now.ema == now.ema:
        same = then.ema is not None and then.ema == then.ema and then.decay == now.decay
        before = f"{fmt.number(then.ema, 4)} → " if same and steps else ""
        parts.append(f"ema {before}{fmt.number(now.ema, 4)}")
    saved = len({e.step for e in new if e.event == "checkpoint"})
    if saved:
        parts.append(f"{fmt.count(saved)} checkpoint{'' if saved == 1 else 's'}")
    if steps == 0 and not new:
        parts.append("nothing else")
    return " · ".join(parts)


def _details(new: Sequence[Event]) -> list[tuple[str, str]]:
    """One line an event that a person would ask about, newest first, equal texts once; the bad ones in front."""
    out: dict[str, tuple[str, int]] = {}
    for e in reversed(new):
        tone = _TOLD.get(e.event)
        if e.event == "replayed" and e.info.get("difference"):
            tone = "warn"
        if tone is not None:
            text = clean(
                f"{e.event}: {e.text}" if e.event in ("pivot", "warning", "failed") else e.text or e.event
            )
            out[text] = (tone, out.get(text, ("", 0))[1] + 1)
    lines = [(text if n == 1 else f"{text} ({n} times)", tone) for text, (tone, n) in out.items()]
    return sorted(lines, key=lambda x: {"bad": 0, "warn": 1}.get(x[1], 2))


def _deaths(before: Sequence[Event], new: Sequence[Event], was_alive: bool, alive: bool) -> int:
    """Segments that began and have no end; those with an end that failed. A pivot's restart is none.

    What was dead at the look died before it.
    """
    going = was_alive and _going(before)
    n = 0
    for e in new:
        if e.event in BEGINS:
            n += going
            going = True
        elif e.event in ENDS:
            n += e.event == "failed"
            going = False
        elif e.event == "pivot":
            going = False  # the trainer replaces itself
    return n + (going and not alive)


def _going(events: Sequence[Event]) -> bool:
    for e in reversed(events):
        if e.event in BEGINS:
            return True
        if e.event in (*ENDS, "pivot"):
            return False
    return False


def _findings(then: Look, findings: Sequence[Finding]) -> list[Finding]:
    """Those that were not there at the look."""
    kinds = {kind for kind, _ in then.findings}
    return [
        f for f in findings
        if f.tone != "dim" and (f.step > then.step if f.kind in _LASTING else f.kind not in kinds)
    ]  # fmt: skip


def _times(n: int) -> str:
    return "once" if n == 1 else f"{fmt.count(n)} times"
