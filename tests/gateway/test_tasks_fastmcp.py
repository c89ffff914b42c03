"""Tasks between FastMCP's server and client, with a gateway in between; see `make test-peers`."""

import asyncio
import sys
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from serving import DEADLINE_SECONDS, served
from toolscout.config.servers import ServerConfig, Transport

pytestmark = [
    pytest.mark.skipif(find_spec("fastmcp_tasks") is None, reason="`fastmcp[tasks]` is missing"),
    pytest.mark.timeout(300),
]
SERVER = """
import asyncio
from datetime import timedelta
from fastmcp import FastMCP
from fastmcp.utilities.tasks import TaskConfig
from fastmcp_tasks import TasksExtension

mcp = FastMCP("slow")
mcp.add_extension(TasksExtension())


@mcp.tool(task=TaskConfig(mode="required", poll_interval=timedelta(seconds=0.1)))
async def wait(seconds: float) -> str:
    await asyncio.sleep(seconds)
    return f"waited {seconds:g} s"


mcp.run(show_banner=False)
"""


def slow(folder: Path, **options: Any) -> ServerConfig:
    path = folder / "slow.py"
    path.write_text(SERVER, encoding="utf-8")
    return ServerConfig(
        name="slow",
        transport=Transport.STDIO,
        command=sys.executable,
        args=(str(path),),
        **options,
    )


@pytest.mark.parametrize("era", ["auto", "legacy"])
def test_a_tool_of_fastmcp_that_insists_on_tasks_can_be_called(era: str, tmp_path: Path):
    client_module: Any = import_module("mcp.client")

    async def conversation(url: str) -> Any:
        async with client_module.Client(f"{url}/mcp", mode=era) as client:
            asked = {"name": "slow__wait", "arguments": {"seconds": 2}}
            return await client.call_tool("tool_call", asked)

    with served(slow(tmp_path, call_seconds=1.0)) as running:
        assert running.known.wait(DEADLINE_SECONDS)
        result = asyncio.run(conversation(running.url))

    assert result.content[0].text == "waited 2 s"
    assert result.structured_content == {"result": "waited 2 s"}


def test_the_client_of_fastmcp_follows_and_cancels_a_task(tmp_path: Path):
    fastmcp: Any = import_module("fastmcp")
    tasks: Any = import_module("fastmcp_tasks")

    async def conversation(url: str) -> tuple[str, str, str]:
        async with fastmcp.Client(f"{url}/mcp") as client:
            asked = {"name": "slow__wait", "arguments": {"seconds": 1}}
            followed = await client.call_tool("tool_call", asked)
            task = await tasks.call_tool_task(client, "tool_call", asked)
            waited = await task.result()
            asked["arguments"] = {"seconds": 600}
            endless = await tasks.call_tool_task(client, "tool_call", asked)
            await endless.cancel()
            state = await endless.wait(timeout=DEADLINE_SECONDS)
            return followed.content[0].text, waited.content[0].text, state.status

    with served(slow(tmp_path)) as running:
        assert running.known.wait(DEADLINE_SECONDS)
        told = asyncio.run(conversation(running.url))

    assert told == ("waited 1 s", "waited 1 s", "cancelled")
