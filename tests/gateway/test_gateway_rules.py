"""Rules of the configuration: who may call what, and what a person has to agree to first."""

import asyncio
import json
import time
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx2
import mcp_types as types
import pytest
from click.testing import CliRunner
from mcp.client import Client
from mcp.client.stdio import StdioServerParameters
from mcp.client.streamable_http import streamable_http_client

from gateway.fleet import text_of
from serving import DEADLINE_SECONDS, TIME, Served, served
from toolscout.cli import main
from toolscout.config.file import Config
from toolscout.gateway.audit import read_entries
from toolscout.gateway.pending import (
    REQUESTS_KEPT,
    ApprovalRequest,
    CallApprovals,
    decide_request,
    list_requests,
)
from toolscout.schemas import Json
from toolscout.stores import SqliteStore
from toolscout.stores.memory import MemoryStore

TOKENS = {
    "ann": {"token": "ann, ann, ann, ann, ann, ann"},
    "bob": {"token": "bob, bob, bob, bob, bob, bob", "profile": "guests"},
}
PROFILES = {"guests": {"servers": ["*"]}}
NOW = "time__get_current_time"
CONVERT = "time__convert_time"
both_eras = pytest.mark.parametrize("mode", ["auto", "legacy"])
Rules = Mapping[str, Mapping[str, object]]


class Person:
    """A user who is asked, and gives the same answer each time."""

    def __init__(self, decision: str | None, action: str = "accept") -> None:
        self.questions: list[str] = []
        self._answer = types.ElicitResult.model_validate(
            {"action": action, "content": {"decision": decision} if decision else None}
        )

    async def __call__(self, context: Any, params: Any) -> types.ElicitResult:
        self.questions.append(params.message)
        return self._answer


@asynccontextmanager
async def client_of(
    running: Served, who: str = "ann", person: Person | None = None, mode: str = "auto"
) -> AsyncGenerator[Client]:
    headers = {"Authorization": f"Bearer {TOKENS[who]['token']}"}
    async with (
        asyncio.timeout(DEADLINE_SECONDS),
        httpx2.AsyncClient(headers=headers, timeout=DEADLINE_SECONDS) as http,
        Client(
            streamable_http_client(f"{running.url}/mcp", http_client=http),
            mode=mode,
            elicitation_callback=person,
        ) as client,
    ):
        yield client


def serve(rules: Rules, store: Any = None, **options: Any) -> Any:
    return served(TIME, store=store, tokens=TOKENS, profiles=PROFILES, rules=rules, **options)


async def call(client: Client, name: str, zone: str = "UTC") -> tuple[str, bool]:
    arguments = {"timezone": zone}
    result = await client.call_tool("tool_call", {"name": name, "arguments": arguments})
    return text_of(result), bool(result.is_error)


async def search(client: Client) -> str:
    return text_of(await client.call_tool("tool_search", {"queries": ["what time is it"]}))


def talk(running: Served, work: Callable[[], Any]) -> None:
    assert running.known.wait(DEADLINE_SECONDS)
    asyncio.run(work())


def test_a_call_that_no_rule_matches_may_be_made():
    with serve({"none": {"permission": "deny", "servers": ["other"]}}) as running:

        async def work() -> None:
            async with client_of(running) as ann:
                assert "UTC" in (await call(ann, NOW))[0]

        talk(running, work)


def test_a_tool_that_a_rule_denies_does_not_exist_for_whom_it_is_denied():
    rule = {"permission": "deny", "profiles": ["guests"], "tools": [NOW]}
    with serve({"guests": rule}) as running:

        async def work() -> None:
            async with client_of(running, "ann") as ann, client_of(running, "bob") as bob:
                assert NOW in await search(ann)
                found = await search(bob)
                assert NOW not in found
                assert CONVERT in found
                text, is_error = await call(bob, NOW)
                assert is_error
                assert f"no tool '{NOW}'" in text.lower()

        talk(running, work)


