"""`ChatLoop`: one request of a host to Chat Completions, and the searches inside it. All is JSON.

The host gets a message with calls of its own tools only. The rounds before it are dropped, but the
message lists the tools that they loaded in one member (`toolscout`), and the next request shows
these tools in the same places. If a host drops the member, the tools that it called are loaded
anyway: a call that reached the host was approved.

`ChunkMerger` merges the streams of several rounds into one.
"""

import json
from collections.abc import Collection, Iterable, Iterator
from typing import Generic, TypeVar

from toolscout import Reply
from toolscout.adapters._toolkit import (
    ApprovedCall,
    Dialect,
    Json,
    Toolkit,
    add_usage,
    is_list,
    is_object,
    load_by_name,
    to_object,
)
from toolscout.adapters.openai.responses import ROUNDS_LIMIT
from toolscout.errors import UsageError

T = TypeVar("T")

MEMBER = "toolscout"


class ChatLoop(Generic[T]):
    """One request of a host, and the rounds that it takes."""

    def __init__(
        self, toolkit: Toolkit[T], messages: Iterable[Json], *, only: Collection[str] | None = None
    ) -> None:
        given = list(messages)
        self.session = toolkit.open_session("chat", only=only)
        self.messages = [{k: v for k, v in m.items() if k != MEMBER} for m in given]
        """The messages of the next request."""
        self.usage: Json = {}
        self._toolkit = toolkit
        self._count = 0
        for message in given:
            self._restore(message)

    async def take(self, message: Json, usage: Json | None = None) -> Json | None:
        """Return the message for the host, or None if the model must be asked again."""
        self.usage = add_usage(self.usage, usage or {})
        theirs: list[Json] = []
        answers: list[Json] = []
        for call in _list_calls(message):
            verdict = await self._handle(call)
            if isinstance(verdict, Reply):
                answers.append(verdict.to_message(Dialect.OPENAI_CHAT, str(call.get("id"))))
            else:
                theirs.append(_rename_call(call, verdict) if verdict is not None else call)
        if answers and not theirs:
            self._continue(message, answers)
            return None
        return self._create_message(message, theirs)

    async def _handle(self, call: Json) -> ApprovedCall | Reply | None:
        function = call.get("function")
        if not is_object(function):
            return None
        name, arguments = str(function.get("name")), function.get("arguments")
        given = to_object(arguments) or arguments
        verdict = await self._toolkit.handle(self.session, name, given)
        if isinstance(verdict, ApprovedCall):
            self.session.settle(verdict)
        return verdict or await self.session.handle(name, given)

    def _continue(self, message: Json, answers: list[Json]) -> None:
        self._count += 1
        if self._count >= ROUNDS_LIMIT:
            raise UsageError(
                f"The model did nothing but search in {self._count} rounds of one turn. "
                "Check its instructions and the descriptions of the tools."
            )
        self.messages += [message, *answers]

    def _create_message(self, message: Json, theirs: list[Json]) -> Json:
        shown = {k: v for k, v in message.items() if k != "tool_calls"}
        if theirs:
            shown["tool_calls"] = theirs
        loaded = list(self.session.loaded)
        return shown | ({MEMBER: loaded} if loaded else {})

    def _restore(self, message: Json) -> None:
        if message.get("role") != "assistant":
            return
        named = message.get(MEMBER)
        names = [str(name) for name in named] if is_list(named) else []
        for call in _list_calls(message):
            function = call.get("function")
            if is_object(function):
                names.append(str(function.get("name")))
        load_by_name(self.session, names)


class ChunkMerger:
    """The streams of several rounds as one: text is forwarded at once, calls at the end."""

    def __init__(self) -> None:
        self.message: Json = {"role": "assistant", "content": None}
        """The message of this round."""
        self.usage: Json | None = None
        self._calls: dict[int, Json] = {}
        self._first: Json = {}
        self._last: Json = {}
        self._metered: Json = {}

    def feed(self, chunk: Json) -> Iterator[Json]:
        """Process a chunk; yield what is forwarded at once."""
        if not self._first:
            self._first = chunk
        choice = next(iter(chunk.get("choices") or ()), None)
        if is_object(chunk.get("usage")):
            self.usage = chunk["usage"]
            self._metered = chunk
        if not is_object(choice):
            return
        if choice.get("finish_reason"):
            self._last = chunk
        delta = choice.get("delta")
        passed = self._read(delta) if is_object(delta) else {}
        if passed:
            yield self._create_chunk(chunk, passed)

    def end_round(self) -> Json:
        """Return the message of the round, and begin another."""
        message = self.message
        if self._calls:
            message["tool_calls"] = [self._calls[at] for at in sorted(self._calls)]
        self.message = {"role": "assistant", "content": None}
        self._calls = {}
        return message

    def end(self, message: Json, usage: Json) -> Iterator[Json]:
        """Yield the calls of the message for the host, and the end of the stream."""
        calls = [call | {"index": at} for at, call in enumerate(_list_calls(message))]
        delta: Json = {"tool_calls": calls} if calls else {}
        if message.get(MEMBER):
            delta[MEMBER] = message[MEMBER]
        if delta:
            yield self._create_chunk(self._last or self._first, delta)
        if self._last:
            yield self._create_chunk(self._last, {}, ending=True)
        if self._metered:
            yield self._metered | {"id": self._first.get("id"), "choices": [], "usage": usage}

    def _read(self, delta: Json) -> Json:
        """Collect a delta; return the part to forward."""
        passed = {k: v for k, v in delta.items() if k not in ("tool_calls", "role") and v}
        if delta.get("content"):
            self.message["content"] = (self.message["content"] or "") + str(delta["content"])
        for call in _list_calls(delta):
            self._gather(call)
        if delta.get("role") and "role" not in self._first:
            self._first = self._first | {"role": delta["role"]}
            passed = {"role": delta["role"]} | passed
        return passed

    def _gather(self, piece: Json) -> None:
        at = int(piece.get("index") or 0)
        call = self._calls.setdefault(at, {"type": "function", "function": {"arguments": ""}})
        call |= {k: v for k, v in piece.items() if k in ("id", "type") and v}
        function = piece.get("function")
        if is_object(function):
            mine = call["function"]
            mine["name"] = mine.get("name") or function.get("name")
            mine["arguments"] += function.get("arguments") or ""

    def _create_chunk(self, chunk: Json, delta: Json, *, ending: bool = False) -> Json:
        choice = (chunk.get("choices") or [{"index": 0}])[0]
        reason = choice.get("finish_reason") if ending else None
        members = {k: v for k, v in chunk.items() if k not in ("usage", "role")}
        return members | {
            "id": self._first.get("id"),
            "choices": [choice | {"delta": delta, "finish_reason": reason}],
        }


def _list_calls(message: Json) -> list[Json]:
    calls = message.get("tool_calls")
    return [call for call in calls if is_object(call)] if is_list(calls) else []


def _rename_call(call: Json, approved: ApprovedCall) -> Json:
    """Return a call by the tool's own name, with the approved arguments."""
    arguments = call["function"].get("arguments")
    if to_object(arguments) != approved.arguments:
        arguments = json.dumps(approved.arguments, ensure_ascii=False)
    return call | {"function": {"name": approved.tool.name, "arguments": arguments}}
