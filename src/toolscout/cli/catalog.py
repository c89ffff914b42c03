"""`toolscout catalog`: import, export, compare and lint catalogues."""

import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import chain, groupby
from pathlib import Path

import click
from rich.console import RenderableType

from toolscout.catalog import Catalog
from toolscout.cli import ExitCode, Group, inputs
from toolscout.cli.output import (
    echo_json,
    format_count,
    indent,
    show,
    show_bars,
    style,
    write_text,
)
from toolscout.cli.search import build_scout
from toolscout.config.file import Config
from toolscout.config.servers import Transport
from toolscout.errors import InvalidFile, UnknownServer
from toolscout.files import Shape, export_tools, write_tools
from toolscout.lint.diff import Difference, compare_catalogs
from toolscout.lint.lint import build_catalog, lint_catalog, sample_tools
from toolscout.lint.probes import read_probes
from toolscout.lint.rules import Finding, Severity
from toolscout.names import find_near_names, make_exposed_name
from toolscout.tools import Tool

SEVERITY_STYLES = {"info": "dim", "warning": "yellow", "error": "bold red"}
CHANGE_STYLES = {"+": "green", "-": "red", "~": "yellow"}


@click.group(cls=Group)
def catalog() -> None:
    """Import, export, compare and lint catalogues of tools."""


@catalog.command("import")
@click.argument(
    "sources", nargs=-1, required=True, metavar="SOURCE…", shell_complete=inputs.complete_servers
)
@inputs.file_option(
    "-o",
    "--output",
    required=True,
    help="The .json or .jsonl file to write; add .gz to compress it.",
)
@click.option(
    "--server",
    "owner",
    default="",
    metavar="NAME",
    help="The server name for tools that have none.",
)
@inputs.config_option
def import_(sources: tuple[str, ...], output: Path, owner: str, path: Path | None) -> None:
    """Combine files and servers into one catalogue file.

    A SOURCE is a file (an MCP tools/list, OpenAI or Anthropic definitions, an OpenAPI 3 document)
    or the name of a configured server, which is started to list its tools, and stopped.

    \b
    Example:
      toolscout catalog import listing.json petstore.yaml -o tools.jsonl --server github
      toolscout catalog import github linear -o tools.json.gz
    """
    inputs.need_sdk()
    found = [tool for source in sources for tool in _read_source(source, owner, path)]
    combined = inputs.catalog_from_tools(found)
    write_tools(output, combined.tools)
    tools = format_count(len(combined), "tool")
    servers = format_count(len({tool.server for tool in combined.tools}), "server")
    click.echo(f"Wrote {tools} of {servers} to {output}.")


def _read_source(source: str, owner: str, config_file: Path | None) -> list[Tool]:
    place = Path(source)
    if place.is_dir():
        return inputs.read_all([place])
    if place.exists():
        return inputs.import_tools(place, owner)
    if place.suffix or "/" in source:
        raise InvalidFile(source, "does not exist", remedy="Name a file or a configured server.")
    known = inputs.fetch_tools(inputs.read_servers(config_file), source)
    return [tool for tool in known.tools if tool.server == source]


