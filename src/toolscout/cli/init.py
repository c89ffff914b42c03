"""`toolscout init`: one configuration for the gateway, and clients that start toolscout instead.

Shows the plan and asks; `toolscout.clients` finds servers and rewrites files. Servers that the
configuration has already stay as they are there. In the end, the new servers are tested. Nothing
that is printed contains the value of a variable, header or token.

`toolscout` without a command is here too: it says what to do next on this machine.
"""

import asyncio
import re
import shlex
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from glob import escape
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import click

from toolscout.cli import ExitCode, fail, inputs
from toolscout.cli.output import NAME_SHOWN, ask, echo_json, format_count, render_steps, show
from toolscout.cli.servers import json_from_trial, show_trial
from toolscout.cli.status import is_daemon_of, list_daemons
from toolscout.cli.tokens import Costs, measure_costs, render_totals
from toolscout.clients.discovery import (
    Discovery,
    FoundServer,
    Machine,
    Source,
    find_secret_places,
    find_servers,
    format_secret_notes,
    is_same_server,
    list_known_files,
    list_secret_options,
    move_secrets,
    starts_own,
)
from toolscout.clients.permissions import add_hook, get_settings_file, remove_hook
from toolscout.clients.programs import CLIENTS, find_client
from toolscout.clients.rewrite import (
    Launch,
    Rewrite,
    find_config_files,
    find_moved_servers,
    find_own_names,
    format_diff,
    format_manual_change,
    list_places,
    parse_document,
    plan_rewrite,
)
from toolscout.clients.undo import (
    Undo,
    explain_conflict,
    find_backup,
    find_undos,
    put_back,
    write_rewrite,
)
from toolscout.config.documents import is_file, read_document
from toolscout.config.edits import add_server, put_profile, read_own_text, to_toml, write_edit
from toolscout.config.file import Config, import_servers, is_own_document, read_config
from toolscout.config.gateway import Profile
from toolscout.config.references import (
    KEYRING_SERVICE,
    has_keyring,
    list_secret_references,
    write_keyring,
)
from toolscout.config.servers import ServerConfig, is_matched
from toolscout.errors import InvalidFile, UsageError
from toolscout.names import clean_text, list_some, to_one_line
from toolscout.scout import Scout

if TYPE_CHECKING:
    from toolscout.servers.probe import ProbeResult

