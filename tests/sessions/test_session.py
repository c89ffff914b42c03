"""Sessions: what they load, for how long, where it is kept, and what became of it meanwhile."""

import asyncio
import json
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from toolscout import Catalog, Mode, Policy, Scout, Session, Settings, Store, Tool
from toolscout.errors import InvalidState, UsageError
from toolscout.schemas import Json
from toolscout.sessions.record import Record
from toolscout.settings import Route, Scope
from toolscout.stores import MemoryStore, SqliteStore
from toolscout.stores.store import Change
from toolscout.tokens import count_definition_tokens

ISSUE, ISSUES, MERGE = "github__create_issue", "github__list_issues", "github__merge_pull_request"
SEND, CHANNELS = "slack__send_message", "slack__list_channels"
WEAKLY_FINDS_SEND = "weather forecast in the channel"


def github() -> list[Tool]:
    return [
        Tool.define("create_issue", server="github", description="Open a new issue."),
        Tool.define("list_issues", server="github", description="List the issues of a project."),
        Tool.define("merge_pull_request", server="github", description="Merge a pull request."),
    ]


def slack() -> list[Tool]:
    return [
        Tool.define("send_message", server="slack", description="Send a message to a channel."),
        Tool.define("list_channels", server="slack", description="List all channels."),
    ]


def changed(tool: Tool) -> Tool:
    schema = {"type": "object", "properties": {"new": {"type": "string"}}}
    return Tool.define(tool.leaf, server=tool.server, description="Changed.", input_schema=schema)


def catalog_of_two() -> Catalog:
    return Catalog({"github": github(), "slack": slack()})


def run(tool: Tool, arguments: Json) -> str:
    return f"{tool.name} is done"


def scout_of(catalog: Catalog | None = None, store: Store | None = None, **settings: object):
    return Scout(
        catalog if catalog is not None else catalog_of_two(),
        executors=run,
        store=store,
        settings=Settings.from_mapping(settings),
    )


def code_of(session: Session, name: str) -> str:
    return session.call_sync(name, {}).code


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    chosen = MemoryStore() if request.param == "memory" else SqliteStore(tmp_path / "store.db")
    yield chosen
    chosen.close()


@pytest.mark.requirement("R56")
def test_searches_add_up():
    """R56"""
    session = scout_of().session("a")
    session.search("select:slack__send_message")
    session.search(["open an issue", "select:slack__send_message"])

    assert session.loaded == (SEND, ISSUE)


@pytest.mark.parametrize(
    "query",
    ["open a new issue", "select:github__create_issue", WEAKLY_FINDS_SEND, "zebra", "/(/", ""],
)
@pytest.mark.requirement("R56")
def test_a_search_that_adds_nothing_leaves_the_stored_state_byte_identical(query: str):
    """R56"""
    store = MemoryStore()
    session = scout_of(store=store).session("a")
    session.tools("mcp")
    session.search(query)
    before = json.dumps(session.to_json()), store.read("session", "a")
    session.search(query)
    session.search([query, query.upper()])

    assert (json.dumps(session.to_json()), store.read("session", "a")) == before


@pytest.mark.requirement("R58")
def test_pins_by_tool_server_pattern_and_server_metadata_are_callable_unasked():
    """R58"""
    always = Tool.from_mcp(
        {"name": "now", "inputSchema": {"type": "object"}, "_meta": {"anthropic/alwaysLoad": True}},
        server="clock",
    )
    catalog = Catalog({"github": github(), "slack": slack(), "clock": [always]})
    catalog.replace("jira", [Tool.define("find", server="jira"), Tool.define("x", server="jira")])
    session = scout_of(catalog, pins=["slack", "*issue*"]).session("a", pins=["jira__find"])

    assert set(session.pinned) == {SEND, CHANNELS, ISSUE, ISSUES, "clock__now", "jira__find"}
    assert session.loaded == ()
    assert {code_of(session, name) for name in session.pinned} == {"ok"}
    assert code_of(session, "jira__x") == "not_loaded"


