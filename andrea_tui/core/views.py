"""What each widget is shown: frozen, all text cleaned. Equal views draw the same cells.

Structs where they can be: a frozen dataclass takes a millisecond to make, and there are dozens before the first frame.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from andrea_tui.core.journal import EventRow as EventRow
from andrea_tui.core.journal import Journal
from andrea_tui.core.lens import WHOLE, Lens
from andrea_tui.core.resources import Resources
from andrea_tui.core.state import State


class StatusView(Struct, frozen=True):
    name: str
    state: State
    step: int = 0
    max_steps: int | None = None
    eta: str = ""
    phase: int = 0
    seg: int = 0
    last: str = ""  # age of the last step
    loading: int | None = None  # per cent of the history that was read, None: all of it
    watch: bool = False
    alarms: int = 0  # findings about the run's health that are more than a word


class NumbersView(Struct, frozen=True):
    """None: not known."""

    decay: float
    ema: float | None = None
    best: float | None = None
    best_step: int = 0
    loss: float | None = None
    lr: float | None = None
    gnorm: float | None = None
    per_minute: float | None = None
    tokens: float | None = None
    mfu: float | None = None
    lost: int = 0  # steps without a finite loss


class LineAt(Struct, frozen=True):
    """What is known of one step."""

    step: int
    loss: float  # nats per token; NaN: not finite
    ema: float
    lr: float
    gnorm: float
    phase: int
    seg: int
    t: float  # seconds since 1970
    dt: float  # seconds
    arms: tuple[tuple[str, int, float], ...] | None = (
        None  # (name, rows, their loss); None: not kept so far back
    )


class Mark(Struct, frozen=True):
    """Something that happened at a step: one character on the chart's axis, and what it was."""

    step: int
    sign: str
    tone: str
    text: str


@dataclass(frozen=True)
class ChartView:
    """The whole run; the chart picks what it shows. Arrays have one length, one entry a step."""

    revision: int
    step: NDArray[np.int32] = field(compare=False)
    loss: NDArray[np.float32] = field(compare=False)
    ema: NDArray[np.float64] = field(compare=False)
    decay: float
    checkpoints: tuple[int, ...] = ()
    phases: tuple[int, ...] = ()  # last step before each pivot
    phase_names: tuple[tuple[int, str, str], ...] = ()  # (that step, name of the policy before, after)
    loading: int | None = None
    t: NDArray[np.float64] | None = field(default=None, compare=False)  # seconds since 1970
    tokens_per_step: int = 0  # 0: not known
    marks: tuple[Mark, ...] = ()  # by step
    heldout: tuple[tuple[int, float], ...] = ()  # (step, nats per token), see core/heldout.py
    at: Callable[[int], LineAt | None] | None = field(default=None, compare=False)  # what a step's line says


@dataclass(frozen=True)
class MiniView:
    """One small chart of one column, over the same stretch of the run as the loss."""

    title: str
    revision: int
    step: NDArray[np.int32] = field(compare=False)  # or another coordinate
    values: NDArray[np.float64] | NDArray[np.float32] = field(compare=False)
    last: str = ""
    per: float | None = (
        None  # the values are seconds a step, and this many over them is shown; 0 s is no value
    )
    lens: Lens = WHOLE


class ArmView(Struct, frozen=True):
    name: str
    share: float  # of the rows of the last steps
    floor: float | None = None
    cap: float | None = None
    loss: float | None = None  # mean over the rows of the last steps
    bpb: float | None = None  # held-out bits per byte, newest
    trend: float | None = None  # loss now minus loss one window before
    spark: tuple[float | None, ...] = ()  # row loss over the last steps, oldest first
    # from the mix's state at the newest checkpoint
    target: float | None = None  # share that it is to get
    realised: float | None = None  # share of the phase's rows
    pulls: int | None = None
    epochs: float | None = None
    shut: bool = False  # it is not drawn now, for the reason in `why`
    reward: str = ""  # mean reward, or progress; "" where the kind has none
    why: str = ""


class MixView(Struct, frozen=True):
    policy: str = ""
    steps: int = 0  # that the shares are of
    arms: tuple[ArmView, ...] = ()
    kind: str = ""
    outlook: tuple[str, ...] = ()  # what comes next, one line each


class SampleText(Struct, frozen=True):
    text: str
    verdict: str | None = None  # "" fine; None: not scored
    scores: tuple[tuple[str, float], ...] = ()


class TextPair(Struct, frozen=True):
    prompt: str
    greedy: SampleText
    sampled: SampleText


class Audit(Struct, frozen=True):
    step: int
    texts: tuple[TextPair, ...]
    coherence: float | None = None  # median over its sampled texts
    phase: int = 0


class AuditView(Struct, frozen=True):
    audits: tuple[Audit, ...] = ()  # oldest first
    reference: tuple[tuple[str, float, float], ...] = ()  # measure, 5 % and 95 % of real held-out text
    files: frozenset[int] | None = None  # steps whose checkpoint is there; None: not known
    policies: tuple[tuple[int, str], ...] = ()  # phase, name of its policy; empty with one phase


class CheckpointRow(Struct, frozen=True):
    step: int
    age: str
    why: str
    size: str
    verified: str = ""  # when its bytes were read and found as recorded
    kept: str = ""  # why it is not pruned
    mark: str = ""  # what is wrong with its file


class CheckpointsView(Struct, frozen=True):
    rows: tuple[CheckpointRow, ...] = ()  # newest first
    total: int = 0  # bytes
    gone: int = 0  # files that are missing without an event that tells why; the newest of them have rows


@dataclass(frozen=True)
class EventsView:
    events: Journal = field(default_factory=Journal, compare=False)  # all of them
    version: int = 0  # of the journal, which grows
    log: tuple[str, ...] = ()  # the last lines, without those that events tell
    log_first: int = 0  # how many lines came before them
    death: str = ""  # why the trainer is dead, one line
    can_start: bool = False


class ResourcesView(Struct, frozen=True):
    r: Resources | None = None
    device: str = ""
    precision: str = ""
    checkpoint_bytes: int = 0


class Alert(Struct, frozen=True):
    text: str
    tone: str


class AlertsView(Struct, frozen=True):
    alerts: tuple[Alert, ...] = ()


class FooterView(Struct, frozen=True):
    items: tuple[tuple[str, str], ...]  # (key, label), most important first


class LineView(Struct, frozen=True):
    """80x24's one line of checkpoint, disk and GPU."""

    checkpoint: CheckpointRow | None
    checkpoints: int
    resources: Resources | None
