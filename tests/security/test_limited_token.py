"""A client with a limited token has a profile: it must learn nothing of what is outside it."""

import asyncio
import gc
import json
import signal
import sys
from collections.abc import AsyncGenerator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

import httpx2
import pytest
from mcp import Client
from mcp.client.sse import sse_client
from mcp.client.streamable_http import streamable_http_client
from mcp.client.subscriptions import SubscriptionLost
from mcp.shared.exceptions import MCPError
from mcp_types import CallToolResult
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from gateway.fleet import TIME as TIME_ARGUMENTS
from gateway.fleet import always, configuration
from gateway.processes import Running
from serving import DEADLINE_SECONDS, HANGING, MISSING, TIME, Served, eventually, served
from toolscout.calls.results import KIND as RESULT_KIND
from toolscout.calls.results import Results
from toolscout.config.file import Config
from toolscout.config.gateway import GatewayConfig, Profile, TokenConfig
from toolscout.config.servers import ServerConfig, Transport
from toolscout.errors import InvalidConfig
from toolscout.gateway.gateway import Gateway
from toolscout.gateway.middleware import (
    PRINCIPAL,
    Authenticator,
    Limiter,
    Principal,
    RequestGuard,
)
from toolscout.gateway.resume import CLIENT_KIND, DAY_SECONDS, KnownClients
from toolscout.gateway.server import build_server
from toolscout.schemas import Json
from toolscout.sessions.session_state import SESSION_KIND
from toolscout.stores.memory import MemoryStore

ANN = "ann-has-a-token-of-more-than-32-characters"
BOB = "bob-has-a-token-of-more-than-32-characters"
TWO = {"ann": ANN, "bob": BOB}
TOKENS = {"ann": {"token": ANN}, "bob": {"token": BOB, "profile": "some"}}
SOME = {"some": {"servers": ["time"]}}
NOW = {"name": "time__get_current_time", "arguments": {"timezone": "UTC"}}
SLOW = ServerConfig(
    name="slow",
    transport=Transport.STDIO,
    command=sys.executable,
    args=(str(Path(__file__).with_name("slow_server.py")),),
)
INITIALIZE: Json = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": {"name": "test", "version": "1"},
    },
}


async def search(client: Client) -> CallToolResult:
    return await client.call_tool("tool_search", {"queries": ["tell the time"]})


@pytest.mark.parametrize(
    "secret",
    [replace(MISSING, name="payroll"), replace(HANGING, name="payroll")],
    ids=["failed", "pending"],
)
def test_a_profile_does_not_hear_of_servers_outside_it(secret: ServerConfig):
    config = Config(servers=(TIME, secret), gateway=GatewayConfig(first_search_seconds=0))

    async def search() -> CallToolResult:
        async with asyncio.timeout(DEADLINE_SECONDS), Gateway(config, MemoryStore()) as gateway:
            await eventually(lambda: gateway.scout.preview("tell the time").hits)
            await eventually(lambda: "payroll" in gateway.catalog.unready)
            session = gateway.open_session(
                "ann", Principal(name="ann", profile=Profile(servers=("time",)))
            )

            async with Client(build_server(gateway, always(session))) as client:
                return await client.call_tool("tool_search", {"queries": ["tell the time"]})

    reply = asyncio.run(search())

    assert not reply.is_error
    assert "time__get_current_time" in reply.model_dump_json()
    assert "payroll" not in reply.model_dump_json()


@asynccontextmanager
async def connected(
    gateway: Served, token: str, mode: Literal["auto", "legacy"] = "auto"
) -> AsyncGenerator[Client]:
    headers = {"Authorization": f"Bearer {token}"}
    async with (
        asyncio.timeout(DEADLINE_SECONDS),
        httpx2.AsyncClient(headers=headers, timeout=DEADLINE_SECONDS) as http,
        Client(streamable_http_client(f"{gateway.url}/mcp", http_client=http), mode=mode) as client,
    ):
        yield client


def get_status(gateway: Served, token: str) -> int:
    headers = {"Authorization": f"Bearer {token}"}
    return httpx2.get(
        f"{gateway.url}/status", headers=headers, timeout=DEADLINE_SECONDS
    ).status_code


