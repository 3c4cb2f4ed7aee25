"""What happened since the last look: the pure function, where the look is kept, what a person sees of it."""

import asyncio
import os
import time
from pathlib import Path

import msgspec
import pytest

from andrea_tui.app import CockpitApp
from andrea_tui.cli import make_run
from andrea_tui.core.away import Look, Now, away, look
from andrea_tui.core.finding import Finding
from andrea_tui.core.looks import Looks, log_crash
from andrea_tui.runner import Runner
from engine.rundir.records import Event, LossLine, encode, event

HOUR = 3600.0


def ev(name: str, step: int = 0, text: str = "", **info: object) -> Event:
    return Event(t=0.0, event=name, step=step, text=text, info=dict(info))


def now(
    step: int = 112_619, *, t: float = 10 * HOUR, events: tuple[Event, ...] = (), alive: bool = True,
    findings: tuple[Finding, ...] = (), ema: float | None = 3.231, decay: float = 0.99,
) -> Now:  # fmt: skip
    return Now(t, step, events, findings, ema, decay, alive)


THEN = Look(t=0.0, step=109_319, events=1, ema=3.244, decay=0.99)
BORN = ev("started")


def text(then: Look, present: Now) -> str:
    view = away(then, present)
    return "\n".join([view.title, *(t for t, _ in view.lines)])


def test_a_quiet_night() -> None:
    saved = tuple(ev("checkpoint", s, "x") for s in range(109_400, 112_700, 100))
    view = away(THEN, now(events=(BORN, *saved)))
    assert view.title == "while you were away: 10h 0m"
    assert view.lines == (("+3,300 steps to 112,619 · ema 3.2440 → 3.2310 · 33 checkpoints", "text"),)
    assert view.worth


def test_a_short_absence_is_told_only_where_something_happened() -> None:
    stopped = Look(t=0.0, step=5, events=2)
    assert not away(stopped, now(5, events=(BORN, ev("stopped", 5, code=0)), alive=False)).worth


def test_deaths_restarts_and_a_pivot() -> None:
    new = (
        ev("resumed", 110_000), ev("resumed", 110_000), ev("failed", 110_500, "OSError: gone", code=1),
        ev("resumed", 110_400), ev("pivot", 112_000, "v1 → v2 after step 112000", old="v1", new="v2"),
        ev("resumed", 112_000),
    )  # fmt: skip
    said = text(THEN, now(events=(BORN, *new)))
    assert "✗ the trainer died 3 times, started again 3 times" in said  # two broke off, one failed
    assert "pivot: v1 → v2 after step 112000" in said
    assert "failed: OSError: gone" in said
    assert "died once" in text(THEN, now(events=(BORN,), alive=False, t=60))


def test_a_clean_stop_is_no_death_and_no_step_is_said() -> None:
    assert "died" not in text(THEN, now(events=(BORN, ev("stopped", 112_619, "stopped")), alive=False))
    assert "▲ no step was made" in text(THEN, now(109_319, events=(BORN,)))


def test_a_death_is_told_once() -> None:
    killed = now(events=(BORN,), alive=False)
    assert "died once" in text(THEN, killed)
    seen = look(killed)
    assert "died" not in text(seen, killed)
    assert not away(seen, killed).worth
    again = now(events=(BORN, ev("resumed", 112_600)), alive=True)
    assert "died" not in text(seen, again)
    assert "started once" in text(seen, again)


def test_alerts_that_are_new_and_those_that_were_there() -> None:
    drift, old = (
        Finding("drift", "drift: chat", "warn", 112_000),
        Finding("drift", "drift: chat", "warn", 109_000),
    )
    spike = Finding("spike", "spike at 112,001", "warn", 112_001)
    before = look(now(109_319, t=0.0, events=(BORN,), findings=(old,)))
    said = text(before, now(events=(BORN,), findings=(drift, spike)))
    assert "spike at 112,001" in said
    assert "drift" not in said  # it lasts: it was on the screen at the last look
    assert "drift" in text(THEN, now(events=(BORN,), findings=(drift,)))


def test_a_rollback_another_smoothing_a_clock_set_back_and_a_log_that_is_another() -> None:
    back = ev("rollback", 100_000, "rolled back from step 109319 to step 100000")
    said = text(THEN, now(100_050, events=(BORN, back), decay=0.9))
    assert "−9,269 steps to 100,050 · ema 3.2310" in said
    assert "→ 3.2310" not in said
    assert "rolled back" in said
    assert text(THEN, now(t=-400 * 24 * HOUR)).startswith("since your last look (the clock was set back)")
    fewer = Look(t=0.0, step=109_319, events=50)
    late = Event(t=5.0, event="collapse", text="collapsed")
    assert "collapsed" in text(fewer, now(events=(late,)))
    assert "nan" not in text(msgspec.structs.replace(THEN, ema=float("nan")), now(ema=float("nan")))


