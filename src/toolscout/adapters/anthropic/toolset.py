"""Anthropic's SDK: the tool runner, loops of one's own, and clients whose loop cannot be changed.

`ToolScoutToolset` puts an agent's tools behind three, for `tool_runner` and for loops over
`messages.create`. `wrap(client)` does the same inside a client. What a conversation has found is
read from its messages, each time anew: they are the state that this SDK has. How tools are hidden
follows from the client's address, unless a mode is given.
"""

import asyncio
import inspect
import json
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Generator, Iterable, Iterator
from copy import copy
from dataclasses import replace
from functools import partial
from typing import Any, TypedDict, TypeVar, cast

from toolscout import Mode, Reply, Scout, Session, Settings, Tool
from toolscout.adapters._toolkit import (
    NO_CONTENT,
    Admission,
    Dialect,
    Json,
    Toolkit,
    choose_settings,
    detect_anthropic,
    report_outcome,
)
from toolscout.adapters.anthropic.definitions import Declarations, prune
from toolscout.adapters.anthropic.rounds import (
    LISTS_KEPT,
    ROUNDS,
    Wrapper,
    calls_in,
    conversation_id,
    to_plain,
    unfold,
)
from toolscout.adapters.anthropic.streams import to_frame
from toolscout.errors import MissingExtra, UsageError

try:
    import httpx2
    from anthropic import Anthropic, APIRequest, AsyncAnthropic, AsyncStream, Middleware, Stream
    from anthropic.lib.tools import (
        BetaAsyncBuiltinFunctionTool,
        BetaAsyncFunctionTool,
        BetaBuiltinFunctionTool,
        BetaFunctionTool,
        ToolError,
        beta_async_tool,
        beta_tool,
    )
except ModuleNotFoundError as error:
    raise MissingExtra("anthropic", extra="anthropic") from error

SYNC = (BetaFunctionTool, BetaBuiltinFunctionTool)
ASYNC = (BetaAsyncFunctionTool, BetaAsyncBuiltinFunctionTool)

ClientT = TypeVar("ClientT")


class Params(TypedDict):
    """What a request carries because of a toolset."""

    messages: list[Any]
    tools: list[Any]


