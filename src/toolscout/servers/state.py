"""`ServerState`: one server of the pool, with its phase, its counters and its connection.

A connection that serves one session or principal alone has a state of its own, by its `Caller`.
`CallSlots` are the places for its running calls, for which callers take turns. `CallSlot` gives
a call one of them and limits its time. While a person or a model answers a question of the server,
the call frees its place for others and its clock stops.
`WatchedResources` remembers the resources to watch at each server.
"""

import asyncio
import logging
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import AsyncGenerator, Callable, Generator, Set
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Self

import mcp_types as types
from mcp.shared.exceptions import MCPError

from toolscout.config.redaction import SecretKind, redact_json
from toolscout.config.servers import Login, ServerConfig, Share
from toolscout.errors import CallTimedOut, ToolscoutError
from toolscout.names import digest_session
from toolscout.servers.approvals import HeldDefinition
from toolscout.servers.connection import FAILED, NEEDS_LOGIN, STOPPED, Connection, Relay
from toolscout.servers.manifest import Manifest
from toolscout.servers.oauth.tokens import LoginStorage

LOG_LINES = 50
LOG_SECONDS = 60.0
LOG_BYTES = 256 << 10
"""What a server may write to the log within `LOG_SECONDS`, so that it does not fill a disk."""

_NONE: frozenset[str] = frozenset()
_log = logging.getLogger(__name__)


class Phase(StrEnum):
    """What a server is doing."""

    CONFIGURED = "configured"
    KNOWN = "known"
    STARTING = "starting"
    READY = "ready"
    FAILED = FAILED
    NEEDS_LOGIN = NEEDS_LOGIN
    STOPPED = STOPPED

    @property
    def meaning(self) -> str:
        """What the phase means, in one sentence for a person."""
        return _MEANINGS[self]


