"""Real servers behind a real gateway, for tests that meet it as a client does."""

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable, Coroutine, Generator, Hashable
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager, AsyncExitStack, contextmanager
from pathlib import Path
from typing import Any, TypeVar

from anyio.abc import TaskStatus
from anyio.from_thread import BlockingPortal, start_blocking_portal
from mcp.client import Client
from mcp.client.stdio import StdioServerParameters

from serving import TIME_SERVER
from toolscout.sessions.session import Session

DEADLINE_SECONDS = 120
TIME = (TIME_SERVER,)
GIT = ("-m", "mcp_server_git")
BERLIN = {"timezone": "Europe/Berlin"}


def configuration(
    folder: Path, servers: dict[str, tuple[str, ...]], *, trusted: bool = False, **gateway: Any
) -> Path:
    """Write a configuration of Python servers, and return its path."""
    lines: list[str] = []
    for name, arguments in servers.items():
        lines += [f"[servers.{name}]", f"command = {json.dumps(sys.executable)}"]
        lines += [f"args = {json.dumps(list(arguments))}"]
        lines += ["trust_effects = true"] if trusted else []
    cache = json.dumps(str(folder / "gateway.db"))
    lines += ["[gateway]", f"cache = {cache}"]
    lines += [f"{key} = {json.dumps(value)}" for key, value in gateway.items()]
    path = folder / "toolscout.toml"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def client_of(config: Path, *options: str, **settings: Any) -> AbstractAsyncContextManager[Client]:
    """Return a client of a fresh gateway process."""
    arguments = ["-m", "toolscout", "serve", "--config", str(config), "--no-daemon", *options]
    return Client(StdioServerParameters(command=sys.executable, args=arguments), **settings)


def always(session: Session) -> Callable[[object], Awaitable[Session]]:
    """Return what gives every request the same session."""

    async def find_session(context: object) -> Session:
        return session

    return find_session


def text_of(result: Any) -> str:
    """Return the text of a result."""
    return "\n".join(block.text for block in result.content if block.type == "text")


async def known(client: Client, *names: str) -> list[str]:
    """Wait until searches know some tools, and return what these searches said.

    The test's own time limit is the deadline.
    """
    queries = {"queries": [f"select:{','.join(names)}"], "detail": "names"}
    said: list[str] = []
    while True:
        result = await client.call_tool("tool_search", queries)
        said.append(text_of(result))
        is_ok = (result.meta or {}).get("toolscout/code") == "ok"
        if is_ok and "There is no tool" not in said[-1]:
            return said
        await asyncio.sleep(0.02)  # a server that starts needs the processor more


_Opened = TypeVar("_Opened")


class Keeper:
    """Opens what several tests use, and keeps it open in an event loop of its own."""

    def __init__(self, portal: BlockingPortal) -> None:
        self._portal = portal
        self._ending = asyncio.Event()
        self._opened: dict[Hashable, Any] = {}
        self._held: list[Future[None]] = []

    def open(
        self, key: Hashable, make: Callable[[], AbstractAsyncContextManager[_Opened]]
    ) -> _Opened:
        """Return what is kept under a key; the first to ask has it made."""
        if key not in self._opened:
            held, self._opened[key] = self._portal.start_task(self._hold, make)
            self._held.append(held)
        return self._opened[key]

    def run(self, conversation: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Hold a conversation with what is kept, in its event loop and within the deadline."""

        async def limited() -> None:
            async with asyncio.timeout(DEADLINE_SECONDS):
                await conversation()

        self._portal.call(limited)

    def close(self) -> None:
        """Close all that is kept, at the same time: some servers take seconds to leave."""
        self._portal.call(self._ending.set)
        for held in self._held:
            held.result(DEADLINE_SECONDS)

    async def _hold(
        self,
        make: Callable[[], AbstractAsyncContextManager[Any]],
        *,
        task_status: TaskStatus[Any],
    ) -> None:
        async with AsyncExitStack() as stack:
            async with asyncio.timeout(DEADLINE_SECONDS):
                opened = await stack.enter_async_context(make())
            task_status.started(opened)
            await self._ending.wait()


@contextmanager
def keep_open() -> Generator[Keeper]:
    """Give a keeper, for a fixture of a module; ends with everything closed."""
    with start_blocking_portal() as portal:
        keeper = Keeper(portal)
        try:
            yield keeper
        finally:
            keeper.close()
