"""`andrea-tui branch`: a run directory of its own that goes on from a checkpoint of another run. No torch.

All of it is laid out in a temporary folder beside the new name, which it gets by one rename: whole, or not there.
The run it comes from may be at work: it gains one event and is otherwise only read.
"""

import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from engine import identity, pivoting
from engine.config import (
    CONFIG_FILE,
    FROZEN_KEYS,
    Config,
    Policy,
    check_config,
    config_text,
    parse_policy,
)
from engine.data import manifest as manifests
from engine.data.manifest import Manifest
from engine.data.prepare import Progress, ShouldStop, prepare
from engine.data.rows import Rows
from engine.errors import BadInput
from engine.layout import n_params
from engine.mix.mix import mix_of
from engine.mix.state import Lines, state_of
from engine.mix.state import encode as encode_state
from engine.rundir import checkpoint, names, pivot
from engine.rundir.checkpoint import Damaged
from engine.rundir.files import exists, fsync_dir, read_file
from engine.rundir.history import History, canonical_samples, read_history
from engine.rundir.lines import LineDecoder
from engine.rundir.records import Event, SampleLine, encode, event
from engine.sharing import share, share_archive, share_data, sync_tree, write_new
from engine.toml_io import convert, flat, key_path, parse_toml, toml_value

MAY_DIFFER = ("run.seed",)  # of the frozen keys: in a branch it begins a new phase
_LARGE = 1 << 32  # bytes; a sidecar beyond this is not ours
_PATIENCE = 5.0  # seconds that a committed pivot gets to finish


@dataclass(frozen=True)
class Branched:
    """What was made."""

    new_dir: Path
    at: int  # step of the checkpoint
    sha256: str  # of the checkpoint
    phase: int  # that its next step belongs to
    policy: str  # name of its policy
    fresh: bool  # whether a new phase begins: another policy, or another seed
    changed: tuple[str, ...]  # "optim.lr: 0.002 -> 0.001"
    linked: bool  # the checkpoint shares its bytes with the original's (hard link)
    untold: str  # why the original's event could not be written; empty: it was


@dataclass(frozen=True)
class _Origin:
    """What the branch takes from the original, all as of step `at`."""

    run_dir: Path
    at: int
    config: Config
    config_text: str
    history: History  # up to `at`
    phase: int
    policy: Policy  # of that phase
    policy_text: str
    samples: list[SampleLine]  # of that phase
    events: list[Event]  # all of them
    pivots: list[Event]  # up to that phase


def branch(
    run_dir: Path, new_dir: Path, at: int, policy_text: str | None, sets: list[str],
    progress: Progress = lambda what, part: None, should_stop: ShouldStop = lambda: False,
) -> Branched:  # fmt: skip
    """Make `new_dir`, which goes on from the checkpoint of step `at`. Raises BadInput, StopRequested: nothing made.

    `policy_text`: of another policy.toml; another policy than that of the checkpoint's phase begins a new phase, as a
    pivot would. `sets`: "optim.lr=0.001" for config keys. `progress` and `should_stop` are for tokenising new arms.
    """
    with _one_line(f"{run_dir}: branch"):
        _refuse_place(run_dir, new_dir)
        origin = _read(run_dir, at)
    config = _config(origin, sets)
    policy = origin.policy if policy_text is None else parse_policy(policy_text, "--policy")
    fresh = policy != origin.policy or config.run.seed != origin.config.run.seed
    with _one_line(f"{new_dir}: can't be made"):
        new_dir.parent.mkdir(parents=True, exist_ok=True)
        part = Path(tempfile.mkdtemp(prefix=f".{new_dir.name}.branch-", dir=new_dir.parent))
        try:
            sha256, linked = _lay_out(origin, part, config)
            if fresh:
                prepare(part, policy, config.tokenizer, config.model.context, progress, should_stop)
                _begin_phase(origin, part, config, policy, policy_text or origin.policy_text)
            sync_tree(part)
            _refuse_place(run_dir, new_dir)
            os.rename(part, new_dir)
            with suppress(OSError):  # it is made; only a power cut in these seconds could take the name back
                fsync_dir(new_dir.parent)
        except BadInput as e:
            raise BadInput(str(e).replace(str(part), str(new_dir))) from None
        finally:
            shutil.rmtree(part, ignore_errors=True)
    return Branched(
        new_dir, at, sha256, origin.phase + fresh, policy.name, fresh, _changes(origin.config, config), linked,
        _tell_origin(origin, new_dir, sha256),
    )  # fmt: skip


