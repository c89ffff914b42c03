"""`Gateway`: all servers, one catalogue, and what each client may do with it.

Owns catalogue, index, scout and pool, and answers the requests of clients in their own terms. The
wire is `server`'s; which server runs and when is the pool's.
"""

import asyncio
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import mcp_types as types
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS

from toolscout.catalog import Catalog
from toolscout.dialects import Dialect, to_definition
from toolscout.events import Event
from toolscout.gateway.materials import Materials
from toolscout.gateway.passages import Context, Passage, told
from toolscout.gateway.suspensions import Suspensions
from toolscout.metatools import CALL, meta_name, meta_tools
from toolscout.policies import Policy
from toolscout.requests import to_object
from toolscout.schemas import Json
from toolscout.scout import Scout
from toolscout.sessions import Session, Store
from toolscout.tokens import count_tokens
from toolscout.tools import Effect, Tool
from toolscout.upstream.config import Config
from toolscout.upstream.gateways import GatewayMode, Profile
from toolscout.upstream.pool import Pool

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
        on_event: Callable[[Event], None] | None = None,
        policy: Policy | None = None,
        tokens: Path | None = None,
    ) -> None:
        self.config = config
        self.catalog = Catalog()
        self.pool = Pool(
            config.servers, self.catalog, store, queue=config.gateway.queue, tokens=tokens
        )
        self.materials = Materials(self.pool)
        self.suspensions = Suspensions()
        settings = replace(
            config.sessions,
            calls_by_name=True,
            shared=True,
            result_tokens=config.gateway.max_result_tokens,
        )
        self.scout = Scout(
            self.catalog, settings=settings, policy=policy, store=store, on_event=on_event
        )

    async def __aenter__(self) -> "Gateway":
        # Servers that start would take the time that the first search needs.
        self.pool.may_learn.clear()
        await self.pool.__aenter__()
        self._warming = asyncio.create_task(self._warm())
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.suspensions.close()
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
            self.scout.index.encoder.encode(["warm"])

    def session(self, client: str, profile: Profile | None = None) -> Session:
        """Return the session of a client, which sees what its profile admits."""
        allowed = visible_to(profile) if profile is not None else None
        return self.scout.session(client, allowed=allowed)

    def grows_for(self, context: Context) -> bool:
        """Tell whether a client's list of tools grows by what it finds.

        2026-07-28 forbids a list that varies as a side effect, so only older clients have it.
        """
        is_older = context.protocol_version in HANDSHAKE_PROTOCOL_VERSIONS
        return is_older and self.config.gateway.mode is GatewayMode.DYNAMIC

    def tools(self, session: Session, *, grows: bool = False) -> list[Json]:
        """Return what `tools/list` tells a client, in an order that never changes by itself.

        With `grows`, what the session has found stands at the end.
        """
        if self._is_direct(session):
            shown = [tool for tool in session.visible() if tool.kind == "tool"]
            return [to_definition(tool, Dialect.MCP) for tool in shown]
        meta = [to_definition(tool, Dialect.MCP) for tool in meta_tools()]
        if self.config.gateway.split_calls:
            meta = [*meta[:2], *(_variant(meta[2], name) for name in SPLIT)]
        names = (*session.pinned, *(session.loaded if grows else ()))
        shown = [tool for name in names if (tool := self.catalog.get(name)) is not None]
        tools = [tool for tool in shown if tool.kind == "tool"]
        return [*meta, *(to_definition(tool, Dialect.MCP) for tool in tools)]

    async def call(
        self, session: Session, context: Context, params: types.CallToolRequestParams
    ) -> Json:
        """Answer `tools/call`: a meta-tool, or any permitted tool by its own name."""
        name, arguments = params.name, params.arguments
        passage = Passage(
            self.pool, context, params, session=session.id, suspensions=self.suspensions
        )
        variant = SPLIT.get(name) if self.config.gateway.split_calls else None
        if variant is not None:
            wrong = self._wrong_variant(session, name, arguments)
            if wrong:
                return wrong
        if variant is not None or meta_name(name) == CALL:
            members = to_object(arguments)
            target, inner = members.get("name"), members.get("arguments")
        elif meta_name(name) and self.catalog.get(name) is None:
            reply = await session.handle(name, arguments)
            if reply.references and self.grows_for(context):
                await context.session.send_tool_list_changed()
            return told(reply)
        else:
            target, inner = name, arguments
        reply = await self.scout.call(session, target, inner, executor=passage)
        return passage.result(reply)

    def _is_direct(self, session: Session) -> bool:
        mode = self.config.gateway.mode
        if mode is GatewayMode.AUTO:
            return len(session.visible()) <= self.config.sessions.auto_tools
        return mode is GatewayMode.DIRECT

    def _wrong_variant(self, session: Session, name: str, arguments: Any) -> Json | None:
        """Return a refusal that names the right variant, where this one is wrong."""
        effect = self.scout.effect_of(session, CALL, arguments)
        if effect in SPLIT[name]:
            return None
        right = next(variant for variant, effects in SPLIT.items() if effect in effects)
        target = json.dumps(to_object(arguments).get("name"))
        text = f"Not called: {target} has the effect {effect.value!r}. Call it with {right}."
        return {
            "content": [{"type": "text", "text": text}],
            "isError": True,
            "_meta": {"toolscout/code": "wrong_variant"},
        }


def _variant(definition: Json, name: str) -> Json:
    annotations = {
        "readOnlyHint": name == "tool_read",
        "destructiveHint": name == "tool_destroy",
    }
    text = f"{_SPLIT_TEXTS[name]} {definition['description']}"
    return {**definition, "name": name, "description": text, "annotations": annotations}


def visible_to(profile: Profile) -> Callable[[Tool], bool]:
    """Return which tools a profile admits, as a policy's predicate."""
    return lambda tool: profile.admits(tool.server, tool.name, tool.effect)
