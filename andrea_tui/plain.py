"""The cockpit without a terminal (pipe, cron, CI, a service): the same run as plain log lines.

Here Ctrl-C and SIGTERM stop the training cleanly. A closed pipe (`| head`) does so too where this process started
the trainer; where it only attached to one, it leaves.
"""

import os
import select
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path

from andrea_tui.core import fmt
from andrea_tui.core.feed import Feed
from andrea_tui.core.store import Store
from andrea_tui.core.text import clean
from andrea_tui.runner import Runner
from engine.errors import EXIT_OK, BadInput

EVERY = 10.0  # seconds between two lines of progress
LOG_LINES = 10  # of trainer.log, shown after a death


class _Printer:
    """Writes lines; a reader that has gone is noticed, told once, and written to no more."""

    def __init__(self, gone: Callable[[], None]) -> None:
        self._gone, self.closed = gone, False
        self._poll = select.poll()
        self._poll.register(1, 0)  # POLLERR: the pipe's reader closed it

    def say(self, text: str) -> None:
        if self.closed:
            return
        try:
            print(clean(text), flush=True)
        except OSError:
            self._close()

    def look(self) -> None:
        if not self.closed and any(
            what & (select.POLLERR | select.POLLHUP) for _, what in self._poll.poll(0)
        ):
            self._close()

    def _close(self) -> None:
        self.closed = True
        # else the interpreter's own flush at exit would complain about the pipe
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        self._gone()


def fly_plain(run_dir: Path, runner: Runner, *, watch: bool = False) -> int:
    """Start or attach, print until the trainer ends; returns its exit code (128 + n where signal n killed it)."""
    asked = threading.Event()  # a signal, or a closed pipe: stop (or leave, with --watch)
    woken = threading.Event()

    def ask(*_: object) -> None:
        asked.set()
        woken.set()

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, ask)
    attached = runner.poll().alive
    if not watch:
        try:
            runner.start()
        except OSError as e:
            raise BadInput(f"{run_dir}: the trainer could not be started: {e.strerror or e}") from None
    mine = not attached and not watch
    printer = _Printer(ask)
    printer.say(f"{run_dir}: {'attached to' if attached else 'watching' if watch else 'started'} "
                f"the trainer, pid {runner.poll().pid}")  # fmt: skip
    store = Store(run_dir, watch=watch)
    feed = Feed(run_dir, runner, woken.set)
    feed.start()
    try:
        _follow(store, feed, runner, printer, asked, woken, stops=not watch, mine=mine)
    finally:
        feed.close()
    return _last_words(store, printer, leaving=watch or (printer.closed and not mine))


def _follow(
    store: Store, feed: Feed, runner: Runner, printer: _Printer, asked: threading.Event, woken: threading.Event,
    *, stops: bool, mine: bool,
) -> None:  # fmt: skip
    since = time.time()
    shown = 0  # events that were looked at
    next_line, last_word, last_step, stopping, seen = 0.0, "", -1, False, False
    while True:
        woken.wait(0.25)
        woken.clear()
        printer.look()
        for update in feed.take():
            store.apply(update)
            while store.unsettled:
                store.work()
            seen = seen or update.trainer is not None
        for e in store.events[shown:]:
            if e.t >= since - 1:
                printer.say(f"{_clock(e.t)} {e.event}: {e.text}")
                plan = e.info.get("plan")  # what this start will do, on one screen
                for key, text in plan.items() if isinstance(plan, dict) else ():
                    printer.say(f"    {key:12} {text}")
        shown = len(store.events)
        state = store.state(time.time())
        if state.word != last_word and state.kind == "busy":
            printer.say(f"{_clock(time.time())} {state.glyph} {state.word}")
        last_word = state.word
        step = store.history.last
        if step != last_step and time.monotonic() >= next_line and store.loading is None:
            next_line, last_step = time.monotonic() + EVERY, step
            printer.say(_progress(store))
        if asked.is_set() and not stopping:
            if not stops or (printer.closed and not mine):
                return
            stopping = True
            printer.say(
                f"{_clock(time.time())} stopping the training cleanly: the step is finished and saved"
            )
            try:
                runner.stop()
            except BadInput as e:
                printer.say(str(e))
        # The feed asks for the trainer before it reads the files: once it is seen dead, all it wrote is here.
        if seen and not store.trainer.alive and store.loading is None and (stops or asked.is_set()):
            return


def _last_words(store: Store, printer: _Printer, *, leaving: bool) -> int:
    trainer = store.trainer
    if trainer.alive or leaving:
        return EXIT_OK
    state = store.state(time.time())
    code = trainer.exit_code
    if state.meaning:
        for line in store.log[-LOG_LINES:]:
            printer.say(f"  | {line}")
        printer.say(f"the trainer is dead: {state.meaning}; `andrea-tui {store.run_dir}` resumes it")
    if code is None:
        return EXIT_OK if state.kind in ("stopped", "finished") else 1
    return code if code >= 0 else 128 - code


def _progress(store: Store) -> str:
    now = time.time()
    s, n = store.status_view(now), store.numbers_view(now)
    ema = f"ema({n.decay:g}) {n.ema:.4f}" if n.ema is not None else "no loss yet"
    of = f"/{s.max_steps:,}" if s.max_steps else ""
    speed = f"  {n.per_minute:.1f} steps/min" if n.per_minute else ""
    tokens = f"  {fmt.short(n.tokens)} tok/s" if n.tokens else ""
    return f"{_clock(now)} step {s.step:,}{of}  {ema}{speed}{tokens}  eta {s.eta}"


def _clock(t: float) -> str:
    return time.strftime("%H:%M:%S", time.localtime(t))
