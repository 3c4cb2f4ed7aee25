"""Look at every file of a run and say what is right and what is not. Reads only; a trainer may be at work.

`record` alone writes: one event that tells which checkpoints were read back. `replay` goes further: it recomputes a
checkpoint from the one before it, with the trainer itself, and compares.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from engine import identity
from engine.config import CONFIG_FILE, POLICY_FILE, Config, Policy, load_config, load_policy
from engine.data.manifest import Manifest, load_manifest
from engine.data.manifest import verify as verify_data
from engine.data.rows import Rows
from engine.errors import BadInput
from engine.layout import n_params
from engine.mix.mix import mix_of
from engine.mix.state import Lines, fits, read_state, state_of
from engine.rundir import checkpoint, names, pivot
from engine.rundir.checkpoint import Checkpoint, Damaged
from engine.rundir.files import exists, open_regular, write_all
from engine.rundir.history import History
from engine.rundir.lines import LineDecoder, R
from engine.rundir.records import Event, LossLine, SampleLine, encode, event

OK, NOTE, BAD = "ok", "note", "damaged"
_PIECE = 1 << 18


@dataclass(frozen=True)
class Finding:
    file: str
    state: str  # OK, NOTE (worth knowing) or BAD (exit 1)
    text: str
    sha256: str = ""  # of a checkpoint whose bytes were read and are as recorded


def verify(run_dir: Path, say: Callable[[Finding], None]) -> bool:
    """Check all files, one finding each as it is found; whether all is well. Raises BadInput, no run at all."""
    found: list[Finding] = []

    def tell(file: str, state: str, text: str, sha256: str = "") -> None:
        found.append(Finding(file, state, text, sha256))
        say(found[-1])

    config = load_config(run_dir / CONFIG_FILE)
    tell(CONFIG_FILE, OK, f"run {config.run.name}")
    policy = load_policy(run_dir / POLICY_FILE)
    tell(POLICY_FILE, OK, f"policy {policy.name}, {len(policy.arms)} arms")
    events = _events(run_dir, tell)
    history = _history(run_dir, tell)
    _samples(run_dir, history, tell)
    manifest = _data(run_dir, policy, tell)
    if manifest is not None:
        _state(run_dir, config, policy, manifest, history, tell)
    _archive(run_dir, tell)
    _checkpoints(run_dir, config, manifest.tokenizer_vocab if manifest else None, history, events, tell)
    for entry in sorted(os.scandir(run_dir), key=lambda e: e.name):
        if names.is_temporary(entry.name):
            tell(entry.name, NOTE, "left by a writer that died, or being written; removed at the next start")
        elif ".bin.bad-" in entry.name:
            tell(entry.name, NOTE, "set aside as damaged; yours to delete")
    return all(f.state != BAD for f in found)


class _Tell(Protocol):
    def __call__(self, file: str, state: str, text: str, sha256: str = "") -> None: ...


def verify_checkpoint(run_dir: Path, step: int, progress: Callable[[float], None]) -> Finding:
    """Read one checkpoint back, whole. Raises BadInput where the run itself can't be read.

    `progress` gets the fraction that was read; whatever it raises ends the reading.
    """
    config = load_config(run_dir / CONFIG_FILE)
    try:
        events = _read(run_dir / names.EVENTS, Event)[0]
    except OSError as e:
        raise BadInput(f"{run_dir / names.EVENTS}: can't be read: {e.strerror or e}") from None
    vocab = load_manifest(run_dir).tokenizer_vocab
    path = run_dir / names.checkpoint_name(step)
    known = {str(e.info.get("sha256")) for e in events if e.event == "checkpoint" and e.step == step}
    try:
        digest = checkpoint.examine(path, n_params(config.model, vocab), known, progress)
    except Damaged as e:
        return Finding(path.name, BAD, str(e).partition(": ")[2])
    return Finding(path.name, OK, f"sha256 {digest[:12]}… as recorded, finite, v ≥ 0", digest)


def record(run_dir: Path, findings: Iterable[Finding]) -> str:
    """Tell in `.events.json` which checkpoints were read back and how they are; why that failed, or nothing."""
    of_files = [f for f in findings if names.checkpoint_step(f.file) is not None and f.state != NOTE]
    good = {f.file: f.sha256 for f in of_files if f.state == OK}
    bad = {f.file: f.text for f in of_files if f.state == BAD}
    if not of_files:
        return ""
    text = f"read back {', '.join(good) if 0 < len(good) <= 3 else f'{len(good)} checkpoints'}: as recorded"
    if bad:
        text = f"damaged: {', '.join(bad)}" + (f"; {len(good)} others are as recorded" if good else "")
    step = max(names.checkpoint_step(f.file) or 0 for f in of_files)
    try:
        pivot.append_line(
            run_dir / names.EVENTS, encode(event("verified", step=step, text=text, sha256=good, damaged=bad))
        )
    except OSError as e:
        return e.strerror or str(e)
    return ""


def _read(path: Path, kind: type[R]) -> tuple[list[R], int, bool]:
    """(records, damaged lines, whether the last line has no end)"""
    decoder, out, last = LineDecoder(kind), [], b"\n"
    with open(open_regular(path), "rb", buffering=0) as f:
        while data := f.read(_PIECE):
            out += decoder.feed(data)
            last = data
    return out, decoder.bad, not last.endswith(b"\n")


def _lines(run_dir: Path, name: str, kind: type[R], tell: _Tell) -> list[R]:
    try:
        records, bad, torn = _read(run_dir / name, kind)
    except FileNotFoundError:
        tell(name, NOTE, "not there yet")
        return []
    except OSError as e:
        tell(name, BAD, f"can't be read: {e.strerror or e}")
        return []
    if bad:
        tell(name, BAD, f"{bad} damaged lines among {len(records):,}; they are skipped, the others count")
    elif torn:
        tell(
            name, NOTE, "its last line has no end: being written, or torn by a crash (the next start ends it)"
        )
    return records


def _events(run_dir: Path, tell: _Tell) -> list[Event]:
    events = _lines(run_dir, names.EVENTS, Event, tell)
    if events:
        tell(names.EVENTS, OK, f"{len(events):,} events")
    return events


def _history(run_dir: Path, tell: _Tell) -> History:
    lines = _lines(run_dir, names.LOSS, LossLine, tell)
    history = History()
    history.extend(lines)
    if history.missing:
        at = next(i + 1 for i, s in enumerate(history.step.tolist()) if s != i + 1)
        text = f"the canonical history lacks {history.missing:,} steps, the first of them step {at:,}"
        tell(names.LOSS, BAD, f"{text}; restore the file from a backup, or branch from an earlier checkpoint")
    elif lines:
        segments = len(set(history.seg.tolist()))
        tell(names.LOSS, OK, f"{len(lines):,} lines, canonical to step {history.last:,}, {segments} segments")
    return history


def _samples(run_dir: Path, history: History, tell: _Tell) -> None:
    lines = _lines(run_dir, names.SAMPLES, SampleLine, tell)
    if lines:
        tell(names.SAMPLES, OK, f"{len(lines):,} sample texts of {len({x.step for x in lines}):,} steps")


def _state(
    run_dir: Path, config: Config, policy: Policy, manifest: Manifest, history: History, tell: _Tell
) -> None:
    """The mix's state beside a fold of the log."""
    try:
        found = read_state(run_dir / names.STATE)
    except (OSError, ValueError) as e:
        tell(names.STATE, BAD, f"can't be read: {e}; the next start makes it anew from the log")
        return
    if found is None:
        tell(names.STATE, NOTE, "not there yet; a start folds the log instead")
        return
    mix = mix_of(policy, Rows(run_dir, manifest, config.model.context, config.run.seed))
    try:
        start = mix.count(history, found.step, found.phase)
        digest = Lines(mix.arms, start).sha256(history, found.step)
        if not fits(found, mix, found.step, found.phase, digest):
            text = "of other lines than the log has now (a crash or a rollback since); the next start folds the log"
            tell(names.STATE, NOTE, text)
            return
        mix.fold(history, found.step, found.phase)
        same = (
            state_of(mix, found.phase, config.train.rows, digest, identity.contents(policy, manifest))
            == found
        )
    except BadInput as e:
        tell(names.STATE, NOTE, f"can't be compared: {e}")
        return
    text = f"of step {found.step:,}, phase {found.phase}: "
    if same:
        tell(names.STATE, OK, text + f"equals the fold of its {found.step - start:,} lines")
    else:
        tell(
            names.STATE, BAD, text + "is not what its lines fold to; delete it, the next start makes it anew"
        )


