"""Sample texts from the present weights: every prompt continued greedily and by sampling.

The seeds depend on (run seed, prompt) and not on the step, so that texts of different steps can be compared; the
generators are of their own, so that an audit never moves the training's random numbers.
"""

import hashlib
import time
from collections.abc import Callable

import torch

from engine.config import AuditConfig
from engine.data.tokenizer import Tokenizer
from engine.errors import StopRequested
from engine.model import GPT
from engine.rundir.records import SampleLine

GREEDY, SAMPLED = "greedy", "sampled"


def audit(
    model: GPT, tokenizer: Tokenizer, a: AuditConfig, *, seed: int, step: int, phase: int, seg: int,
    should_stop: Callable[[], bool],
) -> list[tuple[SampleLine, list[int]]]:  # fmt: skip
    """One greedy and one sampled text per prompt, with its ids. Raises StopRequested: it is whole or not there."""
    prompts = [ids.tolist() for ids in tokenizer.encode_batch(a.prompts)]
    length = model.config.context
    # At least one token must fit behind a prompt; of a longer one its end is kept.
    prompts = [[0, *ids[-(length - 2) :]] for ids in prompts]
    modes = [GREEDY, SAMPLED]
    rows = [(prompt, ids, mode) for prompt, ids in zip(a.prompts, prompts, strict=True) for mode in modes]
    seeds = [prompt_seed(seed, prompt) if mode == SAMPLED else None for prompt, _, mode in rows]
    texts = continue_all(
        model, [ids for _, ids, _ in rows], a.tokens, a.temperature, a.top_k, seeds, should_stop
    )
    now = round(time.time(), 3)
    return [
        (SampleLine(step=step, phase=phase, prompt=prompt, mode=mode, text=tokenizer.decode(ids), tokens=len(ids),
                    t=now, seg=seg), ids)
        for (prompt, _, mode), ids in zip(rows, texts, strict=True)
    ]  # fmt: skip


@torch.inference_mode()
def continue_all(
    model: GPT, prompts: list[list[int]], tokens: int, temperature: float, top_k: int, seeds: list[int | None],
    should_stop: Callable[[], bool], told: Callable[[int, int], None] | None = None,
) -> list[list[int]]:  # fmt: skip
    """Up to `tokens` new ids for each prompt, ended early by a separator (0) or the context.

    `told` hears of every new id at once, with the number of its row; of the separator too.

    All rows walk through the positions together, one token at a time with a key/value cache: a row that is
    still within its prompt is fed the prompt. So prompts of different lengths need no padding. A seed of None
    means greedy.
    """
    length = min(model.config.context, max(map(len, prompts)) + tokens)
    device = model.flat.device
    cache = model.new_cache(len(prompts), length)
    rngs = [None if s is None else torch.Generator().manual_seed(s) for s in seeds]
    rows = [list(p) for p in prompts]
    done = [False] * len(rows)
    for position in range(length - 1):
        if should_stop():
            raise StopRequested("sampling")
        column = torch.tensor([r[position] if position < len(r) else 0 for r in rows], device=device)
        logits = model.step(column, position, cache).cpu()
        for i, row in enumerate(rows):
            if done[i] or position + 1 < len(row):
                continue
            row.append(_pick(logits[i], temperature, top_k, rngs[i]))
            if told is not None:
                told(i, row[-1])
            done[i] = row[-1] == 0 or len(row) - len(prompts[i]) >= tokens
        if all(done):
            break
    return [[t for t in r[len(p) :] if t != 0] for r, p in zip(rows, prompts, strict=True)]


def _pick(logits: torch.Tensor, temperature: float, top_k: int, rng: torch.Generator | None) -> int:
    if rng is None:
        return int(logits.argmax())
    scaled = logits / temperature
    if 0 < top_k < len(scaled):
        least = torch.topk(scaled, top_k).values[-1]
        scaled = scaled.masked_fill(scaled < least, float("-inf"))
    return int(torch.multinomial(torch.softmax(scaled, 0), 1, generator=rng))


def prompt_seed(seed: int, prompt: str) -> int:
    """For the sampled text after this prompt, at every step."""
    digest = hashlib.blake2b(f"{seed}\0{prompt}".encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1
