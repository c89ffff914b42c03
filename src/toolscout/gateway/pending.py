"""Calls that wait: for answers to questions of their servers, or for a person's approval.

A server of the handshake era asks questions during a call, but a client of 2026-07-28 cannot be
asked during a call. The gateway therefore answers the client with the questions and a state, and
`PendingCalls` keeps the call open at the server. The call goes on when the client repeats it with
its answers and that state. `CallApprovals` knows what people agreed to where a rule says that
they must be asked. `forward` does the asking.
"""

import asyncio
import hashlib
import itertools
import json
import secrets
import threading
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, TypeVar

import mcp_types as types
from pydantic import TypeAdapter, ValidationError

from toolscout.config.secrets import SecretMask
from toolscout.errors import NotPending
from toolscout.names import escape_hidden, is_exposed_name, to_one_line
from toolscout.policies import Decision
from toolscout.schemas import Json, to_canonical_json
from toolscout.servers.connection import INPUT_REQUIRED, Relay
from toolscout.sessions.texts import APPROVAL_QUESTION, NOT_SHOWN
from toolscout.stores.store import Store
from toolscout.tools import Tool

PENDING_CALLS_MAX = 256
STATE_BYTES = 24
SCOPES = ("once", "session")
"""What a person can agree to: this call, or all calls of the tool in this session."""
DENIED = "denied"
APPROVAL_KIND = "call-approval"
APPROVAL_SECONDS = 86_400.0
"""How long a call waits for a person in the store, and how long the decision holds."""
REQUESTS_KEPT = 500
"""Calls that may wait in the store at the same time."""
APPROVALS_KEPT = 10_000
ARGUMENT_CHARS = 2_000
REASON_CHARS = 300
DIGEST_CHARS = 32
"""Long enough that nobody finds two calls with the same digest."""

Abilities = types.ClientCapabilities | None
"""The capabilities that a client has declared."""
Work = Callable[[Relay], Coroutine[Any, Any, Json]]
"""Makes a call; questions that the server asks meanwhile go to the relay."""

