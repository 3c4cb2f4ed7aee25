"""The guided pivot (key `p`): policy, when, review; then `y` asks for it. Esc is safe everywhere.

Nothing is written before `y`, but for new arms' tokens in `data/`.
"""

import asyncio
import signal
import threading
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

from textual.app import App, SuspendNotSupported
from textual.binding import Binding, BindingType
from textual.message import Message
from textual.widget import Widget
from textual.widgets import Input

from andrea_tui.core.pivot import Present, present
from andrea_tui.core.store import Store
from andrea_tui.pivot_command import newest_step
from andrea_tui.runner import Runner
from andrea_tui.screens import pivot_form, pivot_text
from andrea_tui.screens.pivot_form import PolicyForm
from andrea_tui.screens.pivot_progress import PivotProgress, PivotScreen
from andrea_tui.widgets.paint import Line
from engine import pivoting
from engine.config import load_policy
from engine.errors import BadInput, StopRequested
from engine.rundir import names, pivot
from engine.rundir.files import read_file


def pivot_screen(store: Store, runner: Runner) -> PivotScreen:
    """The wizard, or the progress of the pivot that is asked for already. Raises BadInput, OSError."""
    if (stands := pivot.read(store.run_dir)) is not None:
        return PivotProgress(store, runner, stands)
    if store.loading is not None:
        raise BadInput("pivot: the history is still being read; in a moment")
    now = present(store.run_dir, store.history)
    return PivotWizard(store, runner, now, read_file(store.run_dir / names.POLICY).decode("utf-8"))


