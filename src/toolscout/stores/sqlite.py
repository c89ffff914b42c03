"""`SqliteStore` keeps values in one file that threads and processes share.

A write is complete when the call returns, and never half done if the process is killed. All
threads share one connection behind a lock: SQLite admits one writer at a time anyway, every
statement is short, and a connection for each thread would outlive its thread. Do not use a store
across a `fork`.
"""

import os
import sqlite3
import threading
import time
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

from toolscout.errors import InvalidFile, UsageError
from toolscout.stores.migrations import APPLICATION_ID, SQLITE
from toolscout.stores.store import Append, Change, Merge, OnChange, Put, Trim, Version

BUSY_TIMEOUT_SECONDS = 10.0
OWNER_ONLY = 0o600
ROWS_AT_ONCE = 256
OPENING_TRIES = 20
LAST_NUMBER = 2**63 - 1

_READ = "SELECT value, version FROM entries WHERE kind = ? AND key = ?"
_DELETE = "DELETE FROM entries WHERE kind = ? AND key = ?"
_WRITE = """
    INSERT INTO entries (kind, key, value, written_at, version) VALUES (?, ?, ?, ?, ?)
    ON CONFLICT (kind, key) DO UPDATE SET
        value = excluded.value, written_at = excluded.written_at, version = version + 1
"""
_APPEND = "INSERT INTO records (kind, value, written_at) VALUES (?, ?, ?)"
_SCAN = "SELECT number, value FROM records WHERE kind = ? AND number > ? ORDER BY number LIMIT ?"
_SCAN_BACK = (
    "SELECT number, value FROM records WHERE kind = ? AND number < ? ORDER BY number DESC LIMIT ?"
)
_TRIM = """
    DELETE FROM records WHERE kind = :kind AND number <= :last AND number <= (
        SELECT number FROM records WHERE kind = :kind ORDER BY number DESC LIMIT 1 OFFSET :keep
    )
"""
_CLAIM = """
    INSERT INTO claims (name, owner, until) VALUES (:name, :owner, :until)
    ON CONFLICT (name) DO UPDATE SET owner = :owner, until = :until
    WHERE owner = :owner OR until <= :now
"""

_CHECK = ("cannot be used", "Check the path, the file and the free space.")
_PROBLEMS = {
    sqlite3.SQLITE_NOTADB: ("is not a database", "Move it away, or choose another path."),
    sqlite3.SQLITE_CORRUPT: ("is damaged", "Restore a copy, or delete it to start over."),
    sqlite3.SQLITE_BUSY: ("is locked by another process", "Stop that process, or try again."),
    sqlite3.SQLITE_FULL: ("cannot grow", "Free some space on its disk."),
    sqlite3.SQLITE_READONLY: ("may not be written to", "Make file and folder writable."),
    sqlite3.SQLITE_CANTOPEN: ("cannot be opened", "Check that it is a file that you may read."),
}


