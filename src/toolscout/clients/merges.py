"""Servers of several files under one name each.

Servers that start the same under the same name are one; others that share a name are numbered.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

from toolscout.config.servers import ServerConfig
from toolscout.errors import InvalidConfig
from toolscout.names import one_line

MAX_SERVERS = 1_000
NAME_SHOWN = 60


def merge_servers(
    servers: Iterable[ServerConfig],
) -> tuple[tuple[ServerConfig, ...], tuple[str, ...]]:
    """Return servers under one name each, and a note for each that was renamed.

    Servers that start the same under the same name are one, the first.
    """
    kept: dict[str, ServerConfig] = {}
    notes: list[str] = []
    for server in servers:
        name = kept_name(server, kept)
        if name not in kept and name != server.name:
            shown = one_line(server.name, NAME_SHOWN)
            notes.append(f"There are several servers {shown!r}. One of them is {name!r} now.")
        kept.setdefault(name, replace(server, name=name))
    return tuple(kept.values()), tuple(notes)


def kept_name(server: ServerConfig, kept: Mapping[str, ServerConfig]) -> str:
    """Return the name under which a server is kept already, or may be."""
    name = server.name
    for number in range(2, MAX_SERVERS + 2):
        if name not in kept or kept[name].starts_like(server):
            break
        name = f"{server.name}-{number}"
    if name not in kept and len(kept) >= MAX_SERVERS:
        remedy = f"Configure at most {MAX_SERVERS:,}."
        raise InvalidConfig("servers", "are too many", remedy=remedy)
    return name


def merged_origins(
    own: Iterable[ServerConfig], others: Iterable[tuple[ServerConfig, Path]]
) -> Mapping[str, Path]:
    """Return the files of others' servers, under the names that `merge_servers` gives them."""
    kept = {server.name: server for server in own}
    origins: dict[str, Path] = {}
    for server, path in others:
        name = kept_name(server, kept)
        if name not in kept:
            kept[name], origins[name] = server, path
    return origins
