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
    TOOLS_GONE,
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
    for definition in given:
        is_hidden = definition.get("name") in names
        for key in _UNDEFERRABLE if is_hidden else ("cache_control", "defer_loading"):
            definition.pop(key, None)
        if is_hidden:
            definition["defer_loading"] = True
    if points:
        shown[-1]["cache_control"] = points[-1]
    return given


def create_hosted_search(ranking: str) -> Json:
    """Return the definition of the provider's own search."""
    if ranking not in HOSTED:
        raise UsageError(f"There is no hosted search {ranking!r}. Use {' or '.join(HOSTED)}.")
    return {"type": HOSTED[ranking], "name": f"tool_search_tool_{ranking}"}


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


def prune(messages: Iterable[object], declared: Collection[str]) -> list[object]:
    """Return the messages without references to tools that are not declared.

    An unchanged message is the same object, so that a cached prefix stays cached. A result that
    loses all its references becomes a sentence, because the provider refuses an empty one.
    """
    names = frozenset(declared)
    left: list[object] = []
    for message in messages:
        blocks = to_list(message.get("content")) if is_mapping(message) else []
        pruned = [_prune_block(block, names) for block in blocks]
        kept = [block for block in pruned if block is not None]
        if pruned == blocks:
            left.append(message)
        elif kept:
            left.append({**cast("Mapping[str, Any]", message), "content": kept})
    return left


def _prune_block(block: object, names: frozenset[str]) -> object | None:
    """Return a block without references that are gone, or None if nothing of it is left."""
    if not is_mapping(block):
        return block
    content = block.get("content")
    match block.get("type"):
        case "tool_addition" | "tool_removal":
            # Only here does the provider call the key `name`.
            return block if _is_declared(block.get("tool"), names, "name") else None
        case "tool_result" if is_list(content):
            left = [entry for entry in content if _is_declared(entry, names)]
            return block if left == content else {**block, "content": left or TOOLS_GONE}
        case "tool_search_tool_result" if is_mapping(content):
            found = to_list(content.get("tool_references"))
            left = [entry for entry in found if _is_declared(entry, names)]
            if left == found:
                return block
            return {**block, "content": {**content, "tool_references": left}}
        case _:
            return block


def _is_declared(entry: object, names: frozenset[str], key: str = "tool_name") -> bool:
    """Tell whether an entry refers to a declared tool, or to none."""
    if not is_mapping(entry) or entry.get("type") != "tool_reference":
        return True
    name = entry.get(key)
    return not isinstance(name, str) or name in names


def to_list(value: object) -> list[object]:
    """Return a list as it is, and anything else as an empty one."""
    return value if is_list(value) else []


def is_mapping(value: object) -> TypeGuard[Mapping[str, Any]]:
    """Tell whether a value is an object of JSON."""
    return isinstance(value, Mapping)
