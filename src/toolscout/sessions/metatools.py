"""The tools that a model gets in place of all others, and what it sends to them.

The definitions never depend on what a session has loaded (R98); only the listing, if the caller
wants it inside `tool_search`, comes from outside. Requests are read from any JSON value, with notes
on what was corrected.
"""

import json
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar, cast

from toolscout.catalog import RESERVED_NAMES, Catalog
from toolscout.errors import InvalidQuery, InvalidRequest, ProgramStopped
from toolscout.query import QUERIES_LIMIT
from toolscout.schemas import Json, has_few_values, is_list
from toolscout.settings import ProgramEffects, Settings
from toolscout.tools import Effect, Tool

SEARCH = "tool_search"
DESCRIBE = "tool_describe"
CALL = "tool_call"
RUN = "tool_run"
NAMES_LIMIT = 10
"""Definitions that one `tool_describe` gives."""
CALLS_LIMIT = 10
"""Calls that one `tool_call` makes."""
LIMIT_MAX = 20
SHORT_SEARCH_VALUES = 40
SHORT_SEARCH_TOOLS = 1_000
"""For all queries together; a pattern is matched with the names of all tools."""
DETAILS = ("names", "signatures", "schemas")

INSTRUCTIONS = (
    "Most of your tools are hidden to save space. Before you say that something cannot be done, "
    "look for a tool with tool_search. It finds tools by what they do; it does not search files, "
    "code or the web."
)

_SEARCH_TEXT = (
    "Find hidden tools by what they do, and load them. Search before you say that you lack a "
    "tool. Put each need into a query of its own, in the words a tool's description would use, "
    "without names and values of the task. It finds tools only: not files, code or web pages."
)
_QUERY_TEXT = (
    "What the tool should do, such as 'create a pull request'. Also: 'select:name,name' for "
    "known names; 'prefix*'; '+word' must and '-word' must not occur; 'server:name' or "
    "'effect:read' narrow it; '/regex/' matches names; 'discover: words' looks without loading."
)
_DESCRIBE_TEXT = (
    "Read the full definitions of tools by name, and load them. Use it when a search shows a "
    "signature but you need the parameters in detail."
)
_CALL_TEXT = (
    "Run a tool that was found, with its arguments. Arguments are checked first: a call that "
    "does not fit is not sent, and the answer says why. A long result ends with a handle; call "
    "the handle as a name to read on."
)

_PICK_TEXT = "Return only this part of a JSON result, such as '$.items[*].id'."
_CALLS_TEXT = "Instead of the above: several calls to run at once; none may need another's result."

_RUN_TEXT = (
    "Run a short Python program that calls tools. Use it for tasks of several calls, loops, or "
    "long results of which you need little: values stay in the program, and only what it prints "
    "and its last expression come back.\n"
    "Tools are functions with the names that you know: "
    "issues = github__list_issues(repo='a/b'). They return JSON as dicts and lists, and other "
    "results as text; print a part if you do not know the fields. Also: search('words') returns "
    "a list of dicts with name and signature, describe('name') a definition, and "
    "call('name', {'key': 1}) calls any tool. A failed call raises: RuntimeError if the tool "
    "failed, ValueError for wrong arguments, PermissionError if it is refused. "
    "With await, calls run at once: a, b = await asyncio.gather(f(x=1), g(x=2)).\n"
    "No files, network, packages, class inheritance, yield or del; import json, re, math, "
    "datetime, collections, itertools, asyncio."
)
_RUN_EFFECTS = {
    ProgramEffects.READ: "Only tools that read can be called here.",
    ProgramEffects.WRITE: "Only tools that read or write can be called here, none that destroy.",
    ProgramEffects.ALL: "The user is asked about each call that may destroy something.",
}
_CODE_TEXT = "The program. End it with an expression: its value is the result."

CALL_VARIANTS = {
    "tool_read": "Run a found tool that only reads.",
    "tool_write": "Run a found tool that adds or changes something.",
    "tool_destroy": "Run a found tool that deletes or overwrites for good, or may.",
}
"""Tools that a gateway can offer in place of `tool_call`, and how their descriptions begin."""


