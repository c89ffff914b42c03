from collections.abc import Sequence

import pytest

from benchmarks.footprints import Import, Memory
from benchmarks.speed import Pace, Speed, Update, measure_speed
from benchmarks.systems import MissingPeer, Ranked, System
from benchmarks.workloads import Workload
from toolscout.errors import UsageError
from toolscout.evaluate.quality import Milliseconds
from toolscout.tools import Tool

LOG = list[tuple[str, str]]


class Recorded:
    """Finds nothing and writes down what it is asked, in a log that it may share."""

    def __init__(self, name: str, log: LOG) -> None:
        self.name, self.log = name, log
        self.built: list[int] = []

    def build(self, tools: Sequence[Tool]) -> None:
        self.built.append(len(tools))

    def search(self, query: str, limit: int) -> list[Ranked]:
        self.log.append((self.name, query))
        return []

    def reply(self, query: str, hits: Sequence[Ranked]) -> str:
        return ""


class Growing(Recorded):
    """Takes in more tools without being built again."""

    added: tuple[Tool, ...] = ()

    def add(self, tools: Sequence[Tool]) -> None:
        self.added = tuple(tools)


def tools_of(count: int) -> tuple[Tool, ...]:
    return tuple(
        Tool.define(f"read_{number}", server="files", description=f"Read file number {number}.")
        for number in range(count)
    )


def pace_of(p50: float, memory: Memory | None = None) -> Pace:
    return Pace(
        build_ms=10.0,
        update=Update(how="rebuild", ms=20.0, first_search_ms=3.0),
        ms=Milliseconds(p50=p50, p99=9.0, mean=p50),
        cold=Milliseconds(p50=p50 + 1, p99=11.0, mean=p50 + 1),
        memory=memory,
    )


def speed_of(paces: dict[str, Pace]) -> Speed:
    return Speed(
        sizes={100: paces},
        skipped={"fastmcp": "Run `pip install fastmcp`."},
        importing=Import(ms=42.0, modules=("click", "numpy")),
        queries=5,
        versions={"python": "3.11"},
    )


def searched_by_two(queries: int) -> LOG:
    """Return which system was asked what, by two that are measured with some queries."""
    log: LOG = []
    measure_speed(
        Workload(tools=tools_of(20), questions=tuple(map(str, range(2 * queries + 3)))),
        ["one", "two"],
        sizes=[20],
        queries=queries,
        make=lambda name: Recorded(name, log),
    )
    return log


def test_systems_take_turns_after_each_block_of_queries():
    log = searched_by_two(queries=25)[: 2 * (25 + 2 * 3)]

    names = [name for name, _ in log]
    asked = {name: [query for who, query in log if who == name] for name in ("one", "two")}
    assert names == ["one"] * 23 + ["two"] * 23 + ["two"] * 8 + ["one"] * 8
    assert asked["one"] == asked["two"]
    assert asked["one"][:3] == asked["one"][23:26]
    assert len(set(asked["one"])) == 3 + 25


def test_cold_searches_take_turns_after_each_query_and_ask_what_no_block_did():
    log = searched_by_two(queries=4)

    blocks, turns = log[: 2 * 7], log[2 * 7 : 2 * 7 + 2 * 4]
    assert [name for name, _ in turns] == ["one", "two", "two", "one"] * 2
    assert [query for _, query in turns[::2]] == [query for _, query in turns[1::2]]
    assert not {query for _, query in turns} & {query for _, query in blocks}


def test_a_system_that_can_add_is_not_built_again():
    made: list[Recorded] = []

    def make(name: str) -> System:
        made.append((Growing if name == "growing" else Recorded)(name, []))
        return made[-1]

    speed = measure_speed(
        Workload(tools=tools_of(60)), ["growing", "fixed"], sizes=[60], queries=1, make=make
    )

    growing, fixed = made[2:]
    assert {name: pace.update.how for name, pace in speed.sizes[60].items()} == {
        "growing": "add",
        "fixed": "rebuild",
    }
    assert growing.built == [60]
    assert fixed.built == [60, 110]
    assert isinstance(growing, Growing)
    assert len({tool.name for tool in growing.added}) == 50
    assert {tool.server for tool in growing.added} == {"newcomer"}


