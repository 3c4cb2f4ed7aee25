"""The thread that looks at the run directory and hands immutable updates to whoever draws.

It never touches the screen. One update is under way at a time: while nobody takes it (a stalled terminal) it
reads no further. It is the only reader of the run's files in the cockpit.
"""

import errno
import os
import select
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from andrea_tui.core import heldout
from andrea_tui.core.follow import Follower
from andrea_tui.core.losslog import LossLog
from andrea_tui.core.resources import Probe, Resources
from andrea_tui.core.text import clean
from andrea_tui.runner import Runner, TrainerState
from engine.config import CONFIG_FILE, POLICY_FILE, Config, Policy, load_config, load_policy
from engine.errors import BadInput
from engine.mix.state import State, read_state
from engine.rundir import names, pivot
from engine.rundir.files import read_file, refuse_special
from engine.rundir.history import History
from engine.rundir.lines import LineDecoder
from engine.rundir.pivot import Pivot
from engine.rundir.records import Event, LossLine, SampleLine, Status, decode

TICK = 0.25  # seconds between looks
BELL_TICK = 0.5  # where a doorbell rings for what happens in between; the screen shows no more than that
RESOURCES_EVERY = 4.0
_PIECES = 2  # of a file in one update
_LARGE = 1 << 28  # bytes of the audits of one phase
_LOG_TAIL = 1 << 16  # bytes of trainer.log that are of interest at first


@dataclass(frozen=True)
class Update:
    """What changed since the one before. None and empty: nothing. `…_fresh`: forget what came before."""

    loss: tuple[LossLine, ...] = ()
    older: History | None = None  # goes in front of what there is, after `loss`
    samples: tuple[SampleLine, ...] = ()
    archived: tuple[SampleLine, ...] = ()  # of phases that are over, oldest first; more of them
    events: tuple[Event, ...] = ()
    log: tuple[str, ...] = ()  # cleaned lines
    fresh: frozenset[str] = frozenset()  # names of the files that start again
    status: Status | None = None
    status_moved: float | None = None  # time.time() when the status file last moved
    trainer: TrainerState | None = None
    resources: Resources | None = None
    config: Config | None = None
    policy: Policy | None = None
    mix: State | None = None
    pivot: tuple[Pivot, ...] | None = None  # the one that is asked for, or none of them
    files: frozenset[int] | None = None  # steps of the checkpoint files that are there
    sizes: dict[int, int] | None = None  # their bytes
    text_ratios: dict[str, float] | None = None  # arm -> bytes that a held-out token stands for
    bad: int = 0  # damaged lines so far, in all files
    loaded: float = 1.0  # part of .loss.json that was read
    problems: tuple[str, ...] = ()  # what can't be read now; whole list, cleaned


