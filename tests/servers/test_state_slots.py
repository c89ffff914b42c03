"""Turns: slots and clocks of calls on whose behalf somebody is asked."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import mcp_types as types
import pytest

from toolscout.config.servers import ServerConfig, Transport
from toolscout.servers.connection import Relay
from toolscout.servers.state import CallSlot, ServerState

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
    config = ServerConfig(name="a", transport=Transport.STDIO, command="none")
    return ServerState(config=config, slots=asyncio.Semaphore(slots))


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
            assert server.slots.locked()
            assert server.resting == 0
        assert not server.slots.locked()

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
            assert server.slots.locked()

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
        assert not server.slots.locked()

    run(work)


def test_a_question_that_is_called_off_does_not_stop_the_clock_for_good():
    async def work() -> None:
        server = make_server()
        with pytest.raises(TimeoutError):
            async with CallSlot(server) as slot, slot.limit(0.05):
                (await begun(slot.wrap_relay(Asked()))).cancel()
                await asyncio.Event().wait()
        assert server.resting == 0
        assert not server.slots.locked()

    run(work)


def test_an_answer_that_comes_after_the_call_takes_no_slot():
    async def work() -> None:
        server, asked = make_server(), Asked()
        async with CallSlot(server) as slot, slot.limit(60):
            question = await begun(slot.wrap_relay(asked))
        asked.may_answer.set()

        assert await question == "roots"
        assert server.resting == 0
        assert not server.slots.locked()

    run(work)
