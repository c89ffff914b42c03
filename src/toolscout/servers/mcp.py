"""`McpConnection`: a connection to an MCP server, over stdio, streamable HTTP or SSE.

The official SDK speaks the protocol, in both eras. Questions that the server asks during a call
go to the `Relay` of that call; changes that it announces go to `ServerNotifications`.
`FilteredStream` removes invalid entries from lists, so that one of them does not cost the others.
`ShortDispatcher` sends requests in fewer steps than the SDK does.
"""

import asyncio
import contextlib
import logging
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Set
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import anyio
import httpx2
import mcp_types as types
from anyio.abc import ObjectReceiveStream
from mcp.client import Client as SdkClient
from mcp.client import session as client_session
from mcp.client.extension import advertise
from mcp.client.session import ClientSession
from mcp.client.sse import sse_client
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.client.streamable_http import (
    RequestContext,
    StreamableHTTPTransport,
    streamable_http_client,
)
from mcp.client.subscriptions import ListenNotSupportedError, ResourceUpdated, SubscriptionLost
from mcp.shared.exceptions import MCPError
from mcp.shared.message import ClientMessageMetadata, SessionMessage
from mcp_types.methods import validate_server_result
from mcp_types.version import LATEST_HANDSHAKE_VERSION, MODERN_PROTOCOL_VERSIONS
from opentelemetry import trace
from pydantic import TypeAdapter, ValidationError
from pydantic_core import from_json, to_json

from toolscout.config.servers import ServerConfig, Transport
from toolscout.errors import CallFailed, ProtocolError, ServerUnavailable
from toolscout.names import to_error_text, to_one_line
from toolscout.schemas import Json, is_list, is_object
from toolscout.servers.connection import (
    MAY_NOT_ASK,
    NEEDS_LOGIN,
    SAID_CHARS,
    Delays,
    Relay,
    Relays,
    build_headers,
    describe_error,
    make_unavailable_error,
    name_sender,
)
from toolscout.servers.isolation import prepare_launch
from toolscout.servers.manifest import Manifest
from toolscout.servers.oauth.login import BearerAuth, LoginNeeded, has_own_token
from toolscout.servers.process import (
    MESSAGE_BYTES,
    InstallSlots,
    ProcessReaper,
    ProcessStream,
    ServerProcess,
    build_environment,
    choose_start_limit,
    dump_json,
    run_process,
)
from toolscout.skills.skill import find_entry_problem

if TYPE_CHECKING:
    from toolscout.servers.transport import HttpClient

PAGES_LIMIT = 1_000
HTTP_CONNECT_SECONDS = 10.0
STREAM_SECONDS = 86_400.0
"""How long an SSE stream may be silent."""
SESSION_HEADER = "mcp-session-id"
EVENTS = "text/event-stream"
UNAUTHORIZED = 401
FORGOTTEN = (400, 404)
"""Answers of servers to a session that they do not know; the protocol says 404."""
APPS = "io.modelcontextprotocol/ui"
APP_TYPE = "text/html;profile=mcp-app"
"""The extension for apps. Whether a client shows them is up to the client."""
TASKS = "io.modelcontextprotocol/tasks"
"""The extension that lets a server answer a call with a task."""
SKILLS = "io.modelcontextprotocol/skills"
"""The extension for skills (SEP-2640)."""
NAME_CHARS = 60
"""Longer names of invalid entries are cut in messages."""
CANCEL_SECONDS = 5.0
"""How long it may take to tell a server that a request was cancelled."""
PLAIN_OPTIONS = frozenset({"headers", "on_progress"})
CALL_METHOD = "tools/call"
PLAIN_MEMBERS = frozenset({"content", "structuredContent", "isError", "resultType", "_meta"})
TEXT_MEMBERS = {"type": "", "text": ""}.keys()
PLAIN_BLOCKS = 20
POSTED_METHODS = frozenset({"tools/call", "resources/read", "prompts/get"})
"""Requests that are posted directly. Lists are not: their entries are checked on the way."""
POST_HEADERS = {"accept": f"application/json, {EVENTS}", "content-type": "application/json"}

_log = logging.getLogger(__name__)
_RAW: TypeAdapter[Any] = TypeAdapter(dict[str, Any])
_Request = types.Request[Any, Any]
_NONE: frozenset[str] = frozenset()
_Send = Callable[[str, Json], Awaitable[Json]]
_UNREACHED = (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout)
"""Errors that occur before anything was sent."""
_LISTS: Mapping[str, str] = {
    "tools": "tools/list",
    "resources": "resources/list",
    "resourceTemplates": "resources/templates/list",
    "prompts": "prompts/list",
}
"""The member of a result that is a list, and the method that gives it."""


