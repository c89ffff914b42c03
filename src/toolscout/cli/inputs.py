"""The options that several commands share, and the catalogue, configuration or store they name."""

import asyncio
import os
import sys
from collections.abc import Generator, Iterable, Sequence
from contextlib import closing, contextmanager
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import click

from toolscout.catalog import Catalog
from toolscout.cli import ExitCode, fail
from toolscout.cli.output import NAME_SHOWN, show_bars
from toolscout.clients.discovery import Machine
from toolscout.config.file import Config, find_server, read_config
from toolscout.config.servers import ServerConfig
from toolscout.demo import load_demo_catalog
from toolscout.errors import InvalidFile, MissingExtra, ServerUnavailable
from toolscout.files import read_tools
from toolscout.names import find_near_names, list_some, to_one_line
from toolscout.stores import SqliteStore
from toolscout.tools import Tool

if TYPE_CHECKING:
    from toolscout.servers.probe import ProbeResult
    from toolscout.stores import PostgresStore

TOOL_FILE_ENDINGS = (".json", ".jsonl", ".ndjson", ".json.gz", ".jsonl.gz", ".ndjson.gz")
CONFIG_ENDING = ".toml"
TOKENS_FOLDER = "tokens"
UNKNOWN_SHOWN = 5
STARTED_TOGETHER = 8
PATIENT_SECONDS = 10.0
"""How long a command waits for an installation before it says so."""

_paths_option = partial(
    click.option,
    "--catalog",
    "--tools",
    "paths",
    multiple=True,
    type=click.Path(path_type=Path, exists=True),
    metavar="PATH",
)
_PATHS_HELP = "A .json or .jsonl file of tools, or a folder of them; may be repeated."
catalog_option = _paths_option(help=_PATHS_HELP)
tools_option = _paths_option(help=f"{_PATHS_HELP} Default: the demo catalogue.")
file_option = partial(click.option, type=click.Path(path_type=Path, dir_okay=False), metavar="FILE")
configured_option = file_option(
    "--config",
    "config_file",
    help="Use the tools that the servers of this configuration offered last. Default: your own "
    "configuration, or the demo catalogue if you have none.",
)
config_option = file_option(
    "--config",
    "path",
    help="The configuration file. Default: ./toolscout.toml, or the one in your configuration "
    "folder.",
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


def read_catalog(paths: Sequence[Path]) -> Catalog:
    """Return the tools of files and folders, or the demo catalogue if none is named."""
    return catalog_from_tools(read_all(paths)) if paths else load_demo_catalog()


def catalog_from_tools(tools: Iterable[Tool]) -> Catalog:
    """Return the catalogue of some tools; raises `DuplicateTool` if names collide."""
    by_server: dict[str, dict[Tool, None]] = {}
    for tool in tools:
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
    from toolscout.servers.openapi.document import is_openapi_file, read_document
    from toolscout.servers.openapi.operations import tools_from_openapi

    if is_openapi_file(path):
        return tools_from_openapi(read_document(path), server or path.name.partition(".")[0])
    tools = read_tools(path)
    return [tool if tool.server or not server else tool.move_to(server) for tool in tools]


def choose_catalog(paths: Sequence[Path], config_file: Path | None) -> Catalog:
    """Return the catalogue that `--catalog` or `--config` names, or the default one."""
    if paths and config_file:
        raise click.UsageError("Use either --catalog or --config, not both.")
    if paths:
        return read_catalog_or_config(paths)
    if config_file or find_config_file(None).exists():
        return read_known_catalog(config_file)
    click.echo("Using the demo catalogue; name your own with --catalog or --config.", err=True)
    return load_demo_catalog()


def read_catalog_or_config(paths: Sequence[Path]) -> Catalog:
    """Return the tools of files and folders, or those that a configuration file knows."""
    if len(paths) == 1 and paths[0].suffix == CONFIG_ENDING:
        return read_known_catalog(paths[0])
    return read_catalog(paths)


def read_known_catalog(config_file: Path | None) -> Catalog:
    """Return the tools that configured servers offered last, and report unknown servers."""
    need_sdk()
    catalog = recall_tools(read_servers(config_file))
    if catalog.unready:
        names = list_some(list(catalog.unready), UNKNOWN_SHOWN)
        problem = f"The tools of {names} are not known yet."
        click.echo(f"{problem} Run `toolscout servers test` to fetch them.", err=True)
    return catalog


def recall_tools(config: Config) -> Catalog:
    """Return the tools that configured servers offered last; starts none of them."""
    from toolscout.servers.listings import recall_catalog

    with open_known_store(config) as store:
        return recall_catalog(config, store)


def fetch_tools(config: Config, name: str) -> Catalog:
    """Start a server to list its tools; return all known tools, or raise `ServerUnavailable`."""
    server = find_server(config, name)
    with show_bars() as progress:
        progress(f"Asking {name} for its tools", 0, 0)
        [trial] = asyncio.run(start_servers(config, [server]))
    if not trial.is_ok:
        remedy = trial.remedy or f"Run `toolscout servers test {name}`."
        raise ServerUnavailable(name, "failed", trial.problem, remedy=remedy)
    return recall_tools(config)


async def start_servers(config: Config, chosen: Iterable[ServerConfig]) -> "list[ProbeResult]":
    """Start servers, a few at a time, and return the result of each."""
    from toolscout.servers.connection import Delays
    from toolscout.servers.pool import Connector
    from toolscout.servers.probe import probe_server
    from toolscout.servers.process import choose_start_limit

    gate = asyncio.Semaphore(STARTED_TOGETHER)
    with (
        open_store(config) as store,
        closing(Connector(Delays(), get_tokens_folder(config))) as connector,
    ):

        async def start(server: ServerConfig) -> "ProbeResult":
            async with gate:
                probing = asyncio.create_task(probe_server(server, connector, store))
                await asyncio.wait((probing,), timeout=PATIENT_SECONDS)
                limit = choose_start_limit(server)
                if not probing.done() and limit.may_install:
                    wait = f"{limit.describe_wait()}; waiting up to {limit.seconds:g} s."
                    click.echo(f"{to_one_line(server.name, NAME_SHOWN)}: {wait}", err=True)
                return await probing

        return await asyncio.gather(*map(start, chosen))


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
    fail(f"There is no tool {to_one_line(name, 80)!r}. {remedy}", ExitCode.NOT_FOUND)


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
        raise InvalidFile(str(path), "contains no file of tools", remedy=remedy)
    return [file for file in found if file.name.startswith("tools.")] or found


def get_machine() -> Machine:
    """Return the folders and environment of this machine."""
    return Machine(home=Path.home(), platform=sys.platform, env=os.environ, cwd=Path.cwd())


def find_config_file(path: Path | None) -> Path:
    """Return the named configuration file, or the default one, whether it exists or not."""
    return (path or get_machine().config_file).absolute()


def read_servers(path: Path | None) -> Config:
    """Return the named configuration, or the default one; raises `InvalidFile` if it is missing."""
    place = find_config_file(path)
    if not place.exists():
        remedy = "Run `toolscout init` or `toolscout servers add`, or name a file with --config."
        raise InvalidFile(str(place), "does not exist", remedy=remedy)
    return read_config(place)


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
