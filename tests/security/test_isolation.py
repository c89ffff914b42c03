"""What a server can reach on the machine that runs it."""

import asyncio
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Awaitable, Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from serving import Served, eventually, served
from toolscout.config.servers import ServerConfig, Transport
from toolscout.servers.connection import Delays
from toolscout.servers.isolation import check_isolation
from toolscout.servers.pool import Connector
from toolscout.servers.probe import ProbeResult, probe_server

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="these are means of Linux")

SERVER = Path(__file__).with_name("prying_server.py")
Pry = Callable[[str, str], Awaitable[str]]


def describe_bwrap() -> str:
    """Return why bubblewrap cannot be used here, or nothing."""
    program = shutil.which("bwrap")
    if program is None:
        return "bubblewrap is not installed"
    trial = [program, "--unshare-user", "--unshare-pid", "--ro-bind", "/", "/", "true"]
    done = subprocess.run(trial, capture_output=True, text=True)
    return f"bubblewrap does not work here: {done.stderr}" if done.returncode else ""


needs_bwrap = pytest.mark.skipif(bool(describe_bwrap()), reason=describe_bwrap() or "works")


def configure(**options: Any) -> ServerConfig:
    return ServerConfig(
        name="prying",
        transport=Transport.STDIO,
        command=sys.executable,
        args=("-S", str(SERVER)),
        **options,
    )


def list_program_folders() -> list[str]:
    """Return the folders that Python and the server need, read-only."""
    found = {str(SERVER.parent), str(Path(sys.executable).parent), sys.prefix, sys.base_prefix}
    found.add(str(Path(sys.executable).resolve().parent))
    return [f"{folder}:ro" for folder in sorted(found) if not folder.startswith("/usr")]


def isolate(*folders: Path | str, **options: Any) -> ServerConfig:
    listed = [*map(str, folders), *list_program_folders()]
    return configure(isolate="bwrap", folders=listed, **options)


def use(config: ServerConfig, work: Callable[[Pry], Awaitable[None]]) -> None:
    async def run(running: Served) -> None:
        await eventually(lambda: len(running.gateway.catalog))
        async with Client(streamable_http_client(f"{running.url}/mcp")) as client:

            async def pry(action: str, target: str = "") -> str:
                arguments = {"action": action, "target": target}
                call = {"name": "prying__pry", "arguments": arguments}
                result = await client.call_tool("tool_call", call)
                return "".join(getattr(part, "text", "") for part in result.content)

            await pry("status", "")  # which also loads the tool
            await work(pry)

    with served(config) as running:
        asyncio.run(run(running))


def probe(config: ServerConfig) -> ProbeResult:
    async def start() -> ProbeResult:
        with closing(Connector(Delays())) as connector:
            return await probe_server(config, connector)

    return asyncio.run(start())


# Every server.


@pytest.mark.skipif(shutil.which("setpriv") is None, reason="util-linux is not installed")
def test_a_server_gains_no_privileges_and_has_a_temporary_folder_of_its_own():
    seen: dict[str, Any] = {}

    async def work(pry: Pry) -> None:
        seen.update(json.loads(await pry("status", "")))
        assert await pry("write", f"{seen['temp']}/note") == "written"

    use(configure(), work)

    assert seen["no_new_privileges"] is True
    assert seen["temp"] != tempfile.gettempdir()
    assert seen["temp_mode"] == "0o700"
    assert not Path(seen["temp"]).exists()
    assert not Path(seen["temp"]).parent.exists()


def test_an_operator_may_allow_privileges_and_name_the_temporary_folder(tmp_path: Path):
    is_set_here = "NoNewPrivs:\t1" in Path("/proc/self/status").read_text()

    async def work(pry: Pry) -> None:
        seen = json.loads(await pry("status", ""))
        assert seen["temp"] == str(tmp_path)
        assert seen["no_new_privileges"] is is_set_here

    use(configure(new_privileges=True, env={"TMPDIR": str(tmp_path)}), work)


def test_a_command_that_does_not_exist_is_reported_as_before():
    assert "not found" in probe(replace(configure(), command="no-such-program")).problem


@pytest.mark.skipif(shutil.which("prlimit") is None, reason="util-linux is not installed")
def test_limits_of_a_server_are_those_of_the_configuration():
    async def work(pry: Pry) -> None:
        seen = json.loads(await pry("status", ""))
        assert seen["open_files"] == 200
        assert seen["processes"] == 5_000
        assert seen["data"] == 900 << 20

    use(configure(limits={"memory_mb": 900, "open_files": 200, "processes": 5_000}), work)


# Bubblewrap.


