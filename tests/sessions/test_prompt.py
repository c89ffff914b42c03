"""What a request carries: the tools array, the prompt section, announcements, their hash."""

import json
from itertools import pairwise, product

import pytest

from toolscout import Catalog, Mode, Scout, Session, Settings, Tool
from toolscout.dialects import Dialect
from toolscout.errors import UsageError
from toolscout.schemas import Json
from toolscout.settings import Hiding
from toolscout.stores import MemoryStore
from toolscout.tokens import count_definition_tokens

META = ["tool_search", "tool_describe", "tool_call"]
ANYWHERE = [mode for mode in Mode if mode is not Mode.DEFINITIONS]


def tools_of(server: str, *leaves: str) -> list[Tool]:
    return [
        Tool.define(leaf, server=server, description=f"{leaf.replace('_', ' ')} with {server}")
        for leaf in leaves
    ]


def catalog_of(count: int, server: str = "many") -> Catalog:
    return Catalog({server: tools_of(server, *(f"tool_{number:02}" for number in range(count)))})


def small_catalog() -> Catalog:
    return Catalog(
        {
            "github": tools_of("github", "create_issue", "list_issues", "merge_branch"),
            "slack": tools_of("slack", "send_message", "list_channels"),
        }
    )


def run(tool: Tool, arguments: Json) -> str:
    return f"{tool.name} is done"


def session_of(catalog: Catalog, **settings: object) -> Session:
    chosen = Settings.from_mapping(settings)
    return Scout(catalog, executors=run, settings=chosen).session("a")


def names(definitions: list[Json]) -> list[str]:
    told = (definition.get("function", definition) for definition in definitions)
    return [one.get("name") or one["type"] for one in told]


def shown(session: Session) -> list[str]:
    return names(session.tools("mcp"))


def bytes_of(session: Session, dialect: str = "openai-chat") -> str:
    return json.dumps(session.tools(dialect))


@pytest.mark.parametrize("dialect", [*Dialect])
@pytest.mark.requirement("R53")
def test_by_default_a_request_carries_three_constant_meta_tools(dialect: Dialect):
    """R53: stable mode; whatever is found, described or called, no byte changes."""
    session = session_of(small_catalog())
    before = bytes_of(session, dialect)
    session.search(["open an issue", "select:slack__send_message"])
    session.describe("github__merge_branch")
    session.call_sync("github__merge_branch")

    assert names(session.tools(dialect)) == META
    assert bytes_of(session, dialect) == before
    assert session.settings.mode is Mode.BRIDGE


@pytest.mark.requirement("R53")
def test_in_dynamic_mode_loaded_definitions_join_the_array():
    """R53: the same session code, another setting."""
    session = session_of(small_catalog(), mode="native")
    session.search("select:slack__send_message")

    assert shown(session) == [*META, "slack__send_message"]


@pytest.mark.requirement("R57")
def test_a_dynamic_array_only_grows_at_its_end():
    """R57: until something is unloaded; and equal state gives equal bytes."""
    catalog = small_catalog()
    session = session_of(catalog, mode="native")
    arrays = [shown(session)]
    for query in ("select:slack__send_message", "select:github__list_issues", "select:nothing"):
        session.search(query)
        arrays.append(shown(session))
    session.pin("github__create_issue")
    session.describe("slack__list_channels")
    arrays.append(shown(session))
    twin = Scout(catalog, settings=session.settings).restore(session.to_json())

    assert arrays[-1][3:] == [
        *("slack__send_message", "github__list_issues"),
        *("github__create_issue", "slack__list_channels"),
    ]
    assert all(b[: len(a)] == a for a, b in pairwise(arrays))
    assert bytes_of(twin) == bytes_of(session)


def test_in_reference_mode_the_provider_gets_all_tools_and_shows_none():
    session = session_of(small_catalog(), mode="reference")
    before = session.tools("anthropic")
    session.search("select:slack__send_message")
    deferred = [definition["name"] for definition in before if definition.get("defer_loading")]

    assert names(before)[:3] == META
    assert deferred == [tool.name for tool in small_catalog()]
    assert session.tools("anthropic") == before


