"""Tools that commands read from files and documents."""

import json
from pathlib import Path

import pytest

from toolscout.cli.inputs import import_tools
from toolscout.errors import InvalidFile


def test_tools_that_name_a_server_keep_it_and_others_get_the_one_given(tmp_path: Path):
    file = tmp_path / "tools.json"
    file.write_text(json.dumps([{"name": "a"}, {"name": "b", "server": "own"}]))

    assert [tool.name for tool in import_tools(file, "given")] == ["given__a", "own__b"]
    assert [tool.name for tool in import_tools(file)] == ["a", "own__b"]


def test_an_old_document_is_refused_as_a_document_not_as_tools(tmp_path: Path):
    file = tmp_path / "api.json"
    file.write_text(json.dumps({"swagger": "2.0", "paths": {}}))

    with pytest.raises(InvalidFile, match=r"is Swagger 2\.0, not OpenAPI 3"):
        import_tools(file)


def test_a_file_that_is_nothing_is_refused_as_tools(tmp_path: Path):
    file = tmp_path / "tools.json"
    file.write_text("{")

    with pytest.raises(InvalidFile, match="is not JSON"):
        import_tools(file)
