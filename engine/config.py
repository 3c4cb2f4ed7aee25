"""`config.toml` and `policy.toml`: what may stand in them, and one clear line for what may not.

The structs are the single description: types and ranges validate, descriptions become the comments of the
files that `init` writes, and key names are the ones that `--set model.n_layer=4` addresses.
"""

import math
import re
import tomllib
from importlib import resources
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct

from engine.errors import BadInput
from engine.toml_io import (
    convert,
    did_you_mean,
    key_path,
    keys_text,
    parse_toml,
    read_toml,
    refuse_non_finite,
    table_text,
    toml_key,
    toml_value,
)

CONFIG_FILE = "config.toml"
POLICY_FILE = "policy.toml"
PRESETS = ("andrea-tiny", "andrea-12m", "andrea-120m", "andrea-480m")

Share = Annotated[float, Meta(ge=0.0, le=1.0)]


def _about(text: str, **limits: Any) -> Meta:
    return Meta(description=text, **limits)


class RunConfig(Struct, kw_only=True, forbid_unknown_fields=True, frozen=True):
    name: Annotated[str, _about("what this run is called on the screen", min_length=1, max_length=60)] = "run"
    seed: Annotated[
        int,
        _about(
            "initial weights, order of the rows, sampled texts all follow from it; fixed for the run",
            ge=0,
            le=2**62,
        ),
    ] = 1


class ModelConfig(Struct, kw_only=True, forbid_unknown_fields=True, frozen=True):
    n_layer: Annotated[int, _about("transformer blocks", ge=1, le=256)] = 4
    n_head: Annotated[int, _about("attention heads; d_model must be divisible by it", ge=1, le=256)] = 4
    d_model: Annotated[int, _about("width of the residual stream", ge=8, le=16384)] = 128
    context: Annotated[int, _about("tokens in a row (sequence)", ge=8, le=65536)] = 256
    norm: Annotated[
        Literal["rmsnorm", "layernorm"], _about('"rmsnorm" or "layernorm", both without weights')
    ] = "rmsnorm"
    activation: Annotated[
        Literal["relu", "gelu", "relu2"], _about('"relu", "gelu" or "relu2" (squared relu)')
    ] = "relu"


class TokenizerConfig(Struct, kw_only=True, forbid_unknown_fields=True, frozen=True):
    kind: Annotated[Literal["bpe", "bytes"], _about('"bpe" (byte-level, trained on the arms) or "bytes"')] = (
        "bpe"
    )
    vocab: Annotated[
        int, _about("entries: 1 separator + 256 bytes + merges; 257 for bytes", ge=257, le=65535)
    ] = 1281


class TrainConfig(Struct, kw_only=True, forbid_unknown_fields=True, frozen=True):
    max_steps: Annotated[
        int, _about("the run ends here; also the horizon of the learning-rate schedule", ge=1, le=2**31 - 1)
    ] = 2000
    rows: Annotated[int, _about("rows (sequences) in one step", ge=1, le=65536)] = 8
    accumulate: Annotated[
        int, _about("micro-batches in one step; rows must be divisible by it", ge=1, le=4096)
    ] = 1
    precision: Annotated[
        Literal["auto", "fp32", "bf16", "fp16"],
        _about('"auto": bf16 on a GPU that has it, else fp16; fp32 on a CPU'),
    ] = "auto"
    compile: Annotated[Literal["auto"] | bool, _about('torch.compile; "auto": on CUDA only')] = "auto"
    deterministic: Annotated[bool, _about("bit for bit repeatable, and so is a resume")] = True
    checkpoint_every: Annotated[int, _about("steps between checkpoints (a boundary)", ge=1)] = 100
    sample_every: Annotated[int, _about("steps between audits; a multiple of checkpoint_every", ge=1)] = 100
    eval_every: Annotated[int, _about("steps between held-out evaluations", ge=1)] = 100


