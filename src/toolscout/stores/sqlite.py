"""`SqliteStore`: what is kept lives in one file, shared by threads and processes.

A write is there when the call returns, and it is there as a whole or not at all, whenever the
process is killed. One connection serves all threads, behind a lock: SQLite lets one writer in at
a time anyway, every statement is short, and a connection for each thread would stay open when
its thread ends. Not to be carried over a `fork`. What the bytes mean is their owner's business.
"""

import os
import sqlite3
import threading
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

from toolscout.errors import InvalidFile, UsageError

BUSY_TIMEOUT_SECONDS = 10.0
OWNER_ONLY = 0o600
ROWS_AT_ONCE = 256
OPENING_TRIES = 20

APPLICATION_ID = 0x54534354
"""Marks a file as ours, so that another program's database is never written to."""

# A file's `user_version` says how many of these it has been through. Steps are only ever added.
MIGRATIONS: tuple[tuple[str, tuple[str, ...]], ...] = (
    (
        "values by kind and key",
        (
            # A key is a blob, because text may hold lone surrogates, which SQLite refuses.
            """CREATE TABLE entries (
                kind TEXT NOT NULL, key BLOB NOT NULL, value BLOB NOT NULL,
                PRIMARY KEY (kind, key)
            )""",
            f"PRAGMA application_id = {APPLICATION_ID}",
        ),
    ),
    (
        "numbered logs",
        (
            # AUTOINCREMENT: a number that was trimmed away must not come back.
            """CREATE TABLE records (
                number INTEGER PRIMARY KEY AUTOINCREMENT, kind TEXT NOT NULL, value BLOB NOT NULL
            )""",
            "CREATE INDEX records_by_kind ON records (kind, number)",
        ),
    ),
)

_WRITE = """
    INSERT INTO entries (kind, key, value) VALUES (?, ?, ?)
    ON CONFLICT (kind, key) DO UPDATE SET value = excluded.value
"""
_SCAN = "SELECT number, value FROM records WHERE kind = ? AND number > ? ORDER BY number LIMIT ?"
_TRIM = """
    DELETE FROM records WHERE kind = ?1 AND number <= (
        SELECT number FROM records WHERE kind = ?1 ORDER BY number DESC LIMIT 1 OFFSET ?2
    )
"""

_CHECK = ("cannot be used", "Check the path, the file and the free space.")
_PROBLEMS = {
    sqlite3.SQLITE_NOTADB: ("is not a database", "Move it away, or choose another path."),
    sqlite3.SQLITE_CORRUPT: ("is damaged", "Put a copy in its place, or delete it to start anew."),
    sqlite3.SQLITE_BUSY: ("is locked by another process", "Stop that process, or try again."),
    sqlite3.SQLITE_FULL: ("cannot grow", "Free some space on its disk."),
    sqlite3.SQLITE_READONLY: ("may not be written to", "Make file and folder writable."),
    sqlite3.SQLITE_CANTOPEN: ("cannot be opened", "Check that it is a file that you may read."),
}


