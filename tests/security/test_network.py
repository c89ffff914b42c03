"""A network peer has a port: it must not take memory, connections or information."""

import asyncio
from collections.abc import Iterator

import httpx2
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError

from serving import DEADLINE_SECONDS, Served, served
from toolscout.errors import StoreUnavailable
from toolscout.gateway.middleware import TEXTS
from toolscout.stores.memory import MemoryStore

INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": {"name": "test", "version": "1"},
    },
}
ACCEPT = {"Accept": "application/json, text/event-stream"}


class FailingStore(MemoryStore):
    """A database that can go away."""

    is_down = False

    def read(self, kind: str, key: str) -> bytes | None:
        if self.is_down:
            raise StoreUnavailable("the database", "it is down")
        return super().read(kind, key)


@pytest.fixture
def store() -> FailingStore:
    return FailingStore()


@pytest.fixture
def stored(store: FailingStore) -> Iterator[Served]:
    with served(store=store) as gateway:
        yield gateway


def test_a_gateway_whose_store_is_down_is_not_ready(stored: Served, store: FailingStore):
    before = httpx2.get(f"{stored.url}/readyz")
    store.is_down = True
    down = httpx2.get(f"{stored.url}/readyz")
    store.is_down = False
    after = httpx2.get(f"{stored.url}/readyz")

    assert [answer.status_code for answer in (before, down, after)] == [200, 503, 200]
    assert down.json()["store"] is False


def test_a_new_client_learns_that_the_store_is_down(
    stored: Served, store: FailingStore, caplog: pytest.LogCaptureFixture
):
    async def list_tools() -> None:
        async with Client(streamable_http_client(f"{stored.url}/mcp")) as client:
            await client.list_tools()

    store.is_down = True
    with pytest.raises(ExceptionGroup) as caught:
        asyncio.run(list_tools())

    assert caught.group_contains(MCPError, match=TEXTS["store_down"].split(".")[0])
    assert "Traceback" not in caplog.text


def test_a_client_with_an_older_session_learns_that_the_store_is_down(
    stored: Served, store: FailingStore, caplog: pytest.LogCaptureFixture
):
    store.is_down = True
    unknown = {**ACCEPT, "Mcp-Session-Id": "0" * 32}

    answer = httpx2.post(
        f"{stored.url}/mcp", json=INITIALIZE, headers=unknown, timeout=DEADLINE_SECONDS
    )

    assert answer.status_code == 503
    assert answer.json()["error"]["code"] == "store_down"
    assert answer.headers["Retry-After"]
    assert "Traceback" not in caplog.text
