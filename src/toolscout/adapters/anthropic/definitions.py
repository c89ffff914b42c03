"""`Declarations`: the definitions of a request to Anthropic, for the tools of an SDK in a kit.

Takes a kit and how the SDK itself writes one of its tools; gives what a request declares, the
found ones and the hidden ones by the provider's rules. A tool is declared as the SDK would do it
without toolscout, so that what its owner set is kept.

Anthropic's rules for definitions that the provider keeps hidden until something refers to them.

Takes definitions as the Messages API has them, and which of them to hide; gives those of a
request that the provider accepts, or raises before it is sent. Which tools are hidden is decided
by the session.

References to tools in a conversation of Anthropic's shape, when their tools are gone.

A provider refuses a request that refers to a tool which it does not declare, wherever in the
history that is: one tool that vanished would end the conversation. `prune` leaves such references
out. It reads structure only and changes nothing else, so that what is cached stays cached.
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


T = TypeVar("T")


class Declarations(Generic[T]):
    """What requests declare."""

    def __init__(
        self,
        toolkit: Toolkit[T],
        write: Callable[[T], Json],
        *,
        passed: Iterable[Json] = (),
        hosted: str = "",
    ) -> None:
        """`passed` are definitions that stand first, as they are; `hosted` is `bm25` or `regex`."""
        self.toolkit = toolkit
        self._write, self._passed = write, list(passed)
        self._hosted = [hosted_search(hosted)] if hosted else []

    def definitions(self, session: Session, forced: str = "") -> list[Json]:
        """Return the definitions of the next request; a `forced` tool is not hidden in it."""
        shown = session.shown(listing=True)
        names = {each.tool.name for each in shown}
        hidden = {each.tool.name for each in shown if each.deferred} - {forced}
        told = [self._told(each.tool) for each in shown]
        if self._hosted and hidden:
            told = [*self._hosted, *(each for each in told if each["name"] not in RESERVED_NAMES)]
        tool = self.toolkit.scout.catalog.get(forced)
        if tool is not None and forced not in names:
            told.append(self._told(tool))
        return [*self._passed, *defer(told, hidden)]

    def _told(self, tool: Tool) -> Json:
        native = self.toolkit.get(tool.name)
        if native is None:
            return to_definition(tool, Dialect.ANTHROPIC)
        return self._write(native) | {"name": tool.name}


GONE = "The tools that were found here are gone. Search again."

_CHANGES = ("tool_addition", "tool_removal")


def prune(messages: Iterable[object], declared: Collection[str]) -> list[object]:
    """Return the messages without references to tools that are not declared.

    A message that needs no change is the same object. A result that loses all it refers to says
    so in a sentence, because an empty one is refused as well.
    """
    names = frozenset(declared)
    pruned = (_pruned(message, names) for message in messages)
    return [message for message in pruned if message is not None]


def referred(messages: Iterable[object]) -> list[str]:
    """Return the tools that messages refer to, in order of first appearance."""
    found: dict[str, None] = {}
    for message in messages:
        for block in _blocks(message):
            found.update(dict.fromkeys(_names(block)))
    return list(found)


def _pruned(message: object, names: frozenset[str]) -> object | None:
    blocks = _blocks(message)
    if all(name in names for block in blocks for name in _names(block)):
        return message
    kept = [block for block in (_kept(block, names) for block in blocks) if block is not None]
    return {**cast("Mapping[str, Any]", message), "content": kept} if kept else None


def _kept(block: object, names: frozenset[str]) -> object | None:
    """Return a block without what is gone; nothing where the block itself is about that."""
    if not _is_mapping(block) or all(name in names for name in _names(block)):
        return block
    kind, content = block.get("type"), block.get("content")
    if kind in _CHANGES:
        return None
    if kind == "tool_result":
        left = [entry for entry in _listed(content) if _is_live(entry, names, "tool_name")]
        return {**block, "content": left or GONE}
    found = dict(content) if _is_mapping(content) else {}
    listed = _listed(found.get("tool_references"))
    left = [entry for entry in listed if _is_live(entry, names, "tool_name")]
    return {**block, "content": {**found, "tool_references": left}}


def _names(block: object) -> list[str]:
    """Return the tools that a block refers to."""
    if not _is_mapping(block):
        return []
    content = block.get("content")
    match block.get("type"):
        case "tool_result":
            return [*_referred(_listed(content), "tool_name")]
        case "tool_search_tool_result":
            listed = content.get("tool_references") if _is_mapping(content) else None
            return [*_referred(_listed(listed), "tool_name")]
        case "tool_addition" | "tool_removal":
            # Here, and only here, the provider calls the key `name`.
            return [*_referred([block.get("tool")], "name")]
        case _:
            return []


def _referred(entries: Iterable[object], key: str) -> Iterable[str]:
    for entry in entries:
        if _is_reference(entry) and isinstance(entry.get(key), str):
            yield entry[key]


def _is_live(entry: object, names: frozenset[str], key: str) -> bool:
    return not _is_reference(entry) or entry.get(key) in names


def _is_reference(entry: object) -> TypeGuard[Json]:
    return _is_mapping(entry) and entry.get("type") == "tool_reference"


def _blocks(message: object) -> list[object]:
    return _listed(message.get("content")) if _is_mapping(message) else []


def _listed(value: object) -> list[object]:
    return value if is_list(value) else []


def _is_mapping(value: object) -> TypeGuard[Mapping[str, Any]]:
    return isinstance(value, Mapping)
