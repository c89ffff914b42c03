"""The audit record: what it says about calls, and that edits and gaps show."""

import asyncio
import hashlib
import json
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import httpx2
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mcp.client import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError

from serving import DEADLINE_SECONDS, MISSING, TIME, eventually, served
from toolscout.config.servers import ServerConfig, Transport
from toolscout.gateway.audit import (
    DAY_SECONDS,
    AuditRecord,
    compute_digest,
    read_entries,
    verify,
)
from toolscout.gateway.events import LoginChanged, LoginOutcome
from toolscout.schemas import Json
from toolscout.sessions.events import Called
from toolscout.stores import MemoryStore

ANN = {"Authorization": "Bearer open sesame, and close it"}
GALLERY = ServerConfig(
    name="art",
    transport=Transport.STDIO,
    command=sys.executable,
    args=(str(Path(__file__).with_name("gallery.py")), "art", ""),
)
NOW = {"name": "time__get_current_time", "arguments": {"timezone": "UTC"}}


def use(url: str, *calls: tuple[str, dict[str, Any]]) -> None:
    """Make calls as ann, in one conversation."""

    async def talk() -> None:
        async with (
            httpx2.AsyncClient(headers=ANN, timeout=DEADLINE_SECONDS) as http,
            Client(streamable_http_client(f"{url}/mcp", http_client=http)) as client,
        ):
            for name, arguments in calls:
                await client.call_tool(name, arguments)

    asyncio.run(talk())


def record_of(*calls: tuple[str, dict[str, Any]], **options: Any) -> list[Json]:
    """Return the entries of a gateway in which ann made some calls."""
    store = MemoryStore()
    tokens = {"ann": {"token": "open sesame, and close it"}}
    with served(TIME, store=store, tokens=tokens, **options) as running:
        assert running.known.wait(DEADLINE_SECONDS)
        use(running.url, *calls)
    return list(read_entries(store))


def events_of(entries: list[Json], *names: str) -> list[Json]:
    return [entry for entry in entries if entry["event"] in names]


def test_a_call_is_recorded_with_who_what_and_how_it_ended():
    entries = record_of(("tool_call", NOW))

    [call] = events_of(entries, "call")
    assert call["principal"] == "ann"
    assert call["client"].startswith("mcp")
    assert (call["tool"], call["server"]) == ("time__get_current_time", "time")
    assert call["outcome"] == "ok"
    assert call["milliseconds"] > 0
    assert call["arguments_digest"].startswith("sha256:")
    assert "arguments" not in call


def test_reading_a_resource_is_recorded_and_so_is_a_refusal():
    store = MemoryStore()
    with served(GALLERY, store=store) as running:
        assert running.known.wait(DEADLINE_SECONDS)

        async def talk() -> None:
            async with Client(streamable_http_client(f"{running.url}/mcp")) as client:
                listed = await client.list_resources()
                await client.read_resource(str(listed.resources[0].uri))
                with pytest.raises(MCPError):
                    await client.read_resource("toolscout://bank/ledger.txt")
                names.append(str(listed.resources[0].uri))

        names: list[str] = []
        asyncio.run(talk())

    reads = events_of(list(read_entries(store)), "read")
    assert [(entry["tool"], entry["outcome"]) for entry in reads] == [
        (names[0], "ok"),
        ("toolscout://bank/ledger.txt", "refused"),
    ]


def test_a_refused_call_is_recorded_with_its_reason():
    wrong = {"name": "time__get_current_time", "arguments": {"timezone": ["x"]}}

    entries = record_of(("tool_call", wrong), ("tool_call", {"name": "nothing_like_it"}))

    refused = events_of(entries, "refusal")
    assert [entry["outcome"] for entry in refused] == ["invalid_arguments", "unknown_tool"]
    assert events_of(entries, "call") == []


def test_texts_are_recorded_only_if_asked_for():
    calls = [("tool_search", {"queries": ["what time is it in Oslo"]}), ("tool_call", NOW)]

    silent = json.dumps(record_of(*calls))
    open_ = record_of(*calls, audit_arguments=True, audit_queries=True)

    assert "Oslo" not in silent
    assert "UTC" not in silent
    [search] = events_of(open_, "search")
    [call] = events_of(open_, "call")
    assert "Oslo" in search["queries"]
    assert search["hits"] > 0
    assert call["arguments"] == '{"timezone":"UTC"}'


