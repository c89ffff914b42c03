"""Microsoft's Agent Framework keeps the contract, with a context provider."""

import asyncio
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import pytest
from agent_framework import (
    Agent,
    AgentResponse,
    AgentSession,
    FunctionInvocationContext,
    FunctionTool,
    MCPStdioTool,
    Message,
    function_middleware,
    tool,
)
from agent_framework.openai import OpenAIChatClient, OpenAIChatCompletionClient
from httpx2 import Limits
from openai import AsyncOpenAI, DefaultAsyncHttpxClient

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
from toolscout.adapters.agent_framework import ToolScoutProvider
from toolscout.errors import UsageError

Json = dict[str, Any]
CHAT: DialectName = "openai-chat"
WAYS: tuple[tuple[ModeName, Mode, DialectName], ...] = (
    ("native", Mode.NATIVE, "openai-chat"),
    ("native", Mode.NATIVE, "openai-responses"),
    ("bridge", Mode.BRIDGE, "openai-chat"),
)
every_way = pytest.mark.parametrize(
    ("mode", "setting", "dialect"), WAYS, ids=[f"{mode}-{dialect}" for mode, _, dialect in WAYS]
)


def client_at(base_url: str, dialect: DialectName = CHAT) -> Any:
    kind = OpenAIChatCompletionClient if dialect == CHAT else OpenAIChatClient
    # Each question has an event loop of its own, so no connection may outlive one.
    http = DefaultAsyncHttpxClient(limits=Limits(max_keepalive_connections=0))
    openai = AsyncOpenAI(base_url=base_url, api_key="none", max_retries=0, http_client=http)
    return kind(model="gpt-5.5", async_client=openai)


def tool_of(spec: Spec, ledger: Ledger) -> FunctionTool:
    def run(**arguments: Any) -> str:
        return ledger.run(spec.name, arguments)

    return FunctionTool(
        name=spec.name, description=spec.description, input_model=spec.schema, func=run
    )


@dataclass(frozen=True)
class Makes:
    """Makes agents; without a mode, such as send all tools."""

    mode: Mode | None = Mode.NATIVE
    dialect: DialectName = CHAT

    def __call__(
        self, specs: Sequence[Spec], ledger: Ledger, base_url: str, saved: object | None
    ) -> contract.Agent:
        settings = Settings(mode=self.mode) if self.mode else None
        providers = [ToolScoutProvider(settings=settings)] if settings else []
        agent = Agent(
            client=client_at(base_url, self.dialect),
            instructions="Be brief.",
            tools=[tool_of(spec, ledger) for spec in specs],
            context_providers=providers,
            default_options={"store": False},
        )
        return Conversation(agent, _read(saved))


def _read(saved: object | None) -> AgentSession:
    return AgentSession.from_dict(cast("Json", saved)) if saved else AgentSession()


@dataclass
class Conversation:
    """An agent and a session, which is all that the framework keeps."""

    agent: Agent[Any]
    session: AgentSession

    def ask(self, message: str) -> str:
        return asyncio.run(self.ask_async(message))

    async def ask_async(self, message: str) -> str:
        return (await self.agent.run(message, session=self.session)).text

    async def ask_streaming(self, message: str) -> str:
        stream = self.agent.run(message, session=self.session, stream=True)
        assert [update async for update in stream]
        return (await stream.get_final_response()).text

    def another(self) -> contract.Agent:
        return Conversation(self.agent, AgentSession())

    def saved(self) -> object:
        return json.loads(json.dumps(self.session.to_dict()))


@every_way
def test_an_agent_keeps_the_contract(mode: ModeName, setting: Mode, dialect: DialectName):
    plain = Makes(None, dialect) if mode == "native" else None

    check_contract(Makes(setting, dialect), mode=mode, dialect=dialect, plain=plain)


@every_way
def test_streamed_and_asynchronous_runs_send_the_same(
    mode: ModeName, setting: Mode, dialect: DialectName
):
    check_streaming(Makes(setting, dialect), mode=mode, dialect=dialect)
    check_async(Makes(setting, dialect), mode=mode, dialect=dialect)


