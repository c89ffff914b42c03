"""smolagents keeps the contract, with its agent that calls tools and the one that writes code."""

# The SDK ships no types.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false

import ast
import json
import pickle
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import pytest
from httpx2 import Limits
from openai import DefaultHttpxClient
from smolagents import CodeAgent, OpenAIModel, Tool, ToolCallingAgent, tool
from smolagents.monitoring import LogLevel

import toolscout
from adapters import contract
from adapters.contract import (
    Ledger,
    Spec,
    Surface,
    check_concurrent_conversations,
    check_contract,
    check_streaming,
    check_two_conversations_do_not_share,
)
from adapters.moves import Action
from adapters.provider import Provider, Request, call, unoffered
from adapters.scripts import is_on_page, run_example
from adapters.surfaces import DialectName
from adapters.surfaces import Mode as ModeName
from toolscout import Catalog, Mode, Scout, Settings
from toolscout.adapters.smolagents import ToolScoutAgent, ToolScoutCodeAgent
from toolscout.errors import UsageError
from toolscout.settings import Hiding

Json = dict[str, Any]
CHAT: DialectName = "openai-chat"
WAYS: tuple[tuple[ModeName, Mode], ...] = (("native", Mode.NATIVE), ("bridge", Mode.BRIDGE))
every_way = pytest.mark.parametrize(("mode", "setting"), WAYS, ids=[mode for mode, _ in WAYS])


def final(text: str) -> Action:
    return call("final_answer", answer=text)


def results_of(request: Request) -> dict[str, str]:
    """Return the results in a request: the SDK tells calls and results in plain messages."""
    results: dict[str, str] = {}
    calls: list[Json] = []
    for message in request.messages:
        text = text_of(message)
        if "Calling tools:" in text and message["role"] == "assistant":
            calls = ast.literal_eval(text.partition("Calling tools:")[2].strip())
        elif message["role"] == "user":
            # Messages of one role in a row are sent as one.
            for part in re.split(r"(?=Observation:\n|Error:\n)", text):
                ids = [made["id"] for made in calls] if part.startswith("Observation") else []
                ids += [f"error {len(results)}"] if part.startswith("Error") else []
                results |= dict.fromkeys(ids, part)
    return results


def text_of(message: Mapping[str, Any]) -> str:
    content = message["content"] or ""
    return content if isinstance(content, str) else "".join(part["text"] for part in content)


SURFACE = Surface(own=("final_answer",), final=final, results=results_of)


def model_at(base_url: str) -> OpenAIModel:
    # Nobody closes the SDK's client, so no connection may outlive a request.
    http = DefaultHttpxClient(limits=Limits(max_keepalive_connections=0))
    client = {"http_client": http, "max_retries": 0}
    return OpenAIModel("gpt-5.5", api_base=base_url, api_key="none", client_kwargs=client)


class Specified(Tool):
    """A tool as the SDK wants it written."""

    skip_forward_signature_validation = True
    output_type = "string"

    def __init__(self, spec: Spec, ledger: Ledger) -> None:
        self.name, self.description = spec.name, spec.description
        self.inputs = spec.schema["properties"]
        self._ledger = ledger
        super().__init__()

    def forward(self, **arguments: Any) -> str:
        return self._ledger.run(self.name, arguments)


@dataclass(frozen=True)
class Makes:
    """Makes agents; without a mode, such as send all tools."""

    mode: Mode | None = Mode.NATIVE

    def __call__(
        self, specs: Sequence[Spec], ledger: Ledger, base_url: str, saved: object | None
    ) -> contract.Agent:
        tools: list[Tool] = [Specified(spec, ledger) for spec in specs]
        kept = cast("Json", saved or {})
        options: Json = {"model": model_at(base_url), "verbosity_level": LogLevel.OFF}
        if self.mode is None:
            return Conversation(ToolCallingAgent(tools=tools, **options))
        settings, session = Settings(mode=self.mode), kept.get("session")
        agent = ToolScoutAgent(tools, settings=settings, session=session, **options)
        if kept:
            agent.memory.steps = pickle.loads(kept["steps"])
        return Conversation(agent)


