"""`SearchLoop`: one request of a wrapped client, and the rounds with the model that it takes.

Takes the body of a request in Anthropic's shape and, round by round, what the model answered and
what the kit says to its calls; gives the body of the next request, and what the user of the
client sees. It sends nothing itself: the adapter does, in whichever way its SDK has.

Rounds that a wrapper has with a model on its own, folded into one message of the assistant.

A wrapped client answers searches itself and gives its user one message. In it a search looks as if
the provider had made it: `server_tool_use`, then `tool_search_tool_result`. The user sends that
message back as it is, and `unfold` makes the rounds of it again, as the model had them. So nothing
has to be remembered between requests. Everything here is JSON in Anthropic's shape.

What a round got as answers stands behind all that the model said in it: there the round ends.

`Wrapper`: what a wrapped client of Anthropic's API knows between its requests.

It begins the interlude of each request that is about tools, keeps the lists of tools that it was
given indexed, and takes a request up where it failed when the SDK repeats it. What a conversation
has found is not among it: that is read from the messages of each request.
"""

import hashlib
import json
from collections import OrderedDict
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
from threading import Lock
from typing import Any, TypeGuard, TypeVar, cast

from toolscout import Reply, Session
from toolscout.adapters._toolkit import (
    CALL,
    Admission,
    Dialect,
    Json,
    Toolkit,
    add_usage,
    is_list,
    is_object,
    meta_name,
    to_canonical_json,
)
from toolscout.adapters.anthropic.definitions import Declarations, prune
from toolscout.adapters.anthropic.streams import StreamMerger
from toolscout.errors import UsageError

MARK = "srvtoolu_scout_"
"""What the ids of folded calls begin with; the provider's own searches have other ids."""
LOST = "No answer to this call was kept. Search again."

_HOSTED_NAME = "tool_search_tool_bm25"
_CALL_KEYS = ("name", "input")


def fold_call(call: Mapping[str, Any]) -> Json:
    """Return a call that the wrapper answers, as the user sees it."""
    asked = {key: call.get(key) for key in _CALL_KEYS}
    id_ = f"{MARK}{call.get('id')}"
    return {"type": "server_tool_use", "id": id_, "name": _HOSTED_NAME, "input": asked}


def fold_answer(result: Mapping[str, Any]) -> Json:
    """Return the answer to such a call; references stand where the provider's own would."""
    content = result.get("content")
    found: Json = {"type": "tool_search_tool_search_result", "tool_references": []}
    if _is_referring(content):
        found["tool_references"] = content
    else:
        found["answer"] = content
        if result.get("is_error") is True:
            found["is_error"] = True
    id_ = f"{MARK}{result.get('tool_use_id')}"
    return {"type": "tool_search_tool_result", "tool_use_id": id_, "content": found}


def unfold(messages: Iterable[object]) -> list[object]:
    """Return a conversation as the model had it; messages without folded rounds are unchanged."""
    unfolded: list[object] = []
    waiting: list[Json] = []
    for message in messages:
        content = message.get("content") if _is_mapping(message) else None
        if is_folded(message):
            unfolded += _turn(waiting)
            rounds, waiting = _rounds(cast("list[object]", content))
            unfolded += rounds
        elif waiting and _is_mapping(message) and message.get("role") == "user":
            unfolded.append({**message, "content": [*waiting, *_blocks(content)]})
            waiting = []
        else:
            unfolded += [*_turn(waiting), message]
            waiting = []
    return [*unfolded, *_turn(waiting)]


def is_folded(message: object) -> bool:
    """Tell whether a message holds rounds that `unfold` takes apart."""
    if not _is_mapping(message) or message.get("role") != "assistant":
        return False
    content = message.get("content")
    return is_list(content) and any(_is_ours(block, "id") for block in content)


def to_plain(value: object) -> Any:
    """Return a message or a block as JSON; an SDK's replies hold objects."""
    dump = getattr(value, "model_dump", None)
    if callable(dump):
        return dump(mode="json", exclude_unset=True)
    content = value.get("content") if _is_mapping(value) else None
    if _is_mapping(value) and is_list(content):
        return {**value, "content": [to_plain(block) for block in content]}
    return value


def _rounds(content: Sequence[object]) -> tuple[list[object], list[Json]]:
    """Return the turns in a folded message, and the answers that the last one waits for."""
    turns: list[object] = []
    said: list[object] = []
    answers: dict[str, Json] = {}
    for block in content:
        if _is_ours(block, "tool_use_id"):
            answer = _answer(block)
            answers[str(answer["tool_use_id"])] = answer
            continue
        if answers:
            turns += [_history_message("assistant", said), *_turn(_answered(said, answers))]
            said, answers = [], {}
        said.append(_call(block) if _is_ours(block, "id") else block)
    turns.append(_history_message("assistant", said))
    ours = {block["id"].removeprefix(MARK) for block in content if _is_ours(block, "id")}
    return turns, _answered([b for b in said if _is_mapping(b) and b.get("id") in ours], answers)


def _answered(said: Sequence[object], answers: Mapping[str, Json]) -> list[Json]:
    """Return the answers to the calls of a round, each call exactly one."""
    calls = [block for block in said if _is_mapping(block) and block.get("type") == "tool_use"]
    lost: Json = {"type": "tool_result", "content": LOST, "is_error": True}
    return [answers.get(call["id"]) or lost | {"tool_use_id": call["id"]} for call in calls]


