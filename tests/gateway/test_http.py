"""The gateway over HTTP, asked by clients that nobody here wrote."""

import asyncio
import json
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import AsyncGenerator, Generator, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Literal

import httpx2
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mcp import Client
from mcp.client.sse import sse_client
from mcp.client.streamable_http import streamable_http_client

from serving import DEADLINE_SECONDS, HANGING, MISSING, TIME, Served, served
from toolscout.config.file import Config
from toolscout.config.gateway import GatewayConfig
from toolscout.errors import InvalidConfig
from toolscout.gateway.gateway import Gateway
from toolscout.gateway.http import serve_http
from toolscout.gateway.middleware import TEXTS
from toolscout.policies import Permission, Policy
from toolscout.schemas import Json
from toolscout.stores.memory import MemoryStore
from toolscout.tools import Tool

NOW = {"name": "time__get_current_time", "arguments": {"timezone": "UTC"}}
CONVERT = {
    "name": "time__convert_time",
    "arguments": {"source_timezone": "UTC", "time": "12:00", "target_timezone": "UTC"},
}
PROMETHEUS = {"Authorization": "Bearer scrape"}
ANN, BOB = {"Authorization": "Bearer open sesame"}, {"Authorization": "Bearer swordfish"}
INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": {"name": "test", "version": "1"},
    },
}
LARGEST = 2 << 20
ACCEPT = {"Accept": "application/json, text/event-stream"}


@pytest.fixture(scope="module")
def gateway() -> Iterator[Served]:
    """A gateway before a real server; whoever reaches it may ask."""
    with served(TIME) as running:
        assert running.known.wait(DEADLINE_SECONDS)
        yield running


@pytest.fixture(scope="module")
def guarded() -> Iterator[Served]:
    """The same with tokens: Ann sees everything, Bob one tool."""
    with served(
        TIME,
        tokens={
            "ann": {"token": "open sesame"},
            "bob": {"token": "swordfish", "profile": "some"},
            "prometheus": {"token": "scrape", "profile": "some", "metrics": True},
        },
        profiles={"some": {"tools": ["*convert*"]}},
        hosts=["tools.example"],
        origins=["https://app.example"],
    ) as running:
        assert running.known.wait(DEADLINE_SECONDS)
        yield running


@pytest.fixture(scope="module")
def empty() -> Iterator[Served]:
    with served(max_body_bytes=LARGEST) as running:
        yield running


@asynccontextmanager
async def connected(
    url: str, mode: Literal["auto", "legacy"], headers: dict[str, str] | None = None
) -> AsyncGenerator[Client]:
    async with (
        httpx2.AsyncClient(headers=headers, timeout=DEADLINE_SECONDS) as http,
        Client(streamable_http_client(f"{url}/mcp", http_client=http), mode=mode) as client,
    ):
        yield client


async def find_and_call(connection: AbstractAsyncContextManager[Client]) -> tuple[str, str]:
    """Return what a client is told when it searches for a tool and then calls it."""
    async with connection as client:
        listed = await client.list_tools()
        assert [tool.name for tool in listed.tools] == ["tool_search", "tool_describe", "tool_call"]
        found = await client.call_tool("tool_search", {"query": "what time is it now"})
        called = await client.call_tool("tool_call", NOW)
    return text_of(found), text_of(called)


def text_of(result: Any) -> str:
    return "\n".join(part.text for part in result.content)


def get(served: Served, path: str, **headers: str) -> httpx2.Response:
    return httpx2.get(f"{served.url}{path}", headers=headers, timeout=DEADLINE_SECONDS)


def error_of(response: httpx2.Response) -> Json:
    return response.json()["error"]


# Clients


@pytest.mark.requirement("R71")
def test_a_modern_client_finds_and_calls_and_its_session_is_its_principals(gateway: Served):
    """R71"""
    gateway.events.clear()

    found, called = asyncio.run(find_and_call(connected(gateway.url, "auto")))

    assert "time__get_current_time" in found
    assert json.loads(called)["timezone"] == "UTC"
    assert {event.session for event in gateway.heard()} == {"principal:anonymous"}


