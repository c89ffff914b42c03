"""Call the operations of a document over HTTP.

`OpenApi` sends requests to one base URL. `OpenApiConnection` lets the pool use it: it reads the
document when it opens, and answers `tools/list` and `tools/call` as an MCP server would.
"""

import asyncio
from collections.abc import Callable, Mapping, Set
from dataclasses import replace
from http.cookiejar import CookieJar, DefaultCookiePolicy

import httpx2

from toolscout.config.servers import ServerConfig
from toolscout.dialects import Dialect, to_definition
from toolscout.errors import (
    CallFailed,
    CallTimedOut,
    InvalidConfig,
    ServerUnavailable,
    ToolscoutError,
    UnknownTool,
)
from toolscout.names import clean_text
from toolscout.schemas import Json, is_object
from toolscout.servers.connection import Relay, build_headers, make_unavailable_error
from toolscout.servers.manifest import Manifest
from toolscout.servers.openapi import request as requests
from toolscout.servers.openapi.document import DOCUMENT_BYTES, read_document
from toolscout.servers.openapi.operations import tools_from_openapi
from toolscout.servers.openapi.response import build_result
from toolscout.tools import Tool

MAX_REDIRECTS = 5
MAX_BYTES = 8 << 20
TIMEOUT_SECONDS = 30.0


class OpenApi:
    """Calls the operations of one document. Call `aclose` at the end.

    Every request goes to `base_url` with the configured `headers`; nothing in the document, the
    arguments or a response changes that. Cookies are never stored.
    """

    def __init__(
        self,
        document: Json,
        *,
        server: str,
        base_url: str,
        headers: Mapping[str, str] | None = None,
        timeout: float = TIMEOUT_SECONDS,
        max_bytes: int = MAX_BYTES,
    ) -> None:
        self.tools = tools_from_openapi(document, server)
        self._server = server
        self._base = _check_base(base_url)
        self._headers = _check_headers(headers or {})
        self._timeout = timeout
        self._max_bytes = max_bytes
        no_cookies = CookieJar(DefaultCookiePolicy(allowed_domains=()))
        self._client = httpx2.AsyncClient(cookies=no_cookies)

    async def __call__(self, tool: Tool, arguments: Json) -> Json:
        """Call a tool and return an MCP result; a refusal by the server is a result too.

        Raises `InvalidArguments` if a request cannot carry an argument, and `UpstreamError` if
        there is no response.
        """
        template = requests.RequestTemplate.from_tool(tool)
        target = requests.build_target(tool, template, arguments)
        try:
            url = httpx2.URL(f"{str(self._base).rstrip('/')}{target}")
        except httpx2.InvalidURL:
            problem = "make a URL that is too long"
            raise requests.make_argument_error(tool, "", "url", problem) from None
        if _get_origin(url) != _get_origin(self._base):
            raise CallFailed(tool.name, "its path leads to another server")
        content, media = requests.build_payload(template.body, arguments)
        # Arguments cannot replace configured headers.
        headers = {
            "accept": "application/json, */*;q=0.8",
            "accept-encoding": "gzip, deflate",
            "user-agent": "toolscout",
            **requests.build_headers(tool, template, arguments),
            **self._headers,
            "cookie": requests.build_cookies(template, arguments, self._headers.get("cookie", "")),
            "content-type": media,  # empty if the body sets its own
        }
        request = httpx2.Request(
            template.method,
            url,
            headers={k.encode(): v.encode("utf-8", "replace") for k, v in headers.items() if v},
            **content,
            extensions={"timeout": httpx2.Timeout(self._timeout).as_dict()},
        )
        request.read()  # a redirect may need the body again
        try:
            async with asyncio.timeout(self._timeout):
                return await self._request(tool, request)
        except (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.ProxyError):
            raise ServerUnavailable(self._server, "unreachable") from None
        except (TimeoutError, httpx2.TimeoutException):
            raise CallTimedOut(tool.name, self._timeout) from None
        except httpx2.HTTPError as error:
            # The error's own message may contain hosts and addresses.
            said = "no whole answer came back; it may still have had an effect"
            raise CallFailed(tool.name, f"{said} ({type(error).__name__})") from None

    async def aclose(self) -> None:
        """Close the connections."""
        await self._client.aclose()

    async def _request(self, tool: Tool, request: httpx2.Request) -> Json:
        response = await self._client.send(request, stream=True, follow_redirects=False)
        for _ in range(MAX_REDIRECTS):
            further = self._follow_redirect(response)
            if further is None:
                break
            await response.aclose()
            response = await self._client.send(further, stream=True, follow_redirects=False)
        try:
            data = bytearray()
            async for chunk in response.aiter_bytes():
                data += chunk
                if len(data) > self._max_bytes:
                    break
        finally:
            # If the call is cancelled, this also tells the server.
            await response.aclose()
        is_cut = len(data) > self._max_bytes
        note = f"(Cut after {self._max_bytes:,} bytes. Ask for less.)" if is_cut else ""
        uri = f"openapi://{requests.quote_text(self._server)}/{requests.quote_text(tool.leaf)}"
        return build_result(response, bytes(data[: self._max_bytes]), note, uri)

    def _follow_redirect(self, response: httpx2.Response) -> httpx2.Request | None:
        if not response.has_redirect_location:
            return None
        request = response.request
        try:
            url = request.url.join(response.headers["location"])
        except (httpx2.InvalidURL, ValueError):
            return None
        if _get_origin(url) != _get_origin(self._base) or url.userinfo:
            return None
        base = self._base.path.rstrip("/")
        if not f"{url.path}/".startswith(f"{base}/") or requests.has_dots(url.raw_path.decode()):
            return None
        headers = request.headers.copy()
        method = request.method
        content = request.content
        is_post = response.status_code in (301, 302) and method == "POST"
        if is_post or (response.status_code == 303 and method != "HEAD"):
            method = "GET"
            content = b""
            headers.pop("content-type", None)
            headers.pop("content-length", None)
        return httpx2.Request(
            method, url, headers=headers, content=content or None, extensions=request.extensions
        )


