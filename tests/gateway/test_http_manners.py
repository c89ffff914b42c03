"""What clients of the gateway over HTTP keep, for how long, and what is counted of them."""

import asyncio
import json
import time
from collections.abc import AsyncGenerator, Callable, Generator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import mcp_types as types
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from gateway.fleet import TIME, configuration, text_of
from gateway.processes import PAUSE_SECONDS, Running
from serving import DEADLINE_SECONDS, Served, served
from serving import TIME as CLOCK
from toolscout.gateway.resume import CLIENT_KIND, DAY_SECONDS, KnownClients, name_session
from toolscout.schemas import Json
from toolscout.sessions.session_state import SESSION_KIND
from toolscout.stores.memory import MemoryStore

FOUND = "time__convert_time"
ANN, BOB = {"Authorization": "Bearer open sesame"}, {"Authorization": "Bearer swordfish"}
ACCEPT = {"Accept": "application/json, text/event-stream", "MCP-Protocol-Version": "2025-11-25"}
LIST = {"jsonrpc": "2.0", "id": 2, "method": "tools/list"}
HELLO = {
    "protocolVersion": "2025-11-25",
    "capabilities": {},
    "clientInfo": {"name": "test", "version": "1"},
}
TOKENS = """
[gateway.tokens.ann]
token = "open sesame"
[gateway.tokens.bob]
token = "swordfish"
"""


@asynccontextmanager
async def connected(url: str, headers: dict[str, str] | None = None) -> AsyncGenerator[Client]:
    async with (
        httpx2.AsyncClient(headers=headers, timeout=DEADLINE_SECONDS) as http,
        Client(streamable_http_client(f"{url}/mcp", http_client=http), mode="legacy") as client,
    ):
        yield client


async def names(client: Client) -> list[str]:
    return [tool.name for tool in (await client.list_tools()).tools]


async def find(client: Client) -> None:
    """Search until the tool is found; the test's own time limit is the deadline."""
    while FOUND not in await names(client):
        await client.call_tool("tool_search", {"queries": [f"select:{FOUND}"]})
        await asyncio.sleep(PAUSE_SECONDS)


def open_session(url: str, who: dict[str, str]) -> dict[str, str]:
    """Return the headers of a session whose client has found a tool."""
    hello = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": HELLO}
    opened = httpx2.post(f"{url}/mcp", json=hello, headers=ACCEPT | who, timeout=DEADLINE_SECONDS)
    session = {"Mcp-Session-Id": opened.headers["mcp-session-id"], **ACCEPT, **who}
    ready = {"jsonrpc": "2.0", "method": "notifications/initialized"}
    httpx2.post(f"{url}/mcp", json=ready, headers=session)
    params = {"name": "tool_search", "arguments": {"queries": [f"select:{FOUND}"]}}
    search = {"jsonrpc": "2.0", "id": 3, "method": "tools/call", "params": params}
    while FOUND not in listed(url, session).text:
        httpx2.post(f"{url}/mcp", json=search, headers=session, timeout=DEADLINE_SECONDS)
        time.sleep(PAUSE_SECONDS)
    return session


def wait_until(is_so: Callable[[], bool]) -> None:
    end = time.monotonic() + DEADLINE_SECONDS
    while not is_so():
        assert time.monotonic() < end
        time.sleep(PAUSE_SECONDS)


def listed(url: str, session: dict[str, str]) -> httpx2.Response:
    return httpx2.post(f"{url}/mcp", json=LIST, headers=session, timeout=DEADLINE_SECONDS)


# Sessions after a restart


@dataclass(frozen=True, kw_only=True)
class Killed:
    """A gateway that was killed and started again, and sessions that Ann had opened before."""

    gateway: Running
    one: dict[str, str]
    """A session for one test alone, as are the others."""
    another: dict[str, str]
    ended: dict[str, str]
    """A session that Ann has ended."""
    endings: list[int]
    """What was answered when Bob ended it, Ann used it, Ann ended it, and Ann used it again."""
    old: dict[str, str]
    """A session that was last used longer ago than sessions are kept."""


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Generator[Killed]:
    folder = tmp_path_factory.mktemp("gateway")
    config = configuration(folder, {"time": TIME}, mode="dynamic", session_days=1)
    config.write_text(config.read_text() + TOKENS)
    with Running(config) as gateway:
        one, another, ended, old = (open_session(gateway.url, ANN) for _ in range(4))
        endings = [
            httpx2.delete(f"{gateway.url}/mcp", headers=ended | BOB).status_code,
            listed(gateway.url, ended).status_code,
            httpx2.delete(f"{gateway.url}/mcp", headers=ended).status_code,
            listed(gateway.url, ended).status_code,
        ]
        gateway.kill()
        make_older(folder / "gateway.db", old["Mcp-Session-Id"], days=2)
        gateway.start()
        yield Killed(
            gateway=gateway, one=one, another=another, ended=ended, endings=endings, old=old
        )


