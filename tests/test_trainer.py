"""The loop's rare branches, in this process: losses that are not finite, fp16's overflow, an evaluation cut short."""

import math
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch

import engine.train as train_module
from engine.data.manifest import load_manifest, load_tokenizer
from engine.data.rows import Rows
from engine.device import Device
from engine.errors import EXIT_DIVERGED, EXIT_OK, StopRequested
from engine.gradient import forward_backward
from engine.mix.mix import mix_of
from engine.model import GPT
from engine.rundir import checkpoint
from engine.session import Session
from engine.signals import Flags
from engine.train import Trainer
from tests import engine_process as e
from tests.conftest import MakeRun


@contextmanager
def trainer(run: Path) -> Iterator[Trainer]:
    s = Session(run, Flags())
    m = load_manifest(run)
    rows = Rows(run, m, s.config.model.context, s.config.run.seed)
    t = Trainer(s, mix_of(s.policy, rows), rows, load_tokenizer(run, m))
    assert t.restore()
    yield t
    t.saver.wait()
    s.close()


def spoil(monkeypatch: pytest.MonkeyPatch, steps: set[int], part: str) -> None:
    """Make the loss or the gradient of these calls (counted from 1) not finite."""
    real, calls = forward_backward, iter(range(1, 10**6))

    def bad(compute: object, model: GPT, *args: object) -> torch.Tensor:
        losses: torch.Tensor = real(compute, model, *args)  # type: ignore[arg-type]
        if next(calls) in steps:
            if part == "loss":
                losses[0] = math.nan
            model.grad[5] = math.inf
        return losses

    monkeypatch.setattr(train_module, "forward_backward", bad)


def test_a_step_that_is_not_finite_changes_nothing_and_is_logged(
    small_run: MakeRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = small_run("run")
    spoil(monkeypatch, {3, 4, 6}, "loss")
    with trainer(run) as t:
        for step in range(1, 8):
            before = [x.clone() for x in t.state]
            t.make_step(step)
            same = all(torch.equal(a, b) for a, b in zip(before, t.state, strict=True))
            assert same == (step in {3, 4, 6})
        assert all(bool(x.isfinite().all()) for x in t.state)
    h = e.history(run)
    assert h.skipped == {3: "nonfinite", 4: "nonfinite", 6: "nonfinite"}
    assert [int(s) for s in h.step[h.loss != h.loss]] == [3, 4, 6]
    assert len(e.named(run, "warning")) == 3


def test_three_in_a_row_stop_with_exit_3_and_a_good_checkpoint(
    small_run: MakeRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = small_run("run")
    spoil(monkeypatch, {8, 9, 10}, "gradient")
    with trainer(run) as t:
        assert t.run(100) == EXIT_DIVERGED
        n = t.model.flat.numel()
    assert "diverged" in e.named(run, "failed")[0].text
    newest = checkpoint.scan(run)[0][0]
    assert newest.step == 10
    checkpoint.examine(newest.path, n, None)


def fp16(t: Trainer) -> None:
    t.device = Device(torch.device("cpu"), "CPU", "fp16", False, 0.0)


@pytest.mark.parametrize("overflow_at", [set(), {3, 4}])
def test_an_overflow_takes_the_same_batch_at_half_the_scale(
    overflow_at: set[int], small_run: MakeRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = small_run("run")
    spoil(monkeypatch, overflow_at, "gradient")
    with trainer(run) as t:
        fp16(t)
        for step in range(1, 6):
            t.make_step(step)
    h = e.history(run)
    scales = [h.line(i).scale for i in range(5)]
    expected = [65536.0] * 2 + [16384.0] * 3 if overflow_at else [65536.0] * 5
    assert scales == expected
    assert not h.skipped
    assert h.last == 5  # trainer's step and Adam's never part
    with trainer(run) as t:  # a resume takes the scale from the log
        assert t.step == 0
        assert t.scale is None
    line = h.line(4)
    assert line.loss is not None


def test_an_evaluation_that_is_cut_short_leaves_nothing_done(small_run: MakeRun) -> None:
    run = small_run("run")
    with trainer(run) as t:
        for step in range(1, 20):
            t.make_step(step)
        pulls = dict(t.mix.pulls)
        t.flags.stop = True
        with pytest.raises(StopRequested):
            t.make_step(20)  # eval_every = 20
        assert (t.step, t.mix.pulls) == (19, pulls)
        assert t.run(100) == EXIT_OK
    assert e.named(run, "stopped")[0].step == 19
    assert e.finish(run, "--stop-at", "25") == 0
    assert [s for s, _ in e.history(run).bpb] == [20]


def test_evaluating_and_sampling_change_nothing_that_the_training_draws(small_run: MakeRun) -> None:
    """nanoGPT's evaluation moved its data order; ours must not. Control: another seed does change the end."""
    ends = {}
    for name, sets in (
        ("a", []),
        ("b", ["train.eval_every=3", "train.sample_every=100"]),
        ("c", ["run.seed=2"]),
    ):
        run = small_run(name, "train.max_steps=30", *sets)
        assert e.finish(run) == 0
        ends[name] = e.sha(run / "step_000030.bin")
    assert ends["a"] == ends["b"] != ends["c"]


def test_torch_modes_are_as_the_config_says(small_run: MakeRun) -> None:
    with trainer(small_run("run")):
        pass
    assert torch.are_deterministic_algorithms_enabled()
    assert os.environ["CUBLAS_WORKSPACE_CONFIG"] in (":4096:8", ":16:8")
