"""Turns: slots and clocks of calls on whose behalf somebody is asked."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import mcp_types as types
import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolscout.config.servers import ServerConfig, Transport
from toolscout.servers.connection import Relay
from toolscout.servers.state import CallSlot, CallSlots, ServerState

DEADLINE_SECONDS = 120


class Asked:
    """Somebody who answers when the test lets them."""

    def __init__(self) -> None:
        self.may_answer = asyncio.Event()

    async def report_progress(
        self, progress: float, total: float | None, message: str | None
    ) -> None:
        raise AssertionError

    async def log(self, params: types.LoggingMessageNotificationParams) -> None:
        raise AssertionError

    async def ask(self, request: types.InputRequest) -> Any:
        await self.may_answer.wait()
        return "roots"


def run(work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    async def limited() -> None:
        async with asyncio.timeout(DEADLINE_SECONDS):
            await work()

    asyncio.run(limited())


def make_server(slots: int = 1) -> ServerState:
    config = ServerConfig(name="a", transport=Transport.STDIO, command="none", concurrency=slots)
    return ServerState(config=config)


async def begun(relay: Relay | None) -> asyncio.Task[Any]:
    """Ask, and return the question once it is on its way."""
    assert relay is not None
    question = asyncio.create_task(relay.ask(types.ListRootsRequest()))
    await asyncio.sleep(0)
    return question


def test_a_call_leaves_its_slot_while_somebody_is_asked_and_takes_it_again():
    async def work() -> None:
        server, asked = make_server(), Asked()
        async with CallSlot(server) as slot:
            question = await begun(slot.wrap_relay(asked))
            assert server.resting == 1
            async with CallSlot(server):
                asked.may_answer.set()
                # The answer waits for the slot that the other call has.
                done, _ = await asyncio.wait((question,), timeout=0)
                assert not done
            assert await question == "roots"
            assert server.slots.count("")
            assert server.resting == 0
        assert not server.slots.count("")

    run(work)


def test_the_clock_stands_still_until_all_questions_are_answered():
    async def work() -> None:
        server, first, second = make_server(), Asked(), Asked()
        async with CallSlot(server) as slot, slot.limit(0.25):
            questions = [await begun(slot.wrap_relay(asked)) for asked in (first, second)]
            first.may_answer.set()
            await questions[0]
            other = asyncio.timeout(0.5)
            with pytest.raises(TimeoutError):
                async with other:
                    await asyncio.Event().wait()
            second.may_answer.set()
            await questions[1]
            assert server.slots.count("")

    run(work)


def test_the_clock_goes_on_after_an_answer():
    async def work() -> None:
        server, asked = make_server(), Asked()
        with pytest.raises(TimeoutError):
            async with CallSlot(server) as slot, slot.limit(0.05):
                question = await begun(slot.wrap_relay(asked))
                asked.may_answer.set()
                await question
                await asyncio.Event().wait()
        assert not server.slots.count("")

    run(work)


def test_a_call_has_all_its_time_after_a_question_that_was_open_before_it_began():
    async def work() -> None:
        asked = Asked()
        async with CallSlot(make_server()) as slot:
            question = await begun(slot.wrap_relay(asked))
            async with slot.limit(DEADLINE_SECONDS):
                asked.may_answer.set()
                assert await question == "roots"
                await asyncio.sleep(0.01)  # a clock without time would have ended the call

    run(work)


def test_a_question_that_is_called_off_does_not_stop_the_clock_for_good():
    async def work() -> None:
        server = make_server()
        with pytest.raises(TimeoutError):
            async with CallSlot(server) as slot, slot.limit(0.05):
                (await begun(slot.wrap_relay(Asked()))).cancel()
                await asyncio.Event().wait()
        assert server.resting == 0
        assert not server.slots.count("")

    run(work)


def test_an_answer_that_comes_after_the_call_takes_no_slot():
    async def work() -> None:
        server, asked = make_server(), Asked()
        async with CallSlot(server) as slot, slot.limit(60):
            question = await begun(slot.wrap_relay(asked))
        asked.may_answer.set()

        assert await question == "roots"
        assert server.resting == 0
        assert not server.slots.count("")

    run(work)


def test_callers_who_wait_take_turns():
    async def work() -> None:
        slots = CallSlots(1)
        order: list[str] = []

        async def call(caller: str) -> None:
            await slots.acquire(caller)
            order.append(caller)
            slots.release(caller)

        await slots.acquire("ann")
        async with asyncio.TaskGroup() as group:
            for caller in ("bob", "bob", "bob", "ann", "eve", "eve"):
                group.create_task(call(caller))
            await asyncio.sleep(0)
            slots.release("ann")
        assert order == ["bob", "ann", "eve", "bob", "eve", "bob"]

    run(work)


def test_a_caller_with_a_name_leaves_a_slot_for_others():
    async def work() -> None:
        slots = CallSlots(4)
        calls = [asyncio.create_task(slots.acquire("bob")) for _ in range(6)]
        await asyncio.sleep(0)
        assert [call.done() for call in calls] == [True] * 3 + [False] * 3

        await slots.acquire("ann")

        for call in calls:
            call.cancel()

    run(work)


@given(steps=st.lists(st.tuples(st.sampled_from(["ann", "bob", ""]), st.integers(0, 3))))
def test_no_slot_is_lost_when_calls_end_or_are_cancelled_while_they_wait(
    steps: list[tuple[str, int]],
):
    async def work() -> None:
        slots = CallSlots(2)
        calls: list[asyncio.Task[None]] = []
        may_end = asyncio.Event()

        async def call(caller: str, turns: int) -> None:
            await slots.acquire(caller)
            try:
                for _ in range(turns):
                    await asyncio.sleep(0)
                await may_end.wait()
            finally:
                slots.release(caller)

        for caller, turns in steps:
            calls.append(asyncio.create_task(call(caller, turns)))
            for _ in range(turns):
                await asyncio.sleep(0)
            calls[turns * len(calls) // 4].cancel()
        may_end.set()
        await asyncio.gather(*calls, return_exceptions=True)
        assert [slots.count(caller) for caller in ("ann", "bob", "")] == [0, 0, 0]
        await slots.acquire()
        await slots.acquire()

    run(work)
