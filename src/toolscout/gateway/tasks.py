"""Tasks (SEP-2663): calls whose client gets a handle instead of an answer, and asks for the result.

`Tasks.run` makes a call and waits for a while; a call that takes longer goes on as a task. What is
known of a task is kept in the store under the session that made the call, so nobody else can find
it, and another gateway with the same store can tell its result. A task whose gateway has died has
failed, unless its server has a task of its own for it, which is then followed again.
"""

import asyncio
import itertools
import logging
import secrets
import time
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from typing import Any

import mcp_types as types
from mcp.shared.exceptions import MCPError
from pydantic import TypeAdapter, ValidationError

from toolscout.names import clean_text
from toolscout.schemas import Json
from toolscout.servers.connection import INPUT_REQUIRED, TASK
from toolscout.sessions.texts import (
    CALL_BROKE,
    GATEWAY_ENDED,
    NOT_ANSWERED,
    RUNS_ELSEWHERE,
    TASK_TOO_LARGE,
    UNKNOWN_TASK,
)
from toolscout.stores.background import BackgroundStore

KIND = "task"
ID_BYTES = 24
TASKS_KEPT = 32
KEPT_BYTES = 16 << 20
"""How many tasks of one session are kept, and how large they may be together."""
KEPT_SECONDS = 3_600.0
"""How long a task is kept after it has ended."""
LONGEST_SECONDS = 86_400.0
"""How long a task may run."""
POLL_MILLISECONDS = 1_000
LEASE_SECONDS = 10.0
"""How long a running task counts as running after its gateway has last said so."""
DAY_SECONDS = 86_400.0
MESSAGE_CHARS = 2_000
WORKING = "working"

_log = logging.getLogger(__name__)


class TaskParams(types.RequestParams):
    """The parameters of `tasks/get` and `tasks/cancel`."""

    task_id: str


class TaskUpdateParams(TaskParams):
    """The parameters of `tasks/update`."""

    input_responses: types.InputResponses


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredTask:
    """A task as the store keeps it. Times are seconds since 1970."""

    created: float
    updated: float
    alive_until: float = 0.0
    """Until when its gateway is taken to be running; renewed while it is."""
    status: str = WORKING
    message: str = ""
    upstream: Json | None = None
    """The answer of a server that has a task of its own for the call."""
    call: Json | None = None
    """The parameters of the call, if there is such a task."""
    outcome: Json = field(default_factory=dict[str, Any])
    """The member of an answer that is there in this status: `result`, `error`, `inputRequests`."""

    @property
    def is_ended(self) -> bool:
        """Whether nothing about it changes any more."""
        return self.status not in (WORKING, INPUT_REQUIRED)

    @property
    def lasts_until(self) -> float:
        """When it may be deleted."""
        longest = self.updated if self.is_ended else self.created + LONGEST_SECONDS
        return longest + KEPT_SECONDS

    def to_json(self, task_id: str) -> Json:
        """Return what clients read of it."""
        return {
            "taskId": task_id,
            "status": self.status,
            **({"statusMessage": self.message} if self.message else {}),
            "createdAt": _format_time(self.created),
            "lastUpdatedAt": _format_time(self.updated),
            "ttlMs": round((self.lasts_until - self.created) * 1000),
            "pollIntervalMs": POLL_MILLISECONDS,
            **self.outcome,
        }


_STORED = TypeAdapter(StoredTask)


class RunningTask:
    """One call that is a task, or may become one while its request is still open."""

    def __init__(self, now: float, call: Json) -> None:
        self.id = secrets.token_urlsafe(ID_BYTES)
        self.stored = StoredTask(created=now, updated=now, call=call)
        self.is_detached = False
        """Whether its request has been answered."""
        self.is_suspended = False
        """Whether it is about to end here, and will be followed again by another gateway."""
        self.work: asyncio.Task[Json]
        self.moved: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Done once the server itself has answered with a task."""
        self._questions: dict[
            str, tuple[types.InputRequest, asyncio.Future[types.InputResponse]]
        ] = {}
        self._numbers = itertools.count(1)

    def note(self, message: str) -> None:
        """Note what the server says about the progress of the call."""
        said = clean_text(message, MESSAGE_CHARS)
        self.stored = replace(self.stored, message=said, updated=time.time())

    def note_upstream(self, answer: Json) -> None:
        """Note that the server has answered the call with a task."""
        self.stored = replace(self.stored, upstream=answer)
        if not self.moved.done():
            self.moved.set_result(None)

    async def ask(
        self, questions: Mapping[str, types.InputRequest], seconds: float
    ) -> types.InputResponses:
        """Return the client's answers, which come with `tasks/update`; raises `MCPError`."""
        number = next(self._numbers)
        names = {f"{number}-{key}": key for key in questions}  # no key is used twice in a task
        loop = asyncio.get_running_loop()
        for name, key in names.items():
            self._questions[name] = questions[key], loop.create_future()
        self._show_questions()
        try:
            async with asyncio.timeout(seconds):
                return {key: await self._questions[name][1] for name, key in names.items()}
        except TimeoutError:
            text = NOT_ANSWERED.format(seconds=seconds)
            raise MCPError(code=types.INTERNAL_ERROR, message=text) from None
        finally:
            for name in names:
                del self._questions[name]
            self._show_questions()

    def answer(self, answers: types.InputResponses) -> None:
        """Take over answers to open questions; others are ignored, as the protocol says."""
        for name, answer in answers.items():
            _, future = self._questions.get(name, (None, None))
            if future is not None and not future.done():
                future.set_result(answer)
        self._show_questions()

    def _show_questions(self) -> None:
        asked = {
            name: request.model_dump(by_alias=True, mode="json", exclude_none=True)
            for name, (request, answer) in self._questions.items()
            if not answer.done()
        }
        self.stored = replace(
            self.stored,
            status=INPUT_REQUIRED if asked else WORKING,
            outcome={"inputRequests": asked} if asked else {},
            updated=time.time(),
        )


