"""The only state of the cockpit: what the feed brought, and the frozen views of it that widgets are shown.

Lives in the app's thread. `revision` grows whenever something changed; nothing else tells a reader to look.
"""

import time
from pathlib import Path

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from andrea_tui.core import alerts, audits, fmt
from andrea_tui.core import checkpoints as saved
from andrea_tui.core.baseline import BLOCK
from andrea_tui.core.course import Course
from andrea_tui.core.deep import DeepHistory
from andrea_tui.core.ema import DECAYS, DEFAULT, Ema
from andrea_tui.core.feed import Update
from andrea_tui.core.finding import Finding
from andrea_tui.core.health import Health
from andrea_tui.core.heldout import Heldout
from andrea_tui.core.journal import Journal
from andrea_tui.core.lens import WHOLE, Lens
from andrea_tui.core.marks import mark
from andrea_tui.core.minis import mini_views
from andrea_tui.core.mix import mix_view
from andrea_tui.core.noticed import Noticed
from andrea_tui.core.rates import Rates, rates
from andrea_tui.core.recall import Place
from andrea_tui.core.resources import Resources
from andrea_tui.core.spikes import RECENT
from andrea_tui.core.state import State, state
from andrea_tui.core.text import clean
from andrea_tui.core.views import (
    AlertsView,
    Audit,
    AuditView,
    ChartView,
    CheckpointsView,
    EventsView,
    LineAt,
    LineView,
    Mark,
    MiniView,
    MixView,
    NumbersView,
    ResourcesView,
    StatusView,
)
from andrea_tui.runner import TrainerState
from engine.config import Config, Policy
from engine.mix.state import State as MixState
from engine.rundir import names
from engine.rundir.history import canonical_samples
from engine.rundir.pivot import Pivot
from engine.rundir.records import Event, SampleLine, Status

_LOG_LINES = 2000
_HEALTH = 4.0, RECENT // 2  # seconds, by the log, and steps, in which quick ones are not looked through again


