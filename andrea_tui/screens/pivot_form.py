"""The new policy as a form: each value beside the present one, checked while a person types."""

import math
import os
import shlex
import subprocess
import tempfile
from pathlib import Path
from typing import Any, ClassVar

import msgspec
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, VerticalScroll
from textual.message import Message
from textual.timer import Timer
from textual.widget import Widget
from textual.widgets import Input

from andrea_tui.core.pivot import Present, Proposal, propose
from andrea_tui.core.text import clean
from andrea_tui.widgets.lines import Lines
from andrea_tui.widgets.paint import Run, fit
from engine.config import Policy, parse_policy, policy_text
from engine.data.manifest import token_path
from engine.errors import BadInput
from engine.rundir.files import exists

Path_ = tuple[str, ...]  # of a value in a policy: ("arms", "chat", "floor")

DEBOUNCE = 0.2  # seconds from the last key to the check
LIMITS = ("floor", "cap", "prior")
_WHERE = "new policy"
_TOP: tuple[tuple[Path_, ...], ...] = ((("name",),), (("kind",), ("free_epochs",)))
_MORE: tuple[tuple[Path_, ...], ...] = (
    (("warmup_steps",), ("max_epochs",)),
    (("warmup_arms",),),
    *((("ucb1", a), ("ucb1", b)) for a, b in (("c", "focus"), ("focus_share", "rerank"), ("window", "least"))),
    *((("heldout", a), ("heldout", b)) for a, b in (("rows", "explore"), ("decay", "span"))),
    (("heldout", "power"),),
)  # fmt: skip
_LONG = (("name",), ("warmup_arms",))  # have a row of their own


class ArmCell(Lines):
    """An arm's name, and its share before and after."""

    def __init__(self, arm: str) -> None:
        super().__init__()
        self.arm = arm


def value_of(policy: Policy, path: Path_) -> Any:
    value: Any = policy
    for part in path:
        value = value[part] if isinstance(value, dict) else getattr(value, part)
    return value


def shown(value: Any) -> str:
    """As a person writes it; reads back as the same value."""
    if isinstance(value, list):
        return ", ".join(value)
    return repr(value).removesuffix(".0") if isinstance(value, float) else str(value)


def parsed(text: str, like: Any, path: Path_) -> Any:
    """Raises BadInput with the key where the text is not of the kind of value that stands there now."""
    text = text.strip()
    if isinstance(like, list):
        return [x.strip() for x in text.split(",") if x.strip()]
    if not isinstance(like, int | float):
        return text
    try:
        value = type(like)(text)
    except ValueError:
        kind = "whole number" if isinstance(like, int) else "number"
        raise BadInput(f"{_WHERE}: {'.'.join(path)}: {text!r} is not a {kind}") from None
    if not math.isfinite(value):
        raise BadInput(f"{_WHERE}: {'.'.join(path)}: {text} is not a finite number")
    return value


def changed(policy: Policy, values: dict[Path_, Any], without: set[str]) -> Policy:
    """The policy with other values, and without those arms. Not checked."""
    top = {p[0]: v for p, v in values.items() if len(p) == 1}
    for table in ("ucb1", "heldout"):
        part = {p[1]: v for p, v in values.items() if p[0] == table}
        top[table] = msgspec.structs.replace(getattr(policy, table), **part)
    arms = {a: msgspec.structs.replace(arm, **{k: values[p] for k in LIMITS if (p := ("arms", a, k)) in values})
            for a, arm in policy.arms.items() if a not in without}  # fmt: skip
    return msgspec.structs.replace(policy, **top, arms=arms)


def next_name(name: str) -> str:
    """v1 → v2, v1-builtin → v2-builtin, mine → mine-2: phases are told apart by the policies' names."""
    head, _, rest = name.partition("-")
    if head[:1] == "v" and head[1:].isdecimal():
        return f"v{int(head[1:]) + 1}" + (f"-{rest}" if rest else "")
    stem, _, number = name.rpartition("-")
    return f"{stem}-{int(number) + 1}" if stem and number.isdecimal() else f"{name[:57]}-2"


