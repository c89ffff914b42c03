"""Read what the model sent to a meta-tool.

Takes any JSON value; gives checked values with notes on what was read otherwise than written, or
raises `InvalidRequest` or `InvalidQuery` with what to write instead. It never looks at tools.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import cast

from toolscout.errors import InvalidQuery, InvalidRequest
from toolscout.query import FORMS, QUERIES_LIMIT
from toolscout.schemas import Json, is_object
from toolscout.sessions.metatools import LIMIT_MAX, NAMES_LIMIT
from toolscout.settings import Settings

DETAILS = ("names", "signatures", "schemas")
REPLY_MIN, REPLY_MAX = 200, 20_000
DIGITS_LIMIT = 20
"""Characters of a number in quotes."""
LONGEST_NUMBER_BITS = 128
_QUERY_KEYS = ("queries", "query", "q", "search", "text")
_NAMES_KEYS = ("names", "name", "tools", "tool")
_NAME_KEYS = ("name", "tool_name", "tool")
_ARGUMENT_KEYS = ("arguments", "args", "params", "parameters", "input")


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchRequest:
    """What `tool_search` was asked."""

    queries: tuple[str, ...]
    limit: int
    detail: str
    max_tokens: int
    notes: tuple[str, ...] = ()


def search_request(
    queries: object, limit: object, detail: object, max_tokens: object, settings: Settings
) -> SearchRequest:
    """Return a request within bounds; what had to be changed is noted (R11)."""
    notes: list[str] = []
    return SearchRequest(
        queries=_queries(queries, notes),
        limit=_number("limit", limit, settings.limit, 1, LIMIT_MAX, notes),
        detail=_detail(detail, notes),
        max_tokens=_number(
            "max_tokens", max_tokens, settings.reply_tokens, REPLY_MIN, REPLY_MAX, notes
        ),
        notes=tuple(notes),
    )


def names_request(names: object) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the names to describe, at most ten, and notes."""
    listed = _texts(names)
    if not listed:
        raise InvalidRequest(
            "tool_describe got no names", remedy="Send names, for example {'names': ['a', 'b']}."
        )
    if len(listed) > NAMES_LIMIT:
        note = f"Only the first {NAMES_LIMIT} of {len(listed)} names were read."
        return listed[:NAMES_LIMIT], (note,)
    return listed, ()


def call_request(value: object) -> tuple[object, object]:
    """Return the name and the arguments that `tool_call` was given."""
    members = to_object(value)
    name = _first(members, _NAME_KEYS)
    if name is None:
        raise InvalidRequest("tool_call got no name", remedy="Send {'name': …, 'arguments': {…}}.")
    return name, _first(members, _ARGUMENT_KEYS)


def queries_in(value: object) -> object:
    """Return what stands for the queries in the arguments of `tool_search`."""
    members = to_object(value)
    return _first(members, _QUERY_KEYS) if members else value


def names_in(value: object) -> object:
    """Return what stands for the names in the arguments of `tool_describe`."""
    members = to_object(value)
    return _first(members, _NAMES_KEYS) if members else value


def to_object(value: object) -> Json:
    """Return a JSON object, also from its text; anything else is empty."""
    if isinstance(value, str):
        value = _parsed(value)
    if is_object(value):
        return value
    return dict(cast("Mapping[str, object]", value)) if isinstance(value, Mapping) else {}


def _first(members: Json, keys: Sequence[str]) -> object:
    return next((members[key] for key in keys if members.get(key) is not None), None)


def _parsed(text: str) -> object:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _queries(value: object, notes: list[str]) -> tuple[str, ...]:
    listed = _texts(value)
    if not listed:
        raise InvalidQuery("The search has no query", remedy=FORMS)
    if len(listed) > QUERIES_LIMIT:
        notes.append(f"Only the first {QUERIES_LIMIT} of {len(listed)} queries were read.")
    return listed[:QUERIES_LIMIT]


def _texts(value: object) -> tuple[str, ...]:
    """Return the texts in a value; a lone one stands for itself, a list may be JSON text."""
    if isinstance(value, str):
        if value.lstrip().startswith("["):
            parsed = _parsed(value)
            value = cast("object", parsed if isinstance(parsed, list) else [value])
        else:
            value = [value]
    if isinstance(value, int | float):
        value = [value]
    if not isinstance(value, list | tuple):
        return ()
    items = cast("Sequence[object]", value)
    texts = (item if isinstance(item, str) else _scalar(item) for item in items)
    return tuple(dict.fromkeys(text for text in texts if text.strip()))


def _scalar(item: object) -> str:
    if isinstance(item, bool):
        return ""
    if isinstance(item, int):
        # Python refuses to write out integers of thousands of digits.
        return str(item) if item.bit_length() <= LONGEST_NUMBER_BITS else ""
    return str(item) if isinstance(item, float) else ""


def _number(key: str, value: object, usual: int, least: int, most: int, notes: list[str]) -> int:
    number = _whole(value)
    if number is None:
        if value is not None:
            notes.append(f"{key} is no whole number; {usual} was used.")
        return usual
    bounded = max(least, min(most, number))
    if bounded != number:
        notes.append(f"{key} goes from {least} to {most:,}; {bounded:,} was used.")
    return bounded


def _whole(value: object) -> int | None:
    """Return an integer, also from an integral float or digits; nothing from anything else."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return value
    if isinstance(value, str):
        text = value.strip()
        if len(text) > DIGITS_LIMIT:
            return None
        value = int(text) if text.isdecimal() else _parsed(text)
        return _whole(value) if isinstance(value, int | float) else None
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return None


def _detail(value: object, notes: list[str]) -> str:
    if isinstance(value, str) and value.strip().lower() in DETAILS:
        return value.strip().lower()
    if value is not None:
        notes.append(f"detail is one of {', '.join(DETAILS)}; signatures was used.")
    return "signatures"
