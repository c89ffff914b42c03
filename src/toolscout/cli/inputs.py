"""The options that name a catalogue, and the catalogue that they name.

The `--config` option, and the servers that it leads to.
"""

import os
import sys
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import click

if TYPE_CHECKING:
    from toolscout.catalog import Catalog
    from toolscout.clients.discovery import Machine
    from toolscout.config.file import Config
    from toolscout.config.servers import ServerConfig
    from toolscout.search.index import Index
    from toolscout.stores import PostgresStore, SqliteStore
    from toolscout.tools import Tool


TOOL_FILE_ENDINGS = (".json", ".jsonl", ".ndjson", ".json.gz", ".jsonl.gz", ".ndjson.gz")
CONFIG_ENDING = ".toml"
UNKNOWN_SHOWN = 5

tools_option = click.option(
    "--tools",
    "paths",
    multiple=True,
    type=click.Path(path_type=Path, exists=True),
    metavar="PATH",
    help="A .json or .jsonl file of tools, or a folder of them; may be given again. "
    "Without it, the demo catalogue is used.",
)
catalog_option = click.option(
    "--catalog",
    "--tools",
    "paths",
    multiple=True,
    type=click.Path(path_type=Path, exists=True),
    metavar="PATH",
    help="A .json or .jsonl file of tools, or a folder of them; may be given again.",
)
configured_option = click.option(
    "--config",
    "config_file",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="The tools that the servers of this configuration offered last. Without this and "
    "--catalog, your own configuration, or the demo catalogue where there is none.",
)


def read_catalog(paths: Iterable[Path]) -> "Catalog":
    """Return the tools of files and folders, or the demo catalogue where none is named."""
    from toolscout.catalog import Catalog
    from toolscout.demo import load_demo_catalog

    by_server: dict[str, list[Tool]] = {}
    listed = list(paths)
    for tool in read_all(listed):
        by_server.setdefault(tool.server, []).append(tool)
    if not listed:
        return load_demo_catalog()
    # Listings put together by hand often hold a tool twice; only unlike ones are a mistake.
    return Catalog({server: dict.fromkeys(tools) for server, tools in by_server.items()})


def read_all(paths: Iterable[Path]) -> "list[Tool]":
    """Return the tools of files and folders, in their order, however their names collide."""
    from toolscout.files import read_tools

    files = dict.fromkeys(file for path in paths for file in _tool_files(path))
    return [tool for file in files for tool in read_tools(file)]


def import_tools(path: Path, server: str = "") -> "list[Tool]":
    """Return the tools of a file; those that name no server belong to `server`.

    The operations of an OpenAPI document belong to a server named like the file by default.
    Raises `InvalidFile`.
    """
    from toolscout.files import read_tools
    from toolscout.servers.openapi import is_openapi_file, read_document, tools_from_openapi

    if is_openapi_file(path):
        return tools_from_openapi(read_document(path), server or path.name.partition(".")[0])
    tools = read_tools(path)
    return [tool if tool.server or not server else tool.move_to(server) for tool in tools]


def chosen_catalog(paths: Iterable[Path], config_file: Path | None) -> "Catalog":
    """Return the catalogue that `--catalog` or `--config` name, or else the nearest at hand."""
    listed = list(paths)
    if listed and config_file:
        raise click.UsageError("Say either --catalog or --config.")
    if listed:
        return catalog_at(listed)
    if config_file or config_place(None).exists():
        return known_catalog(config_file)
    click.echo("The demo catalogue; name your own with --catalog or --config.", err=True)
    return read_catalog(())


def catalog_at(paths: Iterable[Path]) -> "Catalog":
    """Return the tools of files and folders, or those known of a configuration file."""
    listed = list(paths)
    if len(listed) == 1 and listed[0].suffix == CONFIG_ENDING:
        return known_catalog(listed[0])
    return read_catalog(listed)


