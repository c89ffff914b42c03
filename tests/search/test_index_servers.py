"""Queries that name a server, alone or together with one of its tools."""

from collections.abc import Iterable

import pytest

from toolscout import Catalog, Index, Scout, Tool
from toolscout.demo import load_demo_catalog
from toolscout.search.hits import Confidence, Hit


def names(hits: Iterable[Hit]) -> list[str]:
    return [hit.tool.name for hit in hits]


def define(server: str, **descriptions: str) -> list[Tool]:
    return [
        Tool.define(leaf, server=server, description=text) for leaf, text in descriptions.items()
    ]


def build(*servers: list[Tool]) -> Catalog:
    return Catalog({tools[0].server: tools for tools in servers})


CLOCKS = build(
    define("time", convert="Convert between zones.", now="Say how late it is."),
    define("billing", track_time="Track time on a task.", list_invoices="List invoices."),
    define("time_travel", leap="Go to another time."),
)
PAPERS = build(
    define("arxiv", search_papers="Find preprints.", download_paper="Download a preprint."),
    define("pubmed", search_papers="Search papers on medicine.", search="Search arXiv and more."),
    define("web", search_arxiv="Search arXiv for papers.", search_papers_arxiv_new="New papers."),
)


@pytest.fixture(scope="module")
def demo() -> Index:
    return Index(load_demo_catalog())


def test_the_name_of_any_demo_server_lists_its_tools(demo: Index):
    servers = sorted({tool.server for tool in load_demo_catalog().tools})

    for server in servers:
        named = demo.search(server, limit=20)
        listed = demo.search(f"server:{server}", limit=20)

        assert names(named)[: len(listed)] == names(listed), server
        assert {hit.confidence for hit in named[: len(listed)]} == {Confidence.EXACT}


@pytest.mark.parametrize(
    "text",
    [
        "google_drive",
        "Google Drive",
        "GOOGLE-DRIVE",
        "googledrive",
        "mcp__google_drive",
        "mcp__google_drive__",
        "google_drive/",
        "google drive tools",
        "the Google Drive MCP server",
    ],
)
def test_a_server_is_named_in_any_spelling(demo: Index, text: str):
    listed = demo.search("server:google_drive", limit=20)

    assert names(demo.search(text, limit=20))[: len(listed)] == names(listed)


def test_the_words_mcp_and_server_in_a_servers_own_name_need_not_be_typed():
    catalog = build(
        define("acme-mcp-server", find="Find a thing."), define("other", acme="Buy from acme.")
    )

    assert names(Index(catalog).search("acme tools"))[0] == "acme-mcp-server__find"


@pytest.mark.parametrize("encoder", ["static", None])
def test_the_server_comes_before_other_servers_that_use_its_name_as_a_word(encoder: str | None):
    index = Index(CLOCKS, encoder="static" if encoder else None)

    assert names(index.search("time"))[:2] == ["time__convert", "time__now"]


def test_a_server_that_the_caller_may_not_see_is_not_listed():
    result = Index(CLOCKS).search("time", allowed=lambda tool: tool.server != "time")

    assert {hit.tool.server for hit in result} <= {"billing", "time_travel"}
    assert all(hit.confidence is not Confidence.EXACT for hit in result)


def test_a_tool_of_that_name_still_comes_first():
    catalog = build(
        define("fetch", page="Get a page.", any="Get all."), define("x", fetch="Fetch.")
    )

    assert names(Index(catalog).search("fetch"))[:3] == ["x__fetch", "fetch__any", "fetch__page"]


def test_the_name_of_a_server_loads_what_a_list_of_it_loads():
    by_name = Scout(load_demo_catalog()).session("a")
    by_filter = Scout(load_demo_catalog()).session("b")

    reply = by_name.search("Slack")
    listed = by_filter.search("server:slack")

    assert reply.text == listed.text.replace("server:slack", "Slack")
    assert by_name.loaded == by_filter.loaded != ()
    assert reply.details["form"] == "filter"
    assert "7 more match" in reply.text


@pytest.mark.parametrize(
    "text",
    ["search arxiv papers", "papers arxiv search", "search papers on arXiv", "arxiv paper search"],
)
@pytest.mark.parametrize("encoder", ["static", None])
def test_server_and_tool_name_in_any_order_find_the_tool_first(text: str, encoder: str | None):
    index = Index(PAPERS, encoder="static" if encoder else None)

    first = index.search(text)[0]

    assert (first.tool.name, first.confidence) == ("arxiv__search_papers", Confidence.EXACT)


def test_every_demo_tool_is_first_for_its_words_in_another_order(demo: Index):
    missed: list[str] = []
    for tool in load_demo_catalog().tools:
        text = f"{tool.leaf} {tool.server}"
        if demo.search(text, limit=1)[0].tool != tool:
            missed.append(text)

    assert missed == []


@pytest.mark.parametrize("server", ["github", "GitHub"])
@pytest.mark.parametrize("text", ["create GitHub issue", "create github issue"])
def test_a_server_and_a_query_may_write_the_name_in_different_case(server: str, text: str):
    catalog = build(
        define(server, create_issue="Open a ticket."),
        define("other", create_github_issue_comment="Comment on a GitHub issue."),
    )

    first = Index(catalog).search(text)[0]

    assert (first.tool.server, first.confidence) == (server, Confidence.EXACT)
