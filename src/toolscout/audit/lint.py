"""Lint a catalogue: run every check and collect the findings by tool.

The checks of names across tools are here; `rules`, `duplicates` and `probes` hold the others.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence

from toolscout.audit.duplicates import find_twins
from toolscout.audit.probes import Probe, find_missed_queries, find_missed_sentences
from toolscout.audit.rules import RULES, Finding, Severity
from toolscout.catalog import RESERVED_NAMES, Catalog
from toolscout.names import fold_name, to_one_line
from toolscout.search.index import Index
from toolscout.search.text import split_words, stem
from toolscout.tools import Tool

SHOWN_OTHERS = 3
SHOWN_NAME = 64


def build_catalog(tools: Iterable[Tool]) -> tuple[Catalog, list[Finding]]:
    """Return a catalogue of tools, and a finding for each tool that it cannot hold.

    If tools share an exposed name, the first one is kept; an exact copy is not a finding.
    """
    by_name: dict[str, Tool] = {}
    found: list[Finding] = []
    for tool in tools:
        owner = by_name.setdefault(tool.name, tool)
        if tool.name in RESERVED_NAMES:
            found.append(_report_taken_name(tool, "toolscout's own tool"))
            del by_name[tool.name]
        elif owner is not tool and owner != tool:
            found.append(_report_taken_name(tool, f"{owner.leaf!r} of server {owner.server!r}"))
    by_server: dict[str, list[Tool]] = {}
    for tool in by_name.values():
        by_server.setdefault(tool.server, []).append(tool)
    return Catalog(by_server), found


def find_clashing_names(tools: Sequence[Tool]) -> Iterator[Finding]:
    """Find tools of one server whose names differ only in case and separators."""
    for group in _group_by_server(tools, lambda tool: fold_name(tool.leaf)):
        for tool in group:
            others = _list_others(tool, group)
            yield Finding(
                tool=tool.name,
                code="name-clash",
                severity=Severity.ERROR,
                message=f"Its name differs only in spelling from {_format_names(others)}.",
                remedy="Rename one: to models and searches, these are the same name.",
                others=others,
            )


def find_similar_names(tools: Sequence[Tool]) -> Iterator[Finding]:
    """Find tools of one server whose names have the same words in another form or order."""
    for group in _group_by_server(
        tools, lambda tool: " ".join(sorted(map(stem, split_words(tool.leaf))))
    ):
        for tool in group:
            clear = [t for t in group if fold_name(t.leaf) != fold_name(tool.leaf)]
            others = _list_others(tool, clear)
            if others:
                yield Finding(
                    tool=tool.name,
                    code="similar-name",
                    severity=Severity.INFO,
                    message=f"Its name has the same words as {_format_names(others)}.",
                    remedy="Say in the name and the first sentence what sets it apart, such as "
                    "'one' or 'all'.",
                    others=others,
                )


def _report_taken_name(tool: Tool, owner: str) -> Finding:
    return Finding(
        tool=tool.name,
        code="name-taken",
        severity=Severity.ERROR,
        message=f"{to_one_line(tool.leaf, SHOWN_NAME)!r} of server {tool.server!r} would be "
        f"{tool.name!r}, the name of {to_one_line(owner, 2 * SHOWN_NAME)}. It cannot be "
        "catalogued.",
        remedy="Rename the tool or its server.",
    )


def _group_by_server(tools: Sequence[Tool], key_of: Callable[[Tool], str]) -> Iterator[list[Tool]]:
    groups: dict[tuple[str, str], list[Tool]] = {}
    for tool in tools:
        key = key_of(tool)
        if key:
            groups.setdefault((tool.server, key), []).append(tool)
    return (group for group in groups.values() if len(group) > 1)


def _list_others(tool: Tool, group: Iterable[Tool]) -> tuple[str, ...]:
    return tuple(sorted(other.name for other in group if other.name != tool.name))


def _format_names(names: Sequence[str]) -> str:
    shown = ", ".join(names[:SHOWN_OTHERS])
    more = len(names) - SHOWN_OTHERS
    return f"{shown} and {more} more" if more > 0 else shown


MOST_PROBED = 4_000
"""How many first sentences are tried, each with one search. In a larger catalogue they are evenly
spread, so that it takes seconds and gives the same findings every time."""


Progress = Callable[[str, int, int], None]
"""Called with the current stage, how many steps of it are done, and how many there are."""


def lint_catalog(
    catalog: Catalog,
    index: Index,
    *,
    probes: Sequence[Probe] = (),
    most_probed: int = MOST_PROBED,
    progress: Progress = lambda stage, done, total: None,
) -> dict[str, list[Finding]]:
    """Return the findings by tool, worst first, with the tools sorted by name.

    `probes` are queries with the tools that they should find.
    """
    tools = catalog.tools
    tried = sample_tools(tools, most_probed)
    found: list[Finding] = []
    found += _check_single_tools(
        tools, _count_progress(progress, "Reading definitions", len(tools))
    )
    found += (*find_clashing_names(tools), *find_similar_names(tools))
    found += find_twins(index, _count_progress(progress, "Comparing tools", len(tools)))
    found += find_missed_sentences(
        tried, index, _count_progress(progress, "Trying sentences", len(tried))
    )
    found += find_missed_queries(
        probes, catalog, index, _count_progress(progress, "Trying queries", len(probes))
    )
    return group_by_tool(found)


def sample_tools(tools: Sequence[Tool], most: int = MOST_PROBED) -> Sequence[Tool]:
    """Return the tools whose first sentence is tried: all, or an evenly spread sample."""
    return tools[:: max(1, -(-len(tools) // max(1, most)))]


def group_by_tool(found: Iterable[Finding]) -> dict[str, list[Finding]]:
    """Return findings by tool, worst first, with the tools sorted by name."""
    groups: dict[str, list[Finding]] = {}
    for finding in sorted(found, key=lambda f: (f.tool, -f.severity.rank, f.code, f.message)):
        groups.setdefault(finding.tool, []).append(finding)
    return groups


def _check_single_tools(
    tools: Sequence[Tool], progress: Callable[[int], None]
) -> Iterator[Finding]:
    for tool in tools:
        for rule in RULES:
            finding = rule(tool)
            if finding is not None:
                yield finding
        progress(1)


def _count_progress(progress: Progress, stage: str, total: int) -> Callable[[int], None]:
    done = 0

    def count(more: int) -> None:
        nonlocal done
        done += more
        progress(stage, done, total)

    return count
