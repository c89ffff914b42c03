"""`StreamMerger`: the streams of several rounds with a model, as one stream for the user.

Takes the events of Anthropic's stream as JSON, round after round; gives those to pass on, with
blocks numbered through and one beginning and end. What the model says goes on at once; its calls
are held back until the round is complete, because whether they are the user's is decided then.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from toolscout.adapters._toolkit import Json, add_usage, is_list, is_object

_TEXTS = {"text_delta": "text", "thinking_delta": "thinking", "signature_delta": "signature"}
_EMPTIED = ("text", "thinking")


def to_frame(event: Mapping[str, Any]) -> bytes:
    """Return an event as a stream carries it."""
    return f"event: {event.get('type')}\ndata: {json.dumps(event)}\n\n".encode()


class StreamMerger:
    """One stream out of several."""

    def __init__(self) -> None:
        self.blocks: list[Json] = []
        """What the model said in this round."""
        self._stop: Json = {}
        self._written: dict[int, str] = {}
        self._passed: dict[int, int] = {}
        self._next = 0
        self._begun = False
        self._usage: Json = {}
        self._spent: Json = {}

    def feed(self, event: Mapping[str, Any]) -> list[Json]:
        """Take an event of a round; return those to pass on."""
        match event.get("type"):
            case "message_start":
                return self._start(dict(event))
            case "content_block_start":
                return self._open(event)
            case "content_block_delta" | "content_block_stop":
                return self._go_on(event)
            case "message_delta":
                self._stop = dict(event)
                told = event.get("usage")
                known = {k: v for k, v in told.items() if v is not None} if is_object(told) else {}
                self._usage |= known
                return []
            case "message_stop":
                return []
            case _:
                return [dict(event)]

    @property
    def held(self) -> list[Json]:
        """The blocks of this round that were not passed on."""
        return [block for at, block in enumerate(self.blocks) if at not in self._passed]

    @property
    def stop_reason(self) -> str:
        """How this round ended; empty while it lasts."""
        said = self._stop.get("delta")
        return str(said.get("stop_reason") or "") if is_object(said) else ""

    def end_round(
        self,
        blocks: Iterable[Mapping[str, Any]],
        stop_reason: str | None = None,
        *,
        last: bool = False,
    ) -> list[Json]:
        """Return the events of blocks that stand in place of the held ones.

        The last round ends the stream, with what all of them have cost.
        """
        events = [event for block in blocks for event in self._written_out(block)]
        self._spent = add_usage(self._spent, self._usage)
        self.blocks, self._written, self._passed, self._usage = [], {}, {}, {}
        return [*events, *self._ending(stop_reason)] if last else events

    def _ending(self, stop_reason: str | None) -> list[Json]:
        said = self._stop.get("delta")
        delta: Json = dict(said) if is_object(said) else {}
        if stop_reason is not None:
            delta["stop_reason"] = stop_reason
        return [self._stop | {"delta": delta, "usage": self._spent}, {"type": "message_stop"}]

    def _start(self, event: Json) -> list[Json]:
        self._stop = {}
        usage = event["message"].get("usage")
        self._usage = dict(usage) if is_object(usage) else {}
        begun, self._begun = self._begun, True
        return [] if begun else [event]

    def _open(self, event: Mapping[str, Any]) -> list[Json]:
        block, at = dict(event["content_block"]), len(self.blocks)
        self.blocks.append(block)
        # Behind a call everything waits, so that blocks keep their order.
        if block.get("type") == "tool_use" or len(self._passed) < at:
            return []
        self._passed[at] = self._next
        self._next += 1
        return [{**event, "index": self._passed[at]}]

    def _go_on(self, event: Mapping[str, Any]) -> list[Json]:
        at = int(event["index"])
        if event["type"] == "content_block_stop":
            self._close(at)
        else:
            self._add(at, event["delta"])
        return [{**event, "index": self._passed[at]}] if at in self._passed else []

    def _add(self, at: int, delta: Mapping[str, Any]) -> None:
        block, kind = self.blocks[at], str(delta.get("type"))
        if kind in _TEXTS:
            key = _TEXTS[kind]
            before = "" if key == "signature" else block.get(key) or ""  # it comes whole
            block[key] = before + delta[key]
        elif kind == "input_json_delta":
            self._written[at] = self._written.get(at, "") + delta["partial_json"]
        elif kind == "citations_delta":
            before = block.get("citations")
            block["citations"] = [*(before if is_list(before) else []), delta["citation"]]

    def _close(self, at: int) -> None:
        written = self._written.pop(at, "")
        if written:
            try:
                self.blocks[at]["input"] = json.loads(written)
            except ValueError:  # cut off by a limit of tokens; such a call is never made
                self.blocks[at]["input"] = {}

    def _written_out(self, block: Mapping[str, Any]) -> Iterator[Json]:
        at, self._next = self._next, self._next + 1
        opened, deltas = _parts(dict(block))
        yield {"type": "content_block_start", "index": at, "content_block": opened}
        for delta in deltas:
            yield {"type": "content_block_delta", "index": at, "delta": delta}
        yield {"type": "content_block_stop", "index": at}


def _parts(block: Json) -> tuple[Json, list[Json]]:
    """Return a block as a stream begins it, and the pieces that follow."""
    if block.get("type") in ("tool_use", "server_tool_use"):
        written = json.dumps(block.get("input"), ensure_ascii=False)
        return {**block, "input": {}}, [{"type": "input_json_delta", "partial_json": written}]
    pieces: list[Json] = []
    for kind, key in _TEXTS.items():
        if key in block and isinstance(block[key], str) and block.get("type") in _EMPTIED:
            pieces.append({"type": kind, key: block[key]})
            block = {**block, key: ""}
    return block, [piece for piece in pieces if any(piece[k] for k in piece if k != "type")]