def test_the_first_rule_that_matches_decides_and_arguments_count():
    rules = {
        "home": {"permission": "allow", "arguments": {"timezone": "Europe/*"}},
        "abroad": {"permission": "deny", "tools": [NOW], "reason": "We stay in Europe."},
    }
    store = MemoryStore()
    with serve(rules, store) as running:

        async def work() -> None:
            async with client_of(running) as ann:
                assert NOW in await search(ann)
                allowed, _ = await call(ann, NOW, "Europe/Oslo")
                denied, is_error = await call(ann, NOW, "Asia/Tokyo")
                assert "Europe/Oslo" in allowed
                assert is_error
                assert "We stay in Europe" in denied

        talk(running, work)

    entries = [entry for entry in read_entries(store) if entry["event"] in ("call", "refusal")]
    assert [(entry["event"], entry["rule"]) for entry in entries] == [
        ("call", "home"),
        ("refusal", "abroad"),
    ]


def test_a_reload_changes_the_rules_of_sessions_that_exist():
    with serve({}) as running:

        async def work() -> None:
            async with client_of(running) as ann:
                assert not (await call(ann, NOW))[1]
                gateway = running.gateway
                options = replace(
                    gateway.config.gateway, rules={"no": {"permission": "deny", "tools": [NOW]}}
                )
                changed = Config(servers=gateway.config.servers, gateway=options)
                reloading = asyncio.run_coroutine_threadsafe(gateway.reload(changed), running.loop)
                await asyncio.wrap_future(reloading)
                assert (await call(ann, NOW))[1]

        talk(running, work)


# Asking

ASK: Rules = {"careful": {"permission": "ask", "tools": [NOW], "reason": "Clocks are dear."}}


@both_eras
def test_a_person_is_asked_with_the_real_tool_its_server_and_its_arguments(mode: str):
    person = Person("once")
    with serve(ASK) as running:

        async def work() -> None:
            async with client_of(running, person=person, mode=mode) as ann:
                assert "Asia/Tokyo" in (await call(ann, NOW, "Asia/Tokyo"))[0]

        talk(running, work)

    [question] = person.questions
    for part in ("get_current_time", "time", "Asia/Tokyo", "Clocks are dear."):
        assert part in question


@both_eras
def test_an_approval_is_for_one_call_unless_the_person_says_session(mode: str):
    once = Person("once")
    session = Person("session")
    with serve(ASK) as running:

        async def work() -> None:
            async with client_of(running, person=once, mode=mode) as ann:
                for _ in range(2):
                    assert not (await call(ann, NOW))[1]
            async with client_of(running, person=session, mode=mode) as ann:
                for zone in ("UTC", "Asia/Tokyo"):
                    assert not (await call(ann, NOW, zone))[1]

        talk(running, work)

    assert (len(once.questions), len(session.questions)) == (2, 1)


@both_eras
@pytest.mark.parametrize(
    ("decision", "action"), [("no", "accept"), (None, "decline"), (None, "cancel"), ("x", "accept")]
)
def test_anything_but_yes_is_no(mode: str, decision: str | None, action: str):
    person = Person(decision, action)
    store = MemoryStore()
    with serve(ASK, store) as running:

        async def work() -> None:
            async with client_of(running, person=person, mode=mode) as ann:
                text, is_error = await call(ann, NOW)
                assert is_error
                assert "the user said no" in text

        talk(running, work)

    assert len(person.questions) == 1
    entries = list(read_entries(store))
    [answer] = [entry for entry in entries if entry["event"] == "approval"]
    assert (answer["rule"], answer["outcome"], answer["principal"]) == (
        *("careful", "declined", "ann"),
    )
    assert not [entry for entry in entries if entry["event"] == "call"]


