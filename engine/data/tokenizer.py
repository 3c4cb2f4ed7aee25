"""Text to ids and back: byte-level BPE by the `tokenizers` library, or plain bytes.

Ids: 0 is the separator (it stands before and after every document), 1 to 256 are the bytes 0 to 255, then come
the merges in the order in which they were learnt. Every text can be encoded and comes back byte for byte.
"""

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import tokenizers
from numpy.typing import NDArray
from tokenizers import decoders, models, pre_tokenizers, trainers

from engine.config import TokenizerConfig
from engine.errors import BadInput

SEPARATOR = 0
FIRST_BYTE = 1
FIRST_MERGE = 257
# The name in the vocabulary file. Its spaces are no characters of the byte alphabet, so no merge can make it.
SEPARATOR_NAME = "<end of text>"
ENCODE_CHUNK = (
    1 << 18
)  # characters per native call: bounds memory and the time between two looks at the flags
# GPT-2's words, but none longer than 32 characters: lines of a script without spaces, or of base64, are else one word
# each, and the time of the training grows with words × length.
_WORD = r"'(?:s|t|re|ve|m|ll|d)| ?\p{L}{1,32}| ?\p{N}{1,32}| ?[^\s\p{L}\p{N}]{1,32}|\s{1,32}(?!\S)|\s{1,32}"
_SURROGATES = re.compile("[\ud800-\udfff]")

Ids = NDArray[np.uint16]


def without_surrogates(text: str) -> str:
    """Lone surrogates (from JSON escapes, undecodable bytes) become U+FFFD; the native library refuses them."""
    return text if text.isascii() else _SURROGATES.sub("\ufffd", text)


class Tokenizer:
    """A frozen vocabulary. `table[i]` are the bytes of id i, `n_bytes` their lengths (separator: 0)."""

    def __init__(
        self, kind: str, table: list[bytes], native: tokenizers.Tokenizer | None, data: bytes
    ) -> None:
        self.kind = kind
        self.table = table
        self.vocab = len(table)
        self.n_bytes = np.array([len(b) for b in table], dtype=np.int64)
        self.data = data  # what `data/tokenizer.json` holds
        self._native = native

    def encode_batch(self, texts: Sequence[str]) -> list[Ids]:
        """The ids of each text, without separators."""
        out: list[Ids] = []
        for chunk in _chunks(texts):
            if self._native is None:
                raw = [np.frombuffer(t.encode("utf-8"), np.uint8) for t in chunk]
                out += [r.astype(np.uint16) + np.uint16(FIRST_BYTE) for r in raw]
            else:
                encoded = self._native.encode_batch_fast(chunk, add_special_tokens=False)
                out += [np.array(e.ids, np.uint16) for e in encoded]
        return out

    def decode_bytes(self, ids: Iterable[int]) -> bytes:
        return b"".join([self.table[i] for i in ids])

    def decode(self, ids: Iterable[int]) -> str:
        """Text; bytes that are no UTF-8 (a sample may end in mid-character) become U+FFFD."""
        return self.decode_bytes(ids).decode("utf-8", "replace")


def _chunks(texts: Sequence[str]) -> Iterator[list[str]]:
    chunk: list[str] = []
    size = 0
    for text in texts:
        if chunk and size + len(text) > ENCODE_CHUNK:
            yield chunk
            chunk, size = [], 0
        chunk.append(without_surrogates(text))
        size += len(text)
    if chunk:
        yield chunk


def train(config: TokenizerConfig, texts: Iterator[str]) -> Tokenizer:
    """A tokenizer of exactly `config.vocab` entries. Deterministic in the texts and their order.

    An exception that the iterator raises comes out as it is. The merging after it is one native call of up to
    some seconds, in which Python runs no signal handler. Raises BadInput where the texts have too few pairs.
    """
    if config.kind == "bytes":
        return load("bytes", b'{"kind":"bytes","vocab":257}\n')
    native = _new(models.BPE())
    trainer = trainers.BpeTrainer(
        vocab_size=config.vocab - 1,  # the separator is added below
        min_frequency=2,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    native.train_from_iterator(map(without_surrogates, texts), trainer)
    reached = native.get_vocab_size() + 1
    if reached < config.vocab:
        raise BadInput(
            f"config.toml: tokenizer.vocab: {config.vocab} entries asked for, but the arms' text gives only "
            f"{reached}; set vocab = {reached} or add text"
        )
    data = _renumbered(json.loads(native.to_str())["model"])
    return load("bpe", data)


def _renumbered(model: dict[str, Any]) -> bytes:
    """The file of a trained model, with the ids in our order whatever order the library gave them."""
    byte_of = _byte_alphabet()
    learnt = sorted((i, t) for t, i in model["vocab"].items() if t not in byte_of)
    tokens = [SEPARATOR_NAME, *sorted(byte_of, key=byte_of.__getitem__), *(t for _, t in learnt)]
    merges = [(a, b) for a, b in model["merges"]]
    native = _new(models.BPE({t: i for i, t in enumerate(tokens)}, merges))
    return native.to_str().encode("utf-8") + b"\n"


def _new(model: models.BPE) -> tokenizers.Tokenizer:
    native = tokenizers.Tokenizer(model)
    words = pre_tokenizers.Split(tokenizers.Regex(_WORD), "isolated")
    as_bytes = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    native.pre_tokenizer = pre_tokenizers.Sequence([words, as_bytes])
    native.decoder = decoders.ByteLevel()
    return native


def _byte_alphabet() -> dict[str, int]:
    """Printable stand-in character -> byte, as GPT-2 defined it."""
    plain = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [b for b in range(256) if b not in plain]
    return {chr(b): b for b in plain} | {chr(256 + i): b for i, b in enumerate(others)}


def load(kind: str, data: bytes) -> Tokenizer:
    """The tokenizer of a file's bytes. Raises BadInput where they don't describe one."""
    if kind == "bytes":
        return Tokenizer("bytes", [b"", *(bytes([b]) for b in range(256))], None, data)
    byte_of = _byte_alphabet()
    try:
        native = tokenizers.Tokenizer.from_str(data.decode("utf-8"))
        names = [str(native.id_to_token(i)) for i in range(native.get_vocab_size())]
        table = [b"", *(bytes([byte_of[c] for c in name]) for name in names[1:])]
    except Exception as e:  # noqa: BLE001 – the library raises bare Exception
        raise BadInput(f"data/tokenizer.json: not a tokenizer that this program wrote: {e}") from None
    if table[FIRST_BYTE:FIRST_MERGE] != [bytes([b]) for b in range(256)]:
        raise BadInput("data/tokenizer.json: ids 1 to 256 are not the bytes; restore the file from a backup")
    return Tokenizer("bpe", table, native, data)
