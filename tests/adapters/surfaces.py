"""What the contract needs to know of an SDK: how to make an agent, and how its adapter looks.

`Agent` and `Maker` are written for each SDK; `Surface` says where an adapter differs from
toolscout's own names and arguments.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, cast

from adapters.moves import Action, Call, call, unoffered
from adapters.specs import Ledger, Spec
from adapters.wires.requests import Request

Json = dict[str, Any]
Mode = Literal["native", "bridge", "reference", "definitions"]
DialectName = Literal["openai-chat", "openai-responses", "anthropic", "gemini"]
Voice = Literal["ask", "ask_streaming", "ask_async"]


class Agent(Protocol):
    """An agent of the SDK under test, with toolscout added as its docs say.

    It may also have `ask_streaming(message) -> str`, `async ask_async(message) -> str` and
    `another() -> Agent`, a second conversation with the very same SDK agent.
    """

    def ask(self, message: str) -> str:
        """Run one user turn to its end, and return the last text."""
        ...

    def saved(self) -> object:
        """Return what the SDK itself keeps, after a way through JSON or the SDK's own store."""
        ...


class Maker(Protocol):
    """Makes an agent whose model is the provider at `base_url` (which ends in `/v1`)."""

    def __call__(
        self, specs: Sequence[Spec], ledger: Ledger, base_url: str, saved: object | None
    ) -> Agent:
        """Return a new agent; with `saved`, one that goes on with that conversation."""
        ...


def _same(name: str) -> str:
    return name


def _queries(query: str) -> Json:
    return {"queries": [query], "limit": 1}


def _named_arguments(name: str, arguments: Json) -> Json:
    return {"name": name, "arguments": arguments}


def _results(request: Request) -> Mapping[str, str]:
    return request.tool_results


@dataclass(frozen=True, slots=True, kw_only=True)
class Surface:
    """Where an adapter differs on the wire; most need no field."""

    rename: Callable[[str], str] = _same
    """From `tool_search` and the like to the name on the wire: `plugin-tool_search`."""
    meta: tuple[str, ...] = ("tool_search", "tool_describe", "tool_call")
    """The meta-tools of every request, before `rename`."""
    own: tuple[str, ...] = ()
    """Tools that the SDK itself adds to every request."""
    search: Callable[[str], Json] = _queries
    """The arguments of a search for one query that is to load one tool."""
    bridge: Callable[[str, Json], Json] = _named_arguments
    """The arguments of `tool_call` for a tool and its arguments."""
    final: Callable[[str], Action] = _same
    """The move that ends a turn with a text."""
    declared: int | None = None
    """The number of definitions in the first request, if it differs from what the mode implies."""
    results: Callable[[Request], Mapping[str, str]] = _results
    """The results that a request contains, for an SDK that puts them into plain messages."""
    tool_errors: Literal["reported", "raised"] = "reported"
    """Whether the SDK reports a tool's exception to the model, or lets it escape from `ask`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Errand:
    """Something to be done with one tool."""

    query: str
    name: str
    arguments: Json


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One adapter under the contract."""

    maker: Maker
    mode: Mode
    dialect: DialectName
    surface: Surface
    voice: Voice = "ask"

    @property
    def search_name(self) -> str:
        """The search tool's name on the wire."""
        return self.surface.rename("tool_search")

    def search(self, errand: Errand) -> Call:
        """Return the call that looks for an errand's tool."""
        return call(self.search_name, **self.surface.search(errand.query))

    def do(self, errand: Errand) -> Call:
        """Return the call that does an errand."""
        if self.mode == "bridge":
            given = self.surface.bridge(errand.name, errand.arguments)
            return call(self.surface.rename("tool_call"), **given)
        return call(errand.name, **errand.arguments)

    def do_unfound(self, errand: Errand) -> Call:
        """Return the call of a tool that no search has found."""
        made = self.do(errand)
        return made if self.mode == "bridge" else unoffered(made)


def voice_of(agent: Agent, voice: Voice) -> Callable[[str], str | Awaitable[str]]:
    """Return the agent's way to be asked."""
    found = getattr(agent, voice, None)
    assert callable(found), f"The agent has no {voice!r}. Write it, or leave out this check."
    return cast("Callable[[str], str | Awaitable[str]]", found)
