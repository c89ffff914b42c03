"""`Connection`, the pool's view of a running server, whatever protocol it speaks.

Also here: `Relay`, which passes a server's messages back to the client that made the call,
`Relays`, which finds the right relay, `Delays`, errors for servers that cannot be used, and
`follow_task`, which waits for the result of a server's task.
The pool decides which connection a server gets and when it opens.
"""

import asyncio
import itertools
import re
from collections.abc import Awaitable, Callable, Generator, Set
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol
from urllib.parse import urlsplit

import mcp_types as types
from mcp.shared.exceptions import MCPError

from toolscout.config.servers import ServerConfig, Share
from toolscout.errors import CallFailed, IsolationFailed, ServerUnavailable, UpstreamError
from toolscout.names import clean_text, to_error_text
from toolscout.schemas import Json, clean_texts, is_object
from toolscout.servers.manifest import Manifest
from toolscout.tools import Tool

REASON_CHARS = 300
SAID_CHARS = 1_200
"""What a model reads of a failed call; its cause often stands at the end."""
FAILED, NEEDS_LOGIN, STOPPED = "failed", "needs login", "stopped"
"""The states in which a server is unavailable."""


_EMPTY_LINES = re.compile(r"\n\s*\n\s*")


class Relay(Protocol):
    """Passes what a server says or asks during a call back to the client that made the call."""

    async def report_progress(
        self, progress: float, total: float | None, message: str | None
    ) -> None:
        """Report the progress of the call."""
        ...

    async def log(self, params: types.LoggingMessageNotificationParams) -> None:
        """Pass on a log message."""
        ...

    async def ask(self, request: types.InputRequest) -> Any:
        """Ask the client for a completion, an input or its roots; return its answer or an error."""
        ...


class Connection(Protocol):
    """One running server. Open it before use; a connection that has ended cannot be reopened."""

    @property
    def ended(self) -> asyncio.Event:
        """Set once the server has gone or can no longer be used."""
        ...

    @property
    def reason(self) -> str:
        """Why the connection ended."""
        ...

    async def open(self, relay: Relay | None = None) -> None:
        """Start or reach the server; raises `ServerUnavailable` if that fails.

        A relay to the only client of a server lets the server ask for roots at its start.
        """
        ...

    async def close(self) -> None:
        """Stop the server and wait until it has ended."""
        ...

    async def read_manifest(self) -> Manifest:
        """Return what the server offers."""
        ...

    async def request(self, method: str, params: Json, relay: Relay | None = None) -> Json:
        """Send one request and return its raw result; raises `MCPError` for an error response.

        This sets no time limit. Cancelling it cancels the request at the server.
        """
        ...

    async def renew_roots(self, relay: Relay) -> None:
        """Tell the server that the roots of its only client have changed, so that it asks again."""
        ...

    async def watch(self, uris: Set[str], on_update: Callable[[str], None]) -> frozenset[str]:
        """Subscribe to exactly these resources; return those that the server accepted.

        Do not run two at once. Resources that were already subscribed miss no update.
        """
        ...


class ConnectionFactory(Protocol):
    """Creates connections without opening them."""

    def __call__(
        self, config: ServerConfig, *, on_change: Callable[[], None], on_line: Callable[[str], None]
    ) -> Connection:
        """Return a connection that reports changed lists and the lines written to stderr."""
        ...


def build_headers(config: ServerConfig) -> dict[str, str]:
    """Return the HTTP headers of a configuration, with its token."""
    headers = dict(config.headers)
    if config.token:
        headers["Authorization"] = f"Bearer {config.token}"
    return headers


def call_failed_from_error(name: str, error: MCPError) -> CallFailed:
    """Return the error that the model sees for an error response."""
    said = f"{error.error.message} (code {error.error.code})"
    return CallFailed(name, to_error_text(said, SAID_CHARS, keep_lines=True))