def _call(block: Mapping[str, Any]) -> Json:
    asked = block.get("input")
    given = asked if is_object(asked) else {}
    id_ = str(block["id"]).removeprefix(MARK)
    return {"type": "tool_use", "id": id_, **{key: given.get(key) for key in _CALL_KEYS}}


def _answer(block: Mapping[str, Any]) -> Json:
    content = block.get("content")
    found: Mapping[str, Any] = content if _is_mapping(content) else {}
    id_ = str(block["tool_use_id"]).removeprefix(MARK)
    told = found.get("tool_references") or found.get("answer") or LOST
    answer: Json = {"type": "tool_result", "tool_use_id": id_, "content": told}
    return answer | ({"is_error": True} if found.get("is_error") is True else {})


def _turn(answers: Sequence[Json]) -> list[object]:
    return [_history_message("user", answers)] if answers else []


def _history_message(role: str, content: Sequence[object]) -> Json:
    return {"role": role, "content": list(content)}


def _blocks(content: object) -> list[object]:
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return content if is_list(content) else []


def _is_ours(block: object, key: str) -> TypeGuard[Mapping[str, Any]]:
    return _is_mapping(block) and str(block.get(key, "")).startswith(MARK)


def _is_referring(content: object) -> bool:
    blocks = content if is_list(content) else []
    kinds = [block.get("type") for block in blocks if _is_mapping(block)]
    return bool(kinds) and set(kinds) == {"tool_reference"}


def _is_mapping(value: object) -> TypeGuard[Mapping[str, Any]]:
    return isinstance(value, Mapping)


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


class SearchLoop:
    """One request on its way through several rounds."""

    def __init__(
        self,
        toolkit: Toolkit[T],
        body: Mapping[str, Any],
        tools: Callable[[Session, str], list[Json]],
        *,
        rounds: int = ROUNDS,
    ) -> None:
        """`tools` gives the definitions of a request for a session and a tool that is forced."""
        self._toolkit: Toolkit[Any] = toolkit
        self._body, self._tools, self._left = dict(body), tools, rounds
        natives = (tool for tool in toolkit.scout.catalog if toolkit.get(tool.name) is not None)
        self._names = {tool.leaf: tool.name for tool in natives}
        messages = unfold(_listed(body.get("messages")))
        self.session = toolkit.scout.rebuild(conversation_id(messages), messages, keep=False)
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
        splice, response = StreamMerger(), first
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
        splice, response = StreamMerger(), first
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
        handle = self._toolkit.handle
        return {c["id"]: await handle(self.session, c["name"], c["input"]) for c in calls}

    def _judge_sync(self, said: Sequence[Json], stop_reason: object) -> dict[str, _Verdict]:
        calls = calls_in(said) if stop_reason == CALLING else []
        handle = self._toolkit.handle_sync
        return {c["id"]: handle(self.session, c["name"], c["input"]) for c in calls}

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
    return hashlib.sha256(to_canonical_json(messages[:1])).hexdigest()[:16]


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


LISTS_KEPT = 8
INTERRUPTED_KEPT = 64


class Wrapper:
    """The interludes of one client."""

    def __init__(
        self,
        make: Callable[[Iterable[object]], Declarations[Any]],
        *,
        rounds: int = ROUNDS,
        kept: int = LISTS_KEPT,
    ) -> None:
        """`make` gives the declarations of a request's tools, of which `kept` stay indexed."""
        self._make, self._rounds, self._kept = make, rounds, kept
        self._declared: OrderedDict[str, Declarations[Any]] = OrderedDict()
        self._interrupted: OrderedDict[str, SearchLoop] = OrderedDict()
        self._lock = Lock()

    def begin(self, path: str, body: object, key: str) -> SearchLoop | None:
        """Return the interlude of a request, or nothing for one that is not about tools.

        `key` names the request; a repetition has the same.
        """
        if not path.endswith(("/messages", "/count_tokens")) or not is_object(body):
            return None
        tools, messages = body.get("tools"), body.get("messages")
        if not tools and not (is_list(messages) and any(map(is_folded, messages))):
            return None
        _check_whole(body)
        with self._lock:
            interrupted = self._interrupted.pop(key, None)
        if interrupted is not None:
            return interrupted
        declarations = self._declarations(tools if is_list(tools) else [])
        return SearchLoop(declarations.toolkit, body, declarations.definitions, rounds=self._rounds)

    def keep(self, key: str, interlude: SearchLoop) -> None:
        """Note that a request has more rounds to go, should one of them fail."""
        with self._lock:
            self._interrupted[key] = interlude
            while len(self._interrupted) > INTERRUPTED_KEPT:
                self._interrupted.popitem(last=False)

    def forget(self, key: str) -> None:
        """Note that a request is done."""
        with self._lock:
            self._interrupted.pop(key, None)

    def _declarations(self, tools: list[object]) -> Declarations[Any]:
        key = json.dumps(tools, sort_keys=True)
        with self._lock:
            declarations = self._declared.pop(key, None) or self._make(tools)
            self._declared[key] = declarations
            while len(self._declared) > self._kept:
                self._declared.popitem(last=False)
            return declarations


def _check_whole(body: Mapping[str, Any]) -> None:
    if is_object(body.get("thread")):
        raise UsageError(
            "A wrapped client needs the whole conversation in every request, and this request "
            "has a server thread. Pass `thread=False`, or use ToolScoutToolset in the runner."
        )
