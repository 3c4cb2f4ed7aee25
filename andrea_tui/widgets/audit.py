"""The audit: what the model writes. In a pane the newest, greedy beside sampled. Over the screen two audits side by
side, with what is different marked, or one prompt through all audits as a list.
"""

from collections.abc import Iterable, Sequence

from andrea_tui.core import fmt
from andrea_tui.core.text import wrap
from andrea_tui.core.views import Audit, AuditView, TextPair
from andrea_tui.core.worddiff import word_diff
from andrea_tui.widgets import texts
from andrea_tui.widgets.listing import ListPane
from andrea_tui.widgets.paint import Line, Run, boxed, columns, fit, spark, width_of

COMPARE_WIDTH, COMPARE_HEIGHT = 66, 14  # cells inside the frame, from which on two audits stand side by side
SAME = 0.2  # texts with fewer words in common are other texts: nothing is marked
MODES = ("sampled", "greedy")

Key = tuple[int, int]  # phase, step


class AuditPane(ListPane[AuditView]):
    NEWEST_FIRST = True

    def __init__(self, id: str | None = None) -> None:
        super().__init__(id=id)
        self.index = 0  # of the prompt
        self.left: Key | None = None  # the audit on the left; None: the newest
        self.right: Key | None = None  # None: the one before the left one
        self.through_time = False
        self.searched: str = ""
        self._matching: tuple[AuditView | None, tuple[str, int], list[int]] = (None, ("", 0), [])

    # ---- keys

    def scroll_lines(self, by: int) -> None:
        """The next (1) or the previous (−1) prompt, round and round; through time: the next or previous audit."""
        if self.through_time and self.full:
            super().scroll_lines(by)
        else:
            self._turn(by)

    def pan(self, by: int) -> None:
        """An earlier (1) or a later (−1) audit on the right; through time: another prompt."""
        if self.through_time and self.full:
            self._turn(-by)
        else:
            self._move("right", by)

    def act(self, what: str) -> None:
        """An earlier or a later audit on the left."""
        if what in ("earlier", "later") and not self.through_time:
            self._move("left", 1 if what == "earlier" else -1)

    def open(self) -> bool:
        """From the comparison to the list through time; there: compare with the chosen one."""
        if self.view is None or not self.view.audits:
            return True
        if self.through_time:
            found = self._found(self.view)
            if found:
                chosen = found[-1 - min(self.at, len(found) - 1)]
                self.right = _key(self.view.audits[chosen]) if chosen != self._sides(self.view)[0] else None
        self.through_time = not self.through_time
        self.redraw()
        return True

    def go_back(self) -> bool:
        if self.searched:
            self.search("")
            return True
        if self.full and (self.through_time or self.left or self.right):
            self.through_time, self.left, self.right = False, None, None
            self.redraw()
            return True
        return False

    def search(self, text: str) -> None:
        """Only audits whose step, policy or texts of this prompt contain it."""
        self.searched = text
        self.follow()

    def goto(self, step: int) -> None:
        """The audit of that step on the left, beside the one before it; the one before where there is none."""
        audits = self.view.audits if self.view is not None else ()
        at = max((a for a in audits if a.step <= step), key=lambda a: (a.step, a.phase), default=None)
        self.left = None if at is None or at is audits[-1] else _key(at)
        self.right, self.through_time, self.searched = None, False, ""
        self.redraw()

    def _turn(self, by: int) -> None:
        n = len(_side(self.view, self.left).texts) if self.view is not None else 0
        self.index = (self.index + by) % n if n else 0
        self.redraw()

    def _move(self, which: str, by: int) -> None:
        if self.view is None:
            return
        v, found = self.view, self._found(self.view)
        left, right = self._sides(v)
        here, other = (left, right) if which == "left" else (right, left)
        if here is None:
            here = left
        towards = [i for i in found if (i < here if by > 0 else i > here) and i != other]
        if towards:
            new = towards[-1] if by > 0 else towards[0]
            key = _key(v.audits[new])
            if which == "left":
                # the right one stays where it is, though the left one was what it stood before
                self.right = self.right or (_key(v.audits[right]) if right is not None else None)
                self.left = None if new == len(v.audits) - 1 else key
            else:
                self.right = key
        self.redraw()

    # ---- what is shown

    def _sides(self, v: AuditView) -> tuple[int, int | None]:
        """Indices of the left and the right audit."""
        left = _index(v, self.left) if self.full else None
        left = len(v.audits) - 1 if left is None else left
        right = _index(v, self.right) if self.full else None
        if right is None and left > 0:
            before = [i for i in self._found(v) if i < left]
            right = before[-1] if before else None
        return left, right

    def _found(self, v: AuditView) -> list[int]:
        """Indices of the audits that the search leaves, oldest first."""
        of, about, found = self._matching
        if of is not v or about != (self.searched, self.index):
            needle, prompt = self.searched.casefold(), self._prompt(v)
            phases = dict(v.policies)
            found = [i for i, a in enumerate(v.audits) if not needle or _contains(a, prompt, phases, needle)]
            self._matching = v, (self.searched, self.index), found
        return found

    def _prompt(self, v: AuditView) -> str:
        texts = _side(v, self.left).texts
        return texts[min(self.index, len(texts) - 1)].prompt if texts else ""

    def draw(self, v: AuditView, width: int, height: int) -> list[Line]:
        inner, rows = width - 4, height - 2
        side = _side(v, self.left if self.full else None)
        n = len(side.texts)
        self.index = min(self.index, max(0, n - 1))
        title = self._title(v, side, inner)
        if not n:
            return boxed(title, "", [[("no audit yet", "dim")]], width, height, self.has_focus)
        compare = inner >= COMPARE_WIDTH and rows >= COMPARE_HEIGHT
        which = f"{self.index + 1}/{n}"
        rights = [f"prompt {which} ↑↓", f"{which} ↑↓", which]
        lines: Sequence[Iterable[Run]]
        if self.full and self.through_time:
            lines, rights = self._history(v, inner, rows), [f"prompt {which} ←→", f"{which} ←→", which]
        elif compare:
            lines = self._compare(v, inner, rows)
            rights = [f"{rights[0]} · right ←→ · left [ ]", *rights] if self.full else rights
        else:
            lines = texts.pair(side.texts[self.index], inner, rows)
        right = next((x for x in rights if width_of(title) + 2 + len(x) <= inner), "")
        return boxed(title, right, lines, width, height, self.has_focus)

    def _title(self, v: AuditView, side: Audit, width: int) -> list[Run]:
        title: list[Run] = [("3 ", "dim"), ("audit", "title")]
        if not side.texts:
            return title
        if self.full and self.through_time:
            title.append((" through time", "bold"))
        else:
            title.append((f" {fmt.count(side.step)}", "bold"))
            if v.files is not None and side.step not in v.files:
                title.append((" (checkpoint pruned)", "warn"))
        if self.searched and self.full:
            title.append((f" /{self.searched}", "focus"))
            title.append((f" {fmt.count(len(self._found(v)))} of {fmt.count(len(v.audits))} audits", "text"))
            return title
        return title + _trend(v, 12 if width >= 60 else 6)

    def _compare(self, v: AuditView, width: int, height: int) -> list[list[Run]]:
        a, b = self._sides(v)
        left, other = v.audits[a], v.audits[b] if b is not None else None
        mine = left.texts[self.index]
        theirs = _of_prompt(other, mine.prompt) if other is not None else None
        real: list[list[Run]] = (
            [[(line, "dim")] for line in wrap(texts.real(v), width)] if v.reference else []
        )
        half = (width - 3) // 2
        heads = [_head(left, v), _head(other, v) if other is not None else "none before it"]
        bar: tuple[list[Run], int] = ([("│", "frame")], 1)
        out = [columns([([(heads[0], "bold")], half), bar, ([(heads[1], "bold")], half)], gap=1)]
        room = max(2, (height - 1 - len(real)) // 2)
        for mode in MODES:
            if theirs is None:
                missing: list[list[Run]] = (
                    [[("not a prompt of that audit", "dim")]] if other is not None else []
                )
                out += texts.beside(
                    texts.block(mode, mine, v, half, room), missing, half, width - 3 - half, room
                )
                continue
            diff = word_diff(texts.of(mine, mode).text, texts.of(theirs, mode).text)
            alike = diff.same >= SAME
            note = f" · {fmt.percent(diff.same)} the same words" if alike else " · another text"
            if not (texts.of(mine, mode).text and texts.of(theirs, mode).text):
                alike, note = False, ""
            x = texts.block(mode, mine, v, half, room, diff.left if alike else (), note)
            y = texts.block(mode, theirs, v, half, room, diff.right if alike else ())
            out += texts.beside(x, y, half, width - 3 - half, room)
        return out + real

    def _history(self, v: AuditView, width: int, height: int) -> list[Line]:
        """One line for each audit, newest first; below them the chosen one's texts."""
        found, prompt = self._found(v), self._prompt(v)
        n = len(found)

        def key(i: int) -> Key:
            return _key(v.audits[found[n - 1 - i]])

        self.settle(n, key)
        below = (
            self._chosen_texts(v, v.audits[found[n - 1 - self.at]], prompt, width, height // 2) if n else []
        )
        self.first_line = 2
        room = max(1, height - 1 - len(below))
        shown = self.place(n, room, key)
        phases = dict(v.policies)
        name = min(16, max((len(x) for x in phases.values()), default=0))
        head = fit("step", 11, right=True) + ("  " + fit("policy", name) if name else "") + "  coh  sampled"
        lines: list[Line] = [((head, "dim"),)]
        for i in shown:
            a = v.audits[found[n - 1 - i]]
            t = _of_prompt(a, prompt)
            lines.append(self.shown(i, _row(a, t, phases.get(a.phase, ""), name), width))
        if not n:
            lines.append(((f"no audit with {self.searched!r}", "dim"),))
        lines += [()] * (room + 1 - len(lines))
        return [*lines, *below]

    def _chosen_texts(self, v: AuditView, a: Audit, prompt: str, width: int, most: int) -> list[Line]:
        """Under a rule, in at most so many lines; none where they would say nothing."""
        t = _of_prompt(a, prompt)
        if most < 4 or t is None:
            return []
        head = f" {_head(a, v)} "
        rule: Line = (("──", "frame"), (head, "bold"), ("─" * max(0, width - 2 - len(head)), "frame"))
        return [rule, *[tuple(x) for x in texts.pair(t, width, most - 1)]]


def _key(a: Audit) -> Key:
    return a.phase, a.step


def _index(v: AuditView, key: Key | None) -> int | None:
    if key is None:
        return None
    return next((i for i in range(len(v.audits) - 1, -1, -1) if _key(v.audits[i]) == key), None)


def _side(v: AuditView, key: Key | None) -> Audit:
    i = _index(v, key)
    return v.audits[-1 if i is None else i] if v.audits else Audit(0, ())


def _of_prompt(a: Audit, prompt: str) -> TextPair | None:
    return next((t for t in a.texts if t.prompt == prompt), None)


def _contains(a: Audit, prompt: str, phases: dict[int, str], needle: str) -> bool:
    if needle in f"{fmt.count(a.step)} {a.step} {phases.get(a.phase, '')}".casefold():
        return True
    t = _of_prompt(a, prompt)
    return t is not None and any(needle in x.casefold() for x in (t.prompt, t.greedy.text, t.sampled.text))


def _head(a: Audit, v: AuditView) -> str:
    phases = dict(v.policies)
    text = f"step {fmt.count(a.step)}" + (f" · {phases[a.phase]}" if a.phase in phases else "")
    return text + (" (pruned)" if v.files is not None and a.step not in v.files else "")


def _row(a: Audit, t: TextPair | None, policy: str, name: int) -> list[Run]:
    s = t.sampled if t is not None else None
    coherence = dict(s.scores).get("coherence") if s is not None else None
    said = " ".join(s.text.split()) if s is not None else ""
    return [
        (fit(fmt.count(a.step), 11, right=True), "bold"),
        ("  " + fit(policy, name) if name else "", "dim"),
        ("  " + fit("–" if coherence is None else f"{coherence:.0f}", 3, right=True) + "  ", "text"),
        (f"▲ {s.verdict} " if s is not None and s.verdict else "", "warn"),
        (said if t is not None else "not a prompt of this audit", "text" if said else "dim"),
    ]


def _trend(v: AuditView, most: int) -> list[Run]:
    """Coherence of the sampled texts: now, and how it came here."""
    known = [a.coherence for a in v.audits if a.coherence is not None]
    if not known:
        return []
    return [(f" coherence {known[-1]:.0f} ", "dim"), (spark(known[-most:], min(most, len(known))), "ema")]
