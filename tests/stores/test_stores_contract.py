"""What every store promises."""

import threading
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    rule,
    run_state_machine_as_test,
)

from toolscout.stores import MemoryStore, PostgresStore, SqliteStore
from toolscout.stores.background import BackgroundStore
from toolscout.stores.store import Append, Merge, Put, Store, Trim, Version

KINDS = ("session", "usage")
THREADS = 4
DEADLINE = 120.0
POSTGRES = pytest.param("postgres", marks=pytest.mark.processes)


@pytest.fixture(params=["memory", "sqlite", POSTGRES, "background"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    made: dict[str, Callable[[], Store]] = {
        "memory": MemoryStore,
        "sqlite": lambda: SqliteStore(tmp_path / "store.db"),
        "postgres": lambda: PostgresStore(database(request), schema=fresh_schema()),
        "background": lambda: BackgroundStore(SqliteStore(tmp_path / "store.db")),
    }
    with closing(made[request.param]()) as store:
        yield store


def database(request: pytest.FixtureRequest) -> str:
    """Return the address of a real database, which is started when it is first wanted."""
    return request.getfixturevalue("postgres_url")


def fresh_schema() -> str:
    return f"test_{uuid.uuid4().hex}"


def test_what_is_written_is_read(store: Store):
    store.write("session", "a", b"one")

    assert store.read("session", "a") == b"one"


def test_a_later_value_takes_the_place_of_the_one_before(store: Store):
    store.write("session", "a", b"one")
    store.write("session", "a", b"two")

    assert store.read("session", "a") == b"two"
    assert store.keys("session") == ["a"]


def test_what_was_never_written_is_none(store: Store):
    assert store.read("session", "a") is None
    assert store.keys("session") == []
    assert list(store.scan("usage")) == []


def test_none_deletes(store: Store):
    store.write("session", "a", b"one")
    store.write("session", "a", None)
    store.write("session", "never there", None)

    assert store.read("session", "a") is None
    assert store.keys("session") == []


def test_an_empty_value_is_a_value(store: Store):
    store.write("session", "a", b"")
    store.append("usage", b"")

    assert store.read("session", "a") == b""
    assert list(store.scan("usage")) == [(1, b"")]


def test_kinds_do_not_meet(store: Store):
    store.write("session", "a", b"one")
    store.write("result", "a", b"two")
    store.append("session", b"three")

    assert store.read("session", "a") == b"one"
    assert store.read("result", "a") == b"two"
    assert list(store.scan("result")) == []


def test_keys_are_sorted_as_python_sorts_them(store: Store):
    keys = ["", "B", "a", "a/b", "a\0b", "\u00e9", "\u6587", "\ud800", "\ue000", "\U0001f600"]
    for key in reversed(keys):
        store.write("session", key, key.encode("utf-8", "surrogatepass"))

    assert store.keys("session") == sorted(keys)
    assert [store.read("session", key) for key in keys] == [
        key.encode("utf-8", "surrogatepass") for key in keys
    ]


def test_a_value_of_several_megabytes_comes_back_whole(store: Store):
    value = bytes(range(256)) * 20_000
    store.write("result", "long", value)

    assert store.read("result", "long") == value


def test_a_log_is_scanned_in_the_order_it_was_written(store: Store):
    values = [str(number).encode() for number in range(1_000)]
    for value in values:
        store.append("usage", value)

    numbered = list(store.scan("usage"))

    assert [value for _, value in numbered] == values
    assert [number for number, _ in numbered] == list(range(1, 1_001))


def test_a_scan_goes_on_after_the_last_number_seen(store: Store):
    for value in (b"a", b"b", b"c"):
        store.append("usage", value)
    last = [number for number, _ in store.scan("usage")][-1]
    store.append("other", b"between")
    store.append("usage", b"d")

    assert [value for _, value in store.scan("usage", after=last)] == [b"d"]
    assert list(store.scan("usage", after=1_000_000)) == []


def test_a_log_is_scanned_back_from_the_newest_or_from_a_number(store: Store):
    for number in range(600):
        store.append("usage", str(number).encode())
    store.append("other", b"between")

    numbered = list(store.scan_back("usage"))

    assert numbered == list(store.scan("usage"))[::-1]
    assert list(store.scan_back("usage", before=300)) == numbered[-299:]
    assert list(store.scan_back("usage", before=1)) == []
    assert list(store.scan_back("nothing")) == []


def test_a_scan_that_is_left_early_holds_nothing_up(store: Store):
    for number in range(600):
        store.append("usage", str(number).encode())
    scan = store.scan("usage")
    first = next(scan)
    store.trim("usage", 0)
    store.write("session", "a", b"one")

    assert first == (1, b"0")
    assert store.read("session", "a") == b"one"


@pytest.mark.parametrize(("keep", "left"), [(2, [b"b", b"c"]), (3, 3), (9, 3), (0, []), (-1, [])])
def test_trimming_keeps_the_newest(store: Store, keep: int, left: list[bytes] | int):
    values = [b"a", b"b", b"c"]
    for value in values:
        store.append("usage", value)
    store.append("other", b"stays")
    store.trim("usage", keep)

    assert [value for _, value in store.scan("usage")] == (values if left == 3 else left)
    assert [value for _, value in store.scan("other")] == [b"stays"]


def test_trimming_through_a_number_spares_what_was_added_later(store: Store):
    for value in (b"a", b"b", b"c", b"d"):
        store.append("usage", value)

    store.trim("usage", 0, through=2)

    assert [value for _, value in store.scan("usage")] == [b"c", b"d"]


def test_a_trimmed_number_is_not_given_again(store: Store):
    for value in (b"a", b"b"):
        store.append("usage", value)
    store.trim("usage", 0)
    store.append("usage", b"c")

    assert list(store.scan("usage", after=2)) == [(3, b"c")]


def test_closing_twice_is_closing(store: Store):
    store.close()
    store.close()


def test_threads_lose_nothing(store: Store):
    ready = threading.Barrier(THREADS)

    def work(thread: int) -> None:
        ready.wait(DEADLINE)
        for number in range(50):
            store.write("session", f"{thread}/{number}", str(number).encode())
            store.append("usage", f"{thread} {number}".encode())
            assert store.read("session", f"{thread}/{number}") == str(number).encode()

    with ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(work, range(THREADS), timeout=DEADLINE))

    rows = [value.decode().split() for _, value in store.scan("usage")]
    assert len(store.keys("session")) == THREADS * 50
    for thread in range(THREADS):
        assert [int(n) for t, n in rows if int(t) == thread] == list(range(50))


def join_lines(theirs: bytes, ours: bytes) -> bytes:
    """Return the lines of both, sorted."""
    return b"\n".join(sorted({*theirs.split(b"\n"), *ours.split(b"\n")}))


def flush(store: Store) -> None:
    if isinstance(store, BackgroundStore):
        store.flush()


def test_changes_are_made_together_and_those_of_a_log_in_their_order(store: Store):
    store.write("session", "old", b"0")
    store.append("usage", b"old")
    store.write_all(
        [
            Put("session", "a", b"1"),
            Put("session", "old", None),
            Trim("usage", 0),
            Append("usage", b"first"),
            Put("session", "a", b"2"),
            Append("usage", b"second"),
        ]
    )

    assert [store.read("session", key) for key in ("a", "old")] == [b"2", None]
    assert [value for _, value in store.scan("usage")] == [b"first", b"second"]


def test_a_value_that_nobody_else_has_written_is_merged_as_it_is(store: Store):
    _, seen = store.read_version("session", "a")
    for value in (b"one", b"two"):
        store.write_all([Merge("session", "a", value, seen, join_lines)])
        flush(store)

    assert store.read_version("session", "a")[1].number == seen.number


def test_a_value_that_another_has_written_is_joined(store: Store):
    ours, theirs = Version(), Version()
    store.write_all([Merge("session", "a", b"theirs", theirs, join_lines)])
    flush(store)
    store.write_all([Merge("session", "a", b"ours", ours, join_lines)])
    flush(store)
    store.write_all([Merge("session", "a", b"more", theirs, join_lines)])
    flush(store)

    assert store.read("session", "a") == b"more\nours\ntheirs"
    assert theirs.number == store.read_version("session", "a")[1].number


def test_a_value_that_was_deleted_meanwhile_is_written_again(store: Store):
    seen = Version()
    store.write_all([Merge("session", "a", b"one", seen, join_lines)])
    flush(store)
    store.write("session", "a", None)
    store.write_all([Merge("session", "a", b"two", seen, join_lines)])
    flush(store)

    assert store.read("session", "a") == b"two"


def test_writers_that_merge_at_the_same_time_lose_nothing(store: Store):
    ready = threading.Barrier(THREADS)

    def work(thread: int) -> None:
        ready.wait(DEADLINE)
        for number in range(10):
            own = f"{thread}/{number}".encode()
            store.write_all([Merge("session", "a", own, Version(), join_lines)])
            flush(store)

    with ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(work, range(THREADS), timeout=DEADLINE))

    lines = (store.read("session", "a") or b"").split(b"\n")
    if not isinstance(store, BackgroundStore):  # there, the last one of a process counts
        assert len(lines) == THREADS * 10


