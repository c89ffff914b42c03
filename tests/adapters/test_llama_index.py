"""LlamaIndex's workflow agents keep the contract through a tool retriever."""

import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import pytest
from httpx import Limits
from llama_index.core.agent.workflow import AgentWorkflow, FunctionAgent, ReActAgent
from llama_index.core.llms import ChatMessage
from llama_index.core.memory import BaseMemory
from llama_index.core.tools import FunctionTool
from llama_index.llms.openai import OpenAI
from openai import DefaultAsyncHttpxClient
from workflows import Context
from workflows.events import HumanResponseEvent, InputRequiredEvent

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
from adapters.scales import FIND_SCALES, WEIGH, Scales
from adapters.scripts import is_on_page, run_example
from adapters.specs import Relay
from adapters.surfaces import DialectName
from adapters.surfaces import Mode as ModeName
from toolscout import Catalog, Event, Mode, Scout, Settings
from toolscout.adapters.llama_index import KEY, ToolScoutRetriever
from toolscout.errors import UsageError
from toolscout.sessions.events import Called

CHAT: DialectName = "openai-chat"
pytestmark = [
    # Its workflows look at every member of an agent, which is a pydantic model.
    pytest.mark.filterwarnings("ignore::pydantic.warnings.PydanticDeprecatedSince20"),
    pytest.mark.filterwarnings("ignore::pydantic.warnings.PydanticDeprecatedSince211"),
    # With pydantic 2.14 the messages are not written with the context.
    pytest.mark.filterwarnings("ignore::workflows.context.state_store.UnserializableKeyWarning"),
]


RELAY = Relay()
TOOLS = {spec.name: FunctionTool.from_defaults(spec.function(RELAY)) for spec in contract.SPECS}


def llm_at(base_url: str) -> OpenAI:
    # Each question has an event loop of its own, so no connection may outlive one.
    http = DefaultAsyncHttpxClient(limits=Limits(max_keepalive_connections=0))
    return OpenAI(
        "gpt-4.1", api_base=base_url, api_key="none", max_retries=0, async_http_client=http
    )


@dataclass
class Conversation:
    """An agent, and what is kept between its runs: the context and the messages, as JSON."""

    agent: FunctionAgent
    kept: dict[str, Any] = field(default_factory=dict[str, Any])

    def ask(self, message: str) -> str:
        return asyncio.run(self.ask_async(message))

    async def ask_async(self, message: str) -> str:
        self.agent.streaming = False
        return await self._ask(message)

    async def ask_streaming(self, message: str) -> str:
        self.agent.streaming = True
        return await self._ask(message)

    async def _ask(self, message: str) -> str:
        context = Context[Any](self.agent, previous_context=self.kept.get("context"))
        history = [ChatMessage.model_validate(said) for said in self.kept.get("messages", ())]
        agent = cast("Any", self.agent)
        said = str(await agent.run(user_msg=message, chat_history=history, ctx=context))
        memory: BaseMemory = await context.store.get("memory")
        messages = [message.model_dump(mode="json") for message in await memory.aget_all()]
        self.kept = json.loads(json.dumps({"context": context.to_dict(), "messages": messages}))
        return said

    def another(self) -> contract.Agent:
        return Conversation(self.agent)

    def saved(self) -> object:
        return self.kept


@dataclass(frozen=True)
class Makes:
    """Makes agents; without a mode, such as send all tools."""

    mode: Mode | None = Mode.NATIVE

    def __call__(
        self, specs: Sequence[Spec], ledger: Ledger, base_url: str, saved: object | None
    ) -> contract.Agent:
        RELAY.to = ledger
        tools = [TOOLS[spec.name] for spec in specs]
        kept: Any = saved or {}
        if self.mode is None:
            agent = FunctionAgent(tools=[*tools], llm=llm_at(base_url), system_prompt="Be brief.")
            return Conversation(agent, kept)
        settings = None if self.mode is Mode.NATIVE else Settings(mode=self.mode)
        retriever = ToolScoutRetriever(tools, settings=settings)
        agent = FunctionAgent(
            tool_retriever=retriever, llm=llm_at(base_url), system_prompt="Be brief."
        )
        return Conversation(agent, kept)


WAYS: tuple[tuple[ModeName, Mode], ...] = (("native", Mode.NATIVE), ("bridge", Mode.BRIDGE))
every_way = pytest.mark.parametrize(("mode", "setting"), WAYS, ids=["native", "bridge"])


@every_way
def test_an_agent_keeps_the_contract(mode: ModeName, setting: Mode):
    plain = None if mode == "bridge" else Makes(None)

    check_contract(Makes(setting), mode=mode, dialect=CHAT, plain=plain)


def test_streaming_and_asynchronous_runs_send_the_same():
    check_streaming(Makes(), mode="native", dialect=CHAT)
    check_async(Makes(), mode="native", dialect=CHAT)


