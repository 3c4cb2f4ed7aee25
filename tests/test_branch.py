"""A branch is the run that the original would have been: same bytes, its own directory, whole or not there."""

import errno
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from andrea_tui.cli import run as cli
from engine import branch as branching
from engine.branch import branch
from engine.config import load_config, load_policy
from engine.data.manifest import load_manifest
from engine.data.rows import Rows
from engine.errors import BadInput
from engine.mix.state import read_state
from engine.rundir import names
from engine.verify import verify
from tests import engine_process as e
from tests.conftest import make_stopped

SETS = ["kind=ucb1", "ucb1.focus=1", "ucb1.rerank=1", "ucb1.least=2", "train.eval_every=7", "keep.last=9"]


@pytest.fixture(scope="module")
def trained(texts: Path, prepared: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """40 steps, with checkpoints at 0, 10, 20, 30 and 40."""
    run = tmp_path_factory.mktemp("branch") / "run"
    return make_stopped(run, texts, prepared, SETS, 40)


@pytest.fixture
def run(trained: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(trained, tmp_path / "run"))


@pytest.fixture
def new(tmp_path: Path) -> Path:
    return tmp_path / "new"


def policy_v2(run: Path, more: str = "", floor: str = "0.6") -> str:
    text = (run / names.POLICY).read_text("utf-8").replace('name = "v1-builtin"', 'name = "v2"')
    return text.replace("floor = 0.2", f"floor = {floor}", 1) + more


def tree(folder: Path) -> dict[str, str]:
    return {str(p.relative_to(folder)): e.sha(p) for p in sorted(folder.rglob("*")) if p.is_file()}


def verified(run: Path, capfd: pytest.CaptureFixture[str], *args: str) -> str:
    capfd.readouterr()
    assert cli(["verify", str(run), *args]) == 0, capfd.readouterr().out
    return capfd.readouterr().out


def test_two_branches_and_the_original_end_bit_identical_and_need_nobody_else(
    run: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    assert cli(["branch", str(run), str(one), "--at", "20"]) == 0
    assert f"start it: andrea-tui {one}" in capfd.readouterr().out
    assert cli(["branch", str(run), str(two), "--at", "20"]) == 0
    assert e.canonical(one) == e.canonical(run)[:20]
    assert os.stat(one / "step_000020.bin").st_nlink == 3  # nothing was copied
    assert e.finish(run, "--stop-at", "60") == 0
    want, history, texts = e.sha(run / "step_000060.bin"), e.canonical(run), e.samples(run)
    shutil.rmtree(run)
    for b in (one, two):
        assert not [p for p in b.rglob("*") if p.is_symlink()]
        verified(b, capfd)
        assert e.finish(b, "--stop-at", "60") == 0
        assert e.sha(b / "step_000060.bin") == want
        assert e.canonical(b) == history
        assert [(x.step, x.text) for x in e.samples(b)] == [(x.step, x.text) for x in texts]
        (resumed,) = e.named(b, "resumed")
        assert resumed.step == 20
        assert not e.named(b, "warning")
    assert "identical" in verified(one, capfd, "--replay")


def test_the_original_may_train_meanwhile_and_only_gains_an_event(
    run: Path, new: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    p = e.start(run)
    e.wait_for(lambda: e.history(run).last > 45, "training", p)
    done = branch(run, new, 30, None, [])
    assert p.poll() is None
    p.terminate()
    assert p.wait(e.TIMEOUT) == 0
    (told,) = e.named(run, "branch")
    (born,) = e.named(new, "branch")
    assert told.step == born.step == 30
    assert told.info == {"to": str(new.resolve()), "sha256": done.sha256}
    assert born.info["from"] == str(run.resolve())
    assert born.info["sha256"] == done.sha256 == e.sha(new / "step_000030.bin")
    assert e.canonical(new) == e.canonical(run)[:30]
    assert {x.step for x in e.samples(new)} == {0, 10, 20, 30}
    assert not done.untold
    verified(new, capfd)
    verified(run, capfd)


def test_the_bandits_state_goes_on_where_the_checkpoint_stood(run: Path, new: Path) -> None:
    branch(run, new, 40, None, [])
    assert read_state(new / names.STATE) == read_state(run / names.STATE)
    assert (new / names.POLICY).read_bytes() == (run / names.POLICY).read_bytes()
    assert (new / "config.toml").read_bytes() == (run / "config.toml").read_bytes()


def test_a_branch_under_another_policy_is_what_a_pivot_there_would_be(
    run: Path, new: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "v2.toml"
    file.write_text(policy_v2(run), "utf-8")
    texts = [x for x in e.samples(run) if x.step <= 20]
    assert cli(["branch", str(run), str(new), "--at", "20", "--policy", str(file)]) == 0
    assert "policy v2: phase 1 begins" in capfd.readouterr().out
    assert (new / names.SAMPLES).read_bytes() == b""
    state = read_state(new / names.STATE)
    assert state is not None
    assert (state.phase, state.first, state.step, state.policy) == (1, 21, 20, "v2")
    assert {a.drawn for a in state.arms.values()} == {0}
    folder = new / "archive" / "0001-step_000020"
    assert (folder / names.POLICY).read_bytes() == (run / names.POLICY).read_bytes()
    assert [x.text for x in e.samples(folder)] == [x.text for x in texts]
    assert not [x for x in new.iterdir() if x.name in (names.LOCK, names.PIVOT, names.PIVOT_LOCK)]
    verified(new, capfd)
    assert cli(["rollback", str(run), "--to", "20"]) == 0
    assert cli(["pivot", str(run), "--policy", str(file), "--yes"]) == 0
    for r in (run, new):
        assert e.finish(r, "--stop-at", "30") == 0
    assert e.sha(new / "step_000030.bin") == e.sha(run / "step_000030.bin")
    assert e.canonical(new) == e.canonical(run)
    assert {x.phase for x in e.canonical(new)[20:]} == {1}


def test_another_seed_begins_a_phase_and_draws_other_rows(
    run: Path, new: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    done = branch(run, new, 20, None, ["run.seed=2", "run.name=other", "optim.lr=0.001"])
    assert done.fresh
    assert done.changed == (
        "run.name: 'run' -> 'other'", "run.seed: 1 -> 2", "optim.lr: 0.002 -> 0.001",
    )  # fmt: skip
    verified(new, capfd)
    assert e.finish(new, "--stop-at", "30") == 0
    assert e.canonical(new)[:20] == e.canonical(run)[:20]
    assert {x.phase for x in e.canonical(new)[20:]} == {1}
    m = load_manifest(new)
    old, other = (Rows(new, m, 32, seed).row("alpha", 100).tolist() for seed in (1, 2))
    assert old != other
    verified(new, capfd)
    (new / "config.toml").write_text((new / "config.toml").read_text().replace("seed = 2", "seed = 1"))
    assert e.finish(new) == 2  # in its own life its seed is as fixed as any run's


def test_new_arms_are_tokenised_into_the_branch_alone(
    run: Path, new: Path, texts: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    before = tree(run / "data")
    branch(run, new, 20, policy_v2(run, f'[arms.gamma]\npath = "{texts / "beta"}"\nfloor = 0.1\n', "0.3"), [])
    assert (new / "data" / "arms" / "gamma.train.u16").is_file()
    assert sorted(load_policy(new / names.POLICY).arms) == ["alpha", "beta", "gamma"]
    assert tree(run / "data") == before
    verified(new, capfd)
    verified(run, capfd)


def test_a_branch_from_an_earlier_phase_stands_in_that_phase(
    run: Path, new: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "v2.toml"
    file.write_text(policy_v2(run), "utf-8")
    old, want = (run / names.POLICY).read_bytes(), e.sha(run / "step_000040.bin")
    assert cli(["pivot", str(run), "--policy", str(file), "--yes"]) == 0
    assert e.finish(run, "--stop-at", "50") == 0
    done = branch(run, new, 30, None, [])
    assert (done.phase, done.policy, done.fresh) == (0, "v1-builtin", False)
    assert (new / names.POLICY).read_bytes() == old
    assert {x.step for x in e.samples(new)} == {0, 10, 20, 30}
    assert e.finish(new, "--stop-at", "40") == 0
    assert e.sha(new / "step_000040.bin") == want
    later = tmp_path / "later"
    done = branch(run, later, 50, None, [])
    assert (done.phase, done.policy) == (1, "v2")
    assert tree(later / "archive") == tree(run / "archive")
    assert [x.info["new"] for x in e.named(later, "pivot")] == ["v2"]
    again = tmp_path / "again"  # of a branch, and of a phase before it
    branch(later, again, 50, None, [])
    shutil.rmtree(run)
    for b in (later, again):
        verified(b, capfd)
    assert len(e.named(again, "branch")) == 2  # where it comes from, and where that came from


def test_a_branch_can_begin_at_step_0(run: Path, new: Path, capfd: pytest.CaptureFixture[str]) -> None:
    done = branch(run, new, 0, policy_v2(run), ["run.seed=5"])
    assert (done.phase, done.at) == (1, 0)
    assert e.canonical(new) == []
    verified(new, capfd)


Break = Callable[[Path], list[str]]


def _damage(run: Path) -> list[str]:
    path = run / "step_000020.bin"
    data = bytearray(path.read_bytes())
    data[500] ^= 4
    path.write_bytes(data)
    return []


def _file(text: str) -> Break:
    def write(run: Path) -> list[str]:
        file = run.parent / "p.toml"
        file.write_text(policy_v2(run) + text if text.startswith("\n") else text, "utf-8")
        return ["--policy", str(file)]

    return write


def _set(item: str) -> Break:
    return lambda run: ["--set", item]


def _config_gone(run: Path) -> list[str]:
    (run / "config.toml").unlink()
    return []


def _cut_log(run: Path) -> list[str]:
    lines = (run / names.LOSS).read_bytes().splitlines(keepends=True)
    (run / names.LOSS).write_bytes(b"".join(lines[:15]))
    return []


def _data_gone(run: Path) -> list[str]:
    (run / "data" / "arms" / "alpha.train.u16").unlink()
    return []


def _edited(run: Path) -> list[str]:
    (run / names.POLICY).write_text(policy_v2(run), "utf-8")
    return []


REFUSED: dict[str, tuple[Break, str]] = {
    "damaged checkpoint": (_damage, "is in no checkpoint event of step 20; choose another one"),
    "no run": (_config_gone, "missing; `andrea-tui init"),
    "log too short": (_cut_log, "the history ends at step 15"),
    "data gone": (_data_gone, "data of alpha (train part missing)"),
    "policy edited": (_edited, "set it back"),
    "frozen": (_set("model.n_layer=2"), "model.n_layer: is 1 in the checkpoint and can't change"),
    "rows": (_set("train.rows=8"), "train.rows: is 4 in the checkpoint"),
    "unknown key": (_set("optim.lrr=1"), "did you mean lr?"),
    "unknown table": (_set("optimm.lr=1"), "did you mean optim?"),
    "policy key": (_set("kind=static"), "is a key of the policy"),
    "value": (_set("optim.lr=-1"), "optim.lr"),
    "no value": (_set("optim.lr"), "write it as key=value"),
    "too short": (_set("train.max_steps=20"), "would end the branch where it begins"),
    "floors": (_file('\n[arms.c]\nbuiltin = "repo-docstrings"\nfloor = 0.9\n'), "the floors sum to 1.7"),
    "typo": (_file("nmae = 1\n"), "nmae"),
    "no toml": (_file("= = ="), "not valid TOML"),
    "no such file": (lambda run: ["--policy", "/nowhere.toml"], "/nowhere.toml: can't be read"),
    "no text": (
        _file('\n[arms.c]\npath = "/nowhere/*.txt"\nfloor = 0.1\n'),
        "no file matches /nowhere/*.txt",
    ),
}


@pytest.mark.parametrize("how", REFUSED)
def test_what_is_wrong_is_one_line_and_nothing_is_made(
    how: str, run: Path, new: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    spoil, why = REFUSED[how]
    args = spoil(run)
    before = tree(run)
    assert cli(["branch", str(run), str(new), "--at", "20", *args]) == 2
    err = capfd.readouterr().err
    assert why in err
    assert err.count("\n") == 1
    assert ".branch-" not in err  # the name that the person gave, not the temporary one
    assert tree(run) == before
    assert [x.name for x in new.parent.iterdir() if "new" in x.name] == []


@pytest.mark.parametrize(
    ("at", "to", "why"),
    [
        ("25", "new", "no checkpoint of that step; the nearest are 30, 20"),
        ("999", "new", "the nearest are 40, 30, 20"),
        ("20", "there", "is there already"),
        ("20", "run/new", "lies inside the run"),
        ("20", "file/new", "Not a directory"),
        ("20", "n" * 300, "File name too long"),
    ],
)
def test_a_place_or_step_that_can_not_be_is_refused(
    at: str, to: str, why: str, run: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "file").write_text("")
    before = tree(run)
    assert cli(["branch", str(run), str(tmp_path / to), "--at", at]) == 2
    err = capfd.readouterr().err
    assert why in err
    assert err.count("\n") == 1
    assert tree(run) == before
    assert not [x for x in tmp_path.iterdir() if x.name.startswith(".")]


def test_without_hard_links_everything_is_copied(
    run: Path, new: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def link(*a: object, **b: object) -> None:
        raise OSError(errno.EXDEV, "Invalid cross-device link")

    monkeypatch.setattr(os, "link", link)
    done = branch(run, new, 20, policy_v2(run), [])
    monkeypatch.undo()
    assert not done.linked
    assert {p.stat().st_nlink for p in new.rglob("*") if p.is_file()} == {1}
    verified(new, capfd)


@pytest.mark.parametrize("call", ["rename", "fsync", "link"])
def test_an_error_of_the_disk_at_any_moment_leaves_nothing_half(
    call: str, run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The n-th call fails, for every n, until there are no n calls."""
    before, policy, real = tree(run), policy_v2(run), getattr(os, call)
    n, calls = 0, 1
    while calls >= n:
        n, calls, new = n + 1, 0, tmp_path / f"new{n}"

        def broken(*a: object, at: int = n, **b: object) -> object:
            nonlocal calls
            calls += 1
            if calls == at:
                raise OSError(errno.EIO, "Input/output error")
            return real(*a, **b)

        with monkeypatch.context() as m:
            m.setattr(os, call, broken)
            why = attempt(run, new, policy)
        assert "\n" not in why
        assert new.exists() is not bool(why)
        assert not [x for x in tmp_path.iterdir() if ".branch-" in x.name]
        if new.exists():
            assert verify(new, lambda f: None)
            shutil.rmtree(new)
    assert n > 3
    after = tree(run)
    before[names.EVENTS] = after[names.EVENTS]
    assert after == before


def attempt(run: Path, new: Path, policy: str) -> str:
    """Why it was refused, or nothing."""
    try:
        branch(run, new, 20, policy, [])
    except BadInput as e:
        return str(e)
    return ""


def test_a_pivot_that_is_committed_and_not_finished_is_waited_for_then_refused(
    run: Path, new: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from engine import pivoting
    from engine.config import parse_policy
    from engine.rundir import pivot

    text = policy_v2(run)
    p = pivoting.request(text, parse_policy(text, "x"), load_policy(run / names.POLICY), 40, "now")
    p.committed = True
    (run / names.PIVOT).write_bytes(pivot.encode(p))
    monkeypatch.setattr(branching, "_PATIENCE", 0.2)
    with pytest.raises(BadInput, match="committed and not finished"):
        branch(run, new, 20, None, [])
    p.committed = False
    (run / names.PIVOT).write_bytes(pivot.encode(p))
    branch(run, new, 20, None, [])
    assert not (new / names.PIVOT).exists()  # a request stays with the run it was asked of
    assert load_config(new / "config.toml") == load_config(run / "config.toml")
