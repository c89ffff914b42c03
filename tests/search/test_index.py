from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from uuid import uuid4

import numpy as np
import pytest
from numpy.typing import NDArray

from toolscout.catalog import Catalog
from toolscout.demo import load_demo_catalog
from toolscout.encoders.encoder import CallableEncoder
from toolscout.errors import InvalidQuery, UnknownServer, UsageError
from toolscout.query import Query
from toolscout.search import build
from toolscout.search.hits import Confidence, Hit, Missing, Result
from toolscout.search.index import EncoderChoice, Index
from toolscout.search.postgres import PostgresIndex
from toolscout.search.rank import CANDIDATES, ROUGH_CANDIDATES, Similarities
from toolscout.search.shard import Floats
from toolscout.tools import Effect, Tool


def names(hits: Iterable[Hit]) -> list[str]:
    return [hit.tool.name for hit in hits]


def answers(index: Index, queries: Iterable[str]) -> list[list[tuple[str, float]]]:
    return [[(hit.tool.name, hit.score) for hit in index.search(query)] for query in queries]


def sample() -> Catalog:
    return Catalog(
        {
            "github": [
                Tool.define(
                    "create_issue",
                    server="github",
                    description="Open an issue in a repository.",
                    effect="write",
                    aliases=["new_bug", "Report Problem"],
                ),
                Tool.define(
                    "list_issues",
                    server="github",
                    description="List the issues of a repository.",
                    effect="read",
                ),
                Tool.define(
                    "delete_branch",
                    server="github",
                    description="Delete a branch of a repository.",
                    effect="destructive",
                ),
                Tool.define("search", server="github", description="Search code.", effect="read"),
            ],
            "jira": [
                Tool.define(
                    "createIssue",
                    server="jira",
                    description="Create a ticket in a project.",
                    effect="write",
                ),
                Tool.define("search", server="jira", description="Search tickets.", effect="read"),
            ],
            "skills": [
                Tool.define(
                    "release-notes",
                    server="skills",
                    description="Write release notes from the issues closed since a tag.",
                    kind="skill",
                ),
            ],
        }
    )


MakeIndex = Callable[[Catalog, EncoderChoice], Index | PostgresIndex]


@pytest.fixture(
    scope="module", params=["memory", pytest.param("postgres", marks=pytest.mark.processes)]
)
def make_index(request: pytest.FixtureRequest) -> Iterator[MakeIndex]:
    """Give what makes an index of each kind: all of them keep the same contract."""
    opened: list[PostgresIndex] = []

    def open_postgres(catalog: Catalog, encoder: EncoderChoice) -> PostgresIndex:
        url = request.getfixturevalue("postgres_url")
        schema = f"contract_{len(opened)}_{uuid4().hex[:8]}"
        index = PostgresIndex(url, schema=schema, encoder=encoder, pool_size=2)
        opened.append(index)
        by_server: dict[str, list[Tool]] = {}
        for tool in catalog:
            by_server.setdefault(tool.server, []).append(tool)
        index.load(by_server.items())
        return index

    yield open_postgres if request.param == "postgres" else build_in_memory
    for index in opened:
        index.close()


def build_in_memory(catalog: Catalog, encoder: EncoderChoice) -> Index:
    return Index(catalog, encoder=encoder)


@pytest.fixture(scope="module")
def lexical(make_index: MakeIndex) -> Index | PostgresIndex:
    return make_index(sample(), None)


@pytest.fixture(scope="module")
def semantic(make_index: MakeIndex) -> Index | PostgresIndex:
    return make_index(sample(), "static")


@pytest.fixture(params=["words", "vectors"])
def index(request: pytest.FixtureRequest, lexical: Index, semantic: Index) -> Index:
    return lexical if request.param == "words" else semantic


@pytest.fixture(scope="module")
def demo(make_index: MakeIndex) -> Index | PostgresIndex:
    return make_index(load_demo_catalog(), "static")


# Selection


@pytest.mark.requirement("R1")
@pytest.mark.requirement("R2")
@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("select:github__create_issue", ["github__create_issue"]),
        ("select:delete_branch", ["github__delete_branch"]),
        ("select:delete-branch", ["github__delete_branch"]),
        ("select:new_bug", ["github__create_issue"]),
        ("select:report problem", ["github__create_issue"]),
        ("select:github.create_issue", ["github__create_issue"]),
        ("select:jira/create_issue", ["jira__createIssue"]),
        ("select:mcp__jira__createIssue", ["jira__createIssue"]),
        ("select:search", ["github__search", "jira__search"]),
        ("SELECT: jira__search , github__search", ["jira__search", "github__search"]),
        ("select:jira__search,JIRA.search,search", ["jira__search", "github__search"]),
        ("select:search server:jira", ["jira__search"]),
    ],
)
def test_selection_gives_the_named_tools_in_the_order_named(
    index: Index, text: str, found: list[str]
):
    """R1, R2"""
    result = index.search(text)

    assert names(result) == found
    assert {hit.confidence for hit in result} == {Confidence.EXACT}
    assert result.missing == ()
    assert (result.total, result.worth) == (len(found), len(found))


@pytest.mark.requirement("R1")
def test_selection_is_never_cut_by_the_limit(lexical: Index):
    """R1"""
    result = lexical.search("select:release-notes,delete_branch,list_issues", limit=1)

    assert names(result) == [
        "skills__release-notes",
        "github__delete_branch",
        "github__list_issues",
    ]


@pytest.mark.requirement("R44")
def test_a_selected_name_that_no_tool_has_is_reported_with_near_names(lexical: Index):
    """R44"""
    result = lexical.search("select:github__delete_brunch,jira__search,qqqqqqqq")

    assert names(result) == ["jira__search"]
    assert [missing.name for missing in result.missing] == ["github__delete_brunch", "qqqqqqqq"]
    assert result.missing[0].near[0] == "github__delete_branch"
    assert len(result.missing[0].near) <= 3
    assert result.missing[1] == Missing(name="qqqqqqqq", near=())


def test_selection_of_nothing_that_exists_gives_no_hits(lexical: Index):
    result = lexical.search("select:qqqqqqqq")

    assert (len(result), result.total, result.worth, result.best) == (0, 0, 0, ())
    assert [missing.name for missing in result.missing] == ["qqqqqqqq"]


def test_selection_neither_gives_nor_names_what_the_caller_may_not_see(lexical: Index):
    result = lexical.search(
        "select:search,github__delete_branch", allowed=lambda tool: tool.server != "github"
    )

    assert names(result) == ["jira__search"]
    assert [missing.name for missing in result.missing] == ["github__delete_branch"]
    assert not any(near.startswith("github") for near in result.missing[0].near)


