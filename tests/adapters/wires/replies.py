"""An answer of OpenAI's Responses as a stream: lifecycle, items and their pieces, in order."""

from collections.abc import Iterator
from itertools import count
from typing import Any

from adapters.bodies import objects
from adapters.wires.views import event, pieces

Json = dict[str, Any]


def response_events(answer: Json) -> Iterator[str]:
    """Yield the events of an answer, numbered."""
    numbers = count()
    for data in _all(answer):
        yield event(data | {"sequence_number": next(numbers)}, str(data["type"]))


def _all(answer: Json) -> Iterator[Json]:
    begun: Json = answer | {"status": "in_progress", "output": [], "usage": None}
    yield {"type": "response.created", "response": begun}
    yield {"type": "response.in_progress", "response": begun}
    for at, item in enumerate(objects(answer["output"])):
        opened = _opened(item)
        yield {"type": "response.output_item.added", "output_index": at, "item": opened}
        for data in _inner(item):
            yield data | {"output_index": at, "item_id": item["id"]}
        yield {"type": "response.output_item.done", "output_index": at, "item": item}
    yield {"type": "response.completed", "response": answer}


def _opened(item: Json) -> Json:
    """Return an item as it is when it begins."""
    match item["type"]:
        case "message":
            return item | {"status": "in_progress", "content": []}
        case "function_call":
            return item | {"status": "in_progress", "arguments": ""}
        case _:
            return item | {"status": "in_progress"}


def _inner(item: Json) -> Iterator[Json]:
    if item["type"] == "function_call":
        yield from _arguments(str(item["arguments"]), str(item["name"]))
    for at, part in enumerate(objects(item.get("content"))):
        for data in _part(part):
            yield data | {"content_index": at}


def _arguments(written: str, name: str) -> Iterator[Json]:
    kind = "response.function_call_arguments"
    for piece in pieces(written):
        yield {"type": f"{kind}.delta", "delta": piece}
    yield {"type": f"{kind}.done", "arguments": written, "name": name}


def _part(part: Json) -> Iterator[Json]:
    text = str(part["text"])
    yield {"type": "response.content_part.added", "part": part | {"text": ""}}
    for piece in pieces(text):
        yield {"type": "response.output_text.delta", "delta": piece, "logprobs": []}
    yield {"type": "response.output_text.done", "text": text, "logprobs": []}
    yield {"type": "response.content_part.done", "part": part}
