"""`ServerProcess`: an MCP server as a process of its own, spoken to over stdin and stdout.

The process leads a process group, which ends as a whole; its end is noticed at once, even if
others hold its pipes open. The SDK's own transport copies a long message again for each part that
arrives: a message of 50 MB took half a minute there and takes a second here. `ProcessReaper`
ends the processes that this process leaves behind, however it ends. `build_environment` says which
variables a server gets, `choose_start_limit` how long it may take to start, and `isolation` what it
can reach.
"""

import asyncio
import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path, PureWindowsPath
from typing import Any, cast

import anyio
import mcp_types as types
from anyio.abc import ObjectReceiveStream, ObjectSendStream
from mcp.client.stdio import DEFAULT_INHERITED_ENV_VARS
from mcp.shared.message import SessionMessage
from pydantic_core import from_json, to_json

from toolscout.config.secrets import is_secret_name
from toolscout.config.servers import ServerConfig, is_matched
from toolscout.names import clean_text
from toolscout.schemas import Json, is_object
from toolscout.servers.connection import Delays
from toolscout.servers.isolation import Launch, make_folders, prepare_launch

MESSAGE_BYTES = 64 << 20
"""The longest message that is accepted; a longer one ends the server."""
SHORT_LINE_BYTES = 64 << 10
"""A longer message is worth a turn of the event loop."""
LINE_BYTES = 4_000
"""Lines on stderr are cut after this many bytes."""
WAITING_MESSAGES = 256
"""Unread messages after which the process has to wait; as many bytes as the longest message also
make it wait."""

GROUP_CHECKS = 20
"""How often a process group is checked while it has time to end."""

INHERITED = " ".join(
    (
        # Certificates of a company or a proxy.
        "SSL_CERT_FILE SSL_CERT_DIR REQUESTS_CA_BUNDLE CURL_CA_BUNDLE AWS_CA_BUNDLE",
        "NODE_EXTRA_CA_CERTS NODE_USE_SYSTEM_CA DENO_CERT DENO_TLS_CA_STORE",
        "GIT_SSL_CAINFO GIT_SSL_CAPATH",
        # Proxies; programs disagree about the case.
        "HTTP_PROXY HTTPS_PROXY ALL_PROXY NO_PROXY",
        "http_proxy https_proxy all_proxy no_proxy NODE_USE_ENV_PROXY",
        # Language, time zone, folders.
        "LANG LANGUAGE LC_* TZ TMPDIR TEMP TMP XDG_*",
        # Package runners: where they look for packages and keep them.
        "npm_config_* NPM_CONFIG_* UV_* UV_KEYRING_PROVIDER PIP_* PIP_KEYRING_PROVIDER PIPX_*",
        "PNPM_HOME YARN_* BUN_INSTALL* DENO_DIR",
        "DOCKER_HOST DOCKER_CONTEXT DOCKER_CONFIG CONTAINER_HOST",
        # Windows.
        "ALLUSERSPROFILE COMSPEC NUMBER_OF_PROCESSORS OS PROGRAMDATA PROGRAMFILES",
        "PROGRAMFILES(X86) PROGRAMW6432 PUBLIC WINDIR",
    )
).split()
"""What every server gets from our environment, besides the few names that the MCP SDK passes.

A pattern passes no name that looks like a credential. `NODE_OPTIONS` and the like are missing on
purpose: they can load code into a server.
"""

RUNNERS = {
    **dict.fromkeys(("npx", "pnpx", "bunx", "uvx", "dnx"), ""),
    **dict.fromkeys(("uv", "pipx", "docker", "podman", "go", "cargo"), "run"),
    **dict.fromkeys(("pnpm", "yarn"), "dlx"),
    "npm": "exec|x",
    "bun": "x",
    "deno": "(npm|jsr|https):.*",
}
"""Programs that may install a server before they run it, and which word has to follow, if any."""
_WRAPPERS = re.compile(
    "sh|bash|zsh|dash|ksh|fish|cmd|powershell|pwsh|env|nice|nohup|sudo|time|timeout"
)
"""Programs that run another one, which their arguments name."""
_BETWEEN_WORDS = re.compile(r"[\s;&|()'\"]+")

_TERMINAL = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)?")
"""Colours, titles and the like, which programs write for a terminal."""

PARALLEL_INSTALLS = 4
CLEANUP_SECONDS = 30.0

