"""A store that stalls for one client delays nobody else."""

import asyncio
import threading
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, Literal

import httpx2
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from gateway.fleet import text_of
from serving import DEADLINE_SECONDS, TIME, Served, served
from toolscout.gateway.forward import STORED
from toolscout.gateway.resume import CLIENT_KIND
from toolscout.sessions.session_state import SESSION_KIND
from toolscout.sessions.usage import USAGE_KIND
from toolscout.stores import background
from toolscout.stores.memory import MemoryStore
from toolscout.stores.store import Append, Change, Merge, Put, Version

NOW = {"name": "time__get_current_time", "arguments": {"timezone": "UTC"}}
LONG = {"name": "time__get_current_time", "arguments": {"timezone": "x" * 4_000}}
TOKENS = {"ann": {"token": "open sesame"}, "bob": {"token": "swordfish"}}
ANN, BOB = {"Authorization": "Bearer open sesame"}, {"Authorization": "Bearer swordfish"}

Touches = Callable[[str, str, str], bool]
"""Tells an operation, a kind and a key that a stalling store holds up from all others."""


class StallingStore(MemoryStore):
    """Holds up some operations until the test releases them."""

    def __init__(self) -> None:
        super().__init__()
        self.reached = threading.Event()
        self._released = threading.Event()
        self._touches: Touches | None = None

    def stall(self, touches: Touches) -> None:
        self._touches = touches

    def release(self) -> None:
        self._touches = None
        self._released.set()

    def read(self, kind: str, key: str) -> bytes | None:
        self._wait("read", kind, key)
        return super().read(kind, key)

    def read_version(self, kind: str, key: str) -> tuple[bytes | None, Version]:
        self._wait("read", kind, key)
        return super().read_version(kind, key)

    def write_all(self, changes: Sequence[Change]) -> None:
        for change in changes:
            if isinstance(change, Put | Merge):
                self._wait("write", change.kind, change.key)
            elif isinstance(change, Append):
                self._wait("append", change.kind, change.value.decode())
        super().write_all(changes)

    def _wait(self, operation: str, kind: str, key: str) -> None:
        if self._touches is not None and self._touches(operation, kind, key):
            self.reached.set()
            assert self._released.wait(DEADLINE_SECONDS)


@pytest.fixture
def store() -> Iterator[StallingStore]:
    made = StallingStore()
    yield made
    made.release()


@pytest.fixture
def gateway(store: StallingStore) -> Iterator[Served]:
    with served(TIME, store=store, tokens=TOKENS, max_result_tokens=100) as running:
        assert running.known.wait(DEADLINE_SECONDS)
        try:
            yield running
        finally:
            store.release()


@asynccontextmanager
async def connected(
    gateway: Served, who: dict[str, str], mode: Literal["auto", "legacy"] = "auto"
) -> AsyncGenerator[Client]:
    async with (
        httpx2.AsyncClient(headers=who, timeout=DEADLINE_SECONDS) as http,
        Client(streamable_http_client(f"{gateway.url}/mcp", http_client=http), mode=mode) as client,
    ):
        yield client


async def search(client: Client) -> str:
    return text_of(await client.call_tool("tool_search", {"query": "what time is it now"}))


async def check_served(client: Client) -> None:
    """Search and call, as a client does that nobody holds up."""
    assert "time__get_current_time" in await search(client)
    assert "UTC" in text_of(await client.call_tool("tool_call", NOW))


def run(conversation: Coroutine[Any, Any, None]) -> None:
    async def limited() -> None:
        async with asyncio.timeout(DEADLINE_SECONDS / 2):
            await conversation

    asyncio.run(limited())


def is_anns(operation: str, kind: str, key: str) -> bool:
    return "principal:ann" in key


@pytest.mark.parametrize("operation", ["read", "write"])
@pytest.mark.parametrize("mode", ["auto", "legacy"])
def test_a_stalled_session_delays_no_other_client(
    gateway: Served, store: StallingStore, operation: str, mode: Literal["auto", "legacy"]
):
    async def conversation() -> None:
        store.stall(lambda done, kind, key: done == operation and is_anns(done, kind, key))
        async with connected(gateway, ANN) as ann:
            asking = asyncio.create_task(search(ann))
            assert await asyncio.to_thread(store.reached.wait, DEADLINE_SECONDS)

            async with connected(gateway, BOB, mode) as bob:
                await check_served(bob)

            store.release()
            assert "time__get_current_time" in await asking

    run(conversation())
    gateway.gateway.store.flush()  # an answer that has waited too long does not wait for this
    assert "principal:ann" in store.keys(SESSION_KIND)


