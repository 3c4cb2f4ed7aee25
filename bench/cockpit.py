"""The dashboard at 120×40: start, memory, CPU, bytes, keys, and what it costs the training, beside limits and a peer.

    python -m bench.cockpit [--long] [--minutes 6] [--into docs/PERFORMANCE.md]

Taken in a pseudo-terminal with the time of every byte (bench/watched.py), in rounds, ours and terminalboard's in turns.
Rounds are added, as long as there is time, until everything was measured ROUNDS times while others left the machine
alone. The least disturbed tries count, and how much CPU others took during these stands beside them. `--long` adds ten
million steps: 2.5 GB of scratch files.
"""

import shutil
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path

from bench import attached, report
from bench.programs import (
    FULL,
    LOG,
    OURS,
    PANE,
    PLOTEXT,
    RATE,
    TERMINALBOARD,
    ZOOM,
    Program,
    dashboard,
    install,
)
from bench.watched import PIECE, Watched, middle

STEPS, LONG = 200_000, 10_000_000
ROUNDS = 3
DISTURBED = 15.0  # per cent of one core; a try during which others used more is repeated
SETTLE, LONG_SETTLE, IDLE = 3.0, 30.0, 8.0  # seconds
BUSY = 100 / RATE  # as many seconds: the stand-in trainer saves every 100 steps
PRESSES = 8  # of each key in each round
CHART = range(2, 19)  # the rows of the loss chart and the mix
PAIRS, PAIR_SECONDS, COST_SECONDS = 8, 3.0, 120.0
LONG_BYTES, LONG_SECONDS = 4_000_000_000, 300.0


@dataclass(frozen=True)
class Row:
    name: str
    what: str
    digits: int = 2
    limit: float | None = None
    worst: bool = False  # the median and the worst instead of the median and its range


ROWS = (
    Row("first", f"first text on the screen, {STEPS:,} steps (s)", 2, 0.6),
    Row("whole", "whole chart (s)", 2, 1.2),
    Row("cold", "whole chart at the very first attach (s)", 2, 1.2),
    Row("rss", "memory, resident (MiB)", 1, 80),
    Row("cold_rss", "memory at the very first attach (MiB)", 1, 80),
    Row("pss", "memory, proportional share (MiB)", 1),
    Row("idle_cpu", "idle: CPU (% of a core)", 2, 0.5),
    Row("idle_bytes", "idle: bytes/s", 0, 300),
    Row("busy_cpu", f"{RATE:g} steps/s: CPU (% of a core)", 2, 3.0),
    Row("busy_bytes", f"{RATE:g} steps/s: bytes/s, a checkpoint and its audit among them", 0, 1000),
    Row("busy_usual", f"{RATE:g} steps/s: bytes/s, median of {PIECE:g} s each", 0, 1000),
    Row("busy_rss", f"{RATE:g} steps/s: memory, resident (MiB)", 1, 80),
    *(Row(key, f"key to paint: {key} (ms)", 0, worst=True) for key in (ZOOM, LOG, PANE, FULL)),
)
LONG_ROWS = (
    Row("first", f"first text on the screen, {LONG:,} steps (s)", 2, 1.0),
    Row("whole", "whole chart (s)", 1),
    Row("cold", "whole chart at the very first attach (s)", 1),
    Row("rss", "memory, resident (MiB)", 0),
    Row("cold_rss", "memory at the very first attach (MiB)", 0),
)


@dataclass
class Taken:
    """What was measured of one program: name of a row -> its tries, each (values, CPU of others in % of a core)."""

    tries: dict[str, list[tuple[list[float], float]]] = field(default_factory=lambda: defaultdict(list))
    missing: str = ""  # why there is nothing, or not all

    def add(self, others: float, **values: float | list[float]) -> None:
        for name, x in values.items():
            self.tries[name].append((x if isinstance(x, list) else [x], others))

    def best(self, name: str) -> tuple[list[float], list[float]]:
        """(values, CPU of others) of the ROUNDS least disturbed tries."""
        kept = sorted(self.tries.get(name, []), key=lambda x: x[1])[:ROUNDS]
        return [v for values, _ in kept for v in values], [others for _, others in kept]

    def disturbed(self) -> bool:
        return any(sum(others <= DISTURBED for _, others in x) < ROUNDS for x in self.tries.values())


