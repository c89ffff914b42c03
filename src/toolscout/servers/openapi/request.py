"""Build HTTP requests from arguments.

A `RequestTemplate` says where in a request each argument goes and how the body is built. It is
stored in its tool's `extras` as plain JSON, so that a stored tool can be called. Arguments come
from the model: any that would redirect a request or break it up raise `InvalidArguments`.
"""

import base64
import binascii
import dataclasses
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Self
from urllib.parse import quote, unquote, unquote_to_bytes

from toolscout.errors import CallFailed, InvalidArguments, Problem
from toolscout.schemas import Json, is_list, is_object
from toolscout.tools import Tool

EXTRA = "openapi"
"""The key in a tool's `extras` that holds the template."""

VARIABLE = re.compile(r"\{([^{}/?#]+)\}")
TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,200}")
SLASH = re.compile(r"[/\\]")
CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
MEDIA = re.compile(r"[\w.+-]{1,100}/[\w.+-]{1,100}", re.ASCII)
MEDIA_CHARS = 1_000
DECODED_TIMES = 3
NO_PARAMETERS = re.compile(
    "accept|authorization|content-type|host|cookie|connection|upgrade|content-length"
    "|transfer-encoding|te|trailer|expect|proxy-authorization",
    re.IGNORECASE,
)
"""Headers that are not for parameters.

OpenAPI forbids the first three; the others would change where a request goes or where it ends.
"""

_JOINERS = {"form": ",", "spaceDelimited": "%20", "pipeDelimited": "%7C"}
_DATA_URL = re.compile(r"data:([^;,]*)((?:;[^;,]*)*),")


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where in a request one argument goes, and how it is written there."""

    key: str
    """The argument's name in the tool's schema."""
    name: str
    where: str
    """`path`, `query`, `header` or `cookie`."""
    style: str
    explode: bool
    is_json: bool = False
    keeps_reserved: bool = False
    """Whether a query keeps reserved characters as they are, and a path may contain slashes."""

    def get_value(self, arguments: Json) -> object:
        """Return the argument, as JSON text if the place takes JSON."""
        value: object = arguments.get(self.key)
        return to_json(value) if self.is_json and value is not None else value


@dataclass(frozen=True, slots=True, kw_only=True)
class Body:
    """How the body of a request is built."""

    kind: str
    """`json`, `form`, `multipart` or `text`."""
    media: str
    required: bool
    key: str = ""
    """The argument that is the whole body; empty if the body is built from `members`."""
    members: dict[str, str] = field(default_factory=dict[str, str])
    """The name in the body of each argument that is a member of it."""
    styles: dict[str, list[Any]] = field(default_factory=dict[str, list[Any]])
    """Style and explode of each member of a form."""
    files: list[str] = field(default_factory=list[str])


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestTemplate:
    """How to call one operation."""

    method: str
    path: str
    places: tuple[Place, ...] = ()
    body: Body | None = None

    @classmethod
    def from_tool(cls, tool: Tool) -> Self:
        """Return the template in a tool's `extras`."""
        row: Any = tool.extras.get(EXTRA)
        try:
            return cls(
                method=row["method"],
                path=row["path"],
                places=tuple(Place(**place) for place in row["places"]),
                body=Body(**row["body"]) if row["body"] else None,
            )
        except (KeyError, TypeError):
            raise CallFailed(tool.name, "its definition does not say how to call it") from None

    def to_json(self) -> Json:
        """Return the template in the form that `from_tool` reads."""
        row = dataclasses.asdict(self)
        return {**row, "places": list(row["places"])}


def make_argument_error(tool: Tool, key: str, rule: str, message: str) -> InvalidArguments:
    """Return the error for an argument that a request cannot carry."""
    return InvalidArguments(tool.name, [Problem(path=key, rule=rule, message=message)])


