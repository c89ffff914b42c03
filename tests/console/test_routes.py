"""The console of a running gateway before real servers, asked as its page asks it."""

import asyncio
import json
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from console.asking import Asker, Json, converse
from servers.browsing import visit
from servers.oauthserver import oauth_world
from serving import DEADLINE_SECONDS, MISSING, TIME, served
from toolscout.config.servers import ServerConfig, Transport
from toolscout.console.servers import STATES
from toolscout.lint.rules import Severity
from toolscout.search.hits import Confidence
from toolscout.servers.approvals import Approvals, Change, Lock
from toolscout.servers.manifest import Manifest
from toolscout.servers.oauth.login import LoginState
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
    assert told["encoders"][:2] == ["static", "lexical"]
    assert told["tokens"]["all_definitions"] > 0
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
    rows = by_name(live.get("/servers"))

    assert (rows["time"]["state"], rows["time"]["tools"]) == ("ready", 2)
    assert (rows["time"]["calls"], rows["time"]["errors"]) == (2, 1)
    assert rows["time"]["latency_ms"]["p95"] >= rows["time"]["latency_ms"]["p50"] > 0
    assert rows["time"]["actions"] == ["stop", "restart"]
    assert rows["missing"]["state"] == "failed"
    assert rows["missing"]["actions"] == ["start"]
    assert rows["missing"]["reason"]


def test_the_log_of_a_server_is_shown_without_its_secrets(live: Asker):
    lines = [line["text"] for line in live.get("/servers/chatty/log")["lines"]]

    assert "my key is …" in lines
    assert SECRET not in live.send("GET", "/api/servers").text


def test_a_session_lists_what_it_searched_found_and_called(live: Asker):
    [row] = live.get("/sessions")
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
    [session] = live.get("/sessions")

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
    [row] = ann.get("/sessions")

    assert bob.get("/sessions") == []
    assert bob.problem(f"/sessions/{row['id']}") == (404, "unknown_session")
    assert ann.get("/savings")["total"]["not_sent"] > 0
    assert set(bob.get("/savings")["total"].values()) == {0}


# Logging in


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
    assert list(shapes["Overview"]["properties"]["servers"]["properties"]) == list(STATES)