# ---- measuring


def cold(p: Program, folder: Path, steps: int, out: Taken, timeout: float) -> None:
    """The very first attach, for as long as a program needs to keep what it may want to keep for the next."""
    with p.start(folder) as w:
        whole = w.when(lambda screen: p.whole(screen, steps), timeout)
        out.add(w.others(), cold=whole)
        time.sleep(SETTLE if steps <= STEPS else LONG_SETTLE)
        out.add(w.others(), cold_rss=w.memory()[0])


def start(p: Program, folder: Path, steps: int, out: Taken, timeout: float) -> Watched:
    """Until the whole chart is there. Whoever calls ends it."""
    with ExitStack() as undo:
        w = undo.enter_context(p.start(folder))
        first = w.when(lambda screen: any(line.strip() for line in screen), timeout)
        whole = w.when(lambda screen: p.whole(screen, steps), timeout)
        out.add(w.others(), first=first, whole=whole)
        undo.pop_all()  # it goes on
    return w


def take(p: Program, folder: Path, out: Taken) -> None:
    """One round: start, start again, idle, keys, growing."""
    cold(p, folder, STEPS, out, 60.0)
    with start(p, folder, STEPS, out, 60.0) as w:
        time.sleep(SETTLE)
        idle = w.window(IDLE)
        out.add(idle.others, rss=idle.rss, pss=idle.pss, idle_cpu=idle.cpu, idle_bytes=idle.bytes_per_second)
        w.others()
        answers = press(p, w)
        out.add(w.others(), **answers)
        with p.grow(folder, STEPS) as w.also:
            time.sleep(2)
            busy = w.window(BUSY)
        out.add(busy.others, busy_cpu=busy.cpu, busy_bytes=busy.bytes_per_second, busy_usual=busy.usual_bytes)
        out.add(busy.others, busy_rss=busy.rss)


def press(p: Program, w: Watched) -> dict[str, list[float]]:
    """Milliseconds from the key to the last cell that it changes.

    The way back from the whole screen doesn't count: after Esc a program must wait whether it begins a sequence.
    """
    if p.first_key:
        w.answer(p.first_key, CHART)
    out: dict[str, list[float]] = {}
    for what, keys in p.keys.items():
        answers: list[float] = []
        while len(answers) < PRESSES:
            for way, key in enumerate(keys):
                t = w.answer(key, CHART)
                if t is None:
                    raise RuntimeError(f"{what}: {key!r} changed nothing on the screen")
                if what != FULL or way == 0:
                    answers.append(1e3 * t)
        out[what] = answers
    return out


def rounds(programs: dict[str, Program], taken: dict[str, Taken], scratch: Path, end: float) -> None:
    """In turns. Another round begins only where it fits in before `end`."""
    done, longest = 0, 0.0
    while done < ROUNDS or (any(t.disturbed() for t in taken.values()) and time.monotonic() + longest < end):
        t0 = time.monotonic()
        for name, p in programs.items():
            if done >= ROUNDS and not taken[name].disturbed():
                continue
            folder = scratch / f"{name}-now"
            shutil.copytree(scratch / name, folder)
            _say(f"round {done + 1}: {name}")
            take(p, folder, taken[name])
            shutil.rmtree(folder)
        done, longest = done + 1, max(longest, time.monotonic() - t0)


def long_history(programs: dict[str, Program], taken: dict[str, Taken], scratch: Path) -> None:
    """Ten million steps, twice for each: the peer takes minutes."""
    for name, p in programs.items():
        folder = scratch / f"{name}-long"
        _say(f"{name}: writing {LONG:,} steps")
        p.make(folder, LONG)
        _say(f"{name}: {LONG:,} steps")
        try:
            cold(p, folder, LONG, taken[name], LONG_SECONDS)
            with start(p, folder, LONG, taken[name], LONG_SECONDS) as w:
                time.sleep(1)
                taken[name].add(w.others(), rss=w.memory()[0])
        except TimeoutError as e:
            taken[name].missing = f"{e}"[:40]
        shutil.rmtree(folder)


# ---- telling


