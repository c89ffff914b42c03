"""OpenAI's own client, with a loop of one's own and with the client wrapped."""

import asyncio
import inspect
import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from functools import cached_property
from typing import Any, cast

import pytest
from openai import AsyncOpenAI, BadRequestError, OpenAI, Stream, omit
from openai._constants import RAW_RESPONSE_HEADER
from openai.types.chat import ChatCompletion, ChatCompletionMessage
from openai.types.responses import Response

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
from adapters.provider import Provider, call
from adapters.scripts import is_on_page, run_example
from adapters.surfaces import DialectName, Surface
from adapters.surfaces import Mode as ModeName
from adapters.wires.views import tokens
from toolscout import Catalog, Effect, Mode, Scout, Session, Settings, Tool
from toolscout.adapters.openai import ToolScoutChat, ToolScoutResponses, wrap
from toolscout.adapters.openai.client import RAW_HEADER
from toolscout.errors import UsageError
from toolscout.settings import Programs
from toolscout.testing import FakeServer

Json = dict[str, Any]
MODEL = "gpt-5.5"
RAISES = Surface(tool_errors="raised")
"""The user's own loop runs the tools; this one lets them raise."""
WAYS: tuple[tuple[ModeName, Mode, DialectName], ...] = (
    ("definitions", Mode.DEFINITIONS, "openai-responses"),
    ("native", Mode.NATIVE, "openai-responses"),
    ("bridge", Mode.BRIDGE, "openai-responses"),
    ("native", Mode.NATIVE, "openai-chat"),
    ("bridge", Mode.BRIDGE, "openai-chat"),
)


USUAL = (WAYS[0], WAYS[3])


def ways(listed: Sequence[tuple[ModeName, Mode, DialectName]]) -> pytest.MarkDecorator:
    names = [f"{mode}-{dialect}" for mode, _, dialect in listed]
    return pytest.mark.parametrize(("mode", "setting", "dialect"), listed, ids=names)


@ways(WAYS)
def test_a_loop_keeps_the_contract(mode: ModeName, setting: Mode, dialect: DialectName):
    loops = Loops(setting, dialect)
    plain = None if mode == "bridge" else Loops(None, dialect)

    check_contract(loops, mode=mode, dialect=dialect, plain=plain)


@ways(USUAL)
def test_streaming_and_asynchronous_loops_send_the_same(
    mode: ModeName, setting: Mode, dialect: DialectName
):
    loops = Loops(setting, dialect)

    check_streaming(loops, mode=mode, dialect=dialect)
    check_async(loops, mode=mode, dialect=dialect)


@ways(USUAL)
def test_two_conversations_share_nothing(mode: ModeName, setting: Mode, dialect: DialectName):
    loops = Loops(setting, dialect)

    check_two_conversations_do_not_share(loops, mode=mode, dialect=dialect)
    check_concurrent_conversations(loops, mode=mode, dialect=dialect)


WRAPPED = tuple(way for way in WAYS if way[0] != "bridge")


@ways(WRAPPED)
def test_a_wrapped_client_keeps_the_contract(mode: ModeName, setting: Mode, dialect: DialectName):
    wrapped = Wrapped(setting, dialect)

    check_contract(
        wrapped, mode=mode, dialect=dialect, plain=Wrapped(None, dialect), surface=RAISES
    )


@ways(USUAL)
def test_a_wrapped_client_streams_and_is_asynchronous(
    mode: ModeName, setting: Mode, dialect: DialectName
):
    check_streaming(Wrapped(setting, dialect), mode=mode, dialect=dialect)
    check_async(Wrapped(setting, dialect), mode=mode, dialect=dialect)


def definition(spec: Spec) -> Json:
    return {
        "type": "function",
        "name": spec.name,
        "description": spec.description,
        "parameters": spec.schema,
        "strict": False,
    }


