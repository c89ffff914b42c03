"""Package runners that install a server before they run it."""

import asyncio
import os
import subprocess
import sys
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from serving import eventually
from toolscout.catalog import Catalog
from toolscout.config.servers import ServerConfig, Transport
from toolscout.errors import ServerUnavailable
from toolscout.schemas import Json
from toolscout.servers.connection import Delays
from toolscout.servers.pool import Pool
from toolscout.servers.process import ProcessReaper, find_package_runner
from toolscout.servers.state import Phase
from toolscout.stores import MemoryStore

FAULTY = Path(__file__).with_name("faulty.py")
DEADLINE_SECONDS = 120
QUICK = Delays(first_retry=0.01, most_retry=0.05, change=0.01, exit=0.05, kill=0.2)
SERVES = f'exec "{sys.executable}" -S "{FAULTY}" fine'
HANGS = "cat > /dev/null"
"""Reads its input and never answers."""
WAITING = "npx may still be installing it"

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="runs shell scripts")


def make_runner(folder: Path, script: str) -> str:
    """Write a program that is named like a package runner, and return its path."""
    path = folder / "npx"
    path.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
    path.chmod(0o755)
    return str(path)


def server(command: str, name: str = "a", **options: Any) -> ServerConfig:
    return ServerConfig(name=name, transport=Transport.STDIO, command=command, **options)


def pool_of(
    *configs: ServerConfig, store: MemoryStore | None = None, delays: Delays = QUICK
) -> Pool:
    return Pool(configs, Catalog(), store or MemoryStore(), delays=delays)


def run(work: Coroutine[Any, Any, None]) -> None:
    async def limited() -> None:
        async with asyncio.timeout(DEADLINE_SECONDS):
            await work

    asyncio.run(limited())


class Gate:
    """A pipe with a name, from which scripts read a line before they go on."""

    def __init__(self, path: Path) -> None:
        os.mkfifo(path)
        self.wait = f'read -r line < "{path}"'
        self._file = os.open(path, os.O_RDWR)  # a script that opens it does not wait for us

    def let_pass(self, scripts: int = 1) -> None:
        os.write(self._file, b"\n" * scripts)


def test_an_installation_may_take_longer_than_a_start(tmp_path: Path):
    installing = Gate(tmp_path / "installing")
    npx = make_runner(tmp_path, f"{installing.wait}\n{SERVES}")

    async def work() -> None:
        async with pool_of(server(npx, start_seconds=0.1)) as pool:
            member = pool.servers["a"]
            await eventually(lambda: member.reason == WAITING)
            # A call gives up after start_seconds, and it began after the start.
            with pytest.raises(ServerUnavailable):
                await pool.request("a", "tools/call", {"name": "echo", "arguments": {}})
            state = pool.catalog.state("a")
            assert state is not None
            assert state.reason == WAITING
            assert member.phase is Phase.STARTING
            installing.let_pass()
            pool.servers["a"].config = server(npx, start_seconds=30.0)  # for its lists
            await eventually(lambda: pool.catalog.get("a__echo"))
            await eventually(lambda: member.phase is Phase.READY)

            assert member.starts == 1
            assert member.reason == ""

    run(work())


def test_an_installation_that_takes_too_long_names_the_option(tmp_path: Path):
    npx = make_runner(tmp_path, HANGS)

    async def work() -> None:
        config = server(npx, start_seconds=0.1, install_seconds=0.2)
        async with pool_of(config) as pool:
            await eventually(lambda: pool.servers["a"].phase is Phase.FAILED)

            assert pool.servers["a"].reason == (
                "no answer within 0.2 s (install_seconds); npx may still be installing it"
            )

    run(work())


def test_a_runner_that_ends_is_not_waited_for(tmp_path: Path):
    npx = make_runner(tmp_path, "exit 3")

    async def work() -> None:
        async with pool_of(server(npx)) as pool:
            await eventually(lambda: pool.servers["a"].phase is Phase.FAILED)

            assert pool.servers["a"].reason == "it ended with code 3"

    run(work())


def test_a_server_that_answered_before_is_judged_by_its_start_until_that_fails(tmp_path: Path):
    slow = tmp_path / "slow"
    npx = make_runner(tmp_path, f'[ -e "{slow}" ] && {HANGS}\n{SERVES}')

    async def work() -> None:
        store = MemoryStore()
        async with pool_of(server(npx), store=store) as pool:
            await eventually(lambda: pool.catalog.get("a__echo"))
        slow.touch()
        async with pool_of(server(npx, start_seconds=0.3), store=store) as pool:
            call: Json = {"name": "echo", "arguments": {}}
            with pytest.raises(ServerUnavailable) as first:
                await pool.request("a", "tools/call", call)
            with pytest.raises(ServerUnavailable) as second:
                await pool.request("a", "tools/call", call)

            assert first.value.reason == "no answer within 0.3 s (start_seconds)"
            assert (second.value.state, second.value.reason) == ("starting", WAITING)
            assert pool.servers["a"].phase is Phase.STARTING

    run(work())


