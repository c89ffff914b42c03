"""`ServerConfig`: one server as the configuration describes it.

Its options say how it is started or reached, and which of its tools are used. Secrets stay
references until `resolve`, and appear in no `repr` and no error.
"""

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from enum import StrEnum
from fnmatch import fnmatchcase
from typing import Any, Self
from urllib.parse import urlsplit

from toolscout.config.redaction import SecretKind
from toolscout.config.references import (
    has_unread_secrets,
    is_literal,
    is_possible_value,
    list_values,
    resolve_options,
)
from toolscout.config.secrets import (
    MIN_SECRET_CHARS,
    TEXT_CHARS,
    SecretMask,
    is_secret_name,
    list_arg_secrets,
    list_url_secrets,
    mask_args,
    mask_url,
)
from toolscout.errors import InvalidConfig
from toolscout.names import to_error_text, to_one_line
from toolscout.options import (
    FLAG,
    NAMES,
    PATTERNS,
    SOME_PATTERNS,
    STRINGS,
    TEXT,
    TEXTS,
    Options,
    ValueCheck,
    check_choice,
    check_groups,
    check_keys,
    check_number,
    check_whole,
    declare,
    describe,
    join_keys,
    list_options,
    prefix_keys,
    quote_name,
    read_strings,
    read_table,
    read_text,
)
from toolscout.schemas import Json, find_problem
from toolscout.tools import Effect

EVERYTHING = ("*",)
MAX_NAME_CHARS = 100
QUOTE_CHARS = 300

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")


class Transport(StrEnum):
    """How a server is reached."""

    STDIO = "stdio"
    HTTP = "http"
    """Streamable HTTP."""
    SSE = "sse"
    OPENAPI = "openapi"
    """Not an MCP server but an HTTP API that an OpenAPI document describes."""
    SKILLS = "skills"
    """Not a server but folders of skills."""


class Grant(StrEnum):
    """How an authorization server is asked for a token."""

    AUTHORIZATION_CODE = "authorization_code"
    """A person logs in."""
    CLIENT_CREDENTIALS = "client_credentials"
    """The program identifies itself."""


class Changes(StrEnum):
    """What happens to a definition that differs from the one that was approved."""

    HOLD = "hold"
    """It waits until a person approves it."""
    ALLOW = "allow"
    """It is used at once, unless the scanner holds it."""
    TRUST = "trust"
    """It is used at once, whatever the scanner finds."""
    DENY = "deny"
    """It is not used, and nobody is asked."""


class Login(StrEnum):
    """Whose login the calls of a server use."""

    SHARED = "shared"
    """One login serves everybody."""
    USER = "user"
    """Each principal of the gateway logs in, and has a connection of its own."""


class Share(StrEnum):
    """Who shares one connection to a server."""

    ALL = "all"
    SESSION = "session"
    """Each client session has a connection of its own."""
    PRINCIPAL = "principal"
    """Each principal of the gateway has one; requests without a principal share one."""


class Isolation(StrEnum):
    """What a server runs in."""

    BWRAP = "bwrap"
    """Bubblewrap: namespaces of Linux, with the programs of this machine."""
    DOCKER = "docker"
    """A container, with the programs of an image."""


SKILL_PLACES: Mapping[str, tuple[str, ...]] = {
    "agents": ("~/.agents/skills",),
    "claude-code": ("~/.claude/skills",),
    "codex": ("~/.codex/skills", "~/.agents/skills"),
    "copilot": ("~/.copilot/skills",),
    "cursor": ("~/.cursor/skills",),
    "gemini": ("~/.gemini/skills",),
    "goose": ("~/.config/goose/skills",),
    "opencode": ("~/.config/opencode/skills",),
}
"""Where programs look for skills in the home folder of their user."""
READ_ONLY = ":ro"
"""The end of a folder that a server may not write to."""
LIMITS = {"memory_mb": 1 << 24, "open_files": 1 << 20, "processes": 1 << 20}
"""What of a server can be limited, and the largest limits."""

