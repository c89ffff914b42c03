"""LangChain and LangGraph keep the contract, and their own features go on working."""

import asyncio
import json
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import Annotated, Any, cast
from uuid import uuid4

import pytest
from langchain import agents
from langchain.agents.middleware import (
    AgentMiddleware,
    HumanInTheLoopMiddleware,
    ModelRequest,
    ToolRetryMiddleware,
)
from langchain.agents.middleware.types import AgentState, ToolCallRequest
from langchain.agents.structured_output import ToolStrategy
from langchain_anthropic import ChatAnthropic
from langchain_anthropic.middleware import AnthropicPromptCachingMiddleware
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessageChunk, ToolMessage
from langchain_core.tools import BaseTool, InjectedToolCallId, StructuredTool, ToolException, tool
from langchain_mcp_adapters.client import MultiServerMCPClient
from langchain_openai import AzureChatOpenAI, ChatOpenAI
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.prebuilt import InjectedState, ToolRuntime
from langgraph.runtime import ExecutionInfo
from langgraph.types import Command, interrupt
from langgraph_bigtool import graph as bigtool
from pydantic import BaseModel

from adapters import contract
from adapters.contract import (
    SPECS,
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
from adapters.scripts import run_example
from adapters.surfaces import DialectName
from adapters.surfaces import Mode as ModeName
from adapters.tables import EXAMPLES, ROOT
from toolscout import Catalog, Permission, Policy, Scout, Settings, Tool
from toolscout.adapters.langchain import ToolScoutMiddleware, choose_mode_for, merge, retrieve_tools
from toolscout.errors import UsageError
from toolscout.sessions.record import Record
from toolscout.settings import Mode

create_agent = cast("Callable[..., Any]", agents.create_agent)  # its types are unknown in part

Json = dict[str, Any]
CHAT: DialectName = "openai-chat"
RAISING = Surface(tool_errors="raised")
WAYS: tuple[tuple[ModeName, Mode, DialectName], ...] = (
    ("native", Mode.NATIVE, "openai-chat"),
    ("native", Mode.NATIVE, "anthropic"),
    ("bridge", Mode.BRIDGE, "openai-chat"),
    ("bridge", Mode.BRIDGE, "openai-responses"),
    ("reference", Mode.REFERENCE, "anthropic"),
    ("definitions", Mode.DEFINITIONS, "openai-responses"),
)


def ways(*chosen: int) -> pytest.MarkDecorator:
    listed = [WAYS[number] for number in chosen or range(len(WAYS))]
    names = [f"{mode}-{dialect}" for mode, _, dialect in listed]
    return pytest.mark.parametrize(("mode", "setting", "dialect"), listed, ids=names)


def model_at(base_url: str, dialect: DialectName = CHAT) -> BaseChatModel:
    options: Json = {"api_key": "none", "max_retries": 0}
    if dialect == "anthropic":
        options["base_url"] = base_url.removesuffix("/v1")
        return ChatAnthropic(model_name="claude-opus-4-8", **options)
    responses = dialect == "openai-responses"
    return ChatOpenAI(model="gpt-5.5", base_url=base_url, use_responses_api=responses, **options)


def tool_of(spec: Spec, ledger: Ledger) -> BaseTool:
    def run(**arguments: Any) -> str:
        return ledger.run(spec.name, arguments)

    return StructuredTool(
        name=spec.name, description=spec.description, args_schema=spec.schema, func=run
    )


@dataclass(frozen=True)
class Makes:
    """Makes agents in one of the modes; without one, agents that show all their tools."""

    mode: Mode | None = Mode.NATIVE
    dialect: DialectName = CHAT

    def __call__(
        self, specs: Sequence[Spec], ledger: Ledger, base_url: str, saved: object | None
    ) -> contract.Agent:
        tools = [tool_of(spec, ledger) for spec in specs]
        middleware = [] if self.mode is None else [ToolScoutMiddleware(settings=self._settings())]
        kept = saved or (InMemorySaver(), uuid4().hex)
        saver, thread = cast("tuple[InMemorySaver, str]", kept)
        agent = create_agent(
            model_at(base_url, self.dialect), tools, middleware=middleware, checkpointer=saver
        )
        return Conversation(agent, saver, thread)

    def _settings(self) -> Settings | None:
        return None if self.mode is Mode.NATIVE else Settings(mode=self.mode or Mode.NATIVE)


@dataclass
class Conversation:
    """A thread of an agent."""

    agent: Any
    saver: InMemorySaver
    thread: str = field(default_factory=lambda: uuid4().hex)

    def ask(self, message: str) -> str:
        return self.agent.invoke(*self._said(message))["messages"][-1].text

    async def ask_async(self, message: str) -> str:
        return (await self.agent.ainvoke(*self._said(message)))["messages"][-1].text

    def ask_streaming(self, message: str) -> str:
        said: Json = {}
        for chunk, _ in self.agent.stream(*self._said(message), stream_mode="messages"):
            if isinstance(chunk, AIMessageChunk):
                said[chunk.id or ""] = said.get(chunk.id or "", "") + chunk.text
        return list(said.values())[-1]

    def another(self) -> contract.Agent:
        return Conversation(self.agent, self.saver)

    def saved(self) -> object:
        return self.saver, self.thread

    def _said(self, message: str) -> tuple[Any, Any]:
        messages = [{"role": "user", "content": message}]
        return {"messages": messages}, {"configurable": {"thread_id": self.thread}}


@ways()
def test_an_agent_keeps_the_contract(mode: ModeName, setting: Mode, dialect: DialectName):
    maker = Makes(setting, dialect)
    plain = None if mode == "bridge" else Makes(None, dialect)

    check_contract(maker, mode=mode, dialect=dialect, surface=RAISING, plain=plain)


@pytest.mark.parametrize("setting", [Mode.NATIVE, Mode.BRIDGE])
def test_two_conversations_of_an_agent_share_nothing(setting: Mode):
    mode: ModeName = "native" if setting is Mode.NATIVE else "bridge"

    check_two_conversations_do_not_share(Makes(setting), mode=mode, dialect=CHAT)
    check_concurrent_conversations(Makes(setting), mode=mode, dialect=CHAT)


@ways(0, 3, 4, 5)
def test_a_streaming_agent_sends_what_another_sends(
    mode: ModeName, setting: Mode, dialect: DialectName
):
    check_streaming(Makes(setting, dialect), mode=mode, dialect=dialect, surface=RAISING)


def test_an_asynchronous_agent_sends_what_another_sends():
    check_async(Makes(), mode="native", dialect=CHAT, surface=RAISING)


# What is LangChain's own.

REFUND: Json = {"invoice_id": "inv-7", "amount": 500}
SEARCH = call("tool_search", queries=["refund an invoice"], limit=1)
DO = call("refund_invoice", **REFUND)
BRIDGED = call("tool_call", name="refund_invoice", arguments=REFUND)
FEW = [spec for spec in SPECS if spec.name.endswith(("_invoice", "_contract"))]


@dataclass
class Office:
    """Runs scripts with an agent of a few tools, by default on one thread."""

    script: Sequence[Any]
    tools: Sequence[Any] | None = None
    mode: Mode = Mode.NATIVE
    dialect: DialectName = CHAT
    middleware: Sequence[AgentMiddleware[Any, Any]] = ()
    saver: Any = field(default_factory=InMemorySaver)
    scouting: ToolScoutMiddleware | None = None
    options: Json = field(default_factory=dict[str, Any])
    ledger: Ledger = field(default_factory=Ledger)

    def __enter__(self) -> "Office":
        self.provider = Provider(self.script)
        self.provider.__enter__()
        self.agent = self.new_agent()
        return self

    def __exit__(self, *raised: Any) -> None:
        self.provider.__exit__(*raised)

    def new_agent(self, **changes: Any) -> Any:
        own = [tool_of(spec, self.ledger) for spec in FEW] if self.tools is None else self.tools
        scouting = self.scouting or ToolScoutMiddleware(settings=Settings(mode=self.mode))
        model = model_at(self.provider.base_url, self.dialect)
        options: Json = {"model": model, "tools": own, "checkpointer": self.saver, **self.options}
        options["middleware"] = [*self.middleware, scouting]
        return create_agent(**options | changes)

    def run(self, given: object = "Please do it.", *, agent: Any = None, **options: Any) -> Json:
        said = {"messages": [("user", given)]} if isinstance(given, str) else given
        return (agent or self.agent).invoke(said, CONFIG if self.saver else None, **options)

    @property
    def state(self) -> Json:
        return self.agent.get_state(CONFIG).values["toolscout"]

    def result(self, number: int = -1) -> str:
        """Return the last result in a request."""
        return list(self.provider.requests[number].tool_results.values())[-1]


CONFIG: Any = {"configurable": {"thread_id": "t"}}
APPROVE: Json = {"decisions": [{"type": "approve"}]}


def loaded(state: Json) -> list[str]:
    return [entry["name"] for entry in state["session"]["entries"]]


def test_functions_are_sent_as_langchain_sends_them_without_toolscout():
    functions = [spec.function(Ledger()) for spec in FEW]
    with Provider([SEARCH, "Found.", "Hello."]) as provider:
        model = model_at(provider.base_url)
        hidden = create_agent(model, functions, middleware=[ToolScoutMiddleware()])
        hidden.invoke({"messages": [("user", "Refund it.")]})
        create_agent(model, functions).invoke({"messages": [("user", "Hello.")]})

    _, found, plain = provider.requests
    wanted = {entry.name: entry.sent for entry in plain.definitions}["refund_invoice"]
    assert found.definitions[-1].sent == wanted


def test_a_conversation_goes_on_in_another_process_from_sqlite(tmp_path: Path):
    def saver() -> SqliteSaver:
        return SqliteSaver(sqlite3.connect(tmp_path / "kept.db", check_same_thread=False))

    first, second = saver(), saver()
    with Office([SEARCH, "Found.", DO, "Done."], saver=first) as office:
        office.run()
        first.conn.close()
        office.run(agent=office.new_agent(checkpointer=second))
        second.conn.close()

    assert office.ledger.calls == [("refund_invoice", REFUND)]
    assert office.provider.requests[2].tool_names[-1] == "refund_invoice"


def test_a_fork_of_a_thread_knows_what_was_found_before_it_and_no_more():
    other = call("tool_search", queries=["translate a contract"], limit=1)
    with Office([SEARCH, "Found.", other, "Found.", "Forked.", "Still here."]) as office:
        office.run()
        fork = office.agent.get_state(CONFIG).config
        office.run()
        said = {"messages": [("user", "Something else.")]}
        office.agent.invoke(said, fork)
        forked = loaded(office.state)
        office.run()

    names = [request.tool_names[3:] for request in office.provider.requests]
    assert names[3] == ["refund_invoice", "translate_contract"]
    assert names[4] == names[5] == forked == ["refund_invoice"]


def test_state_that_is_handed_over_without_a_checkpointer_goes_on():
    with Office([SEARCH, "Found.", DO, "Done."], saver=None) as office:
        kept = json.loads(json.dumps(office.run()["toolscout"]))
        office.run({"messages": [("user", "Do it.")], "toolscout": kept})

    assert office.ledger.calls == [("refund_invoice", REFUND)]


@pytest.mark.parametrize("mode", [Mode.NATIVE, Mode.BRIDGE])
def test_an_interrupt_in_a_found_tool_waits_and_resumes(mode: Mode):
    @tool
    def refund_invoice(invoice_id: str) -> str:
        """Refund an invoice."""
        return f"{invoice_id}: {interrupt('Really?')}"

    given = {"invoice_id": "inv-7"}
    direct = call("refund_invoice", **given)
    bridged = call("tool_call", name="refund_invoice", arguments=given)
    script = [SEARCH, direct if mode is Mode.NATIVE else bridged, "Done."]
    with Office(script, [refund_invoice], mode) as office:
        waiting = office.run()["__interrupt__"]
        office.run(Command(resume="yes"), agent=office.new_agent())

    assert [each.value for each in waiting] == ["Really?"]
    assert office.result() == "inv-7: yes"


@pytest.mark.parametrize("asking", ["batched", "per_call"])
@pytest.mark.parametrize(
    ("mode", "made"),
    [(Mode.NATIVE, DO), (Mode.NATIVE, BRIDGED), (Mode.BRIDGE, BRIDGED)],
    ids=["native", "native-bridged", "bridge"],
)
def test_a_person_is_asked_about_a_found_tool_by_its_own_name(mode: Mode, made: Any, asking: Any):
    person = HumanInTheLoopMiddleware({"refund_invoice": True}, interrupt_mode=asking)
    with Office([SEARCH, made, "Done."], mode=mode, middleware=[person]) as office:
        asked = office.run()["__interrupt__"][0]
        before = list(office.ledger.calls)
        answer = {"type": "approve"} if asking == "per_call" else APPROVE
        office.run(Command(resume={asked.id: answer}), agent=office.new_agent())

    action = asked.value if asking == "per_call" else asked.value["action_requests"][0]
    assert (action["name"], action["args"], before) == ("refund_invoice", REFUND, [])
    assert office.ledger.calls == [("refund_invoice", REFUND)]
    sent = office.provider.requests[-1].body["messages"][-2]["tool_calls"][0]["function"]
    assert (sent["name"], json.loads(sent["arguments"])) == (made.name, made.arguments)


def test_what_a_person_edits_or_rejects_is_what_happens_through_the_bridge():
    person = HumanInTheLoopMiddleware({"refund_invoice": True})
    edited = {"name": "refund_invoice", "args": {"invoice_id": "inv-7", "amount": 1}}
    edit = {"decisions": [{"type": "edit", "edited_action": edited}]}
    reject = {"decisions": [{"type": "reject", "message": "Too much."}]}
    script = [SEARCH, BRIDGED, BRIDGED, "Done."]
    with Office(script, mode=Mode.BRIDGE, middleware=[person]) as office:
        office.run()
        office.run(Command(resume=edit))
        office.run(Command(resume=reject))

    assert office.ledger.calls == [("refund_invoice", {"invoice_id": "inv-7", "amount": 1})]
    assert "Too much." in office.result()


def test_several_calls_at_once_do_not_get_past_the_person_who_is_asked():
    person = HumanInTheLoopMiddleware({"refund_invoice": True})
    refund = {"name": "refund_invoice", "arguments": REFUND}
    both = call("tool_call", calls=[refund, refund])
    with Office([SEARCH, both, "Sorry."], mode=Mode.BRIDGE, middleware=[person]) as office:
        office.run()

    assert office.ledger.calls == []
    assert "Use tool_call once for each." in office.result()


def test_the_scouts_policy_asks_as_langchain_does():
    policy = Policy(permit=lambda tool, arguments: Permission.ASK)
    native = Settings(mode=Mode.NATIVE)
    scouting = ToolScoutMiddleware(scout=Scout(Catalog(), policy=policy, settings=native))
    reject: Json = {"decisions": [{"type": "reject"}]}
    with Office([SEARCH, DO, DO, "Done."], scouting=scouting) as office:
        asked = office.run()["__interrupt__"][0].value
        office.run(Command(resume=reject))
        refused = office.result()
        office.run(Command(resume=APPROVE))

    assert asked["action_requests"][0]["args"] == REFUND
    assert "Not called" in refused
    assert office.ledger.calls == [("refund_invoice", REFUND)]


def test_without_a_checkpointer_the_policy_makes_the_model_ask():
    policy = Policy(permit=lambda tool, arguments: Permission.ASK)
    scouting = ToolScoutMiddleware(
        scout=Scout(Catalog(), policy=policy, settings=Settings(mode=Mode.NATIVE))
    )
    with Office([SEARCH, DO, "Done."], scouting=scouting, saver=None) as office:
        office.run()

    assert "needs the user's approval" in office.result()


def test_a_subagent_has_its_own_tools_unless_it_inherits_those_of_its_caller():
    seen: list[list[str]] = []
    scouting = ToolScoutMiddleware()
    own = [tool_of(spec, Ledger()) for spec in FEW]

    @tool
    def delegate(inherit: bool, runtime: ToolRuntime[Any, Any]) -> str:
        """Delegate an errand to a colleague who refunds an invoice."""
        state = {"toolscout": runtime.state["toolscout"]} if inherit else {}
        with Provider(["Nothing to do."]) as provider:
            colleague = create_agent(model_at(provider.base_url), own, middleware=[scouting])
            colleague.invoke({"messages": [("user", "Your turn.")], **state})
        seen.append(provider.requests[0].tool_names[3:])
        return "Delegated."

    select = call("tool_search", queries=["select:delegate,refund_invoice"])
    script = [select, call("delegate", inherit=False), call("delegate", inherit=True), "Done."]
    with Office(script, [*own, delegate], scouting=scouting) as office:
        office.run()

    assert seen == [[], ["refund_invoice"]]


class Tally(AgentState[Any]):
    """State of the agent's owner."""

    tally: int


def test_tools_get_what_langchain_injects_and_may_change_the_state():
    @tool
    def refund_invoice(
        invoice_id: str,
        tally: Annotated[int, InjectedState("tally")],
        id_: Annotated[str, InjectedToolCallId],
        runtime: ToolRuntime[Any, Any],
    ) -> Command[Any]:
        """Refund an invoice."""
        same = id_ == runtime.tool_call_id
        done = ToolMessage(f"{invoice_id} {tally} {same}", tool_call_id=id_)
        return Command(update={"tally": tally + 1, "messages": [done]})

    made = call("refund_invoice", invoice_id="inv-7")
    options = {"state_schema": Tally}
    with Office([SEARCH, made, made, "Done."], [refund_invoice], options=options) as office:
        result = office.run({"messages": [("user", "Refund it.")], "tally": 1})

    sent = office.provider.requests[1].definitions[-1]
    assert list((sent.schema or {})["properties"]) == ["invoice_id"]
    assert list(office.provider.requests[-1].tool_results.values())[1:] == [
        "inv-7 1 True",
        "inv-7 2 True",
    ]
    assert result["tally"] == 3


def test_errors_that_langchain_handles_reach_the_model_in_its_words():
    @tool
    def refund_invoice(invoice_id: str) -> str:
        """Refund an invoice."""
        raise ToolException(f"{invoice_id} is locked")

    refund_invoice.handle_tool_error = True
    made = call("refund_invoice", invoice_id="inv-7")
    with Office([SEARCH, made, "Done."], [refund_invoice]) as office:
        office.run()

    assert office.result() == "inv-7 is locked"


def test_middleware_around_the_tools_retries_a_found_one():
    tries: list[str] = []

    @tool
    def refund_invoice(invoice_id: str) -> str:
        """Refund an invoice."""
        tries.append(invoice_id)
        if len(tries) < 3:
            raise TimeoutError
        return "Refunded."

    retry = ToolRetryMiddleware(max_retries=3, initial_delay=0, jitter=False)
    made = call("refund_invoice", invoice_id="inv-7")
    with Office([SEARCH, made, "Done."], [refund_invoice], middleware=[retry]) as office:
        office.run()

    assert (len(tries), office.result()) == (3, "Refunded.")


def test_a_result_of_a_loaded_tool_reaches_other_middleware_as_it_is():
    seen: list[object] = []

    class Watch(AgentMiddleware[Any, Any]):
        def wrap_tool_call(
            self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], Any]
        ) -> Any:
            seen.append(handler(request))
            return seen[-1]

    with Office([SEARCH, DO, "Done."], middleware=[Watch()]) as office:
        office.run()

    assert isinstance(seen[1], ToolMessage)
    assert seen[1].content == "refund_invoice done: inv-7, 500"