@catalog.command()
@inputs.catalog_option
@inputs.configured_option
@click.option(
    "--format",
    "shape",
    type=click.Choice([shape.value for shape in Shape]),
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
@inputs.file_option(
    "-o",
    "--output",
    type=inputs.FILE_OR_DASH,
    default="-",
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
    tools = inputs.choose_catalog(paths, config_file).catalog.tools
    known = {tool.server for tool in tools}
    for name in servers:
        if name not in known:
            near = find_near_names(name, known)
            raise UnknownServer(name, near, otherwise="Check the server's name.")
    chosen = [tool for tool in tools if not servers or tool.server in servers]
    write_text(output, export_tools(chosen, Shape(shape)), what=format_count(len(chosen), "tool"))


@catalog.command()
@click.argument("old", type=click.Path(path_type=Path, exists=True))
@click.argument("new", type=click.Path(path_type=Path, exists=True))
@inputs.json_option
@inputs.flag_option("--exit-code", "ends", help="Exit with code 1 if they differ.")
def diff(old: Path, new: Path, as_json: bool, ends: bool) -> None:
    """Show which tools were added, removed or changed between two catalogues.

    OLD and NEW are files or folders of tools, or configuration files (.toml).

    \b
    Example:
      toolscout catalog diff old.json new.json
      toolscout catalog diff old.json toolscout.toml --json --exit-code
    """
    before = inputs.read_catalog_or_config(old)
    after = inputs.read_catalog_or_config(new)
    found = compare_catalogs(before.tools, after.tools)
    if as_json:
        echo_json(found.to_json())
    else:
        show(_render_changes(found))
    if ends and found:
        raise click.exceptions.Exit(ExitCode.FAILED)


def _render_changes(found: Difference) -> Iterator[RenderableType]:
    for sign, names in (("+", found.added), ("-", found.removed)):
        yield from (style((f"{sign} {name}", CHANGE_STYLES[sign])) for name in names)
    for changed in found.changed:
        yield style((f"~ {changed.name}", CHANGE_STYLES["~"]))
        for detail in changed.changes:
            yield style((f"    {detail.what}: ", "dim"), (detail.text, ""))
    if found and sys.stdout.isatty():
        yield ""
    counts = (
        f"{len(found.added):,} added, {len(found.removed):,} removed, "
        f"{len(found.changed):,} changed, {found.unchanged:,} unchanged."
    )
    yield style((counts, "bold"))


@catalog.command()
@inputs.catalog_option
@inputs.configured_option
@inputs.file_option(
    "--queries",
    "queries_file",
    type=inputs.EXISTING_FILE,
    help='JSON lines of queries that should find a tool: {"query": "…", "tool": "name"}.',
)
@click.option(
    "--show",
    "least",
    type=click.Choice([severity.value for severity in Severity]),
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
@inputs.flag_option("--json", "as_json", help="Print all findings as JSON.")
def lint(
    paths: tuple[Path, ...],
    config_file: Path | None,
    queries_file: Path | None,
    least: str,
    worst: str,
    as_json: bool,
) -> None:
    """Report what makes tools hard to find or dangerous, and what to do about it.

    Scans definitions for attacks: hidden text, encoded text, instructions to the model, claims
    about other servers' tools, requests for secrets, and links that carry data.

    Reads the folders of skills again and reports those that cannot be used, such as one whose
    frontmatter is not YAML.

    Also finds descriptions that say nothing, vague or colliding names, near-duplicates, parameters
    without a description, unknown effects, overlong definitions, and queries that should find a
    tool but do not: its own first sentence, and those of --queries.

    \b
    Example:
      toolscout catalog lint --catalog tools.json
      toolscout catalog lint --queries queries.jsonl --fail-on warning --json
    """
    probes = read_probes(queries_file) if queries_file else []
    collisions: list[Finding] = []
    if paths and not config_file:
        catalog, collisions = build_catalog(inputs.read_all(paths))
        inputs.announce(catalog, paths)
    else:
        chosen = inputs.choose_catalog(paths, config_file)
        catalog = chosen.catalog
        collisions += _find_broken_skills(chosen.config)
    index = build_scout(catalog, "static").index
    with show_bars() as progress:
        by_tool = lint_catalog(
            catalog, index, probes=probes, collisions=collisions, progress=progress
        )
    findings = list(chain.from_iterable(by_tool.values()))
    if as_json:
        answer = {
            "tools": len(catalog),
            "tried": len(sample_tools(catalog.tools)),
            "counts": dict(Counter(finding.severity.value for finding in findings)),
            "findings": [finding.to_json() for finding in findings],
        }
        echo_json(answer)
    else:
        show(_render_findings(catalog, findings, Severity(least)))
    ranks = [finding.severity.rank for finding in findings]
    if worst != "never" and max(ranks, default=-1) >= Severity(worst).rank:
        raise click.exceptions.Exit(ExitCode.FAILED)


def _find_broken_skills(config: Config) -> Iterator[Finding]:
    """Yield what is wrong with the skills in the folders of a configuration."""
    from toolscout.servers.skills import open_folders

    for server in config.servers:
        if server.transport is not Transport.SKILLS or server.disabled:
            continue
        for problem in open_folders(server.resolve()).problems:
            severity = Severity.ERROR if problem.is_fatal else Severity.WARNING
            name = make_exposed_name(server.name, problem.name)
            outcome = " It is left out." if problem.is_fatal else ""
            message = f"{problem.message[:1].upper()}{problem.message[1:]}{outcome}"
            yield Finding(name, problem.code, severity, message, problem.remedy)


def _render_findings(
    catalog: Catalog, findings: Sequence[Finding], least: Severity
) -> Iterator[RenderableType]:
    shown = [finding for finding in findings if finding.severity.rank >= least.rank]
    for name, group in groupby(shown, lambda finding: finding.tool):
        if sys.stdout.isatty():
            yield style((name, "bold cyan"))
            for finding in group:
                severity = (finding.severity.value, SEVERITY_STYLES[finding.severity])
                yield indent(style(severity, (f"  {finding.code}", "bold")), 2)
                yield indent(style((f"{finding.message} ", ""), (finding.remedy, "dim")), 4)
        else:
            # One line for each finding, for other programs to read.
            for finding in group:
                text = f"{finding.tool}: {finding.severity} {finding.code}: {finding.message}"
                yield style((f"{text} {finding.remedy}", ""))
    counts = Counter(finding.severity.value for finding in findings)
    errors = format_count(counts["error"], "error")
    warnings = format_count(counts["warning"], "warning")
    tools = format_count(len(catalog), "tool")
    yield style((f"{tools}: {errors}, {warnings}, {counts['info']:,} info.", "bold"))
    tried = len(sample_tools(catalog.tools))
    if tried < len(catalog):
        yield style((f"Tried the first sentences of {tried:,} tools, evenly spread.", "bold"))
    if len(shown) < len(findings):
        hidden = len(findings) - len(shown)
        text = f"Less severe findings not shown: {hidden:,}. Add --show info to see them."
        yield style((text, "dim"))
