"""Lists: a chosen row that stays, filters, what is said about checkpoints, two texts with what differs marked."""

import time
from typing import Any

import pytest

from andrea_tui.core import views
from andrea_tui.core.checkpoints import NOT_READ, Checkpoints
from andrea_tui.core.journal import EventRow, Filter, Journal
from andrea_tui.core.text import clean
from andrea_tui.core.worddiff import word_diff
from andrea_tui.widgets import paint
from andrea_tui.widgets.audit import AuditPane
from andrea_tui.widgets.checkpoints import CheckpointsPane
from andrea_tui.widgets.events import EventsPane
from andrea_tui.widgets.listing import ListPane
from andrea_tui.widgets.mix import MixPane
from andrea_tui.widgets.pane import Pane
from engine import keeping
from engine.config import KeepConfig
from engine.rundir.records import Event

EVIL = clean("日本語👩‍👩‍👧\x1b[2J\u202eאבג عربي\u200b[/red][@click=app.quit] e\u0301\ud800" + "語" * 60)
SIZES = [(1, 1), (5, 2), (20, 6), (38, 10), (80, 21), (120, 37), (300, 100)]


def text_of(lines: list[Any]) -> list[str]:
    return ["".join(t for t, _ in x) for x in lines]


def chosen_line(lines: list[Any]) -> str:
    return next(("".join(t for t, _ in x) for x in lines if any(s == "chosen" for _, s in x)), "")


def events(n: int, first: int = 0) -> list[Event]:
    return [
        Event(t=1.7e9 + i, event="checkpoint", step=i, text=f"number {i}") for i in range(first, first + n)
    ]


# ---- places


class Newest(ListPane[Any]):
    NEWEST_FIRST = True


def test_at_the_end_it_follows_and_elsewhere_it_stands_still() -> None:
    pane: ListPane[Any] = ListPane()
    rows = list("abcdefghij")
    assert pane.place(10, 4, rows.__getitem__) == range(6, 10)
    rows += "kl"
    assert pane.place(12, 4, rows.__getitem__) == range(8, 12)
    pane.scroll_lines(-5)
    shown = pane.place(12, 4, rows.__getitem__)
    assert (rows[pane.at], pane.follows) == ("g", False)
    rows += "mnop"
    assert pane.place(16, 4, rows.__getitem__) == shown
    assert pane.fresh == 4
    pane.scroll_lines(10**9)
    assert pane.place(16, 4, rows.__getitem__) == range(12, 16)
    assert (pane.follows, pane.fresh) == (True, 0)


def test_rows_that_come_at_the_top_do_not_move_what_is_looked_at() -> None:
    pane = Newest()
    rows = list(range(100, 50, -1))
    assert pane.place(50, 5, rows.__getitem__) == range(5)
    pane.scroll_lines(20)
    shown = [rows[i] for i in pane.place(50, 5, rows.__getitem__)]
    rows = [*range(110, 100, -1), *rows]
    assert [rows[i] for i in pane.place(60, 5, rows.__getitem__)] == shown
    assert rows[pane.at] == 80
    pane.scroll_lines(-(10**9))
    rows = [111, *rows]
    assert pane.place(61, 5, rows.__getitem__) == range(5)
    assert rows[pane.at] == 111


def test_a_list_that_shrinks_or_loses_the_chosen_row() -> None:
    pane = Newest()
    rows = list(range(50))
    pane.place(50, 5, rows.__getitem__)
    pane.scroll_lines(48)
    pane.place(50, 5, rows.__getitem__)
    rows = rows[:3]
    assert pane.place(3, 5, rows.__getitem__) == range(3)
    assert pane.at == 2
    assert pane.place(0, 5, rows.__getitem__) == range(0)
    assert pane.place(3, 0, rows.__getitem__) in (range(1), range(2, 3))


def test_the_wheel_moves_the_view_and_takes_the_chosen_row_along() -> None:
    pane: ListPane[Any] = ListPane()
    pane.place(100, 10, lambda i: i)
    pane._wheel(-3)
    assert pane.place(100, 10, lambda i: i) == range(87, 97)
    assert (pane.at, pane.follows) == (96, False)
    for _ in range(3):
        pane._wheel(3)
    assert pane.place(100, 10, lambda i: i) == range(90, 100)
    assert pane.follows


def test_a_list_without_a_chosen_row_only_scrolls() -> None:
    pane = MixPane()
    arms = tuple(views.ArmView(f"arm{i}{EVIL[: i % 9]}", 1 / 16, 0.01, 0.5, 3.0) for i in range(16))
    view = views.MixView(EVIL, 100, arms)
    pane.draw(view, 38, 10)
    pane.scroll_lines(5)
    assert "arm5" in text_of(pane.draw(view, 38, 10))[2]
    pane.scroll_lines(10**9)
    assert "arm15" in text_of(pane.draw(view, 38, 10))[-2]