def table(rows: Sequence[Row], mine: Taken, peers: Taken) -> list[dict[str, str]]:
    out = []
    for row in rows:
        values, others = mine.best(row.name)
        theirs, others_then = peers.best(row.name)
        why = peers.missing or ("no such key" if row.name in (ZOOM, PANE) else "not measured")
        out.append(
            {
                "": row.what,
                "andrea-tui": _figure(row, values) if values else f"n/a: {mine.missing}",
                "limit": "" if row.limit is None else f"{row.limit:g}",
                "met": "" if row.limit is None or not values else _met(values, row.limit),
                f"terminalboard {TERMINALBOARD}": _figure(row, theirs) if theirs else f"n/a: {why}",
                "CPU of others then (%)": " / ".join(middle(o, 0) for o in (others, others_then) if o),
            }
        )
    return out


def _figure(row: Row, values: list[float]) -> str:
    if row.worst:
        return f"{statistics.median(values):.0f} (worst {max(values):.0f})"
    return middle(values, row.digits)


def _met(values: list[float], limit: float) -> str:
    if max(values) <= limit:
        return "yes"
    return "by the median" if statistics.median(values) <= limit else "**no**"


def _cost(c: attached.Cost) -> str:
    shaken = statistics.median(c.others) > DISTURBED
    return (
        f"What an attached dashboard costs the training (andrea-tiny, {c.with_it:.2f} steps/s with it, {c.without:.2f} "
        f"without; {c.pairs} pairs of windows in turns): **{c.cost:.1f} %** of the steps per second, 95 % interval "
        f"{c.low:.1f} to {c.high:.1f} %. CPU of others then: {middle(c.others, 0)} % of a core"
        f"{', too much to rely on that' if shaken else ''}."
    )


SHAKEN = (
    "**Disturbed**: others kept the machine busy, as the last column says. What takes time or CPU comes out too high "
    "then; memory and bytes hardly depend on it."
)


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def main(argv: list[str]) -> int:
    parser = report.arguments("cockpit", __doc__)
    parser.add_argument(
        "--long", action="store_true", help=f"{LONG:,} steps too; needs {LONG_BYTES / 1e9:.0f} GB"
    )
    parser.add_argument(
        "--minutes", type=float, default=6.0, help="no repetitions after that (without --long)"
    )
    parser.add_argument(
        "--into", type=Path, metavar="FILE", help="put the tables between their marks there, too"
    )
    args = parser.parse_args(argv)
    begin = time.monotonic()
    out = report.Report(report.command("cockpit", argv))
    with tempfile.TemporaryDirectory(prefix="andrea-bench-", dir=args.dir) as name:
        scratch = Path(name)
        free = shutil.disk_usage(scratch).free
        if args.long and free < LONG_BYTES:
            _say(f"{scratch}: {free / 1e9:.1f} GB free, --long needs {LONG_BYTES / 1e9:.0f}: use --dir")
            return 2
        out.head(scratch)
        found, why = install(scratch / "venv")
        programs = {"ours": OURS} | ({"peer": found} if found else {})
        taken, long_taken = ({"ours": Taken(), "peer": Taken(missing=why)} for _ in range(2))
        for key, p in programs.items():
            p.make(scratch / key, STEPS)
        _say("what it costs the training")
        cost = attached.measure(scratch / "trained", PAIRS, PAIR_SECONDS, dashboard, begin + COST_SECONDS)
        rounds(programs, taken, scratch, begin + 60 * args.minutes)
        told = [report.markdown(table(ROWS, *taken.values())), _cost(cost)]
        if any(t.disturbed() for t in taken.values()):
            told.insert(0, SHAKEN)
        tables = {"cockpit": "\n\n".join(told)}
        if args.long:
            long_history(programs, long_taken, scratch)
            tables["cockpit --long"] = report.markdown(table(LONG_ROWS, *long_taken.values()))
    versions = ", ".join(f"{name} {metadata.version(name)}" for name in ("textual", "numpy"))
    head = ", ".join(str(out.facts[k]) for k in ("date", "commit", "machine", "system", "files on"))
    for key, text in tables.items():
        whole = f"`{out.command}`, {head}, {versions}; the peer with plotext {PLOTEXT}.\n\n{text}"
        print(f"\n{whole}")
        if args.into:
            report.put(args.into, key, whole)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
