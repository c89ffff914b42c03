"""Parts of a JSON text exactly as they were sent, which is what a prompt cache compares."""

import json
import re
from typing import Any, cast

Json = dict[str, Any]

_DECODER = json.JSONDecoder()
_BLANKS = re.compile(r"[ \t\r\n]*")


def members(text: str) -> dict[str, str]:
    """Return the members of an object, each value as it is written."""
    found: dict[str, str] = {}
    at = _after(text, _after(text, 0) + 1)
    while text[at] != "}":
        key, at = _DECODER.raw_decode(text, at)
        value, at = _value(text, _after(text, at) + 1)
        found[str(key)] = value
        at = _after(text, at + 1) if text[at] == "," else at
    return found


def elements(text: str) -> list[str]:
    """Return the elements of an array, each as it is written."""
    found: list[str] = []
    at = _after(text, _after(text, 0) + 1)
    while text[at] != "]":
        value, at = _value(text, at)
        found.append(value)
        at = _after(text, at + 1) if text[at] == "," else at
    return found


def objects(value: object) -> list[Json]:
    """Return the objects of a list; of anything else, none."""
    listed = cast("list[object]", value) if isinstance(value, list) else []
    return [cast("Json", entry) for entry in listed if isinstance(entry, dict)]


def as_object(value: object) -> Json:
    """Return an object, or an empty one."""
    return cast("Json", value) if isinstance(value, dict) else {}


def pick(value: Json, *keys: str) -> Any:
    """Return the first member that is there; SDKs spell some keys in two ways."""
    return next((value[key] for key in keys if value.get(key) is not None), None)


def text_in(value: object) -> str:
    """Return the text of a content, which is a text or a list of blocks."""
    if isinstance(value, str):
        return value
    return "\n".join(str(block["text"]) for block in objects(value) if "text" in block)


def _value(text: str, at: int) -> tuple[str, int]:
    start = _after(text, at)
    _, end = _DECODER.raw_decode(text, start)
    return text[start:end], _after(text, end)


def _after(text: str, at: int) -> int:
    blanks = _BLANKS.match(text, at)
    return blanks.end() if blanks else at
