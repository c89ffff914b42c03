"""The operations of a document as tools."""

from toolscout.errors import InvalidTool
from toolscout.names import clean_text
from toolscout.schemas import Json, is_object
from toolscout.servers.openapi.document import Document
from toolscout.servers.openapi.media import bare_media, is_json
from toolscout.servers.openapi.operations import (
    DESCRIPTION_CHARS,
    EFFECTS,
    Operation,
    content_of,
    leaves_of,
    listed,
    operations_of,
    text_of,
)
from toolscout.servers.openapi.parameters import Arguments
from toolscout.servers.openapi.routes import EXTRA, has_dots
from toolscout.servers.openapi.schema import OUTPUT_VALUES, Schemas
from toolscout.tools import Tool


def tools_from_openapi(document: Json, server: str) -> list[Tool]:
    """Return a tool for each operation of an OpenAPI 3.x document, in its order.

    Raises `InvalidFile` for a document that cannot be used and `InvalidTool` for an operation.
    """
    source = Document(document, where=f"OpenAPI document of server {server!r}")
    operations = list(operations_of(source))
    inputs = Schemas(source, hidden="readOnly")
    outputs = Schemas(source, hidden="writeOnly")
    leaves = leaves_of(operations, server)
    return [
        _tool(operation, leaf, server, Arguments(source, inputs, operation), outputs)
        for operation, leaf in zip(operations, leaves, strict=True)
    ]


def _tool(
    operation: Operation, leaf: str, server: str, arguments: Arguments, outputs: Schemas
) -> Tool:
    if has_dots(operation.path):
        raise InvalidTool(
            f"has the path {clean_text(operation.path, 80)!r}, which leads out of its server's",
            server=server,
            tool=leaf,
            remedy="Write the path without '.' and '..' steps.",
        )
    tags = [tag for tag in listed(operation.said.get("tags")) if isinstance(tag, str)]
    is_deprecated = operation.said.get("deprecated") is True
    return Tool.define(
        leaf,
        server=server,
        title=text_of(operation.said, "summary"),
        description=_description(operation, "Deprecated: " if is_deprecated else ""),
        input_schema=arguments.schema(),
        output_schema=_output(operation, arguments.source, outputs),
        tags=["deprecated", *tags] if is_deprecated else tags,
        effect=EFFECTS[operation.method],
        extras={EXTRA: arguments.route().to_json()},
    )


def _description(operation: Operation, mark: str) -> str:
    summary, text = text_of(operation.said, "summary"), text_of(operation.said, "description")
    if text.startswith(summary.rstrip(".")):
        summary = ""
    said = "\n\n".join(filter(None, (summary, text)))
    told = mark + (said or f"{operation.method.upper()} {operation.path}")
    return told if len(told) <= DESCRIPTION_CHARS else told[: DESCRIPTION_CHARS - 1] + "…"


def _output(operation: Operation, source: Document, outputs: Schemas) -> Json | None:
    """Return the schema of the JSON that a success gives, where the document says."""
    responses = operation.said.get("responses")
    codes = responses if is_object(responses) else {}
    source.spend(len(codes))
    good = [code for code in sorted(codes) if code.startswith("2")]
    response = source.follow(codes.get(next(iter(good or ["default"]))))
    for media, entry in content_of(response).items():
        if is_json(bare_media(media)):
            schema = outputs.resolved(outputs.translate(entry.get("schema")))
            return outputs.complete(schema, OUTPUT_VALUES) if schema else None
    return None
