"""Turn the operations of a document into tools.

`tools_from_openapi` lists the operations and chooses a name for each. `Arguments` merges the
parameters and the body of an operation into one set of arguments, both as a schema for the model
and as a template for requests.
"""

import dataclasses
import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any, cast

from toolscout.errors import InvalidTool
from toolscout.names import clean_text, make_exposed_name
from toolscout.schemas import Json, is_list, is_object
from toolscout.servers.openapi.document import Document, make_size_error
from toolscout.servers.openapi.jsonschema import INPUT_VALUES, OUTPUT_VALUES, Schemas
from toolscout.servers.openapi.request import (
    EXTRA,
    MEDIA,
    NO_PARAMETERS,
    TOKEN,
    VARIABLE,
    Body,
    Place,
    RequestTemplate,
    has_dots,
    is_json,
    normalize_media,
)
from toolscout.tools import Effect, Tool

MAX_OPERATIONS = 10_000
MAX_PARAMETERS = 500
DESCRIPTION_CHARS = 4_000
LEAF_CHARS = 200
NAME_CHARS = 1_000
"""How much of a name is read, because many operations may share a long one."""
KEY_CHARS = 64
ARGUMENT_WORK = 50
"""The work that an argument costs in addition to its schema, in visited values."""

EFFECTS = {
    **dict.fromkeys(("get", "head", "options", "trace", "query"), Effect.READ),
    **dict.fromkeys(("post", "put", "patch"), Effect.WRITE),
    "delete": Effect.DESTRUCTIVE,
}
STYLES = {"path": "simple", "query": "form", "header": "simple", "cookie": "form"}
"""The default style of parameters, by where they go."""
KINDS = ("json", "form", "multipart", "text")
"""The kinds of bodies, the preferred one first."""

_STYLE = re.compile("simple|label|matrix|form|spaceDelimited|pipeDelimited|deepObject")
_FILE_NOTE = "Text, or a `data:` URL with base64 for binary content."
_UNSAFE = re.compile(r"[^A-Za-z0-9_.-]+")


