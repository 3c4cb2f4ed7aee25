"""compare: where runs part, and a verdict that is right about as often as it says."""

import os
import pty
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from andrea_tui.cli import run as cli
from andrea_tui.core.compare import LEAST, block_length, bootstrap, compare, load
from engine.branch import branch
from engine.rundir import names
from engine.rundir.records import LossLine, SampleLine, encode
from tests import engine_process as e
from tests.conftest import MakeRun, make_small

# ---- the bootstrap, on series whose mean is known ----


def ar1(n: int, rho: float, seed: int) -> NDArray[np.float64]:
    """(n,) x_t = rho x_(t-1) + noise of spread 1, begun long before."""
    noise = np.random.default_rng(seed).normal(size=n + 200)
    x = np.zeros(n + 200)
    for i in range(1, n + 200):
        x[i] = rho * x[i - 1] + noise[i]
    return x[200:]


@pytest.mark.parametrize(
    ("n", "rho", "least"), [(16, 0.0, 0.91), (40, 0.0, 0.91), (40, 0.5, 0.88), (100, 0.5, 0.88), (200, 0.8, 0.86)]
)  # fmt: skip
def test_noise_is_can_not_tell_in_about_95_of_100(n: int, rho: float, least: float) -> None:
    inside = [not bootstrap(ar1(n, rho, s), resamples=400).sure for s in range(300)]
    assert least <= np.mean(inside) <= 0.995


def test_the_plain_bootstrap_would_be_far_too_sure() -> None:
    """Control: blocks and the correction do something."""

    def plain(x: NDArray[np.float64]) -> bool:
        means = x[np.random.default_rng(1).integers(0, len(x), (400, len(x)))].mean(axis=1)
        low, high = np.quantile(means, [0.025, 0.975])
        return bool(low <= 0 <= high)

    assert np.mean([plain(ar1(100, 0.8, s)) for s in range(200)]) < 0.6


@pytest.mark.parametrize("n", [16, 40, 200])
def test_a_planted_difference_is_found_with_its_sign(n: int) -> None:
    found = [bootstrap(0.02 + 0.01 * ar1(n, 0.3, s), resamples=400) for s in range(100)]
    assert np.mean([x.low > 0 for x in found]) > 0.95
    assert abs(np.mean([x.mean for x in found]) - 0.02) < 0.002
    assert bootstrap(-0.02 + 0.01 * ar1(n, 0.3, 1)).high < 0


def test_a_difference_that_only_grows_is_found() -> None:
    for n in (16, 40, 200):
        assert bootstrap(np.linspace(0, 0.1, n)).low > 0


def test_the_interval_is_a_function_of_the_series() -> None:
    x = ar1(50, 0.5, 1)
    assert bootstrap(x) == bootstrap(x.copy())
    a, b = bootstrap(x), bootstrap(x, seed=2)
    assert abs(a.low - b.low) < 0.05 * (a.high - a.low)  # 10,000 resamples are enough
    assert bootstrap(np.full(20, 0.5)).low == bootstrap(np.full(20, 0.5)).high == 0.5


def test_blocks_are_longer_where_neighbours_hang_together() -> None:
    lengths = [np.mean([block_length(ar1(200, rho, s)) for s in range(20)]) for rho in (0.0, 0.5, 0.9)]
    assert 6 <= lengths[0] < lengths[1] < lengths[2] <= 50


# ---- histories that are written here ----

Bpb = Callable[[int], dict[str, float | None] | None]


def write(
    run: Path, n: int, fork: int, shift: float, every: int = 2, arms: Sequence[str] = ("alpha", "beta")
) -> None:
    """n steps, equal among runs up to `fork`; evaluations whose bits per byte lie `shift` higher after it."""
    rng = np.random.default_rng(int(abs(shift) * 1e6) + 7)
    lines = []
    for s in range(1, n + 1):
        after = s > fork
        noise = 0.001 * float(rng.normal()) if after else 0.0
        bpb: dict[str, float | None] = {
            a: 3.0 + k - s / 1000 + (shift + noise if s > fork + 1 else 0.0) for k, a in enumerate(arms)
        }
        lines.append(LossLine(step=s, loss=4.0 - s / 100 + (shift + 1e-3 if after and shift else 0.0), gnorm=1.0,
                              rows={"alpha": 2, "beta": 2}, rloss={"alpha": 4.0, "beta": 4.0}, t=1e9 + s + shift,
                              bpb=bpb if s % every == 0 else None))  # fmt: skip
    (run / names.LOSS).write_bytes(b"".join(map(encode, lines)))


