"""The audit: what the model writes, from the newest checkpoint. Greedy on the left, sampled on the right."""

from andrea_tui.core import fmt
from andrea_tui.core.text import wrap
from andrea_tui.core.views import AuditView, TextPair
from andrea_tui.widgets.paint import Line, Run, boxed, columns
from andrea_tui.widgets.pane import Pane


class AuditPane(Pane[AuditView]):
    can_focus = True

    def __init__(self, id: str | None = None) -> None:
        super().__init__(id=id)
        self.index = 0

    def scroll_lines(self, by: int) -> None:
        """The next (1) or the previous (−1) prompt, round and round."""
        n = len(self.view.texts) if self.view else 0
        self.index = (self.index + by) % n if n else 0
        self.redraw()

    def draw(self, v: AuditView, width: int, height: int) -> list[Line]:
        n = len(v.texts)
        self.index = min(self.index, max(0, n - 1))
        title: list[Run] = [("3 ", "dim"), ("audit", "title")]
        if v.step is not None:
            title.append((f" {fmt.count(v.step)}", "bold"))
            if v.gone:
                title.append((" (checkpoint pruned)", "warn"))
        right = f"prompt {self.index + 1}/{n} ↑↓" if n else ""
        lines: list[list[Run]] = [] if n else [[("no audit yet", "dim")]]
        # Where there is room, as over the whole screen, the prompts after it follow.
        for t in v.texts[self.index :] + v.texts[: self.index]:
            room = height - 2 - len(lines) - (1 if lines else 0)
            if lines and room < 6:
                break
            lines += ([[]] if lines else []) + _texts(t, width - 4, room)
        return boxed(title, right, lines, width, height, self.has_focus)


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
    rows = max(len(a), len(b))
    a += [[]] * (rows - len(a))
    b += [[]] * (rows - len(b))
    return [
        columns([(x, half), ([("│", "frame")], 1), (y, width - 3 - half)], gap=1)
        for x, y in zip(a, b, strict=True)
    ]


def _one(mode: str, prompt: str, text: str, width: int, height: int) -> list[list[Run]]:
    """The prompt dim, what was written after it bright, wrapped as one text."""
    label: list[Run] = [(mode, "dim")] if text else [(f"{mode}: none", "dim")]
    lines = wrap(prompt + text, width)[: max(0, height - 1)]
    left = len(prompt)
    out: list[list[Run]] = [label]
    whole, at = prompt + text, 0
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
