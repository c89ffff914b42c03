"""OpenAI's Responses, with client-executed and hosted tool search."""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from adapters.bodies import as_object, elements, objects, text_in
from adapters.moves import Action, Call, Hosted, calls_of, text_of
from adapters.wires.replies import response_events
from adapters.wires.views import (
    CREATED_SECONDS,
    Definition,
    History,
    Ids,
    Made,
    strict_problems,
    tokens,
    tool_problems,
)

Json = dict[str, Any]
SEARCH = "tool_search"
NAMESPACE_LIMIT = 9
SEARCH_SINCE = (5, 4)
ID_PREFIXES = {"function_call": "fc", "message": "msg", "reasoning": "rs"}
_GPT = re.compile(r"gpt-(\d+)(?:\.(\d+))?")


class ResponsesWire:
    """Reads and writes Responses."""

    dialect = "openai-responses"

    def definitions(self, body: Json) -> list[Definition]:
        """Return functions, those of namespaces too, and the search tool."""
        return _definitions(objects(body.get("tools")))

    def definitions_as_sent(self, tools: str) -> list[str]:
        """Return the elements of the array."""
        return elements(tools)

    def system_as_sent(self, members: Mapping[str, str]) -> list[str]:
        """Return the instructions and the developer's first items."""
        found = [members["instructions"]] if "instructions" in members else []
        written = members.get("input", "[]")
        for item in elements(written) if written.startswith("[") else ():
            if as_object(json.loads(item)).get("role") not in ("system", "developer"):
                break
            found.append(item)
        return found

    def messages(self, body: Json) -> list[Json]:
        """Return the input items."""
        given = body.get("input")
        if isinstance(given, str):
            return [{"type": "message", "role": "user", "content": given}]
        return objects(given)

    def history(self, body: Json) -> History:
        """Return what the items say."""
        history = History()
        for item in self.messages(body):
            _read(history, item)
        return history

    def problems(self, body: Json, headers: Mapping[str, str]) -> Iterator[str]:
        """Yield broken rules."""
        if not body.get("model"):
            yield "model: is missing"
        if not self.messages(body):
            yield "input: at least one item is needed"
        yield from _tools_problems(objects(body.get("tools")), str(body.get("model")))
        yield from _item_problems(self.messages(body))
        yield from _pairing_problems(self.messages(body))
        yield from _output_problems(self.messages(body))

    def answer(self, body: Json, action: Action, ids: Ids) -> Json:
        """Return a response."""
        output = _hosted_items(action, body, ids) if isinstance(action, Hosted) else []
        if text_of(action):
            output.append(_message(text_of(action), ids))
        output += [self._item(body, made, ids) for made in calls_of(action)]
        return _response(body, output, ids)

    def events(self, body: Json, answer: Json) -> Iterator[str]:
        """Yield an answer item by item."""
        return response_events(answer)

    def error(self, message: str) -> Json:
        """Return a refusal."""
        kind = "invalid_request_error"
        return {"error": {"message": message, "type": kind, "param": None, "code": None}}

    def _item(self, body: Json, made: Call, ids: Ids) -> Json:
        searches = [e for e in self.definitions(body) if e.is_search]
        if made.name == SEARCH and searches:
            return _search_call(made.arguments, "client", ids)
        known = [*self.definitions(body), *self.history(body).defined]
        namespace = next((e.namespace for e in known if e.name == made.name and e.namespace), "")
        if not namespace and any(e.deferred for e in known if e.name == made.name):
            namespace = made.name  # The API does so for deferred functions outside of namespaces.
        return _function_call(made, namespace, ids)


def _definitions(tools: list[Json], namespace: str = "") -> list[Definition]:
    found: list[Definition] = []
    for tool in tools:
        kind = str(tool.get("type"))
        if kind == "namespace":
            found += _definitions(objects(tool.get("tools")), str(tool.get("name")))
            continue
        is_named = kind == "function"
        found.append(
            Definition(
                name=str(tool.get("name", "")) if is_named else kind,
                description=tool.get("description"),
                schema=tool.get("parameters"),
                deferred=tool.get("defer_loading") is True,
                is_search=not is_named,
                namespace=namespace,
                sent=tool,
            )
        )
    return found