def known_catalog(config_file: Path | None) -> "Catalog":
    """Return what the servers of a configuration offered last, and tell which are unknown."""
    need_sdk()
    from toolscout.servers.listings import recall_catalog

    config = read_servers(config_file)
    with known_store(config) as store:
        catalog = recall_catalog(config, store)
    unknown = list(catalog.unready)
    if unknown:
        shown = " ".join(unknown[:UNKNOWN_SHOWN])
        more = f" and {len(unknown) - UNKNOWN_SHOWN} more" * (len(unknown) > UNKNOWN_SHOWN)
        click.echo(
            f"Not known yet: {shown}{more}. Run `toolscout servers test` to ask them.", err=True
        )
    return catalog


def find_tool(catalog: "Catalog", name: str) -> "Tool":
    """Return the one tool that a name means; ends the command where there is none, or several."""
    found = catalog.resolve(name)
    if len(found) > 1:
        names = ", ".join(tool.name for tool in found)
        raise click.UsageError(f"{name!r} may mean {names}. Use one of these names.")
    return found[0] if found else unknown_tool(catalog, name)


def unknown_tool(catalog: "Catalog", name: str) -> NoReturn:
    """End the command because a tool does not exist, with what was perhaps meant."""
    from toolscout.cli import ExitCode
    from toolscout.names import find_near_names, to_one_line

    near = ", ".join(find_near_names(name, (tool.name for tool in catalog.tools)))
    remedy = f"Near: {near}." if near else 'Find it with `toolscout search "what it does"`.'
    click.echo(f"Error: There is no tool {to_one_line(name, 80)!r}. {remedy}", err=True)
    raise click.exceptions.Exit(ExitCode.NOT_FOUND)


def index_of(catalog: "Catalog", encoder: str = "static") -> "Index":
    """Return the index of a catalogue; shows that it is being made where that takes a while."""
    from toolscout.cli.output import bars
    from toolscout.encoders.onnx import OnnxEncoder
    from toolscout.encoders.static import StaticEncoder
    from toolscout.search.index import Index

    chosen = {"static": StaticEncoder, "onnx": OnnxEncoder}.get(encoder)
    with bars() as progress:
        progress(f"Indexing {len(catalog):,} tools", 0, 0)
        return Index(catalog, encoder=chosen() if chosen else None)


def need_sdk() -> None:
    """Raise `MissingExtra` unless what talks to servers is installed."""
    from importlib.util import find_spec

    from toolscout.errors import MissingExtra

    if find_spec("mcp") is None:
        raise MissingExtra("mcp", extra="gateway")


def _tool_files(path: Path) -> list[Path]:
    """Return a file itself; of a folder, its `tools.…` file if it has one, else all that fit."""
    if not path.is_dir():
        return [path]
    found = sorted(file for file in path.iterdir() if file.name.endswith(TOOL_FILE_ENDINGS))
    if not found:
        from toolscout.errors import InvalidFile

        remedy = f"Name a file, or a folder with files that end in {', '.join(TOOL_FILE_ENDINGS)}."
        raise InvalidFile(str(path), "holds no file of tools", remedy=remedy)
    return [file for file in found if file.name.startswith("tools.")] or found


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
    from toolscout.names import find_near_names, to_one_line

    servers = {server.name: server for server in config.servers}
    if name not in servers:
        otherwise = "See `toolscout servers list`."
        raise UnknownServer(
            to_one_line(name, 60), find_near_names(name, servers), otherwise=otherwise
        )
    return servers[name]


def tokens_folder(config: "Config") -> Path:
    """Return the folder with the tokens of servers; it may not exist yet."""
    return this_machine().find_cache_file(config.gateway).parent / TOKENS_FOLDER


def opened_store(config: "Config") -> "SqliteStore | PostgresStore":
    """Open the store of the gateway, which is made where there is none."""
    address = config.gateway.resolve_store()
    if address:
        from toolscout.stores import PostgresStore

        return PostgresStore(address)
    from toolscout.stores import SqliteStore

    file = this_machine().find_cache_file(config.gateway)
    file.parent.mkdir(parents=True, exist_ok=True)
    return SqliteStore(file)


@contextmanager
def known_store(config: "Config") -> "Generator[SqliteStore | PostgresStore | None]":
    """Open the store of the gateway; gives nothing where there is none yet."""
    if not config.gateway.store and not this_machine().find_cache_file(config.gateway).exists():
        yield None
        return
    with opened_store(config) as store:
        yield store
