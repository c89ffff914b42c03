"""Anthropic's SDK: the tool runner, your own loop, and clients whose loop you cannot change.

`ToolScoutToolset` hides an agent's tools behind three, for `tool_runner` and for loops over
`messages.create`. `wrap(client)` does the same inside a client. What a conversation has found is
read from its messages each time, because they are the only state that this SDK has. The mode
depends on the client's address, unless one is passed.
"""

import asyncio
import inspect
import json
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from copy import copy
from dataclasses import replace
from functools import partial
from typing import Any, TypedDict, TypeVar, Unpack, cast

from toolscout import Mode, Reply, Session, Settings, Tool
from toolscout.adapters._toolkit import (
    NO_CONTENT,
    ApprovedCall,
    Dialect,
    Json,
    Toolkit,
    ToolkitOptions,
    add_notes,
    choose_anthropic_mode,
    report_outcome,
    run_sync,
)
from toolscout.adapters.anthropic.definitions import Declarations, prune
from toolscout.adapters.anthropic.rounds import (
    LISTS_KEPT,
    ROUNDS,
    SearchLoop,
    Wrapper,
    identify,
    list_calls,
    to_plain,
    unfold,
)
from toolscout.adapters.anthropic.streams import StreamMerger, to_frame
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
    """The parts of a request that a toolset provides."""

    messages: list[Any]
    tools: list[Any]


class _Options(ToolkitOptions, total=False):
    """The options of this adapter; `hosted` leaves searching to the provider."""

    mode: Mode | str | None
    hosted: str


class ToolScoutToolset:
    """Hides the tools of an agent behind `tool_search`, `tool_describe` and `tool_call`.

    `tools` are functions, `@beta_tool` objects, the SDK's MCP tools, or definitions as JSON, which
    `run(name, arguments)` runs. Tools without a schema, such as the provider's own, are passed
    through unchanged. `hosted` leaves searching to the provider: `bm25` or `regex`.
    """

    def __init__(
        self,
        tools: Iterable[object],
        client: object = None,
        *,
        run: Callable[[str, Json], object] | None = None,
        **options: Unpack[_Options],
    ) -> None:
        given = [_to_native(tool) for tool in tools]
        self._run = run
        self._is_async = isinstance(client, AsyncAnthropic)
        self._passed = [tool for tool in given if not _is_hideable(tool)]
        for tool in given:
            name = _to_json(tool).get("name")
            if isinstance(tool, ASYNC):
                self._is_async = True
                if isinstance(client, Anthropic):
                    raise UsageError(f"Tool {name!r} is asynchronous. Use AsyncAnthropic with it.")
            elif not isinstance(tool, SYNC) and _is_hideable(tool) and run is None:
                raise UsageError(
                    f"Tool {name!r} is a definition without a function. Pass `run=`, or use "
                    "`wrap(client)` in a loop that runs the tools itself."
                )
        self._declarations = _create_declarations(given, _resolve_options(client, options))
        self.toolkit = self._declarations.toolkit

    def read_session(self, messages: Iterable[object] = ()) -> Session:
        """Return what a conversation has found so far, read from its messages."""
        plain = unfold(map(to_plain, messages))
        return self.toolkit.scout.rebuild(identify(plain), plain, keep=False)

    def request(self, messages: Iterable[object], session: Session | None = None) -> Params:
        """Return `messages` and `tools` for `tool_runner`; the tools check their calls."""
        listed = list(messages)
        session = session or self.read_session(listed)
        params = self.build_params(listed, session)
        runnable = _AsyncRunnable if self._is_async else _Runnable
        call = self._call_async if self._is_async else self._call
        tools = list(self._passed)
        for definition in params["tools"][len(self._passed) :]:
            is_own = "input_schema" in definition  # and not the provider's search
            work = partial(call, session, str(definition["name"]))
            tools.append(runnable(definition, work) if is_own else definition)
        return {"messages": params["messages"], "tools": tools}

    def build_params(self, messages: Iterable[object], session: Session) -> Params:
        """Return `messages` and `tools` for `messages.create`, in a loop of your own."""
        tools = self._declarations.list_definitions(session)
        plain = unfold(map(to_plain, messages))
        return {"messages": prune(plain, {str(tool.get("name")) for tool in tools}), "tools": tools}

    def answer(self, session: Session, content: Iterable[object]) -> list[Json]:
        """Return a result for each call in the content of a reply."""
        results: list[Json] = []
        for call in list_calls(map(to_plain, content)):
            try:
                value = self._call(session, call["name"], call["input"])
            except Exception as error:  # like the SDK's own runner
                value = error
            results.append(_make_result(call, value))
        return results

    async def answer_async(self, session: Session, content: Iterable[object]) -> list[Json]:
        """Return a result for each call in the content of a reply; tools may be asynchronous."""
        calls = list_calls(map(to_plain, content))
        started = [self._call_async(session, call["name"], call["input"]) for call in calls]
        values = await asyncio.gather(*started, return_exceptions=True)
        return [_make_result(call, value) for call, value in zip(calls, values, strict=True)]

    def _call(self, session: Session, name: str, arguments: object) -> Any:
        """Return the content of a call's result, or raise `ToolError` with one."""
        verdict = self.toolkit.handle_sync(session, name, arguments)
        if not isinstance(verdict, ApprovedCall):
            return _read_reply(verdict or session.handle_sync(name, arguments))
        with report_outcome(session, verdict):
            return _read_result(self._start(verdict), verdict)

    async def _call_async(self, session: Session, name: str, arguments: object) -> Any:
        verdict = await self.toolkit.handle(session, name, arguments)
        if not isinstance(verdict, ApprovedCall):
            return _read_reply(verdict or await session.handle(name, arguments))
        with report_outcome(session, verdict):
            if isinstance(self.toolkit.get_native(verdict), SYNC):
                result = await asyncio.to_thread(self._start, verdict)
            else:
                result = self._start(verdict)
            return _read_result(await result if inspect.isawaitable(result) else result, verdict)

    def _start(self, call: ApprovedCall) -> Any:
        native = self.toolkit.get_native(call)
        if isinstance(native, SYNC + ASYNC):
            return cast("Any", native).call(call.arguments)
        return cast("Any", self._run)(call.tool.leaf, call.arguments)