def _read(history: History, item: Json) -> None:
    call_id = str(item.get("call_id"))
    match item.get("type", "message"):
        case "message":
            history.said.append((str(item.get("role")), text_in(item.get("content"))))
        case "function_call":
            name, given = str(item.get("name")), _loaded(item.get("arguments"))
            history.calls[call_id] = Made(id=call_id, name=name, arguments=given)
        case "tool_search_call":
            given = as_object(item.get("arguments"))
            history.calls[call_id] = Made(id=call_id, name=SEARCH, arguments=given)
        case "function_call_output":
            history.results[call_id] = text_in(item.get("output"))
        case "tool_search_output" | "additional_tools":
            defined = _definitions(objects(item.get("tools")))
            history.defined += defined
            history.refer(*(entry.name for entry in defined))
            if item.get("type") == "tool_search_output":
                history.results[call_id] = ", ".join(entry.name for entry in defined)
        case _:
            pass


def _loaded(value: object) -> Json:
    try:
        return as_object(json.loads(value)) if isinstance(value, str) else {}
    except ValueError:
        return {}


def _tools_problems(tools: list[Json], model: str) -> Iterator[str]:
    definitions = _definitions(tools)
    searches = [tool for tool in tools if tool.get("type") == SEARCH]
    if len(searches) > 1:
        yield "tools: one tool_search is allowed"
    for tool in searches:
        if tool.get("execution") == "client" and not tool.get("description"):
            yield "tools: a tool_search that the client executes needs a description"
        if not _may_search(model):
            yield f"tools: {model!r} does not support tool_search"
    if not searches and any(entry.deferred for entry in definitions):
        yield "tools: defer_loading needs a tool_search tool"
    for tool in tools:
        if tool.get("type") == "namespace":
            yield from _namespace_problems(tool)
    for entry in definitions:
        if entry.sent.get("strict") is True:
            yield from strict_problems(entry)
    yield from tool_problems(definitions, needs_schema=False, search_names=(SEARCH,))


def _may_search(model: str) -> bool:
    """Tell whether a model knows tool search; of a name that is not OpenAI's, nothing is known."""
    version = _GPT.match(model)
    if version is None:
        return not re.match(r"o\d|chatgpt", model)
    return (int(version[1]), int(version[2] or 0)) >= SEARCH_SINCE and "nano" not in model


def _namespace_problems(tool: Json) -> Iterator[str]:
    if len(objects(tool.get("tools"))) > NAMESPACE_LIMIT:
        yield f"tools: the namespace {tool.get('name')!r} has more than {NAMESPACE_LIMIT} functions"
    if tool.get("defer_loading") is not None:
        yield "tools: defer_loading belongs to the functions of a namespace, not to itself"
    if not tool.get("description"):
        yield f"tools: the namespace {tool.get('name')!r} needs a description"


def _item_problems(items: list[Json]) -> Iterator[str]:
    for at, item in enumerate(items):
        kind, id_ = str(item.get("type", "message")), item.get("id")
        prefix = ID_PREFIXES.get(kind)
        if isinstance(id_, str) and prefix and not id_.startswith(prefix):
            yield f"input[{at}].id: {id_!r} must begin with {prefix!r}"
        if kind == "function_call" and not isinstance(item.get("arguments"), str):
            yield f"input[{at}].arguments: must be JSON text"
        if kind == "tool_search_call" and not isinstance(item.get("arguments"), dict):
            yield f"input[{at}].arguments: must be an object"
        if kind == "function_call_output" and not isinstance(item.get("output"), str | list):
            yield f"input[{at}].output: must be text or a list of parts"
        if kind == "additional_tools" and item.get("role") != "developer":
            yield f"input[{at}].role: must be 'developer'"


