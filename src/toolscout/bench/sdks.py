"""Compare the tool searches of agent SDKs with toolscout's adapters in the same SDKs.

Takes datasets and the seats of `seats`; gives for each dataset, SDK and search the nDCG@10, the
tokens of what the model receives and the time of a search, and the macro mean. It prints nothing.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, median

from toolscout.bench.datasets import Dataset
from toolscout.bench.metrics import RANKING_DEPTH, ndcg
from toolscout.bench.quality import Progress, installed_versions
from toolscout.bench.report import Table
from toolscout.bench.seats import SEATS, Seat
from toolscout.bench.systems import MissingPeer
from toolscout.errors import MissingExtra, UsageError
from toolscout.schemas import Json
from toolscout.tools import Tool

Makers = Mapping[str, Mapping[str, Callable[[Sequence[Tool]], Seat]]]
PROBES = 10
"""Tools with which a seat is tried out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """How one search did in one SDK, on one dataset or on average."""

    ndcg: float
    """At ten hits."""
    tokens: float
    """Of the reply and of the tools of the next request, at the SDK's usual number of hits."""
    milliseconds: float
    """From the model's call to its next request; the median on a dataset."""

    def to_json(self) -> Json:
        """Return the figures, rounded."""
        return {
            "ndcg@10": round(self.ndcg, 6),
            "tokens": round(self.tokens, 2),
            "ms": round(self.milliseconds, 4),
        }


Standings = dict[str, dict[str, Standing]]
"""By SDK, then by search."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """All standings of one run."""

    datasets: Mapping[str, Standings]
    macro: Standings
    missing: Mapping[str, str]
    """What could not be compared, and what to install."""
    queries: int
    versions: Mapping[str, str]

    def to_json(self) -> Json:
        """Return the whole run as JSON."""
        return {
            "datasets": {name: _to_json(found) for name, found in self.datasets.items()},
            "macro": _to_json(self.macro),
            "missing": dict(self.missing),
            "queries": self.queries,
            "versions": dict(self.versions),
        }


def compare_sdks(
    datasets: Sequence[Dataset], *, makers: Makers = SEATS, progress: Progress | None = None
) -> Comparison:
    """Return how all searches that are installed here do on all datasets.

    Raises `UsageError` where no SDK is installed, or a dataset has no queries.
    """
    unasked = [dataset.name for dataset in datasets if not dataset.queries]
    if unasked or not datasets:
        raise UsageError(f"There is nothing to ask of {unasked or 'no dataset'}. Name others.")
    present, missing = _present(makers, datasets[0].tools[:PROBES])
    if not present:
        raise UsageError(f"No SDK is installed. {' '.join(sorted(set(missing.values())))}")
    found = {dataset.name: _on_dataset(dataset, present, progress) for dataset in datasets}
    return Comparison(
        datasets=found,
        macro=_macro(list(found.values())),
        missing=missing,
        queries=sum(len(dataset.queries) for dataset in datasets),
        versions=installed_versions(),
    )


def comparison_tables(comparison: Comparison) -> list[Table]:
    """Return the macro means, then nDCG@10 and tokens of each dataset."""
    head = ("SDK and search", "nDCG@10", "tokens", "ms")
    rows = [(name, *_cells(standing)) for name, standing in _listed(comparison.macro)]
    title = f"Macro mean, datasets: {len(comparison.datasets)}"
    return [
        Table(title=title, head=head, rows=tuple(rows)),
        _by_dataset(comparison, "nDCG@10", lambda standing: f"{standing.ndcg:.3f}"),
        _by_dataset(comparison, "Tokens", lambda standing: f"{standing.tokens:,.0f}"),
        _by_dataset(comparison, "Milliseconds", lambda standing: f"{standing.milliseconds:.1f}"),
    ]


def _present(makers: Makers, tools: Sequence[Tool]) -> tuple[Makers, dict[str, str]]:
    present: dict[str, dict[str, Callable[[Sequence[Tool]], Seat]]] = {}
    missing: dict[str, str] = {}
    for sdk, searches in makers.items():
        for search, make in searches.items():
            try:
                make(tools)
                present.setdefault(sdk, {})[search] = make
            except (MissingExtra, MissingPeer) as error:
                missing[f"{sdk}: {search}"] = str(error)
    return present, missing


def _on_dataset(dataset: Dataset, makers: Makers, progress: Progress | None) -> Standings:
    return {
        sdk: {
            search: asyncio.run(
                _standing(dataset, make(dataset.tools), f"{sdk} {search}", progress)
            )
            for search, make in searches.items()
        }
        for sdk, searches in makers.items()
    }


async def _standing(dataset: Dataset, seat: Seat, name: str, progress: Progress | None) -> Standing:
    group_of, asked = dataset.group_by_name(), dataset.queries
    gains: list[float] = []
    tokens: list[int] = []
    seconds: list[float] = []
    async with seat:
        await seat.ask(asked[0].text, deep=False)  # the first one indexes
        for query, relevant in zip(asked, dataset.relevant_groups(), strict=True):
            names = seat.names(await seat.ask(query.text, deep=True))
            ranking = [group_of[name] for name in names if name in group_of]
            gains.append(ndcg(ranking[:RANKING_DEPTH], relevant, RANKING_DEPTH))
            received = await seat.ask(query.text, deep=False)
            tokens.append(received.tokens)
            seconds.append(received.seconds)
            if progress is not None:
                progress(dataset.name, name, len(gains), len(asked))
    return Standing(ndcg=fmean(gains), tokens=fmean(tokens), milliseconds=median(seconds) * 1_000)


def _macro(found: Sequence[Standings]) -> Standings:
    return {
        sdk: {
            search: Standing(
                ndcg=fmean(one[sdk][search].ndcg for one in found),
                tokens=fmean(one[sdk][search].tokens for one in found),
                milliseconds=fmean(one[sdk][search].milliseconds for one in found),
            )
            for search in searches
        }
        for sdk, searches in found[0].items()
    }


def _listed(standings: Standings) -> list[tuple[str, Standing]]:
    return [
        (f"{sdk}: {search}", standing)
        for sdk, searches in standings.items()
        for search, standing in searches.items()
    ]


def _cells(standing: Standing) -> tuple[str, str, str]:
    return (
        f"{standing.ndcg:.3f}",
        f"{standing.tokens:,.0f}",
        f"{standing.milliseconds:.1f}",
    )


def _by_dataset(comparison: Comparison, title: str, cell: Callable[[Standing], str]) -> Table:
    names = [name for name, _ in _listed(comparison.macro)]
    rows = [
        (dataset, *(cell(standing) for _, standing in _listed(standings)))
        for dataset, standings in (*comparison.datasets.items(), ("macro", comparison.macro))
    ]
    return Table(title=title, head=("dataset", *names), rows=tuple(rows))


def _to_json(standings: Standings) -> Json:
    return {
        sdk: {search: standing.to_json() for search, standing in searches.items()}
        for sdk, searches in standings.items()
    }