def test_a_repaired_call_says_so_and_the_found_tool_gets_what_fits():
    slip = call("refund_invoice", invoice_id="inv-7", amount="500")
    with Office([SEARCH, slip, "Done."]) as office:
        office.run()

    assert office.ledger.calls == [("refund_invoice", REFUND)]
    assert office.result().startswith("(")
    assert office.result().endswith("refund_invoice done: inv-7, 500")


def test_a_tool_that_ends_the_run_ends_it_also_when_it_was_found():
    answer = StructuredTool.from_function(FEW[0].function(Ledger()), return_direct=True)
    with Office([SEARCH, BRIDGED], [answer], Mode.BRIDGE) as office:
        last = office.run()["messages"][-1]

    assert last.content == "refund_invoice done: inv-7, 500"


def test_only_the_framework_converts_the_arguments_of_its_own_tools():
    def name_weekday(day: date) -> str:
        """Name the weekday of a date."""
        return day.strftime("%A")

    search = call("tool_search", queries=["weekday of a date"])
    made = call("name_weekday", day="2026-11-17")
    with Office([search, made, "Done."], [StructuredTool.from_function(name_weekday)]) as office:
        office.run()

    assert office.result() == "Tuesday"


def test_an_unknown_name_is_answered_without_the_names_of_hidden_tools():
    made_up = unoffered(call("make_coffee", cups=2))
    with Office([made_up, "Sorry."]) as office:
        office.run()

    assert "tool_search" in office.result()
    assert not any(spec.name in office.result() for spec in FEW)


