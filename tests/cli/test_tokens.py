"""`toolscout tokens` and `toolscout bench tokens`."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from click.testing import CliRunner

from toolscout.cli import main


def test_tokens_shows_what_the_demo_catalogue_costs():
    result = CliRunner().invoke(main, ["tokens"])

    assert result.exit_code == 0
    assert result.stdout.startswith("All 246 definitions of 26 servers")
    assert "the three meta-tools" in result.stdout
    assert "github" in result.stdout


def test_the_meta_tools_cost_less_than_900_tokens_in_every_dialect():
    figures = json.loads(CliRunner().invoke(main, ["tokens", "--json"]).stdout)

    assert set(figures["meta_tools"]) == {"openai-chat", "openai-responses", "anthropic", "mcp"}
    assert all(100 < cost < 900 for cost in figures["meta_tools"].values())
    assert figures["request"] <= 900 + 4_000 + figures["pinned"]
    assert figures["definitions"] == sum(figures["by_server"].values())
    assert figures["estimated"] is True


def test_bench_tokens_counts_replies_over_a_dataset(tmp_path: Path):
    tools = [
        {"id": str(n), "server": "s", "name": f"tool_{n}", "description": f"Does thing {n}."}
        for n in range(5)
    ]
    queries = [{"id": str(n), "query": f"thing {n}", "relevant": [str(n)]} for n in range(4)]
    write(tmp_path / "tools.jsonl", tools)
    write(tmp_path / "queries.jsonl", queries)
    command = ["bench", "tokens", str(tmp_path), "--queries", str(tmp_path), "--sample", "3"]

    figures = json.loads(CliRunner().invoke(main, [*command, "--json"]).stdout)
    shown = CliRunner().invoke(main, command).stdout

    assert figures["replies"]["queries"] == 3
    assert figures["replies"]["over_budget"] == 0
    assert 0 < figures["replies"]["median"] <= figures["replies"]["most"]
    assert "reply, median of 3 queries" in shown


def write(path: Path, rows: Sequence[Mapping[str, object]]) -> None:
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")
