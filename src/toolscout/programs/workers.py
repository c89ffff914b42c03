"""`Workers`: processes that run the programs of models, within limits.

A program is written in the Python subset of pydantic-monty, which has no files, no network and no
environment. It stops at each function that it does not define itself; `Workers.run` then asks its
caller for the value, which decides what the program may do. A program that crashes or hangs costs
its process and nothing else. Needs the `programs` extra, imported with the first program.
"""

import asyncio
import concurrent.futures
import importlib
import importlib.util
import io
import os
import queue
import signal
import threading
import tokenize
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, cast

from toolscout.errors import (
    NOT_IN_SUBSET,
    OUTSIDE_SUBSET,
    VALUE_TOO_DEEP,
    VALUE_TOO_LARGE,
    MissingExtra,
    ProgramFailed,
    ProgramStopped,
)
from toolscout.names import to_error_text, to_one_line
from toolscout.schemas import Json, has_few_values
from toolscout.settings import Programs, Settings

MODULE = "pydantic_monty"
CODE_CHARS = 40_000
"""The longest program."""
SOURCE_CHARS = 120
REASON_CHARS = 1_200
VALUES_LIMIT = 200_000
"""Values in an argument or a result of a program; more would take long to copy."""
SMALL_VALUE = 2_000
"""Values that are copied within a few milliseconds."""
NESTING_LIMIT = 100
LOOKUPS = 4
"""Names that a program may look up for each call that it may make."""
WAIT_SECONDS = 5.0
"""How long a program waits for a free process."""
GRACE_SECONDS = 1.0
"""How long a process may go on after a limit before it is killed."""
THREADS = 64
"""Programs that run or wait for a process at the same time; more wait for a thread."""
CHECKOUTS = 500
"""Programs that one process runs before a new one takes its place."""
MEGABYTE = 1_000_000
_NUMBER_BITS = 4_096
"""Longer integers cannot be written as JSON in a useful time."""


class CallRaised(Exception):
    """Raised by whoever answers a call: the program gets an exception of this kind."""

    def __init__(self, kind: str, message: str) -> None:
        self.kind, self.message = kind, message
        super().__init__(message)


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionCall:
    """A call of a function that the program does not define itself."""

    name: str
    arguments: tuple[Any, ...] = ()
    keywords: Json = field(default_factory=dict[str, Any])