@contextmanager
def _one_line(where: str) -> Iterator[None]:
    try:
        yield
    except OSError as e:
        name = f" ({e.filename})" if e.filename else ""
        raise BadInput(f"{where}: {e.strerror or e}{name}; nothing was changed") from None


def _refuse_place(run_dir: Path, new_dir: Path) -> None:
    if exists(new_dir):
        raise BadInput(f"{new_dir}: is there already; choose another name for the branch")
    if new_dir.resolve().is_relative_to(run_dir.resolve()):
        raise BadInput(f"{new_dir}: lies inside the run that it branches from; choose a place beside it")


# ---- what is read of the original ----


def _read(run_dir: Path, at: int) -> _Origin:
    """Raises BadInput, OSError."""
    text = _text(run_dir / CONFIG_FILE, f"`andrea-tui init {run_dir}` makes a run directory")
    config = check_config(
        convert(parse_toml(text, str(run_dir / CONFIG_FILE)), Config, str(run_dir / CONFIG_FILE)),
        str(run_dir / CONFIG_FILE),
    )
    good, bad = checkpoint.scan(run_dir)  # before the events, which are written before a file gets its name
    if all(c.step != at for c in good):
        damaged = [why for path, why in bad if path.name == names.checkpoint_name(at)]
        near = ", ".join(str(c.step) for c in sorted(good, key=lambda c: abs(c.step - at))[:3])
        raise BadInput(f"--at {at}: {damaged[0] if damaged else 'no checkpoint of that step'}"
                       f"; the nearest are {near or 'none'}")  # fmt: skip
    events, policy, samples = _steady(run_dir)
    identity.refuse_changed_config(run_dir, config, events)
    history = _history(run_dir, at)
    phase = int(history.phase[-1]) if at else 0
    pivots = [e for e in events if e.event == "pivot" and isinstance(e.info.get("phase"), int)]
    later = next((e for e in pivots if e.info["phase"] == phase + 1), None)
    where = run_dir / names.POLICY
    if later is not None:  # pivoted away since: its policy and audits lie in the archive
        folder = run_dir / names.ARCHIVE / Path(str(later.info.get("archive"))).name
        where = folder / names.POLICY
        policy, samples = _text(where, "restore it from a backup"), folder / names.SAMPLES
    p = parse_policy(policy, str(where))
    if later is None:
        identity.refuse_changed_policy(run_dir, p, events)
    texts = LineDecoder(SampleLine).feed(read_file(samples, _LARGE) if exists(samples) else b"")
    return _Origin(
        run_dir, at, config, text, history, phase, p, policy,
        [x for x in canonical_samples([], texts) if x.step <= at],
        events, [e for e in pivots if e.info["phase"] <= phase],
    )  # fmt: skip


def _text(path: Path, remedy: str) -> str:
    try:
        return read_file(path).decode("utf-8")
    except FileNotFoundError:
        raise BadInput(f"{path}: missing; {remedy}") from None
    except UnicodeDecodeError as e:
        raise BadInput(f"{path}: not valid TOML: {e}") from None


def _steady(run_dir: Path) -> tuple[list[Event], str, Path]:
    """(events, text of the policy in force, file of its audits), read while no pivot replaced them. Raises BadInput."""
    end = time.monotonic() + _PATIENCE
    while True:
        events = _events(run_dir)
        policy = _text(run_dir / names.POLICY, "restore it from a backup")
        p = pivot.read(run_dir)
        if not (p and p.committed) and _n_pivots(_events(run_dir)) == _n_pivots(events):
            return events, policy, run_dir / names.SAMPLES
        if time.monotonic() >= end:
            raise BadInput(
                f"{run_dir}: a pivot is committed and not finished; start the run once, then branch"
            )
        time.sleep(0.1)


