"""verify, rollback, prune and the disk guard, on a real run."""

import os
import shutil
import signal
from pathlib import Path

import pytest

from andrea_tui.cli import run as cli
from engine import plan
from engine.rundir import checkpoint, names
from tests import engine_process as e
from tests.conftest import MakeRun


@pytest.fixture(scope="module")
def trained(texts: Path, prepared: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """40 steps, with checkpoints at 10, 20, 30 and 40, then a crash at 44 or later."""
    from tests.conftest import make_small

    run = tmp_path_factory.mktemp("trained") / "run"
    make_small(run, texts, ["keep.last=9"])
    shutil.copytree(prepared / "data", run / "data")
    assert e.kill_at_step(run, 44, signal.SIGKILL) == -signal.SIGKILL
    return run


@pytest.fixture
def copy(trained: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(trained, tmp_path / "run"))


def test_a_good_run_verifies_and_its_newest_checkpoint_can_be_recomputed(
    copy: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli(["verify", str(copy), "--replay"]) == 0
    out = capsys.readouterr().out
    assert "canonical to step" in out
    assert "identical; replayed 10 of 10 identical" in out
    assert not [x for x in os.listdir(copy) if x.startswith(".replay")]


def test_a_recomputed_checkpoint_under_another_learning_rate_is_not_the_recorded_one(
    copy: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Control: --replay can fail."""
    text = (copy / "config.toml").read_text()
    (copy / "config.toml").write_text(text.replace("lr = 0.002", "lr = 0.0021", 1))
    assert cli(["verify", str(copy), "--replay", "30"]) == 1
    assert "NOT the recorded one" in capsys.readouterr().out


DAMAGE = ["bit", "short", "gap", "line", "data", "event", "ahead"]


@pytest.mark.parametrize("how", DAMAGE)
def test_damage_is_named_with_exit_1(how: str, copy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    newest = checkpoint.scan(copy)[0][0].path
    loss = copy / names.LOSS
    want = newest.name
    if how == "bit":
        data = bytearray(newest.read_bytes())
        data[500] ^= 4
        newest.write_bytes(data)
    elif how == "short":
        newest.write_bytes(newest.read_bytes()[:-1])
    elif how == "gap":
        lines = loss.read_bytes().splitlines(keepends=True)
        loss.write_bytes(b"".join(lines[:6] + lines[7:]))
        want = "lacks 1 steps, the first of them step 7"
    elif how == "line":
        loss.write_bytes(loss.read_bytes() + b"{broken\n")
        want = "1 damaged lines"
    elif how == "data":
        path = next((copy / "data" / "arms").glob("*.train.u16"))
        data = bytearray(path.read_bytes())
        data[10] ^= 1
        path.write_bytes(data)
        want = "data"
    elif how == "event":
        lines = [
            x
            for x in (copy / names.EVENTS).read_bytes().splitlines(keepends=True)
            if newest.name.encode() not in x
        ]
        (copy / names.EVENTS).write_bytes(b"".join(lines))
    elif how == "ahead":
        lines = loss.read_bytes().splitlines(keepends=True)
        loss.write_bytes(b"".join(lines[:25]))
        want = "the history ends at step 25"
    assert cli(["verify", str(copy)]) == 1
    out = capsys.readouterr().out
    assert any("damaged" in x and want in x for x in out.splitlines()), out


def test_rollback_goes_on_from_an_earlier_checkpoint_and_loses_nothing(
    copy: Path, small_run: MakeRun, capsys: pytest.CaptureFixture[str]
) -> None:
    log = (copy / names.LOSS).read_bytes()
    before = e.canonical(copy)
    assert cli(["rollback", str(copy), "--to", "20"]) == 0
    after = (copy / names.LOSS).read_bytes()
    assert after.startswith(log)
    assert after[len(log) :].count(b"\n") == 1  # one appended line is the commit
    assert e.canonical(copy) == before[:20]
    archived = sorted(p.name for p in (copy / "archive" / "0001-step_000020").iterdir())
    assert archived == ["step_000030.bin", "step_000040.bin"]
    (told,) = e.named(copy, "rollback")
    assert (told.step, told.info["back_from"]) == (20, len(before))
    assert {x.step for x in e.samples(copy) if x.seg == told.seg} == {20}
    assert e.finish(copy, "--stop-at", "60") == 0
    whole = small_run("whole")
    assert e.finish(whole, "--stop-at", "60") == 0
    assert e.sha(copy / "step_000060.bin") == e.sha(whole / "step_000060.bin")
    assert e.canonical(copy) == e.canonical(whole)
    assert cli(["verify", str(copy)]) == 0
    capsys.readouterr()


@pytest.mark.parametrize("moment", ["before the files are moved", "in the middle of moving them"])
def test_a_crash_in_a_rollback_leaves_a_run_that_starts_at_the_right_step(
    moment: str, copy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, calls = os.rename, []

    def crash(a: Path, b: Path) -> None:
        calls.append(a)
        if moment.startswith("before") or len(calls) == 2:
            raise OSError(5, "Input/output error")
        real(a, b)

    monkeypatch.setattr(os, "rename", crash)
    assert cli(["rollback", str(copy), "--to", "20"]) == 2
    monkeypatch.undo()
    assert e.finish(copy, "--stop-at", "35") == 0
    assert e.named(copy, "resumed")[-1].step == 20
    assert e.history(copy).missing == 0
    archived = sorted(p.name for p in (copy / "archive").glob("*/*.bin"))
    assert archived == ["step_000030.bin", "step_000040.bin"]  # none is called damaged
    assert e.named(copy, "archived")
    assert not e.named(copy, "set_aside")
    assert e.history(copy).last == 35


@pytest.mark.parametrize(
    ("to", "why"),
    [("0", "make a new run directory"), ("25", "the nearest are"), ("999", "no checkpoint of that step")],
)
def test_a_rollback_that_can_not_be_is_refused(
    to: str, why: str, copy: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = (copy / names.LOSS).read_bytes()
    assert cli(["rollback", str(copy), "--to", to]) == 2
    err = capsys.readouterr().err
    assert why in err
    assert err.count("\n") == 1
    assert (copy / names.LOSS).read_bytes() == log


def test_a_rollback_across_a_phase_is_refused_with_the_word_branch(
    copy: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = (copy / names.LOSS).read_bytes().splitlines(keepends=True)
    changed = [x.replace(b'"phase":0', b'"phase":1') if i >= 25 else x for i, x in enumerate(lines)]
    (copy / names.LOSS).write_bytes(b"".join(changed))
    assert cli(["rollback", str(copy), "--to", "20"]) == 2
    assert "branch a new run" in capsys.readouterr().err


def test_a_run_that_is_trained_is_not_rolled_back(copy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    p = e.start(copy)
    e.wait_for(lambda: e.history(copy).last > 50, "training", p)
    assert cli(["rollback", str(copy), "--to", "20"]) == 2
    assert f"is being trained by process {p.pid}" in capsys.readouterr().err
    p.terminate()
    assert p.wait(e.TIMEOUT) == 0


def test_prune_removes_old_snapshots_only_when_told(copy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = (copy / "config.toml").read_text()
    (copy / "config.toml").write_text(text.replace("last = 9", "last = 2"))
    assert cli(["prune", str(copy)]) == 2
    assert "say --yes" in capsys.readouterr().err
    assert cli(["prune", str(copy), "--yes"]) == 0
    assert [c.step for c in checkpoint.scan(copy)[0]] == [40, 30, 0]
    assert e.named(copy, "pruned")[-1].info["steps"] == [20, 10]
    capsys.readouterr()
    assert cli(["prune", str(copy), "--yes"]) == 0
    assert "nothing to prune" in capsys.readouterr().out


def test_a_disk_too_small_for_the_checkpoints_is_refused_with_the_figures(small_run: MakeRun) -> None:
    run = small_run("run", "keep.last=1000000", "train.max_steps=2000000000", "keep.every=10",
                    "train.checkpoint_every=1", "train.sample_every=1000")  # fmt: skip
    assert e.finish(run) == 2
    (failed,) = e.named(run, "failed")
    assert "are free; make room, keep fewer, or start with --force" in failed.text
    assert not list(run.glob("step_*.bin"))
    assert e.finish(run, "--force", "--stop-at", "2") == 0
    assert plan._size(1.5e12) == "1.5 TB"
