"""Clients that nobody here wrote, before a running gateway with real servers behind it.

FastMCP's client has a file of its own, because it lives in another environment.
"""

import asyncio
import json
import shutil
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx2
import pytest
from mcp.client import Client

from foreign import NODE, NPM, OLDER, SECONDS, inspect, needs_inspector, needs_older, run_older
from gateway.fleet import Keeper, client_of, keep_open, known, text_of
from gateway.processes import PAUSE_SECONDS, Running, fill_cache
from toolscout.schemas import Json, is_object

EVERYTHING = NPM / "@modelcontextprotocol/server-everything/dist/index.js"
META = ["tool_search", "tool_describe", "tool_call"]
NOW = {"name": "time__get_current_time", "arguments": {"timezone": "Europe/Berlin"}}

OLDER_CLIENT = """
import asyncio, json, sys
from contextlib import AsyncExitStack
from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamablehttp_client

async def main(url, *words):
    async with AsyncExitStack() as stack:
        if url:
            streams = (await stack.enter_async_context(streamablehttp_client(url)))[:2]
        else:
            asked = StdioServerParameters(command=words[0], args=list(words[1:]))
            streams = await stack.enter_async_context(stdio_client(asked))
        session = await stack.enter_async_context(ClientSession(*streams))
        hello = await session.initialize()
        async def call(name, arguments):
            return (await session.call_tool(name, arguments)).model_dump(mode="json")
        found, query = None, {"queries": ["select:time__get_current_time"]}
        while "time__get_current_time(" not in str(found):
            found = await call("tool_search", query)
            await asyncio.sleep(0.02)
        print(json.dumps({
            "version": hello.protocolVersion,
            "tools": [tool.name for tool in (await session.list_tools()).tools],
            "called": await call("tool_call", json.loads(NOW)),
            "wrong": await call("tool_call", {"name": "time__get_current_tim", "arguments": {}}),
            "prompts": [prompt.name for prompt in (await session.list_prompts()).prompts],
        }))

asyncio.run(main(*sys.argv[1:]))
"""


def written(folder: Path, *, gateway: Json | None = None, **servers: Json) -> Path:
    """Write a configuration of any servers, and return its path."""
    rows = {name: {"command": sys.executable, **row} for name, row in servers.items()}
    settings: Json = {"cache": str(folder / "gateway.db"), **(gateway or {})}
    lines = [f"[servers.{name}]\n{table(row)}" for name, row in rows.items()]
    path = folder / "toolscout.toml"
    path.write_text("\n".join([*lines, f"[gateway]\n{table(settings)}"]), encoding="utf-8")
    return path


def table(row: Json) -> str:
    return "".join(f"{key} = {toml(value)}\n" for key, value in row.items())


def toml(value: Any) -> str:
    if not is_object(value):
        return json.dumps(value)
    return "{" + ", ".join(f"{json.dumps(key)} = {toml(v)}" for key, v in value.items()) + "}"


def mixed(folder: Path, **gateway: Any) -> Path:
    """A server of each protocol era."""
    everything = {"command": NODE, "args": [str(EVERYTHING)]}
    clock = {"args": ["-m", "mcp_server_time"]}
    return written(folder, gateway=gateway, time=clock, everything=everything)


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache of both servers, so that a gateway knows them from its start."""
    return fill_cache(mixed(tmp_path_factory.mktemp("cache")))


@pytest.fixture(scope="module")
def gateway(cache: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A gateway over HTTP; each test has a session of its own with it."""
    with Running(mixed(warmed(tmp_path_factory.mktemp("gateway"), cache))) as running:
        yield running


def warmed(folder: Path, cache: Path) -> Path:
    """Copy a cache to where the gateway of a folder looks for it, and return the folder."""
    shutil.copy(cache, folder / "gateway.db")
    return folder


def serve(config: Path) -> list[str]:
    """Return the words that start a gateway on stdin and stdout."""
    return [sys.executable, "-m", "toolscout", "serve", "--config", str(config), "--no-daemon"]


@pytest.fixture(params=["stdio", "http"])
def words(request: pytest.FixtureRequest, tmp_path: Path) -> list[str]:
    """The words with which a client reaches a gateway."""
    if request.param == "stdio":
        cache: Path = request.getfixturevalue("cache")
        return serve(mixed(warmed(tmp_path, cache)))
    running: Running = request.getfixturevalue("gateway")
    return [f"{running.url}/mcp"]


