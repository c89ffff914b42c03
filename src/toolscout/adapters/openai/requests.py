"""Requests of a wrapped OpenAI client, each with the rounds that it takes.

Takes what the client's user asks, with all tools; gives the next request to send, and out of what
comes back the response that the user sees. It sends nothing itself. Objects of the SDK are used by
their public members alone, so that no SDK is imported here.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, ClassVar, cast

from toolscout import Mode, Session, Settings
from toolscout.adapters._toolkit import (
    Dialect,
    Hiding,
    Json,
    Toolkit,
    add_usage,
    choose_mode,
    detect_openai,
    is_list,
    is_object,
)
from toolscout.adapters.openai.chat import Chat, Chunks
from toolscout.adapters.openai.function_tools import (
    Function,
    check_mode,
    definitions_of,
    function_of,
    is_hosted,
    tool_of,
)
from toolscout.adapters.openai.responses import Memory, Rounds, StreamMerger
from toolscout.errors import UsageError


class Wrap:
    """What the resources of one wrapped client share. `kinds` makes the SDK's objects, by type."""

    def __init__(
        self, settings: Settings | None, base_url: str, kinds: Mapping[str, Callable[..., Any]]
    ) -> None:
        self.memory, self.kinds = Memory(), kinds
        self._settings, self._base_url = settings, base_url
        self._kits: dict[tuple[Dialect, Mode], Toolkit[Function]] = {}
        if settings is not None:
            check_mode(settings.mode)

    def toolkit(self, dialect: Dialect, model: str) -> Toolkit[Function]:
        """Return the kit for a model; all requests that have the same mode share one."""
        mode = Mode.NATIVE
        if dialect is Dialect.OPENAI_RESPONSES:
            override = self._settings.mode if self._settings is not None else None
            mode = choose_mode(detect_openai(model, self._base_url), override)
        key = (dialect, mode)
        if key not in self._kits:
            settings = self._settings or Settings(hiding=Hiding.AUTO)
            self._kits[key] = Toolkit((), tool_of, settings=replace(settings, mode=mode))
        return self._kits[key]


class _Ask:
    """One request of the user, with the tools that it came with."""

    dialect: ClassVar[Dialect]

    def __init__(self, wrap: Wrap, request: Json) -> None:
        given = list(cast("Iterable[object]", request["tools"]))
        self.request, self.kinds = request, wrap.kinds
        self.hosted = [cast("Json", tool) for tool in given if is_hosted(tool)]
        natives = [function_of(tool, self.dialect) for tool in given if not is_hosted(tool)]
        self.toolkit = wrap.toolkit(self.dialect, str(request.get("model", "")))
        self.only = self.toolkit.register({native.tool.name: native for native in natives})

    def definitions(self, session: Session) -> list[Json]:
        """Return the tools of the next request, and that which the user forces."""
        forced = _forced(self.request.get("tool_choice"))
        return [*self.hosted, *definitions_of(self.toolkit, session, self.dialect, forced)]


class ChatAsk(_Ask):
    """A request of Chat Completions."""

    dialect = Dialect.OPENAI_CHAT

    def __init__(self, wrap: Wrap, request: Json) -> None:
        super().__init__(wrap, request)
        if request.get("n") not in (None, 1) and isinstance(request.get("n"), int):
            raise UsageError("A wrapped client gives one choice. Leave out `n`, or ask again.")
        self.chat = Chat(self.toolkit, _plain(request["messages"]), only=self.only)
        self.chunks = Chunks()

    def next(self) -> Json:
        """Return the next request."""
        tools = self.definitions(self.chat.session)
        return self.request | {"messages": self.chat.messages, "tools": tools}

    async def take(self, done: Any) -> Any | None:
        """Return what the user sees, or nothing where another round is due."""
        told = _plain(done)
        shown = await self.chat.take(told["choices"][0]["message"], told.get("usage"))
        if shown is None:
            return None
        told["choices"][0]["message"] = shown
        if self.chat.usage:
            told["usage"] = self.chat.usage
        return done.construct(**told)

    async def end(self) -> Iterator[Any] | None:
        """Return the last chunks of a stream, or nothing where another round is due."""
        usage, self.chunks.usage = self.chunks.usage, None
        shown = await self.chat.take(self.chunks.end_round(), usage)
        return None if shown is None else self._made(self.chunks.end(shown, self.chat.usage))

    def feed(self, chunk: Any) -> Iterator[Any]:
        """Yield what goes on at once."""
        return self._made(self.chunks.feed(_plain(chunk)))

    def _made(self, chunks: Iterator[Json]) -> Iterator[Any]:
        return (self.kinds["chunk"](**chunk) for chunk in chunks)


