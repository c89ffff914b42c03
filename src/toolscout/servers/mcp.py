"""`Client`: a connection to an MCP server, over stdio, streamable HTTP or SSE.

The official SDK speaks the protocol, in both eras. What the server asks for while it works on a
call goes to the `Relay` of that call; what it tells by itself, to `ServerNotifications`.
"""

import asyncio
import contextlib
import logging
import sys
from collections.abc import AsyncGenerator, Callable, Set
from contextlib import asynccontextmanager
from typing import Any, cast

import httpx2
import mcp_types as types
from mcp.client import Client as SdkClient
from mcp.client.sse import sse_client
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError
from pydantic import TypeAdapter, ValidationError

from toolscout.config.secrets import SecretMask
from toolscout.config.servers import ServerConfig, Transport
from toolscout.errors import CallFailed, ProtocolError, ServerUnavailable
from toolscout.names import to_one_line
from toolscout.schemas import Json, is_list, is_object
from toolscout.servers.connection import (
    NEEDS_LOGIN,
    SAID_CHARS,
    Delays,
    Relay,
    Relays,
    describe_error,
    forward_progress_to,
    unavailable,
)
from toolscout.servers.manifest import Manifest
from toolscout.servers.oauth.login import BearerAuth, LoginNeeded, has_own_token
from toolscout.servers.process import MESSAGE_BYTES, ProcessReaper, ServerProcess, run_process
from toolscout.servers.streams import ListingFilter, sifted
from toolscout.servers.updates import ServerNotifications

PAGES_LIMIT = 1_000
HTTP_CONNECT_SECONDS = 10.0
STREAM_SECONDS = 86_400.0
"""How long an SSE stream may be silent."""
SESSION_HEADER = "mcp-session-id"
UNAUTHORIZED = 401
FORGOTTEN = (400, 404)
"""What servers answer to a session that they do not know; 404 is what the protocol says."""

_log = logging.getLogger(__name__)
_RAW: TypeAdapter[Any] = TypeAdapter(dict[str, Any])
_Asked = types.Request[Any, Any]
_UNREACHED = (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout)
"""What fails before anything was sent."""