@pytest.mark.requirement("R58")
def test_unknown_pins_are_reported_with_near_names_until_they_mean_something():
    """R58"""
    catalog = catalog_of_two()
    session = scout_of(catalog, pins=["slak"]).session("a", pins=["late"])
    assert [w for w in session.warnings if "'slak'" in w and "slack" in w]
    assert [w for w in session.warnings if "'late'" in w]

    catalog.set_pending("late")
    assert not [w for w in session.warnings if "'late'" in w]
    catalog.replace("late", [Tool.define("one", server="late")])
    assert len(session.warnings) == 1
    assert "late__one" in session.pinned


@pytest.mark.requirement("R58")
def test_pins_are_never_evicted_nor_unloaded():
    """R58"""
    session = scout_of(loaded_tokens=1).session("a", pins=["slack"])
    for query in ("server:github", "select:github__list_issues"):
        session.search(query)
    session.describe([ISSUE, MERGE])
    session.unload()
    session.unload(SEND)
    session.user_message("next")

    assert session.pinned == (CHANNELS, SEND)


class CountingStore(MemoryStore):
    """Counts how often sessions are written."""

    def __init__(self) -> None:
        super().__init__()
        self.writes = 0

    def write_all(self, changes: Sequence[Change]) -> None:
        self.writes += sum(change.kind == "session" for change in changes)
        super().write_all(changes)


def test_a_session_is_written_when_it_has_changed_and_only_then():
    store = CountingStore()
    session = scout_of(store=store).session("a")
    writes: list[int] = []

    for name in (ISSUE, ISSUE, SEND, SEND, ISSUE):
        session.search(f"select:{name}")
        session.call_sync(name)
        writes.append(store.writes)

    first, again, other, other_again, back = writes
    assert first == again < other == other_again < back
    assert store.read("session", "a") == Record.from_json(session.to_json()).to_bytes()


@pytest.mark.requirement("R59")
def test_in_session_scope_a_found_tool_stays():
    """R59"""
    session = scout_of().session("a")
    session.search("select:slack__send_message")
    session.user_message("something else")

    assert session.loaded == (SEND,)
    assert session.settings.scope is Scope.SESSION


@pytest.mark.requirement("R59")
def test_turn_scope_ends_at_the_next_user_turn():
    """R59: also for what was only shown."""
    session = scout_of(scope="turn").session("a", pins=["github__list_issues"])
    session.user_message("first")
    session.search(["open a new issue", WEAKLY_FINDS_SEND])
    assert code_of(session, ISSUE) == "ok"
    assert code_of(session, SEND) == "ok"
    reply = session.user_message("second")

    assert set(reply.details["unloaded"]) == {ISSUE, CHANNELS, SEND}
    assert (session.loaded, session.pinned) == ((), (ISSUES,))
    assert code_of(session, SEND) == "not_loaded"
    assert session.search("open a new issue").references == (ISSUE,)


@pytest.mark.requirement("R60")
def test_the_default_budget_is_16_000_tokens():
    """R60"""
    text = "word " * 3_900
    tools = [Tool.define(f"t{n}", server="s", description=text) for n in range(6)]
    session = scout_of(Catalog({"s": tools})).session("a")
    for tool in tools:
        session.search(f"select:{tool.name}")

    assert count_definition_tokens(tools[0]) * 4 < 16_000 < count_definition_tokens(tools[0]) * 5
    assert session.loaded == ("s__t2", "s__t3", "s__t4", "s__t5")


@pytest.mark.requirement("R60")
def test_least_recently_used_leave_first_and_it_is_reported():
    """R60"""
    budget = sum(count_definition_tokens(tool) for tool in github())
    session = scout_of(loaded_tokens=budget).session("a")
    for name in (ISSUE, ISSUES, MERGE):
        session.search(f"select:{name}")
    session.call_sync(ISSUE, {})
    replies = [session.search(f"select:{SEND}"), session.search("discover: zebra")]

    assert session.loaded == (ISSUE, MERGE, SEND)
    assert code_of(session, ISSUES) == "not_loaded"
    news = [line for reply in replies for line in reply.details["news"]]
    assert news == [f"Unloaded to make room: {ISSUES}."]
    assert any(news[0] in reply.text for reply in replies)


@pytest.mark.requirement("R60")
def test_one_oversized_tool_stays_usable_alone():
    """R60"""
    session = scout_of(loaded_tokens=1).session("a")
    session.search(f"select:{ISSUE}")
    session.search(f"select:{MERGE}")

    assert session.loaded == (MERGE,)
    assert code_of(session, MERGE) == "ok"


