"""`toolscout search` and `toolscout try`: find tools, and see why.

A terminal gets colour and tables that fit the window; a pipe gets plain text, one line for each
hit; `--json` gives one object for each query.
"""

import asyncio
import json
import os
import sys
import tempfile
import textwrap
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from toolscout.catalog import Catalog
from toolscout.cli import ExitCode, inputs
from toolscout.cli.output import (
    Answer,
    Step,
    echo_json,
    render_answers,
    render_tour,
    show,
    show_bar,
)
from toolscout.config.file import build_demo_config
from toolscout.demo import load_demo_catalog
from toolscout.encoders.encoder import Encoder, Floats, Kind, StaticEncoder
from toolscout.encoders.onnx import OnnxEncoder
from toolscout.errors import MissingExtra
from toolscout.hints.hints import Hints
from toolscout.schemas import Json
from toolscout.scout import Scout
from toolscout.sessions.usage import UsageLog
from toolscout.settings import EncoderName, HintUse, Settings
from toolscout.tokens import ENCODING, count_all_definition_tokens, count_tokens

if TYPE_CHECKING:
    import mcp.types
    from mcp.client import Client

MANY_TOOLS = {"static": 2_000, "none": 2_000, "onnx": 100}
"""From this many tools on, indexing with an encoder takes long enough to show a bar."""
TRY_LIMIT = 3
TRY_QUERIES = (
    "open a pull request for my branch",
    "tell the team in chat that the release is out",
    "find the customer's order and refund the payment",
    "shedule a meeting with Anna on Friday",
)
GATEWAY_QUERY = "tell the current time in another city"
GATEWAY_SERVER = "time"
GATEWAY_TOOL = "time__get_current_time"
GATEWAY_ARGUMENTS = {"timezone": "Asia/Tokyo"}
READY_TRIES = 600
READY_SECONDS = 0.1
LOG_LEVEL = "TOOLSCOUT_LOG"
CLIENT_LINES = (
    "toolscout init      # puts your MCP servers behind toolscout",
    '"toolscout": {"command": "toolscout", "args": ["serve"]}  # into your client\'s mcpServers',
)


@click.command()
@click.argument("queries", nargs=-1, required=True, metavar="QUERY…")
@inputs.catalog_option
@inputs.configured_option
@inputs.number_option("--limit", default=5, help="Maximum hits per query.")
@inputs.flag_option("--all", "show_all", help="Also show hits far behind the best.")
@inputs.flag_option("--explain", help="Explain why each tool was found.")
@inputs.flag_option("--json", "as_json", help="Print one JSON object per query.")
@click.option(
    "--encoder",
    type=click.Choice([name.value for name in EncoderName]),
    help="How to compare meaning: built-in vectors, a small model, or not at all (words only). "
    "Default: as the configuration says, otherwise static.",
)
def search(
    queries: tuple[str, ...],
    paths: tuple[Path, ...],
    config_file: Path | None,
    limit: int,
    show_all: bool,
    explain: bool,
    as_json: bool,
    encoder: str | None,
) -> None:
    """Find the tools that match a query.

    A query is plain words. It may also be select:name,name for known names, prefix* for names
    with a prefix or a /regular expression/, and may contain +word or -word for required or
    excluded words, and server:name or effect:read to narrow it down.

    \b
    Example:
      toolscout search "open a pull request" "email the team" --explain
      toolscout search "server:slack +channel create" --catalog tools.json --json
    """
    chosen = inputs.choose_catalog(paths, config_file)
    with inputs.open_hints(chosen) as hints:
        scout = build_scout(
            chosen.catalog, encoder or chosen.settings.encoder, hints, chosen.settings
        )
    if chosen.is_configured:
        with inputs.open_known_store(chosen.config) as store:
            UsageLog(store, time.time, feedback=scout.feedback)
    answers = [_search(scout, query, limit, show_all) for query in queries]
    if as_json:
        for answer in answers:
            echo_json(_to_json(answer))
    else:
        show(render_answers(answers, explain=explain))
    if not any(answer.result.hits for answer in answers):
        raise click.exceptions.Exit(ExitCode.NOT_FOUND)


@click.command(name="try")
@inputs.flag_option("--gateway", help="Show the gateway in front of real MCP servers instead.")
def try_(gateway: bool) -> None:
    """See toolscout find tools in a demo catalogue.

    Needs no setup and no network.

    \b
    Example:
      toolscout try
    """
    if gateway:
        inputs.need_sdk()
        with tempfile.TemporaryDirectory(prefix="toolscout-") as folder:
            servers = [server.name for server in build_demo_config(Path(folder)).servers]
            if GATEWAY_SERVER not in servers:
                raise MissingExtra("mcp-server-time", extra="demo")
            click.echo(f"A gateway in front of real MCP servers ({', '.join(servers)}).")
            asyncio.run(_show_gateway(folder))
        return
    catalog = load_demo_catalog()
    scout = build_scout(catalog, "static")
    answers = [_search(scout, query, TRY_LIMIT, False) for query in TRY_QUERIES]
    show(render_tour(answers, servers=len(catalog.servers)))


