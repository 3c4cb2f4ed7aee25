"""Everything a person can do. One command gives the binding, the footer, the palette entry and the help."""

from msgspec import Struct


class Command(Struct, frozen=True):
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
    views: str = (
        ""  # the panes it is for, comma separated; "": all. Over the whole screen their footer begins with it
    )


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
    Command("open", "enter", "full screen", "The focused pane over the whole screen; there: act on what is chosen",
            "Enter", 10),
    Command("go_back", "escape", "back", "Back; never quits", "Esc"),
    Command("previous_pane", "shift+tab", "", "The pane before", "shift+Tab"),
    Command("pane", "1,2,3,4,5,6", "", "Choose a pane by its number", "1-6"),
    Command("scroll(-1)", "up,k", "", "Lists: up; audit: prompt before", "↑ k"),
    Command("scroll(1)", "down,j", "", "Lists: down; audit: next prompt", "↓ j"),
    Command("page(-1)", "pageup", "", "Lists: a page up", "PgUp"),
    Command("page(1)", "pagedown", "", "Lists: a page down", "PgDn"),
    Command("end(-1)", "home", "", "Lists: to the first line", "Home"),
    Command("end(1)", "end", "", "Lists: to the last line, and follow", "End"),
    Command("open", "", "cursor", "Chart: a cursor that reads one step, and off again", "Enter", group="Loss",
            views="chart"),
    Command("pan(1)", "left,h", "", "Chart: earlier steps, or the cursor; audit: compare with an earlier one", "← h",
            group="Loss"),
    Command("pan(-1)", "right,l", "move", "Chart: later steps, or the cursor; audit: with a later one", "→ l",
            group="Loss", short="←→", views="chart"),
    Command("zoom(1)", "plus,equals_sign", "", "Chart: zoom in", "+", group="Loss"),
    Command("zoom(-1)", "minus", "", "Chart: zoom out", "-", group="Loss"),
    Command("zoom(0)", "0", "zoom", "Chart: the whole run, and follow it", "0", 6, group="Loss", short="+/-/0",
            views="chart"),
    Command("goto", "g", "go to", "Chart: go to a step", "g", group="Loss", views="chart"),
    Command("log_scale", "y", "log", "Chart: logarithmic loss axis on and off", "y", 7, group="Loss", views="chart"),
    Command("x_axis", "x", "axis", "Chart: x by step, by hours or by tokens", "x", group="Loss",
            views="chart"),
    Command("smooth(-1)", "comma", "", "Chart: less smoothing", ",", group="Loss"),
    Command("smooth(1)", "full_stop", "smooth", "Chart: more smoothing", ".", 9, group="Loss", short=",/.",
            views="chart"),
    Command("open", "", "verify, sample…", "Checkpoints: all that can be done with the chosen one", "Enter",
            group="Lists", views="checkpoints"),
    Command("open", "", "in chart", "Events: the chosen one's step in the loss chart", "Enter", group="Lists",
            views="events"),
    Command("search", "slash", "find", "Events: only lines with a text; audit: only audits with it", "/", 0,
            group="Lists", views="events,audit"),
    Command("do('warnings')", "exclamation_mark", "warnings", "Events: only warnings and what is worse, or all", "!",
            group="Lists", views="events"),
    Command("do('log')", "e", "log", "Events: trainer.log instead, and back", "e", group="Lists",
            views="events"),
    Command("do('follow')", "f", "follow", "Events: stand still, or follow again", "f", group="Lists", views="events"),
    Command("open", "", "through time", "Audit: one prompt in all audits; there: compare with the chosen one", "Enter",
            group="Lists", views="audit"),
    Command("pan(-1)", "", "other", "Audit: which one stands on the right", "← →", group="Lists", short="←→",
            views="audit"),
    Command("do('earlier')", "left_square_bracket", "", "Audit: an earlier one on the left", "[", group="Lists"),
    Command("do('later')", "right_square_bracket", "left one", "Audit: a later one on the left", "]", group="Lists",
            short="[]", views="audit"),
    Command("try_prompt", "t", "", "Try a prompt: a text from any checkpoint; the training notices nothing", "t"),
    Command("compare", "c", "", "Compare with another run, branched from this one or before it", "c"),
    Command("away", "w", "", "What happened since my last look", "w"),
    Command("suspend_process", "ctrl+z", "", "To the shell for a moment; fg comes back", "ctrl+z"),
    Command("help", "question_mark,f1", "help", "Help for the view in focus, and all keys", "?", 8),
    Command("toggle_mouse", "m", "", "Mouse off, so that text can be copied; and on again", "m"),
)  # fmt: skip


def usable(watch: bool) -> tuple[Command, ...]:
    return tuple(c for c in COMMANDS if not (watch and c.changes))


def footer(watch: bool, alive: bool, width: int, view: str = "") -> tuple[tuple[str, str], ...]:
    """(key, label) that fit into `width` cells with two spaces between, most important first, none cut.

    `view`: the pane that fills the screen: first what is for it alone, and the way back. In `watch`, and with no
    trainer, `q` only leaves.
    """
    general = sorted((c for c in usable(watch) if c.footer), key=lambda c: c.footer)
    if view:
        own = [c for c in usable(watch) if view in c.views.split(",") and c.label]
        back = [c for c in COMMANDS if c.action == "go_back"]
        kept = ("snapshot", "start", "stop", "detach", "help")
        general = own + back + [c for c in general if c.action in kept and c not in own]
    items = []
    for c in general:
        if c.when in ("", "alive" if alive else "ended"):
            label = "leave" if c.action == "detach" and not alive else c.label
            items.append((c.short or c.shown, label))
    return _fitting(items, width)


def _fitting(items: list[tuple[str, str]], width: int) -> tuple[tuple[str, str], ...]:
    out: list[tuple[str, str]] = []
    used = -_GAP
    stay = sum(_cells(x) for x in items if x in _STAY)
    full = False
    for x in items:
        stay -= _cells(x) if x in _STAY else 0
        full = full or used + _cells(x) + stay > width
        if used + _cells(x) <= width and (x in _STAY or not full):
            out.append(x)
            used += _cells(x)
    return tuple(out)


_GAP = 2
_STAY = (("Esc", "back"), ("?", "help"))  # lead to everything else, so that they go last


def _cells(item: tuple[str, str]) -> int:
    """With the gap before it."""
    return _GAP + len(item[0]) + 1 + len(item[1])


def table() -> str:
    """All keys as Markdown: docs/KEYS.md."""
    out = [
        "# Keys", "",
        "Made by `python -m andrea_tui.core.commands > docs/KEYS.md`; `?` shows the same with the view in focus first.",
        "`ctrl+p` finds every command by name. Those marked ● act on the training and are not there with `--watch`.",
    ]  # fmt: skip
    shown = [c for c in COMMANDS if c.shown]
    for group in dict.fromkeys(c.group for c in shown):
        out += ["", f"## {group}", "", "| key | does |", "|---|---|"]
        for c in shown:
            if c.group == group:
                out.append(
                    f"| {'● ' if c.changes else ''}`{c.shown.replace('|', chr(92) + '|')}` | {c.help} |"
                )
    return "\n".join(out) + "\n"


if __name__ == "__main__":
    import sys

    sys.stdout.write(table())
