"""The `--config` option, and the servers that it leads to."""

import os
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from toolscout.clients.discovery import Machine
    from toolscout.config.file import Config
    from toolscout.config.servers import ServerConfig
    from toolscout.stores import PostgresStore, SqliteStore

TOKENS_FOLDER = "tokens"

config_option = click.option(
    "--config",
    "path",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="The configuration. Without it, ./toolscout.toml or the one in your configuration folder.",
)


def this_machine() -> "Machine":
    """Return where this machine keeps things."""
    from toolscout.clients.discovery import Machine

    return Machine(home=Path.home(), platform=sys.platform, env=os.environ, cwd=Path.cwd())


def config_place(path: Path | None) -> Path:
    """Return the file that is meant, whether it exists or not."""
    return (path or this_machine().config_file).absolute()


def read_servers(path: Path | None) -> "Config":
    """Return the configuration that is meant; raises `InvalidFile` where there is none."""
    from toolscout.config.file import read_config
    from toolscout.errors import InvalidFile

    place = config_place(path)
    if not place.exists():
        remedy = "Run `toolscout init` or `toolscout servers add`, or name a file with --config."
        raise InvalidFile(str(place), "does not exist", remedy=remedy)
    return read_config(place)


def find_server(config: "Config", name: str) -> "ServerConfig":
    """Return a server by name, or raise `UnknownServer`."""
    from toolscout.errors import UnknownServer
    from toolscout.names import near_names, one_line

    servers = {server.name: server for server in config.servers}
    if name not in servers:
        otherwise = "See `toolscout servers list`."
        raise UnknownServer(one_line(name, 60), near_names(name, servers), otherwise=otherwise)
    return servers[name]


def tokens_folder(config: "Config") -> Path:
    """Return the folder with the tokens of servers; it may not exist yet."""
    return this_machine().cache_file(config.gateway).parent / TOKENS_FOLDER


def opened_store(config: "Config") -> "SqliteStore | PostgresStore":
    """Open the store of the gateway, which is made where there is none."""
    address = config.gateway.database()
    if address:
        from toolscout.stores import PostgresStore

        return PostgresStore(address)
    from toolscout.stores import SqliteStore

    file = this_machine().cache_file(config.gateway)
    file.parent.mkdir(parents=True, exist_ok=True)
    return SqliteStore(file)


@contextmanager
def known_store(config: "Config") -> "Generator[SqliteStore | PostgresStore | None]":
    """Open the store of the gateway; gives nothing where there is none yet."""
    if not config.gateway.store and not this_machine().cache_file(config.gateway).exists():
        yield None
        return
    with opened_store(config) as store:
        yield store
