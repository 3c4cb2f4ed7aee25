"""Colours: legible in every theme, told apart by colour-blind eyes, and chosen by what the terminal says of itself."""

import asyncio
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from rich.color import Color, ColorSystem
from rich.console import Console
from rich.style import Style
from textual.app import App, ComposeResult
from textual.geometry import Region
from textual.strip import Strip

import andrea_tui.app
from andrea_tui.core import terminal
from andrea_tui.core.views import FooterView
from andrea_tui.themes import COLOUR_BLIND_SAFE, DARK, LIGHT, THEMES
from andrea_tui.widgets.footer import FooterLine
from andrea_tui.widgets.paint import STYLES
from engine.errors import BadInput

Floats = NDArray[np.float64]

BACKDROP = ("raw", "frame")  # need not be read
LEGIBLE, VISIBLE = 4.5, 1.8
OWN = (DARK.name, LIGHT.name, COLOUR_BLIND_SAFE.name)  # themes with colours of their own

# What the 16 colours are by default.
XTERM = [
    "000000", "cd0000", "00cd00", "cdcd00", "0000ee", "cd00cd", "00cdcd", "e5e5e5",
    "7f7f7f", "ff0000", "00ff00", "ffff00", "5c5cff", "ff00ff", "00ffff", "ffffff",
]  # fmt: skip
VGA = [
    "000000", "aa0000", "00aa00", "aa5500", "0000aa", "aa00aa", "00aaaa", "aaaaaa",
    "555555", "ff5555", "55ff55", "ffff55", "5555ff", "ff55ff", "55ffff", "ffffff",
]  # fmt: skip

# Machado, Oliveira, Fernandes: A Physiologically-based Model for Simulation of Color Vision Deficiency (IEEE TVCG
# 15(6), 2009), severity 1.0; on linear RGB.
BLINDNESS = {
    "protanopia": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "deuteranopia": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]],
}  # fmt: skip


def linear(rgb: tuple[int, int, int]) -> Floats:
    c = np.array(rgb) / 255
    return np.where(c <= 0.04045, c / 12.92, ((c + 0.055) / 1.055) ** 2.4)


def contrast(a: tuple[int, int, int], b: tuple[int, int, int]) -> float:
    """WCAG 2: 1 to 21."""
    dark, bright = sorted(float(linear(x) @ [0.2126, 0.7152, 0.0722]) for x in (a, b))
    return (bright + 0.05) / (dark + 0.05)


def lab(rgb: Floats) -> Floats:
    """CIE L*a*b* (D65) of linear RGB."""
    to_xyz = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])
    t = to_xyz @ np.clip(rgb, 0, 1) / np.array([0.9505, 1.0, 1.089])
    f = np.where(t > (6 / 29) ** 3, np.cbrt(t), t / (3 * (6 / 29) ** 2) + 4 / 29)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


def distance(colours: list[str], matrix: list[list[float]]) -> float:
    """The least distance (CIE76) of two of the colours, as an eye of that kind sees them."""
    seen = [lab(np.array(matrix) @ linear(_rgb(c))) for c in colours]
    return min(float(np.linalg.norm(a - b)) for a, b in combinations(seen, 2))


def _rgb(text: str) -> tuple[int, int, int]:
    r, g, b = (int(text.lstrip("#")[i : i + 2], 16) for i in (0, 2, 4))
    return r, g, b


class Bare(App[None]):
    """One pane with the cockpit's style sheet."""

    CSS_PATH = Path(andrea_tui.app.__file__).with_name("app.tcss")

    def compose(self) -> ComposeResult:
        for theme in THEMES.values():
            self.register_theme(theme)
        yield FooterLine("footer")


@pytest.fixture(scope="module")
def styles() -> dict[str, dict[str, Style]]:
    """theme -> style name -> how a pane really draws it."""
    found: dict[str, dict[str, Style]] = {}

    async def look() -> None:
        app = Bare()
        async with app.run_test() as pilot:
            for name in THEMES:
                app.theme = name
                await pilot.pause(0.05)
                pane = app.query_one(FooterLine)
                pane.show(FooterView((("q", name),)))
                found[name] = {s: pane.get_component_rich_style(f"pane--{s}") for s in STYLES}

    asyncio.run(look())
    return found


def _shown(c: Color | None, system: ColorSystem) -> tuple[int, int, int]:
    assert c is not None
    r, g, b = c.downgrade(system).get_truecolor()
    return r, g, b


