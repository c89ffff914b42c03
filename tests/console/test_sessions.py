"""Sessions in the console: whose they are, of every gateway that shares the store, and refusals."""

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from console.asking import Asker, Json, converse
from serving import DEADLINE_SECONDS, TIME, Served, eventually, served
from toolscout import errors
from toolscout.console.activity import REFUSALS
from toolscout.console.sessions import KIND, RUNS_KEPT
from toolscout.names import digest_session
from toolscout.sessions.record import Record
from toolscout.sessions.session_state import SESSION_KIND
from toolscout.stores.memory import MemoryStore

SEARCH: tuple[str, Json] = ("tool_search", {"queries": ["what time is it now"]})
NOW: tuple[str, Json] = (
    "tool_call",
    {"name": "time__get_current_time", "arguments": {"timezone": "UTC"}},
)
CONVERT: tuple[str, Json] = ("tool_call", {"name": "time__convert_time", "arguments": {}})
TYPO: tuple[str, Json] = ("tool_call", {"name": "time__get_the_time", "arguments": {}})
PEOPLE: dict[str, Any] = {
    "tokens": {
        "ann": {"token": "open sesame"},
        "bob": {"token": "swordfish", "profile": "some"},
    },
    "profiles": {"some": {"tools": ["*current*"], "servers": ["time"]}},
}


def talk(running: Served, *calls: tuple[str, Json], token: str = "") -> None:
    is_recalled = bool(running.gateway.catalog.tools)
    assert is_recalled or running.known.wait(DEADLINE_SECONDS)
    asyncio.run(converse(running.url, list(calls), token))
    running.heard()


def wait_for(is_so: Callable[[], object]) -> None:
    asyncio.run(eventually(is_so))


def test_a_session_says_whose_it_is_and_how_it_is_connected():
    with served(TIME, console=True, **PEOPLE) as running:
        talk(running, SEARCH, token="swordfish")

        [row] = Asker(running.url, "open sesame").get("/sessions")["sessions"]

    assert (row["principal"], row["profile"], row["transport"]) == ("bob", "some", "http")
    assert row["client"].startswith("mcp")
    assert (row["known"], row["searches"]) == ("here", 1)


PROGRAM = """
password = "hunter2-hunter2"
now = call("time__get_current_time", {"timezone": "UTC"})
call("time__convert_time", {})
"""


def test_a_session_shows_its_programs_and_a_profile_holds_in_them(tmp_path: Path):
    file = tmp_path / "toolscout.toml"
    file.write_text(
        f"""
        [gateway.tokens]
        ann = {{ token = "open sesame" }}
        bob = {{ token = "swordfish", profile = "some" }}

        [gateway.profiles.some]
        tools = ["*current*"]

        [programs]
        enabled = true

        [sessions]
        calls_by_name = true

        [servers.time]
        command = {json.dumps(TIME.command)}
        args = {json.dumps(TIME.args)}
        effects = {{ "*" = "read" }}
        """,
        encoding="utf-8",
    )
    with served(file=file, console=True) as running:
        talk(running, ("tool_run", {"code": PROGRAM}), token="swordfish")
        ann = Asker(running.url, "open sesame")
        [row] = ann.get("/sessions")["sessions"]

        [program] = ann.get(f"/sessions/{row['id']}")["programs"]

    assert program["code"] == "program_failed"
    assert "time__get_current_time" in program["source"]
    assert "hunter2" not in program["source"]
    assert [(call["name"], call["code"]) for call in program["calls"]] == [
        ("time__get_current_time", "ok"),
        ("time__convert_time", "unknown_tool"),
    ]
    assert program["milliseconds"] > 0


