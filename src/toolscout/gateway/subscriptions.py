"""`Subscriptions`: notifies clients of changed lists and resources.

The gateway notifies a client of the handshake era of every changed list and of the resources that
it subscribed to. A later client opens a stream and says what it wants to be notified of. Neither
learns of anything that it may not see. The pool watches each resource once at its server.
"""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import anyio
import mcp_types as types
from mcp.server.session import ServerSession
from mcp.server.subscriptions import (
    SUBSCRIPTION_ID_META_KEY,
    PromptsListChanged,
    ResourcesListChanged,
    ResourceUpdated,
    ServerEvent,
    ToolsListChanged,
)
from mcp.shared.exceptions import MCPError
from mcp.shared.subscriptions import event_matches, event_to_notification
from pydantic import ValidationError

from toolscout.catalog import Change
from toolscout.config.file import Config
from toolscout.config.gateway import GatewayMode
from toolscout.errors import CatalogUnavailable, EndpointFailed, ToolscoutError
from toolscout.gateway.forward import Context
from toolscout.gateway.resources import Resources
from toolscout.hints.writing import ANSWER_SECONDS, Answer, Batch
from toolscout.names import to_one_line
from toolscout.schemas import Json
from toolscout.servers.manifest import PROMPT, RESOURCE, TEMPLATE, TOOL
from toolscout.servers.pool import Pool
from toolscout.sessions.session import Session
from toolscout.settings import Listing
from toolscout.tools import Tool

ALL_LISTS = types.SubscriptionFilter(
    tools_list_changed=True, prompts_list_changed=True, resources_list_changed=True
)
PENDING_LIMIT = 1_000
"""With this many queued events, a changed part is announced as a change of the whole resource."""
STREAMS_LIMIT = 1_024
"""Streams that may be open at once."""
PLACES_LIMIT = 1_000
"""Resources that one client or stream may subscribe to."""
SAMPLED_TOKENS = 4_000
"""The longest answer of a client's model."""
REASON_CHARS = 200

_KINDS: Mapping[str, ServerEvent] = {
    RESOURCE: ResourcesListChanged(),
    TEMPLATE: ResourcesListChanged(),
    PROMPT: PromptsListChanged(),
}
_LISTENER = "toolscout.listener"
_CLOSED = (anyio.ClosedResourceError, anyio.BrokenResourceError)
SessionOf = Callable[[Context], Awaitable[Session]]
"""Returns the session that a request belongs to."""
_log = logging.getLogger(__name__)


