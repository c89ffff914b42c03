"""`Manifest`: the lists of one server, as it last gave them.

Definitions stay the server's own JSON; `listings` turns them into tools. Manifests are stored
between runs, so that a search finds the tools of a server that has not started yet (R86).
"""

import json
from dataclasses import dataclass, field
from typing import Any, cast

from toolscout.catalog import TOOL_KIND
from toolscout.schemas import Json, is_list, is_object
from toolscout.skills.skill import find_entry_problem

TOOL = TOOL_KIND
RESOURCE = "resource"
TEMPLATE = "template"
PROMPT = "prompt"

LAYOUT = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """The listings of one server."""

    tools: tuple[Json, ...] = ()
    resources: tuple[Json, ...] = ()
    templates: tuple[Json, ...] = ()
    prompts: tuple[Json, ...] = ()
    skills: tuple[Json, ...] = ()
    """Entries as SEP-2640 describes them."""
    problems: tuple[str, ...] = ()
    """Why some entries of the server are not here."""
    instructions: str = ""
    title: str = ""
    """What the server calls itself."""
    protocol: str = ""
    """The negotiated protocol version."""
    is_checked: bool = field(default=False, compare=False)
    """Whether it was compared with what is approved before it was stored."""
    whole: str = field(default="", compare=False)
    """A digest of the listings with all tools, if the tools are left out here."""


def manifest_from_bytes(data: bytes, key: str) -> Manifest | None:
    """Return a stored manifest, or None if it is unreadable or of another configuration."""
    try:
        row = cast("object", json.loads(data))
    except (ValueError, RecursionError):
        return None
    if not is_object(row) or row.get("layout") != LAYOUT or row.get("key") != key:
        return None

    def read_list(name: str) -> list[Any]:
        value: object = row.get(name)
        return value if is_list(value) else []

    return Manifest(
        tools=tuple(filter(is_object, read_list("tools"))),
        resources=tuple(filter(is_object, read_list("resources"))),
        templates=tuple(filter(is_object, read_list("templates"))),
        prompts=tuple(filter(is_object, read_list("prompts"))),
        skills=tuple(
            row for row in read_list("skills") if not find_entry_problem(row, any_name=True)
        ),
        problems=tuple(map(str, read_list("problems"))),
        instructions=str(row.get("instructions", "")),
        title=str(row.get("title", "")),
        protocol=str(row.get("protocol", "")),
        is_checked=row.get("is_checked") is True,
    )
