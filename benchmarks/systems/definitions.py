"""A tool as the compared systems see it: names, parameters and definitions.

Converts our `Tool` for the interfaces of other systems.
"""

from typing import cast

from toolscout.schemas import Json
from toolscout.tools import Tool

_USUAL: dict[str, type[object]] = {
    "description": str,
    "items": dict,
    "properties": dict,
    "required": list,
}


def mcp_name(tool: Tool) -> str:
    """Return the name that the five agents give a tool: `mcp__server__leaf`, or the leaf."""
    return f"mcp__{tool.server}__{tool.leaf}" if tool.server else tool.leaf


def properties(tool: Tool) -> Json:
    """Return the top-level parameters and their schemas; none if the schema is unusable."""
    found = tool.input_schema.get("properties")
    return cast(Json, found) if isinstance(found, dict) else {}


def plain_schema(schema: object) -> Json:
    """Return a schema that careless parsers accept.

    Real servers send `true` for a parameter or for `required`, and lists for descriptions;
    some peers fail on these. Values of an unusual type are left out.
    """
    given = cast(Json, schema) if isinstance(schema, dict) else {}
    plain: Json = {
        key: value for key, value in given.items() if isinstance(value, _USUAL.get(key, object))
    }
    if "items" in plain:
        plain["items"] = plain_schema(plain["items"])
    if "properties" in plain:
        parameters = cast(Json, plain["properties"])
        plain["properties"] = {name: plain_schema(value) for name, value in parameters.items()}
    return plain


def well_formed(text: str) -> str:
    """Return the text with lone surrogates replaced, which UTF-8 libraries refuse."""
    return text.encode("utf-8", "replace").decode("utf-8")
