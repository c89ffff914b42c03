"""`toolscout approvals`, `lock` and `programs`: which definitions and programs may be used.

Approvals are written to the store that gateways use, and a running gateway notices them. What is
approved is exactly what was shown, even if the server has changed its list once more meanwhile.
"""

import asyncio
import json
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from toolscout.cli import ExitCode, Group, fail, inputs
from toolscout.cli.output import ask, echo_json, format_count
from toolscout.config.documents import write_private
from toolscout.config.file import Config
from toolscout.config.servers import Changes, ServerConfig
from toolscout.errors import ServerUnavailable, UsageError
from toolscout.names import escape_hidden, find_near_names, list_some, to_one_line

if TYPE_CHECKING:
    from toolscout.programs.saved import SavedProgram
    from toolscout.servers.approvals import HeldDefinition
    from toolscout.servers.manifest import Manifest
    from toolscout.stores.store import Store

    Found = list[tuple[ServerConfig, HeldDefinition]]

NAME_SHOWN = 80
DIGEST_CHARS = 8
"""How much of a program's digest has to be given."""
LINES_SHOWN = 12
"""How many lines of differences the list shows for each definition."""
LOCK_MODE = 0o644
EVERYTHING = "--all"
STYLES = {"-": "red", "+": "green", "!": "yellow"}


@click.group(cls=Group, invoke_without_command=True)
@click.pass_context
def approvals(ctx: click.Context) -> None:
    """See which definitions of servers have changed, and approve them.

    The first list of a server is trusted, except tools that look like an attack on the model. New
    and changed tools, and other instructions, are held after that: no search finds them and no call
    reaches them until you approve them here or in the console. Without a command, lists what is
    held.
    """
    inputs.need_sdk()
    if ctx.invoked_subcommand is None:
        ctx.invoke(list_)


@approvals.command("list")
@inputs.config_option
@inputs.json_option
def list_(path: Path | None = None, as_json: bool = False) -> None:
    """List the definitions that wait, with what has changed.

    \b
    Example:
      toolscout approvals list
      toolscout approvals list --json
    """
    found = _find_held(inputs.read_servers(path))
    if as_json:
        echo_json({"held": [item.to_json() for _, item in found]})
        return
    for server, item in found:
        _print_held(server, item, LINES_SHOWN)
    if not found:
        click.echo("Nothing waits for approval.")
    else:
        click.echo("Next: toolscout approvals approve NAME, or reject NAME.", err=True)


@approvals.command()
@click.argument("names", nargs=-1, required=True, metavar="NAME…")
@inputs.config_option
def show(names: tuple[str, ...], path: Path | None) -> None:
    """Show everything that has changed in a definition.

    NAME is a name from the list, or a server.

    \b
    Example:
      toolscout approvals show github__create_issue
    """
    for server, item in _choose(_find_held(inputs.read_servers(path)), names):
        _print_held(server, item)


@approvals.command()
@click.argument("names", nargs=-1, metavar="[NAME…]")
@inputs.flag_option(EVERYTHING, "everything", help="Approve everything that waits.")
@inputs.flag_option("--yes", help="Do not show it and ask first.")
@inputs.config_option
def approve(names: tuple[str, ...], everything: bool, yes: bool, path: Path | None) -> None:
    """Approve definitions, so that they can be used.

    NAME is a name from the list, or a server for everything that waits there. Shows what has
    changed and asks, unless you add --yes. A running gateway notices within seconds.

    \b
    Example:
      toolscout approvals approve github__create_issue
      toolscout approvals approve github --yes
      toolscout approvals approve --all
    """
    _decide(names, everything, yes, path, is_approved=True)


