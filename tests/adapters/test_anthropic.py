"""Anthropic's SDK: the tool runner, a loop of one's own, and a wrapped client."""

import asyncio
import importlib
import itertools
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, cast

import anthropic
import mcp
import pytest
from anthropic import Anthropic, AsyncAnthropic, beta_async_tool, beta_tool
from anthropic.lib.tools.mcp import async_mcp_tool
from mcp.server.mcpserver import MCPServer

from adapters.contract import (
    SPECS,
    Agent,
    Ledger,
    Spec,
    check_async,
    check_concurrent_conversations,
    check_contract,
    check_streaming,
    check_two_conversations_do_not_share,
)
from adapters.provider import Call, Provider, Request, call, hosted
from adapters.surfaces import Mode
from toolscout import Catalog, Permission, Policy, Scout, Settings, Tool
from toolscout.adapters.anthropic import ToolScoutMiddleware, ToolScoutToolset, wrap
from toolscout.errors import InvalidConfig, MissingExtra, UsageError

Json = dict[str, Any]
Kind = Literal["runner", "loop", "wrapped"]
ROOT = Path(__file__).parents[2]
FEW = SPECS[:20]
"""All deeds with invoices and orders."""
ASKED: Any = {"model": "claude-opus-4-6", "max_tokens": 1_000}
REFUNDED = ("refund_invoice", {"invoice_id": "inv-7", "amount": 500})
REFUND = call(REFUNDED[0], **REFUNDED[1])

WAYS: tuple[tuple[Kind, Mode], ...] = (
    ("runner", "reference"),
    ("runner", "bridge"),
    ("loop", "reference"),
    ("wrapped", "reference"),
    ("wrapped", "bridge"),
    ("wrapped", "native"),
)
MAIN_WAYS: tuple[tuple[Kind, Mode], ...] = (
    ("runner", "reference"),
    ("wrapped", "reference"),
    ("wrapped", "bridge"),
)


