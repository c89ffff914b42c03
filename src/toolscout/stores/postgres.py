"""`PostgresStore` keeps values in a PostgreSQL database that several replicas share.

A write is committed when the call returns. Threads share a pool of connections; every statement
has a time limit, and a connection that was lost is replaced. Nothing depends on the state of a
connection, so the database may be behind PgBouncer in transaction mode. The tables live in a
schema of their own, by default `toolscout`.

Replicas write logs at the same time. The number of a value is given out before it is committed,
so a reader could see 8 before 7 and never ask for 7. Therefore a writer holds a shared advisory
lock on the last number given out before its own, and a reader reads no further than the lowest
number that is held. Shared locks keep nobody waiting.
"""

import json
import logging
import secrets
import threading
import time
from binascii import hexlify
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, LiteralString, Self, TypeVar
from urllib.parse import urlsplit

from toolscout.errors import MissingExtra, StoreUnavailable, UsageError
from toolscout.stores.migrations import APPLICATION_ID, OLDEST_CODE, POSTGRES
from toolscout.stores.store import Append, Change, Merge, OnChange, Put, Trim, Version

try:
    import psycopg
    from psycopg import sql
    from psycopg.abc import PQGen
    from psycopg_pool import ConnectionPool
except ModuleNotFoundError as error:
    raise MissingExtra("psycopg", extra="postgres") from error

CONNECT_SECONDS = 5
STATEMENT_SECONDS = 5.0
"""How long a statement may take before its connection is given up."""
MIGRATION_SECONDS = 600.0
WAIT_SECONDS = 2.0
"""How long to wait for a free connection."""
REST_SECONDS = 0.5
"""After the database could not be reached, further requests fail at once for this long."""
POOL_SIZE = 8
TRIES = 2
ROWS_AT_ONCE = 256
LAST_NUMBER = 2**63 - 1
LOCK = APPLICATION_ID
"""The advisory lock for changing tables. Gateways of the first layout number logs under it."""
LOCK_NUMBERS = 2**31
"""Advisory locks take numbers below this, so the numbers of logs are held modulo this."""
SETTLE_TRIES = 10
SETTLE_SECONDS = 0.01
"""How long to wait for writers that are about to commit before reading what is settled."""
NOTICE_BYTES = 7_900
"""PostgreSQL refuses longer notices than 8,000 bytes."""
REPORTED_KINDS = frozenset(
    {"session", "manifest", "login", "usage", "hints", "approvals", "configuration"}
)
"""The kinds of which replicas hear at once."""
CHECK_SECONDS = 30.0
"""How often a listener makes sure that notices still arrive."""
RETRY_SECONDS = 1.0
UNSURE_SECONDS = 60.0
KEEP_ALIVE = {
    "keepalives_idle": 5,
    "keepalives_interval": 2,
    "keepalives_count": 3,
    "tcp_user_timeout": 10_000,
}
"""With these, the system notices within seconds that a machine has gone."""