def test_an_approval_in_one_session_is_not_one_in_another():
    yes = Person("session")
    no = Person("no")
    with serve(ASK) as running:

        async def work() -> None:
            async with (
                client_of(running, "ann", yes) as ann,
                client_of(running, "bob", no) as bob,
            ):
                assert not (await call(ann, NOW))[1]
                assert (await call(bob, NOW))[1]

        talk(running, work)

    assert len(no.questions) == 1


def test_a_client_cannot_answer_with_the_state_of_another_call():
    """What was asked about a harmless call does not approve a dangerous one."""
    with serve(ASK) as running:

        async def send(http: httpx2.AsyncClient, **params: Any) -> Json:
            meta: Json = {
                "io.modelcontextprotocol/protocolVersion": "2026-07-28",
                "io.modelcontextprotocol/clientInfo": {"name": "raw", "version": "1"},
                "io.modelcontextprotocol/clientCapabilities": {"elicitation": {}},
            }
            body: Json = {
                "jsonrpc": "2.0",
                "id": 1,
                "method": "tools/call",
                "params": {"name": "tool_call", "_meta": meta, **params},
            }
            answer = await http.post(
                f"{running.url}/mcp",
                json=body,
                headers={
                    "Accept": "application/json, text/event-stream",
                    "MCP-Protocol-Version": "2026-07-28",
                    "Mcp-Method": "tools/call",
                    "Mcp-Name": "tool_call",
                    "Authorization": f"Bearer {TOKENS['ann']['token']}",
                },
            )
            lines = [line for line in answer.text.splitlines() if line.startswith("data: {")]
            return json.loads(lines[-1][6:] if lines else answer.text)["result"]

        async def work() -> None:
            yes = {"approval": {"action": "accept", "content": {"decision": "once"}}}
            harmless = {"name": NOW, "arguments": {"timezone": "UTC"}}
            dangerous = {"name": NOW, "arguments": {"timezone": "Asia/Tokyo"}}
            async with httpx2.AsyncClient(timeout=DEADLINE_SECONDS) as http:
                asked = await send(http, arguments=harmless)
                state = asked["requestState"]
                other = await send(
                    http, arguments=dangerous, inputResponses=yes, requestState=state
                )
                again = await send(http, arguments=harmless, inputResponses=yes, requestState=state)
            assert asked["resultType"] == "input_required"
            assert other["resultType"] == "input_required"  # asked anew
            assert again["resultType"] == "input_required"  # a state is used up

        talk(running, work)


# Clients that cannot ask


def test_a_client_that_cannot_ask_learns_the_command_that_approves(tmp_path: Path):
    file = tmp_path / "gateway.db"
    config = tmp_path / "toolscout.toml"
    config.write_text(f'[gateway]\ncache = "{file}"\n', encoding="utf-8")
    store = SqliteStore(file)
    commands: list[str] = []

    async def refuse(client: Client, zone: str) -> str:
        text, is_error = await call(client, NOW, zone)
        assert is_error
        assert "toolscout policy approve" in text
        return text.split("`")[1].removeprefix("toolscout policy approve ")

    def approve(digest: str, *options: str) -> None:
        words = ["policy", "approve", digest, *options, "--config", str(config)]
        done = CliRunner().invoke(main, words)
        assert done.exit_code == 0, done.output
        commands.append(done.stdout)

    with serve(ASK, store) as running:

        async def work() -> None:
            async with client_of(running) as ann, client_of(running, "bob") as bob:
                first = await refuse(ann, "UTC")
                assert await refuse(ann, "UTC") == first  # nobody has approved it yet
                assert await refuse(bob, "UTC") != first
                await asyncio.to_thread(approve, first)
                assert await refuse(ann, "Asia/Tokyo") != first
                assert not (await call(ann, NOW, "UTC"))[1]
                assert await refuse(ann, "UTC") == first  # it was for one call
                await asyncio.to_thread(approve, first, "--session")
                for zone in ("UTC", "Asia/Tokyo"):
                    assert not (await call(ann, NOW, zone))[1]

        talk(running, work)
    store.close()

    assert commands[0] == f'ann may call {NOW} once, with {{"timezone": "UTC"}}.\n'


