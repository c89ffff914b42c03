"""Measure how well tool searches find, on labelled datasets.

Every metric comes with a 95 % bootstrap interval from a fixed seed. In a macro mean every dataset
has the same weight. Nothing is printed here: a `Table` holds text that any front end can lay out.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from math import inf, log2
from platform import python_version
from random import Random
from time import perf_counter
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from toolscout.catalog import Catalog
from toolscout.encoders.encoder import StaticEncoder
from toolscout.encoders.onnx import OnnxEncoder
from toolscout.errors import ModelError, UsageError
from toolscout.evaluate.datasets import Dataset
from toolscout.query import Query
from toolscout.schemas import Json
from toolscout.search.index import Index
from toolscout.sessions.replies import render_hit_line
from toolscout.tokens import count_tokens
from toolscout.tools import Tool

RESAMPLES = 1000
SEED = 20260901
RANKING_DEPTH = 10
"""How many hits of a ranking are looked at; the ranking of `mrr` ends here too."""

_CHUNK_CELLS = 1 << 22

Ranking = Sequence[int]
"""Groups of a dataset, best first. One that comes twice gains once, and its second place is lost,
as it is in the reply that a model reads."""
Groups = frozenset[int]
"""The groups that a query wants; never empty."""
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
    ranks = (rank for rank, group in enumerate(ranking[:k], start=1) if group in relevant)
    return 1.0 / next(ranks, inf)


_DISCOUNTS = [1.0 / log2(rank + 2) for rank in range(RANKING_DEPTH)]


class Metric(NamedTuple):
    """One way to score a ranking, cut off after `k` groups."""

    title: str
    compute: Callable[[Ranking, Groups, int], float]
    k: int


METRICS: Mapping[str, Metric] = {
    "hit@1": Metric("Hit@1", compute_hit, 1),
    "recall@5": Metric("Recall@5", compute_recall, 5),
    "recall@10": Metric("Recall@10", compute_recall, 10),
    "completeness@10": Metric("Completeness@10", compute_completeness, 10),
    "ndcg@5": Metric("nDCG@5", compute_ndcg, 5),
    "ndcg@10": Metric("nDCG@10", compute_ndcg, 10),
    "mrr": Metric("MRR", compute_mrr, RANKING_DEPTH),
}
"""Each metric by the name it has in JSON."""


def compute_scores(ranking: Ranking, relevant: Groups) -> list[float]:
    """Return every metric of one query, in the order of `METRICS`."""
    return [metric.compute(ranking, relevant, metric.k) for metric in METRICS.values()]


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
    rows = np.stack([centre, low, high], axis=1).tolist()
    return [Estimate(mean=mean, low=bottom, high=top) for mean, bottom, top in rows]


Progress = Callable[[str, int, int], None]
"""Takes what is being done, how many queries are done, and how many there are."""

REPLY_HITS = 5
REPLY_SAMPLE = 200
PROGRESS_EVERY = 50
PACKAGES = ("toolscout", "numpy", "toolscout-encoder", "onnxruntime", "usearch")
"""Packages whose version can change a figure."""


@dataclass(frozen=True, slots=True)
class Ranked:
    """A tool that a system found."""

    tool: Tool
    score: float
    """On the system's own scale; a system that gives none gets 1, 1/2, 1/3 … by rank."""


