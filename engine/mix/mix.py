"""Which arms the rows of a step come from: a wish q, projected into the bounds, drawn by quota.

The state after a step is a function of the logged lines: `take` is the one place that changes it, in the live run
and in the fold of a resume alike. Shares and credits are integers, so they are exact in any order.
"""

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

import numpy as np

from engine.config import Policy
from engine.errors import BadInput
from engine.mix import kinds
from engine.mix.kinds import Seen
from engine.mix.projection import UNIT, project, quantise
from engine.rundir.history import History
from engine.rundir.records import LossLine

if TYPE_CHECKING:
    from engine.data.rows import Rows  # with the tokenizers' library, which the cockpit must not wait for

PRIOR_EXPONENT = 0.7  # prior of an arm by its size: tokens^0.7, between uniform (0) and proportional (1)


class Mix:
    """The mix of one phase. `pulls` run over the whole run, all else over the phase."""

    def __init__(self, policy: Policy, tokens: dict[str, int], n_rows: dict[str, int], seed: int = 0) -> None:
        """`tokens`: arm -> training tokens; `n_rows`: arm -> rows of one epoch."""
        self.policy, self.n_rows, self.seed = policy, n_rows, seed
        self.arms = sorted(policy.arms)
        self.prior = {a: policy.arms[a].prior or float(tokens[a]) ** PRIOR_EXPONENT for a in self.arms}
        self.pulls = dict.fromkeys(self.arms, 0)  # arm -> rows drawn since step 0
        self.begin(1)

    def begin(self, first: int) -> None:
        """A fresh phase whose first step is `first`. The pulls stay."""
        self.first, self.step = first, first - 1
        self.drawn = dict.fromkeys(self.arms, 0)  # arm -> rows drawn in this phase
        self.credit = dict.fromkeys(self.arms, 0)  # arm -> owed rows, in 1/UNIT
        self.kind = kinds.make(self.policy, self.arms, self.seed, first)
        self.wish = dict(self.prior)
        self.why = dict.fromkeys(self.arms, "prior")
        self._cached: tuple[object, dict[str, int]] | None = None

    def shares(self, step: int) -> dict[str, int]:
        """arm -> share in 1/UNIT for this step (1-based). Raises BadInput where no mix is possible any more."""
        epochs = tuple(self.pulls[a] // self.n_rows[a] for a in self.arms)
        key = (step <= self.policy.warmup_steps, epochs)
        if self._cached is None or self._cached[0] != key:
            self._cached = (key, self._shares(step))
        return self._cached[1]

    def draw(self, step: int, rows: int) -> list[tuple[str, int]]:
        """The step's rows as (arm, which pull of that arm), in order. Changes nothing: `take` does, from the line.

        Quota draw: every arm earns its share, the arm with the largest credit pays one row (ties by name). No
        random number; the counts stay close to what the shares promise at any moment.
        """
        shares, credit, pulls = self.shares(step), dict(self.credit), dict(self.pulls)
        out = []
        for _ in range(rows):
            for arm in self.arms:
                credit[arm] += shares[arm]
            arm = max(self.arms, key=lambda a: credit[a])  # the first of equals: the arms are sorted
            credit[arm] -= UNIT
            out.append((arm, pulls[arm]))
            pulls[arm] += 1
        return out

    def take_line(self, line: LossLine) -> list[str]:
        """Take a line as it was logged; what there is to tell a person (an arm that is exhausted)."""
        before = self.exhausted()
        rloss = {a: float(np.float32(x)) for a, x in line.rloss.items() if x is not None}
        self.take(line.step, line.rows, rloss, _float32(line.bpb))
        return [
            f"{a}: read max_epochs = {self.policy.max_epochs} times, it is drawn no more"
            for a in sorted(self.exhausted() - before)
        ]

    def take(
        self, step: int, rows: Mapping[str, int], rloss: Mapping[str, float], bpb: Mapping[str, float] | None
    ) -> None:
        """The state after `step`, from the state before it and what its line says."""
        shares, n = self.shares(step), sum(rows.values())
        was_open = self.open(step)
        for arm in self.arms:
            self.credit[arm] += n * shares[arm]
        for arm, k in rows.items():
            self.credit[arm] -= k * UNIT
            self.pulls[arm] += k
            self.drawn[arm] += k
        self.step = step
        now_open = self.open(step + 1)
        anew = self.kind.take(Seen(step, rows, rloss, bpb, now_open))
        if now_open and (anew or now_open != was_open):
            wish, why = self.kind.rank(step, self.prior, now_open)
            shut = {a: "not in the warm-up" for a in self.arms} | {
                a: "read max_epochs times" for a in self.exhausted()
            }
            self.wish = dict.fromkeys(self.arms, 0.0) | wish
            self.why = shut | why
            self._cached = None

    def fold(self, history: History, upto: int, phase: int) -> None:
        """Become the state after step `upto`, from the canonical lines alone."""
        start = self.count(history, upto, phase)
        self.begin(start + 1)
        counts = {a: history.rows(a)[start:upto].tolist() for a in history.arms}
        losses = {a: history.rloss(a)[start:upto].tolist() for a in history.arms}
        bpb = {step: values for step, values in history.bpb if start < step <= upto}
        for i in range(upto - start):
            rows = {a: k for a, c in counts.items() if (k := c[i])}
            rloss = {a: x for a in rows if (x := losses[a][i]) == x}  # not NaN
            self.take(start + 1 + i, rows, rloss, _float32(bpb.get(start + 1 + i)))

    def count(self, history: History, upto: int, phase: int) -> int:
        """Set `pulls` to those before the phase; returns how many steps these are. Raises BadInput on a gap."""
        end = history.index(upto)
        if upto and (end is None or history.step[0] != 1 or end + 1 != upto):
            raise BadInput(
                f".loss.json: its lines up to step {upto} are not complete; which rows were read is unknown"
            )
        start = int(np.searchsorted(history.phase[:upto], phase))  # phases only ever grow
        known = [a for a in self.arms if a in history.arms]
        self.pulls = dict.fromkeys(self.arms, 0) | {a: history.drawn(a, start) for a in known}
        return start

    def open(self, step: int) -> frozenset[str]:
        """The arms that may be drawn at this step."""
        warm = step <= self.policy.warmup_steps
        arms = self.policy.warmup_arms if warm else self.arms
        return frozenset(arms) - self.exhausted()

    def exhausted(self) -> frozenset[str]:
        most = self.policy.max_epochs
        return frozenset(a for a in self.arms if 0 < most * self.n_rows[a] <= self.pulls[a])

    def bounds(self, arm: str, open_arms: Collection[str]) -> tuple[float, float]:
        """Effective (floor, cap)."""
        a = self.policy.arms[arm]
        return (a.floor, a.cap) if arm in open_arms else (0.0, 0.0)

    def _shares(self, step: int) -> dict[str, int]:
        p, open_arms = self.policy, self.open(step)
        wish = [
            self.wish[a] * 0.5 ** max(0, self.pulls[a] // self.n_rows[a] - p.free_epochs) for a in self.arms
        ]
        bounds = [self.bounds(a, open_arms) for a in self.arms]
        try:
            shares = project(wish, [b[0] for b in bounds], [b[1] for b in bounds])
        except BadInput as e:
            done = sorted(self.exhausted())
            why = f"; read max_epochs = {p.max_epochs} times: {', '.join(done)}" if done else ""
            raise BadInput(f"policy.toml: {e}{why}; pivot to other caps or more text") from None
        return dict(zip(self.arms, quantise(shares), strict=True))

    def text(self, step: int) -> str:
        """The shares of this step for a person: `chat 40 % · docs 60 %`."""
        return " · ".join(f"{a} {s / UNIT:.0%}" for a, s in self.shares(step).items())

    def outlook(self, step: int, rows: int) -> dict[str, int]:
        """arm -> about which step `max_epochs` will have exhausted it, at the shares of this step."""
        most, shares = self.policy.max_epochs, self.shares(step)
        left = {a: most * self.n_rows[a] - self.pulls[a] for a in self.arms if most}
        return {
            a: step - 1 + round(n * UNIT / (rows * shares[a]))
            for a, n in left.items()
            if n > 0 and shares[a] > 0
        }


def mix_of(policy: Policy, rows: "Rows") -> Mix:
    """The mix of a run's data, at step 0."""
    arms = policy.arms
    return Mix(policy, {a: rows.n_tokens(a) for a in arms}, {a: rows.n_rows(a) for a in arms}, rows.seed)


def _float32(values: Mapping[str, float | None] | None) -> dict[str, float] | None:
    """Exactly the float32 that the decimals stand for; whoever computes from logged numbers computes from these."""
    if values is None:
        return None
    return {a: float(np.float32(x)) for a, x in values.items() if x is not None}
