"""Combine all signals into one score, and turn scores into calibrated chances.

Each family of encoders has its own weights and calibration, which `python -m benchmarks fit` fits
on the dev sets and checks with whole sets left out; docs/search.md has the figures. Thresholds
only label hits and say how many are worth showing. They never drop a hit, because a hard cut
would leave ordinary searches without results.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from math import log

import numpy as np
from numpy.typing import NDArray

from toolscout.search.hits import Confidence

Doubles = NDArray[np.float64]


class Signal(IntEnum):
    """The columns of evidence; most values lie between 0 and 1."""

    BM25 = 0
    """BM25F score as a share of what a tool with all words could reach."""
    MATCH = 1
    """Share of the question's words that the tool has, whether rare or common."""
    NAME = 2
    """Share of the name's weight that the question mentions."""
    DESCRIPTION = 3
    SERVER = 4
    CLAUSE = 5
    """Score for the best clause, as a share of the score of that clause's best candidate."""
    MEANING = 6
    """Similarity of question and tool."""
    MEANING_PLAIN = 7
    """The same for the question without quoted strings and numbers."""
    MEANING_CLAUSE = 8
    """Highest similarity of any clause."""
    MEANING_CLAUSE_GAP = 9
    """Distance behind the nearest candidate, for the best clause: 0 or negative."""
    NAME_MEANING = 10
    """Share of the name's weight that is close in meaning to some word of the question."""
    HINTED = 11
    """1 if the tool has a hint. Without one, this and the signals below are 0, but for the last."""
    HINT_WORDS = 12
    """Share of the question's weight that the words of the hint have."""
    HINT_ONLY = 13
    """The same for words that the definition does not have."""
    HINT_MEANING = 14
    """Similarity of question and hint."""
    HINT_DEFINITION = 15
    """Similarity of question and definition, where there is a hint."""
    HINT_GAIN = 16
    """How much more similar the question is to hint and definition together than to the latter."""
    HINT_CLAUSE_GAIN = 17
    """The same for the best clause."""
    HINT_GAP_GAIN = 18
    """How much nearer the tool comes to the nearest candidate, for the best clause. Without a hint,
    it is below 0 if a candidate with a hint has come nearer to the question."""


LEXICAL = (
    Signal.BM25,
    Signal.MATCH,
    Signal.NAME,
    Signal.DESCRIPTION,
    Signal.SERVER,
    Signal.CLAUSE,
    Signal.HINTED,
    Signal.HINT_WORDS,
    Signal.HINT_ONLY,
)
LENGTHENED = [Signal.CLAUSE, Signal.MEANING_CLAUSE_GAP, Signal.MEANING, Signal.HINT_GAIN]
"""Signals whose weight changes with the question's length."""
GATED = [
    Signal.MATCH,
    Signal.CLAUSE,
    Signal.MEANING,
    Signal.MEANING_CLAUSE_GAP,
    Signal.HINT_ONLY,
    Signal.HINT_GAIN,
]
"""Signals whose weight depends on how many of the question's words the best candidate has: if no
tool has most of them, meaning counts for more."""
WEIGHTS = len(Signal) + len(LENGTHENED) + len(GATED)

# The groups of signals that an explanation names.
GROUPS = {
    "words": (Signal.BM25, Signal.MATCH, Signal.DESCRIPTION, Signal.SERVER),
    "name": (Signal.NAME, Signal.NAME_MEANING),
    "clause": (Signal.CLAUSE, Signal.MEANING_CLAUSE_GAP),
    "meaning": (Signal.MEANING, Signal.MEANING_PLAIN, Signal.MEANING_CLAUSE),
    "hint": tuple(signal for signal in Signal if signal >= Signal.HINTED),
}

STRONG = 0.79
LIKELY = 0.2
WORTH_SHARE = 0.03
WORTH_FLOOR = 0.01


