"""OpenAI's client: tool search in a loop of one's own, over Responses or Chat Completions.

Takes Python functions and definitions in OpenAI's shapes; gives the `tools` of a request and the
answers to a response. The caller keeps the `Session`, or its JSON, beside the conversation. For a
loop that cannot be changed, `wrap` hides the tools inside the client itself.
"""

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from typing import Any, ClassVar, Generic, TypeVar, cast

from toolscout import Mode, Reply, Scout, Session, Settings
from toolscout.adapters._toolkit import Dialect, Json, Toolkit, choose_mode, detect_openai, run_sync
from toolscout.adapters.openai.function_tools import (
    Call,
    Function,
    answer_of,
    calls_in_items,
    calls_in_message,
    check_mode,
    check_runnable,
    definitions_of,
    function_of,
    is_hosted,
    tool_of,
)
from toolscout.adapters.openai.requests import ChatAsk, ItemsAsk, Wrap
from toolscout.errors import MissingExtra, UsageError

try:
    from openai import AsyncOpenAI, AsyncStream, OpenAI, Stream
    from openai.resources.chat import AsyncChat as AsyncChatResource
    from openai.resources.chat import Chat as ChatResource
    from openai.resources.chat.completions import AsyncCompletions, Completions
    from openai.resources.responses import AsyncResponses, Responses
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
"""Runs a tool that was given as a definition, by name and arguments; it may be asynchronous."""
Send = Callable[..., Any]
"""Sends a request with the SDK's own method."""
ResponseT = TypeVar("ResponseT")


class _Tools(ABC, Generic[ResponseT]):
    """Tools of requests in one dialect, and the answers to calls of them.

    Tools that the provider runs itself, such as `web_search`, stand in front, as they were given.
    """

    dialect: ClassVar[Dialect]

    def __init__(
        self,
        tools: Iterable[object],
        *,
        run: Run | None = None,
        namespaces: bool = False,
        scout: Scout | None = None,
        settings: Settings | None = None,
    ) -> None:
        given = list(tools)
        self.hosted = [cast("Json", tool) for tool in given if is_hosted(tool)]
        natives = [function_of(tool, self.dialect) for tool in given if not is_hosted(tool)]
        if run is None:
            check_runnable(natives)
        execute = None if run is None else _by_name(run)
        self.toolkit = Toolkit(natives, tool_of, run=execute, scout=scout, settings=settings)
        self._namespaces = namespaces
        check_mode(self.toolkit.scout.settings.mode)

    def open(self, id_: str, state: object = None) -> Session:
        """Return a conversation's session, new or from what `Session.to_json()` gave."""
        return self.toolkit.open_session(id_, state)

    def definitions(self, session: Session) -> list[Any]:
        """Return the `tools` of the next request."""
        return [*self.hosted, *definitions_of(self.toolkit, session, self.dialect)]

    @abstractmethod
    def calls(self, response: ResponseT) -> list[Call]:
        """Return the calls that a response asks for."""

    async def answer(self, session: Session, response: ResponseT) -> list[Any]:
        """Return what answers a response's calls, to be appended after it; nothing ends a turn."""
        made = self.calls(response)
        return [self._shaped(c, await session.handle(c.name, c.arguments)) for c in made]

    def answer_sync(self, session: Session, response: ResponseT) -> list[Any]:
        """Do the same in code that is not asynchronous."""
        made = self.calls(response)
        return [self._shaped(c, session.handle_sync(c.name, c.arguments)) for c in made]

    def _shaped(self, call: Call, reply: Reply) -> Json:
        return answer_of(self.toolkit, call, reply, self.dialect, grouped=self._namespaces)


