"""`toolscout search` and `toolscout try`: find tools, and see why.

Reads options, asks an `Index`, prints. A person at a terminal sees colour and tables that fit the
window; a pipe gets plain text, one line for each hit; `--json` gives one object for each query.
Whatever is heavy is imported when a command runs.
"""

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from toolscout.cli import ExitCode
from toolscout.cli.inputs import read_catalog, tools_option
from toolscout.cli.output import Answer, Look, show, watched_scout

if TYPE_CHECKING:
    from toolscout.scout import Scout
    from toolscout.search.hits import Hit

TRY_LIMIT = 3
TRY_QUERIES = (
    "open a pull request for my branch",
    "tell the team in chat that the release is out",
    "find the customer's order and refund the payment",
    "shedule a meting with Anna on Friday",
)


@click.command()
@click.argument("queries", nargs=-1, metavar="[QUERY…]")
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
@click.option("--interactive", "-i", is_flag=True, help="Search as you type; needs a terminal.")
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
    interactive: bool,
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
      toolscout search --interactive
    """
    if interactive:
        _check_interactive(queries, as_json)
    elif not queries:
        raise click.UsageError("Say what to search for, or add --interactive.")
    scout = watched_scout(read_catalog(paths), encoder)
    if interactive:
        from toolscout.cli.interactive import search_live

        search_live(scout, " ".join(queries), explain=explain)
        return
    answers = [_answer(scout, query, limit, show_all) for query in queries]
    if as_json:
        for answer in answers:
            click.echo(json.dumps(_to_json(answer), ensure_ascii=False))
    else:
        look = Look(terminal=sys.stdout.isatty())
        show(look.pages(answers, explain=explain))
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
    scout = watched_scout(catalog, "static")
    answers = [_answer(scout, query, TRY_LIMIT, False) for query in TRY_QUERIES]
    look = Look(terminal=sys.stdout.isatty())
    show(look.tour(answers, servers=len(catalog.servers)))


def _check_interactive(queries: tuple[str, ...], as_json: bool) -> None:
    from toolscout.cli.screens import why_not

    if as_json or len(queries) > 1:
        raise click.UsageError("--interactive takes at most one QUERY, and no --json.")
    reason = why_not()
    if reason:
        raise click.UsageError(f"--interactive {reason} Leave it out, and give a QUERY.")


def _answer(scout: "Scout", query: str, limit: int, show_all: bool) -> Answer:
    from toolscout.tokens import count_all_definition_tokens

    result = scout.index.search(query, limit)
    # What a model would read, in a conversation that begins here.
    reply = scout.session(query).search([query], limit=limit)
    return Answer(
        result=result,
        hits=result.hits if show_all else result.best,
        reply_tokens=reply.tokens,
        definition_tokens=count_all_definition_tokens(scout.catalog.tools),
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
        "signature": hit.tool.render_signature(),
        "summary": hit.tool.first_sentence,
        "why": {
            "matched": {field: list(words) for field, words in why.matched.items()},
            "shares": {signal: round(share, 4) for signal, share in why.shares.items()},
            "held_back": list(why.held_back),
        },
    }