_READ = "SELECT value, version FROM {schema}.entries WHERE kind = %s AND key = %s"
_KEYS = "SELECT key FROM {schema}.entries WHERE kind = %s ORDER BY key"
# Rows in one order, so that two replicas never wait for each other.
_PUT = """
    INSERT INTO {schema}.entries AS e (kind, key, value)
    SELECT * FROM unnest(%b::bytea[], %b::bytea[], %b::bytea[]) AS n (kind, key, value)
    ORDER BY kind, key
    ON CONFLICT (kind, key) DO UPDATE
    SET value = excluded.value, version = e.version + 1, written_at = now()
"""
_DELETE = """
    DELETE FROM {schema}.entries
    WHERE (kind, key) IN (SELECT * FROM unnest(%b::bytea[], %b::bytea[]))
"""
_MERGE = """
    INSERT INTO {schema}.entries AS e (kind, key, value, version)
    SELECT * FROM unnest(%b::bytea[], %b::bytea[], %b::bytea[], %b::bigint[])
        AS n (kind, key, value, version)
    ORDER BY kind, key
    ON CONFLICT (kind, key) DO UPDATE
    SET value = excluded.value, version = excluded.version, written_at = now()
    WHERE e.version = excluded.version - 1
    RETURNING kind, key
"""
_LOCK_ROW = """
    SELECT value, version FROM {schema}.entries WHERE kind = %s AND key = %s FOR UPDATE
"""
_REPLACE = """
    INSERT INTO {schema}.entries (kind, key, value, version) VALUES (%s, %s, %s, %s)
    ON CONFLICT (kind, key) DO UPDATE
    SET value = excluded.value, version = excluded.version, written_at = now()
"""
APPEND = """
    WITH held AS MATERIALIZED (
        SELECT pg_advisory_xact_lock_shared(
            '{schema}.records'::regclass::oid::bigint::bit(32)::int,
            ((last_value - (NOT is_called)::int) %% 2147483648)::int
        ) AS lock FROM {schema}.record_numbers
    )
    INSERT INTO {schema}.records (number, kind, value)
    SELECT nextval('{schema}.record_numbers'), n.kind, n.value FROM (
        SELECT *
        FROM held, unnest(%b::bytea[], %b::bytea[]) WITH ORDINALITY AS u (kind, value, place)
        WHERE %s = 0 OR NOT EXISTS (
            SELECT FROM {schema}.records AS r
            WHERE r.kind = u.kind AND r.value = u.value
                AND r.written_at > now() - %s * interval '1 second'
        )
        ORDER BY place
    ) AS n
"""
# The subquery needs the number, so it looks at the locks after the number was read.
_SETTLED = """
    SELECT s.last, (
        SELECT min(s.last - (((s.last - l.objid::bigint) %% 2147483648) + 2147483648) %% 2147483648)
        FROM pg_locks AS l
        WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 2 AND s.last IS NOT NULL
            AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
            AND l.classid = '{schema}.records'::regclass::oid
    ), (
        SELECT count(*) FROM pg_locks AS l
        WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 1 AND s.last IS NOT NULL
            AND l.classid = 0 AND l.objid = %s
            AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
    )
    FROM (
        SELECT last_value - (NOT is_called)::int AS last FROM {schema}.record_numbers OFFSET 0
    ) AS s
"""
LOCK_LIMIT = b"SET LOCAL lock_timeout = %d" % (STATEMENT_SECONDS * 1_000)
_WRITERS = """
    SELECT virtualtransaction FROM pg_locks
    WHERE locktype = 'advisory' AND granted AND objsubid = 2
        AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
        AND classid = '{schema}.records'::regclass::oid
"""
_SCAN = """
    SELECT number, value FROM {schema}.records
    WHERE kind = %s AND number > %s AND number <= %s ORDER BY number LIMIT %s
"""
_SCAN_BACK = """
    SELECT number, value FROM {schema}.records
    WHERE kind = %s AND number < %s ORDER BY number DESC LIMIT %s
"""
_TRIM = """
    DELETE FROM {schema}.records WHERE kind = %b::bytea AND number <= %d AND number <= (
        SELECT number FROM {schema}.records WHERE kind = %b::bytea
        ORDER BY number DESC LIMIT 1 OFFSET %d
    )
"""
_EXPIRE_ENTRIES = """
    DELETE FROM {schema}.entries WHERE kind = %s AND written_at < now() - %s * interval '1 second'
"""
_EXPIRE_RECORDS = """
    DELETE FROM {schema}.records WHERE kind = %s AND written_at < now() - %s * interval '1 second'
"""
_CLAIM = """
    INSERT INTO {schema}.claims AS c (name, owner, until)
    VALUES (%(name)s, %(owner)s, now() + %(seconds)s * interval '1 second')
    ON CONFLICT (name) DO UPDATE SET owner = excluded.owner, until = excluded.until
    WHERE c.owner = excluded.owner OR c.until <= now()
"""

_NOTIFY = b"SELECT pg_notify(convert_from(%b::bytea, 'UTF8'), convert_from(%b::bytea, 'UTF8'))"

_T = TypeVar("_T")
_Row = tuple[Any, ...]

_log = logging.getLogger(__name__)