class ToolScoutMiddleware(Middleware):
    """Hides the tools of a client's requests, and answers searches inside them.

    `wrap` adds it to a client. The user's loop runs the user's tools as before. A `scout` runs the
    tools of its own servers, and serves one list of tools at a time.
    """

    def __init__(self, *, rounds: int = ROUNDS, **options: Unpack[_Options]) -> None:
        create = partial(_create_declarations, options=_resolve_options(None, options))
        kept = LISTS_KEPT if options.get("scout") is None else 1
        self._wrapper = Wrapper(create, rounds=rounds, kept=kept)

    def handle(self, request: APIRequest, call_next: Callable[[APIRequest], Any]) -> Any:
        """Answer a request of a synchronous client."""
        key = str(request.options.idempotency_key)
        loop = self._wrapper.begin(_read_path(request), request.json, key)
        if loop is None:
            return call_next(request)
        while True:
            response = call_next(request.copy(body=loop.request))
            if _is_final(request, response):
                return response
            if request.stream:
                return _replace_body(response, stream=_Frames(loop, response, request, call_next))
            whole = json.loads(response.http_response.read())
            final = run_sync(partial(loop.take, whole))
            if final is not None:
                self._wrapper.forget(key)
                return _replace_body(response, content=json.dumps(final).encode())
            self._wrapper.keep(key, loop)

    async def handle_async(
        self, request: APIRequest, call_next: Callable[[APIRequest], Any]
    ) -> Any:
        """Answer a request of an asynchronous client."""
        key = str(request.options.idempotency_key)
        # In a thread, because the first request with a list of tools indexes it.
        begin = partial(self._wrapper.begin, _read_path(request), request.json, key)
        loop = await asyncio.to_thread(begin)
        if loop is None:
            return await call_next(request)
        while True:
            response = await call_next(request.copy(body=loop.request))
            if _is_final(request, response):
                return response
            if request.stream:
                frames = _AsyncFrames(loop, response, request, call_next)
                return _replace_body(response, stream=frames)
            final = await loop.take(json.loads(await response.http_response.aread()))
            if final is not None:
                self._wrapper.forget(key)
                return _replace_body(response, content=json.dumps(final).encode())
            self._wrapper.keep(key, loop)


def wrap(client: ClientT, *, rounds: int = ROUNDS, **options: Unpack[_Options]) -> ClientT:
    """Return a client that hides the tools of its requests, and is used like the original."""
    middleware = ToolScoutMiddleware(rounds=rounds, **_resolve_options(client, options))
    return cast("Any", client).with_middleware(middleware)


class _Checked:
    """A tool of the runner that checks its calls."""

    def __init__(self, definition: Json, work: Callable[[object], Any]) -> None:
        self._definition = definition
        self._work = work

    def to_dict(self) -> Any:
        return self._definition


class _Runnable(_Checked, BetaBuiltinFunctionTool):
    def call(self, input: object) -> Any:  # noqa: A002  # as in the base
        return self._work(input)


class _AsyncRunnable(_Checked, BetaAsyncBuiltinFunctionTool):
    async def call(self, input: object) -> Any:  # noqa: A002  # as in the base
        return await self._work(input)


class _Rounds:
    """The body of a response that streams the events of all rounds, from the first response."""

    def __init__(
        self, loop: SearchLoop, first: Any, request: APIRequest, call_next: Callable[..., Any]
    ) -> None:
        self._loop = loop
        self._response = first
        self._send = lambda: call_next(request.copy(body=loop.request))


class _Frames(_Rounds, httpx2.SyncByteStream):
    def __iter__(self) -> Iterator[bytes]:
        merger = StreamMerger()
        while True:
            response = self._response.http_response
            if not response.is_success:
                yield to_frame(json.loads(response.read()))
                return
            for event in Stream.raw_events(response):
                if event.data:
                    yield from map(to_frame, merger.feed(event.json()))
            events, goes_on = run_sync(partial(self._loop.end_round, merger))
            yield from map(to_frame, events)
            if not goes_on:
                return
            self._response = self._send()

    def close(self) -> None:
        self._response.close()


