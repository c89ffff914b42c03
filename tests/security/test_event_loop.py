"""Long work for one session must not hold up the answers to others.

What takes long here ends only when another session has been answered, so a test fails if anything
waits for it on the event loop.
"""

import asyncio
import threading
from collections.abc import Coroutine
from typing import Any

from security.counting import DOUBLE, count_lines
from serving import DEADLINE_SECONDS
from toolscout import Catalog, Reply, Scout, Tool
from toolscout.schemas import Json, has_few_values

STRING: Json = {"type": "object", "properties": {"a": {"type": "string"}}}


class SlowObject(dict[str, Any]):
    """Arguments that are not checked before somebody else is answered."""

    answered = threading.Event()

    def values(self) -> Any:
        assert self.answered.wait(DEADLINE_SECONDS)
        return super().values()


class SlowText(str):
    """A query or a name that is not read before somebody else is answered."""

    answered = threading.Event()

    def __str__(self) -> str:
        assert self.answered.wait(DEADLINE_SECONDS)
        return self[:]


def run(tool: Tool, given: Json) -> str:
    return "done"


def make_scout() -> Scout:
    tools = [Tool.define("t", server="s", input_schema=STRING)]
    return Scout(Catalog({"s": tools}), encoder=None, executors={"s": run})


async def answer_other(scout: Scout, slow: Coroutine[Any, Any, Reply], answered: threading.Event):
    """Start something slow, have another session answered, and return the slow reply."""
    other = scout.session("other")
    other.search("select:s__t")
    answered.clear()
    task = asyncio.create_task(slow)
    await asyncio.sleep(0)  # the slow work begins
    found = await other.handle("tool_search", {"queries": ["select:s__t"]})
    called = await other.handle("tool_call", {"name": "s__t", "arguments": {"a": "x"}})
    assert (found.code, called.code) == ("ok", "ok")
    assert not task.done()
    answered.set()
    return await asyncio.wait_for(task, DEADLINE_SECONDS)


def test_a_long_check_of_arguments_holds_up_nobody():
    scout = make_scout()
    session = scout.session("slow")
    session.search("select:s__t")
    arguments = SlowObject((f"k{number}", 1) for number in range(10_000))
    slow = session.handle("tool_call", {"name": "s__t", "arguments": arguments})

    reply = asyncio.run(answer_other(scout, slow, SlowObject.answered))

    assert reply.code == "ok"


def test_a_long_query_holds_up_nobody():
    scout = make_scout()
    slow = scout.session("slow").handle("tool_search", {"queries": [SlowText("word " * 2_000)]})

    reply = asyncio.run(answer_other(scout, slow, SlowText.answered))

    assert reply.details["queries"]


def test_a_description_holds_up_nobody():
    scout = make_scout()
    slow = scout.session("slow").handle("tool_describe", {"names": [SlowText("s__t")]})

    reply = asyncio.run(answer_other(scout, slow, SlowText.answered))

    assert reply.details["described"] == ["s__t"]


def test_further_requests_of_a_busy_session_hold_up_nobody():
    scout = make_scout()
    session = scout.session("slow")
    session.search("select:s__t")

    async def ask_twice() -> Reply:
        long = session.handle("tool_search", {"queries": [SlowText("word " * 2_000)]})
        short = session.handle("tool_call", {"name": "s__t", "arguments": {"a": "x"}})
        _, reply = await asyncio.gather(long, short)
        return reply

    reply = asyncio.run(answer_other(scout, ask_twice(), SlowText.answered))

    assert reply.text == "done"


def test_a_small_call_is_checked_without_a_thread():
    session = make_scout().session("x")
    session.search("select:s__t")
    checked: list[str] = []

    class Arguments(dict[str, Any]):
        def values(self) -> Any:
            checked.append(threading.current_thread().name)
            return super().values()

    request = {"name": "s__t", "arguments": Arguments(a="x")}
    reply = asyncio.run(session.handle("tool_call", request))

    assert reply.code == "ok"
    assert set(checked) == {threading.current_thread().name}


def test_the_size_of_arguments_is_not_measured_further_than_needed():
    def measure(count: int) -> int:
        return count_lines(lambda: has_few_values([["x"] * 10] * count, 200))

    assert measure(20_000) < DOUBLE * measure(100)
