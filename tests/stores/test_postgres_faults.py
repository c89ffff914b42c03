"""A database that is slow, silent, gone, full or read-only."""

import asyncio
import signal
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any

import httpx2
import psycopg
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from databases import (
    Proxy,
    kill_postgres,
    open_proxy,
    restart_postgres,
    run_postgres,
    signal_postgres,
)
from serving import DEADLINE_SECONDS, TIME, served
from toolscout.errors import StoreUnavailable
from toolscout.sessions.usage import USAGE_KIND
from toolscout.stores import PostgresStore, postgres
from toolscout.stores.background import BackgroundStore

LIMIT_SECONDS = 0.5
"""Of a statement, in these tests."""


@pytest.fixture
def proxy(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Proxy]:
    monkeypatch.setattr(postgres.Connection, "seconds", LIMIT_SECONDS)
    monkeypatch.setattr(postgres, "WAIT_SECONDS", LIMIT_SECONDS)
    monkeypatch.setattr(postgres, "REST_SECONDS", 0.01)
    with open_proxy(postgres_url) as proxy:
        yield proxy


@pytest.fixture
def store(proxy: Proxy) -> Iterator[PostgresStore]:
    with PostgresStore(proxy.url, schema=f"test_{uuid.uuid4().hex}") as store:
        store.write("session", "a", b"one")
        yield store


def read_eventually(store: PostgresStore) -> bytes | None:
    end = time.monotonic() + DEADLINE_SECONDS
    while True:
        try:
            return store.read("session", "a")
        except StoreUnavailable:
            assert time.monotonic() < end


def test_a_silent_database_is_given_up_and_used_again_when_it_answers(
    proxy: Proxy, store: PostgresStore
):
    proxy.pause()
    with pytest.raises(StoreUnavailable):
        store.read("session", "a")
    with pytest.raises(StoreUnavailable):
        store.write("session", "a", b"two")
    proxy.resume()

    assert read_eventually(store) in (b"one", b"two")


def test_a_database_slower_than_the_limit_is_given_up(proxy: Proxy, store: PostgresStore):
    proxy.set_delay(2 * LIMIT_SECONDS)
    with pytest.raises(StoreUnavailable, match=r"no answer within|reached"):
        store.read("session", "a")
    proxy.set_delay(0.0)

    assert read_eventually(store) == b"one"


def test_a_database_that_restarts_is_used_again(proxy: Proxy, store: PostgresStore):
    proxy.cut()
    with pytest.raises(StoreUnavailable):
        store.read("session", "a")
    proxy.restore()

    assert read_eventually(store) == b"one"
    store.write("session", "a", b"two")
    assert store.read("session", "a") == b"two"


def test_when_all_connections_are_taken_a_request_fails_in_time(proxy: Proxy, store: PostgresStore):
    proxy.pause()
    with ThreadPoolExecutor(32) as pool:
        reading = [pool.submit(store.read, "session", "a") for _ in range(32)]
        errors = [one.exception(DEADLINE_SECONDS) for one in reading]
    proxy.resume()

    assert {type(error) for error in errors} == {StoreUnavailable}
    assert read_eventually(store) == b"one"


def test_what_a_read_only_database_refuses_is_written_when_it_may_be(
    postgres_url: str, store: PostgresStore
):
    name = f"test_{uuid.uuid4().hex}"
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")  # pyright: ignore[reportArgumentType, reportCallIssue]
        url = postgres_url.replace("/postgres?", f"/{name}?")
        with closing(BackgroundStore(PostgresStore(url))) as waiting:
            read_only = f"ALTER DATABASE {name} SET default_transaction_read_only"
            connection.execute(f"{read_only} = on")  # pyright: ignore[reportArgumentType, reportCallIssue]
            connection.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", (name,)
            )
            waiting.write("session", "a", b"one")
            waiting.append("usage", b"call")
            waiting.flush()
            refused = waiting.is_failing, waiting.pending, waiting.read("session", "a")
            connection.execute(f"{read_only} = off")  # pyright: ignore[reportArgumentType, reportCallIssue]
            end = time.monotonic() + DEADLINE_SECONDS
            while waiting.pending:
                waiting.flush()
                assert time.monotonic() < end
            written = waiting.read_stored("session", "a"), len(list(waiting.scan("usage")))

    assert refused == (True, 2, b"one")
    assert written == (b"one", 1)


