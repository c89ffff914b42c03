"""Gateways that share a database use what one of them learned, and share sessions and logins."""

import asyncio
import base64
import json
import uuid
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack, closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from mcp.shared.auth import OAuthToken

from serving import DEADLINE_SECONDS, eventually
from toolscout.config.file import Config
from toolscout.config.gateway import GatewayConfig
from toolscout.config.servers import ServerConfig, Transport
from toolscout.gateway.gateway import CONFIGURATION_KIND, Gateway
from toolscout.gateway.middleware import Principal
from toolscout.hints.hints import digest_definition
from toolscout.servers.approvals import Approvals
from toolscout.servers.listings import save_manifest
from toolscout.servers.manifest import Manifest
from toolscout.servers.oauth.login import BearerAuth
from toolscout.servers.oauth.tokens import StoredLogin, TokenFile
from toolscout.sessions.session_state import SESSION_KIND
from toolscout.stores import PostgresStore
from toolscout.tools import Tool

ANN = Principal(name="ann")
TICKETS = ServerConfig(name="tickets", transport=Transport.HTTP, url="http://127.0.0.1:1/mcp")
KEY = base64.b64encode(bytes(range(32))).decode()


def list_tools(*names: str) -> Manifest:
    tools = [
        {"name": name, "description": f"{name} a ticket.", "inputSchema": {"type": "object"}}
        for name in names
    ]
    return Manifest(tools=tuple(tools))


class Replicas:
    """Gateways on one database, each with a store of its own."""

    def __init__(self, url: str, folder: Path) -> None:
        self.url = url
        self.folder = folder
        self.schema = f"test_{uuid.uuid4().hex}"
        self.stores: list[PostgresStore] = []

    def open_store(self) -> PostgresStore:
        store = PostgresStore(self.url, schema=self.schema)
        self.stores.append(store)
        return store

    def make(self, *servers: ServerConfig, **options: Any) -> Gateway:
        options = {"store": self.url, "login_keys": (KEY,), **options}
        config = Config(servers=servers, gateway=GatewayConfig(**options))
        folder = self.folder / str(len(self.stores))
        gateway = Gateway(config, self.open_store(), tokens=folder)
        gateway.news_seconds = 600.0  # so that only notices carry anything
        return gateway

    def close(self) -> None:
        for store in self.stores:
            store.close()


@pytest.fixture
def replicas(postgres_url: str, tmp_path: Path):
    with closing(Replicas(postgres_url, tmp_path)) as made:
        yield made


def run_pair(
    replicas: Replicas,
    work: Callable[[Gateway, Gateway], Coroutine[Any, Any, None]],
    *servers: ServerConfig,
    **options: Any,
) -> None:
    async def enter() -> None:
        async with AsyncExitStack() as stack:
            pair: list[Gateway] = []
            for _ in range(2):
                gateway = replicas.make(*servers, **options)
                heard = asyncio.Event()
                note = gateway._note_changes  # pyright: ignore[reportPrivateUsage]

                def hear(changed: Any, note: Any = note, heard: asyncio.Event = heard) -> None:
                    note(changed)
                    heard.set()

                gateway._note_changes = hear  # pyright: ignore[reportPrivateUsage]
                await stack.enter_async_context(gateway)
                async with asyncio.timeout(DEADLINE_SECONDS):
                    await heard.wait()  # the first notice says that it listens
                pair.append(gateway)
            await work(*pair)

    asyncio.run(enter())


def add_tools(gateway: Gateway) -> None:
    gateway.catalog.replace(
        "desk", [Tool.define(f"tool_{n}", server="desk", description=f"Do {n}.") for n in range(9)]
    )


