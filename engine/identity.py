"""Is this still the same run? Config, policy and data beside what the last segment wrote down when it began."""

from pathlib import Path
from typing import Any

import msgspec

from engine.config import CONFIG_FILE, FROZEN_KEYS, POLICY_FILE, Config, Policy
from engine.data.manifest import Manifest
from engine.data.sources import fingerprint
from engine.errors import BadInput
from engine.rundir.history import History
from engine.rundir.records import Event
from engine.toml_io import flat

Arms = dict[str, str]  # name -> sha256 of its text


def begun(events: list[Event], key: str) -> dict[str, Any]:
    """What the newest segment that began, or the pivot since, wrote down under `key`; empty where none did."""
    return next((e.info[key] for e in reversed(events) if isinstance(e.info.get(key), dict)), {})


def refuse_changed_config(run_dir: Path, config: Config, events: list[Event]) -> None:
    """Raises BadInput where a key changed that fixes shapes or the order of the data."""
    before, now = begun(events, "config"), flat(config)
    for key in FROZEN_KEYS:
        if key in before and before[key] != now[key]:
            raise BadInput(
                f"{run_dir / CONFIG_FILE}: {key}: is {now[key]!r}, but this run was made with {before[key]!r}"
                "; set it back, or make a new run with `andrea-tui init`"
            )


def changed_config(config: Config, events: list[Event]) -> list[str]:
    """`optim.lr: 0.001 -> 0.002` for every key that differs from the segment before."""
    before, now = begun(events, "config"), flat(config)
    return [f"{k}: {before[k]!r} -> {v!r}" for k, v in now.items() if k in before and before[k] != v]


def refuse_changed_policy(run_dir: Path, policy: Policy, events: list[Event]) -> None:
    """A policy is changed by a pivot, never by an editor: the rows drawn so far follow from it. Raises BadInput."""
    before, now = begun(events, "policy_keys"), flat(policy)
    if not before:
        return
    new_keys = flat(Policy())  # that a newer program knows, at their defaults, are no change
    for key in sorted({*before, *now}):
        was, is_now = before.get(key), now.get(key)
        if was == is_now or (key not in before and new_keys.get(key, was) == is_now):
            continue
        raise BadInput(
            f"{run_dir / POLICY_FILE}: {key}: is {_shown(is_now)}, but this phase runs under {_shown(was)}"
            f"; set it back, and change it with a pivot: andrea-tui pivot {run_dir} --policy FILE"
        )


def refuse_zombies(
    run_dir: Path, policy: Policy, manifest: Manifest | None, history: History, phase: int
) -> None:
    """Arms that this phase was drawn from and that have no data, or no place in the policy, any more."""
    start = int(history.phase.searchsorted(phase))
    drawn = [a for a in history.arms if int(history.rows(a)[start:].sum())]
    known = policy.arms.keys() & (manifest.arms.keys() if manifest else set())
    zombies = sorted(a for a in drawn if a not in known)
    if zombies:
        raise BadInput(
            f"{run_dir}: zombie arms: the mix remembers {', '.join(zombies)}, which have no data here any more; "
            f"restore data/ and policy.toml from a backup, or drop them: andrea-tui pivot {run_dir} --policy FILE"
        )


def contents(policy: Policy, manifest: Manifest) -> Arms:
    return {a: manifest.arms[a].content_sha256 for a in sorted(policy.arms)}


def refuse_altered_data(run_dir: Path, arms: Arms, events: list[Event]) -> None:
    """An arm is its name and its text. Raises BadInput where the text under a name is another one now."""
    before = begun(events, "arms")
    altered = [a for a, sha in arms.items() if a in before and before[a] != sha]
    if altered:
        raise BadInput(
            f"{run_dir}/data: the text of {', '.join(altered)} is not the one that this run was trained on; restore "
            f"data/ from a backup, or give the new text a new name: andrea-tui pivot {run_dir} --policy FILE"
        )


def changed_sources(run_dir: Path, policy: Policy, manifest: Manifest) -> list[str]:
    """One line for each arm whose files are no longer what was tokenised. Nothing hangs on it: data/ is frozen."""
    told = []
    for name, arm in sorted(policy.arms.items()):
        was = manifest.arms[name].fingerprint
        try:
            same = not was or fingerprint(run_dir, arm) == was
            what = "changed since it was tokenised"
        except BadInput:
            same, what = False, "is not there any more"
        if not same:
            source = arm.builtin or arm.path
            told.append(f"arms.{name}: {source} {what}; the run goes on with the text it has in data/")
    return told


def _shown(value: object) -> str:
    return "not there" if value is None else msgspec.json.encode(value).decode()
