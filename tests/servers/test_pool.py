"""The life of servers, with connections that do what a test tells them."""

import asyncio
import gc
import threading
from collections.abc import AsyncGenerator, Callable, Coroutine, Set
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving import eventually
from toolscout.catalog import Catalog, Change, Status
from toolscout.config.servers import ServerConfig, Share, Transport
from toolscout.errors import CallTimedOut, ServerBusy, ServerUnavailable
from toolscout.schemas import Json
from toolscout.servers.connection import Delays, Relay
from toolscout.servers.manifest import Manifest
from toolscout.servers.pool import Pool
from toolscout.servers.state import Caller, Phase
from toolscout.stores import MemoryStore

DEADLINE_SECONDS = 120
QUICK = Delays(
    first_retry=0.001,
    most_retry=0.005,
    change=0.001,
    most_change=0.01,
    idle_look=0.005,
    gate=0.01,
    drain=1.0,
)
NEVER = replace(QUICK, first_retry=3_600, most_retry=3_600)


def tool(name: str) -> Json:
    return {"name": name, "description": name, "inputSchema": {"type": "object"}}


@dataclass
class Plan:
    """What the connections of one server do."""

    tools: list[str] = field(default_factory=lambda: ["echo"])
    fails: str = ""
    state: str = "failed"
    open_gate: asyncio.Event | None = None
    answer_gate: asyncio.Event | None = None
    made: "list[Fake]" = field(default_factory=list["Fake"])


class Fake:
    """A connection without a server."""

    def __init__(self, config: ServerConfig, plan: Plan, on_change: Callable[[], None]) -> None:
        self.config, self.plan, self.change = config, plan, on_change
        self.ended = asyncio.Event()
        self.reason = "it ended"
        self.is_closed = False
        self.listings = 0
        self.requests: list[tuple[str, Json]] = []

    async def open(self, relay: Relay | None = None) -> None:
        if self.plan.open_gate is not None:
            await self.plan.open_gate.wait()
        if self.plan.fails:
            raise ServerUnavailable(self.config.name, self.plan.state, self.plan.fails)

    async def close(self) -> None:
        self.is_closed = True
        self.ended.set()

    async def read_manifest(self) -> Manifest:
        self.listings += 1
        return Manifest(tools=tuple(map(tool, self.plan.tools)))

    async def request(self, method: str, params: Json, relay: Relay | None = None) -> Json:
        self.requests.append((method, params))
        if self.plan.answer_gate is not None:
            await self.plan.answer_gate.wait()
        return {"answer": self.config.name}

    async def renew_roots(self, relay: Relay) -> None:
        return None

    async def watch(self, uris: Set[str], on_update: Callable[[str], None]) -> frozenset[str]:
        return frozenset(uris)


class Fakes:
    """Makes fake connections and remembers them."""

    def __init__(self) -> None:
        self.plans: dict[str, Plan] = {}

    def __getitem__(self, server: str) -> Plan:
        return self.plans.setdefault(server, Plan())

    def __call__(
        self, config: ServerConfig, *, on_change: Callable[[], None], on_line: Callable[[str], None]
    ) -> Fake:
        plan = self[config.name]
        plan.made.append(Fake(config, plan, on_change))
        return plan.made[-1]


def server(name: str = "a", **options: Any) -> ServerConfig:
    return ServerConfig(name=name, transport=Transport.STDIO, command="none", **options)


@asynccontextmanager
async def pool_of(
    fakes: Fakes,
    *configs: ServerConfig,
    store: MemoryStore | None = None,
    delays: Delays = QUICK,
    queue: int = 64,
) -> AsyncGenerator[Pool]:
    async with asyncio.timeout(DEADLINE_SECONDS):
        kept = store or MemoryStore()
        async with Pool(
            configs, Catalog(), kept, connect=fakes, delays=delays, queue=queue
        ) as pool:
            yield pool


async def warm_store(*configs: ServerConfig) -> MemoryStore:
    """Return a store that knows the tools of these servers."""
    store, fakes = MemoryStore(), Fakes()
    async with pool_of(fakes, *configs, store=store) as pool:
        await eventually(lambda: all(m.manifest for m in pool.servers.values()))
    return store


def run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(work)


