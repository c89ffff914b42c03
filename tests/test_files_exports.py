"""A catalogue in the shapes that others read."""

import json

import pytest

from toolscout.files import Shape, export_tools
from toolscout.schemas import Json
from toolscout.tools import Tool

TOOL = Tool.define("find", server="s", description="Find a page.", effect="read", hint="seek")
SCHEMA: Json = {"type": "object", "properties": {}}
FUNCTION: Json = {"name": "s__find", "description": "Find a page.", "parameters": SCHEMA}


@pytest.mark.parametrize(
    ("shape", "told"),
    [
        (
            Shape.JSON,
            [
                {
                    "server": "s",
                    "name": "find",
                    "description": "Find a page.",
                    "hint": "seek",
                    "input_schema": SCHEMA,
                    "effect": "read",
                }
            ],
        ),
        (Shape.OPENAI, [{"type": "function", "function": FUNCTION}]),
        (Shape.OPENAI_RESPONSES, [{"type": "function", **FUNCTION}]),
        (
            Shape.ANTHROPIC,
            [{"name": "s__find", "description": "Find a page.", "input_schema": SCHEMA}],
        ),
        (
            Shape.MCP,
            {
                "tools": [
                    {
                        "name": "s__find",
                        "description": "Find a page.",
                        "inputSchema": SCHEMA,
                        "annotations": {"readOnlyHint": True, "destructiveHint": False},
                        "_meta": {"anthropic/searchHint": "seek"},
                    }
                ]
            },
        ),
    ],
)
def test_each_shape_is_what_its_reader_takes(shape: Shape, told: object):
    assert json.loads(export_tools([TOOL], shape)) == told


def test_lines_are_one_tool_each():
    lines = export_tools([TOOL, TOOL], Shape.JSONL).splitlines()

    assert [json.loads(line)["name"] for line in lines] == ["find", "find"]


@pytest.mark.parametrize("shape", list(Shape))
def test_no_tools_are_an_empty_file_of_each_shape(shape: Shape):
    text = export_tools([], shape)

    assert text == {Shape.JSONL: "", Shape.MCP: '{"tools": []}\n'}.get(shape, "[]\n")
