"""The small charts of learning rate, gradient norm and speed, over the same stretch of the run as the loss."""

import numpy as np
from numpy.typing import NDArray

from andrea_tui.core import fmt
from andrea_tui.core.lens import Lens
from andrea_tui.core.rates import Rates
from andrea_tui.core.views import MiniView
from engine.rundir.history import History


def mini_views(
    h: History, r: Rates, per_step: int, grown: tuple[int, int], lens: Lens, x: NDArray[np.int32] | None
) -> tuple[MiniView, MiniView, MiniView]:
    """`per_step`: tokens, 0 where that is not known. `grown` changes when there is more to show.

    `x`: the coordinate of each step on the axis of the loss chart, if that is not the step.
    """
    revision = hash((grown, h.last, len(x) if x is not None else 0))
    at = h.step if x is None or len(x) != len(h) else x
    speed = f"{fmt.short(r.tokens)} tok/s" if r.tokens else fmt.NA
    if not per_step:
        speed = f"{fmt.number(60 / r.step_time, 2)}/min" if r.step_time else fmt.NA
    lr, gnorm = (fmt.number(float(c[-1])) if len(h) else fmt.NA for c in (h.lr, h.gnorm))
    name = "tokens/s" if per_step else "steps/min"
    return (
        MiniView("lr", revision, at, h.lr, lr, None, lens),
        MiniView("grad norm", revision, at, h.gnorm, gnorm, None, lens),
        MiniView(name, revision, at, h.dt, speed, per_step or 60, lens),
    )
