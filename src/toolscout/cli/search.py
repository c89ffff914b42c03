"""`toolscout search` and `toolscout try`: find tools, and see why.

Reads options, asks an `Index`, prints. A person at a terminal sees colour and tables that fit the
window; a pipe gets plain text, one line for each hit; `--json` gives one object for each query.
Whatever is heavy is imported when a command runs.
"""

import json
import sys
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from toolscout.cli import ExitCode
from toolscout.cli.catalogs import read_catalog, tools_option

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.text import Text

    from toolscout.catalog import Catalog
    from toolscout.scout import Scout
    from toolscout.search.hits import Hit, Result

MANY_TOOLS = 2_000
"""From here on, indexing takes long enough to say that it is going on."""
PLAIN_WIDTH = 100_000
BAR_WIDTH = 20
SMALL_SHARE = 0.15
"""A signal with less of the score than this is no reason worth a word."""
WORD_SIGNALS = ("words", "name")
"""Signals that the matched words already tell about."""
ASK_AGAIN = "Say what the tool should do to what, for example 'create a calendar event'."
STYLES = {"exact": "bold cyan", "strong": "bold green", "likely": "yellow", "weak": "red"}

TRY_LIMIT = 3
TRY_QUERIES = (
    "open a pull request for my branch",
    "tell the team in chat that the release is out",
    "find the customer's order and refund the payment",
    "shedule a meting with Anna on Friday",
)
TRY_NEXT = (
    ('toolscout search "refund an order" --explain', "why each tool was found"),
    ('toolscout search "read a file" --tools tools.json', "search your own tools"),
    ("toolscout search --help", "filters and JSON output"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """One query's result as it is shown."""

    result: "Result"
    hits: "tuple[Hit, ...]"
    reply_tokens: int
    definition_tokens: int
    tools: int

    @property
    def tokens_line(self) -> str:
        """What a model reads, against what it would read without a search."""
        return (
            f"This reply: {self.reply_tokens:,} tokens. "
            f"All {self.tools:,} definitions: {self.definition_tokens:,} tokens (estimated)."
        )


@click.command()
@click.argument("queries", nargs=-1, required=True, metavar="QUERY…")
@tools_option
@click.option(
    "--limit",
    type=click.IntRange(min=1),
    default=5,
    show_default=True,
    metavar="N",
    help="Show at most N tools for each query.",
)
@click.option("--all", "show_all", is_flag=True, help="Show also hits far behind the best.")
@click.option("--explain", is_flag=True, help="Say what speaks for and against each hit.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object for each query.")
@click.option(
    "--encoder",
    type=click.Choice(["static", "none", "onnx"]),
    default="static",
    show_default=True,
    help="Where meaning comes from: ready-made vectors, nowhere (words alone), or a small model.",
)
def search(
    queries: tuple[str, ...],
    paths: tuple[Path, ...],
    limit: int,
    show_all: bool,
    explain: bool,
    as_json: bool,
    encoder: str,
) -> None:
    """Find the tools that a QUERY asks for.

    A query is plain words. It may also hold select:name,name for known names, prefix* for names
    that start alike, +word or -word for what must or must not occur, server:name or effect:read
    to narrow it, or be a /regular expression/.

    \b
    Example:
      toolscout search "open a pull request" "email the team" --explain
      toolscout search "server:slack +channel create" --tools tools.json --json
    """
    catalog = read_catalog(paths)
    scout = _scout(catalog, encoder)
    answers = [_answer(scout, query, limit, show_all) for query in queries]
    if as_json:
        for answer in answers:
            click.echo(json.dumps(_to_json(answer), ensure_ascii=False))
    else:
        look = Look(terminal=sys.stdout.isatty())
        look.show(look.pages(answers, explain=explain))
    if not any(answer.result.hits for answer in answers):
        sys.exit(ExitCode.NOT_FOUND)


@click.command(name="try")
@click.option(
    "--gateway", is_flag=True, help="Show the gateway in front of real MCP servers instead."
)
def try_(gateway: bool) -> None:
    """See toolscout find tools in a demo catalogue; needs no setup and no network.

    \b
    Example:
      toolscout try
    """
    if gateway:
        import asyncio

        from toolscout.cli.tour import show_gateway

        asyncio.run(show_gateway())
        return
    catalog = read_catalog(())
    scout = _scout(catalog, "static")
    answers = [_answer(scout, query, TRY_LIMIT, False) for query in TRY_QUERIES]
    look = Look(terminal=sys.stdout.isatty())
    look.show(look.tour(answers, servers=len(catalog.servers)))


def _scout(catalog: "Catalog", encoder: str) -> "Scout":
    from toolscout.scout import Scout
    from toolscout.search.encoders import StaticEncoder, onnx_tier

    chosen = {"static": StaticEncoder, "onnx": onnx_tier}.get(encoder)
    with _told(f"Indexing {len(catalog):,} tools …", when=len(catalog) >= MANY_TOOLS):
        return Scout(catalog, encoder=chosen() if chosen else None)


@contextmanager
def _told(text: str, *, when: bool) -> Generator[None]:
    """Show what is going on, if a person is watching."""
    if not when or not sys.stderr.isatty():
        yield
        return
    from rich.console import Console

    with Console(stderr=True).status(text):
        yield


def _answer(scout: "Scout", query: str, limit: int, show_all: bool) -> Answer:
    from toolscout.tokens import all_definition_tokens

    result = scout.index.search(query, limit)
    # What a model would read, in a conversation that begins here.
    reply = scout.session(query).search([query], limit=limit)
    return Answer(
        result=result,
        hits=result.hits if show_all else result.best,
        reply_tokens=reply.tokens,
        definition_tokens=all_definition_tokens(scout.catalog.tools),
        tools=len(scout.catalog),
    )


def _to_json(answer: Answer) -> dict[str, Any]:
    from toolscout.tokens import ENCODING

    return {
        "query": answer.result.query.text,
        "hits": [_hit_to_json(hit) for hit in answer.hits],
        "missing": [{"name": m.name, "near": m.near} for m in answer.result.missing],
        "corrected": dict(answer.result.corrected),
        "tokens": {
            "reply": answer.reply_tokens,
            "definitions": answer.definition_tokens,
            "tools": answer.tools,
            "encoding": ENCODING,
            "estimated": True,
        },
    }


def _hit_to_json(hit: "Hit") -> dict[str, Any]:
    why = hit.why
    return {
        "name": hit.tool.name,
        "server": hit.tool.server,
        "score": hit.score,
        "confidence": hit.confidence.value,
        "signature": hit.tool.signature(),
        "summary": hit.tool.first_sentence(),
        "why": {
            "matched": {field: list(words) for field, words in why.matched.items()},
            "shares": {signal: round(share, 4) for signal, share in why.shares.items()},
            "held_back": list(why.held_back),
        },
    }


class Look:
    """How answers are laid out: in colour and within the window, or plain for a pipe.

    Both go the same way through rich; a pipe's lines are never wrapped, coloured or boxed.
    """

    def __init__(self, *, terminal: bool) -> None:
        self._terminal = terminal
        self._block = "\N{FULL BLOCK}" if terminal else "#"

    def show(self, parts: "Iterable[RenderableType]") -> None:
        """Print to stdout."""
        from rich.console import Console

        if self._terminal:
            console = Console(highlight=False)
            for part in parts:
                console.print(part)
            return
        text = StringIO()
        plain = Console(file=text, width=PLAIN_WIDTH, color_system=None, highlight=False)
        for part in parts:
            plain.print(part)
        click.echo("\n".join(line.rstrip() for line in text.getvalue().splitlines()))

    def pages(self, answers: Sequence[Answer], *, explain: bool) -> "Iterator[RenderableType]":
        """Yield the hits of each query, the reasons if asked for, and what else to know."""
        for place, answer in enumerate(answers):
            if place:
                yield ""
            if len(answers) > 1:
                yield _text((f"Query: {answer.result.query.text}", "bold"))
            if answer.hits:
                yield self._table(answer.hits)
            if explain:
                for rank, hit in enumerate(answer.hits, 1):
                    yield ""
                    yield from self._reasons(rank, hit)
            if answer.hits:
                yield ""
            yield from (_text((remark, "")) for remark in _remarks(answer))
            yield _text((answer.tokens_line, "dim"))

    def tour(self, answers: Sequence[Answer], *, servers: int) -> "Iterator[RenderableType]":
        """Yield the page of `toolscout try`."""
        tools = answers[0].tools
        yield _text((f"A demo catalogue: {tools} tools of {servers} servers. An agent asks:", ""))
        for answer in answers:
            yield ""
            yield _text((f"> {answer.result.query.text}", "bold"))
            yield from (_text((f"  {text}", "dim")) for text in _corrections(answer))
            for hit in answer.hits:
                name, sentence = hit.tool.name, hit.tool.first_sentence()
                yield _text((f"  {name}", "bold cyan"), (f"  {hit.confidence}", _style(hit)))
                yield _indented(_text((sentence, "")))
                yield _indented(_text((f"because: {_because(hit)}", "dim")))
        yield ""
        yield _text((_savings(answers), "bold"))
        yield ""
        yield "Type next:"
        width = max(len(command) for command, _ in TRY_NEXT)
        for command, purpose in TRY_NEXT:
            yield _text((f"  {command:<{width}}", "cyan"), (f"  {purpose}", ""))

    def _table(self, hits: "Sequence[Hit]") -> "RenderableType":
        from rich.table import Table

        table = Table(
            box=None, padding=(0, 2, 0, 0), show_header=self._terminal, header_style="dim"
        )
        table.add_column("#", justify="right", no_wrap=True)
        table.add_column("tool", overflow="fold")
        table.add_column("match", no_wrap=True)
        table.add_column("what it does, and its arguments")
        for rank, hit in enumerate(hits, 1):
            arguments = _text((hit.tool.signature().removeprefix(hit.tool.name), "dim"))
            sentence = _text((hit.tool.first_sentence(), ""))
            # A window is too narrow for one more column; a line of a pipe is a whole hit.
            rest = [sentence + "\n" + arguments] if self._terminal else [arguments, sentence]
            name = _text((hit.tool.name, "bold cyan"))
            table.add_row(str(rank), name, _text((hit.confidence, _style(hit))), *rest)
        return table

    def _reasons(self, rank: int, hit: "Hit") -> "Iterator[RenderableType]":
        from rich.table import Table

        why = hit.why
        yield _text(
            (f"{rank}  {hit.tool.name}", "bold cyan"),
            (f"  {hit.confidence}", _style(hit)),
            (f"  {hit.score:.0%} likely to be wanted", "dim"),
        )
        table = Table(box=None, padding=(0, 2, 0, 0), show_header=False)
        for signal, share in _falling(why.shares):
            bar = self._block * max(1, round(share * BAR_WIDTH))
            table.add_row(
                f"   {signal}", _text((f"{bar:<{BAR_WIDTH}}", "cyan"), (f"{share:5.0%}", ""))
            )
        matched = [f"{field}: {', '.join(words)}" for field, words in why.matched.items()]
        for label, found in (
            ("matched", "; ".join(matched)),
            ("held back", " ".join(why.held_back)),
        ):
            if found:
                table.add_row(f"   {label}", _text((found, "")))
        yield table


def _text(*parts: tuple[str, str]) -> "Text":
    """Return styled text; what looks like rich's markup in a tool's description stays as it is."""
    from rich.text import Text

    return Text.assemble(*parts)


def _indented(text: "Text") -> "RenderableType":
    from rich.padding import Padding

    return Padding(text, (0, 0, 0, 6), expand=False)


def _style(hit: "Hit") -> str:
    return STYLES[hit.confidence]


def _remarks(answer: Answer) -> Iterator[str]:
    result, shown = answer.result, len(answer.hits)
    yield from _corrections(answer)
    for missing in result.missing:
        near = f" Near: {', '.join(missing.near)}." if missing.near else ""
        yield f"There is no tool {missing.name!r}.{near}"
    if not result.hits and not result.missing:
        yield f"No tool found for {result.query.text!r}. {ASK_AGAIN}"
    elif shown and all(hit.confidence == "weak" for hit in answer.hits):
        yield f"Nothing fits well; these are guesses. {ASK_AGAIN}"
    if shown < len(result.hits):
        yield f"Weaker hits not shown: {len(result.hits) - shown}. Add --all to see them."
    lists = not (result.query.words or result.query.required)
    if lists and result.total > len(result.hits):
        yield f"Shown: {shown} of {result.total}. Raise --limit to see more."


def _corrections(answer: Answer) -> Iterator[str]:
    for typed, read in answer.result.corrected.items():
        yield f"Read {typed!r} as {read!r}."


def _because(hit: "Hit") -> str:
    """Return the reasons for a hit on one line; each word counts where it says most."""
    why = hit.why
    told: set[str] = set()
    reasons: list[str] = []
    for field, words in why.matched.items():
        fresh = [word for word in words if word not in told]
        told.update(fresh)
        if fresh:
            reasons.append(f"{', '.join(map(repr, fresh))} in its {field}")
    signals = [s for s, share in _falling(why.shares) if share >= SMALL_SHARE]
    reasons += [signal for signal in signals if signal not in WORD_SIGNALS]
    return "; ".join(reasons) or "a little of everything"


def _falling(shares: Mapping[str, float]) -> list[tuple[str, float]]:
    return sorted(((s, share) for s, share in shares.items() if share > 0), key=lambda p: -p[1])


def _savings(answers: Sequence[Answer]) -> str:
    from toolscout.tokens import definition_tokens

    # A model also reads the whole definition of the tool that it goes on to call.
    called = {answer.hits[0].tool for answer in answers if answer.hits}
    read = sum(answer.reply_tokens for answer in answers) + sum(map(definition_tokens, called))
    first = answers[0]
    return (
        f"These {len(answers)} replies and the full definitions of their first tools: {read:,} "
        f"tokens. All {first.tools:,} definitions: {first.definition_tokens:,} tokens. "
        f"Saved: {1 - read / first.definition_tokens:.0%} (estimated)."
    )