class Connection(psycopg.Connection[_Row]):
    """A connection that gives up a statement which takes too long.

    The limit holds here and not in the database, which may have stopped to answer.
    """

    seconds = STATEMENT_SECONDS

    def wait(self, gen: PQGen[_T], *args: Any, **options: Any) -> _T:
        """Wait for an answer, and close the connection if it does not come in time."""
        try:
            return super().wait(_limit(gen, self.seconds), *args, **options)
        except _TooSlow:
            self.close()
            raise


class _TooSlow(psycopg.OperationalError):
    pass


def _limit(gen: PQGen[_T], seconds: float) -> PQGen[_T]:
    """Pass a generator on; what waits for it looks in every tenth of a second."""
    end = time.monotonic() + seconds
    try:
        wanted = next(gen)
        while True:
            ready = yield wanted
            if not ready and time.monotonic() > end:
                raise _TooSlow(f"no answer within {seconds:g} s")
            wanted = gen.send(ready)
    except StopIteration as done:
        return done.value


class Database:
    """A pool of connections to the database at `postgresql://user:password@host/name`.

    Threads may share it. Failures become `StoreUnavailable`, which does not show the password.
    Statements name their schema as `{schema}`. `prepare` makes the tables that are missing.
    """

    def __init__(
        self,
        url: str,
        *,
        schema: str,
        pool_size: int,
        prepare: Callable[["Database", Connection], None],
    ) -> None:
        self._url = url
        self._schema = sql.Identifier(schema)
        self._statements: dict[LiteralString, bytes] = {}
        self._rest_until = 0.0
        self.run_long(lambda connection: prepare(self, connection), MIGRATION_SECONDS)
        with self._translate_errors():
            self._pool = ConnectionPool(
                url,
                connection_class=Connection,
                kwargs=_OPTIONS,
                min_size=1,
                max_size=pool_size,
                timeout=WAIT_SECONDS,
                reconnect_timeout=RETRY_SECONDS,
                open=True,
                name="toolscout",
            )
        # It logs each attempt to connect; what fails here is reported by whoever asked.
        logging.getLogger("psycopg.pool").setLevel(logging.ERROR)

    def build(self, statement: LiteralString) -> bytes:
        """Return a statement with the name of the schema."""
        built = self._statements.get(statement)
        if built is None:
            built = sql.SQL(statement).format(schema=self._schema).as_bytes(None)
            self._statements[statement] = built
        return built

    def run(self, work: Callable[[Connection], _T], tries: int = 1) -> _T:
        """Do some work with a connection; work that only reads may be tried again."""
        if self._pool.closed:
            raise UsageError(f"The store {self.place} is closed. Open it again.")
        with self._translate_errors():
            for tries_left in reversed(range(tries)):
                if time.monotonic() < self._rest_until:
                    raise psycopg.OperationalError("it could not be reached a moment ago")
                try:
                    connection = self._pool.getconn()
                except psycopg.OperationalError:
                    self._rest_until = time.monotonic() + REST_SECONDS
                    raise
                try:
                    return work(connection)
                except psycopg.errors.ReadOnlySqlTransaction:
                    # After a failover, the other connections lead to the former primary too.
                    self._pool.drain()
                    raise
                except psycopg.OperationalError as error:
                    if connection.closed:
                        # After a restart of the database, the other connections are lost too.
                        self._pool.drain()
                    is_over = not connection.closed or isinstance(error, _TooSlow)
                    if is_over or not tries_left:
                        raise
                finally:
                    self._pool.putconn(connection)
        raise AssertionError  # the last try returns or raises

    @property
    def place(self) -> str:
        """The address of the database, with all of its hosts, without user and password."""
        parts = urlsplit(self._url)
        return f"{parts.netloc.rpartition('@')[2] or 'local'}{parts.path or '/'}"

    def run_long(self, work: Callable[[Connection], _T], seconds: float) -> _T:
        """Do some work with a connection of its own, which may take long for each statement."""
        with self._translate_errors(), _connect(self._url, seconds) as connection:
            return work(connection)

    @contextmanager
    def _translate_errors(self) -> Generator[None]:
        try:
            yield
        except psycopg.Error as error:
            reason = str(error).partition("\n")[0].replace(self._url, self.place)
            raise StoreUnavailable(self.place, reason) from None

    def close(self) -> None:
        """End all connections; a second call does nothing."""
        self._pool.close()


