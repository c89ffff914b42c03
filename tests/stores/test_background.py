"""A store that writes in the background loses nothing that a caller was promised."""

import asyncio
import threading
from contextlib import closing

import pytest

from toolscout.errors import StoreUnavailable
from toolscout.stores import background
from toolscout.stores.background import BackgroundStore
from toolscout.stores.memory import MemoryStore

DEADLINE = 120.0


class HeldStore(MemoryStore):
    """Writes only while it is open, and notes the order; fails while it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.open, self.reached = threading.Event(), threading.Event()
        self.fails = False
        self.written: list[tuple[str, bytes | None]] = []

    def write(self, kind: str, key: str, value: bytes | None) -> None:
        self.reached.set()
        assert self.open.wait(DEADLINE)
        if self.fails:
            raise StoreUnavailable("here", "it is down")
        super().write(kind, key, value)
        self.written.append((key, value))


def test_values_are_written_in_order_and_a_replaced_one_never():
    inner = HeldStore()
    with closing(BackgroundStore(inner)) as store:
        store.write("session", "first", b"0")
        assert inner.reached.wait(DEADLINE)
        for key, value in (("a", b"1"), ("b", b"2"), ("a", b"3")):
            store.write("session", key, value)
        held = [store.read("session", key) for key in ("first", "a", "b")]
        inner.open.set()

    assert held == [b"0", b"3", b"2"]
    assert inner.written == [("first", b"0"), ("b", b"2"), ("a", b"3")]


def test_a_value_that_failed_is_written_with_the_next_one():
    inner = HeldStore()
    inner.open.set()
    inner.fails = True
    with closing(BackgroundStore(inner)) as store:
        store.write("session", "a", b"1")
        store.write("session", "b", b"2")
        asyncio.run(store.wait_written("session", "b"))
        store.flush()
        before = store.read("session", "a"), dict(inner.written)
        inner.fails = False
        store.write("session", "c", b"3")

    assert before == (b"1", {})
    assert dict(inner.written) == {"a": b"1", "b": b"2", "c": b"3"}


def test_waiting_ends_when_the_value_is_written():
    inner = HeldStore()

    async def wait(store: BackgroundStore) -> list[tuple[str, bytes | None]]:
        store.write("session", "a", b"1")
        waiting = asyncio.create_task(store.wait_written("session", "a"))
        assert await asyncio.to_thread(inner.reached.wait, DEADLINE)
        inner.open.set()
        await waiting
        return list(inner.written)

    with pytest.MonkeyPatch.context() as patch, closing(BackgroundStore(inner)) as store:
        patch.setattr(background, "WAIT_SECONDS", DEADLINE)
        assert asyncio.run(wait(store)) == [("a", b"1")]


def test_whoever_waits_for_a_replaced_value_waits_for_the_new_one():
    inner = HeldStore()

    async def wait(store: BackgroundStore) -> list[tuple[str, bytes | None]]:
        store.write("session", "first", b"0")
        assert await asyncio.to_thread(inner.reached.wait, DEADLINE)
        store.write("session", "a", b"1")
        waiting = asyncio.create_task(store.wait_written("session", "a"))
        await asyncio.sleep(0)
        store.write("session", "a", b"2")
        inner.open.set()
        await waiting
        return list(inner.written)

    with pytest.MonkeyPatch.context() as patch, closing(BackgroundStore(inner)) as store:
        patch.setattr(background, "WAIT_SECONDS", DEADLINE)
        assert asyncio.run(wait(store)) == [("first", b"0"), ("a", b"2")]


def test_a_stalled_store_keeps_nobody_waiting():
    inner = HeldStore()
    with closing(BackgroundStore(inner)) as store:
        store.write("session", "a", b"1")

        asyncio.run(store.wait_written("session", "a"))

        assert inner.written == []
        inner.open.set()


def test_a_stalled_store_does_not_fill_the_memory(caplog: pytest.LogCaptureFixture):
    inner = HeldStore()
    with closing(BackgroundStore(inner)) as store:
        store.write("session", "first", b"0")
        assert inner.reached.wait(DEADLINE)
        half = bytes(background.PENDING_BYTES // 2)
        for key in ("a", "b", "c"):
            store.write("result", key, half)
        inner.open.set()

    assert [key for key, _ in inner.written] == ["first", "c"]
    assert "too slow" in caplog.text
