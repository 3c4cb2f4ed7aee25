"""Every system call of a boundary is struck: by SIGKILL, and by EIO, ENOSPC, EDQUOT, EINTR, once and twice in a row.

Whatever is struck: every file under a checkpoint's name is whole and vouched for by an event, the newest that was
reported saved is there, no loss line is missing, the sidecar is wholly old or wholly new, no temporary is left by
whoever lives, and at the next boundary all is made good. The controls show that each protection is needed.
"""

import os
import re
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from engine.rundir import checkpoint, names
from engine.rundir.checkpoint import Damaged
from engine.rundir.history import read_history
from engine.rundir.lines import LineDecoder
from engine.rundir.records import Event
from tests import fault_script as script

SECONDS = 2  # how many calls after a fault are struck as well
ERRORS = ("EIO", "ENOSPC", "EDQUOT", "EINTR")
_CALL = re.compile(r"^(\w+)\(", re.M)
_NOT_FILES = {"mmap", "read", "poll"}  # memory; the rest of the pipe's protocol

Fault = tuple[str, int, str]  # system call, which one of its kind, "KILL" or an error


class Striker:
    """Forks children that do the work and strikes them."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.count = folder, 0
        self._lock = threading.Lock()
        self.template = folder / "template"
        script.prepare(self.template)
        self._server = subprocess.Popen(
            [os.path.realpath(sys.executable), "-m", "tests.fault_script"],
            env={**os.environ, "OPENBLAS_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(sys.path)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def close(self) -> None:
        assert self._server.stdin
        self._server.stdin.close()
        self._server.wait(60)

    def trial(self, variant: str, *faults: Fault) -> tuple[list[str], list[str]]:
        """(system calls made under fire, what is wrong afterwards)."""
        with self._lock:
            self.count += 1
            run = self.folder / f"{self.count}"
            shutil.copytree(self.template, run)
            assert self._server.stdin and self._server.stdout
            print(run, variant, file=self._server.stdin, flush=True)
            pid = int(self._server.stdout.readline())
        trace = self.folder / f"{self.count}.{threading.get_ident()}.trace"
        inject = [f"--inject={call}:{_how(how)}:when={k}" for call, k, how in faults]
        strace = subprocess.Popen(
            ["strace", "-p", str(pid), "-o", str(trace), "-e", "trace=%file,%desc", "-s", "0", *inject],
            stderr=subprocess.PIPE,
            text=True,
        )
        assert strace.stderr
        said = strace.stderr.readline()
        if "attached" not in said:
            os.kill(pid, signal.SIGKILL)
            pytest.skip(f"strace may not attach, no fault injection at system calls: {said.strip()}")
        os.kill(pid, signal.SIGUSR1)
        strace.communicate(timeout=60)
        calls = _calls(trace.read_text())
        wrong = violations(run, script.Notes(run).now(), any(call == "unlink" for call, _, _ in faults))
        shutil.rmtree(run)
        trace.unlink()
        return calls, wrong

    def strike(self, variant: str, trials: list[tuple[Fault, ...]]) -> list[str]:
        """What is wrong after any of the trials, one line each."""
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            found = pool.map(lambda faults: (faults, self.trial(variant, *faults)[1]), trials)
            return [f"{faults}: {x}" for faults, wrong in found for x in wrong]


def _how(how: str) -> str:
    return "signal=KILL" if how == "KILL" else f"error={how}"


def _calls(trace: str) -> list[str]:
    """Names of the system calls up to the end of the fire."""
    head, end, _ = trace.partition(script.END)
    names = [name for name in _CALL.findall(head) if name not in _NOT_FILES]
    return names[:-1] if end else names  # without the mark itself


def numbered(calls: list[str]) -> list[tuple[str, int]]:
    return [(name, calls[: i + 1].count(name)) for i, name in enumerate(calls)]


def violations(run: Path, notes: dict[str, int], unlink_struck: bool) -> list[str]:
    out = []
    lived = bool(notes["lived"])
    if notes["crashed"]:
        out.append("an exception escaped: " + (run / names.LOG).read_text()[-300:])
    decoder = LineDecoder(Event)
    events = decoder.feed((run / names.EVENTS).read_bytes())
    history, bad = read_history(run / names.LOSS)
    if bad or decoder.bad:
        out.append(f"{bad} + {decoder.bad} lines do not parse")

    good = []
    for path in run.glob("step_*.bin"):
        known = {
            str(e.info["sha256"])
            for e in events
            if e.event == "checkpoint" and path.name in checkpoint_name(e)
        }
        try:
            step, parts, _ = checkpoint.load(path, script.N, known)
        except Damaged as e:
            out.append(str(e))
            continue
        if any((a != b).any() for a, b in zip(parts, script.parts(step), strict=True)):
            out.append(f"{path.name} holds other numbers")
        if step > history.last:
            out.append(f"{path.name} is beyond the history's end {history.last}")
        good.append(step)
    durable = script.THIRD if lived else max(notes["durable"], script.FIRST)
    if max(good, default=-1) < durable:
        out.append(f"step {durable} was saved, but there are only {good}")

    if [history.line(i) for i in range(len(history))] != [
        script.loss_line(s) for s in range(1, history.last + 1)
    ]:
        out.append("the history is not what was logged")
    logged = script.THIRD if lived else max(notes["logged"], durable)
    if history.last < logged:
        out.append(f"logged up to {logged}, but the history ends at {history.last}")

    state = (run / names.STATE).read_bytes()
    since = script.THIRD if lived else notes["sidecar"]
    may_be = {0: script.OLD, script.SECOND: script.NEW, script.THIRD: script.NEWEST}
    if state not in [text for step, text in may_be.items() if step >= since]:
        out.append(f"the sidecar is {state!r} after {since}")

    if not lived or unlink_struck:  # then the next start tidies up
        checkpoint.remove_temporaries(run)
    if left := [x for x in os.listdir(run) if "tmp" in x]:
        out.append(f"temporaries are left: {left}")
    return out


def checkpoint_name(e: Event) -> str:
    return names.checkpoint_name(e.step)


@pytest.fixture(scope="module")
def striker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Striker]:
    if shutil.which("strace") is None:
        pytest.skip("strace is missing (apt-get install strace): no fault injection at system calls")
    s = Striker(tmp_path_factory.mktemp("faults"))
    yield s
    s.close()


def test_no_fault_at_any_system_call_does_harm(striker: Striker) -> None:
    calls, wrong = striker.trial("real")
    assert wrong == []
    for needed in (
        "openat",
        "fallocate",
        "write",
        "fsync",
        "fdatasync",
        "close",
        "rename",
        "unlink",
        "getdents64",
    ):
        assert needed in calls
    assert striker.strike("real", singly(calls, "KILL", *ERRORS)) == []


def test_no_second_fault_while_the_first_is_dealt_with_does_harm(striker: Striker) -> None:
    """The second strikes each of the next few calls after the first: the unlink, the reopening, the warning …"""
    calls, _ = striker.trial("real")
    twice: list[tuple[Fault, ...]] = []
    for i, (call, k) in enumerate(numbered(calls)):
        first = (call, k, "EIO")
        after = numbered(striker.trial("real", first)[0])[i + 1 :]
        twice += [(first, (call, k, how)) for call, k in after[:SECONDS] for how in ("EIO", "KILL")]
    assert len(twice) > 2 * len(calls)
    assert striker.strike("real", twice) == []


@pytest.mark.parametrize(
    ("variant", "how", "finds"),
    [
        ("straight", "KILL", "shorter than its header"),
        ("event-late", "KILL", "is in no checkpoint event"),
        ("prune-first", "KILL", "was saved, but there are only []"),
        ("no-queue", "ENOSPC", "the history is not what was logged"),
        ("in-place", "KILL", "the sidecar is b'' after 0"),
    ],
)
def test_control_without_its_protection_the_same_trials_do_harm(
    variant: str, how: str, finds: str, striker: Striker
) -> None:
    calls, wrong = striker.trial(variant)
    assert wrong == []  # all is well while nothing strikes
    wrong = striker.strike(variant, singly(calls, how))
    assert any(finds in x for x in wrong), wrong


def singly(calls: list[str], *hows: str) -> list[tuple[Fault, ...]]:
    return [((call, k, how),) for call, k in numbered(calls) for how in hows]
