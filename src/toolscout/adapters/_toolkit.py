"""`Kit`: an agent SDK's own tools behind a scout, and the way back from a name to them.

An adapter says how one of its tools becomes a `Tool` and how it is run; the kit keeps the two in
step. Which tools a model is told, and which calls pass, stays with the session.

`Bridge`: a kit for an SDK that fixes its tools before a run, so that none can be loaded in it.

The model is told the meta-tools and what is pinned, always the same, and reaches the rest through
`tool_call`. Tools that an SDK treats by their names, to ask a person or to end a run, are pinned:
what the SDK does with them, it does before `tool_call` could tell it whom the call is for.

Which loading mode fits an endpoint or framework, decided from what it can do.

Takes `Capabilities`, or a base URL to read them from; gives a `Mode`. Nothing is asked over a
network: what is not known for sure counts as missing, because a proxy that drops or refuses the
blocks of a provider breaks the whole conversation.

What rounds cost together, in whatever members a provider counts.
"""

import re
import threading
from collections.abc import Callable, Collection, Generator, Iterable, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import zip_longest
from typing import Any, Generic, TypeGuard, TypeVar
from urllib.parse import urlsplit

from toolscout.catalog import Catalog
from toolscout.errors import InvalidConfig, ModelError, UsageError
from toolscout.query import Query
from toolscout.schemas import Json, is_list, is_object
from toolscout.scout import Scout
from toolscout.sessions.metatools import CALL, call_request, meta_name
from toolscout.sessions.record import Record
from toolscout.sessions.replies import Reply
from toolscout.sessions.session import Admission, Session
from toolscout.settings import Mode, Settings
from toolscout.tools import Tool

T = TypeVar("T")
R = TypeVar("R")


