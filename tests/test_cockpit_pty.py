"""The real cockpit in a real terminal, flying the real trainer: what a person does, and what must survive him."""

import os
import signal
import time
from pathlib import Path

import pytest

from engine.rundir import checkpoint, lock
from tests import engine_process as e
from tests.conftest import MakeRun
from tests.terminal import Terminal, alive, end

LONG = (
    "train.max_steps=1000000",
    "train.checkpoint_every=1000",
    "train.sample_every=1000",
    "train.eval_every=1000",
)


def holder(run: Path) -> lock.Holder:
    found = lock.probe(run)
    assert found is not None
    return found


def test_a_flight_start_snapshot_detach_attach_stop(small_run: MakeRun) -> None:
    run = small_run("run", *LONG)
    with Terminal(str(run)) as t:
        t.wait(r"run/ +\S (starting|preparing|loading|building|timing|reading)")
        t.wait(r"● training +step [1-9]")
        t.wait(r"ema [0-9.]+ .*loss [0-9.]+")
        pid = holder(run).pid
        t.send("s")
        step = int(t.wait(r"snapshot step ([0-9,]+) saved")[1].replace(",", ""))
        found = checkpoint.inspect(run / f"step_{step:06d}.bin")
        assert found.bytes == 8 + 12 * e.named(run, "started")[0].info["params"]
        at = e.history(run).last
        e.wait_for(lambda: e.history(run).last > at + 20, "steps after the snapshot")
        t.send("d")
        assert t.ended() == 0
        assert t.restored()
        assert alive(pid)
    with Terminal(str(run)) as t:
        t.wait(r"● training +step [1-9]")
        assert holder(run).pid == pid
        t.send("q")
        t.wait(r"stopping the training cleanly in [1-5] s")
        t.send("\x1b")  # Esc: cancelled
        at = e.history(run).last
        e.wait_for(lambda: e.history(run).last > at + 20, "steps after the cancelled stop")
        t.send("q")
        t.wait(r"stopping the training cleanly in [1-5] s")
        t.send("q")  # a second q changes nothing
        t.send("\r")  # Enter: now
        assert t.ended() == 0
        assert t.restored()
    assert not alive(pid)
    (stopped,) = e.named(run, "stopped")
    assert stopped.info["code"] == 0
    assert stopped.step == e.history(run).last
    assert checkpoint.inspect(run / f"step_{stopped.step:06d}.bin").step == stopped.step


def test_killing_the_cockpit_leaves_the_trainer_killing_the_trainer_is_said_and_r_resumes(
    small_run: MakeRun,
) -> None:
    run = small_run("run", *LONG[:1])
    with Terminal(str(run)) as t:
        t.wait(r"● training +step [1-9]")
        before = holder(run)
        t.process.kill()
        t.process.wait()
    assert holder(run) == before
    assert lock.start_time(before.pid) == before.start
    with Terminal(str(run)) as t:
        t.wait(r"● training")
        e.wait_for(lambda: len(e.named(run, "checkpoint")) > 2, "a boundary")
        os.kill(before.pid, signal.SIGKILL)
        t.wait(r"✗ dead")
        t.wait(r"r starts? it again|r start")
        outran = e.history(run).last
        newest = checkpoint.scan(run)[0][0].step
        t.send("r")
        t.wait(r"● training|replaying")
        now = holder(run)
        assert now.pid != before.pid
        (resumed,) = e.named(run, "resumed")
        assert resumed.step == newest <= outran
        e.wait_for(lambda: e.history(run).last > outran, "steps beyond the crash")
        h = e.history(run)
        assert h.missing == 0
        assert all(x.info["same"] == x.info["total"] for x in e.named(run, "replayed"))
        t.send("d")
        assert t.ended() == 0
    end(now.pid)


