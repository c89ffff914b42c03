import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from toolscout import tokens
from toolscout.tokens import all_definition_tokens, count_tokens, definition_tokens
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

    monkeypatch.setattr(tokens, "_encoding", Recorder)

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

    monkeypatch.setattr(tokens, "_encoding", Recorder)
    text = "a text that no other test counts"
    try:
        assert [count_tokens(text), count_tokens(text)] == [1, 1]
    finally:
        tokens._remembered.cache_clear()  # pyright: ignore[reportPrivateUsage] the count is false

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


def test_a_definition_costs_name_description_and_schema():
    bare = Tool.define("read")
    told = Tool.define("read", description="Read a file from disk.")
    asked = Tool.define("read", input_schema={"type": "object", "properties": {"path": {}}})

    assert definition_tokens(bare) < definition_tokens(told)
    assert definition_tokens(bare) < definition_tokens(asked)


def test_a_schema_with_half_a_character_has_a_cost():
    broken = Tool.define("read", input_schema={"properties": {"\ud83d": {"type": "string"}}})

    assert definition_tokens(broken) > 0


def test_large_catalogues_are_estimated_from_some_tools():
    tools = [Tool.define(f"read_{number:04}") for number in range(4_100)]

    assert all_definition_tokens(tools[:10]) == sum(map(definition_tokens, tools[:10]))
    assert all_definition_tokens([]) == 0
    assert all_definition_tokens(tools) == pytest.approx(
        4_100 * definition_tokens(tools[0]), rel=0.1
    )