RESULT_TYPES: Mapping[type[types.InputRequest], tuple[type[Any], ...]] = {
    types.CreateMessageRequest: (types.CreateMessageResult, types.CreateMessageResultWithTools),
    types.ElicitRequest: (types.ElicitResult,),
    types.ListRootsRequest: (types.ListRootsResult,),
}
"""The results that may answer each type of question."""
_OTHER_KIND = types.ErrorData(
    code=types.INVALID_PARAMS, message="The client's answer does not fit the question."
)
_UNANSWERED = types.ErrorData(
    code=types.INTERNAL_ERROR, message="The client has not answered, and its call is over."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class CallKey:
    """Identifies a call and its session; only a request with an equal key resumes a call."""

    session: str
    tool: str
    """The exposed name of a tool or prompt, or the address of a resource."""
    arguments: Json


@dataclass(frozen=True, slots=True, kw_only=True)
class _Question:
    request: types.InputRequest
    answer: asyncio.Future[types.InputResponse | types.ErrorData]


class PendingCalls:
    """The calls of one gateway that wait for answers."""

    def __init__(self) -> None:
        self.waiting: dict[str, tuple[_PendingCall, asyncio.TimerHandle]] = {}

    async def run(
        self,
        key: CallKey,
        work: Work,
        *,
        relay: Relay,
        abilities: Abilities,
        state: str | None,
        answers: Mapping[str, types.InputResponse] | None,
        seconds: float,
    ) -> Json:
        """Return the result of a call, or the questions that the client must answer first.

        A request with a state resumes its call and does not start `work`. Raises `NotPending`
        if the state is unknown, expired or of another call. The relay receives progress and log
        messages while the request is open. Each answer may take `seconds`.
        """
        pending = _PendingCall(key, work) if state is None else self._take(state, key)
        await pending.follow(relay, abilities, answers or {})
        if pending.work.done():
            return pending.work.result()
        return {
            "resultType": INPUT_REQUIRED,
            "inputRequests": {
                key: question.request.model_dump(by_alias=True, mode="json", exclude_none=True)
                for key, question in pending.questions.items()
            },
            "requestState": self._keep(pending, seconds),
        }

    async def close(self) -> None:
        """Cancel all pending calls and wait until they have ended."""
        ending = [self._drop(state) for state in list(self.waiting)]
        await asyncio.gather(*(asyncio.wait((pending.work,)) for pending in ending))

    def _keep(self, pending: "_PendingCall", seconds: float) -> str:
        state = secrets.token_urlsafe(STATE_BYTES)
        loop = asyncio.get_running_loop()
        timer = loop.call_later(seconds, self._drop, state)
        self.waiting[state] = pending, timer
        if len(self.waiting) > PENDING_CALLS_MAX:
            # Whoever has the most waiting makes room, so that nobody ends the calls of others.
            sessions = Counter(kept.key.session for kept, _ in self.waiting.values())
            most, _ = sessions.most_common(1)[0]
            oldest = (key for key, (kept, _) in self.waiting.items() if kept.key.session == most)
            self._drop(next(oldest))
        return state

    def _take(self, state: str, key: CallKey) -> "_PendingCall":
        pending, timer = self.waiting.get(state, (None, None))
        if pending is None or timer is None or pending.key != key:
            raise NotPending
        del self.waiting[state]
        timer.cancel()
        return pending

    def _drop(self, state: str) -> "_PendingCall":
        pending, timer = self.waiting.pop(state)
        timer.cancel()
        pending.work.cancel()
        return pending


class _PendingCall:
    """One call at its server, and the relay that its questions go to."""

    def __init__(self, key: CallKey, work: Work) -> None:
        self.key = key
        self._abilities: Abilities = None
        self._relay: Relay | None = None
        self.questions: dict[str, _Question] = {}
        self._keys = map("question-{}".format, itertools.count(1))
        self._news = asyncio.Event()
        self.work = asyncio.create_task(work(self))
        self.work.add_done_callback(self._end)

    async def follow(
        self, relay: Relay, abilities: Abilities, answers: Mapping[str, types.InputResponse]
    ) -> None:
        """Hand over a request's answers, then wait for the end of the call or an open question."""
        self._relay = relay
        self._abilities = abilities
        for key, answer in answers.items():
            self._settle(key, answer)
        try:
            while not self.questions and not self.work.done():
                self._news.clear()
                await self._news.wait()
        except asyncio.CancelledError:
            self.work.cancel()
            raise
        finally:
            self._relay = None

    async def report_progress(
        self, progress: float, total: float | None, message: str | None
    ) -> None:
        """Pass progress on to the client while one of its requests is open."""
        if self._relay is not None:
            await self._relay.report_progress(progress, total, message)

    async def log(self, params: types.LoggingMessageNotificationParams) -> None:
        """Pass a log message on to the client while one of its requests is open."""
        if self._relay is not None:
            await self._relay.log(params)

    async def ask(self, request: types.InputRequest) -> types.InputResponse | types.ErrorData:
        """Keep a question until a request of the client answers it."""
        refusal = check_abilities(request, self._abilities)
        if refusal is not None or self.work.done():
            return refusal or _UNANSWERED
        key = next(self._keys)
        question = _Question(request=request, answer=asyncio.Future())
        self.questions[key] = question
        self._news.set()
        try:
            answer = await question.answer
        finally:
            self.questions.pop(key, None)
        expected = (types.ErrorData, *RESULT_TYPES[type(request)])
        return answer if isinstance(answer, expected) else _OTHER_KIND

    def _settle(self, key: str, answer: types.InputResponse | types.ErrorData) -> None:
        question = self.questions.pop(key, None)
        if question is not None and not question.answer.done():
            question.answer.set_result(answer)

    def _end(self, work: asyncio.Task[Json]) -> None:
        if not work.cancelled():
            work.exception()  # or asyncio warns if the client never comes back
        for key in list(self.questions):
            self._settle(key, _UNANSWERED)
        self._news.set()


def check_abilities(request: types.InputRequest, abilities: Abilities) -> types.ErrorData | None:
    """Return an error for the server if the client has not declared the requested ability."""
    declared = abilities or types.ClientCapabilities()
    missing = ""
    match request:
        case types.CreateMessageRequest(params=params):
            has_tools = params.tools is not None or params.tool_choice is not None
            if declared.sampling is None:
                missing = "sampling"
            elif has_tools and declared.sampling.tools is None:
                missing = "tools in sampling"
        case types.ElicitRequest(params=params):
            elicitation = declared.elicitation
            if elicitation is None:
                missing = "elicitation"
            elif isinstance(params, types.ElicitRequestURLParams):
                missing = "" if elicitation.url else "elicitation by URL"
            elif elicitation.url and not elicitation.form:
                # No mode at all means forms, the only mode for clients before 2025-11-25.
                missing = "elicitation by form"
        case types.ListRootsRequest():
            missing = "" if declared.roots else "roots"
    if not missing:
        return None
    message = f"The client does not support {missing}."
    return types.ErrorData(code=types.METHOD_NOT_FOUND, message=message)


# Calls that a person has to approve.


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalRequest:
    """A call that waits in the store until a person approves it there."""

    principal: str
    session: str
    """A digest of the session's id."""
    tool: str
    server: str
    arguments: str
    """As JSON, cut if it is long."""
    rule: str
    asked: float
    """When the model first tried the call, in seconds since 1970."""
    scope: str = ""
    """`once` or `session` after it was approved, `denied` after that, empty before."""
    by: str = ""
    decided: float = 0.0
    """When a person decided, in seconds since 1970."""

    @property
    def outcome(self) -> str:
        """What a person decided, in a word or two; empty before."""
        return f"approved {self.scope}" if self.scope in SCOPES else self.scope

    def is_current(self, now: float) -> bool:
        """Tell whether it still waits, or the decision still holds."""
        return now - max(self.asked, self.decided) < APPROVAL_SECONDS

    def to_json(self) -> Json:
        """Return it as the store keeps it."""
        return asdict(self)


_STORED_REQUEST = TypeAdapter(ApprovalRequest)


class CallApprovals:
    """What people agreed to, of the calls that rules let through only after asking."""

    def __init__(
        self,
        store: Store,
        clock: Callable[[], float] = time.time,
        mask: SecretMask | None = None,
    ) -> None:
        self.mask = mask or SecretMask()
        """Hides secrets in the arguments that are stored."""
        self.on_answer: Callable[[str, Tool, Decision, str, str], None] | None = None
        """Called with session, tool, decision, the answer to a question, and who gave it."""
        self._store = store
        self._clock = clock
        self._lock = threading.Lock()
        self._agreed: OrderedDict[tuple[str, str, str], None] = OrderedDict()
        """Sessions, tools by fingerprint, and rules that were allowed until the session ends."""
        self._asked: OrderedDict[str, str] = OrderedDict()
        """The digest of the call behind each state that a client sends back with its answer."""
        self._open: OrderedDict[tuple[str, str | None], None] = OrderedDict()
        """Digests and states of approved calls that their server has answered with a question."""

    def is_agreed(self, session: str, tool: Tool, decision: Decision) -> bool:
        """Tell whether a person agreed to all calls of a tool that a rule asks about."""
        is_agreed = (session, tool.fingerprint, decision.rule) in self._agreed
        return is_agreed and not decision.each

    def add(self, session: str, tool: Tool, decision: Decision, *, scope: str) -> None:
        """Note that a person agreed, to this call or to all that the rule asks about."""
        if scope == SCOPES[1] and not decision.each:
            _put(self._agreed, (session, tool.fingerprint, decision.rule), None)

    def tell(self, session: str, tool: Tool, decision: Decision, outcome: str, by: str) -> None:
        """Tell whoever listens how a question was answered."""
        if self.on_answer is not None:
            self.on_answer(session, tool, decision, outcome, by)

    def keep_open(self, digest: str, state: str | None) -> None:
        """Let an approved call be repeated once, with answers to questions of its server."""
        _put(self._open, (digest, state), None)

    def take_open(self, digest: str, state: str | None) -> bool:
        """Tell whether an approved call is repeated with such answers, which can be done once."""
        is_open = (digest, state) in self._open
        self._open.pop((digest, state), None)
        return is_open

    def add_state(self, digest: str) -> str:
        """Return a state that a client has to send back with its answer about a call."""
        state = secrets.token_urlsafe(STATE_BYTES)
        _put(self._asked, state, digest)
        return state

    def take_state(self, state: str | None, digest: str) -> bool:
        """Tell whether a state is that of a call; it can be used once."""
        return state is not None and self._asked.pop(state, "") == digest

    def find_stored(self, digest: str, request: ApprovalRequest) -> ApprovalRequest:
        """Return a call with what a person decided about it in the store, or keep it there.

        An approval is used up; a denial holds as long as an approval would. This reads from the
        store.
        """
        now = self._clock()
        # Or two equal calls at the same time would both use one approval.
        with self._lock:
            found = read_request(self._store, digest)
            if found is not None and found.is_current(now):
                if found.scope in SCOPES:
                    self._store.write(APPROVAL_KIND, digest, None)
                return found
            _write_request(self._store, digest, request)
            _remove_old_requests(self._store, now)
        return request


def read_request(store: Store, digest: str) -> ApprovalRequest | None:
    """Return a call that waits in the store, or None."""
    value = store.read(APPROVAL_KIND, digest)
    if value is None:
        return None
    try:
        return _STORED_REQUEST.validate_json(value)
    except ValidationError:
        return None


def list_requests(store: Store) -> dict[str, ApprovalRequest]:
    """Return the calls that wait in the store or were decided there, by their digest.

    The newest come first.
    """
    now = time.time()
    found = [(key, read_request(store, key)) for key in store.keys(APPROVAL_KIND)]
    current = [(key, one) for key, one in found if one is not None and one.is_current(now)]
    return dict(sorted(current, key=lambda item: -item[1].asked))


def decide_request(store: Store, digest: str, scope: str, by: str) -> ApprovalRequest | None:
    """Approve or deny a call that waits in the store, or return None if it does not."""
    now = time.time()
    request = read_request(store, digest)
    if request is None or not request.is_current(now):
        return None
    decided = replace(request, scope=scope, by=by, decided=now)
    _write_request(store, digest, decided)
    return decided


def _remove_old_requests(store: Store, now: float) -> None:
    """Delete what no longer counts, and the oldest of whoever has most if there is too much."""
    keys = store.keys(APPROVAL_KIND)
    if len(keys) <= REQUESTS_KEPT:
        return
    rest: dict[str, list[tuple[float, str]]] = {}
    surplus = len(keys) - REQUESTS_KEPT
    for key in keys:
        request = read_request(store, key)
        if request is not None and request.is_current(now):
            rest.setdefault(request.principal, []).append((request.asked, key))
        else:
            store.write(APPROVAL_KIND, key, None)
            surplus -= 1
    for requests in rest.values():
        requests.sort(reverse=True)
    for _ in range(surplus):
        store.write(APPROVAL_KIND, max(rest.values(), key=len).pop()[1], None)


def _write_request(store: Store, digest: str, request: ApprovalRequest) -> None:
    store.write(APPROVAL_KIND, digest, json.dumps(request.to_json()).encode())


def digest_call(principal: str, session: str, tool: Tool, arguments: Json) -> str:
    """Return what identifies a call, its caller and the definition of its tool."""
    whole = [principal, session, tool.name, tool.fingerprint, arguments]
    return hashlib.sha256(to_canonical_json(whole)).hexdigest()[:DIGEST_CHARS]


def build_question(
    tool: Tool, arguments: Json, decision: Decision, mask: SecretMask
) -> types.ElicitRequest:
    """Return the question whether a call may be made."""
    reason = f" {to_one_line(decision.reason, REASON_CHARS)}" if decision.reason else ""
    # A server chooses the names of its tools, and could write a question of its own there.
    name = tool.leaf if is_exposed_name(tool.leaf) else tool.name
    text = APPROVAL_QUESTION.format(
        tool=name, server=tool.server, arguments=format_arguments(arguments, mask), reason=reason
    )
    scopes = SCOPES[:1] if decision.each else SCOPES
    schema: Json = {
        "type": "object",
        "properties": {"decision": {"type": "string", "title": "Allow", "enum": [*scopes, "no"]}},
        "required": ["decision"],
    }
    params = types.ElicitRequestFormParams(message=text, requested_schema=schema)
    return types.ElicitRequest(params=params)


def format_arguments(arguments: Json, mask: SecretMask) -> str:
    """Return arguments as JSON for a person to read, without secrets and cut if they are long.

    Then the shortest come first, so that a long one does not hide what else is sent.
    """
    hide = mask.apply
    text = hide(json.dumps(arguments, ensure_ascii=False))
    more = len(text) - ARGUMENT_CHARS
    if more <= 0:
        return escape_hidden(text)
    parts = [hide(json.dumps({key: arguments[key]}, ensure_ascii=False))[1:-1] for key in arguments]
    text = f"{{{', '.join(sorted(parts, key=len))}}}"
    return escape_hidden(text[:ARGUMENT_CHARS]) + NOT_SHOWN.format(more=more)


_Key = TypeVar("_Key")
_Value = TypeVar("_Value")


def _put(kept: "OrderedDict[_Key, _Value]", key: _Key, value: _Value) -> None:
    kept[key] = value
    if len(kept) > APPROVALS_KEPT:
        kept.popitem(last=False)
