"""What hints cost: how many tools have one, and how much slower and larger a search gets."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from time import process_time

from toolscout.cli.inputs import catalog_from_tools
from toolscout.evaluate.datasets import Dataset
from toolscout.evaluate.quality import Table
from toolscout.search.index import Index


@dataclass(frozen=True, slots=True, kw_only=True)
class HintCosts:
    """A catalogue with the shipped hints, compared with the same one without."""

    tools: int
    hinted: int
    """Tools that have a hint."""
    build_ratio: float
    search_ratio: float
    """Of the medians, by processor time, searches in turns."""


def measure_hint_costs(dataset: Dataset, queries: Sequence[str], rounds: int) -> HintCosts:
    """Search a catalogue with and without the shipped hints, in turns."""
    catalog = catalog_from_tools(dataset.tools)
    begin = process_time()
    plain = Index(catalog, hints=None)
    middle = process_time()
    hinted = Index(catalog)
    end = process_time()
    seconds: tuple[list[float], list[float]] = ([], [])
    for query in queries:  # once before, because words are encoded only the first time
        plain.search(query)
        hinted.search(query)
    for query in list(queries) * rounds:
        for index, taken in zip((plain, hinted), seconds, strict=True):
            started = process_time()
            index.search(query)
            taken.append(process_time() - started)
    assert hinted.hints is not None, "an index has the shipped hints by default"
    return HintCosts(
        tools=len(catalog),
        hinted=sum(bool(hinted.hints.find(tool)) for tool in catalog),
        build_ratio=(end - middle) / (middle - begin),
        search_ratio=statistics.median(seconds[1]) / statistics.median(seconds[0]),
    )


def tabulate_hint_costs(found: HintCosts) -> Table:
    """Return the figures as a table."""
    rows = (
        ("tools", f"{found.tools:,}"),
        ("tools with a hint", f"{found.hinted:,}"),
        ("building the index, times", f"{found.build_ratio:.2f}"),
        ("median of a search, times", f"{found.search_ratio:.2f}"),
    )
    return Table(title="With shipped hints, compared with none", head=("", ""), rows=rows)
