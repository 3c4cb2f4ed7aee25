"""The preset `andrea-tiny` on the built-in corpora learns language: minutes of real training, one run for all of it."""

import argparse
import math
from pathlib import Path

import numpy as np
import pytest

from andrea_tui.cli import make_run
from engine.config import load_config
from engine.data.manifest import load_manifest, load_tokenizer
from engine.data.rows import Rows, unigram_nats
from tests import engine_process as e

STEPS = 500


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("learning") / "run"
    make_run(run, "andrea-tiny", [])
    p = e.start(run, "--stop-at", str(STEPS))
    assert p.wait(900) == 0, (run / "trainer.log").read_text()
    return run


def test_the_loss_is_below_chance_and_below_a_unigram_model_on_the_same_held_out_text(trained: Path) -> None:
    config, m = load_config(trained / "config.toml"), load_manifest(trained)
    rows = Rows(trained, m, config.model.context, config.run.seed)
    token_bytes = load_tokenizer(trained, m).n_bytes
    ours, unigram = {}, {}
    step, bpb = e.history(trained).bpb[-1]
    assert step == STEPS
    for arm in m.arms:
        heldout = rows.heldout_rows(arm, 8)
        nats = unigram_nats(rows.train_counts(arm), heldout)
        per_byte = heldout[:, 1:].size / float(token_bytes[heldout[:, 1:]].sum()) / math.log(2)
        unigram[arm] = nats * per_byte
        ours[arm] = bpb[arm] or math.inf
        chance = math.log(config.tokenizer.vocab) * per_byte
        assert ours[arm] < unigram[arm] < chance, (arm, ours, unigram)
    assert np.mean(list(ours.values())) < 0.8 * np.mean(list(unigram.values()))


def test_the_texts_get_better(trained: Path) -> None:
    """Of the sampled words of the last audit many stand in Python's own source; of step 0's next to none."""
    known = set(Path(argparse.__file__).read_text("utf-8").split())
    share = {}
    for step in (0, STEPS):
        words = " ".join(x.text for x in e.samples(trained) if x.step == step and x.mode == "sampled").split()
        share[step] = len({w for w in words if w in known}) / max(1, len(set(words)))
    assert share[STEPS] > 2 * share[0] + 0.1, share