@pytest.fixture
def pair(small_run: MakeRun) -> tuple[Path, Path]:
    one, two = small_run("one"), small_run("two")
    write(one, 100, 20, 0.0)
    write(two, 100, 20, 0.05)
    return one, two


def told(capfd: pytest.CaptureFixture[str], *runs: Path) -> str:
    capfd.readouterr()
    assert cli(["compare", *map(str, runs)]) == 0
    return capfd.readouterr().out


def test_the_fork_the_table_and_the_verdict(
    pair: tuple[Path, Path], capfd: pytest.CaptureFixture[str]
) -> None:
    found = compare([load(p) for p in pair])
    assert found.fork == 20
    assert found.evaluations.steps[0] == 22
    assert found.evaluations.arms == ("alpha", "beta")
    x = found.verdicts[0].interval
    assert x is not None and x.n == 40
    assert x.low < 0.05 < x.high and x.high - x.low < 0.005
    out = told(capfd, *pair)
    assert "fork: after step 20" in out
    assert f"{pair[0]} is ahead of {pair[1]} by 0.05" in out
    assert "moving-block bootstrap, blocks of" in out
    assert out.isascii() and "\x1b" not in out
    back = compare([load(p) for p in reversed(pair)])
    assert back.verdicts[0].word.startswith(f"{pair[0]} is ahead of {pair[1]}")


def test_an_evaluation_of_common_weights_does_not_count(pair: tuple[Path, Path]) -> None:
    """At step fork + 1 both are evaluated before their first own update."""
    for p, shift in zip(pair, (0.0, 0.05), strict=True):
        write(p, 100, 19, shift)
    assert compare([load(p) for p in pair]).evaluations.steps[0] == 22


def test_too_few_evaluations_are_said(pair: tuple[Path, Path], capfd: pytest.CaptureFixture[str]) -> None:
    write(pair[1], 40, 20, 0.05)
    assert f"can't tell yet: 10 common evaluations after the fork, {LEAST} are needed" in told(capfd, *pair)
    write(pair[1], 21, 20, 0.05)
    assert f"can't tell yet: 0 common evaluations after the fork, {LEAST} are needed" in told(capfd, *pair)


def test_equal_runs_are_called_equal(pair: tuple[Path, Path], capfd: pytest.CaptureFixture[str]) -> None:
    write(pair[1], 60, 20, 0.0)
    out = told(capfd, *pair)
    assert "are the same run: every step to 60 is identical" in out
    assert "nothing yet" not in out  # the longer one's loss


def test_another_cadence_of_evaluations_is_no_fork(pair: tuple[Path, Path]) -> None:
    write(pair[1], 100, 20, 0.05, every=3)
    found = compare([load(p) for p in pair])
    assert found.fork == 20
    assert found.evaluations.steps == tuple(range(24, 101, 6))


def test_other_heldout_rows_are_not_compared(
    pair: tuple[Path, Path], capfd: pytest.CaptureFixture[str]
) -> None:
    policy = pair[1] / names.POLICY
    text = policy.read_text()
    assert "[heldout]\nrows = 2" in text
    policy.write_text(text.replace("[heldout]\nrows = 2", "[heldout]\nrows = 1"))
    out = told(capfd, *pair)
    assert "can't be compared: alpha: not on the same held-out rows" in out
    assert "heldout.rows" in out


