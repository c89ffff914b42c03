"""`ResponsesLoop`: one request of a host to OpenAI's Responses, and the searches inside it.

It answers meta-tools and refused calls itself. The host gets them as finished `tool_search` items,
which it keeps and ignores. Other calls reach the host by the tool's own name, so that it runs, asks
and guards as usual. The kept items say what was found, so nothing has to be remembered between
requests, except if the provider keeps the conversation and a request holds only new items: then
a `Memory` has the rest.

`StreamMerger` merges the streams of several rounds into one for the host. Text is forwarded at
once. Calls are held back until the round is complete, because only then is it known who answers
them. The events are the SDK's objects, of which only public members and `model_copy` are used, so
that no SDK is imported here.
"""

import json
import threading
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Any, Generic, TypeVar

from toolscout import Mode, Reply, Session, Tool
from toolscout.adapters._toolkit import (
    CALL,
    SEARCH,
    ApprovedCall,
    Dialect,
    Json,
    Toolkit,
    add_usage,
    is_list,
    is_object,
    load_by_name,
    to_definition,
    to_object,
    to_search_output,
)
from toolscout.errors import UsageError

T = TypeVar("T")

MARK = "toolscout"
"""The member of a kept search's arguments with the call as the model made it."""
ROUNDS_LIMIT = 12
"""How many rounds a model may spend on nothing but searches."""
_CALL, _SEARCH = "function_call", "tool_search_call"
_DIALECT = Dialect.OPENAI_RESPONSES


class Memory:
    """The last states of conversations that a provider keeps, by the provider's ids."""

    def __init__(self, limit: int = 1_000) -> None:
        self._kept: OrderedDict[str, tuple[Json, list[Json], str]] = OrderedDict()
        self._limit = limit
        self._lock = threading.Lock()

    def get(self, key: str) -> tuple[Json | None, list[Json]]:
        """Return the session of a conversation, and the answers that it waits for."""
        with self._lock:
            return self._kept.get(key, (None, list[Json](), ""))[:2]

    def resolve(self, key: str) -> str:
        """Return the provider's id of a response that the host knows by another."""
        with self._lock:
            return self._kept[key][2] if key in self._kept else key

    def keep(self, loop: "ResponsesLoop[Any]", *keys: str | None, alias: str = "") -> None:
        """Keep the state after a loop; the oldest conversations leave.

        `alias` is the id by which the host knows the response that is the first key.
        """
        with self._lock:
            for key in filter(None, (alias, *keys)):
                self._kept[key] = (loop.session.to_json(), loop.waiting, keys[0] or key)
                self._kept.move_to_end(key)
            while len(self._kept) > self._limit:
                self._kept.popitem(last=False)


def check_rounds(count: int) -> None:
    """Raise `UsageError` if a model keeps searching."""
    if count >= ROUNDS_LIMIT:
        raise UsageError(
            f"The model did nothing but search in {count} rounds of one turn. "
            "Check its instructions and the descriptions of the tools."
        )


async def handle_call(
    toolkit: Toolkit[Any], session: Session, name: str, arguments: object
) -> ApprovedCall | Reply:
    """Answer a call, or approve it; its outcome stays unknown, because the host makes it."""
    # Arguments always come as JSON text here, so that is no mistake of the model's.
    given = to_object(arguments) or arguments
    verdict = await toolkit.handle(session, name, given)
    if isinstance(verdict, ApprovedCall):
        session.settle(verdict)
    return verdict or await session.handle(name, given)


def write_arguments(written: object, call: ApprovedCall) -> object:
    """Return the arguments of a call as text: the model's own, unless they were repaired."""
    if to_object(written) == call.arguments:
        return written
    return json.dumps(call.arguments, ensure_ascii=False)