@pytest.mark.requirement("R71")
def test_a_client_of_the_handshake_era_has_a_session_of_its_own(gateway: Served):
    """R71"""
    gateway.events.clear()

    for _ in range(2):
        found, called = asyncio.run(find_and_call(connected(gateway.url, "legacy")))
        assert "time__get_current_time" in found
        assert json.loads(called)["timezone"] == "UTC"

    sessions = {event.session for event in gateway.heard()}
    assert len(sessions) == 2
    assert all(session.startswith("http:") for session in sessions)


@pytest.mark.requirement("R71")
def test_an_older_client_is_served_over_sse(gateway: Served):
    """R71"""
    gateway.events.clear()
    client = Client(sse_client(f"{gateway.url}/sse"), mode="legacy")

    found, called = asyncio.run(find_and_call(client))

    assert "time__get_current_time" in found
    assert json.loads(called)["timezone"] == "UTC"
    sessions = [event.session for event in gateway.heard()]
    assert sessions
    assert all(session.startswith("sse:") for session in sessions)


def test_a_modern_client_cannot_name_the_session_of_another(gateway: Served):
    gateway.events.clear()
    opened = httpx2.post(f"{gateway.url}/mcp", json=INITIALIZE, headers=ACCEPT)
    theirs = {"Mcp-Session-Id": opened.headers["mcp-session-id"]}

    asyncio.run(find_and_call(connected(gateway.url, "auto", theirs)))

    assert {event.session for event in gateway.heard()} == {"principal:anonymous"}


@pytest.mark.requirement("R72")
@pytest.mark.parametrize("mode", ["auto", "legacy"])
def test_a_token_sees_and_calls_what_its_profile_admits(
    guarded: Served, mode: Literal["auto", "legacy"]
):
    """R72: what search may show, call may run, nothing else."""

    async def ask(headers: dict[str, str]) -> list[str]:
        async with connected(guarded.url, mode, headers) as client:
            query = {"query": "select:time__get_current_time,time__convert_time"}
            return [
                text_of(await client.call_tool("tool_search", query)),
                text_of(await client.call_tool("tool_call", NOW)),
                text_of(await client.call_tool("tool_call", CONVERT)),
            ]

    ann, bob = asyncio.run(ask(ANN)), asyncio.run(ask(BOB))

    assert "get_current_time(" in ann[0]
    assert json.loads(ann[1])["timezone"] == "UTC"
    assert "get_current_time(" not in bob[0]
    assert bob[1].startswith("Not called: there is no tool 'time__get_current_time'.")
    assert json.loads(ann[2]) == json.loads(bob[2])


def test_a_session_is_used_only_by_the_one_who_opened_it(guarded: Served):
    opened = httpx2.post(f"{guarded.url}/mcp", json=INITIALIZE, headers=ACCEPT | ANN)
    theirs = {"Mcp-Session-Id": opened.headers["mcp-session-id"]}
    ask = {"jsonrpc": "2.0", "id": 2, "method": "ping"}

    answers = [
        httpx2.post(f"{guarded.url}/mcp", json=ask, headers=ACCEPT | theirs | who).status_code
        for who in (ANN, BOB)
    ]

    assert answers == [200, 404]


# Who may ask


def test_without_a_valid_token_an_answer_reveals_nothing(guarded: Served):
    wrong = {"Authorization": "Bearer open sesam"}
    answers = [
        httpx2.request(method, f"{guarded.url}{path}", headers=headers)
        for headers in ({}, wrong)
        for method, path in (
            *(("POST", "/mcp"), ("GET", "/mcp"), ("GET", "/sse"), ("POST", "/messages/")),
            *(("GET", "/metrics"), ("GET", "/status"), ("GET", "/nowhere")),
        )
    ]

    assert {answer.status_code for answer in answers} == {401}
    assert {answer.content for answer in answers} == {answers[0].content}
    assert {answer.headers["www-authenticate"] for answer in answers} == {
        'Bearer realm="toolscout"'
    }
    assert error_of(answers[0]) == {"code": "unauthorized", "message": TEXTS["unauthorized"]}


