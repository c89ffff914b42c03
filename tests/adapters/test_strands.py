"""Strands Agents keeps the contract, with a plugin."""

import asyncio
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import pytest
from mcp.client.stdio import StdioServerParameters, stdio_client
from pydantic import BaseModel
from strands import Agent, ToolContext, tool  # pyright: ignore[reportUnknownVariableType]  # half typed
from strands.hooks import AfterToolCallEvent, BeforeToolCallEvent
from strands.middleware import ExecuteToolStage, InvokeModelStage
from strands.models.openai import OpenAIModel
from strands.session.file_session_manager import FileSessionManager
from strands.tools.mcp import MCPClient
from strands.tools.tools import PythonAgentTool
from strands.types.tools import AgentTool

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
from toolscout import Catalog, Mode, Permission, Policy, Scout, Settings, Tool
from toolscout.adapters.strands import APPROVAL, STATE, ToolScoutPlugin
from toolscout.errors import UsageError

CHAT: DialectName = "openai-chat"
WAYS: tuple[tuple[ModeName, Mode], ...] = (("native", Mode.NATIVE), ("bridge", Mode.BRIDGE))
every_way = pytest.mark.parametrize(("mode", "setting"), WAYS, ids=[mode for mode, _ in WAYS])


@pytest.fixture(autouse=True)
def _kept_below(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:  # pyright: ignore[reportUnusedFunction]  # pytest calls it
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))


def model_at(base_url: str) -> OpenAIModel:
    client = {"api_key": "none", "base_url": base_url, "max_retries": 0}
    return OpenAIModel(client_args=client, model_id="gpt-5.5")


@dataclass(slots=True)
class Relay(Ledger):
    """Hands calls to the ledger of the day: tools are made once, because that takes long."""

    to: Ledger = field(default_factory=Ledger)

    def run(self, name: str, arguments: Mapping[str, Any]) -> str:
        return self.to.run(name, arguments)


RELAY = Relay()
TOOLS: dict[str, Any] = {spec.name: tool(spec.function(RELAY)) for spec in contract.SPECS}


@dataclass(frozen=True)
class Makes:
    """Makes agents; without a mode, such as send all tools."""

    mode: Mode | None = Mode.NATIVE

    def __call__(
        self, specs: Sequence[Spec], ledger: Ledger, base_url: str, saved: object | None
    ) -> contract.Agent:
        RELAY.to = ledger
        plugins = [ToolScoutPlugin(settings=Settings(mode=self.mode))] if self.mode else []
        folder = str(saved or tempfile.mkdtemp())
        return Conversation(base_url, [TOOLS[spec.name] for spec in specs], plugins, folder)


class Conversation:
    """An agent, which is one conversation, and the folder in which it is kept."""

    def __init__(
        self, base_url: str, tools: list[Any], plugins: list[ToolScoutPlugin], folder: str
    ) -> None:
        self.base_url, self.tools, self.plugins, self.folder = base_url, tools, plugins, folder
        self.agent = Agent(
            model_at(base_url),
            tools=tools,
            plugins=[*plugins],
            system_prompt="Be brief.",
            callback_handler=None,
            session_manager=FileSessionManager("talk", storage_dir=folder),
        )

    def ask(self, message: str) -> str:
        return str(self.agent(message))

    async def ask_async(self, message: str) -> str:
        return str(await self.agent.invoke_async(message))

    async def ask_streaming(self, message: str) -> str:
        events = [event async for event in self.agent.stream_async(message)]
        assert any("data" in event for event in events)
        return str(events[-1]["result"])

    def another(self) -> contract.Agent:
        return Conversation(self.base_url, self.tools, self.plugins, tempfile.mkdtemp())

    def saved(self) -> object:
        return self.folder


@every_way
def test_an_agent_keeps_the_contract(mode: ModeName, setting: Mode):
    plain = Makes(None) if mode == "native" else None

    check_contract(Makes(setting), mode=mode, dialect=CHAT, plain=plain)


@every_way
def test_streamed_and_asynchronous_runs_send_the_same(mode: ModeName, setting: Mode):
    check_streaming(Makes(setting), mode=mode, dialect=CHAT)
    check_async(Makes(setting), mode=mode, dialect=CHAT)


