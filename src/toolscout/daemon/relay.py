"""`ConsoleRelay`: lets a browser on this machine see the console of the gateway in the background.

The gateway serves its console at a socket that only its user can open, for as long as the relay
stays connected. The relay listens on a loopback port and passes bytes through. Everybody on the
machine can reach that port, so the console wants the token that the relay has made.
"""

import asyncio
import json
import secrets
import socket
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from toolscout.daemon.place import CONSOLE, GREETING_SECONDS

TOKEN_BYTES = 24
LOOK_SECONDS = 1.0
"""How often to look for another gateway when the last one has ended."""
READ_BYTES = 65_536


class ConsoleRelay:
    """Passes the connections of browsers on to whichever gateway runs.

    `find` returns the socket of the gateway, or None if none runs.
    """

    def __init__(self, find: Callable[[], Path | None]) -> None:
        self.token = secrets.token_urlsafe(TOKEN_BYTES)
        self._find = find
        self._path = ""
        self._connections: set[asyncio.Task[None]] = set()

    async def run(self, listener: socket.socket, ready: Callable[[], None]) -> None:
        """Serve browsers for ever; call `ready` once the first gateway has opened its console."""
        server = await asyncio.start_server(self._pass_on, sock=listener)
        is_first = True
        try:
            while True:
                opened = await self._open()
                if opened is None:
                    await asyncio.sleep(LOOK_SECONDS)
                    continue
                reader, writer = opened
                if is_first:
                    is_first = False
                    ready()
                await reader.read()  # until the gateway ends
                writer.close()
        finally:
            server.close()
            for task in self._connections:
                task.cancel()

    async def _open(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter] | None:
        """Ask the gateway to show its console; the answer says where."""
        path = await asyncio.to_thread(self._find)
        if path is None:
            return None
        try:
            async with asyncio.timeout(GREETING_SECONDS):
                reader, writer = await asyncio.open_unix_connection(path)
                writer.write(json.dumps({CONSOLE: self.token}).encode() + b"\n")
                self._path = json.loads(await reader.readline())["path"]
        except (OSError, ValueError, KeyError, TimeoutError):
            return None  # it has just ended, or cannot show a console
        return reader, writer

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        try:
            from_gateway, to_gateway = await asyncio.open_unix_connection(self._path)
            both = (_copy(reader, to_gateway), _copy(from_gateway, writer))
            copying = [asyncio.create_task(one) for one in both]
            await asyncio.wait(copying, return_when=asyncio.FIRST_COMPLETED)
            for one in copying:
                one.cancel()
            to_gateway.close()
        except OSError:
            pass  # no gateway runs; the page tries again
        finally:
            self._connections.discard(task)
            writer.close()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(ConnectionError):
        while data := await reader.read(READ_BYTES):
            writer.write(data)
            await writer.drain()
