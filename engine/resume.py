"""From which checkpoint a start goes on, and whether the steps it recomputes are those that the log has."""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from engine.errors import BadInput
from engine.mix.mix import Mix
from engine.mix.state import Lines, State, fits, read_state, restore
from engine.rundir import archive, checkpoint, names
from engine.rundir.checkpoint import Checkpoint, Damaged
from engine.rundir.files import say
from engine.rundir.history import History
from engine.rundir.records import LossLine
from engine.session import Session

Loaded = tuple[int, list[NDArray[np.float32]], str]  # step, [weights, m, v], sha256


def newest_good(s: Session, n_params: int) -> Loaded | None:
    """The newest checkpoint whose bytes match an event of its step and whose steps are in the history.

    None for a run that has not begun. Damaged files are set aside (renamed, never deleted) once a good one is
    found, with an event each. Raises BadInput where checkpoints or history are there and none can be used.
    """
    good, damaged = checkpoint.scan(s.run_dir)
    aside: list[tuple[Path, str]] = list(damaged)
    beyond: list[Path] = []  # good in themselves, but of steps that the history no longer has
    for found in good:
        if found.step > s.history.last and s.known_hashes(found.step):
            beyond.append(found.path)
            continue
        s.tell("starting", f"reading {found.path.name}", now=True)
        try:
            return _use(s, found, n_params, aside, beyond)
        except Damaged as e:
            aside.append((found.path, str(e)))
    if beyond:
        aside.append((beyond[0], f"the history ends at step {s.history.last}, before it"))
    if aside:
        path, why = aside[0]
        raise BadInput(f"{path}: no checkpoint can be used: {why}; restore one, or start a new run directory")
    if len(s.history):
        raise BadInput(
            f"{s.run_dir / names.LOSS}: reaches step {s.history.last}, but no checkpoint is left"
            "; restore one, or start a new run directory"
        )
    return None


def _use(
    s: Session, found: Checkpoint, n_params: int, aside: list[tuple[Path, str]], beyond: list[Path]
) -> Loaded:
    if found.step > s.history.last:
        raise Damaged(f"{found.path.name}: the history ends at step {s.history.last}, before it")
    # A run whose event log was lost can still be resumed: then the hash proves nothing, the rest is checked.
    known = s.known_hashes(found.step) if any(e.event == "checkpoint" for e in s.past_events) else None
    step, parts, sha256 = checkpoint.load(found.path, n_params, known)
    for path, why in aside:
        new = checkpoint.set_aside(path)
        s.event("set_aside", f"{why}; set aside as {new.name}", step=step, file=new.name)
    if beyond:  # a rollback that was cut short after its commit
        folder = archive.move(s.run_dir, step, beyond).relative_to(s.run_dir)
        text = (
            f"{len(beyond)} checkpoints beyond the history's end (step {s.history.last}) are in {folder}/ now"
        )
        s.event("archived", text, step=step, archive=str(folder))
    return step, parts, sha256


def recall(s: Session, mix: Mix, step: int) -> Lines:
    """Make the mix what it was after `step`: from `.state.json` where that is of this step, else from the log.

    Returns the hash of the phase's lines, for the states to come. Raises BadInput where the log has a gap.
    """
    start = mix.count(s.history, step, s.phase)
    mix.begin(start + 1)
    lines = Lines(mix.arms, start)
    digest = lines.sha256(s.history, step)
    found = _state(s)
    if found is not None and fits(found, mix, step, s.phase, digest):
        restore(mix, found)
    elif step:
        say(f"{names.STATE} is not of step {step}: the mix is folded from the log")
        mix.fold(s.history, step, s.phase)
    return lines


def _state(s: Session) -> State | None:
    try:
        return read_state(s.run_dir / names.STATE)
    except (OSError, ValueError) as e:
        s.event("warning", f"{names.STATE}: can't be used ({e}); the mix is folded from the log")
        return None


class Replay:
    """The recomputed steps beside the logged ones (rule 2 of the canonical history).

    Equal: the line stands, nothing is appended. At the first difference the rest is appended from there on.
    """

    def __init__(self, history: History, start: int) -> None:
        self.start = start
        self.same = 0
        self.difference = ""  # "step 112630: loss 3.1 -> 3.2"
        first = int(np.searchsorted(history.step, start, side="right"))
        self._old = [history.line(i) for i in range(first, len(history))]
        self.total = len(self._old)

    def matches(self, line: LossLine) -> bool:
        """Whether the canonical history has this line already."""
        if self.difference or self.same >= self.total:
            return False
        old = self._old[self.same]
        for field in line.__struct_fields__:
            if field in ("t", "dt", "seg"):
                continue
            was, now = getattr(old, field), getattr(line, field)
            if was != now:
                self.difference = f"step {line.step}: {field} {was} -> {now}"
                return False
        self.same += 1
        return True

    @property
    def over(self) -> bool:
        return bool(self.difference) or self.same >= self.total
