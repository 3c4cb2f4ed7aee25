"""`andrea-tui branch DIR NEW --at STEP`: a run of its own from a checkpoint of another one.

Exit codes: 0 made · 2 refused, in one line, with nothing made.
"""

import argparse
import signal
from pathlib import Path

from andrea_tui.core import fmt
from andrea_tui.core.pivot import read_policy
from andrea_tui.core.progress import progress
from andrea_tui.core.text import clean
from engine import branch
from engine.errors import EXIT_OK, StopRequested
from engine.rundir.files import say as _say

_EXIT_INTERRUPTED = 130


def branch_command(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="andrea-tui branch",
        description="Make a run that goes on from a checkpoint of another one, to compare the two. The original may be "
        "training; it is only read, and gains one event. NEW stands alone afterwards.",
    )  # fmt: skip
    parser.add_argument("run_dir", type=Path, metavar="DIR")
    parser.add_argument("new_dir", type=Path, metavar="NEW", help="the branch's directory, not there yet")
    parser.add_argument("--at", type=int, required=True, metavar="STEP", help="of a checkpoint of DIR")
    parser.add_argument(
        "--policy", type=Path, metavar="FILE", help="another policy.toml (a new phase begins)"
    )
    parser.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE",
        help="of config.toml, for example optim.lr=0.001; run.seed=2 draws the rows in another order",
    )  # fmt: skip
    args = parser.parse_args(argv)
    text = None if args.policy is None else read_policy(args.policy)
    stopping = False

    def stop(*_: object) -> None:
        nonlocal stopping
        stopping = True

    old = signal.signal(signal.SIGINT, stop)
    try:
        done = branch.branch(
            args.run_dir, args.new_dir, args.at, text, args.set, progress(), lambda: stopping
        )
    except StopRequested:
        _say("interrupted: nothing was made")
        return _EXIT_INTERRUPTED
    finally:
        signal.signal(signal.SIGINT, old)
    _show(args.run_dir, done)
    return EXIT_OK


def _show(run_dir: Path, done: branch.Branched) -> None:
    new, at = done.new_dir, fmt.count(done.at)
    how = "shared by hard link" if done.linked else "copied"
    _say(clean(f"{new}: branched from {run_dir} at step {at}; checkpoint sha256 {done.sha256[:12]}…, {how}"))
    phase = "begins: fresh bandit, empty sample log" if done.fresh else "goes on, with the bandit's state"
    _say(clean(f"  policy {done.policy}: phase {done.phase} {phase}"))
    for line in done.changed:
        _say(clean(f"  {line}"))
    if done.untold:
        _say(
            clean(
                f"  {run_dir} could not be told ({done.untold}): it may prune that checkpoint; the branch has it"
            )
        )
    _say(clean(f"  start it: andrea-tui {new}"))
    _say(clean(f"  beside it: andrea-tui compare {run_dir} {new}"))
