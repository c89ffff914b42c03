"""The console of a running gateway before real servers, asked as its page asks it."""

import asyncio
import json
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx2
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from console.asking import Asker, Json, converse
from console.fixtures import wait_for_entries
from gateway.fleet import text_of
from servers.browsing import logged_in, visit
from servers.oauthserver import oauth_world
from serving import DEADLINE_SECONDS, MISSING, TIME, eventually, served
from toolscout.config.references import forget_secrets
from toolscout.config.servers import ServerConfig, Transport
from toolscout.console.servers import STATES
from toolscout.console.waiting import STATES as CALL_STATES
from toolscout.gateway.audit import AuditRecord
from toolscout.lint.rules import Severity
from toolscout.search.hits import Confidence
from toolscout.servers.approvals import Approvals, Change, Lock
from toolscout.servers.manifest import Manifest
from toolscout.servers.oauth.encrypted_logins import EncryptedLogins
from toolscout.servers.oauth.login import LoginState
from toolscout.sessions.events import Called
from toolscout.stores.memory import MemoryStore
from toolscout.tools import Effect

CHANGING = Path(__file__).parents[1] / "security" / "changing_server.py"
NOW = {"name": "time__get_current_time", "arguments": {"timezone": "UTC"}}
WRONG = {"name": "time__get_current_time", "arguments": {"timezone": "Nowhere/Land"}}
SEARCH = ("tool_search", {"queries": ["what time is it now"]})
DESCRIBE = ("tool_describe", {"names": ["time__convert_time"]})
TALK: list[tuple[str, Json]] = [SEARCH, DESCRIBE, ("tool_call", NOW), ("tool_call", WRONG)]
SECRET = "hunter2-hunter2"
CHATTY = ServerConfig(
    name="chatty",
    transport=Transport.STDIO,
    command=sys.executable,
    args=("-c", "import os, sys; print('my key is', os.environ['API_KEY'], file=sys.stderr)"),
    env={"API_KEY": SECRET},
)


@pytest.fixture(scope="module")
def live() -> Iterator[Asker]:
    """A console behind which somebody has searched, described and called."""
    with served(TIME, MISSING, CHATTY, console=True) as running:
        assert running.known.wait(DEADLINE_SECONDS)
        asyncio.run(converse(running.url, TALK))
        yield Asker(running.url)


@pytest.fixture(scope="module")
def guarded() -> Iterator[tuple[Asker, Asker]]:
    """Ann, who sees everything, and Bob, who sees one tool; Ann has searched."""
    with served(
        TIME,
        MISSING,
        console=True,
        tokens={
            "ann": {"token": "open sesame"},
            "bob": {"token": "swordfish", "profile": "some"},
        },
        profiles={"some": {"tools": ["*convert*"], "servers": ["time"]}},
    ) as running:
        assert running.known.wait(DEADLINE_SECONDS)
        asyncio.run(converse(running.url, TALK, "open sesame"))
        yield Asker(running.url, "open sesame"), Asker(running.url, "swordfish")


def by_name(rows: list[Json]) -> dict[str, Json]:
    return {row["name"]: row for row in rows}


def test_the_overview_says_what_there_is_and_what_may_be_done(live: Asker):
    told = live.get("/overview")

    assert (told["host"], told["tools"], told["principal"]) == ("gateway", 2, "anonymous")
    assert told["servers"]["ready"] == 1
    assert told["docs"].startswith("https://")
    assert told["encoders"][:2] == ["static", "lexical"]
    assert told["tokens"]["all_definitions"] > 0
    assert told["waiting"] == 0
    can = told["capabilities"]
    assert [can[key] for key in ("start", "stop", "restart", "log", "sessions")] == [True] * 5
    assert not can["login"]  # there is no folder for tokens
    assert not can["call"]


