"""Calls that take long become tasks for clients that support them, and stay calls for others."""

import asyncio
import json
import os
import re
import signal
import sys
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

import httpx2
import mcp_types as types
import pytest
from mcp.client import Client
from mcp.client.extension import ClaimContext, ClientExtension, ResultClaim
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError
from pydantic import TypeAdapter

from foreign import NODE, NPM, inspect, needs_inspector
from gateway.fleet import always, configuration, text_of
from gateway.processes import Running, fill_cache
from serving import DEADLINE_SECONDS, Served, eventually, served
from toolscout.config.file import Config
from toolscout.config.gateway import GatewayConfig, Rule, TokenConfig
from toolscout.config.servers import ServerConfig, Transport
from toolscout.gateway.gateway import Gateway
from toolscout.gateway.server import build_server
from toolscout.gateway.tasks import (
    KEPT_BYTES,
    KIND,
    TASKS_KEPT,
    RunningTask,
    StoredTask,
    Tasks,
    Work,
)
from toolscout.policies import Permission
from toolscout.schemas import Json
from toolscout.servers.mcp import TASKS
from toolscout.sessions.events import Called, Event
from toolscout.stores import MemoryStore
from toolscout.stores.background import BackgroundStore
from toolscout.stores.store import Store

EVERYTHING = NPM / "@modelcontextprotocol/server-everything/dist/index.js"
needs_node = pytest.mark.skipif(
    not NODE or not EVERYTHING.exists(), reason="needs Node and `make .npm-servers/.installed`"
)
pytestmark = pytest.mark.timeout(300)
ENDED = ("completed", "failed", "cancelled")
SAID = "statusMessage"
ACCEPTED = types.ElicitResult(action="accept", content={"name": "Ada"})
_RAW: TypeAdapter[Any] = TypeAdapter(dict[str, Any])


class TaskHandle(types.Result):
    result_type: Literal["task"] = "task"
    task_id: str


class Polling(ClientExtension):
    """The extension as a client has it: it asks for the result until there is one."""

    identifier = TASKS

    def __init__(self) -> None:
        self.seen: list[str] = []

    def claims(self) -> list[ResultClaim[Any]]:
        return [ResultClaim(result_type="task", model=TaskHandle, resolve=self.resolve)]

    async def resolve(self, handle: TaskHandle, context: ClaimContext) -> types.CallToolResult:
        state = await poll(context.session, handle.task_id)
        self.seen.append(state["status"])
        return types.CallToolResult.model_validate(state["result"])


async def ask(session: Any, method: str, **params: Any) -> Json:
    request = types.Request[Any, Any](method=method, params=params)
    return await session.send_request(request, _RAW)


def waits_no_longer(state: Json) -> bool:
    return state["status"] in (*ENDED, "input_required")


async def poll(
    session: Any,
    task_id: str,
    is_so: Callable[[Json], object] = lambda state: state["status"] in ENDED,
) -> Json:
    """Return the state of a task once something is so."""
    async with asyncio.timeout(DEADLINE_SECONDS):
        while not is_so(state := await ask(session, "tasks/get", taskId=task_id)):  # noqa: ASYNC110  # nothing announces it
            await asyncio.sleep(0.02)
    return state


async def start(client: Client, tool: str, **arguments: Any) -> Json:
    """Call a tool, and return the answer as it comes."""
    asked = {"name": tool, "arguments": arguments}
    return await ask(client.session, "tools/call", name="tool_call", arguments=asked)


def worker(folder: Path, era: str = "legacy", **options: Any) -> ServerConfig:
    path = str(Path(__file__).with_name("worker.py"))
    return ServerConfig(
        name="work",
        transport=Transport.STDIO,
        command=sys.executable,
        args=(path, str(folder), era),
        **options,
    )


def everything() -> ServerConfig:
    return ServerConfig(
        name="all", transport=Transport.STDIO, command=NODE, args=(str(EVERYTHING),)
    )


@asynccontextmanager
async def opened(
    server: ServerConfig, store: Store | None = None, **options: Any
) -> AsyncGenerator[Gateway]:
    """Give a gateway that knows the tools of a server, and makes tasks of calls soon."""
    given: Json = {"task_seconds": 0.05, "stop_seconds": 0.0, **options}
    gateway = GatewayConfig(**given)
    config = Config(servers=(server,), gateway=gateway)
    async with asyncio.timeout(DEADLINE_SECONDS):
        async with Gateway(config, store or MemoryStore()) as running:
            await eventually(lambda: running.scout.preview(f"server:{server.name}").hits)
            yield running


