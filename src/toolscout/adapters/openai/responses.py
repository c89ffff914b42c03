"""`Rounds`: searches made inside one request of a host that knows only its own tools.

For OpenAI's items. Takes what the host has of the conversation and what the model puts out; gives
what the provider is to be sent, and what the host is to keep. Calls of meta-tools and refused calls
are answered here; the host gets them as finished `tool_search` items, which it keeps and ignores,
and every other call under the tool's own name, so that it runs, asks and guards as ever.
Nothing has to be remembered between requests: the kept items say all. Only where the provider keeps
the conversation, so that a request holds new items alone, a `Memory` has what they do not say.

`StreamMerger`: the streams of several rounds with OpenAI's Responses, as one stream for the host.

Takes the events of the SDK, round after round; gives those to pass on, numbered through. What the
model says goes on at once; calls are held back until the round is complete, because whether they
are the host's is decided then. The events are the SDK's own objects, of which only the public
members and `model_copy` are used, so that no SDK is imported here.
"""

import json
import threading
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from toolscout import Mode, Reply, Tool
from toolscout.adapters._toolkit import (
    CALL,
    SEARCH,
    Admission,
    Dialect,
    Json,
    Toolkit,
    add_usage,
    is_list,
    is_object,
    load_by_name,
    note_delivered,
    note_used,
    to_definition,
    to_object,
    to_search_output,
    was_found,
)
from toolscout.errors import UsageError

T = TypeVar("T")

MARK = "toolscout"
"""The member of a kept search's arguments that holds the call as the model made it."""
ROUNDS_LIMIT = 12
"""Rounds in which a model may do nothing but search."""
_CALL, _SEARCH = "function_call", "tool_search_call"
_DIALECT = Dialect.OPENAI_RESPONSES


class Memory:
    """The last states of conversations that a provider keeps, by its names for them."""

    def __init__(self, limit: int = 1_000) -> None:
        self._kept: OrderedDict[str, tuple[Json, list[Json]]] = OrderedDict()
        self._aliases: dict[str, str] = {}
        self._limit, self._lock = limit, threading.Lock()

    def get(self, key: str) -> tuple[Json | None, list[Json]]:
        """Return a conversation's session, and answers that it waits for."""
        with self._lock:
            return self._kept.get(key, (None, []))

    def real(self, key: str) -> str:
        """Return the provider's name for a response that the host knows under another."""
        return self._aliases.get(key, key)

    def keep(self, rounds: "Rounds[Any]", *keys: str | None, alias: str = "") -> None:
        """Keep how rounds ended; the oldest conversations leave.

        `alias` is the name under which the host has seen the response that is the first key.
        """
        with self._lock:
            for key in filter(None, (alias, *keys)):
                self._kept[key] = (rounds.session.to_json(), rounds.waiting)
                self._kept.move_to_end(key)
            if alias and keys[0] and alias != keys[0]:
                self._aliases[alias] = keys[0]
            while len(self._kept) > self._limit:
                self._aliases.pop(self._kept.popitem(last=False)[0], None)


@dataclass(slots=True)
class _Draft:
    shown: list[Json] = field(default_factory=list[Json])
    answers: list[Json] = field(default_factory=list[Json])
    calls: int = 0
    """Calls that are the host's to make."""


