"""The gateway as an MCP server: handlers for the SDK's `Server`, and serving over stdio.

The same handlers serve both protocol eras. They leave every decision to `Gateway`; the callers of
`build_server` tell whose session a request belongs to.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from functools import partial
from importlib.metadata import version
from typing import Any

import mcp_types as types
from mcp.server import Server
from mcp.server.caching import CacheableMethod, CacheHint
from mcp.server.context import CallNext, HandlerResult
from mcp.server.lowlevel.server import NotificationOptions
from mcp.server.models import InitializationOptions

from toolscout.config.gateway import GatewayConfig, GatewayMode
from toolscout.gateway.events import Listed, Requested
from toolscout.gateway.forward import Context
from toolscout.gateway.gateway import Gateway
from toolscout.gateway.listen import open_stdio, serve_streams
from toolscout.gateway.logs import CURRENT_REQUEST
from toolscout.gateway.middleware import ANONYMOUS, Principal
from toolscout.gateway.shims import ImmediateAnswers, OptionalSpans
from toolscout.gateway.subscriptions import SessionOf
from toolscout.gateway.tasks import TaskParams, TaskUpdateParams
from toolscout.names import to_one_line
from toolscout.schemas import Json
from toolscout.servers.connection import CANCEL_TASK
from toolscout.servers.manifest import PROMPT, RESOURCE, TEMPLATE
from toolscout.servers.mcp import APPS, SKILLS, TASKS
from toolscout.sessions.metatools import INSTRUCTIONS, to_object
from toolscout.sessions.session import Session
from toolscout.tools import Tool

LIST_SECONDS = 60
CLIENT_CHARS = 80
CACHED: tuple[CacheableMethod, ...] = (
    "tools/list",
    "prompts/list",
    "resources/list",
    "resources/templates/list",
)
EVERY_TOKEN = 1 << 60
_CACHED_SKILLS = {"ttlMs": LIST_SECONDS * 1000, "cacheScope": "private"}
COMPLETE = {"resultType": "complete"}
"""The default type of a result since 2026-07-28; the SDK removes it for older clients."""

_Answer = Callable[[Session, Context, Any], Awaitable[Json]]


class GetSkillParams(types.RequestParams):
    """The parameters of `skills/get`."""

    uri: str


def build_server(gateway: Gateway, session_of: SessionOf) -> Server[Any]:
    """Return an MCP server that answers requests with a gateway."""
    # In `auto` mode it depends on the client's tools, which may not be known yet.
    has_search = gateway.config.gateway.mode in (GatewayMode.SEARCH, GatewayMode.DYNAMIC)
    resources = gateway.resources
    subscriptions = gateway.subscriptions

    async def list_tools(session: Session, context: Context, params: Any) -> Json:
        is_short = await session.run_locked(session.has_listing)
        grows = gateway.has_growing_list(context)
        declared = context.session.client_capabilities
        has_apps = declared is not None and APPS in (declared.extensions or ())

        def list_() -> tuple[list[Json], Sequence[Tool]]:
            definitions = gateway.list_tools(session, grows=grows, has_apps=has_apps)
            return definitions, session.list_visible()

        definitions, visible = await session.run_locked(list_, is_short=is_short)
        if context.request is None:  # over HTTP, the SDK also lists tools for itself
            gateway.events.emit(
                Listed(
                    session=session.id,
                    principal=ANONYMOUS.name,
                    version=gateway.catalog.version,
                    definitions=definitions,
                    tools=visible,
                )
            )
        return {"tools": definitions}

    def list_entries(key: str, kind: str) -> _Answer:
        async def answer(session: Session, context: Context, params: Any) -> Json:
            list_ = partial(resources.list_entries, session, kind)
            return {key: await session.run_locked(list_)}

        return answer

    async def read_resource(
        session: Session, context: Context, params: types.ReadResourceRequestParams
    ) -> Json:
        forwarded = gateway.forward(session, context, params)
        answer = resources.read(session, params.uri, forwarded)
        return await gateway.record_read(session, params.uri, answer)

    async def list_skills(session: Session, context: Context, params: Any) -> Json:
        is_direct = await session.run_locked(lambda: gateway.is_direct(session))
        most = EVERY_TOKEN if is_direct else gateway.config.skills.listed_tokens
        list_ = partial(resources.list_skills, session, most_tokens=most)
        return {"skills": await session.run_locked(list_, is_short=False), **_CACHED_SKILLS}

    async def get_skill(session: Session, context: Context, params: GetSkillParams) -> Json:
        get = partial(resources.get_skill, session, params.uri)
        return {"skill": await session.run_locked(get, is_short=False), **_CACHED_SKILLS}

    async def get_prompt(
        session: Session, context: Context, params: types.GetPromptRequestParams
    ) -> Json:
        forwarded = gateway.forward(session, context, params)
        given = dict(params.arguments or {})
        answer = resources.get_prompt(session, params.name, given, forwarded)
        return await gateway.record_read(session, params.name, answer)

    async def complete(
        session: Session, context: Context, params: types.CompleteRequestParams
    ) -> Json:
        asked = params.model_dump(by_alias=True, mode="json", exclude_none=True, exclude={"meta"})
        return await resources.complete(session, asked, gateway.identify(session, context))

    async def add_listener(context: Context, params: types.NotificationParams) -> None:
        grows = gateway.has_growing_list(context)
        subscriptions.find_listener(context, await session_of(context), grows=grows)

    async def renew_roots(context: Context, params: types.NotificationParams) -> None:
        session = await session_of(context)
        relay = gateway.forward(session, context, types.InputResponseRequestParams())
        gateway.pool.renew_roots(gateway.identify(session, context), relay)

    def handle(answer: _Answer) -> Callable[[Context, Any], Awaitable[Any]]:
        """Return a handler that finds the session, and lets log lines name the request."""

        async def answer_request(context: Context, params: Any) -> Any:
            session = await session_of(context)
            token = CURRENT_REQUEST.set((session.id, context.request_id))
            try:
                return COMPLETE | await answer(session, context, params)
            finally:
                CURRENT_REQUEST.reset(token)

        return answer_request

    listed = CacheHint(ttl_ms=LIST_SECONDS * 1000, scope="private")
    # A resource may change at any time, and the server's own hint may be out of date.
    hints: dict[CacheableMethod, CacheHint] = dict.fromkeys(CACHED, listed)
    hints["resources/read"] = CacheHint(ttl_ms=0)
    call_tool = handle(gateway.call)
    server = _Server(
        "toolscout",
        version=version("toolscout"),
        instructions=INSTRUCTIONS if has_search else None,
        cache_hints=hints,
        on_list_tools=handle(list_tools),
        on_call_tool=call_tool,
        on_list_resources=handle(list_entries("resources", RESOURCE)),
        on_list_resource_templates=handle(list_entries("resourceTemplates", TEMPLATE)),
        on_read_resource=handle(read_resource),
        on_subscribe_resource=handle(subscriptions.subscribe),
        on_unsubscribe_resource=handle(subscriptions.unsubscribe),
        on_subscriptions_listen=partial(subscriptions.listen, session_of),
        on_list_prompts=handle(list_entries("prompts", PROMPT)),
        on_get_prompt=handle(get_prompt),
        on_completion=handle(complete),
    )
    server.add_notification_handler(
        "notifications/initialized", types.NotificationParams, add_listener
    )
    server.add_notification_handler(
        "notifications/roots/list_changed", types.NotificationParams, renew_roots
    )
    server.extensions[SKILLS] = {}
    server.add_request_handler("skills/list", types.PaginatedRequestParams, handle(list_skills))
    server.add_request_handler("skills/get", GetSkillParams, handle(get_skill))
    if gateway.config.gateway.task_seconds:
        server.extensions[TASKS] = {}
        server.add_request_handler("tasks/get", TaskParams, handle(gateway.get_task))
        server.add_request_handler("tasks/update", TaskUpdateParams, handle(gateway.update_task))
        server.add_request_handler(CANCEL_TASK, TaskParams, handle(gateway.cancel_task))
    server.middleware[:] = [OptionalSpans(spans) for spans in server.middleware]
    server.middleware += [_read_json_text, ImmediateAnswers(server, call_tool)]
    return server


async def _read_json_text(ctx: Context, call_next: CallNext) -> HandlerResult:
    """Read a call's arguments if they are JSON text, as sessions do; the SDK would refuse them."""
    params = ctx.params or {}
    if ctx.method == "tools/call" and isinstance(params.get("arguments"), str):
        given = to_object(params["arguments"])
        if given:
            ctx = replace(ctx, params={**params, "arguments": given})
    return await call_next(ctx)


