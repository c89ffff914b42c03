"""How to call an operation: where each argument goes in a request, and how the body is built.

A `Route` is stored in its tool's `extras` as plain JSON, so that a stored tool can be called.
`parameters` builds routes, `request` follows them. Also here: the parameter styles of OpenAPI,
the headers that arguments may set, and the media types of bodies.
"""

import dataclasses
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Self
from urllib.parse import quote, unquote

from toolscout.errors import CallFailed, InvalidConfig
from toolscout.names import clean_text
from toolscout.schemas import Json, is_list, is_object
from toolscout.tools import Tool

EXTRA = "openapi"
"""The key in a tool's `extras` that holds the route."""

VARIABLE = re.compile(r"\{([^{}/?#]+)\}")


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
class Route:
    """How to call one operation."""

    method: str
    path: str
    places: tuple[Place, ...] = ()
    body: Body | None = None

    @classmethod
    def from_tool(cls, tool: Tool) -> Self:
        """Return the route in a tool's `extras`."""
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
        """Return the route in the form that `from_tool` reads."""
        row = dataclasses.asdict(self)
        return {**row, "places": list(row["places"])}


def has_dots(path: str) -> bool:
    """Return whether a path has a `.` or `..` segment, however it is encoded."""
    decoded = unquote(unquote(path.partition("?")[0]))
    return not {".", ".."}.isdisjoint(re.split(r"[/\\]", decoded))


STYLES = {"path": "simple", "query": "form", "header": "simple", "cookie": "form"}

_KNOWN_STYLES = frozenset(
    ("simple", "label", "matrix", "form", "spaceDelimited", "pipeDelimited", "deepObject")
)
_JOINERS = {"form": ",", "spaceDelimited": "%20", "pipeDelimited": "%7C"}


def read_style(said: Json, usual: str) -> str:
    """Return the style of a parameter or encoding, or `usual` if it names no known one."""
    style = said.get("style")
    return style if isinstance(style, str) and style in _KNOWN_STYLES else usual


def to_plain(place: Place, value: object) -> object:
    """Return a value ready for styling: as JSON text if the place takes JSON."""
    return value if value is None or not place.is_json else to_json(value)


def to_pairs(
    name: str, value: object, style: str, *, explode: bool, safe: str = ""
) -> Iterator[tuple[str, str]]:
    """Yield the percent-encoded names and values of one parameter."""
    key = quote_text(name)
    is_inner = is_object(value) or is_list(value)
    if style == "deepObject" and is_inner:
        yield from _list_deep_pairs(name, value)
    elif is_object(value) and explode:
        inner = ((k, v) for k, v in value.items() if v is not None)
        yield from ((quote_text(k), quote_text(to_text(v), safe)) for k, v in inner)
    elif is_inner:
        texts = [quote_text(text, safe) for text in to_texts(value, explode=False)]
        joined = [_JOINERS.get(style, ",").join(texts)] if texts else []
        yield from ((key, text) for text in (texts if explode else joined))
    elif value is not None:
        yield key, quote_text(to_text(value), safe)


def _list_deep_pairs(name: str, value: object) -> Iterator[tuple[str, str]]:
    if is_object(value):
        inner: Iterable[tuple[object, object]] = value.items()
    elif is_list(value):
        inner = enumerate(value)
    else:
        if value is not None:
            yield quote_text(name), quote_text(to_text(value))
        return
    for key, item in inner:
        yield from _list_deep_pairs(f"{name}[{key}]", item)


def to_segment(place: Place, value: object) -> str:
    """Return a value as part of a path, percent-encoded; empty if there is nothing to write."""
    value = to_plain(place, value)
    if value is None:
        return ""
    if place.style == "matrix":
        pairs = to_pairs(place.name, value, "form", explode=place.explode)
        return "".join(f";{name}={text}" for name, text in pairs)
    texts = [
        quote_text(text, "=" if is_object(value) else "") for text in to_texts(value, place.explode)
    ]
    if place.style == "label":
        return "." + ("." if place.explode else ",").join(texts) if any(texts) else ""
    return ",".join(texts)


def to_texts(value: object, explode: bool) -> list[str]:
    """Return the plain texts of a value.

    An object gives `name=value` texts with `explode`, otherwise names and values in turn.
    """
    if is_list(value):
        return [to_text(item) for item in value if item is not None]
    if not is_object(value):
        return [to_text(value)]
    members = [(key, to_text(item)) for key, item in value.items() if item is not None]
    if explode:
        return [f"{key}={item}" for key, item in members]
    return [text for member in members for text in member]


def to_text(value: object) -> str:
    """Return a string unchanged and any other value as JSON."""
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


# OpenAPI forbids parameters to set the first three; the others would change where a request goes
# or where it ends.
NO_PARAMETERS = frozenset(
    (
        *("accept", "authorization", "content-type", "host", "cookie", "connection", "upgrade"),
        *("content-length", "transfer-encoding", "te", "trailer", "expect", "proxy-authorization"),
    )
)

TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,200}")
CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")


def check_headers(headers: Mapping[str, str]) -> dict[str, str]:
    """Return configured headers by lower-case name; raises `InvalidConfig`."""
    for name, value in headers.items():
        if not TOKEN.fullmatch(name) or CONTROL.search(value):
            # The value may be a secret, so the message leaves it out.
            raise InvalidConfig(
                f"headers.{clean_text(name, 80)}",
                "is not an HTTP header",
                remedy="Use letters, digits and hyphens in its name and one line as its value.",
            )
    return {name.lower(): value for name, value in headers.items()}


MEDIA_CHARS = 1_000
KINDS = ("json", "form", "multipart", "text")
"""The kinds of bodies, the preferred one first."""
MEDIA = re.compile(r"[\w.+-]{1,100}/[\w.+-]{1,100}", re.ASCII)


def normalize_media(media: str) -> str:
    """Return a media type without its parameters, in lower case."""
    return media[:MEDIA_CHARS].partition(";")[0].strip().lower()


def is_json(media: str) -> bool:
    """Return whether a media type without parameters is JSON."""
    return media in ("application/json", "text/json") or media.endswith("+json")


def find_body_kind(media: str) -> str:
    """Return the kind of body for a media type."""
    bare = normalize_media(media)
    if is_json(bare) or bare in ("*/*", "application/*"):
        return "json"
    forms = {"application/x-www-form-urlencoded": "form", "multipart/form-data": "multipart"}
    return forms.get(bare, "text")


def choose_sent_media(media: str, kind: str) -> str:
    """Return the media type to send; ranges and invalid types are replaced."""
    bare = normalize_media(media)
    if MEDIA.fullmatch(bare):
        return bare
    return {"json": "application/json"}.get(
        kind, "text/plain" if bare.startswith("text/") else "application/octet-stream"
    )
