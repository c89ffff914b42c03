"""What a conversation's messages say about its session, in OpenAI's and Anthropic's shapes.

Takes messages or items as JSON; gives, in order, the calls that the model made and the tools that
structured results refer to. Text is never read, nor what a tool put into its result: it loads
nothing, whatever it looks like (R51). Calls are replayed through the same gate as live ones, by
the scout.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeGuard

from toolscout.schemas import is_list
from toolscout.sessions.metatools import SEARCH


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One thing that happened, as far as messages tell it by structure."""

    name: str
    """The tool that the model called; `tool_search` where a provider searched for it."""
    arguments: object = None
    references: tuple[str, ...] = ()
    """Tools that the result refers to. Any tool can claim that: only a search may be believed."""


def steps_from_messages(messages: Iterable[object]) -> list[Step]:
    """Return the steps of a history; what is not understood is passed over.

    A call that is known to have failed is no step.
    """
    reader = _Reader()
    for message in messages:
        if _is_mapping(message):
            reader.read(message)
    return [step for step in reader.steps if step is not None]


class _Reader:
    """Reads messages in order; an answer belongs to the last call of its id."""

    def __init__(self) -> None:
        self.steps: list[Step | None] = []
        self._open: dict[str, int] = {}

    def read(self, message: Mapping[str, Any]) -> None:
        # By role, because a message of a tool may hold whatever the tool wrote.
        match message.get("role"):
            case None:
                self._read_item(message)
            case "assistant":
                self._read_said(message)
            case "user":
                for block in _mappings(message.get("content")):
                    self._read_answer(block)
            case _:
                pass

    def _read_item(self, item: Mapping[str, Any]) -> None:
        """Read an item of the Responses API."""
        if item.get("type") == "function_call":
            self._call(item.get("call_id"), item.get("name"), item.get("arguments"))
        elif item.get("type") == "tool_search_output":
            self._searched(_names(_flattened(item.get("tools")), "name"))

    def _read_said(self, message: Mapping[str, Any]) -> None:
        """Read what the model said: calls, and searches that its provider made."""
        for call in _mappings(message.get("tool_calls")):
            function = call.get("function")
            if _is_mapping(function):
                self._call(call.get("id"), function.get("name"), function.get("arguments"))
        for block in _mappings(message.get("content")):
            if block.get("type") == "tool_use":
                self._call(block.get("id"), block.get("name"), block.get("input"))
            elif block.get("type") == "tool_search_tool_result":
                found = block.get("content")
                listed = found.get("tool_references") if _is_mapping(found) else None
                self._searched(_referred(listed))

    def _read_answer(self, block: Mapping[str, Any]) -> None:
        call_id = block.get("tool_use_id")
        if block.get("type") != "tool_result" or not isinstance(call_id, str):
            return
        place = self._open.pop(call_id, None)
        step = self.steps[place] if place is not None else None
        if place is not None and step is not None:
            failed = block.get("is_error") is True
            references = _referred(block.get("content"))
            self.steps[place] = None if failed else replace(step, references=references)

    def _call(self, call_id: object, name: object, arguments: object) -> None:
        if isinstance(name, str):
            if isinstance(call_id, str):
                self._open[call_id] = len(self.steps)
            self.steps.append(Step(name=name, arguments=arguments))

    def _searched(self, names: tuple[str, ...]) -> None:
        if names:
            self.steps.append(Step(name=SEARCH, references=names))


def _referred(content: object) -> tuple[str, ...]:
    blocks = (block for block in _mappings(content) if block.get("type") == "tool_reference")
    return _names(blocks, "tool_name")


def _names(entries: Iterable[Mapping[str, Any]], key: str) -> tuple[str, ...]:
    return tuple(entry[key] for entry in entries if isinstance(entry.get(key), str))


def _flattened(definitions: object) -> Iterator[Mapping[str, Any]]:
    """Yield definitions, also those that stand in a namespace."""
    for entry in _mappings(definitions):
        if entry.get("type") == "namespace":
            yield from _mappings(entry.get("tools"))
        else:
            yield entry


def _mappings(value: object) -> list[Mapping[str, Any]]:
    return [entry for entry in value if _is_mapping(entry)] if is_list(value) else []


def _is_mapping(value: object) -> TypeGuard[Mapping[str, Any]]:
    return isinstance(value, Mapping)