class ToolScoutResponses(_Tools[Response]):
    """Tool search for a loop over `client.responses.create` or `client.responses.stream`.

    The mode follows from the model and, where it is not OpenAI's own, the address: definitions
    for GPT-5.4 and later, else found tools join the request. `settings` or a `scout` override it.
    `namespaces` groups definitions by server; a conversation is to keep to one choice.
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
        scout: Scout | None = None,
        settings: Settings | None = None,
    ) -> None:
        if scout is None and settings is None:
            settings = Settings(mode=choose_mode(detect_openai(model, base_url)))
        super().__init__(tools, run=run, namespaces=namespaces, scout=scout, settings=settings)

    def calls(self, response: Response) -> list[Call]:
        """Return the calls that a response asks for."""
        return [*calls_in_items(item.to_dict() for item in response.output)]


class ToolScoutChat(_Tools[ChatCompletion | ChatCompletionMessage]):
    """Tool search for a loop over `client.chat.completions.create` or `.stream`."""

    dialect = Dialect.OPENAI_CHAT

    def __init__(
        self,
        tools: Iterable[object],
        *,
        run: Run | None = None,
        scout: Scout | None = None,
        settings: Settings | None = None,
    ) -> None:
        if scout is None and settings is None:
            settings = Settings(mode=Mode.NATIVE)
        super().__init__(tools, run=run, scout=scout, settings=settings)

    def calls(self, response: ChatCompletion | ChatCompletionMessage) -> list[Call]:
        """Return the calls that a completion or its message asks for."""
        if isinstance(response, ChatCompletion):
            response = response.choices[0].message
        return [*calls_in_message(response.to_dict())]


ClientT = TypeVar("ClientT", OpenAI, AsyncOpenAI)
RAW_HEADER = "X-Stainless-Raw-Response"
"""By this header the SDK tells itself that its user wants the bare HTTP response."""


def wrap(client: ClientT, *, settings: Settings | None = None) -> ClientT:
    """Return a client that hides the tools it is given and answers searches itself.

    `chat.completions.create` and `.stream`, `responses.create`, `.parse` and `.stream` take all
    tools, as ever, and give responses in which only those tools are called; small lists are sent
    as they are. The client given stays as it was; both share its connections.
    """
    shared = Wrap(settings, str(client.base_url), _KINDS)
    copied: Any = client.copy()
    # The SDK makes its resources when they are first asked for, and keeps them under these names.
    chat: Any
    if isinstance(client, OpenAI):
        chat = ChatResource(copied)
        chat.completions = _Completions(copied, shared)
        copied.responses = _Responses(copied, shared)
    else:
        chat = AsyncChatResource(copied)
        chat.completions = _AsyncCompletions(copied, shared)
        copied.responses = _AsyncResponses(copied, shared)
    copied.chat = chat
    return cast("ClientT", copied)


class _Completions(Completions):
    def __init__(self, client: OpenAI, shared: Wrap) -> None:
        super().__init__(client)
        self._shared = shared

    def create(self, **request: Any) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]  # passed on as it came
        send = cast("Send", super().create)
        if not _has_tools(request):
            return send(**request)
        return _ask(ChatAsk(self._shared, request), send)

    def parse(self, **request: Any) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]  # passed on as it came
        send = cast("Send", super().parse)
        if not _has_tools(request):
            return send(**request)
        raise UsageError(_UNPARSED)


class _AsyncCompletions(AsyncCompletions):
    def __init__(self, client: AsyncOpenAI, shared: Wrap) -> None:
        super().__init__(client)
        self._shared = shared

    async def create(self, **request: Any) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]  # passed on as it came
        send = cast("Send", super().create)
        if not _has_tools(request):
            return await send(**request)
        return await _ask_async(ChatAsk(self._shared, request), send)

    async def parse(self, **request: Any) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]  # passed on as it came
        send = cast("Send", super().parse)
        if not _has_tools(request):
            return await send(**request)
        raise UsageError(_UNPARSED)


class _Responses(Responses):
    def __init__(self, client: OpenAI, shared: Wrap) -> None:
        super().__init__(client)
        self._shared = shared

    def create(self, **request: Any) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]  # passed on as it came
        send = cast("Send", super().create)
        if not _has_tools(request):
            return send(**request)
        return _ask(ItemsAsk(self._shared, request), send)

    def parse(self, **request: Any) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]  # passed on as it came
        send = cast("Send", super().parse)
        if not _has_tools(request):
            return send(**request)
        return _ask(ItemsAsk(self._shared, request), send)


class _AsyncResponses(AsyncResponses):
    def __init__(self, client: AsyncOpenAI, shared: Wrap) -> None:
        super().__init__(client)
        self._shared = shared

    async def create(self, **request: Any) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]  # passed on as it came
        send = cast("Send", super().create)
        if not _has_tools(request):
            return await send(**request)
        return await _ask_async(ItemsAsk(self._shared, request), send)

    async def parse(self, **request: Any) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]  # passed on as it came
        send = cast("Send", super().parse)
        if not _has_tools(request):
            return await send(**request)
        return await _ask_async(ItemsAsk(self._shared, request), send)


_UNPARSED = (
    "`chat.completions.parse` takes strict tools alone, and the meta-tools are not. "
    "Use `create` with a response format, or `responses.parse`."
)


def _ask(asking: Any, send: Send) -> Any:
    if asking.request.get("stream") is True:
        first = send(**asking.next())
        return _Joined(first, _joined(asking, first, send))
    while True:
        done = send(**asking.next())
        shown = run_sync(lambda done=done: asking.take(done))
        if shown is not None:
            return shown


async def _ask_async(asking: Any, send: Send) -> Any:
    if asking.request.get("stream") is True:
        first = await send(**asking.next())
        return _AsyncJoined(first, _joined_async(asking, first, send))
    while True:
        shown = await asking.take(await send(**asking.next()))
        if shown is not None:
            return shown


def _joined(asking: Any, stream: Any, send: Send) -> Iterator[Any]:
    while True:
        for event in stream:
            yield from asking.feed(event)
        last = run_sync(asking.end)
        if last is not None:
            yield from last
            return
        stream = send(**asking.next())


async def _joined_async(asking: Any, stream: Any, send: Send) -> AsyncIterator[Any]:
    while True:
        async for event in stream:
            for passed in asking.feed(event):
                yield passed
        last = await asking.end()
        if last is not None:
            for event in last:
                yield event
            return
        stream = await send(**asking.next())


class _Joined(Stream[Any]):
    """The streams of all rounds as one."""

    def __init__(self, first: Stream[Any], events: Iterator[Any]) -> None:
        self.response, self._iterator = first.response, events


class _AsyncJoined(AsyncStream[Any]):
    """The streams of all rounds as one."""

    def __init__(self, first: AsyncStream[Any], events: AsyncIterator[Any]) -> None:
        self.response, self._iterator = first.response, events


def _has_tools(request: Json) -> bool:
    if RAW_HEADER in (request.get("extra_headers") or {}):
        raise UsageError("A wrapped client gives no raw responses. Use the client that it wraps.")
    tools = request.get("tools")
    if not isinstance(tools, Iterable):
        return False
    request["tools"] = list(cast("Iterable[object]", tools))
    return bool(request["tools"])


_KINDS: Mapping[str, Callable[..., Any]] = {
    "chunk": ChatCompletionChunk.construct,
    "function_call": ResponseFunctionToolCall.construct,
    "tool_search_call": ResponseToolSearchCall.construct,
    "tool_search_output": ResponseToolSearchOutputItem.construct,
}


def _by_name(run: Run) -> Callable[[Function, Json], object]:
    return lambda native, arguments: run(native.tool.name, arguments)
