"""Collapse, told from the sample texts: the loss does not show it.

An earlier run stayed at a respectable loss for 85,000 steps while it wrote one word over and over (the original
system then halted after five low audits in a row). Greedy texts of small healthy models loop, so only
the sampled ones count, and a model that never wrote better has not collapsed, it has not learnt yet.
"""

from collections.abc import Iterable, Sequence

from engine.rundir.records import SampleLine

IN_A_ROW = 5  # low audits that make a collapse
_COUNTED = "sampled"  # the mode whose texts count
_FINE = ("", "copy")  # verdicts of a text that is no noise; a verbatim copy is another matter


def audits(samples: Iterable[SampleLine]) -> list[tuple[int, bool]]:
    """(step, low) of each audit, by step. Low: most of its scored sampled texts have a bad verdict.

    An audit without one scored sampled text says nothing and is left out.
    """
    verdicts: dict[int, list[str]] = {}
    for s in samples:
        if s.mode == _COUNTED and s.verdict is not None:
            verdicts.setdefault(s.step, []).append(s.verdict)
    return [
        (step, 2 * sum(v not in _FINE for v in found) > len(found))
        for step, found in sorted(verdicts.items())
    ]


def collapse(found: Sequence[tuple[int, bool]], good_before: bool = False) -> int | None:
    """The first step of the low audits that end the row; None where they are no collapse (any more).

    `found` are (step, low), oldest first. `good_before`: an audit that is not among them (of a phase before,
    archived by a pivot) was good.
    """
    n = 0
    while n < len(found) and found[-1 - n][1]:
        n += 1
    learnt = good_before or n < len(found)
    return found[len(found) - n][0] if n >= IN_A_ROW and learnt else None
