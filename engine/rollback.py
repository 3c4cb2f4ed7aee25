"""Rollback and pruning: what a person does to a run between two trainings. No torch.

Going back on purpose is one appended line: a copy of the canonical line of that step supersedes all later ones
(rule 3 of the canonical history). Files are moved only after it, so a crash anywhere leaves a run that starts.
"""

import os
from dataclasses import dataclass
from pathlib import Path

from engine.config import Config
from engine.errors import BadInput
from engine.keeping import kept
from engine.layout import n_params
from engine.rundir import archive, checkpoint, names
from engine.rundir.checkpoint import Checkpoint, Damaged
from engine.rundir.files import Appender
from engine.rundir.lines import LineDecoder
from engine.rundir.records import Event, SampleLine, encode, event
from engine.session import Session
from engine.signals import Flags


@dataclass(frozen=True)
class RolledBack:
    to: int
    before: int  # the canonical end before
    archive: Path | None  # where the later checkpoints lie now
    moved: int  # how many


def rollback(run_dir: Path, to: int) -> RolledBack:
    """Make the run go on from its checkpoint of step `to`. Raises BadInput with nothing changed.

    Needs the lock: a run that is being trained is refused.
    """
    s = Session(run_dir, Flags())
    try:
        chosen = _chosen(s, to)
        before = s.history.last
        line = s.history.line(s.history.index(to) or 0)
        line.seg = s.seg
        s.log_loss(line)
        s.loss.sync()  # the commit
        _go_back_in_samples(s, to)
        later = [c for c in checkpoint.scan(run_dir)[0] if c.step > to]
        folder = archive.move(run_dir, to, [c.path for c in later]) if later else None
        shown = str(folder.relative_to(run_dir)) if folder else ""
        where = f"; {len(later)} later checkpoints are in {shown}/" if folder else ""
        s.event(
            "rollback", f"rolled back from step {before} to step {to}{where}", step=to, back_from=before,
            file=chosen.path.name, archive=shown,
        )  # fmt: skip
        s.events.sync()
        return RolledBack(to, before, folder, len(later))
    except OSError as e:
        raise BadInput(f"{run_dir}: rollback: {e.strerror or e}; nothing is lost, try again") from None
    finally:
        s.close()


def _chosen(s: Session, to: int) -> Checkpoint:
    good, _ = checkpoint.scan(s.run_dir)
    chosen = next((c for c in good if c.step == to), None)
    if to == 0:
        raise BadInput("--to 0: to begin again from step 0, make a new run directory with `andrea-tui init`")
    if chosen is None:
        near = ", ".join(str(c.step) for c in sorted(good, key=lambda c: abs(c.step - to))[:3])
        raise BadInput(f"--to {to}: no checkpoint of that step; the nearest are {near or 'none'}")
    at = s.history.index(to)
    if at is None:
        raise BadInput(f"--to {to}: the history ends at step {s.history.last}")
    if int(s.history.phase[at]) != s.phase:
        raise BadInput(f"--to {to}: lies in an earlier phase; branch a new run from that checkpoint instead")
    if to == s.history.last:
        raise BadInput(f"--to {to}: the run stands there already")
    vocab = s.config.tokenizer.vocab
    try:
        checkpoint.examine(chosen.path, n_params(s.config.model, vocab), s.known_hashes(to))
    except Damaged as e:
        raise BadInput(f"--to {to}: {e}; choose another one") from None
    return chosen


def _go_back_in_samples(s: Session, to: int) -> None:
    """The same rule for the audits: one repeated text of that step supersedes those of later steps."""
    texts = LineDecoder(SampleLine).feed((s.run_dir / names.SAMPLES).read_bytes())
    again = next((x for x in reversed(texts) if x.step == to), None)
    if again is not None:
        again.seg = s.seg
        s.samples.append(encode(again))


def prunable(run_dir: Path, config: Config) -> list[Checkpoint]:
    """The checkpoints that only a person's wish keeps (snapshots): beyond keep.last, not at keep.every."""
    good, _ = checkpoint.scan(run_dir)
    stay = kept([c.step for c in good], config.keep, ())
    return [c for c in good if c.step not in stay]


def prune(run_dir: Path, gone: list[Checkpoint]) -> None:
    """Remove them, with an event. Raises BadInput where the disk refuses."""
    try:
        events = Appender(run_dir / names.EVENTS)
        for c in gone:
            os.unlink(c.path)
        steps = [c.step for c in gone]
        said: Event = event(
            "pruned", step=max(steps), text=f"pruned by hand: {len(steps)} checkpoints", steps=steps
        )
        events.append(encode(said))
        events.close()
    except OSError as e:
        raise BadInput(f"{run_dir}: prune: {e.strerror or e}") from None