class PostgresStore:
    """A store in the database at `postgresql://user:password@host/name`.

    Creates its schema and tables if they are missing. Raises `StoreUnavailable`, which does not
    show the password, if the database fails or cannot be reached. `listen_url` leads to the same
    database without PgBouncer in transaction mode, which passes no notices on.
    """

    def __init__(
        self,
        url: str,
        *,
        schema: str = "toolscout",
        listen_url: str = "",
        pool_size: int = POOL_SIZE,
    ) -> None:
        self._listen_url = listen_url or url
        self._channel = f"{schema}_changes"[-63:]
        self._id = secrets.token_hex(8)
        """Tells this store's notices from those of others."""
        self._failed_at: float | None = None
        """When a write last failed, of which nobody knows whether it was committed."""
        self._listener: Listener | None = None
        self._database = Database(url, schema=schema, pool_size=pool_size, prepare=_migrate)
        self._build = self._database.build
        self._run = self._database.run

    def read(self, kind: str, key: str) -> bytes | None:
        """Return the value of a key, or None."""
        return self.read_version(kind, key)[0]

    def read_version(self, kind: str, key: str) -> tuple[bytes | None, Version]:
        """Return the value of a key, or None, and its version for a later `Merge`."""
        found = self._fetch(_READ, _encode(kind), _encode(key))
        return (found[0][0], Version(found[0][1])) if found else (None, Version())

    def write(self, kind: str, key: str, value: bytes | None) -> None:
        """Write a value over the previous one; None deletes it."""
        self.write_all([Put(kind, key, value)])

    def keys(self, kind: str) -> list[str]:
        """Return the keys of a kind, sorted."""
        return [_decode(key) for (key,) in self._fetch(_KEYS, _encode(kind))]

    def append(self, kind: str, value: bytes) -> None:
        """Add a value to the log of a kind, with a higher number than every value before it."""
        self.write_all([Append(kind, value)])

    def scan(self, kind: str, after: int = 0) -> Iterator[tuple[int, bytes]]:
        """Yield the values of a log with their numbers above `after`, oldest first."""
        last = self._find_settled(after)
        while after < last:
            rows = self._fetch(_SCAN, _encode(kind), after, last, ROWS_AT_ONCE)
            yield from rows
            after = rows[-1][0] if len(rows) == ROWS_AT_ONCE else last

    def scan_back(self, kind: str, before: int | None = None) -> Iterator[tuple[int, bytes]]:
        """Yield the values of a log with their numbers below `before`, newest first."""
        number = LAST_NUMBER if before is None else before
        while rows := self._fetch(_SCAN_BACK, _encode(kind), number, ROWS_AT_ONCE):
            yield from rows
            number = rows[-1][0]

    def trim(self, kind: str, keep: int, *, through: int | None = None) -> None:
        """Delete all but the newest `keep` values of a log; their numbers are never reused.

        Values with a higher number than `through` stay.
        """
        self.write_all([Trim(kind, keep, through)])

    def write_all(self, changes: Sequence[Change]) -> None:
        """Make several changes, all of them or none; those of a log in their order."""
        retried = self._failed_at
        try:
            versions = self._database.run(
                lambda connection: self._write(connection, changes, retried)
            )
        except StoreUnavailable:
            self._failed_at = time.monotonic() if retried is None else retried
            raise
        self._failed_at = None
        for change in changes:
            if isinstance(change, Merge):
                change.seen.number = versions[change.kind, change.key]

    def expire(self, kind: str, seconds: float) -> int:
        """Delete what was last written longer ago, values and log; return how many there were."""

        values = (_encode(kind), seconds)
        statements = [self._build(_EXPIRE_ENTRIES), self._build(_EXPIRE_RECORDS)]
        return self._database.run(
            lambda one: sum(one.execute(s, values).rowcount for s in statements)
        )

    def claim(self, name: str, owner: str, seconds: float) -> bool:
        """Reserve a name for its owner for some seconds; return False if another one has it."""
        values = {"name": _encode(name), "owner": owner, "seconds": seconds}
        statement = self._build(_CLAIM)
        return self._database.run(
            lambda connection: connection.execute(statement, values).rowcount == 1
        )

    def listen(self, on_change: OnChange) -> bool:
        """Report from now on, in a thread, what other replicas change."""
        self._listener = Listener(
            self._listen_url, self._channel, self._id, on_change, self._send_test
        )
        self._listener.start()
        return True

    def close(self) -> None:
        """End all connections; a second call does nothing."""
        if self._listener is not None:
            self._listener.close()
            self._listener = None
        self._database.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # Statements.

    def _write(
        self, connection: Connection, changes: Sequence[Change], retried: float | None
    ) -> dict[tuple[str, str], int]:
        """Make changes in one transaction, and tell other replicas; return the merged versions.

        All statements travel together: each answer that is waited for costs as much processor time
        as the statement itself. So values are written into them, because PostgreSQL accepts values
        beside a single statement only. The notice is not in the transaction of the changes:
        PostgreSQL lets only one transaction with a notice commit at a time.
        """
        if retried is not None and any(isinstance(change, Append) for change in changes):
            self._wait_for_writers(connection)
        statements = list(self._list_statements(changes, retried))
        notice = self._build_notice(changes)
        # A server goes on to wait for a lock although we have given up, so that each attempt would
        # take one more of its connections.
        begin = [b"BEGIN"] if retried is None else [b"BEGIN", LOCK_LIMIT]
        if is_block := retried is not None or len(statements) > 1 or bool(notice):
            statements = [*begin, *statements, b"COMMIT", *notice]
        cursor = connection.execute(b";".join(statements))
        merges = [change for change in changes if isinstance(change, Merge)]
        versions = {(one.kind, one.key): one.seen.number + 1 for one in merges}
        if is_block:
            for _ in begin:
                cursor.nextset()  # the merges come first
        if merges and cursor.rowcount != len(versions):
            done = {(_decode(kind), _decode(key)) for kind, key in cursor.fetchall()}
            late = [one for one in merges if (one.kind, one.key) not in done]
            for one in late:
                versions[one.kind, one.key] = self._join(connection, one)
            for statement in self._build_notice(late):
                connection.execute(statement)
        return versions

    def _list_statements(self, changes: Sequence[Change], retried: float | None) -> Iterator[bytes]:
        """Yield the statements that make changes; that of merges comes first."""
        merges = [change for change in changes if isinstance(change, Merge)]
        # Of several changes of a key, the last one counts.
        puts = {(put.kind, put.key): put for put in changes if isinstance(put, Put)}
        deleted = [put for put in puts.values() if put.value is None]
        written = [put for put in puts.values() if put.value is not None]
        if merges:
            values = _quote_list(one.build_value() for one in merges)
            versions = b"ARRAY[%b]" % b",".join(b"%d" % (one.seen.number + 1) for one in merges)
            yield self._build(_MERGE) % (*_quote_keys(merges), values, versions)
        if deleted:
            yield self._build(_DELETE) % _quote_keys(deleted)
        if written:
            values = _quote_list(put.value or b"" for put in written)
            yield self._build(_PUT) % (*_quote_keys(written), values)
        added: list[Append] = []
        for change in [*changes, None]:
            if isinstance(change, Append):
                added.append(change)
            elif added and (change is None or isinstance(change, Trim)):
                yield self._build_append(added, retried)
                added = []
            if isinstance(change, Trim):
                last = LAST_NUMBER if change.through is None else change.through
                kind = _quote(_encode(change.kind))
                yield self._build(_TRIM) % (kind, last, kind, max(change.keep, 0))

    def _join(self, connection: Connection, merge: Merge) -> int:
        """Join a value with the one that another replica has written; return the version."""
        kind, key = _encode(merge.kind), _encode(merge.key)
        with connection.transaction():
            row = connection.execute(self._build(_LOCK_ROW), (kind, key), binary=True).fetchone()
            value = merge.build_value() if row is None else merge.join_value(row[0])
            version = 1 if row is None else int(row[1]) + 1
            connection.execute(self._build(_REPLACE), (kind, key, value, version), binary=True)
        return version

    def _wait_for_writers(self, connection: Connection) -> None:
        """Wait for the writers of logs; the attempt that failed may still be one of them.

        While a commit waits for a standby, nobody can see what it has written. To write it again
        then would make it twice.
        """
        writers = {row[0] for row in connection.execute(self._build(_WRITERS))}
        for _ in range(SETTLE_TRIES):
            if not writers:
                return
            time.sleep(SETTLE_SECONDS)
            writers &= {row[0] for row in connection.execute(self._build(_WRITERS))}
        if writers:
            raise psycopg.OperationalError("an earlier write is not committed yet")

    def _build_append(self, added: Sequence[Append], retried: float | None) -> bytes:
        # The attempt that failed may have been committed: its answer was lost.
        seconds = 0.0 if retried is None else time.monotonic() - retried + UNSURE_SECONDS
        kinds = _quote_list(_encode(one.kind) for one in added)
        values = _quote_list(one.value for one in added)
        since = b"%f" % seconds
        return self._build(APPEND) % (kinds, values, since, since)

    def _find_settled(self, after: int) -> int:
        """Return the number up to which everything is committed that ever will be."""
        settled = after
        for _ in range(SETTLE_TRIES):
            last, held, older = self._fetch(_SETTLED, LOCK)[0]
            if not older:
                settled = last if held is None else min(last, held)
                if settled == last:
                    break
            time.sleep(SETTLE_SECONDS)
        return settled

    def _build_notice(self, changes: Sequence[Change]) -> list[bytes]:
        """Return the statement, if any, that tells other replicas what has changed.

        Those that do not hear it look for themselves.
        """
        changed: dict[str, list[str]] = {}
        for change in changes:
            if change.kind in REPORTED_KINDS:
                keys = changed.setdefault(change.kind, [])
                if isinstance(change, Put | Merge):
                    keys.append(change.key)
        if not changed:
            return []
        text = json.dumps([self._id, changed])
        if len(text) > NOTICE_BYTES:
            text = json.dumps([self._id, {kind: [] for kind in changed}])
        return [_NOTIFY % (_quote(_encode(self._channel)), _quote(text.encode()))]

    def _send_test(self) -> None:
        """Send a notice that this replica has to hear itself."""
        text = _quote(json.dumps([self._id, {}]).encode())
        statement = _NOTIFY % (_quote(_encode(self._channel)), text)
        self._run(lambda one: one.execute(statement), TRIES)

    def _fetch(self, statement: LiteralString, *values: str | int | bytes) -> list[Any]:
        built = self._build(statement)
        return self._database.run(
            lambda one: one.execute(built, values, binary=True).fetchall(), TRIES
        )


