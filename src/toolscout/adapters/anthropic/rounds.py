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
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from threading import Lock
from typing import Any, TypeGuard, cast

from toolscout import Reply
from toolscout.adapters._toolkit import (
    ANSWER_LOST,
    CALL,
    ApprovedCall,
    Dialect,
    Json,
    add_usage,
    is_list,
    is_object,
    to_canonical_json,
    to_meta_name,
)
from toolscout.adapters.anthropic.definitions import Declarations, is_mapping, prune, to_list
from toolscout.adapters.anthropic.streams import StreamMerger
from toolscout.errors import UsageError

ROUNDS = 10
"""How many rounds one request may take."""
LISTS_KEPT = 8
"""How many lists of tools a client keeps indexed."""
INTERRUPTED_KEPT = 64
"""How many interrupted requests a client remembers."""
MARK = "srvtoolu_scout_"
"""The prefix of the ids of folded calls; the provider's own searches have other ids."""

_HOSTED_NAME = "tool_search_tool_bm25"
_CALL_KEYS = ("name", "input")


class SearchLoop:
    """One request of the user, and the rounds in which the model searches."""

    def __init__(
        self, declarations: Declarations[Any], body: Mapping[str, Any], *, rounds: int = ROUNDS
    ) -> None:
        self._declarations = declarations
        self._toolkit = declarations.toolkit
        self._body = dict(body)
        self._left = rounds
        catalog = self._toolkit.scout.catalog
        natives = (tool for tool in catalog if self._toolkit.get(tool.name) is not None)
        self._names = {tool.leaf: tool.name for tool in natives}
        messages = unfold(to_list(body.get("messages")))
        self.session = self._toolkit.scout.rebuild(identify(messages), messages, keep=False)
        self._forced = self._force(body.get("tool_choice"))
        tools = declarations.list_definitions(self.session, self._forced)
        declared = {str(tool.get("name")) for tool in tools}
        self._messages = prune((self._restore_calls(m, declared) for m in messages), declared)
        self._shown: list[Json] = []
        self._usage: Json = {}

    @property
    def request(self) -> Json:
        """The body of the next request."""
        tools = self._declarations.list_definitions(self.session, self._forced)
        body = self._body | {"messages": list(self._messages)}
        return body | {"tools": tools} if tools else body

    async def take(self, response: Json) -> Json | None:
        """Process a whole response; return the message for the user, or None to go on."""
        blocks = [block for block in to_list(response.get("content")) if is_object(block)]
        stop_reason = response.get("stop_reason")
        shown, stop_reason, goes_on = await self._close(blocks, stop_reason, blocks)
        self._shown += shown
        usage = response.get("usage")
        self._usage = add_usage(self._usage, usage if is_object(usage) else {})
        if goes_on:
            return None
        changed = {"content": self._shown, "stop_reason": stop_reason, "usage": self._usage}
        return response | changed

    async def end_round(self, merger: StreamMerger) -> tuple[list[Json], bool]:
        """Return the last events of a streamed round, and whether the model must be asked again."""
        if not merger.stop_reason:  # the stream broke off, and the user has seen the error
            return [], False
        shown, stop_reason, goes_on = await self._close(
            merger.blocks, merger.stop_reason, merger.held
        )
        return merger.end_round(shown, stop_reason, last=not goes_on), goes_on

    async def _close(
        self, blocks: Sequence[Json], stop_reason: str | None, held: Sequence[Json]
    ) -> tuple[list[Json], str | None, bool]:
        """Answer the calls of a round; `held` are its blocks that the user has not seen.

        Return the blocks for the user, with the answers that were given here, the stop reason, and
        whether the model must be asked again first.
        """
        if stop_reason != "tool_use":
            # The response was cut off or refused, so its calls do not count.
            return [block for block in held if not _is_meta(block)], stop_reason, False
        handle = partial(self._toolkit.handle, self.session)
        verdicts = {c["id"]: await handle(c["name"], c["input"]) for c in list_calls(blocks)}
        shown = [_to_shown(block, verdicts.get(str(block.get("id")))) for block in held]
        replies = {id_: reply for id_, reply in verdicts.items() if isinstance(reply, Reply)}
        results = [reply.to_message(Dialect.ANTHROPIC, id_) for id_, reply in replies.items()]
        shown += map(fold_answer, results)
        self._left -= 1
        if not results or len(results) < len(verdicts):
            return shown, stop_reason, False
        if not self._left:
            # A paused turn goes on when the user sends the message back.
            return shown, "pause_turn", False
        self._messages += [_create_message("assistant", blocks), _create_message("user", results)]
        return shown, stop_reason, True

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
        restored: list[object] = []
        for block in content:
            exposed = self._names.get(str(block.get("name"))) if _is_call(block) else None
            if exposed is None:
                restored.append(block)
            elif exposed in declared:
                restored.append({**block, "name": exposed})
            else:
                inner = {"name": exposed, "arguments": block.get("input")}
                restored.append({**block, "name": CALL, "input": inner})
        return {**message, "content": restored}


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
        if is_object(body.get("thread")):
            raise UsageError(
                "A wrapped client needs the whole conversation in every request, and this request "
                "has a server thread. Pass `thread=False`, or use ToolScoutToolset in the runner."
            )
        listed = to_list(tools)
        identity = json.dumps(listed, sort_keys=True)
        with self._lock:
            if key in self._interrupted:
                return self._interrupted.pop(key)
            declarations = self._declared.pop(identity, None) or self._create(listed)
            self._declared[identity] = declarations
            while len(self._declared) > self._kept:
                self._declared.popitem(last=False)
        return SearchLoop(declarations, body, rounds=self._rounds)

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


