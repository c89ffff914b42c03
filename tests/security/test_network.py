"""A network peer has a port: it must not take memory, connections or information."""

import asyncio
import json
import resource
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress

import httpx2
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError

from serving import DEADLINE_SECONDS, Served, served
from toolscout.errors import StoreUnavailable
from toolscout.gateway.audit import read_entries
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
HEAD = b"POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
MEGABYTE = 1 << 20
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


def test_a_probe_may_leave_the_store_out_where_all_replicas_share_it(
    stored: Served, store: FailingStore
):
    store.is_down = True

    answer = httpx2.get(f"{stored.url}/readyz?ignore=store")

    assert (answer.status_code, answer.json()["ready"]) == (200, True)
    assert answer.json()["store"] is False


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


def send_raw(gateway: Served, *parts: bytes) -> bytes:
    """Send bytes over a connection of its own; return what comes back until the gateway closes."""
    host, _, port = gateway.url.removeprefix("http://").partition(":")
    with socket.create_connection((host, int(port)), DEADLINE_SECONDS) as connection:
        with suppress(ConnectionError):  # closed before all was sent
            for part in parts:
                connection.sendall(part)
        received = b""
        with suppress(ConnectionError):
            while data := connection.recv(4096):
                received += data
    return received


@pytest.fixture
def impatient() -> Iterator[Served]:
    with served(read_seconds=0.5) as gateway:
        yield gateway


@pytest.mark.parametrize(
    "head",
    [HEAD + b"X-Long: " + b"x" * 20 * MEGABYTE, HEAD + b"X: y\r\n" * 2 * MEGABYTE],
    ids=["one long header", "many headers"],
)
def test_a_head_without_an_end_is_refused_early(stored: Served, head: bytes):
    before = measure_peak()

    with ThreadPoolExecutor(20) as threads:
        answers = list(threads.map(send_raw, [stored] * 20, [head] * 20))

    assert all(not answer or b" 431 " in answer.splitlines()[0] for answer in answers)
    assert measure_peak() - before < 100 * MEGABYTE


def measure_peak() -> int:
    """Return the most bytes of memory that this process had, and so the gateway in it."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


@pytest.mark.parametrize(
    "part",
    [b"", b"\r\n", b"GET / HT", HEAD, HEAD + b"Content-Length: 100\r\n\r\n{"],
    ids=["nothing", "an empty line", "a line", "a head", "a body"],
)
def test_a_request_that_is_never_complete_is_ended(impatient: Served, part: bytes):
    answer = send_raw(impatient, part)

    assert b" 408 " in answer.splitlines()[0]


@pytest.mark.parametrize("part", [b"GET / HT", HEAD])
def test_a_second_request_that_is_never_complete_is_ended_too(impatient: Served, part: bytes):
    whole = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"

    for parts in ([whole + part], [whole, part]):
        answer = send_raw(impatient, *parts)

        assert answer.startswith(b"HTTP/1.1 200 ")
        assert b" 408 " in answer


def test_a_connection_may_send_many_requests_one_after_the_other(impatient: Served):
    with httpx2.Client(base_url=impatient.url, headers=ACCEPT) as http:
        for _ in range(50):
            assert http.post("/mcp", json=INITIALIZE).status_code == 200


def test_an_answer_may_take_longer_than_the_request(impatient: Served):
    async def read() -> int:
        async with httpx2.AsyncClient(base_url=impatient.url, headers=ACCEPT) as http:
            opened = await http.post("/mcp", json=INITIALIZE)
            http.headers["Mcp-Session-Id"] = opened.headers["mcp-session-id"]
            async with http.stream("GET", "/mcp", timeout=2) as stream:
                with pytest.raises(httpx2.ReadTimeout):  # the stream stays open and silent
                    await anext(stream.aiter_bytes())
                return stream.status_code

    assert asyncio.run(read()) == 200


TOKENS = {"ann": {"token": "a token that nobody can guess"}}
ANN = {"Authorization": "Bearer a token that nobody can guess"}


def test_connections_without_a_token_leave_room_for_others():
    with served(tokens=TOKENS, max_unauthenticated=5) as gateway, ExitStack() as stack:
        host, _, port = gateway.url.removeprefix("http://").partition(":")

        def connect() -> socket.socket:
            opened = socket.create_connection((host, int(port)), DEADLINE_SECONDS)
            return stack.enter_context(opened)

        known = stack.enter_context(httpx2.Client(headers=ANN, timeout=DEADLINE_SECONDS))
        assert known.get(f"{gateway.url}/status").status_code == 200
        first, second = connect(), connect()
        second.sendall(HEAD)
        for silent in (first, second):
            silent.settimeout(0.05)
        answers: dict[socket.socket, bytes] = {}
        while len(answers) < 2:
            connect()
            for silent in {first, second} - answers.keys():
                with suppress(TimeoutError):
                    answers[silent] = silent.recv(4096)

        assert known.get(f"{gateway.url}/status").status_code == 200
        assert httpx2.get(f"{gateway.url}/status", headers=ANN).status_code == 200
        assert all(b" 503 " in answer for answer in answers.values())


def test_a_flood_of_wrong_tokens_is_slowed_down_and_fills_no_record():
    store = MemoryStore()

    async def guess(url: str) -> list[int]:
        async with (
            asyncio.timeout(DEADLINE_SECONDS),
            httpx2.AsyncClient(timeout=DEADLINE_SECONDS) as client,
        ):
            wrong = [{"Authorization": f"Bearer guess-{number}"} for number in range(90)]
            answers = [client.get(f"{url}/status", headers=headers) for headers in wrong]
            return [answer.status_code for answer in await asyncio.gather(*answers)]

    with served(store=store, tokens=TOKENS) as gateway:
        assert set(asyncio.run(guess(gateway.url))) == {401}
        assert httpx2.get(f"{gateway.url}/status", headers=ANN).status_code == 200

    noted = [entry for entry in read_entries(store) if entry["event"] == "token"]
    assert 30 <= len(noted) < 60
    assert all(entry["source"] == "127.0.0.1" for entry in noted)
    assert len({entry["token_digest"] for entry in noted}) == len(noted)
    assert "guess-" not in json.dumps(noted)