# Bare names


@pytest.mark.requirement("R3")
@pytest.mark.parametrize(
    ("text", "first"),
    [
        ("github__delete_branch", "github__delete_branch"),
        ("GitHub__Delete_Branch", "github__delete_branch"),
        ("github.delete-branch", "github__delete_branch"),
        ("delete branch", "github__delete_branch"),
        ("DELETEBRANCH", "github__delete_branch"),
        ("jira create issue", "jira__createIssue"),
        ("mcp__jira__create_issue", "jira__createIssue"),
        ("release notes", "skills__release-notes"),
        ("new bug", "github__create_issue"),
    ],
)
def test_a_query_that_is_a_name_ranks_that_tool_first(index: Index, text: str, first: str):
    """R3"""
    result = index.search(text)

    assert result[0].tool.name == first
    assert (result[0].confidence, result[0].score) == (Confidence.EXACT, 1.0)
    assert result[0].why.shares == {"exact name": 1.0}


@pytest.mark.requirement("R3")
def test_all_tools_of_one_leaf_come_before_others(index: Index):
    """R3"""
    result = index.search("search")

    assert sorted(names(result)[:2]) == ["github__search", "jira__search"]
    assert [hit.confidence for hit in result[:2]] == [Confidence.EXACT] * 2
    assert all(hit.confidence is not Confidence.EXACT for hit in result[2:])


@pytest.mark.requirement("R3")
def test_exact_names_beyond_the_limit_are_cut(index: Index):
    """R3"""
    assert len(index.search("search", limit=1)) == 1


def test_an_exact_name_outside_the_filters_is_not_given(index: Index):
    assert names(index.search("github__search server:jira")) != []
    assert "github__search" not in names(index.search("github__search server:jira"))
    assert "github__search" not in names(index.search("github__search -code"))


@pytest.mark.requirement("R3")
def test_every_demo_tool_is_first_for_its_name_and_among_the_exact_for_its_leaf(demo: Index):
    """R3"""
    for tool in load_demo_catalog():
        assert demo.search(tool.name, limit=1)[0].tool == tool
        same_leaf = demo.search(tool.leaf, limit=50)
        assert tool in [hit.tool for hit in same_leaf if hit.confidence is Confidence.EXACT]


# Prefixes, filters, patterns


@pytest.mark.requirement("R4")
@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("jira__*", ["jira__createIssue", "jira__search"]),
        ("JIRA__", ["jira__createIssue", "jira__search"]),
        ("mcp__jira__", ["jira__createIssue", "jira__search"]),
        ("mcp__jira__*", ["jira__createIssue", "jira__search"]),
        ("create*", ["github__create_issue", "jira__createIssue"]),
        ("create* server:jira", ["jira__createIssue"]),
        ("github__* -issue", ["github__delete_branch", "github__search"]),
        ("gitlab__*", []),
    ],
)
def test_a_prefix_lists_names_in_order(index: Index, text: str, found: list[str]):
    """R4"""
    result = index.search(text)

    assert names(result) == found
    assert (result.total, result.worth) == (len(found), len(found))


@pytest.mark.requirement("R4")
def test_a_prefix_is_cut_to_the_limit_and_counts_what_was_cut(lexical: Index):
    """R4"""
    result = lexical.search("github__*", limit=2)

    assert names(result) == ["github__create_issue", "github__delete_branch"]
    assert result.total == 4


@pytest.mark.requirement("R5")
@pytest.mark.parametrize("text", ["issue server:jira", "server:JIRA issue", 'server:"jira" issue'])
def test_a_server_filter_binds_words(index: Index, text: str):
    """R5"""
    result = index.search(text)

    assert result[0].tool.name == "jira__createIssue"
    assert {hit.tool.server for hit in result} == {"jira"}


@pytest.mark.requirement("R5")
def test_several_servers_widen_the_filter(index: Index):
    """R5"""
    result = index.search("search server:jira,github")

    assert {hit.tool.server for hit in result} == {"jira", "github"}


@pytest.mark.requirement("R5")
@pytest.mark.parametrize(
    "text", ["issue server:githb", "server:githb", "select:search server:githb"]
)
def test_an_unknown_server_is_reported_with_near_names(lexical: Index, text: str):
    """R5"""
    with pytest.raises(UnknownServer) as caught:
        lexical.search(text)

    assert (caught.value.server, caught.value.near) == ("githb", ("github",))


def test_a_server_without_tools_is_unknown():
    catalog = sample()
    index = Index(catalog, encoder=None)
    catalog.remove("jira")

    with pytest.raises(UnknownServer):
        index.search("server:jira")


@pytest.mark.requirement("R26")
@pytest.mark.parametrize(
    ("text", "effects"),
    [
        ("issue effect:write", {Effect.WRITE}),
        ("repository effect:read,destructive", {Effect.READ, Effect.DESTRUCTIVE}),
        ("notes effect:unknown", {Effect.UNKNOWN}),
    ],
)
def test_an_effect_filter_binds(index: Index, text: str, effects: set[Effect]):
    """R26"""
    assert {hit.tool.effect for hit in index.search(text)} == effects


@pytest.mark.requirement("R26")
@pytest.mark.requirement("R27")
@pytest.mark.parametrize("text", ["issues kind:skill", "kind:SKILL", "release* kind:skill"])
def test_a_kind_filter_binds(index: Index, text: str):
    """R26, R27"""
    assert names(index.search(text)) == ["skills__release-notes"]


@pytest.mark.requirement("R27")
def test_a_skill_is_found_by_the_same_search(index: Index):
    """R27"""
    assert index.search("summarize what was closed for the release")[0].tool.kind == "skill"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("server:jira", ["jira__createIssue", "jira__search"]),
        ("effect:read", ["github__list_issues", "github__search", "jira__search"]),
        ("server:github effect:read", ["github__list_issues", "github__search"]),
        ("server:github -repository", ["github__search"]),
    ],
)
def test_filters_alone_list_by_name(index: Index, text: str, found: list[str]):
    assert names(index.search(text)) == found


def test_filters_alone_are_cut_to_the_limit(lexical: Index):
    result = lexical.search("server:github", limit=3)

    assert (len(result), result.total) == (3, 4)


