import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from toolscout import catalog as catalogs
from toolscout.catalog import Catalog
from toolscout.encoders.encoder import Encoder, Floats, normalize_rows
from toolscout.search.index import Index
from toolscout.tools import Tool

SEARCHERS = 2
VERSIONS = 60
TOOLS = 12
DEADLINE = 120.0
QUERIES = (
    *("feed the animals", "feed animal 3", "feed_3 quickly", "/animals/", "feed_1*"),
    *("zoo__feed_3", "server:zoo", "select:zoo__feed_2,zoo__feed_5,feed_7", "+animals -other"),
)


def zoo(version: int) -> list[Tool]:
    return [
        Tool.define(f"feed_{n}", server="zoo", description=f"Feeds the animals at v{version}.")
        for n in range(TOOLS)
    ]


def together(change: Callable[[], None], search: Callable[[], None]) -> None:
    """Search in several threads for as long as one thread changes, and once more afterwards."""
    ready, done = threading.Barrier(SEARCHERS + 1), threading.Event()

    def changing() -> None:
        ready.wait(DEADLINE)
        try:
            change()
        finally:
            done.set()

    def searching() -> None:
        ready.wait(DEADLINE)
        while not done.is_set():
            search()
        search()

    with ThreadPoolExecutor(SEARCHERS + 1) as pool:
        running: list[Future[None]] = [pool.submit(changing)]
        running += [pool.submit(searching) for _ in range(SEARCHERS)]
        for future in running:
            future.result(DEADLINE)


def made(catalog: Catalog, *, with_vectors: bool) -> Index:
    return Index(catalog) if with_vectors else Index(catalog, encoder=None)


@pytest.mark.parametrize("with_vectors", [False, True])
def test_no_result_mixes_two_versions_of_a_server(with_vectors: bool):
    catalog = Catalog({"zoo": zoo(0), "other": [Tool.define("wash", server="other")]})
    index = made(catalog, with_vectors=with_vectors)

    def change() -> None:
        for version in range(1, VERSIONS):
            catalog.replace("zoo", zoo(version))

    def search() -> None:
        for query in QUERIES:
            hits = index.search(query, limit=20)
            seen = {hit.tool.description for hit in hits if hit.tool.server == "zoo"}
            assert len(seen) == 1, (query, seen)
            assert all(hit.why for hit in hits)

    together(change, search)

    assert {hit.tool.description for hit in index.search("server:zoo", limit=20)} == {
        f"Feeds the animals at v{VERSIONS - 1}."
    }


@pytest.mark.parametrize("with_vectors", [False, True])
def test_a_server_is_seen_whole_or_not_at_all(with_vectors: bool):
    catalog = Catalog({"other": [Tool.define("wash", server="other", description="Animals.")]})
    index = made(catalog, with_vectors=with_vectors)

    def change() -> None:
        for version in range(VERSIONS):
            catalog.replace("zoo", zoo(version))
            catalog.remove("zoo")

    def search() -> None:
        for query in ("animals", "/animals/", "+animals"):
            found = [hit for hit in index.search(query, limit=50) if hit.tool.server == "zoo"]
            assert len(found) in (0, TOOLS), query

    together(change, search)

    assert len(index) == 1


def test_an_exact_name_stays_exact_while_its_tool_is_replaced():
    catalog = Catalog({"zoo": zoo(0)})
    index = Index(catalog, encoder=None)

    def change() -> None:
        for version in range(1, VERSIONS):
            catalog.replace("zoo", zoo(version))

    def search() -> None:
        for number in range(TOOLS):
            assert index.search(f"zoo.feed-{number}")[0].score == 1.0
            assert len(index.search(f"select:feed_{number},zoo__feed_0")) == 2 - (number == 0)

    together(change, search)