@pytest.mark.requirement("R86")
def test_cached_tools_are_searchable_though_nothing_has_started():
    """R86"""

    async def work() -> None:
        store, fakes = await warm_store(server()), Fakes()
        async with pool_of(fakes, server(), store=store) as pool:
            assert pool.catalog.get("a__echo") is not None
            assert pool.servers["a"].phase is Phase.KNOWN
            await pool.request("a", "tools/call", {"name": "echo"})

            assert pool.servers["a"].phase is Phase.READY
            assert len(fakes["a"].made) == 1

    run(work())


def test_the_cache_of_another_command_is_not_used():
    async def work() -> None:
        store, fakes = await warm_store(server()), Fakes()
        fakes["a"].open_gate = asyncio.Event()
        async with pool_of(fakes, server(args=("other",)), store=store) as pool:
            assert pool.catalog.get("a__echo") is None

    run(work())


def test_a_first_call_does_not_wait_for_lists_that_are_known_and_they_are_read_after_it():
    async def work() -> None:
        store, fakes = await warm_store(server()), Fakes()
        fakes["a"].tools = ["echo", "new"]
        async with pool_of(fakes, server(changes="allow"), store=store) as pool:
            await pool.request("a", "tools/call", {"name": "echo"})
            await eventually(lambda: pool.catalog.get("a__new"))

    run(work())


def test_however_many_ask_a_server_is_started_once():
    async def work() -> None:
        fakes = Fakes()
        fakes["a"].open_gate = asyncio.Event()
        async with pool_of(fakes, server()) as pool:
            calls = [asyncio.create_task(pool.request("a", "m", {})) for _ in range(50)]
            await eventually(lambda: fakes["a"].made)
            fakes["a"].open_gate.set()
            await asyncio.gather(*calls)

            assert len(fakes["a"].made) == 1

    run(work())


def test_a_call_is_answered_while_a_long_list_is_being_indexed():
    async def work() -> None:
        fakes, indexing, is_done = Fakes(), threading.Event(), threading.Event()
        was_done: list[bool] = []

        def index(_: Change) -> None:
            indexing.set()
            was_done.append(is_done.wait(DEADLINE_SECONDS / 2))

        async with pool_of(fakes, server("a", changes="allow"), server("b")) as pool:
            await eventually(lambda: all(s.manifest for s in pool.servers.values()))
            pool.catalog.subscribe(index)
            fakes["a"].tools = [f"tool_{number}" for number in range(1_000)]
            fakes["a"].made[0].change()
            await eventually(indexing.is_set)

            await pool.request("b", "tools/call", {"name": "echo"})
            is_done.set()
            await eventually(lambda: pool.catalog.get("a__tool_999"))

        assert was_done == [True]

    run(work())


class StallingStore(MemoryStore):
    """Stalls when server `a` is read or written, until it is released."""

    def __init__(self, method: str) -> None:
        super().__init__()
        self._method = method
        self.has_stalled = threading.Event()
        self.is_released = threading.Event()
        self.was_released: list[bool] = []

    def read(self, kind: str, key: str) -> bytes | None:
        self._stall("read", key)
        return super().read(kind, key)

    def write(self, kind: str, key: str, value: bytes | None) -> None:
        self._stall("write", key)
        super().write(kind, key, value)

    def _stall(self, method: str, key: str) -> None:
        if method == self._method and key == "a":
            self.has_stalled.set()
            self.was_released.append(self.is_released.wait(DEADLINE_SECONDS / 2))


@pytest.mark.parametrize("method", ["read", "write"])
def test_calls_are_answered_while_the_store_stalls(method: str):
    async def work() -> None:
        fakes, store = Fakes(), StallingStore(method)
        async with pool_of(fakes, server("b"), store=store) as pool:
            await eventually(lambda: pool.servers["b"].manifest)
            reloading = asyncio.create_task(pool.reload([server("a"), server("b")]))
            await eventually(store.has_stalled.is_set)

            await pool.request("a", "tools/call", {"name": "echo"})
            await pool.request("b", "tools/call", {"name": "echo"})
            store.is_released.set()
            await reloading

        assert store.was_released == [True]
        assert store.read("manifest", "a") is not None

    run(work())


def test_a_caller_that_gives_up_does_not_stop_the_start_for_others():
    async def work() -> None:
        fakes = Fakes()
        fakes["a"].open_gate = asyncio.Event()
        async with pool_of(fakes, server()) as pool:
            hasty = asyncio.create_task(pool.request("a", "m", {}))
            patient = asyncio.create_task(pool.request("a", "m", {}))
            await eventually(lambda: pool.servers["a"].waiting == 2)
            hasty.cancel()
            fakes["a"].open_gate.set()

            assert await patient == {"answer": "a"}
            assert len(fakes["a"].made) == 1

    run(work())


