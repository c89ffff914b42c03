"""`PendingCalls`: calls that wait at their servers until the client sends an answer.

A server of the handshake era asks questions during a call, but a client of 2026-07-28 cannot be
asked during a call. The gateway therefore answers the client with the questions and a state, and
keeps the call open at the server. The call goes on when the client repeats it with its answers and
that state. `forward` handles the clients that can be asked at once.
"""

import asyncio
import itertools
import secrets
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from typing import Any

import mcp_types as types

from toolscout.errors import InvalidRequest
from toolscout.schemas import Json
from toolscout.servers.connection import Relay

INPUT_REQUIRED = "input_required"
SUSPENDED_LIMIT = 256
STATE_BYTES = 24

Abilities = types.ClientCapabilities | None
"""The capabilities that a client has declared."""
Work = Callable[[Relay], Coroutine[Any, Any, Json]]
"""Makes a call; questions that the server asks meanwhile go to the relay."""

_SAMPLED = (types.CreateMessageResult, types.CreateMessageResultWithTools)
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
class ClientRequest:
    """One request that a client sends for a call: the first one, or one with answers."""

    relay: Relay
    """Receives progress and log messages while the request is open."""
    abilities: Abilities = None
    state: str | None = None
    answers: Mapping[str, types.InputResponse] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Question:
    request: types.InputRequest
    answer: asyncio.Future[types.InputResponse | types.ErrorData]


class PendingCalls:
    """The calls of one gateway that wait for answers."""

    def __init__(self, *, limit: int = SUSPENDED_LIMIT) -> None:
        self._limit = limit
        self._waiting: dict[str, tuple[_PendingCall, asyncio.TimerHandle]] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    async def run(
        self, key: CallKey, request: ClientRequest, work: Work, *, seconds: float
    ) -> Json:
        """Return the result of a call, or the questions that the client must answer first.

        A request with a state resumes its call and does not start `work`. Raises `InvalidRequest`
        if the state is unknown, expired or of another call. Each answer may take `seconds`.
        """
        if request.state is None:
            pending = _PendingCall(key, work)
        else:
            pending = self._take(request.state, key)
        await pending.follow(request)
        if pending.is_over:
            return pending.get_result()
        return {
            "resultType": INPUT_REQUIRED,
            "inputRequests": pending.list_questions(),
            "requestState": self._keep(pending, seconds),
        }

    async def close(self) -> None:
        """Cancel what is suspended and wait until it has ended."""
        ending = [self._drop(state) for state in list(self._waiting)]
        await asyncio.gather(*(pending.wait_until_done() for pending in ending))

    def _keep(self, pending: "_PendingCall", seconds: float) -> str:
        state = secrets.token_urlsafe(STATE_BYTES)
        loop = asyncio.get_running_loop()
        timer = loop.call_later(seconds, self._drop, state)
        self._waiting[state] = pending, timer
        if len(self._waiting) > self._limit:
            self._drop(next(iter(self._waiting)))
        return state

    def _take(self, state: str, key: CallKey) -> "_PendingCall":
        pending, timer = self._waiting.get(state, (None, None))
        if pending is None or timer is None or pending.key != key:
            raise InvalidRequest(
                "Not called: no call of yours waits for this answer, or not any more",
                remedy="Make the call again, without a request state.",
            )
        del self._waiting[state]
        timer.cancel()
        return pending

    def _drop(self, state: str) -> "_PendingCall":
        pending, timer = self._waiting.pop(state)
        timer.cancel()
        pending.cancel()
        return pending


