"""The canonical history against the rule said in the plainest way, over random crashes, resumes and rollbacks."""

import random
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.rundir.history import History, canonical_samples, read_history
from engine.rundir.lines import LineDecoder
from engine.rundir.records import MAX_LINE, LossLine, SampleLine, encode, f32


def line(step: int, seg: int = 1, loss: float | None = 1.0, **more: object) -> LossLine:
    arm = f"arm{step % 3}"
    return LossLine(
        step=step, loss=loss, seg=seg, lr=1e-3, gnorm=0.5, rows={arm: 2}, rloss={arm: loss}, t=float(seg), **more,  # type: ignore[arg-type]
    )  # fmt: skip


def plain_rule(lines: list[LossLine]) -> list[LossLine]:
    """A line of step s supersedes every earlier line with step >= s."""
    out: list[LossLine] = []
    for x in lines:
        out = [y for y in out if y.step < x.step] + [x]
    return out


def random_run(rng: random.Random) -> tuple[list[LossLine], list[LossLine]]:
    """(the file's lines, the truth): crashes that the log outran, divergent resumes, rollbacks."""
    log: list[LossLine] = []
    truth: list[LossLine] = []
    for seg in range(1, rng.randint(2, 7)):
        resume_at = rng.randint(0, len(truth))
        if (
            truth and resume_at and rng.random() < 0.3
        ):  # rollback: a copy of the line of that step is the commit
            copy = truth[resume_at - 1]
            truth = [*truth[: resume_at - 1], line(copy.step, seg, copy.loss)]
            log.append(truth[-1])
        same = rng.random() < 0.5
        at = resume_at
        for step in range(resume_at + 1, resume_at + rng.randint(1, 12)):
            if same and step <= len(truth):
                at = step  # replayed and identical: nothing is appended
                continue
            new = line(step, seg, f32(rng.random()))
            log.append(new)
            truth = [*truth[: step - 1], new]
            at = step
        assert at <= len(truth)
    return log, truth


def test_two_thousand_random_histories_read_as_the_truth() -> None:
    rng = random.Random(0)
    last_line_wins_was_wrong = 0
    for _ in range(2000):
        log, truth = random_run(rng)
        h = History()
        i = 0
        while i < len(log):  # in pieces of any size
            n = rng.randint(1, 9)
            h.extend(log[i : i + n])
            i += n
        assert [h.line(i) for i in range(len(h))] == truth == plain_rule(log)
        assert h.missing == 0
        # Control: the rule that suggests itself, "the last line of a step wins", fails on such histories.
        last = {x.step: x for x in log}
        last_line_wins_was_wrong += [last[s] for s in sorted(last)] != truth
    assert last_line_wins_was_wrong > 200


@settings(max_examples=300, deadline=None)
@given(st.lists(st.integers(1, 12), max_size=40), st.lists(st.integers(1, 7), max_size=40))
def test_any_order_of_steps_and_any_pieces(steps: list[int], cuts: list[int]) -> None:
    lines = [line(s, i) for i, s in enumerate(steps)]
    h, rest = History(), list(lines)
    for n in [*cuts, len(lines)]:
        before = [h.line(i) for i in range(len(h))]
        changed = h.extend(rest[:n])
        rest = rest[n:]
        assert [h.line(i) for i in range(changed)] == before[:changed]
    assert [h.line(i) for i in range(len(h))] == plain_rule(lines)


def test_sparse_fields_go_with_their_line() -> None:
    h = History()
    h.extend([line(1), line(2, bpb={"a": 2.5}, scale=8.0), line(3, loss=None, skipped="nonfinite")])
    assert h.bpb == [(2, {"a": 2.5})]
    assert h.skipped == {3: "nonfinite"}
    assert h.line(1).scale == 8.0
    assert np.isnan(h.loss[2])
    h.extend([line(2, seg=2)])
    assert (h.bpb, h.skipped, h.last) == ([], {}, 2)


@given(st.floats(width=32))
def test_float32_comes_back_bit_for_bit(x: float) -> None:
    short = f32(x)
    if short is None:
        assert not np.isfinite(x)
        return
    text = encode(line(1, loss=short))
    back = LineDecoder(LossLine).feed(text)[0].loss
    assert back is not None
    assert np.float32(back).tobytes() == np.float32(x).tobytes()


GARBAGE = [
    b'{"step":3,"loss":1', b"\0" * 300, b"not json", b"[]", b'{"step":"x","loss":1}', b'{"loss":1}', b"[" * 5000,
    b'{"step":3,"loss":NaN}', b'{"step":3,"loss":1e999}', b'{"step":true,"loss":1}', b'{"step":-1,"loss":1}',
    b'{"step":' + b"9" * 5000 + b',"loss":1}', b"\xff\xfe", b'{"step":0,"loss":1}', b"x" * (MAX_LINE + 10),
]  # fmt: skip


@pytest.mark.parametrize("bad", GARBAGE, ids=range(len(GARBAGE)))
def test_damaged_lines_are_skipped_and_counted(bad: bytes, tmp_path: Path) -> None:
    path = tmp_path / ".loss.json"
    path.write_bytes(encode(line(1)) + bad + b"\n" + encode(line(2)))
    h, count = read_history(path)
    assert ([int(x) for x in h.step], count) == ([1, 2], 1)


def test_an_unfinished_last_line_waits_for_its_rest() -> None:
    whole = encode(line(1)) + encode(line(2))
    for cut in range(len(whole)):
        d = LineDecoder(LossLine)
        got = d.feed(whole[:cut]) + d.feed(whole[cut:])
        assert ([x.step for x in got], d.bad) == ([1, 2], 0)


def test_a_line_separator_of_unicode_does_not_end_a_line() -> None:
    x = SampleLine(
        step=1, phase=0, prompt="a\u2028b", mode="greedy", text="\u2029\x85", tokens=1, t=0.0, seg=1
    )
    assert LineDecoder(SampleLine).feed(encode(x)) == [x]


def test_a_giant_line_in_pieces_takes_no_memory_and_ends_at_its_newline() -> None:
    d = LineDecoder(LossLine)
    for _ in range(50):
        assert d.feed(b"x" * 100_000) == []
        assert len(d._rest) <= MAX_LINE
    assert [x.step for x in d.feed(b"tail\n" + encode(line(7)))] == [7]
    assert d.bad == 1


def test_samples_follow_the_same_rule() -> None:
    def s(step: int, mode: str, text: str) -> SampleLine:
        return SampleLine(step=step, phase=0, prompt="p", mode=mode, text=text, tokens=1, t=0.0, seg=1)

    first = canonical_samples([], [s(100, "greedy", "a"), s(100, "sampled", "b"), s(200, "greedy", "c")])
    assert [x.text for x in first] == ["a", "b", "c"]
    again = canonical_samples(first, [s(100, "greedy", "d")])
    assert [x.text for x in again] == ["b", "d"]


def test_a_fifo_under_the_name_never_blocks(tmp_path: Path) -> None:
    import os

    os.mkfifo(tmp_path / ".loss.json")
    with pytest.raises(OSError, match="not a regular file"):
        read_history(tmp_path / ".loss.json")