@dataclass
class Desk:
    """Who runs an agent, and with which tools."""

    tools: list[BaseTool]


def desk_of(person: str, *names: str) -> Desk:
    def make(name: str) -> BaseTool:
        def run(invoice_id: str) -> str:
            return f"{person}: {invoice_id}"

        said = f"{name.replace('_', ' ').capitalize()}."
        return StructuredTool.from_function(run, name=name, description=said)

    return Desk([make(name) for name in names])


def test_each_run_finds_and_runs_the_tools_that_it_was_given():
    def at_hand(runtime: Any) -> Iterable[BaseTool]:
        return runtime.context.tools

    both = call("tool_search", queries=["select:refund_invoice,audit_invoice"])
    made = call("refund_invoice", invoice_id="inv-7")
    script = [both, made, "Done.", both, made, "Done."]
    options = {"context_schema": Desk}
    scouting = ToolScoutMiddleware(at_hand)
    with Office(script, [], scouting=scouting, saver=None, options=options) as office:
        office.run(context=desk_of("Ann", "refund_invoice", "audit_invoice"))
        office.run(context=desk_of("Bob", "refund_invoice"))

    results = [list(request.tool_results.values()) for request in office.provider.requests]
    assert (results[2][1], results[5][1]) == ("Ann: inv-7", "Bob: inv-7")
    assert office.provider.requests[1].tool_names[3:] == ["refund_invoice", "audit_invoice"]
    assert office.provider.requests[4].tool_names[3:] == ["refund_invoice"]
    assert "audit_invoice(" not in results[4][0]


