"""How many modules a newcomer opens to follow one request through the package."""

import asyncio
import sys
import threading
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.subscriptions import ToolsListChanged

import toolscout
from serving import DEADLINE_SECONDS, TIME, eventually, served
from toolscout.config.servers import ServerConfig, Transport
from toolscout.demo import load_demo_catalog
from toolscout.scout import Scout
from toolscout.stores import MemoryStore

PACKAGE = Path(toolscout.__file__).parent
CALL_MODULES = 30
CALL = {"name": "time__get_current_time", "arguments": {"timezone": "Europe/Berlin"}}
AFTER_A_CALL = frozenset({"EventStream._deliver", "UsageLog._write", "BackgroundStore._drain"})
"""What a gateway does after it has sent the answer: listeners to events, and the usage log."""
BESIDE_A_CALL = frozenset(
    {
        "AuditRecord._write",
        "AuditRecord._write_soon",
        "CatalogUpdater.apply_decisions",
        "CatalogUpdater.apply_decisions.<locals>.work",
        "Gateway._follow",
        "Gateway._follow_others",
        "Gateway._watch_programs",
        "Gateway._watch_requests",
        "Hints.refresh",
        "Scout.read_news",
        "list_approved",
        "Metrics.watch_loop",
        "Pool._end_logged_out",
        "Pool._stop_idle",
        "Pool._wait_for_change",
        "Pool._watch_approvals",
        "Pool._watch_logins",
        "_HttpGateway._end_expired",
        "serve_app",
        "serve_http",
    }
)
"""What happens now and then meanwhile: the audit record, approvals, logins and the end."""
LIST_CHANGE_MODULES = 16
GROWING = ServerConfig(
    name="big",
    transport=Transport.STDIO,
    command=sys.executable,
    args=(str(Path(__file__).parents[2] / "load" / "upstream.py"), "big", "growing"),
    changes="allow",
)
IDLE_SECONDS = 0.5
GROW = {"name": "echo", "arguments": {"text": "grow"}}
AFTER_A_LIST_CHANGE = frozenset(
    {
        "AuditRecord._note",
        "BackgroundStore._drain",
        "BackgroundStore._gather",
        "CatalogUpdater._report_changes",
        "CatalogUpdater._save",
    }
)
"""Storing the list for the next run and reporting what changed, which nobody waits for."""
BACKGROUND = frozenset(
    {
        "AuditRecord._write_soon",
        "BufferedTransport.flush",
        "BufferedTransport.write",
        "McpApp.__call__",
        "OptionalSpans.__call__",
        "CatalogUpdater.apply_decisions",
        "CatalogUpdater.apply_decisions.<locals>.work",
        "Gateway._follow",
        "Gateway._follow_others",
        "Gateway._watch_programs",
        "Gateway._watch_requests",
        "Hints.refresh",
        "Scout.read_news",
        "list_approved",
        "Metrics.watch_loop",
        "Pool._end_logged_out",
        "Pool._stop_idle",
        "Pool._wait_for_change",
        "Pool._watch_approvals",
        "Pool._watch_logins",
        "StoppableApp.__call__",
        "StoppableApp.__call__.<locals>.track",
        "_HttpGateway._end_expired",
        "_HttpGateway._watch",
        "hold_head.<locals>.send_later",
        "serve_http",
    }
)
"""What a gateway does once in a while, and the HTTP stream that carries any message to a client."""
SEARCH_MODULES = 22