def client_of(gateway: Gateway, era: str = "auto", session: str = "ann", **settings: Any) -> Client:
    """Return a client of a session; without `extensions` it does not know of tasks."""
    found = gateway.open_session(session)
    return Client(build_server(gateway, always(found)), mode=era, **settings)


def calls(gateway: Gateway) -> list[Called]:
    """Return a list that fills with the calls of a gateway."""
    heard: list[Called] = []

    def hear(event: Event) -> None:
        if isinstance(event, Called):
            heard.append(event)

    gateway.events.subscribe(hear)
    return heard


@needs_node
@pytest.mark.parametrize("way", ["task", "plain", "legacy"])
def test_a_long_call_of_a_public_server_is_a_task_only_for_clients_with_tasks(way: str):
    arguments = {"duration": 1, "steps": 2}
    extension = Polling()
    extensions = [extension] if way == "task" else []

    async def conversation() -> None:
        async with opened(everything()) as gateway:
            heard = calls(gateway)
            era = "legacy" if way == "legacy" else "auto"
            async with client_of(gateway, era, extensions=extensions) as client:
                asked = {"name": "all__trigger-long-running-operation", "arguments": arguments}
                result = await client.call_tool("tool_call", asked)
                declared = client.server_capabilities.extensions or {}
            await eventually(lambda: heard)

        assert "Long running operation completed" in text_of(result)
        assert extension.seen == (["completed"] if way == "task" else [])
        assert (TASKS in declared) == (way != "legacy")
        assert [(event.tool, event.code) for event in heard] == [(asked["name"], "ok")]

    asyncio.run(conversation())


@needs_inspector
@needs_node
def test_the_inspector_waits_for_a_task_by_itself(tmp_path: Path):
    store = MemoryStore()
    with served(everything(), store=store, task_seconds=0.05) as running:
        assert running.known.wait(DEADLINE_SECONDS)
        called = inspect(
            [f"{running.url}/mcp"],
            tmp_path,
            "tools/call",
            *("--protocol-era", "modern", "--tool-name", "tool_call"),
            *("--tool-arg", "name=all__trigger-long-running-operation"),
            *("--tool-arg", 'arguments={"duration": 1, "steps": 2}'),
        )

    assert "Long running operation completed" in called["content"][0]["text"]
    assert len(store.keys("task")) == 1


# Tasks of servers.


@needs_node
@pytest.mark.parametrize("way", ["task", "plain", "legacy"])
def test_a_public_server_that_insists_on_tasks_can_be_called_and_can_ask(way: str):
    async def answer(context: Any, params: types.ElicitRequestParams) -> types.ElicitResult:
        return types.ElicitResult(action="accept", content={"interpretation": "snake"})

    async def conversation() -> None:
        async with opened(everything()) as gateway:
            settings: Json = {"mode": "legacy"} if way == "legacy" else {}
            extensions = [Polling()] if way == "task" else []
            session = gateway.open_session("ann")
            server = build_server(gateway, always(session))
            settings |= {"elicitation_callback": answer, "extensions": extensions}
            async with Client(server, **settings) as client:
                arguments = {"topic": "python", "ambiguous": True}
                tool = "all__simulate-research-query"
                if way != "task":
                    asked = {"name": tool, "arguments": arguments}
                    report = text_of(await client.call_tool("tool_call", asked))
                else:
                    begun = await start(client, tool, **arguments)
                    task = begun["taskId"]
                    state = await poll(client.session, task, waits_no_longer)
                    (key, question), *_ = state["inputRequests"].items()
                    said = {key: {"action": "accept", "content": {"interpretation": "snake"}}}
                    await ask(client.session, "tasks/update", taskId=task, inputResponses=said)
                    ended = await poll(client.session, task)
                    report = ended["result"]["content"][0]["text"]

                    assert begun["resultType"] == "task"
                    assert "'all' asks: The research query" in question["params"]["message"]

        assert "# Research Report: python (snake)" in report

    asyncio.run(conversation())


