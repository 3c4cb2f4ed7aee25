"""Projection, quota draw, and the state of each kind as a fold of the log."""

import math
import random

import msgspec
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from engine.config import build
from engine.errors import BadInput
from engine.mix.mix import Mix
from engine.mix.projection import UNIT, project, quantise
from engine.mix.state import Lines, State, fits, restore, state_of
from engine.mix.state import encode as encode_state
from engine.rundir.history import History
from engine.rundir.lines import LineDecoder
from engine.rundir.records import LossLine, encode

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


def mix(sets: list[str], rows_of_an_epoch: int = 10**9, seed: int = 1) -> Mix:
    _, policy = build("andrea-tiny", ["kind=static", *sets])
    sizes = {a: 10**6 * (i + 1) for i, a in enumerate(policy.arms)}
    return Mix(policy, sizes, dict.fromkeys(policy.arms, rows_of_an_epoch), seed)


def step_of(m: Mix, step: int, phase: int = 0, rows: int = 8, every: int = 10) -> LossLine:
    """Draw a step, invent what it would log, take it in."""
    counts: dict[str, int] = {}
    for arm, _ in m.draw(step, rows):
        counts[arm] = counts.get(arm, 0) + 1
    rng = random.Random(f"{step}")  # the same losses in every life of the run
    line = LossLine(
        step=step, loss=1.0, rows=counts, phase=phase, rloss={a: rng.gauss(3, 0.1) if rng.random() < 0.95 else None
        for a in counts}, bpb={a: rng.gauss(2, 0.05) for a in m.arms} if step % every == 0 else None,
    )  # fmt: skip
    m.take_line(line)
    return line


def run(m: Mix, steps: int) -> History:
    h = History()
    h.extend([step_of(m, s) for s in range(m.step + 1, m.step + 1 + steps)])
    return h


def as_logged(h: History) -> History:
    """What a reader of the file has."""
    out = History()
    out.extend(LineDecoder(LossLine).feed(b"".join(encode(h.line(i)) for i in range(len(h)))))
    return out


def everything(m: Mix) -> dict[str, object]:
    return {k: v for k, v in vars(m).items() if k not in ("_cached", "kind")} | {
        "arms": m.kind.arms,
        "next": m.kind.next_rank,
        "shares": m.shares(m.step + 1),
    }


def test_counts_stay_within_two_rows_of_the_shares() -> None:
    m = mix([])
    shares = {a: s / UNIT for a, s in m.shares(1).items()}
    for step in range(1, 2001):
        step_of(m, step)
        assert all(abs(m.pulls[a] - shares[a] * 8 * step) < 2 for a in shares)


@settings(max_examples=30, deadline=None)
@given(st.lists(st.floats(0.001, 1.0), min_size=2, max_size=16), st.integers(1, 32), st.integers(0, 10**6))
def test_counts_stay_within_three_rows_of_shares_that_change(
    priors: list[float], rows: int, seed: int
) -> None:
    """The bound of a quota draw holds along changing shares too: 2.4 was the worst that an adversary found."""
    sets = [f'arms.a{i}.builtin="repo-docs"' for i in range(len(priors))]
    sets += [f"arms.a{i}.prior={x}" for i, x in enumerate(priors)]
    m = mix(["kind=ucb1", "ucb1.rerank=1", "ucb1.least=2", *sets], seed=seed)
    promised = dict.fromkeys(m.arms, 0.0)
    for step in range(1, 120):
        for a, s in m.shares(step).items():
            promised[a] += rows * s / UNIT
        step_of(m, step, rows=rows)
        assert all(abs(m.pulls[a] - promised[a]) < 3 for a in m.arms)