def _pairing_problems(items: list[Json]) -> Iterator[str]:
    """Yield calls without an output, and outputs without a call in front of them."""
    for kind in ("function_call", "tool_search_call"):
        answer = "tool_search_output" if kind == "tool_search_call" else f"{kind}_output"
        waiting: list[str] = []
        for item in items:
            call_id = str(item.get("call_id"))
            if item.get("execution") == "server":
                continue
            if item.get("type") == kind:
                waiting.append(call_id)
            elif item.get("type") == answer:
                if call_id not in waiting:
                    yield f"input: the {answer} for {call_id!r} answers no {kind} before it"
                else:
                    waiting.remove(call_id)
        if waiting:
            yield f"input: no {answer} was found for {kind} {waiting}"


def _output_problems(items: list[Json]) -> Iterator[str]:
    """Yield what is wrong with the definitions that a search gave."""
    shapes: set[str] = set()
    for item in items:
        if item.get("type") != "tool_search_output":
            continue
        tools = objects(item.get("tools"))
        shapes |= {str(tool.get("type")) for tool in tools}
        for entry in _definitions(tools):
            if entry.description is None:
                yield f"tool_search_output: {entry.name!r} has no description"
        yield from tool_problems(_definitions(tools), needs_schema=False)
        if item.get("status") not in (None, "completed"):
            yield f"tool_search_output: status {item.get('status')!r}; expected 'completed'"
    if len(shapes) > 1:
        yield f"tool_search_output: one conversation has several shapes: {sorted(shapes)}"


def _hosted_items(action: Hosted, body: Json, ids: Ids) -> list[Json]:
    found = [e for e in _definitions(objects(body.get("tools"))) if e.name in action.names]
    output = {
        "id": ids.next("tso"),
        "type": "tool_search_output",
        "call_id": None,
        "execution": "server",
        "status": "completed",
        "tools": [entry.sent for entry in found],
    }
    return [_search_call({"query": action.query}, "server", ids), output]


def _search_call(arguments: Json, execution: str, ids: Ids) -> Json:
    return {
        "id": ids.next("tsc"),
        "type": "tool_search_call",
        "call_id": ids.next("call") if execution == "client" else None,
        "arguments": arguments,
        "execution": execution,
        "status": "completed",
    }


def _function_call(made: Call, namespace: str, ids: Ids) -> Json:
    item: Json = {
        "id": ids.next("fc"),
        "type": "function_call",
        "call_id": ids.next("call"),
        "name": made.name,
        "arguments": json.dumps(made.arguments),
        "status": "completed",
    }
    return item | ({"namespace": namespace} if namespace else {})


def _message(text: str, ids: Ids) -> Json:
    part: Json = {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
    item = {"id": ids.next("msg"), "type": "message", "role": "assistant"}
    return item | {"status": "completed", "content": [part]}


def _response(body: Json, output: list[Json], ids: Ids) -> Json:
    asked, written = tokens(body), tokens(output)
    usage: Json = {"input_tokens": asked, "input_tokens_details": {"cached_tokens": 0}}
    usage |= {"output_tokens": written, "output_tokens_details": {"reasoning_tokens": 0}}
    return {
        "id": ids.next("resp"),
        "object": "response",
        "created_at": CREATED_SECONDS,
        "status": "completed",
        "error": None,
        "incomplete_details": None,
        "instructions": body.get("instructions"),
        "metadata": {},
        "model": body.get("model"),
        "output": output,
        "parallel_tool_calls": True,
        "previous_response_id": body.get("previous_response_id"),
        "temperature": 1.0,
        "text": {"format": {"type": "text"}},
        "tool_choice": "auto",
        "tools": body.get("tools") or [],
        "top_p": 1.0,
        "truncation": "disabled",
        "usage": usage | {"total_tokens": asked + written},
    }
