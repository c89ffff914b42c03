"""A wrapped client's requests, each with the rounds that it takes. Everything here is JSON.

A `SearchLoop` answers the searches of one request until the model calls a tool of the user's. A
`Wrapper` is what a client knows between requests. Neither sends anything: the adapter does.

The user gets one message for all rounds, in which a search looks as if the provider had made it:
`server_tool_use`, then `tool_search_tool_result`, after everything that the model wrote in that
round. The user sends the message back unchanged, and `unfold` restores the rounds from it, so
nothing has to be remembered between requests.
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
    ApprovedCall,
    Dialect,
    Json,
    Toolkit,
    add_usage,
    is_list,
    is_object,
    to_canonical_json,
    to_meta_name,
)
from toolscout.adapters.anthropic.definitions import Declarations, prune
from toolscout.adapters.anthropic.streams import StreamMerger
from toolscout.errors import UsageError

ROUNDS = 10
"""How many rounds one request may take."""
LISTS_KEPT = 8
"""How many lists of tools a client keeps indexed."""
INTERRUPTED_KEPT = 64
"""How many interrupted requests a client remembers."""
PAUSED = "pause_turn"
"""The stop reason of a turn that continues when the message is sent back."""
CALLING = "tool_use"
MARK = "srvtoolu_scout_"
"""The prefix of the ids of folded calls; the provider's own searches have other ids."""
LOST = "No answer to this call was kept. Search again."

_HOSTED_NAME = "tool_search_tool_bm25"
_CALL_KEYS = ("name", "input")

R = TypeVar("R")
T = TypeVar("T")
_Verdict = ApprovedCall | Reply | None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Round:
    """The outcome of one response of the model."""

    shown: tuple[Json, ...]
    """Blocks for the user, with the answers that the wrapper gave."""
    goes_on: bool = False
    """Whether the model must be asked again before the user gets the message."""
    stop_reason: str | None = None
    """The stop reason for the user, if it differs from the model's."""


