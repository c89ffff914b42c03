"""A scout and a gateway whose tools lie in PostgreSQL."""

import asyncio
from collections.abc import Callable, Iterator
from typing import Any
from uuid import uuid4

import pytest

from databases import Proxy, open_proxy
from toolscout import Catalog, Policy, Scout, Settings, Tool, UsageError
from toolscout.search import postgres_catalog
from toolscout.search.postgres_catalog import PostgresCatalog
from toolscout.settings import Mode
from toolscout.stores import MemoryStore
from toolscout.stores import postgres as postgres_store

pytestmark = pytest.mark.processes

Open = Callable[..., PostgresCatalog]


@pytest.fixture
def open_catalog(postgres_url: str) -> Iterator[Open]:
    """Opens catalogues in the same tables, as several processes do."""
    opened: list[PostgresCatalog] = []
    schema = f"catalog_{uuid4().hex[:12]}"

    def open_one(url: str = postgres_url, **options: Any) -> PostgresCatalog:
        opened.append(PostgresCatalog(url, schema=schema, **options))
        return opened[-1]

    yield open_one
    for catalog in opened:
        catalog.close()


@pytest.fixture
def proxy(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Proxy]:
    monkeypatch.setattr(postgres_store, "WAIT_SECONDS", 0.2)
    with open_proxy(postgres_url) as proxy:
        yield proxy


def make_tools(server: str, *leaves: str, text: str = "", **members: Any) -> list[Tool]:
    return [
        Tool.define(
            leaf,
            server=server,
            description=text or f"{leaf.replace('_', ' ').title()} with {server}.",
            **members,
        )
        for leaf in leaves
    ]


def open_scout(catalog: PostgresCatalog, **options: Any) -> Scout:
    def run(tool: Tool, arguments: dict[str, Any]) -> str:
        return f"{tool.name} was run"

    return Scout(catalog, index=catalog.index, executors=run, **options)


def test_a_scout_searches_describes_and_calls_tools_that_lie_in_a_database(postgres_url: str):
    def add(a: int, b: int) -> int:
        """Add two numbers."""
        return a + b

    scout = Scout({"maths": [add]}, index=postgres_url)
    session = scout.session("one")

    found = session.search("add two numbers")
    described = session.describe("maths__add")
    called = session.call_sync("maths__add", {"a": 2, "b": 3})
    misspelt = session.call_sync("maths__ad", {"a": 2})

    assert "maths__add" in found.text
    assert "Add two numbers" in described.text
    assert "5" in called.text
    assert "maths__add" in misspelt.text
    scout.catalog.remove("maths")
    assert session.search("add two numbers").code == "empty_catalog"
    asyncio.run(scout.close())


def test_a_catalogue_in_memory_cannot_have_its_index_in_a_database(postgres_url: str):
    with pytest.raises(UsageError, match="in memory"):
        Scout(Catalog(), index=postgres_url)


def test_what_one_process_changes_another_one_finds(open_catalog: Open):
    first = open_catalog()
    second = open_catalog()
    first.replace("github", make_tools("github", "create_issue", "close_issue"))
    second.follow()
    session = open_scout(second).session("two")

    assert "github__create_issue" in session.search("create an issue").text
    assert session.call_sync("github__create_issue").text == "github__create_issue was run"

    first.replace("github", make_tools("github", "create_issue", text="Another text."))
    second.follow()
    assert second.get("github__close_issue") is None
    changed = second.get("github__create_issue")
    assert changed is not None
    assert changed.description == "Another text."
    first.remove("github")
    second.follow()
    assert len(second) == 0
    assert session.search("create an issue").code == "empty_catalog"


def test_the_same_tools_are_written_once_whoever_sends_them(open_catalog: Open):
    tools = make_tools("github", "create_issue", "close_issue")
    first = open_catalog()
    second = open_catalog()
    heard: list[str] = []
    second.subscribe(lambda change: heard.append(change.server))
    first.replace("github", tools)
    before = first.fingerprint

    second.replace("github", tools)
    first.replace("github", tools)
    third = open_catalog()
    third.replace("github", tools)

    assert {first.fingerprint, second.fingerprint, third.fingerprint} == {before}
    assert heard == ["github"]