ABOUT = "toolscout finds the right tool for an AI agent among ten or a hundred thousand, offline."
TRY = ("toolscout try", "see it find tools; needs no setup")
SEARCH = ('toolscout search "open a pull request"', "search your tools, or demo tools")
PREVIEW = ("toolscout init --dry-run", "see what would change")
INIT = ("toolscout init", "put them behind toolscout; asks before each change")
ADD = ("toolscout servers add --help", "set up servers by hand")
CONNECT = ("claude mcp add --scope user toolscout -- toolscout serve", "connect Claude Code")
DOCTOR = ("toolscout doctor", "check this machine and suggest fixes")
STATUS = ("toolscout status", "see its servers and figures")
CONSOLE = ("toolscout console", "see tools, sessions and calls in a browser")
INSTALL = ("pip install 'toolscout[gateway]'", "add what talks to MCP servers")
KEEP = ("uv tool install 'toolscout[gateway]'", "install toolscout; uvx only tries it")
DELETE_COMMAND = f"keyring del {KEYRING_SERVICE} NAME"
UV_CACHE = re.compile(r"(archive|environments)-v\d+")
"""The folders of uv's cache that hold the environments of `uvx`."""
DIFF_STYLES = {"+": "green", "-": "red", "@": "cyan"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Everything that one run would write."""

    findings: Discovery
    config: Config
    """With the new servers and profiles."""
    text: str
    """The new text of toolscout's own file; empty if it stays as it is."""
    rewrites: list[Rewrite]
    by_hand: list["ManualChange"]
    """Changes to files that toolscout reads but does not rewrite."""
    notes: list[str]
    moved: Mapping[str, str] = field(repr=False)
    """Secrets that go into the keychain, by their names there."""

    def find_gains(self, rewrite: Rewrite) -> list[str]:
        """Return the servers that a client gets in addition to those it had."""
        if rewrite.profile:
            return []
        found = [one for one in self.findings.found if one.is_new or not rewrite.was_own]
        every = [one.server.name for one in found if not one.server.disabled]
        return [name for name in every if name not in rewrite.servers]


@dataclass(frozen=True, slots=True, kw_only=True)
class ManualChange:
    """A change that a person has to make in a client's file."""

    source: Source
    profile: str
    """The profile that toolscout's entry names; empty if the client sees everything."""
    servers: tuple[str, ...]
    """The names, in toolscout's configuration, of the servers that it takes over."""
    lines: list[str]
    """What to change, line by line."""


def show_first_steps() -> None:
    """Say what toolscout is and what to do next, in at most ten lines."""
    situation, steps = _describe_machine(inputs.get_machine())
    if _is_run_by_uvx():
        steps = [KEEP, *steps]
    elif find_spec("mcp") is None:
        steps = [INSTALL, *steps]
    show([ABOUT, "", situation, "", *render_steps(steps), "", "All commands: toolscout --help"])


def _is_run_by_uvx() -> bool:
    """Tell whether this environment is in uv's cache, from which it may be deleted at any time."""
    return UV_CACHE.fullmatch(Path(sys.prefix).parent.name) is not None


def _describe_machine(machine: Machine) -> tuple[str, list[tuple[str, str]]]:
    """Return a sentence on what runs or is set up here, and the commands to go on with."""
    place = machine.user_file
    try:
        own, _ = _read_own(place, overwrites=False)
    except UsageError:
        return f"Your configuration {place} cannot be read.", [DOCTOR, TRY]
    findings = find_servers(list_known_files(machine), machine, own)
    fresh = [one for one in findings.found if one.is_new]
    servers = format_count(len(own.servers), "server")
    running = [one for one in list_daemons() if is_daemon_of(one, place)]
    steps: list[tuple[str, str]]
    if running:
        clients = format_count(sum(len(one["clients"]) for one in running), "client")
        situation = f"Your gateway runs in the background, with {servers} for {clients}."
        steps = [STATUS, CONSOLE, SEARCH]
    elif own.servers:
        situation = f"Your configuration {place} has {servers}."
        steps = [DOCTOR, SEARCH, CONSOLE]
        if not any(map(_starts_toolscout, findings.sources)):
            situation += " No MCP client that toolscout knows starts `toolscout serve` yet."
            steps = [CONNECT, DOCTOR, SEARCH]
    elif fresh:
        return _describe_fresh(fresh), [PREVIEW, INIT, TRY]
    else:
        return "No MCP client with servers was found here.", [TRY, SEARCH, ADD]
    if fresh:
        situation = f"{situation} {_describe_fresh(fresh)}"
        steps = [INIT, *steps]
    return situation, steps


def _starts_toolscout(source: Source) -> bool:
    """Tell whether a client's file lists toolscout itself."""
    try:
        document = read_document(source.path)
    except InvalidFile:
        return False
    return any(find_own_names(document, keys) for keys in list_places(document, None))


def _describe_fresh(fresh: Sequence[FoundServer]) -> str:
    programs = list_some(list(dict.fromkeys(one.source.program for one in fresh)))
    verb = "is" if len(fresh) == 1 else "are"
    count = format_count(len(fresh), "server")
    return f"{count} of your MCP clients ({programs}) {verb} not behind toolscout yet."


@click.command()
@inputs.file_option(
    "--config",
    "target",
    help="The file to write. Default: toolscout.toml in your configuration folder.",
)
@click.option(
    "--from",
    "paths",
    multiple=True,
    type=inputs.EXISTING_FILE,
    metavar="PATH",
    help="Read servers from this file and change no client; may be repeated. "
    "Default: the files of all known clients.",
)
@click.option(
    "--client",
    "clients",
    multiple=True,
    type=click.Choice([client.name for client in CLIENTS]),
    help="Change only this client; may be repeated. Default: all that have servers.",
)
@inputs.flag_option("--keep-clients", help="Do not change the files of clients.")
@inputs.flag_option(
    "--project",
    help="Also move, or with --undo restore, the servers of this folder, as in .mcp.json.",
)
@inputs.flag_option(
    "--profiles", help="Limit each client to the servers that it had, with its own profile."
)
@inputs.flag_option(
    "--hook",
    help="Also install the hook that applies Claude Code's permission rules to the tools behind "
    "toolscout, or with --undo remove it.",
)
@inputs.flag_option(
    "--keyring",
    help="Move plain secrets of new servers into the keychain of this system. In a terminal, you "
    "are asked.",
)
@inputs.flag_option("--no-test", help="Do not start the new servers to test them.")
@inputs.flag_option("--undo", help="Restore the files of clients.")
@inputs.flag_option("--yes", "-y", help="Write without asking.")
@inputs.flag_option("--dry-run", help="Show what would change without writing anything.")
@inputs.flag_option(
    "--force",
    help="Overwrite a file that cannot be read, or undo despite conflicts; the old file is kept "
    "as FILE.bak.",
)
@inputs.flag_option("--json", "as_json", help="Print what was found and done as JSON.")
def init(
    target: Path | None,
    paths: tuple[Path, ...],
    clients: tuple[str, ...],
    keep_clients: bool,
    project: bool,
    profiles: bool,
    hook: bool,
    keyring: bool,
    no_test: bool,
    undo: bool,
    yes: bool,
    dry_run: bool,
    force: bool,
    as_json: bool,
) -> None:
    """Put the MCP servers of this machine behind toolscout.

    Reads the files of your MCP clients and writes their servers into one configuration file.
    Secrets are copied as they are, so only you can read that file, or moved into the keychain of
    this system. Then shows how each client's file would change to start toolscout instead, and
    asks before changing it. The old file is kept; --undo restores it. In the end, starts the new
    servers to test them.

    Run it again whenever a client has new servers: only those are added, and what you changed in
    the configuration stays.

    \b
    Example:
      toolscout init
      toolscout init --client cursor --dry-run
      toolscout init --profiles
      toolscout init --undo
      toolscout init --from .mcp.json --config toolscout.toml --yes
    """
    if as_json and not (yes or dry_run):
        raise click.UsageError("--json cannot ask questions: add --yes or --dry-run.")
    if (clients or profiles) and (paths or keep_clients):
        option = "--client" if clients else "--profiles"
        raise click.UsageError(f"{option} cannot be combined with --from or --keep-clients.")
    if undo:
        _undo_clients(
            clients, project=project, yes=yes, dry_run=dry_run, force=force, as_json=as_json
        )
        if hook and not dry_run:
            _change_hook(remove_hook, as_json=as_json)
        return
    machine = inputs.get_machine()
    place = (target or machine.user_file).absolute()
    own, old = _read_own(place, overwrites=force)
    named = [Source(program="", path=path.absolute()) for path in paths]
    findings = find_servers(named or list_known_files(machine), machine, own, project=project)
    moved: dict[str, str] = {}
    if keyring or (not (yes or as_json or dry_run) and _wants_keyring(findings)):
        found = [
            replace(one, server=move_secrets(one.server, moved)) if one.is_new else one
            for one in findings.found
        ]
        findings = replace(findings, found=tuple(found))
    config = replace(own, servers=tuple(one.server for one in findings.found), notes=())
    notes = [*findings.notes, *(f"{name} goes into the keychain." for name in moved)]
    changes: list[Rewrite | ManualChange] = []
    if findings.found and not (paths or keep_clients):
        folders = machine.project_folders if project else ()
        always = bool(clients)
        for source in _choose_files(machine, clients, project=project):
            try:
                _check_inside(source, machine)
                changes += _plan_change(source, config, folders, profiles=profiles, always=always)
            except UsageError as error:
                notes.append(str(error))
    for change in changes:
        config = _extend_profile(config, change.profile, change.servers)
    notes += format_secret_notes(finding.server for finding in findings.found if finding.is_new)
    plan = Plan(
        findings=findings,
        config=config,
        text=_edit_own(config, own, old) if findings.found else "",
        rewrites=[change for change in changes if isinstance(change, Rewrite)],
        by_hand=[change for change in changes if isinstance(change, ManualChange)],
        notes=[" ".join(clean_text(note, 2_000).split()) for note in notes],
        moved=moved,
    )
    if not as_json:
        _show_plan(plan)
    _carry_out(plan, yes=yes, dry_run=dry_run, as_json=as_json, tests=not no_test)
    if hook and not dry_run:
        _change_hook(add_hook, as_json=as_json)
    if not findings.found:
        problem = "No MCP servers found. Add one with `toolscout servers add`, or name a file"
        problem += " that lists some with --from PATH."
        fail(problem, ExitCode.NOT_FOUND)


def _wants_keyring(findings: Discovery) -> bool:
    """Ask whether to move the plain secrets of new servers, if there are any and a keychain."""
    servers = [one.server for one in findings.found if one.is_new]
    count = format_count(sum(len(list_secret_options(one)) for one in servers), "secret")
    is_possible = not count.startswith("0 ") and sys.stdin.isatty() and has_keyring()
    return is_possible and ask(f"Move {count} in plain text into the keychain of this system?")


def _change_hook(change: Callable[[Path], bool], *, as_json: bool) -> None:
    file = get_settings_file(inputs.get_machine())
    if change(file) and not as_json:
        click.echo(f"Changed the hooks in {file}.", err=True)


def _read_own(place: Path, *, overwrites: bool) -> tuple[Config, str]:
    """Return toolscout's own configuration and its text; empty if there is none yet.

    A file that cannot be read is refused, or counts as empty if it is to be overwritten.
    """
    empty = Config(source=place)
    if not is_file(place):
        return empty, ""
    is_foreign = False
    with suppress(UsageError):
        is_foreign = not is_own_document(read_document(place))
    try:
        text = read_own_text(place)
        return read_config(place, text), text
    except UsageError as error:
        if is_foreign:
            raise
        if overwrites:
            return empty, ""
        remedy = f"Or use --force to overwrite the file; the old one is kept as {place.name}.bak."
        raise UsageError(f"{error} {remedy}") from None


def _edit_own(config: Config, own: Config, text: str) -> str:
    """Return the new text of toolscout's own file; empty if it says everything already."""
    new = text
    if not text.strip():
        new = to_toml(replace(config, gateway=own.gateway))
    else:
        known = {server.name for server in own.servers}
        for server in config.servers:
            if server.name not in known:
                new = add_server(config.source, new, server)
    for name, profile in config.gateway.profiles.items():
        if own.gateway.profiles.get(name) != profile:
            new = put_profile(config.source, new, name, profile.servers)
    return new if new != text else ""


def _list_client_files(machine: Machine, clients: Sequence[str]) -> list[Source]:
    """Return the files of these clients, or of all, whether they exist or not."""
    programs = [client.title for client in CLIENTS if client.name in clients or not clients]
    found = {s.path: s for s in list_known_files(machine) if s.program in programs}
    return list(found.values())


def _choose_files(machine: Machine, clients: Sequence[str], *, project: bool) -> list[Source]:
    """Return the files that may change; raise if a client that was named has none."""
    existing = [s for s in _list_client_files(machine, clients) if is_file(s.path)]
    chosen = [source for source in existing if project or not source.is_project]
    for client in CLIENTS:
        if client.name in clients and not any(s.program == client.title for s in chosen):
            remedy = "Start it once, or leave out --client."
            if any(source.program == client.title for source in existing):
                remedy = "Add --project to change the one in this folder."
            raise UsageError(f"{client.title} has no configuration file of yours. {remedy}")
    return chosen


def _check_inside(source: Source, machine: Machine) -> None:
    """Raise if the file of a project is a link to somewhere else, which must not be written."""
    folder = machine.cwd.resolve()
    if source.is_project and not source.path.resolve().is_relative_to(folder):
        remedy = "Change the file that it leads to by hand, or replace the link by a file."
        raise InvalidFile(
            str(source.path), "is a link that leads out of this folder", remedy=remedy
        )


def _choose_command() -> list[str]:
    """Return what starts this toolscout; a client has its own PATH, which may have another."""
    uvx = shutil.which("uvx")
    if uvx and _is_run_by_uvx():
        return [uvx, "--from", "toolscout[gateway]", "toolscout"]
    installed = shutil.which("toolscout", path=str(Path(sys.executable).parent))
    return [installed] if installed else [sys.executable, "-m", "toolscout"]


def _plan_change(
    source: Source, config: Config, folders: Sequence[Path], *, profiles: bool, always: bool
) -> Sequence[Rewrite | ManualChange]:
    """Return the change of a client's file, if there is any; `always` adds toolscout anyway."""
    client = find_client(source.program)
    profile = client.name if profiles else ""
    command, *args = _choose_command()
    args += ["serve", "--config", str(config.source)]
    launch = Launch(command=command, args=tuple(args), profile=profile)
    if client.is_yaml:
        return _plan_by_hand(source, launch, config, always=always)
    plan = plan_rewrite(source, launch, config, folders, always=always)
    is_new_profile = bool(profile) and profile not in config.gateway.profiles
    if is_new_profile and plan.was_own:
        # An earlier run has moved servers that the profile should name too.
        backup = find_backup(source.path)
        moved = find_moved_servers(source, backup, config) if backup else []
        plan = plan_rewrite(source, launch, config, folders, always=bool(moved) or always)
        plan = replace(plan, servers=tuple(dict.fromkeys((*moved, *plan.servers))))
    if is_new_profile and not plan.servers:
        # There is nothing that the profile could name.
        launch = replace(launch, profile="")
        plan = plan_rewrite(source, launch, config, folders, always=always)
    return [plan] if plan.is_change else []


def _plan_by_hand(
    source: Source, launch: Launch, config: Config, *, always: bool
) -> list[ManualChange]:
    """Return the change that a person has to make, if there is any."""
    taken: dict[str, str] = {}
    found = import_servers(source.path, ()).servers
    own = [one for one in found if starts_own(one.command, one.url, one.args)]
    for one in found:
        same = [server.name for server in config.servers if is_same_server(one, server)]
        if same and one not in own:
            taken[one.name] = same[0]
    if not taken and (own or not always):
        return []
    launch = launch if taken else replace(launch, profile="")
    servers = tuple(dict.fromkeys(taken.values()))
    lines = format_manual_change(source, launch, taken)
    return [ManualChange(source=source, profile=launch.profile, servers=servers, lines=lines)]


def _extend_profile(config: Config, name: str, servers: Sequence[str]) -> Config:
    """Return a configuration whose profile admits these servers as well."""
    old = config.gateway.profiles.get(name)
    patterns = old.servers if old else ()
    added = tuple(escape(one) for one in servers if not is_matched(one, patterns))
    if not name or not added:
        return config
    profile = replace(old or Profile(), servers=(*patterns, *added))
    profiles = {**config.gateway.profiles, name: profile}
    return replace(config, gateway=replace(config.gateway, profiles=profiles))


def _show_plan(plan: Plan) -> None:
    findings = plan.findings
    for source in findings.sources:
        servers = [finding.server for finding in findings.found if finding.source == source]
        if servers:
            click.echo(f"{source.program or 'Named'}: {source.path}")
        names = [to_one_line(server.name, NAME_SHOWN) for server in servers]
        width = max(map(len, names), default=0)
        for name, server in zip(names, servers, strict=True):
            off = " (disabled)" if server.disabled else ""
            click.echo(f"  {name:<{width}}  {server.transport:<7}  {server.format_start()}{off}")
    if plan.notes:
        click.echo("\nNotes:")
    for note in plan.notes:
        click.echo(f"- {note}")
    place = plan.config.source
    added = sum(finding.is_new for finding in findings.found)
    count = format_count(added, "server")
    if added and added == len(findings.found):
        click.echo(f"\nThis puts {count} into {place}.")
    elif added:
        click.echo(f"\nThis adds {count} to {place}.")
        click.echo("Every client that starts toolscout without a profile can then use them.")
    for rewrite in plan.rewrites:
        _show_rewrite(plan, rewrite)
    if any(map(plan.find_gains, plan.rewrites)):
        click.echo("\nTo keep each client to the servers that it has now, add --profiles.")
    for change in plan.by_hand:
        head, *lines = change.lines
        click.echo(f"\n{change.source.program} has a YAML file, which you change by hand. {head}\n")
        click.echo("\n".join(lines))


def _show_rewrite(plan: Plan, rewrite: Rewrite) -> None:
    program = rewrite.source.program
    instead = ""
    if rewrite.taken:
        count = format_count(len(rewrite.taken), "server")
        instead = f" instead of {count} ({_format_names(rewrite.taken)})"
    click.echo(f"\n{program} would start toolscout{instead}:")
    _show_diff(rewrite.source.path, rewrite.old, rewrite.new)
    if rewrite.kept:
        click.echo(f"These servers stay: {_format_names(rewrite.kept)}.")
    gains = plan.find_gains(rewrite)
    if gains:
        count = format_count(len(gains), "server")
        names = _format_names(gains)
        click.echo(f"{program} can then also use {count} that it did not have: {names}.")
    elif rewrite.profile:
        listed = plan.config.gateway.profiles[rewrite.profile].servers
        click.echo(f"Its profile {rewrite.profile!r} admits {_format_names(listed)}.")


def _format_names(names: Sequence[str]) -> str:
    return to_one_line(", ".join(names), 300)


def _show_diff(path: Path, old: str, new: str) -> None:
    for line in format_diff(path, old, new):
        click.echo(click.style(line, fg=DIFF_STYLES.get(line[:1])))


def _carry_out(plan: Plan, *, yes: bool, dry_run: bool, as_json: bool, tests: bool) -> None:
    place = plan.config.source
    is_wanted = bool(plan.text) and not dry_run
    is_written = is_wanted and (yes or ask(f"Write {place}?"))
    if is_written:
        for name, value in plan.moved.items():
            write_keyring(name, value)
        write_edit(place, plan.text)
        if not as_json:
            click.echo(f"Wrote {place}.")
    elif is_wanted:
        click.echo("Nothing was written.", err=True)
    # A client must not start a toolscout that does not know its servers.
    is_ready = is_written or not (plan.text or dry_run)
    backups: dict[Path, Path] = {}
    for rewrite in plan.rewrites if is_ready else []:
        path = rewrite.source.path
        if yes or ask(f"Change {path} ({rewrite.source.program})?"):
            backups[path] = write_rewrite(rewrite)
            if not as_json:
                click.echo(f"Changed {path}. The old file is kept as {backups[path].name}.")
    chosen = [one.server for one in plan.findings.found if one.is_new and not one.server.disabled]
    trials: list[ProbeResult] = []
    costs: Costs | None = None
    if (is_written or backups) and tests:
        trials, costs = _test_servers(plan.config, chosen if is_written else [], as_json=as_json)
    if as_json:
        answer = _to_json(plan, backups, is_written=is_written) | {
            "tests": [json_from_trial(trial) for trial in trials],
            "tokens": costs.to_json() if costs else None,
        }
        echo_json(answer)
    elif backups:
        changed = [r.source.program for r in plan.rewrites if r.source.path in backups]
        programs = ", ".join(dict.fromkeys(changed))
        click.echo(f"Next: restart {programs}. `toolscout init --undo` restores the old files.")
    elif is_written:
        click.echo(f"Next: toolscout serve --config {shlex.quote(str(place))}")
    elif is_ready and plan.findings.found and not plan.rewrites:
        click.echo("Nothing to change.")


def _test_servers(
    config: Config, chosen: Sequence[ServerConfig], *, as_json: bool
) -> "tuple[list[ProbeResult], Costs | None]":
    """Start servers, print the outcome of each, and count what all tools cost."""
    if find_spec("mcp") is None:
        problem = "The servers were not tested, because the MCP SDK is not installed."
        click.echo(f"{problem} Run `pip install 'toolscout[gateway]'`.", err=True)
        return [], None
    width = max((len(to_one_line(server.name, NAME_SHOWN)) for server in chosen), default=0)

    def report(trial: "ProbeResult") -> None:
        if not as_json:
            show_trial(trial, width)

    if chosen and not as_json:
        count = format_count(len(chosen), "server")
        click.echo(f"\nTesting {count}; skip this with --no-test.")
    results = asyncio.run(inputs.start_servers(config, chosen, report))
    catalog = inputs.recall_tools(config)
    costs = measure_costs(Scout(catalog, encoder=None), lambda _: None) if len(catalog) else None
    if not as_json:
        if results:
            click.echo(f"{_summarize_trials(results)}\n")
        if costs is not None:
            show(render_totals(costs))
            click.echo()
    return results, costs


def _summarize_trials(results: "Sequence[ProbeResult]") -> str:
    failed = [trial.server for trial in results if not trial.is_ok]
    answered = len(results) - len(failed)
    text = f"{answered} of {format_count(len(results), 'server')} answered."
    if failed:
        again = f"toolscout servers test {shlex.join(failed)}"
        text += f" When you have fixed the others, run `{again}`."
    return text


def _to_json(plan: Plan, backups: Mapping[Path, Path], *, is_written: bool) -> dict[str, object]:
    servers = [
        {
            "name": finding.server.name,
            "transport": finding.server.transport,
            "starts": finding.server.format_start(),
            "disabled": finding.server.disabled,
            "program": finding.source.program,
            "file": finding.source.path,
            "new": finding.is_new,
            "secrets": find_secret_places(finding.server),
        }
        for finding in plan.findings.found
    ]
    clients = [
        {
            "program": rewrite.source.program,
            "file": rewrite.source.path,
            "changed": rewrite.source.path in backups,
            "backup": backups.get(rewrite.source.path),
            "taken": rewrite.taken,
            "kept": rewrite.kept,
            "gains": plan.find_gains(rewrite),
            "profile": rewrite.profile,
            "diff": format_diff(rewrite.source.path, rewrite.old, rewrite.new),
        }
        for rewrite in plan.rewrites
    ]
    by_hand = [
        {"program": change.source.program, "file": change.source.path, "lines": change.lines}
        for change in plan.by_hand
    ]
    return {
        "config": plan.config.source,
        "written": is_written,
        "servers": servers,
        "notes": plan.notes,
        "keychain": list(plan.moved),
        "clients": clients,
        "by_hand": by_hand,
    }


def _undo_clients(
    clients: Sequence[str], *, project: bool, yes: bool, dry_run: bool, force: bool, as_json: bool
) -> None:
    machine = inputs.get_machine()
    undos: list[Undo] = []
    for undo in find_undos(_list_client_files(machine, clients)):
        # A repository may bring a file that looks like a backup, and a link as well.
        if undo.source.is_project and not project:
            note = f"{undo.source.path} may come with a repository. Add --project to restore it."
            click.echo(note, err=True)
            continue
        _check_inside(undo.source, machine)
        undos.append(undo)
    rows: list[dict[str, object]] = []
    named: list[Path] = []
    for undo in undos:
        program, path = undo.source.program, undo.source.path
        with suppress(UsageError):
            named += find_config_files(parse_document(path, undo.current))
        if not as_json:
            how = "exactly as it was" if undo.is_exact else "keeping later edits"
            would = "restored only with --force" if undo.conflicts else f"restored, {how}"
            click.echo(f"{program}: {path} would be {would}:")
            try:
                _show_diff(path, undo.current, undo.restored)
            except UsageError as error:
                click.echo(str(error))
        is_allowed = not dry_run and (force or not undo.conflicts)
        is_back = is_allowed and (yes or ask(f"Restore {path} ({program})?"))
        if is_back:
            put_back(undo, force=force)
            if not as_json:
                click.echo(f"Restored {path}. Restart {program}.")
        rows.append(
            {
                "program": program,
                "file": path,
                "backup": undo.backup,
                "restored": is_back,
                "exact": undo.is_exact,
                "conflicts": undo.conflicts,
            }
        )
    # The configuration files that clients named stay after an undo.
    configs = [path for path in dict.fromkeys(named or [machine.user_file]) if is_file(path)]
    stored: list[str] = []
    for path in configs:
        with suppress(UsageError):
            for server in read_config(path).servers:
                references = list_secret_references(server)
                stored += [ref[8:] for ref in references if ref.startswith("keyring:")]
    if as_json:
        echo_json({"clients": rows, "configs": configs, "keychain": stored})
    elif not undos:
        click.echo("Nothing to undo: `toolscout init` has not changed any file.")
    for path in configs if not as_json and any(row["restored"] for row in rows) else ():
        remove = "del" if sys.platform == "win32" else "rm"
        files = [file for file in (path, path.with_name(f"{path.name}.bak")) if is_file(file)]
        delete = f"To delete it: {remove} {shlex.join(map(str, files))}"
        click.echo(f"{path} stays, with the secrets that were copied into it. {delete}")
    if stored and not as_json and any(row["restored"] for row in rows):
        click.echo(f"The keychain keeps {', '.join(stored)}. To delete one: {DELETE_COMMAND}")
    refused = [undo for undo in undos if undo.conflicts and not force]
    if refused and not dry_run:
        raise explain_conflict(refused[0])
