"""Answers that take their time, for tools, prompts and resources of servers of both eras."""

import asyncio
import sys
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import mcp_types as types
import pytest
from mcp.client import Client
from mcp.shared.exceptions import MCPError

from gateway.fleet import Keeper, always, keep_open, text_of
from toolscout.config.file import Config
from toolscout.config.gateway import GatewayConfig
from toolscout.config.servers import ServerConfig, Transport
from toolscout.gateway.gateway import Gateway
from toolscout.gateway.server import build_server
from toolscout.stores import MemoryStore

NOTEBOOK = Path(__file__).with_name("notebook.py")
pytestmark = pytest.mark.timeout(300)
both_servers = pytest.mark.parametrize("era", ["handshake", "modern"])
both_clients = pytest.mark.parametrize("mode", ["auto", "legacy"])
ADA = types.ElicitResult(action="accept", content={"name": "Ada"})
GUARDED = "toolscout://notes/note://guarded"


class User:
    """Answers when the test lets it."""

    def __init__(self, *, thinks: bool = False) -> None:
        self.asked, self.may_answer = asyncio.Event(), asyncio.Event()
        if not thinks:
            self.may_answer.set()

    async def __call__(self, context: Any, params: Any) -> types.ElicitResult:
        self.asked.set()
        await self.may_answer.wait()
        return ADA


@asynccontextmanager
async def gateway_of(
    folder: Path, era: str, *, gateway: dict[str, Any] | None = None, **options: Any
) -> AsyncGenerator[Gateway]:
    server = ServerConfig(
        name="notes",
        transport=Transport.STDIO,
        command=sys.executable,
        args=(str(NOTEBOOK), era, str(folder / "ledger")),
        **options,
    )
    config = Config(servers=(server,), gateway=GatewayConfig(**(gateway or {})))
    async with Gateway(config, MemoryStore()) as made:
        known = asyncio.Event()
        made.catalog.subscribe(lambda change: known.set())
        if not made.catalog.tools:
            await known.wait()
        yield made


@dataclass(frozen=True, slots=True)
class Gateways:
    """A gateway for each set of options, which all tests with those options share."""

    keeper: Keeper
    folder: Path

    def talk(
        self,
        era: str,
        conversation: Callable[[Gateway], Coroutine[Any, Any, None]],
        **options: Any,
    ) -> None:
        """Hold a conversation with the gateway of a server of an era."""
        gateway = self.keeper.open(
            f"{era} {options}", lambda: gateway_of(self.folder, era, **options)
        )
        self.keeper.run(lambda: conversation(gateway))


@pytest.fixture(scope="module")
def gateways(tmp_path_factory: pytest.TempPathFactory) -> Generator[Gateways]:
    with keep_open() as keeper:
        yield Gateways(keeper, tmp_path_factory.mktemp("waiting"))


@asynccontextmanager
async def client_of(
    gateway: Gateway, mode: str, user: User, name: str = "ann"
) -> AsyncGenerator[Client]:
    session = gateway.open_session(name)
    server = build_server(gateway, always(session))
    async with Client(server, mode=mode, elicitation_callback=user) as client:
        yield client


@both_servers
@both_clients
def test_a_prompt_asks_the_clients_user(mode: str, era: str, gateways: Gateways):
    async def conversation(gateway: Gateway) -> None:
        async with client_of(gateway, mode, User()) as client:
            result = await client.get_prompt("notes__greet")

            name = "Ada" if era == "handshake" else "Ada at the door"
            assert result.messages[0].content == types.TextContent(
                type="text", text=f"Greet {name}."
            )

    gateways.talk(era, conversation)


@both_servers
@both_clients
def test_a_resource_asks_the_clients_user(mode: str, era: str, gateways: Gateways):
    async def conversation(gateway: Gateway) -> None:
        async with client_of(gateway, mode, User()) as client:
            result = await client.read_resource(GUARDED)

            name = "Ada" if era == "handshake" else "Ada at the door"
            held = types.TextResourceContents(uri=GUARDED, text=name)
            assert result.contents == [held]

    gateways.talk(era, conversation)


@pytest.mark.requirement("R69")
def test_the_state_of_one_prompt_is_not_good_for_another_client(gateways: Gateways):
    """R69"""

    async def conversation(gateway: Gateway) -> None:
        async with (
            client_of(gateway, "auto", User()) as ann,
            client_of(gateway, "auto", User(), "bob") as bob,
        ):
            first = await ann.session.get_prompt("notes__greet", allow_input_required=True)
            assert isinstance(first, types.InputRequiredResult)
            answers: Any = dict.fromkeys(first.input_requests or {}, ADA)
            given: Any = {"input_responses": answers, "request_state": first.request_state}
            with pytest.raises(MCPError, match="Make the call again, without a request state"):
                await bob.get_prompt("notes__greet", **given)
            rightful = await ann.get_prompt("notes__greet", **given)

            assert "Ada" in str(rightful.messages[0].content)

    gateways.talk("handshake", conversation)


@both_clients
def test_a_user_who_thinks_keeps_nobody_else_waiting(mode: str, gateways: Gateways):
    """With one slot and no queue, a call that waits for its user would shut out all others."""
    thinking = User(thinks=True)

    async def conversation(gateway: Gateway) -> None:
        async with (
            client_of(gateway, mode, thinking) as slow,
            client_of(gateway, mode, User(), "bob") as quick,
        ):
            asking = asyncio.create_task(slow.call_tool("notes__ask", {}))
            await thinking.asked.wait()
            told = [text_of(await quick.call_tool("notes__echo", {})) for _ in range(3)]
            thinking.may_answer.set()

            assert told == ["done"] * 3
            assert text_of(await asking) == "Hello, Ada."
            member = gateway.pool.servers["notes"]
            assert (member.running, member.waiting, member.resting) == (0, 0, 0)
            assert not member.slots.count("")

    gateways.talk("handshake", conversation, concurrency=1, gateway={"queue": 0})


@both_clients
def test_the_time_that_a_user_takes_is_not_the_servers(mode: str, gateways: Gateways):
    thinking = User(thinks=True)

    async def conversation(gateway: Gateway) -> None:
        async with client_of(gateway, mode, thinking) as client:
            asking = asyncio.create_task(client.call_tool("notes__ask", {}))
            await thinking.asked.wait()
            # Begun later, and given up all the same.
            late = await client.call_tool("notes__hang", {})
            thinking.may_answer.set()

            assert "did not answer within 1 s" in text_of(late)
            assert text_of(await asking) == "Hello, Ada."

    gateways.talk("handshake", conversation, call_seconds=1.0)


@both_clients
def test_an_answer_that_takes_too_long_ends_the_call(mode: str, gateways: Gateways):
    thinking = User(thinks=True)

    async def conversation(gateway: Gateway) -> None:
        async with client_of(gateway, mode, thinking) as client:
            asking = asyncio.create_task(client.call_tool("notes__ask", {}))
            await thinking.asked.wait()
            member = gateway.pool.servers["notes"]
            await member.idle.wait()
            thinking.may_answer.set()
            told = await asking

            assert told.is_error
            late = "The client has not answered within 0.1 s."
            assert ("none of your calls is waiting" if mode == "auto" else late) in text_of(told)
            assert text_of(await client.call_tool("notes__echo", {})) == "done"

    gateways.talk("handshake", conversation, gateway={"answer_seconds": 0.1})