def test_hostile_and_many_events_are_clean_and_bounded() -> None:
    many = tuple(ev("warning", i, f"\x1b[2J{i}") for i in range(500))
    view = away(THEN, now(events=(BORN, *many)))
    assert len(view.lines) <= 9
    assert all("\x1b" not in t for t, _ in view.lines)
    same = tuple(ev("warning", i, "disk full") for i in range(500))
    assert "warning: disk full (500 times)" in text(THEN, now(events=(BORN, *same)))


# ---- where it is kept


def test_kept_outside_the_run_per_run_and_birth(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    run, first = tmp_path / "run", event("created")
    looks = Looks(run)
    assert looks.load(first) is None
    looks.save(THEN, first)
    looks.close()
    assert Looks(run).load(first) == THEN
    (tmp_path / "link").symlink_to(run)
    assert Looks(tmp_path / "link").load(first) == THEN
    assert Looks(run).load(Event(t=first.t + 1, event="created")) is None  # a new run in the same folder
    assert Looks(tmp_path / "other").load(first) is None
    assert not run.exists()
    assert looks.problem == ""
    assert [p.name[-5:] for p in (tmp_path / "state" / "andrea-tui").iterdir()] == [".json"]


@pytest.mark.parametrize(
    "data", [b"", b"\0" * 100, b'{"t":1e999}', b"[" * 100_000, b"{}", b"null", b'{"t":1,"step":-1}']
)
def test_a_damaged_look_is_no_look(data: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    looks = Looks(tmp_path / "run")
    looks.save(THEN, None)
    looks.close()
    (path,) = (tmp_path / "andrea-tui").iterdir()
    path.write_bytes(data)
    assert looks.load(None) is None
    assert looks.problem
    looks.save(THEN, None)  # and is replaced
    looks.close()
    assert looks.load(None) == THEN


def test_no_home_a_file_in_its_place_and_a_full_disk_are_said_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("XDG_STATE_HOME")
    monkeypatch.delenv("HOME")
    assert refused(tmp_path) == "what you saw last can't be remembered: no home directory is set"
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    assert "Not a directory" in refused(tmp_path)
    assert "not logged" in log_crash("x")
    monkeypatch.setenv("XDG_STATE_HOME", "/dev/full/x")
    assert "can't be remembered" in refused(tmp_path)


def refused(tmp_path: Path) -> str:
    looks = Looks(tmp_path / "run")
    looks.save(THEN, None)
    looks.close()
    assert looks.load(None) is None
    return looks.problem


def test_a_slow_home_holds_nobody_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setattr(Looks, "_save", lambda *_: time.sleep(30))
    looks = Looks(tmp_path / "run")
    start = time.monotonic()
    looks.save(THEN, None)
    looks.close()
    assert time.monotonic() - start < 3


# ---- on the screen


@pytest.mark.parametrize("size", [(80, 24), (120, 40), (60, 12), (20, 5)])
def test_shown_above_the_chart_until_a_key(size: tuple[int, int], tmp_path: Path) -> None:
    run = tmp_path / "run"
    make_run(run, "andrea-tiny", [])
    with open(run / ".loss.json", "wb") as f:
        for step in range(1, 201):
            f.write(encode(LossLine(step=step, loss=3.0, t=time.time())))
    first = msgspec.json.decode((run / ".events.json").read_bytes(), type=Event)
    looks = Looks(run)
    looks.save(Look(t=time.time() - 9 * HOUR, step=100, events=1, ema=3.5, decay=0.99), first)
    looks.close()
    asyncio.run(_look(run, size))
    kept = looks.load(first)
    assert kept is not None
    assert (kept.step, kept.events) == (200, 1)
    assert abs(kept.t - time.time()) < 30
    assert not [p for p in run.iterdir() if "look" in p.name or "away" in p.name]
    assert os.environ["XDG_STATE_HOME"] not in str(run)


async def _look(run: Path, size: tuple[int, int]) -> None:
    app = CockpitApp(run, Runner(run), watch=True)
    async with app.run_test(size=size) as pilot:
        end = time.monotonic() + 20
        while app.overview.away is None and time.monotonic() < end:
            await pilot.pause(0.05)
        await pilot.pause(0.3)
        pane = app.overview.pane("away")
        shown = "\n".join("".join(t for t, _ in line) for line in pane._lines)
        if size[1] >= 12:
            assert "+100 steps to 200" in shown
        await pilot.press("tab")
        await pilot.pause(0.3)
        assert app.overview.away is None
        assert "away" not in app.overview._board.boxes()
        assert app.overview.focused is not None  # the key did what it always does
        await pilot.press("w")
        await pilot.pause(0.1)
        assert app.overview.away is not None
        await pilot.press("w")
        await pilot.pause(0.1)
        assert app.overview.away is None
