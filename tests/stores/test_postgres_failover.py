"""A primary is lost and its standby takes over, with real servers and synchronous replication."""

import asyncio
import contextlib
import json
import signal
import time
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Set
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from databases import (
    join_hosts,
    kill_postgres,
    list_processes,
    promote_postgres,
    run_postgres,
    run_sql,
    run_standby,
    signal_postgres,
    wait_for_row,
)
from serving import DEADLINE_SECONDS, eventually
from toolscout.config.file import Config
from toolscout.config.gateway import GatewayConfig
from toolscout.gateway.gateway import Gateway
from toolscout.gateway.middleware import Principal
from toolscout.sessions.session import Session
from toolscout.sessions.session_state import SESSION_KIND
from toolscout.sessions.usage import USAGE_KIND
from toolscout.stores import PostgresStore, postgres
from toolscout.stores.background import BackgroundStore
from toolscout.stores.store import OnChange
from toolscout.tools import Tool

ANN = Principal(name="ann")
SESSION = "principal:ann"
STATEMENT_SECONDS = 2.0
"""Limit of a statement in these tests, so that they notice a silent server sooner."""
CHECK_SECONDS = 4.0
"""How often they make sure that notices still arrive."""


@dataclass(frozen=True, slots=True)
class Servers:
    """A primary and its standby."""

    primary: str
    standby: str

    @property
    def url(self) -> str:
        """The address that names both."""
        return join_hosts(self.primary, self.standby)


@pytest.fixture
def servers(monkeypatch: pytest.MonkeyPatch) -> Iterator[Servers]:
    monkeypatch.setattr(postgres, "STATEMENT_SECONDS", STATEMENT_SECONDS)
    monkeypatch.setattr(postgres.Connection, "seconds", STATEMENT_SECONDS)
    monkeypatch.setattr(postgres, "CHECK_SECONDS", CHECK_SECONDS)
    with run_postgres() as primary, run_standby(primary) as standby:
        try:
            yield Servers(primary, standby)
        finally:
            with contextlib.suppress(psutil.NoSuchProcess):
                kill_postgres(primary)  # it may be stopped by a signal, and would not end


class NotedStore(PostgresStore):
    """A store that remembers which changes of others it has heard of."""

    def __init__(self, url: str) -> None:
        self.heard: list[Mapping[str, Set[str]] | None] = []
        super().__init__(url)

    def listen(self, on_change: OnChange) -> bool:
        """Report what other replicas change, and remember it."""

        def hear(changed: Mapping[str, Set[str]] | None) -> None:
            self.heard.append(changed)
            on_change(changed)

        return super().listen(hear)

    def has_heard_of(self, kind: str, key: str) -> bool:
        """Tell whether a notice has named a key."""
        return any(changed and key in changed.get(kind, ()) for changed in self.heard)


class Replica:
    """A gateway with a session of Ann, who has nine tools."""

    def __init__(self, gateway: Gateway, store: NotedStore, session: Session) -> None:
        self.gateway = gateway
        self.store = store
        self.session = session

    @classmethod
    @asynccontextmanager
    async def open(cls, url: str, folder: Path) -> AsyncGenerator["Replica"]:
        """Start a gateway that hears of other gateways only by notices."""
        with closing(await asyncio.to_thread(NotedStore, url)) as store:
            config = Config(servers=(), gateway=GatewayConfig(store=url))
            gateway = Gateway(config, store, tokens=folder)
            gateway.news_seconds = 600.0

            async def run(tool: Tool, arguments: object) -> str:
                return f"{tool.name} is done"

            tools = [Tool.define(f"tool_{n}", server="desk", description=f"{n}.") for n in range(9)]
            async with gateway:
                gateway.catalog.replace("desk", tools)
                gateway.scout.connect("desk", run)
                await eventually(lambda: store.heard)  # the first one says that it listens
                session = await asyncio.to_thread(gateway.open_session, SESSION, ANN)
                yield cls(gateway, store, session)

    async def search_and_call(self, number: int) -> None:
        """Load a tool and call it, as two requests of a client do."""
        name = f"desk__tool_{number}"
        await self.gateway.refresh_session(self.session)
        await self.session.handle("tool_search", {"queries": [f"select:{name}"]})
        assert name in self.session.loaded
        await self.gateway.refresh_session(self.session)
        reply = await self.session.handle("tool_call", {"name": name, "arguments": {"n": number}})
        assert f"{name} is done" in str(reply)

    async def wait_written(self) -> None:
        """Wait until nothing waits to be written."""
        async with asyncio.timeout(DEADLINE_SECONDS):
            while self.gateway.store.pending:
                await asyncio.to_thread(self.gateway.store.flush)

    async def wait_loaded(self, *numbers: int) -> None:
        """Wait until a request would find that exactly these tools are loaded."""
        names = {f"desk__tool_{number}" for number in numbers}
        async with asyncio.timeout(DEADLINE_SECONDS):
            while set(self.session.loaded) != names:
                await asyncio.sleep(0.01)
                await self.gateway.refresh_session(self.session)


