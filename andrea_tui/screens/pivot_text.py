"""What the steps of the pivot wizard say, as lines. All foreign text is cleaned here; nothing is cut, it wraps."""

from andrea_tui.core import fmt
from andrea_tui.core.alerts import countdown
from andrea_tui.core.pivot import Present, Proposal, review
from andrea_tui.core.store import Store
from andrea_tui.core.text import clean, wrap
from andrea_tui.runner import WHEN
from andrea_tui.widgets.paint import Line, Run, bar
from engine.rundir import names
from engine.rundir.pivot import Pivot
from engine.rundir.records import Event

STEPS = ("policy", "when", "review", "progress", "summary")
_KEYS = {
    "policy": (("Enter", "next"), ("Tab ↑↓", "field"), ("ctrl+d", "drop"), ("ctrl+e", "editor"),
               ("ctrl+o", "file"), ("Esc", "leave")),
    "new arms": (("Esc", "cancel"),),
    "when": (("b", "at the boundary"), ("n", "now"), ("Esc", "back")),
    "review": (("y", "pivot"), ("↑↓", "scroll"), ("Esc", "back, nothing is changed")),
    "asking": (("Esc", "leave: it goes on"),),
    "progress": (("w", "withdraw it"), ("Esc d", "leave: the pivot goes on without this")),
    "summary": (("Esc", "leave"),),
}  # fmt: skip
_WORDS = {"KEEP": "good", "ARCHIVE": "key", "RESET": "warn", "DROP": "bad"}
_MOST = 4  # lines below the form


def wrapped(text: str, width: int, tone: str = "text", head: str = "") -> list[Line]:
    """A text of any length, cleaned, beside a word; the word has the tone, or the text where there is no word."""
    body = "text" if head.strip() else tone
    parts = wrap(clean(text), max(10, width - len(head)))
    return [((head if i == 0 else " " * len(head), tone), (x, body)) for i, x in enumerate(parts)]


def head(step: str) -> tuple[Line, ...]:
    here = {"new arms": "policy", "asking": "review"}.get(step, step)
    runs: list[Run] = [("pivot  ", "title")]
    for i, name in enumerate(STEPS):
        runs += [(" › " if i else "", "frame"), (f"{i + 1} {name}", "focus" if name == here else "dim")]
    return (tuple(runs), ())


def keys(step: str) -> tuple[Line, ...]:
    runs: list[Run] = []
    for key, label in _KEYS[step]:
        runs += [("  " if runs else "", "text"), (key, "key"), (f" {label}", "text")]
    return (tuple(runs),)


def notes(proposal: Proposal | None, error: str, stands: Pivot | None, width: int) -> list[Line]:
    """What is to be said of the draft."""
    out: list[Line] = []
    if stands is not None:
        out += wrapped(
            f"▲ a pivot to {stands.new_name} is asked for already, by {stands.by}; Esc, then p, shows it",
            width,
            "warn",
        )
    if proposal is None:
        return (out + wrapped(f"▲ {error}", width, "bad"))[:_MOST]
    if proposal.new:
        out += wrapped(
            f"new: {', '.join(proposal.new)}: tokenised first, before anything is asked", width, "good"
        )
    if proposal.zombies:
        text = f"zombie: {', '.join(proposal.zombies)}: the bandit remembers it, its data are gone; it goes"
        out += wrapped(text, width, "warn")
    if all(c.startswith("name:") for c in proposal.changes):
        return [*out, (("only the name is new; the bandit would begin anew all the same", "dim"),)]
    rest = wrapped(" · ".join(proposal.changes), width, "dim")
    room = max(1, _MOST - len(out))
    if len(rest) > room:
        rest = [
            *rest[: room - 1],
            ((f"… {len(proposal.changes)} changes in all; the review lists them", "dim"),),
        ]
    return out + rest


def new_arms(what: str, part: float) -> list[Line]:
    return [((f"{clean(what)} {fmt.percent(part)}", "bold"),), (), tuple(bar(part, 40)), (),
            (("The tokens go into data/; the training goes on beside it.", "dim"),)]  # fmt: skip


