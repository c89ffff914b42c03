"""An SDK's own tools behind a scout, and calls that the SDK makes itself."""

import asyncio
from dataclasses import dataclass
from typing import Any

import pytest

from toolscout import Catalog, Event, Mode, Permission, Policy, Reply, Scout, Settings, Tool
from toolscout.admissions import Admission
from toolscout.errors import InvalidTool, UsageError
from toolscout.kits import Kit
from toolscout.schemas import Json
from toolscout.stores import MemoryStore

WEATHER: Json = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
    "required": ["city"],
}


@dataclass(frozen=True)
class Native:
    """A tool as some SDK has it."""

    name: str
    text: str

    def run(self, arguments: Json) -> str:
        return f"{self.name} ran with {sorted(arguments)}"


NATIVES = [
    Native("get_weather", "Tell the weather forecast for a city."),
    Native("send_email", "Send an email to a person."),
    Native("refund_order", "Pay the money for an order back."),
]


def define(native: Native) -> Tool:
    return Tool.define(native.name, description=native.text, input_schema=WEATHER)


def kit_of(**options: Any) -> Kit[Native]:
    return Kit(NATIVES, define, run=Native.run, **options)


def native_kit(**options: Any) -> Kit[Native]:
    return kit_of(settings=Settings(mode=Mode.NATIVE, **options))


def test_a_kit_leads_from_a_found_name_back_to_the_sdks_tool():
    kit = native_kit()
    session = kit.open("s")
    before = kit.shown(session)
    session.search("weather forecast")

    assert before == []
    assert kit.shown(session) == [NATIVES[0]]
    assert kit.get("get_weather") is NATIVES[0]
    assert kit.get("tool_search") is None


def test_in_bridge_mode_a_kit_shows_only_what_is_pinned_and_runs_calls_itself():
    kit = kit_of(settings=Settings(pins=("send_email",)))
    session = kit.open("s")
    session.search("weather forecast")
    request = {"name": "get_weather", "arguments": {"city": "Bonn"}}
    reply = session.handle_sync("tool_call", request)

    assert kit.shown(session) == [NATIVES[1]]
    assert reply.text == "get_weather ran with ['city']"


def test_a_session_lives_in_the_state_of_the_sdk_and_not_in_the_scout():
    store = MemoryStore()
    kit = kit_of(scout=Scout(Catalog(), settings=Settings(mode=Mode.NATIVE), store=store))
    first = kit.open("s")
    first.search("weather forecast")

    assert kit.open("s").loaded == ()
    assert kit.open("s", first.to_json()).loaded == ("get_weather",)
    assert store.keys("session") == []


def test_replaced_tools_leave_the_sessions():
    kit = native_kit()
    session = kit.open("s")
    session.search("weather forecast")
    kit.replace(NATIVES[1:])

    assert kit.shown(session) == []
    assert kit.get("get_weather") is None


def test_a_kit_that_is_refused_tools_keeps_those_that_it_had():
    kit = native_kit()
    with pytest.raises(InvalidTool):
        kit.replace([Native("", "No name.")])

    assert kit.get("get_weather") is NATIVES[0]
    assert len(kit.scout.catalog.tools) == 3


def test_settings_beside_a_scout_are_refused():
    with pytest.raises(UsageError, match="Give them to the scout"):
        kit_of(scout=Scout(Catalog()), settings=Settings())


def test_a_call_that_the_host_makes_itself_passes_the_same_gate():
    kit = native_kit()
    session = kit.open("s")
    hidden = session.admit_sync("get_weather", {"city": "Bonn"})
    session.search("weather forecast")
    wrong = session.admit_sync("get_weather", {"city": ["Bonn", "Rome"]})
    fitting = session.admit_sync("get_weather", '{"city": "Bonn", "days": "3"}')

    assert isinstance(hidden, Reply)
    assert hidden.code == "not_loaded"
    assert isinstance(wrong, Reply)
    assert wrong.code == "invalid_arguments"
    assert isinstance(fitting, Admission)
    assert fitting.tool.name == "get_weather"
    assert fitting.arguments == {"city": "Bonn", "days": 3}
    assert len(fitting.repairs) == 2


def test_the_hosts_policy_is_asked_before_a_call_is_admitted():
    policy = Policy(permit=lambda tool, arguments: Permission.ASK)
    kit = kit_of(scout=Scout(Catalog(), policy=policy))
    session = kit.open("s")
    session.search("weather forecast")
    asked = session.admit_sync("get_weather", {"city": "Bonn"})
    agreed = session.admit_sync("get_weather", {"city": "Bonn"}, approved=True)

    assert isinstance(asked, Reply)
    assert asked.code == "approval_needed"
    assert isinstance(agreed, Admission)


def test_a_call_that_the_host_made_is_told_like_any_other():
    heard: list[Event] = []
    kit = kit_of(scout=Scout(Catalog(), on_event=heard.append))
    session = kit.open("s")
    session.search("weather forecast")

    async def work() -> None:
        admitted = await session.admit("get_weather", {"city": "Bonn"})
        assert isinstance(admitted, Admission)
        session.settle(admitted)
        session.settle(admitted, failed=True)
        await session.admit("refund_order", {})

    asyncio.run(work())

    told = [(event.kind, event.code, event.form) for event in heard if event.kind != "load"]
    assert told[1:] == [
        ("call", "ok", "get_weather"),
        ("call", "tool_error", "get_weather"),
        ("refusal", "not_loaded", "refund_order"),
    ]