@dataclass(frozen=True)
class Loops:
    """Makes loops; without a mode, such as send all tools."""

    mode: Mode | None
    dialect: DialectName
    namespaces: bool = False

    def __call__(
        self, specs: Sequence[Spec], ledger: Ledger, base_url: str, saved: object | None
    ) -> Agent:
        settings = Settings(mode=self.mode) if self.mode else Settings(hiding=cast("Any", "off"))
        given = [definition(spec) for spec in specs]
        if self.dialect == "openai-chat":
            tools = ToolScoutChat(given, run=ledger.run, settings=settings)
        else:
            tools = ToolScoutResponses(
                given, run=ledger.run, settings=settings, namespaces=self.namespaces
            )
        kept = cast("Json", saved or {})
        session = tools.open("loop", kept.get("session"))
        return Loop(tools, session, base_url, kept.get("items", []))


@dataclass
class Loop:
    """One conversation in which the caller keeps the items."""

    tools: ToolScoutResponses | ToolScoutChat
    session: Session
    base_url: str
    items: list[Any] = field(default_factory=list[Any])

    def ask(self, message: str) -> str:
        return self._ask(message, streaming=False)

    def ask_streaming(self, message: str) -> str:
        return self._ask(message, streaming=True)

    async def ask_async(self, message: str) -> str:
        self.items.append({"role": "user", "content": message})
        async with AsyncOpenAI(base_url=self.base_url, api_key="x", max_retries=0) as own:
            client: Any = own
            while True:
                request = self._request()
                if isinstance(self.tools, ToolScoutChat):
                    done = await client.chat.completions.create(**request)
                    answers = await self.tools.answer(self.session, done)
                else:
                    done = await client.responses.create(**request)
                    answers = await self.tools.answer(self.session, done)
                self._keep(done, answers)
                if not answers:
                    return text_of(done)

    def another(self) -> "Loop":
        return Loop(self.tools, self.tools.open("another"), self.base_url)

    def saved(self) -> object:
        return json.loads(json.dumps({"session": self.session.to_json(), "items": self.items}))

    def _ask(self, message: str, *, streaming: bool) -> str:
        self.items.append({"role": "user", "content": message})
        with OpenAI(base_url=self.base_url, api_key="x", max_retries=0) as client:
            while True:
                if isinstance(self.tools, ToolScoutChat):
                    done = self._completion(client, streaming=streaming)
                    answers = self.tools.answer_sync(self.session, done)
                else:
                    done = self._response(client, streaming=streaming)
                    answers = self.tools.answer_sync(self.session, done)
                self._keep(done, answers)
                if not answers:
                    return text_of(done)

    def _completion(self, client: Any, *, streaming: bool) -> ChatCompletion:
        if not streaming:
            return client.chat.completions.create(**self._request())
        with client.chat.completions.stream(**self._request()) as stream:
            return stream.get_final_completion()

    def _response(self, client: Any, *, streaming: bool) -> Response:
        if not streaming:
            return client.responses.create(**self._request())
        with client.responses.stream(**self._request()) as stream:
            return stream.get_final_response()

    def _request(self) -> Json:
        key = "messages" if isinstance(self.tools, ToolScoutChat) else "input"
        tools = self.tools.list_tools(self.session)
        return {"model": MODEL, key: self.items, "tools": tools}

    def _keep(self, done: Response | ChatCompletion, answers: list[Any]) -> None:
        said = done.output if isinstance(done, Response) else [done.choices[0].message]
        self.items += [*(item.to_dict() for item in said), *answers]


@dataclass(frozen=True)
class Wrapped:
    """Makes loops that know nothing of toolscout, with a client that is wrapped."""

    mode: Mode | None
    dialect: DialectName

    def __call__(
        self, specs: Sequence[Spec], ledger: Ledger, base_url: str, saved: object | None
    ) -> Agent:
        tools = [definition(spec) for spec in specs]
        if self.dialect == "openai-chat":
            tools = [
                {"type": "function", "function": {k: v for k, v in tool.items() if k != "type"}}
                for tool in tools
            ]
        settings = Settings(mode=self.mode) if self.mode else None
        items = cast("list[Any]", saved or [])
        return WrappedLoop(tools, ledger, base_url, settings, self.dialect, items)