class Rounds(Generic[T]):
    """One request of a host. `write` gives the definition that the host has for its tool."""

    def __init__(
        self,
        toolkit: Toolkit[T],
        items: Iterable[Json],
        write: Callable[[T], Json],
        *,
        only: Collection[str] | None = None,
        others: Collection[str] = (),
        before: "Memory | None" = None,
        key: str = "",
    ) -> None:
        """`others` are functions of the host that are no tools of the kit, such as handoffs.

        `key` names the conversation that the provider keeps, if it does; `before` knows it.
        """
        state, waiting = before.get(key) if before is not None else (None, [])
        self.session = toolkit.open_session("rounds", state, only=only)
        self.items = list(items)
        self.output: list[Json] = []
        """What the host is to keep, of all rounds."""
        self.waiting: list[Json] = []
        """Answers that the provider is still to be sent, beside those of the host."""
        self._toolkit, self._write, self._others = toolkit, write, others
        self._is_kept, self._count = bool(key), 0
        self._restore()
        self.input = [*waiting, *self._sent_items()]
        """Items of the next request, as the model made or is to see them."""

    def _sent_items(self) -> list[Json]:
        delivered: set[str] = set()
        marked: dict[str, Json] = {}
        return [self._sent(item, delivered, marked) for item in self.items]

    async def take(self, output: Iterable[Json]) -> bool:
        """Answer what the model put out, as far as it is not the host's.

        Gives whether the model waits for nothing but these answers, so that it is to be asked
        again.
        """
        draft = _Draft()
        for item in output:
            if item.get("type") == _SEARCH and item.get("execution") == "client":
                await self._search(item, draft)
            elif item.get("type") == _CALL:
                await self._call(item, draft)
            else:
                draft.shown.append(item)
        self.items += draft.shown
        self.output += draft.shown
        return self._is_due(draft)

    def _is_due(self, draft: "_Draft") -> bool:
        due = bool(draft.answers) and not draft.calls
        self._count += 1
        if due and self._count >= ROUNDS_LIMIT:
            raise UsageError(
                f"The model did nothing but search in {self._count} rounds of one turn. "
                "Look at its instructions, or at what the tools say they do."
            )
        self.waiting = [] if due else draft.answers
        self.input = draft.answers if self._is_kept else self._sent_items()
        return due

    async def _search(self, item: Json, draft: _Draft) -> None:
        reply = await self.session.handle(SEARCH, item.get("arguments"))
        call_id = str(item.get("call_id"))
        output = to_search_output(_DIALECT, call_id, reply.definitions, define=self._define)
        draft.answers.append(output)
        draft.shown += [item | {"execution": "server"}, _labelled(output)]

    async def _call(self, item: Json, draft: _Draft) -> None:
        name, arguments = str(item.get("name")), _arguments(item)
        if name in self._others:
            draft.shown.append(item)
            draft.calls += 1
            return
        judged = await self._toolkit.handle(self.session, name, arguments)
        if judged is None:
            judged = await self.session.handle(name, arguments)
        if isinstance(judged, Reply):
            draft.answers.append(_output(item, judged.text))
            draft.shown += self._kept(item, judged)
            return
        self.session.settle(judged)
        draft.shown.append(_direct(item, judged))
        draft.calls += 1

    def _kept(self, item: Json, reply: Reply) -> list[Json]:
        """Return an answered call in the form in which a host keeps it."""
        call_id = str(item.get("call_id"))
        call: Json = {
            "type": _SEARCH,
            "id": f"tsc_{call_id}",
            "call_id": call_id,
            "execution": "server",
            "status": "completed",
            "arguments": {MARK: {"call": item, "text": reply.text}},
        }
        tools = [self.session.tool(name) for name in reply.references]
        told = [tool for tool in tools if tool is not None]
        return [call, _labelled(to_search_output(_DIALECT, call_id, told, define=self._define))]

    def _sent(self, item: Json, delivered: set[str], marked: dict[str, Json]) -> Json:
        call_id = item.get("call_id")
        match item.get("type"):
            case "tool_search_call" if _is_kept(item):
                mark = _mark(item)
                if mark is None:
                    return item | {"execution": "client"}
                marked[str(call_id)] = mark
                return mark["call"]
            case "tool_search_output" if _is_kept(item):
                mark = marked.get(str(call_id))
                if mark is not None:
                    return _output(item, mark["text"])
                delivered.update(_names(item))
                return {k: v for k, v in item.items() if k != "id"} | {"execution": "client"}
            case "function_call" if not self._is_direct(str(item.get("name")), delivered):
                return _bridged(item)
            case _:
                return item

    def _is_direct(self, name: str, delivered: set[str]) -> bool:
        """Tell whether the model makes a call by the tool's own name."""
        if not was_found(self.session, name):
            return True
        mode = self.session.settings.mode
        return mode is Mode.NATIVE or (mode is Mode.DEFINITIONS and name in delivered)

    def _define(self, tool: Tool) -> Json:
        native = self._toolkit.get(tool.name)
        return to_definition(tool, _DIALECT) if native is None else self._write(native)

    def _restore(self) -> None:
        """Load what the items have loaded, in order."""
        told: set[str] = set()
        for item in self.items:
            if _is_kept(item) and _mark(item) is not None:
                told.add(str(item["call_id"]))
            elif item.get("type") == "tool_search_output" and _is_kept(item):
                tools = load_by_name(self.session, _names(item))
                if item["call_id"] not in told:  # else the model had text, and no definitions
                    note_delivered(self.session, tools)
            elif item.get("type") == _CALL and self._toolkit.get(str(item.get("name"))):
                # A call that the gate refused is no call among these items.
                load_by_name(self.session, [str(item.get("name"))])
                note_used(self.session, str(item.get("name")))


def _arguments(item: Json) -> object:
    # Every call's arguments come as JSON text here; that is no slip of the model.
    return to_object(item.get("arguments")) or item.get("arguments")


def _is_kept(item: Json) -> bool:
    """Tell our own searches from those that the provider made, which have no call to answer."""
    return item.get("execution") == "server" and isinstance(item.get("call_id"), str)


def _labelled(output: Json) -> Json:
    # A host takes a search that is marked as the provider's for what it is: done.
    return {"id": f"tso_{output['call_id']}", **output, "execution": "server"}


def _mark(item: Json) -> Json | None:
    arguments = item.get("arguments")
    mark = arguments.get(MARK) if is_object(arguments) else None
    return mark if is_object(mark) else None


def _names(output: Json) -> list[str]:
    tools = output.get("tools")
    listed = tools if is_list(tools) else []
    return [str(tool["name"]) for tool in listed if is_object(tool) and "name" in tool]


