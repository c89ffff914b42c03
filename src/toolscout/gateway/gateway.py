"""`Gateway`: many servers behind one catalogue, and the tools that each client may list and call.

It owns the catalogue, the scout and the pool. The wire protocol is left to `server`; the pool
decides which server runs and when.

A model that calls a tool of a server that failed, is starting or waits for a login learns so, and
what to do about it. A caller who may not see a server learns nothing about it (R77).
"""

import asyncio
import contextlib
import json
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
"""Some clients put this before the names of tools."""
SEPARATORS = ("__", ".", "/", ":")
"""What models write between the names of a server and a tool."""
SPLIT = {
    "tool_read": frozenset({Effect.READ}),
    "tool_write": frozenset({Effect.WRITE, Effect.UNKNOWN}),
    "tool_destroy": frozenset({Effect.DESTRUCTIVE}),
}
"""The variants of `tool_call`, and the effects that each admits."""
_SPLIT_TEXTS = {
    "tool_read": "Run a found tool that only reads.",
    "tool_write": "Run a found tool that changes something, or may.",
    "tool_destroy": "Run a found tool that deletes or overwrites for good.",
}

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
    """Return why a tool is unknown: its server is not available. None if it is."""
    server = _find_server(str(name).strip(), members)
    if server is None:
        return None
    possible_tools = (Tool.define("x", server=server, effect=effect) for effect in Effect)
    if not any(map(session.policy.sees, possible_tools)):
        return None
    member = members[server]
    # A server that stopped because it was idle is fine, and its tools are known.
    if member.phase not in _STATES or (member.phase is Phase.STOPPED and not member.is_held):
        return None
    state, remedy = _STATES[member.phase]
    return ServerUnavailable(server, state, member.reason, remedy=remedy.format(server))


def _find_server(text: str, servers: Iterable[str]) -> str | None:
    """Return the server that a name begins with; the longest if there are several."""
    text = text.casefold().removeprefix(OTHER_SPELLING)
    found = [server for server in servers if text.startswith(tuple(_list_prefixes(server)))]
    return max(found, key=len, default=None)


def _list_prefixes(server: str) -> Iterable[str]:
    for head in {server, make_exposed_name(server, "x").removesuffix("__x")}:
        yield from (f"{head.casefold()}{separator}" for separator in SEPARATORS)


class Gateway:
    """One gateway. Use it as an asynchronous context manager.

    `tokens` is the folder with the OAuth tokens of servers; without it, such servers need a login.
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
        # Servers that start now would slow down the first search.
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
        """Load the tokenizer and the encoder, so that the first search need not wait for them."""
        count_tokens("")
        if self.scout.index.encoder is not None:
            self.scout.index.encoder.encode(["warm"], kind="question")

    def open_session(self, client: str, profile: Profile | None = None) -> Session:
        """Return the session of a client, which sees the tools that its profile admits."""
        allowed = filter_for(profile) if profile is not None else None
        return self.scout.session(client, allowed=allowed)

    def _on_phase(self, server: ServerState) -> None:
        self.events.emit(
            ServerChanged(server=server.name, phase=server.phase, reason=server.reason)
        )

    def _on_line(self, server: str, line: str) -> None:
        self.events.emit(LogLine(server=server, line=line))

    def has_growing_list(self, context: Context) -> bool:
        """Tell whether the tools that a client finds are added to its list of tools.

        MCP 2026-07-28 forbids lists that change as a side effect, so only older clients have one.
        """
        is_older = context.protocol_version in HANDSHAKE_PROTOCOL_VERSIONS
        return is_older and self.config.gateway.mode is GatewayMode.DYNAMIC

    def list_tools(self, session: Session, *, grows: bool = False) -> list[Json]:
        """Return the definitions for `tools/list`, in a stable order.

        With `grows`, the tools that the session has found follow at the end.
        """
        if self._is_direct(session):
            visible = [tool for tool in session.list_visible() if tool.kind == "tool"]
            return [to_definition(tool, Dialect.MCP) for tool in visible]
        meta = [to_definition(tool, Dialect.MCP) for tool in build_meta_tools()]
        if self.config.gateway.split_calls:
            meta = [*meta[:2], *(_build_variant(meta[2], name) for name in SPLIT)]
        names = (*session.pinned, *(session.loaded if grows else ()))
        known = [tool for name in names if (tool := self.catalog.get(name)) is not None]
        tools = [tool for tool in known if tool.kind == "tool"]
        return [*meta, *(to_definition(tool, Dialect.MCP) for tool in tools)]

    def can_change_tools(self, session: Session, change: Change, grows: bool) -> bool:
        """Tell whether a change of the tools that a session sees changes `list_tools` too."""
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
        name = params.name
        arguments = params.arguments
        if name in SPLIT and self.config.gateway.split_calls:
            refusal = self._refuse_variant(session, name, arguments)
            if refusal is not None:
                return refusal
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
        """Return the executor of one request at its server."""
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
        """Replace the reply if the tool is unknown because its server is not available."""
        error = explain_absence(self.pool.servers, session, target)
        if error is None:
            return reply
        return refuse(error, code=error.code, budget=session.settings.describe_tokens)

    def _refuse_variant(self, session: Session, name: str, arguments: Any) -> Json | None:
        """Return a refusal that names the right variant, or None if this one is right."""
        called = _read_called_name(CALL, arguments)
        effect = session.find_effect(CALL, arguments)
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
    """Run work once an answer over HTTP is sent, which takes the event loop two turns at most.

    In a thread without an event loop no client is waiting, so the work runs at once.
    """
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:
        work()
    else:
        loop.call_soon(loop.call_soon, work)


def _read_called_name(name: str, arguments: object) -> object:
    """Return the name of the tool that a request calls; None if `tool_call` names none."""
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
    """Return a predicate for the tools that a profile admits."""
    return lambda tool: profile.admits(tool.server, tool.name, tool.effect)
