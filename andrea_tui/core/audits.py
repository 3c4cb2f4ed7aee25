"""The audits as the cockpit shows them, made from the sample lines."""

import statistics
from collections.abc import Sequence
from itertools import groupby

from andrea_tui.core.text import clean
from andrea_tui.core.views import Audit, SampleText, TextPair
from engine.rundir.records import Event, SampleLine

_NONE = SampleText("")


def audits(samples: Sequence[SampleLine]) -> tuple[Audit, ...]:
    """One for each step, oldest first, prompts in their order. `samples` are canonical."""
    return tuple(
        _audit(*key, list(lines)) for key, lines in groupby(samples, key=lambda x: (x.phase, x.step))
    )


def _audit(phase: int, step: int, lines: list[SampleLine]) -> Audit:
    texts: dict[str, dict[str, SampleText]] = {}
    for x in lines:
        scores = tuple((clean(k), float(v)) for k, v in (x.scores or {}).items())
        verdict = None if x.verdict is None else clean(x.verdict)
        texts.setdefault(x.prompt, {})[x.mode] = SampleText(clean(x.text, "\n"), verdict, scores)
    found = [
        x.scores["coherence"] for x in lines if x.mode == "sampled" and x.scores and "coherence" in x.scores
    ]
    pairs = [
        TextPair(clean(p, "\n"), m.get("greedy", _NONE), m.get("sampled", _NONE)) for p, m in texts.items()
    ]
    return Audit(step, tuple(pairs), statistics.median(found) if found else None, phase)


def reference(events: Sequence[Event]) -> tuple[tuple[str, float, float], ...]:
    """(measure, low, high) of real text, as the newest audit that says so has it."""
    for e in reversed(events):
        given = e.info.get("reference") if e.event == "audit" else None
        if isinstance(given, dict):
            return tuple(
                (clean(str(name)), float(pair[0]), float(pair[1]))
                for name, pair in given.items()
                if isinstance(pair, list) and len(pair) == 2 and all(isinstance(x, int | float) for x in pair)
            )
    return ()


def policies(events: Sequence[Event]) -> tuple[tuple[int, str], ...]:
    """(phase, name of its policy) as the pivots tell it; empty without a pivot."""
    out: dict[int, str] = {}
    for e in events:
        phase = e.info.get("phase")
        if e.event == "pivot" and isinstance(phase, int):
            out.setdefault(phase - 1, clean(str(e.info.get("old", ""))))
            out[phase] = clean(str(e.info.get("new", "")))
    return tuple(sorted(out.items()))
