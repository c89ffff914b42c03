import pytest
from hypothesis import given, settings

from hostile import ANYTHING
from toolscout.errors import InvalidQuery, InvalidRequest
from toolscout.sessions.metatools import (
    CallRequest,
    SearchRequest,
    find_names,
    find_queries,
    read_calls,
    read_names_request,
    read_search_request,
    to_object,
)
from toolscout.settings import Settings

USUAL = Settings()
MIXED: tuple[object, ...] = ("mail", 7, None, [], True)


def asked(
    queries: object = "mail", limit: object = None, detail: object = None, tokens: object = None
) -> SearchRequest:
    return read_search_request(
        queries, settings=USUAL, limit=limit, detail=detail, max_tokens=tokens
    )


@pytest.mark.requirement("R11")
@pytest.mark.parametrize(
    ("limit", "expected"),
    [(None, 5), (1, 1), (20, 20), (7.0, 7), ("7", 7), (" 7 ", 7), ("07", 7), ("7.0", 7)],
)
def test_a_limit_is_taken_as_it_was_meant(limit: object, expected: int):
    """R11"""
    request = asked(limit=limit)

    assert (request.limit, request.notes) == (expected, ())


@pytest.mark.requirement("R11")
@pytest.mark.parametrize(
    ("limit", "expected", "note"),
    [
        (0, 1, "limit must be 1 to 20; 1 was used."),
        (-3, 1, "limit must be 1 to 20; 1 was used."),
        ("100", 20, "limit must be 1 to 20; 20 was used."),
        pytest.param(10**5_000, 20, "limit must be 1 to 20; 20 was used.", id="huge"),
        (2.5, 5, "limit is not a whole number; 5 was used."),
        (float("nan"), 5, "limit is not a whole number; 5 was used."),
        (True, 5, "limit is not a whole number; 5 was used."),
        ("many", 5, "limit is not a whole number; 5 was used."),
        pytest.param("9" * 5_000, 5, "limit is not a whole number; 5 was used.", id="digits"),
        ([3], 5, "limit is not a whole number; 5 was used."),
    ],
)
def test_a_limit_out_of_bounds_is_changed_and_noted(limit: object, expected: int, note: str):
    """R11"""
    request = asked(limit=limit)

    assert (request.limit, request.notes) == (expected, (note,))


def test_the_usual_values_come_from_the_settings():
    request = read_search_request("mail", settings=Settings(limit=3, reply_tokens=400))

    assert request == SearchRequest(
        queries=("mail",), limit=3, detail="signatures", max_tokens=400, notes=()
    )


def test_detail_and_budget_are_bounded_and_noted():
    request = asked(detail="everything", tokens=5)

    assert (request.detail, request.max_tokens) == ("signatures", 200)
    assert request.notes == (
        "detail takes names, signatures, schemas; signatures was used.",
        "max_tokens must be 200 to 20,000; 200 was used.",
    )
    assert asked(detail=" NAMES ").detail == "names"


@pytest.mark.parametrize(
    ("queries", "expected"),
    [
        ("mail", ("mail",)),
        (["mail", "mail", " ", "files"], ("mail", "files")),
        ('["mail", "files"]', ("mail", "files")),
        ("[not json", ("[not json",)),
        (MIXED, ("mail", "7")),
        (404, ("404",)),
    ],
)
def test_queries_come_in_many_shapes(queries: object, expected: tuple[str, ...]):
    assert asked(queries).queries == expected


def test_of_too_many_queries_the_first_are_read():
    request = asked([f"need {number}" for number in range(12)])

    assert request.queries == tuple(f"need {number}" for number in range(10))
    assert request.notes == ("Only the first 10 of 12 queries were used.",)


@pytest.mark.requirement("R9")
@pytest.mark.parametrize("queries", [None, "", "  ", [], [None], {}, True, [10**5_000], [[]]])
def test_no_query_is_answered_with_the_forms(queries: object):
    """R9"""
    with pytest.raises(InvalidQuery, match="'select:name,name' for known names"):
        asked(queries)


@pytest.mark.requirement("R12")
@given(ANYTHING, ANYTHING, ANYTHING, ANYTHING)
@settings(max_examples=150)
def test_any_search_is_read_or_refused(
    queries: object, limit: object, detail: object, tokens: object
):
    """R12: what comes out is within bounds whatever came in."""
    try:
        request = asked(find_queries(queries), limit, detail, tokens)
    except InvalidQuery:
        return

    assert 1 <= len(request.queries) <= 10 and all(q.strip() for q in request.queries)
    assert 1 <= request.limit <= 20
    assert 200 <= request.max_tokens <= 20_000
    assert request.detail in ("names", "signatures", "schemas")


@pytest.mark.requirement("R12")
@given(ANYTHING)
@settings(max_examples=150)
def test_any_description_and_call_is_read_or_refused(value: object):
    """R12"""
    try:
        names, _ = read_names_request(find_names(value))
        assert 1 <= len(names) <= 10
    except InvalidRequest:
        pass
    try:
        calls, _ = read_calls(value)
        assert 1 <= len(calls) <= 10
    except InvalidRequest:
        pass


def test_names_beyond_ten_are_noted():
    names, notes = read_names_request([f"t{number}" for number in range(11)])

    assert names == tuple(f"t{number}" for number in range(10))
    assert notes == ("Only the first 10 of 11 names were used.",)


@pytest.mark.parametrize(
    "value",
    [
        {"name": "read", "arguments": {"path": "a"}},
        {"tool_name": "read", "args": {"path": "a"}},
        {"tool": "read", "input": {"path": "a"}},
        '{"name": "read", "parameters": {"path": "a"}}',
        {"calls": [{"name": "read", "arguments": {"path": "a"}}]},
        {"name": "", "calls": {"tool": "read", "args": {"path": "a"}}},
        {"name": "read", "arguments": {"path": "a"}, "calls": []},
        '{"calls": "[{\\"name\\": \\"read\\", \\"arguments\\": {\\"path\\": \\"a\\"}}]"}',
    ],
)
def test_a_call_is_read_in_the_words_that_models_use(value: object):
    assert read_calls(value) == ((CallRequest("read", {"path": "a"}),), ())


def test_calls_beyond_ten_are_noted():
    calls, notes = read_calls({"calls": [{"name": f"t{number}"} for number in range(12)]})

    assert [call.name for call in calls] == [f"t{number}" for number in range(10)]
    assert notes == ("Only the first 10 of 12 calls were used.",)


def test_one_call_and_several_are_not_mixed():
    with pytest.raises(InvalidRequest, match="a name or calls, not both"):
        read_calls({"name": "read", "calls": [{"name": "write"}, {"name": "delete"}]})


def test_queries_and_names_are_found_under_other_keys():
    assert find_queries({"query": "mail"}) == "mail"
    assert find_queries("mail") == "mail"
    assert find_names('{"tool": "read"}') == "read"
    assert find_names(["read"]) == ["read"]


def test_only_an_object_is_an_object():
    assert to_object('{"a": 1}') == {"a": 1}
    assert to_object("[" * 100_000) == {}
    assert to_object([1]) == {}