@pytest.mark.requirement("R6")
@pytest.mark.parametrize(
    ("text", "found"),
    [
        (
            "issue +repository",
            {"github__create_issue", "github__list_issues", "github__delete_branch"},
        ),
        ("+repository +delete", {"github__delete_branch"}),
        ('anything +"branch repository"', {"github__delete_branch"}),
        ("report a defect +tickets", {"jira__createIssue", "jira__search"}),
        ("+repository -issue", {"github__delete_branch"}),
        ("github__* +repository -issue", {"github__delete_branch"}),
        ("github__ +tickets", set[str]()),
        ("issue +unheardof", set[str]()),
    ],
)
def test_required_terms_bind_words_and_vectors_alike(index: Index, text: str, found: set[str]):
    """R6"""
    assert set(names(index.search(text))) == found


@pytest.mark.requirement("R6")
def test_excluded_terms_bind_words_and_vectors_alike(index: Index):
    """R6"""
    listed = names(index.search("create an issue in a repository -branch -ticket"))

    assert listed[0] == "github__create_issue"
    assert not {"github__delete_branch", "jira__createIssue", "jira__search"} & {*listed}


@pytest.mark.requirement("R6")
@pytest.mark.parametrize(
    ("encoder", "approximate"), [(None, False), ("static", False), ("static", True)]
)
def test_a_required_term_finds_a_tool_that_hundreds_of_others_outrank(
    encoder: EncoderChoice, approximate: bool
):
    """R6: required terms narrow the catalogue before anything is ranked or cut."""
    text = "Create an issue in a repository."
    tools = [Tool.define(f"create_issue_{n}", server="s", description=text) for n in range(600)]
    tools.append(Tool.define("feed", server="s", description="At noon.", hint="wombat"))
    index = Index(Catalog({"s": tools}), encoder=encoder, approximate=approximate)

    result = index.search("create an issue in a repository +wombat", limit=3)

    assert names(result) == ["s__feed"]
    assert result.total == 1


@pytest.mark.requirement("R5")
@pytest.mark.parametrize("approximate", [False, True])
def test_a_server_filter_finds_a_tool_that_hundreds_of_others_outrank(approximate: bool):
    """R5"""
    text = "Create an issue in a repository."
    tools = [Tool.define(f"create_issue_{n}", server="s", description=text) for n in range(600)]
    feed = Tool.define("feed", server="zoo", description="Feeds the animals at noon.")
    index = Index(Catalog({"s": tools, "zoo": [feed]}), approximate=approximate)

    assert names(index.search("create an issue server:zoo", limit=3)) == ["zoo__feed"]


def test_an_excluded_term_that_nothing_has_excludes_nothing(lexical: Index):
    assert names(lexical.search("issue -unheardof")) == names(lexical.search("issue"))


@pytest.mark.requirement("R10")
@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("/^github__.*issue/", ["github__create_issue", "github__list_issues"]),
        (
            "/ISSUE/",
            [
                "github__create_issue",
                "github__list_issues",
                "jira__createIssue",
                "skills__release-notes",
            ],
        ),
        (
            "/^(create|search)/",
            ["github__create_issue", "github__search", "jira__createIssue", "jira__search"],
        ),
        ("/issue/ server:jira", ["jira__createIssue"]),
        ("server:jira /issue/", ["jira__createIssue"]),
        ("/qqq/", []),
    ],
)
def test_a_pattern_lists_matching_names_then_matching_descriptions(
    index: Index, text: str, found: list[str]
):
    """R10"""
    result = index.search(text)

    assert names(result) == found
    assert result.total == len(found)


@pytest.mark.requirement("R7")
@pytest.mark.parametrize("text", ["create an issue", "select:search,delete_branch", "jira__*"])
def test_discover_finds_the_same_and_asks_not_to_load(index: Index, text: str):
    """R7"""
    plain, discovered = index.search(text), index.search(f"discover:{text}")

    assert (plain.query.load, discovered.query.load) == (True, False)
    assert discovered.hits == plain.hits


def test_a_query_may_be_given_taken_apart(index: Index):
    result = index.search(Query(text="issue", words="issue", servers=("jira",)))

    assert names(result) == names(index.search("issue server:jira"))


@pytest.mark.requirement("R9")
@pytest.mark.parametrize("text", ["", "   ", "?!", "select:", "+", "discover:", "effect:purple"])
def test_a_query_of_nothing_is_refused_with_the_forms_to_use(index: Index, text: str):
    """R9"""
    with pytest.raises(InvalidQuery) as caught:
        index.search(text)

    assert caught.value.remedy


@pytest.mark.parametrize("limit", [0, -1])
def test_a_limit_below_one_is_a_mistake_of_the_program(lexical: Index, limit: int):
    with pytest.raises(UsageError):
        lexical.search("issue", limit=limit)


def test_several_queries_are_answered_in_their_order(index: Index):
    queries = ["create an issue", Query(text="", select=("search",)), "jira__*"]
    results = index.search_many(queries, 3, allowed=lambda tool: tool.leaf != "delete_branch")

    assert results == [
        index.search(query, 3, allowed=lambda tool: tool.leaf != "delete_branch")
        for query in queries
    ]


def test_several_queries_with_an_unreadable_one_are_refused(lexical: Index):
    with pytest.raises(InvalidQuery):
        lexical.search_many(["issue", "?"])


@pytest.mark.parametrize(
    "text",
    ["create an issue", "search", "select:search", "/e/", "github__*", "effect:read", "+issue"],
)
def test_a_tool_that_is_not_allowed_leaves_no_trace(index: Index, text: str):
    result = index.search(text, allowed=lambda tool: tool.server == "jira")

    assert {hit.tool.server for hit in result} <= {"jira"}
    assert result.total <= 2


def test_a_caller_who_may_see_nothing_finds_nothing(index: Index):
    result = index.search("create an issue", allowed=lambda tool: False)

    assert (len(result), result.total, result.worth) == (0, 0, 0)


# What is searched

ODD_WORDS = {
    "name": "aardvark",
    "server": "bandicoot",
    "description": "capybara",
    "parameter": "dingo",
    "nested parameter": "echidna",
    "item": "fossa",
    "parameter description": "gerbil",
    "enum": "hyrax",
    "hint": "ibex",
    "title": "jackal",
    "alias": "kinkajou",
    "tag": "lemur",
}


