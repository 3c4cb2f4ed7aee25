"""The lines of the run's JSON files, as typed records. Unknown keys are ignored, so a newer run can be read."""

import time
from typing import Annotated, Any, TypeVar

import msgspec
import numpy as np
from msgspec import Meta, Struct

MAX_LINE = 1 << 20  # bytes; anything longer is damage, not a record

Step = Annotated[int, Meta(ge=0, le=2**31 - 1)]
Float = float | None  # null stands for a number that was not finite


class LossLine(Struct, kw_only=True):
    """One step of `.loss.json`. Numbers are float32 in shortest round-trip form; `t` is seconds since 1970."""

    step: Annotated[int, Meta(ge=1, le=2**31 - 1)]
    phase: Annotated[int, Meta(ge=0, le=2**31 - 1)] = 0
    loss: Float  # mean over the step's rows, nats per token, before the update; None: not finite
    lr: float = 0.0
    gnorm: Float = None  # global gradient norm before clipping
    rows: dict[str, Annotated[int, Meta(ge=0, le=2**31 - 1)]] = {}  # arm -> rows drawn in this step
    rloss: dict[str, Float] = {}  # arm -> mean loss of its rows
    dt: float = 0.0  # seconds since the step before (0 for a segment's first)
    t: float = 0.0
    seg: Annotated[int, Meta(ge=0, le=2**31 - 1)] = 0
    # present only where they say something
    bpb: dict[str, Float] | None = None  # arm -> held-out bits per byte, where it was evaluated
    scale: float | None = None  # fp16's loss scale
    skipped: str | None = None  # why no update was made


class SampleLine(Struct, kw_only=True):
    """One text of an audit in `.samples.json`. The key is (step, prompt, mode)."""

    step: Step
    phase: int
    prompt: str
    mode: str  # "greedy" or "sampled"
    text: str  # the continuation without the prompt
    tokens: int
    t: float
    seg: int
    # Measures of the text (docs/AUDITS.md), "similarity" being that to the text before it of the same prompt and mode.
    scores: dict[str, float] | None = None  # None: not scored
    copy_arm: str = ""  # where the longest verbatim copy stands
    verdict: str | None = None  # "", "loop", "copy", "noise", "salad"; None: not scored


class Event(Struct, kw_only=True, omit_defaults=True):
    """One line of `.events.json`. What belongs to one kind of event only stands in `info`."""

    t: float
    event: str
    step: Step = 0
    seg: int = 0
    text: str = ""  # one line for a person
    info: dict[str, Any] = {}


DOING = (
    "preparing", "starting", "compiling", "replaying", "training", "evaluating", "sampling", "checkpointing",
    "stopping", "stopped",
)  # fmt: skip


class Status(Struct, kw_only=True):
    """`.status.json`: what the trainer does now. Written by its loop, so that a stalled loop shows."""

    pid: int
    seg: int
    step: Step
    max_steps: int
    phase: int
    doing: str  # one of DOING
    detail: str = ""  # "12/55", "tokenising chat 40 %"
    policy: str = ""
    device: str = ""
    precision: str = ""
    params: int = 0
    tokens_per_step: int = 0
    flops_per_token: float = 0.0
    peak_flops: float = 0.0  # of the device at this precision; 0: not known
    checkpoint_step: int = -1  # the newest durable checkpoint
    behind: int = 0  # lines that wait in memory for room on the disk
    t: float = 0.0


_Record = TypeVar("_Record", LossLine, SampleLine, Event, Status)
_encoder = msgspec.json.Encoder()
_SPARSE = ("bpb", "scale", "skipped")


def encode(record: LossLine | SampleLine | Event | Status) -> bytes:
    """One JSON line with its newline."""
    if isinstance(record, LossLine):
        fields = msgspec.structs.asdict(record)
        line = _encoder.encode({k: v for k, v in fields.items() if v is not None or k not in _SPARSE})
    else:
        line = _encoder.encode(record)
    assert b"\n" not in line
    return line + b"\n"


def decode(data: bytes, kind: type[_Record]) -> _Record:
    """Raises msgspec.MsgspecError, ValueError or RecursionError where the data is no such record."""
    return msgspec.json.decode(data, type=kind)


def event(name: str, *, step: int = 0, seg: int = 0, text: str = "", **info: Any) -> Event:
    return Event(t=round(time.time(), 3), event=name, step=step, seg=seg, text=text, info=info)


def f32(x: float) -> float | None:
    """The shortest decimal that comes back as the same float32; None where x is not finite."""
    return float(str(np.float32(x))) if np.isfinite(x) else None
