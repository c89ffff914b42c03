"""`PostgresStore` keeps values in a PostgreSQL database that several replicas share.

A write is committed when the call returns. All threads share one connection behind a lock, and
the store reconnects after losing it. The tables live in a schema of their own, by default
`toolscout`.
"""

import threading
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from typing import Any, LiteralString, Self
from urllib.parse import urlsplit

from toolscout.errors import MissingExtra, StoreUnavailable, UsageError

try:
    import psycopg
    from psycopg import sql
except ModuleNotFoundError as error:
    raise MissingExtra("psycopg", extra="postgres") from error

CONNECT_SECONDS = 10
ROWS_AT_ONCE = 256
LAST_NUMBER = 2**63 - 1
LOCK = 0x54534354
"""The advisory lock for creating tables and numbering logs."""

# The table `layout` records how many of these ran. Never change or remove one: append.
MIGRATIONS: tuple[tuple[LiteralString, ...], ...] = (
    (
        # Keys are bytes, because PostgreSQL's text holds neither zeros nor lone surrogates.
        """CREATE TABLE entries (
            kind bytea NOT NULL, key bytea NOT NULL, value bytea NOT NULL, PRIMARY KEY (kind, key)
        )""",
        """CREATE TABLE records (
            number bigint PRIMARY KEY, kind bytea NOT NULL, value bytea NOT NULL
        )""",
        "CREATE INDEX records_by_kind ON records (kind, number)",
        "CREATE SEQUENCE record_numbers",
    ),
)

_WRITE = """
    INSERT INTO entries (kind, key, value) VALUES (%s, %s, %s)
    ON CONFLICT (kind, key) DO UPDATE SET value = excluded.value
"""
_APPEND = "INSERT INTO records (number, kind, value) VALUES (nextval('record_numbers'), %s, %s)"
_SCAN = "SELECT number, value FROM records WHERE kind = %s AND number > %s ORDER BY number LIMIT %s"
_SCAN_BACK = """
    SELECT number, value FROM records WHERE kind = %s AND number < %s ORDER BY number DESC LIMIT %s
"""
_TRIM = """
    DELETE FROM records WHERE kind = %(kind)s AND number <= %(through)s AND number <= (
        SELECT number FROM records WHERE kind = %(kind)s
        ORDER BY number DESC LIMIT 1 OFFSET %(keep)s
    )
"""

Connection = psycopg.Connection[tuple[Any, ...]]