@pytest.mark.parametrize("encoder", ["", "static", "lexical"])
def test_a_search_gives_the_share_of_each_signal_in_a_hit(live: Asker, encoder: str):
    told = live.get("/search", q="current time in a timezone", limit=1, encoder=encoder)

    [hit] = told["hits"]
    assert hit["name"] == "time__get_current_time"
    assert sum(hit["signals"].values()) == pytest.approx(1, abs=0.001)
    assert hit["matched"]["time"][0] == "name"
    assert hit["signals"]["meaning"] == 0 if encoder == "lexical" else hit["signals"]["meaning"] > 0
    assert told["reply"]["text"].startswith("Found for 'current time in a timezone':")


def test_a_search_in_the_console_is_not_counted(live: Asker):
    before = live.get("/sessions")

    live.get("/search", q="convert a time between zones")

    assert live.get("/sessions") == before


def test_the_api_explains_what_keeps_a_tool_out_of_a_result(live: Asker):
    told = live.get("/why", q="what time is it now", tool="time__convert_time")
    narrow = live.get("/why", q="effect:destructive time", tool="time__convert_time")

    assert told["rank"] == 2
    assert told["best"]["name"] == "time__get_current_time"
    assert "1 other tool fits better." in told["reasons"]
    assert narrow["rank"] is None
    assert narrow["reasons"][0].startswith("The query asks for effect:destructive")


@pytest.mark.parametrize(
    ("path", "parameters", "expected"),
    [
        ("/search", {}, (400, "missing")),
        ("/search", {"q": "/[/"}, (400, "invalid_query")),
        ("/search", {"q": "time", "limit": "many"}, (400, "no_number")),
        ("/search", {"q": "time", "encoder": "magic"}, (400, "unknown_encoder")),
        ("/why", {"q": "time", "tool": "time__nothing"}, (404, "unknown_tool")),
        ("/tools", {"sort": "beauty"}, (400, "bad_sort")),
        ("/tools/time__nothing", {}, (404, "unknown_tool")),
        ("/servers/nobody/log", {}, (404, "unknown_server")),
        ("/sessions/unknown", {}, (404, "unknown_session")),
        ("/map", {"encoder": "lexical"}, (409, "no_vectors")),
        ("/nothing", {}, (404, "not_found")),
    ],
)
def test_an_error_has_a_status_and_a_code(
    live: Asker, path: str, parameters: Json, expected: tuple[int, str]
):
    assert live.problem(path, **parameters) == expected


def test_actions_take_post_and_everything_else_does_not(live: Asker):
    assert live.problem("/servers/time/start") == (404, "not_found")
    assert live.problem("/servers/time/explode", "POST") == (404, "unknown_action")
    refused = live.send("POST", "/api/overview")
    assert (refused.status_code, "POST" in refused.headers["allow"]) == (405, False)


def test_the_catalogue_has_pages_filters_and_groups(live: Asker):
    everything = live.get("/tools", sort="tokens")
    second = live.get("/tools", offset=1, limit=1)
    named = live.get("/tools", q="CONVERT zones", server="time")

    assert everything["total"] == 2
    tokens = [row["tokens"] for row in everything["tools"]]
    assert tokens == sorted(tokens, reverse=True)
    assert [row["name"] for row in second["tools"]] == ["time__get_current_time"]
    assert [row["name"] for row in named["tools"]] == ["time__convert_time"]
    for wrong in ({"effect": "destructive"}, {"server": "missing"}, {"kind": "prompt"}):
        assert live.get("/tools", **wrong)["total"] == 0
    assert live.get("/facets")["servers"] == [{"name": "time", "tools": 2, "tokens": sum(tokens)}]


def test_a_tool_comes_with_its_schema_and_nearest_tools(live: Asker):
    told = live.get("/tools/time__convert_time")

    assert "source_timezone" in told["input_schema"]["properties"]
    assert [near["name"] for near in told["near"]] == ["time__get_current_time"]


