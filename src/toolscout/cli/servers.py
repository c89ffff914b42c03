"""`toolscout servers`: list, test, find, add and remove servers, and log in to them.

Nothing that is printed contains the value of a variable, header or token that is secret. What a
publisher says about a server is shown to a person, who confirms it, before anything is written.
"""

import asyncio
import logging
import os
import re
import shlex
import shutil
import sys
import threading
import time
import webbrowser
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from toolscout.catalog import Catalog
from toolscout.cli import ExitCode, Group, fail, inputs
from toolscout.cli.output import (
    NAME_SHOWN,
    ask,
    ask_value,
    echo_json,
    format_count,
    make_table,
    show,
    show_bars,
)
from toolscout.clients.discovery import find_secret_places
from toolscout.config.bundles import Bundle, is_bundle, read_bundle, unpack_bundle
from toolscout.config.documents import is_file
from toolscout.config.edits import add_server, read_own_text, remove_server, write_edit
from toolscout.config.file import Config, find_server, read_config
from toolscout.config.references import is_literal
from toolscout.config.registry import (
    ACTIVE,
    DELETED,
    Entry,
    Input,
    Offer,
    Template,
    Values,
    offer_from_entry,
    read_export,
    read_offer,
)
from toolscout.config.servers import Login, ServerConfig, Transport
from toolscout.errors import InvalidConfig, InvalidFile, ToolscoutError, UnknownServer, UsageError
from toolscout.names import escape_hidden, find_near_names, list_some, to_error_text, to_one_line
from toolscout.options import join_keys
from toolscout.tools import Tool

if TYPE_CHECKING:
    from toolscout.servers.oauth.callback import Callback
    from toolscout.servers.oauth.tokens import LoginStorage
    from toolscout.servers.probe import ProbeResult

LOGIN_SECONDS = 300.0
PASTED_BYTES = 16 << 10
NOTE_SHOWN = 200
LINE_SHOWN = 300
PACKAGE_SHOWN = 60
START_SHOWN = 8_000
"""Characters of a command and its variables that a person can still check."""
REGISTRY_FILE = "registry.json"
REGISTRY_API = "https://registry.modelcontextprotocol.io/v0.1/servers?version=latest"

_UNUSUAL = re.compile(r"[^A-Za-z0-9._-]+")
_NOT_VARIABLE = re.compile(r"\W")

registry_option = click.option(
    "--registry",
    multiple=True,
    type=inputs.EXISTING_FILE,
    metavar="FILE",
    help="An export of the MCP registry; may be repeated. Default: registry.json in your "
    "configuration folder.",
)


@click.group(cls=Group)
def servers() -> None:
    """Manage the servers behind the gateway."""
    inputs.need_sdk()
    # The SDK also logs the exceptions that it raises.
    logging.getLogger("mcp").setLevel(logging.CRITICAL)


@servers.command("list")
@inputs.config_option
@inputs.json_option
def list_(path: Path | None, as_json: bool) -> None:
    """List the configured servers without starting them.

    \b
    Example:
      toolscout servers list
      toolscout servers list --json
    """
    from toolscout.servers.probe import list_servers

    config = inputs.read_servers(path)
    tokens = inputs.get_tokens_folder(config)
    with inputs.open_known_store(config) as store:
        entries = list_servers(config, store, tokens, env=os.environ, now=time.time())
    if as_json:
        rows = [
            {
                "name": entry.server.name,
                "transport": entry.server.transport,
                "starts": entry.server.format_start(),
                "state": entry.state,
                "tools": entry.tools,
                "login": entry.login,
                "file": entry.file,
            }
            for entry in entries
        ]
        echo_json({"config": config.source, "servers": rows})
        return
    for note in config.notes:
        click.echo(f"Note: {to_error_text(note, NOTE_SHOWN)}", err=True)
    if not entries:
        click.echo("No servers. Add some with `toolscout init` or `toolscout servers add`.")
        return
    table: list[tuple[str, ...]] = []
    for entry in entries:
        name = to_one_line(entry.server.name, NAME_SHOWN)
        tools = "-" if entry.tools is None else f"{entry.tools:,}"
        transport = entry.server.transport
        table.append((name, transport, entry.state, tools, entry.login, str(entry.file)))
    head = ("server", "transport", "state", "tools", "login", "configured in")
    show([make_table(head, table)])


