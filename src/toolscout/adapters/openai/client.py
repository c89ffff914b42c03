"""OpenAI's client: tool search in your own loop, over Responses or Chat Completions.

`ToolScoutResponses` and `ToolScoutChat` turn Python functions and definitions into the `tools` of a
request, and answer the calls of a response. The caller keeps the `Session`, or its JSON, with the
conversation. For a loop that you cannot change, `wrap` hides the tools inside the client.
"""

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from copy import copy
from dataclasses import replace
from functools import partial
from operator import attrgetter
from typing import Any, ClassVar, Generic, NoReturn, TypeVar, Unpack, cast

from toolscout import Mode, Session, Settings
from toolscout.adapters._toolkit import (
    Dialect,
    Hiding,
    Json,
    Toolkit,
    ToolkitOptions,
    add_usage,
    choose_openai_mode,
    is_list,
    is_object,
    require_members,
    run_sync,
)
from toolscout.adapters.openai.chat import ChatLoop, ChunkMerger
from toolscout.adapters.openai.function_tools import (
    Call,
    Function,
    check_mode,
    check_runnable,
    list_definitions,
    list_item_calls,
    list_message_calls,
    split_tools,
    to_answer,
)
from toolscout.adapters.openai.responses import Memory, ResponsesLoop, StreamMerger
from toolscout.errors import MissingExtra, UsageError

try:
    from openai import AsyncOpenAI, OpenAI
    from openai.types.chat import ChatCompletion, ChatCompletionChunk, ChatCompletionMessage
    from openai.types.responses import (
        Response,
        ResponseFunctionToolCall,
        ResponseToolSearchCall,
        ResponseToolSearchOutputItem,
    )
except ModuleNotFoundError as error:
    raise MissingExtra("openai", extra="openai") from error

Run = Callable[[str, Json], object]
"""Runs a tool that was passed as a definition, by name and arguments; may be asynchronous."""
Send = Callable[..., Any]
ResponseT = TypeVar("ResponseT")


class _Tools(ABC, Generic[ResponseT]):
    """The tools of requests in one dialect, and the answers to calls of them.

    Tools that the provider runs itself, such as `web_search`, come first and unchanged.
    """

    dialect: ClassVar[Dialect]
    _mode = Mode.NATIVE
    _namespaces = False

    def __init__(
        self, tools: Iterable[object], *, run: Run | None = None, **options: Unpack[ToolkitOptions]
    ) -> None:
        self.hosted, natives = split_tools(tools, self.dialect)
        if run is None:
            check_runnable(natives)
        self.toolkit = Toolkit[Function](
            natives,
            attrgetter("tool"),
            run=run and (lambda native, arguments: run(native.tool.name, arguments)),
            mode=self._mode,
            leaves_calls=True,
            **options,
        )
        check_mode(self.toolkit.mode)

    def open(self, id_: str, state: object = None) -> Session:
        """Return the session of a conversation, new or from the JSON of `Session.to_json()`."""
        return self.toolkit.open_session(id_, state)

    def list_tools(self, session: Session) -> list[Any]:
        """Return the `tools` of the next request."""
        return [*self.hosted, *list_definitions(self.toolkit, session, self.dialect)]

    @abstractmethod
    def list_calls(self, response: ResponseT) -> list[Call]:
        """Return the calls that a response asks for."""

    async def answer(self, session: Session, response: ResponseT) -> list[Any]:
        """Return the answers to append after a response; none means that the turn is over."""
        answers: list[Json] = []
        for call in self.list_calls(response):
            reply = await session.handle(call.name, call.arguments)
            grouped = self._namespaces
            answers.append(to_answer(self.toolkit, call, reply, self.dialect, grouped=grouped))
        return answers

    def answer_sync(self, session: Session, response: ResponseT) -> list[Any]:
        """Do the same in synchronous code."""
        return run_sync(lambda: self.answer(session, response))


