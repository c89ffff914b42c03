"""`python -m benchmarks sdks` in an environment without any SDK, or with some."""

import json
from importlib.util import find_spec
from pathlib import Path

import pytest
from click.testing import CliRunner

from benchmarks.commands import main

HAS_SDK = any(find_spec(name) for name in ("pydantic_ai", "fastmcp", "haystack"))


def test_sdks_compares_what_is_installed_or_says_what_to_install(tmp_path: Path):
    (tmp_path / "tools.jsonl").write_text('{"id": "1", "name": "send_mail"}\n')
    (tmp_path / "queries.jsonl").write_text('{"id": "a", "query": "mail", "relevant": ["1"]}\n')
    result = CliRunner().invoke(main, ["sdks", str(tmp_path), "--limit", "1", "--json"])

    if HAS_SDK:
        assert json.loads(result.stdout)["queries"] == 1
    else:
        assert result.exit_code == 2
        assert "pip install" in result.stderr


def test_sdks_needs_a_folder():
    result = CliRunner().invoke(main, ["sdks"])

    assert result.exit_code == 2
    assert "Missing argument" in result.stderr


@pytest.mark.parametrize("command", ["quality", "speed", "tokens", "gateway", "fit", "sdks"])
def test_every_benchmark_has_help(command: str):
    assert CliRunner().invoke(main, [command, "--help"]).exit_code == 0