@every_way
def test_sessions_of_one_agent_share_nothing(mode: ModeName, setting: Mode, dialect: DialectName):
    makes = Makes(setting, dialect)

    check_two_conversations_do_not_share(makes, mode=mode, dialect=dialect)
    check_concurrent_conversations(makes, mode=mode, dialect=dialect)


def weigh_parcel(number: int) -> str:
    """Weigh a parcel on the scales."""
    return f"Parcel {number} has 3 kg."


@tool(approval_mode="always_require")
def pay_supplier(name: str, cents: int) -> str:
    """Transfer money to a supplier."""
    return f"{name} got {cents}."


def read_owner(ctx: FunctionInvocationContext) -> str:
    """Tell who the owner of the shop is."""
    return f"{ctx.kwargs['owner']} owns it."


SHOP = (weigh_parcel, pay_supplier, read_owner)
FIND_PAY = call("tool_search", queries=["transfer money to a supplier"], limit=1)
PAY = call("pay_supplier", name="Ada", cents=5)
BRIDGED_PAY = call("tool_call", name="pay_supplier", arguments={"name": "Ada", "cents": 5})
FIND_SCALES = call("tool_search", queries=["weigh a parcel on the scales"], limit=1)
WEIGH = call("weigh_parcel", number=7)
BRIDGED_WEIGH = call("tool_call", name="weigh_parcel", arguments={"number": 7})


def shop_agent(
    provider: Provider, *, given: ToolScoutProvider | None = None, **options: Any
) -> Agent[Any]:
    settings: dict[str, Any] = {"tools": list(SHOP), **options}
    client = client_at(provider.base_url)
    return Agent(client=client, context_providers=[given or ToolScoutProvider()], **settings)


def run(agent: Agent[Any], *said: Any, **options: Any) -> AgentResponse[Any]:
    return asyncio.run(cast("Any", agent).run(*said, **options))


def results_in(provider: Provider) -> list[str]:
    return list(provider.requests[-1].tool_results.values())


@pytest.mark.parametrize("made", [PAY, BRIDGED_PAY], ids=["by name", "behind tool_call"])
@pytest.mark.parametrize("agreed", [True, False])
def test_a_person_is_asked_about_a_found_tool_that_requires_approval(made: Any, agreed: bool):
    with Provider([FIND_PAY, made, "Done."]) as provider:
        session = AgentSession()
        asked = run(shop_agent(provider), "Pay Ada.", session=session)
        kept = AgentSession.from_dict(json.loads(json.dumps(session.to_dict())))
        [request] = asked.user_input_requests
        answer = Message("user", [request.to_function_approval_response(agreed)])
        done = run(shop_agent(provider), answer, session=kept)

    assert request.function_call is not None
    assert request.function_call.name == made.name
    assert request.function_call.parse_arguments() == made.arguments
    assert done.text == "Done."
    assert ("Ada got 5." in results_in(provider)[-1]) is agreed


def test_approving_one_call_does_not_approve_the_call_next_to_it():
    @tool(approval_mode="always_require")
    def sell_shop(price: int) -> str:
        """Sell the whole shop."""
        return f"Sold for {price}."

    sell = call("tool_call", name="sell_shop", arguments={"price": 1})
    find = call("tool_search", queries=["select:sell_shop,pay_supplier"])
    with Provider([find, [PAY, sell], "Done."]) as provider:
        agent, session = shop_agent(provider, tools=[*SHOP, sell_shop]), AgentSession()
        first = run(agent, "Pay Ada.", session=session)
        [request] = first.user_input_requests
        agreed = Message("user", [request.to_function_approval_response(True)])
        second = run(agent, agreed, session=session)
        [other] = second.user_input_requests
        denied = Message("user", [other.to_function_approval_response(False)])
        run(agent, denied, session=session)

    assert request.function_call is not None
    assert request.function_call.name == "pay_supplier"
    assert other.function_call is not None
    assert other.function_call.name == "tool_call"
    assert "Ada got 5." in results_in(provider)
    assert not any("Sold" in result for result in results_in(provider))


