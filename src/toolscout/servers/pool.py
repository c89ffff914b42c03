"""`Pool`: all servers behind one gateway, started and stopped as calls need them.

The pool starts a server once, however many calls ask for it; it stops idle servers, and it delays
calls to a server that keeps failing. `CatalogUpdater` puts the servers' listings into the
catalogue. The pool knows no sessions and writes no replies. `Connector` makes the connections.
"""

import asyncio
import contextlib
import logging
import random
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Set
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx2
from mcp.shared.exceptions import MCPError

from toolscout.catalog import Catalog
from toolscout.config.redaction import redact_json
from toolscout.config.servers import Login, ServerConfig, Share, Transport
from toolscout.errors import (
    CallTimedOut,
    ConnectionsBusy,
    LoginRequired,
    LoginUndecided,
    ServerBusy,
    ServerUnavailable,
    SkillChanged,
    ToolscoutError,
    UsageError,
)
from toolscout.schemas import Json
from toolscout.servers.approvals import DECISIONS_KIND, ApprovalDecision, Lock
from toolscout.servers.connection import (
    FAILED,
    Connection,
    ConnectionFactory,
    Delays,
    Relay,
    make_unavailable_error,
)
from toolscout.servers.diagnosis import diagnose
from toolscout.servers.listings import MANIFEST_KIND, STOPPED_REASON, CatalogUpdater, is_same
from toolscout.servers.mcp import McpConnection
from toolscout.servers.oauth.encrypted_logins import LOGIN_KIND, EncryptedLogins, UserLogin
from toolscout.servers.oauth.login import BearerAuth, format_login_command, make_auth, needs_tokens
from toolscout.servers.oauth.tokens import LoginStorage, StoredLogin, TokenFile, hash_server
from toolscout.servers.openapi.executor import OpenApiConnection
from toolscout.servers.process import InstallSlots, ProcessReaper, choose_start_limit
from toolscout.servers.skills import SkillsConnection
from toolscout.servers.state import (
    LOG_BYTES,
    LOG_LINES,
    LOG_SECONDS,
    NO_CALLER,
    Caller,
    CallSlot,
    CallSlots,
    Phase,
    ServerState,
    WatchedResources,
)
from toolscout.sessions.texts import ASK_OPERATOR, READ_AGAIN, WATCHES_NOTHING
from toolscout.stores.store import Store

PARALLEL_STARTS = 8
FAILURES_ALLOWED = 3
"""After this many failures, calls are refused until the delay is over."""
TRIES = 2
RESTING_LIMIT = 256
"""Calls that may wait for their client without counting against the queue."""
CATCH_UP_SECONDS = 15.0
"""How often to look for changes whose notice was lost."""
SEVERAL = 2
"""From this many principals on, somebody's login must not serve all of them unasked."""

_log = logging.getLogger(__name__)


