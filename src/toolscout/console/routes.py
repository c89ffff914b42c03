"""The console over HTTP: the API under `/api`, and the page that shows it.

The gateway's guard has decided who asks. Here a request becomes plain arguments, an answer JSON
and an error a status. Work that takes time runs in threads; what belongs to the pool stays on its
event loop.
"""

import asyncio
import json
import os
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import asdict
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import (
    FileResponse,
    JSONResponse,
    RedirectResponse,
    Response,
    StreamingResponse,
)
from starlette.routing import BaseRoute, Route
from starlette.staticfiles import NotModifiedResponse, StaticFiles
from starlette.types import Scope

from toolscout.config.servers import Login
from toolscout.console.activity import REFUSALS, build_savings
from toolscout.console.audit import PAGE_SIZE as ENTRIES
from toolscout.console.audit import PAGE_SIZE_MAX as ENTRIES_MAX
from toolscout.console.catalog import PAGE_SIZE, PAGE_SIZE_MAX, SORTS
from toolscout.console.edits import SWITCHES
from toolscout.console.logins import CALLBACK, COOKIE, PAGE, UNKNOWN
from toolscout.console.search import LIMIT, LIMIT_MAX
from toolscout.console.servers import DECISIONS, DONE, MEANINGS, STATES
from toolscout.console.sessions import PAGE_SIZE as SESSIONS
from toolscout.console.sessions import PAGE_SIZE_MAX as SESSIONS_MAX
from toolscout.console.views import ApiError, View, api_error_from
from toolscout.console.waiting import ANSWERS
from toolscout.errors import ToolscoutError
from toolscout.gateway.audit import FILTERS
from toolscout.gateway.events import ConsoleAction
from toolscout.gateway.middleware import ANONYMOUS, PRINCIPAL, Principal, find_address

if TYPE_CHECKING:
    from toolscout.console.app import Console
    from toolscout.console.edits import ConfigEdits
    from toolscout.console.servers import ServerTable

Answer = Any
"""Anything that JSON can hold."""
Work = Callable[[View, Request], Awaitable[Answer]]

API = "/api"
STATIC = "/static/"
FOLDER = Path(__file__).parent / "static"
DOCUMENT = Path(__file__).parent / "openapi.json"
"""The description of the API. Tests compare every answer with it."""
MEDIA_TYPES = {".js": "text/javascript", ".svg": "image/svg+xml"}
"""The machine's own table may give a script a type that browsers refuse to run."""
SAVINGS_HOURS = 24
SAVINGS_HOURS_MAX = 24 * 31
OFFSET_MAX = 10_000_000
FIELDS = 32
"""Parameters that are read of the answer of an authorization server."""
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
TERMS = {
    "states": MEANINGS,
    "refusals": {code: asdict(refusal) for code, refusal in REFUSALS.items()},
}
"""What words on the page mean."""


