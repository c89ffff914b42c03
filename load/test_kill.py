"""What a gateway leaves behind when it is killed, and what the next one knows."""

import asyncio
import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest
from mcp.client import Client

from load.gateways import OFFERING, becomes, fleet_of, is_ready, serving, tell, text_of

SERVERS = tuple(f"server{number}" for number in range(5))
GONE_SECONDS = 5.0
LEARNING_SECONDS = 60.0
LOADED = {"queries": ["select:server3__echo"], "detail": "names"}
CALLED: dict[str, Any] = {"name": "server3__echo", "arguments": {}}


@pytest.mark.requirement("R86")
@pytest.mark.timeout(LEARNING_SECONDS + 60)
def test_a_killed_gateway_leaves_no_process_and_the_next_one_knows_all(tmp_path: Path):
    """R86: one of the servers does not even notice that its input has ended."""
    stubborn = ("-c", "import threading; threading.Event().wait()")
    servers = dict.fromkeys(SERVERS, OFFERING) | {"stubborn": stubborn}
    fleet = fleet_of(tmp_path, servers)
    with serving(fleet) as gateway:
        assert becomes(lambda: is_ready(gateway, pending=1), LEARNING_SECONDS)
        asyncio.run(_asked(gateway.url))
        running = fleet.processes()
        os.kill(gateway.pid, signal.SIGKILL)
        killed = time.perf_counter()
        is_gone = becomes(lambda: not fleet.processes(), GONE_SECONDS)
        gone = time.perf_counter() - killed
    with serving(fleet) as gateway:
        text, seconds = asyncio.run(_asked(gateway.url))
    tell(
        "killed with SIGKILL",
        processes_before=len(running),
        gone_after=f"{gone:.3f} s",
        first_search_of_the_next=f"{seconds:.3f} s",
    )

    assert len(running) == len(servers) + 2  # the gateway and the shell that watches
    assert is_gone
    assert "server3__echo" in text
    assert fleet.processes() == set()


async def _asked(url: str) -> tuple[str, float]:
    """Search and call; return what the search told, and how long it took."""
    async with Client(url) as client:
        began = time.perf_counter()
        text = text_of(await client.call_tool("tool_search", LOADED))
        seconds = time.perf_counter() - began
        called = await client.call_tool("tool_call", CALLED)
        assert not called.is_error
        return text, seconds