# ---- events


def full(pane: Pane[Any]) -> Any:
    pane.full = True
    return pane


def test_a_hundred_thousand_events_cost_what_the_screen_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    journal, made = Journal(events(100_000)), list[int]()
    real = Journal.__getitem__

    def count(self: Journal, i: int) -> EventRow:
        made.append(i)
        return real(self, i)

    monkeypatch.setattr(Journal, "__getitem__", count)
    pane = full(EventsPane())
    view = views.EventsView(journal, 1)
    for move in (0, -1, -(10**9), 50_000, 10**9):
        pane.scroll_lines(move)
        made.clear()
        assert len(pane.draw(view, 80, 21)) == 21
        assert len(made) < 100
    journal.add(events(5, 100_000))
    made.clear()
    pane.draw(view, 80, 21)
    assert len(made) < 100


def test_a_filter_looks_at_a_row_once() -> None:
    journal, found = Journal(events(3000)), Filter()
    journal.add([Event(t=1, event="warning", step=7, text="DISK full")])
    assert found.rows(journal, "", False) == range(3001)
    assert list(found.rows(journal, "disk", False)) == [3000]
    assert list(found.rows(journal, "", True)) == [3000]
    assert list(found.rows(journal, "number 12", False))[:2] == [12, 120]
    before = found.rows(journal, "1,999", False)
    assert list(before) == [1999]
    journal.add(events(3, 11_999))
    assert list(found.rows(journal, "1,999", False)) == [1999, 3001]
    journal.insert(EventRow(1.7e9 + 5, "spike", 1999, "a spike", "warn"))
    assert list(found.rows(journal, "1,999", False)) == [6, 2000, 3002]
    assert journal[6].name == "spike"


def test_events_stand_still_while_lines_come_and_say_how_many() -> None:
    journal, pane = Journal(events(200)), full(EventsPane())
    view = views.EventsView(journal, 1)
    pane.draw(view, 80, 21)
    pane.scroll_lines(-30)
    before = text_of(pane.draw(view, 80, 21))
    journal.add(events(12, 200))
    after = text_of(pane.draw(view, 80, 21))
    assert after[1:] == before[1:]
    assert "12 new ↓" in after[0]
    pane.act("follow")
    assert "number 211" in chosen_line(pane.draw(view, 80, 21))


def test_a_filter_tells_its_text_and_hits_and_esc_takes_it_back() -> None:
    journal = Journal([*events(50), Event(t=2e9, event="warning", step=999_999_999, text=EVIL)])
    pane, view = full(EventsPane()), views.EventsView(journal, 1, ("one", "TWO", EVIL))
    pane.draw(view, 80, 21)
    pane.search("NUMBER 4")
    lines = text_of(pane.draw(view, 80, 21))
    assert "events 11 of 51" in lines[0]
    assert "/NUMBER 4" in lines[0]
    pane.act("log")
    pane.search("two")
    assert "trainer.log 1 of 3" in text_of(pane.draw(view, 80, 21))[0]
    assert pane.go_back()
    pane.act("log")
    pane.act("warnings")
    lines = text_of(pane.draw(view, 80, 21))
    assert "999,999,999" in lines[1]
    assert pane.go_back()
    assert not pane.go_back()
    pane.search("in no line")
    assert "nothing with" in text_of(pane.draw(view, 80, 21))[1]


def test_a_long_line_is_shown_whole_below() -> None:
    long = "a long warning " + "that goes on " * 20 + "to its end"
    pane = full(EventsPane())
    view = views.EventsView(Journal([*events(30), Event(t=2e9, event="warning", text=long)]), 1)
    lines = text_of(pane.draw(view, 80, 21))
    assert "to its end" in "".join(lines[-8:])
    pane.scroll_lines(-1)
    assert "to its end" not in "".join(text_of(pane.draw(view, 80, 21)))


def test_a_time_that_no_calendar_knows() -> None:
    for t in (1e300, -1e300, float("inf")):
        EventsPane().draw(views.EventsView(Journal([Event(t=t, event="x")]), 1), 80, 9)


# ---- checkpoints


def saved(step: int, t: float, why: str = "boundary", sha: str = "") -> Event:
    return Event(
        t=t, event="checkpoint", step=step, info={"why": why, "bytes": 100, "sha256": sha or f"s{step}"}
    )


def rows_of(
    c: Checkpoints, sizes: dict[int, int] | None, now: float = 1000.0
) -> dict[int, views.CheckpointRow]:
    return {r.step: r for r in c.view(sizes, KeepConfig(last=2, every=300), now).rows}