def build_target(tool: Tool, template: RequestTemplate, arguments: Json) -> str:
    """Return the path and query of a request, percent-encoded."""
    places = {place.name: place for place in template.places if place.where == "path"}
    # A fragment is never sent. Every second part is the name of a variable.
    parts = VARIABLE.split(template.path.partition("#")[0])
    parts[::2] = [quote_text(part, safe="/?:@!$&'()*+,;=%") for part in parts[::2]]
    for at in range(1, len(parts), 2):
        place = places.get(parts[at])
        text = _to_segment(place, arguments) if place else ""
        if place is None or not text:
            raise make_argument_error(tool, place.key if place else "", "path", "may not be empty")
        # Servers that decode a path before they route it would find another operation.
        if not place.keeps_reserved and SLASH.search(decode_path(text)):
            problem = "may not contain slashes or backslashes"
            raise make_argument_error(tool, place.key, "path", problem)
        parts[at] = text
    path, _, query = "".join(parts).partition("?")
    if not path.startswith("/") or has_dots(path):
        keys = ", ".join(place.key for place in places.values())
        raise make_argument_error(tool, keys, "path", "may not be or hold the steps '.' and '..'")
    pairs = [query] if query else []
    for place in template.places:
        if place.where == "query":
            safe = "/:@!$'()*,;?" if place.keeps_reserved else ""
            pairs += _list_pairs(place, arguments, safe)
    return f"{path}?{'&'.join(pairs)}" if pairs else path


def build_headers(tool: Tool, template: RequestTemplate, arguments: Json) -> dict[str, str]:
    """Return the headers set by arguments, by lower-case name."""
    headers: dict[str, str] = {}
    for place in template.places:
        value = place.get_value(arguments) if place.where == "header" else None
        if value is None or NO_PARAMETERS.fullmatch(place.name):
            continue
        text = ",".join(_to_texts(value, place.explode))
        if CONTROL.search(text):
            raise make_argument_error(tool, place.key, "header", "may not hold control characters")
        headers[place.name.lower()] = text.strip()
    return headers


def build_cookies(template: RequestTemplate, arguments: Json, own: str) -> str:
    """Return the cookies of a request; arguments cannot replace the configured ones."""
    names = {part.partition("=")[0].strip() for part in own.split(";")}
    found = [own] if own else []
    for place in template.places:
        if place.where == "cookie" and place.name not in names:
            pairs = _list_pairs(place, arguments)
            found += [pair for pair in pairs if pair.partition("=")[0] not in names]
    return "; ".join(found)


def build_payload(body: Body | None, arguments: Json) -> tuple[dict[str, Any], str]:
    """Return the body as keywords of `httpx2.Request`, and its type if httpx2 does not set it."""
    if body is None:
        return {}, ""
    value: object = arguments.get(body.key)
    if not body.key:
        members = {name: arguments[key] for key, name in body.members.items() if key in arguments}
        value = members if members or body.required else None
    if value is None:
        return {}, ""
    if body.kind == "multipart" and is_object(value):
        return {"files": list(_list_parts(body, value))}, ""
    if body.kind == "json":
        content = to_json(value).encode("utf-8", "replace")
    elif body.kind == "form" and is_object(value):
        pairs: list[str] = []
        for name, item in value.items():
            style, explode = body.styles.get(name, ("form", True))
            pairs += _to_pairs(name, item, style, explode=explode)
        content = "&".join(pairs).encode()
    else:
        content, _ = _to_bytes(value)
    return {"content": content}, body.media


def _list_parts(body: Body, value: Json) -> Iterator[tuple[str, tuple[str | None, bytes, str]]]:
    for name, given in value.items():
        items: list[object] = given if is_list(given) else [given]
        for item in items:
            if name in body.files:
                data, media = _to_bytes(item)
                yield name, (name, data, media or "application/octet-stream")
            elif item is not None:
                media = "application/json" if is_object(item) or is_list(item) else "text/plain"
                yield name, (None, _to_text(item).encode("utf-8", "replace"), media)


