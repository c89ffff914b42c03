"""`GatewayConfig`: how the gateway listens, who may use it and what they see.

`servers` describes the servers behind it.
"""

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from fnmatch import fnmatchcase
from typing import Self
from urllib.parse import urlsplit

from toolscout.config.references import expand, resolve_options
from toolscout.config.servers import EVERYTHING, Changes, is_matched
from toolscout.errors import InvalidConfig, UsageError
from toolscout.names import find_near_names, to_one_line
from toolscout.options import (
    FLAG,
    NAME_CHARS,
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
    check_number,
    check_whole,
    declare,
    describe,
    join_keys,
    read_some_names,
    read_text,
)
from toolscout.policies import Permission
from toolscout.schemas import Json, is_list, is_object
from toolscout.tools import Effect, Tool

COVERED_TOOLS = 100_000
ALGORITHMS = (
    *("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"),
    *("ES256", "ES384", "ES512", "EdDSA"),
)
"""Ways to sign a token with a private key."""
ALL = "*"
"""Written for a profile that admits everything."""


class GatewayMode(StrEnum):
    """Which tools the gateway lists."""

    SEARCH = "search"
    """The meta-tools."""
    DIRECT = "direct"
    """All tools of all servers."""
    DYNAMIC = "dynamic"
    """The meta-tools and the tools found so far."""
    AUTO = "auto"
    """All tools while they are few, otherwise the meta-tools."""


class IndexPlace(StrEnum):
    """Where the tools and their search index are."""

    MEMORY = "memory"
    POSTGRES = "postgres"


class LogFormat(StrEnum):
    """How a log line looks."""

    TEXT = "text"
    JSON = "json"


