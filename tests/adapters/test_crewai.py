"""CrewAI keeps the contract, with a session for each run or one in the caller's state."""

import asyncio
import json
import re
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from inspect import signature
from pathlib import Path
from typing import Any, cast

import pytest
from crewai import LLM, Agent, Crew, Task
from crewai.context import ExecutionContext
from crewai.events.types.agent_events import (
    AgentExecutionStartedEvent,
    LiteAgentExecutionStartedEvent,
)
from crewai.flow import Flow, persist, start
from crewai.flow.persistence import SQLiteFlowPersistence
from crewai.hooks import (
    ToolCallHookContext,
    after_tool_call,
    before_tool_call,
    clear_all_tool_call_hooks,
)
from crewai.tools import BaseTool, tool
from crewai.tools.tool_failure import ToolExecutionFailedError
from crewai.utilities.agent_utils import execute_single_native_tool_call

import toolscout
from adapters import contract
from adapters.contract import (
    Ledger,
    Spec,
    Surface,
    check_async,
    check_concurrent_conversations,
    check_contract,
    check_streaming,
    check_two_conversations_do_not_share,
)
from adapters.provider import Provider, Request, call
from adapters.scripts import is_on_page, run_example
from toolscout import Catalog, Scout, Settings
from toolscout.adapters.crewai import RUN_EVENTS, STATE, hide_tools
from toolscout.errors import UsageError

Json = dict[str, Any]


