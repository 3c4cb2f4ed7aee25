"""CPU, memory, disk and GPU of this machine, and what the trainer takes of it. `None` is "not known"."""

import os
from pathlib import Path
from typing import Any

from msgspec import Struct


class Gpu(Struct, frozen=True):
    name: str
    util: float | None  # 0 to 1
    used: int  # bytes
    total: int
    temperature: int | None  # °C
    power: float | None  # watts
    slowdown: int | None = None  # °C at which the card slows itself down
    throttled: str | None = None  # why its clocks are held down, "": they are not


# Bits of NVML's clocks event reasons (nvml.h; "throttle reasons" before 535) that mean trouble, worst first. Left
# out: idle, a power cap, clocks that a person or an application set, sync boost.
_THROTTLED = ((0x40 | 0x20, "thermal"), (0x80, "power brake"), (0x8, "hardware slowdown"))


class Resources(Struct, frozen=True):
    cpu: float | None = None  # of all cores, 0 to 1
    cores: int = 1
    memory: tuple[int, int] | None = None  # used, total; bytes
    disk: tuple[int, int] | None = None  # free for us, total; bytes
    trainer_cpu: float | None = None  # in cores
    trainer_rss: int | None = None  # bytes
    gpus: tuple[Gpu, ...] = ()
    gpu_note: str = ""  # why there is none to show


class Probe:
    """Looks at the machine. The first look at CPU use has nothing to compare with: None."""

    def __init__(self, run_dir: Path) -> None:
        import psutil  # here and not above: it is not needed for the first frame

        self._ps = psutil
        self._run_dir = run_dir
        self._process: Any = None
        self._nvml: Any = None
        self._handles: list[tuple[str, Any]] = []
        self._note = self._find_gpus()
        psutil.cpu_percent(None)
        self._first = True

    def look(self, pid: int | None) -> Resources:
        """`pid`: of the trainer, None where it does not run here."""
        cpu = None if self._first else self._ps.cpu_percent(None) / 100
        self._first = False
        memory = self._ps.virtual_memory()
        try:
            fs = os.statvfs(self._run_dir)
            disk = (fs.f_bavail * fs.f_frsize, fs.f_blocks * fs.f_frsize)
        except OSError:
            disk = None
        trainer_cpu, trainer_rss = self._trainer(pid)
        return Resources(
            cpu=cpu,
            cores=os.cpu_count() or 1,
            memory=(memory.total - memory.available, memory.total),
            disk=disk,
            trainer_cpu=trainer_cpu,
            trainer_rss=trainer_rss,
            gpus=tuple(g for name, h in self._handles if (g := self._gpu(name, h))),
            gpu_note=self._note,
        )

    def _trainer(self, pid: int | None) -> tuple[float | None, int | None]:
        try:
            if pid is None:
                self._process = None
                return None, None
            if self._process is None or self._process.pid != pid:
                self._process = self._ps.Process(pid)
                self._process.cpu_percent(None)
                return None, self._process.memory_info().rss
            with self._process.oneshot():
                return self._process.cpu_percent(None) / 100, self._process.memory_info().rss
        except self._ps.Error:
            self._process = None
            return None, None

    def _find_gpus(self) -> str:
        try:
            import pynvml
        except ImportError:
            return "n/a: no nvidia-ml-py"
        try:
            pynvml.nvmlInit()
            for i in range(pynvml.nvmlDeviceGetCount()):
                handle = pynvml.nvmlDeviceGetHandleByIndex(i)
                name = pynvml.nvmlDeviceGetName(handle)
                self._handles.append(
                    (name if isinstance(name, str) else name.decode("utf-8", "replace"), handle)
                )
        except pynvml.NVMLError as e:
            return "n/a: no NVML" if "not found" in str(e).lower() else f"n/a: {e}"
        self._nvml = pynvml
        return "" if self._handles else "n/a: no GPU"

    def _gpu(self, name: str, handle: Any) -> Gpu | None:
        n = self._nvml

        def ask(what: Any) -> Any:
            try:
                return what()
            except n.NVMLError:  # not supported by this card, or under MIG
                return None

        memory = ask(lambda: n.nvmlDeviceGetMemoryInfo(handle))
        util = ask(lambda: n.nvmlDeviceGetUtilizationRates(handle))
        power = ask(lambda: n.nvmlDeviceGetPowerUsage(handle))
        return Gpu(
            name=name,
            util=util.gpu / 100 if util else None,
            used=int(memory.used) if memory else 0,
            total=int(memory.total) if memory else 0,
            temperature=ask(lambda: n.nvmlDeviceGetTemperature(handle, n.NVML_TEMPERATURE_GPU)),
            power=power / 1000 if power is not None else None,
            slowdown=ask(
                lambda: n.nvmlDeviceGetTemperatureThreshold(handle, n.NVML_TEMPERATURE_THRESHOLD_SLOWDOWN)
            ),
            throttled=self._throttled(handle),
        )

    def _throttled(self, handle: Any) -> str | None:
        # the same call under its two names: an old driver knows only the first, a later NVML may drop it
        for name in ("nvmlDeviceGetCurrentClocksThrottleReasons", "nvmlDeviceGetCurrentClocksEventReasons"):
            try:
                bits = int(getattr(self._nvml, name)(handle))
            except (AttributeError, self._nvml.NVMLError):
                continue
            return next((why for bit, why in _THROTTLED if bits & bit), "")
        return None
