"""A good request of every dialect, each in the midst of a conversation, and how to send it."""

import json
from collections.abc import Callable
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request as Post
from urllib.request import urlopen

Json = dict[str, Any]

SCHEMA: Json = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}


def chat() -> Json:
    """A request in the midst of a conversation, with nothing wrong."""
    function = {"name": "get_weather", "description": "Tell the weather.", "parameters": SCHEMA}
    made = {"name": "get_weather", "arguments": '{"city": "Oslo"}'}
    calls = [{"id": "call_1", "type": "function", "function": made}]
    return {
        "model": "gpt-5.5",
        "tools": [{"type": "function", "function": function}],
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "Weather in Oslo?"},
            {"role": "assistant", "content": None, "tool_calls": calls},
            {"role": "tool", "tool_call_id": "call_1", "content": "Rain."},
        ],
    }


def responses() -> Json:
    """The same with a search that the client ran."""
    weather = {"type": "function", "name": "get_weather", "description": "Tell the weather."}
    search = {"type": "tool_search", "execution": "client", "description": "Find tools."}
    found = {"type": "tool_search_output", "call_id": "call_1", "execution": "client"}
    return {
        "model": "gpt-5.5",
        "instructions": "Be brief.",
        "tools": [search | {"parameters": SCHEMA}],
        "input": [
            {"role": "user", "content": "Weather in Oslo?"},
            {
                "type": "tool_search_call",
                "id": "tsc_1",
                "call_id": "call_1",
                "execution": "client",
                "arguments": {"queries": ["weather"]},
            },
            found | {"status": "completed", "tools": [weather | {"parameters": SCHEMA}]},
            {
                "type": "function_call",
                "id": "fc_1",
                "call_id": "call_2",
                "name": "get_weather",
                "arguments": '{"city": "Oslo"}',
            },
            {"type": "function_call_output", "call_id": "call_2", "output": "Rain."},
        ],
    }


def messages() -> Json:
    """The same with a deferred tool that a result refers to."""
    weather = {"name": "get_weather", "description": "Tell the weather.", "input_schema": SCHEMA}
    search = {"name": "tool_search", "description": "Find tools.", "input_schema": SCHEMA}
    found = [{"type": "tool_reference", "tool_name": "get_weather"}]
    return {
        "model": "claude-opus-5",
        "max_tokens": 1_000,
        "system": "Be brief.",
        "tools": [search, weather | {"defer_loading": True}],
        "messages": [
            {"role": "user", "content": "Weather in Oslo?"},
            {"role": "assistant", "content": [used("toolu_1", "tool_search")]},
            {"role": "user", "content": [result("toolu_1", found)]},
            {"role": "assistant", "content": [used("toolu_2", "get_weather")]},
            {"role": "user", "content": [result("toolu_2", "Rain.")]},
        ],
    }


def gemini() -> Json:
    """The same for Google."""
    weather = {"name": "get_weather", "description": "Tell the weather.", "parameters": SCHEMA}
    made = {"functionCall": {"name": "get_weather", "args": {"city": "Oslo"}}}
    result = {"functionResponse": {"name": "get_weather", "response": {"result": "Rain."}}}
    return {
        "systemInstruction": {"parts": [{"text": "Be brief."}]},
        "tools": [{"functionDeclarations": [weather]}],
        "contents": [
            {"role": "user", "parts": [{"text": "Weather in Oslo?"}]},
            {"role": "model", "parts": [made]},
            {"role": "user", "parts": [result]},
        ],
    }


def used(id_: str, name: str) -> Json:
    return {"type": "tool_use", "id": id_, "name": name, "input": {"city": "Oslo"}}


def result(id_: str, content: object, **more: object) -> Json:
    return {"type": "tool_result", "tool_use_id": id_, "content": content, **more}


GEMINI_PATH = "/v1beta/models/gemini-4:generateContent"
BODIES: dict[str, tuple[str, Callable[[], Json]]] = {
    "openai-chat": ("/v1/chat/completions", chat),
    "openai-responses": ("/v1/responses", responses),
    "anthropic": ("/v1/messages", messages),
    "gemini": (GEMINI_PATH, gemini),
}


def post(url: str, body: Json, headers: dict[str, str] | None = None) -> tuple[int, Json]:
    status, text = post_text(url, body, headers)
    return status, json.loads(text)


def post_text(url: str, body: Json, headers: dict[str, str] | None = None) -> tuple[int, str]:
    given = {"content-type": "application/json", **(headers or {})}
    request = Post(url, json.dumps(body).encode(), given)
    try:
        with urlopen(request) as answer:
            return answer.status, answer.read().decode()
    except HTTPError as error:
        with error:
            return error.code, error.read().decode()
