"""Gateways whose tools and search index are in PostgreSQL."""

import asyncio
import json
import sys
import traceback
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import asynccontextmanager, closing, suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

import mcp_types as types
import psycopg
import pytest
from mcp import Client

from databases import Proxy, open_proxy
from serving import DEADLINE_SECONDS, TIME, eventually
from toolscout.config.file import Config
from toolscout.config.gateway import GatewayConfig, GatewayMode, IndexPlace, Permission, Rule
from toolscout.config.servers import ServerConfig, ToolOverride, Transport
from toolscout.errors import InvalidConfig
from toolscout.gateway.gateway import Gateway
from toolscout.gateway.metrics import build_readiness, build_status
from toolscout.gateway.server import build_server
from toolscout.hints.hints import digest_definition
from toolscout.programs.saved import SavedProgram, approve_program, save_program
from toolscout.schemas import Json
from toolscout.search.postgres import PostgresIndex
from toolscout.search.postgres_catalog import PostgresCatalog
from toolscout.servers.approvals import Lock
from toolscout.servers.listings import save_manifest
from toolscout.servers.manifest import Manifest
from toolscout.sessions.session import Session
from toolscout.settings import HintUse, Programs, Settings
from toolscout.stores import PostgresStore
from toolscout.stores import postgres as postgres_store
from toolscout.tools import Effect, Tool

NOW = "time__get_current_time"
GALLERY = ServerConfig(
    name="art",
    transport=Transport.STDIO,
    command=sys.executable,
    args=(str(Path(__file__).with_name("gallery.py")), "art", ""),
)
SHOP = ServerConfig(name="shop", transport=Transport.HTTP, url="http://127.0.0.1:1/mcp")


