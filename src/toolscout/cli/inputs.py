"""The options that several commands share, and the catalogue, configuration or store they name.

`toolscout completion` is here too: shells complete the names of tools and servers that the
configured servers offered last. Nothing is started for that.
"""

import asyncio
import getpass
import logging
import os
import sys
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import click
from click.shell_completion import CompletionItem, get_completion_class

from toolscout.catalog import Catalog
from toolscout.cli import ExitCode, fail, main
from toolscout.cli.output import NAME_SHOWN, format_count, show_bars
from toolscout.clients.discovery import Machine
from toolscout.config.file import Config, find_server, read_config
from toolscout.config.servers import ServerConfig
from toolscout.demo import load_demo_catalog
from toolscout.errors import InvalidFile, MissingExtra, ServerUnavailable
from toolscout.files import read_tools
from toolscout.hints.hints import HintPack, Hints
from toolscout.names import find_near_names, list_some, to_one_line
from toolscout.servers.manifest import TOOL
from toolscout.settings import HintUse, Settings
from toolscout.skills.skill import SKILL
from toolscout.stores import SqliteStore
from toolscout.tools import Tool

if TYPE_CHECKING:
    from toolscout.servers.probe import ProbeResult
    from toolscout.sessions.events import Event
    from toolscout.stores import PostgresStore
    from toolscout.stores.store import Store

TOOL_FILE_ENDINGS = (".json", ".jsonl", ".ndjson", ".json.gz", ".jsonl.gz", ".ndjson.gz")
CONFIG_ENDING = ".toml"
TOKENS_FOLDER = "tokens"
BUNDLES_FOLDER = "bundles"
REPORTS_FOLDER = "running"
LOGS_FOLDER = "logs"
STARTED_TOGETHER = 8
COMPLETED = 200
"""How many names a shell is given to complete."""
PATIENT_SECONDS = 10.0
"""How long a command waits for an installation before it says so."""

flag_option = partial(click.option, is_flag=True)
number_option = partial(click.option, type=click.IntRange(min=1), show_default=True, metavar="N")
path_option = partial(click.option, type=click.Path(path_type=Path, exists=True), metavar="PATH")
file_option = partial(click.option, type=click.Path(path_type=Path, dir_okay=False), metavar="FILE")
EXISTING_FILE = click.Path(path_type=Path, exists=True, dir_okay=False)
FILE_OR_DASH = click.Path(path_type=Path, dir_okay=False, allow_dash=True)
PORT = click.IntRange(0, 65_535)

catalog_option = path_option(
    "--catalog",
    "paths",
    multiple=True,
    help="A .json or .jsonl file of tools, or a folder of them; may be repeated.",
)
configured_option = file_option(
    "--config",
    "config_file",
    help="Use the tools that the servers of this configuration offered last. Default: your own "
    "configuration, or the demo catalogue if you have none.",
)
config_option = file_option(
    "--config",
    "path",
    help="The configuration file. Default: toolscout.toml in your configuration folder.",
)
json_option = flag_option("--json", "as_json", help="Print JSON.")


@dataclass(frozen=True, slots=True, kw_only=True)
class ChosenCatalog:
    """The tools that a command works on, and the settings of the configuration they come from."""

    catalog: Catalog
    settings: Settings = field(default_factory=Settings)
    config: Config = field(default_factory=Config)
    """The configuration; without one, the usual store is used."""
    is_configured: bool = False
    """Whether the tools come from the configuration."""


def catalog_from_tools(tools: Iterable[Tool]) -> Catalog:
    """Return the catalogue of some tools; raises `DuplicateTool` if names collide."""
    # Listings put together by hand often hold a tool twice; only different ones collide.
    return Catalog(list(dict.fromkeys(tools)))


def read_all(paths: Sequence[Path]) -> list[Tool]:
    """Return the tools of files and folders in their order, even if their names collide."""
    for path in paths:
        if path.suffix == CONFIG_ENDING:
            raise click.UsageError(f"{path} is a configuration. Name it with --config.")
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


def choose_catalog(paths: Sequence[Path], config_file: Path | None) -> ChosenCatalog:
    """Return the catalogue that `--catalog` or `--config` names, or the default one; say which."""
    if paths and config_file:
        raise click.UsageError("Use either --catalog or --config, not both.")
    if paths:
        catalog = catalog_from_tools(read_all(paths))
        announce(catalog, paths)
        return ChosenCatalog(catalog=catalog)
    if config_file or find_config_file(None).exists():
        config = read_servers(config_file)
        if config_file or config.servers:
            return choose_configured(config)
    else:
        mention_local_file()
    chosen = ChosenCatalog(catalog=load_demo_catalog())
    click.echo("Using the demo catalogue; name your own with --catalog or --config.", err=True)
    return chosen