def test_tools_found_while_a_call_waits_for_a_person_are_kept():
    with Provider([FIND_PAY, [FIND_SCALES, BRIDGED_PAY], WEIGH, "Done."]) as provider:
        session = AgentSession()
        asked = run(shop_agent(provider), "Pay Ada.", session=session)
        kept = AgentSession.from_dict(json.loads(json.dumps(session.to_dict())))
        [request] = asked.user_input_requests
        answer = Message("user", [request.to_function_approval_response(True)])
        run(shop_agent(provider), answer, session=kept)

    assert results_in(provider)[-1] == "Parcel 7 has 3 kg."


@pytest.mark.parametrize("made", [WEIGH, BRIDGED_WEIGH], ids=["by name", "behind tool_call"])
def test_what_toolscouts_policy_asks_about_is_the_frameworks_approval(made: Any):
    policy = Policy(permit=lambda tool, arguments: Permission.ASK)
    scout = Scout(Catalog(), policy=policy, settings=Settings(mode=Mode.NATIVE))
    with Provider([FIND_SCALES, made, "Weighed."]) as provider:
        agent, session = shop_agent(provider, given=ToolScoutProvider(scout=scout)), AgentSession()
        [request] = run(agent, "Weigh it.", session=session).user_input_requests
        answer = Message("user", [request.to_function_approval_response(True)])
        run(agent, answer, session=session)

    assert results_in(provider)[-1] == "Parcel 7 has 3 kg."


def test_a_tool_gets_the_frameworks_context_by_its_own_name_and_behind_tool_call():
    script = [call("tool_search", queries=["owner of the shop"], limit=1)]
    script += [call("read_owner"), call("tool_call", name="read_owner"), "Ada."]
    with Provider(script) as provider:
        run(shop_agent(provider), "Whose is it?", function_invocation_kwargs={"owner": "Ada"})

    assert results_in(provider)[1:] == ["Ada owns it."] * 2


def test_arguments_are_repaired_before_the_framework_checks_them():
    written = {"number": "7"}
    bridged = call("tool_call", name="weigh_parcel", arguments=written)
    script = [FIND_SCALES, bridged, call("weigh_parcel", number="[7]"), "Done."]
    with Provider(script) as provider:
        run(shop_agent(provider), "Weigh it.")

    _, repaired, refused = results_in(provider)
    assert repaired.endswith("Parcel 7 has 3 kg.")
    assert repaired.startswith("(")
    assert "number" in refused
    assert "3 kg" not in refused


def test_the_agents_own_middleware_sees_the_calls_of_found_tools():
    seen: list[str] = []

    @function_middleware
    async def watch(context: FunctionInvocationContext, call_next: Any) -> None:
        seen.append(context.function.name)
        await call_next()

    with Provider([FIND_SCALES, WEIGH, "Done."]) as provider:
        run(shop_agent(provider, middleware=[watch]), "Weigh it.")

    assert seen == ["tool_search", "weigh_parcel"]


def test_with_tools_of_its_own_the_provider_leaves_those_of_the_agent_in_sight():
    given = ToolScoutProvider([weigh_parcel, pay_supplier])
    with Provider([FIND_SCALES, WEIGH, "Done."]) as provider:
        run(shop_agent(provider, given=given, tools=[read_owner]), "Weigh it.")

    meta = ["tool_search", "tool_describe", "tool_call"]
    assert provider.requests[0].tool_names == ["read_owner", *meta]
    assert provider.requests[1].tool_names == ["read_owner", *meta, "weigh_parcel"]
    assert results_in(provider)[-1] == "Parcel 7 has 3 kg."


