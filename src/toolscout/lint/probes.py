"""Try probes: queries that should find a certain tool.

Some are made from a tool's own first sentence, without its name; others come from a file.
"""

import json
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from toolscout.catalog import Catalog
from toolscout.errors import InvalidFile, ModelError
from toolscout.lint.rules import Finding, Severity
from toolscout.names import find_near_names, to_one_line
from toolscout.query import Query
from toolscout.schemas import is_list, is_object
from toolscout.search.index import SearchIndex
from toolscout.search.text import drop_stop_words, split_words
from toolscout.tools import Tool

FOUND_WITHIN = 5
"""How many hits a reply shows to a model by default."""
LOOKED_AT = 50
LEAST_WORDS = 3
SHOWN_QUERY = 80
SHOWN_BETTER = 3
REMEDY = 'Write one {"query": "…", "tool": "name"} on each line.'


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """A query and the tools of which it should find at least one."""

    query: str
    tools: tuple[str, ...]
    times: int = 1
    """How often the query was recorded."""


def read_probes(path: Path) -> list[Probe]:
    """Return the probes of a `.jsonl` file: `query` with `tool`, `tools` or `relevant`."""
    try:
        lines = path.read_text(encoding="utf-8-sig").split("\n")
    except UnicodeDecodeError:
        raise InvalidFile(str(path), "is not UTF-8", remedy=REMEDY) from None
    probes: list[Probe] = []
    for number, line in enumerate(lines, 1):
        if line.strip():
            try:
                probes.append(_probe_from_row(json.loads(line)))
            except (ValueError, KeyError, TypeError):
                problem = "has no query with a tool"
                raise InvalidFile(str(path), problem, line=number, remedy=REMEDY) from None
    return probes


def find_missed_queries(
    probes: Iterable[Probe], catalog: Catalog, index: SearchIndex
) -> Iterator[Finding]:
    """Find tools that a probe should find but does not."""
    for probe in probes:
        wanted = [tool for name in probe.tools for tool in catalog.resolve(name)]
        if wanted:
            rank, names = find_rank(index, probe.query, {tool.name for tool in wanted})
            if rank is None or rank > FOUND_WITHIN:
                yield _report_missed(wanted[0], probe.query, rank, names, given=True)
        else:
            name = probe.tools[0]
            near = tuple(find_near_names(name, (tool.name for tool in catalog.tools)))
            asked = to_one_line(probe.query, SHOWN_QUERY)
            missing = f"{to_one_line(name, SHOWN_QUERY)!r}, which is not in the catalogue"
            message = f"The query {asked!r} should find {missing}."
            remedy = f"Near: {', '.join(near)}." if near else "Check the name."
            yield Finding(name, "missed-query", Severity.ERROR, message, remedy, near)


def find_missed_sentences(tools: Iterable[Tool], index: SearchIndex) -> Iterator[Finding]:
    """Find tools that not even their own first sentence finds."""
    for tool in tools:
        query = build_own_query(tool)
        if query:
            # Not parsed, because a sentence may contain words that look like a filter.
            rank, names = find_rank(index, Query(text=query, words=query), {tool.name})
            if rank is None or rank > FOUND_WITHIN:
                yield _report_missed(tool, query, rank, names, given=False)


def build_own_query(tool: Tool) -> str:
    """Return a query made of a tool's first sentence, or nothing if that has too few words."""
    sentence = tool.first_sentence.replace(tool.name, " ").replace(tool.leaf, " ")
    asked = split_words(sentence)
    return " ".join(asked) if len(drop_stop_words(asked)) >= LEAST_WORDS else ""


def find_rank(
    index: SearchIndex, query: str | Query, wanted: Collection[str]
) -> tuple[int | None, list[str]]:
    """Return the rank of the first wanted tool, if it is found, and the names of all hits."""
    try:
        hits = index.search(query, LOOKED_AT).hits
    except ModelError:  # an invalid query finds nothing
        hits = ()
    names = [hit.tool.name for hit in hits]
    return next((at for at, name in enumerate(names, 1) if name in wanted), None), names


def _report_missed(
    tool: Tool, query: str, rank: int | None, names: Sequence[str], *, given: bool
) -> Finding:
    better = tuple(names[:SHOWN_BETTER])
    place = f"at rank {rank}" if rank is not None else f"not among the first {LOOKED_AT}"
    first = f", behind {', '.join(better)}" if better else ""
    asked = to_one_line(query, SHOWN_QUERY)
    if given:
        message = f"The query {asked!r} finds it {place}{first}."
        remedy = "Use the words of the query in its description, or add them as a search hint."
        return Finding(tool.name, "missed-query", Severity.ERROR, message, remedy, better)
    message = f"The query {asked!r} of its own description finds it {place}{first}."
    remedy = "Begin the description with what only this tool does, and name its subject."
    return Finding(tool.name, "missed-sentence", Severity.WARNING, message, remedy, better)


def _probe_from_row(row: object) -> Probe:
    if not is_object(row):
        raise ValueError
    named: Any = row.get("tool") or row.get("tools") or row.get("relevant")
    names = tuple(named) if is_list(named) else (named,)
    query: Any = row["query"]
    if not isinstance(query, str) or not all(isinstance(n, str) and n for n in names) or not names:
        raise ValueError
    times: Any = row.get("times", 1)
    return Probe(query=query, tools=names, times=times if isinstance(times, int) else 1)