class Feed:
    """Start it, `take` updates when `notify` was called (in the feed's thread), close it."""

    def __init__(
        self,
        run_dir: Path,
        runner: Runner,
        notify: Callable[[], None],
        hung_up: Callable[[], None] | None = None,
        tty: int | None = None,
    ) -> None:
        """`hung_up` is called, once, when the terminal behind the descriptor `tty` is gone."""
        self._reader = Reader(run_dir, runner)
        self._run_dir = run_dir
        self._notify, self._hung_up, self._tty = notify, hung_up, tty
        self._update: Update | None = None  # that nobody took yet
        self._stop = threading.Event()
        # Set while nothing is under way. Decoding and applying take turns: side by side they would only fight
        # for the interpreter, and a stalled screen would fill the memory.
        self._free = threading.Event()
        self._free.set()
        self._bell: Any = None
        self._thread = threading.Thread(target=self._run, name="feed", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        self._stop.set()
        self._free.set()
        if self._thread.is_alive():
            self._thread.join(2)

    def take(self) -> Iterator[Update]:
        """What came since the last call, at most one; the feed goes on when it was dealt with."""
        update, self._update = self._update, None
        if update is not None:
            yield update
            self._free.set()

    def _run(self) -> None:
        self._bell = _doorbell(self._run_dir)
        try:
            while not self._stop.is_set():
                if not self._tick():
                    self._wait()
        finally:
            self._reader.close()

    def _wait(self) -> None:
        start = time.monotonic()
        if self._bell is not None:
            try:
                self._bell.watch(100, 100, int(BELL_TICK * 1000), self._stop)
            except Exception:  # noqa: BLE001  the doorbell is a convenience: without it we still look
                self._bell = None
        # It rings for every write: even so no more often than without it.
        self._stop.wait(max(0.0, TICK - (time.monotonic() - start)))

    def _tick(self) -> bool:
        """Whether there is more to read at once."""
        if self._tty is not None and self._hung_up is not None and _is_hung_up(self._tty):
            self._tty = None
            self._hung_up()
        if not self._free.wait(TICK):
            return False
        try:
            update, more = self._reader.next()
        except Exception as e:  # noqa: BLE001  shown in the dashboard, and tried again
            update, more = self._reader.failed(e), False
        if update is not None:
            self._free.clear()
            self._update = update
            self._notify()
        return more


class Reader:
    """One look at everything at a time. Used by one thread."""

    def __init__(self, run_dir: Path, runner: Runner) -> None:
        self._run_dir, self._runner = run_dir, runner
        self._files: dict[str, Follower] = {
            n: Follower(run_dir / n) for n in (names.SAMPLES, names.EVENTS)
        }
        self._loss = LossLog(run_dir / names.LOSS)
        self._files[names.LOG] = Follower(run_dir / names.LOG, tail=_LOG_TAIL)
        self._decoders: dict[str, Any] = {}
        self._log_rest = b""
        self._bad = 0
        self._archives: set[str] = set()  # folders that were read
        self._seen: dict[str, tuple[int, int, int] | None] = {}
        self._trainer: TrainerState | None = None
        self._probe: Probe | None = None
        self._next_look = self._next_resources = 0.0
        self._looked = False
        self._problems: dict[str, str] = {}
        self._last = Update()

    def close(self) -> None:
        for f in self._files.values():
            f.close()
        self._loss.close()

    def next(self) -> tuple[Update | None, bool]:
        """A look, or, between looks, older lines of a long history; and whether there is more to read at once."""
        now = time.monotonic()
        if self._loss.behind and now < self._next_look:
            return self._older()
        self._next_look = now + TICK
        return self.look()

    def failed(self, e: Exception) -> Update:
        """What is shown of an error that nobody thought of."""
        self._last = self._only_problems((clean(f"feed: {type(e).__name__}: {e}"),))
        return self._last

    def _only_problems(self, problems: tuple[str, ...]) -> Update:
        return Update(bad=self._last.bad, loaded=self._last.loaded, problems=problems)

    def _gone(self) -> str:
        """Why nothing of the run can be read now, in one line; "" where it can."""
        try:
            os.stat(os.path.join(self._run_dir, "."))  # a Path would drop the dot, which only a directory has
        except FileNotFoundError:
            why = "is gone (moved, deleted, not mounted?)"
        except NotADirectoryError:
            why = "is no directory any more"
        except OSError as e:
            why = f"can't be read: {e.strerror}"
        else:
            return ""
        return clean(f"{self._run_dir.name}/ {why}; what was read so far is shown")

    def look(self) -> tuple[Update | None, bool]:
        """(what changed, whether there is more to read at once); None where nothing did."""
        if gone := self._gone():
            before, self._last = self._last, self._only_problems((gone,))
            return (None if self._last == before else self._last), False
        # First what may fail in new ways: no line that was read may be lost to that.
        changed: dict[str, Any] = self._small_files() | self._machine()
        fresh: set[str] = set()
        events = self._records(names.EVENTS, Event, fresh)
        archived = self._archived()
        samples = self._records(names.SAMPLES, SampleLine, fresh)
        log = self._log_lines(fresh)
        loss = self._loss_lines(fresh)
        update = Update(
            loss=tuple(loss),
            samples=tuple(samples),
            archived=tuple(archived),
            events=tuple(events),
            log=tuple(log),
            fresh=frozenset(fresh),
            bad=self._bad_lines(),
            loaded=self._loss.loaded,
            problems=_joined(self._problems),
            **changed,
        )
        quiet = Update(bad=self._last.bad, loaded=self._last.loaded, problems=self._last.problems)
        self._last = update
        self._looked = True
        more = self._loss.behind or self._loss.more or any(f.loaded < 1.0 for f in self._files.values())
        return (None if update == quiet else update), more

    def _older(self) -> tuple[Update, bool]:
        older, more = None, True
        try:
            older = self._loss.older()
            self._problems.pop(names.LOSS, None)
        except OSError as e:
            self._problem(names.LOSS, e)
            more = False  # tried again after a while
        problems = _joined(self._problems)
        self._last = Update(older=older, bad=self._bad_lines(), loaded=self._loss.loaded, problems=problems)
        return self._last, more

    def _loss_lines(self, fresh: set[str]) -> list[LossLine]:
        try:
            lines, again = self._loss.look()
            self._problems.pop(names.LOSS, None)
        except OSError as e:
            self._problem(names.LOSS, e)
            return []
        if again:
            fresh.add(names.LOSS)
        return lines

    def _bad_lines(self) -> int:
        return self._bad + self._loss.bad + int(sum(d.bad for d in self._decoders.values()))

    def _archived(self) -> list[SampleLine]:
        """The audits of phases that pivots have put into the archive since the last look."""
        if self._moved(names.ARCHIVE) is None:
            return []
        out: list[SampleLine] = []
        for folder in sorted((self._run_dir / names.ARCHIVE).glob("*")):
            if folder.name in self._archives or folder.name.endswith(".part"):
                continue
            self._archives.add(folder.name)
            try:
                out += LineDecoder(SampleLine).feed(read_file(folder / names.SAMPLES, _LARGE))
            except FileNotFoundError:
                pass  # a rollback's
            except OSError as e:
                self._problem(f"{names.ARCHIVE}/{folder.name}", e)
        return out

    def _records(self, name: str, kind: Any, fresh: set[str]) -> list[Any]:
        out: list[Any] = []
        for data in self._bytes(name, fresh):
            if name in fresh and not out and name in self._decoders:
                self._bad += self._decoders.pop(name).bad
            out += self._decoders.setdefault(name, LineDecoder(kind)).feed(data)
        return out

    def _log_lines(self, fresh: set[str]) -> list[str]:
        data = b"".join(self._bytes(names.LOG, fresh))
        *lines, rest = (self._log_rest + data).split(b"\n")
        self._log_rest = rest[-4096:]
        return [clean(x[:4096].decode("utf-8", "replace")) for x in lines[-1000:]]

    def _bytes(self, name: str, fresh: set[str]) -> list[bytes]:
        """The file's next bytes; those before it started again are dropped with it."""
        out: list[bytes] = []
        try:
            for _ in range(_PIECES):
                piece = self._files[name].read()
                if piece is None:
                    break
                if piece.fresh:
                    fresh.add(name)
                    out.clear()
                out.append(piece.data)
            self._problems.pop(name, None)
        except OSError as e:
            self._problem(name, e)
        return out

    def _small_files(self) -> dict[str, Any]:
        out: dict[str, Any] = {}
        if (moved := self._moved(names.STATUS)) is not None:
            out["status_moved"] = moved
            try:
                out["status"] = decode(read_file(self._run_dir / names.STATUS), Status)
                self._problems.pop(names.STATUS, None)
            except FileNotFoundError:
                pass
            except (OSError, msgspec.MsgspecError, ValueError, RecursionError) as e:
                self._problem(names.STATUS, e)
        loaders = ((CONFIG_FILE, "config", load_config), (POLICY_FILE, "policy", load_policy))
        for name, key, load in loaders:
            if self._moved(name) is not None:
                try:
                    refuse_special(self._run_dir / name)
                    out[key] = load(self._run_dir / name)
                    self._problems.pop(name, None)
                except (OSError, BadInput) as e:
                    self._problem(name, e)
        if self._moved(names.STATE) is not None:
            try:
                out["mix"] = read_state(self._run_dir / names.STATE)
                self._problems.pop(names.STATE, None)
            except (OSError, ValueError) as e:
                self._problem(names.STATE, e)
        if self._moved(heldout.MANIFEST) is not None:
            try:
                out["text_ratios"] = heldout.bytes_per_token(self._run_dir)
                self._problems.pop(heldout.MANIFEST, None)
            except (OSError, msgspec.MsgspecError, ValueError, RecursionError) as e:
                self._problem(heldout.MANIFEST, e)
        return out | self._pivot()

    def _pivot(self) -> dict[str, Any]:
        """The request: it comes, is written again, and goes."""
        was_there = self._seen.get(names.PIVOT) is not None
        if self._moved(names.PIVOT) is None:
            if not was_there or self._seen[names.PIVOT] is not None:
                return {}
            self._problems.pop(names.PIVOT, None)
            return {"pivot": ()}
        try:
            found = pivot.read(self._run_dir)
            self._problems.pop(names.PIVOT, None)
        except BadInput as e:
            self._problem(names.PIVOT, e)
            found = None
        return {"pivot": () if found is None else (found,)}

    def _moved(self, name: str) -> float | None:
        """Its mtime where the file is another one than at the last look."""
        try:
            info = os.stat(f"{self._run_dir}/{name}", follow_symlinks=False)  # pathlib takes longer than the stat
        except FileNotFoundError:
            self._seen[name] = None
            return None
        except OSError as e:
            self._problem(name, e)
            return None
        signature = (info.st_ino, info.st_mtime_ns, info.st_size)
        if self._seen.get(name) == signature:
            return None
        self._seen[name] = signature
        return info.st_mtime

    def _machine(self) -> dict[str, Any]:
        out: dict[str, Any] = {}
        try:
            trainer = self._runner.poll()
            if trainer != self._trainer:
                out["trainer"] = self._trainer = trainer
            if self._looked and time.monotonic() >= self._next_resources:
                out |= self._slow(trainer)
            self._problems.pop("machine", None)
        except Exception as e:  # noqa: BLE001  shown; the run's files are followed all the same
            self._problems["machine"] = clean(f"{type(e).__name__}: {e}")
        return out

    def _slow(self, trainer: TrainerState) -> dict[str, Any]:
        self._next_resources = time.monotonic() + RESOURCES_EVERY
        if self._probe is None:
            self._probe = Probe(self._run_dir)
        pid = trainer.pid if trainer.alive and trainer.here else None
        out: dict[str, Any] = {"resources": self._probe.look(pid)}
        out["sizes"] = self._sizes()
        out["files"] = frozenset(out["sizes"])
        return out

    def _sizes(self) -> dict[int, int]:
        out: dict[int, int] = {}
        for entry in os.scandir(self._run_dir):
            step = names.checkpoint_step(entry.name)
            if step is not None:
                with suppress(FileNotFoundError):  # pruned at this moment
                    out[step] = entry.stat(follow_symlinks=False).st_size
        return out

    def _problem(self, name: str, e: Exception) -> None:
        text = (e.strerror or str(e)) if isinstance(e, OSError) else str(e)
        if isinstance(e, OSError) and e.errno == errno.ELOOP:
            text = "is a symbolic link, and those are not followed"
        text = text.replace(f"{self._run_dir}/", "")
        self._problems[name] = clean(text if text.startswith(name) else f"{name}: {text}")


def _joined(problems: dict[str, str]) -> tuple[str, ...]:
    """One line for several files with the same trouble."""
    by_reason: dict[str, list[str]] = {}
    for name, text in problems.items():
        by_reason.setdefault(text.removeprefix(name), []).append(name)
    return tuple(", ".join(found) + reason if reason.startswith((":", " ")) else reason
                 for reason, found in by_reason.items())  # fmt: skip


def _doorbell(run_dir: Path) -> Any:
    """Rings when something in the directory changes, or None where that can't be had (NFS, out of watches)."""
    try:
        from watchfiles._rust_notify import RustNotify

        return RustNotify([str(run_dir)], False, False, 300, False, True)
    except Exception:  # noqa: BLE001  looking every 250 ms is enough
        return None


def _is_hung_up(fd: int) -> bool:
    poll = select.poll()
    poll.register(fd, 0)  # POLLHUP, POLLERR and POLLNVAL are always reported
    return bool(poll.poll(0))
