"""The one internal import for adapters: an agent SDK's own tools behind a scout.

A `Toolkit` catalogues the tools of an SDK and finds the way back from a name to them. A `Bridge`
is for SDKs that fix their tools before a run. An adapter defines how one of its tools becomes a
`Tool`, and makes the calls. The session decides which tools the model sees and may call.
"""

# Adapters take names of other modules from here; a house test finds those that none takes.
# ruff: noqa: F401
# pyright: reportUnusedImport=false

import re
import threading
from base64 import b64decode
from collections.abc import Callable, Collection, Generator, Iterable, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import reduce
from itertools import zip_longest
from types import ModuleType
from typing import Any, Generic, TypedDict, TypeGuard, TypeVar, Unpack
from urllib.parse import urlsplit
from uuid import uuid4

from toolscout.calls.arguments import prepare
from toolscout.catalog import RESERVED_NAMES, Catalog
from toolscout.dialects import Dialect, to_definition, to_search, to_search_output
from toolscout.errors import (
    NO_CONTENT,
    InvalidRequest,
    ModelError,
    OwnNameNeeded,
    SdkChanged,
    ServerUnavailable,
    UsageError,
)
from toolscout.names import make_exposed_name
from toolscout.query import Query
from toolscout.schemas import Json, is_list, is_object, to_canonical_json
from toolscout.scout import Scout
from toolscout.sessions.call import ApprovedCall
from toolscout.sessions.metatools import (
    CALL,
    DESCRIBE,
    LIMIT_MAX,
    SEARCH,
    build_meta_tools,
    read_calls,
    to_meta_name,
    to_object,
)
from toolscout.sessions.prompt import ShownTool
from toolscout.sessions.record import Record
from toolscout.sessions.replies import Reply
from toolscout.sessions.session import Session, run_sync
from toolscout.sessions.texts import (
    ANSWER_LOST,
    ARGUMENTS_AS_TEXT,
    NEEDS_ASYNC_RUN,
    NO_REASON,
    PLUGIN_DESCRIPTION,
    RETRIEVE_DESCRIPTION,
    TOOL_FAILED,
    TOOLS_GONE,
    TRANSFORM_DESCRIPTION,
    TRANSFORM_QUERY,
)
from toolscout.sessions.usage import MADE
from toolscout.settings import Hiding, Mode, Settings
from toolscout.tools import Tool

T = TypeVar("T")
R = TypeVar("R")


class ToolkitOptions(TypedDict, total=False):
    """The options of every adapter: settings, or a scout that has settings and other servers."""

    scout: Scout | None
    settings: Settings | None