class ResponsesLoop(Generic[T]):
    """One request of a host. `write` returns the host's own definition of a tool."""

    def __init__(
        self,
        toolkit: Toolkit[T],
        items: Iterable[Json],
        write: Callable[[T], Json],
        *,
        only: Collection[str] | None = None,
        others: Collection[str] = (),
        before: Memory | None = None,
        key: str = "",
    ) -> None:
        """`others` are functions of the host outside the toolkit, such as handoffs.

        `key` is the id of a conversation that the provider keeps, and `before` knows its state.
        """
        state, waiting = before.get(key) if before is not None else (None, [])
        self.session = toolkit.open_session("rounds", state, only=only)
        self.items = list(items)
        self.output: list[Json] = []
        """The output of all rounds for the host to keep."""
        self.waiting: list[Json] = []
        """Answers that the next request must send, together with those of the host."""
        self._toolkit = toolkit
        self._write = write
        self._others = others
        self._is_kept = bool(key)
        self._count = 0
        self._restore()
        self.input = [*waiting, *self._list_input()]
        """The items of the next request, as the model made them or should see them."""

    async def take(self, output: Iterable[Json]) -> bool:
        """Answer the calls in the model's output that are not the host's.

        Return whether the model must be asked again, because it waits for nothing else.
        """
        shown: list[Json] = []
        answers: list[Json] = []
        host_calls = 0
        for item in output:
            name = str(item.get("name"))
            arguments = item.get("arguments")
            if item.get("type") == _SEARCH and item.get("execution") == "client":
                reply = await self.session.handle(SEARCH, arguments)
                answers.append(self._create_search_output(item, reply.definitions))
                shown += [item | {"execution": "server"}, _mark_done(answers[-1])]
                continue
            verdict = None
            if item.get("type") == _CALL and name not in self._others:
                verdict = await handle_call(self._toolkit, self.session, name, arguments)
            if isinstance(verdict, Reply):
                answers.append(_create_output(item, verdict.text))
                shown += self._to_search_items(item, verdict)
                continue
            if verdict is not None:
                written = write_arguments(arguments, verdict)
                item = {k: v for k, v in item.items() if k != "namespace"}
                item |= {"name": verdict.tool.name, "arguments": written}
            shown.append(item)
            host_calls += item.get("type") == _CALL
        self.items += shown
        self.output += shown
        is_due = bool(answers) and not host_calls
        self._count += 1
        if is_due:
            check_rounds(self._count)
        self.waiting = [] if is_due else answers
        self.input = answers if self._is_kept else self._list_input()
        return is_due

    def _to_search_items(self, item: Json, reply: Reply) -> list[Json]:
        """Return an answered call as the finished search that the host keeps."""
        call_id = str(item.get("call_id"))
        call: Json = {
            "type": _SEARCH,
            "id": f"tsc_{call_id}",
            "call_id": call_id,
            "execution": "server",
            "status": "completed",
            "arguments": {MARK: {"call": item, "text": reply.text}},
        }
        found = [self.session.find_tool(name) for name in reply.references]
        tools = [tool for tool in found if tool is not None]
        return [call, _mark_done(self._create_search_output(item, tools))]

    def _create_search_output(self, item: Json, tools: Iterable[Tool]) -> Json:
        call_id = str(item.get("call_id"))
        return to_search_output(_DIALECT, call_id, tools, define=self._define)

    def _list_input(self) -> list[Json]:
        delivered: set[str] = set()
        marked: dict[str, Json] = {}
        listed: list[Json] = []
        for item in self.items:
            call_id = str(item.get("call_id"))
            name = str(item.get("name"))
            match item.get("type"):
                case "tool_search_call" if _is_kept(item):
                    mark = _read_mark(item)
                    if mark is not None:
                        marked[call_id] = mark
                    item = item | {"execution": "client"} if mark is None else mark["call"]
                case "tool_search_output" if _is_kept(item) and call_id in marked:
                    item = _create_output(item, marked[call_id]["text"])
                case "tool_search_output" if _is_kept(item):
                    delivered.update(_list_names(item))
                    item = {k: v for k, v in item.items() if k != "id"} | {"execution": "client"}
                case "function_call" if not self._is_direct(name, delivered):
                    request = {"name": name, "arguments": to_object(item.get("arguments"))}
                    written = json.dumps(request, ensure_ascii=False)
                    item = item | {"name": CALL, "arguments": written}
                case _:
                    pass
            listed.append(item)
        return listed

    def _is_direct(self, name: str, delivered: set[str]) -> bool:
        """Tell whether the model made a call by the tool's own name."""
        mode = self.session.settings.mode
        is_delivered = mode is Mode.DEFINITIONS and name in delivered
        return self.session.is_declared(name) or mode is Mode.NATIVE or is_delivered

    def _define(self, tool: Tool) -> Json:
        native = self._toolkit.get(tool.name)
        return to_definition(tool, _DIALECT) if native is None else self._write(native)

    def _restore(self) -> None:
        """Load the tools that the items loaded, in order."""
        answered_in_text: set[str] = set()
        for item in self.items:
            if _is_kept(item) and _read_mark(item) is not None:
                answered_in_text.add(str(item["call_id"]))
            elif item.get("type") == "tool_search_output" and _is_kept(item):
                tools = load_by_name(self.session, _list_names(item))
                if item["call_id"] not in answered_in_text:
                    self.session.note_delivered(tools)
            elif item.get("type") == _CALL and self._toolkit.get(str(item.get("name"))):
                # A refused call is a search among these items, so this one was approved.
                load_by_name(self.session, [item["name"]])
                self.session.touch(item["name"])