def test_servers_have_a_state_and_counts_of_calls(live: Asker):
    rows: dict[str, Any] = {}

    def has_failed() -> bool:  # it is tried again now and then
        rows.update(by_name(live.get("/servers")))
        return rows["missing"]["state"] == "failed"

    asyncio.run(eventually(has_failed))
    assert (rows["time"]["state"], rows["time"]["tools"]) == ("ready", 2)
    assert (rows["time"]["calls"], rows["time"]["errors"]) == (2, 1)
    assert rows["time"]["latency_ms"]["p95"] >= rows["time"]["latency_ms"]["p50"] > 0
    assert rows["time"]["actions"] == ["stop", "restart"]
    assert rows["missing"]["actions"] == ["start"]
    assert rows["missing"]["reason"]


def test_the_log_of_a_server_is_shown_without_its_secrets(live: Asker):
    lines = [line["text"] for line in live.get("/servers/chatty/log")["lines"]]

    assert "my key is …" in lines
    assert SECRET not in live.send("GET", "/api/servers").text


def test_a_session_lists_what_it_searched_found_and_called(live: Asker):
    [row] = live.get("/sessions")["sessions"]
    told = live.get(f"/sessions/{row['id']}")

    assert (row["searches"], row["calls"], row["principal"]) == (1, 2, "anonymous")
    assert "mcp" in row["client"]
    happened = [(e["kind"], e["text"], e["tool"], e["code"]) for e in told["events"]]
    assert ("search", "what time is it now", "", "ok") in happened
    assert ("describe", "time__convert_time", "", "ok") in happened
    called = [event[2:] for event in happened if event[0] == "call"]
    assert called == [("time__get_current_time", "ok"), ("time__get_current_time", "tool_error")]
    loaded = by_name(told["loaded"])
    assert loaded["time__get_current_time"]["query"] == "what time is it now"
    assert row["loaded"] == len(loaded) == 2


def test_savings_add_up(live: Asker):
    told = live.get("/savings", hours=3)
    [session] = live.get("/sessions")["sessions"]

    assert len(told["points"]) == 3
    total = told["total"]
    spent = total["menu"] + total["replies"] + total["descriptions"]
    assert total["not_sent"] == sum(row["not_sent"] for row in told["by_server"]) > 0
    assert total["net"] == total["not_sent"] - spent
    assert sum(point["net"] for point in told["points"]) == total["net"]
    assert (session["tokens_used"], session["tokens_saved"]) == (spent, total["net"])


def test_savings_survive_a_restart():
    store = MemoryStore()
    with served(TIME, console=True, store=store) as running:
        assert running.known.wait(DEADLINE_SECONDS)
        asyncio.run(converse(running.url, TALK))
        before = Asker(running.url).get("/savings")

    with served(TIME, console=True, store=store) as running:
        assert Asker(running.url).get("/savings")["total"] == before["total"]


def test_the_map_places_all_tools_and_a_query_among_them(live: Asker):
    told = live.get("/map")
    point = live.get("/map/point", q="what time is it now")

    assert told["tools"] == ["time__convert_time", "time__get_current_time"]
    assert [told["servers"][number] for number in told["server_of"]] == ["time", "time"]
    assert point["hits"][0] == 1


def test_a_server_is_stopped_and_started_by_hand():
    with served(TIME, console=True) as running:
        assert running.known.wait(DEADLINE_SECONDS)
        asker = Asker(running.url)

        assert asker.post("/servers/time/stop")["state"] == "stopped"
        stopped = by_name(asker.get("/servers"))["time"]
        assert stopped["actions"] == ["start"]
        assert asker.post("/servers/time/start")["state"] == "ready"
        again = asker.post("/servers/time/restart")
        assert (again["state"], again["restarts"]) == ("ready", 2)


def test_a_start_that_fails_says_why(live: Asker):
    assert live.problem("/servers/missing/start", "POST") == (409, "server_unavailable")


# Who may see and do what


def test_without_a_token_only_the_page_is_served(guarded: tuple[Asker, Asker]):
    stranger = Asker(guarded[0].url)

    assert stranger.send("GET", "/").status_code == 200
    for path in guarded[0].document()["paths"]:
        assert stranger.send("GET", path).status_code == 401, path
    assert stranger.send("POST", "/api/servers/time/stop").status_code == 401