class Site:
    """Gateways on one database, each with a store of its own."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.schema = f"test_{uuid4().hex}"

    def configure(self, *servers: ServerConfig, **options: Any) -> Config:
        # The hint makes the catalogue of each test its own.
        marked = [replace(server, hint=f"{server.name} {self.schema}") for server in servers]
        gateway = GatewayConfig(store=self.url, index=IndexPlace.POSTGRES, **options)
        return Config(servers=tuple(marked), gateway=gateway)

    @asynccontextmanager
    async def open(
        self, config: Config, url: str = "", lock: Lock | None = None
    ) -> AsyncGenerator[Gateway]:
        if url:
            config = replace(config, gateway=replace(config.gateway, store=url))
        with closing(PostgresStore(url or self.url, schema=self.schema)) as store:
            gateway = Gateway(config, store, lock=lock)
            async with asyncio.timeout(DEADLINE_SECONDS), gateway:
                yield gateway


@pytest.fixture
def site(postgres_url: str) -> Site:
    return Site(postgres_url)


@pytest.fixture
def proxy(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Proxy]:
    monkeypatch.setattr(postgres_store, "WAIT_SECONDS", 0.2)
    with open_proxy(postgres_url) as proxy:
        yield proxy


def connect(gateway: Gateway, session: Session, **options: Any) -> Client:
    async def find(context: object) -> Session:
        return session

    return Client(build_server(gateway, find), **options)


async def call(client: Client, name: str, /, **arguments: object) -> str:
    answer = await client.call_tool(name, arguments)
    return " ".join(block.text for block in answer.content if block.type == "text")


def list_tools(count: int) -> Manifest:
    def define(number: int) -> Json:
        schema = {"type": "object", "properties": {"size": {"type": "integer"}}}
        return {
            "name": f"order_{number}",
            "description": f"Order product number {number} of the shop.",
            "inputSchema": schema,
        }

    return Manifest(tools=tuple(map(define, range(count))))


def run(work: Callable[[], Any]) -> None:
    asyncio.run(work())


def test_a_client_searches_describes_and_calls_tools_that_lie_in_a_database(site: Site):
    async def work() -> None:
        async with site.open(site.configure(TIME)) as gateway:
            await eventually(lambda: gateway.catalog.get(NOW))
            async with connect(gateway, gateway.open_session("ann")) as client:
                found = await call(client, "tool_search", query="what time is it")
                described = await call(client, "tool_describe", names=[NOW])
                answer = await call(
                    client, "tool_call", name=NOW, arguments={"timezone": "Asia/Tokyo"}
                )
            assert isinstance(gateway.catalog, PostgresCatalog)
            assert NOW in found
            assert "timezone" in described
            assert "Asia/Tokyo" in answer

    run(work)


def test_resources_prompts_and_apps_are_listed_and_read(site: Site):
    async def work() -> None:
        async with site.open(site.configure(GALLERY)) as gateway:
            await eventually(lambda: gateway.catalog.get("art__show"))
            async with connect(gateway, gateway.open_session("ann")) as client:
                listed = [str(row.uri) for row in (await client.list_resources()).resources]
                shown = await client.read_resource("ui://art/secret.html")
            assert listed == ["skill://art/SKILL.md", "ui://art/secret.html"]
            assert shown.contents
            status = build_status(gateway, {}, now=0.0, wall=datetime.now(UTC))
            tools = [row["tools"] for row in status["servers"]]
            offered = [tool for tool in gateway.catalog if tool.kind == "tool"]
            assert tools == [len(offered)]
            assert build_readiness(gateway, now=0.0)["tools"] == len(offered)
            assert len(gateway.catalog) > len(offered)

    run(work)


def test_gateways_of_one_configuration_share_an_index_and_others_do_not(site: Site):
    async def work() -> None:
        config = site.configure(TIME)
        limited = replace(config.servers[0], deny=("get_current_time",))
        async with site.open(config) as here:
            await eventually(lambda: here.catalog.get(NOW))
            async with site.open(config) as there:
                assert there.catalog.get(NOW) is not None
                before = here.catalog.fingerprint
                await eventually(lambda: there.pool.servers["time"].manifest)
                assert here.catalog.fingerprint == there.catalog.fingerprint == before
            async with site.open(replace(config, servers=(limited,))) as other:
                await eventually(lambda: other.catalog.get("time__convert_time"))
                assert other.catalog.get(NOW) is None
                assert here.catalog.get(NOW) is not None

    run(work)


def test_a_locked_gateway_offers_nothing_that_another_one_has_put_into_an_index(site: Site):
    async def work() -> None:
        config = site.configure(TIME)
        async with site.open(config) as here:
            await eventually(lambda: here.catalog.get(NOW))
            async with site.open(config, lock={"time": {}}) as locked:
                time = locked.pool.servers["time"]
                assert locked.catalog.get(NOW) is None
                await eventually(lambda: time.manifest)
                await eventually(lambda: time.problems)
                assert locked.catalog.get(NOW) is None
                assert here.catalog.get(NOW) is not None

    run(work)


def test_gateways_with_and_without_hints_do_not_share_an_index(site: Site):
    async def work() -> None:
        config = site.configure(TIME)
        async with site.open(config) as here:
            await eventually(lambda: here.catalog.get(NOW))
            now = here.catalog.get(NOW)
            assert now is not None
            assert here.scout.hints is not None
            assert isinstance(here.catalog, PostgresCatalog)
            hint = {digest_definition(now): "what the clock on the wall says"}
            await asyncio.to_thread(here.scout.hints.add, hint, by="ann")
            here.catalog.follow()
            before = here.catalog.fingerprint
            bare = replace(config, sessions=Settings(hints=HintUse.OFF))
            async with site.open(bare) as other:
                await eventually(lambda: other.catalog.get(NOW))
                await eventually(lambda: other.pool.servers["time"].manifest)
            here.catalog.follow()
            assert here.catalog.fingerprint == before

    run(work)


def test_saved_programs_are_offered_only_by_gateways_that_run_programs(site: Site):
    late = SavedProgram(
        name="late_orders",
        description="List the orders that are late.",
        source="[]",
        parameters={"type": "object"},
        calls=(NOW,),
    )

    async def work() -> None:
        config = site.configure(TIME)
        sessions = Settings(programs=Programs.from_mapping({"enabled": True}))
        with_programs = replace(config, sessions=sessions)
        async with site.open(with_programs) as here:
            await asyncio.to_thread(save_program, here.store, late)
            await asyncio.to_thread(approve_program, here.store, late.name, late.digest, "ann")
            await eventually(lambda: here.catalog.get("programs__late_orders"))
            await eventually(lambda: here.catalog.get(NOW))
            async with site.open(config) as without:
                # Before a server has started, it has looked for saved programs.
                async with connect(without, without.open_session("eve")) as client:
                    await call(client, "tool_call", name=NOW, arguments={"timezone": "UTC"})
                for gateway, is_offered in ((without, False), (here, True)):
                    session = await asyncio.to_thread(gateway.open_session, "ann")
                    found = await asyncio.to_thread(session.search, "list late orders")
                    assert ("programs__late_orders" in found.text) is is_offered
                    listing = await asyncio.to_thread(session.get_listing)
                    assert ("late_orders" in listing) is is_offered

    run(work)


def test_a_gateway_holds_no_definitions_of_a_list_and_notices_when_it_changes(site: Site):
    async def work() -> None:
        config = site.configure(replace(SHOP, changes="allow"))
        async with site.open(config) as gateway:
            server = gateway.config.servers[0]
            state = gateway.pool.servers["shop"]
            await asyncio.to_thread(save_manifest, gateway.store, server, list_tools(300))
            gateway.pool.follow(None)
            await eventually(lambda: len(gateway.catalog) == 300)
            await eventually(lambda: state.manifest and not state.manifest.tools)

            gateway.pool.follow(None)
            await asyncio.to_thread(save_manifest, gateway.store, server, list_tools(301))
            gateway.pool.follow(None)
            await eventually(lambda: len(gateway.catalog) == 301)
            assert "order_300" in gateway.open_session("ann").search("order product 300").text

    run(work)


def test_what_a_person_approves_is_offered_though_the_list_is_only_in_the_store(site: Site):
    async def work() -> None:
        config = site.configure(SHOP)
        async with site.open(config) as gateway:
            server = gateway.config.servers[0]
            state = gateway.pool.servers["shop"]
            for count in (3, 4):
                await asyncio.to_thread(save_manifest, gateway.store, server, list_tools(count))
                gateway.pool.follow(None)
                await eventually(lambda: len(gateway.catalog) == 3)
            await eventually(lambda: state.held_definitions)
            [held] = state.held_definitions
            assert gateway.catalog.get("shop__order_3") is None

            await gateway.pool.decide("shop", {held.id}, approve=True, by="ann")

            assert gateway.catalog.get("shop__order_3") is not None
            assert gateway.catalog.get("shop__order_0") is not None

    run(work)


def test_a_value_that_is_read_from_elsewhere_is_not_written_to_the_database(
    site: Site, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("SHOP_ZONE", "Asia/Tokyo")
    zone = {"get_current_time": {"arguments": {"timezone": "${SHOP_ZONE}"}}}
    server = replace(TIME, tools={n: ToolOverride.from_mapping(o) for n, o in zone.items()})

    async def work() -> None:
        async with site.open(site.configure(server)) as gateway:
            await eventually(lambda: gateway.catalog.get("time__convert_time"))
            state = gateway.pool.servers["time"]
            await eventually(lambda: state.problems)
            assert gateway.catalog.get(NOW) is None
            assert "'get_current_time' has a fixed argument" in state.problems[0]

    run(work)


def test_other_servers_need_a_restart_and_rules_do_not(
    site: Site, caplog: pytest.LogCaptureFixture
):
    async def work() -> None:
        config = site.configure(TIME)
        async with site.open(config) as gateway:
            await eventually(lambda: gateway.catalog.get(NOW))
            rules = {"none": Rule(permission=Permission.DENY, tools=(NOW,))}
            changed = GatewayConfig(store=site.url, index=IndexPlace.POSTGRES, rules=rules)
            await gateway.reload(Config(servers=(), gateway=changed))

            assert gateway.catalog.get(NOW) is not None
            assert [server.name for server in gateway.config.servers] == ["time"]
            assert "none" in gateway.config.gateway.rules

    run(work)

    assert any("[servers] changed; restart the gateway" in line for line in caplog.messages)


def test_while_the_database_is_away_known_tools_are_called_and_searches_say_why_not(
    site: Site, proxy: Proxy
):
    async def work() -> None:
        config = site.configure(TIME)
        async with site.open(config, proxy.url) as gateway:
            await eventually(lambda: gateway.catalog.get(NOW))
            async with connect(gateway, gateway.open_session("ann")) as client:
                arguments = {"timezone": "Asia/Tokyo"}
                await call(client, "tool_call", name=NOW, arguments=arguments)
                proxy.cut()
                called = await call(client, "tool_call", name=NOW, arguments=arguments)
                prefixed = await call(
                    client, "mcp__toolscout__tool_call", name=NOW, arguments=arguments
                )
                searched = await call(client, "tool_search", query="convert a time")
                assert build_readiness(gateway, now=0.0)["tools"] == 2
                proxy.restore()
                again = searched
                while "convert_time" not in again:
                    again = await call(client, "tool_search", query="convert a time")
            assert "Asia/Tokyo" in called
            assert "Asia/Tokyo" in prefixed
            assert "catalogue" in searched
            assert "time__convert_time" in again

    run(work)


def test_a_search_that_waits_for_the_database_holds_up_no_call_of_a_known_tool(
    site: Site, proxy: Proxy
):
    async def work() -> None:
        arguments = {"timezone": "Asia/Tokyo"}
        async with site.open(site.configure(TIME), proxy.url) as gateway:
            await eventually(lambda: gateway.catalog.get(NOW))
            async with connect(gateway, gateway.open_session("ann")) as client:
                await call(client, "tool_call", name=NOW, arguments=arguments)
                proxy.pause()
                search = asyncio.create_task(call(client, "tool_search", query="convert a time"))
                await asyncio.sleep(0)
                for _ in range(20):
                    called = await call(client, "tool_call", name=NOW, arguments=arguments)
                    assert "Asia/Tokyo" in called
                    assert not search.done()
                assert "catalogue" in await search
                proxy.resume()

    run(work)


def test_an_index_that_nobody_uses_any_more_is_dropped(site: Site):
    config = site.configure(TIME)

    def list_schemas() -> set[str]:
        with psycopg.connect(site.url) as connection:
            query = "SELECT nspname FROM pg_namespace WHERE nspname LIKE 'toolscout_index_%%'"
            return {name for (name,) in connection.execute(query, ())}

    async def work() -> None:
        before = list_schemas()
        async with site.open(config) as gateway:
            [own] = list_schemas() - before
            other = f"toolscout_index_{uuid4().hex[:12]}"
            unmarked = f"toolscout_index_{uuid4().hex[:12]}"
            with psycopg.connect(site.url) as connection:
                for name in (other, unmarked):
                    connection.execute(f"CREATE SCHEMA {name}".encode())
                note = f"COMMENT ON SCHEMA {other} IS 'toolscout used it on 2001-01-01'"
                connection.execute(note.encode())
            index = gateway.scout.index
            assert isinstance(index, PostgresIndex)
            await asyncio.to_thread(index.drop_unused, 7)

            after = list_schemas()
            assert other not in after
            assert {own, unmarked} <= after

    run(work)


def test_an_index_in_a_database_needs_the_database_of_a_store():
    with pytest.raises(InvalidConfig, match="there is no store"):
        GatewayConfig(index=IndexPlace.POSTGRES)


@pytest.fixture
def loop_reads(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Collect where the database is read in an event loop while a test sets `watch`."""
    read: list[str] = []
    run_statements = postgres_store.Database.run

    def watch(database: Any, *given: Any) -> Any:
        with suppress(RuntimeError):
            asyncio.get_running_loop()
            read.append("".join(traceback.format_stack(limit=6)))
        return run_statements(database, *given)

    monkeypatch.setattr(postgres_store.Database, "run", watch)
    yield read


