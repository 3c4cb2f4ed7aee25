"""The training: restore, then step after step until the end or a signal. `Trainer.run` is the loop.

A step is done when its line is in `.loss.json`. All that a resume needs is in the checkpoint (weights, m, v, step)
or a pure function of the step and the logged lines.
"""

import errno
import math
import os
import time

import numpy as np
import torch
from torch import Tensor

from engine import device, pivoting, plan
from engine.auditor import Auditor
from engine.config import Config
from engine.data.rows import Rows
from engine.data.tokenizer import Tokenizer
from engine.errors import (
    EXIT_BAD_INPUT,
    EXIT_CANNOT_SAVE,
    EXIT_DIVERGED,
    EXIT_OK,
    PIVOTED,
    BadInput,
    StopRequested,
)
from engine.evaluate import bits_per_byte
from engine.gradient import SCALE_MIN, Compute, clip, forward_backward, gradient_norm, scale_before
from engine.mix.mix import Mix
from engine.mix.state import encode as encode_state
from engine.mix.state import state_of
from engine.model import GPT
from engine.optim import Adam, learning_rate
from engine.resume import Replay, newest_good, recall
from engine.rundir import pivot
from engine.rundir.pivot import Pivot
from engine.rundir.records import LossLine, f32
from engine.saver import Saver
from engine.session import Session

DIVERGED_AFTER = 3  # steps in a row without a finite loss or gradient