# The MCP Inspector


@needs_inspector
@pytest.mark.requirement("R71")
def test_the_inspector_lists_calls_and_sees_resources_and_prompts(tmp_path: Path, words: list[str]):
    """R71"""
    call = ("--tool-name", "tool_call", "--tool-arg", f"name={NOW['name']}")
    arguments = ("--tool-arg", f"arguments={json.dumps(NOW['arguments'])}")

    def ask(line: Sequence[str]) -> Any:
        method, *options = line
        return inspect(words, tmp_path, method, *options)

    with ThreadPoolExecutor(4) as at_once:
        asked = [["tools/list"], ["tools/call", *call, *arguments]]
        lists = [["resources/list"], ["prompts/list"]]
        tools, called, resources, prompts = at_once.map(ask, asked + lists)

    assert [tool["name"] for tool in tools["tools"]] == META
    assert json.loads(called["content"][0]["text"])["timezone"] == "Europe/Berlin"
    assert resources["resources"]
    assert all(row["uri"].startswith("toolscout://everything/") for row in resources["resources"])
    assert "everything__args-prompt" in [prompt["name"] for prompt in prompts["prompts"]]


@needs_inspector
def test_the_inspector_calls_a_tool_by_its_own_name_where_all_are_listed(
    tmp_path: Path, cache: Path
):
    config = mixed(warmed(tmp_path, cache), mode="direct")
    sum_of = ("--tool-name", "everything__get-sum", "--tool-arg", "a=2", "--tool-arg", "b=3")

    called = inspect(serve(config), tmp_path, "tools/call", *sum_of)

    assert "5" in called["content"][0]["text"]


# The client of mcp 1.30


@needs_older
@needs_inspector
@pytest.mark.requirement("R71")
def test_a_client_of_the_first_sdk_finds_and_calls(words: list[str]):
    """R71"""
    reached = words if len(words) == 1 else ["", *words]

    told = run_older(f"NOW = {json.dumps(NOW)!r}\n{OLDER_CLIENT}", *reached)

    assert told["version"] == "2025-11-25"
    assert told["tools"] == META
    assert not told["called"]["isError"]
    assert json.loads(told["called"]["content"][0]["text"])["timezone"] == "Europe/Berlin"
    assert told["wrong"]["isError"]
    assert "time__get_current_time" in told["wrong"]["content"][0]["text"]
    assert "everything__args-prompt" in told["prompts"]


# A client that is older than both, by hand


def post(url: str, session: dict[str, str], method: str, **params: Any) -> httpx2.Response:
    body: Json = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    if method.startswith("notifications/"):
        del body["id"]
    return httpx2.post(f"{url}/mcp", json=body, headers=session, timeout=SECONDS)