PROCESS = (Transport.STDIO,)
REMOTE = (Transport.HTTP, Transport.SSE, Transport.OPENAPI)
MCP = (Transport.STDIO, Transport.HTTP, Transport.SSE)


def _read_env(key: str, value: object) -> Mapping[str, str]:
    variables = read_strings(key, value)
    if any("=" in name for name in variables):
        raise InvalidConfig(key, "contains a name with '='", remedy="Write NAME = 'value'.")
    return variables


def _read_headers(key: str, value: object) -> Mapping[str, str]:
    headers = read_strings(key, value)
    for name, text in headers.items():
        where = f"{key}.{join_keys(name)}"
        if _CONTROL.search(text):
            problem = "contains control characters"
            raise InvalidConfig(where, problem, remedy="Use one line of plain text.")
        if not _HEADER_NAME.fullmatch(name):
            problem = "is not a valid header name"
            raise InvalidConfig(where, problem, remedy="Use letters, digits and dashes.")
    return headers


def _read_url(key: str, value: object) -> str:
    url = read_text(key, value)
    if not url or not is_literal(url):
        return url
    with suppress(ValueError):
        parts = urlsplit(url)
        if parts.scheme in ("http", "https") and parts.hostname and parts.port != 0:
            return url
    raise InvalidConfig(key, "is not a web address", remedy="Begin it with https:// or http://.")


def _read_renames(key: str, value: object) -> Mapping[str, str]:
    renames = read_strings(key, value)
    if not all(new.strip() for new in renames.values()):
        raise InvalidConfig(key, "contains an empty name", remedy="Remove it.")
    if len(set(renames.values())) < len(renames):
        problem = "gives two tools the same name"
        raise InvalidConfig(key, problem, remedy="Use a different name for each.")
    return renames


def _read_effects(key: str, value: object) -> Mapping[str, Effect]:
    check = check_choice(Effect)
    table = read_table(key, value)
    return {name: check.read(f"{key}.{join_keys(name)}", item) for name, item in table.items()}


def _read_redact(key: str, value: object) -> tuple[SecretKind, ...]:
    if isinstance(value, bool):
        return tuple(SecretKind) if value else ()
    check = check_choice(SecretKind)
    return tuple(check.read(key, item) for item in TEXTS.read(key, value))


def _read_changes(key: str, value: object) -> str:
    return "" if value == "" else check_choice(Changes).read(key, value)


def _read_login(key: str, value: object) -> str:
    return "" if value == "" else check_choice(Login).read(key, value)


_LOGIN = ValueCheck(check_choice(Login).expected, _read_login)


def _read_isolate(key: str, value: object) -> str:
    return "" if value == "" else check_choice(Isolation).read(key, value)


def _read_limits(key: str, value: object) -> Mapping[str, int]:
    table = read_table(key, value)
    with prefix_keys(key):
        check_keys(table, list(LIMITS))
        return {name: check_whole(1, LIMITS[name]).read(name, table[name]) for name in table}


_ISOLATE = ValueCheck(check_choice(Isolation).expected, _read_isolate)
_LIMITS = ValueCheck(f"a table with some of {', '.join(LIMITS)}", _read_limits)
_CHANGES = ValueCheck(check_choice(Changes).expected, _read_changes)
_URL = ValueCheck("a web address", _read_url)
_ENV = ValueCheck(STRINGS.expected, _read_env)
_HEADERS = ValueCheck(STRINGS.expected, _read_headers)
_RENAMES = ValueCheck(STRINGS.expected, _read_renames)
_REDACT = ValueCheck(f"true, false or a list of {', '.join(SecretKind)}", _read_redact)
_EFFECTS = ValueCheck(f"a table of patterns, each with one of {', '.join(Effect)}", _read_effects)


