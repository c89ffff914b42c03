import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolscout.errors import InvalidFile
from toolscout.files import json_from_tool, read_tools, write_tools
from toolscout.tools import Effect, Tool

TOOLS = [
    Tool.define("plain"),
    Tool.define(
        "create issue",
        server="github",
        title="Create",
        description="Open an issue. 查询 😀\nMore.",
        summary="Open.",
        input_schema={"type": "object", "properties": {"title": {"type": "string"}}},
        output_schema={"type": "object"},
        hint="bug ticket",
        aliases=["new_issue"],
        tags=["a", "b"],
        kind="skill",
        effect=Effect.WRITE,
        always_load=True,
        extras={"price": 3, "annotations": {"readOnlyHint": True}},
    ),
]


@pytest.mark.parametrize("name", ["t.json", "t.jsonl", "t.json.gz", "t.jsonl.gz"])
def test_what_was_written_reads_back_equal(tmp_path: Path, name: str):
    write_tools(tmp_path / name, TOOLS)

    assert read_tools(tmp_path / name) == TOOLS
    assert [path.name for path in tmp_path.iterdir()] == [name]


@given(st.builds(Tool.define, st.text(min_size=1).filter(str.strip), description=st.text()))
def test_any_tool_survives_its_json(tool: Tool):
    assert Tool.from_any(json.loads(json.dumps(json_from_tool(tool)))) == tool


def test_equal_tools_give_equal_bytes(tmp_path: Path):
    for name in ("a.jsonl.gz", "b.jsonl.gz"):
        write_tools(tmp_path / name, TOOLS)

    assert (tmp_path / "a.jsonl.gz").read_bytes() == (tmp_path / "b.jsonl.gz").read_bytes()


LAYOUTS: list[Any] = [
    [{"name": "find", "inputSchema": {}, "server": "s"}],
    {"server": "s", "tools": [{"name": "find", "parameters": {}}]},
    {"servers": {"s": [{"type": "function", "function": {"name": "find", "parameters": {}}}]}},
    {"servers": {"s": {"tools": [{"name": "find", "input_schema": {}}]}}},
    {"name": "find", "server": "s", "input_schema": {}},
]


@pytest.mark.parametrize("content", LAYOUTS)
def test_every_layout_is_read(tmp_path: Path, content: Any):
    (tmp_path / "t.json").write_text(json.dumps(content))

    assert read_tools(tmp_path / "t.json") == [Tool.define("find", server="s", input_schema={})]


def test_an_mcp_listing_with_its_envelope_is_read(tmp_path: Path):
    answer = {"jsonrpc": "2.0", "id": 1, "result": {"tools": [{"name": "find"}]}}
    (tmp_path / "t.json").write_text(json.dumps(answer))

    assert [tool.name for tool in read_tools(tmp_path / "t.json")] == ["find"]


def test_lines_may_be_blank_and_the_file_may_start_with_a_byte_order_mark(tmp_path: Path):
    (tmp_path / "t.jsonl").write_bytes(b'\xef\xbb\xbf{"name": "a"}\r\n\n{"name": "b"}\n')

    assert [tool.name for tool in read_tools(tmp_path / "t.jsonl")] == ["a", "b"]


@pytest.mark.parametrize(
    ("name", "content", "line"),
    [
        ("t.jsonl", b'{"name": "a"}\n\n{"name": \n', 3),
        ("t.jsonl", b'{"name": "a"}\n{"name": ""}\n', 2),
        ("t.jsonl", b'{"name": "a"}, {"name": "b"}\n', 1),
        ("t.jsonl", b'{"name": "a"}\n7\n', 2),
        ("t.jsonl", b"[" * 100_000, 1),
        ("t.json", b'[\n{"name": }]', 2),
        ("t.json", b"[" * 100_000, None),
        ("t.json", b'{"nothing": 1}', None),
        ("t.json", b'["a"]', None),
        ("t.json", b"7", None),
        ("t.json", b"\xff\xfe", None),
        ("t.json.gz", b"not gzip", None),
        ("t.jsonl.gz", gzip.compress(b'{"name": "a"}\n', mtime=0)[:-6], None),
        ("t.txt", b"", None),
    ],
)
def test_a_bad_file_is_named_with_its_line(
    tmp_path: Path, name: str, content: bytes, line: int | None
):
    (tmp_path / name).write_bytes(content)

    with pytest.raises(InvalidFile) as caught:
        read_tools(tmp_path / name)

    assert caught.value.path == str(tmp_path / name)
    assert caught.value.line == line


def test_a_missing_file_is_named(tmp_path: Path):
    with pytest.raises(InvalidFile, match="cannot be read"):
        read_tools(tmp_path / "none.json")


def test_a_failed_write_leaves_the_old_file_and_nothing_beside_it(tmp_path: Path):
    place = tmp_path / "t.json"
    write_tools(place, TOOLS)

    with pytest.raises(TypeError):
        write_tools(place, [Tool(name="x", extras={"no": {1, 2}})])

    assert read_tools(place) == TOOLS
    assert list(tmp_path.iterdir()) == [place]


def test_a_folder_that_does_not_exist_is_created(tmp_path: Path):
    write_tools(tmp_path / "none" / "t.json", TOOLS)

    assert read_tools(tmp_path / "none" / "t.json") == TOOLS


def test_a_folder_that_cannot_be_created_is_named(tmp_path: Path):
    (tmp_path / "file").write_text("")

    with pytest.raises(InvalidFile, match="cannot be written"):
        write_tools(tmp_path / "file" / "t.json", TOOLS)


def test_a_lone_surrogate_in_a_schema_survives(tmp_path: Path):
    tools = [Tool.define("x", input_schema={"title": "\ud800"})]
    write_tools(tmp_path / "t.jsonl", tools)

    assert read_tools(tmp_path / "t.jsonl") == tools