class Kit(Generic[T]):
    """The tools of an SDK, by the name under which a model calls them.

    `define` reads a tool of the SDK, `run` makes a call of it with checked arguments; the latter
    is needed where a model calls through `tool_call`. With a `scout` of one's own, its other
    servers are found as well; `settings` are then the scout's.
    """

    def __init__(
        self,
        tools: Iterable[T],
        define: Callable[[T], Tool],
        *,
        run: Callable[[T, Json], object] | None = None,
        scout: Scout | None = None,
        settings: Settings | None = None,
        server: str = "",
    ) -> None:
        if scout is not None and settings is not None:
            raise UsageError("Settings were given beside a scout. Give them to the scout instead.")
        self.scout = scout or Scout(Catalog(), settings=settings)
        self._define, self._run, self._server = define, run, server
        self._natives: dict[str, T] = {}
        self._exposed: dict[str, str] = {}
        self._learning = threading.Lock()
        self.replace(tools)
        if run is not None:
            self.scout.connect(server, self._execute)

    @classmethod
    def growing(
        cls,
        tools: Iterable[T],
        define: Callable[[T], Tool],
        *,
        scout: Scout | None = None,
        settings: Settings | None = None,
    ) -> "Kit[T]":
        """Return a kit for an SDK that asks for its tools before every request.

        Found tools join the request unless the settings say that they are called through
        `tool_call`; no other mode makes sense there.
        """
        if scout is None and settings is None:
            settings = Settings(mode=Mode.NATIVE)
        kit = cls(tools, define, scout=scout, settings=settings)
        mode = kit.scout.settings.mode
        if mode not in (Mode.NATIVE, Mode.BRIDGE):
            raise UsageError(
                f"Mode {str(mode)!r} needs a provider's own API. Use 'native' or 'bridge'."
            )
        return kit

    def replace(self, tools: Iterable[T]) -> None:
        """Take other tools in place of those that the kit had."""
        defined = [(self._define(tool), tool) for tool in tools]
        names = {tool.name for tool, _ in defined} | self._natives.keys()
        catalog = self.scout.catalog
        others = [t for t in catalog.tools if t.server == self._server and t.name not in names]
        catalog.replace(self._server, [*others, *(tool for tool, _ in defined)])
        self._natives = {tool.name: native for tool, native in defined}
        self._exposed = {}

    def learn(self, tools: Mapping[str, T]) -> frozenset[str]:
        """Take in tools, by the SDK's own names, beside those of before; return exposed names.

        For an SDK that lists its tools anew for every caller: what is known costs a comparison,
        and only what is new or changed is indexed. `open` and `rank` take the names.
        """
        with self._learning:
            fresh = {own: tool for own, tool in tools.items() if not self._knows(own, tool)}
            if fresh:
                defined = {own: self._define(tool) for own, tool in fresh.items()}
                self.scout.catalog.add(self._server, defined.values())
                self._exposed |= {own: tool.name for own, tool in defined.items()}
                self._natives |= {tool.name: fresh[own] for own, tool in defined.items()}
            return frozenset(map(self._exposed.__getitem__, tools))

    def rank(
        self, queries: Iterable[str], limit: int, *, only: Collection[str] | None = None
    ) -> list[T]:
        """Return the SDK's tools that fit, best first, for a search of the SDK's own.

        Queries are plain words, not query language, and take turns where there are several.
        """
        names = self._natives.keys() if only is None else only
        everything = len(names) == len(self.scout.catalog)
        policy = self.scout.policy.narrowed(None if everything else lambda t: t.name in names)
        allowed = None if policy.is_open else policy.sees
        asked = [Query(text=text, words=text) for text in queries if text.strip()]
        found = self.scout.index.search_many(asked, limit, allowed=allowed)
        turns = (hit for turn in zip_longest(*(result.best for result in found)) for hit in turn)
        found_names = dict.fromkeys(hit.tool.name for hit in turns if hit is not None)
        return [self._natives[name] for name in found_names][:limit]

    def get(self, name: str) -> T | None:
        """Return the SDK's tool of an exposed name; nothing for meta-tools and other servers."""
        return self._natives.get(name)

    def native(self, admission: Admission) -> T:
        """Return the SDK's tool that may be run; `judge` admits no other."""
        return self._natives[admission.tool.name]

    def shown(self, session: Session) -> list[T]:
        """Return the SDK's tools that the next request carries beside the meta-tools, in order."""
        natives = (self._natives.get(shown.tool.name) for shown in session.shown())
        return [native for native in natives if native is not None]

    def open(
        self, id_: str, state: object = None, *, only: Collection[str] | None = None
    ) -> Session:
        """Return the session that an SDK's own state holds, or a new one.

        The scout keeps no hold of it: the state is where it lives. `only` names those of the
        kit's tools that exist for this caller; without it, all do.
        """
        start = Record(id=id_).to_json() if state is None else state
        return self.scout.restore(start, allowed=self._within(only), keep=False)

    def _knows(self, own: str, tool: T) -> bool:
        known = self._natives.get(self._exposed.get(own, ""))
        return known is not None and (known is tool or known == tool)

    def _within(self, only: Collection[str] | None) -> Callable[[Tool], bool] | None:
        if only is None:
            return None
        # Asked of every tool, even where these are all: another caller may bring more meanwhile.
        return lambda tool: tool.server != self._server or tool.name in only

    async def judge(
        self, session: Session, name: str, arguments: object, *, approved: bool = False
    ) -> Admission | Reply | None:
        """Tell what to do with a call of the model, for a host that runs the SDK's tools itself.

        Gives what the host is to run, also where the model asked by `tool_call`; or the reply to
        a meta-tool, to a refused call and to another server's tool; or nothing for a name that
        is not of this kit's scout.
        """
        target, given = _meant(name, arguments)
        if self._is_native(target):
            return await session.admit(target, given, approved=approved)
        if approved and meta_name(name) in ("", CALL):
            return await session.call(target, given, approved=True)
        return await session.handle(name, arguments) if self._is_known(name) else None

    def judge_sync(
        self, session: Session, name: str, arguments: object, *, approved: bool = False
    ) -> Admission | Reply | None:
        """Tell what to do with a call, from code that is not asynchronous."""
        target, given = _meant(name, arguments)
        if self._is_native(target):
            return session.admit_sync(target, given, approved=approved)
        if approved and meta_name(name) in ("", CALL):
            return session.call_sync(target, given, approved=True)
        return session.handle_sync(name, arguments) if self._is_known(name) else None

    def _is_native(self, target: str) -> bool:
        return any(tool.name in self._natives for tool in self.scout.catalog.resolve(target))

    def _is_known(self, name: str) -> bool:
        return bool(meta_name(name) or self.scout.catalog.resolve(name))

    def _execute(self, tool: Tool, arguments: Json) -> object:
        native = self._natives.get(tool.name)
        if native is None or self._run is None:
            raise UsageError(f"No tool {tool.name!r} is in the kit. Search for another.")
        return self._run(native, arguments)


