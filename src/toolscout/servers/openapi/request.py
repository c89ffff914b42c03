"""Build the parts of an HTTP request from a route and arguments: target, headers, cookies and body.

Arguments come from the model: any that would redirect the request or break it up raise
`InvalidArguments`. `executor` sends the request.
"""

import base64
import binascii
import re
from collections.abc import Iterator
from typing import Any
from urllib.parse import unquote_to_bytes

from toolscout.errors import InvalidArguments, Problem
from toolscout.schemas import Json, is_list, is_object
from toolscout.servers.openapi.route import (
    CONTROL,
    MEDIA,
    NO_PARAMETERS,
    VARIABLE,
    Body,
    Route,
    has_dots,
    quote_text,
    to_json,
    to_pairs,
    to_plain,
    to_segment,
    to_text,
    to_texts,
)
from toolscout.tools import Tool

_DATA_URL = re.compile(r"data:([^;,]*)((?:;[^;,]*)*),")


def make_argument_error(tool: Tool, key: str, rule: str, message: str) -> InvalidArguments:
    """Return the error for an argument that a request cannot carry."""
    return InvalidArguments(tool.name, [Problem(path=key, rule=rule, message=message)])


def build_target(tool: Tool, route: Route, arguments: Json) -> str:
    """Return the path and query of a request, percent-encoded."""
    template = route.path.partition("#")[0]  # a fragment is never sent
    places = {place.name: place for place in route.places if place.where == "path"}
    parts = VARIABLE.split(template)  # every second part is a name
    parts[::2] = [quote_text(part, safe="/?:@!$&'()*+,;=%") for part in parts[::2]]
    for at in range(1, len(parts), 2):
        place = places.get(parts[at])
        text = to_segment(place, arguments.get(place.key)) if place else ""
        if not text:
            raise make_argument_error(tool, place.key if place else "", "path", "may not be empty")
        parts[at] = text
    path, _, query = "".join(parts).partition("?")
    if not path.startswith("/") or has_dots(path):
        keys = ", ".join(place.key for place in places.values())
        raise make_argument_error(tool, keys, "path", "may not be or hold the steps '.' and '..'")
    pairs = (f"{name}={value}" for name, value in _build_query(route, arguments))
    query = "&".join(filter(None, (query, *pairs)))
    return f"{path}?{query}" if query else path


def _build_query(route: Route, arguments: Json) -> Iterator[tuple[str, str]]:
    for place in route.places:
        if place.where == "query":
            value = to_plain(place, arguments.get(place.key))
            safe = "/:@!$'()*,;?" if place.keeps_reserved else ""
            yield from to_pairs(place.name, value, place.style, explode=place.explode, safe=safe)


def build_headers(tool: Tool, route: Route, arguments: Json) -> dict[str, str]:
    """Return the headers set by arguments, by lower-case name."""
    headers: dict[str, str] = {}
    for place in route.places:
        value = to_plain(place, arguments.get(place.key)) if place.where == "header" else None
        if value is None or place.name.lower() in NO_PARAMETERS:
            continue
        text = ",".join(to_texts(value, place.explode))
        if CONTROL.search(text):
            raise make_argument_error(tool, place.key, "header", "may not hold control characters")
        headers[place.name.lower()] = text.strip()
    return headers


def build_cookies(route: Route, arguments: Json, own: str) -> str:
    """Return the cookies of a request; arguments cannot replace the configured ones."""
    names = {part.partition("=")[0].strip() for part in own.split(";")}
    found = [own] if own else []
    for place in route.places:
        if place.where == "cookie" and place.name not in names:
            value = to_plain(place, arguments.get(place.key))
            pairs = to_pairs(place.name, value, place.style, explode=place.explode)
            found += [f"{name}={text}" for name, text in pairs if name not in names]
    return "; ".join(found)


def build_payload(body: Body | None, arguments: Json) -> tuple[dict[str, Any], str]:
    """Return the body as keywords of `httpx2.Request`, and its type if httpx2 does not set it."""
    value = _build_body_value(body, arguments)
    if body is None or value is None:
        return {}, ""
    if body.kind == "multipart" and is_object(value):
        return {"files": list(_build_parts(body, value))}, ""
    return {"content": _encode_content(body, value)}, body.media


def _build_body_value(body: Body | None, arguments: Json) -> object:
    if body is None:
        return None
    if body.key:
        return arguments.get(body.key)
    value = {name: arguments[key] for key, name in body.members.items() if key in arguments}
    return value if value or body.required else None


def _encode_content(body: Body, value: object) -> bytes:
    if body.kind == "json":
        return to_json(value).encode("utf-8", "replace")
    if body.kind == "form" and is_object(value):
        pairs: list[str] = []
        for name, item in value.items():
            style, explode = body.styles.get(name, ("form", True))
            pairs += [f"{k}={v}" for k, v in to_pairs(name, item, style, explode=explode)]
        return "&".join(pairs).encode()
    return _to_bytes(value)[0]


def _build_parts(body: Body, value: Json) -> Iterator[tuple[str, tuple[str | None, bytes, str]]]:
    for name, given in value.items():
        items: list[object] = given if is_list(given) else [given]
        for item in items:
            if name in body.files:
                data, media = _to_bytes(item)
                yield name, (name, data, media or "application/octet-stream")
            elif item is not None:
                media = "application/json" if is_object(item) or is_list(item) else "text/plain"
                yield name, (None, to_text(item).encode("utf-8", "replace"), media)


def _to_bytes(value: object) -> tuple[bytes, str]:
    """Return the bytes of a file or body that the model wrote, and their type if it gave one."""
    text = to_text(value)
    plain = text.encode("utf-8", "replace"), ""
    head = _DATA_URL.match(text)
    if head is None:
        return plain
    rest, media = text[head.end() :], head[1] if MEDIA.fullmatch(head[1]) else ""
    if not head[2].endswith(";base64"):
        return unquote_to_bytes(rest), media
    try:
        return base64.b64decode("".join(rest.split()), validate=True), media
    except (binascii.Error, ValueError):
        return plain
