from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from toolscout import Catalog, Hit, Index, Tool
from toolscout.demo import load_demo_catalog
from toolscout.hints.hints import Hints, digest_definition
from toolscout.search.index import EncoderChoice

LATE = "late payers; who owes us money"
INVOICES = Tool.define("list_invoices", server="books", description="List invoices by status.")
LEDGER = Tool.define("read_ledger", server="books", description="Read the entries of a ledger.")
CLOCK = Tool.define("now", server="clock", description="Tell the time of day.")
TOOLS = (INVOICES, LEDGER, CLOCK)
QUERIES = ("who owes us money", "late payers", "list invoices", "what time is it", "ledger")
WORDS = ("late", "payers", "money", "ledger", "time", "status", "wombat")

every_encoder = pytest.mark.parametrize("encoder", ["static", None])


def catalog_of(*tools: Tool) -> Catalog:
    by_server: dict[str, list[Tool]] = {}
    for tool in tools:
        by_server.setdefault(tool.server, []).append(tool)
    return Catalog(by_server)


def hints_for(**texts: str) -> Hints:
    hints = Hints()
    by_leaf = {tool.leaf: digest_definition(tool) for tool in TOOLS}
    hints.add({by_leaf[leaf]: text for leaf, text in texts.items()}, by="person")
    return hints


def list_answers(index: Index) -> list[list[tuple[str, float]]]:
    def read(hit: Hit) -> tuple[str, float]:
        return hit.tool.name, hit.score

    return [[read(hit) for hit in index.search(query)] for query in QUERIES]


@every_encoder
def test_a_tool_is_found_by_words_that_only_its_hint_has(encoder: EncoderChoice):
    plain = Index(catalog_of(*TOOLS), encoder=encoder, hints=None)
    hinted = Index(catalog_of(*TOOLS), encoder=encoder, hints=hints_for(list_invoices=LATE))

    found = hinted.search("late payers")[0]

    assert found.tool == INVOICES
    before = [hit.score for hit in plain.search("late payers") if hit.tool == INVOICES]
    assert found.score > max(before, default=0.0)


@every_encoder
def test_among_many_tools_a_hint_makes_a_candidate(encoder: EncoderChoice):
    others = [
        Tool.define(f"send_{n}", server=f"mail{n}", description=f"Send letter {n} to a person.")
        for n in range(1_200)
    ]
    catalog = catalog_of(INVOICES, *others)
    index = Index(catalog, encoder=encoder, hints=hints_for(list_invoices="overdue debtors"))

    assert index.search("overdue debtors")[0].tool == INVOICES


def test_among_many_tools_a_hint_that_does_not_fit_hides_no_definition_that_does():
    photo = Tool.define(
        "erase_photo",
        server="photos",
        description="Erase a photo from the gallery.",
        hint="tax return; bake bread; tyre pressure; football results; opening hours",
    )
    others = [
        Tool.define(f"tool_{n}", server="users", description="Remove a user.") for n in range(600)
    ]

    hits = Index(catalog_of(photo, *others)).search("delete a picture", 40).hits

    assert photo in [hit.tool for hit in hits]


def test_an_approximate_index_finds_tools_near_their_hints():
    catalog = catalog_of(CLOCK, *load_demo_catalog())
    plain = Index(catalog, hints=None, approximate=True)
    hinted = Index(catalog, hints=hints_for(now="overdue debtors; unpaid bills"), approximate=True)

    # No word of the query is a word of the tool or of its hint.
    assert CLOCK not in [hit.tool for hit in plain.search("outstanding debts", 96)]
    assert CLOCK in [hit.tool for hit in hinted.search("outstanding debts", 96)]


@every_encoder
def test_hints_of_unrelated_tools_leave_the_first_hit_alone(encoder: EncoderChoice):
    hints = hints_for(list_invoices=LATE, read_ledger="bookkeeping; journal of postings")
    index = Index(catalog_of(*TOOLS), encoder=encoder, hints=hints)

    assert index.search("tell the time of day")[0].tool == CLOCK


@every_encoder
def test_a_hint_that_changes_counts_at_once_and_leaves_no_trace_when_it_goes(
    encoder: EncoderChoice,
):
    hints = Hints()
    index = Index(catalog_of(*TOOLS), encoder=encoder, hints=hints)
    before = list_answers(index)
    digest = digest_definition(INVOICES)

    hints.add({digest: LATE}, by="person")
    fresh = Index(catalog_of(*TOOLS), encoder=encoder, hints=hints_for(list_invoices=LATE))
    assert list_answers(index) == list_answers(fresh)
    assert list_answers(index) != before

    hints.remove([digest])
    assert list_answers(index) == before


def test_a_closed_index_follows_hints_no_more():
    hints = Hints()
    index = Index(catalog_of(*TOOLS), hints=hints)
    before = list_answers(index)
    index.close()

    hints.add({digest_definition(INVOICES): LATE}, by="person")

    assert list_answers(index) == before


@every_encoder
def test_a_saved_index_keeps_hints_and_notices_others(encoder: EncoderChoice, tmp_path: Path):
    file = tmp_path / "tools.index"
    catalog = catalog_of(*TOOLS)
    Index(catalog, encoder=encoder, hints=hints_for(list_invoices=LATE)).save(file)

    for now in (hints_for(list_invoices=LATE), hints_for(now="o'clock; what day is it"), Hints()):
        loaded = Index.load(file, catalog, encoder=encoder, hints=now)
        assert list_answers(loaded) == list_answers(Index(catalog, encoder=encoder, hints=now))


def test_filters_look_at_hints_given_with_a_tool_but_not_at_others():
    given_with = Tool.define(
        "pay", server="bank", description="Transfer an amount.", hint="settle a bill"
    )
    catalog = catalog_of(given_with, *TOOLS)
    index = Index(catalog, hints=hints_for(list_invoices="settle late bills"))

    assert {hit.tool for hit in index.search("+settle")} == {given_with}
    assert INVOICES in {hit.tool for hit in index.search("invoices -settle")}
    assert given_with not in {hit.tool for hit in index.search("transfer -settle")}


def test_an_explanation_names_the_words_of_a_hint_and_its_share():
    index = Index(catalog_of(*TOOLS), hints=hints_for(list_invoices=LATE))

    why = index.search("late payers")[0].why

    assert why.matched["hint"] == ("late", "payers")
    assert why.shares["hint"] > 0


def test_without_hints_their_share_is_nothing():
    index = Index(load_demo_catalog(), hints=None)

    assert index.search("open a pull request")[0].why.shares["hint"] == 0


@settings(max_examples=25)
@given(
    st.dictionaries(
        st.sampled_from([tool.leaf for tool in TOOLS]),
        st.lists(st.sampled_from(WORDS), min_size=1, max_size=6).map(" ".join),
    ),
    st.permutations(TOOLS),
)
def test_results_with_hints_do_not_depend_on_the_order_of_tools_or_changes(
    texts: dict[str, str], order: list[Tool]
):
    whole = Index(catalog_of(*TOOLS), hints=hints_for(**texts))
    catalog = Catalog()
    hints = Hints()
    grown = Index(catalog, hints=hints)
    for tool in order:
        catalog.add(tool.server, [tool])
        if tool.leaf in texts:
            hints.add({digest_definition(tool): texts[tool.leaf]}, by="person")

    assert list_answers(grown) == list_answers(whole)