# Ends the groups politely first: npm takes an installation back only if it has time to.
_SCRIPT = (
    'trap "" HUP INT TERM; trap \'rm -rf -- "$0"\' EXIT; groups=; '
    "while read -r line; do groups=$line; done; "
    'for group in $groups; do kill -s TERM -- "-$group"; done; '
    "for try in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25; do alive=; "
    'for group in $groups; do kill -s 0 -- "-$group" && alive=yes; done; '
    '[ "$alive" ] || exit 0; sleep 0.2 || sleep 1; done; '
    'for group in $groups; do kill -s KILL -- "-$group"; done'
)


def build_environment(config: ServerConfig, env: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the variables that a server starts with; its own `env` comes first.

    From `env`, by default our own environment, it gets the names in `INHERITED` and those that
    its option `inherit_env` names.
    """
    ours = os.environ if env is None else env
    usual = {
        name: value
        for name, value in ours.items()
        if name in (*DEFAULT_INHERITED_ENV_VARS, *INHERITED)
        or (is_matched(name, INHERITED) and not is_secret_name(name))
    }
    found = usual | config.find_inherited(ours)
    # A value that begins with "()" is a function of a shell, which could run code.
    plain = {name: value for name, value in found.items() if not value.startswith("()")}
    return plain | dict(config.env)


def find_package_runner(command: str, args: Sequence[str]) -> str:
    """Return the program in a command that may have to install the server first, or nothing.

    Also finds it behind a shell, `cmd /c` or `env`.
    """
    words = [command, *args]
    is_wrapped = _WRAPPERS.fullmatch(_get_program(command))
    if is_wrapped:
        words = [word for arg in args for word in _BETWEEN_WORDS.split(arg)]
    for at, word in enumerate(words if is_wrapped else words[:1]):
        program = _get_program(word)
        needed = RUNNERS.get(program)
        if needed == "" or (needed and any(re.fullmatch(needed, w) for w in words[at + 1 :])):
            return program
    return ""


def _get_program(word: str) -> str:
    name = PureWindowsPath(word).name.lower()  # which takes both kinds of slashes
    return re.sub(r"\.(exe|cmd|bat|ps1)$", "", name)


@dataclass(frozen=True, slots=True, kw_only=True)
class StartLimit:
    """How long a server may take to answer for the first time, and which option says so."""

    seconds: float
    runner: str = ""
    """The package runner that starts the server, if one does."""
    may_install: bool = False
    """Whether the time is that of an installation."""

    def describe_wait(self) -> str:
        """Return what may keep the server, or nothing."""
        return f"{self.runner} may still be installing it" if self.may_install else ""

    def describe_end(self) -> str:
        """Return why the start was given up."""
        option = "install_seconds" if self.may_install else "start_seconds"
        why = f"no answer within {self.seconds:g} s ({option})"
        return f"{why}; {self.describe_wait()}" if self.may_install else why


def choose_start_limit(config: ServerConfig) -> StartLimit:
    """Return how long a server may take to start.

    A package runner may take `install_seconds`: it downloads and installs the server first, and
    ending it half-way can leave its cache broken. The pool sets that option to 0 for a server
    that has answered under this configuration and has not failed since, because it should be
    installed; if its start fails all the same, the next one may take `install_seconds` again.
    """
    runner = find_package_runner(config.command, config.args)
    may_install = bool(runner) and config.install_seconds > config.start_seconds
    seconds = config.install_seconds if may_install else config.start_seconds
    return StartLimit(seconds=seconds, runner=runner, may_install=may_install)


class InstallSlots:
    """Lets a few installations run at once; a slow one lets others begin after a time."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._free = asyncio.Semaphore(PARALLEL_INSTALLS)

    @asynccontextmanager
    async def enter(self, limit: StartLimit) -> AsyncGenerator[None]:
        """Wait for a slot if the start may install something, and hold it meanwhile."""
        if not limit.may_install:
            yield
            return
        await self._free.acquire()
        with ExitStack() as slot:  # which frees it once, however often it is closed
            slot.callback(self._free.release)
            timer = asyncio.get_running_loop().call_later(self._seconds, slot.close)
            slot.callback(timer.cancel)
            yield


class ServerProcess(asyncio.SubprocessProtocol):
    """One process; `run_process` starts and ends it.

    `on_line` gets every line that is not a message, `on_end` is called once, at the end.
    """

    def __init__(
        self, on_line: Callable[[str], None], on_end: Callable[[], None], delays: Delays
    ) -> None:
        self.reason = ""
        """Why the process ended, once it has."""
        self.exited = asyncio.Event()
        self.lines: asyncio.Queue[bytes | None] = asyncio.Queue()
        self.take_line: Callable[[bytes], bool] = lambda line: False
        """Called with a short line before it is queued, if no line waits; False puts it there."""
        self.writable = asyncio.Event()
        self.writable.set()
        self.is_paused = False
        """Whether it has to wait, because too much of what it wrote is unread."""
        self.may_install = False
        """Whether it may be installing something, and needs more time to end."""
        self._delays = delays
        self._stdout = LineSplitter(MESSAGE_BYTES)
        self._stderr = LineSplitter(LINE_BYTES)
        self._on_line = on_line
        self._on_end = on_end
        self._unread = 0
        self._is_read = False
        """Whether somebody waits for a line, so that all earlier ones have been dealt with."""
        self._transport: asyncio.SubprocessTransport | None = None
        self._is_over = False

    @property
    def pid(self) -> int:
        """The id of the process, and of the group that it leads."""
        return 0 if self._transport is None else self._transport.get_pid()

    def write(self, data: bytes) -> None:
        """Write a line to the process, or raise `BrokenResourceError` if it is gone."""
        pipe = self._get_pipe(0)
        if pipe is None or self._is_over or pipe.is_closing():
            raise anyio.BrokenResourceError
        pipe.write(data)

    def log(self, line: bytes) -> None:
        """Pass on a line that is not a message."""
        text = _TERMINAL.sub("", line[:LINE_BYTES].decode(errors="replace"))
        text = clean_text(text, LINE_BYTES).replace("\n", " ").rstrip()
        if text:
            self._on_line(text)

    async def read_line(self) -> bytes | None:
        """Return the next line, or None after the last one; a process that had to wait goes on."""
        self._is_read = True
        line = await self.lines.get()
        self._is_read = False
        self._unread -= len(line or b"")
        few = self.lines.qsize() <= WAITING_MESSAGES // 2 and self._unread <= MESSAGE_BYTES // 2
        if few and self.is_paused:
            self.is_paused = False
            pipe = cast("asyncio.ReadTransport | None", self._get_pipe(1))
            if pipe is not None and not pipe.is_closing():
                pipe.resume_reading()
        return line

    async def stop(self) -> None:
        """End the process and its group: close its input, then terminate it, then kill it.

        If this is cancelled, the process is killed at once.
        """
        try:
            await self._end_group()
        finally:
            if self._transport is not None:
                self._transport.close()

    async def _end_group(self) -> None:
        pipe = self._get_pipe(0)
        if pipe is not None:
            pipe.close()
        delays = self._delays
        if not await self._wait_for_exit(delays.exit):
            self._send_signal(signal.SIGTERM)
            await self._wait_for_exit(delays.install_exit if self.may_install else delays.kill)
        if self._send_signal(signal.SIGTERM if self.exited.is_set() else signal.SIGKILL):
            # The rest of the group has time to end by itself.
            rest = delays.install_exit if self.may_install else delays.rest
            for _ in range(GROUP_CHECKS):
                if not self._send_signal(0):
                    break
                await asyncio.sleep(rest / GROUP_CHECKS)
            self._send_signal(signal.SIGKILL)
            await self._wait_for_exit(delays.kill)

    async def _wait_for_exit(self, seconds: float) -> bool:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self.exited.wait()
        return self.exited.is_set()

    def _send_signal(self, number: int) -> bool:
        """Send a signal to the group and tell whether anyone received it."""
        if not self.pid:  # 0 would mean our own group
            return False
        try:
            os.killpg(self.pid, number)
        except (ProcessLookupError, PermissionError):
            return False
        return True

    def _get_pipe(self, number: int) -> Any:
        return None if self._transport is None else self._transport.get_pipe_transport(number)

    # Callbacks of the event loop.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Note the process that was started."""
        self._transport = cast("asyncio.SubprocessTransport", transport)
        pipe = self._get_pipe(1)
        pipe.set_protocol(_OutputPipe(self, pipe.get_protocol()))

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        """Split the data into lines."""
        if fd == 2:
            for line in self._stderr.split(data):
                self.log(line)
            return
        for line in self._stdout.split(data):
            is_next = self._is_read and self.lines.empty() and len(line) <= SHORT_LINE_BYTES
            if is_next and self.take_line(line):
                continue
            self._unread += len(line)
            self.lines.put_nowait(line)
        if self._stdout.is_too_long:
            self.reason = f"it sent a message of more than {MESSAGE_BYTES:,} bytes"
            self._end()
            return
        has_many = self.lines.qsize() > WAITING_MESSAGES or self._unread > MESSAGE_BYTES
        if has_many and not self.is_paused:
            self.is_paused = True
            cast("asyncio.ReadTransport", self._get_pipe(1)).pause_reading()

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:
        """Treat a closed stdout as the end: the process cannot answer any more."""
        if fd == 1:
            self._end()
        elif fd == 0:
            self.writable.set()
        else:
            for line in self._stderr.split(b"\n"):  # the last one may lack its end
                self.log(line)

    def process_exited(self) -> None:
        """Note the end, and wait for the last output to arrive."""
        code = (self._transport.get_returncode() if self._transport else None) or 0
        if not self.reason:
            self.reason = f"it ended with code {code}"
            with suppress(ValueError):
                if code < 0:
                    self.reason = f"it was ended by {signal.Signals(-code).name}"
        self.exited.set()
        # Do not wait for the end of stdout: a grandchild may hold the pipe open for ever.
        asyncio.get_running_loop().call_later(self._delays.rest, self._end)

    def pause_writing(self) -> None:
        """Make writers wait: the process does not read."""
        self.writable.clear()

    def resume_writing(self) -> None:
        """Let writers continue."""
        self.writable.set()

    def _end(self) -> None:
        if not self._is_over:
            self._is_over = True
            self.writable.set()
            self.lines.put_nowait(None)
            self._on_end()


class _OutputPipe(asyncio.Protocol):
    """Passes on the output of a process at once; asyncio's own protocol waits for another turn."""

    def __init__(self, process: ServerProcess, own: asyncio.Protocol) -> None:
        self._process = process
        self._own = own

    def data_received(self, data: bytes) -> None:
        """Pass the data on."""
        self._process.pipe_data_received(1, data)

    def connection_lost(self, exc: Exception | None) -> None:
        """Let asyncio note the end of the pipe."""
        self._own.connection_lost(exc)


class LineSplitter:
    """Splits bytes that arrive in parts into lines, none longer than a limit."""

    def __init__(self, limit: int) -> None:
        self.is_too_long = False
        """Whether a line was longer and lost its end."""
        self._limit = limit
        self._parts: list[bytes] = []
        self._size = 0

    def split(self, data: bytes) -> list[bytes]:
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
        room = self._limit - self._size
        if len(part) > room:
            self.is_too_long = True
            part = part[:room]
        self._parts.append(part)
        self._size += len(part)


def dump_json(message: Json) -> bytes:
    """Return a message as text, even if a text in it has half a character."""
    try:
        return to_json(message)
    except ValueError:
        return json.dumps(message).encode()


class ProcessStream(
    ObjectReceiveStream[SessionMessage | Exception], ObjectSendStream[SessionMessage]
):
    """The messages of a process, and those to it."""

    def __init__(self, process: ServerProcess) -> None:
        self._process = process
        self.take_answer: Callable[[Json], bool] = lambda message: False
        """Called with each message; tells whether somebody has waited for it."""
        process.take_line = self._take_line

    def _take_line(self, line: bytes) -> bool:
        """Give an answer to the call that waits for it; this saves two turns of the event loop."""
        try:
            message = from_json(line)
        except ValueError:
            return False
        return is_object(message) and self.take_answer(message)

    async def receive(self) -> SessionMessage | Exception:
        """Return the next message, or raise `EndOfStream`."""
        while True:
            line = await self._process.read_line()
            if line is None:
                self._process.lines.put_nowait(None)
                raise anyio.EndOfStream
            with suppress(ValueError):
                # In two steps, which take a twentieth of the time of `validate_json` for a long
                # list: that one reads the text again for every kind of message.
                message = from_json(line)
                if is_object(message) and self.take_answer(message):
                    continue
                adapter = types.jsonrpc_message_adapter
                return SessionMessage(adapter.validate_python(message, by_name=False))
            # Many servers greet or log on stdout; that is no reason to give them up.
            self._process.log(line)

    async def send(self, item: SessionMessage) -> None:
        """Write one message, and wait while the process does not read."""
        text = item.message.model_dump_json(by_alias=True, exclude_unset=True)
        await self._write(text.encode())

    async def send_json(self, message: Json) -> None:
        """Do the same with a message that is plain JSON."""
        await self._write(dump_json(message))

    async def _write(self, line: bytes) -> None:
        self._process.write(line + b"\n")
        if not self._process.writable.is_set():
            await self._process.writable.wait()

    async def aclose(self) -> None:
        """Close nothing: the process owns the pipes."""


class ProcessReaper:
    """Ends process groups when this process ends, even by SIGKILL, when no code of ours runs.

    A small shell knows the groups. When its input ends, because this process has ended, it
    terminates them, grandchildren included, and kills those that are left after five seconds. Then
    it removes the folder with their temporary files.
    Windows needs none: there the SDK uses a job object.
    """

    def __init__(self) -> None:
        self._groups: set[int] = set()
        self._shell: subprocess.Popen[bytes] | None = None
        self._folder: Path | None = None

    def get_folder(self) -> Path:
        """Return a folder for temporary files of servers, which only this user can read."""
        if self._folder is None:
            self._folder = Path(tempfile.mkdtemp(prefix="toolscout-"))
        return self._folder

    def watch(self, group: int) -> None:
        """Kill a process group when this process ends."""
        self._groups.add(group)
        self._send()

    def release(self, group: int) -> None:
        """Forget a process group that has ended."""
        self._groups.discard(group)
        self._send()

    def close(self) -> None:
        """End the shell, which kills the groups that are still watched."""
        self._end_shell()
        self._groups.clear()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None

    def _send(self) -> None:
        line = " ".join(map(str, sorted(self._groups))) + "\n"
        for _ in range(2):  # the second time to a new shell, if someone ended the first
            if self._shell is None:
                self._shell = subprocess.Popen(
                    ["/bin/sh", "-c", _SCRIPT, str(self._folder or "")],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    start_new_session=True,
                    cwd="/",
                )
            stdin = self._shell.stdin
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


@asynccontextmanager
async def run_process(
    process: ServerProcess, config: ServerConfig, reaper: ProcessReaper
) -> AsyncGenerator[tuple[ProcessStream, ProcessStream]]:
    """Start a process and yield its streams; end it and its group at the end."""
    folder: Path | None = None

    def prepare() -> Launch:
        nonlocal folder
        folder = make_folders(config, reaper.get_folder())
        return prepare_launch(config, build_environment(config), folder)

    launch: Launch | None = None
    try:
        launch = await asyncio.to_thread(prepare)
        async with _run_launch(process, launch, reaper) as streams:
            yield streams
    finally:
        with anyio.CancelScope(shield=True):
            await asyncio.to_thread(_clean_up, launch, folder)


def _clean_up(launch: Launch | None, folder: Path | None) -> None:
    """End what a process has left running, and delete its temporary files."""
    if launch is not None and launch.cleanup:
        with suppress(OSError, subprocess.TimeoutExpired):
            quiet = subprocess.DEVNULL
            subprocess.run(
                launch.cleanup,
                env=dict(launch.env),
                stdin=quiet,
                stdout=quiet,
                stderr=quiet,
                timeout=CLEANUP_SECONDS,
            )
    if folder is not None:
        shutil.rmtree(folder, ignore_errors=True)


@asynccontextmanager
async def _run_launch(
    process: ServerProcess, launch: Launch, reaper: ProcessReaper
) -> AsyncGenerator[tuple[ProcessStream, ProcessStream]]:
    starting = asyncio.create_task(
        asyncio.get_running_loop().subprocess_exec(
            lambda: process,
            *launch.command,
            env=launch.env,
            cwd=launch.cwd or None,
            start_new_session=True,
        )
    )
    try:
        await asyncio.shield(starting)
    except asyncio.CancelledError:
        # Cancelling the start itself would kill the process at once. Shielded, because anyio
        # cancels again and again.
        with anyio.CancelScope(shield=True):
            await asyncio.wait((starting,))
            await process.stop()
        raise
    reaper.watch(process.pid)
    try:
        stream = ProcessStream(process)
        yield stream, stream
    finally:
        # Shielded, or a cancelled start would leave the process behind.
        with anyio.CancelScope(shield=True):
            await process.stop()
        reaper.release(process.pid)
