"""The contract finds what a careless adapter does wrong, and says where."""

import json
import re
from collections.abc import Callable

import pytest

from adapters import contract
from adapters.contract import Surface
from adapters.loops import Json, Loop, Loops, Refused
from adapters.specs import FAILURE, SPECS, ToolFailure
from adapters.surfaces import DialectName
from adapters.surfaces import Mode as ModeName
from toolscout import Reply, Settings
from toolscout.settings import Mode

SETTINGS = {
    "native": Mode.NATIVE,
    "bridge": Mode.BRIDGE,
    "reference": Mode.REFERENCE,
    "definitions": Mode.DEFINITIONS,
}
DIALECTS: dict[ModeName, DialectName] = {
    "native": "openai-chat",
    "bridge": "openai-chat",
    "reference": "anthropic",
    "definitions": "openai-responses",
}


class Newest(Loop):
    """Puts found tools in front."""

    def tools(self) -> list[Json]:
        tools = super().tools()
        return [*tools[3:], *tools[:3]]


class Growing(Loop):
    """Shows found tools also where nothing may change."""

    def tools(self) -> list[Json]:
        tools = super().tools()
        return [*tools, *tools[:1]] if self.session.loaded else tools


class Rewording(Loop):
    """Says in the prompt what is loaded."""

    def system(self) -> str:
        return f"{super().system()} Loaded: {self.session.loaded}"


class Forgetful(Loop):
    """Saves the messages alone."""

    def saved(self) -> object:
        fresh = self.scout.session("fresh").to_json()
        return {"session": fresh, "messages": self.messages}


class Silent(Loop):
    """Loses the text of replies."""

    def to_message(self, reply: Reply, id_: str) -> Json:
        return {"role": "tool", "tool_call_id": id_, "content": " "}


class Unchecked(Loop):
    """Runs a tool itself, with whatever it was given."""

    async def answered(self, name: str, arguments: object) -> Reply:
        if name != "refund_invoice":
            return await super().answered(name, arguments)
        return Reply(text=self.ledger.run(name, json.loads(str(arguments))))


class Unsure(Loop):
    """Tells the model nothing about a search after a refusal."""

    async def answered(self, name: str, arguments: object) -> Reply:
        reply = await super().answered(name, arguments)
        return Reply(text="Unknown tool.") if reply.code == "not_loaded" else reply


class Shared(Loop):
    """Has one session for all conversations."""

    def another(self) -> Loop:
        return type(self)(self.scout, self.session, self.ledger, self.dialect, self.base_url)


class Bare(Loop):
    """Takes the descriptions out of schemas."""

    def tools(self) -> list[Json]:
        tools = super().tools()
        for tool in tools[3:]:
            tool["function"] = tool["function"] | {"parameters": {"type": "object"}}
        return tools


class Raising(Loop):
    """Lets the exceptions of tools out."""

    async def answered(self, name: str, arguments: object) -> Reply:
        reply = await super().answered(name, arguments)
        if FAILURE in reply.text:
            raise ToolFailure(FAILURE)
        return reply


class Waiting(Loop):
    """Calls it a stream and waits for the whole answer."""

    def ask_streaming(self, message: str) -> str:
        return self.ask(message)


class Polite(Loop):
    """Says more when it is asked synchronously."""

    def ask(self, message: str) -> str:
        return super().ask(f"{message} Please.")


class Undeclared(Loop):
    """Refers to tools that the request does not have."""

    def tools(self) -> list[Json]:
        return [tool for tool in super().tools() if tool["name"] != "refund_invoice"]


Wrong = tuple[type[Loop], ModeName, str]
WRONG: tuple[Wrong, ...] = (
    (Newest, "native", r"Request 2 of 10 \(after the search for refund_invoice\): tools"),
    (Growing, "bridge", "declared 2 times"),
    (Rewording, "bridge", "Request 2 of 10 .*: the system prompt changed"),
    (Rewording, "native", "the system prompt changed"),
    (Forgetful, "native", "does not offer 'refund_invoice'"),
    (Forgetful, "bridge", "expected a result with 'refund_invoice done: inv-8'"),
    (Silent, "bridge", "a result is empty"),
    (Unchecked, "native", "expected a result with 'amount'"),
    (Unsure, "native", "expected a result with 'tool_search', sent 'Unknown tool.'"),
    (Unsure, "bridge", "expected a result with 'tool_search', sent 'Unknown tool.'"),
    (Undeclared, "reference", "'refund_invoice' has no corresponding tool definition"),
)


