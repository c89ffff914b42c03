"""`toolscout policy` and `toolscout hook`: who may call what, and calls that wait for a person.

The hook gives Claude Code's own permission rules the real tool behind `tool_call`.
"""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.console import RenderableType

from toolscout.catalog import Catalog
from toolscout.cli import ErrorGroup, ExitCode, fail, inputs
from toolscout.cli.output import Cell, echo_json, make_table, show, style
from toolscout.clients import permissions
from toolscout.config.file import Config
from toolscout.config.gateway import CallerRules
from toolscout.errors import UsageError
from toolscout.names import to_one_line
from toolscout.policies import Permission
from toolscout.schemas import Json, is_object
from toolscout.tools import Tool

if TYPE_CHECKING:
    from toolscout.gateway.pending import ApprovalRequest

STYLES = {Permission.ALLOW: "green", Permission.ASK: "yellow", Permission.DENY: "red"}
NOT_SEEN = "not seen"
SHOWN = 60
REASON_SHOWN = 300
EVENT_CHARS = 16 << 20


@click.group(cls=ErrorGroup)
def policy() -> None:
    """Show who may call what, and approve calls that wait.

    \b
    Example:
      toolscout policy test github__delete_repo --principal ci
      toolscout policy waiting
    """


@policy.command()
@click.argument("tools", nargs=-1, metavar="[TOOL]…")
@click.option("--principal", default="anonymous", help="Whose calls. Default: anonymous.")
@click.option(
    "--profile", help="The profile of the caller. Default: that of the principal's token, if any."
)
@click.option(
    "--arguments", default="{}", metavar="JSON", help="The arguments of the call. Default: none."
)
@inputs.config_option
@inputs.json_option
def test(
    tools: tuple[str, ...],
    principal: str,
    profile: str | None,
    arguments: str,
    path: Path | None,
    as_json: bool,
) -> None:
    """Show whether calls may be made, and which rule says so.

    Without TOOL, all tools that your servers offered last are tested.

    \b
    Example:
      toolscout policy test
      toolscout policy test --principal ci --json
    """
    config = inputs.read_servers(path)
    given = _read_arguments(arguments)
    token = config.gateway.tokens.get(principal)
    name = profile if profile is not None else token.profile if token else ""
    if name:
        config.gateway.find_profile(name)
    catalog = inputs.recall_tools(config)
    known = {tool.name: tool for tool in catalog}
    for tool in tools:
        if tool not in known:
            inputs.fail_unknown_tool(catalog, tool)
    rows = [
        _test_call(config, known[tool], principal, name, given) for tool in tools or sorted(known)
    ]
    if as_json:
        echo_json(rows)
    else:
        show(_render(rows))


@policy.command()
@inputs.config_option
@inputs.json_option
def waiting(path: Path | None, as_json: bool) -> None:
    """List the calls that wait for approval, and those that were decided lately.

    \b
    Example:
      toolscout policy waiting
    """
    from toolscout.gateway.pending import list_requests

    with inputs.open_known_store(inputs.read_servers(path)) as store:
        found = list_requests(store) if store is not None else {}
    if as_json:
        echo_json([{"id": key, **request.to_json()} for key, request in found.items()])
        return
    rows: list[list[Cell | str]] = [
        [
            (key, "bold"),
            request.principal or "anonymous",
            (to_one_line(request.tool, SHOWN), "cyan"),
            to_one_line(request.arguments, SHOWN),
            request.outcome or "waiting",
        ]
        for key, request in found.items()
    ]
    if rows:
        show([make_table(("id", "principal", "tool", "arguments", "state"), rows)])
    else:
        click.echo("No call waits for approval.", err=True)


@policy.command()
@click.argument("call")
@click.option(
    "--session", "is_session", is_flag=True, help="Approve all calls of the tool in that session."
)
@inputs.config_option
def approve(call: str, is_session: bool, path: Path | None) -> None:
    """Approve a call that waits, by the id that its refusal names.

    The model then has to make the same call again. The console has a page for this too.

    \b
    Example:
      toolscout policy approve 3f1c0a9be2d4771508c6a1f97d52e0b4
    """
    from toolscout.gateway.pending import SCOPES

    request = _decide(call, SCOPES[1] if is_session else SCOPES[0], path)
    whose = request.principal or "anonymous"
    times = "in this session" if is_session else "once"
    click.echo(f"{whose} may call {request.tool} {times}, with {request.arguments}.")


