"""Requests of a wrapped OpenAI client, each with the rounds that it takes.

A request of the user comes with all tools. These classes build the next request to send, and from
the responses the one that the user gets. They send nothing themselves, and use only public members
of the SDK's objects, so that no SDK is imported here.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from operator import attrgetter
from typing import Any, ClassVar, cast

from toolscout import Mode, Session, Settings
from toolscout.adapters._toolkit import (
    Dialect,
    Hiding,
    Json,
    Toolkit,
    add_usage,
    choose_openai_mode,
    is_list,
    is_object,
)
from toolscout.adapters.openai.chat import ChatLoop, ChunkMerger
from toolscout.adapters.openai.function_tools import (
    Function,
    check_mode,
    list_definitions,
    split_tools,
)
from toolscout.adapters.openai.responses import Memory, ResponsesLoop, StreamMerger
from toolscout.errors import UsageError


class WrappedClient:
    """What the resources of one client share. `kinds` creates the SDK's objects by type."""

    def __init__(
        self, settings: Settings | None, base_url: str, kinds: Mapping[str, Callable[..., Any]]
    ) -> None:
        self.memory = Memory()
        self.kinds = kinds
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
    """One request of the user, with its tools."""

    dialect: ClassVar[Dialect]

    def __init__(self, client: WrappedClient, request: Json) -> None:
        self.request = request
        self.kinds = client.kinds
        self.hosted, natives = split_tools(request["tools"], self.dialect)
        self.toolkit = client.get_toolkit(self.dialect, str(request.get("model", "")))
        self.only = self.toolkit.register({native.tool.name: native for native in natives})

    def list_tools(self, session: Session) -> list[Json]:
        """Return the tools of the next request, including one that the user forces."""
        forced = _read_forced(self.request.get("tool_choice"))
        return [*self.hosted, *list_definitions(self.toolkit, session, self.dialect, forced)]


class ChatRequest(_Request):
    """A request to Chat Completions."""

    dialect = Dialect.OPENAI_CHAT

    def __init__(self, client: WrappedClient, request: Json) -> None:
        super().__init__(client, request)
        if request.get("n") not in (None, 1) and isinstance(request.get("n"), int):
            raise UsageError("A wrapped client returns one choice. Leave out `n`.")
        self.chat = ChatLoop(self.toolkit, _to_json(request["messages"]), only=self.only)
        self.chunks = ChunkMerger()

    def build_next(self) -> Json:
        """Return the next request."""
        tools = self.list_tools(self.chat.session)
        return self.request | {"messages": self.chat.messages, "tools": tools}

    async def take(self, done: Any) -> Any | None:
        """Return the response for the user, or None if another round is due."""
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
        """Return the last chunks of a stream, or None if another round is due."""
        usage = self.chunks.usage
        self.chunks.usage = None
        message = await self.chat.take(self.chunks.end_round(), usage)
        if message is None:
            return None
        last = self.chunks.end(message, self.chat.usage)
        return (self.kinds["chunk"](**chunk) for chunk in last)

    def feed(self, chunk: Any) -> Iterator[Any]:
        """Yield what is forwarded at once."""
        return (self.kinds["chunk"](**passed) for passed in self.chunks.feed(_to_json(chunk)))


class ResponsesRequest(_Request):
    """A request to Responses."""

    dialect = Dialect.OPENAI_RESPONSES

    def __init__(self, client: WrappedClient, request: Json) -> None:
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
        """Return the next request."""
        tools = self.list_tools(self.rounds.session)
        chain = {"previous_response_id": self.previous} if self.previous else {}
        return self.request | {"input": self.rounds.input, "tools": tools} | chain

    async def take(self, done: Any) -> Any | None:
        """Return the response for the user, or None if another round is due."""
        self._usage = add_usage(self._usage, _to_json(done.usage) or {})
        if await self._is_due(done):
            return None
        usage = done.usage.construct(**self._usage) if done.usage is not None else None
        return done.model_copy(update={"output": self._create_output(), "usage": usage})

    async def end(self) -> Iterator[Any] | None:
        """Return the last events of a stream, or None if another round is due."""
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
            output.append(original if said == item else self.kinds[str(item.get("type"))](**item))
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