class System(Protocol):
    """A tool search that can be measured."""

    def build(self, tools: Sequence[Tool]) -> None:
        """Index these tools and forget the ones before."""
        ...

    def search(self, query: str, limit: int) -> list[Ranked]:
        """Return at most `limit` tools, best first; no query raises."""
        ...

    def reply(self, query: str, hits: Sequence[Ranked]) -> str:
        """Return what the model would read for these hits of this query."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Milliseconds:
    """How long a search took."""

    p50: float
    p99: float
    mean: float

    def to_json(self) -> dict[str, float]:
        """Return the figures, rounded to a tenth of a microsecond."""
        return {"p50": round(self.p50, 4), "p99": round(self.p99, 4), "mean": round(self.mean, 4)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What one system did on one dataset, or on average over all."""

    metrics: Mapping[str, Estimate]
    resampled: Sequence[Resampled]
    """What the metrics are estimated from, for each dataset; it pairs systems query by query."""
    reply_tokens: float
    """Mean tokens of the reply for five hits, over a sample of the queries."""
    ms: Milliseconds
    queries: int
    tools: int

    def to_json(self) -> Json:
        """Return the metrics by name beside the other figures."""
        return {
            **{metric: estimate.to_json() for metric, estimate in self.metrics.items()},
            "reply_tokens": {"mean": round(self.reply_tokens, 2)},
            "ms": self.ms.to_json(),
            "queries": self.queries,
            "tools": self.tools,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Quality:
    """All outcomes of one run."""

    datasets: Mapping[str, Mapping[str, Outcome]]
    """By dataset, then by system."""
    macro: Mapping[str, Outcome]
    """By system; `queries` and `tools` are sums, everything else is a mean of datasets."""
    versions: Mapping[str, str]

    def to_json(self) -> Json:
        """Return the whole run as JSON."""
        return {
            "datasets": {
                dataset: {system: outcome.to_json() for system, outcome in by_system.items()}
                for dataset, by_system in self.datasets.items()
            },
            "macro": {system: outcome.to_json() for system, outcome in self.macro.items()},
            "versions": dict(self.versions),
        }


def measure_quality(
    datasets: Sequence[Dataset],
    systems: Sequence[str],
    *,
    make: Callable[[str], System],
    packages: Sequence[str] = PACKAGES,
    progress: Progress = lambda stage, done, total: None,
) -> Quality:
    """Return the outcomes of every system on every dataset.

    `make` gives a new system for a name; it is called once for each dataset. Raises `UsageError`
    for a dataset without queries, for two of one name, and for an empty list.
    """
    _check(datasets, systems)
    for name in systems:
        make(name)  # a wrong name or a missing package must not end a long run
    outcomes = {
        dataset.name: {name: _run(make(name), name, dataset, stream, progress) for name in systems}
        for stream, dataset in enumerate(datasets)
    }
    macro = {name: _compute_macro([found[name] for found in outcomes.values()]) for name in systems}
    return Quality(datasets=outcomes, macro=macro, versions=find_versions(packages))


def summarize_times(seconds: Sequence[float] | NDArray[np.float64]) -> Milliseconds:
    """Return the median, the 99th percentile and the mean of some times."""
    times = np.asarray(seconds, dtype=np.float64) * 1000
    p50, p99 = np.percentile(times, (50, 99))
    return Milliseconds(p50=float(p50), p99=float(p99), mean=float(times.mean()))


def find_versions(packages: Sequence[str]) -> dict[str, str]:
    """Return the versions of Python and of those packages that are installed."""
    found = {"python": python_version()}
    for name in packages:
        with suppress(PackageNotFoundError):
            found[name] = version(name)
    return found


def _check(datasets: Sequence[Dataset], systems: Sequence[str]) -> None:
    if not datasets or not systems:
        raise UsageError("There is nothing to measure. Name a dataset and a system.")
    for dataset in datasets:
        if not dataset.queries:
            remedy = "Add a queries.jsonl to its folder."
            raise UsageError(f"The dataset {dataset.name!r} has no queries. {remedy}")
    for what, names in (("dataset", [d.name for d in datasets]), ("system", list(systems))):
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise UsageError(f"The {what} {twice[0]!r} is named twice. Name it once.")


def _run(system: System, name: str, dataset: Dataset, stream: int, progress: Progress) -> Outcome:
    """Search for every query once; the first one also before, so that no first use counts."""
    stage = f"{dataset.name}: {name}"
    total = len(dataset.queries)
    system.build(dataset.tools)
    progress(stage, 0, total)
    system.search(dataset.queries[0].text, RANKING_DEPTH)
    group_of = dataset.group_by_name()
    # Counting tokens in pure Python would cost more than most searches.
    replied = frozenset(Random(SEED).sample(range(total), min(REPLY_SAMPLE, total)))
    scores: list[list[float]] = []
    seconds: list[float] = []
    tokens: list[int] = []
    pairs = zip(dataset.queries, dataset.find_relevant_groups(), strict=True)
    for place, (query, relevant) in enumerate(pairs):
        start = perf_counter()
        hits = system.search(query.text, RANKING_DEPTH)
        seconds.append(perf_counter() - start)
        scores.append(compute_scores([group_of[hit.tool.name] for hit in hits], relevant))
        if place in replied:
            tokens.append(count_tokens(system.reply(query.text, hits[:REPLY_HITS])))
        if (place + 1) % PROGRESS_EVERY == 0 or place + 1 == total:
            progress(stage, place + 1, total)
    resampled = [resample(np.array(scores, dtype=np.float64), stream=stream)]
    return Outcome(
        metrics=_estimate_metrics(resampled),
        resampled=resampled,
        reply_tokens=float(np.mean(tokens)),
        ms=summarize_times(seconds),
        queries=total,
        tools=len(dataset.tools),
    )


def _compute_macro(outcomes: Sequence[Outcome]) -> Outcome:
    resampled = [samples for outcome in outcomes for samples in outcome.resampled]
    times = [(outcome.ms.p50, outcome.ms.p99, outcome.ms.mean) for outcome in outcomes]
    p50, p99, mean = np.mean(times, axis=0).tolist()
    return Outcome(
        metrics=_estimate_metrics(resampled),
        resampled=resampled,
        reply_tokens=float(np.mean([outcome.reply_tokens for outcome in outcomes])),
        ms=Milliseconds(p50=p50, p99=p99, mean=mean),
        queries=sum(outcome.queries for outcome in outcomes),
        tools=sum(outcome.tools for outcome in outcomes),
    )


def _estimate_metrics(resampled: Sequence[Resampled]) -> dict[str, Estimate]:
    return dict(zip(METRICS, estimate_means(resampled), strict=True))


class Tier:
    """toolscout's own search with an encoder: `static`, `onnx`, or `none` for words only.

    Raises `MissingExtra` if the encoder's packages are missing.
    """

    def __init__(self, encoder: str) -> None:
        makers = {"static": StaticEncoder, "onnx": OnnxEncoder}
        self._encoder = makers[encoder]() if encoder in makers else None
        self.build(())

    def build(self, tools: Sequence[Tool]) -> None:
        """Index these tools and forget the ones before."""
        self.catalog = Catalog(tools)
        self._index = Index(self.catalog, encoder=self._encoder)

    def search(self, query: str, limit: int) -> list[Ranked]:
        """Return the best tools; a query that cannot be read finds none."""
        if not query.strip():
            return []  # as a `Query`, it would list the catalogue
        try:
            # Users write plain words, so a query that begins with `-` or `/` is not parsed.
            hits = self._index.search(Query(text=query, words=query), limit=limit)
        except ModelError:
            return []
        return [Ranked(hit.tool, hit.score) for hit in hits]

    def reply(self, query: str, hits: Sequence[Ranked]) -> str:
        """Return a line for each tool: signature and first sentence."""
        lines = [render_hit_line(hit.tool) for hit in hits]
        return "\n".join(lines) or f"No tool found for {query!r}."


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Text in rows; the first column names the row, the others hold figures."""

    title: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def summarize(quality: Quality) -> Table:
    """Return one row for each system: every metric, tokens and time, averaged over datasets."""
    titles = [metric.title for metric in METRICS.values()]
    rows: list[tuple[str, ...]] = []
    for system, outcome in quality.macro.items():
        means = [f"{outcome.metrics[metric].mean:.3f}" for metric in METRICS]
        times = (f"{outcome.ms.p50:.2f}", f"{outcome.ms.p99:.2f}")
        rows.append((system, *means, f"{outcome.reply_tokens:.0f}", *times))
    return Table(
        title=f"Macro mean, datasets: {len(quality.datasets)}",
        head=("system", *titles, "tokens", "p50 ms", "p99 ms"),
        rows=tuple(rows),
    )


def tabulate_metric(quality: Quality, metric: str) -> Table:
    """Return one metric of each dataset and system, with intervals and the macro mean."""

    def format_interval(outcome: Outcome) -> str:
        found = outcome.metrics[metric]
        return f"{found.mean:.3f} [{found.low:.3f}, {found.high:.3f}]"

    return tabulate_outcomes(quality, METRICS[metric].title, format_interval)


def tabulate_outcomes(quality: Quality, title: str, cell: Callable[[Outcome], str]) -> Table:
    """Return one figure of each dataset and system, and of the macro mean in the last row."""
    systems = list(quality.macro)
    rows = [*quality.datasets.items(), ("macro", quality.macro)]
    cells = tuple((name, *(cell(found[system]) for system in systems)) for name, found in rows)
    return Table(title=title, head=("dataset", *systems), rows=cells)