@pytest.mark.parametrize("era", ["auto", "legacy"])
def test_a_task_of_a_server_may_take_longer_than_a_call_may(era: str, tmp_path: Path):
    server = worker(tmp_path, "modern", call_seconds=1.0, idle_stop=0.5)
    (tmp_path / "lazy").touch()

    async def conversation() -> None:
        reported: list[str | None] = []

        async def report(progress: float, total: float | None, message: str | None) -> None:
            reported.append(message)

        async with opened(server) as gateway, client_of(gateway, era) as client:
            finish = partial((tmp_path / "cake").write_text, "baked")
            asyncio.get_running_loop().call_later(2.0, finish)
            asked = {"name": "work__job", "arguments": {"name": "cake"}}
            result = await client.call_tool("tool_call", asked, progress_callback=report)
            starts = gateway.pool.servers["work"].starts

        assert text_of(result) == "baked"
        assert starts == 1  # nobody took the server for idle
        assert reported == ["cake is in progress"]

    asyncio.run(conversation())


def test_a_server_that_restarts_may_still_have_its_task(tmp_path: Path):
    async def conversation() -> None:
        async with (
            opened(worker(tmp_path, "modern")) as gateway,
            client_of(gateway, extensions=[Polling()]) as client,
        ):
            task = (await start(client, "work__job", name="cake"))["taskId"]
            await poll(client.session, task, lambda state: state.get(SAID))
            os.kill(int((tmp_path / "pid").read_text(encoding="utf-8")), signal.SIGKILL)
            await eventually(lambda: gateway.pool.servers["work"].starts > 1)
            (tmp_path / "cake").write_text("baked", encoding="utf-8")
            ended = await poll(client.session, task)

        assert ended["result"]["content"][0]["text"] == "baked"

    asyncio.run(conversation())


@pytest.mark.parametrize("way", ["task", "plain", "legacy"])
def test_what_a_task_of_a_server_asks_reaches_the_client(way: str, tmp_path: Path):
    (tmp_path / "cake.ask").touch()

    async def answer(context: Any, params: types.ElicitRequestParams) -> types.ElicitResult:
        (tmp_path / "cake").write_text("baked", encoding="utf-8")
        return ACCEPTED

    async def conversation() -> None:
        era = "legacy" if way == "legacy" else "auto"
        extensions = [Polling()] if way == "task" else []
        async with (
            opened(worker(tmp_path, "modern")) as gateway,
            client_of(gateway, era, elicitation_callback=answer, extensions=extensions) as client,
        ):
            if way != "task":
                asked = {"name": "work__job", "arguments": {"name": "cake"}}
                said = text_of(await client.call_tool("tool_call", asked))
            else:
                task = (await start(client, "work__job", name="cake"))["taskId"]
                state = await poll(client.session, task, waits_no_longer)
                answers = {key: ACCEPTED.model_dump() for key in state["inputRequests"]}
                (tmp_path / "cake").write_text("baked", encoding="utf-8")
                await ask(client.session, "tasks/update", taskId=task, inputResponses=answers)
                said = (await poll(client.session, task))["result"]["content"][0]["text"]

        assert said == "baked"
        told = json.loads((tmp_path / "cake.answer").read_text(encoding="utf-8"))
        assert told["who"]["content"] == {"name": "Ada"}

    asyncio.run(conversation())


# What a client can do with a task.


def test_a_question_in_a_task_waits_for_an_answer(tmp_path: Path):
    async def conversation() -> None:
        async with (
            opened(worker(tmp_path)) as gateway,
            client_of(gateway, elicitation_callback=refuse, extensions=[Polling()]) as client,
        ):
            begun = await start(client, "work__wait_and_ask", name="cake")
            task = begun["taskId"]
            busy = await poll(client.session, task, lambda state: state.get(SAID))
            (tmp_path / "cake").write_text("baked for", encoding="utf-8")
            state = await poll(client.session, task, waits_no_longer)
            again = await ask(client.session, "tasks/get", taskId=task)
            answers = {key: ACCEPTED.model_dump() for key in state["inputRequests"]}
            stray = {"other": ACCEPTED.model_dump()}
            await ask(client.session, "tasks/update", taskId=task, inputResponses=stray)
            await ask(client.session, "tasks/update", taskId=task, inputResponses=answers)
            ended = await poll(client.session, task)

        assert (begun["status"], begun["resultType"]) == ("working", "task")
        assert busy[SAID] == "half of it"
        assert again["inputRequests"] == state["inputRequests"]
        assert [q["params"]["message"] for q in state["inputRequests"].values()] == [
            "The MCP server 'work' asks: Who are you?"
        ]
        assert ended["result"]["content"][0]["text"] == "baked for Ada"
        assert "inputRequests" not in ended

    asyncio.run(conversation())


