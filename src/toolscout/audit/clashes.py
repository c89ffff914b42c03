"""Rules about names: those that several tools ask for, or that hardly differ."""

from collections.abc import Callable, Iterable, Iterator, Sequence

from toolscout.audit.verdicts import Finding, Severity
from toolscout.catalog import RESERVED_NAMES, Catalog
from toolscout.names import fold_name, one_line
from toolscout.search.text import term, words
from toolscout.tools import Tool

SHOWN_OTHERS = 3
SHOWN_NAME = 64


def admitted(tools: Iterable[Tool]) -> tuple[Catalog, list[Finding]]:
    """Return a catalogue of tools and a finding for each that it cannot hold.

    Of tools that ask for one exposed name, the first is kept; an equal one is no mistake.
    """
    kept: dict[str, Tool] = {}
    found: list[Finding] = []
    for tool in tools:
        owner = kept.setdefault(tool.name, tool)
        if tool.name in RESERVED_NAMES:
            found.append(_taken(tool, "toolscout's own tool"))
            del kept[tool.name]
        elif owner is not tool and owner != tool:
            found.append(_taken(tool, f"{owner.leaf!r} of server {owner.server!r}"))
    by_server: dict[str, list[Tool]] = {}
    for tool in kept.values():
        by_server.setdefault(tool.server, []).append(tool)
    return Catalog(by_server), found


def clashing_names(tools: Sequence[Tool]) -> Iterator[Finding]:
    """Find tools of one server whose names differ in case and separators alone."""
    for group in _groups(tools, lambda tool: fold_name(tool.leaf)):
        for tool in group:
            others = _others(tool, group)
            yield Finding(
                tool=tool.name,
                code="name-clash",
                severity=Severity.ERROR,
                message=f"Its name differs only in spelling from {_shown(others)}.",
                remedy="Rename one: models and searches take these for one name.",
                others=others,
            )


def similar_names(tools: Sequence[Tool]) -> Iterator[Finding]:
    """Find tools of one server whose names have the same words in another form or order."""
    for group in _groups(tools, lambda tool: " ".join(sorted(map(term, words(tool.leaf))))):
        for tool in group:
            clear = [t for t in group if fold_name(t.leaf) != fold_name(tool.leaf)]
            others = _others(tool, clear)
            if others:
                yield Finding(
                    tool=tool.name,
                    code="similar-name",
                    severity=Severity.INFO,
                    message=f"Its name has the same words as {_shown(others)}.",
                    remedy="Say in name and first sentence what sets it apart, such as 'one' or "
                    "'all'.",
                    others=others,
                )


def _taken(tool: Tool, owner: str) -> Finding:
    return Finding(
        tool=tool.name,
        code="name-taken",
        severity=Severity.ERROR,
        message=f"{one_line(tool.leaf, SHOWN_NAME)!r} of server {tool.server!r} would be "
        f"{tool.name!r}, which {one_line(owner, 2 * SHOWN_NAME)} has. It cannot be catalogued.",
        remedy="Rename the tool or its server.",
    )


def _groups(tools: Sequence[Tool], key_of: Callable[[Tool], str]) -> Iterator[list[Tool]]:
    groups: dict[tuple[str, str], list[Tool]] = {}
    for tool in tools:
        key = key_of(tool)
        if key:
            groups.setdefault((tool.server, key), []).append(tool)
    return (group for group in groups.values() if len(group) > 1)


def _others(tool: Tool, group: Iterable[Tool]) -> tuple[str, ...]:
    return tuple(sorted(other.name for other in group if other.name != tool.name))


def _shown(names: Sequence[str]) -> str:
    shown = ", ".join(names[:SHOWN_OTHERS])
    more = len(names) - SHOWN_OTHERS
    return f"{shown} and {more} more" if more > 0 else shown
