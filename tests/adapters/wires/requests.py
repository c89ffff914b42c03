"""`Request`: what a provider was sent, byte for byte, and what it says.

A request may continue a conversation that the provider keeps (Anthropic's threads, OpenAI's
`previous_response_id`); `whole` is the body with all that it continues.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from adapters.bodies import Json, as_object, members
from adapters.wires.views import Definition, History, Wire


@dataclass(frozen=True)
class Request:
    """One request of a model's answer."""

    wire: Wire
    path: str
    raw: bytes
    headers: Mapping[str, str]
    """With names in lower case."""
    before: "tuple[Request, Json] | None" = None
    """The request that this one continues, and what it was answered."""

    @property
    def dialect(self) -> str:
        """`openai-chat`, `openai-responses`, `anthropic` or `gemini`."""
        return self.wire.dialect

    @cached_property
    def body(self) -> Json:
        """The request as it was sent."""
        return as_object(json.loads(self.raw))

    @cached_property
    def whole(self) -> Json:
        """The body with the history, tools and system prompt that it continues."""
        if self.before is None:
            return self.body
        earlier, answer = self.before
        if self.dialect == "anthropic":
            said = {"role": "assistant", "content": answer["content"]}
            messages = [*earlier.messages, said, *self.wire.messages(self.body)]
            kept = {key: value for key, value in earlier.whole.items() if key != "thread"}
            return kept | self.body | {"messages": messages}
        items = [*earlier.messages, *answer["output"], *self.wire.messages(self.body)]
        return self.body | {"input": items}

    @cached_property
    def messages(self) -> list[Json]:
        """The whole conversation in the provider's own shape."""
        return self.wire.messages(self.whole)

    @cached_property
    def history(self) -> History:
        """The whole conversation in nobody's shape: what was said, called and answered."""
        return self.wire.history(self.whole)

    @cached_property
    def definitions(self) -> list[Definition]:
        """The declared tools, in order; those of namespaces one by one."""
        return self.wire.definitions(self.whole)

    @property
    def tool_names(self) -> list[str]:
        """The names of the declared tools, in order."""
        return [entry.name for entry in self.definitions]

    @property
    def deferred_names(self) -> list[str]:
        """The names of those that the provider hides."""
        return [entry.name for entry in self.definitions if entry.deferred]

    @cached_property
    def offered_names(self) -> set[str]:
        """What the model may call: not deferred, referred to, or defined by a message."""
        shown = {entry.name for entry in self.definitions if not entry.deferred}
        known = {entry.name for entry in (*self.definitions, *self.history.defined)}
        return shown | (known & set(self.history.references))

    @property
    def tool_results(self) -> dict[str, str]:
        """The text of results, by the id of the call, in order."""
        return self.history.results

    @property
    def references(self) -> list[str]:
        """The tools that results refer to or define, in order of first appearance."""
        return self.history.references

    @cached_property
    def tools_bytes(self) -> bytes:
        """The tools array as it was sent, or as the conversation before has it."""
        return self._tools_as_sent().encode()

    @cached_property
    def definitions_bytes(self) -> list[bytes]:
        """Each declared tool as it was sent."""
        written = self._tools_as_sent()
        return [one.encode() for one in self.wire.definitions_as_sent(written or "[]")]

    @cached_property
    def prefix_bytes(self) -> bytes:
        """System prompt and tools as sent: what a prompt cache keys on."""
        return b"\n".join((self.system_bytes, self.tools_bytes))

    @cached_property
    def system_bytes(self) -> bytes:
        """System prompt, instructions and first developer messages as sent."""
        written = self.wire.system_as_sent(self._members)
        if not written and self.before is not None:
            return self.before[0].system_bytes
        return "\n".join(written).encode()

    def definition(self, name: str) -> Definition | None:
        """Return a tool by name, also one that a message defines."""
        known = (*self.definitions, *self.history.defined)
        return next((entry for entry in known if entry.name == name), None)

    def calls_of(self, name: str) -> list[tuple[str, dict[str, Any]]]:
        """Return id and arguments of the calls of a tool in the history."""
        made = self.history.calls.values()
        return [(entry.id, entry.arguments) for entry in made if entry.name == name]

    @cached_property
    def _members(self) -> dict[str, str]:
        return members(self.raw.decode())

    def _tools_as_sent(self) -> str:
        if "tools" not in self._members and self.before is not None:
            # A thread keeps its tools; a response that is continued by its id does not.
            return self.before[0]._tools_as_sent() if self.dialect == "anthropic" else ""
        return self._members.get("tools", "")
