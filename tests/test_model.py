"""The model, its gradient and its update against the plainest PyTorch that says the same."""

import math
from itertools import pairwise

import pytest
import torch
from torch.nn import functional as F

from engine.config import Config, ModelConfig, OptimConfig, TrainConfig
from engine.device import Device
from engine.gradient import SCALE_EVERY, SCALE_MAX, clip, forward_backward, gradient_norm, scale_before
from engine.layout import layout
from engine.model import GPT
from engine.optim import Adam, learning_rate

CPU = Device(torch.device("cpu"), "CPU", "fp32", False, 0.0)
SMALL = ModelConfig(n_layer=2, n_head=2, d_model=32, context=24)
VOCAB = 61


def model(config: ModelConfig = SMALL, seed: int = 3) -> GPT:
    m = GPT(config, VOCAB, CPU.torch)
    m.init(seed)
    return m


def batch(rows: int = 6, seed: int = 0) -> torch.Tensor:
    return torch.randint(0, VOCAB, (rows, SMALL.context + 1), generator=torch.Generator().manual_seed(seed))


def norm(h: torch.Tensor) -> torch.Tensor:
    return h / (h.pow(2).mean(-1, keepdim=True) + 1e-5).sqrt()


def reference(config: ModelConfig, w: dict[str, torch.Tensor], x: torch.Tensor) -> torch.Tensor:
    """Logits by explicit attention with a mask, from separate q, k and v."""
    d, heads = config.d_model, config.n_head
    h = norm(w["tok"][x] + w["pos"][: x.shape[1]])
    mask = torch.full((x.shape[1], x.shape[1]), -math.inf).triu(1)
    for i in range(config.n_layer):
        n = norm(h)
        q, k, v = (F.linear(n, w[f"{i}.qkv"][j * d : (j + 1) * d]) for j in range(3))
        split = [t.view(*t.shape[:2], heads, d // heads).transpose(1, 2) for t in (q, k, v)]
        a = torch.softmax(split[0] @ split[1].transpose(-1, -2) / math.sqrt(d // heads) + mask, -1) @ split[2]
        h = h + a.transpose(1, 2).reshape(x.shape[0], x.shape[1], d) @ w[f"{i}.o"].T
        h = h + torch.relu(norm(h) @ w[f"{i}.in"].T) @ w[f"{i}.out"].T
    return F.linear(h, w["head"])


def views(m: GPT) -> dict[str, torch.Tensor]:
    return {name: m._w(name).detach() for name, _ in layout(m.config, VOCAB)}


def test_forward_is_the_gpt_of_the_design() -> None:
    m, b = model(), batch()
    logits = reference(SMALL, views(m), b[:, :-1])
    want = F.cross_entropy(logits.transpose(1, 2), b[:, 1:], reduction="none").mean(1)
    torch.testing.assert_close(m(b[:, :-1], b[:, 1:]), want)


def test_weights_lie_in_the_flat_buffer_in_file_order() -> None:
    m = model()
    want = torch.cat([w.flatten() for w in views(m).values()])
    assert torch.equal(m.flat, want)
    m.flat.zero_()
    assert all(not w.any() for w in views(m).values())


def test_the_gradient_in_the_buffer_is_the_ordinary_one() -> None:
    m, b = model(), batch()
    losses = forward_backward(m, m, CPU, b, 6, None)
    w = {k: v.clone().requires_grad_() for k, v in views(m).items()}
    logits = reference(SMALL, w, b[:, :-1])
    F.cross_entropy(logits.transpose(1, 2), b[:, 1:]).backward()  # type: ignore[no-untyped-call]
    got = dict(zip(w, m.grads(), strict=True))
    for name, tensor in w.items():
        torch.testing.assert_close(got[name], tensor.grad, rtol=1e-4, atol=1e-6)
    assert losses.shape == (6,)
    twice = m.grad.clone()
    forward_backward(m, m, CPU, b, 6, None)
    assert torch.equal(m.grad, twice)  # zeroed before, not added up


@pytest.mark.parametrize("micro", [1, 2, 3])
def test_accumulation_is_the_mean_over_all_rows(micro: int) -> None:
    m, b = model(), batch()
    whole = forward_backward(m, m, CPU, b, 6, None)
    g = m.grad.clone()
    parts = forward_backward(m, m, CPU, b, micro, None)
    torch.testing.assert_close(parts, whole)
    torch.testing.assert_close(m.grad, g, rtol=1e-4, atol=1e-6)


def test_norm_and_clipping_are_torchs_own() -> None:
    m = model()
    forward_backward(m, m, CPU, batch(), 6, None)
    tensors = [torch.nn.Parameter(g.clone()) for g in m.grads()]
    for t, g in zip(tensors, m.grads(), strict=True):
        t.grad = g.clone()
    want = torch.nn.utils.clip_grad_norm_(tensors, 0.5)
    norm = float(gradient_norm(m))
    assert norm == float(want) > 0.5
    clip(m, norm, 0.5)
    for t, g in zip(tensors, m.grads(), strict=True):
        assert t.grad is not None
        torch.testing.assert_close(g, t.grad, rtol=1e-6, atol=0)


def test_one_adamw_on_the_buffer_is_adamw_per_tensor_bit_for_bit() -> None:
    o = OptimConfig(lr=1e-2)
    m = model()
    adam = Adam(m, o)
    other = [torch.nn.Parameter(w.clone()) for w in views(m).values()]
    opt = torch.optim.AdamW(
        other, lr=1e-2, betas=(o.beta1, o.beta2), eps=o.eps, weight_decay=o.weight_decay, fused=True
    )
    for step in range(1, 6):
        forward_backward(m, m, CPU, batch(seed=step), 6, None)
        for p, g in zip(other, m.grads(), strict=True):
            p.grad = g.clone()
        adam.update(step, 1e-2)
        opt.step()
        assert torch.equal(m.flat, torch.cat([p.detach().flatten() for p in other]))


@pytest.mark.parametrize("forget", [None, "m", "v", "step"])
def test_weights_m_v_and_step_are_all_that_a_resume_needs(forget: str | None) -> None:
    """Control: whichever of them is forgotten, the weights some steps later are others."""

    def go(m: GPT, adam: Adam, first: int, last: int) -> None:
        for step in range(first, last + 1):
            forward_backward(m, m, CPU, batch(seed=step), 6, None)
            adam.update(step, learning_rate(OptimConfig(warmup_steps=3), step, 20))

    whole = model()
    go(whole, Adam(whole, OptimConfig()), 1, 8)
    a = model()
    adam_a = Adam(a, OptimConfig())
    go(a, adam_a, 1, 4)
    b = model(seed=99)
    adam_b = Adam(b, OptimConfig())
    b.flat.copy_(a.flat)
    if forget != "m":
        adam_b.m.copy_(adam_a.m)
    if forget != "v":
        adam_b.v.copy_(adam_a.v)
    shift = 4 if forget == "step" else 0
    for step in range(5, 9):
        forward_backward(b, b, CPU, batch(seed=step), 6, None)
        adam_b.update(step - shift, learning_rate(OptimConfig(warmup_steps=3), step, 20))
    assert torch.equal(b.flat, whole.flat) == (forget is None)


@pytest.mark.parametrize("kind", ["rmsnorm", "layernorm"])
@pytest.mark.parametrize("activation", ["relu", "gelu", "relu2"])
def test_the_cached_step_gives_the_logits_of_the_whole_forward(kind: str, activation: str) -> None:
    config = ModelConfig(n_layer=2, n_head=2, d_model=32, context=24, norm=kind, activation=activation)  # type: ignore[arg-type]
    m, b = model(config), batch(3)
    cache = m.new_cache(3, config.context)
    with torch.inference_mode():
        for t in range(config.context):
            logits = m.step(b[:, t], t, cache)
            losses = F.cross_entropy(logits, b[:, t + 1], reduction="none")
            # the mean of the first t+1 positions from the whole forward, times t+1, minus the one before
            now = m(b[:, : t + 1], b[:, 1 : t + 2]) * (t + 1)
            before = m(b[:, :t], b[:, 1 : t + 1]) * t if t else torch.zeros(3)
            torch.testing.assert_close(losses, now - before, rtol=1e-3, atol=1e-4)


def test_learning_rate_warms_up_linearly_and_falls_as_a_cosine() -> None:
    o = OptimConfig(lr=1.0, min_lr=0.1, warmup_steps=10)
    lrs = [learning_rate(o, step, 1001) for step in range(1, 1002)]
    assert lrs[0] == pytest.approx(0.1)
    assert lrs[4] == pytest.approx(0.5, rel=1e-3)
    assert lrs[500] == pytest.approx(0.55)
    assert lrs[1000] == pytest.approx(0.1)
    assert learning_rate(o, 5000, 1001) == pytest.approx(0.1)
    assert all(a >= b for a, b in pairwise(lrs[10:]))


def test_initial_weights_follow_from_the_seed_alone() -> None:
    assert torch.equal(model().flat, model().flat)
    assert not torch.equal(model().flat, model(seed=4).flat)
    loss = model()(batch()[:, :-1], batch()[:, 1:]).mean()
    assert float(loss) == pytest.approx(math.log(VOCAB), rel=0.02)


def test_fp16_scale_follows_from_the_log() -> None:
    assert scale_before(1, None) == SCALE_MAX
    assert scale_before(5, 1024.0) == 1024.0
    assert scale_before(SCALE_EVERY, 1024.0) == 2048.0
    assert scale_before(SCALE_EVERY, SCALE_MAX) == SCALE_MAX


def test_defaults_are_a_valid_config() -> None:
    assert Config().train == TrainConfig()