@every_way
def test_two_agents_with_one_plugin_share_nothing_that_was_found(mode: ModeName, setting: Mode):
    check_two_conversations_do_not_share(Makes(setting), mode=mode, dialect=CHAT)
    check_concurrent_conversations(Makes(setting), mode=mode, dialect=CHAT)


@tool
def weigh_parcel(number: int) -> str:
    """Weigh a parcel on the scales."""
    return f"Parcel {number} has 3 kg."


@tool(context=True)
def pay_supplier(name: str, cents: int, tool_context: ToolContext) -> str:
    """Transfer money to a supplier."""
    answer = cast("Any", tool_context).interrupt("pay", reason=f"{name} gets {cents}?")
    return f"{name} got {cents}." if answer == "yes" else "Nobody got anything."


@tool(context=True)
def read_owner(tool_context: ToolContext) -> str:
    """Tell who the owner of the shop is."""
    return f"{tool_context.invocation_state['owner']} asked as {tool_context.tool_use['name']}."


SHOP: list[Any] = [weigh_parcel, pay_supplier, read_owner]
META = ["tool_search", "tool_describe", "tool_call"]
FIND_PAY = call("tool_search", queries=["transfer money to a supplier"], limit=1)
PAY = call("pay_supplier", name="Ada", cents=5)
BRIDGED_PAY = call("tool_call", name="pay_supplier", arguments={"name": "Ada", "cents": 5})
FIND_SCALES = call("tool_search", queries=["weigh a parcel on the scales"], limit=1)
WEIGH = call("weigh_parcel", number=7)
BRIDGED_WEIGH = call("tool_call", name="weigh_parcel", arguments={"number": 7})
by_both_ways = pytest.mark.parametrize(
    "made", [WEIGH, BRIDGED_WEIGH], ids=["by name", "behind tool_call"]
)


def shop_agent(
    provider: Provider, *, plugin: ToolScoutPlugin | None = None, **options: Any
) -> Agent:
    options = {"tools": SHOP, **options}
    plugins: Any = [plugin or ToolScoutPlugin()]
    model = model_at(provider.base_url)
    return Agent(model, plugins=plugins, callback_handler=None, **options)


def answers(result: Any, response: object) -> list[Any]:
    [interrupt] = result.interrupts
    return [{"interruptResponse": {"interruptId": interrupt.id, "response": response}}]


def results_in(provider: Provider) -> list[str]:
    return list(provider.requests[-1].tool_results.values())


@pytest.mark.parametrize("made", [PAY, BRIDGED_PAY], ids=["by name", "behind tool_call"])
@pytest.mark.parametrize("response", ["yes", "no"])
def test_a_found_tool_may_interrupt_and_goes_on_in_a_new_process(
    made: Any, response: str, tmp_path: Path
):
    def agent(provider: Provider) -> Agent:
        return shop_agent(
            provider, session_manager=FileSessionManager("a", storage_dir=str(tmp_path))
        )

    with Provider([FIND_PAY, made, "Done."]) as provider:
        asked = agent(provider)("Pay Ada.")
        done = agent(provider)(answers(asked, response))

    assert asked.interrupts is not None
    assert asked.interrupts[0].reason == "Ada gets 5?"
    assert str(done).strip() == "Done."
    assert ("Ada got 5." in results_in(provider)[-1]) is (response == "yes")


def test_a_hook_that_asks_about_a_tool_by_its_name_still_does():
    def ask(event: BeforeToolCallEvent) -> None:
        if event.tool_use["name"] == "weigh_parcel" and event.interrupt("weigh") != "yes":
            event.cancel_tool = "Not now."

    with Provider([FIND_SCALES, WEIGH, "Done."]) as provider:
        agent = shop_agent(provider)
        agent.add_hook(ask)
        asked = agent("Weigh it.")
        agent(answers(asked, "no"))

    assert results_in(provider)[-1] == "Not now."


