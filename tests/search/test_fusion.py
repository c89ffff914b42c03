import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.fitting import build_columns
from toolscout.search.fusion import (
    CERTAINTY,
    FUSIONS,
    GATED,
    GROUPS,
    LATIN_FAMILIES,
    LENGTHENED,
    LEXICAL,
    LIKELY,
    STRONG,
    WEIGHTS,
    WORTH_FLOOR,
    WORTH_SHARE,
    Doubles,
    Fusion,
    Signal,
    choose_fusion,
    compute_gate,
    confidence_from_chance,
    count_worth_showing,
)
from toolscout.search.hits import Confidence

every_family = pytest.mark.parametrize("family", FUSIONS)


def random_evidence(count: int, seed: int = 1) -> Doubles:
    return np.random.default_rng(seed).random((count, len(Signal)))


@pytest.mark.parametrize(
    ("chance", "label"),
    [
        (1.0, Confidence.STRONG),
        (STRONG, Confidence.STRONG),
        (np.nextafter(STRONG, 0), Confidence.LIKELY),
        (LIKELY, Confidence.LIKELY),
        (np.nextafter(LIKELY, 0), Confidence.WEAK),
        (0.0, Confidence.WEAK),
    ],
)
@pytest.mark.requirement("R31")
def test_a_chance_has_the_label_of_the_threshold_it_reaches(chance: float, label: Confidence):
    """R31"""
    assert confidence_from_chance(chance) is label


def test_thresholds_are_in_order():
    assert 0 < WORTH_FLOOR < LIKELY < STRONG < 1
    assert 0 < WORTH_SHARE < 1


@pytest.mark.requirement("R31")
@pytest.mark.parametrize(
    ("chances", "count"),
    [
        ([], 0),
        ([0.0], 1),
        ([WORTH_FLOOR / 2, WORTH_FLOOR / 3], 1),
        ([0.9], 1),
        ([0.9, 0.9 * WORTH_SHARE / 2], 1),
        ([0.9, 0.8, 0.9 * WORTH_SHARE, 0.9 * WORTH_SHARE * 0.99], 3),
        ([WORTH_FLOOR, WORTH_FLOOR, WORTH_FLOOR / 2], 2),
        ([1.0, 1.0, 1.0], 3),
    ],
)
def test_what_falls_far_behind_is_not_worth_showing(chances: list[float], count: int):
    """R31"""
    assert count_worth_showing(chances) == count


@pytest.mark.requirement("R31")
@given(st.lists(st.floats(0, 1), min_size=1))
def test_something_is_worth_showing_wherever_something_was_found(chances: list[float]):
    """R31"""
    falling = sorted(chances, reverse=True)

    assert 1 <= count_worth_showing(falling) <= len(falling)


@every_family
def test_every_table_has_a_finite_number_in_every_place(family: str):
    fusion = FUSIONS[family]

    assert len(fusion.weights) == WEIGHTS
    assert len(fusion.calibration) == 2 + len(CERTAINTY)
    assert np.isfinite(fusion.weights).all()
    assert np.isfinite(fusion.calibration).all()
    assert any(fusion.weights)


@every_family
def test_a_larger_share_among_the_candidates_is_never_held_against_one(family: str):
    assert FUSIONS[family].calibration[1] > 0


@pytest.mark.requirement("R29")
def test_words_alone_use_no_signal_of_meaning():
    """R29"""
    fusion = FUSIONS[""]
    meaning = [signal for signal in Signal if signal not in LEXICAL]
    varying = [len(Signal) + i for i, s in enumerate(LENGTHENED + GATED) if s not in LEXICAL]

    assert {fusion.weights[column] for column in [*meaning, *varying]} == {0}
    assert [
        number
        for number, signal in zip(fusion.calibration[2:], CERTAINTY, strict=True)
        if signal not in LEXICAL
    ] == [0, 0, 0]


def test_every_signal_belongs_to_one_group():
    grouped = [signal for group in GROUPS.values() for signal in group]

    assert sorted(grouped) == sorted(Signal)


@pytest.mark.parametrize("family", ["sentence", "static+sentence", "nobody knows"])
def test_an_unknown_family_gets_a_fusion(family: str):
    assert family not in FUSIONS
    assert choose_fusion(family) in FUSIONS.values()


@every_family
def test_a_known_family_gets_its_own_fusion(family: str):
    assert choose_fusion(family) is FUSIONS[family]


def test_families_of_english_encoders_are_fitted():
    assert LATIN_FAMILIES - FUSIONS.keys() == set()


