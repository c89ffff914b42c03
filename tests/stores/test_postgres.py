"""The database that several replicas share."""

import threading
import uuid
from collections.abc import Mapping, Set
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import partial
from queue import Queue
from typing import Any, LiteralString, cast

import psycopg
import pytest
from psycopg import sql

from toolscout import Scout
from toolscout.demo import load_demo_catalog
from toolscout.errors import StoreUnavailable, UsageError
from toolscout.stores import PostgresStore
from toolscout.stores.migrations import ENTRY_TABLES, POSTGRES, RECORD_TABLES
from toolscout.stores.postgres import APPEND, LOCK
from toolscout.stores.store import Append, Merge, Put, Version

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


def test_a_lost_connection_is_replaced(postgres_url: str, schema: str):
    with PostgresStore(postgres_url, schema=schema) as store:
        store.write("session", "a", b"one")
        with psycopg.connect(postgres_url, autocommit=True) as other:
            other.execute(
                "SELECT pg_terminate_backend(pid, 60000) FROM pg_stat_activity WHERE pid <> "
                "pg_backend_pid() AND backend_type = 'client backend'"
            )

        assert store.read("session", "a") == b"one"
        store.write("session", "a", b"two")
        assert store.read("session", "a") == b"two"


@pytest.mark.parametrize("hosts", ["127.0.0.1:1", "127.0.0.1:1,localhost:2"])
def test_a_database_that_is_not_there_is_named_without_its_password(hosts: str):
    with pytest.raises(StoreUnavailable) as caught:
        PostgresStore(f"postgresql://me:hunter2@{hosts}/tools?target_session_attrs=read-write")

    assert f"{hosts}/tools" in str(caught.value)
    assert "hunter2" not in str(caught.value)


def run(url: str, statement: str, *values: object) -> list[tuple[Any, ...]]:
    with psycopg.connect(url, autocommit=True) as connection:
        cursor = connection.execute(cast("LiteralString", statement), values)
        return cursor.fetchall() if cursor.description else []


def test_a_newer_layout_that_older_code_cannot_use_is_refused(postgres_url: str, schema: str):
    PostgresStore(postgres_url, schema=schema).close()
    run(postgres_url, f"INSERT INTO {schema}.migrations VALUES (99, 99)")

    with pytest.raises(StoreUnavailable, match="newer toolscout"):
        PostgresStore(postgres_url, schema=schema)


def test_a_newer_layout_that_older_code_can_use_is_used(postgres_url: str, schema: str):
    PostgresStore(postgres_url, schema=schema).close()
    run(postgres_url, f"INSERT INTO {schema}.migrations VALUES (99, 1)")

    with PostgresStore(postgres_url, schema=schema) as store:
        store.write("session", "a", b"one")
        assert store.read("session", "a") == b"one"


def test_each_kind_has_a_table(postgres_url: str, schema: str):
    with PostgresStore(postgres_url, schema=schema) as store:
        for kind in (*ENTRY_TABLES, "another"):
            store.write(kind, "a", kind.encode())
        for kind in (*RECORD_TABLES, "another"):
            store.append(kind, kind.encode())

    for kind, table in (ENTRY_TABLES | {"another": "other_entries"}).items():
        found = run(postgres_url, f"SELECT value, version FROM {schema}.{table}")
        assert found == [(kind.encode(), 1)]
    for kind, table in (RECORD_TABLES | {"another": "other_records"}).items():
        assert run(postgres_url, f"SELECT value FROM {schema}.{table}") == [(kind.encode(),)]


def test_a_log_is_read_no_further_than_every_writer_has_committed(postgres_url: str, schema: str):
    """A value that is committed late has a lower number than others that were seen."""
    with (
        PostgresStore(postgres_url, schema=schema) as store,
        psycopg.connect(postgres_url) as late,
        psycopg.connect(postgres_url) as stranger,
    ):
        store.append("usage", b"first")
        stranger.execute("SELECT pg_current_xact_id()")  # a long transaction of somebody else
        statement = sql.SQL(APPEND).format(schema=sql.Identifier(schema))
        late.execute(statement, [[b"usage"], [b"late"], 0, 0])
        store.append("usage", b"early")
        before = list(store.scan("usage"))
        late.commit()
        after = list(store.scan("usage", before[-1][0]))

    assert [value for _, value in before] == [b"first"]
    assert [value for _, value in after] == [b"late", b"early"]