@policy.command()
@click.argument("call")
@inputs.config_option
def deny(call: str, path: Path | None) -> None:
    """Deny a call that waits, by the id that its refusal names.

    For a day, the same call is refused without asking you again, unless you approve it after all.

    \b
    Example:
      toolscout policy deny 3f1c0a9be2d47715
    """
    from toolscout.gateway.pending import DENIED

    request = _decide(call, DENIED, path)
    whose = request.principal or "anonymous"
    click.echo(f"{whose} may not call {request.tool} with {request.arguments}.")


def _decide(call: str, scope: str, path: Path | None) -> "ApprovalRequest":
    from toolscout.gateway.events import CallDecided
    from toolscout.gateway.pending import decide_request

    config = inputs.read_servers(path)
    with inputs.open_known_store(config) as store:
        if store is not None:
            request = decide_request(store, call, scope, inputs.find_user())
            if request is not None:
                with inputs.record_decisions(config, store) as note:
                    note(CallDecided(request=request))
                return request
    remedy = "`toolscout policy waiting` lists those that do."
    fail(f"No call {to_one_line(call, SHOWN)!r} waits. {remedy}", ExitCode.NOT_FOUND)


@click.command()
@inputs.flag_option("--install", help="Add the hook to your settings of Claude Code.")
@inputs.flag_option("--uninstall", help="Take it out of your settings again.")
@inputs.config_option
def hook(install: bool, uninstall: bool, path: Path | None) -> None:
    """Apply Claude Code's permission rules to your tools.

    Claude Code runs this before each call, with the call on stdin. The rules of its settings, such
    as mcp__github__delete_repo, then apply to the real tool and not only to tool_call.

    \b
    Example:
      toolscout hook --install
      toolscout hook --uninstall
    """
    machine = inputs.get_machine()
    file = permissions.get_settings_file(machine)
    if install or uninstall:
        is_changed = permissions.add_hook(file) if install else permissions.remove_hook(file)
        done = "Wrote" if is_changed else "Nothing to change in"
        click.echo(f"{done} {file}.")
        return
    event = _read_event(sys.stdin.read(EVENT_CHARS))
    if not permissions.find_called_names(event):
        return
    catalog = Catalog()
    if inputs.find_config_file(path).exists():
        catalog = inputs.recall_tools(inputs.read_servers(path))
    rules = permissions.read_rules(permissions.list_settings_files(machine))
    decided = permissions.decide(event, rules, catalog)
    if decided is not None:
        permission, reason = decided
        echo_json(
            {
                "hookSpecificOutput": {
                    "hookEventName": permissions.EVENT,
                    "permissionDecision": permission.value,
                    "permissionDecisionReason": to_one_line(reason, REASON_SHOWN),
                }
            }
        )


def _read_event(text: str) -> Json:
    try:
        event = json.loads(text)
    except (ValueError, RecursionError):
        event = None
    if not is_object(event):
        # Claude Code blocks the call at exit code 2, and shows the reason.
        raise UsageError("stdin has no call. Claude Code runs this command as a hook.")
    return event


def _read_arguments(text: str) -> Json:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        value = None
    if not is_object(value):
        raise UsageError('--arguments is no JSON object. Write for example \'{"repo": "a"}\'.')
    return value


def _test_call(config: Config, tool: Tool, principal: str, profile: str, arguments: Json) -> Json:
    options = config.gateway
    limits = options.profiles.get(profile)
    if limits is not None and not limits.admits(tool.server, tool.name, tool.effect):
        return {"tool": tool.name, "permission": NOT_SEEN, "because": f"profile {profile}"}
    found = CallerRules(options.rules, principal, profile).find(tool, arguments)
    name = found[0] if found else ""
    permission = found[1].permission if found else Permission.ALLOW
    return {
        "tool": tool.name,
        "effect": tool.effect.value,
        "permission": permission.value,
        "because": f"rule {name}" if name else "no rule matches",
    }


def _render(rows: list[Json]) -> Iterator[RenderableType]:
    cells: list[list[Cell | str]] = [
        [
            (row["tool"], "cyan"),
            str(row.get("effect", "")),
            (row["permission"], STYLES.get(row["permission"], "dim")),
            row["because"],
        ]
        for row in rows
    ]
    if cells:
        yield make_table(("tool", "effect", "permission", "because"), cells)
    else:
        yield style(("No tools are known yet. Run `toolscout servers test` first.", ""))
