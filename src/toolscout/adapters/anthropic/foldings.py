"""Rounds that a wrapper has with a model on its own, folded into one message of the assistant.

A wrapped client answers searches itself and gives its user one message. In it a search looks as if
the provider had made it: `server_tool_use`, then `tool_search_tool_result`. The user sends that
message back as it is, and `unfold` makes the rounds of it again, as the model had them. So nothing
has to be remembered between requests. Everything here is JSON in Anthropic's shape.

What a round got as answers stands behind all that the model said in it: there the round ends.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeGuard, cast

from toolscout.schemas import Json, is_list, is_object

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
            turns += [_message("assistant", said), *_turn(_answered(said, answers))]
            said, answers = [], {}
        said.append(_call(block) if _is_ours(block, "id") else block)
    turns.append(_message("assistant", said))
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
    return [_message("user", answers)] if answers else []


def _message(role: str, content: Sequence[object]) -> Json:
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