def test_in_definitions_mode_the_provider_has_the_search_run_by_its_client():
    session = session_of(small_catalog(), mode="definitions", pins=["github__list_issues"])
    before = session.tools("openai-responses")
    session.search(["select:slack__send_message", "open an issue"])
    session.describe("slack__list_channels")
    usual = session_of(small_catalog(), pins=["github__list_issues"]).tools("openai-responses")

    function = usual[0]
    assert before[0] == {
        "type": "tool_search",
        "execution": "client",
        "description": function["description"],
        "parameters": function["parameters"],
    }
    assert before[1:] == usual[1:]
    assert json.dumps(session.tools("openai-responses")) == json.dumps(before)


@pytest.mark.parametrize("dialect", ["openai-chat", "anthropic", "mcp"])
def test_definitions_mode_is_refused_where_the_provider_cannot_take_it(dialect: str):
    session = session_of(small_catalog(), mode="definitions")
    reply = session.search("select:slack__send_message")

    with pytest.raises(UsageError, match=r"only with 'openai-responses'.*Use mode 'native'"):
        session.tools(dialect)
    with pytest.raises(UsageError, match="openai-responses"):
        reply.to_message(dialect, "c1")


@pytest.mark.parametrize(
    ("mode", "dialect"),
    [
        *product(ANYWHERE, ["openai-chat", "openai-responses", "anthropic", "mcp"]),
        (Mode.DEFINITIONS, "openai-responses"),
    ],
)
@pytest.mark.requirement("R80")
def test_a_forced_tool_is_shown_for_one_request_and_may_be_called(mode: Mode, dialect: str):
    """R80: once, in full, and whatever the mode."""
    session = session_of(small_catalog(), mode=mode)
    usual = session.tools(dialect)
    forced = session.tools(dialect, forced="slack__send_message")

    mine = [d for d in forced if names([d]) == ["slack__send_message"]]
    assert len(mine) == 1
    assert "defer_loading" not in mine[0]
    assert session.tools(dialect) == usual
    assert session.handle_sync("slack__send_message", {}).code == "ok"


@pytest.mark.requirement("R80")
def test_a_forced_tool_that_is_shown_anyway_is_not_shown_twice():
    """R80"""
    session = session_of(small_catalog(), pins=["slack__send_message"])

    assert session.tools("mcp", forced="slack__send_message") == session.tools("mcp")


@pytest.mark.requirement("R80")
def test_an_absent_tool_is_never_invented():
    """R80"""
    session = session_of(small_catalog())
    with pytest.raises(UsageError, match="slack__send_message"):
        session.tools("mcp", forced="slack__send_mesage")


@pytest.mark.requirement("R91")
def test_the_host_may_say_what_is_hidden():
    """R91: the default is everything that is not pinned."""
    catalog = small_catalog()
    settings = Settings(hide=lambda tool: tool.server == "github", mode=Mode.NATIVE)
    session = Scout(catalog, settings=settings, executors=run).session("a")
    session.search("select:github__create_issue")
    before = shown(session)
    catalog.replace("late", tools_of("late", "one"))

    assert before == [*META, "slack__list_channels", "slack__send_message", "github__create_issue"]
    assert shown(session) == [*before, "late__one"]
    assert session.handle_sync("late__one", {}).code == "ok"
    assert "slack" not in session.get_listing()


@pytest.mark.requirement("R92")
def test_hiding_is_on_off_or_auto():
    """R92"""
    every = [tool.name for tool in catalog_of(41)]

    assert shown(session_of(catalog_of(41))) == META
    assert shown(session_of(catalog_of(41), hiding="off")) == every
    assert shown(session_of(catalog_of(41), hiding="auto")) == META
    assert shown(session_of(catalog_of(40), hiding="auto")) == every[:40]
    assert session_of(catalog_of(40), mode="auto").settings.hiding is Hiding.AUTO


@pytest.mark.requirement("R92")
def test_auto_also_hides_above_a_tenth_of_the_context_window():
    """R92"""
    cost = sum(map(count_definition_tokens, catalog_of(40)))

    wide = session_of(catalog_of(40), hiding="auto", context_window=10 * cost)
    narrow = session_of(catalog_of(40), hiding="auto", context_window=10 * cost - 10)
    assert len(shown(wide)) == 40
    assert shown(narrow) == META


@pytest.mark.requirement("R93")
def test_name_description_and_schema_count_towards_the_share():
    """R93"""
    text = "word " * 200
    schema = {"type": "object", "properties": {"a": {"type": "string", "description": text}}}
    plain = Tool.define("t", server="s")
    for heavy in (
        Tool.define("t", server="s", description=text),
        Tool.define("t", server="s", input_schema=schema),
    ):
        settings = {"hiding": "auto", "context_window": 2_000}

        assert shown(session_of(Catalog({"s": [plain]}), **settings)) == ["s__t"]
        assert shown(session_of(Catalog({"s": [heavy]}), **settings)) == META


