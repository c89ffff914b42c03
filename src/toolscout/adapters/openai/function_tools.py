"""Function tools in OpenAI's two formats, and calls of them, as plain JSON.

It turns Python functions and definitions into the definitions of a request and reads the calls of a
response. The session decides which tools a request shows and which calls are allowed.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import cast

from toolscout import Mode, Reply, Session, Tool
from toolscout.adapters._toolkit import (
    SEARCH,
    Dialect,
    Json,
    Toolkit,
    is_list,
    is_object,
    list_request_tools,
    to_definition,
    to_search,
    to_search_output,
)
from toolscout.errors import UsageError


@dataclass(frozen=True, slots=True, kw_only=True)
class Function:
    """A function tool, and the definition that a request without toolscout would carry."""

    tool: Tool
    definition: Json


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """A call in a response."""

    id: str
    name: str
    arguments: object
    searches: bool = False
    """Whether it is a search that the provider leaves to its client."""


def split_tools(tools: Iterable[object], dialect: Dialect) -> tuple[list[Json], list[Function]]:
    """Return the tools that the provider runs itself, such as `web_search`, and the functions."""
    given = list(tools)
    hosted = [cast("Json", tool) for tool in given if _is_hosted(tool)]
    return hosted, [to_function(tool, dialect) for tool in given if not _is_hosted(tool)]


def _is_hosted(tool: object) -> bool:
    return isinstance(tool, Mapping) and cast("Json", tool).get("type", "function") != "function"


def to_function(tool: object, dialect: Dialect) -> Function:
    """Return a Python function, or a definition in either format, as a tool of a dialect."""
    read = Tool.from_any(tool)
    if not isinstance(tool, Mapping):
        return Function(tool=read, definition=to_definition(read, dialect))
    given = cast("Json", tool)
    inner = given.get("function")
    function = inner if is_object(inner) else {k: v for k, v in given.items() if k != "type"}
    members = {"function": function} if dialect is Dialect.OPENAI_CHAT else function
    return Function(tool=read, definition={"type": "function", **members})


def list_definitions(
    toolkit: Toolkit[Function], session: Session, dialect: Dialect, forced: str = ""
) -> list[Json]:
    """Return the definitions of a request; those that the user wrote stay unchanged."""
    provider_searches = session.settings.mode is Mode.DEFINITIONS
    return [
        to_search(tool, dialect)
        if provider_searches and tool.name == SEARCH
        else _define(toolkit, dialect, tool)
        for tool in list_request_tools(session, forced)
    ]


def to_answer(
    toolkit: Toolkit[Function], call: Call, reply: Reply, dialect: Dialect, *, grouped: bool = False
) -> Json:
    """Return a reply as the message or item that answers a call."""
    if not (call.searches and reply.definitions):
        return replace(reply, definitions=()).to_message(dialect, call.id)
    define = partial(_define, toolkit, dialect)
    return to_search_output(dialect, call.id, reply.definitions, grouped=grouped, define=define)


def _define(toolkit: Toolkit[Function], dialect: Dialect, tool: Tool) -> Json:
    native = toolkit.get(tool.name)
    return native.definition if native is not None else to_definition(tool, dialect)


def list_item_calls(items: Iterable[Mapping[str, object]]) -> Iterator[Call]:
    """Yield the calls in items of the Responses API that wait for an answer.

    The namespace of a call is dropped: the name alone identifies the tool.
    """
    for item in items:
        id_, arguments = str(item.get("call_id")), item.get("arguments")
        if item.get("type") == "function_call":
            yield Call(id=id_, name=str(item.get("name")), arguments=arguments)
        elif item.get("type") == "tool_search_call" and item.get("execution") == "client":
            yield Call(id=id_, name=SEARCH, arguments=arguments, searches=True)


def list_message_calls(message: Mapping[str, object]) -> Iterator[Call]:
    """Yield the calls in an assistant's message of Chat Completions."""
    calls = message.get("tool_calls")
    for call in filter(is_object, calls if is_list(calls) else ()):
        function = call.get("function")
        if is_object(function):
            name = str(function.get("name"))
            yield Call(id=str(call.get("id")), name=name, arguments=function.get("arguments"))


def check_mode(mode: Mode) -> None:
    """Raise `UsageError` for a mode that OpenAI's APIs do not have."""
    if mode is Mode.REFERENCE:
        raise UsageError(
            "Mode 'reference' is Anthropic's. Use 'definitions', 'native' or 'bridge' with OpenAI."
        )


def check_runnable(natives: Iterable[Function]) -> None:
    """Raise `UsageError` for a definition without a function."""
    for native in natives:
        if native.tool.function is None:
            raise UsageError(
                f"Tool {native.tool.name!r} is a definition without a function. "
                "Pass `run`, which is called with its name and arguments."
            )
