"""Run tool searches over labelled datasets and measure how well each one finds.

Takes datasets and systems; gives a `Quality`: for each dataset and system every metric with its
interval, the tokens of a reply and the time of a search, and the macro mean, in which each
dataset has the same weight. Searches run one after another, and only `search` is timed.
It prints nothing: `tables` lays the figures out and the command line shows them.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from platform import python_version
from random import Random
from time import perf_counter
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from toolscout.errors import UsageError
from toolscout.evaluate.datasets import Dataset
from toolscout.evaluate.metrics import (
    METRICS,
    RANKING_DEPTH,
    Estimate,
    Resampled,
    compute_scores,
    estimate_differences,
    estimate_means,
    resample,
)
from toolscout.tokens import count_tokens
from toolscout.tools import Tool

Json = dict[str, Any]
Progress = Callable[[str, int, int], None]
"""Takes what is being done, how many queries are done, and how many there are."""

REPLY_HITS = 5
REPLY_SAMPLE = 200
REPLY_SEED = 20260901
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
    reply_tokens: float
    """Mean tokens of the reply for five hits, over a sample of the queries."""
    ms: Milliseconds
    queries: int
    tools: int

    def to_json(self) -> Json:
        """Return the metrics by name beside the other figures."""
        return {
            **_json_from_estimates(self.metrics),
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
    lead: Mapping[str, Mapping[str, Estimate]]
    """By every other system: how far the first one is ahead of it, macro, paired by query."""
    versions: Mapping[str, str]

    def to_json(self) -> Json:
        """Return the whole run as JSON."""
        return {
            "datasets": {
                dataset: {system: outcome.to_json() for system, outcome in by_system.items()}
                for dataset, by_system in self.datasets.items()
            },
            "macro": {system: outcome.to_json() for system, outcome in self.macro.items()},
            "lead": {system: _json_from_estimates(lead) for system, lead in self.lead.items()},
            "versions": dict(self.versions),
        }


@dataclass(frozen=True, slots=True)
class _Run:
    """An outcome with what is needed to average and compare it."""

    outcome: Outcome
    resampled: Resampled


@dataclass(slots=True)
class _Record:
    """What is noted of each query."""

    scores: list[list[float]] = field(default_factory=list[list[float]])
    seconds: list[float] = field(default_factory=list[float])
    tokens: list[int] = field(default_factory=list[int])


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
    runs: dict[str, dict[str, _Run]] = {dataset.name: {} for dataset in datasets}
    for stream, dataset in enumerate(datasets):
        for name in systems:
            record = _record(make(name), name, dataset, progress)
            runs[dataset.name][name] = _run(dataset, record, stream)
    return Quality(
        datasets={
            dataset: {system: run.outcome for system, run in by_system.items()}
            for dataset, by_system in runs.items()
        },
        macro={
            name: _compute_macro([by_system[name] for by_system in runs.values()])
            for name in systems
        },
        lead=_compare_systems(systems, list(runs.values())),
        versions=find_versions(packages),
    )


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
            raise UsageError(
                f"The dataset {dataset.name!r} has no queries. Add a queries.jsonl to its folder."
            )
    for what, names in (("dataset", [d.name for d in datasets]), ("system", list(systems))):
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise UsageError(f"The {what} {twice[0]!r} is named twice. Name it once.")


def _record(system: System, name: str, dataset: Dataset, progress: Progress) -> _Record:
    """Ask every query once; the first one also before, so that no first use of a part counts."""
    stage, total = f"{dataset.name}: {name}", len(dataset.queries)
    system.build(dataset.tools)
    progress(stage, 0, total)
    system.search(dataset.queries[0].text, RANKING_DEPTH)
    group_of, replied, record = dataset.group_by_name(), _sample_replies(dataset), _Record()
    for place, (query, relevant) in enumerate(
        zip(dataset.queries, dataset.find_relevant_groups(), strict=True)
    ):
        start = perf_counter()
        hits = system.search(query.text, RANKING_DEPTH)
        record.seconds.append(perf_counter() - start)
        record.scores.append(compute_scores([group_of[hit.tool.name] for hit in hits], relevant))
        if place in replied:
            record.tokens.append(count_tokens(system.reply(query.text, hits[:REPLY_HITS])))
        if (place + 1) % PROGRESS_EVERY == 0 or place + 1 == total:
            progress(stage, place + 1, total)
    return record


def _sample_replies(dataset: Dataset) -> frozenset[int]:
    # Counting tokens in pure Python would cost more than most searches.
    places = range(len(dataset.queries))
    return frozenset(Random(REPLY_SEED).sample(places, min(REPLY_SAMPLE, len(places))))


def _run(dataset: Dataset, record: _Record, stream: int) -> _Run:
    resampled = resample(np.array(record.scores, dtype=np.float64), stream=stream)
    outcome = Outcome(
        metrics=_map_metrics(estimate_means([resampled])),
        reply_tokens=float(np.mean(record.tokens)),
        ms=summarize_times(record.seconds),
        queries=len(dataset.queries),
        tools=len(dataset.tools),
    )
    return _Run(outcome, resampled)


def _compute_macro(runs: Sequence[_Run]) -> Outcome:
    outcomes = [run.outcome for run in runs]
    return Outcome(
        metrics=_map_metrics(estimate_means([run.resampled for run in runs])),
        reply_tokens=float(np.mean([outcome.reply_tokens for outcome in outcomes])),
        ms=Milliseconds(
            p50=float(np.mean([outcome.ms.p50 for outcome in outcomes])),
            p99=float(np.mean([outcome.ms.p99 for outcome in outcomes])),
            mean=float(np.mean([outcome.ms.mean for outcome in outcomes])),
        ),
        queries=sum(outcome.queries for outcome in outcomes),
        tools=sum(outcome.tools for outcome in outcomes),
    )


def _compare_systems(
    systems: Sequence[str], runs: Sequence[Mapping[str, _Run]]
) -> dict[str, dict[str, Estimate]]:
    by_name = {name: [by_system[name].resampled for by_system in runs] for name in systems}
    return {
        other: _map_metrics(estimate_differences(by_name[systems[0]], by_name[other]))
        for other in systems[1:]
    }


def _map_metrics(found: Sequence[Estimate]) -> dict[str, Estimate]:
    return dict(zip(METRICS, found, strict=True))


def _json_from_estimates(found: Mapping[str, Estimate]) -> Json:
    return {metric: estimate.to_json() for metric, estimate in found.items()}