@dataclass
class Conversation:
    """An agent, which is one conversation; what it keeps is for the host to store."""

    agent: Any

    def ask(self, message: str) -> str:
        return str(self.agent.run(message, reset=False))

    def ask_streaming(self, message: str) -> str:
        self.agent.stream_outputs = True
        steps = list(self.agent.run(message, reset=False, stream=True))
        return str(steps[-1].output)

    def saved(self) -> object:
        steps = pickle.dumps(self.agent.memory.steps)
        session = getattr(self.agent, "session", None)
        kept = json.loads(json.dumps(session.to_json())) if session else None
        return {"session": kept, "steps": steps}


@every_way
def test_an_agent_keeps_the_contract(mode: ModeName, setting: Mode):
    plain = Makes(None) if mode == "native" else None

    check_contract(Makes(setting), mode=mode, dialect=CHAT, surface=SURFACE, plain=plain)


@every_way
def test_streamed_runs_send_the_same(mode: ModeName, setting: Mode):
    check_streaming(Makes(setting), mode=mode, dialect=CHAT, surface=SURFACE)


@every_way
def test_two_agents_share_nothing(mode: ModeName, setting: Mode):
    check_two_conversations_do_not_share(Makes(setting), mode=mode, dialect=CHAT, surface=SURFACE)
    check_concurrent_conversations(Makes(setting), mode=mode, dialect=CHAT, surface=SURFACE)


@tool
def weigh_parcel(number: int, unit: str | None = None) -> str:
    """Weigh a parcel on the scales.

    Args:
        number: Which parcel.
        unit: By default kilos.
    """
    return f"Parcel {number} has 3 {unit or 'kg'}."


@tool
def read_owner() -> str:
    """Tell who the owner of the shop is."""
    return "Ada owns it."


@tool
def stamp_thing(thing: Any) -> Any:
    """Put a stamp on anything at all.

    Args:
        thing: Whatever it is.
    """
    return [thing, "stamped"]


SHOP = [weigh_parcel, read_owner, stamp_thing]
META = ["tool_search", "tool_describe", "tool_call"]
FIND_SCALES = call("tool_search", queries=["weigh a parcel on the scales"], limit=1)
WEIGH = call("weigh_parcel", number=7)
OPTIONS: Json = {"verbosity_level": LogLevel.OFF}


def shop_agent(provider: Provider, **options: Any) -> ToolScoutAgent:
    tools = options.pop("tools", SHOP)
    return ToolScoutAgent(tools, model_at(provider.base_url), **OPTIONS, **options)


def last_result(provider: Provider, at: int = -1) -> str:
    return list(results_of(provider.requests[at]).values())[-1].removeprefix("Observation:\n")


def test_a_new_run_forgets_what_was_found_and_a_continued_one_does_not():
    script = [FIND_SCALES, final("Found."), WEIGH, final("Weighed."), unoffered(WEIGH)]
    with Provider([*script, final("Gone.")]) as provider:
        agent = shop_agent(provider)
        agent.run("Look for it.")
        agent.run("Weigh it.", reset=False)
        agent.run("Weigh it.")

    assert last_result(provider, 3) == "Parcel 7 has 3 kg."
    assert "tool_search" in last_result(provider)
    assert len({request.system_bytes for request in provider.requests}) == 1


def test_an_argument_that_names_a_variable_of_the_state_becomes_its_value():
    find = call("tool_search", queries=["put a stamp on anything"], limit=1)
    with Provider([find, call("stamp_thing", thing="photo"), final("Done.")]) as provider:
        shop_agent(provider).run("Stamp it.", additional_args={"photo": {"pixels": 9}})

    assert last_result(provider) == "[{'pixels': 9}, 'stamped']"


def test_arguments_are_repaired_and_null_is_a_value_where_the_tool_says_so():
    bridged = call("tool_call", name="weigh_parcel", arguments={"number": "7", "unit": None})
    with Provider([FIND_SCALES, bridged, final("Done.")]) as provider:
        shop_agent(provider).run("Weigh it.")

    result = last_result(provider)
    assert result.startswith("(")
    assert result.endswith("Parcel 7 has 3 kg.")


def test_a_name_that_does_not_exist_is_answered_by_the_sdk():
    with Provider([unoffered(call("fly_away")), final("Done.")]) as provider:
        shop_agent(provider).run("Fly.")

    assert "fly_away" in last_result(provider)


