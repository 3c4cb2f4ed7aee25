"""`python -m engine.sampler run/`: continue a prompt with the weights of a checkpoint, beside a training.

A process of its own on the CPU, below everything else in priority. It only reads: no lock, no signal, no file of the
run is touched. What it is asked for and answers stands in `sampler_protocol`. Exit codes: 0, 2 bad input, 1 else.
"""

# isort: off
from engine import background

if __name__ == "__main__":
    background.step_back()  # first: see there
    background.die_with_parent()

# isort: on
import sys
from collections.abc import Callable
from pathlib import Path

from engine.config import CONFIG_FILE, Config, ModelConfig, load_config
from engine.data.manifest import load_manifest, load_tokenizer
from engine.errors import EXIT_BAD_INPUT, EXIT_OK, BadInput
from engine.layout import n_params
from engine.rundir import checkpoint, names
from engine.rundir.checkpoint import Checkpoint
from engine.rundir.files import open_regular, write_all
from engine.rundir.lines import LineDecoder
from engine.rundir.records import Event
from engine.sampler_protocol import Answer, Ask, Doing, Failed, Settings, decode_ask, encode

MEMORY = 600_000_000  # bytes: torch itself (300 to 400 MB) and a reserve
_NAMED = 12  # checkpoints that a refusal names
_EXIT_BROKEN = 1


def main(argv: list[str]) -> int:
    try:
        if len(argv) != 1:
            raise BadInput("usage: python -m engine.sampler DIR, with what is asked as JSON on stdin")
        _say(Doing("starting"))  # where whoever asked has gone already, this is the end
        _sample(Path(argv[0]), decode_ask(sys.stdin.buffer.read()), _say)
    except BadInput as e:
        _say(Failed(str(e)))
        return EXIT_BAD_INPUT
    except BrokenPipeError:
        return _EXIT_BROKEN
    except Exception as e:  # noqa: BLE001  whatever it is, it is told in one line to the person who asked
        _say(Failed(f"{type(e).__name__}: {e}".replace("\n", " ")))
        return _EXIT_BROKEN
    return EXIT_OK


def _say(answer: Answer) -> None:
    write_all(1, encode(answer))


def _sample(run_dir: Path, ask: Ask, say: Callable[[Answer], None]) -> None:
    config = load_config(run_dir / CONFIG_FILE)
    manifest = load_manifest(run_dir)
    tokenizer = load_tokenizer(run_dir, manifest)
    chosen = candidates(run_dir, ask.step)
    refuse_low_memory(config.model, tokenizer.vocab, background.available_memory())
    say(Doing("loading torch"))
    from engine.sampling import load, sample

    loaded = load(run_dir, config, tokenizer.vocab, chosen, known_hashes(run_dir), say)
    sample(loaded, tokenizer, ask.prompt, settings(ask, config), say)


def candidates(run_dir: Path, step: int | None) -> list[Checkpoint]:
    """The checkpoints to try, newest first; the one of that step. Raises BadInput naming those that are there."""
    good, bad = checkpoint.scan(run_dir)
    if step is not None:
        for path, why in bad:
            if names.checkpoint_step(path.name) == step:
                raise BadInput(f"step {step}: {why}")
        chosen = [c for c in good if c.step == step]
    else:
        chosen = good
    if chosen:
        return chosen
    if not good:
        raise BadInput(
            f"{run_dir}: {bad[0][1] if bad else 'no checkpoint yet; the training writes the first'}"
        )
    near = sorted(sorted(good, key=lambda c: abs(c.step - (step or 0)))[:_NAMED], key=lambda c: c.step)
    there = ", ".join(str(c.step) for c in near)
    more = f" (the nearest of {len(good)})" if len(good) > len(near) else ""
    raise BadInput(f"step {step}: no checkpoint of that step; there are {there}{more}")


def known_hashes(run_dir: Path) -> dict[int, set[str]] | None:
    """step -> sha256 of its checkpoint events; None where no event is left, so that a hash proves nothing."""
    decoder, out = LineDecoder(Event), dict[int, set[str]]()
    try:
        with open(open_regular(run_dir / names.EVENTS), "rb") as f:
            while data := f.read(1 << 20):
                for e in decoder.feed(data):
                    if e.event == "checkpoint":
                        out.setdefault(e.step, set()).add(str(e.info.get("sha256")))
    except FileNotFoundError:
        return None
    except OSError as e:
        raise BadInput(f"{run_dir / names.EVENTS}: can't be read: {e.strerror or e}") from None
    return out or None


def refuse_low_memory(m: ModelConfig, vocab: int, available: int) -> None:
    """Raises BadInput where weights and cache would push out others: the system might then kill the trainer."""
    need = 4 * n_params(m, vocab) + 8 * m.n_layer * m.context * m.d_model + MEMORY
    if need > available:
        raise BadInput(
            f"too little memory: sampling needs {need / 1e9:.1f} GB, {max(available, 0) / 1e9:.1f} GB are free; "
            "the training comes first"
        )


def settings(ask: Ask, config: Config) -> Settings:
    """What was left open is as the audits of this run do it."""
    a = config.audit
    return Settings(
        temperature=a.temperature if ask.temperature is None else ask.temperature,
        top_k=a.top_k if ask.top_k is None else ask.top_k,
        tokens=a.tokens if ask.tokens is None else ask.tokens,
        seed=config.run.seed if ask.seed is None else ask.seed,
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