def test_equal_arguments_have_equal_digests():
    other = {"name": NOW["name"], "arguments": {"timezone": "Europe/Oslo"}}

    calls = events_of(
        record_of(("tool_call", NOW), ("tool_call", other), ("tool_call", NOW)), "call"
    )

    digests = [call["arguments_digest"] for call in calls]
    assert digests[0] == digests[2] != digests[1]


def test_a_server_that_fails_is_recorded_without_its_secrets():
    store = MemoryStore()
    with served(MISSING, store=store) as running:
        asyncio.run(eventually(lambda: running.gateway.pool.servers["missing"].reason))

    [entry] = events_of(list(read_entries(store)), "server")
    assert (entry["server"], entry["outcome"]) == ("missing", "failed")
    assert "hunter2" not in json.dumps(entry)


def test_a_refused_token_is_recorded_without_the_token():
    store = MemoryStore()
    with served(store=store, tokens={"ann": {"token": "open sesame, and close it"}}) as running:
        for headers in ({"Authorization": "Bearer guessed-by-eve"}, {}):
            assert httpx2.get(f"{running.url}/status", headers=headers).status_code == 401

    [entry] = events_of(list(read_entries(store)), "token")
    assert (entry["outcome"], entry["reason"]) == ("refused", "it is not known")
    assert entry["source"] == "127.0.0.1"
    assert entry["token_digest"] == hashlib.sha256(b"guessed-by-eve").hexdigest()[:16]
    assert "guessed" not in json.dumps(entry)


def test_a_reload_is_recorded_with_the_names_of_what_changed():
    store = MemoryStore()
    tokens = {"ann": {"token": "open sesame, and close it"}, "bob": {"token": "another token"}}
    with served(TIME, store=store, tokens=tokens, profiles={"some": {}}) as running:
        options = replace(
            running.gateway.config.gateway,
            tokens={"ann": {"token": "a new token for ann"}, "eve": {"token": "a third token"}},  # pyright: ignore[reportArgumentType]
            max_calls=3,
        )
        config = replace(running.gateway.config, gateway=options, servers=(MISSING,))
        reloading = asyncio.run_coroutine_threadsafe(running.gateway.reload(config), running.loop)
        reloading.result(DEADLINE_SECONDS)

    [entry] = events_of(list(read_entries(store)), "reload")
    assert entry["added"] == ["tokens.eve", "servers.missing"]
    assert entry["removed"] == ["tokens.bob", "servers.time"]
    assert entry["changed"] == ["tokens.ann", "max_calls"]
    assert "new token" not in json.dumps(entry)


def test_a_login_at_a_server_is_recorded():
    store = MemoryStore()
    record = AuditRecord(store)
    record.on_event(LoginChanged(server="github", outcome=LoginOutcome.OK))
    record.close()

    [entry, _] = read_entries(store)
    assert (entry["event"], entry["server"], entry["outcome"]) == ("login", "github", "ok")


def test_nothing_is_recorded_if_it_is_switched_off():
    assert record_of(("tool_call", NOW), audit=False) == []


def test_the_file_gets_the_same_entries_and_nobody_else_may_read_it(tmp_path: Path):
    file = tmp_path / "deep" / "audit.jsonl"

    entries = record_of(("tool_call", NOW), audit_file=str(file))

    assert [json.loads(line) for line in file.read_text().splitlines()] == entries
    assert file.stat().st_mode & 0o077 == 0


def test_the_record_of_a_gateway_that_ended_is_complete():
    found = verify(record_of(("tool_call", NOW)))

    assert found.faults == []
    assert (found.chains, found.open_chains) == (1, 0)


# Edits and gaps


def write_record(*counts: int) -> list[Json]:
    """Return the entries of runs with so many calls each."""
    store = MemoryStore()
    for count in counts:
        record = AuditRecord(store)
        for number in range(count):
            record.on_event(Called(tool=f"t{number}", arguments={"n": number}))
        record.close()
    return list(read_entries(store))


@given(runs=st.lists(st.integers(0, 4), min_size=1, max_size=3))
def test_an_untouched_record_is_complete(runs: list[int]):
    found = verify(write_record(*runs))

    assert found.faults == []
    assert (found.entries, found.chains) == (sum(runs) + len(runs), len(runs))


@given(count=st.integers(2, 6), data=st.data())
def test_a_removed_entry_shows_unless_it_was_the_last(count: int, data: st.DataObject):
    entries = write_record(count, 1)
    gone = data.draw(st.integers(0, count - 1))
    del entries[gone]

    assert len(verify(entries).faults) == 1


