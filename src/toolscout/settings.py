"""`Settings`: how sessions hide, load and reply.

Takes keyword arguments, a mapping or a TOML file; gives one checked, frozen value. Unknown keys
and impossible values raise `InvalidConfig` with the nearest key or the range (R109).
What a caller may see or run is not set here: that is a `Policy`.
"""

import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Self

from toolscout.errors import InvalidConfig, InvalidFile
from toolscout.options import (
    FLAG,
    NAME_OR_NAMES,
    Options,
    ValueCheck,
    check_choice,
    check_keys,
    check_number,
    check_whole,
    declare,
    describe,
    prefix_keys,
    read_name_or_names,
    read_table,
)
from toolscout.schemas import is_object
from toolscout.tools import Tool

FILE_TABLES = ("include", "servers", "skills", "gateway", "sessions", "programs")
"""The tables of `toolscout.toml`; `config.file` reads the others."""
CORE_LEAVES = (
    "bash",
    "shell",
    "terminal",
    "run_command",
    "read",
    "read_file",
    "write",
    "write_file",
    "edit",
    "edit_file",
    "glob",
    "grep",
    "list_dir",
    "ls",
)
"""Names of a host's file and shell tools; without these, models misuse whatever else they have."""


class Mode(StrEnum):
    """How a found tool becomes callable."""

    BRIDGE = "bridge"
    """By `tool_call`; the tools of a request never change."""
    NATIVE = "native"
    """By its own name; found tools join the request's tools at the end."""
    REFERENCE = "reference"
    """By its own name; the provider receives all tools and shows those that replies refer to."""
    DEFINITIONS = "definitions"
    """By its own name; a search returns whole definitions (OpenAI's Responses API)."""


class Hiding(StrEnum):
    """Whether tools are kept out of the request."""

    ON = "on"
    OFF = "off"
    AUTO = "auto"
    """Only if there are more than `auto_tools`, or `auto_share` of the context window."""


class EncoderName(StrEnum):
    """How a search compares meaning."""

    STATIC = "static"
    """By built-in vectors."""
    ONNX = "onnx"
    """By a small model, which needs the `onnx` extra."""
    NONE = "none"
    """Not at all: only words count."""


class HintUse(StrEnum):
    """Which hints a search uses, besides those that are given with a tool."""

    SHIPPED = "shipped"
    """Those that come with toolscout, and those that were written here."""
    OWN = "own"
    """Those that were written here."""
    OFF = "off"
    """None."""


ENCODER_CHECK = check_choice(EncoderName)
HINTS_CHECK = check_choice(HintUse)


class Listing(StrEnum):
    """How `tool_search` says what exists."""

    NAMES = "names"
    """Servers, and names of tools while they fit."""
    SERVERS = "servers"
    OFF = "off"


class Scope(StrEnum):
    """How long a found tool stays loaded."""

    SESSION = "session"
    TURN = "turn"
    """Until the next user message."""


class Learning(StrEnum):
    """From whose past calls a search learns."""

    OWN = "own"
    """From those of the same principal."""
    SHARED = "shared"
    OFF = "off"


class ProgramEffects(StrEnum):
    """Which tools a program may call."""

    READ = "read"
    """Those that only read."""
    WRITE = "write"
    """Those that read or write."""
    ALL = "all"
    """All; a person approves each call of a tool that may destroy something."""


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Programs(Options):
    """Whether a model may run programs that call tools, and what these may use."""

    enabled: bool = declare(
        False,
        FLAG,
        "Offer `tool_run`, with which a model runs a short [program](programs.md) that calls "
        "tools. Needs the `programs` extra.",
    )
    effects: ProgramEffects = declare(
        ProgramEffects.READ,
        check_choice(ProgramEffects),
        "Tools that a program may call: those that only read, also those that write, or all. With "
        "`all`, a person approves each call of a tool that is destructive or whose effect is "
        "unknown.",
    )
    seconds: float = declare(
        30.0,
        check_number(0.1, 3_600),
        "How long a program may run, with its calls, but without the time that a person takes to "
        "answer.",
        unit="seconds",
    )
    memory_mb: int = declare(
        100, check_whole(10, 10_000), "Memory that a program may use.", unit="megabytes"
    )
    calls: int = declare(50, check_whole(1, 10_000), "Calls and searches that a program may make.")
    recursion: int = declare(
        200, check_whole(10, 1_000), "How deep functions of a program may call each other."
    )
    output_chars: int = declare(
        100_000,
        check_whole(100, 10_000_000),
        "Characters that a program may print; the rest is dropped, and the reply says so.",
        unit="characters",
    )
    workers: int = declare(
        8,
        check_whole(1, 1_000),
        "Programs that run at the same time, each in a separate process. One token gets at most "
        "half of them. Takes effect when the first program runs.",
    )