class ToolScoutResponses(_Tools[Response]):
    """Tool search for a loop over `client.responses.create` or `client.responses.stream`.

    The mode depends on the model and the address: GPT-5.4 and later at OpenAI get definitions,
    and otherwise found tools join the request. `settings` or a `scout` override it. `namespaces`
    groups definitions by server; do not change it within a conversation.
    """

    dialect = Dialect.OPENAI_RESPONSES

    def __init__(
        self,
        tools: Iterable[object],
        *,
        model: str = "",
        base_url: str = "",
        run: Run | None = None,
        namespaces: bool = False,
        **options: Unpack[ToolkitOptions],
    ) -> None:
        self._mode = choose_openai_mode(model, base_url)
        self._namespaces = namespaces
        super().__init__(tools, run=run, **options)

    def list_calls(self, response: Response) -> list[Call]:
        """Return the calls that a response asks for."""
        return [*list_item_calls(item.to_dict() for item in response.output)]


class ToolScoutChat(_Tools[ChatCompletion | ChatCompletionMessage]):
    """Tool search for a loop over `client.chat.completions.create` or `.stream`."""

    dialect = Dialect.OPENAI_CHAT

    def list_calls(self, response: ChatCompletion | ChatCompletionMessage) -> list[Call]:
        """Return the calls that a completion or its message asks for."""
        if isinstance(response, ChatCompletion):
            response = response.choices[0].message
        return [*list_message_calls(response.to_dict())]


ClientT = TypeVar("ClientT", OpenAI, AsyncOpenAI)
RAW_HEADER = "X-Stainless-Raw-Response"
"""The header by which the SDK marks a request for the raw HTTP response."""
_ITEMS: Mapping[str, Any] = {
    "function_call": ResponseFunctionToolCall,
    "tool_search_call": ResponseToolSearchCall,
    "tool_search_output": ResponseToolSearchOutputItem,
}


def wrap(client: ClientT, *, settings: Settings | None = None) -> ClientT:
    """Return a client that hides the tools of its requests and answers searches itself.

    `chat.completions.create` and `.stream`, `responses.create`, `.parse` and `.stream` still take
    all tools, and their responses call only those. Small lists are sent unchanged. The original
    client does not change, and both share its connections.
    """
    shared = _WrappedClient(settings, str(client.base_url))
    copied: Any = client.copy()
    hide = _hide_tools if isinstance(client, OpenAI) else _hide_tools_async
    # The SDK creates its resources on first use and keeps them.
    completions = copied.chat.completions
    completions.create = hide(completions.create, partial(_ChatRequest, shared))
    completions.parse = hide(completions.parse, _refuse_parse)
    responses = copied.responses
    responses.create = hide(responses.create, partial(_ResponsesRequest, shared))
    responses.parse = hide(responses.parse, partial(_ResponsesRequest, shared))
    return cast("ClientT", copied)


def _hide_tools(send: Send, begin: Callable[[Json], Any]) -> Send:
    """Return a method that sends requests with tools as rounds of `begin(request)`."""

    def send_rounds(**request: Any) -> Any:
        if not _has_tools(request):
            return send(**request)
        pending = begin(request)
        if request.get("stream") is True:
            first = send(**pending.build_next())
            return _replace_events(first, _merge_streams(pending, first, send))
        while True:
            shown = run_sync(partial(pending.take, send(**pending.build_next())))
            if shown is not None:
                return shown

    return send_rounds


def _hide_tools_async(send: Send, begin: Callable[[Json], Any]) -> Send:
    async def send_rounds(**request: Any) -> Any:
        if not _has_tools(request):
            return await send(**request)
        pending = begin(request)
        if request.get("stream") is True:
            first = await send(**pending.build_next())
            return _replace_events(first, _merge_streams_async(pending, first, send))
        while True:
            shown = await pending.take(await send(**pending.build_next()))
            if shown is not None:
                return shown

    return send_rounds


def _refuse_parse(request: Json) -> NoReturn:
    raise UsageError(
        "`chat.completions.parse` accepts only strict tools, and the meta-tools are not strict. "
        "Use `create` with a response format, or `responses.parse`."
    )


