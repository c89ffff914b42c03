"""Media types: which are JSON, and what kind of body each asks for."""

import re

MEDIA_CHARS = 1_000
KINDS = ("json", "form", "multipart", "text")
"""What bodies are made of, the best first."""
MEDIA = re.compile(r"[\w.+-]{1,100}/[\w.+-]{1,100}", re.ASCII)


def bare_media(media: str) -> str:
    """Return a media type without its parameters, in lower case."""
    return media[:MEDIA_CHARS].partition(";")[0].strip().lower()


def is_json(media: str) -> bool:
    """Tell whether a bare media type is JSON."""
    return media in ("application/json", "text/json") or media.endswith("+json")


def kind_of(media: str) -> str:
    """Return the kind of body that a media type asks for."""
    bare = bare_media(media)
    if is_json(bare) or bare in ("*/*", "application/*"):
        return "json"
    forms = {"application/x-www-form-urlencoded": "form", "multipart/form-data": "multipart"}
    return forms.get(bare, "text")


def sent_media(media: str, kind: str) -> str:
    """Return the media type that a request names; ranges and odd ones are not sent."""
    bare = bare_media(media)
    if MEDIA.fullmatch(bare):
        return bare
    return {"json": "application/json"}.get(
        kind, "text/plain" if bare.startswith("text/") else "application/octet-stream"
    )
