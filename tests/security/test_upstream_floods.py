"""A server answers as much as it likes: the gateway must not run out of memory."""

import asyncio
import json
import socket
import sys
import zlib
from pathlib import Path
from typing import Any

import httpx2
import pytest
from mcp import Client

from gateway.fleet import always, text_of
from security.hostile_web import Json, Request, answer_mcp, web_server
from serving import DEADLINE_SECONDS, Served, eventually, served
from toolscout.config.file import Config
from toolscout.config.servers import ServerConfig, Transport
from toolscout.gateway.gateway import Gateway
from toolscout.gateway.server import build_server
from toolscout.servers.connection import QUESTIONS_MAX, Delays
from toolscout.servers.process import (
    MESSAGE_BYTES,
    ProcessReaper,
    ServerProcess,
    run_process,
)
from toolscout.servers.state import Phase
from toolscout.sessions.events import Called
from toolscout.stores.memory import MemoryStore

MEGABYTE = b" " * (1 << 20)
TOOL = {"name": "x", "inputSchema": {"type": "object"}}


def local(*arguments: str) -> ServerConfig:
    hostile = str(Path(__file__).with_name("hostile_server.py"))
    return ServerConfig(
        name="hostile",
        transport=Transport.STDIO,
        command=sys.executable,
        args=(hostile, *arguments),
        start_seconds=DEADLINE_SECONDS,
    )


def find_reason(server: ServerConfig) -> str:
    """Return why a server could not be used."""

    async def learn() -> str:
        async with Gateway(Config(servers=(server,)), MemoryStore()) as gateway:
            member = gateway.pool.servers[server.name]
            await eventually(lambda: member.phase in (Phase.FAILED, Phase.READY))
            assert member.phase is Phase.FAILED
            return member.reason

    return asyncio.run(learn())


@pytest.mark.parametrize(
    ("kind", "limit"),
    [
        ("same", "repeats the cursor 'same'"),
        ("new", "has more than 1,000 pages"),
        ("large", "is longer than 67,108,864 bytes"),
    ],
)
def test_a_list_without_end_is_given_up(kind: str, limit: str):
    reason = find_reason(local("pager", kind))

    assert f"Server 'hostile' sent an unreadable answer: tools/list {limit}" in reason


def list_one_tool(method: str) -> Json | None:
    return {"tools": [TOOL]} if method == "tools/list" else None


async def call_far(server: ServerConfig) -> str:
    async with Gateway(Config(servers=(server,)), MemoryStore()) as gateway:
        member = gateway.pool.servers["far"]
        await eventually(lambda: member.phase is Phase.READY or member.reason)
        session = gateway.open_session("ann")
        async with Client(build_server(gateway, always(session))) as client:
            return text_of(await client.call_tool("far__x", {}))


@pytest.mark.parametrize("packed", [False, True], ids=["plain", "compressed"])
@pytest.mark.parametrize("asked", ["tools/list", "tools/call"])
def test_an_answer_without_end_is_given_up(asked: str, packed: bool):
    sent = 0
    packer = zlib.compressobj(1, wbits=31)

    def make() -> bytes:
        nonlocal sent
        sent += len(MEGABYTE)
        return packer.compress(MEGABYTE) if packed else MEGABYTE

    def flood(request: Request) -> None:
        message = request.read_message()
        if message.get("method") == asked:
            encoding = {"content_encoding": "gzip"} if packed else {}
            request.stream("application/json", make, **encoding)
        else:
            answer_mcp(request, lambda method, _: list_one_tool(method))

    with web_server(flood) as address:
        server = ServerConfig(name="far", transport=Transport.HTTP, url=f"{address}/mcp")
        text = asyncio.run(call_far(server))

    assert "far" in text
    assert "longer than 67,108,864 bytes" in text
    assert sent < 128 << 20


def test_a_server_that_ends_every_stream_at_once_is_asked_again_only_now_and_then():
    streams = 0

    def end_streams(request: Request) -> None:
        nonlocal streams
        streams += request.command == "GET"
        if request.command == "GET" or request.read_message().get("method") == "tools/call":
            # A number makes the client ask for the rest, and it is told not to wait.
            request.reply(200, b"id: 1\nretry: 0\ndata:\n\n", content_type="text/event-stream")
        else:
            answer_mcp(request, lambda method, _: list_one_tool(method), mcp_session_id="1")

    with web_server(end_streams) as address:
        server = ServerConfig(
            name="far", transport=Transport.HTTP, url=f"{address}/mcp", call_seconds=1
        )
        text = asyncio.run(call_far(server))

    assert "did not answer within 1 s" in text
    assert 2 <= streams < 50


