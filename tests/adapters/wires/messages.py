"""Anthropic's Messages, with deferred tools, references, tool changes and hosted search."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from adapters.bodies import as_object, elements, objects, text_in
from adapters.moves import Action, Hosted, calls_of, text_of
from adapters.wires.views import (
    Definition,
    History,
    Ids,
    Made,
    event,
    pieces,
    tokens,
    tool_problems,
)

Json = dict[str, Any]
TOOLS_LIMIT = 10_000
BREAKPOINTS_LIMIT = 4
HOSTED_PREFIX = "tool_search_tool_"
TOOL_CHANGES_BETA = "mid-conversation-tool-changes"
INLINE_TOOLS_BETA = "inline-tools"
OUR_SEARCH = "tool_search"


class MessagesWire:
    """Reads and writes Messages."""

    dialect = "anthropic"

    def definitions(self, body: Json) -> list[Definition]:
        """Return the tools."""
        return [_definition(tool) for tool in objects(body.get("tools"))]

    def definitions_as_sent(self, tools: str) -> list[str]:
        """Return the elements of the array."""
        return elements(tools)

    def system_as_sent(self, members: Mapping[str, str]) -> list[str]:
        """Return the system prompt."""
        return [members["system"]] if "system" in members else []

    def messages(self, body: Json) -> list[Json]:
        """Return the messages."""
        return objects(body.get("messages"))

    def history(self, body: Json) -> History:
        """Return what the messages say."""
        history = History()
        for message in self.messages(body):
            for block in _blocks(message):
                _read(history, str(message.get("role")), block)
        return history

    def problems(self, body: Json, headers: Mapping[str, str]) -> Iterator[str]:
        """Yield broken rules."""
        for key in ("model", "max_tokens"):
            if not body.get(key):
                yield f"{key}: is missing"
        definitions = self.definitions(body)
        yield from _tools_problems(definitions)
        yield from _order_problems(self.messages(body), headers.get("anthropic-beta", ""))
        yield from _content_problems(self.messages(body))
        yield from _pairing_problems(_merged(self.messages(body)))
        yield from _reference_problems(self.history(body), definitions)
        if _breakpoints(body) > BREAKPOINTS_LIMIT:
            yield f"cache_control: more than {BREAKPOINTS_LIMIT} breakpoints"

    def answer(self, body: Json, action: Action, ids: Ids) -> Json:
        """Return a message."""
        content = _hosted_blocks(action, body, ids) if isinstance(action, Hosted) else []
        if text_of(action):
            content.append({"type": "text", "text": text_of(action)})
        for made in calls_of(action):
            block = {"type": "tool_use", "id": ids.next("toolu"), "name": made.name}
            content.append(block | {"input": made.arguments})
        return {
            "id": ids.next("msg"),
            "type": "message",
            "role": "assistant",
            "model": body.get("model"),
            "content": content,
            "stop_reason": "tool_use" if calls_of(action) else "end_turn",
            "stop_sequence": None,
            "usage": _usage(body, content),
        }

    def events(self, body: Json, answer: Json) -> Iterator[str]:
        """Yield an answer block by block."""
        usage = answer["usage"] | {"output_tokens": 1}
        begun: Json = answer | {"content": [], "stop_reason": None, "usage": usage}
        yield _named({"type": "message_start", "message": begun})
        yield _named({"type": "ping"})
        for at, block in enumerate(objects(answer["content"])):
            opened, deltas = _opened(block)
            yield _named({"type": "content_block_start", "index": at, "content_block": opened})
            for delta in deltas:
                yield _named({"type": "content_block_delta", "index": at, "delta": delta})
            yield _named({"type": "content_block_stop", "index": at})
        stop = {"stop_reason": answer["stop_reason"], "stop_sequence": None}
        usage = {"output_tokens": answer["usage"]["output_tokens"]}
        yield _named({"type": "message_delta", "delta": stop, "usage": usage})
        yield _named({"type": "message_stop"})

    def error(self, message: str) -> Json:
        """Return a refusal."""
        error = {"type": "invalid_request_error", "message": message}
        return {"type": "error", "error": error, "request_id": "req_0001"}


def _definition(tool: Json) -> Definition:
    is_search = str(tool.get("type", "")).startswith(HOSTED_PREFIX)
    return Definition(
        name=str(tool.get("name", "")),
        description=tool.get("description"),
        schema=tool.get("input_schema"),
        deferred=tool.get("defer_loading") is True,
        is_search=is_search,
        sent=tool,
    )


def _blocks(message: Json) -> list[Json]:
    content = message.get("content")
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return objects(content)


def _read(history: History, role: str, block: Json) -> None:
    match block.get("type"):
        case "text":
            history.said.append((role, str(block.get("text"))))
        case "tool_use":
            id_, given = str(block.get("id")), as_object(block.get("input"))
            history.calls[id_] = Made(id=id_, name=str(block.get("name")), arguments=given)
        case "tool_result":
            inner = block.get("content")
            referred = _referred(objects(inner))
            texts = [text for text in (text_in(inner), *referred) if text]
            history.results[str(block.get("tool_use_id"))] = "\n".join(texts)
            history.refer(*referred)
        case "tool_search_tool_result":
            found = as_object(block.get("content")).get("tool_references")
            history.refer(*_referred(objects(found)))
        case "tool_addition":
            _read_addition(history, as_object(block.get("tool")))
        case _:
            pass


def _read_addition(history: History, tool: Json) -> None:
    if tool.get("type") == "tool_definition":
        definition = _definition(as_object(tool.get("definition")))
        history.defined.append(definition)
        history.refer(definition.name)
    else:
        history.refer(str(tool.get("name")))


def _referred(blocks: list[Json]) -> list[str]:
    return [str(b.get("tool_name")) for b in blocks if b.get("type") == "tool_reference"]


def _tools_problems(definitions: list[Definition]) -> Iterator[str]:
    if len(definitions) > TOOLS_LIMIT:
        yield f"tools: {len(definitions)} are too many; the limit is {TOOLS_LIMIT}"
    if definitions and all(entry.deferred for entry in definitions):
        yield "tools: all have defer_loading; at least one must not"
    for entry in definitions:
        if entry.deferred and entry.sent.get("cache_control"):
            yield f"tools: {entry.name!r} has both defer_loading and cache_control"
        if entry.deferred and entry.sent.get("input_examples"):
            yield f"tools: {entry.name!r} has both defer_loading and input_examples"
    ordinary = [e for e in definitions if str(e.sent.get("type") or "custom") == "custom"]
    hosted = [entry for entry in definitions if entry.is_search]
    yield from tool_problems([*ordinary, *hosted], needs_schema=True, search_names=(OUR_SEARCH,))


def _order_problems(messages: list[Json], betas: str) -> Iterator[str]:
    if not messages:
        yield "messages: at least one is needed"
    elif messages[0].get("role") != "user":
        yield f"messages: the first must be of the user, not of {messages[0].get('role')!r}"
    for message in messages:
        role = message.get("role")
        if role == "system":
            yield from _change_problems(message, betas)
        elif role not in ("user", "assistant"):
            yield f"messages: {role!r} is no role"


def _change_problems(message: Json, betas: str) -> Iterator[str]:
    """Yield why a message of the system in the midst of a conversation is refused."""
    if TOOL_CHANGES_BETA not in betas:
        yield f"messages: the role 'system' needs the beta {TOOL_CHANGES_BETA!r}"
    for block in _blocks(message):
        if block.get("type") not in ("text", "tool_addition", "tool_removal"):
            yield f"messages: a system message cannot hold {block.get('type')!r}"
        tool = as_object(block.get("tool"))
        if tool.get("type") == "tool_definition" and INLINE_TOOLS_BETA not in betas:
            yield f"messages: a tool_definition needs the beta {INLINE_TOOLS_BETA!r}"
        if tool.get("type") == "tool_reference" and "name" not in tool:
            yield "messages: the tool_reference of a tool change has its name under 'name'"


def _content_problems(messages: list[Json]) -> Iterator[str]:
    for at, message in enumerate(messages):
        blocks = _blocks(message)
        if not blocks:
            yield f"messages.{at}: content must not be empty"
        for block in blocks:
            if block.get("type") == "text" and not str(block.get("text") or "").strip():
                yield f"messages.{at}: a text block must not be empty"
            if block.get("type") == "tool_result":
                yield from _result_problems(at, block)
            if block.get("type") == "tool_use" and not isinstance(block.get("input"), dict):
                yield f"messages.{at}: the input of a tool_use must be an object"


def _result_problems(at: int, block: Json) -> Iterator[str]:
    content = block.get("content")
    if content == []:
        yield f"messages.{at}: the content of a tool_result must not be an empty list"
    for inner in objects(content):
        if inner.get("type") == "tool_reference" and "tool_name" not in inner:
            yield f"messages.{at}: the tool_reference of a result has its name under 'tool_name'"
        if inner.get("type") == "text" and not inner.get("text"):
            yield f"messages.{at}: a text block must not be empty"
        if block.get("is_error") and inner.get("type") != "text":
            yield f"messages.{at}: a result with is_error may hold text only"


def _merged(messages: list[Json]) -> list[tuple[str, list[Json]]]:
    """Return the turns; neighbours of one role are one turn."""
    turns: list[tuple[str, list[Json]]] = []
    for message in messages:
        role = str(message.get("role"))
        if role == "system":
            continue
        if turns and turns[-1][0] == role:
            turns[-1][1].extend(_blocks(message))
        else:
            turns.append((role, _blocks(message)))
    return turns


def _pairing_problems(turns: list[tuple[str, list[Json]]]) -> Iterator[str]:
    """Yield calls whose results are not in the next turn, and results without a call."""
    waiting: list[str] = []
    for _, blocks in [*turns, ("end", list[Json]())]:
        kinds = [str(block.get("type")) for block in blocks]
        results = [str(b.get("tool_use_id")) for b in blocks if b.get("type") == "tool_result"]
        missing = [id_ for id_ in waiting if id_ not in results]
        if missing:
            yield f"messages: the tool_use blocks {missing} have no tool_result right after them"
        for id_ in results:
            if id_ not in waiting:
                yield f"messages: the tool_result for {id_!r} answers no tool_use before it"
            if results.count(id_) > 1:
                yield f"messages: several tool_result blocks answer {id_!r}"
        if results and "tool_result" in kinds[len(results) :]:
            yield "messages: tool_result blocks must come first in a message"
        waiting = [str(b.get("id")) for b in blocks if b.get("type") == "tool_use"]


def _reference_problems(history: History, definitions: list[Definition]) -> Iterator[str]:
    known = {entry.name for entry in (*definitions, *history.defined)}
    for name in history.references:
        if name not in known:
            yield f"messages: the tool reference {name!r} has no corresponding tool definition"


def _breakpoints(value: object) -> int:
    here = as_object(value)
    inner = [*here.values(), *objects(value)]
    return bool(here.get("cache_control")) + sum(map(_breakpoints, inner))


def _hosted_blocks(action: Hosted, body: Json, ids: Ids) -> list[Json]:
    tools = objects(body.get("tools"))
    named = [str(tool.get("name")) for tool in tools if _definition(tool).is_search]
    if not named:
        raise AssertionError("The script has a hosted search; the request has no such tool.")
    id_ = ids.next("srvtoolu")
    found = [{"type": "tool_reference", "tool_name": name} for name in action.names]
    result = {"type": "tool_search_tool_search_result", "tool_references": found}
    asked = {"type": "server_tool_use", "id": id_, "name": named[0]}
    return [
        asked | {"input": {"query": action.query}},
        {"type": "tool_search_tool_result", "tool_use_id": id_, "content": result},
    ]


def _usage(body: Json, content: list[Json]) -> Json:
    return {
        "input_tokens": tokens(body),
        "output_tokens": tokens(content),
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": 0,
    }


def _opened(block: Json) -> tuple[Json, list[Json]]:
    """Return a block as its start shows it, and what follows piece by piece."""
    if block["type"] == "text":
        parts = [{"type": "text_delta", "text": part} for part in pieces(block["text"])]
        return block | {"text": ""}, parts
    if "input" in block:
        # A first empty piece, as the API sends it.
        written = ["", *pieces(json.dumps(block["input"]))]
        parts = [{"type": "input_json_delta", "partial_json": part} for part in written]
        return block | {"input": {}}, parts
    return block, []


def _named(data: Json) -> str:
    return event(data, str(data["type"]))