def odd_catalog() -> Catalog:
    schema = {
        "type": "object",
        "properties": {
            "dingo": {
                "type": "object",
                "description": "The gerbil to feed.",
                "properties": {
                    "echidna": {
                        "type": "array",
                        "items": {"type": "object", "properties": {"fossa": {"type": "string"}}},
                    }
                },
            },
            "mode": {"type": "string", "enum": ["hyrax", "other"]},
        },
    }
    odd = Tool.define(
        "aardvark",
        server="bandicoot",
        title="Jackal",
        description="Feeds a capybara.",
        input_schema=schema,
        hint="ibex",
        aliases=["kinkajou house"],
        tags=["lemur"],
    )
    plain = [
        Tool.define(leaf, server="plain", description=f"Does {leaf} for files.")
        for leaf in ("copy", "move", "paste")
    ]
    return Catalog({"bandicoot": [odd], "plain": plain})


@pytest.mark.requirement("R21")
@pytest.mark.requirement("R22")
@pytest.mark.requirement("R23")
@pytest.mark.requirement("R24")
@pytest.mark.parametrize("part", ODD_WORDS)
def test_every_part_of_a_tool_is_searched(part: str):
    """R21, R22, R23, R24"""
    index = Index(odd_catalog(), encoder=None)
    result = index.search(ODD_WORDS[part])

    assert names(result) == ["bandicoot__aardvark"]
    assert result.total == 1


@pytest.mark.requirement("R23")
def test_with_vectors_every_part_of_a_tool_still_ranks_it_first():
    """R23"""
    index = Index(odd_catalog())

    assert {index.search(word)[0].tool.name for word in ODD_WORDS.values()} == {
        "bandicoot__aardvark"
    }


def test_tools_without_a_word_in_any_name_are_found_by_their_descriptions():
    tools = [
        Tool.define("!!!", server="s", description="Opens an issue."),
        Tool.define("\U0001f998", server="s", description="Feeds a wombat."),
    ]
    index = Index(Catalog({"s": tools}))

    assert index.search("feed the wombat")[0].tool.leaf == "\U0001f998"
    assert index.search("create an issue")[0].tool.leaf == "!!!"


@pytest.mark.requirement("R24")
@pytest.mark.parametrize("encoder", [None, "static"])
def test_the_search_hint_that_a_server_sends_ranks_its_tool_first(encoder: EncoderChoice):
    """R24"""
    plain = {"name": "run", "description": "Runs a job.", "inputSchema": {"type": "object"}}
    hinted = {**plain, "name": "start", "_meta": {"anthropic/searchHint": "kubernetes rollout"}}
    near = {**plain, "name": "begin", "description": "Runs a job in a rollout."}
    index = Index(Catalog({"s": [plain, near, hinted]}), encoder=encoder)

    assert names(index.search("kubernetes rollout"))[0] == "s__start"


@pytest.mark.requirement("R29")
def test_words_and_meaning_each_bring_a_tool_to_the_top():
    """R29"""
    # The encoder knows no runes, so only words tell these tools apart.
    runes = [chr(0x16A0 + number) for number in range(20)]
    tools = [
        Tool.define("mow", server="s", description="Cuts the grass in the garden."),
        *(
            Tool.define(f"pay_{n}", server="s", description=f"Pays the bill of {rune}.")
            for n, rune in enumerate(runes)
        ),
    ]
    index = Index(Catalog({"s": tools}))

    assert names(index.search("trim my lawn"))[0] == "s__mow"
    assert names(index.search(f"pay my bill of {runes[13]}"))[0] == "s__pay_13"


@pytest.mark.requirement("R36")
@pytest.mark.parametrize("encoder", [None, "static"])
def test_few_tools_of_a_large_catalogue_are_judged_closely(encoder: EncoderChoice):
    """R36"""
    tools = [
        Tool.define(f"send_{n}", server="s", description=f"Sends message {n}.")
        for n in range(2_000)
    ]
    index = Index(Catalog({"s": tools}), encoder=encoder)

    judged, _, _ = index.collect_evidence("send a message")
    assert len(judged) == CANDIDATES
    assert index.search("send a message").total == 2_000


@pytest.mark.requirement("R36")
def test_few_vectors_of_a_large_catalogue_are_compared_in_all_dimensions(
    monkeypatch: pytest.MonkeyPatch,
):
    """R36"""
    compared: list[int] = []

    def count(self: Similarities, places: NDArray[np.int64]) -> Floats:
        compared.append(len(places))
        return compare(self, places)

    compare = Similarities.compare
    monkeypatch.setattr(Similarities, "compare", count)
    tools = [
        Tool.define(f"send_{n}", server="s", description=f"Sends message {n}.")
        for n in range(2_000)
    ]

    Index(Catalog({"s": tools})).search("send a message")

    assert compared == [ROUGH_CANDIDATES]


@pytest.mark.requirement("R22")
def test_the_end_of_a_long_description_is_searched():
    """R22"""
    long = Tool.define("a", server="s", description=f"{'plain words ' * 3_000} wombat")
    index = Index(
        Catalog({"s": [long, Tool.define("b", server="s", description="plain")]}), encoder=None
    )

    assert names(index.search("wombat")) == ["s__a"]


@pytest.mark.requirement("R25")
def test_a_summary_does_not_remove_the_description_from_the_index():
    """R25"""
    tool = Tool.define("a", server="s", description="Feeds wombats.", summary="Feeds.")
    index = Index(Catalog({"s": [tool]}), encoder=None)

    assert names(index.search("wombat")) == ["s__a"]


def found_among(text: str, query: str) -> bool:
    """Tell whether a tool described by a text is the only one that a query of words finds."""
    tools = [
        Tool.define("wanted", server="s", description=text),
        Tool.define("plain", server="s", description="Feeds the animals at noon."),
    ]
    return names(Index(Catalog({"s": tools}), encoder=None).search(query)) == ["s__wanted"]


@pytest.mark.requirement("R13")
@pytest.mark.requirement("R14")
@pytest.mark.requirement("R15")
@pytest.mark.requirement("R16")
@pytest.mark.requirement("R17")
@pytest.mark.requirement("R18")
@pytest.mark.requirement("R19")
@pytest.mark.parametrize(
    ("text", "query"),
    [
        ("Lists repositories.", "repository"),
        ("Makes a repository.", "making repositories"),
        ("Reads pullRequests.", "pull request"),
        ("Reads pull requests.", "pullRequest"),
        ("Talks to an HTTPServer.", "http server"),
        ("Reads utf8 text.", "utf 8"),
        ("Reads the café menu.", "CAFE"),
        ("Reads the cafe menu.", "café"),
        ("Sends to Straße 5.", "STRASSE"),
        ("Reads the \uff46\uff55\uff4c\uff4c width.", "full"),
        ("发送电子邮件给同事", "邮件"),
        ("カレンダーの予定を検索する", "予定"),
        ("날씨를 알려줍니다", "날씨"),
        ("天", "天"),
        ("Compiles C++ sources.", "c++"),
        ("Compiles C# sources.", "C#"),
        ("Builds .NET projects.", ".net"),
        ("Отправляет письмо.", "ПИСЬМО"),
        ("Plots x against y.", "y"),
    ],
)
def test_spellings_of_one_word_meet(text: str, query: str):
    """R13, R14, R15, R16, R17, R18, R19"""
    assert found_among(text, query)


