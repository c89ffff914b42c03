"""Clients that start `toolscout serve` share one gateway in the background."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import psutil
import pytest
from mcp.client import Client
from mcp.client.stdio import StdioServerParameters
from mcp.shared.exceptions import MCPError

from gateway.fleet import TIME, configuration, known, text_of
from serving import DEADLINE_SECONDS, eventually
from toolscout.daemon.place import connect, find_place, greet

NAME = "time__get_current_time"
NOW = {"name": NAME, "arguments": {"timezone": "UTC"}}
NOBODY = 65534
HELLO = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": {"name": "test", "version": "1"},
    },
}
NOTING = (str(Path(__file__).with_name("noting_server.py")),)


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
    async def client(self, *options: str, **settings: Any) -> AsyncGenerator[Client]:
        arguments = ["-m", "toolscout", *self.words, *options]
        parameters = StdioServerParameters(command=sys.executable, args=arguments, env=self.env)
        async with asyncio.timeout(DEADLINE_SECONDS), Client(parameters, **settings) as client:
            yield client

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "toolscout", *words]
        return subprocess.run(
            command, env=self.env, capture_output=True, text=True, check=False, input=""
        )

    def connect_and_die(self) -> None:
        command = [sys.executable, "-m", "toolscout", *self.words]
        pipe = subprocess.PIPE
        with subprocess.Popen(command, env=self.env, stdin=pipe, stdout=pipe) as client:
            assert client.stdin is not None
            assert client.stdout is not None
            client.stdin.write(json.dumps(HELLO).encode() + b"\n")
            client.stdin.flush()
            assert b"serverInfo" in client.stdout.readline()
            client.kill()

    def become_another_user_and_connect(self) -> str:
        [socket] = (self.home / ".cache/toolscout/daemon").glob("*.socket")
        connect = f"socket.socket(socket.AF_UNIX).connect({str(socket)!r})"
        command = [sys.executable, "-c", f"import os, socket; os.setuid({NOBODY}); {connect}"]
        return subprocess.run(command, capture_output=True, text=True, check=False).stderr

    def list_daemons(self) -> list[psutil.Process]:
        found: list[psutil.Process] = []
        for process in psutil.process_iter():
            try:
                words = process.cmdline()
            except psutil.Error:
                continue
            if str(self.config) in words and any("--as-daemon" in word for word in words):
                found.append(process)
        return found


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    # The address of a socket is short, and pytest's folders are deep.
    with TemporaryDirectory() as home:
        machine = Machine(Path(home), configuration(tmp_path, {"time": TIME}))
        yield machine
        for daemon in machine.list_daemons():
            daemon.terminate()
            psutil.wait_procs([daemon], DEADLINE_SECONDS)


def run(work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(work())


def test_clients_that_start_together_share_one_gateway_and_its_servers(machine: Machine):
    async def use() -> None:
        async with (
            machine.client() as first,
            machine.client() as second,
            machine.client() as third,
        ):
            for client in (first, second, third):
                await known(client, NAME)
                assert '"timezone": "UTC"' in text_of(await client.call_tool("tool_call", NOW))
            [daemon] = machine.list_daemons()
            children = [child.cmdline() for child in daemon.children(recursive=True)]
            assert sum("mcp_server_time" in words for words in children) == 1

    run(use)


def test_a_client_that_dies_takes_nothing_with_it(machine: Machine):
    async def use() -> None:
        async with machine.client() as client:
            await known(client, NAME)
            await asyncio.to_thread(machine.connect_and_die)
            assert '"timezone": "UTC"' in text_of(await client.call_tool("tool_call", NOW))

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


def test_a_newer_version_takes_over_without_a_failed_request(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("HOME", str(machine.home))  # of the test itself, which greets the gateway

    async def use() -> None:
        async with machine.client() as client:
            await known(client, NAME)
            [daemon] = machine.list_daemons()
            place = find_place(machine.words[1:])
            connection = connect(place.find_socket(machine.env))
            assert connection is not None

            calls = [client.call_tool("tool_call", NOW) for _ in range(5)]
            answer = asyncio.to_thread(
                greet, connection, {"version": "99.0.0", "session": "x", "profile": ""}
            )
            results = await asyncio.gather(*calls, answer)
            assert results.pop() == {"accepted": False}
            connection.close()
            results.append(await client.call_tool("tool_call", NOW))

            assert ['"timezone": "UTC"' in text_of(result) for result in results] == [True] * 6
            await eventually(lambda: not daemon.is_running())

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


def test_clients_with_other_secrets_do_not_share_a_gateway(machine: Machine):
    text = machine.config.read_text(encoding="utf-8")
    text = text.replace("[gateway]", 'env = { KEY = "${SOME_KEY}" }\n[gateway]')
    machine.config.write_text(text, encoding="utf-8")

    async def use() -> None:
        machine.env["SOME_KEY"] = "one"
        async with machine.client() as first:
            await known(first, NAME)
            machine.env["SOME_KEY"] = "two"
            async with machine.client() as second:
                await known(second, NAME)
                assert len(machine.list_daemons()) == 2

    run(use)


def test_status_stop_and_logs_know_the_gateway(machine: Machine):
    async def use() -> None:
        async with machine.client() as client:
            await known(client, NAME)
            config = ("--config", str(machine.config))
            await eventually(lambda: "mcp" in machine.run("status", *config).stdout)
            report = json.loads(machine.run("status", "--json", *config).stdout)
            assert report["daemon"] is True
            assert "Serving the clients" in machine.run("logs", "-n", "1000", *config).stdout

            assert "Stopped process" in machine.run("stop", *config).stdout
            assert machine.list_daemons() == []
            assert "No gateway runs" in machine.run("stop", *config).stdout
            assert '"timezone": "UTC"' in text_of(await client.call_tool("tool_call", NOW))

    run(use)


@pytest.mark.skipif(os.name != "posix" or os.geteuid() != 0, reason="needs to become another user")
def test_another_user_cannot_reach_the_gateway(machine: Machine):
    async def use() -> None:
        async with machine.client() as client:
            await known(client, NAME)
            assert "PermissionError" in await asyncio.to_thread(
                machine.become_another_user_and_connect
            )

    run(use)


def test_a_folder_that_others_can_open_is_refused(machine: Machine):
    folder = machine.home / ".cache/toolscout/daemon"
    folder.mkdir(parents=True)
    folder.chmod(0o755)

    done = machine.run(*machine.words)

    assert done.returncode == 2
    assert "can be opened by other users" in done.stderr
    assert machine.list_daemons() == []
