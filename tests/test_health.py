"""Health: each finding on a history where it must appear and on some where it must not; a long healthy run."""

import math
import re
import sys
import types
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from andrea_tui.core.baseline import BLOCK, LEVEL_BLOCKS, LEVEL_ROWS, Levels, last_pulls, usual
from andrea_tui.core.curves import divergence, drift, plateau
from andrea_tui.core.finding import Finding
from andrea_tui.core.health import Health, clip_rate, collapsed, gpu, skipped, starved
from andrea_tui.core.resources import Gpu, Probe, Resources
from andrea_tui.core.spikes import RECENT, spikes
from engine.collapse import audits, collapse
from engine.config import Arm, Config, OptimConfig, Policy, TrainConfig
from engine.rundir.history import History
from engine.rundir.records import LossLine, SampleLine

LR = OptimConfig(lr=1e-3, min_lr=1e-4, warmup_steps=200)


def made(lines: Iterable[LossLine]) -> History:
    h = History()
    h.extend(list(lines))
    return h


def line(step: int, rloss: dict[str, float], rows: dict[str, int] | None = None, **more: Any) -> LossLine:
    rows = rows or dict.fromkeys(rloss, 1)
    loss = sum(rloss[a] * rows[a] for a in rloss) / max(1, sum(rows.values()))
    values: dict[str, Any] = dict(
        step=step, loss=loss, rows=rows, rloss=rloss, t=1e9 + step, seg=1, gnorm=0.5
    )
    return LossLine(**(values | more))


def steady(
    n: int,
    level: Callable[[int], float] | float = 3.0,
    noise: float = 0.05,
    first: int = 1,
    seed: int = 0,
    **more: Any,
) -> list[LossLine]:
    """One arm, chat, one row a step."""
    rng = np.random.default_rng(seed)
    x = rng.normal(0, noise, n)
    at = level if callable(level) else (lambda _: level)
    return [line(first + i, {"chat": at(first + i) + float(x[i])}, **more) for i in range(n)]


def put(lines: Sequence[LossLine], step: int, value: float | None, arm: str = "chat") -> list[LossLine]:
    """The same with another row loss of one arm in one step."""
    out = list(lines)
    i = next(i for i, x in enumerate(out) if x.step == step)
    out[i] = replace(out[i], rloss=out[i].rloss | {arm: value})
    return out


def seen(h: History, what: Callable[[History, Levels], list[Finding]]) -> list[Finding]:
    levels = Levels()
    levels.follow(h)
    return what(h, levels)


def flat(h: History, config: Config | None = None) -> list[Finding]:
    return seen(h, lambda h, levels: plateau(h, levels, config))


# ---- spikes


def test_a_spike_is_told_with_what_is_usual() -> None:
    (f,) = spikes(made(put(steady(300), 290, 5.21)))
    assert (f.kind, f.tone, f.step) == ("spike", "warn", 290)
    assert f.text.startswith("spike: chat 5.21 at step 290 (usual ")
    assert f.text.endswith("± 0.05)")


def test_a_spike_is_told_for_a_while() -> None:
    lines = put(steady(500), 250, 5.0)
    assert spikes(made(lines[: 249 + RECENT]))
    assert not spikes(made(lines[: 250 + RECENT]))


def test_outliers_do_not_hide_the_next_one() -> None:
    lines = steady(400)
    for step in range(220, 400, 20):  # llm.c#711: in the window they would make σ 0.9
        lines = put(lines, step, 3 + step / 50)
    assert not spikes(made(lines[:219]))
    for step in range(220, 400, 20):
        assert spikes(made(lines[:step]))[0].step == step


@pytest.mark.parametrize(
    "lines",
    [
        steady(300, noise=0.4),
        steady(3000, noise=0.4)[2500:],
        steady(300, lambda t: 9 - 6 * min(1.0, t / 250)),  # warm-up
        steady(300, lambda t: 3 - 0.5 * (t > 250)),  # the learning rate falls, and so does the loss
        steady(300, lambda t: 3 + 0.1 * (t > 250)),
        put(steady(300), 290, 0.5),  # a drop is none
        put(steady(30), 29, 9.0),  # nothing is usual yet
        put(steady(300, 0.0, noise=0.0), 290, 0.05),  # σ is 0.01 at least
        put(steady(300), 290, None),
        put(steady(300), 290, math.nan),
        [*steady(200), *steady(40, first=201, seg=2)],  # a resume
        [*steady(200), *steady(31, 8.0, first=201, phase=1)],  # after a pivot the name may stand for other text
    ],
)  # fmt: skip
def test_no_spike(lines: list[LossLine]) -> None:
    h = made(lines)
    for n in range(0, len(h), 7):
        assert not spikes(made(lines[:n]))
    assert not spikes(h)


def test_a_rare_arm_with_a_higher_loss_is_no_spike_but_its_own_spike_is() -> None:
    rng = np.random.default_rng(1)
    lines = [
        line(i, {"rare": 6 + rng.normal(0, 0.1)} if i % 50 == 0 else {"chat": 3 + rng.normal(0, 0.1)})
        for i in range(1, 4001)
    ]
    for n in range(50, 4001, 50):
        assert not spikes(made(lines[:n]))
    (f,) = spikes(made(put(lines, 4000, 8.0, "rare")))
    assert "rare 8.00 at step 4,000 (usual " in f.text