def test_no_more_than_four_installations_run_at_once(tmp_path: Path):
    running = tmp_path / "running"
    running.mkdir()
    seen = tmp_path / "seen"
    seen.touch()
    installing = Gate(tmp_path / "installing")
    npx = make_runner(
        tmp_path,
        f'touch "{running}/$$"; ls "{running}" | wc -l >> "{seen}"; {installing.wait}; '
        f'rm "{running}/$$"; {SERVES}',
    )
    names = [f"s{number}" for number in range(10)]

    async def work() -> None:
        async with pool_of(*(server(npx, name) for name in names)) as pool:
            await eventually(lambda: len(seen.read_text().split()) >= 4)
            installing.let_pass(len(names))
            await eventually(lambda: all(one.manifest for one in pool.servers.values()))

    run(work())
    counts = [int(line) for line in seen.read_text().split()]

    assert len(counts) == len(names)
    assert max(counts) == 4


def test_an_installation_has_time_to_be_taken_back_when_the_gateway_ends(tmp_path: Path):
    begun = tmp_path / "begun"
    asked = tmp_path / "asked"
    undone = tmp_path / "undone"
    installing = Gate(tmp_path / "installing")
    npx = make_runner(
        tmp_path,
        f'trap \'touch "{asked}"; {installing.wait}; touch "{undone}"; exit 0\' TERM; '
        f'touch "{begun}"; {installing.wait}',
    )
    # Anything else is killed as soon as it is asked to end.
    delays = replace(QUICK, kill=0.0, install_exit=DEADLINE_SECONDS)

    async def take_back() -> None:
        await eventually(asked.exists)
        installing.let_pass()

    async def work() -> None:
        async with pool_of(server(npx), delays=delays):
            await eventually(begun.exists)
            taking_back = asyncio.create_task(take_back())
        await taking_back

    run(work())

    assert undone.exists()


def test_an_installation_has_time_to_be_taken_back_when_the_gateway_is_killed():
    script = "trap 'echo asked; read -r line; echo undone; exit 0' TERM; echo begun; read -r line"
    reaper = ProcessReaper()
    with (
        ThreadPoolExecutor(1) as thread,
        subprocess.Popen(
            ["/bin/sh", "-c", script],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        ) as process,
    ):
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == "begun\n"
        reaper.watch(process.pid)
        closing = thread.submit(reaper.close)
        assert process.stdout.readline() == "asked\n"
        print(file=process.stdin, flush=True)

        assert process.stdout.readline() == "undone\n"
        process.wait(DEADLINE_SECONDS)
        closing.result(DEADLINE_SECONDS)


@pytest.mark.parametrize(
    ("command", "runner"),
    [
        ("npx -y @modelcontextprotocol/server-github", "npx"),
        ("/usr/local/bin/npx -y x", "npx"),
        (r"C:\nodejs\npx.cmd -y x", "npx"),
        ("npm exec -y x", "npm"),
        ("npm x -- y", "npm"),
        ("pnpm dlx x", "pnpm"),
        ("pnpx x", "pnpx"),
        ("yarn dlx x", "yarn"),
        ("bunx x", "bunx"),
        ("bun x y", "bun"),
        ("uvx mcp-server-time", "uvx"),
        ("uv run --with mcp server.py", "uv"),
        ("uv tool run x", "uv"),
        ("uv --directory /x run server.py", "uv"),
        ("pipx run x", "pipx"),
        ("docker run -i --rm mcp/github", "docker"),
        ("podman run -i x", "podman"),
        ("deno run -A npm:x", "deno"),
        ("cmd /c npx -y x", "npx"),
        ("CMD.EXE /d /c npx -y x", "npx"),
        ("env KEY=1 npx -y x", "npx"),
        ("node server.js", ""),
        ("npm start", ""),
        ("npm run serve", ""),
        ("docker exec -i box server", ""),
        ("deno run server.ts", ""),
        ("python -m mcp_server_time", ""),
        ("bash start.sh", ""),
        ("uvicorn run", ""),
    ],
)
def test_a_package_runner_is_known_by_its_command(command: str, runner: str):
    first, *rest = command.split()

    assert find_package_runner(first, rest) == runner


@pytest.mark.parametrize(
    "script", ["npx -y x", "exec npx -y x", "cd /tmp && npx -y x", "KEY='a b' npx -y x"]
)
@pytest.mark.parametrize("flags", [["-c"], ["-l", "-c"], ["-lc"]])
def test_a_package_runner_is_known_in_a_shell_script(flags: list[str], script: str):
    assert find_package_runner("/bin/bash", [*flags, script]) == "npx"
