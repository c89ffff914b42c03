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
import time
from collections import deque
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import mcp_types as types
from anyio import EndOfStream
from mcp.shared.dispatcher import as_request_id
from mcp.shared.message import SessionMessage

from toolscout.config.gateway import GatewayConfig
from toolscout.daemon.place import (
    ABOUT,
    AS_DAEMON,
    CANCELLED,
    CONSOLE,
    GREETING_SECONDS,
    LEAVE,
    Place,
)
from toolscout.errors import ToolscoutError
from toolscout.gateway.events import LogLine, Requested
from toolscout.gateway.forward import Context
from toolscout.gateway.gateway import Gateway
from toolscout.gateway.listen import (
    LineReader,
    StdinStream,
    StdoutStream,
    handle_signals,
    serve_streams,
)
from toolscout.gateway.middleware import ANONYMOUS, Principal
from toolscout.gateway.resume import STDIO, KnownClients, sweep_daily
from toolscout.gateway.server import build_server, format_client
from toolscout.schemas import Json, is_object
from toolscout.sessions.events import Answered, Event
from toolscout.sessions.session import Session

EVENTS_KEPT = 1_000
OpenConsole = Callable[[Path, str], AbstractAsyncContextManager[None]]

_log = logging.getLogger(__name__)


@dataclass(eq=False, slots=True)
class DaemonClient:
    """A client of the daemon."""

    session: Session
    profile: str
    writer: asyncio.StreamWriter
    name: str = ""
    """What it calls itself."""
    since: datetime = field(default_factory=partial(datetime.now, UTC))
    requests: int = 0
    is_leaving: bool = False
    unanswered: set[object] = field(default_factory=set[object])
    answered: asyncio.Event = field(default_factory=asyncio.Event)

    def settle(self, request: object) -> None:
        """Note that a request has its answer, or needs none."""
        self.unanswered.discard(request)
        self.answered.set()


