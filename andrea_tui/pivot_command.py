"""`andrea-tui pivot DIR --policy FILE`: the guided pivot without the wizard, one line a step.

Exit codes: 0 done, or asked for (the trainer does it), or withdrawn · 1 with --wait: the trainer ended before the
cut, and the request stands · 2 refused, in one line, with nothing touched · 3 not confirmed.
"""

import argparse
import sys
import time
from pathlib import Path

from andrea_tui.core import fmt
from andrea_tui.core.pivot import Present, Proposal, present, propose, read_policy, review
from andrea_tui.core.progress import progress
from andrea_tui.core.text import clean
from andrea_tui.runner import WHEN, Runner
from engine import pivoting
from engine.errors import EXIT_OK, BadInput
from engine.rundir import checkpoint, names, pivot
from engine.rundir.files import read_file
from engine.rundir.files import say as _say
from engine.rundir.history import read_history
from engine.rundir.lines import LineDecoder
from engine.rundir.pivot import Pivot
from engine.rundir.records import SampleLine

EXIT_NOT_YET, EXIT_NOT_CONFIRMED = 1, 3
_LOOK = 0.5  # seconds


def pivot_command(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="andrea-tui pivot", description="Go on under another policy from the next boundary on.",
        epilog=(__doc__ or "").partition("\n\n")[2], formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument("run_dir", type=Path, metavar="DIR")
    parser.add_argument("--policy", type=Path, metavar="FILE", help="the new policy.toml")
    parser.add_argument("--now", action="store_true", help="after the present step, not at the next boundary")
    parser.add_argument("--yes", action="store_true", help="do not ask")
    parser.add_argument("--dry-run", action="store_true", help="only say what would happen")
    parser.add_argument("--wait", action="store_true", help="until it is done")
    parser.add_argument("--withdraw", action="store_true", help="take back the pivot that is asked for")
    args = parser.parse_args(argv)
    runner = Runner(args.run_dir)
    if args.withdraw:
        _say(f"the pivot to {clean(runner.withdraw_pivot().new_name)} is withdrawn")
        return EXIT_OK
    if args.policy is None:
        raise BadInput("--policy: name the file of the new policy (or --withdraw)")
    now = present(args.run_dir, read_history(args.run_dir / names.LOSS)[0])
    if (first := pivot.read(args.run_dir)) is not None:
        raise BadInput(f"{args.run_dir}: a pivot to {first.new_name!r} is asked for already, by {first.by}")
    proposal = propose(now, read_policy(args.policy), str(args.policy))
    if proposal.new and not args.dry_run:
        now, proposal = _with_new_arms(now, proposal, str(args.policy))
    running = runner.poll().alive
    asked = pivoting.request(
        proposal.text, proposal.policy, now.policy, now.step, "now" if args.now else "boundary"
    )
    _show(now, proposal, asked, running)
    if args.dry_run:
        _say("nothing was changed (--dry-run)")
        return EXIT_OK
    if not args.yes and not _confirmed():
        _say("not confirmed: nothing was changed")
        return EXIT_NOT_CONFIRMED
    return _do(runner, now, asked, args.wait)


def _with_new_arms(now: Present, proposal: Proposal, where: str) -> tuple[Present, Proposal]:
    pivoting.prepare_arms(now.run_dir, now.config, proposal.policy, progress(), lambda: False)
    again = present(now.run_dir, now.history)
    return again, propose(again, proposal.text, where)


def _show(now: Present, proposal: Proposal, asked: Pivot, running: bool) -> None:
    every = now.config.train.checkpoint_every
    cut = asked.expected(now.step, every) if running else newest_step(now)
    when = f"{WHEN[asked.when]}, step {fmt.count(cut)}" if running else f"at once, from step {fmt.count(cut)}"
    _say(f"{now.run_dir}: pivot {clean(asked.old_name)} → {clean(asked.new_name)}, {when}")
    for line in proposal.changes:
        _say(f"  {line}")
    if proposal.new:
        _say(f"  new arms would be tokenised first: {', '.join(proposal.new)}")
    if proposal.shares:
        shares = [f"{a} {b * 100:.1f}% → {c * 100:.1f}%" for a, (b, c) in proposal.shares.items()]
        _say(f"  shares: {clean(' · '.join(shares))}")
    texts = _texts(now.run_dir)
    for word, text in review(now, proposal, cut, texts, running):
        _say(f"  {word:8}{text}")


def newest_step(now: Present) -> int:
    """The checkpoint from which a start would go on, told by name and header alone."""
    return next((c.step for c in checkpoint.scan(now.run_dir)[0] if c.step <= now.step), 0)


def _texts(run_dir: Path) -> int:
    try:
        return len(LineDecoder(SampleLine).feed(read_file(run_dir / names.SAMPLES, 1 << 32)))
    except FileNotFoundError:
        return 0


def _confirmed() -> bool:
    if not sys.stdin.isatty():
        raise BadInput("pivot: nobody is there to confirm it; say --yes, or look first with --dry-run")
    return input("pivot? type y: ").strip() == "y"


def _do(runner: Runner, now: Present, asked: Pivot, wait: bool) -> int:
    try:
        done = runner.pivot(asked)
    except OSError as e:
        left = pivot.read(now.run_dir)
        if left is not None and left.committed:
            text = f"the pivot is committed, the next start finishes it ({e.strerror or e})"
            raise BadInput(f"{now.run_dir}: {text}") from None
        raise BadInput(
            f"{now.run_dir}: the pivot could not be made: {e.strerror or e}; the run is as it was"
        ) from None
    if done is not None:
        _say_done(now.run_dir, done)
        return EXIT_OK
    _say(
        f"asked for: the trainer pivots {WHEN[asked.when]}; `andrea-tui pivot {now.run_dir} --withdraw` takes it back"
    )
    return _wait(runner, now, asked) if wait else EXIT_OK


def _wait(runner: Runner, now: Present, asked: Pivot) -> int:
    """Until the request is gone, one line for each step of the countdown that is new."""
    every, said = now.config.train.checkpoint_every, -1
    while True:
        found = pivot.read(now.run_dir)
        if found is None or found.id != asked.id:
            break
        if not runner.poll().alive:
            _say("the trainer has ended; the request stands, and the next start goes on towards it")
            return EXIT_NOT_YET
        step = read_history(now.run_dir / names.LOSS)[0].last
        left = asked.expected(step, every) - step
        if left != said:
            said = left
            _say(f"step {fmt.count(step)}: {fmt.count(left)} steps to go")
        time.sleep(_LOOK)
    for folder in sorted((now.run_dir / names.ARCHIVE).glob("*")):
        intent = folder / pivot.INTENT
        if intent.is_file() and (p := pivot.decode(read_file(intent))).id == asked.id:
            _say_done(now.run_dir, p)
            return EXIT_OK
    raise BadInput(f"{now.run_dir}: the pivot was withdrawn, refused or dropped; see the events")


def _say_done(run_dir: Path, p: Pivot) -> None:
    cut, where = p.cut or 0, f"{names.ARCHIVE}/{p.archive}/"
    began = f"phase {p.phase} begins with step {fmt.count(cut + 1)}"
    _say(f"{run_dir}: {clean(p.old_name)} → {clean(p.new_name)} after step {fmt.count(cut)}; {began}")
    _say(f"  the old sidecars and policy are in {where}")