Work = Callable[[RunningTask], Coroutine[Any, Any, Json]]


class Tasks:
    """The tasks of one gateway, by the session and the id of each."""

    def __init__(self, store: BackgroundStore) -> None:
        self._store = store
        self._running: dict[tuple[str, str], RunningTask] = {}
        self._is_closed = False
        self._keeping: asyncio.Task[None] | None = None
        self._swept = 0.0
        self._trimming: set[asyncio.Task[None]] = set()

    async def close(self, seconds: float = 0.0) -> None:
        """Give running calls some seconds to end, then leave or end them."""
        self._is_closed = True
        for task in self._running.values():
            if task.stored.upstream is not None:
                task.is_suspended = True
                task.work.cancel()
        works = [task.work for task in self._running.values()]
        if works:
            await asyncio.wait(works, timeout=seconds)
        for work in works:
            work.cancel()
        if works:
            await asyncio.wait(works)
        if self._keeping is not None:
            self._keeping.cancel()
            await asyncio.wait((self._keeping, *self._trimming))
            self._keeping = None

    def end(self, session: str) -> None:
        """Cancel the running tasks of a session whose client may no longer use the gateway."""
        for (owner, _), task in self._running.items():
            if owner == session:
                task.work.cancel()

    async def run(self, session: str, call: Json, work: Work, seconds: float, most: int) -> Json:
        """Return the result of a call, or its task after `seconds` or if its server has one.

        If `most` tasks of the session are running, the call stays a call.
        """
        task = self._start(call, work)
        try:
            await asyncio.wait(
                (task.work, task.moved), timeout=seconds, return_when=asyncio.FIRST_COMPLETED
            )
        except asyncio.CancelledError:
            task.work.cancel()
            raise
        running = sum(owner == session for owner, _ in self._running)
        if task.work.done() or self._is_closed or running >= most:
            return await task.work
        await self._detach(session, task)
        return {**task.stored.to_json(task.id), "resultType": TASK}

    async def get(self, session: str, task_id: str, resume: Callable[[StoredTask], Work]) -> Json:
        """Return the state of a task, or raise `MCPError` if the session has no such task.

        `resume` returns what follows the task of a server whose gateway has ended.
        """
        running = self._running.get((session, task_id))
        if running is not None:
            return running.stored.to_json(task_id)
        stored = await self._read(session, task_id)
        if stored.is_ended or self._is_closed or time.time() < stored.alive_until:
            return stored.to_json(task_id)
        if stored.upstream is not None:
            running = self._running.get((session, task_id))
            if running is None:  # else another request was faster
                running = self._start(stored.call or {}, resume(stored))
                running.id = task_id
                running.stored = replace(stored, updated=time.time())
                await self._detach(session, running)
            return running.stored.to_json(task_id)
        failed = _fail(stored, types.INTERNAL_ERROR, GATEWAY_ENDED)
        self._write(session, task_id, failed)
        return failed.to_json(task_id)

    async def update(self, session: str, task_id: str, answers: types.InputResponses) -> None:
        """Hand over answers to questions of a task."""
        task = await self._find_running(session, task_id)
        if task is not None:
            task.answer(answers)

    async def cancel(self, session: str, task_id: str) -> None:
        """Cancel a task if it is still running."""
        task = await self._find_running(session, task_id)
        if task is not None:
            task.work.cancel()

    async def _find_running(self, session: str, task_id: str) -> RunningTask | None:
        """Return a task that runs here, or None if it has ended."""
        running = self._running.get((session, task_id))
        if running is None and not (await self._read(session, task_id)).is_ended:
            raise MCPError(code=types.INTERNAL_ERROR, message=RUNS_ELSEWHERE)
        return running

    def _start(self, call: Json, work: Work) -> RunningTask:
        task = RunningTask(time.time(), call)
        task.work = asyncio.create_task(work(task))
        return task

    async def _detach(self, session: str, task: RunningTask) -> None:
        """Let a call go on as a task, which can be found once this returns."""
        task.is_detached = True
        self._running[session, task.id] = task
        task.moved.add_done_callback(lambda _: self._renew(session, task))
        task.work.add_done_callback(lambda _: self._finish(session, task))
        self._renew(session, task)
        if self._keeping is None or self._keeping.done():
            self._keeping = asyncio.create_task(self._keep_current())
        await self._store.wait_written(KIND, _make_key(session, task.id))

    def _finish(self, session: str, task: RunningTask) -> None:
        """Store how a task has ended."""
        del self._running[session, task.id]
        stored = replace(task.stored, updated=time.time(), outcome={})
        if task.work.cancelled():
            if task.is_suspended:
                stored = replace(stored, status=WORKING, alive_until=0.0)
            elif self._is_closed:
                stored = _fail(stored, types.INTERNAL_ERROR, GATEWAY_ENDED)
            else:
                stored = replace(stored, status="cancelled")
        else:
            stored = _read_end(stored, task.work)
        self._write(session, task.id, stored)
        if stored.is_ended:
            trim = self._store.run_in_thread(partial(self._trim, session))
            trimming = asyncio.create_task(_run_quietly(trim))
            self._trimming.add(trimming)
            trimming.add_done_callback(self._trimming.discard)

    async def _keep_current(self) -> None:
        """Say again and again that the running tasks still run; first delete old ones."""
        if not self._swept or time.monotonic() - self._swept > DAY_SECONDS:
            self._swept = time.monotonic()
            await _run_quietly(self._store.run_in_thread(self._sweep))
        while self._running:
            await asyncio.sleep(LEASE_SECONDS / 3)
            for (session, _), task in self._running.items():
                self._renew(session, task)

    def _renew(self, session: str, task: RunningTask) -> None:
        """Store the state of a task, unless it has ended."""
        if task.work.done():
            return
        task.stored = replace(task.stored, alive_until=time.time() + LEASE_SECONDS)
        stored = task.stored
        if stored.upstream is None:  # nobody could make use of the arguments
            stored = replace(stored, call=None)
        self._write(session, task.id, stored)

    def _write(self, session: str, task_id: str, stored: StoredTask) -> None:
        if stored.is_ended:
            stored = replace(stored, call=None, upstream=None)
        data = _STORED.dump_json(stored)
        if len(data) > KEPT_BYTES:
            data = _STORED.dump_json(_fail(stored, types.INTERNAL_ERROR, TASK_TOO_LARGE))
        self._store.write(KIND, _make_key(session, task_id), data)

    async def _read(self, session: str, task_id: str) -> StoredTask:
        key = _make_key(session, task_id)
        data = None
        if "/" not in task_id:  # or it would lead to the tasks of another session
            data = await self._store.run_in_thread(lambda: self._store.read(KIND, key))
        stored = _load(data)
        if stored is None or stored.lasts_until < time.time():
            raise MCPError(code=types.INVALID_PARAMS, message=UNKNOWN_TASK)
        return stored

    def _trim(self, session: str) -> None:
        """Delete the oldest ended tasks of a session if there are too many; this reads all."""
        prefix = _make_key(session, "")
        keys = [key for key in self._store.keys(KIND) if key.rpartition("/")[0] + "/" == prefix]
        found = [(key, data) for key in keys if (data := self._store.read(KIND, key)) is not None]
        tasks = [(task, key, len(data)) for key, data in found if (task := _load(data))]
        ended = [(task.updated, key, length) for task, key, length in tasks if task.is_ended]
        size = 0
        for place, (_, key, length) in enumerate(sorted(ended, reverse=True)):
            size += length
            if place >= TASKS_KEPT or size > KEPT_BYTES:
                self._store.write(KIND, key, None)

    def _sweep(self) -> None:
        """Delete all tasks whose time is over."""
        now = time.time()
        for key in self._store.keys(KIND):
            stored = _load(self._store.read(KIND, key))
            if stored is None or stored.lasts_until < now:
                self._store.write(KIND, key, None)