@pytest.mark.requirement("R6")
def test_a_required_emoji_alone_finds_the_tools_that_have_it():
    """R6"""
    assert found_among("🦘 hops.", "+🦘")


@pytest.mark.requirement("R18")
@pytest.mark.parametrize(("query", "other"), [("c++", "c#"), ("c#", "c"), (".net", "net")])
def test_symbols_distinguish_languages(query: str, other: str):
    """R18"""
    assert not found_among(f"Compiles {query} sources.", other)


@pytest.mark.requirement("R14")
@pytest.mark.parametrize(
    ("leaf", "query"),
    [
        ("web_search", "websearch"),
        ("websearch", "web search"),
        ("webSearch", "websearches"),
        ("get_pull_request", "pullrequest"),
        ("get_pull_request", "getpullrequests please"),
        ("web_search", "search"),
        ("getPullRequest", "pulls"),
        ("oauth2Token", "oauth2token"),
        ("oauth2Token", "token"),
    ],
)
def test_words_of_a_name_meet_whether_joined_or_apart(leaf: str, query: str):
    """R14"""
    tools = [Tool.define(leaf, server="s"), Tool.define("other", server="s")]
    index = Index(Catalog({"s": tools}), encoder=None)

    assert names(index.search(f"{query} quickly")) == [f"s__{leaf}"]


@pytest.mark.requirement("R20")
def test_stop_words_count_only_when_there_is_nothing_else():
    """R20"""
    tools = [
        Tool.define("one", server="s", description="What is on."),
        Tool.define("two", server="s", description="Feeds wombats."),
    ]
    index = Index(Catalog({"s": tools}), encoder=None)

    assert names(index.search("what is the wombat on")) == ["s__two"]
    assert names(index.search("what is on")) == ["s__one"]


@pytest.mark.requirement("R8")
def test_no_single_word_has_to_match(index: Index):
    """R8"""
    result = index.search("kindly delete some old branch nobody ever looks at")

    assert result[0].tool.name == "github__delete_branch"


@pytest.mark.requirement("R32")
@pytest.mark.parametrize("with_vectors", [False, True])
def test_a_name_inside_another_word_is_no_match(with_vectors: bool):
    """R32"""
    catalog = load_demo_catalog()
    catalog.replace("disk", [Tool.define("read", server="disk", description="Gets a file.")])
    index = Index(catalog) if with_vectors else Index(catalog, encoder=None)
    found = {hit.tool.name: hit for hit in index.search("thread dump", limit=200)}

    assert "disk__read" not in found or with_vectors
    assert "disk__read" not in found or found["disk__read"].confidence is Confidence.WEAK


# Small catalogues, ties


@pytest.mark.parametrize("with_vectors", [False, True])
@pytest.mark.parametrize("text", ["issue", "issue +open", "a*", "/a/", "effect:read", "select:a"])
def test_an_empty_catalogue_gives_nothing(text: str, with_vectors: bool):
    catalog = Catalog()
    index = Index(catalog) if with_vectors else Index(catalog, encoder=None)
    result = index.search(text)

    assert (len(index), len(result), result.total, result.worth) == (0, 0, 0, 0)
    assert result.best == ()


@pytest.mark.requirement("R28")
@pytest.mark.parametrize("with_vectors", [False, True])
def test_a_catalogue_of_one_tool_gives_sensible_scores(with_vectors: bool):
    """R28"""
    tool = Tool.define("create_issue", server="github", description="Open an issue.")
    catalog = Catalog({"github": [tool]})
    index = Index(catalog) if with_vectors else Index(catalog, encoder=None)
    good, bad = index.search("open a new issue"), index.search("banana split recipe")

    assert names(good) == ["github__create_issue"]
    assert 0 < good[0].score <= 1
    assert all(hit.score < good[0].score for hit in bad)


@pytest.mark.requirement("R33")
@pytest.mark.parametrize("with_vectors", [False, True])
def test_equal_scores_go_by_name_whatever_came_first(with_vectors: bool):
    """R33"""
    servers = [f"s{number}" for number in range(12)]
    catalogs = [Catalog(), Catalog()]
    for catalog, order in zip(catalogs, (servers, servers[::-1]), strict=True):
        for server in order:
            # The server is in no text, so that nothing but the name tells the tools apart.
            tool = Tool(name=f"{server}__mow", leaf="mow", description="Cuts the grass.")
            catalog.replace("", [*(t for t in catalog), tool])
    found = [
        Index(catalog) if with_vectors else Index(catalog, encoder=None) for catalog in catalogs
    ]
    first, second = (answers(index, ["cut grass", "mow"]) for index in found)

    assert first == second
    assert [name for name, _ in first[0]] == sorted(f"{server}__mow" for server in servers)[:10]
    assert len({score for _, score in first[0]}) == 1


@pytest.mark.requirement("R30")
@pytest.mark.parametrize("servers", [("", "mcp", "zz"), ("", "_", "--")])
def test_origin_gives_no_points(servers: tuple[str, ...]):
    """R30"""
    text = "Cuts the grass."
    tools = {s: [Tool.define("mow", server=s, description=text)] for s in servers}
    result = Index(Catalog(tools), encoder=None).search("cut grass")

    assert len(result) == len(servers)
    assert len({hit.score for hit in result}) == 1


@pytest.mark.requirement("R30")
def test_origin_gives_no_points_by_meaning_either():
    """R30"""
    # Servers without a word in their names: an encoder sees the same text for all three tools.
    tools = {s: [Tool.define("mow", server=s, description="Cuts grass.")] for s in ("", "_", "--")}
    index = Index(Catalog(tools))

    for query in ("cut grass", "trim the lawn"):
        result = index.search(query)
        assert len(result) == len(tools)
        assert len({hit.score for hit in result}) == 1


# Scores and confidence