@dataclass
class WrappedLoop:
    """A loop as people have it."""

    tools: list[Any]
    ledger: Ledger
    base_url: str
    settings: Settings | None
    dialect: DialectName
    items: list[Any] = field(default_factory=list[Any])

    def ask(self, message: str) -> str:
        return self._ask(message, streaming=False)

    def ask_streaming(self, message: str) -> str:
        return self._ask(message, streaming=True)

    def _ask(self, message: str, *, streaming: bool) -> str:
        self.items.append({"role": "user", "content": message})
        with OpenAI(base_url=self.base_url, api_key="x", max_retries=0) as plain:
            client = wrap(plain, settings=self.settings) if self.settings else plain
            while True:
                done = self._sent(client, streaming=streaming)
                if not self._run(done):
                    return text_of(done)

    async def ask_async(self, message: str) -> str:
        self.items.append({"role": "user", "content": message})
        async with AsyncOpenAI(base_url=self.base_url, api_key="x", max_retries=0) as plain:
            client: Any = wrap(plain, settings=self.settings)
            while True:
                done: Any
                if self.dialect == "openai-chat":
                    done = await client.chat.completions.create(**self._request())
                else:
                    done = await client.responses.create(**self._request())
                if not self._run(done):
                    return text_of(done)

    def saved(self) -> object:
        return json.loads(json.dumps(self.items))

    def _request(self) -> Json:
        key = "messages" if self.dialect == "openai-chat" else "input"
        return {"model": MODEL, key: self.items, "tools": self.tools}

    def _sent(self, client: Any, *, streaming: bool) -> Response | ChatCompletion:
        request = self._request()
        if self.dialect == "openai-chat":
            if not streaming:
                return client.chat.completions.create(**request)
            with client.chat.completions.stream(**request) as stream:
                return stream.get_final_completion()
        if not streaming:
            return client.responses.create(**request)
        with client.responses.stream(**request) as stream:
            return stream.get_final_response()

    def _run(self, done: Response | ChatCompletion) -> bool:
        if isinstance(done, Response):
            self.items += [item.to_dict() for item in done.output]
            made = [item for item in done.output if item.type == "function_call"]
            for call in made:
                text = self.ledger.run(call.name, json.loads(call.arguments))
                output = {"type": "function_call_output", "call_id": call.call_id, "output": text}
                self.items.append(output)
            return bool(made)
        message = done.choices[0].message
        self.items.append(message.to_dict())
        for call in message.tool_calls or ():
            assert call.type == "function"
            text = self.ledger.run(call.function.name, json.loads(call.function.arguments))
            self.items.append({"role": "tool", "tool_call_id": call.id, "content": text})
        return bool(message.tool_calls)


def text_of(done: Response | ChatCompletion) -> str:
    if isinstance(done, Response):
        return done.output_text
    return done.choices[0].message.content or ""


# What is special here.

STRICT: Json = {
    "type": "object",
    "properties": {"city": {"type": "string", "description": "Which one."}},
    "required": ["city"],
    "additionalProperties": False,
}
WEATHER: Json = {
    "name": "get_weather",
    "description": "Tell the weather forecast of a city.",
    "parameters": STRICT,
    "strict": True,
}
WEB: Json = {"type": "web_search"}


def shop() -> list[Json]:
    return [definition(spec) for spec in SPECS]


def get_weather(city: str) -> str:
    """Tell the weather forecast of a city."""
    return f"Sunny in {city}."


def send_email(to: str, text: str) -> str:
    """Send an email to somebody."""
    return f"Sent to {to}."


