"""The tokenizer: every text comes back, ids in our order, exact size, deterministic."""

from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.config import TokenizerConfig
from engine.data.tokenizer import SEPARATOR_NAME, Tokenizer, load, train, without_surrogates
from engine.errors import BadInput, StopRequested

TEXTS = [
    "the cat sat on the mat, and the other cat sat there too\n" * 3,
    f"{SEPARATOR_NAME} " * 40,
    "né à Kyōto 京都\n" * 9,
]


def make(vocab: int = 300) -> Tokenizer:
    return train(TokenizerConfig(vocab=vocab), iter(TEXTS))


BPE = make()
BYTES = train(TokenizerConfig(kind="bytes", vocab=257), iter(()))


@pytest.mark.parametrize("t", [BPE, BYTES], ids=["bpe", "bytes"])
@settings(max_examples=200, deadline=None)
@given(texts=st.lists(st.text(st.characters(codec=None), max_size=40), max_size=5))
def test_every_text_comes_back_byte_for_byte(t: Tokenizer, texts: list[str]) -> None:
    encoded = t.encode_batch(texts)
    assert len(encoded) == len(texts)
    for text, ids in zip(texts, encoded, strict=True):
        raw = without_surrogates(text).encode("utf-8")
        assert ids.dtype == np.uint16
        assert t.decode_bytes(ids) == raw
        assert t.decode(ids.tolist()) == raw.decode()
        assert t.n_bytes[ids].sum() == len(raw)
        assert all(0 < i < t.vocab for i in ids.tolist())


def test_the_ids_are_separator_bytes_merges() -> None:
    assert BPE.vocab == 300 and len(BPE.table) == 300 and BPE.n_bytes.shape == (300,)
    assert BPE.table[0] == b"" and BPE.n_bytes[0] == 0
    assert BPE.table[1:257] == [bytes([b]) for b in range(256)] == BYTES.table[1:]
    assert len(set(BPE.table)) == 300 and min(BPE.n_bytes[257:]) >= 2


def test_no_text_can_forge_the_separator() -> None:
    for name in (SEPARATOR_NAME, SEPARATOR_NAME * 3, "\0"):
        assert 0 not in BPE.encode_batch([name])[0]


def test_no_token_is_longer_than_a_word() -> None:
    t = train(TokenizerConfig(vocab=270), iter(["-" * 5000, "x" * 5000, " " * 5000]))
    assert t.n_bytes.max() == 32
    assert t.decode_bytes(t.encode_batch(["x" * 100_001])[0]) == b"x" * 100_001


def test_decoding_half_a_character_gives_a_replacement() -> None:
    ids = BYTES.encode_batch(["é"])[0]
    assert BYTES.decode(ids[:1]) == "\ufffd"


def test_training_is_deterministic_and_the_file_gives_the_same_tokenizer() -> None:
    assert make().data == BPE.data
    again = load("bpe", BPE.data)
    assert again.table == BPE.table
    for a, b in zip(again.encode_batch(TEXTS), BPE.encode_batch(TEXTS), strict=True):
        assert a.tolist() == b.tolist()


def test_too_large_a_vocabulary_is_refused_with_the_reachable_size() -> None:
    with pytest.raises(BadInput, match=r"tokenizer\.vocab: 5000 .* set vocab = (\d+)") as e:
        make(5000)
    reachable = int(str(e.value).split("set vocab = ")[1].split()[0])
    assert make(reachable).vocab == reachable
    with pytest.raises(BadInput):
        make(reachable + 1)


def test_a_stop_while_feeding_comes_out_of_the_native_call() -> None:
    def texts() -> Iterator[str]:
        yield from TEXTS
        raise StopRequested("training tokenizer")

    with pytest.raises(StopRequested):
        train(TokenizerConfig(vocab=300), texts())


@pytest.mark.parametrize(
    "data", [b"", b"{}", b"\xff", BPE.data[: len(BPE.data) // 2], BPE.data.replace(b'"a"', b'"\\u0100"')]
)
def test_a_damaged_file_is_one_line(data: bytes) -> None:
    with pytest.raises(BadInput, match=r"^data/tokenizer\.json: [^\n]*$"):
        load("bpe", data)
