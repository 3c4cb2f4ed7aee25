"""The three kinds of policy: what each wishes for, learned from the logged lines alone.

A kind remembers something per arm and turns it into a wish q (any unit) when it ranks the arms anew. Only logged
numbers go in, as float32, so that a fold of the log ends where the live run stands, bit for bit.
"""

import hashlib
import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from msgspec import Struct

from engine.config import HeldoutConfig, Policy, Ucb1Config

LEAST_SPREAD = 0.01  # nats; an arm whose loss hardly moves must not earn full rewards for nothing
Wish = dict[str, float]


class Learned(Struct, kw_only=True):
    """What a kind knows of one arm. Each kind uses its own fields; they stand so in `.state.json`."""

    rows: int = 0  # drawn in this phase (ucb1), or since the last evaluation (heldout)
    reward: float = 0.0  # ucb1: sum over rows, each in −1 … 1
    seen: int = 0  # ucb1: rows with a loss
    mean: float = 0.0  # ucb1: running mean of the arm's row loss, nats
    var: float = 0.0  # ucb1: running variance of one row's loss
    bpb: float | None = None  # heldout: at the last evaluation
    progress: float | None = None  # heldout: running mean of bits per byte gained per square root of a row


@dataclass(frozen=True)
class Seen:
    """One logged step, its floats being float32. `open`: the arms that may be drawn in the next step."""

    step: int
    rows: Mapping[str, int]
    rloss: Mapping[str, float]
    bpb: Mapping[str, float] | None
    open: Collection[str]


class Kind(Protocol):
    """`arms` and `next_rank` are all of its state."""

    arms: dict[str, Learned]
    next_rank: int  # step after which it ranks anew; 0: not planned by steps

    def take(self, seen: Seen) -> bool:
        """Learn from a line; whether the arms are to be ranked anew after it."""
        ...

    def rank(self, step: int, prior: Wish, open_arms: Collection[str]) -> tuple[Wish, dict[str, str]]:
        """(wish, why) per open arm, after `step`."""
        ...


def make(policy: Policy, arms: Collection[str], seed: int, first: int) -> Kind:
    """A fresh one for a phase whose first step is `first`."""
    learned = {a: Learned() for a in sorted(arms)}
    if policy.kind == "ucb1":
        return Ucb1(policy.ucb1, learned, seed, first - 1 + policy.ucb1.rerank * die(seed, first - 1))
    if policy.kind == "heldout":
        return Heldout(policy.heldout, learned)
    return Static(learned)


@dataclass
class Static:
    """The prior, for ever."""

    arms: dict[str, Learned]
    next_rank: int = 0

    def take(self, seen: Seen) -> bool:
        return False

    def rank(self, step: int, prior: Wish, open_arms: Collection[str]) -> tuple[Wish, dict[str, str]]:
        return {a: prior[a] for a in open_arms}, dict.fromkeys(open_arms, "prior")


@dataclass
class Ucb1:
    """UCB1 (Auer, Cesa-Bianchi, Fischer 2002) over normalised rewards; the best `focus` arms share `focus_share`.

    The reward of a step's arm: how far its mean row loss fell below the arm's own running mean, in units of its own
    spread, clipped to ±1. So neither a noisy arm nor one of high loss earns by being so.
    """

    c: Ucb1Config
    arms: dict[str, Learned]
    seed: int
    next_rank: int
    score: dict[str, float] = field(default_factory=dict)

    def take(self, seen: Seen) -> bool:
        for name in sorted(seen.rows):
            arm = self.arms[name]
            k, loss = seen.rows[name], seen.rloss.get(name)
            arm.rows += k
            if loss is None:
                continue
            if arm.seen >= self.c.least:
                spread = max(math.sqrt(arm.var), LEAST_SPREAD)
                arm.reward += k * min(max((arm.mean - loss) / spread, -1.0), 1.0)
            # A plain mean at first, then one that forgets. Both count rows, not steps, and the variance is that of
            # one row (a mean of k rows varies k times less): so an arm earns no more for being drawn more often.
            arm.seen += k
            a = max(k / arm.seen, min(1.0, k / self.c.window))
            delta = loss - arm.mean
            arm.mean += a * delta
            arm.var = (1.0 - a) * (arm.var + a * k * delta * delta)
        return seen.step >= self.next_rank

    def rank(self, step: int, prior: Wish, open_arms: Collection[str]) -> tuple[Wish, dict[str, str]]:
        if step >= self.next_rank:
            self.next_rank = step + self.c.rerank * die(self.seed, step)
        total = sum(self.arms[a].rows for a in open_arms)
        score, why = {}, {}
        for name in open_arms:
            arm = self.arms[name]
            if arm.rows == 0:
                score[name], why[name] = math.inf, "not drawn yet"
                continue
            reward = arm.reward / arm.rows
            bonus = self.c.c * math.sqrt(math.log(total) / arm.rows)
            score[name], why[name] = reward + bonus, f"reward {reward:+.3f} + bonus {bonus:.3f}"
        order = sorted(open_arms, key=lambda a: (-score[a], a))
        focus, rest = order[: self.c.focus], order[self.c.focus :]
        for place, name in enumerate(order, 1):
            why[name] = f"{'in focus' if name in focus else f'rank {place}'}: {why[name]}"
        share = self.c.focus_share if rest else 1.0
        others = math.fsum(prior[a] for a in rest)
        wish = {a: share / len(focus) for a in focus}
        return wish | {a: (1.0 - share) * prior[a] / others for a in rest}, why


@dataclass
class Heldout:
    """Progress on held-out text: rewards learning, not noise (which never falls) or repetition (which does not help).

    Progress is bits per byte gained between two evaluations per square root of the rows read between them.
    """

    c: HeldoutConfig
    arms: dict[str, Learned]
    next_rank: int = 0

    def take(self, seen: Seen) -> bool:
        # The evaluation precedes the step's update: its rows belong to the next stretch.
        for name, bpb in sorted((seen.bpb or {}).items()):
            arm = self.arms.get(name)
            if arm is None:
                continue
            if arm.bpb is not None and arm.rows > 0:
                gained = (arm.bpb - bpb) / math.sqrt(arm.rows)
                d = self.c.decay
                arm.progress = gained if arm.progress is None else d * arm.progress + (1.0 - d) * gained
            if arm.bpb is None or arm.rows > 0:  # what others taught an arm is not its own progress
                arm.bpb, arm.rows = bpb, 0
        for name, n in seen.rows.items():
            self.arms[name].rows += n
        return seen.bpb is not None

    def rank(self, step: int, prior: Wish, open_arms: Collection[str]) -> tuple[Wish, dict[str, str]]:
        progress = {a: self.arms[a].progress for a in sorted(open_arms)}
        known = [max(p, 0.0) for p in progress.values() if p is not None]
        mean = math.fsum(known) / len(known) if known else 0.0
        pull, why = {}, {}
        for name, p in progress.items():
            ratio = 1.0 if p is None or mean <= 0.0 else min(max(p / mean, 1.0 / self.c.span), self.c.span)
            pull[name] = prior[name] * ratio**self.c.power
            why[name] = "no progress measured yet" if p is None else f"progress {ratio:.2f} x the mean"
        total = math.fsum(pull.values())
        alike = self.c.explore / len(progress)
        return {a: (1.0 - self.c.explore) * x / total + alike for a, x in pull.items()}, why


def die(seed: int, step: int) -> int:
    """1 … 6, a hash of (seed, step)."""
    digest = hashlib.blake2b(f"{seed}\0{step}".encode(), digest_size=8, person=b"re-rank").digest()
    return 1 + int.from_bytes(digest, "little") % 6
