from dataclasses import fields as fields_of_class

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolscout.search.shard import (
    Postings,
    Vocabulary,
    build_postings,
    compute_rarities,
    concatenate_postings,
    find_entries,
)
from toolscout.search.text import Field, split_words, stem

Entries = dict[str, tuple[bytes, int]]
"""The exact bits of each term's weight, and the fields it is in."""

SAID = "Use it for code."
OPENS = "Opens an issue in a repository."
SENDS = "Sends a message, to one or to many."
ISSUE = ["create_issue", "github", OPENS, "title body", "", "", "", "", SAID, "bug report"]
MAIL = ["send", "mail", SENDS, "to subject", "", "low high", "", "", "", ""]
SEARCH = [
    "searchCode",
    "github",
    "",
    "query",
    "What to find",
    "",
    "grep code",
    "Find code",
    SAID,
    "",
]
BLANK = [""] * len(Field)
TOOLS = [ISSUE, MAIL, SEARCH, BLANK]

texts = st.text(alphabet=st.sampled_from("ab cdE_1é搜"), max_size=12)
tools = st.lists(texts, min_size=len(Field), max_size=len(Field))


def fields(**named: str) -> list[str]:
    return [named.get(field.name.lower(), "") for field in Field]


def entries(postings: Postings, vocabulary: Vocabulary, row: int) -> Entries:
    span = slice(int(postings.starts[row]), int(postings.starts[row + 1]))
    return {
        vocabulary.terms[number]: (weight.tobytes(), int(mask))
        for number, weight, mask in zip(
            postings.terms[span], postings.weights[span], postings.masks[span], strict=True
        )
    }


def weights_alone(tool: list[str]) -> dict[str, float]:
    vocabulary = Vocabulary()
    postings = build_postings([tool], vocabulary)
    return {
        vocabulary.terms[number]: float(weight)
        for number, weight in zip(postings.terms, postings.weights, strict=True)
    }


def assert_equal(one: Postings, other: Postings) -> None:
    for part in fields_of_class(Postings):
        left, right = getattr(one, part.name), getattr(other, part.name)
        assert left.dtype == right.dtype, part.name
        assert left.tolist() == right.tolist(), part.name


def test_a_term_keeps_its_number_for_good():
    vocabulary = Vocabulary()
    first = vocabulary.number_text("create issue")
    vocabulary.number_text("many other words come later")

    assert vocabulary.number_text("issue create") == first[::-1]
    assert vocabulary.find(["nothing"]) == {}
    assert [vocabulary.terms[number] for number in first] == [stem("create"), stem("issue")]


def test_a_vocabulary_starts_again_from_its_terms():
    vocabulary = Vocabulary()
    numbers = vocabulary.number_text("create an issue")

    again = Vocabulary(vocabulary.terms)

    assert len(again) == len(vocabulary)
    assert again.number_text("create an issue") == numbers


@pytest.mark.requirement("R35")
def test_a_tools_weights_are_the_same_bits_whatever_else_is_indexed_with_it():
    """R35"""
    together = Vocabulary()
    postings = build_postings([SEARCH, ISSUE, BLANK, MAIL, ISSUE], together)
    alone = Vocabulary()
    only = build_postings([ISSUE], alone)

    assert entries(postings, together, 1) == entries(only, alone, 0)
    assert entries(postings, together, 4) == entries(only, alone, 0)


@pytest.mark.requirement("R33")
@pytest.mark.requirement("R35")
@given(st.lists(tools, min_size=1, max_size=5), st.lists(st.text(max_size=5), max_size=5))
def test_weights_depend_on_neither_neighbours_nor_the_numbering(
    listed: list[list[str]], known: list[str]
):
    """R33, R35"""
    vocabulary = Vocabulary(dict.fromkeys(known))
    postings = build_postings(listed, vocabulary)

    for row, tool in enumerate(listed):
        fresh = Vocabulary()
        assert entries(postings, vocabulary, row) == entries(
            build_postings([tool], fresh), fresh, 0
        )


@given(st.lists(tools, max_size=5))
def test_weights_are_between_0_and_1(listed: list[list[str]]):
    postings = build_postings(listed, Vocabulary())
    weights = postings.weights

    # What only a hint says weighs nothing here.
    assert ((weights > 0) == (postings.masks != Field.HINT.bit)).all()
    assert (weights < 1).all()


def test_a_word_in_the_name_weighs_more_than_in_the_description():
    named = weights_alone(fields(name="archive", description="It does things."))
    described = weights_alone(fields(name="thing", description="archive it does"))

    assert named[stem("archive")] > described[stem("archive")]


@pytest.mark.requirement("R22")
def test_a_word_of_a_long_description_weighs_less_but_counts():
    """R22"""
    short = weights_alone(fields(description="archive mail"))
    long = weights_alone(fields(description="archive mail " + "padding " * 2_000))

    assert 0 < long[stem("archive")] < short[stem("archive")]


