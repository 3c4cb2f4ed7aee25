"""A prompt continued beside a training: the same text as the audit's, and a trainer that notices nothing."""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch

from andrea_tui import sample_command
from andrea_tui.cli import run as cli
from andrea_tui.core.tried import Output
from engine import background, sampler
from engine.config import load_config
from engine.data.manifest import load_manifest, load_tokenizer
from engine.data.tokenizer import Tokenizer
from engine.errors import BadInput
from engine.rundir import checkpoint
from engine.sampler_protocol import (
    Answer,
    Ask,
    Begin,
    Doing,
    End,
    Failed,
    Piece,
    command,
    decode_answer,
    encode,
)
from engine.sampling import _Teller, load
from tests import engine_process as e
from tests.conftest import MakeRun, make_stopped
from tests.terminal import alive

SCHED_IDLE = 5


@pytest.fixture(scope="module")
def trained(texts: Path, prepared: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Checkpoints at 0, 10, 20 and 30."""
    return make_stopped(tmp_path_factory.mktemp("sampled") / "run", texts, prepared, ["keep.last=9"], 30)


@pytest.fixture
def copy(trained: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(trained, tmp_path / "run"))


@pytest.fixture(autouse=True)
def _threads() -> Iterator[None]:
    """The sampler's work done in this process must not make later tests slow."""
    n = torch.get_num_threads()
    yield
    torch.set_num_threads(n)


def answers(run: Path, ask: Ask) -> list[Answer]:
    """The sampler's work, here and not in a process of its own."""
    out: list[Answer] = []
    sampler.Sampler(run, out.append).answer(ask)
    return out


def text(out: list[Answer]) -> str:
    return "".join(x.text for x in out if isinstance(x, Piece))


def begin(out: list[Answer]) -> Begin:
    return next(x for x in out if isinstance(x, Begin))


def at_once(run: Path) -> list[str]:
    """The command without the low priority, which on a busy machine makes minutes of it."""
    return [
        sys.executable,
        "-c",
        f"import sys; from engine import sampler; sys.exit(sampler.main([{str(run)!r}]))",
    ]


# ---- the text


def test_the_audit_s_settings_make_the_audit_s_texts_at_every_checkpoint(trained: Path) -> None:
    audited = e.samples(trained)
    assert {(x.step, x.mode) for x in audited} >= {
        (s, m) for s in (10, 20, 30) for m in ("greedy", "sampled")
    }
    for x in audited:
        out = answers(
            trained, Ask(prompt=x.prompt, step=x.step, temperature=0 if x.mode == "greedy" else None)
        )
        assert text(out) == x.text, (x.step, x.prompt, x.mode)
        assert begin(out).step == x.step


def test_same_seed_same_text_another_seed_another_text(trained: Path) -> None:
    how = {"prompt": "the cat ", "tokens": 20, "temperature": 1.5, "top_k": 0}
    first, again, other = (text(answers(trained, Ask(seed=s, **how))) for s in (7, 7, 8))  # type: ignore[arg-type]
    assert first == again != other


def test_a_long_prompt_loses_its_beginning_and_says_so(trained: Path) -> None:
    long = "one two three four five six seven eight"  # 39 tokens, where the context is 32
    out = answers(trained, Ask(prompt=long, temperature=0, tokens=10))
    assert begin(out).cut == 39 - 21
    assert text(out) == text(answers(trained, Ask(prompt=long[-21:], temperature=0, tokens=10)))
    assert Output(1, long, begin=begin(out)).remarks() == [
        "the prompt is too long: its first 18 tokens were cut off"
    ]
    assert isinstance(end := out[-1], End)
    assert (end.why, end.tokens) == ("length", 10)


def test_a_text_ends_where_the_context_is_full(trained: Path) -> None:
    end = answers(trained, Ask(prompt="the cat sat on a mat and", temperature=0, tokens=1000))[-1]
    assert isinstance(end, End)
    assert end.why in ("context full", "end of text")
    assert end.tokens <= 32 - 25


# ---- characters across tokens


@pytest.fixture
def byte_tokens(trained: Path) -> Tokenizer:
    return load_tokenizer(trained, load_manifest(trained))


def test_a_character_is_told_when_its_last_byte_is_there(byte_tokens: Tokenizer) -> None:
    told: list[Answer] = []
    teller = _Teller(byte_tokens, 1, told.append)
    for byte in "né€😀".encode():
        teller.got(byte + 1)
    assert [x.text for x in told if isinstance(x, Piece)] == ["n", "", "é", "", "", "€", "", "", "", "😀"]
    teller.got(0xE2 + 1)
    teller.finish(99, 1.0)
    assert text(told) == "né€😀\ufffd"


def test_pieces_add_up_to_the_whole_whatever_the_bytes(byte_tokens: Tokenizer) -> None:
    rng = random.Random(3)
    for _ in range(200):
        ids = [rng.choice((rng.randrange(1, 257), *(b + 1 for b in "aé€😀".encode()))) for _ in range(12)]
        told: list[Answer] = []
        teller = _Teller(byte_tokens, 1, told.append)
        for i in ids:
            teller.got(i)
        teller.finish(12, 1.0)
        assert text(told) == byte_tokens.decode(ids)


# ---- which checkpoint


def test_a_damaged_newest_is_passed_over_and_a_chosen_one_refused(copy: Path) -> None:
    path = copy / "step_000030.bin"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1  # in v, which is hashed and not kept
    path.write_bytes(data)
    out = answers(copy, Ask(prompt="a", tokens=2))
    assert begin(out).step == 20
    assert "sha256" in Output(1, "a", begin=begin(out)).remarks()[0]
    with pytest.raises(BadInput, match=r"step_000030\.bin.*sha256"):
        answers(copy, Ask(prompt="a", step=30))


def test_the_weights_stay_at_hand_until_another_checkpoint_is_asked_for(copy: Path) -> None:
    out: list[Answer] = []
    s = sampler.Sampler(copy, out.append)
    asks = [
        Ask(prompt="a", step=20, tokens=2),
        Ask(prompt="b", step=20, tokens=2),
        Ask(step=30, tokens=2),
        Ask(step=7),
    ]
    assert sampler.serve(s, map(encode, asks)) == 2
    assert [x.text for x in out if isinstance(x, Doing) and "reading" in x.text] == [
        "reading step_000020.bin",
        "reading step_000030.bin",
    ]
    assert [x.step for x in out if isinstance(x, Begin)] == [20, 20, 30]
    assert isinstance(out[-1], Failed)
    assert sampler.serve(s, [encode(Ask(step=7)), b"nonsense\n", encode(asks[0])]) == 0


def test_one_that_is_pruned_under_our_hands_is_one_clear_line(copy: Path) -> None:
    config, chosen = load_config(copy / "config.toml"), sampler.candidates(copy, 20)
    os.unlink(copy / "step_000020.bin")
    with pytest.raises(BadInput, match=r"step_000020\.bin: No such file") as refused:
        load(copy, config, 257, chosen, sampler.known_hashes(copy), lambda answer: None)
    assert "\n" not in str(refused.value)


def test_only_the_weights_are_kept(trained: Path) -> None:
    chosen = sampler.candidates(trained, 30)
    x = load(trained, load_config(trained / "config.toml"), 257, chosen, None, lambda answer: None)
    weights = checkpoint.load(chosen[0].path, chosen[0].n_params, None)[1][0]
    assert x.model.flat.numpy().tobytes() == weights.tobytes()
    assert x.model.grad.numel() == 0


# ---- the command


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sample_command, "command", at_once)


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (["--step", "15"], "step 15: no checkpoint of that step; there are 0, 10, 20, 30\n"),
        (["--step", "x"], "step: 'x' is no step"),
        (["--temperature", "nan"], "temperature: 'nan' is no number from 0 (greedy) to 10"),
        (["--top-k", "-1"], "top-k: '-1' is no whole number"),
        (["--tokens", "0"], "tokens: '0' is no whole number from 1 to"),
        (["--seed", "1.5"], "seed: '1.5' is no whole number"),
    ],
)
def test_bad_input_is_exit_2_and_one_line(
    options: list[str], why: str, trained: Path, capfd: pytest.CaptureFixture[str], soon: None
) -> None:
    assert cli(["sample", str(trained), "--prompt", "a", *options]) == 2
    out, err = capfd.readouterr()
    assert why in err
    assert err.count("\n") == 1
    assert out == ""


