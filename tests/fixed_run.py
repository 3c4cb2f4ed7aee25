"""A run directory whose every byte is a function of this file: three phases, a death, a spike, a step without a loss.

It ends at NOW, 21 March 2026, 10:30 UTC.
"""

import os
from pathlib import Path
from typing import Any

import msgspec

from andrea_tui.cli import make_run
from engine.config import load_policy
from engine.mix.kinds import Learned
from engine.mix.state import FOLD, SCHEMA, ArmState, State
from engine.rundir import names
from engine.rundir.records import Event, LossLine, SampleLine, Status, encode

NOW = 1_774_089_000.0
STEPS = 2_619
PIVOTS = (1_000, 2_000)
POLICIES = ("v1-base", "v2-chat", "v3-polish")
DT = 9.9  # seconds a step
BYTES = 9_000_000  # of a checkpoint, whose file is a hole
_NIGHT = 8 * 3600.0  # between the death after step 1,655 and the next start
_TEXTS = ("the cat sat on the mat and saw that it was good. ", "a small model writes what it has read, ")


def write_run(run: Path, steps: int = STEPS) -> Path:
    """Makes it. `steps`: its first part."""
    make_run(run, "andrea-tiny", ["train.max_steps=20000", "run.name=fixed", "name=v3-polish", "kind=ucb1"])
    arms = tuple(load_policy(run / names.POLICY).arms)
    (run / names.LOSS).write_bytes(b"".join(encode(line(s, arms)) for s in range(1, steps + 1)))
    (run / names.EVENTS).write_bytes(b"".join(encode(e) for e in events() if e.step <= steps))
    _samples(run)
    for step in saved():
        if step <= steps:
            os.truncate(_touched(run / names.checkpoint_name(step)), BYTES)
    (run / names.LOG).write_text("compiling took 41.2 s\nstep 2600: loss 2.31, 826 tokens/s\n", "utf-8")
    (run / names.STATE).write_bytes(msgspec.json.encode(mix(arms)))
    write_status(run, steps)
    return run


def _touched(path: Path) -> Path:
    path.touch()
    return path


def noise(i: int) -> float:
    """−0.5 to 0.5."""
    for _ in range(2):
        i = ((i >> 16) ^ i) * 0x45D9F3B % 2**32
    return ((i >> 16) ^ i) % 100_000 / 100_000 - 0.5


def phase(step: int) -> int:
    return sum(step > p for p in PIVOTS)


def seg(step: int) -> int:
    return phase(step) + (step > 1_600)


def at(step: int) -> float:
    """When the step was made."""
    return round(NOW - 4 - (STEPS - step) * DT - (_NIGHT if step <= 1_600 else 0.0), 2)


def line(step: int, arms: tuple[str, ...]) -> LossLine:
    loss: float | None = round(2.2 + 5.5 / (1 + step / 300) + 0.5 * noise(step) + 6 * (step == 1_200), 4)
    loss = None if step == 1_310 else loss
    first = seg(step) != seg(step - 1)
    here = arms if phase(step) else arms[:3]
    rows = {a: 1 + (step * (i + 3)) % 4 for i, a in enumerate(here)}
    rloss = {a: None if loss is None else round(loss - 0.4 + 0.2 * i, 4) for i, a in enumerate(here)}
    bpb = (
        {a: round(1.1 + 3 / (1 + step / 300) + 0.1 * i, 4) for i, a in enumerate(here)}
        if step % 200 == 0
        else None
    )
    return LossLine(
        step=step, phase=phase(step), loss=loss, lr=round(2e-3 * min(1.0, step / 100), 6),
        gnorm=None if loss is None else round(0.8 + 0.4 * noise(step + 7), 4), rows=rows, rloss=rloss,
        dt=0.0 if first else DT, t=at(step), seg=seg(step), bpb=dict(bpb) if bpb else None,
        skipped=None if loss is not None else "nonfinite",
    )  # fmt: skip


def saved() -> dict[int, str]:
    """step -> why, of the checkpoints that are kept."""
    last = {s: "boundary" for s in range(1_700, STEPS, 100)}
    return {0: "start", 1_000: "pivot", **last, 2_000: "pivot", 2_417: "snapshot"}


