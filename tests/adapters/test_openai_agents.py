"""OpenAI's Agents SDK with a model that hides tools."""

import asyncio
import dataclasses
import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import pytest
from agents import (
    Agent,
    CodeInterpreterTool,
    FunctionTool,
    Model,
    ModelSettings,
    OpenAIChatCompletionsModel,
    OpenAIResponsesModel,
    RunConfig,
    Runner,
    RunState,
    SQLiteSession,
    ToolGuardrailFunctionOutput,
    ToolInputGuardrailData,
    tool_input_guardrail,
)
from agents.items import TResponseInputItem
from agents.mcp import MCPServerStdio
from agents.models.openai_responses import Converter
from agents.tool_context import ToolContext
from httpx2 import Limits
from openai import AsyncOpenAI, DefaultAsyncHttpxClient

from adapters import contract
from adapters.contract import (
    SPECS,
    Ledger,
    Spec,
    check_async,
    check_concurrent_conversations,
    check_contract,
    check_streaming,
    check_two_conversations_do_not_share,
)
from adapters.provider import Call, Provider, call, unoffered
from adapters.scripts import is_on_page, run_example
from adapters.surfaces import DialectName, Surface
from adapters.surfaces import Mode as ModeName
from adapters.wires.views import tokens
from toolscout import Catalog, Mode, Scout, Settings
from toolscout.adapters.openai_agents import ToolScoutModel
from toolscout.errors import UsageError
from toolscout.testing import FakeServer

Json = dict[str, Any]
QUIET = RunConfig(tracing_disabled=True)
RAISES = Surface(tool_errors="raised")
"""A `FunctionTool` that raises ends the run, unless it is made by `function_tool`."""
WAYS: tuple[tuple[ModeName, Mode, DialectName], ...] = (
    ("definitions", Mode.DEFINITIONS, "openai-responses"),
    ("native", Mode.NATIVE, "openai-responses"),
    ("native", Mode.NATIVE, "openai-chat"),
    ("bridge", Mode.BRIDGE, "openai-responses"),
)


def ways(listed: Sequence[tuple[ModeName, Mode, DialectName]]) -> pytest.MarkDecorator:
    names = [f"{mode}-{dialect}" for mode, _, dialect in listed]
    return pytest.mark.parametrize(("mode", "setting", "dialect"), listed, ids=names)


@ways(WAYS)
def test_an_agent_keeps_the_contract(mode: ModeName, setting: Mode, dialect: DialectName):
    plain = None if mode == "bridge" else Makers(None, dialect)

    check_contract(
        Makers(setting, dialect), mode=mode, dialect=dialect, plain=plain, surface=RAISES
    )


@ways((WAYS[0], WAYS[2]))
def test_streaming_and_asynchronous_runs_send_the_same(
    mode: ModeName, setting: Mode, dialect: DialectName
):
    check_streaming(Makers(setting, dialect), mode=mode, dialect=dialect)
    check_async(Makers(setting, dialect), mode=mode, dialect=dialect)


def test_two_runs_of_one_agent_share_nothing():
    makers = Makers(Mode.DEFINITIONS, "openai-responses")

    check_two_conversations_do_not_share(makers, mode="definitions", dialect="openai-responses")
    check_concurrent_conversations(makers, mode="definitions", dialect="openai-responses")


def tool_of(spec: Spec, ledger: Ledger) -> FunctionTool:
    async def run(context: ToolContext[Any], arguments: str) -> str:
        return ledger.run(spec.name, json.loads(arguments))

    return FunctionTool(
        name=spec.name,
        description=spec.description,
        params_json_schema=spec.schema,
        on_invoke_tool=run,
        strict_json_schema=False,
    )


def model_of(dialect: DialectName, base_url: str) -> Model:
    # Each question has an event loop of its own, so no connection may outlive one.
    http = DefaultAsyncHttpxClient(limits=Limits(max_keepalive_connections=0))
    client = AsyncOpenAI(base_url=base_url, api_key="x", max_retries=0, http_client=http)
    if dialect == "openai-chat":
        return OpenAIChatCompletionsModel("gpt-5.5", client)
    return OpenAIResponsesModel("gpt-5.5", client)