def test_a_managed_agent_stays_in_sight_and_has_a_session_of_its_own():
    inner = [FIND_SCALES, WEIGH, final("3 kg.")]
    outer = [call("clerk", task="Weigh."), FIND_SCALES, WEIGH, final("Done.")]
    with Provider({"helpful agent named 'clerk'": inner, "Boss": outer}) as provider:
        clerk = shop_agent(provider, name="clerk", description="Ask the clerk of the scales.")
        boss = shop_agent(provider, managed_agents=[clerk])
        boss.run("Boss: what does it weigh?")

    asked = [request.tool_names for request in provider.requests if "clerk" in request.tool_names]
    assert asked[0] == asked[1] == ["final_answer", "clerk", *META]
    assert asked[2] == ["final_answer", "clerk", *META, "weigh_parcel"]


def test_planning_learns_of_no_hidden_tool():
    plan = "1. Look for scales."
    with Provider([plan, FIND_SCALES, final("Done.")]) as provider:
        shop_agent(provider, planning_interval=9).run("Weigh it.")

    assert b"tool_search" in provider.requests[0].raw
    assert b"read_owner" not in provider.requests[0].raw


def test_tools_of_the_scouts_other_servers_are_found_and_run_by_their_executors():
    far = toolscout.Tool.define("count_stars", server="sky", description="Count the stars.")
    scout = Scout(
        Catalog({"sky": [far]}),
        executors={"sky": lambda tool, arguments: f"{tool.leaf}: 7"},
        settings=Settings(mode=Mode.NATIVE),
    )
    script = [call("tool_search", queries=["count the stars"], limit=1), call("sky__count_stars")]
    with Provider([*script, final("Seven.")]) as provider:
        shop_agent(provider, scout=scout).run("How many?")

    assert last_result(provider) == "count_stars: 7"


# The agent that writes code.


def code(*lines: str) -> str:
    return "\n".join(("Thought: so be it.", "<code>", *lines, "</code>"))


FIND_IN_CODE = code('print(tool_search(queries=["weigh a parcel on the scales"], limit=1))')

WEIGH_IN_CODE = code("final_answer(weigh_parcel(7))")


def code_agent(provider: Provider, **options: Any) -> ToolScoutCodeAgent:
    return ToolScoutCodeAgent(SHOP, model_at(provider.base_url), **OPTIONS, **options)


def said_to(provider: Provider, at: int = -1) -> str:
    return text_of(provider.requests[at].messages[-1])


def test_code_calls_what_was_found_by_name_by_position_and_behind_tool_call():
    calls = code(
        "first = weigh_parcel(7)",
        'second = weigh_parcel(number=8, unit="lb")',
        'third = tool_call(name="weigh_parcel", arguments={"number": "9"})',
        "final_answer([first, second, third])",
    )
    with Provider([FIND_IN_CODE, calls]) as provider:
        weights = code_agent(provider).run("Weigh them.")

    assert weights == ["Parcel 7 has 3 kg.", "Parcel 8 has 3 lb.", "Parcel 9 has 3 kg."]
    assert "weigh_parcel(number*" in said_to(provider, 1)


def test_code_that_searches_and_calls_in_one_step_works():
    both = code('tool_search(["select:weigh_parcel"])', "final_answer(weigh_parcel(number=7))")
    with Provider([both]) as provider:
        assert code_agent(provider).run("Weigh it.") == "Parcel 7 has 3 kg."


@pytest.mark.parametrize(
    ("line", "text"),
    [
        ("read_owner()", "tool_search"),
        ('tool_call(name="read_owner")', "tool_search"),
        ('weigh_parcel(number="many")', "number"),
    ],
)
def test_code_is_stopped_at_a_call_that_may_not_be_made(line: str, text: str):
    with Provider(
        [FIND_IN_CODE, code(f"x = {line}", "print('went on')"), code("final_answer(1)")]
    ) as provider:
        code_agent(provider).run("Do it.")

    assert "ToolRefused" in said_to(provider)
    assert text in said_to(provider)
    assert "went on\n" not in said_to(provider)