@servers.command("test")
@click.argument("names", nargs=-1, metavar="[NAME…]")
@inputs.config_option
@inputs.json_option
def test_(names: tuple[str, ...], path: Path | None, as_json: bool) -> None:
    """Start servers, list their tools and stop them.

    Tests all servers that are not disabled, or those named. The exit code is 1 if one failed.

    \b
    Example:
      toolscout servers test
      toolscout servers test github linear --json
    """
    config = inputs.read_servers(path)
    chosen = [find_server(config, name) for name in dict.fromkeys(names)]
    chosen = chosen or [server for server in config.servers if not server.disabled]
    width = max((len(to_one_line(server.name, NAME_SHOWN)) for server in chosen), default=0)

    def report(trial: "ProbeResult") -> None:
        if not as_json:
            show_trial(trial, width)

    trials = asyncio.run(inputs.start_servers(config, chosen, report))
    if as_json:
        echo_json({"servers": [json_from_trial(trial) for trial in trials]})
    if not all(trial.is_ok for trial in trials):
        raise click.exceptions.Exit(ExitCode.FAILED)


def json_from_trial(trial: "ProbeResult") -> dict[str, object]:
    """Return the outcome of starting a server as plain JSON."""
    return {
        "name": trial.server,
        "ok": trial.is_ok,
        "seconds": round(trial.seconds, 3),
        "counts": dict(trial.counts),
        "protocol": trial.protocol,
        "problem": trial.problem,
        "remedy": trial.remedy,
        "notes": trial.notes,
        "held": trial.held,
    }


def show_trial(trial: "ProbeResult", width: int) -> None:
    """Print the outcome of starting a server, its name padded to a width."""
    outcome = f"ok      {format_offer(trial)}"
    if not trial.is_ok:
        problem = trial.problem[:1].upper() + trial.problem[1:].removesuffix(".")
        outcome = f"failed  {problem}. {trial.remedy}".rstrip()
    click.echo(f"{to_one_line(trial.server, NAME_SHOWN):<{width}}  {outcome}")
    for note in trial.notes:
        click.echo(f"{'':<{width}}  {to_error_text(note, NOTE_SHOWN)}")


def format_offer(trial: "ProbeResult") -> str:
    """Return how many tools and other entries a server offers, and how long it took to start."""
    counts = ", ".join(format_count(count, kind) for kind, count in trial.counts.items())
    return f"{counts or 'offers nothing'} ({trial.seconds:.1f} s)"