def test_a_name_or_page_from_elsewhere_is_refused(guarded: Served):
    host = get(guarded, "/status", **ANN, Host="evil.example")
    origin = get(guarded, "/status", **ANN, Origin="https://evil.example")

    assert (host.status_code, error_of(host)["code"]) == (421, "wrong_host")
    assert (origin.status_code, error_of(origin)["code"]) == (403, "wrong_origin")


def test_configured_names_and_pages_are_served_and_browsers_may_read(guarded: Served):
    answer = get(guarded, "/status", **ANN, Host="tools.example", Origin="https://app.example")
    asked = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "x-a"}
    preflight = httpx2.options(
        f"{guarded.url}/mcp", headers={"Origin": "https://app.example", **asked}
    )

    assert answer.status_code == 200
    assert answer.headers["access-control-allow-origin"] == "https://app.example"
    assert preflight.status_code == 200
    assert preflight.headers["access-control-allow-origin"] == "https://app.example"
    assert "POST" in preflight.headers["access-control-allow-methods"]


@pytest.mark.requirement("R79")
def test_an_open_address_without_a_token_is_refused_at_start():
    """R79: start-up stops, and nothing is exposed by accident."""
    with pytest.raises(InvalidConfig, match=r"gateway\.host.*no token"), served(host="0.0.0.0"):
        pass


def test_a_port_in_use_is_reported_at_start():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]

        with (
            pytest.raises(InvalidConfig, match=f"{port}, which is not available on"),
            served(port=port),
        ):
            pass


# Limits


def test_a_request_that_is_too_large_is_refused(empty: Served):
    body = b"x" * (LARGEST + 1)
    headers = {**ACCEPT, "Content-Type": "application/json", "Mcp-Session-Id": "any"}

    told = httpx2.post(f"{empty.url}/mcp", content=body, headers=headers)
    in_parts = httpx2.post(f"{empty.url}/mcp", content=parts(body), headers=headers)

    assert (told.status_code, error_of(told)["code"]) == (413, "too_large")
    assert error_of(told)["message"].startswith("The request is larger than 2,097,152 bytes.")
    assert (in_parts.status_code, error_of(in_parts)) == (413, error_of(told))


def parts(body: bytes) -> Generator[bytes]:
    for start in range(0, len(body), 1 << 20):
        yield body[start : start + (1 << 20)]


def test_errors_say_what_to_do(empty: Served):
    nowhere = get(empty, "/nowhere")
    posted = httpx2.post(f"{empty.url}/status")
    streamed = httpx2.post(f"{empty.url}/sse")

    assert (nowhere.status_code, error_of(nowhere)["code"]) == (404, "not_found")
    assert (posted.status_code, error_of(posted)["code"]) == (405, "wrong_method")
    assert (streamed.status_code, streamed.headers["allow"]) == (405, "GET")


# Pages for operators


def test_probes_need_neither_name_nor_token(guarded: Served):
    guarded.gateway.store.flush()  # what the start has changed

    alive = get(guarded, "/healthz", Host="10.1.2.3:8765")
    ready = get(guarded, "/readyz", Host="10.1.2.3:8765")

    assert (alive.status_code, alive.json()) == (200, {"alive": True})
    assert ready.status_code == 200
    assert ready.json() == {
        "ready": True,
        "servers": 1,
        "pending": 0,
        "failed": 0,
        "unwritten": 0,
        "lost": 0,
        "tools": 2,
        "store": True,
    }


def test_a_gateway_is_not_ready_while_a_server_is_unknown():
    with served(HANGING) as running:
        running.gateway.store.flush()  # what the start has changed
        answer = get(running, "/readyz")

    assert answer.status_code == 503
    assert answer.json() == {
        "ready": False,
        "servers": 1,
        "pending": 1,
        "failed": 0,
        "unwritten": 0,
        "lost": 0,
        "tools": 0,
        "store": True,
    }


def test_a_server_that_failed_holds_nothing_up_and_shows_no_secret():
    with served(MISSING) as running:
        ready = until_ready(running)
        told = get(running, "/status")

    assert (ready["pending"], ready["tools"]) == (0, 0)
    server = told.json()["servers"][0]
    assert (server["name"], server["tools"]) == ("missing", 0)
    assert server["failures"] >= 1
    assert "hunter2" not in told.text


