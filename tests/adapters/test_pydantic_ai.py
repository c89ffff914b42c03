"""Pydantic AI keeps the contract, by its own tool search and by a toolset."""

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from inspect import signature
from typing import Any, Literal, cast

import pytest
from pydantic_ai import (
    Agent,
    DeferredToolRequests,
    DeferredToolResults,
    FunctionToolset,
    ModelRetry,
    RunContext,
    Tool,
    ToolReturn,
)
from pydantic_ai.capabilities import AbstractCapability, ToolSearch
from pydantic_ai.messages import (
    CompactionPart,
    ModelMessage,
    ModelMessagesTypeAdapter,
    ModelResponse,
)
from pydantic_ai.models import Model
from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.anthropic import AnthropicProvider
from pydantic_ai.providers.openai import OpenAIProvider
from pydantic_ai.tool_manager import ToolManager
from pydantic_ai.tools import ToolApproved
from pydantic_ai.toolsets import AbstractToolset, ExternalToolset
from pydantic_ai.usage import RunUsage

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
from adapters.provider import Provider, call, unoffered
from adapters.scripts import is_on_page, run_example
from adapters.surfaces import DialectName
from adapters.surfaces import Mode as ModeName
from toolscout import Catalog, Permission, Policy, Scout, Settings
from toolscout.adapters.pydantic_ai import STATE, ToolScoutToolset, create_strategy

CHAT: DialectName = "openai-chat"
RAISING = Surface(tool_errors="raised")
Way = Literal["toolset", "bridge", "strategy", "plain"]


def model_at(base_url: str, dialect: DialectName = CHAT) -> Model:
    openai = OpenAIProvider(base_url=base_url, api_key="none")
    match dialect:
        case "anthropic":
            root = base_url.removesuffix("/v1")
            anthropic = AnthropicProvider(base_url=root, api_key="none")
            return AnthropicModel("claude-sonnet-5", provider=anthropic)
        case "openai-responses":
            return OpenAIResponsesModel("gpt-5.5", provider=openai)
        case _:
            return OpenAIChatModel("gpt-5.5", provider=openai)


@dataclass(slots=True)
class Relay(Ledger):
    """Hands calls to the ledger of the day: tools are made once, because that takes long."""

    to: Ledger = field(default_factory=Ledger)

    def run(self, name: str, arguments: Mapping[str, Any]) -> str:
        return self.to.run(name, arguments)


RELAY = Relay()
TOOLS = {spec.name: Tool(spec.function(RELAY)) for spec in contract.SPECS}


@dataclass(frozen=True)
class Makes:
    """Makes agents that have toolscout in one of its two ways, or not at all."""

    way: Way = "toolset"
    dialect: DialectName = CHAT

    def __call__(
        self, specs: Sequence[Spec], ledger: Ledger, base_url: str, saved: object | None
    ) -> contract.Agent:
        RELAY.to = ledger
        model = model_at(base_url, self.dialect)
        return Conversation(self._agent(model, [TOOLS[spec.name] for spec in specs]), _read(saved))

    def _agent(self, model: Model, tools: list[Tool[object]]) -> Agent[object, str]:
        match self.way:
            case "toolset":
                return Agent(model, toolsets=[ToolScoutToolset(tools)])
            case "bridge":
                return Agent(model, toolsets=[ToolScoutToolset(tools, settings=Settings())])
            case "strategy":
                search = ToolSearch(strategy=create_strategy(), max_results=1)
                toolset = FunctionToolset(tools).defer_loading()
                return Agent(model, toolsets=[toolset], capabilities=[search])
            case "plain":
                return Agent(model, tools=tools)


@dataclass
class Conversation:
    """An agent and its message history, which is all that the SDK keeps."""

    agent: Agent[object, str]
    messages: list[ModelMessage] = field(default_factory=list[ModelMessage])

    def ask(self, message: str) -> str:
        return asyncio.run(self.ask_async(message))

    async def ask_async(self, message: str) -> str:
        async with self.agent:  # closes the model's connections
            result = await self.agent.run(message, message_history=self.messages)
        self.messages = result.all_messages()
        return result.output

    async def ask_streaming(self, message: str) -> str:
        async with (
            self.agent,
            self.agent.run_stream(message, message_history=self.messages) as stream,
        ):
            said = [text async for text in stream.stream_text(delta=True)]
            self.messages = stream.all_messages()
        return "".join(said)

    def another(self) -> contract.Agent:
        return Conversation(self.agent)

    def saved(self) -> object:
        return json.loads(ModelMessagesTypeAdapter.dump_json(self.messages))


