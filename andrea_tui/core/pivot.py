"""What a pivot would do, before anything is done: the new policy beside the present one, the words of the review."""

from dataclasses import dataclass
from pathlib import Path

from andrea_tui.core import fmt
from andrea_tui.core.text import clean
from engine.config import CONFIG_FILE, POLICY_FILE, Config, Policy, load_config, load_policy, parse_policy
from engine.data.manifest import Manifest, manifest_if_there
from engine.data.rows import Rows
from engine.errors import BadInput
from engine.layout import checkpoint_bytes, n_params
from engine.mix.mix import Mix
from engine.mix.projection import UNIT
from engine.mix.state import read_state
from engine.rundir import names
from engine.rundir.files import read_file
from engine.rundir.history import History
from engine.toml_io import flat


@dataclass(frozen=True)
class Present:
    """The run as it is: what a proposal is compared with."""

    run_dir: Path
    config: Config
    policy: Policy
    manifest: Manifest
    history: History

    @property
    def step(self) -> int:
        return self.history.last


@dataclass(frozen=True)
class Proposal:
    """A policy that could be pivoted to."""

    text: str  # of its file
    policy: Policy
    changes: tuple[str, ...]  # one line a key
    new: tuple[str, ...]  # arms that have to be tokenised first
    dropped: tuple[str, ...]  # arms that go
    zombies: tuple[str, ...]  # dropped arms whose data are gone: the bandit remembers them
    shares: dict[
        str, tuple[float, float]
    ]  # arm -> share before and after; empty where new arms have no size yet


def present(run_dir: Path, history: History) -> Present:
    """Raises BadInput where there is no run, or nothing was trained yet."""
    config, policy = load_config(run_dir / CONFIG_FILE), load_policy(run_dir / POLICY_FILE)
    manifest = manifest_if_there(run_dir)
    if manifest is None or not len(history):
        raise BadInput(
            f"{run_dir}: nothing was trained yet; edit {POLICY_FILE} before the first start instead"
        )
    return Present(run_dir, config, policy, manifest, history)


def read_policy(path: Path) -> str:
    """The text of a policy file. Raises BadInput."""
    try:
        return read_file(path).decode("utf-8")
    except (OSError, UnicodeDecodeError) as e:
        raise BadInput(f"{path}: can't be read: {getattr(e, 'strerror', None) or e}") from None


def propose(now: Present, text: str, where: str) -> Proposal:
    """Check a new policy. Raises BadInput with the key, or with the sums; nothing is touched."""
    policy = parse_policy(text, where)
    changes = differences(now.policy, policy)
    if not changes:
        raise BadInput(f"{where}: is the policy in force already; nothing to pivot to")
    new = tuple(a for a in policy.arms if a not in now.manifest.arms)
    dropped = tuple(a for a in now.policy.arms if a not in policy.arms)
    return Proposal(
        text, policy, changes, new, dropped,
        zombies=tuple(a for a in dropped if not _has_data(now, a)),
        shares=_shares(now, policy) if not new else {},
    )  # fmt: skip


def differences(old: Policy, new: Policy) -> tuple[str, ...]:
    """`arms.chat.floor: 0.1 → 0.2`, whole arms in one line."""
    out = [f"arm {a}: added, {_arm(new, a)}" for a in new.arms if a not in old.arms]
    out += [f"arm {a}: dropped, was {_arm(old, a)}" for a in old.arms if a not in new.arms]
    before, after = flat(old), flat(new)
    defaults = {"floor": 0.0, "cap": 1.0, "prior": 0.0}
    for key in {**before, **after}:
        parts = key.split(".")
        if parts[0] == "arms" and (
            ".".join(parts[1:-1]) not in old.arms or ".".join(parts[1:-1]) not in new.arms
        ):
            continue
        was, now = (x.get(key, defaults.get(parts[-1])) for x in (before, after))
        if was != now:
            out.append(f"{key}: {was} → {now}")
    return tuple(clean(x) for x in out)


def _arm(p: Policy, name: str) -> str:
    a = p.arms[name]
    source = f"builtin {a.builtin}" if a.builtin else f"path {a.path}"
    return f"{source}, floor {a.floor:g}, cap {a.cap:g}"


def _has_data(now: Present, arm: str) -> bool:
    rows = Rows(now.run_dir, now.manifest, now.config.model.context, now.config.run.seed)
    try:
        rows.tokens(arm, "train")
    except BadInput:
        return False
    return True


def _shares(now: Present, policy: Policy) -> dict[str, tuple[float, float]]:
    """arm -> (share now, share of the first step after). Raises BadInput with the sums where none is possible."""
    arms, context = now.manifest.arms, now.config.model.context
    rows = {a: (arms[a].train.tokens - 1) // context for a in policy.arms}
    mix = Mix(policy, {a: arms[a].train.tokens for a in policy.arms}, rows, now.config.run.seed)
    mix.count(now.history, now.step, int(now.history.phase[-1]) + 1)
    mix.begin(now.step + 1)
    after = {a: s / UNIT for a, s in mix.shares(now.step + 1).items()}
    try:
        state = read_state(now.run_dir / names.STATE)
    except (OSError, ValueError):
        state = None
    before = {a: x.share for a, x in state.arms.items()} if state else {}
    return {a: (before.get(a, 0.0), after.get(a, 0.0)) for a in {**before, **after}}


def review(now: Present, proposal: Proposal, cut: int, texts: int, running: bool) -> list[tuple[str, str]]:
    """(word, what it stands for): KEEP, ARCHIVE, RESET, DROP, in the order in which a person wants to read them."""
    n, phase = n_params(now.config.model, now.manifest.tokenizer_vocab), int(now.history.phase[-1])
    lost = now.step - cut if not running else 0
    out = [
        ("KEEP", f"weights, m and v of step {fmt.count(cut)} ({fmt.size(checkpoint_bytes(n))})"),
        ("KEEP", f"{names.LOSS}: all {fmt.count(now.step)} steps, and it goes on in the same file"),
        ("KEEP", "every arm's place in its text: rows that were read are not read again in their epoch"),
        ("KEEP", "data/, config.toml, all checkpoints"),
        (
            "ARCHIVE",
            f"{names.SAMPLES} ({fmt.count(texts)} texts), {names.STATE}, {POLICY_FILE} ({now.policy.name})",
        ),
        (
            "RESET",
            f"the bandit: rewards and credits begin anew; phase {phase} → {phase + 1}, the sample log is empty",
        ),
    ]
    if lost > 0:
        text = f"{fmt.count(lost)} steps that the log has beyond step {fmt.count(cut)} are superseded"
        out.append(("DROP", f"{text}: no checkpoint has them"))
    out += [("DROP", f"arm {a}{': the bandit remembers it, its data are gone' if a in proposal.zombies else ''}")
            for a in proposal.dropped]  # fmt: skip
    return [(word, clean(text)) for word, text in out]
