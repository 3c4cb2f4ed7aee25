"""The cockpit's colour themes; which of them fits a terminal says `core/terminal.py`.

`dark` and `light` bring their own colours. `colour-blind-safe` takes them from the palette of Okabe and Ito (2008),
on dark: good, warning and bad stay apart for red- and green-blind eyes. The `ansi` themes use the terminal's own 16
colours on its own background; each takes only those that are legible there in the palettes of xterm and of VGA.
"""

from textual.theme import Theme

DARK = Theme(
    "dark", primary="#5fb3ff", secondary="#8aa4c8", warning="#f0b429", error="#ff6b6b", success="#57d38c",
    accent="#5fb3ff", foreground="#dfe3e8", background="#101418", surface="#171c22", panel="#1d242c", dark=True,
)  # fmt: skip
LIGHT = Theme(
    "light", primary="#0057b8", secondary="#44546a", warning="#8a5a00", error="#b3141f", success="#0f6b35",
    accent="#0057b8", foreground="#15191e", background="#ffffff", surface="#f3f5f7", panel="#e9edf1", dark=False,
)  # fmt: skip
COLOUR_BLIND_SAFE = Theme(
    "colour-blind-safe", primary="#56b4e9", secondary="#cc79a7", warning="#f0e442", error="#d55e00", success="#56b4e9",
    accent="#56b4e9", foreground="#e6e6e6", background="#101418", surface="#171c22", panel="#1d242c", dark=True,
)  # fmt: skip


def _ansi(name: str, *, primary: str, on: str, success: str, warning: str, error: str, dark: bool) -> Theme:
    """`on`: what is legible on `primary`, for the cursor and what is chosen."""
    plain = "ansi_default"
    return Theme(
        name, primary=primary, secondary=primary, accent=primary, success=success, warning=warning, error=error,
        foreground=plain, background=plain, surface=plain, panel=plain, boost=plain, dark=dark, ansi=True,
        variables={
            "ansi-background": plain, "ansi-foreground": plain,
            "block-cursor-foreground": on, "block-cursor-background": primary,
            "block-cursor-blurred-foreground": on, "block-cursor-blurred-background": primary,
            "input-cursor-foreground": on, "input-cursor-background": primary, "input-cursor-text-style": "none",
            "input-selection-foreground": on, "input-selection-background": primary,
            "border": primary, "border-blurred": plain,
            "scrollbar": primary, "scrollbar-hover": primary, "scrollbar-active": primary,
            "scrollbar-background": plain, "scrollbar-background-hover": plain, "scrollbar-background-active": plain,
        },
    )  # fmt: skip


ANSI = _ansi(
    "ansi", primary="ansi_cyan", on="ansi_black", success="ansi_green", warning="ansi_bright_yellow",
    error="ansi_bright_red", dark=True,
)  # fmt: skip
ANSI_LIGHT = _ansi(
    "ansi-light", primary="ansi_blue", on="ansi_bright_white", success="ansi_blue", warning="ansi_magenta",
    error="ansi_red", dark=False,
)  # fmt: skip

THEMES = {t.name: t for t in (DARK, LIGHT, COLOUR_BLIND_SAFE, ANSI, ANSI_LIGHT)}
