"""What past calls teach: better ranks, and a word on failures."""

import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from toolscout import Catalog, Scout, Settings, Store, Tool
from toolscout.search.feedback import usage_from_bytes
from toolscout.sessions.usage import TRIMMED_EVERY, USAGE_KEPT, USAGE_KIND, UsageLog
from toolscout.settings import Learning
from toolscout.stores import MemoryStore, SqliteStore

TOOL = Tool.define("pay", server="bank")


def experience(store: Store | None = None) -> UsageLog:
    return UsageLog(store, lambda: 12.5)


def learn(learnt: UsageLog, *codes: str, tool: str = "bank__pay") -> UsageLog:
    for code in codes:
        learnt.add("s", "pay a bill", tool, code)
    return learnt


@pytest.mark.parametrize(
    ("codes", "told"),
    [
        ([], ""),
        (["ok", "ok"], ""),
        (["not_loaded", "invalid_arguments", "approval_needed"], ""),
        (["ok", "timed_out"], "Of the last 2 calls of bank__pay, 1 failed: timed_out."),
        (
            ["tool_error", "not_loaded", "call_failed", "tool_error"],
            "Of the last 3 calls of bank__pay, 3 failed: tool_error, call_failed.",
        ),
        (["tool_error"] * 5 + ["ok"] * 20, ""),
        (
            ["tool_error", *["not_loaded"] * 50],
            "Of the last 1 calls of bank__pay, 1 failed: tool_error.",
        ),
    ],
)
def test_failures_are_counted_over_the_last_twenty_calls(codes: list[str], told: str):
    assert learn(experience(), *codes).describe_failures(TOOL) == told


def test_each_tool_has_failures_of_its_own():
    learnt = learn(experience(), "tool_error", tool="bank__other")

    assert learnt.describe_failures(TOOL) == ""


def test_experience_is_there_again_after_a_restart(tmp_path: Path):
    with SqliteStore(tmp_path / "state.db") as store:
        learn(experience(store), "ok", "call_failed")

    with SqliteStore(tmp_path / "state.db") as store:
        told = experience(store).describe_failures(TOOL)

    assert told == "Of the last 2 calls of bank__pay, 1 failed: call_failed."


def test_what_cannot_be_read_is_passed_over():
    store = MemoryStore()
    store.append(USAGE_KIND, b"\xff no JSON")
    learn(experience(store), "tool_error")
    store.append(USAGE_KIND, b"[]")

    assert "1 failed" in experience(store).describe_failures(TOOL)


def test_what_is_kept_does_not_grow_without_end():
    kept: list[tuple[str, int]] = []

    class Store(MemoryStore):
        def trim(self, kind: str, keep: int, *, through: int | None = None) -> None:
            kept.append((kind, keep))

    learn(experience(Store()), *["ok"] * (2 * TRIMMED_EVERY + 1))

    assert kept == [(USAGE_KIND, USAGE_KEPT)] * 2


def test_threads_may_learn_and_ask_at_once():
    learnt = experience(MemoryStore())
    failed: list[BaseException] = []

    def work() -> None:
        try:
            for _ in range(300):
                learn(learnt, "tool_error")
                assert "failed: tool_error." in learnt.describe_failures(TOOL)
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert failed == []
    assert learnt.describe_failures(TOOL).startswith("Of the last 20 calls of bank__pay, 20 failed")


def done(*_: object) -> str:
    return "done"


def twins() -> Catalog:
    """Return two tools between which only past calls can choose, and a third."""
    return Catalog(
        {
            "a": [Tool.define("shut", server="a", description="Close a ticket.")],
            "b": [Tool.define("finish", server="b", description="Close a ticket.")],
            "c": [Tool.define("wait", server="c", description="Have a rest.")],
        }
    )


def found(scout: Scout, query: str) -> list[str]:
    return [hit.tool.name for hit in scout.session("asking").search(f"discover: {query}").hits]


def teach(scout: Scout, query: str, tool: str) -> None:
    session = scout.session("teaching")
    session.search(query)
    assert {e.name: e.query for e in session.list_entries()}[tool] == query
    for _ in range(5):
        assert session.call_sync(tool).code == "ok"


@pytest.mark.requirement("R37")
def test_a_tool_that_served_a_query_ranks_higher_also_after_a_restart():
    """R37"""
    store = MemoryStore()
    scout = Scout(twins(), store=store, executors=done)
    assert found(scout, "close the ticket") == ["a__shut", "b__finish"]

    teach(scout, "close this ticket", "b__finish")

    restarted = Scout(twins(), store=store)
    assert found(scout, "close the ticket") == ["b__finish", "a__shut"]
    assert found(restarted, "close the ticket") == ["b__finish", "a__shut"]
    assert found(scout, "have a rest") == ["c__wait"]


@pytest.mark.requirement("R37")
def test_no_number_of_calls_puts_a_tool_before_an_exact_match():
    """R37"""
    scout = Scout(twins(), executors=done)
    teach(scout, "ticket close", "b__finish")

    scout.catalog.add("d", [Tool.define("close_ticket", server="d", description="As it says.")])

    assert found(scout, "close ticket")[0] == "d__close_ticket"