def _events(run_dir: Path) -> list[Event]:
    path = run_dir / names.EVENTS
    return LineDecoder(Event).feed(read_file(path, _LARGE)) if exists(path) else []


def _n_pivots(events: list[Event]) -> int:
    return sum(e.event == "pivot" for e in events)


def _history(run_dir: Path, at: int) -> History:
    """The canonical lines up to `at`. Raises BadInput where they are not all there."""
    whole, _ = read_history(run_dir / names.LOSS)
    if at and whole.index(at) != at - 1:
        what = f"ends at step {whole.last}" if whole.last < at else "has gaps"
        raise BadInput(f"--at {at}: the history {what}; `andrea-tui verify {run_dir}` says more")
    out = History()
    out.extend([whole.line(i) for i in range(at)])
    return out


# ---- the new config ----


def _config(origin: _Origin, sets: list[str]) -> Config:
    """Raises BadInput for a key that is unknown, the policy's, or fixed by the checkpoint."""
    table: dict[str, Any] = msgspec.to_builtins(origin.config)
    of_policy = {f.name for f in msgspec.structs.fields(Policy)}
    for item in sets:
        key, eq, text = item.partition("=")
        if not eq or not key:
            raise BadInput(f"--set {item}: write it as key=value, for example optim.lr=0.001")
        first, *rest = key_path(key)
        if first in of_policy:
            raise BadInput(f"--set {key}: is a key of the policy; give the whole new one with --policy FILE")
        node: dict[str, Any] = table
        for part in [first, *rest][:-1]:
            node = node.setdefault(part, {})
            if not isinstance(node, dict):
                raise BadInput(f"--set {item}: {part} is a value, not a table")
        node[[first, *rest][-1]] = toml_value(text)
    c = check_config(convert(table, Config, "--set"), "--set")
    old, new = flat(origin.config), flat(c)
    for key in FROZEN_KEYS:
        if old[key] != new[key] and key not in MAY_DIFFER:
            raise BadInput(f"--set {key}: is {old[key]!r} in the checkpoint and can't change; make a new run "
                           "with `andrea-tui init` instead")  # fmt: skip
    if c.train.max_steps <= origin.at:
        raise BadInput(f"--set train.max_steps: {c.train.max_steps} would end the branch where it begins, at step "
                       f"{origin.at}; set a larger one")  # fmt: skip
    return c


def _changes(old: Config, new: Config) -> tuple[str, ...]:
    a, b = flat(old), flat(new)
    return tuple(f"{k}: {a.get(k)!r} -> {v!r}" for k, v in b.items() if a.get(k) != v)


# ---- the new directory ----


def _lay_out(origin: _Origin, part: Path, config: Config) -> tuple[str, bool]:
    """A run that stands at the checkpoint under its phase's policy; (sha256, whether it is linked)."""
    name = names.checkpoint_name(origin.at)
    linked = share(origin.run_dir / name, part / name)  # first: the trainer prunes
    manifest = share_data(origin.run_dir, part)
    known = {
        str(e.info.get("sha256")) for e in origin.events if e.event == "checkpoint" and e.step == origin.at
    }
    try:
        sha256 = checkpoint.examine(part / name, n_params(config.model, manifest.tokenizer_vocab), known)
    except Damaged as e:
        raise BadInput(f"--at {origin.at}: {e}; choose another one") from None
    manifests.verify(part, manifest, arms=origin.policy.arms)
    same = flat(config) == flat(origin.config)
    write_new(part / CONFIG_FILE, (origin.config_text if same else config_text(config)).encode())
    write_new(part / names.POLICY, origin.policy_text.encode())
    h = origin.history
    write_new(part / names.LOSS, b"".join(encode(h.line(i)) for i in range(len(h))))
    write_new(part / names.SAMPLES, b"".join(map(encode, origin.samples)))
    write_new(part / names.EVENTS, b"".join(map(encode, _own_events(origin, config, manifest, sha256))))
    state = _state(origin, part, manifest)
    if state:
        write_new(part / names.STATE, state)
    for done in origin.pivots:
        share_archive(origin.run_dir, part, Path(str(done.info.get("archive"))).name)
    return sha256, linked