@pytest.mark.parametrize("system", [ColorSystem.TRUECOLOR, ColorSystem.EIGHT_BIT])
@pytest.mark.parametrize("theme", OWN)
def test_text_can_be_read(theme: str, system: ColorSystem, styles: dict[str, dict[str, Style]]) -> None:
    for name, style in styles[theme].items():
        found = contrast(_shown(style.color, system), _shown(style.bgcolor, system))
        assert found >= (VISIBLE if name in BACKDROP else LEGIBLE), f"{name}: {found:.2f}"


def test_the_backdrop_is_fainter_than_text(styles: dict[str, dict[str, Style]]) -> None:
    for theme in OWN:
        of = {n: contrast(_shown(s.color, ColorSystem.TRUECOLOR), _shown(s.bgcolor, ColorSystem.TRUECOLOR))
              for n, s in styles[theme].items()}  # fmt: skip
        assert max(of["raw"], of["frame"]) < of["dim"] < of["text"]
        assert of["raw"] < of["ema"]


@pytest.mark.parametrize("palette", [XTERM, VGA], ids=["xterm", "vga"])
@pytest.mark.parametrize(("theme", "background"), [("ansi", "#000000"), ("ansi-light", "#ffffff")])
def test_the_terminals_own_colours_are_used_where_they_can_be_read(
    theme: str, background: str, palette: list[str], styles: dict[str, dict[str, Style]]
) -> None:
    for name, style in styles[theme].items():
        colour, behind = style.color, style.bgcolor
        assert behind is not None and behind.is_default
        assert colour is not None and (colour.is_default or colour.is_system_defined), name
        if colour.number is not None:
            # The Linux console and VGA show bold as bright.
            number = colour.number | 8 if style.bold and palette is VGA and theme == "ansi" else colour.number
            found = contrast(_rgb(palette[number]), _rgb(background))
            assert found >= LEGIBLE, f"{name}: {found:.2f}"
    assert styles[theme]["dim"].dim
    assert not styles[theme]["text"].dim


@pytest.mark.parametrize("kind", BLINDNESS)
def test_good_warning_and_bad_are_told_apart_by_colour_blind_eyes(
    kind: str, styles: dict[str, dict[str, Style]]
) -> None:
    def states(theme: str) -> list[str]:
        colours = (styles[theme][s].color for s in ("good", "warn", "bad"))
        return [c.get_truecolor().hex for c in colours if c is not None]

    assert distance(states(COLOUR_BLIND_SAFE.name), BLINDNESS[kind]) > 30
    # the control: the other themes' greens and reds come closer
    assert min(distance(states(t), BLINDNESS[kind]) for t in (DARK.name, LIGHT.name)) < 20


def test_every_theme_tells_the_states_apart(styles: dict[str, dict[str, Style]]) -> None:
    for theme, of in styles.items():
        assert len({of[s].color for s in ("good", "warn", "bad")}) == 3, theme
        assert of["focus"] != of["frame"], theme
        assert of["raw"] != of["ema"], theme


def test_the_names_are_those_of_the_command_line() -> None:
    assert tuple(THEMES) == terminal.THEMES


@pytest.mark.parametrize(
    ("wish", "env", "theme"),
    [
        (None, {"TERM": "xterm-256color"}, "dark"),
        (None, {"TERM": "xterm-256color", "ANDREA_TUI_THEME": "light"}, "light"),
        ("Color-blind-safe", {"TERM": "xterm", "ANDREA_TUI_THEME": "light"}, "colour-blind-safe"),
        (None, {"TERM": "xterm"}, "ansi"),
        (None, {"TERM": "screen"}, "ansi"),
        (None, {"TERM": "linux"}, "ansi"),
        (None, {"TERM": "alacritty"}, "ansi"),
        (None, {"TERM": "alacritty", "COLORTERM": "truecolor"}, "dark"),
        (None, {"TERM": "xterm", "COLORFGBG": "0;15"}, "ansi-light"),
        (None, {"TERM": "xterm", "COLORFGBG": "15;default;0"}, "ansi"),
        (None, {"TERM": "xterm-256color", "NO_COLOR": "1"}, "ansi"),
        (None, {"TERM": "xterm-256color", "NO_COLOR": ""}, "dark"),
        (None, {"TERM": "xterm", "TEXTUAL_COLOR_SYSTEM": "truecolor"}, "dark"),
        ("light", {"TERM": "xterm"}, "light"),
        ("light", {"TERM": "xterm", "NO_COLOR": "1"}, "ansi"),
    ],
)
def test_the_theme_follows_the_wish_then_the_terminal(
    wish: str | None, env: dict[str, str], theme: str
) -> None:
    assert terminal.choose_theme(wish, env) == theme