def test_a_tool_that_is_named_like_one_of_toolscout_is_known_without_the_database(
    open_catalog: Open, proxy: Proxy
):
    catalog = open_catalog(proxy.url)
    aliased = make_tools("github", "find", aliases=("tool_run",))
    catalog.replace("github", [*make_tools("github", "tool_search"), *aliased])
    proxy.cut()

    names = ("github__tool_search", "mcp__github__tool_search", "other__tool_search")
    found = [[tool.name for tool in catalog.resolve(name)] for name in names]
    assert found == [["github__tool_search"], ["github__tool_search"], []]
    assert [tool.name for tool in catalog.resolve("tool_run")] == ["github__find"]
    proxy.restore()


def test_tools_are_added_and_removed_one_by_one(open_catalog: Open):
    catalog = open_catalog()
    catalog.replace("github", make_tools("github", "create_issue"))
    catalog.add("github", make_tools("github", "close_issue", "list_issues"))
    catalog.remove("github", ["close_issue", "unknown"])

    names = [tool.name for tool in catalog]
    assert names == ["github__create_issue", "github__list_issues"]
    assert len(catalog) == len(names)
    assert "github__list_issues" in catalog
    assert [tool.name for tool in catalog.resolve("list-issues")] == ["github__list_issues"]


def test_a_session_does_not_see_what_its_policy_hides(open_catalog: Open):
    catalog = open_catalog()
    catalog.replace("github", make_tools("github", "create_issue"))
    catalog.replace("bank", make_tools("bank", "create_payment"))
    scout = open_scout(catalog, policy=Policy(allowed=lambda tool: tool.server != "bank"))
    session = scout.session("limited")

    reply = session.search("create a payment")
    assert "bank" not in reply.text
    assert "bank" not in session.get_listing()
    assert session.call_sync("bank__create_payment").code == "unknown_tool"


def test_of_very_many_tools_a_listing_has_some_and_says_how_many_there_are(
    open_catalog: Open, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(postgres_catalog, "ALL_LISTED", 50)
    catalog = open_catalog()
    catalog.replace("big", make_tools("big", *(f"make_report_{n:03}" for n in range(60))))
    catalog.replace("small", make_tools("small", "send_mail", always_load=True))
    catalog.replace("other", make_tools("other", "keep_me"))
    settings = Settings(pins=("other__keep_me", "big__make_report_05*"), mode=Mode.NATIVE)
    scout = open_scout(catalog, settings=settings)
    session = scout.session("listing")

    assert len(catalog.tools) < len(catalog) == 62
    assert "- big (60)" in session.get_listing()
    assert session.search("report 031").details["totals"]["catalogued"] == 62
    assert {"other__keep_me", "small__send_mail", "big__make_report_055"} <= {*session.pinned}
    session.search("select:big__make_report_031")
    names = [one["name"] for one in session.tools("anthropic")]
    assert "big__make_report_031" in names
    assert "big__make_report_032" not in names
    limited = scout.session("limited", allowed=lambda tool: tool.server != "big")
    assert "big" not in limited.get_listing()


def test_loaded_tools_survive_a_restart_and_changed_ones_are_reported(open_catalog: Open):
    store = MemoryStore()
    catalog = open_catalog()
    catalog.replace("github", make_tools("github", "create_issue", "close_issue"))
    session = open_scout(catalog, store=store).session("kept")
    session.search("select:github__create_issue,github__close_issue")
    catalog.close()

    again = open_catalog()
    restored = open_scout(again, store=store).session("kept")

    assert {*restored.loaded} == {"github__create_issue", "github__close_issue"}
    again.replace("github", make_tools("github", "create_issue"))
    assert "github__close_issue" in restored.search("create an issue").text
    assert restored.loaded == ("github__create_issue",)


def test_without_its_database_a_search_says_so_and_known_tools_can_be_called(
    open_catalog: Open, proxy: Proxy
):
    catalog = open_catalog(proxy.url)
    catalog.replace("github", make_tools("github", "create_issue"))
    session = open_scout(catalog).session("away")
    session.search("create an issue")

    proxy.cut()
    reply = session.search("close an issue")
    called = session.call_sync("github__create_issue")
    unknown = session.call_sync("github__close_issue")
    other = open_scout(catalog).session("new")

    assert reply.code == unknown.code == "catalog_unavailable"
    assert other.search("anything").code == "catalog_unavailable"
    assert called.text == "github__create_issue was run"
    proxy.restore()
