"""What `Hints` finds, keeps and shares."""

import json
from collections.abc import Collection
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolscout.catalog import Catalog
from toolscout.errors import InvalidHint
from toolscout.hints.hints import (
    HINT_CHARS,
    HINT_WORDS,
    HINTS_KIND,
    SPARE_ROWS,
    Hint,
    HintPack,
    Hints,
    Source,
    check_hint,
    clean_hint,
    digest_definition,
)
from toolscout.names import has_invisible
from toolscout.scout import Scout
from toolscout.settings import HintUse, Settings
from toolscout.stores import MemoryStore, SqliteStore
from toolscout.tools import Tool

SHIPPED = "money that customers owe"
INVOICES = Tool.define("list_invoices", server="books", description="List invoices by status.")
CLOCK = Tool.define("now", server="clock", description="Tell the time.", hint="what day is it")


class Pack(HintPack):
    """Ships a hint for invoices."""

    def __init__(self) -> None:
        super().__init__(Path("no pack"))

    def find(self, tool: Tool) -> str:
        return SHIPPED if tool.leaf == INVOICES.leaf else ""


def list_found(hints: Hints, tool: Tool) -> list[tuple[str, Source]]:
    return [(hint.text, hint.source) for hint in hints.find(tool)]


def test_a_tool_has_its_configured_hint_and_the_shipped_one():
    hints = Hints(Pack())

    assert list_found(hints, CLOCK) == [("what day is it", Source.CONFIGURED)]
    assert list_found(hints, INVOICES) == [(SHIPPED, Source.SHIPPED)]


def test_a_written_hint_replaces_the_shipped_one_until_it_is_removed():
    hints = Hints(Pack())
    digest = digest_definition(INVOICES)

    hints.add({digest: "late payers"}, by="person")

    [found] = hints.find(INVOICES)
    assert (found.text, found.source, found.by) == ("late payers", Source.WRITTEN, "person")
    assert found.at.endswith("+00:00")
    hints.remove([digest])
    assert list_found(hints, INVOICES) == [(SHIPPED, Source.SHIPPED)]


def test_a_hint_belongs_to_a_definition_whatever_its_server_is_called():
    hints = Hints()
    hints.add({digest_definition(INVOICES): "late payers"}, by="person")

    moved = INVOICES.move_to("accounting")
    changed = Tool.define("list_invoices", server="books", description="Delete invoices.")

    assert list_found(hints, moved) == [("late payers", Source.WRITTEN)]
    assert list_found(hints, changed) == []


def test_hints_of_one_tool_or_all_shipped_ones_can_be_off():
    hints = Hints(Pack())
    digest = digest_definition(INVOICES)

    hints.set_off([digest], True)
    assert hints.find(INVOICES) == ()
    assert hints.is_off(INVOICES)
    hints.set_off([digest], False)
    assert list_found(hints, INVOICES) == [(SHIPPED, Source.SHIPPED)]
    hints.set_shipped_off(True)
    assert hints.find(INVOICES) == ()
    hints.add({digest: "late payers"}, by="person")
    assert list_found(hints, INVOICES) == [("late payers", Source.WRITTEN)]
    assert list_found(hints, CLOCK) == [("what day is it", Source.CONFIGURED)]


def test_what_was_written_is_there_in_the_next_run(tmp_path: Path):
    digest = digest_definition(INVOICES)
    with SqliteStore(tmp_path / "store.db") as store:
        hints = Hints(Pack(), store)
        hints.add({digest: "late payers"}, by="model small")
        hints.set_off([digest], True)

    with SqliteStore(tmp_path / "store.db") as store:
        again = Hints(Pack(), store)
        assert again.is_off(INVOICES)
        again.set_off([digest], False)

        [found] = again.find(INVOICES)
        assert (found.text, found.by) == ("late payers", "model small")


def test_two_processes_see_what_the_other_wrote_and_listeners_learn_the_digests(tmp_path: Path):
    digest = digest_definition(INVOICES)
    heard: list[set[str]] = []

    def listen(digests: Collection[str]) -> None:
        heard.append(set(digests))

    with SqliteStore(tmp_path / "store.db") as one, SqliteStore(tmp_path / "store.db") as two:
        writer = Hints(Pack(), one)
        reader = Hints(Pack(), two)
        end = reader.subscribe(listen)
        assert list_found(reader, INVOICES) == [(SHIPPED, Source.SHIPPED)]

        writer.add({digest: "late payers"}, by="person")
        reader.refresh()
        assert list_found(reader, INVOICES) == [("late payers", Source.WRITTEN)]
        reader.refresh()
        writer.set_shipped_off(True)
        reader.refresh()
        assert heard == [{digest}, {digest}]

        end()
        writer.remove([digest])
        reader.refresh()
        assert len(heard) == 2
        assert reader.find(INVOICES) == ()


