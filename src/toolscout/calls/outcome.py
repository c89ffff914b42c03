"""What a tool gave back, as text for the model and other content beside it.

Takes whatever a server's executor or a function returns: text, JSON, or MCP's content blocks as
JSON or as the SDK's objects. A failure that a tool reports is an outcome like any other.
"""

import dataclasses
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from toolscout.names import clean_text
from toolscout.schemas import Json, is_list, is_object

TEXT_LIMIT = 64 << 20

_KINDS = ("text", "image", "audio", "resource", "resource_link")
_ERROR_KEYS = ("isError", "is_error")
_RESULT_KEYS = {"content", "structuredContent", "structured_content", "_meta", "meta"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The result of one call."""

    text: str
    is_error: bool = False
    blocks: tuple[Json, ...] = ()
    """Content that is not text, in the server's order."""
    data: object = None
    """Structured content, where the server gave some."""


def outcome_of(value: object) -> Outcome:
    """Return a result in one shape."""
    if isinstance(value, Outcome):
        return value
    plain = _plain(value)
    if isinstance(plain, str):
        return Outcome(text=clean_text(plain, TEXT_LIMIT))
    if is_list(plain) and plain and _is_content(_listed(plain)):
        return _from_mcp({"content": plain})
    if is_object(plain) and _is_result(plain):
        return _from_mcp(plain)
    return Outcome(text=_json(plain), data=plain)


def _is_result(value: Json) -> bool:
    """Tell MCP's result from a tool's own object that happens to have `content`."""
    if not is_list(value.get("content")):
        return False
    if any(isinstance(value.get(key), bool) for key in _ERROR_KEYS):
        return True
    content = _listed(value["content"])
    return _is_content(content) if content else value.keys() <= _RESULT_KEYS


def _is_content(blocks: list[object]) -> bool:
    return all(is_object(block) and block.get("type") in _KINDS for block in blocks)


def _from_mcp(result: Json) -> Outcome:
    texts: list[str] = []
    blocks: list[Json] = []
    for block in _listed(result["content"]):
        text = _text(block)
        if text is not None:
            texts.append(text)
        elif is_object(block):
            blocks.append(block)
    data = result.get("structuredContent", result.get("structured_content"))
    if not texts and data is not None:
        texts.append(_json(data))
    if not texts and blocks:
        kinds = ", ".join(str(block["type"]) for block in blocks)
        texts.append(f"(content without text: {kinds})")
    return Outcome(
        text=clean_text("\n".join(texts), TEXT_LIMIT),
        is_error=any(result.get(key) is True for key in _ERROR_KEYS),
        blocks=tuple(blocks),
        data=data,
    )


def _text(block: object) -> str | None:
    """Return what a block says in words, or nothing if it is of another kind.

    What MCP does not know is told as it is, and never passed on: to a provider a block of its
    own kind, such as a reference to a tool, would mean something (R51).
    """
    if not is_object(block) or block.get("type") not in _KINDS:
        return _json(block)
    if block["type"] == "text":
        return block["text"] if isinstance(block.get("text"), str) else _json(block)
    resource = block.get("resource")
    words = resource.get("text") if is_object(resource) else None
    return words if isinstance(words, str) else None


def _listed(values: list[object]) -> list[object]:
    return [_plain(value) for value in values]


def _plain(value: object) -> object:
    """Return a value as JSON where it has a way to say so."""
    dump = getattr(value, "model_dump", None)
    if callable(dump):
        return cast("Any", dump)(mode="json", by_alias=True, exclude_none=True)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return dataclasses.asdict(value)
    if isinstance(value, Mapping) and not isinstance(value, dict):
        return dict(cast("Mapping[str, object]", value))
    if isinstance(value, bytes | bytearray):
        return value.decode("utf-8", "replace")
    if isinstance(value, Sequence) and not isinstance(value, str | list):
        return list(cast("Sequence[object]", value))
    return cast("object", value)


def _json(value: object) -> str:
    if value is None:
        return "(no content)"
    try:
        return clean_text(json.dumps(value, ensure_ascii=False, default=_told), TEXT_LIMIT)
    except (TypeError, ValueError, RecursionError):
        return clean_text(repr(value), TEXT_LIMIT)


def _told(value: object) -> object:
    plain = _plain(value)
    return str(value) if plain is value else plain