def events() -> list[Event]:
    def e(name: str, step: int, text: str, **info: Any) -> Event:
        return Event(t=at(step), event=name, step=step, seg=seg(step), text=text, info=info)

    out = [
        e("created", 0, "new run, andrea-tiny: 4 layers of 128, 20,000 steps"),
        e("started", 0, "started at step 0"),
    ]
    for step, why in sorted(({s: "boundary" for s in range(100, STEPS, 100)} | saved()).items()):
        file = names.checkpoint_name(step)
        out.append(
            e("checkpoint", step, f"{file} ({why})", why=why, bytes=BYTES, sha256=f"{step:064}", file=file)
        )
    for i, step in enumerate(PIVOTS):
        old, new = POLICIES[i : i + 2]
        out.append(e("pivot", step, f"{old} → {new} after step {step}", old=old, new=new, phase=i + 1, good=True,
                     archive=f"archive/000{i + 1}-step_{step}"))  # fmt: skip
        out.append(e("resumed", step, f"resumed at step {step}"))
    out.append(Event(t=at(1_601) - 60, event="resumed", step=1_600, seg=2, text="resumed at step 1600"))
    out.append(Event(t=at(1_655), event="replayed", step=1_655, seg=2, text="replayed 55 of 55 identical",
                     info={"same": 55, "total": 55}))  # fmt: skip
    out.append(e("snapshot", 2_417, "snapshot of step 2417 saved"))
    gone = [s for s in range(100, 1_700, 100) if s != 1_000]
    out.append(e("pruned", 2_600, "pruned 15 checkpoints", steps=gone))
    reference = {"coherence": [60, 95], "seq_rep_4": [0, 0.1], "copy": [0, 20]}
    out.append(e("audit", 2_600, "audit of step 2600", reference=reference))
    out.append(Event(t=at(2_500), event="verified", step=2_500, text="verified", info={"sha256": {
        names.checkpoint_name(2_500): f"{2_500:064}"}}))  # fmt: skip
    return sorted(out, key=lambda x: x.t)


def _samples(run: Path) -> None:
    by_phase: dict[int, bytes] = {}
    for step in (500, 1_000, 1_500, 2_000, 2_400, 2_500, 2_600):
        for k, prompt in enumerate(("The ", "def f(x):")):
            for mode in ("greedy", "sampled"):
                words = (_TEXTS[0] + _TEXTS[1]) * 4
                text = words[step // 100 * (k + 1) % 40 :][:260] + (
                    f"\n\nstep {step}" if mode == "sampled" else ""
                )
                scores = {
                    "coherence": 30 + step / 60 - 4 * k,
                    "seq_rep_4": 0.02 * (k + 1),
                    "copy": 12.0,
                    "zlib": 0.44,
                }
                x = SampleLine(step=step, phase=phase(step), prompt=prompt, mode=mode, text=text, tokens=64, t=at(step),
                               seg=seg(step), scores=scores, verdict="loop" if step == 500 else "")  # fmt: skip
                by_phase[x.phase] = by_phase.get(x.phase, b"") + encode(x)
    for i, lines in by_phase.items():
        if i < len(PIVOTS):
            folder = run / names.ARCHIVE / f"000{i + 1}-step_{PIVOTS[i]}"
            folder.mkdir(parents=True)
            (folder / names.SAMPLES).write_bytes(lines)
        else:
            (run / names.SAMPLES).write_bytes(lines)


def mix(arms: tuple[str, ...]) -> State:
    n = len(arms)
    shares = [(n - i) / (n * (n + 1) / 2) for i in range(n)]
    states = {
        a: ArmState(
            pulls=4_000 * (n - i), drawn=900, credit=0, wish=1.0, why=f"rank {i + 1}: mean {0.21 - 0.1 * i:+.2f}",
            learned=Learned(rows=100, reward=21.0 - 10 * i), epochs=0.7 * (i + 1), share=shares[i],
            realised=round(shares[i] * 0.98, 4), floor=0.0, cap=1.0,
        ) for i, a in enumerate(arms)
    }  # fmt: skip
    return State(schema=SCHEMA, fold=FOLD, phase=2, first=2_001, step=2_600, policy="v3-polish", policy_sha256="",
                 kind="ucb1", lines_sha256="", next_rank=2_642, exhausted_at={}, arms=states)  # fmt: skip


def write_status(run: Path, step: int, **more: Any) -> None:
    """As of a second before NOW."""
    values: dict[str, Any] = dict(
        pid=77, seg=seg(step), step=step, max_steps=20_000, phase=phase(step), doing="training", policy="v3-polish",
        device="cuda:0", precision="fp16", tokens_per_step=8_192, flops_per_token=7e6, peak_flops=3e10,
        checkpoint_step=step // 100 * 100, t=NOW - 1,
    )  # fmt: skip
    path = run / names.STATUS
    path.write_bytes(encode(Status(**(values | more))))
    os.utime(path, (NOW - 1, NOW - 1))
