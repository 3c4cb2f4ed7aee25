"""The real trainer as a process: signals, resume, refusals."""

import os
import signal
import time
from pathlib import Path

import numpy as np
import pytest

from engine.rundir import checkpoint
from tests import engine_process as e
from tests import forked
from tests.conftest import MakeRun


def test_a_run_that_is_interrupted_in_every_way_ends_with_the_same_bytes(
    small_run: MakeRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Cold starts with as many threads as the machine has: all as a person has it. `test_torture` does hundreds."""
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    whole, cut = small_run("whole", "train.max_steps=60"), small_run("cut", "train.max_steps=60")
    assert e.start_cold(whole).wait(e.TIMEOUT) == 0
    assert e.kill_at_step(cut, 17, signal.SIGKILL, start=e.start_cold) == -signal.SIGKILL
    assert e.kill_at_step(cut, 39, signal.SIGTERM, start=e.start_cold) == 0
    stopped_at = e.named(cut, "stopped")[-1].step
    assert stopped_at >= 39
    assert (cut / f"step_{stopped_at:06d}.bin").stat().st_size == 8 + 12 * e.named(cut, "started")[0].info[
        "params"
    ]
    assert e.start_cold(cut).wait(e.TIMEOUT) == 0
    assert e.sha(cut / "step_000060.bin") == e.sha(whole / "step_000060.bin")
    assert e.canonical(cut) == e.canonical(whole)
    texts = [{(x.step, x.prompt, x.mode, x.text) for x in e.samples(run)} for run in (whole, cut)]
    assert texts[0] <= texts[1]
    replayed = e.named(cut, "replayed")
    assert replayed
    assert all(x.info["same"] == x.info["total"] for x in replayed)
    assert [x.step for x in e.named(whole, "finished")] == [60]


def test_a_changed_learning_rate_is_said_and_the_log_goes_on_from_the_difference(small_run: MakeRun) -> None:
    run = small_run("run")
    e.kill_at_step(run, 27, signal.SIGKILL)
    before = (run / ".loss.json").read_bytes()
    config = (run / "config.toml").read_text()
    (run / "config.toml").write_text(config.replace("lr = 0.002", "lr = 0.004", 1))
    assert e.finish(run, "--stop-at", "40") == 0
    assert (run / ".loss.json").read_bytes().startswith(before)
    assert any("optim.lr: 0.002 -> 0.004" in x.text for x in e.named(run, "warning"))
    (told,) = e.named(run, "replayed")
    assert "lr " in told.info["difference"]
    h = e.history(run)
    assert (h.last, h.missing) == (40, 0)


def test_signals(small_run: MakeRun) -> None:
    """SIGUSR1 in plenty makes one checkpoint and goes on; SIGTERM twice stops once; both before torch is there."""
    run = small_run(
        "run", "train.max_steps=100000", "train.checkpoint_every=10000", "train.sample_every=10000"
    )
    p = e.start_cold(run)
    e.wait_for(lambda: (run / ".lock").exists(), "the lock", p)
    for _ in range(50):
        os.kill(p.pid, signal.SIGUSR1)  # torch is still being imported
    e.wait_for(lambda: len(e.named(run, "snapshot")) == 1, "the early snapshot", p)
    at = e.history(run).last
    e.wait_for(lambda: e.history(run).last > at + 5, "more steps", p)
    assert len(e.named(run, "snapshot")) == 1
    os.kill(p.pid, signal.SIGUSR1)
    e.wait_for(lambda: len(e.named(run, "snapshot")) == 2, "the second snapshot", p)
    step = e.named(run, "snapshot")[-1].step
    assert checkpoint.inspect(run / f"step_{step:06d}.bin").step == step
    e.wait_for(
        lambda: any(x.step == step for x in e.named(run, "audit")), "its audit", p
    )  # a stop would cut it short
    os.kill(p.pid, signal.SIGTERM)
    os.kill(p.pid, signal.SIGTERM)
    assert p.wait(e.TIMEOUT) == 0
    last = e.history(run).last
    assert [x.step for x in e.named(run, "stopped")] == [last]
    assert checkpoint.inspect(run / f"step_{last:06d}.bin").step == last
    assert "SIGTERM" in e.named(run, "stopped")[0].text
    assert sorted({x.step for x in e.samples(run)}) == [0, *(x.step for x in e.named(run, "snapshot"))]


@pytest.mark.parametrize("ignored", [False, True])
def test_hangup_stops_unless_it_is_ignored(ignored: bool, small_run: MakeRun) -> None:
    run = small_run("run", "train.max_steps=100000")
    p = forked.server().start(run, variant="tests.forked:nohup" if ignored else "tests.forked:real")
    e.wait_for(lambda: e.history(run).last >= 3, "step 3", p)
    os.kill(p.pid, signal.SIGHUP)
    if ignored:
        at = e.history(run).last
        e.wait_for(lambda: e.history(run).last > at + 10, "more steps", p)
        os.kill(p.pid, signal.SIGINT)
    assert p.wait(e.TIMEOUT) == 0
    assert ("SIGINT" if ignored else "SIGHUP") in e.named(run, "stopped")[0].text


def test_pruning_keeps_the_last_the_round_ones_and_what_a_person_asked_for(small_run: MakeRun) -> None:
    run = small_run("run", "train.max_steps=125")
    p = e.start(run)
    e.wait_for(lambda: e.history(run).last >= 12, "step 12", p)
    os.kill(p.pid, signal.SIGUSR1)
    assert p.wait(e.TIMEOUT) == 0
    (snapshot,) = e.named(run, "snapshot")
    kept = sorted(c.step for c in checkpoint.scan(run)[0])
    assert kept == sorted({0, 50, 100, 110, 120, 125, snapshot.step})


def test_a_damaged_newest_checkpoint_is_set_aside_and_the_one_before_is_used(small_run: MakeRun) -> None:
    run = small_run("run", "train.max_steps=60")
    assert e.finish(run, "--stop-at", "45") == 0
    newest = run / "step_000045.bin"
    data = bytearray(newest.read_bytes())
    data[999] ^= 1
    newest.write_bytes(data)
    (run / ".step_000046.bin.tmp-1").write_bytes(b"x")
    n = e.named(run, "started")[0].info["params"]
    leftover = [np.ones(n, np.float32)] * 3  # of another run: a higher number, and no line that leads to it
    checkpoint.write(run, 900, leftover, lambda sha: None)
    assert e.finish(run) == 0
    told = {x.info["file"]: x.text for x in e.named(run, "set_aside")}
    assert set(told) == {"step_000045.bin.bad-1", "step_000900.bin.bad-1"}
    assert "the history ends at step 45" in told["step_000900.bin.bad-1"]
    assert (run / "step_000045.bin.bad-1").read_bytes() == data
    assert not (run / ".step_000046.bin.tmp-1").exists()
    (replayed,) = e.named(run, "replayed")
    assert (replayed.info["same"], replayed.info["total"]) == (5, 5)
    whole = small_run("whole", "train.max_steps=60")
    assert e.finish(whole) == 0
    assert e.sha(run / "step_000060.bin") == e.sha(whole / "step_000060.bin")


def test_a_stop_while_compiling_ends_at_once(small_run: MakeRun, tmp_path: Path) -> None:
    """torch.compile looks at no flag and takes many seconds; nothing is lost, since nothing was begun."""
    run = small_run("run", "train.compile=true")
    process = e.start(run)
    e.wait_for(lambda: e.doing(run) == "compiling", "the compiler", process)
    process.send_signal(signal.SIGTERM)
    assert process.wait(e.TIMEOUT) == 0
    (stopped,) = e.named(run, "stopped")
    assert "while compiling" in stopped.text
    assert not e.named(run, "started")  # it was still compiling
    assert (run / "step_000000.bin").exists()
    assert "Traceback" not in (run / "trainer.log").read_text()


def refused(run: Path, *args: str) -> str:
    log = run.parent / f"said-{time.monotonic_ns()}"
    assert forked.server().start(run, *args, log=log).wait(e.TIMEOUT) == 2
    said = log.read_text()
    assert "Traceback" not in said
    return said.strip().splitlines()[-1]


def test_what_is_refused_is_refused_in_one_line_and_nothing_is_lost(small_run: MakeRun) -> None:
    run = small_run("run")
    assert e.finish(run, "--stop-at", "12") == 0
    log = (run / ".loss.json").read_bytes()
    config = (run / "config.toml").read_text()

    (run / "config.toml").write_text(config.replace("n_layer = 1", "n_layer = 2"))
    assert "model.n_layer: is 2, but this run was made with 1" in refused(run)
    (run / "config.toml").write_text(config.replace("seed = 1", "sed = 1"))
    assert "run.sed: unknown key, did you mean seed?" in refused(run)
    (run / "config.toml").write_text(config)

    for path in run.glob("step_*.bin"):
        path.rename(path.with_suffix(".away"))
    assert "no checkpoint is left" in refused(run)
    (run / "step_000012.bin").write_bytes(b"short")
    assert "no checkpoint can be used" in refused(run)
    for path in run.glob("step_*.away"):
        path.rename(path.with_suffix(".bin"))

    p = e.start(run)
    e.wait_for(lambda: e.history(run).last > 12, "training", p)
    assert f"is being trained by process {p.pid}" in refused(run)
    os.kill(p.pid, signal.SIGTERM)
    assert p.wait(e.TIMEOUT) == 0
    assert (run / ".loss.json").read_bytes().startswith(log)
    assert "missing; `andrea-tui init" in refused(run.parent / "nowhere")
