"""Convert an HTTP response to an MCP result: JSON as data, text as text, the rest as blocks."""

import base64
import codecs
import json
from dataclasses import dataclass
from http import HTTPStatus

from toolscout.names import clean_text
from toolscout.schemas import Json
from toolscout.servers.openapi.route import is_json, to_json

ERROR_CHARS = 4_000

_TEXT_MEDIA = frozenset(
    f"application/{name}"
    for name in ("xml", "yaml", "x-yaml", "javascript", "x-ndjson", "jsonl", "graphql", "sql")
)
_IMAGES = frozenset(("image/png", "image/jpeg", "image/gif", "image/webp"))
_ODD_CHARSETS = frozenset(("punycode", "idna", "unicode-escape", "raw-unicode-escape", "utf-7"))
"""Codecs that are specific to Python or slow, and that no server means."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The response to one request."""

    status: int
    media: str
    charset: str
    data: bytes
    note: str = ""
    """Says that the data was cut; empty if it is complete."""
    retry_after: str = ""

    @property
    def text(self) -> str | None:
        """The body as text, or None if it is not text."""
        media = self.media
        is_text = is_json(media) or media.startswith("text/") or media.endswith(("+xml", "+yaml"))
        if not (is_text or media in _TEXT_MEDIA or (not media and b"\0" not in self.data)):
            return None
        try:
            name = codecs.lookup(self.charset).name
            text = self.data.decode("utf-8" if name in _ODD_CHARSETS else name, "replace")
        except (LookupError, UnicodeError):
            text = self.data.decode("utf-8", "replace")
        return clean_text(text, len(text))


def build_result(answer: Answer, uri: str) -> Json:
    """Return an answer as an MCP result; `uri` names a body that is embedded as a resource."""
    if answer.status >= HTTPStatus.MULTIPLE_CHOICES:
        return {"content": [_make_text_block(_describe_failure(answer))], "isError": True}
    if not answer.data:
        return _make_result(_make_text_block(f"Status {answer.status}, no content."))
    if is_json(answer.media) and not answer.note:
        try:
            value: object = json.loads(answer.data)
            return _make_result(_make_text_block(to_json(value))) | {"structuredContent": value}
        except (ValueError, RecursionError):
            pass  # returned as plain text
    text = answer.text
    if text is not None:
        return _make_result(_make_text_block("\n".join(filter(None, (text, answer.note)))))
    if answer.note:
        return _make_result(
            _make_text_block(f"Content of type {answer.media} was left out. {answer.note}")
        )
    return _make_result(_make_media_block(answer, uri))


def _make_result(block: Json) -> Json:
    return {"content": [block], "isError": False}


def _make_text_block(text: str) -> Json:
    return {"type": "text", "text": clean_text(text, len(text))}


def _describe_failure(answer: Answer) -> str:
    try:
        phrase = HTTPStatus(answer.status).phrase
    except ValueError:
        phrase = ""
    head = f"HTTP {answer.status} {phrase}".rstrip()
    if answer.status < HTTPStatus.BAD_REQUEST:
        return f"{head}: a redirect that leads to another server, or too far, was not followed."
    if answer.retry_after:
        head += f" (retry after {answer.retry_after})"
    said = (answer.text or "").strip()
    if len(said) > ERROR_CHARS:
        said = said[: ERROR_CHARS - 1] + "…"
    return f"{head}: {said}" if said else f"{head}."


def _make_media_block(answer: Answer, uri: str) -> Json:
    data = base64.b64encode(answer.data).decode()
    media = answer.media or "application/octet-stream"
    if media in _IMAGES:
        return {"type": "image", "data": data, "mimeType": media}
    if media.startswith("audio/"):
        return {"type": "audio", "data": data, "mimeType": media}
    return {"type": "resource", "resource": {"uri": uri, "mimeType": media, "blob": data}}
