"""`Pool`: the life of all servers behind the gateway.

Starts a server when a call needs it, once however many ask; stops idle ones, and keeps one that
is broken from being tried again and again. What servers offer is put into the catalogue by
`intake`. The pool knows no sessions and writes no reply.

`Connector`: makes the right kind of connection for a server, and owns what they share.
"""

import asyncio
import contextlib
import logging
import random
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Set
from functools import partial
from pathlib import Path
from typing import Any

from mcp.shared.exceptions import MCPError

from toolscout.catalog import Catalog
from toolscout.config.servers import ServerConfig, Transport
from toolscout.errors import CallTimedOut, ServerBusy, ServerUnavailable, ToolscoutError
from toolscout.schemas import Json
from toolscout.servers.connection import Connection, ConnectionFactory, Delays, Relay, unavailable
from toolscout.servers.mcp import Client
from toolscout.servers.oauth.login import make_auth
from toolscout.servers.oauth.tokens import TokenFile
from toolscout.servers.openapi.executor import OpenApiConnection
from toolscout.servers.process import ProcessReaper
from toolscout.servers.server import CallSlot, CatalogUpdater, Phase, ServerState
from toolscout.servers.updates import WatchedResources
from toolscout.sessions.session import Store


class Connector:
    """Makes connections; `close` it once they are closed.

    `tokens` is the folder with the tokens of servers that want OAuth.
    """

    def __init__(self, delays: Delays, tokens: Path | None = None) -> None:
        self._delays, self._tokens = delays, tokens
        self._warden = ProcessReaper()

    def __call__(
        self,
        config: ServerConfig,
        *,
        on_change: Callable[[], None],
        on_line: Callable[[str], None],
    ) -> Connection:
        """Return a connection to a server whose references are resolved."""
        if config.transport is Transport.OPENAPI:
            return OpenApiConnection(config)
        return Client(
            config,
            on_change=on_change,
            on_line=on_line,
            warden=self._warden,
            delays=self._delays,
            auth=make_auth(config, self._tokens) if self._tokens is not None else None,
        )

    def token_file(self, config: ServerConfig) -> TokenFile | None:
        """Return where a login at a server leaves its tokens."""
        return TokenFile(self._tokens, config) if self._tokens is not None else None

    def close(self) -> None:
        """Stop watching over processes."""
        self._warden.close()


__all__ = ["Phase", "Pool", "ServerState"]

STARTED_TOGETHER = 8
FAILURES_ALLOWED = 3
"""From so many failures on, calls are refused until the delay is over."""
TRIES = 2
RESTING_LIMIT = 256
"""Calls that may wait for an answer of their client beside those that wait for the server."""
STARTING_KEYS = (
    *("transport", "command", "args", "env", "cwd", "url", "headers", "token"),
    *("oauth", "oauth_scopes", "oauth_grant", "spec"),
    *("oauth_client_id", "oauth_client_secret", "oauth_issuer"),
)
"""What of a configuration takes effect only when a server starts."""

_log = logging.getLogger(__name__)


