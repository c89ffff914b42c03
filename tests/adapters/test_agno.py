"""Agno keeps the contract, with the session in its session state."""

import asyncio
import inspect
import re
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast
from uuid import uuid4

import pytest
from agno.agent import Agent
from agno.db.json import JsonDb
from agno.exceptions import RetryAgentRun, StopAgentRun
from agno.models.openai import OpenAIChat
from agno.run import RunContext
from agno.team import Team
from agno.tools import Function, Toolkit
from agno.tools import tool as agno_tool  # pyright: ignore[reportUnknownVariableType]
from agno.tools.function import FunctionCall
from httpx2 import Limits
from openai import AsyncOpenAI, DefaultAsyncHttpxClient

import toolscout
from adapters import contract
from adapters.contract import (
    Ledger,
    Spec,
    check_async,
    check_concurrent_conversations,
    check_contract,
    check_streaming,
    check_two_conversations_do_not_share,
)
from adapters.provider import Provider, call
from adapters.scripts import is_on_page, run_example
from toolscout import Catalog, Permission, Policy, Scout, Settings
from toolscout.adapters.agno import RUN_FIELDS, STATE, ToolScoutTools
from toolscout.errors import UsageError
from toolscout.sessions.metatools import build_meta_tools


def agent_of(base_url: str, *tools: object, **options: Any) -> Any:
    # Each question has an event loop of its own, so no connection may outlive one.
    http = DefaultAsyncHttpxClient(limits=Limits(max_keepalive_connections=0))
    client = AsyncOpenAI(base_url=base_url, api_key="none", max_retries=0, http_client=http)
    model = OpenAIChat("gpt-5.5", base_url=base_url, api_key="none", async_client=client)
    options = {"name": "clerk", "telemetry": False, "add_history_to_context": True} | options
    return Agent(model=model, tools=[*cast("Any", tools)], **options)


@dataclass(slots=True)
class Relay(Ledger):
    """Hands calls to the ledger of the day: functions are read once, because that takes long."""

    to: Ledger = field(default_factory=Ledger)

    def run(self, name: str, arguments: Mapping[str, Any]) -> str:
        return self.to.run(name, arguments)


RELAY = Relay()
from_callable: Callable[..., Function] = cast("Any", Function).from_callable
FUNCTIONS = {spec.name: from_callable(spec.function(RELAY)) for spec in contract.SPECS}
tool = cast("Callable[..., Callable[[Callable[..., object]], Function]]", agno_tool)


@pytest.fixture
def makes(tmp_path: Path) -> "Makes":
    return Makes(tmp_path)


@dataclass
class Makes:
    """Makes agents whose sessions are in one database."""

    path: Path

    def __call__(
        self, specs: Sequence[Spec], ledger: Ledger, base_url: str, saved: object | None
    ) -> contract.Agent:
        RELAY.to = ledger
        tools = ToolScoutTools([FUNCTIONS[spec.name] for spec in specs])
        agent = agent_of(base_url, tools, db=JsonDb(db_path=str(self.path)))
        return Conversation(agent, str(saved or uuid4()))


@dataclass
class Conversation:
    """One agno session of an agent."""

    agent: Any
    id: str = field(default_factory=lambda: str(uuid4()))

    def ask(self, message: str) -> str:
        return str(self.agent.run(message, session_id=self.id).content)

    async def ask_async(self, message: str) -> str:
        return str((await self.agent.arun(message, session_id=self.id)).content)

    def ask_streaming(self, message: str) -> str:
        events = self.agent.run(message, session_id=self.id, stream=True)
        return "".join(str(e.content) for e in events if e.event == "RunContent")

    def another(self) -> contract.Agent:
        return Conversation(self.agent)

    def saved(self) -> object:
        return self.id


def test_an_agent_keeps_the_contract(makes: Makes):
    check_contract(makes, mode="bridge", dialect="openai-chat")


def test_conversations_of_one_agent_share_nothing(makes: Makes):
    check_two_conversations_do_not_share(makes, mode="bridge", dialect="openai-chat")
    check_concurrent_conversations(makes, mode="bridge", dialect="openai-chat")


def test_streaming_and_asynchronous_runs_send_the_same(makes: Makes):
    check_streaming(makes, mode="bridge", dialect="openai-chat")
    check_async(makes, mode="bridge", dialect="openai-chat")


def do(name: str, **arguments: object) -> Any:
    return call("tool_call", name=name, arguments=arguments)


def find(what: str) -> Any:
    return call("tool_search", queries=[what], limit=1)


FIND_REFUND = find("pay an order back")
REFUND = do("refund_order", order="A-7")


def refund_order(order: str) -> str:
    """Pay the money for an order back to the customer."""
    return f"{order} is refunded."


