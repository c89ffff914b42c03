"""Programs through a gateway: every call passes the gate that `tool_call` passes."""

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, nullcontext
from dataclasses import replace
from typing import Any

import mcp_types as types
import pytest
from mcp.client import Client

from gateway.fleet import always, text_of
from serving import DEADLINE_SECONDS, TIME, eventually
from toolscout.config.file import Config
from toolscout.config.gateway import GatewayConfig
from toolscout.gateway.audit import read_entries
from toolscout.gateway.gateway import Gateway
from toolscout.gateway.server import build_server
from toolscout.programs.saved import SavedProgram, approve_program, save_program
from toolscout.settings import Programs, Settings
from toolscout.stores import MemoryStore
from toolscout.tools import Effect

NOW = "time__get_current_time"
CONVERT = "time__convert_time"
ERAS = pytest.mark.parametrize("era", ["auto", "legacy"])
pytestmark = pytest.mark.timeout(300)


class Person:
    """Answers each question with the next of some decisions."""

    def __init__(self, *decisions: str) -> None:
        self.questions: list[Any] = []
        self._decisions = list(decisions)

    async def __call__(self, context: Any, params: Any) -> types.ElicitResult:
        self.questions.append(params)
        decision = self._decisions[len(self.questions) - 1]
        return types.ElicitResult(action="accept", content={"decision": decision})


@asynccontextmanager
async def opened(
    programs: dict[str, Any],
    *,
    era: str = "auto",
    effects: dict[str, Effect] | None = None,
    store: MemoryStore | None = None,
    person: Person | None = None,
    **options: Any,
) -> AsyncGenerator[tuple[Gateway, Client]]:
    server = replace(TIME, effects={"*": Effect.READ} if effects is None else effects)
    settings = Settings(programs=Programs.from_mapping({"enabled": True, **programs}))
    config = Config(servers=(server,), gateway=GatewayConfig(**options), sessions=settings)
    kept = MemoryStore() if store is None else store
    async with asyncio.timeout(DEADLINE_SECONDS), Gateway(config, kept) as gateway:
        await eventually(lambda: bool(gateway.scout.preview("server:time").hits))
        session = gateway.open_session("ann")
        async with Client(
            build_server(gateway, always(session)), mode=era, elicitation_callback=person
        ) as client:
            yield gateway, client


async def run(client: Client, code: str) -> Any:
    return await client.call_tool("tool_run", {"code": code})


@ERAS
def test_a_program_makes_its_calls_at_the_server_and_each_is_in_the_audit_record(era: str):
    store = MemoryStore()
    code = (
        "import asyncio\n"
        f"zones = await asyncio.gather(*[{NOW}(timezone=z) for z in ('UTC', 'Asia/Tokyo')])\n"
        "[zone['timezone'] for zone in zones]"
    )

    async def conversation() -> tuple[Any, list[str]]:
        async with opened({}, era=era, store=store) as (_, client):
            listed = [tool.name for tool in (await client.list_tools()).tools]
            return await run(client, code), listed

    result, listed = asyncio.run(conversation())

    assert listed == ["tool_search", "tool_describe", "tool_call", "tool_run"]
    assert json.loads(text_of(result)) == ["UTC", "Asia/Tokyo"]
    entries = [entry for entry in read_entries(store) if entry["event"] in ("call", "program")]
    assert [entry["event"] for entry in entries] == ["call", "call", "program"]
    assert entries[-1]["calls"] == 2


def test_the_gateway_offers_no_programs_unless_they_are_enabled():
    async def conversation() -> tuple[Any, list[str]]:
        async with opened({"enabled": False}) as (_, client):
            listed = [tool.name for tool in (await client.list_tools()).tools]
            return await run(client, f"{NOW}(timezone='UTC')"), listed

    result, listed = asyncio.run(conversation())

    assert "tool_run" not in listed
    assert result.is_error
    assert "programs are switched off here" in text_of(result)


@ERAS
def test_a_person_is_asked_about_each_call_that_may_destroy_something(era: str):
    person = Person("once", "no", "once")
    store = MemoryStore()
    code = (
        "done = []\n"
        "for zone in ('UTC', 'Asia/Tokyo', 'Europe/Paris'):\n"
        "    try:\n"
        f"        done.append({NOW}(timezone=zone)['timezone'])\n"
        "    except PermissionError as error:\n"
        "        done.append('refused')\n"
        "done"
    )

    async def conversation() -> Any:
        effects = {"get_current_time": Effect.DESTRUCTIVE}
        programs = {"effects": "all"}
        async with opened(programs, era=era, effects=effects, store=store, person=person) as both:
            return await run(both[1], code)

    result = asyncio.run(conversation())

    assert json.loads(text_of(result)) == ["UTC", "refused", "Europe/Paris"]
    assert len(person.questions) == 3
    schema = person.questions[0].requested_schema
    assert schema["properties"]["decision"]["enum"] == ["once", "no"]
    entries = [entry for entry in read_entries(store) if entry["event"] == "call"]
    assert len(entries) == 2  # a program that waits for an answer does not begin again