@approvals.command()
@click.argument("names", nargs=-1, metavar="[NAME…]")
@inputs.flag_option(EVERYTHING, "everything", help="Reject everything that waits.")
@inputs.flag_option("--yes", help="Do not show it and ask first.")
@inputs.config_option
def reject(names: tuple[str, ...], everything: bool, yes: bool, path: Path | None) -> None:
    """Reject definitions, so that nobody is asked about them again.

    They stay unusable, and toolscout no longer mentions them. If a server changes one of them
    again, that waits for approval as before. You can still approve what you rejected.

    \b
    Example:
      toolscout approvals reject github__create_issue
    """
    _decide(names, everything, yes, path, is_approved=False)


def _decide(
    names: tuple[str, ...], everything: bool, yes: bool, path: Path | None, *, is_approved: bool
) -> None:
    from toolscout.gateway.events import DefinitionChanged
    from toolscout.servers.approvals import Approvals

    if bool(names) == everything:
        raise click.UsageError("Name what you decide about, or use --all.")
    config = inputs.read_servers(path)
    found = _find_held(config)
    chosen = found if everything else _choose(found, names)
    for server, _ in chosen:
        if is_approved and server.changes == Changes.DENY:
            remedy = "Change it to 'hold' in the configuration first."
            raise UsageError(f"Server {server.name!r} has changes = 'deny'. {remedy}")
    if not chosen:
        click.echo("Nothing waits for approval.")
        return
    verb = "Approve" if is_approved else "Reject"
    if not yes:
        for server, item in chosen:
            _print_held(server, item)
        if not ask(f"{verb} {format_count(len(chosen), 'definition')}?"):
            click.echo("Nothing was changed.", err=True)
            return
    with inputs.open_store(config) as store, inputs.record_decisions(config, store) as note:
        record = Approvals(store)
        record.on_decision = lambda decision: note(DefinitionChanged.from_decision(decision))
        for server in {server.name: server for server, _ in chosen}.values():
            items = [item for owner, item in chosen if owner.name == server.name]
            record.decide(server, items, approve=is_approved, by=inputs.find_user())
    click.echo(f"{verb.removesuffix('e')}ed {list_some([item.label for _, item in chosen])}.")


def _find_held(config: Config) -> "Found":
    from toolscout.servers.listings import find_held

    with inputs.open_known_store(config) as store:
        return [] if store is None else list(find_held(config, store))


def _choose(found: "Found", names: Iterable[str]) -> "Found":
    """Return what some names mean, or end the command because one of them means nothing."""
    chosen: Found = []
    for name in names:
        meant = [pair for pair in found if name in (pair[0].name, pair[1].label)]
        if not meant:
            near = find_near_names(name, [item.label for _, item in found])
            remedy = f"Near: {', '.join(near)}." if near else "See `toolscout approvals`."
            shown = to_one_line(name, NAME_SHOWN)
            fail(f"Nothing named {shown!r} waits for approval. {remedy}", ExitCode.NOT_FOUND)
        chosen += [pair for pair in meant if pair not in chosen]
    return chosen


def _print_held(server: ServerConfig, item: "HeldDefinition", limit: int | None = None) -> None:
    state = " (rejected)" if item.is_rejected else ""
    state = " (denied)" if server.changes == Changes.DENY else state
    click.echo(f"{click.style(item.label, bold=True)} {item.sentence}{state}")
    lines = item.list_differences()
    for line in lines[:limit]:
        click.echo(f"  {click.style(line, fg=STYLES.get(line.strip()[:1]))}")
    if limit is not None and len(lines) > limit:
        rest = format_count(len(lines) - limit, "line")
        click.echo(f"  … {rest} more: toolscout approvals show {item.label}")