@given(count=st.integers(1, 5), data=st.data())
def test_an_edited_entry_shows(count: int, data: st.DataObject):
    entries = write_record(count)
    entry = data.draw(st.sampled_from(entries))
    key = data.draw(st.sampled_from(sorted(entry)))
    entry[key] = data.draw(st.text().filter(lambda text: text != entry[key]))

    assert verify(entries).faults


@given(count=st.integers(2, 5), data=st.data())
def test_entries_in_another_order_show(count: int, data: st.DataObject):
    entries = write_record(count)
    at = data.draw(st.integers(0, count - 1))
    entries[at], entries[at + 1] = entries[at + 1], entries[at]

    assert verify(entries).faults


def test_an_edit_shows_even_if_its_own_digest_was_computed_again():
    entries = write_record(3)
    entries[1]["tool"] = "another"
    entries[1]["digest"] = compute_digest(entries[1])

    assert "does not follow" in " ".join(verify(entries).faults)


def test_a_run_without_an_end_is_reported_and_is_no_fault():
    entries = write_record(2)[:-1]

    found = verify(entries)

    assert found.faults == []
    assert found.open_chains == 1


@pytest.mark.parametrize("damaged", [b"", b"\xff", b"[1]", b"[" * 100_000, b'{"number": 1}'])
def test_damaged_entries_show(damaged: bytes):
    store = MemoryStore()
    store.append("audit", damaged)

    assert verify(read_entries(store)).faults == ["Entry 1 was edited or damaged."]


# Retention


def test_old_entries_are_removed_and_the_rest_stays_complete():
    store = MemoryStore()
    now = 1_000_000.0
    record = AuditRecord(store, clock=lambda: now)
    for number in range(3):
        record.on_event(Called(tool=f"old{number}"))
    record.remove_old(days=1)  # waits for what is noted
    now += 2 * DAY_SECONDS
    record.on_event(Called(tool="new"))

    record.remove_old(days=1)
    record.close()

    entries = list(read_entries(store))
    assert [entry.get("tool", entry["event"]) for entry in entries] == ["new", "removal", "end"]
    assert verify(entries).faults == []
    assert verify(entries[1:]).faults  # one more is gone than the entry says


def test_entries_that_others_add_while_old_ones_are_removed_stay():
    store = MemoryStore()
    now = 1_000_000.0
    gateway = AuditRecord(store, clock=lambda: now)
    gateway.on_event(Called(tool="old"))
    gateway.remove_old(days=1)  # waits for what is noted
    now += 2 * DAY_SECONDS
    trim = store.trim

    def decide_first(kind: str, keep: int, *, through: int | None = None) -> None:
        """Have a person decide something on the command line at the worst moment."""
        command = AuditRecord(store, clock=lambda: now)
        command.on_event(Called(tool="decided"))
        command.close()
        trim(kind, keep, through=through)

    store.trim = decide_first
    gateway.remove_old(days=1)
    gateway.close()

    entries = list(read_entries(store))
    assert [entry.get("tool", entry["event"]) for entry in entries] == [
        *("removal", "decided", "end", "end")
    ]
    assert verify(entries).faults == []


def test_a_gateway_that_was_silent_for_long_leaves_no_gap():
    store = MemoryStore()
    moments = [1_000_000.0]
    clock = partial(moments.__getitem__, -1)
    silent = AuditRecord(store, clock=clock)
    silent.on_event(Called(tool="first"))
    silent.remove_old(days=1)  # waits for what is noted
    for _ in range(2):  # the second time, the entry is removed that tells of the first
        moments.append(clock() + 2 * DAY_SECONDS)
        other = AuditRecord(store, clock=clock)
        other.remove_old(days=1)
        other.close()
    silent.on_event(Called(tool="second"))
    silent.close()

    found = verify(read_entries(store))

    assert found.faults == []


def test_a_gateway_that_was_killed_before_it_removed_anything_leaves_no_gap():
    store = MemoryStore()
    now = 1_000_000.0
    record = AuditRecord(store, clock=lambda: now)
    trim = store.trim

    def trim_nothing(kind: str, keep: int, *, through: int | None = None) -> None:
        """Do what a gateway does that was killed just before."""

    for is_killed in (False, True):
        record.on_event(Called(tool="old"))
        record.remove_old(days=1)
        now += 2 * DAY_SECONDS
        store.trim = trim_nothing if is_killed else trim
        record.remove_old(days=1)

    found = verify(read_entries(store))

    assert found.faults == []
