"""What a person should know now. No line where there is nothing to say."""

from typing import TYPE_CHECKING

from andrea_tui.core import fmt
from andrea_tui.core.text import clean
from andrea_tui.core.views import Alert, AlertsView
from engine.rundir.pivot import Pivot

if TYPE_CHECKING:
    from andrea_tui.core.store import Store

_TOLD_FOR = 20.0  # seconds that a confirmation stays
_TOLD_FIRST = 5.0  # seconds that it stands before all else: a key that was pressed has its answer in sight


def alerts_view(store: "Store", now: float) -> AlertsView:
    """Worst first, but for an answer that was just given."""
    said = [*_trainer(store, now), *_saving(store), *_reading(store), *_pivot(store)]
    answers = _answers(store, now)
    just = store.told is not None and abs(now - store.told[1]) < _TOLD_FIRST
    said = [*answers, *said] if just else [*said, *answers]
    return AlertsView((*said, *_health(store)))


def _health(store: "Store") -> list[Alert]:
    return [Alert(f.text if f.tone == "dim" else f"▲ {f.text}", f.tone) for f in store.findings]


def _pivot(store: "Store") -> list[Alert]:
    p = store.pivot
    return [Alert(f"◌ pivot to {clean(p.new_name)} {countdown(store, p)}", "warn")] if p else []


def countdown(store: "Store", p: Pivot) -> str:
    """How long until the cut: "at step 112,700: 48 steps, about 8m"."""
    if p.committed:
        return f"after step {fmt.count(p.cut or 0)} is being made"
    if not store.trainer.alive:
        return "waits for the next start, which trains on to it"
    last = store.history.last
    if p.when == "now":
        return "after the present step"
    at = p.expected(last, _every(store))
    left = at - last
    step_time = store.rates().step_time
    about = f", about {fmt.duration(left * step_time)}" if step_time else ""
    return f"at step {fmt.count(at)}: {fmt.count(left)} step{'' if left == 1 else 's'}{about}"


def _every(store: "Store") -> int:
    return store.config.train.checkpoint_every if store.config else 100


def _trainer(store: "Store", now: float) -> list[Alert]:
    st = store.state(now)
    start = "" if store.watch else " – r starts it again"
    if st.kind == "dead":
        return [Alert(f"✗ the trainer died: {st.meaning}{start}", "bad")]
    if st.kind == "stalled":
        return [Alert(f"▲ {st.word}: the trainer lives (pid {store.trainer.pid}) but reports nothing", "bad")]
    if st.kind in ("stopped", "new") and not store.watch and store.loading is None:
        verb = "starts it again" if st.kind == "stopped" else "starts it"
        return [Alert(f"{st.glyph} {st.word}; r {verb}", "dim")]
    return []


def _saving(store: "Store") -> list[Alert]:
    out = []
    s = store.status
    if s is not None and s.behind > 0 and store.trainer.alive:
        out.append(Alert(f"▲ log behind by {fmt.count(s.behind)} lines: disk full?", "bad"))
    every = _every(store)
    if s is not None and store.trainer.alive and s.checkpoint_step >= 0:
        old = store.history.last - s.checkpoint_step
        if old > 2 * every:
            out.append(Alert(f"▲ last checkpoint {fmt.count(old)} steps old", "warn"))
    view = store.resources_view()
    if view.r is not None and view.r.disk is not None:
        free = view.r.disk[0]
        if view.checkpoint_bytes and free < 3 * view.checkpoint_bytes:
            n = free // view.checkpoint_bytes
            out.append(Alert(f"▲ disk: {fmt.size(free)} free, room for {n} more checkpoints", "bad"))
        elif free < 500e6:
            out.append(Alert(f"▲ disk: {fmt.size(free)} free", "warn"))
    return out


def _reading(store: "Store") -> list[Alert]:
    out = [Alert(f"▲ {p}", "bad") for p in store.problems]
    if store.trainer.error:
        out.append(Alert(f"▲ {store.trainer.error}", "bad"))
    if store.loading is None:
        if store.bad:
            out.append(Alert(f"▲ history: {fmt.count(store.bad)} damaged lines skipped", "warn"))
        if store.history.missing:
            out.append(Alert(f"▲ history: {fmt.count(store.history.missing)} steps have no line", "warn"))
    return out


def _answers(store: "Store", now: float) -> list[Alert]:
    if store.error:
        return [Alert(f"▲ {store.error}", "bad")]
    if store.asked is not None:
        return [Alert(f"◌ {store.asked[0]}", "warn")]
    if store.told is not None and abs(now - store.told[1]) < _TOLD_FOR:  # the clock may be set back
        return [Alert(f"● {store.told[0]}", store.told[2])]
    return []