def test_a_client_goes_on_with_its_loaded_tools_when_the_gateway_was_killed(killed: Killed):
    async def work(gateway: Running) -> tuple[list[str], list[str], str]:
        async with connected(gateway.url, ANN) as client:
            await find(client)
            before = await names(client)
            await asyncio.to_thread(gateway.restart)
            arguments = {"source_timezone": "UTC", "time": "12:00", "target_timezone": "UTC"}
            return before, await names(client), text_of(await client.call_tool(FOUND, arguments))

    before, after, called = asyncio.run(work(killed.gateway))

    assert before[-1] == FOUND
    assert after == before
    assert json.loads(called)["target"]["timezone"] == "UTC"


def test_the_client_keeps_its_session_id_and_many_requests_at_once_open_one_session(killed: Killed):
    async def ask_at_once(url: str, session: dict[str, str]) -> list[httpx2.Response]:
        async with httpx2.AsyncClient(headers=session, timeout=DEADLINE_SECONDS) as http:
            asks = [http.post(f"{url}/mcp", json={**LIST, "id": number}) for number in range(2, 10)]
            return await asyncio.gather(*asks)

    answers = asyncio.run(ask_at_once(killed.gateway.url, killed.one))

    assert all(FOUND in answer.text for answer in answers)
    sessions = {answer.headers["mcp-session-id"] for answer in answers}
    assert sessions == {killed.one["Mcp-Session-Id"]}


def test_after_a_restart_a_session_is_given_back_to_its_own_principal_alone(killed: Killed):
    url, session = killed.gateway.url, killed.another

    others = [listed(url, session | BOB).status_code for _ in range(2)]
    own = listed(url, session)
    late = listed(url, session | BOB).status_code

    assert others == [404, 404]
    assert FOUND in own.text
    assert late == 404


def test_the_messages_of_a_handshake_may_go_to_different_gateways():
    store = MemoryStore()
    hello = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": HELLO}
    ready = {"jsonrpc": "2.0", "method": "notifications/initialized"}

    with served(store=store) as one, served(store=store) as other:
        opened = httpx2.post(f"{one.url}/mcp", json=hello, headers=ACCEPT, timeout=DEADLINE_SECONDS)
        session = {"Mcp-Session-Id": opened.headers["mcp-session-id"], **ACCEPT}
        greeted = httpx2.post(f"{other.url}/mcp", json=ready, headers=session)
        answer = listed(other.url, session)

    assert greeted.status_code == 202
    assert "tool_search" in answer.text


def test_a_session_opened_without_a_token_is_nobodys_once_tokens_are_asked_for():
    store = MemoryStore()
    tokens = {"anonymous": {"token": "open sesame"}}

    with served(CLOCK, mode="dynamic", store=store) as gateway:
        session = open_session(gateway.url, {})
    with served(CLOCK, mode="dynamic", store=store) as gateway:
        still = listed(gateway.url, session)
    with served(CLOCK, mode="dynamic", store=store, tokens=tokens) as gateway:
        answer = listed(gateway.url, session | ANN)

    assert FOUND in still.text
    assert answer.status_code == 404


def test_a_session_that_its_client_has_ended_does_not_come_back(killed: Killed):
    foreign, still, ended, gone = killed.endings

    later = listed(killed.gateway.url, killed.ended).status_code

    assert (foreign, still) == (404, 200)
    assert (ended, gone, later) == (200, 404, 404)


def test_an_id_that_was_never_given_is_unknown(killed: Killed):
    answer = listed(killed.gateway.url, ACCEPT | ANN | {"Mcp-Session-Id": "f" * 32})

    assert answer.status_code == 404


# How long sessions are kept


class Keeper:
    """Known clients over a store, with a clock that is set by hand."""

    def __init__(self, days: float = 30) -> None:
        self.now = 1_000_000_000.0
        self.store = MemoryStore()
        self.forgotten: list[str] = []
        self.clients = KnownClients(self.store, days, self.forgotten.append, clock=lambda: self.now)

    def greet(self, name: str) -> None:
        self.clients.remember(name, owner=None, version="2025-11-25", hello=HELLO)

    def pass_days(self, days: float) -> None:
        self.now += days * DAY_SECONDS