Answer = Callable[[FunctionCall], Coroutine[Any, Any, object]]
"""Returns the value of a call as JSON, or raises `CallRaised`."""
HasFunction = Callable[[str], Awaitable[bool]]
"""Tells whether a name is one that an `Answer` knows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """What a program gave."""

    value: object = None
    """Its last expression, as JSON."""
    printed: str = ""
    dropped: int = 0
    """Characters that it printed beyond the limit."""


class Workers:
    """A pool of processes for programs, started with the first. Any event loop may use it."""

    def __init__(self) -> None:
        self._opening: concurrent.futures.Future[Any] | None = None
        """The pool, once its processes have started."""
        self._threads = _make_threads()
        self._lock = threading.Lock()
        self._running: Counter[str] = Counter()

    async def run(
        self,
        code: str,
        *,
        options: Programs,
        owner: str,
        has_function: HasFunction,
        answer: Answer,
        variables: Json | None = None,
    ) -> Finished:
        """Run a program to its end; raises `ProgramFailed` or `ProgramStopped`.

        `owner` is for whom it runs, who gets half of the processes at most. `has_function` tells
        whether a name is one that `answer` knows. Calls run one after the other, and in a program
        that uses `await`, all that it awaits at the same time. `variables` exist from the start.
        """
        if len(code) > CODE_CHARS:
            raise ProgramStopped.from_length(CODE_CHARS)
        monty: Any = importlib.import_module(MODULE)
        with self._take_place(owner, options.workers):
            pool = await self._open(monty, options)
            printer = _Printer(options.output_chars)
            limits = {
                "max_feed_duration_secs": options.seconds,
                "max_memory": options.memory_mb * MEGABYTE,
                "max_recursion_depth": options.recursion,
                "max_suspensions": options.calls * LOOKUPS,
            }
            session = pool.checkout(script_name="program", limits=limits)
            worker = _Worker(monty, session, self._threads)
            run = _Run(monty, worker, options, has_function, answer, is_async=has_await(code))
            try:
                step = await worker.start(code, inputs=variables or {}, print_callback=printer)
                value = await run.finish(step)
            except monty.MontyError as error:
                raise _explain(monty, error, options, code) from None
            except CallRaised as error:  # of the last value
                raise ProgramFailed(error.kind, error.message) from None
            except TimeoutError as error:
                if "checkout timeout" in str(error):
                    raise ProgramStopped.from_busy() from None
                raise
            finally:
                try:
                    await worker.close()
                finally:
                    await run.close()
        return Finished(value=value, printed=printer.text, dropped=printer.dropped)

    async def close(self) -> None:
        """End all processes."""
        with self._lock:
            opening = self._opening
            self._opening = None
            threads = self._threads
            self._threads = _make_threads()
        threads.shutdown(wait=False)
        if opening is not None:
            pool = await asyncio.wrap_future(opening)
            await asyncio.to_thread(pool.__exit__, None, None, None)

    async def _open(self, monty: Any, options: Programs) -> Any:
        mine: concurrent.futures.Future[Any] = concurrent.futures.Future()
        with self._lock:
            opening = self._opening or mine
            self._opening = opening
        if opening is mine:
            return await self._start(monty, options, mine)
        if opening.done():  # a wrapped future would take two turns of the event loop
            return opening.result()
        return await asyncio.shield(asyncio.wrap_future(opening))

    async def _start(
        self, monty: Any, options: Programs, opening: "concurrent.futures.Future[Any]"
    ) -> Any:
        pool = monty.Monty(
            min_processes=1,
            max_processes=options.workers,
            checkout_timeout=WAIT_SECONDS,
            max_checkouts_per_worker=CHECKOUTS,
            feed_duration_limit_grace=GRACE_SECONDS,
            turn_duration_limit_grace=GRACE_SECONDS,
        )
        try:
            await asyncio.to_thread(pool.__enter__)
        except BaseException as error:
            with self._lock:
                self._opening = None  # the next program tries again
            opening.set_exception(error)
            raise
        opening.set_result(pool)
        return pool

    @contextmanager
    def _take_place(self, owner: str, workers: int) -> Generator[None]:
        """Count a program of an owner while it runs, or raise `ProgramStopped`."""
        with self._lock:
            if self._running[owner] >= max(1, workers // 2):
                raise ProgramStopped.from_busy()
            self._running[owner] += 1
        try:
            yield
        finally:
            with self._lock:
                self._running[owner] -= 1
                if not self._running[owner]:
                    del self._running[owner]


def _make_threads() -> concurrent.futures.ThreadPoolExecutor:
    # Python waits for these when it exits: a daemon thread that comes back from Monty meanwhile
    # would abort the process.
    return concurrent.futures.ThreadPoolExecutor(THREADS, thread_name_prefix="toolscout-program")


class _Worker:
    """One process while it runs a program, and a thread that waits for it.

    Monty's own asynchronous interface takes longer for each step, and its threads may abort this
    process when it exits.
    """

    def __init__(self, monty: Any, session: Any, threads: concurrent.futures.Executor) -> None:
        self._complete: type = monty.MontyComplete
        self._session = session
        self._threads = threads
        self._loop = asyncio.get_running_loop()
        self._work: queue.SimpleQueue[tuple[Callable[[], Any], asyncio.Future[Any]] | None]
        self._work = queue.SimpleQueue()
        self._last: asyncio.Future[Any] | None = None
        self._lock = threading.Lock()
        self._pid: int | None = None
        self._is_closed = False
        self._is_back = False
        """Whether the thread gives the process back, or has done so."""

    async def start(self, code: str, **parts: Any) -> Any:
        """Wait for a free process and start a program; return where it stops first."""

        def work() -> Any:
            self._pid = self._session.__enter__().worker_pid
            return None if self._is_closed else self._session.feed_start(code, **parts)

        first = self.do(work)
        self._threads.submit(self._serve)
        return await first

    def do(self, work: Callable[[], Any]) -> "asyncio.Future[Any]":
        """Do in the thread what may block, and return its result."""
        self._last = self._loop.create_future()
        self._work.put((work, self._last))
        return self._last

    async def close(self) -> None:
        """Give the process back, or end it if the program still runs in it."""
        self._is_closed = True
        if self._is_back:
            self._work.put(None)
            return
        is_idle = self._last is None or (self._last.done() and not self._last.cancelled())
        if not is_idle:
            with self._lock, suppress(OSError):  # it has ended already
                if self._pid is not None and not self._is_back:
                    os.kill(self._pid, signal.SIGTERM)
        end = self.do(self._give_back)
        self._work.put(None)
        if is_idle:
            await end
        else:
            end.cancel()  # the thread does it, but nobody waits

    def _serve(self) -> None:
        while (item := self._work.get()) is not None:
            work, done = item
            value: Any = None
            failure: BaseException | None = None
            try:
                value = work()
                if isinstance(value, self._complete):
                    self._give_back()
            except BaseException as error:
                failure = error
            with suppress(RuntimeError):  # nobody waits any more: the event loop is closed
                self._loop.call_soon_threadsafe(_settle, done, value, failure)

    def _give_back(self) -> None:
        with self._lock:
            if self._is_back:
                return
            self._is_back = True  # from here on, the process may run another program
        self._session.__exit__(None, None, None)


def _settle(done: "asyncio.Future[Any]", value: object, error: BaseException | None) -> None:
    if done.done():  # cancelled
        return
    if error is None:
        done.set_result(value)
    else:
        done.set_exception(error)


class _Run:
    """Drives one program from call to call."""

    def __init__(
        self,
        monty: Any,
        worker: _Worker,
        options: Programs,
        has_function: HasFunction,
        answer: Answer,
        *,
        is_async: bool,
    ) -> None:
        self._monty = monty
        self._worker = worker
        self._options = options
        self._has_function = has_function
        self._answer = answer
        self._is_async = is_async
        self._made = 0
        self._promised: dict[int, FunctionCall] = {}
        """Calls that begin when the program comes to an `await`."""
        self._started: dict[int, asyncio.Task[Json]] = {}

    async def finish(self, step: Any) -> object:
        """Answer every stop of the program; return its last value as JSON."""
        monty = self._monty
        while not isinstance(step, monty.MontyComplete):
            if isinstance(step, monty.FunctionSnapshot):
                step = await self._answer_call(step)
            elif isinstance(step, monty.NameLookupSnapshot):
                step = await self._look_up(step)
            else:
                results = await self._settle(step.pending_call_ids)
                step = await self._worker.do(partial(step.resume, results))
        if self._started:  # a call that was begun must not be cut off
            await asyncio.wait(self._started.values())
        return await _copy_value(step.output)

    async def close(self) -> None:
        """Cancel the calls of a program that was stopped."""
        if self._started:
            for task in self._started.values():
                task.cancel()
            await asyncio.gather(*self._started.values(), return_exceptions=True)

    async def _answer_call(self, step: Any) -> Any:
        if step.is_os_function:
            return await self._worker.do(step.resume_not_handled)
        self._made += 1
        if self._made > self._options.calls:
            raise ProgramStopped.from_calls(self._options.calls)
        try:
            call = FunctionCall(
                name=str(step.function_name),
                arguments=tuple(await _copy_value(step.args)) if step.args else (),
                keywords=await _copy_value(step.kwargs) if step.kwargs else {},
            )
        except CallRaised as error:
            return await self._worker.do(partial(step.resume, _to_exception(error)))
        if self._is_async and await self._has_function(call.name):
            self._promised[step.call_id] = call
            return await self._worker.do(partial(step.resume, {"future": ...}))
        result = await self._make(call)
        return await self._worker.do(partial(step.resume, result))

    async def _look_up(self, step: Any) -> Any:
        name = str(step.variable_name)
        if step.object_id is not None or not await self._has_function(name):
            return await self._worker.do(step.resume)

        def do_nothing() -> None:
            """Stand for a function of which the program only has the name."""

        do_nothing.__name__ = name
        return await self._worker.do(partial(step.resume, value=do_nothing))

    async def _settle(self, ids: Sequence[int]) -> dict[int, Json]:
        """Start the calls that the program has made; return the results of those that have ended.

        The program is at an `await`; one that never gets to any makes no call, as in Python.
        """
        for id_ in sorted(ids):
            if id_ in self._promised:
                self._started[id_] = asyncio.create_task(self._make(self._promised.pop(id_)))
        waiting = [self._started[id_] for id_ in ids]
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        ended = [id_ for id_ in ids if self._started[id_].done()]
        return {id_: self._started.pop(id_).result() for id_ in ended}

    async def _make(self, call: FunctionCall) -> Json:
        try:
            return {"return_value": await self._answer(call)}
        except CallRaised as error:
            return _to_exception(error)


class _Printer:
    """Collects what a program prints, as far as there is room."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._parts: list[str] = []
        self._length = 0
        self.dropped = 0

    def __call__(self, stream: str, text: str) -> None:
        kept = text[: max(0, self._limit - self._length)]
        self._parts.append(kept)
        self._length += len(kept)
        self.dropped += len(text) - len(kept)

    @property
    def text(self) -> str:
        """What was printed."""
        return "".join(self._parts)


