"""The store: words for the trainer's state, rates, marks, alerts, confirmations."""

import math
import time
from pathlib import Path

import pytest

from andrea_tui.core import fmt
from andrea_tui.core.feed import Update
from andrea_tui.core.rates import rates
from andrea_tui.core.state import state
from andrea_tui.core.store import Store
from andrea_tui.runner import TrainerState
from engine.rundir import names
from engine.rundir.history import History
from engine.rundir.records import Event, LossLine, SampleLine, Status


def line(step: int, loss: float | None = 2.0, seg: int = 1, dt: float = 1.0, **more: object) -> LossLine:
    return LossLine(step=step, loss=loss, seg=seg, dt=dt, t=1e9 + step, **more)  # type: ignore[arg-type]


def status(**more: object) -> Status:
    values: dict[str, object] = dict(pid=7, seg=1, step=1, max_steps=1000, phase=0, doing="training")
    return Status(**(values | more))  # type: ignore[arg-type]


ALIVE = TrainerState(pid=7, alive=True)


@pytest.mark.parametrize(
    ("doing", "detail", "still", "shown"),
    [
        ("training", "", 1, "● training"),
        ("training", "", 31, "▲ stalled 31s"),
        ("training", "", 250, "▲ stalled 4m"),
        ("compiling", "", 250, "▲ stalled 4m, compiling"),
        ("replaying", "12/55", 1, "◌ replaying 12/55"),
        ("preparing", "tokenising chat 40 %", 1, "◌ tokenising chat 40 %"),
        ("checkpointing", "", 1, "◌ checkpointing"),
    ],
)
def test_the_word_of_a_living_trainer(doing: str, detail: str, still: float, shown: str) -> None:
    s = state(ALIVE, status(doing=doing, detail=detail), still, 1.0, [], 5)
    assert f"{s.glyph} {s.word}" == shown


def test_slow_steps_are_no_stall_and_another_pid_is_still_starting() -> None:
    assert state(ALIVE, status(), 99, 20.0, [], 5).kind == "training"
    assert state(ALIVE, status(pid=8), 1, 1.0, [], 5).word == "starting"
    assert state(ALIVE, None, 1, 1.0, [], 5).word == "starting"


@pytest.mark.parametrize(
    ("code", "events", "shown"),
    [
        (0, ["started", "finished"], "■ finished"),
        (0, ["started", "stopped"], "■ stopped"),
        (3, ["started", "failed"], "✗ dead 3"),
        (-9, ["started"], "✗ dead 9"),
        (None, ["started", "stopped"], "■ stopped"),
        (None, ["started", "stopped", "resumed", "checkpoint"], "✗ dead (killed)"),
        (None, ["started", "failed"], "✗ dead 4"),
        (None, [], "■ not started"),
    ],
)
def test_the_word_of_a_trainer_that_is_gone(code: int | None, events: list[str], shown: str) -> None:
    made = [Event(t=0, event=e, info={"code": 4} if e == "failed" else {}) for e in events]
    s = state(TrainerState(exit_code=code), None, 0, None, made, len(events))
    assert f"{s.glyph} {s.word}" == shown
    assert bool(s.meaning) == (s.kind == "dead")


def test_rates_ignore_downtime_and_start_anew_with_a_segment() -> None:
    h = History()
    h.extend([line(i, dt=1.0 if i > 1 else 0.0) for i in range(1, 51)])
    assert rates(h, None).step_time == 1.0
    assert rates(h, status(seg=2)).eta is None  # resumed, no step yet
    h.extend([line(51, seg=2, dt=0.0)])
    assert rates(h, status(seg=2)).step_time is None
    h.extend([line(52, seg=2, dt=0.5), line(53, seg=2, dt=0.5)])
    r = rates(h, status(seg=2, tokens_per_step=100, flops_per_token=10.0, peak_flops=4000.0))
    assert (r.step_time, r.tokens, r.mfu, r.eta) == (0.5, 200.0, 0.5, (1000 - 53) * 0.5)
    assert rates(h, status(seg=2, tokens_per_step=100)).mfu is None