@servers.command("search")
@click.argument("words", nargs=-1, required=True, metavar="WORD…")
@registry_option
@inputs.number_option("--limit", default=10, help="Maximum number of servers.")
@inputs.json_option
def search_(words: tuple[str, ...], registry: tuple[Path, ...], limit: int, as_json: bool) -> None:
    """Find servers in an export of the MCP registry.

    Looks only into the file; nothing is fetched. Add one of them with `toolscout servers add`.

    \b
    Example:
      toolscout servers search postgres
      toolscout servers search "send mail" --registry registry.json --json
    """
    from toolscout.search.index import Index

    entries = [entry for entry in _read_registry(registry).values() if entry.status != DELETED]
    found: dict[str, tuple[Tool, Entry]] = {}
    for entry in entries:
        tool = _tool_from_entry(entry)
        found.setdefault(tool.name, (tool, entry))
    with show_bars() as progress:
        progress(f"Indexing {len(found):,} servers", 0, 0)
        index = Index(Catalog([tool for tool, _ in found.values()]))
    hits = [(hit, found[hit.tool.name][1]) for hit in index.search(" ".join(words), limit).best]
    if as_json:
        rows = [
            {
                "name": entry.name,
                "version": entry.version,
                "status": entry.status,
                "packages": entry.packages,
                "description": hit.tool.description,
                "match": hit.confidence,
            }
            for hit, entry in hits
        ]
        echo_json({"servers": rows})
    elif hits:
        table = [
            (
                entry.name,
                entry.version if entry.status == ACTIVE else f"{entry.version} ({entry.status})",
                to_one_line(entry.packages[0], PACKAGE_SHOWN) if entry.packages else "-",
                hit.tool.first_sentence,
            )
            for hit, entry in hits
        ]
        show([make_table(("server", "version", "package", "what it does"), table)])
        click.echo(f"Next: toolscout servers add {hits[0][1].name}", err=True)
    if not hits:
        fail(f"No server fits {to_one_line(' '.join(words), 100)!r}.", ExitCode.NOT_FOUND)


def _tool_from_entry(entry: Entry) -> Tool:
    """Return a server of the registry as something that the index can find."""
    publisher, _, leaf = entry.name.partition("/")
    return Tool.define(
        leaf,
        server=publisher,
        title=entry.server.get("title", ""),
        description=entry.server.get("description", ""),
        hint=" ".join(entry.packages),
    )


def _read_registry(paths: Sequence[Path]) -> dict[str, Entry]:
    exports = _list_exports(paths)
    if not exports:
        fetch = f"Fetch the MCP registry into it with curl from {REGISTRY_API}, page by page"
        remedy = f"{fetch} (add &cursor=…, the last nextCursor), or name a file with --registry."
        raise InvalidFile(str(_get_usual_export()), "does not exist", remedy=remedy)
    return read_export(exports)


def _list_exports(paths: Sequence[Path]) -> Sequence[Path]:
    """Return the exports of the MCP registry that were named, otherwise the usual one, if any."""
    return paths or [file for file in (_get_usual_export(),) if is_file(file)]


def _get_usual_export() -> Path:
    return inputs.get_machine().user_file.with_name(REGISTRY_FILE)


