"""Servers of which each session, or each principal, has a process of its own."""

import asyncio
import json
import sys
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx2
import mcp_types as types
import psutil
import pytest
from mcp.client import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError

from foreign import NODE
from gateway.fleet import known, text_of
from serving import DEADLINE_SECONDS, Served, eventually, served
from toolscout.config.gateway import TokenConfig
from toolscout.config.servers import ServerConfig, Share, Transport

COUNTING = Path(__file__).with_name("counting_server.py")
FILES = (
    Path(__file__).parents[2]
    / ".npm-servers/node_modules/@modelcontextprotocol/server-filesystem/dist/index.js"
)
TOKENS = {name: f"the token of {name}, which is long enough" for name in ("ann", "bob")}
BOTH = {name: TokenConfig(token=token) for name, token in TOKENS.items()}
COUNT = {"name": "counting__count"}
ROOTS = "notifications/roots/list_changed"

pytestmark = pytest.mark.timeout(300)


FILE_SERVER = ServerConfig(
    name="files",
    transport=Transport.STDIO,
    command=NODE or "node",
    args=(str(FILES),),
    share=Share.SESSION,
)


def counting(**options: Any) -> ServerConfig:
    return ServerConfig(
        name="counting",
        transport=Transport.STDIO,
        command=sys.executable,
        args=(str(COUNTING),),
        **options,
    )


@asynccontextmanager
async def connect(
    gateway: Served, name: str = "", *, mode: str = "legacy", **options: Any
) -> AsyncGenerator[Client]:
    headers = {"Authorization": f"Bearer {TOKENS[name]}"} if name else {}
    async with (
        httpx2.AsyncClient(headers=headers, timeout=DEADLINE_SECONDS) as http,
        Client(
            streamable_http_client(f"{gateway.url}/mcp", http_client=http), mode=mode, **options
        ) as client,
    ):
        yield client


async def count(client: Client) -> dict[str, Any]:
    await known(client, COUNT["name"])
    return json.loads(text_of(await client.call_tool("tool_call", COUNT)))


def list_processes(script: Path = COUNTING) -> list[int]:
    """Return the running processes of a server."""
    found: list[int] = []
    for process in psutil.Process().children(recursive=True):
        try:
            words = process.cmdline()
        except psutil.Error:
            continue
        if str(script) in words and "setpriv" not in words[0]:
            found.append(process.pid)
    return sorted(found)


