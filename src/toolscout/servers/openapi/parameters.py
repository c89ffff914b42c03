"""Turn the operations of a document into tools.

`Arguments` merges the parameters and the body of an operation into one set of arguments, both as
a schema for the model and as a route for the call. `tools_from_openapi` builds the tools.
"""

import dataclasses
from collections.abc import Iterator
from itertools import islice
from typing import Any

from toolscout.errors import InvalidTool
from toolscout.names import clean_text
from toolscout.schemas import Json, is_object
from toolscout.servers.openapi.document import Document
from toolscout.servers.openapi.jsonschema import INPUT_VALUES, OUTPUT_VALUES, Schemas
from toolscout.servers.openapi.operations import (
    DESCRIPTION_CHARS,
    EFFECTS,
    MAX_PARAMETERS,
    NAME_CHARS,
    UNSAFE,
    Operation,
    choose_leaves,
    digest,
    get_content,
    get_text,
    list_items,
    list_operations,
)
from toolscout.servers.openapi.route import (
    EXTRA,
    KINDS,
    NO_PARAMETERS,
    STYLES,
    TOKEN,
    VARIABLE,
    Body,
    Place,
    Route,
    choose_sent_media,
    find_body_kind,
    has_dots,
    is_json,
    normalize_media,
    read_style,
)
from toolscout.tools import Tool

ARGUMENT_WORK = 50
"""The work that an argument costs in addition to its schema, in visited values."""
KEY_CHARS = 64

_FILE_NOTE = "Text, or a `data:` URL with base64 for binary content."


class Arguments:
    """The arguments of one operation: as a schema for the model, as a route for the call."""

    def __init__(self, source: Document, schemas: Schemas, operation: Operation) -> None:
        self.source = source
        self._schemas = schemas
        self._operation = operation
        self._properties: Json = {}
        self._required: list[str] = []
        self._places: list[Place] = []
        self._body: Body | None = None
        for name, where, said in self._list_parameters():
            self._add_parameter(name, where, said)
        self._add_body(source.follow(operation.said.get("requestBody")))

    def build_schema(self) -> Json:
        """Return the input schema, complete with its definitions."""
        found: Json = {"type": "object", "properties": self._properties}
        if self._required:
            found["required"] = self._required
        # An unknown argument has no place in the request and would be lost silently.
        found["additionalProperties"] = False
        return self._schemas.complete(found, INPUT_VALUES)

    def build_route(self) -> Route:
        """Return the route, which says where in a request each argument goes."""
        operation = self._operation
        return Route(
            method=operation.method.upper(),
            path=operation.path,
            places=tuple(self._places),
            body=self._body,
        )

    def _list_parameters(self) -> Iterator[tuple[str, str, Json]]:
        """Yield name, place and definition of the parameters, those in the path first."""
        found: dict[tuple[str, str], Json] = {}
        for holder in (self._operation.shared, self._operation.said):
            for row in list_items(holder.get("parameters")):
                said = self.source.follow(row)
                name, where = said.get("name"), said.get("in")
                if isinstance(name, str) and isinstance(where, str) and _is_usable(name, where):
                    found[name, where] = said
        variables = dict.fromkeys(VARIABLE.findall(self._operation.path))
        yield from ((name, "path", found.get((name, "path"), {})) for name in variables)
        yield from ((*at, said) for at, said in found.items() if at[1] != "path")

    def _add_parameter(self, name: str, where: str, said: Json) -> None:
        media, entry = next(iter(get_content(said).items()), ("", said))
        schema = dict(self._schemas.translate(entry.get("schema")))
        if where == "path" and not schema:
            schema["type"] = "string"
        if text := get_text(said, "description"):
            schema["description"] = clean_text(text, DESCRIPTION_CHARS)
        if said.get("deprecated") is True:
            schema["deprecated"] = True
        style = read_style(said, STYLES[where])
        explode = said.get("explode")
        place = Place(
            key=self._find_free_key(name, where),
            name=name,
            where=where,
            style=style,
            explode=explode if isinstance(explode, bool) else style == "form",
            is_json=bool(media),
            keeps_reserved=said.get("allowReserved") is True,
        )
        self._places.append(place)
        self._put(place.key, schema, required=where == "path" or said.get("required") is True)

    def _put(self, key: str, schema: Json, *, required: bool) -> None:
        self.source.count_work(ARGUMENT_WORK)
        self._properties[key] = schema
        if required:
            self._required.append(key)

    def _find_free_key(self, name: str, where: str) -> str:
        """Return a key that no earlier argument has."""
        key = _make_key(name)
        if key in self._properties:
            key = _make_key(f"{where}_{name}")
        if key in self._properties:
            key = f"{key[: KEY_CHARS - 9]}_{digest(f'{where} {name}')}"
        while key in self._properties:
            key = f"_{key}"[:KEY_CHARS]
        return key

    def _add_body(self, said: Json) -> None:
        content = get_content(said)
        if not content:
            return
        media = min(content, key=lambda media: KINDS.index(find_body_kind(media)))
        kind, entry = find_body_kind(media), content[media]
        required = said.get("required") is True
        schema = self._schemas.translate(entry.get("schema"))
        body = Body(
            kind=kind,
            media=choose_sent_media(media, kind),
            required=required,
            styles=_read_styles(entry) if kind == "form" else {},
        )
        members = None if kind == "text" else self._schemas.merge_members(schema)
        keys = {_make_key(name): name for name in members[0]} if members else {}
        if members and len(keys) == len(members[0]) and not keys.keys() & self._properties.keys():
            self._add_members(body, keys, *members)
        else:
            self._add_whole(body, schema, get_text(said, "description"))

    def _add_members(self, body: Body, keys: dict[str, str], said: Json, wanted: list[str]) -> None:
        files = {n: None for n in said if body.kind == "multipart" and _is_file(said[n])}
        must = set(wanted) if body.required else set[str]()
        for key, name in keys.items():
            schema = _make_file_schema(said[name]) if name in files else said[name]
            self._put(key, schema, required=name in must)
        self._body = dataclasses.replace(body, members=keys, files=list(files))

    def _add_whole(self, body: Body, schema: Json, text: str) -> None:
        key = self._find_free_key("body", "request")
        if body.kind == "text":
            schema = {
                "type": "string",
                "description": f"Content of type {body.media}. {_FILE_NOTE}",
            }
        elif text:
            schema = {**schema, "description": clean_text(text, DESCRIPTION_CHARS)}
        self._put(key, schema, required=body.required)
        self._body = dataclasses.replace(body, key=key)