def test_fewer_rows_a_step_mean_more_noise_and_no_spikes() -> None:
    rng = np.random.default_rng(2)
    rows = [16] * 500 + [1] * 500 + [16] * 500  # as a bandit or a pivot changes them
    lines = [
        line(i, {"chat": 3 + rng.normal(0, 0.5 / math.sqrt(n))}, {"chat": n}) for i, n in enumerate(rows, 1)
    ]
    for n in range(0, 1500, 10):
        assert not spikes(made(lines[:n]))
    assert spikes(made(put(lines, 1490, 4.5)))


def test_a_new_level_is_a_spike_once_and_then_usual() -> None:
    lines = [*steady(300), *steady(400, 4.0, first=301)]
    assert spikes(made(lines[:310]))
    assert not spikes(made(lines))


def test_many_arms_make_one_line_and_foreign_names_are_cleaned() -> None:
    evil = "\x1b[2Jarm"
    lines = [line(i, {["a", "b", evil][i % 3]: 3.0}) for i in range(1, 300)]
    for step, arm, value in ((297, "a", 4.0), (298, "b", 4.0), (299, evil, 5.0)):
        lines = put(lines, step, value, arm)
    (f,) = spikes(made(lines))
    assert f.text.endswith("and 2 other arms")
    assert "\x1b" not in f.text
    assert "arm 5.00" in f.text


def noisy_arms(n: int, jump: float = 0.0, common: float = 0.0, rows: int = 1) -> list[LossLine]:
    """Six arms in every step; `jump` for all of them in step 480, `common` noise that they share."""
    rng = np.random.default_rng(11)
    out = []
    for i in range(1, n + 1):
        both = rng.normal(0, common) + jump * (i == 480)
        rloss = {f"arm-{k}": 2 + k / 4 + both + rng.normal(0, 0.6 / math.sqrt(rows)) for k in range(6)}
        out.append(line(i, rloss, dict.fromkeys(rloss, rows)))
    return out


def test_a_model_that_jumps_shows_in_the_step_though_no_arm_is_far_out() -> None:
    (f,) = spikes(made(noisy_arms(500, jump=2.0)))
    assert (f.tone, f.step) == ("warn", 480)
    assert f.text.startswith("spike: loss 4.")
    assert f.text.endswith("for its arms)")


def test_noise_that_the_arms_share_is_no_spike() -> None:
    for lines in (noisy_arms(2000), noisy_arms(2000, common=0.2, rows=100)):
        for n in range(0, 2001, 100):
            assert not spikes(made(lines[:n]))


def test_a_single_odd_text_is_for_information() -> None:
    lines = steady(400, noise=0.1)
    odd = [put(lines, 390, 3.9), put(lines, 390, 6.0)]
    odd.append([replace(x, rows={"chat": 4}) for x in odd[0]])
    odd.append(put(put(odd[0], 370, 3.9), 350, 3.9))
    assert [spikes(made(x))[0].tone for x in odd] == ["dim", "warn", "warn", "warn"]


def test_usual_leaves_out_a_tenth_at_most() -> None:
    rng = np.random.default_rng(3)
    x, ones = rng.normal(3, 0.1, 128), np.ones(128)
    x[:12] = 9.0
    assert usual(x, ones).sigma(1) < 0.15
    x[:40] = 9.0  # that is how the arm is
    assert usual(x, ones).sigma(1) > 1
    assert usual(np.full(40, 3.0), np.ones(40)).sigma(1) == 0.01


def test_the_last_pulls_of_a_rare_arm_are_found_however_far_back() -> None:
    h = made([line(i, {"rare" if i % 100 == 0 else "chat": float(i)}) for i in range(1, 5001)])
    p = last_pulls(h, "rare", 30)
    assert h.step[p.index].tolist() == list(range(2100, 5001, 100))
    assert p.loss.max() == 1000  # a ceiling, so that nothing drowns a sum
    assert len(last_pulls(h, "rare", 300).index) == 50
    assert h.step[last_pulls(h, "rare", 300, 4500).index].tolist() == [4600, 4700, 4800, 4900, 5000]


# ---- drift


def test_an_arm_that_slowly_rises_drifts() -> None:
    lines = steady(6000, lambda t: 3 + max(0, t - 3000) * 2e-4, noise=0.3)
    assert not seen(made(lines[:3000]), drift)
    (f,) = seen(made(lines), drift)
    assert (f.kind, f.tone) == ("drift", "warn")
    assert re.fullmatch(r"drift: chat 3\.5\d \(best 2\.9\d at step [1-4],\d+\)", f.text)
    assert f.step == 5952


