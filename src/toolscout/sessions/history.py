"""Read a session's steps from the messages of its conversation, as OpenAI or Anthropic shape them.

`steps_from_messages` takes messages or items as JSON and returns, in order, the calls that the
model made and the tools that structured results refer to. It ignores text and tools' own output,
so neither can load a tool, whatever it looks like (R51). `Session.replay` replays the calls and
checks them like live ones.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeGuard

from toolscout.schemas import is_list
from toolscout.sessions.metatools import SEARCH


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """A call of the model, as the structure of the messages shows it."""

    name: str
    """The tool that the model called; `tool_search` if its provider searched."""
    arguments: object = None
    references: tuple[str, ...] = ()
    """Tools that the result refers to. Trust them only if the call was a search."""


def steps_from_messages(messages: Iterable[object]) -> list[Step]:
    """Return the steps of a history, except failed calls and messages of unknown shape."""
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
        # A tool's message may hold anything that the tool wrote, so only these roles count.
        match message.get("role"):
            case None:
                self._read_item(message)
            case "assistant":
                self._read_assistant(message)
            case "user":
                for block in _list_mappings(message.get("content")):
                    self._read_answer(block)
            case _:
                pass

    def _read_item(self, item: Mapping[str, Any]) -> None:
        """Read an item of the Responses API."""
        if item.get("type") == "function_call":
            self._add_call(item.get("call_id"), item.get("name"), item.get("arguments"))
        elif item.get("type") == "tool_search_output":
            found = list[Mapping[str, Any]]()
            for entry in _list_mappings(item.get("tools")):
                is_group = entry.get("type") == "namespace"
                found += _list_mappings(entry.get("tools")) if is_group else [entry]
            self._add_search(_list_names(found, "name"))

    def _read_assistant(self, message: Mapping[str, Any]) -> None:
        """Read the calls of the model and the searches of its provider."""
        for call in _list_mappings(message.get("tool_calls")):
            function = call.get("function")
            if _is_mapping(function):
                self._add_call(call.get("id"), function.get("name"), function.get("arguments"))
        for block in _list_mappings(message.get("content")):
            if block.get("type") == "tool_use":
                self._add_call(block.get("id"), block.get("name"), block.get("input"))
            elif block.get("type") == "tool_search_tool_result":
                found = block.get("content")
                listed = found.get("tool_references") if _is_mapping(found) else None
                self._add_search(_list_references(listed))

    def _read_answer(self, block: Mapping[str, Any]) -> None:
        call_id = block.get("tool_use_id")
        if block.get("type") != "tool_result" or not isinstance(call_id, str):
            return
        place = self._open.pop(call_id, None)
        step = self.steps[place] if place is not None else None
        if place is not None and step is not None:
            failed = block.get("is_error") is True
            references = _list_references(block.get("content"))
            self.steps[place] = None if failed else replace(step, references=references)

    def _add_call(self, call_id: object, name: object, arguments: object) -> None:
        if isinstance(name, str):
            if isinstance(call_id, str):
                self._open[call_id] = len(self.steps)
            self.steps.append(Step(name=name, arguments=arguments))

    def _add_search(self, names: tuple[str, ...]) -> None:
        if names:
            self.steps.append(Step(name=SEARCH, references=names))


def _list_references(content: object) -> tuple[str, ...]:
    blocks = (block for block in _list_mappings(content) if block.get("type") == "tool_reference")
    return _list_names(blocks, "tool_name")


def _list_names(entries: Iterable[Mapping[str, Any]], key: str) -> tuple[str, ...]:
    return tuple(entry[key] for entry in entries if isinstance(entry.get(key), str))


def _list_mappings(value: object) -> list[Mapping[str, Any]]:
    return [entry for entry in value if _is_mapping(entry)] if is_list(value) else []


def _is_mapping(value: object) -> TypeGuard[Mapping[str, Any]]:
    return isinstance(value, Mapping)