def test_a_signal_to_the_cockpit_restores_the_terminal_and_never_reaches_the_trainer(
    small_run: MakeRun,
) -> None:
    """The first cockpit has started the trainer itself, the others attach to it."""
    run = small_run("run", *LONG)
    pids = set()
    for number in (signal.SIGHUP, signal.SIGTERM, signal.SIGINT):
        with Terminal(str(run)) as t:
            t.wait(r"● training +step [1-9]")
            pids.add(holder(run).pid)
            os.kill(t.process.pid, number)
            t.ended()
            assert t.restored()
        at = e.history(run).last
        e.wait_for(lambda at=at: e.history(run).last > at + 20, "more steps")  # type: ignore[misc]
    (pid,) = pids
    assert alive(pid)
    end(pid)


def test_a_dropped_link_ends_the_cockpit_and_not_the_trainer(small_run: MakeRun) -> None:
    """The pty goes away, and SIGHUP is ignored (nohup): the cockpit must notice by itself and not spin."""
    run = small_run("run", *LONG)
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        t = Terminal(str(run))
    finally:
        signal.signal(signal.SIGHUP, before)
    t.wait(r"● training +step [1-9]")
    pid = holder(run).pid
    t._closing = True
    t._reader.join()
    os.close(t.master)
    os.close(t.slave)
    e.wait_for(lambda: t.process.poll() is not None, "the cockpit's end")
    at = e.history(run).last
    e.wait_for(lambda: e.history(run).last > at + 20, "more steps")
    os.kill(pid, signal.SIGTERM)
    e.wait_for(lambda: not alive(pid), "the trainer's end")


def test_watch_only_looks_on(small_run: MakeRun) -> None:
    run = small_run("run", *LONG)
    p = e.start(run)
    with Terminal(str(run), "--watch", columns=80, lines=24) as t:
        t.wait(r"● training +step [1-9]")
        assert "snapshot" not in t.text().splitlines()[-1]
        for key in "srq":
            t.send(key)
        t.ended() if t.process.poll() is not None else t.send("d")
        assert t.ended() == 0
    assert p.poll() is None
    assert e.named(run, "snapshot") == []
    p.terminate()
    assert p.wait(e.TIMEOUT) == 0


@pytest.mark.parametrize("size", [(80, 24), (200, 60), (40, 10)])
def test_it_works_at_other_sizes(size: tuple[int, int], small_run: MakeRun) -> None:
    run = small_run("run", "train.max_steps=60")
    p = e.start(run)
    e.wait_for(lambda: e.history(run).last > 10, "some steps", p)
    os.kill(p.pid, signal.SIGSTOP)  # until somebody looks on
    with Terminal(str(run), columns=size[0], lines=size[1]) as t:
        t.wait(r"step [1-9]")
        os.kill(p.pid, signal.SIGCONT)
        t.wait(r"■ finished")
        t.wait(r"ema [0-9.]+")
        t.send("d")
        assert t.ended() == 0
        assert t.restored()


def test_a_trainer_that_refuses_is_shown_with_its_line(small_run: MakeRun) -> None:
    run = small_run("run", "train.max_steps=20")
    assert e.finish(run) == 0
    for path in run.glob("step_*.bin"):
        path.unlink()
    with Terminal(str(run)) as t:
        t.wait(r"✗ dead 2")
        t.wait(r"no checkpoint is left")
        t.send("d")
        assert t.ended() == 0


def test_bytes_that_are_no_text_and_halves_of_characters_do_no_harm(small_run: MakeRun) -> None:
    run = small_run("run", "train.max_steps=5")
    p = e.start(run)
    assert p.wait(e.TIMEOUT) == 0
    with Terminal(str(run), "--watch") as t:
        t.wait(r"ema [0-9.]+")
        for piece in (b"\xe9", b"\xc3", b"\xa9", b"\xf0\x9f", b"\x1b", b"\x1b[", b"\xff\xfe\x00"):
            os.write(t.master, piece)
            time.sleep(0.3)  # a read of its own
        t.send("?")
        t.wait("Chart: zoom in")
        t.send("\x1b")
        time.sleep(0.5)  # else it is alt+d
        t.send("d")
        assert t.ended() == 0
        assert t.restored()
        assert "Error" not in t.text()