class SqliteStore:
    """Keeps values in an SQLite file, which is made for its owner alone if there is none.

    The folder has to exist. Raises `InvalidFile` for a file that cannot be used, now or later.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        # Made absolute, so that no name such as ":memory:" means anything else to SQLite.
        self._path = Path(path).resolve()
        self._lock = threading.Lock()
        self._connection: sqlite3.Connection | None = None
        _create(self._path)
        with _translated(self._path):
            self._connection = _opened(self._path)

    def read(self, kind: str, key: str) -> bytes | None:
        """Return the value of a key, or None."""
        found = self._run(
            "SELECT value FROM entries WHERE kind = ? AND key = ?", kind, _bytes_of(key)
        )
        return found[0][0] if found else None

    def write(self, kind: str, key: str, value: bytes | None) -> None:
        """Keep a value in place of the one before; None deletes."""
        if value is None:
            self._run("DELETE FROM entries WHERE kind = ? AND key = ?", kind, _bytes_of(key))
        else:
            self._run(_WRITE, kind, _bytes_of(key), value)

    def keys(self, kind: str) -> list[str]:
        """Return the keys of a kind, sorted."""
        found = self._run("SELECT key FROM entries WHERE kind = ? ORDER BY key", kind)
        return [key.decode("utf-8", "surrogatepass") for (key,) in found]

    def append(self, kind: str, value: bytes) -> None:
        """Add a value to the log of a kind, under a number above all given so far."""
        self._run("INSERT INTO records (kind, value) VALUES (?, ?)", kind, value)

    def scan(self, kind: str, after: int = 0) -> Iterator[tuple[int, bytes]]:
        """Yield the numbered values of a log, oldest first, from the first above `after`."""
        # In batches, because a cursor left open would keep the file from being tidied.
        while rows := self._run(_SCAN, kind, after, ROWS_AT_ONCE):
            yield from rows
            after = rows[-1][0]

    def trim(self, kind: str, keep: int) -> None:
        """Forget all but the newest values of a log; their numbers are not given again."""
        self._run(_TRIM, kind, max(keep, 0))

    def close(self) -> None:
        """Close the file; a second time does nothing."""
        with self._lock:
            if self._connection is not None:
                self._connection.close()
                self._connection = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _run(self, statement: str, *values: str | int | bytes) -> list[Any]:
        with self._lock, _translated(self._path):
            if self._connection is None:
                raise UsageError(f"The store {str(self._path)!r} is closed. Open it again.")
            return self._connection.execute(statement, values).fetchall()


def _bytes_of(key: str) -> bytes:
    return key.encode("utf-8", "surrogatepass")


def _create(path: Path) -> None:
    """Create the file unless it is there; SQLite would let others read it."""
    if not path.parent.is_dir():
        raise InvalidFile(
            str(path),
            "is in a folder that does not exist",
            remedy=f"Create the folder {str(path.parent)!r} first.",
        )
    try:
        # Never a file that exists: closing it would take away the locks that this process
        # holds on it through another store.
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, OWNER_ONLY))
    except FileExistsError:
        return
    except OSError as error:
        raise InvalidFile(
            str(path),
            f"cannot be created ({error.strerror or error})",
            remedy="Check that its folder may be written to.",
        ) from error


@contextmanager
def _translated(path: Path) -> Generator[None]:
    """Let what goes wrong in SQLite become `InvalidFile`."""
    try:
        yield
    except sqlite3.Error as error:
        code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF
        problem, remedy = _PROBLEMS.get(code, _CHECK)
        raise InvalidFile(str(path), f"{problem} ({error})", remedy=remedy) from error


def _opened(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(
        path, timeout=BUSY_TIMEOUT_SECONDS, isolation_level=None, check_same_thread=False
    )
    try:
        with _transaction(connection, "DEFERRED"):
            version = _version(connection, path)
        if version < len(MIGRATIONS):
            _migrate(connection, path)
        _log_ahead(connection)
        # Enough for a killed process. A power cut may cost the last writes, not the file.
        connection.execute("PRAGMA synchronous = NORMAL")
    except BaseException:
        connection.close()
        raise
    return connection


def _version(connection: sqlite3.Connection, path: Path) -> int:
    """Return how many steps a file has been through, if it is ours and not of the future."""
    version = _number(connection, "PRAGMA user_version")
    owner = _number(connection, "PRAGMA application_id")
    is_empty = not _number(connection, "SELECT count(*) FROM sqlite_schema")
    if owner != APPLICATION_ID and not (is_empty and owner == version == 0):
        raise InvalidFile(
            str(path), "is a database of another program", remedy="Choose another path."
        )
    if version > len(MIGRATIONS):
        raise InvalidFile(
            str(path),
            f"was written by a newer toolscout (layout {version}, known up to {len(MIGRATIONS)})",
            remedy="Update toolscout, or choose another path.",
        )
    return version


def _migrate(connection: sqlite3.Connection, path: Path) -> None:
    """Take the steps that are missing, all or none."""
    with _transaction(connection, "IMMEDIATE"):
        # Asked again: another process may have taken them meanwhile.
        for _, statements in MIGRATIONS[_version(connection, path) :]:
            for statement in statements:
                connection.execute(statement)
        connection.execute(f"PRAGMA user_version = {len(MIGRATIONS)}")


def _log_ahead(connection: sqlite3.Connection) -> None:
    """Switch to the write-ahead log, with which readers and a writer do not wait for each other."""
    for tries_left in reversed(range(OPENING_TRIES)):
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError:
            # The switch fails at once, whatever the timeout, while another process opens the
            # file. To ask for the file alone does wait.
            if not tries_left:
                raise
            with _transaction(connection, "EXCLUSIVE"):
                pass


@contextmanager
def _transaction(connection: sqlite3.Connection, kind: str) -> Generator[None]:
    """See one state of the file; what is done is kept only if nothing is raised."""
    connection.execute(f"BEGIN {kind}")
    try:
        yield
    except BaseException:
        connection.rollback()
        raise
    connection.commit()


def _number(connection: sqlite3.Connection, statement: str) -> int:
    return connection.execute(statement).fetchone()[0]