def test_beyond_the_queue_a_server_is_busy():
    async def work() -> None:
        fakes = Fakes()
        fakes["a"].answer_gate = gate = asyncio.Event()
        async with pool_of(fakes, server(concurrency=1), queue=2) as pool:
            calls = [asyncio.create_task(pool.request("a", "m", {})) for _ in range(3)]
            await eventually(
                lambda: (pool.servers["a"].running, pool.servers["a"].waiting) == (1, 2)
            )
            with pytest.raises(ServerBusy) as caught:
                await pool.request("a", "m", {})
            gate.set()
            await asyncio.gather(*calls)

            assert caught.value.waiting == 3
            assert (pool.servers["a"].running, pool.servers["a"].waiting) == (0, 0)

    run(work())


def test_one_caller_does_not_fill_the_queue_of_a_server():
    async def work() -> None:
        fakes = Fakes()
        fakes["a"].answer_gate = gate = asyncio.Event()
        async with pool_of(fakes, server(concurrency=1), queue=4) as pool:
            state = pool.servers["a"]
            calls = [
                asyncio.create_task(pool.request("a", "m", {}, caller=Caller(principal="bob")))
                for _ in "123"
            ]
            await eventually(lambda: (state.running, state.waiting) == (1, 2))
            with pytest.raises(ServerBusy, match="3 calls of yours"):
                await pool.request("a", "m", {}, caller=Caller(principal="bob"))
            calls.append(
                asyncio.create_task(pool.request("a", "m", {}, caller=Caller(principal="ann")))
            )
            await eventually(lambda: state.waiting == 3)
            gate.set()
            await asyncio.gather(*calls)

    run(work())


@given(
    limit=st.integers(1, 4),
    calls=st.lists(st.sampled_from(["answer", "cancel", "time out"]), max_size=12),
)
def test_whatever_happens_to_calls_no_more_run_than_allowed_and_none_stays_counted(
    limit: int, calls: list[str]
):
    async def work() -> None:
        fakes = Fakes()
        fakes["a"].answer_gate = gate = asyncio.Event()
        config = server(concurrency=limit, call_seconds=10)
        async with pool_of(fakes, config) as pool:
            member = pool.servers["a"]
            await eventually(lambda: member.phase is Phase.READY)
            tasks = [asyncio.create_task(pool.request("a", "m", {})) for _ in calls]
            await eventually(lambda: member.running == min(limit, len(calls)))
            for task, fate in zip(tasks, calls, strict=True):
                if fate != "answer":
                    task.cancel()
            gate.set()
            await asyncio.gather(*tasks, return_exceptions=True)

            assert (member.running, member.waiting) == (0, 0)
            assert member.idle.is_set()

    run(work())


def test_an_unknown_server_is_unavailable():
    async def work() -> None:
        async with pool_of(Fakes()) as pool:
            with pytest.raises(ServerUnavailable):
                await pool.request("nobody", "m", {})

    run(work())


def test_a_failing_server_is_tried_again_until_its_tools_are_known():
    async def work() -> None:
        fakes = Fakes()
        fakes["a"].fails = "no luck"
        async with pool_of(fakes, server()) as pool:
            await eventually(lambda: len(fakes["a"].made) >= 5)
            state = pool.catalog.state("a")
            assert state is not None
            assert (state.status, state.reason) == (Status.FAILED, "no luck")
            fakes["a"].fails = ""
            await eventually(lambda: pool.catalog.get("a__echo"))
            await eventually(lambda: pool.servers["a"].phase is Phase.READY)

    run(work())


def test_after_three_failures_calls_are_refused_at_once():
    async def work() -> None:
        store, fakes = await warm_store(server()), Fakes()
        fakes["a"].fails = "no luck"
        async with pool_of(fakes, server(), store=store) as pool:
            for _ in range(3):
                with pytest.raises(ServerUnavailable):
                    await pool.request("a", "m", {})
            pool.servers["a"].retry_at += 3_600
            with pytest.raises(ServerUnavailable) as caught:
                await pool.request("a", "m", {})
            state = pool.catalog.state("a")

            assert len(fakes["a"].made) == 3
            assert caught.value.reason == "no luck"
            assert state is not None
            assert state.status is Status.FAILED
            assert pool.catalog.get("a__echo") is not None

    run(work())


