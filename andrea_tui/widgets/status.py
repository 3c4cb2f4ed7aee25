"""The two lines on top: what the run does, and its numbers."""

from andrea_tui.core import fmt
from andrea_tui.core.views import NumbersView, StatusView
from andrea_tui.widgets.paint import Line, Run, clip, fitting
from andrea_tui.widgets.pane import Pane


class StatusLine(Pane[StatusView]):
    def draw(self, v: StatusView, width: int, height: int) -> list[Line]:
        of = f"/{fmt.count(v.max_steps)}" if v.max_steps else ""
        part = f" {fmt.percent(v.step / v.max_steps)}" if v.max_steps else ""
        eta = v.eta.ljust(7 if width >= 100 and v.eta != fmt.NA else 0)  # what follows stands still
        items: list[tuple[list[Run], int]] = [
            ([(_name(v.name, width), "bold")], 5),
            ([(f"{v.state.glyph} {clip(v.state.word, max(20, width // 2))}", v.state.tone)], 1),
            ([("step ", "dim"), (fmt.count(v.step), "bold"), (of, "dim"), (part, "text")], 2),
            ([("eta ", "dim"), (eta, "text")], 3),
            ([("phase ", "dim"), (str(v.phase), "text"), (" seg ", "dim"), (str(v.seg), "text")], 7),
            ([("last ", "dim"), (v.last, "text")] if v.last else [], 4),
            ([(f"loading history {v.loading} %", "warn")] if v.loading is not None else [], 3),
            ([(f"▲ {v.alarms} alarm{'s' if v.alarms > 1 else ''}", "bad")] if v.alarms else [], 4),
            ([("looking on", "warn")] if v.watch else [], 6),
        ]
        runs = fitting(items, width)
        return [tuple(runs or [(f"{v.state.glyph} {v.state.word}", v.state.tone)])]


def _name(name: str, width: int) -> str:
    return clip(name, max(8, width // 5))


class NumbersLine(Pane[NumbersView]):
    def draw(self, v: NumbersView, width: int, height: int) -> list[Line]:
        def item(label: str, value: str, style: str = "text") -> list[Run]:
            return [(label + " ", "dim"), (value, style)]

        best = item("best", fmt.number(v.best)) if v.best is not None else item("best", fmt.NA)
        if v.best is not None:
            best.append((f" @{fmt.short(v.best_step)}", "dim"))
        pace = (
            f"{v.per_minute:.1f}"
            if v.per_minute is not None and v.per_minute < 100
            else (fmt.short(round(v.per_minute)) if v.per_minute is not None else fmt.NA)
        )
        items = [
            (item("ema", fmt.number(v.ema), "ema"), 1),
            (best, 4),
            (item("loss", fmt.number(v.loss)), 2),
            (item("lr", _lr(v.lr)), 5),
            (item("gn", fmt.number(v.gnorm, 2)), 6),
            ([(pace, "text"), ("/min" if v.per_minute is not None else " /min", "dim")], 3),
            ([(fmt.short(v.tokens) if v.tokens else fmt.NA, "text"), (" tok/s", "dim")], 7),
            (item("mfu", fmt.percent(v.mfu) if v.mfu is not None else fmt.NA), 8),
            ([("× ", "bad" if v.lost else "dim"), (fmt.count(v.lost), "bad" if v.lost else "dim")], 6),
        ]  # fmt: skip
        return [tuple(fitting(items, width))]


def _lr(x: float | None) -> str:
    return fmt.NA if x is None else fmt.scientific(x)