def test_a_run_keeps_its_own_tools_while_another_brings_some_of_the_same_names():
    found = call("tool_search", queries=["select:refund_invoice"])
    made = call("refund_invoice", invoice_id="inv-7")
    scouting = ToolScoutMiddleware(lambda runtime: runtime.context.tools)
    office = Office((), [], scouting=scouting, saver=None, options={"context_schema": Desk})

    def meanwhile(_: object) -> Any:
        office.run("Bob asks.", context=desk_of("Bob", "refund_invoice"))
        return made

    done = "Done."
    office.script = cast("Any", {"Ann": [found, meanwhile, done], "Bob": [found, made, done]})
    with office:
        result = office.run("Ann asks.", context=desk_of("Ann", "refund_invoice"))

    assert result["messages"][-2].content == "Ann: inv-7"


def test_the_tool_that_was_used_last_is_the_last_to_leave():
    both = call("tool_search", queries=["select:audit_invoice,refund_invoice"])
    third = call("tool_search", queries=["select:translate_contract"])
    script = [both, DO, third, "Done."]
    with Office(script) as office:
        office.run()
        room = sum(entry["tokens"] for entry in office.state["session"]["entries"]) - 1
    small = ToolScoutMiddleware(settings=Settings(mode=Mode.NATIVE, loaded_tokens=room))
    with Office(script, scouting=small) as office:
        office.run()

    assert loaded(office.state) == ["refund_invoice", "translate_contract"]


