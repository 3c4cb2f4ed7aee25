"""`python -m bench` (`make bench`): the quick measurements of this folder, each in a process of its own.

Quick is what says `QUICK = True`: about a minute on two idle cores. `python -m bench NAME…` runs those alone.
"""

import subprocess
import sys
from pathlib import Path

from bench.report import ROOT


def quick() -> list[str]:
    """Found by their text, so that none is imported: a measurement wants a process of its own."""
    files = sorted((ROOT / "bench").glob("*.py"))
    return [f.stem for f in files if "\nQUICK = True\n" in f.read_text("utf-8")]


def main(argv: list[str]) -> int:
    unknown = [a for a in argv if not Path(ROOT, "bench", f"{a}.py").is_file()]
    if unknown:
        print(f"bench: no measurement {unknown[0]!r}; quick ones: {', '.join(quick())}", file=sys.stderr)
        return 2
    failed = []
    for name in argv or quick():
        print(f"{'' if name == (argv or quick())[0] else chr(10)}== {name} ==", flush=True)
        done = subprocess.run([sys.executable, "-m", f"bench.{name}"], cwd=ROOT, check=False)
        if done.returncode:
            failed.append(name)
    if failed:
        print(f"failed: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