def carried(session: Session, forced: str = "") -> list[Tool]:
    """Return the tools of the next request, with one that it insists on at the end (R80)."""
    tools = [shown.tool for shown in session.shown()]
    wanted = session.tool(forced) if forced else None
    if wanted is None or wanted in tools:
        return tools
    session.record.offer([wanted])
    return [*tools, wanted]


@contextmanager
def settling(session: Session, admission: Admission) -> Generator[None]:
    """Have a session take notice of the call that is made inside, and whether it raised."""
    try:
        yield
    except BaseException:
        session.settle(admission, failed=True)
        raise
    session.settle(admission)


def by_own_name(session: Session, admission: Admission) -> Reply:
    """Load a tool that `tool_call` must not run, and return the reply that says how it is called.

    For tools of which the SDK goes by the name: to ask a person, to end a run, to wait.
    """
    name = admission.tool.name
    with session.lock:
        loaded = session.load([admission.tool], session.record.query_of(name))
        session.save()
    text = f"{name} was not called: it does not run through tool_call. Call it by its own name."
    details: Json = {"tool": name, "code": "invalid_request", "message": text}
    return Reply(
        text=text,
        code="invalid_request",
        is_error=True,
        details=details,
        references=tuple(loaded),
    )


def noted(admission: Admission, result: R) -> R | str:
    """Return a tool's result, with what was repaired before it if it is a text."""
    if not admission.repairs or not isinstance(result, str):
        return result
    return "\n".join((*admission.notes, result))


def joined(session: Session, before: object, current: object) -> Json:
    """Return the state after a call that started from `before`, where it is `current` by now.

    Calls that run side by side write one after the other, and each keeps what others added.
    """
    if current is None or current == before:
        return session.to_json()
    return Record.from_json(current).merged(session.record).to_json()


def _meant(name: str, arguments: object) -> tuple[str, object]:
    """Return whom a call is for, and what it is given; `tool_call` is for its target."""
    if name != CALL:
        return name, arguments
    try:
        target, given = call_request(arguments)
    except ModelError:
        return name, arguments
    return str(target), given


class Bridge(Generic[T]):
    """The tools of an SDK behind three that never change.

    `by_name` tells the tools that the SDK must see called by their own names.
    """

    def __init__(
        self,
        tools: Iterable[T],
        define: Callable[[T], Tool],
        *,
        by_name: Callable[[T], bool] | None = None,
        scout: Scout | None = None,
        settings: Settings | None = None,
    ) -> None:
        natives = list(tools)
        self.kit = Kit(natives, define, scout=scout, settings=settings)
        mode = self.kit.scout.settings.mode
        if mode is not Mode.BRIDGE:
            raise UsageError(
                f"Mode {str(mode)!r} changes the tools of a run, which this SDK fixes before it. "
                "Use 'bridge'."
            )
        named = natives if by_name is not None else []
        self._pins = [define(native).name for native in named if by_name and by_name(native)]

    def open(self, id_: str, state: object = None) -> Session:
        """Return the session that an SDK's own state holds, or a new one."""
        session = self.kit.open(id_, state)
        if self._pins:
            session.pin(*self._pins)
        return session

    def declared(self) -> list[tuple[Tool, T | None]]:
        """Return what every request carries, in order, each with the SDK's tool if it is one."""
        shown = self.open("declared").shown()
        return [(entry.tool, self.kit.get(entry.tool.name)) for entry in shown]


