"""Lint a catalogue: run every check and collect the findings by tool.

The checks of names across tools are here; `rules`, `duplicates`, `probes` and `scanner` hold the
others.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar

from toolscout.catalog import RESERVED_NAMES, Catalog
from toolscout.lint.duplicates import find_twins
from toolscout.lint.probes import Probe, find_missed_queries, find_missed_sentences
from toolscout.lint.rules import RULES, Finding, Severity
from toolscout.lint.scanner import list_owners, scan_tool
from toolscout.names import fold_name, list_some, to_one_line
from toolscout.search.index import SearchIndex
from toolscout.search.text import split_words, stem
from toolscout.tools import Tool

MOST_PROBED = 4_000
"""How many first sentences are tried, each with one search. In a larger catalogue they are evenly
spread, so that it takes seconds and gives the same findings every time."""
SHOWN_OTHERS = 3
SHOWN_NAME = 64

Progress = Callable[[str, int, int], None]
"""Called with the current stage, how many steps of it are done, and how many there are."""

_T = TypeVar("_T")


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
            found.append(_report_taken_name(tool, _name_owner(owner)))
    return Catalog(list(by_name.values())), found


def find_clashing_names(tools: Sequence[Tool]) -> Iterator[Finding]:
    """Find tools of one server whose names differ only in case and separators."""
    for tool, group in _pair_with_groups(tools, lambda tool: fold_name(tool.leaf)):
        others = tuple(sorted(other.name for other in group if other is not tool))
        message = f"Its name differs only in spelling from {list_some(others, SHOWN_OTHERS)}."
        remedy = "Rename one: to models and searches, these are the same name."
        yield Finding(tool.name, "name-clash", Severity.ERROR, message, remedy, others)


def find_similar_names(tools: Sequence[Tool]) -> Iterator[Finding]:
    """Find tools of one server whose names have the same words in another form or order."""

    def sort_words(tool: Tool) -> str:
        return " ".join(sorted(map(stem, split_words(tool.leaf))))

    for tool, group in _pair_with_groups(tools, sort_words):
        folded = fold_name(tool.leaf)
        others = tuple(sorted(other.name for other in group if fold_name(other.leaf) != folded))
        if others:
            message = f"Its name has the same words as {list_some(others, SHOWN_OTHERS)}."
            place = "in the name and the first sentence"
            remedy = f"Say {place} what sets it apart, such as 'one' or 'all'."
            yield Finding(tool.name, "similar-name", Severity.INFO, message, remedy, others)


def _name_owner(tool: Tool) -> str:
    owner = f"server {tool.server!r}" if tool.server else "no server"
    return f"{to_one_line(tool.leaf, SHOWN_NAME)!r} of {owner}"


def _report_taken_name(tool: Tool, owner: str) -> Finding:
    taken = f"{tool.name!r}, the name of {to_one_line(owner, 2 * SHOWN_NAME)}"
    message = f"{_name_owner(tool)} would be {taken}. It cannot be catalogued."
    remedy = "Rename the tool or its server."
    return Finding(tool.name, "name-taken", Severity.ERROR, message, remedy)


def _pair_with_groups(
    tools: Sequence[Tool], key_of: Callable[[Tool], str]
) -> Iterator[tuple[Tool, list[Tool]]]:
    """Yield each tool with all tools of its server that have the same key, if it has one."""
    groups: dict[tuple[str, str], list[Tool]] = {}
    for tool in tools:
        key = key_of(tool)
        if key:
            groups.setdefault((tool.server, key), []).append(tool)
    for group in groups.values():
        if len(group) > 1:
            yield from ((tool, group) for tool in group)


def lint_catalog(
    catalog: Catalog,
    index: SearchIndex,
    *,
    probes: Sequence[Probe] = (),
    collisions: Iterable[Finding] = (),
    most_probed: int = MOST_PROBED,
    progress: Progress = lambda stage, done, total: None,
) -> dict[str, list[Finding]]:
    """Return the findings by tool, worst first, with the tools sorted by name.

    `probes` are queries with the tools that they should find; `collisions` are what
    `build_catalog` found.
    """

    def track(stage: str, items: Sequence[_T]) -> Iterator[_T]:
        for done, item in enumerate(items, 1):
            yield item
            progress(stage, done, len(items))

    def report_compared(done: int) -> None:
        progress("Comparing tools", done, len(tools))

    tools = catalog.tools
    found = list(collisions)
    for tool in track("Reading definitions", tools):
        found += filter(None, (rule(tool) for rule in RULES))
    owners = list_owners(tools)
    for tool in track("Scanning for attacks", tools):
        found += scan_tool(tool, owners)
    found += (*find_clashing_names(tools), *find_similar_names(tools))
    found += find_twins(index, report_compared)
    tried = track("Trying sentences", sample_tools(tools, most_probed))
    found += find_missed_sentences(tried, index)
    found += find_missed_queries(track("Trying queries", probes), catalog, index)
    groups: dict[str, list[Finding]] = {}
    for finding in sorted(found, key=lambda f: (f.tool, -f.severity.rank, f.code, f.message)):
        groups.setdefault(finding.tool, []).append(finding)
    return groups


def sample_tools(tools: Sequence[Tool], most: int = MOST_PROBED) -> Sequence[Tool]:
    """Return the tools whose first sentence is tried: all, or an evenly spread sample."""
    return tools[:: max(1, -(-len(tools) // max(1, most)))]