def test_a_list_that_one_gateway_stores_is_offered_by_the_other_after_one_update(
    replicas: Replicas,
):
    async def work(here: Gateway, there: Gateway) -> None:
        replaced: list[str] = []
        replace_tools = there.catalog.replace

        def count(server: str, *args: Any, **options: Any) -> object:
            replaced.append(server)
            return replace_tools(server, *args, **options)

        there.catalog.replace = count  # pyright: ignore[reportAttributeAccessIssue]
        server = there.config.servers[0]
        for names in (["close", "open"], ["close", "open"], ["open", "close", "purge"]):
            manifest = list_tools(*names)
            await asyncio.to_thread(save_manifest, here.store, server, manifest)
            await asyncio.to_thread(here.store.flush)
            await eventually(lambda names=names: there.catalog.get(f"tickets__{names[0]}"))
        await eventually(lambda: there.pool.servers["tickets"].held_definitions)

        assert replaced == ["tickets", "tickets"]

    run_pair(replicas, work, TICKETS)


def test_what_a_person_approves_at_one_gateway_is_offered_by_the_other(replicas: Replicas):
    async def work(here: Gateway, there: Gateway) -> None:
        server = there.config.servers[0]
        await asyncio.to_thread(save_manifest, here.store, server, list_tools("close"))
        await eventually(lambda: there.catalog.get("tickets__close"))
        changed = list_tools("close", "purge")
        await asyncio.to_thread(save_manifest, here.store, server, changed)
        await eventually(lambda: there.pool.servers["tickets"].held_definitions)
        held = there.pool.servers["tickets"].held_definitions
        assert there.catalog.get("tickets__purge") is None

        approvals = Approvals(here.store)
        await asyncio.to_thread(approvals.decide, server, held, approve=True, by="ann")
        await eventually(lambda: there.catalog.get("tickets__purge"))

    run_pair(replicas, work, TICKETS)


def test_a_hint_that_is_written_at_one_gateway_is_used_by_the_other(replicas: Replicas):
    async def work(here: Gateway, there: Gateway) -> None:
        add_tools(here)
        add_tools(there)
        tool = here.catalog.tools[3]
        assert here.scout.hints is not None
        assert there.scout.hints is not None
        text = {digest_definition(tool): "reboot the coffee machine"}
        await asyncio.to_thread(here.scout.hints.add, text, by="person")
        hints = there.scout.hints
        await eventually(lambda: hints.find(tool))

    run_pair(replicas, work)


def test_what_calls_teach_one_gateway_the_other_knows(replicas: Replicas):
    async def work(here: Gateway, there: Gateway) -> None:
        for gateway in (here, there):
            add_tools(gateway)

            async def run(tool: Tool, arguments: object) -> str:
                return "done"

            gateway.scout.connect("desk", run)
        session = await asyncio.to_thread(here.open_session, "s", ANN)
        await session.handle("tool_search", {"queries": ["select:desk__tool_3"]})
        await session.handle("tool_call", {"name": "desk__tool_3", "arguments": {"x": 1}})
        tool = there.catalog.get("desk__tool_3")
        assert tool is not None
        news = there.scout._engine.usage  # pyright: ignore[reportPrivateUsage]
        codes = news._codes  # pyright: ignore[reportPrivateUsage]
        await eventually(lambda: "desk__tool_3" in codes)

    run_pair(replicas, work)


def test_a_session_that_moves_between_gateways_keeps_what_it_loaded(replicas: Replicas):
    async def work(here: Gateway, there: Gateway) -> None:
        for gateway in (here, there):
            add_tools(gateway)
        at_here = await asyncio.to_thread(here.open_session, "principal:ann", ANN)
        at_there = await asyncio.to_thread(there.open_session, "principal:ann", ANN)
        pairs = ((here, at_here), (there, at_there))
        for number in range(8):
            gateway, session = pairs[number % 2]
            await gateway.refresh_session(session)
            await session.handle("tool_search", {"queries": [f"select:desk__tool_{number}"]})
            await gateway.store.wait_written(SESSION_KIND, session.id)
            await asyncio.to_thread(gateway.store.flush)
            other, its_session = pairs[(number + 1) % 2]
            await eventually(lambda other=other: "principal:ann" in other._stale)  # pyright: ignore[reportPrivateUsage]
            await other.refresh_session(its_session)
            assert set(its_session.loaded) == {f"desk__tool_{n}" for n in range(number + 1)}

    run_pair(replicas, work)


