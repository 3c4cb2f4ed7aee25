"""Columns: nothing is hidden, nothing moves, the EMA is the same at every zoom."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from andrea_tui.core import decimate, raster
from andrea_tui.core.ema import fold


@given(
    st.integers(1, 3_000_000), st.integers(1, 400), st.none() | st.integers(1, 10**6), st.none() | st.integers(1, 10**6)
)  # fmt: skip
def test_a_window_holds_the_end_and_has_the_pixels(
    last: int, pixels: int, span: int | None, end: int | None
) -> None:
    w = decimate.window(last, pixels, span, end)
    assert 1 <= w.n * w.stretch <= pixels
    assert w.first >= 0
    if span is None:
        assert w.start == 0
        assert last <= w.end
    elif end is None:
        assert w.start < last <= w.end
    else:
        assert w.start < end <= w.end


@pytest.mark.parametrize("width", [1, 2, 7, 80, 200, 400])
@pytest.mark.parametrize("spike", [1, 2, 777, 49_999, 50_000])
def test_a_spike_of_one_step_shows_at_every_width_and_does_not_flatten(width: int, spike: int) -> None:
    step = np.arange(1, 50_001, dtype=np.int32)
    loss = (2 + np.sin(step / 50) / 10).astype(np.float32)
    loss[spike - 1] = 4000
    for span in (None, 25_000) if spike > 30_000 else (None,):
        w = decimate.window(50_000, width, span)
        b = decimate.buckets(step, loss, fold(loss), w)
        assert np.nanmax(b.high) == 4000
        assert int(np.nanargmax(b.high)) == w.x(spike) // w.stretch
    found = decimate.robust_range(loss)
    assert found is not None
    assert found[1] < 2.2


def test_a_lost_step_is_a_mark_in_its_bucket() -> None:
    step = np.arange(1, 1001, dtype=np.int32)
    loss = np.full(1000, 2.0, np.float32)
    loss[500] = np.nan
    for width in (1, 10, 333, 2000):
        w = decimate.window(1000, width)
        b = decimate.buckets(step, loss, fold(loss), w)
        assert np.flatnonzero(b.lost).tolist() == [w.x(501) // w.stretch]
        assert np.isfinite(b.line[~np.isnan(b.high)]).all()


def test_old_columns_stand_still_while_steps_are_added() -> None:
    rng = np.random.default_rng(0)
    loss = rng.normal(3, 0.1, 3000).astype(np.float32)
    step, ema = np.arange(1, 3001, dtype=np.int32), fold(loss)
    changes, before = 0, None
    for n in range(1000, 3000):
        w = decimate.window(n, 200)
        b = decimate.buckets(step[:n], loss[:n], ema[:n], w)
        if before is not None and before[0] == w:
            whole = (n - 2) // w.size  # buckets that were full before
            assert np.array_equal(before[1].high[:whole], b.high[:whole], equal_nan=True)
            assert np.array_equal(before[1].line[:whole], b.line[:whole], equal_nan=True)
        elif before is not None:
            changes += 1
        before = (w, b)
    assert changes <= 5


def test_the_ema_of_a_step_is_the_same_at_every_zoom() -> None:
    loss = np.random.default_rng(1).normal(3, 1, 5000).astype(np.float32)
    step, ema = np.arange(1, 5001, dtype=np.int32), fold(loss)
    for span in (None, 2500, 1250, 300, 80, 20, 8):
        w = decimate.window(5000, 150, span)
        b = decimate.buckets(step, loss, ema, w)
        for k in np.flatnonzero(np.isfinite(b.line)).tolist():
            last = min((w.first + k + 1) * w.size, 5000)
            assert b.line[k] == ema[last - 1]


def test_steps_that_are_missing_leave_their_buckets_empty() -> None:
    step = np.array([1, 2, 3, 901, 902], np.int32)
    loss = np.arange(5, dtype=np.float32)
    w = decimate.window(902, 100)
    b = decimate.buckets(step, loss, fold(loss), w)
    assert np.isfinite(b.high).sum() == 2
    assert (b.low[0], b.high[0]) == (0, 2)


@given(st.floats(-1e9, 1e9), st.floats(0, 1e9))
def test_ticks_lie_inside(low: float, span: float) -> None:
    a, b = decimate.nice_range(low, low + span, 5)
    assert a <= low
    assert b >= low + span
    assert b > a
    found = decimate.ticks(a, b, 5)
    assert len(found) <= 7


def test_raster_draws_outliers_on_the_edge_and_gaps_for_nan() -> None:
    top, bottom = np.array([-5.0, np.nan, 3.0]), np.array([1.0, np.nan, 99.0])
    dots = raster.spans(top, bottom, 8, 4)
    assert dots[:, 0].tolist() == [True, True] + [False] * 6
    assert not dots[:, 1].any()
    assert dots[:, 2].tolist() == [False] * 3 + [True] * 5
    assert raster.codes(dots).shape == (2, 2)
    line = raster.line(np.array([0.0, 7.0, np.nan, 2.0]), 8, 4)
    assert line.any(axis=0).tolist() == [True, True, False, True]
    assert line[:, 1].sum() == 7  # joined