def test_an_arm_that_is_drawn_less_may_forget() -> None:
    rng = np.random.default_rng(4)

    def step(i: int) -> LossLine:
        rare = i > 4000
        chat = 1 if rare else 4
        rise = max(0, i - 4000) * 1e-4
        return line(
            i, {"chat": 3 + rise + rng.normal(0, 0.3 / math.sqrt(chat)), "docs": 2 + rng.normal(0, 0.1)},
            {"chat": chat, "docs": 8 - chat},
        )  # fmt: skip

    (f,) = seen(made(step(i) for i in range(1, 9001)), drift)
    assert f.tone == "dim"
    assert "drawn less, 50.0% then, 12.5% now" in f.text


@pytest.mark.parametrize(
    "lines",
    [
        steady(6000, noise=0.6),
        steady(6000, lambda t: 9 - 6 * min(1.0, t / 3000), noise=0.3),
        steady(6000, lambda t: 3 + 0.05 * math.sin(t / 500), noise=0.3),
        steady(400, lambda t: 3 + t * 2e-3, noise=0.3),  # too short to tell
        [*steady(3000, noise=0.3), *steady(3000, 4.0, noise=0.3, first=3001, phase=1)],  # a pivot: other text
        [*steady(3000), *steady(30, 7.0, first=3001), *steady(300, first=3031)],  # a spike that passes
        put(steady(3000), 2990, 1e30),
    ],
)
def test_no_drift(lines: list[LossLine]) -> None:
    for n in range(0, len(lines) + 1, 300):
        assert not seen(made(lines[:n]), drift)


def test_arms_that_drift_alike_make_one_line() -> None:
    def step(i: int) -> LossLine:
        rise = max(0, i - 3000) * 1e-4
        return line(i, {a: 3 + rise for a in "abcd"} | {"e": 2.0})

    (f,) = seen(made(step(i) for i in range(1, 6001)), drift)
    assert f.text.endswith("and 3 other arms")


# ---- divergence


def test_a_rising_loss_diverges_and_gets_worse() -> None:
    lines = steady(4000, lambda t: 3 + max(0, t - 2000) * 5e-4, noise=0.2)
    found = [(n, f) for n in range(0, 4001, 100) for f in seen(made(lines[:n]), divergence)]
    assert all(n > 2300 for n, _ in found)
    assert [f.tone for _, f in found][:1] == ["warn"]
    assert [f.tone for _, f in found][-1] == "bad"
    text = found[-1][1].text
    assert re.fullmatch(r"diverging: loss 0\.\d+ above its best, 2\.9\d at step [12],\d+ \(same mix\)", text)
    assert found[-1][1].step == 3968


def test_an_explosion_is_told_within_200_steps() -> None:
    lines = [*steady(2000), *steady(200, 8.0, first=2001)]
    assert seen(made(lines), divergence)[0].tone == "bad"


def mix_change(rise: float = 0.0) -> list[LossLine]:
    """2,000 steps mostly easy text, a pivot, 1,000 steps mostly hard text: the EMA goes up by two nats."""
    rng = np.random.default_rng(5)
    out = []
    for i in range(1, 3001):
        later = i > 2000
        up = rise if later else 0.0
        rloss = {"easy": 2 + up + rng.normal(0, 0.1), "hard": 5 + up + rng.normal(0, 0.2)}
        if later:
            rloss["new"] = 7 + rng.normal(0, 0.2)
        rows = {"easy": 2, "hard": 4, "new": 2} if later else {"easy": 7, "hard": 1}
        out.append(line(i, rloss, {a: rows[a] for a in rloss}, phase=int(later)))
    return out


def test_another_mix_is_no_divergence_but_a_worse_model_is() -> None:
    lines = mix_change()
    assert np.mean([x.loss or 0 for x in lines[2500:]]) > 2 + np.mean([x.loss or 0 for x in lines[1500:2000]])
    for n in range(100, 3001, 50):
        assert not seen(made(lines[:n]), divergence)
    worse = mix_change(0.8)
    assert not seen(made(worse[:2127]), divergence)  # silent after a pivot
    assert seen(made(worse[:2400]), divergence)[0].tone == "bad"


@pytest.mark.parametrize(
    "lines",
    [
        steady(4000, noise=0.8),
        steady(3000, lambda t: 9 - 6 * min(1.0, t / 2000), noise=0.3),
        steady(3000, lambda t: 3 + 0.08 * math.sin(t / 300), noise=0.3),
        steady(100, lambda t: 3 + t / 20),  # too short to tell
        [*steady(2000), *steady(60, 7.0, first=2001), *steady(400, first=2061)],  # a spike that passes
        [*steady(1200), *steady(800, first=1101, seg=2)],  # a resume from a step before
        put(steady(3000), 2990, 1e30),
    ],
)
def test_no_divergence(lines: list[LossLine]) -> None:
    for n in range(0, len(lines) + 1, 50):
        assert not seen(made(lines[:n]), divergence)


def test_a_divergence_that_began_before_a_pivot_is_not_told_for_128_steps() -> None:
    lines = [*steady(1600), *steady(400, 4.0, first=1601), *steady(400, 4.0, first=2001, phase=1)]
    assert seen(made(lines[:2000]), divergence)
    assert not seen(made(lines[:2127]), divergence)
    assert seen(made(lines[:2200]), divergence)