def edited(text: str) -> str:
    """The text as a person left it in his editor. Raises BadInput, OSError."""
    command = shlex.split(os.environ.get("VISUAL") or os.environ.get("EDITOR") or "") or ["vi"]
    with tempfile.NamedTemporaryFile("w", suffix=".toml", prefix="policy-", encoding="utf-8") as f:
        f.write(text)
        f.flush()
        try:
            code = subprocess.run([*command, f.name], check=False).returncode
        except OSError as e:
            why = f"{command[0]} can't be started ({e.strerror or e})"
            raise BadInput(f"{why}; set VISUAL or EDITOR to an editor that is here") from None
        if code:
            how = f"was killed by signal {-code}" if code < 0 else f"ended with {code}"
            raise BadInput(f"{command[0]} {how}: the text was not taken")
        return Path(f.name).read_text("utf-8")


class Field(Input):
    """One value."""

    DEFAULT_CSS = """
    Field { background: $surface; color: $foreground; }
    Field:focus { background: $primary 25%; }
    """

    def __init__(self, path: Path_, value: str) -> None:
        super().__init__(
            value, compact=True, classes="long" if path in _LONG else "limit" if path[0] == "arms" else ""
        )
        self.path, self.first = path, value
        self.cursor_blink = False


class PolicyForm(VerticalScroll, can_focus=False):
    """Holds the draft. Posts Checked after each look at it; `proposal` is None where it is impossible."""

    DEFAULT_CSS = """
    PolicyForm { height: 1fr; scrollbar-size-vertical: 1; }
    PolicyForm Horizontal { height: 1; }
    PolicyForm ArmCell { width: 1fr; }
    PolicyForm .label { width: 18; }
    PolicyForm .now { width: 9; }
    PolicyForm .long-now { width: 26; }
    PolicyForm .limit-now { width: 7; }
    Field { width: 11; margin-right: 1; }
    Field.limit { width: 7; }
    Field.long { width: 1fr; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up", "row(-1)", show=False), Binding("down", "row(1)", show=False)
    ]  # fmt: skip

    class Checked(Message):
        """The draft was looked at."""

    class Entered(Message):
        """Enter: go on with this draft."""

    def __init__(self, now: Present, text: str) -> None:
        super().__init__()
        self.now, self.text = now, text
        self.base = now.policy
        self.dropped: set[str] = set()
        self.proposal: Proposal | None = None
        self.error = ""
        self._timer: Timer | None = None

    def compose(self) -> ComposeResult:
        for row in _TOP:
            yield self._row(row)
        yield Lines(id="arms-head")
        for arm in self.base.arms:
            yield self._arm(arm)
        for row in _MORE:
            yield self._row(row)

    def _row(self, paths: tuple[Path_, ...]) -> Horizontal:
        parts: list[Widget] = []
        for path in paths:
            now = clean(shown(value_of(self.now.policy, path)))
            wide = path in _LONG
            parts += [
                _cell([(".".join(path), "text")], "label"),
                _cell([(fit(now, 25 if wide else 8), "dim")], "long-now" if wide else "now"),
                self._field(path),
            ]
        return Horizontal(*parts)

    def _arm(self, arm: str) -> Horizontal:
        parts: list[Widget] = [ArmCell(arm)]
        old = self.now.policy.arms.get(arm)
        for key in LIMITS:
            now = shown(getattr(old, key)) if old else "new"
            parts += [_cell([(fit(now, 6, right=True), "dim")], "limit-now"), self._field(("arms", arm, key))]
        return Horizontal(*parts)

    def _field(self, path: Path_) -> Field:
        return Field(path, shown(value_of(self.base, path)))

    def on_mount(self) -> None:
        name = self.query(Field).first()
        if self.base.name == self.now.policy.name:
            name.value = next_name(self.base.name)
        self.check()

    def first(self) -> Field:
        """Where a person begins: an arm's floor."""
        return next(f for f in self.query(Field) if f.path[0] == "arms")

    # ---- the draft

    async def load(self, text: str, where: str) -> None:
        """Another text in the form's place. Raises BadInput where it is none, and changes nothing then."""
        self.base = parse_policy(text, where)
        self.text = text
        self.dropped = set()
        await self.recompose()
        self.check()

    def draft(self) -> str:
        """The text of the policy; the very one that was loaded where nothing was changed in the form."""
        values = {f.path: parsed(f.value, value_of(self.base, f.path), f.path)
                  for f in self.query(Field) if f.value != f.first}  # fmt: skip
        if not values and not self.dropped:
            return self.text
        return policy_text(changed(self.base, values, self.dropped))

    def check(self) -> None:
        if self._timer is not None:
            self._timer.stop()
        self.proposal, self.error = None, ""
        try:
            self.proposal = propose(self.now, self.draft(), _WHERE)
            gone = [a for a in self.proposal.policy.arms if self.gone(a)]
            if gone:
                self.proposal = None
                raise BadInput(
                    f"arm {gone[0]}: the bandit remembers it, but its data are gone; drop it with ctrl+d"
                )
        except BadInput as e:
            self.error = clean(str(e))
        self._show_arms()
        self.post_message(self.Checked())

    def gone(self, arm: str) -> bool:
        return arm in self.now.manifest.arms and not exists(token_path(self.now.run_dir, arm, "train"))

    def toggle_arm(self) -> None:
        """Drop the arm of the row with the focus, or take it back."""
        at = self.screen.focused
        if isinstance(at, Field) and at.path[0] == "arms":
            self.dropped ^= {at.path[1]}
            self.check()

    def on_input_changed(self, event: Input.Changed) -> None:
        event.stop()
        if self._timer is not None:
            self._timer.stop()
        self._timer = self.set_timer(DEBOUNCE, self.check)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        event.stop()
        self.check()
        self.post_message(self.Entered())

    # ---- the screen

    def on_resize(self) -> None:
        self._show_arms()

    def _show_arms(self) -> None:
        width = max(12, self.size.width - 46)
        name, share = max(6, width - 17), 16
        head: list[Run] = [(fit("arm", name), "bold"), (fit(" share → then", share), "bold")]
        head += [(" " * max(0, width + 1 - name - share), "text")]
        for key in LIMITS:
            head += [(fit("now", 6, right=True) + " ", "dim"), (fit(key, 8), "bold")]
        self.query_one("#arms-head", Lines).show((tuple(head),))
        for cell in self.query(ArmCell):
            text, tone = self._fate(cell.arm)
            cell.show((((fit(clean(cell.arm), name), "text"), (" " + fit(text, share), tone)),))

    def _fate(self, arm: str) -> tuple[str, str]:
        if arm in self.dropped:
            return "dropped", "warn"
        if self.gone(arm):
            return "data gone", "bad"
        if arm not in self.now.manifest.arms:
            return "new", "good"
        if self.proposal is None or arm not in self.proposal.shares:
            return "", "dim"
        before, after = self.proposal.shares[arm]
        known = any(
            b for b, _ in self.proposal.shares.values()
        )  # no state is written before the first boundary
        return f"{f'{before * 100:.1f}%' if known else '–'} → {after * 100:.1f}%", "key" if abs(
            before - after
        ) >= 5e-4 else "dim"

    def action_row(self, by: int) -> None:
        """To the field above or below."""
        rows = [list(r.query(Field)) for r in self.query(Horizontal)]
        at = next(((i, r.index(f)) for i, r in enumerate(rows) for f in r if f.has_focus), None)
        if at is not None and 0 <= at[0] + by < len(rows):
            row = rows[at[0] + by]
            row[min(at[1], len(row) - 1)].focus()


def _cell(runs: list[Run], classes: str) -> Lines:
    cell = Lines()
    cell.add_class(classes)
    cell.view = (tuple(runs),)
    return cell
