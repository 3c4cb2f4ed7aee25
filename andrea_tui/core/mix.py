"""What the arms really got lately, beside what the policy allows."""

import numpy as np

from andrea_tui.core.text import clean
from andrea_tui.core.views import ArmView, MixView
from engine.config import Policy
from engine.rundir.history import History

WINDOW = 100  # steps


def mix_view(history: History, policy: Policy | None) -> MixView:
    """Arms of the policy first, as it lists them, then those that only the history knows and still drew."""
    arms = dict.fromkeys(policy.arms) if policy else {}
    drawn = {a: float(history.rows(a)[-WINDOW:].sum()) for a in history.arms}
    arms |= dict.fromkeys(a for a, n in drawn.items() if n > 0 or not policy)
    total = sum(drawn.values()) or 1.0
    bpb: dict[str, float | None] = {}
    for _, values in history.bpb[-20:]:
        bpb |= values
    out = []
    for name in arms:
        now = _row_loss(history, name, -WINDOW, None)
        before = _row_loss(history, name, -2 * WINDOW, -WINDOW)
        limits = policy.arms.get(name) if policy else None
        out.append(
            ArmView(
                name=clean(name),
                share=drawn.get(name, 0.0) / total,
                floor=limits.floor if limits else None,
                cap=limits.cap if limits else None,
                loss=now,
                bpb=bpb.get(name),
                trend=now - before if now is not None and before is not None else None,
            )
        )
    return MixView(clean(policy.name) if policy else "", min(WINDOW, len(history)), tuple(out))


def _row_loss(history: History, arm: str, start: int, end: int | None) -> float | None:
    """Mean loss over the arm's rows; None where it had none."""
    if arm not in history.arms:
        return None
    rows, loss = history.rows(arm)[start:end], history.rloss(arm)[start:end].astype(np.float64)
    known = (rows > 0) & np.isfinite(loss)
    if not known.any():
        return None
    return float((loss[known] * rows[known]).sum() / rows[known].sum())
