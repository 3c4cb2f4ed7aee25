"""What the arms really got lately, beside what the policy allows and what the mix is going to do, and why."""

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from andrea_tui.core import fmt
from andrea_tui.core.text import clean
from andrea_tui.core.views import ArmView, MixView
from engine.config import Policy
from engine.mix.state import ArmState, State
from engine.rundir.history import History

WINDOW = 100  # steps
SPARK = 24  # points of the small curve, of as many windows


def mix_view(history: History, policy: Policy | None, state: State | None, curves: bool = True) -> MixView:
    """Arms of the policy first, as it lists them, then those that only the history knows and still drew.

    Without `curves` only the last two points of the small curves are made.
    """
    arms = dict.fromkeys(policy.arms) if policy else {}
    drawn = {a: float(history.rows(a)[-WINDOW:].sum()) for a in history.arms}
    arms |= dict.fromkeys(a for a, n in drawn.items() if n > 0 or not policy)
    total = sum(drawn.values()) or 1.0
    bpb: dict[str, float | None] = {}
    for _, values in history.bpb[-20:]:
        bpb |= values
    out = []
    for name in arms:
        spark = _spark(history, name, SPARK if curves else 2)
        now = spark[-1] if spark else None
        before = spark[-2] if len(spark) > 1 else None
        limits = policy.arms.get(name) if policy else None
        arm = ArmView(
            name=clean(name), share=drawn.get(name, 0.0) / total,
            floor=limits.floor if limits else None, cap=limits.cap if limits else None,
            loss=now, bpb=bpb.get(name), spark=tuple(spark),
            trend=now - before if now is not None and before is not None else None,
        )  # fmt: skip
        out.append(_with_state(arm, state, name))
    policy_name, kind = (clean(policy.name), policy.kind) if policy else ("", "")
    return MixView(policy_name, min(WINDOW, len(history)), tuple(out), kind, _outlook(policy, state))


def _with_state(view: ArmView, state: State | None, name: str) -> ArmView:
    arm = state.arms.get(name) if state else None
    if state is None or arm is None:
        return view
    return replace(
        view, target=arm.share, realised=arm.realised, pulls=arm.pulls, epochs=arm.epochs, shut=arm.cap == 0.0,
        reward=_reward(state.kind, arm), why=clean(arm.why),
    )  # fmt: skip


def _reward(kind: str, arm: ArmState) -> str:
    learned = arm.learned
    if kind == "ucb1":
        return f"{learned.reward / learned.rows:+.2f}" if learned.rows else "–"
    if kind == "heldout":
        return (
            "–" if learned.progress is None else f"{learned.progress * 1000:+.2f}"
        )  # millibits per byte per √row
    return ""


def _outlook(policy: Policy | None, state: State | None) -> tuple[str, ...]:
    if policy is None or state is None:
        return ()
    how = {
        "static": "static: the shares follow the priors and never adapt",
        "ucb1": f"ucb1: ranked anew after step {fmt.count(state.next_rank)}; reward in spreads of the arm's own loss",
        "heldout": "heldout: ranked anew at each evaluation; reward in millibits per byte gained per √row",
    }
    lines = [how.get(clean(state.kind), clean(state.kind)), f"as of step {fmt.count(state.step)}"]
    if state.step < policy.warmup_steps:
        lines.append(
            f"warm-up: only {clean(', '.join(policy.warmup_arms))} until step {fmt.count(policy.warmup_steps)}"
        )
    for name, step in sorted(state.exhausted_at.items(), key=lambda x: x[1]):
        lines.append(
            f"{clean(name)} will be exhausted about step {fmt.count(step)} (max_epochs {policy.max_epochs})"
        )
    return tuple(lines)


def _spark(history: History, arm: str, points: int) -> list[float | None]:
    """Mean loss over the arm's rows in each of the last windows, oldest first; None where it had none."""
    if arm not in history.arms:
        return []
    n = len(history)
    rows, loss = history.rows(arm), history.rloss(arm)
    starts = range(max(n % WINDOW, n - points * WINDOW), n, WINDOW) if n >= WINDOW else [0]
    return [_mean(rows[s : s + WINDOW], loss[s : s + WINDOW]) for s in starts]


def _mean(rows: NDArray[np.int32], losses: NDArray[np.float32]) -> float | None:
    loss = losses.astype(np.float64)
    known = (rows > 0) & np.isfinite(loss)
    if not known.any():
        return None
    return float((loss[known] * rows[known]).sum() / rows[known].sum())