def describe_error(error: Exception) -> str:
    """Return what went wrong with a connection; the text may contain secrets."""
    if isinstance(error, MCPError):
        return error.error.message
    if isinstance(error, IsolationFailed):
        return str(error)
    if isinstance(error, FileNotFoundError):
        return "its command or folder was not found"
    if isinstance(error, PermissionError):
        return "its command may not be run"
    return f"{type(error).__name__}: {error}"


def make_unavailable_error(
    config: ServerConfig, reason: str, state: str = FAILED
) -> ServerUnavailable:
    """Return the error for a server that cannot be used, on one line and without its secrets."""
    reason = config.build_plain_mask().apply(reason)
    return ServerUnavailable(config.name, state, to_error_text(reason, REASON_CHARS))


@dataclass(frozen=True, slots=True, kw_only=True)
class Delays:
    """How long the pool waits for what, in seconds. Tests set shorter times."""

    first_retry: float = 0.5
    """Before the first restart after a failure; doubles with each further failure."""
    most_retry: float = 60.0
    change: float = 0.2
    """How long to collect notices of changed lists; doubles while more keep coming."""
    most_change: float = 30.0
    idle_look: float = 1.0
    """Between two checks for idle servers."""
    login_look: float = 1.0
    """Between two checks for new tokens of servers that need a login."""
    approval_look: float = 1.0
    """Between two checks for definitions that a person has approved elsewhere."""
    folder_look: float = 2.0
    """Between two checks for changes in folders of skills."""
    gate: float = 3.0
    """How long a slow start may hold up the next one."""
    drain: float = 10.0
    """For running calls to finish before their server is stopped."""
    exit: float = 2.0
    """For a process to exit by itself once its input is closed."""
    kill: float = 2.0
    """Between asking a process to exit and killing it."""
    install: float = 60.0
    """How long a package runner that installs something may hold up others."""
    install_exit: float = 10.0
    """Between asking a process that may be installing something to exit and killing it."""
    rest: float = 0.2
    """For the last output of a dead process to arrive, and for its children to exit."""
    roots: float = 0.5
    """For a server to look at the folders that its client has told it, before its first call."""


QUESTION = "The MCP server {server!r} asks: {text}"
PAGE_QUESTION = "The MCP server {server!r} asks you to open a page of {host}: {text}"
END_OF_QUESTION = "\n\n(This was a question of the MCP server {server!r}.)"
QUESTION_CHARS = 2_000
SHORT_CHARS = 300
"""A longer question, or one of several lines, names its server at the end too."""
NO_PAGE = "A page must have an http address without a name or password in it."
SAMPLING = "The MCP server {server!r} asks for this completion. {text}"
MAY_NOT_ASK = "This server may not ask anything; its option may_ask is off."
NOBODY = "No call is being worked on."
SEVERAL = "Several calls are being worked on, and it is not known which one asks."
TOO_MANY = "Too many questions wait for an answer."
QUESTIONS_MAX = 16
"""Questions of one server that may wait for an answer at the same time."""


