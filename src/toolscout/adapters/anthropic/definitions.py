"""Definitions and references in requests of Anthropic's shape.

`Declarations` gives the definitions of a request: each as the SDK would write it without toolscout,
with hidden ones marked by the provider's rules. `prune` removes references to tools that a request
no longer declares, because the provider would refuse the whole conversation for one of them. The
session decides which tools are hidden.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, Generic, TypeGuard, TypeVar, cast

from toolscout import Session, Tool
from toolscout.adapters._toolkit import (
    RESERVED_NAMES,
    Dialect,
    Json,
    Toolkit,
    is_list,
    to_definition,
)
from toolscout.errors import UsageError

TOOLS_LIMIT = 10_000
"""How many definitions the provider accepts in one request."""
HOSTED: Mapping[str, str] = {
    "bm25": "tool_search_tool_bm25_20251119",
    "regex": "tool_search_tool_regex_20251119",
}
"""The provider's own searches."""
_UNDEFERRABLE = ("cache_control", "input_examples")
"""Members that the provider refuses in a hidden definition."""


def defer(definitions: Iterable[Mapping[str, Any]], hidden: Collection[str]) -> list[Json]:
    """Return the definitions, with the hidden ones marked for the provider.

    If any has a cache breakpoint, the last definition that is not hidden gets it.
    """
    given = [dict(definition) for definition in definitions]
    if len(given) > TOOLS_LIMIT:
        raise UsageError(
            f"A request would declare {len(given):,} tools, and the provider accepts "
            f"{TOOLS_LIMIT:,}. Use mode 'bridge', which declares three."
        )
    names = frozenset(hidden)
    shown = [definition for definition in given if definition.get("name") not in names]
    if given and not shown:
        raise UsageError(
            "All tools of a request would be hidden, and the provider refuses that. "
            "Declare a search tool as well, and do not hide it."
        )
    points = [each["cache_control"] for each in given if each.get("cache_control")]
    for definition in shown:
        _strip(definition, "cache_control", "defer_loading")
    if points:
        shown[-1]["cache_control"] = points[-1]
    return [_mark_deferred(each) if each.get("name") in names else each for each in given]


def create_hosted_search(ranking: str) -> Json:
    """Return the definition of the provider's own search."""
    if ranking not in HOSTED:
        raise UsageError(f"There is no hosted search {ranking!r}. Use {' or '.join(HOSTED)}.")
    return {"type": HOSTED[ranking], "name": f"tool_search_tool_{ranking}"}


def _mark_deferred(definition: Json) -> Json:
    _strip(definition, *_UNDEFERRABLE)
    return definition | {"defer_loading": True}


def _strip(definition: Json, *keys: str) -> None:
    for key in keys:
        definition.pop(key, None)


T = TypeVar("T")


class Declarations(Generic[T]):
    """The definitions of requests."""

    def __init__(
        self,
        toolkit: Toolkit[T],
        write: Callable[[T], Json],
        *,
        passed: Iterable[Json] = (),
        hosted: str = "",
    ) -> None:
        """`passed` are definitions to send first and unchanged; `hosted` is `bm25` or `regex`."""
        self.toolkit = toolkit
        self._write = write
        self._passed = list(passed)
        self._hosted = [create_hosted_search(hosted)] if hosted else []

    def list_definitions(self, session: Session, forced: str = "") -> list[Json]:
        """Return the definitions of the next request, in which a `forced` tool is not hidden."""
        shown = session.list_shown(listing=True)
        names = {each.tool.name for each in shown}
        hidden = {each.tool.name for each in shown if each.deferred} - {forced}
        definitions = [self._define(each.tool) for each in shown]
        if self._hosted and hidden:
            others = [each for each in definitions if each["name"] not in RESERVED_NAMES]
            definitions = [*self._hosted, *others]
        tool = self.toolkit.scout.catalog.get(forced)
        if tool is not None and forced not in names:
            definitions.append(self._define(tool))
        return [*self._passed, *defer(definitions, hidden)]

    def _define(self, tool: Tool) -> Json:
        native = self.toolkit.get(tool.name)
        if native is None:
            return to_definition(tool, Dialect.ANTHROPIC)
        return self._write(native) | {"name": tool.name}


GONE = "The tools that were found here are gone. Search again."

_CHANGES = ("tool_addition", "tool_removal")


def prune(messages: Iterable[object], declared: Collection[str]) -> list[object]:
    """Return the messages without references to tools that are not declared.

    An unchanged message is the same object, so that a cached prefix stays cached. A result that
    loses all its references becomes a sentence, because the provider refuses an empty one.
    """
    names = frozenset(declared)
    pruned = (_prune_message(message, names) for message in messages)
    return [message for message in pruned if message is not None]


def list_references(messages: Iterable[object]) -> list[str]:
    """Return the tools that messages refer to, in order of first appearance."""
    found: dict[str, None] = {}
    for message in messages:
        for block in _list_blocks(message):
            found.update(dict.fromkeys(_list_names(block)))
    return list(found)


def _prune_message(message: object, names: frozenset[str]) -> object | None:
    blocks = _list_blocks(message)
    if all(name in names for block in blocks for name in _list_names(block)):
        return message
    kept = [
        block for block in (_prune_block(block, names) for block in blocks) if block is not None
    ]
    return {**cast("Mapping[str, Any]", message), "content": kept} if kept else None


def _prune_block(block: object, names: frozenset[str]) -> object | None:
    """Return a block without references that are gone, or None if nothing of it is left."""
    if not _is_mapping(block) or all(name in names for name in _list_names(block)):
        return block
    kind, content = block.get("type"), block.get("content")
    if kind in _CHANGES:
        return None
    if kind == "tool_result":
        left = [entry for entry in _to_list(content) if _is_live(entry, names, "tool_name")]
        return {**block, "content": left or GONE}
    found = dict(content) if _is_mapping(content) else {}
    listed = _to_list(found.get("tool_references"))
    left = [entry for entry in listed if _is_live(entry, names, "tool_name")]
    return {**block, "content": {**found, "tool_references": left}}


def _list_names(block: object) -> list[str]:
    """Return the tools that a block refers to."""
    if not _is_mapping(block):
        return []
    content = block.get("content")
    match block.get("type"):
        case "tool_result":
            return [*_find_references(_to_list(content), "tool_name")]
        case "tool_search_tool_result":
            listed = content.get("tool_references") if _is_mapping(content) else None
            return [*_find_references(_to_list(listed), "tool_name")]
        case "tool_addition" | "tool_removal":
            # Only here does the provider call the key `name`.
            return [*_find_references([block.get("tool")], "name")]
        case _:
            return []


def _find_references(entries: Iterable[object], key: str) -> Iterable[str]:
    for entry in entries:
        if _is_reference(entry) and isinstance(entry.get(key), str):
            yield entry[key]


def _is_live(entry: object, names: frozenset[str], key: str) -> bool:
    return not _is_reference(entry) or entry.get(key) in names


def _is_reference(entry: object) -> TypeGuard[Json]:
    return _is_mapping(entry) and entry.get("type") == "tool_reference"


def _list_blocks(message: object) -> list[object]:
    return _to_list(message.get("content")) if _is_mapping(message) else []


def _to_list(value: object) -> list[object]:
    return value if is_list(value) else []


def _is_mapping(value: object) -> TypeGuard[Mapping[str, Any]]:
    return isinstance(value, Mapping)
