"""Convert an HTTP response to an MCP result: JSON as data, text as text, the rest as blocks."""

import base64
import codecs
import json
from http import HTTPStatus

import httpx2

from toolscout.names import clean_text, to_error_text
from toolscout.schemas import Json
from toolscout.servers.openapi.request import is_json, normalize_media, to_json

ERROR_CHARS = 4_000

_TEXT_MEDIA = frozenset(
    f"application/{name}"
    for name in ("xml", "yaml", "x-yaml", "javascript", "x-ndjson", "jsonl", "graphql", "sql")
)
_IMAGES = frozenset(("image/png", "image/jpeg", "image/gif", "image/webp"))
_ODD_CHARSETS = frozenset(("punycode", "idna", "unicode-escape", "raw-unicode-escape", "utf-7"))
"""Codecs that are specific to Python or slow, and that no server means."""


def build_result(response: httpx2.Response, data: bytes, note: str, uri: str) -> Json:
    """Return a response as an MCP result; `uri` names a body that is embedded as a resource.

    `data` is the decoded body; if it was cut, `note` says so.
    """
    status = response.status_code
    media = normalize_media(response.headers.get("content-type", ""))
    charset = response.charset_encoding or "utf-8"
    if status >= HTTPStatus.MULTIPLE_CHOICES:
        said = (_decode(data, media, charset) or "").strip()
        return {"content": [_make_text_block(_describe_failure(response, said))], "isError": True}
    if not data:
        return _make_result(_make_text_block(f"Status {status}, no content."))
    if is_json(media) and not note:
        try:
            value: object = json.loads(data)
            return _make_result(_make_text_block(to_json(value))) | {"structuredContent": value}
        except (ValueError, RecursionError):
            pass  # returned as plain text
    text = _decode(data, media, charset)
    if text is not None:
        return _make_result(_make_text_block("\n".join(filter(None, (text, note)))))
    if note:
        return _make_result(_make_text_block(f"Content of type {media} was left out. {note}"))
    return _make_result(_make_media_block(data, media or "application/octet-stream", uri))


def _decode(data: bytes, media: str, charset: str) -> str | None:
    """Return the body as text, or None if it is not text."""
    is_text = is_json(media) or media.startswith("text/") or media.endswith(("+xml", "+yaml"))
    if not (is_text or media in _TEXT_MEDIA or (not media and b"\0" not in data)):
        return None
    try:
        name = codecs.lookup(charset).name
        text = data.decode("utf-8" if name in _ODD_CHARSETS else name, "replace")
    except (LookupError, UnicodeError):
        text = data.decode("utf-8", "replace")
    return clean_text(text, len(text))


def _make_result(block: Json) -> Json:
    return {"content": [block], "isError": False}


def _make_text_block(text: str) -> Json:
    return {"type": "text", "text": clean_text(text, len(text))}


def _describe_failure(response: httpx2.Response, said: str) -> str:
    try:
        phrase = HTTPStatus(response.status_code).phrase
    except ValueError:
        phrase = ""
    head = f"HTTP {response.status_code} {phrase}".rstrip()
    if response.status_code < HTTPStatus.BAD_REQUEST:
        return f"{head}: a redirect that leads to another server, or too far, was not followed."
    retry_after = clean_text(response.headers.get("retry-after", ""), 40)
    if retry_after:
        head += f" (retry after {retry_after})"
    if len(said) > ERROR_CHARS:
        said = to_error_text(said, ERROR_CHARS, keep_lines=True)
    return f"{head}: {said}" if said else f"{head}."


def _make_media_block(data: bytes, media: str, uri: str) -> Json:
    encoded = base64.b64encode(data).decode()
    if media in _IMAGES:
        return {"type": "image", "data": encoded, "mimeType": media}
    if media.startswith("audio/"):
        return {"type": "audio", "data": encoded, "mimeType": media}
    return {"type": "resource", "resource": {"uri": uri, "mimeType": media, "blob": encoded}}
