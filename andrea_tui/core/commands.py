"""Everything a person can do. One command gives the binding, the footer, the palette entry and the help."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Command:
    action: str  # name of the app's action
    keys: str  # comma separated, as Textual names them
    label: str  # in the footer: short
    help: str  # one line
    shown: str = ""  # the keys as a person writes them
    footer: int = 0  # place in the footer, 1 first; 0: not there
    changes: bool = False  # acts on the trainer: not for those who only watch
    when: str = ""  # "alive", "ended": only then in the footer
    group: str = "Panes"
    short: str = ""  # the keys in the footer, where they are others


COMMANDS = (
    Command("snapshot", "s", "snapshot", "Write a checkpoint and its audit now", "s", 1, True, "alive", "Training"),
    Command("start", "r", "start again", "Start the training again, from its newest checkpoint", "r", 1,
            True, "ended", "Training"),
    Command("pivot", "p", "pivot", "Go on under another policy: what is possible, when, what is kept", "p", 2, True,
            "", "Training"),
    Command("stop", "q", "stop…", "Stop the training cleanly: counts five seconds down first", "q", 3, True,
            "alive", "Training"),
    Command("detach", "d,ctrl+q,ctrl+c", "detach", "Leave; the training goes on", "d", 4, False, "", "Training"),
    Command("next_pane", "tab", "pane", "Next pane", "Tab", 5),
    Command("zoom_pane", "enter", "full screen", "The focused pane over the whole screen, and back", "Enter", 10),
    Command("go_back", "escape", "back", "Back; never quits", "Esc"),
    Command("previous_pane", "shift+tab", "", "The pane before", "shift+Tab"),
    Command("pane", "1,2,3,4,5,6", "", "Choose a pane by its number", "1-6"),
    Command("zoom(1)", "plus,equals_sign", "zoom", "Chart: zoom in on the newest steps", "+", 0, group="Chart"),
    Command("zoom(-1)", "minus", "", "Chart: zoom out", "-", group="Chart"),
    Command("zoom(0)", "0", "zoom", "Chart: the whole run", "0", 6, group="Chart", short="+/-/0"),
    Command("pan(1)", "left,h", "", "Chart: earlier steps; audit: compare with an earlier one", "← h", group="Chart"),
    Command("pan(-1)", "right,l", "", "Chart: later steps; audit: with a later one", "→ l", group="Chart"),
    Command("smooth(-1)", "comma", "", "Chart: less smoothing", ",", group="Chart"),
    Command("smooth(1)", "full_stop", "smooth", "Chart: more smoothing", ".", 9, group="Chart", short=",/."),
    Command("log_scale", "y", "log", "Chart: logarithmic loss axis on and off", "y", 7, group="Chart"),
    Command("scroll(-1)", "up,k", "", "Audit: prompt before; lists: up", "↑ k"),
    Command("scroll(1)", "down,j", "", "Audit: next prompt; lists: down", "↓ j"),
    Command("compare", "c", "", "Compare with another run, branched from this one or before it", "c"),
    Command("help", "question_mark,f1", "help", "This help", "?", 8),
    Command("toggle_mouse", "m", "", "Mouse off, so that text can be copied; and on again", "m"),
    Command("toggle_theme", "", "", "Change between the dark and the light theme", ""),
)  # fmt: skip


def usable(watch: bool) -> tuple[Command, ...]:
    return tuple(c for c in COMMANDS if not (watch and c.changes))


def footer(watch: bool, alive: bool, width: int) -> tuple[tuple[str, str], ...]:
    """(key, label) that fit into `width` cells with two spaces between, most important first, none cut.

    In `watch`, and with no trainer, `q` only leaves.
    """
    items = []
    for c in sorted(usable(watch), key=lambda c: c.footer):
        if c.footer and c.when in ("", "alive" if alive else "ended"):
            label = "leave" if c.action == "detach" and not alive else c.label
            items.append((c.short or c.shown, label))
    out: list[tuple[str, str]] = []
    used = 0
    for key, label in items:
        used += len(key) + 1 + len(label) + (2 if out else 0)
        if used > width:
            break
        out.append((key, label))
    # `? help` leads to everything else, so it stays to the last
    if items and ("?", "help") not in out and out and width > 12:
        while out and sum(len(k) + len(v) + 3 for k, v in out) + 6 > width:
            out.pop()
        out.append(("?", "help"))
    return tuple(out)
