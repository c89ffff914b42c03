"""`Gateway`: all servers, one catalogue, and what each client may do with it.

Owns catalogue, index, scout and pool, and answers the requests of clients in their own terms. The
wire is `server`'s; which server runs and when is the pool's.

Why a tool is not known: its server is not there to tell of it.

A model that calls `server__tool` should learn that the server failed, is starting or waits for a
login, and what to do about it. A caller who may not see a server learns nothing of it (R77).
"""

import asyncio
import contextlib
import json
import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import mcp_types as types
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS

from toolscout.catalog import Catalog, Change
from toolscout.config.file import Config
from toolscout.config.gateway import GatewayMode, Profile
from toolscout.dialects import Dialect, to_definition
from toolscout.errors import ModelError, ServerUnavailable, UnknownTool
from toolscout.gateway.events import LogLine, ServerChanged, emit_changes
from toolscout.gateway.forward import Context, ForwardedCall
from toolscout.gateway.ledger import Ledger
from toolscout.gateway.pending import PendingCalls
from toolscout.gateway.resources import Resources
from toolscout.gateway.subscriptions import Subscriptions
from toolscout.names import make_exposed_name
from toolscout.policies import Policy
from toolscout.schemas import Json
from toolscout.scout import Scout
from toolscout.servers.manifest import TOOL
from toolscout.servers.pool import Pool
from toolscout.servers.state import Phase, ServerState
from toolscout.sessions.events import EventStream
from toolscout.sessions.metatools import (
    CALL,
    build_meta_tools,
    read_call_request,
    to_meta_name,
)
from toolscout.sessions.replies import Reply, refuse
from toolscout.sessions.session import Session
from toolscout.stores.store import Store
from toolscout.tokens import count_tokens
from toolscout.tools import Effect, Tool

OTHER_SPELLING = "mcp__"
SEPARATORS = ("__", ".", "/", ":")

_LATER = "Try again later, or use another tool."
_STATES: Mapping[Phase, tuple[str, str]] = {
    Phase.CONFIGURED: ("starting", "Its tools are not known yet; try again shortly."),
    Phase.STARTING: ("starting", "Its tools are not known yet; try again shortly."),
    Phase.FAILED: ("failed", _LATER),
    Phase.NEEDS_LOGIN: (
        "waiting for a login",
        "Ask the user to run `toolscout servers login {}`, then try again.",
    ),
    Phase.STOPPED: ("stopped", "Ask the user to start it, or use another tool."),
}


def explain_absence(
    members: Mapping[str, ServerState], session: Session, name: object
) -> ServerUnavailable | None:
    """Return why a name that means no tool may still have one, or nothing."""
    server = _find_server(str(name).strip(), members)
    if server is None or not _is_known_to(session, server):
        return None
    member = members[server]
    # One that rests is as it should be, and what it offers is known.
    if member.phase not in _STATES or (member.phase is Phase.STOPPED and not member.is_held):
        return None
    state, remedy = _STATES[member.phase]
    return ServerUnavailable(server, state, member.reason, remedy=remedy.format(server))


def _find_server(text: str, servers: Iterable[str]) -> str | None:
    """Return the server that a name begins with, the longest if there are several."""
    text = text.casefold().removeprefix(OTHER_SPELLING)
    found = [server for server in servers if text.startswith(tuple(_list_prefixes(server)))]
    return max(found, key=len, default=None)


def _list_prefixes(server: str) -> Iterable[str]:
    for head in {server, make_exposed_name(server, "x").removesuffix("__x")}:
        yield from (f"{head.casefold()}{separator}" for separator in SEPARATORS)


def _is_known_to(session: Session, server: str) -> bool:
    tools = (Tool.define("x", server=server, effect=effect) for effect in Effect)
    return any(map(session.policy.sees, tools))


_log = logging.getLogger(__name__)

SPLIT = {
    "tool_read": frozenset({Effect.READ}),
    "tool_write": frozenset({Effect.WRITE, Effect.UNKNOWN}),
    "tool_destroy": frozenset({Effect.DESTRUCTIVE}),
}
"""The variants of `tool_call`, and the effects that each may have."""
_SPLIT_TEXTS = {
    "tool_read": "Run a found tool that only reads.",
    "tool_write": "Run a found tool that changes something, or may.",
    "tool_destroy": "Run a found tool that deletes or overwrites for good.",
}


