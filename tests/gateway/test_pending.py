"""Questions that servers ask while they work, on their way to clients of both protocol eras."""

import asyncio
import json
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Generator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import mcp_types as types
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mcp.client import Client
from mcp.client.streamable_http import streamable_http_client
from pydantic import FileUrl

from foreign import NODE
from gateway.fleet import Keeper, always, client_of, keep_open, known, text_of
from serving import DEADLINE_SECONDS, served
from toolscout.config.file import Config
from toolscout.config.gateway import TokenConfig
from toolscout.config.servers import ServerConfig, Transport
from toolscout.errors import InvalidRequest
from toolscout.gateway.gateway import Gateway
from toolscout.gateway.pending import CallKey, PendingCalls
from toolscout.gateway.server import build_server
from toolscout.schemas import Json
from toolscout.servers.connection import Relay
from toolscout.sessions.texts import CALL_ALONE
from toolscout.stores import MemoryStore

EVERYTHING = (
    Path(__file__).parents[2]
    / ".npm-servers/node_modules/@modelcontextprotocol/server-everything/dist/index.js"
)
needs_node = pytest.mark.skipif(
    not NODE or not EVERYTHING.exists(), reason="needs Node and `make .npm-servers/.installed`"
)
both_eras = pytest.mark.parametrize("mode", ["auto", "legacy"])

ROOTS = types.ListRootsResult(roots=[types.Root(uri=FileUrl("file:///notes"), name="notes")])
NAMED = types.ElicitResult(action="accept", content={"name": "Ada"})
SAMPLED = types.CreateMessageResult(
    role="assistant", content=types.TextContent(type="text", text="a haiku"), model="quill"
)
FORM = types.ElicitRequestFormParams(
    message="Who are you?",
    requested_schema={"type": "object", "properties": {"name": {"type": "string"}}},
)
PAGE = types.ElicitRequestURLParams(
    message="Log in.", url="https://example.com/login", elicitation_id="1"
)
ABLE = types.ClientCapabilities(
    sampling=types.SamplingCapability(),
    elicitation=types.ElicitationCapability(form=types.FormElicitationCapability()),
    roots=types.RootsCapability(),
)
ORIGIN = CallKey(session="ann", tool="notes__add", arguments={"text": "milk"})
REFUSED = (
    "Not called: none of your calls is waiting for this answer. "
    "Make the call again, without a request state."
)


# Suspended calls by themselves.


class Listener:
    """A client's open request; writes down the progress that it hears."""

    def __init__(self) -> None:
        self.steps: list[float] = []

    async def report_progress(
        self, progress: float, total: float | None, message: str | None
    ) -> None:
        self.steps.append(progress)

    async def log(self, params: types.LoggingMessageNotificationParams) -> None:
        raise AssertionError

    async def ask(self, request: types.InputRequest) -> Any:
        raise AssertionError


class Server:
    """Asks for roots, and gives them as its result; tells when its work was cancelled."""

    def __init__(self) -> None:
        self.cancelled = asyncio.Event()
        self.begun = 0

    async def __call__(self, relay: Relay) -> Json:
        self.begun += 1
        try:
            return {"given": await relay.ask(types.ListRootsRequest())}
        except asyncio.CancelledError:
            self.cancelled.set()
            raise


def run(conversation: Callable[[], Coroutine[Any, Any, None]]) -> None:
    async def limited() -> None:
        async with asyncio.timeout(DEADLINE_SECONDS):
            await conversation()

    asyncio.run(limited())


async def asked(
    pending_calls: PendingCalls, work: Any, origin: CallKey = ORIGIN, **given_: Any
) -> Json:
    """Begin a call or go on with one."""
    options: Json = {"relay": Listener(), "abilities": ABLE, "state": None, "answers": None}
    options = {**options, "seconds": 60, **given_}
    return await pending_calls.run(origin, work, **options)


def test_a_call_without_questions_is_answered_at_once():
    async def conversation() -> None:
        pending_calls = PendingCalls()

        async def work(relay: Relay) -> Json:
            return {"content": []}

        assert await asked(pending_calls, work) == {"content": []}
        assert len(pending_calls.waiting) == 0

    run(conversation)


