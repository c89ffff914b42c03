"""AutoGen keeps the contract, with a workbench."""

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import pytest
from autogen_agentchat.agents import AssistantAgent
from autogen_agentchat.base import TaskResult
from autogen_agentchat.messages import TextMessage, ToolCallExecutionEvent
from autogen_agentchat.tools import AgentTool
from autogen_core import CancellationToken
from autogen_core.models import ModelFamily, ModelInfo
from autogen_core.tools import (
    BaseTool,
    FunctionTool,
    StaticWorkbench,
    TextResultContent,
    ToolResult,
    ToolSchema,
    Workbench,
)
from autogen_ext.models.openai import OpenAIChatCompletionClient
from pydantic import BaseModel

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
from adapters.provider import Provider, call, unoffered
from adapters.scripts import is_on_page, run_example
from adapters.surfaces import DialectName
from adapters.surfaces import Mode as ModeName
from toolscout import Catalog, Mode, Scout, Settings, Tool
from toolscout.adapters.autogen import ToolScoutWorkbench
from toolscout.errors import UsageError

Json = dict[str, Any]
CHAT: DialectName = "openai-chat"
WAYS: tuple[tuple[ModeName, Mode], ...] = (("native", Mode.NATIVE), ("bridge", Mode.BRIDGE))
every_way = pytest.mark.parametrize(("mode", "setting"), WAYS, ids=[mode for mode, _ in WAYS])


def model_at(base_url: str) -> OpenAIChatCompletionClient:
    info = ModelInfo(
        vision=False,
        function_calling=True,
        json_output=True,
        family=ModelFamily.UNKNOWN,
        structured_output=True,
    )
    return OpenAIChatCompletionClient(
        model="gpt-5.5", api_key="none", base_url=base_url, model_info=info, max_retries=0
    )


@dataclass(slots=True)
class Relay(Ledger):
    """Hands calls to the ledger of the day: tools are made once, because that takes long."""

    to: Ledger = field(default_factory=Ledger)

    def run(self, name: str, arguments: Mapping[str, Any]) -> str:
        return self.to.run(name, arguments)


RELAY = Relay()
TOOLS = {
    spec.name: FunctionTool(spec.function(RELAY), description=spec.description)
    for spec in contract.SPECS
}


@dataclass(frozen=True)
class Makes:
    """Makes agents; without a mode, such as send all tools."""

    mode: Mode | None = Mode.NATIVE

    def __call__(
        self, specs: Sequence[Spec], ledger: Ledger, base_url: str, saved: object | None
    ) -> contract.Agent:
        RELAY.to = ledger
        tools: list[BaseTool[Any, Any]] = [TOOLS[spec.name] for spec in specs]
        workbench: Workbench = StaticWorkbench(tools)
        if self.mode is not None:
            workbench = ToolScoutWorkbench(tools, settings=Settings(mode=self.mode))
        return Conversation(base_url, workbench, cast("Json | None", saved))


@dataclass
class Conversation:
    """An agent, and its workbench, which has to be saved separately."""

    base_url: str
    workbench: Workbench
    kept: Json | None = None

    def ask(self, message: str) -> str:
        return asyncio.run(self.ask_async(message))

    async def ask_async(self, message: str) -> str:
        return await self._asked(message, streams=False)

    async def ask_streaming(self, message: str) -> str:
        return await self._asked(message, streams=True)

    async def _asked(self, message: str, *, streams: bool) -> str:
        # Connections do not outlive an event loop, so each question has a new agent.
        model = model_at(self.base_url)
        agent = AssistantAgent(
            "clerk",
            model,
            workbench=self.workbench,
            system_message="Be brief.",
            max_tool_iterations=20,
            model_client_stream=streams,
        )
        if self.kept is not None:
            await agent.load_state(self.kept["agent"])
            await self.workbench.load_state(self.kept["workbench"])
        result: TaskResult | None = None
        async for event in agent.run_stream(task=message):
            result = event if isinstance(event, TaskResult) else result
        states = {"agent": await agent.save_state(), "workbench": await self.workbench.save_state()}
        self.kept = json.loads(json.dumps(states))
        await model.close()
        assert result is not None
        return cast("TextMessage", result.messages[-1]).content

    def another(self) -> contract.Agent:
        assert isinstance(self.workbench, ToolScoutWorkbench)
        return Conversation(self.base_url, self.workbench.create_another())

    def saved(self) -> object:
        return self.kept