class Listener:
    """Hears in a thread what other replicas have changed.

    After each connection, and whenever notices may have been lost, anything may have changed.
    """

    def __init__(
        self, url: str, channel: str, own_id: str, on_change: OnChange, test: Callable[[], None]
    ) -> None:
        """`test` sends a notice that must arrive."""
        self._url = url
        self._channel = channel
        self._own_id = own_id
        self._on_change = on_change
        self._test = test
        self._is_closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="toolscout-notices", daemon=True)

    def start(self) -> None:
        """Start to listen."""
        self._thread.start()

    def close(self) -> None:
        """Stop to listen."""
        self._is_closing.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        is_heard = True
        while not self._is_closing.is_set():
            was_heard = is_heard
            try:
                with _connect(self._url, CHECK_SECONDS) as connection:
                    listen = sql.SQL("LISTEN {}").format(sql.Identifier(self._channel))
                    connection.execute(listen)
                    self._on_change(None)
                    is_heard = self._hear(connection)
            except (psycopg.Error, StoreUnavailable) as error:
                is_heard = True  # nothing is known of the next connection
                _log.debug("Notices of other replicas are not heard: %s", error)
            if was_heard and not is_heard:
                _log.warning(
                    "No notices arrive from the store, so this gateway polls it for changes. "
                    "Behind PgBouncer in transaction mode, set 'gateway.store_listen' to an "
                    "address that leads to the database itself."
                )
            # The connection may lead to a server that is gone, so it is replaced sooner or later.
            until = time.monotonic() + (0.0 if is_heard else CHECK_SECONDS)
            while not self._is_closing.wait(RETRY_SECONDS) and time.monotonic() < until:
                self._on_change(None)

    def _hear(self, connection: Connection) -> bool:
        """Report notices until the connection is lost; return whether the tests arrived."""
        own = json.dumps([self._own_id]).rstrip("]")
        while not self._is_closing.is_set():
            self._test()
            is_tested = False
            until = time.monotonic() + CHECK_SECONDS
            while not self._is_closing.is_set() and (left := until - time.monotonic()) > 0:
                # Not one notice at a time: every write of this replica wakes this thread too.
                for notice in connection.notifies(timeout=min(left, RETRY_SECONDS)):
                    if notice.payload.startswith(own):
                        is_tested = True
                        continue
                    _, changed = json.loads(notice.payload)
                    if changed:
                        self._on_change({kind: set(keys) for kind, keys in changed.items()})
                if not is_tested:
                    self._on_change(None)
                    if time.monotonic() > until - CHECK_SECONDS + STATEMENT_SECONDS:
                        return False
        return True