@pytest.mark.parametrize("seed", range(4))
def test_much_noise_and_few_rows_are_neither_drift_nor_divergence(seed: int) -> None:
    lines = steady(12_000, noise=1.5, seed=seed)
    h, levels = History(), Levels()
    for i in range(0, len(lines), BLOCK):
        h.extend(lines[i : i + BLOCK])
        levels.follow(h)
        assert not drift(h, levels) + divergence(h, levels)


# ---- plateau


def test_a_plateau_is_told_for_information() -> None:
    lines = steady(12_000, lambda t: 3 + 4 * math.exp(-t / 1000), noise=0.1)
    (f,) = flat(made(lines))
    assert (f.tone, f.step) == ("dim", 11_968)
    assert f.text == "plateau: no progress in 3,008 steps (same mix)"
    config = Config(train=TrainConfig(max_steps=14_000))
    assert not flat(made(lines), config)  # the last stretch
    assert flat(made(lines), Config(train=TrainConfig(max_steps=40_000)))


@pytest.mark.parametrize(
    "lines",
    [
        steady(20_000, lambda t: 2 + 6 * t**-0.3, noise=0.2),
        steady(20_000, lambda t: 3 - t * 1e-5, noise=0.2),
        *[
            steady(12_000, lambda t: 3 - t * 5e-6, noise=1.5, seed=seed) for seed in range(6)
        ],  # too noisy to tell
        steady(3000),  # too short to tell
        steady(12_000, lambda t: 3 + t * 5e-5),  # worse: said by others
        [*steady(12_000, lambda t: 3 + 4 * math.exp(-t / 1000)), *steady(5000, first=12_001, phase=1)],
    ],
)
def test_no_plateau(lines: list[LossLine]) -> None:
    assert not flat(made(lines))


def test_a_mix_that_gets_harder_hides_no_progress() -> None:
    rng = np.random.default_rng(6)
    out = []
    for i in range(1, 12_001):
        n = 1 + i * 6 // 12_001
        gain = 1.0 * i**-0.2
        rloss = {"easy": 2 + gain + rng.normal(0, 0.1), "hard": 5 + gain + rng.normal(0, 0.1)}
        out.append(line(i, rloss, {"easy": 8 - n, "hard": n}))
    assert not flat(made(out))


# ---- skipped steps, clip rate


def lost(lines: list[LossLine], *steps: int, **more: Any) -> list[LossLine]:
    gone: dict[str, Any] = dict(loss=None, gnorm=None, skipped="nonfinite") | more
    return [replace(x, **gone) if x.step in steps else x for x in lines]


def test_skipped_steps_are_counted() -> None:
    lines = steady(1600)
    assert not skipped(made(lines))
    assert not skipped(History())
    (f,) = skipped(made(lost(lines, 500, 1000, 1100)))
    assert (f.text, f.tone, f.step) == ("3 steps skipped (not finite), the last at 1,100", "warn", 1100)
    assert skipped(made(lost(lines, 500)))[0].tone == "dim"
    assert skipped(made(lost(lines, 500)))[0].text == "1 step skipped (not finite), 500"
    assert skipped(made(lost(lines, 1599, 1600)))[0].tone == "bad"


def test_a_finite_loss_with_an_infinite_gradient_is_skipped_and_an_unknown_gradient_is_not() -> None:
    lines = steady(100)
    assert skipped(made(lost(lines, 50, loss=3.0)))[0].step == 50
    assert not skipped(made(replace(x, gnorm=None) for x in lines))


def norms(*parts: tuple[int, float]) -> History:
    """For so many steps, norms about this value."""
    rng = np.random.default_rng(7)
    norm = np.concatenate([rng.normal(about, 0.1, n) for n, about in parts])
    return made(line(i, {"chat": 3.0}, gnorm=float(x)) for i, x in enumerate(norm, 1))


def test_gradients_that_grow_are_a_warning_and_steady_clipping_is_for_information() -> None:
    (f,) = clip_rate(norms((5000, 0.7), (600, 1.6)), LR, 10_000)
    assert (f.kind, f.tone) == ("clip", "warn")
    assert f.text == "clipped: 100% of the last 500 steps (norm above 1), norm 1.60, 0.70 before"
    (f,) = clip_rate(norms((5600, 1.5)), LR, 10_000)
    assert f.tone == "dim"
    assert f.text == "clipped: 100% of the last 500 steps (norm above 1)"
    slow = norms(*[(1000, 0.6 + k / 10) for k in range(8)])  # as in a healthy run
    assert [f.tone for f in clip_rate(slow, LR, 10_000)] == ["dim"]


@pytest.mark.parametrize(
    "h",
    [
        History(),
        norms((1, 3.0)),
        norms((1400, 3.0)),  # the first tenth and 400 steps
        norms((1000, 3.0), (4000, 0.8)),
        norms((5000, 1.0)),  # every other one, as ever
        norms((5000, 0.3), (600, 0.9)),  # grows, but is not clipped
        made(replace(x, gnorm=None) for x in steady(5000)),
    ],
)
def test_clipping_that_is_normal(h: History) -> None:
    assert not clip_rate(h, LR, 10_000)


# ---- starved


