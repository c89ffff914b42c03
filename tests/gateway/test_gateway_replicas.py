"""Several gateways over one database."""

import asyncio
import uuid
from pathlib import Path

import psycopg
import pytest
from click.testing import CliRunner
from psycopg import sql

from gateway.fleet import BERLIN, TIME, client_of, configuration, known, text_of
from toolscout.cli import main

SEARCH = {"queries": ["select:time__convert_time"]}


@pytest.fixture
def database(postgres_url: str) -> str:
    """Return the address of an empty database."""
    name = f"t{uuid.uuid4().hex}"
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
    return postgres_url.replace("/postgres?", f"/{name}?")


def test_a_gateway_searches_tools_that_another_one_has_listed(database: str, tmp_path: Path):
    async def talk() -> None:
        one = configuration(tmp_path, {"time": TIME}, store=database)
        async with client_of(one) as client:
            await known(client, "time__convert_time")
            called = await client.call_tool(
                "tool_call", {"name": "time__get_current_time", "arguments": BERLIN}
            )
            assert called.is_error is False
        other = tmp_path / "other"
        other.mkdir()
        two = configuration(other, {"time": TIME}, store=database)
        two.write_text(two.read_text().replace("[servers.time]", "[servers.time]\nlazy = true"))
        async with client_of(two) as client:
            found = await client.call_tool("tool_search", SEARCH)
            assert "time__convert_time(" in text_of(found)
        assert not (other / "gateway.db").exists()

    asyncio.run(talk())


def test_an_invalid_address_is_refused_before_anything_starts(tmp_path: Path):
    config = configuration(tmp_path, {"time": TIME}, store="mysql://me:hunter2@host/x")

    done = CliRunner().invoke(main, ["serve", "--config", str(config)])

    assert done.exit_code != 0
    assert "gateway.store" in done.stderr
    assert "hunter2" not in done.stderr
