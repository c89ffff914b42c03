import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolscout.calls.results import Page, Results
from toolscout.errors import InvalidRequest, UnknownResult
from toolscout.names import is_handle
from toolscout.schemas import Json
from toolscout.stores import MemoryStore
from toolscout.tokens import count_tokens

LINES = "".join(f"line {number} of the log\n" for number in range(1, 401))
ITEMS = json.dumps([{"id": number, "name": f"item {number}"} for number in range(300)])


def results(limit: int = 100, **options: int) -> Results:
    return Results(MemoryStore(), "session", limit=limit, **options)


def read(text: str, arguments: Json, limit: int = 100) -> Page:
    kept = results(limit)
    return kept.read(kept.cut_page(text).handle, arguments)


def all_pages(kept: Results, text: str) -> list[Page]:
    pages = [kept.cut_page(text)]
    while pages[-1].handle:
        pages.append(kept.read(pages[-1].handle, {"start": pages[-1].end}))
    return pages


def test_a_text_that_fits_is_given_whole_and_not_kept():
    store = MemoryStore()

    page = Results(store, "session").cut_page("short")

    assert page == Page(text="short", handle="", start=0, end=5, total=5, note="")
    assert store.keys("result") == []


@pytest.mark.requirement("R48")
def test_a_long_text_is_cut_after_a_line_and_says_how_to_read_on():
    """R48: replies obey a budget and say how to get the rest."""
    page = results().cut_page(LINES)

    assert page.text.endswith(" of the log\n")
    assert count_tokens(page.text) <= 100
    assert page.note == (
        f"Characters 0 to {page.end:,} of {len(LINES):,}. "
        f'Read on with tool_call(name="{page.handle}", arguments={{"start": {page.end}}}). '
        "Or give find, line, lines or path instead."
    )


def test_the_same_text_has_the_same_handle():
    assert results().cut_page(LINES).handle == results().cut_page(LINES).handle
    assert is_handle(results().cut_page(LINES).handle)


@pytest.mark.parametrize("name", ["result_", "result_12345", "github__find", 5, None, "Result_0"])
def test_other_names_are_no_handles(name: object):
    assert not is_handle(name)


@pytest.mark.requirement("R48")
@given(st.text(max_size=3_000), st.integers(16, 200))
def test_pages_that_follow_each_other_make_up_the_text_and_none_is_too_long(text: str, limit: int):
    """R48"""
    pages = all_pages(results(limit), text)

    assert "".join(page.text for page in pages) == text
    assert all(count_tokens(page.text) <= limit for page in pages)


@pytest.mark.parametrize(
    "text",
    [LINES, ITEMS, "x1" * 9_000, " " * 20_000, "\U0001f600" * 900, "a\u0301" * 900, '["\\"' * 999],
)
def test_texts_of_every_kind_can_be_read_to_their_end(text: str):
    pages = all_pages(results(), text)

    assert "".join(page.text for page in pages) == text
    assert all(count_tokens(page.text) <= 100 for page in pages)
    assert pages[-1].note == ""


def test_lone_surrogates_are_kept_as_they_are():
    text = "\ud800 word " * 500

    assert "".join(page.text for page in all_pages(results(), text)) == text


def test_json_on_one_line_is_cut_between_elements():
    pages = all_pages(results(), ITEMS)

    assert all(page.text.endswith("},") for page in pages[:-1])


def test_nothing_that_is_seen_as_one_character_is_split():
    family = "\U0001f468\u200d\U0001f469\u200d\U0001f467"
    pages = all_pages(results(), family * 300)

    assert {page.text.replace(family, "") for page in pages} == {""}


def test_a_flag_is_not_split():
    flag = "\U0001f1eb\U0001f1ee"

    pages = all_pages(results(), flag * 300)

    assert {page.text.replace(flag, "") for page in pages} == {""}


def test_reading_without_arguments_gives_the_second_page():
    kept = results()
    first = kept.cut_page(LINES)

    assert kept.read(first.handle, {}) == kept.read(first.handle, {"start": first.end})


def test_a_range_is_read_exactly_if_it_fits():
    page = read(LINES, {"start": 10, "end": "40"})

    assert (page.text, page.start, page.end) == (LINES[10:40], 10, 40)


def test_a_range_longer_than_a_page_reads_on_to_its_end():
    page = read(LINES, {"start": 0, "end": 5_000})

    assert f'arguments={{"start": {page.end}, "end": 5000}}' in page.note


def test_lines_are_counted_from_one():
    assert read(LINES, {"lines": [3, 4]}).text == "line 3 of the log\nline 4 of the log\n"
    assert read(LINES, {"line": 400}).text == "line 400 of the log\n"


def test_found_lines_have_numbers_and_one_line_of_context():
    page = read(LINES, {"find": "LINE 77 OF"})

    assert page.text == "76- line 76 of the log\n77: line 77 of the log\n78- line 78 of the log"
    assert page.note == (
        "1 of 1 matches of 'LINE 77 OF' are shown. "
        f'Read from one with tool_call(name="{page.handle}", arguments={{"line": 77}}).'
    )