def _read_arguments(key: str, value: object) -> Json:
    table = read_table(key, value)
    problem = find_problem(table)
    if problem:
        raise InvalidConfig(key, problem, remedy="Write texts, numbers, lists and tables.")
    return table


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class ToolOverride(Options):
    """What the operator changes about one tool of a server."""

    enabled: bool = declare(True, FLAG, "False leaves the tool out, as `deny` does.")
    description: str = declare("", TEXT, "Description to show and search instead of the server's.")
    arguments: Mapping[str, Any] = declare(
        {},
        ValueCheck("a table of values", _read_arguments),
        'Arguments that every call sends, such as `{ owner = "acme" }`. The model does not see '
        "them, and a call in which it sends one of them is refused. Rules and the audit record "
        "see them.",
        reference=True,
    )
    hidden: tuple[str, ...] = declare(
        (), NAMES, "Optional arguments that the model does not see and no call sends."
    )

    def __post_init__(self) -> None:
        Options.__post_init__(self)
        for name in self.hidden:
            if name in self.arguments:
                problem = f"names {quote_name(name)}, which has a value under 'arguments'"
                raise InvalidConfig("hidden", problem, remedy="Remove it from one of the two.")

    def list_secrets(self) -> tuple[str, ...]:
        """Return the arguments that are named like secrets."""
        named = (value for name, value in self.arguments.items() if is_secret_name(name))
        return tuple(value for value in named if isinstance(value, str) and value)


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class ServerConfig(Options):
    """One server and how it is started, reached and shown.

    Patterns are those of `fnmatch` and match the names that tools have on their server.
    """

    name: str
    withheld: frozenset[str] = field(default=frozenset(), compare=False)
    """Variables that patterns in `inherit_env` do not pass; `Config` fills it in."""
    revealed: frozenset[str] = field(default=frozenset(), compare=False, repr=False)
    """Secrets that references stood for; `resolve` fills it in."""
    transport: Transport = field(
        metadata=describe(
            check_choice(Transport),
            "How to reach the server. By default, this follows from `skills`, `spec`, `url` or "
            "`command`.",
            is_required=False,
            identity=True,
        )
    )
    command: str = declare(
        "", TEXT, "Program to start.", reference=True, identity=True, only=PROCESS
    )
    args: tuple[str, ...] = declare(
        (), TEXTS, "Arguments of the program.", reference=True, identity=True, only=PROCESS
    )
    env: Mapping[str, str] = declare(
        {}, _ENV, "Environment variables of the program.", secret=True, identity=True, only=PROCESS
    )
    inherit_env: tuple[str, ...] = declare(
        (),
        PATTERNS,
        "Further variables that the program gets from the environment of toolscout, by name or "
        "pattern; `*` passes all. See [environment](gateway.md#environment-of-a-server).",
        only=PROCESS,
    )
    cwd: str = declare(
        "",
        TEXT,
        "Working directory of the program. Default: that of the gateway, or with "
        '`share = "session"` the folder in which the client was started.',
        path=True,
        identity=True,
        only=PROCESS,
    )
    isolate: str = declare(
        "",
        _ISOLATE,
        "Run the program in bubblewrap or in a container, where it sees the system read-only and "
        "nothing else of this machine. See [isolation](security.md#isolation).",
        only=PROCESS,
    )
    folders: tuple[str, ...] = declare(
        (),
        TEXTS,
        "Folders that an isolated program sees, at the same place; it may not write to those that "
        "end in `:ro`.",
        path=True,
        only=PROCESS,
    )
    network: bool = declare(True, FLAG, "Whether an isolated program has a network.", only=PROCESS)
    image: str = declare(
        "", TEXT, 'Image of the container, with `isolate = "docker"`.', only=PROCESS
    )
    limits: Mapping[str, int] = declare(
        {},
        _LIMITS,
        "Maximum memory of each process of the program, number of open files and number of "
        "processes of the user, as `{ memory_mb = 2000, open_files = 4096, processes = 500 }`.",
        only=PROCESS,
    )
    new_privileges: bool = declare(
        False,
        FLAG,
        "Let programs that the server starts, such as `sudo`, gain privileges. toolscout prevents "
        "this only on Linux.",
        only=PROCESS,
    )
    url: str = declare(
        "",
        _URL,
        "Address of the server. With `openapi`, all calls go there, whatever the document says.",
        reference=True,
        identity=True,
        only=REMOTE,
    )
    headers: Mapping[str, str] = declare(
        {}, _HEADERS, "HTTP headers for every request.", secret=True, identity=True, only=REMOTE
    )
    token: str = declare(
        "", TEXT, "Bearer token sent with every request.", secret=True, identity=True, only=REMOTE
    )
    oauth: bool = declare(
        False, FLAG, "Log in with OAuth; see `toolscout servers login`.", only=REMOTE
    )
    oauth_scopes: tuple[str, ...] = declare(
        (), TEXTS, "Scopes to ask for; by default those that the server names.", only=REMOTE
    )
    oauth_grant: Grant = declare(
        Grant.AUTHORIZATION_CODE,
        check_choice(Grant),
        "Whether a person logs in or the program identifies itself.",
        only=REMOTE,
    )
    oauth_client_id: str = declare(
        "",
        TEXT,
        "Client id, for client credentials and where clients cannot register themselves.",
        reference=True,
        only=REMOTE,
    )
    oauth_client_secret: str = declare(
        "", TEXT, "Client secret; needs `oauth_issuer`.", secret=True, only=REMOTE
    )
    oauth_issuer: str = declare(
        "",
        _URL,
        "The only authorization server that receives the client id and secret.",
        only=REMOTE,
    )
    login: str = declare(
        "",
        _LOGIN,
        "Whose login calls use: one for everybody, or each user's own. Without this option, a "
        "gateway with several tokens or an issuer refuses a server that somebody logged in to. See "
        "[logins](gateway.md#logins-of-each-user).",
        needs_restart=True,
        only=(Transport.HTTP, Transport.SSE),
    )
    share: Share = declare(
        Share.ALL,
        check_choice(Share),
        "Who shares one process of the server, or one connection to it: all clients, only the "
        "requests of one client session, or only those of one token. See "
        "[servers for one folder or user](gateway.md#servers-for-one-folder-or-user).",
        only=MCP,
    )
    max_connections: int = declare(
        50,
        check_whole(1, 100_000),
        'With `share` or `login = "user"`, how many sessions or users may have a process or '
        "connection at the same time; to make room, the one that was idle longest is closed.",
        only=MCP,
    )
    spec: str = declare(
        "",
        TEXT,
        "Path or URL of an OpenAPI document, in JSON or YAML.",
        path=True,
        identity=True,
        only=(Transport.OPENAPI,),
    )
    skills: tuple[str, ...] = declare(
        (),
        TEXTS,
        "Folders of [skills](skills.md), in place of a server.",
        path=True,
        identity=True,
        only=(Transport.SKILLS,),
    )

    allow: tuple[str, ...] = declare(EVERYTHING, SOME_PATTERNS, "Tools to use.")
    deny: tuple[str, ...] = declare(
        (), PATTERNS, "Tools to leave out, even if `allow` matches them."
    )
    renames: Mapping[str, str] = declare({}, _RENAMES, "New names for tools, by their own name.")
    pins: tuple[str, ...] = declare(
        (), PATTERNS, "Tools that every client sees without searching for them."
    )
    may_pin: bool = declare(
        False, FLAG, "Also pin the tools that the server itself marks with `anthropic/alwaysLoad`."
    )
    changes: str = declare(
        "",
        _CHANGES,
        "What happens to new and changed definitions of a server that was used before; by default "
        "as `gateway.changes` says. See [approvals](approvals.md).",
    )
    may_ask: bool = declare(
        True,
        FLAG,
        "Let the server ask the user for input, the client's model for a completion and the client "
        "for its folders during a call. Questions name the server.",
    )
    effects: Mapping[str, Effect] = declare(
        {}, _EFFECTS, "What calls do, by pattern, if the server does not say it or is wrong."
    )
    trust_effects: bool = declare(
        False,
        FLAG,
        "Believe the server when it says that a tool only reads, or destroys nothing. Otherwise "
        "such tools count as unknown to profiles and split calls, unless `effects` names them.",
    )
    hints: Mapping[str, str] = declare(
        {}, STRINGS, "Additional words by which searches find a tool, by pattern."
    )
    tools: Mapping[str, ToolOverride] = declare(
        {},
        check_groups(ToolOverride, "tables, see `[servers.NAME.tools.TOOL]`"),
        "Changes to single tools, by the names that they have on the server.",
    )
    hint: str = declare("", TEXT, "Additional words by which searches find all of its tools.")
    redact: tuple[SecretKind, ...] = declare(
        (),
        _REDACT,
        "Replace what looks like a secret in the server's results and log lines: true, or some "
        "kinds of secrets. See [redaction](security.md#redaction).",
        needs_restart=True,
    )

    start_seconds: float = declare(
        30.0, check_number(0.1, 3_600), "How long the server may take to start.", unit="seconds"
    )
    install_seconds: float = declare(
        600.0,
        check_number(0, 86_400),
        "How long it may take instead if `npx`, `uvx`, `docker run` or the like may have to "
        "install it first; with 0, `start_seconds` applies to these as well.",
        unit="seconds",
    )
    call_seconds: float = declare(
        60.0, check_number(0.001, 86_400), "How long a call may take.", unit="seconds"
    )
    concurrency: int = declare(8, check_whole(1, 1_000), "Calls that run at the same time.")
    lazy: bool = declare(True, FLAG, "Start the server only when a call needs it.")
    idle_stop: float = declare(
        600.0,
        check_number(0, 604_800),
        "Stop the server after this time without a call; 0 keeps it running.",
        unit="seconds",
    )
    disabled: bool = declare(False, FLAG, "Keep the entry but do not use the server.")

    def __post_init__(self) -> None:
        name = read_text("servers", self.name)
        if not name.strip() or len(name) > MAX_NAME_CHARS or _CONTROL.search(name):
            problem = "contains a name that no server can have"
            remedy = f"Use 1 to {MAX_NAME_CHARS} characters on one line."
            raise InvalidConfig("servers", problem, remedy=remedy)
        with prefix_keys("servers", self.name):
            Options.__post_init__(self)
            _check_transport(self)

    def resolve(self, env: Mapping[str, str] | None = None) -> Self:
        """Return the server with plain values in place of references, to be started at once."""
        plain = resolve_options(self, env, key=join_keys("servers", self.name))
        values = list_values(self, os.environ if env is None else env)
        secret = (text for name, text in values.items() if "${" in name or is_secret_name(name))
        return replace(plain, revealed=self.revealed.union(filter(None, secret)))

    def find_inherited(self, env: Mapping[str, str]) -> dict[str, str]:
        """Return the variables that `inherit_env` passes on from an environment.

        A pattern passes nothing that is withheld, which is most likely another server's secret;
        a name passes it all the same.
        """
        return {
            name: value
            for name, value in env.items()
            if name in self.inherit_env
            or (name not in self.withheld and is_matched(name, self.inherit_env))
        }

    def list_secrets(self) -> tuple[str, ...]:
        """Return the values of secret options, and what else is likely to be secret.

        That is in references, in inherited variables and arguments that are named like secrets,
        and in addresses.
        """
        inherited = self.find_inherited(os.environ) if self.inherit_env else {}
        secret = [value for name, value in inherited.items() if is_secret_name(name) and value]
        # Every word of a log that is also a plain setting, such as "true", would be masked.
        plain = {
            value
            for name, value in (*self.env.items(), *self.headers.items())
            if len(value) < MIN_SECRET_CHARS and not is_secret_name(name)
        }
        declared = [value for value in Options.list_secrets(self) if value not in plain]
        addresses = [*list_url_secrets(self.url), *list_url_secrets(self.spec)]
        arguments = list_arg_secrets(self.args)
        found = (*declared, *secret, *sorted(self.revealed), *addresses, *arguments)
        return tuple(dict.fromkeys(found))

    def format_start(self) -> str:
        """Return its URL or command on one line, with everything masked that may be secret."""
        if self.url:
            return mask_url(self.url)
        if self.skills:
            return to_one_line(", ".join(self.skills), TEXT_CHARS)
        return to_one_line(" ".join((self.command, *mask_args(self.args))), TEXT_CHARS)

    def build_mask(self, env: Mapping[str, str] | None = None) -> SecretMask:
        """Return a mask for texts that may quote the secrets given to this server."""
        try:
            # What nobody has read yet, the server never received, and reading it may take long.
            plain = self if has_unread_secrets(self) else self.resolve(env)
        except InvalidConfig:  # the server never received the value of the missing reference
            plain = self
        return plain.build_plain_mask()

    def build_plain_mask(self) -> SecretMask:
        """Do the same as `build_mask` for a server whose references are resolved."""
        urls = [self.url, self.spec if "://" in self.spec else ""]
        return SecretMask(self.list_secrets(), urls, kinds=self.redact)

    def quote(self, text: str) -> str:
        """Return a text from this server on one line, with the server's secrets masked."""
        return self.quote_all([text])[0]

    def quote_all(self, texts: Sequence[str]) -> list[str]:
        """Do the same as `quote` for several texts; to make the mask takes longest."""
        if not any(texts):
            return list(texts)
        mask = self.build_mask()
        return [to_error_text(mask.apply(text), QUOTE_CHARS) for text in texts]

    def starts_like(self, other: "ServerConfig") -> bool:
        """Tell whether both seem to start the same server; a reference may equal a plain secret."""
        for declared in list_options(type(self)):
            if declared.identity:
                mine = getattr(self, declared.name)
                theirs = getattr(other, declared.name)
                if mine != theirs and not (declared.secret and _may_equal(mine, theirs)):
                    return False
        return True

    def has_same_start(self, other: "ServerConfig") -> bool:
        """Tell whether both have the same command, arguments and folder, or the same address.

        Unlike for `starts_like`, their variables, headers and tokens may differ. A reference
        may stand for part of an argument or address.
        """
        if self.url or other.url:
            is_known = "://" in self.url and "://" in other.url
            is_same = self.url == other.url or (is_known and _may_match(self.url, other.url))
            return is_same and self.spec == other.spec
        if self.command != other.command or len(self.args) != len(other.args):
            return False
        is_elsewhere = bool(self.cwd and other.cwd) and self.cwd != other.cwd
        return not is_elsewhere and all(map(_may_match, self.args, other.args))

    def has_other_values(self, other: "ServerConfig") -> bool:
        """Tell whether a variable, header or token has different values in both."""
        pairs = [(self.token, other.token)] if self.token and other.token else []
        for mine, theirs in ((self.env, other.env), (self.headers, other.headers)):
            pairs += [(mine[key], theirs[key]) for key in mine.keys() & theirs.keys()]
        return any(a != b and is_literal(a) == is_literal(b) for a, b in pairs)

    @property
    def has_owners(self) -> bool:
        """Whether some connections serve one session or principal alone."""
        return self.share is not Share.ALL or self.login == Login.USER

    def needs_restart(self, new: Self) -> bool:
        """Tell whether a running server has to be restarted to follow a new configuration."""
        return any(declared.needs_restart for declared in self.list_changes(new))