class LogLevel(StrEnum):
    """The least important lines that are still logged."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


def _read_effects(key: str, value: object) -> tuple[Effect, ...]:
    return tuple(check_choice(Effect).read(key, word) for word in read_some_names(key, value))


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Profile(Options):
    """A named part of the catalogue."""

    servers: tuple[str, ...] = declare(EVERYTHING, SOME_PATTERNS, "Servers that can be used.")
    tools: tuple[str, ...] = declare(
        EVERYTHING,
        SOME_PATTERNS,
        "Tools that can be used, by exposed name, such as `github__get_*`.",
    )
    effects: tuple[Effect, ...] = declare(
        tuple(Effect),
        ValueCheck(f"a list of {', '.join(Effect)}", _read_effects),
        "What the tools may do.",
    )

    def admits(self, server: str, name: str, effect: Effect) -> bool:
        """Tell whether a tool is in the profile."""
        visible = is_matched(server, self.servers) and is_matched(name, self.tools)
        return visible and effect in self.effects


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Rule(Options):
    """Says whether some calls may be made; of all rules, the first that matches a call decides."""

    permission: Permission = field(
        metadata=describe(
            check_choice(Permission),
            "Whether calls are allowed, need a person's consent, or are refused.",
        )
    )
    principals: tuple[str, ...] = declare(
        EVERYTHING, SOME_PATTERNS, "Whose calls; the principal of a token has the token's name."
    )
    profiles: tuple[str, ...] = declare(
        EVERYTHING, SOME_PATTERNS, "Calls of clients that are limited to one of these profiles."
    )
    servers: tuple[str, ...] = declare(EVERYTHING, SOME_PATTERNS, "Calls of these servers' tools.")
    tools: tuple[str, ...] = declare(
        EVERYTHING, SOME_PATTERNS, "Calls of these tools, by exposed name."
    )
    effects: tuple[Effect, ...] = declare(
        tuple(Effect),
        ValueCheck(f"a list of {', '.join(Effect)}", _read_effects),
        "Calls of tools with one of these effects.",
    )
    arguments: Mapping[str, str] = declare(
        {},
        STRINGS,
        "Calls whose arguments match all these patterns, by name; `a.b` is the member `b` of `a`.",
    )
    reason: str = declare("", TEXT, "The reason, for the model and for the person who is asked.")

    def covers(self, tool: Tool) -> bool:
        """Tell whether the rule is about calls of a tool, with some arguments."""
        return (
            is_matched(tool.server, self.servers)
            and is_matched(tool.name, self.tools)
            and tool.effect in self.effects
        )

    def matches(self, arguments: Json) -> bool:
        """Tell whether arguments match all patterns.

        Of a list, one item is enough to ask or to deny; to allow a call, every item has to match.
        """
        for path, pattern in self.arguments.items():
            texts = list(_list_texts(arguments, path.split(".")))
            matched = [text is not None and fnmatchcase(text, pattern) for text in texts]
            is_allowing = self.permission is Permission.ALLOW
            if not matched or not (all(matched) if is_allowing else any(matched)):
                return False
        return True


class CallerRules:
    """The rules about the calls of one principal; remembers which of them cover each tool."""

    def __init__(self, rules: Mapping[str, Rule], principal: str, profile: str) -> None:
        self._rules = tuple(
            (name, rule)
            for name, rule in rules.items()
            if is_matched(principal, rule.principals) and is_matched(profile, rule.profiles)
        )
        self._covering: dict[tuple[str, str, Effect], tuple[tuple[str, Rule], ...]] = {}

    def find(self, tool: Tool, arguments: Json) -> tuple[str, Rule] | None:
        """Return the rule that decides a call, with its name."""
        covering = self._list_covering(tool)
        return next((both for both in covering if both[1].matches(arguments)), None)

    def is_denied(self, tool: Tool) -> bool:
        """Tell whether every call of a tool is denied, whatever its arguments."""
        for _, rule in self._list_covering(tool):
            is_deny = rule.permission is Permission.DENY
            if not rule.arguments or not is_deny:
                return is_deny
        return False

    def _list_covering(self, tool: Tool) -> tuple[tuple[str, Rule], ...]:
        key = (tool.server, tool.name, tool.effect)
        found = self._covering.get(key)
        if found is None:
            found = tuple(both for both in self._rules if both[1].covers(tool))
            if len(self._covering) >= COVERED_TOOLS:
                self._covering.clear()
            self._covering[key] = found
        return found


def _list_texts(value: object, path: Sequence[str]) -> Iterator[str | None]:
    """Yield the values at a path as texts; lists on the way count with each of their items.

    An object without the next part of the path yields None.
    """
    if is_list(value):
        for item in value:
            yield from _list_texts(item, path)
    elif path:
        if is_object(value) and path[0] in value:
            yield from _list_texts(value[path[0]], path[1:])
        else:
            yield None
    else:
        yield value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _read_token(key: str, value: object) -> str:
    token = read_text(key, value)
    if not token.strip():
        # An empty token would let everybody in.
        raise InvalidConfig(key, "is empty", remedy="Write ${VAR} or ${file:PATH}.")
    return token


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class TokenConfig(Options):
    """A bearer token that the gateway accepts."""

    token: str = field(
        metadata=describe(
            ValueCheck(TEXT.expected, _read_token),
            "The token; write it as a reference such as `${CI_TOKEN}`.",
            secret=True,
        )
    )
    profile: str = declare(
        "", TEXT, "Profile that limits what the bearer sees; without one, everything."
    )
    metrics: bool = declare(
        False,
        FLAG,
        "Let the bearer read `/metrics` and `/status` even if a profile limits it.",
    )

    def resolve(self, env: Mapping[str, str] | None = None, *, name: str = "NAME") -> Self:
        """Return it with the plain token; an empty one is refused in the name of its table."""
        return resolve_options(self, env, key=join_keys("gateway", "tokens", name))


def _read_algorithms(key: str, value: object) -> tuple[str, ...]:
    names = read_some_names(key, value)
    for name in names:
        if name not in ALGORITHMS:
            # With a symmetric algorithm, whoever can check a token could make one.
            remedy = f"Use some of {', '.join(ALGORITHMS)}."
            raise InvalidConfig(key, f"names {name!r}", remedy=remedy)
    return names


def _read_address(key: str, value: object) -> str:
    address = read_text(key, value)
    parts = urlsplit(address)
    is_local = parts.scheme == "http" and parts.hostname in ("localhost", "127.0.0.1", "::1")
    if not parts.hostname or not (parts.scheme == "https" or is_local):
        raise InvalidConfig(key, "is not an https address", remedy="Write https://….")
    return address


_ADDRESS = ValueCheck("an https address", _read_address)


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class IssuerConfig(Options):
    """A login service whose JSON Web Tokens the gateway accepts."""

    issuer: str = field(
        metadata=describe(_ADDRESS, "Address of the service, exactly as in the claim `iss`.")
    )
    audience: str = field(
        metadata=describe(TEXT, "What the claim `aud` of tokens for this gateway must contain.")
    )
    jwks_url: str = field(metadata=describe(_ADDRESS, "Address of its public keys."))
    algorithms: tuple[str, ...] = declare(
        ("RS256", "ES256"),
        ValueCheck(f"a list of {', '.join(ALGORITHMS)}", _read_algorithms),
        "How tokens may be signed.",
    )
    profile_claim: str = declare("", TEXT, "Claim that determines the profile, such as `groups`.")
    profiles: Mapping[str, str] = declare(
        {},
        STRINGS,
        "Profile for each value of that claim; the first one here that a token has counts.",
    )
    profile: str = declare(
        "",
        TEXT,
        "Profile of all others; without one they are refused. `*`, here or in `profiles`, is "
        "everything.",
    )
    skew_seconds: float = declare(
        30.0,
        check_number(0, 600),
        "How far the clocks of the service and the gateway may differ.",
        unit="seconds",
    )

    def __post_init__(self) -> None:
        Options.__post_init__(self)
        if not self.profile and not (self.profiles and self.profile_claim):
            remedy = 'Name one, write "*" for everything, or set profile_claim and profiles.'
            raise InvalidConfig("profile", "is missing", remedy=remedy)


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class GatewayConfig(Options):
    """How the gateway itself behaves."""

    mode: GatewayMode = declare(
        GatewayMode.SEARCH,
        check_choice(GatewayMode),
        "Tools that clients are shown: the meta-tools, all tools, the meta-tools and found tools, "
        "or all tools while they are few.",
    )
    split_calls: bool = declare(
        False, FLAG, "Offer `tool_read`, `tool_write` and `tool_destroy` instead of `tool_call`."
    )
    host: str = declare("127.0.0.1", TEXT, "Address to listen on.", needs_restart=True)
    port: int = declare(
        8765, check_whole(0, 65_535), "Port to listen on; 0 picks a free one.", needs_restart=True
    )
    hosts: tuple[str, ...] = declare((), NAMES, "Further `Host` headers to accept.")
    origins: tuple[str, ...] = declare((), NAMES, "Further `Origin` headers to accept.")
    tokens: Mapping[str, TokenConfig] = declare(
        {},
        check_groups(TokenConfig, "tables, see `[gateway.tokens.NAME]`"),
        "Bearer tokens to accept. Without any, only this machine may connect and needs none.",
    )
    issuers: Mapping[str, IssuerConfig] = declare(
        {},
        check_groups(IssuerConfig, "tables, see `[gateway.issuers.NAME]`"),
        "Login services whose JSON Web Tokens are accepted, in addition to `tokens`.",
    )
    public_url: str = declare(
        "",
        TEXT,
        "Address at which clients reach the gateway through a proxy, such as "
        "`https://tools.example`; by default the `Host` that they send.",
    )
    profiles: Mapping[str, Profile] = declare(
        {},
        check_groups(Profile, "tables, see `[gateway.profiles.NAME]`"),
        "Parts of the catalogue that tokens, or clients over stdio, can be limited to.",
    )
    rules: Mapping[str, Rule] = declare(
        {},
        check_groups(Rule, "tables, see `[gateway.rules.NAME]`"),
        "Which calls may be made; the first rule in the file that matches a call decides, and "
        "a call that none matches may be made.",
    )
    inherit_env: tuple[str, ...] = declare(
        (),
        PATTERNS,
        "Variables that every program gets from the environment of toolscout, as with "
        "`inherit_env` of one server.",
    )
    changes: Changes = declare(
        Changes.HOLD,
        check_choice(Changes),
        "What happens to new and changed definitions of servers that were used before: they wait "
        "for a person, are used at once or are refused. Anything that looks like an attack waits "
        "even in the first list, except with `trust`. See [approvals](approvals.md).",
    )
    cache: str = declare(
        "",
        TEXT,
        "SQLite file for state that outlives a run; by default in your cache folder.",
        path=True,
        needs_restart=True,
    )
    store: str = declare(
        "",
        TEXT,
        "PostgreSQL database to use instead of that file, which several gateways can share: "
        "`postgresql://…`.",
        secret=True,
        needs_restart=True,
    )
    store_listen: str = declare(
        "",
        TEXT,
        "Direct address of the same database, if `store` leads through PgBouncer in transaction "
        "mode, which does not forward the notices of other gateways. See "
        "[PostgreSQL](stores.md#pgbouncer).",
        secret=True,
        needs_restart=True,
    )
    store_connections: int = declare(
        8,
        check_whole(1, 1_000),
        "Maximum number of connections to that database, not counting one that listens.",
        needs_restart=True,
    )
    index: IndexPlace = declare(
        IndexPlace.MEMORY,
        check_choice(IndexPlace),
        "Where the tools and their search index are: in the memory of each gateway, or in the "
        "database of `store`, for [more tools than memory "
        "holds](scale.md#catalogues-larger-than-memory).",
        needs_restart=True,
    )
    login_keys: tuple[str, ...] = declare(
        (),
        TEXTS,
        "Keys that encrypt logins in the store, as references: 32 bytes in base64. "
        "The first encrypts, all decrypt. By default, toolscout makes a key in a file next to the "
        "cache. With `store`, gateways also share the logins of servers. See "
        "[logins](gateway.md#logins-of-each-user).",
        secret=True,
        needs_restart=True,
    )
    log: LogFormat = declare(LogFormat.TEXT, check_choice(LogFormat), "How log lines look.")
    log_level: LogLevel = declare(
        LogLevel.INFO, check_choice(LogLevel), "The least important lines that are still logged."
    )
    audit: bool = declare(
        True,
        FLAG,
        "Keep a record of searches, calls, refusals and changes; `toolscout audit` shows it.",
        needs_restart=True,
    )
    audit_file: str = declare(
        "",
        TEXT,
        "File to which entries of the audit record are also written, as JSON lines.",
        path=True,
        needs_restart=True,
    )
    audit_arguments: bool = declare(
        False, FLAG, "Put the arguments of calls into the audit record, not only their digest."
    )
    audit_queries: bool = declare(
        False, FLAG, "Put the text of searches into the audit record, not only their number."
    )
    audit_days: float = declare(
        90.0,
        check_number(0.01, 36_500),
        "How long the entries of the audit record are kept.",
        unit="days",
    )
    queue: int = declare(64, check_whole(0, 100_000), "Calls that may wait for one server.")
    max_result_tokens: int = declare(
        25_000,
        check_whole(100, 10_000_000),
        "The longest result that is not cut, where `sessions.result_tokens` does not apply.",
        unit="tokens",
    )
    answer_seconds: float = declare(
        600.0,
        check_number(0.1, 86_400),
        "How long a client may take to answer a server's question; does not count towards "
        "`call_seconds`.",
        unit="seconds",
    )
    task_seconds: float = declare(
        15.0,
        check_number(0, 86_400),
        "After this time a call continues as a [task](gateway.md#tasks), if the client supports "
        "tasks; 0 turns tasks off.",
        unit="seconds",
    )
    max_body_bytes: int = declare(
        8 << 20,
        check_whole(1_024, 1 << 30),
        "The largest HTTP request.",
        unit="bytes",
        needs_restart=True,
    )
    max_requests: int = declare(
        3_000,
        check_whole(1, 10_000_000),
        "HTTP requests in a minute with one token; a tenth of them may come at once.",
    )
    max_calls: int = declare(
        24,
        check_whole(1, 100_000),
        "Requests with one token that are answered at the same time, and calls in them.",
    )
    max_sessions: int = declare(
        200,
        check_whole(1, 1_000_000),
        "Sessions that one token may have open and stored, and streams that it may have open.",
    )
    max_stored_bytes: int = declare(
        64 << 20,
        check_whole(1 << 20, 1 << 40),
        "Long results that are kept for all sessions of one token together; the oldest are "
        "deleted first.",
        unit="bytes",
    )
    max_unauthenticated: int = declare(
        500,
        check_whole(1, 1_000_000),
        "Maximum number of connections without a valid token; beyond it, the oldest are closed.",
        needs_restart=True,
    )
    read_seconds: float = declare(
        30.0,
        check_number(0.1, 3_600),
        "How long an HTTP client may take to send the head of a request, and then its body.",
        unit="seconds",
        needs_restart=True,
    )
    first_search_seconds: float = declare(
        5.0,
        check_number(0, 60),
        "How long the first search of a session waits for servers whose tools are not known yet; "
        "0 waits for none.",
        unit="seconds",
    )
    session_days: float = declare(
        30.0,
        check_number(0.01, 36_500),
        "How long a session is kept after the last request of a client that did not end it.",
        unit="days",
    )
    daemon_seconds: float = declare(
        300.0,
        check_number(1, 1_000_000),
        "How long the gateway in the background keeps running without a client.",
        unit="seconds",
    )
    stop_seconds: float = declare(
        10.0,
        check_number(0, 3_600),
        "How long running calls may continue when the gateway stops.",
        unit="seconds",
        needs_restart=True,
    )

    def __post_init__(self) -> None:
        Options.__post_init__(self)
        if self.index is IndexPlace.POSTGRES and not self.store:
            remedy = 'Add store = "postgresql://…", or remove index.'
            raise InvalidConfig("index", "needs a database, but there is no store", remedy=remedy)
        named = {join_keys("tokens", name, "profile"): t.profile for name, t in self.tokens.items()}
        for name, issuer in self.issuers.items():
            for profile in (issuer.profile, *issuer.profiles.values()):
                named[join_keys("issuers", name, "profile")] = profile.replace(ALL, "")
                self._check_profiles(named)
        self._check_profiles(named)

    def _check_profiles(self, named: Mapping[str, str]) -> None:
        for key, profile in named.items():
            if profile and profile not in self.profiles:
                near = find_near_names(profile, self.profiles, limit=1)
                remedy = f"Use {near[0]!r}." if near else "Add it under [gateway.profiles]."
                raise InvalidConfig(key, "names a profile that does not exist", remedy=remedy)

    def find_profile(self, name: str) -> Profile:
        """Return a profile by name, or raise `UsageError`."""
        if name not in self.profiles:
            near = find_near_names(name, self.profiles, limit=1)
            remedy = f"Use {near[0]!r}." if near else "Add it under [gateway.profiles]."
            raise UsageError(f"There is no profile {to_one_line(name, NAME_CHARS)!r}. {remedy}")
        return self.profiles[name]

    def resolve_store(self, env: Mapping[str, str] | None = None) -> str:
        """Return the plain address of the database, empty if there is none."""
        env = os.environ if env is None else env
        address = expand(self.store, env, key="gateway.store")
        if address and not address.startswith(("postgresql://", "postgres://")):
            remedy = "Write postgresql://user@host/name, or leave it out to use a file."
            raise InvalidConfig("gateway.store", "is not a PostgreSQL address", remedy=remedy)
        return address

    def resolve_store_listen(self, env: Mapping[str, str] | None = None) -> str:
        """Return the plain address at which notices are heard, empty if it is that of the store."""
        env = os.environ if env is None else env
        return expand(self.store_listen, env, key="gateway.store_listen")

    @property
    def shares_logins(self) -> bool:
        """Whether the store has the logins at all servers, so that other gateways use them too."""
        return bool(self.store and self.login_keys)

    def resolve_login_keys(self, env: Mapping[str, str] | None = None) -> tuple[str, ...]:
        """Return the plain keys of users' logins, empty if there are none."""
        env = os.environ if env is None else env
        return tuple(expand(key, env, key="gateway.login_keys") for key in self.login_keys)

    def count_principals(self) -> int:
        """Return how many principals may use the gateway; two if an issuer decides that."""
        return len(self.tokens) + (2 if self.issuers else 0)

    def may_have(self, principal: str) -> bool:
        """Tell whether a token or an issuer can give somebody this name."""
        return principal in self.tokens or principal.partition(":")[0] in self.issuers
