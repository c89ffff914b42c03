"""Build, check and extend the pack of hints that ships with toolscout.

    python -m training.pack build CATALOG HINTS… OUT
    python -m training.pack check PACK --catalog CATALOG
    python -m training.pack add PACK CATALOG HINTS…
    python -m training.pack export PACK
    python -m training.pack match PACK CATALOG

A catalogue is a folder with `tools.jsonl`, as `toolscout evaluate` reads it. Hints are lines of
JSON with the `id` of a tool and its `hint`. This module needs the package and nothing else.
"""

import gzip
import json
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import cast

import click
import numpy as np
from numpy.typing import NDArray

from toolscout.encoders.encoder import hash_file
from toolscout.errors import InvalidFile, ToolscoutError
from toolscout.evaluate.datasets import read_dataset
from toolscout.hints.hints import PACK_FILE, HintPack, PackEntry, split_name, split_words
from toolscout.lint.scanner import scan_tool
from toolscout.names import clean_text
from toolscout.tools import Tool

FEWEST_WORDS = 6
MOST_WORDS = 30
MOST_CHARS = 400
FEWEST_NEW = 3
"""A hint needs this many words that its tool's definition does not have."""
SHARED_WORDS = 3
"""Two tools of a server may share a name of the service, but no phrase of so many words."""
COMMON_IN = 25
"""A word in the definitions of more servers than this does not tell one service from another."""

_GENERIC_TEXT = (
    "admin; browse; by id; by name; clean up; cleanup; count; counts; detail; details; edit; "
    "filter; find id; first step; full details; general info; history; ids; info; list; list "
    "all; lists; look up; look up by id; lookup; manage data; metadata; name; names; overview; "
    "preview; progress; quick lookup; report; reporting; settings; status; summary; url; useful "
    "tool"
)
GENERIC = frozenset(_GENERIC_TEXT.split("; "))
"""Phrases that fit half of all tools."""
TOPICS = frozenset({"asks-for-secrets", "commands-model"})
"""Findings of the scanner that hints share with honest topics: passwords, prompts, automation."""
_NOT_A_SERVICE_TEXT = (
    "2 a agent agents ai an and api apis app assistant awslabs claude cli client com connector "
    "context custom demo dev extended for go http i in integration io is java js just kit lab "
    "labs lite local manager mcp model my need new node of official open org plus pro protocol "
    "py python remote rust sdk server servers service services simple smithery test the to tool "
    "tools ts typescript v2"
)
NOT_A_SERVICE = frozenset(_NOT_A_SERVICE_TEXT.split())
"""Words in names of servers that name no service, and owners of servers for many services."""
_TOKEN = re.compile(r";|[^\s;]+")


@click.group()
def main() -> None:
    """Build, check and extend the pack of hints."""


@main.command()
@click.argument("catalog", type=click.Path(exists=True, path_type=Path))
@click.argument("hints", nargs=-1, required=True, type=click.Path(exists=True, path_type=Path))
@click.argument("out", type=click.Path(path_type=Path))
def build(catalog: Path, hints: tuple[Path, ...], out: Path) -> None:
    """Write OUT with the HINTS for the tools of CATALOG; later files replace lines of earlier."""
    tools = read_tools(catalog)
    common = find_common_words(tools.values())
    save(out, make_entries(tools, read_hints(hints)), common)


@main.command()
@click.argument("file", metavar="PACK", type=click.Path(exists=True, path_type=Path))
@click.argument("catalog", type=click.Path(exists=True, path_type=Path))
@click.argument("hints", nargs=-1, required=True, type=click.Path(exists=True, path_type=Path))
def add(file: Path, catalog: Path, hints: tuple[Path, ...]) -> None:
    """Extend PACK with HINTS for the tools of CATALOG.

    A tool that is in the pack with the same definition and service gets the new hint.
    """
    old = HintPack(file)
    new = make_entries(read_tools(catalog), read_hints(hints))
    merged = {_identify(entry): entry for entry in old.list_entries()}
    merged |= {_identify(entry): entry for entry in new}
    by_service: dict[str, list[PackEntry]] = defaultdict(list)
    for entry in merged.values():
        by_service[entry.services].append(entry)
    save(file, [entry for group in by_service.values() for entry in group], old.common_words)


