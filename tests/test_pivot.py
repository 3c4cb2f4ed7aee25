"""The pivot: wholly before or wholly after, whatever dies, and the run that follows is the one that it should be."""

import errno
import functools
import os
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from andrea_tui.cli import run as cli
from andrea_tui.runner import Runner
from engine import pivoting
from engine.config import load_policy
from engine.data.manifest import load_manifest
from engine.data.rows import Rows
from engine.errors import PIVOTED, BadInput
from engine.mix.state import read_state
from engine.rundir import checkpoint, names, pivot
from engine.rundir.history import read_history
from engine.rundir.pivot import Pivot
from engine.session import Session
from engine.signals import Flags
from tests import engine_process as e
from tests.conftest import MakeRun, make_stopped
from tests.test_trainer import trainer

SETS = ["kind=ucb1", "ucb1.focus=1", "ucb1.rerank=1", "ucb1.least=2", "train.eval_every=7"]


@pytest.fixture(scope="module")
def trained(texts: Path, prepared: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """25 steps, then stopped cleanly."""
    run = tmp_path_factory.mktemp("pivot") / "run"
    return make_stopped(run, texts, prepared, SETS, 25)


@pytest.fixture
def run(trained: Path, tmp_path: Path) -> Iterator[Path]:
    copy = Path(shutil.copytree(trained, tmp_path / "run"))
    yield copy
    state = Runner(copy).poll()
    if state.alive and state.pid not in (None, os.getpid()):
        os.kill(state.pid or 0, signal.SIGKILL)


def new_policy(run: Path, **changes: str) -> str:
    text = (run / names.POLICY).read_text("utf-8").replace('name = "v1-builtin"', 'name = "v2"')
    for old, new in {"floor = 0.2": "floor = 0.3", **changes}.items():
        text = text.replace(old, new, 1)
    return text


def request(run: Path, when: str = "boundary") -> Pivot:
    text = new_policy(run)
    path = run.parent / "new.toml"
    path.write_text(text, "utf-8")
    return pivoting.request(
        text, load_policy(path), load_policy(run / names.POLICY), e.history(run).last, when
    )


def by_hand(run: Path, folder: Path, step: int) -> Path:
    """What the run becomes whom somebody makes from the checkpoint of `step` and the archived log, by himself."""
    hand = Path(shutil.copytree(run, folder / "hand"))
    for c in checkpoint.scan(hand)[0]:
        if c.step > step:
            c.path.unlink()
    lines = (hand / names.LOSS).read_bytes().splitlines(keepends=True)
    (hand / names.LOSS).write_bytes(b"".join(lines[:step]))
    (hand / names.STATE).unlink()
    return hand


def test_a_running_trainer_pivots_at_the_boundary_and_trains_on(run: Path, tmp_path: Path) -> None:
    p = e.start(run)
    e.wait_for(lambda: e.history(run).last >= 33, "step 33", p)
    asked = request(run)
    assert Runner(run).pivot(asked) is None
    e.wait_for(lambda: bool(e.named(run, "pivot")), "the pivot", p)
    (told,) = e.named(run, "pivot")
    cut = told.step
    e.wait_for(lambda: e.history(run).last >= cut + 25, "25 steps of the new phase", p)
    p.send_signal(signal.SIGTERM)
    assert p.wait(e.TIMEOUT) == 0  # the same process all along

    assert cut == asked.expected(asked.step, 10)
    assert not (run / names.PIVOT).exists()
    h = e.history(run)
    assert h.missing == 0
    assert len((run / names.LOSS).read_bytes().splitlines()) == h.last  # no step is there twice
    assert h.phase.tolist() == [0] * cut + [1] * (h.last - cut)
    archive = run / "archive" / f"0001-step_{cut:06d}"
    assert sorted(os.listdir(archive)) == [
        ".samples.json",
        ".state.json",
        "manifest.json",
        "pivot.json",
        "policy.toml",
    ]
    assert 'name = "v1-builtin"' in (archive / "policy.toml").read_text()
    assert load_policy(run / names.POLICY).name == "v2"
    old = read_state(archive / names.STATE)
    assert old is not None
    assert (old.step, old.phase) == (cut, 0)
    new = read_state(run / names.STATE)
    assert new is not None
    assert (new.phase, new.first, new.policy) == (1, cut + 1, "v2")
    assert min(x.step for x in e.samples(run)) == cut  # an audit of the cut's weights opens the new log
    resumed = e.named(run, "resumed")[-1]
    assert (resumed.step, resumed.info["policy"]) == (cut, "v2")
    snapshot = e.named(run, "snapshot")
    assert snapshot and snapshot[-1].step < cut  # the way back

    # Rows: each arm went on reading where it stopped.
    m = load_manifest(run)
    rows = Rows(run, m, 32, 1)
    for arm in ("alpha", "beta"):
        pulls = h.rows(arm).cumsum()
        assert pulls[-1] < rows.n_rows(arm)  # within its first epoch all rows are different ones
        assert new.arms[arm].pulls == pulls[new.step - 1]
        assert new.arms[arm].drawn == pulls[new.step - 1] - pulls[cut - 1]  # the bandit starts from nothing

    hand = by_hand(run, tmp_path, cut)
    assert e.finish(hand, "--stop-at", str(h.last)) == 0
    name = f"step_{h.last:06d}.bin"
    assert e.sha(hand / name) == e.sha(run / name)
    assert cli(["verify", str(run)]) == 0


def test_now_is_after_the_present_step_and_a_second_request_is_refused(run: Path) -> None:
    p = e.start(run)
    e.wait_for(lambda: e.history(run).last >= 31, "step 31", p)
    pivot.ask(run, request(run, "boundary"))
    with pytest.raises(BadInput, match="a pivot is asked for already, to 'v2', asked by"):
        Runner(run).pivot(request(run, "now"))
    assert Runner(run).withdraw_pivot().new_name == "v2"
    assert e.named(run, "pivot_withdrawn")
    asked = request(run, "now")
    assert Runner(run).pivot(asked) is None
    e.wait_for(lambda: bool(e.named(run, "pivot")), "the pivot", p)
    (told,) = e.named(run, "pivot")
    assert asked.step <= told.step <= asked.step + 30
    for _ in range(1000):
        p.send_signal(signal.SIGUSR1)
    e.wait_for(lambda: e.history(run).last > told.step + 5, "the new phase", p)
    p.send_signal(signal.SIGTERM)
    assert p.wait(e.TIMEOUT) == 0
    assert e.history(run).missing == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_request_outlives_the_trainer_and_the_next_start_goes_on_towards_it(
    run: Path, number: signal.Signals
) -> None:
    p = e.start(run)
    e.wait_for(lambda: e.history(run).last >= 31, "step 31", p)
    asked = request(run)
    pivot.ask(run, asked)  # nobody told the trainer
    p.send_signal(number)
    p.wait(e.TIMEOUT)
    if e.named(run, "pivot"):
        pytest.skip("the trainer was quicker")
    assert pivot.read(run) == asked
    cut = asked.expected(asked.step, 10)
    assert e.finish(run, "--stop-at", str(cut + 15)) == 0
    assert [x.step for x in e.named(run, "pivot")] == [cut]
    assert e.history(run).phase.tolist() == [0] * cut + [1] * 15


def test_a_run_that_ends_before_the_cut_drops_the_request(small_run: MakeRun) -> None:
    run = small_run("run", *SETS, "train.max_steps=25")
    assert e.finish(run, "--stop-at", "22") == 0
    pivot.ask(run, request(run))
    assert e.finish(run) == 0
    assert [x.step for x in e.named(run, "pivot_dropped")] == [25]
    assert not (run / names.PIVOT).exists()
    assert not e.named(run, "pivot")


def test_after_a_crash_without_a_trainer_it_is_done_at_once_from_the_newest_checkpoint(run: Path) -> None:
    """The log reaches further than the checkpoint: rule 3."""
    assert e.kill_at_step(run, 37, signal.SIGKILL) == -signal.SIGKILL
    log = (run / names.LOSS).read_bytes()
    newest = max(c.step for c in checkpoint.scan(run)[0] if e.sha(c.path))
    samples = (run / names.SAMPLES).read_bytes()
    new = run.parent / "new.toml"
    new.write_text(new_policy(run))
    assert cli(["pivot", str(run), "--policy", str(new), "--yes"]) == 0
    assert (run / names.LOSS).read_bytes().startswith(log)
    assert (run / "archive" / f"0001-step_{newest:06d}" / names.SAMPLES).read_bytes() == samples
    assert e.history(run).last == newest
    assert e.finish(run, "--stop-at", "60") == 0
    h = e.history(run)
    assert h.phase.tolist() == [0] * newest + [1] * (60 - newest)
    assert not e.named(run, "set_aside")
    assert cli(["verify", str(run)]) == 0
    for step in (60, newest):  # of the new phase, and of the old one under its archived policy
        assert cli(["verify", str(run), "--replay", str(step)]) == 0
    (run / "archive" / f"0001-step_{newest:06d}" / names.STATE).write_text("{}")
    assert cli(["verify", str(run)]) == 1


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"floor = 0.3": "floor = 0.9", "floor = 0.2": "floor = 0.9"}, "the floors sum to 1.1"),
        ({"floor = 0.2": "floor = 0.3\ncap = 0.1"}, "floor: 0.3 is above cap = 0.1"),
        ({"floor = 0.2": "floor = nan"}, "arms.alpha.floor"),
        ({"floor = 0.2": "flor = 0.2"}, "unknown key"),
        ({"[arms.beta]": "[arms.gamma]"}, ""),
        ({"warmup_steps = 0": "warmup_steps = 5"}, "warmup_arms"),
    ],
)
def test_what_is_impossible_is_refused_with_nothing_touched(
    changes: dict[str, str], why: str, run: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    before = {p.name: p.read_bytes() for p in run.iterdir() if p.is_file()}
    new = run.parent / "new.toml"
    new.write_text(new_policy(run, **changes))
    code = cli(["pivot", str(run), "--policy", str(new), "--yes", "--dry-run"])
    if "[arms.beta]" in changes:
        assert code == 0  # another name for the same text: a new arm, said so
        assert "arm beta: dropped" in capfd.readouterr().out
    else:
        assert code == 2
        said = capfd.readouterr().err
        assert said.count("\n") == 1
        assert why in said or why.lower() in said
    assert {p.name: p.read_bytes() for p in run.iterdir() if p.is_file()} == before


def test_a_full_disk_at_the_cut_moves_it_on_to_the_next_boundary(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pivot.ask(run, request(run))
    real = checkpoint.write

    def write(run_dir: Path, step: int, *rest: Any) -> tuple[str, int]:
        if step == 30:
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(run_dir, step, *rest)

    monkeypatch.setattr(checkpoint, "write", write)
    with trainer(run) as t:
        assert t.run(60) == PIVOTED
        assert t.step == 40
    p = pivot.read(run)
    assert p is not None
    assert (p.cut, p.committed) == (40, True)
    told = [x.text for x in e.named(run, "warning")]
    assert any("the pivot to v2 moves on to the next boundary" in x for x in told), told
    monkeypatch.undo()
    assert e.finish(run, "--stop-at", "45") == 0
    assert e.history(run).phase.tolist() == [0] * 40 + [1] * 5


# ---- whatever dies in the middle

NEVER = 7
CALLS = ("open", "write", "fsync", "rename", "replace", "link", "unlink", "mkdir", "ftruncate", "pwrite")


class Struck:
    """Counts the system calls that write; at the `at`-th one it does something else."""

    def __init__(self, at: int, strike: Callable[[], None], patch: pytest.MonkeyPatch) -> None:
        self.at, self.strike, self.count = at, strike, 0
        for name in CALLS:
            patch.setattr(os, name, self.wrap(name, getattr(os, name)))

    def wrap(self, name: str, real: Callable[..., object]) -> Callable[..., object]:
        def call(*args: object, **more: object) -> object:
            if name != "open" or int(args[1]) & (os.O_CREAT | os.O_WRONLY | os.O_RDWR):  # type: ignore[call-overload]
                self.count += 1
                if self.count == self.at:
                    self.strike()
            return real(*args, **more)

        return call

    @property
    def code(self) -> int:
        """Of work that went through: 0 although it was struck, NEVER where there are no so many calls."""
        return 0 if self.at <= self.count else NEVER


def in_a_child(work: Callable[[], None], at: int) -> int:
    """Do it in a forked process that dies before its `at`-th system call that writes.

    Returns the exit code: 0 done all the same, NEVER without so many calls, 9 died, 1 raised.
    """
    pid = os.fork()
    if pid:
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    code = 1
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        with pytest.MonkeyPatch.context() as m:
            struck = Struck(at, lambda: os._exit(9), m)
            work()
            code = struck.code
    finally:
        os._exit(code)


def with_an_error(work: Callable[[], None], at: int, error: int) -> int:
    """Do it here; the `at`-th system call that writes fails. As `in_a_child`, 1 where that was raised."""

    def fail() -> None:
        raise OSError(error, os.strerror(error))

    with pytest.MonkeyPatch.context() as m:
        struck = Struck(at, fail, m)
        try:
            work()
        except (OSError, BadInput):
            return 1
        return struck.code


def transaction(run: Path) -> None:
    pivoting.execute(run)


def recovery(run: Path) -> None:
    Session(run, Flags()).close()


def starts(run: Path) -> bool:
    try:
        recovery(run)
    except (OSError, BadInput):
        return False
    return True


def whole(run: Path, before: dict[str, bytes]) -> str:
    """ "before", "after", or what is half done."""
    now = {name: (run / name).read_bytes() for name in (names.POLICY, names.SAMPLES, names.LOSS)}
    done = sorted(p.name for p in (run / "archive").glob("*")) if (run / "archive").is_dir() else []
    name = load_policy(run / names.POLICY).name
    if name == "v1-builtin":
        wrong = [k for k in now if now[k] != before[k]]
        if any(not x.endswith(".part") for x in done):
            wrong.append("archive")
        return f"half: {wrong}" if wrong else "before"
    (told,) = e.named(run, "pivot")
    archive = run / str(told.info["archive"])
    wrong = [k for k in (names.POLICY, names.SAMPLES) if (archive / k).read_bytes() != before[k]]
    if (
        now[names.SAMPLES]
        or (run / names.PIVOT).exists()
        or not now[names.LOSS].startswith(before[names.LOSS])
    ):
        wrong.append("run")
    state = read_state(run / names.STATE)
    if state is None or (state.phase, state.policy) != (1, "v2"):
        wrong.append("state")
    return f"half: {wrong}" if wrong else "after"


def fresh(run: Path, i: int) -> Path:
    return Path(shutil.copytree(run, run.parent / f"try-{i}"))


def outcomes(run: Path, before: dict[str, bytes], error: int = 0) -> list[str]:
    """What the run is after its next start, for a death at every system call of the transaction."""
    out = []
    for at in range(1, 400):
        copy = fresh(run, at)
        work = functools.partial(transaction, copy)
        code = with_an_error(work, at, error) if error else in_a_child(work, at)
        out.append(whole(copy, before) if starts(copy) else "half: it does not start")
        shutil.rmtree(copy)
        if code == NEVER:
            return out
    raise AssertionError("the transaction never ended")


@pytest.fixture
def standing(run: Path) -> dict[str, bytes]:
    pivot.ask(run, request(run))
    return {name: (run / name).read_bytes() for name in (names.POLICY, names.SAMPLES, names.LOSS)}


@pytest.mark.parametrize("error", [0, 5, 28], ids=["killed", "EIO", "ENOSPC"])
def test_a_death_or_an_error_at_any_system_call_leaves_it_wholly_before_or_after(
    error: int, run: Path, standing: dict[str, bytes]
) -> None:
    found = outcomes(run, standing, error)
    assert len(found) > 30
    assert {"before", "after"} == set(found), found
    if not error:
        first = found.index("after")
        assert set(found[first:]) == {"after"}, found  # one commit point


def killed_after_the_commit(run: Path) -> Path:
    for at in range(20, 400, 3):
        copy = fresh(run, 1000 + at)
        in_a_child(functools.partial(transaction, copy), at)
        p = pivot.read(copy)
        if p is not None and p.committed:
            return copy
    raise AssertionError("no death left a committed pivot")


def test_a_death_in_the_recovery_is_recovered_from(run: Path, standing: dict[str, bytes]) -> None:
    committed = killed_after_the_commit(run)
    for at in range(1, 100):
        copy = Path(shutil.copytree(committed, run.parent / f"again-{at}"))
        code = in_a_child(functools.partial(recovery, copy), at)
        assert starts(copy)
        assert whole(copy, standing) == "after"
        if code == NEVER:
            return
    raise AssertionError("the recovery never ended")


def test_control_without_the_commit_record_it_is_found_half_done(
    run: Path, standing: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    def switch_at_once(run_dir: Path, p: Pivot) -> None:
        pivot.switch(run_dir, p)

    monkeypatch.setattr(pivot, "commit", switch_at_once)
    monkeypatch.setattr(pivot, "finish", lambda run_dir: None)
    found = outcomes(run, standing)
    assert any(x.startswith("half") for x in found), found


def test_fifty_race_to_ask_and_one_wins(run: Path) -> None:
    asked = request(run)
    children = []
    start = time.monotonic() + 0.5
    for _ in range(50):
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                time.sleep(max(0.0, start - time.monotonic()))
                pivot.ask(run, asked)
                code = 0
            except BadInput as err:
                code = 2 if "asked by" in str(err) else 3
            finally:
                os._exit(code)
        children.append(pid)
    codes = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in children]
    assert sorted(codes) == [0] + [2] * 49
    assert pivot.read(run) == asked


def test_fifty_race_to_start_and_one_wins(run: Path) -> None:
    """The others say who holds the run. The winner holds it until they have all ended."""
    read, write = os.pipe()
    children = []
    for _ in range(50):
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                Session(run, Flags())
                os.read(read, 1)
                code = 0
            except BadInput as err:
                code = 2 if "this run is being trained by process" in str(err) else 3
            finally:
                os._exit(code)
        children.append(pid)
    codes: list[int] = []
    end = time.monotonic() + 60
    while len(codes) < 49 and time.monotonic() < end:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid in children:
            codes.append(os.waitstatus_to_exitcode(status))
            children.remove(pid)
        else:
            time.sleep(0.01)
    assert codes == [2] * 49
    os.write(write, b"x" * 50)
    assert [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in children] == [0]


def test_a_zombie_is_dropped_by_a_pivot(run: Path, capfd: pytest.CaptureFixture[str]) -> None:
    for path in (run / "data" / "arms").glob("beta.*"):
        path.unlink()
    assert e.finish(run) == 2
    new = run.parent / "new.toml"
    new.write_text(new_policy(run).partition("[arms.beta]")[0].replace("floor = 0.3", "floor = 0.0"))
    assert cli(["pivot", str(run), "--policy", str(new), "--yes"]) == 0
    assert "arm beta: the bandit remembers it, its data are gone" in capfd.readouterr().out
    assert e.finish(run, "--stop-at", "35") == 0
    state = read_state(run / names.STATE)
    assert state is not None
    assert list(state.arms) == ["alpha"]
    assert read_history(run / names.LOSS)[0].rows("beta")[25:].sum() == 0