def test_a_call_that_a_person_denied_is_refused_and_nobody_is_asked_again(tmp_path: Path):
    store = MemoryStore()
    with serve(ASK, store) as running:

        async def work() -> None:
            async with client_of(running) as ann:
                text = (await call(ann, NOW))[0]
                [waiting] = list_requests(store)
                assert waiting in text
                decide_request(store, waiting, "denied", "ann")
                for _ in range(2):
                    text, is_error = await call(ann, NOW)
                    assert is_error
                    assert "the user said no" in text
                assert "needs the user's approval" in (await call(ann, NOW, "Asia/Tokyo"))[0]

        talk(running, work)


def test_one_approval_lets_one_of_many_equal_calls_through():
    store = MemoryStore()
    with serve(ASK, store) as running:

        async def work() -> None:
            async with client_of(running) as ann:
                await call(ann, NOW)
                [waiting] = list_requests(store)
                decide_request(store, waiting, "once", "ann")
                results = await asyncio.gather(*(call(ann, NOW) for _ in range(8)))
                assert sorted(is_error for _, is_error in results) == [False] + [True] * 7

        talk(running, work)

    entries = [entry for entry in read_entries(store) if entry["event"] == "approval"]
    assert [(entry["outcome"], entry["by"]) for entry in entries] == [("used", "ann")]


def test_arguments_of_waiting_calls_hide_secrets_and_show_what_is_cut_or_invisible():
    store = MemoryStore()
    secret = "hunter2-hunter2-hunter2"
    server = replace(TIME, env={"API_KEY": secret})
    with served(server, store=store, tokens=TOKENS, profiles=PROFILES, rules=ASK) as running:

        async def work() -> None:
            async with client_of(running) as ann:
                await call(ann, NOW, "UTC\u202e\u200b")
                await call(ann, NOW, secret)
                await call(ann, NOW, "x" * 3_000)

        talk(running, work)

    cut, masked, escaped = [request.arguments for request in list_requests(store).values()]
    assert escaped == '{"timezone": "UTC\\u202e\\u200b"}'
    assert masked == '{"timezone": "…"}'
    assert len(cut) < 2_100
    assert cut.endswith("more characters are not shown)")


def test_waiting_calls_of_one_caller_do_not_push_out_those_of_another():
    store = MemoryStore()
    approvals = CallApprovals(store)

    def ask(principal: str, number: int) -> None:
        request = ApprovalRequest(
            principal=principal,
            session="",
            tool=NOW,
            server="time",
            arguments="{}",
            rule="",
            asked=time.time(),
        )
        approvals.find_stored(f"{principal}-{number}", request)

    ask("ann", 0)
    for number in range(REQUESTS_KEPT + 20):
        ask("eve", number)

    kept = list_requests(store)
    assert len(kept) == REQUESTS_KEPT
    assert "ann-0" in kept
    assert f"eve-{REQUESTS_KEPT + 19}" in kept


def test_a_gateway_over_stdio_obeys_the_rules_for_its_profile(tmp_path: Path):
    config = tmp_path / "toolscout.toml"
    config.write_text(
        f"""
[servers.time]
command = {json.dumps(TIME.command)}
args = {json.dumps(list(TIME.args))}
[gateway]
cache = {json.dumps(str(tmp_path / "gateway.db"))}
[gateway.profiles.guests]
[gateway.rules.guests]
permission = "deny"
profiles = ["guests"]
tools = ["{NOW}"]
""",
        encoding="utf-8",
    )

    async def find(*options: str) -> str:
        words = ["-m", "toolscout", "serve", "--config", str(config), "--no-daemon", *options]
        server = StdioServerParameters(command=TIME.command, args=words)
        async with asyncio.timeout(DEADLINE_SECONDS), Client(server) as client:
            return await search(client)

    assert NOW in asyncio.run(find())
    assert NOW not in asyncio.run(find("--profile", "guests"))