def _to_bytes(value: object) -> tuple[bytes, str]:
    """Return the bytes of a file or body that the model wrote, and their type if it gave one."""
    text = _to_text(value)
    plain = text.encode("utf-8", "replace"), ""
    head = _DATA_URL.match(text)
    if head is None:
        return plain
    rest = text[head.end() :]
    media = head[1] if MEDIA.fullmatch(head[1]) else ""
    if not head[2].endswith(";base64"):
        return unquote_to_bytes(rest), media
    try:
        return base64.b64decode("".join(rest.split()), validate=True), media
    except (binascii.Error, ValueError):
        return plain


# The styles of OpenAPI.


def _list_pairs(place: Place, arguments: Json, safe: str = "") -> Iterator[str]:
    value = place.get_value(arguments)
    return _to_pairs(place.name, value, place.style, explode=place.explode, safe=safe)


def _to_pairs(name: str, value: object, style: str, explode: bool, safe: str = "") -> Iterator[str]:
    """Yield percent-encoded `name=value` pairs for one parameter."""
    if style == "deepObject" and (is_object(value) or is_list(value)):
        for key, item in value.items() if is_object(value) else enumerate(value):
            yield from _to_pairs(f"{name}[{key}]", item, style, explode=explode)
    elif is_object(value) and explode:
        for member, item in value.items():
            if item is not None:
                yield f"{quote_text(member)}={quote_text(_to_text(item), safe)}"
    elif value is not None:
        texts = [quote_text(text, safe) for text in _to_texts(value, explode=False)]
        if texts and not explode:
            texts = [_JOINERS.get(style, ",").join(texts)]
        yield from (f"{quote_text(name)}={text}" for text in texts)


def _to_segment(place: Place, arguments: Json) -> str:
    """Return an argument as part of a path; empty if there is nothing to write."""
    value = place.get_value(arguments)
    if value is None:
        return ""
    if place.style == "matrix":
        pairs = _to_pairs(place.name, value, "form", explode=place.explode)
        return "".join(f";{pair}" for pair in pairs)
    safe = "=" if is_object(value) else ""
    texts = [quote_text(text, safe) for text in _to_texts(value, place.explode)]
    if place.style == "label":
        return "." + ("." if place.explode else ",").join(texts) if any(texts) else ""
    return ",".join(texts)


def _to_texts(value: object, explode: bool) -> list[str]:
    """Return the plain texts of a value.

    An object gives `name=value` texts with `explode`, otherwise names and values in turn.
    """
    if is_list(value):
        return [_to_text(item) for item in value if item is not None]
    if not is_object(value):
        return [_to_text(value)]
    members = [(key, _to_text(item)) for key, item in value.items() if item is not None]
    if explode:
        return [f"{key}={item}" for key, item in members]
    return [text for member in members for text in member]


def _to_text(value: object) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, float) and value.is_integer() and abs(value) < 1 << 53:
        return str(int(value))  # JSON Schema accepts 5.0 as an integer, most servers do not
    return to_json(value)


def to_json(value: object) -> str:
    """Return a value as JSON without spaces."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def quote_text(text: str, safe: str = "") -> str:
    """Percent-encode a text, except for the `safe` characters."""
    return quote(text.encode("utf-8", "replace"), safe=safe)


def has_dots(path: str) -> bool:
    """Return whether a path has a `.` or `..` segment, however it is encoded."""
    return not {".", ".."}.isdisjoint(SLASH.split(decode_path(path.partition("?")[0])))


def decode_path(path: str) -> str:
    """Return a path as a server may read it that decodes it several times."""
    for _ in range(DECODED_TIMES):
        path = unquote(path)
    return path


def normalize_media(media: str) -> str:
    """Return a media type without its parameters, in lower case."""
    return media[:MEDIA_CHARS].partition(";")[0].strip().lower()


def is_json(media: str) -> bool:
    """Return whether a media type without parameters is JSON."""
    return media in ("application/json", "text/json") or media.endswith("+json")
