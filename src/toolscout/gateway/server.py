"""The gateway as an MCP server: handlers for the SDK's `Server`, and serving over stdio.

The same handlers serve both protocol eras. They leave every decision to `Gateway`; the callers of
`build_server` tell whose session a request belongs to.
"""

from collections.abc import Awaitable, Callable
from importlib.metadata import version
from typing import Any, TypeVar

import mcp_types as types
from mcp.server import Server
from mcp.server.caching import CacheableMethod, CacheHint
from mcp.server.context import CallNext, HandlerResult, ServerMiddleware
from mcp.server.lowlevel.server import NotificationOptions
from mcp.server.models import InitializationOptions
from opentelemetry import trace
from opentelemetry.propagate import get_global_textmap

from toolscout.gateway.forward import Context
from toolscout.gateway.gateway import Gateway
from toolscout.gateway.listen import open_stdio
from toolscout.gateway.logs import CURRENT_REQUEST
from toolscout.sessions.metatools import INSTRUCTIONS
from toolscout.sessions.session import Session

LIST_SECONDS = 60
CACHED: tuple[CacheableMethod, ...] = (
    "tools/list",
    "prompts/list",
    "resources/list",
    "resources/templates/list",
)
COMPLETE = {"resultType": "complete"}
"""The default type of a result since 2026-07-28; the SDK removes it for older clients."""

SessionOf = Callable[[Context], Session]
"""Returns the session that a request belongs to."""
_Params = TypeVar("_Params")
Handler = Callable[[Context, _Params], Awaitable[Any]]
Answerer = Callable[[Session, Context, _Params], Awaitable[Any]]
"""Answers a request whose session is known."""


def build_server(gateway: Gateway, session_of: SessionOf) -> Server[Any]:
    """Return an MCP server that answers requests with a gateway."""
    resources = gateway.resources

    async def list_tools(context: Context, params: types.PaginatedRequestParams | None) -> Any:
        grows = gateway.has_growing_list(context)
        return COMPLETE | {"tools": gateway.list_tools(session_of(context), grows=grows)}

    async def call_tool(
        session: Session, context: Context, params: types.CallToolRequestParams
    ) -> Any:
        return COMPLETE | await gateway.call(session, context, params)

    async def list_resources(context: Context, params: types.PaginatedRequestParams | None) -> Any:
        return COMPLETE | {"resources": resources.list_resources(session_of(context))}

    async def list_templates(context: Context, params: types.PaginatedRequestParams | None) -> Any:
        return COMPLETE | {"resourceTemplates": resources.list_templates(session_of(context))}

    async def read_resource(
        session: Session, context: Context, params: types.ReadResourceRequestParams
    ) -> Any:
        forwarded = gateway.forward(session, context, params)
        return COMPLETE | await resources.read(session, params.uri, forwarded)

    async def list_prompts(context: Context, params: types.PaginatedRequestParams | None) -> Any:
        return COMPLETE | {"prompts": resources.list_prompts(session_of(context))}

    async def get_prompt(
        session: Session, context: Context, params: types.GetPromptRequestParams
    ) -> Any:
        forwarded = gateway.forward(session, context, params)
        given = dict(params.arguments or {})
        return COMPLETE | await resources.get_prompt(session, params.name, given, forwarded)

    async def complete(context: Context, params: types.CompleteRequestParams) -> Any:
        asked = params.model_dump(by_alias=True, mode="json", exclude_none=True, exclude={"meta"})
        return COMPLETE | await resources.complete(session_of(context), asked)

    listed = CacheHint(ttl_ms=LIST_SECONDS * 1000, scope="private")
    # A resource may change at any time, and the server's own hint may be out of date.
    hints: dict[CacheableMethod, CacheHint] = dict.fromkeys(CACHED, listed)
    hints["resources/read"] = CacheHint(ttl_ms=0)
    server = _Server(
        "toolscout",
        version=version("toolscout"),
        instructions=INSTRUCTIONS,
        cache_hints=hints,
        on_list_tools=list_tools,
        on_call_tool=_log_requests(call_tool, session_of),
        on_list_resources=list_resources,
        on_list_resource_templates=list_templates,
        on_read_resource=_log_requests(read_resource, session_of),
        on_list_prompts=list_prompts,
        on_get_prompt=_log_requests(get_prompt, session_of),
        on_completion=complete,
    )
    server.middleware[:] = [OptionalSpans(spans) for spans in server.middleware]
    _add_subscriptions(server, gateway, session_of)
    return server


