"""`Manifest`: what a server offers, as it last said so.

Kept between runs, so that a search finds the tools of a server that has not been started (R86).
Definitions stay the server's own JSON; making tools of them is done on the way to the catalogue.
"""

import json
from dataclasses import asdict, dataclass
from typing import Any, cast

from toolscout.schemas import Json, is_list, is_object

MANIFEST_KIND = "manifest"
LAYOUT = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """The listings of one server."""

    tools: tuple[Json, ...] = ()
    resources: tuple[Json, ...] = ()
    templates: tuple[Json, ...] = ()
    prompts: tuple[Json, ...] = ()
    problems: tuple[str, ...] = ()
    """Why some of what the server listed is not here."""
    instructions: str = ""
    protocol: str = ""
    """The protocol version that was agreed upon."""

    def to_bytes(self, key: str) -> bytes:
        """Return JSON to be stored; `key` tells which configuration it belongs to."""
        return json.dumps({"layout": LAYOUT, "key": key, **asdict(self)}).encode()


def manifest_from_bytes(data: bytes, key: str) -> Manifest | None:
    """Return a stored manifest, or nothing if it is unreadable or of another configuration."""
    try:
        row = cast("object", json.loads(data))
    except (ValueError, RecursionError):
        return None
    if not is_object(row) or row.get("layout") != LAYOUT or row.get("key") != key:
        return None
    tools, resources, templates, prompts = (
        tuple(filter(is_object, _list(row, key)))
        for key in ("tools", "resources", "templates", "prompts")
    )
    return Manifest(
        tools=tools,
        resources=resources,
        templates=templates,
        prompts=prompts,
        problems=tuple(map(str, _list(row, "problems"))),
        instructions=str(row.get("instructions", "")),
        protocol=str(row.get("protocol", "")),
    )


def _list(row: Json, key: str) -> list[Any]:
    value: object = row.get(key)
    return value if is_list(value) else []
