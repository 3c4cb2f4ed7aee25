"""The preset `andrea-tiny` on the built-in corpora learns language: minutes of real training, one run for all of it."""

import math
import os
import signal
from pathlib import Path

import numpy as np
import pytest

from andrea_tui.cli import make_run
from andrea_tui.core.health import Health
from engine.config import load_config, load_policy
from engine.data.manifest import load_manifest, load_tokenizer
from engine.data.rows import Rows, unigram_nats
from engine.rundir.history import History
from tests import engine_process as e

# ANDREA_LEARNING_STEPS=500 goes further; what is asserted holds at 200 with room to spare. A multiple of eval_every.
STEPS = int(os.environ.get("ANDREA_LEARNING_STEPS", "200"))


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("learning") / "run"
    make_run(run, "andrea-tiny", [])
    e.kill_at_step(run, 112, signal.SIGKILL, 900)
    p = e.start(run, "--stop-at", str(STEPS))
    assert p.wait(900) == 0, (run / "trainer.log").read_text()
    return run


def test_a_healthy_run_with_a_crash_a_resume_and_a_warm_up_raises_no_alarm(trained: Path) -> None:
    """At no moment of it: neither from the losses nor from the texts."""
    (replayed,) = e.named(trained, "replayed")
    assert replayed.info["same"] == replayed.info["total"] > 0
    history, samples = e.history(trained), e.samples(trained)
    config, policy = load_config(trained / "config.toml"), load_policy(trained / "policy.toml")
    part, health = History(), Health()
    for i in range(len(history)):
        part.extend([history.line(i)])
        texts = [x for x in samples if x.step <= i + 1]
        if i % 5 == 0 or i == len(history) - 1:
            found = health.find(part, config=config, policy=policy, shut=(), samples=texts)
            assert not [f for f in found if f.tone != "dim"], f"step {i + 1}"
    assert not e.named(trained, "collapse")


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
    """Nearly every pair of neighbouring tokens of the last texts stands in the training text; of step 0's few."""
    m = load_manifest(trained)
    tokenizer, vocab = load_tokenizer(trained, m), m.tokenizer_vocab
    rows = Rows(trained, m, 256, 1)
    known = np.zeros(vocab * vocab, bool)
    for arm in m.arms:
        ids = rows.tokens(arm, "train").astype(np.int64)
        known[ids[:-1] * vocab + ids[1:]] = True
    share = {}
    for step in (0, STEPS):
        texts = [x.text for x in e.samples(trained) if x.step == step and x.mode == "sampled"]
        pairs = [t.astype(np.int64) for t in tokenizer.encode_batch(texts)]
        share[step] = float(np.mean(np.concatenate([known[t[:-1] * vocab + t[1:]] for t in pairs])))
    assert share[0] < 0.5 < 0.8 < share[STEPS], share