def test_requests_of_one_principal_at_two_gateways_at_once_lose_no_tool(replicas: Replicas):
    async def work(here: Gateway, there: Gateway) -> None:
        for gateway in (here, there):
            add_tools(gateway)
        sessions = [
            await asyncio.to_thread(gateway.open_session, "principal:ann", ANN)
            for gateway in (here, there)
        ]

        async def load(place: int) -> None:
            for number in range(place, 9, 2):
                query = {"queries": [f"select:desk__tool_{number}"]}
                await sessions[place].handle("tool_search", query)

        await asyncio.gather(load(0), load(1))
        for gateway in (here, there):
            await asyncio.to_thread(gateway.store.flush)
        stored = json.loads(here.store.read_stored(SESSION_KIND, "principal:ann") or b"{}")
        loaded = {entry["name"] for entry in stored["entries"]}
        assert loaded == {f"desk__tool_{number}" for number in range(9)}

    run_pair(replicas, work)


def test_a_gateway_with_another_configuration_is_noticed(replicas: Replicas):
    async def work(here: Gateway, there: Gateway) -> None:
        noticed = asyncio.Event()
        there.on_other_version = noticed.set
        config = replace(here.config, gateway=replace(here.config.gateway, queue=7))
        await here.reload(config)
        async with asyncio.timeout(DEADLINE_SECONDS):
            await noticed.wait()
        assert len(await asyncio.to_thread(there.store.keys, CONFIGURATION_KIND)) == 2

    run_pair(replicas, work)


def make_login(token: str) -> StoredLogin:
    tokens = OAuthToken(access_token=token, refresh_token="refresh", expires_in=1)
    return StoredLogin(tokens=tokens, login="first", expires_at=1.0)


def test_gateways_with_keys_share_the_login_at_a_server_and_take_over_that_of_a_file(
    replicas: Replicas,
):
    TokenFile(replicas.folder / "0", TICKETS).write(make_login("from a file"))

    async def work(here: Gateway, there: Gateway) -> None:
        ours = here.encrypted_logins.find_storage(TICKETS)
        theirs = there.encrypted_logins.find_storage(TICKETS)
        assert ours is not None
        assert theirs is not None
        await asyncio.to_thread(ours.load)
        await asyncio.to_thread(here.store.flush)
        found = await asyncio.to_thread(theirs.load)

        assert found is not None
        assert found.tokens.access_token == "from a file"
        raw = await asyncio.to_thread(there.store.read, "login", getattr(theirs, "key", ""))
        assert b"from a file" not in (raw or b"from a file")

    run_pair(replicas, work)


def can_always_renew(config: ServerConfig, stored: StoredLogin) -> bool:
    return True


def test_tokens_are_renewed_by_one_gateway_at_a_time(
    replicas: Replicas, monkeypatch: pytest.MonkeyPatch
):
    renewals: list[str] = []

    async def renew(config: ServerConfig, spent: StoredLogin) -> tuple[OAuthToken, float]:
        renewals.append(spent.tokens.access_token)
        await asyncio.sleep(0)
        assert len(renewals) == 1, "the refresh token was used twice"
        return OAuthToken(access_token="fresh", refresh_token="next"), 9e9

    monkeypatch.setattr("toolscout.servers.oauth.login.renew_tokens", renew)
    monkeypatch.setattr("toolscout.servers.oauth.login.can_renew", can_always_renew)

    async def work(here: Gateway, there: Gateway) -> None:
        storages = [gateway.encrypted_logins.find_storage(TICKETS) for gateway in (here, there)]
        first = storages[0]
        assert first is not None
        await asyncio.to_thread(first.write, make_login("spent"))
        await asyncio.to_thread(here.store.flush)
        renewing: list[Coroutine[Any, Any, StoredLogin]] = []
        for storage in storages:
            assert storage is not None
            spent = await asyncio.to_thread(storage.load)
            assert spent is not None
            renewing.append(BearerAuth(TICKETS, storage)._get_renewed(spent))  # pyright: ignore[reportPrivateUsage]
        renewed = await asyncio.gather(*renewing)

        assert [one.tokens.access_token for one in renewed] == ["fresh", "fresh"]
        assert renewals == ["spent"]

    run_pair(replicas, work)
