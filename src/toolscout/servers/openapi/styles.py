"""Values as the styles of OpenAPI write them into paths, queries, headers and forms.

All that `to_pairs` and `to_segment` give is percent-encoded; `to_text` and `to_texts` give plain
words.
"""

import json
from collections.abc import Iterable, Iterator
from urllib.parse import quote

from toolscout.schemas import Json, is_list, is_object
from toolscout.servers.openapi.routes import Place

STYLES = {"path": "simple", "query": "form", "header": "simple", "cookie": "form"}

_KNOWN_STYLES = frozenset(
    ("simple", "label", "matrix", "form", "spaceDelimited", "pipeDelimited", "deepObject")
)
_JOINERS = {"form": ",", "spaceDelimited": "%20", "pipeDelimited": "%7C"}


def style_of(said: Json, usual: str) -> str:
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
    key = quoted(name)
    is_inner = is_object(value) or is_list(value)
    if style == "deepObject" and is_inner:
        yield from _deep_pairs(name, value)
    elif is_object(value) and explode:
        inner = ((k, v) for k, v in value.items() if v is not None)
        yield from ((quoted(k), quoted(to_text(v), safe)) for k, v in inner)
    elif is_inner:
        texts = [quoted(text, safe) for text in to_texts(value, explode=False)]
        joined = [_JOINERS.get(style, ",").join(texts)] if texts else []
        yield from ((key, text) for text in (texts if explode else joined))
    elif value is not None:
        yield key, quoted(to_text(value), safe)


def _deep_pairs(name: str, value: object) -> Iterator[tuple[str, str]]:
    if is_object(value):
        inner: Iterable[tuple[object, object]] = value.items()
    elif is_list(value):
        inner = enumerate(value)
    else:
        if value is not None:
            yield quoted(name), quoted(to_text(value))
        return
    for key, item in inner:
        yield from _deep_pairs(f"{name}[{key}]", item)


def to_segment(place: Place, value: object) -> str:
    """Return a value as part of a path, empty if it has none."""
    value = to_plain(place, value)
    if value is None:
        return ""
    if place.style == "matrix":
        pairs = to_pairs(place.name, value, "form", explode=place.explode)
        return "".join(f";{name}={text}" for name, text in pairs)
    texts = [
        quoted(text, "=" if is_object(value) else "") for text in to_texts(value, place.explode)
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


def quoted(text: str, safe: str = "") -> str:
    """Return a text percent-encoded; `safe` characters stay."""
    return quote(text.encode("utf-8", "replace"), safe=safe)
