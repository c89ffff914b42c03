"""Changes of lists and resources, from servers of both eras to clients of both eras."""

import asyncio
import sys
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import httpx2
import mcp_types as types
import pytest
from mcp.client import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.client.subscriptions import (
    PromptsListChanged,
    ResourcesListChanged,
    ResourceUpdated,
    Subscription,
    ToolsListChanged,
)
from mcp.shared.exceptions import MCPError

from foreign import NODE
from gateway.fleet import Keeper, always, client_of, configuration, keep_open, known
from serving import DEADLINE_SECONDS, eventually, served
from toolscout.config.file import Config
from toolscout.config.gateway import GatewayConfig, GatewayMode, Profile, TokenConfig
from toolscout.config.servers import ServerConfig, Transport
from toolscout.gateway.gateway import Gateway
from toolscout.gateway.server import build_server
from toolscout.servers.state import Phase, ServerState
from toolscout.settings import Settings
from toolscout.stores import MemoryStore

NOTEBOOK = Path(__file__).with_name("notebook.py")
EVERYTHING = (
    Path(__file__).parents[2]
    / ".npm-servers/node_modules/@modelcontextprotocol/server-everything/dist/index.js"
)
needs_node = pytest.mark.skipif(
    not NODE or not EVERYTHING.exists(), reason="needs Node and `make .npm-servers/.installed`"
)
pytestmark = pytest.mark.timeout(300)
both_servers = pytest.mark.parametrize("era", ["handshake", "modern"])
both_clients = pytest.mark.parametrize("mode", ["auto", "legacy"])

A, B = "toolscout://notes/note://a", "toolscout://notes/note://b"
LISTS = {
    "notifications/tools/list_changed": ToolsListChanged(),
    "notifications/prompts/list_changed": PromptsListChanged(),
    "notifications/resources/list_changed": ResourcesListChanged(),
}


def run(conversation: Callable[[], Coroutine[Any, Any, None]]) -> None:
    async def limited() -> None:
        async with asyncio.timeout(DEADLINE_SECONDS):
            await conversation()

    asyncio.run(limited())


def notebook(folder: Path, era: str, name: str = "notes", **options: Any) -> ServerConfig:
    return ServerConfig(
        name=name,
        transport=Transport.STDIO,
        command=sys.executable,
        args=(str(NOTEBOOK), era, str(folder / f"{name}.ledger")),
        changes="allow",
        **options,
    )


def ledger(folder: Path) -> list[str]:
    """Return what the server was asked for since its first start."""
    return (folder / "notes.ledger").read_text(encoding="utf-8").splitlines()


class Ear:
    """A client, and what it has been told in either way."""

    def __init__(self) -> None:
        self.client: Client
        self.heard: asyncio.Queue[Any] = asyncio.Queue()
        self._streams = AsyncExitStack()
        self._following: dict[str, tuple[AsyncExitStack, asyncio.Task[None]]] = {}

    async def notified(self, message: Any) -> None:
        if self.is_modern:  # the SDK shows here what comes over a stream as well
            return
        if message.method == "notifications/resources/updated":
            self.heard.put_nowait(ResourceUpdated(uri=message.params.uri))
        elif message.method in LISTS:
            self.heard.put_nowait(LISTS[message.method])

    @property
    def is_modern(self) -> bool:
        return self.client.protocol_version == "2026-07-28"

    async def subscribe(self, uri: str) -> None:
        if self.is_modern:
            honored = await self.listen(uri, resource_subscriptions=[uri])
            assert honored.resource_subscriptions == [uri]
            return
        params = types.SubscribeRequestParams(uri=uri)
        await self.client.session.send_request(
            types.SubscribeRequest(params=params), types.EmptyResult
        )

    async def unsubscribe(self, uri: str) -> None:
        if self.is_modern:
            await self._end(uri)
            return
        params = types.UnsubscribeRequestParams(uri=uri)
        await self.client.session.send_request(
            types.UnsubscribeRequest(params=params), types.EmptyResult
        )

    async def listen(self, key: str, **wanted: Any) -> types.SubscriptionFilter:
        stack = AsyncExitStack()
        stream = await stack.enter_async_context(self.client.listen(**wanted))
        self._following[key] = stack, asyncio.create_task(self._follow(stream))
        return stream.honored

    async def close(self) -> None:
        for key in list(self._following):
            await self._end(key)

    async def _end(self, key: str) -> None:
        stack, task = self._following.pop(key)
        task.cancel()
        await asyncio.wait((task,))
        await stack.aclose()

    async def _follow(self, stream: Subscription) -> None:
        async for event in stream:
            self.heard.put_nowait(event)

    async def update(self) -> str:
        """Return the resource of which it is told next, whatever it hears of lists."""
        while not isinstance(event := await self.heard.get(), ResourceUpdated):
            pass
        return event.uri

    async def touch(self, uri: str) -> None:
        await self.client.call_tool("notes__touch", {"uri": uri})


