"""The gateway in the background: serves the bridges of many clients over a local socket.

Each connection is one client with a session of its own. The daemon ends when it has had no client
for a while, and when a newer version wants to take over: it then asks its clients to go there, and
answers what they have asked before.
"""

import asyncio
import json
import logging
import os
import socket
import struct
import sys
from contextlib import suppress
from dataclasses import dataclass, field, replace
from importlib.metadata import version
from typing import Any

import mcp_types as types
from anyio import EndOfStream
from mcp.shared.message import SessionMessage

from toolscout.config.gateway import GatewayConfig
from toolscout.daemon.place import GREETING_SECONDS, LEAVE, Place
from toolscout.errors import ToolscoutError
from toolscout.gateway.events import Requested
from toolscout.gateway.forward import Context
from toolscout.gateway.gateway import Gateway
from toolscout.gateway.listen import LINE_LIMIT, StdinStream, StdoutStream, handle_signals
from toolscout.gateway.middleware import ANONYMOUS, Principal
from toolscout.gateway.server import build_server, format_client
from toolscout.gateway.shims import serve_streams
from toolscout.sessions.session import Session

SESSION_PREFIX = "stdio-"

_log = logging.getLogger(__name__)


@dataclass(eq=False, slots=True)
class DaemonClient:
    """A client of the daemon."""

    session: Session
    profile: str
    writer: asyncio.StreamWriter
    name: str = ""
    """What it calls itself."""
    is_leaving: bool = False
    unanswered: set[object] = field(default_factory=set[object])
    answered: asyncio.Event = field(default_factory=asyncio.Event)