def test_a_tool_that_only_one_run_has_is_found_in_that_run_alone():
    open_door = FunctionTool(
        name="open_door", description="Open the door of the shop.", func=lambda: "It is open."
    )
    find = call("tool_search", queries=["open the door of the shop"], limit=1)
    script = {"first": [find, call("open_door"), "Open."], "second": [find, "Shut."]}
    script["second"].insert(1, unoffered(call("open_door")))
    with Provider(script) as provider:
        agent = shop_agent(provider)
        run(agent, "The first run.", tools=[open_door])
        run(agent, "The second run.")

    assert provider.requests[2].tool_results.popitem()[1] == "It is open."
    assert not any("open_door" in names for names in map(str, provider.requests[-2].tool_names))
    assert "not found" in results_in(provider)[-1]


def test_a_tool_that_a_request_insists_on_is_in_it():
    choice = {"mode": "required", "required_function_name": "weigh_parcel"}
    with Provider([WEIGH, "Done."]) as provider:
        run(shop_agent(provider), "Weigh it.", options={"tool_choice": choice})

    assert provider.requests[0].tool_names[3:] == ["weigh_parcel"]
    assert results_in(provider) == ["Parcel 7 has 3 kg."]


def test_an_agent_behind_a_tool_has_a_session_of_its_own():
    inner = [FIND_SCALES, WEIGH, "3 kg."]
    outer = [call("tool_search", queries=["ask the clerk"], limit=1), call("clerk", task="Weigh.")]
    with Provider({"Weigh.": inner, "Boss": [*outer, unoffered(WEIGH), "Done."]}) as provider:
        clerk = shop_agent(provider, name="clerk", description="Ask the clerk of the scales.")
        boss = shop_agent(provider, tools=[clerk.as_tool(), *SHOP])
        run(boss, "Boss: what does it weigh?")

    assert results_in(provider)[1] == "3 kg."
    assert "tool_search" in results_in(provider)[2]
    assert provider.requests[-1].tool_names[3:] == ["clerk"]


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

    async def asked(agent: Agent[Any]) -> None:
        async with agent:
            await agent.run("Park it.")

    with Provider([find, park, call("tool_call", name="wash_truck"), "Done."]) as provider:
        yard = MCPStdioTool("yard", sys.executable, args=[str(script)], load_prompts=False)
        asyncio.run(asked(shop_agent(provider, tools=[yard])))

    assert provider.requests[0].tool_names == ["tool_search", "tool_describe", "tool_call"]
    assert provider.requests[1].tool_names[3:] == ["park_truck"]
    assert "Parked at gate 3." in results_in(provider)[1]
    assert "tool_search" in results_in(provider)[2]


def test_tools_of_the_scouts_other_servers_are_run_by_their_executors_also_when_resumed():
    far = Tool.define("count_stars", server="sky", description="Count the stars.")
    scout = Scout(
        Catalog({"sky": [far]}),
        executors={"sky": lambda tool, arguments: f"{tool.leaf}: 7"},
        settings=Settings(mode=Mode.NATIVE),
    )
    count = call("sky__count_stars")
    find = call("tool_search", queries=["count the stars"], limit=1)
    with Provider([find, count, "Seven.", count, "Still seven."]) as provider:
        agent, session = shop_agent(provider, given=ToolScoutProvider(scout=scout)), AgentSession()
        run(agent, "How many?", session=session)
        run(agent, "And now?", session=session)

    assert results_in(provider)[1:] == ["count_stars: 7"] * 2


def test_a_mode_that_the_framework_cannot_serve_is_refused_at_once():
    with pytest.raises(UsageError, match="Use 'native' or 'bridge'"):
        ToolScoutProvider(settings=Settings(mode=Mode.REFERENCE))


def test_the_example_runs_as_the_page_shows_it():
    script = [call("tool_search", queries=["refund an order"], limit=1)]
    script += [call("refund_order", order="A-7"), "Order A-7 is refunded."]
    with Provider(script) as provider:
        said = run_example("agent_framework_agent.py", provider.base_url)

    assert said == "Order A-7 is refunded.\n"
    assert provider.requests[1].tool_names[3:] == ["refund_order"]
    assert is_on_page("agent_framework_agent.py", "agent_framework.md")