@every_way
def test_an_agent_keeps_the_contract(mode: ModeName, setting: Mode):
    plain = Makes(None) if mode == "native" else None

    check_contract(Makes(setting), mode=mode, dialect=CHAT, plain=plain)


@every_way
def test_streamed_and_asynchronous_runs_send_the_same(mode: ModeName, setting: Mode):
    check_streaming(Makes(setting), mode=mode, dialect=CHAT)
    check_async(Makes(setting), mode=mode, dialect=CHAT)


@every_way
def test_workbenches_of_one_catalogue_share_nothing_that_was_found(mode: ModeName, setting: Mode):
    check_two_conversations_do_not_share(Makes(setting), mode=mode, dialect=CHAT)
    check_concurrent_conversations(Makes(setting), mode=mode, dialect=CHAT)


def weigh_parcel(number: int) -> str:
    """Weigh a parcel on the scales."""
    return f"Parcel {number} has 3 kg."


def read_owner() -> str:
    """Tell who the owner of the shop is."""
    return "Ada owns it."


SHOP = (weigh_parcel, read_owner)
FIND_SCALES = call("tool_search", queries=["weigh a parcel on the scales"], limit=1)
WEIGH = call("weigh_parcel", number=7)
BRIDGED_WEIGH = call("tool_call", name="weigh_parcel", arguments={"number": 7})
META = ["tool_search", "tool_describe", "tool_call"]


async def asked(provider: Provider, workbench: Workbench, said: str, **options: Any) -> TaskResult:
    model = model_at(provider.base_url)
    options = {"max_tool_iterations": 10, **options}
    agent = AssistantAgent("clerk", model, workbench=workbench, **options)
    result = await agent.run(task=said)
    await model.close()
    return result


def results_in(provider: Provider) -> list[str]:
    return list(provider.requests[-1].tool_results.values())


def names_listed(workbench: Workbench) -> list[str]:
    return [schema["name"] for schema in asyncio.run(workbench.list_tools())]


def test_a_call_without_an_agent_is_gated_and_reports_failure():
    workbench = ToolScoutWorkbench(SHOP)
    hidden = asyncio.run(workbench.call_tool("weigh_parcel", {"number": 7}))
    unknown = asyncio.run(workbench.call_tool("fly_away"))
    asyncio.run(workbench.call_tool("tool_search", FIND_SCALES.arguments))
    found = asyncio.run(workbench.call_tool("weigh_parcel", {"number": "7"}))
    wrong = asyncio.run(workbench.call_tool("weigh_parcel", {"number": "many"}))

    assert hidden.is_error
    assert "tool_search" in hidden.to_text()
    assert unknown.is_error
    assert not found.is_error
    assert found.name == "weigh_parcel"
    assert found.to_text().splitlines()[-1] == "Parcel 7 has 3 kg."
    assert found.to_text().startswith("(")  # what was repaired
    assert wrong.is_error
    assert "number" in wrong.to_text()


def test_a_reset_forgets_what_was_found():
    workbench = ToolScoutWorkbench(SHOP)
    asyncio.run(workbench.call_tool("tool_search", FIND_SCALES.arguments))
    before = names_listed(workbench)
    asyncio.run(workbench.reset())

    assert before == [*META, "weigh_parcel"]
    assert names_listed(workbench) == META


def test_another_workbench_has_the_tools_and_nothing_that_was_found():
    workbench = ToolScoutWorkbench(SHOP)
    asyncio.run(workbench.call_tool("tool_search", FIND_SCALES.arguments))
    other = workbench.create_another()
    asyncio.run(other.call_tool("tool_search", {"queries": ["select:read_owner"]}))

    assert names_listed(other) == [*META, "read_owner"]
    assert names_listed(workbench) == [*META, "weigh_parcel"]


def test_a_state_that_was_loaded_and_not_used_is_saved_again():
    workbench, later = ToolScoutWorkbench(SHOP), ToolScoutWorkbench(SHOP)
    asyncio.run(workbench.call_tool("tool_search", FIND_SCALES.arguments))
    state = asyncio.run(workbench.save_state())
    asyncio.run(later.load_state(state))

    assert asyncio.run(later.save_state()) == state
    assert names_listed(later) == [*META, "weigh_parcel"]