FIRST_PARTY = "anthropic.com"
OPENAI_HOSTS = ("openai.com", "openai.azure.com", "services.ai.azure.com")
SEARCHING_SINCE = [5, 4]
"""The first GPT that has its client search for tools."""
_GPT = re.compile(r"gpt-(\d+)(?:\.(\d+))?(?![\w.])")


class Addition(StrEnum):
    """How an endpoint learns in mid-conversation that a tool was found."""

    NONE = "none"
    BY_REFERENCE = "by_reference"
    """By its name; the definition was declared before, and hidden by the provider."""
    WITH_DEFINITIONS = "with_definitions"
    """By its definition in the output of a search."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Capabilities:
    """What an endpoint or framework can do with tools."""

    addition: Addition = Addition.NONE
    may_change: bool = True
    """Whether the tools of a conversation may be others from one request to the next."""
    caches_prefix: bool = False
    """Whether a cache is lost, and dear, when the tools change."""


ANTHROPIC = Capabilities(addition=Addition.BY_REFERENCE, caches_prefix=True)
ANTHROPIC_ELSEWHERE = Capabilities(caches_prefix=True)
"""Anthropic's format at a host that is not known to take references: clouds, proxies, gateways."""
OPENAI_SEARCHING = Capabilities(addition=Addition.WITH_DEFINITIONS, caches_prefix=True)
"""OpenAI's Responses API with a model that knows tool search."""
GROWING = Capabilities()
"""A framework that asks for its tools before every request."""
FIXED = Capabilities(may_change=False)
"""A framework that asks for its tools once."""


def choose_mode(capabilities: Capabilities, override: Mode | str | None = None) -> Mode:
    """Return how found tools become callable; an override always wins."""
    if override is not None:
        return _mode(override)
    if capabilities.addition is Addition.BY_REFERENCE:
        return Mode.REFERENCE
    if capabilities.addition is Addition.WITH_DEFINITIONS:
        return Mode.DEFINITIONS
    if not capabilities.may_change or capabilities.caches_prefix:
        return Mode.BRIDGE
    return Mode.NATIVE


def anthropic_capabilities(base_url: str) -> Capabilities:
    """Return what the Messages API can do at an address; only Anthropic's own hosts are known."""
    return ANTHROPIC if _is_at(base_url, FIRST_PARTY) else ANTHROPIC_ELSEWHERE


def openai_capabilities(model: str, base_url: str = "") -> Capabilities:
    """Return what the Responses API can do with a model; without an address it is OpenAI's own.

    Models before GPT-5.4, those of the nano size and all others are told tools with the request.
    """
    version = _GPT.match(model)
    number = [int(part or 0) for part in version.groups()] if version is not None else []
    is_known_host = not base_url or any(_is_at(base_url, host) for host in OPENAI_HOSTS)
    searches = is_known_host and number >= SEARCHING_SINCE and "nano" not in model
    return OPENAI_SEARCHING if searches else GROWING


def _is_at(base_url: str, domain: str) -> bool:
    host = (urlsplit(base_url).hostname or "").rstrip(".")
    return host == domain or host.endswith(f".{domain}")


def settings_for(
    capabilities: Capabilities, settings: Settings | None = None, mode: Mode | str | None = None
) -> Settings:
    """Return settings with the mode that fits; settings that are given have chosen theirs."""
    if settings is not None and mode is None:
        return settings
    return replace(settings or Settings(), mode=choose_mode(capabilities, mode))


def _mode(name: Mode | str) -> Mode:
    try:
        return Mode(str(name))
    except ValueError:
        raise InvalidConfig(
            "mode", f"is {name!r}", remedy=f"Use one of {', '.join(Mode)}."
        ) from None


def add_usage(first: Mapping[str, Any], second: Mapping[str, Any]) -> Json:
    """Return what two rounds cost together; what is no number is as the second has it."""
    total: Json = dict(first)
    for key, value in second.items():
        before = total.get(key)
        if _is_number(before) and _is_number(value):
            total[key] = before + value
        elif is_object(before) and is_object(value):
            total[key] = add_usage(before, value)
        elif is_list(before) and is_list(value):
            total[key] = [*before, *value]
        elif value is not None:
            total[key] = value
    return total


def _is_number(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool)
