"""`Routes`: the console over HTTP: the API under `/api`, and the page that shows it.

Who asks was settled by the gateway's guard; here a request becomes plain arguments, an answer
JSON, and an error a status. Work that takes time is done in threads, what belongs to the pool on
its loop.
"""

import asyncio
import os
from collections.abc import Awaitable, Callable, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, Response, StreamingResponse
from starlette.routing import BaseRoute, Route
from starlette.staticfiles import NotModifiedResponse, StaticFiles
from starlette.types import Scope

from toolscout.console import catalog as directories
from toolscout.console import search as searches
from toolscout.console.schema import document
from toolscout.console.views import BAD, FORBIDDEN, NOT_FOUND, Refused, View, refused
from toolscout.errors import ToolscoutError
from toolscout.gateway.auth import Principal
from toolscout.gateway.middleware import PRINCIPAL
from toolscout.prices import AS_OF, PRICES

if TYPE_CHECKING:
    from toolscout.console.app import Console
    from toolscout.console.servers import Board

API, STATIC = "/api", "/static/"
FOLDER = Path(__file__).parent / "static"
MEDIA_TYPES = {".js": "text/javascript", ".svg": "image/svg+xml"}
"""The machine's own table may give a script a type that browsers refuse to run."""
HOURS = 24
Answer = Any
"""Whatever JSON can hold."""
HEADERS = {
    "Content-Security-Policy": "default-src 'self'; frame-ancestors 'none'; base-uri 'none'; "
    "form-action 'self'; object-src 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
NO_STORE = {"Cache-Control": "no-store"}


class Routes:
    """The routes of one console."""

    def __init__(self, console: "Console") -> None:
        self._console = console
        self._files = PageFiles(directory=FOLDER)

    @property
    def routes(self) -> list[BaseRoute]:
        """The routes in the order in which they are tried."""
        answered: dict[str, Callable[[View, Request], Awaitable[Answer]]] = {
            "/openapi.json": self._openapi,
            "/overview": self._overview,
            "/search": self._search,
            "/why": self._why,
            "/facets": self._facets,
            "/tools": self._tools,
            "/tools/{name:path}": self._tool,
            "/servers": self._servers,
            "/servers/{name}/log": self._log,
            "/sessions": self._sessions,
            "/sessions/{id}": self._session,
            "/savings": self._savings,
            "/map": self._map,
            "/map/point": self._point,
        }
        return [
            *(Route(API + path, self._json(work)) for path, work in answered.items()),
            Route(f"{API}/servers/{{name}}/{{action}}", self._json(self._act), methods=["POST"]),
            Route(f"{API}/events", self._events),
            Route(f"{API}/{{rest:path}}", self._json(self._nothing)),
            Route("/", self._send_file),
            Route(f"{STATIC}{{name:path}}", self._send_file),
        ]

    def is_public(self, path: str) -> bool:
        """Tell whether a path is the page's, which holds nothing that needs a token."""
        return path == "/" or path.startswith(STATIC)

    # The API.

    async def _openapi(self, view: View, request: Request) -> Answer:
        return document()

    async def _overview(self, view: View, request: Request) -> Answer:
        states = self._console.overviews.states(view)
        return await asyncio.to_thread(self._console.overviews.told, view, states)

    async def _search(self, view: View, request: Request) -> Answer:
        return await asyncio.to_thread(
            self._console.searches.found,
            view,
            _needed(request, "q"),
            limit=_number(request, "limit", searches.LIMIT, 1, searches.LIMIT_MOST),
            encoder=_text(request, "encoder"),
        )

    async def _why(self, view: View, request: Request) -> Answer:
        text, name = _needed(request, "q"), _needed(request, "tool")
        encoder = _text(request, "encoder")
        return await asyncio.to_thread(
            self._console.searches.why, view, text, name, encoder=encoder
        )

    async def _facets(self, view: View, request: Request) -> Answer:
        return await asyncio.to_thread(self._console.directory.facets, view)

    async def _tools(self, view: View, request: Request) -> Answer:
        return await asyncio.to_thread(
            self._console.directory.page,
            view,
            server=_text(request, "server"),
            kind=_text(request, "kind"),
            effect=_text(request, "effect"),
            text=_text(request, "q"),
            sort=_text(request, "sort") or directories.SORTS[0],
            offset=_number(request, "offset", 0, 0, 10_000_000),
            limit=_number(request, "limit", directories.PAGE, 1, directories.PAGE_MOST),
        )

    async def _tool(self, view: View, request: Request) -> Answer:
        return await asyncio.to_thread(
            self._console.directory.whole, view, request.path_params["name"]
        )

    async def _servers(self, view: View, request: Request) -> Answer:
        board = self._console.board
        if board is None:
            return []
        tokens = await asyncio.to_thread(self._console.costs.by_server, view.callables)
        return board.rows(view, tokens)

    async def _log(self, view: View, request: Request) -> Answer:
        return self._board().log(view, request.path_params["name"])

    async def _act(self, view: View, request: Request) -> Answer:
        name, action = request.path_params["name"], request.path_params["action"]
        if action == "login":
            return await self._login(view, name)
        return await self._board().act(view, name, action)

    async def _login(self, view: View, name: str) -> Answer:
        board, visits = self._board(), self._console.visits
        member = board.member(view, name)
        if view.is_limited or visits is None or not board.can_log_in(member):
            hint = f"Run `toolscout servers login {name}` on the gateway's machine."
            raise Refused(FORBIDDEN, "no_login", f"Nobody can log in to {name!r} here.", hint)
        return {"url": await visits.begin(member.config)}

    async def _sessions(self, view: View, request: Request) -> Answer:
        await asyncio.to_thread(self._console.savings.settle)
        return self._console.conversations.rows(view)

    async def _session(self, view: View, request: Request) -> Answer:
        await asyncio.to_thread(self._console.savings.settle)
        return self._console.conversations.whole(view, request.path_params["id"])

    async def _savings(self, view: View, request: Request) -> Answer:
        hours = _number(request, "hours", HOURS, 1, 24 * 31)
        told = await asyncio.to_thread(
            self._console.savings.told,
            hours,
            lambda name: self._console.is_peer_named(view.principal, name),
        )
        models = [{"id": id_, "input_per_million": price} for id_, price in PRICES.items()]
        return {**told, "models": models, "priced": AS_OF}

    async def _map(self, view: View, request: Request) -> Answer:
        return await asyncio.to_thread(
            self._console.maps.list_places, view, _text(request, "encoder")
        )

    async def _point(self, view: View, request: Request) -> Answer:
        text, encoder = _needed(request, "q"), _text(request, "encoder")
        return await asyncio.to_thread(self._console.maps.place_query, view, text, encoder)

    async def _nothing(self, view: View, request: Request) -> Answer:
        hint = f"See {API}/openapi.json for what there is."
        raise Refused(NOT_FOUND, "not_found", "There is nothing here.", hint)

    async def _events(self, request: Request) -> Response:
        last = request.headers.get("last-event-id", "")
        stream = self._console.feed.stream(_principal(request), last)
        headers = {**HEADERS, **NO_STORE, "X-Accel-Buffering": "no"}
        return StreamingResponse(stream, media_type="text/event-stream", headers=headers)

    def _board(self) -> "Board":
        if self._console.board is None:
            hint = "Ask a gateway: `toolscout serve --http`."
            raise Refused(NOT_FOUND, "no_servers", "There are no servers behind this.", hint)
        return self._console.board

    def _json(
        self, work: Callable[[View, Request], Awaitable[Answer]]
    ) -> Callable[[Request], Awaitable[Response]]:
        async def answer(request: Request) -> Response:
            view = self._console.views.of(_principal(request))
            try:
                response = JSONResponse(await work(view, request))
            except Refused as error:
                response = error.response()
            except ToolscoutError as error:
                response = refused(error).response()
            return _with(response, {**HEADERS, **NO_STORE})

        return answer

    # The page.

    async def _send_file(self, request: Request) -> Response:
        name = request.path_params.get("name", "index.html")
        try:
            response = await self._files.get_response(name, request.scope)
        except HTTPException:
            hint = "Open / for the page."
            missing = Refused(NOT_FOUND, "not_found", "There is no such file.", hint)
            response = missing.response()
        return _with(response, HEADERS)


class PageFiles(StaticFiles):
    """Serves the files of the page; a browser asks each time whether a file has changed."""

    def file_response(
        self,
        full_path: str | os.PathLike[str],
        stat_result: os.stat_result,
        scope: Scope,
        status_code: int = 200,
    ) -> Response:
        """Return a file, or only that the browser has it already."""
        # An upgrade may keep the time and size of a file that it changes.
        tag = f'"{version("toolscout")}-{stat_result.st_mtime_ns:x}-{stat_result.st_size:x}"'
        response = FileResponse(
            full_path,
            headers={"ETag": tag, "Cache-Control": "no-cache"},
            media_type=MEDIA_TYPES.get(Path(full_path).suffix),
            stat_result=stat_result,
        )
        if self.is_not_modified(response.headers, Headers(scope=scope)):
            return NotModifiedResponse(response.headers)
        return response

    def is_not_modified(self, response_headers: Headers, request_headers: Headers) -> bool:
        """Tell whether the browser has this version of a file, going by its tag alone."""
        has_tag = "if-none-match" in request_headers
        return has_tag and super().is_not_modified(response_headers, request_headers)


def _with(response: Response, headers: Mapping[str, str]) -> Response:
    for name, value in headers.items():
        response.headers.setdefault(name, value)
    return response


def _principal(request: Request) -> Principal:
    return request.scope[PRINCIPAL]


def _text(request: Request, name: str) -> str:
    return request.query_params.get(name, "").strip()


def _needed(request: Request, name: str) -> str:
    value = _text(request, name)
    if not value:
        raise Refused(BAD, "missing", f"The parameter {name!r} is missing.", f"Add ?{name}=….")
    return value


def _number(request: Request, name: str, default: int, least: int, most: int) -> int:
    given = _text(request, name)
    if not given:
        return default
    if not (given.isascii() and given.isdecimal() and len(given) < 12):
        hint = f"Write a whole number from {least:,} to {most:,}."
        raise Refused(BAD, "no_number", f"The parameter {name!r} is {given[:40]!r}.", hint)
    return max(least, min(most, int(given)))
