"""Fakes for testing an agent that uses toolscout, without a paid model or a live server.

`ScriptedModel` plays a model and is as strict as a provider; `FakeServer` offers tools, answers
from a table and records its calls; `Recording` holds a conversation's messages. Nothing in
toolscout imports this module.
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self, cast

from toolscout.catalog import Catalog
from toolscout.dialects import Dialect
from toolscout.errors import InvalidFile, UsageError
from toolscout.names import is_exposed_name, to_one_line
from toolscout.schemas import Json, is_list, is_object
from toolscout.tools import Tool

TRANSCRIPT_CHARS = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptedCall:
    """A call that a scripted model makes."""

    name: str
    arguments: Json


def call(name: str, /, **arguments: Any) -> ScriptedCall:
    """Return a call for a script: `call("tool_search", queries=["open an issue"])`."""
    return ScriptedCall(name=name, arguments=arguments)


Move = str | ScriptedCall | Sequence[ScriptedCall]
"""One step of a model: it says something, or calls one or several tools."""
Step = Move | Callable[[list[Json]], Move]
"""A move, or a function that looks at the messages and decides."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A request that a model received."""

    system: str
    messages: list[Json]
    tools: list[Json]

    @property
    def tool_names(self) -> list[str]:
        """The names of the tools, in order."""
        return [_get_name(tool) for tool in self.tools]


class ScriptedModel:
    """Answers each request with the next step of a script, and is as strict as a provider.

    A request with two tools of one name, a name that no provider takes, a reference to an
    undeclared tool or nothing but deferred tools raises `UsageError`; so does a step that calls
    a tool which the request does not offer.
    """

    def __init__(
        self, steps: Iterable[Step], *, dialect: Dialect | str = Dialect.OPENAI_CHAT
    ) -> None:
        self.dialect = Dialect(dialect)
        if self.dialect not in (Dialect.OPENAI_CHAT, Dialect.ANTHROPIC):
            raise UsageError("A scripted model speaks 'openai-chat' or 'anthropic'.")
        self.requests: list[Request] = []
        self._steps = list(steps)
        self._calls = 0

    def reply(self, messages: Sequence[Json], tools: Sequence[Json], system: str = "") -> Json:
        """Return the assistant's message, in the model's dialect."""
        request = Request(system=system, messages=_copy(messages), tools=_copy(tools))
        self.requests.append(request)
        offered = _find_callable_names(request)
        if len(self.requests) > len(self._steps):
            raise UsageError(
                f"The script has {len(self._steps)} steps and was asked for one more. Add a step."
            )
        step = self._steps[len(self.requests) - 1]
        move = step(request.messages) if callable(step) else step
        if isinstance(move, str):
            return {"role": "assistant", "content": move}
        calls = [move] if isinstance(move, ScriptedCall) else list(move)
        for made in calls:
            if made.name not in offered:
                near = ", ".join(sorted(offered))
                raise UsageError(f"The script calls {made.name!r}; the request offers {near}.")
        first = self._calls + 1
        self._calls += len(calls)
        return self._build_message([(f"call_{n}", made) for n, made in enumerate(calls, first)])

    def _build_message(self, calls: list[tuple[str, ScriptedCall]]) -> Json:
        if self.dialect is Dialect.ANTHROPIC:
            blocks = [
                {"type": "tool_use", "id": id_, "name": made.name, "input": made.arguments}
                for id_, made in calls
            ]
            return {"role": "assistant", "content": blocks}
        return {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {
                    "id": id_,
                    "type": "function",
                    "function": {"name": made.name, "arguments": json.dumps(made.arguments)},
                }
                for id_, made in calls
            ],
        }


def calls_from_message(message: Json) -> list[tuple[str, str, object]]:
    """Return id, name and arguments of the calls in an assistant's message."""
    found = [
        (str(entry["id"]), str(entry["function"]["name"]), entry["function"]["arguments"])
        for entry in message.get("tool_calls") or ()
    ]
    for block in _list_blocks(message):
        if block.get("type") == "tool_use":
            found.append((str(block["id"]), str(block["name"]), block["input"]))
    return found