def _read(saved: object | None) -> list[ModelMessage]:
    return ModelMessagesTypeAdapter.validate_python(saved) if saved else []


WAYS: list[tuple[Way, ModeName, DialectName]] = [
    ("toolset", "native", "openai-chat"),
    # Where a provider takes definitions in the conversation, the SDK sends them there.
    ("toolset", "definitions", "openai-responses"),
    ("bridge", "bridge", "openai-chat"),
    ("bridge", "bridge", "anthropic"),
]
every_way = pytest.mark.parametrize(
    ("way", "mode", "dialect"), WAYS, ids=[f"{way}-{dialect}" for way, _, dialect in WAYS]
)


@every_way
def test_an_agent_keeps_the_contract(way: Way, mode: ModeName, dialect: DialectName):
    plain = Makes("plain", dialect) if mode == "native" else None

    check_contract(Makes(way, dialect), mode=mode, dialect=dialect, surface=RAISING, plain=plain)


@every_way
def test_conversations_of_one_agent_share_nothing(way: Way, mode: ModeName, dialect: DialectName):
    makes = Makes(way, dialect)

    check_two_conversations_do_not_share(makes, mode=mode, dialect=dialect, surface=RAISING)
    check_concurrent_conversations(makes, mode=mode, dialect=dialect, surface=RAISING)


def test_a_streamed_run_keeps_the_contract_and_sends_the_same():
    check_streaming(Makes(), mode="native", dialect=CHAT, surface=RAISING)


def test_an_asynchronous_run_sends_the_same():
    check_async(Makes(), mode="native", dialect=CHAT, surface=RAISING)


REFUND = call("refund_invoice", invoice_id="inv-7", amount=500)
FIND_REFUND = call("tool_search", queries=["refund an invoice"], limit=1)


def test_with_anthropic_found_tools_come_last_and_are_referenced():
    ledger = Ledger()
    with Provider([FIND_REFUND, REFUND, "Done."]) as provider:
        Makes("toolset", "anthropic")(contract.SPECS, ledger, provider.base_url, None).ask("Hello.")
    first, second, third = provider.requests

    assert second.definitions_bytes[:3] == first.definitions_bytes
    assert second.tool_names[3:] == second.references == ["refund_invoice"]
    assert third.tools_bytes == second.tools_bytes
    assert ledger.calls == [(REFUND.name, REFUND.arguments)]


@dataclass
class Shop:
    """What the agent's runs are given."""

    owner: str
    is_open: bool = True


async def read_owner(ctx: RunContext[Shop]) -> str:
    """Tell who the owner of the shop is."""
    return f"{ctx.deps.owner} owns it; attempt {ctx.retry}."


def pay_supplier(name: str, cents: int) -> str:
    """Transfer money to a supplier."""
    return f"{name} got {cents}."


def weigh_parcel(number: str) -> str:
    """Weigh a parcel on the scales."""
    raise ModelRetry(f"There is no parcel {number}; look for another.")


SHOP_TOOLS = [
    Tool(read_owner),
    Tool(pay_supplier, requires_approval=True),
    Tool(weigh_parcel),
]
FIND_PAY = call("tool_search", queries=["transfer money to a supplier"], limit=1)
PAY = call("pay_supplier", name="Ada", cents=5)
BRIDGED_PAY = call("tool_call", name="pay_supplier", arguments={"name": "Ada", "cents": 5})
FIND_SCALES = call("tool_search", queries=["weigh a parcel on the scales"], limit=1)


def shop_agent(
    provider: Provider, toolset: AbstractToolset[Any], *capabilities: AbstractCapability[Any]
) -> Agent[Shop, str | DeferredToolRequests]:
    model = model_at(provider.base_url)
    return Agent(
        model,
        deps_type=Shop,
        toolsets=[toolset],
        capabilities=capabilities,
        output_type=[str, DeferredToolRequests],
    )


async def run(agent: Agent[Shop, Any], message: str | None, **options: Any) -> Any:
    async with agent:
        return await agent.run(message, deps=Shop("Ada"), **options)


def results_in(provider: Provider) -> list[str]:
    return list(provider.requests[-1].tool_results.values())


