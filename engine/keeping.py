"""Which checkpoints stay when older ones are pruned, and why: one rule, for the trainer and for whoever asks."""

from collections.abc import Iterable, Sequence

from engine.config import KeepConfig
from engine.rundir.records import Event

ASKED_FOR = (
    "snapshot",
    "pivot",
    "branch",
)  # a person asked for the checkpoint: as its reason, and as an event
START, ASKED, EVERY, LAST = "start", "asked for", "every", "last"


def kept(steps: Sequence[int], keep: KeepConfig, asked_for: Iterable[int]) -> dict[int, str]:
    """Why each checkpoint that stays does so; what is not in it may go. `steps` of those that are there.

    A reason that holds for good comes before LAST, which ends when newer ones come.
    """
    newest_first = sorted(steps, reverse=True)
    asked = set(asked_for)
    out = dict.fromkeys(newest_first[: keep.last], LAST)
    for s in newest_first:
        if s == 0:
            out[s] = START
        elif s in asked:
            out[s] = ASKED
        elif s % keep.every == 0:
            out[s] = EVERY
    return out


def asked_for(events: Iterable[Event]) -> set[int]:
    """Steps whose checkpoints a person asked for."""
    return {e.step for e in events if e.event in ASKED_FOR}