def test_writers_of_a_log_do_not_wait_for_each_other(postgres_url: str, schema: str):
    with (
        PostgresStore(postgres_url, schema=schema) as store,
        psycopg.connect(postgres_url) as other,
    ):
        statement = sql.SQL(APPEND).format(schema=sql.Identifier(schema))
        other.execute(statement, [[b"usage"], [b"not committed"], 0, 0])

        store.append("usage", b"one")  # would run into the limit of a statement

        assert [value for _, value in store.scan_back("usage")] == [b"one"]


class FirstLayout:
    """Does what the code of the first layout did, over one connection."""

    def __init__(self, url: str, schema: str) -> None:
        self.connection = psycopg.connect(url, autocommit=True, prepare_threshold=1)
        self.connection.execute(sql.SQL("SET search_path TO {}").format(sql.Identifier(schema)))

    @classmethod
    def create(cls, url: str, schema: str) -> "FirstLayout":
        run(url, f"CREATE SCHEMA {schema}")
        run(url, f"CREATE TABLE {schema}.layout (steps integer NOT NULL)")
        for statement in POSTGRES[0]:
            run(url, statement.format(schema=schema))
        run(url, f"INSERT INTO {schema}.layout VALUES (1)")
        return cls(url, schema)

    def write(self, kind: bytes, key: bytes, value: bytes) -> None:
        self.connection.execute(
            "INSERT INTO entries (kind, key, value) VALUES (%s, %s, %s) "
            "ON CONFLICT (kind, key) DO UPDATE SET value = excluded.value",
            (kind, key, value),
            binary=True,
        )

    def read(self, kind: bytes, key: bytes) -> bytes | None:
        statement = "SELECT value FROM entries WHERE kind = %s AND key = %s"
        row = self.connection.execute(statement, (kind, key), binary=True).fetchone()
        return None if row is None else row[0]

    def append(self, kind: bytes, value: bytes) -> None:
        with self.connection.transaction():
            self.connection.execute("SELECT pg_advisory_xact_lock(%s)", (LOCK,))
            self.connection.execute(
                "INSERT INTO records (number, kind, value) "
                "VALUES (nextval('record_numbers'), %s, %s)",
                (kind, value),
                binary=True,
            )

    def scan(self, kind: bytes) -> list[bytes]:
        statement = "SELECT value FROM records WHERE kind = %s AND number > 0 ORDER BY number"
        found = self.connection.execute(statement, (kind,), binary=True)
        return [value for (value,) in found.fetchall()]


def test_a_replica_of_the_last_layout_goes_on_while_another_one_upgrades(
    postgres_url: str, schema: str
):
    old = FirstLayout.create(postgres_url, schema)
    stop = threading.Event()
    written = 0

    def work() -> int:
        nonlocal written
        while not stop.is_set():
            old.write(b"session", b"busy", str(written).encode())
            assert old.read(b"session", b"busy") == str(written).encode()
            old.append(b"usage", str(written).encode())
            written += 1
        return written

    with closing(old.connection), ThreadPoolExecutor(1) as pool:
        old.write(b"session", b"before", b"one")
        working = pool.submit(work)
        try:
            with PostgresStore(postgres_url, schema=schema) as new:
                _, seen = new.read_version("session", "before")
                new.write_all([Merge("session", "before", b"two", seen, lambda a, b: a + b)])
                new.write("session", "new", b"here")
                new.append("usage", b"new")
                stop.set()
                count = working.result(DEADLINE)
                old.write(b"session", b"before", b"three")
                new.write_all([Merge("session", "before", b"+four", seen, lambda a, b: a + b)])
                shared = new.read("session", "busy"), old.read(b"session", b"new")
                merged = new.read("session", "before")
                logged = [value for _, value in new.scan("usage")]
                assert old.scan(b"usage") == logged
        finally:
            stop.set()

    again = FirstLayout(postgres_url, schema)
    with closing(again.connection):
        assert again.read(b"session", b"before") == b"three+four"
    assert shared == (str(count - 1).encode(), b"here")
    assert merged == b"three+four"
    assert sorted(logged) == sorted([*(str(n).encode() for n in range(count)), b"new"])
    assert run(postgres_url, f"SELECT max(steps) FROM {schema}.layout") == [(1,)]


