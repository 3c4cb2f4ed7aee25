"""Six kinds of text are told apart by real held-out text, and the reference is made once for what it stands for."""

import random
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import msgspec
import numpy as np
import pytest

from engine.config import Arm, Policy, TokenizerConfig
from engine.data import builtin
from engine.data import reference as reference_module
from engine.data.manifest import Manifest, load_tokenizer
from engine.data.prepare import prepare
from engine.data.reference import (
    FEW,
    SHORTER_WINDOWS,
    WINDOWS,
    ArmReference,
    Envelope,
    Quantiles,
    Reference,
    ladder,
    windows,
)
from engine.data.rows import Rows
from engine.data.tokenizer import Tokenizer
from engine.errors import StopRequested
from engine.measures import MEASURES, Measures
from engine.scorer import Scorer
from engine.verdict import near, verdict

SIZES = {"repo-docstrings": 400_000, "repo-docs": 250_000}  # characters of each that are learnt from
LONGEST = 40_000  # characters of a document
OPTIONS = [
    ("verbose", "print more"), ("path", "where to look for the files"), ("jobs", "number of workers"),
    ("timeout", "seconds to wait for an answer"), ("color", "when to use colors"), ("retries", "how often"),
    ("cache", "keep results between runs"), ("strict", "stop at the first error"), ("name", "of the file"),
    ("quiet", "print less"), ("output", "where to write the results"), ("limit", "number of results"),
    ("delay", "seconds between retries"), ("depth", "how far to look"), ("force", "write over files that exist"),
    ("encoding", "of the files"), ("format", "of the output"), ("config", "where to look for the settings"),
]  # fmt: skip


def _table(options: list[tuple[str, str]]) -> str:
    rows = "".join(f"| `{name}` | {i} | {text} |\n" for i, (name, text) in enumerate(options))
    return "| option | default | what it does |\n|---|---|---|\n" + rows


# A table unlike those that are learnt from.
TABLE = "| option | linux | macos | windows | since |\n|---|---|---|---|---|\n" + "".join(
    f"| `{name}` | yes | {'no' if i % 3 else 'yes'} | {'no' if i % 4 else 'yes'} | {1 + i // 5}.{i % 5} |\n"
    for i, (name, _) in enumerate(OPTIONS[:14])
)


def no_tick(what: str, fraction: float) -> None:
    pass


class Run:
    """A prepared run with the built-in texts in two arms, and documents that are in neither."""

    def __init__(self, run_dir: Path, kind: str, tokens: int) -> None:
        self.dir, self.tokens = run_dir, tokens
        self.fresh = {arm: "\n\n".join(_write(run_dir / arm, arm)) for arm in SIZES}
        policy = Policy(arms={arm: Arm(path=arm) for arm in SIZES})
        tok = TokenizerConfig(kind="bytes", vocab=257) if kind == "bytes" else TokenizerConfig(vocab=1281)
        self.manifest: Manifest = prepare(run_dir, policy, tok, 256, lambda what, part: None, lambda: False)
        self.tokenizer: Tokenizer = load_tokenizer(run_dir, self.manifest)
        self.rows = Rows(run_dir, self.manifest, 256, 1)
        self.scorer = self.open()

    def open(self, tokens: int = 0, tick: Callable[[str, float], None] = no_tick) -> Scorer:
        return Scorer(self.dir, self.manifest, self.tokenizer, list(SIZES), tokens or self.tokens, tick)

    def judge(self, ids: object, length: int = 0) -> str:
        array = np.asarray(ids)[: length or self.tokens]
        return self.scorer.verdict(self.scorer.score(self.tokenizer.decode(array.tolist()), array))

    def text(self, text: str) -> str:
        """The verdict on a text's first tokens."""
        ids = self.tokenizer.encode_batch([text])[0]
        assert len(ids) >= self.tokens
        return self.judge(ids)