@every_way
def test_contexts_of_one_agent_share_nothing(mode: ModeName, setting: Mode):
    check_two_conversations_do_not_share(Makes(setting), mode=mode, dialect=CHAT)
    check_concurrent_conversations(Makes(setting), mode=mode, dialect=CHAT)


FIND_PAY = call("tool_search", queries=["transfer money to a supplier"], limit=1)
PAY = call("pay_supplier", name="Ada", cents=5)
BRIDGED_PAY = call("tool_call", name="pay_supplier", arguments={"name": "Ada", "cents": 5})


def pay_supplier(name: str, cents: int) -> str:
    """Transfer money to a supplier."""
    return f"{name} got {cents}."


def weigh_parcel(number: str) -> str:
    """Weigh a parcel on the scales."""
    return f"{number} weighs 3 kg."


def agent_with(provider: Provider, retriever: ToolScoutRetriever, **options: Any) -> FunctionAgent:
    llm = llm_at(provider.base_url)
    return FunctionAgent(tool_retriever=retriever, llm=llm, streaming=False, **options)


def ask(agent: Any, message: str, context: Context[Any] | None = None) -> str:
    async def run() -> str:
        return str(await agent.run(user_msg=message, ctx=context))

    return asyncio.run(run())


def last_results(provider: Provider) -> list[str]:
    return list(provider.requests[-1].tool_results.values())


def test_agents_of_a_workflow_have_sessions_of_their_own():
    handoff = call("handoff", to_agent="porter", reason="Parcels.")
    weigh = call("weigh_parcel", number="p-1")
    script = [FIND_PAY, PAY, handoff, FIND_SCALES, weigh, "Done."]
    with Provider(script) as provider:
        agents = [
            agent_with(
                provider,
                ToolScoutRetriever([pay_supplier, weigh_parcel]),
                name=name,
                description=f"The {name}.",
            )
            for name in ("clerk", "porter")
        ]
        workflow = AgentWorkflow(agents=[*agents], root_agent="clerk")
        context = Context[Any](workflow)
        ask(workflow, "Pay Ada, weigh p-1.", context)
        kept = context.to_dict()["state"]["state_data"]["_data"][KEY]
    clerk, porter = provider.requests[2].tool_names, provider.requests[4].tool_names

    assert [*clerk, *porter] == [
        *("tool_search", "tool_describe", "tool_call", "pay_supplier", "handoff"),
        *("tool_search", "tool_describe", "tool_call", "weigh_parcel", "handoff"),
    ]
    assert set(json.loads(kept)) == {"clerk", "porter"}


@pytest.mark.parametrize("made", [PAY, BRIDGED_PAY], ids=["by name", "by tool_call"])
def test_a_found_tool_may_wait_for_a_person(made: Any):
    paid: list[int] = []
    heard: list[Event] = []

    async def pay_supplier(ctx: Context[Any], name: str, cents: int) -> str:
        """Transfer money to a supplier."""
        asked = InputRequiredEvent(prefix=f"Pay {name}?")  # pyright: ignore[reportCallIssue]  # takes any member
        answer = await ctx.wait_for_event(HumanResponseEvent, waiter_event=asked, waiter_id="pay")
        paid.append(cents)
        return f"{answer.response}: {name} got {cents}."

    async def talk(provider: Provider) -> None:
        scout = Scout(Catalog(), settings=Settings(mode=Mode.NATIVE), on_event=heard.append)
        retriever = ToolScoutRetriever([pay_supplier, weigh_parcel], scout=scout)
        agent: Any = agent_with(provider, retriever)
        handler = agent.run(user_msg="Pay Ada.")
        async for event in handler.stream_events():
            if isinstance(event, InputRequiredEvent):
                assert paid == []
                reply: Any = HumanResponseEvent(response="Yes")  # pyright: ignore[reportCallIssue]  # takes any member
                handler.ctx.send_event(reply)
        await handler

    with Provider([FIND_PAY, made, "Done."]) as provider:
        asyncio.run(talk(provider))

    assert paid == [5]
    assert last_results(provider)[-1] == "Yes: Ada got 5."
    assert [event.code for event in heard if isinstance(event, Called) and event.made] == ["ok"]


def test_a_tool_that_ends_the_run_does_so_under_its_own_name():
    tool = FunctionTool.from_defaults(pay_supplier, return_direct=True)
    with Provider([FIND_PAY, BRIDGED_PAY, PAY]) as provider:
        agent = agent_with(provider, ToolScoutRetriever([tool, weigh_parcel]))
        said = ask(agent, "Pay Ada.")

    assert "by its own name" in last_results(provider)[-1]
    assert said == "Ada got 5."


def test_tools_of_other_servers_are_found_and_run_by_the_scout():
    scales = Scales()
    with Provider([FIND_SCALES, WEIGH, "Done."]) as provider:
        ask(agent_with(provider, ToolScoutRetriever([pay_supplier], scout=scales.scout())), "Go.")

    assert scales.weighed == [{"number": "p-1"}]
    assert last_results(provider)[-1] == "It weighs 3 kg."


