"""What all wires give of a request, and what they ask of the provider."""

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from adapters.moves import Action

Json = dict[str, Any]

NAME_LIMIT = 64
CREATED_SECONDS = 1_760_000_000
"""One fixed moment, so that the same script gives the same bytes."""
_NAME = re.compile(rf"[A-Za-z0-9_-]{{1,{NAME_LIMIT}}}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Definition:
    """A tool as a request declares it."""

    name: str
    description: str | None
    schema: Json | None
    deferred: bool = False
    is_search: bool = False
    """Whether it is a provider's own search tool."""
    namespace: str = ""
    sent: Json = field(default_factory=dict[str, Any])


@dataclass(frozen=True, slots=True, kw_only=True)
class Made:
    """A call in a request's history."""

    id: str
    name: str
    arguments: Json


@dataclass(slots=True)
class History:
    """What a request's messages say, in no provider's words."""

    said: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    """Role and text."""
    calls: dict[str, Made] = field(default_factory=dict[str, Made])
    results: dict[str, str] = field(default_factory=dict[str, str])
    """By the id of the call; of references and definitions, the names."""
    references: list[str] = field(default_factory=list[str])
    """Tools that results refer to or define, in order of first appearance."""
    defined: list[Definition] = field(default_factory=list[Definition])
    """Definitions that came by messages."""

    def refer(self, *names: str) -> None:
        """Note references."""
        self.references += [name for name in names if name not in self.references]


class Ids:
    """Gives ids that no other answer of the provider has."""

    def __init__(self) -> None:
        self._given: Counter[str] = Counter()

    def next(self, kind: str) -> str:
        """Return an id such as `call_0001`."""
        self._given[kind] += 1
        return f"{kind}_{self._given[kind]:04d}"


class Wire(Protocol):
    """One provider's format."""

    @property
    def dialect(self) -> str:
        """Its name."""
        ...

    def definitions(self, body: Json) -> list[Definition]:
        """Return the declared tools, in order."""
        ...

    def definitions_as_sent(self, tools: str) -> list[str]:
        """Return each declared tool of a tools array as it is written."""
        ...

    def system_as_sent(self, members: Mapping[str, str]) -> list[str]:
        """Return what stands before the conversation, as it is written."""
        ...

    def messages(self, body: Json) -> list[Json]:
        """Return the conversation in the provider's own shape."""
        ...

    def history(self, body: Json) -> History:
        """Return the conversation in nobody's shape."""
        ...

    def problems(self, body: Json, headers: Mapping[str, str]) -> Iterator[str]:
        """Yield why the provider refuses a request."""
        ...

    def answer(self, body: Json, action: Action, ids: Ids) -> Json:
        """Return the answer that holds a move."""
        ...

    def events(self, body: Json, answer: Json) -> Iterator[str]:
        """Yield an answer as server-sent events."""
        ...

    def error(self, message: str) -> Json:
        """Return a refusal as the provider writes it."""
        ...


def tool_problems(
    definitions: Sequence[Definition], *, needs_schema: bool, search_names: Sequence[str] = ()
) -> Iterator[str]:
    """Yield what every provider refuses in declared tools."""
    counts = Counter((entry.namespace, entry.name) for entry in definitions)
    for (_, name), count in counts.items():
        if count > 1:
            yield f"tools: the name {name!r} is declared {count} times; names must be unique"
    for entry in definitions:
        if not _NAME.fullmatch(entry.name):
            yield f"tools: the name {entry.name!r} does not match {_NAME.pattern}"
        if entry.deferred and (entry.is_search or entry.name in search_names):
            yield f"tools: the search tool {entry.name!r} must not be deferred"
        if not entry.is_search:
            yield from schema_problems(entry, needed=needs_schema)


def schema_problems(entry: Definition, *, needed: bool) -> Iterator[str]:
    """Yield what is wrong with a tool's schema."""
    if entry.schema is None:
        if needed:
            yield f"tools: {entry.name!r} has no schema"
    elif str(entry.schema.get("type", "")).lower() != "object":
        shown = json.dumps(entry.schema)[:80]
        yield f"tools: the schema of {entry.name!r} must have type 'object', got {shown}"


def strict_problems(entry: Definition) -> Iterator[str]:
    """Yield what OpenAI refuses in a schema that a request calls strict."""
    schema = entry.schema or {}
    properties: Json = schema.get("properties") or {}
    required: list[str] = schema.get("required") or []
    if sorted(properties) != sorted(required):
        yield f"tools: {entry.name!r} is strict, so 'required' must have every property"
    if schema.get("additionalProperties") is not False:
        yield f"tools: {entry.name!r} is strict, so 'additionalProperties' must be false"


def tokens(value: object) -> int:
    """Return about how many tokens a value costs."""
    return max(1, len(json.dumps(value)) // 4)


def pieces(text: str) -> list[str]:
    """Return a text in two parts, as a stream would bring it."""
    half = len(text) // 2
    return [part for part in (text[:half], text[half:]) if part]


def event(data: Json, name: str = "") -> str:
    """Return one server-sent event."""
    head = f"event: {name}\n" if name else ""
    return f"{head}data: {json.dumps(data)}\n\n"