def test_a_page_of_another_origin_or_name_is_refused(guarded: tuple[Asker, Asker]):
    ann, _ = guarded

    stop = "/api/servers/time/stop"
    assert ann.send("POST", stop, headers={"Origin": "https://evil.example"}).status_code == 403
    assert ann.send("GET", "/", headers={"Host": "evil.example"}).status_code == 421


def test_a_profile_narrows_every_answer(guarded: tuple[Asker, Asker]):
    ann, bob = guarded
    hidden = "time__get_current_time"

    assert bob.get("/overview")["tools"] == 1
    assert [hit["name"] for hit in bob.get("/search", q="time")["hits"]] == ["time__convert_time"]
    assert hidden not in bob.send("GET", "/api/search?q=what+time+is+it+now").text
    assert bob.problem("/why", q="time", tool=hidden) == (404, "unknown_tool")
    assert [row["name"] for row in bob.get("/tools")["tools"]] == ["time__convert_time"]
    assert bob.problem(f"/tools/{hidden}") == (404, "unknown_tool")
    assert bob.get("/tools/time__convert_time")["near"] == []
    assert bob.get("/facets")["servers"][0]["tools"] == 1
    assert [row["name"] for row in bob.get("/servers")] == ["time"]
    assert bob.get("/servers")[0]["tools"] == 1
    assert bob.get("/map")["tools"] == ["time__convert_time"]
    assert bob.get("/map/point", q="what time is it now")["hits"] == [0]
    assert ann.get("/overview")["tools"] == 2


def test_a_profile_offers_no_action_and_refuses_each(guarded: tuple[Asker, Asker]):
    _, bob = guarded

    can = bob.get("/overview")["capabilities"]
    assert [can[key] for key in ("start", "stop", "restart", "log", "login")] == [False] * 5
    assert bob.get("/servers")[0]["actions"] == []
    for action in ("start", "stop", "restart", "login", "approve", "reject"):
        assert bob.problem(f"/servers/time/{action}", "POST")[0] == 403
    assert bob.problem("/servers/time/log") == (403, "limited")
    assert bob.problem("/servers/time/approvals") == (403, "limited")
    assert bob.problem("/servers/missing/start", "POST") == (404, "unknown_server")


def test_held_definitions_are_shown_approved_and_rejected(tmp_path: Path):
    lists = tmp_path / "lists.json"
    notes = replace(TIME, name="notes", args=(str(CHANGING), str(lists)))
    read = {"name": "read", "description": "Read.", "inputSchema": {"type": "object"}}
    erase = {"name": "erase", "inputSchema": {"type": "object"}}
    store = MemoryStore()
    Approvals(store).check(notes, Manifest(tools=(read,)))
    lists.write_text(json.dumps({"tools": [{**read, "description": "Read all."}, erase]}))
    with served(notes, store=store, console=True) as running:
        asker = Asker(running.url)
        asker.post("/servers/notes/start")

        [row] = asker.get("/servers")
        assert (row["held"], row["tools"]) == (2, 0)
        assert asker.get("/overview")["capabilities"]["approve"]
        changed, new = asker.get("/servers/notes/approvals")["held"]
        assert (changed["name"], changed["change"]) == ("notes__read", "changed")
        assert changed["diff"] == ["description", "  - Read.", "  + Read all."]
        assert (new["name"], new["change"]) == ("notes__erase", "new")

        late = asker.problem("/servers/notes/approve", "POST", id=["0" * 16, changed["id"]])
        assert late == (409, "changed_again")
        assert asker.problem("/servers/notes/approve", "POST") == (409, "changed_again")
        left = asker.post("/servers/notes/approve", id=changed["id"])
        assert [held["name"] for held in left["held"]] == ["notes__erase"]
        left = asker.post("/servers/notes/reject", id=new["id"])
        assert [held["rejected"] for held in left["held"]] == [True]
        [row] = asker.get("/servers")
        assert (row["held"], row["tools"]) == (0, 1)
        assert asker.get("/tools/notes__read")["description"] == "Read all."
    decisions = [json.loads(value) for _, value in store.scan("approvals")]
    assert [(row["decision"], row["by"]) for row in decisions] == [
        ("approved", "anonymous"),
        ("rejected", "anonymous"),
    ]


