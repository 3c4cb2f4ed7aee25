"""The shares: projection of a wish q onto {floor <= p <= cap, sum p = 1}, in the sense of least KL divergence.

The minimiser of KL(p‖q) under these bounds is p_k = clip(λ·q_k, floor_k, cap_k) with the one λ for which the p_k sum
to 1 (the KKT conditions; λ is the exponential of the sum constraint's multiplier). So the ratios between arms
that hit no bound stay those of q. Clipping and then renormalising would break its own floors.
"""

import math
from collections.abc import Sequence

from engine.errors import BadInput

UNIT = 1 << 32  # shares as integers of 2^-32, so that sums of them are exact in any order


def project(q: Sequence[float], floor: Sequence[float], cap: Sequence[float]) -> list[float]:
    """p, one per arm. Raises BadInput with the sums where no p exists (floors above 1, caps below 1)."""
    floors, caps = math.fsum(floor), math.fsum(cap)
    if floors > 1 + 1e-9 or caps < 1 - 1e-9:
        raise BadInput(f"no mix is possible: the floors sum to {floors:.4g}, the caps to {caps:.4g}")
    # An arm that nobody wishes for can still be needed to fill the caps: an infinitesimal wish.
    tiny = 1e-12 * max(max(q), 1e-300)
    wish = [max(x, tiny) for x in q]
    lam = _lambda(wish, floor, cap)
    return [min(max(lam * w, f), c) for w, f, c in zip(wish, floor, cap, strict=True)]


def _lambda(q: Sequence[float], floor: Sequence[float], cap: Sequence[float]) -> float:
    # Σ clip(λq) grows piecewise linearly in λ; its slope changes where an arm leaves its floor or hits its cap.
    points = sorted(
        {f / x for x, f in zip(q, floor, strict=True)} | {c / x for x, c in zip(q, cap, strict=True)}
    )

    def total(lam: float) -> float:
        return math.fsum(min(max(lam * x, f), c) for x, f, c in zip(q, floor, cap, strict=True))

    low = points[0]
    for high in points:
        if total(high) >= 1:
            break
        low = high
    else:
        return points[-1]
    middle = (low + high) / 2  # between two breakpoints every arm is free or fixed throughout
    free = [x for x, f, c in zip(q, floor, cap, strict=True) if f < middle * x < c]
    fixed = math.fsum(
        min(max(middle * x, f), c) for x, f, c in zip(q, floor, cap, strict=True) if not f < middle * x < c
    )
    return min(max((1 - fixed) / math.fsum(free), low), high) if free else high


def quantise(p: Sequence[float]) -> list[int]:
    """Shares as integers that sum to exactly UNIT (largest remainders; ties to the first)."""
    scaled = [x * UNIT for x in p]
    out = [math.floor(x) for x in scaled]
    by_remainder = sorted(range(len(p)), key=lambda k: (out[k] - scaled[k], k))
    for k in by_remainder[: UNIT - sum(out)]:
        out[k] += 1
    return out
