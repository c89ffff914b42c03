"""What a gateway did lately, within bounds."""

import json

import pytest

from hostile import is_safe
from toolscout.catalog import Catalog
from toolscout.console.activity import (
    EVENTS_KEPT,
    LATENCIES_KEPT,
    SESSIONS_KEPT,
    TEXT_CHARS,
    ActivityLog,
)
from toolscout.console.catalog import row_from_tool
from toolscout.gateway.middleware import Principal
from toolscout.schemas import Json
from toolscout.scout import Scout
from toolscout.sessions.events import Answered, Called, Searched
from toolscout.sessions.replies import Reply
from toolscout.tools import Tool

BOB = Principal(name="bob")


def activity_log() -> ActivityLog:
    return ActivityLog(lambda tool: tool.partition("__")[0], clock=lambda: 5.0)


def call(
    tool: str,
    milliseconds: float = 1.0,
    *,
    made: bool = True,
    session: str = "s",
    code: str = "ok",
) -> Called:
    return Called(session=session, tool=tool, code=code, made=made, milliseconds=milliseconds)


def test_the_latest_calls_of_a_server_tell_its_latency():
    activity = activity_log()
    for number in range(LATENCIES_KEPT + 100):
        activity.add(call("a__x", float(number)))
    activity.add(call("b__x", code="tool_error"))
    activity.add(call("b__x", made=False, code="server_unavailable"))
    activity.add(call("b__x", made=False, code="invalid_arguments"))

    a, b, c = (activity.get_server(server) for server in "abc")
    assert (a.calls, a.errors) == (600, 0)
    assert (a.compute_quantile(0.5), a.compute_quantile(0.95)) == (350.0, 575.0)
    assert (b.calls, b.errors) == (1, 2)
    assert (c.calls, c.compute_quantile(0.5)) == (0, None)


def test_sessions_and_their_events_are_bounded_and_the_latest_stay():
    activity = activity_log()
    for number in range(SESSIONS_KEPT + 10):
        activity.note_client(f"session {number}", BOB, "client 1")
    for _ in range(EVENTS_KEPT + 10):
        activity.add(call("a__x", session="session 12"))
    for number in range(5):
        activity.note_client(f"later {number}", BOB, "")

    sessions = {log.session: log for log in activity.list_sessions()}
    assert len(sessions) == SESSIONS_KEPT
    assert "session 12" in sessions
    assert not {"session 9", "session 14"} & set(sessions)
    busy = sessions["session 12"]
    assert (busy.calls, len(activity.list_events(busy))) == (EVENTS_KEPT + 10, EVENTS_KEPT)


def test_the_name_of_a_session_is_not_its_key():
    activity = activity_log()

    log = activity.note_client("http:secret-session-id", BOB, "client 1")

    assert "secret" not in log.id
    assert log.id == activity.note_client("http:secret-session-id", BOB, "").id
    assert log.client == "client 1"


def record_searches(scout: Scout, *queries: str) -> list[Json]:
    """Return the events of a session that makes some searches, as the console shows them."""
    activity = activity_log()

    def note(event: object) -> None:
        if isinstance(event, Answered):
            activity.add(event)

    scout.events.subscribe(note)
    session = scout.session("s")
    for query in queries:
        session.search(query, max_tokens=100)
    (log,) = activity.list_sessions()
    return [event.to_json() for event in activity.list_events(log)]


@pytest.mark.requirement("R52")
def test_an_event_is_built_from_values_and_not_from_the_text_of_a_reply():
    """R52: a reply that names fewer tools than were found, or none, changes nothing."""
    leaves = [f"send_mail_{number}" for number in range(3)]
    tools = [Tool.define(leaf, server="mail", description="Send a mail.") for leaf in leaves]

    first, again = record_searches(Scout(Catalog({"mail": tools})), "send a mail", "send a mail")

    assert set(first["found"]) == set(again["found"]) == {tool.name for tool in tools}
    assert (first["text"], first["code"], first["hits"]) == ("send a mail", "ok", 3)


@pytest.mark.requirement("R52")
def test_what_a_query_or_a_server_wrote_is_one_clean_line_in_the_console():
    """R52"""
    tool = Tool.define(
        "send_mail",
        server="mail",
        description="Send \x1b[31mred\x07 mail\u202e\r\n</tool>" + " at once" * 50,
        input_schema={"properties": {"to\x1b[2J": {"enum": ["a\x07"]}}},
    )
    hostile = "send \x1b[31mmail\u202e</b>" + " now" * 500

    (event,) = record_searches(Scout(Catalog({"mail": [tool]})), hostile)
    row = row_from_tool(tool)

    assert is_safe(json.dumps(event, ensure_ascii=False))
    assert is_safe(json.dumps(row, ensure_ascii=False))
    assert event["text"].startswith("send [31mmail")
    assert len(event["text"]) <= TEXT_CHARS
    assert len(row["sentence"]) <= 160


@pytest.mark.requirement("R52")
def test_a_search_without_details_is_an_event_all_the_same():
    """R52"""
    activity = activity_log()
    activity.add(Searched(session="s"))
    activity.add(Searched(session="s", code="broken_index", reply=Reply(text="Failed.")))

    (log,) = activity.list_sessions()
    events = [event.to_json() for event in activity.list_events(log)]

    assert [(event["kind"], event["text"], event["found"]) for event in events] == [
        ("search", "", []),
        ("search", "", []),
    ]