def _read_programs(key: str, value: object) -> Programs:
    if isinstance(value, Programs):
        return value
    with prefix_keys(key):
        return Programs.from_mapping(read_table("", value))


def _read_keywords(key: str, value: object) -> tuple[str, ...]:
    keywords = read_name_or_names(key, value)
    if not keywords:
        raise InvalidConfig(key, "is empty", remedy="Name at least one keyword.")
    return keywords


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Route(Options):
    """Words of the user that load a tool, or all tools of a server, before the model asks."""

    keywords: tuple[str, ...] = field(
        metadata=describe(
            ValueCheck(NAME_OR_NAMES.expected, _read_keywords),
            "Words in a user message that load the tool or server.",
        )
    )
    priority: int = declare(50, check_whole(0, 100), "Routes with a higher number load first.")
    prefer: bool = declare(True, FLAG, "False switches the route off without deleting it.")


def _read_routes(key: str, value: object) -> Mapping[str, Route]:
    routes: dict[str, Route] = {}
    for target, item in read_table(key, value).items():
        with prefix_keys(key, target):
            is_route = isinstance(item, Route)
            table = item if is_object(item) else {"keywords": item}
            routes[target] = item if is_route else Route.from_mapping(table)
    return routes


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Settings(Options):
    """How the sessions of one scout behave."""

    mode: Mode = declare(
        Mode.BRIDGE,
        check_choice(Mode),
        'How a found tool becomes callable; `auto` means `bridge` with `hiding = "auto"`.',
    )
    hiding: Hiding = declare(
        Hiding.ON,
        check_choice(Hiding),
        "Whether tools are kept out of the request; `auto` hides them only if there are many.",
    )
    auto_tools: int = declare(
        40, check_whole(0, 1_000_000), "With `auto`, hide tools if there are more than this."
    )
    auto_share: float = declare(
        10.0,
        check_number(0, 100),
        "With `auto`, hide tools whose definitions take more than this; 0 always hides them, "
        "100 never does (R93).",
        unit="percent of the context window",
    )
    context_window: int = declare(
        200_000, check_whole(1_000, 100_000_000), "The model's context window.", unit="tokens"
    )

    encoder: EncoderName = declare(
        EncoderName.STATIC,
        ENCODER_CHECK,
        "How a search compares meaning: by built-in vectors, by a small model (needs the `onnx` "
        "extra), or not at all. `[gateway]` takes it as well.",
        needs_restart=True,
    )
    hints: HintUse = declare(
        HintUse.SHIPPED,
        HINTS_CHECK,
        "Which [hints](hints.md) a search uses in addition to those that come with a tool: shipped "
        "and written ones, only written ones (`own`), or none. `[gateway]` takes it as well.",
        needs_restart=True,
    )
    limit: int = declare(5, check_whole(1, 20), "Maximum hits per query.")
    reply_tokens: int = declare(
        1_200, check_whole(200, 100_000), "Maximum length of a search reply.", unit="tokens"
    )
    schema_tokens: int = declare(
        500,
        check_whole(0, 100_000),
        "A search reply includes the definition of a clear winner up to this size.",
        unit="tokens",
    )
    describe_tokens: int = declare(
        8_000, check_whole(500, 1_000_000), "Maximum length of a description.", unit="tokens"
    )
    result_tokens: int = declare(
        2_000,
        check_whole(100, 1_000_000),
        "Longer results are cut and stored under a handle.",
        unit="tokens",
    )
    listing: Listing = declare(
        Listing.NAMES,
        check_choice(Listing),
        "What the description of `tool_search` says about hidden tools: their servers, and names "
        "of tools while they fit; only the servers; or nothing.",
    )
    listing_tokens: int = declare(
        1_400,
        check_whole(0, 1_000_000),
        "Maximum length of that list, of which names take at most 60 %. It never takes more than "
        "5 % of the context window.",
        unit="tokens",
    )
    fruitless: int = declare(
        3,
        check_whole(1, 100),
        "Searches in a row without a match before the reply says that no tool fits.",
    )

    scope: Scope = declare(
        Scope.SESSION, check_choice(Scope), "How long a found tool stays loaded."
    )
    loaded_tokens: int = declare(
        16_000,
        check_whole(0, 100_000_000),
        "Loaded definitions beyond this are evicted, least recently used first.",
        unit="tokens",
    )
    pins: tuple[str, ...] = declare(
        (),
        NAME_OR_NAMES,
        "Tools, servers or patterns with `*` that are always shown and never evicted.",
    )
    essential: tuple[str, ...] = declare(
        CORE_LEAVES,
        NAME_OR_NAMES,
        "Tools pinned by name if they belong to no server, as a host's own tools do.",
    )
    routes: Mapping[str, Route] = declare(
        {},
        ValueCheck("tables, see `[sessions.routes.TARGET]`", _read_routes),
        "Keywords that load tools, by tool, server or pattern with `*`.",
    )
    routed: int = declare(3, check_whole(1, 5), "Tools that one message may load by keywords.")
    suggest: bool = declare(
        False, FLAG, "Also load the tools that a user message seems to ask for."
    )
    suggestions: int = declare(
        3, check_whole(1, 5), "Tools that one message may load by suggestion."
    )

    calls_by_name: bool = declare(
        False, FLAG, "Allow calls by exact name to tools that no search has found."
    )
    shared: bool = declare(
        False,
        FLAG,
        "Several conversations share one session, as behind a gateway: replies repeat what "
        "another conversation may already have read.",
    )
    call_seconds: float = declare(
        60.0, check_number(0.001, 86_400), "How long a call may take.", unit="seconds"
    )
    learn_results: bool = declare(
        True,
        FLAG,
        "Learn the names and types of the fields in results, never values, and show them in "
        "`tool_describe` where a tool declares no output schema.",
    )
    learning: Learning = declare(
        Learning.OWN,
        check_choice(Learning),
        "Whether searches learn from past calls: `own` from those of the same token, `shared` from "
        "those of all tokens, `off` not at all.",
        needs_restart=True,
    )
    hash_queries: bool = declare(False, FLAG, "Store queries as hashes.")
    programs: Programs = declare(
        Programs(),
        ValueCheck("a table, see `[programs]`", _read_programs),
        "How models run programs; in a file, the table `[programs]`.",
    )
    hide: Callable[[Tool], bool] | None = None
    """Which tools to hide; by default all that are not pinned (R91)."""

    def __post_init__(self) -> None:
        if str(self.mode) == "auto":
            if str(self.hiding) == Hiding.OFF:
                problem = "is 'auto', but hiding is 'off'"
                raise InvalidConfig("mode", problem, remedy="Remove one of the two.")
            object.__setattr__(self, "mode", Mode.BRIDGE)
            object.__setattr__(self, "hiding", Hiding.AUTO)
        Options.__post_init__(self)

    @classmethod
    def from_file(cls, path: str | Path) -> Self:
        """Return the settings in the tables `[sessions]` and `[programs]` of a TOML file.

        The other tables of a `toolscout.toml` are left alone.
        """
        file = Path(path)
        try:
            tables = tomllib.loads(file.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise InvalidFile(
                str(file), f"cannot be read ({error})", remedy="Name a readable TOML file."
            ) from None
        check_keys(tables, list(FILE_TABLES))
        return cls.from_tables(tables)

    @classmethod
    def from_tables(cls, tables: Mapping[str, object]) -> Self:
        """Return the settings in the tables `[sessions]` and `[programs]` of a file."""
        programs = _read_programs("programs", tables.get("programs", {}))
        sessions = read_table("sessions", tables.get("sessions", {}))
        with prefix_keys("sessions"):
            if "programs" in sessions:
                remedy = "Write it as a table of its own, [programs]."
                raise InvalidConfig("programs", "is not an option of a file", remedy=remedy)
            return cls.from_mapping({**sessions, "programs": programs})