def _data(run_dir: Path, policy: Policy, tell: _Tell) -> Manifest | None:
    try:
        manifest = load_manifest(run_dir)
        verify_data(run_dir, manifest, full=True, arms=policy.arms)
    except BadInput as e:
        if not (run_dir / names.DATA).is_dir():
            tell(names.DATA, NOTE, "not there yet; the first start makes it")
        else:
            tell(names.DATA, BAD, str(e))
        return None
    tokens = sum(a.train.tokens for a in manifest.arms.values())
    tell(names.DATA, OK, f"tokeniser and {len(manifest.arms)} arms, {tokens:,} training tokens, hashes right")
    return manifest


def _archive(run_dir: Path, tell: _Tell) -> None:
    """What pivots put away, and one that is asked for."""
    try:
        asked = pivot.read(run_dir)
    except BadInput as e:
        tell(names.PIVOT, BAD, str(e).partition(": ")[2])
        asked = None
    if asked is not None:
        what = "committed, the next start finishes it" if asked.committed else f"asked for by {asked.by}"
        tell(names.PIVOT, NOTE, f"a pivot to {asked.new_name}: {what}")
    for folder in sorted((run_dir / names.ARCHIVE).glob("*")):
        name = f"{names.ARCHIVE}/{folder.name}"
        if not exists(folder / pivot.MANIFEST):
            continue  # set aside by a rollback: checkpoints only
        try:
            wrong = pivot.altered(folder)
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as e:
            tell(name, BAD, f"its manifest can't be read: {e}")
            continue
        if wrong:
            tell(name, BAD, f"altered since the pivot: {', '.join(wrong)}; restore it from a backup")
        else:
            tell(name, OK, "the sidecars and policy of a phase that is over, hashes right")


