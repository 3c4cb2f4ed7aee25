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
import select
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

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

if TYPE_CHECKING:
    from engine.sampling import Loaded

MEMORY = 600_000_000  # bytes: torch itself (300 to 400 MB) and a reserve
_NAMED = 12  # checkpoints that a refusal names
_EXIT_BROKEN = 1


def main(argv: list[str]) -> int:
    try:
        if len(argv) != 1:
            raise BadInput("usage: python -m engine.sampler DIR, with what is asked as JSON lines on stdin")
        run_dir = Path(argv[0])
        _say(Doing("starting"))  # where whoever asked has gone already, this is the end
        if not select.select([0], [], [], 0)[0]:  # nobody asks yet: time for the slow part
            warm_up(run_dir)
        return serve(Sampler(run_dir, _say), sys.stdin.buffer)
    except BadInput as e:
        _say(Failed(str(e)))
        return EXIT_BAD_INPUT
    except BrokenPipeError:
        return _EXIT_BROKEN


def serve(sampler: "Sampler", asks: Iterable[bytes]) -> int:
    """Answer one after the other; the exit code that the last one deserves."""
    code = EXIT_OK
    for line in asks:
        code = EXIT_OK
        try:
            sampler.answer(decode_ask(line))
        except BadInput as e:
            code = EXIT_BAD_INPUT
            sampler.say(Failed(str(e)))
        except BrokenPipeError:
            raise
        except Exception as e:  # noqa: BLE001  whatever it is, it is told in one line to the person who asked
            code = _EXIT_BROKEN
            sampler.say(Failed(f"{type(e).__name__}: {e}".replace("\n", " ")))
    return code


def _say(answer: Answer) -> None:
    write_all(1, encode(answer))


def warm_up(run_dir: Path) -> None:
    """Import torch, where there is something to do for it. Raises BadInput."""
    config = load_config(run_dir / CONFIG_FILE)
    candidates(run_dir, None)
    refuse_low_memory(config.model, load_manifest(run_dir).tokenizer_vocab, background.available_memory())
    import engine.sampling  # noqa: F401


class Sampler:
    """Answers asks about one run. Keeps the weights that it read last: the next text begins at once."""

    def __init__(self, run_dir: Path, say: Callable[[Answer], None]) -> None:
        self.say = say
        self._run_dir = run_dir
        self._loaded: Loaded | None = None
        self._from: list[Checkpoint] = []  # what there was to choose from

    def answer(self, ask: Ask) -> None:
        """Raises BadInput."""
        run_dir = self._run_dir
        config = load_config(run_dir / CONFIG_FILE)
        manifest = load_manifest(run_dir)
        tokenizer = load_tokenizer(run_dir, manifest)
        chosen = candidates(run_dir, ask.step)
        if self._loaded is None or chosen != self._from:
            self._loaded = None  # first: two models would need twice the memory
            refuse_low_memory(config.model, tokenizer.vocab, background.available_memory())
            self.say(Doing("loading torch"))
            from engine.sampling import load

            self._loaded = load(run_dir, config, tokenizer.vocab, chosen, known_hashes(run_dir), self.say)
            self._from = chosen
        from engine.sampling import sample

        sample(self._loaded, tokenizer, ask.prompt, settings(ask, config), self.say)


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