_MEANINGS = {
    Phase.CONFIGURED: "It is in the configuration, but it has never listed its tools.",
    Phase.KNOWN: "Its tools are known from an earlier run, and it starts with the first call.",
    Phase.STARTING: "It is being started.",
    Phase.READY: "It runs and answers calls.",
    Phase.FAILED: "It could not be started, or it ended; the reason is shown with it.",
    Phase.NEEDS_LOGIN: "It wants somebody to log in before it answers.",
    Phase.STOPPED: "It was stopped, by a person or because nobody used it for a while.",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """On whose behalf a request is made."""

    principal: str = ""
    """Empty over stdio and without tokens."""
    session: str = ""
    folder: str = ""
    """Where the client was started, if that is known."""

    @property
    def label(self) -> str:
        """A name for people: the principal, the folder, or a digest of the session."""
        return self.principal or self.folder or digest_session(self.session)

    def find_owner(self, config: ServerConfig) -> "Caller | None":
        """Return whose connection its requests to a server use, or None if everybody shares it."""
        if config.share is Share.SESSION:
            return self
        if self.principal and (config.share is Share.PRINCIPAL or config.login == Login.USER):
            return Caller(principal=self.principal)
        return None


NO_CALLER = Caller()


@dataclass(slots=True, kw_only=True)
class ServerState:
    """One server; all times are those of the event loop."""

    config: ServerConfig
    slots: "CallSlots" = field(init=False)
    name: str = field(init=False)
    phase: Phase = Phase.CONFIGURED
    reason: str = ""
    since: float = 0.0
    starts: int = 0
    failures: int = 0
    """Failed starts and unexpected ends since the last answered call."""
    silences: int = 0
    """Calls in a row that were not answered in time."""
    waiting: int = 0
    """Calls that wait for a slot or for the server to start."""
    running: int = 0
    resting: int = 0
    """Running calls that wait for an answer of their client."""
    used: float = 0.0
    retry_at: float = 0.0
    owner: Caller | None = None
    """Whose own connection this is; None for the one that everybody shares."""
    owned: dict[Caller, "ServerState"] = field(default_factory=dict[Caller, "ServerState"])
    """The connections that serve one session or principal alone."""
    token_file: LoginStorage | None = None
    login: str = ""
    """The login that was stored at the last start."""
    is_personal: bool = False
    """Whether its requests carry the tokens of somebody's login."""
    manifest: Manifest | None = None
    """Without its tools, if the catalogue is not in memory."""
    places: frozenset[str] = frozenset()
    """Where its apps and skills have addresses; see `find_place`."""
    list_again: Callable[[], None] = lambda: None
    """Asks the open connection for its lists again."""
    problems: tuple[str, ...] = ()
    held_definitions: tuple[HeldDefinition, ...] = ()
    """What of its list may not be used until a person approves it."""
    log_bytes: int = 0
    """What it has written to the log since `log_from`."""
    log_from: float = 0.0
    lines: deque[str] = field(default_factory=lambda: deque(maxlen=LOG_LINES))
    """The last lines that the server wrote to stderr, with secrets masked."""
    connection: Connection | None = None
    has_changed: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when its lists have to be read again; each connection has another."""
    opening: asyncio.Task[Connection] | None = None
    idle: asyncio.Event = field(default_factory=asyncio.Event)
    """Set while no call is running."""
    is_held: bool = False
    """Whether the server stays stopped until somebody starts it by name."""

    def __post_init__(self) -> None:
        self.name = self.config.name
        self.slots = CallSlots(self.config.concurrency)
        self.idle.set()

    @property
    def is_learning(self) -> bool:
        """Whether its tools are unknown because its first start has not ended yet."""
        is_early = self.phase in (Phase.CONFIGURED, Phase.STARTING)
        return self.manifest is None and not self.failures and is_early

    @property
    def is_busy(self) -> bool:
        """Whether a call uses it, or it is about to start for one."""
        return bool(self.waiting or self.running or self.opening)

    @property
    def is_users_own(self) -> bool:
        """Whether it carries the login of one principal."""
        owner = self.owner
        return owner is not None and bool(owner.principal) and self.config.login == Login.USER

    @property
    def lists_only(self) -> bool:
        """Whether it lists the tools for everybody, and all calls go over other connections."""
        return self.owner is None and self.config.share is Share.SESSION

    @property
    def all_states(self) -> "list[ServerState]":
        """The state itself, and those of the connections that serve somebody alone."""
        return [self, *self.owned.values()]

    @property
    def connected(self) -> "list[ServerState]":
        """Those of its states that have a connection now."""
        return [state for state in self.all_states if state.connection is not None]

    @property
    def undecided(self) -> int:
        """How many definitions wait until a person approves or rejects them."""
        return sum(not item.is_rejected for item in self.held_definitions)

    @contextmanager
    def count_waiting(self) -> Generator[None]:
        """Count a call as waiting."""
        self.waiting += 1
        try:
            yield
        finally:
            self.waiting -= 1

    @contextmanager
    def count_running(self) -> Generator[None]:
        """Count a waiting call as running."""
        self.waiting -= 1
        self.running += 1
        self.idle.clear()
        try:
            yield
        finally:
            self.waiting += 1
            self.running -= 1
            if not self.running:
                self.idle.set()


class CallSlots:
    """The slots of one server; callers who wait for one take turns.

    A caller with a name takes at most three quarters of them, so that some are left for others.
    """

    def __init__(self, size: int) -> None:
        self._free = size
        self._most = max(1, size * 3 // 4)
        self._taken: Counter[str] = Counter()
        self._waiting: OrderedDict[str, deque[asyncio.Future[None]]] = OrderedDict()
        """The calls of each caller that wait; the caller whose turn it is comes first."""

    def count(self, caller: str) -> int:
        """Return how many slots a caller has and waits for."""
        return self._taken[caller] + len(self._waiting.get(caller, ()))

    async def acquire(self, caller: str = "") -> None:
        """Wait for a slot."""
        if self._may_take(caller):  # so no other call of this caller waits
            self._take(caller)
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(caller, deque()).append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.cancelled():
                self._leave(caller, turn)
            else:
                self.release(caller)  # it got the slot when it was cancelled
            raise

    def release(self, caller: str = "") -> None:
        """Give a slot back, and to the next who waits."""
        self._free += 1
        self._taken[caller] -= 1
        if not self._taken[caller]:
            del self._taken[caller]
        for following in filter(self._may_take, list(self._waiting)):
            turn = next((one for one in self._waiting[following] if not one.done()), None)
            if turn is not None:  # else all were cancelled a moment ago
                self._waiting.move_to_end(following)
                self._leave(following, turn)
                self._take(following)
                turn.set_result(None)
                return

    def _may_take(self, caller: str) -> bool:
        return self._free > 0 and (not caller or self._taken[caller] < self._most)

    def _take(self, caller: str) -> None:
        self._free -= 1
        self._taken[caller] += 1

    def _leave(self, caller: str, turn: asyncio.Future[None]) -> None:
        turns = self._waiting[caller]
        turns.remove(turn)
        if not turns:
            del self._waiting[caller]


class CallSlot:
    """The slot and the clock of one call. Entering it waits until a slot is free."""

    def __init__(self, server: ServerState, caller: str = "") -> None:
        self._server = server
        self._caller = caller
        self._slots = server.slots
        self._has_slot = False
        self._is_resting = False
        self._is_over = False
        self._clock: asyncio.Timeout | None = None
        self._seconds_left = 0.0
        self._questions = 0

    async def __aenter__(self) -> Self:
        await self._slots.acquire(self._caller)
        self._has_slot = True
        return self

    async def __aexit__(self, *_: object) -> None:
        self._is_over = True
        self._wake()
        self._release()

    def limit(self, seconds: float) -> "_Limit":
        """Return a context that raises `TimeoutError` after some seconds, without those at rest."""
        return _Limit(self, seconds)

    def start_clock(self, seconds: float) -> asyncio.Timeout:
        """Return the clock of the call; while the call rests, it stands still."""
        # A server may have a question open since its start.
        self._clock = asyncio.timeout(None if self._is_resting else seconds)
        self._seconds_left = seconds
        return self._clock

    def stop_clock(self) -> None:
        """Forget the clock of the call."""
        self._clock = None

    def wrap_relay(self, relay: Relay | None) -> "_RestingRelay | None":
        """Return a relay that lets the call rest while it asks a question."""
        if relay is None:
            return None
        return _RestingRelay(relay, self, self._server.config.redact)

    @asynccontextmanager
    async def pause(self) -> AsyncGenerator[None]:
        """Let the call rest; it rests until all questions are answered."""
        self._questions += 1
        if not (self._is_over or self._is_resting):
            self._is_resting = True
            self._server.resting += 1
            self._release()
            clock = self._clock
            if clock is not None and not clock.expired():
                self._seconds_left = (clock.when() or 0.0) - asyncio.get_running_loop().time()
                clock.reschedule(None)
        try:
            yield
        except BaseException:
            # A cancelled question cannot wait for a slot, so the call goes on without one.
            self._questions -= 1
            if not self._questions:
                self._wake()
            raise
        self._questions -= 1
        if not self._questions:
            await self._slots.acquire(self._caller)
            if self._is_over or self._questions or not self._is_resting:
                self._slots.release(self._caller)
            else:
                self._has_slot = True
                self._wake()

    def _wake(self) -> None:
        if not self._is_resting:
            return
        self._is_resting = False
        self._server.resting -= 1
        clock = self._clock
        if clock is not None and not clock.expired():
            clock.reschedule(asyncio.get_running_loop().time() + self._seconds_left)

    def _release(self) -> None:
        if self._has_slot:
            self._has_slot = False
            self._slots.release(self._caller)


class _Limit:
    """The time limit of a call. A class, because a generator for each call would cost more."""

    def __init__(self, slot: CallSlot, seconds: float) -> None:
        self._slot = slot
        self._clock = slot.start_clock(seconds)

    async def __aenter__(self) -> None:
        await self._clock.__aenter__()

    async def __aexit__(self, *error: Any) -> bool | None:
        self._slot.stop_clock()
        return await self._clock.__aexit__(*error)


class _RestingRelay:
    """A relay whose questions let the call rest, and whose messages hold no secrets."""

    def __init__(self, relay: Relay, slot: CallSlot, kinds: tuple[SecretKind, ...]) -> None:
        self._relay = relay
        self._slot = slot
        self._kinds = kinds
        self._redacting = asyncio.Lock()
        """Lets messages through one by one, in the order in which they came."""

    async def report_progress(
        self, progress: float, total: float | None, message: str | None
    ) -> None:
        message = await self._redact(message) if message else message
        await self._relay.report_progress(progress, total, message)

    async def log(self, params: types.LoggingMessageNotificationParams) -> None:
        data = await self._redact(params.data)
        await self._relay.log(params.model_copy(update={"data": data}))

    async def ask(self, request: types.InputRequest) -> Any:
        async with self._slot.pause():
            return await self._relay.ask(request)

    async def catch_up(self) -> None:
        """Wait for the messages that came before: after its answer, a client hears no others."""
        async with self._redacting:
            pass

    async def _redact(self, value: Any) -> Any:
        if not self._kinds:
            return value
        async with self._redacting:
            return await asyncio.to_thread(redact_json, value, self._kinds)


class WatchedResources:
    """The resources that clients watch, by server, across restarts.

    A server is asked once for each resource. After a restart it is asked again, and every resource
    then counts as changed. The gateway knows who wants to hear of a change.
    """

    def __init__(self) -> None:
        self.on_update: Callable[[str, str], None] = lambda server, uri: None
        """Called with the server and the URI of a resource that changed, watched or not."""
        self._wanted: dict[str, frozenset[str]] = {}
        self._agreements: dict[str, tuple[Connection, frozenset[str]]] = {}
        self._locks: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)

    def get_wanted(self, server: str) -> frozenset[str]:
        """Return the resources of a server that clients want to watch."""
        return self._wanted.get(server, _NONE)

    def get_agreed(self, server: str) -> frozenset[str]:
        """Return the resources whose changes a server last agreed to announce."""
        _, uris = self._agreements.get(server, (None, _NONE))
        return uris & self.get_wanted(server)

    def set_wanted(self, server: str, uris: Set[str]) -> bool:
        """Set the resources to watch, and tell whether some of them are new."""
        has_new = not uris <= self.get_wanted(server)
        self._wanted[server] = frozenset(uris)
        return has_new

    async def apply(self, server: str, connection: Connection, seconds: float) -> frozenset[str]:
        """Ask a running server to announce changes of the wanted resources; return the agreed."""
        async with self._locks[server]:
            wanted = self.get_wanted(server)
            try:
                async with asyncio.timeout(seconds):
                    agreed = await connection.watch(wanted, lambda uri: self.on_update(server, uri))
            except TimeoutError:
                raise CallTimedOut("resources/subscribe", seconds) from None
            former, uris = self._agreements.get(server, (connection, _NONE))
            self._agreements[server] = (connection, agreed)
            if former is not connection:
                # The server has restarted, and nobody knows what changed meanwhile.
                known = uris & self.get_wanted(server)
                for uri in sorted(known - agreed):
                    _log.warning("Server %s no longer announces changes of %r.", server, uri)
                for uri in sorted(known & agreed):
                    self.on_update(server, uri)
            return agreed

    async def renew(self, server: str, connection: Connection, seconds: float) -> None:
        """Ask a restarted server for the resources that it announced before."""
        if server not in self._agreements:
            return
        try:
            await self.apply(server, connection, seconds)
        except (ToolscoutError, MCPError) as error:
            _log.warning("The resources of server %s are not watched: %s", server, error)
