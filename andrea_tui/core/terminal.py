"""What the terminal can show: told by the command line and the environment, settled before Textual is imported."""

import os
from collections.abc import Mapping, MutableMapping
from pathlib import Path

from engine.errors import BadInput

# what a person says -> what Textual reads from TEXTUAL_COLOR_SYSTEM when it is imported
COLOURS = {"auto": "auto", "truecolor": "truecolor", "256": "256", "16": "standard", "none": "auto"}

THEMES = ("dark", "light", "colour-blind-safe", "ansi", "ansi-light")
THEME_VARIABLE = "ANDREA_TUI_THEME"


def settle_colours(name: str, env: MutableMapping[str, str] = os.environ) -> None:
    """Put the wish (a key of COLOURS) into the environment that Textual and Rich read. A wish beats NO_COLOR.

    Raises BadInput where TEXTUAL_COLOR_SYSTEM holds what they would not understand.
    """
    if name == "none":
        env["NO_COLOR"] = "1"
    elif name != "auto":
        env.pop("NO_COLOR", None)
        env["TEXTUAL_COLOR_SYSTEM"] = COLOURS[name]
    elif env.get("TEXTUAL_COLOR_SYSTEM", "auto") not in COLOURS.values():
        raise BadInput(
            f"TEXTUAL_COLOR_SYSTEM: is one of {', '.join(sorted(set(COLOURS.values())))}; or use --color"
        )


def no_colour(env: Mapping[str, str] = os.environ) -> bool:
    """Whether NO_COLOR is set; empty counts as unset (no-color.org)."""
    return bool(env.get("NO_COLOR"))


def sixteen_colours(env: Mapping[str, str] = os.environ) -> bool:
    """Whether only 16 colours will be sent: told to, or the terminal's name promises no more. As Rich sees it."""
    told = env.get("TEXTUAL_COLOR_SYSTEM", "auto")
    if told != "auto":
        return told == "standard"
    if env.get("COLORTERM", "").strip().lower() in ("truecolor", "24bit"):
        return False
    return env.get("TERM", "").strip().lower().rpartition("-")[2] not in ("256color", "kitty")


def light_background(env: Mapping[str, str] = os.environ) -> bool:
    """Whether the terminal says so, by COLORFGBG ("0;15": black on white), as rxvt and Konsole do."""
    return env.get("COLORFGBG", "").rpartition(";")[2] in ("7", "15")


def choose_theme(wish: str | None, env: Mapping[str, str] = os.environ) -> str:
    """One of THEMES: as wished (`--theme`), else ANDREA_TUI_THEME, else what the terminal can show.

    Without colours it is always one of the terminal's own: the others tell what is chosen by shades. Raises
    BadInput for a name that is none.
    """
    own = "ansi-light" if light_background(env) else "ansi"
    for source, name in (("--theme", wish), (THEME_VARIABLE, env.get(THEME_VARIABLE))):
        if name:
            known = name.lower().replace("color-", "colour-")
            if known not in THEMES:
                raise BadInput(f"{source}: no theme {name!r}; there are {', '.join(THEMES)}")
            return own if no_colour(env) else known
    return own if no_colour(env) or sixteen_colours(env) else "dark"


def locale_is_ascii(
    env: Mapping[str, str] = os.environ, started_with: Mapping[str, str] | None = None
) -> bool:
    """Whether the locale can't show more than ASCII. Where none is set, the terminal is taken to know UTF-8.

    `started_with`: the environment at the start of this process; by default asked of the kernel. Python turns a
    bare C locale into C.UTF-8 and writes that into LC_CTYPE; the terminal can't do more for that.
    """
    names = [env.get(k) for k in ("LC_ALL", "LC_CTYPE", "LANG")]
    before = _started_with() if started_with is None else started_with
    if names[1] and before and not before.get("LC_CTYPE"):
        names[1] = None
    name = next(filter(None, names), "")
    return bool(name) and "utf8" not in name.lower().replace("-", "")


def _started_with() -> dict[str, str]:
    try:
        pairs = Path("/proc/self/environ").read_text("utf-8", "replace").split("\0")
    except OSError:
        return {}
    return dict(p.split("=", 1) for p in pairs if "=" in p)