class Routes:
    """The routes of one console."""

    def __init__(self, console: "Console") -> None:
        self._console = console
        self._files = PageFiles(directory=FOLDER)

    @property
    def routes(self) -> list[BaseRoute]:
        """The routes in the order in which they are tried."""
        console = self._console
        works_in_threads: dict[str, Callable[[View, Request], Answer]] = {
            "/openapi.json": lambda view, request: json.loads(DOCUMENT.read_bytes()),
            "/search": self._search,
            "/why": self._explain,
            "/facets": lambda view, request: console.tools.count_facets(view),
            "/tools": self._list_tools,
            "/tools/{name:path}": lambda view, request: console.tools.describe(
                view, request.path_params["name"]
            ),
            "/terms": lambda view, request: TERMS,
            "/sessions": self._list_sessions,
            "/sessions/{id}": lambda view, request: console.sessions.get_details(
                view, request.path_params["id"]
            ),
            "/refusals": lambda view, request: console.sessions.list_refusals(view),
            "/savings": self._get_savings,
            "/audit": self._list_entries,
            "/waiting": lambda view, request: console.waiting.list_rows(view),
            "/map": lambda view, request: console.maps.list_places(
                view, _read_text(request, "encoder")
            ),
            "/map/point": lambda view, request: console.maps.place_query(
                view, _require_text(request, "q"), _read_text(request, "encoder")
            ),
        }
        works: dict[str, Work] = {
            **{path: partial(asyncio.to_thread, work) for path, work in works_in_threads.items()},
            "/overview": self._get_overview,
            "/clients": self._list_clients,
            "/servers": self._list_servers,
            "/servers/{name}/log": self._read_log,
            "/servers/{name}/approvals": self._list_held,
            "/servers/{name}/tools": self._list_server_tools,
            "/audit/check": self._check_audit,
        }
        act = self._answer_json(self._run_action)
        change = self._answer_json(self._change_tool)
        begin = self._answer_json(self._begin_own_login)
        answer = self._answer_json(partial(asyncio.to_thread, self._decide_call))
        return [
            *(Route(API + path, self._answer_json(work)) for path, work in works.items()),
            Route(f"{API}/servers/{{name}}/own_login", begin, methods=["POST"]),
            Route(f"{API}/servers/{{name}}/tools/{{tool:path}}", change, methods=["POST"]),
            Route(f"{API}/servers/{{name}}/{{action}}", act, methods=["POST"]),
            Route(f"{API}/waiting/{{id}}/{{answer}}", answer, methods=["POST"]),
            Route(f"{API}/events", self._stream_events),
            Route(f"{API}/{{rest:path}}", self._answer_json(_refuse_path)),
            Route("/", self._send_file),
            Route(PAGE, self._send_login_page),
            Route(CALLBACK, self._finish_login),
            Route(f"{STATIC}{{name:path}}", self._send_file),
        ]

    def is_public(self, path: str) -> bool:
        """Tell whether a path belongs to the page, which holds nothing that needs a token."""
        return path in ("/", PAGE, CALLBACK) or path.startswith(STATIC)

    def _search(self, view: View, request: Request) -> Answer:
        return self._console.search.search(
            view,
            _require_text(request, "q"),
            limit=_read_number(request, "limit", LIMIT, 1, LIMIT_MAX),
            encoder=_read_text(request, "encoder"),
        )

    def _explain(self, view: View, request: Request) -> Answer:
        return self._console.search.explain(
            view,
            _require_text(request, "q"),
            _require_text(request, "tool"),
            encoder=_read_text(request, "encoder"),
        )

    def _list_tools(self, view: View, request: Request) -> Answer:
        return self._console.tools.list_page(
            view,
            server=_read_text(request, "server"),
            kind=_read_text(request, "kind"),
            effect=_read_text(request, "effect"),
            text=_read_text(request, "q"),
            sort=_read_text(request, "sort") or SORTS[0],
            offset=_read_number(request, "offset", 0, 0, OFFSET_MAX),
            limit=_read_number(request, "limit", PAGE_SIZE, 1, PAGE_SIZE_MAX),
        )

    def _list_sessions(self, view: View, request: Request) -> Answer:
        return self._console.sessions.list_page(
            view,
            refused=bool(_read_text(request, "refused")),
            offset=_read_number(request, "offset", 0, 0, OFFSET_MAX),
            limit=_read_number(request, "limit", SESSIONS, 1, SESSIONS_MAX),
        )

    def _get_savings(self, view: View, request: Request) -> Answer:
        return build_savings(
            self._console.ledger,
            _read_number(request, "hours", SAVINGS_HOURS, 1, SAVINGS_HOURS_MAX),
            lambda name: self._console.is_peer_named(view.principal, name),
        )

    def _list_entries(self, view: View, request: Request) -> Answer:
        return self._console.audit.list_page(
            view,
            {name: _read_text(request, name) for name in FILTERS},
            since=_read_text(request, "since"),
            before=_read_text(request, "before"),
            limit=_read_number(request, "limit", ENTRIES, 1, ENTRIES_MAX),
        )

    async def _check_audit(self, view: View, request: Request) -> Answer:
        return await self._console.audit.check(view, again=bool(_read_text(request, "again")))

    def _decide_call(self, view: View, request: Request) -> Answer:
        answer = request.path_params["answer"]
        if answer not in ANSWERS:
            hint = f"Use {', '.join(ANSWERS)}."
            raise ApiError(404, "unknown_action", f"There is no action {answer[:40]!r}.", hint)
        return self._console.waiting.decide(view, request.path_params["id"], answer)

    async def _get_overview(self, view: View, request: Request) -> Answer:
        servers = self._console.servers  # belongs to the event loop
        states = dict.fromkeys(STATES, 0) if servers is None else servers.count_states(view)
        return await asyncio.to_thread(self._console.build_overview, view, states)

    async def _list_clients(self, view: View, request: Request) -> Answer:
        return self._console.list_clients(view)

    async def _list_servers(self, view: View, request: Request) -> Answer:
        servers = self._console.servers
        if servers is None:
            return []
        tools = await asyncio.to_thread(lambda: view.callables)
        owners = [tool.server for tool in tools]
        tokens = await asyncio.to_thread(self._console.costs.sum_by, tools, owners)
        logins = self._console.user_logins
        own: Mapping[str, bool] = {}
        if logins is not None and view.principal is not ANONYMOUS:
            configs = servers.list_user_servers(view)
            own = await asyncio.to_thread(logins.find_logins, configs, view.principal.name)
        return servers.list_rows(view, tokens, own)

    async def _read_log(self, view: View, request: Request) -> Answer:
        return self._get_servers().read_log(view, request.path_params["name"])

    async def _list_held(self, view: View, request: Request) -> Answer:
        return await self._get_servers().list_held(view, request.path_params["name"])

    async def _list_server_tools(self, view: View, request: Request) -> Answer:
        return await self._get_edits().list_tools(view, request.path_params["name"])

    async def _change_tool(self, view: View, request: Request) -> Answer:
        try:
            changes = json.loads(await request.body())
        except ValueError:
            raise ApiError(400, "no_json", "The body is not JSON.", "Send an object.") from None
        name, tool = request.path_params["name"], request.path_params["tool"]
        return await self._get_edits().change_tool(view, name, tool, changes)

    def _get_edits(self) -> "ConfigEdits":
        self._get_servers()
        assert self._console.edits is not None  # what has servers has their configuration
        return self._console.edits

    async def _run_action(self, view: View, request: Request) -> Answer:
        name = request.path_params["name"]
        action = request.path_params["action"]
        servers = self._get_servers()
        await asyncio.to_thread(lambda: view.callables)  # the row of a server counts them
        if action in DECISIONS:
            ids = frozenset(request.query_params.getlist("id"))
            return await servers.decide(view, name, action, ids)
        if action in SWITCHES:
            await self._get_edits().change_server(view, name, action)
            return servers.find_row(view, name)
        if action != "login":
            row = await servers.run_action(view, name, action)
            self._console.emit(
                ConsoleAction(action=DONE[action], server=name, by=view.principal.name)
            )
            return row
        logins = self._console.logins
        server = servers.get_server(view, name)
        if view.is_limited or logins is None or not servers.can_log_in(server):
            message = f"You cannot log in to {name!r} here."
            hint = f"Run `toolscout servers login {name}` on the gateway's machine."
            raise ApiError(403, "no_login", message, hint)
        return {"url": await logins.begin(server.config, view.principal.name)}

    async def _begin_own_login(self, view: View, request: Request) -> Answer:
        """Begin the login of the user who asks; the cookie ties it to the user's browser."""
        name = request.path_params["name"]
        server = self._get_servers().get_server(view, name)
        logins = self._console.user_logins
        principal = view.principal
        if logins is None or server.config.login != Login.USER or principal is ANONYMOUS:
            message = f"Users do not log in to {name!r} themselves."
            hint = 'That is for servers with login = "user", and for users with a token.'
            raise ApiError(409, "no_login", message, hint)
        address = find_address(self._console.config.public_url, request.scope)
        url, cookie = await logins.begin(server.config, principal.name, f"{address}{CALLBACK}")
        response = JSONResponse({"url": url, "principal": principal.name})
        name, path = _choose_cookie(address)
        is_secure = address.startswith("https:")
        response.set_cookie(name, cookie, path=path, httponly=True, secure=is_secure)
        return response

    async def _send_login_page(self, request: Request) -> Response:
        response = await self._files.get_response("login.html", request.scope)
        return _add_headers(response, HEADERS)

    async def _finish_login(self, request: Request) -> Response:
        """Take the answer of an authorization server, which the user's browser brings."""
        logins = self._console.user_logins
        given = {name: request.query_params[name] for name in list(request.query_params)[:FIELDS]}
        name, path = _choose_cookie(find_address(self._console.config.public_url, request.scope))
        cookie = request.cookies.get(name, "")
        outcome = await logins.finish(given, cookie) if logins is not None else UNKNOWN
        # Fixed text, without anything that came with the request.
        response = RedirectResponse(f"{PAGE}?outcome={outcome}", 303)
        if outcome != UNKNOWN:
            response.delete_cookie(name, path=path, secure=name != COOKIE)
        return _add_headers(response, {**HEADERS, **NO_STORE})

    def _get_servers(self) -> "ServerTable":
        if self._console.servers is None:
            hint = "Run a gateway: `toolscout serve --http`."
            raise ApiError(404, "no_servers", "There are no servers behind this console.", hint)
        return self._console.servers

    async def _stream_events(self, request: Request) -> Response:
        last = request.headers.get("last-event-id", "")
        events = self._console.stream.read(_get_principal(request), last)
        headers = {**HEADERS, **NO_STORE, "X-Accel-Buffering": "no"}
        return StreamingResponse(events, media_type="text/event-stream", headers=headers)

    def _answer_json(self, work: Work) -> Callable[[Request], Awaitable[Response]]:
        async def answer(request: Request) -> Response:
            view = self._console.get_view(_get_principal(request))
            try:
                answered = await work(view, request)
                is_ready = isinstance(answered, Response)
                response = answered if is_ready else JSONResponse(answered)
            except ApiError as error:
                response = error.to_response()
            except ToolscoutError as error:
                response = api_error_from(error).to_response()
            return _add_headers(response, {**HEADERS, **NO_STORE})

        return answer

    async def _send_file(self, request: Request) -> Response:
        name = request.path_params.get("name", "index.html")
        try:
            response = await self._files.get_response(name, request.scope)
        except HTTPException:
            error = ApiError(404, "not_found", "There is no such file.", "Open / for the page.")
            response = error.to_response()
        return _add_headers(response, HEADERS)


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