@dataclass(frozen=True, slots=True, kw_only=True)
class Fusion:
    """The fitted weights and calibration for one family of encoders."""

    weights: tuple[float, ...]
    """A weight for each `Signal`, then slopes: of `LENGTHENED` by the question's length and of
    `GATED` by the gate."""
    calibration: tuple[float, ...]
    """The constant, then coefficients: of the log share among candidates and of `CERTAINTY`."""

    def score(self, evidence: Doubles, length: float, gate: float) -> Doubles:
        """Return a score for each candidate; only differences are meaningful."""
        # Summed row by row: a matrix product may round a row differently by its position.
        return np.add.reduce(evidence * self._compute_weights(length, gate), axis=1)

    def predict_chances(self, evidence: Doubles, scores: Doubles, rivals: Doubles) -> Doubles:
        """Return how likely each candidate is the wanted one, given the scores of all rivals."""
        constant, slope, *weights = self.calibration
        # Summed row by row, as in `score`.
        odds = np.add.reduce(evidence.take(CERTAINTY, axis=1) * weights, axis=1)
        odds += slope * (scores - compute_level(rivals)) + constant
        return 1 / (1 + np.exp(np.minimum(-odds, 30.0)))

    def compute_shares(self, evidence: Doubles, length: float, gate: float) -> dict[str, float]:
        """Return each signal group's share of one candidate's score."""
        by_signal = evidence * self._compute_weights(length, gate)
        sums = {name: max(float(by_signal[list(s)].sum()), 0.0) for name, s in GROUPS.items()}
        total = sum(sums.values())
        return {name: value / total if total else 0.0 for name, value in sums.items()}

    def _compute_weights(self, length: float, gate: float) -> Doubles:
        """Return the weight of each signal for the length of a question and its gate."""
        weights = list(self.weights[: len(Signal)])
        slopes = iter(self.weights[len(Signal) :])
        for signal in LENGTHENED:
            weights[signal] += next(slopes) * length
        for signal in GATED:
            weights[signal] += next(slopes) * gate
        return np.array(weights)


CERTAINTY = [
    Signal.BM25,
    Signal.MATCH,
    Signal.MEANING,
    Signal.NAME,
    Signal.NAME_MEANING,
    Signal.HINT_ONLY,
    Signal.HINT_MEANING,
]


def compute_gate(evidence: Doubles) -> float:
    """Return the gate: the largest share of the question's words that any candidate has."""
    return float(np.maximum.reduce(evidence[:, Signal.MATCH], initial=0.0))


def compute_level(rivals: Doubles) -> float:
    """Return the logarithm of the summed exponentials of all rivals' scores."""
    top = float(np.maximum.reduce(rivals, initial=-1e9))
    # An imaginary rival keeps a single candidate from looking certain.
    return top + log(1.0 + float(np.add.reduce(np.exp(rivals - top))))


def confidence_from_chance(chance: float) -> Confidence:
    """Return the label of a chance."""
    if chance >= STRONG:
        return Confidence.STRONG
    return Confidence.LIKELY if chance >= LIKELY else Confidence.WEAK


def count_worth_showing(chances: Sequence[float]) -> int:
    """Return how many chances, given in falling order, are worth showing: at least the first."""
    if not chances:
        return 0
    floor = max(chances[0] * WORTH_SHARE, WORTH_FLOOR)
    return max(1, len([chance for chance in chances if chance >= floor]))


LATIN_FAMILIES = frozenset({"static", "minilm"})
"""Families of encoders that were trained on English and see only noise in other scripts."""

# fmt: off
FUSIONS: dict[str, Fusion] = {
    "": Fusion(
        weights=(
            5.3173, 7.6663, 1.4052, 2.7164, 0.9958, 3.1263, 0.0, 0.0, 0.0, 0.0, 0.0,
            -0.987, 3.0166, 12.8319, 0.0, 0.0, 0.0, 0.0, 0.0,
            1.9206, 0.0, 0.0, 0.0,
            0.0, 0.0, 0.0, 0.0, 0.0, 0.0,
        ),
        calibration=(-0.3437, 0.9844, -0.9831, 1.5437, 0.0, 2.4908, 0.0, 2.2134, 0.0),
    ),
    "static": Fusion(
        weights=(
            2.6232, 4.833, -1.5368, 1.3783, 0.8117, -0.5776,
            3.9231, 5.0764, 1.3202, 4.444, 3.1624,
            -1.3, -0.2828, 9.967, -1.8749, 2.1931, 12.7817, 1.3937, 3.0,
            2.7514, 3.873, -6.2322, -1.1136,
            2.236, 2.8283, -3.6404, 0.3081, -3.2693, -3.8838,
        ),
        calibration=(-1.3535, 1.0803, -0.8875, 0.5843, 3.7179, -0.2876, 1.1188, 1.5949, 0.4642),
    ),
    "minilm": Fusion(
        weights=(
            2.4571, 5.0327, -2.0499, 1.1064, 1.1004, -0.1462,
            8.0639, 5.2289, -0.0963, 6.299, 2.2458,
            -1.0473, -0.1924, 9.7471, -4.1408, 2.459, 20.1226, 2.5073, 3.076,
            2.2047, -0.2114, -4.3165, 0.0005,
            -0.1988, 2.0408, 0.1106, -1.3615, -5.4378, -9.0352,
        ),
        calibration=(-1.6321, 1.0381, -1.0715, 0.6912, 4.0124, -0.1933, 1.369, 1.3065, 0.6749),
    ),
}
# fmt: on


def choose_fusion(family: str) -> Fusion:
    """Return the fitted fusion of a family of encoders; an unknown family gets MiniLM's."""
    return FUSIONS.get(family, FUSIONS["minilm"])