class Listener:
    """The queue of events for one client. `grows`: tools that it finds are added to its list."""

    def __init__(
        self, session: Session, wanted: types.SubscriptionFilter, *, grows: bool = False
    ) -> None:
        self.session = session
        self.policy = session.policy
        self.grows = grows
        self.client: ServerSession | None = None
        """Reaches a client of the handshake era outside of its requests."""
        self.places: dict[tuple[str, str], str] = {}
        """The URI that the client uses for a resource, by server and the URI there."""
        self._wanted = wanted
        self._pending: dict[ServerEvent, None] = {}
        self._news = asyncio.Event()
        self._is_closed = False

    def filter_visible(self, tools: Sequence[Tool]) -> Sequence[Tool]:
        """Return those of some tools that the client may see."""
        return tools if self.policy.is_open else tuple(filter(self.policy.sees, tools))

    def find_asked_uri(self, server: str, own: str) -> str | None:
        """Return the URI by which the client subscribed to a resource, or to one that contains it.

        If there are several, it is the longest.
        """
        covering: list[tuple[str, str]] = []
        for place in self.places:
            whole = place[1].rstrip("/")
            is_part = own.startswith((f"{whole}/", f"{whole}#", f"{whole}?"))
            if place[0] == server and (is_part or own.rstrip("/") == whole):
                covering.append(place)
        return self.places[max(covering, key=lambda place: len(place[1]))] if covering else None

    def add(self, event: ServerEvent) -> None:
        """Queue an event if the client wants events of this type and it is not queued yet."""
        if isinstance(event, ResourceUpdated) or event_matches(self._wanted, frozenset(), event):
            self._pending[event] = None
            self._news.set()

    def add_update(self, asked: str, changed: str) -> None:
        """Queue an update of a resource that the client subscribed to, or of a part of it."""
        is_whole = asked.rstrip("/") == changed.rstrip("/") or len(self._pending) >= PENDING_LIMIT
        self.add(ResourceUpdated(uri=asked if is_whole else changed))

    async def ask_model(self, instructions: str, batch: Batch) -> Answer:
        """Let the client's model write hints (MCP sampling); raises `EndpointFailed`."""
        assert self.client is not None, "see `Subscriptions.find_sampler`"
        hello = self.client.client_params
        name = hello.client_info.name if hello else ""
        content = types.TextContent(type="text", text=batch.definitions)
        params = types.CreateMessageRequestParams(
            messages=[types.SamplingMessage(role="user", content=content)],
            system_prompt=instructions,
            max_tokens=SAMPLED_TOKENS,
        )
        request = types.CreateMessageRequest(params=params)
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                result = await self.client.send_request(request, types.CreateMessageResult)
        except (MCPError, TimeoutError, ValidationError, *_CLOSED) as error:
            reason = to_one_line(str(error), REASON_CHARS) or type(error).__name__
            remedy = "Allow sampling in the client, or use another one."
            raise EndpointFailed(f"of {name}", reason, remedy=remedy) from None
        text = result.content.text if isinstance(result.content, types.TextContent) else ""
        return Answer(text, result.model)

    def close(self) -> None:
        """Let `wait_next` return the queued events, and then None."""
        self._is_closed = True
        self._news.set()

    async def wait_next(self) -> ServerEvent | None:
        """Return the next event, or None once the listener is closed and the queue empty."""
        while not self._pending and not self._is_closed:
            self._news.clear()
            await self._news.wait()
        event = next(iter(self._pending), None)
        if event is not None:
            del self._pending[event]
        return event