def test_a_run_without_checkpoints_and_no_run_at_all(
    small_run: MakeRun, capfd: pytest.CaptureFixture[str], soon: None
) -> None:
    run = small_run("fresh")
    assert cli(["sample", str(run), "--prompt", "a"]) == 2
    assert "no checkpoint yet" in capfd.readouterr().err
    assert cli(["sample", str(run.parent / "nowhere"), "--prompt", "a"]) == 2
    err = capfd.readouterr().err
    assert "nowhere" in err
    assert err.count("\n") == 1


def test_stdout_is_the_continuation_alone_and_json_says_how(
    trained: Path, capfdbinary: pytest.CaptureFixture[bytes], soon: None
) -> None:
    (x,) = (s for s in e.samples(trained) if (s.step, s.prompt, s.mode) == (20, "the ", "greedy"))
    asked = ["sample", str(trained), "--prompt", "the ", "--step", "20", "--temperature", "0"]
    assert cli(asked) == 0
    out, err = capfdbinary.readouterr()
    assert out.decode() == x.text
    assert b"step 20 (" in err
    assert cli([*asked, "--json"]) == 0
    made: dict[str, Any] = json.loads(capfdbinary.readouterr().out)
    assert (made["text"], made["step"], made["tokens"], made["why"]) == (x.text, 20, 8, "length")
    assert made["sha256"] == e.sha(trained / "step_000020.bin")


