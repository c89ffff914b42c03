"""The first ten minutes: a person with thirteen servers in five clients gets them working.

Real servers are installed with `npx` and `uvx` into empty caches, from registries behind a
certificate that only variables vouch for. `make test-first-run` runs this; it takes minutes and
is skipped where the registries of pip and npm cannot be reached. With `TOOLSCOUT_QUICKSTART`, the
transcript goes into the page of that name.
"""

import asyncio
import json
import os
import re
import shutil
import ssl
import subprocess
import sys
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import httpx2
import pytest
from mcp.client import Client
from mcp.client.stdio import StdioServerParameters

from first_run.newcomer import BROKEN, CLIENTS, SERVERS, CommandResult, Newcomer, make_newcomer
from first_run.quickstart import update_page
from first_run.registry import Registry, find_index, find_npm, serve_registry
from serving import eventually

REQUESTS = Path(__file__).parents[1] / "quality/everyday.jsonl"
WORKING = sorted(set(SERVERS) - {BROKEN})
LEAST_FIRST = 20
LEAST_IN_FIVE = 26
READY_SECONDS = 1_500
LOOK_SECONDS = 0.2
STARTED_TOGETHER = 3

pytestmark = pytest.mark.timeout(3_600)  # a busy machine may be five times slower


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Registry]:
    for program in ("git", "node", "npx"):
        if shutil.which(program) is None:
            pytest.skip(f"needs {program}")
    index = find_index()
    npm = find_npm()
    if not index or not npm:
        pytest.skip("pip or npm has no registry")
    with serve_registry(tmp_path_factory.mktemp("registry"), index=index, npm=npm) as running:
        trusted = ssl.create_default_context(cafile=running.authority)
        with httpx2.Client(verify=trusted, timeout=60) as client:
            for path in ("index/mcp-server-time/", "npm/@modelcontextprotocol%2fserver-memory"):
                try:
                    is_there = client.get(f"{running.url}/{path}").is_success
                except httpx2.HTTPError:
                    is_there = False
                if not is_there:
                    pytest.skip("the registry of pip or npm cannot be reached")
        yield running


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstRun:
    """What a newcomer did and saw, in this order."""

    newcomer: Newcomer
    init: CommandResult
    doctor: CommandResult
    tested: CommandResult
    listed: Any
    """What a client of `toolscout serve` gets for `tools/list`."""
    found: str
    """The reply to the first search."""
    called: str
    """The reply to the first call."""


@pytest.fixture(scope="module")
def first_run(tmp_path_factory: pytest.TempPathFactory, registry: Registry) -> Iterator[FirstRun]:
    newcomer = make_newcomer(tmp_path_factory.mktemp("ada") / "home", registry)
    init = newcomer.run("toolscout", "init", "--yes")
    doctor = newcomer.run("toolscout", "doctor")
    tested = newcomer.run("toolscout", "servers", "test")

    async def use() -> tuple[Any, str, str]:
        # As Cursor starts it now.
        entry = json.loads(newcomer.list_files()["Cursor"].read_text())["mcpServers"]["toolscout"]
        async with start(newcomer, entry["command"], *entry["args"]) as client:
            listed = await client.list_tools()
            query = {"queries": ["what time is it in Tokyo"]}
            found = text_of(await client.call_tool("tool_search", query))
            call = {"name": "time__get_current_time", "arguments": {"timezone": "Asia/Tokyo"}}
            return listed, found, text_of(await client.call_tool("tool_call", call))

    listed, found, called = asyncio.run(use())
    yield FirstRun(
        newcomer=newcomer,
        init=init,
        doctor=doctor,
        tested=tested,
        listed=listed,
        found=found,
        called=called,
    )
    # The client is gone, and the gateway that it shared waits for the next one.
    assert "Stopped process" in newcomer.run("toolscout", "stop").text


def test_init_finds_every_server_and_moves_it_behind_toolscout(first_run: FirstRun):
    assert first_run.init.code == 0
    assert f"This puts {len(SERVERS)} servers into" in first_run.init.text
    for program, path in first_run.newcomer.list_files().items():
        text = path.read_text()

        assert "toolscout" in text
        assert not any(f'"{SERVERS[name][0]}"' in text for name in CLIENTS[program])


def test_init_gets_every_server_that_works_to_answer(first_run: FirstRun):
    assert answered(first_run.init) == WORKING
    assert f"{len(WORKING)} of {len(SERVERS)} servers answered. " in first_run.init.text


