"""Try a prompt: a text from a chosen checkpoint, streamed by a process of its own that the training never notices."""

import asyncio
import time
from asyncio.subprocess import Process
from contextlib import suppress
from typing import ClassVar

from rich.text import Text
from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, VerticalScroll
from textual.screen import Screen
from textual.widgets import Input, Static

from andrea_tui.core.store import Store
from andrea_tui.core.text import NEWLINE, clean
from andrea_tui.core.tried import NEWEST, Output, Tried, request
from andrea_tui.screens.narrow import NarrowCompositor
from engine.config import AuditConfig
from engine.errors import BadInput
from engine.sampler_protocol import Ask, command, decode_answer, encode

_BEAT = 0.5  # seconds: what comes meanwhile is drawn at once
_FIELDS = (("step", 11), ("temperature", 5), ("top_k", 6), ("tokens", 6), ("seed", 9))  # with their widths
_LONG = 5  # seconds of loading after which it is said why
_FITS = 78  # columns from which the fields stand in one row
_KEYS = "Enter go  Esc stop, back  ↑↓ earlier  Tab field  PgUp PgDn scroll  ^J newline"


class Recall(Input):
    """A line in which up and down fetch what else could stand there; ⏎ stands for a newline."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up", "recall(-1)", show=False),
        Binding("down", "recall(1)", show=False),
        Binding("ctrl+j", "newline", show=False),
    ]

    def __init__(self, name: str, value: str, choices: list[str]) -> None:
        """`choices`: down walks to their end."""
        super().__init__(value=value, id=name)
        self.choices = choices

    def action_recall(self, by: int) -> None:
        there = self.choices
        at = there.index(self.value) if self.value in there else len(there)
        if 0 <= at + by < len(there):
            self.value = there[at + by]
        elif at + by >= len(there) and self.id == "prompt":
            self.value = ""
        self.cursor_position = len(self.value)

    def action_newline(self) -> None:
        if self.id == "prompt":
            self.insert_text_at_cursor(NEWLINE)

    def on_paste(self, event: events.Paste) -> None:
        """All lines of it, where Textual keeps the first."""
        event.prevent_default()
        event.stop()
        self.replace(clean(event.text), *self.selection)


class PromptScreen(Screen[None]):
    """Reads only. `tried` outlives the screen; `step`: of the checkpoint to begin with, None: the newest."""

    DEFAULT_CSS = """
    PromptScreen { background: $background; }
    PromptScreen #title, PromptScreen #state, PromptScreen #keys { height: 1; width: 100%; }
    PromptScreen #title { text-style: bold; }
    PromptScreen #keys { color: $foreground 62%; }
    PromptScreen Input, PromptScreen Input:focus { border: none; height: 1; padding: 0; background: $surface; }
    PromptScreen Input:focus { background: $panel; }
    PromptScreen #line { height: 1; }
    PromptScreen #prompt { width: 1fr; }
    PromptScreen .label { width: auto; height: 1; padding: 0 1 0 0; color: $foreground 62%; }
    PromptScreen #fields { height: 1; }
    PromptScreen #fields Input { margin: 0 1 0 0; }
    PromptScreen #fields.narrow {
        layout: grid; grid-size: 4; grid-columns: auto 1fr auto 1fr; grid-rows: 1; height: 3;
    }
    PromptScreen #fields.narrow Input { width: 1fr; }
    PromptScreen VerticalScroll { height: 1fr; scrollbar-size-vertical: 1; }
    PromptScreen .output { height: auto; width: 1fr; margin: 0 0 1 0; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "leave", "stop, back", show=False),
        Binding("pageup", "scroll_page(-1)", show=False),
        Binding("pagedown", "scroll_page(1)", show=False),
    ]

    def __init__(self, store: Store, tried: Tried, step: int | None = None) -> None:
        super().__init__()
        self._compositor = NarrowCompositor()
        self._store, self._tried, self._step = store, tried, step
        self._process: Process | None = None  # waits for the next prompt, with the weights at hand
        self._output: Output | None = None  # that is being made, or was made last from here
        self._drawn: tuple[object, ...] = ()
        self._since = 0.0

    def compose(self) -> ComposeResult:
        yield Static(Text(f"try a prompt  {self._store.name}", no_wrap=True, overflow="ellipsis"), id="title")
        with Horizontal(id="line"):
            yield Static("prompt", classes="label")
            yield Recall("prompt", "", list(self._tried.prompts))
        with Horizontal(id="fields"):
            values = self._values()
            for name, width in _FIELDS:
                yield Static(name.replace("_", "-"), classes="label")
                field = Recall(name, values[name], self._steps() if name == "step" else [])
                field.styles.width = width
                yield field
        with VerticalScroll(can_focus=False):
            for output in self._tried.outputs:
                yield Static(_text(output), classes="output")
        yield Static(id="state")
        yield Static(Text(_KEYS, no_wrap=True, overflow="ellipsis"), id="keys")

    def _values(self) -> dict[str, str]:
        """As they stood last; first of all as the audits have them."""
        config = self._store.config
        a = config.audit if config else AuditConfig()
        first = {"step": NEWEST, "temperature": f"{a.temperature:g}", "top_k": str(a.top_k),
                 "tokens": str(a.tokens), "seed": str(config.run.seed if config else 1)}  # fmt: skip
        step = {} if self._step is None else {"step": str(self._step)}
        return first | self._tried.fields | step

    def _steps(self) -> list[str]:
        """Of the checkpoints, newest first."""
        return [NEWEST, *(str(row.step) for row in self._store.checkpoints_view(time.time()).rows)]

    def on_mount(self) -> None:
        self.query_one("#prompt", Input).focus()
        self.call_after_refresh(self._to_the_end)
        self.set_interval(_BEAT, self._beat)
        self.run_worker(self._warm_up(), group="sample")

    def on_resize(self, event: events.Resize) -> None:
        self.query_one("#fields").set_class(event.size.width < _FITS, "narrow")

    # ---- the text

    def on_input_submitted(self, event: Input.Submitted) -> None:
        event.stop()
        if self._busy:
            self._say("this text is still being written: Esc stops it", "yellow")
            return
        typed = self.query_one("#prompt", Input).value
        fields = {name: self.query_one(f"#{name}", Input).value for name, _ in _FIELDS}
        try:
            ask = request(typed.replace(NEWLINE, "\n"), **fields)
        except BadInput as e:
            self._say(str(e), "red")
            return
        self._tried.fields = fields
        self._output = output = self._tried.begin(ask.prompt, typed)
        self.query_one("#prompt", Recall).choices = list(self._tried.prompts)
        self.query_one("#step", Recall).choices = self._steps()
        self._since, self._drawn = time.monotonic(), ()
        self.query_one(VerticalScroll).mount(Static(_text(output), classes="output"))
        self.call_after_refresh(self._to_the_end)
        self.run_worker(self._sample(output, ask), group="sample", exclusive=True)
        self._beat()

    async def _start(self) -> Process:
        """A sampler, which loads torch while a person types. It dies with this thread, the main one."""
        pipe, null = asyncio.subprocess.PIPE, asyncio.subprocess.DEVNULL
        if self._process is None or self._process.returncode is not None:
            self._process = await asyncio.create_subprocess_exec(
                *command(self._store.run_dir), stdin=pipe, stdout=pipe, stderr=null, start_new_session=True
            )
        return self._process

    async def _warm_up(self) -> None:
        """What goes wrong is told when there is something to sample."""
        with suppress(OSError):
            await self._start()

    async def _sample(self, output: Output, ask: Ask) -> None:
        try:
            process = await self._start()
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write(encode(ask))
            async for line in process.stdout:
                output.take(decode_answer(line))
                if output.over:
                    return
            output.exited(await process.wait())
        except OSError as e:
            output.error = f"the sampler could not be started: {e.strerror or e}"

    @property
    def _busy(self) -> bool:
        return self._output is not None and not self._output.over

    def _beat(self) -> None:
        """Draw what has changed since the last beat."""
        o = self._output
        if o is None or not self.is_mounted:
            return
        seconds = int(time.monotonic() - self._since) if o.begin is None and not o.over else 0
        now = (o.number, len(o.text), o.begin is None, o.over, o.came_to(), seconds)
        if now == self._drawn:
            return
        if now[:4] != self._drawn[:4]:
            if self.query_one(VerticalScroll).is_vertical_scroll_end:  # else a person reads further up
                self.call_after_refresh(self._to_the_end)
            self.query(".output").last(Static).update(_text(o))
        self._drawn = now
        waiting = f" {seconds} s" if seconds > 1 else ""
        waiting += " (the lowest priority: others come first)" if seconds > _LONG else ""
        self._say(f"#{o.number}  {o.came_to()}{waiting}", "red" if o.error else "")

    def _say(self, text: str, style: str) -> None:
        self.query_one("#state", Static).update(Text(text, style, no_wrap=True, overflow="ellipsis"))

    def _to_the_end(self) -> None:
        self.query_one(VerticalScroll).scroll_end(animate=False)

    # ---- keys

    def action_scroll_page(self, by: int) -> None:
        scroll = self.query_one(VerticalScroll)
        (scroll.scroll_page_down if by > 0 else scroll.scroll_page_up)(animate=False)

    def action_leave(self) -> None:
        """Stop the text; where none is being made, back to the overview."""
        if self._busy:
            self._stop()
            self._beat()
        else:
            self.dismiss()

    def _stop(self) -> None:
        if self._busy:
            assert self._output is not None
            self._output.stopped = True
        self.workers.cancel_group(self, "sample")
        if self._process is not None and self._process.returncode is None:
            self._process.kill()
        self._process = None

    def on_unmount(self) -> None:
        self._stop()


def _text(o: Output) -> Text:
    """How it was made, then prompt and continuation."""
    text = Text(f"#{o.number}  ", "bold")
    text.append(o.made_from())
    if o.over:
        text.append(f"{'  ' if o.begin else ''}{o.came_to()}", "" if o.begin and not o.error else "red")
    for remark in o.remarks():
        text.append(f"\n{remark}", "not bold italic")
    text.append("\n")
    text.append(clean(o.prompt, "\n"), "not bold dim")
    text.append(o.shown(), "not bold")
    return text