@click.command()
@inputs.config_option
@inputs.flag_option("--check", help="Write nothing; the exit code is 1 if something differs.")
def lock(path: Path | None, check: bool) -> None:
    """Write down which definitions your servers offer.

    Starts all servers that are not disabled, and writes toolscout.lock next to the configuration
    file: a line with the digest of each tool. `toolscout serve --locked` serves nothing else.
    Definitions that wait for approval are left out.

    \b
    Example:
      toolscout lock
      toolscout lock --check
    """
    inputs.need_sdk()
    from toolscout.servers.approvals import LOCK_FILE, Approvals, build_lock, format_lock, read_lock
    from toolscout.servers.listings import read_stored_manifest

    config = inputs.read_servers(path)
    chosen = [server for server in config.servers if not server.disabled]
    file = config.source.with_name(LOCK_FILE)
    known = read_lock(file) if check else None
    for trial in asyncio.run(inputs.start_servers(config, chosen)):
        if not trial.is_ok:
            raise ServerUnavailable(trial.server, "failed", trial.problem, remedy=trial.remedy)
    problems: list[str] = list_unlocked(config, known) if known is not None else []
    usable: list[tuple[ServerConfig, Manifest]] = []
    with inputs.open_store(config) as store:
        record = Approvals(store, known)
        for server in chosen:
            manifest = read_stored_manifest(store, server)
            if manifest is not None:
                checked = record.check(server, manifest)
                usable.append((server, checked.manifest))
                problems += [f"{server.name}: {problem}" for problem in checked.problems]
    for problem in problems:
        click.echo(problem, err=True)
    if check:
        if problems:
            raise click.exceptions.Exit(ExitCode.FAILED)
        click.echo(f"{file} is up to date.")
        return
    write_private(file, format_lock(build_lock(usable)), LOCK_MODE)
    count = sum(len(manifest.tools) for _, manifest in usable)
    servers = format_count(len(usable), "server")
    click.echo(f"Wrote {format_count(count, 'tool')} of {servers} to {file}.")


def list_unlocked(config: Config, known: Iterable[str]) -> list[str]:
    """Return which servers a lock file and a configuration do not have in common."""
    names = {server.name for server in config.servers if not server.disabled}
    remedy = "Run `toolscout lock`."
    lacking = [
        f"{name}: The lock file does not have this server. {remedy}" for name in names - {*known}
    ]
    extra = [f"{name}: Only the lock file has this server. {remedy}" for name in {*known} - names]
    return sorted((*lacking, *extra))


@click.group(cls=Group)
def programs() -> None:
    """Save programs that models ran as tools, and approve them.

    A saved program is a tool that calls other tools. Models find and call it after you have
    approved it, if they may call everything that it calls.
    """


@programs.command("list")
@inputs.config_option
@inputs.json_option
def list_programs(path: Path | None, as_json: bool) -> None:
    """List the saved programs, and whether their last version is approved.

    \b
    Example:
      toolscout programs list
    """
    from toolscout.programs.saved import SAVED_KIND, find_program

    with inputs.open_store(inputs.read_servers(path)) as store:
        found = [find_program(store, name) for name in store.keys(SAVED_KIND)]
    rows = [
        {
            "name": program.name,
            "version": program.version,
            "digest": program.digest,
            "approved": approved.get("digest") == program.digest,
            "calls": list(program.calls),
        }
        for program, approved in found
    ]
    if as_json:
        echo_json({"programs": rows})
        return
    for row in rows:
        state = "approved" if row["approved"] else "waits for approval"
        click.echo(f"{row['name']}  version {row['version']}, {state}")
    if not rows:
        click.echo("No program is saved. Save one with toolscout programs save NAME.", err=True)


@programs.command("show")
@click.argument("name")
@inputs.config_option
def show_program(name: str, path: Path | None) -> None:
    """Show the last version of a program: what it calls, its schema and its source.

    \b
    Example:
      toolscout programs show late_orders
    """
    from toolscout.programs.saved import find_program

    with inputs.open_store(inputs.read_servers(path)) as store:
        program, _ = find_program(store, name)
    _print_program(program)


