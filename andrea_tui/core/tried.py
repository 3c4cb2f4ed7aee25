"""Prompts that a person tries: what was typed as a request, and the texts that came of it."""

import math
from dataclasses import dataclass, field

from andrea_tui.core import fmt
from andrea_tui.core.text import clean
from engine.errors import BadInput
from engine.sampler_protocol import (
    MAX_SEED,
    MAX_TEMPERATURE,
    MAX_TOKENS,
    Answer,
    Ask,
    Begin,
    Doing,
    End,
    Failed,
    Piece,
)

NEWEST = "newest"
_KEPT = 20  # outputs of a session


def request(
    prompt: str, *, step: str = "", temperature: str = "", top_k: str = "", tokens: str = "", seed: str = ""
) -> Ask:
    """What a person typed; empty means as the audits do it. Raises BadInput with one line that names the field."""
    at = None
    if step.strip() not in ("", NEWEST):
        at = fmt.parse_step(step)
        if at is None:
            raise BadInput(f"step: {clean(step)!r} is no step; 112,600 is one, 112.6k, or newest")
    return Ask(
        prompt=prompt,
        step=at,
        temperature=_temperature(temperature),
        top_k=_whole("top-k", top_k, 0, 2**31 - 1),
        tokens=_whole("tokens", tokens, 1, MAX_TOKENS),
        seed=_whole("seed", seed, 0, MAX_SEED),
    )


def _temperature(text: str) -> float | None:
    if not text.strip():
        return None
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 <= value <= MAX_TEMPERATURE:
        raise BadInput(f"temperature: {clean(text)!r} is no number from 0 (greedy) to {MAX_TEMPERATURE:g}")
    return value


def _whole(name: str, text: str, least: int, most: int) -> int | None:
    text = text.strip()
    if not text:
        return None
    if not (text.isascii() and text.isdigit() and len(text) < 20 and least <= int(text) <= most):
        raise BadInput(f"{name}: {clean(text)!r} is no whole number from {least} to {most:,}")
    return int(text)


@dataclass
class Output:
    """One text, while it comes and after."""

    number: int
    prompt: str
    begin: Begin | None = None
    text: str = ""  # as it came; show `shown()`
    tokens: int = 0
    doing: str = ""
    end: End | None = None
    error: str = ""  # why there is no text, or no more of it
    stopped: bool = False  # by the person

    @property
    def over(self) -> bool:
        return self.end is not None or self.stopped or bool(self.error)

    def take(self, answer: Answer) -> None:
        match answer:
            case Doing(text=text):
                self.doing = clean(text)
            case Begin():
                self.begin, self.doing = answer, ""
            case Piece():
                self.text += answer.text
                self.tokens, self.doing = answer.tokens, ""
            case End():
                self.end = answer
            case Failed(text=text):
                self.error = clean(text)

    def exited(self, code: int) -> None:
        """The sampler is gone."""
        if not self.over:
            why = f"was killed by signal {-code}" if code < 0 else f"ended with {code} and no word"
            out_of_memory = "; if the machine ran out of memory, it is the first to go" if code == -9 else ""
            self.error = f"the sampler {why}{out_of_memory}"

    def shown(self) -> str:
        return clean(self.text, "\n")

    def made_from(self) -> str:
        """Checkpoint and settings; "" until they are known."""
        if self.begin is None:
            return ""
        b = self.begin
        how = b.settings
        mode = "greedy" if how.temperature == 0 else f"temperature {how.temperature:g}  top-k {how.top_k}"
        seed = "" if how.temperature == 0 else f"  seed {how.seed}"
        return f"step {fmt.count(b.step)} ({clean(b.sha256[:8])})  {mode}{seed}"

    def came_to(self) -> str:
        """How far it is, or how it ended."""
        if self.error:
            return self.error
        of = f"{self.tokens}/{self.begin.settings.tokens}" if self.begin else "0"
        if self.stopped:
            return f"stopped after {self.tokens} tokens"
        if self.end is None:
            return self.doing or f"{of} tokens"
        speed = f", {self.end.tokens / self.end.seconds:.1f} tok/s" if self.end.seconds else ""
        return f"{self.tokens} tokens{speed}, {clean(self.end.why)}"

    def remarks(self) -> list[str]:
        """What is not as a person might think."""
        if self.begin is None:
            return []
        out = [f"passed over: {clean(note)}" for note in self.begin.notes]
        if self.begin.cut:
            out.append(f"the prompt is too long: its first {self.begin.cut} tokens were cut off")
        return out


@dataclass
class Tried:
    """What was tried while this cockpit is open."""

    outputs: list[Output] = field(default_factory=list)  # the last ones, newest last
    prompts: list[str] = field(default_factory=list)  # as typed, each once, newest last
    fields: dict[str, str] = field(default_factory=dict)  # as they stood last
    count: int = 0

    def begin(self, prompt: str, typed: str) -> Output:
        self.count += 1
        output = Output(self.count, prompt)
        self.outputs = [*self.outputs, output][-_KEPT:]
        self.prompts = [*(p for p in self.prompts if p != typed), *([typed] if typed else [])]
        return output