def _is_kept(item: Json) -> bool:
    """Tell whether a search is ours; those of the provider have no call to answer."""
    return item.get("execution") == "server" and isinstance(item.get("call_id"), str)


def _mark_done(output: Json) -> Json:
    # A host takes a search that is marked as the provider's for done.
    return {"id": f"tso_{output['call_id']}", **output, "execution": "server"}


def _read_mark(item: Json) -> Json | None:
    arguments = item.get("arguments")
    mark = arguments.get(MARK) if is_object(arguments) else None
    return mark if is_object(mark) else None


def _list_names(output: Json) -> list[str]:
    tools = output.get("tools")
    listed = tools if is_list(tools) else []
    return [str(tool["name"]) for tool in listed if is_object(tool) and "name" in tool]


def _create_output(item: Json, text: str) -> Json:
    return {"type": "function_call_output", "call_id": item.get("call_id"), "output": text}


_HELD = (_CALL, _SEARCH)
_BEGINNINGS = ("response.created", "response.in_progress", "response.queued")
_ADDED = "response.output_item.added"
_DONE = "response.output_item.done"


class StreamMerger:
    """The streams of several rounds as one."""

    def __init__(self) -> None:
        self.response: Any = None
        """The response of the round, when it is complete."""
        self.id = ""
        """The id of the response for the host: that of the first round of which it saw anything."""
        self._held: dict[str, list[Any]] = {}
        self._places: dict[int, int] = {}
        self._beginnings: list[Any] = []
        self._items = 0
        self._number = 0
        self._end: Any = None
        self._usage: Json = {}

    def feed(self, event: Any) -> Iterator[Any]:
        """Process an event; yield what is forwarded at once."""
        if event.type == "response.completed":
            self.response = event.response
            self._end = event
            if event.response.usage is not None:
                self._usage = add_usage(self._usage, event.response.usage.to_dict())
        elif event.type in _BEGINNINGS:
            if not self._number:
                # A round of which nothing is forwarded has not begun for the host.
                earlier = [e for e in self._beginnings if e.response.id == event.response.id]
                self._beginnings = [*earlier, event]
                self.id = str(event.response.id)
        else:
            item = getattr(event, "item", None)
            id_ = str(getattr(event, "item_id", None) or getattr(item, "id", None) or "")
            if event.type in (_ADDED, _DONE) and event.item.type in _HELD:
                self._held.setdefault(id_, [])
            if id_ in self._held:
                self._held[id_].append(event)
                return
            yield from self._emit_beginnings()
            yield self._place(event)

    def begin_round(self) -> None:
        """Forget the calls of a round that was answered."""
        self._places = {}
        self._held = {}
        self.response = None

    def end(self, output: Sequence[Any]) -> Iterator[Any]:
        """Yield the host's calls and the end of the stream."""
        yield from self._emit_beginnings()
        for item in output:
            yield from self._release(item)
        usage: Any = self.response.usage
        if usage is not None:
            usage = usage.construct(**self._usage)
        changed = {"id": self.id, "output": list(output), "usage": usage}
        whole = self.response.model_copy(update=changed)
        yield self._number_event(self._end.model_copy(update={"response": whole}))

    def _emit_beginnings(self) -> Iterator[Any]:
        while self._beginnings:
            yield self._number_event(self._beginnings.pop(0))

    def _place(self, event: Any) -> Any:
        at = getattr(event, "output_index", None)
        if at is None:
            return self._number_event(event)
        if at not in self._places:
            self._places[at] = self._items
            self._items += 1
        return self._number_event(event, output_index=self._places[at])

    def _number_event(self, event: Any, **changes: Any) -> Any:
        self._number += 1
        return event.model_copy(update={"sequence_number": self._number - 1, **changes})

    def _release(self, item: Any) -> Iterator[Any]:
        """Yield the events of a call with its final name and arguments."""
        held = self._held.get(getattr(item, "id", None) or "", ())
        if item.type != "function_call" or not held:
            return
        place = self._items
        self._items += 1
        ends = [event for event in held if event.type == _DONE]
        is_unchanged = any(event.item.arguments == item.arguments for event in ends)
        for event in held:
            if event.type == _ADDED:
                begun = item.model_copy(update={"arguments": "", "status": "in_progress"})
                yield self._number_event(event, output_index=place, item=begun)
            elif event.type == _DONE:
                yield self._number_event(event, output_index=place, item=item)
            elif event.type.endswith("arguments.done"):
                yield self._number_event(event, output_index=place, arguments=item.arguments)
            elif event.type.endswith("arguments.delta") and is_unchanged:
                yield self._number_event(event, output_index=place)
