"""`toolscout catalog`: import, export, compare and lint catalogues.

`toolscout catalog lint`: what makes tools hard to find.
"""

import asyncio
import json
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import click

from toolscout.cli import Group
from toolscout.cli.completion import complete_servers
from toolscout.cli.inputs import (
    CONFIG_ENDING,
    catalog_at,
    catalog_option,
    chosen_catalog,
    config_option,
    configured_option,
    find_server,
    index_of,
    need_sdk,
    opened_store,
    read_all,
    read_servers,
    tokens_folder,
)
from toolscout.cli.output import bars

if TYPE_CHECKING:
    from rich.console import RenderableType

    from toolscout.audit.diff import Difference
    from toolscout.audit.rules import Finding
    from toolscout.catalog import Catalog
    from toolscout.tools import Tool


FOUND_SOMETHING = 1
SEVERITIES = ("info", "warning", "error")
SEVERITY_STYLES = {"info": "dim", "warning": "yellow", "error": "bold red"}

Found = Mapping[str, "Sequence[Finding]"]


@click.command()
@catalog_option
@configured_option
@click.option(
    "--queries",
    "queries_file",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    metavar="FILE",
    help='JSON lines of queries that should find a tool: {"query": "…", "tool": "name"}.',
)
@click.option(
    "--show",
    "least",
    type=click.Choice(SEVERITIES),
    default="warning",
    show_default=True,
    help="The mildest findings to print.",
)
@click.option(
    "--fail-on",
    "worst",
    type=click.Choice(("warning", "error", "never")),
    default="error",
    show_default=True,
    help="End with exit code 1 if there is a finding as bad as this.",
)
@click.option("--json", "as_json", is_flag=True, help="Print all findings as JSON.")
def lint(
    paths: tuple[Path, ...],
    config_file: Path | None,
    queries_file: Path | None,
    least: str,
    worst: str,
    as_json: bool,
) -> None:
    """Tell what makes tools hard to find, and what mends it.

    Looks for descriptions that say nothing, vague or colliding names, near-duplicates, parameters
    without a description, unknown effects, overlong definitions, and queries that should find a
    tool and do not: its own first sentence, and those of --queries.

    \b
    Example:
      toolscout catalog lint --catalog tools.json
      toolscout catalog lint --queries queries.jsonl --fail-on warning --json
    """
    catalog, found = _linted(paths, config_file, queries_file)
    if as_json:
        click.echo(json.dumps(_to_json(catalog, found), ensure_ascii=False))
    else:
        from toolscout.cli.output import show

        show(_pages(catalog, found, least))
    listed = [finding for findings in found.values() for finding in findings]
    if worst != "never" and any(_is_as_bad(finding, worst) for finding in listed):
        raise click.exceptions.Exit(FOUND_SOMETHING)


def _linted(
    paths: tuple[Path, ...], config_file: Path | None, queries_file: Path | None
) -> "tuple[Catalog, Found]":
    from toolscout.audit.lint import build_catalog, group_by_tool, lint_catalog
    from toolscout.audit.probes import read_probes
    from toolscout.cli.output import bars

    probes = read_probes(queries_file) if queries_file else []
    collisions: list[Finding] = []
    if paths and not config_file and paths[0].suffix != CONFIG_ENDING:
        catalog, collisions = build_catalog(read_all(paths))
    else:
        catalog = chosen_catalog(paths, config_file)
    index = index_of(catalog)
    with bars() as progress:
        found = lint_catalog(catalog, index, probes=probes, progress=progress)
    every = [finding for findings in found.values() for finding in findings]
    return catalog, group_by_tool([*collisions, *every])


def _is_as_bad(finding: "Finding", severity: str) -> bool:
    return finding.severity.rank >= SEVERITIES.index(severity)


def _to_json(catalog: "Catalog", found: Found) -> dict[str, object]:
    from toolscout.audit.lint import sample_tools

    listed = [finding for findings in found.values() for finding in findings]
    return {
        "tools": len(catalog),
        "tried": len(sample_tools(catalog.tools)),
        "counts": dict(Counter(finding.severity.value for finding in listed)),
        "findings": [finding.to_json() for finding in listed],
    }


