"""One look at everything in the run directory: what came since the last look, as an immutable update."""

import os
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from msgspec import Struct

from andrea_tui.core.deep import DeepHistory
from andrea_tui.core.follow import Follower
from andrea_tui.core.losslog import LossLog
from andrea_tui.core.recall import Place, Recall
from andrea_tui.core.resources import Probe, Resources
from andrea_tui.core.small_files import Problems, SmallFiles
from andrea_tui.core.text import clean
from andrea_tui.runner import Runner, TrainerState
from engine.config import Config, Policy
from engine.mix.state import State
from engine.rundir import names
from engine.rundir.files import read_file
from engine.rundir.history import History
from engine.rundir.lines import LineDecoder
from engine.rundir.pivot import Pivot
from engine.rundir.records import Event, LossLine, SampleLine, Status

TICK = 0.25  # seconds between looks
RESOURCES_EVERY = 4.0
_PIECES = 2  # of a file in one update
_LARGE = 1 << 28  # bytes of the audits of one phase
_LOG_TAIL = 1 << 16  # bytes of trainer.log that are of interest at first


class Update(Struct, frozen=True):
    """What changed since the one before. None and empty: nothing. `…_fresh`: forget what came before."""

    history: DeepHistory | None = None  # what an earlier cockpit read of it; before `loss`
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
    place: Place | None = None  # up to where, if without a gap
    problems: tuple[str, ...] = ()  # what can't be read now; whole list, cleaned

    @property
    def is_news(self) -> bool:
        """Whether there is anything but steps, the time of a status and the machine's load."""
        return bool(
            self.samples or self.archived or self.events or self.log or self.fresh or self.trainer or self.config
            or self.policy or self.mix or self.history or self.older or self.pivot is not None
            or self.text_ratios is not None
        )  # fmt: skip


class Reader:
    """One look at everything at a time. Used by one thread."""

    def __init__(self, run_dir: Path, runner: Runner, recall: Recall | None = None) -> None:
        self._run_dir, self._runner, self._recall = run_dir, runner, recall
        self._files: dict[str, Follower] = {n: Follower(run_dir / n) for n in (names.SAMPLES, names.EVENTS)}
        self._loss = LossLog(run_dir / names.LOSS)
        self._files[names.LOG] = Follower(run_dir / names.LOG, tail=_LOG_TAIL)
        self._decoders: dict[str, Any] = {}
        self._log_rest = b""
        self._bad = 0
        self._archives: set[str] = set()  # folders that were read
        self._trainer: TrainerState | None = None
        self._probe: Probe | None = None
        self._next_look = self._next_resources = 0.0
        self._looked = False
        self._problems = Problems(run_dir)
        self._small = SmallFiles(run_dir, self._problems)
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
        return Update(bad=self._last.bad, loaded=self._last.loaded, place=self._last.place, problems=problems)

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
        history = self._recalled()
        changed: dict[str, Any] = self._small.look() | self._machine()
        fresh: set[str] = set()
        events = self._records(names.EVENTS, Event, fresh)
        archived = self._archived()
        samples = self._records(names.SAMPLES, SampleLine, fresh)
        log = self._log_lines(fresh)
        loss = self._loss_lines(fresh)
        update = Update(
            history=None if names.LOSS in fresh else history,  # replaced in this moment
            loss=tuple(loss),
            samples=tuple(samples),
            archived=tuple(archived),
            events=tuple(events),
            log=tuple(log),
            fresh=frozenset(fresh),
            bad=self._bad_lines(),
            loaded=self._loss.loaded,
            place=self._loss.place,
            problems=self._problems.lines(),
            **changed,
        )
        quiet = self._only_problems(self._last.problems)
        self._last = update
        self._looked = True
        more = self._loss.behind or self._loss.more or any(f.loaded < 1.0 for f in self._files.values())
        return (None if update == quiet else update), more

    def _older(self) -> tuple[Update, bool]:
        older, more = None, True
        try:
            older = self._loss.older()
            self._problems.gone(names.LOSS)
        except OSError as e:
            self._problems.note(names.LOSS, e)
            more = False  # tried again after a while
        problems = self._problems.lines()
        self._last = Update(older=older, bad=self._bad_lines(), loaded=self._loss.loaded, place=self._loss.place,
                            problems=problems)  # fmt: skip
        return self._last, more

    def _recalled(self) -> DeepHistory | None:
        """Once, what an earlier cockpit kept."""
        recall, self._recall = self._recall, None
        try:
            return self._loss.recall(recall) if recall is not None else None
        except OSError:
            return None  # the log's: told when it is read

    def _loss_lines(self, fresh: set[str]) -> list[LossLine]:
        try:
            lines, again = self._loss.look()
            self._problems.gone(names.LOSS)
        except OSError as e:
            self._problems.note(names.LOSS, e)
            return []
        if again:
            fresh.add(names.LOSS)
        return lines

    def _bad_lines(self) -> int:
        return self._bad + self._loss.bad + int(sum(d.bad for d in self._decoders.values()))

    def _archived(self) -> list[SampleLine]:
        """The audits of phases that pivots have put into the archive since the last look."""
        if self._small.moved(names.ARCHIVE) is None:
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
                self._problems.note(f"{names.ARCHIVE}/{folder.name}", e)
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
            self._problems.gone(name)
        except OSError as e:
            self._problems.note(name, e)
        return out

    def _machine(self) -> dict[str, Any]:
        out: dict[str, Any] = {}
        try:
            trainer = self._runner.poll()
            if trainer != self._trainer:
                out["trainer"] = self._trainer = trainer
            if self._looked and time.monotonic() >= self._next_resources:
                out |= self._slow(trainer)
            self._problems.gone("machine")
        except Exception as e:  # noqa: BLE001  shown; the run's files are followed all the same
            self._problems.say("machine", f"{type(e).__name__}: {e}")
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
