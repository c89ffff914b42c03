"""How an operation is called: where each argument goes in a request, and what the body is made of.

A `Route` travels in its tool's `extras` as plain JSON, so that a stored tool can be called.
`arguments` makes routes, `requests` follows them.

Values as the styles of OpenAPI write them into paths, queries, headers and forms.

All that `to_pairs` and `to_segment` give is percent-encoded; `to_text` and `to_texts` give plain
words.

Which headers a request may carry, and who may set them.

Media types: which are JSON, and what kind of body each asks for.
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
"""The member of a tool's `extras` that says how the tool is called."""

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
    """What the body of a request is made of."""

    kind: str
    """`json`, `form`, `multipart` or `text`."""
    media: str
    required: bool
    key: str = ""
    """The argument that is the whole body; empty where `members` make it up."""
    members: dict[str, str] = field(default_factory=dict[str, str])
    """For each argument that is a member of the body, its name there."""
    styles: dict[str, list[Any]] = field(default_factory=dict[str, list[Any]])
    """For members of a form, style and explode."""
    files: list[str] = field(default_factory=list[str])


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """How one operation is called."""

    method: str
    path: str
    places: tuple[Place, ...] = ()
    body: Body | None = None

    @classmethod
    def from_tool(cls, tool: Tool) -> Self:
        """Return the route that a tool carries."""
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
        """Return the route as `from_tool` reads it."""
        row = dataclasses.asdict(self)
        return {**row, "places": list(row["places"])}


def has_dots(path: str) -> bool:
    """Tell whether a path has a step that servers resolve, however it is encoded."""
    decoded = unquote(unquote(path.partition("?")[0]))
    return not {".", ".."}.isdisjoint(re.split(r"[/\\]", decoded))


STYLES = {"path": "simple", "query": "form", "header": "simple", "cookie": "form"}

_KNOWN_STYLES = frozenset(
    ("simple", "label", "matrix", "form", "spaceDelimited", "pipeDelimited", "deepObject")
)
_JOINERS = {"form": ",", "spaceDelimited": "%20", "pipeDelimited": "%7C"}


def read_style(said: Json, usual: str) -> str:
    """Return the style that a parameter or encoding names, if it is a known one."""
    style = said.get("style")
    return style if isinstance(style, str) and style in _KNOWN_STYLES else usual


def to_plain(place: Place, value: object) -> object:
    """Return a value as styles take it: a text of JSON where the place wants JSON."""
    return value if value is None or not place.is_json else to_json(value)


def to_pairs(
    name: str, value: object, style: str, *, explode: bool, safe: str = ""
) -> Iterator[tuple[str, str]]:
    """Yield the encoded names and values of one parameter."""
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
    """Return a value as part of a path, empty if it has none."""
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
    """Return the words of a value; members of an object alternate, or are `name=value`."""
    if is_list(value):
        return [to_text(item) for item in value if item is not None]
    if not is_object(value):
        return [to_text(value)]
    members = [(key, to_text(item)) for key, item in value.items() if item is not None]
    if explode:
        return [f"{key}={item}" for key, item in members]
    return [text for member in members for text in member]


def to_text(value: object) -> str:
    """Return a string as it is and any other value as JSON."""
    if isinstance(value, str):
        return value
    if isinstance(value, float) and value.is_integer() and abs(value) < 1 << 53:
        return str(int(value))  # 5.0 is an integer to JSON Schema, but not to most servers
    return to_json(value)


def to_json(value: object) -> str:
    """Return a value as JSON without spaces."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def quote_text(text: str, safe: str = "") -> str:
    """Return a text percent-encoded; `safe` characters stay."""
    return quote(text.encode("utf-8", "replace"), safe=safe)


# The first three are not for parameters to set, says OpenAPI; the others would change where a
# request goes or where it ends.
NO_PARAMETERS = frozenset(
    (
        *("accept", "authorization", "content-type", "host", "cookie", "connection", "upgrade"),
        *("content-length", "transfer-encoding", "te", "trailer", "expect", "proxy-authorization"),
    )
)

TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,200}")
CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")


def check_headers(headers: Mapping[str, str]) -> dict[str, str]:
    """Return configured headers by lower-case name, or raise `InvalidConfig`."""
    for name, value in headers.items():
        if not TOKEN.fullmatch(name) or CONTROL.search(value):
            # The value may be a secret, so it is not told.
            raise InvalidConfig(
                f"headers.{clean_text(name, 80)}",
                "is no HTTP header",
                remedy="Use letters, digits and hyphens in the name and one line of text.",
            )
    return {name.lower(): value for name, value in headers.items()}


MEDIA_CHARS = 1_000
KINDS = ("json", "form", "multipart", "text")
"""What bodies are made of, the best first."""
MEDIA = re.compile(r"[\w.+-]{1,100}/[\w.+-]{1,100}", re.ASCII)


def normalize_media(media: str) -> str:
    """Return a media type without its parameters, in lower case."""
    return media[:MEDIA_CHARS].partition(";")[0].strip().lower()


def is_json(media: str) -> bool:
    """Tell whether a bare media type is JSON."""
    return media in ("application/json", "text/json") or media.endswith("+json")


def find_body_kind(media: str) -> str:
    """Return the kind of body that a media type asks for."""
    bare = normalize_media(media)
    if is_json(bare) or bare in ("*/*", "application/*"):
        return "json"
    forms = {"application/x-www-form-urlencoded": "form", "multipart/form-data": "multipart"}
    return forms.get(bare, "text")


def choose_sent_media(media: str, kind: str) -> str:
    """Return the media type that a request names; ranges and odd ones are not sent."""
    bare = normalize_media(media)
    if MEDIA.fullmatch(bare):
        return bare
    return {"json": "application/json"}.get(
        kind, "text/plain" if bare.startswith("text/") else "application/octet-stream"
    )