@needs_inspector
def test_a_client_is_notified_of_a_resource_after_the_gateway_was_killed(gateway: Running):
    session = {"Accept": "application/json, text/event-stream"}
    hello: Json = {"capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
    resource = "toolscout://everything/demo://resource/static/document/features.md"
    toggle: Json = {"name": "everything__toggle-subscriber-updates", "arguments": {}}

    opened = post(gateway.url, session, "initialize", protocolVersion="2025-11-25", **hello)
    session["Mcp-Session-Id"] = opened.headers["mcp-session-id"]
    post(gateway.url, session, "notifications/initialized")
    subscribed = post(gateway.url, session, "resources/subscribe", uri=resource)
    gateway.restart()
    stream = httpx2.stream("GET", f"{gateway.url}/mcp", headers=session, timeout=SECONDS)
    with stream as heard:
        post(gateway.url, session, "tools/call", name="tool_call", arguments=toggle)
        told = next(line for line in heard.iter_lines() if "resources/updated" in line)

    assert "error" not in subscribed.text
    assert json.loads(told.removeprefix("data: "))["params"]["uri"] == resource


# A server of mcp 1.30 behind the gateway

EFFECTS = {"read_query": "read", "list_tables": "read", "create_table": "write"}


def sqlite(folder: Path) -> Path:
    row = {
        "command": str(OLDER.with_name("mcp-server-sqlite")),
        "args": ["--db-path", str(folder / "notes.db")],
        "effects": {**EFFECTS, "write_query": "write"},
    }
    return written(folder, gateway={"split_calls": True}, sqlite=row)


@pytest.fixture(scope="module")
def keeper() -> Iterator[Keeper]:
    with keep_open() as keeping:
        yield keeping


@pytest.fixture(scope="module")
def database(keeper: Keeper, tmp_path_factory: pytest.TempPathFactory) -> Client:
    """A client of a gateway before a database."""
    folder = tmp_path_factory.mktemp("sqlite")
    return keeper.open("sqlite", lambda: client_of(sqlite(folder)))


def run_sql(tool: str, query: str) -> Json:
    return {"name": f"sqlite__{tool}", "arguments": {"query": query}}


@needs_older
def test_a_table_is_found_made_written_and_read_through_an_older_server(
    keeper: Keeper, database: Client
):
    async def work() -> None:
        await known(database, "sqlite__create_table", "sqlite__read_query")
        steps = [
            ("tool_search", {"queries": ["make a new table in the database"]}),
            ("tool_write", run_sql("create_table", "CREATE TABLE notes (text TEXT)")),
            ("tool_write", run_sql("write_query", "INSERT INTO notes VALUES ('remember')")),
            ("tool_read", run_sql("read_query", "SELECT text FROM notes")),
        ]
        told = [text_of(await database.call_tool(name, given)) for name, given in steps]
        found, made, written_rows, read = told

        assert "sqlite__create_table" in found
        assert "success" in made.lower()
        assert "1" in written_rows
        assert "remember" in read

    keeper.run(work)


@needs_older
def test_each_variant_runs_only_what_has_its_effect(keeper: Keeper, database: Client):
    async def work() -> None:
        await known(database, "sqlite__write_query", "sqlite__append_insight")
        note: Json = {"name": "sqlite__append_insight", "arguments": {"insight": "x"}}
        steps: list[tuple[str, Json]] = [
            ("tool_read", run_sql("create_table", "CREATE TABLE never (a TEXT)")),
            ("tool_write", run_sql("read_query", "SELECT 1")),
            ("tool_read", note),
            ("tool_read", {"name": "sqlite__list_tables", "arguments": {}}),
        ]
        told = [await database.call_tool(name, given) for name, given in steps]
        made, read, insight, tables = told

        assert made.is_error
        assert text_of(made).endswith("Call it with tool_write.")
        assert text_of(read).endswith("Call it with tool_read.")
        assert text_of(insight).endswith("Call it with tool_destroy.")  # its effect is not told
        assert not tables.is_error
        assert "never" not in text_of(tables)

    keeper.run(work)


UNDER_MCP_2 = """
import sys
sys.path.append(sys.argv.pop(1))
from mcp_server_sqlite import main
main()
"""


@needs_older
def test_a_server_that_dies_at_its_start_is_reported_and_delays_nobody(tmp_path: Path):
    """The same server with mcp 2, as its own metadata allows."""
    packages = next(OLDER.parents[1].glob("lib/python*/site-packages"))
    broken = {"args": ["-c", UNDER_MCP_2, str(packages), "--db-path", str(tmp_path / "never.db")]}
    config = written(tmp_path, sqlite=broken, time={"args": ["-m", "mcp_server_time"]})

    async def work() -> tuple[str, str, list[str]]:
        async with client_of(config) as client:
            said = await known(client, "time__get_current_time")
            called = text_of(await client.call_tool("tool_call", NOW))
            missed = run_sql("read_query", "SELECT 1")
            failed = text_of(await client.call_tool("tool_call", missed))
            while "starting" in failed:
                await asyncio.sleep(PAUSE_SECONDS)
                failed = text_of(await client.call_tool("tool_call", missed))
            found = await client.call_tool("tool_search", {"queries": ["read a database table"]})
            return called, failed, [*said, text_of(found)]

    called, failed, said = asyncio.run(work())

    assert json.loads(called)["timezone"] == "Europe/Berlin"
    assert failed.startswith("Not called:")
    assert "sqlite" in failed
    # A session reads once that a server failed: in whichever search came first after that.
    assert len([text for text in said if "Failed to connect: sqlite" in text]) == 1
