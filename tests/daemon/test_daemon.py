"""Clients that start `toolscout serve` share one gateway in the background."""

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import mcp_types as types
import psutil
import pytest
from click.testing import CliRunner
from mcp.client import Client
from mcp.client.stdio import StdioServerParameters
from mcp.client.subscriptions import ToolsListChanged
from mcp.shared.exceptions import MCPError
from pydantic import FileUrl

from gateway.fleet import TIME, configuration, known, text_of
from gateway.test_subscriptions import EVERYTHING, needs_node
from serving import DEADLINE_SECONDS, eventually
from toolscout.cli import main
from toolscout.clients import discovery
from toolscout.daemon.bridge import find_default_config
from toolscout.daemon.place import connect, greet
from toolscout.gateway.resume import CLIENT_KIND
from toolscout.sessions.session_state import SESSION_KIND
from toolscout.stores import SqliteStore

NAME = "time__get_current_time"
NOW = {"name": NAME, "arguments": {"timezone": "UTC"}}
NOBODY = 65534
HELLO: dict[str, Any] = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": {"name": "test", "version": "1"},
    },
}
COUNTING = (str(Path(__file__).parents[1] / "gateway" / "counting_server.py"), "project.txt")
NOTING = (str(Path(__file__).with_name("noting_server.py")),)
KEY = "0123456789abcdef"
CLIENT: dict[str, Any] = {"version": "0", "session": "x", "profile": ""}
NEWER = {**CLIENT, "version": "99.0.0"}


class Machine:
    """A user's home folder with a configuration, and the processes that clients start for it."""

    def __init__(self, home: Path, config: Path) -> None:
        self.home = home
        self.config = config
        self.env = {"HOME": str(self.home), "PATH": os.environ["PATH"]}

    @property
    def words(self) -> list[str]:
        return ["serve", "--config", str(self.config)]

    @asynccontextmanager
    async def client(
        self, *options: str, folder: Path | None = None, **settings: Any
    ) -> AsyncGenerator[Client]:
        arguments = ["-m", "toolscout", *self.words, *options]
        parameters = StdioServerParameters(
            command=sys.executable, args=arguments, env=self.env, cwd=folder
        )
        async with asyncio.timeout(DEADLINE_SECONDS), Client(parameters, **settings) as client:
            yield client

    def run(self, *words: str, said: str = "") -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "toolscout", *words]
        return subprocess.run(
            command, env=self.env, capture_output=True, text=True, check=False, input=said
        )

    def start(self, **hello: Any) -> "subprocess.Popen[bytes]":
        """Start what a client would start, and send its first message."""
        command = [sys.executable, "-m", "toolscout", *self.words]
        pipe = subprocess.PIPE
        client = subprocess.Popen(command, env=self.env, stdin=pipe, stdout=pipe)
        assert client.stdin is not None
        first = {**HELLO, "params": {**HELLO["params"], **hello}}
        client.stdin.write(json.dumps(first).encode() + b"\n")
        client.stdin.flush()
        return client

    def start_daemon(self) -> "subprocess.Popen[bytes]":
        """Start a daemon that no client has asked for."""
        command = [sys.executable, "-m", "toolscout", *self.words, f"--as-daemon={KEY}"]
        null = subprocess.DEVNULL
        return subprocess.Popen(command, env=self.env, stdin=null, stdout=null, stderr=null)

    async def reach(self) -> socket.socket:
        """Return a connection to the daemon as soon as it listens."""
        found: list[socket.socket] = []

        def try_all() -> bool:
            reached = map(connect, self.folder.glob("*.socket"))
            found.extend(one for one in reached if one is not None)
            return bool(found)

        await eventually(try_all)
        [connection] = found
        return connection

    def connect_as(self, user: int) -> str:
        """Become another user and greet the daemon; return what happened."""
        [path] = self.folder.glob("*.socket")
        greeting = json.dumps(CLIENT).encode() + b"\n"
        code = f"""
import os, socket
os.setuid({user})
connection = socket.socket(socket.AF_UNIX)
connection.connect({str(path)!r})
connection.sendall({greeting!r})
print("answer", connection.recv(100))
"""
        command = [sys.executable, "-c", code]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        return done.stdout + done.stderr

    @property
    def folder(self) -> Path:
        return self.home / ".cache/toolscout/daemon"

    def list_daemons(self) -> list[psutil.Process]:
        found: list[psutil.Process] = []
        for process in psutil.process_iter():
            try:
                words = process.cmdline()
            except psutil.Error:
                continue
            # The folder of the configuration tells the daemons of tests apart.
            is_ours = any(str(self.config.parent) in word for word in words)
            if is_ours and any("--as-daemon" in word for word in words):
                found.append(process)
        return found


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    # The address of a socket is short, and pytest's folders are deep.
    with TemporaryDirectory() as home:
        machine = Machine(Path(home), configuration(tmp_path, {"time": TIME}))
        yield machine
        daemons = machine.list_daemons()
        for daemon in daemons:
            daemon.terminate()
        _, left = psutil.wait_procs(daemons, DEADLINE_SECONDS)
        assert left == []


