import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hostile import Tools, is_safe, tool_lists
from toolscout.demo import load_demo_catalog
from toolscout.sessions.prompt import render_changes, render_listing
from toolscout.tokens import count_tokens
from toolscout.tools import Tool


def tool(leaf: str, server: str = "files", description: str = "") -> Tool:
    return Tool.define(leaf, server=server, description=description)


@pytest.mark.requirement("R97")
def test_a_small_catalogue_is_listed_by_names_and_sentences():
    """R97"""
    told = render_listing([tool("read", description="Read a file. Slowly."), tool("ls")], 100)

    assert told == (
        "Hidden tools, by server:\n- files:\n  - files__ls\n  - files__read: Read a file."
    )


@pytest.mark.requirement("R97")
def test_servers_fall_back_to_names_and_then_to_counts():
    """R97: small servers keep their names longest."""
    few = [tool(leaf, "disk", "Do what is told " * 5) for leaf in ("read", "write")]
    many = [tool(f"operation_{number}", "cloud") for number in range(200)]

    assert render_listing([*few, *many], 40) == (
        "Hidden tools, by server:\n- cloud: 200\n- disk: disk__read, disk__write"
    )


@pytest.mark.requirement("R97")
def test_servers_that_do_not_even_fit_as_counts_are_counted_together():
    """R97"""
    tools = [tool(f"t{n}", f"server{s}") for s in range(30) for n in range(s + 1)]

    assert render_listing(tools, 40) == (
        "Hidden tools, by server:\n- server27: 28\n- server28: 29\n- server29: 30\n"
        "- and 27 more servers with 378 tools"
    )


def test_nothing_is_listed_where_there_is_no_tool_or_no_room():
    assert render_listing([], 1_000) == ""
    assert render_listing([tool("read")], 3) == ""


@given(tool_lists(), st.sampled_from((0, 1, 10, 20, 50, 200, 4_000)))
@settings(max_examples=80)
def test_a_listing_fits_any_budget_and_holds_no_markup(tools: Tools, budget: int):
    told = render_listing(tools, budget)

    assert count_tokens(told) <= budget
    assert all(line.startswith(("Hidden", "- ", "  - ")) for line in told.splitlines())
    assert is_safe(told)


@pytest.mark.requirement("R98")
def test_equal_catalogues_give_equal_bytes_whatever_their_order():
    """R98"""
    tools = list(load_demo_catalog())
    shuffled = random.Random(7).sample(tools, len(tools))

    for budget in (0, 50, 300, 4_000):
        assert render_listing(tools, budget) == render_listing(shuffled, budget)


def test_the_load_demo_catalogue_has_room_for_names_in_the_usual_budget():
    told = render_listing(load_demo_catalog(), 4_000)

    assert count_tokens(told) <= 4_000
    assert told.count("github__") == 20
    servers = [line[2:].partition(":")[0] for line in told.splitlines() if line.startswith("- ")]
    assert servers == sorted(servers) and len(servers) == 26


def test_a_server_without_a_name_is_this_program():
    assert render_listing([tool("read", "")], 100).splitlines()[1] == "- this program:"


def test_changes_name_what_came_and_what_went():
    added = [tool(f"t{number:02}", "new <one>") for number in range(22)]

    told = render_changes(added, ["b", "a"])

    assert told.startswith("New hidden tools of new \u2039one\u203a: ")
    assert told.endswith(" and 2 more. Tools that are gone: a, b.")
    assert render_changes([], []) == ""
