"""`Provider`: a scripted model behind the real wire formats, on loopback.

It answers Chat Completions, Responses, Messages and Gemini, as JSON and as a stream, with the
moves of a script, and refuses with 400 what the real providers refuse. `requests` has all that it
received. It uses the standard library only, because it runs with every SDK.
"""

import json
import re
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self, cast

from adapters.bodies import Json, as_object
from adapters.moves import Action, Call, Hosted, Move, call, calls_of, hosted, unoffered
from adapters.wires.chat import ChatWire
from adapters.wires.gemini import GeminiWire
from adapters.wires.messages import MessagesWire
from adapters.wires.requests import Request
from adapters.wires.responses import ResponsesWire
from adapters.wires.views import Definition, History, Ids, Made, Wire

__all__ = [
    "Action",
    "Call",
    "Definition",
    "History",
    "Hosted",
    "Made",
    "Move",
    "Provider",
    "Refusal",
    "Request",
    "call",
    "hosted",
    "unoffered",
]

_PATHS: tuple[tuple[re.Pattern[str], Wire], ...] = (
    (re.compile(r"(/v\d+)?/chat/completions"), ChatWire()),
    (re.compile(r"(/v\d+)?/responses"), ResponsesWire()),
    (re.compile(r"(/v\d+)?/messages"), MessagesWire()),
    (re.compile(r"(/v\d\w*)?/models/[^/]+:(generateContent|streamGenerateContent)"), GeminiWire()),
)
_COUNTING = re.compile(r"(/v\d+)?/messages/count_tokens|.*:countTokens")
_MODELS = re.compile(r"(/v\d\w*)?/models(/[^/:]+)?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """A request that the real provider would not take, and why."""

    dialect: str
    path: str
    message: str


class Provider:
    """Plays a script to its clients, and remembers their requests.

    Leaving the `with` block raises if a request was refused and the test did not take the
    refusal, if a move did not fit its request, or if moves are left over.
    """

    def __init__(self, script: Sequence[Move] | Mapping[str, Sequence[Move]] = ()) -> None:
        """`script` may be several, each by a text that only its conversation's user says."""
        scripts = script if isinstance(script, Mapping) else {"": script}
        self.requests: list[Request] = []
        self.refusals: list[Refusal] = []
        self.faults: list[str] = []
        """Mistakes of the script or the agent, found while answering."""
        self._scripts = {mark: list(moves) for mark, moves in scripts.items()}
        self._kept: dict[str, tuple[Request, Json]] = {}
        self._continued: set[str] = set()
        self._ids = Ids()
        self._lock = threading.Lock()
        self._server = _Server(self)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))

    @property
    def root_url(self) -> str:
        """Where the provider listens, without a version: for Anthropic's and Google's SDKs."""
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    @property
    def base_url(self) -> str:
        """The same with `/v1`: for OpenAI's SDK and all that speak like it."""
        return f"{self.root_url}/v1"

    def extend(self, moves: Sequence[Move], mark: str = "") -> None:
        """Add moves to a script."""
        with self._lock:
            self._scripts.setdefault(mark, []).extend(moves)

    def take_refusals(self) -> list[Refusal]:
        """Return the refusals so far, which then count as expected."""
        with self._lock:
            taken, self.refusals = self.refusals, []
            return taken

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
        found = list(self._findings(unplayed=error is None))
        if error is not None:
            for finding in found:
                error.add_note(finding)
        elif found:
            raise AssertionError("\n".join(found))

    def answer(self, wire: Wire, path: str, raw: bytes, headers: Mapping[str, str]) -> Json:
        """Return the answer to a request, or raise `_Refused`."""
        with self._lock:
            request = self._request(wire, path, raw, headers)
            self.requests.append(request)
            problem = next(wire.problems(request.whole, headers), "")
            if problem:
                self._refuse(request, problem)
            move = self._next_move(request)
        # Outside the lock: a move may wait for another conversation.
        action = move(request) if callable(move) else move
        with self._lock:
            self._check(request, action)
            answer = wire.answer(request.whole, action, self._ids)
            if "id" in answer:
                self._kept[str(answer["id"])] = (request, answer)
            return answer

    def _request(self, wire: Wire, path: str, raw: bytes, headers: Mapping[str, str]) -> Request:
        body = as_object(json.loads(raw))
        thread = as_object(body.get("thread"))
        earlier = thread.get("previous_message_id") or body.get("previous_response_id")
        request = Request(wire=wire, path=path, raw=raw, headers=headers)
        if not earlier:
            return request
        before = self._kept.get(str(earlier))
        if before is None:
            self._refuse(request, f"There is no conversation {earlier!r} to continue")
        if thread and earlier in self._continued:
            self._refuse(request, f"The thread was already continued from {earlier!r}")
        self._continued.add(str(earlier))
        return Request(wire=wire, path=path, raw=raw, headers=headers, before=before)

    def _refuse(self, request: Request, problem: str) -> None:
        refusal = Refusal(dialect=request.dialect, path=request.path, message=problem)
        self.refusals.append(refusal)
        raise Refused(problem)

    def _next_move(self, request: Request) -> Move:
        said = "\n".join(text for role, text in request.history.said if role == "user")
        marks = [mark for mark in self._scripts if mark in said]
        if not marks:
            self._fail(request, f"belongs to no script; there are {list(self._scripts)}")
        moves = self._scripts[marks[0]]
        if not moves:
            self._fail(request, "came after the end of the script. Add a move, or stop the agent")
        return moves.pop(0)

    def _check(self, request: Request, action: Action) -> None:
        found = action.names if isinstance(action, Hosted) else ()
        offered = request.offered_names | set(found)
        for made in calls_of(action):
            if made.name not in offered and not made.unoffered:
                some = _some(sorted(offered))
                self._fail(request, f"does not offer {made.name!r}, which the script calls: {some}")
            if made.name in offered and made.unoffered:
                self._fail(request, f"offers {made.name!r}; the script expects that it does not")
        undeclared = [name for name in found if name not in request.tool_names]
        if undeclared:
            self._fail(request, f"does not declare {undeclared}, which a hosted search finds")

    def _fail(self, request: Request, what: str) -> None:
        fault = f"Request {len(self.requests)} ({request.path}) {what}."
        self.faults.append(fault)
        raise Refused(fault)

    def _findings(self, *, unplayed: bool) -> Iterator[str]:
        yield from self.faults
        for refusal in self.refusals:
            yield f"The provider refused {refusal.path} ({refusal.dialect}): {refusal.message}."
        left = sum(map(len, self._scripts.values()))
        if left and unplayed and not self.faults:
            yield f"The agent stopped after {len(self.requests)} requests; moves left: {left}."


