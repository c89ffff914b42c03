"""The files that toolscout keeps: configuration, cache and tokens, and who may read them."""

import os
import re
import shlex
import sqlite3
import stat
import sys
from collections.abc import Iterable, Iterator
from contextlib import closing
from pathlib import Path

from toolscout.cli.checks import Checkup, fail, ok, warn
from toolscout.clients.discovery import secret_places
from toolscout.config.documents import is_file
from toolscout.config.file import Config, read_config
from toolscout.errors import MissingExtra, ToolscoutError, UsageError

LOCKED_SECONDS = 0.5
OTHERS = 0o077
_UNFINISHED = re.compile(r"\.(?P<name>.+)\.[0-9a-f]{8}")


def configuration(place: Path, found: list[Config]) -> Iterator[Checkup]:
    """Look at the configuration, and leave it in `found` where it can be used."""
    name = "configuration"
    if not is_file(place):
        yield warn(name, f"{place} does not exist.", "toolscout init")
        return
    try:
        config = read_config(place)
    except UsageError as error:
        yield fail(name, str(error), f"Mend {place}.")
        return
    found.append(config)
    yield ok(name, f"{place} lists {_count(len(config.servers), 'server')}")
    for note in config.notes:
        yield warn(name, note, "toolscout servers list")
    holds_secrets = any(secret_places(server) for server in config.servers)
    if holds_secrets and is_open(place):
        text = f"Others may read {place}, which holds secrets in plain text."
        yield fail(name, text, f"chmod 600 {shlex.quote(str(place))}")


def cache(config: Config, file: Path) -> Iterator[Checkup]:
    """Look at the store of the gateway: a file, or a database."""
    if config.gateway.store:
        yield _database(config)
    elif is_file(file):
        yield _file(file)
        if is_open(file):
            text = f"Others may read {file}."
            yield fail("cache", text, f"chmod 600 {shlex.quote(str(file))}")
    elif not _is_writable(file.parent):
        remedy = "Make the folder writable, or set 'gateway.cache' to another file."
        yield fail("cache", f"{file} cannot be made.", remedy)
    else:
        yield ok("cache", f"{file} will be made by the first `toolscout serve`")


def token_files(folder: Path) -> Iterator[Checkup]:
    """Look who may read what logins gave."""
    files = sorted(folder.glob("*.json")) if folder.is_dir() else []
    opened = [file for file in files if is_open(file)]
    for file in opened:
        text = f"Others may read the tokens in {file}."
        yield fail("token files", text, f"chmod 600 {shlex.quote(str(file))}")
    if not opened:
        count = _count(len(files), "token file")
        yield ok("token files", f"{count}, for their owner alone" if files else "no logins yet")


def leftovers(folders: Iterable[Path]) -> Iterator[Checkup]:
    """Look for files that an interrupted write left behind."""
    for folder in folders:
        for file in sorted(folder.iterdir()) if folder.is_dir() else []:
            match = _UNFINISHED.fullmatch(file.name)
            if match and match["name"].endswith((".toml", ".json", ".bak")):
                text = f"{file} is what an interrupted write left behind."
                yield warn("leftovers", text, f"rm {shlex.quote(str(file))}")


def is_open(path: Path) -> bool:
    """Tell whether others than its owner may read or change a file."""
    if sys.platform == "win32":
        return False  # its modes say nothing about who may read
    try:
        return bool(stat.S_IMODE(path.stat().st_mode) & OTHERS)
    except OSError:
        return False


def _file(file: Path) -> Checkup:
    moved = f"mv {shlex.quote(str(file))} {shlex.quote(str(file) + '.old')}"
    try:
        address = f"{file.resolve().as_uri()}?mode=rw"
        with closing(sqlite3.connect(address, uri=True, timeout=LOCKED_SECONDS)) as connection:
            (told,) = connection.execute("PRAGMA quick_check(1)").fetchone()
            connection.execute("BEGIN IMMEDIATE")
            connection.execute("ROLLBACK")
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode == sqlite3.SQLITE_BUSY:
            remedy = "Stop the `toolscout serve` that hangs, then run `toolscout doctor` again."
            return warn("cache", f"{file} is locked by another process.", remedy)
        return fail("cache", f"{file} cannot be opened for writing.", "Check its permissions.")
    except sqlite3.DatabaseError:
        return fail("cache", f"{file} is not a database, or damaged.", moved)
    if told != "ok":
        return fail("cache", f"{file} is damaged.", moved)
    return ok("cache", f"{file}, {file.stat().st_size / 1e6:.1f} MB")


def _database(config: Config) -> Checkup:
    try:
        from toolscout.stores import PostgresStore

        with PostgresStore(config.gateway.database()):
            return ok("cache", "the database answers")
    except MissingExtra as error:
        return fail("cache", str(error), "pip install 'toolscout[postgres]'")
    except ToolscoutError as error:
        return fail("cache", str(error), "Check 'gateway.store'.")


def _is_writable(folder: Path) -> bool:
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    return folder.is_dir() and os.access(folder, os.W_OK)


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"
