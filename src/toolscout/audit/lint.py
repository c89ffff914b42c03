"""All rules over one catalogue."""

from collections.abc import Callable, Iterable, Iterator, Sequence

from toolscout.audit.clashes import clashing_names, similar_names
from toolscout.audit.duplicates import twins
from toolscout.audit.probes import Probe, missed_queries, missed_sentences
from toolscout.audit.rules import RULES
from toolscout.audit.verdicts import Finding
from toolscout.catalog import Catalog
from toolscout.search.index import Index
from toolscout.tools import Tool

MOST_PROBED = 4_000
"""Tools whose first sentence is tried; each takes one search. Of more, some are tried, evenly
spread, so that a large catalogue takes seconds and gives the same findings every time."""


Progress = Callable[[str, int, int], None]
"""Told what is being looked at, how much of it is done, and how much there is."""


def findings(
    catalog: Catalog,
    index: Index,
    *,
    probes: Sequence[Probe] = (),
    most_probed: int = MOST_PROBED,
    progress: Progress = lambda stage, done, total: None,
) -> dict[str, list[Finding]]:
    """Return the findings of each tool that has any, worst first; tools by name.

    `probes` are queries with the tools that they are to find.
    """
    tools = catalog.tools
    tried = probed_tools(tools, most_probed)
    found: list[Finding] = []
    found += _alone(tools, _counted(progress, "Reading definitions", len(tools)))
    found += (*clashing_names(tools), *similar_names(tools))
    found += twins(index, _counted(progress, "Comparing tools", len(tools)))
    found += missed_sentences(tried, index, _counted(progress, "Trying sentences", len(tried)))
    found += missed_queries(
        probes, catalog, index, _counted(progress, "Trying queries", len(probes))
    )
    return by_tool(found)


def probed_tools(tools: Sequence[Tool], most: int = MOST_PROBED) -> Sequence[Tool]:
    """Return the tools whose first sentence is tried: all, or some that are evenly spread."""
    return tools[:: max(1, -(-len(tools) // max(1, most)))]


def by_tool(found: Iterable[Finding]) -> dict[str, list[Finding]]:
    """Return findings by tool, worst first; tools by name."""
    groups: dict[str, list[Finding]] = {}
    for finding in sorted(found, key=lambda f: (f.tool, -f.severity.rank, f.code, f.message)):
        groups.setdefault(finding.tool, []).append(finding)
    return groups


def _alone(tools: Sequence[Tool], progress: Callable[[int], None]) -> Iterator[Finding]:
    for tool in tools:
        for rule in RULES:
            finding = rule(tool)
            if finding is not None:
                yield finding
        progress(1)


def _counted(progress: Progress, stage: str, total: int) -> Callable[[int], None]:
    done = 0

    def count(more: int) -> None:
        nonlocal done
        done += more
        progress(stage, done, total)

    return count
