"""The tables of `SqliteStore` and `PostgresStore`, as numbered steps from the first layout on.

Both have the same tables and columns. `entries` has a value for each kind and key, with a version
that counts its changes; `records` has the logs; `claims` has names that a process has reserved. In
PostgreSQL the first two are split by kind: there is a table `sessions`, one with `manifests`, and
so on.

Never change or remove a step: append. A step must let the code of the step before it go on
working, because the gateways of a team are upgraded one by one. Where that is impossible, set
`OLDEST_CODE`.
"""

from typing import LiteralString

ENTRY_TABLES: dict[LiteralString, LiteralString] = {
    "session": "sessions",
    "guest": "clients",
    "manifest": "manifests",
    "approved": "approvals",
    "login": "logins",
    "result": "results",
    "task": "tasks",
    "configuration": "configurations",
}
"""The tables that hold values of one kind; those of all other kinds are in `other_entries`."""
RECORD_TABLES: dict[LiteralString, LiteralString] = {
    "usage": "usage",
    "hints": "hints",
    "approvals": "decisions",
    "audit": "audit",
}
"""The tables that hold the log of one kind; those of all other kinds are in `other_records`."""

OLDEST_CODE = 1
"""The number of steps that code has to know to work with a database that has had all of these."""

APPLICATION_ID = 0x54534354
"""Marks a file as ours, so that we never write to another program's database."""


def _split(table: LiteralString, parts: dict[LiteralString, LiteralString]) -> list[LiteralString]:
    """Return the statements that split a table by kind."""
    made: list[LiteralString] = [
        f"CREATE TABLE {{schema}}.{name} PARTITION OF {{schema}}.{table} "
        f"FOR VALUES IN ('{kind}'::bytea)"
        for kind, name in parts.items()
    ]
    default: LiteralString = (
        f"CREATE TABLE {{schema}}.other_{table} PARTITION OF {{schema}}.{table} DEFAULT"
    )
    return [*made, default]


POSTGRES: tuple[tuple[LiteralString, ...], ...] = (
    (
        # Keys are bytes, because PostgreSQL's text holds neither zeros nor lone surrogates.
        """CREATE TABLE {schema}.entries (
            kind bytea NOT NULL, key bytea NOT NULL, value bytea NOT NULL, PRIMARY KEY (kind, key)
        )""",
        """CREATE TABLE {schema}.records (
            number bigint PRIMARY KEY, kind bytea NOT NULL, value bytea NOT NULL
        )""",
        "CREATE INDEX records_by_kind ON {schema}.records (kind, number)",
        "CREATE SEQUENCE {schema}.record_numbers",
    ),
    (
        "ALTER TABLE {schema}.entries RENAME TO old_entries",
        "ALTER INDEX {schema}.entries_pkey RENAME TO old_entries_pkey",
        """CREATE TABLE {schema}.entries (
            kind bytea NOT NULL, key bytea NOT NULL, value bytea NOT NULL,
            version bigint NOT NULL DEFAULT 1,
            written_at timestamptz NOT NULL DEFAULT now(),
            PRIMARY KEY (kind, key)
        ) PARTITION BY LIST (kind)""",
        *_split("entries", ENTRY_TABLES),
        """INSERT INTO {schema}.entries (kind, key, value)
            SELECT kind, key, value FROM {schema}.old_entries""",
        "DROP TABLE {schema}.old_entries",
        "ALTER TABLE {schema}.records RENAME TO old_records",
        "ALTER INDEX {schema}.records_pkey RENAME TO old_records_pkey",
        "ALTER INDEX {schema}.records_by_kind RENAME TO old_records_by_kind",
        """CREATE TABLE {schema}.records (
            number bigint NOT NULL, kind bytea NOT NULL, value bytea NOT NULL,
            written_at timestamptz NOT NULL DEFAULT now(),
            PRIMARY KEY (kind, number)
        ) PARTITION BY LIST (kind)""",
        *_split("records", RECORD_TABLES),
        """INSERT INTO {schema}.records (number, kind, value)
            SELECT number, kind, value FROM {schema}.old_records""",
        "DROP TABLE {schema}.old_records",
        # Values are added in the order of time, so a few bytes for each megabyte are enough.
        "CREATE INDEX records_by_time ON {schema}.records USING brin (written_at)",
        """CREATE TABLE {schema}.claims (
            name bytea PRIMARY KEY, owner text NOT NULL, until timestamptz NOT NULL
        )""",
        # For gateways of the first layout, which know nothing of versions.
        """CREATE FUNCTION {schema}.count_change() RETURNS trigger LANGUAGE plpgsql AS $$
            BEGIN
                NEW.version := OLD.version + 1;
                NEW.written_at := now();
                RETURN NEW;
            END
        $$""",
        """CREATE TRIGGER count_change BEFORE UPDATE ON {schema}.entries FOR EACH ROW
            WHEN (NEW.version = OLD.version) EXECUTE FUNCTION {schema}.count_change()""",
    ),
)

SQLITE: tuple[tuple[str, ...], ...] = (
    (
        # Keys are blobs, because SQLite refuses lone surrogates in text.
        """CREATE TABLE entries (
            kind TEXT NOT NULL, key BLOB NOT NULL, value BLOB NOT NULL, PRIMARY KEY (kind, key)
        )""",
        f"PRAGMA application_id = {APPLICATION_ID}",
    ),
    (
        # AUTOINCREMENT never reuses the number of a trimmed value.
        """CREATE TABLE records (
            number INTEGER PRIMARY KEY AUTOINCREMENT, kind TEXT NOT NULL, value BLOB NOT NULL
        )""",
        "CREATE INDEX records_by_kind ON records (kind, number)",
    ),
    (
        "ALTER TABLE entries ADD COLUMN version INTEGER NOT NULL DEFAULT 1",
        "ALTER TABLE entries ADD COLUMN written_at REAL NOT NULL DEFAULT 0",
        "UPDATE entries SET written_at = CAST(strftime('%s', 'now') AS REAL)",
        "ALTER TABLE records ADD COLUMN written_at REAL NOT NULL DEFAULT 0",
        "UPDATE records SET written_at = CAST(strftime('%s', 'now') AS REAL)",
        "CREATE TABLE claims (name BLOB PRIMARY KEY, owner TEXT NOT NULL, until REAL NOT NULL)",
        # For processes of the layout before, which know nothing of versions and times.
        """CREATE TRIGGER count_change AFTER UPDATE OF value ON entries
            WHEN NEW.version = OLD.version
            BEGIN
                UPDATE entries
                SET version = OLD.version + 1, written_at = CAST(strftime('%s', 'now') AS REAL)
                WHERE kind = NEW.kind AND key = NEW.key;
            END""",
        """CREATE TRIGGER note_entry_time AFTER INSERT ON entries WHEN NEW.written_at = 0
            BEGIN
                UPDATE entries SET written_at = CAST(strftime('%s', 'now') AS REAL)
                WHERE kind = NEW.kind AND key = NEW.key;
            END""",
        """CREATE TRIGGER note_record_time AFTER INSERT ON records WHEN NEW.written_at = 0
            BEGIN
                UPDATE records SET written_at = CAST(strftime('%s', 'now') AS REAL)
                WHERE number = NEW.number;
            END""",
    ),
)
