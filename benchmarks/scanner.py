"""How many attacks the scanner finds, and how often it and redaction are wrong."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from toolscout.config.redaction import SecretKind, redact_json
from toolscout.evaluate.datasets import read_dataset
from toolscout.evaluate.quality import Table
from toolscout.lint.rules import Finding
from toolscout.lint.scanner import is_held, list_owners, scan_definition, scan_tool
from toolscout.tools import Tool

SAMPLES = Path(__file__).parents[1] / "tests" / "security"
KNOWN_ATTACKS = frozenset({("Reculi/weather-mcp-server", "get_alerts")})
"""Server and name of public tools that are attacks, by our reading of all that the scanner held."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scanned:
    """What the scanner did with one set of definitions."""

    name: str
    definitions: int
    held: int
    """Definitions with a finding that holds them."""
    attacks: int
    """How many of the definitions that were held are attacks."""
    findings: tuple[Finding, ...] = ()
    """Why definitions were held that are no attacks."""
    redacted: int = 0
    """Definitions in whose texts redaction sees a secret."""

    @property
    def wrong(self) -> float:
        """The share of definitions that were held although they are no attacks."""
        return (self.held - self.attacks) / max(1, self.definitions)


def measure_samples() -> list[Scanned]:
    """Scan our own attacks and our own harmless definitions, by set."""
    found: list[Scanned] = []
    for kind, file in (("attacks", "attacks.jsonl"), ("harmless", "benign.jsonl")):
        rows = _read_lines(file)
        for name in dict.fromkeys(row["set"] for row in rows):
            chosen = [row for row in rows if row["set"] == name]
            found.append(_scan_rows(f"{kind}, {name}", chosen, are_attacks=kind == "attacks"))
        found.append(_scan_rows(f"{kind}, all", rows, are_attacks=kind == "attacks"))
    return found


def measure_catalog(folder: Path) -> Scanned:
    """Scan the tools of a dataset as if one user had configured all of their servers."""
    tools = read_dataset(folder).tools
    owners = list_owners(tools)
    held = 0
    attacks = 0
    wrong: list[Finding] = []
    redacted = 0
    for tool in tools:
        findings = scan_tool(tool, owners)
        texts = [tool.description, tool.input_schema, tool.output_schema]
        redacted += redact_json(texts, tuple(SecretKind)) != texts
        if not is_held(findings):
            continue
        held += 1
        if (tool.server, tool.leaf) in KNOWN_ATTACKS:
            attacks += 1
        else:
            wrong.append(findings[0])
    return Scanned(
        name=folder.resolve().name,
        definitions=len(tools),
        held=held,
        attacks=attacks,
        findings=tuple(wrong),
        redacted=redacted,
    )


def tabulate_scanned(scanned: Sequence[Scanned]) -> Table:
    """Return a row for each set of definitions."""
    rows = [
        (
            one.name,
            f"{one.definitions:,}",
            f"{one.held:,}",
            f"{one.held / one.definitions:.3f}",
            f"{one.wrong:.3%}",
            f"{one.redacted:,}",
        )
        for one in scanned
    ]
    head = ("set", "definitions", "held", "share held", "held wrongly", "redacted")
    return Table(title="Scanner", head=head, rows=tuple(rows))


def _scan_rows(name: str, rows: Sequence[dict[str, Any]], *, are_attacks: bool) -> Scanned:
    everyone = [_list_neighbours(row) for row in rows]
    shared = list_owners(tool for tools in everyone for tool in tools)
    held: list[Finding] = []
    for row, tools in zip(rows, everyone, strict=True):
        findings = scan_definition(
            row["tool"],
            server=row["server"],
            instructions=row.get("instructions", ""),
            owners=list_owners(tools) if are_attacks else shared,
        )
        if is_held(findings):
            held.append(findings[0])
    return Scanned(
        name=name,
        definitions=len(rows),
        held=len(held),
        attacks=len(held) if are_attacks else 0,
        findings=() if are_attacks else tuple(held),
    )


def _list_neighbours(row: dict[str, Any]) -> list[Tool]:
    """Return the tool of a sample and those of other servers that are configured beside it."""
    named = [(row["server"], row["tool"]["name"]), *row.get("others", ())]
    return [Tool.define(leaf, server=server) for server, leaf in named]


def _read_lines(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (SAMPLES / name).read_text().splitlines()]
