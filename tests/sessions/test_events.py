"""Events and logs: what happened, in numbers and codes, and nothing that was said."""

import asyncio
import logging
from collections.abc import Iterator
from dataclasses import replace
from itertools import count
from typing import Any

import pytest

from toolscout import Catalog, Event, Permission, Policy, Scout, Session, Settings, Tool
from toolscout.schemas import Json
from toolscout.sessions.events import Answered, Called, Described, EventStream, Searched

SECRET = "hunter2"


# Asynchronous: what never waits cannot be late, however short its time.
async def greet(name: str) -> str:
    """Greet somebody by name."""
    return f"Hello {name}"


async def fail(name: str) -> str:
    """Fail with a message."""
    raise ValueError(f"{name} is not welcome")


async def wait(name: str) -> str:
    """Wait for a sign that never comes."""
    await asyncio.Event().wait()
    return name


def watched(**options: Any) -> tuple[Session, list[Event]]:
    """Return a session and what it will tell; every look at the timer takes 10 ms."""
    events: list[Event] = []
    catalog = Catalog({"local": [greet, fail, wait], "far": [Tool.define("x", server="far")]})
    looks = count()
    scout = Scout(
        catalog,
        on_event=events.append,
        timer=lambda: next(looks) / 100,
        **options,
    )
    return scout.session("s"), events


def take(events: list[Event]) -> list[Event]:
    """Return the events so far without what depends on the wording of replies, and forget them."""
    taken: list[Event] = []
    for event in events:
        assert isinstance(event, Answered)
        taken.append(replace(event, tokens=0, milliseconds=0))
    events.clear()
    return taken


@pytest.mark.requirement("R106")
def test_a_search_is_one_event_that_says_what_it_found_and_loaded():
    """R106"""
    session, events = watched()

    reply = session.search("select:local__greet,local__fail")

    [event] = events
    assert isinstance(event, Searched)
    assert event.reply == reply
    assert event.tokens == reply.tokens
    assert event.milliseconds == pytest.approx(10)
    assert take(events) == [Searched(session="s", form="select", hits=2, loaded=2)]


@pytest.mark.requirement("R106")
@pytest.mark.parametrize(
    ("query", "form", "code"),
    [
        ("repair the +washing machine", "words", "no_match"),
        ("select:nothing", "select", "no_match"),
        ("zzz*", "prefix", "no_match"),
        ("/zzz/", "pattern", "no_match"),
        ("", "", "invalid_query"),
    ],
)
def test_a_search_without_a_hit_is_one_event(query: str, form: str, code: str):
    """R106"""
    session, events = watched()

    session.search(query)

    assert take(events) == [Searched(session="s", form=form, code=code)]


@pytest.mark.requirement("R106")
def test_a_description_is_one_event_that_says_what_it_loaded():
    """R106"""
    session, events = watched()

    session.describe("local__greet")
    session.describe("local__greet")

    assert take(events) == [Described(session="s", loaded=1), Described(session="s")]


@pytest.mark.requirement("R106")
def test_every_call_and_every_refusal_is_one_event():
    """R106"""
    session, events = watched(settings=Settings(call_seconds=0.001))
    session.describe(["local__greet", "local__fail", "local__wait"])
    events.clear()

    session.call_sync("local__greet", {"name": "you"})
    session.call_sync("local__fail", {"name": "you"})
    session.call_sync("local__wait", {"name": "you"})
    session.call_sync("local__greet", {})
    session.call_sync("far__x", {})
    session.call_sync("nothing", {})
    session.handle_sync("tool_call", {})

    assert take(events) == [
        Called(session="s", tool="local__greet", server="local", effect="unknown"),
        Called(
            session="s", tool="local__fail", server="local", effect="unknown", code="call_failed"
        ),
        Called(session="s", tool="local__wait", server="local", effect="unknown", code="timed_out"),
        Called(
            session="s",
            tool="local__greet",
            server="local",
            effect="unknown",
            code="invalid_arguments",
            made=False,
        ),
        Called(
            session="s",
            tool="far__x",
            server="far",
            effect="unknown",
            code="not_loaded",
            made=False,
        ),
        Called(session="s", code="unknown_tool", asked="nothing", made=False),
        Called(session="s", code="invalid_request", made=False),
    ]