def run(work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    async def limited() -> None:
        async with asyncio.timeout(DEADLINE_SECONDS):
            await work()

    asyncio.run(limited())


def test_each_session_has_a_process_of_its_own_until_its_client_leaves():
    with served(counting(share="session")) as gateway:

        async def work() -> None:
            async with connect(gateway) as ann:
                async with connect(gateway) as bob:
                    counts = [await count(client) for client in (ann, bob, ann)]
                    pids = [one["pid"] for one in counts]
                    assert [one["count"] for one in counts] == [1, 1, 2]
                    assert pids[0] == pids[2] != pids[1]
                    # That which listed the tools has ended.
                    await eventually(lambda: list_processes() == sorted(set(pids)))
                    told = httpx2.get(f"{gateway.url}/status").json()["servers"][0]
                    assert (told["connections"], len(told["owners"])) == (2, 2)
                await eventually(lambda: list_processes() == [pids[0]])
                assert (await count(ann))["count"] == 3

        run(work)


def test_with_all_as_by_default_clients_share_one_process():
    with served(counting()) as gateway:

        async def work() -> None:
            async with connect(gateway) as ann, connect(gateway) as bob:
                counts = [await count(client) for client in (ann, bob, ann)]
                assert [one["count"] for one in counts] == [1, 2, 3]
                assert list_processes() == [counts[0]["pid"]]

        run(work)


def test_resources_prompts_and_completions_come_from_the_process_of_the_session():
    address = "toolscout://counting/count://pid"
    prompt = types.PromptReference(name="counting__ask")
    with served(counting(share="session")) as gateway:

        async def work() -> None:
            async with connect(gateway) as ann, connect(gateway) as bob:
                assert (await count(bob))["count"] == 1
                pid = str((await count(ann))["pid"])
                read = await ann.read_resource(address)
                got = await ann.get_prompt("counting__ask", {"name": "x"})
                completed = await ann.complete(prompt, {"name": "name", "value": ""})
                assert pid in read.model_dump_json()
                assert pid in got.model_dump_json()
                assert completed.completion.values == [pid]
                params = types.SubscribeRequestParams(uri=address)
                request = types.SubscribeRequest(params=params)
                with pytest.raises(MCPError, match="Read the resource again instead"):
                    await ann.session.send_request(request, types.EmptyResult)

        run(work)


def test_a_process_that_crashes_is_started_again_for_its_session_only():
    with served(counting(share="session")) as gateway:

        async def work() -> None:
            async with connect(gateway) as ann, connect(gateway) as bob:
                before = [await count(client) for client in (ann, bob)]
                crashed = await ann.call_tool("tool_call", {"name": "counting__crash"})
                assert "the server is gone" in text_of(crashed)
                after = [await count(client) for client in (ann, bob)]
                assert [one["count"] for one in after] == [1, 2]
                assert after[0]["pid"] != before[0]["pid"]
                assert after[1]["pid"] == before[1]["pid"]

        run(work)


def test_the_process_that_was_idle_longest_makes_room_but_none_in_use():
    with served(counting(share="session", max_connections=1)) as gateway:

        async def work() -> None:
            async with connect(gateway) as ann, connect(gateway) as bob:
                assert [(await count(client))["count"] for client in (ann, bob, ann)] == [1, 1, 1]
                held = ann.call_tool("tool_call", {"name": "counting__hold"})
                holding = asyncio.create_task(held)
                server = gateway.gateway.pool.servers["counting"]
                await eventually(lambda: any(state.running for state in server.all_states))
                refused = await bob.call_tool("tool_call", COUNT)
                assert "is busy for as many sessions" in text_of(refused)
                assert len(list_processes()) == 1
                holding.cancel()

        run(work)


def test_an_idle_process_is_stopped_and_the_next_call_starts_another():
    with served(counting(share="session", idle_stop=0.1)) as gateway:

        async def work() -> None:
            async with connect(gateway) as ann:
                first = await count(ann)
                await eventually(lambda: not list_processes())
                second = await count(ann)
                assert (first["count"], second["count"]) == (1, 1)
                assert first["pid"] != second["pid"]

        run(work)


def test_a_stopped_server_ends_all_processes_and_a_restart_begins_anew():
    with served(counting(share="session"), console=True) as gateway:

        def act(action: str) -> dict[str, Any]:
            address = f"{gateway.url}/api/servers/counting/{action}"
            headers = {"Origin": gateway.url}
            return httpx2.post(address, headers=headers, timeout=DEADLINE_SECONDS).json()

        async def work() -> None:
            async with connect(gateway) as ann:
                assert (await count(ann))["count"] == 1
                assert (await asyncio.to_thread(act, "stop"))["connections"] == 0
                refused = await ann.call_tool("tool_call", COUNT)
                assert refused.is_error
                assert list_processes() == []
                await asyncio.to_thread(act, "start")
                assert (await count(ann))["count"] == 1

        run(work)


def test_the_sessions_of_one_token_share_a_process_and_a_removed_token_loses_it():
    with served(counting(share="principal"), tokens=BOTH) as gateway:

        async def work() -> None:
            async with (
                connect(gateway, "ann") as ann,
                connect(gateway, "ann") as ann_again,
                connect(gateway, "bob", mode="auto") as bob,
            ):
                counts = [await count(client) for client in (ann, ann_again, bob)]
                assert [one["count"] for one in counts] == [1, 2, 1]
                pid = counts[2]["pid"]
                assert pid != counts[0]["pid"]
                pool = gateway.gateway.pool
                assert [owner.label for owner in pool.servers["counting"].owned] == ["ann", "bob"]
                config = gateway.gateway.config
                left = {"bob": BOTH["bob"]}
                fewer = replace(config, gateway=replace(config.gateway, tokens=left))
                reloading = gateway.gateway.reload(fewer)
                done = asyncio.run_coroutine_threadsafe(reloading, gateway.loop)
                await asyncio.wrap_future(done)
                await eventually(lambda: counts[0]["pid"] not in list_processes())
                assert (await count(bob)) == counts[2] | {"count": 2}

        run(work)


def roots_of(*folders: Path) -> Callable[[Any], Coroutine[Any, Any, types.ListRootsResult]]:
    async def list_roots(context: Any) -> types.ListRootsResult:
        roots = [{"uri": folder.as_uri()} for folder in folders]
        return types.ListRootsResult.model_validate({"roots": roots})

    return list_roots


@pytest.mark.skipif(not NODE or not FILES.exists(), reason="needs Node and its servers")
@pytest.mark.parametrize("mode", ["legacy", "auto"])
def test_the_file_server_shows_each_client_its_own_folder(mode: str, tmp_path: Path):
    folders = {name: tmp_path / name for name in TOKENS}
    for folder in folders.values():
        folder.mkdir()
        (folder / "note.txt").write_text(f"note of {folder.name}")

    async def read(client: Client, name: str) -> str:
        asked = {"path": str(folders[name] / "note.txt")}
        request = {"name": "files__read_text_file", "arguments": asked}
        return text_of(await client.call_tool("tool_call", request))

    with served(FILE_SERVER, tokens=BOTH) as gateway:

        async def work() -> None:
            async with (
                connect(
                    gateway, "ann", mode=mode, list_roots_callback=roots_of(folders["ann"])
                ) as ann,
                connect(
                    gateway, "bob", mode=mode, list_roots_callback=roots_of(folders["bob"])
                ) as bob,
            ):
                await known(ann, "files__read_text_file")
                # Nothing tells when the server has looked at the folders.
                while await read(ann, "ann") != "note of ann":  # noqa: ASYNC110
                    await asyncio.sleep(0.02)
                while await read(bob, "bob") != "note of bob":  # noqa: ASYNC110
                    await asyncio.sleep(0.02)
                assert "outside allowed directories" in await read(ann, "bob")
                assert "outside allowed directories" in await read(bob, "ann")
                assert len(list_processes(FILES)) == 2

        run(work)


@pytest.mark.skipif(not NODE or not FILES.exists(), reason="needs Node and its servers")
def test_changed_roots_reach_the_process_of_their_session_only(tmp_path: Path):
    old, new = tmp_path / "old", tmp_path / "new"
    old.mkdir()
    new.mkdir()
    shown = [old]

    async def list_roots(context: Any) -> types.ListRootsResult:
        return await roots_of(*shown)(context)

    async def list_folders(client: Client) -> str:
        request = {"name": "files__list_allowed_directories"}
        return text_of(await client.call_tool("tool_call", request))

    with served(FILE_SERVER) as gateway:

        async def work() -> None:
            async with (
                connect(gateway, list_roots_callback=list_roots) as ann,
                connect(gateway, list_roots_callback=roots_of(old)) as bob,
            ):
                await known(ann, "files__list_allowed_directories")
                for client in (ann, bob):
                    while str(old) not in await list_folders(client):  # noqa: ASYNC110  # as above
                        await asyncio.sleep(0.02)
                shown[:] = [new]
                await ann.session.send_notification(types.RootsListChangedNotification())
                while str(new) not in await list_folders(ann):  # noqa: ASYNC110  # nothing tells
                    await asyncio.sleep(0.02)
                assert str(old) in await list_folders(bob)

        run(work)
