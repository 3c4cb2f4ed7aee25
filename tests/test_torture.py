"""Killed hundreds of times at random moments, a run ends with the same bytes as one that was left in peace.

SIGKILL at any moment, in the middle of a write too, mixed with SIGTERM, SIGUSR1, SIGSTOP and SIGCONT; evaluations,
audits and the ends of epochs lie in the window. After each death every checkpoint that is to be seen loads and the
log has lost nothing. The controls lose the Adam moments or the data's position at a resume and must be found out.
`python -m tests.torture N` does thousands.
"""

import functools
import random
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from engine.data.manifest import load_manifest
from engine.data.rows import Rows
from tests import engine_process as e
from tests import forked, torture
from tests.torture import Life, Torture

SEED = random.randrange(1 << 32)


Peaceful = Callable[[str], Torture]


@pytest.fixture(scope="module")
def peaceful(tmp_path_factory: pytest.TempPathFactory) -> Peaceful:
    """Each configuration with the outcome of a cold start that nothing disturbs."""
    return functools.cache(lambda name: Torture(tmp_path_factory.mktemp(name), name))


@pytest.mark.parametrize(
    ("name", "kills", "cold"),
    [("fp32", 120, 12), ("bf16-ucb1", 20, 0), ("fp16", 16, 0), ("accumulate-heldout", 20, 0)],
)
def test_killed_at_random_moments_it_ends_with_the_same_bytes(
    name: str, kills: int, cold: int, peaceful: Peaceful
) -> None:
    report = torture.torture_all(peaceful(name), kills, cold, SEED, 2)
    assert report.wrong == [], f"seed {SEED}: " + "\n".join(report.wrong)
    assert report.kills >= kills + cold
    assert name != "fp32" or report.what["rollback"] + report.what["rollback, killed"] > 0


@pytest.mark.parametrize(
    ("name", "variant"),
    [
        ("fp32", "tests.forked:real"),
        ("compiled", "tests.forked:real"),
        ("fp32", "tests.torture:moments_zeroed"),
        ("fp32", "tests.torture:data_from_the_start"),
    ],
)
def test_one_kill_and_as_a_control_resumes_that_lose_state(
    name: str, variant: str, peaceful: Peaceful
) -> None:
    """Compiled code is slow to start, so it is killed once; what loses state ends with other bytes."""

    def start(run: Path) -> Life:
        return forked.server().start(run, variant=variant)

    t = peaceful(name)
    run = t.new_run(variant.partition(":")[2])
    life = start(run)
    torture.wait(life.pid, lambda: e.history(run).last >= 37)
    torture.send(life.pid, signal.SIGKILL)
    assert life.wait() == -signal.SIGKILL
    t.finish(run, start)
    wrong = torture.compare(t.outcome(run), t.reference, run)
    assert any("other bytes" in x for x in wrong) == (variant != "tests.forked:real"), wrong


def test_the_window_holds_ends_of_epochs_and_evaluations(peaceful: Peaceful) -> None:
    run = peaceful("fp32").folder / "reference"
    h = e.history(run)
    rows = Rows(run, load_manifest(run), 32, 1)
    assert all(int(h.rows(a).sum()) > rows.n_rows(a) for a in ("alpha", "beta"))
    assert any(h.line(i).bpb for i in range(len(h)))