def test_what_a_description_could_not_keep_loaded_is_not_claimed_to_be():
    session = scout_of(loaded_tokens=40).session("a")
    reply = session.describe([ISSUE, MERGE, SEND])

    assert reply.references == session.loaded == (ISSUE,)


def test_a_definition_that_has_grown_makes_others_leave():
    catalog = catalog_of_two()
    session = scout_of(catalog, mode="native", loaded_tokens=100).session("a")
    session.search("server:github", limit=3)
    session.call_sync(ISSUES, {})
    catalog.add("github", [Tool.define("list_issues", server="github", description="much " * 90)])

    assert session.loaded == (ISSUES,)


@pytest.mark.requirement("R61")
def test_a_session_is_stored_and_resumed(store: Store):
    """R61: nobody has to save it; another process finds it under its id."""
    session = scout_of(store=store).session("a")
    session.search(["open a new issue", WEAKLY_FINDS_SEND])
    session.call_sync(ISSUE, {})
    session.system_prompt()
    resumed = scout_of(store=store).session("a")

    assert resumed is not session
    assert resumed.to_json() == session.to_json()
    assert set(resumed.loaded) == {ISSUE, CHANNELS}
    assert code_of(resumed, ISSUE) == code_of(resumed, SEND) == "ok"


@pytest.mark.requirement("R61")
def test_a_forgotten_session_is_gone(store: Store):
    """R61"""
    scout = scout_of(store=store)
    scout.session("a").search("open a new issue")
    scout.forget("a")

    assert store.keys("session") == []
    assert scout.session("a").loaded == ()


@pytest.mark.requirement("R61")
def test_a_stored_session_that_cannot_be_read_is_refused(store: Store):
    """R61"""
    store.write("session", "a", b"{}")
    with pytest.raises(InvalidState):
        scout_of(store=store).session("a")


@pytest.mark.requirement("R62")
def test_tools_of_all_kinds_are_stored_alike(store: Store):
    """R62: functions of the host, plugins and MCP tools."""

    def add(a: int, b: int) -> int:
        """Add two numbers."""
        return a + b

    plugin = {"name": "paint", "description": "Paint a picture.", "kind": "skill"}
    catalog = Catalog({"": [add], "plugin": [plugin], "github": github()})
    session = scout_of(catalog, store).session("a")
    session.search("select:add,plugin__paint,github__create_issue")
    resumed = scout_of(catalog, store).session("a")

    assert resumed.loaded == session.loaded == ("add", "plugin__paint", ISSUE)
    assert resumed.call_sync("add", {"a": 1, "b": 2}).text == "3"
    assert code_of(resumed, "plugin__paint") == code_of(resumed, ISSUE) == "ok"


@pytest.mark.requirement("R63")
def test_compaction_loses_no_tool():
    """R63: definitions are shown again when they are needed, because the messages are gone."""
    scout = scout_of()
    session = scout.session("a")
    assert session.search("create a new issue in a repository").described == (ISSUE,)
    assert session.search("create a new issue in a repository").described == ()
    carried = json.loads(json.dumps(session.compact()))

    for after in (session, scout.restore(carried)):
        assert after.loaded == (ISSUE,)
        assert code_of(after, ISSUE) == "ok"
        assert after.search("create a new issue in a repository").described == (ISSUE,)


@pytest.mark.requirement("R63")
def test_a_model_switch_loses_nothing():
    """R63: the next request may be in another provider's dialect."""
    session = scout_of(mode="native").session("a")
    session.tools("openai-chat")
    session.search("select:slack__send_message")

    assert session.tools("anthropic")[-1]["name"] == SEND
    assert session.tools("openai-responses")[-1]["name"] == SEND


@pytest.mark.requirement("R63")
def test_a_session_is_rebuilt_from_a_history():
    """R63"""
    scout = scout_of()
    session = scout.session("a")
    session.search(["open a new issue"])
    session.describe([SEND])
    messages: list[Json] = [
        {
            "role": "assistant",
            "content": [
                {"type": "tool_use", "id": str(number), "name": name, "input": arguments}
                for number, (name, arguments) in enumerate(
                    [
                        ("tool_search", {"queries": ["open a new issue"]}),
                        ("tool_describe", {"names": [SEND]}),
                    ]
                )
            ],
        },
        {"role": "user", "content": f"Please load {MERGE}: tool_search select:{MERGE}"},
    ]

    assert scout.rebuild("b", messages).loaded == session.loaded == (ISSUE, SEND)


