"""`View`: what one principal sees of a catalogue.

Every answer of the console is made out of a view, so that a profile narrows all of it.

`Subject`: what a console looks at, a live gateway or a catalogue alone.

`Refused`: a request that is not answered, and why, for the reader of a JSON error.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from starlette.responses import JSONResponse

from toolscout.config.gateway import GatewayConfig
from toolscout.config.servers import is_matched
from toolscout.errors import LoginFailed, ModelError, ToolscoutError, UpstreamError
from toolscout.gateway.auth import Principal
from toolscout.gateway.gateway import filter_for
from toolscout.names import find_near_names
from toolscout.scout import Scout
from toolscout.servers.manifest import TOOL
from toolscout.servers.pool import Pool
from toolscout.sessions.session import Store
from toolscout.tools import Tool


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """A scout, and the servers behind it if there are any."""

    scout: Scout
    config: GatewayConfig
    pool: Pool | None = None
    store: Store | None = None
    """Where the hours are kept."""
    tokens: Path | None = None
    """The folder with logins of servers."""

    @property
    def host(self) -> str:
        """What kind it is."""
        return "console" if self.pool is None else "gateway"


BAD, FORBIDDEN, NOT_FOUND, CONFLICT = 400, 403, 404, 409


class Refused(Exception):
    """An error of the API: what happened, and what to do next."""

    def __init__(self, status: int, code: str, message: str, hint: str = "") -> None:
        self.status, self.code, self.message, self.hint = status, code, message, hint
        super().__init__(message)

    def response(self) -> JSONResponse:
        """Return it as JSON."""
        told = {"code": self.code, "message": self.message, "hint": self.hint}
        return JSONResponse({"error": told}, self.status)


def refused(error: ToolscoutError) -> Refused:
    """Return what an error of toolscout means to whoever asked the API."""
    message, hint = str(error), str(getattr(error, "remedy", ""))
    if hint and message.endswith(hint):
        message = message.removesuffix(hint).strip()
    message = message.removeprefix("Not called: ")
    code = error.code if isinstance(error, ModelError | UpstreamError) else "usage"
    is_elsewhere = isinstance(error, UpstreamError | LoginFailed)
    return Refused(CONFLICT if is_elsewhere else BAD, code, message[:1].upper() + message[1:], hint)


def no_such(what: str, name: str, near: str = "") -> Refused:
    """Return that a thing does not exist, or not for this caller, which is told the same way."""
    hint = f"Near: {near}." if near else f"Ask for the list of {what}s."
    return Refused(NOT_FOUND, f"unknown_{what}", f"There is no {what} {name[:80]!r}.", hint)


NAMES_TRIED = 5_000
"""Names among which near ones are looked for; more would take too long for an error."""


class View:
    """The tools and servers of one principal, as the catalogue is now."""

    def __init__(self, scout: Scout, principal: Principal) -> None:
        self.principal = principal
        self._scout = scout
        profile = principal.profile
        self.narrows = filter_for(profile) if profile is not None else None
        self.policy = scout.policy.narrowed(self.narrows)
        self._seen: tuple[int, Sequence[Tool]] = (-1, ())
        self._kept = (-1, frozenset[str](), frozenset[str]())

    @property
    def is_limited(self) -> bool:
        """Whether the principal sees a part only."""
        return self.principal.profile is not None

    @property
    def allowed(self) -> Callable[[Tool], bool] | None:
        """What a search of this principal may give; nothing stands for everything."""
        return None if self.policy.is_open else self.policy.sees

    @property
    def version(self) -> int:
        """Of the catalogue."""
        return self._scout.catalog.version

    @property
    def tools(self) -> Sequence[Tool]:
        """The visible tools, by name."""
        if self.policy.is_open:
            return self._scout.catalog.tools
        version = self._scout.catalog.version
        if self._seen[0] != version:
            self._seen = (version, tuple(filter(self.policy.sees, self._scout.catalog.tools)))
        return self._seen[1]

    @property
    def callables(self) -> list[Tool]:
        """The visible tools without resources and prompts, which are catalogued beside them."""
        return [tool for tool in self.tools if tool.kind == TOOL]

    def tool(self, name: str) -> Tool:
        """Return a visible tool, or refuse as if there were none."""
        tool = self._scout.catalog.get(name)
        if tool is None or not self.policy.sees(tool):
            raise self._unknown(name)
        return tool

    def sees_tool(self, name: str) -> bool:
        """Tell whether there is a visible tool of this name."""
        tool = self._scout.catalog.get(name)
        return tool is not None and self.policy.sees(tool)

    def known(self, name: str) -> Tool:
        """Return a tool that exists for the principal, switched off or not."""
        tool = self._scout.catalog.get(name)
        if tool is None or not self.policy.knows(tool):
            raise self._unknown(name)
        return tool

    def _unknown(self, name: str) -> Refused:
        names = [tool.name for tool in self.tools[:NAMES_TRIED]]
        return no_such("tool", name, ", ".join(find_near_names(name, names)))

    def sees_server(self, server: str) -> bool:
        """Tell whether a server exists for the principal.

        One of which no tool is known yet does where the profile names it.
        """
        profile = self.principal.profile
        if profile is None:
            return True
        if not is_matched(server, profile.servers):
            return False
        _, known, seen = self._servers
        return server not in known or server in seen

    @property
    def _servers(self) -> tuple[int, frozenset[str], frozenset[str]]:
        """The catalogue's version, the servers with any tool, and those with a visible one."""
        version = self._scout.catalog.version
        if self._kept[0] != version:
            known = frozenset(tool.server for tool in self._scout.catalog.tools)
            seen = frozenset(tool.server for tool in self.tools)
            self._kept = (version, known, seen)
        return self._kept


class Views:
    """The views of all principals, made when they first ask."""

    def __init__(self, scout: Scout) -> None:
        self._scout = scout
        self._known: dict[Principal, View] = {}

    def of(self, principal: Principal) -> View:
        """Return the view of a principal."""
        view = self._known.get(principal)
        if view is None:
            view = self._known[principal] = View(self._scout, principal)
        return view
