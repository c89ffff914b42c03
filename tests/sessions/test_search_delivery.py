"""How an answer to a search reaches the model where the provider takes definitions."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolscout import Catalog, Mode, Scout, Session, Settings, Tool
from toolscout.schemas import Json
from toolscout.sessions.record import Record
from toolscout.settings import Route

DIALECT = "openai-responses"
LEAVES = ("create_issue", "list_issues", "merge_branch", "close_issue")


def catalog() -> Catalog:
    schema = {"type": "object", "properties": {"title": {"type": "string"}}}
    tools = [
        Tool.define(leaf, server="github", description=f"{leaf}.", input_schema=schema)
        for leaf in LEAVES
    ]
    return Catalog({"github": tools})


def scout(**settings: Any) -> Scout:
    chosen = Settings(mode=Mode.DEFINITIONS, **settings)
    return Scout(catalog(), executors=lambda tool, arguments: "ok", settings=chosen)


def search(session: Session, *queries: str) -> Json:
    return session.handle_sync("tool_search", {"queries": [*queries]}).to_message(DIALECT, "c1")


def names(output: Json) -> list[str]:
    return [definition["name"] for definition in output["tools"]]


def notes(output: Json) -> list[str]:
    return [d["description"] for d in output["tools"] if d["name"].startswith("search_note_")]


def test_a_search_is_answered_with_definitions_of_what_it_loaded():
    session = scout().session("a")
    output = search(session, "select:github__create_issue")

    assert output["type"] == "tool_search_output"
    assert names(output) == ["github__create_issue"]
    assert output["tools"][0]["parameters"]["properties"] == {"title": {"type": "string"}}
    assert session.handle_sync("github__create_issue", {"title": "x"}).code == "ok"


def test_known_tools_are_delivered_again_only_if_nothing_else_was_found():
    session = scout().session("a")
    search(session, "select:github__create_issue")
    both = search(session, "select:github__create_issue,github__list_issues")
    same = search(session, "select:github__create_issue")

    assert names(both) == ["github__list_issues"]
    assert names(same) == ["github__create_issue"]


def test_after_compaction_a_found_tool_is_delivered_again():
    session = scout().session("a")
    search(session, "select:github__create_issue")
    session.compact()
    output = search(session, "select:github__create_issue,github__list_issues")

    assert names(output) == ["github__create_issue", "github__list_issues"]


@pytest.mark.parametrize("loading", ["describe", "keyword"])
def test_the_next_search_delivers_a_tool_that_was_loaded_otherwise(loading: str):
    routes = {"github__create_issue": Route(keywords=("bug",))}
    session = scout(routes=routes).session("a")
    if loading == "describe":
        session.describe("github__create_issue")
    else:
        session.user_message("there is a bug")
    assert session.loaded == ("github__create_issue",)
    output = search(session, "select:github__create_issue,github__list_issues")

    assert names(output) == ["github__create_issue", "github__list_issues"]


@pytest.mark.parametrize("query", ["zzqqy", "", "select:nothing", "discover: merge branch"])
def test_a_search_that_loads_nothing_is_answered_with_a_note(query: str):
    session = scout().session("a")
    reply = session.handle_sync("tool_search", {"queries": [query]})
    output = reply.to_message(DIALECT, "c1")

    assert session.loaded == ()
    assert len(output["tools"]) == len(notes(output)) == 1
    assert reply.text[:40].split("\n")[0] in notes(output)[0]


def test_a_search_that_finds_only_pinned_tools_says_so_and_declares_none_twice():
    session = scout(pins=("github__create_issue",)).session("a")
    output = search(session, "select:github__create_issue")

    assert "Already among your tools: github__create_issue." in notes(output)[0]


def test_a_note_that_is_called_leads_back_to_the_search():
    session = scout().session("a")
    note = names(search(session, "zzqqy"))[0]
    reply = session.handle_sync(note, {})

    assert reply.is_error
    assert "tool_search" in reply.text


def test_describing_answers_with_text_and_a_call_goes_through_tool_call():
    session = scout().session("a")
    reply = session.handle_sync("tool_describe", {"names": ["github__create_issue"]})

    assert reply.to_message(DIALECT, "c1")["type"] == "function_call_output"
    assert "Next: tool_call" in reply.text


def test_a_changed_definition_is_refused_once_because_no_request_carries_it():
    scouting = scout()
    session = scouting.session("a")
    search(session, "select:github__create_issue")
    other = Tool.define("create_issue", server="github", description="Other.")
    scouting.catalog.add("github", [other])

    assert session.handle_sync("github__create_issue", {}).code == "tool_changed"
    assert names(search(session, "select:github__create_issue")) == ["github__create_issue"]
    assert session.handle_sync("github__create_issue", {}).code == "ok"


@given(
    st.lists(
        st.lists(
            st.sampled_from([*(f"select:github__{leaf}" for leaf in LEAVES), "issue", "zzqqy"]),
            min_size=1,
            max_size=3,
        ),
        max_size=5,
    )
)
def test_a_session_rebuilt_from_its_conversation_has_loaded_the_same(searches: list[list[str]]):
    scouting = scout()
    session = scouting.session("a")
    items: list[Json] = []
    for number, queries in enumerate(searches):
        reply = session.handle_sync("tool_search", {"queries": queries})
        call = {"type": "tool_search_call", "call_id": f"c{number}", "execution": "client"}
        call |= {"arguments": {"queries": queries}}
        items += [call, reply.to_message(DIALECT, f"c{number}")]
    rebuilt = scouting.rebuild("b", json.loads(json.dumps(items)))

    assert rebuilt.loaded == session.loaded
    assert Record.from_json(rebuilt.to_json()).shown == Record.from_json(session.to_json()).shown