class Daemon:
    """Serves the clients that connect to a socket."""

    def __init__(self, gateway: Gateway, place: Place, log_file: Path) -> None:
        self.clients: set[DaemonClient] = set()
        self._gateway = gateway
        self._since = datetime.now(UTC)
        self._place = place
        self._log_file = log_file
        self._path = place.find_socket(os.environ)
        self._inode = 0
        self._version = version("toolscout")
        self._stop = asyncio.Event()
        self._reason = "it was asked to stop"
        self._idle: asyncio.TimerHandle | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._consoles = 0
        self.open_console: OpenConsole | None = None
        """Serves the console at a socket, to browsers that send a token."""
        self.past: deque[tuple[float, Event]] = deque(maxlen=EVENTS_KEPT)
        """The last events, for a console that is opened later."""
        gateway.events.subscribe(self._keep_event)
        self._known = KnownClients(
            gateway.store, gateway.config.gateway.session_days, gateway.end_session
        )
        gateway.on_access = self._change_access

    async def serve(self) -> None:
        """Serve until nobody has been connected for a while, or until a signal arrives."""
        self._path.unlink(missing_ok=True)  # of a daemon that was killed
        with handle_signals(self._stop):
            loop = asyncio.get_running_loop()
            server = await loop.create_unix_server(self._make_protocol, self._path)
            self._inode = self._path.stat().st_ino
            _log.info("Serving the clients of this machine. process=%d", os.getpid())
            sweeping = asyncio.create_task(sweep_daily(self._known, self._gateway.store))
            try:
                self._wait_for_clients()
                await self._stop.wait()
            finally:
                sweeping.cancel()
                self._withdraw()
                server.close()
                _log.info("Ending: %s.", self._reason)
                await self._leave()

    def _withdraw(self) -> None:
        """Make room for another daemon."""
        self._stop.set()
        with suppress(OSError):
            if self._path.stat().st_ino == self._inode:
                self._path.unlink()

    def list_clients(self) -> list[Json]:
        """Return the connected clients as JSON, the first to connect first."""
        return [
            {
                "name": client.name,
                "profile": client.profile,
                "session": client.session.id,
                "since": client.since.isoformat(timespec="seconds"),
                "requests": client.requests,
            }
            for client in sorted(self.clients, key=lambda client: client.since)
        ]

    def describe(self) -> Json:
        """Return what `doctor`, `stop` and `logs` want to know, as JSON."""
        return {
            "pid": os.getpid(),
            "version": self._version,
            "since": self._since.isoformat(timespec="seconds"),
            "config": str(self._gateway.config.source),
            "log": str(self._log_file),
            "socket": str(self._path),
            "stop_seconds": self._gateway.config.gateway.stop_seconds,
            "command": [word for word in sys.argv[1:] if not word.startswith(AS_DAEMON)],
            "clients": self.list_clients(),
        }

    def _keep_event(self, event: Event) -> None:
        if isinstance(event, Requested | Answered | LogLine):
            self.past.append((time.time(), event))

    def _wait_for_clients(self) -> None:
        """End after a while, unless somebody connects before."""
        if self._idle is not None:
            self._idle.cancel()
        seconds = self._gateway.config.gateway.daemon_seconds
        reason = f"no client for {seconds:g} s"
        self._idle = asyncio.get_running_loop().call_later(seconds, self._end, reason)

    def _end(self, reason: str) -> None:
        self._reason = reason
        self._stop.set()

    def _wait_if_alone(self) -> None:
        if not (self.clients or self._consoles or self._stop.is_set()):
            self._wait_for_clients()

    async def _leave(self) -> None:
        """Send all clients to another daemon, and answer what they have asked."""
        for client in list(self.clients):
            client.is_leaving = True
            with suppress(ConnectionError):
                client.writer.write(json.dumps({"toolscout": LEAVE}).encode() + b"\n")
        # A client that listens for changes gets its answer when its stream ends.
        await self._gateway.subscriptions.close()
        if self._tasks:
            seconds = self._gateway.config.gateway.stop_seconds
            _, late = await asyncio.wait(self._tasks, timeout=seconds)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)

    def _make_protocol(self) -> asyncio.StreamReaderProtocol:
        reader = LineReader()
        return asyncio.StreamReaderProtocol(reader, lambda _, writer: self._accept(reader, writer))

    async def _accept(self, reader: LineReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        try:
            async with asyncio.timeout(GREETING_SECONDS):
                greeting: Any = json.loads(await reader.readline())
            if not _is_same_user(writer.get_extra_info("socket")):
                return
            if greeting.get(CONSOLE):
                self._tasks.add(task)
                await self._show_console(str(greeting[CONSOLE]), reader, writer)
                return
            answer, client = await self._answer(greeting, writer)
            writer.write(json.dumps(answer).encode() + b"\n")
            if client is not None:
                self._tasks.add(task)
                await self._serve_client(client, reader)
        except (ValueError, KeyError, TypeError, AttributeError, ConnectionError, TimeoutError):
            pass  # not one of our bridges, or one that has ended
        finally:
            self._tasks.discard(task)
            writer.close()

    async def _show_console(
        self, token: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """Serve the console until the command that wants it ends, or this daemon does."""
        if self.open_console is None or self._stop.is_set():
            return
        self._consoles += 1
        if self._idle is not None:
            self._idle.cancel()
        path = self._path.with_name(f"{os.getpid()}-{self._consoles}.console")
        path.unlink(missing_ok=True)  # of a daemon that was killed
        try:
            async with self.open_console(path, token):
                writer.write(json.dumps({"path": str(path)}).encode() + b"\n")
                ends = [asyncio.create_task(one) for one in (reader.read(), self._stop.wait())]
                await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
                for one in ends:
                    one.cancel()
        finally:
            path.unlink(missing_ok=True)
            self._consoles -= 1
            self._wait_if_alone()

    async def _answer(
        self, greeting: Any, writer: asyncio.StreamWriter
    ) -> tuple[Json, DaemonClient | None]:
        """Return the answer to a greeting, and the client if it is accepted."""
        if greeting.get(ABOUT):
            return self.describe(), None
        if _is_newer(greeting["version"], self._version):
            self._end(f"toolscout {greeting['version']} takes over")
        profile = str(greeting["profile"])
        name = f"{STDIO}{greeting['session']}"

        def open_session() -> Session:
            principal = self._find_principal(profile, self._gateway.config.gateway)
            self._known.touch(name)
            return self._gateway.open_session(
                name, principal, folder=str(greeting.get("folder", ""))
            )

        session = None
        if not self._stop.is_set():
            try:
                session = await self._gateway.store.run_in_thread(open_session)
            except ToolscoutError as error:
                return {"problem": str(error)}, None
        # From here on nothing waits: a client that is accepted is also asked to leave.
        if session is None or self._stop.is_set():
            self._withdraw()
            return {"accepted": False}, None
        _add_to_path(str(greeting.get("path", "")))
        client = DaemonClient(session, profile, writer)
        self.clients.add(client)
        if self._idle is not None:
            self._idle.cancel()
        return {"accepted": True}, client

    async def _serve_client(self, client: DaemonClient, reader: LineReader) -> None:
        session = client.session

        async def find_session(context: Context) -> Session:
            principal = self._find_principal(client.profile, self._gateway.config.gateway)
            if not client.name:
                client.name = format_client(context)
                if client.name:
                    _log.info("%s has connected.", client.name)
            client.requests += 1
            if not self._known.is_fresh(session.id):
                await self._gateway.store.run_in_thread(partial(self._known.touch, session.id))
            self._gateway.events.emit(
                Requested(session=session.id, principal=principal, client=client.name)
            )
            return session

        server = build_server(self._gateway, find_session)
        read, write = _ClientInput(reader, client), _ClientOutput(client.writer, client)
        try:
            await serve_streams(server, read, write)
        finally:
            self.clients.discard(client)
            if client.name:
                _log.info("%s has left.", client.name)
            self._wait_if_alone()
            if not client.is_leaving:
                await self._gateway.store.run_in_thread(partial(self._known.forget, session.id))

    def _find_principal(self, profile: str, config: GatewayConfig) -> Principal:
        limits = config.find_profile(profile) if profile else None
        return replace(ANONYMOUS, profile=limits, profile_name=profile)

    def _change_access(self, config: GatewayConfig) -> None:
        for client in self.clients:
            principal = self._find_principal(client.profile, config)
            self._gateway.restrict_session(client.session, principal)
        self._move()

    def _move(self) -> None:
        """Listen where clients look for a daemon now that other variables may tell them apart."""
        try:
            self._place.write_variables(self._gateway.config.list_variables())
            path = self._place.find_socket(os.environ)
            if path != self._path:
                self._path.replace(path)
                self._path = path
        except OSError as error:
            _log.warning("New clients will start another gateway: %s", error)


class _ClientInput(StdinStream):
    """Messages of a client. When it leaves, the end comes after the last answer."""

    def __init__(self, reader: LineReader, client: DaemonClient) -> None:
        super().__init__(reader)
        self._client = client

    async def receive_json(self) -> Any:
        try:
            return await super().receive_json()
        except EndOfStream:
            while self._client.is_leaving and self._client.unanswered:
                self._client.answered.clear()
                await self._client.answered.wait()
            raise

    def read_json(self, line: bytes) -> Any:
        message = super().read_json(line)
        if is_object(message) and "method" in message:
            params: object = message.get("params")
            number = as_request_id(message.get("id"))
            if number is not None:
                self._client.unanswered.add(number)
            elif message["method"] == CANCELLED and is_object(params):
                request = params.get("requestId")
                if isinstance(request, str | int):
                    self._client.settle(request)
        return message


class _ClientOutput(StdoutStream):
    """Messages to a client; notes which of its requests have been answered."""

    def __init__(self, writer: asyncio.StreamWriter, client: DaemonClient) -> None:
        super().__init__(writer)
        self._client = client

    async def send(self, item: SessionMessage) -> None:
        try:
            await super().send(item)
        finally:  # a client that is gone gets no answer, however long anybody waits
            if isinstance(item.message, (types.JSONRPCResponse, types.JSONRPCError)):
                self._client.settle(item.message.id)

    async def send_json(self, message: Json) -> None:
        try:
            await super().send_json(message)
        finally:
            if "method" not in message:
                self._client.settle(message["id"])


def _is_same_user(connection: socket.socket) -> bool:
    """Tell whether a connection comes from this user; where nobody can, the folder decides."""
    if not sys.platform.startswith("linux"):
        return True
    data = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    return struct.unpack("3i", data)[1] == os.getuid()


def _add_to_path(path: str) -> None:
    """Let servers also find the programs that another client finds.

    A desktop program that comes first may have a shorter PATH than those started from a shell.
    """
    known = os.environ.get("PATH", "").split(os.pathsep)
    added = [folder for folder in path.split(os.pathsep) if folder and folder not in known]
    os.environ["PATH"] = os.pathsep.join([*filter(None, known), *dict.fromkeys(added)])


def _is_newer(one: str, other: str) -> bool:
    """Tell whether a version comes after another; odd ones never do."""
    try:
        return tuple(map(int, one.split("."))) > tuple(map(int, other.split(".")))
    except ValueError:
        return False
