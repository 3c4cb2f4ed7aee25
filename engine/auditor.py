"""An audit: sample texts of the present weights, what they are worth, and whether the model has collapsed."""

import time

import numpy as np

from engine.audit import audit
from engine.collapse import IN_A_ROW, audits, collapse
from engine.data.rows import Rows
from engine.data.tokenizer import Tokenizer
from engine.errors import BadInput, StopRequested
from engine.model import GPT
from engine.rundir.records import SampleLine
from engine.scorer import Scorer
from engine.session import Session


class Auditor:
    """Makes the audits of one segment. Draws nothing that the training draws, and is not part of a step."""

    def __init__(self, s: Session, rows: Rows, tokenizer: Tokenizer) -> None:
        self.collapsed: int | None = None  # since which audit the sample texts are noise
        self._s, self._rows, self._tokenizer = s, rows, tokenizer
        self._scorer: Scorer | None = None  # made by the first audit

    def make(self, model: GPT, step: int) -> None:
        """Log the texts of these weights, measured. What can't be measured is still sampled. Raises StopRequested."""
        s, c = self._s, self._s.config
        s.tell("sampling", step=step)
        t0 = time.monotonic()
        texts = audit(
            model, self._tokenizer, c.audit, seed=c.run.seed, step=step, phase=s.phase, seg=s.seg,
            should_stop=s.flags.stopping,
        )  # fmt: skip
        t1 = time.monotonic()
        try:
            scorer = self._ready()
            before = {(x.prompt, x.mode): x.text for x in s.texts}
            for line, ids in texts:
                scorer.fill(line, ids, before.get((line.prompt, line.mode)))
        except (OSError, BadInput) as e:
            s.event("warning", f"the sample texts of step {step} could not be measured: {e}", step=step)
        lines = [line for line, _ in texts]
        s.log_texts(lines)
        self._tell(lines, step, t1 - t0, time.monotonic() - t1)
        self._look_for_collapse(step)

    def _ready(self) -> Scorer:
        if self._scorer is None:
            s = self._s
            arms, tokens = sorted(s.policy.arms), s.config.audit.tokens
            self._scorer = Scorer(s.run_dir, self._rows.manifest, self._tokenizer, arms, tokens, self._tick)
        return self._scorer

    def _tick(self, what: str, fraction: float) -> None:
        """The progress of what the first audit of a run has to prepare."""
        if self._s.flags.stop:
            raise StopRequested("sampling")
        self._s.tell("sampling", f"{what} {fraction:.0%}")

    def _tell(self, lines: list[SampleLine], step: int, sampling: float, measuring: float) -> None:
        """The event, with the cost as a multiple of a step."""
        s, took = self._s, round(sampling + measuring, 2)
        dt = s.history.dt[-20:]
        usual = float(np.median(dt[dt > 0])) if (dt > 0).any() else 0.0
        cost = f", as long as {took / usual:.1f} steps" if usual else ""
        bad = [x.verdict for x in lines if x.verdict]
        odd = f"; {len(bad)} odd: {', '.join(sorted(set(bad)))}" if bad else ""
        s.event(
            "audit", f"{len(lines)} sample texts in {took:.1f} s{cost}{odd}", step=step, seconds=took,
            measuring=round(measuring, 2), odd=len(bad), reference=self._scorer.ranges() if self._scorer else {},
        )  # fmt: skip

    def _look_for_collapse(self, step: int) -> None:
        since = collapse(audits(self._s.texts), self._s.good_before)
        if since is not None and since != self.collapsed:
            text = f"the sampled texts read like noise since step {since}: {IN_A_ROW} audits in a row"
            self._s.event("collapse", text, step=step, since=since)
        self.collapsed = since
