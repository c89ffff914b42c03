"""The database that several replicas share."""

import threading
import uuid
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest

from toolscout import Scout
from toolscout.demo import load_demo_catalog
from toolscout.errors import StoreUnavailable, UsageError
from toolscout.stores import PostgresStore

DEADLINE = 120.0


@pytest.fixture
def schema() -> str:
    return f"test_{uuid.uuid4().hex}"


def test_what_one_replica_writes_another_reads(postgres_url: str, schema: str):
    one, two = (PostgresStore(postgres_url, schema=schema) for _ in range(2))
    with one, two:
        Scout(load_demo_catalog(), store=one).session("s").search("open a pull request")
        loaded = Scout(load_demo_catalog(), store=two).session("s").loaded

    assert "github__create_pull_request" in loaded


def test_schemas_do_not_meet(postgres_url: str, schema: str):
    with PostgresStore(postgres_url, schema=schema) as one:
        one.write("session", "a", b"one")
        with PostgresStore(postgres_url, schema=f"{schema}_other") as other:
            assert other.read("session", "a") is None


def test_replicas_that_start_at_once_make_the_tables_once(postgres_url: str, schema: str):
    ready = threading.Barrier(4)

    def start(number: int) -> None:
        ready.wait(DEADLINE)
        with PostgresStore(postgres_url, schema=schema) as store:
            store.write("session", str(number), b"here")

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(start, range(4), timeout=DEADLINE))

    with PostgresStore(postgres_url, schema=schema) as store:
        assert store.keys("session") == ["0", "1", "2", "3"]


def test_the_numbers_of_a_log_appear_in_their_order(postgres_url: str, schema: str):
    """A reader that goes on after the last number it saw misses nothing."""
    seen: list[int] = []
    done = threading.Event()

    def write(_: int) -> None:
        with PostgresStore(postgres_url, schema=schema) as store:
            for number in range(50):
                store.append("usage", str(number).encode())

    def read() -> None:
        with PostgresStore(postgres_url, schema=schema) as store:
            last = False
            while not last:
                last = done.is_set()
                seen.extend(number for number, _ in store.scan("usage", seen[-1] if seen else 0))

    with ThreadPoolExecutor(4) as pool:
        reader = pool.submit(read)
        list(pool.map(write, range(3), timeout=DEADLINE))
        done.set()
        reader.result(DEADLINE)

    assert seen == sorted(seen)
    assert len(seen) == 150


def test_a_lost_connection_is_opened_anew(postgres_url: str, schema: str):
    with PostgresStore(postgres_url, schema=schema) as store:
        store.write("session", "a", b"one")
        with psycopg.connect(postgres_url, autocommit=True) as other:
            other.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> "
                "pg_backend_pid() AND backend_type = 'client backend'"
            )
        with pytest.raises(StoreUnavailable):
            store.read("session", "a")

        assert store.read("session", "a") == b"one"


def test_a_database_that_is_not_there_is_named_without_its_password():
    with pytest.raises(StoreUnavailable) as caught:
        PostgresStore("postgresql://me:hunter2@127.0.0.1:1/tools")

    assert "127.0.0.1/tools" in str(caught.value)
    assert "hunter2" not in str(caught.value)


def test_a_newer_layout_is_refused(postgres_url: str, schema: str):
    PostgresStore(postgres_url, schema=schema).close()
    with psycopg.connect(postgres_url, autocommit=True) as other:
        other.execute(f"INSERT INTO {schema}.layout VALUES (99)")  # pyright: ignore[reportArgumentType, reportCallIssue]

    with pytest.raises(StoreUnavailable, match="newer toolscout"):
        PostgresStore(postgres_url, schema=schema)


def test_a_closed_store_says_so(postgres_url: str, schema: str):
    store = PostgresStore(postgres_url, schema=schema)
    store.close()
    store.close()
    with pytest.raises(UsageError, match="is closed"):
        store.read("session", "a")
