"""What users of other dashboards reported: docs/USER-REPORTS.md names a test for each; here those that had none."""

import os
import re
import signal
import time
import tomllib
from pathlib import Path

import numpy as np

from andrea_tui.core.ema import DECAYS
from andrea_tui.core.rates import rates
from engine.rundir import checkpoint
from engine.rundir.history import History
from engine.rundir.records import LossLine, Status
from tests import engine_process as e
from tests.conftest import MakeRun

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "USER-REPORTS.md").read_text("utf-8")


def test_every_test_that_the_page_names_is_there() -> None:
    named = re.findall(r"`(test_\w+\.py)::(test_\w+)`", PAGE)
    assert len(named) >= 25
    for file, name in named:
        text = (ROOT / "tests" / file).read_text("utf-8")
        assert re.search(rf"^(async )?def {name}\(", text, re.M), f"{file}::{name}"


def test_tensorboard_3732_a_resume_draws_no_zigzag() -> None:
    h = History()
    first = [LossLine(step=s, loss=3.0, seg=0) for s in range(1, 156)]
    h.extend([*first, *(LossLine(step=s, loss=2.0, seg=1) for s in range(101, 201))])
    assert (np.diff(h.step) == 1).all()
    assert h.loss[99] == 3.0
    assert (h.loss[100:] == 2.0).all()


def test_tqdm_70_no_eta_is_negative() -> None:
    h = History()
    # ten hours down between two segments; the run is asked to end before where it stands
    h.extend([LossLine(step=s, loss=3.0, seg=0, dt=10.0, t=10.0 * s) for s in range(1, 51)])
    h.extend(
        [LossLine(step=s, loss=3.0, seg=1, dt=1.0 if s > 51 else 0.0, t=36_500.0 + s) for s in range(51, 101)]
    )
    status = Status(pid=1, seg=1, step=100, max_steps=200, phase=0, doing="training")
    assert rates(h, status).eta == 100.0
    status.max_steps = 80
    assert rates(h, status).eta is None


def test_trackio_646_smoothing_goes_to_four_nines() -> None:
    assert max(DECAYS) == 0.9999


def test_tftrainer_7_five_interrupts_in_a_row(small_run: MakeRun) -> None:
    run = small_run("run", "train.max_steps=1000000")
    p = e.start(run)
    e.wait_for(lambda: e.history(run).last > 5, "some steps", p)
    for _ in range(5):
        os.kill(p.pid, signal.SIGINT)
        time.sleep(0.002)
    assert p.wait(e.TIMEOUT) == 0
    (stopped,) = e.named(run, "stopped")
    assert checkpoint.inspect(run / f"step_{stopped.step:06d}.bin").step == stopped.step
    assert not [x for x in run.iterdir() if ".tmp-" in x.name]


def test_plotext_is_pinned() -> None:
    wanted = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["dependencies"]
    (plotext,) = [x for x in wanted if x.startswith("plotext")]
    assert "<6" in plotext