def until_ready(running: Served) -> Json:
    deadline = time.monotonic() + DEADLINE_SECONDS
    while time.monotonic() < deadline:
        answer = get(running, "/readyz")
        if not answer.json()["pending"]:
            return answer.json()
        time.sleep(0.01)
    raise TimeoutError("the gateway did not become ready")


def test_the_status_has_servers_figures_and_versions(gateway: Served):
    before = get(gateway, "/status").json()
    asyncio.run(find_and_call(connected(gateway.url, "auto")))
    after = get(gateway, "/status").json()

    server = after["servers"][0]
    assert (server["name"], server["phase"], server["tools"]) == ("time", "ready", 2)
    assert (server["starts"], server["failures"], server["reason"]) == (1, 0, "")
    assert server["since"].endswith("+00:00")
    assert after["totals"]["searches"] == before["totals"]["searches"] + 1
    assert after["totals"]["calls"] == before["totals"]["calls"] + 1
    assert after["totals"]["tools"] == 2
    assert set(after["versions"]) == {"toolscout", "mcp", "python"}


def test_the_metrics_count_calls_lists_and_phases(gateway: Served):
    asyncio.run(find_and_call(connected(gateway.url, "auto")))

    answer = get(gateway, "/metrics")

    assert answer.headers["content-type"].startswith("text/plain")
    tool = 'server="time",tool="time__get_current_time"'
    assert f'toolscout_calls_total{{code="ok",{tool}}}' in answer.text
    assert 'toolscout_servers{phase="ready"} 1.0' in answer.text
    assert "toolscout_definition_tokens_total 0.0" not in answer.text


@pytest.mark.parametrize("path", ["/metrics", "/status"])
def test_pages_about_all_servers_need_a_token_without_a_profile(guarded: Served, path: str):
    answers = [get(guarded, path, **who) for who in (ANN, BOB)]

    assert [answer.status_code for answer in answers] == [200, 403]
    assert error_of(answers[1])["code"] == "limited"


@pytest.mark.parametrize("path", ["/metrics", "/status"])
def test_a_limited_token_may_be_allowed_to_read_them(guarded: Served, path: str):
    assert get(guarded, path, **PROMETHEUS).status_code == 200


def test_the_metrics_show_what_is_being_answered_and_that_the_gateway_is_ready():
    begun, go_on = threading.Event(), asyncio.Event()

    async def look_during_a_call(running: Served) -> str:
        async with connected(running.url, "auto") as client:
            await client.call_tool("tool_search", {"query": "what time is it now"})
            call = asyncio.create_task(client.call_tool("tool_call", NOW))
            assert await asyncio.to_thread(begun.wait, DEADLINE_SECONDS)
            page = await asyncio.to_thread(get, running, "/metrics")
            running.loop.call_soon_threadsafe(go_on.set)
            await call
        return page.text

    with served(TIME, policy=held(begun, go_on)) as running:
        assert running.known.wait(DEADLINE_SECONDS)
        shown = asyncio.run(look_during_a_call(running)).splitlines()

    assert "toolscout_running_requests 1.0" in shown
    assert "toolscout_open_streams 0.0" in shown
    assert "toolscout_sessions 1.0" in shown
    assert "toolscout_tools 2.0" in shown
    assert "toolscout_ready 1.0" in shown
    assert "toolscout_store_available 1.0" in shown


# Stopping


@pytest.mark.parametrize("caller", [0, 1], ids=["streamable", "sse"])
def test_a_running_call_ends_before_the_gateway_does_and_open_streams_hold_nothing_up(caller: int):
    begun, go_on = threading.Event(), asyncio.Event()

    with served(TIME, policy=held(begun, go_on)) as running:
        assert running.known.wait(DEADLINE_SECONDS)
        called = asyncio.run(call_while_stopping(running, caller, begun, go_on))
        running.thread.join(DEADLINE_SECONDS)

        assert not running.thread.is_alive()
    assert json.loads(called)["timezone"] == "UTC"


