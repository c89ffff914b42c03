"""`Assets`: the files of the page, as they lie in the package.

A request names a file only if it is one of those in the folder, so that no path leads out of it.
"""

import hashlib
import mimetypes
from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response

INDEX = "index.html"
FOLDER = Path(__file__).parent / "static"
TYPES = {".js": "text/javascript", ".mjs": "text/javascript", ".svg": "image/svg+xml"}
UNCHANGED = 304
ABSENT = (
    "<!doctype html><html lang=en><meta charset=utf-8><title>toolscout</title>"
    "<p>This installation has no page. The API is at <a href=/api/overview>/api/overview</a>."
)


class Assets:
    """Serves the files of one folder."""

    def __init__(self, folder: Path = FOLDER) -> None:
        self._folder = folder

    def response(self, request: Request, name: str) -> Response | None:
        """Return a file, or that it has not changed; nothing for what is no file of the page."""
        files = {path.relative_to(self._folder).as_posix(): path for path in self._files()}
        if name not in files:
            return Response(ABSENT, media_type="text/html") if name == INDEX else None
        content = files[name].read_bytes()
        tag = f'"{hashlib.sha256(content).hexdigest()[:24]}"'
        headers = {"ETag": tag, "Cache-Control": "no-cache"}
        known = [one.strip() for one in request.headers.get("if-none-match", "").split(",")]
        if tag in known or f"W/{tag}" in known:
            return Response(status_code=UNCHANGED, headers=headers)
        return Response(content, headers=headers, media_type=_type_of(files[name]))

    def _files(self) -> list[Path]:
        return [path for path in self._folder.rglob("*") if path.is_file()]


def _type_of(path: Path) -> str:
    # The machine's own table may call a script something that browsers refuse to run.
    return (
        TYPES.get(path.suffix) or mimetypes.guess_type(path.name)[0] or "application/octet-stream"
    )
