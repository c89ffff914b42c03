"""`Confluence`: the streams of several rounds with OpenAI's Responses, as one stream for the host.

Takes the events of the SDK, round after round; gives those to pass on, numbered through. What the
model says goes on at once; calls are held back until the round is complete, because whether they
are the host's is decided then. The events are the SDK's own objects, of which only the public
members and `model_copy` are used, so that no SDK is imported here.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from toolscout.adapters.usages import add_usage
from toolscout.schemas import Json

_HELD = ("function_call", "tool_search_call")
_BEGINNINGS = ("response.created", "response.in_progress", "response.queued")
_ADDED, _DONE, _COMPLETED = (
    "response.output_item.added",
    "response.output_item.done",
    "response.completed",
)


class Confluence:
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
