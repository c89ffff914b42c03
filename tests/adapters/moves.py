"""What a scripted model does, in no provider's words.

A move is a text, a call or several calls, a search by the provider itself, or a function that
looks at the request and returns one of these. The wires write moves in the request's dialect.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from adapters.wires.requests import Request

Json = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One call of a tool."""

    name: str
    arguments: Json
    unoffered: bool = False
    """Whether the request may lack the tool; a model can make names up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hosted:
    """A search that the provider runs inside its answer, and what the model does after it."""

    query: str
    names: tuple[str, ...]
    then: "str | Call | tuple[Call, ...]"


Action = str | Call | Sequence[Call] | Hosted
Move = Action | Callable[["Request"], Action]


def call(name: str, /, **arguments: Any) -> Call:
    """Return a call: `call("tool_search", queries=["refund an invoice"])`."""
    return Call(name=name, arguments=arguments)


def unoffered(made: Call) -> Call:
    """Return a call that the model makes although the request does not offer the tool."""
    return replace(made, unoffered=True)


def hosted(query: str, *names: str, then: str | Call | Sequence[Call]) -> Hosted:
    """Return a search that the provider itself runs and that finds `names`."""
    after = then if isinstance(then, str | Call) else tuple(then)
    return Hosted(query=query, names=names, then=after)


def calls_of(action: Action) -> tuple[Call, ...]:
    """Return the calls of a move, in order."""
    if isinstance(action, Hosted):
        return calls_of(action.then)
    if isinstance(action, str):
        return ()
    return (action,) if isinstance(action, Call) else tuple(action)


def text_of(action: Action) -> str:
    """Return what a move says."""
    said = action.then if isinstance(action, Hosted) else action
    return said if isinstance(said, str) else ""