class Toolkit(Generic[T]):
    """The tools of an SDK, by the name under which a model calls them.

    `define` turns a tool of the SDK into a `Tool`. `run` calls one with checked arguments; a
    toolkit whose adapter handles calls itself needs none. `by_name` selects tools that the SDK
    treats by their names, to ask a person, to end a run or to wait: the SDK never sees what
    `tool_call` runs, so the model has to call them directly. An adapter that `leaves_calls` lets
    the session make all of them, so that models can run programs. Without settings and a scout,
    the default settings apply, with the given `mode`.
    """

    def __init__(
        self,
        tools: Iterable[T],
        define: Callable[[T], Tool],
        *,
        run: Callable[[T, Json], object] | None = None,
        by_name: Callable[[T], bool] | None = None,
        mode: Mode = Mode.BRIDGE,
        leaves_calls: bool = False,
        scout: Scout | None = None,
        settings: Settings | None = None,
    ) -> None:
        if scout is not None and settings is not None:
            raise UsageError("Pass settings or a scout, not both: the scout has settings already.")
        self.scout = scout or Scout(Catalog(), settings=settings or Settings(mode=mode))
        if self.scout.settings.programs.enabled and not leaves_calls:
            # A program would get past the rules that the SDK has for its tools.
            raise UsageError(
                "Programs are enabled, but this SDK makes the calls of its tools itself. Switch "
                "programs off, or let the SDK use the gateway."
            )
        self._define = define
        self._run = run
        # In mode `bridge`, found tools can be called in no other way.
        self._by_name = by_name if self.mode is not Mode.BRIDGE else None
        self._natives: dict[str, T] = {}
        self._exposed: dict[str, str] = {}
        self._registering = threading.Lock()
        self.replace(tools)
        if run is not None:
            self.scout.connect("", self._execute)

    @classmethod
    def create_growing(
        cls,
        tools: Iterable[T],
        define: Callable[[T], Tool],
        *,
        by_name: Callable[[T], bool] | None = None,
        **options: Unpack[ToolkitOptions],
    ) -> "Toolkit[T]":
        """Return a toolkit for an SDK that asks for its tools before every request.

        Found tools join the request, unless the settings choose mode `bridge`. The other modes
        need a provider's own API and are refused.
        """
        toolkit = cls(tools, define, by_name=by_name, mode=Mode.NATIVE, **options)
        if toolkit.mode not in (Mode.NATIVE, Mode.BRIDGE):
            raise UsageError(
                f"Mode {str(toolkit.mode)!r} needs a provider's own API. Use 'native' or 'bridge'."
            )
        return toolkit

    @property
    def mode(self) -> Mode:
        """How found tools become callable."""
        return self.scout.settings.mode

    def replace(self, tools: Iterable[T]) -> None:
        """Replace the SDK's tools; those of the scout's own stay."""
        defined = [(self._define(tool), tool) for tool in tools]
        names = {tool.name for tool, _ in defined} | self._natives.keys()
        catalog = self.scout.catalog
        others = [t for t in catalog.tools if not t.server and t.name not in names]
        catalog.replace("", [*others, *(tool for tool, _ in defined)])
        self._natives = {tool.name: native for tool, native in defined}
        self._exposed = {}

    def register(self, tools: Mapping[str, T]) -> frozenset[str]:
        """Add tools by the SDK's own names; return the exposed names of all that were passed.

        For an SDK that lists its tools for every caller: a known tool costs a comparison, and
        only new and changed ones are indexed. `open_session` and `rank` take the names.
        """
        with self._registering:
            known = {own: self._natives.get(self._exposed.get(own, "")) for own in tools}
            fresh = {n: t for n, t in tools.items() if known[n] is not t and known[n] != t}
            if fresh:
                defined = {own: self._define(tool) for own, tool in fresh.items()}
                self.scout.catalog.add("", defined.values())
                self._exposed |= {own: tool.name for own, tool in defined.items()}
                self._natives |= {tool.name: fresh[own] for own, tool in defined.items()}
            return frozenset(map(self._exposed.__getitem__, tools))

    def rank(
        self, queries: Iterable[str], limit: int, *, only: Collection[str] | None = None
    ) -> list[T]:
        """Return the SDK's tools that fit, best first, for a search that the SDK has itself.

        Queries are plain words, not query language. The hits of several queries alternate.
        """
        names = self._natives.keys() if only is None else only
        everything = len(names) == len(self.scout.catalog)
        policy = self.scout.policy.narrow(None if everything else lambda t: t.name in names)
        allowed = None if policy.is_open else policy.sees
        asked = [Query(text=text, words=text) for text in queries if text.strip()]
        results = self.scout.index.search_many(asked, limit, allowed=allowed)
        rounds = zip_longest(*(result.best for result in results))
        found = dict.fromkeys(hit.tool.name for hits in rounds for hit in hits if hit is not None)
        return [self._natives[name] for name in found][:limit]

    def get(self, name: str) -> T | None:
        """Return the SDK's tool of an exposed name; None for meta-tools and other servers."""
        return self._natives.get(name)

    def get_native(self, call: ApprovedCall) -> T:
        """Return the SDK's tool that an approved call is for."""
        return self._natives[call.tool.name]

    def open_session(
        self, id_: str = "", state: object = None, *, only: Collection[str] | None = None
    ) -> Session:
        """Return the session that the SDK keeps in its own state, or a new one.

        The scout does not keep the session. A new one without an id gets a random one. `only`
        names the tools of the toolkit that exist for this caller; by default all do.
        """
        start = Record(id=id_ or uuid4().hex).to_json() if state is None else state
        if only is None:
            return self.scout.restore(start, keep=False)

        # Checked for every tool, even if `only` names them all: another caller may add more.
        def exists(tool: Tool) -> bool:
            return bool(tool.server) or tool.name in only

        return self.scout.restore(start, allowed=exists, keep=False)

    def list_tools(
        self, session: Session, create: Callable[[Tool], R], forced: str = ""
    ) -> list[T | R]:
        """Return the tools of the next request; `create` makes those that are not the SDK's own.

        A tool that the request forces stands last.
        """
        shown = list_request_tools(session, forced)
        return [self._natives.get(tool.name) or create(tool) for tool in shown]

    async def handle(
        self, session: Session, name: str, arguments: object, *, approved: bool = False
    ) -> ApprovedCall | Reply | None:
        """Answer a call of the model, or approve it, for a host that runs the SDK's tools itself.

        A call of an SDK's tool, by its own name or through `tool_call`, becomes an approved call
        for the host to make, or a reply that refuses it. Meta-tools and tools of other servers
        are run here and become a reply. A name that the scout does not know becomes None.
        """
        target, given, pick = name, arguments, None
        if name == CALL:
            refusal = refuse_several(arguments)
            if refusal is not None:
                return refusal
            # A request that names no tool is refused below, by the session.
            with suppress(ModelError):
                asked, given, pick = read_calls(arguments)[0][0]
                target = str(asked)
        resolve = self.scout.catalog.resolve
        if any(tool.name in self._natives for tool in resolve(target)):
            verdict = await session.admit(target, given, approved=approved, pick=pick)
            named = self._by_name if name == CALL else None
            if named and isinstance(verdict, ApprovedCall) and named(self.get_native(verdict)):
                reply = _refuse(OwnNameNeeded(verdict.tool.name), verdict.tool.name)
                return replace(reply, references=tuple(session.load(verdict.tool)))
            return verdict
        if approved and to_meta_name(name) in ("", CALL):
            return await session.call(target, given, approved=True, pick=pick)
        if not to_meta_name(name) and not resolve(name):
            return None
        return await session.handle(name, arguments)

    def handle_sync(
        self, session: Session, name: str, arguments: object, *, approved: bool = False
    ) -> ApprovedCall | Reply | None:
        """Do the same in synchronous code."""
        return run_sync(lambda: self.handle(session, name, arguments, approved=approved))

    def predict_call(self, session: Session, name: str, arguments: object) -> ApprovedCall | None:
        """Return the call of an SDK's tool that `handle` would approve, without asking the policy.

        For an SDK that asks a person before the adapter sees the call.
        """
        tool, given = session.find_target(name, arguments)
        if tool is None or tool.name not in self._natives or not session.may_call(tool):
            return None
        try:
            return ApprovedCall(tool=tool, arguments=prepare(tool, given or {}).arguments)
        except ModelError:
            return None

    def _execute(self, tool: Tool, arguments: Json) -> object:
        if self._run is None or tool.name not in self._natives:
            raise ServerUnavailable(tool.server, "not connected")
        return self._run(self._natives[tool.name], arguments)


