"""Which tools a pin or a route means: a name, a server, or a pattern with `*`."""

import re
from collections.abc import Callable, Iterable, Sequence
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import Any

from toolscout.names import find_near_names, fold_name
from toolscout.settings import Settings
from toolscout.tools import Tool

CLAUDE_PREFIX = "mcp__"
KEYWORD_EDGE = r"[^\W_\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]"
"""A letter or digit that goes on a word; Han, kana and hangul are written without blanks."""


def find_meant(target: str, tools: Iterable[Tool]) -> list[Tool]:
    """Return the tools that a target means, by name: an exposed name, a leaf, a server, `git*`.

    Case and separators do not matter, nor does `mcp__` in front, as Claude Code writes it.
    """
    whole = target.casefold()
    forms = {whole, whole.removeprefix(CLAUDE_PREFIX)}
    if "*" in target:
        return [t for t in tools if any(fnmatchcase(t.name.casefold(), form) for form in forms)]
    keys = {fold_name(form) for form in forms} - {""}
    return [t for t in tools if not keys.isdisjoint(map(fold_name, (t.name, t.server, t.leaf)))]


def find_pinned(
    tools: Sequence[Tool], settings: Settings, pins: Iterable[str] = ()
) -> tuple[list[Tool], list[str]]:
    """Return the tools that are always shown, by name, and the pins that mean nothing (R58).

    Pinned are: what the host names or its own rule does not hide (R91), what a server marks
    `alwaysLoad`, and the host's own essential tools.
    """
    # This copies what can change, which is then the same as nothing before, but not a tuple.
    found, unknown = _find_pinned(_Same(tuple(tools)), _Same(settings), tuple(pins))
    return list(found), list(unknown)


class _Same:
    """A value that equals itself alone, so that comparing many tools costs nothing."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __hash__(self) -> int:
        return id(self.value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and other.value is self.value


# Adapters open a session for every request, and all look at the same tools.
@lru_cache(maxsize=4)
def _find_pinned(
    of: _Same, by: _Same, pins: tuple[str, ...]
) -> tuple[tuple[Tool, ...], tuple[str, ...]]:
    tools: Sequence[Tool] = of.value
    settings: Settings = by.value
    hide = settings.hide
    is_open = {tool.name for tool in tools if not hide(tool)} if hide is not None else set[str]()
    found = {tool.name: tool for tool in tools if tool.always_load or tool.name in is_open}
    own = [tool for tool in tools if not tool.server]
    for name in settings.essential:
        is_qualified = name.casefold().startswith(CLAUDE_PREFIX)
        found |= {tool.name: tool for tool in find_meant(name, tools if is_qualified else own)}
    unknown: list[str] = []
    for pin in dict.fromkeys((*settings.pins, *pins)):
        meant = find_meant(pin, tools)
        found |= {tool.name: tool for tool in meant}
        if not meant:
            unknown.append(pin)
    return tuple(found[name] for name in sorted(found)), tuple(unknown)


def list_near_targets(pin: str, tools: Iterable[Tool]) -> list[str]:
    """Return names and servers that resemble a pin."""
    names = {tool.name for tool in tools} | {tool.server for tool in tools if tool.server}
    return find_near_names(pin, names)


def find_routed(
    message: str,
    tools: Sequence[Tool],
    settings: Settings,
    ranked: Callable[[list[Tool]], list[Tool]],
) -> list[Tool]:
    """Return the tools whose keywords a message mentions, by priority, then by name (R101).

    Of a target that means several tools, such as a server, `ranked` puts the best first.
    """
    text = message.casefold()
    hits = [
        (-route.priority, target)
        for target, route in settings.routes.items()
        if route.prefer and any(has_keyword(text, keyword) for keyword in route.keywords)
    ]
    found: dict[str, Tool] = {}
    for _, target in sorted(hits):
        meant = find_meant(target, tools)
        found |= {tool.name: tool for tool in (ranked(meant) if len(meant) > 1 else meant)}
    return list(found.values())[: settings.routed]


def has_keyword(text: str, keyword: str) -> bool:
    """Tell whether a casefolded text has a keyword that is not the middle of another word."""
    word = re.escape(keyword.casefold().strip())
    return re.search(f"(?<!{KEYWORD_EDGE}){word}(?!{KEYWORD_EDGE})", text) is not None
