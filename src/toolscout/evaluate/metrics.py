"""How good a ranking is, and how sure one can be of a mean.

A ranking is a sequence of group ids, best first; `relevant` is the set of groups wanted and is
never empty. `datasets` says what a group is. A group that comes twice gains once, and its second
place is lost, as it is in the reply that a model reads.
Means come with percentile bootstrap intervals of 95 %, from a fixed seed: the same figures give
the same interval, and two systems on one dataset share their resamples, so they can be paired.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import log2

import numpy as np
from numpy.typing import NDArray

RESAMPLES = 1000
SEED = 20260901
RANKING_DEPTH = 10
"""How many hits of a ranking are looked at; the ranking of `mrr` ends here too."""

_CHUNK_CELLS = 1 << 22

Ranking = Sequence[int]
Groups = frozenset[int]
Values = NDArray[np.float64]


def compute_hit(ranking: Ranking, relevant: Groups, k: int) -> float:
    """Return 1 if any of the first `k` is relevant, else 0."""
    return float(any(group in relevant for group in ranking[:k]))


def compute_recall(ranking: Ranking, relevant: Groups, k: int) -> float:
    """Return the share of the relevant groups that are among the first `k`."""
    return len(relevant.intersection(ranking[:k])) / len(relevant)


def compute_completeness(ranking: Ranking, relevant: Groups, k: int) -> float:
    """Return 1 if all relevant groups are among the first `k`, else 0.

    More than `k` relevant groups can never be complete.
    """
    return float(compute_recall(ranking, relevant, k) == 1.0)


def compute_ndcg(ranking: Ranking, relevant: Groups, k: int) -> float:
    """Return the normalised discounted gain of the first `k`, with gains of 0 or 1.

    The ideal has as many gains as there are relevant groups, at most `k`.
    """
    wanted, gain = set(relevant), 0.0
    for rank, group in enumerate(ranking[:k]):
        if group in wanted:
            wanted.remove(group)
            gain += _DISCOUNTS[rank]
    return gain / sum(_DISCOUNTS[: min(k, len(relevant))])


def compute_mrr(ranking: Ranking, relevant: Groups, k: int) -> float:
    """Return one divided by the rank of the first relevant group, 0 if none is in the first `k`."""
    for rank, group in enumerate(ranking[:k], start=1):
        if group in relevant:
            return 1.0 / rank
    return 0.0


_DISCOUNTS = [1.0 / log2(rank + 2) for rank in range(RANKING_DEPTH)]

METRICS: Mapping[str, tuple[Callable[[Ranking, Groups, int], float], int]] = {
    "hit@1": (compute_hit, 1),
    "recall@5": (compute_recall, 5),
    "recall@10": (compute_recall, 10),
    "completeness@10": (compute_completeness, 10),
    "ndcg@5": (compute_ndcg, 5),
    "ndcg@10": (compute_ndcg, 10),
    "mrr": (compute_mrr, RANKING_DEPTH),
}
"""Each metric by the name it has in tables and in JSON, with its cut-off."""


def compute_scores(ranking: Ranking, relevant: Groups) -> list[float]:
    """Return every metric of one query, in the order of `METRICS`."""
    return [measure(ranking, relevant, k) for measure, k in METRICS.values()]


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """A mean and its 95 % interval."""

    mean: float
    low: float
    high: float

    def to_json(self) -> dict[str, float]:
        """Return the three figures, rounded to six decimals."""
        return {"mean": round(self.mean, 6), "low": round(self.low, 6), "high": round(self.high, 6)}


@dataclass(frozen=True, slots=True, eq=False)
class Resampled:
    """What was measured on one dataset, and the means of its bootstrap samples."""

    values: Values
    """A row for each query, a column for each metric."""
    means: Values
    """A row for each of the `RESAMPLES` samples, a column for each metric."""

    def subtract(self, other: "Resampled") -> "Resampled":
        """Return the differences, paired: both must have drawn the same queries."""
        return Resampled(self.values - other.values, self.means - other.means)


def resample(values: Values, *, stream: int = 0) -> Resampled:
    """Return the values with the means of their bootstrap samples.

    Equal lengths and equal `stream`s draw the same queries, which is what pairs two systems on one
    dataset; give each dataset its own stream, so that their luck stays independent.
    """
    queries = values.shape[0]
    random = np.random.default_rng((SEED, stream))
    rows_at_once = max(1, _CHUNK_CELLS // queries)
    means: list[Values] = []
    for start in range(0, RESAMPLES, rows_at_once):
        rows = min(rows_at_once, RESAMPLES - start)
        drawn = random.integers(0, queries, size=(rows, queries))
        drawn += np.arange(rows)[:, None] * queries
        times = np.bincount(drawn.ravel(), minlength=rows * queries).reshape(rows, queries)
        means.append(times.astype(np.float64) @ values / queries)
    return Resampled(values, np.concatenate(means))


def estimate_means(datasets: Sequence[Resampled]) -> list[Estimate]:
    """Return, for each metric, the macro mean: the mean of the datasets' means.

    Each dataset weighs the same; its queries are resampled within it, the datasets are not.
    One dataset alone gives its own mean.
    """
    centre = np.mean([dataset.values.mean(axis=0) for dataset in datasets], axis=0)
    means = np.mean([dataset.means for dataset in datasets], axis=0)
    low, high = np.percentile(means, (2.5, 97.5), axis=0)
    return [
        Estimate(mean=float(middle), low=float(bottom), high=float(top))
        for middle, bottom, top in zip(centre, low, high, strict=True)
    ]


def estimate_differences(first: Sequence[Resampled], second: Sequence[Resampled]) -> list[Estimate]:
    """Return, for each metric, the macro mean of `first - second`, paired by query."""
    return estimate_means([one.subtract(other) for one, other in zip(first, second, strict=True)])
