"""`ServerProcess`: a server as a process of its own, spoken to over its stdin and stdout.

Gives the two streams that the SDK's client reads and writes, one JSON message a line. The process
leads a group of its own, which is ended as a whole; its end is noticed at once, whoever else holds
its pipes. What it writes to stderr, and noise on stdout, goes line by line to whoever listens.
The SDK's own transport copies a long message again for each part of it that arrives: one of 50 MB
took half a minute there and a second here. For short messages the two are equally fast.

`ProcessReaper`: kills what this process leaves behind, however it ends.

A shell of a few hundred kilobytes is told which process groups live. When its input ends, because
this process did, it kills them: grandchildren as well, and after SIGKILL too, where no code of
ours runs any more. On Windows there is none; the SDK puts children into a job object there.
"""

import asyncio
import os
import signal
import subprocess
from collections import deque
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any, cast

import anyio
import mcp_types as types
from mcp.client.stdio import get_default_environment
from mcp.shared.message import SessionMessage
from pydantic_core import from_json

from toolscout.config.servers import ServerConfig
from toolscout.servers.connection import Delays
from toolscout.servers.streams import Receiving, Stream

_SCRIPT = (
    'trap "" HUP INT TERM; groups=; '
    "while read -r line; do groups=$line; done; "
    'for group in $groups; do kill -s KILL -- "-$group"; done'
)


class ProcessReaper:
    """Watches over process groups from the first `watch` until `close`."""

    def __init__(self) -> None:
        self._groups: set[int] = set()
        self._shell: subprocess.Popen[bytes] | None = None

    def watch(self, group: int) -> None:
        """Have a process group killed when this process ends."""
        self._groups.add(group)
        self._tell()

    def release(self, group: int) -> None:
        """Forget a process group that has ended."""
        self._groups.discard(group)
        self._tell()

    def close(self) -> None:
        """End the shell; groups that are still watched are killed."""
        self._end_shell()
        self._groups.clear()

    def _tell(self) -> None:
        line = " ".join(map(str, sorted(self._groups))) + "\n"
        for _ in range(2):  # the second time to a new shell, should someone have ended the first
            stdin = self._running().stdin
            try:
                if stdin is not None:
                    stdin.write(line.encode())
                    stdin.flush()
                return
            except BrokenPipeError:
                self._end_shell()

    def _end_shell(self) -> None:
        shell, self._shell = self._shell, None
        if shell is not None and shell.stdin is not None:
            with suppress(BrokenPipeError):
                shell.stdin.close()
            shell.wait()

    def _running(self) -> subprocess.Popen[bytes]:
        if self._shell is None:
            self._shell = subprocess.Popen(
                ["/bin/sh", "-c", _SCRIPT],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
                cwd="/",
            )
        return self._shell


MESSAGE_BYTES = 64 << 20
"""The longest message that is taken; a longer one ends the server."""
LINE_BYTES = 4_000
"""As much of a line on stderr as is kept."""
WAITING_MESSAGES = 256
"""Messages that may wait to be read before the process has to wait too."""

LOOKS = 10
"""How often a group is looked at while it has time to end."""

Streams = tuple["Incoming", "Outgoing"]
Hear = Callable[[str], None]