def list_calls(blocks: Iterable[object]) -> list[Json]:
    """Return the calls among the blocks of a response."""
    return [dict(block) for block in blocks if _is_call(block)]


def identify(messages: Sequence[object]) -> str:
    """Return an id for a conversation that stays the same as it grows."""
    return hashlib.sha256(to_canonical_json(messages[:1])).hexdigest()[:16]


def to_plain(value: object) -> Any:
    """Return a message or a block as JSON; an SDK's responses hold objects."""
    dump = getattr(value, "model_dump", None)
    if callable(dump):
        return dump(mode="json", exclude_unset=True)
    content = value.get("content") if is_mapping(value) else None
    if is_mapping(value) and is_list(content):
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
    kinds = {block.get("type") for block in to_list(content) if is_mapping(block)}
    if kinds == {"tool_reference"}:
        found["tool_references"] = content
    else:
        found["answer"] = content
        if result.get("is_error") is True:
            found["is_error"] = True
    id_ = f"{MARK}{result.get('tool_use_id')}"
    return {"type": "tool_search_tool_result", "tool_use_id": id_, "content": found}


def is_folded(message: object) -> bool:
    """Tell whether a message holds rounds that `unfold` would restore."""
    if not is_mapping(message) or message.get("role") != "assistant":
        return False
    content = message.get("content")
    return is_list(content) and any(_is_ours(block, "id") for block in content)


def unfold(messages: Iterable[object]) -> list[object]:
    """Return a conversation as the model had it; messages without folded rounds are unchanged."""
    unfolded: list[object] = []
    waiting: list[Json] = []
    for message in messages:
        content = message.get("content") if is_mapping(message) else None
        if is_folded(message):
            unfolded += _answer_turn(waiting)
            rounds, waiting = _split_rounds(cast("list[object]", content))
            unfolded += rounds
        elif waiting and is_mapping(message) and message.get("role") == "user":
            said = [{"type": "text", "text": content}] if isinstance(content, str) else content
            unfolded.append({**message, "content": [*waiting, *to_list(said)]})
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
            id_ = block["tool_use_id"].removeprefix(MARK)
            answers[id_] = _unfold_answer(id_, block.get("content"))
            continue
        if answers:
            turns.append(_create_message("assistant", blocks))
            turns += _answer_turn(_match_answers(blocks, answers))
            blocks = []
            answers = {}
        blocks.append(_unfold_call(block) if _is_ours(block, "id") else block)
    turns.append(_create_message("assistant", blocks))
    ours = {block["id"].removeprefix(MARK) for block in content if _is_ours(block, "id")}
    last = [block for block in blocks if is_mapping(block) and block.get("id") in ours]
    return turns, _match_answers(last, answers)


def _match_answers(blocks: Sequence[object], answers: Mapping[str, Json]) -> list[Json]:
    """Return exactly one answer for each call of a round."""
    lost: Json = {"type": "tool_result", "content": ANSWER_LOST, "is_error": True}
    return [
        answers.get(call["id"]) or lost | {"tool_use_id": call["id"]} for call in list_calls(blocks)
    ]


def _unfold_call(block: Mapping[str, Any]) -> Json:
    asked = block.get("input")
    given = asked if is_object(asked) else {}
    id_ = str(block["id"]).removeprefix(MARK)
    return {"type": "tool_use", "id": id_, **{key: given.get(key) for key in _CALL_KEYS}}


def _unfold_answer(id_: str, content: object) -> Json:
    found: Mapping[str, Any] = content if is_mapping(content) else {}
    restored = found.get("tool_references") or found.get("answer") or ANSWER_LOST
    answer: Json = {"type": "tool_result", "tool_use_id": id_, "content": restored}
    return answer | ({"is_error": True} if found.get("is_error") is True else {})


def _answer_turn(answers: Sequence[Json]) -> list[object]:
    return [_create_message("user", answers)] if answers else []


def _create_message(role: str, content: Sequence[object]) -> Json:
    return {"role": role, "content": list(content)}


def _to_shown(block: Json, verdict: ApprovedCall | Reply | None) -> Json:
    """Return a block for the user, with a call of the user's tool by the tool's own name."""
    if block.get("type") != "tool_use" or verdict is None:
        return block
    if isinstance(verdict, Reply):
        return fold_call(block)
    return {**block, "name": verdict.tool.leaf, "input": verdict.arguments}


def _is_meta(block: Json) -> bool:
    return _is_call(block) and bool(to_meta_name(str(block.get("name"))))


def _is_call(block: object) -> TypeGuard[Mapping[str, Any]]:
    return is_mapping(block) and block.get("type") == "tool_use"


def _is_ours(block: object, key: str) -> TypeGuard[Mapping[str, Any]]:
    return is_mapping(block) and str(block.get(key, "")).startswith(MARK)
