"""FastMCP: a transform with the three meta-tools, and one that only ranks better.

Both replace `BM25SearchTransform`. Tools that a caller may not see are neither found nor called:
the server's own list, with its authorization, is read each time. Only new and changed tools are
indexed.
"""

from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from time import monotonic
from typing import Annotated, Any, Unpack, cast

from toolscout import Mode, Reply, Scout, Session, Settings, Tool
from toolscout.adapters._toolkit import (
    CALL,
    DESCRIBE,
    SEARCH,
    TRANSFORM_DESCRIPTION,
    TRANSFORM_QUERY,
    ApprovedCall,
    Json,
    Toolkit,
    ToolkitOptions,
    build_meta_tools,
    list_request_tools,
    merge_state,
    read_calls,
    report_outcome,
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
        **options: Unpack[ToolkitOptions],
    ) -> None:
        super().__init__()
        if not any(options.values()):
            # One MCP session may serve many conversations, and a tool that is named like a shell
            # is not the host's own shell.
            pins = tuple(always_visible)
            options["settings"] = Settings(limit=max_results, pins=pins, shared=True, essential=())
        elif max_results != 5 or always_visible:
            raise UsageError("Set `limit` and `pins` of the settings instead.")
        self._toolkit: Toolkit[ServerTool] = Toolkit((), _define, **options)
        if self._toolkit.mode is not Mode.BRIDGE:
            raise UsageError("A server's list of tools cannot grow. Use mode='bridge'.")
        self._listing_seconds = listing_seconds
        self._listings: dict[tuple[str, str], tuple[float, dict[str, ServerTool]]] = {}
        self._meta = {t.name: _MetaTool(t, self._answer) for t in build_meta_tools()}

    async def transform_tools(self, tools: Sequence[ServerTool]) -> Sequence[ServerTool]:
        """Return the meta-tools, then the pinned tools."""
        newest = dedupe_with_versions(tools, lambda tool: tool.name)
        only = self._toolkit.register({tool.name: tool for tool in newest})
        session = self._toolkit.open_session("list", only=only)
        shown = list_request_tools(session)
        pinned = [self._toolkit.get(tool.name) for tool in shown]
        natives = {native.name for native in pinned if native is not None}
        meta = [_MetaTool(tool, self._answer) for tool in shown if tool.name in self._meta]
        return [*meta, *(tool for tool in tools if tool.name in natives)]

    async def get_tool(
        self, name: str, call_next: GetToolNext, *, version: VersionSpec | None = None
    ) -> ServerTool | None:
        """Return a meta-tool, or the server's own tool of that name."""
        return self._meta.get(name) or await call_next(name, version=version)

    async def _answer(self, name: str, arguments: Json) -> ToolResult:
        ctx = get_context()
        only = self._toolkit.register(await self._list_tools(ctx))
        if not _has_session(ctx):
            session = self._toolkit.open_session("request", only=only)
            if name == CALL:
                # No earlier request can have found the tool, so its name is enough.
                with suppress(ModelError):
                    session.describe(str(read_calls(arguments)[0][0].name))
            return await self._handle(ctx, session, name, arguments)
        before = await ctx.get_state(STATE)
        session = self._toolkit.open_session(ctx.session_id, before, only=only)
        try:
            return await self._handle(ctx, session, name, arguments)
        finally:
            # Parallel calls start from the same state, and each adds to it.
            after = merge_state(session, before, await ctx.get_state(STATE))
            await ctx.set_state(STATE, after)

    async def _list_tools(self, ctx: Context) -> dict[str, ServerTool]:
        """Return the tools of the caller, by name."""
        token, now = get_access_token(), monotonic()
        key = (ctx.session_id if _has_session(ctx) else "", token.token if token else "")
        until, tools = self._listings.get(key, (0.0, {}))
        if until <= now:
            tools = {tool.name: tool for tool in await self.get_tool_catalog(ctx)}
            self._listings = {k: v for k, v in self._listings.items() if v[0] > now}
            if self._listing_seconds > 0:
                self._listings[key] = (now + self._listing_seconds, tools)
        return tools

    async def _handle(
        self, ctx: Context, session: Session, name: str, arguments: Json
    ) -> ToolResult:
        verdict = await self._toolkit.handle(session, name, arguments)
        if not isinstance(verdict, ApprovedCall):
            message = cast("Reply", verdict).to_message("mcp")
            return ToolResult.from_mcp_result(CallToolResult.model_validate(message))
        own_name = self._toolkit.get_native(verdict).name
        with report_outcome(session, verdict) as outcome:
            result = await ctx.fastmcp.call_tool(own_name, verdict.arguments)
            outcome.failed = result.is_error
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
        # What FastMCP's own search transforms override and use; none has a public name.
        require_members("fastmcp", self, "_get_visible_tools", "_render_results", "_search")
        require_members("fastmcp", self, "_make_search_tool", "_search_tool_name", "_max_results")
        self._toolkit: Toolkit[ServerTool] = Toolkit((), _define, scout=scout)

    def _make_search_tool(self) -> ServerTool:
        async def search_tools(
            query: Annotated[str, TRANSFORM_QUERY],
            ctx: Context = CurrentContext(),  # noqa: B008  # how FastMCP hands it over
        ) -> str | list[dict[str, Any]]:
            found = await self._search(await self._get_visible_tools(ctx), query)
            return await self._render_results(found)

        return ServerTool.from_function(
            search_tools, name=self._search_tool_name, description=TRANSFORM_DESCRIPTION
        )

    async def _search(self, tools: Sequence[ServerTool], query: str) -> Sequence[ServerTool]:
        only = self._toolkit.register({tool.name: tool for tool in tools})
        return self._toolkit.rank([query], self._max_results, only=only)


class _MetaTool(ServerTool):
    """A meta-tool as the server lists it."""

    _answer: Callable[[str, Json], Awaitable[ToolResult]] = PrivateAttr()

    def __init__(self, tool: Tool, answer: Callable[[str, Json], Awaitable[ToolResult]]) -> None:
        read_only = tool.name in (SEARCH, DESCRIBE)
        super().__init__(
            name=tool.name,
            description=tool.description,
            parameters=tool.input_schema,
            annotations=ToolAnnotations(read_only_hint=True) if read_only else None,
        )
        self._answer = answer

    async def run(self, arguments: Json) -> ToolResult:
        return await self._answer(self.name, arguments)


def _define(tool: ServerTool) -> Tool:
    shaped = tool.to_mcp_tool().model_dump(mode="json", by_alias=True, exclude_none=True)
    return Tool.from_mcp(shaped)


def _has_session(ctx: Context) -> bool:
    """Tell whether the request belongs to a session: from protocol 2026-07-28 on, none does."""
    request = ctx.request_context
    return request is not None and request.protocol_version not in MODERN_PROTOCOL_VERSIONS