def test_only_arms_with_equal_text_count(pair: tuple[Path, Path]) -> None:
    path = pair[1] / "data" / "manifest.json"
    sha = load(pair[0]).manifest.arms["beta"].heldout.sha256
    path.write_text(path.read_text().replace(sha, "0" * 64))
    found = compare([load(p) for p in pair])
    assert found.evaluations.arms == ("alpha",)
    assert found.evaluations.left_out[0].startswith("beta: not on the same")
    assert found.verdicts[0].interval is not None


def test_an_arm_that_one_run_lacks_is_left_out(pair: tuple[Path, Path]) -> None:
    write(pair[1], 100, 20, 0.05, arms=("alpha",))
    found = compare([load(p) for p in pair])
    assert found.evaluations.arms == ("alpha",)
    assert found.evaluations.left_out == ("beta: not evaluated in every run",)


def test_three_runs_are_compared_with_the_first(small_run: MakeRun, pair: tuple[Path, Path],
                                                capfd: pytest.CaptureFixture[str]) -> None:  # fmt: skip
    third = small_run("third", "optim.lr=0.001")
    write(third, 100, 20, -0.05)
    out = told(capfd, *pair, third)
    assert f"{third} is ahead of {pair[0]} by 0.0" in out
    assert "optim.lr" in out and "0.001" in out
    assert "c - a" in out


def test_audits_stand_side_by_side(pair: tuple[Path, Path], capfd: pytest.CaptureFixture[str]) -> None:
    for p, value in zip(pair, (60.0, 40.0), strict=True):
        lines = [
            SampleLine(step=s, phase=0, prompt=str(k), mode="sampled", text="x", tokens=1, t=0.0, seg=1,
                       scores={"coherence": value + k})
            for s in (20, 30) for k in range(3)
        ]  # fmt: skip
        (p / names.SAMPLES).write_bytes(b"".join(map(encode, lines)))
    assert compare([load(p) for p in pair]).audits == ((30, (61.0, 41.0)),)
    assert "30    61.0  41.0" in told(capfd, *pair)


def test_colours_only_on_a_terminal_without_no_color(pair: tuple[Path, Path]) -> None:
    def on_a_terminal(**more: str) -> bytes:
        master, slave = pty.openpty()
        command = [sys.executable, "-m", "andrea_tui", "compare", *map(str, pair)]
        environment = {k: v for k, v in os.environ.items() if k != "NO_COLOR"} | more
        p = subprocess.Popen(command, stdin=slave, stdout=slave, stderr=slave, env=environment)
        os.close(slave)
        out = b""
        try:
            while data := os.read(master, 65536):
                out += data
        except OSError:
            pass  # the other end is closed
        os.close(master)
        assert p.wait(e.TIMEOUT) == 0
        return out

    assert b"\x1b[" in on_a_terminal()
    assert b"\x1b" not in on_a_terminal(NO_COLOR="1")


def _untrained(run: Path) -> None:
    (run / names.LOSS).unlink()


def _gap(run: Path) -> None:
    (run / names.LOSS).write_bytes(encode(LossLine(step=7, loss=1.0)))


def _binary(run: Path) -> None:
    (run / "config.toml").write_bytes(b"\xff\xfe")


def _no_data(run: Path) -> None:
    shutil.rmtree(run / "data")


def _folder(run: Path) -> None:
    (run / names.SAMPLES).mkdir()


BROKEN: dict[str, tuple[Callable[[Path], None], str]] = {
    "no run": (shutil.rmtree, "config.toml: missing"),
    "not trained": (_untrained, "nothing was trained yet"),
    "gap": (_gap, "lacks 6 steps"),
    "binary": (_binary, "not valid TOML"),
    "no data": (_no_data, "manifest.json: missing"),
    "folder": (_folder, "is not a regular file"),
}


@pytest.mark.parametrize("how", BROKEN)
def test_what_is_broken_is_one_line(
    how: str, pair: tuple[Path, Path], capfd: pytest.CaptureFixture[str]
) -> None:
    spoil, why = BROKEN[how]
    spoil(pair[1])
    capfd.readouterr()
    assert cli(["compare", *map(str, pair)]) == 2
    out, err = capfd.readouterr()
    assert why in err and err.count("\n") == 1 and not out


