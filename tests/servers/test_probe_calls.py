"""One call of one tool, for a person."""

import asyncio
from pathlib import Path

import pytest

from serving import TIME
from toolscout.errors import UsageError
from toolscout.servers.probe import arguments_from_words, call_tool
from toolscout.stores.memory import MemoryStore
from toolscout.tools import Tool

TOOL = Tool.define(
    "t",
    input_schema={
        "type": "object",
        "properties": {
            "text": {"type": "string"},
            "maybe": {"type": ["string", "null"]},
            "count": {"type": "integer"},
            "tags": {"type": "array", "items": {"type": "string"}},
        },
    },
)


def test_words_are_text_where_the_tool_takes_text_and_json_elsewhere():
    words = ["text=12", "maybe=null", "count=12", 'tags=["a"]', "other=yes", "sign=a=b"]

    assert arguments_from_words(TOOL, words) == {
        "text": "12",
        "maybe": "null",
        "count": 12,
        "tags": ["a"],
        "other": "yes",
        "sign": "a=b",
    }


def test_one_object_is_all_arguments_and_no_words_are_none():
    assert arguments_from_words(TOOL, [' {"text": 1}']) == {"text": 1}
    assert arguments_from_words(TOOL, []) == {}


@pytest.mark.parametrize("word", ["text", "=1", "{", '{"a": 1} b'])
def test_other_words_are_a_mistake(word: str):
    with pytest.raises(UsageError):
        arguments_from_words(TOOL, [word])


def test_only_tools_can_be_called(tmp_path: Path):
    page = Tool.define("page", server="time", kind="resource")

    with pytest.raises(UsageError, match="is a resource, which cannot be called"):
        asyncio.run(call_tool(TIME, MemoryStore(), page, {}, tokens=tmp_path))