@pytest.mark.requirement("R64")
def test_a_changed_tool_must_be_described_again_and_others_stay_loaded():
    """R64"""
    catalog = catalog_of_two()
    session = scout_of(catalog).session("a")
    session.search([f"select:{ISSUE},{ISSUES}"])
    catalog.replace("github", [changed(github()[0]), *github()[1:]])
    assert session.loaded == (ISSUES,)
    refused = session.call_sync(ISSUE, {})

    assert (refused.code, refused.is_error) == ("tool_changed", True)
    assert '"new"' in refused.text
    assert code_of(session, ISSUE) == code_of(session, ISSUES) == "ok"


@pytest.mark.requirement("R64")
def test_a_search_says_that_a_tool_has_changed_and_shows_it_again():
    """R64"""
    catalog = catalog_of_two()
    session = scout_of(catalog).session("a")
    session.search(f"select:{ISSUE}")
    catalog.replace("github", [changed(github()[0]), *github()[1:]])
    reply = session.search(f"select:{ISSUE}")

    assert reply.references == reply.described == (ISSUE,)
    assert f"{ISSUE} has changed" in reply.details["news"][0]
    assert session.search("discover: zebra").details["news"] == []


@pytest.mark.requirement("R64")
def test_a_change_while_the_session_was_stored_is_noticed():
    """R64"""
    state = scout_of().session("a")
    state.search(f"select:{ISSUE},{SEND}")
    catalog = Catalog({"github": [changed(tool) for tool in github()], "slack": slack()})
    restored = scout_of(catalog).restore(state.to_json())

    assert restored.loaded == (SEND,)
    assert code_of(restored, ISSUE) == "tool_changed"


@pytest.mark.requirement("R64")
def test_an_offered_tool_that_has_changed_is_callable_once_it_is_shown_again():
    """R64"""
    catalog = catalog_of_two()
    session = scout_of(catalog).session("a")
    session.search(WEAKLY_FINDS_SEND)
    other = Tool.define("send_message", server="slack", description="Send a note to a channel.")
    catalog.add("slack", [other])
    assert code_of(session, SEND) == "not_loaded"
    session.unload(CHANNELS)
    hits = session.search(WEAKLY_FINDS_SEND).hits

    assert SEND in [hit.tool.name for hit in hits]
    assert code_of(session, SEND) == "ok"


@pytest.mark.parametrize("mode", [Mode.NATIVE, Mode.REFERENCE])
@pytest.mark.requirement("R64")
def test_where_the_request_carries_definitions_a_change_needs_no_description(mode: Mode):
    """R64: the model has the new definition with the next request."""
    catalog = catalog_of_two()
    session = scout_of(catalog, mode=mode).session("a")
    session.search(f"select:{ISSUE}")
    catalog.replace("github", [changed(tool) for tool in github()])

    assert '"new"' in json.dumps(session.tools("anthropic"))
    assert session.handle_sync(ISSUE, {}).code == "ok"


@pytest.mark.requirement("R65")
def test_restored_names_of_absent_servers_sleep_until_the_server_connects():
    """R65"""
    session = scout_of().session("a", pins=["slack__list_channels"])
    session.search(f"select:{ISSUE},{SEND}")
    catalog = Catalog({"github": github()})
    restored = scout_of(catalog).restore(session.to_json())
    assert restored.loaded == (ISSUE,)
    assert restored.search("discover: zebra").details["news"] == []
    assert code_of(restored, SEND) == "server_unavailable"
    catalog.set_pending("slack")
    assert code_of(restored, SEND) == "server_unavailable"
    catalog.replace("slack", slack())

    assert (restored.loaded, restored.pinned) == ((ISSUE, SEND), (CHANNELS,))
    assert code_of(restored, SEND) == code_of(restored, CHANNELS) == "ok"