class _AsyncFrames(_Rounds, httpx2.AsyncByteStream):
    async def __aiter__(self) -> AsyncIterator[bytes]:
        merger = StreamMerger()
        while True:
            response = self._response.http_response
            if not response.is_success:
                yield to_frame(json.loads(await response.aread()))
                return
            async for event in AsyncStream.raw_events(response):
                if event.data:
                    for passed in merger.feed(event.json()):
                        yield to_frame(passed)
            events, goes_on = await self._loop.end_round(merger)
            for event in events:
                yield to_frame(event)
            if not goes_on:
                return
            self._response = await self._send()

    async def aclose(self) -> None:
        await self._response.close()


def _resolve_options(client: object, options: _Options) -> _Options:
    """Return the options with the settings that follow from the mode or the client's address."""
    settings, mode = options.get("settings"), options.get("mode")
    hosted = options.get("hosted", "")
    if options.get("scout") is not None:
        if mode is not None or hosted:
            raise UsageError("Pass a mode or a scout, not both: the scout's settings have a mode.")
        return options
    if hosted:  # the provider searches, so toolscout does not know what it found
        settings = replace(settings or Settings(), mode=Mode.REFERENCE, calls_by_name=True)
    elif settings is None or mode is not None:
        address = str(getattr(client, "base_url", ""))
        settings = replace(settings or Settings(), mode=mode or choose_anthropic_mode(address))
    return {"hosted": hosted, "settings": settings}


def _create_declarations(tools: Iterable[object], options: _Options) -> Declarations[object]:
    given = list(tools)
    passed = [_to_json(tool) for tool in given if not _is_hideable(tool)]
    hidden = [tool for tool in given if _is_hideable(tool)]
    toolkit = Toolkit(hidden, _define, scout=options.get("scout"), settings=options.get("settings"))
    return Declarations(toolkit, _to_json, passed=passed, hosted=options.get("hosted", ""))


def _to_native(tool: object) -> object:
    """Return a tool of the SDK; a function becomes one."""
    if isinstance(tool, dict) or hasattr(tool, "to_dict") or not callable(tool):
        return cast("object", tool)
    made = cast("Any", beta_async_tool if inspect.iscoroutinefunction(tool) else beta_tool)
    return made(tool)


def _to_json(tool: object) -> Json:
    """Return a tool as the SDK sends it."""
    return dict(cast("Any", tool if isinstance(tool, dict) else cast("Any", tool).to_dict()))


def _is_hideable(tool: object) -> bool:
    definition = _to_json(tool)
    return "input_schema" in definition and definition.get("type") in (None, "custom")


def _define(native: object) -> Tool:
    definition = _to_json(native)
    return Tool.define(
        definition["name"],
        description=definition.get("description") or "",
        input_schema=definition["input_schema"],
        always_load=definition.get("defer_loading") is False,
    )


def _make_result(call: Json, value: object) -> Json:
    """Return the result of a call from its content or the exception that it raised."""
    result: Json = {"type": "tool_result", "tool_use_id": call["id"]}
    if isinstance(value, ToolError):
        return result | {"content": value.content, "is_error": True}
    if isinstance(value, Exception):
        return result | {"content": repr(value), "is_error": True}
    if isinstance(value, BaseException):
        raise value
    return result | {"content": value}


def _read_reply(reply: Reply) -> Any:
    content = reply.to_message(Dialect.ANTHROPIC)["content"]
    if reply.is_error:
        raise ToolError(content)
    return content


def _read_result(result: object, call: ApprovedCall) -> Any:
    """Return the content of a tool's result, which is never empty, after notes on repairs."""
    if result is None or isinstance(result, str):
        return add_notes(call, result or NO_CONTENT)
    blocks = list(cast("Iterable[object]", result)) or [{"type": "text", "text": NO_CONTENT}]
    notes = "\n".join(call.notes)
    return [{"type": "text", "text": notes}, *blocks] if notes else blocks


def _read_path(request: APIRequest) -> str:
    return request.url.partition("?")[0]


def _is_final(request: APIRequest, response: Any) -> bool:
    """Tell whether a response goes to the user unchanged."""
    if not response.http_response.is_success or _read_path(request).endswith("/count_tokens"):
        return True
    kind = response.headers.get("content-type", "")
    if request.stream and not kind.startswith("text/event-stream"):
        raise UsageError(
            f"A wrapped client cannot read a stream of {kind!r}. Use `create` without a stream, "
            "or ToolScoutToolset."
        )
    return False


def _replace_body(response: Any, **body: Any) -> Any:
    """Return a response with another body."""
    original = response.http_response
    about_body = ("content-encoding", "content-length", "transfer-encoding")
    kept = {k: v for k, v in original.headers.items() if k not in about_body}
    twin = copy(response)
    twin.http_response = httpx2.Response(
        original.status_code, headers=kept, request=original.request, **body
    )
    return twin