def opened(provider: Provider) -> OpenAI:
    return OpenAI(base_url=provider.base_url, api_key="x", max_retries=0)


@pytest.mark.parametrize(
    ("model", "base_url", "mode"),
    [
        ("gpt-5.4", "", Mode.DEFINITIONS),
        ("gpt-5.4", "https://api.openai.com/v1", Mode.DEFINITIONS),
        ("gpt-5.4-nano", "", Mode.NATIVE),
        ("gpt-4.1", "", Mode.NATIVE),
        ("gpt-5.4", "http://localhost:8000/v1", Mode.NATIVE),
    ],
)
def test_the_mode_follows_from_model_and_address(model: str, base_url: str, mode: Mode):
    tools = ToolScoutResponses([get_weather], model=model, base_url=base_url)

    assert tools.open("a").settings.mode is mode


def test_functions_run_themselves_and_tools_of_a_scout_run_through_it():
    mail = FakeServer("mail", [send_email])
    catalog = Catalog()
    mail.connect(catalog)
    scout = Scout(catalog, executors={"mail": mail}, settings=Settings(mode=Mode.DEFINITIONS))
    tools = ToolScoutResponses([get_weather], scout=scout)
    session = tools.open("a")
    script = [
        [call("tool_search", queries=["weather forecast", "send an email"])],
        [call("get_weather", city="Bonn"), call("mail__send_email", to="ann", text="Hi")],
        "Done.",
    ]
    with Provider(script) as provider, opened(provider) as client:
        items: list[Any] = [{"role": "user", "content": "Go."}]
        while True:
            done = client.responses.create(
                model=MODEL, input=items, tools=tools.list_tools(session)
            )
            answers = tools.answer_sync(session, done)
            items += [*done.output, *answers]
            if not answers:
                break

    assert list(provider.requests[2].tool_results.values())[1:] == [
        "Sunny in Bonn.",
        "Sent to ann.",
    ]
    assert mail.calls == [("send_email", {"to": "ann", "text": "Hi"})]


def test_a_function_gets_a_date_where_its_annotation_promises_one():
    def name_weekday(day: date) -> str:
        """Name the weekday of a date."""
        return day.strftime("%A")

    tools = ToolScoutResponses([name_weekday])
    session = tools.open("a")
    script = [
        [call("tool_search", queries=["weekday of a date"])],
        [call("name_weekday", day="2026-11-17")],
    ]
    with Provider(script) as provider, opened(provider) as client:
        found = client.responses.create(model=MODEL, input="Go.", tools=tools.list_tools(session))
        tools.answer_sync(session, found)
        asked = client.responses.create(model=MODEL, input="Go.", tools=tools.list_tools(session))
        [answer] = tools.answer_sync(session, asked)

    assert answer["output"] == "Tuesday"


def test_definitions_in_namespaces_keep_one_shape_and_calls_find_their_way():
    ledger = Ledger()
    loops = Loops(Mode.DEFINITIONS, "openai-responses", namespaces=True)
    script = [
        call("tool_search", queries=["refund an invoice"]),
        call("refund_invoice", invoice_id="i", amount=1),
        call("tool_search", queries=["zzqqy"]),
        "Done.",
    ]
    with Provider(script) as provider:
        loops(SPECS, ledger, provider.base_url, None).ask("Go.")

    kinds = {
        tool["type"]
        for item in provider.requests[-1].messages
        if item.get("type") == "tool_search_output"
        for tool in item["tools"]
    }
    assert kinds == {"namespace"}
    assert [made[0] for made in ledger.calls] == ["refund_invoice"]
    assert '"namespace"' in provider.requests[-1].raw.decode()