def test_a_client_that_stays_away_is_forgotten_with_its_session():
    keeper = Keeper()
    keeper.greet("http:away")
    keeper.pass_days(20)
    keeper.greet("http:here")
    keeper.pass_days(11)

    gone = keeper.clients.sweep()

    assert (gone, keeper.forgotten) == (1, ["http:away"])
    assert keeper.store.keys(CLIENT_KIND) == ["http:here"]


def test_a_client_that_asks_now_and_then_is_kept():
    keeper = Keeper()
    keeper.greet("http:busy")
    for _ in range(5):
        keeper.pass_days(20)
        keeper.clients.touch("http:busy")
        keeper.clients.sweep()

    client = keeper.clients.read("http:busy")

    assert client is not None
    assert client.hello == HELLO


def test_a_client_beyond_its_time_is_unknown_even_before_the_next_sweep():
    keeper = Keeper()
    keeper.greet("http:away")
    keeper.pass_days(31)

    assert keeper.clients.read("http:away") is None


def test_sessions_of_which_nothing_else_is_known_go_in_time_and_that_of_stdio_stays():
    keeper = Keeper()
    for name in ("http:old", "sse:old", "principal:ann", "stdio"):
        keeper.store.write(SESSION_KIND, name, b"{}")
    keeper.clients.sweep()
    keeper.pass_days(31)

    keeper.clients.sweep()

    assert sorted(keeper.forgotten) == ["http:old", "principal:ann", "sse:old"]


def test_what_a_client_is_subscribed_to_is_kept():
    keeper = Keeper()
    keeper.greet("http:one")
    for uri in ("a://1", "a://2", "a://1"):
        keeper.clients.subscribe("http:one", uri, wanted=True)
    keeper.clients.subscribe("http:one", "a://2", wanted=False)

    client = keeper.clients.read("http:one")

    assert client is not None
    assert client.resources == ("a://1",)


def test_what_another_version_wrote_is_no_client():
    keeper = Keeper()
    for number, data in enumerate((b"{", b"[]", b'{"resources": []}', b'{"seen": "long ago"}')):
        keeper.store.write(CLIENT_KIND, f"http:{number}", data)

    assert [keeper.clients.read(name) for name in keeper.store.keys(CLIENT_KIND)] == [None] * 4
    assert keeper.clients.sweep() == 4


def test_a_client_of_a_version_without_subscriptions_is_known():
    keeper = Keeper()
    row = {"seen": keeper.now, "hello": HELLO, "version": "2025-11-25"}
    keeper.store.write(CLIENT_KIND, "http:one", json.dumps(row).encode())

    client = keeper.clients.read("http:one")

    assert client is not None
    assert (client.hello, client.resources) == (HELLO, ())
    assert keeper.clients.sweep() == 0


def test_old_sessions_are_removed_when_the_gateway_starts(killed: Killed):
    answer = listed(killed.gateway.url, killed.old)

    assert answer.status_code == 404


def make_older(file: Path, session_id: str, *, days: float) -> None:
    from toolscout.stores.sqlite import SqliteStore

    name = name_session(session_id)
    with SqliteStore(file) as store:
        client = json.loads(store.read(CLIENT_KIND, name) or b"")
        client["seen"] -= days * DAY_SECONDS
        store.write(CLIENT_KIND, name, json.dumps(client).encode())


# What is counted


@pytest.fixture(scope="module")
def gateway() -> Generator[Served]:
    """A gateway that nobody has asked anything."""
    with served(CLOCK, mode="direct") as running_gateway:
        assert running_gateway.known.wait(DEADLINE_SECONDS)
        yield running_gateway


def listed_tokens(gateway: Served) -> float:
    page = httpx2.get(f"{gateway.url}/metrics", timeout=DEADLINE_SECONDS).text
    rows = [line for line in page.splitlines() if line.startswith("toolscout_listed_tokens_total")]
    return float(rows[0].split()[-1])


def ask(gateway: Served, method: str, **params: Any) -> httpx2.Response:
    """Ask as a client of 2026-07-28 does, and nothing beside."""
    answer = posted(gateway, method, params, str(params.get("name", "")))
    assert answer.status_code == 200
    return answer


def posted(gateway: Served, method: str, params: Json, named: str) -> httpx2.Response:
    """Post a request whose header names a tool, or nothing."""
    key = "io.modelcontextprotocol"
    version = "2026-07-28"
    meta: Json = {f"{key}/protocolVersion": version, f"{key}/clientCapabilities": {}}
    body: Json = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {**params, "_meta": meta}}
    headers = {**ACCEPT, "MCP-Protocol-Version": version, "Mcp-Method": method}
    if named:
        headers["Mcp-Name"] = named
    return httpx2.post(f"{gateway.url}/mcp", json=body, headers=headers, timeout=DEADLINE_SECONDS)