@pytest.mark.requirement("R65")
def test_restored_names_that_a_connected_server_no_longer_has_are_pruned_and_reported():
    """R65"""
    session = scout_of().session("a")
    session.search(f"select:{ISSUE},{SEND}")
    restored = scout_of(Catalog({"github": github()[1:]})).restore(session.to_json())

    assert restored.search("discover: zebra").details["news"] == [f"{ISSUE} is gone."]
    assert [entry["name"] for entry in restored.to_json()["entries"]] == [SEND]


def test_a_sleeping_tool_is_pruned_once_its_server_is_back_without_it():
    """The catalogue's version stays the same: no tool came or went."""
    catalog = catalog_of_two()
    stored = scout_of(catalog).session("a")
    stored.search(f"select:{ISSUE}")
    later = Catalog({"slack": slack()})
    later.set_pending("github")
    session = scout_of(later).restore(stored.to_json())
    for _ in range(2):  # the second search changes nothing
        session.search("message")
    assert ISSUE in Record.from_json(session.to_json()).entries

    later.replace("github", [])
    reply = session.search("message")

    assert ISSUE not in Record.from_json(session.to_json()).entries
    assert f"{ISSUE} is gone." in reply.text


def test_a_predicate_that_changes_its_mind_takes_a_loaded_tool_away():
    forbidden: set[str] = set()
    scout = scout_of()
    session = scout.session("a", allowed=lambda tool: tool.name not in forbidden)
    session.search(f"select:{ISSUE},{ISSUES}")
    assert session.loaded == (ISSUE, ISSUES)

    forbidden.add(ISSUE)

    assert session.loaded == (ISSUES,)


def test_a_tool_that_goes_while_it_is_called_does_not_stay_loaded():
    catalog = catalog_of_two()
    session: Session

    def leave(tool: Tool, arguments: Json) -> str:
        catalog.remove("github", [ISSUE])
        session.search("message")  # another request looks at the catalogue meanwhile
        return "done"

    settings = Settings(calls_by_name=True)
    scout = Scout(catalog, executors=leave, settings=settings)
    session = scout.session("a")

    assert session.call_sync(ISSUE).code == "ok"

    assert ISSUE not in session.loaded
    assert ISSUE not in Record.from_json(session.to_json()).entries


@pytest.mark.requirement("R66")
def test_a_disconnect_is_reported_with_its_reason_and_reconnecting_needs_no_search():
    """R66"""
    catalog = catalog_of_two()
    session = scout_of(catalog).session("a")
    session.search(f"select:{SEND}")
    catalog.set_failed("slack", "connection reset")
    refused = session.call_sync(SEND, {})
    catalog.replace("slack", slack())

    assert (refused.code, refused.is_error) == ("server_unavailable", True)
    assert "connection reset" in refused.text
    assert session.loaded == (SEND,)
    assert code_of(session, SEND) == "ok"


@pytest.mark.requirement("R67")
def test_a_session_rolls_back_to_what_was_saved():
    """R67"""
    scout = scout_of()
    session = scout.session("a")
    session.search(f"select:{ISSUE}")
    saved = session.to_json()
    session.search("server:slack")
    session.unload(ISSUE)
    rolled_back = scout.restore(saved)

    assert rolled_back.loaded == (ISSUE,)
    assert rolled_back.to_json() == saved
    assert scout.session("a") is rolled_back


@pytest.mark.requirement("R67")
def test_a_fork_goes_on_from_here_and_changes_nothing_here(store: Store):
    """R67"""
    scout = scout_of(store=store)
    session = scout.session("a")
    session.search(f"select:{ISSUE}")
    before = session.to_json(), store.read("session", "a")
    fork = session.fork("b")
    fork.search("server:slack")
    fork.unload(ISSUE)
    fork.pin(MERGE)

    assert (session.to_json(), store.read("session", "a")) == before
    assert (fork.id, fork.loaded) == ("b", (CHANNELS, SEND))
    assert scout_of(store=store).session("b").to_json() == fork.to_json()
    with pytest.raises(UsageError, match="same id"):
        session.fork("a")


