"""`Connection`: what the pool needs of a running server, whatever it speaks.

Also `Relay`, which takes what a server says during a call back to whoever made the call, and the
words for what went wrong. How connections are made is known to `dials`, when to the pool.

`Delays`: how long the pool waits for what, in one place, so that a test can wait for less.

`Relays`: whom to ask what a server asks for while it works on calls.

A server's question does not say which call it belongs to. With several calls running, the answer
of one client could reach the call of another, so nobody is asked then.
"""

import asyncio
from collections.abc import Callable, Generator, Set
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

import mcp_types as types
from mcp.shared.exceptions import MCPError

from toolscout.config.secrets import SecretMask
from toolscout.config.servers import ServerConfig
from toolscout.errors import CallFailed, ServerUnavailable
from toolscout.names import to_one_line
from toolscout.schemas import Json
from toolscout.servers.manifest import Manifest

SAID_CHARS = 300
FAILED, NEEDS_LOGIN, STOPPED = "failed", "needs login", "stopped"
"""The states in which a server is unavailable."""


class Relay(Protocol):
    """Takes what a server says or asks while it works on a call back to whoever made the call."""

    async def report_progress(
        self, progress: float, total: float | None, message: str | None
    ) -> None:
        """Pass on how far the work is."""
        ...

    async def log(self, params: types.LoggingMessageNotificationParams) -> None:
        """Pass on a log message."""
        ...

    async def sample(self, params: types.CreateMessageRequestParams) -> Any:
        """Have the client's model complete a message."""
        ...

    async def elicit(self, params: types.ElicitRequestParams) -> Any:
        """Ask the client's user."""
        ...

    async def list_roots(self) -> Any:
        """Ask for the client's roots."""
        ...


class Connection(Protocol):
    """One running server. `open` before use; one that ended is not opened again."""

    @property
    def ended(self) -> asyncio.Event:
        """Set once the server is gone, or no longer of use."""
        ...

    @property
    def reason(self) -> str:
        """Why it ended."""
        ...

    async def open(self) -> None:
        """Start the server or reach it, or raise `ServerUnavailable`."""
        ...

    async def close(self) -> None:
        """Stop the server and wait until it is gone."""
        ...

    async def read_manifest(self) -> Manifest:
        """Return what the server offers."""
        ...

    async def request(self, method: str, params: Json, relay: Relay | None = None) -> Json:
        """Send one request and return its raw result; an error answer raises `MCPError`.

        There is no limit of time here; cancelling it cancels the work at the server.
        """
        ...

    async def watch(self, uris: Set[str], on_update: Callable[[str], None]) -> frozenset[str]:
        """Be told when these resources change, and no others; return those agreed to.

        One at a time. Resources that were agreed to before stay so without a gap.
        """
        ...


class ConnectionFactory(Protocol):
    """Makes connections that are not open yet."""

    def __call__(
        self,
        config: ServerConfig,
        *,
        on_change: Callable[[], None],
        on_line: Callable[[str], None],
    ) -> Connection:
        """Return a connection that tells changed lists, and lines written to stderr."""
        ...


def call_failed_from_error(name: str, error: MCPError) -> CallFailed:
    """Return what an error answer means to the model."""
    said = f"{error.error.message} (code {error.error.code})"
    return CallFailed(name, to_one_line(said, SAID_CHARS))


def describe_error(error: Exception) -> str:
    """Return what went wrong with a connection; it may hold secrets."""
    if isinstance(error, MCPError):
        return error.error.message
    if isinstance(error, FileNotFoundError):
        return "its command or folder was not found"
    if isinstance(error, PermissionError):
        return "its command may not be run"
    return f"{type(error).__name__}: {error}"


def make_unavailable_error(
    config: ServerConfig, reason: str, state: str = FAILED
) -> ServerUnavailable:
    """Return why a server cannot be used, in one line without its secrets."""
    mask = SecretMask(config.list_secrets())
    return ServerUnavailable(config.name, state, to_one_line(mask.apply(reason), SAID_CHARS))


@dataclass(frozen=True, slots=True, kw_only=True)
class Delays:
    """Seconds."""

    first_retry: float = 0.5
    """Before the first new start after a failure; doubled with each that follows."""
    most_retry: float = 60.0
    change: float = 0.2
    """How long notices of changed lists are gathered; doubled while they do not end."""
    most_change: float = 30.0
    idle_look: float = 1.0
    """Between two looks for servers that nobody uses."""
    login_look: float = 1.0
    """Between two looks for new tokens of servers that want a login."""
    gate: float = 3.0
    """How long one slow start keeps others from starting."""
    drain: float = 10.0
    """For running calls to end before their server is stopped."""
    exit: float = 2.0
    """For a process to end by itself once its input is closed."""
    kill: float = 2.0
    """Between asking a process to end and killing it."""
    rest: float = 0.2
    """For what a dead process wrote to arrive, and for its own children to end."""


NOBODY = "No call is being worked on."
SEVERAL = "Several calls are being worked on, and it is not known which one asks."


class Relays:
    """The relays of running calls; the methods are callbacks of the SDK."""

    def __init__(self) -> None:
        self._relays: list[Relay] = []

    @contextmanager
    def register(self, relay: Relay) -> Generator[None]:
        """Register a relay for the duration of a call."""
        self._relays.append(relay)
        try:
            yield
        finally:
            self._relays.remove(relay)

    async def sample(self, context: Any, params: types.CreateMessageRequestParams) -> Any:
        """Have a client's model complete a message."""
        relay = self._get_only()
        return await relay.sample(params) if relay else self._refuse()

    async def elicit(self, context: Any, params: types.ElicitRequestParams) -> Any:
        """Ask a client's user."""
        relay = self._get_only()
        return await relay.elicit(params) if relay else self._refuse()

    async def list_roots(self, context: Any) -> Any:
        """Ask for a client's roots."""
        relay = self._get_only()
        return await relay.list_roots() if relay else self._refuse()

    async def log(self, params: types.LoggingMessageNotificationParams) -> None:
        """Pass on a log message, if it is clear whose it is."""
        relay = self._get_only()
        if relay is not None:
            await relay.log(params)

    def _get_only(self) -> Relay | None:
        return self._relays[0] if len(self._relays) == 1 else None

    def _refuse(self) -> types.ErrorData:
        message = SEVERAL if self._relays else NOBODY
        return types.ErrorData(code=types.INVALID_REQUEST, message=message)
