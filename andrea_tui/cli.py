"""The command line: `andrea-tui DIR` flies a run, `andrea-tui init DIR` makes one."""

import argparse
import os
import sys
from pathlib import Path

from andrea_tui.core import terminal
from andrea_tui.core.text import clean
from andrea_tui.runner import Runner
from engine import config
from engine.errors import EXIT_BAD_INPUT, EXIT_OK, BadInput
from engine.rundir import names
from engine.rundir.files import exists, refuse_special, replace_file
from engine.rundir.records import encode, event

_DESCRIPTION = """\
andrea-tui DIR           train the run in DIR and show it; attaches where it is being trained already
andrea-tui init DIR      make a run directory without starting
andrea-tui verify DIR    check every file; --replay recomputes a checkpoint and compares
andrea-tui rollback DIR --to STEP   go on from an earlier checkpoint
andrea-tui prune DIR     remove old snapshots
andrea-tui pivot DIR --policy FILE  change the policy in mid-run
andrea-tui branch DIR NEW --at STEP  make a run that goes on from a checkpoint of DIR
andrea-tui sample DIR --prompt TEXT   what a checkpoint makes of a prompt
andrea-tui compare DIR DIR…   which run is ahead, by how much, and how sure that is
andrea-tui plot DIR [DIR…]    print the loss, for pipes, mails and logs; --csv: its numbers

A directory that is not there yet is made with the preset that fits the machine."""


class _Version(argparse.Action):
    def __call__(self, parser: argparse.ArgumentParser, *_: object, **__: object) -> None:
        from importlib import metadata  # not at the top: it takes a tenth of the time to the first frame

        parser.exit(message=f"andrea-tui {metadata.version('andrea-tui')}\n")


def run(argv: list[str]) -> int:
    """Returns the exit code: 0, or 2 with one line on stderr for bad input."""
    try:
        if argv[:1] == ["init"]:
            return _init(argv[1:])
        if argv[:1] and argv[0] in ("verify", "rollback", "prune"):
            from andrea_tui import maintenance

            command = getattr(maintenance, f"{argv[0]}_command")
            return int(command(argv[1:]))
        if argv[:1] == ["pivot"]:
            from andrea_tui.pivot_command import pivot_command

            return pivot_command(argv[1:])
        if argv[:1] == ["branch"]:
            from andrea_tui.branch_command import branch_command

            return branch_command(argv[1:])
        if argv[:1] == ["sample"]:
            from andrea_tui.sample_command import sample_command

            return sample_command(argv[1:])
        if argv[:1] == ["compare"]:
            from andrea_tui.compare_command import compare_command

            return compare_command(argv[1:])
        if argv[:1] == ["plot"]:
            from andrea_tui.plot_command import plot_command

            return plot_command(argv[1:])
        return _fly(argv)
    except BadInput as e:
        print(e, file=sys.stderr)
        return EXIT_BAD_INPUT


