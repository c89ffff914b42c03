"""`Turn`: one call's place among those that a server works on, and its clock.

While a person or a model is asked on behalf of a call, the server only waits. Such a call rests:
it leaves its place to others, and its clock stands still. How long somebody may take to answer is
limited by whoever asks.
"""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any, Self

import mcp_types as types

from toolscout.servers.connection import Relay
from toolscout.servers.server import Member


class Turn:
    """The turn of one call; begins when a slot is free. Use it as a context manager."""

    def __init__(self, member: Member) -> None:
        self._member, self._slots = member, member.slots
        self._has_slot = self._is_resting = self._is_over = False
        self._clock: asyncio.Timeout | None = None
        self._left = 0.0
        self._questions = 0

    async def __aenter__(self) -> Self:
        await self._slots.acquire()
        self._has_slot = True
        return self

    async def __aexit__(self, *_: object) -> None:
        self._is_over = True
        self._wake()
        self._release()

    @asynccontextmanager
    async def timed(self, seconds: float) -> AsyncGenerator[None]:
        """Limit work to so many seconds, not counting rests; raises `TimeoutError`."""
        async with asyncio.timeout(seconds) as clock:
            self._clock = clock
            try:
                yield
            finally:
                self._clock = None

    def relay(self, relay: Relay | None) -> Relay | None:
        """Return a relay whose questions let the call rest."""
        return None if relay is None else _Resting(relay, self)

    @asynccontextmanager
    async def resting(self) -> AsyncGenerator[None]:
        """Rest for as long as somebody is asked."""
        self._questions += 1
        self._rest()
        try:
            yield
        except BaseException:
            # A question that was called off cannot wait for a slot; the call goes on without.
            self._questions -= 1
            if not self._questions:
                self._wake()
            raise
        self._questions -= 1
        if not self._questions:
            await self._resume()

    def _rest(self) -> None:
        if self._is_over or self._is_resting:
            return
        self._is_resting = True
        self._member.resting += 1
        self._release()
        clock = self._clock
        if clock is not None and not clock.expired():
            self._left = (clock.when() or 0.0) - asyncio.get_running_loop().time()
            clock.reschedule(None)

    async def _resume(self) -> None:
        await self._slots.acquire()
        if self._is_over or self._questions or not self._is_resting:
            self._slots.release()
            return
        self._has_slot = True
        self._wake()

    def _wake(self) -> None:
        if not self._is_resting:
            return
        self._is_resting = False
        self._member.resting -= 1
        clock = self._clock
        if clock is not None and not clock.expired():
            clock.reschedule(asyncio.get_running_loop().time() + self._left)

    def _release(self) -> None:
        if self._has_slot:
            self._has_slot = False
            self._slots.release()


class _Resting:
    """A relay during whose questions a call rests."""

    def __init__(self, relay: Relay, turn: Turn) -> None:
        self._relay, self._turn = relay, turn

    async def progress(self, done: float, total: float | None, message: str | None) -> None:
        await self._relay.progress(done, total, message)

    async def log(self, params: types.LoggingMessageNotificationParams) -> None:
        await self._relay.log(params)

    async def sample(self, params: types.CreateMessageRequestParams) -> Any:
        async with self._turn.resting():
            return await self._relay.sample(params)

    async def elicit(self, params: types.ElicitRequestParams) -> Any:
        async with self._turn.resting():
            return await self._relay.elicit(params)

    async def roots(self) -> Any:
        async with self._turn.resting():
            return await self._relay.roots()