def _checkpoints(
    run_dir: Path, config: Config, vocab: int | None, history: History, events: list[Event], tell: _Tell
) -> None:
    n = n_params(config.model, vocab or config.tokenizer.vocab)
    good, bad = checkpoint.scan(run_dir)
    for path, why in bad:
        tell(path.name, BAD, f"{why.partition(': ')[2]}; the next start goes on from the one before it")
    for c in good:
        known = {str(e.info.get("sha256")) for e in events if e.event == "checkpoint" and e.step == c.step}
        why = next(
            (str(e.info.get("why")) for e in events if e.event == "checkpoint" and e.step == c.step), "?"
        )
        try:
            digest = checkpoint.examine(c.path, n, known)
        except Damaged as e:
            if c.path.is_symlink() or c.path.is_file():  # else it was pruned while we looked
                tell(
                    c.path.name,
                    BAD,
                    f"{str(e).partition(': ')[2]}; the next start goes on from the one before it",
                )
            continue
        if c.step > history.last:
            tell(
                c.path.name, BAD, f"good in itself, but the history ends at step {history.last:,}, before it"
            )
        else:
            tell(
                c.path.name,
                OK,
                f"{c.bytes:,} bytes, {why}, sha256 {digest[:12]}… as recorded, finite, v ≥ 0",
                digest,
            )


def replay(run_dir: Path, step: int | None, say: Callable[[str], None]) -> bool:
    """Recompute a checkpoint (the newest by default) from the one before it; whether the bytes are the same.

    Runs the trainer on a scratch directory inside the run's own, removed afterwards. Raises BadInput.
    """
    good, _ = checkpoint.scan(run_dir)
    last = next((c for c in good if step is None or c.step == step), None)
    first = next((c for c in good if last is not None and c.step < last.step), None)
    if last is None or first is None:
        what = "no checkpoint" if last is None else f"no checkpoint before step {last.step}"
        raise BadInput(f"{run_dir}: --replay: {what}{f' of step {step}' if last is None and step else ''}")
    events, _, _ = _read(run_dir / names.EVENTS, Event)
    crossed = [e.step for e in events if e.event == "pivot" and first.step < e.step < last.step]
    if crossed:
        raise BadInput(
            f"{run_dir}: --replay {last.step}: a pivot after step {crossed[-1]} lies between; replay that step"
        )
    want = {str(e.info.get("sha256")) for e in events if e.event == "checkpoint" and e.step == last.step}
    say(f"recomputing step {last.step:,} from step {first.step:,}: {last.step - first.step:,} steps")
    scratch = Path(tempfile.mkdtemp(prefix=".replay-", dir=run_dir))
    try:
        _lay_out(run_dir, scratch, first, last.step, events)
        with open(scratch / names.LOG, "wb") as log:
            command = [sys.executable, "-m", "engine", str(scratch), "--stop-at", str(last.step)]
            code = subprocess.run(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, check=False
            ).returncode
        if code:
            end = (scratch / names.LOG).read_text("utf-8", "replace").strip().splitlines()[-1:]
            raise BadInput(f"{run_dir}: --replay: the trainer ended with {code}: {' '.join(end)}")
        made, _, _ = _read(scratch / names.EVENTS, Event)
        got = [str(e.info.get("sha256")) for e in made if e.event == "checkpoint" and e.step == last.step][-1]
        told = [e.text for e in made if e.event == "replayed"][-1:]
    finally:
        shutil.rmtree(scratch)
    same = got in want
    say(
        f"step {last.step:,}: sha256 {got[:12]}… {'identical' if same else 'NOT the recorded one'}; {' '.join(told)}"
    )
    return same


def _lay_out(run_dir: Path, scratch: Path, first: Checkpoint, end: int, events: list[Event]) -> None:
    """A run directory that stands at `first` with the log reaching to `end`."""
    history = History()
    history.extend(_read(run_dir / names.LOSS, LossLine)[0])
    at = history.index(end)
    phase = int(history.phase[at]) if at is not None else 0
    shutil.copyfile(run_dir / CONFIG_FILE, scratch / CONFIG_FILE)
    shutil.copyfile(pivot.policy_file(run_dir, events, phase), scratch / POLICY_FILE)
    (scratch / names.DATA).symlink_to(Path("..") / names.DATA)
    try:
        os.link(first.path, scratch / first.path.name)
    except OSError:
        shutil.copyfile(first.path, scratch / first.path.name)
    lines = [encode(history.line(i)) for i in range(len(history)) if history.step[i] <= end]
    keep = [encode(e) for e in events if e.event == "checkpoint" and e.step == first.step]
    samples = _read(run_dir / names.SAMPLES, SampleLine)[0]
    audits = [encode(x) for x in samples if x.step <= end]
    for name, content in ((names.LOSS, lines), (names.EVENTS, keep), (names.SAMPLES, audits)):
        fd = os.open(scratch / name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        write_all(fd, b"".join(content))
        os.close(fd)
