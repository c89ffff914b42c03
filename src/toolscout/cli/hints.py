"""`toolscout hints`: see, write, switch off, export and import the hints of tools.

Hints are kept in the store that gateways use, and a running gateway notices changes. Only
`hints write` sends anything to another program, and only after it has said what and asked.
"""

import asyncio
import json
import os
import sys
import time
from collections import Counter
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from toolscout.catalog import Catalog
from toolscout.cli import ExitCode, Group, fail, inputs
from toolscout.cli.output import (
    Cell,
    Step,
    ask,
    echo_json,
    format_count,
    indent,
    make_table,
    show_bar,
    style,
    write_text,
)
from toolscout.cli.output import show as show_parts
from toolscout.config.file import Config
from toolscout.config.references import expand
from toolscout.errors import InvalidFile, InvalidHint, ToolscoutError
from toolscout.hints.hints import Hint, Hints, digest_definition
from toolscout.hints.requests import (
    SILENT_SECONDS,
    UNCLAIMED_SECONDS,
    Progress,
    WriteRequests,
)
from toolscout.hints.writing import (
    Batch,
    ChatEndpoint,
    Estimate,
    Written,
    accept_hint,
    build_prompt,
    read_hint_rows,
    split_batches,
    write_hints,
)
from toolscout.lint.scanner import find_attack
from toolscout.names import list_some, to_one_line
from toolscout.schemas import Json
from toolscout.settings import HintUse
from toolscout.tools import Tool

if TYPE_CHECKING:
    from rich.console import RenderableType

TEXT_SHOWN = 100
NAME_SHOWN = 80
REFUSED_SHOWN = 10
IMPORT_BYTES = 64 * 1024 * 1024
PERSON = "person"
LOOK_SECONDS = 0.5
NO_SAMPLER = (
    "No running gateway has a client that supports MCP sampling. Connect one, or use --endpoint or "
    "`toolscout hints prompt`."
)
NOTICED = "A running gateway notices within seconds."
NONE = "none"
OFF = "off"
STYLES = {"configured": "green", "written": "cyan", "shipped": "dim", NONE: "yellow", OFF: "red"}

