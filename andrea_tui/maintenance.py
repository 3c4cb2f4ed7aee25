"""`andrea-tui verify`, `rollback` and `prune`: plain commands on a run directory."""

import argparse
import sys
from pathlib import Path

from andrea_tui.core import fmt
from andrea_tui.core.text import clean
from engine import config, rollback, verify
from engine.errors import EXIT_OK, BadInput
from engine.verify import Finding

EXIT_DAMAGED = 1


def verify_command(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="andrea-tui verify", description="Check every file of a run. Exit 1: something is damaged."
    )
    parser.add_argument("run_dir", type=Path, metavar="DIR")
    parser.add_argument(
        "--replay", nargs="?", const=-1, type=int, metavar="STEP",
        help="also recompute a checkpoint (the newest) from the one before it and compare the bytes",
    )  # fmt: skip
    args = parser.parse_args(argv)
    found: list[Finding] = []

    def tell(f: Finding) -> None:
        found.append(f)
        _show(f)

    well = verify.verify(args.run_dir, tell)
    if why := verify.record(args.run_dir, found):
        _say(f"this could not be noted in {args.run_dir}/.events.json: {why}")
    if args.replay is not None:
        well = verify.replay(args.run_dir, None if args.replay < 0 else args.replay, _say) and well
    _say("all is well" if well else "something is damaged: see above for what to do")
    return EXIT_OK if well else EXIT_DAMAGED


def rollback_command(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="andrea-tui rollback", description="Let a run go on from one of its earlier checkpoints."
    )
    parser.add_argument("run_dir", type=Path, metavar="DIR")
    parser.add_argument("--to", type=int, required=True, metavar="STEP")
    args = parser.parse_args(argv)
    done = rollback.rollback(args.run_dir, args.to)
    _say(
        f"{args.run_dir}: stands at step {done.to:,} now (was {done.before:,}); the next start goes on from there. "
        "The same config makes the same steps again: change config.toml first if that is not what you want."
    )
    return EXIT_OK


def prune_command(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="andrea-tui prune", description="Remove the checkpoints that only a snapshot's wish keeps."
    )
    parser.add_argument("run_dir", type=Path, metavar="DIR")
    parser.add_argument("--yes", action="store_true", help="do not ask")
    args = parser.parse_args(argv)
    gone = rollback.prunable(args.run_dir, config.load_config(args.run_dir / config.CONFIG_FILE))
    if not gone:
        _say("nothing to prune")
        return EXIT_OK
    for c in gone:
        _say(f"{c.path.name}  {fmt.size(c.bytes)}")
    if not args.yes:
        if not sys.stdin.isatty():
            raise BadInput("prune: say --yes to remove them (there is no terminal to ask)")
        if input(f"remove these {len(gone)} checkpoints for good? type y: ").strip() != "y":
            _say("nothing was removed")
            return EXIT_OK
    rollback.prune(args.run_dir, gone)
    _say(f"removed {len(gone)} checkpoints, {fmt.size(sum(c.bytes for c in gone))}")
    return EXIT_OK


def _show(f: Finding) -> None:
    _say(f"{f.state:8} {f.file:24} {f.text}")


def _say(text: str) -> None:
    print(clean(text), flush=True)
