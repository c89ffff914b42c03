"""What the description of `tool_search` says about the tools that are hidden."""

import json
import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hostile import Tools, is_safe, tool_lists
from toolscout import Catalog, Policy, Scout, Session, Settings, Tool
from toolscout.demo import load_demo_catalog
from toolscout.dialects import Dialect
from toolscout.sessions.prompt import ListedView, render_changes, render_listing
from toolscout.tokens import count_tokens

CLIENT_CHARS = 2_048
"""How much of a description Claude Code passes on."""
NAMES_HEAD = "Some of their names, to be written server__name:"


def tool(leaf: str, server: str = "files", description: str = "", **options: Any) -> Tool:
    return Tool.define(leaf, server=server, description=description, **options)


def render(tools: list[Tool], budget: int, **options: Any) -> str:
    return render_listing(ListedView(tools=tuple(tools), budget=budget, **options))


def read_description(session: Session, dialect: str = "mcp") -> str:
    definition = session.tools(dialect)[0]
    return definition.get("function", definition)["description"]


def list_servers(text: str) -> list[str]:
    """Return the servers of a listing, without those of the names below."""
    lines = text.partition(NAMES_HEAD)[0].splitlines()
    return [line[2:].partition(":")[0].partition(" (")[0] for line in lines if line[:2] == "- "]


# What it says.


@pytest.mark.parametrize("dialect", [*Dialect])
@pytest.mark.requirement("R97")
def test_a_model_reads_what_exists_in_the_description_of_tool_search(dialect: Dialect):
    """R97"""
    session = Scout(load_demo_catalog()).session("a")

    told = read_description(session, dialect)

    assert "\n- github (20): issue, pull, branch, file\n" in told
    assert "\n- web_search: fetch_page, search_" in told
    assert "Hidden tools" not in session.system_prompt()


@pytest.mark.requirement("R97")
def test_a_small_catalogue_is_listed_by_servers_and_names():
    """R97"""
    tools = [
        tool("ls"),
        tool("read", description="Read a text file. Slowly."),
        tool("now", "clock"),
    ]

    assert render(tools, 200) == (
        "Hidden tools, by server:\n- clock (1): now\n- files (2): text\n"
        "Some of their names, to be written server__name:\n- clock: now\n- files: ls, read"
    )


def test_a_summary_replaces_the_words_that_tools_have_in_common():
    catalog = Catalog()
    catalog.replace("gh", [tool("create_issue", "gh")], summary="Our <b>repositories</b>.\nAll.")

    listing = Scout(catalog).session("a").get_listing()

    assert "\n- gh (1): Our \u2039b\u203arepositories\u2039/b\u203a. All\n" in listing


def test_servers_whose_tools_are_not_known_yet_are_named():
    catalog = load_demo_catalog()
    catalog.set_pending("late", summary="Trains")
    catalog.set_failed("broken", "it ended")
    catalog.replace("empty", [])

    listing = Scout(catalog).session("a").get_listing()

    assert "\n- late: Trains\n" in listing
    assert "\n- broken\n" in listing
    assert "empty" not in listing


def test_resources_and_prompts_are_neither_counted_nor_named():
    """They come and go with a server's data, and the listing must not."""
    tools = [tool("read"), tool("page", kind="resource"), tool("ask", "mail", kind="prompt")]

    assert render(tools, 100).partition(NAMES_HEAD)[0] == (
        "Hidden tools, by server:\n- files (1)\n- mail\n"
    )
    assert "page" not in render(tools, 100)


def test_tools_of_no_server_are_those_of_this_program():
    listing = render([tool("read_mail", ""), tool("send_mail", "")], 100)

    assert "\n- this program (2): mail\n" in listing
    assert listing.endswith("\n- this program: read_mail, send_mail")


def test_of_a_large_server_names_from_the_whole_range_are_shown():
    tools = [tool(f"operation_{number:04}", "cloud") for number in range(3_000)]

    names = render(tools, 200).splitlines()[-1].partition(": ")[2].split(", ")

    assert names[0] == "operation_0000"
    assert names[-1] == "…"
    assert names[-2] > "operation_2500"
    assert len(names) > 5


def test_pinned_tools_are_not_listed_again():
    session = Scout(load_demo_catalog(), settings=Settings(pins=("github",))).session("a")

    assert "github" not in session.get_listing()


# How long it is.


@pytest.mark.requirement("R97")
def test_26_servers_take_at_most_900_tokens_and_all_come_before_a_client_cuts():
    """R97: Claude Code passes on 2,048 characters of a description."""
    session = Scout(load_demo_catalog()).session("a")

    assert count_tokens(session.get_listing()) <= 900
    assert list_servers(read_description(session)[:CLIENT_CHARS]) == sorted(
        load_demo_catalog().servers
    )


@pytest.mark.requirement("R97")
def test_thousands_of_servers_take_at_most_1500_tokens_and_say_how_many_are_left_out():
    """R97: the largest are named."""
    tools = [tool(f"t{n}", f"server{s:04}") for s in range(2_237) for n in range(1 + s % 20)]

    listing = Scout(Catalog(by_server(tools)), encoder=None).session("a").get_listing()

    named = list_servers(listing)[:-1]
    sizes = {f"server{s:04}": 1 + s % 20 for s in range(2_237)}
    rest = sum(size for server, size in sizes.items() if server not in named)
    assert count_tokens(listing) <= 1_500
    assert min(map(sizes.__getitem__, named)) >= 19
    assert len(named) > 100
    assert named == sorted(named)
    assert listing.endswith(f"- and {2_237 - len(named):,} more servers with {rest:,} tools")