def test_a_refused_server_is_tried_again_once_its_delay_is_over():
    async def work() -> None:
        store, fakes = await warm_store(server()), Fakes()
        fakes["a"].fails = "no luck"
        async with pool_of(fakes, server(), store=store) as pool:
            for _ in range(3):
                with pytest.raises(ServerUnavailable):
                    await pool.request("a", "m", {})
            fakes["a"].fails = ""
            await eventually(lambda: pool.catalog.unready["a"].status is Status.PENDING)

            assert await pool.request("a", "m", {}) == {"answer": "a"}
            assert pool.servers["a"].failures == 0
            assert "a" not in pool.catalog.unready

    run(work())


def test_delays_grow_and_differ_but_stay_below_the_most():
    async def work() -> None:
        store, fakes = await warm_store(server()), Fakes()
        fakes["a"].fails = "no luck"
        delays = replace(QUICK, first_retry=0.002, most_retry=100.0)
        async with pool_of(fakes, server(), store=store, delays=delays) as pool:
            member, waits = pool.servers["a"], list[float]()
            for _ in range(3):
                with pytest.raises(ServerUnavailable):
                    await pool.request("a", "m", {})
                waits.append(member.retry_at - member.since)

        for wait, most in zip(waits, (0.002, 0.004, 0.008), strict=True):
            assert most / 2 - 1e-4 <= wait <= most + 1e-4

    run(work())


def test_a_server_that_wants_a_login_is_not_tried_again_and_says_so():
    async def work() -> None:
        store, fakes = await warm_store(server()), Fakes()
        fakes["a"].fails, fakes["a"].state = "it refused the credentials", "needs login"
        async with pool_of(fakes, server(), store=store, delays=NEVER) as pool:
            for _ in range(2):
                with pytest.raises(ServerUnavailable):
                    await pool.request("a", "m", {})
            state = pool.catalog.state("a")

            assert pool.servers["a"].phase is Phase.NEEDS_LOGIN
            assert len(fakes["a"].made) == 1
            assert state is not None
            assert state.reason == "needs login: it refused the credentials"

    run(work())


def test_a_server_that_fell_is_started_by_the_next_call():
    async def work() -> None:
        fakes = Fakes()
        async with pool_of(fakes, server()) as pool:
            await pool.request("a", "m", {})
            fakes["a"].made[0].ended.set()
            await eventually(lambda: pool.servers["a"].phase is Phase.FAILED)

            assert await pool.request("a", "m", {}) == {"answer": "a"}
            assert len(fakes["a"].made) == 2

    run(work())


def test_a_server_that_is_not_lazy_comes_back_by_itself():
    async def work() -> None:
        fakes = Fakes()
        async with pool_of(fakes, server(lazy=False)) as pool:
            await eventually(lambda: pool.servers["a"].phase is Phase.READY)
            fakes["a"].made[0].ended.set()
            await eventually(lambda: len(fakes["a"].made) == 2)
            await eventually(lambda: pool.servers["a"].phase is Phase.READY)

    run(work())


def test_an_idle_server_is_stopped_and_started_by_the_next_call():
    async def work() -> None:
        fakes = Fakes()
        async with pool_of(fakes, server(idle_stop=0.01)) as pool:
            await pool.request("a", "m", {})
            await eventually(lambda: pool.servers["a"].phase is Phase.STOPPED)
            await eventually(lambda: fakes["a"].made[0].is_closed)

            assert await pool.request("a", "m", {}) == {"answer": "a"}
            assert pool.servers["a"].failures == 0

    run(work())


def test_a_server_at_work_is_not_idle():
    async def work() -> None:
        fakes = Fakes()
        fakes["a"].answer_gate = gate = asyncio.Event()
        async with pool_of(
            fakes, server("a", idle_stop=0.001), server("b", idle_stop=0.001)
        ) as pool:
            running = asyncio.create_task(pool.request("a", "m", {}))
            await eventually(lambda: pool.servers["a"].running)
            await pool.request("b", "m", {})
            await eventually(lambda: pool.servers["b"].phase is Phase.STOPPED)
            assert pool.servers["a"].phase is Phase.READY
            gate.set()

            assert await running == {"answer": "a"}

    run(work())