@servers.command()
@click.argument("source", metavar="NAME|SOURCE")
@click.argument("arguments", nargs=-1, metavar="[ARGUMENT…]")
@inputs.config_option
@click.option(
    "--command", metavar="PROGRAM", help="The program that starts it; its arguments come last."
)
@click.option("--url", metavar="URL", help="The address of a remote server, instead of a command.")
@inputs.flag_option("--sse", help="Use the older SSE transport for the URL.")
@inputs.flag_option("--oauth", help="The server needs a login; see `toolscout servers login`.")
@click.option(
    "--env", "variables", multiple=True, metavar="NAME=${REF}", help="A variable; may be repeated."
)
@click.option(
    "--header", "headers", multiple=True, metavar="NAME=${REF}", help="A header; may be repeated."
)
@click.option("--name", metavar="NAME", help="The name of a server from a SOURCE.")
@click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="KEY=VALUE",
    help="A value that a server from a SOURCE takes; may be repeated.",
)
@inputs.number_option(
    "--package", "number", help="Which package or address of a SOURCE to use, as it lists them."
)
@registry_option
@inputs.flag_option("--yes", "-y", help="Add a server from a SOURCE without asking.")
@inputs.flag_option("--no-test", help="Do not start a server from a SOURCE to test it.")
def add(
    source: str,
    arguments: tuple[str, ...],
    path: Path | None,
    command: str | None,
    url: str | None,
    sse: bool,
    oauth: bool,
    variables: tuple[str, ...],
    headers: tuple[str, ...],
    name: str | None,
    settings: tuple[str, ...],
    number: int | None,
    registry: tuple[Path, ...],
    yes: bool,
    no_test: bool,
) -> None:
    """Add a server to toolscout's own configuration file.

    With --command or --url, the first argument is the name of the new server. Write secrets as
    references, ${VARIABLE} or ${file:PATH}. Put `--` before program arguments that begin with a
    dash.

    Otherwise it is a SOURCE: a server.json file, an .mcpb file, or the name of a server in an
    export of the MCP registry, as `toolscout servers search` prints it. Then shows what would be
    run, asks for the values that the server needs, and adds it when you have confirmed it.

    \b
    Example:
      toolscout servers add time --command uvx mcp-server-time
      toolscout servers add files --command npx -- -y @modelcontextprotocol/server-filesystem .
      toolscout servers add linear --url https://mcp.linear.app/mcp --oauth
      toolscout servers add ./weather.mcpb
      toolscout servers add io.github.example/weather --set units=metric
    """
    if command and url:
        raise click.UsageError("Use either --command PROGRAM or --url URL.")
    place = inputs.find_config_file(path)
    if (command or url) and (name or settings or number or registry):
        raise click.UsageError("--name, --set, --package and --registry need a SOURCE.")
    if command or url:
        over_http = Transport.SSE if sse else Transport.HTTP
        server = ServerConfig(
            name=source,
            transport=over_http if url else Transport.STDIO,
            command=command or "",
            args=arguments,
            url=url or "",
            oauth=oauth,
            env=_parse_pairs("--env", variables),
            headers=_parse_pairs("--header", headers),
        )
        for key in find_secret_places(server):
            remedy = "Write ${VARIABLE} or ${file:PATH} instead, in single quotes."
            raise InvalidConfig(key, "looks like a secret in plain text", remedy=remedy)
        write_edit(place, add_server(place, read_own_text(place), server))
        _tell_added(place, server)
        return
    if arguments or sse or variables or headers:
        raise click.UsageError("Arguments, --env, --header and --sse need --command or --url.")
    text = read_own_text(place)
    offer, template, bundle = _find_template(source, registry, number, read_config(place, text))
    _show_offer(offer, template)
    name = name or _UNUSUAL.sub("-", offer.name.rpartition("/")[2]).strip("-.") or "server"
    values = _collect_values(template, settings, name, asks=not yes)
    server = replace(template.fill(name, values), oauth=oauth)
    text = add_server(place, text, server)
    _show_start(server, template, values)
    if not yes and not ask(f"Add it to {place} as {name!r}?"):
        click.echo("Nothing was added.", err=True)
        return
    if bundle is not None:
        unpack_bundle(bundle)
    try:
        write_edit(place, text)
    except InvalidFile:
        if bundle is not None:
            shutil.rmtree(bundle.folder, ignore_errors=True)
        raise
    is_tested = not no_test and not oauth
    _tell_added(place, server, is_tested=is_tested)
    if is_tested:
        config = inputs.read_servers(place)
        trials = asyncio.run(inputs.start_servers(config, [find_server(config, name)]))
        show_trial(trials[0], len(name))


def _tell_added(place: Path, server: ServerConfig, *, is_tested: bool = False) -> None:
    click.echo(f"Added {server.name!r} to {place}.")
    verb = "login" if server.oauth else "test"
    if not is_tested:
        click.echo(f"Next: toolscout servers {verb} {shlex.quote(server.name)}")