@pytest.mark.parametrize("tool", ["tool_call", "time__get_current_time"])
def test_a_call_counts_no_list_and_a_list_counts_one(gateway: Served, tool: str):
    own = {"name": "time__get_current_time", "arguments": {"timezone": "UTC"}}
    before = listed_tokens(gateway)

    answer = ask(
        gateway, "tools/call", name=tool, arguments=own if tool == "tool_call" else own["arguments"]
    )
    called = listed_tokens(gateway)
    ask(gateway, "tools/list")

    assert "UTC" in answer.text
    assert called == before
    assert listed_tokens(gateway) > called


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("tool_search", {"queries": ["current time"]}),
        ("tool_describe", {"names": ["time__get_current_time"]}),
    ],
)
def test_a_search_and_a_description_are_answered_with_json(
    gateway: Served, tool: str, arguments: Json
):
    answer = ask(gateway, "tools/call", name=tool, arguments=arguments)

    assert answer.headers["content-type"] == "application/json"
    assert "time__get_current_time" in answer.json()["result"]["content"][0]["text"]


@pytest.mark.parametrize("named", ["tool_search", "tool_call"])
def test_no_tool_is_called_under_the_name_of_another(gateway: Served, named: str):
    params: Json = {"name": "time__get_current_time", "arguments": {"timezone": "UTC"}}

    answer = posted(gateway, "tools/call", params, named)

    assert answer.status_code == 400
    assert "result" not in answer.json()


SEARCH: Json = {
    "jsonrpc": "2.0",
    "id": "a",
    "method": "tools/call",
    "params": {
        "name": "tool_search",
        "arguments": {"queries": ["current time"]},
        "_meta": {
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": {},
        },
    },
}
NAMED = [
    ("Accept", ACCEPT["Accept"]),
    ("Content-Type", "application/json"),
    ("MCP-Protocol-Version", "2026-07-28"),
    ("Mcp-Method", "tools/call"),
    ("Mcp-Name", "tool_search"),
]


def send_search(
    gateway: Served, body: Any, headers: Sequence[tuple[str, str]] = NAMED
) -> httpx2.Response:
    url = f"{gateway.url}/mcp"
    data = json.dumps(body).encode() if isinstance(body, dict | list) else body
    return httpx2.post(url, content=data, headers=headers, timeout=DEADLINE_SECONDS)


def split_search() -> Generator[bytes]:
    """Return a body whose length nobody knows before its end."""
    data = json.dumps(SEARCH).encode()
    yield data[:20]
    yield data[20:]


def test_a_request_whose_length_is_unknown_is_answered_like_any_other(gateway: Served):
    whole = send_search(gateway, SEARCH)
    parts = send_search(gateway, split_search())

    assert whole.status_code == parts.status_code == 200
    assert parts.json()["id"] == "a"
    assert whole.json() == parts.json()


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"{", types.PARSE_ERROR),
        ([SEARCH], types.INVALID_REQUEST),
        ({**SEARCH, "jsonrpc": "1.0"}, types.INVALID_REQUEST),
        ({**SEARCH, "id": True}, types.INVALID_REQUEST),
        ({**SEARCH, "params": {**SEARCH["params"], "_meta": {}}}, types.INVALID_PARAMS),
        ({**SEARCH, "params": {**SEARCH["params"], "arguments": 1}}, types.INVALID_PARAMS),
        ({**SEARCH, "method": "tools/list"}, types.HEADER_MISMATCH),
    ],
)
def test_a_search_that_breaks_the_protocol_is_refused_with_the_code_for_it(
    gateway: Served, body: object, code: int
):
    answer = send_search(gateway, body)

    assert answer.json()["error"]["code"] == code
    assert "result" not in answer.json()


def test_a_search_whose_headers_name_two_tools_is_refused(gateway: Served):
    answer = send_search(gateway, SEARCH, [*NAMED, ("Mcp-Name", "tool_call")])

    assert answer.status_code == 400
    assert answer.json()["error"]["code"] == types.HEADER_MISMATCH


def test_a_client_that_reads_no_json_is_told_so(gateway: Served):
    headers = [("Accept", "text/html"), *NAMED[1:]]

    assert send_search(gateway, SEARCH, headers).status_code == 406