class SqliteStore:
    """A store in an SQLite file, created readable by its owner only.

    The folder has to exist. Every method raises `InvalidFile` if the file cannot be used.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        # An absolute path keeps names such as ":memory:" from meaning something else to SQLite.
        self._path = Path(path).resolve()
        self._lock = threading.Lock()
        self._connection: sqlite3.Connection | None = None
        _create(self._path)
        with _translate_errors(self._path):
            self._connection = _open_connection(self._path)

    def read(self, kind: str, key: str) -> bytes | None:
        """Return the value of a key, or None."""
        return self.read_version(kind, key)[0]

    def read_version(self, kind: str, key: str) -> tuple[bytes | None, Version]:
        """Return the value of a key, or None, and its version for a later `Merge`."""
        found = self._run(_READ, kind, _encode(key))
        return (found[0][0], Version(found[0][1])) if found else (None, Version())

    def write(self, kind: str, key: str, value: bytes | None) -> None:
        """Write a value over the previous one; None deletes it."""
        self.write_all([Put(kind, key, value)])

    def keys(self, kind: str) -> list[str]:
        """Return the keys of a kind, sorted."""
        found = self._run("SELECT key FROM entries WHERE kind = ? ORDER BY key", kind)
        return [key.decode("utf-8", "surrogatepass") for (key,) in found]

    def append(self, kind: str, value: bytes) -> None:
        """Add a value to the log of a kind, with a higher number than every value before it."""
        self.write_all([Append(kind, value)])

    def scan(self, kind: str, after: int = 0) -> Iterator[tuple[int, bytes]]:
        """Yield the values of a log with their numbers above `after`, oldest first."""
        # In batches, because an open cursor would block checkpoints of the write-ahead log.
        while rows := self._run(_SCAN, kind, after, ROWS_AT_ONCE):
            yield from rows
            after = rows[-1][0]

    def scan_back(self, kind: str, before: int | None = None) -> Iterator[tuple[int, bytes]]:
        """Yield the values of a log with their numbers below `before`, newest first."""
        number = LAST_NUMBER if before is None else before
        while rows := self._run(_SCAN_BACK, kind, number, ROWS_AT_ONCE):
            yield from rows
            number = rows[-1][0]

    def trim(self, kind: str, keep: int, *, through: int | None = None) -> None:
        """Delete all but the newest `keep` values of a log; their numbers are never reused.

        Values with a higher number than `through` stay.
        """
        self.write_all([Trim(kind, keep, through)])

    def write_all(self, changes: Sequence[Change]) -> None:
        """Make several changes, all of them or none; those of a log in their order."""
        with self._open_transaction() as connection:
            now = time.time()
            merged = [_write(connection, change, now) for change in changes]
        for change, version in zip(changes, merged, strict=True):
            if isinstance(change, Merge):
                change.seen.number = version

    def expire(self, kind: str, seconds: float) -> int:
        """Delete what was last written longer ago, values and log; return how many there were."""
        before = time.time() - seconds
        deleted = 0
        with self._open_transaction() as connection:
            for table in ("entries", "records"):
                statement = f"DELETE FROM {table} WHERE kind = ? AND written_at < ?"
                deleted += connection.execute(statement, (kind, before)).rowcount
        return deleted

    def claim(self, name: str, owner: str, seconds: float) -> bool:
        """Reserve a name for its owner for some seconds; return False if another one has it."""
        now = time.time()
        with self._open_transaction() as connection:
            values = {"name": _encode(name), "owner": owner, "until": now + seconds, "now": now}
            return connection.execute(_CLAIM, values).rowcount == 1

    def listen(self, on_change: OnChange) -> bool:
        """Return False: SQLite does not tell what other processes change."""
        return False

    def close(self) -> None:
        """Close the file; a second call does nothing."""
        with self._lock:
            if self._connection is not None:
                self._connection.close()
                self._connection = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _run(self, statement: str, *values: str | int | bytes) -> list[Any]:
        with self._lock, _translate_errors(self._path):
            return self._get_connection().execute(statement, values).fetchall()

    @contextmanager
    def _open_transaction(self) -> Generator[sqlite3.Connection]:
        with self._lock, _translate_errors(self._path), self._get_connection() as connection:
            connection.execute("BEGIN IMMEDIATE")
            yield connection

    def _get_connection(self) -> sqlite3.Connection:
        if self._connection is None:
            raise UsageError(f"The store {str(self._path)!r} is closed. Open it again.")
        return self._connection


def _write(connection: sqlite3.Connection, change: Change, now: float) -> int:
    """Make one change; return the version of a merged value."""
    match change:
        case Put(kind, key, None):
            connection.execute(_DELETE, (kind, _encode(key)))
        case Put(kind, key, value):
            connection.execute(_WRITE, (kind, _encode(key), value, now, 1))
        case Merge(kind, key, _, seen):
            found = connection.execute(_READ, (kind, _encode(key))).fetchone()
            version = seen.number
            if found is None or found[1] == version:
                value = change.build_value()
            else:
                value = change.join_value(found[0])
                version = found[1]
            connection.execute(_WRITE, (kind, _encode(key), value, now, version + 1))
            return version + 1
        case Append(kind, value):
            connection.execute(_APPEND, (kind, value, now))
        case Trim(kind, keep, through):
            last = LAST_NUMBER if through is None else through
            connection.execute(_TRIM, {"kind": kind, "keep": max(keep, 0), "last": last})
    return 0


def _encode(key: str) -> bytes:
    return key.encode("utf-8", "surrogatepass")


def _create(path: Path) -> None:
    """Create the file if it is missing; SQLite would create it readable by others."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        # Never open an existing file here: closing it would release the locks that this
        # process holds on it through another store.
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
def _translate_errors(path: Path) -> Generator[None]:
    """Raise SQLite's errors as `InvalidFile`."""
    try:
        yield
    except sqlite3.Error as error:
        code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF
        problem, remedy = _PROBLEMS.get(code, _CHECK)
        raise InvalidFile(str(path), f"{problem} ({error})", remedy=remedy) from error


def _open_connection(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(
        path, timeout=BUSY_TIMEOUT_SECONDS, isolation_level=None, check_same_thread=False
    )
    try:
        with connection:  # commits, or rolls back if an error is raised
            connection.execute("BEGIN")
            version = _read_version(connection, path)
        if version < len(SQLITE):
            with connection:
                connection.execute("BEGIN IMMEDIATE")
                # Read the version again: another process may have migrated the file meanwhile.
                for statements in SQLITE[_read_version(connection, path) :]:
                    for statement in statements:
                        connection.execute(statement)
                connection.execute(f"PRAGMA user_version = {len(SQLITE)}")
        _enable_write_ahead_log(connection)
        # Safe if the process is killed. A power cut may lose the last writes, but not the file.
        connection.execute("PRAGMA synchronous = NORMAL")
    except BaseException:
        connection.close()
        raise
    return connection


def _read_version(connection: sqlite3.Connection, path: Path) -> int:
    """Return how many migrations a file has had; refuse other programs' and newer files."""
    version = _read_number(connection, "PRAGMA user_version")
    owner = _read_number(connection, "PRAGMA application_id")
    is_empty = not _read_number(connection, "SELECT count(*) FROM sqlite_schema")
    if owner != APPLICATION_ID and not (is_empty and owner == version == 0):
        raise InvalidFile(
            str(path), "is a database of another program", remedy="Choose another path."
        )
    if version > len(SQLITE):
        raise InvalidFile(
            str(path),
            f"was written by a newer toolscout (layout {version}, known up to {len(SQLITE)})",
            remedy="Update toolscout, or choose another path.",
        )
    return version


def _enable_write_ahead_log(connection: sqlite3.Connection) -> None:
    """Switch to the write-ahead log, so that readers and a writer do not block each other."""
    for tries_left in reversed(range(OPENING_TRIES)):
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError:
            # While another process opens the file, the switch fails at once, whatever the
            # timeout. An exclusive transaction does wait.
            if not tries_left:
                raise
            with connection:
                connection.execute("BEGIN EXCLUSIVE")


def _read_number(connection: sqlite3.Connection, statement: str) -> int:
    return connection.execute(statement).fetchone()[0]