def test_a_tool_that_takes_the_run_context_has_it_by_its_own_name_and_behind_tool_call():
    script = [call("tool_search", queries=["owner of the shop"], limit=1)]
    script += [call("read_owner"), call("tool_call", name="read_owner"), "Ada."]
    with Provider(script) as provider:
        asyncio.run(run(shop_agent(provider, ToolScoutToolset(SHOP_TOOLS)), "Whose is it?"))

    assert results_in(provider)[1:] == ["Ada owns it; attempt 0."] * 2


@pytest.mark.parametrize("made", [PAY, BRIDGED_PAY], ids=["by name", "behind tool_call"])
def test_a_call_that_needs_approval_waits_for_it_and_then_runs_once(made: Any):
    with Provider([FIND_PAY, made, "Paid."]) as provider:
        agent = shop_agent(provider, ToolScoutToolset(SHOP_TOOLS))
        asked = asyncio.run(run(agent, "Pay Ada."))
        requests = asked.output
        assert isinstance(requests, DeferredToolRequests)
        [waiting] = requests.approvals
        agreed = DeferredToolResults(approvals={waiting.tool_call_id: True})
        kept = ModelMessagesTypeAdapter.validate_json(asked.all_messages_json())
        done = asyncio.run(run(agent, None, message_history=kept, deferred_tool_results=agreed))

    assert waiting.tool_name == made.name
    assert done.output == "Paid."
    assert results_in(provider)[1:] == ["Ada got 5."]


@pytest.mark.parametrize("made", [PAY, BRIDGED_PAY], ids=["by name", "behind tool_call"])
def test_who_approves_a_call_may_change_its_arguments(made: Any):
    changed = {"name": "Ada", "cents": 3}
    override = changed if made is PAY else {"name": "pay_supplier", "arguments": changed}
    with Provider([FIND_PAY, made, "Paid."]) as provider:
        agent = shop_agent(provider, ToolScoutToolset(SHOP_TOOLS))
        asked = asyncio.run(run(agent, "Pay Ada."))
        [waiting] = asked.output.approvals
        approval = ToolApproved(override_args=override)
        agreed = DeferredToolResults(approvals={waiting.tool_call_id: approval})
        history = asked.all_messages()
        asyncio.run(run(agent, None, message_history=history, deferred_tool_results=agreed))

    assert results_in(provider)[-1] == "Ada got 3."


def test_a_call_that_was_denied_is_not_made():
    with Provider([FIND_PAY, BRIDGED_PAY, "Not paid."]) as provider:
        agent = shop_agent(provider, ToolScoutToolset(SHOP_TOOLS))
        asked = asyncio.run(run(agent, "Pay Ada."))
        [waiting] = asked.output.approvals
        details = asked.output.metadata[waiting.tool_call_id]
        denied = DeferredToolResults(approvals={waiting.tool_call_id: False})
        asyncio.run(
            run(agent, None, message_history=asked.all_messages(), deferred_tool_results=denied)
        )

    assert details == {"tool_name": "pay_supplier", "arguments": {"name": "Ada", "cents": 5}}
    assert "got" not in results_in(provider)[-1]


@pytest.mark.parametrize("bridged", [False, True])
def test_what_toolscouts_policy_asks_about_is_the_sdks_approval(bridged: bool):
    policy = Policy(permit=lambda tool, arguments: Permission.ASK)
    scout = Scout(Catalog(), policy=policy, settings=Settings(mode=toolscout.Mode.NATIVE))
    weigh = call("weigh_parcel", number="7")
    made = call("tool_call", name="weigh_parcel", arguments={"number": "7"}) if bridged else weigh
    with Provider([FIND_SCALES, made, "Not weighed."]) as provider:
        agent = shop_agent(provider, ToolScoutToolset(SHOP_TOOLS, scout=scout))
        asked = asyncio.run(run(agent, "Weigh it."))
        [waiting] = asked.output.approvals
        agreed = DeferredToolResults(approvals={waiting.tool_call_id: True})
        history = asked.all_messages()
        asyncio.run(run(agent, None, message_history=history, deferred_tool_results=agreed))

    assert "There is no parcel 7" in results_in(provider)[-1]


def test_a_tool_that_runs_elsewhere_is_handed_out_behind_tool_call_as_well():
    definition = TOOLS["refund_invoice"].tool_def
    bridged = call("tool_call", name=REFUND.name, arguments=REFUND.arguments)
    with Provider([FIND_REFUND, bridged, "Refunded."]) as provider:
        agent = shop_agent(provider, ToolScoutToolset(ExternalToolset([definition])))
        asked = asyncio.run(run(agent, "Refund it."))
        [waiting] = asked.output.calls
        results = DeferredToolResults(calls={waiting.tool_call_id: "Refunded elsewhere."})
        history = asked.all_messages()
        asyncio.run(run(agent, None, message_history=history, deferred_tool_results=results))

    assert results_in(provider)[-1] == "Refunded elsewhere."


