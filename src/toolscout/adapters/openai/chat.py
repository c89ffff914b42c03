"""`ChatLoop`: one request of a host to Chat Completions, and the searches inside it. All is JSON.

The host gets a message with calls of its own tools only. The rounds before it are dropped, but the
message lists the tools that they loaded in one member (`toolscout`), and the next request shows
these tools in the same places. If a host drops the member, the tools that it called are loaded
anyway: a call that reached the host was approved.

`ChunkMerger` merges the streams of several rounds into one.
"""

from collections.abc import Collection, Iterable, Iterator
from typing import Any

from toolscout import Reply
from toolscout.adapters._toolkit import (
    Dialect,
    Json,
    Toolkit,
    add_usage,
    is_list,
    is_object,
    load_by_name,
)
from toolscout.adapters.openai.function_tools import list_message_calls
from toolscout.adapters.openai.responses import check_rounds, handle_call, write_arguments

MEMBER = "toolscout"


class ChatLoop:
    """One request of a host, and the rounds that it takes."""

    def __init__(
        self, toolkit: Toolkit[Any], messages: Iterable[Json], only: Collection[str] | None = None
    ) -> None:
        given = list(messages)
        self.session = toolkit.open_session("chat", only=only)
        self.messages = [{k: v for k, v in m.items() if k != MEMBER} for m in given]
        """The messages of the next request."""
        self.usage: Json = {}
        self._toolkit = toolkit
        self._count = 0
        for message in given:
            if message.get("role") == "assistant":
                named = message.get(MEMBER)
                called = [call.name for call in list_message_calls(message)]
                load_by_name(self.session, [*map(str, named if is_list(named) else ()), *called])

    async def take(self, message: Json, usage: Json | None = None) -> Json | None:
        """Return the message for the host, or None if the model must be asked again."""
        self.usage = add_usage(self.usage, usage or {})
        theirs: list[Json] = []
        answers: list[Json] = []
        for call in _list_calls(message):
            function = call.get("function")
            if not is_object(function):
                theirs.append(call)
                continue
            name = str(function.get("name"))
            arguments = function.get("arguments")
            verdict = await handle_call(self._toolkit, self.session, name, arguments)
            if isinstance(verdict, Reply):
                answers.append(verdict.to_message(Dialect.OPENAI_CHAT, str(call.get("id"))))
            else:
                written = write_arguments(arguments, verdict)
                theirs.append(
                    call | {"function": {"name": verdict.tool.name, "arguments": written}}
                )
        if answers and not theirs:
            self._count += 1
            check_rounds(self._count)
            self.messages += [message, *answers]
            return None
        shown = {k: v for k, v in message.items() if k != "tool_calls"}
        if theirs:
            shown["tool_calls"] = theirs
        if self.session.loaded:
            shown[MEMBER] = list(self.session.loaded)
        return shown


class ChunkMerger:
    """The streams of several rounds as one: text is forwarded at once, calls at the end."""

    def __init__(self) -> None:
        self.usage: Json | None = None
        self._text: str | None = None
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
        message: Json = {"role": "assistant", "content": self._text}
        if self._calls:
            message["tool_calls"] = [self._calls[at] for at in sorted(self._calls)]
        self._text = None
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
            self._text = (self._text or "") + str(delta["content"])
        for piece in _list_calls(delta):
            at = int(piece.get("index") or 0)
            call = self._calls.setdefault(at, {"type": "function", "function": {"arguments": ""}})
            call |= {k: v for k, v in piece.items() if k in ("id", "type") and v}
            function = piece.get("function")
            if is_object(function):
                mine = call["function"]
                mine["name"] = mine.get("name") or function.get("name")
                mine["arguments"] += function.get("arguments") or ""
        if delta.get("role") and "role" not in self._first:
            self._first = self._first | {"role": delta["role"]}
            passed = {"role": delta["role"]} | passed
        return passed

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