def check_programs(settings: Settings) -> None:
    """Raise `MissingExtra` if settings want programs that cannot run here; imports nothing."""
    if settings.programs.enabled and importlib.util.find_spec(MODULE) is None:
        raise MissingExtra("pydantic-monty", extra="programs")


def has_await(code: str) -> bool:
    """Tell whether a program uses `await`, outside of texts and comments."""
    if "await" not in code:
        return False
    try:
        tokens = list(tokenize.generate_tokens(io.StringIO(code).readline))
    except (tokenize.TokenError, SyntaxError):
        return True  # the worker says what is wrong with it
    return any(token.type == tokenize.NAME and token.string == "await" for token in tokens)


async def _copy_value(value: object) -> Any:
    """Return a value as JSON without holding up the event loop."""
    if has_few_values(value, SMALL_VALUE):
        return to_json_value(value)
    return await asyncio.to_thread(to_json_value, value)


def to_json_value(value: object) -> Any:
    """Return a value of a program as JSON; raises `CallRaised` if it is too large or too deep.

    Tuples and sets become lists. Other values that JSON does not have become their text.
    """
    return _JsonCopy().copy(value, NESTING_LIMIT)


class _JsonCopy:
    """Copies one value; a list that occurs many times in it counts each time."""

    def __init__(self) -> None:
        self._left = VALUES_LIMIT

    def copy(self, value: object, depth: int) -> Any:
        self._left -= 1
        if self._left < 0:
            raise CallRaised("ValueError", VALUE_TOO_LARGE)
        if isinstance(value, str):
            return value if value.isascii() else value.encode("utf-8", "replace").decode()
        if value is None or isinstance(value, bool | float):
            return value
        if isinstance(value, int):
            return value if value.bit_length() <= _NUMBER_BITS else hex(value)
        if depth == 0:
            raise CallRaised("ValueError", VALUE_TOO_DEEP)
        # First what Monty gives: asking for a `Mapping` takes longer.
        if isinstance(value, dict | Mapping):
            table = cast("Mapping[object, object]", value)
            return {_to_key(key): self.copy(item, depth - 1) for key, item in table.items()}
        if isinstance(value, list | tuple | set | frozenset):
            items = cast("Sequence[object]", value)
            return [self.copy(item, depth - 1) for item in items]
        return to_one_line(str(value), REASON_CHARS)


