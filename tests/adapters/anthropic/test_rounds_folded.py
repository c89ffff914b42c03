"""Rounds folded into one message, and taken apart again."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from toolscout.adapters._toolkit import ANSWER_LOST, add_usage
from toolscout.adapters.anthropic.rounds import (
    fold_answer,
    fold_call,
    is_folded,
    unfold,
)

Json = dict[str, Any]
THINKING = {"type": "thinking", "thinking": "Hm.", "signature": "s"}


def call(id_: str, name: str = "tool_search", **given: Any) -> Json:
    return {"type": "tool_use", "id": id_, "name": name, "input": given}


def answer(id_: str, content: Any = "Nothing found.", **members: Any) -> Json:
    return {"type": "tool_result", "tool_use_id": id_, "content": content, **members}


def text(said: str) -> Json:
    return {"type": "text", "text": said}


def message(role: str, *content: Json) -> Json:
    return {"role": role, "content": list(content)}


def folded(*rounds: list[Json]) -> Json:
    """Fold rounds, each what was said and what was answered, as a wrapped client does."""
    content: list[Json] = []
    for blocks in rounds:
        answers = [block for block in blocks if block["type"] == "tool_result"]
        ours = {block["tool_use_id"] for block in answers}
        said = [block for block in blocks if block["type"] != "tool_result"]
        content += [fold_call(b) if b.get("id") in ours else b for b in said]
        content += [fold_answer(block) for block in answers]
    return message("assistant", *content)


def test_a_round_looks_like_a_search_of_the_provider():
    found = [{"type": "tool_reference", "tool_name": "send_email"}]

    asked, answered = fold_call(call("t1", queries=["mail"])), fold_answer(answer("t1", found))

    assert (asked["type"], asked["name"]) == ("server_tool_use", "tool_search_tool_bm25")
    assert answered["type"] == "tool_search_tool_result"
    assert answered["tool_use_id"] == asked["id"]
    assert answered["content"] == {
        "type": "tool_search_tool_search_result",
        "tool_references": found,
    }


def test_rounds_are_taken_apart_as_the_model_had_them():
    first = [THINKING, text("I look."), call("t1", queries=["mail"]), answer("t1")]
    second = [THINKING, call("t2"), call("t3"), answer("t2"), answer("t3", "No.", is_error=True)]
    last = [text("Nothing.")]

    assert unfold([message("user", text("Hi")), folded(first, second, last)]) == [
        message("user", text("Hi")),
        message("assistant", *first[:3]),
        message("user", answer("t1")),
        message("assistant", *second[:3]),
        message("user", *second[3:]),
        message("assistant", *last),
    ]


def test_answers_join_the_results_of_calls_that_the_user_makes():
    mixed = folded([call("t1"), call("t2", "send_email"), answer("t1")])
    result = answer("t2", "Sent.")

    assert unfold([mixed, message("user", result)]) == [
        message("assistant", call("t1"), call("t2", "send_email")),
        message("user", answer("t1"), result),
    ]


def test_a_paused_message_gets_its_answers_behind_it():
    paused = folded([call("t1"), answer("t1")])
    further = folded([call("t2"), answer("t2")], [text("Done.")])

    assert unfold([paused])[-1] == message("user", answer("t1"))
    assert unfold([paused, further])[1:3] == [
        message("user", answer("t1")),
        message("assistant", call("t2")),
    ]
    assert unfold([paused, {"role": "user", "content": "Go on."}])[-1] == message(
        "user", answer("t1"), text("Go on.")
    )


def test_a_call_whose_answer_was_dropped_gets_one():
    broken = message("assistant", fold_call(call("t1")), text("Well."))

    assert unfold([broken]) == [
        message("assistant", call("t1"), text("Well.")),
        message("user", answer("t1", ANSWER_LOST, is_error=True)),
    ]


def test_searches_of_the_provider_itself_are_left_alone():
    theirs = message("assistant", {"type": "server_tool_use", "id": "srvtoolu_1", "name": "x"})

    assert not is_folded(theirs)
    assert unfold([theirs])[0] is theirs


def test_costs_add_up():
    first = {"input_tokens": 3, "cache_creation": {"a": 1}, "iterations": [1], "tier": "standard"}
    second = {"input_tokens": 4, "cache_creation": {"a": 2}, "iterations": [2], "tier": None}

    assert add_usage(first, second) == {
        "input_tokens": 7,
        "cache_creation": {"a": 3},
        "iterations": [1, 2],
        "tier": "standard",
    }
    assert add_usage({}, first) == first


@given(st.lists(st.tuples(st.booleans(), st.integers(1, 3)), max_size=4), st.booleans())
def test_folding_loses_nothing(rounds: list[tuple[bool, int]], ends_with_a_call: bool):
    ids = iter(range(100))
    played: list[list[Json]] = []
    for thinks, calls in rounds:
        made = [call(f"t{next(ids)}", at=at) for at in range(calls)]
        played.append([*[THINKING] * thinks, *made, *(answer(each["id"]) for each in made)])
    played.append([call("mine", "send_email")] if ends_with_a_call else [text("Done.")])

    expected: list[Json] = []
    for blocks in played:
        said = [block for block in blocks if block["type"] != "tool_result"]
        results = [block for block in blocks if block["type"] == "tool_result"]
        expected += [
            message("assistant", *said),
            *([message("user", *results)] if results else []),
        ]
    assert unfold([folded(*played)]) == expected