def test_a_session_survives_where_the_provider_keeps_the_conversation():
    ledger = Ledger()
    tools = ToolScoutResponses(shop(), run=ledger.run, settings=Settings(mode=Mode.DEFINITIONS))
    script = [
        call("tool_search", queries=["refund an invoice"], limit=1),
        "Found.",
        call("refund_invoice", invoice_id="i", amount=1),
        "Done.",
    ]
    state: object = None
    previous: Any = None
    with Provider(script) as provider, opened(provider) as client:
        for message in ("Look.", "Go."):
            session = tools.open("a", state)
            items: list[Any] = [{"role": "user", "content": message}]
            while items:
                done = client.responses.create(
                    model=MODEL,
                    input=items,
                    tools=tools.list_tools(session),
                    previous_response_id=previous or omit,
                )
                previous, items = done.id, tools.answer_sync(session, done)
            state = json.loads(json.dumps(session.to_json()))

    assert [made[0] for made in ledger.calls] == ["refund_invoice"]
    assert len({request.tools_bytes for request in provider.requests}) == 1


def test_strict_definitions_and_the_providers_own_tools_stay_as_they_are():
    chat: Json = {"type": "function", "function": WEATHER}
    flat: Json = {"type": "function", **WEATHER}
    settings = Settings(mode=Mode.NATIVE)
    for given, kind, expected in (
        (chat, ToolScoutChat, chat),
        (flat, ToolScoutChat, chat),
        (chat, ToolScoutResponses, flat),
        (flat, ToolScoutResponses, flat),
    ):
        tools = kind([WEB, given], run=lambda name, arguments: "ok", settings=settings)
        session = tools.open("a")
        session.search("weather forecast")
        listed = tools.list_tools(session)

        assert listed[0] == WEB
        assert listed[-1] == expected


def test_a_loop_answers_a_program():
    def count_orders(customer: str) -> int:
        """Count the orders of a customer."""
        return len(customer)

    settings = Settings(programs=Programs(enabled=True), calls_by_name=True)
    function = replace(Tool.from_any(count_orders), effect=Effect.READ)
    scout = Scout(Catalog({"shop": [function]}), settings=settings)
    tools = ToolScoutChat([], scout=scout)
    session = tools.open("conversation-1")
    code = "sum(shop__count_orders(customer=name) for name in ('Ada', 'Grace'))"
    asked = {"name": "tool_run", "arguments": json.dumps({"code": code})}
    message = ChatCompletionMessage.model_validate(
        {
            "role": "assistant",
            "tool_calls": [{"id": "call_1", "type": "function", "function": asked}],
        }
    )

    [answer] = tools.answer_sync(session, message)
    asyncio.run(scout.close())

    listed = [tool["function"]["name"] for tool in tools.list_tools(session)]
    assert listed == ["tool_search", "tool_describe", "tool_call", "tool_run"]
    assert (answer["tool_call_id"], answer["content"]) == ("call_1", "8")


def test_a_definition_without_a_function_needs_something_that_runs_it():
    with pytest.raises(UsageError, match=r"'get_weather'.*Pass `run`"):
        ToolScoutChat([{"type": "function", "function": WEATHER}])


def test_anthropics_mode_is_refused():
    with pytest.raises(UsageError, match="Anthropic"):
        ToolScoutChat([get_weather], settings=Settings(mode=Mode.REFERENCE))
    with pytest.raises(UsageError, match="Anthropic"):
        wrap(OpenAI(api_key="x"), settings=Settings(mode=Mode.REFERENCE))


def chat_shop() -> list[Any]:
    return [
        {"type": "function", "function": {k: v for k, v in tool.items() if k != "type"}}
        for tool in shop()
    ]


def test_a_wrapped_client_is_a_client_and_leaves_the_other_as_it_was():
    with OpenAI(api_key="x") as client:
        wrapped = wrap(client)

        assert isinstance(wrapped, OpenAI)
        for verb in ("create", "parse"):
            assert verb in vars(wrapped.responses)
            assert verb in vars(wrapped.chat.completions)
            assert verb not in vars(client.responses)
            assert verb not in vars(client.chat.completions)
        assert wrapped.models is not None


