"""Google's ADK keeps the contract with Gemini's wire and a session service on disk."""

import asyncio
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import mkdtemp
from typing import Any, cast
from uuid import uuid4

import pytest
from google.adk.agents import LlmAgent, RunConfig
from google.adk.agents.readonly_context import ReadonlyContext
from google.adk.agents.run_config import StreamingMode  # pyright: ignore[reportPrivateImportUsage]  # as the docs have it
from google.adk.events import Event
from google.adk.models.google_llm import Gemini
from google.adk.runners import Runner
from google.adk.sessions import BaseSessionService, DatabaseSessionService
from google.adk.sessions.sqlite_session_service import SqliteSessionService
from google.adk.tools import BaseTool, FunctionTool, LongRunningFunctionTool
from google.adk.tools.base_toolset import BaseToolset
from google.adk.tools.tool_context import ToolContext
from google.genai import types
from httpx import Limits

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
from adapters.provider import Provider, call
from adapters.scales import FIND_SCALES, WEIGH, Scales
from adapters.scripts import is_on_page, run_example
from adapters.specs import Relay
from adapters.surfaces import DialectName
from adapters.surfaces import Mode as ModeName
from toolscout import Catalog, Mode, Permission, Policy, Scout, Settings
from toolscout import Event as Heard
from toolscout.adapters.google_adk import ToolScoutToolset
from toolscout.errors import UsageError
from toolscout.sessions.events import Called

GEMINI: DialectName = "gemini"
RAISING = Surface(tool_errors="raised")
"""A tool that raises ends the run, unless a callback or plugin answers for it."""


RELAY = Relay()
TOOLS = {spec.name: FunctionTool(spec.function(RELAY)) for spec in contract.SPECS}


def model_at(provider_url: str) -> Gemini:
    # Each question has an event loop of its own, so no connection may outlive one.
    lone = {"limits": Limits(max_keepalive_connections=0)}
    options = types.HttpOptions(base_url=provider_url.removesuffix("/v1"), async_client_args=lone)
    return Gemini(model="gemini-3-pro", client_kwargs={"http_options": options})


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GOOGLE_API_KEY", "none")


def said_in(event: Event) -> str:
    parts = (event.content and event.content.parts) or []
    return "".join(part.text for part in parts if part.text)


Opener = Callable[[Path], BaseSessionService]


def open_sqlite(folder: Path) -> BaseSessionService:
    return SqliteSessionService(str(folder / "sessions.db"))


def open_database(folder: Path) -> BaseSessionService:
    return DatabaseSessionService(f"sqlite+aiosqlite:///{folder / 'alchemy.db'}")


@dataclass
class Conversation:
    """One ADK session in a file; a new service reads it for every question."""

    agent: LlmAgent
    folder: Path
    id: str = field(default_factory=lambda: uuid4().hex)
    open_service: Opener = open_sqlite

    def ask(self, message: str) -> str:
        return asyncio.run(self.ask_async(message))

    async def ask_async(self, message: str, config: RunConfig | None = None) -> str:
        content = types.Content(role="user", parts=[types.Part(text=message)])
        return said_in((await self.events(content, config))[-1])

    async def ask_streaming(self, message: str) -> str:
        return await self.ask_async(message, RunConfig(streaming_mode=StreamingMode.SSE))

    async def events(self, content: types.Content, config: RunConfig | None = None) -> list[Event]:
        service = self.open_service(self.folder)
        runner = Runner(
            app_name="shop", agent=self.agent, session_service=service, auto_create_session=True
        )
        run = runner.run_async(
            user_id="ann", session_id=self.id, new_message=content, run_config=config
        )
        try:
            return [event async for event in run]
        finally:
            if isinstance(service, DatabaseSessionService):
                await service.close()

    def another(self) -> contract.Agent:
        return Conversation(self.agent, self.folder, open_service=self.open_service)

    def saved(self) -> object:
        return json.loads(json.dumps([str(self.folder), self.id]))