def _merge_streams(pending: Any, stream: Any, send: Send) -> Iterator[Any]:
    while True:
        for event in stream:
            yield from pending.feed(event)
        last = run_sync(pending.end)
        if last is not None:
            yield from last
            return
        stream = send(**pending.build_next())


async def _merge_streams_async(pending: Any, stream: Any, send: Send) -> AsyncIterator[Any]:
    while True:
        async for event in stream:
            for passed in pending.feed(event):
                yield passed
        last = await pending.end()
        if last is not None:
            for event in last:
                yield event
            return
        stream = await send(**pending.build_next())


def _replace_events(stream: Any, events: object) -> Any:
    """Return a stream of the SDK that yields other events."""
    require_members("openai", stream, "_iterator")
    merged = copy(stream)
    merged._iterator = events
    return merged


def _has_tools(request: Json) -> bool:
    if RAW_HEADER in (request.get("extra_headers") or {}):
        raise UsageError("A wrapped client has no raw responses. Use the client that it wraps.")
    tools = request.get("tools")
    if not isinstance(tools, Iterable):
        return False
    request["tools"] = list(cast("Iterable[object]", tools))
    return bool(request["tools"])


class _WrappedClient:
    """What the resources of one client share."""

    def __init__(self, settings: Settings | None, base_url: str) -> None:
        self.memory = Memory()
        self._settings = settings
        self._base_url = base_url
        self._kits: dict[tuple[Dialect, Mode], Toolkit[Function]] = {}
        if settings is not None:
            check_mode(settings.mode)

    def get_toolkit(self, dialect: Dialect, model: str) -> Toolkit[Function]:
        """Return the toolkit for a model; all requests of one mode share it."""
        settings = self._settings or Settings(hiding=Hiding.AUTO)
        mode = settings.mode if self._settings else choose_openai_mode(model, self._base_url)
        key = (dialect, Mode.NATIVE if dialect is Dialect.OPENAI_CHAT else mode)
        if key not in self._kits:
            settings = replace(settings, mode=key[1])
            self._kits[key] = Toolkit((), attrgetter("tool"), settings=settings)
        return self._kits[key]


class _Request:
    """One request of the user, with all its tools, and the rounds that it takes.

    `take` returns the response for the user, and `end` the last events of a stream, or None if
    another round is due. `feed` yields what is forwarded at once.
    """

    dialect: ClassVar[Dialect]

    def __init__(self, client: _WrappedClient, request: Json) -> None:
        self.request = request
        self.hosted, natives = split_tools(request["tools"], self.dialect)
        self.toolkit = client.get_toolkit(self.dialect, str(request.get("model", "")))
        self.only = self.toolkit.register({native.tool.name: native for native in natives})

    def list_tools(self, session: Session) -> list[Json]:
        """Return the tools of the next request, including one that the user forces."""
        forced = _read_forced(self.request.get("tool_choice"))
        return [*self.hosted, *list_definitions(self.toolkit, session, self.dialect, forced)]


class _ChatRequest(_Request):
    """A request to Chat Completions."""

    dialect = Dialect.OPENAI_CHAT

    def __init__(self, client: _WrappedClient, request: Json) -> None:
        super().__init__(client, request)
        if request.get("n") not in (None, 1) and isinstance(request.get("n"), int):
            raise UsageError("A wrapped client returns one choice. Leave out `n`.")
        self.chat = ChatLoop(self.toolkit, _to_json(request["messages"]), only=self.only)
        self.chunks = ChunkMerger()

    def build_next(self) -> Json:
        tools = self.list_tools(self.chat.session)
        return self.request | {"messages": self.chat.messages, "tools": tools}

    async def take(self, done: Any) -> Any | None:
        response = _to_json(done)
        choice = response["choices"][0]
        message = await self.chat.take(choice["message"], response.get("usage"))
        if message is None:
            return None
        choice["message"] = message
        if self.chat.usage:
            response["usage"] = self.chat.usage
        return done.construct(**response)

    async def end(self) -> Iterator[Any] | None:
        usage = self.chunks.usage
        self.chunks.usage = None
        message = await self.chat.take(self.chunks.end_round(), usage)
        if message is None:
            return None
        last = self.chunks.end(message, self.chat.usage)
        return (ChatCompletionChunk.construct(**chunk) for chunk in last)

    def feed(self, chunk: Any) -> Iterator[Any]:
        return (
            ChatCompletionChunk.construct(**passed) for passed in self.chunks.feed(_to_json(chunk))
        )