def test_a_write_whose_answer_was_lost_is_not_made_twice(postgres_url: str, schema: str):
    with PostgresStore(postgres_url, schema=schema) as store:
        store.append("usage", b"one")
        work = partial(run, postgres_url)
        work(
            f"CREATE FUNCTION {schema}.fail() RETURNS trigger LANGUAGE plpgsql AS "
            "'BEGIN RAISE EXCEPTION ''full''; END'"
        )
        work(
            f"CREATE TRIGGER fail AFTER INSERT ON {schema}.sessions FOR EACH ROW "
            f"EXECUTE FUNCTION {schema}.fail()"
        )
        with pytest.raises(StoreUnavailable, match="full"):
            store.write("session", "a", b"1")
        work(f"DROP TRIGGER fail ON {schema}.sessions")

        # As if the database had committed the value and the failure had come after that.
        store.write_all([Append("usage", b"one"), Append("usage", b"two")])
        store.append("usage", b"two")

        assert [value for _, value in store.scan("usage")] == [b"one", b"two", b"two"]


def test_two_replicas_that_merge_at_once_lose_nothing(postgres_url: str, schema: str):
    ready = threading.Barrier(3)

    def work(replica: int) -> None:
        with PostgresStore(postgres_url, schema=schema) as store:
            seen = Version()
            lines: set[bytes] = set()

            def join(theirs: bytes, ours: bytes) -> bytes:
                lines.update(theirs.split(b"\n"))
                return b"\n".join(sorted({*theirs.split(b"\n"), *ours.split(b"\n")}))

            ready.wait(DEADLINE)
            for number in range(20):
                lines.add(f"{replica}/{number}".encode())
                own = b"\n".join(sorted(lines))
                store.write_all([Merge("session", "a", own, seen, join)])

    with ThreadPoolExecutor(3) as pool:
        list(pool.map(work, range(3), timeout=DEADLINE))
    with PostgresStore(postgres_url, schema=schema) as store:
        assert len((store.read("session", "a") or b"").split(b"\n")) == 60


def test_a_replica_hears_what_another_has_changed(postgres_url: str, schema: str):
    heard: Queue[Mapping[str, Set[str]] | None] = Queue()
    with (
        PostgresStore(postgres_url, schema=schema) as one,
        PostgresStore(postgres_url, schema=schema) as two,
    ):
        assert two.listen(heard.put)
        first = heard.get(timeout=DEADLINE)
        two.write("session", "own", b"not reported to itself")
        one.write_all([Put("session", "a", b"1"), Append("usage", b"2"), Put("shape", "b", b"3")])
        second = heard.get(timeout=DEADLINE)
        one.write_all([Put("session", str(place), b"") for place in range(20)])
        third = heard.get(timeout=DEADLINE)
        one.write_all([Put("session", f"{place}" * 100, b"") for place in range(100)])
        fourth = heard.get(timeout=DEADLINE)

    assert first is None
    assert second == {"session": {"a"}, "usage": set()}
    assert third is not None
    assert len(third["session"]) == 20
    assert fourth == {"session": set()}


def test_a_listener_that_lost_its_connection_says_that_anything_may_have_changed(
    postgres_url: str, schema: str
):
    heard: Queue[Mapping[str, Set[str]] | None] = Queue()
    with PostgresStore(postgres_url, schema=schema) as store:
        store.listen(heard.put)
        first = heard.get(timeout=DEADLINE)
        run(
            postgres_url,
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE 'LISTEN%%' "
            "AND query LIKE %s",
            f"%{schema}%",
        )
        second = heard.get(timeout=DEADLINE)

    assert first is None
    assert second is None


def test_a_closed_store_says_so(postgres_url: str, schema: str):
    store = PostgresStore(postgres_url, schema=schema)
    store.close()
    store.close()
    with pytest.raises(UsageError, match="is closed"):
        store.read("session", "a")
