from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolscout.errors import InvalidQuery
from toolscout.query import Query, query_from_text
from toolscout.tools import Effect


def expect(text: str, **parts: Any) -> None:
    query = query_from_text(text)

    assert query == Query(text=query.text, **parts)


@pytest.mark.requirement("R1")
@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("select:a,b", ("a", "b")),
        ("SELECT: b , a,b", ("b", "a")),
        ("Select:two words,x", ("two words", "x")),
        ('select:"a", `b`', ("a", "b")),
        ("select:github/create.issue", ("github/create.issue",)),
    ],
)
def test_selection_keeps_order_and_drops_duplicates(text: str, names: tuple[str, ...]):
    """R1"""
    expect(text, select=names)


@pytest.mark.requirement("R4")
@pytest.mark.parametrize(
    ("text", "prefix"),
    [
        ("git*", "git"),
        ("github__", "github__"),
        ("github_", "github_"),
        ("files.", "files."),
        ("repos/", "repos/"),
        ("/api/users/", "/api/users/"),
        ("查*", "查"),
    ],
)
def test_a_lone_word_with_an_open_end_is_a_prefix(text: str, prefix: str):
    """R4"""
    expect(text, prefix=prefix)


@pytest.mark.requirement("R8")
@pytest.mark.requirement("R18")
@pytest.mark.parametrize(
    "text",
    [
        "create a pull request",
        "list files.",
        "git* log",
        "c++",
        "c#",
        ".net",
        "hello...",
        "/etc/hosts",
        "a/b",
        "foo:bar",
        "https://example.com/a?b=c",
        "server: github",
        "select",
        "-5",
        "-3.5",
        "-delete",
        "- dash",
        "a - b",
        "--force push",
        "read + write",
        "pre-commit",
        "查询天气",
        "😀",
        "مرحبا",
        "what is 1 + 1?",
    ],
)
def test_everything_else_is_words(text: str):
    """R8, R18"""
    expect(text, words=text)


@pytest.mark.requirement("R6")
def test_required_and_excluded_terms_are_taken_out_of_the_words():
    """R6"""
    expect(
        'cron +slack +"two words" -delete -"old thing" -5 +c++',
        words="cron -5",
        required=("slack", "two words", "c++"),
        excluded=("delete", "old thing"),
    )


@pytest.mark.requirement("R5")
@pytest.mark.requirement("R26")
def test_filters_narrow_every_form():
    """R5, R26"""
    expect("server:github create issue", words="create issue", servers=("github",))
    expect('issue SERVER:"my server" server:a,b', words="issue", servers=("my server", "a", "b"))
    expect("server:github select:a, b", select=("a", "b"), servers=("github",))
    expect("select:a, b server:github", select=("a", "b"), servers=("github",))
    expect("git* kind:skill", prefix="git", kinds=("skill",))
    expect("effect:READ,write x", words="x", effects=(Effect.READ, Effect.WRITE))
    expect("server:x /a server:y/", pattern="a server:y", servers=("x",))


def test_a_filter_alone_lists():
    expect("server:github", servers=("github",))
    expect("server:github *", servers=("github",))
    expect("server:github -delete", servers=("github",), excluded=("delete",))


@pytest.mark.requirement("R7")
def test_discover_shows_without_loading():
    """R7"""
    expect("discover: select:a", select=("a",), load=False)
    expect("Discover:send mail", words="send mail", load=False)
    expect("how to discover: things", words="how to discover: things")


@pytest.mark.requirement("R10")
def test_a_pattern_is_checked_by_a_linear_engine():
    """R10"""
    expect("/create_(issue|pr)$/", pattern="create_(issue|pr)$")
    expect("/Issue/i", pattern="(?i)Issue")
    expect("/(a+)+$/", pattern="(a+)+$")


@pytest.mark.requirement("R10")
@pytest.mark.parametrize(
    "text", ["/fo(o/", r"/(a)\1/", "/(?=x)y/", "/" + "a" * 600 + "/", "/((a{100}){100}){100}/"]
)
def test_a_pattern_that_cannot_run_in_linear_time_and_bounded_memory_is_refused(text: str):
    """R10"""
    with pytest.raises(InvalidQuery) as caught:
        query_from_text(text)

    assert "pattern" in caught.value.problem


@pytest.mark.requirement("R9")
@pytest.mark.parametrize(
    "text",
    [
        "",
        " \n",
        "\x00",
        "???",
        "+",
        "-",
        "*",
        "***",
        "//",
        "+ - +",
        "\ud800",
        "discover:",
        "—",
        "€",
    ],
)
def test_an_empty_or_symbol_only_query_explains_the_forms(text: str):
    """R9"""
    with pytest.raises(InvalidQuery) as caught:
        query_from_text(text)

    assert "select:name" in caught.value.remedy


@pytest.mark.requirement("R12")
@pytest.mark.parametrize("value", [None, 7, b"x", ["x"], {"q": "x"}])
def test_a_query_that_is_not_text_says_so(value: object):
    """R12"""
    with pytest.raises(InvalidQuery, match="A query is text"):
        query_from_text(value)


def test_a_mistaken_operator_names_what_is_allowed():
    with pytest.raises(InvalidQuery, match="read, write, destructive, unknown"):
        query_from_text("effect:boom x")
    with pytest.raises(InvalidQuery, match="has no names"):
        query_from_text("select: , ,")


def test_text_is_cleaned_and_bounded():
    query = query_from_text("send\x00 \u202email\n\tnow\udfff " + "x" * 50_000)

    assert query.words.startswith("send mail now x")
    assert len(query.text) <= 20_000


PIECES = st.sampled_from(
    [*'+-"/*:_., ', "select:", "server:", "effect:", "kind:", "discover:", "read", "a", "é", "查"]
)


@pytest.mark.requirement("R12")
@given(st.text() | st.lists(PIECES, max_size=12).map("".join))
def test_any_text_gives_a_query_or_an_invalid_query(text: str):
    """R12"""
    try:
        query = query_from_text(text)
    except InvalidQuery as error:
        assert error.remedy
        return

    assert query.text == query_from_text(query.text).text
    assert (
        query.select
        or query.words
        or query.prefix
        or query.required
        or (query.pattern or query.has_filter)
    )


@pytest.mark.requirement("R12")
@pytest.mark.parametrize("piece", ["a", "_", "*", '+"', "/", "server:", "-a ", 'server:"', "a."])
def test_long_repetitions_are_read_at_once(piece: str):
    """R12"""
    # A backtracking rule would need minutes here and run into the time limit of the test.
    text = piece * (20_000 // len(piece))
    try:
        assert query_from_text(text).text
    except InvalidQuery as error:
        assert error.remedy


@pytest.mark.parametrize("text", ["call +49 151 2345678", "raise it by +5%"])
def test_a_number_with_a_plus_is_a_word(text: str):
    query = query_from_text(text)

    assert (query.words, query.required) == (text, ())
