"""What a chart shows: zoom, pan and axes; buckets that are kept; held-out points."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from andrea_tui.core import axis, decimate, lens
from andrea_tui.core.ema import fold
from andrea_tui.core.heldout import Heldout
from andrea_tui.core.lens import WHOLE, Lens

LAST = st.integers(1, 20_000_000)


@given(
    LAST,
    st.integers(2, 400),
    st.lists(st.sampled_from(["in", "out", "all", "earlier", "later", "show"]), max_size=30),
)
def test_any_keys_keep_the_lens_on_the_run(last: int, pixels: int, keys: list[str]) -> None:
    now = WHOLE
    for i, key in enumerate(keys):
        match key:
            case "in":
                now = lens.zoomed(now, last, pixels, 1, 1 + (i * 7919) % last if i % 2 else None)
            case "out":
                now = lens.zoomed(now, last, pixels, -1)
            case "all":
                now = WHOLE
            case "earlier":
                now = lens.panned(now, last, pixels, 1)
            case "later":
                now = lens.panned(now, last, pixels, -1)
            case "show":
                at = 1 + (i * 104_729) % last
                now = lens.showing(now, last, pixels, at)
                w = lens.window_of(now, last, pixels)
                assert w.start < at <= w.end
        w = lens.window_of(now, last, pixels)
        assert w.start < last
        assert now == WHOLE or (now.span is not None and now.span < last)


def test_a_window_that_was_panned_stands_still_while_the_run_grows() -> None:
    now = lens.panned(lens.zoomed(WHOLE, 10_000, 150, 1), 10_000, 150, 1)
    before = lens.window_of(now, 10_000, 150)
    assert {lens.window_of(now, last, 150) for last in range(10_000, 30_000, 77)} == {before}
    following = lens.zoomed(WHOLE, 10_000, 150, 1)
    assert lens.window_of(following, 20_000, 150) != lens.window_of(following, 10_000, 150)


def test_panned_back_to_the_newest_it_follows_again() -> None:
    now = lens.panned(Lens(1000), 10_000, 150, 2)
    assert now.end is not None
    for _ in range(4):
        now = lens.panned(now, 10_000, 150, -1)
    assert now == Lens(1000)


@given(LAST.filter(lambda n: n > 2000), st.data())
def test_zooming_keeps_the_cursor_where_it_is(last: int, data: Any) -> None:
    at = data.draw(st.integers(1, last))
    now = lens.around(last, at)
    w = lens.window_of(now, last, 150)
    assert w.start < at <= w.end
    for _ in range(5):
        now = lens.zoomed(now, last, 150, 1, at)
        w = lens.window_of(now, last, 150)
        assert w.start < at <= w.end


def reduced(step: Any, loss: Any, ema: Any) -> Any:
    return lambda w: decimate.buckets(step, loss, ema, w)


@pytest.mark.parametrize("span", [None, 300, 40])
def test_kept_buckets_are_those_of_the_whole(span: int | None) -> None:
    """Grown by any number of steps, cut back, gone other ways: always as if made anew; and when grown, from the end."""
    rng = np.random.default_rng(3)
    kept, made = decimate.Kept(), []
    step = np.arange(1, 4001, dtype=np.int32)
    loss = rng.normal(3, 0.3, 4000).astype(np.float32)
    t = np.arange(4000) * 1.0
    n = 1
    for turn in range(120):
        n = min(4000, n + int(rng.integers(0, 60)))
        if turn % 17 == 16:  # a rollback, and the steps trained again
            n = max(1, n - int(rng.integers(1, 50)))
            loss[n:] = rng.normal(2, 0.3, 4000 - n)
            t[n - 1 :] += 1e6
        ema = fold(loss[:n])
        w = decimate.window(n, 100, span)

        def reduce(part: decimate.Window, n: int = n, ema: Any = ema) -> decimate.Buckets:
            made.append(part.n)
            return decimate.buckets(step[:n], loss[:n], ema, part)

        found = kept.get(reduce, step[:n], [t[:n], ema], w, "same")
        whole = decimate.buckets(step[:n], loss[:n], ema, w)
        for name in ("low", "high", "line", "lost"):
            assert np.array_equal(getattr(found, name), getattr(whole, name), equal_nan=True), (turn, name)
    assert sum(m < 90 for m in made) > 20  # most drawings made a few buckets only


def test_the_clock_never_goes_back_and_counts_pauses() -> None:
    t = np.array([100.0, 101, 103, 5000, 4000, 5002, np.nan, 5003, 0.0])
    clock = axis.Clock()
    assert clock.column(t).tolist() == [1, 2, 4, 4901, 4901, 4903, 4903, 4904, 4904]
    piece = axis.Clock()
    for n in range(1, len(t) + 1):
        assert piece.column(t[:n]).tolist() == clock.column(t)[:n].tolist()
    assert axis.Clock().column(np.full(3, 1e300)).tolist() == [1, 1, 1]


@pytest.mark.parametrize("by", axis.X_AXES)
@given(last=LAST, zoom=st.none() | st.integers(8, 10**6), parts=st.integers(1, 16))
def test_ticks_lie_in_the_window_and_are_few(by: str, last: int, zoom: int | None, parts: int) -> None:
    w = decimate.window(last, 160, zoom)
    found = axis.ticks(by, w, parts, 8192)
    assert len(found) <= parts + 2
    assert all(w.start < x <= w.end for x, _ in found)
    assert [x for x, _ in found] == sorted({x for x, _ in found})
    assert all(len(label) <= 8 for _, label in found)


def test_hours_are_labelled_as_a_person_writes_them() -> None:
    day = decimate.window(86_400, 160)
    assert [label for _, label in axis.ticks("hours", day, 8, 1)] == ["0", "6h", "12h", "18h", "1d"]
    tokens = decimate.window(1000, 200)
    assert axis.ticks("tokens", tokens, 5, 8192)[0] == (244, "2M")


def test_held_out_points_are_weighted_as_the_training_loss_is_and_stay_what_they_are() -> None:
    h = Heldout()
    bpb: list[tuple[int, dict[str, float | None]]] = [
        (100, {"a": 1.0, "b": 2.0}),
        (200, {"a": 1.0, "b": None}),
    ]
    shares = {100: {"a": 0.25, "b": 0.75}}
    h.follow(bpb, {"a": 4.0, "b": 2.0}, lambda s: shares.get(s, {}))
    ln2 = float(np.log(2))
    assert [s for s, _ in h.points] == [100, 200]
    assert [x for _, x in h.points] == pytest.approx([ln2 * 4.0, ln2 * 4.0])
    before = h.points
    bpb.append((300, {"c": 1.0}))  # of an arm whose text is not known
    h.follow(bpb, {"a": 4.0, "b": 2.0}, lambda s: {"a": 1.0, "b": 9.0})
    assert h.points == before
    bpb[1:] = [(200, {"a": 0.5})]
    h.follow(bpb, {"a": 4.0, "b": 2.0}, lambda s: {"a": 1.0})
    assert h.points[1][1] == pytest.approx(ln2 * 2.0)