class Store:
    def __init__(self, run_dir: Path, watch: bool = False) -> None:
        self.run_dir, self.watch = run_dir, watch
        self.revision = 0
        self.news = 0  # grows likewise, but for steps, which always come
        self.course = Course()
        self.samples: list[SampleLine] = []
        self.archived: list[SampleLine] = []  # of phases that are over
        self.events: list[Event] = []
        self.log: list[str] = []
        self.status: Status | None = None
        self.status_moved: float | None = None
        self.trainer = TrainerState()
        self.resources: Resources | None = None
        self.config: Config | None = None
        self.policy: Policy | None = None
        self.files: frozenset[int] | None = None
        self.sizes: dict[int, int] | None = None
        self.journal = Journal()
        self._saved = saved.Checkpoints()
        self._pivots: list[Event] = []
        self._log_total = 0
        self._log_view: tuple[tuple[int, int], tuple[str, ...]] = ((-1, -1), ())
        self.bad = 0
        self.loaded = 0.0
        self.place: Place | None = None  # up to where the log was read, if without a gap
        self.problems: tuple[str, ...] = ()
        self.asked: tuple[str, float] | None = None  # what a person asked for, and when
        self.told: tuple[str, float, str] | None = None  # what came of it, when, and its tone
        self.error = ""  # of a command that failed
        self._rates = Rates()
        self._audits: tuple[Audit, ...] = ()
        self.mix_state: MixState | None = None
        self.pivot: Pivot | None = None  # that is asked for, or under way
        self.findings: tuple[Finding, ...] = ()
        self._health, self._noticed = Health(), Noticed()
        self._healthy_at = (0.0, 0)  # t of the last step that was looked at, and how many there were
        self._marks: tuple[Mark, ...] = ()
        self._heldout = Heldout()
        self.text_ratios: dict[str, float] = {}  # arm -> bytes a held-out token stands for

    @property
    def unsettled(self) -> bool:
        """Whether all was read and `work` is left to do."""
        return self.loaded >= 1.0 and not self.course.settled

    @property
    def history(self) -> DeepHistory:
        return self.course.history

    @property
    def ema(self) -> Ema:
        return self.course.ema

    # ---- in

    def apply(self, u: Update) -> None:
        self.revision += 1
        before = self.status.doing if self.status is not None else ""
        self.news += (
            u.is_news or u.problems != self.problems or (u.status is not None and u.status.doing != before)
        )
        if names.LOSS in u.fresh:
            self.course = Course(self.ema.decay)
        if u.history is not None:
            self.course.adopt(u.history)
        if u.loss:
            self.course.extend(u.loss)
        if u.older is not None:
            self.course.prepend(u.older)
        if names.SAMPLES in u.fresh:
            self.samples = []
        if u.samples:
            self.samples = canonical_samples(self.samples, u.samples)
        self.archived += u.archived
        if u.samples or u.archived or names.SAMPLES in u.fresh:
            self._audits = audits.audits([*self.archived, *self.samples])
        if names.EVENTS in u.fresh:
            self.events, self._marks = [], ()
            self.journal, self._saved, self._pivots = Journal(), saved.Checkpoints(), []
        self.events += u.events
        self._pivots += [e for e in u.events if e.event == "pivot"]
        self.journal.add(u.events)
        for row in self._noticed.rows if names.EVENTS in u.fresh else ():
            self.journal.insert(row)
        self._saved.add(u.events)
        self._marks += tuple(m for e in u.events if (m := mark(e)))
        self._confirm(u.events)
        if u.log or names.LOG in u.fresh:
            kept = [] if names.LOG in u.fresh else self.log
            self.log = [*kept, *u.log][-_LOG_LINES:]
            self._log_total += len(u.log)
        self.status = u.status or self.status
        self.status_moved = u.status_moved or self.status_moved
        self.trainer = u.trainer or self.trainer
        self.resources = u.resources or self.resources
        self.config = u.config or self.config
        self.policy = u.policy or self.policy
        self.mix_state = u.mix or self.mix_state
        self.text_ratios = self.text_ratios if u.text_ratios is None else u.text_ratios
        if u.pivot is not None:
            self.pivot = u.pivot[0] if u.pivot else None
        self.files = self.files if u.files is None else u.files
        self.sizes = self.sizes if u.sizes is None else u.sizes
        self.bad, self.loaded, self.place, self.problems = u.bad, u.loaded, u.place, u.problems
        if u.loss or u.status or u.fresh:
            self._rates = rates(self.history, self.status)
        self.work(only_steps=bool(u.loss) and not u.is_news and not any(x.bpb for x in u.loss))

    def work(self, only_steps: bool = False) -> bool:
        """Some of what a long history leaves to do; whether there is more. Between two calls keys have their turn.

        `only_steps`: nothing else is new. Many a second are not looked through for findings one by one, but at an
        evaluation: its point is weighed by what is known then.
        """
        if self.loaded < 1.0:  # of a part of the history, a best is not the best
            return False
        self.course.whole()
        if self.course.work():
            return True
        self.revision += 1
        t, n = float(self.history.t[-1]) if len(self.history) else 0.0, len(self.history)
        waited = t - self._healthy_at[0], n - self._healthy_at[1]
        if not (only_steps and 0.0 < waited[0] < _HEALTH[0] and 0 < waited[1] < _HEALTH[1]):
            self._healthy_at = t, n
            self._look_after_health()
        self._heldout.follow(self.history.bpb, self.text_ratios, self._shares_before)
        return False

    def _look_after_health(self) -> None:
        shut = frozenset(a for a, x in self.mix_state.arms.items() if x.cap == 0) if self.mix_state else None
        pivots = self._pivots
        self.findings = self._health.find(
            self.history, config=self.config, policy=self.policy, shut=shut, samples=self.samples,
            policy_phase=self.mix_state.phase if self.mix_state else None, resources=self.resources,
            good_before=bool(pivots and pivots[-1].info.get("good")),
        )  # fmt: skip
        for row in self._noticed.look(self.findings, self.history, time.time()):
            self.journal.insert(row)

    def _shares_before(self, step: int) -> dict[str, float]:
        """Of the rows in about 128 steps before."""
        end = self.history.position(step) // BLOCK
        levels = self._health.levels
        return levels.shares(2, end) if 0 < end <= levels.blocks else {}

    def smooth(self, by: int) -> float:
        """Less or more smoothing; returns the new d."""
        i = DECAYS.index(self.ema.decay) if self.ema.decay in DECAYS else DECAYS.index(DEFAULT)
        self.course.smooth(DECAYS[min(max(i + by, 0), len(DECAYS) - 1)])
        self.revision += 1
        self.work()
        return self.ema.decay

    def ask(self, text: str) -> None:
        """A person asked the trainer for something; the alerts say so until an event answers."""
        self.asked, self.told, self.error = (text, time.time()), None, ""
        self.revision, self.news = self.revision + 1, self.news + 1

    def tell(self, text: str, tone: str = "good") -> None:
        """What came of a command that needs no answer from the trainer; the alerts say it for a while."""
        self.told, self.error = (text, time.time(), tone), ""
        self.news += 1

    def fail(self, text: str) -> None:
        self.asked, self.error = None, clean(text)
        self.revision, self.news = self.revision + 1, self.news + 1

    def _confirm(self, events: tuple[Event, ...]) -> None:
        for e in events:
            saved = e.event == "snapshot" or (e.event == "checkpoint" and e.info.get("why") == "snapshot")
            if saved and self.asked and self.asked[0].startswith("snapshot") and e.t >= self.asked[1] - 1:
                self.asked, self.told = (
                    None,
                    (f"snapshot step {fmt.count(e.step)} saved", time.time(), "good"),
                )

    # ---- out

    def rates(self) -> Rates:
        return self._rates

    def state(self, now: float) -> State:
        still = now - self.status_moved if self.status_moved is not None else 0.0
        st = state(self.trainer, self.status, still, self.rates().usual, self.events, len(self.history))
        # which directory it is stands in the first line: a long path would push the reason off the screen
        return replace(st, meaning=st.meaning.replace(f"{clean(str(self.run_dir))}/", ""))

    @property
    def loading(self) -> int | None:
        """Per cent of the history that was read; None: all."""
        return None if self.loaded >= 1.0 and self.course.settled else min(99, int(self.loaded * 100))

    @property
    def _grown(self) -> tuple[int, int]:
        """Changes when a chart has more to show: while a long history is read, with every per cent of it."""
        return (len(self.history), 0) if self.loading is None else (1 + self.loading, 1)

    @property
    def name(self) -> str:
        return clean(self.run_dir.name or str(self.run_dir)) + "/"

    def status_view(self, now: float) -> StatusView:
        h, s, r, st = self.history, self.status, self.rates(), self.state(now)
        running = st.alive and st.kind != "stalled" and self.loading is None
        return StatusView(
            name=self.name,
            state=st,
            step=h.last,
            max_steps=self._max_steps(),
            eta=fmt.duration(r.eta) if running else fmt.NA,
            phase=int(h.phase[-1]) if len(h) else (s.phase if s else 0),
            seg=max(int(h.seg[-1]) if len(h) else 0, s.seg if s else 0),
            last=fmt.age(now - float(h.t[-1])) if len(h) and h.t[-1] > 0 else "",
            loading=self.loading,
            watch=self.watch,
            alarms=sum(f.tone != "dim" for f in self.findings),
        )

    def numbers_view(self, now: float) -> NumbersView:
        h, r = self.history, self.rates()
        best = self.course.best if self.loading is None else None
        going = self.state(now).alive
        n = len(h)
        return NumbersView(
            decay=self.ema.decay,
            ema=float(self.ema.values[-1]) if n else None,
            best=best[0] if best else None,
            best_step=best[1] if best else 0,
            loss=float(h.loss[-1]) if n else None,
            lr=float(h.lr[-1]) if n else None,
            gnorm=float(h.gnorm[-1]) if n else None,
            per_minute=60 / r.step_time if r.step_time and going else None,
            tokens=r.tokens if going else None,
            mfu=r.mfu if going else None,
            lost=self.course.lost,
        )

    def chart_view(self) -> ChartView:
        h = self.history
        return ChartView(
            revision=hash((self._grown, h.last, self.ema.decay, float(h.t[-1]) if len(h) else 0,
                           len(self._heldout.points))),
            step=h.step,
            loss=h.loss,
            ema=self.ema.values,
            decay=self.ema.decay,
            checkpoints=tuple(self._saved.there(self.files)),
            phases=tuple(self.course.phases[-50:]),
            phase_names=tuple((e.step, clean(str(e.info.get("old", ""))), clean(str(e.info.get("new", ""))))
                              for e in self._pivots),
            loading=self.loading,
            t=h.t,
            tokens_per_step=self.status.tokens_per_step if self.status else 0,
            marks=self._marks,
            heldout=self._heldout.points,
            at=self.line_at,
        )  # fmt: skip

    def line_at(self, step: int) -> LineAt | None:
        """What the step's line says; None where there is none."""
        h = self.history
        i = h.index(step)
        if i is None:
            return None
        drawn = [a for a in h.arms if h.rows(a)[i] > 0]
        arms = (
            tuple((clean(a), int(h.rows(a)[i]), float(h.rloss(a)[i])) for a in drawn) if i >= h.kept else None
        )
        return LineAt(step, float(h.loss[i]), float(self.ema.values[i]), float(h.lr[i]), float(h.gnorm[i]),
                      int(h.phase[i]), int(h.seg[i]), float(h.t[i]), float(h.dt[i]), arms)  # fmt: skip

    def minis(
        self, lens: Lens = WHOLE, x: NDArray[np.int32] | None = None
    ) -> tuple[MiniView, MiniView, MiniView]:
        """`x`: the coordinate of each step on the axis of the loss chart, if that is not the step."""
        per_step = self.status.tokens_per_step if self.status else 0
        return mini_views(self.history, self.rates(), per_step, self._grown, lens, x)

    def mix_view(self, curves: bool = True) -> MixView:
        return mix_view(self.history, self.policy, self.mix_state, curves)

    def audit_view(self, now: float) -> AuditView:
        files = None if self.files is None else self.files | self._saved.coming(now)
        return AuditView(self._audits, audits.reference(self.events), files, audits.policies(self._pivots))

    def checkpoints_view(self, now: float) -> CheckpointsView:
        return self._saved.view(self.sizes, self.config.keep if self.config else None, now)

    def events_view(self, now: float) -> EventsView:
        st, log = self.state(now), self._log_apart()
        return EventsView(
            self.journal, self.journal.version, log, self._log_total - len(log), st.meaning,
            not st.alive and not self.watch,
        )  # fmt: skip

    def _log_apart(self) -> tuple[str, ...]:
        """trainer.log says the events too, for whoever reads it alone: here they stand once."""
        about = (len(self.events), self._log_total)
        if about != self._log_view[0]:
            told = self.events[-_LOG_LINES:]
            said = {text for e in told for text in (clean(e.text), clean(f"{e.event}: {e.text}"))}
            self._log_view = (about, tuple(x for x in self.log if x not in said))
        return self._log_view[1]

    def resources_view(self) -> ResourcesView:
        s = self.status
        newest = max(self._saved.there(self.files).items(), default=None)
        return ResourcesView(
            self.resources,
            clean(s.device) if s else "",
            clean(s.precision) if s else "",
            saved.size_of(newest[1]) if newest else 0,
        )

    def line_view(self, now: float) -> LineView:
        there = self._saved.there(self.files)
        row = self._saved.row(max(there), self.sizes, now) if there else None
        return LineView(row, len(there), self.resources)

    def alerts_view(self, now: float) -> AlertsView:
        return alerts.alerts_view(self, now)

    # ---- parts

    def _max_steps(self) -> int | None:
        if self.status is not None and self.status.max_steps > 0 and self.trainer.alive:
            return self.status.max_steps
        if self.config is not None:
            return self.config.train.max_steps
        return self.status.max_steps if self.status is not None else None
