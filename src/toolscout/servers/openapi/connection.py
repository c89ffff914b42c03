"""`Operations`: an HTTP interface with an OpenAPI document, as a connection of the pool.

Reads the document when it is opened and answers `tools/list` and `tools/call` as an MCP server
would. Requests are made by `openapi`.
"""

import asyncio
from collections.abc import Callable, Set
from dataclasses import replace

import httpx2

from toolscout.config.servers import ServerConfig
from toolscout.dialects import Dialect, to_definition
from toolscout.errors import ToolscoutError, UnknownTool
from toolscout.schemas import Json, is_object
from toolscout.servers.connection import Relay, unavailable
from toolscout.servers.manifest import Manifest
from toolscout.servers.openapi import OpenApi, read_document

DOCUMENT_BYTES = 64 << 20


class Operations:
    """The operations of one document."""

    def __init__(self, config: ServerConfig) -> None:
        self.ended = asyncio.Event()
        self.reason = "it was closed"
        self._config = config
        self._api: OpenApi | None = None

    async def open(self) -> None:
        """Read the document, or raise `ServerUnavailable`."""
        config = self._config
        headers = dict(config.headers)
        if config.token:
            headers["Authorization"] = f"Bearer {config.token}"
        try:
            async with asyncio.timeout(config.start_seconds):
                document = await _document(config.spec)
            self._api = OpenApi(
                document,
                server=config.name,
                base_url=config.url,
                headers=headers,
                timeout=config.call_seconds,
            )
        except TimeoutError:
            raise unavailable(config, f"no document within {config.start_seconds:g} s") from None
        except (OSError, ValueError, httpx2.HTTPError, ToolscoutError) as error:
            raise unavailable(config, f"its document cannot be used: {error}") from None

    async def close(self) -> None:
        """Close the connections."""
        self.ended.set()
        if self._api is not None:
            await self._api.close()

    async def manifest(self) -> Manifest:
        """Return the operations as tools."""
        tools = self._opened().tools
        # An operation is called by its leaf, as a tool of any other server is.
        rows = [to_definition(replace(t, name=t.leaf), Dialect.MCP) for t in tools]
        return Manifest(tools=tuple(rows), protocol="openapi")

    async def request(self, method: str, params: Json, relay: Relay | None = None) -> Json:
        """Answer `tools/call`."""
        api = self._opened()
        name = str(params.get("name"))
        tool = next((t for t in api.tools if t.leaf == name), None)
        if method != "tools/call" or tool is None:
            raise UnknownTool(name, [])
        arguments: object = params.get("arguments")
        return await api(tool, arguments if is_object(arguments) else {})

    async def watch(self, uris: Set[str], on_update: Callable[[str], None]) -> frozenset[str]:
        """Agree to nothing: operations have no resources."""
        return frozenset()

    def _opened(self) -> OpenApi:
        if self._api is None or self.ended.is_set():
            raise unavailable(self._config, self.reason)
        return self._api


async def _document(spec: str) -> Json:
    source = await _fetched(spec) if "://" in spec else spec
    return await asyncio.to_thread(read_document, source)


async def _fetched(url: str) -> str:
    data = bytearray()
    async with httpx2.AsyncClient() as client, client.stream("GET", url) as response:
        response.raise_for_status()
        async for part in response.aiter_bytes():
            data += part
            if len(data) > DOCUMENT_BYTES:
                raise ValueError(f"it is larger than {DOCUMENT_BYTES:,} bytes")
    return data.decode("utf-8-sig") + "\n"