@dataclass(frozen=True)
class Makers:
    """Makes agents; without a mode, such as send all tools."""

    mode: Mode | None
    dialect: DialectName

    def __call__(
        self, specs: Sequence[Spec], ledger: Ledger, base_url: str, saved: object | None
    ) -> contract.Agent:
        model = model_of(self.dialect, base_url)
        if self.mode is not None:
            model = ToolScoutModel(model, settings=Settings(mode=self.mode))
        tools = [tool_of(spec, ledger) for spec in specs]
        agent = Agent(name="clerk", instructions="Be brief.", model=model, tools=[*tools])
        return Conversation(agent, cast("list[TResponseInputItem]", saved or []))


@dataclass
class Conversation:
    """One conversation; the caller keeps the items, as the SDK's docs have it."""

    agent: Agent[Any]
    items: list[TResponseInputItem] = field(default_factory=list[TResponseInputItem])

    def ask(self, message: str) -> str:
        return asyncio.run(self.ask_async(message))

    async def ask_async(self, message: str) -> str:
        result = await Runner.run(self.agent, self._input(message), run_config=QUIET)
        self.items = result.to_input_list()
        return str(result.final_output)

    def ask_streaming(self, message: str) -> str:
        return asyncio.run(self._streamed(message))

    async def _streamed(self, message: str) -> str:
        result = Runner.run_streamed(self.agent, self._input(message), run_config=QUIET)
        async for _ in result.stream_events():
            pass
        self.items = result.to_input_list()
        return str(result.final_output)

    def another(self) -> "Conversation":
        return Conversation(self.agent)

    def saved(self) -> object:
        return json.loads(json.dumps(self.items))

    def _input(self, message: str) -> list[TResponseInputItem]:
        return [*self.items, {"role": "user", "content": message}]


# What is special here.

FOUND = "refund_invoice"
REFUND: Json = {"invoice_id": "inv-7", "amount": 500}
MODES = (Mode.DEFINITIONS, Mode.NATIVE, Mode.BRIDGE)


def search(query: str = "refund an invoice") -> Call:
    return call("tool_search", queries=[query], limit=1)


def do(mode: Mode, name: str = FOUND, **arguments: Any) -> Call:
    given = arguments or REFUND
    return (
        call("tool_call", name=name, arguments=given)
        if mode is Mode.BRIDGE
        else call(name, **given)
    )


def agent_of(provider: Provider, tools: Sequence[Any], mode: Mode, **options: Any) -> Agent[Any]:
    inner = model_of("openai-responses", provider.base_url)
    scouted = ToolScoutModel(inner, settings=Settings(mode=mode))
    return Agent(name="clerk", model=scouted, tools=[*tools], **options)


def shop(ledger: Ledger) -> list[FunctionTool]:
    return [tool_of(spec, ledger) for spec in SPECS]


def run(agent: Agent[Any], given: Any, **options: Any) -> Any:
    return asyncio.run(Runner.run(agent, given, run_config=QUIET, **options))


def test_a_session_of_the_sdk_keeps_what_was_found(tmp_path: Path):
    ledger = Ledger()
    path = str(tmp_path / "sessions.db")
    script = [search(), "Found.", call(FOUND, **REFUND), "Done."]
    with Provider(script) as provider:
        for message in ("Look.", "Go."):
            session = SQLiteSession("s", path)
            run(agent_of(provider, shop(ledger), Mode.DEFINITIONS), message, session=session)
            session.close()

    assert ledger.calls == [(FOUND, REFUND)]
    assert len({request.tools_bytes for request in provider.requests}) == 1


@pytest.mark.parametrize("mode", MODES)
def test_a_found_tool_is_asked_about_and_the_run_goes_on_from_its_saved_state(mode: Mode):
    ledger = Ledger()
    tools = [dataclasses.replace(tool, needs_approval=tool.name == FOUND) for tool in shop(ledger)]
    with Provider([search(), do(mode), do(mode, FOUND, invoice_id="b", amount=1)]) as provider:
        first = run(agent_of(provider, tools, mode), "Go.")
        assert [item.tool_name for item in first.interruptions] == [FOUND]
        assert ledger.calls == []

        written = first.to_state().to_string()
        again = agent_of(provider, tools, mode)
        state = asyncio.run(RunState.from_string(again, written))
        state.approve(state.get_interruptions()[0])
        second = run(again, state)

    assert ledger.calls == [(FOUND, REFUND)]
    assert [item.tool_name for item in second.interruptions] == [FOUND]


