"""A server answers as much as it likes: the gateway must not run out of memory."""

import asyncio
import sys
import zlib
from pathlib import Path

import pytest
from mcp import Client

from gateway.fleet import always, text_of
from security.hostile_web import Json, Request, answer_mcp, web_server
from serving import DEADLINE_SECONDS, eventually
from toolscout.config.file import Config
from toolscout.config.servers import ServerConfig, Transport
from toolscout.gateway.gateway import Gateway
from toolscout.gateway.server import build_server
from toolscout.servers.connection import Delays
from toolscout.servers.process import (
    MESSAGE_BYTES,
    ProcessReaper,
    ServerProcess,
    run_process,
)
from toolscout.servers.state import Phase
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
            answer_mcp(request, lambda method, _: answer(method))

    def answer(method: str) -> Json | None:
        return {"tools": [TOOL]} if method == "tools/list" else None

    async def call(server: ServerConfig) -> str:
        async with Gateway(Config(servers=(server,)), MemoryStore()) as gateway:
            member = gateway.pool.servers["far"]
            await eventually(lambda: member.phase is Phase.READY or member.reason)
            session = gateway.open_session("ann")
            async with Client(build_server(gateway, always(session))) as client:
                return text_of(await client.call_tool("far__x", {}))

    with web_server(flood) as address:
        server = ServerConfig(name="far", transport=Transport.HTTP, url=f"{address}/mcp")
        text = asyncio.run(call(server))

    assert "far" in text
    assert "longer than 67,108,864 bytes" in text
    assert sent < 128 << 20


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