_OPTIONS: dict[str, Any] = {
    "autocommit": True,
    "connect_timeout": CONNECT_SECONDS,
    # PgBouncer may send each statement over another connection.
    "prepare_threshold": None,
    **KEEP_ALIVE,
}


def _connect(url: str, seconds: float) -> Connection:
    connection = Connection.connect(url, **_OPTIONS)
    connection.seconds = seconds
    return connection


def _encode(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _decode(data: bytes) -> str:
    return bytes(data).decode("utf-8", "surrogatepass")


def _quote(data: bytes) -> bytes:
    """Return bytes as a literal of hexadecimal digits, in which nothing has to be escaped."""
    return b"E'\\\\x%b'" % hexlify(data)


def _quote_list(values: Iterable[bytes]) -> bytes:
    """Return a list of bytes as a literal; psycopg takes ten times as long for that."""
    return b"ARRAY[%b]" % b",".join(map(_quote, values))


def _quote_keys(changes: Sequence[Put | Merge]) -> tuple[bytes, bytes]:
    kinds = _quote_list(_encode(one.kind) for one in changes)
    return kinds, _quote_list(_encode(one.key) for one in changes)


def _migrate(database: Database, connection: Connection) -> None:
    """Take the missing steps in one transaction, one replica at a time."""

    def run(statement: LiteralString, *values: int) -> psycopg.Cursor[_Row]:
        return connection.execute(database.build(statement), values)

    with connection.transaction():
        run("SELECT pg_advisory_xact_lock(%s)", LOCK)
        run("CREATE SCHEMA IF NOT EXISTS {schema}")
        # Gateways of the first layout read this table, and refuse to start if it has more steps.
        run("CREATE TABLE IF NOT EXISTS {schema}.layout (steps integer NOT NULL)")
        run(
            """CREATE TABLE IF NOT EXISTS {schema}.migrations (
                number integer PRIMARY KEY, oldest_code integer NOT NULL,
                made_at timestamptz NOT NULL DEFAULT now()
            )"""
        )
        first = run("SELECT coalesce(max(steps), 0) FROM {schema}.layout").fetchone()
        known = run(
            "SELECT coalesce(max(number), 0), coalesce(max(oldest_code), 0) "
            "FROM {schema}.migrations"
        ).fetchone()
        assert first is not None
        assert known is not None
        taken = max(first[0], known[0])
        if max(first[0], known[1]) > len(POSTGRES):
            reason = (
                f"it was written by a newer toolscout (layout {taken}, known up to {len(POSTGRES)})"
            )
            raise StoreUnavailable(database.place, reason)
        for number, statements in enumerate(POSTGRES[taken:], taken + 1):
            for statement in statements:
                run(statement)
            run("INSERT INTO {schema}.migrations VALUES (%s, %s)", number, OLDEST_CODE)
        if not first[0]:
            run("INSERT INTO {schema}.layout VALUES (1)")