def by_server(tools: list[Tool]) -> dict[str, list[Tool]]:
    groups: dict[str, list[Tool]] = {}
    for one in tools:
        groups.setdefault(one.server, []).append(one)
    return groups


@pytest.mark.requirement("R97")
def test_without_room_for_words_servers_are_only_counted_and_then_the_largest_named():
    """R97"""
    tools = [tool(f"paint_{n}", f"server{s:02}") for s in range(30) for n in range(s + 1)]

    assert list_servers(render(tools, 220)) == [f"server{s:02}" for s in range(30)]
    assert "- server00 (1)\n" in render(tools, 220)
    assert "- server29 (30): paint" in render(tools, 220)
    assert render(tools, 44).splitlines()[1:] == [
        "- server27 (28)",
        "- server28 (29)",
        "- server29 (30)",
        "- and 27 more servers with 378 tools",
    ]


def test_a_small_context_window_has_a_small_listing():
    small = Settings(context_window=5_000)

    listing = Scout(load_demo_catalog(), settings=small).session("a").get_listing()

    assert 200 < count_tokens(listing) <= 250


def test_nothing_is_listed_where_there_is_no_tool_or_no_room():
    assert render([], 1_000) == ""
    assert render([tool("read")], 3) == ""


@pytest.mark.parametrize(("chosen", "has_names"), [("servers", False), ("names", True)])
def test_names_can_be_left_out(chosen: str, has_names: bool):
    scout = Scout(load_demo_catalog(), settings=Settings.from_mapping({"listing": chosen}))

    listing = scout.session("a").get_listing()

    assert len(list_servers(listing)) == 26
    assert ("export_images" in listing) is has_names


def test_the_listing_can_be_off():
    session = Scout(
        load_demo_catalog(), settings=Settings.from_mapping({"listing": "off"})
    ).session("a")

    assert "github" not in json.dumps([session.tools("mcp"), session.system_prompt(listing=True)])


@given(tool_lists(), st.sampled_from((0, 1, 10, 20, 50, 200, 4_000)))
@settings(max_examples=80)
def test_a_listing_fits_any_budget_and_holds_no_markup(tools: Tools, budget: int):
    told = render([*tools], budget)

    assert count_tokens(told) <= budget
    assert all(line.startswith(("Hidden", "Some of", "- ")) for line in told.splitlines())
    assert is_safe(told)


# Whom it is for.


def test_only_what_a_session_may_see_is_listed():
    catalog = load_demo_catalog()
    catalog.set_pending("payroll")
    catalog.set_pending("public_late")
    policy = Policy(allowed=lambda tool: tool.server.startswith(("git", "public")))

    session = Scout(catalog, policy=policy).session("a")

    assert list_servers(session.get_listing()) == ["github", "public_late"]


def test_a_policy_that_fails_for_unknown_tools_hides_servers_without_tools():
    effects = {tool.name: tool.effect for tool in load_demo_catalog()}
    catalog = load_demo_catalog()
    catalog.set_pending("late")

    session = Scout(catalog, policy=Policy(allowed=lambda tool: bool(effects[tool.name]))).session(
        "a"
    )

    assert "late" not in list_servers(session.get_listing())
    assert "github" in list_servers(session.get_listing())


# When it changes.


@pytest.mark.requirement("R98")
def test_equal_catalogues_give_equal_bytes_whatever_their_order():
    """R98"""
    groups = list(by_server(list(load_demo_catalog())).items())
    shuffled = random.Random(7).sample(groups, len(groups))

    first, second = (Scout(Catalog(dict(g)), encoder=None).session("a") for g in (groups, shuffled))

    assert first.tools("openai-chat") == second.tools("openai-chat")


@pytest.mark.requirement("R98")
def test_where_conversations_share_a_session_the_listing_changes_with_the_tools_alone():
    """R98: not with searches, loaded tools, or servers that fail and come back."""
    catalog = load_demo_catalog()
    session = Scout(catalog, settings=Settings(shared=True)).session("a")
    before = session.tools("mcp")

    session.search("create an issue")
    session.describe("slack__post_message")
    catalog.set_failed("github", "it ended")
    catalog.set_pending("github")
    catalog.replace("github", [t for t in catalog if t.server == "github"])
    unchanged = session.tools("mcp")
    catalog.replace("trains", [tool("book_seat", "trains")])

    assert unchanged == before
    assert "\n- trains (1): book, seat\n" in session.get_listing()
    assert session.to_json()["listing"] is None


def test_changes_name_what_came_and_what_went():
    added = [tool(f"t{number:02}", "new <one>") for number in range(22)]

    told = render_changes(added, ["b", "a"])

    assert told.startswith("New hidden tools of new \u2039one\u203a: ")
    assert told.endswith(" and 2 more. Tools that are gone: a, b.")
    assert render_changes([], []) == ""
