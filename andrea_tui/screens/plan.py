"""Where each pane lies at each size of the terminal. A pure function of the size; nothing else decides it."""

from typing import NamedTuple

PANES = ("chart", "mix", "audit", "checkpoints", "events", "resources")  # numbered 1 to 6


class Box(NamedTuple):
    x: int
    y: int
    w: int
    h: int


Plan = dict[str, Box]


def plan(w: int, h: int, full: str = "", dead: bool = False, alerts: bool = False, away: int = 0) -> Plan:
    """`full`: the pane that fills the screen; `dead`: the trainer died, its log gets room; `alerts`: there are some;
    `away`: rows that the news at the attach would like, of the chart's.

    Boxes don't overlap and lie within w × h.
    """
    if full:
        boxes = _full(w, h, full)
    elif w >= 160 and h >= 50:
        boxes = _large(w, h, dead)
    elif w >= 100 and h >= 32:
        boxes = _medium(w, h, dead)
    elif w >= 80 and h >= 24:
        boxes = _small(w, h, dead, alerts)
    else:
        boxes = _tiny(w, h)
    if away and not full:
        _make_room(boxes, away)
    return {name: b for name, b in boxes.items() if b.w > 0 and b.h > 0}


def _make_room(boxes: Plan, rows: int) -> None:
    """For the news, above the chart: half of it at most."""
    c = boxes["chart"]
    rows = min(rows, c.h // 2)
    boxes["away"], boxes["chart"] = Box(c.x, c.y, c.w, rows), Box(c.x, c.y + rows, c.w, c.h - rows)


def _full(w: int, h: int, pane: str) -> Plan:
    if h < 8:
        return {pane: Box(0, 0, w, h)}
    p = {
        "status": Box(0, 0, w, 1),
        pane: Box(0, 1, w, h - 3),
        "alerts": Box(0, h - 2, w, 1),
        "footer": Box(0, h - 1, w, 1),
    }
    if pane == "chart" and h >= 22 and w >= 60:  # the small charts of the same stretch below it
        minis = max(6, h // 5)
        p["chart"] = Box(0, 1, w, h - 3 - minis)
        p |= _thirds(0, h - 2 - minis, w, minis)
    return p


def _thirds(x: int, y: int, w: int, h: int) -> Plan:
    third = w // 3
    return {f"mini{i}": Box(x + i * third, y, third if i < 2 else w - 2 * third, h) for i in range(3)}


def _top_and_bottom(w: int, h: int, alert_rows: int) -> Plan:
    return {
        "status": Box(0, 0, w, 1),
        "numbers": Box(0, 1, w, 1),
        "alerts": Box(0, h - 1 - alert_rows, w, alert_rows),
        "footer": Box(0, h - 1, w, 1),
    }


def _large(w: int, h: int, dead: bool) -> Plan:
    """200x60: adds loss per arm, small charts, all checkpoints, a longer log."""
    left, right = w - w * 35 // 100, w * 35 // 100
    rest = h - 5
    chart, minis, audit = rest * 20 // 55, rest * 9 // 55, rest * 13 // 55
    mix, arms, machine = rest * 11 // 55, rest * 10 // 55, 10
    p = _top_and_bottom(w, h, 2)
    p["chart"] = Box(0, 2, left, chart)
    p |= _thirds(0, 2 + chart, left, minis)
    y = 2 + chart + minis
    if dead:
        p["events"] = Box(0, y, left, rest - chart - minis)
    else:
        p["audit"] = Box(0, y, left, audit)
        p["events"] = Box(0, y + audit, left, rest - chart - minis - audit)
    p["mix"] = Box(left, 2, right, mix)
    p["arms"] = Box(left, 2 + mix, right, arms)
    p["checkpoints"] = Box(left, 2 + mix + arms, right, rest - mix - arms - machine)
    p["resources"] = Box(left, 2 + rest - machine, right, machine)
    return p


def _medium(w: int, h: int, dead: bool) -> Plan:
    """120x40: rows 2 + 17 + 10 + 8 + 2 + 1."""
    alert_rows = 2 if h >= 38 else 1
    rest = h - 3 - alert_rows
    chart = rest * 17 // 35
    audit = rest * 10 // 35
    low = rest - chart - audit
    right = max(38, w * 38 // 120)
    left = w - right
    p = _top_and_bottom(w, h, alert_rows)
    p["chart"] = Box(0, 2, left, chart)
    p["mix"] = Box(left, 2, right, chart)
    p["checkpoints"] = Box(left, 2 + chart, right, audit)
    p["resources"] = Box(left, 2 + chart + audit, right, low)
    if dead:
        p["events"] = Box(0, 2 + chart, left, audit + low)
    else:
        p["audit"] = Box(0, 2 + chart, left, audit)
        p["events"] = Box(0, 2 + chart + audit, left, low)
    return p


def _small(w: int, h: int, dead: bool, alerts: bool) -> Plan:
    """80x24: chart over the full width, below it mix and audit, one line of checkpoint, disk and GPU, or the alerts."""
    p = _top_and_bottom(w, h, 1)
    if not alerts:
        p["compact"] = p.pop("alerts")
    rest = h - 4
    events = rest // 4 if h >= 34 and not dead else 0
    chart = (rest - events) * 11 // 20
    low = rest - chart - events
    p["chart"] = Box(0, 2, w, chart)
    if dead:
        p["events"] = Box(0, 2 + chart, w, low)
        return p
    mix = w * 2 // 5
    p["mix"] = Box(0, 2 + chart, mix, low)
    p["audit"] = Box(mix, 2 + chart, w - mix, low)
    if events:
        p["events"] = Box(0, 2 + chart + low, w, events)
    return p


def _tiny(w: int, h: int) -> Plan:
    """Status, numbers, chart, footer, as far as they fit."""
    foot = 1 if h >= 6 else 0
    return {
        "status": Box(0, 0, w, min(h, 1)),
        "numbers": Box(0, 1, w, 1 if h >= 2 else 0),
        "chart": Box(0, 2, w, max(0, h - 2 - foot)),
        "footer": Box(0, h - 1, w, foot),
    }