@pytest.mark.parametrize(("wish", "env"), [("nope", {}), (None, {"ANDREA_TUI_THEME": "no\x1bpe"})])
def test_a_theme_that_is_none_is_named_in_one_line(wish: str | None, env: dict[str, str]) -> None:
    with pytest.raises(
        BadInput, match=r"^(--theme|ANDREA_TUI_THEME): no theme 'no.*pe'; there are dark, light"
    ) as e:
        terminal.choose_theme(wish, env)
    assert str(e.value).isprintable()


TERMS = ("xterm", "xterm-256color", "screen", "screen-256color", "tmux-256color", "linux", "alacritty", "xterm-kitty",
         "xterm-ghostty", "vt100", "rxvt-unicode-256color", "")  # fmt: skip


@pytest.mark.parametrize("term", TERMS)
@pytest.mark.parametrize("colorterm", ["", "truecolor", "24bit", "yes"])
def test_sixteen_colours_is_what_rich_will_send(term: str, colorterm: str) -> None:
    env = {"TERM": term, "COLORTERM": colorterm}
    system = Console(force_terminal=True, _environ=env).color_system
    assert terminal.sixteen_colours(env) == (system == "standard")


@pytest.mark.parametrize(
    ("name", "before", "after"),
    [
        ("auto", {}, {}),
        ("auto", {"NO_COLOR": "1"}, {"NO_COLOR": "1"}),
        ("none", {}, {"NO_COLOR": "1"}),
        ("16", {"NO_COLOR": "1"}, {"TEXTUAL_COLOR_SYSTEM": "standard"}),
        ("truecolor", {"TEXTUAL_COLOR_SYSTEM": "256"}, {"TEXTUAL_COLOR_SYSTEM": "truecolor"}),
    ],
)
def test_the_wish_for_colours_reaches_textual(
    name: str, before: dict[str, str], after: dict[str, str]
) -> None:
    env = dict(before)
    terminal.settle_colours(name, env)
    assert env == after


def test_a_colour_system_that_textual_would_die_of_is_refused() -> None:
    with pytest.raises(BadInput, match=r"^TEXTUAL_COLOR_SYSTEM: is one of"):
        terminal.settle_colours("auto", {"TEXTUAL_COLOR_SYSTEM": "purple"})


@pytest.mark.parametrize(
    ("env", "before", "ascii_only"),
    [
        ({}, {}, False),
        ({"LANG": "en_US.UTF-8"}, {}, False),
        ({"LANG": "de_DE.utf8"}, {}, False),
        ({"LANG": "de_DE.ISO-8859-1"}, {}, True),
        ({"LANG": "en_US.UTF-8", "LC_ALL": "C"}, {}, True),
        ({"LANG": "C", "LC_CTYPE": "C.UTF-8"}, {"LANG": "C"}, True),  # Python's doing
        ({"LANG": "C", "LC_CTYPE": "C.UTF-8"}, {"LANG": "C", "LC_CTYPE": "C.UTF-8"}, False),
        ({"LC_CTYPE": "C.UTF-8"}, {"HOME": "/"}, False),
        ({"LANG": "POSIX", "LC_ALL": ""}, {}, True),
    ],
)
def test_a_locale_without_utf8(env: dict[str, str], before: dict[str, str], ascii_only: bool) -> None:
    assert terminal.locale_is_ascii(env, before) == ascii_only


def test_another_theme_repaints_every_pane() -> None:
    """Also one with the same background."""
    painted: list[Style] = []

    async def look() -> None:
        app = Bare()
        async with app.run_test() as pilot:
            app.theme = "dark"
            pane = app.query_one(FooterLine)
            pane.show(FooterView((("q", "stop"),)))
            await pilot.pause(0.1)
            draw = pane.render_lines

            def noting(crop: Region) -> list[Strip]:
                strips = draw(crop)
                painted.extend(style for strip in strips for text, style, _ in strip if "q" in text and style)
                return strips

            pane.render_lines = noting  # type: ignore[method-assign]
            app.theme = "colour-blind-safe"
            await pilot.pause(0.1)

    asyncio.run(look())
    assert painted
    assert painted[-1].color == Style.parse(THEMES["colour-blind-safe"].primary or "").color