@pytest.mark.requirement("R93")
def test_the_share_can_be_set_and_its_ends_mean_on_and_off():
    """R93: 0 = on, 100 = off."""
    auto = {"hiding": "auto", "context_window": 1_000}
    cost = sum(map(count_definition_tokens, catalog_of(20)))
    share = 100 * cost / 1_000

    assert shown(session_of(catalog_of(1), **auto, auto_share=0)) == META
    assert len(shown(session_of(catalog_of(99), **auto, auto_share=100))) == 99
    assert len(shown(session_of(catalog_of(20), **auto, auto_share=share))) == 20
    assert shown(session_of(catalog_of(20), **auto, auto_share=share - 1)) == META


@pytest.mark.requirement("R94")
def test_auto_moves_to_hiding_when_servers_connect_and_never_back():
    """R94: what was shown before stays in front, so that no byte of it moves."""
    catalog = catalog_of(40)
    session = session_of(catalog, hiding="auto")
    before = session.tools("openai-chat")
    catalog.replace("late", tools_of("late", "one", "two"))
    after = session.tools("openai-chat")
    catalog.remove("late")
    catalog.remove("many", [f"tool_{number:02}" for number in range(10, 40)])

    assert after[:40] == before
    assert names(after)[40:] == META
    assert shown(session) == [*(f"many__tool_{number:02}" for number in range(10)), *META]


@pytest.mark.requirement("R94")
def test_tools_shown_before_auto_began_to_hide_can_be_called_and_later_ones_are_found():
    """R94"""
    catalog = catalog_of(40)
    session = session_of(catalog, hiding="auto")
    session.tools("mcp")
    catalog.replace("late", tools_of("late", "one"))
    session.tools("mcp")

    assert session.handle_sync("many__tool_07", {}).code == "ok"
    assert session.handle_sync("late__one", {}).code == "not_loaded"
    assert session.search("select:late__one").references == ("late__one",)


@pytest.mark.requirement("R94")
def test_auto_that_stays_small_shows_late_tools_at_the_end():
    """R94"""
    catalog = catalog_of(3)
    session = session_of(catalog, hiding="auto")
    before = shown(session)
    catalog.replace("early", tools_of("early", "one"))

    assert shown(session) == [*before, "early__one"]
    assert session.system_prompt() == ""


@pytest.mark.requirement("R95")
def test_a_host_that_refuses_meta_tools_is_shown_all_tools_and_warned():
    """R95"""
    scout = Scout(small_catalog(), executors=run)
    session = scout.session("a", meta_allowed=False)

    assert shown(session) == [tool.name for tool in small_catalog()]
    assert session.system_prompt() == ""
    assert session.handle_sync("slack__send_message", {}).code == "ok"
    assert session.warnings == ["The host refuses the meta-tools: all tools are shown in full."]


@pytest.mark.requirement("R95")
def test_meta_tools_refused_in_a_later_run_are_not_shown_either():
    """R95"""
    store = MemoryStore()
    hiding = Scout(small_catalog(), store=store).session("a")
    assert shown(hiding) == META

    later = Scout(small_catalog(), store=store)
    refusing = later.session("a", meta_allowed=False)

    assert shown(refusing) == [tool.name for tool in small_catalog()]


@pytest.mark.parametrize("mode", [*Mode])
@pytest.mark.requirement("R98")
def test_prompt_section_and_meta_tools_do_not_depend_on_what_is_loaded(mode: Mode):
    """R98"""
    session, other = (session_of(small_catalog(), mode=mode) for _ in range(2))
    dialect = "openai-responses"
    before = session.system_prompt(), session.tools(dialect)[:3]
    session.search(["open an issue", "server:slack"])
    other.search("select:github__merge_branch")

    assert (session.system_prompt(), session.tools(dialect)[:3]) == before
    assert (other.system_prompt(), other.tools(dialect)[:3]) == before


@pytest.mark.requirement("R98")
def test_prompt_section_is_frozen_for_a_conversation_and_new_for_the_next():
    """R98"""
    catalog = small_catalog()
    scout = Scout(catalog)
    session = scout.session("a")
    before = session.tools("mcp"), session.system_prompt(listing=True)
    catalog.replace("late", tools_of("late", "one"))
    restored = scout.restore(session.to_json())

    assert (session.tools("mcp"), session.system_prompt(listing=True)) == before
    assert (restored.tools("mcp"), restored.system_prompt(listing=True)) == before
    assert "late" in scout.session("b").get_listing()


