"""`Settings`: how sessions hide, load and reply; every number has a default.

Takes keyword arguments, a mapping or a TOML file; gives one checked, frozen value. Unknown keys
and impossible values raise `InvalidConfig` with the nearest key or the range (R109).
What a caller may see or run is not set here: that is a `Policy`.
"""

import tomllib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields
from enum import StrEnum
from pathlib import Path
from typing import Any, Self, TypeVar, cast

from toolscout.errors import InvalidConfig, InvalidFile
from toolscout.names import find_near_names
from toolscout.schemas import is_object
from toolscout.tools import Tool

CORE_LEAVES = (
    *("bash", "shell", "terminal", "run_command"),
    *("read", "read_file", "write", "write_file", "edit", "edit_file"),
    *("glob", "grep", "list_dir", "ls"),
)
"""Names of a host's file and shell tools, without which models misuse whatever else they have."""

_Choice = TypeVar("_Choice", bound=StrEnum)


class Mode(StrEnum):
    """How a found tool becomes callable."""

    BRIDGE = "bridge"
    """By `tool_call`; the tools of a request never change."""
    NATIVE = "native"
    """By its own name; found tools join the request's tools at the end."""
    REFERENCE = "reference"
    """By its own name; the provider is told all tools and shows those that are referred to."""
    DEFINITIONS = "definitions"
    """By its own name; a search is answered with whole definitions (OpenAI's Responses API)."""


class Hiding(StrEnum):
    """Whether tools are kept out of the request."""

    ON = "on"
    OFF = "off"
    AUTO = "auto"
    """Only where they are many: above `auto_tools`, or `auto_share` of the context window."""


class Scope(StrEnum):
    """How long a found tool stays loaded."""

    SESSION = "session"
    TURN = "turn"
    """Until the next user message."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """Words of the user that load a tool, or all tools of a server, before the model asks."""

    keywords: tuple[str, ...]
    priority: int = 50
    """0 to 100; higher ones load first."""
    prefer: bool = True
    """False switches the route off without forgetting it."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "keywords", _texts("keywords", self.keywords))
        if not self.keywords:
            raise InvalidConfig("keywords", "is empty", remedy="Name at least one.")
        if not isinstance(cast("object", self.prefer), bool):
            raise InvalidConfig("prefer", f"is {self.prefer!r}", remedy="Use true or false.")
        _check_number("priority", self.priority, 0, 100)