def _fly(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="andrea-tui",
        usage="andrea-tui DIR [options] | andrea-tui COMMAND DIR [options]",
        description=_DESCRIPTION, formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument("run_dir", type=Path, metavar="DIR", help="the run directory")
    parser.add_argument(
        "--watch", action="store_true", help="look on only: nothing can be started, stopped or changed"
    )
    parser.add_argument(
        "--plain", action="store_true", help="log lines instead of the dashboard, as without a terminal"
    )
    parser.add_argument(
        "--force", action="store_true", help="start although the disk is too small for the checkpoints"
    )
    parser.add_argument("--version", action=_Version, nargs=0, help="say the version and leave")
    _add_init_options(parser)
    _add_terminal_options(parser)
    args = parser.parse_args(argv)
    terminal.settle_colours(args.color)
    theme = terminal.choose_theme(args.theme)
    run_dir: Path = args.run_dir
    made = False
    if not _is_run(run_dir):
        if args.watch:
            raise BadInput(f"{run_dir}: no run directory (config.toml is missing); --watch makes none")
        make_run(run_dir, args.preset or fitting_preset(), args.set)
        made = True
    elif args.preset or args.set:
        raise BadInput(
            f"{run_dir}: is a run already; --preset and --set are for new ones, edit {run_dir}/config.toml"
        )
    for name in (config.CONFIG_FILE, config.POLICY_FILE):
        try:
            refuse_special(run_dir / name)
        except FileNotFoundError:
            pass  # said by whoever reads it
        except OSError as e:
            raise BadInput(f"{run_dir / name}: {e.strerror}" if e.strerror else str(e)) from None
    # Said in one line before a trainer is started that would say it in its log.
    c = config.load_config(run_dir / config.CONFIG_FILE)
    policy = config.load_policy(run_dir / config.POLICY_FILE)
    if made:
        print(f"{run_dir}: new run, {args.preset or fitting_preset()}: {c.model.n_layer} layers of {c.model.d_model}, "
              f"{c.train.max_steps:,} steps; arms: {', '.join(policy.arms)}", flush=True)  # fmt: skip
    runner = Runner(run_dir, ("--force",) if args.force else ())
    why_not = _read_only(run_dir)
    watch = args.watch or bool(why_not)
    notice = f"looking on: {run_dir} can't be written ({why_not})" if why_not and not args.watch else ""
    if args.plain or not (sys.stdin.isatty() and sys.stdout.isatty()) or _does_nothing(watch):
        from andrea_tui.plain import fly_plain

        if notice:
            print(notice, file=sys.stderr)
        return fly_plain(run_dir, runner, watch=watch)
    from andrea_tui.fly import run_cockpit

    return run_cockpit(
        run_dir, runner, watch=watch, notice=notice, theme=theme, mouse=not args.no_mouse,
        ascii_only=args.ascii or terminal.locale_is_ascii(),
    )  # fmt: skip


def _read_only(run_dir: Path) -> str:
    """Why nothing can be written there; "" where it can."""
    if os.access(run_dir, os.W_OK | os.X_OK):
        return ""
    if os.statvfs(run_dir).f_flag & os.ST_RDONLY:
        return "its file system is mounted read-only"
    return f"no permission; it belongs to {_owner(run_dir)}"


def _owner(path: Path) -> str:
    try:
        return clean(path.owner())
    except (KeyError, OSError):
        return f"user {path.lstat().st_uid}"


def _does_nothing(watch: bool) -> bool:
    """Whether the terminal can't place a cursor; says so, since Ctrl-C means something else then."""
    term = os.environ.get("TERM", "")
    if term not in ("", "dumb", "unknown"):
        return False
    does = "leaves" if watch else "stops the training cleanly"
    said = f"TERM is {term or 'not set'}: plain lines instead of the dashboard; Ctrl-C {does}"
    print(said, file=sys.stderr, flush=True)
    return True


def _init(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="andrea-tui init", description="Make a run directory without starting."
    )
    parser.add_argument("run_dir", type=Path, metavar="DIR")
    _add_init_options(parser)
    args = parser.parse_args(argv)
    name = args.preset or fitting_preset()
    make_run(args.run_dir, name, args.set)
    print(
        f"{args.run_dir}: made with {name}; look at config.toml and policy.toml, then `andrea-tui {args.run_dir}`"
    )
    return EXIT_OK


def _add_init_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--preset", metavar="NAME", help=f"for a new run: {', '.join(config.PRESETS)}")
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="for a new run, for example model.n_layer=4",
    )


def _add_terminal_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--theme", metavar="NAME", help=f"{', '.join(terminal.THEMES)}; else $ANDREA_TUI_THEME"
    )
    parser.add_argument(
        "--color", choices=list(terminal.COLOURS), default="auto", help="colours that the terminal knows"
    )
    parser.add_argument(
        "--ascii", action="store_true", help="no other characters, as where the locale has no UTF-8"
    )
    parser.add_argument(
        "--no-mouse", action="store_true", help="start with the mouse off; the key m turns it on"
    )


def make_run(run_dir: Path, preset: str, sets: list[str]) -> None:
    """Write `config.toml` and `policy.toml`. Raises BadInput, with nothing written, for anything that is wrong."""
    c, p = config.build(preset, sets)
    try:
        if _is_run(run_dir):
            raise BadInput(f"{run_dir}: is a run already (config.toml is there); choose another directory")
        if exists(run_dir) and not run_dir.is_dir():
            raise BadInput(f"{run_dir}: is a file; choose another name for the run directory")
        if exists(run_dir) and any(run_dir.iterdir()):
            raise BadInput(
                f"{run_dir}: holds other files and no config.toml; choose an empty or a new directory"
            )
        run_dir.mkdir(parents=True, exist_ok=True)
        replace_file(run_dir / config.POLICY_FILE, config.policy_text(p).encode())
        text = (
            f"new run, {preset}: {c.model.n_layer} layers of {c.model.d_model}, {c.train.max_steps:,} steps"
        )
        made = event("created", text=f"{text}; arms: {', '.join(p.arms)}", preset=preset)
        replace_file(run_dir / names.EVENTS, encode(made))
        replace_file(
            run_dir / config.CONFIG_FILE, config.config_text(c).encode()
        )  # last: this makes it a run
    except OSError as e:
        raise BadInput(f"{run_dir}: can't be made: {e.strerror or e}") from None


def fitting_preset() -> str:
    """andrea-12m where torch can use an NVIDIA GPU, andrea-tiny else; told without importing torch."""
    from importlib import metadata  # as in _Version

    try:
        cpu_build = metadata.version("torch").endswith("+cpu")
    except metadata.PackageNotFoundError:
        cpu_build = True
    return "andrea-12m" if not cpu_build and exists(Path("/dev/nvidia0")) else "andrea-tiny"


def _is_run(run_dir: Path) -> bool:
    try:
        return exists(run_dir / config.CONFIG_FILE)
    except NotADirectoryError:
        return False
    except OSError as e:
        raise BadInput(f"{run_dir}: can't be looked at: {e.strerror or e}") from None