def test_init_says_what_is_wrong_with_the_one_that_does_not_and_what_to_do(first_run: FirstRun):
    assert re.search(
        rf"^{BROKEN} +failed .*older version of the MCP SDK", first_run.init.text, re.M
    )
    assert f"`toolscout servers test {BROKEN}`" in first_run.init.text


def test_doctor_finds_nothing_to_repair(first_run: FirstRun):
    assert first_run.doctor.code == 0
    assert " 0 failed." in first_run.doctor.text


def test_testing_the_servers_again_gives_the_same(first_run: FirstRun):
    assert first_run.tested.code == 1
    assert answered(first_run.tested) == WORKING


def test_a_client_sees_three_tools_that_name_every_server(first_run: FirstRun):
    names = [tool.name for tool in first_run.listed.tools]
    listing = first_run.listed.tools[0].description

    assert names == ["tool_search", "tool_describe", "tool_call"]
    assert [name for name in WORKING if name not in listing] == []


def test_the_first_search_finds_a_tool_and_the_first_call_runs_it(first_run: FirstRun):
    assert "time__get_current_time" in first_run.found
    assert "Asia/Tokyo" in first_run.called


def test_nothing_was_killed_while_it_was_installing(first_run: FirstRun, registry: Registry):
    """Downloads were complete, and every server starts again from its cache without a network."""
    offline = {"npm_config_offline": "true", "UV_OFFLINE": "1"}
    newcomer = replace(first_run.newcomer, env={**first_run.newcomer.env, **offline})
    gate = asyncio.Semaphore(STARTED_TOGETHER)

    async def count_tools(name: str) -> int:
        async with gate, start(newcomer, *newcomer.find_words(name)) as client:
            return len((await client.list_tools()).tools)

    async def count_all() -> list[int]:
        return await asyncio.gather(*map(count_tools, WORKING))

    counts = dict(zip(WORKING, asyncio.run(count_all()), strict=True))
    assert [name for name, count in counts.items() if not count] == []
    assert registry.broken == []


def test_undo_gives_every_client_its_servers_back(first_run: FirstRun, tmp_path: Path):
    home = tmp_path / "home"
    newcomer = replace(first_run.newcomer, env={**first_run.newcomer.env, "HOME": str(home)})
    shutil.copytree(first_run.newcomer.home, home, ignore=leave_caches)

    undone = newcomer.run("toolscout", "init", "--undo", "--yes")

    assert undone.code == 0
    for path in replace(newcomer, home=home).list_files().values():
        assert "toolscout" not in path.read_text().replace(str(tmp_path), "")


@dataclass(frozen=True, slots=True, kw_only=True)
class ColdStart:
    """A gateway that a client started before anything was installed, and what it found."""

    servers: dict[str, tuple[bool, int, int]]
    """Whether a server has tools, its starts and its failures, by name."""
    ranks: list[int]
    """The place of the first tool that fits, for each request; 0 if there is none."""
    lines: list[str]
    """The same with the request and its hits, to read."""


@pytest.fixture(scope="module")
def cold_start(tmp_path_factory: pytest.TempPathFactory, registry: Registry) -> ColdStart:
    newcomer = make_newcomer(tmp_path_factory.mktemp("ben") / "home", registry)
    newcomer.run("toolscout", "init", "--yes", "--no-test")
    requests = [json.loads(line) for line in REQUESTS.read_text().splitlines()]

    async def search_all(url: str) -> list[list[str]]:
        await wait_for_servers(url)
        return [await search_anew(url, request["request"]) for request in requests]

    with serve_http(newcomer) as url:
        ranked = asyncio.run(search_all(url))
        status = httpx2.get(f"{url}/status").json()
    ranks: list[int] = []
    lines: list[str] = []
    for request, hits in zip(requests, ranked, strict=True):
        ranks.append(rank_of(request["tools"], hits))
        lines.append(f"{ranks[-1] or '-'}  {request['request']}: {', '.join(hits) or 'nothing'}")
    return ColdStart(
        servers={
            one["name"]: (one["tools"] > 0, one["starts"], one["failures"])
            for one in status["servers"]
        },
        ranks=ranks,
        lines=lines,
    )


def test_a_gateway_installs_everything_itself_and_kills_nothing(
    cold_start: ColdStart, registry: Registry
):
    working = {name: one for name, one in cold_start.servers.items() if name != BROKEN}

    assert working == dict.fromkeys(WORKING, (True, 1, 0))
    assert registry.broken == []


def test_what_people_ask_for_is_among_the_first_five(
    cold_start: ColdStart, capsys: pytest.CaptureFixture[str]
):
    with capsys.disabled():
        sys.stdout.write("\n".join(["", *cold_start.lines, ""]))

    assert sum(0 < rank <= 5 for rank in cold_start.ranks) >= LEAST_IN_FIVE