def _log_requests(answer: Answerer[_Params], session_of: SessionOf) -> Handler[_Params]:
    """Return a handler that sets `CURRENT_REQUEST`, so that log lines name the request."""

    async def answer_logged(context: Context, params: _Params) -> Any:
        session = session_of(context)
        token = CURRENT_REQUEST.set((session.id, context.request_id))
        try:
            return await answer(session, context, params)
        finally:
            CURRENT_REQUEST.reset(token)

    return answer_logged


def _add_subscriptions(server: Server[Any], gateway: Gateway, session_of: SessionOf) -> None:
    subscriptions = gateway.subscriptions

    async def add_listener(context: Context, params: types.NotificationParams) -> None:
        grows = gateway.has_growing_list(context)
        subscriptions.find_listener(context, session_of(context), grows=grows)

    async def subscribe(context: Context, params: types.SubscribeRequestParams) -> Any:
        await subscriptions.subscribe(context, session_of(context), params.uri)
        return {}

    async def unsubscribe(context: Context, params: types.UnsubscribeRequestParams) -> Any:
        await subscriptions.unsubscribe(context, session_of(context), params.uri)
        return {}

    async def listen(context: Context, params: types.SubscriptionsListenRequestParams) -> Any:
        return await subscriptions.listen(context, session_of(context), params.notifications)

    server.add_notification_handler(
        "notifications/initialized", types.NotificationParams, add_listener
    )
    server.add_request_handler("resources/subscribe", types.SubscribeRequestParams, subscribe)
    server.add_request_handler("resources/unsubscribe", types.UnsubscribeRequestParams, unsubscribe)
    server.add_request_handler(
        "subscriptions/listen", types.SubscriptionsListenRequestParams, listen
    )


class _Server(Server[Any]):
    """Declares over every transport that its lists may change; by default the SDK does not."""

    def create_initialization_options(
        self,
        notification_options: NotificationOptions | None = None,
        experimental_capabilities: dict[str, dict[str, Any]] | None = None,
        extensions: dict[str, dict[str, Any]] | None = None,
    ) -> InitializationOptions:
        every = NotificationOptions(
            prompts_changed=True, resources_changed=True, tools_changed=True
        )
        return super().create_initialization_options(
            notification_options or every, experimental_capabilities, extensions
        )


class OptionalSpans:
    """Lets the MCP SDK create a span for a request only if somebody will see it.

    That is the case if the host has set up a collector, or if the client sent a trace, which the
    SDK passes on to the called server.
    """

    def __init__(self, spans: ServerMiddleware[Any]) -> None:
        self._spans = spans
        self._fields = frozenset(get_global_textmap().fields)

    async def __call__(self, ctx: Context, call_next: CallNext) -> HandlerResult:
        """Answer a request."""
        if has_collector() or not self._fields.isdisjoint(ctx.meta or ()):
            return await self._spans(ctx, call_next)
        return await call_next(ctx)


def has_collector() -> bool:
    """Tell whether the host has set up a collector; without one OpenTelemetry drops all spans."""
    return not isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider)


async def serve_stdio(gateway: Gateway) -> None:
    """Serve one client over stdin and stdout until it disconnects."""
    session = gateway.open_session("stdio")
    server = build_server(gateway, lambda context: session)
    async with open_stdio() as (read, write):
        await server.run(read, write, server.create_initialization_options())