def _own_events(origin: _Origin, config: Config, manifest: Manifest, sha256: str) -> list[Event]:
    """What the branch has to know of its past: phases, the checkpoint's hash, what real text measures, its origin.

    The branch's own event records config, policy and texts, which later starts compare with.
    """
    at, past = origin.at, origin.events
    saved = [e for e in past if e.event == "checkpoint" and e.step == at and e.info.get("sha256") == sha256]
    audits = [e for e in past if e.event == "audit" and e.step <= at]
    keep = [*origin.pivots, *saved[-1:], *audits[-1:]]
    keep += [e for e in past if e.event == "branch" and "from" in e.info and e.step <= at]  # of a branch
    seg = max([e.seg for e in keep] + origin.history.seg.tolist(), default=0)
    source = str(origin.run_dir.resolve())
    changed = _changes(origin.config, config)
    info: dict[str, Any] = {
        "from": source, "from_name": origin.config.run.name, "sha256": sha256, "phase": origin.phase,
        "changed": list(changed), "config": flat(config), "policy": origin.policy.name,
        "policy_keys": flat(origin.policy), "arms": identity.contents(origin.policy, manifest),
    }  # fmt: skip
    said = f"branched from {source} at step {at}" + (f"; {'; '.join(changed)}" if changed else "")
    born = event("branch", step=at, seg=seg, text=said, **info)
    return [*(e for e in past if any(e is x for x in keep)), born]


def _state(origin: _Origin, part: Path, manifest: Manifest) -> bytes:
    """`.state.json` of the checkpoint, folded from the log; empty where no further step is possible."""
    c = origin.config
    mix = mix_of(origin.policy, Rows(part, manifest, c.model.context, c.run.seed))
    start = mix.count(origin.history, origin.at, origin.phase)
    mix.fold(origin.history, origin.at, origin.phase)
    digest = Lines(mix.arms, start).sha256(origin.history, origin.at)
    contents = identity.contents(origin.policy, manifest)
    try:
        return encode_state(state_of(mix, origin.phase, c.train.rows, digest, contents))
    except BadInput:
        return b""


def _begin_phase(origin: _Origin, part: Path, config: Config, policy: Policy, text: str) -> None:
    """The pivot's own transaction, in the folder that has no name yet. Raises BadInput with the sums."""
    rows = Rows(part, manifests.load_manifest(part), config.model.context, config.run.seed)
    mix = mix_of(policy, rows)
    mix.count(origin.history, origin.at, origin.phase + 1)
    mix.begin(origin.at + 1)
    mix.shares(origin.at + 1)  # raises where the policy is not possible: before anything is written
    asked = pivoting.request(text, policy, origin.policy, origin.at, "now")
    write_new(part / names.PIVOT, pivot.encode(asked))
    pivoting.execute(part)
    for name in (names.LOCK, names.PIVOT_LOCK):
        with suppress(FileNotFoundError):
            os.unlink(part / name)


def _tell_origin(origin: _Origin, new_dir: Path, sha256: str) -> str:
    """One event in the original's log; why that failed, or nothing. The branch stands without it."""
    seg = max((e.seg for e in origin.events), default=0)
    said = event("branch", step=origin.at, seg=seg, text=f"branched to {new_dir.resolve()} at step {origin.at}",
                 to=str(new_dir.resolve()), sha256=sha256)  # fmt: skip
    try:
        pivot.append_line(origin.run_dir / names.EVENTS, encode(said))
    except OSError as e:
        return e.strerror or str(e)
    return ""