def tools_from_openapi(document: Json, server: str) -> list[Tool]:
    """Return a tool for each operation of an OpenAPI 3.x document, in its order.

    Raises `InvalidFile` if the document cannot be used and `InvalidTool` if an operation cannot.
    """
    source = Document(document, where=f"OpenAPI document of server {server!r}")
    operations = list(_list_operations(source))
    inputs = Schemas(source, hidden="readOnly")
    outputs = Schemas(source, hidden="writeOnly")
    return [
        _make_tool(operation, leaf, server, Arguments(source, inputs, operation), outputs)
        for operation, leaf in zip(operations, _choose_leaves(operations, server), strict=True)
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One method of one path, with its entry in the document."""

    method: str
    path: str
    shared: Json
    """The entry of the path, which applies to all its methods."""
    said: Json

    def list_names(self) -> tuple[str, str, str]:
        """Return the names that the operation may get, the best one first.

        They are the name from the document, the one made of method and path, and the latter with
        a hash, which tells similar paths apart.
        """
        path = self.path[:NAME_CHARS]
        route = _UNSAFE.sub("_", f"{self.method}{path}").strip("_")[:LEAF_CHARS]
        given = self.said.get("operationId")
        name = _UNSAFE.sub("_", given[:NAME_CHARS]).strip("_") if isinstance(given, str) else ""
        return name[:LEAF_CHARS] or route, route, f"{route}_{_hash(f'{self.method} {self.path}')}"


def _list_operations(source: Document) -> Iterator[Operation]:
    paths = source.root.get("paths")
    count = 0
    for path, item in paths.items() if is_object(paths) else ():
        shared = source.follow(item) if path.startswith("/") else {}
        source.count_work(len(shared))
        for method, said in shared.items():
            if method not in EFFECTS or not is_object(said):
                continue
            count += 1
            if count > MAX_OPERATIONS:
                problem = f"it contains more than {MAX_OPERATIONS:,} operations"
                raise make_size_error(source.where, problem)
            yield Operation(method=method, path=path, shared=shared, said=said)


def _choose_leaves(operations: list[Operation], server: str) -> list[str]:
    """Return a unique name for each operation.

    Operations with the same name all get another one, so that no name depends on their order.
    """
    leaves = [""] * len(operations)
    taken: set[str] = set()
    names = [operation.list_names() for operation in operations]
    for choice in range(3):
        wanted = {at: names[at][choice] for at, leaf in enumerate(leaves) if not leaf}
        exposed = {at: make_exposed_name(server, leaf) for at, leaf in wanted.items()}
        counts = Counter(exposed.values())
        for at, name in exposed.items():
            if counts[name] == 1 and name not in taken:
                leaves[at] = wanted[at]
                taken.add(name)
    if "" in leaves:
        raise InvalidTool(
            "has the same name as another operation",
            server=server,
            tool=names[leaves.index("")][-1],
            remedy="Give it an operationId of its own.",
        )
    return leaves


def _make_tool(
    operation: Operation, leaf: str, server: str, arguments: "Arguments", outputs: Schemas
) -> Tool:
    if has_dots(operation.path):
        raise InvalidTool(
            f"has the path {clean_text(operation.path, 80)!r}, which leads out of the base URL",
            server=server,
            tool=leaf,
            remedy="Write the path without '.' and '..' segments.",
        )
    said = operation.said
    tags = [tag for tag in _list_items(said.get("tags")) if isinstance(tag, str)]
    summary = _get_text(said, "summary")
    text = _get_text(said, "description")
    parts = (text,) if text.startswith(summary.rstrip(".")) else (summary, text)
    description = "\n\n".join(filter(None, parts))
    description = description or f"{operation.method.upper()} {operation.path}"
    if said.get("deprecated") is True:
        tags.insert(0, "deprecated")
        description = f"Deprecated: {description}"
    if len(description) > DESCRIPTION_CHARS:
        description = description[: DESCRIPTION_CHARS - 1] + "…"
    return Tool.define(
        leaf,
        server=server,
        title=summary,
        description=description,
        input_schema=arguments.build_schema(),
        output_schema=_find_output(operation, arguments.source, outputs),
        tags=tags,
        effect=EFFECTS[operation.method],
        extras={EXTRA: arguments.template.to_json()},
    )


def _find_output(operation: Operation, source: Document, outputs: Schemas) -> Json | None:
    """Return the schema of a successful JSON response, if the document has one."""
    responses = operation.said.get("responses")
    codes = responses if is_object(responses) else {}
    source.count_work(len(codes))
    good = [code for code in sorted(codes) if code.startswith("2")]
    response = source.follow(codes.get(next(iter(good or ["default"]))))
    for media, entry in _get_content(response).items():
        if is_json(normalize_media(media)):
            schema = outputs.resolve(outputs.translate(entry.get("schema")))
            return outputs.complete(schema, OUTPUT_VALUES) if schema else None
    return None


class Arguments:
    """The arguments of one operation: as a schema for the model, as a template for requests."""

    def __init__(self, source: Document, schemas: Schemas, operation: Operation) -> None:
        self.source = source
        self._schemas = schemas
        self._properties: Json = {}
        self._required: list[str] = []
        places = [self._add_parameter(*row) for row in self._list_parameters(operation)]
        self.template = RequestTemplate(
            method=operation.method.upper(),
            path=operation.path,
            places=tuple(places),
            body=self._add_body(source.follow(operation.said.get("requestBody"))),
        )
        """Where in a request each argument goes."""

    def build_schema(self) -> Json:
        """Return the input schema, complete with its definitions."""
        found: Json = {"type": "object", "properties": self._properties}
        if self._required:
            found["required"] = self._required
        # An unknown argument has no place in the request and would be lost silently.
        found["additionalProperties"] = False
        return self._schemas.complete(found, INPUT_VALUES)

    def _list_parameters(self, operation: Operation) -> Iterator[tuple[str, str, Json]]:
        """Yield name, place and definition of the parameters, those in the path first."""
        found: dict[tuple[str, str], Json] = {}
        for holder in (operation.shared, operation.said):
            for row in _list_items(holder.get("parameters")):
                said = self.source.follow(row)
                name, where = said.get("name"), said.get("in")
                if isinstance(name, str) and isinstance(where, str) and _is_usable(name, where):
                    found[name, where] = said
        variables = dict.fromkeys(VARIABLE.findall(operation.path))
        yield from ((name, "path", found.get((name, "path"), {})) for name in variables)
        yield from ((*at, said) for at, said in found.items() if at[1] != "path")

    def _add_parameter(self, name: str, where: str, said: Json) -> Place:
        media, entry = next(iter(_get_content(said).items()), ("", said))
        schema = dict(self._schemas.translate(entry.get("schema")))
        if where == "path" and not schema:
            schema["type"] = "string"
        if text := _get_text(said, "description"):
            schema["description"] = clean_text(text, DESCRIPTION_CHARS)
        if said.get("deprecated") is True:
            schema["deprecated"] = True
        style = _read_style(said, STYLES[where])
        explode = said.get("explode")
        key = self._find_free_key(name, where)
        self._put(key, schema, required=where == "path" or said.get("required") is True)
        return Place(
            key=key,
            name=name,
            where=where,
            style=style,
            explode=explode if isinstance(explode, bool) else style == "form",
            is_json=bool(media),
            keeps_reserved=said.get("allowReserved") is True,
        )

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
            key = f"{key[: KEY_CHARS - 9]}_{_hash(f'{where} {name}')}"
        while key in self._properties:
            key = f"_{key}"[:KEY_CHARS]
        return key

    def _add_body(self, said: Json) -> Body | None:
        content = _get_content(said)
        if not content:
            return None
        media = min(content, key=lambda media: KINDS.index(_find_body_kind(media)))
        kind = _find_body_kind(media)
        schema = self._schemas.translate(content[media].get("schema"))
        body = Body(
            kind=kind,
            media=_choose_sent_media(media, kind),
            required=said.get("required") is True,
            styles=_read_styles(content[media]) if kind == "form" else {},
        )
        members = None if kind == "text" else self._schemas.merge_members(schema)
        keys = {_make_key(name): name for name in members[0]} if members else {}
        if members and len(keys) == len(members[0]) and not keys.keys() & self._properties.keys():
            return self._add_members(body, keys, *members)
        text = _get_text(said, "description")
        if kind == "text":
            text = f"Content of type {body.media}. {_FILE_NOTE}"
            schema = {"type": "string", "description": text}
        elif text:
            schema = {**schema, "description": clean_text(text, DESCRIPTION_CHARS)}
        key = self._find_free_key("body", "request")
        self._put(key, schema, required=body.required)
        return dataclasses.replace(body, key=key)

    def _add_members(self, body: Body, keys: dict[str, str], said: Json, wanted: list[str]) -> Body:
        files: list[str] = []
        must = set(wanted) if body.required else set[str]()
        for key, name in keys.items():
            schema = said[name]
            if body.kind == "multipart" and _is_file(schema):
                files.append(name)
                text = f"{schema.get('description', '')} {_FILE_NOTE}".strip()
                is_array = schema.get("type") == "array"
                schema = {"type": "array", "items": {"type": "string"}} if is_array else {}
                schema = {"type": "string", **schema, "description": text}
            self._put(key, schema, required=name in must)
        return dataclasses.replace(body, members=keys, files=files)


def _is_usable(name: str, where: str) -> bool:
    if where == "header":
        return TOKEN.fullmatch(name) is not None and not NO_PARAMETERS.fullmatch(name)
    if where == "cookie":
        return TOKEN.fullmatch(name) is not None
    return where in STYLES and 0 < len(name) <= NAME_CHARS


def _make_key(name: str) -> str:
    """Return a property name that every model provider accepts."""
    name = name[:NAME_CHARS]
    safe = _UNSAFE.sub("_", name)
    return ((safe if safe == name else safe.strip("_")) or "value")[:KEY_CHARS]


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def _read_style(said: Json, usual: str) -> str:
    style = said.get("style")
    return style if isinstance(style, str) and _STYLE.fullmatch(style) else usual


def _read_styles(entry: Json) -> dict[str, list[Any]]:
    encoding = entry.get("encoding")
    styles: dict[str, list[Any]] = {}
    for name, said in islice(encoding.items(), MAX_PARAMETERS) if is_object(encoding) else ():
        if is_object(said) and "style" in said:
            style = _read_style(said, "form")
            styles[name] = [style, said.get("explode", style == "form") is True]
    return styles


def _find_body_kind(media: str) -> str:
    bare = normalize_media(media)
    if is_json(bare) or bare in ("*/*", "application/*"):
        return "json"
    forms = {"application/x-www-form-urlencoded": "form", "multipart/form-data": "multipart"}
    return forms.get(bare, "text")


def _choose_sent_media(media: str, kind: str) -> str:
    """Return the media type to send; ranges and invalid types are replaced."""
    bare = normalize_media(media)
    if MEDIA.fullmatch(bare):
        return bare
    if kind == "json":
        return "application/json"
    return "text/plain" if bare.startswith("text/") else "application/octet-stream"


def _is_file(schema: object) -> bool:
    if not is_object(schema):
        return False
    is_raw = "contentMediaType" in schema and "contentEncoding" not in schema
    return schema.get("format") == "binary" or is_raw or _is_file(schema.get("items"))


def _get_text(said: Json, key: str) -> str:
    """Return a text, cut at twice the length that is shown; empty if it is not a string."""
    text = said.get(key)
    return text[: 2 * DESCRIPTION_CHARS].strip() if isinstance(text, str) else ""


def _list_items(value: object) -> Iterable[object]:
    return islice(cast("list[object]", value), MAX_PARAMETERS) if is_list(value) else ()


def _get_content(said: Json) -> dict[str, Json]:
    """Return the content of a parameter, body or response by media type."""
    content = said.get("content")
    rows = islice(content.items(), MAX_PARAMETERS) if is_object(content) else ()
    return {media: entry for media, entry in rows if is_object(entry)}
