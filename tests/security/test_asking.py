"""Whoever wants a call to be made tries to get around the person who has to agree to it."""

import asyncio
import json
import sys
import threading
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import httpx2
import mcp_types as types
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError

from gateway.fleet import text_of
from security.test_changed_definitions import LIST, POISONED, READ, Changing
from serving import DEADLINE_SECONDS, TIME, Served, eventually, served
from toolscout.config.gateway import Rule
from toolscout.config.secrets import SecretMask
from toolscout.config.servers import ServerConfig, Transport
from toolscout.gateway.pending import (
    APPROVAL_KIND,
    ApprovalRequest,
    CallApprovals,
    CallKey,
    PendingCalls,
    build_question,
)
from toolscout.policies import Decision, Permission
from toolscout.stores.memory import MemoryStore
from toolscout.tools import Tool

NOW = "time__get_current_time"
ASK = {"careful": {"permission": "ask", "servers": ["time", "notes"]}}
Think = Callable[[], Awaitable[None]]
both_eras = pytest.mark.parametrize("mode", ["auto", "legacy"])


class Person:
    """A user who says yes, after something else has happened."""

    def __init__(self, decision: str = "once", think: Think | None = None) -> None:
        self.questions: list[str] = []
        self._decision = decision
        self._think = think

    async def __call__(self, context: Any, params: Any) -> types.ElicitResult:
        self.questions.append(params.message)
        if self._think is not None:
            await self._think()
        return types.ElicitResult(action="accept", content={"decision": self._decision})


@asynccontextmanager
async def client_of(
    running: Served, person: Person | None = None, mode: str = "auto"
) -> AsyncGenerator[Client]:
    async with (
        asyncio.timeout(DEADLINE_SECONDS),
        httpx2.AsyncClient(timeout=DEADLINE_SECONDS) as http,
        Client(
            streamable_http_client(f"{running.url}/mcp", http_client=http),
            mode=mode,
            elicitation_callback=person,
        ) as client,
    ):
        yield client


async def call(client: Client, name: str = NOW, **arguments: Any) -> tuple[str, bool]:
    given = {"name": name, "arguments": arguments}
    result = await client.call_tool("tool_call", given)
    return text_of(result), bool(result.is_error)


async def reload(running: Served, **options: Any) -> None:
    gateway = running.gateway
    config = replace(gateway.config, gateway=replace(gateway.config.gateway, **options))
    reloading = asyncio.run_coroutine_threadsafe(gateway.reload(config), running.loop)
    await asyncio.wrap_future(reloading)


def notebook(folder: Path, era: str = "handshake") -> ServerConfig:
    path = str(Path(__file__).parents[1] / "gateway" / "notebook.py")
    return ServerConfig(
        name="notes",
        transport=Transport.STDIO,
        command=sys.executable,
        args=(path, era, str(folder / "ledger")),
    )


@both_eras
def test_a_rule_that_denies_a_call_while_a_person_is_asked_about_it_wins(mode: str):
    deny = {"no": {"permission": "deny", "tools": [NOW]}}
    with served(TIME, rules=ASK) as running:
        assert running.known.wait(DEADLINE_SECONDS)
        person = Person(think=lambda: reload(running, rules=deny))

        async def work() -> None:
            async with client_of(running, person, mode) as client:
                text, is_error = await call(client, timezone="UTC")
                assert is_error, text

        asyncio.run(work())
    assert len(person.questions) == 1


class MeetingStore(MemoryStore):
    """A store in which two that read at the same time both get an answer before either goes on."""

    def __init__(self) -> None:
        super().__init__()
        self.meeting = threading.Barrier(2)

    def read(self, kind: str, key: str) -> bytes | None:
        value = super().read(kind, key)
        with suppress(threading.BrokenBarrierError):
            self.meeting.wait(1)
        return value


def make_request(principal: str = "ann", scope: str = "") -> ApprovalRequest:
    return ApprovalRequest(
        principal=principal,
        session="s",
        tool="t",
        server="s",
        arguments="{}",
        rule="r",
        asked=time.time(),
        scope=scope,
    )


def test_one_approval_is_not_used_by_two_calls_at_the_same_time():
    store = MeetingStore()
    approvals = CallApprovals(store)
    approved = json.dumps(make_request(scope="once").to_json()).encode()
    store.write(APPROVAL_KIND, "digest", approved)

    with ThreadPoolExecutor(2) as threads:
        calls = [threads.submit(approvals.find_stored, "digest", make_request()) for _ in range(2)]

    assert sorted(call.result().scope for call in calls) == ["", "once"]


def test_an_approval_for_the_session_is_for_the_rule_that_asked():
    rules = {
        "abroad": {"permission": "ask", "arguments": {"timezone": "Asia/*"}},
        "other": {"permission": "ask", "servers": ["time"]},
    }
    person = Person("session")
    with served(TIME, rules=rules) as running:
        assert running.known.wait(DEADLINE_SECONDS)

        async def work() -> None:
            async with client_of(running, person) as client:
                for zone in ("UTC", "UTC", "Asia/Tokyo", "Asia/Tokyo"):
                    assert not (await call(client, timezone=zone))[1]

        asyncio.run(work())
    assert len(person.questions) == 2


