"""The options that several commands share, and the catalogue, configuration or store they name."""

import os
import sys
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import click

from toolscout.catalog import Catalog
from toolscout.cli import ExitCode
from toolscout.cli.output import show_bars
from toolscout.clients.discovery import Machine
from toolscout.config.file import Config, read_config
from toolscout.config.servers import ServerConfig
from toolscout.demo import load_demo_catalog
from toolscout.encoders.static import StaticEncoder
from toolscout.errors import InvalidFile, MissingExtra, UnknownServer
from toolscout.files import read_tools
from toolscout.names import find_near_names, to_one_line
from toolscout.search.index import Index
from toolscout.stores import SqliteStore
from toolscout.tools import Tool

if TYPE_CHECKING:
    from toolscout.stores import PostgresStore

TOOL_FILE_ENDINGS = (".json", ".jsonl", ".ndjson", ".json.gz", ".jsonl.gz", ".ndjson.gz")
CONFIG_ENDING = ".toml"
TOKENS_FOLDER = "tokens"
UNKNOWN_SHOWN = 5

tools_option = click.option(
    "--tools",
    "--catalog",
    "paths",
    multiple=True,
    type=click.Path(path_type=Path, exists=True),
    metavar="PATH",
    help="A .json or .jsonl file of tools, or a folder of them; may be repeated. "
    "Default: the demo catalogue.",
)
catalog_option = click.option(
    "--catalog",
    "--tools",
    "paths",
    multiple=True,
    type=click.Path(path_type=Path, exists=True),
    metavar="PATH",
    help="A .json or .jsonl file of tools, or a folder of them; may be repeated.",
)
configured_option = click.option(
    "--config",
    "config_file",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Use the tools that the servers of this configuration offered last. Default: your own "
    "configuration, or the demo catalogue if you have none.",
)
config_option = click.option(
    "--config",
    "path",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="The configuration file. Default: ./toolscout.toml, or the one in your configuration "
    "folder.",
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


def read_catalog(paths: Iterable[Path]) -> Catalog:
    """Return the tools of files and folders, or the demo catalogue if none is named."""
    listed = list(paths)
    if not listed:
        return load_demo_catalog()
    by_server: dict[str, dict[Tool, None]] = {}
    for tool in read_all(listed):
        # Listings put together by hand often hold a tool twice; only different ones collide.
        by_server.setdefault(tool.server, {})[tool] = None
    return Catalog(by_server)


def read_all(paths: Iterable[Path]) -> list[Tool]:
    """Return the tools of files and folders in their order, even if their names collide."""
    files = dict.fromkeys(file for path in paths for file in _list_tool_files(path))
    return [tool for file in files for tool in read_tools(file)]


def import_tools(path: Path, server: str = "") -> list[Tool]:
    """Return the tools of a file; those that name no server belong to `server`.

    The operations of an OpenAPI document belong to a server named like the file by default.
    Raises `InvalidFile`.
    """
    from toolscout.servers.openapi import is_openapi_file, read_document, tools_from_openapi

    if is_openapi_file(path):
        return tools_from_openapi(read_document(path), server or path.name.partition(".")[0])
    tools = read_tools(path)
    return [tool if tool.server or not server else tool.move_to(server) for tool in tools]


def choose_catalog(paths: Iterable[Path], config_file: Path | None) -> Catalog:
    """Return the catalogue that `--catalog` or `--config` names, or the default one."""
    listed = list(paths)
    if listed and config_file:
        raise click.UsageError("Use either --catalog or --config, not both.")
    if listed:
        return read_catalog_or_config(listed)
    if config_file or find_config_file(None).exists():
        return read_known_catalog(config_file)
    click.echo("Using the demo catalogue; name your own with --catalog or --config.", err=True)
    return load_demo_catalog()


def read_catalog_or_config(paths: Iterable[Path]) -> Catalog:
    """Return the tools of files and folders, or those known of a configuration file."""
    listed = list(paths)
    if len(listed) == 1 and listed[0].suffix == CONFIG_ENDING:
        return read_known_catalog(listed[0])
    return read_catalog(listed)


def read_known_catalog(config_file: Path | None) -> Catalog:
    """Return what the servers of a configuration offered last, and report unknown servers."""
    need_sdk()
    from toolscout.servers.listings import recall_catalog

    config = read_servers(config_file)
    with open_known_store(config) as store:
        catalog = recall_catalog(config, store)
    unknown = list(catalog.unready)
    if unknown:
        names = " ".join(unknown[:UNKNOWN_SHOWN])
        more = f" and {len(unknown) - UNKNOWN_SHOWN} more" * (len(unknown) > UNKNOWN_SHOWN)
        click.echo(
            f"Tools not known yet: {names}{more}. Run `toolscout servers test` to fetch them.",
            err=True,
        )
    return catalog


def find_tool(catalog: Catalog, name: str) -> Tool:
    """Return the one tool that a name means; end the command if there is none, or several."""
    found = catalog.resolve(name)
    if len(found) > 1:
        names = ", ".join(tool.name for tool in found)
        raise click.UsageError(f"{name!r} could be {names}. Use one of these names.")
    return found[0] if found else fail_unknown_tool(catalog, name)


def fail_unknown_tool(catalog: Catalog, name: str) -> NoReturn:
    """End the command because a tool does not exist, and suggest similar names."""
    near = ", ".join(find_near_names(name, (tool.name for tool in catalog.tools)))
    remedy = f"Near: {near}." if near else 'Find it with `toolscout search "what it does"`.'
    click.echo(f"Error: There is no tool {to_one_line(name, 80)!r}. {remedy}", err=True)
    raise click.exceptions.Exit(ExitCode.NOT_FOUND)


def build_index(catalog: Catalog) -> Index:
    """Return the index of a catalogue, and show that it is being built."""
    with show_bars() as progress:
        progress(f"Indexing {len(catalog):,} tools", 0, 0)
        return Index(catalog, encoder=StaticEncoder())


def need_sdk() -> None:
    """Raise `MissingExtra` unless the packages that talk to servers are installed."""
    if find_spec("mcp") is None:
        raise MissingExtra("mcp", extra="gateway")


def _list_tool_files(path: Path) -> list[Path]:
    """Return a file itself; of a folder, its `tools.…` file if it has one, else all that fit."""
    if not path.is_dir():
        return [path]
    found = sorted(file for file in path.iterdir() if file.name.endswith(TOOL_FILE_ENDINGS))
    if not found:
        remedy = f"Name a file, or a folder with files that end in {', '.join(TOOL_FILE_ENDINGS)}."
        raise InvalidFile(str(path), "holds no file of tools", remedy=remedy)
    return [file for file in found if file.name.startswith("tools.")] or found


def get_machine() -> Machine:
    """Return the folders and environment of this machine."""
    return Machine(home=Path.home(), platform=sys.platform, env=os.environ, cwd=Path.cwd())


def find_config_file(path: Path | None) -> Path:
    """Return the named configuration file, or the default one, whether it exists or not."""
    return (path or get_machine().config_file).absolute()


def read_servers(path: Path | None) -> Config:
    """Return the named configuration, or the default one; raises `InvalidFile` without one."""
    place = find_config_file(path)
    if not place.exists():
        remedy = "Run `toolscout init` or `toolscout servers add`, or name a file with --config."
        raise InvalidFile(str(place), "does not exist", remedy=remedy)
    return read_config(place)


def find_server(config: Config, name: str) -> ServerConfig:
    """Return a server by name, or raise `UnknownServer`."""
    servers = {server.name: server for server in config.servers}
    if name not in servers:
        otherwise = "See `toolscout servers list`."
        raise UnknownServer(
            to_one_line(name, 60), find_near_names(name, servers), otherwise=otherwise
        )
    return servers[name]


def get_tokens_folder(config: Config) -> Path:
    """Return the folder with the tokens of logins; it may not exist yet."""
    return get_machine().find_cache_file(config.gateway).parent / TOKENS_FOLDER


def open_store(config: Config) -> "SqliteStore | PostgresStore":
    """Open the store of the gateway, and create it if there is none."""
    address = config.gateway.resolve_store()
    if address:
        from toolscout.stores import PostgresStore

        return PostgresStore(address)
    file = get_machine().find_cache_file(config.gateway)
    file.parent.mkdir(parents=True, exist_ok=True)
    return SqliteStore(file)


@contextmanager
def open_known_store(config: Config) -> "Generator[SqliteStore | PostgresStore | None]":
    """Open the store of the gateway; gives nothing if there is none yet."""
    if not config.gateway.store and not get_machine().find_cache_file(config.gateway).exists():
        yield None
        return
    with open_store(config) as store:
        yield store