def run(work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(work())


def ask_unread(connection: socket.socket) -> None:
    """Send the first message of a client, and return once its answer waits to be read."""
    connection.sendall(json.dumps(HELLO).encode() + b"\n")
    connection.recv(1, socket.MSG_PEEK)


def test_clients_that_start_at_once_start_one_gateway_and_each_server_once(machine: Machine):
    clients = [machine.start() for _ in range(6)]

    for client in clients:
        assert client.stdout is not None
        assert b"serverInfo" in client.stdout.readline()

    async def use() -> None:
        async with machine.client() as client:
            await known(client, NAME)
            assert '"timezone": "UTC"' in text_of(await client.call_tool("tool_call", NOW))

    run(use)
    [daemon] = machine.list_daemons()
    children = [child.cmdline() for child in daemon.children(recursive=True)]
    assert sum(TIME[0] in words for words in children) == 1
    for client in clients:
        client.communicate()
        assert client.returncode == 0


def test_a_server_of_sessions_runs_in_the_folder_of_each_client_as_long_as_it_is_there(
    tmp_path: Path, machine: Machine
):
    config = configuration(tmp_path, {"counting": COUNTING})
    shared = "[servers.counting]"
    config.write_text(config.read_text().replace(shared, f'{shared}\nshare = "session"'))
    folders = [tmp_path / "one", tmp_path / "two"]
    for folder in folders:
        folder.mkdir()
        (folder / "project.txt").touch()

    def list_servers() -> set[int]:
        [daemon] = machine.list_daemons()
        children = daemon.children(recursive=True)
        return {child.pid for child in children if COUNTING[0] in child.cmdline()}

    async def count(client: Client) -> dict[str, Any]:
        await known(client, "counting__count")
        counted = await client.call_tool("tool_call", {"name": "counting__count"})
        return json.loads(text_of(counted))

    async def use() -> None:
        async with machine.client(folder=folders[0]) as first:
            async with machine.client(folder=folders[1]) as second:
                told = [await count(client) for client in (first, second, first)]
                assert [one["count"] for one in told] == [1, 1, 2]
                assert [one["folder"] for one in told[:2]] == [str(folder) for folder in folders]
                await eventually(lambda: list_servers() == {one["pid"] for one in told})
            await eventually(lambda: list_servers() == {told[0]["pid"]})

    run(use)


def test_a_client_that_dies_takes_nothing_with_it(machine: Machine):
    async def use() -> None:
        async with machine.client() as client:
            await known(client, NAME)
            with await asyncio.to_thread(machine.start) as other:
                assert other.stdout is not None
                assert b"serverInfo" in await asyncio.to_thread(other.stdout.readline)
                other.kill()
            assert '"timezone": "UTC"' in text_of(await client.call_tool("tool_call", NOW))

    run(use)


def test_a_client_that_dies_with_an_answer_unread_takes_nothing_with_it(machine: Machine):
    async def use() -> None:
        async with machine.client() as client:
            await known(client, NAME)
            with await machine.reach() as other:
                assert await asyncio.to_thread(greet, other, CLIENT) == {"accepted": True}
                await asyncio.to_thread(ask_unread, other)
            assert '"timezone": "UTC"' in text_of(await client.call_tool("tool_call", NOW))

    run(use)


def test_a_gateway_that_is_asked_to_end_before_a_client_has_come_ends(machine: Machine):
    async def use() -> None:
        with machine.start_daemon() as daemon:
            await eventually(lambda: any(machine.folder.glob("*.socket")))
            daemon.terminate()
            try:
                assert await asyncio.to_thread(daemon.wait, DEADLINE_SECONDS) == 0
            finally:
                daemon.kill()
        assert not list(machine.folder.glob("*.socket"))

    run(use)


@pytest.mark.parametrize("progress", ["connected", "accepted", "asked", "answered"])
@pytest.mark.parametrize("is_closed_first", [True, False])
def test_a_gateway_that_is_asked_to_end_right_after_its_start_ends(
    machine: Machine, progress: str, is_closed_first: bool
):
    async def use() -> None:
        with machine.start_daemon() as daemon:
            connection = await machine.reach()
            if progress != "connected":
                assert await asyncio.to_thread(greet, connection, CLIENT) == {"accepted": True}
            if progress == "asked":
                connection.sendall(json.dumps(HELLO).encode() + b"\n")
            if progress == "answered":
                await asyncio.to_thread(ask_unread, connection)
            if is_closed_first:
                connection.close()
            daemon.terminate()
            connection.close()
            try:
                assert await asyncio.to_thread(daemon.wait, DEADLINE_SECONDS) == 0
            finally:
                daemon.kill()

    run(use)


def test_a_gateway_that_ends_does_not_wait_for_a_cancelled_request_and_nobody_answers_it(
    machine: Machine, tmp_path: Path
):
    machine.config = configuration(tmp_path, {"noting": NOTING}, stop_seconds=3_600)
    notes = tmp_path / "notes"
    waiting = {"name": "noting__wait", "arguments": {"path": str(notes), "name": "ada"}}

    async def use() -> None:
        async with machine.client() as client:
            await known(client, "noting__wait")
            with await asyncio.to_thread(machine.start) as other:

                def say(method: str, **rest: Any) -> None:
                    assert other.stdin is not None
                    message = {"jsonrpc": "2.0", "method": method, **rest}
                    other.stdin.write(json.dumps(message).encode() + b"\n")
                    other.stdin.flush()

                def hear() -> int:
                    assert other.stdout is not None
                    told = map(json.loads, other.stdout)
                    return next(message["id"] for message in told if "id" in message)

                assert await asyncio.to_thread(hear) == HELLO["id"]
                say("notifications/initialized")
                say("tools/call", id=2, params={"name": "tool_call", "arguments": waiting})
                await eventually(notes.exists)
                say("notifications/cancelled", params={"requestId": 2})
                await eventually(lambda: "ada was cancelled" in notes.read_text(encoding="utf-8"))
                [daemon] = machine.list_daemons()
                daemon.terminate()
                await eventually(lambda: not daemon.is_running())
                say("ping", id=3)
                assert await asyncio.to_thread(hear) == 3

    run(use)


def test_a_gateway_that_ends_closes_the_streams_of_clients_that_listen_for_changes(
    machine: Machine, tmp_path: Path
):
    machine.config = configuration(tmp_path, {"time": TIME}, stop_seconds=3_600)

    async def use() -> None:
        async with machine.client() as client:
            for _ in range(2):
                async with client.listen(tools_list_changed=True) as stream:
                    [daemon] = machine.list_daemons()
                    daemon.terminate()
                    # If the gateway did not close the stream, this would raise.
                    assert all([isinstance(event, ToolsListChanged) async for event in stream])
                await eventually(lambda daemon=daemon: not daemon.is_running())

    run(use)


@pytest.mark.parametrize("env", [{}, {"XDG_CONFIG_HOME": "/x"}, {"XDG_CONFIG_HOME": "x"}])
def test_the_configuration_of_a_client_that_names_none_is_the_default_one(env: dict[str, str]):
    here = discovery.Machine(home=Path.home(), platform=sys.platform, env=env, cwd=Path.cwd())

    assert find_default_config(env) == here.user_file


def test_clients_share_a_gateway_whether_or_not_they_name_the_default_configuration(
    machine: Machine,
):
    own = machine.home / ".config/toolscout"
    own.mkdir(parents=True)
    machine.config = configuration(own, {"time": TIME})

    async def use() -> None:
        async with machine.client() as first:
            await known(first, NAME)
            bare = StdioServerParameters(
                command=sys.executable, args=["-m", "toolscout", "serve"], env=machine.env
            )
            async with Client(bare) as second:
                await known(second, NAME)
                assert len(machine.list_daemons()) == 1

    run(use)


def test_a_killed_gateway_is_replaced_and_the_session_goes_on(machine: Machine):
    async def use() -> None:
        async with machine.client("--mode", "dynamic", mode="legacy") as client:
            await known(client, NAME)
            await client.call_tool("tool_describe", {"names": [NAME]})
            listed = [tool.name for tool in (await client.list_tools()).tools]
            [daemon] = machine.list_daemons()
            daemon.send_signal(signal.SIGKILL)
            await eventually(lambda: not daemon.is_running())

            assert '"timezone": "UTC"' in text_of(await client.call_tool("tool_call", NOW))
            assert [tool.name for tool in (await client.list_tools()).tools] == listed
            assert NAME in listed
            assert [other.pid for other in machine.list_daemons()] != [daemon.pid]

    run(use)


def test_a_call_that_was_running_when_the_gateway_was_killed_is_not_made_twice(
    machine: Machine, tmp_path: Path
):
    machine.config = configuration(tmp_path, {"noting": NOTING})
    notes = tmp_path / "notes"
    name = "noting__note"
    call = {"name": name, "arguments": {"path": str(notes)}}

    async def use() -> None:
        async with machine.client() as client:
            await known(client, name)
            calling = asyncio.create_task(client.call_tool("tool_call", call))
            await eventually(notes.exists)
            [daemon] = machine.list_daemons()
            daemon.send_signal(signal.SIGKILL)
            with pytest.raises(MCPError, match="may have been made"):
                await calling
            await known(client, name)
            assert notes.read_text(encoding="utf-8") == "called\n"

    run(use)


@pytest.mark.parametrize("number", [7, "seven", 'se"ven'])
@pytest.mark.parametrize("order", [("jsonrpc", "id", "method"), ("method", "params", "jsonrpc")])
def test_a_call_is_refused_after_a_kill_however_its_client_writes_it(
    machine: Machine, tmp_path: Path, number: int | str, order: tuple[str, ...]
):
    machine.config = configuration(tmp_path, {"noting": NOTING})
    notes = tmp_path / "notes"

    def write_call(number: int | str, name: str, arguments: dict[str, Any]) -> bytes:
        params = {"name": name, "arguments": arguments}
        call = {"jsonrpc": "2.0", "method": "tools/call", "params": params, "id": number}
        sorted_call = {key: call.pop(key) for key in order} | call
        return json.dumps(sorted_call, separators=(",", ":")).encode() + b"\n"

    async def read_answer(client: "subprocess.Popen[bytes]") -> dict[str, Any]:
        """Return the next message that is no notification."""
        assert client.stdout is not None
        while True:
            message = json.loads(await asyncio.to_thread(client.stdout.readline))
            if "method" not in message:
                return message

    async def use(client: "subprocess.Popen[bytes]") -> None:
        assert client.stdin is not None
        client.stdin.write(b'{"jsonrpc":"2.0","method":"notifications/initialized"}\n')
        client.stdin.write(write_call(2, "tool_search", {"queries": ["select:noting__note"]}))
        client.stdin.flush()
        assert [(await read_answer(client))["id"] for _ in range(2)] == [1, 2]
        path = {"name": "noting__note", "arguments": {"path": str(notes), "id": 99}}
        client.stdin.write(write_call(number, "tool_call", path))
        client.stdin.flush()
        await eventually(notes.exists)
        [daemon] = machine.list_daemons()
        daemon.send_signal(signal.SIGKILL)

        answer = await read_answer(client)

        assert answer["id"] == number
        assert "may have been made" in answer["error"]["message"]
        assert notes.read_text(encoding="utf-8") == "called\n"
        client.stdin.close()

    with machine.start() as client:
        run(lambda: use(client))


def test_a_newer_version_takes_over_without_a_failed_request(machine: Machine):
    async def call_until(client: Client, ended: asyncio.Event) -> int:
        count = 0
        while not ended.is_set():
            calls = [client.call_tool("tool_call", NOW) for _ in range(3)]
            for result in await asyncio.gather(*calls):
                assert '"timezone": "UTC"' in text_of(result)
                count += 1
        return count

    async def take_over() -> None:
        # At once: its clients may be about to connect to it.
        with await machine.reach() as connection:
            [daemon] = machine.list_daemons()
            assert await asyncio.to_thread(greet, connection, NEWER) == {"accepted": False}
        await eventually(lambda: not daemon.is_running())

    async def use() -> None:
        async with machine.client() as first, machine.client(mode="legacy") as second:
            await known(first, NAME)
            ended = asyncio.Event()
            calling = [asyncio.create_task(call_until(one, ended)) for one in (first, second)]
            for _ in range(4):
                await take_over()
            ended.set()
            assert all(await asyncio.gather(*calling))

    run(use)


def test_a_configuration_with_a_mistake_is_refused_as_without_a_daemon(machine: Machine):
    machine.config.write_text("[servers.time]\ncomand = 'x'\n", encoding="utf-8")

    done = machine.run(*machine.words)
    alone = machine.run(*machine.words, "--no-daemon")

    assert (done.returncode, done.stderr) == (alone.returncode, alone.stderr)
    assert done.returncode == 2
    assert "comand" in done.stderr


def test_the_gateway_ends_when_nobody_has_used_it_for_a_while(machine: Machine, tmp_path: Path):
    machine.config = configuration(tmp_path, {"time": TIME}, daemon_seconds=1)

    async def use() -> None:
        async with machine.client() as client:
            await known(client, NAME)
        await eventually(lambda: not machine.list_daemons())

    run(use)


def test_clients_with_other_secrets_do_not_share_a_gateway_also_after_a_reload(machine: Machine):
    before = machine.config.read_text(encoding="utf-8")
    after = before.replace("[gateway]", 'env = { KEY = "${SOME_KEY:-}" }\n[gateway]')

    async def use() -> None:
        machine.env["SOME_KEY"] = "one"
        async with machine.client() as first:
            await known(first, NAME)
            [daemon] = machine.list_daemons()
            machine.config.write_text(after, encoding="utf-8")
            daemon.send_signal(signal.SIGHUP)
            [variables] = machine.folder.glob("*.variables")
            await eventually(lambda: "SOME_KEY" in variables.read_text(encoding="utf-8"))
            async with machine.client() as second:
                await known(second, NAME)
                assert machine.list_daemons() == [daemon]
            machine.env["SOME_KEY"] = "two"
            async with machine.client() as third:
                await known(third, NAME)
                assert len(machine.list_daemons()) == 2

    run(use)


def test_servers_find_the_programs_of_every_client(machine: Machine, tmp_path: Path):
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "clock").write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    (programs / "clock").chmod(0o755)
    text = machine.config.read_text(encoding="utf-8")
    text = text.replace(f"command = {json.dumps(sys.executable)}", 'command = "clock"')
    machine.config.write_text(text, encoding="utf-8")

    async def use() -> None:
        async with machine.client() as first:
            await first.call_tool("tool_search", {"queries": ["time"]})
            machine.env["PATH"] = f"{programs}{os.pathsep}{machine.env['PATH']}"
            async with machine.client() as second:
                await known(second, NAME)
            await known(first, NAME)

    run(use)