class Modules:
    """Collects the modules whose functions run in any thread while it is switched on.

    Work that nobody waits for can be left out by the qualified names of the functions that do it.
    """

    def __init__(self, *, deferred: frozenset[str] = frozenset()) -> None:
        self.is_on = False
        self.names: dict[str, str] = {}
        """The modules, each with one of the functions that ran."""
        self.left_out: set[str] = set()
        self._deferred = deferred
        self._frames: dict[int, FrameType] = {}
        """The deferred work that each thread is doing."""

    def note(self, frame: FrameType, event: str, _: Any) -> None:
        if not self.is_on and not self._frames:
            return  # as for most calls; the rest takes a while
        path, name = frame.f_code.co_filename, frame.f_code.co_qualname
        thread = threading.get_ident()
        if thread in self._frames:
            if event == "return" and frame is self._frames[thread]:
                del self._frames[thread]
        elif self.is_on and event == "call" and path.startswith(f"{PACKAGE}/"):
            if name in self._deferred:
                self._frames[thread] = frame
                self.left_out.add(name)
            else:
                self.names[Path(path).relative_to(PACKAGE).as_posix()] = name

    async def wait_until_idle(self) -> None:
        self.is_on = True
        while True:
            self.names.clear()
            await asyncio.sleep(IDLE_SECONDS)
            if not self.names:
                break
        self.is_on = False


@contextmanager
def profiled(modules: Modules) -> Generator[None]:
    """Let this thread and the threads that it starts report what they run."""
    previous = sys.getprofile()
    threading.setprofile(modules.note)
    sys.setprofile(modules.note)
    try:
        yield
    finally:
        sys.setprofile(previous)
        threading.setprofile(previous)


def test_a_list_change_runs_few_modules_from_the_announcement_to_the_client():
    modules = Modules(deferred=AFTER_A_LIST_CHANGE | BACKGROUND)
    store = MemoryStore()
    with profiled(modules), served(GROWING, store=store) as gateway:
        assert gateway.known.wait(DEADLINE_SECONDS)

        async def grow() -> None:
            async with (
                asyncio.timeout(DEADLINE_SECONDS),
                Client(streamable_http_client(f"{gateway.url}/mcp")) as client,
                client.listen(tools_list_changed=True) as changes,
            ):
                await eventually(lambda: store.read("manifest", "big"))
                await modules.wait_until_idle()  # the requests above are done with
                growing = gateway.gateway.pool.request("big", "tools/call", GROW)
                answer = asyncio.run_coroutine_threadsafe(growing, gateway.loop)
                await asyncio.wrap_future(answer)
                modules.is_on = True
                assert await anext(aiter(changes)) == ToolsListChanged()
                modules.is_on = False

        asyncio.run(grow())

    assert "search/index.py" in modules.names
    assert "gateway/subscriptions.py" in modules.names
    assert len(modules.names) <= LIST_CHANGE_MODULES, "\n".join(map(str, modules.names.items()))


def test_one_search_passes_at_most_22_modules():
    modules = Modules()
    session = Scout(load_demo_catalog()).session("s")
    request = {"queries": ["open a pull request"]}

    async def search() -> None:
        for _ in range(3):  # until everything that a search remembers is there
            await session.handle("tool_search", request)
        modules.is_on = True
        await session.handle("tool_search", request)
        modules.is_on = False

    with profiled(modules):
        asyncio.run(search())

    assert len(modules.names) <= SEARCH_MODULES, "\n".join(map(str, modules.names.items()))


def test_one_call_over_http_passes_few_modules():
    modules = Modules(deferred=AFTER_A_CALL | BESIDE_A_CALL)
    with profiled(modules), served(TIME) as gateway:
        assert gateway.known.wait(DEADLINE_SECONDS)

        async def call() -> None:
            async with Client(streamable_http_client(f"{gateway.url}/mcp")) as client:
                warm = await client.call_tool("tool_call", CALL)
                assert not warm.is_error
                gateway.heard()  # the listeners have heard of the first call
                modules.is_on = True
                await client.call_tool("tool_call", CALL)
                gateway.heard()
                modules.is_on = False

        asyncio.run(call())

    assert "gateway/forward.py" in modules.names
    assert modules.left_out >= AFTER_A_CALL - {"BackgroundStore._drain"}  # may run even later
    assert len(modules.names) <= CALL_MODULES, "\n".join(map(str, modules.names.items()))