def test_a_change_that_waits_for_a_lock_takes_no_further_connections(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
):
    """As it does while a primary waits for its standby, which may take long."""
    monkeypatch.setattr(postgres.Connection, "seconds", LIMIT_SECONDS)
    monkeypatch.setattr(postgres, "LOCK_LIMIT", b"SET LOCAL lock_timeout = 200")
    name = f"test_{uuid.uuid4().hex}"
    waiting = (
        "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE %s"
    )
    with (
        psycopg.connect(postgres_url) as other,
        psycopg.connect(postgres_url, autocommit=True) as watching,
        closing(BackgroundStore(PostgresStore(postgres_url, schema=name))) as store,
    ):
        store.write("session", "a", b"one")
        store.flush()
        other.execute(f"SELECT * FROM {name}.entries FOR UPDATE")  # pyright: ignore[reportArgumentType, reportCallIssue]
        store.write("session", "a", b"two")
        for _ in range(6):
            store.flush()
        [left] = watching.execute(waiting, (f"%{name}%",)).fetchall()
        other.rollback()
        end = time.monotonic() + DEADLINE_SECONDS
        while store.pending:
            store.flush()
            assert time.monotonic() < end

        assert left[0] <= 2  # the first attempt, which nothing limits, and perhaps the last
        assert store.read_stored("session", "a") == b"two"


def write_during(url: str, stop: Callable[[], None], go_on: Callable[[], None]) -> tuple[Any, ...]:
    """Write while the database is stopped; return what was told then, and what is there at last."""
    with closing(BackgroundStore(PostgresStore(url))) as store:
        store.write("session", "a", b"one")
        store.flush()
        stop()
        store.write("session", "a", b"two")
        store.append("usage", b"call")
        is_written = asyncio.run(store.wait_written("session", "a"))
        seen = store.read("session", "a")
        go_on()
        end = time.monotonic() + DEADLINE_SECONDS
        while store.pending:
            store.flush()
            assert time.monotonic() < end
        written = store.read_stored("session", "a"), len(list(store.scan("usage")))
        return is_written, seen, *written, store.dropped


def test_what_is_written_while_the_processes_of_the_database_are_stopped_is_not_lost():
    with run_postgres() as url:
        told = write_during(
            url,
            lambda: signal_postgres(url, signal.SIGSTOP),
            lambda: signal_postgres(url, signal.SIGCONT),
        )

    assert told == (False, b"two", b"two", 1, 0)


def test_what_is_written_while_the_database_is_killed_and_started_again_is_not_lost():
    with run_postgres() as url:
        told = write_during(url, lambda: kill_postgres(url), lambda: restart_postgres(url))

    assert told == (False, b"two", b"two", 1, 0)


def test_clients_are_served_from_memory_while_the_database_is_away(
    proxy: Proxy, store: PostgresStore
):
    async def work(url: str) -> tuple[list[bool], int, bool]:
        async with (
            Client(streamable_http_client(f"{url}/mcp")) as client,
            httpx2.AsyncClient() as http,
        ):
            search = {"queries": ["what time is it"]}
            call = {"name": "time__get_current_time", "arguments": {"timezone": "UTC"}}
            await client.call_tool("tool_search", search)
            await client.call_tool("tool_call", call)
            proxy.cut()
            failed: list[bool] = []
            for _ in range(5):
                for name, arguments in (("tool_search", search), ("tool_call", call)):
                    result = await client.call_tool(name, arguments)
                    failed.append(bool(result.is_error))
            away = await http.get(f"{url}/readyz", timeout=DEADLINE_SECONDS)
            unwritten = (await http.get(f"{url}/readyz", timeout=DEADLINE_SECONDS)).json()
            proxy.restore()
            while not (  # noqa: ASYNC110  # nothing announces it
                await http.get(f"{url}/readyz", timeout=DEADLINE_SECONDS)
            ).json()["ready"]:
                await asyncio.sleep(0.05)
            assert unwritten["lost"] == 0
            return failed, away.status_code, away.json()["store"]

    with served(TIME, store=store) as gateway:
        assert gateway.known.wait(DEADLINE_SECONDS)
        failed, status, was_up = asyncio.run(asyncio.wait_for(work(gateway.url), DEADLINE_SECONDS))

    calls = [value for _, value in store.scan(USAGE_KIND)]
    assert failed == [False] * 10
    assert (status, was_up) == (503, False)
    assert len(calls) == 6