@dataclass(frozen=True)
class Makes:
    """Makes agents; without a mode, such as send all tools."""

    mode: Mode | None = Mode.NATIVE
    open_service: Opener = open_sqlite

    def __call__(
        self, specs: Sequence[Spec], ledger: Ledger, base_url: str, saved: object | None
    ) -> contract.Agent:
        RELAY.to = ledger
        tools: list[Any] = [TOOLS[spec.name] for spec in specs]
        if self.mode is Mode.NATIVE:
            tools = [ToolScoutToolset(tools)]
        elif self.mode is not None:
            tools = [ToolScoutToolset(tools, settings=Settings(mode=self.mode))]
        agent = agent_with(tools, base_url)
        folder, id_ = cast("list[str]", saved or [mkdtemp(), uuid4().hex])
        return Conversation(agent, Path(folder), id_, self.open_service)


def agent_with(tools: list[Any], base_url: str, **options: Any) -> LlmAgent:
    model = model_at(base_url)
    return LlmAgent(name="clerk", model=model, instruction="Be brief.", tools=tools, **options)


WAYS: tuple[tuple[ModeName, Mode], ...] = (("native", Mode.NATIVE), ("bridge", Mode.BRIDGE))
every_way = pytest.mark.parametrize(("mode", "setting"), WAYS, ids=["native", "bridge"])


@every_way
def test_an_agent_keeps_the_contract(mode: ModeName, setting: Mode):
    plain = None if mode == "bridge" else Makes(None)

    check_contract(Makes(setting), mode=mode, dialect=GEMINI, surface=RAISING, plain=plain)


def test_streaming_and_asynchronous_runs_send_the_same():
    check_streaming(Makes(), mode="native", dialect=GEMINI, surface=RAISING)
    check_async(Makes(), mode="native", dialect=GEMINI, surface=RAISING)


@every_way
def test_sessions_of_one_agent_share_nothing(mode: ModeName, setting: Mode):
    makes = Makes(setting)

    check_two_conversations_do_not_share(makes, mode=mode, dialect=GEMINI, surface=RAISING)
    check_concurrent_conversations(makes, mode=mode, dialect=GEMINI, surface=RAISING)


def test_a_database_keeps_the_session_as_well():
    makes = Makes(open_service=open_database)

    check_two_conversations_do_not_share(makes, mode="native", dialect=GEMINI, surface=RAISING)


FIND_PAY = call("tool_search", queries=["transfer money to a supplier"], limit=1)
PAY = call("pay_supplier", name="Ada", cents=5)
BRIDGED_PAY = call("tool_call", name="pay_supplier", arguments={"name": "Ada", "cents": 5})


def pay_supplier(name: str, cents: int) -> str:
    """Transfer money to a supplier."""
    return f"{name} got {cents}."


def weigh_parcel(number: str) -> str:
    """Weigh a parcel on the scales."""
    return f"{number} weighs 3 kg."


def talk(tools: list[Any], provider: Provider, **options: Any) -> Conversation:
    return Conversation(agent_with(tools, provider.base_url, **options), Path(mkdtemp()))


def hear(conversation: Conversation, text: str) -> list[Event]:
    content = types.Content(role="user", parts=[types.Part(text=text)])
    return asyncio.run(conversation.events(content))


def questions_in(events: list[Event]) -> list[types.FunctionCall]:
    calls = [made for event in events for made in event.get_function_calls()]
    return [made for made in calls if made.name == "adk_request_confirmation"]


def confirm(conversation: Conversation, question: types.FunctionCall, *, yes: bool) -> list[Event]:
    answer = types.FunctionResponse(id=question.id, name=question.name, response={"confirmed": yes})
    content = types.Content(role="user", parts=[types.Part(function_response=answer)])
    return asyncio.run(conversation.events(content))


def last_results(provider: Provider) -> list[str]:
    return list(provider.requests[-1].tool_results.values())


class Careful(FunctionTool):
    """Says that it wants to be confirmed, and leaves it to ADK to see to it."""

    async def check_require_confirmation(
        self, args: dict[str, Any], tool_context: ToolContext
    ) -> bool:
        return args["cents"] == 5

    async def run_async(self, *, args: dict[str, Any], tool_context: ToolContext) -> str:
        return pay_supplier(**args)