def test_small_lists_and_requests_without_tools_are_sent_as_they_are():
    tools: list[Any] = [{"type": "function", **WEATHER}]
    with Provider(["Hello.", "Hello."]) as provider, opened(provider) as plain:
        client = wrap(plain)
        client.responses.create(model=MODEL, input="Hi.", tools=tools)
        client.responses.create(model=MODEL, input="Hi.")

    assert provider.requests[0].tool_names == ["get_weather"]
    assert "tools" not in provider.requests[1].body


@pytest.mark.parametrize("streaming", [False, True])
def test_the_usage_of_hidden_rounds_is_summed(streaming: bool):
    script = [call("tool_search", queries=["refund an invoice"]), "Nothing to do."]
    with Provider(script) as provider, opened(provider) as plain:
        client = wrap(plain, settings=Settings(mode=Mode.DEFINITIONS))
        if streaming:
            with client.responses.stream(model=MODEL, input="Hi.", tools=cast("Any", shop())) as s:
                done = s.get_final_response()
        else:
            done = client.responses.create(model=MODEL, input="Hi.", tools=cast("Any", shop()))

    asked = [tokens(request.whole) for request in provider.requests]
    assert done.usage is not None
    assert len(asked) == 2
    assert done.usage.input_tokens == sum(asked)


def test_a_response_that_searches_and_calls_at_once_shows_the_call_and_keeps_the_search():
    ledger = Ledger()
    script = [
        call("tool_search", queries=["refund an invoice"], limit=1),
        [
            call("tool_search", queries=["translate a contract"], limit=1),
            call("refund_invoice", invoice_id="i", amount=1),
        ],
        call("translate_contract", contract_id="c", language="german"),
        "Done.",
    ]
    for mode, dialect in ((Mode.DEFINITIONS, "openai-responses"), (Mode.NATIVE, "openai-chat")):
        with Provider(script) as provider:
            agent = Wrapped(mode, cast("DialectName", dialect))(
                SPECS, ledger, provider.base_url, None
            )
            assert agent.ask("Go.") == "Done."

    assert [name for name, _ in ledger.calls] == ["refund_invoice", "translate_contract"] * 2


@pytest.mark.parametrize("streaming", [False, True])
@pytest.mark.parametrize("mode", [Mode.DEFINITIONS, Mode.NATIVE])
def test_a_wrapped_client_goes_on_from_a_response_that_the_provider_keeps(
    mode: Mode, streaming: bool
):
    ledger = Ledger()
    script = [
        call("tool_search", queries=["refund an invoice"], limit=1),
        [
            call("refund_invoice", invoice_id="i", amount=1),
            call("tool_search", queries=["translate a contract"], limit=1),
        ],
        call("translate_contract", contract_id="c", language="german"),
        "Done.",
    ]
    tools = cast("Any", shop())
    items: list[Any] = [{"role": "user", "content": "Go."}]
    previous: Any = omit
    text = ""
    with Provider(script) as provider, opened(provider) as plain:
        client = wrap(plain, settings=Settings(mode=mode))
        while items:
            request: Json = {"model": MODEL, "input": items, "tools": tools}
            request["previous_response_id"] = previous
            if streaming:
                with cast("Any", client.responses).stream(**request) as stream:
                    done: Any = stream.get_final_response()
            else:
                done = cast("Any", client.responses).create(**request)
            previous, text = done.id, done.output_text
            items = [
                {
                    "type": "function_call_output",
                    "call_id": item.call_id,
                    "output": ledger.run(item.name, json.loads(item.arguments)),
                }
                for item in done.output
                if item.type == "function_call"
            ]

    assert text == "Done."
    assert [name for name, _ in ledger.calls] == ["refund_invoice", "translate_contract"]
    assert all("previous_response_id" in request.body for request in provider.requests[2:])