def test_rules_hold_for_the_calls_of_programs():
    rules = {"no-conversion": {"permission": "deny", "tools": [CONVERT]}}
    code = (
        f"for name in ({CONVERT!r}, {CONVERT.upper()!r}, 'convert_time', 'time.convert_time'):\n"
        "    try:\n"
        "        given = {'source_timezone': 'UTC', 'target_timezone': 'UTC', 'time': '12:00'}\n"
        "        call(name, given)\n"
        "        print('called', name)\n"
        "    except (NameError, PermissionError) as error:\n"
        "        print(type(error).__name__)\n"
        "[hit['name'] for hit in search('convert a time')]"
    )

    async def conversation() -> Any:
        async with opened({}, rules=rules) as (_, client):
            return await run(client, code)

    text = text_of(asyncio.run(conversation()))

    assert "called" not in text
    assert CONVERT not in text.splitlines()[-1]


def test_programs_only_read_where_a_client_has_rules_for_each_effect():
    async def conversation() -> tuple[Any, Any]:
        effects = {"get_current_time": Effect.READ, "convert_time": Effect.WRITE}
        programs = {"effects": "write"}
        async with opened(programs, effects=effects, split_calls=True) as (_, client):
            arguments = "source_timezone='UTC', time='12:00', target_timezone='Asia/Tokyo'"
            reading = await run(client, f"{NOW}(timezone='UTC')['timezone']")
            return reading, await run(client, f"{CONVERT}({arguments})")

    reading, writing = asyncio.run(conversation())

    assert text_of(reading) == "UTC"
    assert writing.is_error
    assert "known to read" in text_of(writing)


def test_calls_of_one_program_stay_within_the_limit_of_its_token():
    most = 0
    running = 0

    async def conversation() -> Any:
        nonlocal most, running
        async with opened({}) as (gateway, client):
            request = gateway.pool.request

            async def count(*arguments: Any, **options: Any) -> Any:
                nonlocal most, running
                running += 1
                most = max(most, running)
                try:
                    return await request(*arguments, **options)
                finally:
                    running -= 1

            gateway.pool.request = count
            gateway.take_slots = lambda name, wanted: nullcontext(0)
            code = f"import asyncio\nlen(await asyncio.gather(*[{NOW}(timezone='UTC')] * 1, "
            code += ", ".join(f"{NOW}(timezone='UTC')" for _ in range(6)) + "))"
            return await run(client, code)

    assert text_of(asyncio.run(conversation())) == "7"
    assert most == 1


ASK_TWICE = SavedProgram(
    name="ask_twice",
    description="Ask for two times.",
    source=(
        "done = []\n"
        "for zone in zones:\n"
        "    try:\n"
        f"        done.append({NOW}(timezone=zone)['timezone'])\n"
        "    except PermissionError:\n"
        "        done.append('refused')\n"
        "done"
    ),
    parameters={"type": "object", "properties": {"zones": {"type": "array"}}},
    calls=(NOW,),
)


def run_saved(
    store: MemoryStore, person: Person, programs: dict[str, Any], **options: Any
) -> tuple[Any, list[str]]:
    """Return what a saved program gives, and which tools the audit record has."""
    digest = save_program(store, ASK_TWICE).digest
    approve_program(store, ASK_TWICE.name, digest, "ann")

    async def conversation() -> Any:
        async with opened(programs, store=store, person=person, **options) as (gateway, client):
            await eventually(lambda: gateway.catalog.get("programs__ask_twice"))
            arguments = {"zones": ["UTC", "Asia/Tokyo"]}
            asked = {"name": "programs__ask_twice", "arguments": arguments}
            return await client.call_tool("tool_call", asked)

    result = asyncio.run(conversation())
    return result, [e["tool"] for e in read_entries(store) if e["event"] == "call"]


@ERAS
def test_a_person_is_asked_about_each_call_of_a_saved_program_that_may_destroy_something(era: str):
    person = Person("once", "no")
    effects = {"get_current_time": Effect.DESTRUCTIVE}

    result, called = run_saved(MemoryStore(), person, {"effects": "all"}, era=era, effects=effects)

    assert json.loads(text_of(result)) == ["UTC", "refused"]
    assert len(person.questions) == 2
    assert called.count(NOW) == 1


@ERAS
def test_a_rule_may_ask_a_person_before_a_saved_program_begins(era: str):
    rules = {"ask": {"permission": "ask", "tools": ["programs__*"]}}
    refusing = Person("no")
    result, called = run_saved(MemoryStore(), refusing, {}, era=era, rules=rules)
    assert result.is_error
    assert called == []

    agreeing = Person("once")
    result, called = run_saved(MemoryStore(), agreeing, {}, era=era, rules=rules)
    assert json.loads(text_of(result)) == ["UTC", "Asia/Tokyo"]
    assert called.count(NOW) == 2
    assert len(agreeing.questions) == 1