def test_what_is_known_about_each_checkpoint() -> None:
    c = Checkpoints()
    c.add([saved(s, 100.0 + s) for s in (0, 100, 200, 300, 400, 500, 600, 700)])
    c.add([
        Event(t=750, event="snapshot", step=200),
        Event(t=800, event="verified", step=300, info={"sha256": {"step_000300.bin": "s300"},
                                                       "damaged": {"step_000400.bin": "bad \x1b"}}),
        Event(t=800, event="verified", step=100, info={"sha256": {"step_000100.bin": "of another file"}}),
        Event(t=900, event="resumed", step=600),
        Event(t=901, event="pruned", step=600, info={"steps": [500]}),
    ])  # fmt: skip
    sizes = {0: 100, 100: 100, 200: 100, 300: 100, 400: 99, 600: 100, 900: 5}
    rows = rows_of(c, sizes)
    assert sorted(rows) == [0, 100, 200, 300, 400, 600, 700, 900]  # what was pruned is not missed
    assert {s: r.mark for s, r in rows.items() if r.mark} == {400: "wrong size", 700: "gone", 900: "no event"}
    assert (rows[300].verified, rows[400].verified) == ("3m ago", "damaged 3m ago")
    assert (rows[600].verified, rows[100].verified) == ("1m ago", NOT_READ)
    assert {s: r.kept for s, r in rows.items()} == {
        0: "start", 100: "next to go", 200: "asked for", 300: "every 300", 400: "next to go", 600: "every 300",
        700: "", 900: "every 300",
    }  # fmt: skip
    c.add([Event(t=940, event="branch", step=400)])
    assert rows_of(c, sizes)[400].kept == "next to go"  # the trainer does not know of it yet
    c.add([Event(t=941, event="resumed", step=600)])
    assert rows_of(c, sizes)[400].kept == "asked for"
    c.add([saved(300, 950.0, sha="written again")])
    assert rows_of(c, sizes)[300].verified == NOT_READ  # what was read back was another file
    c.add([saved(800, 995.0)])  # its file gets its name, and is seen, in a moment
    assert (rows_of(c, sizes)[800].mark, rows_of(c, sizes, now=1010)[800].mark) == ("", "gone")
    c.add([Event(t=996, event="rollback", step=300)])
    assert 700 not in rows_of(c, sizes)


def test_it_keeps_what_the_trainer_keeps() -> None:
    """The rule as it was written before: beyond the last N, not at every M, asked for by nobody."""
    keep, asked = KeepConfig(last=3, every=400), {100, 900}
    steps = [s * 100 for s in range(12)]
    newest = sorted(steps, reverse=True)
    gone = {s for s in newest[keep.last :] if s % keep.every and s not in asked}
    assert set(steps) - set(keeping.kept(steps, keep, asked)) == gone


def test_a_damaged_checkpoint_is_marked_at_every_width() -> None:
    good = views.CheckpointRow(100, "3h", "boundary", "1.2 GB", NOT_READ, "last 10")
    bad = views.CheckpointRow(200, "1h", "snapshot", "1.2 GB", "damaged 3h ago", "asked for", "wrong size")
    view = views.CheckpointsView((bad, good), 10**9)
    for width in (38, 66, 80, 120):
        lines = text_of(full(CheckpointsPane()).draw(view, width, 10))
        assert any("✗ wrong" in x for x in lines), width
    assert NOT_READ in lines[3]
    assert "asked for" in lines[2]


# ---- audits


def audit(step: int, text: str, phase: int = 0, prompt: str = "p") -> views.Audit:
    s = views.SampleText(text, "", (("coherence", 50.0),))
    return views.Audit(step, (views.TextPair(prompt, s, s), views.TextPair("q", s, s)), 50.0, phase)


def test_words_that_differ_are_found_in_their_order() -> None:
    d = word_diff("the cat sat on a mat", "the dog sat on the mat")
    assert ["the cat sat on a mat"[a:b] for a, b in d.left] == ["cat", "a"]
    assert ["the dog sat on the mat"[a:b] for a, b in d.right] == ["dog", "the"]
    assert word_diff("", "").same == 1.0
    assert word_diff("same words", "same  words").left == ()
    assert word_diff("a b", "c d") == (((0, 3),), ((0, 3),), 0.0)
    assert word_diff("x " * 4000, "x " * 4000).left[-1][1] == 7999