def _choose_cookie(address: str) -> tuple[str, str]:
    """Return the name and path of the cookie of a login.

    Browsers let no other host, such as a neighbour under the same domain, set one with this prefix.
    """
    return (f"__Host-{COOKIE}", "/") if address.startswith("https:") else (COOKIE, PAGE)


async def _refuse_path(view: View, request: Request) -> Answer:
    hint = f"{API}/openapi.json lists all paths."
    raise ApiError(404, "not_found", "There is nothing here.", hint)


def _add_headers(response: Response, headers: Mapping[str, str]) -> Response:
    for name, value in headers.items():
        response.headers.setdefault(name, value)
    return response


def _get_principal(request: Request) -> Principal:
    return request.scope[PRINCIPAL]


def _read_text(request: Request, name: str) -> str:
    return request.query_params.get(name, "").strip()


def _require_text(request: Request, name: str) -> str:
    value = _read_text(request, name)
    if not value:
        raise ApiError(400, "missing", f"The parameter {name!r} is missing.", f"Add ?{name}=….")
    return value


def _read_number(request: Request, name: str, default: int, least: int, most: int) -> int:
    """Return a parameter brought into its range; raises `ApiError` if it is not a number."""
    value = _read_text(request, name)
    if not value:
        return default
    if not (value.isascii() and value.isdecimal() and len(value) < 12):
        hint = f"Write a whole number from {least:,} to {most:,}."
        raise ApiError(400, "no_number", f"The parameter {name!r} is {value[:40]!r}.", hint)
    return max(least, min(most, int(value)))
