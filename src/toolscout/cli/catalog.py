"""`toolscout catalog`: import, export, compare and lint catalogues."""

import asyncio
import json
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path

import click
from rich.console import RenderableType

from toolscout.audit.diff import Difference, compare_catalogs
from toolscout.audit.lint import build_catalog, group_by_tool, lint_catalog, sample_tools
from toolscout.audit.probes import read_probes
from toolscout.audit.rules import Finding
from toolscout.catalog import Catalog
from toolscout.cli import Group
from toolscout.cli.completion import complete_servers
from toolscout.cli.inputs import (
    CONFIG_ENDING,
    build_index,
    catalog_option,
    choose_catalog,
    config_option,
    configured_option,
    find_server,
    get_tokens_folder,
    import_tools,
    need_sdk,
    open_store,
    read_all,
    read_catalog_or_config,
    read_servers,
)
from toolscout.cli.output import indent, show, show_bars, style
from toolscout.errors import InvalidFile, ServerUnavailable, UnknownServer
from toolscout.files import Shape, export_tools, write_tools
from toolscout.names import find_near_names
from toolscout.tools import Tool

FOUND_SOMETHING = 1
SEVERITIES = ("info", "warning", "error")
SEVERITY_STYLES = {"info": "dim", "warning": "yellow", "error": "bold red"}

Found = Mapping[str, Sequence[Finding]]


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
    help="The lowest severity to print.",
)
@click.option(
    "--fail-on",
    "worst",
    type=click.Choice(("warning", "error", "never")),
    default="error",
    show_default=True,
    help="Exit with code 1 if there is a finding of this severity.",
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
    """Report what makes tools hard to find, and how to fix it.

    Finds descriptions that say nothing, vague or colliding names, near-duplicates, parameters
    without a description, unknown effects, overlong definitions, and queries that should find a
    tool but do not: its own first sentence, and those of --queries.

    \b
    Example:
      toolscout catalog lint --catalog tools.json
      toolscout catalog lint --queries queries.jsonl --fail-on warning --json
    """
    catalog, found = _lint(paths, config_file, queries_file)
    if as_json:
        click.echo(json.dumps(_to_json(catalog, found), ensure_ascii=False))
    else:
        show(_render_findings(catalog, found, least))
    listed = [finding for findings in found.values() for finding in findings]
    if worst != "never" and any(_is_as_bad(finding, worst) for finding in listed):
        raise click.exceptions.Exit(FOUND_SOMETHING)


def _lint(
    paths: tuple[Path, ...], config_file: Path | None, queries_file: Path | None
) -> tuple[Catalog, Found]:
    probes = read_probes(queries_file) if queries_file else []
    collisions: list[Finding] = []
    if paths and not config_file and paths[0].suffix != CONFIG_ENDING:
        catalog, collisions = build_catalog(read_all(paths))
    else:
        catalog = choose_catalog(paths, config_file)
    index = build_index(catalog)
    with show_bars() as progress:
        found = lint_catalog(catalog, index, probes=probes, progress=progress)
    every = [finding for findings in found.values() for finding in findings]
    return catalog, group_by_tool([*collisions, *every])


def _is_as_bad(finding: Finding, severity: str) -> bool:
    return finding.severity.rank >= SEVERITIES.index(severity)


def _to_json(catalog: Catalog, found: Found) -> dict[str, object]:
    listed = [finding for findings in found.values() for finding in findings]
    return {
        "tools": len(catalog),
        "tried": len(sample_tools(catalog.tools)),
        "counts": dict(Counter(finding.severity.value for finding in listed)),
        "findings": [finding.to_json() for finding in listed],
    }


def _render_findings(catalog: Catalog, found: Found, least: str) -> Iterator[RenderableType]:
    shown = {name: [f for f in fs if _is_as_bad(f, least)] for name, fs in found.items()}
    for name, findings in shown.items():
        yield from _render_group(name, findings) if sys.stdout.isatty() else _render_lines(findings)
    yield from (style((text, "bold")) for text in _summarize(catalog, found))
    hidden = sum(map(len, found.values())) - sum(map(len, shown.values()))
    if hidden:
        text = f"Less severe findings not shown: {hidden:,}. Add --show info to see them."
        yield style((text, "dim"))


def _render_group(name: str, findings: Sequence[Finding]) -> Iterator[RenderableType]:
    if findings:
        yield style((name, "bold cyan"))
    for finding in findings:
        severity = finding.severity.value
        yield indent(style((severity, SEVERITY_STYLES[severity]), (f"  {finding.code}", "bold")), 2)
        yield indent(style((f"{finding.message} ", ""), (finding.remedy, "dim")), 4)


def _render_lines(findings: Sequence[Finding]) -> Iterator[RenderableType]:
    """Yield one line for each finding, for other programs to read."""

    for finding in findings:
        text = f"{finding.tool}: {finding.severity} {finding.code}: {finding.message}"
        yield style((f"{text} {finding.remedy}", ""))


def _summarize(catalog: Catalog, found: Found) -> Iterator[str]:
    counts = Counter(f.severity.value for findings in found.values() for f in findings)
    text = ", ".join(f"{counts[severity]:,} {severity}" for severity in reversed(SEVERITIES))
    yield f"{len(catalog):,} tools: {text}."
    tried = len(sample_tools(catalog.tools))
    if tried < len(catalog):
        yield f"Tried the first sentences of {tried:,} tools, evenly spread."


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
    help="The .json or .jsonl file to write; add .gz to compress it.",
)
@click.option(
    "--server",
    "owner",
    default="",
    metavar="NAME",
    help="The server name for tools that have none.",
)
@config_option
def import_(sources: tuple[str, ...], output: Path, owner: str, path: Path | None) -> None:
    """Combine files and servers into one catalogue file.

    A SOURCE is a file (an MCP tools/list, OpenAI or Anthropic definitions, an OpenAPI 3 document)
    or the name of a configured server, which is started to list its tools, and stopped.

    \b
    Example:
      toolscout catalog import listing.json petstore.yaml -o tools.jsonl --server github
      toolscout catalog import github linear -o tools.json.gz
    """

    need_sdk()
    found = dict.fromkeys(tool for source in sources for tool in _read_source(source, owner, path))
    by_server: dict[str, list[Tool]] = {}
    for tool in found:
        by_server.setdefault(tool.server, []).append(tool)
    tools = Catalog(by_server).tools  # raises if names collide
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
    help="The format to write: toolscout's own, or that of a client or provider.",
)
@click.option(
    "--server",
    "servers",
    multiple=True,
    metavar="NAME",
    help="Only tools of this server; may be repeated.",
)
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path, dir_okay=False, allow_dash=True),
    default="-",
    metavar="FILE",
    help="The file to write. Default: stdout.",
)
def export(
    paths: tuple[Path, ...],
    config_file: Path | None,
    shape: str,
    servers: tuple[str, ...],
    output: Path,
) -> None:
    """Write a catalogue in the format of another program.

    \b
    Example:
      toolscout catalog export --format anthropic --server github -o github.json
      toolscout catalog export --catalog tools.jsonl --format mcp
    """

    tools = choose_catalog(paths, config_file).tools
    chosen = [tool for tool in tools if not servers or tool.server in servers]
    _check_servers(servers, {tool.server for tool in tools})
    text = export_tools(chosen, Shape(shape))
    if str(output) == "-":
        click.echo(text, nl=False)
        return
    output.write_text(text, encoding="utf-8", errors="backslashreplace")
    click.echo(f"Wrote {len(chosen):,} tools to {output}.", err=True)