class _TaskRequest(_Request):
    """A request about a task, whose id is in the headers over HTTP."""

    name_param = "taskId"


class McpConnection:
    """One running MCP server."""

    def __init__(
        self,
        config: ServerConfig,
        *,
        on_change: Callable[[], None],
        on_line: Callable[[str], None],
        reaper: ProcessReaper,
        installs: InstallSlots,
        delays: Delays,
        auth: httpx2.Auth | None = None,
    ) -> None:
        self.ended = asyncio.Event()
        self._config = config
        self._delays = delays
        self._auth = auth
        self._reaper = reaper
        self._installs = installs
        self._limit = choose_start_limit(config)
        self._mask = config.build_plain_mask()
        self._on_line = on_line
        self._notifications = ServerNotifications(delays, on_change)
        self._stop = asyncio.Event()
        self._ready: asyncio.Future[SdkClient] | None = None
        self._task: asyncio.Task[None] | None = None
        self._process: ServerProcess | None = None
        self._error: Exception | None = None
        self._is_refused = False
        self._is_forgotten = False
        self._has_streamed = False
        self._relays = Relays(config)
        self._problems: list[str] = []
        self._version = LATEST_HANDSHAKE_VERSION
        self._http: HttpClient | None = None
        self._dispatcher: ShortDispatcher | None = None

    @property
    def reason(self) -> str:
        """Why the server ended; more precise once the connection is closed."""
        if self._process is not None and self._process.reason:
            return self._process.reason
        return "it ended" if self._error is None else self._mask.apply(describe_error(self._error))

    async def open(self, relay: Relay | None = None) -> None:
        """Start the server and agree on a protocol, or raise `ServerUnavailable`.

        With a relay, it also waits until the server has the roots that it may ask for.
        """
        if relay is None:
            await self._open()
            return
        # An older server may ask for roots before anybody else knows that it has started.
        with self._relays.register(relay):
            await self._open()
            await self._answer_questions()

    async def _open(self) -> None:
        async with self._installs.enter(self._limit):
            self._ready = asyncio.get_running_loop().create_future()
            # The SDK requires that the task that entered a client also leaves it.
            self._task = asyncio.create_task(self._run(self._ready))
            try:
                async with asyncio.timeout(self._limit.seconds):
                    await asyncio.shield(self._ready)
            except BaseException as error:
                await self.close()
                if isinstance(error, TimeoutError):
                    raise make_unavailable_error(self._config, self._limit.describe_end()) from None
                if isinstance(error, Exception):
                    raise self._explain_start(error) from None
                raise

    async def close(self) -> None:
        """Stop the server and wait until it is gone."""
        self._end()
        task = self._task
        if task is None:
            return
        delays = self._delays
        # A server that cannot be reached may not even answer the last request.
        seconds = delays.exit + 3 * delays.kill
        if self._ready is not None and not self._ready.done():
            if self._process is not None and self._limit.runner:
                self._process.may_install = True
                seconds += 2 * delays.install_exit
            task.cancel()
        done, _ = await asyncio.wait((task,), timeout=seconds)
        if not done:
            task.cancel()
            await asyncio.wait((task,), timeout=delays.kill)

    async def read_manifest(self) -> Manifest:
        """Return all lists of the server; any but that of the tools may fail."""
        client = self._get_client()
        offers = client.server_capabilities
        self._problems.clear()
        tools = await self._list("tools/list", "tools") if offers.tools else []
        resources = templates = prompts = ()
        if offers.resources:
            resources = await self._try_list("resources/list", "resources")
            templates = await self._try_list("resources/templates/list", "resourceTemplates")
        if offers.prompts:
            prompts = await self._try_list("prompts/list", "prompts")
        has_skills = SKILLS in (offers.extensions or ())
        skills = await self._try_list("skills/list", "skills") if has_skills else ()
        skills = tuple(entry for entry in skills if self._is_usable(entry))
        # A file of a skill is reached through the skill, which somebody has to approve.
        files = {row["uri"] for entry in skills for row in entry["resources"]}
        resources = tuple(row for row in resources if row.get("uri") not in files)
        return Manifest(
            tools=tuple(tools),
            resources=resources,
            templates=templates,
            prompts=prompts,
            skills=skills,
            problems=tuple(self._problems),
            instructions=client.instructions or "",
            title=(client.server_info.title or "") if client.server_info else "",
            protocol=client.protocol_version,
        )

    def _is_usable(self, entry: Json) -> bool:
        problem = find_entry_problem(entry)
        if problem:
            label = to_one_line(str(entry.get("uri") or "without an address"), NAME_CHARS)
            self._problems.append(f"One of its skills was left out: {label!r}, for {problem}.")
        return not problem

    async def request(self, method: str, params: Json, relay: Relay | None = None) -> Json:
        """Send one request and return its raw result; an error answer raises `MCPError`.

        `ServerUnavailable` means that the server did not get it.
        """
        session = self._get_client().session
        dispatcher = self._dispatcher
        report = relay.report_progress if relay is not None else None
        kind = _TaskRequest if method.startswith("tasks/") else _Request
        try:
            with self._relays.register(relay) if relay is not None else contextlib.nullcontext():
                if method == CALL_METHOD and dispatcher is not None:
                    raw = await dispatcher.call_tool(params, report)
                else:
                    request = kind(method=method, params=params)
                    raw = await session.send_request(request, _RAW, progress_callback=report)
            return self._check_questions(raw)
        except MCPError as error:
            raise await self._explain_failure(error, params.get("name") or method) from error
        except ValidationError as error:
            problem = f"the result of {method} does not have the form that the protocol requires"
            raise ProtocolError(self._config.name, problem) from error

    def _check_questions(self, raw: Json) -> Json:
        """Return a result whose questions, if it has any, name the server."""
        questions: object = raw.get("inputRequests")
        if not is_object(questions):
            return raw
        if not self._config.may_ask:
            raise MCPError(code=types.INVALID_REQUEST, message=MAY_NOT_ASK)
        named = {
            key: name_sender(self._config, question) if is_object(question) else question
            for key, question in questions.items()
        }
        return {**raw, "inputRequests": named}

    async def renew_roots(self, relay: Relay) -> None:
        """Tell an older server that roots have changed; later ones ask during each call."""
        client = self._get_client()
        if client.protocol_version not in MODERN_PROTOCOL_VERSIONS:
            with self._relays.register(relay):
                await client.session.send_notification(types.RootsListChangedNotification())
                await self._answer_questions()

    async def _answer_questions(self) -> None:
        """Wait until the server has the answers to what it asks outside of calls."""
        if self._version in MODERN_PROTOCOL_VERSIONS:
            return  # it asks nothing there
        with contextlib.suppress(MCPError, TimeoutError):
            async with asyncio.timeout(self._config.start_seconds):
                # A question comes before the answer to a ping, and is noticed before the next.
                for _ in range(2):
                    await self.request("ping", {})
                    if await self._relays.wait_for_answers():
                        await asyncio.sleep(self._delays.roots)

    async def watch(self, uris: Set[str], on_update: Callable[[str], None]) -> frozenset[str]:
        """Watch these resources and no others; return those that the server agreed to."""
        client = self._get_client()
        agreed = await self._notifications.watch(client, self.request, uris, on_update)
        self._get_client()  # a stream that ended with the connection was not refused
        return agreed

    async def _explain_failure(self, error: MCPError, name: str) -> Exception:
        """Return the server's own error, or one that explains why the connection ended."""
        if self._is_refused:
            return make_unavailable_error(self._config, "its credentials were refused", NEEDS_LOGIN)
        if self._is_forgotten:
            self._end()
            return make_unavailable_error(self._config, "it forgot the session")
        if not self.ended.is_set():
            said = error.error
            return MCPError(code=said.code, message=self._mask.apply(said.message), data=said.data)
        await self.close()
        if isinstance(self._error, LoginNeeded):
            return make_unavailable_error(self._config, str(self._error), NEEDS_LOGIN)
        if isinstance(self._error, _UNREACHED):
            return make_unavailable_error(self._config, self.reason)
        said = f"the server is gone ({self.reason}); the call may still have had an effect"
        return CallFailed(name, to_error_text(said, SAID_CHARS))

    def _explain_start(self, error: Exception) -> ServerUnavailable:
        config = self._config
        if self._is_refused and not has_own_token(config):
            error = LoginNeeded(config.name)
        if isinstance(error, LoginNeeded):
            return make_unavailable_error(config, str(error), NEEDS_LOGIN)
        if self._is_refused:
            return make_unavailable_error(config, "it refused the credentials", NEEDS_LOGIN)
        ended = self._process.reason if self._process is not None else ""
        return make_unavailable_error(config, ended or describe_error(error))

    async def _run(self, ready: asyncio.Future[SdkClient]) -> None:
        try:
            async with SdkClient(
                self._open_streams(),
                sampling_callback=self._relays.sample,
                elicitation_callback=self._relays.elicit,
                list_roots_callback=self._relays.list_roots,
                logging_callback=self._relays.log,
                message_handler=self._notifications.handle,
                extensions=[advertise(APPS, {"mimeTypes": [APP_TYPE]}), advertise(TASKS)],
                cache=None,
            ) as client:
                self._version = client.protocol_version
                self._dispatcher = ShortDispatcher(
                    client.session,
                    http=self._http,
                    url=self._config.url,
                    on_json=self._note_accepted,
                    on_error=self._give_up,
                )
                self._dispatcher.install()
                ready.set_result(client)
                listening = asyncio.create_task(self._notifications.follow_lists(client))
                try:
                    await self._stop.wait()
                finally:
                    self._notifications.close()
                    listening.cancel()
                    await asyncio.wait((listening,))
        except BaseException as error:
            self._error = _unwrap_error(error)
            if not ready.done():
                ready.set_exception(self._error)
            if isinstance(error, asyncio.CancelledError):
                raise
        finally:
            self._end()
            if not ready.done():
                ready.cancel()
            elif not ready.cancelled():
                ready.exception()  # retrieve it, even if no caller waits any more

    def _give_up(self, error: Exception) -> None:
        """Note what went wrong with a request over HTTP, and end the connection."""
        self._error = _unwrap_error(error)
        self._end()

    def _end(self) -> None:
        self._stop.set()
        self.ended.set()

    @asynccontextmanager
    async def _open_streams(self) -> AsyncGenerator[tuple["FilteredStream", Any]]:
        config = self._config
        streams: AbstractAsyncContextManager[Any]
        async with contextlib.AsyncExitStack() as stack:
            match config.transport:
                case Transport.STDIO if sys.platform == "win32":
                    launch = prepare_launch(config, build_environment(config), None)
                    parameters = StdioServerParameters(
                        command=launch.command[0],
                        args=list(launch.command[1:]),
                        env=dict(launch.env),
                        cwd=launch.cwd or None,
                    )
                    streams = stdio_client(parameters)
                case Transport.STDIO:
                    self._process = ServerProcess(self._log, self._end, self._delays)
                    streams = run_process(self._process, config, self._reaper)
                case Transport.SSE:
                    streams = sse_client(
                        config.url,
                        headers=build_headers(config),
                        timeout=HTTP_CONNECT_SECONDS,
                        sse_read_timeout=STREAM_SECONDS,
                        httpx_client_factory=self._make_http_client,
                        auth=self._auth,
                    )
                case _:
                    timeout = httpx2.Timeout(HTTP_CONNECT_SECONDS, read=None)
                    http = self._make_http_client(build_headers(config), timeout, self._auth)
                    self._http = await stack.enter_async_context(http)
                    streams = streamable_http_client(config.url, http_client=http)
            read, write = await stack.enter_async_context(streams)
            yield FilteredStream(read, self._end, self._problems, lambda: self._version), write

    def _log(self, line: str) -> None:
        self._on_line(self._mask.apply(line))

    def _make_http_client(
        self,
        headers: dict[str, str] | None = None,
        timeout: httpx2.Timeout | None = None,
        auth: httpx2.Auth | None = None,
    ) -> "HttpClient":
        # Importing it takes a tenth of a second, which servers over stdio need not pay.
        from toolscout.servers.transport import HttpClient, make_transport

        return HttpClient(
            headers=headers,
            timeout=timeout,
            auth=auth,
            event_hooks={"request": [self._delay_stream], "response": [self._note_status]},
            transport=make_transport(),
        )

    async def _delay_stream(self, request: httpx2.Request) -> None:
        # The SDK asks for the rest of a stream as often and as soon as the server likes.
        if request.method == "GET" and EVENTS in request.headers.get("accept", ""):
            if self._has_streamed:
                await asyncio.sleep(self._delays.first_retry)
            self._has_streamed = True

    async def _note_status(self, response: httpx2.Response) -> None:
        # The SDK raises one error for all refusals. `BearerAuth` raises its own.
        is_final = not isinstance(self._auth, BearerAuth)
        self._is_refused = is_final and response.status_code == UNAUTHORIZED
        if response.status_code in FORGOTTEN and SESSION_HEADER in response.request.headers:
            self._is_forgotten = True

    def _note_accepted(self) -> None:
        self._is_refused = False

    async def _try_list(self, method: str, key: str) -> tuple[Json, ...]:
        try:
            return tuple(await self._list(method, key))
        except (MCPError, ProtocolError) as error:
            _log.debug("Server %s refused %s: %s", self._config.name, method, error)
            return ()

    async def _list(self, method: str, key: str) -> list[Json]:
        found: list[Json] = []
        seen = {""}
        cursor = ""
        size = 0
        problem = f"{method} has more than {PAGES_LIMIT:,} pages"
        for _ in range(PAGES_LIMIT):
            page = await self.request(method, {"cursor": cursor} if cursor else {})
            rows: object = page.get(key)
            found += filter(is_object, rows) if is_list(rows) else ()
            cursor = str(page.get("nextCursor") or "")
            if not cursor:
                return found
            size += len(to_json(page))
            if size > MESSAGE_BYTES:
                problem = f"{method} is longer than {MESSAGE_BYTES:,} bytes"
                break
            if cursor in seen:
                problem = f"{method} repeats the cursor {to_one_line(cursor, NAME_CHARS)!r}"
                break
            seen.add(cursor)
        raise ProtocolError(self._config.name, problem)

    def _get_client(self) -> SdkClient:
        if self._ready is None or not self._ready.done() or self.ended.is_set():
            raise make_unavailable_error(self._config, self.reason)
        return self._ready.result()


