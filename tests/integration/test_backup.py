"""A backup is restored and nothing is missing: the steps of the operations page, done for real."""

import shutil
import sqlite3
import subprocess
import uuid
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import psycopg
import pytest
from psycopg import sql

from toolscout import Scout
from toolscout.cli.inputs import open_store
from toolscout.config.file import Config
from toolscout.config.gateway import GatewayConfig
from toolscout.demo import load_demo_catalog

LOADED = "github__create_pull_request"


def search(config: Config) -> None:
    """Let a session load tools, and keep it in the store of a configuration."""
    with closing(open_store(config)) as store:
        Scout(load_demo_catalog(), store=store).session("s").search("open a pull request")


def list_loaded(config: Config) -> set[str]:
    """Return what the session has loaded, as its store tells."""
    with closing(open_store(config)) as store:
        return set(Scout(load_demo_catalog(), store=store).session("s").loaded)


def test_a_copy_of_the_sqlite_file_restores_what_a_session_had_loaded(tmp_path: Path):
    """The copy is made while the database is open, as `sqlite3 FILE '.backup COPY'` does."""
    file, copy = tmp_path / "gateway.db", tmp_path / "copy.db"
    search(config_of_file(file))
    with closing(sqlite3.connect(file)) as source, closing(sqlite3.connect(copy)) as target:
        source.backup(target)
        before = count_rows_of_file(file)
    for path in tmp_path.glob("gateway.db*"):
        path.unlink()

    shutil.copy(copy, file)

    assert count_rows_of_file(file) == before
    assert sum(before.values()) > 0
    assert LOADED in list_loaded(config_of_file(file))


def test_a_dump_of_postgresql_restores_what_a_session_had_loaded(
    make_database: Callable[[], str], find_program: Callable[[str], str], tmp_path: Path
):
    """The dump is restored into an empty database, and sessions go on with that."""
    old = make_database()
    new = make_database()
    dump = tmp_path / "toolscout.dump"
    search(config_of_database(old))
    assert LOADED not in list_loaded(config_of_database(make_database()))
    before = count_rows(old)

    run(
        *(find_program("pg_dump"), "--format=custom", "--schema=toolscout", "--no-owner"),
        *(f"--file={dump}", old),
    )
    run(
        *(find_program("pg_restore"), "--no-owner", "--exit-on-error", "--single-transaction"),
        *(f"--dbname={new}", str(dump)),
    )

    assert count_rows(new) == before
    assert sum(before.values()) > 0
    assert LOADED in list_loaded(config_of_database(new))


def config_of_file(file: Path) -> Config:
    return Config(gateway=GatewayConfig(cache=str(file)))


def config_of_database(url: str) -> Config:
    return Config(gateway=GatewayConfig(store=url))


@pytest.fixture
def make_database(postgres_url: str) -> Callable[[], str]:
    """Return what makes an empty database and returns its address."""

    def make() -> str:
        name = f"t{uuid.uuid4().hex}"
        with psycopg.connect(postgres_url, autocommit=True) as connection:
            connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
        return postgres_url.replace("/postgres?", f"/{name}?")

    return make


@pytest.fixture
def find_program(postgres_url: str) -> Callable[[str], str]:
    """Return what finds a program of the server's own version."""
    with psycopg.connect(postgres_url) as connection:
        statement = "SELECT setting FROM pg_config WHERE name = 'BINDIR'"
        [folder] = connection.execute(statement).fetchone() or [""]
    return lambda name: str(Path(folder) / name)


def count_rows(url: str) -> dict[str, int]:
    """Return the number of rows of each table of toolscout."""
    counts: dict[str, int] = {}
    with psycopg.connect(url) as connection:
        listed = connection.execute(
            "SELECT table_name FROM information_schema.tables "
            "WHERE table_schema = 'toolscout' AND table_type = 'BASE TABLE'"
        ).fetchall()
        for (name,) in listed:
            statement = sql.SQL("SELECT count(*) FROM toolscout.{}").format(sql.Identifier(name))
            [counts[name]] = connection.execute(statement).fetchone() or [0]
    return counts


def count_rows_of_file(file: Path) -> dict[str, int]:
    """Return the number of rows of each table of a SQLite file."""
    with closing(sqlite3.connect(file)) as connection:
        listed = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
        names = [name for (name,) in listed if not name.startswith("sqlite_")]
        return {
            name: connection.execute(f'SELECT count(*) FROM "{name}"').fetchone()[0]
            for name in names
        }


def run(*words: str) -> None:
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
