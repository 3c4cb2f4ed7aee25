"""What happened in the run, as one character on the loss chart's axis."""

from andrea_tui.core.text import clean
from andrea_tui.core.views import Mark
from engine.rundir.records import Event

# event -> sign, tone. Pivots have a line of their own, ordinary checkpoints a ▴.
_SIGNS = {
    "resumed": ("r", "text"),
    "snapshot": ("s", "good"),
    "rollback": ("R", "warn"),
    "branch": ("b", "text"),
    "collapse": ("!", "bad"),
    "failed": ("!", "bad"),
    "exhausted": ("!", "warn"),
}
MEANING = "r resumed · s snapshot · R rollback · b branch · ! warning, collapse, failure"


def mark(e: Event) -> Mark | None:
    """None for what is not marked."""
    name = "snapshot" if e.event == "checkpoint" and e.info.get("why") == "snapshot" else e.event
    if name == "warning" and e.step > 0:
        return Mark(e.step, "!", "warn", clean(e.text))
    if name not in _SIGNS:
        return None
    sign, tone = _SIGNS[name]
    return Mark(e.step, sign, tone, clean(e.text) or name)