@asynccontextmanager
async def ear(
    gateway: Gateway, mode: str, name: str = "ann", tool: str = "notes__touch"
) -> AsyncGenerator[Ear]:
    """A client of a gateway in this process, which knows a tool."""
    session, heard = gateway.open_session(name), Ear()
    server = build_server(gateway, always(session))
    async with Client(server, mode=mode, message_handler=heard.notified, cache=None) as client:
        heard.client = client
        await known(client, tool)
        yield heard
        await heard.close()


def is_listed(server: ServerState) -> bool:
    return server.manifest is not None and server.phase is not Phase.STARTING


@asynccontextmanager
async def gateway_of(*servers: ServerConfig, **options: Any) -> AsyncGenerator[Gateway]:
    config = Config(servers=servers, gateway=GatewayConfig(**options))
    async with Gateway(config, MemoryStore()) as gateway:
        members = gateway.pool.servers.values()
        # Listings that arrive later would count as changes.
        await eventually(lambda: all(is_listed(member) for member in members))
        yield gateway


@dataclass(frozen=True, slots=True)
class Shared:
    """A gateway that several tests use, each of which ends its subscriptions."""

    gateway: Gateway
    folder: Path
    before: int = 0
    """How many lines the ledger had when the test began."""

    def ledger(self) -> list[str]:
        """Return what the server was asked for since the test began."""
        return ledger(self.folder)[self.before :]

    def is_quiet(self) -> bool:
        """Tell whether what earlier tests subscribed to has ended, for the server as well."""
        if self.gateway.subscriptions.listeners or self.gateway.pool.watched.get_wanted("notes"):
            return False
        lines = ledger(self.folder)
        begun = [line for line in lines if line.startswith(("subscribe ", "listen "))]
        ended = [line for line in lines if line.startswith(("unsubscribe ", "end "))]
        return len(begun) == len(ended)


@dataclass(frozen=True, slots=True)
class Gateways:
    """Gateways that stay open for all tests of this module, by what is behind them."""

    keeper: Keeper
    folder: Path

    def talk(self, era: str, conversation: Callable[[Shared], Coroutine[Any, Any, None]]) -> None:
        """Hold a conversation with the gateway of a notebook, once that is quiet."""
        folder = self.folder / era
        folder.mkdir(exist_ok=True)
        gateway = self.keeper.open(era, lambda: gateway_of(notebook(folder, era)))

        async def converse() -> None:
            shared = Shared(gateway, folder)
            await eventually(shared.is_quiet)
            await conversation(replace(shared, before=len(ledger(folder))))

        self.keeper.run(converse)

    def talk_before(
        self, server: ServerConfig, conversation: Callable[[Gateway], Coroutine[Any, Any, None]]
    ) -> None:
        """Hold a conversation with the gateway in front of another server."""
        gateway = self.keeper.open(server.name, lambda: gateway_of(server))
        self.keeper.run(lambda: conversation(gateway))


@pytest.fixture(scope="module")
def gateways(tmp_path_factory: pytest.TempPathFactory) -> Generator[Gateways]:
    with keep_open() as keeper:
        yield Gateways(keeper, tmp_path_factory.mktemp("subscriptions"))


# Resources.


@both_servers
@both_clients
def test_a_client_is_notified_only_of_resources_that_it_subscribed_to(
    mode: str, era: str, gateways: Gateways
):
    async def conversation(shared: Shared) -> None:
        async with ear(shared.gateway, mode) as ann:
            await ann.subscribe(B)
            async with ear(shared.gateway, mode, "bob") as bob:
                await bob.subscribe(A)
                await ann.touch("note://a")
                await ann.touch("note://b")

                assert await bob.heard.get() == ResourceUpdated(uri=A)
                assert await ann.heard.get() == ResourceUpdated(uri=B)
                assert bob.heard.empty()

    gateways.talk(era, conversation)