def _unwrap_error(error: BaseException) -> Exception:
    """Return the error at the bottom of nested groups."""
    while isinstance(error, BaseExceptionGroup):
        error = cast("BaseExceptionGroup[BaseException]", error).exceptions[0]
    return error if isinstance(error, Exception) else RuntimeError(type(error).__name__)


class FilteredStream(ObjectReceiveStream[SessionMessage | Exception]):
    """Removes invalid entries from the lists of a server, and calls `on_end` when it is left.

    The SDK refuses a whole list for one invalid entry: a server with a thousand tools would be
    lost for one without a name. `problems` gets the entries that were removed, and why.
    """

    def __init__(
        self,
        stream: Any,
        on_end: Callable[[], None],
        problems: list[str],
        get_version: Callable[[], str],
    ) -> None:
        self._stream = stream
        self._on_end = on_end
        self._problems = problems
        self._get_version = get_version

    @property
    def last_context(self) -> Any:
        """The context that the SDK's own streams carry along."""
        return getattr(self._stream, "last_context", None)

    async def receive(self) -> SessionMessage | Exception:
        """Return the next message without its invalid entries."""
        item = await self._stream.receive()
        message = item.message if isinstance(item, SessionMessage) else None
        if isinstance(message, types.JSONRPCResponse):
            _complete_task(message.result)
            for key in _LISTS.keys() & message.result.keys():
                entries: object = message.result[key]
                if is_list(entries) and self._find_problem(message.result, key, entries):
                    kept = [one for one in entries if self._is_valid(message.result, key, one)]
                    message.result[key] = kept
        return item

    async def aclose(self) -> None:
        """Close the stream."""
        self._on_end()
        await self._stream.aclose()

    def _is_valid(self, result: Json, key: str, entry: object) -> bool:
        where = self._find_problem(result, key, [entry])
        if where:
            name = entry.get("name") if is_object(entry) else None
            label = to_one_line(str(name or "without a name"), NAME_CHARS)
            self._problems.append(f"One of its {key} was left out: {label!r}, for {where!r}.")
        return not where

    def _find_problem(self, result: Json, key: str, entries: list[Any]) -> str:
        """Return where some entries break the protocol that was agreed on, or nothing."""
        try:
            validate_server_result(_LISTS[key], self._get_version(), {**result, key: entries})
        except ValidationError as error:
            # The place begins with the list and the number of the entry.
            return ".".join(map(str, error.errors()[0]["loc"][2:])) or "it"
        except KeyError:  # the protocol has no such list
            pass
        return ""


