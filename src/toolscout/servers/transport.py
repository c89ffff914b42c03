"""`AiohttpTransport`: sends the requests of an `httpx2` client with aiohttp.

A transport as `httpx2` knows them: authorization, cookies, redirects and decoding stay with its
client, and so do the names of errors. Proxies are not for here; `carrier` gives none where the
environment names one, and `httpx2` then sends by itself.
"""

import ssl
from collections.abc import AsyncGenerator, Generator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any
from urllib.request import getproxies

import httpx2

from toolscout.errors import MissingExtra

try:
    from aiohttp import (
        ClientConnectionError,
        ClientConnectorDNSError,
        ClientConnectorError,
        ClientError,
        ClientPayloadError,
        ClientResponse,
        ClientSession,
        ClientTimeout,
        ConnectionTimeoutError,
        DummyCookieJar,
        InvalidURL,
        NonHttpUrlClientError,
        ServerDisconnectedError,
        SocketTimeoutError,
        TCPConnector,
    )
    from yarl import URL
except ImportError:  # an upgrade without the extra brings no package that is new in it
    raise MissingExtra("aiohttp", extra="gateway") from None

CONNECTIONS_LIMIT = 100
KEPT_SECONDS = 4.0
"""How long an idle connection is kept; many servers close theirs after 5 s."""
ADDRESSES_KNOWN = 256
HEAD_BYTES = 100 << 10
"""How long a line at the head of an answer may be."""

_ERRORS: tuple[tuple[type[Exception], type[httpx2.TransportError], str], ...] = (
    (ConnectionTimeoutError, httpx2.ConnectTimeout, "no connection came about in time"),
    (SocketTimeoutError, httpx2.ReadTimeout, "no answer came in time"),
    (ClientConnectorDNSError, httpx2.ConnectError, "the name of its host is not known"),
    (ClientConnectorError, httpx2.ConnectError, "no connection came about"),
    (ServerDisconnectedError, httpx2.RemoteProtocolError, "it ended the connection unasked"),
    (ClientConnectionError, httpx2.ReadError, "the connection was lost"),
    (ClientPayloadError, httpx2.RemoteProtocolError, "its answer broke off"),
    (InvalidURL, httpx2.UnsupportedProtocol, "its address cannot be used"),
    (NonHttpUrlClientError, httpx2.UnsupportedProtocol, "its address is not one of HTTP"),
    (ClientError, httpx2.RemoteProtocolError, "its answer is not HTTP"),
    (ValueError, httpx2.LocalProtocolError, "a header has characters that cannot be sent"),
)
"""The first that fits counts. What aiohttp says itself names addresses, and may go to a model.

Only what fails before anything was sent may be a `ConnectError` or a `ConnectTimeout`.
"""


def carrier() -> "AiohttpTransport | None":
    """Return what sends the requests of a client; none if they go through a proxy."""
    proxies = getproxies()
    return (
        None
        if any(proxies.get(scheme) for scheme in ("http", "https", "all"))
        else AiohttpTransport()
    )


class Poster(httpx2.AsyncClient):
    """A client that asks one address many times, and takes it apart once."""

    def build_request(self, method: str, url: httpx2.URL | str, **options: Any) -> httpx2.Request:
        """Return a request that is still to be sent."""
        return super().build_request(method, _apart(url), **options)


@lru_cache(maxsize=ADDRESSES_KNOWN)
def _apart(url: httpx2.URL | str) -> httpx2.URL:
    return httpx2.URL(url)


class AiohttpTransport(httpx2.AsyncBaseTransport):
    """A transport of one client; it connects when the first request is sent."""

    def __init__(self) -> None:
        self._tls = httpx2.create_ssl_context()
        self._session: ClientSession | None = None

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send a request; the body of the answer is still to be read."""
        body = await request.aread()
        with _errors_of_httpx2():
            answer = await self._opened().request(
                request.method,
                _address(request.url),
                headers=request.headers.multi_items(),
                data=body or None,
                allow_redirects=False,
                timeout=_limits(request.extensions.get("timeout", {})),
            )
        return httpx2.Response(
            answer.status,
            headers=answer.raw_headers,
            stream=_Body(answer),
            extensions={"http_version": b"HTTP/1.1", "reason_phrase": _reason(answer)},
        )

    async def aclose(self) -> None:
        """Close all connections."""
        if self._session is not None:
            await self._session.close()

    def _opened(self) -> ClientSession:
        # A session belongs to a loop, and a client may be made before one runs.
        if self._session is None:
            self._session = ClientSession(
                connector=TCPConnector(
                    ssl=self._tls, limit=CONNECTIONS_LIMIT, keepalive_timeout=KEPT_SECONDS
                ),
                cookie_jar=DummyCookieJar(),
                skip_auto_headers=("Accept", "Accept-Encoding", "Content-Type", "User-Agent"),
                auto_decompress=False,
                max_line_size=HEAD_BYTES,
                max_field_size=HEAD_BYTES,
            )
        return self._session


class _Body(httpx2.AsyncByteStream):
    """The body of an answer, as it arrives; closing it early ends its connection."""

    def __init__(self, answer: ClientResponse) -> None:
        self._answer = answer

    async def __aiter__(self) -> AsyncGenerator[bytes]:
        with _errors_of_httpx2():
            async for part in self._answer.content.iter_any():
                yield part

    async def aclose(self) -> None:
        self._answer.close()


@contextmanager
def _errors_of_httpx2() -> Generator[None]:
    try:
        yield
    except (ClientError, ValueError) as error:
        kind, said = next((kind, said) for found, kind, said in _ERRORS if isinstance(error, found))
        cause = error.__cause__
        raise kind(str(cause) if isinstance(cause, ssl.SSLError) else said) from error


def _address(url: httpx2.URL) -> URL:
    # The client has made a header of what stands before the host.
    plain = url.copy_with(userinfo=b"") if url.userinfo else url
    return URL(str(plain), encoded=True)


def _limits(seconds: dict[str, Any]) -> ClientTimeout:
    return ClientTimeout(
        connect=seconds.get("pool"),
        sock_connect=seconds.get("connect"),
        sock_read=seconds.get("read"),
    )


def _reason(answer: ClientResponse) -> bytes:
    return (answer.reason or "").encode("latin-1", "replace")