def test_two_different_directories_are_needed(
    pair: tuple[Path, Path], capfd: pytest.CaptureFixture[str]
) -> None:
    assert cli(["compare", str(pair[0])]) == 2
    assert "name two to 6" in capfd.readouterr().err
    assert cli(["compare", str(pair[0]), str(pair[0])]) == 2
    assert "named twice" in capfd.readouterr().err


def test_lines_of_numbers_that_are_not_finite_and_names_that_are_hostile(
    pair: tuple[Path, Path], capfd: pytest.CaptureFixture[str]
) -> None:
    lines = [
        LossLine(step=s, loss=None, rows={"\x1b[31mred": 1}, bpb={"\x1b[31mred": None}) for s in range(1, 60)
    ]
    (pair[1] / names.LOSS).write_bytes(b"".join(map(encode, lines)) + b"\0\0{torn")
    out = told(capfd, *pair)
    assert "\x1b" not in out
    assert "fork: none" in out


# ---- chance ----


def test_the_seed_alone_is_chance_and_the_yardstick_of_the_others(small_run: MakeRun) -> None:
    """a, another seed 0.05 away, another learning rate 0.03 or 0.08 away."""
    a, seed, lr = small_run("a"), small_run("seed", "run.seed=2"), small_run("lr", "optim.lr=0.001")
    write(a, 100, 20, 0.0)
    write(seed, 100, 20, 0.05)
    for shift, word in ((0.03, "can't tell yet"), (0.08, f"{a} is ahead of {lr} by 0.08")):
        write(lr, 100, 20, shift)
        found = compare([load(p) for p in (a, seed, lr)])
        assert found.by_chance is not None and abs(found.by_chance - 0.05) < 0.001
        assert found.verdicts[0].word.startswith("can't tell: ")
        assert found.verdicts[0].word.endswith("differ in the seed alone: that is what chance makes")
        assert found.verdicts[1].word.startswith(word)
        alone = compare([load(p) for p in (a, lr)])
        assert alone.by_chance is None
        assert alone.verdicts[0].word.startswith(f"{a} is ahead of {lr}")


# ---- real runs ----


@pytest.fixture(scope="module")
def branched(texts: Path, prepared: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Branches of step 20, trained to step 110 as it is: another seed; a policy that starves beta."""
    root = tmp_path_factory.mktemp("compare")
    run = root / "run"
    make_small(run, texts, ["train.eval_every=4", "train.sample_every=50", "keep.last=20"])
    shutil.copytree(prepared / "data", run / "data")
    assert e.finish(run, "--stop-at", "110") == 0
    out = {"run": run}
    text = (run / names.POLICY).read_text("utf-8")
    text = text.replace("floor = 0.2", "floor = 0.97", 1).replace("floor = 0.2", "floor = 0.0", 1)
    made: dict[str, tuple[str | None, list[str]]] = {"two": (None, ["run.seed=2"]), "worse": (text, [])}
    for name, (policy, sets) in made.items():
        branch(run, root / name, 20, policy, sets)
        assert e.finish(root / name, "--stop-at", "110") == 0
        out[name] = root / name
    return out


def test_with_another_seed_it_can_not_tell(
    branched: dict[str, Path], capfd: pytest.CaptureFixture[str]
) -> None:
    found = compare([load(branched[x]) for x in ("run", "two")])
    assert found.fork == 20
    assert [d.key for d in found.config] == ["run.seed"]
    assert not found.policy
    assert found.verdicts[0].word.startswith("can't tell"), found.verdicts
    assert found.verdicts[0].interval is not None
    assert "can't tell" in told(capfd, branched["run"], branched["two"])


def test_worse_on_purpose_is_said_and_by_more_than_chance(
    branched: dict[str, Path], capfd: pytest.CaptureFixture[str]
) -> None:
    for more in ([], [branched["two"]]):
        out = told(capfd, branched["run"], branched["worse"], *more)
        assert f"{branched['run']} is ahead of {branched['worse']} by " in out
        assert "arms.alpha.floor" in out and "0.97" in out
        assert "audits, median coherence" in out