async def pass_on(giver: Replica, taker: Replica, *loaded: int) -> None:
    """Load the last of some tools at one gateway, and wait until the other has heard of it."""
    taker.store.heard.clear()
    async with asyncio.timeout(DEADLINE_SECONDS):
        while not taker.store.has_heard_of(SESSION_KIND, "nobody"):  # it may not listen yet
            await asyncio.to_thread(giver.store.write, SESSION_KIND, "nobody", None)
            await asyncio.sleep(0.1)
    await giver.search_and_call(loaded[-1])
    await eventually(lambda: taker.store.has_heard_of(SESSION_KIND, SESSION))
    await taker.wait_loaded(*loaded)
    await giver.wait_written()


def list_stored(url: str) -> tuple[set[str], list[str]]:
    """Return what a server has: the loaded tools, and the called ones, sorted."""
    entries = run_sql(url, "SELECT value FROM toolscout.entries WHERE kind = 'session'")
    calls = run_sql(url, "SELECT value FROM toolscout.records WHERE kind = 'usage'")
    loaded = {entry["name"] for (value,) in entries for entry in json.loads(value)["entries"]}
    return loaded, sorted(json.loads(value)["tool"] for (value,) in calls)


def freeze_postgres(url: str) -> None:
    """Stop all processes of a server: it accepts connections, and nobody hears of it again."""
    signal_postgres(url, signal.SIGSTOP)


@pytest.mark.parametrize("lose", [kill_postgres, freeze_postgres])
def test_gateways_go_on_from_memory_and_then_with_the_promoted_standby(
    servers: Servers, lose: Callable[[str], None], tmp_path: Path
):
    async def work() -> None:
        async with (
            Replica.open(servers.url, tmp_path / "here") as here,
            Replica.open(servers.url, tmp_path / "there") as there,
        ):
            await pass_on(here, there, 0)
            await pass_on(there, here, 0, 1)
            acknowledged = await asyncio.to_thread(list_stored, servers.primary)

            await asyncio.to_thread(lose, servers.primary)
            await here.search_and_call(2)
            await there.search_and_call(3)
            stored = await here.gateway.store.wait_written(SESSION_KIND, SESSION)
            available = await here.gateway.store.is_available()
            assert (stored, available) == (False, False)
            assert min(here.gateway.store.pending, there.gateway.store.pending) > 0

            await asyncio.to_thread(promote_postgres, servers.standby)
            kept = await asyncio.to_thread(list_stored, servers.standby)
            assert kept[0] >= acknowledged[0] == {"desk__tool_0", "desk__tool_1"}
            await here.wait_written()
            await there.wait_written()
            await here.wait_loaded(0, 1, 2, 3)
            await there.wait_loaded(0, 1, 2, 3)
            await pass_on(here, there, 0, 1, 2, 3, 4)
            await pass_on(there, here, 0, 1, 2, 3, 4, 5)

            names = [f"desk__tool_{number}" for number in range(6)]
            assert await asyncio.to_thread(list_stored, servers.standby) == (set(names), names)
            for replica in (here, there):
                assert await replica.gateway.store.is_available()
                assert replica.gateway.store.dropped == 0

    asyncio.run(asyncio.wait_for(work(), 5 * DEADLINE_SECONDS))


def test_a_call_that_the_standby_has_but_nobody_acknowledged_is_not_stored_twice(servers: Servers):
    [receiver] = [
        process
        for process in list_processes(servers.standby)
        if "walreceiver" in " ".join(process.cmdline())
    ]
    with closing(BackgroundStore(PostgresStore(servers.url))) as store:
        store.append(USAGE_KIND, b"first")
        store.flush()
        receiver.suspend()
        store.append(USAGE_KIND, b"second")
        wait_for_row(servers.primary, "SELECT FROM pg_stat_activity WHERE wait_event = 'SyncRep'")
        for _ in range(3):
            store.flush()  # an attempt to write it again, which fails
        assert store.is_failing
        sent = "SELECT FROM pg_stat_replication WHERE sent_lsn >= pg_current_wal_flush_lsn()"
        wait_for_row(servers.primary, sent)
        kill_postgres(servers.primary)
        receiver.resume()
        wait_for_row(servers.standby, "SELECT WHERE NOT EXISTS (SELECT FROM pg_stat_wal_receiver)")
        promote_postgres(servers.standby)
        end = time.monotonic() + DEADLINE_SECONDS
        while store.pending:
            store.flush()
            assert time.monotonic() < end
        stored = [value for _, value in store.scan(USAGE_KIND)]

    assert stored == [b"first", b"second"]
