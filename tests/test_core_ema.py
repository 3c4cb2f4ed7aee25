"""The one EMA: the same value however the column came in."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from andrea_tui.core.ema import Ema, fold

LOSS = st.lists(
    st.one_of(st.floats(0, 50, width=32), st.just(float("nan")), st.just(float("inf"))), max_size=60
)


@given(LOSS, st.lists(st.tuples(st.integers(0, 9), st.integers(1, 25)), max_size=12))
def test_followed_in_pieces_it_equals_the_whole_fold_bit_for_bit(
    values: list[float], pieces: list[tuple[int, int]]
) -> None:
    loss = np.array(values, np.float32)
    whole, ema, at = fold(loss), Ema(), 0
    for back, forward in [*pieces, (0, len(loss))]:
        first, end = max(0, at - back), min(len(loss), at + forward)
        ema.extend(loss[:end], first)
        at = end
    assert np.array_equal(ema.values, whole, equal_nan=True)


@settings(max_examples=10)
@given(st.integers(0, 2**32 - 1))
def test_kept_states_do_not_change_it(seed: int) -> None:
    rng = np.random.default_rng(seed)
    loss = rng.normal(3, 1, 9000).astype(np.float32)
    loss[rng.random(9000) < 0.01] = np.nan
    whole, ema = fold(loss), Ema()
    for first, end in ((0, 5000), (4097, 4096 + 10), (4106, 8192), (8192, 8200), (10, 9000)):
        ema.extend(loss[:end], first)
    assert np.array_equal(ema.values, whole, equal_nan=True)


def test_it_is_the_bias_corrected_mean_and_a_nan_never_ends_it() -> None:
    loss = np.array([np.nan, 4.0, 2.0, np.inf, 3.0], np.float32)
    raw = [0.01 * 4.0]
    raw.append(0.99 * raw[-1] + 0.01 * 2.0)
    raw.append(0.99 * raw[-1] + 0.01 * 3.0)
    e = fold(loss)
    assert np.isnan(e[0])
    assert np.allclose(
        e[1:], [4.0, raw[1] / (1 - 0.99**2), raw[1] / (1 - 0.99**2), raw[2] / (1 - 0.99**3)], rtol=1e-12
    )
    assert np.array_equal(fold(loss, 0.0)[1:], [4, 2, 2, 3])