async def reload(gateway: Served, **options: Any) -> None:
    """Let a gateway read a configuration in which some options are different."""
    changed = replace(gateway.gateway.config.gateway, **options)
    config = replace(gateway.gateway.config, gateway=changed)
    reloading = asyncio.run_coroutine_threadsafe(gateway.gateway.reload(config), gateway.loop)
    await asyncio.wrap_future(reloading)


@pytest.fixture
def guarded() -> Iterator[Served]:
    with served(TIME, tokens=TOKENS, profiles=SOME, console=True) as gateway:
        assert gateway.known.wait(DEADLINE_SECONDS)
        yield gateway


def test_a_revoked_token_is_refused_from_the_reload_on(guarded: Served):
    async def revoke() -> None:
        async with connected(guarded, BOB) as client:
            assert "time__get_current_time" in (await search(client)).model_dump_json()
            await reload(guarded, tokens={"ann": {"token": ANN}})
            with pytest.raises(MCPError):
                await search(client)

    asyncio.run(revoke())
    assert get_status(guarded, BOB) == 401
    assert get_status(guarded, ANN) == 200


@pytest.mark.filterwarnings("ignore:Unclosed <Memory:ResourceWarning")  # the SDK's, for /sse
@pytest.mark.parametrize("path", ["/mcp", "/sse", "/api/events"])
def test_a_stream_ends_when_its_token_is_revoked(guarded: Served, path: str):
    async def read() -> str:
        headers = {
            "Authorization": f"Bearer {BOB}",
            "Accept": "text/event-stream, application/json",
        }
        async with (
            asyncio.timeout(DEADLINE_SECONDS),
            httpx2.AsyncClient(headers=headers, base_url=guarded.url) as http,
        ):
            if path == "/mcp":
                opened = await http.post(path, json=INITIALIZE)
                http.headers["Mcp-Session-Id"] = opened.headers["mcp-session-id"]
            async with http.stream("GET", path, timeout=DEADLINE_SECONDS) as stream:
                assert stream.status_code == 200
                await reload(guarded, tokens={"ann": {"token": ANN}})
                return "".join([part async for part in stream.aiter_text()])

    assert "error" not in asyncio.run(read())
    gc.collect()


def test_a_subscription_ends_when_its_token_is_revoked(guarded: Served):
    async def listen() -> list[object]:
        async with (
            connected(guarded, BOB) as client,
            client.listen(tools_list_changed=True) as changes,
        ):
            await reload(guarded, tokens={"ann": {"token": ANN}})
            with suppress(MCPError, SubscriptionLost):
                return [change async for change in changes]
            return []

    assert asyncio.run(listen()) == []
    assert not guarded.gateway.subscriptions.listeners


@pytest.mark.parametrize("mode", ["auto", "legacy"])
def test_a_narrower_profile_narrows_the_sessions_that_exist(
    guarded: Served, mode: Literal["auto", "legacy"]
):
    async def narrow() -> tuple[CallToolResult, CallToolResult]:
        async with connected(guarded, BOB, mode) as client:
            assert "time__get_current_time" in (await search(client)).model_dump_json()
            await reload(guarded, profiles={"some": {"tools": ["*__convert_time"]}})
            return await search(client), await client.call_tool("tool_call", NOW)

    found, called = asyncio.run(narrow())

    assert "time__convert_time" in found.model_dump_json()
    assert "time__get_current_time" not in found.model_dump_json()
    assert called.is_error


def test_a_stream_hears_nothing_of_what_a_narrower_profile_hides(guarded: Served):
    async def listen() -> int:
        async with connected(guarded, BOB) as client, client.listen(tools_list_changed=True):
            assert count_visible(guarded) > 0
            await reload(guarded, profiles={"some": {"servers": ["other"]}})
            return count_visible(guarded)

    assert asyncio.run(listen()) == 0


def count_visible(gateway: Served) -> int:
    """Return how many tools the only listener would hear of."""
    [listener] = gateway.gateway.subscriptions.listeners
    return len(listener.filter_visible(gateway.gateway.catalog.tools))