class Relays:
    """The relays of running calls. Its methods are callbacks for the SDK.

    A server's question does not say which call it belongs to. While several calls run, the answer
    of one client could reach another client's call, so `Relays` then refuses to ask anyone, unless
    the connection has one client only.
    """

    def __init__(self, config: ServerConfig) -> None:
        self._config = config
        self._relays: list[Relay] = []
        self._asked = 0
        self._answered = asyncio.Event()

    @contextmanager
    def register(self, relay: Relay) -> Generator[None]:
        """Register a relay for the duration of a call."""
        self._relays.append(relay)
        try:
            yield
        finally:
            self._relays.remove(relay)

    async def sample(self, context: Any, params: types.CreateMessageRequestParams) -> Any:
        """Have a client's model complete a message."""
        return await self._ask(types.CreateMessageRequest(params=params))

    async def elicit(self, context: Any, params: types.ElicitRequestParams) -> Any:
        """Ask a client's user."""
        return await self._ask(types.ElicitRequest(params=params))

    async def list_roots(self, context: Any) -> Any:
        """Ask for a client's roots."""
        return await self._ask(types.ListRootsRequest())

    async def log(self, params: types.LoggingMessageNotificationParams) -> None:
        """Pass on a log message if it is known whose it is."""
        relay = self._find_relay()
        if relay is not None:
            await relay.log(params)

    async def wait_for_answers(self) -> bool:
        """Wait until no question is open; tell whether there was one."""
        was_asked = bool(self._asked)
        while self._asked:
            self._answered.clear()
            await self._answered.wait()
        return was_asked

    def _find_relay(self) -> Relay | None:
        is_certain = len(self._relays) == 1 or self._config.share is Share.SESSION
        return self._relays[-1] if self._relays and is_certain else None

    async def _ask(self, request: types.InputRequest) -> Any:
        message = SEVERAL if self._relays else NOBODY
        relay = self._find_relay()
        if not self._config.may_ask:
            message = MAY_NOT_ASK
        elif self._asked >= QUESTIONS_MAX:
            message = TOO_MANY
        elif relay is not None:
            plain = request.model_dump(by_alias=True, mode="json", exclude_none=True)
            try:
                named = name_sender(self._config, plain)
            except MCPError as error:
                return error.error
            self._asked += 1
            try:
                return await relay.ask(type(request).model_validate(named, by_name=False))
            finally:
                self._asked -= 1
                self._answered.set()
        return types.ErrorData(code=types.INVALID_REQUEST, message=message)


def name_sender(config: ServerConfig, question: Json) -> Json:
    """Return a server's question with the server's name, which the client could not tell otherwise.

    A question to the user cannot look like one of toolscout itself, and names the host of a page
    that the user should open. A completion gets no context: "this server" means the gateway to the
    client, with all servers. Raises `MCPError` for a page with a deceptive address.
    """
    params: object = question.get("params")
    if not is_object(params):
        return question
    changed = dict(params)
    if question.get("method") == "elicitation/create":
        said = clean_text(str(params.get("message") or ""), QUESTION_CHARS)
        said = _EMPTY_LINES.sub("\n\n", said).strip()
        host = _find_host(str(params.get("url"))) if "url" in params else ""
        form = PAGE_QUESTION if host else QUESTION
        changed["message"] = form.format(server=config.name, host=host, text=said)
        if len(said) > SHORT_CHARS or "\n" in said:
            changed["message"] += END_OF_QUESTION.format(server=config.name)
        if "requestedSchema" in params:
            changed["requestedSchema"] = clean_texts(params["requestedSchema"])
    elif question.get("method") == "sampling/createMessage":
        said = str(params.get("systemPrompt") or "")
        changed["systemPrompt"] = SAMPLING.format(server=config.name, text=said).strip()
        changed.pop("includeContext", None)
    return {**question, "params": changed}


def _find_host(url: str) -> str:
    """Return the host of a page as browsers spell it, or raise `MCPError`."""
    try:
        parts = urlsplit(url)
        host = (parts.hostname or "").encode("idna").decode()
    except ValueError:
        host = ""
    else:
        is_plain = parts.scheme in ("http", "https") and "@" not in parts.netloc
        host = host if is_plain and "\\" not in url else ""
    if not host:
        raise MCPError(code=types.INVALID_PARAMS, message=NO_PAGE)
    return host


# Tasks.

TASK = "task"
"""The type of a result that stands for a task (SEP-2663), and its member in MCP 2025-11-25."""
INPUT_REQUIRED = "input_required"
CANCEL_TASK = "tasks/cancel"
LEAST_POLL_SECONDS = 0.05
MOST_POLL_SECONDS = 30.0
USUAL_POLL_SECONDS = 1.0
"""How long to wait between two requests for the state of a task, if its server does not say."""

POLL_FAILURES = 5
"""After so many failed requests in a row, a task is given up."""