def _make_key(session: str, task_id: str) -> str:
    return f"{session}/{task_id}"


def _load(data: bytes | None) -> StoredTask | None:
    try:
        return _STORED.validate_json(data) if data is not None else None
    except ValidationError:
        return None  # written by another version


def _read_end(stored: StoredTask, work: asyncio.Task[Json]) -> StoredTask:
    """Return a task with the result or the error that its call has ended with."""
    error = work.exception()
    if isinstance(error, MCPError):
        failed = _fail(stored, error.code, error.message)
        said = error.error.model_dump(mode="json", exclude_none=True)
        return replace(failed, outcome={"error": said})
    if error is not None:
        _log.error("A task failed unexpectedly.", exc_info=error)
        return _fail(stored, types.INTERNAL_ERROR, CALL_BROKE)
    return replace(stored, status="completed", message="", outcome={"result": work.result()})


def _fail(stored: StoredTask, code: int, message: str) -> StoredTask:
    outcome = {"error": {"code": code, "message": message}}
    return replace(stored, status="failed", message=message, updated=time.time(), outcome=outcome)


def _format_time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")


async def _run_quietly(work: Coroutine[Any, Any, None]) -> None:
    """Do work that nobody waits for; if the store fails, the next time does it."""
    try:
        await work
    except Exception:
        _log.warning("Could not delete old tasks.", exc_info=True)