class ServerProcess(asyncio.SubprocessProtocol):
    """One process. `run` starts and ends it."""

    def __init__(
        self,
        hear: Hear,
        over: Callable[[], None],
        delays: Delays,
        message_bytes: int = MESSAGE_BYTES,
    ) -> None:
        self.reason = ""
        """Why it is gone, once it is."""
        self.exited = asyncio.Event()
        self.lines: asyncio.Queue[bytes | None] = asyncio.Queue()
        self.writable = asyncio.Event()
        self.writable.set()
        self._delays = delays
        self._stdout = Lines(message_bytes)
        self._stderr = Lines(LINE_BYTES)
        self._hear, self._tell_over = hear, over
        self._transport: asyncio.SubprocessTransport | None = None
        self._is_over = False

    @property
    def pid(self) -> int:
        """The number of the process, and of the group that it leads."""
        return 0 if self._transport is None else self._transport.get_pid()

    def write(self, data: bytes) -> None:
        """Hand a line to the process, or raise that it is gone."""
        pipe = self._pipe(0)
        if pipe is None or self._is_over or pipe.is_closing():
            raise anyio.BrokenResourceError
        pipe.write(data)

    def hear(self, line: bytes) -> None:
        """Pass on a line that is no message."""
        text = line[:LINE_BYTES].decode(errors="replace").rstrip()
        if text:
            self._hear(text)

    def read_on(self) -> None:
        """Let the process write again, after it had to wait."""
        pipe = cast("asyncio.ReadTransport | None", self._pipe(1))
        if pipe is not None and not pipe.is_closing() and not pipe.is_reading():
            pipe.resume_reading()

    async def stop(self) -> None:
        """End the process and its group: by closing its input, by asking, by force."""
        pipe = self._pipe(0)
        if pipe is not None:
            pipe.close()
        if not await self._gone_within(self._delays.exit):
            self._signal(signal.SIGTERM)
            await self._gone_within(self._delays.kill)
        if self._signal(signal.SIGTERM if self.exited.is_set() else signal.SIGKILL):
            await self._end_group()
        if self._transport is not None:
            self._transport.close()

    async def _end_group(self) -> None:
        """Kill what the process left behind, once it had time to end by itself."""
        for _ in range(LOOKS):
            if not self._signal(0):
                break
            await asyncio.sleep(self._delays.rest / LOOKS)
        self._signal(signal.SIGKILL)
        await self._gone_within(self._delays.kill)

    async def _gone_within(self, seconds: float) -> bool:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self.exited.wait()
        return self.exited.is_set()

    def _signal(self, number: int) -> bool:
        """Send a signal to the group and tell whether there was anyone to receive it."""
        if not self.pid:  # which would be our own group
            return False
        try:
            os.killpg(self.pid, number)
        except (ProcessLookupError, PermissionError):
            return False
        return True

    def _pipe(self, number: int) -> Any:
        return None if self._transport is None else self._transport.get_pipe_transport(number)

    # What the event loop tells.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take note of the process that was started."""
        self._transport = cast("asyncio.SubprocessTransport", transport)

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        """Cut what was written into lines."""
        if fd == 2:
            for line in self._stderr.cut(data):
                self.hear(line)
            return
        for line in self._stdout.cut(data):
            self.lines.put_nowait(line)
        if self._stdout.is_cut_short:
            self.reason = f"it sent a message of more than {self._stdout.limit:,} bytes"
            self._over()
        elif self.lines.qsize() > WAITING_MESSAGES:
            cast("asyncio.ReadTransport", self._pipe(1)).pause_reading()

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:
        """Take a closed stdout for the end: nothing can be answered any more."""
        if fd == 1:
            self._over()
        elif fd == 0:
            self.writable.set()

    def process_exited(self) -> None:
        """Take note of the end, after what it wrote last has arrived."""
        code = None if self._transport is None else self._transport.get_returncode()
        self.reason = self.reason or _ending(code or 0)
        self.exited.set()
        # A grandchild may hold the pipe open for ever, so the end of stdout is not waited for.
        asyncio.get_running_loop().call_later(self._delays.rest, self._over)

    def pause_writing(self) -> None:
        """Make whoever writes wait: the process does not read."""
        self.writable.clear()

    def resume_writing(self) -> None:
        """Let writing go on."""
        self.writable.set()

    def _over(self) -> None:
        if not self._is_over:
            self._is_over = True
            self.writable.set()
            self.lines.put_nowait(None)
            self._tell_over()


class Lines:
    """Cuts bytes that arrive in parts into lines, none longer than a limit."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.is_cut_short = False
        """Whether a line was longer; what follows its limit is lost."""
        self._parts: deque[bytes] = deque()
        self._size = 0

    def cut(self, data: bytes) -> list[bytes]:
        """Return the lines that are complete now."""
        first, *others = data.split(b"\n")
        self._add(first)
        lines: list[bytes] = []
        for part in others:
            lines.append(b"".join(self._parts))
            self._parts.clear()
            self._size = 0
            self._add(part)
        return lines

    def _add(self, part: bytes) -> None:
        room = self.limit - self._size
        if len(part) > room:
            self.is_cut_short = True
            part = part[:room]
        self._parts.append(part)
        self._size += len(part)


class Incoming(Receiving):
    """The messages of a child."""

    def __init__(self, child: ServerProcess) -> None:
        self.child = child

    async def receive(self) -> SessionMessage | Exception:
        """Return the next message, or raise `EndOfStream`."""
        while True:
            line = await self.child.lines.get()
            if line is None:
                self.child.lines.put_nowait(None)
                raise anyio.EndOfStream
            if self.child.lines.qsize() == WAITING_MESSAGES // 2:
                self.child.read_on()
            with suppress(ValueError):
                # In two steps, which take a twentieth of the time of `validate_json` for a long
                # list: that one reads the text again for every kind of message.
                message = from_json(line)
                return SessionMessage(
                    types.jsonrpc_message_adapter.validate_python(message, by_name=False)
                )
            # Many servers greet or log on stdout, which is no reason to give them up.
            self.child.hear(line)


class Outgoing(Stream):
    """The way to a child."""

    def __init__(self, child: ServerProcess) -> None:
        self.child = child

    async def send(self, item: SessionMessage, /) -> None:
        """Write one message, and wait while the child does not read."""
        text = item.message.model_dump_json(by_alias=True, exclude_unset=True)
        self.child.write(text.encode() + b"\n")
        if not self.child.writable.is_set():
            await self.child.writable.wait()


@asynccontextmanager
async def run_process(
    child: ServerProcess, config: ServerConfig, reaper: ProcessReaper
) -> AsyncGenerator[Streams]:
    """Start a child and give its streams; end it and its group at the end."""
    env = get_default_environment() | dict(config.env)
    loop = asyncio.get_running_loop()
    await loop.subprocess_exec(
        lambda: child,
        config.command,
        *config.args,
        env=env,
        cwd=config.cwd or None,
        start_new_session=True,
    )
    reaper.watch(child.pid)
    try:
        yield Incoming(child), Outgoing(child)
    finally:
        # Shielded, or a cancelled start would leave the process behind.
        with anyio.CancelScope(shield=True):
            await child.stop()
        reaper.release(child.pid)


def _ending(code: int) -> str:
    if code < 0:
        with suppress(ValueError):
            return f"it was ended by {signal.Signals(-code).name}"
    return f"it ended with code {code}"
