"""stdin and stdout as the two ends of one MCP connection, without a thread between.

The SDK reads and writes the standard streams in worker threads, which costs a call more than all
that the gateway does with it. Here the event loop watches the pipes itself. While it serves, file
descriptor 1 leads to stderr and 0 to nowhere, so that no stray output gets into the protocol.
Streams that are no pipes, such as files, are left to the SDK.
"""

import asyncio
import os
import stat
import sys
from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import anyio
import mcp_types as types
from mcp.server.stdio import stdio_server
from mcp.shared.message import SessionMessage

from toolscout.servers.process import ReadStream, Stream

LINE_LIMIT = 256 << 20
"""Bytes of the longest message."""


def open_stdio() -> AbstractAsyncContextManager[tuple[Any, Any]]:
    """Return the messages that come in on stdin, and where to send answers."""
    if sys.platform == "win32" or not (_is_pipe(0) and _is_pipe(1)):
        return stdio_server()
    return _open_pipes()


def _is_pipe(descriptor: int) -> bool:
    mode = os.fstat(descriptor).st_mode
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)


@asynccontextmanager
async def _open_pipes() -> AsyncGenerator["tuple[StdinStream, StdoutStream]"]:
    loop = asyncio.get_running_loop()
    source, sink = os.dup(0), os.dup(1)
    nowhere = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nowhere, 0)
    os.dup2(2, 1)
    os.close(nowhere)
    reader = asyncio.StreamReader(limit=LINE_LIMIT)
    reading, _ = await loop.connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(source, "rb", buffering=0)
    )
    writing, protocol = await loop.connect_write_pipe(
        asyncio.streams.FlowControlMixin, os.fdopen(sink, "wb", buffering=0)
    )
    writer = asyncio.StreamWriter(writing, protocol, None, loop)
    try:
        yield StdinStream(reader), StdoutStream(writer)
    finally:
        reading.close()
        writing.close()


class StdinStream(ReadStream):
    """Messages from stdin; what is no message comes as the error that reading it gave."""

    def __init__(self, reader: asyncio.StreamReader) -> None:
        self._reader = reader

    async def receive(self) -> SessionMessage | Exception:
        """Return the next message, or end the stream."""
        try:
            line = await self._reader.readline()
        except (ValueError, ConnectionError) as error:
            return error
        if not line:
            raise anyio.EndOfStream
        try:
            return SessionMessage(types.jsonrpc_message_adapter.validate_json(line, by_name=False))
        except ValueError as error:
            return error


class StdoutStream(Stream):
    """Messages to stdout, each on a line of its own."""

    def __init__(self, writer: asyncio.StreamWriter) -> None:
        self._writer = writer

    async def send(self, item: SessionMessage, /) -> None:
        """Write one message; waits only while the client does not read."""
        text = item.message.model_dump_json(by_alias=True, exclude_unset=True)
        self._writer.write(f"{text}\n".encode())
        try:
            await self._writer.drain()
        except ConnectionError:
            raise anyio.BrokenResourceError from None