class ServerNotifications:
    """Handles the changes that one server announces; one `watch` at a time.

    A server of the handshake era announces changed lists to everyone, and resources that were
    subscribed to one by one. A later server announces either over a stream opened for it.
    """

    def __init__(self, delays: Delays, on_change: Callable[[], None]) -> None:
        self._delays = delays
        self._on_change = on_change
        self._on_update: Callable[[str], None] = lambda uri: None
        self._requested = _NONE
        self._agreed = _NONE
        self._stream: asyncio.Task[None] | None = None

    async def handle(self, message: Any) -> None:
        """Handle a notification; the SDK passes those of a stream as well."""
        method = getattr(message, "method", "")
        if method.endswith("/list_changed"):
            self._on_change()
        elif method == "notifications/resources/updated" and self._stream is None:
            self._on_update(str(message.params.uri))

    async def follow_lists(self, client: SdkClient) -> None:
        """Follow changed lists of servers that announce them to subscribers only."""
        offers = client.server_capabilities
        tools, resources, prompts = (
            bool(offer and offer.list_changed)
            for offer in (offers.tools, offers.resources, offers.prompts)
        )
        while tools or resources or prompts:
            try:
                async with client.listen(
                    tools_list_changed=tools,
                    resources_list_changed=resources,
                    prompts_list_changed=prompts,
                ) as changes:
                    async for _ in changes:
                        self._on_change()
            except (MCPError, ListenNotSupportedError):
                return
            except SubscriptionLost:
                self._on_change()
            await asyncio.sleep(self._delays.most_change)

    async def watch(
        self, client: SdkClient, send: _Send, uris: Set[str], on_update: Callable[[str], None]
    ) -> frozenset[str]:
        """Watch these resources and no others; return those that the server agreed to."""
        offer = client.server_capabilities.resources
        if offer is None or not offer.subscribe:
            return _NONE
        self._on_update = on_update
        if client.protocol_version in MODERN_PROTOCOL_VERSIONS:
            await self._reopen(client, frozenset(uris))
            return self._agreed
        for uri in sorted(uris - self._agreed):
            with contextlib.suppress(MCPError):
                await send("resources/subscribe", {"uri": uri})
                self._agreed |= {uri}
        for uri in sorted(self._agreed - uris):
            self._agreed -= {uri}
            with contextlib.suppress(MCPError):
                await send("resources/unsubscribe", {"uri": uri})
        return self._agreed

    def close(self) -> None:
        """End the stream, if there is one."""
        stream, self._stream = self._stream, None
        if stream is not None:
            stream.cancel()

    async def _reopen(self, client: SdkClient, uris: frozenset[str]) -> None:
        """Open one stream for all resources, in place of the one before."""
        if uris == self._requested:
            return
        if not uris:
            self.close()
            self._requested = _NONE
            self._agreed = _NONE
            return
        opened: asyncio.Future[frozenset[str]] = asyncio.get_running_loop().create_future()
        stream = asyncio.create_task(self._follow(client, uris, opened))
        try:
            agreed = await opened
        except (MCPError, SubscriptionLost):
            return
        except asyncio.CancelledError:
            stream.cancel()
            raise
        # Only now does the old stream end, so that no change is lost between the two.
        self.close()
        self._stream = stream
        self._requested = uris
        self._agreed = agreed

    async def _follow(
        self, client: SdkClient, uris: frozenset[str], opened: asyncio.Future[frozenset[str]]
    ) -> None:
        pause = self._delays.first_retry
        while True:
            try:
                async with client.listen(resource_subscriptions=sorted(uris)) as events:
                    pause = self._delays.first_retry
                    agreed = frozenset(events.honored.resource_subscriptions or ())
                    if not opened.done():
                        opened.set_result(agreed)
                    else:  # changes while there was no stream are unknown
                        for uri in sorted(agreed):
                            self._on_update(uri)
                    async for event in events:
                        if isinstance(event, ResourceUpdated):
                            self._on_update(event.uri)
            except (MCPError, SubscriptionLost) as error:
                if not opened.done():
                    opened.set_exception(error)
                    return
            await asyncio.sleep(pause)
            pause = min(2 * pause, self._delays.most_change)