async def refuse(context: Any, params: types.ElicitRequestParams) -> types.ElicitResult:
    """Stand for a client that can be asked, but is asked in the state of a task only."""
    raise AssertionError


@pytest.mark.parametrize(("era", "tool"), [("legacy", "work__wait"), ("modern", "work__job")])
def test_a_cancelled_task_is_cancelled_at_its_server(era: str, tool: str, tmp_path: Path):
    async def conversation() -> None:
        async with (
            opened(worker(tmp_path, era)) as gateway,
            client_of(gateway, extensions=[Polling()]) as client,
        ):
            task = (await start(client, tool, name="cake"))["taskId"]
            acknowledged = await ask(client.session, "tasks/cancel", taskId=task)
            state = await poll(client.session, task)
            await eventually((tmp_path / "cake.cancelled").exists)
            again = await ask(client.session, "tasks/cancel", taskId=task)

        assert state["status"] == "cancelled"
        assert "result" not in state
        assert acknowledged["resultType"] == again["resultType"] == "complete"

    asyncio.run(conversation())


def test_a_client_that_leaves_before_the_end_cancels_the_task_of_the_server(tmp_path: Path):
    async def conversation() -> None:
        async with opened(worker(tmp_path, "modern")) as gateway, client_of(gateway) as client:
            asked = {"name": "work__job", "arguments": {"name": "cake"}}
            with pytest.raises(MCPError):
                await client.call_tool("tool_call", asked, read_timeout_seconds=0.3)
            await eventually((tmp_path / "cake.cancelled").exists)

    asyncio.run(conversation())


def test_a_task_is_known_to_its_session_and_to_clients_with_tasks_only(tmp_path: Path):
    async def conversation() -> None:
        async with opened(worker(tmp_path)) as gateway:
            ann, bob = (
                client_of(gateway, session=name, extensions=[Polling()]) for name in ("ann", "bob")
            )
            other, older = client_of(gateway), client_of(gateway, "legacy")
            async with ann, bob, other, older:
                task = (await start(ann, "work__wait", name="cake"))["taskId"]
                refusals: list[int] = []
                for client, name in (
                    (bob, task),
                    (bob, f"../ann/{task}"),
                    (ann, "x"),
                    (other, task),
                    (older, task),
                ):
                    for method in ("tasks/get", "tasks/cancel", "tasks/update"):
                        with pytest.raises(MCPError) as refused:
                            await ask(client.session, method, taskId=name, inputResponses={})
                        refusals.append(refused.value.code)
                state = await ask(ann.session, "tasks/get", taskId=task)

        unknown, undeclared = types.INVALID_PARAMS, types.MISSING_REQUIRED_CLIENT_CAPABILITY
        expected = [unknown] * 9 + [undeclared] * 3 + [types.METHOD_NOT_FOUND] * 3
        assert refusals == expected
        assert state["status"] == "working"
        assert len(task) >= 32

    asyncio.run(conversation())


def test_more_calls_than_may_run_at_once_are_not_made_tasks(tmp_path: Path):
    async def conversation() -> None:
        async with (
            opened(worker(tmp_path), max_calls=1) as gateway,
            client_of(gateway, extensions=[Polling()]) as client,
        ):
            first = await start(client, "work__wait", name="cake")
            second = asyncio.create_task(start(client, "work__wait", name="pie"))
            await eventually((tmp_path / "pie.begun").exists)
            done, _ = await asyncio.wait((second,), timeout=0.5)  # or it would be a task by then
            for name in ("cake", "pie"):
                (tmp_path / name).write_text(name, encoding="utf-8")
            plain = await second
            ended = await poll(client.session, first["taskId"])

        assert not done
        assert plain["content"][0]["text"] == "pie"
        assert ended["result"]["content"][0]["text"] == "cake"

    asyncio.run(conversation())


@pytest.mark.parametrize("way", ["task", "plain"])
def test_the_result_of_a_task_is_cut_repaired_and_reported_as_that_of_a_call(
    way: str, tmp_path: Path
):
    (tmp_path / "cake").write_text("word " * 40_000, encoding="utf-8")

    async def conversation() -> Json:
        extensions = [Polling()] if way == "task" else []
        async with opened(worker(tmp_path, "modern")) as gateway:
            heard = calls(gateway)
            async with client_of(gateway, extensions=extensions) as client:
                asked = {"name": "work.job", "arguments": '{"name": "cake"}'}
                result = await client.call_tool("tool_call", asked)
                handle = re.search(r"result_\w{10}", text_of(result))
                page = await client.call_tool("tool_call", {"name": handle and handle[0]})
            await eventually(lambda: heard)
            told = [(event.tool, event.code, event.made) for event in heard if event.tool]
            return {"text": text_of(result), "page": text_of(page)[:50].strip(), "told": told}

    found = asyncio.run(conversation())
    assert found["text"].startswith("(Called work__job for 'work.job'.)")
    assert found["page"].startswith("word word")
    assert found["told"] == [("work__job", "ok", True)]