ASKING = (FunctionTool(pay_supplier, require_confirmation=True), Careful(pay_supplier))


@pytest.mark.parametrize("tool", ASKING, ids=["by itself", "by ADK"])
@pytest.mark.parametrize("made", [PAY, BRIDGED_PAY], ids=["by name", "by tool_call"])
@pytest.mark.parametrize("yes", [True, False], ids=["confirmed", "rejected"])
def test_a_found_tool_is_confirmed_by_a_person(tool: FunctionTool, made: Any, yes: bool):
    heard: list[Heard] = []
    scout = Scout(Catalog(), settings=Settings(mode=Mode.NATIVE), on_event=heard.append)
    tools = ToolScoutToolset([tool, weigh_parcel], scout=scout)
    with Provider([FIND_PAY, made, "Done."]) as provider:
        conversation = talk([tools], provider)
        questions = questions_in(hear(conversation, "Pay Ada."))
        assert len(provider.requests) == 2
        confirm(conversation, questions[0], yes=yes)

    assert len(questions) == 1
    assert ("Ada got 5." in last_results(provider)[-1]) is yes
    assert [event.code for event in heard if isinstance(event, Called) and event.made] == (
        ["ok"] if yes else []
    )


def test_nobody_is_asked_about_a_call_that_will_not_be_made():
    tools = ToolScoutToolset([FunctionTool(pay_supplier, require_confirmation=True), weigh_parcel])
    wrong = call("pay_supplier", name="Ada", cents="many")
    with Provider([BRIDGED_PAY, FIND_PAY, wrong, "Done."]) as provider:
        questions = questions_in(hear(talk([tools], provider), "Pay Ada."))
    unfound, _, invalid = last_results(provider)

    assert questions == []
    assert "tool_search" in unfound
    assert "cents" in invalid


def test_tools_of_other_servers_are_found_and_run_by_the_scout():
    scales = Scales()
    with Provider([FIND_SCALES, WEIGH, "Done."]) as provider:
        tools = ToolScoutToolset([pay_supplier], scout=scales.scout())
        hear(talk([tools], provider), "Weigh p-1.")

    assert scales.weighed == [{"number": "p-1"}]
    assert last_results(provider)[-1] == "It weighs 3 kg."


def test_what_the_policy_asks_about_is_confirmed_as_adk_does_it():
    scales = Scales(Policy(permit=lambda tool, arguments: Permission.ASK))
    with Provider([FIND_SCALES, WEIGH, "Done."]) as provider:
        tools = ToolScoutToolset([pay_supplier], scout=scales.scout())
        conversation = talk([tools], provider)
        questions = questions_in(hear(conversation, "Weigh p-1."))
        assert scales.weighed == []
        confirm(conversation, questions[0], yes=True)

    assert scales.weighed == [{"number": "p-1"}]


def order_audit(year: int) -> dict[str, str]:
    """Have the books of a year audited by the accountants."""
    return {"status": "pending", "ticket": f"audit-{year}"}


FIND_AUDIT = call("tool_search", queries=["have the books audited"], limit=1)


def test_a_found_tool_runs_long_under_its_own_name_alone():
    tools = ToolScoutToolset([LongRunningFunctionTool(order_audit), weigh_parcel])
    bridged = call("tool_call", name="order_audit", arguments={"year": 2025})
    with Provider([FIND_AUDIT, bridged, call("order_audit", year=2025), "Wait."]) as provider:
        events = hear(talk([tools], provider), "Audit 2025.")
    _, refused, pending = last_results(provider)

    assert "by its own name" in refused
    assert "audit-2025" in pending
    assert sum(len(event.long_running_tool_ids or ()) for event in events) == 1


def test_sub_agents_have_sessions_of_their_own():
    move = call("transfer_to_agent", agent_name="porter")
    script = [FIND_PAY, PAY, move, FIND_SCALES, call("weigh_parcel", number="p-1"), "Done."]
    with Provider(script) as provider:
        porter = LlmAgent(
            name="porter",
            model=model_at(provider.base_url),
            description="Knows parcels.",
            tools=[ToolScoutToolset([pay_supplier, weigh_parcel])],
        )
        tools = ToolScoutToolset([pay_supplier, weigh_parcel])
        hear(talk([tools], provider, sub_agents=[porter]), "Pay Ada, weigh p-1.")
    clerk, found = provider.requests[2].tool_names, provider.requests[4].tool_names

    assert "pay_supplier" in clerk and "weigh_parcel" not in clerk
    assert "weigh_parcel" in found and "pay_supplier" not in found


