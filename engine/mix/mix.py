"""Which arms the rows of a step come from: a wish q, projected into the bounds, drawn by quota.

Everything is integer arithmetic on counts, so the state after any step is an exact function of the logged rows:
a resume folds the canonical history and stands where the live run stood, bit for bit.
"""

from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from engine.config import Policy
from engine.errors import BadInput
from engine.mix.projection import UNIT, project, quantise
from engine.rundir.history import History

PRIOR_EXPONENT = 0.7  # prior of an arm by its size: tokens^0.7, between uniform (0) and proportional (1)


@dataclass
class Mix:
    """The mix of one phase. `pulls` run over the whole run, `credit` over the phase."""

    policy: Policy
    tokens: dict[str, int]  # arm -> training tokens
    n_rows: dict[str, int]  # arm -> rows of one epoch
    pulls: dict[str, int] = field(default_factory=dict)  # arm -> rows drawn since step 0
    credit: dict[str, int] = field(default_factory=dict)  # arm -> owed rows, in 1/UNIT
    _cached: tuple[object, dict[str, int]] | None = None

    def __post_init__(self) -> None:
        self.arms = sorted(self.policy.arms)
        for arm in self.arms:
            self.pulls.setdefault(arm, 0)
            self.credit.setdefault(arm, 0)

    def shares(self, step: int) -> dict[str, int]:
        """arm -> share in 1/UNIT for this step (1-based). Raises BadInput where no mix is possible any more."""
        epochs = {a: self.pulls[a] // self.n_rows[a] for a in self.arms}
        warm = step <= self.policy.warmup_steps
        key = (warm, tuple(epochs.values()))
        if self._cached is None or self._cached[0] != key:
            self._cached = (key, self._shares(warm, epochs))
        return self._cached[1]

    def draw(self, step: int, rows: int) -> list[tuple[str, int]]:
        """The step's rows as (arm, which pull of that arm), in order. Changes pulls and credit.

        Quota draw: every arm earns its share, the arm with the largest credit pays one row (ties by name). No
        random number; the counts stay close to what the shares promise at any moment.
        """
        shares = self.shares(step)
        out = []
        for _ in range(rows):
            for arm in self.arms:
                self.credit[arm] += shares[arm]
            arm = max(self.arms, key=lambda a: self.credit[a])  # the first of equals: the arms are sorted
            self.credit[arm] -= UNIT
            out.append((arm, self.pulls[arm]))
            self.pulls[arm] += 1
        return out

    def fold(self, history: History, upto: int, phase: int) -> None:
        """Become the state after step `upto`, from the canonical lines alone."""
        end = history.index(upto)
        if upto and (end is None or history.step[0] != 1 or end + 1 != upto):
            raise BadInput(
                f".loss.json: its lines up to step {upto} are not complete; which rows were read is unknown"
            )
        start = int(np.searchsorted(history.phase[:upto], phase))  # phases only ever grow
        n = upto - start
        drawn = {a: history.rows(a)[:upto].astype(np.int64) for a in self.arms if a in history.arms}
        drawn |= {a: np.zeros(upto, np.int64) for a in self.arms if a not in drawn}
        # pulls[a][i]: rows of the arm drawn before the phase's i-th step, i = 0 … n
        pulls = {a: int(c[:start].sum()) + np.append(0, np.cumsum(c[start:])) for a, c in drawn.items()}
        # The shares change only where an arm ends an epoch or the warm-up ends; between, credit is a product.
        look = np.stack(
            [pulls[a][:n] // self.n_rows[a] for a in self.arms] + [self._warm(start + 1 + np.arange(n))]
        )
        cuts = [0, *(np.flatnonzero((look[:, 1:] != look[:, :-1]).any(axis=0)) + 1).tolist(), n]
        for lo, hi in pairwise(cuts):
            if lo == hi:
                continue
            self.pulls = {a: int(pulls[a][lo]) for a in self.arms}
            shares = self.shares(start + lo + 1)
            taken = {a: int(pulls[a][hi] - pulls[a][lo]) for a in self.arms}
            rows = sum(taken.values())
            for arm in self.arms:
                self.credit[arm] += rows * shares[arm] - UNIT * taken[arm]
        self.pulls = {a: int(pulls[a][n]) for a in self.arms}

    def _warm(self, step: NDArray[np.int64]) -> NDArray[np.int64]:
        return (step <= self.policy.warmup_steps).astype(np.int64)

    def _shares(self, warm: bool, epochs: dict[str, int]) -> dict[str, int]:
        p = self.policy
        wish, floor, cap = [], [], []
        for name in self.arms:
            arm = p.arms[name]
            prior = arm.prior or float(self.tokens[name]) ** PRIOR_EXPONENT
            wish.append(prior * 0.5 ** max(0, epochs[name] - p.free_epochs))
            shut = (warm and name not in p.warmup_arms) or (0 < p.max_epochs <= epochs[name])
            cap.append(0.0 if shut else arm.cap)
            floor.append(min(arm.floor, cap[-1]))
        try:
            shares = project(wish, floor, cap)
        except BadInput as e:
            done = [a for a in self.arms if 0 < p.max_epochs <= epochs[a]]
            why = f"; read max_epochs = {p.max_epochs} times: {', '.join(done)}" if done else ""
            raise BadInput(f"policy.toml: {e}{why}; pivot to other caps or more text") from None
        return dict(zip(self.arms, quantise(shares), strict=True))

    def text(self, step: int) -> str:
        """The shares of this step for a person: `chat 40 % · docs 60 %`."""
        return " · ".join(f"{a} {s / UNIT:.0%}" for a, s in self.shares(step).items())
