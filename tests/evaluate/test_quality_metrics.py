from math import log2

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolscout.evaluate import quality

RANKINGS = st.lists(st.integers(0, 15), max_size=10)
RELEVANT = st.frozensets(st.integers(0, 15), min_size=1)


def by_name(ranking: list[int], relevant: frozenset[int]) -> dict[str, float]:
    return dict(zip(quality.METRICS, quality.compute_scores(ranking, relevant), strict=True))


def test_scores_of_one_found_at_rank_two_and_one_missing():
    found = by_name([9, 1, 8, 7, 6, 5], frozenset({1, 2}))

    gain = 1 / log2(3)
    ideal = 1 + 1 / log2(3)
    assert found == {
        "hit@1": 0.0,
        "recall@5": 0.5,
        "recall@10": 0.5,
        "completeness@10": 0.0,
        "ndcg@5": pytest.approx(gain / ideal),
        "ndcg@10": pytest.approx(gain / ideal),
        "mrr": 0.5,
    }


def test_scores_of_two_found_on_both_sides_of_rank_five():
    found = by_name([1, 9, 8, 7, 6, 2], frozenset({1, 2}))

    ideal = 1 + 1 / log2(3)
    assert found == {
        "hit@1": 1.0,
        "recall@5": 0.5,
        "recall@10": 1.0,
        "completeness@10": 1.0,
        "ndcg@5": pytest.approx(1 / ideal),
        "ndcg@10": pytest.approx((1 + 1 / log2(7)) / ideal),
        "mrr": 1.0,
    }


def test_an_empty_ranking_scores_nothing():
    assert set(by_name([], frozenset({1})).values()) == {0.0}


def test_a_group_that_comes_twice_gains_once_and_loses_its_second_place():
    twice = by_name([1, 1, 2], frozenset({1, 2}))

    assert twice["ndcg@5"] == pytest.approx((1 + 1 / log2(4)) / (1 + 1 / log2(3)))
    assert twice["recall@5"] == 1.0


def test_the_ideal_is_cut_at_k_when_more_groups_are_relevant():
    many = frozenset(range(7))

    assert quality.compute_ndcg(list(range(5)), many, 5) == pytest.approx(1.0)
    assert quality.compute_recall(list(range(5)), many, 5) == pytest.approx(5 / 7)


@given(RANKINGS, RELEVANT)
def test_every_score_lies_between_zero_and_one(ranking: list[int], relevant: frozenset[int]):
    assert all(0.0 <= value <= 1.0 + 1e-12 for value in quality.compute_scores(ranking, relevant))


@given(RANKINGS, RELEVANT)
def test_looking_further_never_lowers_what_was_found(ranking: list[int], relevant: frozenset[int]):
    for measure in (
        quality.compute_hit,
        quality.compute_recall,
        quality.compute_completeness,
        quality.compute_mrr,
    ):
        found = [measure(ranking, relevant, k) for k in range(1, 11)]
        assert found == sorted(found)


@given(st.frozensets(st.integers(0, 15), min_size=1, max_size=5), RANKINGS)
def test_a_perfect_ranking_scores_one_everywhere(relevant: frozenset[int], rest: list[int]):
    ranking = (sorted(relevant) + rest)[:10]

    assert quality.compute_scores(ranking, relevant) == [
        1.0,
        *[pytest.approx(1.0)] * (len(quality.METRICS) - 1),
    ]


def test_an_interval_encloses_the_mean_and_is_the_same_each_time():
    values = np.random.default_rng(1).random((300, 2))

    first = quality.estimate_means([quality.resample(values)])
    again = quality.estimate_means([quality.resample(values)])

    assert first == again
    for column, estimate in enumerate(first):
        assert estimate.mean == pytest.approx(values[:, column].mean())
        assert estimate.low < estimate.mean < estimate.high


def test_an_interval_is_about_as_wide_as_theory_says():
    values = np.array([[0.0], [1.0]] * 200)

    (estimate,) = quality.estimate_means([quality.resample(values)])

    assert estimate.high - estimate.low == pytest.approx(2 * 1.96 * 0.5 / 20, rel=0.1)


def test_resamples_are_the_same_however_they_are_cut_into_chunks(monkeypatch: pytest.MonkeyPatch):
    values = np.random.default_rng(2).random((50, 1))
    whole = quality.resample(values).means

    monkeypatch.setattr(quality, "_CHUNK_CELLS", 1)

    assert np.allclose(quality.resample(values).means, whole)


def test_one_value_has_an_interval_of_no_width():
    resampled = quality.resample(np.array([[0.25]]))

    assert quality.estimate_means([resampled]) == [quality.Estimate(mean=0.25, low=0.25, high=0.25)]


def test_the_macro_mean_gives_each_dataset_the_same_weight():
    small, large = np.array([[1.0]] * 2), np.array([[0.0]] * 98)

    macro = quality.estimate_means([quality.resample(small), quality.resample(large, stream=1)])

    assert macro == [quality.Estimate(mean=0.5, low=0.5, high=0.5)]


def test_streams_draw_different_queries():
    values = np.random.default_rng(3).random((50, 1))

    first, second = (quality.resample(values, stream=stream).means for stream in (0, 1))

    assert not np.allclose(first, second)


def test_an_estimate_is_rounded_for_json():
    estimate = quality.Estimate(mean=1 / 3, low=0.0, high=2 / 3)

    assert estimate.to_json() == {"mean": 0.333333, "low": 0.0, "high": 0.666667}