def test_a_found_tool_gets_the_cancellation_token():
    seen: list[object] = []

    async def hold_line(cancellation_token: CancellationToken) -> str:
        """Hold the telephone line for a while."""
        seen.append(cancellation_token)
        return "Held."

    token, workbench = CancellationToken(), ToolScoutWorkbench([hold_line, *SHOP])
    asyncio.run(workbench.call_tool("tool_search", {"queries": ["select:hold_line"]}))
    asyncio.run(workbench.call_tool("hold_line", {}, token))

    assert seen == [token]


class Yard(Workbench):
    """A workbench whose tools come and go, as those of an MCP server do."""

    component_type = "workbench"
    component_config_schema = BaseModel

    def __init__(self) -> None:
        self.is_open, self.running = True, False

    async def list_tools(self) -> list[ToolSchema]:
        park = FunctionTool(park_truck, description="Park a truck in the yard.").schema
        return [park] if self.is_open else []

    async def call_tool(self, name: str, *_: Any, **__: Any) -> ToolResult:
        return ToolResult(name=name, result=[TextResultContent(content="Parked.")])

    async def start(self) -> None:
        self.running = True

    async def stop(self) -> None:
        self.running = False

    async def reset(self) -> None:
        self.is_open = True

    async def save_state(self) -> Mapping[str, Any]:
        return {"open": self.is_open}

    async def load_state(self, state: Mapping[str, Any]) -> None:
        self.is_open = bool(state["open"])


def park_truck(place: str) -> str:
    raise AssertionError("the workbench answers")


def test_tools_of_another_workbench_are_hidden_as_long_as_it_has_them():
    yard = Yard()
    workbench = ToolScoutWorkbench([read_owner, yard])
    find = call("tool_search", queries=["park a truck"], limit=1)
    park = call("park_truck", place="gate 3")

    def close(request: Any) -> Any:
        yard.is_open = False
        return park

    with Provider([find, park, close, "Done."]) as provider:

        async def all_day() -> None:
            async with workbench:
                assert yard.running
                await asked(provider, workbench, "Park it.")

        asyncio.run(all_day())

    assert not yard.running
    assert [request.tool_names[3:] for request in provider.requests] == [
        [],
        ["park_truck"],
        ["park_truck"],
        [],
    ]
    assert results_in(provider)[1] == "Parked."
    assert "Parked" not in results_in(provider)[2]
    assert asyncio.run(workbench.save_state())["workbenches"][1] == {"open": False}


def test_what_an_agent_behind_a_tool_says_is_streamed_through():
    inner = [FIND_SCALES, WEIGH, "3 kg."]
    find = call("tool_search", queries=["ask the weigher"], limit=1)
    ask = call("weigher", task="Weigh parcel 7.")

    async def streamed(provider: Provider) -> list[Any]:
        models = model_at(provider.base_url), model_at(provider.base_url)
        weigher = AssistantAgent(
            "weigher",
            models[0],
            description="Ask the weigher about parcels.",
            workbench=ToolScoutWorkbench(SHOP),
            max_tool_iterations=9,
        )
        workbench = ToolScoutWorkbench([AgentTool(weigher), *SHOP])
        boss = AssistantAgent("boss", models[1], workbench=workbench, max_tool_iterations=9)
        events = [event async for event in boss.run_stream(task="Boss: what does it weigh?")]
        for model in models:
            await model.close()
        return events

    with Provider({"Weigh parcel 7.": inner, "Boss": [find, ask, "Done."]}) as provider:
        events = asyncio.run(streamed(provider))

    inside = [event for event in events if getattr(event, "source", "") == "weigher"]
    assert any(isinstance(event, ToolCallExecutionEvent) for event in inside)
    assert "3 kg." in results_in(provider)[-1]
    assert provider.requests[-1].tool_names == [*META, "weigher"]


def test_with_the_usual_number_of_iterations_the_agent_stops_after_its_search():
    with Provider([FIND_SCALES]) as provider:
        result = asyncio.run(
            asked(provider, ToolScoutWorkbench(SHOP), "Weigh it.", max_tool_iterations=1)
        )

    assert "weigh_parcel" in cast("TextMessage", result.messages[-1]).content