def test_a_configuration_without_tokens_does_not_let_everybody_in(guarded: Served):
    with pytest.raises(InvalidConfig, match="would let everybody in"):
        asyncio.run(reload(guarded, tokens={}))

    assert get_status(guarded, "none") == 401
    assert get_status(guarded, ANN) == 200


def test_a_signal_makes_a_running_gateway_forget_a_token(tmp_path: Path):
    tables = [f'[gateway.tokens.{name}]\ntoken = "{token}"\n' for name, token in TWO.items()]
    path = configuration(tmp_path, {"time": TIME_ARGUMENTS})
    servers = path.read_text(encoding="utf-8")
    path.write_text(servers + "".join(tables), encoding="utf-8")
    with Running(path) as gateway:
        path.write_text(servers + tables[0], encoding="utf-8")
        assert gateway.process is not None
        gateway.process.send_signal(signal.SIGHUP)
        gateway.wait_for_line("Reloaded")

        answers = [
            httpx2.get(f"{gateway.url}/status", headers={"Authorization": f"Bearer {token}"})
            for token in TWO.values()
        ]

    assert [answer.status_code for answer in answers] == [200, 401]


def post(gateway: Served, token: str, message: Json, **headers: str) -> httpx2.Response:
    sent = {"Authorization": f"Bearer {token}", "Accept": "application/json, text/event-stream"}
    url = f"{gateway.url}/mcp"
    return httpx2.post(url, json=message, headers={**sent, **headers}, timeout=DEADLINE_SECONDS)


def test_a_flood_of_requests_is_refused_with_a_reason_and_others_are_served():
    with served(tokens=TOKENS, profiles=SOME, max_requests=60) as gateway:
        answers = [post(gateway, BOB, INITIALIZE) for _ in range(8)]
        refused = next(answer for answer in answers if answer.status_code == 429)

        assert answers[0].status_code == 200
        assert refused.json()["error"]["code"] == "too_many_requests"
        assert int(refused.headers["Retry-After"]) >= 1
        assert post(gateway, ANN, INITIALIZE).status_code == 200


def test_large_bodies_count_as_many_requests():
    large = {**INITIALIZE, "params": {"text": "x" * 2_000_000}}
    with served(tokens=TOKENS, profiles=SOME, max_requests=60) as gateway:
        session = {"Mcp-Session-Id": "any"}
        answers = [post(gateway, BOB, large, **session).status_code for _ in range(4)]

        assert answers[0] != 429
        assert answers[-1] == 429
        assert post(gateway, ANN, INITIALIZE).status_code == 200


def test_one_token_cannot_open_sessions_without_end():
    with served(tokens=TOKENS, profiles=SOME, max_sessions=3) as gateway:
        opened = [post(gateway, BOB, INITIALIZE) for _ in range(3)]
        refused = post(gateway, BOB, INITIALIZE)
        ended = opened[0].headers["mcp-session-id"]
        headers = {"Authorization": f"Bearer {BOB}", "Mcp-Session-Id": ended}
        httpx2.delete(f"{gateway.url}/mcp", headers=headers, timeout=DEADLINE_SECONDS)

        assert refused.status_code == 429
        assert refused.json()["error"]["code"] == "too_many_sessions"
        assert post(gateway, ANN, INITIALIZE).status_code == 200
        assert post(gateway, BOB, INITIALIZE).status_code == 200


def test_a_large_first_request_is_not_kept():
    params = {**INITIALIZE["params"], "clientInfo": {"name": "x" * 6_000_000, "version": "1"}}
    with served(tokens=TOKENS, profiles=SOME) as gateway:
        whole = post(gateway, BOB, {**INITIALIZE, "params": params})
        parts = httpx2.post(
            f"{gateway.url}/mcp",
            content=iter([json.dumps({**INITIALIZE, "params": params}).encode()]),
            headers={"Authorization": f"Bearer {BOB}", "Content-Type": "application/json"},
            timeout=DEADLINE_SECONDS,
        )

    for answer in (whole, parts):
        assert answer.status_code == 413
        assert answer.json()["error"]["code"] == "hello_too_large"


