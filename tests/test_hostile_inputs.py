"""Broken inputs: one clear line each, said once, no traceback, no spin; and what was read stays on the screen.

A feed reads the real files; what a person sees are the alerts of the store that it feeds.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from andrea_tui.cli import make_run, run
from andrea_tui.core.feed import Reader
from andrea_tui.core.store import Store
from andrea_tui.runner import Runner
from engine.rundir.records import LossLine, Status, encode

NAMES = (".loss.json", ".samples.json", ".events.json", ".status.json", ".state.json", ".pivot.json", "trainer.log",
         "config.toml", "policy.toml")  # fmt: skip


class Looker:
    """A feed without its thread, and the store behind it."""

    def __init__(self, run_dir: Path) -> None:
        self.reader = Reader(run_dir, Runner(run_dir))
        self.store = Store(run_dir, watch=True)

    def look(self, times: int = 4) -> list[str]:
        """The alerts after so many looks."""
        for _ in range(times):
            more = True
            while more:
                update, more = self.reader.look() if not self.reader._loss.behind else self.reader._older()
                if update is not None:
                    self.store.apply(update)
        return [a.text for a in self.store.alerts_view(time.time()).alerts]

    def quiet(self) -> bool:
        """Whether nothing new is said while nothing changes (but what the machine measures)."""
        self.look()
        for _ in range(3):
            update, _more = self.reader.look()
            if update is not None and update.problems != self.store.problems:
                return False
        return True


@pytest.fixture
def made(tmp_path: Path) -> Path:
    run_dir = tmp_path / "run"
    make_run(run_dir, "andrea-tiny", [])
    with open(run_dir / ".loss.json", "wb") as f:
        for step in range(1, 51):
            f.write(encode(LossLine(step=step, loss=3.0 + step / 100, t=time.time(), dt=0.1)))
    return run_dir


@pytest.fixture
def looker(made: Path) -> Iterator[Looker]:
    found = Looker(made)
    yield found
    found.reader.close()


def fifo(p: Path) -> None:
    p.unlink(missing_ok=True)
    os.mkfifo(p)


def symlink(p: Path) -> None:
    p.unlink(missing_ok=True)
    p.symlink_to("/etc/hostname")


def directory(p: Path) -> None:
    p.unlink(missing_ok=True)
    p.mkdir()


TROUBLE: dict[str, Callable[[Path], object]] = {
    "nul": lambda p: p.write_bytes(b"\0" * 5000 + b"\n"),
    "broken": lambda p: p.write_bytes(b'{"step": 51, "loss"\n{]\n'),
    "giant": lambda p: p.write_bytes(b"x" * 3_000_000),
    "deep": lambda p: p.write_bytes(b"[" * 200_000 + b"\n"),
    "number": lambda p: p.write_bytes(b'{"step": ' + b"9" * 6000 + b"}\n"),
    "latin-1": lambda p: p.write_bytes(b'{"step": 51, "loss": 3.0, "x": "\xff\xfe"}\n'),
    "fifo": fifo,
    "symlink": symlink,
    "directory": directory,
    "gone": lambda p: p.unlink(missing_ok=True),
}  # fmt: skip


@pytest.mark.parametrize("kind", TROUBLE)
@pytest.mark.parametrize("name", NAMES)
def test_each_file_in_each_trouble(name: str, kind: str, made: Path, looker: Looker) -> None:
    looker.look()
    TROUBLE[kind](made / name)
    start = time.monotonic()
    alerts = looker.look()
    assert time.monotonic() - start < 5
    about = [a for a in alerts if name in a or "damaged" in a]
    assert all("Traceback" not in a and "Error:" not in a and "\0" not in a for a in alerts)
    assert len([a for a in alerts if name in a]) <= 1
    log = name == "trainer.log"
    if kind in ("fifo", "directory") or (kind == "symlink" and not name.endswith(".toml")):
        assert about, alerts
        assert any(w in about[0] for w in ("not a regular file", "symbolic link", "can't be read")), about
    elif kind in ("nul", "broken", "giant", "deep", "number") and not log:
        assert about, alerts
    if name != ".loss.json":
        assert looker.store.history.last == 50  # nothing else suffers
    assert looker.quiet()


def test_the_whole_directory_goes_comes_back_and_becomes_a_file(made: Path, looker: Looker) -> None:
    looker.look()
    away = made.with_name("moved")
    made.rename(away)
    (gone,) = [a for a in looker.look() if a.startswith("▲ run/")]
    assert "is gone (moved, deleted, not mounted?); what was read so far is shown" in gone
    assert looker.store.history.last == 50
    assert looker.quiet()
    made.write_text("a file")
    (gone,) = [a for a in looker.look() if a.startswith("▲ run/")]
    assert "is no directory any more" in gone
    made.unlink()
    away.rename(made)
    with open(made / ".loss.json", "ab") as f:
        f.write(encode(LossLine(step=51, loss=3.0, t=time.time())))
    assert not [a for a in looker.look() if a.startswith("▲ run/")]
    assert looker.store.history.last == 51


def test_another_run_in_its_place(made: Path, looker: Looker) -> None:
    looker.look()
    shutil.rmtree(made)
    looker.look()
    make_run(made, "andrea-tiny", [])
    (made / ".loss.json").write_bytes(encode(LossLine(step=1, loss=9.0)))
    looker.look()
    assert looker.store.history.last == 1


def test_files_that_nobody_may_read_are_told_together(made: Path) -> None:
    """Root may read everything: it becomes somebody else for that."""
    Looker(made).look()  # everything is imported
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        run_dir = shutil.copytree(made, Path(folder) / "run")
        run_dir.chmod(0o755)
        for name in HIDDEN:
            (run_dir / name).chmod(0)
        if os.getuid() != 0:
            assert told_together(run_dir)
            return
        pid = os.fork()
        if pid == 0:
            os.setuid(65534)
            os._exit(0 if told_together(run_dir) else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


HIDDEN = (".loss.json", ".events.json", "policy.toml")


def told_together(run_dir: Path) -> bool:
    said = [a for a in Looker(run_dir).look() if "Permission denied" in a]
    return len(said) <= 2 and all(n in " ".join(said) for n in HIDDEN)  # the files of lines, and the TOML


@pytest.mark.parametrize("years", [-1, 1])
def test_a_clock_that_jumps_by_a_year(
    years: int, made: Path, looker: Looker, monkeypatch: pytest.MonkeyPatch
) -> None:
    looker.look()
    looker.store.tell("told before the jump")
    real, by = time.time, years * 365 * 86400
    monkeypatch.setattr(time, "time", lambda: real() + by)
    with open(made / ".loss.json", "ab") as f:
        for step in range(51, 60):
            f.write(encode(LossLine(step=step, loss=3.0, t=time.time(), dt=0.1)))
    status = Status(pid=1, seg=0, step=59, max_steps=100, phase=0, doing="training", t=time.time())
    (made / ".status.json").write_bytes(encode(status))
    os.utime(made / ".status.json", (time.time(), time.time()))
    alerts = looker.look()
    assert looker.store.history.last == 59
    assert not [a for a in alerts if "told before" in a]
    for view in (looker.store.status_view(time.time()), looker.store.status_view(real())):
        assert "-" not in view.last
        assert "-" not in view.eta
    assert looker.store.rates().step_time == pytest.approx(0.1, rel=0.01)  # of the steps, not of the clock
    looker.store.checkpoints_view(time.time())
    looker.store.events_view(time.time())
    assert looker.quiet()


def test_what_a_newer_version_wrote_is_read_as_far_as_it_is_known(made: Path, looker: Looker) -> None:
    line = {"step": 51, "loss": 2.5, "quantum": {"a": [1]}, "t": 1.0}
    told = {"t": 1.0, "event": "teleported", "step": 51, "text": "to Mars", "why": None}
    status = {"pid": 1, "seg": 0, "step": 51, "max_steps": 99, "phase": 0, "doing": "dreaming", "dream": 1}
    with open(made / ".loss.json", "a") as f:
        f.write(json.dumps(line) + "\n")
    with open(made / ".events.json", "a") as f:
        f.write(json.dumps(told) + "\n")
    (made / ".status.json").write_text(json.dumps(status))
    alerts = looker.look()
    assert looker.store.history.last == 51
    assert looker.store.events[-1].text == "to Mars"
    assert looker.store.status is not None
    assert not [a for a in alerts if "damaged" in a or ".json" in a]


def test_duplicate_keys_and_numbers_that_are_none(made: Path, looker: Looker) -> None:
    with open(made / ".loss.json", "ab") as f:
        f.write(
            b'{"step":51,"loss":3.0,"loss":4.0,"t":1.0}\n{"step":52,"loss":NaN}\n{"step":53,"loss":1e999}\n'
        )
        f.write(b'{"step":true,"loss":1.0}\n{"step":54,"loss":null}\n')
    looker.look()
    assert looker.store.history.last == 54
    (at,) = [i for i, s in enumerate(looker.store.history.step) if s == 51]
    assert looker.store.history.loss[at] == 4.0
    assert looker.store.bad >= 2


# ---- the command line


REFUSED: dict[str, tuple[Callable[[Path], object], str]] = {
    "nan": (lambda r: change(r, "config.toml", "lr = ", "lr = nan #"), "config.toml: optim.lr: expected"),
    "deep": (lambda r: (r / "config.toml").write_text("a = " + "[" * 100_000), "config.toml: not valid TOML"),
    "digits": (lambda r: (r / "config.toml").write_text("a = " + "9" * 6000), "config.toml: not valid TOML"),
    "binary": (lambda r: (r / "config.toml").write_bytes(b"\xff\0"), "config.toml: not valid TOML"),
    "newer": (lambda r: change(r, "config.toml", "[model]", "[model]\nflux = 3"),
              "model.flux: unknown key; there are n_layer, n_head, d_model, context, norm, activation; "
              "a newer andrea-tui may know it"),
    "fifo": (lambda r: TROUBLE["fifo"](r / "policy.toml"), "policy.toml is not a regular file"),
    "directory": (lambda r: TROUBLE["directory"](r / "config.toml"), "config.toml is not a regular file"),
    "no policy": (lambda r: (r / "policy.toml").unlink(), "policy.toml: missing"),
}  # fmt: skip


def change(run_dir: Path, name: str, old: str, new: str) -> None:
    text = (run_dir / name).read_text("utf-8")
    assert old in text
    (run_dir / name).write_text(text.replace(old, new, 1), "utf-8")


@pytest.mark.parametrize("kind", REFUSED)
def test_what_can_t_be_flown_is_one_line_and_exit_2(
    kind: str, made: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    spoil, said = REFUSED[kind]
    spoil(made)
    assert run([str(made)]) == 2
    err = capsys.readouterr().err
    assert said in err
    assert len(err.splitlines()) == 1
    assert len(err) < 500


def test_a_run_that_can_t_be_written_is_looked_at(made: Path) -> None:
    """A read-only mount, as root sees it too: no trainer is started, and why is said in one line."""
    script = (
        "import os, sys\n"
        "real = os.access\n"
        "os.access = lambda p, m, **k: False if m & os.W_OK else real(p, m, **k)\n"
        "from andrea_tui.cli import run\n"
        "sys.exit(run(sys.argv[1:]))\n"
    )
    p = subprocess.Popen(
        [sys.executable, "-c", script, str(made)], stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    assert p.stdout is not None
    first = p.stdout.readline().decode()
    p.terminate()
    _, err = p.communicate(timeout=30)
    assert "watching the trainer" in first
    assert f"looking on: {made} can't be written" in err.decode()
    assert len(err.decode().splitlines()) == 1
    assert not (made / "trainer.log").exists()