def _read_places(key: str, value: object) -> tuple[str, ...]:
    names = NAMES.read(key, value)
    for name in names:
        if name not in SKILL_PLACES:
            remedy = f"Use some of {', '.join(SKILL_PLACES)}."
            raise InvalidConfig(key, f"names {to_one_line(name, MAX_NAME_CHARS)!r}", remedy=remedy)
    return names


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class SkillsConfig(Options):
    """Where skills are, and how many of them clients list.

    The skills belong to a server named `skills`, whose other options are in `[servers.skills]`.
    """

    folders: tuple[str, ...] = declare(
        (), TEXTS, "Folders that have skills, each in a folder with a `SKILL.md`.", path=True
    )
    places: tuple[str, ...] = declare(
        (),
        ValueCheck(f"a list of {', '.join(SKILL_PLACES)}", _read_places),
        "Programs whose own skill folders, in your home folder, toolscout reads as well.",
    )
    listed_tokens: int = declare(
        1_400,
        check_whole(0, 1_000_000),
        "If the names and descriptions of all skills fit, `skills/list` returns all of them, and "
        "otherwise only pinned ones. Searches always find all.",
        unit="tokens",
    )

    def build_table(self, table: Json) -> Json | None:
        """Return the table of the server that has the skills, or None if there are no folders."""
        own = list(TEXTS.read("skills", table.get("skills", ())))
        places = [place for name in self.places for place in SKILL_PLACES[name]]
        folders = [*own, *self.folders, *places]
        return {**table, "skills": list(dict.fromkeys(folders))} if folders else None