def build_meta_tools(listing: str = "", *, runs_calls: bool = False) -> tuple[Tool, Tool, Tool]:
    """Return `tool_search`, `tool_describe` and `tool_call`, with a listing in the first.

    `runs_calls` also offers a part of a result and several calls at once, for hosts that leave all
    calls to the session.
    """
    name: Json = {"type": "string", "description": "A found tool's name, or a result's handle."}
    offered: Json = {}
    if runs_calls:
        pick: Json = {"type": "string"}
        call: Json = {"name": {"type": "string"}, "arguments": {"type": "object"}, "pick": pick}
        offered = {
            "pick": pick | {"description": _PICK_TEXT},
            "calls": {
                "type": "array",
                "items": {"type": "object", "properties": call, "required": ["name"]},
                "maxItems": CALLS_LIMIT,
                "description": _CALLS_TEXT,
            },
        }
    return (
        _build_tool(
            SEARCH,
            f"{_SEARCH_TEXT}\n\n{listing}" if listing else _SEARCH_TEXT,
            Effect.READ,
            required="queries",
            queries={
                "type": "array",
                "items": {"type": "string"},
                "minItems": 1,
                "maxItems": QUERIES_LIMIT,
                "description": _QUERY_TEXT,
            },
            limit={
                "type": "integer",
                "minimum": 1,
                "maximum": LIMIT_MAX,
                "description": "Maximum hits per query (default 5).",
            },
            detail={
                "type": "string",
                "enum": list(DETAILS),
                "description": "How much of each hit to show (default signatures).",
            },
            max_tokens={"type": "integer", "description": "Maximum length of the reply."},
        ),
        _build_tool(
            DESCRIBE,
            _DESCRIBE_TEXT,
            Effect.READ,
            required="names",
            names={
                "type": "array",
                "items": {"type": "string"},
                "minItems": 1,
                "maxItems": NAMES_LIMIT,
                "description": "Names as tool_search shows them.",
            },
        ),
        _build_tool(
            CALL,
            _CALL_TEXT,
            Effect.UNKNOWN,
            # Some providers refuse a schema that says "one of the two is required".
            required="" if runs_calls else "name",
            name=name,
            arguments={
                "type": "object",
                "description": "The tool's arguments. For a handle: {'start': 4000}, "
                "{'lines': [10, 60]}, {'find': 'words'} or {'path': '$.items[0].id'}.",
            },
            **offered,
        ),
    )


def build_run_tool(effects: ProgramEffects) -> Tool:
    """Return `tool_run`, for programs that may call tools with these effects."""
    does = {ProgramEffects.READ: Effect.READ, ProgramEffects.WRITE: Effect.WRITE}
    return _build_tool(
        RUN,
        f"{_RUN_TEXT} {_RUN_EFFECTS[effects]}",
        does.get(effects, Effect.UNKNOWN),
        required="code",
        code={"type": "string", "description": _CODE_TEXT},
    )


def _build_tool(
    name: str, description: str, effect: Effect, /, *, required: str, **properties: Json
) -> Tool:
    schema: Json = {"type": "object", "properties": properties}
    schema |= {"required": [required]} if required else {}
    schema |= {"additionalProperties": False}
    # A client that hides tools itself must not hide the way to all others.
    return Tool(
        name=name, description=description, input_schema=schema, effect=effect, always_load=True
    )


def find_meta_tool(catalog: Catalog, name: str) -> str:
    """Return which meta-tool a call is for; a server's own tool of such a name is none."""
    meta = to_meta_name(name)
    return meta if meta == name or (meta and not catalog.resolve(name)) else ""


def to_meta_name(name: str) -> str:
    """Return which meta-tool a name means, or an empty text.

    Clients of an MCP gateway put its name in front: `mcp__toolscout__tool_search`.
    """
    bare = name.rpartition("__")[2]
    return bare if bare in RESERVED_NAMES else ""


