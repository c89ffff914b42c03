from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from toolscout.catalog import RESERVED_NAMES, Catalog
from toolscout.errors import ModelError
from toolscout.names import make_exposed_name
from toolscout.search.hits import Confidence, Hit, Result
from toolscout.search.index import Index
from toolscout.tools import Effect, Tool

WORDS = (
    *("create", "list", "issue", "pull request", "file", "report", "mail", "the", "of", "in"),
    *(
        "邮件",
        "検索",
        "날씨",
        "письмо",
        "שלום",
        "بريد",
        "café",
        "c++",
        ".net",
        "v2",
        "🦘",
        "HTTPServer",
    ),
)
SERVERS = ("github", "jira", "my server", "почта", "a.b", "")
LEAVES = (
    *("search", "create_issue", "createIssue2", "list-files", "send.mail", "get/report", "x"),
    *(
        "邮件",
        "検索する",
        "письмо",
        "שלום",
        "🦘",
        "c++",
        "Ünïcode näme",
        "a" * 90,
        "mcp",
        "read all",
    ),
)
QUERIES = (
    *("create an issue", "list the files and send mail", "report", "邮件", "检索 file", "письмо"),
    *("search*", "/e/", "effect:read", "search", "mail -file", "+report", "c++ 🦘", "craete isue"),
)


def schemas() -> st.SearchStrategy[dict[str, Any]]:
    def nested(inner: st.SearchStrategy[dict[str, Any]]) -> st.SearchStrategy[dict[str, Any]]:
        properties = st.dictionaries(st.sampled_from(WORDS), inner, max_size=3)
        return properties.map(lambda found: {"type": "object", "properties": found})

    leaf = st.fixed_dictionaries(
        {"description": st.sampled_from(WORDS)},
        optional={"enum": st.lists(st.sampled_from(WORDS), max_size=3)},
    )
    return st.just(dict[str, Any]()) | st.recursive(leaf, nested, max_leaves=4)


def texts() -> st.SearchStrategy[str]:
    return st.lists(st.sampled_from(WORDS), max_size=6).map(" ".join)


def usual_names() -> st.SearchStrategy[str]:
    return st.sampled_from(LEAVES)


def wild_names() -> st.SearchStrategy[str]:
    """Names of any characters, but for those that are exposed with a separator at their end.

    Asked for by themselves, those are prefixes, or nothing at all.
    """
    names = st.text(min_size=1, max_size=12).filter(lambda text: bool(text.strip()))
    return names.filter(lambda text: make_exposed_name("", text)[-1].isalnum())


def tools(leaves: st.SearchStrategy[str]) -> st.SearchStrategy[Tool]:
    return st.builds(
        Tool.define,
        leaves,
        server=st.sampled_from(SERVERS),
        title=st.sampled_from(("", "Nice title")),
        description=texts(),
        input_schema=schemas(),
        hint=texts(),
        aliases=st.lists(st.sampled_from(WORDS), max_size=1),
        tags=st.lists(st.sampled_from(WORDS), max_size=2),
        kind=st.sampled_from(("tool", "skill")),
        effect=st.sampled_from(Effect),
    )


def distinct(found: Iterable[Tool]) -> list[Tool]:
    """Return tools that one catalogue can hold together."""
    by_name = {tool.name: tool for tool in found if tool.name not in RESERVED_NAMES}
    return list(by_name.values())


def tool_lists(leaves: st.SearchStrategy[str]) -> st.SearchStrategy[list[Tool]]:
    return st.lists(tools(leaves), max_size=12).map(distinct)


def catalog_of(found: Iterable[Tool]) -> Catalog:
    catalog = Catalog()
    for tool in found:
        catalog.add(tool.server, [tool])
    return catalog


def scored(result: Iterable[Hit]) -> list[tuple[str, float]]:
    return [(hit.tool.name, hit.score) for hit in result]


def is_first(index: Index, tool: Tool) -> bool:
    best = index.search(tool.name, limit=1)[0]
    return best.tool == tool and best.confidence is Confidence.EXACT


@pytest.mark.requirement("R3")
@settings(max_examples=60)
@given(tool_lists(wild_names() | usual_names()))
def test_every_tool_is_first_for_its_own_exposed_name(found: list[Tool]):
    """R3"""
    index = Index(catalog_of(found), encoder=None)

    assert [tool.name for tool in found if not is_first(index, tool)] == []


@pytest.mark.requirement("R3")
@settings(max_examples=20)
@given(tool_lists(usual_names()))
def test_with_vectors_every_tool_is_first_for_its_own_exposed_name(found: list[Tool]):
    """R3"""
    index = Index(catalog_of(found))

    assert [tool.name for tool in found if not is_first(index, tool)] == []


