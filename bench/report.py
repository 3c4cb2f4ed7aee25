"""What every measurement prints: the command, where and when it ran, and tables; the same as JSON."""

import argparse
import json
import os
import platform
import shlex
import statistics
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("engine", "andrea_tui")


@dataclass
class Report:
    """Prints as it goes along, so that a run that is cut short has shown what it found."""

    command: str
    facts: dict[str, Any] = field(default_factory=dict)
    tables: dict[str, list[dict[str, Any]]] = field(default_factory=dict)

    def head(self, folder: Path, device: str = "") -> None:
        """Where and when. `folder` is where the measurement writes: its file system matters."""
        self.facts = {
            "command": self.command,
            "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
            "commit": commit(),
            "machine": f"{_cpu()}, {len(os.sched_getaffinity(0))} cores, load {os.getloadavg()[0]:.1f} at the start",
            "device": device or "CPU",
            "torch": metadata.version("torch"),
            "system": f"Python {platform.python_version()}, {platform.system()} {platform.release()}",
            "files on": file_system(folder),
        }
        print("\n".join(f"{k:>9}  {v}" for k, v in self.facts.items()), flush=True)

    def table(self, title: str, rows: list[dict[str, Any]]) -> None:
        """Rows are alike: {column: value}. Floats come with four significant digits, yes and no as words."""
        self.tables[title] = rows
        columns = list(rows[0])
        cells = [columns, *([_cell(row.get(c)) for c in columns] for row in rows)]
        widths = [max(len(line[i]) for line in cells) for i in range(len(columns))]
        print(f"\n{title}")
        for line in cells:
            print("  " + "  ".join(c.ljust(w) for c, w in zip(line, widths, strict=True)).rstrip())
        sys.stdout.flush()

    def save(self, path: Path | None) -> None:
        if path is not None:
            path.write_text(json.dumps({**self.facts, "tables": self.tables}, indent=1) + "\n", "utf-8")


def arguments(module: str, doc: str | None) -> argparse.ArgumentParser:
    """The options that all measurements share."""
    parser = argparse.ArgumentParser(
        prog=f"python -m bench.{module}", description=(doc or "").partition("\n")[0]
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the tables there, too")
    parser.add_argument(
        "--dir", type=Path, metavar="DIR", help="write the scratch files there (else: temporary folder)"
    )
    return parser


@contextmanager
def words_to_stderr() -> Iterator[None]:
    """What the engine says on descriptor 1, which is its log, goes to stderr: stdout is for results."""
    sys.stdout.flush()
    kept = os.dup(1)
    os.dup2(2, 1)
    try:
        yield
    finally:
        sys.stdout.flush()
        os.dup2(kept, 1)
        os.close(kept)


def command(module: str, argv: Sequence[str]) -> str:
    return shlex.join(["python", "-m", f"bench.{module}", *argv])


def ratio(a: Sequence[float], b: Sequence[float]) -> str:
    """Median of the pairwise ratios of two things measured in turns, and their range: `0.052 (0.048–0.06)`."""
    all_of_them = sorted(x / y for x, y in zip(a, b, strict=True))
    middle, low, high = statistics.median(all_of_them), all_of_them[0], all_of_them[-1]
    return f"{middle:.3g} ({low:.3g}–{high:.3g})" if len(all_of_them) > 1 else f"{middle:.3g}"


def ms(seconds: Sequence[float]) -> str:
    """Median in milliseconds."""
    middle = 1e3 * statistics.median(seconds)
    return f"{middle:,.0f} ms" if middle >= 100 else f"{middle:.3g} ms"


def markdown(rows: Sequence[dict[str, str]]) -> str:
    """A table; rows are alike: {column: text}."""
    columns = list(rows[0])
    lines = [columns, ["---"] * len(columns), *(list(row.values()) for row in rows)]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def put(path: Path, key: str, text: str) -> None:
    """Replaces what stands between `<!-- bench KEY -->` and `<!-- end -->` in a document. ValueError: no such marks."""
    before, mark, rest = path.read_text("utf-8").partition(f"<!-- bench {key} -->\n")
    _, closing, after = rest.partition("<!-- end -->")
    if not closing:
        raise ValueError(f"{path}: has no place for it: <!-- bench {key} --> … <!-- end -->")
    path.write_text(f"{before}{mark}\n{text}\n\n{closing}{after}", "utf-8")


def commit() -> str:
    """The git commit of this tree, with a + where files of the packages differ from it; n/a without git."""
    try:
        git = ["git", "-C", str(ROOT)]
        name = subprocess.run(
            [*git, "rev-parse", "--short=12", "HEAD"], capture_output=True, text=True, check=True
        )
        changed = subprocess.run(
            [*git, "diff", "--quiet", "HEAD", "--", *PACKAGES], capture_output=True, check=False
        )
    except (OSError, subprocess.CalledProcessError):
        return "n/a"
    return name.stdout.strip() + ("+ (with changes)" if changed.returncode else "")


def file_system(folder: Path) -> str:
    """The type of the file system that a folder lies on, as /proc/mounts has it."""
    path, best, kind = f"{folder.resolve()}/", "", "n/a"
    for line in Path("/proc/mounts").read_text("utf-8", "replace").splitlines():
        _, mount, fs, *_ = line.split(" ")
        if path.startswith(mount.rstrip("/") + "/") and len(mount) >= len(best):
            best, kind = mount, fs
    return kind


def _cpu() -> str:
    for line in Path("/proc/cpuinfo").read_text("utf-8", "replace").splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def _cell(x: Any) -> str:
    if isinstance(x, bool):
        return "yes" if x else "no"
    if isinstance(x, float):
        return f"{x:.4g}"
    return "" if x is None else f"{x:,}" if isinstance(x, int) else str(x)