class Client:
    """One running MCP server."""

    def __init__(
        self,
        config: ServerConfig,
        *,
        on_change: Callable[[], None],
        on_line: Callable[[str], None],
        reaper: ProcessReaper,
        delays: Delays,
        auth: httpx2.Auth | None = None,
        message_bytes: int = MESSAGE_BYTES,
    ) -> None:
        self.ended = asyncio.Event()
        self._config, self._delays, self._auth = config, delays, auth
        self._reaper, self._message_bytes = reaper, message_bytes
        self._mask = SecretMask(config.list_secrets())
        self._on_line = on_line
        self._updates = ServerNotifications(delays, on_change)
        self._stop = asyncio.Event()
        self._ready: asyncio.Future[SdkClient] | None = None
        self._task: asyncio.Task[None] | None = None
        self._child: ServerProcess | None = None
        self._error: Exception | None = None
        self._is_refused = False
        self._is_forgotten = False
        self._relays = Relays()
        self._sieve = ListingFilter()

    @property
    def reason(self) -> str:
        """Why it ended; more is known once it is closed."""
        if self._child is not None and self._child.reason:
            return self._child.reason
        return "it ended" if self._error is None else self._mask.apply(describe_error(self._error))

    async def open(self) -> None:
        """Start the server and agree on a protocol, or raise `ServerUnavailable`."""
        self._ready = asyncio.get_running_loop().create_future()
        # The SDK wants a client to be left in the task that entered it; calls come from others.
        self._task = asyncio.create_task(self._live(self._ready))
        try:
            async with asyncio.timeout(self._config.start_seconds):
                await asyncio.shield(self._ready)
        except TimeoutError:
            await self.close()
            seconds = self._config.start_seconds
            raise unavailable(self._config, f"no answer within {seconds:g} s") from None
        except Exception as error:
            await self.close()
            raise self._unopened(error) from None
        except asyncio.CancelledError:
            await self.close()
            raise

    async def close(self) -> None:
        """Stop the server and wait until it is gone."""
        self._over()
        task = self._task
        if task is None:
            return
        if self._ready is not None and not self._ready.done():
            task.cancel()
        delays = self._delays
        # A server that cannot be reached any more may leave even its farewell unanswered.
        done, _ = await asyncio.wait((task,), timeout=delays.exit + 3 * delays.kill)
        if not done:
            task.cancel()
            await asyncio.wait((task,), timeout=delays.kill)

    async def read_manifest(self) -> Manifest:
        """Return what the server offers; a list other than that of tools may fail."""
        client = self._client()
        offers = client.server_capabilities
        self._sieve.problems.clear()
        tools = await self._listed("tools/list", "tools") if offers.tools else []
        resources = templates = prompts = ()
        if offers.resources:
            resources = await self._listed_if("resources/list", "resources")
            templates = await self._listed_if("resources/templates/list", "resourceTemplates")
        if offers.prompts:
            prompts = await self._listed_if("prompts/list", "prompts")
        return Manifest(
            tools=tuple(tools),
            resources=resources,
            templates=templates,
            prompts=prompts,
            problems=tuple(self._sieve.problems),
            instructions=client.instructions or "",
            protocol=client.protocol_version,
        )

    async def request(self, method: str, params: Json, relay: Relay | None = None) -> Json:
        """Send one request and return its raw result; an error answer raises `MCPError`.

        `ServerUnavailable` means that the server did not get it.
        """
        session = self._client().session
        asked = _Asked(method=method, params=params)
        try:
            if relay is None:
                return await session.send_request(asked, _RAW)
            with self._relays.joined(relay):
                heard = forward_progress_to(relay)
                return await session.send_request(asked, _RAW, progress_callback=heard)
        except MCPError as error:
            raise await self._failure(error, params.get("name") or method) from error
        except ValidationError as error:
            problem = f"the result of {method} has another form than the protocol says"
            raise ProtocolError(self._config.name, problem) from error

    async def watch(self, uris: Set[str], on_update: Callable[[str], None]) -> frozenset[str]:
        """Be told when these resources change, and no others; return those agreed to."""
        agreed = await self._updates.watch(self._client(), self.request, uris, on_update)
        self._client()  # a stream that was refused because all is over is no refusal
        return agreed

    async def _failure(self, error: MCPError, name: str) -> Exception:
        """Return what an error means: one of the server's own, or the end of the connection."""
        if self._is_refused:
            return unavailable(self._config, "its credentials were refused", NEEDS_LOGIN)
        if self._is_forgotten:
            self._over()
            return unavailable(self._config, "it forgot the session")
        if not self.ended.is_set():
            return error
        await self.close()
        if isinstance(self._error, LoginNeeded):
            return unavailable(self._config, str(self._error), NEEDS_LOGIN)
        if isinstance(self._error, _UNREACHED):
            return unavailable(self._config, self.reason)
        said = f"the server is gone ({self.reason}); the call may still have had an effect"
        return CallFailed(name, to_one_line(said, SAID_CHARS))

    def _unopened(self, error: Exception) -> ServerUnavailable:
        if isinstance(error, LoginNeeded):
            return unavailable(self._config, str(error), NEEDS_LOGIN)
        if self._is_refused and not has_own_token(self._config):
            return unavailable(self._config, str(LoginNeeded(self._config.name)), NEEDS_LOGIN)
        if self._is_refused:
            return unavailable(self._config, "it refused the credentials", NEEDS_LOGIN)
        if self._child is not None and self._child.reason:
            return unavailable(self._config, self._child.reason)
        return unavailable(self._config, describe_error(error))

    async def _live(self, ready: asyncio.Future[SdkClient]) -> None:
        try:
            async with self._connected() as client:
                ready.set_result(client)
                listening = asyncio.create_task(self._updates.follow_lists(client))
                try:
                    await self._stop.wait()
                finally:
                    self._updates.close()
                    listening.cancel()
                    await asyncio.wait((listening,))
        except BaseException as error:
            self._error = _reason(error)
            if not ready.done():
                ready.set_exception(self._error)
            if isinstance(error, asyncio.CancelledError):
                raise
        finally:
            self._over()
            if not ready.done():
                ready.cancel()
            elif not ready.cancelled():
                ready.exception()  # looked at, whoever else may wait for it

    def _over(self) -> None:
        self._stop.set()
        self.ended.set()

    @asynccontextmanager
    async def _connected(self) -> AsyncGenerator[SdkClient]:
        async with contextlib.AsyncExitStack() as stack:
            client = SdkClient(
                await self._transport(stack),
                sampling_callback=self._relays.sample,
                elicitation_callback=self._relays.elicit,
                list_roots_callback=self._relays.list_roots,
                logging_callback=self._relays.log,
                message_handler=self._updates.hear,
                cache=None,
            )
            yield await stack.enter_async_context(client)

    async def _transport(self, stack: contextlib.AsyncExitStack) -> Any:
        match self._config.transport:
            case Transport.STDIO:
                return self._process()
            case Transport.SSE:
                streams = sse_client(
                    self._config.url,
                    headers=self._headers(),
                    timeout=HTTP_CONNECT_SECONDS,
                    sse_read_timeout=STREAM_SECONDS,
                    httpx_client_factory=self._http,
                    auth=self._auth,
                )
            case _:
                timeout = httpx2.Timeout(HTTP_CONNECT_SECONDS, read=None)
                http = self._http(self._headers(), timeout, self._auth)
                await stack.enter_async_context(http)
                streams = streamable_http_client(self._config.url, http_client=http)
        return sifted(streams, self._over, self._sieve)

    def _process(self) -> Any:
        config = self._config
        if sys.platform == "win32":
            asked = StdioServerParameters(
                command=config.command,
                args=list(config.args),
                env=dict(config.env),
                cwd=config.cwd or None,
            )
            return sifted(stdio_client(asked), self._over, self._sieve)
        self._child = ServerProcess(self._heard, self._over, self._delays, self._message_bytes)
        return sifted(run_process(self._child, config, self._reaper), self._over, self._sieve)

    def _headers(self) -> dict[str, str]:
        headers = dict(self._config.headers)
        if self._config.token:
            headers["Authorization"] = f"Bearer {self._config.token}"
        return headers

    def _http(
        self,
        headers: dict[str, str] | None = None,
        timeout: httpx2.Timeout | None = None,
        auth: httpx2.Auth | None = None,
    ) -> httpx2.AsyncClient:
        # Costs a tenth of a second, for nothing where all servers speak over stdio.
        from toolscout.servers.transport import Poster, carrier

        hooks = {"response": [self._answered]}
        return Poster(
            headers=headers, timeout=timeout, auth=auth, event_hooks=hooks, transport=carrier()
        )

    async def _answered(self, response: httpx2.Response) -> None:
        # The SDK gives all refusals the same words, so they are told apart here.
        # What `BearerAuth` cannot mend, it raises by itself.
        is_final = not isinstance(self._auth, BearerAuth)
        self._is_refused = is_final and response.status_code == UNAUTHORIZED
        if response.status_code in FORGOTTEN and SESSION_HEADER in response.request.headers:
            self._is_forgotten = True

    async def _listed_if(self, method: str, key: str) -> tuple[Json, ...]:
        try:
            return tuple(await self._listed(method, key))
        except (MCPError, ProtocolError) as error:
            _log.debug("Server %s refused %s: %s", self._config.name, method, error)
            return ()

    async def _listed(self, method: str, key: str) -> list[Json]:
        found: list[Json] = []
        cursor: str | None = None
        for _ in range(PAGES_LIMIT):
            page = await self.request(method, {"cursor": cursor} if cursor else {})
            rows: object = page.get(key)
            found += filter(is_object, rows) if is_list(rows) else ()
            cursor = page.get("nextCursor")
            if not cursor:
                return found
        raise ProtocolError(self._config.name, f"{method} has more than {PAGES_LIMIT} pages")

    def _client(self) -> SdkClient:
        if self._ready is None or not self._ready.done() or self.ended.is_set():
            raise unavailable(self._config, self.reason)
        return self._ready.result()

    def _heard(self, line: str) -> None:
        self._on_line(self._mask.apply(line))


def _reason(error: BaseException) -> Exception:
    """Return the error at the bottom of nested groups."""
    while isinstance(error, BaseExceptionGroup):
        error = cast("BaseExceptionGroup[BaseException]", error).exceptions[0]
    return error if isinstance(error, Exception) else RuntimeError(type(error).__name__)
