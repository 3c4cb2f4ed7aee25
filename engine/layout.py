"""Where each matrix lies in the one flat parameter buffer (and so in a checkpoint).

Order, for good: token embedding, position embedding, per layer attention q, k, v, o and MLP in, out, then the
output head. Shapes are (out, in) as torch.nn.functional.linear wants them; embeddings are (entries, d_model).
q, k and v are adjacent, so one (3·d_model, d_model) matrix serves all three with the same bytes.
"""

from math import prod

from engine.config import ModelConfig

HEADER_BYTES = 8


def layout(m: ModelConfig, vocab: int) -> list[tuple[str, tuple[int, int]]]:
    """[(name, shape)] in file order."""
    d = m.d_model
    out = [("tok", (vocab, d)), ("pos", (m.context, d))]
    for i in range(m.n_layer):
        out += [
            (f"{i}.qkv", (3 * d, d)),
            (f"{i}.o", (d, d)),
            (f"{i}.in", (4 * d, d)),
            (f"{i}.out", (d, 4 * d)),
        ]
    return [*out, ("head", (vocab, d))]


def n_params(m: ModelConfig, vocab: int) -> int:
    return sum(prod(shape) for _, shape in layout(m, vocab))


def checkpoint_bytes(n: int) -> int:
    """Size of a checkpoint of n parameters: int32 step, int32 n_params, then weights, m and v as float32."""
    return HEADER_BYTES + 12 * n
