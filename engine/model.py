"""The GPT: parameter-free norm, no biases, head not tied; every weight is a view of one flat float32 buffer.

Pre-norm transformer of GPT-2's kind (Radford et al. 2019) with the simplifications of ANDREA's ancestor microgpt:
the norm stands after the embeddings and before attention and MLP, none before the head.
"""

from collections.abc import Iterator
from math import prod, sqrt

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from engine.config import ModelConfig
from engine.layout import layout, n_params

EPS = 1e-5  # of the norm, as in microgpt


class GPT(nn.Module):
    """`flat` holds all weights, `grad` all gradients (both float32, n_params); the layers' weights are views."""

    def __init__(
        self, config: ModelConfig, vocab: int, device: torch.device, flat: Tensor | None = None
    ) -> None:
        """`flat`: weights that are there already and are not to be trained; no gradients then."""
        super().__init__()
        self.config, self.vocab = config, vocab
        n, trained = n_params(config, vocab), flat is None
        self.flat = torch.zeros(n, device=device) if flat is None else flat
        self.grad = torch.zeros(n if trained else 0, device=device)
        self.weights = nn.ParameterDict()
        offset = 0
        for name, shape in layout(config, vocab):
            view = slice(offset, offset + prod(shape))
            p = nn.Parameter(self.flat[view].view(shape), requires_grad=trained)
            if trained:
                p.grad = self.grad[view].view(shape)
            self.weights[name.replace(".", "_")] = p
            offset = view.stop

    def init(self, seed: int) -> None:
        """Weights of step 0, drawn on the CPU in file order, so that they don't depend on the device.

        Normal with σ = 0.02; the two matrices that write into the residual stream of each layer with σ/√(2·n_layer)
        (Radford et al. 2019, section 2.3).
        """
        rng = torch.Generator().manual_seed(seed)
        with torch.no_grad():
            for name, shape in layout(self.config, self.vocab):
                writes = name.endswith((".o", ".out"))
                std = 0.02 / sqrt(2 * self.config.n_layer) if writes else 0.02
                self._w(name).copy_(torch.normal(0.0, std, shape, generator=rng))

    def grads(self) -> Iterator[Tensor]:
        """The gradient of each matrix, a view of `grad`."""
        offset = 0
        for _, shape in layout(self.config, self.vocab):
            yield self.grad[offset : offset + prod(shape)].view(shape)
            offset += prod(shape)

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        """Mean loss of each row in nats per token: x and y are (rows, T) token ids → (rows,) float32."""
        h = self._norm(F.embedding(x, self._w("tok")) + self._w("pos")[: x.shape[1]])
        for i in range(self.config.n_layer):
            q, k, v = self._heads(self._norm(h), i)
            a = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            h = h + F.linear(a.transpose(1, 2).flatten(2), self._w(f"{i}.o"))
            h = h + self._mlp(self._norm(h), i)
        logits = F.linear(h, self._w("head"))
        losses = F.cross_entropy(logits.flatten(0, 1).float(), y.flatten(), reduction="none")
        return losses.view(y.shape).mean(1)

    def step(self, x: Tensor, position: int, cache: list[tuple[Tensor, Tensor]]) -> Tensor:
        """One token further: x is (rows,) ids at `position` → (rows, vocab) logits.

        `cache` holds per layer keys and values (rows, n_head, context, d_head), filled up to `position`.
        """
        h = self._norm(F.embedding(x[:, None], self._w("tok")) + self._w("pos")[position])
        for i, (keys, values) in enumerate(cache):
            q, k, v = self._heads(self._norm(h), i)
            keys[:, :, position : position + 1] = k
            values[:, :, position : position + 1] = v
            seen = slice(0, position + 1)
            a = F.scaled_dot_product_attention(q, keys[:, :, seen], values[:, :, seen])
            h = h + F.linear(a.transpose(1, 2).flatten(2), self._w(f"{i}.o"))
            h = h + self._mlp(self._norm(h), i)
        return F.linear(h[:, 0], self._w("head")).float()

    def new_cache(self, rows: int, length: int) -> list[tuple[Tensor, Tensor]]:
        c = self.config
        shape = (rows, c.n_head, length, c.d_model // c.n_head)
        device = self.flat.device
        return [
            (torch.zeros(shape, device=device), torch.zeros(shape, device=device)) for _ in range(c.n_layer)
        ]

    def _w(self, name: str) -> Tensor:
        w: Tensor = self.weights[name.replace(".", "_")]
        return w

    def _heads(self, h: Tensor, i: int) -> tuple[Tensor, Tensor, Tensor]:
        rows, t, d = h.shape
        qkv = F.linear(h, self._w(f"{i}.qkv")).view(rows, t, 3, self.config.n_head, d // self.config.n_head)
        q, k, v = qkv.permute(2, 0, 3, 1, 4).unbind(0)  # each (rows, n_head, T, d_head)
        return q, k, v

    def _mlp(self, h: Tensor, i: int) -> Tensor:
        u = F.linear(h, self._w(f"{i}.in"))
        match self.config.activation:
            case "relu":
                u = F.relu(u)
            case "gelu":
                u = F.gelu(u)
            case "relu2":
                u = F.relu(u).square()
        return F.linear(u, self._w(f"{i}.out"))

    def _norm(self, h: Tensor) -> Tensor:
        if self.config.norm == "rmsnorm":
            return F.rms_norm(h, h.shape[-1:], eps=EPS)
        return F.layer_norm(h, h.shape[-1:], eps=EPS)


def flops_per_token(m: ModelConfig, vocab: int) -> float:
    """Forward and backward floating-point operations per token: 6·N + 12·layers·d_model·context.

    Source: Chowdhery et al. 2022 (PaLM), appendix B; N without the embeddings that are only looked up.
    """
    looked_up = (vocab + m.context) * m.d_model
    return 6.0 * (n_params(m, vocab) - looked_up) + 12.0 * m.n_layer * m.d_model * m.context
