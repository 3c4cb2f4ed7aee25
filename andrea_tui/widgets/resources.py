"""GPU, CPU, memory and disk."""

from andrea_tui.core import fmt
from andrea_tui.core.resources import Gpu, Resources
from andrea_tui.core.views import CheckpointRow, LineView, ResourcesView
from andrea_tui.widgets.paint import Line, Run, bar, boxed, fit, fitting
from andrea_tui.widgets.pane import Pane


class ResourcesPane(Pane[ResourcesView]):
    can_focus = True

    def draw(self, v: ResourcesView, width: int, height: int) -> list[Line]:
        title: list[Run] = [("6 ", "dim"), ("machine", "title")]
        on = " ".join(x for x in (v.device, v.precision) if x)
        lines: list[list[Run]] = [[("looking…", "dim")]]
        if v.r is not None:
            lines = _lines(v.r, width - 4, height - 2)
        return boxed(title, on, lines, width, height, self.has_focus)


def _lines(r: Resources, width: int, room: int) -> list[list[Run]]:
    rest = _rest(r, width)
    return [*_gpus(r, width, max(2, room - len(rest))), *rest]


def _gpus(r: Resources, width: int, room: int) -> list[list[Run]]:
    """Many cards leave room for the disk."""
    if not r.gpus:
        return [[(fit("GPU", 8), "dim"), (r.gpu_note or fmt.NA, "dim")]]
    cards = [_gpu(g, width) for g in r.gpus]
    if sum(map(len, cards)) > room:
        cards = [lines[:1] for lines in cards]
    if len(cards) > room:
        cards = [*cards[: room - 1], [[(f"… {len(cards) - room + 1} more GPUs", "dim")]]]
    return [line for lines in cards for line in lines]


def _rest(r: Resources, width: int) -> list[list[Run]]:
    out: list[list[Run]] = []
    out.append(_meter("CPU", r.cpu, f"of {r.cores} core{'s' if r.cores > 1 else ''}", width))
    if r.memory is not None:
        used, total = r.memory
        out.append(_meter("memory", used / total, f"{fmt.size(used)} of {fmt.size(total)}", width))
    if r.disk is not None:
        free, total = r.disk
        used_part = 1 - free / total if total else None
        out.append(_meter("disk", used_part, f"{fmt.size(free)} free", width))
    if r.trainer_rss is not None:
        cpu = fmt.NA if r.trainer_cpu is None else f"{r.trainer_cpu:.1f} cores"
        out.append([(fit("trainer", 8), "dim"), (f"{cpu}, {fmt.size(r.trainer_rss)}", "text")])
    return out


def _gpu(g: Gpu, width: int) -> list[list[Run]]:
    heat = fmt.NA if g.temperature is None else f"{g.temperature}°C"
    watts = fmt.NA if g.power is None else f"{g.power:.0f} W"
    hot = g.temperature is not None and g.temperature >= 85
    memory = _meter(
        "  mem", g.used / g.total if g.total else None, f"{fmt.size(g.used)} of {fmt.size(g.total)}", width
    )
    first = _meter("GPU", g.util, f"{heat} {watts}", width)
    if hot:
        first[-1] = (first[-1][0], "warn")
    return [first, memory]


def _meter(label: str, part: float | None, text: str, width: int) -> list[Run]:
    """label ████   42% text"""
    wide = max(0, min(12, width - 8 - 5 - 1 - len(text)))
    share = fmt.NA if part is None else f"{part * 100:.0f}%"
    style = "warn" if part is not None and part >= 0.95 and label in ("disk", "memory") else "bold"
    return [
        (fit(label, 8), "dim"), *bar(part or 0.0, wide), (fit(share, 5, right=True), style), (" " + text, "text"),
    ]  # fmt: skip


class CompactLine(Pane[LineView]):
    """80x24: checkpoint, disk and GPU in one line."""

    def draw(self, v: LineView, width: int, height: int) -> list[Line]:
        items: list[tuple[list[Run], int]] = [(_checkpoint(v.checkpoint, v.checkpoints), 1)]
        r = v.resources
        if r is not None:
            if r.disk is not None:
                items.append(([("disk ", "dim"), (f"{fmt.size(r.disk[0])} free", "text")], 2))
            items.append((_gpu_words(r), 3))
            if r.cpu is not None:
                items.append(([("CPU ", "dim"), (f"{r.cpu * 100:.0f}%", "text")], 4))
        return [tuple(fitting(items, width))]


def _checkpoint(c: CheckpointRow | None, n: int) -> list[Run]:
    if c is None:
        return [("checkpoint ", "dim"), ("none yet", "text")]
    return [
        ("checkpoint ", "dim"),
        (fmt.count(c.step), "text"),
        (f" {c.why} {c.age}, {fmt.count(n)} kept", "dim"),
    ]


def _gpu_words(r: Resources) -> list[Run]:
    if not r.gpus:
        return [("GPU ", "dim"), ((r.gpu_note or fmt.NA).split(":")[0], "dim")]
    g = r.gpus[0]
    use = fmt.NA if g.util is None else f"{g.util * 100:.0f}%"
    return [("GPU ", "dim"), (f"{use} {fmt.size(g.used)}", "text")]
