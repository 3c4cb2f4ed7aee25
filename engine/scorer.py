"""All that scoring a sample text needs, made once: the two indexes of the training text and the reference."""

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from engine.data.copies import Copies
from engine.data.manifest import Manifest
from engine.data.reference import Reference, make_reference
from engine.data.tokenizer import Tokenizer
from engine.data.words import Words
from engine.measures import MEASURES, Measures, measure, similarity
from engine.rundir.records import SampleLine
from engine.verdict import near, verdict

Tick = Callable[[str, float], None]  # reports, and raises StopRequested


class Scorer:
    """Measures of sample texts against the training and held-out text of these arms.

    What `data/` lacks is made: seconds for tens of megabytes of text. At later starts files are only mapped.
    """

    def __init__(
        self,
        run_dir: Path,
        manifest: Manifest,
        tokenizer: Tokenizer,
        arms: Sequence[str],
        tokens: int,
        tick: Tick,
    ) -> None:
        """`tokens` is audit.tokens, the greatest length of a sample text.

        Raises StopRequested from `tick(what, fraction)` (indexes that were finished are kept), BadInput on damaged
        token files, OSError where files can't be written.
        """
        self._copies = Copies(run_dir, manifest, arms, tick)
        self._words = Words(run_dir, manifest, tokenizer, arms, tick)
        self.reference: Reference = make_reference(
            run_dir, manifest, tokenizer, arms, tokens, self._words, self._copies, tick
        )

    def score(self, text: str, ids: Sequence[int] | NDArray[np.integer]) -> Measures:
        """`ids` (n,) are the tokens of `text`."""
        return measure(text, ids, self._words, self._copies)

    def fill(self, line: SampleLine, ids: Sequence[int], before: str | None) -> None:
        """Put measures and verdict into the line; `before` is the text of the audit before it."""
        m = self.score(line.text, ids)
        line.scores = {name: round(float(getattr(m, name)), 4) for name in MEASURES}
        if before is not None:
            line.scores["similarity"] = round(similarity(before, line.text), 4)
        line.copy_arm, line.verdict = m.copy_arm, self.verdict(m)

    def ranges(self) -> dict[str, tuple[float, float]]:
        """measure -> (5 %, 95 %) of real text as long as audit.tokens: the least and the greatest of all arms."""
        envelopes = near(self.reference.tokens, self.reference)
        return {
            name: (min(e.measures[name].p05 for e in envelopes), max(e.measures[name].p95 for e in envelopes))
            for name in MEASURES
            if envelopes
        }

    def verdict(self, m: Measures) -> str:
        """"" for fine, else "loop", "copy", "noise" or "salad"."""  # fmt: skip
        return verdict(m, self.reference)