@both_clients
def test_a_server_is_asked_once_however_many_clients_ask(mode: str, gateways: Gateways):
    async def conversation(shared: Shared) -> None:
        async with (
            ear(shared.gateway, mode) as ann,
            ear(shared.gateway, mode, "bob") as bob,
        ):
            await asyncio.gather(ann.subscribe(A), bob.subscribe(A))
            await ann.unsubscribe(A)
            await ann.touch("note://a")
            assert await bob.heard.get() == ResourceUpdated(uri=A)
            assert ann.heard.empty()
            assert shared.ledger() == ["subscribe note://a"]

            await bob.unsubscribe(A)
            await eventually(lambda: shared.ledger()[-1] == "unsubscribe note://a")
            assert len(shared.ledger()) == 2

    gateways.talk("handshake", conversation)


def test_a_server_of_the_new_era_has_one_stream_for_all_resources(gateways: Gateways):
    async def conversation(shared: Shared) -> None:
        async with (
            ear(shared.gateway, "auto") as ann,
            ear(shared.gateway, "legacy", "bob") as bob,
        ):
            await ann.subscribe(A)
            await bob.subscribe(A)
            await bob.subscribe(B)
            # The old stream ends once the new one is there, so that nothing is missed.
            await eventually(lambda: len(shared.ledger()) == 3)
            assert shared.ledger() == [
                "listen note://a",
                "listen note://a note://b",
                "end note://a",
            ]
            await ann.touch("note://a")

            assert await ann.heard.get() == ResourceUpdated(uri=A)
            assert await bob.heard.get() == ResourceUpdated(uri=A)
            assert bob.heard.empty()

    gateways.talk("modern", conversation)


@both_servers
@both_clients
def test_a_client_that_goes_away_leaves_no_subscription_behind(
    mode: str, era: str, gateways: Gateways
):
    async def conversation(shared: Shared) -> None:
        async with ear(shared.gateway, mode) as ann:
            await ann.subscribe(A)
            assert len(shared.gateway.subscriptions.listeners) == 1
        last = "unsubscribe note://a" if era == "handshake" else "end note://a"
        await eventually(lambda: shared.ledger()[-1] == last)

        assert len(shared.gateway.subscriptions.listeners) == 0
        assert not shared.gateway.pool.watched.get_wanted("notes")

    gateways.talk(era, conversation)


@both_servers
@both_clients
def test_a_subscription_survives_a_crash_and_missed_updates_are_sent(
    mode: str, era: str, tmp_path: Path
):
    async def conversation() -> None:
        async with gateway_of(notebook(tmp_path, era)) as gateway, ear(gateway, mode) as ann:
            await ann.subscribe(A)
            await ann.client.call_tool("notes__crash", {})
            # Nobody calls it: the subscription alone has it started again.
            assert await ann.heard.get() == ResourceUpdated(uri=A)
            await ann.touch("note://a")

            assert await ann.heard.get() == ResourceUpdated(uri=A)
            asked = "subscribe note://a" if era == "handshake" else "listen note://a"
            starts = [line for line in ledger(tmp_path) if line in ("start", asked)]
            assert starts == ["start", asked, "start", asked]

    run(conversation)


def test_a_server_that_is_stopped_and_started_by_hand_is_asked_again(tmp_path: Path):
    async def conversation() -> None:
        async with gateway_of(notebook(tmp_path, "modern")) as gateway, ear(gateway, "auto") as ann:
            await ann.subscribe(A)
            await gateway.pool.restart("notes")

            assert await ann.heard.get() == ResourceUpdated(uri=A)

    run(conversation)


def test_a_server_with_a_subscription_is_not_idle(tmp_path: Path):
    servers = [notebook(tmp_path, "handshake", name, idle_stop=0.2) for name in ("notes", "other")]

    async def conversation() -> None:
        async with gateway_of(*servers) as gateway, ear(gateway, "legacy") as ann:
            await ann.subscribe(A)
            members = gateway.pool.servers
            await known(ann.client, "other__echo")
            await eventually(lambda: members["other"].phase == "stopped")
            assert members["notes"].phase == "ready"

            await ann.unsubscribe(A)
            await eventually(lambda: members["notes"].phase == "stopped")

    run(conversation)


def test_an_update_of_a_part_notifies_subscribers_of_the_whole(gateways: Gateways):
    async def conversation(shared: Shared) -> None:
        async with ear(shared.gateway, "legacy") as ann:
            await ann.subscribe(A)
            shared.gateway.pool.watched.on_update("notes", "note://ab")
            shared.gateway.pool.watched.on_update("notes", "note://a/1")

            assert await ann.heard.get() == ResourceUpdated(uri=f"{A}/1")

    gateways.talk("handshake", conversation)


