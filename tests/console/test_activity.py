"""What a gateway did lately, within bounds."""

from toolscout.console.activity import EVENTS_KEPT, JOURNALS_KEPT, LATENCIES_KEPT, Chronicle
from toolscout.gateway.auth import Principal
from toolscout.sessions.events import Called

BOB = Principal(name="bob")


def chronicle() -> Chronicle:
    return Chronicle(lambda tool: tool.partition("__")[0], clock=lambda: 5.0)


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
    kept = chronicle()
    for number in range(LATENCIES_KEPT + 100):
        kept.hear(call("a__x", float(number)))
    kept.hear(call("b__x", code="tool_error"))
    kept.hear(call("b__x", made=False, code="server_unavailable"))
    kept.hear(call("b__x", made=False, code="invalid_arguments"))

    a, b, c = (kept.ledger(server) for server in "abc")
    assert (a.calls, a.errors, a.quantile(0.5), a.quantile(0.95)) == (600, 0, 350.0, 575.0)
    assert (b.calls, b.errors) == (1, 2)
    assert (c.calls, c.quantile(0.5)) == (0, None)


def test_conversations_and_their_events_are_bounded_and_the_latest_stay():
    kept = chronicle()
    for number in range(JOURNALS_KEPT + 10):
        kept.meet(f"session {number}", BOB, "client 1")
    for _ in range(EVENTS_KEPT + 10):
        kept.hear(call("a__x", session="session 12"))
    for number in range(5):
        kept.meet(f"later {number}", BOB, "")

    names = [name for name, _ in kept.journals()]
    assert len(names) == JOURNALS_KEPT
    assert "session 12" in names
    assert not {"session 9", "session 14"} & set(names)
    busy = dict(kept.journals())["session 12"]
    assert (busy.calls, len(kept.happenings(busy))) == (EVENTS_KEPT + 10, EVENTS_KEPT)


def test_the_name_of_a_session_is_not_its_key():
    kept = chronicle()

    journal = kept.meet("http:secret-session-id", BOB, "client 1")

    assert "secret" not in journal.id
    assert journal.id == kept.meet("http:secret-session-id", BOB, "").id
    assert journal.client == "client 1"
