"""The sampler's work: read the weights of a checkpoint, and only these; tell a text while it comes."""

import codecs
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch

from engine.audit import continue_all, prompt_seed
from engine.config import Config
from engine.data.tokenizer import SEPARATOR, Tokenizer
from engine.errors import BadInput
from engine.layout import n_params
from engine.model import GPT
from engine.rundir import checkpoint
from engine.rundir.checkpoint import Checkpoint, Damaged
from engine.sampler_protocol import Answer, Begin, Doing, End, Piece, Settings

_EVERY = 0.5  # seconds between two words on how far it is within the prompt

Say = Callable[[Answer], None]


@dataclass(frozen=True)
class Loaded:
    model: GPT
    step: int
    sha256: str  # of the checkpoint
    notes: list[str]  # one line for each damaged checkpoint that was passed over


def load(
    run_dir: Path, config: Config, vocab: int, chosen: list[Checkpoint], known: dict[int, set[str]] | None, say: Say
) -> Loaded:  # fmt: skip
    """The first of these checkpoints that is good. Raises BadInput where none is.

    Checked like a resume: size, header, hash and numbers. Adam's m and v pass by in pieces and are not kept.
    """
    torch.set_num_threads(1)
    flat = torch.empty(n_params(config.model, vocab))
    notes: list[str] = []
    for c in chosen:
        say(Doing(f"reading {c.path.name}"))
        hashes = None if known is None else known.get(c.step, set())
        try:
            sha256 = checkpoint.load_weights(c.path, flat.numpy(), hashes)
        except Damaged as e:
            notes.append(str(e))
            continue
        return Loaded(GPT(config.model, vocab, flat.device, flat), c.step, sha256, notes)
    raise BadInput(f"{run_dir}: {notes[0]}")


def sample(x: Loaded, tokenizer: Tokenizer, prompt: str, how: Settings, say: Say) -> None:
    """Say `Begin`, the text in pieces, `End`. Same weights, prompt and settings: same text."""
    ids = tokenizer.encode_batch([prompt])[0].tolist()
    context = x.model.config.context
    room = context - 2  # a separator stands before the prompt, one token at least comes after it
    # As in the audits a prompt that fits is kept whole, though it may leave the text little room.
    cut = 0 if len(ids) <= room else len(ids) - room - 1 + min(how.tokens, context // 2)
    say(
        Begin(step=x.step, sha256=x.sha256, params=x.model.flat.numel(), settings=how, cut=cut, notes=x.notes)
    )
    start = [SEPARATOR, *ids[cut:]]
    seed = None if how.temperature == 0 else prompt_seed(how.seed, prompt)
    teller = _Teller(tokenizer, len(start), say)
    started = time.monotonic()
    continue_all(
        x.model, [start], how.tokens, how.temperature, how.top_k, [seed], teller.moved, lambda _, t: teller.got(t)
    )  # fmt: skip
    teller.finish(how.tokens, time.monotonic() - started)


class _Teller:
    """Tokens as text: a character whose bytes are spread over tokens is told when it is whole."""

    def __init__(self, tokenizer: Tokenizer, prompt: int, say: Say) -> None:
        self._tokenizer, self._prompt, self._say = tokenizer, prompt, say
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._position, self._next = 0, time.monotonic() + _EVERY
        self._tokens, self._last = 0, -1

    def moved(self) -> bool:
        """One position further, within a long prompt too. Never asks for a stop."""
        self._position += 1
        if self._position < self._prompt and time.monotonic() >= self._next:
            self._next = time.monotonic() + _EVERY
            self._say(Doing(f"reading the prompt {self._position}/{self._prompt}"))
        return False

    def got(self, token: int) -> None:
        self._last = token
        if token != SEPARATOR:
            self._tokens += 1
            self._say(Piece(self._decoder.decode(self._tokenizer.table[token]), self._tokens))

    def finish(self, asked: int, seconds: float) -> None:
        if rest := self._decoder.decode(b"", final=True):
            self._say(Piece(rest, self._tokens))
        full = "length" if self._tokens >= asked else "context full"
        self._say(End("end of text" if self._last == SEPARATOR else full, self._tokens, round(seconds, 3)))
