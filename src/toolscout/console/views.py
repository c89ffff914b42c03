"""What the console shows, and how much of it one principal may see.

`Backend` is what a console looks at: a running gateway, or a catalogue alone. Every answer is
built from a `View`, so a profile narrows all of them. `ApiError` is an answer that explains why
there is none.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path

from starlette.responses import JSONResponse

from toolscout.config.gateway import GatewayConfig
from toolscout.config.servers import is_matched
from toolscout.errors import ModelError, ToolscoutError, UpstreamError
from toolscout.gateway.gateway import filter_for
from toolscout.gateway.ledger import Ledger
from toolscout.gateway.middleware import Principal
from toolscout.names import find_near_names
from toolscout.scout import Scout
from toolscout.servers.manifest import TOOL
from toolscout.servers.pool import Pool
from toolscout.sessions.events import EventStream
from toolscout.tools import Tool

NAMES_TRIED = 5_000
"""Names compared with an unknown one; comparing more would take too long for an error."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Backend:
    """A scout, and the servers behind it if there are any."""

    scout: Scout
    config: GatewayConfig
    events: EventStream
    ledger: Ledger
    pool: Pool | None = None
    tokens: Path | None = None
    """The folder with the logins of servers."""

    @property
    def host(self) -> str:
        """What serves the console: `gateway` or `console`."""
        return "console" if self.pool is None else "gateway"


class ApiError(Exception):
    """A request that the API refuses: what happened, and what to do next."""

    def __init__(self, status: int, code: str, message: str, hint: str = "") -> None:
        self.status = status
        self.code = code
        self.message = message
        self.hint = hint
        super().__init__(message)

    def to_response(self) -> JSONResponse:
        """Return the error as JSON."""
        error = {"code": self.code, "message": self.message, "hint": self.hint}
        return JSONResponse({"error": error}, self.status)


def api_error_from(error: ToolscoutError) -> ApiError:
    """Return an error of toolscout as one of the API."""
    message = str(error).removesuffix(error.remedy).strip().removeprefix("Not called: ")
    is_upstream = isinstance(error, UpstreamError)
    code = error.code if isinstance(error, ModelError | UpstreamError) else "usage"
    status = HTTPStatus.CONFLICT if is_upstream else HTTPStatus.BAD_REQUEST
    return ApiError(status, code, message[:1].upper() + message[1:], error.remedy)


def make_not_found(kind: str, name: str, near: str = "") -> ApiError:
    """Return that something does not exist; the same goes for what the caller may not see."""
    hint = f"Near: {near}." if near else f"Ask for the list of {kind}s."
    message = f"There is no {kind} {name[:80]!r}."
    return ApiError(HTTPStatus.NOT_FOUND, f"unknown_{kind}", message, hint)


class View:
    """The tools and servers that one principal sees, as the catalogue is now."""

    def __init__(self, scout: Scout, principal: Principal) -> None:
        self.principal = principal
        self._scout = scout
        profile = principal.profile
        self.narrows = filter_for(profile) if profile is not None else None
        self.policy = scout.policy.narrow(self.narrows)
        self._cached_tools: tuple[int, Sequence[Tool]] = (-1, ())
        self._cached_servers = (-1, frozenset[str](), frozenset[str]())

    @property
    def is_limited(self) -> bool:
        """Whether a profile limits the principal."""
        return self.principal.profile is not None

    @property
    def allowed(self) -> Callable[[Tool], bool] | None:
        """The filter for a search of this principal; none if everything is allowed."""
        return None if self.policy.is_open else self.policy.sees

    @property
    def version(self) -> int:
        """The version of the catalogue."""
        return self._scout.catalog.version

    @property
    def tools(self) -> Sequence[Tool]:
        """The visible tools by name, with resources and prompts."""
        if self.policy.is_open:
            return self._scout.catalog.tools
        if self._cached_tools[0] != self.version:
            tools = tuple(filter(self.policy.sees, self._scout.catalog.tools))
            self._cached_tools = (self.version, tools)
        return self._cached_tools[1]

    @property
    def callables(self) -> list[Tool]:
        """The visible tools without resources and prompts."""
        return [tool for tool in self.tools if tool.kind == TOOL]

    def get_tool(self, name: str) -> Tool:
        """Return a visible tool; raises `ApiError` for any other name."""
        tool = self._scout.catalog.get(name)
        if tool is None or not self.policy.sees(tool):
            raise self._make_unknown(name)
        return tool

    def get_known_tool(self, name: str) -> Tool:
        """Return a tool that exists for the principal, even if it is disabled."""
        tool = self._scout.catalog.get(name)
        if tool is None or not self.policy.knows(tool):
            raise self._make_unknown(name)
        return tool

    def _make_unknown(self, name: str) -> ApiError:
        names = [tool.name for tool in self.tools[:NAMES_TRIED]]
        return make_not_found("tool", name, ", ".join(find_near_names(name, names)))

    def sees_tool(self, name: str) -> bool:
        """Tell whether there is a visible tool of this name."""
        tool = self._scout.catalog.get(name)
        return tool is not None and self.policy.sees(tool)

    def sees_server(self, server: str) -> bool:
        """Tell whether a server exists for the principal.

        A server that has not listed its tools yet does if the profile names it.
        """
        profile = self.principal.profile
        if profile is None:
            return True
        if not is_matched(server, profile.servers):
            return False
        version = self.version
        if self._cached_servers[0] != version:
            known = frozenset(tool.server for tool in self._scout.catalog.tools)
            visible = frozenset(tool.server for tool in self.tools)
            self._cached_servers = (version, known, visible)
        _, known, visible = self._cached_servers
        return server not in known or server in visible


class Views:
    """The views of all principals, built when they first ask."""

    def __init__(self, scout: Scout) -> None:
        self._scout = scout
        self._views: dict[Principal, View] = {}

    def get(self, principal: Principal) -> View:
        """Return the view of a principal."""
        view = self._views.get(principal)
        if view is None:
            view = self._views[principal] = View(self._scout, principal)
        return view
