"""`archive/NNNN-step_N/`: where a rollback and a pivot put what no longer belongs to the run's present."""

import os
import re
from pathlib import Path

from engine.rundir import names
from engine.rundir.files import fsync_dir


def next_name(archive: Path, step: int) -> str:
    """`0003-step_112700`: the next number in the archive folder. Raises OSError."""
    used = [int(m[1]) for e in os.scandir(archive) if (m := re.match(r"([0-9]{4})-", e.name))]
    return f"{max(used, default=0) + 1:04d}-step_{step:06d}"


def next_folder(run_dir: Path, step: int) -> Path:
    """A new, empty folder with the next number. Raises OSError."""
    folder = run_dir / names.ARCHIVE
    folder.mkdir(mode=0o700, exist_ok=True)
    new = folder / next_name(folder, step)
    new.mkdir(mode=0o700)
    return new


def move(run_dir: Path, step: int, files: list[Path]) -> Path:
    """Move files of the run into a new folder, durably; returns it. Raises OSError."""
    new = next_folder(run_dir, step)
    for path in files:
        os.rename(path, new / path.name)
    for folder in (new, new.parent, run_dir):
        fsync_dir(folder)
    return new