@pytest.mark.parametrize("limit", ["deny", "lock"])
def test_nobody_approves_what_the_configuration_or_a_lock_denies(limit: str, tmp_path: Path):
    lists = tmp_path / "lists.json"
    changes = "deny" if limit == "deny" else ""
    notes = replace(TIME, name="notes", args=(str(CHANGING), str(lists)), changes=changes)
    store = MemoryStore()
    Approvals(store).check(notes, Manifest())
    lists.write_text(json.dumps({"tools": [{"name": "a", "inputSchema": {"type": "object"}}]}))
    lock: Lock | None = {"notes": {}} if limit == "lock" else None
    with served(notes, store=store, lock=lock, console=True) as running:
        asker = Asker(running.url)
        asker.post("/servers/notes/start")
        [held] = [
            row for row in asker.get("/servers/notes/approvals")["held"] if row["change"] == "new"
        ]

        refused = asker.problem("/servers/notes/approve", "POST", id=held["id"])

        assert refused == (409, "denied")
        assert asker.get("/servers")[0]["tools"] == 0


def test_sessions_and_savings_are_those_of_the_own_profile(guarded: tuple[Asker, Asker]):
    ann, bob = guarded
    [row] = ann.get("/sessions")["sessions"]

    assert bob.get("/sessions")["sessions"] == []
    assert bob.problem(f"/sessions/{row['id']}") == (404, "unknown_session")
    assert ann.get("/savings")["total"]["not_sent"] > 0
    assert set(bob.get("/savings")["total"].values()) == {0}


# Calls that wait

ASK = {"careful": {"permission": "ask", "tools": ["time__*"]}}


@pytest.fixture
def asked() -> Iterator[tuple[Asker, Asker, Any]]:
    """Ann and Bob, who has a profile, and a gateway that asks about each call; with its store."""
    store = MemoryStore()
    tokens = {
        "ann": {"token": "open sesame"},
        "bob": {"token": "swordfish", "profile": "some"},
    }
    profiles = {"some": {"tools": ["*current*"]}}
    with served(
        TIME, store=store, console=True, tokens=tokens, profiles=profiles, rules=ASK
    ) as running:
        assert running.known.wait(DEADLINE_SECONDS)
        yield Asker(running.url, "open sesame"), Asker(running.url, "swordfish"), store


def call_as(asker: Asker, token: str, *calls: Json) -> None:
    asyncio.run(converse(asker.url, [("tool_call", one) for one in calls], token))


def test_a_waiting_call_is_shown_and_approved_and_the_model_makes_it_again(
    asked: tuple[Asker, Asker, MemoryStore],
):
    ann, _, _ = asked
    assert ann.get("/waiting") == []
    with ann.events() as events:
        call_as(ann, "swordfish", NOW)
        while next(events)[1] != "waiting":
            pass

    [row] = ann.get("/waiting")
    assert ann.get("/overview")["waiting"] == 1
    assert (row["principal"], row["tool"], row["server"]) == ("bob", NOW["name"], "time")
    assert (row["arguments"], row["rule"]) == ('{"timezone": "UTC"}', "careful")
    assert row["state"] == "waiting"

    [row] = ann.post(f"/waiting/{row['id']}/once")
    assert (row["state"], row["by"]) == ("approved once", "ann")
    assert ann.get("/overview")["waiting"] == 0
    call_as(ann, "swordfish", NOW)
    assert ann.get("/waiting") == []
    [call] = wait_for_entries(ann, 1, event="call")
    assert (call["principal"], call["outcome"]) == ("bob", "ok")


