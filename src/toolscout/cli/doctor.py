"""`toolscout doctor`: what is wrong on this machine, and the command that mends it.

Prints what `toolscout.checkups` finds; starts no server unless asked and changes nothing.
"""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from toolscout.cli import ExitCode
from toolscout.cli.clients import CLIENTS
from toolscout.cli.configs import config_option, config_place, this_machine

if TYPE_CHECKING:
    from toolscout.cli.checks import Checkup

STYLES = {"ok": "green", "warn": "yellow", "fail": "red"}
TEXT_SHOWN = 400


@click.command()
@config_option
@click.option("--start", is_flag=True, help="Start every server too, as `servers test` does.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def doctor(path: Path | None, start: bool, as_json: bool) -> None:
    """Look for what is wrong: configuration, servers, cache, ports, versions, clients.

    Each line is ok, warn or fail, with what mends it. Ends with exit code 1 if something failed.

    \b
    Example:
      toolscout doctor
      toolscout doctor --start --json
    """
    found: list[Checkup] = []
    for one in _checkups(config_place(path), start=start):
        found.append(one)
        if not as_json:
            click.echo("\n".join(_lines(one)))
    failed = sum(one.state == "fail" for one in found)
    warned = sum(one.state == "warn" for one in found)
    if as_json:
        click.echo(json.dumps(_to_json(found, failed), ensure_ascii=False))
    else:
        click.echo(f"\n{len(found)} checked, {warned} to look at, {failed} failed.")
    if failed:
        raise click.exceptions.Exit(ExitCode.FAILED)


def _checkups(place: Path, *, start: bool) -> "Iterator[Checkup]":
    from toolscout.cli.checks_rounds import every_checkup

    names = {program: name for name, program in CLIENTS.items()}
    yield from every_checkup(this_machine(), place, names)
    if start and place.exists():
        yield from _started(place)


def _started(place: Path) -> "Iterator[Checkup]":
    from toolscout.cli.checks import fail, ok
    from toolscout.cli.servers import tried_servers
    from toolscout.config.file import read_config
    from toolscout.errors import UsageError

    try:
        config = read_config(place)
    except UsageError:
        return  # told already
    chosen = [server for server in config.servers if not server.disabled]
    for trial in asyncio.run(tried_servers(config, chosen)):
        name = f"start {trial.server}"
        if trial.is_ok:
            yield ok(name, f"{sum(trial.counts.values()):,} offered in {trial.seconds:.1f} s")
        else:
            yield fail(name, trial.problem, trial.remedy or "toolscout servers test")


def _lines(one: "Checkup") -> list[str]:
    from toolscout.names import one_line

    mark = click.style(f"{one.state:<4}", fg=STYLES[one.state], bold=one.state == "fail")
    name = one_line(one.name, 60)
    lines = [f"{mark}  {name}: {one_line(one.text, TEXT_SHOWN)}"]
    return lines + ([f"      -> {one_line(one.remedy, TEXT_SHOWN)}"] if one.remedy else [])


def _to_json(found: "list[Checkup]", failed: int) -> dict[str, object]:
    rows = [
        {"name": one.name, "state": str(one.state), "text": one.text, "remedy": one.remedy}
        for one in found
    ]
    return {"ok": not failed, "checks": rows}