def count_visits(run_context: RunContext) -> str:
    """Count the visits to the shop."""
    state = cast("dict[str, Any]", run_context.session_state)
    state["visits"] = state.get("visits", 0) + 1
    return f"Visit {state['visits']} of {run_context.user_id}."


@tool(requires_confirmation=True)
def pay_supplier(name: str, cents: int) -> str:
    """Transfer money to a supplier."""
    return f"{name} got {cents}."


def results_in(provider: Provider) -> list[str]:
    return list(provider.requests[-1].tool_results.values())


def shop(provider: Provider, *more: Any, **options: Any) -> Any:
    return agent_of(provider.base_url, ToolScoutTools([refund_order, *more]), **options)


def test_the_meta_tools_have_the_very_schemas_that_toolscout_gives_them():
    with Provider(["Nothing to do."]) as provider:
        shop(provider).run("Hello.")

    sent = {one.name: one.sent["function"] for one in provider.requests[0].definitions}
    for one in build_meta_tools():
        declared = sent[one.name]
        assert declared["description"].startswith(one.description)
        assert declared["parameters"] == one.input_schema
    assert "refund_order" in sent["tool_search"]["description"]


def test_a_tool_has_what_agno_injects_and_may_change_the_session_state(tmp_path: Path):
    script = [find("count the visits"), do("count_visits"), "One.", do("count_visits"), "Two."]
    with Provider(script) as provider:
        agent = shop(provider, count_visits, db=JsonDb(db_path=str(tmp_path)))
        for _ in range(2):
            agent.run("Count.", session_id="s", user_id="Ada")

    assert results_in(provider)[-1] == "Visit 2 of Ada."
    assert agent.get_session_state("s")["visits"] == 2


def test_hooks_of_the_agent_and_of_the_tool_see_the_tool_that_tool_call_runs():
    seen: list[str] = []

    def around(function_name: str, function_call: Callable[..., Any], arguments: Any) -> Any:
        seen.append(f"around {function_name}")
        return function_call(**arguments)

    def before(fc: FunctionCall) -> None:
        seen.append(f"before {fc.function.name} {fc.arguments}")

    @tool(pre_hook=before)
    def weigh_parcel(number: str) -> str:
        """Weigh a parcel on the scales."""
        return "3 kg"

    script = [find("weigh a parcel"), do("weigh_parcel", number="7"), "Done."]
    with Provider(script) as provider:
        shop(provider, weigh_parcel, tool_hooks=[around]).run("Weigh it.")

    assert seen == [
        "around tool_search",
        "around tool_call",
        "before weigh_parcel {'number': '7'}",
        "around weigh_parcel",
    ]


def test_results_are_cached_as_the_tool_says(tmp_path: Path):
    weighed: list[str] = []

    @tool(cache_results=True, cache_dir=str(tmp_path))
    def weigh_parcel(number: str) -> str:
        """Weigh a parcel on the scales."""
        weighed.append(number)
        return "3 kg"

    weigh = do("weigh_parcel", number="7")
    with Provider([find("weigh a parcel"), weigh, weigh, "Done."]) as provider:
        shop(provider, weigh_parcel).run("Weigh it twice.")

    assert results_in(provider)[1:] == ["3 kg", "3 kg"]
    assert weighed == ["7"]


@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_tool_after_which_the_run_stops_stops_it_behind_tool_call(asynchronous: bool):
    @tool(stop_after_tool_call=True, show_result=True)
    def close_shop(day: str) -> str:
        """Close the shop for a day."""
        return f"Closed on {day}."

    with Provider([find("close the shop"), do("close_shop", day="Monday")]) as provider:
        agent = shop(provider, close_shop)
        said = asyncio.run(arun(agent, "Close.")) if asynchronous else agent.run("Close.").content

    assert said == "Closed on Monday."


async def arun(agent: Any, message: str, **options: Any) -> Any:
    return (await agent.arun(message, **options)).content


def test_exceptions_with_which_a_tool_steers_the_run_are_agnos_to_handle():
    def open_safe(code: str) -> str:
        """Open the safe with a code."""
        raise (StopAgentRun("Alarm.") if code == "0" else RetryAgentRun("Ask for the code."))

    wrong, alarm = do("open_safe", code="1"), do("open_safe", code="0")
    with Provider([find("open the safe"), wrong, alarm]) as provider:
        shop(provider, open_safe).run("Open it.")

    assert len(provider.requests) == 3
    assert "Ask for the code." in results_in(provider)[-1]


