"""What programs can do in their worker processes, and what ends them."""

import asyncio
import subprocess
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from toolscout.errors import ProgramFailed, ProgramStopped
from toolscout.programs.workers import (
    CODE_CHARS,
    CallRaised,
    Finished,
    FunctionCall,
    Workers,
    has_await,
    to_json_value,
)
from toolscout.settings import Programs

OPTIONS = Programs(enabled=True)


class Host:
    """Answers the calls of programs, and remembers them."""

    def __init__(self) -> None:
        self.calls: list[FunctionCall] = []
        self.was_called = asyncio.Event()
        self.at_once = 0
        self.most_at_once = 0

    async def has_function(self, name: str) -> bool:
        return name in ("echo", "fail", "wait")

    async def answer(self, call: FunctionCall) -> object:
        self.calls.append(call)
        self.was_called.set()
        match call.name:
            case "echo":
                return {"arguments": list(call.arguments), **call.keywords}
            case "fail":
                raise CallRaised("PermissionError", "not today")
            case "wait":
                self.at_once += 1
                self.most_at_once = max(self.most_at_once, self.at_once)
                await asyncio.sleep(0)
                await asyncio.sleep(0)
                self.at_once -= 1
                return call.keywords.get("value")
            case _:
                raise CallRaised("NameError", f"there is no {call.name}")


@asynccontextmanager
async def opened() -> AsyncGenerator[Workers]:
    workers = Workers()
    try:
        yield workers
    finally:
        await workers.close()


async def start(
    pool: Workers, code: str, host: Host, *, owner: str = "me", **changes: Any
) -> Finished:
    options = Programs(enabled=True, **changes)
    return await pool.run(
        code, options=options, owner=owner, has_function=host.has_function, answer=host.answer
    )


def run(code: str, host: Host | None = None, **changes: Any) -> Finished:
    async def work() -> Finished:
        async with opened() as workers:
            return await start(workers, code, host or Host(), **changes)

    return asyncio.run(work())


def test_the_last_expression_is_the_value_and_what_is_printed_is_kept_apart():
    finished = run("print('hello')\nx = [1, 2]\nsum(x)")

    assert finished == Finished(value=3, printed="hello\n")


def test_a_function_gets_positional_and_keyword_arguments_as_json():
    host = Host()

    finished = run("echo((1, 2), a={'b': None})", host)

    assert host.calls == [
        FunctionCall(name="echo", arguments=([1, 2],), keywords={"a": {"b": None}})
    ]
    assert finished.value == {"arguments": [[1, 2]], "a": {"b": None}}


def test_a_function_can_have_another_name_in_the_program():
    assert run("f = echo\nf(1)['arguments']").value == [1]


def test_a_failed_call_is_an_exception_that_the_program_can_catch():
    code = "try:\n    fail()\nexcept PermissionError as error:\n    text = str(error)\ntext"

    assert run(code).value == "not today"


def test_a_failed_call_that_nobody_catches_ends_the_program_with_its_line():
    with pytest.raises(ProgramFailed, match=r"in line 2 \(`fail\(\)`\): PermissionError: not to"):
        run("x = 1\nfail()")


def test_calls_that_are_awaited_together_run_together():
    host = Host()
    code = "import asyncio\nawait asyncio.gather(*[wait(value=n) for n in range(5)])"

    assert run(code, host).value == [0, 1, 2, 3, 4]
    assert host.most_at_once == 5


def test_a_call_that_is_not_awaited_ends_before_the_program_does():
    host = Host()

    run("wait(value=1)\nawait wait(value=2)", host)

    assert [call.keywords for call in host.calls] == [{"value": 1}, {"value": 2}]
    assert host.at_once == 0


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("x = await f()", True),
        ("# await\nx = 'await'", False),
        ("x = 1", False),
        ("awaiting = 1", False),
    ],
)
def test_await_counts_only_in_code(code: str, expected: bool):
    assert has_await(code) is expected


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("import requests", "ModuleNotFoundError: No module named 'requests'. Programs have no"),
        ("class A(Exception): pass", "programs do not have class inheritance"),
        ("def f():\n    yield 1", "programs do not have yield"),
        ("open('/etc/passwd').read()", "PermissionError"),
        ("import os\nos.environ['HOME']", "Programs have no files, network, environment"),
        ("x = [1\n", "SyntaxError"),
        ("list(map(echo, [1]))", "not through map"),
        ("await 1", "can't be awaited"),
        ("nothing", "name 'nothing' is not defined"),
        ("nothing()", "there is no nothing"),
        ("().__class__.__bases__", "has no attribute '__class__'"),
        ("def f(): return f()\nf()", "RecursionError"),
    ],
)
def test_an_error_says_what_is_wrong_and_what_the_subset_lacks(code: str, said: str):
    with pytest.raises(ProgramFailed) as caught:
        run(code)

    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("code", "said", "changes"),
    [
        ("while True: pass", "longer than 0.2 s", {"seconds": 0.2}),
        (
            "while True:\n    try:\n        while True: pass\n    except BaseException: pass",
            "longer than 0.2 s",
            {"seconds": 0.2},
        ),
        ("'a' * 10**9", "more than 20 MB", {"memory_mb": 20}),
        ("x = []\nwhile True: x.append('a' * 1000)", "more than 20 MB", {"memory_mb": 20}),
        ("while True: echo(1)", "more than 7 calls", {"calls": 7}),
        ("x" * (CODE_CHARS + 1), f"longer than {CODE_CHARS:,} characters", {}),
    ],
)
def test_a_limit_ends_a_program_and_is_named(code: str, said: str, changes: dict[str, Any]):
    with pytest.raises(ProgramStopped) as caught:
        run(code, **changes)

    assert said in str(caught.value)


