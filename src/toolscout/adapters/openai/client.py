"""OpenAI's client: tool search in your own loop, over Responses or Chat Completions.

`ToolScoutResponses` and `ToolScoutChat` turn Python functions and definitions into the `tools` of a
request, and answer the calls of a response. The caller keeps the `Session`, or its JSON, with the
conversation. For a loop that you cannot change, `wrap` hides the tools inside the client.
"""

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from copy import copy
from functools import partial
from operator import attrgetter
from typing import Any, ClassVar, Generic, NoReturn, TypeVar, Unpack, cast

from toolscout import Mode, Session, Settings
from toolscout.adapters._toolkit import (
    Dialect,
    Json,
    Toolkit,
    ToolkitOptions,
    choose_openai_mode,
    require_members,
    run_sync,
)
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
from toolscout.adapters.openai.requests import ChatRequest, ResponsesRequest, WrappedClient
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


def wrap(client: ClientT, *, settings: Settings | None = None) -> ClientT:
    """Return a client that hides the tools of its requests and answers searches itself.

    `chat.completions.create` and `.stream`, `responses.create`, `.parse` and `.stream` still take
    all tools, and their responses call only those. Small lists are sent unchanged. The original
    client does not change, and both share its connections.
    """
    shared = WrappedClient(settings, str(client.base_url), _KINDS)
    copied: Any = client.copy()
    hide = _hide_tools if isinstance(client, OpenAI) else _hide_tools_async
    # The SDK creates its resources on first use and keeps them.
    completions = copied.chat.completions
    completions.create = hide(completions.create, partial(ChatRequest, shared))
    completions.parse = hide(completions.parse, _refuse_parse)
    responses = copied.responses
    responses.create = hide(responses.create, partial(ResponsesRequest, shared))
    responses.parse = hide(responses.parse, partial(ResponsesRequest, shared))
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


_KINDS: Mapping[str, Callable[..., Any]] = {
    "chunk": ChatCompletionChunk.construct,
    "function_call": ResponseFunctionToolCall.construct,
    "tool_search_call": ResponseToolSearchCall.construct,
    "tool_search_output": ResponseToolSearchOutputItem.construct,
}
