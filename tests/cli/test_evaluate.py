"""`toolscout evaluate`: quality of our own searches over a folder of queries."""

import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from toolscout.cli import main
from toolscout.sessions.usage import UsageLog
from toolscout.stores import SqliteStore

TOOLS = [
    {"id": "1", "name": "send_mail", "server": "mail", "description": "Send an e-mail."},
    {"id": "2", "name": "read_file", "server": "disk", "description": "Read a file."},
]
QUERIES = [
    {"id": "a", "query": "send a mail", "relevant": ["1"]},
    {"id": "b", "query": "read this file", "relevant": ["2"]},
]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "office"
    folder.mkdir()
    write_rows(folder / "tools.jsonl", TOOLS)
    write_rows(folder / "queries.jsonl", QUERIES)
    return folder


def write_rows(path: Path, rows: Sequence[object]) -> None:
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")


def evaluate(*arguments: object) -> Result:
    return CliRunner().invoke(main, ["evaluate", *map(str, arguments)])


def test_the_tables_have_a_row_for_every_installed_encoder(folder: Path):
    result = evaluate(folder)

    assert result.exit_code == 0
    lines = [line.split() for line in result.stdout.splitlines()]
    assert [line[:2] for line in lines[1:5]] == [
        ["system", "Hit@1"],
        ["static", "1.000"],
        ["none", "1.000"],
        ["onnx", "1.000"],
    ]
    assert [line[0] for line in lines[6:]] == ["nDCG@10", "dataset", "office", "macro"]


def test_json_has_every_metric_of_the_chosen_encoder(folder: Path):
    found = json.loads(evaluate(folder.parent, "--encoder", "none", "--json").stdout)

    assert list(found["macro"]) == ["none"]
    assert found["datasets"]["office"]["none"]["ndcg@10"]["mean"] == 1.0
    assert found["datasets"]["office"]["none"]["queries"] == 2


def test_a_limit_asks_fewer_queries(folder: Path):
    command = (folder, "--encoder", "none", "--limit", 1, "--json")

    assert json.loads(evaluate(*command).stdout)["macro"]["none"]["queries"] == 1


def test_a_folder_without_tools_is_an_error_that_says_what_is_missing(tmp_path: Path):
    result = evaluate(tmp_path)

    assert result.exit_code == 2
    assert "there is no tools.jsonl or tools.jsonl.gz" in result.stderr


def test_a_log_shows_what_learning_would_have_given(folder: Path, tmp_path: Path):
    log = tmp_path / "calls.jsonl"
    write_rows(log, [{"query": "send a mail", "tool": "mail__send_mail"}] * 3)

    found = json.loads(evaluate("--learned", log, folder, "--json").stdout)
    shown = evaluate("--learned", log, folder, "--encoder", "none").stdout

    assert found["with_history"]["requests"] == 2
    assert found["without_history"]["requests"] == 1
    assert found["with_history"]["first_learned"] == 1.0
    assert "tools called before" in shown


@pytest.mark.usefixtures("home")
def test_without_a_log_the_gateways_own_is_replayed(home: Path, folder: Path):
    (home / "toolscout.toml").write_text("[gateway]\ncache = 'gateway.db'\n")
    with SqliteStore(home / "gateway.db") as store:
        UsageLog(store, lambda: 1.0).add("c", "send a mail", "mail__send_mail", "ok")

    found = json.loads(evaluate(folder, "--json", "--learned").stdout)

    assert found["without_history"]["requests"] == 1


def test_queries_or_a_log_are_needed():
    result = evaluate()

    assert result.exit_code == 2
    assert "Name a DIR with queries, or use --learned." in result.stderr
