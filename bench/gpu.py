"""The check for a GPU machine, minutes long: is a resume exact, how fast is it, what do safety and checkpoints cost.

    python bench/gpu.py [--json FILE] [--small]

Exact resume: for every precision, eager and compiled, a small run is trained to its end; another one is ended by
SIGKILL, started again, stopped by SIGTERM, killed again, and trained to its end. Both last checkpoints must have one
sha256. A control resumes with Adam's moments zeroed and must end with another one. Every start is a cold process.
Then bench/speed.py measures andrea-12m and andrea-120m. Without a GPU everything is small, so that it is
known to work. Exit code 1 when an exactness check fails.
"""

import argparse
import json
import os
import shlex
import signal
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

if not __package__:
    sys.path[0] = str(
        Path(__file__).resolve().parent.parent
    )  # `python bench/gpu.py`: bench/ is not installed

import msgspec

from bench import report, runs
from bench.speed import Speed
from engine.config import Arm
from engine.errors import EXIT_BAD_INPUT
from engine.layout import HEADER_BYTES
from engine.rundir import names

LAST = 160  # the small runs' last step; their boundaries are at multiples of 20
CUTS = ((47, signal.SIGKILL), (85, signal.SIGTERM), (131, signal.SIGKILL))
TINY = ["model.n_layer=1", "model.d_model=32", "model.context=32"]  # for a CPU, where bf16 is slow
SECONDS = 460.0  # speed that is not measured by then is left out, and said to be
START_SECONDS = 150.0  # the longest that one start of a small run may take
SPEED_SECONDS = 180.0  # and one measurement of speed
SMALL_SPEED = ["model.n_layer=1", "model.n_head=4", "model.d_model=64", "model.context=64", "train.rows=4"]


class Mode(NamedTuple):
    precision: str
    compile: bool

    @property
    def name(self) -> str:
        return f"{self.precision}, {'compiled' if self.compile else 'eager'}"

    @property
    def sets(self) -> list[str]:
        return [
            f"train.precision={self.precision}",
            f"train.compile={str(self.compile).lower()}",
            "train.deterministic=true",
        ]


# ---- exact resume ----


def exact(mode: Mode, folder: Path, sets: list[str], arms: dict[str, Arm]) -> dict[str, Any]:
    """One row of the table. "same" is yes or no, or None where this machine does not have the mode."""
    t0 = time.monotonic()
    row: dict[str, Any] = {
        "mode": mode.name,
        "same": False,
        "interrupted by": "",
        "replayed": "",
        "sha256": "",
    }
    try:
        row |= _exact(folder / mode.name.replace(", ", "-"), sets + mode.sets, arms)
    except subprocess.TimeoutExpired as e:
        row["sha256"] = f"timed out after {e.timeout:.0f} s"
    return {**row, "seconds": round(time.monotonic() - t0, 1)}


def _exact(folder: Path, sets: list[str], arms: dict[str, Arm]) -> dict[str, Any]:
    whole, cut = (runs.make_run(folder / name, "andrea-tiny", sets, arms) for name in ("whole", "cut"))
    code = runs.finish(whole, timeout=START_SECONDS)
    if code:
        said = f"exit {code}: {runs.last_words(whole)}"
        return {"same": None if code == EXIT_BAD_INPUT else False, "sha256": said}
    codes = [runs.interrupt(cut, step, number, START_SECONDS) for step, number in CUTS]
    wanted = [0 if number == signal.SIGTERM else -number for _, number in CUTS]
    if codes != wanted or runs.finish(cut, timeout=START_SECONDS):
        return {"sha256": f"exit codes {codes} where {wanted} were due: {runs.last_words(cut)}"}
    shas = [runs.sha256(run / names.checkpoint_name(LAST)) for run in (whole, cut)]
    replays = [e.info for e in runs.events(cut, "replayed")]
    return {
        "same": shas[0] == shas[1] and bool(runs.events(whole, "finished")),
        "interrupted by": " ".join(f"{number.name}@{step}" for step, number in CUTS),
        "replayed": f"{sum(x['same'] for x in replays)} of {sum(x['total'] for x in replays)}",
        "sha256": shas[0][:12] if shas[0] == shas[1] else f"{shas[0][:12]} ≠ {shas[1][:12]}",
    }