def test_the_oldest_sessions_of_one_owner_are_deleted_first():
    store = MemoryStore()
    clients = KnownClients(store, 30, lambda name: None, kept=2)

    for number in range(4):
        clients.remember(f"http:{number}", owner="bob", version="", hello={"n": number})
    clients.remember("http:ann", owner="ann", version="", hello={"n": 0})

    assert store.keys(CLIENT_KIND) == ["http:2", "http:3", "http:ann"]


def test_sessions_and_results_that_nobody_uses_are_swept():
    store = MemoryStore()
    now = 0.0
    clients = KnownClients(
        store, 30, lambda name: store.write(SESSION_KIND, name, None), clock=lambda: now
    )
    store.write(SESSION_KIND, "principal:gone", b"{}")
    store.write(RESULT_KIND, "principal:gone", b"[]")
    store.write(RESULT_KIND, "principal:gone/handle", b"text")

    clients.sweep()
    assert store.keys(RESULT_KIND)
    now = 31 * DAY_SECONDS
    clients.sweep()

    assert store.keys(SESSION_KIND) == store.keys(RESULT_KIND) == store.keys(CLIENT_KIND) == []


def test_slow_calls_of_one_token_leave_a_place_for_others():
    slow = replace(SLOW, concurrency=2)
    with served(slow, tokens={"ann": {"token": ANN}, "bob": {"token": BOB}}) as gateway:
        assert gateway.known.wait(DEADLINE_SECONDS)

        async def call_all() -> CallToolResult:
            async with connected(gateway, BOB) as bob, connected(gateway, ANN) as ann:
                waiting = [
                    asyncio.create_task(bob.call_tool("tool_call", {"name": "slow__wait"}))
                    for _ in range(8)
                ]
                server = gateway.gateway.pool.servers["slow"]
                await eventually(lambda: server.waiting + server.running == 8)
                try:
                    return await ann.call_tool("tool_call", {"name": "slow__echo"})
                finally:
                    for task in waiting:
                        task.cancel()
                    await asyncio.gather(*waiting, return_exceptions=True)

        result = asyncio.run(call_all())

    assert "echo" in result.model_dump_json()


def test_one_token_has_only_some_requests_answered_at_once():
    with served(
        SLOW, tokens={"ann": {"token": ANN}, "bob": {"token": BOB}}, max_calls=2
    ) as gateway:
        assert gateway.known.wait(DEADLINE_SECONDS)

        async def call_all() -> tuple[int, CallToolResult]:
            async with connected(gateway, BOB) as bob, connected(gateway, ANN) as ann:
                waiting = [
                    asyncio.create_task(bob.call_tool("tool_call", {"name": "slow__wait"}))
                    for _ in range(2)
                ]
                server = gateway.gateway.pool.servers["slow"]
                await eventually(lambda: server.waiting + server.running == 2)
                refused = await asyncio.to_thread(post, gateway, BOB, INITIALIZE)
                try:
                    found = await ann.call_tool("tool_call", {"name": "slow__echo"})
                    return refused.status_code, found
                finally:
                    for task in waiting:
                        task.cancel()
                    await asyncio.gather(*waiting, return_exceptions=True)

        status, result = asyncio.run(call_all())

    assert status == 429
    assert "echo" in result.model_dump_json()


def test_each_of_several_calls_in_a_request_counts():
    tokens = {"ann": {"token": ANN}, "bob": {"token": BOB}}
    with served(SLOW, tokens=tokens, max_calls=2) as gateway:
        assert gateway.known.wait(DEADLINE_SECONDS)

        async def call_all() -> tuple[int, int]:
            async with connected(gateway, BOB) as bob:
                calls = {"calls": [{"name": "slow__wait"}] * 5}
                waiting = asyncio.create_task(bob.call_tool("tool_call", calls))
                server = gateway.gateway.pool.servers["slow"]
                await eventually(lambda: server.running == 2)
                refused = await asyncio.to_thread(post, gateway, BOB, INITIALIZE)
                running = server.waiting + server.running
                waiting.cancel()
                await asyncio.gather(waiting, return_exceptions=True)
                await eventually(lambda: server.running == 0)
                # What they took is free again.
                await eventually(lambda: post(gateway, BOB, INITIALIZE).status_code == 200)
                return refused.status_code, running

        assert asyncio.run(call_all()) == (429, 2)


