"""Requests for hints that a command leaves in the store for a gateway."""

import asyncio
import json

import pytest

from hints.chatting import write_lines
from toolscout.errors import EndpointFailed
from toolscout.hints.hints import Hints, digest_definition
from toolscout.hints.requests import (
    REQUESTS_KIND,
    SILENT_SECONDS,
    UNCLAIMED_SECONDS,
    Progress,
    WriteRequest,
    WriteRequests,
)
from toolscout.hints.writing import Answer, Ask, Batch
from toolscout.lint.scanner import find_attack
from toolscout.stores import MemoryStore
from toolscout.tools import Tool

TOOLS = [Tool.define(f"tool_{n}", server=f"server_{n}", description=f"Do {n}.") for n in range(3)]
DIGESTS = list(map(digest_definition, TOOLS))


async def answer(instructions: str, batch: Batch) -> Answer:
    return Answer(write_lines(json.loads(batch.definitions)), "quill")


class Asking:
    """Requests in a store of their own, at a time that a test sets."""

    def __init__(self) -> None:
        self.now = 1_000.0
        self.store = MemoryStore()
        self.requests = WriteRequests(self.store, lambda: self.now)
        self.hints = Hints()

    def take(self, gateway: str = "one") -> WriteRequest:
        claimed = self.requests.take(gateway)
        assert claimed is not None
        return claimed

    def read(self, id_: str) -> WriteRequest:
        found = self.requests.read(id_)
        assert found is not None
        return found

    async def carry_out(self, claimed: WriteRequest, ask: Ask = answer) -> None:
        work = self.requests.carry_out
        await work(claimed, self.hints, TOOLS, ask, find_attack=find_attack)


@pytest.fixture
def asking() -> Asking:
    return Asking()


def test_a_gateway_writes_the_hints_that_are_asked_for_and_says_so(asking: Asking):
    id_ = asking.requests.leave(DIGESTS[:2])

    asyncio.run(asking.carry_out(asking.take()))

    done = asking.read(id_)
    assert (done.progress, done.answered, done.written) == (Progress.DONE, 2, 2)
    assert asking.hints.list_missing(TOOLS) == TOOLS[2:]
    assert asking.hints.find(TOOLS[0])[0].by == "model quill"


def test_a_request_is_claimed_once(asking: Asking):
    asking.requests.leave(DIGESTS)

    assert asking.take("one").gateway == "one"
    assert asking.requests.take("two") is None


def test_of_two_gateways_that_claim_at_once_only_the_last_asks(asking: Asking):
    asking.requests.leave(DIGESTS)
    first = asking.take("one")
    asking.requests.update(WriteRequest(id=first.id, digests=first.digests, touched=0))
    second = asking.take("two")

    asyncio.run(asking.carry_out(first))
    assert asking.hints.list_missing(TOOLS) == TOOLS
    asyncio.run(asking.carry_out(second))
    assert asking.hints.list_missing(TOOLS) == []


def test_a_request_that_is_deleted_is_not_carried_on(asking: Asking):
    id_ = asking.requests.leave(DIGESTS)

    async def answer_once(instructions: str, batch: Batch) -> Answer:
        asking.requests.delete(id_)
        return await answer(instructions, batch)

    asyncio.run(asking.carry_out(asking.take(), answer_once))

    assert len(asking.hints.list_missing(TOOLS)) == 2
    assert asking.store.keys(REQUESTS_KIND) == []


@pytest.mark.parametrize("is_claimed", [True, False])
def test_requests_that_nobody_waits_for_are_deleted(asking: Asking, is_claimed: bool):
    asking.requests.leave(DIGESTS)
    if is_claimed:
        asking.take("two")
    asking.now += (SILENT_SECONDS if is_claimed else UNCLAIMED_SECONDS) + 1

    assert asking.requests.take("one") is None
    assert asking.store.keys(REQUESTS_KIND) == []


def test_a_model_that_fails_is_reported_with_what_was_kept(asking: Asking):
    id_ = asking.requests.leave(DIGESTS)

    async def answer_first(instructions: str, batch: Batch) -> Answer:
        if batch.tools[0] is not TOOLS[0]:
            raise EndpointFailed("of ann", "the user said no", remedy="Ask again.")
        return await answer(instructions, batch)

    asyncio.run(asking.carry_out(asking.take(), answer_first))

    failed = asking.read(id_)
    assert (failed.progress, failed.written) == (Progress.FAILED, 1)
    assert "the user said no" in failed.problem


def test_a_gateway_that_stops_says_so(asking: Asking):
    id_ = asking.requests.leave(DIGESTS)

    async def stop() -> None:
        begun = asyncio.Event()

        async def wait(instructions: str, batch: Batch) -> Answer:
            begun.set()
            await asyncio.Event().wait()
            raise AssertionError

        work = asyncio.create_task(asking.carry_out(asking.take(), wait))
        await begun.wait()
        work.cancel()
        with pytest.raises(asyncio.CancelledError):
            await work

    asyncio.run(stop())

    assert asking.read(id_).progress is Progress.FAILED
    assert "The gateway was stopped" in asking.read(id_).problem


@pytest.mark.parametrize("data", ["{}", "[]", '{"progress": "waiting"}', '{"progress": 3}'])
def test_a_row_that_cannot_be_read_is_left_alone(asking: Asking, data: str):
    asking.store.write(REQUESTS_KIND, "x", data.encode())

    assert asking.requests.take("one") is None
