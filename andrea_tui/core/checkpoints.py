"""What is known about the checkpoints: their events folded, beside the files that are there."""

from collections.abc import Iterable, Mapping

from andrea_tui.core import fmt
from andrea_tui.core.state import BEGINS
from andrea_tui.core.text import clean
from andrea_tui.core.views import CheckpointRow, CheckpointsView
from engine import keeping
from engine.config import KeepConfig
from engine.rundir import names
from engine.rundir.records import Event

_READ = ("resumed", "rollback", "branch")  # each began by reading the checkpoint of its step and its sha256
_SOON = 10.0  # seconds in which a file that was written is seen
_MOST_GONE = 50  # rows of files that are gone
GONE, WRONG_SIZE, UNKNOWN = "gone", "wrong size", "no event"


class Checkpoints:
    """Give it the events in their order, then ask for rows."""

    def __init__(self) -> None:
        self.saved: dict[int, Event] = {}  # step -> its newest checkpoint event
        self._gone: set[int] = set()  # steps of files that were removed or moved away, as events tell
        self._asked: set[int] = set()
        self._branched: set[int] = set()  # since the trainer began, which learns of it at its next start
        self._read: dict[int, tuple[float, str, str]] = {}  # step -> when, its sha256, what was wrong

    def add(self, events: Iterable[Event]) -> None:
        for e in events:
            self._add(e)

    def _add(self, e: Event) -> None:
        if e.event in keeping.ASKED_FOR:
            (self._branched if e.event == "branch" else self._asked).add(e.step)
        elif e.event in BEGINS:
            self._asked |= self._branched
        if e.event == "checkpoint":
            self.saved[e.step] = e
            self._gone.discard(e.step)
        elif e.event == "pruned":
            steps = e.info.get("steps")
            self._gone.update(s for s in steps if isinstance(s, int)) if isinstance(steps, list) else None
        elif e.event in ("rollback", "archived"):
            self._gone.update(s for s in self.saved if s > e.step)
        elif e.event == "set_aside":
            step = names.checkpoint_step(str(e.info.get("file")).partition(".bad-")[0])
            self._gone.update(() if step is None else (step,))
        elif e.event == "verified":
            self._verified(e)
        if e.event in _READ and e.step in self.saved:
            self._read[e.step] = (e.t, _sha256(self.saved[e.step]), "")

    def _verified(self, e: Event) -> None:
        for key in ("sha256", "damaged"):
            told = e.info.get(key)
            for name, value in told.items() if isinstance(told, dict) else ():
                step = names.checkpoint_step(str(name))
                if step is not None:
                    self._read[step] = (
                        e.t, str(value) if key == "sha256" else "", clean(str(value)) if key == "damaged" else "",
                    )  # fmt: skip

    # ---- out

    def there(self, files: frozenset[int] | None) -> dict[int, Event]:
        """step -> its newest checkpoint event, of those whose file is there; None: files are not known yet."""
        if files is None:
            return {s: self.saved[s] for s in sorted(self.saved) if s not in self._gone}
        return {s: self.saved[s] for s in sorted(files) if s in self.saved}

    def view(self, sizes: Mapping[int, int] | None, keep: KeepConfig | None, now: float) -> CheckpointsView:
        """Newest first. A file that is gone is shown where no event tells why, the newest such at least."""
        missing = sorted(self.saved.keys() - self._gone - (sizes or {}).keys())
        gone = [s for s in missing if self._is_gone(s, sizes, now)]
        known = [*(sizes or ()), *sorted(set(missing) - set(gone))]
        kept = keeping.kept(known, keep, self._asked) if keep is not None else {}
        rows = []
        for s in sorted([*known, *gone[-_MOST_GONE:]], reverse=True):
            row = self.row(s, sizes, now)
            why = "" if row.mark == GONE else (_kept(kept.get(s), keep) if keep is not None else fmt.NA)
            rows.append(CheckpointRow(row.step, row.age, row.why, row.size, row.verified, why, row.mark))
        total = sum(sizes.values()) if sizes is not None else sum(size_of(self.saved[s]) for s in known)
        return CheckpointsView(tuple(rows), total, len(gone))

    def row(self, step: int, sizes: Mapping[int, int] | None, now: float) -> CheckpointRow:
        e = self.saved.get(step)
        if e is None:
            return CheckpointRow(step, fmt.NA, "", fmt.size((sizes or {}).get(step)), fmt.NA, "", UNKNOWN)
        size = size_of(e)
        mark = ""
        if self._is_gone(step, sizes, now):
            mark = GONE
        elif size and (sizes or {}).get(step, size) != size:
            mark = WRONG_SIZE
        why = clean(str(e.info.get("why", "")))
        return CheckpointRow(
            step, fmt.age(now - e.t), why, fmt.size(size) if size else fmt.NA,
            "" if mark == GONE else self._when_read(e, now), "", mark,
        )  # fmt: skip

    def coming(self, now: float) -> frozenset[int]:
        """Steps whose event has just come: their files need not have been seen yet."""
        return frozenset(s for s in sorted(self.saved)[-3:] if 0 <= now - self.saved[s].t < _SOON)

    def _is_gone(self, step: int, sizes: Mapping[int, int] | None, now: float) -> bool:
        """The event comes before the file has its name, and the files are looked at now and then only."""
        return sizes is not None and step not in sizes and not 0 <= now - self.saved[step].t < _SOON

    def _when_read(self, e: Event, now: float) -> str:
        t, sha256, wrong = self._read.get(e.step, (0.0, "", ""))
        if t < e.t or (not wrong and sha256 != _sha256(e)):  # of an older file of that name
            return NOT_READ
        return f"damaged {fmt.age(now - t)} ago" if wrong else f"{fmt.age(now - t)} ago"


NOT_READ = "written, not read back"


def size_of(e: Event) -> int:
    """Bytes that a checkpoint event tells; 0: it tells none."""
    n = e.info.get("bytes")
    return n if isinstance(n, int) and n > 0 else 0


def _sha256(e: Event) -> str:
    return str(e.info.get("sha256"))


def _kept(reason: str | None, keep: KeepConfig) -> str:
    if reason is None:
        return "next to go"
    return {keeping.LAST: f"last {keep.last}", keeping.EVERY: f"every {fmt.count(keep.every)}"}.get(
        reason, reason
    )