def _search(scout: Scout, query: str, limit: int, show_all: bool) -> Answer:
    result = scout.feedback.search(scout.index, query, limit)
    # The reply that a model would read in a new conversation.
    reply = scout.session(query).search([query], limit=limit)
    tools = inputs.list_callable(scout.catalog)
    return Answer(
        result=result,
        hits=result.hits if show_all else result.best,
        reply_tokens=reply.tokens,
        definition_tokens=count_all_definition_tokens(tools),
        tools=len(tools),
    )


def _to_json(answer: Answer) -> Json:
    hits = [
        {
            "name": hit.tool.name,
            "server": hit.tool.server,
            "score": hit.score,
            "confidence": hit.confidence.value,
            "signature": hit.tool.render_signature(),
            "summary": hit.tool.first_sentence,
            "why": {
                "matched": {field: list(words) for field, words in hit.why.matched.items()},
                "shares": {signal: round(share, 4) for signal, share in hit.why.shares.items()},
                "held_back": list(hit.why.held_back),
                "asked_before": list(hit.why.asked_before),
            },
        }
        for hit in answer.hits
    ]
    return {
        "query": answer.result.query.text,
        "hits": hits,
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


async def _show_gateway(folder: str) -> None:
    """Print what a client of the gateway sees, from start to stop."""
    async with _open_client(folder) as client:
        listed = (await client.list_tools()).tools
        click.echo(f"A client sees:\n  {', '.join(tool.name for tool in listed)}\n")
        reply = ""
        for _ in range(READY_TRIES):
            reply = _read_text(await client.call_tool("tool_search", {"queries": [GATEWAY_QUERY]}))
            if "onnecting" not in reply:
                break
            await asyncio.sleep(READY_SECONDS)
        # The description of `tool_search` lists the servers, now that their tools are known.
        listed = (await client.list_tools(cache_mode="refresh")).tools
        click.echo(f"> tool_search: {GATEWAY_QUERY}\n{textwrap.indent(reply, '  ')}\n")
        request = {"name": GATEWAY_TOOL, "arguments": GATEWAY_ARGUMENTS}
        called = await client.call_tool("tool_call", request)
        click.echo(f"> tool_call: {GATEWAY_TOOL} {json.dumps(GATEWAY_ARGUMENTS)}")
        click.echo(f"{textwrap.indent(_read_text(called), '  ')}\n")
    # The cache now knows all tools, so that the same gateway can list them at once.
    async with _open_client(folder, "--mode", "direct") as client:
        everything = (await client.list_tools()).tools
    before = f"All {len(everything)} definitions: {_count_cost(everything):,} tokens"
    after = f"{_count_cost(listed):,}, and {count_tokens(reply):,} for this search"
    click.echo(f"{before} in every request. With toolscout: {after} (estimated).")
    click.echo("\n  ".join(("\nTo set it up for your own servers:", *CLIENT_LINES)))


def _open_client(folder: str, *options: str) -> "Client":
    from mcp.client import Client
    from mcp.client.stdio import StdioServerParameters

    arguments = ["-m", "toolscout", "serve", "--demo", "--cache", folder, *options]
    # While servers start, the gateway logs each search, which would only clutter the tour.
    logged = {LOG_LEVEL: os.environ.get(LOG_LEVEL, "warning")}
    return Client(StdioServerParameters(command=sys.executable, args=arguments, env=logged))


def _read_text(result: Any) -> str:
    return "\n".join(block.text for block in result.content if block.type == "text")


def _count_cost(tools: "list[mcp.types.Tool]") -> int:
    dumped = [tool.model_dump(by_alias=True, mode="json", exclude_none=True) for tool in tools]
    return count_tokens(json.dumps(dumped))


def build_scout(
    catalog: Catalog, encoder: str, hints: Hints | None = None, settings: Settings | None = None
) -> Scout:
    """Return a scout over a catalogue; shows a bar if building its index takes a while.

    Of the settings, only those on hints and learning count.
    """
    chosen = settings or Settings()
    build = partial(
        Scout,
        catalog,
        settings=Settings(hints=chosen.hints, learning=chosen.learning),
        hints=None if chosen.hints is HintUse.OFF else hints,
    )
    count = len(catalog)
    is_slow = count >= MANY_TOOLS[encoder]
    with show_bar(f"Indexing {count:,} tools", count, when=is_slow) as step:
        if encoder == "none":
            return build(encoder=None)
        watched = StaticEncoder() if encoder == "static" else OnnxEncoder()
        return build(encoder=_WatchedEncoder(watched, step))


class _WatchedEncoder(Encoder):
    """Reports how many texts another encoder has encoded."""

    def __init__(self, encoder: Encoder, step: Step) -> None:
        self.name = encoder.name
        self.family = encoder.family
        self.leading = encoder.leading
        self.words = encoder.words
        self._encode = encoder.encode
        self._step = step

    def encode(self, texts: Sequence[str], *, kind: Kind) -> Floats:
        vectors = self._encode(texts, kind=kind)
        self._step(len(texts))
        return vectors
