"""An SDK's own tools behind a scout, and calls that the SDK makes itself."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest

from toolscout import (
    Catalog,
    Effect,
    Event,
    Mode,
    Permission,
    Policy,
    Reply,
    Scout,
    Session,
    Settings,
    Tool,
)
from toolscout.adapters._toolkit import (
    RESERVED_NAMES,
    Hiding,
    Toolkit,
    add_notes,
    list_request_tools,
    merge_state,
    report_outcome,
    require_members,
)
from toolscout.errors import InvalidTool, SdkChanged, UsageError
from toolscout.schemas import Json
from toolscout.sessions.call import ApprovedCall
from toolscout.sessions.events import Called
from toolscout.settings import Programs
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


def make_toolkit(**options: Any) -> Toolkit[Native]:
    return Toolkit(NATIVES, define, run=Native.run, **options)


def list_natives(toolkit: Toolkit[Native], session: Session) -> list[Native]:
    natives = [toolkit.get(tool.name) for tool in list_request_tools(session)]
    return [native for native in natives if native is not None]


def native_toolkit(**options: Any) -> Toolkit[Native]:
    return make_toolkit(settings=Settings(mode=Mode.NATIVE), **options)


def test_a_toolkit_leads_from_a_found_name_back_to_the_sdks_tool():
    toolkit = native_toolkit()
    session = toolkit.open_session("s")
    before = list_natives(toolkit, session)
    session.search("weather forecast")

    assert before == []
    assert list_natives(toolkit, session) == [NATIVES[0]]
    assert toolkit.get("get_weather") is NATIVES[0]
    assert toolkit.get("tool_search") is None


def test_in_bridge_mode_a_toolkit_shows_only_what_is_pinned_and_runs_calls_itself():
    toolkit = make_toolkit(settings=Settings(pins=("send_email",)))
    session = toolkit.open_session("s")
    session.search("weather forecast")
    request = {"name": "get_weather", "arguments": {"city": "Bonn"}}
    reply = session.handle_sync("tool_call", request)

    assert list_natives(toolkit, session) == [NATIVES[1]]
    assert reply.text == "get_weather ran with ['city']"


def test_where_nothing_is_hidden_no_reply_names_a_meta_tool():
    bare = Tool.define("count_stars", description="Count the stars.")
    settings = Settings(hiding=Hiding.OFF)
    toolkit = make_toolkit(scout=Scout(Catalog({"": [bare]}), settings=settings))
    session = toolkit.open_session("s")

    replies = [session.handle_sync(name) for name in ("fly_to_the_moon", "count_stars")]

    assert all(reply.is_error for reply in replies)
    assert not any(name in reply.text for reply in replies for name in RESERVED_NAMES)


@pytest.mark.requirement("R90")
@pytest.mark.parametrize("make", [Toolkit[Native], Toolkit[Native].create_growing])
@pytest.mark.parametrize("settings", [None, Settings(mode=Mode.NATIVE, limit=3)])
def test_adapters_keep_the_hosts_file_and_shell_tools_in_view(
    make: Callable[..., Toolkit[Native]], settings: Settings | None
):
    """R90"""
    core = [Native("read_file", "Read a file."), Native("bash", "Run a command.")]
    hidden = Settings(mode=Mode.NATIVE, essential=())

    toolkit = make([*NATIVES, *core], define, settings=settings)
    plain = make([*NATIVES, *core], define, settings=hidden)

    assert toolkit.open_session("s").pinned == ("bash", "read_file")
    assert plain.open_session("s").pinned == ()


def test_a_session_lives_in_the_state_of_the_sdk_and_not_in_the_scout():
    store = MemoryStore()
    toolkit = make_toolkit(scout=Scout(Catalog(), settings=Settings(mode=Mode.NATIVE), store=store))
    first = toolkit.open_session("s")
    first.search("weather forecast")

    assert toolkit.open_session("s").loaded == ()
    assert toolkit.open_session("s", first.to_json()).loaded == ("get_weather",)
    assert store.keys("session") == []


def test_replaced_tools_leave_the_sessions():
    toolkit = native_toolkit()
    session = toolkit.open_session("s")
    session.search("weather forecast")
    toolkit.replace(NATIVES[1:])

    assert list_natives(toolkit, session) == []
    assert toolkit.get("get_weather") is None


def test_a_toolkit_that_is_refused_tools_keeps_those_that_it_had():
    toolkit = native_toolkit()
    with pytest.raises(InvalidTool):
        toolkit.replace([Native("", "No name.")])

    assert toolkit.get("get_weather") is NATIVES[0]
    assert len(toolkit.scout.catalog.tools) == 3


def test_what_a_scout_had_before_stays_in_it():
    own = Tool.define("read_clock", description="Tell the time of day.", function=lambda: "noon")
    toolkit = make_toolkit(scout=Scout(Catalog({"": [own]})))
    toolkit.replace(NATIVES[:1])

    assert [tool.name for tool in toolkit.scout.catalog.tools] == ["get_weather", "read_clock"]


def test_settings_with_a_scout_are_refused():
    with pytest.raises(UsageError, match="not both"):
        make_toolkit(scout=Scout(Catalog()), settings=Settings())


def test_a_call_that_the_host_makes_itself_passes_the_same_gate():
    toolkit = native_toolkit()
    session = toolkit.open_session("s")
    hidden = session.admit_sync("get_weather", {"city": "Bonn"})
    session.search("weather forecast")
    wrong = session.admit_sync("get_weather", {"city": ["Bonn", "Rome"]})
    fitting = session.admit_sync("get_weather", '{"city": "Bonn", "days": "3"}')

    assert isinstance(hidden, Reply)
    assert hidden.code == "not_loaded"
    assert isinstance(wrong, Reply)
    assert wrong.code == "invalid_arguments"
    assert isinstance(fitting, ApprovedCall)
    assert fitting.tool.name == "get_weather"
    assert fitting.arguments == {"city": "Bonn", "days": 3}
    assert len(fitting.repairs) == 2


def test_the_hosts_policy_is_asked_before_a_call_is_admitted():
    policy = Policy(permit=lambda tool, arguments: Permission.ASK)
    toolkit = make_toolkit(scout=Scout(Catalog(), policy=policy))
    session = toolkit.open_session("s")
    session.search("weather forecast")
    asked = session.admit_sync("get_weather", {"city": "Bonn"})
    agreed = session.admit_sync("get_weather", {"city": "Bonn"}, approved=True)

    assert isinstance(asked, Reply)
    assert asked.code == "approval_needed"
    assert isinstance(agreed, ApprovedCall)


def test_a_call_that_the_host_made_is_reported_like_any_other():
    heard: list[Event] = []
    toolkit = make_toolkit(scout=Scout(Catalog(), on_event=heard.append))
    session = toolkit.open_session("s")
    session.search("weather forecast")

    async def work() -> None:
        admitted = await session.admit("get_weather", {"city": "Bonn"})
        assert isinstance(admitted, ApprovedCall)
        session.settle(admitted)
        session.settle(admitted, failed=True)
        await session.admit("refund_order", {})

    asyncio.run(work())

    calls = [(e.made, e.code, e.tool) for e in heard if isinstance(e, Called)]
    assert calls == [
        (True, "ok", "get_weather"),
        (True, "tool_error", "get_weather"),
        (False, "not_loaded", "refund_order"),
    ]


def test_registered_tools_join_the_others_and_only_changes_are_indexed():
    toolkit: Toolkit[Native] = Toolkit((), define)
    toolkit.register({native.name: native for native in NATIVES[:2]})
    version = toolkit.scout.catalog.version
    again = toolkit.register(
        {native.name: Native(native.name, native.text) for native in NATIVES[:2]}
    )
    unchanged = toolkit.scout.catalog.version
    toolkit.register({"get_weather": Native("get_weather", "Measure the wind.")})

    assert again == {"get_weather", "send_email"}
    assert unchanged == version
    assert toolkit.scout.catalog.version > version
    assert toolkit.rank(["wind"], 5) == [Native("get_weather", "Measure the wind.")]


def test_a_tool_that_a_caller_does_not_have_is_neither_found_nor_named_nor_called():
    toolkit: Toolkit[Native] = Toolkit((), define, run=Native.run)
    toolkit.register({native.name: native for native in NATIVES})
    only = toolkit.register({"send_email": NATIVES[1]})
    session = toolkit.open_session("s", only=only)
    found = session.search("weather forecast")
    called = session.call_sync("get_weather", {"city": "Bonn"})

    assert NATIVES[0] not in toolkit.rank(["weather forecast"], 5, only=only)
    assert NATIVES[0] in toolkit.rank(["weather forecast"], 5)
    assert "get_weather" not in found.text
    assert called.code == "unknown_tool"


def test_several_queries_of_an_sdks_own_search_take_turns():
    toolkit = make_toolkit()
    ranked = toolkit.rank(["weather forecast", "send an email", " "], 2)

    assert ranked == [NATIVES[0], NATIVES[1]]
    assert toolkit.rank(["-weather /forecast"], 1) == [NATIVES[0]]


def test_an_sdks_own_search_gives_its_own_tools_and_those_the_policy_shows():
    catalog = Catalog({"far": [Tool.define("weather_forecast", server="far")]})
    policy = Policy(disabled={"send_email": "on Sundays"})
    toolkit = make_toolkit(scout=Scout(catalog, policy=policy))

    assert toolkit.rank(["weather forecast"], 1) == [NATIVES[0]]
    assert NATIVES[1] not in toolkit.rank(["send an email"], 5)


def test_a_call_is_judged_by_whose_it_is():
    scout = Scout(Catalog(), settings=Settings(mode=Mode.NATIVE))
    scout.catalog.add("mail", [Tool.define("post", server="mail", description="Post a letter.")])
    scout.connect("mail", lambda tool, arguments: "posted")
    toolkit = Toolkit(NATIVES, define, scout=scout)
    session = toolkit.open_session("s")
    hidden = toolkit.handle_sync(session, "get_weather", {"city": "Bonn"})
    found = toolkit.handle_sync(session, "tool_search", {"queries": ["weather forecast"]})
    own = toolkit.handle_sync(session, "get_weather", {"city": "Bonn"})
    request = {"name": "get_weather", "arguments": {"city": "Bonn"}}
    bridged = toolkit.handle_sync(session, "tool_call", request)
    session.search("select:mail__post")
    other = toolkit.handle_sync(session, "mail__post", {})

    assert isinstance(hidden, Reply)
    assert hidden.code == "not_loaded"
    assert isinstance(found, Reply)
    assert isinstance(own, ApprovedCall)
    assert isinstance(bridged, ApprovedCall)
    assert (own.tool, own.arguments) == (bridged.tool, bridged.arguments)
    assert isinstance(other, Reply)
    assert other.text == "posted"
    assert toolkit.handle_sync(session, "bash", {"command": "ls"}) is None
    assert isinstance(toolkit.handle_sync(session, "tool_call", {}), Reply)
    assert asyncio.run(toolkit.handle(session, "bash", {})) is None
    assert isinstance(
        asyncio.run(toolkit.handle(session, "get_weather", {"city": "Bonn"})), ApprovedCall
    )


def test_a_call_made_inside_is_settled_also_when_it_raises():
    heard: list[Event] = []
    toolkit = make_toolkit(scout=Scout(Catalog(), on_event=heard.append))
    session = toolkit.open_session("s")
    session.search("weather forecast")
    admitted = session.admit_sync("get_weather", {"city": "Bonn"})
    assert isinstance(admitted, ApprovedCall)
    with report_outcome(session, admitted):
        pass
    with report_outcome(session, admitted) as outcome:
        outcome.failed = True
    with pytest.raises(ZeroDivisionError), report_outcome(session, admitted):
        raise ZeroDivisionError

    assert [event.code for event in heard if isinstance(event, Called) and event.made] == [
        "ok",
        "tool_error",
        "tool_error",
    ]


def test_where_requests_grow_found_tools_join_them_by_default():
    assert Toolkit[Native].create_growing(NATIVES, define).scout.settings.mode is Mode.NATIVE
    assert (
        Toolkit[Native].create_growing(NATIVES, define, settings=Settings()).scout.settings.mode
        is Mode.BRIDGE
    )
    with pytest.raises(UsageError, match="Use 'native' or 'bridge'"):
        Toolkit[Native].create_growing(NATIVES, define, settings=Settings(mode=Mode.DEFINITIONS))


def test_a_tool_that_tool_call_must_not_run_is_loaded_and_asked_for_by_its_name():
    def waits(native: Native) -> bool:
        return native.name == "get_weather"

    toolkit = native_toolkit(by_name=waits)
    session = toolkit.open_session("s")
    session.offer(*map(define, NATIVES))
    request = {"name": "get_weather", "arguments": {"city": "Bonn"}}
    other = {"name": "send_email", "arguments": {"city": "Bonn"}}
    reply = toolkit.handle_sync(session, "tool_call", request)

    assert isinstance(toolkit.handle_sync(session, "get_weather", {"city": "Bonn"}), ApprovedCall)
    assert isinstance(toolkit.handle_sync(session, "tool_call", other), ApprovedCall)
    assert isinstance(reply, Reply)
    assert reply.is_error
    assert "Call it by its own name" in reply.text
    assert reply.references == session.loaded == ("get_weather",)


def test_states_of_parallel_calls_are_merged():
    toolkit = native_toolkit()
    before = toolkit.open_session("s").to_json()
    one, other = toolkit.open_session("s", before), toolkit.open_session("s", before)
    one.search("weather forecast", limit=1)
    other.search("send an email", limit=1)
    after = merge_state(one, before, before)
    both = toolkit.open_session("s", merge_state(other, before, after))

    assert toolkit.open_session("s", after).loaded == ("get_weather",)
    assert both.loaded == ("get_weather", "send_email")


def test_notes_on_repairs_come_before_a_text_and_change_no_other_result():
    tool = define(NATIVES[0])
    admission = ApprovedCall(tool=tool, arguments={}, repairs=("Read '5' as 5.",))

    assert add_notes(admission, "Sunny.") == "(Read '5' as 5.)\nSunny."
    assert add_notes(admission, 7) == 7
    assert add_notes(ApprovedCall(tool=tool, arguments={}), "Sunny.") == "Sunny."


def test_what_a_person_agreed_to_is_run_on_another_server_too():
    scout = Scout(Catalog(), policy=Policy(permit=lambda tool, arguments: Permission.ASK))
    scout.catalog.add("mail", [Tool.define("post", server="mail", description="Post a letter.")])
    scout.connect("mail", lambda tool, arguments: "posted")
    toolkit = Toolkit(NATIVES, define, scout=scout)
    session = toolkit.open_session("s")
    session.search("select:mail__post")
    request: Json = {"name": "mail__post", "arguments": {}}
    verdicts = [
        toolkit.handle_sync(session, "tool_call", request),
        toolkit.handle_sync(session, "tool_call", request, approved=True),
        asyncio.run(toolkit.handle(session, "mail__post", {}, approved=True)),
    ]

    assert [reply.code for reply in verdicts if isinstance(reply, Reply)] == [
        *("approval_needed", "ok", "ok")
    ]


def test_a_forced_tool_comes_last_in_the_request_and_may_be_called():
    toolkit = native_toolkit()
    session = toolkit.open_session("s")
    usual = [tool.name for tool in list_request_tools(session)]
    forced = [tool.name for tool in list_request_tools(session, "get_weather")]
    admitted = toolkit.handle_sync(session, "get_weather", {"city": "Bonn"})

    assert forced == [*usual, "get_weather"]
    assert isinstance(admitted, ApprovedCall)
    assert toolkit.get_native(admitted) is NATIVES[0]
    assert [tool.name for tool in list_request_tools(session, "nothing")] == usual


def test_an_sdk_without_a_private_member_is_named_with_that_member():
    class Agent:
        _run = None

    require_members("some-sdk", Agent, "_run")

    with pytest.raises(SdkChanged, match=r"some-sdk has no Agent\._state") as caught:
        require_members("some-sdk", Agent(), "_run", "_state")
    assert (caught.value.sdk, caught.value.member) == ("some-sdk", "Agent._state")


def test_a_call_that_the_sdk_postpones_is_not_reported():
    toolkit = native_toolkit()
    session = toolkit.open_session("s")
    session.search("weather forecast")
    before = session.to_json()
    call = session.admit_sync("get_weather", {"city": "Bonn"})
    assert isinstance(call, ApprovedCall)

    with (
        pytest.raises(InterruptedError),
        report_outcome(session, call, postponed=(InterruptedError,)),
    ):
        raise InterruptedError

    assert session.to_json() == before


def test_the_first_tool_of_a_request_lists_what_exists():
    tools = [Native(name, f"Do {name}.") for name in ("refund_invoice", "read_ledger")]
    session = Toolkit(tools, define, settings=Settings(essential=())).open_session()

    described = list_request_tools(session)[0].description

    assert "\n- this program (2): " in described
    assert described.endswith("\n- this program: read_ledger, refund_invoice")
    assert "Hidden tools" not in session.system_prompt()


@pytest.mark.parametrize("approved", [False, True])
def test_a_host_that_makes_calls_itself_makes_one_at_a_time(approved: bool):
    toolkit = make_toolkit()
    session = toolkit.open_session("s")
    session.search(["weather forecast", "pay back an order"])
    calls = [
        {"name": name, "arguments": {"city": "Bonn"}} for name in ("get_weather", "refund_order")
    ]

    several = toolkit.handle_sync(session, "tool_call", {"calls": calls}, approved=approved)
    alone = toolkit.handle_sync(session, "tool_call", {"calls": calls[:1]}, approved=approved)

    assert isinstance(several, Reply)
    assert several.text.endswith("Use tool_call once for each.")
    assert toolkit.predict_call(session, "tool_call", {"calls": calls}) is None
    assert isinstance(alone, ApprovedCall)
    assert alone.tool.name == "get_weather"


def test_a_host_that_makes_calls_itself_says_that_it_picks_nothing():
    toolkit = make_toolkit()
    session = toolkit.open_session("s")
    session.search("weather forecast")
    request = {"name": "get_weather", "arguments": {"city": "Bonn"}, "pick": "$.sun"}

    call = toolkit.handle_sync(session, "tool_call", request)

    assert isinstance(call, ApprovedCall)
    assert call.notes == ["(This is the whole result: 'pick' has no effect here.)"]


def test_programs_are_refused_where_the_sdk_makes_calls_itself():
    settings = Settings(programs=Programs(enabled=True))

    with pytest.raises(UsageError, match="let the SDK use the gateway"):
        make_toolkit(settings=settings)


def test_programs_run_where_the_session_makes_all_calls():
    def add(a: int, b: int) -> int:
        """Add numbers."""
        return a + b

    toolkit = Toolkit(
        [add],
        lambda function: replace(Tool.from_any(function), effect=Effect.READ),
        leaves_calls=True,
        settings=Settings(programs=Programs(enabled=True)),
    )
    session = toolkit.open_session("s")
    session.search("add numbers")

    async def work() -> str:
        reply = await session.run("add(a=1, b=2) + 39")
        await toolkit.scout.close()
        return reply.text

    assert "tool_run" in [shown.tool.name for shown in session.list_shown()]
    assert asyncio.run(work()) == "42"
