"""Where it runs and how: device, precision, determinism, and what the card could do."""

import os
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import torch

from engine.config import TrainConfig
from engine.errors import BadInput

# Dense peak of tensor cores in FLOP/s, from the makers' data sheets, by a part of torch's device name.
_PEAK_16BIT = {"H200": 989e12, "H100": 989e12, "A100": 312e12, "L40": 181e12, "A10G": 70e12, "RTX 4090": 165e12,
               "RTX 3090": 71e12, "V100": 125e12, "T4": 65e12}  # fmt: skip


@dataclass(frozen=True)
class Device:
    torch: torch.device
    name: str
    precision: str  # fp32, bf16, fp16
    compile: bool
    peak_flops: float  # 0 where it is not known: then there is no MFU

    def autocast(self) -> AbstractContextManager[object]:
        if self.precision == "fp32":
            return nullcontext()
        dtype = torch.bfloat16 if self.precision == "bf16" else torch.float16
        return torch.autocast(self.torch.type, dtype=dtype)


def pick(t: TrainConfig) -> Device:
    """The device and the modes that `config.toml` asks for, with "auto" resolved. Sets torch's global modes."""
    cuda = torch.cuda.is_available()
    device = torch.device("cuda" if cuda else "cpu")
    precision = t.precision
    if precision == "auto":
        precision = ("bf16" if torch.cuda.is_bf16_supported() else "fp16") if cuda else "fp32"
    elif precision == "bf16" and cuda and not torch.cuda.is_bf16_supported():
        raise BadInput('config.toml: train.precision: this GPU has no bf16; use "fp16" or "auto"')
    compiled = cuda if t.compile == "auto" else t.compile
    if t.deterministic:
        # Strict: with warn_only the backward pass of flash attention stays nondeterministic.
        if compiled:
            torch.use_deterministic_algorithms(True)
        else:  # the same without importing the compiler, which takes seconds
            torch.set_deterministic_debug_mode("error")
        if os.environ.get("CUBLAS_WORKSPACE_CONFIG") not in (":4096:8", ":16:8"):
            os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"  # read when CUDA starts
    name = torch.cuda.get_device_name() if cuda else f"CPU, {torch.get_num_threads()} threads"
    peak = next((p for part, p in _PEAK_16BIT.items() if part in name), 0.0) if precision != "fp32" else 0.0
    return Device(device, name, precision, compiled, peak)
