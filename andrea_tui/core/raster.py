"""A braille raster: 2×4 dots a cell, over numpy. Knows pixels only; what they mean is the chart's matter."""

import numpy as np
from numpy.typing import NDArray

_DOTS = np.array([[0x01, 0x08], [0x02, 0x10], [0x04, 0x20], [0x40, 0x80]], np.uint8)
SPACE = 0x20  # for an empty cell: U+2800 would be three bytes


def spans(
    top: NDArray[np.float64], bottom: NDArray[np.float64], height: int, width: int, stretch: int = 1
) -> NDArray[np.bool_]:
    """Dots (height, width): column i·stretch is filled from row top[i] to row bottom[i]; NaN draws nothing.

    Rows outside the raster are drawn on its edge.
    """
    dots = np.zeros((height, width), np.bool_)
    n = min(len(top), -(-width // stretch))
    known = np.isfinite(top[:n]) & np.isfinite(bottom[:n])
    a = np.clip(np.rint(np.where(known, top[:n], 0)), 0, height - 1)
    b = np.clip(np.rint(np.where(known, bottom[:n], 0)), 0, height - 1)
    rows = np.arange(height)[:, None]
    dots[:, : n * stretch : stretch] = (rows >= np.minimum(a, b)) & (rows <= np.maximum(a, b)) & known
    return dots


def line(y: NDArray[np.float64], height: int, width: int, stretch: int = 1) -> NDArray[np.bool_]:
    """Dots of a line through (i·stretch, y[i]), joined up and down; a NaN leaves a gap."""
    if stretch > 1 and len(y) > 1:
        x = np.arange((len(y) - 1) * stretch + 1)
        y = np.interp(x, np.arange(len(y)) * stretch, y)  # NaN spreads to both sides: still a gap
    y = y[:width]
    before = np.concatenate([y[:1], y[:-1]])
    before = np.where(np.isfinite(before), before, y)
    # From half-way to the one before, so that neighbours touch and flat stretches stay one dot high.
    down = np.where(y > before, np.minimum(before + 1, y), np.where(y < before, np.maximum(before - 1, y), y))
    return spans(down, y, height, width)


def codes(dots: NDArray[np.bool_]) -> NDArray[np.uint32]:
    """Code points (height/4, width/2) of the cells; 0 where a cell is empty."""
    h, w = dots.shape
    cells = dots.reshape(h // 4, 4, w // 2, 2)
    bits = (cells * _DOTS[None, :, None, :]).sum(axis=(1, 3)).astype(np.uint32)
    return np.where(bits > 0, bits + 0x2800, 0).astype(np.uint32)
