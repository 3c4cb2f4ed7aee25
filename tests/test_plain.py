"""`andrea-tui` without a terminal, and what its command line refuses."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from andrea_tui.cli import run as cli
from andrea_tui.runner import Runner
from engine.rundir import checkpoint, lock
from tests import engine_process as e
from tests.conftest import MakeRun
from tests.terminal import alive, end

LONG = (
    "train.max_steps=1000000",
    "train.checkpoint_every=1000",
    "train.sample_every=1000",
    "train.eval_every=1000",
)


@contextmanager
def plain(run: Path, *args: str) -> Iterator[subprocess.Popen[str]]:
    p = subprocess.Popen(
        [sys.executable, "-m", "andrea_tui", str(run), *args],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True,
    )  # fmt: skip
    try:
        yield p
    finally:
        if p.poll() is None:
            p.kill()
            p.wait()
        holder = lock.probe(run)
        if holder is not None:
            end(holder.pid)


def trainer_of(run: Path) -> int:
    e.wait_for(lambda: lock.probe(run) is not None, "the trainer")
    holder = lock.probe(run)
    assert holder is not None
    return holder.pid


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_stops_the_training_cleanly_and_no_process_is_left(
    number: signal.Signals, small_run: MakeRun
) -> None:
    run = small_run("run", *LONG)
    with plain(run) as p:
        e.wait_for(lambda: e.history(run).last > 5, "training", p)
        trainer = trainer_of(run)
        p.send_signal(number)
        p.send_signal(number)
        out, _ = p.communicate(timeout=e.TIMEOUT)
    assert p.returncode == 0
    assert not alive(trainer)
    (stopped,) = e.named(run, "stopped")
    assert checkpoint.inspect(run / f"step_{stopped.step:06d}.bin").step == e.history(run).last
    assert "started the trainer, pid" in out
    assert "257" in next(
        x for x in out.splitlines() if x.strip().startswith("model")
    )  # the plan, on one screen
    assert "stopping the training cleanly" in out
    assert f"stopped: stopped by SIGTERM at step {stopped.step}" in out


def test_a_closed_pipe_stops_the_training_that_it_started(small_run: MakeRun) -> None:
    run = small_run("run", *LONG)
    with plain(run) as p:
        assert p.stdout is not None
        assert "started the trainer" in p.stdout.readline()
        trainer = trainer_of(run)
        p.stdout.close()  # what `| head -1` does
        assert p.wait(e.TIMEOUT) == 0
    assert not alive(trainer)
    assert [x.event for x in e.events(run)][-1] == "stopped"


def test_a_closed_pipe_of_one_that_only_attached_leaves_the_training_alone(small_run: MakeRun) -> None:
    run = small_run("run", *LONG)
    trainer = e.start(run)
    e.wait_for(lambda: e.history(run).last > 2, "training", trainer)
    with plain(run) as p:
        assert p.stdout is not None
        assert f"attached to the trainer, pid {trainer.pid}" in p.stdout.readline()
        p.stdout.close()
        assert p.wait(e.TIMEOUT) == 0
        assert trainer.poll() is None
        trainer.terminate()
        assert trainer.wait(e.TIMEOUT) == 0


def test_a_finished_run_and_a_dead_one_give_their_exit_codes(small_run: MakeRun) -> None:
    run = small_run("run", "train.max_steps=12")
    with plain(run) as p:
        out, _ = p.communicate(timeout=e.TIMEOUT)
    assert (p.returncode, "finished: step 12 of 12" in out) == (0, True)
    for path in run.glob("step_*.bin"):
        path.unlink()
    with plain(run) as p:
        out, _ = p.communicate(timeout=e.TIMEOUT)
    assert p.returncode == 2
    assert "no checkpoint is left" in out
    run = small_run("killed", *LONG)
    with plain(run) as p:
        e.wait_for(lambda: e.history(run).last > 2, "training")
        os.kill(trainer_of(run), signal.SIGKILL)
        out, _ = p.communicate(timeout=e.TIMEOUT)
    assert p.returncode == 128 + signal.SIGKILL
    assert "killed by signal 9" in out


def test_stop_while_the_data_is_prepared_and_again_from_the_start(texts: Path, tmp_path: Path) -> None:
    """A big arm takes its time; a stop in the middle leaves a run that simply prepares again."""
    from tests.conftest import make_small

    run = tmp_path / "run"
    make_small(run, texts, ["train.max_steps=3"])
    big = tmp_path / "big"
    big.mkdir()
    for i in range(100):
        (big / f"{i}.txt").write_text(f"text {i} " * 20_000)
    policy = (run / "policy.toml").read_text()
    (run / "policy.toml").write_text(policy + f'[arms.big]\npath = "{big}"\n')
    p = e.start(run)
    e.wait_for(lambda: b'"preparing"' in read(run / ".status.json"), "preparing", p)
    p.terminate()
    assert p.wait(e.TIMEOUT) == 0
    assert "while" in e.named(run, "stopped")[0].text
    assert not (run / "data" / "manifest.json").exists()
    assert e.finish(run) == 0
    assert e.history(run).last == 3


def read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return b""


REFUSED = [
    (["{}/new", "--preset", "andrea-13m"], "unknown preset 'andrea-13m', did you mean andrea-12m?"),
    (["init", "{}/new", "--set", "model.d_model=100", "--set", "model.n_head=3"], "model.d_model: 100 is not"),
    (["{}/file"], "is a file; choose another name"),
    (["{}/full"], "holds other files and no config.toml"),
    (["{}/new", "--watch"], "--watch makes none"),
    (["verify", "{}/new"], "config.toml: missing"),
]  # fmt: skip


@pytest.mark.parametrize(("args", "text"), REFUSED)
def test_refused_in_one_line_with_exit_2_and_nothing_written(
    args: list[str], text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("x")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.tex").write_text("x")
    before = sorted(tmp_path.rglob("*"))
    assert cli([a.format(tmp_path) for a in args]) == 2
    err = capsys.readouterr().err
    assert text in err
    assert err.count("\n") == 1
    assert sorted(tmp_path.rglob("*")) == before


def test_init_makes_a_run_and_never_a_second_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = tmp_path / "deep" / "run"
    assert cli(["init", str(run), "--preset", "andrea-120m", "--set", "run.seed=5"]) == 0
    assert "seed = 5" in (run / "config.toml").read_text()
    text = (run / "config.toml").read_bytes()
    assert cli(["init", str(run)]) == 2
    assert "is a run already" in capsys.readouterr().err
    assert (run / "config.toml").read_bytes() == text


def test_the_cockpit_never_imports_torch() -> None:
    code = (
        "import sys, andrea_tui.app, andrea_tui.plain, andrea_tui.maintenance; print('torch' in sys.modules)"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert out.strip() == "False"


def test_starters_that_race_make_one_trainer(small_run: MakeRun) -> None:
    """Every runner that looks, and starts where it sees none: the lock lets one of them through."""
    run = small_run("run", *LONG)
    runners = [Runner(run) for _ in range(6)]
    for r in runners:
        r.start()
    e.wait_for(lambda: e.history(run).last > 2, "training")
    e.wait_for(lambda: len({r.poll().pid for r in runners if r.poll().alive}) == 1, "one trainer")
    e.wait_for(lambda: all(r.poll().alive for r in runners), "all to be attached to it")
    assert len(e.named(run, "started")) == 1
    runners[0].stop()
    assert all(r.wait(e.TIMEOUT) for r in runners)