def test_numbers_count_lost_steps_and_know_the_best(tmp_path: Path) -> None:
    s = Store(tmp_path)
    s.apply(Update(loss=(line(1, 4.0), line(2, None, skipped="nonfinite"), line(3, 2.0)), trainer=ALIVE))
    s.apply(Update(loss=(line(4, 9.0),)))
    v = s.numbers_view(time.time())
    assert v.lost == 1
    assert v.best_step == 3
    assert v.loss == 9.0
    s.apply(Update(loss=(line(3, 8.0),)))  # another path from step 3 on
    assert s.numbers_view(time.time()).best_step == 1
    assert s.history.last == 3
    s.apply(Update(fresh=frozenset({names.LOSS})))
    assert s.numbers_view(time.time()).ema is None


def test_smoothing_changes_d_and_the_whole_curve(tmp_path: Path) -> None:
    s = Store(tmp_path)
    s.apply(Update(loss=tuple(line(i, 2.0 + i % 2) for i in range(1, 30))))
    assert s.smooth(-20) == 0.0
    assert s.ema.values[-1] == 3.0
    assert s.smooth(99) == 0.9999
    assert s.numbers_view(0).decay == 0.9999


def test_a_snapshot_is_asked_for_and_confirmed_by_its_event(tmp_path: Path) -> None:
    s = Store(tmp_path)
    s.apply(Update(trainer=ALIVE, status=status(), status_moved=time.time()))
    s.ask("snapshot asked: after this step")
    assert "snapshot asked" in s.alerts_view(time.time()).alerts[0].text
    s.apply(Update(events=(Event(t=time.time(), event="checkpoint", step=100, info={"why": "boundary"}),)))
    assert s.asked is not None
    s.apply(
        Update(events=(Event(t=time.time(), event="checkpoint", step=112_619, info={"why": "snapshot"}),))
    )
    assert [a.text for a in s.alerts_view(time.time()).alerts] == ["● snapshot step 112,619 saved"]
    assert not s.alerts_view(time.time() + 25).alerts


def test_alerts_say_what_is_wrong(tmp_path: Path) -> None:
    s = Store(tmp_path)
    s.apply(
        Update(
            loss=tuple(line(i) for i in range(1, 402)), trainer=ALIVE, bad=3, problems=("feed: boom",),
            status=status(behind=12, checkpoint_step=100), status_moved=time.time(),
        )
    )  # fmt: skip
    text = " ".join(a.text for a in s.alerts_view(time.time()).alerts)
    for expected in ("behind by 12 lines", "301 steps old", "3 damaged", "feed: boom"):
        assert expected in text
    s.apply(Update(trainer=TrainerState(exit_code=-9), loaded=1.0))
    assert "signal 9" in s.alerts_view(time.time()).alerts[0].text


def test_audits_and_checkpoints(tmp_path: Path) -> None:
    s = Store(tmp_path)

    def sample(step: int, prompt: str, mode: str, text: str) -> SampleLine:
        return SampleLine(step=step, phase=0, prompt=prompt, mode=mode, text=text, tokens=1, t=0, seg=1)

    s.apply(
        Update(samples=tuple(sample(100, p, m, f"{p}{m}\x1b") for p in "ab" for m in ("greedy", "sampled")))
    )
    s.apply(Update(samples=(sample(200, "a", "greedy", "x\ny"),), files=frozenset({100})))
    v = s.audit_view(time.time())
    assert [a.step for a in v.audits] == [100, 200]
    assert [len(a.texts) for a in v.audits] == [2, 1]
    assert v.files == frozenset({100})
    assert v.audits[1].texts[0].greedy.text == "x\ny"
    assert v.audits[0].texts[1].sampled.text == "bsampled␛"
    old = SampleLine(step=90, phase=0, prompt="a", mode="greedy", text="old", tokens=1, t=0, seg=1)
    s.apply(Update(archived=(old,), files=frozenset({100})))
    assert [a.step for a in s.audit_view(time.time()).audits] == [
        90,
        100,
        200,
    ]  # those of the archive come first
    events = tuple(
        Event(t=5.0, event="checkpoint", step=i, info={"why": "boundary", "bytes": 10}) for i in (100, 200)
    )
    s.apply(Update(events=events, sizes={100: 10}))
    assert [(r.step, r.mark) for r in s.checkpoints_view(99).rows] == [(200, "gone"), (100, "")]
    s.apply(Update(events=(Event(t=6.0, event="pruned", step=300, info={"steps": [200]}),)))
    assert [r.step for r in s.checkpoints_view(10).rows] == [100]
    assert "\x1b" not in str(s.events_view(0).events.last(99))


