"""What becomes of an arm whose data, source or policy is no longer what the run was trained with. One line each."""

import json
import shutil
from pathlib import Path

import pytest

from andrea_tui.cli import run as cli
from engine.rundir import names
from tests import engine_process as e
from tests.conftest import MakeRun, make_small, make_stopped


def refused(run: Path) -> str:
    """The one line with which the trainer refuses to start; nothing else changed."""
    log, before = (run / "trainer.log").read_text(), (run / names.LOSS).read_bytes()
    assert e.finish(run) == 2
    assert (run / names.LOSS).read_bytes() == before
    said = (run / "trainer.log").read_text()[len(log) :].strip()
    assert "Traceback" not in said
    assert "\n" not in said, said
    return said


@pytest.fixture(scope="module")
def trained(texts: Path, prepared: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """25 steps, then stopped."""
    run = tmp_path_factory.mktemp("life") / "run"
    return make_stopped(
        run, texts, prepared, ["kind=ucb1", "ucb1.focus=1", "ucb1.rerank=1", "ucb1.least=2"], 25
    )


@pytest.fixture
def run(trained: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(trained, tmp_path / "run"))


def test_a_zombie_is_refused_by_name(run: Path) -> None:
    """Its files are gone, then its place in the manifest too, then all of data/."""
    for path in (run / "data" / "arms").glob("beta.*"):
        path.unlink()
    said = refused(run)
    assert "beta (train part missing)" in said
    assert "andrea-tui pivot" in said
    manifest = json.loads((run / "data" / "manifest.json").read_text())
    del manifest["arms"]["beta"]
    (run / "data" / "manifest.json").write_text(json.dumps(manifest))
    said = refused(run)
    assert "zombie arms: the mix remembers beta," in said
    assert "andrea-tui pivot" in said
    shutil.rmtree(run / "data")
    assert "zombie arms: the mix remembers alpha, beta," in refused(run)


def test_a_policy_is_changed_by_a_pivot_only(run: Path) -> None:
    policy = (run / "policy.toml").read_text()
    (run / "policy.toml").write_text(policy.replace("floor = 0.2", "floor = 0.25", 1))
    said = refused(run)
    assert "policy.toml: arms.alpha.floor: is 0.25, but this phase runs under 0.2" in said
    assert "andrea-tui pivot" in said
    (run / "policy.toml").write_text(policy.partition("[arms.beta]")[0])
    assert "arms.beta" in refused(run)
    (run / "policy.toml").write_text("# a comment is no change\n" + policy)
    assert e.finish(run, "--stop-at", "30") == 0


def test_other_text_under_an_arm_s_name_is_refused(run: Path) -> None:
    manifest = json.loads((run / "data" / "manifest.json").read_text())
    manifest["arms"]["beta"]["content_sha256"] = "0" * 64
    (run / "data" / "manifest.json").write_text(json.dumps(manifest))
    assert "the text of beta is not the one that this run was trained on" in refused(run)


def test_a_source_that_changed_or_went_is_said_and_the_run_goes_on(texts: Path, tmp_path: Path) -> None:
    mine = Path(shutil.copytree(texts, tmp_path / "texts"))
    run = tmp_path / "run"
    make_small(run, mine, [])
    assert e.finish(run, "--stop-at", "3") == 0
    (mine / "alpha" / "00.txt").write_text("other words\n")
    shutil.rmtree(mine / "beta")
    assert e.finish(run, "--stop-at", "6") == 0
    told = [x.text for x in e.named(run, "warning")]
    assert len(told) == 2, told
    assert "arms.alpha" in told[0]
    assert "changed since it was tokenised; the run goes on" in told[0]
    assert "arms.beta" in told[1]
    assert "is not there any more" in told[1]


def test_an_arm_is_read_so_often_and_no_more(small_run: MakeRun) -> None:
    many = [
        "train.max_steps=900",
        "train.checkpoint_every=300",
        "train.sample_every=300",
        "train.eval_every=300",
    ]
    run = small_run("run", "max_epochs=1", *many)
    assert e.finish(run) == 2  # in the end no arm is left
    assert {x.text.partition(":")[0] for x in e.named(run, "exhausted")} <= {"alpha", "beta"}
    assert "will be exhausted about step" in e.named(run, "started")[0].info["plan"]["max_epochs"]
    (failed,) = e.named(run, "failed")
    assert "no mix is possible" in failed.text
    assert (run / f"step_{e.history(run).last:06d}.bin").exists()  # it stopped at a checkpoint


def test_the_state_is_a_cache_of_the_log(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Used where it fits, else made anew; `verify` finds one that lies; the run ends the same in every case."""
    state = json.loads((run / names.STATE).read_text())
    assert (state["step"], state["kind"], sorted(state["arms"])) == (25, "ucb1", ["alpha", "beta"])
    assert sum(a["pulls"] for a in state["arms"].values()) == 25 * 4
    assert cli(["verify", str(run)]) == 0
    assert "equals the fold of its 25 lines" in capsys.readouterr().out
    lying = {**state, "arms": {**state["arms"], "alpha": {**state["arms"]["alpha"], "credit": 0}}}
    (run / names.STATE).write_text(json.dumps(lying))
    assert cli(["verify", str(run)]) == 1
    assert "is not what its lines fold to" in capsys.readouterr().out
    ends = []
    for name, content in {
        "good": json.dumps(state), "missing": None, "broken": "{", "old": json.dumps({**state, "step": 24}),
    }.items():  # fmt: skip
        copy = Path(shutil.copytree(run, run.parent / name))
        (copy / names.STATE).unlink()
        if content is not None:
            (copy / names.STATE).write_text(content)
        assert e.finish(copy, "--stop-at", "45") == 0
        ends.append((e.sha(copy / "step_000045.bin"), (copy / names.STATE).read_bytes()))
        folded = "folded from the log" in (copy / "trainer.log").read_text()
        assert folded == (name != "good")
    assert len(set(ends)) == 1