def test_a_call_that_takes_too_long_is_given_up():
    async def work() -> None:
        fakes = Fakes()
        fakes["a"].answer_gate = asyncio.Event()
        async with pool_of(fakes, server(call_seconds=0.01)) as pool:
            with pytest.raises(CallTimedOut) as caught:
                await pool.request("a", "tools/call", {"name": "echo"})

            assert (caught.value.name, caught.value.seconds) == ("echo", 0.01)

    run(work())


@pytest.mark.requirement("R82")
def test_changed_lists_are_read_again_for_that_server_only():
    """R82"""

    async def work() -> None:
        fakes = Fakes()
        async with pool_of(fakes, server("a", changes="allow"), server("b")) as pool:
            await eventually(lambda: pool.catalog.get("a__echo") and pool.catalog.get("b__echo"))
            fakes["a"].tools = ["other"]
            for _ in range(100):
                fakes["a"].made[0].change()
            await eventually(lambda: pool.catalog.get("a__other"))

            assert pool.catalog.get("a__echo") is None
            assert fakes["a"].made[0].listings == 2
            assert fakes["b"].made[0].listings == 1

    run(work())


@pytest.mark.requirement("R84")
def test_a_name_that_another_server_has_is_left_out_and_reported():
    """R84: the other tools of both servers stay."""

    async def work() -> None:
        fakes = Fakes()
        fakes["x"].tools, fakes["x__y"].tools = ["y__z", "p"], ["z", "q"]
        async with pool_of(fakes, server("x"), server("x__y")) as pool:
            await eventually(lambda: pool.catalog.get("x__p") and pool.catalog.get("x__y__q"))

            assert sum(len(member.problems) for member in pool.servers.values()) == 1

    run(work())


def test_a_stopped_server_stays_stopped_until_it_is_started():
    async def work() -> None:
        fakes = Fakes()
        async with pool_of(fakes, server()) as pool:
            await pool.request("a", "m", {})
            await pool.stop("a")
            with pytest.raises(ServerUnavailable) as caught:
                await pool.request("a", "m", {})
            assert caught.value.state == "stopped"
            await pool.start("a")

            assert await pool.request("a", "m", {}) == {"answer": "a"}
            assert "a" not in pool.catalog.unready

    run(work())


def test_a_restart_closes_the_old_connection_and_forgets_failures():
    async def work() -> None:
        store, fakes = await warm_store(server()), Fakes()
        fakes["a"].fails = "no luck"
        async with pool_of(fakes, server(), store=store, delays=NEVER) as pool:
            with pytest.raises(ServerUnavailable):
                await pool.request("a", "m", {})
            fakes["a"].fails = ""
            await pool.restart("a")

            assert pool.servers["a"].phase is Phase.READY

    run(work())


def test_reloading_drops_adds_and_restarts_only_what_changed():
    async def work() -> None:
        fakes = Fakes()
        fakes["same"].answer_gate = gate = asyncio.Event()
        configs = [server("same"), server("gone"), server("changed")]
        async with pool_of(fakes, *configs) as pool:
            await eventually(lambda: all(m.manifest for m in pool.servers.values()))
            running = asyncio.create_task(pool.request("same", "m", {}))
            await eventually(lambda: pool.servers["same"].running)
            await pool.reload([server("same"), server("changed", args=("x",)), server("new")])
            await eventually(lambda: pool.catalog.get("new__echo"))
            await eventually(lambda: pool.catalog.get("changed__echo"))
            await eventually(lambda: fakes["gone"].made[0].is_closed)
            gate.set()

            assert await running == {"answer": "same"}
            assert pool.catalog.get("gone__echo") is None
            assert set(pool.servers) == {"same", "changed", "new"}
            made = {name: len(plan.made) for name, plan in fakes.plans.items()}
            assert made == {"same": 1, "gone": 1, "changed": 2, "new": 1}

    run(work())


def test_reloading_shows_tools_in_another_way_without_a_restart():
    async def work() -> None:
        fakes = Fakes()
        async with pool_of(fakes, server()) as pool:
            await eventually(lambda: pool.catalog.get("a__echo"))
            await pool.reload([server(renames={"echo": "say"})])

            assert pool.catalog.get("a__say") is not None
            assert pool.catalog.get("a__echo") is None
            assert len(fakes["a"].made) == 1

    run(work())


