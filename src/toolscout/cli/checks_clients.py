"""Clients that start toolscout: whether what they start is there."""

import shutil
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from toolscout.cli.checks import Checkup, fail, ok, warn
from toolscout.clients.discovery import OWN, Source
from toolscout.clients.rewrite import (
    is_own_entry,
    parsed,
    read_text,
    server_places,
    table_at,
)
from toolscout.config.documents import is_file
from toolscout.errors import UsageError
from toolscout.schemas import Json, is_list

REMEDY = "toolscout init --client {}"


def clients(
    sources: Iterable[Source], names: Mapping[str, str], env: Mapping[str, str], project: Path
) -> Iterator[Checkup]:
    """Look into the files of clients; `names` has what the command line calls each program."""
    seen: set[Path] = set()
    for source in sources:
        if source.program in ("", OWN) or source.path in seen or not is_file(source.path):
            continue
        seen.add(source.path)
        name = f"client {source.program}"
        remedy = REMEDY.format(names.get(source.program, ""))
        try:
            document = parsed(source.path, read_text(source.path))
        except UsageError as error:
            yield warn(name, str(error), f"Mend {source.path}.")
            continue
        entries = [
            entry
            for keys in server_places(document, project)
            for entry in table_at(document.tables, keys).values()
        ]
        own = [entry for entry in entries if is_own_entry(entry)]
        if own:
            yield from (_own(name, source, entry, env, remedy) for entry in own)
        elif entries:
            yield ok(name, f"{source.path} has servers of its own: {len(entries)} ({remedy})")


def _own(name: str, source: Source, entry: Json, env: Mapping[str, str], remedy: str) -> Checkup:
    command, args = entry.get("command"), entry.get("args")
    if not isinstance(command, str) or not command:
        return ok(name, f"{source.path} reaches toolscout by its address")
    if shutil.which(command, path=env.get("PATH", "")) is None:
        text = f"{source.path} starts {command[:200]}, which is not on this machine."
        return fail(name, text, remedy)
    config = _config_file(args if is_list(args) else [])
    if config is not None and not is_file(config):
        return fail(name, f"{source.path} names {config}, which does not exist.", remedy)
    return ok(name, f"{source.path} starts toolscout")


def _config_file(args: list[object]) -> Path | None:
    if "--config" not in args[:-1]:
        return None
    following = args[args.index("--config") + 1]
    return Path(following) if isinstance(following, str) else None