def test_a_keyword_of_the_user_loads_a_tool_once():
    routes = {"pay_supplier": {"keywords": ["pay"]}}
    settings = Settings.from_mapping({"mode": "native", "routes": routes})
    with Provider([FIND_SCALES, "Done."]) as provider:
        retriever = ToolScoutRetriever([pay_supplier, weigh_parcel], settings=settings)
        ask(agent_with(provider, retriever), "Please pay Ada.")
    first, second = provider.requests

    assert first.tool_names[3:] == ["pay_supplier"]
    assert second.definitions_bytes[:4] == first.definitions_bytes
    assert second.tool_names[3:] == ["pay_supplier", "weigh_parcel"]


def test_a_slow_call_does_not_undo_a_concurrent_search():
    async def count_stars(night: str) -> str:
        """Count the stars of a night, which takes a while."""
        for _ in range(500):
            await asyncio.sleep(0)
        return "Many."

    stars = call("tool_search", queries=["count the stars of a night"], limit=1)
    both = [call("count_stars", night="today"), FIND_PAY]
    with Provider([stars, both, PAY, "Done."]) as provider:
        ask(agent_with(provider, ToolScoutRetriever([count_stars, pay_supplier])), "Go.")

    assert provider.requests[-1].tool_names[3:] == ["count_stars", "pay_supplier"]


def test_a_message_that_is_the_name_of_a_tool_shows_no_hidden_tool():
    with Provider(["Done."]) as provider:
        ask(agent_with(provider, ToolScoutRetriever([pay_supplier, weigh_parcel])), "pay_supplier")

    assert provider.requests[0].tool_names == ["tool_search", "tool_describe", "tool_call"]


def test_mistakes_in_arguments_are_repaired_and_reported():
    with Provider([FIND_PAY, call("pay_supplier", name="Ada", cents="5"), "Done."]) as provider:
        ask(agent_with(provider, ToolScoutRetriever([pay_supplier, weigh_parcel])), "Pay Ada.")
    result = last_results(provider)[-1]

    assert result.startswith("(") and result.endswith("Ada got 5.")


@pytest.mark.filterwarnings("ignore:is_running called:DeprecationWarning")
def test_a_react_agent_finds_tools_as_well():
    def step(action: str, given: dict[str, Any]) -> str:
        return f"Thought: I need a tool.\nAction: {action}\nAction Input: {json.dumps(given)}"

    end = "Thought: I can answer without using any more tools.\nAnswer: Done."
    script = [step("tool_search", FIND_PAY.arguments), step("pay_supplier", PAY.arguments), end]
    with Provider(script) as provider:
        retriever = ToolScoutRetriever([pay_supplier, weigh_parcel])
        llm = llm_at(provider.base_url)
        said = ask(ReActAgent(tool_retriever=retriever, llm=llm, streaming=False), "Pay Ada.")
    prompts = [json.dumps(request.body["messages"][0]) for request in provider.requests]

    assert said == "Done."
    assert ["Transfer money to a supplier" in prompt for prompt in prompts] == [False, True, True]
    assert "Ada got 5." in json.dumps(provider.requests[-1].body["messages"])


def test_outside_of_a_workflow_a_retriever_gives_what_fits_best():
    retriever = ToolScoutRetriever([pay_supplier, weigh_parcel])
    found = [
        retriever.retrieve("transfer money to a supplier"),
        asyncio.run(retriever.aretrieve("weigh_parcel")),
    ]

    assert [tools[0].metadata.name for tools in found] == ["pay_supplier", "weigh_parcel"]


def test_a_mode_of_a_providers_own_api_is_refused():
    with pytest.raises(UsageError, match="Use 'native' or 'bridge'"):
        ToolScoutRetriever([pay_supplier], settings=Settings(mode=Mode.REFERENCE))


def test_agents_still_keep_what_the_adapter_reads_in_their_context():
    with Provider(["Done."]) as provider:
        agent = agent_with(provider, ToolScoutRetriever([pay_supplier]))
        workflow = AgentWorkflow(agents=[agent])
        context = Context[Any](workflow)
        ask(workflow, "Hello.", context)
        kept = context.to_dict()["state"]["state_data"]["_data"]

    for name in ("user_msg_str", "num_iterations", "current_agent_name"):
        assert name in kept, f"agents no longer keep {name!r} in their context"


def test_the_example_runs_as_the_page_shows_it():
    find = call("tool_search", queries=["refund an order"])
    with Provider([find, call("refund_order", order="A-7"), "A-7 is paid back."]) as provider:
        said = run_example("llama_index_agent.py", provider.base_url)

    assert said == "A-7 is paid back.\n"
    assert is_on_page("llama_index_agent.py", "llama_index.md")
