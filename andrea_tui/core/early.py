"""Imported before Textual and numpy, for what has to be settled by then."""

import ctypes
import gc
import os

if os.environ.get("SSH_CONNECTION"):
    # Textual reads it when it is imported. One PageDown costs 13 kB instead of 164 kB without animations.
    os.environ.setdefault("TEXTUAL_ANIMATIONS", "none")

if os.environ.get("NO_COLOR") == "":
    del os.environ["NO_COLOR"]  # empty is unset, by its convention; Textual asks only whether it is there

# Nothing here multiplies matrices: no buffers for threads that do. And no huge pages, of which a column that is used
# in part would take a whole one at each end.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("NUMPY_MADVISE_HUGEPAGE", "0")

_MALLOPT = ((-8, 1), (-3, 1 << 16), (-1, 1 << 17))  # M_ARENA_MAX, M_MMAP_THRESHOLD, M_TRIM_THRESHOLD


def _frugal_malloc() -> None:
    """One arena, and what is large goes back to the system at once: a history is read in many short-lived pieces."""
    try:
        libc = ctypes.CDLL(None)
        for what, value in _MALLOPT:
            libc.mallopt(what, value)
    except (OSError, AttributeError):  # not glibc
        pass


_frugal_malloc()

# Nothing that is made while modules are imported and a history is read is garbage; looking for some doubles the
# time of both. The app turns it on again after each.
gc.disable()
