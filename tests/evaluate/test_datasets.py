import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from toolscout.errors import InvalidFile
from toolscout.evaluate.datasets import read_dataset, read_datasets

Json = dict[str, Any]

MAIL: Json = {
    "id": "mail/send",
    "name": "send",
    "server": "mail",
    "description": "Send an e-mail.",
    "input_schema": {"type": "object", "properties": {"to": {"type": "string"}}},
}
FILES: Json = {"id": "read", "name": "read", "server": None, "description": None}


def write_dataset(folder: Path, tools: list[Json], queries: list[Json] | None = None) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    _write_lines(folder / "tools.jsonl", tools)
    if queries is not None:
        _write_lines(folder / "queries.jsonl", queries)
    return folder


def _write_lines(path: Path, rows: list[Json]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def asked(relevant: list[str], **more: object) -> Json:
    return {"id": "q1", "query": "send a mail", "relevant": relevant, **more}


def test_tools_and_queries_are_read_in_the_order_of_the_file(tmp_path: Path):
    query = asked(["mail/send"], kind="single", split="test")

    dataset = read_dataset(write_dataset(tmp_path / "small", [MAIL, FILES], [query]))

    assert dataset.name == "small"
    assert dataset.ids == ("mail/send", "read")
    assert [tool.name for tool in dataset.tools] == ["mail__send", "read"]
    assert [tool.description for tool in dataset.tools] == ["Send an e-mail.", ""]
    (question,) = dataset.queries
    assert (question.id, question.text) == ("q1", "send a mail")
    assert (question.relevant, question.kind, question.split) == (("mail/send",), "single", "test")


def test_a_folder_without_queries_has_tools_only(tmp_path: Path):
    assert read_dataset(write_dataset(tmp_path, [MAIL])).queries == ()


def test_compressed_tools_and_blank_lines_are_read(tmp_path: Path):
    with gzip.open(tmp_path / "tools.jsonl.gz", "wt", encoding="utf-8") as file:
        file.write(f"{json.dumps(MAIL)}\n\n{json.dumps(FILES)}\n")

    assert len(read_dataset(tmp_path).tools) == 2


def test_tools_of_equal_server_and_name_are_one_group_under_several_names(tmp_path: Path):
    variant = {**MAIL, "id": "mail/send~2", "description": "Send a letter."}
    elsewhere = {**MAIL, "id": "post/send", "server": "post"}

    dataset = read_dataset(
        write_dataset(tmp_path, [MAIL, variant, elsewhere], [asked(["mail/send~2", "mail/send"])])
    )

    assert [tool.name for tool in dataset.tools] == ["mail__send", "mail__send_2", "post__send"]
    assert [tool.leaf for tool in dataset.tools] == ["send", "send", "send"]
    assert dataset.groups == (0, 0, 1)
    assert dataset.group_by_name() == {"mail__send": 0, "mail__send_2": 0, "post__send": 1}
    assert dataset.find_relevant_groups() == [frozenset({0})]


def test_names_that_only_look_alike_when_exposed_are_told_apart(tmp_path: Path):
    dotted = {"id": "1", "name": "a.b"}
    slashed = {"id": "2", "name": "a/b"}
    numbered = {"id": "3", "name": "a_b_2"}

    dataset = read_dataset(write_dataset(tmp_path, [dotted, slashed, numbered]))

    assert [tool.name for tool in dataset.tools] == ["a_b", "a_b_2", "a_b_2_2"]
    assert dataset.groups == (0, 1, 2)


def test_a_derived_name_keeps_within_64_characters(tmp_path: Path):
    long = {"id": "1", "name": "x" * 64}

    dataset = read_dataset(write_dataset(tmp_path, [long, {**long, "id": "2"}]))

    assert [tool.name for tool in dataset.tools] == ["x" * 64, "x" * 62 + "_2"]


def test_a_sample_is_the_same_each_time_and_part_of_a_larger_one(tmp_path: Path):
    queries = [asked(["read"], id=str(number)) for number in range(100)]
    dataset = read_dataset(write_dataset(tmp_path, [FILES], queries))

    ten = [query.id for query in dataset.sample(10).queries]

    assert ten == [query.id for query in dataset.sample(10).queries]
    assert ten != [str(number) for number in range(10)]
    assert ten == sorted(ten, key=int)
    assert set(ten) < {query.id for query in dataset.sample(20).queries}
    assert dataset.sample(1000) == dataset


@pytest.mark.parametrize(
    ("lines", "line", "problem"),
    [
        ("{", 1, "it is not JSON (Expecting property name enclosed in double quotes)"),
        ("[]", 1, "it is not a JSON object"),
        ('{"id": "a"}', 1, "'name' is not a text"),
        ('{"id": 7, "name": "a"}', 1, "'id' is not a text"),
        ('{"id": "a", "name": " "}', 1, "'name' is not a text"),
        ('{"id": "a", "name": "a", "server": 7}', 1, "'server' is not a text"),
        ('{"id": "a", "name": "a", "input_schema": []}', 1, "'input_schema' is not an object"),
        ('{"id": "a", "name": "a"}\n\n{"id": "a", "name": "b"}', 3, "the id 'a' came before"),
    ],
)
def test_a_line_that_is_no_tool_is_named(tmp_path: Path, lines: str, line: int, problem: str):
    (tmp_path / "tools.jsonl").write_text(lines, encoding="utf-8")

    with pytest.raises(InvalidFile) as caught:
        read_dataset(tmp_path)

    assert caught.value.path == str(tmp_path / "tools.jsonl")
    assert (caught.value.line, caught.value.problem) == (line, problem)


def test_a_definition_that_cannot_be_catalogued_is_named_with_its_line(tmp_path: Path):
    endless = {"id": "a", "name": "a" * 2000}

    with pytest.raises(InvalidFile) as caught:
        read_dataset(write_dataset(tmp_path, [MAIL, endless]))

    assert caught.value.line == 2


@pytest.mark.parametrize(
    ("query", "problem"),
    [
        (asked([]), "'relevant' is not a list of ids"),
        (asked([1]), "'relevant' is not a list of ids"),  # pyright: ignore[reportArgumentType]: the mistake under test
        (asked(["x", "read", "y"]), "no tool has the relevant id 'x', 'y'"),
        ({"id": "q", "query": " ", "relevant": ["read"]}, "'query' is not a text"),
    ],
)
def test_a_line_that_is_no_query_is_named(tmp_path: Path, query: Json, problem: str):
    fine = asked(["read"], id="q0")

    with pytest.raises(InvalidFile) as caught:
        read_dataset(write_dataset(tmp_path, [FILES], [fine, query]))

    assert caught.value.path == str(tmp_path / "queries.jsonl")
    assert (caught.value.line, caught.value.problem) == (2, problem)


def test_a_query_id_that_comes_twice_is_an_error(tmp_path: Path):
    with pytest.raises(InvalidFile, match="the id 'q1' came before"):
        read_dataset(write_dataset(tmp_path, [FILES], [asked(["read"]), asked(["read"])]))


@pytest.mark.parametrize(
    "content", [b"no gzip", gzip.compress(b"{}", mtime=0)[:-6], b"\x1f\x8b\x08" + b"\0" * 9]
)
def test_a_damaged_archive_is_an_error_with_its_path(tmp_path: Path, content: bytes):
    (tmp_path / "tools.jsonl.gz").write_bytes(content)

    with pytest.raises(InvalidFile) as caught:
        read_dataset(tmp_path)

    assert caught.value.path == str(tmp_path / "tools.jsonl.gz")


def test_text_in_another_encoding_is_an_error(tmp_path: Path):
    (tmp_path / "tools.jsonl").write_bytes(b'{"id": "\xff", "name": "a"}')

    with pytest.raises(InvalidFile, match="it is not UTF-8"):
        read_dataset(tmp_path)


def test_a_folder_without_tools_is_an_error(tmp_path: Path):
    with pytest.raises(InvalidFile) as caught:
        read_dataset(tmp_path / "nowhere")

    assert caught.value.problem == "there is no tools.jsonl or tools.jsonl.gz"


def test_a_folder_in_place_of_a_file_is_an_error(tmp_path: Path):
    (tmp_path / "tools.jsonl").mkdir()

    with pytest.raises(InvalidFile, match="it cannot be read"):
        read_dataset(tmp_path)


def test_a_folder_of_datasets_stands_for_those_that_have_queries(tmp_path: Path):
    write_dataset(tmp_path / "b", [FILES], [asked(["read"])])
    write_dataset(tmp_path / "a", [FILES], [asked(["read"])])
    write_dataset(tmp_path / "only-tools", [FILES])
    (tmp_path / "README.md").touch()

    assert [dataset.name for dataset in read_datasets([tmp_path])] == ["a", "b"]
    assert [dataset.name for dataset in read_datasets([tmp_path / "a"])] == ["a"]
    assert [dataset.name for dataset in read_datasets([tmp_path / "only-tools"])] == ["only-tools"]
    with pytest.raises(InvalidFile):
        read_datasets([tmp_path / "nowhere"])