@every_family
@pytest.mark.requirement("R33")
@pytest.mark.parametrize("count", [1, 2, 7, 64, 257])
def test_a_score_is_the_same_bits_whatever_the_other_rows(family: str, count: int):
    """R33"""
    fusion, evidence = FUSIONS[family], random_evidence(count)

    together = fusion.score(evidence, 0.3, 0.6)
    alone = np.concatenate([fusion.score(evidence[i : i + 1], 0.3, 0.6) for i in range(count)])
    turned = fusion.score(evidence[::-1], 0.3, 0.6)[::-1]

    assert together.tobytes() == alone.tobytes()
    assert together.tobytes() == turned.tobytes()


@every_family
def test_chances_are_between_0_and_1(family: str):
    fusion, evidence = FUSIONS[family], random_evidence(40)
    scores = fusion.score(evidence, -0.5, 0.5)

    found = fusion.predict_chances(evidence, scores, scores)

    assert all(0 <= chance <= 1 for chance in found)


@every_family
@pytest.mark.parametrize("size", [0.0, 1e6, -1e6])
def test_chances_of_extreme_evidence_are_finite(family: str, size: float):
    fusion, evidence = FUSIONS[family], random_evidence(3) * size
    scores = fusion.score(evidence, 1.0, 1.0)

    assert np.isfinite(fusion.predict_chances(evidence, scores, scores)).all()


@every_family
def test_no_candidates_have_no_chances(family: str):
    fusion, nothing = FUSIONS[family], random_evidence(0)
    scores = fusion.score(nothing, 0.0, 0.0)

    assert len(fusion.predict_chances(nothing, scores, scores)) == 0


@every_family
def test_equal_rivals_lower_a_chance(family: str):
    fusion = FUSIONS[family]
    evidence = random_evidence(1).repeat(9, axis=0)
    scores = fusion.score(evidence, 0.0, 0.5)

    alone = fusion.predict_chances(evidence[:1], scores[:1], scores[:1])
    among = fusion.predict_chances(evidence[:1], scores[:1], scores)

    assert among[0] < alone[0]


@every_family
def test_of_two_candidates_with_like_evidence_the_higher_score_has_the_higher_chance(family: str):
    fusion = FUSIONS[family]
    evidence = random_evidence(1).repeat(2, axis=0)
    scores = np.array([2.0, 1.0])

    higher, lower = fusion.predict_chances(evidence, scores, scores)

    assert higher > lower


@every_family
@given(seed=st.integers(0, 2**32 - 1), length=st.floats(-1, 1), gate=st.floats(0, 1))
def test_shares_are_positive_and_sum_to_one(family: str, seed: int, length: float, gate: float):
    shares = FUSIONS[family].compute_shares(random_evidence(1, seed)[0], length, gate)

    assert shares.keys() == GROUPS.keys()
    assert min(shares.values()) >= 0
    assert sum(shares.values()) == pytest.approx(1)


@every_family
def test_without_evidence_no_signal_has_a_share(family: str):
    shares = FUSIONS[family].compute_shares(np.zeros(len(Signal)), 0.5, 0.5)

    assert shares == dict.fromkeys(GROUPS, 0.0)


def test_a_signal_is_counted_with_what_the_length_adds():
    weights = np.zeros(WEIGHTS)
    weights[Signal.NAME] = 1
    weights[Signal.CLAUSE] = 1
    weights[len(Signal) + LENGTHENED.index(Signal.CLAUSE)] = 2
    fusion = Fusion(weights=tuple(weights), calibration=(0.0,) * (2 + len(CERTAINTY)))
    evidence = np.ones((1, len(Signal)))

    assert fusion.score(evidence, 1.0, 1.0).tolist() == [4]
    assert fusion.score(evidence, -0.5, 1.0).tolist() == [1]
    assert fusion.compute_shares(evidence[0], 1.0, 1.0) == {
        "words": 0,
        "name": 0.25,
        "clause": 0.75,
        "meaning": 0,
        "hint": 0,
    }


def test_a_signal_is_counted_with_what_the_gate_adds():
    weights = np.zeros(WEIGHTS)
    weights[Signal.MEANING] = 1
    weights[len(Signal) + len(LENGTHENED) + GATED.index(Signal.MEANING)] = -1
    fusion = Fusion(weights=tuple(weights), calibration=(0.0,) * (2 + len(CERTAINTY)))
    evidence = np.zeros((2, len(Signal)))
    evidence[:, Signal.MEANING] = 1

    def scores_where_the_best_has(share: float) -> list[float]:
        evidence[1, Signal.MATCH] = share
        return fusion.score(evidence, 0.0, compute_gate(evidence)).tolist()

    assert scores_where_the_best_has(0.0) == [1, 1]
    assert scores_where_the_best_has(0.75) == [0.25, 0.25]
    assert (build_columns(evidence, 0.0) @ weights).tolist() == [0.25, 0.25]