def has_collector() -> bool:
    """Tell whether the host has set up a collector; without one OpenTelemetry drops all spans."""
    return not isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider)


class ShortDispatcher:
    """Takes the place of a session's dispatcher, once a protocol is agreed on.

    For each request the SDK opens a span, a pair of streams and a timer. Over streamable HTTP the
    message then passes two queues and three tasks, each of which waits for a turn of the event
    loop. Here the caller's task waits for a future, and over HTTP it makes the POST request itself.
    Without this, a call took 22 per cent more of the event loop's time over stdio, and 20 to 26 per
    cent more over HTTP. The SDK still writes the envelope, reads answers to a POST request that are
    not plain JSON, and checks results. Traced requests, time limits and streams that can be resumed
    take its own way. The answer to a call does not become a model either, and the SDK checks its
    result only if that is more than text. Without that, a call over stdio used a fifth more
    processor time of the gateway.

    `http` is the client of a server that is reached over streamable HTTP. `on_json` is called for
    each answer that is JSON, with which the server has accepted the request. `on_error` gets what
    went wrong with its connection, which is then over.
    """

    def __init__(
        self,
        session: ClientSession,
        *,
        http: "HttpClient | None",
        url: str,
        on_json: Callable[[], None],
        on_error: Callable[[Exception], None],
    ) -> None:
        self._session: Any = session
        self._sdk: Any = self._session._dispatcher
        stream = self._sdk._write_stream
        self._process = stream if isinstance(stream, ProcessStream) else None
        self._calls: dict[int, _Pending] = {}
        """The calls that a process has not answered yet."""
        # A POST request of the handshake era belongs to a session, which the SDK keeps.
        is_modern = session.protocol_version in MODERN_PROTOCOL_VERSIONS
        self._http = http if is_modern else None
        self._url = url
        self._transport: Any = _Transport(url)
        self._on_json = on_json
        self._on_error = on_error

    def install(self) -> None:
        """Let the session send its requests here."""
        self._session._dispatcher = self
        if self._process is not None:
            self._process.take_answer = self._take_answer

    def __getattr__(self, name: str) -> Any:
        return getattr(self._sdk, name)

    async def send_raw_request(
        self, method: str, params: Mapping[str, Any] | None, opts: Mapping[str, Any] | None = None
    ) -> Json:
        """Send a request and return its raw result; raises `MCPError` for an error response."""
        options = opts or {}
        is_traced = has_collector() or trace.get_current_span() is not trace.INVALID_SPAN
        is_plain = self._sdk._running and PLAIN_OPTIONS.issuperset(options)
        if is_traced or not is_plain:
            return await self._sdk.send_raw_request(method, params, opts)
        number: int = self._sdk._allocate_id()
        sent = dict(params or {})
        pending = _Pending(options.get("on_progress"))
        if pending.on_progress is not None:
            sent["_meta"] = {**sent.get("_meta", {}), "progressToken": number}
        message: Json = {"jsonrpc": "2.0", "id": number, "method": method}
        if sent:  # `params` must not be null
            message["params"] = sent
        is_posted = self._http is not None and method in POSTED_METHODS
        self._sdk._pending[number] = pending
        if method == CALL_METHOD:  # lists are checked on the way
            self._calls[number] = pending
        try:
            if is_posted:
                await self._post(message, options.get("headers"))
            else:
                await self._write(message, options.get("headers"))
            outcome = await pending.answer
        except asyncio.CancelledError:
            if not is_posted:  # else the server has noticed that the connection was closed
                await self._sdk._final_write(
                    partial(self._sdk._cancel_outbound, number, "caller cancelled", None),
                    shield=True,
                    timeout=CANCEL_SECONDS,
                    describe=f"cancellation of request {number}",
                )
            raise
        finally:
            self._sdk._pending.pop(number, None)
            self._calls.pop(number, None)
        if isinstance(outcome, types.ErrorData):
            raise MCPError(code=outcome.code, message=outcome.message, data=outcome.data)
        return outcome

    async def call_tool(self, params: Json, on_progress: Any) -> Json:
        """Call a tool and return its raw result, which has the form that the protocol requires."""
        data: Json = {"method": CALL_METHOD, "params": dict(params)}
        options: Json = {}
        self._session._stamp(data, options)
        if on_progress is not None:
            options["on_progress"] = on_progress
        raw = await self.send_raw_request(CALL_METHOD, data["params"], options)
        version: str = self._session.protocol_version
        if is_plain_result(raw, is_modern=version in MODERN_PROTOCOL_VERSIONS):
            return raw
        _complete_task(raw)
        with contextlib.suppress(KeyError):  # the protocol has no such method
            validate_server_result(CALL_METHOD, version, raw)
        sdk: Any = client_session
        later = sdk._later_revision_fields(CALL_METHOD, version)
        return {key: value for key, value in raw.items() if key not in later}

    def _take_answer(self, message: Json) -> bool:
        """Give a result to the call that waits for it; tell whether there is one."""
        number = message.get("id")
        pending = self._calls.get(number) if type(number) is int else None
        result: object = message.get("result")
        if pending is None or "method" in message or not is_object(result):
            return False
        pending.send_nowait(result)
        return True

    async def _write(self, message: Json, headers: dict[str, str] | None) -> None:
        try:
            if self._process is not None:
                await self._process.send_json(message)
            else:
                await self._sdk._write_stream.send(_to_session_message(message, headers))
        except (anyio.BrokenResourceError, anyio.ClosedResourceError) as error:
            raise MCPError(types.CONNECTION_CLOSED, "Connection closed") from error

    async def _post(self, message: Json, headers: dict[str, str] | None) -> None:
        """Post a request; read its answer, and the messages that come before it."""
        dispatch = partial(
            self._sdk._dispatch,
            on_request=self._session._on_request,
            on_notify=self._session._on_notify,
            sender_ctx=None,
        )
        http = cast("HttpClient", self._http)
        named = {name.lower(): value for name, value in (headers or {}).items()}
        try:
            answer = await http.post_json(self._url, POST_HEADERS | named, dump_json(message))
            if not isinstance(answer, bytes):
                item = _to_session_message(message, headers)
                await self._transport._handle_post_request(
                    RequestContext(
                        client=cast("httpx2.AsyncClient", answer or http),
                        session_id=None,
                        session_message=item,
                        metadata=cast("ClientMessageMetadata", item.metadata),
                        read_stream_writer=cast("Any", SimpleNamespace(send=dispatch)),
                    )
                )
                return
        except Exception as error:
            self._on_error(error)
            raise MCPError(types.CONNECTION_CLOSED, "Connection closed") from error
        self._on_json()
        try:
            told = from_json(answer)
            if is_object(told) and self._take_answer(told):
                return
            item = SessionMessage(
                types.jsonrpc_message_adapter.validate_python(told, by_name=False)
            )
        except ValueError as error:
            raise MCPError(types.PARSE_ERROR, f"Failed to parse JSON response: {error}") from error
        await dispatch(item)