def test_where_nothing_is_hidden_neither_agent_reads_of_a_meta_tool():
    plain = Settings(mode=Mode.NATIVE, hiding=Hiding.OFF)
    with Provider([final("Done.")]) as provider:
        shop_agent(provider, settings=plain).run("Weigh it.")

    [request] = provider.requests
    assert "weigh_parcel" in request.tool_names
    assert b"tool_search" not in request.raw

    odd = code('tool_call(name="fly_to_the_moon")')
    with Provider([odd, WEIGH_IN_CODE]) as provider:
        result = code_agent(provider, settings=plain).run("Weigh it.")

    assert result == "Parcel 7 has 3 kg."
    assert b"def weigh_parcel" in provider.requests[0].system_bytes
    assert not any(b"tool_search" in request.raw for request in provider.requests)


def test_the_prompt_of_code_defines_pinned_tools():
    settings = Settings(mode=Mode.NATIVE, pins=("weigh_parcel",))
    with Provider([WEIGH_IN_CODE]) as provider:
        result = code_agent(provider, settings=settings).run("Weigh it.")

    assert result == "Parcel 7 has 3 kg."
    prompt = provider.requests[0].system_bytes
    assert b"def tool_search" in prompt
    assert b"def weigh_parcel" in prompt
    assert b"def read_owner" not in prompt


def test_objects_of_code_go_into_tools_and_come_back_as_they_are():
    steps = code(
        'tool_search(["select:stamp_thing"])',
        "result = stamp_thing(thing={1, 2})",
        "final_answer(len(result[0]) + len(result))",
    )
    with Provider([steps]) as provider:
        assert code_agent(provider).run("Stamp it.") == 4


def test_the_prompt_of_code_never_changes_and_defines_no_hidden_tool():
    with Provider(
        [FIND_IN_CODE, code("final_answer(1)"), code("final_answer(weigh_parcel(7))")]
    ) as provider:
        agent = code_agent(provider)
        agent.run("Find it.")
        again = agent.run("Weigh it.", reset=False)

    assert again == "Parcel 7 has 3 kg."
    [prompt] = {request.system_bytes for request in provider.requests}
    assert b"def tool_search" in prompt
    assert b"weigh_parcel" in prompt  # the listing names it
    assert b"def weigh_parcel" not in prompt


def test_the_session_of_code_goes_on_in_another_agent():
    with Provider(
        [FIND_IN_CODE, code("final_answer(1)"), code("final_answer(weigh_parcel(7))")]
    ) as provider:
        agent = code_agent(provider)
        agent.run("Find it.")
        kept = json.loads(json.dumps(agent.session.to_json()))
        again = code_agent(provider, session=kept).run("Weigh it.", reset=False)

    assert again == "Parcel 7 has 3 kg."


def test_functions_of_the_host_stay_with_those_of_hidden_tools():
    def double(number: int) -> int:
        return number * 2

    given = {"additional_functions": {"double": double}}
    with Provider([code("final_answer(double(4))")]) as provider:
        assert code_agent(provider, executor_kwargs=given).run("Double it.") == 8


def test_code_that_runs_elsewhere_is_refused_with_the_alternative():
    with Provider() as provider, pytest.raises(UsageError, match="executor_type='local'"):
        code_agent(provider, executor_type="docker")


def test_a_mode_that_smolagents_cannot_serve_is_refused_at_once():
    with Provider() as provider, pytest.raises(UsageError, match="Use 'native' or 'bridge'"):
        shop_agent(provider, settings=Settings(mode=Mode.REFERENCE))


def test_the_parts_of_the_sdk_on_which_the_adapter_rests_are_there():
    needed = {
        ToolCallingAgent: ("tools_and_managed_agents", "execute_tool_call"),
        CodeAgent: ("create_python_executor", "initialize_system_prompt"),
    }
    missing = [name for kind, names in needed.items() for name in names if not hasattr(kind, name)]

    assert not missing, f"smolagents has changed; the adapter needs another way for {missing}."


def test_the_example_runs_as_the_page_shows_it():
    script = [call("tool_search", queries=["refund an order"], limit=1)]
    script += [call("refund_order", order="A-7"), final("Order A-7 is refunded.")]
    with Provider(script) as provider:
        said = run_example("smolagents_agent.py", provider.base_url)

    assert said.endswith("Order A-7 is refunded.\n")
    assert provider.requests[1].tool_names == ["final_answer", *META, "refund_order"]
    assert is_on_page("smolagents_agent.py", "smolagents.md")