def test_two_audits_side_by_side_with_what_differs_marked() -> None:
    view = views.AuditView((audit(100, "the cat sat on a mat"), audit(200, "the dog sat on a mat")))
    lines = full(AuditPane()).draw(view, 100, 24)
    marked = [t for x in lines for t, s in x if s == "changed"]
    assert marked[:2] == ["dog", "cat"]  # underlined and bold, not by colour alone
    assert "the same words" in "".join(text_of(lines))
    other = views.AuditView((audit(100, "one two three"), audit(200, "the dog sat on a mat")))
    lines = full(AuditPane()).draw(other, 100, 24)
    assert not [t for x in lines for t, s in x if s == "changed"]
    assert "another text" in "".join(text_of(lines))


def test_either_side_is_chosen_and_stays_when_audits_come() -> None:
    audits = tuple(audit(s * 100, f"text {s}", phase=s > 5) for s in range(1, 11))
    pane = full(AuditPane())
    pane.view = view = views.AuditView(audits, policies=((0, "old"), (1, "new")))

    def heads() -> list[str]:
        return [x.split(" · ")[0].strip() for x in text_of(pane.draw(pane.view, 100, 24))[1][2:-2].split("│")]

    assert heads() == ["step 1,000", "step 900"]
    pane.pan(1)
    pane.pan(1)
    assert heads() == ["step 1,000", "step 700"]
    pane.act("earlier")
    assert heads() == ["step 900", "step 700"]
    pane.view = views.AuditView((*audits, audit(1100, "more", phase=1)), policies=view.policies)
    assert heads() == ["step 900", "step 700"]
    pane.pan(-1)
    assert heads() == ["step 900", "step 800"]
    pane.pan(-1)  # past the one on the left
    assert heads() == ["step 900", "step 1,000"]
    pane.goto(300)
    assert heads() == ["step 300", "step 200"]
    assert "· old" in text_of(pane.draw(pane.view, 100, 24))[1]
    assert pane.go_back()
    assert heads() == ["step 1,100", "step 1,000"]


def test_one_prompt_through_all_audits_of_all_phases() -> None:
    audits = tuple(audit(s * 100, f"text {s} {EVIL}", phase=s > 20) for s in range(1, 41))
    pane = full(AuditPane())
    pane.view = views.AuditView(audits, policies=((0, "old"), (1, "new")))
    pane.draw(pane.view, 100, 30)
    pane.open()
    lines = text_of(pane.draw(pane.view, 100, 30))
    assert "through time" in lines[0]
    assert "4,000  new" in lines[2]
    pane.scroll_lines(25)
    assert "1,500  old" in chosen_line(pane.draw(pane.view, 100, 30))
    pane.open()
    assert "step 1,500 · old" in text_of(pane.draw(pane.view, 100, 30))[1]
    pane.search("text 7 ")
    assert "1 of 40 audits" in text_of(pane.draw(pane.view, 100, 30))[0]
    pane.search("old")
    assert "20 of 40 audits" in text_of(pane.draw(pane.view, 100, 30))[0]


# ---- whatever comes, at every size

EVENTS = Journal([Event(t=time.time(), event=EVIL, step=999_999_999, text=EVIL * 3) for _ in range(40)])
AUDITS = views.AuditView(
    tuple(audit(999_999_000 + i, EVIL * (i % 4), phase=i // 10, prompt=EVIL) for i in range(40)),
    (("coherence", 10.0, 90.0),), frozenset({5}), ((0, EVIL), (1, "v2")),
)  # fmt: skip
ROW = views.CheckpointRow(999_999_999, "999d", EVIL, "1.2 GB", EVIL, EVIL, EVIL)


@pytest.mark.parametrize("fills", [False, True])
@pytest.mark.parametrize(("width", "height"), SIZES)
def test_hostile_rows_at_every_size_and_place(width: int, height: int, fills: bool) -> None:
    shown: list[tuple[Any, Any]] = [
        (EventsPane(), views.EventsView(EVENTS, 1, (EVIL,) * 50, 7)),
        (EventsPane(), views.EventsView(Journal(), 0, (EVIL,) * 5, 0, EVIL, True)),
        (CheckpointsPane(), views.CheckpointsView((ROW,) * 30, 10**15)),
        (CheckpointsPane(), views.CheckpointsView()),
        (AuditPane(), AUDITS),
        (AuditPane(), views.AuditView()),
    ]
    for pane, view in shown:
        pane.full, pane.view = fills, view
        for act in ("", "log", "warnings", "earlier", "open", "search", "log"):
            pane.act(act)
            if act == "open" and isinstance(pane, AuditPane):
                pane.open()
            if act == "search":
                pane.search("語")
            for by in (0, -3, 5, 10**9):
                pane.scroll_lines(by)
                for line in paint.fill(pane.draw(view, width, height), width, height):
                    assert paint.width_of(line) == width
                    assert all(style in paint.STYLES for _, style in line)
