"""Numbers, durations and sizes as a person reads them. `None` and NaN are "n/a", never 0."""

import math
import re

NA = "n/a"


def count(n: int) -> str:
    """112,619"""
    return f"{n:,}"


def short(n: float) -> str:
    """999, 1.2k, 110.4k, 3.1M: at most six characters up to 999.9G."""
    if not math.isfinite(n):
        return NA
    for limit, unit, scale in ((1e3, "", 1.0), (1e6, "k", 1e3), (1e9, "M", 1e6), (1e15, "G", 1e9)):
        if abs(n) < limit * 0.99995 or unit == "G":
            text = f"{n / scale:.1f}"
            return (text[:-2] if text.endswith(".0") else text) + unit
    return NA


def number(x: float | None, digits: int = 3) -> str:
    """A loss, a norm: 3.219, 40.00, 1.2e+06."""
    if x is None or not math.isfinite(x):
        return NA
    if x != 0 and not 10 ** (1 - digits) <= abs(x) < 1e5:  # two digits that say something at least
        return scientific(x)
    return f"{x:.{max(0, digits - max(0, len(str(int(abs(x)))) - 1))}f}"


def scientific(x: float) -> str:
    """2.1e-4, 1.0e9"""
    return f"{x:.1e}".replace("e-0", "e-").replace("e+0", "e").replace("e+", "e")


def duration(seconds: float | None) -> str:
    """Two units at most: 4s, 12m, 3h 5m, 10d 3h."""
    if seconds is None or not math.isfinite(seconds):
        return NA
    s = max(0, int(seconds))
    if s < 60:
        return f"{s}s"
    if s < 3600:
        return f"{s // 60}m"
    if s < 86400:
        return f"{s // 3600}h {s % 3600 // 60}m"
    if s < 86400 * 1000:
        return f"{s // 86400}d {s % 86400 // 3600}h"
    return f"{s // (86400 * 365)}y" if s < 86400 * 365 * 1000 else ">1000y"


def age(seconds: float | None) -> str:
    """One unit: 4s, 12m, 3h, 10d."""
    return duration(seconds).split(" ")[0]


def size(n: float | None) -> str:
    """Bytes in powers of ten, as `ls --si` does: 153 MB, 1.2 GB."""
    if n is None or not math.isfinite(n):
        return NA
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if abs(n) < 999.5 or unit == "TB":
            return f"{n:.0f} {unit}" if unit == "B" or abs(n) >= 9.95 else f"{n:.1f} {unit}"
        n /= 1000
    return NA


def percent(part: float) -> str:
    """Rounded down, so that 100 % means done."""
    return f"{math.floor(part * 100)}%" if math.isfinite(part) else NA


def parse_step(text: str) -> int | None:
    """What `count` and `short` write, read back: "112,600", "112600", "112.6k", "3M". None: that is no step."""
    match = re.fullmatch(r"([0-9]{1,3}(?:,[0-9]{3})+|[0-9]+(?:\.[0-9]+)?) ?([kM]?)", text.strip())
    if match is None:
        return None
    step = round(float(match[1].replace(",", "")) * {"": 1, "k": 1_000, "M": 1_000_000}[match[2]])
    return step if step <= 2**31 - 1 else None
