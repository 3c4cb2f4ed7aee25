"""A finding about the run's health."""

from msgspec import Struct

from andrea_tui.core import fmt

TONES = ("bad", "warn", "dim")  # worst first


class Finding(Struct, frozen=True):
    """`text` is clean and stands for itself.

    `step`: the spike's, the last one that was skipped; of what lasts, the newest that shows it. 0: none.
    """

    kind: str  # collapse, divergence, starved, spike, drift, skipped, clip, plateau, gpu
    text: str
    tone: str  # one of TONES
    step: int = 0


def others(n: int) -> str:
    """` and 3 other arms`; nothing for 0."""
    return f" and {n} other arm{'s' if n > 1 else ''}" if n else ""


def short(x: float) -> str:
    """A loss as a finding tells it: 3.22"""
    return fmt.number(float(x), 2)
