"""`.state.json`: the mix's state at a checkpoint, a cache of the fold that a resume would have to make, and what the
cockpit shows of the arms. It is believed only if step, policy, fold version and the hash of the folded lines agree.
"""

import hashlib
from bisect import bisect_left
from collections.abc import Sequence
from pathlib import Path

import msgspec
import numpy as np
from msgspec import Struct

from engine.config import Policy
from engine.mix.kinds import Learned
from engine.mix.mix import Mix
from engine.mix.projection import UNIT
from engine.rundir.files import read_file
from engine.rundir.history import History

SCHEMA = 1
FOLD = 1  # grows whenever the same lines would fold to another state


class ArmState(Struct, kw_only=True):
    """One arm. Shares are of all rows, 0 to 1; `share` is what it gets from the next step on."""

    pulls: int  # rows since step 0
    drawn: int  # rows in this phase
    credit: int  # rows owed, in 1/2^32
    wish: float  # q at the last ranking, any unit
    why: str
    learned: Learned
    # from here on: for the reader
    epochs: float
    share: float
    realised: float  # of the rows of this phase
    floor: float  # in force now: 0 where the arm is shut
    cap: float
    content_sha256: str = ""


class State(Struct, kw_only=True):
    schema: int
    fold: int
    phase: int
    first: int  # first step of the phase
    step: int
    policy: str
    policy_sha256: str
    kind: str
    lines_sha256: str  # of the phase's canonical lines up to step
    next_rank: int  # the step after which the arms are ranked anew; 0: at evaluations, or never
    exhausted_at: dict[str, int]  # arm -> about which step max_epochs will have shut it
    arms: dict[str, ArmState]


class Lines:
    """The hash of a phase's folded lines: per step and arm (by name) rows and row loss, and the evaluations.

    Grows with the history, so that a checkpoint hashes only what is new.
    """

    def __init__(self, arms: Sequence[str], start: int) -> None:
        """`start`: index of the phase's first line."""
        self._arms, self._next = sorted(arms), start
        self._steps = hashlib.sha256()
        self._bpb = hashlib.sha256()

    def sha256(self, history: History, upto: int) -> str:
        """Over the lines up to index `upto` (exclusive), which are never fewer than at the call before."""
        n = upto - self._next
        table = np.zeros((n, 1 + 2 * len(self._arms)), "<i4")
        table[:, 0] = history.step[self._next : upto]
        for k, arm in enumerate(self._arms):
            if arm in history.arms:
                table[:, 1 + 2 * k] = history.rows(arm)[self._next : upto]
                loss = history.rloss(arm)[self._next : upto].astype("<f4")
                loss[loss != loss] = np.nan  # one bit pattern for all
                table[:, 2 + 2 * k] = loss.view("<i4")
            else:
                table[:, 2 + 2 * k] = np.float32(np.nan).view("<i4")
        self._steps.update(table.tobytes())
        if n:
            first, last = int(history.step[self._next]), int(history.step[upto - 1])
            self._bpb.update(_evaluations(history, first, last))
        self._next = upto
        return hashlib.sha256(self._steps.digest() + self._bpb.digest()).hexdigest()


def _evaluations(history: History, first: int, last: int) -> bytes:
    """The evaluations of these steps as text, one a line."""
    begin = bisect_left(history.bpb, first, key=lambda x: x[0])
    out = b""
    for step, values in history.bpb[begin:]:
        if step > last:
            break
        known = sorted((a, np.float32(x).tobytes().hex()) for a, x in values.items() if x is not None)
        out += msgspec.json.encode((step, known)) + b"\n"
    return out


def policy_sha256(p: Policy) -> str:
    return hashlib.sha256(msgspec.json.encode(p, order="sorted")).hexdigest()


def state_of(mix: Mix, phase: int, rows: int, lines_sha256: str, contents: dict[str, str]) -> State:
    """`rows`: of a step. `contents`: arm -> sha256 of its text. Raises BadInput where no next step is possible."""
    shares, open_arms = mix.shares(mix.step + 1), mix.open(mix.step + 1)
    total = sum(mix.drawn.values())
    arms = {}
    for a in mix.arms:
        floor, cap = mix.bounds(a, open_arms)
        arms[a] = ArmState(
            pulls=mix.pulls[a], drawn=mix.drawn[a], credit=mix.credit[a], wish=mix.wish[a], why=mix.why[a],
            learned=mix.kind.arms[a], epochs=round(mix.pulls[a] / mix.n_rows[a], 4), share=shares[a] / UNIT,
            realised=mix.drawn[a] / total if total else 0.0, floor=floor, cap=cap,
            content_sha256=contents.get(a, ""),
        )  # fmt: skip
    return State(
        schema=SCHEMA, fold=FOLD, phase=phase, first=mix.first, step=mix.step, policy=mix.policy.name,
        policy_sha256=policy_sha256(mix.policy), kind=mix.policy.kind, lines_sha256=lines_sha256,
        next_rank=mix.kind.next_rank, exhausted_at=mix.outlook(mix.step + 1, rows), arms=arms,
    )  # fmt: skip


def encode(state: State) -> bytes:
    return msgspec.json.encode(state) + b"\n"


def read_state(path: Path) -> State | None:
    """None where there is none. Raises OSError, and ValueError where it is damaged."""
    try:
        return msgspec.json.decode(read_file(path), type=State)
    except FileNotFoundError:
        return None
    except (msgspec.MsgspecError, RecursionError) as e:
        raise ValueError(str(e)) from None


def fits(state: State, mix: Mix, step: int, phase: int, lines_sha256: str) -> bool:
    """Whether this state is that of the step, by the same rules from the same lines."""
    return (
        (state.schema, state.fold, state.step, state.phase) == (SCHEMA, FOLD, step, phase)
        and state.policy_sha256 == policy_sha256(mix.policy)
        and state.lines_sha256 == lines_sha256
        and sorted(state.arms) == mix.arms
    )


def restore(mix: Mix, state: State) -> None:
    """Make `mix`, whose phase has begun (`count` and `begin`), what it was at the state's step."""
    mix.step = state.step
    for name, arm in state.arms.items():
        mix.pulls[name], mix.drawn[name], mix.credit[name] = arm.pulls, arm.drawn, arm.credit
        mix.wish[name], mix.why[name] = arm.wish, arm.why
        mix.kind.arms[name] = arm.learned
    mix.kind.next_rank = state.next_rank
    mix.shares(state.step + 1)