def _to_key(key: object) -> str:
    return key if isinstance(key, str) else to_one_line(str(key), REASON_CHARS)


def _to_exception(error: CallRaised) -> Json:
    return {"exc_type": error.kind, "message": error.message}


def _explain(
    monty: Any, error: Any, options: Programs, code: str
) -> ProgramFailed | ProgramStopped:
    """Return why a program ended, in words for the model."""
    if isinstance(error, monty.MontyCrashedError):
        if error.timed_out:
            return ProgramStopped.from_time(options.seconds)
        return ProgramStopped.from_crash()
    kind, _, reason = str(error).partition(": ")
    if isinstance(error, monty.MontySyntaxError):
        kind, reason = "SyntaxError", str(error)
    elif kind == "TimeoutError" and "time limit exceeded" in reason:
        return ProgramStopped.from_time(options.seconds)
    elif kind == "MemoryError":
        return ProgramStopped.from_memory(options.memory_mb)
    elif kind == "RuntimeError" and "suspension" in reason:
        return ProgramStopped.from_calls(options.calls)
    reason = reason.replace(OUTSIDE_SUBSET, NOT_IN_SUBSET)
    has_lines = isinstance(error, monty.MontySyntaxError | monty.MontyRuntimeError)
    frames: list[Any] = error.traceback() if has_lines else []
    line: int = frames[-1].line if frames else 0
    lines = code.splitlines()
    source = to_one_line(lines[line - 1], SOURCE_CHARS) if 0 < line <= len(lines) else ""
    return ProgramFailed(
        kind, to_error_text(reason, REASON_CHARS, keep_lines=True), line=line, source=source
    )
