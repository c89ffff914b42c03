"""`Interlude`: one request of a wrapped client, and the rounds with the model that it takes.

Takes the body of a request in Anthropic's shape and, round by round, what the model answered and
what the kit says to its calls; gives the body of the next request, and what the user of the
client sees. It sends nothing itself: the adapter does, in whichever way its SDK has.
"""

import hashlib
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Awaitable,
    Callable,
    Generator,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from dataclasses import dataclass
from typing import Any, TypeVar

from toolscout.adapters._toolkit import Kit
from toolscout.adapters.anthropic.foldings import fold_answer, fold_call, unfold
from toolscout.adapters.anthropic.references import prune
from toolscout.adapters.anthropic.streams import Splice
from toolscout.adapters.usages import add_usage
from toolscout.dialects import Dialect
from toolscout.schemas import Json, canonical_json, is_list, is_object
from toolscout.sessions.admissions import Admission
from toolscout.sessions.metatools import CALL, meta_name
from toolscout.sessions.replies import Reply
from toolscout.sessions.session import Session

ROUNDS = 10
"""Rounds that one request may take."""
PAUSED = "pause_turn"
"""How the provider says that a turn goes on once the message is sent back as it is."""
CALLING = "tool_use"

R = TypeVar("R")
T = TypeVar("T")
_Verdict = Admission | Reply | None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Round:
    """What came of one answer of the model."""

    shown: tuple[Json, ...]
    """Blocks that the user sees, with the answers that the wrapper gave."""
    goes_on: bool = False
    """Whether the model is to be asked again before the user sees an end."""
    stop_reason: str | None = None
    """How the answer ends for the user, where it is not as the model said."""