@catalog.command()
@click.argument("old", type=click.Path(path_type=Path, exists=True))
@click.argument("new", type=click.Path(path_type=Path, exists=True))
@json_option
@click.option("--exit-code", "ends", is_flag=True, help="Exit with code 1 if they differ.")
def diff(old: Path, new: Path, as_json: bool, ends: bool) -> None:
    """Show which tools were added, removed or changed between two catalogues.

    OLD and NEW are files or folders of tools, or configuration files (.toml).

    \b
    Example:
      toolscout catalog diff old.json new.json
      toolscout catalog diff old.json toolscout.toml --json --exit-code
    """

    found = compare_catalogs(
        read_catalog_or_config([old]).tools, read_catalog_or_config([new]).tools
    )
    if as_json:
        click.echo(json.dumps(found.to_json(), ensure_ascii=False))
    else:
        show(_render_changes(found))
    if ends and found:
        raise click.exceptions.Exit(DIFFERENT)


def _read_source(source: str, owner: str, config_file: Path | None) -> list[Tool]:
    place = Path(source)
    if place.is_dir():
        return read_all([place])
    if place.exists():
        return import_tools(place, owner)
    if place.suffix or "/" in source:
        raise InvalidFile(source, "does not exist", remedy="Name a file or a configured server.")
    return asyncio.run(_fetch_tools(source, config_file))


async def _fetch_tools(name: str, config_file: Path | None) -> list[Tool]:
    from toolscout.servers.connection import Delays
    from toolscout.servers.listings import recall_catalog
    from toolscout.servers.pool import Connector
    from toolscout.servers.probe import probe_server

    config = read_servers(config_file)
    server = find_server(config, name)
    with (
        show_bars() as progress,
        open_store(config) as store,
        closing(Connector(Delays(), get_tokens_folder(config))) as dial,
    ):
        progress(f"Asking {name} for its tools", 0, 0)
        trial = await probe_server(server, dial, store)
        if not trial.is_ok:
            raise ServerUnavailable(name, "failed", trial.problem, remedy=trial.remedy)
        tools = recall_catalog(config, store).tools
    return [tool for tool in tools if tool.server == name]


def _check_servers(wanted: Iterable[str], known: set[str]) -> None:
    for name in wanted:
        if name not in known:
            raise UnknownServer(
                name, find_near_names(name, known), otherwise="Check the server's name."
            )


def _render_changes(found: Difference) -> Iterator[RenderableType]:
    for sign, names in (("+", found.added), ("-", found.removed)):
        yield from (style((f"{sign} {name}", STYLES[sign])) for name in names)
    for changed in found.changed:
        yield style((f"~ {changed.name}", STYLES["~"]))
        for detail in changed.details:
            yield style((f"    {detail.what}: ", "dim"), (detail.text, ""))
    counts = (len(found.added), len(found.removed), len(found.changed), found.unchanged)
    added, removed, changed_, same = (f"{count:,}" for count in counts)
    text = f"{added} added, {removed} removed, {changed_} changed, {same} unchanged."
    if found and sys.stdout.isatty():
        yield ""
    yield style((text, "bold"))