@main.command()
@click.argument("file", metavar="PACK", type=click.Path(exists=True, path_type=Path))
@click.option("--catalog", type=click.Path(exists=True, path_type=Path))
def check(file: Path, catalog: Path | None) -> None:
    """List the hints in PACK that break the rules; with a catalogue, also those that repeat."""
    hints = HintPack(file)
    entries = list(hints.list_entries())
    problems = list(find_problems(entry.hint for entry in entries))
    if catalog:
        tools = [(tool, hints.find(tool)) for tool in read_tools(catalog).values()]
        problems += find_repetitions([(tool, hint) for tool, hint in tools if hint])
    for problem, hint in problems:
        click.echo(f"{problem}: {hint}")
    for problem, count in Counter(problem for problem, _ in problems).most_common():
        click.echo(f"{count:6} {problem}", err=True)
    click.echo(f"{len(entries)} hints, {len(problems)} problems", err=True)
    sys.exit(1 if problems else 0)


@main.command()
@click.argument("file", metavar="PACK", type=click.Path(exists=True, path_type=Path))
def export(file: Path) -> None:
    """Print every hint in PACK as a line of JSON."""
    for entry in HintPack(file).list_entries():
        row = {
            "services": entry.services.split(),
            "leaf": f"{entry.leaf:08x}",
            "definition": f"{entry.definition:08x}",
            "hint": entry.hint,
        }
        click.echo(json.dumps(row, ensure_ascii=False))


@main.command("match")
@click.argument("file", metavar="PACK", type=click.Path(exists=True, path_type=Path))
@click.argument("catalog", type=click.Path(exists=True, path_type=Path))
@click.option("--server", help="Match as if every server had this name.")
@click.option("--show", is_flag=True, help="Print each tool that has a hint.")
def match_tools(file: Path, catalog: Path, server: str | None, show: bool) -> None:
    """Print how many tools of CATALOG get a hint from PACK, by server."""
    hints = HintPack(file)
    counts: dict[str, Counter[bool]] = defaultdict(Counter)
    for tool in read_tools(catalog).values():
        hint = hints.find(tool if server is None else replace(tool, server=server))
        counts[tool.server][bool(hint)] += 1
        if show and hint:
            click.echo(f"{tool.server}: {tool.leaf}: {hint}")
    for name, count in counts.items():
        click.echo(f"{count[True]:6} of {count.total():<6} {name}", err=True)
    found, total = sum(c[True] for c in counts.values()), sum(c.total() for c in counts.values())
    click.echo(f"{found} of {total} tools have a hint ({found / (total or 1):.1%})", err=True)


def read_tools(catalog: Path) -> dict[str, Tool]:
    """Return the tools of a catalogue by their ids."""
    dataset = read_dataset(catalog)
    return dict(zip(dataset.ids, dataset.tools, strict=True))


def read_hints(files: Iterable[Path]) -> dict[str, str]:
    """Return the hints of files by the ids of their tools."""
    hints: dict[str, str] = {}
    for file in files:
        opened = gzip.open if file.suffix == ".gz" else open
        with opened(file, "rt", encoding="utf-8") as lines:
            for number, line in enumerate(lines, 1):
                try:
                    row = cast("dict[str, str]", json.loads(line))
                    hints[row["id"]] = tidy(row["hint"])
                except (ValueError, KeyError, TypeError) as error:
                    raise InvalidFile(
                        str(file),
                        "is no hint",
                        line=number,
                        remedy='Write {"id": "…", "hint": "…"} on a line.',
                    ) from error
    return hints


def tidy(hint: str) -> str:
    """Return a hint in lower case, with single blanks and without empty phrases."""
    phrases = [" ".join(part.split()) for part in clean_text(hint, MOST_CHARS).lower().split(";")]
    return "; ".join(phrase for phrase in phrases if phrase)


def make_entries(tools: Mapping[str, Tool], hints: Mapping[str, str]) -> list[PackEntry]:
    """Return the entries of all tools that have a hint, server by server."""
    ordered = sorted(tools.items(), key=lambda item: item[1].server)
    return [
        PackEntry.from_tool(tool, hints[key], services=" ".join(list_service_words(tool.server)))
        for key, tool in ordered
        if hints.get(key)
    ]


def list_service_words(server: str) -> list[str]:
    """Return the words that name the service in `owner/repository`, or the owner if it has none."""
    own = [word for word in split_words(server.split("/")[-1]) if word not in NOT_A_SERVICE]
    words = own or [word for word in split_words(server) if word not in NOT_A_SERVICE]
    return sorted({*words, "".join(words)} - {""})


def find_common_words(tools: Iterable[Tool]) -> set[str]:
    """Return the service words that definitions of many servers have."""
    servers: dict[str, set[str]] = defaultdict(set)
    names: set[str] = set()
    for tool in tools:
        names.update(list_service_words(tool.server))
        for word in {*split_words(tool.description), *split_name(tool.leaf)}:
            servers[word].add(tool.server)
    return {word for word in names if len(servers[word]) > COMMON_IN}