class PivotWizard(PivotScreen):
    """The steps before a pivot is asked for."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("ctrl+e", "editor", show=False, priority=True),
        Binding("ctrl+o", "file", show=False, priority=True),
        Binding("ctrl+d", "drop_arm", show=False, priority=True),
        Binding("b", "choose('boundary')", show=False),
        Binding("n", "choose('now')", show=False),
        Binding("enter", "next", show=False),
        Binding("y", "confirm", show=False),
    ]

    class Prepared(Message):
        """From a thread: new arms are tokenised, or why not."""

        def __init__(self, error: str) -> None:
            super().__init__()
            self.error = error

    def __init__(self, store: Store, runner: Runner, now: Present, text: str) -> None:
        super().__init__(store, runner, "policy")
        self.form = PolicyForm(now, text)
        self.file = Input(placeholder="path of a policy file, then Enter", compact=True, id="file")
        self.file.cursor_blink = False
        self.when = "boundary"
        self._field: Widget | None = None  # of the form, that had the focus last
        self._rejected = ""  # a text that was no policy: for the editor again
        self._progress = ("", 0.0)  # of the new arms
        self._shown = (False, 0)  # running, cut: what the review was about
        self._cancel = threading.Event()

    def more(self) -> Iterable[Widget]:
        return (self.form, self.file)

    def on_unmount(self) -> None:
        self._cancel.set()

    def go(self, step: str, said: str = "") -> None:
        if self.step == "policy" and isinstance(self.focused, pivot_form.Field):
            self._field = self.focused
        self.form.display = step == "policy"
        self.file.display = False
        self.query_one("#body").display = step != "policy"
        super().go(step, said)
        if step == "policy":
            field = self._field if self._field is not None and self._field.is_attached else self.form.first()
            field.focus()

    def action_back(self) -> None:
        """One step back, or out; never out of the app."""
        if self.step == "policy" and self.file.display:
            self.go("policy")
        elif self.step == "new arms":
            self._cancel.set()
        elif self.step != "policy":
            self.go("policy" if self.step == "when" else "when")
        else:
            self.dismiss("")

    def look(self) -> None:
        if len(self.store.history):
            self.form.now = replace(self.form.now, history=self.store.history)
        if self.step != "review" or self._shown != (self.running, self.cut(self.when)):
            self.redraw()

    def text(self) -> list[Line]:
        proposal = self.form.proposal
        if self.step == "when":
            return pivot_text.when(self.store, self.cut("boundary"))
        if self.step == "new arms":
            return pivot_text.new_arms(*self._progress)
        if self.step == "review" and proposal is not None:
            self._shown = (self.running, self.cut(self.when))
            return pivot_text.what_would_be(
                self.form.now,
                proposal,
                self.when,
                self._shown[1],
                len(self.store.samples),
                self.running,
                self.width,
            )
        return []

    def said(self) -> list[Line]:
        said = super().said()
        if self.step == "policy":
            said += pivot_text.notes(self.form.proposal, self.form.error, self.store.pivot, self.width)
        return said

    # ---- 1 policy

    def on_policy_form_checked(self) -> None:
        self.redraw()

    def on_policy_form_entered(self) -> None:
        proposal = self.form.proposal
        if proposal is None or self.step != "policy":
            return
        self._rejected = ""
        if not proposal.new:
            self.go("when")
            return
        self._cancel.clear()
        self._progress = ("reading the new arms", 0.0)
        self.go("new arms")
        self.in_thread(self._prepare)

    def _prepare(self) -> None:
        """In a thread."""
        now, proposal, error = self.form.now, self.form.proposal, ""
        assert proposal is not None

        def progress(what: str, part: float) -> None:
            self._progress = (what, part)

        try:
            pivoting.prepare_arms(now.run_dir, now.config, proposal.policy, progress, self._cancel.is_set)
        except StopRequested:
            error = "cancelled: no arm was added"
        except Exception as e:  # noqa: BLE001  shown: whatever a text file holds, the cockpit flies on
            error = str(e) if isinstance(e, BadInput) else f"{type(e).__name__}: {e}"
        self.post_message(self.Prepared(error))

    def on_pivot_wizard_prepared(self, m: Prepared) -> None:
        error = m.error
        if not error:
            try:
                self.form.now = present(self.store.run_dir, self.store.history)
                self.form.check()
                error = self.form.error
            except BadInput as e:
                error = str(e)
        self.go("policy" if error else "when", error)

    def action_drop_arm(self) -> None:
        if self.step == "policy":
            self.form.toggle_arm()

    def action_file(self) -> None:
        if self.step == "policy":
            self._field = self.focused if isinstance(self.focused, pivot_form.Field) else self._field
            self.file.display = True
            self.file.focus()

    async def on_input_submitted(self, event: Input.Submitted) -> None:
        path = Path(event.value).expanduser()
        try:
            text = read_file(path).decode("utf-8")
        except (OSError, ValueError) as e:
            self._said = f"{path}: can't be read: {getattr(e, 'strerror', None) or e}"
            self.redraw()
        else:
            await self._load(text, str(path))

    def action_editor(self) -> None:
        if self.step == "policy":
            self.run_worker(self._edit(), exclusive=True)

    async def _edit(self) -> None:
        try:
            text = self._rejected or self.form.draft()
        except BadInput:
            text = self.form.text
        wrong = ""
        try:
            async with _deaf_to_ctrl_c(self.app):
                with self.app.suspend():
                    try:  # in here: an error that leaves `suspend` would leave the terminal lent for good
                        text = pivot_form.edited(text)
                    except (BadInput, OSError, ValueError) as e:
                        wrong = f"editor: {e}"
        except SuspendNotSupported:
            wrong = "this terminal can't be lent to an editor; ctrl+o loads a file"
        if wrong:
            self.go("policy", wrong)
        else:
            await self._load(text, "the edited policy")

    async def _load(self, text: str, where: str) -> None:
        try:
            await self.form.load(text, where)
        except BadInput as e:
            self._rejected = text
            self.go("policy", f"{e}; ctrl+e opens it")
        else:
            self._rejected = ""
            self.go("policy")

    # ---- 2 when, 3 review

    def cut(self, when: str) -> int:
        """The last step of the old phase, as it looks now."""
        last = self.store.history.last
        if not self.running:
            return newest_step(self.form.now)
        every = self.form.now.config.train.checkpoint_every
        return last if when == "now" else -(-(last + 1) // every) * every

    def action_next(self) -> None:
        """Enter: goes on from `when`; confirms nothing."""
        if self.step == "when":
            self.action_choose("boundary")

    def action_choose(self, when: str) -> None:
        if self.step == "when" and (when == "boundary" or self.running):
            self.when = when
            self.go("review")

    def action_confirm(self) -> None:
        """Only `y` gets here."""
        proposal = self.form.proposal if self.step == "review" else None
        if proposal is None:
            return
        said = self._changed_meanwhile()
        if said:
            self._said = said
            self.redraw()
            return
        request = pivoting.request(
            proposal.text, proposal.policy, self.form.now.policy, self.store.history.last, self.when
        )
        self.app.push_screen(PivotProgress(self.store, self.runner, request, ask=True), self._asked)

    def _changed_meanwhile(self) -> str:
        """Why the review that stands there is of another case than the present one; "" where it is not."""
        try:
            policy = load_policy(self.store.run_dir / names.POLICY)
        except BadInput as e:
            return str(e)
        if policy != self.form.now.policy:
            return f"the policy in force is {policy.name} since; leave with Esc and begin again with p"
        trainer = self.runner.poll()
        if trainer.alive == self._shown[0]:
            return ""
        self.store.trainer = trainer
        word = "a trainer has started" if trainer.alive else "the trainer has ended"
        return f"{word} meanwhile: read this again, then y"

    def _asked(self, error: str | None) -> None:
        if error:
            self.go("review", error)
        else:
            self.dismiss("")


@asynccontextmanager
async def _deaf_to_ctrl_c(app: App[object]) -> AsyncIterator[None]:
    """In an editor Ctrl-C is the editor's own, but the signal reaches everybody in the terminal."""
    loop = asyncio.get_running_loop()
    handled = loop.remove_signal_handler(signal.SIGINT)
    before = signal.signal(signal.SIGINT, lambda *_: None)
    try:
        yield
    finally:
        await asyncio.sleep(0.05)  # the loop throws away what came meanwhile
        signal.signal(signal.SIGINT, before)
        if handled:
            loop.add_signal_handler(signal.SIGINT, app.exit, 0)


__all__ = ["PivotScreen", "PivotWizard", "pivot_screen"]
