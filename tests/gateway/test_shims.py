"""Bundles: what is written of an answer goes out at once, and nothing is held back."""

import asyncio
from typing import Any

import pytest

from toolscout.gateway.shims import BUFFER_BYTES, BufferedTransport

HEAD, BODY = b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\n", b"body"


class Wire(asyncio.Transport):
    """A transport that notes what it is told to do."""

    def __init__(self) -> None:
        super().__init__({"peername": ("there", 1)})
        self.did: list[object] = []

    def write(self, data: Any) -> None:
        self.did.append(bytes(data))

    def close(self) -> None:
        self.did.append("closed")

    def is_closing(self) -> bool:
        return "closed" in self.did


def test_head_and_body_are_one_write_when_the_answer_is_complete():
    async def answer() -> list[object]:
        wire = Wire()
        bundle = BufferedTransport(wire)
        bundle.write(HEAD)
        bundle.write(BODY)
        assert not wire.did
        bundle.flush()
        await asyncio.sleep(0)
        return wire.did

    assert asyncio.run(answer()) == [HEAD + BODY]


def test_what_is_not_complete_goes_out_when_the_loop_turns():
    async def begin() -> list[object]:
        wire = Wire()
        bundle = BufferedTransport(wire)
        bundle.write(HEAD)
        await asyncio.sleep(0)
        bundle.write(BODY)
        await asyncio.sleep(0)
        return wire.did

    assert asyncio.run(begin()) == [HEAD, BODY]


@pytest.mark.parametrize(("size", "at_once"), [(BUFFER_BYTES, False), (BUFFER_BYTES + 1, True)])
def test_a_large_body_does_not_wait(size: int, at_once: bool):
    async def answer() -> list[object]:
        wire = Wire()
        BufferedTransport(wire).write(b"x" * size)
        return list(wire.did)

    assert bool(asyncio.run(answer())) is at_once


def test_closing_sends_what_is_kept_first():
    async def answer() -> list[object]:
        wire = Wire()
        bundle = BufferedTransport(wire)
        bundle.write(HEAD)
        bundle.close()
        await asyncio.sleep(0)
        assert bundle.is_closing()
        return wire.did

    assert asyncio.run(answer()) == [HEAD, "closed"]


def test_all_else_is_asked_of_the_transport_beneath():
    assert BufferedTransport(Wire()).get_extra_info("peername") == ("there", 1)