def test_a_question_suspends_the_call_and_its_answer_goes_to_the_server():
    async def conversation() -> None:
        pending_calls, server = PendingCalls(), Server()
        first = await asked(pending_calls, server)
        state = first.pop("requestState")
        last = await asked(pending_calls, server, state=state, answers={"question-1": ROOTS})

        assert first == {
            "resultType": "input_required",
            "inputRequests": {"question-1": {"method": "roots/list"}},
        }
        assert last == {"given": ROOTS}
        assert server.begun == 1
        assert len(pending_calls.waiting) == 0

    run(conversation)


def test_a_repeated_call_without_the_answer_is_asked_again():
    async def conversation() -> None:
        pending_calls, server = PendingCalls(), Server()
        first = await asked(pending_calls, server)
        again = await asked(pending_calls, server, state=first["requestState"])
        answers = {"question-1": ROOTS}
        last = await asked(pending_calls, server, state=again["requestState"], answers=answers)

        assert again["inputRequests"] == first["inputRequests"]
        assert last == {"given": ROOTS}

    run(conversation)


@given(st.lists(st.integers(1, 3), max_size=4), st.booleans())
def test_every_question_gets_its_own_answer(rounds: list[int], one_by_one: bool):
    """Questions come one after another or together, and are answered together or singly."""

    async def work(relay: Relay) -> Json:
        found: list[Any] = []
        for count in rounds:
            found += await asyncio.gather(*(_elicited(relay, i) for i in range(count)))
        return {"found": found}

    async def conversation() -> None:
        pending_calls = PendingCalls()
        result = await asked(pending_calls, work)
        while result.get("resultType") == "input_required":
            requests = list(result["inputRequests"].items())
            answers = {
                key: types.ElicitResult(
                    action="accept", content={"n": request["params"]["message"]}
                )
                for key, request in (requests[:1] if one_by_one else requests)
            }
            result = await asked(pending_calls, work, state=result["requestState"], answers=answers)

        assert result == {"found": [str(i) for count in rounds for i in range(count)]}
        assert len(pending_calls.waiting) == 0

    run(conversation)


async def _elicited(relay: Relay, number: int) -> object:
    question = types.ElicitRequestFormParams(message=str(number), requested_schema={})
    return (await relay.ask(types.ElicitRequest(params=question))).content["n"]


@pytest.mark.parametrize(
    "other",
    [
        CallKey(session="bob", tool="notes__add", arguments={"text": "milk"}),
        CallKey(session="ann", tool="notes__remove", arguments={"text": "milk"}),
        CallKey(session="ann", tool="notes__add", arguments={"text": "wine"}),
    ],
    ids=["session", "tool", "arguments"],
)
@pytest.mark.requirement("R69")
def test_a_state_is_good_for_its_own_call_only(other: CallKey):
    """R69"""

    async def conversation() -> None:
        pending_calls, server = PendingCalls(), Server()
        state = (await asked(pending_calls, server))["requestState"]
        answers = {"question-1": ROOTS}
        with pytest.raises(InvalidRequest) as refused:
            await asked(pending_calls, server, other, state=state, answers=answers)
        rightful = await asked(pending_calls, server, state=state, answers=answers)

        assert str(refused.value) == REFUSED
        assert rightful == {"given": ROOTS}

    run(conversation)


def test_a_state_is_good_once():
    async def conversation() -> None:
        pending_calls, server = PendingCalls(), Server()
        state = (await asked(pending_calls, server))["requestState"]
        await asked(pending_calls, server, state=state, answers={"question-1": ROOTS})
        with pytest.raises(InvalidRequest):
            await asked(pending_calls, server, state=state, answers={"question-1": ROOTS})

        assert server.begun == 1

    run(conversation)


