"""Searches of a large catalogue in PostgreSQL, measured on a small one."""

import json
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from click.testing import CliRunner
from psycopg import sql

from benchmarks.commands import main
from benchmarks.large import vary_servers
from toolscout.demo import load_demo_tools

NAME = "large_catalogue"


@pytest.fixture
def empty_url(postgres_url: str) -> Iterator[str]:
    """Give the address of a database of its own."""
    name = sql.Identifier(NAME)
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute(sql.SQL("CREATE DATABASE {}").format(name))
        yield postgres_url.replace("/postgres?", f"/{NAME}?")
        connection.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(name))


def test_variants_have_other_servers_names_and_words():
    tools = load_demo_tools()
    servers = dict(vary_servers(tools, 1_000))
    varied = [tool for own in servers.values() for tool in own]

    assert len(varied) == len({tool.name for tool in varied}) == 1_000
    assert all(tool.server == server for server, own in servers.items() for tool in own)
    assert len({tool.description for tool in varied}) > len({tool.description for tool in tools})


@pytest.mark.slow
def test_searches_are_measured_and_compared_with_an_exact_ranking(empty_url: str, tmp_path: Path):
    file = tmp_path / "figures.json"
    words = ["--catalog", "1200", "--queries", "10", "--save", str(file)]

    done = CliRunner().invoke(main, ["large", "--url", empty_url, *words])

    assert done.exit_code == 0, done.output
    assert "A catalogue in PostgreSQL" in done.output
    figures = json.loads(file.read_text(encoding="utf-8"))
    assert figures["tools"] == 1_200
    assert 0 < figures["p50_ms"] <= figures["p95_ms"]
    assert figures["resident_bytes"] > 0
    assert 0.9 <= figures["found"] <= 1.0