class SearchLoop:
    """One request of the user, and the rounds in which the model searches."""

    def __init__(
        self,
        toolkit: Toolkit[T],
        body: Mapping[str, Any],
        tools: Callable[[Session, str], list[Json]],
        *,
        rounds: int = ROUNDS,
    ) -> None:
        """`tools` returns the definitions of a request for a session and a forced tool."""
        self._toolkit: Toolkit[Any] = toolkit
        self._body = dict(body)
        self._tools = tools
        self._left = rounds
        natives = (tool for tool in toolkit.scout.catalog if toolkit.get(tool.name) is not None)
        self._names = {tool.leaf: tool.name for tool in natives}
        messages = unfold(_to_list(body.get("messages")))
        self.session = toolkit.scout.rebuild(identify(messages), messages, keep=False)
        self._forced = self._force(body.get("tool_choice"))
        declared = {str(tool.get("name")) for tool in tools(self.session, self._forced)}
        self._messages = prune((self._restore_calls(m, declared) for m in messages), declared)
        self._shown: list[Json] = []
        self._usage: Json = {}

    @property
    def request(self) -> Json:
        """The body of the next request."""
        tools = self._tools(self.session, self._forced)
        body = self._body | {"messages": list(self._messages)}
        return body | {"tools": tools} if tools else body

    async def take(self, response: Json) -> Json | None:
        """Process a whole response; return the message for the user, or None to go on."""
        return self._take(response, await self._handle(*_read_response(response)))

    def take_sync(self, response: Json) -> Json | None:
        """Do the same in synchronous code."""
        return self._take(response, self._handle_sync(*_read_response(response)))

    async def stream(
        self,
        first: R,
        read: Callable[[R], AsyncIterator[Json]],
        send: Callable[[Json], Awaitable[R]],
    ) -> AsyncGenerator[Json]:
        """Yield the events for the user, beginning with the first response.

        `read` yields the events of a response, and `send` sends a body.
        """
        merger = StreamMerger()
        response = first
        while True:
            async for event in read(response):
                for passed in merger.feed(event):
                    yield passed
            if not merger.stop_reason:  # the stream broke off, and the user has seen the error
                return
            verdicts = await self._handle(merger.blocks, merger.stop_reason)
            ended = self._close(merger.blocks, verdicts, merger.stop_reason, merger.held)
            for event in merger.end_round(ended.shown, ended.stop_reason, last=not ended.goes_on):
                yield event
            if not ended.goes_on:
                return
            response = await send(self.request)

    def stream_sync(
        self, first: R, read: Callable[[R], Iterator[Json]], send: Callable[[Json], R]
    ) -> Generator[Json]:
        """Do the same in synchronous code."""
        merger = StreamMerger()
        response = first
        while True:
            for event in read(response):
                yield from merger.feed(event)
            if not merger.stop_reason:
                return
            verdicts = self._handle_sync(merger.blocks, merger.stop_reason)
            ended = self._close(merger.blocks, verdicts, merger.stop_reason, merger.held)
            yield from merger.end_round(ended.shown, ended.stop_reason, last=not ended.goes_on)
            if not ended.goes_on:
                return
            response = send(self.request)

    async def _handle(self, blocks: Sequence[Json], stop_reason: object) -> dict[str, _Verdict]:
        calls = list_calls(blocks) if stop_reason == CALLING else []
        handle = self._toolkit.handle
        return {c["id"]: await handle(self.session, c["name"], c["input"]) for c in calls}

    def _handle_sync(self, blocks: Sequence[Json], stop_reason: object) -> dict[str, _Verdict]:
        calls = list_calls(blocks) if stop_reason == CALLING else []
        handle = self._toolkit.handle_sync
        return {c["id"]: handle(self.session, c["name"], c["input"]) for c in calls}

    def _take(self, response: Json, verdicts: Mapping[str, _Verdict]) -> Json | None:
        blocks, reason = _read_response(response)
        taken = self._close(blocks, verdicts, reason, blocks)
        self._shown += taken.shown
        usage = response.get("usage")
        self._usage = add_usage(self._usage, usage if is_object(usage) else {})
        if taken.goes_on:
            return None
        stop_reason = taken.stop_reason or reason
        return response | {
            "content": self._shown,
            "stop_reason": stop_reason,
            "usage": self._usage,
        }

    def _close(
        self,
        blocks: Sequence[Json],
        verdicts: Mapping[str, _Verdict],
        stop_reason: object,
        held: Sequence[Json],
    ) -> _Round:
        """End a round; `held` are those of its blocks that the user has not seen."""
        if stop_reason != CALLING:
            # The response was cut off or refused, so its calls do not count.
            return _Round(shown=tuple(block for block in held if not _is_meta(block)))
        shown = [_to_shown(block, verdicts) for block in held]
        replies = {id_: reply for id_, reply in verdicts.items() if isinstance(reply, Reply)}
        results = [reply.to_message(Dialect.ANTHROPIC, id_) for id_, reply in replies.items()]
        shown += map(fold_answer, results)
        self._left -= 1
        if not results or len(results) < len(verdicts):
            return _Round(shown=tuple(shown))
        if not self._left:
            return _Round(shown=tuple(shown), stop_reason=PAUSED)
        self._messages += [_create_message("assistant", blocks), _create_message("user", results)]
        return _Round(shown=tuple(shown), goes_on=True)

    def _force(self, choice: object) -> str:
        """Return the hidden tool that a request forces, and accept a call of it (R80)."""
        wanted = choice.get("name") if is_object(choice) else None
        forced = self._names.get(wanted, "") if isinstance(wanted, str) else ""
        if is_object(choice) and forced:
            self.session.tools(Dialect.ANTHROPIC, forced=forced)
            self._body["tool_choice"] = {**choice, "name": forced}
        return forced

    def _restore_calls(self, message: object, declared: set[str]) -> object:
        """Return a message with the user's calls as the model made them."""
        content = message.get("content") if is_object(message) else None
        if not is_object(message) or message.get("role") != "assistant" or not is_list(content):
            return message
        return {**message, "content": [self._restore_call(block, declared) for block in content]}

    def _restore_call(self, block: object, declared: set[str]) -> object:
        if not is_object(block) or block.get("type") != "tool_use":
            return block
        exposed = self._names.get(str(block.get("name")))
        if exposed is None or exposed in declared:
            return {**block, "name": exposed or block.get("name")}
        inner = {"name": exposed, "arguments": block.get("input")}
        return {**block, "name": CALL, "input": inner}