@pytest.mark.requirement("R3")
@pytest.mark.requirement("R4")
def test_a_name_that_reads_as_a_prefix_is_first_in_what_it_lists():
    """R3, R4"""
    found = [Tool.define("x_"), Tool.define("x_y", server="a")]
    result = Index(catalog_of(found), encoder=None).search("x_")

    assert [hit.tool.name for hit in result] == ["x_", "a__x_y"]


@settings(max_examples=40)
@given(tool_lists(usual_names()), st.sampled_from(QUERIES), st.integers(1, 8))
def test_results_keep_to_the_limit_and_fall(found: list[Tool], query: str, limit: int):
    result = Index(catalog_of(found), encoder=None).search(query, limit=limit)
    scores = [hit.score for hit in result]

    assert len(result) <= limit
    assert result.worth <= len(result) <= result.total <= len(found)
    assert scores == sorted(scores, reverse=True)
    assert len({hit.tool.name for hit in result}) == len(result)


@pytest.mark.requirement("R33")
@settings(max_examples=40)
@given(tool_lists(usual_names()), st.randoms(use_true_random=False), st.sampled_from(QUERIES))
def test_results_do_not_depend_on_the_order_of_insertion(
    found: list[Tool], random: Any, query: str
):
    """R33"""
    shuffled = list(found)
    random.shuffle(shuffled)
    first, second = Catalog(), Catalog()
    indexes = Index(first, encoder=None), Index(second, encoder=None)
    for catalog, order in ((first, found), (second, shuffled)):
        for tool in order:
            catalog.add(tool.server, [tool])
    one, other = (index.search(query) for index in indexes)

    assert scored(one) == scored(other)
    assert one == other


@pytest.mark.requirement("R33")
@settings(max_examples=15)
@given(tool_lists(usual_names()), st.sampled_from(QUERIES))
def test_with_vectors_results_do_not_depend_on_the_order_of_insertion(
    found: list[Tool], query: str
):
    """R33"""
    one, other = (Index(catalog_of(order)).search(query) for order in (found, found[::-1]))

    assert scored(one) == scored(other)


@settings(max_examples=40)
@given(tool_lists(usual_names()), tool_lists(usual_names()), st.sampled_from(QUERIES))
def test_what_is_added_and_removed_leaves_no_trace(stay: list[Tool], go: list[Tool], query: str):
    kept = {tool.name for tool in stay}
    catalog = catalog_of(stay)
    index = Index(catalog, encoder=None)
    before = index.search(query)
    for tool in go:
        if tool.name not in kept:
            catalog.add(tool.server, [tool])
    for tool in go:
        if tool.name not in kept:
            catalog.remove(tool.server, [tool.name])

    assert index.search(query) == before
    assert scored(index.search(query)) == scored(before)


@settings(max_examples=40)
@given(tool_lists(usual_names()), st.sampled_from(QUERIES), st.sets(st.sampled_from(SERVERS)))
def test_no_hit_is_ever_one_that_is_not_allowed(found: list[Tool], query: str, servers: set[str]):
    index = Index(catalog_of(found), encoder=None)
    narrow = index.search(query, limit=20, allowed=lambda tool: tool.server in servers)

    assert all(hit.tool.server in servers for hit in narrow)
    assert narrow.total <= sum(tool.server in servers for tool in found)


# Words whose stems are known beforehand: each root has several forms.
FORMS = {
    "create": ("create", "creates", "Creating", "CREATED"),
    "issue": ("issue", "Issues"),
    "delete": ("delete", "deletes", "deleting"),
    "branch": ("branch", "branches"),
    "mail": ("mail", "mails", "Mailing"),
    "wombat": ("wombat", "wombats"),
}
ROOTS = {form.casefold(): root for root, forms in FORMS.items() for form in forms}


@dataclass(frozen=True)
class Known:
    """A tool and the roots of all words that it has in any field."""

    tool: Tool
    roots: frozenset[str]


@st.composite
def known_tools(draw: st.DrawFn) -> Known:
    forms = st.sampled_from([form for listed in FORMS.values() for form in listed])
    name = draw(st.lists(forms.map(str.casefold), min_size=1, max_size=2))
    said = draw(st.lists(forms, max_size=2))
    parameter, value, hint = draw(forms), draw(forms), draw(forms)
    schema = {"properties": {parameter: {"enum": [value]}}} if draw(st.booleans()) else None
    hinted = draw(st.booleans())
    tool = Tool.define(
        draw(st.sampled_from("_-. ")).join(name),
        server=draw(st.sampled_from(("one", "two"))),
        description=" ".join(said),
        input_schema=schema,
        hint=hint if hinted else "",
    )
    used = [*name, *said, *((parameter, value) if schema else ()), *((hint,) if hinted else ())]
    return Known(tool, frozenset(ROOTS[form.casefold()] for form in used))


