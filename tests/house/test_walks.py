"""How many modules a newcomer opens to follow one request through the package."""

import asyncio
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import toolscout
from toolscout.catalog import Catalog
from toolscout.config.servers import ServerConfig, Transport
from toolscout.demo import load_demo_catalog
from toolscout.scout import Scout
from toolscout.servers.connection import Delays
from toolscout.servers.pool import Pool
from toolscout.stores import MemoryStore

PACKAGE = Path(toolscout.__file__).parent
GROWING_SERVER = Path(__file__).parents[2] / "load" / "upstream.py"
DEADLINE_SECONDS = 120
LIST_CHANGE_MODULES = 16
SEARCH_MODULES = 22
RARE_LOOKS = Delays(idle_look=3_600, login_look=3_600, change=0.001)
"""Without the pool's background checks, which have nothing to do with a list change."""


class Modules:
    """Collects the modules of the package that run in any thread while it is switched on."""

    def __init__(self) -> None:
        self.is_on = False
        self.names: set[str] = set()

    def note(self, frame: FrameType, event: str, _: Any) -> None:
        path = frame.f_code.co_filename
        if self.is_on and event == "call" and path.startswith(f"{PACKAGE}/"):
            self.names.add(Path(path).relative_to(PACKAGE).as_posix())


def test_a_list_change_runs_few_modules_from_the_announcement_to_the_index():
    modules = Modules()
    previous = sys.getprofile()
    threading.setprofile(modules.note)  # for the workers, which are yet to start
    sys.setprofile(modules.note)
    try:
        asyncio.run(announce_more_tools(modules))
    finally:
        sys.setprofile(previous)
        threading.setprofile(previous)

    assert "search/index.py" in modules.names
    assert "stores/memory.py" in modules.names
    assert len(modules.names) <= LIST_CHANGE_MODULES, sorted(modules.names)


async def announce_more_tools(modules: Modules) -> None:
    """Let a real server list more tools, and wait until they are indexed and stored."""
    catalog, store = Catalog(), MemoryStore()
    arguments = (str(GROWING_SERVER), "big", "growing")
    config = ServerConfig(
        name="big", transport=Transport.STDIO, command=sys.executable, args=arguments
    )
    scout = Scout(catalog)
    async with (
        asyncio.timeout(DEADLINE_SECONDS),
        Pool([config], catalog, store, delays=RARE_LOOKS) as pool,
    ):
        await wait_until(lambda: store.read("manifest", "big"))
        before, stored = len(scout.index), store.read("manifest", "big")
        await pool.request("big", "tools/call", {"name": "echo", "arguments": {"text": "grow"}})
        modules.is_on = True
        await wait_until(lambda: store.read("manifest", "big") != stored)
        modules.is_on = False

        assert len(scout.index) > before


async def wait_until(is_so: Callable[[], object]) -> None:
    while not is_so():  # noqa: ASYNC110  # a store is no event
        await asyncio.sleep(0.005)


@pytest.mark.xfail(strict=True, reason="25: `search` has filters, evidence and candidates apart")
def test_one_search_passes_at_most_22_modules():
    modules = Modules()
    session = Scout(load_demo_catalog()).session("s")
    request = {"queries": ["open a pull request"]}

    async def search() -> None:
        for _ in range(3):  # until everything that a search remembers is there
            await session.handle("tool_search", request)
        modules.is_on = True
        sys.setprofile(modules.note)
        try:
            await session.handle("tool_search", request)
        finally:
            sys.setprofile(None)

    asyncio.run(search())

    assert len(modules.names) <= SEARCH_MODULES, sorted(modules.names)