@pytest.mark.parametrize(
    ("kind", "mode", "pattern"), WRONG, ids=[f"{kind.__name__}-{mode}" for kind, mode, _ in WRONG]
)
def test_a_careless_adapter_breaks_the_contract(kind: type[Loop], mode: ModeName, pattern: str):
    loops = Loops(SETTINGS[mode], DIALECTS[mode], kind)

    message = failure(lambda: contract.check_contract(loops, mode=mode, dialect=DIALECTS[mode]))

    expect_match(message, pattern)


@pytest.mark.parametrize("mode", DIALECTS)
def test_a_gate_that_lets_names_through_breaks_the_contract(mode: ModeName):
    settings = Settings(mode=SETTINGS[mode], calls_by_name=True)
    loops = Loops(None, DIALECTS[mode], settings=settings)

    message = failure(lambda: contract.check_contract(loops, mode=mode, dialect=DIALECTS[mode]))

    expect_match(message, "after the call of restart_database, which was never found")


@pytest.mark.parametrize("mode", DIALECTS)
def test_a_session_for_all_conversations_breaks_the_contract(mode: ModeName):
    loops, dialect = Loops(SETTINGS[mode], DIALECTS[mode], Shared), DIALECTS[mode]

    one_by_one = failure(
        lambda: contract.check_two_conversations_do_not_share(loops, mode=mode, dialect=dialect)
    )
    at_once = failure(
        lambda: contract.check_concurrent_conversations(loops, mode=mode, dialect=dialect)
    )

    assert one_by_one
    assert at_once


def test_an_sdk_may_let_the_exception_of_a_tool_out():
    surface = Surface(tool_errors="raised")
    usual, raising = (Loops(Mode.BRIDGE, "openai-chat", kind) for kind in (Loop, Raising))

    contract.check_contract(raising, mode="bridge", dialect="openai-chat", surface=surface)
    message = failure(
        lambda: contract.check_contract(
            usual, mode="bridge", dialect="openai-chat", surface=surface
        )
    )

    expect_match(message, "expected to let it out and did not|end of the script")


def test_tools_that_are_all_shown_break_the_contract():
    loops = Loops(None, "anthropic")

    message = failure(lambda: contract.check_contract(loops, mode="native", dialect="anthropic"))

    expect_match(message, "does not offer 'tool_search'")


def test_another_definition_than_the_sdk_sends_breaks_the_contract():
    loops, plain = Loops(Mode.NATIVE, "openai-chat", Bare), Loops(None, "openai-chat")

    message = failure(
        lambda: contract.check_contract(loops, mode="native", dialect="openai-chat", plain=plain)
    )

    expect_match(message, "The definition of 'audit_gift_card': JSON")


def test_another_number_of_definitions_breaks_the_contract():
    loops, surface = Loops(Mode.BRIDGE, "openai-chat"), Surface(declared=4)

    message = failure(
        lambda: contract.check_contract(
            loops, mode="bridge", dialect="openai-chat", surface=surface
        )
    )

    expect_match(message, r"number of definitions\n  expected: 4\n  sent: 3")


def test_an_asynchronous_loop_that_sends_another_history_breaks_the_contract():
    loops = Loops(Mode.BRIDGE, "openai-chat", Polite)

    message = failure(lambda: contract.check_async(loops, mode="bridge", dialect="openai-chat"))

    expect_match(message, "ask_async against ask, Request 1 of 10 .*: history")


def test_asking_for_no_stream_breaks_the_contract():
    loops = Loops(Mode.BRIDGE, "openai-chat", Waiting)

    message = failure(lambda: contract.check_streaming(loops, mode="bridge", dialect="openai-chat"))

    expect_match(message, "Request 1 of 10 .*: ask_streaming asked for no stream")


def test_a_missing_way_to_ask_is_named():
    loops = Loops(Mode.BRIDGE, "openai-chat")

    message = failure(lambda: contract.check_streaming(loops, mode="bridge", dialect="openai-chat"))

    expect_match(message, "The agent has no 'ask_streaming'")


def test_the_specs_are_three_hundred_tools_with_described_parameters():
    assert len({spec.name for spec in SPECS}) == 300
    for spec in SPECS:
        properties = spec.schema["properties"]
        assert 1 <= len(properties) <= 3
        assert all(schema["description"] for schema in properties.values())
        assert list(properties) == spec.schema["required"]


def failure(check: Callable[[], None]) -> str:
    """Return why a check fails, with what the provider noted."""
    with pytest.raises((AssertionError, Refused)) as caught:
        check()
    notes = getattr(caught.value, "__notes__", [])
    return "\n".join((str(caught.value), *notes))


def expect_match(message: str, pattern: str) -> None:
    assert re.search(pattern, message), message