def test_a_chat_history_that_was_written_by_hand_still_has_the_tools_that_it_calls():
    made = {"name": "refund_invoice", "arguments": '{"invoice_id": "i", "amount": 1}'}
    history: list[Any] = [
        {"role": "user", "content": "Go."},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": "c1", "type": "function", "function": made}],
        },
        {"role": "tool", "tool_call_id": "c1", "content": "ok"},
    ]
    script = [call("refund_invoice", invoice_id="j", amount=2)]
    with Provider(script) as provider, opened(provider) as plain:
        client = wrap(plain)
        done = client.chat.completions.create(model=MODEL, messages=history, tools=chat_shop())

    assert done.choices[0].message.tool_calls is not None
    assert provider.requests[0].tool_names[3:] == ["refund_invoice"]


def test_calls_in_a_handwritten_history_become_calls_that_the_model_could_make():
    history: list[Any] = [
        {"role": "user", "content": "Go."},
        {
            "type": "function_call",
            "call_id": "c1",
            "name": "refund_invoice",
            "arguments": '{"invoice_id": "i", "amount": 1}',
        },
        {"type": "function_call_output", "call_id": "c1", "output": "ok"},
    ]
    with Provider(["Done."]) as provider, opened(provider) as plain:
        client = wrap(plain, settings=Settings(mode=Mode.DEFINITIONS))
        client.responses.create(model=MODEL, input=history, tools=cast("Any", shop()))

    assert provider.requests[0].calls_of("tool_call") == [
        ("c1", {"name": "refund_invoice", "arguments": {"invoice_id": "i", "amount": 1}})
    ]


def test_what_was_found_and_not_called_travels_with_the_message():
    script = [
        call("tool_search", queries=["refund an invoice"], limit=1),
        "I can do that. Shall I?",
        call("refund_invoice", invoice_id="j", amount=2),
    ]
    with Provider(script) as provider, opened(provider) as plain:
        client = wrap(plain)
        history: list[Any] = [{"role": "user", "content": "Can you refund?"}]
        first = client.chat.completions.create(model=MODEL, messages=history, tools=chat_shop())
        history += [first.choices[0].message, {"role": "user", "content": "Yes."}]
        client.chat.completions.create(model=MODEL, messages=history, tools=chat_shop())

    assert provider.requests[1].tools_bytes == provider.requests[2].tools_bytes
    assert b'"toolscout"' not in provider.requests[2].raw


def test_chunks_of_a_stream_say_text_at_once_and_only_the_users_calls():
    script = [
        call("tool_search", queries=["refund an invoice"], limit=1),
        call("refund_invoice", invoice_id="j", amount=2),
    ]
    with Provider(script) as provider, opened(provider) as plain:
        chunks = list(
            wrap(plain).chat.completions.create(
                model=MODEL,
                messages=[{"role": "user", "content": "Go."}],
                tools=chat_shop(),
                stream=True,
                stream_options={"include_usage": True},
            )
        )

    deltas = [chunk.choices[0].delta for chunk in chunks if chunk.choices]
    calls = [made for delta in deltas for made in delta.tool_calls or ()]
    assert len({chunk.id for chunk in chunks}) == 1
    assert [delta.role for delta in deltas].count("assistant") == 1
    assert [made.function.name for made in calls if made.function] == ["refund_invoice"]
    assert chunks[-2].choices[0].finish_reason == "tool_calls"
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.prompt_tokens == sum(tokens(r.whole) for r in provider.requests)


def test_text_of_a_stream_arrives_before_the_stream_ends():
    with Provider(["A text of several words."]) as provider, opened(provider) as plain:
        stream = wrap(plain, settings=Settings(mode=Mode.DEFINITIONS)).responses.create(
            model=MODEL, input="Hi.", tools=cast("Any", shop()), stream=True
        )
        kinds = [event.type for event in stream]

    assert kinds[0] == "response.created"
    assert kinds.count("response.output_text.delta") > 1
    assert kinds[-1] == "response.completed"