class PostgresStore:
    """A store in the database at `postgresql://user:password@host/name`.

    Creates its schema and tables if they are missing. Raises `StoreUnavailable`, which does not
    show the password, if the database fails or cannot be reached.
    """

    def __init__(self, url: str, *, schema: str = "toolscout") -> None:
        self._url = url
        self._schema = schema
        self._lock = threading.Lock()
        self._connection: Connection | None = None
        self._closed = False
        with self._lock, self._translate_errors():
            self._connection = self._open_connection()

    def read(self, kind: str, key: str) -> bytes | None:
        """Return the value of a key, or None."""
        statement = "SELECT value FROM entries WHERE kind = %s AND key = %s"
        found = self._run(statement, _encode(kind), _encode(key))
        return found[0][0] if found else None

    def write(self, kind: str, key: str, value: bytes | None) -> None:
        """Write a value over the previous one; None deletes it."""
        if value is None:
            statement = "DELETE FROM entries WHERE kind = %s AND key = %s"
            self._run(statement, _encode(kind), _encode(key))
        else:
            self._run(_WRITE, _encode(kind), _encode(key), value)

    def keys(self, kind: str) -> list[str]:
        """Return the keys of a kind, sorted."""
        statement = "SELECT key FROM entries WHERE kind = %s ORDER BY key"
        found = self._run(statement, _encode(kind))
        return [bytes(key).decode("utf-8", "surrogatepass") for (key,) in found]

    def append(self, kind: str, value: bytes) -> None:
        """Add a value to the log of a kind, with a higher number than every value before it."""
        with self._lock, self._translate_errors():
            connection = self._ensure_connection()
            # Numbers must become visible in order: a reader that has seen 8 never asks for 7.
            with connection.transaction():
                connection.execute("SELECT pg_advisory_xact_lock(%s)", (LOCK,))
                connection.execute(_APPEND, (_encode(kind), value))

    def scan(self, kind: str, after: int = 0) -> Iterator[tuple[int, bytes]]:
        """Yield the values of a log with their numbers above `after`, oldest first."""
        while rows := self._run(_SCAN, _encode(kind), after, ROWS_AT_ONCE):
            yield from rows
            after = rows[-1][0]

    def scan_back(self, kind: str, before: int | None = None) -> Iterator[tuple[int, bytes]]:
        """Yield the values of a log with their numbers below `before`, newest first."""
        number = LAST_NUMBER if before is None else before
        while rows := self._run(_SCAN_BACK, _encode(kind), number, ROWS_AT_ONCE):
            yield from rows
            number = rows[-1][0]

    def trim(self, kind: str, keep: int, *, through: int | None = None) -> None:
        """Delete all but the newest `keep` values of a log; their numbers are never reused.

        Values with a higher number than `through` stay.
        """
        with self._lock, self._translate_errors():
            last = LAST_NUMBER if through is None else through
            values = {"kind": _encode(kind), "keep": max(keep, 0), "through": last}
            self._ensure_connection().execute(_TRIM, values)

    def close(self) -> None:
        """Close the connection; a second call does nothing."""
        with self._lock:
            self._closed = True
            if self._connection is not None:
                self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _run(self, statement: LiteralString, *values: str | int | bytes) -> list[Any]:
        with self._lock, self._translate_errors():
            cursor = self._ensure_connection().execute(statement, values, binary=True)
            return cursor.fetchall() if cursor.description else []

    def _ensure_connection(self) -> Connection:
        if self._closed:
            raise UsageError(f"The store {self._place} is closed. Open it again.")
        if self._connection is None or self._connection.closed:
            self._connection = self._open_connection()
        return self._connection

    def _open_connection(self) -> Connection:
        connection = psycopg.connect(
            self._url, autocommit=True, connect_timeout=CONNECT_SECONDS, prepare_threshold=1
        )
        try:
            _migrate(connection, self._schema, self._place)
        except BaseException:
            connection.close()
            raise
        return connection

    @property
    def _place(self) -> str:
        """The address of the database without user and password."""
        parts = urlsplit(self._url)
        return f"{parts.hostname or 'local'}{parts.path or '/'}"

    @contextmanager
    def _translate_errors(self) -> Generator[None]:
        try:
            yield
        except psycopg.Error as error:
            reason = str(error).partition("\n")[0].replace(self._url, self._place)
            raise StoreUnavailable(self._place, reason) from None


def _encode(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _migrate(connection: Connection, schema: str, place: str) -> None:
    """Run the missing migrations in one transaction, one replica at a time."""
    name = sql.Identifier(schema)
    with connection.transaction():
        connection.execute("SELECT pg_advisory_xact_lock(%s)", (LOCK,))
        connection.execute(sql.SQL("CREATE SCHEMA IF NOT EXISTS {}").format(name))
        connection.execute(sql.SQL("SET search_path TO {}").format(name))
        connection.execute("CREATE TABLE IF NOT EXISTS layout (steps integer NOT NULL)")
        row = connection.execute("SELECT max(steps) FROM layout").fetchone()
        taken = int(row[0] or 0) if row else 0
        if taken > len(MIGRATIONS):
            known = len(MIGRATIONS)
            reason = f"it was written by a newer toolscout (layout {taken}, known up to {known})"
            raise StoreUnavailable(place, reason)
        for statements in MIGRATIONS[taken:]:
            for statement in statements:
                connection.execute(statement)
        if taken < len(MIGRATIONS):
            connection.execute("INSERT INTO layout (steps) VALUES (%s)", (len(MIGRATIONS),))
