"""The streams of several rounds as one."""

from collections.abc import Iterator
from typing import Any

from toolscout.adapters.anthropic.streams import StreamMerger, to_frame

Json = dict[str, Any]


def events(*blocks: Json, stop: str = "tool_use", asked: int = 10) -> Iterator[Json]:
    """Yield what a provider streams for an answer."""
    yield {"type": "message_start", "message": {"id": "m", "usage": {"input_tokens": asked}}}
    for at, block in enumerate(blocks):
        key = {"text": "text", "thinking": "thinking", "tool_use": "input"}[block["type"]]
        opened: Json = {**block, key: {} if key == "input" else ""}
        yield {"type": "content_block_start", "index": at, "content_block": opened}
        for delta in deltas(block):
            yield {"type": "content_block_delta", "index": at, "delta": delta}
        yield {"type": "content_block_stop", "index": at}
    delta = {"stop_reason": stop, "stop_sequence": None}
    yield {"type": "message_delta", "delta": delta, "usage": {"output_tokens": 5}}
    yield {"type": "message_stop"}


def deltas(block: Json) -> list[Json]:
    match block["type"]:
        case "text":
            return [{"type": "text_delta", "text": part} for part in block["text"]]
        case "thinking":
            thought = {"type": "thinking_delta", "thinking": block["thinking"]}
            return [thought, {"type": "signature_delta", "signature": block["signature"]}]
        case _:
            written = ['{"a"', ": 1}"]
            return [{"type": "input_json_delta", "partial_json": part} for part in written]


TEXT: Json = {"type": "text", "text": "ab"}
THINKING: Json = {"type": "thinking", "thinking": "Hm.", "signature": "s"}
CALL: Json = {"type": "tool_use", "id": "t1", "name": "tool_search", "input": {"a": 1}}
FOLDED: Json = {"type": "server_tool_use", "id": "x", "name": "y", "input": {"a": 1}}


def fed(splice: StreamMerger, *blocks: Json, **options: Any) -> list[Json]:
    return [passed for event in events(*blocks, **options) for passed in splice.feed(event)]


def kinds(passed: list[Json]) -> list[str]:
    return [event["type"].removeprefix("content_block_") for event in passed]


def test_words_are_passed_on_at_once_and_calls_held_back():
    splice = StreamMerger()

    passed = fed(splice, THINKING, TEXT, CALL)

    thought = ["start", "delta", "delta", "stop"]
    assert kinds(passed) == ["message_start", *thought, *thought]
    assert splice.blocks == [THINKING, TEXT, CALL]
    assert splice.held == [CALL]
    assert splice.stop_reason == "tool_use"


def test_blocks_behind_a_held_call_wait_for_it():
    splice = StreamMerger()

    passed = fed(splice, CALL, TEXT)
    written = splice.end_round([FOLDED, TEXT])

    assert kinds(passed) == ["message_start"]
    assert splice.blocks == []
    assert [event["index"] for event in written] == [0, 0, 0, 1, 1, 1]
    assert written[1]["delta"] == {"type": "input_json_delta", "partial_json": '{"a": 1}'}
    assert written[4]["delta"] == {"type": "text_delta", "text": "ab"}


def test_several_rounds_have_one_beginning_one_end_and_one_sum():
    splice = StreamMerger()

    first = fed(splice, TEXT, CALL)
    between = splice.end_round([FOLDED])
    second = fed(splice, TEXT, stop="end_turn", asked=20)
    end = splice.end_round([], last=True)

    indices = [
        e["index"]
        for e in (*first, *between, *second)
        if e["type"].endswith("_start") and "index" in e
    ]
    assert indices == [0, 1, 2]
    assert "message_start" not in kinds(second)
    assert end == [
        {
            "type": "message_delta",
            "delta": {"stop_reason": "end_turn", "stop_sequence": None},
            "usage": {"input_tokens": 30, "output_tokens": 10},
        },
        {"type": "message_stop"},
    ]


def test_a_pause_has_its_own_reason():
    splice = StreamMerger()
    fed(splice, CALL)

    end = splice.end_round([FOLDED], "pause_turn", last=True)

    assert end[-2]["delta"]["stop_reason"] == "pause_turn"


def test_a_stream_that_breaks_off_has_no_reason_to_stop():
    splice = StreamMerger()
    error = {"type": "error", "error": {"type": "overloaded_error"}}

    assert splice.feed({"type": "message_start", "message": {}}) != []
    assert splice.feed(error) == [error]
    assert splice.stop_reason == ""


def test_a_call_that_is_cut_off_is_kept_without_its_input():
    splice = StreamMerger()
    block: Json = {"type": "tool_use", "id": "t", "name": "n", "input": {}}
    splice.feed({"type": "content_block_start", "index": 0, "content_block": block})
    delta = {"type": "input_json_delta", "partial_json": '{"a'}
    splice.feed({"type": "content_block_delta", "index": 0, "delta": delta})
    splice.feed({"type": "content_block_stop", "index": 0})

    assert splice.held == [block]


def test_citations_are_kept_for_the_next_round():
    splice = StreamMerger()
    opened = {"type": "text", "text": "", "citations": None}
    splice.feed({"type": "content_block_start", "index": 0, "content_block": opened})
    for cited in ("a", "b"):
        delta = {"type": "citations_delta", "citation": {"cited_text": cited}}
        splice.feed({"type": "content_block_delta", "index": 0, "delta": delta})

    assert splice.blocks[0]["citations"] == [{"cited_text": "a"}, {"cited_text": "b"}]


def test_an_event_is_framed_with_its_type():
    assert to_frame({"type": "ping"}) == b'event: ping\ndata: {"type": "ping"}\n\n'