def is_plain_result(result: Json, *, is_modern: bool) -> bool:
    """Tell whether the result of a tool is text, which needs no other check of its form.

    The SDK's check takes about 50 µs on a processor that has just done something else.
    """
    content: object = result.get("content")
    return (
        PLAIN_MEMBERS.issuperset(result)
        and is_list(content)
        and len(content) <= PLAIN_BLOCKS
        and all(map(_is_text, content))
        and isinstance(result.get("isError", False), bool)
        and is_object(result.get("structuredContent", {}))
        and is_object(result.get("_meta", {}))
        and result.get("resultType") == ("complete" if is_modern else None)
    )


def _is_text(block: object) -> bool:
    return (
        is_object(block)
        and block.keys() == TEXT_MEMBERS
        and block["type"] == "text"
        and isinstance(block["text"], str)
    )


def _complete_task(result: Json) -> None:
    if is_object(result.get("task")):  # which the SDK does not know as a result
        result.setdefault("content", [])


def _to_session_message(message: Json, headers: dict[str, str] | None) -> SessionMessage:
    request = types.JSONRPCRequest.model_validate(message, by_name=False)
    return SessionMessage(request, ClientMessageMetadata(headers=headers))


class _Pending:
    """A request without an answer, in the dispatcher's table in place of a pair of streams."""

    def __init__(self, on_progress: Any) -> None:
        self.on_progress = on_progress
        self.answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.send = self

    def send_nowait(self, outcome: object) -> None:
        """Take the result or the error."""
        if not self.answer.done():
            self.answer.set_result(outcome)


class _Transport(StreamableHTTPTransport):
    """Parses an answer once; the SDK parses it once for each kind of message that it may be."""

    async def _handle_json_response(
        self, response: httpx2.Response, read_stream_writer: Any, *, request_id: types.RequestId
    ) -> None:
        with contextlib.suppress(
            ValueError, httpx2.StreamError
        ):  # which the SDK turns into an error response
            item = _read_message(await response.aread())
            await read_stream_writer.send(item)
            return
        await super()._handle_json_response(response, read_stream_writer, request_id=request_id)


def _read_message(data: bytes) -> SessionMessage:
    # In two steps, as in `servers.process`: this reads the text once.
    message = from_json(data)
    return SessionMessage(types.jsonrpc_message_adapter.validate_python(message, by_name=False))