@pytest.mark.parametrize(
    ("answer", "outcomes"),
    [
        ("once", [("approval", "approved once"), ("approval", "used"), ("call", "ok")]),
        ("session", [("approval", "approved session"), ("approval", "used"), ("call", "ok")]),
        ("deny", [("approval", "denied"), ("refusal", "not_allowed")]),
    ],
)
def test_what_a_person_answers_in_the_console_is_recorded(
    asked: tuple[Asker, Asker, MemoryStore], answer: str, outcomes: list[tuple[str, str]]
):
    ann, _, _ = asked
    call_as(ann, "swordfish", NOW)
    [row] = ann.get("/waiting")

    ann.post(f"/waiting/{row['id']}/{answer}")
    call_as(ann, "swordfish", NOW)

    told = wait_for_entries(ann, 1 + len(outcomes))
    assert [(one["event"], one["outcome"]) for one in reversed(told)] == [
        ("refusal", "approval_needed"),
        *outcomes,
    ]
    decided = told[-2]
    assert (decided["by"], decided["principal"], decided["rule"]) == ("ann", "bob", "careful")


def test_a_profile_neither_sees_nor_decides_what_waits(asked: tuple[Asker, Asker, MemoryStore]):
    ann, bob, _ = asked
    call_as(ann, "swordfish", NOW)
    [row] = ann.get("/waiting")

    assert bob.get("/overview")["waiting"] == 0
    assert bob.problem("/waiting") == (403, "limited")
    for answer in ("once", "session", "deny"):
        assert bob.problem(f"/waiting/{row['id']}/{answer}", "POST") == (403, "limited")
    assert ann.get("/waiting")[0]["state"] == "waiting"


def test_nothing_is_decided_from_another_site_or_about_a_call_that_does_not_wait(
    asked: tuple[Asker, Asker, MemoryStore],
):
    ann, _, _ = asked
    call_as(ann, "swordfish", NOW)
    [row] = ann.get("/waiting")
    place = f"/api/waiting/{row['id']}/once"

    elsewhere = ann.send("POST", place, headers={"Origin": "https://elsewhere.example"})
    assert elsewhere.status_code == 403
    assert Asker(ann.url).send("POST", place).status_code == 401
    assert ann.send("GET", place).status_code in (404, 405)
    assert ann.problem("/waiting/cafe/once", "POST") == (409, "not_waiting")
    assert ann.problem(f"/waiting/{row['id']}/perhaps", "POST") == (404, "unknown_action")
    assert ann.get("/waiting")[0]["state"] == "waiting"


def test_a_client_that_cannot_ask_is_told_the_page(asked: tuple[Asker, Asker, MemoryStore]):
    ann, _, _ = asked

    async def call() -> str:
        headers = {"Authorization": "Bearer swordfish"}
        async with (
            httpx2.AsyncClient(headers=headers, timeout=DEADLINE_SECONDS) as http,
            Client(streamable_http_client(f"{ann.url}/mcp", http_client=http)) as client,
        ):
            return text_of(await client.call_tool("tool_call", NOW))

    told = asyncio.run(call())

    assert "toolscout policy approve" in told
    assert f"{ann.url}/#/waiting" in told


# The audit record


@pytest.fixture(scope="module")
def recorded() -> Iterator[tuple[Asker, Asker]]:
    """Ann and Bob, who has a profile, before a record of 300 calls and one refusal."""
    store = MemoryStore()
    record = AuditRecord(store)
    for number in range(300):
        server = ("mail", "disk")[number % 2]
        record.on_event(Called(tool=f"{server}__t{number}", server=server, milliseconds=1.0))
    record.on_event(Called(tool="disk__wipe", server="disk", code="not_allowed", made=False))
    record.close()
    tokens = {
        "ann": {"token": "open sesame"},
        "bob": {"token": "swordfish", "profile": "some"},
    }
    with served(
        store=store, console=True, tokens=tokens, profiles={"some": {}}, audit_days=30.0
    ) as running:
        yield Asker(running.url, "open sesame"), Asker(running.url, "swordfish")