def _check_base(base_url: str) -> httpx2.URL:
    try:
        url = httpx2.URL(base_url)
    except (httpx2.InvalidURL, TypeError):
        url = httpx2.URL("")
    if url.scheme not in ("http", "https") or not url.host:
        problem = "is not an http or https URL"
    elif url.userinfo or url.query or url.fragment or requests.has_dots(url.path):
        problem = "has more than a scheme, a host and a path"
    else:
        return url
    raise InvalidConfig("base_url", problem, remedy="Put credentials into headers.")


def _check_headers(headers: Mapping[str, str]) -> dict[str, str]:
    """Return configured headers by lower-case name; raises `InvalidConfig`."""
    for name, value in headers.items():
        if not requests.TOKEN.fullmatch(name) or requests.CONTROL.search(value):
            # The value may be a secret, so the message leaves it out.
            raise InvalidConfig(
                f"headers.{clean_text(name, 80)}",
                "is not an HTTP header",
                remedy="Use letters, digits and hyphens in its name and one line as its value.",
            )
    return {name.lower(): value for name, value in headers.items()}


def _get_origin(url: httpx2.URL) -> tuple[str, str, int | None]:
    return url.scheme, url.host, url.port


class OpenApiConnection:
    """Serves the operations of one document as an MCP server would."""

    def __init__(self, config: ServerConfig) -> None:
        self.ended = asyncio.Event()
        self.reason = "it was closed"
        self._config = config
        self._api: OpenApi | None = None

    async def open(self, relay: Relay | None = None) -> None:
        """Read the document; raises `ServerUnavailable` if that fails."""
        config = self._config
        try:
            async with asyncio.timeout(config.start_seconds):
                source = await _fetch(config.spec) if "://" in config.spec else config.spec
                self._api = await asyncio.to_thread(
                    lambda: OpenApi(
                        read_document(source),
                        server=config.name,
                        base_url=config.url,
                        headers=build_headers(config),
                        timeout=config.call_seconds,
                    )
                )
        except TimeoutError:
            reason = f"no document within {config.start_seconds:g} s"
            raise make_unavailable_error(config, reason) from None
        except (OSError, ValueError, httpx2.HTTPError, ToolscoutError) as error:
            raise make_unavailable_error(config, f"its document cannot be used: {error}") from None

    async def close(self) -> None:
        """Close the connections."""
        self.ended.set()
        if self._api is not None:
            await self._api.aclose()

    async def read_manifest(self) -> Manifest:
        """Return the operations as tools."""
        tools = self._get_opened().tools
        # The pool calls an operation by its leaf, like the tools of other servers.
        rows = [to_definition(replace(t, name=t.leaf), Dialect.MCP) for t in tools]
        return Manifest(tools=tuple(rows), protocol="openapi")

    async def request(self, method: str, params: Json, relay: Relay | None = None) -> Json:
        """Call a tool; `tools/call` is the only method."""
        api = self._get_opened()
        name = str(params.get("name"))
        tool = next((t for t in api.tools if t.leaf == name), None)
        if method != "tools/call" or tool is None:
            raise UnknownTool(name, [])
        arguments: object = params.get("arguments")
        return await api(tool, arguments if is_object(arguments) else {})

    async def renew_roots(self, relay: Relay) -> None:
        """Do nothing: an API knows no folders."""

    async def watch(self, uris: Set[str], on_update: Callable[[str], None]) -> frozenset[str]:
        """Subscribe to nothing: operations have no resources."""
        return frozenset()

    def _get_opened(self) -> OpenApi:
        if self._api is None or self.ended.is_set():
            raise make_unavailable_error(self._config, self.reason)
        return self._api


async def _fetch(url: str) -> str:
    data = bytearray()
    async with httpx2.AsyncClient() as client, client.stream("GET", url) as response:
        response.raise_for_status()
        async for part in response.aiter_bytes():
            data += part
            if len(data) > DOCUMENT_BYTES:
                raise ValueError(f"it is larger than {DOCUMENT_BYTES:,} bytes")
    return data.decode("utf-8-sig") + "\n"
