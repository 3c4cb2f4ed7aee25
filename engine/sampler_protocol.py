"""What is asked of the sampler, and the lines in which it answers. Knows no torch: whoever asks needs none.

Each `Ask` is a JSON line on the sampler's stdin. It is answered on its stdout, one JSON line each: some `Doing`, one
`Begin`, `Piece` after `Piece` while the text comes, one `End`; or, at any point, one `Failed` as the last. Then the
sampler waits for the next, with the weights at hand, and ends when stdin does.
"""

import sys
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from engine.errors import BadInput

MAX_TEMPERATURE, MAX_TOKENS, MAX_SEED = 10.0, 65536, 2**63 - 1


class Ask(Struct, kw_only=True, forbid_unknown_fields=True, frozen=True):
    """A text to be made. None: as the audits of the run do it, from the newest good checkpoint."""

    prompt: str = ""  # "": a text from its beginning
    step: Annotated[int, Meta(ge=0)] | None = None
    temperature: Annotated[float, Meta(ge=0, le=MAX_TEMPERATURE)] | None = None  # 0: greedy
    top_k: Annotated[int, Meta(ge=0)] | None = None  # 0: the whole vocabulary
    tokens: Annotated[int, Meta(ge=1, le=MAX_TOKENS)] | None = None
    seed: Annotated[int, Meta(ge=0, le=MAX_SEED)] | None = None


class Doing(Struct, tag="doing"):
    text: str


class Settings(Struct, frozen=True):
    """Those of an `Ask`, nothing left open."""

    temperature: float
    top_k: int
    tokens: int  # at most
    seed: int


class Begin(Struct, tag="begin", kw_only=True):
    """What the text is made from."""

    step: int
    sha256: str
    params: int
    settings: Settings
    cut: int  # tokens of the prompt's beginning that found no room
    notes: list[str]  # one line each: damaged checkpoints that were passed over


class Piece(Struct, tag="text"):
    text: str  # may be empty: a token can end within a character
    tokens: int  # so far


class End(Struct, tag="end"):
    why: str  # "length", "end of text", "context full"
    tokens: int
    seconds: float  # from the prompt's first token on


class Failed(Struct, tag="failed"):
    text: str  # one line


Answer = Doing | Begin | Piece | End | Failed


def command(run_dir: Path) -> list[str]:
    """Start it from the main thread and in a session of its own; it dies with that thread."""
    return [sys.executable, "-m", "engine.sampler", str(run_dir)]


def encode(message: Ask | Answer) -> bytes:
    return msgspec.json.encode(message) + b"\n"


def decode_ask(data: bytes) -> Ask:
    """Raises BadInput."""
    try:
        return msgspec.json.decode(data, type=Ask)
    except (msgspec.DecodeError, UnicodeDecodeError) as e:
        raise BadInput(f"the sampler was asked for something else: {e}") from None


def decode_answer(line: bytes) -> Answer:
    """Never raises: what can't be read is a failure."""
    try:
        return msgspec.json.decode(line, type=Answer)
    except (msgspec.DecodeError, UnicodeDecodeError) as e:
        return Failed(f"the sampler said something else: {e}")
