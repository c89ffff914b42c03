"""Tokens saved and spent: counted when somebody looks, kept by the hour and between runs."""

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from toolscout.console.activity import build_savings
from toolscout.console.catalog import Costs
from toolscout.dialects import Dialect, to_definition
from toolscout.gateway.events import Listed, Requested
from toolscout.gateway.ledger import HOURS_KEPT, PENDING_LISTS, Ledger
from toolscout.gateway.middleware import Principal
from toolscout.schemas import Json
from toolscout.sessions.events import Called, Described, Searched, Suggested
from toolscout.stores.memory import MemoryStore
from toolscout.stores.store import Store
from toolscout.tokens import COUNTED_TOOLS, count_all_definition_tokens, count_definition_tokens
from toolscout.tools import Tool

HOUR = 3_600.0
TOOLS = [Tool.define(f"tool_{n}", server=f"s{n % 2}", description="does " * n) for n in range(6)]
MENU: list[Json] = [{"name": "tool_search", "description": "Find.", "inputSchema": {}}]


class Clock:
    now = 1_000 * HOUR

    def __call__(self) -> float:
        return self.now


def ledger_of(store: Store | None = None, clock: Clock | None = None) -> Ledger:
    return Ledger(store, clock=clock or Clock())


def listing(
    who: str = "ann",
    tools: Sequence[Tool] = TOOLS,
    definitions: Sequence[Json] = MENU,
    version: int = 1,
) -> Listed:
    return Listed(
        session=f"session of {who}",
        principal=who,
        version=version,
        definitions=definitions,
        tools=tools,
    )


def search(ledger: Ledger, who: str, tokens: int) -> None:
    """Let a principal search in a session of its own."""
    session = f"session of {who}"
    ledger.on_event(Requested(session=session, principal=Principal(name=who)))
    ledger.on_event(Searched(session=session, tokens=tokens))


def everybody(name: str) -> bool:
    return True


def test_a_list_saves_all_definitions_and_costs_its_own():
    ledger = ledger_of()
    ledger.on_event(listing())
    ledger.on_event(listing())
    search(ledger, "ann", 30)
    ledger.on_event(Described(session="session of ann", tokens=20))
    ledger.on_event(Called(session="session of ann", tool="x", tokens=1_000))

    savings = build_savings(ledger, 1, everybody)

    total = savings["total"]
    assert total["not_sent"] == 2 * sum(map(count_definition_tokens, TOOLS))
    assert (total["replies"], total["descriptions"]) == (30, 20)
    assert total["net"] == total["not_sent"] - total["menu"] - 50
    assert sum(row["not_sent"] for row in savings["by_server"]) == total["not_sent"]
    assert ledger.get_session("session of ann").to_json() == total
    assert ledger.get_total().to_json() == total


def test_refusals_and_suggestions_are_replies():
    ledger = ledger_of()
    ledger.on_event(Called(session="s", made=False, code="unknown_tool", tokens=5))
    ledger.on_event(Suggested(session="s", tokens=6))

    assert ledger.get_total().replies == 11


def test_listing_every_tool_saves_next_to_nothing():
    ledger = ledger_of()

    ledger.on_event(listing(definitions=[to_definition(tool, Dialect.MCP) for tool in TOOLS]))

    assert abs(ledger.get_total().net) <= 2 * len(TOOLS)


def test_resources_and_prompts_are_not_counted_as_saved():
    ledger = ledger_of()
    page = Tool.define("page", description="A page.", server="far", kind="resource")

    ledger.on_event(listing(tools=[page], definitions=[]))

    assert ledger.get_total().net == 0


@given(st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 2 * PENDING_LISTS)), max_size=300))
def test_every_list_counts_once_however_lists_are_mixed(lists: list[tuple[str, int]]):
    ledger = ledger_of()

    for caller, version in lists:
        ledger.on_event(listing(caller, TOOLS[:1], [], version))

    expected = len(lists) * count_all_definition_tokens(TOOLS[:1])
    assert ledger.get_total().net == expected


def test_each_hour_is_a_point_and_silence_is_one_too():
    clock = Clock()
    ledger = ledger_of(clock=clock)
    search(ledger, "ann", 7)
    clock.now += 2 * HOUR
    search(ledger, "ann", 5)

    points = build_savings(ledger, 4, everybody)["points"]

    assert [point["replies"] for point in points] == [0, 7, 0, 5]
    assert points[-1]["time"] == "1970-02-11T18:00:00.000Z"


def test_only_the_included_principals_count():
    ledger = ledger_of()
    search(ledger, "ann", 7)
    search(ledger, "bob", 5)

    assert build_savings(ledger, 1, lambda name: name == "bob")["total"]["replies"] == 5


def test_saved_hours_are_read_by_the_next_run_and_by_other_processes():
    store = MemoryStore()
    first = ledger_of(store)
    first.on_event(listing())
    first.save()
    search(first, "ann", 4)
    first.save()
    second = ledger_of(store)
    search(second, "ann", 6)

    total = build_savings(second, 2, everybody)["total"]

    assert total["not_sent"] == sum(map(count_definition_tokens, TOOLS))
    assert total["replies"] == 10
    assert build_savings(first, 2, everybody)["total"]["replies"] == 4


def test_what_cannot_be_read_counts_as_nothing():
    store = MemoryStore()
    for number, text in enumerate((b"[]", b"{", b'{"ann": 3}', b'{"ann": {"menu": 2, "new": 1}}')):
        store.write("savings", f"{1_000:09d}/{number}", text)
    store.write("savings", "nonsense", b"{}")

    assert build_savings(ledger_of(store), 1, everybody)["total"]["menu"] == 2


def test_old_hours_are_removed():
    store, clock = MemoryStore(), Clock()
    ledger = ledger_of(store, clock)
    search(ledger, "ann", 7)
    ledger.save()
    clock.now += (HOURS_KEPT + 1) * HOUR

    ledger.remove_old()

    assert store.keys("savings") == []


def test_many_tools_are_estimated_and_few_are_counted():
    many = [
        Tool.define(f"tool_{n}", server="s", description="some words " * (1 + n % 9))
        for n in range(COUNTED_TOOLS + 1)
    ]

    estimated = sum(Costs().count(many))

    assert Costs().count(TOOLS) == [count_definition_tokens(tool) for tool in TOOLS]
    assert abs(estimated - count_all_definition_tokens(many)) < 0.02 * estimated