@pytest.mark.requirement("R34")
def test_scores_fall_from_hit_to_hit_and_the_best_are_the_first(demo: Index):
    """R34"""
    for query in DEMO_QUERIES:
        result = demo.search(query, limit=20)
        scores = [hit.score for hit in result]

        assert scores == sorted(scores, reverse=True)
        assert all(0 <= score <= 1 for score in scores)
        assert 1 <= result.worth <= len(result) <= min(20, result.total)
        assert result.best == result.hits[: result.worth]


@pytest.mark.requirement("R34")
def test_confidence_never_rises_from_hit_to_hit(demo: Index):
    """R34"""
    ranks = list(Confidence)
    for query in DEMO_QUERIES:
        found = [ranks.index(hit.confidence) for hit in demo.search(query, limit=20)]

        assert found == sorted(found)


@pytest.mark.requirement("R31")
def test_words_alone_find_nothing_that_shares_no_word(lexical: Index):
    """R31"""
    assert names(lexical.search("zebra quilting pattern")) == []


def test_a_longer_limit_only_adds_hits(demo: Index):
    for query in DEMO_QUERIES:
        assert demo.search(query, limit=20).hits[:5] == demo.search(query, limit=5).hits


def test_a_result_reads_as_a_sequence_of_hits(lexical: Index):
    result = lexical.search("create an issue")

    assert isinstance(result, Result)
    assert list(result) == list(result.hits)
    assert result[0] is result.hits[0] and result[-1] is result.hits[-1]
    assert result[0] in result


DEMO_QUERIES = (
    "open an issue",
    "what is the weather tomorrow",
    "send an email to the team with the report attached",
    "list the pods of a namespace and then restart the deployment",
    "refund a payment",
    "play some music",
    "search the web",
    "read a file",
    "turn off the lights in the kitchen",
    "find documents about onboarding",
    "schedule a meeting next friday",
    "customer tickets",
    "run a sql query",
    "errors since the last release",
    "distance between two addresses",
    "upload an object to a bucket",
    "post a message in a channel",
    "create",
    "github",
    "export frames as png",
)


# Typing errors


@pytest.mark.requirement("R32")
def test_a_slip_is_read_as_the_word_of_a_name_when_nothing_matches_well():
    """R32"""
    index = Index(load_demo_catalog(), encoder=None)
    result = index.search("forcast")

    assert dict(result.corrected) == {"forcast": "forecast"}
    assert result[0].tool.name == "weather__get-forecast"


@pytest.mark.requirement("R32")
def test_with_vectors_a_slip_is_forgiven_too(demo: Index):
    """R32"""
    result = demo.search("forcast")

    assert dict(result.corrected) == {"forcast": "forecast"}
    assert result[0].tool.name == "weather__get-forecast"


@pytest.mark.requirement("R32")
@pytest.mark.parametrize("text", ["forecast", "get-forecast", "foo", "qqqqqqq", "forcast*"])
def test_a_word_that_is_known_or_like_no_other_is_left_alone(demo: Index, text: str):
    """R32"""
    assert demo.search(text).corrected == {}


@pytest.mark.requirement("R32")
def test_a_word_of_a_removed_tool_corrects_nothing():
    """R32"""
    catalog = load_demo_catalog()
    index = Index(catalog, encoder=None)
    catalog.remove("weather")

    assert "forecast" not in index.search("forcast").corrected.values()


# Explanations


@pytest.mark.requirement("R34")
def test_an_explanation_lists_the_matched_words_by_field():
    """R34"""
    index = Index(odd_catalog(), encoder=None)
    query = "aardvarks bandicoot capybara dingo gerbils hyrax ibex kinkajou jackal numbat"
    why = index.search(query)[0].why

    assert why.matched == {
        "name": ("aardvarks",),
        "server": ("bandicoot",),
        "description": ("capybara",),
        "parameters": ("dingo", "gerbils"),
        "values": ("hyrax",),
        "hint": ("ibex",),
        "title and tags": ("kinkajou", "jackal"),
    }
    assert any("numbat" in sentence for sentence in why.held_back)
    assert not any("gerbils" in sentence for sentence in why.held_back)


@pytest.mark.requirement("R34")
def test_the_shares_of_every_explanation_add_up_to_one(demo: Index):
    """R34"""
    for query in DEMO_QUERIES:
        for hit in demo.search(query, limit=20):
            shares = hit.why.shares

            assert all(0 <= share <= 1 for share in shares.values())
            assert sum(shares.values()) == pytest.approx(1) or not any(shares.values())


def test_the_explanation_of_a_worse_tool_says_that_others_fit_better(index: Index):
    result = index.search("delete an old branch of a repository")

    assert not any("better" in sentence for sentence in result[0].why.held_back)
    assert any("better" in sentence for sentence in result[-1].why.held_back)


def test_the_explanation_of_a_tool_without_description_says_so():
    index = Index(Catalog({"s": [Tool.define("mow", server="s")]}), encoder=None)

    assert "It has no description." in index.explain("mow grass", "s__mow").held_back


def test_any_tool_can_be_explained_found_or_not(index: Index):
    query = "delete a branch"
    for hit in index.search(query, limit=20):
        assert index.explain(query, hit.tool.name).matched == hit.why.matched
    why = index.explain(query, "jira__search")

    assert why.matched == {}
    assert any("delete, branch" in sentence for sentence in why.held_back)


def test_an_explanation_of_one_found_says_what_its_hit_says(demo: Index):
    for query in ("open an issue", "what is the weather tomorrow"):
        for hit in demo.search(query):
            why = demo.explain(query, hit.tool.name)

            assert (why.matched, why.held_back) == (hit.why.matched, hit.why.held_back)
            assert why.shares == pytest.approx(hit.why.shares)


def test_filters_do_not_hide_a_tool_from_its_explanation(index: Index):
    why = index.explain("issue +ticket server:jira", "github__list_issues")

    assert why.matched["name"] == ("issue",)


def test_a_name_to_explain_that_no_tool_has_is_reported_with_near_names(lexical: Index):
    with pytest.raises(UsageError, match="github__delete_branch"):
        lexical.explain("branch", "github__delete_brunch")


# In step with the catalogue


