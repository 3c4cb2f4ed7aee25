"""Text into `data/`: the tokenizer, and per arm a file of training tokens and one of held-out tokens.

Done once, at the start of a run, and for arms that a pivot adds. A run never reads its sources again. The manifest
is written last; a preparation that was interrupted before it is done again from the start.
"""

import hashlib
import os
import platform
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from engine.config import Arm, Policy, TokenizerConfig
from engine.data import sources, split
from engine.data import tokenizer as tokenizers
from engine.data.manifest import (
    ARMS_DIR,
    DATA_DIR,
    MANIFEST_FILE,
    TOKENIZER_FILE,
    VERSION,
    ArmData,
    Manifest,
    load_manifest,
    load_tokenizer,
    save_manifest,
    token_path,
    verify,
)
from engine.data.sample import tokenizer_sample
from engine.data.tokenizer import Tokenizer
from engine.data.writer import TokenFile
from engine.errors import BadInput, StopRequested
from engine.rundir.files import exists, fsync_dir, replace_file

__all__ = ["Manifest", "load_manifest", "load_tokenizer", "prepare", "verify"]

# Characters tokenised between two looks at the flags: as many as take about BATCH_SECONDS on this machine.
LEAST_BATCH, GREATEST_BATCH = 1 << 16, 1 << 22
BATCH_SECONDS = 0.1
REPORT_SECONDS = 0.05

Progress = Callable[[str, float], None]
ShouldStop = Callable[[], bool]
Tick = Callable[[str, float], None]  # reports, and raises StopRequested


def prepare(
    run_dir: Path,
    policy: Policy,
    tok: TokenizerConfig,
    context: int,
    progress: Progress,
    should_stop: ShouldStop,
) -> Manifest:
    """Make `data/`, or what it lacks for this policy; returns its manifest.

    `context` is the model's; every arm must give a row of context + 1 tokens to train on and one held out.
    `progress(what, fraction)` and `should_stop()` are called every 0.1 s or so, except in the native part of the
    tokenizer's training (some seconds). Raises StopRequested, and BadInput with one line.
    """
    tick = _ticker(progress, should_stop)
    try:
        if exists(run_dir / MANIFEST_FILE):
            return _extend(run_dir, policy, tok, context, tick)
        return _create(run_dir, policy, tok, context, tick)
    except OSError as e:
        where = _shown(e.filename) if e.filename else run_dir / DATA_DIR
        raise BadInput(
            f"{where}: preparing the data failed: {e.strerror or e}; nothing is lost, start again"
        ) from e


def _create(run_dir: Path, policy: Policy, tok: TokenizerConfig, context: int, tick: Tick) -> Manifest:
    os.makedirs(run_dir / ARMS_DIR, exist_ok=True)
    _clean(run_dir, {})
    t = tokenizers.train(tok, tokenizer_sample(run_dir, policy, tok, tick))
    tick("training tokenizer", 1.0)
    arms = _arms(run_dir, policy, sorted(policy.arms), t, context, tick)
    replace_file(run_dir / TOKENIZER_FILE, t.data)
    return _commit(
        run_dir,
        Manifest(
            version=VERSION,
            tokenizer_kind=t.kind,
            tokenizer_vocab=t.vocab,
            tokenizer_sha256=hashlib.sha256(t.data).hexdigest(),
            arms=arms,
        ),
    )


def _extend(run_dir: Path, policy: Policy, tok: TokenizerConfig, context: int, tick: Tick) -> Manifest:
    m = load_manifest(run_dir)
    if (tok.kind, tok.vocab) != (m.tokenizer_kind, m.tokenizer_vocab):
        raise BadInput(
            f"config.toml: tokenizer: {tok.kind} with {tok.vocab} entries, but data/ was made with "
            f"{m.tokenizer_kind} and {m.tokenizer_vocab}; that is fixed for the run"
        )
    old = [a for a in policy.arms if a in m.arms]
    for name in old:
        _check_same_source(name, policy.arms[name], m.arms[name])
        _check_size(name, m.arms[name], context)
    verify(run_dir, m, arms=old)
    new = sorted(a for a in policy.arms if a not in m.arms)
    if not new:
        return m
    _clean(run_dir, m.arms)
    arms = _arms(run_dir, policy, new, load_tokenizer(run_dir, m), context, tick)
    return _commit(run_dir, msgspec.structs.replace(m, arms=m.arms | arms))


def _commit(run_dir: Path, m: Manifest) -> Manifest:
    for folder in (run_dir / ARMS_DIR, run_dir / DATA_DIR, run_dir):
        fsync_dir(folder)
    save_manifest(run_dir, m)
    return m


def _check_same_source(name: str, arm: Arm, data: ArmData) -> None:
    if sources.source_of(arm) != data.source:
        kind, _, value = data.source.partition(":")
        raise BadInput(
            f'policy.toml: arms.{name}: data/ holds this arm made from {kind} = "{value}"; '
            "give other text another arm name"
        )