class Brings(AgentMiddleware[Any, Any]):
    """Adds a tool to every request, and runs it, as LangChain's documents say."""

    def __init__(self, brought: BaseTool) -> None:
        super().__init__()
        self.brought = brought

    def wrap_model_call(self, request: ModelRequest[Any], handler: Callable[..., Any]) -> Any:
        return handler(request.override(tools=[*request.tools, self.brought]))

    def wrap_tool_call(
        self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], Any]
    ) -> Any:
        mine = request.tool_call["name"] == self.brought.name
        return handler(request.override(tool=self.brought) if mine else request)


def test_tools_that_other_middleware_brings_are_hidden_and_found_too():
    brought = desk_of("Ann", "stamp_invoice").tools[0]
    stamp = call("tool_search", queries=["stamp an invoice"], limit=1)
    made = call("stamp_invoice", invoice_id="inv-7")
    with Office([stamp, made, "Done."], middleware=[Brings(brought)]) as office:
        office.run()

    assert "stamp_invoice" not in office.provider.requests[0].tool_names
    assert office.result() == "Ann: inv-7"


class Withholds(AgentMiddleware[Any, Any]):
    """Takes a tool out of every request."""

    def wrap_model_call(self, request: ModelRequest[Any], handler: Callable[..., Any]) -> Any:
        kept = [t for t in request.tools if getattr(t, "name", "") != "refund_invoice"]
        return handler(request.override(tools=kept))