def _pages(catalog: "Catalog", found: Found, least: str) -> "Iterator[RenderableType]":
    from toolscout.cli.output import styled

    shown = {name: [f for f in fs if _is_as_bad(f, least)] for name, fs in found.items()}
    for name, findings in shown.items():
        yield from _grouped(name, findings) if sys.stdout.isatty() else _lines(findings)
    yield from (styled((text, "bold")) for text in _summary(catalog, found))
    hidden = sum(map(len, found.values())) - sum(map(len, shown.values()))
    if hidden:
        told = f"Milder findings not shown: {hidden:,}. Add --show info to see them."
        yield styled((told, "dim"))


def _grouped(name: str, findings: "Sequence[Finding]") -> "Iterator[RenderableType]":
    from toolscout.cli.output import indented, styled

    if findings:
        yield styled((name, "bold cyan"))
    for finding in findings:
        severity = finding.severity.value
        yield indented(
            styled((severity, SEVERITY_STYLES[severity]), (f"  {finding.code}", "bold")), 2
        )
        yield indented(styled((f"{finding.message} ", ""), (finding.remedy, "dim")), 4)


def _lines(findings: "Sequence[Finding]") -> "Iterator[RenderableType]":
    """Yield one line for each finding, so that other programs can pick from them."""
    from toolscout.cli.output import styled

    for finding in findings:
        text = f"{finding.tool}: {finding.severity} {finding.code}: {finding.message}"
        yield styled((f"{text} {finding.remedy}", ""))


def _summary(catalog: "Catalog", found: Found) -> Iterator[str]:
    from toolscout.audit.lint import sample_tools

    counts = Counter(f.severity.value for findings in found.values() for f in findings)
    told = ", ".join(f"{counts[severity]:,} {severity}" for severity in reversed(SEVERITIES))
    yield f"{len(catalog):,} tools: {told}."
    tried = len(sample_tools(catalog.tools))
    if tried < len(catalog):
        yield f"First sentences were tried of {tried:,} tools, evenly spread."


DIFFERENT = 1
SHAPES = ("json", "jsonl", "mcp", "openai", "openai-responses", "anthropic")
STYLES = {"+": "green", "-": "red", "~": "yellow"}

json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


@click.group(cls=Group)
def catalog() -> None:
    """Import, export, compare and lint catalogues of tools."""


catalog.add_command(lint)


@catalog.command("import")
@click.argument(
    "sources", nargs=-1, required=True, metavar="SOURCE…", shell_complete=complete_servers
)
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path, dir_okay=False),
    required=True,
    metavar="FILE",
    help="The .json or .jsonl file to write, with .gz behind to compress it.",
)
@click.option(
    "--server",
    "owner",
    default="",
    metavar="NAME",
    help="The server of tools whose source names none.",
)
@config_option
def import_(sources: tuple[str, ...], output: Path, owner: str, path: Path | None) -> None:
    """Make one catalogue file of files and servers.

    A SOURCE is a file (an MCP tools/list, OpenAI or Anthropic definitions, an OpenAPI 3 document)
    or the name of a configured server, which is started, asked and stopped.

    \b
    Example:
      toolscout catalog import listing.json petstore.yaml -o tools.jsonl --server github
      toolscout catalog import github linear -o tools.json.gz
    """
    from toolscout.catalog import Catalog
    from toolscout.files import write_tools

    need_sdk()
    found = dict.fromkeys(tool for source in sources for tool in _read(source, owner, path))
    by_server: dict[str, list[Tool]] = {}
    for tool in found:
        by_server.setdefault(tool.server, []).append(tool)
    tools = Catalog(by_server).tools  # names that collide are a mistake here, not in a gateway
    write_tools(output, tools)
    click.echo(f"Wrote {len(tools):,} tools of {len(by_server):,} servers to {output}.")