def _find_template(
    source: str, registry: Sequence[Path], number: int | None, config: Config
) -> tuple[Offer, Template, Bundle | None]:
    """Return what a source offers, the way to run it that was chosen, and its bundle."""
    file = Path(source).expanduser()
    machine = inputs.get_machine()
    folders = inputs.get_bundles_folder(config)
    if is_bundle(file):
        bundle = read_bundle(file, machine.home, folders, machine.platform)
        return bundle.offer, bundle.offer.templates[0], bundle
    if is_file(file) or file.suffix == ".json":
        offer = read_offer(file)
    elif "/" not in source and not _list_exports(registry):
        name = to_one_line(source, NAME_SHOWN)
        problem = f"{name!r} is neither a file nor a name of the MCP registry, which has a slash."
        remedy = "To add a new server, say what starts it with --command, or name its --url."
        raise click.UsageError(f"{problem} {remedy}")
    else:
        offer = offer_from_entry(_find_entry(source, _read_registry(registry)))
    if offer.status == DELETED:
        problem = f"The registry has deleted {offer.name}. {to_one_line(offer.remark, 300)}"
        raise UsageError(f"{problem.strip()} It was not added.")
    template = _choose_template(offer, number)
    if not template.sha256:
        return offer, template, None
    near = [folder / Path(template.source).name for folder in (file.parent, machine.cwd)]
    local = next(filter(is_file, near), None)
    if local is None:
        url = shlex.quote(escape_hidden(template.source))
        problem = f"{offer.name} is a bundle, and toolscout fetches nothing."
        raise UsageError(f"{problem} Run `curl -LO {url}` here first, then this command again.")
    bundle = read_bundle(local, machine.home, folders, machine.platform, sha256=template.sha256)
    return offer, replace(bundle.offer.templates[0], label=template.label), bundle


def _find_entry(name: str, entries: Mapping[str, Entry]) -> Entry:
    if name not in entries:
        leaves = {other.rpartition("/")[2]: other for other in entries}
        near = [leaves[leaf] for leaf in find_near_names(name.rpartition("/")[2], leaves)]
        otherwise = "Find one with `toolscout servers search`."
        raise UnknownServer(to_one_line(name, NAME_SHOWN), near, otherwise=otherwise)
    return entries[name]


def _choose_template(offer: Offer, number: int | None) -> Template:
    """Return the way that was named, or the first that this machine has a program for."""
    if number is not None and number > len(offer.templates):
        raise click.UsageError(f"--package is at most {len(offer.templates)} for {offer.name}.")
    chosen = offer.templates if number is None else (offer.templates[number - 1],)
    usable = [one for one in chosen if not one.problem]
    if not usable:
        reasons = [f"{one.label}: {one.problem}." for one in chosen] or ["It has no packages."]
        raise UsageError(f"{offer.name} cannot be added. {' '.join(reasons)}")
    ready = [one for one in usable if one.url or shutil.which(one.command)]
    return (ready or usable)[0]


def _show_offer(offer: Offer, template: Template) -> None:
    head = to_one_line(f"{offer.title or offer.name} {offer.version}", 200)
    rows = [("Server", head), ("About", offer.description), ("Name", offer.name)]
    rows += [("Publisher", offer.publisher), ("Website", offer.website), ("Uses", template.label)]
    for number, other in enumerate(offer.templates, 1):
        reason = f" (cannot be used: {other.problem})" if other.problem else ""
        if other.label != template.label:
            rows.append(("Or", f"--package {number}: {other.label}{reason}"))
    if offer.status != ACTIVE:
        rows.append(("Status", f"{offer.status}. {offer.remark}"))
    _show_rows((label, to_one_line(text, LINE_SHOWN)) for label, text in rows if text)


def _show_start(server: ServerConfig, template: Template, values: Values) -> None:
    """Print all that would be written; a secret is a reference there."""
    command = shlex.join((server.command, *server.args)) if server.command else ""
    rows = [("Runs", command), ("In", server.cwd), ("Address", server.url)]
    rows += [("Variable", f"{name}={value}") for name, value in server.env.items()]
    rows += [("Header", f"{name}: {value}") for name, value in server.headers.items()]
    if sum(len(text) for _, text in rows) > START_SHOWN:
        raise UsageError(f"{server.name!r} takes more than a person can check. It was not added.")
    for one in template.list_inputs():
        if one.key not in values and not one.is_required:
            choices = f"({', '.join(one.choices)})" if one.choices else ""
            about = f"--set {one.key}=… {choices} {one.description}"
            rows.append(("Option", to_one_line(about, LINE_SHOWN)))
    rows += [("Warning", text) for text in template.warnings]
    if server.command and not shutil.which(server.command) and not server.cwd:
        rows.append(("Warning", f"{server.command} is not installed on this machine."))
    _show_rows((label, escape_hidden(text)) for label, text in rows if text)