class Pool:
    """All servers behind one gateway. Use it as an asynchronous context manager.

    `tokens` is the folder with the OAuth tokens of servers.
    """

    def __init__(
        self,
        configs: Iterable[ServerConfig],
        catalog: Catalog,
        store: Store,
        *,
        dial: ConnectionFactory | None = None,
        queue: int = 64,
        delays: Delays | None = None,
        tokens: Path | None = None,
    ) -> None:
        self.catalog = catalog
        self.servers: dict[str, ServerState] = {}
        self.watched = WatchedResources()
        self.on_phase: Callable[[ServerState], None] | None = None
        """Told whenever a server comes to stand elsewhere in its life."""
        self.on_line: Callable[[str, str], None] | None = None
        """Told the name of a server and what it writes to its log."""
        self._delays = delays or Delays()
        self._dialer = Connector(self._delays, tokens)
        self._dial = dial or self._dialer
        self._intake = CatalogUpdater(catalog, store)
        self._queue = queue
        self._tasks: set[asyncio.Task[Any]] = set()
        self._closing: set[asyncio.Task[Any]] = set()
        self._gate = asyncio.Semaphore(STARTED_TOGETHER)
        self.may_learn = asyncio.Event()
        """Unset, servers start only for calls: not yet to tell what they offer."""
        self.may_learn.set()
        self._random = random.Random()
        self._is_closing = False
        for config in configs:
            if not config.disabled:
                self._take_in(config)

    async def __aenter__(self) -> "Pool":
        now = self._now()
        for member in self.servers.values():
            member.since = now
            self._learn_if_needed(member)
        self._spawn(self._stop_idle())
        self._spawn(self._heed_logins())
        return self

    async def __aexit__(self, *_: object) -> None:
        """Let running calls end, up to a limit, then stop everything."""
        self._is_closing = True
        members = list(self.servers.values())
        await asyncio.gather(*map(self._drained, members))
        tasks = [*self._tasks, *(m.opening for m in members if m.opening)]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for member in members:
            self._let_go(member)
        await asyncio.gather(*self._closing, return_exceptions=True)
        self._dialer.close()

    async def request(
        self, server: str, method: str, params: Json, relay: Relay | None = None
    ) -> Json:
        """Send one request to a server, starting it if need be; return the raw result.

        An error answer of the server raises `MCPError`; all else is an `UpstreamError`.
        """
        member = self.servers.get(server)
        if member is None:
            raise ServerUnavailable(server, "not configured")
        calls = member.waiting + member.running - min(member.resting, RESTING_LIMIT)
        if calls >= self._queue + member.config.concurrency:
            raise ServerBusy(server, calls)
        with member.queued():
            async with CallSlot(member) as turn:
                return await self._answer(member, turn, method, params, turn.relay(relay))

    async def watch(self, server: str, uris: Set[str]) -> frozenset[str]:
        """Have these resources of a server watched, through restarts; return those agreed to.

        Starts the server for resources that are new, and does not stop it while there are any.
        What changes is told to `watched.on_update`.
        """
        is_more, member = self.watched.set_wanted(server, uris), self._member(server)
        if is_more or member.connection is not None:
            connection = await self._opened(member)
            return await self.watched.apply(server, connection, member.config.call_seconds)
        return self.watched.get_agreed(server)

    async def stop(self, server: str) -> None:
        """Stop a server once its running calls have ended; only `start` starts it again."""
        member = self._member(server)
        member.is_held = True
        self.catalog.set_failed(server, "it was stopped")
        await self._end(member)

    async def start(self, server: str) -> None:
        """Start a server, whatever became of it before, or raise `ServerUnavailable`."""
        member = self._member(server)
        member.is_held = False
        member.failures, member.silences, member.retry_at = 0, 0, 0.0
        self.catalog.set_pending(server)
        await self._opened(member)

    async def restart(self, server: str) -> None:
        """Stop a server and start it anew."""
        await self.stop(server)
        await self.start(server)

    async def reload(self, configs: Iterable[ServerConfig]) -> None:
        """Make these the servers of the pool.

        What did not change keeps running. A server that is shown or limited in another way is
        not restarted; one that starts in another way is, after its running calls.
        """
        wanted = {config.name: config for config in configs if not config.disabled}
        for name in [name for name in self.servers if name not in wanted]:
            self._retire(self.servers.pop(name))
        for name, config in wanted.items():
            member = self.servers.get(name)
            if member is not None and _starts_same(member.config, config):
                self._show(member, config)
                continue
            if member is not None:
                self._retire(member)
            self._learn_if_needed(self._take_in(config))

    def _take_in(self, config: ServerConfig) -> ServerState:
        member = ServerState(config=config, slots=asyncio.Semaphore(config.concurrency))
        self.servers[config.name] = member
        self._intake.recall(member)
        return member

    def _show(self, member: ServerState, config: ServerConfig) -> None:
        """Take over a configuration that needs no new start."""
        old, member.config = member.config, config
        if old.concurrency != config.concurrency:
            member.slots = asyncio.Semaphore(config.concurrency)
        if old != config and member.manifest is not None:
            self._intake.offer(member, member.manifest)

    # Calls.

    async def _answer(
        self, member: ServerState, turn: CallSlot, method: str, params: Json, relay: Relay | None
    ) -> Json:
        for left in reversed(range(TRIES)):
            connection = await self._opened(member)
            try:
                with member.counted():
                    asked = partial(connection.request, method, params, relay)
                    name = str(params.get("name") or method)
                    return await self._timed(member, connection, turn, asked, name)
            except ServerUnavailable as error:
                # It never got the request, so another connection may be tried.
                lost = self._lose(member, connection, error)
                if error.state == Phase.NEEDS_LOGIN and not lost and member.phase is Phase.FAILED:
                    self._fail(member, error)  # the end was heard of before its reason
                if not left or error.state == Phase.NEEDS_LOGIN:
                    raise
        raise AssertionError  # the last try returns or raises

    async def _timed(
        self,
        member: ServerState,
        connection: Connection,
        turn: CallSlot,
        asked: Callable[[], Awaitable[Json]],
        name: str,
    ) -> Json:
        seconds = member.config.call_seconds
        try:
            async with turn.timed(seconds):
                answer = await asked()
        except TimeoutError:
            self._note_silence(member, connection)
            raise CallTimedOut(name, seconds) from None
        except MCPError:
            member.failures = member.silences = 0
            raise
        finally:
            member.used = self._now()
        member.failures = member.silences = 0
        return answer

    def _note_silence(self, member: ServerState, connection: Connection) -> None:
        member.silences += 1
        if member.silences >= FAILURES_ALLOWED:
            reason = f"it left {member.silences} calls in a row unanswered"
            self._lose(member, connection, unavailable(member.config, reason))

    # Start and end.

    async def _opened(self, member: ServerState) -> Connection:
        """Return the open connection of a server; whoever asks first opens it for all."""
        connection = member.connection
        if connection is not None:
            if not connection.ended.is_set():
                return connection
            self._lose(member, connection, unavailable(member.config, connection.reason))
        if member.opening is None:
            self._check_startable(member)
            member.opening = asyncio.create_task(self._open(member))
            member.opening.add_done_callback(lambda task: self._was_opened(member, task))
        return await asyncio.shield(member.opening)

    def _was_opened(self, member: ServerState, task: asyncio.Task[Connection]) -> None:
        if member.opening is task:
            member.opening = None
        if not task.cancelled():
            task.exception()  # looked at, even if nobody waits for it any more

    def _check_startable(self, member: ServerState) -> None:
        if self._is_closing:
            raise ServerUnavailable(member.name, Phase.STOPPED, "the gateway is ending")
        if member.is_held:
            raise ServerUnavailable(member.name, Phase.STOPPED)
        if self._is_barred(member) and self._now() < member.retry_at:
            raise ServerUnavailable(member.name, member.phase, member.reason)

    def _is_barred(self, member: ServerState) -> bool:
        return member.phase is Phase.NEEDS_LOGIN or member.failures >= FAILURES_ALLOWED

    async def _open(self, member: ServerState) -> Connection:
        await asyncio.sleep(max(0.0, member.retry_at - self._now()))
        self._enter(member, Phase.STARTING)
        member.starts += 1
        stale = asyncio.Event()
        try:
            connection = await self._connected(member, stale)
        except Exception as error:
            if not isinstance(error, ToolscoutError | MCPError | TimeoutError):
                _log.exception("Server %s cannot be started.", member.name)
            failure = _failure(member, error)
            self._fail(member, failure)
            raise failure from error
        member.connection, member.used = connection, self._now()
        self._enter(member, Phase.READY)
        self._spawn(self._attend(member, connection, stale))
        seconds = member.config.call_seconds
        self._spawn(self.watched.renew(member.name, connection, seconds))
        return connection

    async def _connected(self, member: ServerState, stale: asyncio.Event) -> Connection:
        config = member.config.resolve()
        member.note_login(self._dialer.token_file(config))
        connection = self._dial(config, on_change=stale.set, on_line=self._hearer(member))
        await connection.open()
        try:
            if member.manifest is None:
                await self._intake.read(member, connection)
            else:
                # What is known will do for the call that waits; the lists are read after it.
                stale.set()
                if not self._intake.is_ready(member):
                    self._intake.offer(member, member.manifest)
        except BaseException:
            await connection.close()
            raise
        return connection

    def _hearer(self, member: ServerState) -> Callable[[str], None]:
        def hear(line: str) -> None:
            member.lines.append(line)
            if self.on_line is not None:
                self.on_line(member.name, line)
            _log.info("%s: %s", member.name, line)

        return hear

    async def _attend(
        self, member: ServerState, connection: Connection, stale: asyncio.Event
    ) -> None:
        """Read changed lists until the server ends, and take note of why it did."""
        reading = asyncio.create_task(self._reread(member, connection, stale))
        try:
            await connection.ended.wait()
        finally:
            reading.cancel()
            await asyncio.wait((reading,))
        lost = self._lose(member, connection, unavailable(member.config, connection.reason))
        await connection.close()
        if lost and member.phase is Phase.FAILED and connection.reason:
            member.reason = unavailable(member.config, connection.reason).reason
        if member.phase is Phase.FAILED and self._must_run(member):
            await self._learn(member)

    async def _reread(
        self, member: ServerState, connection: Connection, stale: asyncio.Event
    ) -> None:
        """Read the lists again when the server says so; a storm of notices is one change."""
        pause = self._delays.change
        while True:
            await stale.wait()
            await asyncio.sleep(pause)
            stale.clear()
            try:
                await self._intake.read(member, connection)
            except (ToolscoutError, MCPError, TimeoutError) as error:
                _log.warning("Server %s did not tell its lists: %s", member.name, error)
            # A server that calls every list a change would be asked for ever.
            pause = self._delays.change if not stale.is_set() else pause * 2
            pause = min(pause, self._delays.most_change)

    def _lose(self, member: ServerState, connection: Connection, error: ServerUnavailable) -> bool:
        """Give a connection up, and tell whether it was in use until now."""
        if member.connection is not connection:
            return False
        self._let_go(member)
        self._fail(member, error)
        return True

    def _let_go(self, member: ServerState) -> asyncio.Task[None] | None:
        """Close the connection of a server, whatever becomes of whoever wanted that."""
        connection, member.connection = member.connection, None
        return None if connection is None else self._see_through(connection.close())

    def _retire(self, member: ServerState) -> None:
        """Take a server out of the catalogue and end it after its running calls."""
        self.catalog.remove(member.name)
        self._see_through(self._end(member))

    def _see_through(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Do what the end of the pool waits for, and does not cut short."""
        task = asyncio.create_task(work)
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)
        return task

    def _fail(self, member: ServerState, error: ServerUnavailable) -> None:
        member.failures += 1
        delays = self._delays
        most = min(delays.most_retry, delays.first_retry * 2 ** (member.failures - 1))
        phase = Phase.FAILED
        if error.state == Phase.NEEDS_LOGIN:
            phase, most = Phase.NEEDS_LOGIN, delays.most_retry
        # Jitter, so that servers that fell together do not come back together.
        member.retry_at = self._now() + most * (0.5 + self._random.random() / 2)
        self._enter(member, phase, error.reason)
        if member.manifest is None or self._is_barred(member):
            reason = "needs login" if phase is Phase.NEEDS_LOGIN else ""
            told = ": ".join(filter(None, (reason, error.reason)))
            self.catalog.set_failed(member.name, told)
            self._spawn(self._forgive(member))

    async def _forgive(self, member: ServerState) -> None:
        """Let calls try a failed server again once its delay is over."""
        await asyncio.sleep(max(0.0, member.retry_at - self._now()))
        is_failed = member.phase in (Phase.FAILED, Phase.NEEDS_LOGIN)
        if is_failed and member.manifest is not None and not member.is_held:
            self.catalog.set_pending(member.name)

    async def _end(self, member: ServerState) -> None:
        """Stop a server once its running calls have ended, or their time is over."""
        member.is_held = True
        opening = member.opening
        if opening is not None:
            opening.cancel()
            await asyncio.wait((opening,))
        await self._drained(member)
        await self._rest(member)

    async def _rest(self, member: ServerState) -> None:
        closing = self._let_go(member)
        self._enter(member, Phase.STOPPED)
        if closing is not None:
            await asyncio.shield(closing)

    async def _drained(self, member: ServerState) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._delays.drain):
                await member.idle.wait()

    # In the background.

    def _learn_if_needed(self, member: ServerState) -> None:
        if member.manifest is None or self._must_run(member):
            self._spawn(self._learn(member))

    def _must_run(self, member: ServerState) -> bool:
        return not member.config.lazy or bool(self.watched.get_wanted(member.name))

    async def _learn(self, member: ServerState) -> None:
        """Start a server, so that its tools become known; a failure is tried again later."""
        await self.may_learn.wait()
        while not member.is_held:
            try:
                async with self._gate:
                    opening = asyncio.ensure_future(self._opened(member))
                    # A start that hangs must not keep all others waiting.
                    await asyncio.wait((opening,), timeout=self._delays.gate)
                await opening
                return
            except ServerUnavailable:
                if member.manifest is not None and not self._must_run(member):
                    return
                await asyncio.sleep(max(0.0, member.retry_at - self._now()))

    async def _stop_idle(self) -> None:
        while True:
            await asyncio.sleep(self._delays.idle_look)
            for member in self.servers.values():
                is_busy = member.waiting or member.running or self.watched.get_wanted(member.name)
                limit = member.config.idle_stop
                is_idle = self._now() - member.used > limit
                if limit and member.connection is not None and not is_busy and is_idle:
                    self._spawn(self._rest(member))

    async def _heed_logins(self) -> None:
        """Start servers that wanted a login again once a person has logged in."""
        while True:
            await asyncio.sleep(self._delays.login_look)
            for member in self.servers.values():
                if member.phase is Phase.NEEDS_LOGIN and member.has_new_login:
                    self._spawn(self._start_again(member))

    async def _start_again(self, member: ServerState) -> None:
        with contextlib.suppress(ServerUnavailable):
            await self.start(member.name)

    def _enter(self, member: ServerState, phase: Phase, reason: str = "") -> None:
        member.phase, member.reason, member.since = phase, reason, self._now()
        if self.on_phase is not None:
            self.on_phase(member)

    def _member(self, server: str) -> ServerState:
        if server not in self.servers:
            raise ServerUnavailable(server, "not configured")
        return self.servers[server]

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _now(self) -> float:
        return asyncio.get_running_loop().time()


def _starts_same(old: ServerConfig, new: ServerConfig) -> bool:
    return all(getattr(old, key) == getattr(new, key) for key in STARTING_KEYS)


def _failure(member: ServerState, error: Exception) -> ServerUnavailable:
    if isinstance(error, ServerUnavailable):
        return error
    if isinstance(error, TimeoutError):
        return unavailable(member.config, f"no lists within {member.config.start_seconds:g} s")
    if isinstance(error, MCPError):
        return unavailable(member.config, f"it refused to tell its tools: {error.error.message}")
    return unavailable(member.config, str(error))
