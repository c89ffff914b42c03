"""Write tool definitions and results in the JSON formats of providers.

The results are plain dicts and no SDK is imported. The caller decides which tools and texts a
model receives.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import StrEnum

from toolscout.errors import UsageError
from toolscout.schemas import Json, is_object
from toolscout.tools import ALWAYS_LOAD, PASSED_MEMBERS, SEARCH_HINT, Effect, Tool


class Dialect(StrEnum):
    """The format in which a provider or client reads definitions and results."""

    OPENAI_CHAT = "openai-chat"
    OPENAI_RESPONSES = "openai-responses"
    ANTHROPIC = "anthropic"
    MCP = "mcp"

    @classmethod
    def _missing_(cls, value: object) -> "Dialect":
        text = value if isinstance(value, str) else type(value).__name__
        meant = [str(dialect) for dialect in cls if text and str(dialect).startswith(text.lower())]
        hint = f" You may mean {' or '.join(meant)}." if meant else ""
        raise UsageError(f"There is no dialect {text!r}. Use one of {', '.join(cls)}.{hint}")


def to_definition(tool: Tool, dialect: Dialect | str, *, deferred: bool = False) -> Json:
    """Return the definition of a tool in a dialect, with the server's own schema.

    `deferred` marks a tool that the provider hides until something refers to it.
    """
    shaped = _DEFINITIONS[Dialect(dialect)](tool)
    if deferred and Dialect(dialect) is not Dialect.MCP:
        shaped["defer_loading"] = True
    return shaped


def to_result(
    dialect: Dialect | str,
    call_id: str,
    text: str,
    *,
    is_error: bool = False,
    blocks: tuple[Json, ...] = (),
    references: tuple[str, ...] = (),
) -> Json:
    """Return a tool's result as the message, item or block that answers a call.

    For Anthropic, `references` replace the text: it shows the definitions of these tools to the
    model. Images are included if the dialect supports them; Chat Completions takes only text.
    """
    has_images = any(block.get("type") == "image" for block in blocks)
    first: Json = {"type": "text", "text": text}
    shown = [first, *(block for block in blocks if block.get("type") in ("image", "text"))]
    match Dialect(dialect):
        case Dialect.OPENAI_CHAT:
            return {"role": "tool", "tool_call_id": call_id, "content": text}
        case Dialect.OPENAI_RESPONSES:
            seen = [_to_input(block) for block in shown] if has_images else text
            return {"type": "function_call_output", "call_id": call_id, "output": seen}
        case Dialect.ANTHROPIC:
            named = [{"type": "tool_reference", "tool_name": name} for name in references]
            seen = named or ([_to_content(block) for block in shown] if has_images else text)
            content: Json = {"type": "tool_result", "tool_use_id": call_id, "content": seen}
            return content | ({"is_error": True} if is_error else {})
        case Dialect.MCP:
            content = {"content": [first, *blocks]}
            return content | ({"isError": True} if is_error else {})


def _to_input(block: Json) -> Json:
    if block["type"] == "text":
        return {"type": "input_text", "text": block["text"]}
    url = f"data:{block.get('mimeType')};base64,{block.get('data')}"
    return {"type": "input_image", "image_url": url}


def _to_content(block: Json) -> Json:
    if block["type"] == "text":
        return block
    data = {"media_type": block.get("mimeType"), "data": block.get("data")}
    return {"type": "image", "source": {"type": "base64"} | data}


def to_search(tool: Tool, dialect: Dialect | str) -> Json:
    """Return `tool_search` as a search tool that the provider lets its client run."""
    check_definitions(dialect)
    shaped = _to_function(tool)
    return {
        "type": "tool_search",
        "execution": "client",
        "description": shaped["description"],
        "parameters": shaped["parameters"],
    }


def to_search_output(
    dialect: Dialect | str,
    call_id: str,
    tools: Iterable[Tool],
    *,
    grouped: bool = False,
    define: Callable[[Tool], Json] | None = None,
) -> Json:
    """Return the answer to a search that the client ran: full definitions.

    `grouped` puts them into namespaces by server; do not change it within a conversation.
    `define` builds the definition of a tool for a host that has its own.
    """
    check_definitions(dialect)
    shape = define or _to_responses
    if grouped:
        definitions = list(_group_into_namespaces(tools, shape))
    else:
        definitions = [shape(tool) for tool in tools]
    return {
        "type": "tool_search_output",
        "call_id": call_id,
        "execution": "client",
        "status": "completed",
        "tools": definitions,
    }


def check_definitions(dialect: Dialect | str) -> None:
    """Raise `UsageError` unless a search in this dialect can be answered with definitions."""
    if Dialect(dialect) is not Dialect.OPENAI_RESPONSES:
        raise UsageError(
            f"Mode 'definitions' works only with 'openai-responses', not with {str(dialect)!r}. "
            "Use mode 'native' or 'bridge' instead."
        )


NAMESPACE_FUNCTIONS = 9
"""OpenAI asks for fewer than ten functions in a namespace."""
_NAMESPACE_CHARS = 56
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_-]+")


def _group_into_namespaces(tools: Iterable[Tool], shape: Callable[[Tool], Json]) -> Iterator[Json]:
    groups: dict[str, list[Tool]] = {}
    for tool in tools:
        groups.setdefault(tool.server, []).append(tool)
    for server, group in groups.items():
        name = _NOT_IN_NAMES.sub("_", server)[:_NAMESPACE_CHARS] or "tools"
        for number, start in enumerate(range(0, len(group), NAMESPACE_FUNCTIONS)):
            part = [shape(tool) for tool in group[start : start + NAMESPACE_FUNCTIONS]]
            yield {
                "type": "namespace",
                "name": f"{name}_{number + 1}" if number else name,
                "description": f"Tools of {server or 'this program'}.",
                "tools": part,
            }


def _to_responses(tool: Tool) -> Json:
    return {"type": "function"} | _to_function(tool)


def _to_function(tool: Tool, schema_key: str = "parameters") -> Json:
    return {
        "name": tool.name,
        "description": tool.description or tool.title or tool.name,
        schema_key: _require_object(tool.input_schema),
    }


def _to_mcp(tool: Tool) -> Json:
    shaped: Json = {"name": tool.name}
    if tool.title:
        shaped["title"] = tool.title
    shaped |= {"description": tool.description, "inputSchema": _require_object(tool.input_schema)}
    if tool.output_schema is not None:
        shaped["outputSchema"] = tool.output_schema
    given = {key: tool.extras.get(key) for key in PASSED_MEMBERS}
    hints = given["annotations"] if is_object(given["annotations"]) else {}
    if tool.effect is not Effect.UNKNOWN:
        hints = {
            **hints,
            "readOnlyHint": tool.effect is Effect.READ,
            "destructiveHint": tool.effect is Effect.DESTRUCTIVE,
        }
    if hints:
        shaped["annotations"] = hints
    if given["icons"]:
        shaped["icons"] = given["icons"]
    # What a server says to clients that hide tools themselves counts if it was read and allowed.
    own = (ALWAYS_LOAD, SEARCH_HINT)
    meta = given["_meta"] if is_object(given["_meta"]) else {}
    meta = {key: value for key, value in meta.items() if key not in own}
    if tool.always_load:
        meta[ALWAYS_LOAD] = True
    if tool.hint:
        meta[SEARCH_HINT] = tool.hint
    return shaped | ({"_meta": meta} if meta else {})


def _require_object(schema: Json) -> Json:
    """Return a schema with the type 'object', without which providers refuse a request."""
    return schema if schema.get("type") == "object" else {**schema, "type": "object"}


_DEFINITIONS: Mapping[Dialect, Callable[[Tool], Json]] = {
    Dialect.OPENAI_CHAT: lambda tool: {"type": "function", "function": _to_function(tool)},
    Dialect.OPENAI_RESPONSES: _to_responses,
    Dialect.ANTHROPIC: lambda tool: _to_function(tool, "input_schema"),
    Dialect.MCP: _to_mcp,
}
