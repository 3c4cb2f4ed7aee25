"""`python -m engine run/ [--stop-at N]`: the trainer. Signals first, then the checks, then the seconds of torch."""

import argparse
import os
import sys
from pathlib import Path
from typing import NoReturn

from engine import identity
from engine.errors import EXIT_BAD_INPUT, EXIT_OK, PIVOTED, BadInput, StopRequested
from engine.session import Session
from engine.signals import Flags, block


def main(argv: list[str]) -> int:
    flags = Flags()
    flags.install()
    parser = argparse.ArgumentParser(prog="python -m engine", description="Train the run in a run directory.")
    parser.add_argument("run_dir", type=Path, help="made by `andrea-tui init`")
    parser.add_argument("--stop-at", type=int, metavar="N", help="stop cleanly after step N")
    parser.add_argument(
        "--force", action="store_true", help="start although the disk is too small for the checkpoints"
    )
    args = parser.parse_args(argv)
    try:
        session = Session(args.run_dir, flags)
    except BadInput as e:
        print(e, file=sys.stderr)
        return EXIT_BAD_INPUT
    code = EXIT_OK
    try:
        code = _train(session, args.stop_at, args.force)
    except BadInput as e:
        session.event("failed", str(e), code=EXIT_BAD_INPUT)
        code = EXIT_BAD_INPUT
    except StopRequested as e:
        session.event(
            "stopped", f"stopped by {flags.by} while {e}; it begins again at the next start", code=EXIT_OK
        )
    except Exception as e:
        # The traceback goes to trainer.log; this line is for whoever looks at the run.
        session.event("failed", f"{type(e).__name__}: {e}", code=1)
        raise
    finally:
        session.tell("starting" if code == PIVOTED else "stopped", now=True)
        session.close(keep_lock=code == PIVOTED)
    if code == PIVOTED:
        _start_again(argv)
    return code


def _start_again(argv: list[str]) -> NoReturn:
    """The same process, pid and lock with a new program: whoever watches it, a service manager too, notices nothing."""
    block()  # what is sent meanwhile waits for the new handlers
    os.execv(sys.executable, [sys.executable, "-m", "engine", *argv])  # noqa: S606


def _train(s: Session, stop_at: int | None, force: bool) -> int:
    from engine.data.manifest import load_tokenizer, manifest_if_there
    from engine.data.prepare import prepare
    from engine.data.rows import Rows
    from engine.mix.mix import mix_of

    context = s.config.model.context
    say = lambda what, fraction: s.tell("preparing", f"{what} {fraction:.0%}")  # noqa: E731
    identity.refuse_zombies(s.run_dir, s.policy, manifest_if_there(s.run_dir), s.history, s.phase)
    manifest = prepare(s.run_dir, s.policy, s.config.tokenizer, context, say, s.flags.stopping)
    s.arms = identity.contents(s.policy, manifest)
    identity.refuse_altered_data(s.run_dir, s.arms, s.past_events)
    for text in identity.changed_sources(s.run_dir, s.policy, manifest):
        s.event("warning", text)
    tokenizer = load_tokenizer(s.run_dir, manifest)
    rows = Rows(s.run_dir, manifest, context, s.config.run.seed)
    mix = mix_of(s.policy, rows)
    if s.flags.stop:
        raise StopRequested("preparing")
    s.tell("starting", "loading torch", now=True)
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # must be there before CUDA starts
    # On a CPU that others use too, OpenMP threads that wait by spinning make a step four times slower.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    from engine.train import train

    return train(s, mix, rows, tokenizer, stop_at, force)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
