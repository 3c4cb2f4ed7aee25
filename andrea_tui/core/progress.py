"""The progress of a long piece of work as plain lines, one for each tenth."""

from collections.abc import Callable

from andrea_tui.core.text import clean
from engine.rundir.files import say


def progress() -> Callable[[str, float], None]:
    """Call it with (what, fraction done); it says what is new."""
    last = ""

    def tell(what: str, part: float) -> None:
        nonlocal last
        line = clean(f"{what} {int(part * 10) * 10} %")
        if line != last:
            last = line
            say(line)

    return tell