@pytest.mark.parametrize("with_vectors", [False, True])
def test_the_index_follows_the_catalogue(with_vectors: bool):
    catalog = Catalog()
    index = Index(catalog) if with_vectors else Index(catalog, encoder=None)
    tool = Tool.define("feed", server="zoo", description="Feeds the wombats.")
    other = Tool.define("wash", server="zoo", description="Washes the numbats.")

    catalog.replace("zoo", [tool])
    assert names(index.search("wombats")) == ["zoo__feed"]
    catalog.add("zoo", [other])
    assert index.search("numbats")[0].tool == other
    assert len(index) == 2
    changed = replace(tool, description="Feeds the quokkas.")
    catalog.add("zoo", [changed])
    assert index.search("quokka")[0].tool == changed
    assert index.explain("wombat", "zoo__feed").matched == {}
    catalog.replace("zoo", [other])
    assert names(index.search("feed")) != ["zoo__feed"]
    assert names(index.search("select:zoo__feed,zoo__wash")) == ["zoo__wash"]
    catalog.remove("zoo")
    assert names(index.search("wash numbats")) == []
    assert len(index) == 0


def test_one_changed_word_changes_only_answers_about_it():
    catalog = sample()
    index = Index(catalog, encoder=None, hints=None)
    tool = catalog.get("jira__search")
    assert tool is not None
    catalog.add("jira", [replace(tool, description="Search epics.")])

    assert names(index.search("epic")) == ["jira__search"]
    assert names(index.search("ticket")) == ["jira__createIssue"]
    assert len(index) == len(catalog)


def test_a_closed_index_no_longer_follows():
    catalog = sample()
    index = Index(catalog, encoder=None)
    before = answers(index, ["create an issue", "github__search", "search", "github__*"])
    index.close()
    index.close()
    catalog.replace("github", [Tool.define("wombat", server="github")])
    catalog.remove("jira")

    assert names(index.search("wombat")) == []
    assert answers(index, ["create an issue", "github__search", "search", "github__*"]) == before


def test_two_indexes_follow_one_catalogue():
    catalog = sample()
    first, second = Index(catalog, encoder=None), Index(catalog, encoder=None)
    first.close()
    catalog.add("github", [Tool.define("wombat", server="github")])

    assert names(first.search("wombat")) == []
    assert names(second.search("wombat")) == ["github__wombat"]