def test_sessions_that_nobody_resumes_are_removed_and_others_go_on(
    machine: Machine, tmp_path: Path
):
    def list_sessions() -> list[str]:
        with SqliteStore(tmp_path / "gateway.db") as store:
            return store.keys(SESSION_KIND)

    async def use() -> None:
        async with machine.client() as client:
            await known(client, NAME)
            [kept] = list_sessions()
            with await asyncio.to_thread(machine.start) as other:
                assert other.stdin is not None
                search = {"name": "tool_search", "arguments": {"queries": [f"select:{NAME}"]}}
                asked = {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": search}
                other.stdin.write(json.dumps(asked).encode() + b"\n")
                other.stdin.flush()
                await eventually(lambda: len(list_sessions()) == 2)
                [daemon] = machine.list_daemons()
                daemon.kill()
                other.kill()
            [lost] = set(list_sessions()) - {kept}
            with SqliteStore(tmp_path / "gateway.db") as store:
                store.write(CLIENT_KIND, lost, b'{"seen": 0}')
            assert '"timezone": "UTC"' in text_of(await client.call_tool("tool_call", NOW))
            await eventually(lambda: list_sessions() == [kept])

    run(use)


def test_status_doctor_logs_and_stop_know_the_gateway_and_its_clients(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("HOME", str(machine.home))
    with machine.config.open("a", encoding="utf-8") as file:
        file.write("[gateway.profiles.clock]\nservers = ['time']\n")

    def ask(*words: str, config: Path = machine.config) -> str:
        return CliRunner().invoke(main, [*words, "--config", str(config)]).stdout

    def check(config: Path = machine.config) -> list[dict[str, str]]:
        checks = json.loads(ask("doctor", "--json", config=config))["checks"]
        return [check for check in checks if check["name"] == "background"]

    def tell_clients() -> list[dict[str, Any]]:
        report = ask("status", "--json")
        return json.loads(report)["clients"] if report else []

    async def use() -> None:
        async with machine.client() as first, machine.client("--profile", "clock"):
            await known(first, NAME)
            await eventually(lambda: len(tell_clients()) == 2)
            one, other = tell_clients()
            assert one["name"].startswith("mcp ")
            assert one["requests"] > 0
            assert one["session"] != other["session"]
            assert [one["profile"], other["profile"]] == ["", "clock"]
            assert "profile" in ask("status")

            [daemon] = machine.list_daemons()
            [told] = check()
            assert told["state"] == "ok"
            assert told["text"].startswith(f"process {daemon.pid}, toolscout ")
            assert "Serving the clients" in ask("logs", "-n", "1000")

            stopped = ask("stop")
            assert stopped.startswith(f"Stopped process {daemon.pid}. Its 2 clients will start")
            assert machine.list_daemons() == []
            assert "No gateway runs" in ask("stop")
            [told] = check()
            assert told["text"].startswith("no gateway runs for")
            assert '"timezone": "UTC"' in text_of(await first.call_tool("tool_call", NOW))

            # What doctor finds out of order.
            [daemon] = machine.list_daemons()
            other, none = check(configuration(machine.home, {}))
            assert f"started as toolscout {' '.join(machine.words)}" in other["text"]
            assert none["text"].startswith("no gateway runs for")
            daemon.kill()
            await eventually(lambda: not daemon.is_running())
            stale, _ = check()
            assert (stale["state"], stale["remedy"][:3]) == ("warn", "rm ")
            machine.folder.chmod(0o755)
            [unsafe] = check()
            assert (unsafe["state"], unsafe["remedy"][:3]) == ("warn", "rm ")

    run(use)


@pytest.mark.skipif(os.name != "posix" or os.geteuid() != 0, reason="needs to become another user")
def test_another_user_cannot_reach_the_gateway(machine: Machine):
    async def use() -> None:
        async with machine.client() as client:
            await known(client, NAME)
            [path] = machine.folder.glob("*.socket")
            assert machine.folder.stat().st_mode & 0o777 == 0o700
            assert "PermissionError" in await asyncio.to_thread(machine.connect_as, NOBODY)

            # Even with every door open, the gateway asks who is there.
            for folder in (machine.folder, *machine.folder.parents):
                if machine.home in (folder, *folder.parents):
                    folder.chmod(0o755)
            path.chmod(0o666)
            assert "answer b''" in await asyncio.to_thread(machine.connect_as, NOBODY)
            assert "accepted" in await asyncio.to_thread(machine.connect_as, os.getuid())

    run(use)


@pytest.mark.parametrize("obstacle", ["unsafe folder", "no home", "--no-daemon"])
def test_without_a_gateway_in_the_background_a_client_has_its_own(machine: Machine, obstacle: str):
    options: list[str] = []
    if obstacle == "unsafe folder":
        machine.folder.mkdir(parents=True)
        machine.folder.chmod(0o755)
    elif obstacle == "no home":
        machine.env["HOME"] = "/dev/null/home"
    else:
        options = [obstacle]

    done = machine.run(*machine.words, *options, said=json.dumps(HELLO) + "\n")

    assert done.returncode == 0
    assert "serverInfo" in done.stdout
    assert ("gateway of its own" in done.stderr) == (not options)
    assert machine.list_daemons() == []
    assert list(machine.folder.glob("*")) == []


# Two clients of one gateway.


class Person:
    """Answers what servers ask, and hears what they tell, in a way of its own."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.logged: list[Any] = []
        self.progress: list[str | None] = []

    @property
    def callbacks(self) -> dict[str, Any]:
        async def list_roots(context: Any) -> types.ListRootsResult:
            return types.ListRootsResult(roots=[types.Root(uri=FileUrl(f"file:///{self.name}"))])

        async def sample(context: Any, params: Any) -> types.CreateMessageResult:
            said = types.TextContent(type="text", text=f"a haiku by {self.name}")
            return types.CreateMessageResult(role="assistant", content=said, model="quill")

        async def elicit(context: Any, params: Any) -> types.ElicitResult:
            return types.ElicitResult(action="accept", content={"name": self.name})

        async def log(params: types.LoggingMessageNotificationParams) -> None:
            self.logged.append(params.data)

        return {
            "list_roots_callback": list_roots,
            "sampling_callback": sample,
            "elicitation_callback": elicit,
            "logging_callback": log,
        }

    async def report(self, progress: float, total: float | None, message: str | None) -> None:
        self.progress.append(message)


async def call(client: Client, tool: str, **arguments: Any) -> str:
    asked = {"name": tool, "arguments": arguments}
    return text_of(await client.call_tool("tool_call", asked))


@needs_node
def test_what_servers_ask_and_tell_stays_with_the_client_it_belongs_to(
    machine: Machine, tmp_path: Path
):
    machine.config = configuration(tmp_path, {"noting": NOTING})
    text = machine.config.read_text(encoding="utf-8")
    node = f'[servers.all]\ncommand = "node"\nargs = ["{EVERYTHING}"]\n'
    machine.config.write_text(node + text, encoding="utf-8")
    notes = tmp_path / "notes"
    people = [Person("ada"), Person("ben")]

    async def ask(client: Client, person: Person) -> None:
        assert f"file:///{person.name}" in await call(client, "noting__look")
        written = await call(client, "all__trigger-sampling-request", prompt="Write.")
        assert f"a haiku by {person.name}" in written
        answered = await call(client, "all__trigger-elicitation-request")
        assert f"Name: {person.name}" in answered
        assert await call(client, "noting__log", name=person.name) == person.name

    async def wait(client: Client, person: Person) -> str:
        arguments = {"path": str(notes), "name": person.name}
        asked = {"name": "noting__wait", "arguments": arguments}
        result = await client.call_tool("tool_call", asked, progress_callback=person.report)
        return text_of(result)

    async def use() -> None:
        ada, ben = people
        async with AsyncExitStack() as stack:
            clients = [
                await stack.enter_async_context(
                    machine.client(mode=mode, log_level=level, **person.callbacks)
                )
                for person, mode, level in zip(
                    people, ("auto", "legacy"), ("warning", None), strict=True
                )
            ]
            for client in clients:
                await known(client, "all__trigger-sampling-request", "noting__wait")
            for _ in range(2):
                for client, person in zip(clients, people, strict=True):
                    await ask(client, person)

            calls = [
                asyncio.create_task(wait(client, person))
                for client, person in zip(clients, people, strict=True)
            ]
            await eventually(lambda: notes.exists() and notes.read_text().count("waits") == 2)
            await eventually(lambda: ada.progress and ben.progress)
            calls[0].cancel()
            await eventually(lambda: "cancelled" in notes.read_text())
            with notes.open("a", encoding="utf-8") as file:
                file.write("end\n")
            assert await calls[1] == "ben"
            assert "ada was cancelled" in notes.read_text()
            assert "ben was cancelled" not in notes.read_text()
            assert len(machine.list_daemons()) == 1
        assert (ada.progress, ben.progress) == (["ada"], ["ben"])
        # The other server logs that it knows the roots now, whoever is calling it.
        logged = [[text for text in one.logged if text in ("ada", "ben")] for one in people]
        assert logged == [["ada"] * 2, ["ben"] * 2]

    run(use)
