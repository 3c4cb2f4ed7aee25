"""The mix: each arm's share of the rows between its floor and its cap; where there is room, all about each arm."""

import math

from andrea_tui.core import fmt
from andrea_tui.core.text import clipped, wrap
from andrea_tui.core.views import ArmView, MixView
from andrea_tui.widgets.listing import ListPane
from andrea_tui.widgets.paint import Line, Run, bar, boxed, cells, fit, spark

TABLE_WIDTH = 70  # cells inside the frame, from which on it is a table of everything


class MixPane(ListPane[MixView]):
    CHOOSES = False

    def draw(self, v: MixView, width: int, height: int) -> list[Line]:
        inner = max(0, height - 2)
        table = width - 4 >= TABLE_WIDTH and v.arms
        lines = self._table(v, width - 4, inner) if table else self._bars(v, width - 4, inner)
        title: list[Run] = [("2 ", "dim"), ("mix", "title")]
        if v.policy:
            title += [(" " + v.policy, "dim")]
        return boxed(title, f"last {v.steps}" if v.steps else "", lines, width, height, self.has_focus)

    def _bars(self, v: MixView, width: int, height: int) -> list[list[Run]]:
        if not v.arms:
            return [[("no row drawn yet", "dim")]]
        bpb = any(a.bpb is not None for a in v.arms) and width >= 30
        loss = width >= 22
        numbers = 4 + (5 if loss else 0) + (5 if bpb else 0)
        name = min(max(cells(a.name) for a in v.arms), max(4, (width - numbers - 1) // 2))
        top = _scale(v)
        names = clipped([a.name for a in v.arms], name)
        self.place(len(v.arms), height - 1, lambda i: i)
        wide = width - name - numbers - 1
        head: list[Run] = [
            (fit("", name + 1 + max(0, wide)), "dim"), (fit("%", 4, right=True), "dim"),
            (fit("loss", 5, right=True) if loss else "", "dim"), (fit("bpb", 5, right=True) if bpb else "", "dim"),
        ]  # fmt: skip
        rows = [
            _bar_row(a, fit(names[i], name), wide, loss, bpb, top, v.steps > 0)
            for i, a in enumerate(v.arms[self.top :], self.top)
        ]
        if height < 2:
            return rows
        return [head, *_cut(rows, height - 1)]

    def _table(self, v: MixView, width: int, height: int) -> list[list[Run]]:
        """Per arm a line of numbers and, where all have room for it, one that says why."""
        outlook = [[(line, "dim")] for text in v.outlook for line in wrap(text, width)]
        room = height - 1 - (len(outlook) + 1 if outlook else 0)
        reasons = any(a.why for a in v.arms) and 2 * len(v.arms) <= room
        self.place(len(v.arms), len(v.arms) if reasons else room, lambda i: i)
        reward = any(a.reward for a in v.arms)
        numbers = 5 * 6 + 7 * 3 + (7 if reward else 0)
        name = min(max(cells(a.name) for a in v.arms), 24, width - numbers)
        names = clipped([a.name for a in v.arms], name)
        curve = min(max(len(a.spark) for a in v.arms), width - name - numbers - 2)
        curve = curve if curve >= 4 else 0
        rows: list[list[Run]] = []
        for i, a in enumerate(v.arms[self.top :], self.top):
            rows.append(_table_row(a, fit(names[i], name), reward, curve, v.steps > 0))
            if reasons:
                rows.append([(" " * (name + 2), "dim"), ("· " + a.why if a.why else "", "dim")])
        if len(rows) > room:
            rows = _cut(rows, max(1, room))
        return [_head(name, reward, curve), *rows, *([[], *outlook] if outlook else [])]


def _cut(rows: list[list[Run]], room: int) -> list[list[Run]]:
    if len(rows) <= room:
        return rows
    return [*rows[: room - 1], [(f"… {len(rows) - room + 1} more", "dim")]]


def _head(name: int, reward: bool, curve: int) -> list[Run]:
    words = ["next", "last", "phase", "floor", "cap"]
    text = fit("", name) + "".join(fit(w, 6, right=True) for w in words)
    text += "".join(fit(w, 7, right=True) for w in (["reward"] if reward else []) + ["epochs", "loss", "bpb"])
    return [(text + (f"  {'loss' if curve < 17 else 'loss before → now'}" if curve else ""), "dim")]


def _table_row(a: ArmView, name: str, reward: bool, curve: int, drawn: bool) -> list[Run]:
    def share(x: float | None) -> str:
        return fit("–" if x is None or x != x else f"{x * 100:.1f}%", 6, right=True)

    def bound(x: float | None) -> str:
        return fit("–" if x is None else f"{x * 100:.3g}%", 6, right=True)

    def number(x: float | None, digits: int = 3) -> str:
        return fit("–" if x is None else fmt.number(x, digits), 7, right=True)

    gone = a.floor is None and a.cap is None
    return [
        (name, "dim" if gone or a.shut else "text"),
        (share(a.target), "bold"),
        (share(a.share if drawn else None), "text"),
        (share(a.realised), "text"),
        (bound(a.floor), "dim"),
        (bound(a.cap), "dim"),
        (fit(a.reward, 7, right=True) if reward else "", "text"),
        (number(a.epochs), "text"),
        (number(a.loss), "bold"),
        (number(a.bpb), "text"),
        ("  " + spark(a.spark, curve) if curve else "", "ema"),
    ]


def _scale(v: MixView) -> float:
    """The share at the bars' end: the greatest share or cap below 1, in tenths, so that it stands still."""
    most = max([a.share for a in v.arms] + [a.cap for a in v.arms if a.cap is not None and a.cap < 1])
    return min(1.0, math.ceil(most * 10 + 0.1) / 10)


def _bar_row(a: ArmView, name: str, wide: int, loss: bool, bpb: bool, top: float, drawn: bool) -> list[Run]:
    gone = a.floor is None and a.cap is None
    runs: list[Run] = [(name, "dim" if gone or a.shut else "text"), (" ", "text")]
    if wide >= 3:
        runs += bar(a.share / top, wide, [None if m is None else m / top for m in (a.floor, a.cap)])
    runs.append(
        (fit(f"{a.share * 100:.0f}%" if drawn and a.share == a.share else "–", 4, right=True), "bold")
    )
    if loss:
        runs.append((fit("–" if a.loss is None else fmt.number(a.loss, 2), 5, right=True), "text"))
    if bpb:
        runs.append((fit("–" if a.bpb is None else fmt.number(a.bpb, 2), 5, right=True), "text"))
    return runs
