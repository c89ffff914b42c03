"""Files and texts, in JSON and YAML, as documents."""

import json
import sys
from pathlib import Path

import pytest

from servers.openapi.samples import operation, parameter
from toolscout.errors import InvalidFile, MissingExtra
from toolscout.servers.openapi import document
from toolscout.servers.openapi.document import read_document


def test_json_and_yaml_say_the_same(tmp_path: Path):
    given = operation(responses={"200": {}}, parameters=[parameter("on", "query", example=None)])
    path = tmp_path / "api.json"
    path.write_text(json.dumps(given))
    yaml = (
        "openapi: 3.0.3\ninfo: {title: t, version: '1'}\npaths:\n  /x:\n    get:\n"
        "      responses: {200: {}}\n      parameters:\n"
        "      - {name: on, in: query, schema: &s {type: string}, example: ~}\n"
    )

    assert read_document(path) == read_document(str(path)) == read_document(yaml) == given
    assert read_document(json.dumps(given)) == given


def test_yaml_scalars_are_those_of_json():
    text = "openapi: 3.1.0\nx: [yes, 2020-01-01, 0o17, 012, 1.5, -3, true, null, 1e3, '1', <<]\n"

    words = ["yes", "2020-01-01", "0o17", "012", 1.5, -3, True, None, 1000.0, "1", "<<"]
    assert read_document(text)["x"] == words


@pytest.mark.parametrize(
    "text",
    [
        *("", "\n", "a: [", "a: b: c\n", "- 1\n", "openapi: 4.0\n", "{}", '{"openapi": 3}'),
        *('{"openapi": "3.0.0", "a": NaN}', '{"openapi": "3.0.0", "a": 1e999}', "{" * 5000),
        '{"openapi": "3.0.0", "a": ' + "[" * 100_000 + "]" * 100_000 + "}",
        '{"openapi": "3.0.0", "a": ' + "9" * 5000 + "}",
        "openapi: 3.0.0\na: " + "[" * 100_000,
        "openapi: 3.0.0\na: &a [*a]\n",
        "openapi: 3.0.0\n? [a]\n: b\n",
        "--- 1\n--- 2\n",
    ],
    ids=lambda text: text[:30],
)
def test_texts_that_are_no_document_are_refused(text: str):
    with pytest.raises(InvalidFile):
        read_document(text)


def test_a_short_text_with_too_many_values_is_refused(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(document, "DOCUMENT_VALUES", 30_000)  # three million take seconds
    bomb = "openapi: 3.0.0\na: &a [" + "x, " * 1000 + "]\nb: &b [" + "*a, " * 1000 + "]\n"

    with pytest.raises(InvalidFile, match="it contains more than 30,000 values"):
        read_document(bomb + "c: &c [" + "*b, " * 1000 + "]\n")


def test_files_that_cannot_be_read_are_refused(tmp_path: Path):
    (tmp_path / "latin.yaml").write_bytes(b"openapi: \xff\n")

    for path in (tmp_path, tmp_path / "none.yaml", tmp_path / "latin.yaml", "a\0b"):
        with pytest.raises(InvalidFile):
            read_document(path)


def test_yaml_without_its_library_names_the_extra(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "yaml", None)

    with pytest.raises(MissingExtra, match=r"toolscout\[gateway\]"):
        read_document("openapi: 3.0.0\n")