def has_own_token(config: ServerConfig) -> bool:
    """Return whether the configuration itself holds the credentials."""
    return bool(config.token) or "authorization" in map(str.lower, config.headers)


def is_matched(name: str, patterns: Iterable[str]) -> bool:
    """Tell whether at least one pattern matches a name."""
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def _may_match(first: str, second: str) -> bool:
    return first == second or is_possible_value(second, first) or is_possible_value(first, second)


def _may_equal(first: str | Mapping[str, str], second: str | Mapping[str, str]) -> bool:
    mine = {"": first} if isinstance(first, str) else first
    theirs = {"": second} if isinstance(second, str) else second
    if mine.keys() != theirs.keys():
        return False
    pairs = ((text, theirs[key]) for key, text in mine.items())
    return all(a == b or not (is_literal(a) and is_literal(b)) for a, b in pairs)


_NEEDED = {
    Transport.STDIO: ("command",),
    Transport.HTTP: ("url",),
    Transport.SSE: ("url",),
    Transport.OPENAPI: ("spec", "url"),
    Transport.SKILLS: ("skills",),
}
_NEEDED_FOR_CREDENTIALS = ("url", "oauth_client_id", "oauth_client_secret", "oauth_issuer")


def _check_transport(server: ServerConfig) -> None:
    """Raise `InvalidConfig` if an option is missing, or does not go with the transport."""
    needed = [(name, f"transport {server.transport}") for name in _NEEDED[server.transport]]
    if server.oauth_grant is Grant.CLIENT_CREDENTIALS:
        needed += [(name, f"grant {server.oauth_grant}") for name in _NEEDED_FOR_CREDENTIALS]
    elif server.oauth_client_secret and not server.oauth_issuer:
        # Otherwise the server's own metadata would say who receives the secret.
        problem = "is missing, so the server itself could choose who receives the client secret"
        remedy = "Write the address of the authorization server, such as https://login.example."
        raise InvalidConfig("oauth_issuer", problem, remedy=remedy)
    if server.login is Login.USER and (
        server.oauth_grant is Grant.CLIENT_CREDENTIALS or has_own_token(server)
    ):
        problem = "is 'user', but the configuration holds the credentials that all calls use"
        remedy = "Remove the token or the client credentials, or write 'shared'."
        raise InvalidConfig("login", problem, remedy=remedy)
    for name, needed_by in needed:
        if not "".join(getattr(server, name)).strip():
            problem = f"is missing, and {needed_by} needs it"
            raise InvalidConfig(name, problem, remedy="Add it.")
    for declared in list_options(ServerConfig):
        is_set = getattr(server, declared.name) != declared.default
        if is_set and declared.only and server.transport not in declared.only:
            problem = f"cannot be used with transport {server.transport}"
            remedy = "Leave it out, or change the transport."
            raise InvalidConfig(declared.name, problem, remedy=remedy)
    _check_isolation(server)


def _check_isolation(server: ServerConfig) -> None:
    """Raise `InvalidConfig` if an option promises what the others do not allow."""
    is_container = server.isolate == Isolation.DOCKER
    if is_container and not server.image.strip():
        remedy = "Name an image that has the program, such as node:22."
        raise InvalidConfig("image", "is missing, and isolate 'docker' needs it", remedy=remedy)
    problem = "has no effect without isolation"
    if server.image and not is_container:
        raise InvalidConfig("image", problem, remedy="Add isolate = 'docker'.")
    for name, is_used in (("folders", bool(server.folders)), ("network", not server.network)):
        if is_used and not server.isolate:
            raise InvalidConfig(name, problem, remedy="Add isolate = 'bwrap' or 'docker'.")