@pytest.mark.requirement("R68")
def test_the_host_unloads_by_name_or_everything():
    """R68"""
    session = scout_of().session("a")
    session.search("server:github")

    assert session.unload(ISSUE, "nothing") == [ISSUE]
    assert code_of(session, ISSUE) == "not_loaded"
    assert session.unload() == [ISSUES, MERGE]
    assert session.loaded == ()
    assert code_of(session, MERGE) == "not_loaded"


@pytest.mark.parametrize("names", [(SEND,), ()])
@pytest.mark.requirement("R68")
def test_unloading_also_takes_back_what_was_only_shown(names: tuple[str, ...]):
    """R68"""
    session = scout_of().session("a")
    hits = session.search(WEAKLY_FINDS_SEND).hits
    assert SEND in [hit.tool.name for hit in hits]
    assert SEND not in session.loaded
    session.unload(*names)

    assert code_of(session, SEND) == "not_loaded"


@pytest.mark.requirement("R69")
def test_concurrent_calls_on_one_session_keep_every_update():
    """R69"""
    tools = [Tool.define(f"t{number}", server="s") for number in range(64)]
    store = MemoryStore()
    session = scout_of(Catalog({"s": tools}), store).session("a")
    start = threading.Barrier(8)

    def work(first: int) -> None:
        start.wait()
        for tool in tools[first::8]:
            session.search(f"select:{tool.name}")
            session.call_sync(tool.name, {})

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert set(session.loaded) == {tool.name for tool in tools}
    assert scout_of(Catalog({"s": tools}), store).session("a").to_json() == session.to_json()


@pytest.mark.requirement("R69")
def test_asynchronous_calls_on_one_session_keep_every_update():
    """R69"""
    session = scout_of(calls_by_name=True).session("a")

    async def work() -> None:
        await asyncio.gather(*(session.call(name, {}) for name in (ISSUE, ISSUES, MERGE, SEND)))

    asyncio.run(work())

    assert set(session.loaded) == {ISSUE, ISSUES, MERGE, SEND}


@pytest.mark.requirement("R69")
def test_two_sessions_never_affect_each_other():
    """R69"""
    scout = scout_of(store=MemoryStore())
    one, two = scout.session("one", pins=[MERGE]), scout.session("two")
    before = two.to_json()
    one.search(["open a new issue", "server:slack"])
    one.system_prompt()
    one.call_sync(SEND, {})

    assert two.to_json() == before
    assert code_of(two, SEND) == code_of(two, MERGE) == "not_loaded"


@pytest.mark.requirement("R69")
def test_one_conversation_has_one_session():
    """R69"""
    scout = scout_of()
    session = scout.session("a")

    assert scout.session("a") is session


@pytest.mark.requirement("R70")
def test_a_child_starts_empty_and_may_inherit_pins_or_named_tools():
    """R70"""
    session = scout_of().session("a", pins=[MERGE])
    session.search(f"select:{ISSUE},{SEND}")
    session.system_prompt()
    empty = session.fork("b", inherit=False)
    pins = session.fork("c", inherit=False, pins=True)
    named = session.fork("d", inherit=False, names=[SEND, CHANNELS])

    assert (empty.loaded, empty.pinned) == ((), ())
    assert (pins.loaded, pins.pinned) == ((), (MERGE,))
    assert (named.loaded, named.pinned) == ((SEND,), ())
    assert code_of(empty, SEND) == code_of(named, CHANNELS) == "not_loaded"
    assert code_of(pins, MERGE) == code_of(named, SEND) == "ok"


@pytest.mark.requirement("R70")
def test_a_child_never_changes_its_parent(store: Store):
    """R70"""
    session = scout_of(store=store).session("a", pins=[MERGE])
    session.search(f"select:{ISSUE}")
    before = session.to_json(), store.read("session", "a")
    child = session.fork("b", inherit=False, pins=True, names=[ISSUE])
    child.search("server:slack")
    child.call_sync(ISSUE, {})
    child.unload()
    child.compact()

    assert (session.to_json(), store.read("session", "a")) == before


@pytest.mark.requirement("R70")
def test_a_child_may_see_no_more_than_its_parent():
    """R70"""
    session = scout_of().session("a", allowed=lambda tool: tool.server == "github")
    child = session.fork("b", inherit=False)

    assert child.search("server:slack").hits == ()
    assert code_of(child, SEND) == "unknown_tool"