@both_clients
def test_what_does_not_exist_cannot_be_subscribed_to(mode: str, gateways: Gateways):
    async def conversation(shared: Shared) -> None:
        async with ear(shared.gateway, mode) as ann:
            if mode == "auto":
                honored = await ann.listen("x", resource_subscriptions=["toolscout://x/y", A])
                assert honored.resource_subscriptions == [A]
            else:
                with pytest.raises(MCPError, match="Use an address that resources/list shows"):
                    await ann.subscribe("toolscout://x/y")

    gateways.talk("modern", conversation)


@both_clients
def test_subscribing_at_a_server_without_subscriptions_is_refused(mode: str, gateways: Gateways):
    silent = ServerConfig(
        name="git",
        transport=Transport.STDIO,
        command=sys.executable,
        args=("-m", "mcp_server_git"),
    )

    async def conversation(gateway: Gateway) -> None:
        async with ear(gateway, mode, tool="git__git_status") as ann:
            uri = "toolscout://git/file:///nowhere"
            if mode == "auto":
                assert (await ann.listen("x", resource_subscriptions=[uri])) == (
                    types.SubscriptionFilter()
                )
            else:
                with pytest.raises(MCPError, match="Read it again instead"):
                    await ann.subscribe(uri)
            await eventually(lambda: not gateway.pool.watched.get_wanted("git"))

    gateways.talk_before(silent, conversation)


@needs_node
@both_clients
def test_updates_of_a_foreign_server_reach_the_client(mode: str):
    everything = ServerConfig(
        name="all", transport=Transport.STDIO, command=NODE, args=(str(EVERYTHING),)
    )

    async def conversation() -> None:
        toggle = "all__toggle-subscriber-updates"
        async with gateway_of(everything) as gateway, ear(gateway, mode, tool=toggle) as ann:
            uri = "toolscout://all/demo://resource/dynamic/text/1"
            await ann.subscribe(uri)
            await ann.client.call_tool(toggle, {})

            assert await ann.heard.get() == ResourceUpdated(uri=uri)
            # It would have to be killed while it sends updates.
            await ann.client.call_tool(toggle, {})

    run(conversation)


@both_clients
def test_updates_go_through_a_gateway_process(mode: str, tmp_path: Path):
    arguments = str(NOTEBOOK), "modern", str(tmp_path / "notes.ledger")
    config = configuration(tmp_path, {"notes": arguments})

    async def conversation() -> None:
        ann = Ear()
        async with client_of(config, mode=mode, message_handler=ann.notified) as ann.client:
            await known(ann.client, "notes__touch")
            await ann.subscribe(A)
            await ann.touch("note://a")

            assert await ann.update() == A
            await ann.close()

    run(conversation)


# Lists.


@both_servers
def test_clients_are_notified_of_a_new_prompt_and_resource(era: str, tmp_path: Path):
    async def conversation() -> None:
        async with (
            gateway_of(notebook(tmp_path, era)) as gateway,
            ear(gateway, "legacy") as old,
            ear(gateway, "auto", "new") as new,
        ):
            await new.listen("lists", resources_list_changed=True, tools_list_changed=True)
            await new.client.call_tool("notes__grow", {"uri": "note://c"})

            assert {await old.heard.get() for _ in range(3)} == {
                PromptsListChanged(),
                ResourcesListChanged(),
                ToolsListChanged(),
            }
            # The tool that is new is not in the list, but in the description of `tool_search`.
            assert {await new.heard.get() for _ in range(2)} == {
                ResourcesListChanged(),
                ToolsListChanged(),
            }
            assert old.heard.empty()
            assert new.heard.empty()

    run(conversation)


def test_a_stream_that_is_opened_while_the_gateway_ends_ends_in_order(tmp_path: Path):
    async def conversation() -> None:
        async with (
            gateway_of(notebook(tmp_path, "modern")) as gateway,
            ear(gateway, "auto") as ann,
        ):
            await gateway.subscriptions.close()
            async with ann.client.listen(tools_list_changed=True) as stream:
                assert [event async for event in stream] == []

    run(conversation)


def test_without_a_listing_a_tool_that_nobody_lists_is_no_change_of_the_list(tmp_path: Path):
    config = Config(
        servers=(notebook(tmp_path, "modern"),), sessions=Settings.from_mapping({"listing": "off"})
    )

    async def conversation() -> None:
        async with Gateway(config, MemoryStore()) as gateway:
            await eventually(lambda: is_listed(gateway.pool.servers["notes"]))
            async with ear(gateway, "auto") as ann:
                await ann.listen("lists", resources_list_changed=True, tools_list_changed=True)
                await ann.client.call_tool("notes__grow", {"uri": "note://c"})

                assert await ann.heard.get() == ResourcesListChanged()
                assert ann.heard.empty()

    run(conversation)


