"""Projection, quota draw and the fold of the static mix."""

import math

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from engine.config import Policy, build
from engine.errors import BadInput
from engine.mix.mix import Mix
from engine.mix.projection import UNIT, project, quantise
from engine.rundir.history import History
from engine.rundir.records import LossLine

unit = st.floats(0.0, 1.0)


@settings(max_examples=500, deadline=None)
@given(st.lists(st.tuples(st.floats(1e-6, 1e6), unit, unit), min_size=1, max_size=16))
def test_projection_keeps_floors_caps_sum_and_the_ratios_of_the_free(
    cases: list[tuple[float, float, float]],
) -> None:
    q = [c[0] for c in cases]
    floor = [min(c[1], c[2]) / len(cases) for c in cases]
    cap = [min(1.0, max(c[1], c[2]) + 1 / len(cases)) for c in cases]
    assume(math.fsum(cap) >= 1)
    p = project(q, floor, cap)
    assert abs(math.fsum(p) - 1) < 1e-9
    assert all(f <= x <= c for f, x, c in zip(floor, p, cap, strict=True))
    free = [x / w for w, x, f, c in zip(q, p, floor, cap, strict=True) if f < x < c]
    assert all(math.isclose(a, free[0], rel_tol=1e-6) for a in free)
    assert sum(quantise(p)) == UNIT


def test_clip_and_renormalise_would_break_its_own_floor() -> None:
    """Control: why the projection is not the two lines that suggest themselves."""
    q, floor, cap = [0.9, 0.05, 0.05], [0.0, 0.3, 0.0], [1.0, 1.0, 1.0]
    clipped = [min(max(x, f), c) for x, f, c in zip(q, floor, cap, strict=True)]
    naive = [x / sum(clipped) for x in clipped]
    assert naive[1] < floor[1]
    assert project(q, floor, cap)[1] >= floor[1]


@pytest.mark.parametrize(("floor", "cap"), [([0.6, 0.6], [1.0, 1.0]), ([0.0, 0.0], [0.4, 0.4])])
def test_the_infeasible_is_refused_with_the_sums(floor: list[float], cap: list[float]) -> None:
    with pytest.raises(BadInput, match=r"the floors sum to [\d.]+, the caps to [\d.]+"):
        project([1.0, 1.0], floor, cap)


def mix(sets: list[str], rows_of_an_epoch: int = 10**9) -> Mix:
    _, policy = build("andrea-tiny", sets)
    return Mix(policy, dict.fromkeys(policy.arms, 10**6), dict.fromkeys(policy.arms, rows_of_an_epoch))


def test_counts_stay_within_two_rows_of_the_shares() -> None:
    m = mix([])
    shares = {a: s / UNIT for a, s in m.shares(1).items()}
    for step in range(1, 2001):
        m.draw(step, 8)
        assert all(abs(m.pulls[a] - shares[a] * 8 * step) < 2 for a in shares)


def history_of(m: Mix, steps: int, phase_at: int = 0) -> History:
    lines = []
    for step in range(1, steps + 1):
        counts: dict[str, int] = {}
        for arm, _ in m.draw(step, 8):
            counts[arm] = counts.get(arm, 0) + 1
        lines.append(LossLine(step=step, loss=1.0, rows=counts, phase=int(phase_at > 0 and step > phase_at)))
    h = History()
    h.extend(lines)
    return h


SETS = [
    [],
    ["warmup_steps=13", 'warmup_arms=["repo-docs","python-topics"]'],
    ["free_epochs=1", "arms.repo-docs.floor=0.3"],
]


@pytest.mark.parametrize("sets", SETS)
@pytest.mark.parametrize("at", [0, 1, 12, 13, 14, 57, 120])
def test_the_fold_of_the_log_is_the_live_state(sets: list[str], at: int) -> None:
    """Also across the end of the warm-up and of epochs, where the shares change."""
    h = history_of(mix(sets, 37), 120)
    live, folded = mix(sets, 37), mix(sets, 37)
    for step in range(1, at + 1):
        live.draw(step, 8)
    folded.fold(h, at, 0)
    assert (folded.pulls, folded.credit) == (live.pulls, live.credit)
    assert [folded.draw(at + 1, 8), folded.draw(at + 2, 8)] == [live.draw(at + 1, 8), live.draw(at + 2, 8)]


def test_pulls_run_through_a_pivot_and_credit_begins_again() -> None:
    first = mix([])
    h = history_of(first, 50)
    second = mix(["arms.repo-docs.floor=0.5"])
    second.fold(h, 50, 1)
    assert second.pulls == first.pulls
    assert set(second.credit.values()) == {0}


def test_a_damaged_history_is_no_base_for_a_fold() -> None:
    h = History()
    h.extend([LossLine(step=1, loss=1.0), LossLine(step=3, loss=1.0)])
    with pytest.raises(BadInput, match="not complete"):
        mix([]).fold(h, 3, 0)


def test_warm_up_draws_only_its_arms() -> None:
    m = mix(["warmup_steps=5", 'warmup_arms=["repo-docs"]'])
    assert {a for step in range(1, 6) for a, _ in m.draw(step, 8)} == {"repo-docs"}
    assert len({a for a, _ in m.draw(6, 8)}) > 1


def test_an_arm_at_max_epochs_is_shut_and_the_last_one_ends_the_run() -> None:
    m = mix(["max_epochs=1", "arms.python-source.cap=1.0"], rows_of_an_epoch=16)
    drawn = [x for step in range(1, 4 * 16 + 1) for x in m.draw(step, 1)]
    assert len(set(drawn)) == 4 * 16
    with pytest.raises(BadInput, match="read max_epochs = 1 times: python-source, python-topics, repo-docs"):
        m.draw(4 * 16 + 1, 1)


def test_the_epoch_penalty_halves_the_wish() -> None:
    _, policy = build("andrea-tiny", ["free_epochs=1", "arms.repo-docstrings.floor=0", "arms.python-topics.floor=0",
                                      "arms.python-source.cap=1.0"])  # fmt: skip
    sizes = dict.fromkeys(policy.arms, 10**6)
    m = Mix(policy, sizes, dict.fromkeys(policy.arms, 100), pulls={"repo-docs": 250})
    s = m.shares(1)
    assert s["repo-docs"] / s["python-source"] == pytest.approx(0.5)


def test_policy_type_is_what_the_mix_takes() -> None:
    assert isinstance(mix([]).policy, Policy)
