"""Turn what a tool returned into text for the model and other content.

A server's executor or a function may return text, JSON, or MCP's content blocks as JSON or as the
SDK's objects. A failure that a tool reports is an outcome like any other.
"""

import dataclasses
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from toolscout.errors import CONTENT_WITHOUT_TEXT, NO_CONTENT
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
    """Structured content, if the server returned any."""


def outcome_from_value(value: object) -> Outcome:
    """Return the outcome that a tool's return value means."""
    if isinstance(value, Outcome):
        return value
    plain = _to_plain(value)
    if isinstance(plain, str):
        return Outcome(text=clean_text(plain, TEXT_LIMIT))
    if is_list(plain) and plain and _is_content(_to_plain_list(plain)):
        return _outcome_from_mcp({"content": plain})
    if is_object(plain) and _is_result(plain):
        return _outcome_from_mcp(plain)
    return Outcome(text=_to_json_text(plain), data=plain)


def _is_result(value: Json) -> bool:
    """Tell whether an object is MCP's result, not one of the tool's that has `content` too."""
    if not is_list(value.get("content")):
        return False
    if any(isinstance(value.get(key), bool) for key in _ERROR_KEYS):
        return True
    content = _to_plain_list(value["content"])
    return _is_content(content) if content else value.keys() <= _RESULT_KEYS


def _is_content(blocks: list[object]) -> bool:
    return all(is_object(block) and block.get("type") in _KINDS for block in blocks)


def _outcome_from_mcp(result: Json) -> Outcome:
    texts: list[str] = []
    blocks: list[Json] = []
    for block in _to_plain_list(result["content"]):
        text = _text_from_block(block)
        if text is not None:
            texts.append(text)
        elif is_object(block):
            blocks.append(block)
    data = result.get("structuredContent", result.get("structured_content"))
    if not texts and data is not None:
        texts.append(_to_json_text(data))
    if not texts and blocks:
        kinds = ", ".join(str(block["type"]) for block in blocks)
        texts.append(CONTENT_WITHOUT_TEXT.format(kinds=kinds))
    return Outcome(
        text=clean_text("\n".join(texts), TEXT_LIMIT),
        is_error=any(result.get(key) is True for key in _ERROR_KEYS),
        blocks=tuple(blocks),
        data=data,
    )


def _text_from_block(block: object) -> str | None:
    """Return the text of a block, or None if it holds other content.

    A block that MCP does not define becomes JSON text. It is never passed on, because it might
    mean something to the provider, such as a reference to a tool (R51).
    """
    if not is_object(block) or block.get("type") not in _KINDS:
        return _to_json_text(block)
    if block["type"] == "text":
        return block["text"] if isinstance(block.get("text"), str) else _to_json_text(block)
    resource = block.get("resource")
    words = resource.get("text") if is_object(resource) else None
    return words if isinstance(words, str) else None


def _to_plain_list(values: list[object]) -> list[object]:
    return [_to_plain(value) for value in values]


def _to_plain(value: object) -> object:
    """Return a value as JSON if it can be converted, else the value itself."""
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


def _to_json_text(value: object) -> str:
    if value is None:
        return NO_CONTENT
    try:
        return clean_text(
            json.dumps(value, ensure_ascii=False, default=_to_serializable), TEXT_LIMIT
        )
    except (TypeError, ValueError, RecursionError):
        return clean_text(repr(value), TEXT_LIMIT)


def _to_serializable(value: object) -> object:
    plain = _to_plain(value)
    return str(value) if plain is value else plain
