import logging
import threading
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolscout.catalog import Availability, Catalog, Change, Status
from toolscout.errors import DuplicateTool, InvalidTool, UsageError
from toolscout.scout import Scout
from toolscout.tools import Tool


def tool(leaf: str, description: str = "", **options: object) -> Tool:
    return Tool.from_any({"name": leaf, "description": description, **options})


def names(tools: list[Tool] | tuple[Tool, ...]) -> list[str]:
    return [each.name for each in tools]


def sample() -> Catalog:
    return Catalog(
        {
            "github": [tool("create_issue", aliases=["new bug"]), tool("search")],
            "my server": [tool("search"), tool("send.mail")],
            "": [tool("ping")],
        }
    )


def recorded(catalog: Catalog) -> tuple[list[Change], Callable[[], None]]:
    changes: list[Change] = []
    return changes, catalog.subscribe(changes.append)


def test_tools_are_moved_to_their_server_and_sorted_by_name():
    catalog = sample()

    assert names(catalog.tools) == [
        "github__create_issue",
        "github__search",
        "my_server__search",
        "my_server__send_mail",
        "ping",
    ]
    assert list(catalog) == list(catalog.tools)
    assert len(catalog) == 5
    assert "ping" in catalog and "pong" not in catalog
    assert catalog.servers == ("", "github", "my server")
    assert catalog.get("github__search") == Tool.define("search", server="github")
    assert catalog.get("search") is None


@pytest.mark.requirement("R2")
@pytest.mark.requirement("R3")
@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("github__create_issue", ["github__create_issue"]),
        ("GitHub.createIssue", ["github__create_issue"]),
        ("github/create-issue", ["github__create_issue"]),
        ("mcp__github__create_issue", ["github__create_issue"]),
        ("new_bug", ["github__create_issue"]),
        ("Create Issue", ["github__create_issue"]),
        ("my server.send.mail", ["my_server__send_mail"]),
        ("sendMail", ["my_server__send_mail"]),
        ("search", ["github__search", "my_server__search"]),
        ("PING", ["ping"]),
        ("nothing", []),
        ("", []),
        ("__", []),
        ("mcp", []),
    ],
)
def test_one_function_resolves_every_spelling_of_a_name(text: str, found: list[str]):
    """R2, R3"""
    assert names(sample().resolve(text)) == found


def test_a_tool_that_left_resolves_no_more_and_the_others_still_do():
    catalog = sample()

    catalog.remove("github")

    assert names(catalog.resolve("search")) == ["my_server__search"]
    assert catalog.resolve("new bug") == []
    assert catalog.servers == ("", "my server")


@pytest.mark.requirement("R83")
def test_tools_are_removed_by_exposed_name_or_leaf():
    """R83"""
    catalog = sample()
    changes, _ = recorded(catalog)

    catalog.remove("my server", ["my_server__search", "send.mail", "unknown"])
    catalog.remove("my server", ["search"])

    assert [names(change.removed) for change in changes] == [
        ["my_server__search", "my_server__send_mail"]
    ]
    assert catalog.state("my server") == Availability(status=Status.READY)


@pytest.mark.requirement("R82")
def test_a_late_server_is_there_at_once_and_is_announced_once():
    """R82"""
    catalog = sample()
    changes, _ = recorded(catalog)
    catalog.set_pending("slack")

    catalog.replace("slack", [{"name": "post", "inputSchema": {}}, ping])

    assert names(changes[0].added) == ["slack__ping", "slack__post"]
    assert (changes[0].server, changes[0].version) == ("slack", catalog.version)
    assert len(changes) == 1


def ping() -> None:
    """Answer."""


def test_replacing_with_equal_tools_is_no_change():
    catalog = sample()
    changes, _ = recorded(catalog)
    version = catalog.version

    catalog.replace("github", [tool("search"), tool("create_issue", aliases=["new bug"])])

    assert (changes, catalog.version) == ([], version)


