"""The recorded failure of the original, in synthetic arms: one repeats itself, one is noise, three teach.

Raw rewards of several hundred drowned the exploration bonus: whatever had the largest numbers was drawn for ever.
"""

import random
from collections import Counter
from collections.abc import Callable

import pytest

from engine.config import build
from engine.mix import kinds
from engine.mix.kinds import Seen, Ucb1
from engine.mix.mix import Mix
from engine.mix.projection import UNIT
from engine.rundir.records import LossLine

ARMS = ("noise", "repeats", "useful1", "useful2", "useful3")
FLOOR = 0.05
ROWS = 8


def loss(arm: str, pulls: int, rng: random.Random) -> float:
    """Training loss of a row, nats."""
    if arm == "noise":
        return rng.gauss(7.5, 0.8)  # never falls
    if arm == "repeats":
        return 0.1 + 4.0 * 0.98**pulls + abs(rng.gauss(0, 0.005))  # falls cheaply, then lies there
    return float(2.0 + 3.0 * (1 + pulls / 50) ** -0.3 + rng.gauss(0, 0.15))


def heldout(arm: str, pulls: int, rng: random.Random) -> float:
    """Bits per byte on held-out text, after so many rows of the arm."""
    if arm == "noise":
        return rng.gauss(3.0, 0.005)
    if arm == "repeats":
        return 2.0 + rng.gauss(0, 0.005)  # learnt by heart, which helps with no other text
    return float(1.0 + 2.0 * (1 + pulls / 50) ** -0.3 + rng.gauss(0, 0.005))


def live(kind: str, seed: int, steps: int = 1500) -> tuple[Mix, Counter[str]]:
    """A run; rows drawn in its last two thirds."""
    sets = [f"kind={kind}", "ucb1.focus=1", *(f'arms.{a}.builtin="repo-docs"' for a in ARMS)]
    sets += [f"arms.{a}.prior=1.0" for a in ARMS] + [f"arms.{a}.floor={FLOOR}" for a in ARMS]
    _, policy = build("andrea-tiny", sets)
    arms = {a: policy.arms[a] for a in ARMS}
    policy = type(policy)(name="t", kind=policy.kind, ucb1=policy.ucb1, heldout=policy.heldout, arms=arms)
    m = Mix(policy, dict.fromkeys(ARMS, 10**6), dict.fromkeys(ARMS, 10**9), seed)
    rng, drawn = random.Random(seed), Counter[str]()
    for step in range(1, steps + 1):
        rows = Counter(a for a, _ in m.draw(step, ROWS))
        rloss = {a: sum(loss(a, m.pulls[a] + i, rng) for i in range(n)) / n for a, n in rows.items()}
        bpb: dict[str, float | None] | None = (
            {a: heldout(a, m.pulls[a], rng) for a in ARMS} if step % 50 == 0 else None
        )
        m.take_line(LossLine(step=step, loss=1.0, rows=dict(rows), rloss=dict(rloss), bpb=bpb))
        if step > steps // 3:
            drawn += rows
    return m, drawn


def shares(drawn: Counter[str]) -> dict[str, float]:
    return {a: drawn[a] / drawn.total() for a in ARMS}


def raw(reward: Callable[[kinds.Learned, float], float]) -> Callable[[Ucb1, Seen], bool]:
    """The original's bandit: rewards as they come."""

    def take(self: Ucb1, seen: Seen) -> bool:
        for name in sorted(seen.rows):
            arm = self.arms[name]
            arm.rows += seen.rows[name]
            arm.reward += seen.rows[name] * reward(arm, seen.rloss[name])
            arm.seen += 1
            arm.mean = seen.rloss[name]
        return seen.step >= self.next_rank

    return take


@pytest.mark.parametrize("seed", range(3))
def test_ucb1_is_captured_by_no_arm(seed: int) -> None:
    _, drawn = live("ucb1", seed)
    s = shares(drawn)
    assert max(s.values()) < 0.4, s  # in focus all the time: 0.5
    assert s["noise"] < 0.25, s
    assert s["repeats"] < 0.25, s
    assert min(s.values()) >= FLOOR


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    ("reward", "captor"),
    [(lambda arm, x: 100 * x, "noise"), (lambda arm, x: -100 * x, "repeats")],
    ids=["high loss pays", "low loss pays"],
)
def test_control_raw_rewards_are_captured(
    reward: Callable[[kinds.Learned, float], float], captor: str, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Ucb1, "take", raw(reward))
    _, drawn = live("ucb1", seed)
    s = shares(drawn)
    assert s[captor] > 0.49, s
    assert min(s.values()) >= FLOOR - 0.01  # the floors hold even then


@pytest.mark.parametrize("seed", range(3))
def test_heldout_draws_what_teaches(seed: int) -> None:
    _, drawn = live("heldout", seed)
    s = shares(drawn)
    assert max(s["noise"], s["repeats"]) < 0.2 < min(s[a] for a in ARMS if a.startswith("useful")), s


def test_what_the_bandit_says_of_its_choice_is_what_it_does() -> None:
    m, _ = live("ucb1", 1)
    focus = [a for a in ARMS if m.why[a].startswith("in focus")]
    assert len(focus) == 1
    now = m.shares(m.step + 1)
    assert max(now, key=lambda a: now[a]) == focus[0]
    assert now[focus[0]] / UNIT == pytest.approx(0.5)
    assert m.step < m.kind.next_rank <= m.step + 42