class Interlude:
    """One request on its way through several rounds."""

    def __init__(
        self,
        kit: Kit[T],
        body: Mapping[str, Any],
        tools: Callable[[Session, str], list[Json]],
        *,
        rounds: int = ROUNDS,
    ) -> None:
        """`tools` gives the definitions of a request for a session and a tool that is forced."""
        self._kit: Kit[Any] = kit
        self._body, self._tools, self._left = dict(body), tools, rounds
        natives = (tool for tool in kit.scout.catalog if kit.get(tool.name) is not None)
        self._names = {tool.leaf: tool.name for tool in natives}
        messages = unfold(_listed(body.get("messages")))
        self.session = kit.scout.rebuild(conversation_id(messages), messages, keep=False)
        self._forced = self._force(body.get("tool_choice"))
        declared = {str(tool.get("name")) for tool in tools(self.session, self._forced)}
        self._messages = prune((self._replayed(m, declared) for m in messages), declared)
        self._shown: list[Json] = []
        self._usage: Json = {}

    @property
    def request(self) -> Json:
        """The body of the next request."""
        tools = self._tools(self.session, self._forced)
        body = self._body | {"messages": list(self._messages)}
        return body | {"tools": tools} if tools else body

    async def take(self, answer: Json) -> Json | None:
        """Take a whole answer; return what the user gets, or nothing where it goes on."""
        return self._take(answer, await self._judge(*_said(answer)))

    def take_sync(self, answer: Json) -> Json | None:
        """Take a whole answer, from code that is not asynchronous."""
        return self._take(answer, self._judge_sync(*_said(answer)))

    async def stream(
        self,
        first: R,
        read: Callable[[R], AsyncIterator[Json]],
        send: Callable[[Json], Awaitable[R]],
    ) -> AsyncGenerator[Json]:
        """Yield the events that the user gets, from the first response on.

        `read` gives the events of a response, `send` the response to a body.
        """
        splice, response = Splice(), first
        while True:
            async for event in read(response):
                for passed in splice.feed(event):
                    yield passed
            if not splice.stop_reason:  # it broke off; the reader has seen how
                return
            verdicts = await self._judge(splice.blocks, splice.stop_reason)
            ended = self._close(splice.blocks, verdicts, splice.stop_reason, splice.held)
            for event in splice.end_round(ended.shown, ended.stop_reason, last=not ended.goes_on):
                yield event
            if not ended.goes_on:
                return
            response = await send(self.request)

    def stream_sync(
        self, first: R, read: Callable[[R], Iterator[Json]], send: Callable[[Json], R]
    ) -> Generator[Json]:
        """Yield the events that the user gets, from code that is not asynchronous."""
        splice, response = Splice(), first
        while True:
            for event in read(response):
                yield from splice.feed(event)
            if not splice.stop_reason:
                return
            verdicts = self._judge_sync(splice.blocks, splice.stop_reason)
            ended = self._close(splice.blocks, verdicts, splice.stop_reason, splice.held)
            yield from splice.end_round(ended.shown, ended.stop_reason, last=not ended.goes_on)
            if not ended.goes_on:
                return
            response = send(self.request)

    async def _judge(self, said: Sequence[Json], stop_reason: object) -> dict[str, _Verdict]:
        calls = calls_in(said) if stop_reason == CALLING else []
        judge = self._kit.judge
        return {c["id"]: await judge(self.session, c["name"], c["input"]) for c in calls}

    def _judge_sync(self, said: Sequence[Json], stop_reason: object) -> dict[str, _Verdict]:
        calls = calls_in(said) if stop_reason == CALLING else []
        judge = self._kit.judge_sync
        return {c["id"]: judge(self.session, c["name"], c["input"]) for c in calls}

    def _take(self, answer: Json, verdicts: Mapping[str, _Verdict]) -> Json | None:
        said, reason = _said(answer)
        taken = self._close(said, verdicts, reason, said)
        self._shown += taken.shown
        usage = answer.get("usage")
        self._usage = add_usage(self._usage, usage if is_object(usage) else {})
        if taken.goes_on:
            return None
        told = {"content": self._shown, "stop_reason": taken.stop_reason or reason}
        return answer | told | {"usage": self._usage}

    def _close(
        self,
        said: Sequence[Json],
        verdicts: Mapping[str, _Verdict],
        stop_reason: object,
        held: Sequence[Json],
    ) -> _Round:
        """End a round; `held` are those of the blocks said that the user has not seen."""
        if stop_reason != CALLING:
            # Cut off or refused: what the wrapper would answer was never really asked.
            return _Round(shown=tuple(block for block in held if not _is_meta(block)))
        shown = [_shown(block, verdicts) for block in held]
        replies = {id_: reply for id_, reply in verdicts.items() if isinstance(reply, Reply)}
        results = [reply.to_message(Dialect.ANTHROPIC, id_) for id_, reply in replies.items()]
        shown += map(fold_answer, results)
        self._left -= 1
        if not results or len(results) < len(verdicts):
            return _Round(shown=tuple(shown))
        if not self._left:
            return _Round(shown=tuple(shown), stop_reason=PAUSED)
        self._messages += [_message("assistant", said), _message("user", results)]
        return _Round(shown=tuple(shown), goes_on=True)

    def _force(self, choice: object) -> str:
        """Return the hidden tool that a request insists on, and accept a call of it (R80)."""
        wanted = choice.get("name") if is_object(choice) else None
        forced = self._names.get(wanted, "") if isinstance(wanted, str) else ""
        if is_object(choice) and forced:
            self.session.tools(Dialect.ANTHROPIC, forced=forced)
            self._body["tool_choice"] = {**choice, "name": forced}
        return forced

    def _replayed(self, message: object, declared: set[str]) -> object:
        """Return a message with the user's calls as the model made them."""
        content = message.get("content") if is_object(message) else None
        if not is_object(message) or message.get("role") != "assistant" or not is_list(content):
            return message
        return {**message, "content": [self._called(block, declared) for block in content]}

    def _called(self, block: object, declared: set[str]) -> object:
        if not is_object(block) or block.get("type") != "tool_use":
            return block
        exposed = self._names.get(str(block.get("name")))
        if exposed is None or exposed in declared:
            return {**block, "name": exposed or block.get("name")}
        inner = {"name": exposed, "arguments": block.get("input")}
        return {**block, "name": CALL, "input": inner}


def calls_in(blocks: Iterable[Mapping[str, Any]]) -> list[Json]:
    """Return the calls among the blocks of an answer."""
    return [dict(block) for block in blocks if block.get("type") == "tool_use"]


def conversation_id(messages: Sequence[object]) -> str:
    """Return a name for a conversation that stays the same as it grows."""
    return hashlib.sha256(canonical_json(messages[:1])).hexdigest()[:16]


def _shown(block: Json, verdicts: Mapping[str, _Verdict]) -> Json:
    if block.get("type") != "tool_use":
        return block
    verdict = verdicts.get(str(block.get("id")))
    if isinstance(verdict, Reply):
        return fold_call(block)
    if verdict is None:
        return block
    return {**block, "name": verdict.tool.leaf, "input": verdict.arguments}


def _is_meta(block: Json) -> bool:
    return block.get("type") == "tool_use" and bool(meta_name(str(block.get("name"))))


def _message(role: str, content: Sequence[Json]) -> Json:
    return {"role": role, "content": list(content)}


def _listed(value: object) -> list[object]:
    return value if is_list(value) else []


def _said(answer: Json) -> tuple[list[Json], object]:
    blocks = [block for block in _listed(answer.get("content")) if is_object(block)]
    return blocks, answer.get("stop_reason")