class Subscriptions:
    """All listeners of one gateway."""

    def __init__(self, config: Config, pool: Pool, resources: Resources) -> None:
        self.config = config
        self._pool = pool
        self._resources = resources
        self.listeners: set[Listener] = set()
        self._streams = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self._unsubscribe: Callable[[], None] | None = None
        self._is_closed = False

    def open(self) -> None:
        """Start to notify clients of changes; call it in the event loop."""
        loop = asyncio.get_running_loop()
        self._pool.watched.on_update = self._on_update

        def on_change(change: Change) -> None:
            loop.call_soon_threadsafe(tell, change)

        def tell_later(change: Change) -> None:
            self._spawn(self._tell_in_thread(change))

        tell = self._on_change if self._pool.catalog.is_local else tell_later

        self._unsubscribe = self._pool.catalog.subscribe(on_change)

    async def close(self) -> None:
        """End all streams in good order."""
        self._is_closed = True
        if self._unsubscribe is not None:
            self._unsubscribe()
            self._unsubscribe = None
        for listener in list(self.listeners):
            listener.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def restrict(self, session: Session) -> None:
        """Let the streams of a session tell only what it may see now."""
        for listener in self.listeners:
            if listener.session is session:
                listener.policy = session.policy

    def follow(self, config: Config) -> None:
        """Tell all clients that their tools changed if another configuration lists others."""
        before = self.config
        self.config = config
        options = ("mode", "split_calls")
        is_same = all(getattr(before.gateway, o) == getattr(config.gateway, o) for o in options)
        if not is_same or before.sessions != config.sessions:
            for listener in self.listeners:
                listener.add(ToolsListChanged())

    def end(self, session: Session) -> None:
        """End the streams of a session, and let no server watch resources for it."""
        for listener in [one for one in self.listeners if one.session is session]:
            self._leave(listener)

    # Clients of the handshake era.

    def find_listener(self, context: Context, session: Session, *, grows: bool = False) -> Listener:
        """Return the listener of a client's connection, which is closed with the connection."""
        # The SDK keeps the state of a connection there, but offers handlers no public access.
        connection = context.session._connection  # pyright: ignore[reportPrivateUsage]
        listener = connection.state.get(_LISTENER)
        if listener is None:
            listener = Listener(session, ALL_LISTS, grows=grows)
            listener.client = context.session
            self.listeners.add(listener)
            connection.state[_LISTENER] = listener
            connection.exit_stack.callback(self._leave, listener)
            self._spawn(_deliver(listener, context.session))
        return listener

    def find_sampler(self) -> Listener | None:
        """Return a client whose model can be asked without a request of its own, if there is one.

        Clients of 2026-07-28 cannot: that version deprecates it, and allows it during calls only.
        """
        for listener in self.listeners:
            declared = listener.client.client_capabilities if listener.client else None
            if declared is not None and declared.sampling is not None:
                return listener
        return None

    async def subscribe(
        self, session: Session, context: Context, params: types.SubscribeRequestParams
    ) -> Json:
        """Subscribe a client to a resource; raise `MCPError` if that is not possible."""
        reasons = await self._add(self.find_listener(context, session), [params.uri])
        if reasons:
            raise MCPError(code=types.INVALID_PARAMS, message=reasons[params.uri])
        return {}

    async def unsubscribe(
        self, session: Session, context: Context, params: types.UnsubscribeRequestParams
    ) -> Json:
        """Unsubscribe a client from a resource; does nothing if it was not subscribed."""
        listener = self.find_listener(context, session)
        for place in [place for place, asked in listener.places.items() if asked == params.uri]:
            del listener.places[place]
            await self._settle(place[0])
        return {}

    # Later clients.

    async def listen(
        self,
        session_of: SessionOf,
        context: Context,
        params: types.SubscriptionsListenRequestParams,
    ) -> types.SubscriptionsListenResult:
        """Serve one stream until the client leaves it or the gateway stops."""
        session = await session_of(context)
        asked = params.notifications
        if self._streams >= STREAMS_LIMIT:
            text = f"{STREAMS_LIMIT:,} streams are open already. Try again later."
            raise MCPError(code=types.INTERNAL_ERROR, message=text)
        meta: dict[str, Any] = {SUBSCRIPTION_ID_META_KEY: context.request_id}
        listener = Listener(session, asked)
        self.listeners.add(listener)
        if self._is_closed:  # the request came just before the gateway was asked to end
            listener.close()
        self._streams += 1

        async def send(note: types.ServerNotification) -> None:
            await context.session.send_notification(note, related_request_id=context.request_id)

        try:
            uris = list(dict.fromkeys(asked.resource_subscriptions or ()))
            reasons = await self._add(listener, uris)
            honored = types.SubscriptionFilter(
                tools_list_changed=asked.tools_list_changed or None,
                prompts_list_changed=asked.prompts_list_changed or None,
                resources_list_changed=asked.resources_list_changed or None,
                resource_subscriptions=[uri for uri in uris if uri not in reasons] or None,
            )
            agreed = types.SubscriptionsAcknowledgedNotificationParams(
                notifications=honored, _meta=meta
            )
            await send(types.SubscriptionsAcknowledgedNotification(params=agreed))
            while (event := await listener.wait_next()) is not None:
                await send(event_to_notification(event, meta))
        finally:
            self._streams -= 1
            self._leave(listener)
        return types.SubscriptionsListenResult(_meta=meta)

    # The resources to watch at the servers.

    async def _add(self, listener: Listener, uris: Iterable[str]) -> dict[str, str]:
        """Subscribe a listener to resources; return the reasons for those that were refused."""
        reasons: dict[str, str] = {}
        owned: defaultdict[str, dict[str, str]] = defaultdict(dict)
        for uri in uris:
            try:
                find = partial(self._resources.find_owner, listener.session, uri)
                server, own = await listener.session.run_locked(find)
            except MCPError as error:
                reasons[uri] = error.error.message
            else:
                owned[server][own] = uri
        refused = await asyncio.gather(*(self._watch(listener, *item) for item in owned.items()))
        return reasons | {uri: reason for part in refused for uri, reason in part.items()}

    async def _watch(
        self, listener: Listener, server: str, owned: Mapping[str, str]
    ) -> dict[str, str]:
        places = {(server, own): uri for own, uri in owned.items()}
        if len(listener.places | places) > PLACES_LIMIT:
            text = f"No more than {PLACES_LIMIT:,} resources at once. Unsubscribe from some."
            return dict.fromkeys(owned.values(), text)
        new = places.keys() - listener.places.keys()
        listener.places |= places
        reason = f"Server {server!r} does not tell when this changes. Read it again instead."
        try:
            agreed = await self._pool.watch(server, self._list_wanted(server))
        except ToolscoutError as error:
            agreed = self._pool.watched.get_agreed(server)
            reason = str(error)
        refused = {place for place in places if place[1] not in agreed}
        for place in refused & new:
            del listener.places[place]
        if refused & new:
            self._spawn(self._settle(server))
        return {places[place]: reason for place in refused}

    async def _settle(self, server: str) -> None:
        """Let a server watch only the resources that a listener still wants."""
        try:
            await self._pool.watch(server, self._list_wanted(server))
        except (ToolscoutError, MCPError) as error:
            _log.debug("Could not update the resources that %s watches: %s", server, error)

    def _list_wanted(self, server: str) -> set[str]:
        places = (place for listener in self.listeners for place in listener.places)
        return {own for owner, own in places if owner == server}

    def _leave(self, listener: Listener) -> None:
        listener.close()
        self.listeners.discard(listener)
        if not self._is_closed:
            for server in {server for server, _ in listener.places}:
                self._spawn(self._settle(server))

    # Events for the listeners.

    def _on_update(self, server: str, own: str) -> None:
        for listener in self.listeners:
            asked = listener.find_asked_uri(server, own)
            if asked is None:
                continue
            if not self._pool.catalog.is_local:
                self._spawn(self._tell_update_in_thread(listener, asked, server, own))
            elif self._resources.sees(listener.session, server, own):
                listener.add_update(asked, self._resources.to_gateway_uri(server, own))

    async def _tell_update_in_thread(
        self, listener: Listener, asked: str, server: str, own: str
    ) -> None:
        """Tell a client of an update if it sees the resource, which may have to be read first."""
        sees = partial(self._resources.sees, listener.session, server, own)
        with suppress(CatalogUnavailable):
            if await asyncio.to_thread(sees):
                listener.add_update(asked, self._resources.to_gateway_uri(server, own))

    def _on_change(self, change: Change) -> None:
        for listener in self.listeners:
            for event in self._list_events(listener, change):
                listener.add(event)

    async def _tell_in_thread(self, change: Change) -> None:
        """Tell all clients of a change of a catalogue whose tools may have to be read first."""
        for listener in list(self.listeners):
            try:
                events = await asyncio.to_thread(self._list_events, listener, change)
            except CatalogUnavailable:
                events = {ToolsListChanged()}  # whatever it is, the client can ask later
            for event in events:
                listener.add(event)

    def _list_events(self, listener: Listener, change: Change) -> set[ServerEvent]:
        """Return what a client has to hear of a change."""
        added = listener.filter_visible(change.added)
        removed = listener.filter_visible(change.removed)
        events = {_KINDS[tool.kind] for tool in (*added, *removed) if tool.kind in _KINDS}
        if self._can_change_tools(listener, added, removed):
            events.add(ToolsListChanged())
        return events

    def _can_change_tools(
        self, listener: Listener, added: Sequence[Tool], removed: Sequence[Tool]
    ) -> bool:
        """Tell whether a change of the tools that a client sees changes its `tools/list` too."""
        mode = self.config.gateway.mode
        is_direct = mode is GatewayMode.DIRECT
        if mode is GatewayMode.AUTO:
            after = len(listener.session.list_visible())
            before = after - len(added) + len(removed)
            is_direct = after <= self.config.sessions.auto_tools
            if is_direct != (before <= self.config.sessions.auto_tools):
                return True
        changed = [tool for tool in (*added, *removed) if tool.kind == TOOL]
        if not changed or is_direct or any(tool.always_load for tool in changed):
            return bool(changed)
        if self.config.sessions.listing is not Listing.OFF:
            old, new = (
                {(t.name, t.description, t.hint, t.instructions) for t in tools if t.kind == TOOL}
                for tools in (removed, added)
            )
            if old != new:
                return True
        listed = {*listener.session.pinned, *(listener.session.loaded if listener.grows else ())}
        return any(tool.name in listed for tool in changed)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


async def _deliver(listener: Listener, session: ServerSession) -> None:
    """Send a handshake-era client the events of its listener."""
    try:
        while (event := await listener.wait_next()) is not None:
            await session.send_notification(event_to_notification(event, {}))
    except _CLOSED:
        listener.close()