class Pool:
    """All servers behind one gateway. Use it as an asynchronous context manager.

    `tokens` is the folder with the OAuth tokens of servers, and `encrypted_logins` has those of
    principals. With a `lock`, only the definitions that it names are used.
    """

    def __init__(
        self,
        configs: Iterable[ServerConfig],
        catalog: Catalog,
        store: Store,
        *,
        connect: ConnectionFactory | None = None,
        queue: int = 64,
        delays: Delays | None = None,
        tokens: Path | None = None,
        encrypted_logins: EncryptedLogins | None = None,
        lock: Lock | None = None,
    ) -> None:
        self.catalog = catalog
        self.servers: dict[str, ServerState] = {}
        self.principals = 0
        """How many principals may make requests; with none, callers have no principal."""
        self.folder = ""
        """Where the newest client was started; servers of sessions list their tools there."""
        self.watched = WatchedResources()
        self.on_phase: Callable[[ServerState], None] = lambda server: None
        """Called whenever a server enters another phase."""
        self.on_line: Callable[[str, str], None] = lambda server, line: None
        """Called with the name of a server and a line that it wrote to its log."""
        self.on_login: Callable[[str], None] = lambda server: None
        """Called with the name of a server at which a person has logged in."""
        self.on_decision: Callable[[ApprovalDecision], None] = lambda decision: None
        """Called with what became of a definition, in any thread."""
        self.may_learn = asyncio.Event()
        """Until it is set, servers start only for calls and not for their listings."""
        self.may_learn.set()
        self._delays = delays or Delays()
        self._connector = Connector(self._delays, tokens, encrypted_logins)
        self._encrypted_logins = encrypted_logins
        self._connect = connect or self._connector
        self._updater = CatalogUpdater(catalog, store, lock)
        self._updater.on_decision = lambda decision: self.on_decision(decision)
        self._queue = queue
        self._tasks: set[asyncio.Task[Any]] = set()
        self._closing: set[asyncio.Task[Any]] = set()
        self._reloading = asyncio.Lock()
        self._starting = asyncio.Semaphore(PARALLEL_STARTS)
        self._random = random.Random()
        self._phase_entered = asyncio.Event()
        self._has_decisions = asyncio.Event()
        self._has_logins = asyncio.Event()
        self.hears_changes = False
        """Whether `follow` is called for each change, so that looking for them can wait longer."""
        self._is_closing = False
        for config in configs:
            if not config.disabled:
                self._updater.recall(self._add(config))

    async def __aenter__(self) -> "Pool":
        for server in self.servers.values():
            server.since = self._get_time()
            self._learn_if_needed(server)
        self._spawn(self._stop_idle())
        self._spawn(self._watch_logins())
        self._spawn(self._watch_approvals())
        return self

    async def __aexit__(self, *_: object) -> None:
        # Running calls may end, up to a limit.
        self._is_closing = True
        servers = [state for server in self.servers.values() for state in server.all_states]
        await asyncio.gather(*map(self._drain, servers))
        tasks = [*self._tasks, *(server.opening for server in servers if server.opening)]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for server in servers:
            self._drop_connection(server)
        await asyncio.gather(*self._closing, return_exceptions=True)
        await self._updater.close()
        self._connector.close()

    async def request(
        self,
        name: str,
        method: str,
        params: Json,
        relay: Relay | None = None,
        *,
        caller: Caller = NO_CALLER,
        check: Callable[[], None] = lambda: None,
        verify: Callable[[Json], None] | None = None,
    ) -> Json:
        """Send one request to a server, starting it if necessary, and return the raw result.

        `check` runs last and may raise: the server may have changed while the request waited.
        `verify` gets the answer as the server sent it, in a thread, and may raise too.

        A principal takes at most three quarters of the server's slots, and half of the places in
        its queue. If a session or principal has a connection of its own, requests go over that;
        with `login = "user"` they raise `LoginRequired` before the principal has logged in.
        An error answer of the server raises `MCPError`; any other failure is an `UpstreamError`.
        """
        server = await self._find_owned(self._find(name), caller)
        principal = caller.principal
        calls = server.waiting + server.running - min(server.resting, RESTING_LIMIT)
        if calls >= self._queue + server.config.concurrency:
            raise ServerBusy(name, calls)
        own = server.slots.count(principal) if principal else 0
        if own >= (self._queue + 1) // 2 + server.config.concurrency:
            raise ServerBusy(name, own, is_own=True)
        with server.count_waiting():
            async with CallSlot(server, principal) as slot:
                relay = slot.wrap_relay(relay)
                if principal:
                    await self._check_login(server, relay)
                try:
                    sending = self._send(server, slot, method, params, relay, check)
                    return await self._redact(server, sending, verify)
                except ServerUnavailable as error:
                    if server.is_users_own and error.state == Phase.NEEDS_LOGIN:
                        raise _make_login_error(name, principal) from None
                    raise
                finally:
                    if relay is not None:
                        await relay.catch_up()

    async def watch(self, name: str, uris: Set[str]) -> frozenset[str]:
        """Watch resources of a server, also after it restarts; return those it agreed to.

        Starts the server for new resources, and keeps it running while there are any. Changes
        are reported to `watched.on_update`.
        """
        server = self._find(name)
        if uris and (server.lists_only or (self.principals and server.config.has_owners)):
            raise ServerUnavailable(name, "not watched", WATCHES_NOTHING, remedy=READ_AGAIN)
        if uris and self.principals:
            await self._check_login(server)
        has_new = self.watched.set_wanted(name, uris)
        if has_new or server.connection is not None:
            connection = await self._open(server)
            return await self.watched.apply(name, connection, server.config.call_seconds)
        return self.watched.get_agreed(name)

    async def wait_for_listings(self, until: float, is_wanted: Callable[[str], bool]) -> None:
        """Wait until no wanted server is about to list its tools for the first time.

        `until` is the event loop's time at which the wait ends in any case.
        """
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout_at(until):
                while any(
                    server.is_learning
                    and self._get_time() - server.since < server.config.start_seconds
                    and is_wanted(server.name)
                    for server in self.servers.values()
                ):
                    await self._phase_entered.wait()

    async def stop(self, name: str) -> None:
        """Stop a server once its running calls have ended; only `start` starts it again."""
        server = self._find(name)
        server.is_held = True
        self.catalog.set_failed(name, STOPPED_REASON)
        await self._end(server)

    async def start(self, name: str) -> None:
        """Start a server, whatever state it is in, or raise `ServerUnavailable`."""
        server = self._find(name)
        server.is_held = False
        server.failures = 0
        server.silences = 0
        server.retry_at = 0.0
        self.catalog.set_pending(name)
        await self._open(server)

    async def restart(self, name: str) -> None:
        """Stop a server and start it again."""
        await self.stop(name)
        await self.start(name)

    @property
    def is_locked(self) -> bool:
        """Whether a lock file decides which definitions are used, so that nobody else can."""
        return self._updater.approvals.is_locked

    async def decide(self, name: str, ids: Set[str], *, approve: bool, by: str) -> None:
        """Approve or reject those held definitions of a server that have these ids."""
        server = self._find(name)
        held = [item for item in server.held_definitions if item.id in ids]
        await self._updater.decide(server, held, approve=approve, by=by)

    async def reload(self, configs: Iterable[ServerConfig], *, queue: int | None = None) -> None:
        """Make these the servers of the pool, and `queue` the calls that may wait for each.

        Unchanged servers keep running. A server restarts, after its running calls, only if an
        option changed that takes effect at its start.
        """
        wanted = {config.name: config for config in configs if not config.disabled}
        self._queue = self._queue if queue is None else queue
        async with self._reloading:
            for name in [name for name in self.servers if name not in wanted]:
                await self._retire(self.servers.pop(name))
            for name, config in wanted.items():
                old = self.servers.get(name)
                if old is not None and not old.config.needs_restart(config):
                    former = old.config
                    for state in old.all_states:
                        state.config = config
                        if former.concurrency != config.concurrency:
                            state.slots = CallSlots(config.concurrency)
                        self._share_slots(old, state)
                    manifest = old.manifest
                    if former != config and manifest is not None and not manifest.whole:
                        await self._updater.publish(old, manifest)
                    continue
                server = self._add(config)
                if old is not None:
                    await self._retire(old)
                await self._updater.recall_later(server)
                self._learn_if_needed(server)

    def _add(self, config: ServerConfig) -> ServerState:
        server = ServerState(config=config)
        self.servers[config.name] = server
        return server

    async def _retire(self, server: ServerState) -> None:
        """Take a server out of the catalogue and end it after its running calls."""
        server.is_held = True
        self._spawn(self._end(server), closes=True)
        await self._updater.remove(server.name)

    # The connections of sessions and principals.

    def end_owned(self, is_gone: Callable[[Caller], bool]) -> None:
        """End the connections of sessions that have ended, or principals that may do no more."""
        for server in self.servers.values():
            for owner in [owner for owner in server.owned if is_gone(owner)]:
                self._end_owned(server, owner)

    def renew_roots(self, caller: Caller, relay: Relay) -> None:
        """Tell the servers of one session that the roots of its client have changed."""

        async def renew(connection: Connection) -> None:
            with contextlib.suppress(ToolscoutError):  # the next call tells that it has ended
                await connection.renew_roots(relay)

        for server in self.servers.values():
            owned = server.owned.get(caller)
            if owned is not None and owned.connection is not None:
                self._spawn(renew(owned.connection))

    async def read_login(self, name: str, principal: str) -> str:
        """Return the id of a principal's login at a server, empty if there is none."""
        _, stored = await self._load_login(self._find(name), principal)
        return stored.login if stored is not None else ""

    async def wait_for_login(self, name: str, principal: str, former: str, seconds: float) -> bool:
        """Wait for another login than the former; return whether there was one in time."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while True:
                    if await self.read_login(name, principal) not in ("", former):
                        return True
                    await asyncio.sleep(self._delays.login_look)
        return False

    async def _find_owned(self, server: ServerState, caller: Caller) -> ServerState:
        """Return the state of the connection for a caller's requests; raises `LoginRequired`."""
        owner = caller.find_owner(server.config)
        if owner is None:
            return server
        login = None
        stored = None
        if owner.principal and server.config.login == Login.USER:
            login, stored = await self._load_login(server, owner.principal)
            known = server.owned.get(owner)
            if known is not None and (stored is None or known.login != stored.login):
                self._end_owned(server, owner)
            if stored is None:
                raise _make_login_error(server.name, owner.principal)
        if owner not in server.owned:
            if server.is_held:
                raise ServerUnavailable(server.name, Phase.STOPPED)
            self._make_room(server)
            owned = ServerState(config=server.config, owner=owner)
            self._share_slots(server, owned)
            owned.manifest = server.manifest
            owned.lines = server.lines
            owned.token_file = login
            owned.login = stored.login if stored is not None else ""
            owned.used = self._get_time()
            server.owned[owner] = owned
        return server.owned[owner]

    def _share_slots(self, server: ServerState, owned: ServerState) -> None:
        """Count the calls of all together if one machine answers them, rather than a process."""
        if server.config.transport is not Transport.STDIO:
            owned.slots = server.slots

    async def _load_login(
        self, server: ServerState, principal: str
    ) -> tuple[UserLogin, StoredLogin | None]:
        """Return where a principal's login is stored, and what is stored there now."""
        known = [state.token_file for state in server.owned.values()]
        encrypted_logins = self._encrypted_logins

        if encrypted_logins is None:
            raise ServerUnavailable(server.name, FAILED, "users cannot log in here")

        def load() -> tuple[UserLogin, StoredLogin | None]:
            logins = (login for login in known if isinstance(login, UserLogin))
            found = next((login for login in logins if login.principal == principal), None)
            login = found or encrypted_logins.find(server.config.resolve(), principal)
            return login, login.load()

        try:
            return await asyncio.to_thread(load)
        except UsageError as error:
            _log.error("A login cannot be read: %s", error)
            raise ServerUnavailable(
                server.name, FAILED, "the stored login cannot be read", remedy=ASK_OPERATOR
            ) from None

    def _make_room(self, server: ServerState) -> None:
        """End the connection that was idle longest if there are as many as there may be."""
        if len(server.owned) < server.config.max_connections:
            return
        idle = [owner for owner, owned in server.owned.items() if not owned.is_busy]
        if not idle:
            raise ConnectionsBusy(server.name, len(server.owned))
        self._end_owned(server, min(idle, key=lambda owner: server.owned[owner].used))

    def _end_owned(self, server: ServerState, owner: Caller) -> asyncio.Task[None]:
        owned = server.owned.pop(owner)
        owned.is_held = True
        return self._spawn(self._end(owned), closes=True)

    async def _check_login(self, server: ServerState, relay: Relay | None = None) -> None:
        """Raise `LoginUndecided` if one person's login would serve several principals."""
        if self.principals < SEVERAL or server.config.login:
            return
        if server.config.transport in (Transport.HTTP, Transport.SSE):
            await self._open_for_call(server, relay)
            if server.is_personal:
                raise LoginUndecided(server.name)

    # Calls.

    async def _redact(
        self,
        server: ServerState,
        sending: Awaitable[Json],
        verify: Callable[[Json], None] | None,
    ) -> Json:
        """Return an answer, verified, without what looks like a secret if `redact` says so."""
        kinds = server.config.redact
        try:
            answer = await sending
        except MCPError as error:
            told = {"message": error.message, "data": error.data}
            plain = await asyncio.to_thread(redact_json, told, kinds) if kinds else told
            if plain == told:
                raise
            raise MCPError(error.code, plain["message"], plain["data"]) from None
        if verify is not None:
            try:
                await asyncio.to_thread(verify, answer)
            except SkillChanged:
                self._find(server.name).has_changed.set()  # so that its list is read again
                raise
        if not kinds:
            return answer
        plain = await asyncio.to_thread(redact_json, answer, kinds)
        # The server must get its own state back when it has asked for input, and its task's id.
        return plain | {key: answer[key] for key in ("requestState", "taskId") if key in answer}

    async def _send(
        self,
        server: ServerState,
        slot: CallSlot,
        method: str,
        params: Json,
        relay: Relay | None,
        check: Callable[[], None],
    ) -> Json:
        seconds = server.config.call_seconds
        for tries_left in reversed(range(TRIES)):
            connection = await self._open_for_call(server, relay)
            check()
            try:
                with server.count_running():
                    async with slot.limit(seconds):
                        answer = await connection.request(method, params, relay)
                server.failures = server.silences = 0
                return answer
            except TimeoutError:
                server.silences += 1
                if server.silences >= FAILURES_ALLOWED:
                    reason = f"it left {server.silences} calls in a row unanswered"
                    self._lose(server, connection, make_unavailable_error(server.config, reason))
                raise CallTimedOut(str(params.get("name") or method), seconds) from None
            except MCPError:
                server.failures = server.silences = 0
                raise
            except ServerUnavailable as error:
                # The server never got the request, so it may be sent over another connection.
                was_in_use = self._lose(server, connection, error)
                needs_login = error.state == Phase.NEEDS_LOGIN
                if needs_login and not was_in_use and server.phase is Phase.FAILED:
                    self._fail(server, error)  # the end was noticed before its reason
                if not tries_left or needs_login:
                    raise
            finally:
                server.used = self._get_time()
        raise AssertionError  # the last try returns or raises

    # Start.

    async def _open_for_call(self, server: ServerState, relay: Relay | None) -> Connection:
        """Do the same as `_open`, but do not make a call wait for a long installation."""
        connection = server.connection
        if connection is not None and not connection.ended.is_set():
            return connection  # which needs no time limit
        while True:
            try:
                async with asyncio.timeout(server.config.start_seconds):
                    return await self._open(server, relay)
            except TimeoutError:
                if server.phase is Phase.STARTING and server.reason:
                    raise ServerUnavailable(server.name, server.phase, server.reason) from None

    async def _open(self, server: ServerState, relay: Relay | None = None) -> Connection:
        """Return the open connection of a server; the first caller opens it for all.

        A server that one client alone uses may ask that client for its roots, over the relay.
        """
        connection = server.connection
        if connection is not None:
            if not connection.ended.is_set():
                return connection
            self._lose(server, connection, make_unavailable_error(server.config, connection.reason))
        if server.opening is None:
            if self._is_closing:
                raise ServerUnavailable(server.name, Phase.STOPPED, "the gateway is ending")
            if server.is_held:
                raise ServerUnavailable(server.name, Phase.STOPPED)
            if self._is_barred(server) and self._get_time() < server.retry_at:
                raise ServerUnavailable(server.name, server.phase, server.reason)
            server.opening = asyncio.create_task(self._start(server, relay))
            server.opening.add_done_callback(lambda task: self._finish_opening(server, task))
        return await asyncio.shield(server.opening)

    def _finish_opening(self, server: ServerState, task: asyncio.Task[Connection]) -> None:
        if server.opening is task:
            server.opening = None
        if not task.cancelled():
            task.exception()  # retrieve it, even if no caller waits any more

    def _is_barred(self, server: ServerState) -> bool:
        return server.phase is Phase.NEEDS_LOGIN or server.failures >= FAILURES_ALLOWED

    async def _start(self, server: ServerState, relay: Relay | None) -> Connection:
        await self._wait_for_retry(server)
        self._enter(server, Phase.STARTING)
        server.starts += 1
        is_installed = server.manifest is not None and not server.failures
        has_changed = server.has_changed = asyncio.Event()
        written = deque[str](maxlen=LOG_LINES)
        try:

            def on_line(line: str) -> None:
                written.append(line)
                server.lines.append(line)
                self.on_line(server.name, line)
                _log_line(server, line)

            resolved = await asyncio.to_thread(server.config.resolve)
            config = self._choose_folder(server, resolved)
            if is_installed:
                config = replace(config, install_seconds=0)
            delay = choose_start_limit(config).describe_wait()
            if delay:
                self._enter(server, Phase.STARTING, delay)
                if server.manifest is None:
                    self.catalog.set_pending(server.name, delay)
            if isinstance(server.token_file, UserLogin):
                auth = BearerAuth(config, server.token_file)
                connection = self._connector.connect(config, has_changed.set, on_line, auth)
            else:
                file = self._connector.find_login(config)
                if isinstance(file, UserLogin):
                    await asyncio.to_thread(file.load)
                server.token_file = file
                server.login = file.login if file else ""
                server.is_personal = file is not None and needs_tokens(config, file)
                connection = self._connect(config, on_change=has_changed.set, on_line=on_line)
            has_one_client = server.owner is not None and config.share is Share.SESSION
            await connection.open(relay if has_one_client else None)
            try:
                if server.owner is None:
                    # A call must not reach a tool that has changed since it was listed.
                    await self._updater.refresh(server, connection)
                else:
                    await self._compare_list(server, connection)
            except BaseException:
                await connection.close()
                raise
        except Exception as error:
            if not isinstance(error, ToolscoutError | MCPError | TimeoutError):
                _log.exception("Server %s cannot be started.", server.name)
            failure = _failure_from_error(server.config, error, written)
            self._fail(server, failure)
            raise failure from error
        server.connection = connection
        server.used = self._get_time()
        if server.lists_only:
            self._drop_connection(server)
            self._enter(server, Phase.KNOWN)
            return connection
        self._enter(server, Phase.READY)
        if server.owner is not None:
            self._spawn(self._attend_owned(server, connection))
            return connection
        server.list_again = has_changed.set
        self._spawn(self._attend(server, connection, has_changed))
        self._spawn(self.watched.renew(server.name, connection, server.config.call_seconds))
        return connection

    def _choose_folder(self, server: ServerState, config: ServerConfig) -> ServerConfig:
        """Return the configuration with the folder of the client that the server is started for."""
        has_folder = config.cwd or config.isolate or config.transport is not Transport.STDIO
        if has_folder or config.share is not Share.SESSION:
            return config
        return replace(config, cwd=server.owner.folder if server.owner else self.folder)

    async def _compare_list(self, owned: ServerState, connection: Connection) -> None:
        """List the tools of a server again if the connection of a session or principal has others.

        Only the connection that everybody shares decides what is listed: what one session or
        principal makes of its own process concerns nobody else.
        """
        server = self._find(owned.name)
        if owned.is_users_own:
            # A server may offer each user other tools; the list is the administrator's.
            self._spawn(self._learn(server))
            return
        async with asyncio.timeout(owned.config.start_seconds):
            manifest = await connection.read_manifest()
        if not is_same(manifest, server.manifest):
            await self._open(server)

    async def _attend_owned(self, owned: ServerState, connection: Connection) -> None:
        """Note why the connection of a session or principal ended."""
        await connection.ended.wait()
        self._lose(owned, connection, make_unavailable_error(owned.config, connection.reason))
        await connection.close()

    async def _attend(
        self, server: ServerState, connection: Connection, has_changed: asyncio.Event
    ) -> None:
        """Read changed listings until the server ends, and note why it ended."""
        following = self._updater.follow(server, connection, has_changed, self._delays)
        reading = asyncio.create_task(following)
        try:
            await connection.ended.wait()
        finally:
            reading.cancel()
            await asyncio.wait((reading,))
        failure = make_unavailable_error(server.config, connection.reason)
        was_in_use = self._lose(server, connection, failure)
        await connection.close()  # which may tell more about why it ended
        if was_in_use and server.phase is Phase.FAILED and connection.reason:
            server.reason = make_unavailable_error(server.config, connection.reason).reason
        if server.phase is Phase.FAILED and self._must_run(server):
            await self._learn(server)

    # Failure and end.

    def _lose(self, server: ServerState, connection: Connection, error: ServerUnavailable) -> bool:
        """Give a connection up, and tell whether it was in use until now."""
        if server.connection is not connection:
            return False
        self._drop_connection(server)
        self._fail(server, error)
        return True

    def _drop_connection(self, server: ServerState) -> asyncio.Task[None] | None:
        """Close the connection of a server in a task that nobody cancels."""
        connection = server.connection
        server.connection = None
        return None if connection is None else self._spawn(connection.close(), closes=True)

    def _fail(self, server: ServerState, error: ServerUnavailable) -> None:
        server.failures += 1
        delays = self._delays
        delay = min(delays.most_retry, delays.first_retry * 2 ** (server.failures - 1))
        phase = Phase.FAILED
        if error.state == Phase.NEEDS_LOGIN:
            phase = Phase.NEEDS_LOGIN
            delay = delays.most_retry
        # Jitter, so that servers that failed together do not come back together.
        server.retry_at = self._get_time() + delay * (0.5 + self._random.random() / 2)
        self._enter(server, phase, error.reason)
        if server.owner or (server.config.has_owners and server.manifest is not None):
            return  # it says nothing about the others' connections
        if server.manifest is None or self._is_barred(server):
            state = "needs login" if phase is Phase.NEEDS_LOGIN else ""
            reason = ": ".join(filter(None, (state, error.reason)))
            self.catalog.set_failed(server.name, reason)
            self._spawn(self._allow_retry(server))

    async def _allow_retry(self, server: ServerState) -> None:
        """Let calls try a failed server again once its delay is over."""
        await self._wait_for_retry(server)
        is_failed = server.phase in (Phase.FAILED, Phase.NEEDS_LOGIN)
        if is_failed and server.manifest is not None and not server.is_held:
            self.catalog.set_pending(server.name)

    async def _wait_for_retry(self, server: ServerState) -> None:
        await asyncio.sleep(max(0.0, server.retry_at - self._get_time()))

    async def _end(self, server: ServerState) -> None:
        """Stop a held server once its running calls have ended, or their time is over."""
        ending = [self._end_owned(server, owner) for owner in list(server.owned)]
        opening = server.opening
        if opening is not None:
            opening.cancel()
            await asyncio.wait((opening,))
        await self._drain(server)
        await self._stop_process(server)
        if ending:
            await asyncio.wait(ending)

    async def _stop_process(self, server: ServerState) -> None:
        closing = self._drop_connection(server)
        self._enter(server, Phase.STOPPED)
        if closing is not None:
            await asyncio.shield(closing)

    async def _drain(self, server: ServerState) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._delays.drain):
                await server.idle.wait()

    # In the background.

    def _learn_if_needed(self, server: ServerState) -> None:
        if server.manifest is None or self._must_run(server):
            self._spawn(self._learn(server))

    def _must_run(self, server: ServerState) -> bool:
        is_kept = not server.config.lazy or server.config.transport is Transport.SKILLS
        return is_kept or bool(self.watched.get_wanted(server.name))

    async def _learn(self, server: ServerState) -> None:
        """Start a server to learn its tools; if it fails, try again later."""
        await self.may_learn.wait()
        while not (server.is_held or self._is_closing):
            try:
                # A start that hangs must not keep all others waiting.
                with contextlib.suppress(TimeoutError):
                    async with self._starting, asyncio.timeout(self._delays.gate):
                        await self._open(server)
                        return
                await self._open(server)
                return
            except ServerUnavailable:
                if server.manifest is not None and not self._must_run(server):
                    return
                await self._wait_for_retry(server)

    async def _stop_idle(self) -> None:
        while True:
            await asyncio.sleep(self._delays.idle_look)
            for server in self.servers.values():
                is_folder = server.config.transport is Transport.SKILLS
                limit = 0.0 if is_folder else server.config.idle_stop
                now = self._get_time()
                for owner, owned in list(server.owned.items()):
                    if limit and not owned.is_busy and now - owned.used > limit:
                        self._end_owned(server, owner)
                is_busy = server.waiting or server.running or self.watched.get_wanted(server.name)
                if not limit or server.connection is None or is_busy:
                    continue
                if now - server.used > limit:
                    self._spawn(self._stop_process(server))

    async def _watch_logins(self) -> None:
        """Start servers that needed a login again once a person has logged in."""

        async def start(name: str) -> None:
            with contextlib.suppress(ServerUnavailable):
                await self.start(name)

        while True:
            await self._wait_for_change(self._has_logins, self._delays.login_look)
            for server in list(self.servers.values()):
                file = server.token_file
                if isinstance(file, UserLogin):
                    await self._reload_login(file)
                if server.phase is Phase.NEEDS_LOGIN and file and file.login != server.login:
                    self.on_login(server.name)
                    self._spawn(start(server.name))
            try:
                await self._end_logged_out()
            except Exception:  # any store may fail in its own way, and be back the next time
                _log.debug("Logins cannot be read.", exc_info=True)

    async def _end_logged_out(self) -> None:
        """End the connections of principals who have logged out."""
        known = [
            (server, owner, owned.token_file)
            for server in self.servers.values()
            for owner, owned in server.owned.items()
            if isinstance(owned.token_file, UserLogin) and owned.token_file.principal
        ]
        if not known or self._encrypted_logins is None:
            return
        keys = await asyncio.to_thread(self._encrypted_logins.list_keys)
        for server, owner, login in known:
            if login.key not in keys and owner in server.owned:
                self._end_owned(server, owner)

    async def _watch_approvals(self) -> None:
        """Offer what a person has approved in another process."""
        while True:
            await self._wait_for_change(self._has_decisions, self._delays.approval_look)
            try:
                await self._updater.apply_decisions(self.servers)
            except Exception:  # any store may fail in its own way, and be back the next time
                _log.debug("Approvals cannot be read.", exc_info=True)

    async def _reload_login(self, login: UserLogin) -> None:
        """Read a login again that another process may have changed."""
        try:
            await asyncio.to_thread(login.load)
        except Exception:  # any store may fail in its own way, and be back the next time
            _log.debug("A login cannot be read.", exc_info=True)

    async def _wait_for_change(self, is_reported: asyncio.Event, seconds: float) -> None:
        """Wait until another gateway reports a change, or it is time to look for one."""
        limit = max(seconds, CATCH_UP_SECONDS) if self.hears_changes else seconds
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(limit):
                await is_reported.wait()
        is_reported.clear()

    def follow(self, changed: Mapping[str, Set[str]] | None) -> None:
        """Use what other gateways have changed in the store, by kind and key; None is anything."""
        if changed is None or DECISIONS_KIND in changed:
            self._has_decisions.set()
        if changed is None or LOGIN_KIND in changed:
            self._has_logins.set()
        names = self.servers.keys() if changed is None else changed.get(MANIFEST_KIND)
        if names is not None:
            self._spawn(self._adopt_lists(set(names) or set(self.servers)))

    async def _adopt_lists(self, names: Set[str]) -> None:
        for name in names:
            server = self.servers.get(name)
            if server is not None and not server.is_held:
                try:
                    await self._updater.adopt(server)
                except Exception:  # any store may fail in its own way, and be back the next time
                    _log.debug("The stored lists of %s cannot be read.", name, exc_info=True)

    def _enter(self, server: ServerState, phase: Phase, reason: str = "") -> None:
        server.phase = phase
        server.reason = reason
        server.since = self._get_time()
        self._phase_entered.set()
        self._phase_entered = asyncio.Event()
        if server.owner is None:
            self.on_phase(server)

    def _find(self, name: str) -> ServerState:
        if name not in self.servers:
            raise ServerUnavailable(name, "not configured")
        return self.servers[name]

    def _spawn(self, job: Coroutine[Any, Any, None], *, closes: bool = False) -> asyncio.Task[None]:
        """Run a job that the end of the pool cancels; or waits for, if the job closes something."""
        tasks = self._closing if closes else self._tasks
        task = asyncio.create_task(job)
        tasks.add(task)
        task.add_done_callback(tasks.discard)
        return task

    def _get_time(self) -> float:
        return asyncio.get_running_loop().time()