def test_a_tool_that_other_middleware_takes_away_is_neither_found_nor_run():
    select = call("tool_search", queries=["select:refund_invoice"])
    bridged = call("tool_call", name="refund_invoice", arguments=REFUND)
    script = [select, unoffered(DO), bridged, "Sorry."]
    with Office(script, middleware=[Withholds()]) as office:
        office.run()

    assert office.ledger.calls == []
    assert loaded(office.state) == []


def test_a_search_that_another_process_takes_up_shows_nothing_that_was_taken_away():
    select = call("tool_search", queries=["select:refund_invoice,audit_invoice"])
    options = {"interrupt_before": ["tools"]}
    with Office([select, "Sorry."], middleware=[Withholds()], options=options) as office:
        office.run()
        office.run(None, agent=office.new_agent())  # pyright: ignore[reportArgumentType]  # resumes

    assert loaded(office.state) == []


def test_tools_given_to_the_middleware_are_hidden_and_those_of_the_agent_are_not():
    ledger = Ledger()
    hidden = [spec.function(ledger) for spec in FEW if spec.name == "refund_invoice"]
    scouting = ToolScoutMiddleware(hidden)
    own = desk_of("Ann", "stamp_invoice").tools
    script = [call("stamp_invoice", invoice_id="inv-7"), SEARCH, DO, "Done."]
    with Office(script, own, scouting=scouting) as office:
        office.run()

    meta = ["tool_search", "tool_describe", "tool_call"]
    assert office.provider.requests[0].tool_names == ["stamp_invoice", *meta]
    assert office.provider.requests[2].tool_names == ["stamp_invoice", *meta, "refund_invoice"]
    assert ledger.calls == [("refund_invoice", REFUND)]


def run_leaf(tool: Tool, arguments: Json) -> str:
    return f"{tool.leaf} done with {arguments}"


@pytest.mark.parametrize("mode", [Mode.NATIVE, Mode.BRIDGE])
def test_tools_of_the_scouts_servers_are_found_and_run_by_their_executors(mode: Mode):
    catalog = Catalog()
    stamp = Tool.define("stamp", server="post", description="Put a stamp on a letter.")
    catalog.replace("post", [stamp])
    scout = Scout(catalog, executors=run_leaf, settings=Settings(mode=mode))
    both = call("tool_search", queries=["put a stamp on a letter", "refund an invoice"], limit=1)
    direct, bridged = call("post__stamp"), call("tool_call", name="post__stamp", arguments={})
    stamped, done = (direct, DO) if mode is Mode.NATIVE else (bridged, BRIDGED)
    scouting = ToolScoutMiddleware(scout=scout)
    with Office([both, [stamped, done], "Done."], scouting=scouting) as office:
        office.run()

    assert list(office.provider.requests[-1].tool_results.values())[1:] == [
        "stamp done with {}",
        "refund_invoice done: inv-7, 500",
    ]


def test_a_weak_hit_that_was_called_is_among_the_tools_from_then_on():
    vague = call("tool_search", queries=["office supplies"], limit=20)
    made = call("reprint_invoice", invoice_id="inv-7", copies=2)
    with Office([vague, unoffered(made), made, "Done."]) as office:
        office.run()

    assert len(office.ledger.calls) == 2


@pytest.mark.parametrize("dialect", ["openai-chat", "anthropic"])
def test_a_tool_that_vanished_between_runs_does_not_end_the_conversation(dialect: DialectName):
    mode = Mode.REFERENCE if dialect == "anthropic" else Mode.NATIVE
    both = call("tool_search", queries=["select:refund_invoice,audit_invoice"])
    gone = [spec for spec in FEW if spec.name != "refund_invoice"]
    script = [both, DO, "Done.", unoffered(DO), "Sorry."]
    with Office(script, mode=mode, dialect=dialect) as office:
        office.run()
        left = [tool_of(spec, office.ledger) for spec in gone]
        office.run(agent=office.new_agent(tools=left))

    assert len(office.ledger.calls) == 1
    assert loaded(office.state) == ["audit_invoice"]
    assert "refund_invoice" not in office.provider.requests[-1].tool_names


