"""The three tools that a model gets in place of all others, and how to use them.

Gives `Tool` values whose text never depends on what a session has loaded (R98); only the listing,
where the caller wants it inside `tool_search`, comes from outside. What they do is `scout`'s.
"""

from toolscout.catalog import RESERVED_NAMES
from toolscout.query import QUERIES_LIMIT
from toolscout.schemas import Json
from toolscout.tools import Effect, Tool

SEARCH, DESCRIBE, CALL = "tool_search", "tool_describe", "tool_call"
NAMES_LIMIT = 10
"""Definitions that one `tool_describe` gives."""
LIMIT_MAX = 20

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


def meta_tools(listing: str = "") -> tuple[Tool, Tool, Tool]:
    """Return `tool_search`, `tool_describe` and `tool_call`, with a listing in the first."""
    description = f"{_SEARCH_TEXT}\n\n{listing}" if listing else _SEARCH_TEXT
    return (
        _tool(SEARCH, description, _search_schema(), Effect.READ),
        _tool(DESCRIBE, _DESCRIBE_TEXT, _describe_schema(), Effect.READ),
        _tool(CALL, _CALL_TEXT, _call_schema(), Effect.UNKNOWN),
    )


def meta_name(name: str) -> str:
    """Return which meta-tool a name means, or an empty text.

    Clients of an MCP gateway put its name in front: `mcp__toolscout__tool_search`.
    """
    bare = name.rpartition("__")[2]
    return bare if bare in RESERVED_NAMES else ""


def _tool(name: str, description: str, schema: Json, effect: Effect) -> Tool:
    # A client that hides tools itself must not hide the way to all others.
    return Tool(
        name=name, description=description, input_schema=schema, effect=effect, always_load=True
    )


def _search_schema() -> Json:
    return _object(
        ["queries"],
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
            "description": "Hits for each query; 5 unless told.",
        },
        detail={
            "type": "string",
            "enum": ["names", "signatures", "schemas"],
            "description": "How much of each hit to show; signatures unless told.",
        },
        max_tokens={"type": "integer", "description": "Longest reply that you want."},
    )


def _describe_schema() -> Json:
    names = {
        "type": "array",
        "items": {"type": "string"},
        "minItems": 1,
        "maxItems": NAMES_LIMIT,
        "description": "Names as tool_search shows them.",
    }
    return _object(["names"], names=names)


def _call_schema() -> Json:
    return _object(
        ["name"],
        name={"type": "string", "description": "A found tool's name, or a result's handle."},
        arguments={
            "type": "object",
            "description": "The tool's arguments. For a handle: {'start': 4000}, "
            "{'lines': [10, 60]}, {'find': 'words'} or {'path': '$.items[0].id'}.",
        },
    )


def _object(required: list[str], **properties: Json) -> Json:
    return {
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": False,
    }