def test_a_call_that_needs_an_approval_becomes_a_task_after_it(tmp_path: Path):
    rules = {"ask": Rule(permission=Permission.ASK)}
    asked: list[str] = []

    async def approve(context: Any, params: types.ElicitRequestParams) -> types.ElicitResult:
        asked.append(params.message)
        (tmp_path / "cake").write_text("baked", encoding="utf-8")
        return types.ElicitResult(action="accept", content={"decision": "once"})

    async def conversation() -> None:
        extension = Polling()
        async with (
            opened(worker(tmp_path, "modern"), rules=rules) as gateway,
            client_of(gateway, elicitation_callback=approve, extensions=[extension]) as client,
        ):
            called = {"name": "work__job", "arguments": {"name": "cake"}}
            result = await client.call_tool("tool_call", called)

        assert text_of(result) == "baked"
        assert extension.seen == ["completed"]
        assert [text.partition("?")[0] for text in asked] == [
            "May the model call job of the server work with these arguments"
        ]

    asyncio.run(conversation())


def test_a_task_belongs_to_its_principal_and_ends_with_its_access(tmp_path: Path):
    tokens = {name: TokenConfig(token=f"{name}-{'x' * 32}") for name in ("ann", "bob")}

    async def talk(running: Served) -> None:
        async with connected(running.url, "ann") as ann, connected(running.url, "bob") as bob:
            task = (await start(ann, "work__wait", name="cake"))["taskId"]
            state = await ask(ann.session, "tasks/get", taskId=task)
            with pytest.raises(MCPError, match="no such task"):
                await ask(bob.session, "tasks/get", taskId=task)
            assert state["status"] == "working"
            await eventually((tmp_path / "cake.begun").exists)
            before = running.gateway.config
            after = replace(before.gateway, tokens={"bob": tokens["bob"]})
            reload = running.gateway.reload(replace(before, gateway=after))
            asyncio.run_coroutine_threadsafe(reload, running.loop).result(DEADLINE_SECONDS)
            await eventually((tmp_path / "cake.cancelled").exists)

    @asynccontextmanager
    async def connected(url: str, who: str) -> AsyncGenerator[Client]:
        headers = {"Authorization": f"Bearer {tokens[who].token}"}
        async with httpx2.AsyncClient(headers=headers, timeout=DEADLINE_SECONDS) as http:
            transport = streamable_http_client(f"{url}/mcp", http_client=http)
            async with Client(transport, extensions=[Polling()]) as client:
                yield client

    with served(worker(tmp_path), tokens=tokens, task_seconds=0.05, stop_seconds=0.0) as running:
        assert running.known.wait(DEADLINE_SECONDS)
        asyncio.run(talk(running))


# What outlives a gateway.


def test_a_task_that_ended_can_be_read_after_a_restart(tmp_path: Path):
    store = MemoryStore()

    async def conversation() -> None:
        async with (
            opened(worker(tmp_path), store) as gateway,
            client_of(gateway, extensions=[Polling()]) as client,
        ):
            done = (await start(client, "work__wait", name="cake"))["taskId"]
            busy = (await start(client, "work__wait", name="pie"))["taskId"]
            (tmp_path / "cake").write_text("baked", encoding="utf-8")
            before = await poll(client.session, done)
        async with (
            opened(worker(tmp_path), store) as gateway,
            client_of(gateway, extensions=[Polling()]) as client,
            client_of(gateway, session="bob", extensions=[Polling()]) as other,
        ):
            after = await ask(client.session, "tasks/get", taskId=done)
            lost = await ask(client.session, "tasks/get", taskId=busy)
            with pytest.raises(MCPError, match="no such task"):
                await ask(other.session, "tasks/get", taskId=done)

        assert without_meta(after) == without_meta(before)
        assert after["result"]["content"][0]["text"] == "baked"
        assert (lost["status"], "result" in lost) == ("failed", False)
        assert lost["error"]["message"].startswith("The gateway ended while the call was running")

    asyncio.run(conversation())