def test_entries_come_newest_first_in_pages(recorded: tuple[Asker, Asker]):
    ann, _ = recorded
    page = ann.get("/audit", limit=100)
    entries = page["entries"]
    while page["older"]:
        page = ann.get("/audit", limit=100, before=page["older"])
        entries += page["entries"]

    calls = [one["tool"] for one in entries if one["event"] == "call"]
    assert calls == [f"{('mail', 'disk')[n % 2]}__t{n}" for n in reversed(range(300))]
    assert len({one["digest"] for one in entries}) == len(entries)
    assert (page["recorded"], page["days"], page["with_arguments"]) == (True, 30.0, False)


@pytest.mark.parametrize(
    ("wanted", "count"),
    [
        ({"event": "refusal"}, 1),
        ({"server": "mail"}, 150),
        ({"tool": "disk__t1*", "outcome": "ok"}, 56),
        ({"principal": "anonymous", "since": "1h", "event": "call"}, 300),
        ({"since": "2999-01-01"}, 0),
        ({"principal": "nobody"}, 0),
    ],
)
def test_entries_are_chosen_by_the_filters_of_the_command(
    recorded: tuple[Asker, Asker], wanted: dict[str, str], count: int
):
    ann, _ = recorded
    page = ann.get("/audit", limit=200, **wanted)
    found = page["entries"]
    while page["older"]:
        page = ann.get("/audit", limit=200, before=page["older"], **wanted)
        found += page["entries"]

    assert len(found) == count


