"""A resume far into a run reads the log once, rebuilds only the lines it compares, and skips through no data."""

from pathlib import Path

import numpy as np
import pytest

from engine.config import load_config, load_policy
from engine.data.manifest import load_manifest
from engine.data.rows import Rows
from engine.layout import n_params
from engine.mix.mix import Mix, mix_of
from engine.mix.state import Lines, state_of
from engine.mix.state import encode as encode_state
from engine.rundir import checkpoint, names
from engine.rundir.history import History, read_history
from engine.rundir.records import LossLine, encode, event
from tests.conftest import MakeRun
from tests.test_trainer import trainer

LAST, AT = 1_000_000, 999_990


def write_history(run: Path) -> int:
    """LAST lines of four rows a step, half from each arm; returns the bytes."""
    line = LossLine(step=7_777_777, loss=2.5, lr=1e-3, gnorm=0.5, seg=1, t=1.0, rows={"alpha": 2, "beta": 2},
                    rloss={"alpha": 2.5, "beta": 2.5})  # fmt: skip
    before, after = encode(line).split(b"7777777")
    with open(run / names.LOSS, "wb") as f:
        for first in range(1, LAST + 1, 10_000):
            f.write(b"".join(before + str(s).encode() + after for s in range(first, first + 10_000)))
        return f.tell()


def write_state(run: Path) -> None:
    """What a live run would have left in `.state.json` at step AT."""
    policy, m = load_policy(run / "policy.toml"), load_manifest(run)
    history = read_history(run / names.LOSS)[0]
    mix = mix_of(policy, Rows(run, m, 32, 1))
    mix.begin(mix.count(history, AT, 0) + 1)
    mix.step, mix.pulls, mix.drawn = AT, dict.fromkeys(mix.arms, 2 * AT), dict.fromkeys(mix.arms, 2 * AT)
    state = state_of(mix, 0, 4, Lines(mix.arms, 0).sha256(history, AT), {})
    (run / names.STATE).write_bytes(encode_state(state))


def chars_read() -> int:
    return int(Path("/proc/self/io").read_text().split()[1])


def test_step_one_million(small_run: MakeRun, monkeypatch: pytest.MonkeyPatch) -> None:
    run = small_run("run", "train.max_steps=2000000")
    size = write_history(run)
    n = n_params(load_config(run / "config.toml").model, 257)
    parts = [np.full(n, x, np.float32) for x in (0.01, 0.0, 1e-6)]
    digest, nbytes = checkpoint.write(run, AT, parts, lambda sha: None)
    with open(run / names.EVENTS, "ab") as f:
        f.write(encode(event("checkpoint", step=AT, seg=1, sha256=digest, why="boundary")))

    write_state(run)
    rebuilt: list[int] = []
    real = History.line

    def counting(self: History, i: int) -> LossLine:
        rebuilt.append(i)
        return real(self, i)

    with trainer(small_run("warm")):
        pass  # torch reads some of its own modules at the first use
    monkeypatch.setattr(History, "line", counting)
    monkeypatch.setattr(Mix, "fold", None)  # the state is believed, nothing is folded
    before = chars_read()
    with trainer(run) as t:
        read = chars_read() - before
        assert t.step == AT
        assert t.replay.total == LAST - AT
        assert t.mix.pulls == {"alpha": 2 * AT, "beta": 2 * AT}
        assert len([t.rows.row(arm, pull) for arm, pull in t.mix.draw(AT + 1, 4)]) == 4
        # The rows lie in mapped files: nothing is skipped through.
        assert chars_read() - before < read + 100_000
    assert size + nbytes < read < 1.02 * (size + nbytes) + 2_000_000
    assert len(rebuilt) <= LAST - AT + 1