def policy(floor: float = 0.05, **more: Any) -> Policy:
    arms = {"chat": Arm(path="c"), "docs": Arm(path="d", floor=floor), "new": Arm(path="n")}
    return Policy(arms=arms, **more)


def hungry(n: int, since: int, phase: int = 0, first: int = 1) -> list[LossLine]:
    """docs gets a row in every tenth step until `since`; two rows a step."""
    out = []
    for i in range(first, first + n):
        docs = i % 10 == 0 and i <= since
        rloss = {"chat": 3.0} | ({"docs": 3.0} if docs else {})
        out.append(line(i, rloss, {"chat": 2 - docs} | ({"docs": 1} if docs else {}), phase=phase))
    return out


def test_an_arm_below_its_floor_is_a_bug() -> None:
    assert not starved(made(hungry(1000, 1000)), policy(), None)
    assert not starved(made(hungry(1049, 1000)), policy(), None)  # 98 rows since
    (f,) = starved(made(hungry(1050, 1000)), policy(), None)
    assert (f.tone, f.step) == ("bad", 1050)
    assert f.text == "starved: docs got none of the last 100 rows, its floor is 0.05: a bug"
    never = {"chat": Arm(path="c"), "never": Arm(path="n", floor=0.1)}
    assert "never got none" in starved(made(hungry(100, 0)), Policy(arms=never), None)[0].text


def test_a_closed_arm_does_not_starve() -> None:
    h = made(hungry(1100, 0))
    assert starved(h, policy(), None)
    assert not starved(h, policy(floor=0.0), None)
    assert not starved(h, policy(floor=0.002), None)  # 2,500 rows are due first
    assert not starved(h, policy(max_epochs=3), ["docs"])
    assert not starved(h, policy(max_epochs=3), None)  # not known
    assert starved(h, policy(max_epochs=3), [])
    assert not starved(h, policy(warmup_steps=1060, warmup_arms=["chat"]), None)
    assert starved(h, policy(warmup_steps=1050, warmup_arms=["chat"]), None)
    assert starved(h, policy(warmup_steps=2000, warmup_arms=["chat", "docs"]), None)
    pivot = [*hungry(1000, 0), *hungry(49, 0, phase=1, first=1001)]
    assert not starved(made(pivot), policy(), None)
    assert not starved(History(), policy(), None)


def test_a_policy_of_another_phase_accuses_nobody() -> None:
    h = made(hungry(1100, 0))
    assert Health().find(h, policy=policy(), policy_phase=0)
    assert not Health().find(h, policy=policy(), policy_phase=1)


# ---- GPU


def card(temperature: int | None = 60, slowdown: int | None = None, throttled: str | None = "") -> Resources:
    return Resources(gpus=(Gpu("H200", 0.9, 1, 2, temperature, 600.0, slowdown, throttled),))


def test_a_hot_or_throttled_gpu_is_told() -> None:
    (f,) = gpu(card(91, throttled="thermal"))
    assert (f.text, f.tone) == ("gpu 91 °C, throttled (thermal)", "bad")
    assert gpu(card(84, slowdown=87))[0].text == "gpu 84 °C"
    assert gpu(card(None, throttled="power brake"))[0].text == "gpu throttled (power brake)"
    two = Resources(gpus=(*card().gpus, *card(95).gpus))
    assert gpu(two)[0].text == "gpu 1 95 °C"


@pytest.mark.parametrize(
    "r", [None, Resources(), card(), card(89, throttled=None), card(91, slowdown=97), card(None)]
)
def test_a_gpu_that_is_well(r: Resources | None) -> None:
    assert not gpu(r)


class NVMLError(Exception):
    pass


def nvml(bits: int | None, name: str = "Throttle", threshold: int | None = 92) -> types.ModuleType:
    m = types.ModuleType("pynvml")

    def or_not(value: Any) -> Callable[..., Any]:
        def call(*_: Any) -> Any:
            if value is None:
                raise NVMLError("Not Supported")
            return value

        return call

    calls = {
        "nvmlInit": None, "nvmlDeviceGetCount": 1, "nvmlDeviceGetHandleByIndex": "h", "nvmlDeviceGetName": b"H200",
        "nvmlDeviceGetMemoryInfo": None, "nvmlDeviceGetUtilizationRates": None, "nvmlDeviceGetPowerUsage": None,
        "nvmlDeviceGetTemperature": 91, "nvmlDeviceGetTemperatureThreshold": threshold,
        f"nvmlDeviceGetCurrentClocks{name}Reasons": bits,
    }  # fmt: skip
    for call, value in calls.items():
        setattr(m, call, or_not(value))
    for name, thing in (("nvmlInit", lambda: None), ("NVMLError", NVMLError), ("NVML_TEMPERATURE_GPU", 0)):
        setattr(m, name, thing)
    m.NVML_TEMPERATURE_THRESHOLD_SLOWDOWN = 1  # type: ignore[attr-defined]
    return m