class _Server(Server[Any]):
    """Declares over every transport that its lists may change; by default the SDK does not."""

    @property
    def server_info_stamp(self) -> dict[str, Any]:
        """The name and version in every result; the SDK makes a deep copy of more each time."""
        return {"name": self.name, "version": self.version}

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


def format_client(context: Context) -> str:
    """Return the name and version that a client gave for itself."""
    hello = context.session.client_params
    if hello is None:
        return ""
    return to_one_line(f"{hello.client_info.name} {hello.client_info.version}", CLIENT_CHARS)


async def serve_stdio(gateway: Gateway, profile: str = "") -> None:
    """Serve one client over stdin and stdout until it disconnects; a profile limits it."""

    def find_principal(config: GatewayConfig) -> Principal:
        limits = config.find_profile(profile) if profile else None
        return replace(ANONYMOUS, profile=limits, profile_name=profile)

    principal = find_principal(gateway.config.gateway)
    session = gateway.open_session("stdio", principal)
    gateway.on_access = lambda config: gateway.restrict_session(session, find_principal(config))

    async def find_session(context: Context) -> Session:
        client = format_client(context)
        gateway.events.emit(Requested(session=session.id, principal=principal, client=client))
        return session

    server = build_server(gateway, find_session)
    async with open_stdio() as (read, write):
        await serve_streams(server, read, write)