class Bridge(Toolkit[T]):
    """A toolkit for an SDK that fixes its tools before a run, so that none can be added in it.

    Every request carries the meta-tools and the pinned tools, and the model reaches the others
    through `tool_call`. Tools that `by_name` selects are pinned.
    """

    def __init__(
        self,
        tools: Iterable[T],
        define: Callable[[T], Tool],
        *,
        by_name: Callable[[T], bool] | None = None,
        **options: Unpack[ToolkitOptions],
    ) -> None:
        natives = list(tools)
        super().__init__(natives, define, **options)
        if self.mode is not Mode.BRIDGE:
            raise UsageError(
                f"Mode {str(self.mode)!r} changes the tools during a run, and this SDK fixes them "
                "before it. Use 'bridge'."
            )
        self._pins = [define(native).name for native in natives if by_name and by_name(native)]

    def open_session(
        self, id_: str = "", state: object = None, *, only: Collection[str] | None = None
    ) -> Session:
        """Return the session that the SDK keeps in its own state, or a new one."""
        session = super().open_session(id_, state, only=only)
        if self._pins:
            session.pin(*self._pins)
        return session

    def list_declared(self) -> list[tuple[Tool, T | None]]:
        """Return the tools of every request, in order, each with the SDK's own if it is one."""
        shown = list_request_tools(self.open_session("declared"))
        return [(tool, self.get(tool.name)) for tool in shown]


# What adapters do with sessions, calls and states.


def refuse_several(arguments: object) -> Reply | None:
    """Return the reply to a `tool_call` of several tools, for hosts that make calls themselves.

    Their own rules are about one tool at a time. None for a single call.
    """
    with suppress(ModelError):
        if len(read_calls(arguments)[0]) > 1:
            return _refuse(InvalidRequest.from_several())
    return None


def _refuse(error: ModelError, tool: str = "") -> Reply:
    details = {"tool": tool, "code": error.code, "message": str(error)}
    return Reply(text=str(error), code=error.code, is_error=True, details=details)


def list_request_tools(session: Session, forced: str = "") -> list[Tool]:
    """Return the tools of the next request; one that the request forces stands last (R80)."""
    tools = [shown.tool for shown in session.list_shown()]
    wanted = session.find_tool(forced) if forced else None
    if wanted is None or wanted in tools:
        return tools
    session.offer(wanted)
    return [*tools, wanted]


