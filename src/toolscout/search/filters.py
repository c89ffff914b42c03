"""Apply the filters of a query, and find tools by pattern or prefix.

Filters are masks over the places of a state. They are applied before ranking, so that a required
term also limits what the encoder can find (R6).
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import re2

from toolscout.errors import UnknownServer
from toolscout.names import find_near_names, fold_name
from toolscout.query import PATTERN_MEMORY_BYTES, Query
from toolscout.search.shard import Mask, State
from toolscout.search.text import split_words, stem
from toolscout.tools import Tool

PATTERN_TEXT_LIMIT = 4_000


def mask_admitted(state: State, query: Query, allowed: Callable[[Tool], bool] | None) -> Mask:
    """Return the places that a query admits; `state.open` itself if it excludes nothing."""
    mask = state.open
    if allowed is not None:
        mask = mask & state.mask_accepted(allowed)
    if query.servers:
        mask = mask & _mask_servers(state, query.servers, mask)
    if query.effects or query.kinds:
        mask = mask & state.mask_accepted(partial(_matches_filters, query))
    for required in query.required:
        mask = mask & _mask_term(state, required)
    for excluded in query.excluded:
        mask = mask & ~_mask_term(state, excluded)
    return mask


def _mask_servers(state: State, servers: Sequence[str], seen: Mask) -> Mask:
    """Return the places of some servers.

    A server without a visible tool counts as unknown and is not suggested as a near name.
    """
    mask = np.zeros(len(state.open), np.bool_)
    for server in servers:
        name = state.live_servers.get(fold_name(server))
        if name is None or not seen[state.servers[name]].any():
            known = [s for s in state.live_servers.values() if seen[state.servers[s]].any()]
            raise UnknownServer(server, find_near_names(server, known))
        mask[state.servers[name]] = True
    return mask


def _matches_filters(query: Query, tool: Tool) -> bool:
    if query.effects and tool.effect not in query.effects:
        return False
    return not query.kinds or tool.kind.casefold() in {kind.casefold() for kind in query.kinds}


def _mask_term(state: State, text: str) -> Mask:
    """Return the places of tools that have every word of a term in some field."""
    mask = state.open
    listed = split_words(text)
    for word in listed:
        number = state.find(stem(word))
        mask = mask & (state.mask_term(number) if number is not None else np.False_)
    if not listed:  # only symbols, such as an emoji, so search the texts themselves
        mask = state.mask_accepted(lambda tool: text in f"{tool.leaf} {tool.description}")
    return mask


def find_by_pattern(state: State, source: str, mask: Mask) -> list[int]:
    """Return the tools whose name matches, then those whose description does, sorted by name."""
    engine: Any = re2  # its module is only half typed
    options = engine.Options()
    options.max_mem = PATTERN_MEMORY_BYTES
    options.log_errors = False
    options.case_sensitive = False
    pattern = engine.compile(source, options)
    named: list[int] = []
    described: list[int] = []
    for place in state.sort_by_name(np.flatnonzero(mask)):
        tool = state.tools[place]
        if pattern.search(tool.name) or pattern.search(tool.leaf):
            named.append(place)
        elif pattern.search(tool.description[:PATTERN_TEXT_LIMIT]):
            described.append(place)
    return named + described


def find_by_prefix(state: State, prefix: str, mask: Mask) -> list[int]:
    """Return the tools whose exposed name or leaf has a prefix, sorted by name."""
    begin = prefix.casefold().removeprefix("mcp__")
    found = [
        place
        for place in np.flatnonzero(mask).tolist()
        if state.tools[place].name.casefold().startswith((begin, prefix.casefold()))
        or state.tools[place].leaf.casefold().startswith(prefix.casefold())
    ]
    return state.sort_by_name(found)