def test_a_tool_that_changed_between_runs_is_sent_as_it_is():
    with Office([SEARCH, "Found.", call("refund_invoice", everything=True), "Done."]) as office:
        office.run()

        def refund_invoice(everything: bool) -> str:
            """Refund an invoice as a whole."""
            return f"All: {everything}"

        office.run(agent=office.new_agent(tools=[refund_invoice]))

    sent = office.provider.requests[2].definitions[-1]
    assert list((sent.schema or {})["properties"]) == ["everything"]
    assert office.result() == "All: True"


Wire = tuple[Mode, DialectName]
GROWS: Wire = (Mode.NATIVE, "openai-chat")
BRIDGES: Wire = (Mode.BRIDGE, "openai-responses")
REFERS: Wire = (Mode.REFERENCE, "anthropic")
DEFINES: Wire = (Mode.DEFINITIONS, "openai-responses")


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (GROWS, REFERS),
        (BRIDGES, GROWS),
        (BRIDGES, DEFINES),
        (REFERS, BRIDGES),
        (REFERS, DEFINES),
        (DEFINES, BRIDGES),
        (DEFINES, GROWS),
        (DEFINES, REFERS),
    ],
)
def test_a_conversation_goes_on_with_another_provider(before: Wire, after: Wire):
    def do(mode: Mode) -> Any:
        return BRIDGED if mode is Mode.BRIDGE else DO

    # Definitions come with a search, and the text of one is not such.
    again = [SEARCH, do(after[0])] if after == DEFINES else [do(after[0])]
    script = [SEARCH, do(before[0]), "Done.", *again, "Done again."]
    with Office(script, mode=before[0], dialect=before[1]) as office:
        office.run()
        other = model_at(office.provider.base_url, after[1])
        scouting = ToolScoutMiddleware(settings=Settings(mode=after[0]))
        office.run(agent=office.new_agent(model=other, middleware=[scouting]))

    assert len(office.ledger.calls) == 2


@pytest.mark.parametrize(
    ("model", "mode"),
    [
        (model_at("https://api.anthropic.com/v1", "anthropic"), Mode.REFERENCE),
        (model_at("https://proxy.example/v1", "anthropic"), Mode.NATIVE),
        (model_at("https://api.openai.com/v1", "openai-responses"), Mode.DEFINITIONS),
        (model_at("https://api.openai.com/v1", "openai-chat"), Mode.NATIVE),
        (model_at("https://proxy.example/v1", "openai-responses"), Mode.NATIVE),
        (
            AzureChatOpenAI(
                azure_endpoint="https://some.openai.azure.com",
                api_key=cast("Any", "none"),
                api_version="2026-01-01",
                model="gpt-5.5",
                use_responses_api=True,
            ),
            Mode.NATIVE,
        ),
    ],
)
def test_the_mode_follows_what_the_models_provider_is_known_to_take(
    model: BaseChatModel, mode: Mode
):
    assert choose_mode_for(model) is mode


def test_the_prompt_cache_breakpoint_is_at_the_end_of_the_constant_part():
    caching = AnthropicPromptCachingMiddleware()
    office = Office([SEARCH, DO, "Done."], mode=Mode.REFERENCE, dialect="anthropic")
    office.middleware = [caching]
    with office:
        office.run()

    for request in office.provider.requests:
        marked = [entry.name for entry in request.definitions if "cache_control" in entry.sent]
        assert marked == ["tool_call"]


class Verdict(BaseModel):
    """How it ended."""

    done: bool


def test_structured_output_goes_on_working():
    options = {"response_format": ToolStrategy(Verdict)}
    with Office([SEARCH, DO, call("Verdict", done=True)], options=options) as office:
        result = office.run()

    assert result["structured_response"] == Verdict(done=True)
    assert office.ledger.calls == [("refund_invoice", REFUND)]


def test_an_asynchronous_stream_yields_results_and_updates():
    async def stream(office: Office) -> tuple[list[str], list[str]]:
        said, steps = list[str](), list[str]()
        given: Any = {"messages": [("user", "Refund it.")]}
        modes = ["messages", "updates"]
        async for kind, chunk in office.agent.astream(given, CONFIG, stream_mode=modes):
            if kind == "updates":
                steps.extend(chunk)
            elif isinstance(chunk[0], ToolMessage):
                said.append(chunk[0].name or "")
        return said, steps

    with Office([SEARCH, DO, "Done."]) as office:
        said, steps = asyncio.run(stream(office))

    assert said == ["tool_search", "refund_invoice"]
    assert steps == ["model", "tools", "model", "tools", "model"]


def test_the_listing_in_the_system_prompt_never_changes():
    scouting = ToolScoutMiddleware(settings=Settings(), listing=True)
    options = {"system_prompt": "Be brief."}
    with Office([SEARCH, BRIDGED, "Done."], scouting=scouting, options=options) as office:
        office.run()

    prompts = [request.body["messages"][0]["content"] for request in office.provider.requests]
    assert len(set(prompts)) == 1
    assert prompts[0].startswith("Be brief.\n\n")
    assert "refund_invoice" in prompts[0]
    assert "Hidden tools" not in str(
        [request.body["tools"] for request in office.provider.requests]
    )


