"""What a model reads that calls a tool of a server which is not there."""

import asyncio
import threading
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from mcp.client import Client

from gateway.fleet import always, text_of
from serving import DEADLINE_SECONDS, HANGING, MISSING, TIME
from toolscout.config.file import Config
from toolscout.config.gateway import Profile
from toolscout.config.servers import ServerConfig, Transport
from toolscout.gateway.gateway import Gateway
from toolscout.gateway.middleware import Principal
from toolscout.gateway.server import build_server
from toolscout.servers.state import Phase
from toolscout.stores import MemoryStore

pytestmark = pytest.mark.timeout(300)


@asynccontextmanager
async def gateway_and_client(
    server: ServerConfig, phase: Phase, profile: Profile | None = None
) -> AsyncGenerator[tuple[Gateway, Client]]:
    """A gateway whose server has come so far, and a client of it."""
    async with (
        asyncio.timeout(DEADLINE_SECONDS),
        Gateway(Config(servers=(server,)), MemoryStore()) as gateway,
    ):
        member = gateway.pool.servers[server.name]
        while member.phase is not phase:  # noqa: ASYNC110  # phases are no events
            await asyncio.sleep(0.01)
        session = gateway.open_session("ann", Principal(name="ann", profile=profile))
        async with Client(build_server(gateway, always(session))) as client:
            yield gateway, client


async def told(client: Client, name: str) -> str:
    return text_of(await client.call_tool("tool_call", {"name": name, "arguments": {}}))


def test_a_server_that_failed_is_named_with_the_reason():
    async def conversation() -> None:
        async with gateway_and_client(MISSING, Phase.FAILED) as (_, client):
            result = await client.call_tool("missing__send", {})

            assert result.is_error
            assert text_of(result) == (
                "Not called: server 'missing' has failed (its command or folder was not found). "
                "Try again later, or use another tool."
            )

    asyncio.run(conversation())


@pytest.mark.parametrize(
    "name", ["hanging__send", "mcp__hanging__send", "hanging.send", "Hanging/send"]
)
def test_a_server_that_is_starting_is_worth_waiting_for(name: str):
    async def conversation() -> None:
        async with gateway_and_client(HANGING, Phase.STARTING) as (_, client):
            assert await told(client, name) == (
                "Not called: server 'hanging' is starting. "
                "Its tools are not known yet; try again shortly."
            )

    asyncio.run(conversation())


class _Refusing(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        self.send_response(401)
        self.send_header("Content-Length", "0")
        self.end_headers()

    do_GET = do_DELETE = do_POST

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # the base names it
        return None


@contextmanager
def refusing() -> Generator[str]:
    """Serve nobody, and return the address."""
    with ThreadingHTTPServer(("127.0.0.1", 0), _Refusing) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/mcp"
        finally:
            server.shutdown()
            thread.join()


def test_a_server_that_wants_a_login_says_what_the_user_has_to_do():
    async def conversation(url: str) -> None:
        server = ServerConfig(name="mail", transport=Transport.HTTP, url=url)
        async with gateway_and_client(server, Phase.NEEDS_LOGIN) as (_, client):
            said = await told(client, "mail__send")

            assert said.startswith("Not called: server 'mail' is waiting for a login (")
            assert said.endswith(
                "Ask the user to run `toolscout servers login mail`, then try again."
            )

    with refusing() as url:
        asyncio.run(conversation(url))


def test_a_server_that_was_stopped_by_hand_says_so():
    async def conversation() -> None:
        async with gateway_and_client(TIME, Phase.READY) as (gateway, client):
            await gateway.pool.stop("time")

            assert await told(client, "time__guess") == (
                "Not called: server 'time' is stopped. "
                "Ask the user to start it, or use another tool."
            )

    asyncio.run(conversation())


def test_a_tool_that_a_running_server_lacks_is_unknown():
    async def conversation() -> None:
        async with gateway_and_client(TIME, Phase.READY) as (_, client):
            assert await told(client, "time__convert") == (
                "Not called: there is no tool 'time__convert'. Near: time__convert_time."
            )

    asyncio.run(conversation())


@pytest.mark.requirement("R77")
def test_who_may_not_see_a_server_learns_nothing_of_it():
    """R77"""
    elsewhere = Profile(servers=("time",))

    async def conversation() -> None:
        async with gateway_and_client(MISSING, Phase.FAILED, elsewhere) as (_, client):
            assert await told(client, "missing__send") == (
                "Not called: there is no tool 'missing__send'. Find it with tool_search."
            )

    asyncio.run(conversation())
