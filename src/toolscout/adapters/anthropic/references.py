"""References to tools in a conversation of Anthropic's shape, when their tools are gone.

A provider refuses a request that refers to a tool which it does not declare, wherever in the
history that is: one tool that vanished would end the conversation. `prune` leaves such references
out. It reads structure only and changes nothing else, so that what is cached stays cached.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import Any, TypeGuard, cast

from toolscout.schemas import Json, is_list

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