@pytest.fixture(autouse=True)
def unwatched(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("CREWAI_DISABLE_TELEMETRY", "CREWAI_DISABLE_TRACKING", "OTEL_SDK_DISABLED"):
        monkeypatch.setenv(name, "true")
    monkeypatch.setenv("CREWAI_TRACING_ENABLED", "false")


def as_text(name: str, arguments: Json) -> Json:
    """CrewAI's schemas are strict, so arguments are a text."""
    return {"name": name, "arguments": json.dumps(arguments)}


SURFACE = Surface(bridge=as_text)


def agent_of(base_url: str, *tools: Any, stream: bool = False, **options: Any) -> Any:
    llm = LLM(model="openai/gpt-5.5", base_url=base_url, api_key="none", stream=stream)
    fields = {"role": "clerk", "goal": "Serve.", "backstory": "You are quick."} | options
    return Agent(llm=llm, tools=[*tools], **fields)


@dataclass(slots=True)
class Relay(Ledger):
    """Hands calls to the ledger of the day: tools are made once, because that takes long."""

    to: Ledger = field(default_factory=Ledger)

    def run(self, name: str, arguments: Mapping[str, Any]) -> str:
        return self.to.run(name, arguments)


RELAY = Relay()
TOOLS = {spec.name: cast("BaseTool", tool(spec.function(RELAY))) for spec in contract.SPECS}


def makes(
    specs: Sequence[Spec], ledger: Ledger, base_url: str, saved: object | None
) -> contract.Agent:
    RELAY.to = ledger
    kept = cast("Json", saved or {"messages": [], "state": {}})
    return Conversation(base_url, [TOOLS[spec.name] for spec in specs], **kept)


@dataclass
class Conversation:
    """An agent with the messages and the state that a flow would keep."""

    base_url: str
    tools: list[BaseTool]
    messages: list[Any] = field(default_factory=list[Any])
    state: Json = field(default_factory=dict[str, Any])

    def ask(self, message: str) -> str:
        return self._kept(self._agent().kickoff(self._asked(message)))

    async def ask_async(self, message: str) -> str:
        return self._kept(await self._agent().kickoff_async(self._asked(message)))

    def ask_streaming(self, message: str) -> str:
        return self._kept(self._agent(stream=True).kickoff(self._asked(message)))

    def another(self) -> contract.Agent:
        return Conversation(self.base_url, self.tools)

    def saved(self) -> object:
        return json.loads(json.dumps({"messages": self.messages, "state": self.state}))

    def _agent(self, **options: Any) -> Any:
        return hide_tools(agent_of(self.base_url, *self.tools, **options), state=self.state)

    def _asked(self, message: str) -> list[Any]:
        return [*self.messages, {"role": "user", "content": message}]

    def _kept(self, done: Any) -> str:
        self.messages = [one for one in done.messages if one["role"] != "system"]
        return done.raw


def test_an_agent_keeps_the_contract():
    check_contract(makes, mode="bridge", dialect="openai-chat", surface=SURFACE)


def test_conversations_share_nothing():
    check_two_conversations_do_not_share(
        makes, mode="bridge", dialect="openai-chat", surface=SURFACE
    )
    check_concurrent_conversations(makes, mode="bridge", dialect="openai-chat", surface=SURFACE)


def test_streaming_and_asynchronous_runs_send_the_same():
    check_streaming(makes, mode="bridge", dialect="openai-chat", surface=SURFACE)
    check_async(makes, mode="bridge", dialect="openai-chat", surface=SURFACE)


def do(name: str, **arguments: object) -> Any:
    return call("tool_call", **as_text(name, arguments))


def find(what: str) -> Any:
    return call("tool_search", queries=[what], limit=1, detail=None, max_tokens=None)


FIND_REFUND = find("pay an order back")
REFUND = do("refund_order", order="A-7")


@tool
def refund_order(order: str) -> str:
    """Pay the money for an order back to the customer."""
    return f"{order} is refunded."


@tool("Weigh Parcel")
async def weigh_parcel(number: str, unit: str = "kg") -> str:
    """Weigh a parcel on the scales."""
    return f"{number} has 3 {unit}."


def results_in(provider: Provider, at: int = -1) -> list[str]:
    return list(provider.requests[at].tool_results.values())


def shop(provider: Provider, *more: Any, state: Json | None = None, **options: Any) -> Any:
    agent = agent_of(provider.base_url, refund_order, *more, **options)
    return hide_tools(agent, state=state)


def test_strict_schemas_leave_room_for_what_the_meta_tools_take():
    with Provider(["Nothing to do."]) as provider:
        shop(provider).kickoff("Hello.")

    sent = {
        one.name: one.sent["function"]["parameters"] for one in provider.requests[0].definitions
    }
    assert sent["tool_call"]["properties"]["arguments"]["anyOf"][0] == {"type": "string"}
    assert {"type": "null"} in sent["tool_search"]["properties"]["limit"]["anyOf"]
    assert sent["tool_search"]["properties"]["queries"]["items"] == {"type": "string"}


def test_a_tool_is_called_by_the_name_that_crewai_gives_it_and_may_be_asynchronous():
    weigh = do("weigh_parcel", number="7")
    with Provider([find("weigh a parcel"), weigh, "Done."]) as provider:
        shop(provider, weigh_parcel).kickoff("Weigh it.")

    assert results_in(provider)[-1] == "7 has 3 kg."


def test_each_run_has_its_own_session_by_default():
    state: Json = {}
    script = [FIND_REFUND, "Found.", REFUND, "Refused."]
    kept = [FIND_REFUND, "Found.", REFUND, "Done."]
    with Provider([*script, *kept]) as provider:
        agent = shop(provider)
        agent.kickoff("Find it.")
        agent.kickoff("Refund it.")
        refused = results_in(provider)[-1]
        again = shop(provider, state=state)
        again.kickoff("Find it.")
        again.kickoff("Refund it.")

    assert "select:refund_order" in refused
    assert results_in(provider)[-1] == "A-7 is refunded."
    assert [entry["name"] for entry in state[STATE]["entries"]] == ["refund_order"]


def test_runs_of_one_agent_at_the_same_time_share_nothing():
    meeting = threading.Barrier(2, timeout=120)

    def once_both_are_here(request: Request) -> Any:
        meeting.wait()
        return REFUND

    ann = [FIND_REFUND, once_both_are_here, "Ann is done."]
    bob = [find("weigh a parcel"), once_both_are_here, "Bob is done."]
    with Provider({"of Ann": ann, "of Bob": bob}) as provider:
        agent = shop(provider, weigh_parcel)

        async def both() -> None:
            runs = (agent.kickoff_async(f"Errand of {name}.") for name in ("Ann", "Bob"))
            await asyncio.gather(*runs)

        asyncio.run(both())

    done = [
        results[-1]
        for one in provider.requests
        if len(results := [*one.tool_results.values()]) == 2
    ]
    assert sorted("refunded" in text for text in done) == [False, True]


def test_agents_of_a_crew_and_tools_of_a_task_have_sessions_of_their_own():
    ann = [FIND_REFUND, REFUND, "Ann is done."]
    bob = [REFUND, "Bob is done."]
    cat = [FIND_REFUND, REFUND, "Cat is done."]
    with Provider({"of Ann": ann, "of Bob": bob, "of Cat": cat}) as provider:
        tasks = [task_of(shop(provider), "Ann"), task_of(shop(provider), "Bob")]
        last = task_of(agent_of(provider.base_url), "Cat")
        last.tools = [cast("Any", refund_order)]
        tasks.append(hide_tools(last))
        for task in tasks:
            cast("Any", Crew(agents=[cast("Any", task.agent)], tasks=[task])).kickoff()

    finals = [results_in(provider, at)[-1] for at in (2, 4, 7)]
    assert ["refunded" in text for text in finals] == [True, False, True]


def task_of(agent: Agent, name: str) -> Task:
    return Task(description=f"Errand of {name}.", expected_output="A word.", agent=agent)


@pytest.fixture
def hooks() -> Iterator[None]:
    yield
    clear_all_tool_call_hooks()


@pytest.mark.usefixtures("hooks")
def test_hooks_see_the_tool_that_tool_call_runs_and_may_stop_it():
    seen: list[tuple[str, Any, str]] = []

    @before_tool_call(tools=["refund_order"], agents=["clerk"])
    def ask(context: ToolCallHookContext) -> bool | None:
        role = cast("Any", context.agent).role
        seen.append((context.tool_name, context.tool_input, role))
        return False

    with Provider([FIND_REFUND, REFUND, "Denied."]) as provider:
        shop(provider).kickoff("Refund it.")

    assert callable(ask)
    assert seen == [("refund_order", {"order": "A-7"}, "clerk")]
    assert "blocked by hook" in results_in(provider)[-1]


@pytest.mark.usefixtures("hooks")
def test_what_was_found_while_another_call_went_on_is_kept():
    found, state = threading.Event(), cast("Json", {})

    @tool
    def wait_for_the_search(minutes: int) -> str:
        """Wait in the queue."""
        assert found.wait(120)
        return "Waited."

    @after_tool_call
    def watch(context: ToolCallHookContext) -> str | None:
        if "order" in str(context.tool_input):
            found.set()
        return None

    both = [do("wait_for_the_search", minutes=1), FIND_REFUND]
    with Provider([find("wait in the queue"), both, REFUND, "Done."]) as provider:
        shop(provider, wait_for_the_search, state=state).kickoff("Wait, and refund A-7.")

    assert callable(watch)
    assert results_in(provider)[-1] == "A-7 is refunded."


def test_the_cache_of_an_agent_serves_hidden_tools_and_never_the_gate():
    weighed: list[str] = []

    @tool
    def weigh_letter(number: str) -> str:
        """Weigh a letter on the scales."""
        weighed.append(number)
        return "9 g"

    weigh, search = do("weigh_letter", number="7"), find("weigh a letter")
    script = [search, weigh, weigh, "Done.", weigh, search, weigh, "Done."]
    with Provider(script) as provider:
        agent = shop(provider, weigh_letter, cache=True)
        agent.kickoff("Weigh it twice.")
        agent.kickoff("Weigh it.")

    refused, found, again = results_in(provider)
    assert weighed == ["7"]
    assert "select:weigh_letter" in refused
    assert "weigh_letter" in found
    assert again == "9 g"


def test_a_limit_of_uses_holds_behind_tool_call():
    @tool(max_usage_count=1)
    def ring_bell(times: int) -> str:
        """Ring the bell."""
        return "Dong."

    ring, more = do("ring_bell", times=1), do("ring_bell", times=2)
    with Provider([find("ring the bell"), ring, more, "Done."]) as provider:
        shop(provider, ring_bell).kickoff("Ring it twice.")

    assert results_in(provider)[1] == "Dong."
    assert "usage limit" in results_in(provider)[2]


def test_a_tool_whose_result_is_the_answer_is_shown_and_ends_the_run():
    @tool(result_as_answer=True)
    def quote_price(article: str) -> str:
        """Quote the price of an article."""
        return f"{article}: 7 euros"

    with Provider([call("quote_price", article="lamp")]) as provider:
        said = shop(provider, quote_price).kickoff("How much is a lamp?")

    assert "quote_price" in provider.requests[0].tool_names
    assert said.raw == "lamp: 7 euros"


def test_a_failure_that_is_to_end_the_run_ends_it():
    @tool
    def open_safe(code: str) -> str:
        """Open the safe with a code."""
        raise ValueError("The alarm rings.")

    with (
        Provider([find("open the safe"), do("open_safe", code="1")]) as provider,
        pytest.raises(ToolExecutionFailedError, match="The alarm rings"),
    ):
        shop(provider, open_safe, tool_failure_policy="raise").kickoff("Open it.")


def test_a_flow_keeps_the_session_in_its_state_and_goes_on_with_it(tmp_path: Path):
    kept = SQLiteFlowPersistence(str(tmp_path / "flows.db"))

    @persist(kept)
    class Errands(Flow[dict[str, Any]]):
        @start()
        def work(self) -> str:
            agent = agent_of(provider.base_url, refund_order)
            hide_tools(agent, state=self.state.setdefault("memory", {}))
            return agent.kickoff("Do the errand.")

    with Provider([FIND_REFUND, "Found.", REFUND, "Done."]) as provider:
        first = Errands()
        first.kickoff()
        Errands().kickoff(inputs={"id": first.flow_id})

    assert results_in(provider)[-1] == "A-7 is refunded."


def test_tools_of_the_scouts_other_servers_are_found_and_run_by_their_executors():
    far = toolscout.Tool.define("count_stars", server="sky", description="Count the stars.")
    scout = Scout(
        Catalog({"sky": [far]}), executors={"sky": lambda tool, arguments: f"{tool.leaf}: 7"}
    )
    script = [find("count the stars"), do("sky__count_stars"), "Seven."]
    with Provider(script) as provider:
        agent = agent_of(provider.base_url, refund_order)
        hide_tools(agent, scout=scout).kickoff("How many?")

    assert results_in(provider)[-1] == "count_stars: 7"


def test_a_model_that_writes_its_calls_as_text_finds_and_calls_too():
    agent = agent_of("http://127.0.0.1:9/v1", refund_order)
    hide_tools(agent, state={})
    tools: Json = {one.name: one.to_structured_tool() for one in agent.tools}
    found = tools["tool_search"].invoke({"queries": ["pay an order back"]})
    done = tools["tool_call"].invoke({"name": "refund_order", "arguments": {"order": "A-7"}})

    assert "refund_order" in found
    assert done == "A-7 is refunded."


def test_what_cannot_work_is_refused_with_what_to_do():
    agent = agent_of("http://127.0.0.1:9/v1", refund_order)
    with pytest.raises(UsageError, match="Use 'bridge'"):
        hide_tools(agent, settings=Settings(mode=toolscout.Mode.NATIVE))
    with pytest.raises(UsageError, match="no tools to hide"):
        hide_tools(agent_of("http://127.0.0.1:9/v1"))


def test_the_parts_of_crewai_on_which_the_adapter_rests_are_there():
    wanted = {"available_functions", "original_tools", "structured_tools", "tools_handler"}
    wanted |= {"agent", "task", "crew", "event_source"}
    missing = wanted - signature(execute_single_native_tool_call).parameters.keys()
    missing |= {"event_id_stack"} - ExecutionContext.model_fields.keys()
    events = (AgentExecutionStartedEvent, LiteAgentExecutionStartedEvent)
    missing |= set(RUN_EVENTS) - {one.model_fields["type"].default for one in events}

    assert not missing, f"crewai has changed; the adapter needs another way for {missing}."


def test_the_example_runs_as_it_is_written():
    with Provider([FIND_REFUND, REFUND, "It is refunded."]) as provider:
        said = run_example("crewai_agent.py", provider.base_url)

    # CrewAI's threads may write a panel between the answer and the end of its line.
    assert re.search(r"^It is refunded\.", said, re.MULTILINE), said
    assert results_in(provider)[-1] == "A-7 is refunded."
    assert is_on_page("crewai_agent.py", "crewai.md")