@pytest.mark.requirement("R106")
def test_a_call_that_loads_its_tool_says_so():
    """R106"""
    session, events = watched(settings=Settings(calls_by_name=True))

    session.call_sync("local__greet", {"name": "you"})

    assert take(events) == [
        Called(session="s", tool="local__greet", server="local", effect="unknown", loaded=1)
    ]


def test_a_listener_that_unsubscribed_gets_no_events():
    events: list[Event] = []
    stream = EventStream()
    unsubscribe = stream.subscribe(events.append)

    stream.emit(Event(session="first"))
    unsubscribe()
    stream.emit(Event(session="second"))

    assert events == [Event(session="first")]
    assert not stream.listeners


def test_a_listener_that_fails_costs_neither_a_reply_nor_other_listeners(
    caplog: pytest.LogCaptureFixture,
):
    def fail_at(_: Event) -> None:
        raise RuntimeError("the meter is full")

    events: list[Event] = []
    scout = Scout(Catalog({"local": [greet, fail]}), on_event=fail_at)
    scout.events.subscribe(events.append)

    assert scout.session("s").search("select:local__greet").code == "ok"
    assert take(events) == [Searched(session="s", form="select", hits=1, loaded=1)]
    assert "An event listener failed" in caplog.text


def whatever_a_model_does(session: Session) -> Iterator[object]:
    """Do everything with a secret in what is asked, sent, answered or wrong."""
    yield session.search([f"greet {SECRET}", f"select:{SECRET}", f"server:{SECRET}", f"/{SECRET}/"])
    yield session.describe([SECRET, "local__greet", "local__fail", "local__wait"])
    yield session.call_sync("local__greet", {"name": SECRET})
    yield session.call_sync("local__greet", {"nam": SECRET})
    yield session.call_sync("local__fail", {"name": SECRET})
    yield session.call_sync("local__wait", {"name": SECRET})
    yield session.call_sync(SECRET, {"name": SECRET})
    yield session.handle_sync("tool_call", SECRET)
    yield session.handle_sync(SECRET, {"name": SECRET})
    yield session.user_message(f"My password is {SECRET}")


@pytest.mark.requirement("R108")
def test_no_query_argument_or_answer_is_logged_or_in_an_event(
    caplog: pytest.LogCaptureFixture,
):
    """R108"""
    caplog.set_level(logging.INFO)
    session, events = watched(settings=Settings(call_seconds=0.001, suggest=True))

    assert len(list(whatever_a_model_does(session))) == 10

    assert "A call of local__fail failed with ValueError." in caplog.text
    assert SECRET not in caplog.text
    assert not [record for record in caplog.records if record.exc_info]
    assert SECRET not in repr(events)


@pytest.mark.requirement("R108")
def test_a_policy_that_breaks_is_logged_without_what_it_saw(caplog: pytest.LogCaptureFixture):
    """R108"""

    def permit(_: Tool, arguments: Json) -> Permission:
        raise KeyError(arguments["name"])

    caplog.set_level(logging.INFO)
    session, _ = watched(policy=Policy(permit=permit))
    session.describe("local__greet")

    assert session.call_sync("local__greet", {"name": SECRET}).code == "broken_policy"
    assert "A request of a session failed with BrokenPolicy." in caplog.text
    assert SECRET not in caplog.text


@pytest.mark.requirement("R108")
def test_a_failure_is_logged_in_full_at_debug_level(caplog: pytest.LogCaptureFixture):
    """R108"""
    caplog.set_level(logging.DEBUG, logger="toolscout")
    session, _ = watched()
    session.describe("local__fail")

    session.call_sync("local__fail", {"name": "Bob"})

    told = [record for record in caplog.records if record.exc_info]
    assert [record.levelno for record in told] == [logging.DEBUG]
    assert "ValueError: Bob is not welcome" in caplog.text
