"""`python -m benchmarks`: its commands, figures and mistakes."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from benchmarks.commands import QUALITY_SYSTEMS, main
from benchmarks.systems import SYSTEM_NAMES

TOOLS: list[dict[str, Any]] = [
    {"id": "1", "name": "send_mail", "server": "mail", "description": "Send an e-mail."},
    {"id": "2", "name": "read_file", "server": "disk", "description": "Read a file."},
    {"id": "3", "name": "list_events", "server": "dates", "description": "List appointments."},
]
QUERIES: list[dict[str, Any]] = [
    {"id": "a", "query": "send a mail", "relevant": ["1"]},
    {"id": "b", "query": "read this file", "relevant": ["2"]},
]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "data" / "office"
    folder.mkdir(parents=True)
    for name, rows in (("tools", TOOLS), ("queries", QUERIES)):
        text = "".join(json.dumps(row) + "\n" for row in rows)
        (folder / f"{name}.jsonl").write_text(text, encoding="utf-8")
    return folder


def run(*arguments: object) -> Result:
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


def test_quality_prints_aligned_tables_in_a_pipe(folder: Path):
    result = run("quality", folder, "--system", "oh-my-pi", "--system", "bm25s")

    assert result.exit_code == 0
    assert result.stderr == ""
    assert "\t" not in result.stdout
    lines = result.stdout.splitlines()
    assert lines[0] == "Macro mean, datasets: 1"
    assert [line.split()[:2] for line in lines[1:4]] == [
        ["system", "Hit@1"],
        ["oh-my-pi", "1.000"],
        ["bm25s", "1.000"],
    ]
    assert [line.split()[0] for line in lines[5:]] == ["nDCG@10", "dataset", "office", "macro"]


def test_quality_gives_json_alone_and_saves_the_same(folder: Path, tmp_path: Path):
    saved = tmp_path / "saved.json"

    result = run("quality", folder, "--system", "oh-my-pi", "--limit", 1, "--json", "--save", saved)

    found = json.loads(result.stdout)
    assert found["datasets"]["office"]["oh-my-pi"]["hit@1"]["mean"] == 1.0
    assert found["datasets"]["office"]["oh-my-pi"]["queries"] == 1
    assert found["macro"]["oh-my-pi"]["tools"] == 3
    assert found["command"] == f"python -m benchmarks quality {folder} --system oh-my-pi --limit 1"
    assert json.loads(saved.read_text(encoding="utf-8")) == found


def test_quality_takes_a_folder_of_datasets_and_writes_a_report(folder: Path, tmp_path: Path):
    report = tmp_path / "report"

    result = run("quality", folder.parent, "--system", "oh-my-pi", "--report", report)

    assert result.exit_code == 0
    assert "| office | 1.000 [1.000, 1.000] |" in (report / "report.md").read_text(encoding="utf-8")
    assert (report / "ndcg.svg").exists()


def test_quality_compares_with_the_five_unless_told_otherwise():
    assert set(QUALITY_SYSTEMS) < set(SYSTEM_NAMES)
    assert len(QUALITY_SYSTEMS) == 7


def test_mistakes_end_in_a_message_and_an_exit_code(folder: Path, tmp_path: Path):
    nowhere = run("quality", tmp_path / "nowhere")
    nobody = run("quality", folder, "--system", "nobody")

    assert (nowhere.exit_code, nobody.exit_code) == (2, 2)
    assert "there is no tools.jsonl" in nowhere.stderr
    assert "There is no system 'nobody'." in nobody.stderr


def test_speed_gives_json_with_memory_and_import(folder: Path):
    result = run(
        *("speed", "--tools", folder, "--sizes", "2, 3", "--queries", 2),
        *("--system", "oh-my-pi", "--system", "bm25s", "--json"),
    )

    found = json.loads(result.stdout)
    assert list(found["sizes"]) == ["2", "3"]
    assert list(found["sizes"]["3"]) == ["oh-my-pi", "bm25s"]
    assert found["sizes"]["3"]["bm25s"]["p50_over_bm25s"] == 1.0
    assert found["sizes"]["3"]["bm25s"]["memory"]["rss_mb"] > 1.0
    assert list(found["import"]) == ["ms", "modules", "optional"]
    assert found["command"] == (
        f"python -m benchmarks speed --sizes 2,3 --tools {folder} "
        "--system oh-my-pi --system bm25s --queries 2"
    )


def test_speed_prints_tables_and_writes_a_report(folder: Path, tmp_path: Path):
    report = tmp_path / "report"

    result = run(
        *("speed", "--tools", folder, "--sizes", "3", "--queries", 2),
        *("--system", "oh-my-pi", "--report", report),
    )

    assert result.exit_code == 0
    assert result.stdout.startswith("3 tools, 2 queries\nsystem")
    assert (report / "latency.png").exists()


def test_hints_are_compared_with_none(folder: Path):
    result = run("hints", folder, folder, "--limit", 5, "--rounds", 1, "--json")

    found = json.loads(result.stdout)
    assert 0 <= found["hinted"] <= found["tools"]
    assert found["search_ratio"] > 0
    assert found["build_ratio"] > 0


def test_nonsense_counts_what_finds_nothing(folder: Path):
    result = run("nonsense", folder, "--count", 20, "--json")

    [found] = json.loads(result.stdout)["datasets"]
    assert found["shares"].keys() == {"letters", "keys", "syllables"}
    assert min(found["shares"].values()) > 0.8
    assert (found["queries"], found["empty"]) == (2, [])


def test_learning_compares_tools_with_and_without_history(folder: Path):
    command = ["learning", folder, "--calls", 1, "--held-out", 0, "--encoder", "none"]

    [found] = json.loads(run(*command, "--json").stdout)["learning"]
    shown = run(*command).stdout

    assert found["calls"] == 1
    counts = found["with_history"]["queries"], found["without_history"]["queries"]
    assert sum(counts) == 1
    assert "nDCG@10 after past calls" in shown


def test_tokens_counts_replies_over_a_dataset(folder: Path):
    command = ["tokens", folder, "--queries", folder, "--sample", 2]

    figures = json.loads(run(*command, "--json").stdout)
    shown = run(*command).stdout

    assert figures["replies"]["queries"] == 2
    assert figures["replies"]["over_budget"] == 0
    assert 0 < figures["replies"]["median"] <= figures["replies"]["most"]
    assert "reply, median of 2 queries" in shown


@pytest.mark.parametrize("sizes", ["", "ten", "0", "10,", "-5"])
def test_sizes_that_are_no_numbers_are_refused(sizes: str):
    result = run("speed", "--sizes", sizes)

    assert result.exit_code == 2
    assert "is not a list of sizes such as 1000,10000." in result.stderr


@pytest.mark.parametrize("command", ["quality", "speed"])
def test_the_help_of_each_command_has_an_example(command: str):
    assert f"Example:\n    python -m benchmarks {command} " in run(command, "--help").stdout


def test_the_scanner_is_measured_on_our_samples_and_on_a_dataset(folder: Path):
    result = run("scanner", folder, "--json")

    sets = {row["name"]: row for row in json.loads(result.stdout)["sets"]}
    assert {"attacks, tuned", "attacks, held out", "attacks, all", "office"} <= set(sets)
    assert sets["attacks, all"]["definitions"] >= 200
    assert sets["office"]["held"] == 0
    assert sets["office"]["held_wrongly"] == 0.0
