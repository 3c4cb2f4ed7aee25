"""A process that is never in the trainer's way: the last to get processor and disk, the first to lose its memory.

Called before numpy and torch are imported: their thread pools are sized, and CUDA looks for its devices, just then.
"""

import ctypes
import os
import signal
from contextlib import suppress
from pathlib import Path

_ENVIRONMENT = {
    "CUDA_VISIBLE_DEVICES": "", "HIP_VISIBLE_DEVICES": "", "ROCR_VISIBLE_DEVICES": "",
    "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "RAYON_NUM_THREADS": "1",
    "TOKENIZERS_PARALLELISM": "false",
}  # fmt: skip
_PR_SET_PDEATHSIG = 1
_IOPRIO_SET = {"x86_64": 251, "aarch64": 30}  # the system call's number; glibc has no name for it
_IOPRIO_IDLE = 3 << 13


def step_back() -> None:
    """No GPU, one thread, idle priority, first victim when memory runs out. What the system refuses stays as it was."""
    os.environ |= _ENVIRONMENT
    Path("/proc/self/oom_score_adj").write_text("1000")
    with suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, 0, 19)
    with suppress(OSError):  # gets the processor only when nobody else wants it; needs no privilege
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    if (
        os.getsid(0) == os.getpid()
    ):  # where sessions share the processor as groups, priorities count only within one
        with suppress(OSError):
            Path("/proc/self/autogroup").write_text("19")
    number = _IOPRIO_SET.get(os.uname().machine)
    if number is not None:
        ctypes.CDLL(None).syscall(number, 1, 0, _IOPRIO_IDLE)


def die_with_parent() -> None:
    """SIGKILL when the thread that started this process ends. For a process that leaves nothing half done."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)


def available_memory(proc: Path = Path("/proc"), cgroups: Path = Path("/sys/fs/cgroup")) -> int:
    """Bytes that can be taken without pushing anybody out: of the machine, or of a cgroup (v2) that holds us."""
    fields = dict(line.split(":") for line in (proc / "meminfo").read_text().splitlines())
    left = [int(fields["MemAvailable"].split()[0]) * 1024]
    with suppress(OSError, ValueError):
        own = (proc / "self/cgroup").read_text().rpartition("0::/")[2].strip()
        folder = cgroups / own
        while folder.is_relative_to(cgroups):
            with suppress(OSError, ValueError, KeyError):  # no limit here
                left.append(_left(folder))
            folder = folder.parent
    return min(left)


def _left(cgroup: Path) -> int:
    limit = int((cgroup / "memory.max").read_text())  # "max" is no number
    stat = dict(line.split() for line in (cgroup / "memory.stat").read_text().splitlines())
    return limit - int((cgroup / "memory.current").read_text()) + int(stat["inactive_file"])