def test_what_people_ask_for_is_mostly_first(cold_start: ColdStart):
    assert sum(rank == 1 for rank in cold_start.ranks) >= LEAST_FIRST


def test_without_the_variables_nothing_can_be_installed_and_the_reason_is_named(
    tmp_path: Path, registry: Registry
):
    stranger = make_newcomer(tmp_path / "home", registry, knows_authority=False)
    with (stranger.home / ".npmrc").open("a") as file:
        file.write("fetch-retries=0\n")  # npm would try for a minute
    stranger.run("toolscout", "init", "--yes", "--no-test")

    tested = stranger.run("toolscout", "servers", "test", "memory", "time")

    assert tested.code == 1
    assert answered(tested) == []
    assert tested.text.count("a certificate could not be verified") == 2
    assert "NODE_EXTRA_CA_CERTS" in tested.text
    assert "SSL_CERT_FILE" in tested.text

    place = stranger.home / ".config/toolscout/toolscout.toml"
    text = place.read_text()
    for name, variable in (("memory", "NODE_EXTRA_CA_CERTS"), ("time", "SSL_CERT_FILE")):
        env = f'env = {{ {variable} = "{registry.authority}" }}'
        text = text.replace(f"[servers.{name}]\n", f"[servers.{name}]\n{env}\n")
    place.write_text(text)

    assert stranger.run("toolscout", "servers", "test", "memory", "time").code == 0


@pytest.mark.skipif("TOOLSCOUT_QUICKSTART" not in os.environ, reason="writes a page")
def test_the_page_shows_what_was_seen(first_run: FirstRun):
    shown = {
        "init": first_run.init.text,
        "doctor": first_run.doctor.text,
        "test": first_run.tested.text,
        "search": first_run.found,
        "call": first_run.called,
    }
    update_page(Path(os.environ["TOOLSCOUT_QUICKSTART"]), shown, first_run.newcomer.home)


def answered(ran: CommandResult) -> list[str]:
    """Return the servers that a command says are ok."""
    return sorted(re.findall(r"^([\w-]+) +ok  ", ran.text, re.MULTILINE))


def leave_caches(folder: str, names: list[str]) -> list[str]:
    return [name for name in names if name in (".npm", "uv", ".cache")]


def start(newcomer: Newcomer, command: str, *args: str) -> Client:
    """Return the official client of a program that a newcomer's client would start."""
    program = shutil.which(command, path=newcomer.env["PATH"]) or command
    return Client(
        StdioServerParameters(
            command=program, args=list(args), env=dict(newcomer.env), cwd=newcomer.home
        )
    )


def text_of(result: Any) -> str:
    return "\n".join(block.text for block in result.content if block.type == "text")


@contextmanager
def serve_http(newcomer: Newcomer) -> Generator[str]:
    """Run `toolscout serve --http`, and give its address."""
    log = newcomer.home / "serve.log"
    words = [sys.executable, "-m", "toolscout", "serve", "--http", "--port", "0"]
    with log.open("w") as file:
        process = subprocess.Popen(words, env=dict(newcomer.env), cwd=newcomer.home, stderr=file)
    try:
        asyncio.run(eventually(lambda: find_address(log, process)))
        yield find_address(log, process)
    finally:
        process.terminate()
        process.wait(READY_SECONDS)


def find_address(log: Path, process: "subprocess.Popen[bytes]") -> str:
    """Return the address that a gateway has logged; empty if it has not yet."""
    text = log.read_text()
    assert process.poll() is None, text
    found = re.search(r"http://127\.0\.0\.1:\d+", text)
    return found[0] if found else ""


async def wait_for_servers(url: str) -> None:
    """Return once the first start of every server has ended."""
    async with httpx2.AsyncClient(timeout=60) as client, asyncio.timeout(READY_SECONDS):
        while (await client.get(f"{url}/readyz")).json()["pending"]:  # noqa: ASYNC110  # nothing announces it
            await asyncio.sleep(LOOK_SECONDS)


async def search_anew(url: str, request: str) -> list[str]:
    """Return the names of the hits for a request, in a conversation of its own."""
    async with Client(f"{url}/mcp", mode="legacy") as client:
        result = await client.call_tool("tool_search", {"queries": [request]})
    return re.findall(r"^- ([\w.-]+?__[\w.-]+)", text_of(result), re.MULTILINE)


def rank_of(wanted: Sequence[str], hits: Sequence[str]) -> int:
    """Return the place of the first hit that is wanted; 0 if there is none."""
    return next((place for place, name in enumerate(hits, 1) if name in wanted), 0)
