"""What the trainer does now, in one word, from the lock, the status file and the events."""

import signal
from collections.abc import Sequence

from msgspec import Struct

from andrea_tui.core import fmt
from andrea_tui.core.text import clean
from andrea_tui.runner import TrainerState
from engine.rundir.records import Event, Status

BEGINS = ("started", "resumed")
ENDS = ("stopped", "finished", "failed")
CODES = {
    0: "stopped",
    2: "bad input",
    3: "diverged: the loss was not finite again and again",
    4: "could not save a checkpoint",
}


class State(Struct, frozen=True):
    """`tone` is good, warn, bad or dim; colour is never the only sign."""

    glyph: str
    word: str
    tone: str
    alive: bool = False
    kind: str = ""  # training, busy, stalled, stopped, finished, dead, new
    meaning: str = ""  # of a death: one line for a person


def state(
    trainer: TrainerState,
    status: Status | None,
    still: float,
    usual: float | None,
    events: Sequence[Event],
    steps: int,
) -> State:
    """`still`: seconds since the status file moved; `usual`: seconds a step takes; `steps`: in the log."""
    if trainer.alive:
        return _alive(trainer, status, still, usual)
    code = trainer.exit_code
    end = _last_end(events)
    if code is None:
        if end is None:
            if not steps and not any(e.event in BEGINS for e in events):
                return State("■", "not started", "dim", kind="new")
            return _dead("killed", "it was killed, or the machine went down: its last segment has no end")
        code = _code(end)
    if code == 0:
        finished = end is not None and end.event == "finished"
        return State(
            "■", "finished" if finished else "stopped", "dim", kind="finished" if finished else "stopped"
        )
    if code < 0:
        name = _signal_name(-code)
        return _dead(str(-code), f"killed by signal {-code} ({name})" + _oom(code))
    said = clean(end.text) if end is not None and end.event == "failed" and end.text else ""
    return _dead(str(code), f"exit {code}: {said or CODES.get(code, 'an error, see trainer.log')}")


def _alive(trainer: TrainerState, status: Status | None, still: float, usual: float | None) -> State:
    where = "" if trainer.here else f" on {clean(trainer.host)}"
    if status is None or (status.pid != trainer.pid and trainer.here):
        return State("◌", "starting" + where, "warn", True, "busy")
    doing, detail = clean(status.doing), clean(status.detail)
    if still > max(30.0, 5 * (usual or 0.0)):
        during = "" if doing == "training" else f", {doing}"
        return State("▲", f"stalled {fmt.age(still)}{during}{where}", "bad", True, "stalled")
    if doing == "training":
        return State("●", "training" + where, "good", True, "training")
    if not doing or doing == "stopped":
        return State("◌", "ending" + where, "warn", True, "busy")
    # "preparing" with "tokenising chat 40 %": the detail says it better
    verb = detail if detail[:1].isalpha() else f"{doing} {detail}".strip()
    return State("◌", verb + where, "warn", True, "busy")


def _last_end(events: Sequence[Event]) -> Event | None:
    """How the last segment ended; None where it just breaks off."""
    for e in reversed(events):
        if e.event in ENDS:
            return e
        if e.event in BEGINS:
            return None
    return None


def _code(end: Event) -> int:
    code = end.info.get("code")
    if isinstance(code, int):
        return code
    return 1 if end.event == "failed" else 0


def _dead(word: str, meaning: str) -> State:
    return State(
        "✗", f"dead {word}" if word != "killed" else "dead (killed)", "bad", kind="dead", meaning=meaning
    )


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return "unknown"


def _oom(code: int) -> str:
    return ", perhaps for want of memory" if code == -signal.SIGKILL else ""