class ToolScoutToolset:
    """The tools of an agent behind `tool_search`, `tool_describe` and `tool_call`.

    `tools` are functions, `@beta_tool` objects, the SDK's MCP tools, or definitions as JSON, whose
    calls `run(name, arguments)` makes. What has no schema, such as the provider's own tools, is
    passed on as it is. `hosted` leaves searching to the provider: `bm25` or `regex`.
    """

    def __init__(
        self,
        tools: Iterable[object],
        client: object = None,
        *,
        mode: Mode | str | None = None,
        hosted: str = "",
        run: Callable[[str, Json], object] | None = None,
        scout: Scout | None = None,
        settings: Settings | None = None,
    ) -> None:
        given = [_native(tool) for tool in tools]
        self._run, self._is_async = run, isinstance(client, AsyncAnthropic)
        self._passed = [tool for tool in given if not _is_hideable(tool)]
        for tool in given:
            self._check(tool, client)
        settings = _settings(client, mode, settings, hosted=bool(hosted), scout=scout)
        self._declarations = _declarations(given, hosted, scout, settings)
        self.toolkit = self._declarations.toolkit

    def session(self, messages: Iterable[object] = ()) -> Session:
        """Return what a conversation has found so far, read from its messages."""
        plain = unfold(map(to_plain, messages))
        return self.toolkit.scout.rebuild(conversation_id(plain), plain, keep=False)

    def request(self, messages: Iterable[object], session: Session | None = None) -> Params:
        """Return `messages` and `tools` for `tool_runner`: tools that run behind the gate."""
        listed = list(messages)
        session = session or self.session(listed)
        params = self.params(listed, session)
        own = params["tools"][len(self._passed) :]
        tools = [*self._passed, *(self._runnable(session, definition) for definition in own)]
        return {"messages": params["messages"], "tools": tools}

    def params(self, messages: Iterable[object], session: Session) -> Params:
        """Return `messages` and `tools` for `messages.create`, in a loop of one's own."""
        tools = self._declarations.definitions(session)
        plain = unfold(map(to_plain, messages))
        return {"messages": prune(plain, {str(tool.get("name")) for tool in tools}), "tools": tools}

    def answer(self, session: Session, content: Iterable[object]) -> list[Json]:
        """Return a result for each call in the content of a reply."""
        calls = calls_in(map(to_plain, content))
        return [_result(call, partial(self._call, session, call["name"])) for call in calls]

    async def answer_async(self, session: Session, content: Iterable[object]) -> list[Json]:
        """Return a result for each call in the content of a reply; tools may be asynchronous."""
        calls = calls_in(map(to_plain, content))
        works = [self._call_async(session, call["name"], call["input"]) for call in calls]
        made = await asyncio.gather(*works, return_exceptions=True)
        return [_result(c, partial(_given, value)) for c, value in zip(calls, made, strict=True)]

    def _check(self, tool: object, client: object) -> None:
        name = _written(tool).get("name")
        if isinstance(tool, ASYNC):
            self._is_async = True
            if isinstance(client, Anthropic):
                raise UsageError(f"Tool {name!r} is asynchronous. Use AsyncAnthropic with it.")
        if not isinstance(tool, SYNC + ASYNC) and _is_hideable(tool) and self._run is None:
            raise UsageError(
                f"Tool {name!r} is a definition that nothing runs. Give `run=`, or a function; "
                "for a loop that runs tools itself there is `wrap(client)`."
            )

    def _runnable(self, session: Session, definition: Json) -> object:
        if "input_schema" not in definition:  # the provider's own search
            return definition
        name = str(definition["name"])
        if self._is_async:
            return _AsyncRunnable(definition, partial(self._call_async, session, name))
        return _Runnable(definition, partial(self._call, session, name))

    def _call(self, session: Session, name: str, arguments: object) -> Any:
        """Return the content of a call's result, or raise `ToolError` with one."""
        verdict = self.toolkit.handle_sync(session, name, arguments)
        if not isinstance(verdict, Admission):
            return _replied(name, verdict)
        with report_outcome(session, verdict):
            return _reported(self._start(verdict), verdict)

    async def _call_async(self, session: Session, name: str, arguments: object) -> Any:
        verdict = await self.toolkit.handle(session, name, arguments)
        if not isinstance(verdict, Admission):
            return _replied(name, verdict)
        with report_outcome(session, verdict):
            if isinstance(self.toolkit.get(verdict.tool.name), SYNC):
                return _reported(await asyncio.to_thread(self._start, verdict), verdict)
            started = self._start(verdict)
            result = await started if inspect.isawaitable(started) else started
            return _reported(result, verdict)

    def _start(self, admission: Admission) -> Any:
        native = self.toolkit.get(admission.tool.name)
        if isinstance(native, SYNC + ASYNC):
            return cast("Any", native).call(admission.arguments)
        return cast("Any", self._run)(admission.tool.leaf, admission.arguments)


