"""One process's hold on a run directory: lock, config, histories, logs, status. Knows no torch.

Everything that the trainer says to the outside goes through here.
"""

import os
import shutil
import time
from contextlib import ExitStack
from pathlib import Path

import msgspec

from engine import identity, keeping
from engine.config import CONFIG_FILE, POLICY_FILE, Config, Policy, load_config, load_policy
from engine.errors import BadInput
from engine.rundir import lock, names, pivot
from engine.rundir.checkpoint import remove_temporaries
from engine.rundir.files import Appender, read_file, replace_file, say
from engine.rundir.history import canonical_samples, read_history
from engine.rundir.lines import LineDecoder, R
from engine.rundir.records import Event, LossLine, SampleLine, Status, encode, event
from engine.signals import Flags

_LARGE = 1 << 32  # bytes; a sidecar beyond this is not ours


class Session:
    """Open it with the run directory; it holds the lock until it is closed."""

    def __init__(self, run_dir: Path, flags: Flags) -> None:
        """Raises BadInput with one line where the directory can't be trained."""
        self.run_dir, self.flags = run_dir, flags
        self.config: Config = load_config(run_dir / CONFIG_FILE)
        self._lock = lock.acquire(run_dir)
        with ExitStack() as undo:  # a start that is refused gives the run free at once
            undo.callback(os.close, self._lock)
            self._open(run_dir)
            undo.pop_all()

    def _open(self, run_dir: Path) -> None:
        self.finished = pivot.finish(run_dir)  # before all else: the policy may be another one after it
        self.policy: Policy = load_policy(run_dir / POLICY_FILE)
        self.past_events, bad_events = _read_lines(run_dir / names.EVENTS, Event)
        self.history, bad_loss = read_history(run_dir / names.LOSS)
        samples, bad_samples = _read_lines(run_dir / names.SAMPLES, SampleLine)
        # audits beyond the history's end are of steps that were rolled back
        self.texts = [x for x in canonical_samples([], samples) if x.step <= self.history.last]
        identity.refuse_changed_config(run_dir, self.config, self.past_events)
        identity.refuse_changed_policy(run_dir, self.policy, self.past_events)
        segs = [e.seg for e in self.past_events] + (
            [int(self.history.seg.max())] if len(self.history) else []
        )
        self.seg = max(segs, default=0) + 1
        phases = [int(e.info["phase"]) for e in self.past_events if e.event == "pivot" and "phase" in e.info]
        self.phase = max([*phases, *self.history.phase[-1:].tolist()], default=0)
        self.loss = Appender(run_dir / names.LOSS)
        self.samples = Appender(run_dir / names.SAMPLES)
        self.events = Appender(run_dir / names.EVENTS)
        self.status = Status(
            pid=os.getpid(), seg=self.seg, step=0, max_steps=self.config.train.max_steps, phase=self.phase,
            doing="preparing", policy=self.policy.name,
        )  # fmt: skip
        self.arms: identity.Arms = {}  # of the policy, once their data is there
        self._status_error = ""
        self._told = 0.0
        for name, bad in ((names.EVENTS, bad_events), (names.LOSS, bad_loss), (names.SAMPLES, bad_samples)):
            if bad:
                self.event("warning", f"{name}: {bad} damaged lines are skipped")
        for name in remove_temporaries(run_dir):
            self.event("warning", f"removed {name}, left by a writer that died")

    def tell(self, doing: str, detail: str = "", *, step: int | None = None, now: bool = False) -> None:
        """Replace `.status.json`, at most once a second unless what it does changed."""
        s = self.status
        changed = doing != s.doing
        s.doing, s.detail = doing, detail
        s.step = s.step if step is None else step
        s.behind = self.loss.behind + self.samples.behind + self.events.behind
        if changed or now or time.monotonic() - self._told >= 1.0:
            self._told = time.monotonic()
            s.t = round(time.time(), 3)
            try:
                replace_file(self.run_dir / names.STATUS, msgspec.json.encode(s) + b"\n", durable=False)
                self._status_error = ""
            except OSError as e:
                if str(e) != self._status_error:  # once, not every second
                    self._status_error = str(e)
                    self.event("warning", f"{names.STATUS} can't be written: {e.strerror}")

    def event(self, name: str, text: str, *, step: int | None = None, **info: object) -> None:
        """Append to `.events.json` and say it in trainer.log."""
        say(f"{name}: {text}")
        at = self.status.step if step is None else step
        self.events.append(encode(event(name, step=at, seg=self.seg, text=text, **info)))

    def log_loss(self, line: LossLine) -> None:
        self.loss.append(encode(line))
        self.history.extend([line])

    def log_texts(self, lines: list[SampleLine]) -> None:
        for line in lines:
            self.samples.append(encode(line))
        self.texts = canonical_samples(self.texts, lines)

    @property
    def audited(self) -> set[int]:
        """Steps that have an audit."""
        return {x.step for x in self.texts}

    @property
    def good_before(self) -> bool:
        """Whether an audit of a phase before this one read well."""
        pivots = [e for e in self.past_events if e.event == "pivot"]
        return bool(pivots and pivots[-1].info.get("good"))

    def known_hashes(self, step: int) -> set[str]:
        """sha256 of every checkpoint event of this step."""
        return {
            str(e.info.get("sha256")) for e in self.past_events if e.event == "checkpoint" and e.step == step
        }

    def snapshots(self) -> set[int]:
        """Steps whose checkpoints a person asked for."""
        return keeping.asked_for(self.past_events)

    def free_bytes(self) -> int:
        return shutil.disk_usage(self.run_dir).free

    def close(self, keep_lock: bool = False) -> None:
        """Write what can be written, then give the run free, or hand it over to the program that replaces this one."""
        for appender in (self.loss, self.samples, self.events):
            appender.close()
        if keep_lock:
            lock.hand_over(self._lock)
        else:
            os.close(self._lock)


def _read_lines(path: Path, kind: type[R]) -> tuple[list[R], int]:
    decoder = LineDecoder(kind)
    try:
        return decoder.feed(read_file(path, _LARGE)), decoder.bad
    except FileNotFoundError:
        return [], 0
    except OSError as e:
        raise BadInput(f"{path}: can't be read: {e.strerror or e}") from None