def known_lists() -> st.SearchStrategy[list[Known]]:
    listed = st.lists(known_tools(), min_size=1, max_size=10)
    return listed.map(lambda found: list({known.tool.name: known for known in found}.values()))


@pytest.mark.requirement("R6")
@pytest.mark.requirement("R15")
@settings(max_examples=50)
@given(known_lists(), st.lists(st.sampled_from(sorted(ROOTS)), min_size=1, max_size=2), texts())
def test_required_terms_find_exactly_the_tools_that_have_them_all(
    found: list[Known], required: list[str], free: str
):
    """R6, R15"""
    index = Index(catalog_of(known.tool for known in found), encoder=None)
    result = index.search(" ".join([free, *(f"+{word}" for word in required)]), limit=20)
    roots = {ROOTS[word] for word in required}

    assert {hit.tool.name for hit in result} == {
        known.tool.name for known in found if roots <= known.roots
    }


@pytest.mark.requirement("R6")
@settings(max_examples=15)
@given(known_lists(), st.sampled_from(sorted(ROOTS)), st.sampled_from(sorted(ROOTS)))
def test_with_vectors_required_and_excluded_terms_never_leak(
    found: list[Known], required: str, excluded: str
):
    """R6"""
    index = Index(catalog_of(known.tool for known in found))
    by_name = {known.tool.name: known.roots for known in found}
    hits = [by_name[hit.tool.name] for hit in index.search(f"wombat mail +{required}", limit=20)]
    kept = [by_name[hit.tool.name] for hit in index.search(f"wombat mail -{excluded}", limit=20)]

    assert all(ROOTS[required] in roots for roots in hits)
    assert not any(ROOTS[excluded] in roots for roots in kept)


@pytest.mark.requirement("R6")
@settings(max_examples=40)
@given(known_lists(), st.lists(st.sampled_from(sorted(ROOTS)), min_size=1, max_size=2))
def test_excluded_terms_never_appear(found: list[Known], excluded: list[str]):
    """R6"""
    index = Index(catalog_of(known.tool for known in found), encoder=None)
    by_name = {known.tool.name: known.roots for known in found}
    text = " ".join(f"-{word}" for word in excluded)
    ranked = index.search(f"create issue delete branch mail wombat {text}", limit=20)
    unwanted = {ROOTS[word] for word in excluded}

    assert {hit.tool.name for hit in ranked} == {
        name for name, roots in by_name.items() if not unwanted & roots
    }


@pytest.mark.requirement("R34")
@settings(max_examples=40)
@given(known_lists(), st.lists(st.sampled_from(sorted(ROOTS)), min_size=1, max_size=3, unique=True))
def test_explanations_mention_exactly_the_words_that_a_tool_has(
    found: list[Known], asked: list[str]
):
    """R34"""
    index = Index(catalog_of(known.tool for known in found), encoder=None)
    for known in found:
        why = index.explain(" ".join(asked), known.tool.name)
        mentioned = {word for listed in why.matched.values() for word in listed}

        assert mentioned == {word for word in asked if ROOTS[word] in known.roots}
        assert sum(why.shares.values()) == pytest.approx(1) or not any(why.shares.values())


def some_index(*, with_vectors: bool) -> Index:
    found = [
        Tool.define(leaf, server=server, description=" ".join(WORDS[place:]))
        for place, leaf in enumerate(LEAVES)
        for server in ("github", "почта")
    ]
    catalog = catalog_of(found)
    return Index(catalog) if with_vectors else Index(catalog, encoder=None)


@pytest.fixture(scope="module", params=["words", "vectors"])
def index(request: pytest.FixtureRequest) -> Index:
    return some_index(with_vectors=request.param == "vectors")


def operators() -> st.SearchStrategy[str]:
    """Texts that look like queries with operators, rightly written or not."""
    parts = (*WORDS, *LEAVES, *"+-*/\"'`:,_.()[]|\\ ", "select:", "server:", "effect:", "kind:")
    return st.lists(
        st.sampled_from((*parts, "discover:", "github", "read", "(?i)")), max_size=8
    ).map("".join)


@pytest.mark.requirement("R12")
@settings(max_examples=150)
@given(st.text(st.characters(), max_size=60) | operators(), st.integers(1, 5))
@example("\ud800", 1)
@example("+\ud800 x", 1)
@example("server:\x00", 1)
@example("/(/", 1)
def test_any_text_gives_a_result_or_an_error_for_the_model(index: Index, text: str, limit: int):
    """R12"""
    try:
        result = index.search(text, limit=limit)
    except ModelError as error:
        assert str(error)
        return

    assert isinstance(result, Result)
    assert len(result) <= limit or result.query.select
    assert all(hit.why is not None for hit in result)
