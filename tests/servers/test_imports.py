"""Tools from files, documents and servers that were asked before."""

import json
from pathlib import Path

import pytest

from serving import HANGING, TIME
from toolscout.catalog import Status
from toolscout.config.file import Config
from toolscout.errors import InvalidFile
from toolscout.servers.imports import import_tools, recall_catalog
from toolscout.servers.manifest import MANIFEST_KIND, Manifest
from toolscout.servers.server import compute_config_key
from toolscout.stores.memory import MemoryStore


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


def test_servers_are_known_by_what_they_offered_last_and_pending_otherwise():
    store = MemoryStore()
    manifest = Manifest(tools=({"name": "now", "inputSchema": {"type": "object"}},))
    store.write(MANIFEST_KIND, "time", manifest.to_bytes(compute_config_key(TIME)))
    config = Config(servers=(TIME, HANGING))

    known, unknown = recall_catalog(config, store), recall_catalog(config, None)

    assert [tool.name for tool in known.tools] == ["time__now"]
    assert list(known.unready) == ["hanging"]
    assert unknown.tools == ()
    assert {state.status for state in unknown.unready.values()} == {Status.PENDING}
    assert list(unknown.unready) == ["hanging", "time"]