def test_what_was_written_long_ago_expires(store: Store):
    store.write("session", "a", b"one")
    store.append("usage", b"one")
    flush(store)

    assert store.expire("session", 3_600.0) == 0
    assert store.expire("session", -3_600.0) == 1
    assert store.expire("usage", -3_600.0) == 1
    assert store.keys("session") == []
    assert list(store.scan("usage")) == []


def test_a_name_has_one_owner_at_a_time(store: Store):
    assert store.claim("renewal", "one", 3_600.0)
    assert store.claim("renewal", "one", 3_600.0)
    assert not store.claim("renewal", "two", 3_600.0)
    assert store.claim("another", "two", 3_600.0)
    assert store.claim("renewal", "one", 0.0)
    assert store.claim("renewal", "two", 3_600.0)
    assert not store.claim("renewal", "one", 3_600.0)


kinds = st.sampled_from(KINDS)
keys = st.text(max_size=3)
values = st.binary(max_size=8)


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Callable[[], Path]:
    return lambda: tmp_path_factory.mktemp("store")


@pytest.mark.requirement("R61")
def test_all_stores_answer_alike(folders: Callable[[], Path], postgres_url: str):
    """R61: one protocol, whatever keeps the values."""

    class Trio(RuleBasedStateMachine):
        """Does the same to all stores."""

        def __init__(self) -> None:
            super().__init__()
            self.memory = MemoryStore()
            self.others: list[Store] = [
                SqliteStore(folders() / "store.db"),
                PostgresStore(postgres_url, schema=fresh_schema()),
            ]

        @rule(kind=kinds, key=keys, value=st.none() | values)
        def write(self, kind: str, key: str, value: bytes | None) -> None:
            for store in (self.memory, *self.others):
                store.write(kind, key, value)
                assert store.read(kind, key) == value

        @rule(kind=kinds, value=values)
        def append(self, kind: str, value: bytes) -> None:
            for store in (self.memory, *self.others):
                store.append(kind, value)

        @rule(kind=kinds, keep=st.integers(-1, 5), through=st.none() | st.integers(-1, 8))
        def trim(self, kind: str, keep: int, through: int | None) -> None:
            for store in (self.memory, *self.others):
                store.trim(kind, keep, through=through)

        @rule(kind=kinds, after=st.integers(-1, 8))
        def scan(self, kind: str, after: int) -> None:
            for store in self.others:
                assert list(store.scan(kind, after)) == list(self.memory.scan(kind, after))
                back = list(self.memory.scan_back(kind, after))
                assert list(store.scan_back(kind, after)) == back

        @invariant()
        def hold_the_same(self) -> None:
            for store in self.others:
                for kind in KINDS:
                    assert store.keys(kind) == self.memory.keys(kind)
                    assert list(store.scan(kind)) == list(self.memory.scan(kind))

        def teardown(self) -> None:
            for store in self.others:
                store.close()

    run_state_machine_as_test(Trio, settings=settings(max_examples=25, stateful_step_count=20))