class Refused(Exception):
    """The request is answered with 400."""


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, provider: Provider) -> None:
        self.provider = provider
        super().__init__(("127.0.0.1", 0), _Handler)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        if not _MODELS.fullmatch(path):
            self._send_json({"error": {"message": f"Nothing is at {path}."}}, 404)
            return
        model = {"id": path.rpartition("/")[2], "object": "model", "type": "model"}
        listed = {"object": "list", "data": [model | {"id": "scripted"}], "has_more": False}
        self._send_json(listed if path.endswith("/models") else model)

    def do_POST(self) -> None:
        raw = self.rfile.read(int(self.headers.get("content-length") or 0))
        path = self.path.partition("?")[0]
        if _COUNTING.fullmatch(path):
            tokens = max(1, len(raw) // 4)
            self._send_json({"input_tokens": tokens, "totalTokens": tokens})
            return
        wire = next((wire for pattern, wire in _PATHS if pattern.fullmatch(path)), None)
        if wire is None:
            self._send_json({"error": {"message": f"Nothing is at {path}."}}, 404)
            return
        self._answer(wire, raw)

    def _answer(self, wire: Wire, raw: bytes) -> None:
        provider = cast("_Server", self.server).provider
        headers = {name.lower(): value for name, value in self.headers.items()}
        try:
            answer = provider.answer(wire, self.path, raw, headers)
        except Refused as error:
            self._send_json(wire.error(str(error)), 400)
            return
        except Exception as error:
            provider.faults.append(f"The provider broke at {self.path}: {error!r}")
            self._send_json(wire.error(repr(error)), 400)
            return
        body = as_object(json.loads(raw))
        if body.get("stream") is True or "streamGenerateContent" in self.path:
            self._send_events(wire.events(body, answer))
        else:
            self._send_json(answer)

    def _send_json(self, value: Mapping[str, Any], status: int = 200) -> None:
        self._send(json.dumps(value).encode(), "application/json", status)

    def _send_events(self, events: Iterator[str]) -> None:
        self._send("".join(events).encode(), "text/event-stream", 200)

    def _send(self, data: bytes, kind: str, status: int) -> None:
        self.send_response(status)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(data)))
        self.send_header("x-request-id", "req_0001")
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # as in the base
        """Say nothing: the requests are kept."""


def _some(names: list[str]) -> str:
    return ", ".join(names[:8]) + (f" and {len(names) - 8} more" if len(names) > 8 else "")