def test_without_a_listing_in_the_system_prompt_tool_search_has_it():
    with Office([SEARCH, BRIDGED, "Done."]) as office:
        office.run()

    sent = [json.dumps(request.body["tools"]) for request in office.provider.requests]
    assert all(text.count("Hidden tools, by server:") == 1 for text in sent)


def state(step: int, *names: str) -> Json:
    record = Record(id="r")
    record.load([(Tool.define(name), 1) for name in names], 100)
    return {"step": step, "mode": "native", "tools": "", "session": record.to_json()}


def test_steps_replace_the_state_and_calls_side_by_side_add_to_it():
    both = merge(merge(state(1, "a"), state(2, "a", "b")), state(2, "a", "c"))
    later = merge(both, state(3, "c"))

    assert loaded(both) == ["a", "b", "c"]
    assert loaded(later) == ["c"]
    assert merge({}, both) == both
    assert merge(both, {}) == {}


def test_tools_of_mcp_servers_are_found_and_run(tmp_path: Path):
    server = tmp_path / "post.py"
    server.write_text(
        "from mcp.server.fastmcp import FastMCP\n"
        "from mcp.types import ToolAnnotations\n"
        "app = FastMCP('post')\n"
        "@app.tool(annotations=ToolAnnotations(readOnlyHint=True))\n"
        "def weigh_letter(grams: int) -> str:\n"
        "    'Tell what it costs to send a letter of a weight.'\n"
        "    return f'{grams} grams cost 95 cents'\n"
        "app.run()\n"
    )
    post: Any = {"transport": "stdio", "command": sys.executable, "args": [str(server)]}

    async def work() -> None:
        tools = await MultiServerMCPClient({"post": post}).get_tools()
        office.agent = office.new_agent(tools=tools)
        await office.agent.ainvoke({"messages": [("user", "What does it cost?")]}, CONFIG)

    search = call("tool_search", queries=["effect:read costs of a letter"])
    script = [search, call("weigh_letter", grams=20), "95 cents."]
    with Office(script) as office:
        asyncio.run(work())

    assert "20 grams cost 95 cents" in office.result()


@pytest.mark.parametrize("asynchronous", [False, True])
def test_bigtool_retrieves_tools_with_toolscout(asynchronous: bool):
    registry = {f"id-{spec.name}": tool_of(spec, Ledger()) for spec in FEW}
    retrieve, aretrieve = retrieve_tools(registry, limit=1)
    with Provider([call("retrieve_tools", query="refund an invoice"), "Found."]) as provider:
        builder = cast("Any", bigtool).create_agent(
            model_at(provider.base_url),
            registry,
            retrieve_tools_function=retrieve,
            retrieve_tools_coroutine=aretrieve,
        )
        agent, given = builder.compile(), {"messages": [("user", "Refund it.")]}
        if asynchronous:
            asyncio.run(agent.ainvoke(given))
        else:
            agent.invoke(given)

    assert provider.requests[1].tool_names == ["retrieve_tools", "refund_invoice"]


def test_a_scout_and_settings_are_not_taken_together():
    with pytest.raises(UsageError, match="not both"):
        ToolScoutMiddleware(scout=Scout(Catalog()), settings=Settings())


def test_without_langchain_the_error_says_what_to_install():
    code = "import sys; sys.modules['langchain'] = None; import toolscout.adapters.langchain"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)

    assert "pip install 'toolscout[langchain]'" in done.stderr


def test_langchain_still_has_the_names_that_the_adapter_uses():
    model = cast("Any", model_at("https://api.openai.com/v1"))
    claude = cast("Any", model_at("https://api.openai.com/v1", "anthropic"))
    fields = ToolRuntime.__dataclass_fields__

    assert {"tools", "execution_info"} <= fields.keys(), "ToolRuntime lost a field; see _call()."
    assert model.root_client.base_url, "ChatOpenAI lost root_client; see _capabilities()."
    assert claude.anthropic_api_url, "ChatAnthropic lost its address; see _capabilities()."
    assert "thread_id" in ExecutionInfo.__dataclass_fields__, "see _thread_id()."


def test_the_example_runs_as_it_is_written():
    search = call("tool_search", queries=["refund an order"])
    refund = call("refund_order", order_id="A-7", cents=500)
    with Provider([search, refund, "It is refunded."]) as provider:
        said = run_example("langchain_agent.py", provider.base_url)

    assert "\nRefunded 500 cents of order A-7.\n" in said
    assert said.endswith("\nIt is refunded.\n")


def test_the_page_has_the_example():
    example = (EXAMPLES / "langchain_agent.py").read_text(encoding="utf-8")
    page = (ROOT / "docs" / "adapters" / "langchain.md").read_text(encoding="utf-8")

    assert f"```python\n{example}```" in page
    assert len(example.splitlines()) <= 30