class OptimConfig(Struct, kw_only=True, forbid_unknown_fields=True, frozen=True):
    lr: Annotated[float, _about("peak learning rate", gt=0.0, le=10.0)] = 2e-3
    min_lr: Annotated[float, _about("learning rate at max_steps", ge=0.0, le=10.0)] = 2e-4
    warmup_steps: Annotated[int, _about("linear warm-up, in steps", ge=0)] = 100
    beta1: Annotated[float, _about("AdamW", ge=0.0, lt=1.0)] = 0.9
    beta2: Annotated[float, _about("AdamW", ge=0.0, lt=1.0)] = 0.999
    eps: Annotated[float, _about("AdamW", gt=0.0, le=1.0)] = 1e-8
    weight_decay: Annotated[
        float, _about("AdamW, decoupled; all parameters are matrices and all decay", ge=0.0, le=10.0)
    ] = 0.1
    clip: Annotated[float, _about("largest global gradient norm", gt=0.0)] = 1.0


class KeepConfig(Struct, kw_only=True, forbid_unknown_fields=True, frozen=True):
    last: Annotated[int, _about("the newest checkpoints that are kept", ge=1)] = 10
    every: Annotated[int, _about("checkpoints at multiples of this are kept for good", ge=1)] = 10000


class AuditConfig(Struct, kw_only=True, forbid_unknown_fields=True, frozen=True):
    prompts: Annotated[
        list[str], _about("continued from every checkpoint, greedy and sampled", min_length=1, max_length=64)
    ] = msgspec.field(
        default_factory=lambda: [
            "Return the number of",
            "def read_file(path):\n",
            "The following example",
            "Installation\n============\n",
        ]
    )
    tokens: Annotated[int, _about("tokens in a sample text", ge=1, le=65536)] = 128
    temperature: Annotated[float, _about("of the sampled continuation", gt=0.0, le=10.0)] = 0.8
    top_k: Annotated[int, _about("of the sampled continuation; 0 takes the whole vocabulary", ge=0)] = 50
    halt_on_collapse: Annotated[
        bool, _about("stop by itself (exit 3) when the sampled texts of five audits in a row read like noise")
    ] = False


class Config(Struct, kw_only=True, forbid_unknown_fields=True, frozen=True):
    run: RunConfig = RunConfig()
    model: ModelConfig = ModelConfig()
    tokenizer: TokenizerConfig = TokenizerConfig()
    train: TrainConfig = TrainConfig()
    optim: OptimConfig = OptimConfig()
    keep: KeepConfig = KeepConfig()
    audit: AuditConfig = msgspec.field(default_factory=AuditConfig)


class Arm(Struct, kw_only=True, forbid_unknown_fields=True, frozen=True, omit_defaults=True):
    path: Annotated[str, _about("file, folder or glob of text, Markdown, code or .jsonl (field text)")] = ""
    builtin: Annotated[str, _about("one of the corpora that every Python installation carries")] = ""
    floor: Annotated[Share, _about("least share of all pulls, 0 to 1")] = 0.0
    cap: Annotated[Share, _about("greatest share of all pulls, 0 to 1")] = 1.0
    prior: Annotated[
        float, _about("wish among the arms, any unit; 0 (the default): tokens to the power 0.7", ge=0.0)
    ] = 0.0


class Ucb1Config(Struct, kw_only=True, forbid_unknown_fields=True, frozen=True):
    c: Annotated[float, _about("weight of the exploration bonus", ge=0.0)] = 1.0
    focus: Annotated[int, _about("how many arms are in focus", ge=1)] = 2
    focus_share: Annotated[Share, _about("their share of all pulls; the others follow their prior")] = 0.5
    rerank: Annotated[int, _about("ranked anew every so many steps times a die (1 to 6)", ge=1)] = 7
    window: Annotated[
        int, _about("rows over which an arm's running mean and spread of its loss forget", ge=2)
    ] = 256
    least: Annotated[int, _about("rows of an arm before its loss earns a reward", ge=2)] = 16


class HeldoutConfig(Struct, kw_only=True, forbid_unknown_fields=True, frozen=True):
    rows: Annotated[int, _about("held-out rows per arm in one evaluation", ge=1, le=4096)] = 8
    explore: Annotated[Share, _about("share that all arms get alike, regardless of progress")] = 0.1
    decay: Annotated[
        float, _about("of the running mean of an arm's progress, per evaluation", ge=0.0, lt=1.0)
    ] = 0.7
    span: Annotated[
        float, _about("an arm's progress counts as 1/span to span times the arms' mean", ge=1.0)
    ] = 4.0
    power: Annotated[float, _about("how strongly progress moves the wish: prior * ratio^power", ge=0.0)] = 0.5


