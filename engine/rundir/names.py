"""Names in a run directory (section 3 of the design)."""

import re

LOSS = ".loss.json"
SAMPLES = ".samples.json"
EVENTS = ".events.json"
STATUS = ".status.json"
STATE = ".state.json"
LOCK = ".lock"
PIVOT = ".pivot.json"
PIVOT_LOCK = ".pivot.lock"
DATA_LOCK = ".data.lock"  # held while arms are added to data/
POLICY = "policy.toml"
LOG = "trainer.log"
DATA = "data"
ARCHIVE = "archive"

_CHECKPOINT = re.compile(r"step_([0-9]{6,10})\.bin")
_TEMPORARY = re.compile(
    r"(?:\.step_[0-9]{6,10}\.bin|\.(?:status|state|samples|pivot)\.json|policy\.toml)\.tmp-[0-9]+"
)


def checkpoint_name(step: int) -> str:
    """`step_000100.bin`; more than six digits where they are needed."""
    return f"step_{step:06d}.bin"


def checkpoint_step(name: str) -> int | None:
    """The step that a checkpoint's name claims, or None for any other name. The header's step decides."""
    m = _CHECKPOINT.fullmatch(name)
    return int(m[1]) if m and checkpoint_name(int(m[1])) == name else None


def is_temporary(name: str) -> bool:
    """A file that the trainer was writing, of a checkpoint or of a sidecar that is replaced whole."""
    return _TEMPORARY.fullmatch(name) is not None