def test_calls_of_a_server_that_changes_are_finished_before_it_is_closed():
    async def work() -> None:
        fakes = Fakes()
        fakes["a"].answer_gate = gate = asyncio.Event()
        async with pool_of(fakes, server()) as pool:
            running = asyncio.create_task(pool.request("a", "m", {}))
            await eventually(lambda: pool.servers["a"].running)
            await pool.reload([server(args=("x",))])
            await eventually(lambda: len(fakes["a"].made) == 2)
            assert not fakes["a"].made[0].is_closed
            gate.set()

            assert await running == {"answer": "a"}
            await eventually(lambda: fakes["a"].made[0].is_closed)

    run(work())


def test_a_server_that_is_being_taken_out_is_closed_when_the_pool_ends():
    async def work() -> None:
        fakes = Fakes()
        fakes["a"].answer_gate = asyncio.Event()
        async with pool_of(fakes, server(), delays=replace(QUICK, drain=0.05)) as pool:
            running = asyncio.create_task(pool.request("a", "m", {}))
            await eventually(lambda: pool.servers["a"].running)
            await pool.reload([])

        assert fakes["a"].made[0].is_closed
        running.cancel()

    run(work())


def test_disabled_servers_are_not_there():
    async def work() -> None:
        async with pool_of(Fakes(), server(disabled=True)) as pool:
            assert pool.servers == {}

    run(work())


def test_a_variable_that_is_not_set_fails_its_server_with_its_name():
    async def work() -> None:
        async with pool_of(Fakes(), server(env={"KEY": "${TOOLSCOUT_NO_SUCH}"})) as pool:
            await eventually(lambda: pool.servers["a"].phase is Phase.FAILED)

            assert "TOOLSCOUT_NO_SUCH" in pool.servers["a"].reason

    run(work())


def test_a_cache_that_cannot_be_written_costs_no_server():
    class Full(MemoryStore):
        def write(self, kind: str, key: str, value: bytes | None) -> None:
            raise OSError(28, "No space left on device")

    async def work() -> None:
        async with pool_of(Fakes(), server(), store=Full()) as pool:
            assert await pool.request("a", "m", {}) == {"answer": "a"}

    run(work())


def test_when_the_pool_ends_everything_is_closed_and_calls_are_refused():
    async def work() -> None:
        fakes = Fakes()
        fakes["b"].open_gate = asyncio.Event()
        async with pool_of(fakes, server("a"), server("b")) as pool:
            await pool.request("a", "m", {})
            waiting = asyncio.create_task(pool.request("b", "m", {}))
            await eventually(lambda: pool.servers["b"].phase is Phase.STARTING)

        assert fakes["a"].made[0].is_closed
        with pytest.raises((ServerUnavailable, asyncio.CancelledError)):
            await waiting
        with pytest.raises(ServerUnavailable):
            await pool.request("a", "m", {})
        assert len(asyncio.all_tasks()) == 1

    run(work())
    gc.collect()


def test_what_a_session_lists_is_compared_before_its_call_and_never_published_by_itself():
    async def work() -> None:
        config = server(share="session")
        store, fakes = await warm_store(config), Fakes()
        fakes["a"].tools = ["echo", "new"]
        held: list[str] = []
        async with pool_of(fakes, config, store=store) as pool:

            def check() -> None:
                held.extend(item.name for item in pool.servers["a"].held_definitions)

            await pool.request("a", "m", {}, caller=Caller(session="s"), check=check)
            own, lister = fakes["a"].made
            assert held == ["new"]
            assert lister.is_closed
            assert pool.servers["a"].phase is Phase.KNOWN
            fakes["a"].tools = ["echo", "newer"]
            own.change()
            await pool.request("a", "m", {}, caller=Caller(session="s"), check=check)
            assert held == ["new", "new"]
            assert [len(fake.requests) for fake in fakes["a"].made] == [2, 0]

    run(work())


def test_the_folder_of_a_client_is_that_of_its_programs_unless_they_have_another():
    async def work() -> None:
        web = ServerConfig(
            name="web", transport=Transport.HTTP, url="http://web.example", share=Share.SESSION
        )
        caller = Caller(session="s", folder="/project")
        configs = (web, server("own", share="session"), server("fixed", share="session", cwd="/x"))
        fakes, chosen = Fakes(), {"web": "", "own": "/project", "fixed": "/x", "all": ""}
        async with pool_of(fakes, *configs, server("all")) as pool:
            for name in chosen:
                await pool.request(name, "m", {}, caller=caller)
            used = {name: [f for f in fakes[name].made if f.requests] for name in chosen}
            assert {name: fake.config.cwd for name, [fake] in used.items()} == chosen

    run(work())