def _output(item: Json, text: str) -> Json:
    return {"type": "function_call_output", "call_id": item.get("call_id"), "output": text}


def _direct(item: Json, admission: Admission) -> Json:
    """Return a call under the tool's own name, with the arguments that passed the gate."""
    same = to_object(item.get("arguments")) == admission.arguments
    written = item["arguments"] if same else json.dumps(admission.arguments, ensure_ascii=False)
    kept = {key: value for key, value in item.items() if key != "namespace"}
    return kept | {"name": admission.tool.name, "arguments": written}


def _bridged(item: Json) -> Json:
    request = {"name": item.get("name"), "arguments": to_object(item.get("arguments"))}
    return item | {"name": CALL, "arguments": json.dumps(request, ensure_ascii=False)}


_HELD = ("function_call", "tool_search_call")
_BEGINNINGS = ("response.created", "response.in_progress", "response.queued")
_ADDED, _DONE, _COMPLETED = (
    "response.output_item.added",
    "response.output_item.done",
    "response.completed",
)


class StreamMerger:
    """One stream out of several."""

    def __init__(self) -> None:
        self.response: Any = None
        """The response of the round, once it is complete."""
        self.id = ""
        """The response's name for the host: that of the first round of which it saw something."""
        self._held: dict[str, list[Any]] = {}
        self._places: dict[int, int] = {}
        self._beginnings: list[Any] = []
        self._items = self._number = 0
        self._end: Any = None
        self._usage: Json = {}

    def feed(self, event: Any) -> Iterator[Any]:
        """Yield what goes on at once."""
        if event.type == _COMPLETED:
            self._complete(event)
        elif event.type in _BEGINNINGS:
            self._begin(event)
        elif self._is_held(event):
            self._held[_item_id(event)].append(event)
        else:
            yield from self._begun()
            yield self._placed(event)

    def next_round(self) -> None:
        """Forget the calls of a round that was answered."""
        self._places, self._held, self.response = {}, {}, None

    def end(self, output: Sequence[Any]) -> Iterator[Any]:
        """Yield the calls that are the host's, and the end of the whole."""
        yield from self._begun()
        for item in output:
            yield from self._released(item)
        usage: Any = self.response.usage
        if usage is not None:
            usage = usage.construct(**self._usage)
        changed = {"id": self.id, "output": list(output), "usage": usage}
        whole = self.response.model_copy(update=changed)
        yield self._numbered(self._end.model_copy(update={"response": whole}))

    def _begin(self, event: Any) -> None:
        if not self._number:
            # A round of which nothing goes on has not begun for the host.
            earlier = [e for e in self._beginnings if e.response.id == event.response.id]
            self._beginnings = [*earlier, event]
            self.id = str(event.response.id)

    def _begun(self) -> Iterator[Any]:
        begun, self._beginnings = self._beginnings, []
        for event in begun:
            yield self._numbered(event)

    def _complete(self, event: Any) -> None:
        self.response, self._end = event.response, event
        if event.response.usage is not None:
            self._usage = add_usage(self._usage, event.response.usage.to_dict())

    def _is_held(self, event: Any) -> bool:
        if event.type == _ADDED and event.item.type in _HELD:
            self._held[_item_id(event)] = []
        if event.type == _DONE and event.item.type in _HELD:
            self._held.setdefault(_item_id(event), [])
        return _item_id(event) in self._held

    def _placed(self, event: Any) -> Any:
        at = getattr(event, "output_index", None)
        if at is None:
            return self._numbered(event)
        if at not in self._places:
            self._places[at] = self._items
            self._items += 1
        return self._numbered(event, output_index=self._places[at])

    def _numbered(self, event: Any, **changes: Any) -> Any:
        self._number += 1
        return event.model_copy(update={"sequence_number": self._number - 1, **changes})

    def _released(self, item: Any) -> Iterator[Any]:
        """Yield the events of a call, with the name and arguments that it has by now."""
        held = self._held.get(getattr(item, "id", None) or "", ())
        if item.type != "function_call" or not held:
            return
        place, self._items = self._items, self._items + 1
        for event in held:
            if event.type == _ADDED:
                begun = item.model_copy(update={"arguments": "", "status": "in_progress"})
                yield self._numbered(event, output_index=place, item=begun)
            elif event.type == _DONE:
                yield self._numbered(event, output_index=place, item=item)
            elif event.type.endswith("arguments.done"):
                yield self._numbered(event, output_index=place, arguments=item.arguments)
            elif event.type.endswith("arguments.delta") and _is_unchanged(held, item):
                yield self._numbered(event, output_index=place)


def _is_unchanged(held: Sequence[Any], item: Any) -> bool:
    return any(e.type == _DONE and e.item.arguments == item.arguments for e in held)


def _item_id(event: Any) -> str:
    item = getattr(event, "item", None)
    return str(getattr(event, "item_id", None) or getattr(item, "id", None) or "")
