"""An HTTP interface with an OpenAPI document as a server of the pool."""

import asyncio
import json
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest

from toolscout.catalog import Catalog
from toolscout.config.servers import ServerConfig, Transport
from toolscout.errors import ServerUnavailable, UnknownTool
from toolscout.schemas import Json
from toolscout.servers.openapi.executor import OpenApiConnection
from toolscout.servers.pool import Pool
from toolscout.stores import MemoryStore
from toolscout.tools import Effect

DOCUMENT: Json = {
    "openapi": "3.1.0",
    "info": {"title": "Pets", "version": "1"},
    "paths": {
        "/pets": {
            "get": {
                "operationId": "listPets",
                "summary": "List all pets.",
                "responses": {"200": {"description": "The pets."}},
            }
        }
    },
}


def run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(work)


def config(spec: Path, url: str = "http://127.0.0.1:9") -> ServerConfig:
    return ServerConfig(name="pets", transport=Transport.OPENAPI, url=url, spec=str(spec))


@pytest.fixture
def spec(tmp_path: Path) -> Path:
    path = tmp_path / "pets.json"
    path.write_text(json.dumps(DOCUMENT))
    return path


async def served(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.readuntil(b"\r\n\r\n")
    body = b'{"pets": ["Rex"]}'
    head = f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(body)}"
    writer.write(head.encode() + b"\r\nConnection: close\r\n\r\n" + body)
    await writer.drain()
    writer.close()
    await writer.wait_closed()


def test_an_operation_is_searchable_and_called_over_http(spec: Path):
    async def work() -> None:
        async with await asyncio.start_server(served, "127.0.0.1", 0) as server:
            url = "http://127.0.0.1:{1}".format(*server.sockets[0].getsockname())
            async with Pool([config(spec, url)], Catalog(), MemoryStore()) as pool:
                params: Json = {"name": "listPets", "arguments": {}}
                result = await pool.request("pets", "tools/call", params)
                offered = pool.catalog.get("pets__listPets")

        assert "Rex" in json.dumps(result)
        assert offered is not None
        assert offered.effect is Effect.READ

    run(work())


@pytest.mark.parametrize("content", ["", "no document", '{"swagger": "2.0"}'])
def test_a_document_without_use_makes_the_server_unavailable(tmp_path: Path, content: str):
    path = tmp_path / "pets.json"
    path.write_text(content)

    async def work() -> None:
        with pytest.raises(ServerUnavailable):
            await OpenApiConnection(config(path)).open()

    run(work())


def test_a_document_that_is_not_there_makes_the_server_unavailable(tmp_path: Path):
    async def work() -> None:
        with pytest.raises(ServerUnavailable):
            await OpenApiConnection(config(tmp_path / "none.json")).open()

    run(work())


def test_what_is_no_operation_cannot_be_called(spec: Path):
    async def work() -> None:
        operations = OpenApiConnection(config(spec))
        await operations.open()
        with pytest.raises(UnknownTool):
            await operations.request("tools/call", {"name": "none"})
        await operations.close()
        with pytest.raises(ServerUnavailable):
            await operations.read_manifest()

    run(work())
