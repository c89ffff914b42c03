"""The store in a file: layouts, broken files, several processes, and processes that are killed."""

import os
import random
import sqlite3
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest
from killing import run_and_kill

from toolscout.errors import InvalidFile, UsageError
from toolscout.stores import SqliteStore
from toolscout.stores.migrations import APPLICATION_ID
from toolscout.stores.migrations import SQLITE as MIGRATIONS

KILLS = 40
PROCESSES = 3
DEADLINE = 120.0

WRITER = """
import sys
from pathlib import Path
from toolscout.stores import SqliteStore

with SqliteStore(Path(sys.argv[1]) / "store.db") as store:
    number = len(store.keys("session"))
    while True:
        value = str(number).encode() * 9_000
        print("begin", number, flush=True)
        store.write("session", f"{number:06}", value)
        print("written", number, flush=True)
        store.append("usage", value)
        print("done", number, flush=True)
        number += 1
"""
OPENER = """
import sys
from pathlib import Path
from toolscout.stores import SqliteStore

print("opening", flush=True)
with SqliteStore(Path(sys.argv[1]) / "store.db"):
    print("open", flush=True)
    sys.stdin.read()
"""
APPENDER = """
import sys
from toolscout.stores import SqliteStore

print("ready", flush=True)
sys.stdin.readline()
with SqliteStore(sys.argv[1]) as store:
    for number in range(40):
        store.append("usage", f"{sys.argv[2]} {number}".encode())
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


def taken_to(path: Path, layout: int) -> sqlite3.Connection:
    """Return a connection to a file that has been through the first migrations only."""
    connection = sqlite3.connect(path, isolation_level=None)
    for statements in MIGRATIONS[:layout]:
        for statement in statements:
            connection.execute(statement)
    connection.execute(f"PRAGMA user_version = {layout}")
    return connection


def asked(path: Path, statement: str) -> Iterator[tuple[object, ...]]:
    with closing(sqlite3.connect(path)) as connection:
        yield from connection.execute(statement).fetchall()


@pytest.mark.requirement("R61")
def test_what_is_kept_is_there_after_closing(path: Path):
    """R61"""
    with SqliteStore(path) as store:
        store.write("session", "a", b"one")
        store.append("usage", b"two")

    with SqliteStore(path) as store:
        assert store.read("session", "a") == b"one"
        assert list(store.scan("usage")) == [(1, b"two")]


def test_two_stores_on_one_file_see_each_other(path: Path):
    with SqliteStore(path) as first, SqliteStore(str(path)) as second:
        first.write("session", "a", b"one")
        second.append("usage", b"two")

        assert second.read("session", "a") == b"one"
        assert list(first.scan("usage")) == [(1, b"two")]


def test_a_closed_store_says_that_it_is_closed(path: Path):
    store = SqliteStore(path)
    store.close()

    with pytest.raises(UsageError, match=r"is closed\. Open it again\.$"):
        store.read("session", "a")


def test_a_new_file_is_for_its_owner_alone(path: Path):
    before = os.umask(0)
    try:
        with SqliteStore(path) as store:
            store.write("session", "a", b"private")
            beside = sorted(path.parent.iterdir())
            modes = {stat.S_IMODE(file.stat().st_mode) for file in beside}
    finally:
        os.umask(before)

    assert len(beside) == 3  # with what SQLite puts beside it
    assert modes == {0o600}


def test_the_mode_of_a_file_that_exists_is_left_alone(path: Path):
    SqliteStore(path).close()
    path.chmod(0o640)
    SqliteStore(path).close()

    assert stat.S_IMODE(path.stat().st_mode) == 0o640


def test_memory_is_a_file_name_like_any_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    with SqliteStore(":memory:") as store:
        store.write("session", "a", b"one")

    assert (tmp_path / ":memory:").is_file()


def test_missing_folders_are_created_for_their_owner_alone(tmp_path: Path):
    with SqliteStore(tmp_path / "none" / "yet" / "store.db") as store:
        store.write("session", "a", b"one")

    assert (tmp_path / "none" / "yet" / "store.db").is_file()
    assert stat.S_IMODE((tmp_path / "none" / "yet").stat().st_mode) == 0o700


def test_a_file_where_a_folder_should_be_is_named(tmp_path: Path):
    (tmp_path / "file").write_text("")

    with pytest.raises(InvalidFile, match=r"store\.db"):
        SqliteStore(tmp_path / "file" / "store.db")


def test_a_folder_is_no_store(tmp_path: Path):
    with pytest.raises(InvalidFile, match="cannot be opened"):
        SqliteStore(tmp_path)


def test_a_name_that_no_file_can_have_is_refused(tmp_path: Path):
    with pytest.raises(InvalidFile, match="cannot be created"):
        SqliteStore(tmp_path / ("x" * 1_000))


def test_a_file_that_is_no_database_is_refused_and_left_alone(path: Path):
    text = "Dear diary, " * 1_000
    path.write_text(text)

    with pytest.raises(InvalidFile, match="is not a database"):
        SqliteStore(path)

    assert path.read_text() == text


def test_a_damaged_file_is_reported_when_it_is_read(path: Path):
    with SqliteStore(path) as store:
        for number in range(200):
            store.write("session", str(number), b"x" * 500)
    data = bytearray(path.read_bytes())
    data[4_096:] = b"\xa5" * (len(data) - 4_096)
    path.write_bytes(data)

    with pytest.raises(InvalidFile, match="is damaged"), SqliteStore(path) as store:
        store.keys("session")


def test_a_database_of_another_program_is_left_alone(path: Path):
    with closing(sqlite3.connect(path)) as other:
        other.execute("CREATE TABLE entries (bookkeeping)")

    with pytest.raises(InvalidFile, match="is a database of another program"):
        SqliteStore(path)

    assert list(asked(path, "SELECT name FROM sqlite_schema")) == [("entries",)]
    assert list(asked(path, "PRAGMA journal_mode")) == [("delete",)]


def test_a_newer_layout_is_refused(path: Path):
    newer = len(MIGRATIONS) + 1
    with closing(taken_to(path, len(MIGRATIONS))) as connection:
        connection.execute(f"PRAGMA user_version = {newer}")

    with pytest.raises(InvalidFile, match=f"newer toolscout .layout {newer}, known up to") as error:
        SqliteStore(path)

    assert error.value.remedy == "Update toolscout, or choose another path."


@pytest.mark.parametrize("layout", range(1, len(MIGRATIONS) + 1))
def test_an_older_layout_is_brought_up_to_date(path: Path, layout: int):
    with closing(taken_to(path, layout)) as connection:
        connection.execute(
            "INSERT INTO entries (kind, key, value) VALUES ('session', ?, ?)", (b"a", b"old")
        )

    with SqliteStore(path) as store:
        store.append("usage", b"new")

        assert store.read("session", "a") == b"old"
        assert list(store.scan("usage")) == [(1, b"new")]
    assert list(asked(path, "PRAGMA user_version")) == [(len(MIGRATIONS),)]
    assert list(asked(path, "PRAGMA application_id")) == [(APPLICATION_ID,)]


def test_a_migration_that_fails_leaves_the_file_as_it_was(path: Path):
    with closing(taken_to(path, 1)) as connection:
        connection.execute("CREATE TABLE something (records_by_kind)")
        connection.execute("CREATE INDEX records_by_kind ON something (records_by_kind)")
    before = list(asked(path, "SELECT sql FROM sqlite_schema"))

    with pytest.raises(InvalidFile, match="cannot be used"):
        SqliteStore(path)

    assert list(asked(path, "SELECT sql FROM sqlite_schema")) == before
    assert list(asked(path, "PRAGMA user_version")) == [(1,)]


@pytest.mark.parametrize("layout", range(1, len(MIGRATIONS) + 1))
def test_a_file_that_stays_locked_is_reported(
    path: Path, layout: int, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("toolscout.stores.sqlite.BUSY_TIMEOUT_SECONDS", 0.0)
    with closing(taken_to(path, layout)) as other:
        other.execute("BEGIN IMMEDIATE")

        with pytest.raises(InvalidFile, match="is locked by another process"):
            SqliteStore(path)


def test_opening_waits_until_another_writer_is_done(path: Path):
    started = threading.Event()

    def open_and_close() -> None:
        started.set()
        SqliteStore(path).close()

    with closing(taken_to(path, 1)) as other, ThreadPoolExecutor(1) as pool:
        other.execute("BEGIN IMMEDIATE")
        opening = pool.submit(open_and_close)
        started.wait(DEADLINE)
        other.execute("COMMIT")

        opening.result(DEADLINE)
    assert list(asked(path, "PRAGMA user_version")) == [(len(MIGRATIONS),)]


def test_processes_may_open_and_write_one_new_file_at_once(path: Path):
    children = [
        subprocess.Popen(
            [sys.executable, "-c", APPENDER, str(path), str(number)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for number in range(PROCESSES)
    ]
    for child in children:
        assert child.stdout and child.stdout.readline() == "ready\n"
    for child in children:
        assert child.stdin
        child.stdin.write("\n")
        child.stdin.flush()
    for child in children:
        child.communicate(timeout=DEADLINE)

    assert [child.returncode for child in children] == [0] * PROCESSES
    with SqliteStore(path) as store:
        rows = [(number, *value.decode().split()) for number, value in store.scan("usage")]
    assert [number for number, *_ in rows] == list(range(1, 40 * PROCESSES + 1))
    for process in map(str, range(PROCESSES)):
        assert [int(n) for _, who, n in rows if who == process] == list(range(40))


@pytest.mark.slow
@pytest.mark.requirement("R61")
def test_a_killed_process_loses_nothing_that_it_had_acknowledged(tmp_path: Path):
    """R61"""
    chance = random.Random(11)

    for _ in range(KILLS):
        lines = run_and_kill(
            WRITER,
            tmp_path,
            chance.randint(1, 12),
            further_bytes=chance.choice((0, 0, 1, 4)),
            turns=chance.choice((0, 0, 1_000, 10_000)),
        )

        with SqliteStore(tmp_path / "store.db") as store:
            check(store, lines)
            # The next child goes on where both agree.
            for number in range(len(list(store.scan("usage"))), len(store.keys("session"))):
                store.append("usage", str(number).encode() * 9_000)
    assert list(asked(tmp_path / "store.db", "PRAGMA integrity_check")) == [("ok",)]


@pytest.mark.requirement("R61")
def test_a_process_killed_while_it_creates_the_file_leaves_one_that_can_be_used(tmp_path: Path):
    """R61"""
    for number in range(12):
        folder = tmp_path / str(number)
        folder.mkdir()
        run_and_kill(OPENER, folder, 1, turns=number * 10_000)

        with SqliteStore(folder / "store.db") as store:
            store.append("usage", b"one")
            assert list(store.scan("usage")) == [(1, b"one")]


def check(store: SqliteStore, lines: list[str]) -> None:
    """Compare a store with what its killed writer said: all that was done, at most one more."""
    written = max((int(n) for word, n in map(str.split, lines) if word == "written"), default=-1)
    done = max((int(n) for word, n in map(str.split, lines) if word == "done"), default=-1)
    keys = store.keys("session")
    log = [value for _, value in store.scan("usage")]

    assert keys == [f"{number:06}" for number in range(len(keys))]
    assert [store.read("session", key) for key in keys] == expected(len(keys))
    assert log == expected(len(log))
    begun = int(lines[0].split()[1])
    assert len(keys) - max(written + 1, begun) in (0, 1)
    assert len(log) - max(done + 1, begun) in (0, 1)


def expected(count: int) -> list[bytes]:
    return [str(number).encode() * 9_000 for number in range(count)]


def test_a_store_in_memory_needs_no_database():
    code = "import sys; from toolscout.stores import MemoryStore; print('sqlite3' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout == "False\n"


def test_stores_has_no_other_names():
    code = "import toolscout.stores as s; print(dir(s)); s.Mongo"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)

    assert done.stdout == "['MemoryStore', 'PostgresStore', 'SqliteStore']\n"
    assert "has no attribute 'Mongo'" in done.stderr
