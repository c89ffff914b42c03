"""`toolscout catalog lint`: what makes tools hard to find."""

import json
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from toolscout.cli.inputs import (
    CONFIG_ENDING,
    catalog_option,
    chosen_catalog,
    configured_option,
    index_of,
    read_all,
)

if TYPE_CHECKING:
    from rich.console import RenderableType

    from toolscout.audit import Finding
    from toolscout.catalog import Catalog

FOUND_SOMETHING = 1
SEVERITIES = ("info", "warning", "error")
STYLES = {"info": "dim", "warning": "yellow", "error": "bold red"}

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
    from toolscout import audit
    from toolscout.cli.output import bars

    probes = audit.read_probes(queries_file) if queries_file else []
    collisions: list[Finding] = []
    if paths and not config_file and paths[0].suffix != CONFIG_ENDING:
        catalog, collisions = audit.admitted(read_all(paths))
    else:
        catalog = chosen_catalog(paths, config_file)
    index = index_of(catalog)
    with bars() as progress:
        found = audit.findings(catalog, index, probes=probes, progress=progress)
    every = [finding for findings in found.values() for finding in findings]
    return catalog, audit.by_tool([*collisions, *every])


def _is_as_bad(finding: "Finding", severity: str) -> bool:
    return finding.severity.rank >= SEVERITIES.index(severity)


def _to_json(catalog: "Catalog", found: Found) -> dict[str, object]:
    from toolscout.audit import probed_tools

    listed = [finding for findings in found.values() for finding in findings]
    return {
        "tools": len(catalog),
        "tried": len(probed_tools(catalog.tools)),
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
        yield indented(styled((severity, STYLES[severity]), (f"  {finding.code}", "bold")), 2)
        yield indented(styled((f"{finding.message} ", ""), (finding.remedy, "dim")), 4)


def _lines(findings: "Sequence[Finding]") -> "Iterator[RenderableType]":
    """Yield one line for each finding, so that other programs can pick from them."""
    from toolscout.cli.output import styled

    for finding in findings:
        text = f"{finding.tool}: {finding.severity} {finding.code}: {finding.message}"
        yield styled((f"{text} {finding.remedy}", ""))


def _summary(catalog: "Catalog", found: Found) -> Iterator[str]:
    from toolscout.audit import probed_tools

    counts = Counter(f.severity.value for findings in found.values() for f in findings)
    told = ", ".join(f"{counts[severity]:,} {severity}" for severity in reversed(SEVERITIES))
    yield f"{len(catalog):,} tools: {told}."
    tried = len(probed_tools(catalog.tools))
    if tried < len(catalog):
        yield f"First sentences were tried of {tried:,} tools, evenly spread."
