"""How many modules a newcomer opens to follow one call through the gateway over HTTP."""

import asyncio
import sys
import threading
from pathlib import Path
from types import FrameType

from mcp import Client
from mcp.client.streamable_http import streamable_http_client

import toolscout
from serving import DEADLINE_SECONDS, TIME, served

PACKAGE = f"{Path(toolscout.__file__).parent}/"
CALL_MODULES = 35
CALL = {"name": "time__get_current_time", "arguments": {"timezone": "Europe/Berlin"}}
DEFERRED = ("_deliver", "_keep")
"""Functions that run after the answer is sent: listeners to events, and what calls teach."""


class Walk:
    """Collects the modules of the package whose functions run, except for deferred work."""

    def __init__(self) -> None:
        self.modules: set[str] = set()
        self._deferred: FrameType | None = None

    def __call__(self, frame: FrameType, event: str, arg: object) -> None:
        path = frame.f_code.co_filename
        if self._deferred is not None:
            if event == "return" and frame is self._deferred:
                self._deferred = None
        elif event == "call" and path.startswith(PACKAGE):
            if frame.f_code.co_name in DEFERRED:
                self._deferred = frame
            else:
                self.modules.add(path.removeprefix(PACKAGE))


def test_one_call_over_http_passes_few_modules():
    walk = Walk()
    with served(TIME) as gateway:
        assert gateway.known.wait(DEADLINE_SECONDS)

        async def call() -> None:
            async with Client(streamable_http_client(f"{gateway.url}/mcp")) as client:
                warm = await client.call_tool("tool_call", CALL)
                assert not warm.is_error
                gateway.heard()  # the listeners have heard of the first call
                threading.setprofile(walk)
                gateway.loop.call_soon_threadsafe(sys.setprofile, walk)
                await client.call_tool("tool_call", CALL)

        try:
            asyncio.run(call())
        finally:
            threading.setprofile(None)
            gateway.loop.call_soon_threadsafe(sys.setprofile, None)
            gateway.heard()

    assert "gateway/forward.py" in walk.modules
    assert len(walk.modules) <= CALL_MODULES, sorted(walk.modules)