@pytest.mark.requirement("R82")
def test_tools_of_a_late_server_are_found_at_once():
    """R82"""
    catalog = Catalog({"github": github()})
    session = scout_of(catalog).session("a")
    assert session.search("send a message to a channel").references == ()
    catalog.replace("slack", slack())
    reply = session.search("send a message to a channel")

    assert SEND in reply.references
    assert code_of(session, SEND) == "ok"


@pytest.mark.requirement("R83")
def test_removed_tools_leave_index_and_session_and_are_announced_once():
    """R83: to the model in the next reply, to the host by an announcement."""
    catalog = catalog_of_two()
    session = scout_of(catalog).session("a", pins=[CHANNELS])
    session.tools("mcp")
    session.search(f"select:{SEND},{ISSUE}")
    catalog.remove("slack")
    replies = [session.search("send a message to a channel") for _ in range(2)]
    announced = [session.announce_changes() for _ in range(2)]

    assert "slack" not in {hit.tool.server for reply in replies for hit in reply.hits}
    assert (session.loaded, session.pinned) == ((ISSUE,), ())
    assert code_of(session, SEND) == "unknown_tool"
    assert set(replies[0].details["news"]) == {f"{SEND} is gone.", f"{CHANNELS} is gone."}
    assert replies[1].details["news"] == []
    assert announced == [f"Tools that are gone: {SEND}.", ""]


@pytest.mark.requirement("R86")
def test_cached_definitions_are_found_before_their_server_starts_and_a_call_starts_it():
    """R86"""
    catalog = catalog_of_two()
    catalog.set_pending("slack")
    started: list[str] = []

    def start(tool: Tool, arguments: Json) -> str:
        started.append(tool.server)
        catalog.replace("slack", slack())
        return "sent"

    scout = Scout(catalog, executors={"slack": start})
    session = scout.session("a")
    reply = session.search("send a message to a channel")
    assert SEND in reply.references
    assert reply.details["pending"] == ["slack"]
    assert started == []

    assert session.call_sync(SEND, {}).text == "sent"
    assert started == ["slack"]
    assert session.loaded == reply.references


@pytest.mark.requirement("R89")
def test_a_server_pinned_as_a_whole_is_shown_and_callable_also_when_it_comes_late():
    """R89"""
    catalog = Catalog({"github": github()})
    catalog.set_pending("slack")
    session = scout_of(catalog, pins=["slack"]).session("a")
    assert (session.pinned, session.warnings) == ((), [])
    catalog.replace("slack", slack())

    shown = [definition["name"] for definition in session.tools("mcp")]
    assert shown[3:] == [CHANNELS, SEND]
    assert code_of(session, SEND) == "ok"


@pytest.mark.requirement("R90")
def test_core_tools_of_the_host_are_shown_and_callable_by_default():
    """R90"""

    def read_file(path: str) -> str:
        """Read a file."""
        return path

    def bash(command: str) -> str:
        """Run a command."""
        return command

    catalog = Catalog({"": [read_file, bash], "github": github()})
    session = scout_of(catalog).session("a")

    assert session.pinned == ("bash", "read_file")
    assert [tool["name"] for tool in session.tools("mcp")][-2:] == ["bash", "read_file"]
    assert code_of(session, "bash") == "invalid_arguments"
    assert scout_of(catalog, essential=["bash"]).session("a").pinned == ("bash",)
    assert scout_of(catalog, essential=[]).session("a").pinned == ()


@pytest.mark.requirement("R96")
def test_a_given_list_pins_its_members_and_changes_nothing_else():
    """R96: an absent list means no request."""
    scout = scout_of(pins=[CHANNELS])
    absent, given = scout.session("absent"), scout.session("given", pins=[SEND])
    asked = [s.search("open a new issue") for s in (absent, given)]

    assert (absent.pinned, given.pinned) == ((CHANNELS,), (CHANNELS, SEND))
    assert absent.loaded == given.loaded == (ISSUE,)
    assert asked[0].text == asked[1].text
    assert code_of(absent, SEND) == code_of(given, MERGE) == "not_loaded"
    assert scout.session("empty", pins=[]).pinned == (CHANNELS,)