def each(ways: Sequence[tuple[Kind, Mode]]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize(("kind", "mode"), ways, ids=[f"{k}-{m}" for k, m in ways])


@each(WAYS)
def test_an_agent_keeps_the_contract(kind: Kind, mode: Mode):
    plain = Makers("plain", mode) if (kind, mode) in MAIN_WAYS[:2] else None

    check_contract(Makers(kind, mode), mode=mode, dialect="anthropic", plain=plain)


@each(MAIN_WAYS)
def test_two_conversations_share_nothing(kind: Kind, mode: Mode):
    makers = Makers(kind, mode)

    check_two_conversations_do_not_share(makers, mode=mode, dialect="anthropic")
    check_concurrent_conversations(makers, mode=mode, dialect="anthropic")


@each(MAIN_WAYS)
def test_a_stream_is_sent_what_a_plain_request_is_sent(kind: Kind, mode: Mode):
    check_streaming(Makers(kind, mode), mode=mode, dialect="anthropic")


@each(MAIN_WAYS)
def test_an_asynchronous_client_is_sent_the_same(kind: Kind, mode: Mode):
    check_async(Makers(kind, mode), mode=mode, dialect="anthropic")


def test_the_mode_follows_from_the_address_and_an_override_wins():
    tools = [definition(SPECS[0])]
    own, other = Anthropic(api_key="x"), Anthropic(api_key="x", base_url="https://proxy.test")
    default = Settings()

    assert mode_of(ToolScoutToolset([], own)) == "reference"
    assert mode_of(ToolScoutToolset([], other)) == "bridge"
    assert mode_of(ToolScoutToolset([])) == "bridge"
    assert mode_of(ToolScoutToolset([], other, mode="reference")) == "reference"
    assert mode_of(ToolScoutToolset([], own, settings=default)) == "bridge"
    assert mode_of(ToolScoutToolset([], own, settings=default, mode="native")) == "native"
    with pytest.raises(InvalidConfig, match=r"'magic'.*bridge"):
        ToolScoutToolset([], own, mode="magic")
    with pytest.raises(UsageError, match="without a function"):
        ToolScoutToolset(tools, own)


def test_where_nothing_is_hidden_an_unknown_name_is_answered_without_a_meta_tool():
    toolset = Desk(FEW, Ledger(), "https://proxy.test", "off").toolset
    session = toolset.read_session()
    unknown: Json = {"type": "tool_use", "id": "toolu_1", "name": "fly_to_the_moon", "input": {}}

    [result] = toolset.answer(session, [unknown])
    [same] = asyncio.run(toolset.answer_async(session, [unknown]))

    assert result == same
    assert result["is_error"] is True
    assert "there is no tool 'fly_to_the_moon'" in str(result["content"])
    assert "tool_search" not in str(result["content"])


def test_an_asynchronous_tool_needs_an_asynchronous_client():
    with pytest.raises(UsageError, match="Use AsyncAnthropic"):
        ToolScoutToolset([async_runnable(SPECS[0], Ledger())], Anthropic(api_key="x"))


def test_without_the_sdk_the_extra_is_named(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "anthropic", None)
    monkeypatch.delitem(sys.modules, "toolscout.adapters.anthropic.toolset")

    with pytest.raises(MissingExtra, match=r"toolscout\[anthropic\]"):
        importlib.import_module("toolscout.adapters.anthropic.toolset")


def test_what_a_wrapped_client_needs_of_the_sdk_is_where_it_was():
    seen: list[str] = []

    class Watching(anthropic.Middleware):
        def handle(self, request: Any, call_next: Any) -> Any:
            seen.append(request.options.idempotency_key)
            response = call_next(request)
            assert response.http_response.is_success, "APIResponse.http_response has moved"
            return response

    with Provider(["Hello."]) as provider:
        client = client_of(provider).with_middleware(Watching())
        client.messages.create(**ASKED, messages=[user("Hello")])

    assert seen[0], "APIRequest.options.idempotency_key has moved: failed rounds start again"
    assert callable(anthropic.Stream.raw_events), "Stream.raw_events has moved"
    assert callable(anthropic.AsyncStream.raw_events), "AsyncStream.raw_events has moved"


def test_definitions_keep_what_their_owner_set_and_the_breakpoint_moves():
    cached = definition(SPECS[0]) | {"cache_control": {"type": "ephemeral"}, "strict": True}
    shown = definition(SPECS[1]) | {"defer_loading": False, "input_examples": [{"order_id": "1"}]}
    web = {"type": "web_search_20250305", "name": "web_search"}
    tools = [cached, shown, web, *map(definition, FEW[2:])]
    with Provider(["Done."]) as provider:
        client = wrap(client_of(provider), mode="reference")
        client.messages.create(**ASKED, tools=tools, messages=[user("Hello")])

    sent = provider.requests[0].body["tools"]
    by_name = {tool["name"]: tool for tool in sent}
    names = [tool["name"] for tool in sent]
    assert names[:5] == ["web_search", "tool_search", "tool_describe", "tool_call", SPECS[1].name]
    assert by_name[SPECS[0].name] == definition(SPECS[0]) | {"strict": True, "defer_loading": True}
    assert by_name[SPECS[1].name]["input_examples"] == [{"order_id": "1"}]
    assert [tool["name"] for tool in sent if "cache_control" in tool] == [SPECS[1].name]
    assert by_name["web_search"] == web


def test_a_vanished_tool_does_not_end_a_conversation():
    ledger = Ledger()
    script = [search("refund an invoice"), REFUND, "Done.", search("refund an order"), "Well."]
    with Provider(script) as provider:
        talk = Running(desk_of(provider, ledger, "reference"))
        talk.ask("Refund invoice 7.")
        less = desk_of(provider, ledger, "reference", FEW[1:])
        said = Running(less, talk.messages).ask("And the order?")

    assert said == "Well."
    assert provider.requests[3].references == []
    assert "gone" in str(provider.requests[3].body["messages"])
    assert provider.requests[4].references == ["refund_order"]


def test_the_provider_may_search_itself():
    ledger = Ledger()
    script = [hosted("refund", "refund_invoice", then=REFUND), "Done.", "Again."]
    with Provider(script) as provider:
        client = client_of(provider)
        toolset = ToolScoutToolset(few(ledger), client, hosted="bm25")
        request = toolset.request([user("Refund invoice 7.")])
        runner = client.beta.messages.tool_runner(**ASKED, **request)
        assert text_of(runner.until_done()) == "Done."
        wrapped = wrap(client, hosted="regex")
        wrapped.messages.create(**ASKED, tools=DEFINITIONS, messages=[user("Hello")])

    names = [request.tool_names for request in (provider.requests[0], provider.requests[2])]
    assert ledger.calls == [REFUNDED]
    assert names[0][0] == "tool_search_tool_bm25"
    assert names[1][0] == "tool_search_tool_regex"
    assert "tool_search" not in (*names[0], *names[1])
    assert len(provider.requests[0].deferred_names) == len(FEW)


def test_a_found_tool_of_another_server_is_run_by_its_executor():
    scout = Scout(Catalog(), settings=Settings.from_mapping({"mode": "reference"}))
    scout.catalog.add("mail", [Tool.define("send_email", server="mail", description="Send mail.")])
    scout.connect("mail", lambda tool, arguments: f"{tool.leaf} was sent")
    script = [call("tool_search", queries=["send mail"]), call("mail__send_email"), "Sent."]
    with Provider([*script, *script]) as provider:
        client = client_of(provider)
        toolset = ToolScoutToolset([], client, scout=scout)
        runner = client.beta.messages.tool_runner(**ASKED, **toolset.request([user("Write.")]))
        runner.until_done()
        wrapped = wrap(client, scout=scout)
        reply = wrapped.messages.create(**ASKED, tools=DEFINITIONS, messages=[user("Write.")])

    assert text_of(reply) == "Sent."
    for request in (provider.requests[2], provider.requests[5]):
        assert list(request.tool_results.values())[-1] == "send_email was sent"


def test_a_tool_of_an_mcp_server_is_found_and_run():
    server = MCPServer("weather")

    @server.tool()
    def tell_weather(city: str) -> str:
        """Tell the weather of a city."""
        return f"Rain in {city}."

    async def converse(base_url: str) -> str:
        own: Any = AsyncAnthropic(base_url=base_url, api_key="x")
        async with mcp.Client(server) as upstream, own as client:
            listed = (await upstream.list_tools()).tools
            tools = [async_mcp_tool(tool, cast("Any", upstream)) for tool in listed]
            toolset = ToolScoutToolset(tools, client, mode="reference")
            request = toolset.request([user("Weather in Oslo?")])
            runner = client.beta.messages.tool_runner(**ASKED, **request)
            return text_of(await runner.until_done())

    script = [search("weather of a city"), call("tell_weather", city="Oslo"), "It rains."]
    with Provider(script) as provider:
        assert asyncio.run(converse(provider.root_url)) == "It rains."

    assert list(provider.requests[2].tool_results.values())[-1] == "Rain in Oslo."


def test_images_reach_the_model_and_repairs_are_reported():
    picture = {"type": "base64", "media_type": "image/png", "data": "AAAA"}
    image = {"type": "image", "source": picture}

    def draw_chart(width: int) -> Any:
        """Draw a chart."""
        return [image] if width else ""

    script = [search("draw a chart"), call("draw_chart", width="3"), call("draw_chart", width=0)]
    with Provider([*script, "Drawn."]) as provider:
        client = client_of(provider)
        toolset = ToolScoutToolset([draw_chart], client, mode="reference")
        request = toolset.request([user("Draw.")])
        client.beta.messages.tool_runner(**ASKED, **request, thread=False).until_done()

    messages = provider.requests[3].messages
    drawn, nothing = messages[4]["content"][0], messages[6]["content"][0]
    assert drawn["content"][1] == image
    assert "width" in drawn["content"][0]["text"]
    assert nothing["content"] == "(no content)"


def test_a_call_that_the_host_wants_to_be_asked_about_is_not_made():
    ledger = Ledger()
    policy = Policy(permit=lambda tool, arguments: Permission.ASK)
    scout = Scout(Catalog(), policy=policy, settings=Settings.from_mapping({"mode": "reference"}))
    with Provider([search("refund an invoice"), REFUND, "I have to ask."]) as provider:
        client = client_of(provider)
        toolset = ToolScoutToolset(few(ledger), client, scout=scout)
        runner = client.beta.messages.tool_runner(**ASKED, **toolset.request([user("Refund.")]))
        runner.until_done()

    assert ledger.calls == []
    assert "approval" in list(provider.requests[2].tool_results.values())[-1]


def test_a_wrapped_client_shows_one_message_for_all_rounds_and_what_they_cost():
    script = [search("refund an invoice"), REFUND]
    with Provider([*script, *script]) as provider:
        client = wrap(client_of(provider), mode="reference")
        body: Any = {**ASKED, "tools": DEFINITIONS, "messages": [user("Refund invoice 7.")]}
        reply = client.messages.create(**body)
        with client.messages.stream(**body) as stream:
            kinds = [event.type for event in stream]
            streamed_reply = stream.get_final_message()

    spent = [tokens_of(request) for request in provider.requests]
    assert [block.type for block in reply.content] == [
        "server_tool_use",
        "tool_search_tool_result",
        "tool_use",
    ]
    assert reply.stop_reason == "tool_use"
    assert reply.usage.input_tokens == sum(spent[:2])
    assert streamed_reply.usage.input_tokens == sum(spent[2:])
    assert without_ids(streamed_reply) == without_ids(reply)
    assert (kinds.count("message_start"), kinds.count("message_stop")) == (1, 1)


@pytest.mark.parametrize("mode", ["reference", "bridge"])
def test_a_wrapped_conversation_is_replayed_as_the_model_had_it(mode: str):
    refund = bridged(REFUND) if mode == "bridge" else REFUND
    with Provider([search("refund an invoice"), refund, "Done.", "Bye."]) as provider:
        talk = Wrapped(desk_of(provider, Ledger(), mode))
        talk.ask("Refund invoice 7.")
        later = Wrapped(desk_of(provider, Ledger(), mode), cast("Any", talk.saved()))
        later.ask("Thanks.")

    sent = [request.body["messages"] for request in provider.requests]
    for before, after in itertools.pairwise(sent):
        assert after[: len(before)] == before
    assert [message["role"] for message in sent[-1]] == ["user", "assistant"] * 3 + ["user"]
    made = [made.name for made in provider.requests[-1].history.calls.values()]
    assert made == ["tool_search", refund.name]


@pytest.mark.parametrize("mode", ["reference", "bridge", "native"])
def test_a_search_next_to_a_call_of_the_user_is_answered_with_its_result(mode: str):
    refund = bridged(REFUND) if mode == "bridge" else REFUND
    both = [search("refund an order"), refund]
    ledger = Ledger()
    with Provider([search("refund an invoice"), both, "Done."]) as provider:
        said = Wrapped(desk_of(provider, ledger, mode)).ask("Refund invoice 7.")

    asked, answered = provider.requests[2].messages[-2:]
    assert said == "Done."
    assert [block["type"] for block in asked["content"]] == ["tool_use", "tool_use"]
    assert [block["tool_use_id"] for block in answered["content"]] == [
        block["id"] for block in asked["content"]
    ]
    assert ledger.calls == [REFUNDED]


def test_a_model_that_only_searches_is_paused_and_can_go_on():
    with Provider([search("refund"), search("refunds"), "Nothing."]) as provider:
        client = wrap(client_of(provider), mode="reference", rounds=2)
        messages: list[Any] = [user("Look around.")]
        body: Any = {**ASKED, "tools": DEFINITIONS, "messages": messages}
        paused = client.messages.create(**body)
        messages.append({"role": "assistant", "content": paused.content})
        reply = client.messages.create(**body)

    assert paused.stop_reason == "pause_turn"
    assert text_of(reply) == "Nothing."
    assert provider.requests[2].messages[-1]["role"] == "user"


def test_a_round_that_fails_is_repeated_and_not_those_before_it():
    failures = iter([False, True, False])

    class Flaky(anthropic.Middleware):
        def handle(self, request: Any, call_next: Any) -> Any:
            if next(failures):
                raise anthropic.APIConnectionError(request=cast("Any", None))
            return call_next(request)

    with Provider([search("refund an invoice"), "Done."]) as provider:
        steady = wrap(client_of(provider, max_retries=1), mode="reference")
        client = steady.with_middleware(Flaky())
        reply = client.messages.create(**ASKED, tools=DEFINITIONS, messages=[user("Refund.")])

    kinds = ["server_tool_use", "tool_search_tool_result", "text"]
    assert [block.type for block in reply.content] == kinds
    assert [request.references for request in provider.requests] == [[], ["refund_invoice"]]


def test_an_error_in_the_midst_of_a_stream_reaches_the_reader():
    with Provider([search("refund an invoice")]) as provider:
        client = wrap(client_of(provider), mode="reference")
        body: Any = {**ASKED, "tools": DEFINITIONS, "messages": [user("Refund.")]}
        with (
            pytest.raises(anthropic.APIStatusError, match="after the end of the script"),
            client.messages.stream(**body) as stream,
        ):
            stream.get_final_message()
        provider.faults.clear()


def test_a_tool_that_a_request_insists_on_is_shown_in_it():
    with Provider([REFUND]) as provider:
        client = wrap(client_of(provider), mode="reference")
        chosen = {"type": "tool", "name": "refund_invoice"}
        body: Any = {**ASKED, "tools": DEFINITIONS, "tool_choice": chosen}
        reply = client.messages.create(**body, messages=[user("Refund.")])

    assert reply.stop_reason == "tool_use"
    assert "refund_invoice" not in provider.requests[0].deferred_names


def test_names_that_are_too_long_come_back_as_the_user_knows_them():
    long = definition(SPECS[0]) | {"name": f"{'very_' * 15}long_refund"}
    arguments = {"invoice_id": "inv-7", "amount": 500}
    exposed = Tool.define(long["name"]).name
    script = [search(f"select:{exposed}"), call(exposed, **arguments), "Done."]
    with Provider(script) as provider:
        client = wrap(client_of(provider), mode="reference")
        messages: list[Any] = [user("Refund.")]
        body: Any = {**ASKED, "tools": [long, *DEFINITIONS[1:]], "messages": messages}
        reply = client.messages.create(**body)
        used: Any = reply.content[-1]
        messages.append({"role": "assistant", "content": reply.content})
        result = {"type": "tool_result", "tool_use_id": used.id, "content": "Refunded."}
        messages.append({"role": "user", "content": [result]})
        client.messages.create(**body)

    assert len(exposed) <= 64
    assert used.name == long["name"]
    assert provider.requests[2].messages[-2]["content"][0]["name"] == exposed


def test_the_runner_of_a_wrapped_client_sends_whole_conversations():
    ledger = Ledger()
    tools = few(ledger)
    with Provider([search("refund an invoice"), REFUND, "Done."]) as provider:
        runners = wrap(client_of(provider), mode="reference").beta.messages
        body: Any = {**ASKED, "tools": tools, "messages": [user("Refund invoice 7.")]}
        with pytest.raises(UsageError, match="thread=False"):
            runners.tool_runner(**body).until_done()
        reply = runners.tool_runner(**body, thread=False).until_done()

    assert text_of(reply) == "Done."
    assert ledger.calls == [REFUNDED]


def test_counting_tokens_counts_the_request_that_would_be_sent():
    with Provider() as provider:
        plain = client_of(provider)
        tools: Any = [definition(spec) for spec in SPECS]
        body: Any = {"model": "m", "tools": tools, "messages": [user("Hello")]}
        whole = plain.messages.count_tokens(**body).input_tokens
        hidden = wrap(plain, mode="bridge").messages.count_tokens(**body).input_tokens

    assert hidden < whole / 5


def test_requests_without_tools_are_left_alone():
    with Provider(["Hello."]) as provider:
        wrap(client_of(provider)).messages.create(**ASKED, messages=[user("Hello")])

    assert sorted(provider.requests[0].body) == ["max_tokens", "messages", "model"]


SEARCHED = call("tool_search", queries=["refund an invoice or order"], limit=1)
CALLED = {
    "runner": ("refund_invoice", {"invoice_id": "inv-7", "amount": 500}),
    "wrapped": ("refund_order", {"order": "7"}),
}


@pytest.mark.parametrize("example", CALLED)
def test_an_example_is_short_runs_and_is_on_the_page(example: str):
    path = ROOT / "examples" / f"anthropic_{example}.py"
    code = path.read_text(encoding="utf-8")
    name, arguments = CALLED[example]
    made = call("tool_call", name=name, arguments=arguments)
    with Provider([SEARCHED, made, "It is refunded."]) as provider:
        variables = {"ANTHROPIC_BASE_URL": provider.root_url, "ANTHROPIC_API_KEY": "x"}
        done = subprocess.run(
            [sys.executable, path],
            env={**os.environ, **variables},
            capture_output=True,
            text=True,
            check=False,
        )

    assert (done.stdout.strip(), done.stderr) == ("It is refunded.", "")
    assert "7" in list(provider.requests[2].tool_results.values())[-1]
    assert len(code.splitlines()) <= 30
    assert code in (ROOT / "docs" / "adapters" / "anthropic.md").read_text(encoding="utf-8")


@dataclass(frozen=True)
class Makers:
    """Makes conversations of one kind and mode; `plain` ones show all tools."""

    kind: Literal["runner", "loop", "wrapped", "plain"]
    mode: Mode

    def __call__(
        self, specs: Sequence[Spec], ledger: Ledger, base_url: str, saved: object | None
    ) -> Agent:
        kept = cast("list[Json]", saved or [])
        kinds = {"runner": Running, "loop": Looping, "wrapped": Wrapped, "plain": Looping}
        shown = self.kind == "plain"
        return kinds[self.kind](Desk(specs, ledger, base_url, "off" if shown else self.mode), kept)


class Desk:
    """The clients and tools that the conversations of one agent share."""

    def __init__(self, specs: Sequence[Spec], ledger: Ledger, base_url: str, mode: str) -> None:
        self.specs, self.ledger = specs, ledger
        self.options: Any = {
            "base_url": base_url.removesuffix("/v1"),
            "api_key": "x",
            "max_retries": 0,
        }
        values = {"hiding": "off"} if mode == "off" else {"mode": mode}
        self.settings = Settings.from_mapping(values)
        self.definitions = [definition(spec) for spec in specs]

    @cached_property
    def client(self) -> Any:
        return Anthropic(**self.options)

    @cached_property
    def wrapped(self) -> Any:
        return wrap(self.client, settings=self.settings)

    @cached_property
    def middleware(self) -> ToolScoutMiddleware:
        return ToolScoutMiddleware(scout=self.scout())

    @cached_property
    def toolset(self) -> ToolScoutToolset:
        tools = [runnable(spec, self.ledger) for spec in self.specs]
        return ToolScoutToolset(tools, self.client, settings=self.settings)

    @cached_property
    def async_toolset(self) -> ToolScoutToolset:
        tools = [async_runnable(spec, self.ledger) for spec in self.specs]
        return ToolScoutToolset(tools, scout=self.scout())

    def scout(self) -> Scout:
        """Return one that is made quickly."""
        return Scout(Catalog(), settings=self.settings)

    def async_client(self) -> Any:
        """Return a client for one event loop."""
        return AsyncAnthropic(**self.options)


def search(query: str) -> Call:
    return call("tool_search", queries=[query], limit=1)


def bridged(made: Call) -> Call:
    return call("tool_call", name=made.name, arguments=made.arguments)


def user(text: str) -> Any:
    return {"role": "user", "content": text}


def mode_of(toolset: ToolScoutToolset) -> str:
    return toolset.toolkit.scout.settings.mode


def client_of(provider: Provider, *, max_retries: int = 0) -> Any:
    return Anthropic(base_url=provider.root_url, api_key="x", max_retries=max_retries)


def desk_of(provider: Provider, ledger: Ledger, mode: str, specs: Sequence[Spec] = FEW) -> "Desk":
    return Desk(specs, ledger, provider.base_url, mode)


def few(ledger: Ledger) -> list[Any]:
    return [runnable(spec, ledger) for spec in FEW]


def tokens_of(request: Request) -> int:
    return max(1, len(json.dumps(request.body)) // 4)


def without_ids(reply: Any) -> Json:
    fields = reply.to_dict()
    kept = {key: fields[key] for key in ("content", "stop_reason")}
    return json.loads(re.sub(r"toolu_\d+", "toolu", json.dumps(kept)))


def definition(spec: Spec) -> Json:
    return {"name": spec.name, "description": spec.description, "input_schema": spec.schema}


DEFINITIONS: Any = [definition(spec) for spec in FEW]


def runnable(spec: Spec, ledger: Ledger) -> Any:
    def run(**arguments: Any) -> str:
        return ledger.run(spec.name, arguments)

    schema = cast("Any", spec.schema)
    return beta_tool(run, name=spec.name, description=spec.description, input_schema=schema)


def async_runnable(spec: Spec, ledger: Ledger) -> Any:
    async def run(**arguments: Any) -> str:
        return ledger.run(spec.name, arguments)

    schema = cast("Any", spec.schema)
    return beta_async_tool(run, name=spec.name, description=spec.description, input_schema=schema)


@dataclass
class Talking:
    """A conversation, which is its messages."""

    desk: Desk
    messages: list[Any] = field(default_factory=list[Any])

    def another(self) -> Agent:
        return cast("Any", type(self))(self.desk)

    def saved(self) -> object:
        return json.loads(json.dumps(self.messages, default=lambda block: block.to_dict()))

    def say(self, message: str) -> None:
        self.messages.append({"role": "user", "content": message})

    def keep(self, reply: Any, results: Any) -> None:
        self.messages.append({"role": "assistant", "content": reply.content})
        if results:
            self.messages.append({"role": "user", "content": results})


Asking = Callable[[Any, Any], Any]


def asked(client: Any, params: Any) -> Any:
    return client.messages.create(**ASKED, **params)


def streamed(client: Any, params: Any) -> Any:
    with client.messages.stream(**ASKED, **params) as stream:
        return stream.get_final_message()


class Running(Talking):
    """The SDK's tool runner, over server threads."""

    def ask(self, message: str) -> str:
        self.say(message)
        tools = self.desk.client.beta.messages
        runner = tools.tool_runner(**ASKED, **self.desk.toolset.request(self.messages))
        for reply in runner:
            self.took(runner, reply)
        return text_of(runner.until_done())

    def ask_streaming(self, message: str) -> str:
        self.say(message)
        tools = self.desk.client.beta.messages
        request = self.desk.toolset.request(self.messages)
        runner = tools.tool_runner(**ASKED, **request, stream=True)
        for stream in runner:
            self.took(runner, stream.get_final_message())
        return text_of(runner.until_done())

    async def ask_async(self, message: str) -> str:
        self.say(message)
        request = self.desk.async_toolset.request(self.messages)
        async with self.desk.async_client() as client:
            runner = client.beta.messages.tool_runner(**ASKED, **request)
            async for reply in runner:
                results = await runner.generate_tool_call_response()
                self.keep(reply, results and results["content"])
            return text_of(await runner.until_done())

    def took(self, runner: Any, reply: Any) -> None:
        results = runner.generate_tool_call_response()
        self.keep(reply, results and results["content"])


class Looping(Talking):
    """A loop over `messages.create` that asks the toolset."""

    def ask(self, message: str) -> str:
        return self.loop(message, asked)

    def ask_streaming(self, message: str) -> str:
        return self.loop(message, streamed)

    def loop(self, message: str, ask: Asking) -> str:
        self.say(message)
        toolset = self.desk.toolset
        session = toolset.read_session(self.messages)
        while True:
            reply = ask(self.desk.client, toolset.build_params(self.messages, session))
            self.keep(reply, toolset.answer(session, reply.content))
            if reply.stop_reason != "tool_use":
                return text_of(reply)

    async def ask_async(self, message: str) -> str:
        self.say(message)
        toolset = self.desk.async_toolset
        session = toolset.read_session(self.messages)
        async with self.desk.async_client() as client:
            while True:
                params: Any = toolset.build_params(self.messages, session)
                reply: Any = await client.messages.create(**ASKED, **params)
                self.keep(reply, await toolset.answer_async(session, reply.content))
                if reply.stop_reason != "tool_use":
                    return text_of(reply)


class Wrapped(Talking):
    """A loop that knows nothing of toolscout: it runs what it is asked to run."""

    def ask(self, message: str) -> str:
        return self.loop(message, asked)

    def ask_streaming(self, message: str) -> str:
        return self.loop(message, streamed)

    def loop(self, message: str, ask: Asking) -> str:
        self.say(message)
        while True:
            reply = ask(self.desk.wrapped, self.params())
            self.keep(reply, self.ran(reply))
            if reply.stop_reason != "tool_use":
                return text_of(reply)

    async def ask_async(self, message: str) -> str:
        self.say(message)
        async with self.desk.async_client().with_middleware(self.desk.middleware) as client:
            while True:
                reply: Any = await client.messages.create(**ASKED, **self.params())
                self.keep(reply, self.ran(reply))
                if reply.stop_reason != "tool_use":
                    return text_of(reply)

    def params(self) -> Any:
        return {"messages": self.messages, "tools": self.desk.definitions}

    def ran(self, reply: Any) -> list[Json]:
        calls = [block for block in reply.content if block.type == "tool_use"]
        return [self.result(block) for block in calls]

    def result(self, block: Any) -> Json:
        result = {"type": "tool_result", "tool_use_id": block.id}
        try:
            return {**result, "content": self.desk.ledger.run(block.name, block.input)}
        except Exception as error:
            return {**result, "content": f"error: {error}", "is_error": True}


def text_of(reply: Any) -> str:
    return "".join(block.text for block in reply.content if block.type == "text")