def _check_size(name: str, data: ArmData, context: int) -> None:
    row = context + 1
    if data.train.tokens < row or data.heldout.tokens < row:
        raise BadInput(
            f"policy.toml: arms.{name}: too short: {data.train.tokens:,} tokens to train on and "
            f"{data.heldout.tokens:,} held out, {row:,} of each are needed (model.context + 1); "
            "add text or drop the arm"
        )


# ---- one arm ----


def _arms(
    run_dir: Path, policy: Policy, names: list[str], t: Tokenizer, context: int, tick: Tick
) -> dict[str, ArmData]:
    return {
        name: _arm(run_dir, name, policy.arms[name], t, policy.heldout.rows, context, tick) for name in names
    }


def _arm(run_dir: Path, name: str, arm: Arm, t: Tokenizer, rows: int, context: int, tick: Tick) -> ArmData:
    candidates = split.Candidates(rows * context + 1)
    data = _tokenise(run_dir, name, arm, t, split.USUAL, candidates, tick)
    total = data.train.tokens + data.heldout.tokens
    target = split.target_tokens(total, rows, context)
    if not split.is_fit(data.heldout.tokens, total, target):
        first = data
        data = _tokenise(run_dir, name, arm, t, candidates.rule(target), None, tick)
        if data.content_sha256 != first.content_sha256:
            raise BadInput(f"policy.toml: arms.{name}: its text changed while it was read; start again")
    _check_size(name, data, context)
    return data


def _tokenise(
    run_dir: Path,
    name: str,
    arm: Arm,
    t: Tokenizer,
    rule: split.Rule,
    candidates: split.Candidates | None,
    tick: Tick,
) -> ArmData:
    """Write both files of an arm under this rule, and note the candidates for a wider one."""
    fingerprint = sources.fingerprint(run_dir, arm)  # before the reading: what changes meanwhile shows later
    skipped: Counter[str] = Counter()
    content = hashlib.sha256()
    held: set[int] = set()
    what = f"tokenising {name}"
    with (
        TokenFile(token_path(run_dir, name, "train")) as train,
        TokenFile(token_path(run_dir, name, "heldout")) as heldout,
    ):
        for batch in _batches(sources.pieces(run_dir, name, arm, skipped), what, tick):
            for text, ids in zip(batch, t.encode_batch(batch), strict=True):
                raw = text.encode("utf-8")
                content.update(raw + b"\0")
                digest = split.piece_hash(raw)
                if candidates:
                    candidates.add(digest, len(ids) + 1)
                if digest >= rule.limit and digest != rule.cut:
                    train.add(ids, len(raw))
                elif digest in held:  # a copy; to train on it would give the held-out one away
                    skipped["copies of held-out pieces"] += 1
                else:
                    held.add(digest)
                    at = max(len(ids) + 1 - rule.cut_tokens, 0) if digest == rule.cut else 0
                    if at:
                        train.add(ids[:at], int(t.n_bytes[ids[:at]].sum()))
                    heldout.add(ids[at:], int(t.n_bytes[ids[at:]].sum()))
        parts = train.commit(), heldout.commit()
    return ArmData(
        source=sources.source_of(arm),
        content_sha256=content.hexdigest(),
        train=parts[0],
        heldout=parts[1],
        skipped=dict(sorted(skipped.items())),
        python=platform.python_version() if arm.builtin else "",
        fingerprint=fingerprint,
    )


def _batches(pieces: Iterator[tuple[float, str]], what: str, tick: Tick) -> Iterator[list[str]]:
    batch: list[str] = []
    size, limit = 0, LEAST_BATCH
    for fraction, text in pieces:
        tick(what, fraction)
        if not text:
            continue
        batch.append(text)
        size += len(text)
        if size >= limit:
            start = time.monotonic()
            yield batch
            quick = time.monotonic() - start < BATCH_SECONDS
            limit = min(limit * 2, GREATEST_BATCH) if quick else max(limit // 2, LEAST_BATCH)
            batch, size = [], 0
    if batch:
        yield batch
    tick(what, 1.0)


# ---- around it ----


def _ticker(progress: Progress, should_stop: ShouldStop) -> Tick:
    last = -1.0

    def tick(what: str, fraction: float) -> None:
        nonlocal last
        if should_stop():
            raise StopRequested(what)
        now = time.monotonic()
        if now - last >= REPORT_SECONDS or fraction >= 1.0:
            last = now
            progress(what, fraction)

    return tick


def _clean(run_dir: Path, keep: dict[str, ArmData]) -> None:
    """Remove what an interrupted preparation left: token files of no arm, temporary files."""
    kept = {token_path(run_dir, arm, part).name for arm in keep for part in ("train", "heldout")}
    for entry in os.scandir(run_dir / ARMS_DIR):
        if entry.name not in kept and entry.name.endswith((".u16", ".u16.part")):
            os.unlink(entry.path)
    for entry in os.scandir(run_dir / DATA_DIR):
        if ".json.tmp-" in entry.name:
            os.unlink(entry.path)


def _shown(name: object) -> str:
    return str(name).encode("utf-8", "replace").decode()