_ENDED = ("completed", "failed", "cancelled")
_TASK_CANCELLED = "The server cancelled the task."

SendRequest = Callable[[str, Json, Relay | None], Awaitable[Json]]
"""Sends a method and its parameters to a server; what the server asks meanwhile goes to a relay."""


def build_call(tool: Tool, arguments: Json) -> Json:
    """Return the parameters of `tools/call`; tools of 2025-11-25 may demand to be run as tasks."""
    params: Json = {"name": tool.extras.get("leaf", tool.leaf), "arguments": arguments}
    execution: object = tool.extras.get("execution")
    if is_object(execution) and execution.get("taskSupport") == "required":
        params[TASK] = {}
    return params


def find_task(answer: Json) -> Json | None:
    """Return the task that a server answered a call with, or None if it answered with a result."""
    if answer.get("resultType") == TASK:
        return answer
    task: object = answer.get(TASK)
    return task if is_object(task) and "taskId" in task and not answer.get("content") else None


async def follow_task(
    send: SendRequest, task: Json, relay: Relay | None, *, idle_stop: float = 0.0
) -> Json:
    """Return the result of a task once there is one; raises `MCPError` if it fails.

    Questions go to the relay, and so does what the server says about the state of the task. The
    server is asked often enough that `idle_stop` does not stop it.
    """
    params: Json = {"taskId": task["taskId"]}
    is_extension = "resultType" in task
    told = ""
    failures = 0
    for polls in itertools.count(1):
        status = task.get("status")
        said = str(task.get("statusMessage") or "")
        if relay is not None and said not in ("", told) and status not in _ENDED:
            told = said
            await relay.report_progress(polls, None, clean_text(said, QUESTION_CHARS))
        if status in _ENDED or (status == INPUT_REQUIRED and not is_extension):
            break
        if status == INPUT_REQUIRED:
            answers = await _answer_questions(task, relay)
            await send("tasks/update", {**params, "inputResponses": answers}, None)
            task = {**task, "status": "working"}
        await asyncio.sleep(_choose_pause(task, idle_stop))
        try:
            task = await send("tasks/get", params, None)
            failures = 0
        except UpstreamError:  # the server may have restarted, and may still have the task
            failures += 1
            if failures == POLL_FAILURES:
                raise
    if not is_extension:  # while this request is open, the server asks and ends the task
        return await send("tasks/result", params, relay)
    result, error = task.get("result"), task.get("error")
    if task.get("status") == "completed" and is_object(result):
        return result
    failure = types.ErrorData(code=types.INTERNAL_ERROR, message=_TASK_CANCELLED)
    if is_object(error):
        failure = types.ErrorData.model_validate(error)
    raise MCPError(code=failure.code, message=failure.message, data=failure.data)


def _choose_pause(task: Json, idle_stop: float) -> float:
    """Return the seconds to wait before the state of a task is asked for again."""
    wanted: object = task.get("pollIntervalMs", task.get("pollInterval"))
    seconds = wanted / 1000 if isinstance(wanted, int | float) else USUAL_POLL_SECONDS
    return min(max(seconds, LEAST_POLL_SECONDS), MOST_POLL_SECONDS, idle_stop / 2 or seconds)


async def _answer_questions(task: Json, relay: Relay | None) -> Json:
    """Return the client's answers to the questions of a task, or raise `MCPError`."""
    wanted = types.InputRequiredResult.model_validate(
        {"inputRequests": task.get("inputRequests") or {}}, by_name=False
    )
    answers: Json = {}
    for key, request in (wanted.input_requests or {}).items():
        unasked = types.ErrorData(code=types.INVALID_REQUEST, message=NOBODY)
        answer = unasked if relay is None else await relay.ask(request)
        if isinstance(answer, types.ErrorData):
            raise MCPError(code=answer.code, message=answer.message)
        answers[key] = answer.model_dump(by_alias=True, mode="json", exclude_none=True)
    return answers
