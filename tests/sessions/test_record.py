"""The record: order, recency, budget, copies, and JSON that comes back unchanged."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolscout.errors import InvalidState
from toolscout.sessions.record import OFFERED_LIMIT, Record
from toolscout.tools import Tool

NAMES = st.sampled_from([f"tool_{number}" for number in range(8)])
LOADS = st.lists(st.tuples(NAMES, st.integers(1, 60), st.booleans()), max_size=30)


def tool(name: str, description: str = "") -> Tool:
    return Tool.define(name, server="s", description=description)


def loaded(record: Record) -> list[str]:
    return [entry.name for entry in record.loaded]


def sum_tokens(record: Record) -> int:
    return sum(entry.tokens for entry in record.loaded)


def filled(*names: str) -> Record:
    record = Record(id="a")
    for name in names:
        record.load([(tool(name), 10)], budget=1_000)
    return record


def full() -> Record:
    """Return a record with something in every field."""
    record = filled("a", "b")
    record.pin(tool("c"), 5)
    record.show(tool("a"))
    record.offer([tool("d")])
    record.suggest(["s__e"])
    record.hiding, record.declared = True, ["s__f"]
    record.listing, record.listed, record.told = "…", {"s": "1"}, {"s": "2"}
    record.begin_turn(keep=True)
    return record


@pytest.mark.requirement("R60")
@given(LOADS, st.integers(0, 150))
def test_loaded_tools_stay_under_the_budget_or_are_one(
    steps: list[tuple[str, int, bool]], budget: int
):
    """R60: whatever is loaded and used, in whichever order; the pinned one never leaves."""
    record = Record(id="a")
    record.pin(tool("pinned"), 10_000)
    for name, tokens, used in steps:
        before = set(loaded(record))
        added, evicted = record.load([(tool(name), tokens)], budget)
        if used:
            record.touch(f"s__{name}")

        assert sum_tokens(record) <= budget or len(record.loaded) == 1
        assert set(loaded(record)) == before.union(added).difference(evicted)
        assert record.entries["s__pinned"].pinned


@pytest.mark.requirement("R60")
def test_least_recently_used_leave_first():
    """R60"""
    record = filled("a", "b", "c")
    record.touch("s__a")

    _, evicted = record.load([(tool("d"), 10)], budget=30)

    assert evicted == ["s__b"]
    assert loaded(record) == ["s__a", "s__c", "s__d"]


def test_to_use_the_latest_again_changes_nothing():
    record = filled("a", "b")
    before = record.to_bytes()

    record.touch("s__b")
    unchanged = record.to_bytes()
    record.touch("s__a")

    assert unchanged == before
    assert record.to_bytes() != before


def test_of_two_that_are_equally_recent_the_one_that_is_used_stays():
    record = filled("a").merge(filled("b"))
    assert record.entries["s__a"].used == record.entries["s__b"].used

    record.touch("s__a")
    _, evicted = record.load([(tool("c"), 10)], budget=20)

    assert evicted == ["s__b"]


CHANGES: dict[str, Callable[[Record], object]] = {
    "load": lambda record: record.load([(tool("z"), 1)], budget=1_000),
    "use": lambda record: record.touch("s__a"),
    "unload": lambda record: record.unload(["s__a"]),
    "pin": lambda record: record.pin(tool("z"), 1),
    "show": lambda record: record.show(tool("z")),
    "offer": lambda record: record.offer([tool("z")]),
    "offer again": lambda record: record.offered["s__d"].append("query"),
    "suggest": lambda record: record.suggest(["s__z"]),
    "turn": lambda record: record.begin_turn(keep=True),
    "compact": lambda record: record.compact(),
    "hide": lambda record: setattr(record, "hiding", False),
    "declare": lambda record: record.declared.append("s__z"),
    "list": lambda record: setattr(record, "listing", "other"),
    "tell": lambda record: record.told.update({"s": "3"}),
    "cost": lambda record: setattr(record.entries["s__a"], "tokens", 99),
    "order": lambda record: record.entries.update({"s__a": record.entries.pop("s__a")}),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES.keys())
def test_the_mark_changes_whenever_the_stored_bytes_do(change: Callable[[Record], object]):
    record, same = full(), full()
    assert record.mark() == same.mark()

    change(record)

    assert record.to_bytes() != same.to_bytes()
    assert record.mark() != same.mark()


def test_equal_records_have_equal_marks_however_their_values_are_shared():
    record = full()

    assert Record.from_bytes(record.to_bytes()).mark() == record.mark()


@pytest.mark.requirement("R60")
def test_an_oversized_tool_stays_usable_alone():
    """R60"""
    record = filled("a")

    added, evicted = record.load([(tool("huge"), 99_999)], budget=100)

    assert (added, evicted) == (["s__huge"], ["s__a"])
    assert loaded(record) == ["s__huge"]


def test_of_tools_loaded_together_the_best_stays_longest():
    record = Record(id="a")
    record.load([(tool("best"), 10), (tool("second"), 10), (tool("third"), 10)], budget=30)

    assert record.load([(tool("new"), 10)], budget=30)[1] == ["s__third"]
    assert record.load([(tool("newer"), 10)], budget=30)[1] == ["s__second"]


def test_what_is_evicted_at_once_is_not_reported_as_loaded():
    record = Record(id="a")

    added, evicted = record.load([(tool("a"), 60), (tool("b"), 60)], budget=100)

    assert (added, evicted) == (["s__a"], ["s__b"])


@pytest.mark.requirement("R56")
def test_loading_what_is_loaded_changes_no_byte():
    """R56"""
    record = filled("a", "b")
    before = record.to_bytes()

    assert record.load([(tool("a"), 10), (tool("b"), 10)], budget=1_000) == ([], [])
    assert record.to_bytes() == before


@pytest.mark.requirement("R57")
def test_loading_adds_at_the_end_and_keeps_the_place_of_what_changed():
    """R57"""
    record = filled("b", "a")
    record.load([(tool("c"), 10), (tool("a", "changed"), 10)], budget=1_000)

    assert loaded(record) == ["s__b", "s__a", "s__c"]


@pytest.mark.requirement("R58")
def test_a_loaded_tool_that_is_pinned_keeps_its_place_and_leaves_the_budget():
    """R58"""
    record = filled("a", "b")

    assert record.pin(tool("a"), 10)
    assert not record.pin(tool("a"), 10)
    assert list(record.entries) == ["s__a", "s__b"]
    assert sum_tokens(record) == 10
    assert record.evict(0) == []


def test_an_unloaded_tool_is_neither_offered_nor_taken_as_shown():
    record = filled("a")
    record.offer([tool("a")])
    record.show(tool("a"))

    assert record.unload(["s__a", "s__b"]) == ["s__a"]
    assert (record.entries, record.offered, record.shown) == ({}, {}, {})


def test_an_offer_counts_for_the_definition_that_was_shown_last():
    record = Record(id="a")
    record.offer([tool("a")])
    record.offer([tool("a", "changed")])

    assert record.offers(tool("a", "changed"))
    assert not record.offers(tool("a"))


def test_old_offers_leave():
    record = Record(id="a")
    record.offer(tool(f"t{number}") for number in range(OFFERED_LIMIT + 1))

    assert len(record.offered) == OFFERED_LIMIT
    assert "s__t0" not in record.offered


@pytest.mark.requirement("R59")
def test_a_turn_unloads_tools_of_earlier_turns_that_were_not_kept():
    """R59"""
    record = filled("a")
    record.pin(tool("p"), 1)
    record.offer([tool("weak")])

    assert record.begin_turn(keep=True) == []
    assert record.begin_turn(keep=False) == ["s__a"]
    assert list(record.entries) == ["s__p"]
    assert record.offered == {}


@pytest.mark.requirement("R63")
def test_compaction_forgets_only_what_the_dropped_messages_had():
    """R63"""
    record = full()
    record.compact()

    assert list(record.entries) == ["s__a", "s__b", "s__c"]
    assert (record.shown, record.offered, record.suggested) == ({}, {}, [])
    assert record.told == record.listed == {"s": "1"}
    assert (record.hiding, record.listing) == (True, "…")


@pytest.mark.requirement("R67")
def test_a_record_comes_back_from_json_unchanged():
    """R67"""
    record = full()
    state = json.loads(json.dumps(record.to_json()))

    assert Record.from_json(state) == record
    assert Record.from_bytes(record.to_bytes()) == record
    assert Record.from_json(state).to_bytes() == record.to_bytes()


@pytest.mark.requirement("R67")
def test_a_saved_state_shares_nothing_with_its_record():
    """R67: neither the state that was saved nor the one it is restored from moves later."""
    record = full()
    state = record.to_json()
    saved = json.dumps(state)
    twin = Record.from_json(state)
    for each in (record, twin):
        each.load([(tool("z"), 1)], budget=1_000)
        each.show(tool("z"))
        each.offer([tool("y")])
        each.declared.append("s__x")
        each.told["t"] = "3"
        each.touch("s__a")

    assert json.dumps(state) == saved


def test_an_id_may_hold_what_is_no_unicode():
    record = Record(id="\ud800")

    assert Record.from_bytes(record.to_bytes()) == record


@pytest.mark.requirement("R70")
def test_a_copy_and_a_child_share_nothing_with_their_record():
    """R70"""
    record = full()
    before = record.to_bytes()
    for twin in (record.copy("twin"), record.derive("child", names=["s__a"], pins=True)):
        twin.load([(tool("z"), 10)], budget=10)
        twin.touch("s__c")
        twin.show(tool("z"))
        twin.compact()

    assert record.to_bytes() == before


@pytest.mark.requirement("R70")
def test_a_child_has_only_what_it_inherits():
    """R70"""
    record = full()

    assert record.derive("empty") == Record(id="empty", clock=record.clock)
    assert list(record.derive("pins", pins=True).entries) == ["s__c"]
    assert list(record.derive("named", names=["s__b", "s__unknown"]).entries) == ["s__b"]


@pytest.mark.requirement("R70")
def test_what_a_child_inherits_is_older_than_what_it_loads():
    """R70: it leaves first by use, and by turn like all others."""
    record = filled("a", "b")
    record.begin_turn(keep=True)
    record.load([(tool("c"), 10)], budget=1_000)
    child = record.derive("child", names=["s__a", "s__c"])

    assert child.load([(tool("d"), 10)], budget=10)[1] == ["s__a", "s__c"]
    assert record.derive("other", names=["s__c"]).begin_turn(keep=False) == ["s__c"]


WRONG_MEMBERS: dict[str, list[Any]] = {
    "layout": [0, 99, None],
    "id": [7, None],
    "entries": [7, [7], [{"name": "a"}], [{"x": 1}]],
    "shown": [7, [], {"a": 7}, None],
    "offered": [7, {"a": "b"}, {"a": []}, {"a": ["b"]}, {"a": ["b", 7]}],
    "declared": [{}, [7], [["a"]], "a"],
    "turn": ["1", None, True, 1.5],
    "hiding": [1, "yes"],
}
WRONG: list[object] = [
    *(None, [], "text", {}),
    {key: value for key, value in full().to_json().items() if key != "shown"},
    *(full().to_json() | {key: v} for key, values in WRONG_MEMBERS.items() for v in values),
]


@pytest.mark.parametrize("state", WRONG)
def test_a_state_that_is_none_is_refused_with_what_to_do(state: object):
    with pytest.raises(InvalidState, match="Start a new session"):
        Record.from_json(state)


@pytest.mark.parametrize("data", [b"", b"{", b"\xff", b"[" * 100_000, b"null"])
def test_bytes_that_are_no_state_are_refused(data: bytes):
    with pytest.raises(InvalidState):
        Record.from_bytes(data)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=5,
)


@given(st.sampled_from(sorted(full().to_json())), JSON)
def test_a_state_with_any_member_changed_is_refused_or_comes_back(key: str, value: Any):
    state = full().to_json() | {key: value}
    try:
        record = Record.from_json(state)
    except InvalidState:
        return

    assert Record.from_bytes(record.to_bytes()) == record


def test_branches_of_one_conversation_are_merged_in_the_order_of_the_first():
    start = filled("a")
    one, two = start.copy("a"), start.copy("a")
    one.load([(tool("b"), 10)], budget=1_000)
    two.load([(tool("c"), 10)], budget=1_000)
    two.show(tool("c"))
    two.offer([tool("d")], "weak")
    both = one.merge(two)

    assert loaded(both) == ["s__a", "s__b", "s__c"]
    assert both.has_shown(tool("c"))
    assert both.offers(tool("d"))
    assert loaded(one) == ["s__a", "s__b"]
    assert loaded(two) == ["s__a", "s__c"]


def test_merging_with_what_came_before_changes_nothing():
    start = filled("a", "b")
    later = start.copy("a")
    later.load([(tool("c"), 10)], budget=1_000)

    assert later.merge(start) == later
    assert start.merge(later) == later
    assert Record(id="a").merge(later) == later


def test_a_record_of_an_older_release_is_read():
    state = Record(id="a").to_json()
    del state["heard"]

    assert Record.from_json(state) == Record(id="a")