class _PendingCall:
    """One call at its server, and the relay that its questions go to."""

    def __init__(self, key: CallKey, work: Work) -> None:
        self.key = key
        self._abilities: Abilities = None
        self._relay: Relay | None = None
        self._questions: dict[str, _Question] = {}
        self._keys = map("question-{}".format, itertools.count(1))
        self._news = asyncio.Event()
        self._work = asyncio.create_task(work(self))
        self._work.add_done_callback(self._end)

    @property
    def is_over(self) -> bool:
        """Whether the call has ended, successfully or not."""
        return self._work.done()

    def get_result(self) -> Json:
        """Return the server's answer, or raise the error that ended the call."""
        return self._work.result()

    def list_questions(self) -> Json:
        """Return the open questions by key, in the form that is sent to the client."""
        return {
            key: question.request.model_dump(by_alias=True, mode="json", exclude_none=True)
            for key, question in self._questions.items()
        }

    async def follow(self, request: ClientRequest) -> None:
        """Hand over a request's answers, then wait for the end of the call or an open question."""
        self._relay = request.relay
        self._abilities = request.abilities
        for key, answer in (request.answers or {}).items():
            self._settle(key, answer)
        try:
            while not self._questions and not self.is_over:
                self._news.clear()
                await self._news.wait()
        except asyncio.CancelledError:
            self.cancel()
            raise
        finally:
            self._relay = None

    def cancel(self) -> None:
        """Cancel the call at its server."""
        self._work.cancel()

    async def wait_until_done(self) -> None:
        """Wait for the end of the call."""
        await asyncio.wait((self._work,))

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

    async def sample(self, params: types.CreateMessageRequestParams) -> Any:
        """Have the client's model complete a message."""
        return await self._ask_client(types.CreateMessageRequest(params=params), _SAMPLED)

    async def elicit(self, params: types.ElicitRequestParams) -> Any:
        """Ask the client's user."""
        return await self._ask_client(types.ElicitRequest(params=params), types.ElicitResult)

    async def list_roots(self) -> Any:
        """Ask for the client's roots."""
        return await self._ask_client(types.ListRootsRequest(), types.ListRootsResult)

    async def _ask_client(
        self, request: types.InputRequest, expected: type[Any] | tuple[type[Any], ...]
    ) -> types.InputResponse | types.ErrorData:
        refusal = check_abilities(request, self._abilities)
        if refusal is not None or self.is_over:
            return refusal or _UNANSWERED
        key = next(self._keys)
        question = _Question(request=request, answer=asyncio.Future())
        self._questions[key] = question
        self._news.set()
        try:
            answer = await question.answer
        finally:
            self._questions.pop(key, None)
        return answer if isinstance(answer, (types.ErrorData, expected)) else _OTHER_KIND

    def _settle(self, key: str, answer: types.InputResponse | types.ErrorData) -> None:
        question = self._questions.pop(key, None)
        if question is not None and not question.answer.done():
            question.answer.set_result(answer)

    def _end(self, work: asyncio.Task[Json]) -> None:
        if not work.cancelled():
            work.exception()  # or asyncio warns if the client never comes back
        for key in list(self._questions):
            self._settle(key, _UNANSWERED)
        self._news.set()


def check_abilities(request: types.InputRequest, abilities: Abilities) -> types.ErrorData | None:
    """Return an error for the server if the client has not declared the requested ability."""
    match request:
        case types.CreateMessageRequest():
            missing = _find_missing_in_sampling(request.params, abilities)
        case types.ElicitRequest():
            missing = _find_missing_in_elicitation(request.params, abilities)
        case types.ListRootsRequest():
            missing = "" if abilities and abilities.roots else "roots"
    if not missing:
        return None
    message = f"The client does not support {missing}."
    return types.ErrorData(code=types.METHOD_NOT_FOUND, message=message)


def _find_missing_in_sampling(
    params: types.CreateMessageRequestParams, abilities: Abilities
) -> str:
    sampling = abilities.sampling if abilities else None
    if sampling is None:
        return "sampling"
    has_tools = params.tools is not None or params.tool_choice is not None
    return "tools in sampling" if has_tools and sampling.tools is None else ""


def _find_missing_in_elicitation(params: types.ElicitRequestParams, abilities: Abilities) -> str:
    elicitation = abilities.elicitation if abilities else None
    if elicitation is None:
        return "elicitation"
    if isinstance(params, types.ElicitRequestURLParams):
        return "" if elicitation.url else "elicitation by URL"
    # No mode at all means forms, the only mode for clients before 2025-11-25.
    return "elicitation by form" if elicitation.url and not elicitation.form else ""