def test_queries_are_kept_as_hashes_where_the_host_says_so():
    store = MemoryStore()
    settings = Settings(hash_queries=True)
    scout = Scout(twins(), store=store, executors=done, settings=settings)
    session = scout.session("s")
    session.search("close the ticket of Grandmother")

    assert session.call_sync("b__finish").code == "ok"

    stored = [data for _, data in store.scan(USAGE_KIND)]
    assert len(stored) == 1
    assert b"randmother" not in stored[0]
    assert b"randmother" not in (store.read("session", "s") or b"")


def test_a_description_mentions_known_failures():
    def fail(*_: object) -> str:
        raise OSError("no line")

    session = Scout(twins(), executors=fail).session("s")
    session.describe("b__finish")
    session.call_sync("b__finish")

    assert "Of the last 1 calls of b__finish, 1 failed: call_failed." in (
        session.describe("b__finish").text
    )


def test_what_was_learnt_counts_at_once_and_is_kept_later():
    waiting: list[Callable[[], None]] = []
    store = MemoryStore()
    learnt = learn(UsageLog(store, lambda: 12.5, waiting.append), "call_failed")

    assert (
        learnt.describe_failures(TOOL) == "Of the last 1 calls of bank__pay, 1 failed: call_failed."
    )
    assert list(store.scan(USAGE_KIND)) == []

    waiting.pop()()

    assert len(list(store.scan(USAGE_KIND))) == 1
    assert waiting == []


def test_a_store_that_fails_costs_no_model_its_result(caplog: pytest.LogCaptureFixture):
    class Full(MemoryStore):
        def append(self, kind: str, value: bytes) -> None:
            raise OSError("no room")

    learnt = learn(experience(Full()), "call_failed")

    assert (
        learnt.describe_failures(TOOL) == "Of the last 1 calls of bank__pay, 1 failed: call_failed."
    )
    assert "The store could not record how a call ended." in caplog.text
    assert "no room" in caplog.text


def test_processes_with_one_store_learn_from_each_other():
    store = MemoryStore()
    here = Scout(twins(), store=store, executors=done)
    there = Scout(twins(), store=store, executors=done)
    teach(here, "close this ticket", "b__finish")
    assert found(there, "close the ticket") == ["a__shut", "b__finish"]

    there.read_news()
    here.read_news()

    assert found(there, "close the ticket") == ["b__finish", "a__shut"]
    assert here.feedback.list_learned()[0].at == there.feedback.list_learned()[0].at


def test_what_is_forgotten_stays_forgotten_everywhere_and_after_a_restart():
    store = MemoryStore()
    running = Scout(twins(), store=store, executors=done)
    teach(running, "close this ticket", "b__finish")

    gone = UsageLog(store, time.time).forget(tool="b__finish")
    running.read_news()

    assert gone == 1
    assert running.feedback.is_empty
    assert Scout(twins(), store=store).feedback.is_empty


def test_forgetting_everything_removes_the_queries_from_the_store():
    store = MemoryStore()
    learn(experience(store), "ok")

    experience(store).forget()

    assert b"pay a bill" not in b"".join(data for _, data in store.scan(USAGE_KIND))


@pytest.mark.requirement("R77")
def test_what_one_principal_learns_helps_only_that_principal():
    """R77"""
    store = MemoryStore()
    scout = Scout(twins(), store=store, executors=done)
    session = scout.session("alices", principal="alice")
    for _ in range(5):
        session.search("close this ticket")
        assert session.call_sync("b__finish").code == "ok"

    def ask(scout: Scout, who: str) -> list[str]:
        session = scout.session(f"new of {who}", principal=who)
        return [hit.tool.name for hit in session.search("discover: close the ticket").hits]

    shared = Scout(twins(), store=store, settings=Settings(learning=Learning.SHARED))
    off = Scout(twins(), store=store, settings=Settings(learning=Learning.OFF))
    for own in (scout, Scout(twins(), store=store)):
        assert ask(own, "alice") == ["b__finish", "a__shut"]
        assert ask(own, "bob") == ["a__shut", "b__finish"]
    assert ask(shared, "alice") == ask(shared, "bob") == ["b__finish", "a__shut"]
    assert ask(off, "alice") == ["a__shut", "b__finish"]


def test_the_score_before_learning_is_kept_with_a_call():
    store = MemoryStore()
    scout = Scout(twins(), store=store, executors=done)
    teach(scout, "close this ticket", "b__finish")

    rows = [usage_from_bytes(data) for _, data in store.scan(USAGE_KIND)]

    chances = {row.chance for row in rows if row is not None}
    assert len(chances) == 1
    assert 0 < (chances.pop() or 0) < 1


def test_what_the_model_reads_says_nothing_of_past_requests():
    scout = Scout(twins(), executors=done)
    teach(scout, "close this ticket", "b__finish")

    reply = scout.session("asking").search("close the ticket")

    assert reply.hits[0].why.asked_before == ("close this ticket",)
    assert "this" not in reply.text
    assert "this" not in str(reply.details)
