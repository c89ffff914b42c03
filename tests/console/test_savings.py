"""Tokens by the hour, counted when somebody looks and kept between runs."""

from collections.abc import Sequence

from toolscout.console.catalog import Costs
from toolscout.console.savings import HOURS_KEPT, Savings
from toolscout.schemas import Json
from toolscout.sessions.session import Store
from toolscout.stores.memory import MemoryStore
from toolscout.tokens import COUNTED_TOOLS, count_all_definition_tokens, count_definition_tokens
from toolscout.tools import Tool

HOUR = 3_600.0
TOOLS = [Tool.define(f"tool_{n}", server=f"s{n % 2}", description="does " * n) for n in range(6)]
MENU: list[Json] = [{"name": "tool_search", "description": "Find.", "inputSchema": {}}]


class Clock:
    now = 1_000 * HOUR

    def __call__(self) -> float:
        return self.now


def savings_of(
    store: Store | None = None, clock: Clock | None = None
) -> tuple[Savings, list[tuple[str, int, int]]]:
    charged: list[tuple[str, int, int]] = []

    def charge(session: str, spared: int, menu: int) -> None:
        charged.append((session, spared, menu))

    return Savings(store, Costs(), charge, clock=clock or Clock()), charged


def note_list(savings: Savings, who: str = "ann", tools: Sequence[Tool] = TOOLS) -> None:
    savings.note_list(f"session of {who}", who, 1, lambda: tools, MENU)


def everybody(name: str) -> bool:
    return True


def test_a_list_spares_all_definitions_and_costs_its_own():
    savings, charged = savings_of()
    note_list(savings)
    note_list(savings)
    savings.note_reply("ann", "search", 30)
    savings.note_reply("ann", "describe", 20)
    savings.note_reply("ann", "call", 1_000)

    told = savings.told(1, everybody)

    total = told["total"]
    assert total["not_sent"] == 2 * sum(map(count_definition_tokens, TOOLS))
    assert (total["replies"], total["descriptions"]) == (30, 20)
    assert total["net"] == total["not_sent"] - total["menu"] - 50
    assert sum(row["not_sent"] for row in told["by_server"]) == total["not_sent"]
    assert charged == [("session of ann", total["not_sent"], total["menu"])]


def test_each_hour_is_a_point_and_silence_is_one_too():
    clock = Clock()
    savings, _ = savings_of(clock=clock)
    savings.note_reply("ann", "search", 7)
    clock.now += 2 * HOUR
    savings.note_reply("ann", "search", 5)

    points = savings.told(4, everybody)["points"]

    assert [point["replies"] for point in points] == [0, 7, 0, 5]
    assert points[-1]["time"] == "1970-02-11T18:00:00.000Z"


def test_only_those_who_are_asked_for_count():
    savings, _ = savings_of()
    savings.note_reply("ann", "search", 7)
    savings.note_reply("bob", "search", 5)

    assert savings.told(1, lambda name: name == "bob")["total"]["replies"] == 5


def test_what_was_saved_is_told_by_the_next_run_and_by_others_beside_it():
    store = MemoryStore()
    first, _ = savings_of(store)
    note_list(first)
    first.save()
    first.note_reply("ann", "search", 4)
    first.save()
    second, _ = savings_of(store)
    second.note_reply("ann", "search", 6)

    told = second.told(2, everybody)["total"]

    assert told["not_sent"] == sum(map(count_definition_tokens, TOOLS))
    assert told["replies"] == 10
    assert first.told(2, everybody)["total"]["replies"] == 4


def test_what_cannot_be_read_counts_as_nothing():
    store = MemoryStore()
    for number, text in enumerate((b"[]", b"{", b'{"ann": 3}', b'{"ann": {"menu": 2, "new": 1}}')):
        store.write("savings", f"{1_000:09d}/{number}", text)
    store.write("savings", "nonsense", b"{}")
    savings, _ = savings_of(store)

    assert savings.told(1, everybody)["total"]["menu"] == 2


def test_old_hours_are_forgotten():
    store, clock = MemoryStore(), Clock()
    savings, _ = savings_of(store, clock)
    savings.note_reply("ann", "search", 7)
    savings.save()
    clock.now += (HOURS_KEPT + 1) * HOUR

    savings.sweep()

    assert store.keys("savings") == []


def test_many_tools_are_estimated_and_few_are_counted():
    many = [
        Tool.define(f"tool_{n}", server="s", description="some words " * (1 + n % 9))
        for n in range(COUNTED_TOOLS + 1)
    ]

    estimated = sum(Costs().count(many))

    assert Costs().count(TOOLS) == [count_definition_tokens(tool) for tool in TOOLS]
    assert abs(estimated - count_all_definition_tokens(many)) < 0.02 * estimated