# ---- what it costs others


def waiting(run: Path) -> "subprocess.Popen[bytes]":
    """A sampler that has stepped back and waits for what it is asked."""
    pipe = subprocess.PIPE
    p = subprocess.Popen(command(run), stdin=pipe, stdout=pipe, start_new_session=True)
    assert p.stdout is not None
    assert b"starting" in p.stdout.readline()
    return p


def priority(stat: Path) -> tuple[int, int]:
    """(nice, scheduling policy) of a process or thread."""
    fields = stat.read_text().rpartition(")")[2].split()
    return int(fields[16]), int(fields[38])


def test_it_is_the_last_in_line_and_the_first_to_be_killed(trained: Path) -> None:
    p = waiting(trained)
    try:
        proc = Path(f"/proc/{p.pid}")
        assert [priority(task / "stat") for task in (proc / "task").iterdir()] == [
            (19, SCHED_IDLE)
        ]  # one thread
        assert (proc / "oom_score_adj").read_text().strip() == "1000"
        assert psutil.Process(p.pid).ionice().ioclass == psutil.IOPRIO_CLASS_IDLE
        assert os.getsid(p.pid) == p.pid
    finally:
        p.kill()
        p.communicate()
    assert (
        priority(Path("/proc/self/stat"))[1] != SCHED_IDLE
    )  # the control: whoever starts it stays as it was


def test_it_sees_no_gpu_and_takes_one_thread() -> None:
    code = (
        "from engine import background; background.step_back(); import torch, os; "
        "print(torch.cuda.device_count(), torch.get_num_threads(), os.environ['CUDA_VISIBLE_DEVICES'] == '')"
    )
    assert (
        subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout == b"0 1 True\n"
    )


@pytest.mark.parametrize("dies", [True, False])
def test_it_dies_with_whoever_started_it(dies: bool, trained: Path) -> None:
    """Control: a process that has not asked for it lives on."""
    child = command(trained) if dies else [sys.executable, "-c", "import time; time.sleep(60)"]
    start = f"import subprocess, time; print(subprocess.Popen({child!r}).pid, flush=True); time.sleep(60)"
    stdin, ours = os.pipe()  # it never ends: it is not that end which the sampler sees
    parent = subprocess.Popen([sys.executable, "-c", start], stdin=stdin, stdout=subprocess.PIPE)
    assert parent.stdout is not None
    pid = int(parent.stdout.readline())
    try:
        if dies:
            assert b"starting" in parent.stdout.readline()
        parent.kill()
        parent.wait()
        if dies:
            e.wait_for(lambda: not alive(pid), "the sampler's end", seconds=20)
        else:
            assert alive(pid)
    finally:
        if alive(pid):
            os.kill(pid, signal.SIGKILL)
        parent.stdout.close()
        os.close(stdin)
        os.close(ours)


