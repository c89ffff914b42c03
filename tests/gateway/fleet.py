"""Real servers behind a real gateway, for tests that meet it as a client does."""

import json
import sys
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

from mcp.client import Client
from mcp.client.stdio import StdioServerParameters

from toolscout.sessions.session import Session

DEADLINE_SECONDS = 120
TIME = ("-m", "mcp_server_time")
GIT = ("-m", "mcp_server_git")
BERLIN = {"timezone": "Europe/Berlin"}


def configuration(folder: Path, servers: dict[str, tuple[str, ...]], **gateway: Any) -> Path:
    """Write a configuration of Python servers, and return its path."""
    lines: list[str] = []
    for name, arguments in servers.items():
        lines += [f"[servers.{name}]", f"command = {json.dumps(sys.executable)}"]
        lines += [f"args = {json.dumps(list(arguments))}"]
    cache = json.dumps(str(folder / "gateway.db"))
    lines += ["[gateway]", f"cache = {cache}"]
    lines += [f"{key} = {json.dumps(value)}" for key, value in gateway.items()]
    path = folder / "toolscout.toml"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def client_of(config: Path, *options: str, **settings: Any) -> AbstractAsyncContextManager[Client]:
    """Return a client of a fresh gateway process."""
    arguments = ["-m", "toolscout", "serve", "--config", str(config), *options]
    return Client(StdioServerParameters(command=sys.executable, args=arguments), **settings)


def always(session: Session) -> Callable[[object], Awaitable[Session]]:
    """Return what gives every request the same session."""

    async def find_session(context: object) -> Session:
        return session

    return find_session


def text_of(result: Any) -> str:
    """Return the text of a result."""
    return "\n".join(block.text for block in result.content if block.type == "text")


async def known(client: Client, *names: str) -> None:
    """Wait until searches know some tools; the test's own time limit is the deadline."""
    queries = {"queries": [f"select:{','.join(names)}"], "detail": "names"}
    while True:
        result = await client.call_tool("tool_search", queries)
        is_ok = (result.meta or {}).get("toolscout/code") == "ok"
        if is_ok and "There is no tool" not in text_of(result):
            return