class ToolScoutMiddleware(Middleware):
    """Hides the tools of a client's requests, and answers searches inside them.

    `wrap` is the way to it. The user's loop runs the user's tools as before; tools of a `scout`
    of one's own are run here, and such a scout serves one list of tools at a time.
    """

    def __init__(
        self,
        *,
        mode: Mode | str | None = None,
        hosted: str = "",
        scout: Scout | None = None,
        settings: Settings | None = None,
        rounds: int = ROUNDS,
    ) -> None:
        settings = _settings(None, mode, settings, hosted=bool(hosted), scout=scout)
        make = partial(_declarations, hosted=hosted, scout=scout, settings=settings)
        self._wrapper = Wrapper(make, rounds=rounds, kept=LISTS_KEPT if scout is None else 1)

    def handle(self, request: APIRequest, call_next: Callable[[APIRequest], Any]) -> Any:
        """Answer a request of a client that is not asynchronous."""
        key = str(request.options.idempotency_key)
        interlude = self._wrapper.begin(_path(request), request.json, key)
        if interlude is None:
            return call_next(request)

        def send(body: Json) -> Any:
            return call_next(request.copy(body=body))

        while True:
            response = send(interlude.request)
            if _is_final(request, response):
                return response
            if request.stream:
                events = interlude.stream_sync(response, _events, send)
                return _replaced(response, stream=_Frames(events))
            final = interlude.take_sync(json.loads(response.http_response.read()))
            if final is not None:
                self._wrapper.forget(key)
                return _replaced(response, content=json.dumps(final).encode())
            self._wrapper.keep(key, interlude)

    async def handle_async(
        self, request: APIRequest, call_next: Callable[[APIRequest], Any]
    ) -> Any:
        """Answer a request of an asynchronous client."""
        key = str(request.options.idempotency_key)
        # In a thread: the first request of a list of tools has it indexed.
        begin = partial(self._wrapper.begin, _path(request), request.json, key)
        interlude = await asyncio.to_thread(begin)
        if interlude is None:
            return await call_next(request)

        async def send(body: Json) -> Any:
            return await call_next(request.copy(body=body))

        while True:
            response = await send(interlude.request)
            if _is_final(request, response):
                return response
            if request.stream:
                events = interlude.stream(response, _events_async, send)
                return _replaced(response, stream=_AsyncFrames(events))
            final = await interlude.take(json.loads(await response.http_response.aread()))
            if final is not None:
                self._wrapper.forget(key)
                return _replaced(response, content=json.dumps(final).encode())
            self._wrapper.keep(key, interlude)


def wrap(
    client: ClientT,
    *,
    mode: Mode | str | None = None,
    hosted: str = "",
    scout: Scout | None = None,
    settings: Settings | None = None,
    rounds: int = ROUNDS,
) -> ClientT:
    """Return a client that hides the tools it is given, and is used like the one given."""
    settings = _settings(client, mode, settings, hosted=bool(hosted), scout=scout)
    middleware = ToolScoutMiddleware(hosted=hosted, scout=scout, settings=settings, rounds=rounds)
    return cast("Any", client).with_middleware(middleware)


class _Runnable(BetaBuiltinFunctionTool):
    """A tool of the runner that is run behind the gate."""

    def __init__(self, definition: Json, work: Callable[[object], Any]) -> None:
        self._definition, self._work = definition, work

    def to_dict(self) -> Any:
        return self._definition

    def call(self, input: object) -> Any:  # noqa: A002  # as in the base
        return self._work(input)


class _AsyncRunnable(BetaAsyncBuiltinFunctionTool):
    def __init__(self, definition: Json, work: Callable[[object], Any]) -> None:
        self._definition, self._work = definition, work

    def to_dict(self) -> Any:
        return self._definition

    async def call(self, input: object) -> Any:  # noqa: A002  # as in the base
        return await self._work(input)


class _Frames(httpx2.SyncByteStream):
    """Events as the body of a response."""

    def __init__(self, events: Generator[Json]) -> None:
        self._events = events

    def __iter__(self) -> Iterator[bytes]:
        yield from map(to_frame, self._events)

    def close(self) -> None:
        self._events.close()


class _AsyncFrames(httpx2.AsyncByteStream):
    def __init__(self, events: AsyncGenerator[Json]) -> None:
        self._events = events

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for event in self._events:
            yield to_frame(event)

    async def aclose(self) -> None:
        await self._events.aclose()


def _settings(
    client: object,
    mode: Mode | str | None,
    settings: Settings | None,
    *,
    hosted: bool,
    scout: Scout | None,
) -> Settings | None:
    if scout is not None:
        if mode is not None or hosted:
            raise UsageError("A mode was given beside a scout. Give it to the scout's settings.")
        return settings
    if hosted:  # the provider searches, so nothing here knows what it has found
        return replace(settings or Settings(), mode=Mode.REFERENCE, calls_by_name=True)
    address = str(getattr(client, "base_url", ""))
    return choose_settings(detect_anthropic(address), settings, mode)


