"""Which tools pins and routes mean."""

import pytest

from toolscout import Settings, Tool
from toolscout.errors import InvalidConfig
from toolscout.sessions.pins import (
    find_meant,
    find_pinned,
    find_routed,
    has_keyword,
    list_near_targets,
)
from toolscout.settings import Route

TOOLS = [
    Tool.define("create_issue", server="github"),
    Tool.define("list_issues", server="github"),
    Tool.define("list_projects", server="gitlab"),
    Tool.define("send", server="slack"),
    Tool.define("bash"),
    Tool.define("bash", server="remote"),
]

SHELL_LEAVES = ["bash", "shell", "terminal", "run_command"]
FILE_LEAVES = ["read", "read_file", "write", "write_file", "edit", "edit_file", "glob", "grep"]
FILE_AND_SHELL = [*SHELL_LEAVES, *FILE_LEAVES, "list_dir", "ls"]


def names(tools: list[Tool]) -> list[str]:
    return [tool.name for tool in tools]


def as_given(tools: list[Tool]) -> list[Tool]:
    return tools


def routes_of(message: str, **routes: Route) -> list[str]:
    return names(find_routed(message, TOOLS, Settings(routes=routes), as_given))


@pytest.mark.parametrize(
    ("target", "meant"),
    [
        ("github__create_issue", ["github__create_issue"]),
        ("GitHub.create-issue", ["github__create_issue"]),
        ("create_issue", ["github__create_issue"]),
        ("github", ["github__create_issue", "github__list_issues"]),
        ("git*", ["github__create_issue", "github__list_issues", "gitlab__list_projects"]),
        ("*__list_*", ["github__list_issues", "gitlab__list_projects"]),
        ("git", []),
        ("nothing*", []),
    ],
)
@pytest.mark.requirement("R58")
def test_a_target_is_a_name_a_server_or_a_pattern(target: str, meant: list[str]):
    """R58"""
    assert names(find_meant(target, TOOLS)) == meant


@pytest.mark.requirement("R89")
def test_a_server_is_pinned_as_a_whole():
    """R89"""
    found, unknown = find_pinned(TOOLS, Settings(pins=("github",)))

    assert names(found) == ["bash", "github__create_issue", "github__list_issues"]
    assert unknown == []


@pytest.mark.requirement("R58")
def test_pins_that_match_nothing_are_reported_once_each():
    """R58"""
    found, unknown = find_pinned(TOOLS, Settings(pins=("slak", "send")), ["slak", "x*"])

    assert "slack__send" in names(found)
    assert unknown == ["slak", "x*"]
    assert list_near_targets("slak", TOOLS) == ["slack"]


@pytest.mark.requirement("R90")
@pytest.mark.parametrize("leaf", FILE_AND_SHELL)
def test_file_and_shell_tools_of_the_host_are_pinned_by_default(leaf: str):
    """R90"""
    own = Tool.define(leaf)
    alike = Tool.define(f"{leaf}_history")
    remote = Tool.define(leaf, server="remote")

    found, unknown = find_pinned([own, alike, remote], Settings())

    assert found == [own]
    assert unknown == []


@pytest.mark.requirement("R90")
def test_the_host_chooses_other_core_tools_or_none():
    """R90: a server's tool of the same name is not the host's."""
    assert names(find_pinned(TOOLS, Settings())[0]) == ["bash"]
    assert names(find_pinned(TOOLS, Settings(essential=("send",)))[0]) == []
    assert names(find_pinned(TOOLS, Settings(essential=()))[0]) == []
    assert names(find_pinned([Tool.define("my_shell")], Settings(essential=("my_shell",)))[0]) == [
        "my_shell"
    ]


@pytest.mark.requirement("R91")
def test_what_the_hosts_own_rule_does_not_hide_is_pinned():
    """R91"""
    settings = Settings(essential=(), hide=lambda tool: tool.server != "slack")

    assert names(find_pinned(TOOLS, settings)[0]) == ["slack__send"]


@pytest.mark.parametrize(
    ("text", "keyword", "is_mentioned"),
    [
        ("open a pr please", "PR", True),
        ("approach it", "pr", False),
        ("the spr", "pr", False),
        ("pr", "pr", True),
        ("pr2", "pr", False),
        ("(pr)", "pr", True),
        ("my_pr_list", "pr", True),
        ("a pull request", " Pull Request ", True),
        ("naïve", "na", False),
        ("用github查", "github", True),
        ("发邮件给她", "邮件", True),
        ("what is c++?", "c++", True),
        ("a.b", "a*b", False),
    ],
)
@pytest.mark.requirement("R101")
def test_a_keyword_is_mentioned_as_a_word_of_its_own(text: str, keyword: str, is_mentioned: bool):
    """R101"""
    assert has_keyword(text, keyword) is is_mentioned


@pytest.mark.requirement("R101")
def test_routes_go_by_priority_then_by_name_and_can_be_off():
    """R101"""
    found = routes_of(
        "Deploy it",
        gitlab=Route(keywords=("deploy",)),
        create_issue=Route(keywords=("deploy",)),
        slack=Route(keywords=("DEPLOY",), priority=100),
        bash=Route(keywords=("deploy",), priority=100, prefer=False),
        remote=Route(keywords=("other",)),
    )

    assert found == ["slack__send", "github__create_issue", "gitlab__list_projects"]


@pytest.mark.requirement("R101")
def test_the_best_tools_of_a_routed_server_come_first():
    """R101"""
    settings = Settings(routes={"github": Route(keywords=("ticket",))}, routed=1)

    found = find_routed("a ticket", TOOLS, settings, lambda tools: tools[::-1])

    assert names(found) == ["github__list_issues"]


@pytest.mark.requirement("R103")
def test_one_message_routes_at_most_three_tools_or_as_many_as_set():
    """R103: from one to five."""
    every = Route(keywords=("all",))

    assert len(routes_of("all of it", github=every, gitlab=every, slack=every)) == 3
    assert len(find_routed("all", TOOLS, Settings(routes={"*": every}, routed=5), as_given)) == 5
    for wrong in ({"routed": 0}, {"routed": 6}, {"suggestions": 0}, {"suggestions": 6}):
        with pytest.raises(InvalidConfig):
            Settings.from_mapping(wrong)


@pytest.mark.parametrize("priority", [-1, 101, 1.5, True])
@pytest.mark.requirement("R101")
def test_a_priority_goes_from_0_to_100(priority: int):
    """R101"""
    with pytest.raises(InvalidConfig, match="from 0 to 100"):
        Route(keywords=("a",), priority=priority)