def test_a_request_looks_at_a_bounded_number_of_entries(
    recorded: tuple[Asker, Asker], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("toolscout.console.audit.ENTRIES_READ", 120)
    ann, _ = recorded

    page = ann.get("/audit", tool="mail__t0")

    assert page["entries"] == []
    assert page["older"]
    while page["older"] and not page["entries"]:
        page = ann.get("/audit", tool="mail__t0", before=page["older"])
    assert [one["tool"] for one in page["entries"]] == ["mail__t0"]


@pytest.mark.parametrize(
    ("wanted", "problem"),
    [
        ({"since": "yesterday"}, (400, "usage")),
        ({"since": "999999d"}, (400, "usage")),
        ({"before": "x.1"}, (400, "no_place")),
        ({"before": "1"}, (400, "no_place")),
        ({"limit": "-1"}, (400, "no_number")),
    ],
)
def test_a_filter_that_cannot_be_read_is_an_error(
    recorded: tuple[Asker, Asker], wanted: dict[str, str], problem: tuple[int, str]
):
    ann, _ = recorded

    assert ann.problem("/audit", **wanted) == problem


def test_the_record_is_checked_and_a_damaged_entry_shows():
    store = MemoryStore()
    record = AuditRecord(store)
    record.on_event(Called(tool="one"))
    record.close()
    with served(store=store, console=True) as running:
        asker = Asker(running.url)
        first = asker.get("/audit/check")
        store.append("audit", b"nonsense")
        same = asker.get("/audit/check")
        again = asker.get("/audit/check", again=1)

    assert (first["state"], first["entries"], first["runs"]) == ("complete", 2, 1)
    assert same == first
    assert again["state"] == "faulty"
    assert again["faults"] == ["Entry 3 was edited or damaged."]


def test_a_profile_does_not_read_the_record(recorded: tuple[Asker, Asker]):
    _, bob = recorded

    assert not bob.get("/overview")["capabilities"]["audit"]
    assert bob.problem("/audit") == (403, "limited")
    assert bob.problem("/audit/check") == (403, "limited")


# Logging in


def test_a_user_sees_where_to_log_in_and_that_it_is_done(tmp_path: Path):
    tokens = {
        "ann": {"token": "open sesame"},
        "bob": {"token": "swordfish", "profile": "some"},
    }
    with oauth_world() as world:
        web = ServerConfig(
            name="web", transport=Transport.HTTP, url=world.url, oauth=True, login="user"
        )
        store = MemoryStore()
        login = EncryptedLogins(store, folder=tmp_path).find(web, "ann")
        assert asyncio.run(logged_in(web, login))
        with served(
            *(web, TIME),
            store=store,
            console=True,
            logins=tmp_path,
            tokens=tokens,
            profiles={"some": {}},
        ) as running:
            askers = [Asker(running.url, one) for one in PASSWORDS]
            # A profile shows a server as soon as it has a tool that it may use.
            asyncio.run(eventually(lambda: "time" in by_name(askers[1].get("/servers"))))
            rows = [by_name(asker.get("/servers")) for asker in askers]

    assert [row["web"]["own_login"] for row in rows] == ["logged in", "needed"]
    assert [row["time"]["own_login"] for row in rows] == ["none", "none"]


PASSWORDS = ("open sesame", "swordfish")


def test_a_person_logs_in_from_the_console(tmp_path: Path):
    with oauth_world() as world:
        web = ServerConfig(name="web", transport=Transport.HTTP, url=world.url, oauth=True)
        with served(web, console=True, logins=tmp_path) as running:
            asker = Asker(running.url)
            with asker.events() as events:
                row = _row_when(asker, events, "needs_login")
                assert (row["login"], row["actions"]) == ("needed", ["start", "login"])

                url = asker.post("/servers/web/login")["url"]
                assert asyncio.run(visit(url)).status_code == 200

                row = _row_when(asker, events, "ready")
            assert row["login"] == "logged in"


def test_the_console_answers_while_a_login_waits_for_a_secret(tmp_path: Path):
    ready = tmp_path / "ready"
    asked = tmp_path / "asked"
    ready.touch()
    with oauth_world() as world:
        command = f"touch {asked}; until [ -e {ready} ]; do sleep 0.01; done; echo key"
        web = ServerConfig(
            name="web",
            transport=Transport.HTTP,
            url=world.url,
            oauth=True,
            headers={"X-Key": f"${{command:sh -c '{command}'}}"},
        )
        with served(web, console=True, logins=tmp_path) as running:
            asker = Asker(running.url)
            with asker.events() as events:
                _row_when(asker, events, "needs_login")
            ready.unlink()
            asked.unlink()
            forget_secrets()  # as a reload does
            with ThreadPoolExecutor() as threads:
                login = threads.submit(asker.post, "/servers/web/login")
                asyncio.run(eventually(asked.exists))
                try:
                    assert by_name(asker.get("/servers"))["web"]["state"] == "needs_login"
                finally:
                    ready.touch()
                assert login.result()["url"].startswith("http")


def _row_when(asker: Asker, events: Iterator[Any], state: str) -> Json:
    """Return the only server once it is in a state."""
    while (row := asker.get("/servers")[0])["state"] != state:
        next(events)
    return row


# Findings of the lint


def test_findings_appear_once_the_lint_has_run(live: Asker):
    with live.events() as events:
        while (rows := live.get("/tools")["tools"])[0]["findings"] is None:
            next(events)

    told = live.get(f"/tools/{rows[0]['name']}")
    assert [row["findings"] for row in rows] == [
        len(live.get(f"/tools/{row['name']}")["findings"]) for row in rows
    ]
    assert all(finding["remedy"] for finding in told["findings"])


def test_the_document_allows_exactly_the_words_that_the_code_has(live: Asker):
    shapes = live.document()["components"]["schemas"]

    def words(shape: str, member: str) -> list[str]:
        return shapes[shape]["properties"][member]["enum"]

    assert words("Hit", "confidence") == [word.value for word in Confidence]
    assert words("Tool", "effect") == [effect.value for effect in Effect]
    assert words("Finding", "severity") == [severity.value for severity in Severity]
    held = shapes["Held"]["properties"]["held"]["items"]["properties"]
    assert held["change"]["enum"] == [change.value for change in Change]
    assert words("Server", "transport") == [transport.value for transport in Transport]
    assert words("Server", "login") == [state.value for state in LoginState]
    assert words("Server", "state") == list(STATES)
    waiting = shapes["Waiting"]["items"]["properties"]
    assert waiting["state"]["enum"] == list(CALL_STATES.values())
    assert list(shapes["Overview"]["properties"]["servers"]["properties"]) == list(STATES)
