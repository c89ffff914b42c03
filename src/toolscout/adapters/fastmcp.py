"""FastMCP: a transform with the three meta-tools, and one that only ranks better.

Both replace `BM25SearchTransform`. Tools that a caller may not see are neither found nor called:
the server's own list, with its authorization, is read each time. Only new and changed tools are
indexed.
"""

from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from time import monotonic
from typing import Annotated, Any, cast

from toolscout import Mode, Reply, Scout, Session, Settings, Tool
from toolscout.adapters._toolkit import (
    CALL,
    DESCRIBE,
    SEARCH,
    ApprovedCall,
    Json,
    Toolkit,
    build_meta_tools,
    merge_state,
    read_call_request,
    require_members,
)
from toolscout.errors import MissingExtra, ModelError, UsageError

try:
    from fastmcp.server.context import Context
    from fastmcp.server.dependencies import CurrentContext, get_access_token, get_context
    from fastmcp.server.transforms import GetToolNext
    from fastmcp.server.transforms.catalog import CatalogTransform
    from fastmcp.server.transforms.search.base import BaseSearchTransform, SearchResultSerializer
    from fastmcp.tools.base import Tool as ServerTool
    from fastmcp.tools.base import ToolResult
    from fastmcp.utilities.versions import VersionSpec, dedupe_with_versions
    from mcp_types import CallToolResult, ToolAnnotations
    from mcp_types.version import MODERN_PROTOCOL_VERSIONS
    from pydantic import PrivateAttr
except ModuleNotFoundError as error:
    raise MissingExtra("fastmcp", extra="fastmcp") from error

STATE = "toolscout"
"""The key of the session in FastMCP's session state."""
SEARCH_MEMBERS = (
    "_get_visible_tools",
    "_make_search_tool",
    "_max_results",
    "_render_results",
    "_search",
    "_search_tool_name",
)
"""What FastMCP's search transforms override and use; it has no public names for it."""


class ToolScoutTransform(CatalogTransform):
    """Lists `tool_search`, `tool_describe` and `tool_call` in place of a server's tools.

    `listing_seconds` is how long a caller's list of tools is reused. Leave it at 0 if the list
    depends on more than the session and the access token.
    """

    def __init__(
        self,
        *,
        max_results: int = 5,
        always_visible: Sequence[str] = (),
        listing_seconds: float = 0.0,
        scout: Scout | None = None,
        settings: Settings | None = None,
    ) -> None:
        super().__init__()
        if scout is None and settings is None:
            # One MCP session may serve many conversations, and a tool that is named like a shell
            # is not the host's own shell.
            pins = tuple(always_visible)
            settings = Settings(limit=max_results, pins=pins, shared=True, essential=())
        elif max_results != 5 or always_visible:
            raise UsageError("Set `limit` and `pins` of the settings instead.")
        self._toolkit: Toolkit[ServerTool] = Toolkit((), _define, scout=scout, settings=settings)
        if self._toolkit.scout.settings.mode is not Mode.BRIDGE:
            raise UsageError("A server's list of tools cannot grow. Use mode='bridge'.")
        self._listings = _Listings(listing_seconds)
        self._meta = {
            tool.name: _MetaTool.create(tool, self._answer) for tool in build_meta_tools()
        }

    async def transform_tools(self, tools: Sequence[ServerTool]) -> Sequence[ServerTool]:
        """Return the meta-tools, then the pinned tools."""
        newest = dedupe_with_versions(tools, lambda tool: tool.name)
        only = self._toolkit.register({tool.name: tool for tool in newest})
        session = self._toolkit.open_session("list", only=only)
        shown = [entry.tool.name for entry in session.list_shown()]
        natives = {native.name for native in map(self._toolkit.get, shown) if native is not None}
        meta = [self._meta[name] for name in shown if name in self._meta]
        return [*meta, *(tool for tool in tools if tool.name in natives)]

    async def get_tool(
        self, name: str, call_next: GetToolNext, *, version: VersionSpec | None = None
    ) -> ServerTool | None:
        """Return a meta-tool, or whatever the server has under a name."""
        return self._meta.get(name) or await call_next(name, version=version)

    async def _answer(self, name: str, arguments: Json) -> ToolResult:
        ctx = get_context()
        tools = await self._listings.get(ctx, self.get_tool_catalog)
        only = self._toolkit.register(tools)
        lasting = _has_session(ctx)
        state = await ctx.get_state(STATE) if lasting else None
        session = self._toolkit.open_session(
            ctx.session_id if lasting else "request", state, only=only
        )
        if name == CALL and not lasting:
            _load_target(session, arguments)
        try:
            verdict = await self._toolkit.handle(session, name, arguments)
            if isinstance(verdict, ApprovedCall):
                return await self._run_native(ctx, session, verdict)
            return _to_result(cast("Reply", verdict))
        finally:
            if lasting:
                await _save(ctx, session, state)

    async def _run_native(self, ctx: Context, session: Session, call: ApprovedCall) -> ToolResult:
        own_name = self._toolkit.get_native(call).name
        failed = True
        try:
            result = await ctx.fastmcp.call_tool(own_name, call.arguments)
            failed = result.is_error
        finally:
            session.settle(call, failed=failed)
        return result


