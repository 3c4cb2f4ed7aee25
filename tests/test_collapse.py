"""A model that wrote words and is ruined on purpose is reported within five audits; its undamaged twin never is."""

import shutil
from pathlib import Path

import pytest

from andrea_tui.cli import make_run
from engine.collapse import IN_A_ROW, audits, collapse
from engine.rundir.records import SampleLine
from tests import engine_process as e

EVERY, RUINED_AT, END = 20, 200, 320
SETS = [
    "model.n_layer=2", "model.n_head=2", "model.d_model=96", "model.context=96", "tokenizer.vocab=1281", "train.rows=8",
    f"train.max_steps={END}", f"train.checkpoint_every={EVERY}", f"train.sample_every={EVERY}",
    "audit.tokens=80", "optim.lr=5e-3", "optim.min_lr=5e-4", "optim.warmup_steps=20",
]  # fmt: skip


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """It writes words already: no audit of the last eight is low."""
    run = tmp_path_factory.mktemp("collapse") / "run"
    make_run(run, "andrea-tiny", SETS)
    head, _, _ = (run / "policy.toml").read_text("utf-8").partition("[arms.")
    arms = "".join(f'[arms.{a}]\nbuiltin = "{a}"\n' for a in ("python-topics", "repo-docs"))
    (run / "policy.toml").write_text(head + arms, "utf-8")
    assert e.finish(run, "--stop-at", str(RUINED_AT)) == 0
    assert not any(low for _, low in audits(e.samples(run))[-8:])
    return run


def test_a_ruined_run_is_reported_and_halts_where_that_is_asked_for(trained: Path) -> None:
    run = Path(shutil.copytree(trained, trained.parent / "ruined"))
    config = (run / "config.toml").read_text()
    config = config.replace("lr = 0.005 ", "lr = 0.5 ").replace("min_lr = 0.0005 ", "min_lr = 0.5 ")
    config = config.replace("halt_on_collapse = false", "halt_on_collapse = true")
    (run / "config.toml").write_text(config)
    assert e.finish(run) == 3
    (told,) = e.named(run, "collapse")
    assert told.step == RUINED_AT + IN_A_ROW * EVERY
    assert told.info["since"] == RUINED_AT + EVERY
    (failed,) = e.named(run, "failed")
    assert "halt_on_collapse" in failed.text
    assert (run / f"step_{told.step:06d}.bin").exists()


def test_its_twin_goes_on_and_is_never_reported(trained: Path) -> None:
    run = Path(shutil.copytree(trained, trained.parent / "twin"))
    assert e.finish(run) == 0
    assert not e.named(run, "collapse")
    assert e.named(run, "audit")[-1].info["reference"]["coherence"][1] <= 100


def sample(step: int, verdict: str | None, mode: str = "sampled", prompt: str = "a") -> SampleLine:
    return SampleLine(
        step=step, phase=0, prompt=prompt, mode=mode, text="x", tokens=1, t=0, seg=1, verdict=verdict
    )


def test_only_sampled_texts_that_were_scored_count_and_most_of_them_must_be_bad() -> None:
    lines = [
        sample(1, "loop", "greedy"),
        sample(1, ""),
        sample(2, None),
        sample(3, "noise"),
        sample(3, "", prompt="b"),
    ]
    assert audits(lines) == [(1, False), (3, False)]
    assert audits([*lines, sample(3, "salad", prompt="c")]) == [(1, False), (3, True)]
    assert audits([sample(1, "copy")]) == [(1, False)]


def test_five_in_a_row_after_a_good_one() -> None:
    low = [(i, True) for i in range(2, 12)]
    assert collapse([(1, False), *low[:4]]) is None
    assert collapse([(1, False), *low[:5]]) == 2
    assert collapse([(1, False), *low]) == 2
    assert collapse([(1, False), *low, (20, False)]) is None  # it writes again
    assert collapse(low) is None  # it never wrote: it has not learnt yet
    assert collapse(low, good_before=True) == 2
    assert collapse([]) is None