def _show_rows(rows: Iterable[tuple[str, str]]) -> None:
    for label, text in rows:
        click.echo(f"{label:<10} {text}")


def _collect_values(
    template: Template, settings: Sequence[str], server: str, *, asks: bool
) -> dict[str, tuple[str, ...]]:
    """Return the values that were set, and those that a person gives when asked."""
    wanted = {one.key: one for one in template.list_inputs()}
    given: dict[str, list[str]] = {}
    for setting in settings:
        key, sign, value = setting.partition("=")
        if not sign or key not in wanted:
            near = find_near_names(key, wanted) or list(wanted)
            remedy = f"It takes {list_some(near)}." if near else "It takes no values."
            raise click.UsageError(f"--set {to_one_line(key, 80)!r} means nothing here. {remedy}")
        given.setdefault(key, []).append(value)
    values: dict[str, tuple[str, ...]] = {}
    missing: list[str] = []
    for key, one in wanted.items():
        if key in given:
            values[key] = one.check([_make_absolute(one, text) for text in given[key]])
        elif one.is_required and not one.default and (asks or one.is_secret):
            values[key] = (_ask_for(one, server, asks=asks),)
        elif one.is_required and not one.default:
            missing.append(key)
    if missing:
        listed = " ".join(f"--set {key}=…" for key in missing)
        raise click.UsageError(f"{server!r} needs {to_one_line(listed, LINE_SHOWN)}.")
    return values


def _ask_for(wanted: Input, server: str, *, asks: bool) -> str:
    """Return the value that a person types; a secret is a reference, by default to a variable."""
    key = wanted.key
    variable = key if key.isupper() else f"{server}_{key}".upper()
    usual = f"${{{_NOT_VARIABLE.sub('_', variable)}}}"
    if wanted.is_secret and not asks:
        return usual

    def check(text: str) -> str:
        try:
            return wanted.check([_make_absolute(wanted, text) if text else usual])[0]
        except UsageError as error:
            raise click.UsageError(str(error)) from None

    about = to_one_line(f"{key} ({wanted.description})" if wanted.description else key, LINE_SHOWN)
    if wanted.choices:
        about += f" [{to_one_line(', '.join(wanted.choices), LINE_SHOWN)}]"
    if wanted.is_secret:
        about += f", a secret: a reference to it, such as ${{file:PATH}}; Enter for {usual}"
    remedy = f"pass --set {key}=VALUE"
    return ask_value(about, check, is_hidden=wanted.is_secret, remedy=remedy)


def _make_absolute(wanted: Input, text: str) -> str:
    # The gateway runs in another folder.
    is_path = wanted.format == "filepath" and is_literal(text)
    return str(Path(text).expanduser().absolute()) if is_path else text


def _parse_pairs(option: str, texts: tuple[str, ...]) -> dict[str, str]:
    found: dict[str, str] = {}
    for text in texts:
        name, sign, value = text.partition("=")
        if not sign or not name.strip():
            raise click.UsageError(f"{option} takes NAME=VALUE.")
        found[name.strip()] = value
    return found