@programs.command("save")
@click.argument("name")
@click.option(
    "--file",
    "file",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="File with the program.",
)
@click.option("--ran", metavar="DIGEST", help="A program that a model ran, by its digest.")
@click.option("--description", required=True, help="What it does, for models that search.")
@click.option("--parameters", default="{}", metavar="JSON", help="Properties of its arguments.")
@click.option("--call", "calls", multiple=True, metavar="TOOL", help="A tool that it may call.")
@inputs.config_option
def save(
    name: str,
    file: Path | None,
    ran: str | None,
    description: str,
    parameters: str,
    calls: tuple[str, ...],
    path: Path | None,
) -> None:
    """Save a program under a name; it waits until you approve it.

    The program reads its arguments as variables. With --ran, it is one that a model ran, whose
    digest the audit record and the console show, and may call the tools that it called then.

    \b
    Example:
      toolscout programs save late_orders --file late.py --description "List late orders" \\
        --parameters '{"days": {"type": "integer"}}' --call shop__list_orders
    """
    from toolscout.programs.saved import SavedProgram, save_program

    if (file is None) is (ran is None):
        raise click.UsageError("Name the program with --file or --ran.")
    try:
        properties = json.loads(parameters)
    except ValueError:
        raise click.UsageError("--parameters is not JSON.") from None
    with inputs.open_store(inputs.read_servers(path)) as store:
        if file is not None:
            source = file.read_text(encoding="utf-8")
        else:
            source, called = _find_ran(store, str(ran))
            calls = calls or called
        schema = {"type": "object", "properties": properties, "required": list(properties)}
        program = SavedProgram(
            name=name,
            description=description,
            source=source,
            parameters=schema,
            calls=tuple(dict.fromkeys(calls)),
            by=inputs.find_user(),
        )
        saved = save_program(store, program)
    click.echo(f"Saved {name}, version {saved.version}. Next: toolscout programs approve {name}.")


@programs.command("approve")
@click.argument("name")
@inputs.flag_option("--yes", help="Do not show it and ask first.")
@inputs.config_option
def approve_saved(name: str, yes: bool, path: Path | None) -> None:
    """Approve the last version of a program, so that models can call it.

    Shows it and asks, unless you add --yes. What you approve is exactly what was shown. A running
    gateway notices within seconds.

    \b
    Example:
      toolscout programs approve late_orders
    """
    from toolscout.programs.saved import approve_program, find_program

    with inputs.open_store(inputs.read_servers(path)) as store:
        program, _ = find_program(store, name)
        if not yes:
            _print_program(program)
            if not ask(f"Approve {name}, version {program.version}?"):
                click.echo("Nothing was changed.", err=True)
                return
        approve_program(store, name, program.digest, inputs.find_user())
    click.echo(f"Approved {name}, version {program.version}.")


@programs.command("remove")
@click.argument("name")
@inputs.config_option
def remove(name: str, path: Path | None) -> None:
    """Remove a saved program with all its versions.

    \b
    Example:
      toolscout programs remove late_orders
    """
    from toolscout.programs.saved import remove_program

    with inputs.open_store(inputs.read_servers(path)) as store:
        remove_program(store, name)
    click.echo(f"Removed {name}.")


def _find_ran(store: "Store", digest: str) -> tuple[str, tuple[str, ...]]:
    """Return the source of a program that a model ran, and the tools that it called."""
    from toolscout.sessions.run import PROGRAM_KIND, VERBS, list_programs

    for session in store.keys(PROGRAM_KIND):
        for record in list_programs(store, session):
            if len(digest) >= DIGEST_CHARS and record.digest.startswith(digest):
                names = dict.fromkeys(call.name for call in record.calls if call.name not in VERBS)
                return record.source, tuple(names)
    raise UsageError(f"No kept program has a digest that begins with {digest[:80]!r}.")


def _print_program(program: "SavedProgram") -> None:
    click.echo(f"{program.name}, version {program.version}, by {program.by} at {program.at}")
    click.echo(f"digest: {program.digest}")
    click.echo(f"description: {escape_hidden(program.description)}")
    click.echo(f"calls: {', '.join(program.calls) or 'nothing'}")
    click.echo(f"arguments: {json.dumps(program.parameters.get('properties', {}))}")
    for line in program.source.splitlines():
        click.echo(f"  {escape_hidden(line)}")
