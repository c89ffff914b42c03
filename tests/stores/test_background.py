"""A store that writes in the background loses nothing that a caller was promised."""

import asyncio
import gc
import threading
from collections.abc import Sequence
from contextlib import closing

import pytest

from toolscout.errors import StoreUnavailable
from toolscout.stores import background
from toolscout.stores.background import BackgroundStore
from toolscout.stores.memory import MemoryStore
from toolscout.stores.store import Append, Change, Merge, Put, Version

DEADLINE = 120.0


class HeldStore(MemoryStore):
    """Writes only while it is open, and notes the order; fails while it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.open, self.reached = threading.Event(), threading.Event()
        self.fails = False
        self.written: list[tuple[str, bytes | None]] = []

    def write_all(self, changes: Sequence[Change]) -> None:
        self.reached.set()
        assert self.open.wait(DEADLINE)
        if self.fails:
            raise StoreUnavailable("here", "it is down")
        super().write_all(changes)
        self.written += [(one.key, one.value) for one in changes if isinstance(one, Put)]


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


def test_a_value_that_failed_is_tried_again():
    inner = HeldStore()
    inner.open.set()
    inner.fails = True
    with closing(BackgroundStore(inner)) as store:
        store.write("session", "a", b"1")
        store.write("session", "b", b"2")
        asyncio.run(store.wait_written("session", "b"))
        store.flush()
        before = store.read("session", "a"), dict(inner.written)
        was_failing = store.is_failing
        inner.fails = False
        store.write("session", "c", b"3")
        store.flush()
        after = store.is_failing, store.pending, store.dropped

    assert before == (b"1", {})
    assert was_failing
    assert after == (False, 0, 0)
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
    assert store.dropped == 2
    assert "too slow" in caplog.text


def test_a_store_that_recovers_gets_what_waited_although_nothing_more_is_written():
    inner = HeldStore()
    inner.open.set()
    inner.fails = True
    recovered = threading.Event()

    class Watched(HeldStore):
        def write_all(self, changes: Sequence[Change]) -> None:
            inner.write_all(changes)
            recovered.set()

    with closing(BackgroundStore(Watched())) as store:
        store.write("session", "a", b"1")
        store.flush()
        inner.fails = False
        assert recovered.wait(DEADLINE)

    assert inner.written == [("a", b"1")]


def test_what_cannot_be_written_before_the_end_is_counted(caplog: pytest.LogCaptureFixture):
    inner = HeldStore()
    inner.open.set()
    inner.fails = True
    store = BackgroundStore(inner)
    store.write_all([Put("session", "a", b"1"), Append("usage", b"2")])

    store.close()

    assert store.dropped == 2
    assert "2 changes were dropped" in caplog.text


def test_after_one_answer_has_waited_in_vain_none_waits_until_the_store_writes_again():
    inner = HeldStore()

    async def wait(store: BackgroundStore) -> list[bool]:
        store.write("session", "a", b"1")
        await store.wait_written("session", "a")
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(background, "WAIT_SECONDS", DEADLINE)
            await store.wait_written("session", "a")  # returns at once
            inner.open.set()
            await asyncio.to_thread(store.flush)
            store.write("session", "a", b"2")
            await store.wait_written("session", "a")
        return [("a", b"2") in inner.written]

    with closing(BackgroundStore(inner)) as store:
        assert asyncio.run(asyncio.wait_for(wait(store), DEADLINE)) == [True]


def test_whoever_waits_learns_whether_the_value_is_written():
    inner = HeldStore()

    async def wait(store: BackgroundStore) -> list[bool]:
        told = [await store.wait_written("session", "a")]  # there is nothing to write
        store.write("session", "a", b"1")
        told.append(await store.wait_written("session", "a"))
        told.append(await store.wait_written("session", "a"))  # does not wait any more
        inner.open.set()
        await asyncio.to_thread(store.flush)
        told.append(await store.wait_written("session", "a"))
        inner.fails = True
        store.write("session", "a", b"2")
        told.append(await store.wait_written("session", "a"))
        return told

    with closing(BackgroundStore(inner)) as store:
        told = asyncio.run(asyncio.wait_for(wait(store), DEADLINE))

    assert told == [True, False, False, True, False]


def test_what_has_to_be_stored_is_waited_for_while_the_store_fails():
    inner = HeldStore()
    inner.open.set()
    inner.fails = True

    async def wait(store: BackgroundStore) -> list[bool]:
        store.write("session", "a", b"1")
        told = [await store.wait_stored("session", "a", 0.01)]
        waiting = asyncio.create_task(store.wait_stored("session", "a", DEADLINE))
        await asyncio.sleep(0)
        inner.fails = False
        return [*told, await waiting]

    with closing(BackgroundStore(inner)) as store:
        assert asyncio.run(asyncio.wait_for(wait(store), DEADLINE)) == [False, True]


def test_many_changes_are_written_together():
    inner = HeldStore()
    batches: list[int] = []

    class Counting(MemoryStore):
        def write_all(self, changes: Sequence[Change]) -> None:
            inner.reached.set()
            assert inner.open.wait(DEADLINE)
            batches.append(len(changes))
            super().write_all(changes)

    with closing(BackgroundStore(Counting())) as store:
        store.write("session", "first", b"0")
        assert inner.reached.wait(DEADLINE)
        for number in range(background.BATCH_CHANGES + 1):
            store.append("usage", str(number).encode())
        inner.open.set()
        store.flush()
        read = [int(value) for _, value in store.scan("usage")]

    assert batches == [1, background.BATCH_CHANGES, 1]
    assert read == list(range(background.BATCH_CHANGES + 1))


def test_the_version_of_a_value_that_is_still_to_be_written_is_its_own():
    inner = HeldStore()
    with closing(BackgroundStore(inner)) as store:
        seen = Version()
        store.write_all([Merge("session", "a", b"1", seen, lambda theirs, ours: theirs + ours)])
        value, version = store.read_version("session", "a")
        inner.open.set()
        store.flush()

        assert value == b"1"
        assert version is seen
        assert version.number == inner.read_version("session", "a")[1].number


def merge(value: bytes, *, is_urgent: bool) -> Merge:
    return Merge("session", "a", value, Version(), lambda theirs, ours: ours, is_urgent=is_urgent)


def test_changes_that_no_answer_promises_are_written_together_a_moment_later():
    inner = HeldStore()
    inner.open.set()

    async def wait(store: BackgroundStore) -> bool:
        return await store.wait_written("session", "a")

    with pytest.MonkeyPatch.context() as patch, closing(BackgroundStore(inner)) as store:
        patch.setattr(background, "GATHER_SECONDS", DEADLINE)
        store.write_all([merge(b"1", is_urgent=False)])
        store.append("usage", b"call")
        promised = asyncio.run(wait(store))
        seen = store.read("session", "a"), store.pending, inner.reached.is_set()
        store.write("result", "b", b"2")
        store.flush()

        assert promised
        assert seen == (b"1", 2, False)
        assert inner.read("session", "a") == b"1"


def test_changes_that_no_answer_promises_are_written_although_nothing_more_happens():
    inner = HeldStore()
    inner.open.set()
    with closing(BackgroundStore(inner)) as store:
        store.write_all([merge(b"1", is_urgent=False)])

        assert inner.reached.wait(DEADLINE)


def test_changes_that_no_answer_promises_are_written_soon_after_the_store_was_down():
    inner = HeldStore()
    inner.open.set()
    inner.fails = True
    with pytest.MonkeyPatch.context() as patch, closing(BackgroundStore(inner)) as store:
        patch.setattr(background, "RETRY_SECONDS", 10 * DEADLINE)
        store.write("session", "a", b"1")
        store.flush()
        store.append("usage", b"while it is down")
        inner.fails = False
        store.flush()
        inner.reached.clear()

        store.append("usage", b"afterwards")

        assert inner.reached.wait(DEADLINE)


def test_a_promised_value_that_a_later_one_replaces_is_still_waited_for():
    inner = HeldStore()

    async def wait(store: BackgroundStore) -> list[bool]:
        store.write("session", "first", b"0")
        assert await asyncio.to_thread(inner.reached.wait, DEADLINE)
        store.write_all([merge(b"1", is_urgent=True)])
        store.write_all([merge(b"2", is_urgent=False)])
        told = [await store.wait_written("session", "a")]
        inner.open.set()
        await asyncio.to_thread(store.flush)
        return [*told, await store.wait_written("session", "a")]

    with closing(BackgroundStore(inner)) as store:
        assert asyncio.run(wait(store)) == [False, True]
        assert inner.read("session", "a") == b"2"


def test_nobody_waits_for_a_later_change_that_no_answer_promises():
    inner = HeldStore()

    async def wait(store: BackgroundStore) -> bool:
        store.write_all([merge(b"1", is_urgent=True)])
        waiting = asyncio.create_task(store.wait_written("session", "a"))
        assert await asyncio.to_thread(inner.reached.wait, DEADLINE)
        store.write_all([merge(b"2", is_urgent=False)])
        inner.open.set()
        return await waiting

    with pytest.MonkeyPatch.context() as patch, closing(BackgroundStore(inner)) as store:
        patch.setattr(background, "WAIT_SECONDS", DEADLINE)
        patch.setattr(background, "GATHER_SECONDS", DEADLINE / 2)
        assert asyncio.run(asyncio.wait_for(wait(store), DEADLINE / 4))


def test_a_promised_value_that_failed_is_waited_for_although_a_later_one_replaced_it():
    inner = HeldStore()
    inner.fails = True

    async def wait(store: BackgroundStore) -> list[bool]:
        store.write_all([merge(b"1", is_urgent=True)])
        assert await asyncio.to_thread(inner.reached.wait, DEADLINE)
        store.write_all([merge(b"2", is_urgent=False)])
        inner.open.set()
        await asyncio.to_thread(store.flush)
        told = [await store.wait_written("session", "a")]
        inner.fails = False
        return [*told, await store.wait_stored("session", "a", DEADLINE)]

    with closing(BackgroundStore(inner)) as store:
        assert asyncio.run(asyncio.wait_for(wait(store), DEADLINE)) == [False, True]
        assert inner.read("session", "a") == b"2"


def test_a_check_that_fails_when_nobody_waits_any_more_logs_nothing(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    monkeypatch.setattr(background, "CHECK_SECONDS", 0.01)
    answer, answered = threading.Event(), threading.Event()

    class SlowStore(MemoryStore):
        def read(self, kind: str, key: str) -> bytes | None:
            assert answer.wait(DEADLINE)
            answered.set()
            raise StoreUnavailable("here", "it is down")

    async def check(store: BackgroundStore) -> list[bool]:
        first = await store.is_available()
        answer.set()
        await store.run_in_thread(lambda: answered.wait(DEADLINE))
        return [first, await store.is_available()]

    with closing(BackgroundStore(SlowStore())) as store:
        assert asyncio.run(check(store)) == [False, False]
    del store
    gc.collect()

    assert caplog.messages == []
