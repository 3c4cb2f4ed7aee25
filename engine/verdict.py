"""What is wrong with a sample text, in one word, by comparison with real held-out text of its length."""

from collections.abc import Iterable

from engine.data.reference import FEW, Envelope, Reference
from engine.measures import Measures

LOOP, COPY, NOISE, SALAD, FINE = "loop", "copy", "noise", "salad", ""
LOOP_SIGNS = 2  # of three: a ruler or a table of one arm may be odd in one way and is no loop
COPY_SHARE = 0.5  # of a text: less than half may be a phrase, a licence's first lines, a signature


def verdict(m: Measures, reference: Reference) -> str:
    """LOOP, COPY, NOISE, SALAD or FINE, the first that holds.

    - loop: two of these three are beyond the 99 % of every arm: seq-rep-4 and the longest loop above, zlib below.
    - copy: at least half of it is one verbatim copy, and that is beyond the 95 % of every arm that can judge it: an
      arm whose own held-out text has such copies can't, as long as there is another.
    - noise: fewer known words than in 99 % of every arm, and more unseen pairs than in 95 %.
    - salad: more unseen pairs of words, or more novel runs of tokens, than in 99 % of every arm.

    FINE too where the text is too short, or the reference too small, to say.
    """
    envelopes = near(m.tokens, reference)
    if all(e.windows < FEW for e in envelopes):
        return FINE

    def above(name: str, quantile: str = "p99", by: Iterable[Envelope] = envelopes) -> bool:
        return all(getattr(m, name) > getattr(e.measures[name], quantile) for e in by)

    def below(name: str) -> bool:
        return all(getattr(m, name) < e.measures[name].p01 for e in envelopes)

    if above("seq_rep_4") + above("loop") + below("zlib") >= LOOP_SIGNS:
        return LOOP
    half = COPY_SHARE * m.tokens
    judges = [e for e in envelopes if e.measures["copy"].p95 < half]
    if m.copy >= half and above("copy", "p95", judges or envelopes):
        return COPY
    if below("known") and above("unseen", "p95"):
        return NOISE
    if above("novel") or above("unseen"):
        return SALAD
    return FINE


def near(tokens: int, reference: Reference) -> list[Envelope]:
    """Every arm's envelopes for the reference lengths next to that of the text, the shorter and the longer one."""
    found = []
    for arm in reference.arms.values():
        lengths = sorted(arm.lengths)
        if lengths and tokens >= lengths[0]:
            shorter = max(n for n in lengths if n <= tokens)
            longer = min((n for n in lengths if n >= tokens), default=shorter)
            found += [arm.lengths[n] for n in {shorter, longer}]
    return found