def test_several_threads_may_change_the_catalogue_at_once():
    catalog = Catalog()
    index = Index(catalog, encoder=None)

    def change(server: str) -> None:
        for version in range(VERSIONS // 2):
            tools = [
                Tool.define(f"feed_{n}", server=server, description=f"Animals v{version}.")
                for n in range(3)
            ]
            catalog.replace(server, tools)

    with ThreadPoolExecutor(4) as pool:
        for future in [pool.submit(change, f"zoo{n}") for n in range(4)]:
            future.result(DEADLINE)
    fresh = Index(catalog, encoder=None)

    assert len(index) == 12
    for query in ("animals", "zoo 2 feed", "feed_1", f"v{VERSIONS // 2 - 1}"):
        found, wanted = index.search(query, limit=20), fresh.search(query, limit=20)
        assert [(hit.tool, hit.score) for hit in found] == [(hit.tool, hit.score) for hit in wanted]


def test_a_result_can_be_explained_after_the_catalogue_has_changed():
    catalog = Catalog({"zoo": zoo(1)})
    index = Index(catalog, encoder=None)
    result = index.search("feed the animals")
    before = Index(Catalog({"zoo": zoo(1)}), encoder=None).search("feed the animals")
    catalog.replace("zoo", zoo(2))
    catalog.remove("zoo")

    assert [hit.why for hit in result] == [hit.why for hit in before]


def test_a_search_between_a_change_and_its_notice_is_all_old_or_all_new():
    catalog = Catalog({"zoo": zoo(1), "other": [Tool.define("feed_1", server="other")]})
    queries = ("zoo__feed_1", "feed_1", "select:feed_1", "animals", "zoo__*")
    seen: list[list[tuple[str, float]]] = []

    def answers() -> list[list[tuple[str, float]]]:
        results = index.search_many(queries, limit=20)
        return [[(hit.tool.name, hit.score) for hit in result] for result in results]

    # Told first, this subscriber searches an index that has not yet heard of the change.
    catalog.subscribe(lambda _change: seen.extend(answers()))
    index = Index(catalog, encoder=None)
    old = answers()
    catalog.remove("zoo")
    new = answers()

    assert seen in (old, new)


class Gated(Encoder):
    """Waits, before it encodes tools, until someone opens the gate."""

    name = "gated"

    def __init__(self) -> None:
        self.waiting = threading.Event()
        self.gate = threading.Event()
        self.gate.set()

    def encode(self, texts: Sequence[str], *, kind: str) -> Floats:
        if kind == "tool" and not self.gate.is_set():
            self.waiting.set()
            assert self.gate.wait(DEADLINE)
        return normalize_rows([[len(text), text.count("e"), 1.0] for text in texts])


def many(count: int, server: str = "laundry") -> list[Tool]:
    return [
        Tool.define(f"wash_{n}", server=server, description=f"Washes shirt {n}.")
        for n in range(count)
    ]


def test_searches_go_on_with_the_old_state_while_a_thread_indexes_a_thousand_tools():
    encoder = Gated()
    catalog = Catalog({"zoo": zoo(0)})
    index = Index(catalog, encoder=encoder)
    encoder.gate.clear()

    with ThreadPoolExecutor(1) as pool:
        change = pool.submit(catalog.replace, "laundry", many(1_000))
        assert encoder.waiting.wait(DEADLINE)
        during = index.search("feed the animals")
        missing = index.search("select:laundry__wash_7")
        assert (len(index), len(catalog)) == (TOOLS, TOOLS + 1_000)
        encoder.gate.set()
        change.result(DEADLINE)

    assert {hit.tool.server for hit in during} == {"zoo"}
    assert not missing.hits
    assert len(index) == TOOLS + 1_000
    assert index.search("select:laundry__wash_7")[0].tool.name == "laundry__wash_7"


def test_every_search_during_a_large_change_sees_the_old_or_the_new_state():
    catalog = Catalog({"zoo": zoo(0)})
    index = Index(catalog)
    totals: list[int] = []

    together(
        lambda: catalog.replace("laundry", many(1_000)),
        lambda: totals.append(index.search("/./", limit=1).total),
    )

    assert set(totals) <= {TOOLS, TOOLS + 1_000}
    assert totals[-1] == TOOLS + 1_000


def test_reading_the_catalogue_does_not_wait_for_its_subscribers():
    catalog = Catalog({"zoo": zoo(0)})
    notified, finish = threading.Event(), threading.Event()

    def follow(_: object) -> None:
        notified.set()
        assert finish.wait(DEADLINE)

    catalog.subscribe(follow)
    with ThreadPoolExecutor(1) as pool:
        change = pool.submit(catalog.replace, "laundry", many(3))
        assert notified.wait(DEADLINE)
        names = [tool.name for tool in catalog.resolve("wash_1")]
        count = len(catalog.tools)
        catalog.set_failed("zoo", "gone")
        finish.set()
        change.result(DEADLINE)

    assert names == ["laundry__wash_1"]
    assert count == TOOLS + 3


@pytest.mark.parametrize(("count", "pauses"), [(1_000, True), (10, False)])
def test_only_a_large_change_in_a_worker_thread_pauses_for_others(
    monkeypatch: pytest.MonkeyPatch, count: int, pauses: bool
):
    seconds: list[float] = []
    monkeypatch.setattr(catalogs, "sleep", seconds.append)
    catalog = Catalog({"zoo": zoo(0)})
    _index = Index(catalog, encoder=None)

    catalog.replace("main", many(count, "main"))
    assert seconds == []
    with ThreadPoolExecutor(1) as pool:
        pool.submit(catalog.replace, "worker", many(count, "worker")).result(DEADLINE)

    assert bool(seconds) == pauses
