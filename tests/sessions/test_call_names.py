"""Which tool a name means: one answer for search, description, gate and call."""

import pytest

from toolscout import Catalog, Policy, Scout, Session, Tool
from toolscout.schemas import Json

NAMES = ["github__create_issue", "github.create_issue", "mcp__github__create_issue", "open_ticket"]


def done(_: Tool, __: Json) -> str:
    return "done"


def session_of(catalog: Catalog, policy: Policy | None = None) -> Session:
    return Scout(catalog, policy=policy, executors=done).session("s")


def catalog_of(*names: str) -> Catalog:
    catalog = Catalog()
    for name in names:
        server, leaf = name.split("__")
        aliases = ["open_ticket"] if server == "github" else []
        tool = Tool.define(leaf, server=server, description=f"Do {leaf}.", aliases=aliases)
        catalog.add(server, [tool])
    return catalog


@pytest.mark.requirement("R2")
@pytest.mark.parametrize("name", NAMES)
def test_selection_description_and_call_take_a_tool_by_each_of_its_names(name: str):
    """R2"""
    catalog = catalog_of("github__create_issue", "jira__create_task")
    selected = session_of(catalog).search(f"select:{name}").references
    described = session_of(catalog).describe(name).references
    session = session_of(catalog)
    session.search("select:github__create_issue")

    assert selected == described == ("github__create_issue",)
    assert session.call_sync(name).code == "ok"


def test_a_short_name_that_several_tools_have_is_answered_with_all_of_them():
    session = session_of(catalog_of("github__close", "gitlab__close", "jira__wait"))

    reply = session.call_sync("close")

    assert reply.code == "ambiguous_tool"
    assert reply.text == (
        "Not called: 'close' could mean github__close, gitlab__close. Use one of these names."
    )


def test_a_short_name_means_the_one_that_is_loaded():
    session = session_of(catalog_of("github__close", "gitlab__close", "jira__wait"))
    session.search("select:gitlab__close")

    assert session.call_sync("close").details["tool"] == "gitlab__close"


def test_a_short_name_never_means_a_tool_that_is_switched_off():
    policy = Policy(disabled={"gitlab__*": "moved away"})
    session = session_of(catalog_of("github__close", "gitlab__close", "jira__wait"), policy)

    assert session.describe("close").references == ("github__close",)


def test_a_short_name_never_means_a_tool_that_the_caller_may_not_see():
    policy = Policy(allowed=lambda tool: tool.server != "gitlab")
    session = session_of(catalog_of("github__close", "gitlab__close", "jira__wait"), policy)

    assert session.describe("close").references == ("github__close",)


@pytest.mark.requirement("R77")
def test_near_names_are_those_that_the_caller_may_see():
    """R77"""
    policy = Policy(allowed=lambda tool: tool.server != "gitlab")
    session = session_of(catalog_of("github__close", "gitlab__close", "jira__wait"), policy)

    reply = session.call_sync("gitlab__closes")

    assert reply.text == "Not called: there is no tool 'gitlab__closes'. Near: github__close."


@pytest.mark.parametrize("name", ["", "   ", "\x00", "🦆" * 400, "a\n<b>"])
def test_a_name_that_is_none_is_unknown_and_is_quoted_on_one_short_line(name: str):
    reply = session_of(catalog_of("github__close", "jira__wait")).call_sync(name)

    assert reply.code == "unknown_tool"
    assert len(reply.text.splitlines()) == 1
    assert len(reply.text) < 200
    assert "<" not in reply.text