def test_handoffs_stay_in_sight_behind_the_workbench():
    with Provider([FIND_SCALES, WEIGH, "Done."]) as provider:
        asyncio.run(asked(provider, ToolScoutWorkbench(SHOP), "Weigh it.", handoffs=["boss"]))

    assert provider.requests[0].tool_names == [*META, "transfer_to_boss"]
    assert provider.requests[1].tool_names == [*META, "weigh_parcel", "transfer_to_boss"]


def test_one_agent_can_have_two_workbenches():
    other = StaticWorkbench([FunctionTool(read_owner, description="Tell the owner.")])
    with Provider([call("read_owner"), FIND_SCALES, WEIGH, "Done."]) as provider:
        both: Any = [ToolScoutWorkbench([weigh_parcel]), other]
        asyncio.run(asked(provider, both, "Weigh it."))

    assert provider.requests[-1].tool_names == [*META, "weigh_parcel", "read_owner"]
    assert results_in(provider)[0] == "Ada owns it."
    assert results_in(provider)[2] == "Parcel 7 has 3 kg."


def test_an_agent_that_was_written_down_and_read_again_is_the_same():
    tool = FunctionTool(weigh_parcel, description="Weigh a parcel on the scales.")
    settings = Settings(mode=Mode.NATIVE, pins=("read_owner",), routes={"weigh_parcel": ["kilo"]})  # pyright: ignore[reportArgumentType]  # as a file has it
    owner = FunctionTool(read_owner, description="Tell who the owner of the shop is.")
    workbench = ToolScoutWorkbench([tool, owner], settings=settings)
    written = json.loads(json.dumps(workbench.dump_component().model_dump()))
    with pytest.warns(UserWarning, match="FunctionTool"):  # AutoGen's own, on code in configs
        read = Workbench.load_component(written)

    assert isinstance(read, ToolScoutWorkbench)
    assert names_listed(read) == [*META, "read_owner"]
    asyncio.run(read.call_tool("tool_search", FIND_SCALES.arguments))
    assert asyncio.run(read.call_tool("weigh_parcel", {"number": 7})).to_text().endswith("3 kg.")


def test_a_workbench_with_a_scout_has_no_declarative_form():
    with pytest.raises(UsageError, match="plain settings"):
        ToolScoutWorkbench(SHOP, scout=Scout(Catalog())).dump_component()


def test_tools_of_the_scouts_other_servers_are_found_and_run_by_their_executors():
    far = Tool.define("count_stars", server="sky", description="Count the stars.")
    scout = Scout(
        Catalog({"sky": [far]}),
        executors={"sky": lambda tool, arguments: f"{tool.leaf}: 7"},
        settings=Settings(mode=Mode.NATIVE),
    )
    script = [call("tool_search", queries=["count the stars"], limit=1), call("sky__count_stars")]
    script += [call("tool_call", name="sky__count_stars"), "Seven."]
    with Provider(script) as provider:
        asyncio.run(asked(provider, ToolScoutWorkbench(SHOP, scout=scout), "How many?"))

    assert results_in(provider)[1:] == ["count_stars: 7"] * 2


def test_a_mode_that_autogen_cannot_serve_is_refused_at_once():
    with pytest.raises(UsageError, match="Use 'native' or 'bridge'"):
        ToolScoutWorkbench(SHOP, settings=Settings(mode=Mode.DEFINITIONS))


def test_agents_look_up_a_name_in_the_list_as_the_adapter_expects():
    """If this fails, a call of a hidden tool is answered by the agent, not by `tool_search`."""
    with Provider([unoffered(WEIGH), "Done."]) as provider:
        asyncio.run(asked(provider, ToolScoutWorkbench(SHOP), "Weigh it."))

    assert "tool_search" in results_in(provider)[0]


def test_the_example_runs_as_the_page_shows_it():
    script = [call("tool_search", queries=["refund an order"], limit=1)]
    script += [call("refund_order", order="A-7"), "Order A-7 is refunded."]
    with Provider(script) as provider:
        said = run_example("autogen_agent.py", provider.base_url)

    assert said == "Order A-7 is refunded.\n"
    assert provider.requests[1].tool_names[3:] == ["refund_order"]
    assert is_on_page("autogen_agent.py", "autogen.md")