def choose_configured(config: Config) -> ChosenCatalog:
    """Return the tools that the servers of a configuration offered last; say so."""
    catalog = read_known_catalog(config)
    return ChosenCatalog(
        catalog=catalog, settings=config.sessions, config=config, is_configured=True
    )


def read_catalog_or_config(path: Path) -> Catalog:
    """Return the tools of a file or folder, or those that a configuration file (.toml) knows."""
    if path.suffix == CONFIG_ENDING:
        return read_known_catalog(read_servers(path))
    return catalog_from_tools(read_all([path]))


def read_known_catalog(config: Config) -> Catalog:
    """Return the tools that configured servers offered last; say so, and which are unknown."""
    need_sdk()
    catalog = recall_tools(config)
    announce_known(config, catalog)
    return catalog


def announce_known(config: Config, catalog: Catalog) -> None:
    """Say which configuration a command uses, and the tools of which servers are not known."""
    announce(catalog, [config.source])
    if catalog.unready:
        problem = f"The tools of {list_some(list(catalog.unready), 5)} are not known yet."
        click.echo(f"{problem} Run `toolscout servers test` to fetch them.", err=True)


def announce(catalog: Catalog, sources: Iterable[Path]) -> None:
    """Say which tools a command uses."""
    places = list_some([str(source) for source in sources], 3)
    tools = format_count(len(list_callable(catalog)), "tool")
    skills = sum(tool.kind == SKILL for tool in catalog.tools)
    tools += f" and {format_count(skills, 'skill')}" if skills else ""
    servers = format_count(len(catalog.servers) - len(catalog.unready), "server")
    click.echo(f"Using {tools} of {servers} in {places}.", err=True)


def list_callable(catalog: Catalog) -> list[Tool]:
    """Return the tools of a catalogue without resources and prompts, which no request carries."""
    return [tool for tool in catalog.tools if tool.kind == TOOL]


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


async def start_servers(
    config: Config,
    chosen: Iterable[ServerConfig],
    on_result: "Callable[[ProbeResult], object] | None" = None,
) -> "list[ProbeResult]":
    """Start servers, a few at a time, and return the result of each.

    `on_result` is called with each result as soon as it is known.
    """
    from toolscout.servers.connection import Delays
    from toolscout.servers.listings import read_stored_manifest
    from toolscout.servers.pool import Connector
    from toolscout.servers.probe import probe_server
    from toolscout.servers.process import choose_start_limit

    # The SDK also logs the exceptions that it raises.
    logging.getLogger("mcp").setLevel(logging.CRITICAL)
    gate = asyncio.Semaphore(STARTED_TOGETHER)
    connector = Connector(Delays(), get_tokens_folder(config))
    with open_store(config) as store, closing(connector):

        async def start(server: ServerConfig) -> "ProbeResult":
            async with gate:
                probing = asyncio.create_task(probe_server(server, connector, store))
                await asyncio.wait((probing,), timeout=PATIENT_SECONDS)
                limit = choose_start_limit(server)
                is_known = read_stored_manifest(store, server) is not None
                if not probing.done() and limit.may_install and not is_known:
                    wait = f"{limit.describe_wait()}; waiting up to {limit.seconds:g} s."
                    click.echo(f"{to_one_line(server.name, NAME_SHOWN)}: {wait}", err=True)
                result = await probing
            if on_result is not None:
                on_result(result)
            return result

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
    for module in ("mcp", "mcp_types"):  # older versions of the SDK lack the second
        if find_spec(module) is None:
            raise MissingExtra(module, extra="gateway")


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
    return (path or get_machine().user_file).absolute()


def mention_local_file() -> None:
    """Say that a configuration in the working directory is not used."""
    if get_machine().local_file is not None:
        click.echo(
            "Not using ./toolscout.toml, which may come with a repository and run its commands. "
            "If you trust it, add --config toolscout.toml.",
            err=True,
        )


def read_servers(path: Path | None) -> Config:
    """Return the named configuration, or the default one; raises `InvalidFile` if it is missing."""
    place = find_config_file(path)
    if path is None:
        mention_local_file()
    if not place.exists():
        remedy = "Run `toolscout init` or `toolscout servers add`, or name a file with --config."
        raise InvalidFile(str(place), "does not exist", remedy=remedy)
    return read_config(place)


