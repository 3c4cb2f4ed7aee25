"""A pivot as a person makes it: the real cockpit in a real terminal over the real trainer."""

import os
from pathlib import Path

from engine.config import load_policy
from engine.rundir import lock, names, pivot
from engine.rundir.history import read_history
from tests import engine_process as e
from tests.conftest import MakeRun
from tests.terminal import Terminal, alive, end

SETS = (
    "train.max_steps=1000000",
    "train.checkpoint_every=900",
    "train.sample_every=900",
    "train.eval_every=900",
)


def holder(run: Path) -> int:
    found = lock.probe(run)
    assert found is not None
    return found.pid


def ask(t: Terminal, floor: str, was: str) -> None:
    """From the overview to the countdown."""
    t.send("p")
    t.wait(r"1 policy › 2 when")
    t.wait(r"heldout\.power")
    t.send(floor)  # over the value, which is selected
    t.wait(rf"arms\.alpha\.floor: {was} → {floor}")
    t.send("\r")
    t.wait(r"at the next boundary: step [0-9,]+, [0-9,]+ steps?")
    t.send("\r")
    t.wait(r"KEEP +every arm's place")
    t.send("\r")  # a reflex: nothing
    t.wait(r"y pivot")
    t.send("y")


def test_a_pivot_by_hand_and_one_that_outlives_its_terminal(small_run: MakeRun) -> None:
    run = small_run("run", *SETS)
    t = Terminal(str(run), columns=80, lines=24)
    t.wait(r"● training +step [1-9]")
    pid = holder(run)
    e.wait_for(lambda: e.history(run).last > 20, "some steps")
    log = (run / names.LOSS).read_bytes()

    ask(t, "0.3", "0.2")
    t.wait(r"v1-builtin → v2-builtin after step [0-9,]+")
    t.wait(r"entries before, [0-9,]+ now: none was taken away")
    (told,) = e.named(run, "pivot")
    assert told.step % 900 == 0
    t.send("\x1b")
    t.wait(r"● training +step [1-9]")
    e.wait_for(lambda: e.history(run).last > told.step + 20, "steps of the new phase")
    t.wait(r"● training.* phase 1")
    assert holder(run) == pid
    assert (run / names.LOSS).read_bytes().startswith(log)
    assert load_policy(run / names.POLICY).arms["alpha"].floor == 0.3
    assert not any(x.event == "pivot_asked" for x in e.events(run) if x.step > told.step)

    ask(t, "0.25", "0.3")
    t.wait(r"w withdraw it")
    asked = pivot.read(run)
    assert asked is not None, "the boundary came too soon for this test"
    t._closing = True
    t._reader.join()
    os.close(t.master)
    os.close(t.slave)
    e.wait_for(lambda: t.process.poll() is not None, "the cockpit's end")
    e.wait_for(lambda: len(e.named(run, "pivot")) == 2, "the pivot that nobody watches")
    second = e.named(run, "pivot")[1]
    assert second.info["id"] == asked.id
    e.wait_for(lambda: e.history(run).last > second.step + 20, "steps of the third phase")
    assert holder(run) == pid
    assert alive(pid)
    log = (run / names.LOSS).read_bytes()  # of one moment: it grows
    (run.parent / "log").write_bytes(log)
    h, bad = read_history(run.parent / "log")
    assert (h.missing, bad) == (0, 0)
    assert log.count(b"\n") == h.last  # every line counts
    assert sorted(set(h.phase.tolist())) == [0, 1, 2]
    assert load_policy(run / names.POLICY).arms["alpha"].floor == 0.25
    end(pid)
