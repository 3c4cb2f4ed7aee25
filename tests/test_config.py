"""Presets, validation and the files that init writes."""

from pathlib import Path

import pytest

from engine.config import PRESETS, build, config_text, load_config, load_policy, policy_text
from engine.errors import BadInput
from engine.layout import checkpoint_bytes, layout, n_params


@pytest.mark.parametrize(
    ("name", "params", "size"),
    [
        ("andrea-tiny", 1_147_136, 13_765_640),
        ("andrea-12m", 12_780_288, 153_363_464),
        ("andrea-120m", 98_698_752, 1_184_385_032),
        ("andrea-480m", 480_513_024, 5_766_156_296),
    ],
)
def test_presets_have_their_published_sizes(name: str, params: int, size: int) -> None:
    c, _ = build(name, [])
    assert n_params(c.model, c.tokenizer.vocab) == params
    assert checkpoint_bytes(params) == size == 8 + 12 * params


def test_file_order_is_the_one_of_the_format() -> None:
    c, _ = build("andrea-tiny", ["model.n_layer=2"])
    names = [name for name, _ in layout(c.model, 300)]
    assert names == ["tok", "pos", "0.qkv", "0.o", "0.in", "0.out", "1.qkv", "1.o", "1.in", "1.out", "head"]


@pytest.mark.parametrize("name", PRESETS)
def test_written_files_read_back_as_the_same(name: str, tmp_path: Path) -> None:
    sets = [
        "run.name='a \"quoted\" \\ name'",
        "run.seed=7",
        'audit.prompts=["é\\n\\u007f", "b"]',
        "train.compile=false",
    ]
    c, p = build(name, sets)
    (tmp_path / "config.toml").write_text(config_text(c), "utf-8")
    (tmp_path / "policy.toml").write_text(policy_text(p), "utf-8")
    assert load_config(tmp_path / "config.toml") == c
    assert load_policy(tmp_path / "policy.toml") == p
    assert c.audit.prompts == ["é\n\x7f", "b"]


@pytest.mark.parametrize("name", PRESETS)
def test_every_key_of_the_written_files_explains_itself(name: str) -> None:
    c, p = build(name, [])
    for line in (config_text(c) + policy_text(p)).splitlines():
        assert not line or line.startswith(("#", "[")) or " # " in line, line


BAD = [
    ("model.n_layers=3", "model.n_layers: unknown key, did you mean n_layer?"),
    ("model.n_layer=x", "model.n_layer: expected `int`, got `str`"),
    ("model.n_layer=0", "model.n_layer: expected `int` >= 1"),
    ("model.d_model=130", "model.d_model: 130 is not divisible by model.n_head = 4; try n_head = 5"),
    ("train.sample_every=50", "train.sample_every: 50 is not a multiple of train.checkpoint_every = 100"),
    ("train.accumulate=3", "train.rows: 8 is not divisible by train.accumulate = 3"),
    ("train.precision=fp8", "train.precision: invalid enum value 'fp8'"),
    ("optim.lr=nan", "optim.lr: "),
    ("optim.lr=inf", "optim.lr: "),
    ("optim.min_lr=1.0", "optim.min_lr: 1.0 is above optim.lr"),
    ("tokenizer.kind=bytes", "tokenizer.vocab: kind = \"bytes\" has exactly 257 entries"),
    ("run.seed=true", "run.seed: expected `int`, got `bool`"),
    ("run=3", "run: expected `object`, got `int`"),
    ("audit.prompts=[]", "audit.prompts: "),
    ("nonsense=1", "nonsense: unknown key; there are name, kind"),
    ("arms.repo-docs.flor=0.1", "arms.repo-docs.flor: unknown key, did you mean floor?"),
    ("arms.repo-docs.floor=2", "arms.repo-docs.floor: expected `float` <= 1.0"),
    ("arms.repo-docs.floor=nan", "arms.repo-docs.floor: "),
    ("arms.repo-docs.floor=0.9", "arms: the floors sum to 1.05, more than 1"),
    ("arms.new.floor=0.1", 'arms.new: needs either path = "…" or builtin = "…"'),
    ('arms."../x".path=/a', "arms.'../x': an arm's name is made of"),
    ("warmup_steps=5", "warmup_arms: empty, but warmup_steps = 5"),
    ('warmup_arms=["repo-doc"]', "warmup_arms: unknown arm 'repo-doc', did you mean repo-docs?"),
    ("kind=ucb2", "kind: invalid enum value"),
    ("kind", "--set kind: write it as key=value"),
    ("a b=1", "not a key"),
]  # fmt: skip


@pytest.mark.parametrize(("item", "text"), BAD)
def test_bad_values_are_refused_in_one_line_that_names_the_key(item: str, text: str) -> None:
    with pytest.raises(BadInput) as e:
        build("andrea-tiny", [item])
    assert text in str(e.value)
    assert "\n" not in str(e.value)


def test_infeasible_caps_are_refused_with_their_sum() -> None:
    caps = [f"arms.{a}.cap=0.2" for a in ("repo-docs", "repo-docstrings", "python-source", "python-topics")]
    with pytest.raises(BadInput, match=r"the caps sum to 0\.8, less than 1"):
        build("andrea-tiny", caps)


@pytest.mark.parametrize("content", [b"[model\n", b"\xff\xfe", b"[model]\nn_layer = 1\nn_layer = 2\n"])
def test_a_file_that_is_no_toml_is_named(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_bytes(content)
    with pytest.raises(BadInput) as e:
        load_config(path)
    assert str(e.value).startswith(f"{path}: not valid TOML")
    assert "\n" not in str(e.value)


def test_a_missing_file_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="missing; `andrea-tui init"):
        load_config(tmp_path / "config.toml")
