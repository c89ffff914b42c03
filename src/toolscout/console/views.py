"""How much of a catalogue one principal may see in the console, and what the API refuses.

Every answer is built from a `View`, so a profile narrows all of them.
"""

from collections.abc import Callable, Sequence
from functools import cached_property

from starlette.responses import JSONResponse

from toolscout.config.servers import is_matched
from toolscout.errors import ModelError, ToolscoutError, UpstreamError
from toolscout.gateway.gateway import filter_for
from toolscout.gateway.middleware import ANONYMOUS, Principal
from toolscout.names import find_near_names
from toolscout.scout import Scout
from toolscout.servers.manifest import TOOL
from toolscout.sessions.metatools import build_meta_tools, build_run_tool
from toolscout.tokens import count_all_definition_tokens, count_definition_tokens
from toolscout.tools import Tool

NO_PROFILE = "Use a token without a profile."
NAMES_TRIED = 5_000
"""Names compared with an unknown one; comparing more would take too long for an error."""


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
    status = 409 if is_upstream else 400
    return ApiError(status, code, message[:1].upper() + message[1:], error.remedy)


def make_not_found(kind: str, name: str, near: str = "") -> ApiError:
    """Return that something does not exist; the same goes for what the caller may not see."""
    hint = f"Near: {near}." if near else f"Ask for the list of {kind}s."
    message = f"There is no {kind} {name[:80]!r}."
    return ApiError(404, f"unknown_{kind}", message, hint)


class View:
    """The tools and servers that one principal sees in one version of the catalogue."""

    def __init__(self, scout: Scout, principal: Principal) -> None:
        self.principal = principal
        self.version = scout.catalog.version
        self._scout = scout
        self._catalog = scout.catalog
        profile = principal.profile
        self.narrows = filter_for(profile) if profile is not None else None
        self.policy = scout.policy.narrow(self.narrows)

    @property
    def principal_name(self) -> str:
        """The name under which past calls of the principal are kept."""
        return "" if self.principal is ANONYMOUS else self.principal.name

    @property
    def is_limited(self) -> bool:
        """Whether a profile limits the principal."""
        return self.principal.profile is not None

    def refuse_limited(self, what: str) -> None:
        """Raise `ApiError` if a profile limits the principal; `what` begins the sentence."""
        if self.is_limited:
            raise ApiError(403, "limited", f"{what} for tokens without a profile.", NO_PROFILE)

    @property
    def allowed(self) -> Callable[[Tool], bool] | None:
        """The filter for a search of this principal; none if everything is allowed."""
        return None if self.policy.is_open else self.policy.sees

    @cached_property
    def tools(self) -> Sequence[Tool]:
        """The visible tools by name, with resources and prompts."""
        tools = self._catalog.tools
        return tools if self.policy.is_open else tuple(filter(self.policy.sees, tools))

    @cached_property
    def callables(self) -> list[Tool]:
        """The visible tools without resources and prompts."""
        return [tool for tool in self.tools if tool.kind == TOOL]

    @cached_property
    def tokens(self) -> int:
        """The tokens of all definitions of callable tools."""
        return count_all_definition_tokens(self.callables)

    @cached_property
    def menu_tokens(self) -> int:
        """The tokens of toolscout's own tools, with the list of what exists for the principal."""
        listing = self._scout.preview_listing(allowed=self.narrows)
        tools = [*build_meta_tools(listing, runs_calls=True)]
        programs = self._scout.settings.programs
        if programs.enabled:
            tools.append(build_run_tool(programs.effects))
        return sum(map(count_definition_tokens, tools))

    def get_tool(self, name: str, *, with_disabled: bool = False) -> Tool:
        """Return a visible tool; raises `ApiError` for any other name."""
        tool = self._catalog.get(name)
        is_visible = self.policy.knows if with_disabled else self.policy.sees
        if tool is None or not is_visible(tool):
            names = [tool.name for tool in self.tools[:NAMES_TRIED]]
            raise make_not_found("tool", name, ", ".join(find_near_names(name, names)))
        return tool

    def sees_tool(self, name: str) -> bool:
        """Tell whether there is a visible tool of this name."""
        tool = self._catalog.get(name)
        return tool is not None and self.policy.sees(tool)

    def sees_server(self, server: str) -> bool:
        """Tell whether a server exists for the principal.

        A server that has not listed its tools yet does if the profile names it.
        """
        profile = self.principal.profile
        if profile is None:
            return True
        known, visible = self._servers
        is_hidden = server in known and server not in visible
        return is_matched(server, profile.servers) and not is_hidden

    @cached_property
    def _servers(self) -> tuple[set[str], set[str]]:
        """All servers that have listed tools, and those with a visible tool."""
        return {tool.server for tool in self._catalog.tools}, {tool.server for tool in self.tools}