@by_both_ways
@pytest.mark.parametrize("response", ["Yes", "no"])
def test_what_toolscouts_policy_asks_about_is_an_interrupt(made: Any, response: str):
    policy = Policy(permit=lambda tool, arguments: Permission.ASK)
    scout = Scout(Catalog(), policy=policy, settings=Settings(mode=Mode.NATIVE))
    with Provider([FIND_SCALES, made, "Done."]) as provider:
        agent = shop_agent(provider, plugin=ToolScoutPlugin(scout=scout))
        asked = agent("Weigh it.")
        agent(answers(asked, response))

    assert asked.interrupts is not None
    assert asked.interrupts[0].name == APPROVAL
    assert ("3 kg" in results_in(provider)[-1]) is (response == "Yes")


def test_a_tool_gets_the_context_of_its_own_call_also_behind_tool_call():
    script = [call("tool_search", queries=["owner of the shop"], limit=1)]
    script += [call("read_owner"), call("tool_call", name="read_owner"), "Ada."]
    with Provider(script) as provider:
        shop_agent(provider)("Whose is it?", invocation_state={"owner": "Ada"})

    assert results_in(provider)[1:] == ["Ada asked as read_owner."] * 2


def test_arguments_are_repaired_and_the_model_is_informed():
    with Provider([FIND_SCALES, call("weigh_parcel", number="7"), "Done."]) as provider:
        shop_agent(provider)("Weigh it.")

    result = results_in(provider)[-1]
    assert result.startswith("(")
    assert result.endswith("Parcel 7 has 3 kg.")


def test_what_the_host_calls_by_itself_needs_no_search():
    with Provider() as provider:
        agent = shop_agent(provider)
        result = agent.tool.weigh_parcel(number=7)

    assert result["content"] == [{"text": "Parcel 7 has 3 kg."}]


def test_with_tools_of_its_own_the_plugin_leaves_those_of_the_agent_in_sight():
    with Provider([FIND_SCALES, WEIGH, "Done."]) as provider:
        plugin = ToolScoutPlugin([weigh_parcel, pay_supplier])
        shop_agent(provider, plugin=plugin, tools=[read_owner])("Weigh it.")

    assert provider.requests[0].tool_names == ["read_owner", *META]
    assert provider.requests[1].tool_names == ["read_owner", *META, "weigh_parcel"]
    assert results_in(provider)[-1] == "Parcel 7 has 3 kg."


class Weight(BaseModel):
    """What a parcel weighs."""

    kilos: int


def test_the_tool_for_structured_output_is_never_hidden():
    with Provider([FIND_SCALES, WEIGH, call("Weight", kilos=3)]) as provider:
        result = shop_agent(provider)("Weigh it.", structured_output_model=Weight)

    assert result.structured_output == Weight(kilos=3)
    assert "Weight" in provider.requests[0].tool_names


def test_an_agent_behind_a_tool_has_a_session_of_its_own():
    inner = [FIND_SCALES, WEIGH, "3 kg."]
    find = call("tool_search", queries=["ask the clerk"], limit=1)
    outer = [find, call("clerk", input="Weigh."), unoffered(WEIGH), "Done."]
    with Provider({"Weigh.": inner, "Boss": outer}) as provider:
        clerk = shop_agent(provider, name="clerk", description="Ask the clerk of the scales.")
        shop_agent(provider, tools=[clerk.as_tool(), *SHOP])("Boss: what does it weigh?")

    assert "3 kg." in results_in(provider)[1]
    assert "tool_search" in results_in(provider)[2]
    assert provider.requests[-1].tool_names == [*META, "clerk"]


def test_a_tool_that_comes_in_mid_conversation_can_be_found():
    find = call("tool_search", queries=["open the door of the shop"], limit=1)

    @tool
    def open_door() -> str:
        """Open the door of the shop."""
        return "It is open."

    with Provider(["Hello.", find, call("open_door"), "Done."]) as provider:
        agent = shop_agent(provider)
        agent("Hello.")
        agent.tool_registry.register_tool(open_door)
        agent("Open it.")

    assert results_in(provider)[-1] == "It is open."


SERVER = """
from mcp.server.mcpserver import MCPServer

server = MCPServer("yard")


@server.tool()
def park_truck(place: str) -> str:
    "Park a truck in the yard."
    return f"Parked at {place}."


@server.tool()
def wash_truck() -> str:
    "Wash a truck."
    return "Clean."


server.run()
"""