@pytest.mark.parametrize(
    ("bits", "why"),
    [
        (0x0, ""), (0x1, ""), (0x4, ""), (0x2 | 0x10, ""), (0x20, "thermal"), (0x40 | 0x8, "thermal"),
        (0x80 | 0x8, "power brake"), (0x8, "hardware slowdown"), (None, None),
    ],
)  # fmt: skip
def test_the_probe_reads_why_the_clocks_are_down(
    bits: int | None, why: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("Throttle", "Event"):
        monkeypatch.setitem(sys.modules, "pynvml", nvml(bits, name))
        (g,) = Probe(tmp_path).look(None).gpus
        assert (g.temperature, g.slowdown, g.throttled) == (91, 92, why)
    monkeypatch.setitem(sys.modules, "pynvml", nvml(0, "Other", None))
    (g,) = Probe(tmp_path).look(None).gpus
    assert (g.slowdown, g.throttled) == (None, None)


# ---- collapse


def text(step: int, prompt: str, mode: str, verdict: str | None) -> SampleLine:
    return SampleLine(
        step=step,
        phase=0,
        prompt=prompt,
        mode=mode,
        text="x",
        tokens=1,
        t=float(step),
        seg=1,
        verdict=verdict,
    )


def audit(step: int, *verdicts: str | None, greedy: str | None = "loop") -> list[SampleLine]:
    out = [text(step, str(i), "sampled", v) for i, v in enumerate(verdicts)]
    return out + [text(step, str(i), "greedy", greedy) for i in range(len(verdicts))]


def test_an_audit_is_low_when_most_sampled_texts_are() -> None:
    samples = [
        *audit(300, "loop", "loop", "", "copy"),  # half is not most
        *audit(100, "", "copy", "copy"),
        *audit(200, "loop", "noise", ""),
        *audit(400, None, None),  # not scored
        *audit(500, "loop", None),
    ]
    assert audits(samples) == [(100, False), (200, True), (300, False), (500, True)]


def test_five_low_audits_after_a_good_one_are_a_collapse() -> None:
    def run(word: str) -> list[tuple[int, bool]]:
        return [(100 * i, c == "x") for i, c in enumerate(word)]

    assert collapse(run(".xxxxx")) == 100
    assert collapse(run("xx..xxxxxxx")) == 400
    assert collapse(run("xxxxx"), good_before=True) == 0
    for word in ("", ".", "x", ".xxxx", "xxxxxxxxx", ".xxxxx.", ".xx.xxx", "....."):
        assert collapse(run(word)) is None


def test_a_collapse_is_told_worst_and_recovers() -> None:
    good = audit(100, "", "", "")
    low = [s for i in range(2, 8) for s in audit(100 * i, "loop", "loop", "")]
    (f,) = collapsed(good + low)
    assert (f.tone, f.step) == ("bad", 700)
    assert f.text == "collapse: 6 audits in a row are noise, since step 200"
    assert not collapsed(low)
    assert not collapsed(good + low + audit(800, "", "loop", "copy"))
    assert not collapsed([])
    h = made(put(steady(300), 290, 5.0))
    assert [f.kind for f in Health().find(h, samples=good + low)] == ["collapse", "spike"]


# ---- a long healthy run, and the same damaged

STEPS, ROWS, CRASH = 20_000, 8, 12_655
SHARES = [0.22, 0.16, 0.12, 0.09, 0.08, 0.07, 0.06, 0.05, 0.04, 0.03, 0.02, 0.02, 0.01, 0.01, 0.01, 0.01]
NAMES = [f"arm-{k}" for k in range(16)]
CONFIG = Config(train=TrainConfig(max_steps=STEPS, rows=ROWS), optim=LR)
POLICY = Policy(
    arms={a: Arm(path=a, floor=s / 2) for a, s in zip(NAMES, SHARES, strict=True)},
)


@cache
def healthy(seed: int = 8, steps: int = STEPS, pivot: int = STEPS) -> tuple[LossLine, ...]:
    """16 arms drawn by quota, each with its own power law and noise; a warm-up; evaluations; no crash yet.

    After the pivot another mix, two arms of which are in focus, others every 40 steps.
    """
    rng = np.random.default_rng(seed)
    shares, credit = np.array(SHARES), np.zeros(16)
    floor, scale = rng.uniform(1.5, 4.0, 16), rng.uniform(5.0, 7.0, 16)
    power, sigma = rng.uniform(0.15, 0.4, 16), rng.uniform(0.25, 0.7, 16)
    t = np.arange(1, steps + 1)
    eff = 1 + t * np.minimum(1, t / LR.warmup_steps)  # slow in the warm-up
    base = floor + scale * (eff / 4)[:, None] ** -power
    common = rng.normal(0, 0.02, steps) + 0.03 * np.sin(t / 700)  # weights wobble for all arms alike
    gnorm = 0.5 + 2 * t**-0.2 * rng.lognormal(-1, 0.3, steps)
    lr = LR.lr * np.minimum(1, t / LR.warmup_steps) * (0.55 + 0.45 * np.cos(np.pi * t / steps))
    out = []
    for i in range(steps):
        if i >= pivot and i % 40 == 0:
            shares = np.array(SHARES[::-1]) / 2
            shares[rng.permutation(16)[:2]] += 0.25
        rows = np.zeros(16, np.int64)
        for _ in range(ROWS):
            credit += shares
            k = int(credit.argmax())
            credit[k] -= 1
            rows[k] += 1
        drawn = np.flatnonzero(rows)
        wide = np.where(rng.random(16) < 0.05, 2.0, 1.0)  # now and then an odd text
        noise = rng.normal(0, 1, 16) * sigma * wide / np.sqrt(np.maximum(rows, 1))
        rloss = base[i] + common[i] + noise
        bpb: dict[str, float | None] | None
        bpb = {a: 1.0 + float(base[i, k]) / 4 for k, a in enumerate(NAMES)} if (i + 1) % 500 == 0 else None
        out.append(
            LossLine(
                step=i + 1, loss=float((rloss * rows).sum() / ROWS), lr=float(lr[i]), gnorm=float(gnorm[i]), seg=1,
                rows={NAMES[k]: int(rows[k]) for k in drawn}, rloss={NAMES[k]: float(rloss[k]) for k in drawn},
                dt=1.0, t=1e9 + i, bpb=bpb, phase=int(i >= pivot),
            )
        )  # fmt: skip
    return tuple(out)


def resumed() -> list[LossLine]:
    """With a crash whose replay differs from the checkpoint on, and a downtime of a day."""
    first, rest = healthy()[:CRASH], healthy()[CRASH - 55 :]
    again = [replace(x, seg=2, t=x.t + 86_400, dt=0.0 if x.step == CRASH - 54 else 1.0) for x in rest]
    return [*first, *again]


def test_a_healthy_run_raises_nothing() -> None:
    """Followed as the cockpit does it, and asked at 207 points."""
    lines = resumed()
    samples = [s for i in range(0, STEPS, 2000) for s in audit(i, "", "", "loop")]
    h, health = History(), Health()
    told: set[Finding] = set()
    for i in range(0, len(lines), 97):
        h.extend(lines[i : i + 97])
        now = [s for s in samples if s.step <= h.last]
        found = health.find(h, config=CONFIG, policy=POLICY, samples=now, resources=card(80))
        assert not [f for f in found if f.tone != "dim"], h.last
        told |= {f for f in found if f.kind == "spike"}
        assert not [f for f in found if f.kind != "spike"], h.last
    assert h.last == STEPS
    assert len(told) <= 12  # of 120,000 values: a text twice as odd as the others now and then


def test_a_healthy_run_with_a_pivot_and_a_restless_mix_raises_nothing() -> None:
    lines = healthy(9, steps=8000, pivot=4000)
    config = Config(train=TrainConfig(max_steps=8000, rows=ROWS), optim=LR)
    h, health = History(), Health()
    for i in range(0, len(lines), 97):
        h.extend(lines[i : i + 97])
        found = health.find(h, config=config, policy=POLICY, policy_phase=0)
        assert not [f for f in found if (f.kind, f.tone) != ("spike", "dim")], h.last


Damage = Callable[[LossLine], LossLine]
BAD_FROM = 16_000


def _raise(x: LossLine, by: float, arms: Sequence[str] = NAMES) -> LossLine:
    rloss = {a: v + by if v is not None and a in arms else v for a, v in x.rloss.items()}
    return replace(x, rloss=rloss, loss=(x.loss or 0.0) + by)


def _starve(x: LossLine) -> LossLine:
    """The rows of a rare arm go to the largest one."""
    n = x.rows.get("arm-9", 0)
    rest = {a: k for a, k in x.rows.items() if a != "arm-9"}
    return replace(
        x, rows=rest | {"arm-0": rest.get("arm-0", 0) + n}, rloss={a: x.rloss.get(a, 3.0) for a in rest}
    )


@pytest.mark.parametrize(
    ("kind", "tone", "until", "damage"),
    [
        ("spike", "warn", 16_050, lambda x: _raise(x, 6.0) if x.step == 16_020 else x),
        ("spike", "warn", 16_040, lambda x: _raise(x, 6.0, ["arm-15", "arm-14"]) if x.step > 16_010 else x),
        ("drift", "warn", 19_000, lambda x: _raise(x, (x.step - BAD_FROM) * 2e-4, ["arm-2"])),
        ("divergence", "warn", 17_000, lambda x: _raise(x, (x.step - BAD_FROM) * 5e-4)),
        ("divergence", "bad", 16_300, lambda x: _raise(x, 3.0)),
        ("skipped", "warn", 16_400, lambda x: replace(x, loss=None, skipped="nonfinite") if x.step == 16_100 else x),
        ("clip", "warn", 16_900, lambda x: replace(x, gnorm=3.0)),
        ("starved", "bad", 16_400, _starve),
    ],
)  # fmt: skip
def test_the_healthy_run_damaged(kind: str, tone: str, until: int, damage: Damage) -> None:
    lines = resumed()[: until + 55]
    h, health = made(x for x in lines if x.step <= BAD_FROM), Health()
    assert not health.find(h, config=CONFIG, policy=POLICY)
    h.extend([damage(x) for x in lines if x.step > BAD_FROM])
    assert h.last == until
    found = health.find(h, config=CONFIG, policy=POLICY)
    assert (kind, tone) in [(f.kind, f.tone) for f in found]
    assert found == Health().find(h, config=CONFIG, policy=POLICY)


def test_a_healthy_run_that_stops_learning_is_a_plateau_for_information() -> None:
    at = {x.step: x for x in healthy()}
    lines = [replace(at[8001 + x.step % 2000], step=x.step, t=x.t) if x.step > 9000 else x for x in healthy()]
    found = Health().find(made(lines[:16_000]), config=CONFIG, policy=POLICY)
    assert [(f.kind, f.tone) for f in found] == [("plateau", "dim")]
    assert not Health().find(made(lines[:16_500]), config=CONFIG, policy=POLICY)  # the last stretch


# ---- all of them


@pytest.mark.parametrize(
    "lines",
    [
        [],
        [line(1, {"chat": 9.0})],
        [LossLine(step=1, loss=None)],
        [LossLine(step=i, loss=3.0) for i in range(1, 9000)],  # no arms
        [line(i, {"chat": math.nan}, gnorm=None) for i in range(1, 1000)],
        [line(i, {"chat": 3.0}, {"chat": 0}) for i in range(1, 1000)],
        steady(20_000, noise=0.0)[10_000:],  # read from the middle
    ],
)
def test_odd_histories_raise_no_alarm_but_skipped_steps(lines: list[LossLine]) -> None:
    h, health = History(), Health()
    for i in range(0, max(1, len(lines)), 97):
        h.extend(lines[i : i + 97])
        found = health.find(h, config=CONFIG, policy=Policy(arms={"chat": Arm(path="c")}))
        assert not [f for f in found if f.tone != "dim" and f.kind != "skipped"]


def test_the_cache_is_a_cache() -> None:
    """A history that grows, is cut, takes another path or is read anew: the same as asked for the first time."""
    rng = np.random.default_rng(9)
    h, health = History(), Health()
    step = 0
    for turn in range(60):
        if turn == 40:
            h = History()
            step = 0
        step = max(0, step - int(rng.integers(0, 300)) * (turn % 3 == 0))
        n = int(rng.integers(1, 400))
        name = "late" if turn > 20 else "chat"
        made_now = [
            line(step + i, {name: 3 + rng.normal(0, 0.3), "docs": 2.0 + turn / 50}, t=1e9 + turn * 1e4 + i)
            for i in range(1, n + 1)
        ]
        h.extend(made_now)
        step += n
        assert health.find(h, config=CONFIG) == Health().find(h, config=CONFIG)
        fresh = Levels()
        fresh.follow(h)
        end = np.arange(1, fresh.blocks + 1)
        for arm in h.arms:
            np.testing.assert_array_equal(
                fresh.rows(arm, end - 1, end), health.levels.rows(arm, end - 1, end)
            )
            np.testing.assert_allclose(fresh.mean(arm, end - 1, end), health.levels.mean(arm, end - 1, end))


def test_the_same_steps_on_another_path_are_looked_at_again() -> None:
    lines = steady(300)
    h, health = made(lines), Health()
    assert not health.find(h)
    h.extend([replace(x, t=x.t + 1e5) for x in put(lines, 295, 8.0)[290:]])
    assert h.last == 300
    assert health.find(h)[0].step == 295


def test_levels_are_the_means_of_the_rows() -> None:
    rng = np.random.default_rng(10)
    h = made(
        line(i, {"a": rng.normal(3, 1), "b": 2.0}, {"a": int(rng.integers(1, 5)), "b": 1})
        for i in range(1, 1000)
    )
    levels = Levels()
    assert levels.follow(h)
    assert not levels.follow(h)
    assert levels.blocks == 15
    rows, loss = h.rows("a").astype(float), h.rloss("a").astype(float)
    for b in (4, 9, 14):
        first = int(levels.window("a", np.array([b]), LEVEL_ROWS, LEVEL_BLOCKS)[0])
        inside = slice(first * BLOCK, (b + 1) * BLOCK)
        shorter = rows[(first + 1) * BLOCK : (b + 1) * BLOCK].sum()
        assert rows[inside].sum() >= LEVEL_ROWS
        assert shorter < LEVEL_ROWS or b - first < LEVEL_BLOCKS
        mean = (rows[inside] * loss[inside]).sum() / rows[inside].sum()
        assert levels.levels()["a"][b] == pytest.approx(mean)
    assert np.isnan(levels.levels()["a"][:3]).all()
    assert np.isnan(levels.levels(8)["a"][:3]).all()
    assert levels.levels(8)["a"][-1] == levels.levels()["a"][-1]
    assert sum(levels.shares(8).values()) == pytest.approx(1)


def test_worst_first_and_asking_again_is_the_same() -> None:
    lines = put(lost(hungry(1100, 0), 1000), 1090, 9.0)
    h, health = made(lines), Health()
    found = health.find(h, policy=policy(), resources=card(91))
    assert [(f.kind, f.tone) for f in found] == [
        ("starved", "bad"), ("skipped", "warn"), ("spike", "warn"), ("gpu", "warn"),
    ]  # fmt: skip
    assert health.find(h, policy=policy(), resources=card(91)) == found
    assert [f.kind for f in health.find(h, resources=None)] == ["skipped", "spike"]