def _write(folder: Path, corpus: str) -> list[str]:
    """Some of the corpus as files; the documents that follow. Whatever is installed here, documentation has tables."""
    folder.mkdir(parents=True)
    size, fresh = 0, []
    tables = random.Random(7)
    for i, text in enumerate(t for t in builtin.documents(corpus) if len(t) < LONGEST):
        if size < SIZES[corpus]:
            (folder / f"{i:05}.txt").write_text(text, "utf-8")
            if corpus == "repo-docs":
                (folder / f"{i:05}-table.txt").write_text(_table(tables.sample(OPTIONS, 12)), "utf-8")
        else:
            fresh.append(text)
        size += len(text)
        if len("".join(fresh)) > 60_000:
            break
    return fresh


@pytest.fixture(scope="module", params=["bpe", "bytes"])
def run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Texts of about 300 characters (bpe), or 256."""
    return Run(
        tmp_path_factory.mktemp("reference") / "run", request.param, 128 if request.param == "bpe" else 256
    )


def share(verdicts: list[str], of: str) -> float:
    assert len(verdicts) >= 10
    return verdicts.count(of) / len(verdicts)


def test_a_looping_text(run: Run) -> None:
    for period in (
        " the",
        " of the same time, and",
        "\n* the name of the object",
        "    ",
        " a b c d e f g h i j.",
    ):
        assert run.text(period * 16 * run.tokens) == "loop", period
        assert run.text("The number of the line is" + period * 16 * run.tokens) == "loop", period


def test_a_salad_of_frequent_words(run: Run) -> None:
    files = [p for arm in SIZES for p in sorted((run.dir / arm).iterdir())[:150]]
    counts = Counter(re.findall(r"\w+", " ".join(p.read_text("utf-8").lower() for p in files)))
    rng = random.Random(0)
    for most in (30, 60, 200):
        words = [word for word, _ in counts.most_common(most)]
        texts = [" ".join(rng.choice(words) for _ in range(run.tokens)) for _ in range(20)]
        assert share([run.text(text) for text in texts], "salad") >= 0.75, most


def test_a_copy_of_training_text(run: Run) -> None:
    for arm in SIZES:
        tokens = run.rows.tokens(arm, "train")
        copies = [run.judge(ids) for ids in windows(tokens, run.tokens, 40)]
        assert share(copies, "copy") >= 0.8  # the rest are lists, odder than any in the little held-out text
    assert (
        share([run.judge(np.append(ids[:-20], ids[:20])) for ids in windows(tokens, run.tokens, 20)], "copy")
        >= 0.9
    )


def test_noise_of_an_untrained_model(run: Run) -> None:
    rng = np.random.default_rng(0)
    vocab = run.tokenizer.vocab
    assert share([run.judge(rng.integers(1, vocab, run.tokens)) for _ in range(30)], "noise") == 1
    counts = run.rows.train_counts("repo-docs").astype(float)
    counts[0] = 0
    like_frequencies = [rng.choice(vocab, run.tokens, p=counts / counts.sum()) for _ in range(30)]
    assert share([run.judge(ids) for ids in like_frequencies], "") == 0


def test_a_markdown_table_is_fine(run: Run) -> None:
    assert run.text(TABLE * 2) == ""
    m = run.scorer.score(TABLE, run.tokenizer.encode_batch([TABLE])[0])
    prose = run.scorer.reference.arms["repo-docs"].lengths[run.tokens].measures
    assert m.seq_rep_4 > prose["seq_rep_4"].p50 and m.loop > prose["loop"].p50


def test_good_prose_is_fine(run: Run) -> None:
    """Held-out text, of which a hundredth is odd by definition, and text that the reference never saw."""
    for arm in SIZES:
        held_out = windows(run.rows.tokens(arm, "heldout"), run.tokens, 100)
        assert share([run.judge(ids) for ids in held_out], "") >= 0.75, arm
        fresh = windows(run.tokenizer.encode_batch([run.fresh[arm]])[0], run.tokens, 60)
        assert share([run.judge(ids) for ids in fresh], "") >= 0.7, arm


def test_texts_that_ended_early_are_judged_by_their_length(run: Run) -> None:
    rng = np.random.default_rng(0)
    for length in (run.tokens // 2, run.tokens // 2 + 9, run.tokens - 1):
        assert run.judge(run.tokenizer.encode_batch([" the" * length])[0], length) == "loop"
        assert run.judge(rng.integers(1, run.tokenizer.vocab, length)) in ("noise", "salad")
        for arm in SIZES:
            held_out = windows(run.rows.tokens(arm, "heldout"), length, 60)
            assert share([run.judge(ids) for ids in held_out], "") >= 0.7, (arm, length)
    for text in ("", "a", "the the the", "x" * 10):
        assert run.judge(run.tokenizer.encode_batch([text])[0]) == ""


def test_the_reference_is_made_once_and_anew_for_anything_else(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = run.dir / "data" / "reference.json"
    first, inode = path.read_bytes(), path.stat().st_ino
    for arm in msgspec.json.decode(first, type=Reference).arms.values():
        assert sorted(arm.lengths, reverse=True) == ladder(run.tokens)
        for length, envelope in arm.lengths.items():
            assert 0 < envelope.windows <= (WINDOWS if length == run.tokens else SHORTER_WINDOWS)
            assert tuple(envelope.measures) == MEASURES
            for q in envelope.measures.values():
                assert q.p01 <= q.p05 <= q.p50 <= q.p95 <= q.p99

    monkeypatch.setattr(reference_module, "_envelope", lambda *args: pytest.fail("measured again"))
    assert run.open().reference == run.scorer.reference
    assert path.stat().st_ino == inode

    measured: list[str] = []

    def fake(texts: list[object], t: object, w: object, c: object, what: str, tick: object) -> Envelope:
        measured.append(what)
        q = Quantiles(p01=0, p05=0, p50=0, p95=0, p99=0)
        return Envelope(windows=len(texts), measures=dict.fromkeys(MEASURES, q))

    monkeypatch.setattr(reference_module, "_envelope", fake)
    run.open(tokens=40)
    assert measured == [f"measuring held-out {arm}, {n} tokens" for arm in SIZES for n in (40, 20)]
    for damage in (b"", b"{}", first[:-9], first.replace(b'"version": 2', b'"version": 8')):
        measured.clear()
        path.write_bytes(damage)
        run.open()
        assert len(measured) == len(SIZES) * len(ladder(run.tokens))
    measured.clear()
    path.write_bytes(first)
    changed = run.manifest.arms["repo-docs"]
    changed = msgspec.structs.replace(changed, heldout=msgspec.structs.replace(changed.heldout, sha256="0"))
    m = msgspec.structs.replace(run.manifest, arms=run.manifest.arms | {"repo-docs": changed})
    Scorer(run.dir, m, run.tokenizer, list(SIZES), run.tokens, no_tick)
    assert {what.split(",")[0] for what in measured} == {"measuring held-out repo-docs"}
    measured.clear()
    Scorer(
        run.dir, run.manifest, run.tokenizer, ["repo-docs"], run.tokens, no_tick
    )  # the other's text is not seen now
    assert {what.split(",")[0] for what in measured} == {"measuring held-out repo-docs"}
    path.write_bytes(first)


def test_stopping(run: Run) -> None:
    path = run.dir / "data" / "reference.json"
    first = path.read_bytes()
    path.unlink()

    def stop(what: str, fraction: float) -> None:
        assert what.startswith("measuring held-out repo-docstrings, ")
        raise StopRequested(what)

    with pytest.raises(StopRequested):
        run.open(tick=stop)
    assert not path.exists()
    path.write_bytes(first)


# ---- without a run ----


def test_windows_lie_within_pieces_as_long_as_there_are_enough() -> None:
    rng = random.Random(2)
    pieces = [[rng.randint(1, 99)] * rng.randint(1, 60) for _ in range(400)]
    tokens = np.array([x for piece in pieces for x in [*piece, 0]], np.uint16)
    found = windows(tokens, 20, 50)
    assert len(found) == 50 and all(len(w) == 20 and len(set(w.tolist())) == 1 and w[0] for w in found)
    assert len(windows(tokens, 20, 10_000)) > 400
    few = windows(tokens[:200], 50, 50)
    assert few and all(len(w) == 50 and (w != 0).all() for w in few)
    assert windows(tokens[:200], 500, 50) == [] == windows(np.zeros(9, np.uint16), 5, 50)


def test_the_ladder() -> None:
    assert ladder(128) == [128, 64, 32, 16]
    assert ladder(420) == [420, 210, 105, 52, 26]
    assert ladder(16) == [16] and ladder(15) == ladder(1) == []


def synthetic(**arms: dict[int, dict[str, Quantiles]]) -> Reference:
    """Per arm and length, the quantiles that are not 0.2 to 0.8."""
    plain = dict.fromkeys(MEASURES, Quantiles(p01=0.2, p05=0.3, p50=0.5, p95=0.7, p99=0.8))
    references = {}
    for arm, lengths in arms.items():
        envelopes = {n: Envelope(windows=50, measures=plain | other) for n, other in lengths.items()}
        references[arm] = ArmReference(key="", lengths=envelopes)
    return Reference(version=1, tokens=100, arms=references)


NORMAL = Measures(tokens=100, coherence=0.5, seq_rep_4=0.5, zlib=0.5, loop=0, known=0.5, unseen=0.5, novel=0.5, copy=0,
                  copy_arm="")  # fmt: skip


def changed(**values: float) -> Measures:
    return msgspec.structs.replace(NORMAL, **values)


VERDICTS: list[tuple[dict[str, float], str]] = [
    ({}, ""),
    ({"seq_rep_4": 0.9}, ""),
    ({"zlib": 0.1}, ""),
    ({"loop": 90}, ""),
    ({"seq_rep_4": 0.9, "zlib": 0.1}, "loop"),
    ({"seq_rep_4": 0.9, "loop": 90}, "loop"),
    ({"zlib": 0.1, "loop": 90}, "loop"),
    ({"copy": 49}, ""),
    ({"copy": 50}, "copy"),
    ({"copy": 90, "zlib": 0.1, "loop": 90}, "loop"),
    ({"known": 0.1}, ""),
    ({"known": 0.1, "unseen": 0.75}, "noise"),
    ({"unseen": 0.75}, ""),
    ({"unseen": 0.85}, "salad"),
    ({"novel": 0.85}, "salad"),
    ({"novel": 0.8, "unseen": 0.8}, ""),
]


@pytest.mark.parametrize(("values", "expected"), VERDICTS)
def test_each_verdict_needs_what_it_says(values: dict[str, float], expected: str) -> None:
    assert verdict(changed(**values), synthetic(a={100: {}})) == expected


def test_a_text_is_odd_only_where_it_is_odd_for_every_arm_and_length() -> None:
    wide = dict.fromkeys(("seq_rep_4", "novel"), Quantiles(p01=0, p05=0, p50=0.5, p95=0.93, p99=0.95))
    assert verdict(changed(novel=0.9), synthetic(a={100: {}}, b={100: {}})) == "salad"
    assert verdict(changed(novel=0.9), synthetic(a={100: {}}, b={100: wide})) == ""
    between = synthetic(a={50: wide, 100: {}})
    assert verdict(changed(novel=0.9), between) == "salad"
    assert verdict(changed(novel=0.9, tokens=99), between) == ""
    assert [len(near(n, between)) for n in (49, 50, 51, 99, 100, 101)] == [0, 1, 2, 2, 1, 1]


def test_an_arm_whose_own_held_out_text_is_copied_can_not_judge_copies() -> None:
    copied = {"copy": Quantiles(p01=0, p05=0, p50=90, p95=100, p99=100)}
    assert verdict(changed(copy=80), synthetic(a={100: {}}, b={100: copied})) == "copy"
    assert verdict(changed(copy=100), synthetic(b={100: copied})) == ""


def test_too_little_held_out_text_says_nothing() -> None:
    r = synthetic(a={100: {}})
    few = Envelope(windows=FEW - 1, measures=r.arms["a"].lengths[100].measures)
    small = msgspec.structs.replace(r, arms={"a": ArmReference(key="", lengths={100: few})})
    assert verdict(changed(novel=0.9), small) == ""
    assert verdict(changed(novel=0.9), msgspec.structs.replace(r, arms={})) == ""