def test_tools_of_an_mcp_server_are_hidden_found_and_called(tmp_path: Path):
    script = tmp_path / "yard.py"
    script.write_text(SERVER, encoding="utf-8")
    find = call("tool_search", queries=["park a truck"], limit=1)
    park = call("park_truck", place="gate 3")
    server = StdioServerParameters(command=sys.executable, args=[str(script)])

    def connect() -> Any:
        return stdio_client(server)

    moves = [find, park, call("tool_call", name="wash_truck"), "Done."]
    with Provider(moves) as provider, MCPClient(connect) as yard:
        shop_agent(provider, tools=[*yard.list_tools_sync()])("Park it.")

    assert provider.requests[0].tool_names == META
    assert provider.requests[1].tool_names == [*META, "park_truck"]
    assert "Parked at gate 3." in results_in(provider)[1]
    assert "tool_search" in results_in(provider)[2]


def test_tools_of_the_scouts_other_servers_are_found_and_run_by_their_executors():
    far = Tool.define("count_stars", server="sky", description="Count the stars.")
    scout = Scout(
        Catalog({"sky": [far]}),
        executors={"sky": lambda tool, arguments: f"{tool.leaf}: 7"},
        settings=Settings(mode=Mode.NATIVE),
    )
    script = [call("tool_search", queries=["count the stars"], limit=1), call("sky__count_stars")]
    script += [call("tool_call", name="sky__count_stars"), unoffered(call("fly_away")), "Seven."]
    with Provider(script) as provider:
        shop_agent(provider, plugin=ToolScoutPlugin(scout=scout))("How many?")

    assert results_in(provider)[1:3] == ["count_stars: 7"] * 2
    assert results_in(provider)[3] == "Unknown tool: fly_away"


def test_a_call_that_ends_after_a_concurrent_search_keeps_its_hits():
    searched = asyncio.Event()

    @tool
    async def wait_outside() -> str:
        """Wait outside until someone calls."""
        await asyncio.wait_for(searched.wait(), 120)
        return "Back."

    def notice(event: AfterToolCallEvent) -> None:
        if "scales" in str(event.tool_use["input"]):
            searched.set()

    find = call("tool_search", queries=["select:wait_outside"])
    wait = call("wait_outside")
    with Provider([find, [wait, FIND_SCALES], WEIGH, "Done."]) as provider:
        agent = shop_agent(provider, tools=[*SHOP, wait_outside])
        agent.add_hook(notice)
        agent("Wait, and weigh it.")

    assert provider.requests[2].tool_names == [*META, "wait_outside", "weigh_parcel"]
    assert results_in(provider)[-1] == "Parcel 7 has 3 kg."


def test_the_session_is_in_the_agents_state_and_nowhere_else():
    with Provider([FIND_SCALES, "Found.", unoffered(WEIGH), "Gone."]) as provider:
        agent = shop_agent(provider)
        agent("Look for it.")
        kept = agent.state.get(STATE)
        agent.state.delete(STATE)
        agent("Weigh it.")

    assert [entry["name"] for entry in kept["entries"]] == ["weigh_parcel"]
    assert "tool_search" in results_in(provider)[-1]


def test_a_mode_that_strands_cannot_serve_is_refused_at_once():
    with pytest.raises(UsageError, match="Use 'native' or 'bridge'"):
        ToolScoutPlugin(settings=Settings(mode=Mode.REFERENCE))


def test_the_parts_of_the_sdk_on_which_the_adapter_rests_are_there():
    needed = [
        (InvokeModelStage, "Input"),
        (ExecuteToolStage, "Wrap"),
        (AgentTool, "tool_type"),
        (PythonAgentTool, "tool_spec"),
        (type(Agent(callback_handler=None).tool_registry), "process_tools"),
    ]
    missing = [name for owner, name in needed if not hasattr(owner, name)]

    assert not missing, f"strands-agents has changed; the adapter needs another way for {missing}."


def test_the_example_runs_as_the_page_shows_it():
    script = [call("tool_search", queries=["refund an order"], limit=1)]
    script += [call("refund_order", order="A-7"), "Order A-7 is refunded."]
    with Provider(script) as provider:
        said = run_example("strands_agent.py", provider.base_url)

    assert said.endswith("Order A-7 is refunded.")
    assert provider.requests[1].tool_names == [*META, "refund_order"]
    assert is_on_page("strands_agent.py", "strands.md")
