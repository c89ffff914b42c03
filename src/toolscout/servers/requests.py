"""`ShortDispatcher`: a shorter way for requests to servers than the SDK's own.

For each request the SDK opens a span, a pair of streams and a timer. Over streamable HTTP the
message then passes two queues and three tasks, each of which waits for a turn of the event loop.
Here the caller's task waits for a future, and over HTTP it makes the POST request itself.
The SDK still writes the envelope, reads the answer to a POST request and checks results. Traced
requests, time limits and streams that can be resumed take its own way.
"""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from types import SimpleNamespace
from typing import Any, cast

import anyio
import httpx2
import mcp_types as types
from mcp.client.session import ClientSession
from mcp.client.streamable_http import RequestContext, StreamableHTTPTransport
from mcp.shared.exceptions import MCPError
from mcp.shared.message import ClientMessageMetadata, SessionMessage
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from opentelemetry import trace
from pydantic_core import from_json

from toolscout.schemas import Json

CANCEL_SECONDS = 5.0
"""How long it may take to tell a server that a request was cancelled."""
PLAIN_OPTIONS = frozenset({"headers", "on_progress"})
POSTED_METHODS = frozenset({"tools/call", "resources/read", "prompts/get"})
"""Requests that are posted directly. Lists are not: their entries are checked on the way."""


def has_collector() -> bool:
    """Tell whether the host has set up a collector; without one OpenTelemetry drops all spans."""
    return not isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider)


class ShortDispatcher:
    """Takes the place of a session's dispatcher, once a protocol is agreed on.

    `http` is the client of a server that is reached over streamable HTTP. `on_error` gets what went
    wrong with its connection, which is then over.
    """

    def __init__(
        self,
        session: ClientSession,
        *,
        http: httpx2.AsyncClient | None,
        url: str,
        on_error: Callable[[Exception], None],
    ) -> None:
        self._session: Any = session
        self._sdk: Any = self._session._dispatcher
        # A POST request of the handshake era belongs to a session, which the SDK keeps.
        is_modern = session.protocol_version in MODERN_PROTOCOL_VERSIONS
        self._http = http if is_modern else None
        self._transport: Any = _Transport(url)
        self._on_error = on_error

    def install(self) -> None:
        """Let the session send its requests here."""
        self._session._dispatcher = self

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
        # Members that are not set are not sent, and `params` must not be null.
        given: Json = {"params": sent} if sent else {}
        request = types.JSONRPCRequest(jsonrpc="2.0", id=number, method=method, **given)
        metadata = ClientMessageMetadata(headers=options.get("headers"))
        is_posted = self._http is not None and method in POSTED_METHODS
        self._sdk._pending[number] = pending
        try:
            await (self._post if is_posted else self._write)(SessionMessage(request, metadata))
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
        if isinstance(outcome, types.ErrorData):
            raise MCPError(code=outcome.code, message=outcome.message, data=outcome.data)
        return outcome

    async def _write(self, message: SessionMessage) -> None:
        try:
            await self._sdk._write_stream.send(message)
        except (anyio.BrokenResourceError, anyio.ClosedResourceError) as error:
            raise MCPError(types.CONNECTION_CLOSED, "Connection closed") from error

    async def _post(self, message: SessionMessage) -> None:
        """Post a request; read its answer, and the messages that come before it."""
        dispatch = partial(
            self._sdk._dispatch,
            on_request=self._session._on_request,
            on_notify=self._session._on_notify,
            sender_ctx=None,
        )
        try:
            await self._transport._handle_post_request(
                RequestContext(
                    client=cast("httpx2.AsyncClient", self._http),
                    session_id=None,
                    session_message=message,
                    metadata=cast("ClientMessageMetadata", message.metadata),
                    read_stream_writer=cast("Any", SimpleNamespace(send=dispatch)),
                )
            )
        except Exception as error:
            self._on_error(error)
            raise MCPError(types.CONNECTION_CLOSED, "Connection closed") from error


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
        with suppress(ValueError, httpx2.StreamError):  # which the SDK turns into an error response
            message = from_json(await response.aread())
            adapter = types.jsonrpc_message_adapter
            item = SessionMessage(adapter.validate_python(message, by_name=False))
            await read_stream_writer.send(item)
            return
        await super()._handle_json_response(response, read_stream_writer, request_id=request_id)