def test_sessions_of_other_gateways_and_earlier_runs_are_listed_without_their_keys():
    store = MemoryStore()
    with served(TIME, console=True, store=store, **PEOPLE) as first:
        talk(first, SEARCH, NOW, token="swordfish")
    store.write(SESSION_KIND, "http:secret", Record(id="http:secret").to_bytes())

    with served(TIME, console=True, store=store, **PEOPLE) as second:
        talk(second, SEARCH, token="open sesame")
        ann, bob = Asker(second.url, "open sesame"), Asker(second.url, "swordfish")
        rows = ann.get("/sessions")["sessions"]
        elsewhere = ann.get(f"/sessions/{rows[1]['id']}")
        page = ann.get("/sessions", offset=1, limit=1)
        seen_by_bob = bob.get("/sessions")["sessions"]
        stored = bob.problem(f"/sessions/{digest_session('http:secret')}")

    assert [(row["known"], row["principal"]) for row in rows] == [
        ("here", "ann"),
        ("elsewhere", "bob"),
        ("stored", "anonymous"),
    ]
    assert (rows[1]["searches"], rows[1]["calls"]) == (1, 1)
    assert "time__get_current_time" in [tool["name"] for tool in elsewhere["loaded"]]
    assert elsewhere["events"] == []
    assert (page["total"], page["sessions"]) == (3, [rows[1]])
    assert [row["id"] for row in seen_by_bob] == [rows[1]["id"]]
    assert stored == (404, "unknown_session")
    keys = store.keys(SESSION_KIND)
    assert not [key for key in keys if key in json.dumps([rows, elsewhere])]


def test_a_session_that_two_gateways_served_is_one_row_with_the_sum():
    store = MemoryStore()
    for calls in ([SEARCH], [SEARCH, NOW]):
        with served(TIME, console=True, store=store) as running:
            talk(running, *calls)
    old = [f"{number:012d}/old" for number in range(RUNS_KEPT)]
    for key in old:
        store.write(KIND, key, b"not JSON")

    with served(TIME, console=True, store=store) as running:
        [row] = Asker(running.url).get("/sessions")["sessions"]

    assert (row["known"], row["searches"], row["calls"]) == ("elsewhere", 2, 1)
    assert old[0] not in store.keys(KIND)


def test_a_refused_call_says_which_tool_for_whom_and_why():
    ask = {"permission": "ask", "tools": ["time__get_current_time"]}
    with served(TIME, console=True, rules={"careful": ask}, **PEOPLE) as running:
        talk(running, SEARCH, NOW, CONVERT, TYPO, token="swordfish")
        ann = Asker(running.url, "open sesame")
        refused = ann.get("/refusals")
        terms = ann.get("/terms")["refusals"]
        rows = ann.get("/sessions", refused=1)["sessions"]
        session = rows[0]["id"]
        # The audit record is written in batches, so the last refusals may arrive after the others.
        wait_for(lambda: len(ann.get("/audit", event="refusal")["entries"]) == len(refused))
        entries = ann.get("/audit", event="refusal", session=session)["entries"]
        others = ann.get("/audit", event="refusal", session="another")["entries"]

    assert [(row["tool"], row["reason"], row["rule"]) for row in refused] == [
        ("time__get_the_time", "unknown_tool", ""),
        ("time__convert_time", "hidden", ""),
        ("time__get_current_time", "approval_needed", "careful"),
    ]
    assert {(row["principal"], row["profile"]) for row in refused} == {("bob", "some")}
    assert terms["approval_needed"]["page"] == "waiting"
    assert [row["refusals"] for row in rows] == [3]
    assert [entry["tool"] for entry in entries] == [row["tool"] for row in refused]
    assert others == []


def list_kinds(kind: type[errors.ToolscoutError]) -> list[type[errors.ToolscoutError]]:
    return [kind, *(found for below in kind.__subclasses__() for found in list_kinds(below))]


def test_every_reason_to_refuse_a_call_is_explained_to_an_operator():
    kinds = [*list_kinds(errors.ModelError), *list_kinds(errors.UpstreamError)]
    codes = {
        kind.code for kind in kinds if issubclass(kind, errors.ModelError | errors.UpstreamError)
    }
    of_searches = {"invalid_query", "unknown_server"}
    of_made_calls = {"timed_out", "call_failed", "protocol_error"}
    of_programs = {"program_failed", "program_stopped"}
    others = {"refused", "failed", "login_failed"}

    explained = codes - of_searches - of_made_calls - of_programs - others
    assert explained <= REFUSALS.keys()


@pytest.mark.parametrize("refusal", REFUSALS.values(), ids=REFUSALS)
def test_a_remedy_names_the_page_that_it_leads_to(refusal: Any):
    assert refusal.page.capitalize() in refusal.remedy