def load_by_name(session: Session, names: Iterable[str]) -> list[Tool]:
    """Load the tools that an SDK's messages show to be loaded; return those that exist."""
    found = [session.find_tool(name) for name in names]
    tools = [tool for tool in found if tool is not None]
    session.load(*tools)
    return tools


def list_loaded(state: object) -> list[str]:
    """Return the tools that the state of a session holds as loaded or pinned."""
    return list(Record.from_json(state).entries)


@dataclass(slots=True)
class _Outcome:
    """How a call ended that did not raise."""

    failed: bool = False


@contextmanager
def report_outcome(
    session: Session, call: ApprovedCall, *, postponed: tuple[type[BaseException], ...] = ()
) -> Generator[_Outcome]:
    """Report to the session whether the call that is made in this context has failed.

    The exceptions in `postponed` mean that the SDK will make the call later.
    """
    outcome = _Outcome()
    try:
        yield outcome
    except postponed:
        raise
    except BaseException:
        session.settle(call, failed=True)
        raise
    session.settle(call, failed=outcome.failed)


def decode_images(reply: Reply) -> list[tuple[bytes, str]]:
    """Return the images of a reply, each as bytes with their MIME type."""
    return [(b64decode(str(one.get("data"))), str(one.get("mimeType"))) for one in reply.images]


def add_notes(call: ApprovedCall, result: R) -> R | str:
    """Return a tool's result; if it is a text, the notes on repaired arguments precede it."""
    if not call.repairs or not isinstance(result, str):
        return result
    return "\n".join((*call.notes, result))


def is_made(reply: Reply) -> bool:
    """Tell whether a reply is the result of a tool rather than an answer of toolscout's."""
    return bool(reply.details.get("tool")) and reply.code in MADE


def merge_state(session: Session, before: object, current: object) -> Json:
    """Return the state after a call that began with state `before`, if it is `current` by now.

    Parallel calls write one after the other; each keeps what the others added.
    """
    is_unchanged = current is None or current == before
    return session.to_json() if is_unchanged else merge_states(current, session.to_json())


def merge_states(*states: object, used: Iterable[str] = ()) -> Json:
    """Return what the states of parallel calls know together; `used` were called since then."""
    record = reduce(Record.merge, map(Record.from_json, states))
    for name in used:
        record.touch(name)
    return record.to_json()


def add_usage(first: Mapping[str, Any], second: Mapping[str, Any]) -> Json:
    """Return the usage of two requests together, whatever members a provider counts.

    Numbers are added and lists joined; of other values the second's is taken.
    """
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


def require_members(sdk: str, owner: object, *names: str) -> None:
    """Raise `SdkChanged` if an object, class or module of an SDK lacks a private member.

    An adapter calls it before it uses such members, and docs/adapters.md lists them all.
    """
    for name in names:
        if not hasattr(owner, name):
            kind = owner if isinstance(owner, type | ModuleType) else type(owner)
            raise SdkChanged(sdk, f"{kind.__name__}.{name}")


# Modes. Nothing is asked over a network, and what is not known for sure counts as missing: a proxy
# that drops or refuses a provider's own blocks breaks the whole conversation.

_OPENAI_HOSTS = ("openai.com", "openai.azure.com", "services.ai.azure.com")
_FIRST_SEARCHING_GPT = [5, 4]
"""The first GPT that lets its client search for tools."""
_GPT = re.compile(r"gpt-(\d+)(?:\.(\d+))?(?![\w.])")


def choose_anthropic_mode(base_url: str) -> Mode:
    """Return the mode for the Messages API at an address; only Anthropic's hosts take references.

    Elsewhere changed tools would invalidate an expensive cache, so requests never change.
    """
    return Mode.REFERENCE if _is_at(base_url, "anthropic.com") else Mode.BRIDGE


def choose_openai_mode(model: str, base_url: str = "") -> Mode:
    """Return the mode for the Responses API with a model; the default address is OpenAI's own.

    Models before GPT-5.4, nano models and other vendors' models get their tools with the request.
    """
    version = _GPT.match(model)
    number = [int(part or 0) for part in version.groups()] if version is not None else []
    is_known_host = not base_url or any(_is_at(base_url, host) for host in _OPENAI_HOSTS)
    searches = is_known_host and number >= _FIRST_SEARCHING_GPT and "nano" not in model
    return Mode.DEFINITIONS if searches else Mode.NATIVE


def _is_at(base_url: str, domain: str) -> bool:
    host = (urlsplit(base_url).hostname or "").rstrip(".")
    return host == domain or host.endswith(f".{domain}")