def test_masks_say_which_fields_a_term_is_in():
    vocabulary = Vocabulary()
    tool = fields(name="open_mail", server="mail", description="Opens mail.")

    found = entries(build_postings([tool], vocabulary), vocabulary, 0)

    assert {text: mask for text, (_, mask) in found.items()} == {
        "open": Field.NAME.bit | Field.DESCRIPTION.bit,
        "mail": Field.NAME.bit | Field.SERVER.bit | Field.DESCRIPTION.bit,
        "openmail": 0,
    }


@pytest.mark.requirement("R20")
@pytest.mark.parametrize("name", ["about", "who_am_i", "do", "whoAmI"])
def test_names_of_stop_words_alone_survive(name: str):
    """R20"""
    found = weights_alone(fields(name=name, description="Tells the user."))

    assert {stem(word) for word in split_words(name)} <= found.keys()


@pytest.mark.requirement("R20")
def test_stop_words_among_other_words_are_not_indexed():
    """R20"""
    assert "to" not in weights_alone(fields(name="reply_to_email"))


def test_postings_by_term_hold_the_same_as_postings_by_tool():
    vocabulary = Vocabulary()
    postings = build_postings(TOOLS, vocabulary)
    owners, _ = find_entries(postings.starts, np.arange(len(TOOLS)))
    columns = (postings.terms, owners, postings.weights)
    by_tool = sorted(zip(*(column.tolist() for column in columns), strict=True))

    found = postings.by_term
    by_term: list[tuple[int, int, float]] = []
    for number, (begin, end) in enumerate(found.find_spans(range(len(vocabulary)))):
        columns = (found.rows[begin:end], found.weights[begin:end])
        for row, weight in zip(*(column.tolist() for column in columns), strict=True):
            by_term.append((number, row, weight))

    assert by_term == by_tool


def test_a_term_that_came_later_has_no_rows():
    vocabulary = Vocabulary()
    postings = build_postings(TOOLS, vocabulary)
    later = vocabulary.number("later")

    [(begin, end)] = postings.by_term.find_spans([later])
    assert begin == end


def test_taking_all_rows_gives_the_same_postings():
    vocabulary = Vocabulary()
    postings = build_postings(TOOLS, vocabulary)

    assert_equal(postings.take(np.arange(len(TOOLS))), postings)


def test_taking_some_rows_gives_what_indexing_them_alone_gives():
    vocabulary = Vocabulary()
    postings = build_postings(TOOLS, vocabulary)

    taken = postings.take(np.array([2, 0]))

    assert_equal(taken, build_postings([SEARCH, ISSUE], vocabulary))


def test_taking_no_rows_gives_empty_postings():
    vocabulary = Vocabulary()
    postings = build_postings(TOOLS, vocabulary)

    taken = postings.take(np.array([], np.int64))

    assert taken.starts.tolist() == [0]
    assert_equal(taken, build_postings([], vocabulary))


@given(st.lists(tools, max_size=4), st.lists(tools, max_size=4))
def test_merged_postings_equal_those_of_one_group(first: list[list[str]], second: list[list[str]]):
    vocabulary = Vocabulary()
    parts = [build_postings(first, vocabulary), build_postings(second, vocabulary)]

    assert_equal(concatenate_postings(parts), build_postings(first + second, vocabulary))


@given(st.lists(tools, min_size=1, max_size=4), st.data())
def test_taking_apart_and_putting_together_round_trips(
    listed: list[list[str]], data: st.DataObject
):
    vocabulary = Vocabulary()
    postings = build_postings(listed, vocabulary)
    cut = data.draw(st.integers(0, len(listed)))
    rows = np.arange(len(listed))

    parts = [postings.take(rows[:cut]), postings.take(rows[cut:])]

    assert_equal(concatenate_postings(parts), postings)


def test_entries_between_says_whose_each_entry_is():
    starts = np.array([0, 2, 2, 5], np.int64)

    owners, found = find_entries(starts, np.array([2, 1, 0]))

    assert owners.tolist() == [0, 0, 0, 2, 2]
    assert found.tolist() == [2, 3, 4, 0, 1]


@pytest.mark.requirement("R28")
def test_terms_are_rare_to_some_degree_even_in_a_catalogue_of_one():
    """R28"""
    vocabulary = Vocabulary()
    postings = build_postings([ISSUE], vocabulary)

    found = compute_rarities(np.bincount(postings.terms, minlength=len(vocabulary)), 1)

    assert (found > 0).all()


@pytest.mark.requirement("R28")
@given(st.integers(1, 200_000))
def test_the_fewer_tools_have_a_term_the_rarer_it_is(count: int):
    """R28"""
    frequencies = np.unique(np.linspace(0, count, 50).astype(np.int64))

    found = compute_rarities(frequencies, count)

    assert (found > 0).all()
    assert (np.diff(found) < 0).all()