def control(mode: Mode, folder: Path, sets: list[str], arms: dict[str, Arm]) -> dict[str, Any]:
    """A resume that forgets Adam's moments must be caught: the last checkpoint must differ from the whole run's."""
    t0 = time.monotonic()
    run = runs.make_run(folder / "control", "andrea-tiny", sets + mode.sets, arms)
    codes = [runs.finish(run, "--stop-at", str(LAST // 2), timeout=START_SECONDS)]
    path = run / names.checkpoint_name(LAST // 2)
    with open(path, "r+b") as f:
        n = struct.unpack("<ii", f.read(HEADER_BYTES))[1]
        f.seek(HEADER_BYTES + 4 * n)
        f.write(bytes(8 * n))
    (run / names.EVENTS).unlink()  # with its hash the altered file would be set aside
    codes.append(runs.finish(run, timeout=START_SECONDS))
    whole = folder / mode.name.replace(", ", "-") / "whole"
    shas = [runs.sha256(r / names.checkpoint_name(LAST)) if codes == [0, 0] else "" for r in (whole, run)]
    caught = codes == [0, 0] and shas[0] != shas[1]
    return {
        "mode": f"control: {mode.name}", "same": not caught, "interrupted by": f"moments zeroed at {LAST // 2}",
        "sha256": f"{shas[0][:12]} {'≠' if caught else '='} {shas[1][:12]}", "seconds": round(time.monotonic() - t0, 1),
    }  # fmt: skip


def check_exactness(out: report.Report, folder: Path, modes: list[Mode], sets: list[str], jobs: int) -> bool:
    """The table, and whether all that this machine can do is exact."""
    arms = runs.make_texts(folder / "texts")
    with ThreadPoolExecutor(jobs) as pool:
        rows = list(pool.map(lambda mode: exact(mode, folder, sets, arms), modes))
    good = [mode for mode, row in zip(modes, rows, strict=True) if row["same"]]
    controls = [control(good[0], folder, sets, arms)] if good else []
    shown = [{**r, "same": "n/a" if r["same"] is None else r["same"]} for r in rows + controls]
    out.table(f"Exact resume: {LAST} steps, deterministic = true, cold starts; same sha256?", shown)
    return bool(good) and all(r["same"] is not False for r in rows) and not any(r["same"] for r in controls)


# ---- speed ----


def speed(preset: str, compiled: bool, small: bool, scratch: Path, seconds: float) -> Speed | str:
    """Measured in a process of its own; a line that says why not where it fails."""
    sets = [f"train.compile={str(compiled).lower()}", *(SMALL_SPEED if small else [])]
    args = [
        sys.executable,
        "-m",
        "bench.speed",
        preset,
        "--dir",
        str(scratch),
        *(x for s in sets for x in ("--set", s)),
    ]
    if small:
        args += ["--pairs", "2", "--steps", "8", "--checkpoints", "2"]
    try:
        done = subprocess.run(
            args, cwd=report.ROOT, capture_output=True, text=True, timeout=seconds, check=False
        )
    except subprocess.TimeoutExpired:
        return f"not within {seconds:.0f} s"
    if done.returncode:
        return (done.stderr.strip().splitlines() or [f"exit {done.returncode}"])[-1]
    return msgspec.convert(json.loads(done.stdout), Speed)


def check_speed(out: report.Report, folder: Path, small: bool, left: Callable[[], float]) -> None:
    speeds: list[dict[str, Any]] = []
    stalls: list[dict[str, Any]] = []
    prices: list[dict[str, Any]] = []
    for preset in ("andrea-12m", "andrea-120m"):
        for compiled in (False, True):
            seconds = min(SPEED_SECONDS, left())
            late = "left out: no time was left"
            s = speed(preset, compiled, small, folder, seconds) if seconds > 30 else late
            name = f"{preset}{' (small)' if small else ''}"
            if isinstance(s, str):
                failed = {"preset": name, "mode": "compiled" if compiled else "eager"}
                speeds.append({**failed, "parameters": s})
                continue
            head = s.columns(name)
            speeds.append(
                {**head, "parameters": s.params, "step": report.ms([s.step]),
                 "tokens/s": f"{s.tokens_per_second:,.0f}",
                 "MFU": "n/a" if s.mfu is None else f"{s.mfu:.1%}", "first step": f"{s.first_step:.1f} s"}
            )  # fmt: skip
            stalls.append(
                {**head, "checkpoint": f"{s.checkpoint_mb:.0f} MB", "stands still": report.ms([s.gap]),
                 "step longer by": report.ms([s.stall]), "÷ step": f"{s.stall / s.step:.3g}",
                 "late in all by": report.ms([s.in_all]), "durable after": f"{s.durable:.2f} s"}
            )  # fmt: skip
            prices.append(
                {
                    **head,
                    "deterministic": report.ms([s.step]),
                    "not": report.ms([s.step_free]),
                    "ratio": s.price,
                }
            )
    width = {k: None for r in speeds for k in r}
    out.table("Speed (median step, deterministic = true)", [width | r for r in speeds])
    if stalls:
        out.table("A checkpoint's stall", stalls)
        out.table(
            "The price of deterministic = true (blocks in the order A B A B; ratio with its range)", prices
        )


def look() -> tuple[str, bool]:
    """(device, whether it is a GPU), asked in a process of its own, so that this one holds no GPU memory."""
    code = "import torch; print(torch.cuda.get_device_name() if torch.cuda.is_available() else '')"
    found = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.strip()
    return found or "CPU", bool(found)


def main(argv: list[str]) -> int:
    begun = time.monotonic()
    parser = argparse.ArgumentParser(
        prog="python bench/gpu.py", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the tables there, too")
    parser.add_argument(
        "--dir", type=Path, metavar="DIR", help="write the scratch files there (else: temporary folder)"
    )
    parser.add_argument("--small", action="store_true", help="small sizes; so it is without a GPU")
    parser.add_argument(
        "--seconds",
        type=float,
        default=SECONDS,
        metavar="N",
        help=f"leave out speed that would be measured later ({SECONDS:.0f})",
    )
    args = parser.parse_args(argv)
    device, gpu = look()
    small = args.small or not gpu
    modes = [Mode(p, c) for c in (False, True) for p in ("bf16", "fp16", "fp32")]
    if not gpu:
        modes = [m for m in modes if not m.compile or m.precision == "fp32"]
    out = report.Report(shlex.join(["python", "bench/gpu.py", *argv]))
    jobs = max(1, min(len(modes), len(os.sched_getaffinity(0)) // 3))
    with tempfile.TemporaryDirectory(prefix="andrea-bench-", dir=args.dir) as scratch:
        folder = Path(scratch)
        out.head(folder, device)
        good = check_exactness(out, folder, modes, runs.SMALL + (TINY if small else []), jobs)
        check_speed(out, folder, small, lambda: begun + args.seconds - time.monotonic())
    seconds = time.monotonic() - begun
    out.facts |= {"exact": good, "small": small, "seconds": round(seconds)}
    out.save(args.json)
    print(f"\nexact resume: {'yes' if good else 'NO'}; {seconds:.0f} s in all", flush=True)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