def without_meta(state: Json) -> Json:
    return {key: value for key, value in state.items() if key != "_meta"}


def test_a_task_that_its_server_still_has_is_followed_after_a_restart(tmp_path: Path):
    store = MemoryStore()
    rules = {"ask": Rule(permission=Permission.ASK)}

    async def conversation() -> None:
        server = worker(tmp_path, "modern")
        async with opened(server, store) as gateway:
            heard = calls(gateway)
            async with client_of(gateway, extensions=[Polling()]) as client:
                task = (await start(client, "work__job", name="cake"))["taskId"]
        assert not (tmp_path / "cake.cancelled").exists()
        assert heard == []
        # What somebody agreed to before is not asked again.
        async with opened(server, store, rules=rules) as gateway:
            heard = calls(gateway)
            async with client_of(gateway, extensions=[Polling()]) as client:
                busy = await ask(client.session, "tasks/get", taskId=task)
                (tmp_path / "cake").write_text("baked", encoding="utf-8")
                ended = await poll(client.session, task)
            await eventually(lambda: heard)

        assert busy["status"] == "working"
        assert ended["result"]["content"][0]["text"] == "baked"
        assert [(event.tool, event.code) for event in heard] == [("work__job", "ok")]

    asyncio.run(conversation())


def test_a_session_keeps_its_newest_tasks_and_none_for_ever():
    inner = MemoryStore()
    inner.write(KIND, "ann/old", b'{"created": 0, "updated": 0, "status": "completed"}')
    inner.write(KIND, "bob/new", _dump_ended())
    store = BackgroundStore(inner)

    def never(stored: StoredTask) -> Work:
        raise AssertionError

    async def add(tasks: Tasks, result: Json) -> str:
        released = asyncio.Event()

        async def work(task: RunningTask) -> Json:
            await released.wait()
            return result

        made = await tasks.run("ann", {}, work, seconds=0, most=100)
        released.set()
        while (await tasks.get("ann", made["taskId"], never))["status"] not in ENDED:  # noqa: ASYNC110  # nothing announces it
            await asyncio.sleep(0)
        return made["taskId"]

    async def conversation() -> None:
        tasks = Tasks(store)
        made = [await add(tasks, {"content": []}) for _ in range(TASKS_KEPT + 2)]
        large = await add(tasks, {"content": "x" * KEPT_BYTES})
        told = await tasks.get("ann", large, never)
        await eventually(lambda: len(store.keys(KIND)) == TASKS_KEPT + 1)
        for gone in ("old", *made[:3]):
            with pytest.raises(MCPError, match="no such task"):
                await tasks.get("ann", gone, never)
        kept = await tasks.get("ann", made[3], never)
        await tasks.close()

        assert told["error"]["message"].startswith("The call was made, but its result is too large")
        assert kept["result"] == {"content": []}
        assert "bob/new" in store.keys(KIND)

    asyncio.run(conversation())


def _dump_ended() -> bytes:
    now = time.time()
    return json.dumps({"created": now, "updated": now, "status": "completed"}).encode()


@pytest.mark.slow
def test_after_a_kill_a_call_has_failed_and_a_task_of_a_server_goes_on(tmp_path: Path):
    arguments = (str(Path(__file__).with_name("worker.py")), str(tmp_path), "modern")
    config = configuration(tmp_path, {"work": arguments}, task_seconds=0.05)
    fill_cache(config)

    async def begin(url: str) -> list[str]:
        async with Client(f"{url}/mcp", extensions=[Polling()]) as client:
            job = (await start(client, "work__job", name="job"))["taskId"]
            await poll(client.session, job, lambda state: state.get(SAID))
            # Once it has answered this call, it has stored what it knows of the job.
            call = (await start(client, "work__wait", name="call"))["taskId"]
            return [call, job]

    async def end(url: str, tasks: list[str]) -> list[Json]:
        async with Client(f"{url}/mcp", extensions=[Polling()]) as client:
            return [await poll(client.session, task) for task in tasks]

    with Running(config) as running:
        tasks = asyncio.run(begin(running.url))
        running.restart()
        (tmp_path / "job").write_text("done", encoding="utf-8")
        call, job = asyncio.run(end(running.url, tasks))

    assert call["error"]["message"].startswith("The gateway ended while the call was running")
    assert job["result"]["content"][0]["text"] == "done"