@servers.command()
@click.argument("name")
@inputs.config_option
def remove(name: str, path: Path | None) -> None:
    """Remove a server from toolscout's own configuration file.

    Keeps the old file as FILE.bak. Deletes the login tokens of the server, including those of
    users, its approvals and the folder that its bundle was unpacked into.

    \b
    Example:
      toolscout servers remove time
    """
    from toolscout.servers.listings import forget_server
    from toolscout.servers.oauth.encrypted_logins import EncryptedLogins
    from toolscout.servers.oauth.tokens import TokenFile

    place = inputs.find_config_file(path)
    text = remove_server(place, read_own_text(place), name)
    config = inputs.read_servers(place)
    folder = inputs.get_tokens_folder(config)
    cwd = find_server(config, name).cwd
    unpacked = Path(cwd.replace("$${", "${"))
    used = [one for one in config.servers if one.cwd == cwd]
    server = None
    logged_out: list[str | None] = []
    # A server with a reference that has no value has no address to be logged in at.
    with suppress(InvalidConfig):
        server = find_server(config, name).resolve()
        logged_out += [None] if TokenFile(folder, server).forget() else []
    write_edit(place, text)
    with inputs.open_known_store(config) as store:
        if store is not None:
            forget_server(store, name)
            if server is not None:
                found = EncryptedLogins(store, folder=folder).forget_server(server)
                logged_out += [principal or None for principal in found]
    for principal in logged_out:
        with _record_login(config, name, principal) as tell:
            tell("removed")
    click.echo(f"Removed {name!r} from {place}.")
    if len(used) == 1 and unpacked.parent == inputs.get_bundles_folder(config):
        shutil.rmtree(unpacked, ignore_errors=True)
        click.echo(f"Deleted {unpacked}.")


principal_option = click.option(
    "--principal",
    metavar="NAME",
    help='Whose login it is, for a server with login = "user": the name of a token of the gateway, '
    "or ISSUER:SUBJECT. Default: the login that everybody shares.",
)


@servers.command()
@click.argument("name")
@inputs.config_option
@principal_option
@inputs.flag_option("--no-browser", help="Print the address instead of opening a browser.")
@inputs.number_option(
    "--port",
    type=inputs.PORT,
    help="Local port to wait for the browser on; 0 picks a free one. Default: 8975.",
)
def login(
    name: str, path: Path | None, principal: str | None, no_browser: bool, port: int | None
) -> None:
    """Log in to a server with OAuth.

    Opens a browser and waits five minutes for the login to finish. If the browser runs on another
    machine, paste the address that it ends up at. A running gateway picks up the login by itself.

    \b
    Example:
      toolscout servers login linear
      toolscout servers login linear --no-browser
      toolscout servers login linear --principal ann
    """
    from toolscout.servers.oauth.login import check_login

    config = inputs.read_servers(path)
    server = find_server(config, name).resolve()
    check_login(server)
    with (
        _open_login(config, server, principal) as storage,
        _record_login(config, name, principal) as tell,
    ):
        storage.load()  # a login that cannot be decrypted is not written over
        tell("started")
        try:
            is_new = asyncio.run(_log_in(server, storage, port, open_browser=not no_browser))
        except (ToolscoutError, KeyboardInterrupt) as error:
            tell("failed", str(error) or "it was interrupted")
            raise
        tell("ok" if is_new else "not needed")
    whose = f" for {principal!r}" if principal else ""
    click.echo(
        f"Logged in to {name!r}{whose}." if is_new else f"Server {name!r} does not require a login."
    )


@servers.command()
@click.argument("name")
@inputs.config_option
@principal_option
def logout(name: str, path: Path | None, principal: str | None) -> None:
    """Delete the login tokens of a server.

    A running gateway stops using them. At the server they stay valid until they expire, or until
    you revoke them there.

    \b
    Example:
      toolscout servers logout linear
      toolscout servers logout linear --principal ann
    """
    config = inputs.read_servers(path)
    with (
        _open_login(config, find_server(config, name).resolve(), principal) as storage,
        _record_login(config, name, principal) as tell,
    ):
        was_there = storage.forget()
        if was_there:
            tell("removed")
    click.echo(f"Logged out of {name!r}." if was_there else f"There was no login for {name!r}.")