def test_a_forced_tool_is_declared_without_a_search():
    script = [call("refund_invoice", invoice_id="j", amount=2)]
    with Provider(script) as provider, opened(provider) as plain:
        done = wrap(plain).chat.completions.create(
            model=MODEL,
            messages=[{"role": "user", "content": "Go."}],
            tools=chat_shop(),
            tool_choice={"type": "function", "function": {"name": "refund_invoice"}},
        )

    assert provider.requests[0].tool_names[-1] == "refund_invoice"
    assert done.choices[0].message.tool_calls is not None


def test_what_a_wrapped_client_cannot_do_it_refuses_with_the_alternative():
    with OpenAI(api_key="x", base_url="http://127.0.0.1:1/v1") as plain:
        client = wrap(plain)
        messages: list[Any] = [{"role": "user", "content": "Go."}]
        with pytest.raises(UsageError, match="client that it wraps"):
            client.chat.completions.with_raw_response.create(
                model=MODEL, messages=messages, tools=chat_shop()
            )
        with pytest.raises(UsageError, match="only strict tools"):
            client.chat.completions.parse(model=MODEL, messages=messages, tools=chat_shop())
        with pytest.raises(UsageError, match="one choice"):
            client.chat.completions.create(model=MODEL, messages=messages, tools=chat_shop(), n=2)


def test_a_model_that_only_searches_is_stopped():
    script = [call("tool_search", queries=["zzqqy"])] * 12
    with (
        Provider(script) as provider,
        opened(provider) as plain,
        pytest.raises(UsageError, match="12 rounds"),
    ):
        wrap(plain).chat.completions.create(
            model=MODEL, messages=[{"role": "user", "content": "Go."}], tools=chat_shop()
        )


def test_parsed_responses_keep_what_the_sdk_read():
    script = [call("tool_search", queries=["weather forecast"]), call("get_weather", city="Bonn")]
    tools: list[Any] = [*shop(), {"type": "function", **WEATHER}]
    with Provider(script) as provider, opened(provider) as plain:
        done = wrap(plain, settings=Settings(mode=Mode.NATIVE)).responses.parse(
            model=MODEL, input="Go.", tools=tools
        )

    made = [item for item in done.output if item.type == "function_call"]
    assert made[0].parsed_arguments == {"city": "Bonn"}


def test_errors_of_the_provider_come_out_as_they_are():
    with Provider() as provider, opened(provider) as plain:
        with pytest.raises(BadRequestError):
            wrap(plain).chat.completions.create(
                model="", messages=[{"role": "user", "content": "Go."}], tools=chat_shop()
            )
        provider.take_refusals()


def test_the_sdk_has_the_private_names_that_the_wrapper_needs():
    message = "openai has changed: look at `wrap` in toolscout.adapters.openai"
    source = inspect.getsource(cast("Any", Stream).__next__)

    assert "self._iterator" in source, message
    assert RAW_HEADER.lower() == RAW_RESPONSE_HEADER.lower(), message
    assert all(isinstance(vars(OpenAI)[n], cached_property) for n in ("chat", "responses")), message


@pytest.mark.parametrize("name", ["openai_responses.py", "openai_chat.py", "openai_wrapped.py"])
def test_an_example_runs_as_it_is_written(name: str):
    script = [
        call("tool_search", queries=["refund an invoice"]),
        call("refund_invoice", invoice_id="inv-7", amount=500),
        "It is refunded.",
    ]
    with Provider(script) as provider:
        said = run_example(name, provider.base_url)

    assert said == "It is refunded.\n"
    assert "Refunded 500" in list(provider.requests[-1].tool_results.values())[-1]
    assert is_on_page(name, "openai.md")


def test_without_openai_the_error_says_what_to_install():
    code = "import sys; sys.modules['openai'] = None; from toolscout.adapters.openai import wrap"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)

    assert "pip install 'toolscout[openai]'" in done.stderr