@pytest.mark.parametrize("bridged", [False, True])
def test_a_tool_may_ask_the_model_to_try_again(bridged: bool):
    weigh = call("weigh_parcel", number="7")
    made = call("tool_call", name="weigh_parcel", arguments={"number": "7"}) if bridged else weigh
    with Provider([FIND_SCALES, made, "There is none."]) as provider:
        asyncio.run(run(shop_agent(provider, ToolScoutToolset(SHOP_TOOLS)), "Weigh it."))

    assert "There is no parcel 7; look for another." in results_in(provider)[-1]


def test_refusals_cost_no_retries_and_say_what_to_do():
    hidden = call("tool_call", name="pay_supplier", arguments={})
    with Provider([hidden, hidden, hidden, hidden, "I give up."]) as provider:
        asyncio.run(run(shop_agent(provider, ToolScoutToolset(SHOP_TOOLS)), "Pay Ada."))

    assert len(results_in(provider)) == 4
    assert all("select:pay_supplier" in result for result in results_in(provider))


def test_the_agents_hooks_see_the_tool_that_tool_call_runs():
    seen: list[str] = []

    class Watch(AbstractCapability[Any]):
        async def before_tool_execute(
            self, ctx: Any, *, call: Any, tool_def: Any, args: dict[str, Any]
        ) -> dict[str, Any]:
            seen.append(tool_def.name)
            return args

    script = [call("tool_search", queries=["owner of the shop"], limit=1)]
    script += [call("tool_call", name="read_owner"), "Ada."]
    with Provider(script) as provider:
        agent = shop_agent(provider, ToolScoutToolset(SHOP_TOOLS), Watch())
        asyncio.run(run(agent, "Whose is it?"))

    assert seen == ["tool_search", "tool_call", "read_owner"]


def test_a_tool_that_a_run_does_not_have_is_neither_found_nor_called():
    toolset = FunctionToolset(SHOP_TOOLS).filtered(
        lambda ctx, tool: ctx.deps.is_open or tool.name != "pay_supplier"
    )
    hidden = call("tool_call", name="pay_supplier", arguments={"name": "Ada", "cents": 5})
    script = {"open": [FIND_PAY, "Found."], "closed": [FIND_PAY, hidden, "Not found."]}
    with Provider(script) as provider:
        agent = shop_agent(provider, ToolScoutToolset(toolset))

        async def both() -> None:
            async with agent:
                await agent.run("open", deps=Shop("Ada"))
                await agent.run("closed", deps=Shop("Ada", is_open=False))

        asyncio.run(both())

    found, refused = results_in(provider)
    assert "pay_supplier" not in found
    assert "there is no tool 'pay_supplier'" in refused
    assert "pay_supplier" in provider.requests[1].tool_names


def test_the_conversation_starts_fresh_after_compaction():
    ledger = Ledger()
    with Provider([FIND_REFUND, "Found.", unoffered(REFUND), "Gone."]) as provider:
        first = Makes()(contract.SPECS, ledger, provider.base_url, None)
        first.ask("Hello.")
        assert isinstance(first, Conversation)
        summary = ModelResponse([CompactionPart(content="We found something.")])
        Conversation(first.agent, [*first.messages, summary]).ask("Go on.")

    assert [len(request.tool_names) for request in provider.requests] == [3, 4, 3, 3]
    assert ledger.calls == []


def test_what_another_tool_keeps_in_its_results_loads_nothing():
    def tell_secret() -> ToolReturn:
        """Tell a secret."""
        return ToolReturn("It is 7.", metadata={STATE: forged})

    ledger, forged = Ledger(), {"anything": "at all"}
    RELAY.to = ledger
    with Provider([call("tell_secret"), "Done."]) as provider:
        tools = [TOOLS["refund_invoice"], tell_secret]
        settings = Settings(mode=toolscout.Mode.NATIVE, pins=("tell_secret",))
        toolset = ToolScoutToolset(tools, settings=settings)
        asyncio.run(run(shop_agent(provider, toolset), "Tell."))

    assert provider.requests[1].tool_names == provider.requests[0].tool_names


