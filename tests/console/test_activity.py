"""What a gateway did lately, within bounds."""

from toolscout.console.activity import EVENTS_KEPT, LATENCIES_KEPT, SESSIONS_KEPT, ActivityLog
from toolscout.gateway.middleware import Principal
from toolscout.sessions.events import Called

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