class Connector:
    """Makes the right kind of connection for a server; `close` it after its connections.

    `tokens` is the folder with the tokens of servers that use OAuth.
    """

    def __init__(
        self,
        delays: Delays,
        tokens: Path | None = None,
        encrypted_logins: EncryptedLogins | None = None,
    ) -> None:
        self._delays = delays
        self._tokens = tokens
        self._encrypted_logins = encrypted_logins
        self._logins: dict[str, LoginStorage | None] = {}
        self._reaper = ProcessReaper()
        self._installs = InstallSlots(delays.install)

    def __call__(
        self, config: ServerConfig, *, on_change: Callable[[], None], on_line: Callable[[str], None]
    ) -> Connection:
        """Return a connection to a server whose references are resolved."""
        if config.transport is Transport.OPENAPI:
            return OpenApiConnection(config)
        if config.transport is Transport.SKILLS:
            return SkillsConnection(config, on_change=on_change, delays=self._delays)
        login = self.find_login(config)
        auth = make_auth(config, login) if login is not None else None
        return self.connect(config, on_change, on_line, auth)

    def connect(
        self,
        config: ServerConfig,
        on_change: Callable[[], None],
        on_line: Callable[[str], None],
        auth: httpx2.Auth | None,
    ) -> McpConnection:
        """Return a connection to an MCP server with the tokens to send."""
        return McpConnection(
            config,
            on_change=on_change,
            on_line=on_line,
            reaper=self._reaper,
            installs=self._installs,
            delays=self._delays,
            auth=auth,
        )

    def find_login(self, config: ServerConfig) -> LoginStorage | None:
        """Return where a login at a server leaves its tokens, the same object each time."""
        key = hash_server(config)
        if key not in self._logins:
            file = None if self._tokens is None else TokenFile(self._tokens, config)
            logins = self._encrypted_logins
            is_shared = logins is not None and logins.is_shared
            self._logins[key] = logins.find_storage(config) if logins and is_shared else file
        return self._logins[key]

    def close(self) -> None:
        """Stop the process reaper."""
        self._reaper.close()