def get_tokens_folder(config: Config) -> Path:
    """Return the folder with the tokens of logins; it may not exist yet."""
    return get_machine().find_cache_file(config.gateway).parent / TOKENS_FOLDER


def get_bundles_folder(config: Config) -> Path:
    """Return the folder with the unpacked bundles of servers; it may not exist yet."""
    return get_machine().find_cache_file(config.gateway).parent / BUNDLES_FOLDER


def get_logs_folder(config: Config) -> Path:
    """Return the folder with the logs of gateways in the background; it may not exist yet."""
    return get_machine().find_cache_file(config.gateway).parent / LOGS_FOLDER


def get_log_file(config: Config, key: str) -> Path:
    """Return where the gateway in the background with a key writes its log."""
    return get_logs_folder(config) / f"{key}.log"


def get_reports_folder(config: Config) -> Path:
    """Return the folder in which gateways over stdio report their state; it may not exist yet."""
    return get_machine().find_cache_file(config.gateway).parent / REPORTS_FOLDER


def open_store(config: Config) -> "SqliteStore | PostgresStore":
    """Open the store of the gateway, and create it if there is none."""
    address = config.gateway.resolve_store()
    if address:
        from toolscout.stores import PostgresStore

        return PostgresStore(
            address,
            listen_url=config.gateway.resolve_store_listen(),
            pool_size=config.gateway.store_connections,
        )
    return SqliteStore(get_machine().find_cache_file(config.gateway))


@contextmanager
def open_hints(chosen: ChosenCatalog, *, writes: bool = False) -> Generator[Hints]:
    """Open the hints of the store, and the shipped ones if the settings want them.

    `writes` creates the store if there is none yet.
    """
    is_shipped = chosen.settings.hints is HintUse.SHIPPED
    opened = open_store(chosen.config) if writes else open_known_store(chosen.config)
    with opened as store:
        yield Hints(HintPack.load_shipped() if is_shipped else None, store)


def find_user() -> str:
    """Return the name of whoever runs this command."""
    with suppress(OSError, KeyError):  # there may be no entry for the user
        return getpass.getuser()
    return "unknown"


@contextmanager
def record_decisions(config: Config, store: "Store") -> "Generator[Callable[[Event], None]]":
    """Give a function that puts what a person decides here into the audit record of gateways."""
    from toolscout.gateway.audit import AuditRecord

    if not config.gateway.audit:
        yield lambda event: None
        return
    opened: list[AuditRecord] = []

    def add(event: "Event") -> None:
        if not opened:  # a record without decisions would be an empty run
            opened.append(AuditRecord.from_config(config, store))
        opened[0].on_event(event)

    try:
        yield add
    finally:
        for record in opened:
            record.close()


@contextmanager
def open_known_store(config: Config) -> "Generator[SqliteStore | PostgresStore | None]":
    """Open the store of the gateway; gives nothing if there is none yet."""
    if not config.gateway.store and not get_machine().find_cache_file(config.gateway).exists():
        yield None
        return
    with open_store(config) as store:
        yield store


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print the completion script of a shell.

    It completes commands, options, and the names of tools and servers.

    \b
    Example:
      toolscout completion bash >> ~/.bashrc
      toolscout completion zsh >> ~/.zshrc
      toolscout completion fish > ~/.config/fish/completions/toolscout.fish
    """
    kind = get_completion_class(shell)
    assert kind is not None, "click knows all of these shells"
    click.echo(kind(main, {}, "toolscout", "_TOOLSCOUT_COMPLETE").source())


def complete_tools(
    ctx: click.Context, param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Return the known tools whose exposed name begins like this."""
    found = [tool for tool in _recall_catalog().tools if tool.name.startswith(incomplete)]
    return [CompletionItem(tool.name, help=tool.first_sentence[:60]) for tool in found[:COMPLETED]]


def complete_servers(
    ctx: click.Context, param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Return the configured servers whose name begins like this, or else files."""
    names = _recall_catalog().servers
    found = [CompletionItem(name) for name in names if name.startswith(incomplete)]
    return found or [CompletionItem(incomplete, type="file")]


def _recall_catalog() -> Catalog:
    try:
        return recall_tools(read_servers(None))
    except Exception:  # a command line being typed is no place for a message
        return Catalog()
