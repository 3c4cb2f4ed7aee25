"""What can be done with one checkpoint: verify, sample, branch, roll back, open its audit, show it in the chart.

Reading is done in a thread. What writes runs as the command that a person could have typed, in a process of its own:
its lines are shown, and the cockpit's memory and screen are left alone.
"""

import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.message import Message
from textual.screen import ModalScreen
from textual.widgets import Input

from andrea_tui.core import fmt
from andrea_tui.core.checkpoints import GONE
from andrea_tui.core.store import Store
from andrea_tui.core.text import clean, wrap
from andrea_tui.core.views import CheckpointRow
from andrea_tui.widgets.lines import Lines
from andrea_tui.widgets.paint import Line, Run, exact
from engine import verify
from engine.errors import BadInput, StopRequested

_LOOK = 0.25  # seconds between two looks at the progress
_KEEP = 12  # lines of a command that are shown


@dataclass(frozen=True)
class Item:
    key: str
    label: str
    why_not: str = ""  # it can't be done now, because


class CheckpointMenu(ModalScreen[tuple[str, int] | None]):
    """Ends with what the app is to show, ("sample" | "audit" | "chart", step), or None."""

    DEFAULT_CSS = """
    CheckpointMenu { align: center middle; background: $background 60%; }
    CheckpointMenu Vertical {
        width: 84; max-width: 100%; height: auto; max-height: 100%; background: $background; border: round $primary;
        padding: 0 1;
    }
    CheckpointMenu Input, CheckpointMenu Input:focus { border: none; height: 1; padding: 0; background: $surface; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "back", show=False),
        Binding("up,k", "move(-1)", show=False),
        Binding("down,j", "move(1)", show=False),
        Binding("enter", "choose", show=False),
        Binding("y", "confirm", show=False),
    ]
    AUTO_FOCUS = ""

    class Came(Message):
        """From a thread: what came of a piece of work, and whether it is done."""

        def __init__(self, line: str, tone: str = "text", done: bool = False) -> None:
            super().__init__()
            self.line, self.tone, self.done = line, tone, done

    def __init__(self, store: Store, step: int) -> None:
        super().__init__()
        self.store, self.step = store, step
        self.stage = "menu"  # menu, verify, branch, rollback, working, said
        self.at = 0  # the chosen item
        self._said: list[tuple[str, str]] = []
        self._doing = ""
        self._part: float | None = None
        self._cancel = threading.Event()
        self._child: subprocess.Popen[str] | None = None

    def compose(self) -> ComposeResult:
        with Vertical():
            yield Lines(id="facts")
            yield Input(placeholder="a directory that is not there yet, then Enter", id="place")
            yield Lines(id="keys")

    def on_mount(self) -> None:
        self.query_one(Input).display = False
        self.query_one(Input).cursor_blink = False
        self.set_interval(_LOOK, self.redraw)
        self.redraw()

    def on_unmount(self) -> None:
        """The cockpit is left: what can be taken back is; a rollback comes to its end."""
        self._cancel.set()
        self._interrupt()

    # ---- what there is

    def items(self) -> list[Item]:
        row, store = self._row(), self.store
        gone = "its file is gone" if row is None or row.mark == GONE else ""
        audited = any(a.step == self.step for a in store.audit_view(time.time()).audits)
        out = [
            Item("v", "verify: read it back and compare its sha256", gone),
            Item("t", "try a prompt with its weights", gone),
            Item("a", "open its audit", "" if audited else "it has none"),
            Item("c", "show it in the loss chart"),
        ]
        if not store.watch:
            out.insert(2, Item("b", "branch: a run of its own from here", gone))
            out.append(Item("r", "roll back: this run goes on from here", gone or self._no_rollback()))
        return out

    def _no_rollback(self) -> str:
        if self.store.trainer.alive:
            return "the run is being trained; stop it first (q)"
        if self.step == self.store.history.last:
            return "the run stands there"
        return "to begin again, make a new run" if self.step == 0 else ""

    def _row(self) -> CheckpointRow | None:
        rows = self.store.checkpoints_view(time.time()).rows
        return next((r for r in rows if r.step == self.step), None)

    # ---- keys

    def action_move(self, by: int) -> None:
        if self.stage == "menu":
            self.at = (self.at + by) % len(self.items())
            self.redraw()

    def action_choose(self) -> None:
        """Enter. In the question about a rollback it does nothing: that takes a `y`."""
        if self.stage == "menu":
            self._do(self.items()[self.at])
        elif self.stage == "said":
            self.dismiss(None)

    def on_key(self, event: events.Key) -> None:
        if self.stage != "menu":
            return
        for i, item in enumerate(self.items()):
            if event.key == item.key:
                self.at = i
                self._do(item)

    def action_back(self) -> None:
        if self.stage in ("menu", "said"):
            self.dismiss(None)
        elif self.stage in ("branch", "rollback"):
            self._go("menu")
        elif self.stage == "verify":
            self._cancel.set()
        else:
            self._interrupt()

    def action_confirm(self) -> None:
        if self.stage != "rollback":
            return
        if why := self._no_rollback():  # it may have been started since the question was put
            self._tell(f"nothing was changed: {why}", "warn", done=True)
            return
        self._command("rolling back", ["rollback", "--to", str(self.step), "--", str(self.store.run_dir)])

    def on_input_submitted(self, event: Input.Submitted) -> None:
        name = event.value.strip()
        if self.stage == "branch" and name:
            place = str(Path(name).expanduser())
            self._command(
                f"branching to {clean(place)}",
                ["branch", "--at", str(self.step), "--", str(self.store.run_dir), place],
            )

    # ---- doing it

    def _do(self, item: Item) -> None:
        if item.why_not:
            self.redraw()
            return
        match item.key:
            case "t" | "a" | "c":
                self.dismiss(({"t": "sample", "a": "audit", "c": "chart"}[item.key], self.step))
            case "v":
                self._cancel.clear()
                self._doing, self._part = "reading it back", 0.0
                self._go("verify")
                self.run_worker(self._verify, thread=True, exit_on_error=False)
            case "b":
                self._go("branch")
            case "r":
                self._go("rollback")

    def _verify(self) -> None:
        """In a thread."""

        def progress(part: float) -> None:
            if self._cancel.is_set():
                raise StopRequested
            self._part = part

        run_dir = self.store.run_dir
        try:
            found = verify.verify_checkpoint(run_dir, self.step, progress)
            untold = "" if self.store.watch else verify.record(run_dir, [found])
        except StopRequested:
            self._post("cancelled: nothing is known about it", "warn")
            return
        except (BadInput, OSError) as e:
            self._post(str(e), "bad")
            return
        if untold:
            self._post(f"this could not be noted in .events.json: {untold}", "warn", done=False)
        good = found.state == verify.OK
        self._post(f"{found.file}: {'' if good else 'damaged: '}{found.text}", "good" if good else "bad")

    def _command(self, doing: str, words: list[str]) -> None:
        self._said, self._doing, self._part = [], doing, None
        self._go("working")
        try:
            self._child = subprocess.Popen(
                [sys.executable, "-m", "andrea_tui", *words], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT, start_new_session=True, text=True, errors="replace",
            )  # fmt: skip
        except OSError as e:
            self._tell(f"could not be started: {e.strerror or e}", "bad", done=True)
            return
        self.run_worker(self._follow, thread=True, exit_on_error=False)

    def _follow(self) -> None:
        """In a thread: its lines, then how it ended."""
        child = self._child
        assert child is not None
        assert child.stdout is not None
        for line in child.stdout:
            self._post(line.rstrip("\n"), "text", done=False)
        code = child.wait()
        self._post("done" if code == 0 else f"it ended with exit code {code}", "good" if code == 0 else "bad")

    def _interrupt(self) -> None:
        """A branch takes back what it has made; a rollback is not torn."""
        child = self._child
        if child is not None and child.poll() is None and self._doing.startswith("branching"):
            child.send_signal(signal.SIGINT)

    def _post(self, line: str, tone: str, done: bool = True) -> None:
        self.post_message(self.Came(clean(line), tone, done))

    def on_checkpoint_menu_came(self, m: Came) -> None:
        self._tell(m.line, m.tone, m.done)

    def _tell(self, line: str, tone: str, done: bool) -> None:
        self._said.append((line, tone))
        if done:
            self._go("said")
        self.redraw()

    def _go(self, stage: str) -> None:
        if stage not in ("said", "working"):
            self._said = []
        self.stage = stage
        place = self.query_one(Input)
        place.display = stage == "branch"
        if stage == "branch":
            place.focus()
        else:
            self.set_focus(None)
        self.redraw()

    # ---- drawing

    def redraw(self) -> None:
        if not self.is_mounted or not self.query("#keys"):
            return
        width = max(10, min(84, self.size.width) - 4)
        lines = [*self._facts(width), (), *getattr(self, f"_{self.stage}_lines")(width)]
        self.query_one("#facts", Lines).show(tuple(lines))
        self.query_one("#keys", Lines).show(((), tuple(self._keys())))

    def _facts(self, width: int) -> list[Line]:
        row = self._row()
        out: list[Line] = [((f"checkpoint of step {fmt.count(self.step)}", "title"),)]
        if row is None:
            return [*out, (("it is not there any more", "bad"),)]
        read = f"read back {row.verified}" if row.verified[:1].isdigit() else row.verified
        parts = [row.why, f"{row.age} old", row.size, read, row.kept and f"kept: {row.kept}"]
        out += _wrapped(" · ".join(p for p in parts if p), width, "dim")
        return [*out, ((f"✗ {row.mark}", "bad"),)] if row.mark else out

    def _menu_lines(self, width: int) -> list[Line]:
        out = []
        for i, item in enumerate(self.items()):
            off = item.why_not
            label = item.label.partition(":")[0] if off else item.label
            runs: list[Run] = [(f" {item.key} ", "dim" if off else "key"), (f" {label}", "dim" if off else "text"),
                               (f" – {off}" if off else "", "dim")]  # fmt: skip
            line = exact(runs, width)
            out.append(tuple((text, "chosen") for text, _ in line) if i == self.at else line)
        return out

    def _verify_lines(self, width: int) -> list[Line]:
        return [((f"{self._doing}  {fmt.percent(self._part or 0.0)}", "bold"),)]

    def _branch_lines(self, width: int) -> list[Line]:
        text = ("A new run directory that goes on from this checkpoint under the same policy and config. This run is "
                "only read, and may train on. In which directory?")  # fmt: skip
        return _wrapped(text, width)

    def _rollback_lines(self, width: int) -> list[Line]:
        out: list[Line] = []
        for text in rollback_words(self.store, self.step):
            out += _wrapped(text, width)
        return out

    def _working_lines(self, width: int) -> list[Line]:
        return [((f"{self._doing} …", "bold"),), *self._said_lines(width)]

    def _said_lines(self, width: int) -> list[Line]:
        out: list[Line] = []
        for text, tone in self._said[-_KEEP:]:
            out += _wrapped(text, width, tone)
        return out

    def _keys(self) -> list[Run]:
        words = {
            "menu": (("↑↓", "choose"), ("Enter", "do it"), ("Esc", "back")),
            "verify": (("Esc", "cancel"),),
            "branch": (("Enter", "branch"), ("Esc", "back")),
            "rollback": (("y", "roll back"), ("Esc", "back")),
            "working": (("Esc", "cancel"),) if self._doing.startswith("branching") else (),
            "said": (("Esc", "back"),),
        }[self.stage]
        return [run for key, label in words for run in ((key, "key"), (f" {label}   ", "text"))]


def rollback_words(store: Store, step: int) -> list[str]:
    """What a rollback to that step sets aside, with the numbers."""
    h = store.history
    last, i = h.last, h.index(step)
    spent = float(h.dt[i + 1 :].sum()) if i is not None else 0.0
    later = sum(s > step for s in store.files or ())
    audits = len({a.step for a in store.audit_view(time.time()).audits if a.step > step})
    took = f", {fmt.duration(spent)} of training," if spent > 0 else ""
    return [
        f"The run stands at step {fmt.count(last)}. It would go on from step {fmt.count(step)}.",
        f"{fmt.count(last - step)} steps{took} are set aside: their lines stay in .loss.json, and later ones take "
        "their place. Nothing is deleted.",
        f"{later} later checkpoints move to archive/; {audits} later audits no longer count.",
        "The same config makes the same steps again: change config.toml first if that is not what you want.",
    ]


def _wrapped(text: str, width: int, tone: str = "text") -> list[Line]:
    return [((line, tone),) for line in wrap(text, width)]