def test_several_calls_weigh_as_many_requests():
    limiter = Limiter(GatewayConfig(max_requests=100), clock=lambda: 0.0)

    for _ in range(5):
        assert limiter.take_request("bob") is None
    with limiter.take_slots("bob", 9):
        pass

    assert limiter.take_request("bob") is not None


def test_a_hidden_tool_among_several_calls_does_not_exist():
    with served(TIME, SLOW, tokens=TOKENS, profiles=SOME) as gateway:

        async def call_all() -> str:
            for name in ("slow__echo", NOW["name"]):
                await eventually(partial(gateway.gateway.catalog.get, str(name)))
            async with connected(gateway, BOB) as bob:
                calls = [{"name": "slow__echo"}, NOW, {"name": "none__echo"}]
                result = await bob.call_tool("tool_call", {"calls": calls})
                return result.model_dump_json()

        told = asyncio.run(call_all())

    assert told.lower().count("no tool") == 2
    assert "UTC" in told


@pytest.mark.filterwarnings("ignore:Unclosed <Memory:ResourceWarning")  # the SDK's, for /sse
def test_calls_over_the_older_transport_count_as_well():
    tokens = {"ann": {"token": ANN}, "bob": {"token": BOB}}
    with served(SLOW, tokens=tokens, max_calls=2) as gateway:
        assert gateway.known.wait(DEADLINE_SECONDS)

        async def call_all() -> CallToolResult:
            async with open_sse(gateway, BOB) as bob, open_sse(gateway, ANN) as ann:
                waiting = [
                    asyncio.create_task(bob.call_tool("tool_call", {"name": "slow__wait"}))
                    for _ in range(2)
                ]
                server = gateway.gateway.pool.servers["slow"]
                await eventually(lambda: server.waiting + server.running == 2)
                try:
                    with pytest.raises(MCPError, match="2 requests with this token"):
                        await bob.call_tool("tool_call", {"name": "slow__echo"})
                    return await ann.call_tool("tool_call", {"name": "slow__echo"})
                finally:
                    for task in waiting:
                        task.cancel()
                    await asyncio.gather(*waiting, return_exceptions=True)

        result = asyncio.run(call_all())
    gc.collect()

    assert "echo" in result.model_dump_json()


@asynccontextmanager
async def open_sse(gateway: Served, token: str) -> AsyncGenerator[Client]:
    headers = {"Authorization": f"Bearer {token}"}
    async with (
        asyncio.timeout(DEADLINE_SECONDS),
        Client(sse_client(f"{gateway.url}/sse", headers=headers), mode="legacy") as client,
    ):
        yield client


def measure_results(store: MemoryStore) -> int:
    """Return the bytes of all texts that are kept for reading on."""
    keys = [key for key in store.keys(RESULT_KIND) if "/" in key]
    return sum(len(store.read(RESULT_KIND, key) or b"") for key in keys)


def test_long_results_of_one_token_are_kept_up_to_a_sum_over_all_its_sessions():
    store = MemoryStore()
    tokens = {"ann": {"token": ANN}, "bob": {"token": BOB}}
    with served(SLOW, store=store, tokens=tokens, max_stored_bytes=1 << 20) as gateway:
        assert gateway.known.wait(DEADLINE_SECONDS)

        async def keep(client: Client, word: str) -> str:
            """Let a session keep a text of 400,000 bytes; return its handle."""
            call = {"name": "slow__repeat", "arguments": {"word": word, "times": 100_000}}
            said = (await client.call_tool("tool_call", call)).model_dump_json()
            return "result_" + said.partition("result_")[2][:10]

        async def fill() -> tuple[list[str], list[str], int]:
            async with AsyncExitStack() as stack:
                clients = [
                    await stack.enter_async_context(connected(gateway, token, "legacy"))
                    for token in (ANN, BOB, BOB, BOB, BOB)
                ]
                made = [await keep(client, f"w{at:02}") for at, client in enumerate(clients)]
                keys = [key for key in store.keys(RESULT_KIND) if "/" in key]
                kept = [key.rpartition("/")[2] for key in keys]
                return made, kept, measure_results(store)

        made, kept, size = asyncio.run(fill())

    assert set(kept) == {made[0], *made[3:]}
    assert size <= 400_000 + (1 << 20)


