"""What most tools of a server say in the same words is not searched."""

from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from toolscout import Catalog, Index, Tool

ERRORS = "Error Responses:\n400: Bad request"
NOTION = {
    "get_user": "Notion | Retrieve a user",
    "list_users": "Notion | List all users",
    "get_page": "Notion | Retrieve a page",
    "search": "Notion | Search by title",
}
QUERY = "are there any javascript errors on the page"


def define_notion(ending: str = ERRORS) -> list[Tool]:
    return [
        Tool.define(leaf, server="notion", description=f"{text}\n{ending}".strip())
        for leaf, text in NOTION.items()
    ]


def find_names(index: Index, query: str) -> set[str]:
    return {hit.tool.leaf for hit in index.search(query)}


def list_scores(index: Index, query: str) -> list[tuple[str, float]]:
    return [(hit.tool.name, hit.score) for hit in index.search(query)]


def test_a_line_that_most_tools_of_a_server_share_finds_none_of_them():
    browser = Tool.define("console", server="browser", description="Return JavaScript errors.")
    index = Index(Catalog({"notion": define_notion(), "browser": [browser]}), encoder=None)

    assert find_names(index, "errors") == {"console"}
    assert find_names(index, "bad request 400") == set()
    assert find_names(index, QUERY) == {"console", "get_page"}
    assert find_names(index, "+error") == {"console"}


def test_a_shared_line_does_not_change_the_meaning_of_a_tool():
    bare = Index(Catalog({"notion": define_notion("")}))
    full = Index(Catalog({"notion": define_notion()}))

    assert list_scores(full, QUERY) == list_scores(bare, QUERY)


def test_what_the_model_reads_keeps_the_shared_lines():
    index = Index(Catalog({"notion": define_notion()}))

    assert ERRORS in index.search("list users")[0].tool.description


@pytest.mark.parametrize("spelling", ["only admins  may do this.", "ONLY ADMINS MAY DO THIS."])
def test_case_and_blanks_make_no_other_sentence(spelling: str):
    tools = define_notion("Only admins may do this.")
    tools[0] = Tool.define("get_user", server="notion", description=f"Get one. {spelling}")

    assert find_names(Index(Catalog({"notion": tools}), encoder=None), "admins") == set()


def test_words_inside_different_sentences_still_count():
    tools = [
        Tool.define(f"do_{word}", server="wiki", description=f"Do {word} in the team workspace.")
        for word in ("one", "two", "three", "four", "five")
    ]

    assert len(Index(Catalog({"wiki": tools}), encoder=None).search("workspace")) == 5


def test_a_line_of_few_tools_still_counts():
    few = define_notion()[:3]
    half = [*few, *(Tool.define(f"x{n}", server="notion", description="No.") for n in range(3))]

    for tools in (few, half):
        assert len(Index(Catalog({"notion": tools}), encoder=None).search("errors")) == 3


def test_tools_that_say_nothing_else_keep_their_description():
    tools = [Tool.define(f"t{n}", server="s", description="Book a flight.") for n in range(5)]

    assert len(Index(Catalog({"s": tools}), encoder=None).search("flight")) == 5


def test_the_tools_of_a_server_are_judged_again_when_others_come_and_go():
    tools = define_notion()
    catalog = Catalog({"notion": tools[:3]})
    index = Index(catalog, encoder=None)
    assert len(index.search("errors")) == 3

    catalog.add("notion", [tools[3]])
    assert len(index.search("errors")) == 0

    catalog.remove("notion", ["search"])
    assert len(index.search("errors")) == 3


def test_a_file_that_was_saved_before_a_line_was_shared_is_not_reused_for_it(tmp_path: Path):
    file = tmp_path / "tools.index"
    Index(Catalog({"notion": define_notion()[:3]})).save(file)
    whole = Catalog({"notion": define_notion()})

    for query in ("errors", "list users"):
        assert list_scores(Index.load(file, whole), query) == list_scores(Index(whole), query)


LINES = ("Error Responses:", "Only admins may do this.", "Reads a page.", "Lists all users.")
DESCRIPTIONS = st.lists(st.sampled_from(LINES), max_size=3).map("\n".join)


@settings(max_examples=60)
@given(st.lists(st.tuples(st.sampled_from("ab"), DESCRIPTIONS), max_size=14), st.randoms())
def test_the_order_in_which_tools_come_and_go_makes_no_difference(
    rows: list[tuple[str, str]], chance: Random
):
    tools = [
        Tool.define(f"tool_{number}", server=server, description=text)
        for number, (server, text) in enumerate(rows)
    ]
    gone = [Tool.define(f"old_{n}", server="a", description="\n".join(LINES)) for n in range(4)]
    changes = [(tool, True) for tool in (*tools, *gone)]
    chance.shuffle(changes)
    for tool in gone:
        begin = changes.index((tool, True))
        changes.insert(chance.randint(begin + 1, len(changes)), (tool, False))
    catalog = Catalog()
    index = Index(catalog, encoder=None)
    for tool, is_added in changes:
        if is_added:
            catalog.add(tool.server, [tool])
        else:
            catalog.remove(tool.server, [tool.name])
    again = Index(catalog, encoder=None)

    for query in ("error responses", "admins", "read a page", "list users"):
        assert list_scores(index, query) == list_scores(again, query)
