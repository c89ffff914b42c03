"""mcp 1.x: its objects are read, and its client works with a gateway that runs on mcp 2.

Also here, because it needs a client and no SDK: the configurations of docs/adapters are tried.
"""

import asyncio
import json
import os
import re
import subprocess
import tomllib
from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any, cast

import pytest
from mcp import ClientSession, StdioServerParameters, types
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client

from adapters.gateways import FIND, MAIN_PYTHON, META, REFUND, REFUNDED, configured, serving, words
from adapters.tables import ROOT
from toolscout import Effect, Tool

Json = dict[str, Any]
PAGE = ROOT / "docs" / "adapters" / "gateway_clients.md"
_BLOCK = re.compile(r"```(json|toml)\n(.*?)```", re.DOTALL)


@asynccontextmanager
async def over_stdio(config: Path) -> AsyncGenerator[ClientSession]:
    asked = StdioServerParameters(command=str(MAIN_PYTHON), args=words(config))
    async with stdio_client(asked) as streams, ClientSession(*streams) as session:
        yield session


@asynccontextmanager
async def over_http(config: Path) -> AsyncGenerator[ClientSession]:
    with serving(config) as url:
        async with (
            streamable_http_client(url) as (read, write, _),
            ClientSession(read, write) as session,
        ):
            yield session


def text_of(result: types.CallToolResult) -> str:
    return "".join(block.text for block in result.content if isinstance(block, types.TextContent))


async def errand(opened: AbstractAsyncContextManager[ClientSession]) -> tuple[list[str], str]:
    """Find a tool and call it; return what is listed, and the result."""
    async with opened as session:
        await session.initialize()
        names = [tool.name for tool in (await session.list_tools()).tools]
        # The server behind is still starting; the test's own time limit is the deadline.
        while "order*" not in text_of(await session.call_tool("tool_search", FIND)):
            pass
        return names, text_of(await session.call_tool("tool_call", REFUND))


@pytest.mark.requirement("R71")
@pytest.mark.parametrize("opened", [over_stdio, over_http])
def test_a_client_of_mcp_1_finds_and_calls_through_the_gateway(tmp_path: Path, opened: Any):
    """R71"""
    names, result = asyncio.run(errand(opened(configured(tmp_path))))

    assert names == META
    assert result == REFUNDED


def test_a_tool_as_mcp_1_has_it_is_read_with_its_schema_and_annotations():
    schema: Json = {"type": "object", "properties": {"order": {"type": "string"}}}
    listed = types.Tool(
        name="refund_order",
        title="Refund",
        description="Pay the money back.",
        inputSchema=schema,
        outputSchema={"type": "object"},
        annotations=types.ToolAnnotations(destructiveHint=True, readOnlyHint=False),
        _meta={"anthropic/alwaysLoad": True},
    )
    tool = Tool.from_mcp(listed, "shop")

    assert (tool.name, tool.title, tool.description) == (
        "shop__refund_order",
        "Refund",
        "Pay the money back.",
    )
    assert (tool.input_schema, tool.output_schema) == (schema, {"type": "object"})
    assert (tool.effect, tool.always_load) == (Effect.DESTRUCTIVE, True)


def test_what_a_listing_of_mcp_1_has_is_what_its_json_has():
    listed = types.Tool(name="count", inputSchema={"type": "object"})

    row = listed.model_dump(mode="json", by_alias=True, exclude_none=True)
    assert Tool.from_mcp(listed) == Tool.from_mcp(row)


def blocks() -> list[Json]:
    """Return the configurations on the page, each as what is under a server's name."""
    read: dict[str, Any] = {"json": json.loads, "toml": tomllib.loads}
    blocks = _BLOCK.findall(PAGE.read_text(encoding="utf-8"))
    return [found for kind, text in blocks for found in entries(read[kind](text))]


def entries(value: object) -> list[Json]:
    """Return the objects that tell how a server is started or reached, at any depth."""
    if not isinstance(value, dict):
        return []
    members = cast("Json", value)
    if "command" in members or "url" in members:
        return [members]
    return [found for inner in members.values() for found in entries(inner)]


def test_every_configuration_on_the_page_starts_or_reaches_a_gateway(tmp_path: Path):
    folder = tmp_path / "toolscout"
    folder.mkdir()
    config = configured(folder)
    started = [entry for entry in blocks() if "command" in entry]
    reached = [entry for entry in blocks() if "url" in entry]

    assert len(started) >= 4
    try:
        for entry in {str(entry["args"]): entry for entry in started}.values():
            assert asyncio.run(errand(connect(entry, config))) == (META, REFUNDED)
    finally:
        command = [str(MAIN_PYTHON), "-m", "toolscout", "stop", "--all"]
        subprocess.run(command, env=environment(config), check=True)
    with serving(config) as url:
        assert {entry["url"].rpartition("/")[2] for entry in reached} == {url.rpartition("/")[2]}


@asynccontextmanager
async def connect(entry: Json, config: Path) -> AsyncGenerator[ClientSession]:
    """Start what the page says, with the command on the path and the file where the user's is."""
    given = [str(config) if word == "/path/to/toolscout.toml" else word for word in entry["args"]]
    asked = StdioServerParameters(
        command=entry["command"], args=given, env=environment(config), cwd=config.parent
    )
    async with stdio_client(asked) as streams, ClientSession(*streams) as session:
        yield session


def environment(config: Path) -> dict[str, str]:
    """Return the variables of a user whose configuration this is."""
    folder = str(config.parent.parent)
    path = f"{MAIN_PYTHON.parent}{os.pathsep}{os.environ['PATH']}"
    return {**os.environ, "PATH": path, "HOME": folder, "XDG_CONFIG_HOME": folder}
