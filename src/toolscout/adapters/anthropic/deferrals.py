"""Anthropic's rules for definitions that the provider keeps hidden until something refers to them.

Takes definitions as the Messages API has them, and which of them to hide; gives those of a
request that the provider accepts, or raises before it is sent. Which tools are hidden is decided
by the session.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from toolscout.errors import UsageError
from toolscout.schemas import Json

TOOLS_LIMIT = 10_000
"""Definitions that the provider takes in one request."""
HOSTED: Mapping[str, str] = {
    "bm25": "tool_search_tool_bm25_20251119",
    "regex": "tool_search_tool_regex_20251119",
}
"""The provider's own searches, by ranking."""
_UNDEFERRABLE = ("cache_control", "input_examples")
"""Members that the provider refuses on a hidden definition."""


def defer(definitions: Iterable[Mapping[str, Any]], hidden: Collection[str]) -> list[Json]:
    """Return the definitions, those of the hidden names marked for the provider to hide.

    The breakpoint of a cache goes to the last one that is not hidden if any had one.
    """
    given = [dict(definition) for definition in definitions]
    if len(given) > TOOLS_LIMIT:
        raise UsageError(
            f"A request would declare {len(given):,} tools, and the provider takes "
            f"{TOOLS_LIMIT:,}. Use the mode 'bridge', which declares three."
        )
    names = frozenset(hidden)
    shown = [definition for definition in given if definition.get("name") not in names]
    if given and not shown:
        raise UsageError(
            "All tools of a request would be hidden, and the provider refuses that. "
            "Declare the search tool beside them, and do not hide it."
        )
    points = [each["cache_control"] for each in given if each.get("cache_control")]
    for definition in shown:
        _strip(definition, "cache_control", "defer_loading")
    if points:
        shown[-1]["cache_control"] = points[-1]
    return [_deferred(each) if each.get("name") in names else each for each in given]


def hosted_search(ranking: str) -> Json:
    """Return the definition of the provider's own search."""
    if ranking not in HOSTED:
        raise UsageError(f"There is no hosted search {ranking!r}. Use {' or '.join(HOSTED)}.")
    return {"type": HOSTED[ranking], "name": f"tool_search_tool_{ranking}"}


def _deferred(definition: Json) -> Json:
    _strip(definition, *_UNDEFERRABLE)
    return definition | {"defer_loading": True}


def _strip(definition: Json, *keys: str) -> None:
    for key in keys:
        definition.pop(key, None)