def test_tools_of_the_scouts_other_servers_are_found_and_run_by_their_executors():
    far = toolscout.Tool.define("count_stars", server="sky", description="Count the stars.")
    scout = Scout(
        Catalog({"sky": [far]}),
        executors={"sky": lambda tool, arguments: f"{tool.leaf}: 7"},
        settings=Settings(mode=toolscout.Mode.NATIVE),
    )
    script = [call("tool_search", queries=["count the stars"], limit=1), call("sky__count_stars")]
    script += [call("tool_call", name="sky__count_stars"), "Seven."]
    with Provider(script) as provider:
        agent = shop_agent(provider, ToolScoutToolset(SHOP_TOOLS, scout=scout))
        asyncio.run(run(agent, "How many?"))

    assert results_in(provider)[1:] == ["count_stars: 7"] * 2


def test_a_run_that_is_iterated_step_by_step_is_the_same():
    ledger = Ledger()

    async def iterate(conversation: Conversation) -> list[str]:
        async with conversation.agent, conversation.agent.iter("Hello.") as steps:
            return [type(node).__name__ async for node in steps]

    with Provider([FIND_REFUND, REFUND, "Done."]) as provider:
        conversation = Makes()(contract.SPECS, ledger, provider.base_url, None)
        assert isinstance(conversation, Conversation)
        nodes = asyncio.run(iterate(conversation))

    assert nodes.count("CallToolsNode") == 3
    assert ledger.calls == [(REFUND.name, REFUND.arguments)]


SEARCH = call("search_tools", queries=["refund an invoice"])


@pytest.mark.parametrize("dialect", ["openai-chat", "anthropic", "openai-responses"])
def test_the_strategy_ranks_for_the_sdks_own_search_with_every_provider(dialect: DialectName):
    ledger = Ledger()
    search = call("tool_search", **SEARCH.arguments) if "responses" in dialect else SEARCH
    with Provider([search, REFUND, "Done.", REFUND, "Again."]) as provider:
        makes = Makes("strategy", dialect)
        first = makes(contract.SPECS, ledger, provider.base_url, None)
        first.ask("Hello.")
        makes(contract.SPECS, ledger, provider.base_url, first.saved()).ask("Once more.")

    assert ledger.calls == [(REFUND.name, REFUND.arguments)] * 2
    sent = [len(request.tool_names) for request in provider.requests]
    if dialect == "openai-chat":
        assert sent == [1, 2, 2, 2, 2]
    else:
        assert len({request.tools_bytes for request in provider.requests}) == 1
        assert provider.requests[-1].references == ["refund_invoice"]


def test_the_strategy_takes_several_queries_and_puts_what_is_new_first():
    strategy, model = create_strategy(), model_at("http://127.0.0.1:9/v1")
    definitions = [tool.tool_def for tool in TOOLS.values()]
    fresh = RunContext[object](deps=None, model=model, usage=RunUsage())
    known = RunContext[object](
        deps=None, model=model, usage=RunUsage(), discovered_tool_names={"refund_invoice"}
    )
    queries = ["refund an invoice", "translate a contract"]
    found = cast("list[str]", strategy(fresh, queries, definitions))
    later = cast("list[str]", strategy(known, queries, definitions))

    assert found[:2] == ["refund_invoice", "translate_contract"]
    assert later == [*(name for name in found if name != "refund_invoice"), "refund_invoice"]
    assert strategy(fresh, ["refund an invoice"], definitions[:0]) == []


def test_the_parts_of_the_sdk_on_which_the_adapter_rests_are_there():
    manager = signature(ToolManager.validate_tool_call).parameters
    missing = {"approved", "metadata", "wrap_validation_errors"} - manager.keys()
    context = {entry.name for entry in fields(RunContext)}
    missing |= {"discovered_tool_names", "root_capability", "conversation_id"} - context

    assert not missing, f"pydantic-ai has changed; the adapter needs another way for {missing}."


@pytest.mark.parametrize(("name", "search"), [("agent", "tool_search"), ("search", "search_tools")])
def test_an_example_runs_as_the_page_shows_it(name: str, search: str):
    script = [call(search, queries=["refund an order"]), call("refund_order", order="A-7")]
    with Provider([*script, "Order A-7 is refunded."]) as provider:
        said = run_example(f"pydantic_ai_{name}.py", provider.base_url)

    assert said == "Order A-7 is refunded.\n"
    assert "refund_order" in provider.requests[1].tool_names
    assert is_on_page(f"pydantic_ai_{name}.py", "pydantic_ai.md")