class Policy(Struct, kw_only=True, forbid_unknown_fields=True, frozen=True):
    name: Annotated[str, _about("what this policy is called on the screen", min_length=1, max_length=60)] = (
        "v1"
    )
    kind: Annotated[
        Literal["static", "ucb1", "heldout"],
        _about(
            'how the mix adapts: "static" (it does not), "ucb1" (training loss) or "heldout" (held-out text)'
        ),
    ] = "ucb1"
    warmup_steps: Annotated[
        int, _about("only warmup_arms are drawn until this step; 0: no warm-up", ge=0)
    ] = 0
    warmup_arms: Annotated[list[str], _about("names of arms")] = msgspec.field(default_factory=list)
    free_epochs: Annotated[
        int, _about("past so many epochs an arm's wish halves with every further one", ge=1)
    ] = 4
    max_epochs: Annotated[
        int, _about("an arm that was read so often is drawn no more; 0: no limit", ge=0)
    ] = 0
    ucb1: Ucb1Config = Ucb1Config()
    heldout: HeldoutConfig = HeldoutConfig()
    arms: dict[str, Arm] = msgspec.field(default_factory=dict)


# What a resume can't survive, since it fixes shapes or the order of the data.
FROZEN_KEYS = (
    "run.seed",
    "model.n_layer",
    "model.n_head",
    "model.d_model",
    "model.context",
    "model.norm",
    "model.activation",
    "tokenizer.kind",
    "tokenizer.vocab",
    "train.rows",
)


def load_config(path: Path) -> Config:
    """Read and check `config.toml`. Raises BadInput with one line that names file, key and remedy."""
    return check_config(convert(read_toml(path), Config, str(path)), str(path))


def load_policy(path: Path) -> Policy:
    """Read and check `policy.toml`. Raises BadInput with one line that names file, key and remedy."""
    return check_policy(_convert_policy(read_toml(path), str(path)), str(path))


def parse_policy(text: str, where: str) -> Policy:
    """A policy from the text of its file. Raises BadInput, `where` naming the text."""
    return check_policy(_convert_policy(parse_toml(text, where), where), where)


def check_config(c: Config, where: str) -> Config:
    """The rules that no single key can state."""

    def refuse(key: str, text: str) -> None:
        raise BadInput(f"{where}: {key}: {text}")

    refuse_non_finite(c, where)
    if c.model.d_model % c.model.n_head:
        fits = [h for h in range(1, c.model.d_model + 1) if c.model.d_model % h == 0]
        near = min(fits, key=lambda h: abs(h - c.model.n_head))
        refuse(
            "model.d_model",
            f"{c.model.d_model} is not divisible by model.n_head = {c.model.n_head}; try n_head = {near}",
        )
    if c.tokenizer.kind == "bytes" and c.tokenizer.vocab != 257:
        refuse(
            "tokenizer.vocab",
            f'kind = "bytes" has exactly 257 entries, not {c.tokenizer.vocab}; set vocab = 257',
        )
    if c.train.rows % c.train.accumulate:
        refuse("train.rows", f"{c.train.rows} is not divisible by train.accumulate = {c.train.accumulate}")
    if c.train.sample_every % c.train.checkpoint_every:
        refuse(
            "train.sample_every",
            f"{c.train.sample_every} is not a multiple of train.checkpoint_every = {c.train.checkpoint_every}",
        )
    if c.optim.min_lr > c.optim.lr:
        refuse("optim.min_lr", f"{c.optim.min_lr} is above optim.lr = {c.optim.lr}")
    if any(not p for p in c.audit.prompts) or len(set(c.audit.prompts)) != len(c.audit.prompts):
        refuse("audit.prompts", "prompts must be different from each other and not empty")
    return c