@pytest.mark.parametrize("mode", MODES)
def test_guardrails_and_hooks_see_the_tool_itself(mode: Mode):
    ledger, seen = Ledger(), list[str]()

    @tool_input_guardrail
    def watch(data: ToolInputGuardrailData) -> ToolGuardrailFunctionOutput:
        seen.append(data.context.tool_name)
        return ToolGuardrailFunctionOutput.reject_content("Not on Sundays.")

    tools = [dataclasses.replace(tool, tool_input_guardrails=[watch]) for tool in shop(ledger)]
    with Provider([search(), do(mode), "It is Sunday."]) as provider:
        run(agent_of(provider, tools, mode), "Go.")

    assert seen == [FOUND]
    assert ledger.calls == []
    assert "Not on Sundays." in provider.requests[-1].tool_results.values()


def test_a_tool_that_the_agent_has_switched_off_is_neither_found_nor_run():
    ledger = Ledger()
    tools = [dataclasses.replace(tool, is_enabled=tool.name != FOUND) for tool in shop(ledger)]
    with Provider([search(), unoffered(call(FOUND, **REFUND)), "Done."]) as provider:
        run(agent_of(provider, tools, Mode.DEFINITIONS), "Go.")

    assert FOUND not in provider.requests[-1].references
    assert ledger.calls == []


def test_each_agent_of_a_handoff_finds_its_own_tools():
    ledger = Ledger()
    tools = shop(ledger)
    sales = [tool for tool in tools if "invoice" in tool.name]
    office = [tool for tool in tools if "contract" in tool.name]
    script = [
        search(),
        call(FOUND, **REFUND),
        call("transfer_to_clerk"),
        unoffered(call("dispute_invoice", invoice_id="i", reason="r")),
        search("translate a contract"),
        call("translate_contract", contract_id="c", language="german"),
        "Done.",
    ]
    with Provider(script) as provider:
        second = agent_of(provider, office, Mode.DEFINITIONS)
        first = agent_of(provider, sales, Mode.DEFINITIONS, handoffs=[second])
        result = run(dataclasses.replace(first, name="seller"), "Go.")

    assert result.last_agent.name == "clerk"
    assert [name for name, _ in ledger.calls] == [FOUND, "translate_contract"]


MCP_SERVER = """
from mcp.server.mcpserver import MCPServer

server = MCPServer("shop")


@server.tool()
def reprint_receipt(receipt_id: str) -> str:
    "Reprint the receipt of a sale on paper."
    return f"Reprinted {receipt_id}."


server.run()
"""


def test_tools_of_mcp_servers_are_found_as_well():
    script = [search("reprint a receipt"), call("reprint_receipt", receipt_id="r-1"), "Done."]
    params: Any = {"command": sys.executable, "args": ["-c", MCP_SERVER]}

    async def work(provider: Provider) -> None:
        async with MCPServerStdio(params, client_session_timeout_seconds=30) as server:
            agent = agent_of(provider, shop(Ledger()), Mode.DEFINITIONS, mcp_servers=[server])
            await Runner.run(agent, "Go.", run_config=QUIET)

    with Provider(script) as provider:
        asyncio.run(work(provider))

    assert "Reprinted r-1." in str(provider.requests[-1].tool_results)
    assert len(provider.requests[0].tool_names) == 3


@pytest.mark.parametrize("streaming", [False, True])
def test_a_conversation_that_the_provider_keeps_goes_on(streaming: bool):
    ledger = Ledger()
    script = [
        search(),
        [call(FOUND, **REFUND), search("translate a contract")],
        call("translate_contract", contract_id="c", language="german"),
        "Done.",
        call(FOUND, **REFUND),
        "Again.",
    ]

    async def ask(agent: Agent[Any], message: str, previous: str | None) -> str | None:
        options: Json = {"run_config": QUIET, "auto_previous_response_id": True}
        options["previous_response_id"] = previous
        if not streaming:
            return (await Runner.run(agent, message, **options)).last_response_id
        result = Runner.run_streamed(agent, message, **options)
        async for _ in result.stream_events():
            pass
        return result.last_response_id

    async def work(provider: Provider) -> None:
        agent = agent_of(provider, shop(ledger), Mode.DEFINITIONS)
        last = await ask(agent, "Go.", None)
        await ask(agent, "Again.", last)

    with Provider(script) as provider:
        asyncio.run(work(provider))

    assert [name for name, _ in ledger.calls] == [FOUND, "translate_contract", FOUND]