def test_the_log_stays_short_and_says_the_same_however_often_hints_change():
    store = MemoryStore()
    hints = Hints(None, store)
    digest = digest_definition(INVOICES)
    hints.add({digest: "late payers"}, by="person")

    for number in range(2 * SPARE_ROWS + 10):
        hints.set_off([digest], number % 2 == 0)

    assert sum(len(json.loads(entry)) for _, entry in store.scan(HINTS_KIND)) < 2 * SPARE_ROWS
    assert Hints(None, store).find(INVOICES) == hints.find(INVOICES)


def test_a_change_that_another_process_made_survives_a_rewritten_log():
    store = MemoryStore()
    slow = Hints(None, store)
    quick = Hints(None, store)
    digest = digest_definition(INVOICES)
    slow.add({digest: "late payers"}, by="person")
    quick.refresh()
    quick.set_off([digest], True)
    for number in range(SPARE_ROWS + 10):  # of other tools, until the log is written anew
        slow.set_off(["0" * 32], number % 2 == 0)

    assert slow.is_off(INVOICES)
    assert Hints(None, store).is_off(INVOICES)


def test_the_last_change_counts_whoever_makes_it():
    store = MemoryStore()
    one = Hints(None, store)
    other = Hints(None, store)
    digest = digest_definition(INVOICES)
    for text in ("late payers", "debtors", "overdue"):
        one.add({digest: text}, by="person")

    other.set_off([digest], True)  # which has not looked since
    one.refresh()

    assert one.is_off(INVOICES)
    other.set_off([digest], False)
    assert list_found(other, INVOICES) == [("overdue", Source.WRITTEN)]


def test_what_is_switched_off_stays_off_when_it_is_written_again():
    hints = Hints()
    digest = digest_definition(INVOICES)
    hints.set_off([digest], True)

    hints.add({digest: "late payers"}, by="import")

    assert hints.find(INVOICES) == ()


def test_entries_of_the_store_that_cannot_be_read_are_left_out():
    store = MemoryStore()
    store.append(HINTS_KIND, b'{"digest": 3}')
    store.append(HINTS_KIND, b'[7, {"digest": 3}, {"digest": "a", "version": 1, "text": []}]')

    assert Hints(None, store).find(INVOICES) == ()


def test_no_hint_is_kept_if_one_of_them_is_refused():
    hints = Hints()
    other = Tool.define("pay", description="Pay a bill.")

    with pytest.raises(InvalidHint, match="has 41 words"):
        hints.add(
            {digest_definition(INVOICES): "late payers", digest_definition(other): "word " * 41},
            by="person",
        )

    assert hints.find(INVOICES) == ()


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "is empty"),
        (" \n ; .", "is empty"),
        ("x" * 401, "has 401 characters"),
        ("x" * 10_000, "has 10,000 characters"),
        ("word " * 41, "has 41 words"),
    ],
)
def test_hints_that_are_empty_or_too_long_are_refused(text: str, problem: str):
    with pytest.raises(InvalidHint, match=problem):
        clean_hint(text)


@given(st.text(max_size=600))
def test_a_hint_that_is_kept_is_one_visible_line_within_its_bounds(text: str):
    try:
        line = clean_hint(text)
    except InvalidHint:
        return
    assert len(line.splitlines()) == 1
    assert not has_invisible(line)
    assert 0 < len(line) <= HINT_CHARS
    assert len(line.split()) <= HINT_WORDS
    assert clean_hint(line) == line


def test_a_hint_that_only_repeats_the_definition_is_refused():
    with pytest.raises(InvalidHint, match="only repeats the definition"):
        check_hint(INVOICES, "List invoices; STATUS")

    assert check_hint(INVOICES, "list invoices; who owes us") == "list invoices; who owes us"


def test_missing_tools_are_those_without_any_hint_one_for_each_definition():
    bare = Tool.define("pay", server="bank", description="Pay a bill.")
    off = Tool.define("sign", server="bank", description="Sign a form.")
    hints = Hints(Pack())
    hints.set_off([digest_definition(off)], True)

    assert hints.list_missing([CLOCK, INVOICES, bare, bare.move_to("other"), off]) == [bare]


def test_a_scout_has_the_hints_of_its_settings_and_its_store():
    store = MemoryStore()
    Hints(None, store).add({digest_definition(INVOICES): "late payers"}, by="person")

    found = Scout([INVOICES], store=store).hints
    own = Scout([INVOICES], store=store, settings=Settings(hints=HintUse.OWN)).hints
    off = Scout([INVOICES], store=store, settings=Settings(hints=HintUse.OFF)).hints

    assert found is not None
    assert own is not None
    assert found.has_shipped
    assert not own.has_shipped
    assert [hint.text for hint in own.find(INVOICES)] == ["late payers"]
    assert off is None


def test_a_scout_uses_the_hints_that_it_is_given():
    hints = Hints(Pack())
    scout = Scout(Catalog([INVOICES]), hints=hints)

    assert scout.hints is hints
    assert scout.index.hints is hints
    assert hints.find(INVOICES) == (Hint(SHIPPED, Source.SHIPPED),)
