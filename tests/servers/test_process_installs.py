"""Package runners that install a server before they run it."""

import asyncio
import subprocess
import sys
from collections.abc import Coroutine
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


def wait_for(path: Path) -> str:
    return f'while [ ! -e "{path}" ]; do sleep 0.02; done'


def test_an_installation_may_take_longer_than_a_start(tmp_path: Path):
    done = tmp_path / "installed"
    npx = make_runner(tmp_path, f"{wait_for(done)}\n{SERVES}")

    async def work() -> None:
        async with pool_of(server(npx, start_seconds=0.1)) as pool:
            loop = asyncio.get_running_loop()
            member = pool.servers["a"]
            await eventually(lambda: member.reason == WAITING)
            until = loop.time() + 1.0
            await eventually(lambda: loop.time() > until)
            state = pool.catalog.state("a")
            assert state is not None
            assert state.reason == WAITING
            assert member.phase is Phase.STARTING
            done.touch()
            pool.servers["a"].config = server(npx, start_seconds=30.0)  # for its lists
            await eventually(lambda: pool.catalog.get("a__echo"))
            await eventually(lambda: member.phase is Phase.READY)

            assert member.starts == 1
            assert member.reason == ""

    run(work())


def test_an_installation_that_takes_too_long_names_the_option(tmp_path: Path):
    npx = make_runner(tmp_path, "sleep 600")

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
    npx = make_runner(tmp_path, f'[ -e "{slow}" ] && sleep 600\n{SERVES}')

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
    running, seen = tmp_path / "running", tmp_path / "seen"
    running.mkdir()
    script = (
        f'touch "{running}/$$"; ls "{running}" | wc -l >> "{seen}"; sleep 0.2; '
        f'rm "{running}/$$"; {SERVES}'
    )
    npx = make_runner(tmp_path, script)
    names = [f"s{number}" for number in range(10)]

    async def work() -> None:
        async with pool_of(*(server(npx, name) for name in names)) as pool:
            await eventually(lambda: all(one.manifest for one in pool.servers.values()))

    run(work())
    counts = [int(line) for line in seen.read_text().split()]

    assert len(counts) == len(names)
    assert max(counts) <= 4


def test_an_installation_has_time_to_be_taken_back_when_the_gateway_ends(tmp_path: Path):
    begun, undone = tmp_path / "begun", tmp_path / "undone"
    npx = make_runner(
        tmp_path,
        f'trap \'sleep 1; touch "{undone}"; exit 0\' TERM; touch "{begun}"; '
        "while :; do sleep 0.05; done",
    )

    async def work() -> None:
        async with pool_of(server(npx), delays=QUICK):
            await eventually(begun.exists)

    run(work())

    assert undone.exists()


def test_an_installation_has_time_to_be_taken_back_when_the_gateway_is_killed(tmp_path: Path):
    undone = tmp_path / "undone"
    script = f"trap 'sleep 1; touch \"{undone}\"; exit 0' TERM; echo; while :; do sleep 0.05; done"
    reaper = ProcessReaper()
    with subprocess.Popen(
        ["/bin/sh", "-c", script], stdout=subprocess.PIPE, start_new_session=True
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        reaper.watch(process.pid)
        reaper.close()

    assert undone.exists()


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