class ItemsAsk(_Ask):
    """A request of Responses."""

    dialect = Dialect.OPENAI_RESPONSES

    def __init__(self, wrap: Wrap, request: Json) -> None:
        super().__init__(wrap, request)
        given = _plain(request.get("input"))
        items = [{"role": "user", "content": given}] if isinstance(given, str) else given
        conversation = _plain(request.get("conversation"))
        named = conversation.get("id") if is_object(conversation) else conversation
        previous = _text(request.get("previous_response_id"))
        self.previous = wrap.memory.real(previous)
        self.conversation, self.memory = _text(named), wrap.memory
        self.rounds = Rounds(
            self.toolkit,
            [item for item in items if is_object(item)] if is_list(items) else [],
            _definition_of,
            only=self.only,
            before=self.memory,
            key=self.conversation or previous,
        )
        self.stream = StreamMerger()
        self._usage: Json = {}
        self._said: dict[str, tuple[Json, Any]] = {}

    def next(self) -> Json:
        """Return the next request."""
        tools = self.definitions(self.rounds.session)
        chain = {"previous_response_id": self.previous} if self.previous else {}
        return self.request | {"input": self.rounds.input, "tools": tools} | chain

    async def take(self, done: Any) -> Any | None:
        """Return what the user sees, or nothing where another round is due."""
        self._usage = add_usage(self._usage, _plain(done.usage) or {})
        if await self._is_due(done):
            return None
        usage = done.usage.construct(**self._usage) if done.usage is not None else None
        return done.model_copy(update={"output": self._output(), "usage": usage})

    async def end(self) -> Iterator[Any] | None:
        """Return the last events of a stream, or nothing where another round is due."""
        done = self.stream.response
        if done is None:
            return iter(())
        if await self._is_due(done):
            self.stream.next_round()
            return None
        return self.stream.end(self._output())

    def feed(self, event: Any) -> Iterator[Any]:
        """Yield what goes on at once."""
        return self.stream.feed(event)

    def _output(self) -> list[Any]:
        return [self._shown(item) for item in self.rounds.output]

    def _shown(self, item: Json) -> Any:
        """Return an item as the SDK has it; what nothing was done to is the very object."""
        said, original = self._said.get(str(item.get("id")), ({}, None))
        return original if said == item else self.kinds[str(item.get("type"))](**item)

    async def _is_due(self, done: Any) -> bool:
        output = [_bare(_plain(item)) for item in done.output]
        pairs = zip(output, done.output, strict=True)
        self._said |= {str(item.get("id")): (item, original) for item, original in pairs}
        if self.previous:
            self.previous = done.id
        if await self.rounds.take(output):
            return True
        self.memory.keep(self.rounds, done.id, self.conversation, alias=self.stream.id)
        return False


def _plain(value: object) -> Any:
    """Return what the SDK's objects say, as JSON."""
    if callable(dump := getattr(value, "to_dict", None)):
        return dump(mode="json")
    if isinstance(value, Mapping):
        return {key: _plain(inner) for key, inner in cast("Json", value).items()}
    if isinstance(value, str | bytes) or not isinstance(value, Iterable):
        return value
    return [_plain(inner) for inner in cast("Iterable[object]", value)]


def _bare(item: Json) -> Json:
    """Return an item without what the SDK has read out of it."""
    bare = {key: value for key, value in item.items() if key != "parsed_arguments"}
    if is_list(content := bare.get("content")):
        parts = [part for part in content if is_object(part)]
        bare["content"] = [{k: v for k, v in part.items() if k != "parsed"} for part in parts]
    return bare


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _forced(choice: object) -> str:
    """Return the function that a user wants to be called, in either shape."""
    if not is_object(choice) or choice.get("type") != "function":
        return ""
    function = choice.get("function")
    return str((function if is_object(function) else choice).get("name", ""))


def _definition_of(native: Function) -> Json:
    return native.definition
