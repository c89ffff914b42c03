"""Required and excluded terms: joined and split spellings of a word are the same word."""

import pytest

from toolscout import Catalog, Index, Tool
from toolscout.search.index import EncoderChoice

BRANDS = {
    "github": ("GitHub", "github", "git hub", "Git-Hub", "GITHUB", "git_hub"),
    "javascript": ("JavaScript", "javascript", "java script", "Java-Script", "Javascript"),
    "youtube": ("YouTube", "youtube", "Youtube"),
    "linkedin": ("LinkedIn", "linkedin"),
    "postgresql": ("PostgreSQL", "postgresql", "POSTGRESQL"),
    "openai": ("OpenAI", "openai", "open ai"),
    "dynamodb": ("DynamoDB", "dynamodb", "dynamo db"),
}
FIELDS = ("name", "title", "description", "parameter", "values", "server", "hint", "alias", "tag")


def define(field: str, spelling: str) -> Tool:
    """Return a tool that has a brand in one field only."""
    text = {name: spelling if name == field else "" for name in FIELDS}
    key = text["parameter"] or "other"
    parameter = {"description": "Something.", "enum": [text["values"] or "one"]}
    return Tool.define(
        text["name"] or "act",
        server=text["server"] or "plain",
        title=text["title"],
        description=f"Do it with {text['description']} today.",
        input_schema={"properties": {key: parameter}},
        hint=text["hint"],
        aliases=[text["alias"]],
        tags=[text["tag"]],
    )


def is_admitted(tool: Tool, query: str) -> bool:
    return bool(Index(Catalog({tool.server: [tool]}), encoder=None).search(query).hits)


@pytest.mark.parametrize("brand", BRANDS)
def test_every_spelling_of_a_required_word_admits_every_spelling_in_a_tool(brand: str):
    tools = [define("description", spelling) for spelling in BRANDS[brand]]
    missed = [
        (asked, tool.description)
        for asked in (brand, BRANDS[brand][0], brand.upper())
        for tool in tools
        if not is_admitted(tool, f"+{asked} act") or is_admitted(tool, f"act -{asked}")
    ]

    assert missed == []


@pytest.mark.parametrize("field", FIELDS)
@pytest.mark.parametrize("spelling", ["GitHub", "github", "git_hub"])
def test_a_required_word_is_looked_for_in_every_field(field: str, spelling: str):
    tool = define(field, spelling)

    assert is_admitted(tool, "+github act")
    assert is_admitted(tool, "+GitHub act")
    assert not is_admitted(tool, "act -github")


@pytest.mark.parametrize(
    ("term", "text"),
    [
        ("github", "A git server is a hub of code."),
        ("invoice", "Record in voice and text."),
        ("database", "Store data in a base."),
        ("GitHub", "The hub has git."),
        ("art", "Write an article."),
        ("github", "Ask githubber."),
    ],
)
def test_words_that_only_share_letters_are_not_the_same(term: str, text: str):
    tool = Tool.define("act", server="plain", description=text)

    assert not is_admitted(tool, f"+{term} act")
    assert is_admitted(tool, f"act -{term}")


def test_a_required_word_in_capitals_still_ranks_and_restricts_by_meaning():
    catalog = Catalog(
        {
            "a": [Tool.define("open_ticket", server="a", description="File a bug on GitHub.")],
            "b": [Tool.define("create_issue", server="b", description="Create an issue.")],
        }
    )

    assert [hit.tool.server for hit in Index(catalog).search("create issue +github")] == ["a"]
    assert [hit.tool.server for hit in Index(catalog).search("create issue -GitHub")] == ["b"]


def test_a_version_is_one_word_too():
    tool = Tool.define("act", server="plain", description="Stores files in S3.")
    other = Tool.define("act", server="plain", description="It's one of 3.")

    assert is_admitted(tool, "+s3 act")
    assert not is_admitted(other, "+s3 act")


def find_names(catalog: Catalog, query: str, encoder: EncoderChoice = None) -> set[str]:
    return {hit.tool.name for hit in Index(catalog, encoder=encoder).search(query)}


ARTICLES = Tool.define("list_articles", server="local", description="Say what git did.")
ART = Tool.define("show", server="museum", description="Show a work of art.")
HOSTS = Catalog(
    {
        "github": [Tool.define("create_issue", server="github", description="Open an issue.")],
        "my-gitlab.mcp": [Tool.define("add_issue", server="my-gitlab.mcp")],
        "digits": [Tool.define("count_issues", server="digits")],
        "local": [ARTICLES],
    }
)


@pytest.mark.parametrize("encoder", [None, "static"])
@pytest.mark.parametrize("term", ["git", "Git", "GIT"])
def test_a_required_word_may_begin_a_word_of_the_servers_name(term: str, encoder: EncoderChoice):
    found = find_names(HOSTS, f"issue +{term}", encoder)

    assert found == {"github__create_issue", "my-gitlab_mcp__add_issue", "local__list_articles"}


def test_an_excluded_word_leaves_out_only_tools_that_have_all_of_it():
    assert find_names(HOSTS, "issue -git") == {
        "github__create_issue",
        "my-gitlab_mcp__add_issue",
        "digits__count_issues",
    }


def test_a_required_word_begins_a_word_of_a_tools_own_name_if_it_finds_nothing_else():
    both = Catalog({"museum": [ART], "local": [ARTICLES]})

    assert find_names(HOSTS, "list +art") == {"local__list_articles"}
    assert find_names(both, "list +art") == {"museum__show"}


def test_a_hidden_tool_that_has_the_word_does_not_keep_its_beginning_from_counting():
    both = Catalog({"museum": [ART], "local": [ARTICLES]})
    found = Index(both).search("list +art", allowed=lambda tool: tool.server == "local")

    assert [hit.tool.name for hit in found] == ["local__list_articles"]


@pytest.mark.parametrize("term", ["gi", "g"])
def test_one_or_two_letters_are_no_beginning(term: str):
    assert find_names(HOSTS, f"issue +{term}") == set()