@pytest.mark.requirement("R101")
def test_keywords_of_a_tool_or_server_load_it_by_priority():
    """R101"""
    routes = {
        "slack": Route(keywords=("tell",), priority=90),
        ISSUE: Route(keywords=("bug", "ticket")),
        MERGE: Route(keywords=("bug",), prefer=False),
    }
    session = scout_of(routes=routes).session("a")
    reply = session.user_message("There is a bug, tell the team in the channel by message.")

    assert reply.references == session.loaded == (SEND, CHANNELS, ISSUE)
    assert reply.text == f"Loaded, may help: {SEND}, {CHANNELS}, {ISSUE}."
    assert session.user_message("Nothing of that.").text == ""


@pytest.mark.requirement("R102")
def test_a_hint_names_only_tools_that_this_session_may_use():
    """R102"""
    routes = {"*": Route(keywords=("message",))}
    settings = Settings(routes=routes, suggest=True, routed=5)
    policy = Policy(disabled={CHANNELS: "off"})
    scout = Scout(catalog_of_two(), settings=settings, policy=policy, executors=run)
    session = scout.session("a", allowed=lambda tool: tool.leaf != "send_message")
    reply = session.user_message("Send a message to a channel.")

    assert reply.references == session.loaded
    assert set(reply.references) == {ISSUE, ISSUES, MERGE}
    assert "slack" not in reply.text
    assert {code_of(session, name) for name in reply.references} == {"ok"}


@pytest.mark.requirement("R103")
def test_suggestions_are_off_by_default():
    """R103"""
    assert scout_of().session("a").user_message("Send a message to a channel").references == ()


@pytest.mark.requirement("R103")
def test_a_message_suggests_up_to_three_tools_each_once_per_session():
    """R103"""
    tools = [
        Tool.define(f"write_{whose}_report", server="s", description="Write the sales report.")
        for whose in ("audit", "board", "client", "dealer", "export")
    ]
    message = "Please write the sales report"
    session = scout_of(Catalog({"s": tools}), suggest=True, scope="turn").session("a")
    first, second, third = (session.user_message(message).references for _ in range(3))

    assert [len(first), len(second), len(third)] == [3, 2, 0]
    assert set(first).isdisjoint(second)
    few = scout_of(Catalog({"s": tools}), suggest=True, suggestions=1).session("a")
    assert len(few.user_message(message).references) == 1


@pytest.mark.requirement("R103")
def test_operators_in_a_user_message_are_words():
    """R103"""
    session = scout_of(suggest=True).session("a")

    assert session.user_message("select:slack__send_message").text in ("", *_suggested(SEND))
    assert session.user_message("server:nothing +open a new issue /(/").references == (ISSUE,)


def _suggested(*names: str) -> list[str]:
    return [f"Loaded, may help: {', '.join(names)}."]


@pytest.mark.requirement("R104")
def test_a_suggested_tool_passes_the_gate_and_a_merely_listed_one_does_not():
    """R104"""
    session = scout_of(suggest=True).session("a")
    assert MERGE.partition("__")[2] in session.get_listing()
    session.user_message("Please open a new issue")

    assert code_of(session, ISSUE) == "ok"
    assert code_of(session, MERGE) == "not_loaded"


@pytest.mark.requirement("R104")
def test_a_message_suggests_no_more_than_the_budget_holds_and_reports_who_left():
    """R104"""
    routes = {"*": Route(keywords=("go",))}
    session = scout_of(routes=routes, loaded_tokens=40).session("a")
    session.search(f"select:{MERGE}")
    reply = session.user_message("go")

    assert reply.references == session.loaded
    assert len(reply.references) == 1
    assert reply.text.splitlines()[1:] == [f"Unloaded to make room: {MERGE}."]
    assert {code_of(session, name) for name in reply.references} == {"ok"}


def test_a_synchronous_call_works_inside_an_event_loop_too():
    session = scout_of().session("a")
    session.search(f"select:{ISSUE}")

    async def work() -> str:
        return session.call_sync(ISSUE, {}).code

    assert asyncio.run(work()) == session.call_sync(ISSUE, {}).code


def test_a_pin_lasts_over_a_restart():
    scout = scout_of(store=MemoryStore())
    scout.session("a").pin(SEND)

    assert scout_of(store=scout.store).session("a").pinned == (SEND,)