SETS = [
    [],
    ["warmup_steps=13", 'warmup_arms=["repo-docs","python-topics"]'],
    ["free_epochs=1", "arms.repo-docs.floor=0.3"],
    ["max_epochs=2"],
]
KINDS = ["static", "ucb1", "heldout"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("sets", SETS)
@pytest.mark.parametrize("at", [0, 1, 12, 13, 14, 57, 100])
def test_the_fold_of_the_log_is_the_live_state(kind: str, sets: list[str], at: int) -> None:
    """Also across the end of the warm-up, of epochs and of an arm, where the shares change."""
    sets = [f"kind={kind}", *sets]
    live = mix(sets, 137)
    h = run(live, at) if at else History()
    folded = mix(sets, 137)
    folded.fold(as_logged(h), at, 0)
    assert everything(folded) == everything(live)
    assert [step_of(folded, at + 1), step_of(folded, at + 2)] == [
        step_of(live, at + 1),
        step_of(live, at + 2),
    ]


@settings(max_examples=40, deadline=None)
@given(st.sampled_from(KINDS), st.integers(1, 120), st.integers(1, 120), st.integers(0, 1000))
def test_a_fold_in_two_parts_is_the_whole_fold(kind: str, first: int, second: int, seed: int) -> None:
    """Through `.state.json`, as a resume does it: the state of the first part, written and read, then the rest."""
    sets = [f"kind={kind}", "free_epochs=1", "max_epochs=3"]
    live = mix(sets, 300, seed)
    h = as_logged(run(live, first + second))
    half = mix(sets, 300, seed)
    half.fold(h, first, 0)
    written = encode_state(state_of(half, 0, 8, Lines(half.arms, 0).sha256(h, first), {}))
    again = mix(sets, 300, seed)
    again.begin(again.count(h, first, 0) + 1)
    read = msgspec.json.decode(written, type=State)
    assert fits(read, again, first, 0, Lines(again.arms, 0).sha256(h, first))
    restore(again, read)
    for i in range(first, first + second):
        again.take_line(h.line(i))
    assert everything(again) == everything(live)


def test_the_hash_of_the_lines_grows_in_any_pieces_and_sees_every_change() -> None:
    h = run(mix(["kind=ucb1"]), 50)
    arms = sorted(h.arms)
    grown = Lines(arms, 0)
    for upto in (0, 7, 7, 30, 50):
        digest = grown.sha256(h, upto)
    assert digest == Lines(arms, 0).sha256(as_logged(h), 50)
    seen = {digest, Lines(arms, 1).sha256(h, 50), Lines(arms, 0).sha256(h, 49)}
    for change in ({"rows": {arms[0]: 8}}, {"rloss": {arms[0]: 9.0}}, {"bpb": {arms[0]: 9.0}}):
        lines = [h.line(i) for i in range(50)]
        for key, value in change.items():
            setattr(lines[20], key, {**(getattr(lines[20], key) or {}), **value})
        other = History()
        other.extend(lines)
        seen.add(Lines(arms, 0).sha256(other, 50))
    assert len(seen) == 6


def test_a_state_of_another_step_policy_or_log_is_not_believed() -> None:
    m = mix(["kind=heldout"])
    h = run(m, 40)
    digest = Lines(m.arms, 0).sha256(h, 40)
    state = state_of(m, 0, 8, digest, {})
    assert fits(state, m, 40, 0, digest)
    assert not fits(state, m, 39, 0, digest)
    assert not fits(state, m, 40, 1, digest)
    assert not fits(state, m, 40, 0, "x" + digest[1:])
    assert not fits(state, mix(["kind=heldout", "heldout.decay=0.6"]), 40, 0, digest)
    assert not fits(msgspec.structs.replace(state, fold=state.fold + 1), m, 40, 0, digest)


def test_every_kind_is_deterministic_and_hangs_on_the_seed_only_where_a_die_is_cast() -> None:
    for kind in KINDS:
        a, b, c = (mix([f"kind={kind}"], seed=s) for s in (1, 1, 2))
        for m in (a, b, c):
            run(m, 200)
        assert everything(a) == everything(b)
        assert (a.pulls == c.pulls) == (kind != "ucb1")


def test_pulls_run_through_a_pivot_and_the_bandit_begins_again() -> None:
    first = mix(["kind=ucb1"])
    h = run(first, 50)
    second = mix(["kind=ucb1", "arms.repo-docs.floor=0.5"])
    second.fold(h, 50, 1)
    assert second.pulls == first.pulls
    assert set(second.credit.values()) == {0}
    assert {x.rows for x in second.kind.arms.values()} == {0}
    assert second.first == 51


def test_a_damaged_history_is_no_base_for_a_fold() -> None:
    h = History()
    h.extend([LossLine(step=1, loss=1.0), LossLine(step=3, loss=1.0)])
    with pytest.raises(BadInput, match="not complete"):
        mix([]).fold(h, 3, 0)


def test_warm_up_draws_only_its_arms() -> None:
    m = mix(["warmup_steps=5", 'warmup_arms=["repo-docs"]'])
    assert {a for step in range(1, 6) for a in step_of(m, step).rows} == {"repo-docs"}
    assert len(step_of(m, 6).rows) > 1


def test_an_arm_at_max_epochs_is_shut_said_and_the_last_one_ends_the_run() -> None:
    m = mix(["max_epochs=1", "arms.python-source.cap=1.0"], rows_of_an_epoch=16)
    drawn, told = [], []
    for step in range(1, 4 * 16 + 1):
        ((arm, pull),) = m.draw(step, 1)
        drawn.append((arm, pull))
        told += m.take_line(LossLine(step=step, loss=1.0, rows={arm: 1}, rloss={arm: 1.0}))
    assert len(set(drawn)) == 4 * 16
    assert sorted(x.partition(":")[0] for x in told) == m.arms
    with pytest.raises(BadInput, match="read max_epochs = 1 times: python-source, python-topics, repo-docs"):
        m.draw(4 * 16 + 1, 1)


def test_exhaustion_is_foreseen() -> None:
    m = mix(["max_epochs=2", "arms.repo-docs.cap=0.2", "arms.repo-docs.floor=0.2"])
    m.n_rows["repo-docs"] = 100
    foreseen = m.outlook(1, 8)["repo-docs"]
    assert foreseen == 125  # 200 rows at a fifth of 8 a step
    step = 0
    while "repo-docs" not in m.exhausted():
        step += 1
        step_of(m, step)
    assert step == pytest.approx(foreseen, abs=2)


def test_the_epoch_penalty_halves_the_wish() -> None:
    _, policy = build("andrea-tiny", ["kind=static", "free_epochs=1",
                                      "arms.repo-docstrings.floor=0", "arms.python-topics.floor=0",
                                      "arms.python-source.cap=1.0"])  # fmt: skip
    sizes = dict.fromkeys(policy.arms, 10**6)
    m = Mix(policy, sizes, dict.fromkeys(policy.arms, 100))
    m.pulls["repo-docs"] = 250
    s = m.shares(1)
    assert s["repo-docs"] / s["python-source"] == pytest.approx(0.5)