def test_a_change_holds_only_what_changed():
    catalog = sample()
    changes, _ = recorded(catalog)

    catalog.replace("github", [tool("search", "Better."), tool("fork")])

    assert names(changes[0].added) == ["github__fork", "github__search"]
    assert names(changes[0].removed) == ["github__create_issue", "github__search"]
    assert changes[0].removed[1].description == ""


def test_values_that_python_holds_equal_are_still_a_change():
    catalog = Catalog({"s": [tool("x", input_schema={"default": 1})]})
    before = catalog.fingerprint

    catalog.replace("s", [tool("x", input_schema={"default": True})])

    assert catalog.fingerprint != before


def test_adding_keeps_the_others_and_replaces_the_same_name():
    catalog = sample()

    catalog.add("github", [tool("search", "Better."), tool("fork")])

    assert names(catalog.resolve("github.createissue")) == ["github__create_issue"]
    assert catalog.resolve("github.search")[0].description == "Better."
    assert len(catalog) == 6


@pytest.mark.requirement("R84")
def test_a_collision_names_both_owners_and_changes_nothing():
    """R84"""
    catalog = Catalog({"a.b": [tool("x")]})
    before = catalog.snapshot()

    with pytest.raises(DuplicateTool) as across:
        catalog.replace("a/b", [tool("y"), tool("x")])
    with pytest.raises(DuplicateTool) as within:
        catalog.replace("c", [tool("p.q"), tool("p/q")])

    assert (across.value.first, across.value.second) == (("a.b", "x"), ("a/b", "x"))
    assert (within.value.first, within.value.second) == (("c", "p.q"), ("c", "p/q"))
    assert catalog.snapshot() == before
    assert catalog.state("a/b") is None


def test_a_refused_tool_leaves_the_catalogue_as_it_was():
    catalog = sample()
    before = catalog.fingerprint

    with pytest.raises(InvalidTool):
        catalog.replace("github", [tool("fine"), {"name": ""}])
    with pytest.raises(InvalidTool, match=r"Tool\.define"):
        catalog.replace("", [Tool(name="not allowed")])
    with pytest.raises(UsageError, match="move_to"):
        catalog.replace("github", [Tool.define("x", server="gitlab")])

    assert catalog.fingerprint == before


@pytest.mark.requirement("R88")
@pytest.mark.parametrize("name", ["tool_search", "tool_describe", "tool_call"])
def test_meta_tools_are_never_catalogued(name: str):
    """R88"""
    with pytest.raises(InvalidTool, match="toolscout's own"):
        Catalog({"": [tool(name)]})

    assert len(Catalog({"server": [tool(name)]})) == 1


def test_a_server_that_fails_keeps_its_tools_and_says_why():
    catalog = sample()
    version = catalog.version

    catalog.set_failed("github", "connection refused")

    state = Availability(status=Status.FAILED, reason="connection refused")
    assert catalog.state("github") == state
    assert (catalog.version, len(catalog)) == (version, 5)

    catalog.replace("github", [tool("search")])
    assert catalog.state("github") == Availability(status=Status.READY)
    assert catalog.state("unknown") is None


@pytest.mark.requirement("R87")
def test_a_fingerprint_does_not_depend_on_order():
    """R87"""
    first = Catalog({"a": [tool("x"), tool("y")], "b": [tool("z")]})
    second = Catalog({"b": [tool("z")], "a": [tool("y"), tool("x")]})

    assert first.fingerprint == second.fingerprint
    second.replace("b", [tool("z", "changed")])
    assert first.fingerprint != second.fingerprint


def test_a_snapshot_does_not_move():
    catalog = sample()
    before = catalog.snapshot()

    catalog.remove("github")

    assert len(before.tools) == 5 and "github__search" in before.by_name
    assert catalog.snapshot().version > before.version
    assert catalog.snapshot() is catalog.snapshot()


def test_a_failing_subscriber_harms_neither_the_change_nor_the_others(
    caplog: pytest.LogCaptureFixture,
):
    catalog = Catalog()

    def fail(_: Change) -> None:
        raise RuntimeError("no")

    catalog.subscribe(fail)
    changes, _ = recorded(catalog)
    with caplog.at_level(logging.ERROR):
        catalog.replace("s", [tool("x")])

    assert len(changes) == len(catalog) == 1
    assert "subscriber failed" in caplog.text