class _ResponsesRequest(_Request):
    """A request to Responses."""

    dialect = Dialect.OPENAI_RESPONSES

    def __init__(self, client: _WrappedClient, request: Json) -> None:
        super().__init__(client, request)
        given = _to_json(request.get("input"))
        items = [{"role": "user", "content": given}] if isinstance(given, str) else given
        conversation = _to_json(request.get("conversation"))
        named = conversation.get("id") if is_object(conversation) else conversation
        # The SDK marks what was left out by objects of its own.
        self.conversation = named if isinstance(named, str) else ""
        response_id = request.get("previous_response_id")
        previous = response_id if isinstance(response_id, str) else ""
        self.previous = client.memory.resolve(previous)
        self.memory = client.memory
        self.rounds = ResponsesLoop(
            self.toolkit,
            [item for item in items if is_object(item)] if is_list(items) else [],
            attrgetter("definition"),
            only=self.only,
            before=self.memory,
            key=self.conversation or previous,
        )
        self.stream = StreamMerger()
        self.feed = self.stream.feed
        self._usage: Json = {}
        self._said: dict[str, tuple[Json, Any]] = {}

    def build_next(self) -> Json:
        tools = self.list_tools(self.rounds.session)
        chain = {"previous_response_id": self.previous} if self.previous else {}
        return self.request | {"input": self.rounds.input, "tools": tools} | chain

    async def take(self, done: Any) -> Any | None:
        self._usage = add_usage(self._usage, _to_json(done.usage) or {})
        if await self._is_due(done):
            return None
        usage = done.usage.construct(**self._usage) if done.usage is not None else None
        return done.model_copy(update={"output": self._create_output(), "usage": usage})

    async def end(self) -> Iterator[Any] | None:
        done = self.stream.response
        if done is None:
            return iter(())
        if await self._is_due(done):
            self.stream.begin_round()
            return None
        return self.stream.end(self._create_output())

    def _create_output(self) -> list[Any]:
        """Return the output as objects of the SDK; an unchanged item is the original object."""
        output: list[Any] = []
        for item in self.rounds.output:
            said, original = self._said.get(str(item.get("id")), ({}, None))
            output.append(
                original if said == item else _ITEMS[str(item.get("type"))].construct(**item)
            )
        return output

    async def _is_due(self, done: Any) -> bool:
        output = [_strip_parsed(_to_json(item)) for item in done.output]
        pairs = zip(output, done.output, strict=True)
        self._said |= {str(item.get("id")): (item, original) for item, original in pairs}
        if self.previous:
            self.previous = done.id
        if await self.rounds.take(output):
            return True
        self.memory.keep(self.rounds, done.id, self.conversation, alias=self.stream.id)
        return False


def _to_json(value: object) -> Any:
    """Return the SDK's objects as JSON."""
    if callable(dump := getattr(value, "to_dict", None)):
        return dump(mode="json")
    if isinstance(value, Mapping):
        return {key: _to_json(inner) for key, inner in cast("Json", value).items()}
    if isinstance(value, str | bytes) or not isinstance(value, Iterable):
        return value
    return [_to_json(inner) for inner in cast("Iterable[object]", value)]


def _strip_parsed(item: Json) -> Json:
    """Return an item without what the SDK parsed from it."""
    bare = {key: value for key, value in item.items() if key != "parsed_arguments"}
    if is_list(content := bare.get("content")):
        parts = [part for part in content if is_object(part)]
        bare["content"] = [{k: v for k, v in part.items() if k != "parsed"} for part in parts]
    return bare


def _read_forced(choice: object) -> str:
    """Return the function that the user forces, in either format."""
    if not is_object(choice) or choice.get("type") != "function":
        return ""
    function = choice.get("function")
    return str((function if is_object(function) else choice).get("name", ""))
