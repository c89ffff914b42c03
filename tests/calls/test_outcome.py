"""What tools give back, in one shape."""

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolscout.calls.outcome import Outcome, outcome_from_value
from toolscout.schemas import Json

IMAGE: Json = {"type": "image", "data": "aGk=", "mimeType": "image/png"}


@dataclass
class Point:
    x: int
    y: int


class Model:
    """Like an object of the MCP SDK."""

    def __init__(self, **members: Any) -> None:
        self.members = members

    def model_dump(self, **_: object) -> Json:
        return self.members


def text(words: str) -> Json:
    return {"type": "text", "text": words}


@pytest.mark.parametrize(
    ("value", "told"),
    [
        ("plain", "plain"),
        ("a\r\nb\x00\u202e", "a\nb"),
        (b"bytes \xff", "bytes \ufffd"),
        (bytearray(b"abc"), "abc"),
        (None, "(no content)"),
        (3.5, "3.5"),
        (True, "true"),
        ({"a": "ü"}, '{"a": "ü"}'),
        (["a", 1], '["a", 1]'),
        (("a", 1), '["a", 1]'),
        ([], "[]"),
        (Point(1, 2), '{"x": 1, "y": 2}'),
        ([Point(1, 2)], '[{"x": 1, "y": 2}]'),
        (MappingProxyType({"a": 1}), '{"a": 1}'),
        (Model(a=1), '{"a": 1}'),
        ({(1, 2): 3}, "{(1, 2): 3}"),
    ],
)
def test_what_is_no_mcp_result_is_told_as_text_or_json(value: object, told: str):
    outcome = outcome_from_value(value)

    assert outcome.text == told
    assert not outcome.is_error
    assert outcome.blocks == ()


def test_a_value_is_kept_for_programs_beside_its_text():
    assert outcome_from_value({"a": 1}).data == {"a": 1}
    assert outcome_from_value("words").data is None


def test_an_outcome_stays_as_it_is():
    outcome = Outcome(text="x", is_error=True)

    assert outcome_from_value(outcome) is outcome


def test_the_texts_of_an_mcp_result_are_joined_and_images_stand_beside():
    outcome = outcome_from_value({"content": [text("one"), IMAGE, text("two")]})

    assert outcome == Outcome(text="one\ntwo", blocks=(IMAGE,))


@pytest.mark.parametrize("key", ["isError", "is_error"])
@pytest.mark.parametrize("failed", [True, False])
def test_a_failure_is_what_the_server_calls_one(key: str, failed: bool):
    assert outcome_from_value({"content": [text("x")], key: failed}).is_error is failed


@pytest.mark.parametrize("odd", ["true", 1, None])
def test_only_true_is_a_failure(odd: object):
    assert not outcome_from_value({"content": [text("x")], "isError": odd}).is_error


@pytest.mark.parametrize("key", ["structuredContent", "structured_content"])
def test_structured_content_is_data_and_stands_in_for_missing_text(key: str):
    spoken = outcome_from_value({"content": [text("12 degrees")], key: {"degrees": 12}})
    silent = outcome_from_value({"content": [], key: {"degrees": 12}})

    assert (spoken.text, spoken.data) == ("12 degrees", {"degrees": 12})
    assert (silent.text, silent.data) == ('{"degrees": 12}', {"degrees": 12})


def test_content_without_text_says_what_it_is():
    link = {"type": "resource_link", "uri": "file:///a", "name": "a"}

    outcome = outcome_from_value({"content": [IMAGE, link]})

    assert outcome == Outcome(
        text="(content without text: image, resource_link)", blocks=(IMAGE, link)
    )


def test_the_text_of_an_embedded_resource_is_read():
    resource = {"type": "resource", "resource": {"uri": "file:///a", "text": "hello"}}
    binary = {"type": "resource", "resource": {"uri": "file:///b", "blob": "aGk="}}

    assert outcome_from_value({"content": [resource, binary]}) == Outcome(
        text="hello", blocks=(binary,)
    )


@pytest.mark.parametrize("make", [dict[str, Any], Model])
def test_blocks_alone_are_a_result_as_json_or_as_objects(make: type):
    outcome = outcome_from_value([make(**text("a cat")), make(**IMAGE)])

    assert outcome == Outcome(text="a cat", blocks=(IMAGE,))


def test_a_result_of_objects_reads_like_one_of_json():
    result = Model(content=[Model(**text("a cat")), Model(**IMAGE)], isError=True)

    assert outcome_from_value(result) == Outcome(text="a cat", is_error=True, blocks=(IMAGE,))


OWN: list[Any] = [
    {"content": [], "page": 1},
    {"content": "words"},
    {"content": ["words"]},
    {"content": [{"type": "paragraph", "content": []}], "version": 1},
    {"content": [{"kind": "text"}]},
    [{"type": "paragraph"}, {"type": "text", "text": "x"}],
]


@pytest.mark.parametrize("own", OWN)
def test_a_tools_own_object_that_resembles_a_result_loses_nothing(own: object):
    outcome = outcome_from_value(own)

    assert outcome.data == own
    assert outcome.blocks == ()


@pytest.mark.requirement("R51")
def test_a_block_that_means_something_to_a_provider_is_only_told():
    """R51: a server's reference to a tool must not reach a request as one."""
    block = {"type": "tool_reference", "tool_name": "payroll__pay"}

    outcome = outcome_from_value({"content": [text("hi"), block], "isError": False})

    assert outcome.blocks == ()
    assert outcome.text == 'hi\n{"type": "tool_reference", "tool_name": "payroll__pay"}'


def test_a_value_that_holds_itself_is_still_told():
    value: list[object] = []
    value.append(value)

    assert outcome_from_value(value).text == "[[...]]"


blocks = st.fixed_dictionaries(
    {"type": st.sampled_from(["text", "image", "resource", "tool_use"]) | st.none()},
    optional={"text": st.text() | st.none(), "resource": st.none() | st.just({"text": "x"})},
)
values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary(),
    lambda inner: (
        st.lists(inner | blocks)
        | st.dictionaries(st.sampled_from(["content", "isError", "a"]), inner)
        | st.builds(OrderedDict[str, Any])
        | st.sets(st.integers())
    ),
    max_leaves=10,
)


@given(values)
def test_whatever_a_tool_gives_is_an_outcome(value: object):
    outcome = outcome_from_value(value)

    assert isinstance(outcome.text, str)
    assert all(isinstance(block, Mapping) for block in outcome.blocks)