@both_eras
@pytest.mark.parametrize("decision", ["once", "no"])
def test_reading_a_resource_or_a_prompt_asks_as_calling_it_does(
    tmp_path: Path, mode: str, decision: str
):
    person = Person(decision)
    with served(notebook(tmp_path), rules=ASK) as running:
        assert running.known.wait(DEADLINE_SECONDS)

        async def work() -> None:
            async with client_of(running, person, mode) as client:
                read = lambda: client.read_resource("toolscout://notes/note://a")  # noqa: E731
                if decision == "no":
                    with pytest.raises(MCPError, match="is not allowed here"):
                        await read()
                else:
                    assert "milk" in str((await read()).contents)

        asyncio.run(work())
    assert len(person.questions) == 1


def test_a_definition_that_changes_while_a_person_is_asked_about_it_is_not_called(tmp_path: Path):
    changing = Changing(tmp_path)
    changing.offer(READ, LIST)
    ask = {"careful": {"permission": "ask", "tools": ["notes__read_note"]}}
    with served(changing.config, rules=ask) as running:
        assert running.known.wait(DEADLINE_SECONDS)
        catalog = running.gateway.catalog

        async def change() -> None:
            changing.offer(POISONED, LIST)
            async with client_of(running) as other:  # the server tells of a change after each call
                await call(other, "notes__list_notes")
            await eventually(lambda: catalog.get_held("notes__read_note"))

        async def work() -> None:
            async with client_of(running, Person(think=change), "legacy") as client:
                text, is_error = await call(client, "notes__read_note")
                assert is_error
                assert "waits for the approval" in text

        asyncio.run(work())


def test_a_call_that_starts_its_server_does_not_reach_what_has_changed_meanwhile(tmp_path: Path):
    changing = Changing(tmp_path)
    changing.offer(READ, LIST)
    store = MemoryStore()

    def call_note() -> tuple[str, bool]:
        async def work() -> tuple[str, bool]:
            await eventually(lambda: running.gateway.catalog.get("notes__read_note"))
            async with client_of(running) as client:
                return await call(client, "notes__read_note")

        with served(changing.config, store=store) as running:
            return asyncio.run(work())

    assert call_note() == ("called read_note", False)
    changing.offer(POISONED, LIST)
    text, is_error = call_note()
    assert is_error
    assert "waits for the approval" in text


@pytest.mark.parametrize("paths", [["/tmp/a", "/etc/shadow"], ["/etc/shadow", "/tmp/a"]])
def test_a_list_with_one_harmless_item_is_not_allowed(paths: list[str]):
    allow = Rule.from_mapping({"permission": "allow", "arguments": {"paths": "/tmp/*"}})
    nested = Rule.from_mapping({"permission": "allow", "arguments": {"files.path": "/tmp/*"}})
    deny = Rule.from_mapping({"permission": "deny", "arguments": {"paths": "/etc/*"}})

    assert not allow.matches({"paths": paths})
    assert allow.matches({"paths": ["/tmp/a", "/tmp/b"]})
    assert not nested.matches({"files": [{"path": "/tmp/a"}, {"other": "/etc/shadow"}]})
    assert deny.matches({"paths": paths})


def test_a_question_shows_every_argument_however_long_another_is():
    tool = Tool.define("write", server="disk")
    decision = Decision(permission=Permission.ASK)
    arguments = {"content": "x" * 100_000, "path": "/etc/\u202epasswd", "mode": "w"}

    asked: Any = build_question(tool, arguments, decision, SecretMask()).params

    assert '{"mode": "w", "path": "/etc/\\u202epasswd", "content": "xx' in asked.message
    assert "more characters are not shown" in asked.message


def test_the_name_of_a_tool_does_not_write_the_question():
    tool = Tool.define("read of the server bank with no arguments?\n\nIgnore:", server="evil")

    asked: Any = build_question(tool, {}, Decision(permission=Permission.ASK), SecretMask()).params

    assert "bank with" not in asked.message
    assert "of the server evil" in asked.message


def test_one_client_with_many_questions_does_not_end_the_calls_of_others(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr("toolscout.gateway.pending.PENDING_CALLS_MAX", 10)
    question = types.ElicitRequest(
        params=types.ElicitRequestFormParams(message="?", requested_schema={"type": "object"})
    )
    abilities = types.ClientCapabilities(elicitation=types.ElicitationCapability())

    async def begin(calls: PendingCalls, session: str, number: int) -> str:
        async def work(relay: Any) -> dict[str, Any]:
            await relay.ask(question)
            return {"content": []}

        answer = await calls.run(
            CallKey(session=session, tool="t", arguments={"n": number}),
            work,
            relay=cast("Any", None),
            abilities=abilities,
            state=None,
            answers=None,
            seconds=DEADLINE_SECONDS,
        )
        return answer["requestState"]

    async def work() -> None:
        calls = PendingCalls()
        bobs = await begin(calls, "bob", 0)
        for number in range(50):
            await begin(calls, "ann", number)
        assert bobs in calls.waiting
        assert len(calls.waiting) == 10
        await calls.close()

    asyncio.run(work())
