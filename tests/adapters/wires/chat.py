"""OpenAI's Chat Completions, which most local servers and frameworks speak too."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from adapters.bodies import as_object, elements, objects, text_in
from adapters.moves import Action, Call, Hosted, calls_of, text_of
from adapters.wires.views import (
    CREATED_SECONDS,
    Definition,
    History,
    Ids,
    Made,
    event,
    pieces,
    strict_problems,
    tokens,
    tool_problems,
)

Json = dict[str, Any]
TOOLS_LIMIT = 128
SYSTEM_ROLES = ("system", "developer")


class ChatWire:
    """Reads and writes Chat Completions."""

    dialect = "openai-chat"

    def definitions(self, body: Json) -> list[Definition]:
        """Return the functions."""
        return [_definition(tool) for tool in objects(body.get("tools"))]

    def definitions_as_sent(self, tools: str) -> list[str]:
        """Return the elements of the array."""
        return elements(tools)

    def system_as_sent(self, members: Mapping[str, str]) -> list[str]:
        """Return the system messages at the beginning."""
        found: list[str] = []
        for message in elements(members.get("messages", "[]")):
            if as_object(json.loads(message)).get("role") not in SYSTEM_ROLES:
                break
            found.append(message)
        return found

    def messages(self, body: Json) -> list[Json]:
        """Return the messages."""
        return objects(body.get("messages"))

    def history(self, body: Json) -> History:
        """Return what the messages say."""
        history = History()
        for message in self.messages(body):
            role, text = str(message.get("role")), text_in(message.get("content"))
            if role == "tool":
                history.results[str(message.get("tool_call_id"))] = text
                continue
            if text:
                history.said.append((role, text))
            for made in _calls(message):
                history.calls[made.id] = made
        return history

    def problems(self, body: Json, headers: Mapping[str, str]) -> Iterator[str]:
        """Yield broken rules."""
        if not body.get("model"):
            yield "model: is missing"
        if not self.messages(body):
            yield "messages: at least one is needed"
        yield from _tools_problems(body, self.definitions(body))
        for message in self.messages(body):
            yield from _message_problems(message)
        yield from _pairing_problems(self.messages(body))

    def answer(self, body: Json, action: Action, ids: Ids) -> Json:
        """Return a completion."""
        if isinstance(action, Hosted):
            raise AssertionError("Chat Completions has no hosted tool search.")
        calls = [_written(made, ids) for made in calls_of(action)]
        message: Json = {"role": "assistant", "content": text_of(action) or None, "refusal": None}
        if calls:
            message["tool_calls"] = calls
        finish = "tool_calls" if calls else "stop"
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": finish}
        head = _head(body, ids.next("chatcmpl"), "chat.completion")
        return head | {"choices": [choice], "usage": _usage(body, message)}

    def events(self, body: Json, answer: Json) -> Iterator[str]:
        """Yield the chunks of a completion."""
        head = _head(body, str(answer["id"]), "chat.completion.chunk")
        choice = answer["choices"][0]
        include = as_object(body.get("stream_options")).get("include_usage") is True
        usage: Json = {"usage": None} if include else {}
        for delta in _deltas(choice["message"]):
            yield event(head | {"choices": [_chunk(delta)]} | usage)
        yield event(head | {"choices": [_chunk({}, choice["finish_reason"])]} | usage)
        if include:
            yield event(head | {"choices": [], "usage": answer["usage"]})
        yield "data: [DONE]\n\n"

    def error(self, message: str) -> Json:
        """Return a refusal."""
        kind = "invalid_request_error"
        return {"error": {"message": message, "type": kind, "param": None, "code": None}}


def _definition(tool: Json) -> Definition:
    function = as_object(tool.get("function"))
    schema = function.get("parameters")
    return Definition(
        name=str(function.get("name", "")),
        description=function.get("description"),
        schema=schema,
        deferred=bool(tool.get("defer_loading") or function.get("defer_loading")),
        sent=tool,
    )


def _calls(message: Json) -> list[Made]:
    return [
        Made(
            id=str(entry.get("id")),
            name=str(as_object(entry.get("function")).get("name")),
            arguments=_arguments(as_object(entry.get("function")).get("arguments")),
        )
        for entry in objects(message.get("tool_calls"))
    ]


def _arguments(value: object) -> Json:
    try:
        return as_object(json.loads(value)) if isinstance(value, str) else {}
    except ValueError:
        return {}


def _tools_problems(body: Json, definitions: list[Definition]) -> Iterator[str]:
    if body.get("tools") is not None and not definitions:
        yield "tools: an empty array is too short; leave it out"
    if len(definitions) > TOOLS_LIMIT:
        yield f"tools: {len(definitions)} are too many; the limit is {TOOLS_LIMIT}"
    for tool, entry in zip(objects(body.get("tools")), definitions, strict=True):
        if tool.get("type") != "function":
            yield f"tools: {tool.get('type')!r} is no type of tool; expected 'function'"
        if entry.deferred:
            yield f"tools: 'defer_loading' of {entry.name!r} is not known here"
        if as_object(tool.get("function")).get("strict") is True:
            yield from strict_problems(entry)
    yield from tool_problems(definitions, needs_schema=False)


def _message_problems(message: Json) -> Iterator[str]:
    role = message.get("role")
    if role not in (*SYSTEM_ROLES, "user", "assistant", "tool"):
        yield f"messages: {role!r} is no role"
    if role == "tool" and not isinstance(message.get("content"), str | list):
        yield "messages: a tool message needs text as content"
    if role in ("user", *SYSTEM_ROLES) and message.get("content") is None:
        yield f"messages: a {role} message needs content"
    if role == "assistant" and message.get("content") is None and not message.get("tool_calls"):
        yield "messages: an assistant message needs content or tool calls"
    if message.get("tool_calls") == []:
        yield "messages: an empty 'tool_calls' is too short; leave it out"
    for entry in objects(message.get("tool_calls")):
        if not isinstance(as_object(entry.get("function")).get("arguments"), str):
            yield "messages: the arguments of a tool call must be JSON text"


def _pairing_problems(messages: list[Json]) -> Iterator[str]:
    """Yield calls without a result right behind them, and results without a call."""
    waiting: list[str] = []
    for message in [*messages, {"role": "end"}]:
        if message.get("role") == "tool":
            answered = str(message.get("tool_call_id"))
            if answered not in waiting:
                yield f"messages: the tool message for {answered!r} answers no call before it"
            else:
                waiting.remove(answered)
            continue
        if waiting:
            yield f"messages: the tool calls {waiting} have no tool message"
        waiting = [made.id for made in _calls(message)]


def _written(made: Call, ids: Ids) -> Json:
    function = {"name": made.name, "arguments": json.dumps(made.arguments)}
    return {"id": ids.next("call"), "type": "function", "function": function}


def _head(body: Json, id_: str, kind: str) -> Json:
    return {"id": id_, "object": kind, "created": CREATED_SECONDS, "model": body.get("model")}


def _usage(body: Json, message: Json) -> Json:
    asked, written = tokens(body), tokens(message)
    return {"prompt_tokens": asked, "completion_tokens": written, "total_tokens": asked + written}


def _chunk(delta: Json, finish: str | None = None) -> Json:
    return {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}


def _deltas(message: Json) -> Iterator[Json]:
    yield {"role": "assistant", "content": None if message.get("tool_calls") else ""}
    for part in pieces(message.get("content") or ""):
        yield {"content": part}
    for at, made in enumerate(objects(message.get("tool_calls"))):
        function = made["function"]
        first = {"name": function["name"], "arguments": ""}
        yield {
            "tool_calls": [{"index": at, "id": made["id"], "type": "function", "function": first}]
        }
        for part in pieces(function["arguments"]):
            yield {"tool_calls": [{"index": at, "function": {"arguments": part}}]}