def test_a_suspended_call_is_cancelled_when_its_time_is_over():
    async def conversation() -> None:
        pending_calls, server = PendingCalls(), Server()
        first = await asked(pending_calls, server, seconds=0)
        await server.cancelled.wait()
        with pytest.raises(InvalidRequest) as refused:
            await asked(pending_calls, server, state=first["requestState"])

        assert str(refused.value) == REFUSED
        assert len(pending_calls.waiting) == 0

    run(conversation)


def test_the_oldest_is_cancelled_when_too_many_are_suspended(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("toolscout.gateway.pending.PENDING_CALLS_MAX", 2)

    async def conversation() -> None:
        pending_calls, servers = PendingCalls(), [Server() for _ in range(3)]
        states = [(await asked(pending_calls, server))["requestState"] for server in servers]
        await servers[0].cancelled.wait()
        with pytest.raises(InvalidRequest):
            await asked(pending_calls, servers[0], state=states[0])
        answers = {"question-1": ROOTS}
        kept = [await asked(pending_calls, Server(), state=s, answers=answers) for s in states[1:]]

        assert kept == [{"given": ROOTS}] * 2

    run(conversation)


def test_what_is_suspended_is_cancelled_at_the_end():
    async def conversation() -> None:
        pending_calls, servers = PendingCalls(), [Server(), Server()]
        for server in servers:
            await asked(pending_calls, server)
        await pending_calls.close()

        assert all(server.cancelled.is_set() for server in servers)
        assert len(pending_calls.waiting) == 0

    run(conversation)


def test_a_client_that_cancels_its_request_cancels_the_call():
    async def conversation() -> None:
        begun, cancelled = asyncio.Event(), asyncio.Event()

        async def work(relay: Relay) -> Json:
            begun.set()
            try:
                await asyncio.Event().wait()
            finally:
                cancelled.set()
            return {}

        calling = asyncio.create_task(asked(PendingCalls(), work))
        await begun.wait()
        calling.cancel()
        await cancelled.wait()
        with pytest.raises(asyncio.CancelledError):
            await calling

    run(conversation)


def test_a_result_that_came_without_the_answer_is_kept_for_the_client():
    async def conversation() -> None:
        pending_calls, ended = PendingCalls(), asyncio.Event()

        async def work(relay: Relay) -> Json:
            question = asyncio.ensure_future(relay.ask(types.ListRootsRequest()))
            await asyncio.wait((question,), timeout=0)
            ended.set()
            return {"given": None}

        first = await asked(pending_calls, work)
        await ended.wait()
        last = await asked(pending_calls, work, state=first["requestState"])

        assert last == {"given": None}

    run(conversation)


def test_a_call_that_fails_after_the_answer_fails_for_the_client():
    async def conversation() -> None:
        async def work(relay: Relay) -> Json:
            await relay.ask(types.ListRootsRequest())
            raise LookupError("no such note")

        pending_calls = PendingCalls()
        first = await asked(pending_calls, work)
        with pytest.raises(LookupError, match="no such note"):
            answers = {"question-1": ROOTS}
            await asked(pending_calls, work, state=first["requestState"], answers=answers)

    run(conversation)


def test_progress_is_heard_by_the_request_that_is_open():
    async def conversation() -> None:
        async def work(relay: Relay) -> Json:
            await relay.report_progress(1, 3, None)
            await relay.ask(types.ListRootsRequest())
            await relay.report_progress(2, 3, None)
            return {}

        pending_calls, early, late = PendingCalls(), Listener(), Listener()
        first = await asked(pending_calls, work, relay=early)
        answers = {"question-1": ROOTS}
        state = first["requestState"]
        await asked(pending_calls, work, relay=late, state=state, answers=answers)

        assert (early.steps, late.steps) == ([1], [2])

    run(conversation)


Question = Callable[[Relay], Awaitable[Any]]


def _rooted(relay: Relay) -> Awaitable[Any]:
    return relay.ask(types.ListRootsRequest())


def _sampled(**more: Any) -> Question:
    params = types.CreateMessageRequestParams(messages=[], max_tokens=1, **more)
    return lambda relay: relay.ask(types.CreateMessageRequest(params=params))


def _filled_in(params: types.ElicitRequestParams) -> Question:
    return lambda relay: relay.ask(types.ElicitRequest(params=params))


NOTHING = types.ClientCapabilities()
PAGES_ONLY = types.ClientCapabilities(
    elicitation=types.ElicitationCapability(url=types.UrlElicitationCapability())
)


@pytest.mark.parametrize(
    ("question", "abilities", "missing"),
    [
        (_rooted, None, "roots"),
        (_rooted, NOTHING, "roots"),
        (_sampled(), NOTHING, "sampling"),
        (_sampled(tools=[]), ABLE, "tools in sampling"),
        (_filled_in(FORM), NOTHING, "elicitation"),
        (_filled_in(FORM), PAGES_ONLY, "elicitation by form"),
        (_filled_in(PAGE), ABLE, "elicitation by URL"),
    ],
)
def test_a_server_learns_what_the_client_cannot_do(
    question: Question, abilities: types.ClientCapabilities | None, missing: str
):
    async def conversation() -> None:
        async def work(relay: Relay) -> Json:
            return {"given": await question(relay)}

        told = await asked(PendingCalls(), work, abilities=abilities)

        assert told["given"] == types.ErrorData(
            code=types.METHOD_NOT_FOUND, message=f"The client does not support {missing}."
        )

    run(conversation)


def test_an_answer_of_another_kind_is_an_error_to_the_server():
    async def conversation() -> None:
        pending_calls, server = PendingCalls(), Server()
        first = await asked(pending_calls, server)
        answers = {"question-1": NAMED}
        last = await asked(pending_calls, server, state=first["requestState"], answers=answers)

        assert last["given"].code == types.INVALID_PARAMS

    run(conversation)


# Through the gateway, to servers that nobody here wrote.


async def sample(context: Any, params: Any) -> types.CreateMessageResult:
    return SAMPLED


async def elicit(context: Any, params: Any) -> types.ElicitResult:
    return NAMED


async def list_roots(context: Any) -> types.ListRootsResult:
    return ROOTS


Conversation = Callable[[Client], Coroutine[Any, Any, None]]
ANSWERS: dict[str, Any] = {
    "sampling_callback": sample,
    "elicitation_callback": elicit,
    "list_roots_callback": list_roots,
}


ASKING = """
from mcp.server.mcpserver import Context, MCPServer
from mcp_types import ElicitRequest, ElicitRequestFormParams, InputRequiredResult

server = MCPServer("asking")
FORM = {"type": "object", "properties": {"name": {"type": "string"}}}


@server.tool()
def greet(word: str, context: Context) -> str | InputRequiredResult:
    "Greet whoever is there."
    if context.input_responses is None:
        params = ElicitRequestFormParams(message="Who are you?", requested_schema=FORM)
        asked = {"who": ElicitRequest(params=params)}
        return InputRequiredResult(input_requests=asked, request_state="at the door")
    name = context.input_responses["who"].content["name"]
    return f"{word}, {name}, {context.request_state}."


server.run()
"""


@dataclass(frozen=True, slots=True)
class Gateways:
    """Gateways that tests share: each process has one client, of an era and with its answers."""

    keeper: Keeper
    folder: Path

    def talk(self, mode: str, conversation: Conversation, *, answers: bool = True) -> None:
        """Hold a conversation with the client of an era, which answers questions or cannot."""
        client = self.keeper.open((mode, answers), lambda: self._open(mode, answers))
        self.keeper.run(lambda: conversation(client))

    def talk_here(
        self, conversation: Callable[[Gateway, Client], Coroutine[Any, Any, None]]
    ) -> None:
        """Hold a conversation with a gateway in this process."""
        gateway, client = self.keeper.open("here", gateway_and_client)

        async def converse() -> None:
            try:
                await conversation(gateway, client)
            finally:
                # While calls are suspended, nobody knows which one a later question belongs to.
                await gateway.pending_calls.close()

        self.keeper.run(converse)

    def _open(self, mode: str, answers: bool) -> AbstractAsyncContextManager[Client]:
        script, place = self.folder / "asking.py", self.folder / f"{mode}-{answers}"
        script.write_text(ASKING, encoding="utf-8")
        commands = {"asking": (sys.executable, script)} if answers else {}
        if NODE and EVERYTHING.exists():
            commands["all"] = (NODE, EVERYTHING)
        lines = [
            f"[servers.{name}]\ncommand = {json.dumps(command)}\nargs = [{json.dumps(str(path))}]"
            for name, (command, path) in commands.items()
        ]
        lines += ["[gateway]", f"cache = {json.dumps(str(place.with_suffix('.db')))}"]
        config = place.with_suffix(".toml")
        config.write_text("\n".join(lines) + "\n", encoding="utf-8")
        return client_of(config, mode=mode, **(ANSWERS if answers else {}))


@pytest.fixture(scope="module")
def gateways(tmp_path_factory: pytest.TempPathFactory) -> Generator[Gateways]:
    with keep_open() as keeper:
        yield Gateways(keeper, tmp_path_factory.mktemp("pending"))


async def called(client: Client, name: str, **arguments: Any) -> str:
    await known(client, name)
    result = await client.call_tool("tool_call", {"name": name, "arguments": arguments})
    return text_of(result)


@needs_node
@both_eras
def test_a_server_has_the_clients_model_write_something(mode: str, gateways: Gateways):
    async def conversation(client: Client) -> None:
        told = await called(client, "all__trigger-sampling-request", prompt="Write.")

        assert "a haiku" in told
        assert "quill" in told

    gateways.talk(mode, conversation)


@needs_node
@both_eras
def test_a_server_asks_the_clients_user(mode: str, gateways: Gateways):
    async def conversation(client: Client) -> None:
        assert "Name: Ada" in await called(client, "all__trigger-elicitation-request")

    gateways.talk(mode, conversation)


@needs_node
@both_eras
def test_a_server_asks_for_the_clients_roots(mode: str, gateways: Gateways):
    async def conversation(client: Client) -> None:
        assert "file:///notes" in await called(client, "all__get-roots-list")

    gateways.talk(mode, conversation)


@needs_node
@both_eras
def test_a_client_that_declared_nothing_is_not_asked(mode: str, gateways: Gateways):
    async def conversation(client: Client) -> None:
        told = await called(client, "all__trigger-sampling-request", prompt="Write.")

        assert "The client does not support sampling." in told

    gateways.talk(mode, conversation, answers=False)


WRITE: Json = {"name": "all__trigger-sampling-request", "arguments": {"prompt": "Write."}}


def server() -> ServerConfig:
    return ServerConfig(
        name="all", transport=Transport.STDIO, command=NODE, args=(str(EVERYTHING),)
    )


@asynccontextmanager
async def gateway_and_client() -> AsyncGenerator[tuple[Gateway, Client]]:
    """A gateway in this process, and a client of the new era."""
    async with Gateway(Config(servers=(server(),)), MemoryStore()) as gateway:
        session = gateway.open_session("ann")
        async with Client(build_server(gateway, always(session)), **ANSWERS) as client:
            await known(client, "all__echo")
            yield gateway, client


async def questioned(client: Client, arguments: Json) -> types.InputRequiredResult:
    """Call a tool that asks, and leave the question open."""
    result = await client.session.call_tool("tool_call", arguments, allow_input_required=True)
    assert isinstance(result, types.InputRequiredResult)
    return result


@needs_node
def test_a_call_that_was_given_up_is_to_be_made_again(gateways: Gateways):
    async def conversation(gateway: Gateway, client: Client) -> None:
        first = await questioned(client, WRITE)
        await gateway.pending_calls.close()
        late = await client.call_tool("tool_call", WRITE, request_state=first.request_state)
        anew = await client.call_tool("tool_call", WRITE)

        assert late.is_error
        assert text_of(late) == REFUSED
        assert "a haiku" in text_of(anew)

    gateways.talk_here(conversation)


@needs_node
def test_a_gateway_that_stops_gives_up_what_is_suspended():
    async def conversation() -> None:
        async with gateway_and_client() as (gateway, client):
            await questioned(client, WRITE)
            before = len(gateway.pending_calls.waiting)

        assert (before, len(gateway.pending_calls.waiting)) == (1, 0)

    run(conversation)


@needs_node
def test_a_question_is_never_cut_or_paged(gateways: Gateways):
    async def conversation(gateway: Gateway, client: Client) -> None:
        prompt = "write " * 40_000
        first = await questioned(client, {**WRITE, "arguments": {"prompt": prompt}})

        assert prompt in first.model_dump_json()

    gateways.talk_here(conversation)


FITTING: dict[str, types.InputResponse] = {
    "sampling/createMessage": SAMPLED,
    "roots/list": ROOTS,
}
ANN, BOB = "open sesame, said Ann", "swordfish, said Bob"


@asynccontextmanager
async def over_http(url: str, token: str) -> AsyncGenerator[Client]:
    headers = {"Authorization": f"Bearer {token}"}
    async with (
        httpx2.AsyncClient(headers=headers, timeout=DEADLINE_SECONDS) as http,
        Client(streamable_http_client(f"{url}/mcp", http_client=http), **ANSWERS) as client,
    ):
        yield client


@needs_node
@pytest.mark.requirement("R69")
def test_the_state_of_another_client_is_refused():
    """R69"""
    tokens = {"ann": TokenConfig(token=ANN), "bob": TokenConfig(token=BOB)}

    async def conversation(url: str) -> None:
        async with over_http(url, ANN) as ann, over_http(url, BOB) as bob:
            await known(ann, "all__trigger-sampling-request")
            first = await ann.session.call_tool("tool_call", WRITE, allow_input_required=True)
            assert isinstance(first, types.InputRequiredResult)
            assert first.input_requests is not None
            # The server may ask for roots as well, which it does some time after its start.
            answers = {key: FITTING[asked.method] for key, asked in first.input_requests.items()}
            given_: Any = {"input_responses": answers, "request_state": first.request_state}
            foreign = await bob.call_tool("tool_call", WRITE, **given_)
            rightful = await ann.call_tool("tool_call", WRITE, **given_)

            assert foreign.is_error
            assert text_of(foreign) == REFUSED
            assert "a haiku" in text_of(rightful)

    with served(server(), tokens=tokens) as gateway:
        run(lambda: conversation(gateway.url))


@both_eras
@pytest.mark.parametrize("wrapped", [True, False], ids=["tool_call", "by name"])
def test_a_server_of_the_new_era_asks_clients_of_both(wrapped: bool, mode: str, gateways: Gateways):
    arguments: Json = {"word": "Hello"}
    name = "asking__greet"
    if wrapped:
        name, arguments = "tool_call", {"name": name, "arguments": arguments}

    async def conversation(client: Client) -> None:
        await known(client, "asking__greet")
        result = await client.call_tool(name, arguments)

        assert text_of(result) == "Hello, Ada, at the door."

    gateways.talk(mode, conversation)


@both_eras
def test_a_question_of_one_of_several_calls_reaches_only_clients_that_can_be_asked_meanwhile(
    mode: str, gateways: Gateways
):
    greet: Json = {"name": "asking__greet", "arguments": {"word": "Hello"}}

    async def conversation(client: Client) -> None:
        await known(client, "asking__greet")
        result = await client.call_tool("tool_call", {"calls": [greet, {"name": "no_such_tool"}]})
        alone = await client.call_tool("tool_call", {"calls": [greet]})

        hello = "Hello, Ada, at the door."
        told = hello if mode == "legacy" else f"'asking__greet' failed: {CALL_ALONE}"
        assert told in text_of(result)
        assert text_of(alone) == hello

    gateways.talk(mode, conversation)


@needs_node
def test_an_older_server_is_told_that_several_calls_cannot_ask(gateways: Gateways):
    async def conversation(client: Client) -> None:
        await known(client, "all__echo")
        result = await client.call_tool("tool_call", {"calls": [WRITE, {"name": "no_such_tool"}]})

        assert CALL_ALONE in text_of(result)

    gateways.talk("auto", conversation)