class Trainer:
    """One process's stretch of a run. `step` is the last completed one."""

    def __init__(self, s: Session, mix: Mix, rows: Rows, tokenizer: Tokenizer) -> None:
        self.s, self.mix, self.rows, self.tokenizer = s, mix, rows, tokenizer
        c: Config = s.config
        self.c, self.flags = c, s.flags
        self.device = device.pick(c.train)
        self.model = GPT(c.model, tokenizer.vocab, self.device.torch)
        self.adam = Adam(self.model, c.optim)
        self.state = [self.model.flat, self.adam.m, self.adam.v]
        self.saver = Saver(s.run_dir, c.keep, s.seg, s.loss, s.events, s.snapshots())
        self.compute: Compute = torch.compile(self.model) if self.device.compile else self.model
        self.micro = c.train.rows // c.train.accumulate  # rows in one micro-batch
        self.heldout = {a: rows.heldout_rows(a, s.policy.heldout.rows) for a in mix.arms}
        self.token_bytes = tokenizer.n_bytes.astype(np.int64)
        self.step = 0
        self.scale: float | None = None  # fp16's loss scale at the last step
        self.not_finite = 0  # steps in a row
        self.pivot: Pivot | None = None  # the request that stands
        self.auditor = Auditor(s, rows, tokenizer)
        self.clock = 0.0  # time.monotonic() at the end of the last step

    def restore(self) -> bool:
        """Weights, m, v and step of the newest good checkpoint, or of step 0. False: step 0 could not be saved."""
        s = self.s
        found = newest_good(s, self.model.flat.numel())
        if found is None:
            self.model.init(self.c.run.seed)
            self.lines = recall(s, self.mix, 0)
            self.saver.save(0, "start", self.state, self.mix_state())
            self.saver.wait()  # else a crash in the first steps would leave lines that no checkpoint leads to
        else:
            self.step, parts, self.saver.sha256 = found
            with torch.no_grad():
                for tensor, part in zip(self.state, parts, strict=True):
                    tensor.copy_(torch.from_numpy(part))
            self.saver.durable = self.step
            self.lines = recall(s, self.mix, self.step)
        at = s.history.index(self.step)
        self.scale = s.history.line(at).scale if at is not None else None
        self.replay = Replay(s.history, self.step)
        s.status.checkpoint_step = self.saver.durable
        return self.saver.durable >= 0

    def run(self, end: int) -> int:
        """Train to step `end`; returns the exit code."""
        code = EXIT_OK
        try:
            if self.step not in self.s.audited:  # stopped or crashed before it: every checkpoint has an audit
                self.auditor.make(self.model, self.step)
            self.pivot = pivoting.requested(self.s)
            if self.step < end and self.cut():  # asked for before this start
                return PIVOTED
            while self.step < end and not self.flags.stop and not self.diverged():
                self.make_step(self.step + 1)
                # Between two steps: the one place that looks at what is asked for.
                boundary = self.step % self.c.train.checkpoint_every == 0 and self.step < end
                if boundary or self.flags.snapshot:
                    self.pivot = pivoting.requested(self.s)
                if boundary or self.flags.snapshot or (self.pivot_is_due() and self.step < end):
                    self.checkpoint()
                    if self.cut():
                        return PIVOTED
                self.s.status.checkpoint_step = self.saver.durable
        except StopRequested:
            pass  # an evaluation or an audit was cut short; it is redone after the resume
        except BadInput as e:  # no mix is possible any more: stop at a checkpoint, with the sums
            self.s.event("failed", str(e), step=self.step, code=EXIT_BAD_INPUT)
            code = EXIT_BAD_INPUT
        if why := self.diverged():
            self.s.event("failed", why, step=self.step, code=EXIT_DIVERGED)
            code = EXIT_DIVERGED
        return self.finish(code)

    def diverged(self) -> str:
        """Why to stop by itself; empty: there is no reason."""
        if self.not_finite >= DIVERGED_AFTER:
            return f"diverged: {self.not_finite} steps in a row without a finite loss or gradient"
        if self.c.audit.halt_on_collapse and self.auditor.collapsed is not None:
            since = self.auditor.collapsed
            return f"collapsed: the sampled texts read like noise since step {since} (audit.halt_on_collapse)"
        return ""

    def make_step(self, t: int) -> None:
        """The update that makes step t, and its line. Raises StopRequested and BadInput with nothing done."""
        s, c = self.s, self.c
        if self.replay.over:
            s.tell("training", step=self.step)
        else:
            s.tell("replaying", f"{t - self.replay.start}/{self.replay.total}", step=self.step)
        bpb = self.evaluate() if t % c.train.eval_every == 0 else None
        lr = learning_rate(c.optim, t, c.train.max_steps)
        drawn = self.mix.draw(t, c.train.rows)
        batch = torch.from_numpy(np.stack([self.rows.row(arm, pull) for arm, pull in drawn]))
        losses, gnorm = self.gradient(batch.to(self.device.torch), t)
        loss = float(losses.mean())
        finite = math.isfinite(loss) and math.isfinite(gnorm)
        if finite:
            clip(self.model, gnorm, c.optim.clip)
            self.adam.update(t, lr)

        now = time.monotonic()
        of: dict[str, list[int]] = {}
        for i, (arm, _) in enumerate(drawn):
            of.setdefault(arm, []).append(i)
        line = LossLine(
            step=t, phase=s.phase, loss=f32(loss), lr=f32(lr) or 0.0, gnorm=f32(gnorm),
            rows={a: len(of[a]) for a in sorted(of)},
            rloss={a: f32(float(losses[of[a]].mean())) for a in sorted(of)},
            dt=round(now - self.clock, 4) if self.clock else 0.0, t=round(time.time(), 3), seg=s.seg,
            bpb={a: f32(x) for a, x in bpb.items()} if bpb else None,
            scale=self.scale, skipped=None if finite else "nonfinite",
        )  # fmt: skip
        self.step, self.clock = t, now
        self.not_finite = 0 if finite else self.not_finite + 1
        self.log(line)
        for news in self.mix.take_line(line):
            if self.replay.over:
                s.event("exhausted", news, step=t)

    def gradient(self, batch: Tensor, t: int) -> tuple[Tensor, float]:
        """(loss of each row, global gradient norm); the gradient of their mean stands in model.grad.

        `batch` is (rows, context + 1) ids. Under fp16 an overflow takes the same batch again at half the scale,
        so that the trainer's step and Adam's never part.
        """
        if self.device.precision == "fp16":
            self.scale = scale_before(t, self.scale)
        while True:
            row_losses = forward_backward(
                self.compute, self.model, self.device, batch, self.micro, self.scale
            )
            numbers = torch.cat(
                [row_losses, gradient_norm(self.model)[None]]
            ).cpu()  # the one wait for the GPU
            losses, gnorm = numbers[:-1], float(numbers[-1])
            overflow = not math.isfinite(gnorm) and bool(losses.isfinite().all())
            if self.scale is None or not overflow or self.scale <= SCALE_MIN:
                return losses, gnorm
            self.scale /= 2

    def log(self, line: LossLine) -> None:
        """Append the line, unless a replayed step's line stands in the history already."""
        s, r = self.s, self.replay
        replaying = not r.over
        if not r.matches(line):
            s.log_loss(line)
        if replaying and r.over:
            if r.difference:
                s.texts = [x for x in s.texts if x.step < line.step]
                text = f"replayed {r.same} of {r.total} identical, then {r.difference}; going on from there"
                s.event("replayed", text, step=line.step, same=r.same, total=r.total, difference=r.difference)
            else:
                word = "identical" if r.total >= 2 else "identical: too few to verify the resume"
                text = f"replayed {r.same} of {r.total} {word}"
                s.event("replayed", text, step=line.step, same=r.same, total=r.total)
        if line.skipped:
            s.event(
                "warning",
                f"step {line.step}: loss or gradient is not finite; no update was made",
                step=line.step,
            )

    def evaluate(self) -> dict[str, float]:
        self.s.tell("evaluating", step=self.step)
        return bits_per_byte(
            self.model, self.device, self.heldout, self.token_bytes, self.micro, self.flags.stopping
        )

    def checkpoint(self) -> None:
        """At a boundary or where a snapshot was asked for: save, then sample from the same weights."""
        why = "pivot" if self.pivot_is_due() else "snapshot" if self.flags.snapshot else "boundary"
        self.flags.snapshot = False
        self.s.tell("checkpointing", step=self.step)
        self.saver.save(self.step, why, self.state, self.mix_state())
        due = why != "boundary" or self.step % self.c.train.sample_every == 0
        if due and self.step not in self.s.audited:
            self.auditor.make(self.model, self.step)

    def pivot_is_due(self) -> bool:
        p = self.pivot
        if p is None or (p.when == "now" and not self.replay.over):  # the steps that the log has come first
            return False
        return p.due(self.step, self.c.train.checkpoint_every)

    def cut(self) -> bool:
        """Execute the pivot if this is its step; whether it is committed. On a full disk it moves on."""
        if self.pivot is None or not self.pivot_is_due():
            return False
        s, name = self.s, self.pivot.new_name
        s.tell("checkpointing", f"pivot to {name}", step=self.step, now=True)
        self.saver.wait()
        try:
            if self.saver.durable != self.step:
                raise OSError(errno.ENOSPC, "its checkpoint could not be saved")
            self.pivot = pivoting.cut(s, self.step, self.saver.sha256)
            return self.pivot is not None
        except OSError as e:
            text = f"the pivot to {name} moves on to the next boundary: {e.strerror or e}"
            s.event("warning", text, step=self.step)
            return False

    def mix_state(self) -> bytes:
        """`.state.json` of this step; empty where no further step is possible, since then it tells no shares."""
        s = self.s
        digest = self.lines.sha256(s.history, self.step)
        try:
            state = state_of(self.mix, s.phase, self.c.train.rows, digest, s.arms)
        except BadInput:
            return b""
        return encode_state(state)

    def finish(self, code: int) -> int:
        """The last checkpoint, its audit where no signal asks to hurry, the last word."""
        s, step = self.s, self.step
        complete = code == EXIT_OK and step >= self.c.train.max_steps
        s.tell("stopping", "writing the last checkpoint", step=step, now=True)
        self.saver.wait()
        if self.saver.durable != step:
            why = "snapshot" if self.flags.snapshot else "finish" if complete else "stop"
            beat = lambda text: s.tell("stopping", text, step=step, now=True)  # noqa: E731
            # How long a stop tries to save on a full disk before it ends with exit 4.
            seconds = float(os.environ.get("ANDREA_SAVE_SECONDS", "120"))
            if not self.saver.save_at_last(step, why, self.state, self.mix_state(), seconds, beat):
                lost = step - max(self.saver.durable, 0)
                text = (
                    f"step {step} could not be saved: {lost} steps since step {self.saver.durable} are lost"
                )
                s.event("failed", text, step=step, code=EXIT_CANNOT_SAVE)
                return EXIT_CANNOT_SAVE
        s.status.checkpoint_step = step
        if (
            code == EXIT_OK and not self.flags.stop and step not in s.audited
        ):  # the end was reached, nobody waits
            try:
                self.auditor.make(self.model, self.step)
            except StopRequested:
                pass  # made at the next start
        if complete and (p := pivoting.requested(s)) is not None:
            pivot.drop(s.run_dir)
            s.event(
                "pivot_dropped",
                f"the pivot to {p.new_name} was not reached: the run ended before it",
                step=step,
                id=p.id,
            )
        if complete:
            s.event("finished", f"finished: step {step} of {self.c.train.max_steps}", step=step, code=code)
        elif code == EXIT_OK:
            by = f" by {self.flags.by}" if self.flags.by else ""
            s.event(
                "stopped", f"stopped{by} at step {step}; step_{step:06d}.bin is saved", step=step, code=code
            )
        return code


def train(s: Session, mix: Mix, rows: Rows, tokenizer: Tokenizer, stop_at: int | None, force: bool) -> int:
    """Restore and train until max_steps, `stop_at` or a signal; returns the exit code. Raises BadInput."""
    s.tell("starting", "building the model")
    trainer = Trainer(s, mix, rows, tokenizer)
    plan.fill_status(s, trainer.device, trainer.model)
    end = min(s.config.train.max_steps, stop_at or s.config.train.max_steps)
    if not force:
        plan.refuse_a_small_disk(s, trainer.model, end)
    if not trainer.restore():
        s.event("failed", f"{s.run_dir}: step_000000.bin could not be saved", step=0, code=EXIT_CANNOT_SAVE)
        return EXIT_CANNOT_SAVE
    s.tell("compiling" if trainer.device.compile else "starting", "timing a step", step=trainer.step)
    with s.flags.at_once("compiling" if trainer.device.compile else "timing a step"):
        seconds = plan.time_a_step(
            trainer.compute, trainer.model, trainer.device, trainer.micro, s.config.train.rows
        )
    plan.announce(s, trainer.device, trainer.model, mix, seconds, trainer.step, end)
    return trainer.run(end)