def test_a_size_beyond_the_tools_means_all_of_them_and_is_run_once():
    speed = measure_speed(
        Workload(tools=tools_of(5)),
        ["one"],
        sizes=[1000, 3, 10],
        queries=1,
        make=lambda name: Recorded(name, []),
    )

    assert list(speed.sizes) == [3, 5]


def test_memory_is_asked_for_each_system_and_size():
    speed = measure_speed(
        Workload(tools=tools_of(5)),
        ["one"],
        sizes=[2, 4],
        queries=1,
        make=lambda name: Recorded(name, []),
        memory=lambda _, tools: Memory(rss_mb=100.0, growth_mb=float(len(tools))),
    )

    found = [paces["one"].memory for paces in speed.sizes.values()]
    assert found == [Memory(rss_mb=100.0, growth_mb=2.0), Memory(rss_mb=100.0, growth_mb=4.0)]


def test_systems_that_are_not_installed_are_listed_with_what_to_install():
    def make(name: str) -> System:
        if name == "missing":
            raise MissingPeer(name, package="peer")
        return Recorded(name, [])

    speed = measure_speed(
        Workload(tools=tools_of(5)), ["missing", "one"], sizes=[5], queries=1, make=make
    )

    assert list(speed.sizes[5]) == ["one"]
    assert "pip install peer" in speed.skipped["missing"]


def test_what_is_going_on_is_told():
    told: list[str] = []

    measure_speed(
        Workload(tools=tools_of(5)),
        ["one"],
        sizes=[5],
        queries=1,
        make=lambda name: Recorded(name, []),
        tell=told.append,
    )

    assert told == [
        "5 tools: one builds",
        "5 tools: all search",
        "5 tools: one takes in 50 tools",
    ]


@pytest.mark.parametrize(("count", "sizes", "queries"), [(0, [1], 1), (1, [], 1), (1, [1], 0)])
def test_speed_of_nothing_is_an_error(count: int, sizes: list[int], queries: int):
    with pytest.raises(UsageError, match="Speed needs tools"):
        measure_speed(
            Workload(tools=tools_of(count)),
            ["one"],
            sizes=sizes,
            queries=queries,
            make=lambda name: Recorded(name, []),
        )


def test_the_json_compares_with_the_baseline():
    weighed = Memory(rss_mb=80.0, growth_mb=30.0)

    found = speed_of({"toolscout": pace_of(1.0, weighed), "bm25s": pace_of(4.0)}).to_json()

    assert found == {
        "sizes": {
            "100": {
                "toolscout": {
                    "build_ms": 10.0,
                    "update": {"how": "rebuild", "ms": 20.0, "first_search_ms": 3.0},
                    "ms": {
                        **{"p50": 1.0, "p99": 9.0, "mean": 1.0},
                        **{"p50_cold": 2.0, "p99_cold": 11.0, "mean_cold": 2.0},
                    },
                    "p50_over_bm25s": 0.25,
                    "p50_cold_over_bm25s": 0.4,
                    "memory": {"rss_mb": 80.0, "growth_mb": 30.0},
                },
                "bm25s": {
                    "build_ms": 10.0,
                    "update": {"how": "rebuild", "ms": 20.0, "first_search_ms": 3.0},
                    "ms": {
                        **{"p50": 4.0, "p99": 9.0, "mean": 4.0},
                        **{"p50_cold": 5.0, "p99_cold": 11.0, "mean_cold": 5.0},
                    },
                    "p50_over_bm25s": 1.0,
                    "p50_cold_over_bm25s": 1.0,
                    "memory": None,
                },
            }
        },
        "skipped": {"fastmcp": "Run `pip install fastmcp`."},
        "import": {"ms": 42.0, "modules": ["click", "numpy"], "optional": ["click"]},
        "queries": 5,
        "versions": {"python": "3.11"},
    }


def test_without_the_baseline_there_is_no_ratio():
    assert speed_of({"toolscout": pace_of(1.0)}).ratio(100, "toolscout") is None