@pytest.mark.parametrize("agreed", [True, False])
def test_a_tool_that_needs_confirmation_is_shown_and_waits_for_it(agreed: bool, tmp_path: Path):
    pay = call("pay_supplier", name="Ada", cents=5)
    with Provider([pay, "Done."]) as provider:
        agent = shop(provider, pay_supplier, db=JsonDb(db_path=str(tmp_path)))
        asked = agent.run("Pay Ada.", session_id="s")
        [waiting] = asked.active_requirements
        waiting.confirm() if agreed else waiting.reject("Too much.")
        agent.continue_run(run_id=asked.run_id, requirements=asked.requirements, session_id="s")

    assert len(provider.requests[0].tool_names) == 4
    assert ("Ada got 5." in results_in(provider)[-1]) is agreed


def test_tools_that_wait_are_shown_also_where_a_toolkit_says_so():
    class Bank(Toolkit):
        def __init__(self) -> None:
            super().__init__(
                tools=[self.pay, self.check],
                requires_confirmation_tools=["pay"],
                instructions="Money is in cents.",
                add_instructions=True,
            )

        def pay(self, cents: int) -> str:
            """Pay money."""
            return f"Paid {cents}."

        def check(self) -> str:
            """Check the balance."""
            return "7"

    with Provider([find("check the balance"), do("check"), "Seven."]) as provider:
        shop(provider, Bank()).run("How much?")

    assert len(provider.requests[0].tool_names) == 4
    assert "pay" in provider.requests[0].tool_names
    assert b"Money is in cents." in provider.requests[0].system_bytes
    assert results_in(provider)[-1] == "7"


class Robot(Toolkit):
    """Has a tool in two versions, and one that can only be awaited."""

    def __init__(self) -> None:
        async_tools = [(self.amove, "move"), (self.look, "look")]
        super().__init__(tools=[self.move], async_tools=async_tools)

    def move(self, steps: int) -> str:
        """Move the robot forward."""
        return f"moved {steps}"

    async def amove(self, steps: int) -> str:
        """Move the robot forward."""
        return f"moved {steps} meanwhile"

    async def look(self, at: str) -> str:
        """Look at something through the camera."""
        return f"{at} is red"


def test_of_two_versions_of_a_tool_the_kind_of_run_chooses():
    move = [find("move the robot"), do("move", steps="3"), "Done."]
    with Provider([*move, *move]) as provider:
        shop(provider, Robot()).run("Move.")
        moved = results_in(provider)[-1]
        asyncio.run(arun(shop(provider, Robot()), "Move."))

    assert moved.splitlines()[-1] == "moved 3"
    assert results_in(provider)[-1].splitlines()[-1] == "moved 3 meanwhile"
    assert "steps" in moved.splitlines()[0]  # what was repaired


def test_a_tool_that_cannot_be_awaited_does_not_hold_up_the_event_loop():
    threads: list[str] = []

    def think(about: str) -> str:
        """Think hard."""
        threads.append(threading.current_thread().name)
        return "42"

    with Provider([find("think hard"), do("think", about="life"), "42."]) as provider:
        asyncio.run(arun(shop(provider, think), "Think."))

    assert threads != [threading.current_thread().name]
    assert results_in(provider)[-1] == "42"


def test_what_was_found_while_another_call_went_on_is_kept():
    found = asyncio.Event()

    async def wait_for_the_search(minutes: int) -> str:
        """Wait in the queue."""
        await found.wait()
        return "Waited."

    async def watch(function_name: str, function_call: Callable[..., Any], arguments: Any) -> Any:
        result = function_call(**arguments)
        result = await result if inspect.isawaitable(result) else result
        if "order" in str(arguments):
            found.set()
        return result

    both = [do("wait_for_the_search", minutes=1), FIND_REFUND]
    with Provider([find("wait in the queue"), both, REFUND, "Done."]) as provider:
        agent = shop(provider, wait_for_the_search, tool_hooks=[watch])
        asyncio.run(arun(agent, "Wait, and refund A-7."))

    assert results_in(provider)[-1] == "A-7 is refunded."


def test_a_tool_that_can_only_be_awaited_says_so_in_a_run_that_does_not():
    look = [find("look through the camera"), do("look", at="it"), "Done."]
    with Provider([*look, *look]) as provider:
        shop(provider, Robot()).run("Look.")
        refused = results_in(provider)[-1]
        asyncio.run(arun(shop(provider, Robot()), "Look."))

    assert "use arun()" in refused
    assert results_in(provider)[-1] == "it is red"