def check_policy(p: Policy, where: str) -> Policy:
    """The rules that no single key can state; floors and caps with their sums."""

    def refuse(key: str, text: str) -> None:
        raise BadInput(f"{where}: {key}: {text}")

    refuse_non_finite(p, where)
    if not p.arms:
        refuse("arms", 'no arm is named; add a table such as [arms.my-text] with path = "texts/*.md"')
    for name, arm in p.arms.items():
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,59}", name):
            refuse(f"arms.{name!r}", "an arm's name is made of letters, digits, '.', '_' and '-', 60 at most")
        if bool(arm.path) == bool(arm.builtin):
            refuse(f"arms.{name}", 'needs either path = "…" or builtin = "…"')
        if arm.floor > arm.cap:
            refuse(f"arms.{name}.floor", f"{arm.floor} is above cap = {arm.cap}")
    floors = math.fsum(a.floor for a in p.arms.values())
    caps = math.fsum(a.cap for a in p.arms.values())
    if floors > 1 + 1e-9:
        refuse("arms", f"the floors sum to {floors:.4g}, more than 1; lower some")
    if caps < 1 - 1e-9:
        refuse("arms", f"the caps sum to {caps:.4g}, less than 1; raise some")
    for name in p.warmup_arms:
        if name not in p.arms:
            refuse("warmup_arms", f"unknown arm {name!r}{did_you_mean(name, p.arms)}")
    if p.warmup_steps:
        if not p.warmup_arms:
            refuse(
                "warmup_arms",
                f"empty, but warmup_steps = {p.warmup_steps}; name the arms or set warmup_steps = 0",
            )
        warm = math.fsum(p.arms[n].cap for n in set(p.warmup_arms))
        if warm < 1 - 1e-9:
            refuse("warmup_arms", f"their caps sum to {warm:.4g}, less than 1; raise some or name more arms")
    return p


def preset(name: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """The tables (config, policy) of a preset, as TOML gives them."""
    if name not in PRESETS:
        raise BadInput(
            f"--preset: unknown preset {name!r}{did_you_mean(name, PRESETS)}; there are {', '.join(PRESETS)}"
        )
    folder = resources.files("engine.presets")
    config = tomllib.loads((folder / f"{name}.toml").read_text("utf-8"))
    return config, tomllib.loads((folder / POLICY_FILE).read_text("utf-8"))


def build(name: str, sets: list[str]) -> tuple[Config, Policy]:
    """A checked config and policy from a preset and `key=value` overrides (`--set`)."""
    config, policy = preset(name)
    for item in sets:
        key, eq, text = item.partition("=")
        if not eq or not key:
            raise BadInput(f"--set {item}: write it as key=value, for example model.n_layer=4")
        roots = {f.name for f in msgspec.structs.fields(Config)}
        table = config if key.split(".")[0] in roots else policy
        *parents, last = key_path(key)
        for part in parents:
            table = table.setdefault(part, {})
            if not isinstance(table, dict):
                raise BadInput(f"--set {item}: {part} is a value, not a table")
        table[last] = toml_value(text)
    c = check_config(convert(config, Config, "--set"), "--set")
    return c, check_policy(_convert_policy(policy, "--set"), "--set")


def config_text(c: Config) -> str:
    """The commented `config.toml` of this config."""
    head = "# What this run is. Everything here can be read by a person; `andrea-tui init --help` lists the presets.\n"
    body = [table_text(f.name, getattr(c, f.name)) for f in msgspec.structs.fields(Config)]
    return head + "\n" + "\n".join(body)


def policy_text(p: Policy) -> str:
    """The commented `policy.toml` of this policy."""
    head = (
        "# Which text the rows come from. To change it in mid-run, use a pivot: the history stays whole.\n\n"
    )
    top = [f for f in msgspec.structs.fields(Policy) if f.name not in ("arms", "ucb1", "heldout")]
    body = head + keys_text(p, [f.name for f in top]) + "\n"
    for name in ("ucb1", "heldout"):
        body += table_text(name, getattr(p, name)) + "\n"
    for name, arm in p.arms.items():
        source = "builtin" if arm.builtin else "path"
        body += f"[arms.{toml_key(name)}]\n" + keys_text(arm, [source, "floor", "cap", "prior"]) + "\n"
    return body


def _convert_policy(table: dict[str, Any], where: str) -> Policy:
    # msgspec's messages don't name the key of a dict, so each arm is tried by itself first
    arms = table.get("arms")
    if isinstance(arms, dict):
        for name, arm in arms.items():
            convert(arm, Arm, where, f"arms.{name}")
    return convert(table, Policy, where)
