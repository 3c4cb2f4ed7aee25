"""`andrea-tui sample DIR --prompt TEXT`: what a checkpoint makes of a prompt, on stdout.

Exit codes: 0 · 2 bad input, in one line · 1 the sampler failed · 130 interrupted.
"""

import argparse
import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import msgspec

from andrea_tui.core.text import clean
from andrea_tui.core.tried import Output, request
from engine.errors import EXIT_BAD_INPUT, EXIT_OK, BadInput
from engine.rundir.files import write_all
from engine.sampler_protocol import Answer, Ask, Begin, Doing, Piece, command, decode_answer, encode

_EXIT_FAILED, _EXIT_INTERRUPTED = 1, 130
_LONGEST = 1 << 20  # bytes of a prompt


def sample_command(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="andrea-tui sample",
        description="Continue a prompt with the weights of a checkpoint: on the CPU, at the lowest priority, beside a "
        "training that notices nothing. Only the continuation goes to stdout. What is not given is as in the audits.",
    )  # fmt: skip
    parser.add_argument("run_dir", type=Path, metavar="DIR")
    parser.add_argument("--prompt", metavar="TEXT", help="- reads it from stdin, to the last byte")
    parser.add_argument("--step", default="", metavar="N", help="of the checkpoint (the newest good one)")
    parser.add_argument("--temperature", default="", metavar="T", help="0: greedy")
    parser.add_argument("--top-k", default="", metavar="K", help="0: the whole vocabulary")
    parser.add_argument("--tokens", default="", metavar="N", help="length of the text, at most")
    parser.add_argument("--seed", default="", metavar="S", help="the same seed makes the same text")
    parser.add_argument(
        "--json", action="store_true", help="one JSON object with the text and how it was made"
    )
    args = parser.parse_args(argv)
    ask = request(_prompt(args.prompt), step=args.step, temperature=args.temperature, top_k=args.top_k,
                  tokens=args.tokens, seed=args.seed)  # fmt: skip
    output = Output(1, ask.prompt)
    try:
        code = _run(args.run_dir, ask, output, stream=not args.json)
        if args.json and not output.error:
            write_all(1, _json(output))
    except KeyboardInterrupt:
        return _EXIT_INTERRUPTED
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # else the interpreter's own flush at exit complains
        return EXIT_OK
    if output.error and code == EXIT_BAD_INPUT:
        raise BadInput(output.error)
    _tell(output.came_to())
    return _EXIT_FAILED if output.error else EXIT_OK


def _prompt(given: str | None) -> str:
    if given is None and sys.stdin.isatty():
        raise BadInput("sample: say --prompt TEXT, or --prompt - and write it to stdin")
    data = sys.stdin.buffer.read(_LONGEST + 1) if given in (None, "-") else os.fsencode(given or "")
    if len(data) > _LONGEST:
        raise BadInput(f"sample: --prompt: longer than {_LONGEST:,} bytes")
    return data.decode("utf-8", "replace")


def _run(run_dir: Path, ask: Ask, output: Output, stream: bool) -> int:
    """The sampler's exit code. It dies with us, however we end."""
    with subprocess.Popen(
        command(run_dir), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        start_new_session=True,
    ) as process:  # fmt: skip
        try:
            assert process.stdin is not None
            assert process.stdout is not None
            with suppress(BrokenPipeError):  # it has ended already: its exit code tells
                write_all(process.stdin.fileno(), encode(ask))
            process.stdin.close()
            for line in process.stdout:
                _take(decode_answer(line), output, stream)
            output.exited(code := process.wait())
            return code
        finally:
            process.kill()


def _take(answer: Answer, output: Output, stream: bool) -> None:
    had = len(output.text)
    output.take(answer)
    new = output.text[had:]
    if isinstance(answer, Begin):
        for line in (output.made_from(), *output.remarks()):
            _tell(line)
    elif stream and os.isatty(1):
        end = "" if isinstance(answer, Doing | Piece) or not output.text else "\n"
        write_all(1, (clean(new, "\n") + end).encode(sys.stdout.encoding, "replace"))
    elif stream and new:
        write_all(1, new.encode())


def _json(o: Output) -> bytes:
    assert o.begin is not None
    assert o.end is not None
    b = o.begin
    made = {
        "prompt": o.prompt,
        "text": o.text,
        "step": b.step,
        "sha256": b.sha256,
        "params": b.params,
        "cut": b.cut,
    }
    how = msgspec.structs.asdict(b.settings) | {
        "tokens": o.tokens,
        "why": o.end.why,
        "seconds": o.end.seconds,
    }
    return msgspec.json.encode(made | how) + b"\n"


def _tell(text: str) -> None:
    with suppress(OSError):
        write_all(2, f"{clean(text)}\n".encode())