def test_tools_of_a_scout_are_found_and_run_through_it():
    def send_email(to: str) -> str:
        """Send an email to somebody."""
        return f"Sent to {to}."

    mail = FakeServer("mail", [send_email])
    catalog = Catalog()
    mail.connect(catalog)
    scout = Scout(catalog, executors={"mail": mail}, settings=Settings(mode=Mode.DEFINITIONS))
    script = [search("send an email"), call("mail__send_email", to="ann"), "Done."]
    with Provider(script) as provider:
        inner = model_of("openai-responses", provider.base_url)
        agent = Agent(
            name="clerk", model=ToolScoutModel(inner, scout=scout), tools=[*shop(Ledger())]
        )
        run(agent, "Go.")

    assert mail.calls == [("send_email", {"to": "ann"})]
    assert "Sent to ann." in provider.requests[-1].tool_results.values()


def test_the_runner_keeps_searches_as_finished_items_and_the_provider_gets_them_back():
    """The runner refuses a search that its client is to run; this is how it takes ours."""
    ledger = Ledger()
    with Provider([search(), call(FOUND, **REFUND), "Done."]) as provider:
        result = run(agent_of(provider, shop(ledger), Mode.DEFINITIONS), "Go.")

    kept = [item for item in result.to_input_list() if "tool_search" in str(item.get("type"))]
    sent = [
        item for item in provider.requests[-1].messages if "tool_search" in str(item.get("type"))
    ]
    assert [(item["type"], item["execution"]) for item in cast("list[Json]", kept)] == [
        ("tool_search_call", "server"),
        ("tool_search_output", "server"),
    ]
    assert [item["execution"] for item in sent] == ["client", "client"]
    assert [item.type for item in result.new_items][:2] == [
        "tool_search_call_item",
        "tool_search_output_item",
    ]


def test_the_usage_of_a_run_counts_the_rounds_that_it_did_not_see():
    with Provider([search(), "Nothing to do."]) as provider:
        result = run(agent_of(provider, shop(Ledger()), Mode.NATIVE), "Go.")

    assert result.context_wrapper.usage.requests == 2
    assert result.context_wrapper.usage.input_tokens == sum(
        tokens(request.whole) for request in provider.requests
    )


def test_text_is_streamed_as_it_comes():
    async def work(provider: Provider) -> list[str]:
        agent = agent_of(provider, shop(Ledger()), Mode.DEFINITIONS)
        result = Runner.run_streamed(agent, "Go.", run_config=QUIET)
        return [
            event.data.delta
            async for event in result.stream_events()
            if event.type == "raw_response_event"
            and event.data.type == "response.output_text.delta"
        ]

    with Provider([search(), "A text of several words."]) as provider:
        deltas = asyncio.run(work(provider))

    assert len(deltas) > 1
    assert "".join(deltas) == "A text of several words."


def test_a_forced_tool_is_declared_without_a_search():
    ledger = Ledger()
    with Provider([call(FOUND, **REFUND), "Done."]) as provider:
        settings = ModelSettings(tool_choice=FOUND)
        run(agent_of(provider, shop(ledger), Mode.NATIVE, model_settings=settings), "Go.")

    assert ledger.calls == [(FOUND, REFUND)]


def test_the_sdk_passes_a_definition_on_as_it_is():
    """The SDK refuses its own `ToolSearchTool` if no function is deferred."""
    definition: Json = {
        "type": "tool_search",
        "execution": "client",
        "description": "d",
        "parameters": {},
    }
    converted = Converter.convert_tools([CodeInterpreterTool(cast("Any", definition))], [])

    message = "openai-agents has changed: look at `_Verbatim` in toolscout.adapters.openai_agents"
    assert converted.tools == [definition], message
    assert hasattr(model_of("openai-responses", "http://127.0.0.1:1/v1"), "_client"), message


def test_anthropics_mode_is_refused():
    with pytest.raises(UsageError, match="Anthropic"):
        model = model_of("openai-responses", "http://127.0.0.1:1/v1")
        ToolScoutModel(model, settings=Settings(mode=Mode.REFERENCE))


def test_the_example_runs_as_it_is_written(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("OPENAI_AGENTS_DISABLE_TRACING", "1")
    script = [search(), call(FOUND, **REFUND), "It is refunded."]
    with Provider(script) as provider:
        said = run_example("openai_agents.py", provider.base_url)

    assert said == "It is refunded.\n"
    assert "Refunded 500 of inv-7." in provider.requests[-1].tool_results.values()
    assert is_on_page("openai_agents.py", "openai_agents.md")


def test_without_the_sdk_the_error_says_what_to_install():
    code = "import sys; sys.modules['agents'] = None; import toolscout.adapters.openai_agents"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)

    assert "pip install 'toolscout[openai-agents]'" in done.stderr