limit_option = inputs.number_option(
    "--limit", type=click.IntRange(min=1), help="Take at most N tools.", show_default=False
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Opened:
    """The tools that a command works on, and their hints."""

    catalog: Catalog
    tools: Sequence[Tool]
    hints: Hints
    config: Config

    def find_all(self, names: Iterable[str]) -> list[Tool]:
        """Return the tools of some names, or end the command because one of them is none."""
        found: dict[str, Tool] = {}
        for name in names:
            meant = self.catalog.resolve(name) or inputs.fail_unknown_tool(self.catalog, name)
            if len(meant) > 1:
                shown = to_one_line(name, NAME_SHOWN)
                several = list_some([tool.name for tool in meant])
                fail(f"{shown!r} may mean {several}. Write the whole name.", ExitCode.NOT_FOUND)
            found[meant[0].name] = meant[0]
        return list(found.values())

    def label(self, tool: Tool) -> str:
        """Return where the hints of a tool come from, or that it has none."""
        found = [hint.source.value for hint in self.hints.find(tool)]
        if not found:
            return OFF if self.hints.is_off(tool) else NONE
        return ", ".join(found)


@contextmanager
def _open(
    paths: Sequence[Path], config_file: Path | None, *, writes: bool = False
) -> Generator[_Opened]:
    chosen = inputs.choose_catalog(paths, config_file)
    if chosen.settings.hints is HintUse.OFF:
        click.echo("The configuration has hints = 'off': searches use none of these.", err=True)
    with inputs.open_hints(chosen, writes=writes) as hints:
        tools = inputs.list_callable(chosen.catalog)
        yield _Opened(catalog=chosen.catalog, tools=tools, hints=hints, config=chosen.config)


@click.group(cls=Group, invoke_without_command=True)
@click.pass_context
def hints(ctx: click.Context) -> None:
    """See, write and switch off the hints that help to find tools.

    A hint is a line of words that people use for a tool and that its definition does not have.
    Searches use it; models and clients never read it. Without a command, lists all tools with
    where their hints come from.
    """
    if ctx.invoked_subcommand is None:
        ctx.invoke(list_)


@hints.command("list")
@inputs.catalog_option
@inputs.configured_option
@inputs.flag_option("--missing", help="List only tools without any hint, by name.")
@inputs.json_option
def list_(
    paths: tuple[Path, ...] = (),
    config_file: Path | None = None,
    missing: bool = False,
    as_json: bool = False,
) -> None:
    """List tools with their hints, and where these come from.

    \b
    Example:
      toolscout hints list
      toolscout hints list --missing
      toolscout hints list --catalog tools.json --json
    """
    with _open(paths, config_file) as opened:
        tools = opened.tools
        if missing:
            tools = opened.hints.list_missing(tools)
        counts = Counter(part for tool in tools for part in opened.label(tool).split(", "))
        if as_json:
            rows = [_to_json(opened, tool) for tool in tools]
            echo_json({"tools": rows, "counts": dict(counts)})
        elif missing:
            for tool in tools:
                click.echo(tool.name)
        else:
            show_parts(_render_list(opened, counts))


def _to_json(opened: _Opened, tool: Tool) -> Json:
    rows = [
        {"text": hint.text, "source": hint.source.value}
        | ({"by": hint.by, "at": hint.at} if hint.by else {})
        for hint in opened.hints.find(tool)
    ]
    return {
        "name": tool.name,
        "digest": digest_definition(tool),
        "off": opened.hints.is_off(tool),
        "hints": rows,
    }


def _render_list(opened: _Opened, counts: Mapping[str, int]) -> "Iterator[RenderableType]":
    rows: list[list[Cell | str]] = []
    for tool in opened.tools:
        label = opened.label(tool)
        text = "; ".join(hint.text for hint in opened.hints.find(tool))
        color = STYLES[label.partition(", ")[0]]
        rows.append([(tool.name, "cyan"), (label, color), to_one_line(text, TEXT_SHOWN)])
    if rows:
        is_terminal = sys.stdout.isatty()
        yield make_table(("tool", "from", "hint") if is_terminal else ("",) * 3, rows)
        yield ""
    listed = ", ".join(f"{counts[name]:,} {name}" for name in STYLES if counts.get(name))
    yield style((f"{format_count(len(opened.tools), 'tool')}: {listed or 'no hints'}.", "bold"))
    if counts.get(NONE):
        yield style(("Next: toolscout hints prompt --missing, or hints write.", "dim"))


@hints.command()
@click.argument(
    "names", nargs=-1, required=True, metavar="TOOL…", shell_complete=inputs.complete_tools
)
@inputs.catalog_option
@inputs.configured_option
def show(names: tuple[str, ...], paths: tuple[Path, ...], config_file: Path | None) -> None:
    """Show the hints of tools, where they come from and who wrote them.

    \b
    Example:
      toolscout hints show github__create_issue
    """
    with _open(paths, config_file) as opened:
        parts: list[RenderableType] = []
        for tool in opened.find_all(names):
            parts += ["", style((tool.name, "bold cyan"), (f"  {digest_definition(tool)}", "dim"))]
            parts += [indent(_render_hint(hint), 2) for hint in opened.hints.find(tool)]
            if opened.hints.is_off(tool):
                parts.append("  Switched off. Next: toolscout hints on " + tool.name)
            elif not opened.hints.find(tool):
                parts.append("  No hint.")
        show_parts(parts[1:])


def _render_hint(hint: Hint) -> "RenderableType":
    by = f" by {hint.by}, {hint.at}" if hint.by else ""
    return style((f"{hint.source.value}{by}: ", "dim"), (hint.text, ""))


@hints.command()
@click.argument("name", metavar="TOOL", shell_complete=inputs.complete_tools)
@click.argument("text", metavar="HINT")
@inputs.catalog_option
@inputs.configured_option
def add(name: str, text: str, paths: tuple[Path, ...], config_file: Path | None) -> None:
    """Write the hint of a tool yourself.

    It replaces the one that was written before, or the shipped one.

    \b
    Example:
      toolscout hints add books__list_invoices "late payments; who owes us money"
    """
    with _open(paths, config_file, writes=True) as opened:
        [tool] = opened.find_all([name])
        line = accept_hint(tool, text, find_attack)
        opened.hints.add({digest_definition(tool): line}, by=PERSON)
        is_off = opened.hints.is_off(tool)
    click.echo(f"Wrote the hint of {tool.name}. {NOTICED}")
    if is_off:
        click.echo(f"It is switched off. Next: toolscout hints on {tool.name}", err=True)


@hints.command()
@click.argument(
    "names", nargs=-1, required=True, metavar="TOOL…", shell_complete=inputs.complete_tools
)
@inputs.catalog_option
@inputs.configured_option
def remove(names: tuple[str, ...], paths: tuple[Path, ...], config_file: Path | None) -> None:
    """Delete the written hints of tools; shipped ones count again.

    \b
    Example:
      toolscout hints remove books__list_invoices
    """
    with _open(paths, config_file, writes=True) as opened:
        tools = opened.find_all(names)
        opened.hints.remove(map(digest_definition, tools))
    click.echo(f"Removed the written hints of {_name_all(tools)}. {NOTICED}")


@hints.command()
@click.argument("names", nargs=-1, metavar="[TOOL…]", shell_complete=inputs.complete_tools)
@inputs.catalog_option
@inputs.configured_option
def off(names: tuple[str, ...], paths: tuple[Path, ...], config_file: Path | None) -> None:
    """Switch off the hints of tools, or without a name all shipped ones.

    Written and shipped hints of the tool no longer count; one in the configuration still does.

    \b
    Example:
      toolscout hints off github__create_issue
      toolscout hints off
    """
    _set_off(names, paths, config_file, is_off=True)


@hints.command()
@click.argument("names", nargs=-1, metavar="[TOOL…]", shell_complete=inputs.complete_tools)
@inputs.catalog_option
@inputs.configured_option
def on(names: tuple[str, ...], paths: tuple[Path, ...], config_file: Path | None) -> None:
    """Switch the hints of tools on again, or without a name all shipped ones.

    \b
    Example:
      toolscout hints on github__create_issue
      toolscout hints on
    """
    _set_off(names, paths, config_file, is_off=False)


def _set_off(
    names: Sequence[str], paths: Sequence[Path], config_file: Path | None, *, is_off: bool
) -> None:
    state = "off" if is_off else "on"
    with _open(paths, config_file, writes=True) as opened:
        tools = opened.find_all(names)
        if names:
            opened.hints.set_off(map(digest_definition, tools), is_off)
        else:
            opened.hints.set_shipped_off(is_off)
    what = f"the hints of {_name_all(tools)}" if names else "all shipped hints"
    click.echo(f"Switched {state} {what}. {NOTICED}")


def _name_all(tools: Iterable[Tool]) -> str:
    return list_some([tool.name for tool in tools])


@hints.command()
@click.argument("file", type=inputs.FILE_OR_DASH, default="-", metavar="[FILE]")
@inputs.catalog_option
@inputs.configured_option
def export(file: Path, paths: tuple[Path, ...], config_file: Path | None) -> None:
    """Write the hints of all tools to a file, or to stdout.

    Each line is a JSON object with name, digest, hint and source.

    \b
    Example:
      toolscout hints export hints.jsonl
    """
    with _open(paths, config_file) as opened:
        rows = [
            {
                "name": tool.name,
                "digest": digest_definition(tool),
                "hint": hint.text,
                "source": hint.source.value,
            }
            for tool in opened.tools
            for hint in opened.hints.find(tool)
        ]
    text = "".join(f"{json.dumps(row, ensure_ascii=False)}\n" for row in rows)
    write_text(file, text, what=format_count(len(rows), "hint"))


@hints.command("import")
@click.argument("file", type=inputs.FILE_OR_DASH)
@inputs.catalog_option
@inputs.configured_option
@inputs.json_option
def import_(file: Path, paths: tuple[Path, ...], config_file: Path | None, as_json: bool) -> None:
    """Read hints from a file, or from stdin if it is '-'.

    Takes JSON lines with a name or a digest and a hint, as `hints export` writes them and as a
    model answers to `hints prompt`; text around them does not matter. Also takes lines of a name,
    a tab and a hint. All hints that fit are kept at once, and the others are named.

    \b
    Example:
      toolscout hints import answer.jsonl
      toolscout hints import hints.tsv --catalog tools.json
    """
    rows = read_hint_rows(_read_file(file))
    if not rows:
        remedy = 'Give lines such as {"name": "…", "hint": "…"}.'
        raise InvalidFile(str(file), "contains no hints", remedy=remedy)
    with _open(paths, config_file, writes=True) as opened:
        found = _match(opened, rows)
        opened.hints.add(found.texts, by="import")
    if as_json:
        echo_json(found.to_json())
    else:
        _report(found)
    if not found.texts and not found.known:
        raise click.exceptions.Exit(ExitCode.FAILED)


def _read_file(file: Path) -> str:
    try:
        if str(file) == "-":
            return sys.stdin.read(IMPORT_BYTES)
        if file.stat().st_size > IMPORT_BYTES:
            remedy = "Split it."
            raise InvalidFile(str(file), "is larger than 64 MiB", remedy=remedy)
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        problem = f"cannot be read ({error})"
        raise InvalidFile(str(file), problem, remedy="Name a readable text file.") from None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Matched:
    """What became of the rows of a file."""

    texts: dict[str, str]
    """New hints by digest."""
    known: list[str]
    """Tools that had the same hint before."""
    unmatched: list[str]
    """Names and digests of rows that mean no tool."""
    refused: dict[str, str]
    """Why the hints of tools were refused, by name."""

    def to_json(self) -> Json:
        """Return it for other programs."""
        return {
            "imported": len(self.texts),
            "known": self.known,
            "unmatched": self.unmatched,
            "refused": self.refused,
        }


def _match(opened: _Opened, rows: Iterable[Mapping[str, Any]]) -> _Matched:
    by_digest = {digest_definition(tool): tool for tool in reversed(opened.tools)}
    found = _Matched(texts={}, known=[], unmatched=[], refused={})
    for row in rows:
        digest, name, text = (str(row.get(key) or "") for key in ("digest", "name", "hint"))
        tool = by_digest.get(digest) or by_digest.get(name)
        if tool is None:
            meant = [t for t in opened.catalog.resolve(name) if t in opened.tools] if name else []
            tool = meant[0] if len(meant) == 1 else None
        if tool is None:
            found.unmatched.append(to_one_line(name or digest, NAME_SHOWN) or "(no name)")
            continue
        if text in [hint.text for hint in opened.hints.find(tool)]:
            found.known.append(tool.name)
            continue
        try:
            found.texts[digest_definition(tool)] = accept_hint(tool, text, find_attack)
        except InvalidHint as error:
            found.refused[tool.name] = error.problem
    return found


def _report(found: _Matched) -> None:
    click.echo(f"Imported {format_count(len(found.texts), 'hint')}. {NOTICED}")
    if found.known:
        click.echo(f"Known before: {len(found.known):,}.", err=True)
    if found.unmatched:
        click.echo(
            f"No tool matches {len(found.unmatched):,}: {list_some(found.unmatched)}.", err=True
        )
    _report_refused(found.refused)


def _report_refused(refused: Mapping[str, str]) -> None:
    for name, problem in list(refused.items())[:REFUSED_SHOWN]:
        click.echo(f"Refused: the hint of {name} {problem}.", err=True)
    if len(refused) > REFUSED_SHOWN:
        click.echo(f"Refused: {len(refused) - REFUSED_SHOWN:,} more.", err=True)


@hints.command()
@inputs.flag_option("--missing", help="Only tools without any hint.")
@limit_option
@inputs.catalog_option
@inputs.configured_option
def prompt(
    missing: bool, limit: int | None, paths: tuple[Path, ...], config_file: Path | None
) -> None:
    """Print a prompt that lets any model write hints.

    Give it to a model of your choice, save the answer and read it with `hints import`.

    \b
    Example:
      toolscout hints prompt --missing --limit 300 > prompt.md
      toolscout hints import answer.jsonl
    """
    with _open(paths, config_file) as opened:
        tools = opened.hints.list_missing(opened.tools) if missing else opened.tools
    if not tools:
        click.echo("Every tool has a hint.", err=True)
        return
    click.echo(build_prompt(tools[:limit]), nl=False)


@hints.command()
@click.option(
    "--endpoint",
    metavar="URL",
    help="The address of an OpenAI-compatible service, such as https://api.example.com/v1.",
)
@click.option("--model", metavar="NAME", help="The model of the service.")
@click.option(
    "--key",
    "reference",
    metavar="REFERENCE",
    default="",
    help="Where the key of the service is: env:NAME, file:PATH, keyring:NAME or command:….",
)
@inputs.flag_option("--client", help="Ask the model of a client that is connected to a gateway.")
@click.option(
    "--price",
    "prices",
    type=click.FloatRange(min=0),
    nargs=2,
    metavar="IN OUT",
    help="What a million tokens of input and of output cost, for the estimate.",
)
@limit_option
@inputs.flag_option("--yes", help="Do not ask before tools are sent.")
@inputs.catalog_option
@inputs.configured_option
def write(
    endpoint: str | None,
    model: str | None,
    reference: str,
    client: bool,
    prices: tuple[float, float] | None,
    limit: int | None,
    yes: bool,
    paths: tuple[Path, ...],
    config_file: Path | None,
) -> None:
    """Let a model write hints for the tools that have none.

    Sends the names, descriptions and parameter names of these tools to a service, in requests of
    up to 20 tools of one server, and keeps each answer as it arrives. If it is interrupted, the
    next run asks only for what is missing.

    With --client, a running gateway asks the model of a connected client that supports MCP
    sampling; the client may ask its user first.

    \b
    Example:
      toolscout hints write --endpoint https://api.example.com/v1 --model small --key env:API_KEY
      toolscout hints write --endpoint http://localhost:11434/v1 --model llama --limit 50 --yes
      toolscout hints write --client
    """
    if client == bool(endpoint) or bool(endpoint) != bool(model) or (client and paths):
        raise click.UsageError("Use --endpoint and --model, or --client with your own servers.")
    service = ChatEndpoint(endpoint or "", model or "", key=_read_key(reference)) if model else None
    with _open(paths, config_file, writes=True) as opened:
        missing = opened.hints.list_missing(opened.tools)[:limit]
        if not missing:
            click.echo("Every tool has a hint.")
            return
        batches = split_batches(missing)
        estimate = Estimate.from_batches(batches)
        target = endpoint or "the model of a client"
        click.echo(_describe_estimate(estimate, target, prices), err=True)
        if not yes and not ask("Send them?"):
            click.echo("Nothing was sent.", err=True)
            return
        with show_bar("Writing hints", estimate.tools) as step:
            if service is None:
                written = _write_by_client(opened, map(digest_definition, missing), step)
            else:
                written = _write_by_service(opened, batches, service, step)
    _report_refused(written.refused)
    click.echo(f"Wrote {format_count(written.count, 'hint')}. {NOTICED}")
    if not written.count:
        raise click.exceptions.Exit(ExitCode.FAILED)


def _write_by_service(
    opened: _Opened, batches: Sequence[Batch], service: ChatEndpoint, step: Step
) -> Written:
    answered = 0

    def move_on(written: Written) -> None:
        nonlocal answered
        step(written.answered - answered)
        answered = written.answered

    try:
        return asyncio.run(
            write_hints(
                opened.hints, batches, service.ask, find_attack=find_attack, on_done=move_on
            )
        )
    except ToolscoutError:
        again = "Run the command again to go on."
        click.echo(f"Stopped after {format_count(answered, 'tool')}. {again}", err=True)
        raise


def _write_by_client(opened: _Opened, digests: Iterable[str], step: Step) -> Written:
    """Leave a request in the store, and wait until a gateway has carried it out."""
    click.echo("Waiting for a gateway with a client that supports MCP sampling.", err=True)
    with inputs.open_store(opened.config) as store:
        requests = WriteRequests(store)
        id_ = requests.leave(digests)
        answered = 0
        try:
            while True:
                time.sleep(LOOK_SECONDS)
                request = requests.read(id_)
                if request is None:
                    fail(NO_SAMPLER, ExitCode.UPSTREAM)
                step(request.answered - answered)
                answered = request.answered
                silent = time.time() - request.touched
                if request.progress is Progress.WAITING and silent > UNCLAIMED_SECONDS:
                    fail(NO_SAMPLER, ExitCode.UPSTREAM)
                if request.progress is Progress.FAILED:
                    fail(f"{request.problem} {_describe_kept(request.written)}", ExitCode.UPSTREAM)
                if request.progress is Progress.DONE:
                    return Written(answered, request.written, dict(request.refused))
                if silent > SILENT_SECONDS:
                    problem = "The gateway that asks the client has said nothing for ten minutes."
                    fail(f"{problem} {_describe_kept(request.written)}", ExitCode.UPSTREAM)
        finally:
            requests.delete(id_)


def _describe_kept(count: int) -> str:
    return f"Kept {format_count(count, 'hint')}; run the command again to go on."


def _read_key(reference: str) -> str:
    """Return the key that a reference names; a key itself would stay in the shell's history."""
    if not reference:
        return ""
    text = reference if reference.startswith("${") else f"${{{reference}}}"
    return expand(text, os.environ, key="--key")


def _describe_estimate(estimate: Estimate, target: str, prices: tuple[float, float] | None) -> str:
    tools = format_count(estimate.tools, "tool")
    requests = format_count(estimate.requests, "request")
    text = (
        f"{tools} without hints go to {to_one_line(target, TEXT_SHOWN)} in {requests}: about "
        f"{estimate.input_tokens:,} tokens of input and {estimate.output_tokens:,} of output"
    )
    if prices is None:
        return f"{text}."
    return f"{text}, which cost about {estimate.compute_price(*prices):.2f}."