def find_problems(hints: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Yield what is wrong with hints, whatever their tools are."""
    for hint in hints:
        for problem, has in _RULES.items():
            if has(hint):
                yield problem, hint


def find_repetitions(hints: Sequence[tuple[Tool, str]]) -> Iterator[tuple[str, str]]:
    """Yield hints that repeat their tool's definition or another tool of the same server."""
    shared: Counter[tuple[str, str]] = Counter()
    for tool, hint in hints:
        shared.update({(tool.server, phrase) for phrase in hint.split("; ")})
    for tool, hint in hints:
        where = f"{hint} ({tool.server}: {tool.leaf})"
        if count_new_words(tool, hint) < FEWEST_NEW:
            yield "repeats the definition", where
        for phrase in hint.split("; "):
            if len(phrase.split()) >= SHARED_WORDS and shared[tool.server, phrase] > 1:
                yield "has a phrase of another tool of its server", where
                break


def count_new_words(tool: Tool, hint: str) -> int:
    """Return how many words of a hint are not in its tool's definition."""
    properties = " ".join(tool.input_schema.get("properties") or {})
    known = {*split_words(tool.description), *split_name(tool.leaf), *split_name(properties)}
    return len(set(split_words(hint)) - known)


def _is_short(hint: str) -> bool:
    return len(hint.split()) < FEWEST_WORDS


def _is_long(hint: str) -> bool:
    return len(hint.split()) > MOST_WORDS or len(hint) >= MOST_CHARS


def _is_untidy(hint: str) -> bool:
    return tidy(hint) != hint


def _has_generic_end(hint: str) -> bool:
    return hint.split("; ")[-1] in GENERIC


def _commands_model(hint: str) -> bool:
    findings = scan_tool(Tool.define("hint", description=hint))
    return any(finding.code not in TOPICS for finding in findings)


_RULES: dict[str, Callable[[str], bool]] = {
    "is too short": _is_short,
    "is too long": _is_long,
    "has capitals, odd blanks or hidden characters": _is_untidy,
    "ends in a phrase that fits any tool": _has_generic_end,
    "reads like an instruction to a model": _commands_model,
}


def _identify(entry: PackEntry) -> tuple[int, int, str]:
    return entry.leaf, entry.definition, entry.services


def write_pack(file: Path, entries: Sequence[PackEntry], *, common: Collection[str]) -> None:
    """Write a pack. Entries of one server should be neighbours: the file is smaller then."""
    services = dict.fromkeys(entry.services for entry in entries)
    numbers = {line: number for number, line in enumerate(services)}
    hints = [_TOKEN.findall(entry.hint) for entry in entries]
    tokens = {token: n for n, token in enumerate(sorted({t for hint in hints for t in hint}))}
    # The steps between sorted bytes are small, which compresses better than the bytes.
    steps = [[b - a for a, b in pairwise([0, *entry.words])] for entry in entries]
    np.savez_compressed(
        file,
        leaves=np.array([entry.leaf for entry in entries], np.uint32),
        definitions=np.array([entry.definition for entry in entries], np.uint32),
        servers=np.array([numbers[entry.services] for entry in entries], np.uint16),
        words=np.array([step for row in steps for step in row], np.uint8),
        word_counts=np.array([len(row) for row in steps], np.uint8),
        tokens=np.array([tokens[t] for hint in hints for t in hint], np.uint16),
        token_counts=np.array([len(hint) for hint in hints], np.uint8),
        vocabulary=_to_bytes("\n".join(tokens)),
        services=_to_bytes("\n".join(services)),
        common=_to_bytes(" ".join(sorted(common))),
    )


def _to_bytes(text: str) -> NDArray[np.uint8]:
    return np.frombuffer(text.encode(), np.uint8)


def save(file: Path, entries: Sequence[PackEntry], common: Collection[str]) -> None:
    """Write a pack; if it is the one that ships, pin its checksum in the code."""
    write_pack(file, entries, common=common)
    digest = hash_file(file)
    if file.resolve() == PACK_FILE.resolve():
        module = PACK_FILE.with_name("hints.py")
        text = module.read_text(encoding="utf-8")
        pinned = re.sub(r'(?m)^PACK_SHA256 = ".*"$', f'PACK_SHA256 = "{digest}"', text)
        module.write_text(pinned, encoding="utf-8")
    click.echo(f"{len(entries)} hints, {file.stat().st_size} bytes, SHA-256 {digest}")


if __name__ == "__main__":
    try:
        main()
    except ToolscoutError as error:
        sys.exit(str(error))
