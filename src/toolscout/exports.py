"""A catalogue in the shapes that others read.

toolscout's own shape reads back to equal tools. The shapes of providers hold what a model would
be sent: exposed names, and nothing that their format has no place for.
"""

import json
from collections.abc import Iterable
from enum import StrEnum

from toolscout.dialects import Dialect, to_definition
from toolscout.files import tool_to_json
from toolscout.tools import Tool


class Shape(StrEnum):
    """Who is to read a catalogue."""

    JSON = "json"
    JSONL = "jsonl"
    MCP = "mcp"
    """The answer of `tools/list`."""
    OPENAI = "openai"
    """Chat Completions."""
    OPENAI_RESPONSES = "openai-responses"
    ANTHROPIC = "anthropic"


_DIALECTS = {
    Shape.MCP: Dialect.MCP,
    Shape.OPENAI: Dialect.OPENAI_CHAT,
    Shape.OPENAI_RESPONSES: Dialect.OPENAI_RESPONSES,
    Shape.ANTHROPIC: Dialect.ANTHROPIC,
}


def exported(tools: Iterable[Tool], shape: Shape) -> str:
    """Return tools as the text of a file, which ends in a line break."""
    dialect = _DIALECTS.get(shape)
    rows = [to_definition(t, dialect) if dialect else tool_to_json(t) for t in tools]
    lines = [json.dumps(row, ensure_ascii=False) for row in rows]
    if shape is Shape.JSONL:
        return "".join(f"{line}\n" for line in lines)
    listed = "[\n" + ",\n".join(lines) + "\n]" if lines else "[]"
    return f'{{"tools": {listed}}}\n' if shape is Shape.MCP else f"{listed}\n"
