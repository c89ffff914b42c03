"""Google's `generateContent`, plain and streamed."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from adapters.bodies import as_object, elements, members, objects, pick
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
DECLARATIONS = ("functionDeclarations", "function_declarations")
CALL = ("functionCall", "function_call")
RESPONSE = ("functionResponse", "function_response")
SYSTEM = ("systemInstruction", "system_instruction")
SCHEMA = ("parameters", "parametersJsonSchema", "parameters_json_schema")


class GeminiWire:
    """Reads and writes `generateContent`."""

    dialect = "gemini"

    def definitions(self, body: Json) -> list[Definition]:
        """Return the functions of all tools."""
        tools = objects(body.get("tools"))
        return [_definition(one) for tool in tools for one in objects(pick(tool, *DECLARATIONS))]

    def definitions_as_sent(self, tools: str) -> list[str]:
        """Return the elements of all lists of functions."""
        lists = [members(tool) for tool in elements(tools)]
        written = [inner[key] for inner in lists for key in DECLARATIONS if key in inner]
        return [one for text in written for one in elements(text)]

    def system_as_sent(self, members: Mapping[str, str]) -> list[str]:
        """Return the system instruction."""
        return [members[key] for key in SYSTEM if key in members]

    def messages(self, body: Json) -> list[Json]:
        """Return the contents."""
        return objects(body.get("contents"))

    def history(self, body: Json) -> History:
        """Return what the contents say; calls without an id are numbered."""
        history = History()
        for at, content in enumerate(self.messages(body)):
            for number, part in enumerate(objects(content.get("parts"))):
                _read(history, str(content.get("role", "user")), part, f"{at}.{number}")
        return history

    def problems(self, body: Json, headers: Mapping[str, str]) -> Iterator[str]:
        """Yield broken rules."""
        contents = self.messages(body)
        if not contents:
            yield "contents: at least one is needed"
        for content in contents:
            if content.get("role") not in (None, "user", "model", "function"):
                yield f"contents: {content.get('role')!r} is no role"
            if not objects(content.get("parts")):
                yield "contents: parts must not be empty"
        for entry in self.definitions(body):
            if not entry.description:
                yield f"tools: {entry.name!r} has no description"
            if entry.name[:1].isdigit() or entry.name.startswith("-"):
                yield f"tools: the name {entry.name!r} must begin with a letter or '_'"
        yield from tool_problems(self.definitions(body), needs_schema=False)
        yield from _pairing_problems(contents)

    def answer(self, body: Json, action: Action, ids: Ids) -> Json:
        """Return a response."""
        if isinstance(action, Hosted):
            raise AssertionError("Gemini has no hosted tool search.")
        parts: list[Json] = [{"text": text_of(action)}] if text_of(action) else []
        for made in calls_of(action):
            call: Json = {"id": ids.next("fc"), "name": made.name, "args": made.arguments}
            parts.append({"functionCall": call})
        return _response(body, parts, ids.next("resp"))

    def events(self, body: Json, answer: Json) -> Iterator[str]:
        """Yield a response in chunks."""
        candidate = answer["candidates"][0]
        parts = [p for part in objects(candidate["content"]["parts"]) for p in _chunks(part)]
        for part in parts[:-1]:
            yield event(answer | {"candidates": [_candidate([part])]})
        yield event(answer | {"candidates": [_candidate(parts[-1:]) | {"finishReason": "STOP"}]})

    def error(self, message: str) -> Json:
        """Return a refusal."""
        return {"error": {"code": 400, "message": message, "status": "INVALID_ARGUMENT"}}


def _definition(tool: Json) -> Definition:
    return Definition(
        name=str(tool.get("name", "")),
        description=tool.get("description"),
        schema=pick(tool, *SCHEMA),
        sent=tool,
    )


def _read(history: History, role: str, part: Json, place: str) -> None:
    call, response = as_object(pick(part, *CALL)), as_object(pick(part, *RESPONSE))
    if call:
        id_ = str(call.get("id") or f"{call.get('name')}@{place}")
        given = as_object(call.get("args"))
        history.calls[id_] = Made(id=id_, name=str(call.get("name")), arguments=given)
    elif response:
        id_ = str(response.get("id") or _open_call(history, str(response.get("name"))))
        history.results[id_] = _result_text(response.get("response"))
    elif "text" in part:
        history.said.append((role, str(part["text"])))


def _open_call(history: History, name: str) -> str:
    """Return the oldest call of a name that has no result."""
    made = history.calls.values()
    return next((m.id for m in made if m.name == name and m.id not in history.results), name)


def _result_text(response: object) -> str:
    result = as_object(response)
    only = next(iter(result.values()), "") if len(result) == 1 else result
    return only if isinstance(only, str) else json.dumps(only)


def _pairing_problems(contents: list[Json]) -> Iterator[str]:
    """Yield turns of calls that the next turn does not answer one by one."""
    waiting: list[str] = []
    for content in [*contents, Json()]:
        parts = objects(content.get("parts"))
        answers = [str(pick(p, *RESPONSE).get("name")) for p in parts if pick(p, *RESPONSE)]
        if sorted(answers) != sorted(waiting) and (answers or waiting):
            yield f"contents: the calls {waiting} are followed by the responses {answers}"
        waiting = [str(pick(p, *CALL).get("name")) for p in parts if pick(p, *CALL)]


def _response(body: Json, parts: list[Json], id_: str) -> Json:
    asked, written = tokens(body), tokens(parts)
    usage = {"promptTokenCount": asked, "candidatesTokenCount": written}
    return {
        "candidates": [_candidate(parts) | {"finishReason": "STOP"}],
        "usageMetadata": usage | {"totalTokenCount": asked + written},
        "modelVersion": "scripted",
        "responseId": id_,
    }


def _candidate(parts: list[Json]) -> Json:
    return {"content": {"role": "model", "parts": parts}, "index": 0}


def _chunks(part: Json) -> list[Json]:
    return [{"text": piece} for piece in pieces(part["text"])] if "text" in part else [part]
