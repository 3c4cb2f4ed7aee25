"""The sanitiser and the measuring of text in cells."""

import unicodedata

from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from andrea_tui.core.text import cells, clean, clip, fit, wrap

ANY = st.text(st.characters(), max_size=60)  # with lone surrogates
HOSTILE = (
    "\x1b[31mred\x1b]52;c;aGk=\x07 \x9b2J \x7f \x00 a\u202eb\u2066c\u200b\u200d\ufe0f"
    " 日本語 👩‍👩‍👧 e\u0301 \ud800 \u2028 [/foo] \t."
)


@given(ANY | st.just(HOSTILE))
def test_clean_text_is_printable_and_cannot_act(text: str) -> None:
    out = clean(text)
    for c in out:
        assert unicodedata.category(c) not in ("Cc", "Cf", "Cs", "Zl", "Zp", "Mn", "Me"), hex(ord(c))
    out.encode()
    assert "\x1b" not in out
    assert clean(out) == out


@given(ANY)
def test_cells_add_up_and_agree_with_what_draws_them(text: str) -> None:
    out = clean(text)
    assert cells(out) == cell_len(out) == sum(cells(c) for c in out)


@given(ANY, st.integers(0, 30))
def test_fit_is_exact_and_clip_never_longer(text: str, width: int) -> None:
    out = clean(text)
    assert cells(fit(out, width)) == width
    assert cells(fit(out, width, right=True)) == width
    assert cells(clip(out, width)) <= width


@given(ANY, st.integers(2, 30))
def test_wrap_loses_nothing(text: str, width: int) -> None:
    out = clean(text, "\n")
    lines = wrap(out, width)
    assert all(cells(x) <= width for x in lines)
    assert "".join(lines) == out.replace("\n", "")


def test_newlines_are_shown_or_kept() -> None:
    assert clean("a\r\nb\nc") == "a⏎b⏎c"
    assert clean("a\nb", "\n") == "a\nb"
    assert clean("e\u0301") == "é"
    assert clean("\x1b[0m") == "␛[0m"
