"""Held-out loss on the scale of the training loss, so that both stand in one chart.

`.loss.json` has bits per byte of each arm, which compares arms and tokenisers. Times ln 2 and the bytes that a token of
the arm's held-out text stands for (`data/manifest.json`), it is nats per token. The bytes per token are those of all of
the arm's held-out text and not of the rows that were evaluated alone, so a point is exact to a few per cent; its
course over time is exact.
"""

import math
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec
from msgspec import Struct

from engine.rundir.files import read_file

MANIFEST = "data/manifest.json"


class _Part(Struct):
    tokens: int
    bytes: int


class _Arm(Struct):
    heldout: _Part


class _Manifest(Struct):
    arms: dict[str, _Arm]


def bytes_per_token(run_dir: Path) -> dict[str, float]:
    """arm -> bytes a held-out token stands for. Raises OSError and msgspec.MsgspecError."""
    m = msgspec.json.decode(read_file(run_dir / MANIFEST), type=_Manifest)
    return {a: x.heldout.bytes / x.heldout.tokens for a, x in m.arms.items() if x.heldout.tokens > 0}


class Heldout:
    """(step, nats per token) of each evaluation, made once: the past does not move when the mix does."""

    def __init__(self) -> None:
        self.points: tuple[tuple[int, float], ...] = ()
        self._seen: list[tuple[int, dict[str, float | None]]] = []
        self._ratios: dict[str, float] = {}

    def follow(
        self,
        bpb: list[tuple[int, dict[str, float | None]]],
        ratios: dict[str, float],
        shares: Callable[[int], Mapping[str, float]],
    ) -> None:
        """`shares` of the rows drawn before a step: the weights of the arms at it, as they have in the training loss;
        where there are none yet, all arms weigh the same."""
        n = len(self._seen)
        # A history grows or is cut at its end: with the last entry all before it are the same.
        same = n <= len(bpb) and (not n or (bpb[n - 1] is self._seen[-1] and bpb[0] is self._seen[0]))
        if not same or ratios != self._ratios:
            self.points, self._seen, self._ratios = (), [], dict(ratios)
        new = bpb[len(self._seen) :]
        if new and ratios:
            found = ((step, _mean(values, ratios, shares(step))) for step, values in new)
            self.points = (*self.points, *((s, x) for s, x in found if x is not None))
            self._seen += new


def _mean(
    values: dict[str, float | None], ratios: dict[str, float], shares: Mapping[str, float]
) -> float | None:
    nats = {a: x * math.log(2) * ratios[a] for a, x in values.items() if x is not None and a in ratios}
    weights = {a: shares.get(a, 0.0) if shares else 1.0 for a in nats}
    total = sum(weights.values())
    return sum(weights[a] * x for a, x in nats.items()) / total if total > 0 else None