class Gateway:
    """One gateway. Use it as an asynchronous context manager.

    `tokens` is the folder with the OAuth tokens of servers; without it, those want a login.
    """

    def __init__(
        self,
        config: Config,
        store: Store,
        *,
        policy: Policy | None = None,
        tokens: Path | None = None,
    ) -> None:
        self.config = config
        self.store = store
        self.tokens = tokens
        self.events = EventStream(_run_afterwards)
        self.ledger = Ledger(store)
        self.events.subscribe(self.ledger.on_event)
        self.catalog = Catalog()
        emit_changes(self.catalog, self.events)
        self.pool = Pool(
            config.servers, self.catalog, store, queue=config.gateway.queue, tokens=tokens
        )
        self.pool.on_phase = self._on_phase
        self.pool.on_line = self._on_line
        self.resources = Resources(self.pool)
        self.pending_calls = PendingCalls()
        self.subscriptions = Subscriptions(
            self.events, self.pool, self.resources, self.can_change_tools
        )
        settings = replace(
            config.sessions,
            calls_by_name=True,
            shared=True,
            result_tokens=config.gateway.max_result_tokens,
        )
        self.scout = Scout(
            self.catalog,
            settings=settings,
            policy=policy,
            store=store,
            events=self.events,
            defer=_run_afterwards,
        )

    async def __aenter__(self) -> "Gateway":
        # Servers that start would take the time that the first search needs.
        self.pool.may_learn.clear()
        await self.pool.__aenter__()
        self.subscriptions.open()
        self._warming = asyncio.create_task(self._warm())
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.subscriptions.close()
        await self.pending_calls.close()
        await self._warming
        await self.pool.__aexit__(*error)

    async def _warm(self) -> None:
        try:
            await asyncio.to_thread(self._load)
        finally:
            self.pool.may_learn.set()

    def _load(self) -> None:
        """Load what the first search would have to wait for."""
        count_tokens("")
        if self.scout.index.encoder is not None:
            self.scout.index.encoder.encode(["warm"], kind="question")

    def open_session(self, client: str, profile: Profile | None = None) -> Session:
        """Return the session of a client, which sees what its profile admits."""
        allowed = filter_for(profile) if profile is not None else None
        return self.scout.session(client, allowed=allowed)

    def _on_phase(self, server: ServerState) -> None:
        self.events.emit(
            ServerChanged(server=server.name, phase=server.phase, reason=server.reason)
        )

    def _on_line(self, server: str, line: str) -> None:
        self.events.emit(LogLine(server=server, line=line))

    def has_growing_list(self, context: Context) -> bool:
        """Tell whether a client's list of tools grows by what it finds.

        2026-07-28 forbids a list that varies as a side effect, so only older clients have it.
        """
        is_older = context.protocol_version in HANDSHAKE_PROTOCOL_VERSIONS
        return is_older and self.config.gateway.mode is GatewayMode.DYNAMIC

    def list_tools(self, session: Session, *, grows: bool = False) -> list[Json]:
        """Return what `tools/list` tells a client, in an order that never changes by itself.

        With `grows`, what the session has found stands at the end.
        """
        if self._is_direct(session):
            shown = [tool for tool in session.list_visible() if tool.kind == "tool"]
            return [to_definition(tool, Dialect.MCP) for tool in shown]
        meta = [to_definition(tool, Dialect.MCP) for tool in build_meta_tools()]
        if self.config.gateway.split_calls:
            meta = [*meta[:2], *(_build_variant(meta[2], name) for name in SPLIT)]
        names = (*session.pinned, *(session.loaded if grows else ()))
        shown = [tool for name in names if (tool := self.catalog.get(name)) is not None]
        tools = [tool for tool in shown if tool.kind == "tool"]
        return [*meta, *(to_definition(tool, Dialect.MCP) for tool in tools)]

    def can_change_tools(self, session: Session, change: Change, grows: bool) -> bool:
        """Tell whether a change of what a session sees is one of what `tools` returns."""
        changed = [t for t in (*change.added, *change.removed) if t.kind == TOOL]
        is_direct = self._is_direct(session)
        if self.config.gateway.mode is GatewayMode.AUTO:
            before = len(session.list_visible()) - len(change.added) + len(change.removed)
            if (before <= self.config.sessions.auto_tools) != is_direct:
                return True
        if not changed or is_direct or any(tool.always_load for tool in changed):
            return bool(changed)
        listed = {*session.pinned, *(session.loaded if grows else ())}
        return any(tool.name in listed for tool in changed)

    async def call(
        self, session: Session, context: Context, params: types.CallToolRequestParams
    ) -> Json:
        """Answer `tools/call`: a meta-tool, or any permitted tool by its own name."""
        name, arguments = params.name, params.arguments
        if name in SPLIT and self.config.gateway.split_calls:
            wrong = self._refuse_variant(session, name, arguments)
            if wrong is not None:
                return wrong
            name = CALL
        forwarded = self.forward(session, context, params)
        reply = await session.handle(name, arguments, executor=forwarded)
        if reply.references and self.has_growing_list(context):
            await context.session.send_tool_list_changed()
        if reply.code == UnknownTool.code:
            reply = self._explain_unknown(session, _read_called_name(name, arguments), reply)
        return forwarded.build_result(reply)

    def forward(
        self, session: Session, context: Context, params: types.InputResponseRequestParams
    ) -> ForwardedCall:
        """Return the way of one request to its server and back."""
        return ForwardedCall(
            self.pool,
            context,
            params,
            session=session.id,
            pending_calls=self.pending_calls,
            seconds=self.config.gateway.answer_seconds,
        )

    def _is_direct(self, session: Session) -> bool:
        mode = self.config.gateway.mode
        if mode is GatewayMode.AUTO:
            return len(session.list_visible()) <= self.config.sessions.auto_tools
        return mode is GatewayMode.DIRECT

    def _explain_unknown(self, session: Session, target: object, reply: Reply) -> Reply:
        """Return a reply that says if a tool is unknown because its server is not there."""
        error = explain_absence(self.pool.servers, session, target)
        if error is None:
            return reply
        return refuse(error, code=error.code, budget=session.settings.describe_tokens)

    def _refuse_variant(self, session: Session, name: str, arguments: Any) -> Json | None:
        """Return a refusal that names the right variant, where this one is wrong."""
        called = _read_called_name(CALL, arguments)
        effect = session.effect_of(CALL, arguments)
        if called is None or effect in SPLIT[name]:
            return None
        right = next(variant for variant, effects in SPLIT.items() if effect in effects)
        target = json.dumps(called)
        text = f"Not called: {target} has the effect {effect.value!r}. Call it with {right}."
        return {
            "content": [{"type": "text", "text": text}],
            "isError": True,
            "_meta": {"toolscout/code": "wrong_variant"},
        }


def _run_afterwards(work: Callable[[], None]) -> None:
    """Run work after an answer over HTTP is sent, which takes the event loop two turns at most.

    In a thread without a loop no client waits, so the work runs at once.
    """
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:
        work()
    else:
        loop.call_soon(loop.call_soon, work)


def _read_called_name(name: str, arguments: object) -> object:
    """Return the name of the tool that a request calls, or nothing if `tool_call` has none."""
    if to_meta_name(name) != CALL:
        return name
    with contextlib.suppress(ModelError):
        return read_call_request(arguments)[0]
    return None


def _build_variant(definition: Json, name: str) -> Json:
    annotations = {
        "readOnlyHint": name == "tool_read",
        "destructiveHint": name == "tool_destroy",
    }
    text = f"{_SPLIT_TEXTS[name]} {definition['description']}"
    return {**definition, "name": name, "description": text, "annotations": annotations}


def filter_for(profile: Profile) -> Callable[[Tool], bool]:
    """Return which tools a profile admits, as a policy's predicate."""
    return lambda tool: profile.admits(tool.server, tool.name, tool.effect)