def _no_routes() -> Mapping[str, Route]:
    return {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How sessions of one scout behave."""

    mode: Mode = Mode.BRIDGE
    """`auto` stands for `bridge` with `hiding` on `auto`."""
    hiding: Hiding = Hiding.ON
    auto_tools: int = 40
    auto_share: float = 10.0
    """Percent of the context window; 0 always hides, 100 never does (R93)."""
    context_window: int = 200_000
    """Tokens."""

    limit: int = 5
    reply_tokens: int = 1_200
    schema_tokens: int = 500
    """A clear winner's definition joins a search reply up to this size."""
    describe_tokens: int = 8_000
    result_tokens: int = 2_000
    """Longer results are cut and kept under a handle."""
    listing_tokens: int = 4_000
    listing_share: float = 5.0
    """Percent of the context window; the smaller of the two counts."""
    fruitless: int = 3
    """Searches in a row without a match until the reply says that no tool fits."""

    scope: Scope = Scope.SESSION
    loaded_tokens: int = 16_000
    """Definitions of loaded tools beyond this are evicted, least recently used first."""
    pins: tuple[str, ...] = ()
    """Tools, servers or patterns with `*` that are always shown and never evicted."""
    essential: tuple[str, ...] = CORE_LEAVES
    """Leaves pinned where a tool has no server, which is how a host's own tools come in."""
    routes: Mapping[str, Route] = field(default_factory=_no_routes)
    """By tool, server or pattern with `*`."""
    routed: int = 3
    """Tools that one message may load by keywords."""
    suggest: bool = False
    """Whether a user message also loads the tools that it seems to ask for."""
    suggestions: int = 3

    calls_by_name: bool = False
    """Whether a tool may be called by its exact name without having been found."""
    shared: bool = False
    """Whether several conversations share one session, as behind a gateway: then nothing that
    one of them was told counts as told."""
    call_seconds: float = 60.0
    hash_queries: bool = False
    """Whether queries are stored as hashes."""
    hide: Callable[[Tool], bool] | None = None
    """Which tools to hide; without it, all that are not pinned (R91)."""

    def __post_init__(self) -> None:
        if str(self.mode) == "auto":
            if str(self.hiding) == Hiding.OFF:
                raise InvalidConfig("mode", "is 'auto' beside hiding 'off'", remedy="Drop one.")
            object.__setattr__(self, "mode", Mode.BRIDGE)
            object.__setattr__(self, "hiding", Hiding.AUTO)
        for key, choices in (("mode", Mode), ("hiding", Hiding), ("scope", Scope)):
            object.__setattr__(self, key, _choice(key, getattr(self, key), choices))
        for key, (least, most) in RANGES.items():
            _check_number(key, getattr(self, key), least, most)
        for key in ("suggest", "calls_by_name", "shared", "hash_queries"):
            if not isinstance(getattr(self, key), bool):
                raise InvalidConfig(key, f"is {getattr(self, key)!r}", remedy="Use true or false.")
        for key in ("pins", "essential"):
            object.__setattr__(self, key, _texts(key, getattr(self, key)))
        object.__setattr__(self, "routes", _routes(self.routes))

    @classmethod
    def from_mapping(cls, values: Mapping[str, Any]) -> Self:
        """Return settings from plain values, as a file has them."""
        known = [item.name for item in fields(cls) if item.name != "hide"]
        for key in values:
            if key not in known:
                raise _unknown(key, known)
        return cls(**values)

    @classmethod
    def from_file(cls, path: str | Path) -> Self:
        """Return the settings in the `[sessions]` table of a TOML file."""
        file = Path(path)
        try:
            tables = tomllib.loads(file.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise InvalidFile(
                str(file), f"cannot be read ({error})", remedy="Name a readable TOML file."
            ) from None
        for key in tables:
            if key != "sessions":
                raise _unknown(key, ["sessions"])
        table = cast("object", tables.get("sessions", {}))
        if not is_object(table):
            raise InvalidConfig("sessions", f"is {table!r}", remedy="Write it as [sessions].")
        return cls.from_mapping(table)


RANGES: Mapping[str, tuple[float, float]] = {
    "auto_tools": (0, 1_000_000),
    "auto_share": (0, 100),
    "context_window": (1_000, 100_000_000),
    "limit": (1, 20),
    "reply_tokens": (200, 100_000),
    "schema_tokens": (0, 100_000),
    "describe_tokens": (500, 1_000_000),
    "result_tokens": (100, 1_000_000),
    "listing_tokens": (0, 1_000_000),
    "listing_share": (0, 100),
    "fruitless": (1, 100),
    "loaded_tokens": (0, 100_000_000),
    "routed": (1, 5),
    "suggestions": (1, 5),
    "call_seconds": (0.001, 86_400),
}
_WHOLE = frozenset(RANGES) - {"auto_share", "listing_share", "call_seconds"}


def _check_number(key: str, value: object, least: float, most: float) -> None:
    whole = key in _WHOLE or key == "priority"
    kind = int if whole else (int, float)
    if isinstance(value, bool) or not isinstance(value, kind) or not least <= value <= most:
        what = "whole number" if whole else "number"
        raise InvalidConfig(
            key, f"is {value!r}", remedy=f"Use a {what} from {least:g} to {most:g}."
        )


def _choice(key: str, value: object, choices: type[_Choice]) -> _Choice:
    try:
        return choices(str(value))
    except ValueError:
        raise InvalidConfig(
            key, f"is {value!r}", remedy=f"Use one of {', '.join(choices)}."
        ) from None


def _texts(key: str, values: object) -> tuple[str, ...]:
    if isinstance(values, str):
        values = (values,)
    if not isinstance(values, Iterable):
        raise InvalidConfig(key, f"is {values!r}", remedy="Use a list of strings.")
    texts = tuple(cast("Iterable[object]", values))
    if not all(isinstance(text, str) and text.strip() for text in texts):
        raise InvalidConfig(key, "holds what is no text", remedy="Use a list of strings.")
    return tuple(dict.fromkeys(cast("tuple[str, ...]", texts)))


def _routes(values: object) -> Mapping[str, Route]:
    if not isinstance(values, Mapping):
        raise InvalidConfig("routes", f"is {values!r}", remedy="Use a table by tool or server.")
    found: dict[str, Route] = {}
    for target, route in cast("Mapping[str, object]", values).items():
        if not isinstance(route, Route):
            route = _route(target, route)
        found[target] = route
    return found


def _route(target: str, value: object) -> Route:
    if not isinstance(value, Mapping):
        value = {"keywords": value}
    members = cast("Mapping[str, Any]", value)
    known = [item.name for item in fields(Route)]
    for key in members:
        if key not in known:
            raise _unknown(f"routes.{target}.{key}", [f"routes.{target}.{name}" for name in known])
    if "keywords" not in members:
        raise InvalidConfig(f"routes.{target}", "has no keywords", remedy="Name at least one.")
    return Route(**members)


def _unknown(key: str, known: list[str]) -> InvalidConfig:
    near = find_near_names(key, known, limit=1) or sorted(known)
    return InvalidConfig(key, "does not exist", remedy=f"Use {' or '.join(map(repr, near))}.")