@needs_bwrap
def test_an_isolated_server_reads_and_writes_only_its_folders(tmp_path: Path):
    mine, shown, secret = tmp_path / "mine", tmp_path / "shown", tmp_path / "secret"
    for folder in (mine, shown, secret):
        folder.mkdir()
        (folder / "note").write_text(f"note in {folder.name}")

    async def work(pry: Pry) -> None:
        assert await pry("read", f"{mine}/note") == "note in mine"
        assert await pry("read", f"{shown}/note") == "note in shown"
        assert await pry("read", f"{secret}/note") == "refused: FileNotFoundError"
        assert await pry("read", "/etc/shadow") == "refused: FileNotFoundError"
        assert await pry("write", f"{mine}/new") == "written"
        assert (await pry("write", f"{shown}/new")).startswith("refused")
        for place in ("/usr/new", "/etc/new", "/new", "/proc/sys/kernel/domainname"):
            assert (await pry("write", place)).startswith("refused"), place

    use(isolate(mine, f"{shown}:ro"), work)

    assert (mine / "new").read_text() == "written by the server"
    assert not (shown / "new").exists()


@needs_bwrap
def test_an_isolated_server_has_its_own_home_temporary_folder_and_processes():
    async def work(pry: Pry) -> None:
        seen = json.loads(await pry("status", ""))
        assert seen["no_new_privileges"] is True
        assert seen["temp"] == "/tmp"
        assert max(seen["pids"]) < 10
        assert await pry("write", "/tmp/of-an-isolated-server") == "written"
        assert await pry("read", "/tmp/of-an-isolated-server") == "written by the server"
        # Only what leads to the listed folders.
        assert not {*seen["home"]} & {".ssh", ".bashrc", ".profile", ".gitconfig"}

    use(isolate(), work)

    assert not Path("/tmp/of-an-isolated-server").exists()


@needs_bwrap
@pytest.mark.parametrize("network", [True, False])
def test_an_isolated_server_reaches_the_network_unless_it_is_switched_off(network: bool):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]

        async def work(pry: Pry) -> None:
            said = await pry("connect", f"127.0.0.1:{port}")
            assert (said == "connected") is network

        use(isolate(network=network), work)


@needs_bwrap
def test_nothing_of_an_isolated_server_is_left_when_it_stops():
    mark = f"{500_000 + os.getpid()}"

    async def work(pry: Pry) -> None:
        assert (await pry("child", mark)).isdecimal()
        await eventually(lambda: find_processes(mark))  # a new process has no command at first

    use(isolate(), work)

    async def wait() -> None:
        await eventually(lambda: not find_processes(mark))

    asyncio.run(wait())


def find_processes(mark: str) -> list[str]:
    """Return the processes, in whatever namespace, whose command contains a text."""
    found: list[str] = []
    for place in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            text = place.read_text(errors="replace")
        except OSError:
            continue
        if f"time.sleep({mark})" in text:
            found.append(place.parent.name)
    return found


@needs_bwrap
def test_a_program_outside_of_all_folders_is_refused_without_naming_paths(tmp_path: Path):
    program = tmp_path / "server"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)

    trial = probe(replace(configure(isolate="bwrap"), command=str(program)))

    assert "its program is outside of all folders" in trial.problem
    assert str(tmp_path) not in trial.problem


@pytest.mark.parametrize("isolation", ["bwrap", "docker"])
def test_a_server_does_not_start_where_its_isolation_is_missing(
    isolation: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    monkeypatch.setenv("PATH", str(tmp_path))
    image = {"image": "python:3"} if isolation == "docker" else {}

    trial = probe(configure(isolate=isolation, **image))

    assert f"{isolation} is not installed. Install" in trial.problem


# Docker. A program that only notes how it was called and runs the command stands in for it.

FAKE_DOCKER = """#!/bin/sh
echo "$@" >> {log}
[ "$1" = run ] || exit 0
while [ "$1" != some/image:1 ]; do shift; done
shift
exec "$@"
"""


def test_a_container_gets_no_rights_no_network_and_only_the_listed_folders(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    log, docker, data = tmp_path / "log", tmp_path / "bin" / "docker", tmp_path / "a,b"
    docker.parent.mkdir()
    data.mkdir()
    docker.write_text(FAKE_DOCKER.format(log=log))
    docker.chmod(0o755)
    monkeypatch.setenv("PATH", f"{docker.parent}:{os.environ['PATH']}")
    config = configure(
        isolate="docker",
        image="some/image:1",
        network=False,
        folders=[f"{data}:ro", str(tmp_path)],
        env={"SOME_TOKEN": "hunter2-hunter2"},
        limits={"memory_mb": 500, "open_files": 100, "processes": 50},
    )

    assert not probe(config).problem

    started, ended = log.read_text().splitlines()
    for part in (
        "--read-only --cap-drop ALL --security-opt no-new-privileges",
        "--network none --memory 500m --memory-swap 500m --ulimit nofile=100 --pids-limit 50",
        f"--mount type=bind,source={tmp_path},target={tmp_path} ",
        f'--mount type=bind,"source={data}","target={data}",readonly ',
        f"--env SOME_TOKEN some/image:1 {sys.executable} -S {SERVER}",
    ):
        assert part in started
    assert "hunter2" not in started
    name = started.split("--name ")[1].split()[0]
    assert ended == f"rm --force {name}"


@needs_bwrap
def test_the_check_of_the_doctor_names_what_is_used():
    assert check_isolation(isolate(), os.environ) == "in bwrap"
