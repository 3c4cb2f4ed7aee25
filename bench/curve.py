"""One made-up training curve, as our `.loss.json` and as a TensorBoard event file, of any length and quickly."""

import time
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

DT = 9.93  # seconds a step, as on the card that the big runs were trained on
PIECE = 100_000  # steps written at a time
ARMS = ("repo-docstrings", "python-source")

_LINE = (
    '{"step":%d,"phase":0,"loss":%.6f,"lr":0.000213,"gnorm":%.4f,"rows":{"' + ARMS[0] + '":5,"' + ARMS[1] + '":3},'
    '"rloss":{"' + ARMS[0] + '":%.4f,"' + ARMS[1] + '":%.4f},"dt":9.93,"t":%.2f,"seg":0}\n'
)  # fmt: skip
_SUMMARY = b"\x2a\x0d\x0a\x0b\x0a\x04loss\x15"  # Event.summary, its one value's tag, and the key of the float


def loss(steps: NDArray[np.int64]) -> NDArray[np.float64]:
    """It falls for ever, ever slower. The noise is a function of the step."""
    noise = ((steps * 2654435761) % 100_003 / 100_003 - 0.5) * 0.25
    return 1.6 + 9.2 * np.exp(-steps / 9000) + 0.9 * np.exp(-steps / 90_000) + noise


def write_log(path: Path, last: int) -> None:
    """Lines of the steps 1 … last, the last of them of just now; about 180 bytes each."""
    start = time.time() - last * DT
    with open(path, "wb") as f:
        for first in range(1, last + 1, PIECE):
            steps = np.arange(first, min(first + PIECE, last + 1))
            y = loss(steps)
            columns = (steps, y, 0.8 + (y % 0.01), y - 0.1, y + 0.1, start + steps * DT)
            rows = zip(*(c.tolist() for c in columns), strict=True)
            f.write("".join(_LINE % row for row in rows).encode())


def write_events(path: Path, last: int) -> None:
    """The same losses as TensorBoard would keep them, one scalar `loss`; about 55 bytes each."""
    start = time.time() - last * DT
    with open(path, "wb") as f:
        for first in range(1, last + 1, PIECE):
            steps = np.arange(first, min(first + PIECE, last + 1))
            f.write(event_records(steps, loss(steps), start + steps * DT))


def event_records(steps: NDArray[np.int64], values: NDArray[Any], t: NDArray[Any]) -> bytes:
    """TFRecords of Event messages. The checksums are zero: terminalboard does not look at them."""
    out = []
    width = (
        1 + (steps >= 1 << 7) + (steps >= 1 << 14) + (steps >= 1 << 21) + (steps >= 1 << 28)
    )  # of the varint
    for n in np.unique(width).tolist():
        here = width == n
        record = np.zeros(
            int(here.sum()),
            [("length", "<u8"), ("crc", "<u4"), ("wall_key", "u1"), ("wall", "<f8"), ("step_key", "u1"),
             ("step", "u1", (n,)), ("summary", "u1", (len(_SUMMARY),)), ("value", "<f4"), ("crc2", "<u4")],
        )  # fmt: skip
        record["length"] = record.itemsize - 16
        record["wall_key"], record["wall"] = 0x09, t[here]
        record["step_key"] = 0x10
        septets = steps[here, None] >> np.arange(0, 7 * n, 7) & 0x7F
        septets[:, :-1] |= 0x80
        record["step"] = septets
        record["summary"] = np.frombuffer(_SUMMARY, np.uint8)
        record["value"] = values[here]
        out.append(record.tobytes())
    return b"".join(out)