class FakeServer:
    """Offers tools, answers calls from a table, and records them.

    `answers` maps leaf names to a value to return, an exception to raise, or a function of the
    arguments. Without an entry, a tool made of a function runs it, and any other tool echoes.
    """

    def __init__(
        self, name: str, tools: Iterable[object], answers: Mapping[str, object] | None = None
    ) -> None:
        self.name = name
        given = [Tool.from_any(tool, name) for tool in tools]
        # A tool with a function would run it and never call this server.
        self.tools = [replace(tool, function=None) for tool in given]
        self._originals = {tool.leaf: tool for tool in given}
        self.answers: dict[str, object] = dict(answers or {})
        self.calls: list[tuple[str, Json]] = []

    def connect(self, catalog: Catalog) -> None:
        """Put the tools into a catalogue, as a server that is ready."""
        catalog.replace(self.name, self.tools)

    async def __call__(self, tool: Tool, arguments: Json) -> object:
        """Answer a call, as an executor for `Scout(executors=…)`."""
        self.calls.append((tool.leaf, arguments))
        original = self._originals.get(tool.leaf, tool)
        if tool.leaf not in self.answers and original.function is not None:
            return original.function(**original.convert(arguments))
        answer = self.answers.get(tool.leaf, {"called": tool.leaf, "with": arguments})
        if callable(answer):
            answer = answer(arguments)
        if isinstance(answer, Exception):
            raise answer
        return answer


@dataclass(slots=True)
class Recording:
    """The messages of a conversation, to read, store and replay."""

    messages: list[Json] = field(default_factory=list[Json])

    def add(self, *messages: Json) -> None:
        """Append messages."""
        self.messages.extend(messages)

    def write(self, path: str | Path) -> None:
        """Write one message to a line."""
        lines = (json.dumps(message, ensure_ascii=False) for message in self.messages)
        Path(path).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")

    @classmethod
    def read(cls, path: str | Path) -> Self:
        """Return the recording in a file that `write` wrote."""
        messages: list[Json] = []
        for number, line in enumerate(Path(path).read_text(encoding="utf-8").splitlines(), 1):
            try:
                message = cast("object", json.loads(line))
            except ValueError:
                message = None
            if not is_object(message):
                remedy = "Each line is one message as a JSON object."
                raise InvalidFile(str(path), "holds no message", line=number, remedy=remedy)
            messages.append(message)
        return cls(messages)

    def render_transcript(self) -> str:
        """Return the conversation for people, one line for each message or call."""
        return "\n".join(line for message in self.messages for line in _render_lines(message))


def _copy(values: Sequence[Json]) -> list[Json]:
    return cast("list[Json]", json.loads(json.dumps(list(values))))


def _get_name(tool: Json) -> str:
    function = tool.get("function")
    return str(function["name"] if is_object(function) else tool["name"])


def _find_callable_names(request: Request) -> set[str]:
    """Return the tools that a model may call now, or raise as a provider would."""
    names = request.tool_names
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise UsageError(f"The request offers {twice[0]!r} twice. Providers refuse that.")
    for name in names:
        if not is_exposed_name(name):
            raise UsageError(f"The request offers {name!r}. Providers refuse such a name.")
    deferred = {_get_name(tool) for tool in request.tools if tool.get("defer_loading") is True}
    if deferred and len(deferred) == len(names):
        raise UsageError("All tools of the request are deferred. Providers refuse that.")
    referred = _find_references(request.messages)
    undeclared = sorted(referred - set(names))
    if undeclared:
        raise UsageError(f"A result refers to {undeclared[0]!r}, which the request lacks.")
    return {name for name in names if name not in deferred or name in referred}


def _find_references(messages: Iterable[Json]) -> set[str]:
    blocks = [block for message in messages for block in _list_blocks(message)]
    found = [inner for block in blocks for inner in _list_blocks(block)]
    return {str(one.get("tool_name")) for one in found if one.get("type") == "tool_reference"}


def _list_blocks(message: Json) -> list[Json]:
    content = message.get("content")
    return [block for block in content if is_object(block)] if is_list(content) else []


def _render_lines(message: Json) -> Iterable[str]:
    role = str(message.get("role", ""))
    content = message.get("content")
    if isinstance(content, str) and content:
        yield f"{role}: {_shorten(content)}"
    for _, name, arguments in calls_from_message(message):
        text = arguments if isinstance(arguments, str) else json.dumps(arguments)
        yield f"{role} calls {name}({_shorten(text)})"
    for block in _list_blocks(message):
        if block.get("type") == "tool_result":
            inner = block.get("content")
            names = [str(entry.get("tool_name")) for entry in _list_blocks(block)]
            text = inner if isinstance(inner, str) else f"refers to {', '.join(names)}"
            yield f"tool: {_shorten(text)}"


def _shorten(text: str) -> str:
    return to_one_line(text, TRANSCRIPT_CHARS)