def test_a_program_that_was_stopped_costs_no_other_program():
    async def work() -> list[object]:
        async with opened() as workers:
            endless = start(workers, "while True: pass", Host(), seconds=0.2)
            greedy = start(workers, "[0] * 10**9", Host(), owner="other")
            fine = start(workers, "echo(1)['arguments']", Host(), owner="third")
            ended = await asyncio.gather(endless, greedy, fine, return_exceptions=True)
            after = await start(workers, "1 + 1", Host())
            return [*map(type, ended), after.value]

    assert asyncio.run(work()) == [ProgramStopped, ProgramStopped, Finished, 2]


def test_a_cancelled_program_leaves_the_workers_usable():
    async def work() -> object:
        async with opened() as workers:
            task = asyncio.create_task(start(workers, "while True: pass", Host()))
            await asyncio.sleep(0)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            return (await start(workers, "40 + 2", Host())).value

    assert asyncio.run(work()) == 42


def test_a_cancelled_program_that_computes_does_not_keep_its_process():
    async def work() -> object:
        async with opened() as workers:
            host = Host()
            endless = start(workers, "echo(1)\nwhile True: pass", host, workers=1)
            task = asyncio.create_task(endless)
            await host.was_called.wait()
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            return (await start(workers, "40 + 2", Host(), workers=1)).value

    assert asyncio.run(work()) == 42


def test_a_cancelled_program_never_ends_the_process_of_the_next_one():
    async def work() -> list[object]:
        async with opened() as workers:
            await start(workers, "1", Host(), workers=2)
            values: list[object] = []
            for turns in range(60):
                task = asyncio.create_task(start(workers, "echo(1)", Host(), workers=2))
                for _ in range(turns):
                    await asyncio.sleep(0)
                # The process may be given back while the program is cancelled.
                task.cancel()
                other = await start(workers, "echo(2); 3", Host(), owner="other", workers=2)
                values.append(other.value)
                await asyncio.gather(task, return_exceptions=True)
            return values

    assert asyncio.run(work()) == [3] * 60


EXIT = """
import asyncio
from toolscout.programs.workers import Workers
from toolscout.settings import Programs

async def answer(call):
    return 1

async def has_function(name):
    return True

async def main():
    workers = Workers()
    options = Programs(enabled=True)
    for _ in range(100):
        await workers.run(
            "f()", options=options, owner="me", has_function=has_function, answer=answer
        )
    await workers.close()

asyncio.run(main())
"""


@pytest.mark.processes
def test_a_process_that_has_run_programs_exits_cleanly():
    """Threads of Monty's asynchronous interface abort about every second of these processes."""
    started = [subprocess.Popen([sys.executable, "-c", EXIT]) for _ in range(4)]

    assert [process.wait(timeout=120) for process in started] == [0] * 4


def test_one_owner_gets_half_of_the_workers_at_most():
    async def work() -> object:
        async with opened() as workers:
            running = [
                asyncio.create_task(start(workers, "while True: pass", Host(), workers=4))
                for _ in range(2)
            ]
            await asyncio.sleep(0)
            with pytest.raises(ProgramStopped, match="too many programs are running"):
                await start(workers, "1", Host(), workers=4)
            other = await start(workers, "2", Host(), owner="other", workers=4)
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)
            return other.value

    assert asyncio.run(work()) == 2


def test_workers_serve_one_event_loop_after_another():
    workers = Workers()

    values = [asyncio.run(start(workers, f"{n} + 1", Host())).value for n in range(3)]
    asyncio.run(workers.close())

    assert values == [1, 2, 3]


def test_output_beyond_the_limit_is_dropped_and_counted():
    finished = run("for n in range(100): print('0123456789')", output_chars=100)

    assert len(finished.printed) == 100
    assert finished.dropped == 1_000


def test_a_value_that_is_one_list_many_times_is_refused_in_time():
    with pytest.raises(ProgramFailed, match="too many parts"):
        run("a = [1]\nfor _ in range(90): a = [a, a]\na")


def test_a_deep_value_is_refused():
    with pytest.raises(ProgramFailed, match="nested too deeply"):
        run("a = []\nfor _ in range(5000): a = [a]\na")


def test_values_that_json_does_not_have_become_lists_and_text():
    value = to_json_value({1: (2, {3}), "x": b"y", "n": None, "f": 1.5, "big": 1 << 5000})

    assert value["1"] == [2, [3]]
    assert value["x"] == "b'y'"
    assert value["big"].startswith("0x1000")