MANY = 50
"""Messages of the flood that are too many together."""


def test_a_process_that_floods_has_to_wait():
    async def flood() -> int:
        process = ServerProcess(lambda line: None, lambda: None, Delays())
        reaper = ProcessReaper()
        async with run_process(process, local("flood"), reaper):
            await eventually(lambda: process.is_paused or process.lines.qsize() > MANY)
            waiting = [process.lines.get_nowait() for _ in range(process.lines.qsize())]
        reaper.close()
        return sum(len(line or b"") for line in waiting)

    assert asyncio.run(flood()) < 2 * MESSAGE_BYTES


def count_tasks(running: Served) -> int:
    async def count() -> int:
        return len(asyncio.all_tasks())

    return asyncio.run_coroutine_threadsafe(count(), running.loop).result(DEADLINE_SECONDS)


def connect(running: Served, request: str) -> socket.socket:
    """Send a request over a connection on which nobody reads the answer."""
    host, _, port = running.url.removeprefix("http://").partition(":")
    silent = socket.socket()
    silent.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
    silent.settimeout(DEADLINE_SECONDS)
    silent.connect((host, int(port)))
    silent.sendall(request.replace("\n", "\r\n").encode())
    return silent


@pytest.mark.parametrize("kind", ["progress", "log"])
def test_messages_that_a_client_does_not_read_are_dropped(kind: str):
    meta = {
        "progressToken": "p",
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": {"name": "raw", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": {},
        "io.modelcontextprotocol/logLevel": "debug",
    }
    params = {"name": f"hostile__{kind}", "arguments": {}, "_meta": meta}
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params})
    head = f"""POST /mcp HTTP/1.1
Host: localhost
Accept: application/json, text/event-stream
Content-Type: application/json
MCP-Protocol-Version: 2026-07-28
Mcp-Method: tools/call
Mcp-Name: hostile__{kind}
Content-Length: {len(body)}

"""
    with served(local("chatter", "8000")) as running:
        assert running.known.wait(DEADLINE_SECONDS)
        most = 0
        with connect(running, head + body):
            while not any(isinstance(event, Called) for event in running.events):
                most = max(most, count_tasks(running))
        assert most < 200


def test_a_server_that_asks_without_end_is_answered_for_the_client():
    many = 100

    async def wait(context: Any, params: Any) -> Any:
        await asyncio.Event().wait()  # this person never answers

    async def call() -> str:
        config = Config(servers=(local("chatter", str(many), str(many - QUESTIONS_MAX)),))
        async with asyncio.timeout(DEADLINE_SECONDS), Gateway(config, MemoryStore()) as gateway:
            await eventually(lambda: len(gateway.catalog))
            gate = build_server(gateway, always(gateway.open_session("ann")))
            async with Client(gate, mode="legacy", elicitation_callback=wait) as client:
                return text_of(await client.call_tool("hostile__ask", {}))

    assert asyncio.run(call()) == f"{many - QUESTIONS_MAX} refused"


def test_results_that_a_client_over_sse_does_not_read_count_as_its_calls():
    token = "ann-has-a-token-of-more-than-32-characters"
    hello: Json = {"protocolVersion": "2024-11-05", "capabilities": {}}
    hello["clientInfo"] = {"name": "test", "version": "1"}
    head = f"GET /sse HTTP/1.1\nHost: localhost\nAuthorization: Bearer {token}\n\n"
    tokens = {"ann": {"token": token}}
    with served(local("painter"), tokens=tokens, max_calls=4) as running:
        assert running.known.wait(DEADLINE_SECONDS)
        server = running.gateway.pool.servers["hostile"]
        headers = {"Authorization": f"Bearer {token}"}
        with (
            connect(running, head) as stream,
            httpx2.Client(headers=headers, timeout=DEADLINE_SECONDS) as http,
        ):
            told = b""
            while b"session_id=" not in told or not told.endswith(b"\r\n\r\n"):
                told += stream.recv(4_096)
            path = told.partition(b"data: ")[2].split()[0].decode()

            def send(method: str, params: Json, **members: Any) -> None:
                message = {"jsonrpc": "2.0", "method": method, "params": params, **members}
                assert http.post(f"{running.url}{path}", json=message).status_code == 202

            send("initialize", hello, id=1)
            send("notifications/initialized", {})
            for number in range(60):
                send("tools/call", {"name": "hostile__paint", "arguments": {}}, id=number + 2)
                asyncio.run(eventually(lambda: not server.running and not server.waiting))

        made = [event for event in running.heard() if isinstance(event, Called)]
        assert 0 < len(made) < 30