@pytest.mark.requirement("R99")
def test_tools_that_come_and_go_are_announced_once():
    """R99"""
    catalog = small_catalog()
    session = session_of(catalog)
    session.tools("mcp")
    catalog.add("slack", tools_of("slack", "archive_channel"))
    catalog.remove("github", ["list_issues"])

    assert session.announce_changes() == (
        "New hidden tools of slack: slack__archive_channel. Tools that are gone: "
        "github__list_issues."
    )
    assert session.announce_changes() == ""


@pytest.mark.requirement("R99")
def test_an_announcement_is_repeated_after_compaction_on_request():
    """R99: in full, as far as it differs from the listing."""
    catalog = small_catalog()
    session = session_of(catalog)
    session.tools("mcp")
    catalog.add("slack", tools_of("slack", "archive_channel"))
    first = session.announce_changes()
    catalog.remove("github")
    second = session.announce_changes()
    session.compact()

    assert "github" not in first
    assert "slack" not in second
    assert session.announce_changes() == f"{first} {second}"
    assert session.announce_changes() == ""
    assert session.announce_changes(again=True) == f"{first} {second}"


@pytest.mark.requirement("R99")
def test_announcements_survive_a_restart():
    """R99: where the names of a server are forgotten, it is told as a whole."""
    catalog = small_catalog()
    scout = Scout(catalog)
    session = scout.session("a")
    session.tools("mcp")
    state = session.to_json()
    catalog.add("late", tools_of("late", "one"))
    catalog.remove("slack")
    restored = scout.restore(state)

    assert restored.announce_changes() == (
        "New hidden tools of late: late__one. Tools that are gone: slack (all)."
    )
    assert restored.announce_changes() == ""


def test_a_tool_that_was_pinned_meanwhile_is_not_announced_as_gone():
    catalog = small_catalog()
    session = session_of(catalog)
    session.tools("mcp")
    state = session.to_json()
    session.pin("slack")
    restored = Scout(catalog, settings=Settings(pins=("slack",))).restore(state)

    assert session.announce_changes() == ""
    assert restored.announce_changes() == ""


def test_without_a_listing_there_is_nothing_to_announce():
    catalog = small_catalog()
    session = session_of(catalog, listing="off")
    session.tools("mcp")
    catalog.remove("slack")

    assert session.announce_changes() == ""


@pytest.mark.requirement("R105")
def test_meta_tools_are_left_out_with_nothing_to_hide_and_nothing_pending():
    """R105"""
    catalog = small_catalog()
    pinned = session_of(catalog, pins=["*"])
    assert shown(pinned) == [tool.name for tool in catalog]
    assert pinned.system_prompt() == ""

    catalog.set_pending("late")
    assert shown(session_of(catalog, pins=["*"]))[:3] == META


@pytest.mark.requirement("R105")
def test_meta_tools_stay_when_nothing_is_left_to_hide():
    """R105: decided once per session."""
    catalog = small_catalog()
    session = session_of(catalog)
    before = session.tools("mcp"), session.system_prompt()
    catalog.remove("github")
    catalog.remove("slack")

    assert (session.tools("mcp"), session.system_prompt()) == before
    assert names(before[0]) == META


@pytest.mark.requirement("R105")
def test_meta_tools_left_out_join_at_the_end_once_there_is_something_to_hide():
    """R105, in the one direction that R94 allows."""
    catalog = Catalog({"own": tools_of("own", "one")})
    session = session_of(catalog, pins=["own"])
    before = session.tools("mcp")
    catalog.replace("late", tools_of("late", "two"))

    assert names(before) == ["own__one"]
    assert shown(session) == ["own__one", *META]


@pytest.mark.requirement("R107")
def test_the_cache_key_changes_with_the_bytes_of_a_request():
    """R107"""
    catalog = small_catalog()
    bridge, native = session_of(catalog), session_of(catalog, mode="native")
    before = bridge.cache_key("mcp"), native.cache_key("mcp")
    for session in (bridge, native):
        session.search("select:slack__send_message")

    assert before[0] == before[1]
    assert bridge.cache_key("mcp") == before[0]
    assert native.cache_key("mcp") != before[1]
    assert native.cache_key("anthropic") != native.cache_key("mcp")
    assert len(before[0]) == 16