class Wrapper:
    """The search loops of one client.

    It keeps the lists of tools that it has seen indexed, and continues an interrupted request
    when the SDK repeats it. What a conversation has found is read from its messages.
    """

    def __init__(
        self,
        create: Callable[[Iterable[object]], Declarations[Any]],
        *,
        rounds: int = ROUNDS,
        kept: int = LISTS_KEPT,
    ) -> None:
        """`create` returns the declarations of a list of tools; `kept` of them stay indexed."""
        self._create = create
        self._rounds = rounds
        self._kept = kept
        self._declared: OrderedDict[str, Declarations[Any]] = OrderedDict()
        self._interrupted: OrderedDict[str, SearchLoop] = OrderedDict()
        self._lock = Lock()

    def begin(self, path: str, body: object, key: str) -> SearchLoop | None:
        """Return the loop of a request, or None if the request has nothing to do with tools.

        `key` identifies the request; a repetition has the same.
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
        declarations = self._get_declarations(_to_list(tools))
        return SearchLoop(
            declarations.toolkit, body, declarations.list_definitions, rounds=self._rounds
        )

    def keep(self, key: str, loop: SearchLoop) -> None:
        """Remember a request that has more rounds to go, in case one of them fails."""
        with self._lock:
            self._interrupted[key] = loop
            while len(self._interrupted) > INTERRUPTED_KEPT:
                self._interrupted.popitem(last=False)

    def forget(self, key: str) -> None:
        """Forget a request that is complete."""
        with self._lock:
            self._interrupted.pop(key, None)

    def _get_declarations(self, tools: list[object]) -> Declarations[Any]:
        key = json.dumps(tools, sort_keys=True)
        with self._lock:
            declarations = self._declared.pop(key, None) or self._create(tools)
            self._declared[key] = declarations
            while len(self._declared) > self._kept:
                self._declared.popitem(last=False)
            return declarations


def list_calls(blocks: Iterable[Mapping[str, Any]]) -> list[Json]:
    """Return the calls among the blocks of a response."""
    return [dict(block) for block in blocks if block.get("type") == "tool_use"]


def identify(messages: Sequence[object]) -> str:
    """Return an id for a conversation that stays the same as it grows."""
    return hashlib.sha256(to_canonical_json(messages[:1])).hexdigest()[:16]


def to_plain(value: object) -> Any:
    """Return a message or a block as JSON; an SDK's responses hold objects."""
    dump = getattr(value, "model_dump", None)
    if callable(dump):
        return dump(mode="json", exclude_unset=True)
    content = value.get("content") if _is_mapping(value) else None
    if _is_mapping(value) and is_list(content):
        return {**value, "content": [to_plain(block) for block in content]}
    return value


def fold_call(call: Mapping[str, Any]) -> Json:
    """Return a call that the wrapper answers, as the user sees it."""
    asked = {key: call.get(key) for key in _CALL_KEYS}
    id_ = f"{MARK}{call.get('id')}"
    return {"type": "server_tool_use", "id": id_, "name": _HOSTED_NAME, "input": asked}


def fold_answer(result: Mapping[str, Any]) -> Json:
    """Return the answer to such a call, with references where the provider's own would be."""
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


def is_folded(message: object) -> bool:
    """Tell whether a message holds rounds that `unfold` would restore."""
    if not _is_mapping(message) or message.get("role") != "assistant":
        return False
    content = message.get("content")
    return is_list(content) and any(_is_ours(block, "id") for block in content)


def unfold(messages: Iterable[object]) -> list[object]:
    """Return a conversation as the model had it; messages without folded rounds are unchanged."""
    unfolded: list[object] = []
    waiting: list[Json] = []
    for message in messages:
        content = message.get("content") if _is_mapping(message) else None
        if is_folded(message):
            unfolded += _answer_turn(waiting)
            rounds, waiting = _split_rounds(cast("list[object]", content))
            unfolded += rounds
        elif waiting and _is_mapping(message) and message.get("role") == "user":
            unfolded.append({**message, "content": [*waiting, *_to_blocks(content)]})
            waiting = []
        else:
            unfolded += [*_answer_turn(waiting), message]
            waiting = []
    return [*unfolded, *_answer_turn(waiting)]