def _is_usable(name: str, where: str) -> bool:
    if where == "header":
        return TOKEN.fullmatch(name) is not None and name.lower() not in NO_PARAMETERS
    if where == "cookie":
        return TOKEN.fullmatch(name) is not None
    return where in STYLES and 0 < len(name) <= NAME_CHARS


def _make_key(name: str) -> str:
    """Return a property name that every model provider accepts."""
    name = name[:NAME_CHARS]
    safe = UNSAFE.sub("_", name)
    return ((safe if safe == name else safe.strip("_")) or "value")[:KEY_CHARS]


def _read_styles(entry: Json) -> dict[str, list[Any]]:
    encoding = entry.get("encoding")
    rows = islice(encoding.items(), MAX_PARAMETERS) if is_object(encoding) else ()
    styles: dict[str, list[Any]] = {}
    for name, said in rows:
        if is_object(said) and "style" in said:
            style = read_style(said, "form")
            styles[name] = [style, said.get("explode", style == "form") is True]
    return styles


def _is_file(schema: object) -> bool:
    if not is_object(schema):
        return False
    is_raw = "contentMediaType" in schema and "contentEncoding" not in schema
    return schema.get("format") == "binary" or is_raw or _is_file(schema.get("items"))


def _make_file_schema(schema: Json) -> Json:
    text = f"{schema.get('description', '')} {_FILE_NOTE}".strip()
    if schema.get("type") == "array":
        return {"type": "array", "items": {"type": "string"}, "description": text}
    return {"type": "string", "description": text}


def tools_from_openapi(document: Json, server: str) -> list[Tool]:
    """Return a tool for each operation of an OpenAPI 3.x document, in its order.

    Raises `InvalidFile` if the document cannot be used and `InvalidTool` if an operation cannot.
    """
    source = Document(document, where=f"OpenAPI document of server {server!r}")
    operations = list(list_operations(source))
    inputs = Schemas(source, hidden="readOnly")
    outputs = Schemas(source, hidden="writeOnly")
    leaves = choose_leaves(operations, server)
    return [
        _make_tool(operation, leaf, server, Arguments(source, inputs, operation), outputs)
        for operation, leaf in zip(operations, leaves, strict=True)
    ]


def _make_tool(
    operation: Operation, leaf: str, server: str, arguments: Arguments, outputs: Schemas
) -> Tool:
    if has_dots(operation.path):
        raise InvalidTool(
            f"has the path {clean_text(operation.path, 80)!r}, which leads out of the base URL",
            server=server,
            tool=leaf,
            remedy="Write the path without '.' and '..' segments.",
        )
    tags = [tag for tag in list_items(operation.said.get("tags")) if isinstance(tag, str)]
    is_deprecated = operation.said.get("deprecated") is True
    return Tool.define(
        leaf,
        server=server,
        title=get_text(operation.said, "summary"),
        description=_build_description(operation, "Deprecated: " if is_deprecated else ""),
        input_schema=arguments.build_schema(),
        output_schema=_find_output(operation, arguments.source, outputs),
        tags=["deprecated", *tags] if is_deprecated else tags,
        effect=EFFECTS[operation.method],
        extras={EXTRA: arguments.build_route().to_json()},
    )


def _build_description(operation: Operation, mark: str) -> str:
    summary, text = get_text(operation.said, "summary"), get_text(operation.said, "description")
    if text.startswith(summary.rstrip(".")):
        summary = ""
    description = "\n\n".join(filter(None, (summary, text)))
    description = mark + (description or f"{operation.method.upper()} {operation.path}")
    if len(description) <= DESCRIPTION_CHARS:
        return description
    return description[: DESCRIPTION_CHARS - 1] + "…"


def _find_output(operation: Operation, source: Document, outputs: Schemas) -> Json | None:
    """Return the schema of a successful JSON response, if the document has one."""
    responses = operation.said.get("responses")
    codes = responses if is_object(responses) else {}
    source.count_work(len(codes))
    good = [code for code in sorted(codes) if code.startswith("2")]
    response = source.follow(codes.get(next(iter(good or ["default"]))))
    for media, entry in get_content(response).items():
        if is_json(normalize_media(media)):
            schema = outputs.resolve(outputs.translate(entry.get("schema")))
            return outputs.complete(schema, OUTPUT_VALUES) if schema else None
    return None
