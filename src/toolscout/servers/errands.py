"""Errands: one call of one tool, for a person rather than a model.

Starts the tool's server, checks the arguments as for any other call, calls, and stops it again.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import cast

from mcp.shared.exceptions import MCPError

from toolscout.catalog import Catalog
from toolscout.config.servers import ServerConfig
from toolscout.errors import UsageError
from toolscout.schemas import Json, is_object, parameters
from toolscout.scout import Scout
from toolscout.servers.connection import call_failed
from toolscout.servers.offers import TOOL
from toolscout.servers.pool import Pool
from toolscout.sessions.replies import Reply
from toolscout.sessions.session import Store
from toolscout.settings import Settings
from toolscout.tools import Tool

WHOLE_RESULT_TOKENS = 1_000_000
LONGEST_SECONDS = 86_400.0
"""The pool has the server's own limits; the scout is to have none beside them."""


def arguments_from_words(tool: Tool, words: Sequence[str]) -> Json:
    """Return arguments given as one JSON object, or as `key=value` words.

    A value is text where the tool takes text; elsewhere it is read as JSON if it is some.
    """
    if len(words) == 1 and words[0].lstrip().startswith("{"):
        return _object(words[0])
    types = {p.name: p.type for p in parameters(tool.input_schema, max_depth=1)}
    found: Json = {}
    for word in words:
        key, sign, text = word.partition("=")
        if not sign or not key:
            raise UsageError(
                f"{word!r} is no argument. Write key=value, or all arguments as one JSON object."
            )
        found[key] = text if "string" in types.get(key, "any").split("|") else _value(text)
    return found


async def run(
    config: ServerConfig, store: Store, tool: Tool, arguments: Json, *, tokens: Path
) -> Reply:
    """Call a tool of a server; `tokens` is the folder with the tokens of servers."""
    if tool.kind != TOOL:
        raise UsageError(f"{tool.name!r} is a {tool.kind}, which cannot be called. Name a tool.")
    settings = Settings(
        calls_by_name=True, result_tokens=WHOLE_RESULT_TOKENS, call_seconds=LONGEST_SECONDS
    )
    async with Pool([config], Catalog(), store, tokens=tokens) as pool:
        scout = Scout(pool.catalog, encoder=None, settings=settings)
        session = scout.session("errand")
        return await scout.call(
            session, tool.name, arguments, approved=True, executor=_Runner(pool)
        )


class _Runner:
    """Runs tools in a pool."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    async def __call__(self, tool: Tool, arguments: Json) -> object:
        leaf = tool.extras.get("leaf", tool.leaf)
        params: Json = {"name": leaf, "arguments": arguments}
        try:
            return await self._pool.request(tool.server, "tools/call", params)
        except MCPError as error:
            raise call_failed(tool.name, error) from error


def _object(text: str) -> Json:
    try:
        value = cast("object", json.loads(text))
    except (ValueError, RecursionError) as error:
        raise UsageError(
            f"The arguments are not JSON ({error}). Quote them for your shell."
        ) from None
    if not is_object(value):
        raise UsageError('The arguments are no JSON object. Write them as \'{"key": "value"}\'.')
    return value


def _value(text: str) -> object:
    try:
        return cast("object", json.loads(text))
    except (ValueError, RecursionError):
        return text