@pytest.mark.parametrize("mode", ["auto", "legacy"])
def test_an_answer_says_that_its_session_is_not_stored_yet(
    gateway: Served,
    store: StallingStore,
    mode: Literal["auto", "legacy"],
    monkeypatch: pytest.MonkeyPatch,
):
    """A client can then tell what it has to load again if the gateway is killed."""

    def is_session(operation: str, kind: str, key: str) -> bool:
        return (operation, kind) == ("write", SESSION_KIND)

    async def work() -> None:
        monkeypatch.setattr(background, "WAIT_SECONDS", DEADLINE_SECONDS)
        async with connected(gateway, ANN, mode) as ann:
            stored = await ann.call_tool("tool_search", {"queries": ["select:time__convert_time"]})
            store.stall(is_session)
            search = {"queries": ["select:time__get_current_time"]}
            with monkeypatch.context() as patch:
                patch.setattr(background, "WAIT_SECONDS", 0.01)
                unstored = await ann.call_tool("tool_search", search)
            store.release()
            await gateway.gateway.store.run_in_thread(gateway.gateway.store.flush)
            later = await ann.call_tool("tool_search", search)

        said = [(one.meta or {}).get(STORED, True) for one in (stored, unstored, later)]
        assert said == [True, False, True]

    run(work())


def test_an_outcome_that_cannot_be_stored_yet_delays_nobody(gateway: Served, store: StallingStore):
    async def conversation() -> None:
        async with connected(gateway, ANN) as ann, connected(gateway, BOB) as bob:
            store.stall(lambda operation, kind, key: operation == "append")
            await check_served(ann)
            assert await asyncio.to_thread(store.reached.wait, DEADLINE_SECONDS)

            await check_served(bob)
            await check_served(ann)

    run(conversation())


def test_a_client_that_is_remembered_slowly_delays_no_other_client(
    gateway: Served, store: StallingStore
):
    async def conversation() -> None:
        seen: list[str] = []

        def is_first_client(operation: str, kind: str, key: str) -> bool:
            if kind == CLIENT_KIND:
                seen.append(key)
            return kind == CLIENT_KIND and key == seen[0]

        store.stall(is_first_client)
        async with connected(gateway, ANN, "legacy") as ann:
            asking = asyncio.create_task(search(ann))
            assert await asyncio.to_thread(store.reached.wait, DEADLINE_SECONDS)

            async with connected(gateway, BOB, "legacy") as bob:
                await check_served(bob)

            store.release()
            assert "time__get_current_time" in await asking

    run(conversation())


def test_a_long_result_that_is_stored_slowly_delays_no_other_client(
    gateway: Served, store: StallingStore
):
    async def conversation() -> None:
        async with connected(gateway, ANN) as ann, connected(gateway, BOB) as bob:
            store.stall(lambda operation, kind, key: kind == "result")
            asking = asyncio.create_task(ann.call_tool("tool_call", LONG))
            assert await asyncio.to_thread(store.reached.wait, DEADLINE_SECONDS)

            await check_served(bob)

            store.release()
            handle = "result_" + text_of(await asking).partition('"result_')[2][:10]
            rest = await ann.call_tool("tool_call", {"name": handle, "arguments": {}})
            assert "xxx" in text_of(rest)

    run(conversation())


def test_a_store_that_stalls_for_everybody_delays_nobody_who_is_known(
    gateway: Served, store: StallingStore
):
    async def conversation() -> None:
        async with connected(gateway, ANN) as ann, connected(gateway, BOB, "legacy") as bob:
            await check_served(ann)
            await check_served(bob)
            store.stall(lambda operation, kind, key: True)
            for client in (ann, bob):
                names = {"names": ["time__convert_time"]}
                assert "target" in text_of(await client.call_tool("tool_describe", names))
                await check_served(client)
            store.release()

    run(conversation())
    # Everything that was answered is stored once the store works again.
    assert len(list(store.scan(USAGE_KIND))) == 4