class Counted:
    """Vectors out of letters, which remember the texts they were asked for."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def __call__(self, texts: Sequence[str]) -> list[list[float]]:
        self.texts += texts
        return [[1.0 + text.count(letter) for letter in "aeinorst"] for text in texts]


@pytest.mark.requirement("R35")
def test_an_encoder_sees_the_text_of_each_tool_once():
    """R35"""
    counted = Counted()
    catalog = sample()
    github = [tool for tool in catalog if tool.server == "github"]
    index = Index(catalog, encoder=CallableEncoder(counted, name="letters"), hints=None)
    assert len(counted.texts) == len(set(counted.texts)) == len(catalog)

    catalog.remove("github")
    catalog.replace("github", github)
    catalog.replace("github", github[:2])
    catalog.replace("github", github)
    assert len(counted.texts) == len(catalog) == len(index)

    catalog.add("github", [replace(github[0], description="Something else.")])
    assert len(counted.texts) == len(catalog) + 1
    assert "Something else." in counted.texts[-1]


def test_an_index_forgets_vectors_of_replaced_descriptions(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(build, "SPARE_VECTORS", 3)
    counted = Counted()
    catalog = Catalog()
    _index = Index(catalog, encoder=CallableEncoder(counted, name="letters"))

    def reword(draft: int) -> int:
        tool = Tool.define("write", server="notes", description=f"Writes draft {draft}.")
        catalog.replace("notes", [tool])
        return len(counted.texts)

    encoded = [reword(draft) for draft in range(20)]

    assert encoded == list(range(1, 21))
    assert reword(18) == 20  # servers come back: what was removed last is still known
    assert reword(0) == 21


@pytest.mark.parametrize("encoder", ["static", None])
def test_an_index_forgets_the_words_of_old_wordings(
    monkeypatch: pytest.MonkeyPatch, encoder: EncoderChoice
):
    monkeypatch.setattr(build, "SPARE_TERMS", 20)
    catalog = sample()
    index = Index(catalog, encoder=encoder)
    before = index.search("open an issue")

    def reword(draft: int) -> tuple[int, int]:
        word = f"{draft:04}".translate(str.maketrans("0123456789", "bcdfghjklm"))
        text = f"Keeps {word}pages for {word}readers."
        catalog.replace("notes", [Tool.define(f"write_{word}", server="notes", description=text)])
        state = index._state  # pyright: ignore[reportPrivateUsage]  # how much it holds
        return len(state.vocabulary), len(state.words)

    sizes = [reword(draft) for draft in range(60)]

    fresh = Index(catalog, encoder=encoder)
    terms, words = (len(listed) for listed in (fresh._state.vocabulary, fresh._state.words))  # pyright: ignore[reportPrivateUsage]
    assert max(size for size, _ in sizes) <= terms + 30
    assert max(size for _, size in sizes) <= words + 30
    for query in ("open an issue", "write bbhkpages", "list channels", "select:notes__write_bbhk"):
        assert index.search(query) == fresh.search(query)
    catalog.remove("notes")
    assert index.search("open an issue") == before


@pytest.mark.requirement("R35")
def test_what_an_encoder_does_not_see_costs_no_vector():
    """R35"""
    counted = Counted()
    catalog = sample()
    _index = Index(catalog, encoder=CallableEncoder(counted, name="letters"))
    seen = len(counted.texts)
    tool = catalog.get("jira__search")
    assert tool is not None
    catalog.add("jira", [replace(tool, effect=Effect.WRITE, summary="Other.")])

    assert len(counted.texts) == seen


def test_an_index_names_its_encoder():
    encoder = CallableEncoder(Counted(), name="letters")

    assert Index(Catalog(), encoder=encoder).encoder is encoder
    assert Index(Catalog(), encoder=None).encoder is None


VERBS = ("open", "close", "list", "merge", "send", "draw", "count")
THINGS = ("issue", "invoice", "picture", "route", "message", "ticket", "song", "file", "meter")
STEP_QUERIES = (
    *(f"{verb} the {thing}" for verb, thing in zip(VERBS, THINGS, strict=False)),
    *("list", "invoice", "service 17", "songs and then merge tickets", "server17 +draw"),
    *("count messages -service", "draw*", "/draw.*(song|file)/", "server:server42"),
    *("select:server9__merge_route", "mergeroute", "tell me about pictures", "opne the issue"),
)


def many_servers(count: int) -> dict[str, list[Tool]]:
    def tool(server: int, place: int) -> Tool:
        verb = VERBS[(server + 3 * place) % len(VERBS)]
        thing = THINGS[(server * 2 + place) % len(THINGS)]
        return Tool.define(
            f"{verb}_{thing}",
            server=f"server{server}",
            description=f"{verb.title()} any {thing} of service {server * 7 % 31}.",
            input_schema={"properties": {f"{thing}_id": {"description": f"Which {thing}."}}},
        )

    return {f"server{s}": [tool(s, place) for place in range(3)] for s in range(count)}


@pytest.mark.requirement("R33")
@pytest.mark.requirement("R35")
@pytest.mark.parametrize("with_vectors", [False, True])
def test_servers_added_one_by_one_answer_as_if_built_at_once_and_leave_no_trace(
    with_vectors: bool,
):
    """R33, R35"""

    def made(catalog: Catalog) -> Index:
        return Index(catalog) if with_vectors else Index(catalog, encoder=None)

    servers = list(many_servers(200).items())
    catalog = Catalog(dict(servers[:60]))
    index = made(catalog)
    before = answers(index, STEP_QUERIES)
    for server, tools in servers[60:]:
        catalog.replace(server, tools)
    grown = answers(index, STEP_QUERIES)
    fresh = answers(made(catalog), STEP_QUERIES)
    for server, _ in reversed(servers[60:]):
        catalog.remove(server)
    after = answers(index, STEP_QUERIES)

    assert grown == fresh
    assert grown != before
    assert after == before


@pytest.mark.requirement("R35")
def test_answers_match_a_fresh_index_after_every_kind_of_change():
    """R35"""
    servers = many_servers(30)
    catalog = Catalog(servers)
    index = Index(catalog)
    for number in range(0, 30, 3):
        server = f"server{number}"
        tools = servers[server]
        catalog.replace(server, [replace(tools[0], description="Counts songs."), *tools[1:]])
        catalog.remove(f"server{number + 1}", [servers[f"server{number + 1}"][0].name])
        catalog.remove(f"server{number + 2}")

        assert answers(index, STEP_QUERIES[:8]) == answers(Index(catalog), STEP_QUERIES[:8])


@pytest.mark.requirement("R35")
def test_a_few_tools_added_to_many_rank_as_if_built_with_them():
    """R35"""
    catalog = Catalog(many_servers(340))
    index = Index(catalog)
    zoo = [("feed_wombats_and_count_every_song_again", "Feeds."), ("songs", "Sings to wombats.")]
    catalog.add("zoo", [Tool.define(leaf, server="zoo", description=d) for leaf, d in zoo])
    fresh = Index(catalog)

    for query in ("feed wombats", "count the songs of wombats", *STEP_QUERIES[:4]):
        (tools, found, _), (others, wanted, _) = (
            index.collect_evidence(query),
            fresh.collect_evidence(query),
        )
        judged = dict(zip((tool.name for tool in tools), found.tolist(), strict=True))
        assert judged == dict(zip((tool.name for tool in others), wanted.tolist(), strict=True))


# Approximate search


@pytest.mark.requirement("R36")
def test_an_approximate_index_finds_the_same_best_tools(demo: Index):
    """R36"""
    pytest.importorskip("usearch")
    index = Index(load_demo_catalog(), approximate=True)

    for query in (*DEMO_QUERIES, "github__create_issue", "+issue", "create server:jira"):
        assert names(index.search(query, limit=1)) == names(demo.search(query, limit=1))


def test_an_approximate_index_follows_the_catalogue_and_keeps_to_filters():
    pytest.importorskip("usearch")
    catalog = load_demo_catalog()
    index = Index(catalog, approximate=True)
    catalog.remove("weather")
    catalog.add("zoo", [Tool.define("feed", server="zoo", description="Feeds the wombats.")])
    found = index.search("what is the weather tomorrow", allowed=lambda t: t.server != "maps")

    assert not {"weather", "maps"} & {hit.tool.server for hit in found}
    assert index.search("feed wombats")[0].tool.name == "zoo__feed"
    assert {hit.tool.server for hit in index.search("open an issue server:jira")} == {"jira"}


@pytest.mark.requirement("R77")
def test_a_server_that_a_caller_may_not_see_is_unknown_and_never_named_as_near():
    """R77"""
    index = Index(load_demo_catalog(), encoder=None)

    def not_slack(tool: Tool) -> bool:
        return tool.server != "slack"

    for asked in ("slack", "slac"):
        with pytest.raises(UnknownServer) as caught:
            index.search(f"server:{asked} message", allowed=not_slack)

        assert "slack" not in caught.value.near


def test_a_filter_is_answered_in_full_by_an_approximate_index():
    pytest.importorskip("usearch")
    catalog = load_demo_catalog()
    exact, approximate = Index(catalog), Index(catalog, approximate=True)

    query = "server:figma what will the sky be like tomorrow"

    assert [(h.tool.name, h.score) for h in approximate.search(query)] == [
        (h.tool.name, h.score) for h in exact.search(query)
    ]


def test_more_tools_are_judged_where_more_are_wanted():
    tools = [Tool.define(f"send_mail_{number}", server="post") for number in range(600)]
    index = Index(Catalog({"post": tools}), encoder=None)

    assert len(index.search("send mail", limit=40)) == 40
    assert len(index.search("send mail", limit=90)) == 90


def test_a_few_tools_that_a_filter_leaves_are_compared_as_if_they_were_all():
    few = [Tool.define(f"paint_{number}", server="few", description="Hue.") for number in range(9)]
    few.append(Tool.define("repair", server="few", description="Mends a broken engine."))
    many = [Tool.define(f"paint_{number}", server="many") for number in range(700)]
    index = Index(Catalog({"few": few, "many": many}))

    hits = index.search("server:few fix the motor")

    assert hits[0].tool.name == "few__repair"


@pytest.mark.parametrize("encoder", [None, "static"])
@pytest.mark.parametrize(
    ("query", "first"),
    [("summarise https://example.org/a", "web__fetch"), ("move a.txt to b.txt", "disk__move")],
)
def test_an_address_or_a_file_name_finds_the_tool_that_takes_one(
    query: str, first: str, encoder: EncoderChoice
):
    catalog = Catalog(
        {
            "web": [Tool.define("fetch", server="web", description="Get the contents of a URL.")],
            "disk": [Tool.define("move", server="disk", description="Move or rename a file.")],
            "sheets": [Tool.define("move", server="sheets", description="Move a sheet.")],
            "news": [Tool.define("list", server="news", description="List headlines.")],
        }
    )

    assert Index(catalog, encoder=encoder).search(query)[0].tool.name == first