def test_an_update_of_a_resource_is_passed_on_without_reading_in_the_event_loop(
    site: Site, loop_reads: list[str], tmp_path: Path
):
    heard: asyncio.Queue[str] = asyncio.Queue()

    async def hear(message: Any) -> None:
        if message.method == "notifications/resources/updated":
            heard.put_nowait(message.params.uri)

    async def work() -> None:
        notebook = str(Path(__file__).with_name("notebook.py"))
        args = (notebook, "handshake", str(tmp_path / "ledger"))
        notes = ServerConfig(
            name="notes", transport=Transport.STDIO, command=sys.executable, args=args
        )
        async with site.open(site.configure(notes)) as gateway:
            await eventually(lambda: len(gateway.catalog))
            session = await asyncio.to_thread(gateway.open_session, "ann")
            async with connect(gateway, session, mode="legacy", message_handler=hear) as client:
                params = types.SubscribeRequestParams(uri="toolscout://notes/note://a")
                asked = types.SubscribeRequest(params=params)
                await client.session.send_request(asked, types.EmptyResult)
                await asyncio.to_thread(gateway.catalog.replace, "other", [Tool(name="new")])
                loop_reads.clear()
                gateway.pool.watched.on_update("notes", "note://a")
                assert await heard.get() == "toolscout://notes/note://a"
        assert not loop_reads, "\n".join(sorted(set(loop_reads)))

    run(work)


