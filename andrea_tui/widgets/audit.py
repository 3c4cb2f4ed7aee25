"""The audit: what the model writes. In a pane the newest, greedy beside sampled; over the screen the newest beside an
earlier one of the same prompt, with their measures and those of real text.
"""

from andrea_tui.core import fmt
from andrea_tui.core.text import wrap
from andrea_tui.core.views import Audit, AuditView, SampleText, TextPair
from andrea_tui.widgets.paint import Line, Run, boxed, columns, spark
from andrea_tui.widgets.pane import Pane

COMPARE_WIDTH, COMPARE_HEIGHT = 66, 14  # cells inside the frame, from which on two audits stand side by side
SHORT = {"coherence": "coh", "seq_rep_4": "rep", "similarity": "same"}  # names as they are shown


class AuditPane(Pane[AuditView]):
    can_focus = True

    def __init__(self, id: str | None = None) -> None:
        super().__init__(id=id)
        self.index = 0  # of the prompt
        self.back = 1  # audits between the newest and the one beside it

    def scroll_lines(self, by: int) -> None:
        """The next (1) or the previous (−1) prompt, round and round."""
        n = len(self.view.audits[-1].texts) if self.view and self.view.audits else 0
        self.index = (self.index + by) % n if n else 0
        self.redraw()

    def pan(self, by: int) -> None:
        """An earlier (1) or a later (−1) audit beside the newest."""
        most = len(self.view.audits) - 1 if self.view else 1
        self.back = min(max(self.back + by, 1), max(most, 1))
        self.redraw()

    def draw(self, v: AuditView, width: int, height: int) -> list[Line]:
        newest = v.audits[-1] if v.audits else Audit(0, ())
        n = len(newest.texts)
        self.index = min(self.index, max(0, n - 1))
        self.back = min(self.back, max(1, len(v.audits) - 1))
        title: list[Run] = [("3 ", "dim"), ("audit", "title")]
        if n:
            title.append((f" {fmt.count(newest.step)}", "bold"))
            if v.files is not None and newest.step not in v.files:
                title.append((" (checkpoint pruned)", "warn"))
            title += _trend(v)
        compare = n and width - 4 >= COMPARE_WIDTH and height - 2 >= COMPARE_HEIGHT
        right = f"prompt {self.index + 1}/{n} ↑↓" + (" · earlier ←→" if compare else "") if n else ""
        if not n:
            lines: list[list[Run]] = [[("no audit yet", "dim")]]
        elif compare:
            lines = self._compare(v, width - 4, height - 2)
        else:
            lines = _texts(newest.texts[self.index], width - 4, height - 2)
        return boxed(title, right, lines, width, height, self.has_focus)

    def _compare(self, v: AuditView, width: int, height: int) -> list[list[Run]]:
        newest = v.audits[-1].texts[self.index]
        other = v.audits[-1 - self.back] if len(v.audits) > self.back else None
        same = [t for t in other.texts if t.prompt == newest.prompt] if other else []
        real = [[(line, "dim")] for line in wrap(_real(v), width)] if v.reference else []
        half = (width - 3) // 2
        phases = dict(v.policies)
        heads = [
            _head(v.audits[-1], phases),
            _head(other, phases) if other else "none before it",
        ]
        out = [
            columns(
                [([(heads[0], "bold")], half), ([("│", "frame")], 1), ([(heads[1], "bold")], half)], gap=1
            )
        ]
        room = max(2, (height - 1 - len(real)) // 2)
        for mode in ("sampled", "greedy"):
            left = _block(mode, newest, v, half, room)
            right = _block(mode, same[0], v, half, room) if same else []
            out += _beside(left, right, half, width - 3 - half, room)
        return out + real


def _head(a: Audit, phases: dict[int, str]) -> str:
    return f"step {fmt.count(a.step)}" + (f" · {phases[a.phase]}" if a.phase in phases else "")


def _trend(v: AuditView) -> list[Run]:
    """Coherence of the sampled texts: now, and how it came here."""
    known = [a.coherence for a in v.audits if a.coherence is not None]
    if not known:
        return []
    return [(f" coherence {known[-1]:.0f} ", "dim"), (spark(known[-12:], min(12, len(known))), "ema")]


def _real(v: AuditView) -> str:
    """What the measures are in real text."""
    parts = [f"{SHORT.get(name, name)} {_value(low)}–{_value(high)}" for name, low, high in v.reference]
    return "real text: " + " · ".join(parts)


def _value(x: float) -> str:
    if x >= 10:
        return f"{x:.0f}"
    text = f"{x:.2f}".rstrip("0").rstrip(".")
    return text or "0"


def _block(mode: str, t: TextPair, v: AuditView, width: int, height: int) -> list[list[Run]]:
    """Label, text and measures of one continuation; what lies outside real text's range is marked with !"""
    s = t.sampled if mode == "sampled" else t.greedy
    measures = _measures(s, v, width)
    text = _one(mode, t.prompt, s, width, height - len(measures))
    return text + [[]] * (height - len(text) - len(measures)) + measures


def _measures(s: SampleText, v: AuditView, width: int) -> list[list[Run]]:
    limits = {name: (low, high) for name, low, high in v.reference}
    out: list[list[Run]] = []
    used = width + 1
    for name, value in s.scores:
        low, high = limits.get(name, (value, value))
        odd = not low <= value <= high
        text = f"{SHORT.get(name, name)} {_value(value)}{'!' if odd else ''}"
        if used + len(text) + 2 > width:
            out.append([])
            used = 0
        out[-1] += [("  " if used else "", "dim"), (text, "warn" if odd else "dim")]
        used += len(text) + (2 if used else 0)
    return out


def _beside(a: list[list[Run]], b: list[list[Run]], left: int, right: int, rows: int) -> list[list[Run]]:
    a, b = ([*x[:rows], *[[] for _ in range(rows - len(x))]] for x in (a, b))
    return [columns([(x, left), ([("│", "frame")], 1), (y, right)], gap=1) for x, y in zip(a, b, strict=True)]


def _texts(t: TextPair, width: int, height: int) -> list[list[Run]]:
    if width < 44:  # one above the other
        half = max(1, height // 2)
        return [
            *_one("greedy", t.prompt, t.greedy, width, half),
            *_one("sampled", t.prompt, t.sampled, width, height),
        ]
    half = (width - 3) // 2
    a = _one("greedy", t.prompt, t.greedy, half, height)
    b = _one("sampled", t.prompt, t.sampled, width - 3 - half, height)
    return _beside(a, b, half, width - 3 - half, max(len(a), len(b)))


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


def _one(mode: str, prompt: str, s: SampleText, width: int, height: int) -> list[list[Run]]:
    """The prompt dim, what was written after it bright, wrapped as one text."""
    lines = wrap(prompt + s.text, width)[: max(0, height - 1)]
    left = len(prompt)
    out: list[list[Run]] = [_label(mode, s)]
    whole, at = prompt + s.text, 0
    for line in lines:
        # wrap drops nothing but the newline between two lines
        if whole[at : at + 1] == "\n" and not whole.startswith(line, at):
            at += 1
        cut = min(max(left - at, 0), len(line))
        out.append([(line[:cut], "dim"), (line[cut:], "text")])
        at += len(line)
        if whole[at : at + 1] == "\n":
            at += 1
    return out