REPLY_MIN, REPLY_MAX = 200, 20_000
DIGITS_LIMIT = 20
"""Characters of a number in quotes."""
LONGEST_NUMBER_BITS = 128
_QUERY_KEYS = ("queries", "query", "q", "search", "text")
_NAMES_KEYS = ("names", "name", "tools", "tool")
_NAME_KEYS = ("name", "tool_name", "tool")
_CODE_KEYS = ("code", "program", "source", "script")
_ARGUMENT_KEYS = ("arguments", "args", "params", "parameters", "input")


_FENCE = re.compile(r"```(?:python|py)?[ \t]*\n(.*?)\n?```", re.DOTALL)
"""A program that a model has put between the marks of a block of code."""

_T = TypeVar("_T")


class CallRequest(NamedTuple):
    """One call that `tool_call` was given, unchecked."""

    name: object
    """None if the model named no tool."""
    arguments: object = None
    pick: object = None
    """The path of the part of the result to return; None for all of it."""

    def to_json(self) -> Json:
        """Return the arguments of a `tool_call` that makes this call alone."""
        return self._asdict()


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchRequest:
    """What `tool_search` was asked."""

    queries: tuple[str, ...]
    limit: int
    detail: str
    max_tokens: int
    notes: tuple[str, ...] = ()


def read_search_options(arguments: object) -> Json:
    """Return the options of `tool_search`, unchecked, for `read_search_request`."""
    members = to_object(arguments)
    return {key: members.get(key) for key in ("limit", "detail", "max_tokens")}


def read_search_request(
    queries: object,
    *,
    settings: Settings,
    limit: object = None,
    detail: object = None,
    max_tokens: object = None,
) -> SearchRequest:
    """Return a request within bounds, with notes on what had to be changed (R11)."""
    listed = read_texts(queries)
    if not listed:
        raise InvalidQuery("The search has no query")
    notes: list[str] = []
    return SearchRequest(
        queries=_take_first(QUERIES_LIMIT, "queries", listed, notes),
        limit=_read_number("limit", limit, settings.limit, 1, LIMIT_MAX, notes),
        detail=_read_detail(detail, notes),
        max_tokens=_read_number(
            "max_tokens", max_tokens, settings.reply_tokens, REPLY_MIN, REPLY_MAX, notes
        ),
        notes=tuple(notes),
    )


def is_short_search(queries: object, tools: int) -> bool:
    """Tell whether a search among so many tools takes a few milliseconds at most."""
    if not has_few_values(queries, SHORT_SEARCH_VALUES):
        return False
    return len(read_texts(queries)) * tools <= SHORT_SEARCH_TOOLS