@catalog.command()
@catalog_option
@configured_option
@click.option(
    "--format",
    "shape",
    type=click.Choice(SHAPES),
    default="json",
    show_default=True,
    help="Whose shape to write: toolscout's own, or what a client or provider takes.",
)
@click.option("--server", "servers", multiple=True, metavar="NAME", help="Only tools of these.")
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path, dir_okay=False, allow_dash=True),
    default="-",
    metavar="FILE",
    help="Where to write; stdout unless told.",
)
def export(
    paths: tuple[Path, ...],
    config_file: Path | None,
    shape: str,
    servers: tuple[str, ...],
    output: Path,
) -> None:
    """Write a catalogue in the shape that another program reads.

    \b
    Example:
      toolscout catalog export --format anthropic --server github -o github.json
      toolscout catalog export --catalog tools.jsonl --format mcp
    """
    from toolscout.files import Shape, exported

    tools = chosen_catalog(paths, config_file).tools
    chosen = [tool for tool in tools if not servers or tool.server in servers]
    _check_servers(servers, {tool.server for tool in tools})
    text = exported(chosen, Shape(shape))
    if str(output) == "-":
        click.echo(text, nl=False)
        return
    output.write_text(text, encoding="utf-8", errors="backslashreplace")
    click.echo(f"Wrote {len(chosen):,} tools to {output}.", err=True)


@catalog.command()
@click.argument("old", type=click.Path(path_type=Path, exists=True))
@click.argument("new", type=click.Path(path_type=Path, exists=True))
@json_option
@click.option("--exit-code", "ends", is_flag=True, help="End with exit code 1 if they differ.")
def diff(old: Path, new: Path, as_json: bool, ends: bool) -> None:
    """Show which tools came, went or changed between two catalogues, and what changed.

    OLD and NEW are files or folders of tools, or configuration files (.toml).

    \b
    Example:
      toolscout catalog diff old.json new.json
      toolscout catalog diff old.json toolscout.toml --json --exit-code
    """
    from toolscout.audit.diff import compare_catalogs

    found = compare_catalogs(catalog_at([old]).tools, catalog_at([new]).tools)
    if as_json:
        click.echo(json.dumps(found.to_json(), ensure_ascii=False))
    else:
        from toolscout.cli.output import show

        show(_changes(found))
    if ends and found:
        raise click.exceptions.Exit(DIFFERENT)


def _read(source: str, owner: str, config_file: Path | None) -> "list[Tool]":
    from toolscout.cli.inputs import import_tools, read_all
    from toolscout.errors import InvalidFile

    place = Path(source)
    if place.is_dir():
        return read_all([place])
    if place.exists():
        return import_tools(place, owner)
    if place.suffix or "/" in source:
        raise InvalidFile(source, "does not exist", remedy="Name a file or a configured server.")
    return asyncio.run(_offered(source, config_file))


async def _offered(name: str, config_file: Path | None) -> "list[Tool]":
    from toolscout.errors import ServerUnavailable
    from toolscout.servers.connection import Delays
    from toolscout.servers.listings import recall_catalog
    from toolscout.servers.pool import Connector
    from toolscout.servers.probe import probe_server

    config = read_servers(config_file)
    server = find_server(config, name)
    with (
        bars() as progress,
        opened_store(config) as store,
        closing(Connector(Delays(), tokens_folder(config))) as dial,
    ):
        progress(f"Asking {name} for its tools", 0, 0)
        trial = await probe_server(server, dial, store)
        if not trial.is_ok:
            raise ServerUnavailable(name, "failed", trial.problem, remedy=trial.remedy)
        tools = recall_catalog(config, store).tools
    return [tool for tool in tools if tool.server == name]


def _check_servers(wanted: Iterable[str], known: set[str]) -> None:
    from toolscout.errors import UnknownServer
    from toolscout.names import find_near_names

    for name in wanted:
        if name not in known:
            raise UnknownServer(
                name, find_near_names(name, known), otherwise="See what it holds first."
            )


def _changes(found: "Difference") -> "Iterator[RenderableType]":
    from toolscout.cli.output import styled

    for sign, names in (("+", found.added), ("-", found.removed)):
        yield from (styled((f"{sign} {name}", STYLES[sign])) for name in names)
    for changed in found.changed:
        yield styled((f"~ {changed.name}", STYLES["~"]))
        for detail in changed.details:
            yield styled((f"    {detail.what}: ", "dim"), (detail.text, ""))
    counts = (len(found.added), len(found.removed), len(found.changed), found.unchanged)
    added, removed, changed_, same = (f"{count:,}" for count in counts)
    told = f"{added} added, {removed} removed, {changed_} changed, {same} unchanged."
    if found and sys.stdout.isatty():
        yield ""
    yield styled((told, "bold"))