def test_a_tool_that_yields_is_streamed():
    @tool(show_result=True)
    def tell_story(about: str) -> Iterator[str]:
        """Tell a story."""
        yield f"Once {about} "
        yield "was happy."

    @tool(show_result=True)
    async def sing_song(about: str) -> AsyncIterator[str]:
        """Sing a song."""
        yield f"Oh {about}."

    tell = [find("tell a story"), do("tell_story", about="Ada"), "End."]
    sing = [find("sing a song"), do("sing_song", about="Ada"), "End."]
    with Provider([*tell, *sing]) as provider:
        agent = shop(provider, tell_story, sing_song)
        events = [*agent.run("Tell.", stream=True)]
        texts = [str(event.content) for event in events if event.event == "RunContent"]
        asyncio.run(arun(agent, "Sing."))

    assert "".join(texts) == "Once Ada was happy.End."
    assert results_in(provider)[-1] == "Oh Ada."


def test_each_member_of_a_team_has_a_session_of_its_own(tmp_path: Path):
    ann = [FIND_REFUND, REFUND, "Ann is done."]
    bob = [REFUND, "Bob is done."]
    lead = [
        call("delegate_task_to_member", member_id="ann", task="errand of Ann"),
        call("delegate_task_to_member", member_id="bob", task="errand of Bob"),
        "All done.",
    ]
    script = {"errand of Ann": ann, "errand of Bob": bob, "The team": lead}
    tools = ToolScoutTools([refund_order])
    with Provider(script) as provider:
        members = [agent_of(provider.base_url, tools, name=name) for name in ("ann", "bob")]
        team: Any = Team(
            name="lead",
            members=[*members],
            model=OpenAIChat("gpt-5.5", base_url=provider.base_url, api_key="none"),
            telemetry=False,
            db=JsonDb(db_path=str(tmp_path)),
        )
        team.run("The team is to work.", session_id="s")

    done = [text for one in provider.requests for text in one.tool_results.values()]
    assert "A-7 is refunded." in done
    assert any("select:refund_order" in text for text in done)
    sessions = team.get_session_state("s")[STATE]
    assert sorted(sessions) == ["ann", "bob"]
    loaded = {name: kept["session"]["entries"] for name, kept in sessions.items()}
    assert (len(loaded["ann"]), len(loaded["bob"])) == (1, 0)


def test_a_later_run_gets_a_definition_again_and_may_call_at_once(tmp_path: Path):
    detailed = call("tool_search", queries=["pay an order back"], detail="schemas")
    script = [detailed, detailed, "Found.", detailed, REFUND, "Done."]
    with Provider(script) as provider:
        agent = shop(provider, db=JsonDb(db_path=str(tmp_path)), add_history_to_context=False)
        agent.run("Find it.", session_id="s")
        first, second = results_in(provider)
        agent.run("Find it.", session_id="s")

    third, done = results_in(provider)
    schema = re.compile(r'"type": ?"object"')
    assert schema.search(first) and not schema.search(second)
    assert schema.search(third)
    assert done == "A-7 is refunded."


def test_tools_of_the_scouts_other_servers_are_found_and_run_by_their_executors():
    far = toolscout.Tool.define("count_stars", server="sky", description="Count the stars.")
    scout = Scout(
        Catalog({"sky": [far]}),
        executors={"sky": lambda tool, arguments: f"{tool.leaf}: 7"},
        policy=Policy(permit=asks_about_money),
    )
    tools = ToolScoutTools([refund_order], scout=scout)
    script = [find("count the stars"), do("sky__count_stars"), FIND_REFUND, REFUND, "Seven."]
    with Provider(script) as provider:
        agent_of(provider.base_url, tools).run("How many?")

    _, counted, _, asked = results_in(provider)
    assert counted == "count_stars: 7"
    assert "approv" in asked and "refunded" not in asked


def asks_about_money(one: toolscout.Tool, arguments: object) -> Permission:
    return Permission.ASK if one.name == "refund_order" else Permission.ALLOW


def test_a_mode_that_agno_cannot_have_is_refused_with_what_to_do():
    with pytest.raises(UsageError, match="Use 'bridge'"):
        ToolScoutTools([refund_order], settings=Settings(mode=toolscout.Mode.NATIVE))


def test_the_parts_of_agno_on_which_the_adapter_rests_are_there():
    missing = set(RUN_FIELDS) - Function.__private_attributes__.keys()
    names = {"stop_after_tool_call", "show_result", "tool_hooks", "skip_entrypoint_processing"}
    missing |= names - Function.model_fields.keys()
    missing |= {"execute", "aexecute"} - set(dir(FunctionCall))

    assert not missing, f"agno has changed; the adapter needs another way for {missing}."


def test_the_example_runs_as_it_is_written():
    with Provider([FIND_REFUND, REFUND, "It is refunded."]) as provider:
        said = run_example("agno_agent.py", provider.base_url)

    assert said == "It is refunded.\n"
    assert results_in(provider)[-1] == "A-7 is refunded."
    assert is_on_page("agno_agent.py", "agno.md")