def test_results_of_earlier_runs_count_and_those_that_are_gone_do_not():
    store = MemoryStore()
    text = "word " * 60_000
    for number in range(3):
        Results(store, f"http:{number}").cut_page(f"{number} {text}")
        store.write(SESSION_KIND, f"http:{number}", b"{}")
    before = KnownClients(store, 30, lambda name: None)
    for number in range(3):
        before.remember(f"http:{number}", owner="bob", version="", hello={"n": 1})
    clients = KnownClients(store, 30, lambda name: None, max_bytes=1_000_000)
    clients.sweep()
    Results(store, "http:1").clear()

    results = Results(store, "principal:bob")
    results.on_keep = lambda key, size: clients.count_result("bob", key, size)
    results.cut_page(f"3 {text}")
    assert len([key for key in store.keys(RESULT_KIND) if "/" in key]) == 3
    results.cut_page(f"4 {text}")

    sessions = [key.partition("/")[0] for key in store.keys(RESULT_KIND) if "/" in key]
    assert sessions == ["http:2", "principal:bob", "principal:bob"]


def test_sessions_over_the_older_transport_count_as_stored_ones():
    store = MemoryStore()
    clients = KnownClients(store, 30, lambda name: None, kept=2)

    for number in range(4):
        clients.touch(f"sse:{number}", "bob")

    assert store.keys(CLIENT_KIND) == ["sse:2", "sse:3"]


def test_the_sessions_of_a_revoked_token_end():
    with served(tokens=TOKENS, profiles=SOME, max_sessions=2) as gateway:
        for _ in range(2):
            assert post(gateway, BOB, INITIALIZE).status_code == 200
        assert post(gateway, BOB, INITIALIZE).status_code == 429
        asyncio.run(reload(gateway, tokens={"ann": {"token": ANN}}))
        asyncio.run(reload(gateway, tokens=TOKENS))

        assert post(gateway, BOB, INITIALIZE).status_code == 200


def test_people_who_left_are_not_counted_for_ever():
    now = 0.0
    limiter = Limiter(GatewayConfig(), clock=lambda: now)

    for number in range(5_000):
        now += 0.1
        assert limiter.take_request(f"corp:{number}") is None
        limiter.charge_body(f"corp:{number}", 100_000)
        with limiter.count(f"corp:{number}", "too_many_calls"):
            assert limiter.find_problem(f"corp:{number}", "too_many_calls") is None

    assert limiter.count_principals() < 10


def test_a_principal_who_has_used_up_its_requests_is_remembered():
    now = 0.0
    limiter = Limiter(GatewayConfig(max_requests=600), clock=lambda: now)
    answers = [limiter.take_request("bob") for _ in range(61)]

    for number in range(100):
        limiter.take_request(f"corp:{number}")

    assert (answers[59], answers[60] is None) == (None, False)
    assert limiter.take_request("bob") is not None


def test_one_request_does_not_wait_behind_many_of_somebody_else():
    begun: list[str] = []

    async def note(scope: Scope, receive: Receive, send: Send) -> None:
        begun.append(scope[PRINCIPAL].name)
        await Response()(scope, receive, send)

    tokens = {name: TokenConfig(token=token) for name, token in TWO.items()}
    config = GatewayConfig(tokens=tokens)
    guard = RequestGuard(
        note, authenticator=Authenticator(config), limiter=Limiter(config), max_body_bytes=1000
    )

    async def ask_at_once() -> None:
        transport = httpx2.ASGITransport(guard)
        async with (
            httpx2.AsyncClient(transport=transport, base_url="http://localhost/mcp") as client,
            asyncio.TaskGroup() as group,
        ):
            for token in [ANN] * 20 + [BOB]:
                group.create_task(client.post("", headers={"Authorization": f"Bearer {token}"}))

    asyncio.run(ask_at_once())

    assert (begun.count("ann"), begun.count("bob")) == (20, 1)
    assert begun.index("bob") <= 2