def test_a_slow_call_does_not_undo_a_concurrent_search():
    async def count_stars(night: str) -> str:
        """Count the stars of a night, which takes a while."""
        for _ in range(200):
            await asyncio.sleep(0)
        return "Many."

    stars = call("tool_search", queries=["count the stars of a night"], limit=1)
    both = [call("count_stars", night="today"), FIND_PAY]
    with Provider([stars, both, PAY, "Done.", PAY, "Done again."]) as provider:
        conversation = talk([ToolScoutToolset([count_stars, pay_supplier])], provider)
        hear(conversation, "Count, and pay.")
        hear(conversation, "Pay again.")

    assert provider.requests[-1].tool_names[3:] == ["count_stars", "pay_supplier"]


class Listing(BaseToolset):
    """Lists other tools for every user, as servers with logins do."""

    async def get_tools(self, readonly_context: ReadonlyContext | None = None) -> list[BaseTool]:
        user = readonly_context.user_id if readonly_context else "nobody"

        def read_mail(folder: str) -> str:
            """Read the mail of the user who is logged in."""
            return f"{user} has no mail in {folder}."

        return [FunctionTool(read_mail)]


class Plain(BaseTool):
    """A tool of the provider's own, which declares no function."""

    def __init__(self) -> None:
        super().__init__(name="provider_search", description="Runs at the provider.")


def test_toolsets_inside_are_listed_for_the_user_and_tools_without_a_function_pass():
    find = call("tool_search", queries=["read the mail"], limit=1)
    with Provider([find, call("read_mail", folder="in"), "Done."]) as provider:
        hear(talk([ToolScoutToolset([Listing(), pay_supplier, Plain()])], provider), "Read it.")

    assert "ann has no mail in in." in last_results(provider)[-1]


def test_without_a_conversation_all_tools_are_listed():
    tools = ToolScoutToolset([pay_supplier, Plain(), Listing()])

    listed = asyncio.run(tools.get_tools())

    assert [tool.name for tool in listed] == ["pay_supplier", "provider_search", "read_mail"]


def test_a_keyword_of_the_user_loads_a_tool_once():
    routes = {"pay_supplier": {"keywords": ["pay"]}}
    settings = Settings.from_mapping({"mode": "native", "routes": routes})
    with Provider([FIND_SCALES, "Done."]) as provider:
        tools = ToolScoutToolset([pay_supplier, weigh_parcel], settings=settings)
        hear(talk([tools], provider), "Please pay Ada.")
    first, second = provider.requests

    assert first.tool_names[3:] == ["pay_supplier"]
    assert second.definitions_bytes[:4] == first.definitions_bytes
    assert second.tool_names[3:] == ["pay_supplier", "weigh_parcel"]


def test_a_mode_of_a_providers_own_api_is_refused():
    with pytest.raises(UsageError, match="Use 'native' or 'bridge'"):
        ToolScoutToolset([pay_supplier], settings=Settings(mode=Mode.REFERENCE))


def test_adk_still_has_the_names_on_which_the_adapter_relies():
    assert hasattr(Listing(), "_use_invocation_cache"), "found tools would appear a turn too late"
    assert hasattr(BaseTool, "_get_declaration"), "schemas of tools can no longer be read"
    assert hasattr(BaseTool, "check_require_confirmation"), "confirmation has moved"


def test_the_example_runs_as_the_page_shows_it():
    find = call("tool_search", queries=["refund an order"])
    with Provider([find, call("refund_order", order="A-7"), "A-7 is paid back."]) as provider:
        said = run_example("google_adk_agent.py", provider.base_url)

    assert "A-7 is paid back." in said
    assert is_on_page("google_adk_agent.py", "google_adk.md")