class ToolScoutSearchTransform(BaseSearchTransform):
    """`BM25SearchTransform` with toolscout's ranking: the same two tools, options and replies."""

    def __init__(
        self,
        *,
        max_results: int = 5,
        always_visible: list[str] | None = None,
        search_tool_name: str = "search_tools",
        call_tool_name: str = "call_tool",
        search_result_serializer: SearchResultSerializer | None = None,
        scout: Scout | None = None,
    ) -> None:
        super().__init__(
            max_results=max_results,
            always_visible=always_visible,
            search_tool_name=search_tool_name,
            call_tool_name=call_tool_name,
            search_result_serializer=search_result_serializer,
        )
        require_members("fastmcp", self, *SEARCH_MEMBERS)
        self._toolkit: Toolkit[ServerTool] = Toolkit((), _define, scout=scout)

    def _make_search_tool(self) -> ServerTool:
        async def search_tools(
            query: Annotated[str, "What the tool should do, in plain words"],
            ctx: Context = CurrentContext(),  # noqa: B008  # how FastMCP hands it over
        ) -> str | list[dict[str, Any]]:
            """Find tools by what they do. Gives their definitions, best first."""
            found = await self._search(await self._get_visible_tools(ctx), query)
            return await self._render_results(found)

        return ServerTool.from_function(search_tools, name=self._search_tool_name)

    async def _search(self, tools: Sequence[ServerTool], query: str) -> Sequence[ServerTool]:
        only = self._toolkit.register({tool.name: tool for tool in tools})
        return self._toolkit.rank([query], self._max_results, only=only)


class _MetaTool(ServerTool):
    """A meta-tool as the server lists it."""

    _answer: Callable[[str, Json], Awaitable[ToolResult]] = PrivateAttr()

    @classmethod
    def create(
        cls, tool: Tool, answer: Callable[[str, Json], Awaitable[ToolResult]]
    ) -> "_MetaTool":
        read_only = tool.name in (SEARCH, DESCRIBE)
        made = cls(
            name=tool.name,
            description=tool.description,
            parameters=tool.input_schema,
            annotations=ToolAnnotations(read_only_hint=True) if read_only else None,
        )
        made._answer = answer
        return made

    async def run(self, arguments: Json) -> ToolResult:
        return await self._answer(self.name, arguments)


@dataclass(slots=True)
class _Listings:
    """The tools of each caller, by name, and until when each list is reused."""

    seconds: float
    _kept: dict[tuple[str, str], tuple[float, dict[str, ServerTool]]] = field(default_factory=dict)

    async def get(
        self, ctx: Context, listed: Callable[[Context], Awaitable[Sequence[ServerTool]]]
    ) -> dict[str, ServerTool]:
        token, now = get_access_token(), monotonic()
        key = (ctx.session_id if _has_session(ctx) else "", token.token if token else "")
        until, tools = self._kept.get(key, (0.0, {}))
        if until <= now:
            tools = {tool.name: tool for tool in await listed(ctx)}
            self._kept = {k: v for k, v in self._kept.items() if v[0] > now}
            if self.seconds > 0:
                self._kept[key] = (now + self.seconds, tools)
        return tools


def _define(tool: ServerTool) -> Tool:
    shaped = tool.to_mcp_tool().model_dump(mode="json", by_alias=True, exclude_none=True)
    return Tool.from_mcp(shaped)


def _has_session(ctx: Context) -> bool:
    """Tell whether the request belongs to a session: from protocol 2026-07-28 on, none does."""
    request = ctx.request_context
    return request is not None and request.protocol_version not in MODERN_PROTOCOL_VERSIONS


def _load_target(session: Session, arguments: Json) -> None:
    # Without a session no earlier request can have found the tool, so its name is enough.
    with suppress(ModelError):
        session.describe(str(read_call_request(arguments)[0]))


async def _save(ctx: Context, session: Session, before: object) -> None:
    # Parallel calls start from the same state, and each adds to it.
    after = merge_state(session, before, await ctx.get_state(STATE))
    await ctx.set_state(STATE, after)


def _to_result(reply: Reply) -> ToolResult:
    result = CallToolResult.model_validate(reply.to_message("mcp"))
    return ToolResult.from_mcp_result(result)
