"""The run's files that are written anew as a whole: status, config, policy, state, manifest, the request for a pivot.

Each is read when its stat is another one than at the last look. What can't be read is a problem in one line.
"""

import errno
import os
from pathlib import Path
from typing import Any

import msgspec

from andrea_tui.core import heldout
from andrea_tui.core.text import clean
from engine.config import CONFIG_FILE, POLICY_FILE, load_config, load_policy
from engine.errors import BadInput
from engine.mix.state import read_state
from engine.rundir import names, pivot
from engine.rundir.files import read_file, refuse_special
from engine.rundir.records import Status, decode


class Problems:
    """What can't be read now, by file; one line each, cleaned."""

    def __init__(self, run_dir: Path) -> None:
        self._run_dir = run_dir
        self._lines: dict[str, str] = {}

    def gone(self, name: str) -> None:
        """It can be read again."""
        self._lines.pop(name, None)

    def note(self, name: str, e: Exception) -> None:
        text = (e.strerror or str(e)) if isinstance(e, OSError) else str(e)
        if isinstance(e, OSError) and e.errno == errno.ELOOP:
            text = "is a symbolic link, and those are not followed"
        text = text.replace(f"{self._run_dir}/", "")
        self._lines[name] = clean(text if text.startswith(name) else f"{name}: {text}")

    def say(self, name: str, text: str) -> None:
        self._lines[name] = clean(text)

    def lines(self) -> tuple[str, ...]:
        """One line for several files with the same trouble."""
        by_reason: dict[str, list[str]] = {}
        for name, text in self._lines.items():
            by_reason.setdefault(text.removeprefix(name), []).append(name)
        return tuple(", ".join(found) + reason if reason.startswith((":", " ")) else reason
                     for reason, found in by_reason.items())  # fmt: skip


class SmallFiles:
    """`look` returns what is new, by the names of the feed's Update."""

    def __init__(self, run_dir: Path, problems: Problems) -> None:
        self._run_dir, self._problems = run_dir, problems
        self._seen: dict[str, tuple[int, int, int] | None] = {}

    def look(self) -> dict[str, Any]:
        out: dict[str, Any] = {}
        if (moved := self.moved(names.STATUS)) is not None:
            out["status_moved"] = moved
            try:
                out["status"] = decode(read_file(self._run_dir / names.STATUS), Status)
                self._problems.gone(names.STATUS)
            except FileNotFoundError:
                pass
            except (OSError, msgspec.MsgspecError, ValueError, RecursionError) as e:
                self._problems.note(names.STATUS, e)
        loaders = ((CONFIG_FILE, "config", load_config), (POLICY_FILE, "policy", load_policy))
        for name, key, load in loaders:
            if self.moved(name) is not None:
                try:
                    refuse_special(self._run_dir / name)
                    out[key] = load(self._run_dir / name)
                    self._problems.gone(name)
                except (OSError, BadInput) as e:
                    self._problems.note(name, e)
        if self.moved(names.STATE) is not None:
            try:
                out["mix"] = read_state(self._run_dir / names.STATE)
                self._problems.gone(names.STATE)
            except (OSError, ValueError) as e:
                self._problems.note(names.STATE, e)
        if self.moved(heldout.MANIFEST) is not None:
            try:
                out["text_ratios"] = heldout.bytes_per_token(self._run_dir)
                self._problems.gone(heldout.MANIFEST)
            except (OSError, msgspec.MsgspecError, ValueError, RecursionError) as e:
                self._problems.note(heldout.MANIFEST, e)
        return out | self._pivot()

    def _pivot(self) -> dict[str, Any]:
        """The request: it comes, is written again, and goes."""
        was_there = self._seen.get(names.PIVOT) is not None
        if self.moved(names.PIVOT) is None:
            if not was_there or self._seen[names.PIVOT] is not None:
                return {}
            self._problems.gone(names.PIVOT)
            return {"pivot": ()}
        try:
            found = pivot.read(self._run_dir)
            self._problems.gone(names.PIVOT)
        except BadInput as e:
            self._problems.note(names.PIVOT, e)
            found = None
        return {"pivot": () if found is None else (found,)}

    def moved(self, name: str) -> float | None:
        """Its mtime where the file is another one than at the last look."""
        try:
            info = os.stat(
                f"{self._run_dir}/{name}", follow_symlinks=False
            )  # pathlib takes longer than the stat
        except FileNotFoundError:
            self._seen[name] = None
            return None
        except OSError as e:
            self._problems.note(name, e)
            return None
        signature = (info.st_ino, info.st_mtime_ns, info.st_size)
        if self._seen.get(name) == signature:
            return None
        self._seen[name] = signature
        return info.st_mtime
