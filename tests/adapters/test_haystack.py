"""Haystack's agent keeps the contract with a toolset, and its session in the agent's state."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import pytest
from haystack.components.agents import Agent, tool_calling
from haystack.components.agents.state import State
from haystack.components.builders import PromptBuilder
from haystack.components.generators.chat import OpenAIChatGenerator
from haystack.core.pipeline import Pipeline
from haystack.dataclasses import ChatMessage, StreamingChunk
from haystack.hooks.human_in_the_loop import (
    AlwaysAskPolicy,
    BlockingConfirmationStrategy,
    ConfirmationHook,
    ConfirmationUIResult,
)
from haystack.tools import ComponentTool, PipelineTool, Toolset
from haystack.tools.from_function import create_tool_from_function  # pyright: ignore[reportUnknownVariableType]  # of any function
from haystack.tools.tool import Tool
from haystack.utils import Secret

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
from toolscout import Mode, Settings
from toolscout.adapters.haystack import STATE, STATE_SCHEMA, ToolScoutToolset, resume_session
from toolscout.errors import UsageError

CHAT: DialectName = "openai-chat"


def generator_at(base_url: str) -> OpenAIChatGenerator:
    return OpenAIChatGenerator(
        api_key=Secret.from_token("none"),
        api_base_url=base_url,
        model="gpt-5.5",
        max_retries=0,
        # Each question has an event loop of its own, so no connection may outlive one.
        http_client_kwargs={"limits": {"max_keepalive_connections": 0}},
    )


def tool_of(spec: Spec) -> Tool:
    def run(**arguments: Any) -> str:
        return RELAY.run(spec.name, arguments)

    return Tool(spec.name, spec.description, spec.schema, run)


RELAY = Relay()
TOOLS = {spec.name: tool_of(spec) for spec in contract.SPECS}


@dataclass
class Conversation:
    """An agent, and what its runs return: messages and the session."""

    agent: Agent
    messages: list[ChatMessage] = field(default_factory=list[ChatMessage])
    session: dict[str, Any] | None = None

    def ask(self, message: str) -> str:
        return self._take(self.agent.run(self._heard(message), toolscout=self.session))

    async def ask_async(self, message: str) -> str:
        run = self.agent.run_async(self._heard(message), toolscout=self.session)
        return self._take(await run)

    def ask_streaming(self, message: str) -> str:
        said: list[str] = []

        def hear(chunk: StreamingChunk) -> None:
            said.append(chunk.content)

        heard = self._heard(message)
        self._take(self.agent.run(heard, streaming_callback=hear, toolscout=self.session))
        return "".join(said)

    def another(self) -> contract.Agent:
        return Conversation(self.agent)

    def saved(self) -> object:
        messages = [message.to_dict() for message in self.messages]
        return json.loads(json.dumps([messages, self.session]))

    def _heard(self, message: str) -> list[ChatMessage]:
        return [*self.messages, ChatMessage.from_user(message)]

    def _take(self, result: dict[str, Any]) -> str:
        # The agent puts its system prompt before the messages of every run.
        self.messages, self.session = result["messages"][1:], result.get(STATE)
        return str(result["last_message"].text)


@dataclass(frozen=True)
class Makes:
    """Makes agents; without a mode, such as send all tools."""

    mode: Mode | None = Mode.NATIVE

    def __call__(
        self, specs: Sequence[Spec], ledger: Ledger, base_url: str, saved: object | None
    ) -> contract.Agent:
        RELAY.to = ledger
        tools: Any = [TOOLS[spec.name] for spec in specs]
        if self.mode is not None:
            settings = None if self.mode is Mode.NATIVE else Settings(mode=self.mode)
            tools = ToolScoutToolset(tools, settings=settings)
        agent = Agent(
            chat_generator=generator_at(base_url),
            tools=tools,
            system_prompt="Be brief.",
            state_schema=STATE_SCHEMA,
            hooks={"before_run": [resume_session]},
        )
        kept: Any = saved or ([], None)
        return Conversation(agent, [ChatMessage.from_dict(said) for said in kept[0]], kept[1])


WAYS: tuple[tuple[ModeName, Mode], ...] = (("native", Mode.NATIVE), ("bridge", Mode.BRIDGE))
every_way = pytest.mark.parametrize(("mode", "setting"), WAYS, ids=["native", "bridge"])


@every_way
def test_an_agent_keeps_the_contract(mode: ModeName, setting: Mode):
    plain = None if mode == "bridge" else Makes(None)

    check_contract(Makes(setting), mode=mode, dialect=CHAT, plain=plain)


@every_way
def test_streaming_and_asynchronous_runs_send_the_same(mode: ModeName, setting: Mode):
    check_streaming(Makes(setting), mode=mode, dialect=CHAT)
    check_async(Makes(setting), mode=mode, dialect=CHAT)


@every_way
def test_runs_of_one_agent_share_nothing(mode: ModeName, setting: Mode):
    check_two_conversations_do_not_share(Makes(setting), mode=mode, dialect=CHAT)
    check_concurrent_conversations(Makes(setting), mode=mode, dialect=CHAT)


FIND_PAY = call("tool_search", queries=["transfer money to a supplier"], limit=1)
PAY = call("pay_supplier", name="Ada", cents=5)
BRIDGED_PAY = call("tool_call", name="pay_supplier", arguments={"name": "Ada", "cents": 5})
BRIDGE = Settings()


def pay_supplier(name: str, cents: int) -> str:
    """Transfer money to a supplier."""
    return f"{name} got {cents}."


def weigh_parcel(number: str) -> str:
    """Weigh a parcel on the scales."""
    return f"{number} weighs 3 kg."


def shop_tools() -> list[Any]:
    return [create_tool_from_function(pay_supplier), create_tool_from_function(weigh_parcel)]


def agent_with(provider: Provider, tools: Any, **options: Any) -> Agent:
    return Agent(chat_generator=generator_at(provider.base_url), tools=tools, **options)


def ask(agent: Agent, message: str, **options: Any) -> dict[str, Any]:
    return agent.run([ChatMessage.from_user(message)], **options)


def last_results(provider: Provider) -> list[str]:
    return list(provider.requests[-1].tool_results.values())


def test_without_state_every_run_starts_fresh():
    with Provider([FIND_PAY, "Done.", "Done."]) as provider:
        agent = agent_with(provider, ToolScoutToolset(shop_tools()))
        ask(agent, "Pay Ada.")
        ask(agent, "Pay Ada.")

    assert [len(request.tool_names) for request in provider.requests] == [3, 4, 3]


def test_without_the_hook_a_session_comes_back_with_the_first_search():
    with Provider([FIND_PAY, "Done.", FIND_SCALES, "Done."]) as provider:
        agent = agent_with(provider, ToolScoutToolset(shop_tools()), state_schema=STATE_SCHEMA)
        kept = ask(agent, "Pay Ada.")[STATE]
        ask(agent, "Weigh p-1.", toolscout=kept)

    assert provider.requests[-1].tool_names[3:] == ["pay_supplier", "weigh_parcel"]


def test_a_pipeline_with_the_toolset_is_written_and_read():
    settings = Settings(mode=Mode.NATIVE, pins=("weigh_parcel",), limit=3)
    with Provider([FIND_PAY, PAY, "Done."]) as provider:
        generator = OpenAIChatGenerator(
            api_key=Secret.from_env_var("SHOP_KEY"), api_base_url=provider.base_url
        )
        agent = Agent(
            chat_generator=generator,
            tools=ToolScoutToolset(shop_tools(), settings=settings),
            state_schema=STATE_SCHEMA,
            hooks={"before_run": [resume_session]},
        )
        pipeline = Pipeline()
        pipeline.add_component("agent", agent)
        written = pipeline.dumps()
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("SHOP_KEY", "none")
            trusted = ["toolscout.adapters.haystack", __name__]
            read = Pipeline.loads(written, allowed_modules=trusted)
            asked = {"messages": [ChatMessage.from_user("Pay Ada.")]}
            result = read.run({"agent": asked})["agent"]

    assert read.dumps() == written
    assert provider.requests[-1].tool_names[3:] == ["weigh_parcel", "pay_supplier"]
    assert last_results(provider)[-1] == "Ada got 5."
    assert result[STATE]["layout"]


def test_what_cannot_be_written_says_so():
    tools = ToolScoutToolset(shop_tools(), scout=Scales().scout())

    with pytest.raises(UsageError, match="cannot be saved"):
        tools.to_dict()


class Answers:
    """A person who always answers the same, and what they were asked."""

    def __init__(self, action: str) -> None:
        self.action, self.asked = action, list[str]()

    def get_user_confirmation(
        self, tool_name: str, tool_description: str, tool_params: dict[str, Any]
    ) -> ConfirmationUIResult:
        self.asked.append(tool_name)
        return ConfirmationUIResult(action=self.action)


@pytest.mark.parametrize("action", ["confirm", "reject"])
def test_a_found_tool_is_confirmed_by_a_person_and_not_reached_past_them(action: str):
    person = Answers(action)
    strategy = BlockingConfirmationStrategy(
        confirmation_policy=AlwaysAskPolicy(), confirmation_ui=cast("Any", person)
    )
    hook: Any = ConfirmationHook({"pay_supplier": cast("Any", strategy)})
    with Provider([FIND_PAY, BRIDGED_PAY, PAY, "Done."]) as provider:
        tools = ToolScoutToolset(shop_tools())
        ask(agent_with(provider, tools, hooks={"before_tool": [hook]}), "Pay Ada.")
    _, bridged, paid = last_results(provider)

    assert person.asked == ["pay_supplier"]
    assert "by its own name" in bridged
    assert (paid == "Ada got 5.") is (action == "confirm")


def test_an_exit_condition_holds_for_a_found_tool():
    with Provider([FIND_PAY, PAY]) as provider:
        tools = ToolScoutToolset(shop_tools())
        agent = agent_with(provider, tools, exit_conditions=["pay_supplier"])
        result = ask(agent, "Pay Ada.")

    assert result["last_message"].tool_call_result.result == "Ada got 5."


def charge(state: State, account: str, cents: int) -> dict[str, Any]:
    """Charge an amount of money to the account."""
    return {"left": 100 - cents, "text": f"{account} paid {cents}; asked {len(state.data)}."}


@pytest.mark.parametrize("settings", [None, BRIDGE], ids=["native", "bridge"])
def test_a_found_tool_reads_and_writes_the_state(settings: Settings | None):
    tool = create_tool_from_function(
        charge,
        inputs_from_state={"owner": "account"},
        outputs_to_state={"left": {"source": "left"}},
        outputs_to_string={"source": "text"},
    )
    find = call("tool_search", queries=["charge money to the account"], limit=1)
    made = call("charge", cents=5)
    if settings is not None:
        made = call("tool_call", name="charge", arguments={"cents": 5})
    schema = {"owner": {"type": str}, "left": {"type": int}}
    with Provider([find, made, "Done."]) as provider:
        tools = ToolScoutToolset([tool, *shop_tools()], settings=settings)
        result = ask(agent_with(provider, tools, state_schema=schema), "Charge.", owner="Ann")

    assert last_results(provider)[-1].startswith("Ann paid 5")
    assert result["left"] == 95


@pytest.mark.parametrize("settings", [None, BRIDGE], ids=["native", "bridge"])
def test_components_and_pipelines_are_tools_as_any(settings: Settings | None):
    pipeline = Pipeline()
    pipeline.add_component("words", PromptBuilder("Farewell, {{ whom }}.", required_variables="*"))
    greet = PromptBuilder("Hello, {{ whom }}.", required_variables="*")
    tools = ToolScoutToolset(
        [
            ComponentTool(greet, name="greet_guest", description="Greet a guest at the door."),
            PipelineTool(
                pipeline,
                name="send_off",
                description="Say farewell to somebody who leaves.",
                input_mapping={"whom": ["words.whom"]},
                output_mapping={"words.prompt": "prompt"},
            ),
        ],
        settings=settings,
    )
    queries = ["greet a guest", "say farewell"]
    made = [
        call(name, **given) if settings is None else call("tool_call", name=name, arguments=given)
        for name, given in (
            ("greet_guest", {"whom": "Ann"}),
            ("send_off", {"whom": "Bob"}),
        )
    ]
    with Provider([call("tool_search", queries=queries, limit=1), made, "Done."]) as provider:
        ask(agent_with(provider, tools), "Greet.")

    assert "Hello, Ann." in last_results(provider)[1]
    assert "Farewell, Bob." in last_results(provider)[2]


def test_a_run_may_be_held_to_some_of_the_tools():
    find = call("tool_search", queries=["transfer money", "weigh a parcel"], limit=1)
    with Provider([find, "Done."]) as provider:
        ask(agent_with(provider, ToolScoutToolset(shop_tools())), "Go.", tools=["weigh_parcel"])

    assert provider.requests[-1].tool_names[3:] == ["weigh_parcel"]


class Lazy(Toolset):
    """Connects when it is warmed up."""

    def __init__(self) -> None:
        super().__init__([])
        self.closed = False

    def warm_up(self) -> None:
        self.tools = shop_tools()

    def close(self) -> None:
        self.closed = True


def test_lazy_toolsets_connect_and_tools_are_added_later():
    lazy = Lazy()
    tools = ToolScoutToolset([lazy], settings=Settings(mode=Mode.NATIVE))
    tools.add(create_tool_from_function(charge, name="charge_account"))
    with Provider([FIND_PAY, call("tool_search", queries=["select:charge_account"]), "Done."]) as p:
        agent = agent_with(p, tools)
        ask(agent, "Go.")
        agent.close()

    assert p.requests[-1].tool_names[3:] == ["pay_supplier", "charge_account"]
    assert lazy.closed


def test_a_toolset_is_a_collection_of_what_it_shows():
    tools = ToolScoutToolset(shop_tools())
    names = [tool.name for tool in tools]

    assert names == ["tool_search", "tool_describe", "tool_call"]
    assert len(tools) == 3 and "tool_search" in tools and "pay_supplier" not in tools
    assert [tool.name for tool in tools.get_selectable_tools()] == ["pay_supplier", "weigh_parcel"]


def test_tools_of_other_servers_are_found_and_run_by_the_scout():
    scales = Scales()
    with Provider([FIND_SCALES, WEIGH, "Done."]) as provider:
        ask(agent_with(provider, ToolScoutToolset(shop_tools()[:1], scout=scales.scout())), "Go.")

    assert scales.weighed == [{"number": "p-1"}]
    assert last_results(provider)[-1] == "It weighs 3 kg."


def test_a_keyword_in_a_user_message_loads_a_tool():
    routes = {"pay_supplier": {"keywords": ["pay"]}}
    settings = Settings.from_mapping({"mode": "native", "routes": routes})
    with Provider(["Done."]) as provider:
        tools = ToolScoutToolset(shop_tools(), settings=settings)
        ask(agent_with(provider, tools, hooks={"before_run": [resume_session]}), "Please pay Ada.")

    assert provider.requests[0].tool_names[3:] == ["pay_supplier"]


def test_a_mode_of_a_providers_own_api_is_refused():
    with pytest.raises(UsageError, match="Use 'native' or 'bridge'"):
        ToolScoutToolset(shop_tools(), settings=Settings(mode=Mode.REFERENCE))


def test_haystack_still_has_the_names_on_which_the_adapter_relies():
    private = ("_inject_state_args", "_merge_tool_outputs_into_state", "_build_tool_result_message")

    for name in private:
        assert hasattr(tool_calling, name), f"mode 'bridge' needs {name}, which has gone"


def test_the_example_runs_as_the_page_shows_it():
    find = call("tool_search", queries=["refund an order"])
    with Provider([find, call("refund_order", order="A-7"), "A-7 is paid back."]) as provider:
        said = run_example("haystack_agent.py", provider.base_url)

    assert said == "A-7 is paid back.\n"
    assert is_on_page("haystack_agent.py", "haystack.md")
