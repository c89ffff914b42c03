"""`toolscout console` shows the gateway in the background to a browser of its user."""

import asyncio
import getpass
import signal
import sys
import time
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from console.asking import Asker
from daemon.test_daemon import NAME, NOW, Machine, machine, run
from gateway.fleet import TIME, configuration, known
from serving import eventually
from toolscout.config.file import read_config

__all__ = ["machine"]
UNAUTHORIZED = 401


@asynccontextmanager
async def showing(machine: Machine) -> AsyncGenerator[tuple[Asker, Process]]:
    """Run `toolscout console` for a machine's gateway."""
    words = ["-m", "toolscout", "console", "--config", str(machine.config), "--port", "0"]
    process = await asyncio.create_subprocess_exec(
        sys.executable, *words, env=machine.env, stdout=PIPE
    )
    assert process.stdout is not None
    try:
        line = (await process.stdout.readline()).decode()
        assert line.startswith("The gateway in the background at http://127.0.0.1:")
        address, _, token = line.split(" at ")[1].split(" (")[0].partition("/#token=")
        yield Asker(address, token), process
    finally:
        process.send_signal(signal.SIGINT)
        assert await process.wait() == 0


def test_the_console_shows_the_gateway_in_the_background_and_keeps_it_while_it_is_open(
    machine: Machine, tmp_path: Path
):
    machine.config = configuration(tmp_path, {"time": TIME}, daemon_seconds=1)

    async def use() -> None:
        async with AsyncExitStack() as stack:
            async with machine.client() as client:
                await known(client, NAME)
                await client.call_tool("tool_call", NOW)  # before anybody looks
                asker, _ = await stack.enter_async_context(showing(machine))
                await asyncio.to_thread(look, asker)
            await eventually(lambda: asker.get("/clients") == [])
            until = time.monotonic() + 2  # without the console, the gateway would end before
            while time.monotonic() < until:
                await asyncio.to_thread(asker.get, "/overview")
                await asyncio.sleep(0.1)  # the console limits how many requests it answers
        await eventually(lambda: not machine.list_daemons())
        assert not list(machine.folder.glob("*.console"))

    def look(asker: Asker) -> None:
        overview = asker.get("/overview")
        assert (overview["host"], overview["principal"]) == ("daemon", getpass.getuser())
        [one] = asker.get("/clients")
        assert one["requests"] > 1
        [session] = asker.get("/sessions")["sessions"]
        assert (session["id"], session["transport"]) == (one["session"], "stdio")
        assert (session["client"], session["calls"]) == (one["name"], 1)
        for stranger in (Asker(asker.url), Asker(asker.url, "guess")):
            assert stranger.send("GET", "/api/overview").status_code == UNAUTHORIZED
        assert asker.post("/servers/time/off")["state"] == "off"
        assert read_config(machine.config).servers[0].disabled

    run(use)


def test_the_console_goes_on_with_the_next_gateway_at_the_same_address(machine: Machine):
    async def use() -> None:
        async with machine.client() as client:
            await known(client, NAME)
            async with showing(machine) as (asker, process):
                [first] = machine.list_daemons()
                first.kill()
                await client.list_tools()  # starts another
                await eventually(lambda: count_clients(asker) == 1)
                assert process.returncode is None
                assert [one.pid for one in machine.list_daemons()] != [first.pid]

    def count_clients(asker: Asker) -> int:
        try:
            return len(asker.get("/clients"))
        except Exception:  # until there is a gateway, the connection ends without an answer
            return 0

    run(use)


def test_without_a_gateway_in_the_background_the_console_says_so(machine: Machine):
    words = ["-m", "toolscout", "console", "--config", str(machine.config), "--port", "0"]

    async def use() -> None:
        process = await asyncio.create_subprocess_exec(
            sys.executable, *words, env=machine.env, stdout=PIPE, stderr=PIPE
        )
        assert process.stdout is not None
        assert b"0 tools at http://127.0.0.1:" in await process.stdout.readline()
        process.send_signal(signal.SIGINT)
        _, said = await process.communicate()
        assert b"No gateway runs in the background" in said

    run(use)