def test_formats() -> None:
    assert [fmt.short(x) for x in (0, 999, 1200, 110_400, 3_100_000, 999_960)] == [
        "0",
        "999",
        "1.2k",
        "110.4k",
        "3.1M",
        "1M",
    ]
    assert [fmt.duration(x) for x in (4, 61, 3700, 875_000, None, float("nan"))] == [
        "4s",
        "1m",
        "1h 1m",
        "10d 3h",
        "n/a",
        "n/a",
    ]
    assert [fmt.size(x) for x in (153_363_464, 1_184_385_032, 12)] == ["153 MB", "1.2 GB", "12 B"]
    assert [fmt.number(x) for x in (3.2187, 40.0, 1234.5, 1e9, 0.0, None)] == [
        "3.219",
        "40.00",
        "1234",
        "1.0e9",
        "0.000",
        "n/a",
    ]
    assert fmt.percent(0.9999) == "99%"


def test_phases_are_found_however_the_lines_come(tmp_path: Path) -> None:
    s = Store(tmp_path)
    s.apply(Update(loss=tuple(line(i, phase=i // 10) for i in range(1, 30))))
    s.apply(Update(loss=tuple(line(i, phase=i // 10) for i in range(30, 35))))
    assert s.chart_view().phases == (9, 19, 29)
    s.apply(Update(loss=(line(20, phase=1), line(21, phase=1), line(22, phase=2))))
    assert s.chart_view().phases == (9, 21)
    s.apply(Update(loss=(line(1, phase=0),)))
    assert s.chart_view().phases == ()


def quick(steps: range, arms: dict[str, int], odd: tuple[int, ...] = (), every: int = 0) -> list[LossLine]:
    """A hundred steps a second of two arms whose losses are known."""
    out = []
    for i in steps:
        loss = {a: 2.0 + 0.01 * (i * 7919 % 13) + (9.0 if i in odd else 0.0) for a in arms}
        bpb: dict[str, float | None] | None = {"a": 1.0, "b": 3.0} if every and i % every == 0 else None
        out.append(LossLine(step=i, loss=loss["a"], gnorm=1.0, rows=arms, rloss=dict(loss), dt=0.01, t=1e9 + i / 100,
                            bpb=bpb))  # fmt: skip
    return out


def fed(tmp_path: Path, lines: list[LossLine], piece: int) -> Store:
    store = Store(tmp_path)
    store.apply(Update(text_ratios={"a": 1.0, "b": 1.0}))
    for i in range(0, len(lines), piece):
        store.apply(Update(loss=tuple(lines[i : i + piece])))
    return store


def test_no_spike_of_a_quick_run_is_missed(tmp_path: Path) -> None:
    odd = (1050, 1500, 2110, 2700, 3333)
    store = fed(tmp_path, quick(range(1, 4001), {"a": 4, "b": 4}, odd), 50)
    assert [r.step for r in store.journal.last(99) if r.name == "spike"] == list(odd)


def test_a_held_out_point_of_a_quick_run_has_the_weights_of_its_step(tmp_path: Path) -> None:
    store = fed(tmp_path, quick(range(1, 2001), {"a": 15, "b": 1}, every=100), 5)
    points = dict(store.chart_view().heldout)
    nats = [n / math.log(2) for step, n in points.items() if step > 100]
    assert len(nats) == 19
    assert nats == pytest.approx([1.0 * 15 / 16 + 3.0 / 16] * 19)


def test_steps_alone_are_no_news(tmp_path: Path) -> None:
    """They are drawn once a second; what a person waits for at once."""
    store = Store(tmp_path)
    store.apply(Update(loss=(line(1),), status=status()))
    before = store.news
    store.apply(Update(loss=(line(2),), status=status(step=2)))
    assert store.news == before
    for update in (
        Update(loss=(line(3),), status=status(step=3, doing="sampling")),
        Update(events=(Event(t=1.0, event="checkpoint", step=3),)),
        Update(loss=(line(4),), trainer=ALIVE),
        Update(loss=(line(5),), problems=("x",)),
        Update(loss=(line(6),), fresh=frozenset({names.LOSS})),
    ):
        store.apply(update)
        assert store.news > before, update
        before = store.news
    for act in (store.tell, store.fail, store.ask):
        act("x")
        assert store.news > before
        before = store.news