@pytest.mark.parametrize("mode", GatewayMode)
def test_no_request_reads_the_database_in_the_event_loop(
    site: Site, loop_reads: list[str], mode: GatewayMode
):
    always_loaded = Tool.define("new", server="other", always_load=True)
    program = (
        f"names = [{NOW}(timezone='UTC')['timezone'], get_current_time('UTC')['timezone']]\n"
        "names.append(call('time.get_current_time', {'timezone': 'UTC'})['timezone'])\n"
        "for name in ('get_current_time', 'no_such_tool'):\n"
        "    try:\n"
        "        names.append(call(name, {'timezone': 'UTC'})['timezone'])\n"
        "    except NameError:\n"
        "        names.append('none')\n"
        f"[*names, len(search('time')), describe({NOW!r})['name']]"
    )

    async def work() -> None:
        server = replace(TIME, effects={"*": Effect.READ})
        config = site.configure(server, mode=mode)
        sessions = Settings(programs=Programs.from_mapping({"enabled": True}))
        async with site.open(replace(config, sessions=sessions)) as gateway:
            await eventually(lambda: gateway.catalog.get(NOW))
            session = await asyncio.to_thread(gateway.open_session, "ann")
            loop_reads.clear()
            async with connect(gateway, session) as client:
                await client.list_tools()
                await client.list_resources()
                found = await call(client, "mcp__toolscout__tool_search", query="what time is it")
                await call(client, "tool_describe", names=["time.get_current_time", "nothing"])
                for name in (NOW, "mcp__time__get_current_time", "Get-Current-Time", "nothing"):
                    await call(client, "tool_call", name=name, arguments={"timezone": "UTC"})
                    await call(client, name, timezone="UTC")
                calls = [{"name": name, "arguments": {"timezone": "UTC"}} for name in (NOW, "no")]
                await call(client, "tool_call", calls=calls)
                await asyncio.to_thread(gateway.catalog.replace, "other", [always_loaded])
                await client.list_tools()
                await call(client, "tool_call", name="nothing", arguments={})
                ran = await call(client, "tool_run", code=program)
            assert not loop_reads, "\n".join(sorted(set(loop_reads)))
            assert NOW in found
            assert json.loads(ran) == ["UTC", "UTC", "UTC", "UTC", "none", 2, NOW]

    run(work)