@contextmanager
def _record_login(
    config: Config, server: str, principal: str | None
) -> "Generator[Callable[..., None]]":
    """Give a function that puts the outcome of a login, and a reason, into the audit record."""
    from toolscout.gateway.events import LoginChanged, LoginOutcome

    whose = {"server": server, "principal": principal or "", "by": inputs.find_user()}
    with inputs.open_store(config) as store, inputs.record_decisions(config, store) as note:

        def tell(outcome: str, reason: str = "") -> None:
            note(LoginChanged(outcome=LoginOutcome(outcome), reason=reason, **whose))

        yield tell


@contextmanager
def _open_login(
    config: Config, server: ServerConfig, principal: str | None
) -> "Generator[LoginStorage]":
    """Open the place where a login at a server is stored: of a principal, or of everybody."""
    from toolscout.servers.oauth.encrypted_logins import EncryptedLogins
    from toolscout.servers.oauth.tokens import TokenFile

    folder = inputs.get_tokens_folder(config)
    if principal is None:
        if not config.gateway.shares_logins:
            yield TokenFile(folder, server)
            return
        with inputs.open_store(config) as store:
            keys = config.gateway.resolve_login_keys()
            logins = EncryptedLogins(store, keys, folder=folder, is_shared=True)
            login = logins.find_storage(server)
            assert login is not None
            login.load()
            yield login
        return
    if server.login != Login.USER:
        key = join_keys("servers", server.name, "login")
        remedy = 'Write login = "user", or leave out --principal.'
        raise InvalidConfig(key, "does not give each user a login", remedy=remedy)
    if not config.gateway.may_have(principal):
        near = find_near_names(principal, config.gateway.tokens, limit=1)
        remedy = f"Use {near[0]!r}." if near else "Use the name of one of 'gateway.tokens'."
        raise click.UsageError(f"No token or issuer has the principal {principal!r}. {remedy}")
    with inputs.open_store(config) as store:
        keys = config.gateway.resolve_login_keys()
        yield EncryptedLogins(store, keys, folder=folder).find(server, principal)


async def _log_in(
    server: ServerConfig, storage: "LoginStorage", port: int | None, *, open_browser: bool
) -> bool:
    from toolscout.servers.oauth.callback import PORT, Callback
    from toolscout.servers.oauth.login import log_in

    # A client that was registered by hand is registered with one address.
    wanted = PORT if port is None and server.oauth_client_id else port
    async with Callback(wanted) as callback:

        async def redirect(url: str) -> None:
            callback.expect(url)
            click.echo(f"Open this address to log in:\n\n  {url}\n", err=True)
            if open_browser and webbrowser.open(url):
                click.echo("Opened a browser.", err=True)
            remedy = "If the browser cannot return here, paste the address it ended up at."
            click.echo(f"Waiting. {remedy}", err=True)
            _read_pasted(callback)

        answer = partial(callback.answer, LOGIN_SECONDS)
        return await log_in(
            server, storage, callback=callback.url, redirect=redirect, answer=answer
        )


def _read_pasted(callback: "Callback") -> None:
    """Read pasted addresses, in a thread that ends with the program."""
    loop = asyncio.get_running_loop()

    def take(line: bytes) -> None:
        if not callback.take(line.decode(errors="replace").strip()):
            click.echo("That is not the address at the end of a login.", err=True)

    def read_lines() -> None:
        # Not `sys.stdin`: a waiting thread would hold its lock and block the exit of the program.
        held = b""
        with suppress(OSError, ValueError, RuntimeError):  # no terminal, or the login is over
            while data := os.read(sys.stdin.fileno(), PASTED_BYTES):
                *lines, held = (held + data).split(b"\n")
                held = held[-PASTED_BYTES:]
                for line in filter(bytes.strip, lines):
                    loop.call_soon_threadsafe(take, line)

    threading.Thread(target=read_lines, daemon=True).start()