def _make_login_error(server: str, principal: str) -> LoginRequired:
    return LoginRequired(server, principal, format_login_command(server, principal))


def _log_line(server: ServerState, line: str) -> None:
    """Log what a server wrote, unless it has written too much lately."""
    now = asyncio.get_running_loop().time()
    if now - server.log_from > LOG_SECONDS:
        server.log_from = now
        server.log_bytes = 0
    had_room = server.log_bytes <= LOG_BYTES
    server.log_bytes += len(line)
    if server.log_bytes <= LOG_BYTES:
        _log.info("%s: %s", server.name, line)
    elif had_room:
        limit = f"{LOG_BYTES:,} bytes within {LOG_SECONDS:g} s"
        _log.warning("%s writes more than %s; the rest is not logged.", server.name, limit)


def _failure_from_error(
    config: ServerConfig, error: Exception, lines: Iterable[str]
) -> ServerUnavailable:
    """Return the failure of a start; `lines` is what the server wrote meanwhile."""
    state = FAILED
    reason = str(error)
    if isinstance(error, ServerUnavailable):
        state = error.state
        reason = error.reason
    elif isinstance(error, TimeoutError):
        reason = f"no lists within {config.start_seconds:g} s"
    elif isinstance(error, MCPError):
        reason = f"it refused to list its tools: {error.error.message}"
    known = diagnose([reason, *lines])
    if known is not None:
        reason = f"{reason}: {known.problem}"
    return make_unavailable_error(config, reason, state)
