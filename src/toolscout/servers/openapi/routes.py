"""How an operation is called: where each argument goes in a request, and what the body is made of.

A `Route` travels in its tool's `extras` as plain JSON, so that a stored tool can be called.
`arguments` makes routes, `requests` follows them.
"""

import dataclasses
import re
from dataclasses import dataclass, field
from typing import Any, Self
from urllib.parse import unquote

from toolscout.errors import CallFailed
from toolscout.schemas import Json
from toolscout.tools import Tool

EXTRA = "openapi"
"""The member of a tool's `extras` that says how the tool is called."""

VARIABLE = re.compile(r"\{([^{}/?#]+)\}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where in a request one argument goes, and how it is written there."""

    key: str
    """The argument's name in the tool's schema."""
    name: str
    where: str
    """`path`, `query`, `header` or `cookie`."""
    style: str
    explode: bool
    is_json: bool = False
    keeps_reserved: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Body:
    """What the body of a request is made of."""

    kind: str
    """`json`, `form`, `multipart` or `text`."""
    media: str
    required: bool
    key: str = ""
    """The argument that is the whole body; empty where `members` make it up."""
    members: dict[str, str] = field(default_factory=dict[str, str])
    """For each argument that is a member of the body, its name there."""
    styles: dict[str, list[Any]] = field(default_factory=dict[str, list[Any]])
    """For members of a form, style and explode."""
    files: list[str] = field(default_factory=list[str])


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """How one operation is called."""

    method: str
    path: str
    places: tuple[Place, ...] = ()
    body: Body | None = None

    @classmethod
    def of(cls, tool: Tool) -> Self:
        """Return the route that a tool carries."""
        row: Any = tool.extras.get(EXTRA)
        try:
            return cls(
                method=row["method"],
                path=row["path"],
                places=tuple(Place(**place) for place in row["places"]),
                body=Body(**row["body"]) if row["body"] else None,
            )
        except (KeyError, TypeError):
            raise CallFailed(tool.name, "its definition does not say how to call it") from None

    def to_json(self) -> Json:
        """Return the route as `of` reads it."""
        row = dataclasses.asdict(self)
        return {**row, "places": list(row["places"])}


def has_dots(path: str) -> bool:
    """Tell whether a path has a step that servers resolve, however it is encoded."""
    decoded = unquote(unquote(path.partition("?")[0]))
    return not {".", ".."}.isdisjoint(re.split(r"[/\\]", decoded))