def _split_rounds(content: Sequence[object]) -> tuple[list[object], list[Json]]:
    """Return the turns in a folded message, and the answers that the last one waits for."""
    turns: list[object] = []
    blocks: list[object] = []
    answers: dict[str, Json] = {}
    for block in content:
        if _is_ours(block, "tool_use_id"):
            answer = _unfold_answer(block)
            answers[str(answer["tool_use_id"])] = answer
            continue
        if answers:
            turns.append(_create_message("assistant", blocks))
            turns += _answer_turn(_match_answers(blocks, answers))
            blocks = []
            answers = {}
        blocks.append(_unfold_call(block) if _is_ours(block, "id") else block)
    turns.append(_create_message("assistant", blocks))
    ours = {block["id"].removeprefix(MARK) for block in content if _is_ours(block, "id")}
    last = [block for block in blocks if _is_mapping(block) and block.get("id") in ours]
    return turns, _match_answers(last, answers)


def _match_answers(blocks: Sequence[object], answers: Mapping[str, Json]) -> list[Json]:
    """Return exactly one answer for each call of a round."""
    calls = [block for block in blocks if _is_mapping(block) and block.get("type") == "tool_use"]
    lost: Json = {"type": "tool_result", "content": LOST, "is_error": True}
    return [answers.get(call["id"]) or lost | {"tool_use_id": call["id"]} for call in calls]


def _unfold_call(block: Mapping[str, Any]) -> Json:
    asked = block.get("input")
    given = asked if is_object(asked) else {}
    id_ = str(block["id"]).removeprefix(MARK)
    return {"type": "tool_use", "id": id_, **{key: given.get(key) for key in _CALL_KEYS}}


def _unfold_answer(block: Mapping[str, Any]) -> Json:
    content = block.get("content")
    found: Mapping[str, Any] = content if _is_mapping(content) else {}
    id_ = str(block["tool_use_id"]).removeprefix(MARK)
    restored = found.get("tool_references") or found.get("answer") or LOST
    answer: Json = {"type": "tool_result", "tool_use_id": id_, "content": restored}
    return answer | ({"is_error": True} if found.get("is_error") is True else {})


def _answer_turn(answers: Sequence[Json]) -> list[object]:
    return [_create_message("user", answers)] if answers else []


def _create_message(role: str, content: Sequence[object]) -> Json:
    return {"role": role, "content": list(content)}


def _to_shown(block: Json, verdicts: Mapping[str, _Verdict]) -> Json:
    """Return a block for the user, with a call of the user's tool by the tool's own name."""
    if block.get("type") != "tool_use":
        return block
    verdict = verdicts.get(str(block.get("id")))
    if isinstance(verdict, Reply):
        return fold_call(block)
    if verdict is None:
        return block
    return {**block, "name": verdict.tool.leaf, "input": verdict.arguments}


def _read_response(response: Json) -> tuple[list[Json], object]:
    blocks = [block for block in _to_list(response.get("content")) if is_object(block)]
    return blocks, response.get("stop_reason")


def _check_whole(body: Mapping[str, Any]) -> None:
    if is_object(body.get("thread")):
        raise UsageError(
            "A wrapped client needs the whole conversation in every request, and this request "
            "has a server thread. Pass `thread=False`, or use ToolScoutToolset in the runner."
        )


def _to_blocks(content: object) -> list[object]:
    return [{"type": "text", "text": content}] if isinstance(content, str) else _to_list(content)


def _to_list(value: object) -> list[object]:
    return value if is_list(value) else []


def _is_meta(block: Json) -> bool:
    return block.get("type") == "tool_use" and bool(to_meta_name(str(block.get("name"))))


def _is_ours(block: object, key: str) -> TypeGuard[Mapping[str, Any]]:
    return _is_mapping(block) and str(block.get(key, "")).startswith(MARK)


def _is_referring(content: object) -> bool:
    kinds = [block.get("type") for block in _to_list(content) if _is_mapping(block)]
    return bool(kinds) and set(kinds) == {"tool_reference"}


def _is_mapping(value: object) -> TypeGuard[Mapping[str, Any]]:
    return isinstance(value, Mapping)
