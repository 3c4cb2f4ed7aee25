"""A small real run: two arms of generated text, a byte tokeniser, a model that makes a step in milliseconds."""

import os
import random
import shutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from andrea_tui.cli import make_run
from engine.rundir import lock
from tests import engine_process
from tests.snapshot import Snapshots

SMALL = [
    "model.n_layer=1", "model.n_head=2", "model.d_model=32", "model.context=32",
    "tokenizer.kind=bytes", "tokenizer.vocab=257",
    "train.max_steps=200", "train.rows=4", "train.checkpoint_every=10", "train.sample_every=10", "train.eval_every=20",
    "optim.warmup_steps=5", "audit.tokens=8", 'audit.prompts=["the ", "a"]',
    "keep.last=3", "keep.every=50", "heldout.rows=2", "kind=static",
]  # fmt: skip


@pytest.fixture(autouse=True, scope="session")
def _own_state(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """What the cockpit remembers between two looks is not mixed with the person's own."""
    with pytest.MonkeyPatch.context() as m:
        m.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        m.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        yield


# One worker a core: OpenMP's threads would wait for each other's turn, which is several times slower.
os.environ.setdefault("OMP_NUM_THREADS", "1")

MakeRun = Callable[..., Path]
LONG_FILES = (
    "test_torture.py",
    "test_learning.py",
    "test_screen.py",
    "test_cockpit_pty.py",
    "test_pivot.py",
    "test_faults.py",
    "test_app_pivot.py",
    "test_collapse.py",
    "test_plain.py",
    "test_engine.py",
    "test_terminals.py",
    "test_sampler.py",
    "test_pivot_pty.py",
    "test_maintenance.py",
    "test_branch.py",
    "test_fulldisk.py",
)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-snapshots", action="store_true", help="write tests/snapshots anew")


@pytest.fixture
def snapshots(request: pytest.FixtureRequest) -> Snapshots:
    return Snapshots(request.config.getoption("--update-snapshots"))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest files first, so that two workers end at about the same time."""
    rank = {name: i for i, name in enumerate(LONG_FILES)}
    items.sort(key=lambda item: rank.get(item.path.name, len(rank)))


@pytest.fixture(scope="session")
def texts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two folders of text that a small model can learn something from."""
    folder = tmp_path_factory.mktemp("texts")
    rng = random.Random(5)
    for arm, words in (("alpha", "the cat sat on a mat and saw"), ("beta", "one two three four five six")):
        (folder / arm).mkdir()
        for i in range(30):
            text = " ".join(rng.choice(words.split()) for _ in range(150))
            (folder / arm / f"{i:02}.txt").write_text(text + "\n", "utf-8")
    return folder


@pytest.fixture(scope="session")
def prepared(texts: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run directory of SMALL whose data is tokenised; copies of it start at once."""
    from engine.config import load_config, load_policy
    from engine.data.prepare import prepare

    run = tmp_path_factory.mktemp("prepared") / "run"
    make_small(run, texts, [])
    c, p = load_config(run / "config.toml"), load_policy(run / "policy.toml")
    prepare(run, p, c.tokenizer, c.model.context, lambda what, part: None, lambda: False)
    return run


@pytest.fixture
def small_run(texts: Path, prepared: Path, tmp_path: Path) -> Iterator[MakeRun]:
    """`small_run("name", "train.max_steps=50", …)` makes one with its data. No trainer outlives a test."""
    made = []

    def make(name: str = "run", *sets: str) -> Path:
        run = tmp_path / name
        make_small(run, texts, list(sets))
        shutil.copytree(prepared / "data", run / "data")
        made.append(run)
        return run

    yield make
    for run in made:
        holder = lock.probe(run) if run.is_dir() else None
        if holder is not None and holder.pid not in (0, os.getpid()):
            os.kill(holder.pid, signal.SIGKILL)


def make_stopped(run: Path, texts: Path, prepared: Path, sets: list[str], step: int) -> Path:
    """One that was trained to `step` and stopped cleanly; for tests that go on from copies of it."""
    make_small(run, texts, sets)
    shutil.copytree(prepared / "data", run / "data")
    assert engine_process.finish(run, "--stop-at", str(step)) == 0
    return run


def make_small(run: Path, texts: Path, sets: list[str]) -> None:
    make_run(run, "andrea-tiny", [*SMALL, *sets])
    head, _, _ = (run / "policy.toml").read_text("utf-8").partition("[arms.")
    arms = "".join(f'[arms.{a}]\npath = "{texts / a}"\nfloor = 0.2\n' for a in ("alpha", "beta"))
    (run / "policy.toml").write_text(head + arms, "utf-8")
