"""`StreamMerger`: the streams of several requests to Anthropic as one stream for the user.

It takes the events of each round as JSON and returns those to forward, with blocks numbered
consecutively and one beginning and end. Text is forwarded at once. Calls are held back until the
round is complete, because only then is it known whether the user has to answer them.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from toolscout.adapters._toolkit import Json, add_usage, is_list, is_object

_TEXTS = {"text_delta": "text", "thinking_delta": "thinking", "signature_delta": "signature"}


def to_frame(event: Mapping[str, Any]) -> bytes:
    """Return an event as a server-sent event."""
    return f"event: {event.get('type')}\ndata: {json.dumps(event)}\n\n".encode()


class StreamMerger:
    """One stream out of several."""

    def __init__(self) -> None:
        self.blocks: list[Json] = []
        """The blocks of this round."""
        self._stop: Json = {}
        self._written: dict[int, str] = {}
        self._passed = 0
        """How many blocks of this round were forwarded."""
        self._next = 0
        """The number of the first block after those of earlier rounds."""
        self._begun = False
        self._usage: Json = {}
        self._total_usage: Json = {}

    def feed(self, event: Mapping[str, Any]) -> list[Json]:
        """Process an event of a round; return the events to forward."""
        match event.get("type"):
            case "message_start":
                self._stop = {}
                usage = event["message"].get("usage")
                self._usage = dict(usage) if is_object(usage) else {}
                is_first = not self._begun
                self._begun = True
                return [dict(event)] if is_first else []
            case "content_block_start":
                block = dict(event["content_block"])
                at = len(self.blocks)
                self.blocks.append(block)
                # Everything after a call waits too, so that blocks keep their order.
                if block.get("type") == "tool_use" or self._passed < at:
                    return []
                self._passed += 1
                return [{**event, "index": self._next + at}]
            case "content_block_delta" | "content_block_stop":
                return self._continue(event)
            case "message_delta":
                self._stop = dict(event)
                usage = event.get("usage")
                if is_object(usage):
                    self._usage |= {k: v for k, v in usage.items() if v is not None}
                return []
            case "message_stop":
                return []
            case _:
                return [dict(event)]

    @property
    def held(self) -> list[Json]:
        """The blocks of this round that were not forwarded."""
        return self.blocks[self._passed :]

    @property
    def stop_reason(self) -> str:
        """How this round ended; empty before its end."""
        delta = self._stop.get("delta")
        return str(delta.get("stop_reason") or "") if is_object(delta) else ""

    def end_round(
        self,
        blocks: Iterable[Mapping[str, Any]],
        stop_reason: str | None = None,
        *,
        last: bool = False,
    ) -> list[Json]:
        """Return the events of the blocks that replace the held ones.

        The last round ends the stream, with the usage of all rounds.
        """
        self._next += self._passed
        events = [event for block in blocks for event in self._emit_block(block)]
        self._total_usage = add_usage(self._total_usage, self._usage)
        self.blocks = []
        self._written = {}
        self._passed = 0
        self._usage = {}
        if not last:
            return events
        delta = self._stop.get("delta")
        ending: Json = dict(delta) if is_object(delta) else {}
        if stop_reason is not None:
            ending["stop_reason"] = stop_reason
        stop = self._stop | {"delta": ending, "usage": self._total_usage}
        return [*events, stop, {"type": "message_stop"}]

    def _continue(self, event: Mapping[str, Any]) -> list[Json]:
        at = int(event["index"])
        if event["type"] == "content_block_delta":
            self._add(at, event["delta"])
        elif written := self._written.pop(at, ""):
            try:
                self.blocks[at]["input"] = json.loads(written)
            except ValueError:  # cut off by a token limit; such a call is never made
                self.blocks[at]["input"] = {}
        return [{**event, "index": self._next + at}] if at < self._passed else []

    def _add(self, at: int, delta: Mapping[str, Any]) -> None:
        block = self.blocks[at]
        kind = str(delta.get("type"))
        if kind in _TEXTS:
            key = _TEXTS[kind]
            before = "" if key == "signature" else block.get(key) or ""  # a signature comes whole
            block[key] = before + delta[key]
        elif kind == "input_json_delta":
            self._written[at] = self._written.get(at, "") + delta["partial_json"]
        elif kind == "citations_delta":
            before = block.get("citations")
            block["citations"] = [*(before if is_list(before) else []), delta["citation"]]

    def _emit_block(self, block: Mapping[str, Any]) -> Iterator[Json]:
        at = self._next
        self._next += 1
        opened = dict(block)
        deltas: list[Json] = []
        if block.get("type") in ("tool_use", "server_tool_use"):
            written = json.dumps(block.get("input"), ensure_ascii=False)
            opened["input"] = {}
            deltas.append({"type": "input_json_delta", "partial_json": written})
        elif block.get("type") in ("text", "thinking"):
            for kind, key in _TEXTS.items():
                if block.get(key):
                    opened[key] = ""
                    deltas.append({"type": kind, key: block[key]})
        yield {"type": "content_block_start", "index": at, "content_block": opened}
        for delta in deltas:
            yield {"type": "content_block_delta", "index": at, "delta": delta}
        yield {"type": "content_block_stop", "index": at}