def _declarations(
    tools: Iterable[object], hosted: str, scout: Scout | None, settings: Settings | None
) -> Declarations[object]:
    given = list(tools)
    passed = [_written(tool) for tool in given if not _is_hideable(tool)]
    hidden = [tool for tool in given if _is_hideable(tool)]
    toolkit = Toolkit(hidden, _tool, scout=scout, settings=settings)
    return Declarations(toolkit, _written, passed=passed, hosted=hosted)


def _native(tool: object) -> object:
    """Return a tool that the SDK knows; a function becomes one."""
    if isinstance(tool, dict) or hasattr(tool, "to_dict") or not callable(tool):
        return cast("object", tool)
    made = cast("Any", beta_async_tool if inspect.iscoroutinefunction(tool) else beta_tool)
    return made(tool)


def _written(tool: object) -> Json:
    """Return a tool as the SDK sends it."""
    return dict(cast("Any", tool if isinstance(tool, dict) else cast("Any", tool).to_dict()))


def _is_hideable(tool: object) -> bool:
    written = _written(tool)
    return "input_schema" in written and written.get("type") in (None, "custom")


def _tool(native: object) -> Tool:
    written = _written(native)
    return Tool.define(
        written["name"],
        description=written.get("description") or "",
        input_schema=written["input_schema"],
        always_load=written.get("defer_loading") is False,
    )


def _result(call: Json, work: Callable[[Any], Any]) -> Json:
    result: Json = {"type": "tool_result", "tool_use_id": call["id"]}
    try:
        return result | {"content": work(call["input"])}
    except ToolError as error:
        return result | {"content": error.content, "is_error": True}
    except Exception as error:  # as the SDK's own runner has it
        return result | {"content": repr(error), "is_error": True}


def _given(value: object, _: object) -> object:
    if isinstance(value, BaseException):
        raise value
    return value


def _replied(name: str, reply: Reply | None) -> Any:
    if reply is None:
        raise ToolError(f"Not called: there is no tool {name!r}. Find one with tool_search.")
    content = reply.to_message(Dialect.ANTHROPIC)["content"]
    if reply.is_error:
        raise ToolError(content)
    return content


def _reported(result: object, admission: Admission) -> Any:
    """Return what a tool gave, which is never nothing, behind what was repaired for it."""
    repairs = "\n".join(f"({repair})" for repair in admission.repairs)
    if result is None or isinstance(result, str):
        return "\n".join(filter(None, (repairs, result or NO_CONTENT)))
    blocks = list(cast("Iterable[object]", result)) or [{"type": "text", "text": NO_CONTENT}]
    return [{"type": "text", "text": repairs}, *blocks] if repairs else blocks


def _path(request: APIRequest) -> str:
    return request.url.partition("?")[0]


def _is_final(request: APIRequest, response: Any) -> bool:
    """Tell whether a response goes to the user as it is."""
    if not response.http_response.is_success or _path(request).endswith("/count_tokens"):
        return True
    kind = response.headers.get("content-type", "")
    if request.stream and not kind.startswith("text/event-stream"):
        raise UsageError(
            f"A wrapped client cannot read a stream of {kind!r}. Use `create` without a stream, "
            "or ToolScoutToolset."
        )
    return False


def _replaced(response: Any, **body: Any) -> Any:
    """Return a response with another body."""
    original = response.http_response
    kept = {k: v for k, v in original.headers.items() if k not in _ABOUT_BODY}
    twin = copy(response)
    twin.http_response = httpx2.Response(
        original.status_code, headers=kept, request=original.request, **body
    )
    return twin


_ABOUT_BODY = ("content-encoding", "content-length", "transfer-encoding")


def _events(response: Any) -> Iterator[Json]:
    try:
        if not response.http_response.is_success:
            yield json.loads(response.http_response.read())
            return
        for event in Stream.raw_events(response.http_response):
            if event.data:
                yield event.json()
    finally:
        response.close()


async def _events_async(response: Any) -> AsyncIterator[Json]:
    try:
        if not response.http_response.is_success:
            yield json.loads(await response.http_response.aread())
            return
        async for event in AsyncStream.raw_events(response.http_response):
            if event.data:
                yield event.json()
    finally:
        await response.close()
