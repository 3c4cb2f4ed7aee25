"""This user's folders for what the cockpit keeps outside the run directory, which may be read-only or others'."""

import os
from collections.abc import Mapping
from pathlib import Path


def state_home(env: Mapping[str, str] = os.environ) -> Path:
    """For what it remembers. Raises OSError where there is no home."""
    return _home(env, "XDG_STATE_HOME", Path(".local", "state"))


def cache_home(env: Mapping[str, str] = os.environ) -> Path:
    """For what can be made again. Raises OSError where there is no home."""
    return _home(env, "XDG_CACHE_HOME", Path(".cache"))


def _home(env: Mapping[str, str], variable: str, usual: Path) -> Path:
    told = env.get(variable, "")
    if os.path.isabs(told):  # as its specification wants it
        return Path(told) / "andrea-tui"
    home = env.get("HOME", "")
    if not os.path.isabs(home):
        raise OSError("no home directory is set")
    return Path(home) / usual / "andrea-tui"