def test_more_matches_than_fit_can_be_read_on():
    kept = results()
    handle = kept.cut_page(LINES).handle
    found: list[str] = []
    arguments: Json = {"find": "0 of the"}
    while arguments:
        page = kept.read(handle, arguments)
        found += [row for row in page.text.splitlines() if ": " in row]
        assert count_tokens(page.text) <= 100
        more = "Read on" in page.note
        arguments = {"find": "0 of the", "start": page.end} if more else {}

    assert found == [f"{number}: line {number} of the log" for number in range(10, 401, 10)]


def test_matches_in_one_long_line_are_shown_with_their_surroundings():
    page = read(ITEMS, {"find": '"item 150"'})

    assert '"name": "item 150"' in page.text
    assert len(page.text) < 400


def test_words_that_are_nowhere_are_no_error():
    page = read(LINES, {"find": "(a+)+$"})

    assert page.text == ""
    assert page.note.startswith("Nothing contains '(a+)+$'.")


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("$[0].name", '"item 0"'),
        ("[-1]['id']", "299"),
        ("$[1:3].id", "[1, 2]"),
        ('$[:2]["name"]', '["item 0", "item 1"]'),
        ("$[0][*]", '[0, "item 0"]'),
        ("$[300:][*]", "[]"),
    ],
)
def test_a_path_reads_json(path: str, text: str):
    assert read(ITEMS, {"path": path}).text == text


def test_a_path_to_much_json_gives_a_line_for_each_element_under_a_handle_of_its_own():
    kept = results()
    first = kept.cut_page(ITEMS)

    page = kept.read(first.handle, {"path": "$[*].name"})

    assert page.text.startswith('[\n"item 0",\n"item 1",\n')
    assert page.handle not in ("", first.handle)
    assert kept.read(page.handle, {"start": page.end}).text.startswith('"item ')


@pytest.mark.parametrize(
    ("path", "told"),
    [
        ("$[0].nam", "Keys there: name, id."),
        ("$[500]", "It has 300 items;"),
        ("$[0].id.x", "It is a single value;"),
        ("$..name", "Write one like"),
        ("$[?(@.id>1)]", "Write one like"),
        ("$[*].title", "Keys there: id, name."),
    ],
)
def test_a_path_that_leads_nowhere_says_what_is_there(path: str, told: str):
    with pytest.raises(InvalidRequest) as caught:
        read(ITEMS, {"path": path})

    assert told in str(caught.value)


def test_a_path_needs_json():
    with pytest.raises(InvalidRequest, match="is not JSON"):
        read(LINES, {"path": "$.a"})


@pytest.mark.parametrize(
    "arguments",
    [
        {"offset": 5},
        {"start": 1, "line": 2},
        {"find": "x", "path": "$"},
        {"start": -1},
        {"start": 10**9},
        {"start": True},
        {"start": "abc"},
        {"start": 10, "end": 10},
        {"line": 0},
        {"line": 401},
        {"lines": [5, 4]},
        {"lines": 5},
        {"find": ""},
        {"find": 5},
        {"path": 5},
    ],
)
def test_arguments_that_make_no_sense_say_what_to_write(arguments: Json):
    with pytest.raises(InvalidRequest) as caught:
        read(LINES, arguments)

    assert caught.value.remedy.startswith(("Use ", "Give a whole number", "Write one like"))


@given(
    st.dictionaries(
        st.sampled_from(["start", "end", "line", "lines", "find", "path", "x"]),
        st.none() | st.integers() | st.floats() | st.text() | st.lists(st.integers(0, 500)),
    )
)
def test_reading_gives_a_page_or_says_what_to_write(arguments: Json):
    try:
        page = read(LINES, arguments)
    except InvalidRequest as error:
        assert error.remedy
    else:
        assert count_tokens(page.text) <= 100


@pytest.mark.parametrize("handle", ["result_0123456789", "session", "", "github__find"])
def test_an_unknown_handle_is_refused(handle: str):
    with pytest.raises(UnknownResult):
        results().read(handle, {})


def test_kept_results_outlive_the_object_and_belong_to_their_owner():
    store = MemoryStore()
    handle = Results(store, "one", limit=100).cut_page(LINES).handle

    assert Results(store, "one", limit=100).read(handle, {"line": 400}).text
    with pytest.raises(UnknownResult):
        Results(store, "two").read(handle, {})


def test_the_oldest_results_go_first():
    store = MemoryStore()
    kept = Results(store, "session", limit=100, kept=2)
    handles = [kept.cut_page(f"{number} {LINES}").handle for number in (1, 2, 1, 3)]

    assert kept.read(handles[0], {"line": 1}).text.startswith("1 ")
    assert kept.read(handles[3], {"line": 1}).text.startswith("3 ")
    with pytest.raises(UnknownResult):
        kept.read(handles[1], {})
    assert len(store.keys("result")) == 3


def test_results_that_are_large_together_push_out_the_oldest():
    kept = results(max_bytes=12_000)
    first, second = (kept.cut_page(f"{number} {LINES}").handle for number in (1, 2))

    assert kept.read(second, {"line": 1}).text.startswith("2 ")
    with pytest.raises(UnknownResult):
        kept.read(first, {})


def test_a_text_too_large_to_keep_is_cut_at_a_character_and_says_so():
    kept = results(max_bytes=2_001)

    pages = all_pages(kept, "é" * 2_000)

    assert "".join(page.text for page in pages) == "é" * 1_000
    assert pages[-1].note == "The last 1,000 characters of the result were not kept."