def read_names_request(names: object) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the names to describe, at most ten, and notes."""
    listed = read_texts(names)
    if not listed:
        raise InvalidRequest(
            "tool_describe needs names", remedy="Send names, for example {'names': ['a', 'b']}."
        )
    notes: list[str] = []
    return _take_first(NAMES_LIMIT, "names", listed, notes), tuple(notes)


def read_calls(value: object) -> tuple[tuple[CallRequest, ...], tuple[str, ...]]:
    """Return the calls that `tool_call` was given, at most ten, and notes; raises `InvalidRequest`.

    Whoever decides about a call reads it here, so that all of them see the same calls.
    """
    members = to_object(value)
    call = _read_call(members)
    listed = members.get("calls")
    if isinstance(listed, str):
        listed = _parse(listed)
    rows = cast("list[object]", listed) if is_list(listed) else [listed] if listed else []
    if not rows:
        if call.name is None:
            raise InvalidRequest.from_call()
        return (call,), ()
    if call.name:
        raise InvalidRequest.from_call("tool_call takes a name or calls, not both")
    notes: list[str] = []
    kept = _take_first(CALLS_LIMIT, "calls", tuple(rows), notes)
    return tuple(_read_call(to_object(row)) for row in kept), tuple(notes)


def split_call(catalog: Catalog, name: str, arguments: object) -> list[tuple[str, object]]:
    """Return a `tool_call` of several tools as one for each; any other call as it is."""
    if find_meta_tool(catalog, name) == CALL:
        with suppress(InvalidRequest):
            return [(name, call.to_json()) for call in read_calls(arguments)[0]]
    return [(name, arguments)]


def _read_call(members: Json) -> CallRequest:
    name = _find_first(members, _NAME_KEYS)
    return CallRequest(name, _find_first(members, _ARGUMENT_KEYS), members.get("pick"))


def find_queries(value: object) -> Any:
    """Return what stands for the queries in the arguments of `tool_search`."""
    return _find_first(to_object(value) or {"queries": value}, _QUERY_KEYS)


def find_names(value: object) -> Any:
    """Return what stands for the names in the arguments of `tool_describe`."""
    return _find_first(to_object(value) or {"names": value}, _NAMES_KEYS)


def read_code(value: object) -> str:
    """Return the program that `tool_run` was given, or raise `ProgramStopped`."""
    code = _find_first(to_object(value) or {"code": value}, _CODE_KEYS)
    if not isinstance(code, str) or not code.strip():
        raise ProgramStopped.from_nothing()
    found = _FENCE.fullmatch(code.strip())
    return found[1] if found else code


def to_object(value: object) -> Json:
    """Return a JSON object, also from its text; anything else is empty."""
    if isinstance(value, str):
        value = _parse(value)
    return dict(cast("Mapping[str, Any]", value)) if isinstance(value, Mapping) else {}


def _find_first(members: Json, keys: Sequence[str]) -> Any:
    return next((members[key] for key in keys if members.get(key) is not None), None)


def _parse(text: str) -> object:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _take_first(limit: int, noun: str, listed: tuple[_T, ...], notes: list[str]) -> tuple[_T, ...]:
    if len(listed) > limit:
        notes.append(f"Only the first {limit} of {len(listed)} {noun} were used.")
    return listed[:limit]


def read_texts(value: object) -> tuple[str, ...]:
    """Return the texts in a value; a lone one stands for itself, a list may be JSON text."""
    parsed = _parse(value) if isinstance(value, str) and value.lstrip().startswith("[") else None
    if isinstance(parsed, list):
        value = cast("object", parsed)
    elif isinstance(value, str | int | float):
        value = [value]
    if not isinstance(value, list | tuple):
        return ()
    items = cast("Sequence[object]", value)
    texts = [str(item) for item in items if _is_text_or_number(item)]
    return tuple(dict.fromkeys(text for text in texts if text.strip()))


def _is_text_or_number(item: object) -> bool:
    if isinstance(item, int) and not isinstance(item, bool):
        # Python refuses to write out integers of thousands of digits.
        return item.bit_length() <= LONGEST_NUMBER_BITS
    return isinstance(item, str | float)


def _read_number(
    key: str, value: object, usual: int, least: int, most: int, notes: list[str]
) -> int:
    number = _read_whole_number(value)
    if number is None:
        if value is not None:
            notes.append(f"{key} is not a whole number; {usual} was used.")
        return usual
    bounded = max(least, min(most, number))
    if bounded != number:
        notes.append(f"{key} must be {least} to {most:,}; {bounded:,} was used.")
    return bounded


def _read_whole_number(value: object) -> int | None:
    """Return an integer, also from an integral float or digits; nothing from anything else."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return value
    if isinstance(value, str):
        text = value.strip()
        if len(text) > DIGITS_LIMIT:
            return None
        value = int(text) if text.isdecimal() else _parse(text)
        return _read_whole_number(value) if isinstance(value, int | float) else None
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return None


def _read_detail(value: object, notes: list[str]) -> str:
    if isinstance(value, str) and value.strip().lower() in DETAILS:
        return value.strip().lower()
    if value is not None:
        notes.append(f"detail takes {', '.join(DETAILS)}; signatures was used.")
    return "signatures"