def test_too_little_memory_is_refused_before_torch_is_there(trained: Path) -> None:
    code = (
        "import sys; from engine import background, sampler; background.available_memory = lambda: 500_000_000; "
        f"code = sampler.main([{str(trained)!r}]); sys.exit(100 if 'torch' in sys.modules else code)"
    )
    p = subprocess.run(
        [sys.executable, "-c", code], input=encode(Ask(prompt="a")), capture_output=True, check=False
    )
    assert p.returncode == 2
    failed = decode_answer(p.stdout.splitlines()[-1])
    assert isinstance(failed, Failed)
    assert failed.text == (
        "too little memory: sampling needs 0.6 GB, 0.5 GB are free; the training comes first"
    )
    assert background.available_memory() > 0


def test_the_memory_of_the_cgroup_counts_where_it_is_less(tmp_path: Path) -> None:
    proc, cgroups = tmp_path / "proc", tmp_path / "cgroup"
    inner = cgroups / "user.slice/run.scope"
    (proc / "self").mkdir(parents=True)
    inner.mkdir(parents=True)
    (proc / "meminfo").write_text("MemTotal: 9000 kB\nMemAvailable:    8000 kB\n")
    (proc / "self/cgroup").write_text("0::/user.slice/run.scope\n")
    assert background.available_memory(proc, cgroups) == 8000 * 1024
    for folder, limit in ((inner, "max"), (inner.parent, "5000000")):
        (folder / "memory.max").write_text(f"{limit}\n")
        (folder / "memory.current").write_text("3000000\n")
        (folder / "memory.stat").write_text("anon 5\ninactive_file 1000000\n")
    assert background.available_memory(proc, cgroups) == 3_000_000


def test_beside_a_training_the_run_is_what_it_would_have_been(small_run: MakeRun) -> None:
    sets = ["train.max_steps=1000000", "train.checkpoint_every=100", "train.sample_every=1000000"]
    run, twin = small_run("run", *sets), small_run("twin", *sets)
    trainer = e.start(run)
    e.wait_for(lambda: len(checkpoint.scan(run)[0]) > 1, "a checkpoint", trainer)
    p = subprocess.Popen(at_once(run), stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert p.stdin is not None
    assert p.stdout is not None
    p.stdin.write(encode(Ask(prompt="the ", tokens=20)))
    p.stdin.close()
    trainer.send_signal(
        signal.SIGSTOP
    )  # while torch is loaded: else there are many steps for the twin to make
    line = next(x for x in p.stdout if b"reading" in x)
    trainer.send_signal(signal.SIGCONT)
    at = e.history(run).last
    *_, line = p.stdout
    p.wait()
    assert isinstance(decode_answer(line), End)
    e.wait_for(lambda: e.history(run).last > at + 100, "steps and a checkpoint after it", trainer)
    trainer.terminate()
    assert trainer.wait(e.TIMEOUT) == 0
    last = e.history(run).last
    assert e.finish(twin, "--stop-at", str(last)) == 0
    assert e.sha(run / f"step_{last:06d}.bin") == e.sha(twin / f"step_{last:06d}.bin")
    assert e.canonical(run) == e.canonical(twin)
    files = [sorted(str(p.relative_to(r)) for p in r.rglob("*")) for r in (run, twin)]
    assert files[0] == files[1]
    # the audit of the last step is made at the next start where a signal stopped the run
    told = [[x.event for x in e.events(r) if x.event not in ("stopped", "audit")] for r in (run, twin)]
    assert told[0] == told[1]