async def call_while_stopping(
    running: Served, caller: int, begun: threading.Event, go_on: asyncio.Event
) -> str:
    async with (
        connected(running.url, "legacy") as streamable,
        Client(sse_client(f"{running.url}/sse"), mode="legacy") as sse,
    ):
        client = (streamable, sse)[caller]
        await client.list_tools()  # else the client asks for it after the call
        call = asyncio.create_task(client.call_tool("tool_call", NOW))
        assert await asyncio.to_thread(begun.wait, DEADLINE_SECONDS)
        running.stop()
        running.loop.call_soon_threadsafe(go_on.set)
        return text_of(await call)


def test_a_call_that_does_not_end_is_given_up():
    begun, never = threading.Event(), asyncio.Event()

    with served(TIME, policy=held(begun, never), stop_seconds=0.1) as running:
        assert running.known.wait(DEADLINE_SECONDS)
        answer = asyncio.run(post_while_stopping(running, begun))
        running.thread.join(DEADLINE_SECONDS)

        assert not running.thread.is_alive()
    assert (answer.status_code, error_of(answer)["code"]) == (503, "stopping")


async def post_while_stopping(running: Served, begun: threading.Event) -> httpx2.Response:
    version = "2026-07-28"
    meta = {
        "io.modelcontextprotocol/protocolVersion": version,
        "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": {},
    }
    params = {"name": "tool_call", "arguments": NOW, "_meta": meta}
    asked = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    names = {"Mcp-Method": "tools/call", "Mcp-Name": "tool_call", "MCP-Protocol-Version": version}
    async with httpx2.AsyncClient(timeout=DEADLINE_SECONDS) as http:
        call = asyncio.create_task(
            http.post(f"{running.url}/mcp", json=asked, headers=ACCEPT | names)
        )
        assert await asyncio.to_thread(begun.wait, DEADLINE_SECONDS)
        running.stop()
        return await call


def held(begun: threading.Event, go_on: asyncio.Event) -> Policy:
    """Return a policy that lets a call go on when told to."""

    async def permit(tool: Tool, arguments: Json) -> Permission:
        begun.set()
        await go_on.wait()
        return Permission.ALLOW

    return Policy(permit=permit)


SCRIPT = """
import asyncio, logging
from toolscout.gateway.gateway import Gateway
from toolscout.gateway.http import serve_http
from toolscout.stores.memory import MemoryStore
from toolscout.config.file import Config
from toolscout.config.gateway import GatewayConfig

async def main():
    config = Config(gateway=GatewayConfig(port=0))
    async with Gateway(config, MemoryStore()) as gateway:
        await serve_http(gateway)
    logging.warning("closed")

logging.basicConfig(level="INFO", format="%(name)s: %(message)s")
asyncio.run(main())
"""


@given(turns=st.integers(0, 80))
@settings(max_examples=25)
def test_a_gateway_stops_at_whichever_turn_of_its_start_it_is_asked_to(turns: int):
    async def start_and_stop() -> None:
        stop = asyncio.Event()
        config = Config(gateway=GatewayConfig(port=0))
        async with asyncio.timeout(DEADLINE_SECONDS), Gateway(config, MemoryStore()) as gateway:
            serving = asyncio.create_task(serve_http(gateway, stop=stop))
            for _ in range(turns):
                await asyncio.sleep(0)
            stop.set()
            await serving

    asyncio.run(start_and_stop())


@pytest.mark.skipif(sys.platform == "win32", reason="there are no such signals")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_the_gateway_in_order_and_stdout_stays_empty(number: signal.Signals):
    with subprocess.Popen(
        [sys.executable, "-c", SCRIPT], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        announced = next(line for line in process.stderr if "Serving MCP at" in line)
        url = announced.split()[-1].removesuffix("/mcp.")
        alive = httpx2.get(f"{url}/healthz")
        process.send_signal(number)
        printed, logged = process.communicate(timeout=DEADLINE_SECONDS)

    assert alive.status_code == 200
    assert (process.returncode, printed) == (0, "")
    assert logged.endswith("root: closed\n")