def test_clients_that_list_all_tools_are_notified_of_a_new_one(tmp_path: Path):
    async def conversation() -> None:
        async with (
            gateway_of(notebook(tmp_path, "modern"), mode=GatewayMode.DIRECT) as gateway,
            ear(gateway, "auto") as ann,
        ):
            await ann.listen("lists", tools_list_changed=True)
            await ann.client.call_tool("notes__grow", {"uri": "note://c"})

            assert await ann.heard.get() == ToolsListChanged()
            assert "notes__c" in [tool.name for tool in (await ann.client.list_tools()).tools]

    run(conversation)


def test_clients_are_notified_when_the_meta_tools_replace_a_list(tmp_path: Path):
    config = Config(
        servers=(notebook(tmp_path, "modern"),),
        gateway=GatewayConfig(mode=GatewayMode.AUTO),
        sessions=Settings(auto_tools=11),
    )

    async def conversation() -> None:
        async with Gateway(config, MemoryStore()) as gateway:
            await eventually(lambda: is_listed(gateway.pool.servers["notes"]))
            async with ear(gateway, "auto") as ann:
                before = len((await ann.client.list_tools()).tools)
                await ann.listen("lists", tools_list_changed=True)
                await ann.client.call_tool("notes__grow", {"uri": "note://c"})

                assert await ann.heard.get() == ToolsListChanged()
                assert (before, len((await ann.client.list_tools()).tools)) == (6, 3)

    run(conversation)


@both_clients
def test_capabilities_say_which_notifications_are_sent(mode: str, gateways: Gateways):
    async def conversation(shared: Shared) -> None:
        async with ear(shared.gateway, mode) as ann:
            offered = ann.client.server_capabilities

            assert offered.tools == types.ToolsCapability(list_changed=True)
            assert offered.prompts == types.PromptsCapability(list_changed=True)
            assert offered.resources == types.ResourcesCapability(subscribe=True, list_changed=True)

    gateways.talk("modern", conversation)


# Over HTTP, and by several principals.

ANN, BOB = "open sesame, said Ann", "swordfish, said Bob"


@asynccontextmanager
async def over_http(url: str, token: str, mode: str) -> AsyncGenerator[Ear]:
    heard = Ear()
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    async with (
        httpx2.AsyncClient(headers=headers, timeout=DEADLINE_SECONDS) as http,
        Client(
            streamable_http_client(f"{url}/mcp", http_client=http),
            mode=mode,
            message_handler=heard.notified,
            cache=None,
        ) as client,
    ):
        heard.client = client
        yield heard
        await heard.close()


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Generator[str]:
    """The address of a gateway with two tokens, one of which sees less."""
    tokens = {"ann": TokenConfig(token=ANN), "bob": TokenConfig(token=BOB, profile="some")}
    profiles = {"some": Profile(tools=("notes__a", "notes__touch"))}
    server = notebook(tmp_path_factory.mktemp("guarded"), "handshake")
    with served(server, tokens=tokens, profiles=profiles) as gateway:
        yield gateway.url


@both_clients
@pytest.mark.requirement("R77")
def test_a_token_is_notified_only_within_its_profile(mode: str, guarded: str):
    """R77"""

    async def conversation() -> None:
        async with over_http(guarded, ANN, mode) as ann, over_http(guarded, BOB, mode) as bob:
            await known(ann.client, "notes__touch")
            await ann.subscribe(B)
            await bob.subscribe(A)
            if mode == "auto":
                honored = await bob.listen("b", resource_subscriptions=[B])
                assert honored.resource_subscriptions is None
            else:
                with pytest.raises(MCPError, match="No resource"):
                    await bob.subscribe(B)
            with pytest.raises(MCPError, match="No resource"):
                await bob.client.read_resource(B)
            await ann.touch("note://b")
            await ann.touch("note://a")

            assert await ann.update() == B
            assert await bob.update() == A

    run(conversation)


@both_clients
def test_a_gateway_that_stops_ends_its_streams_in_good_order(mode: str, tmp_path: Path):
    async def conversation(gateway: Any) -> None:
        async with over_http(gateway.url, "", mode) as ann:
            await known(ann.client, "notes__touch")
            if mode == "legacy":
                await ann.subscribe(A)
                gateway.stop()
                return
            async with ann.client.listen(resource_subscriptions=[A]) as stream:
                gateway.stop()

                assert [event async for event in stream] == []

    with served(notebook(tmp_path, "modern")) as gateway:
        run(lambda: conversation(gateway))
        gateway.thread.join(DEADLINE_SECONDS)
        assert not gateway.thread.is_alive()
