"""Executing a pivot: what the files' transaction (`rundir/pivot.py`) needs to know of policy, data and mix. No torch.

The trainer does it between two steps; where none runs, whoever asks takes the run's lock and calls the same code.
"""

import os
import socket
import time
import uuid
from pathlib import Path
from typing import NamedTuple

from engine import identity
from engine.collapse import audits
from engine.config import Config, Policy, parse_policy
from engine.data import manifest as manifests
from engine.data.prepare import Progress, ShouldStop, prepare
from engine.data.rows import Rows
from engine.errors import BadInput
from engine.layout import n_params
from engine.mix.mix import mix_of
from engine.mix.state import Lines, state_of
from engine.mix.state import encode as encode_state
from engine.rundir import checkpoint, names, pivot
from engine.rundir.checkpoint import Damaged
from engine.rundir.pivot import Pivot
from engine.rundir.records import encode
from engine.session import Session
from engine.signals import Flags
from engine.toml_io import flat


def request(policy_text: str, policy: Policy, old: Policy, step: int, when: str) -> Pivot:
    """A pivot to ask for, where `step` is the last one made. `when`: "boundary" or "now"."""
    by = f"{os.environ.get('USER', os.getuid())}@{socket.gethostname()}, pid {os.getpid()}"
    return Pivot(
        id=uuid.uuid4().hex, t=round(time.time(), 3), by=by, when="now" if when == "now" else "boundary",
        step=step + 1,
        old_name=old.name, new_name=policy.name, policy=policy_text,
    )  # fmt: skip


def requested(s: Session) -> Pivot | None:
    """The request that stands, as the trainer sees it; a damaged one is said and left alone."""
    try:
        return pivot.read(s.run_dir)
    except BadInput as e:
        s.event("warning", str(e))
        return None


def cut(s: Session, step: int, sha256: str) -> Pivot | None:
    """From the durable checkpoint of `step` to the commit. None: withdrawn meanwhile, or it can't be; both are said.

    Raises OSError where the disk refuses; nothing has changed then but the request's own file.
    """
    with pivot.held(s.run_dir, 1.0) as alone:
        p = requested(s) if alone else None
        if p is None:
            return None
        try:
            _prepare(s, p, step, sha256)
        except BadInput as e:
            pivot.drop(s.run_dir)
            s.event("pivot_refused", f"the pivot to {p.new_name} can't be: {e}", step=step, id=p.id)
            return None
        for appender in (s.loss, s.samples, s.events):
            appender.sync()
        pivot.record_cut(s.run_dir, p)
        pivot.archive(s.run_dir, p)
        pivot.commit(s.run_dir, p)
        return p


def _prepare(s: Session, p: Pivot, step: int, sha256: str) -> None:
    """Fill in the cut. Raises BadInput where the new policy is not possible with the data that is there."""
    policy = parse_policy(p.policy, f"{names.PIVOT}: policy")
    m = manifests.load_manifest(s.run_dir)
    manifests.verify(s.run_dir, m, arms=policy.arms)
    mix = mix_of(policy, Rows(s.run_dir, m, s.config.model.context, s.config.run.seed))
    phase = s.phase + 1
    start = mix.count(s.history, step, phase)
    mix.begin(start + 1)
    nothing = Lines(mix.arms, start).sha256(s.history, start)
    state = state_of(mix, phase, s.config.train.rows, nothing, identity.contents(policy, m))
    p.cut, p.sha256, p.phase, p.keys = step, sha256, phase, flat(policy)
    p.state = encode_state(state).decode()
    p.good = s.good_before or not all(low for _, low in audits(s.texts))
    if s.history.last > step:
        line = s.history.line(step - 1)
        line.seg = s.seg
        p.back = encode(line).decode()


def execute(run_dir: Path) -> Pivot:
    """Cut at the newest good checkpoint and finish, where no trainer runs. Raises BadInput, OSError.

    What the log has beyond that checkpoint (after a crash) is superseded: rule 3 of the canonical history.
    """
    s = Session(run_dir, Flags())
    try:
        at = newest(s)
        p = cut(s, at.step, at.sha256)
        if p is None:
            raise BadInput(f"{run_dir}: the pivot was refused or withdrawn; see the events")
        pivot.finish(run_dir)
        return p
    finally:
        s.close()


class At(NamedTuple):
    step: int
    sha256: str


def newest(s: Session) -> At:
    """The newest checkpoint that a start would go on from. Raises BadInput where there is none."""
    n = n_params(s.config.model, s.config.tokenizer.vocab)
    for c in checkpoint.scan(s.run_dir)[0]:
        if c.step > s.history.last or not s.known_hashes(c.step):
            continue
        try:
            return At(c.step, checkpoint.examine(c.path, n, s.known_hashes(c.step)))
        except Damaged:
            continue
    raise BadInput(f"{s.run_dir}: there is no good checkpoint to pivot from; train first")


def prepare_arms(
    run_dir: Path, config: Config, policy: Policy, progress: Progress, should_stop: ShouldStop
) -> None:
    """Tokenise new arms into `data/`, beside a trainer that may be at work. Raises BadInput, StopRequested."""
    with pivot.held(run_dir, 0.0, names.DATA_LOCK) as alone:
        if not alone:
            raise BadInput(f"{run_dir}/data: another process adds arms to it just now; wait for it")
        prepare(run_dir, policy, config.tokenizer, config.model.context, progress, should_stop)