def test_a_subscriber_that_left_hears_nothing():
    catalog = Catalog()
    changes, unsubscribe = recorded(catalog)

    unsubscribe()
    catalog.replace("s", [tool("x")])

    assert changes == []


def test_a_change_made_by_a_subscriber_is_told_after_the_one_it_answers():
    catalog = Catalog()

    def answer(change: Change) -> None:
        if change.server == "first":
            catalog.replace("second", [tool("x")])

    catalog.subscribe(answer)
    changes, _ = recorded(catalog)
    catalog.replace("first", [tool("x")])

    assert [(change.version, change.server) for change in changes] == [(1, "first"), (2, "second")]


SERVERS = st.sampled_from(["a", "b", "c"])
LEAVES = st.lists(st.sampled_from(["x", "y", "z"]), unique=True)


@given(st.lists(st.tuples(SERVERS, LEAVES), max_size=8))
def test_changes_replayed_give_the_catalogue(steps: list[tuple[str, list[str]]]):
    catalog = Catalog()
    replayed: dict[str, Tool] = {}

    def follow(change: Change) -> None:
        for each in change.removed:
            del replayed[each.name]
        for each in change.added:
            assert each.name not in replayed
            replayed[each.name] = each

    catalog.subscribe(follow)
    for server, leaves in steps:
        catalog.replace(server, [tool(leaf) for leaf in leaves])

    assert replayed == catalog.snapshot().by_name
    assert all(catalog.resolve(each.leaf) for each in catalog)


def test_threads_change_while_others_read():
    catalog = Catalog()
    changes, _ = recorded(catalog)
    failures: list[BaseException] = []

    def run(work: Callable[[int], None]) -> None:
        try:
            for step in range(60):
                work(step)
        except BaseException as error:
            failures.append(error)

    def write(server: str) -> Callable[[int], None]:
        return lambda step: catalog.replace(server, [tool("a", str(step)), tool("b", str(step))])

    def read(_: int) -> None:
        by_server: dict[str, set[str]] = {}
        for each in catalog.snapshot().tools:
            by_server.setdefault(each.server, set()).add(each.description)
        assert all(len(steps) == 1 for steps in by_server.values()), "half a change was seen"
        listed = names(catalog.tools)
        assert listed == sorted(listed)
        assert len(catalog.resolve("a")) <= 4

    works = [write(server) for server in "pqrs"] + [read, read]
    threads = [threading.Thread(target=run, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=120)

    assert failures == []
    assert [change.version for change in changes] == list(range(1, 241))
    assert len(catalog) == 8


def test_a_leaf_of_two_thousand_servers_resolves_to_all_of_them():
    catalog = Catalog({f"s{i}": [tool("search")] for i in range(2_000)})

    assert len(catalog.resolve("search")) == 2_000
    assert len(catalog.resolve("s7.search")) == 1


def test_a_list_of_tools_is_a_catalogue_of_their_servers():
    found = Catalog([greet, Tool.define("send", server="mail"), {"name": "x", "server": "mail"}])

    assert [tool.name for tool in found] == ["greet", "mail__send", "mail__x"]
    assert found.servers == ("", "mail")


@pytest.mark.parametrize("wrong", ["text", 7, print])
def test_what_cannot_be_a_catalogue_is_refused_with_what_can(wrong: Any):
    with pytest.raises(UsageError, match=r"Use a list of tools or functions, or Catalog\("):
        Catalog(wrong)
    with pytest.raises(UsageError, match=r"Use a list of tools or functions, or Catalog\("):
        Scout(wrong)


def greet(name: str) -> str:
    """Greet a person."""
    return f"Hello, {name}"


@pytest.mark.parametrize("made", [[greet], (greet,), {"": [greet]}, Catalog([greet])])
def test_a_scout_takes_what_a_catalogue_is_made_of(made: Any):
    session = Scout(made).session("a")

    assert session.search("greet somebody").hits[0].tool.name == "greet"
    assert session.call_sync("greet", {"name": "Ann"}).text == "Hello, Ann"