class Daemon:
    """Serves the clients that connect to a socket."""

    def __init__(self, gateway: Gateway, place: Place) -> None:
        self.clients: set[DaemonClient] = set()
        self._gateway = gateway
        self._path = place.find_socket(os.environ)
        self._inode = 0
        self._version = version("toolscout")
        self._stop = asyncio.Event()
        self._idle: asyncio.TimerHandle | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        gateway.on_access = self._change_access

    async def serve(self) -> None:
        """Serve until nobody has been connected for a while, or until a signal arrives."""
        self._path.unlink(missing_ok=True)  # of a daemon that was killed
        with handle_signals(self._stop):
            server = await asyncio.start_unix_server(self._accept, self._path, limit=LINE_LIMIT)
            self._inode = self._path.stat().st_ino
            _log.info("Serving the clients of this machine. process=%d", os.getpid())
            try:
                self._wait_for_clients()
                await self._stop.wait()
            finally:
                self._withdraw()
                server.close()
                await self._leave()

    def _withdraw(self) -> None:
        """Make room for another daemon."""
        self._stop.set()
        with suppress(OSError):
            if self._path.stat().st_ino == self._inode:
                self._path.unlink()

    def list_clients(self) -> list[str]:
        """Return what the connected clients call themselves."""
        return sorted(client.name for client in self.clients if client.name)

    def _wait_for_clients(self) -> None:
        """End after a while, unless somebody connects before."""
        if self._idle is not None:
            self._idle.cancel()
        seconds = self._gateway.config.gateway.daemon_seconds
        self._idle = asyncio.get_running_loop().call_later(seconds, self._stop.set)

    async def _leave(self) -> None:
        """Send all clients to another daemon, and answer what they have asked."""
        for client in list(self.clients):
            client.is_leaving = True
            with suppress(ConnectionError):
                client.writer.write(json.dumps({"toolscout": LEAVE}).encode() + b"\n")
        if self._tasks:
            seconds = self._gateway.config.gateway.stop_seconds
            _, late = await asyncio.wait(self._tasks, timeout=seconds)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        try:
            async with asyncio.timeout(GREETING_SECONDS):
                greeting: Any = json.loads(await reader.readline())
            answer = self._answer(greeting, writer)
            writer.write(json.dumps(answer).encode() + b"\n")
            if answer.get("accepted"):
                self._tasks.add(task)
                await self._serve_client(greeting, reader, writer)
        except (ValueError, KeyError, TypeError, AttributeError, ConnectionError, TimeoutError):
            pass  # not one of our bridges, or one that has ended
        finally:
            self._tasks.discard(task)
            writer.close()

    def _answer(self, greeting: Any, writer: asyncio.StreamWriter) -> dict[str, Any]:
        if not _is_same_user(writer.get_extra_info("socket")):
            return {}
        if greeting.get(LEAVE) or _is_newer(greeting["version"], self._version):
            self._stop.set()
        if self._stop.is_set():
            self._withdraw()
            return {"accepted": False}
        try:
            self._find_principal(greeting["profile"], self._gateway.config.gateway)
        except ToolscoutError as error:
            return {"problem": str(error)}
        return {"accepted": True, "version": self._version, "pid": os.getpid()}

    async def _serve_client(
        self, greeting: Any, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        profile = str(greeting["profile"])
        principal = self._find_principal(profile, self._gateway.config.gateway)
        name = f"{SESSION_PREFIX}{greeting['session']}"
        session = await asyncio.to_thread(self._gateway.open_session, name, principal)
        client = DaemonClient(session, profile, writer)
        self.clients.add(client)
        if self._idle is not None:
            self._idle.cancel()

        async def find_session(context: Context) -> Session:
            client.name = format_client(context)
            self._gateway.events.emit(
                Requested(session=session.id, principal=ANONYMOUS, client=client.name)
            )
            return session

        server = build_server(self._gateway, find_session)
        read, write = _ClientInput(reader, client), _ClientOutput(writer, client)
        try:
            await serve_streams(server, read, write)
        finally:
            self.clients.discard(client)
            if not self.clients and not self._stop.is_set():
                self._wait_for_clients()
            if not client.is_leaving:
                await asyncio.to_thread(self._gateway.scout.forget, name)

    def _find_principal(self, profile: str, config: GatewayConfig) -> Principal:
        limits = config.find_profile(profile) if profile else None
        return replace(ANONYMOUS, profile=limits, profile_name=profile)

    def _change_access(self, config: GatewayConfig) -> None:
        for client in self.clients:
            principal = self._find_principal(client.profile, config)
            self._gateway.restrict_session(client.session, principal)


class _ClientInput(StdinStream):
    """Messages of a client. When it leaves, the end comes after the last answer."""

    def __init__(self, reader: asyncio.StreamReader, client: DaemonClient) -> None:
        super().__init__(reader)
        self._client = client

    async def receive(self) -> SessionMessage | Exception:
        try:
            item = await super().receive()
        except EndOfStream:
            while self._client.is_leaving and self._client.unanswered:
                self._client.answered.clear()
                await self._client.answered.wait()
            raise
        if isinstance(item, SessionMessage) and isinstance(item.message, types.JSONRPCRequest):
            self._client.unanswered.add(item.message.id)
        return item


class _ClientOutput(StdoutStream):
    """Messages to a client; notes which of its requests have been answered."""

    def __init__(self, writer: asyncio.StreamWriter, client: DaemonClient) -> None:
        super().__init__(writer)
        self._client = client

    async def send(self, item: SessionMessage) -> None:
        await super().send(item)
        if isinstance(item.message, (types.JSONRPCResponse, types.JSONRPCError)):
            self._client.unanswered.discard(item.message.id)
            self._client.answered.set()


def _is_same_user(connection: socket.socket) -> bool:
    """Tell whether a connection comes from this user; where nobody can, the folder decides."""
    if not sys.platform.startswith("linux"):
        return True
    data = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    return struct.unpack("3i", data)[1] == os.getuid()


def _is_newer(one: str, other: str) -> bool:
    """Tell whether a version comes after another; odd ones never do."""
    try:
        return tuple(map(int, one.split("."))) > tuple(map(int, other.split(".")))
    except ValueError:
        return False