def when(store: Store, boundary: int) -> list[Line]:
    """`boundary`: the next one, or with no trainer the newest checkpoint."""
    if not store.trainer.alive:
        said: Line = (("No trainer runs: it is done at once, from the newest checkpoint,", "text"),)
        at: Line = (
            (f"step {fmt.count(boundary)}.  ", "bold"),
            ("Enter", "key"),
            (" shows what it would do.", "text"),
        )
        return [said, at]
    last, step_time = store.history.last, store.rates().step_time
    left = boundary - last
    about = f", about {fmt.duration(left * step_time)}" if step_time else ""
    choice = f"  at the next boundary: step {fmt.count(boundary)}, {fmt.count(left)} steps{about}"
    return [
        (("b", "key"), (choice, "bold"), ("  (Enter)", "dim")), (),
        (("n", "key"), (f"  now: after the present step, {fmt.count(last)}", "bold")), (),
        (("Either way a snapshot is written at once, as a way back.", "dim"),),
    ]  # fmt: skip


def what_would_be(
    now: Present, proposal: Proposal, choice: str, cut: int, texts: int, running: bool, width: int
) -> list[Line]:
    """The diff, and what is kept, archived, reset and dropped."""
    at = f"step {fmt.count(cut)}"
    how = f"{WHEN[choice]}, {at}" if running else f"at once, from {at}"
    out = wrapped(f"{now.policy.name} → {proposal.policy.name} {how}", width, "bold")
    for change in proposal.changes:
        out += wrapped(change, width, head="  ")
    for word, text in review(now, proposal, cut, texts, running):
        out += wrapped(text, width, _WORDS[word], f"{word:8}")
    return out


def progress(store: Store, p: Pivot, width: int) -> list[Line]:
    there = store.pivot if store.pivot and store.pivot.id == p.id else p
    last, alive = store.history.last, store.trainer.alive
    out = [*wrapped(f"{p.old_name} → {p.new_name} {countdown(store, there)}", width, "bold"), ()]
    if alive and p.when == "boundary" and store.config is not None and not there.committed:
        at = p.expected(last, store.config.train.checkpoint_every)
        begin = min(p.step - 1, last)
        done: list[Run] = [(f"step {fmt.count(last)} of {fmt.count(at)}  ", "text")]
        out += [(*done, *bar((last - begin) / max(1, at - begin), 30)), ()]
    out += wrapped(f"asked by {p.by}", width, "dim")
    if alive:
        out += wrapped(
            "The trainer does it by itself: this panel, the cockpit and the link may go.", width, "dim"
        )
    return out


def done(p: Pivot) -> Event:
    """The event of a pivot that was made here, in the form in which the feed will bring it."""
    return Event(t=p.t, event="pivot", step=p.cut or 0,
                 info={"id": p.id, "old": p.old_name, "new": p.new_name, "phase": p.phase,
                       "archive": f"{names.ARCHIVE}/{p.archive}"})  # fmt: skip


def summary(e: Event, entries: tuple[int, int], running: bool, width: int) -> list[Line]:
    """`entries` in .loss.json, before and after."""
    if e.event != "pivot":
        return [
            *wrapped(e.text, width, "bold"),
            (),
            (("The run goes on under the policy that it has.", "text"),),
        ]
    i = e.info
    rows = (
        ("pivot", f"{i.get('old')} → {i.get('new')} after step {fmt.count(e.step)}"),
        ("phase", f"{i.get('phase')} begins with step {fmt.count(e.step + 1)}"),
        (
            names.LOSS,
            f"{fmt.count(entries[0])} entries before, {fmt.count(entries[1])} now: none was taken away",
        ),
        ("archive", f"{i.get('archive')}/ holds the old samples, state and policy"),
        ("trainer", "goes on, in the same process" if running else "r starts it, and it goes on from there"),
    )
    return [x for word, text in rows for x in wrapped(text, width, "bold", f"{word:12}")]
