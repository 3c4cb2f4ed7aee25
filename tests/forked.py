"""Trainers that are forked from one process which has imported torch: the seconds of a cold start are paid once.

`python -m tests.forked` is that process. A line of JSON asks for something, a number answers: the pid of a new
trainer in a session of its own, or the exit code of one that has ended. The process itself does nothing with torch,
so that no thread of OpenMP or autograd has to survive a fork. What a trainer does from `engine.__main__.main` on is
what a cold one does; a pivot's restart is a cold one.
"""

import atexit
import functools
import gc
import importlib
import json
import os
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

# torch and what training imports later; not the compiler, which few trainers need
IMPORTS = ("engine.__main__", "engine.train", "engine.data.manifest", "engine.data.prepare", "engine.data.rows",
           "torch.optim.adamw", "numpy.random", "tokenizers")  # fmt: skip
ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
SIGNALS = (signal.SIGUSR1, signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class Forked:
    """A trainer of the server's, used as a `subprocess.Popen` is."""

    def __init__(self, server: "Server", pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._server = server
        self._pidfd = os.pidfd_open(pid)  # only `poll` has it reaped, so the pid is still its own

    def poll(self) -> int | None:
        if self.returncode is None and self._ended(0):
            self.returncode = self._server.ask(reap=self.pid)
            os.close(self._pidfd)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Its exit code, negative after a signal. Raises TimeoutExpired."""
        if self.returncode is None and not self._ended(timeout):
            raise subprocess.TimeoutExpired("a forked trainer", timeout or 0)
        code = self.poll()
        assert code is not None
        return code

    def _ended(self, timeout: float | None) -> bool:
        return bool(select.select([self._pidfd], [], [], timeout)[0])

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


class Server:
    """The process that has torch. Many trainers may live at a time; asked from any thread."""

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.forked"],
            env={**os.environ, **ONE_THREAD, "PYTHONPATH": os.pathsep.join(sys.path)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def start(self, run: Path, *args: str, log: Path | None = None, variant: str = "tests.forked:real",
              env: dict[str, str] | None = None) -> Forked:  # fmt: skip
        """`python -m engine RUN ARGS` after `variant` ("module:function") has changed what it wants to."""
        log = log or run / "trainer.log"
        pid = self.ask(argv=[str(run), *args], log=str(log), variant=variant, env=env or {})
        return Forked(self, pid)

    def ask(self, **request: object) -> int:
        with self._mutex:
            assert self._process.stdin and self._process.stdout
            print(json.dumps(request), file=self._process.stdin, flush=True)
            return int(self._process.stdout.readline())

    def close(self) -> None:
        assert self._process.stdin
        self._process.stdin.close()
        self._process.wait(60)


@functools.cache
def server() -> Server:
    """One for all tests of this process."""
    s = Server()
    atexit.register(s.close)
    return s


def real() -> None:
    """The trainer as it is."""


def nohup() -> None:
    """As under `nohup`: SIGHUP is ignored on purpose."""
    signal.signal(signal.SIGHUP, signal.SIG_IGN)


def be_the_trainer(argv: list[str], log: str, variant: str, env: dict[str, str]) -> None:
    code = 1
    try:
        os.setsid()
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        out = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(out, 1)
        os.dup2(out, 2)
        os.environ.update(env)
        signal.signal(signal.SIGHUP, signal.SIG_DFL)  # whoever runs the tests may ignore it
        module, _, name = variant.partition(":")
        change: Callable[[], None] = getattr(importlib.import_module(module), name)
        change()
        from engine.__main__ import main

        code = main(argv)
    except SystemExit as e:
        code = int(e.code or 0)
    except BaseException:  # noqa: BLE001
        sys.excepthook(*sys.exc_info())
    finally:
        sys.stdout.flush()
        os._exit(code)


def serve() -> None:
    for name in IMPORTS:
        importlib.import_module(name)
    assert len(os.listdir("/proc/self/task")) == 1, "a process with threads must not fork trainers"
    signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)  # as the launcher does; the trainer unblocks them
    answer = os.dup(1)
    gc.disable()
    gc.freeze()
    for line in sys.stdin:
        request: dict[str, Any] = json.loads(line)
        if "reap" in request:
            _, status = os.waitpid(request["reap"], 0)
            os.write(answer, b"%d\n" % os.waitstatus_to_exitcode(status))
            continue
        pid = os.fork()
        if pid == 0:
            os.close(answer)
            gc.enable()
            be_the_trainer(**request)
        os.write(answer, b"%d\n" % pid)


if __name__ == "__main__":
    serve()
