"""What a start will do, said on one screen before it does it: device, sizes, time, disk."""

import time

import torch

from engine import identity
from engine.device import Device
from engine.errors import BadInput
from engine.gradient import Compute, forward_backward
from engine.layout import checkpoint_bytes
from engine.mix.mix import Mix
from engine.model import GPT, flops_per_token
from engine.optim import ADAMW
from engine.rundir import checkpoint
from engine.rundir.files import say
from engine.session import Session
from engine.toml_io import flat


def time_a_step(compute: Compute, model: GPT, device: Device, micro: int, rows: int) -> float:
    """Seconds of one forward and backward pass of `rows` rows; also what makes torch.compile do its work.

    On zeros, and the gradient is thrown away: it leaves no trace in the run.
    """
    batch = torch.zeros((rows, model.config.context + 1), dtype=torch.int64, device=device.torch)
    seconds = 0.0
    for _ in range(2):  # the first one pays for compiling and for touching memory
        t0 = time.monotonic()
        float(forward_backward(compute, model, device, batch, micro, None).sum())
        seconds = time.monotonic() - t0
    model.grad.zero_()
    return seconds


def fill_status(s: Session, device: Device, model: GPT) -> None:
    """What a watcher needs to compute tokens per second and model FLOP/s utilisation."""
    s.status.device, s.status.precision, s.status.params = device.name, device.precision, model.flat.numel()
    s.status.tokens_per_step = s.config.train.rows * model.config.context
    s.status.flops_per_token = flops_per_token(model.config, model.vocab)
    s.status.peak_flops = device.peak_flops


def disk(s: Session, model: GPT, end: int) -> tuple[int, int, int, int]:
    """(bytes of a checkpoint, how many lie there at most, bytes that these still need, bytes that are free)."""
    keep = s.config.keep
    size = checkpoint_bytes(model.flat.numel())
    kept = (
        min(keep.last, end // s.config.train.checkpoint_every + 1) + end // keep.every + 1
    )  # one being written
    have = sum(x.bytes for x in checkpoint.scan(s.run_dir)[0])
    return size, kept, max(0, kept * size - have), s.free_bytes()


def refuse_a_small_disk(s: Session, model: GPT, end: int) -> None:
    """Raises BadInput with the figures where the checkpoints that will be kept have no room."""
    size, kept, need, free = disk(s, model, end)
    if need > free:
        raise BadInput(
            f"{s.run_dir}: keep.last, keep.every: up to {kept} checkpoints of {_size(size)} need {_size(need)} more, "
            f"but {_size(free)} are free; make room, keep fewer, or start with --force"
        )


def announce(s: Session, device: Device, model: GPT, mix: Mix, seconds: float, step: int, end: int) -> None:
    """The plan into trainer.log, and the event that a segment began."""
    c = s.config
    size, kept, need, free = disk(s, model, end)
    lines = {
        "device": f"{device.name}, {device.precision}{', compiled' if device.compile else ''}",
        "model": f"{model.flat.numel():,} parameters: {c.model.n_layer} layers, {c.model.n_head} heads, "
        f"d_model {c.model.d_model}, context {c.model.context}, vocabulary {model.vocab:,}",
        "step": f"{c.train.rows} rows, {s.status.tokens_per_step:,} tokens; about {seconds:.2g} s",
        "steps": f"{step:,} to {end:,} of {c.train.max_steps:,}; about {_duration(seconds * (end - step))}",
        "mix": f"policy {s.policy.name}: {mix.text(step + 1)}",
        **_exhaustion(mix, step, end, c.train.rows),
        "checkpoints": f"{_size(size)} each, up to {kept} at a time: {_size(need)} more, {_size(free)} free",
    }
    say("\n".join(f"  {k:12} {v}" for k, v in lines.items()))
    changed = identity.changed_config(c, s.past_events)
    name = "resumed" if step else "started"
    s.event(
        name, f"{name} at step {step}: {lines['model'].split(':')[0]}, {device.name}, {device.precision}", step=step,
        device=device.name, precision=device.precision, compile=device.compile, torch=str(torch.__version__),
        adamw=ADAMW, params=model.flat.numel(), config=flat(c), policy=s.policy.name,
        policy_keys=flat(s.policy), arms=s.arms, plan=lines,
    )  # fmt: skip
    if changed:
        s.event("warning", f"config.toml changed since the segment before: {'; '.join(changed)}", step=step)


def _exhaustion(mix: Mix, step: int, end: int, rows: int) -> dict[str, str]:
    """When `max_epochs` will shut an arm, if that is before the end."""
    soon = {a: at for a, at in mix.outlook(step + 1, rows).items() if at <= end}
    said = [f"{a} will be exhausted about step {at:,}" for a, at in sorted(soon.items(), key=lambda x: x[1])]
    return {"max_epochs": "; ".join(said)} if said else {}


def _duration(seconds: float) -> str:
    for unit, name in ((86400, "days"), (3600, "hours"), (60, "minutes")):
        if seconds >= 1.5 * unit:
            return f"{seconds / unit:.1f} {name}"
    return f"{seconds:.0f} seconds"


def _size(n: float) -> str:
    for unit, name in ((1e12, "TB"), (1e9, "GB"), (1e6, "MB")):
        if n >= unit:
            return f"{n / unit:.1f} {name}"
    return f"{n / 1e3:.0f} kB"
