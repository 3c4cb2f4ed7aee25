"""Texts of an audit as lines: prompt dim, what was written after it bright, its measures beside those of real text."""

from collections.abc import Sequence
from itertools import pairwise

from andrea_tui.core.text import wrap
from andrea_tui.core.views import AuditView, SampleText, TextPair
from andrea_tui.core.worddiff import Spans
from andrea_tui.widgets.paint import Run, columns, exact, width_of

SHORT = {"coherence": "coh", "seq_rep_4": "rep", "similarity": "same"}  # names as they are shown


def real(v: AuditView) -> str:
    """What the measures are in real text."""
    parts = [f"{SHORT.get(name, name)} {value(low)}–{value(high)}" for name, low, high in v.reference]
    return "real text: " + " · ".join(parts)


def value(x: float) -> str:
    if x >= 10:
        return f"{x:.0f}"
    text = f"{x:.2f}".rstrip("0").rstrip(".")
    return text or "0"


def block(
    mode: str, t: TextPair, v: AuditView, width: int, height: int, changed: Spans = (), note: str = ""
) -> list[list[Run]]:
    """Label, text and measures of one continuation; what lies outside real text's range is marked with !"""
    s = of(t, mode)
    numbers = measures(s, v, width)
    text = one(mode, t.prompt, s, width, height - len(numbers), changed, note)
    return text + [[]] * (height - len(text) - len(numbers)) + numbers


def of(t: TextPair, mode: str) -> SampleText:
    return t.sampled if mode == "sampled" else t.greedy


def measures(s: SampleText, v: AuditView, width: int) -> list[list[Run]]:
    limits = {name: (low, high) for name, low, high in v.reference}
    out: list[list[Run]] = []
    used = width + 1
    for name, number in s.scores:
        low, high = limits.get(name, (number, number))
        odd = not low <= number <= high
        text = f"{SHORT.get(name, name)} {value(number)}{'!' if odd else ''}"
        if used + len(text) + 2 > width:
            out.append([])
            used = 0
        out[-1] += [("  " if used else "", "dim"), (text, "warn" if odd else "dim")]
        used += len(text) + (2 if used else 0)
    return out


def beside(a: list[list[Run]], b: list[list[Run]], left: int, right: int, rows: int) -> list[list[Run]]:
    a, b = ([*x[:rows], *[[] for _ in range(rows - len(x))]] for x in (a, b))
    return [columns([(x, left), ([("│", "frame")], 1), (y, right)], gap=1) for x, y in zip(a, b, strict=True)]


def pair(t: TextPair, width: int, height: int) -> list[list[Run]]:
    """Greedy and sampled of one audit."""
    if width < 44:  # one above the other
        half = max(1, height // 2)
        return [
            *one("greedy", t.prompt, t.greedy, width, half),
            *one("sampled", t.prompt, t.sampled, width, height),
        ]
    half = (width - 3) // 2
    a = one("greedy", t.prompt, t.greedy, half, height)
    b = one("sampled", t.prompt, t.sampled, width - 3 - half, height)
    return beside(a, b, half, width - 3 - half, max(len(a), len(b)))


def one(
    mode: str, prompt: str, s: SampleText, width: int, height: int, changed: Spans = (), note: str = ""
) -> list[list[Run]]:
    """A label and the text; a text with no room to its end ends with …"""
    lines = wrap(prompt + s.text, width)
    room = max(0, height - 1)
    out: list[list[Run]] = [[*_label(mode, s), (note, "dim")]]
    shift = len(prompt)
    spans = [(a + shift, b + shift) for a, b in changed]
    whole, at = prompt + s.text, 0
    for line in lines[:room]:
        # wrap drops nothing but the newline between two lines
        if whole[at : at + 1] == "\n" and not whole.startswith(line, at):
            at += 1
        out.append(_styled(line, at, shift, spans))
        at += len(line)
        if whole[at : at + 1] == "\n":
            at += 1
    if len(lines) > room > 0:
        cut = exact(out[-1], width - 1)  # a full line has its … from this
        out[-1] = [*cut, ("…" if width_of(out[-1]) < width else "", "dim")]
    return out


def _styled(line: str, at: int, shift: int, spans: Sequence[tuple[int, int]]) -> list[Run]:
    """A line that begins at character `at`: up to `shift` the prompt, within the spans what is different."""
    end = at + len(line)
    cuts = sorted({at, end, *(x for x in (shift, *(y for span in spans for y in span)) if at < x < end)})
    out: list[Run] = []
    for a, b in pairwise(cuts):
        style = "dim" if a < shift else ("changed" if any(x <= a < y for x, y in spans) else "text")
        out.append((line[a - at : b - at], style))
    return out


def _label(mode: str, s: SampleText) -> list[Run]:
    if not s.text:
        return [(f"{mode}: none", "dim")]
    scores = dict(s.scores)
    runs: list[Run] = [(mode, "dim")]
    if "coherence" in scores:
        runs.append((f" {scores['coherence']:.0f}", "text"))
    if s.verdict:
        runs.append((f" ▲ {s.verdict}", "warn"))
    return runs
