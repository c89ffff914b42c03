"""Calls: what is let through, what is sent, and what comes back."""

import asyncio
import contextvars
import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import settings as trying
from hypothesis import strategies as st

from toolscout import Catalog, Permission, Policy, Reply, Scout, Session, Settings, Tool
from toolscout.demo import load_demo_catalog
from toolscout.errors import InvalidFile
from toolscout.schemas import Json
from toolscout.sessions.engine import Executor
from toolscout.sessions.record import Record
from toolscout.settings import Hiding
from toolscout.stores import MemoryStore, SqliteStore
from toolscout.testing import FakeServer

FORECAST_SCHEMA: Json = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
    "required": ["city"],
}
LONG = "".join(f"line {number} of the log\n" for number in range(1, 1001))
ITEMS = json.dumps([{"id": number, "name": f"item {number}"} for number in range(2000)])

setting: contextvars.ContextVar[str] = contextvars.ContextVar("setting", default="unset")


def forecast(city: str, days: int = 1) -> str:
    """Forecast the weather of a city."""
    return f"{city}: sun for {days} d"


def translate(text: str) -> str:
    """Translate a text into English."""
    return text.upper()


def session_with(*tools: object, **options: Any) -> Session:
    """Return a session in which all tools of the server `local` are loaded."""
    catalog = Catalog({"local": tools, "other": [translate]})
    session = scout_of(catalog, **options).session("s")
    session.search("server:local", limit=20)
    return session


def scout_of(catalog: Catalog, **options: Any) -> Scout:
    return Scout(catalog, **options)


def plain(leaf: str, **options: Any) -> Tool:
    return Tool.define(leaf, server="local", description=f"Do {leaf}.", **options)


def echo(tool: Tool, arguments: Json) -> str:
    return f"{tool.name} {arguments}"


def answering(text: str) -> Executor:
    return lambda tool, arguments: text


def called(function: Callable[..., object], **options: Any) -> Reply:
    """Return what a call of a tool gives that this function runs."""
    return session_with(plain("act", function=function), **options).call_sync("local__act")


@pytest.mark.requirement("R71")
def test_a_call_reaches_functions_and_the_executors_of_their_servers():
    """R71"""
    fake = FakeServer("files", [{"name": "list", "description": "List files."}], {"list": "a.txt"})
    catalog = Catalog({"local": [forecast], "mail": [{"name": "send", "description": "Send."}]})
    fake.connect(catalog)
    scout = scout_of(catalog, executors={"files": fake, "mail": answering("sent")})
    session = scout.session("s")
    session.search("select:local__forecast,files__list,mail__send")

    given = {"local__forecast": {"city": "Oslo"}, "files__list": {}, "mail__send": None}
    texts = [session.call_sync(name, arguments).text for name, arguments in given.items()]

    assert texts == ["Oslo: sun for 1 d", "a.txt", "sent"]


@pytest.mark.requirement("R71")
def test_one_executor_runs_the_tools_of_all_servers():
    """R71"""
    catalog = Catalog({"a": [Tool.define("x", server="a")], "b": [Tool.define("y", server="b")]})
    session = scout_of(catalog, executors=echo).session("s")
    session.describe(["a__x", "b__y"])

    assert session.call_sync("a__x").text == "a__x {}"
    assert session.call_sync("b__y", {"n": 1}).text == "b__y {'n': 1}"


@pytest.mark.requirement("R71")
@pytest.mark.parametrize(
    ("name", "arguments", "told"),
    [
        ("local__forecast", '{"city": "Oslo", "days": 2}', "JSON"),
        ("local__forecast", {"arguments": {"city": "Oslo", "days": 2}}, "arguments"),
        ("local__forecast", {"city": "Oslo", "days": "2"}, "days"),
        ("forecast", {"city": "Oslo", "days": 2}, "Called local__forecast for 'forecast'."),
        ("Local__Forecast", {"city": "Oslo", "days": 2}, "Called local__forecast for"),
    ],
)
def test_harmless_slips_are_repaired_and_the_repair_is_reported(
    name: str, arguments: object, told: str
):
    """R71"""
    reply = session_with(forecast).call_sync(name, arguments)

    first, last = reply.text.splitlines()
    assert last == "Oslo: sun for 2 d"
    assert told in first
    assert reply.details["repairs"] == [first[1:-1]]


@pytest.mark.requirement("R72")
def test_a_tool_that_was_not_found_is_refused_with_the_query_that_loads_it():
    """R72"""
    session = session_with(forecast)

    refusal = session.call_sync("other__translate", {"text": "ja"})
    session.search("select:other__translate")
    reply = session.call_sync("other__translate", {"text": "ja"})

    assert (refusal.code, refusal.is_error) == ("not_loaded", True)
    assert refusal.text == (
        "Not called: tool 'other__translate' is not loaded yet. "
        "Call tool_search with 'select:other__translate' first."
    )
    assert (reply.code, reply.text) == ("ok", "JA")


@pytest.mark.requirement("R72")
def test_a_call_by_name_is_let_through_where_the_host_says_so_and_loads_the_tool():
    """R72"""
    session = session_with(forecast, settings=Settings(calls_by_name=True))

    reply = session.call_sync("other__translate", {"text": "ja"})

    assert (reply.text, reply.references) == ("JA", ("other__translate",))
    assert "other__translate" in session.loaded


@pytest.mark.requirement("R72")
def test_what_a_search_shows_as_a_guess_may_be_called_all_the_same():
    """R72"""
    session = scout_of(load_demo_catalog(), executors=answering("Francis")).session("s")
    hit = session.search("name of the king of France in the year 1500").hits[0]
    assert (hit.tool.name, hit.confidence) == ("weather__get-historical", "weak")
    assert hit.tool.name not in session.loaded

    assert (
        session.call_sync(hit.tool.name, {"location": "Paris", "start": "1500-01-01"}).text
        == "Francis"
    )
    assert hit.tool.name in session.loaded


@pytest.mark.requirement("R72")
@trying(max_examples=30)
@given(
    allowed=st.sets(st.sampled_from("abcdef")),
    queries=st.lists(st.sampled_from(["do a", "do b c", "select:local__d", "local_*", "e"])),
)
def test_a_call_is_made_of_exactly_what_a_search_showed(allowed: set[str], queries: list[str]):
    """R72"""
    tools = [plain(leaf, function=lambda: "done") for leaf in "abcdef"]
    policy = Policy(allowed=lambda tool: tool.leaf in allowed)
    session = scout_of(Catalog({"local": tools}), policy=policy).session("s")
    shown = {hit.tool.leaf for query in queries for hit in session.search(query).hits}

    made = {leaf for leaf in "abcdef" if session.call_sync(f"local__{leaf}").code == "ok"}

    # With nothing left to hide, every tool is shown from the start.
    assert made == (shown if Record.from_json(session.to_json()).hiding else allowed)
    assert made <= allowed


@pytest.mark.requirement("R73")
@pytest.mark.requirement("R2")
@pytest.mark.parametrize(
    "name", ["local__forecast", "local.forecast", "mcp__local__forecast", "outlook", "forecast"]
)
def test_the_gate_knows_a_tool_by_all_of_its_names(name: str):
    """R2, R73"""
    tool = Tool.from_callable(forecast, server="local", aliases=["outlook"])
    session = session_with(tool)

    assert session.call_sync(name, {"city": "Oslo"}).details["tool"] == "local__forecast"


@pytest.mark.requirement("R73")
@pytest.mark.parametrize(
    "name", ["local__forecast", "local.forecast", "mcp__local__forecast", "outlook", "forecast"]
)
def test_a_loaded_tool_passes_the_gate_under_each_of_its_names(name: str):
    """R73: while its neighbour, which is as hidden as it was, does not."""
    tool = Tool.from_callable(forecast, server="local", aliases=["outlook"])
    catalog = Catalog({"local": [tool], "other": [translate]})
    session = Scout(catalog, settings=Settings(hiding=Hiding.ON)).session("s")
    session.describe("local__forecast")

    assert session.call_sync(name, {"city": "Oslo"}).code == "ok"
    assert session.call_sync("translate", {"text": "ja"}).code == "not_loaded"


@pytest.mark.requirement("R73")
@pytest.mark.parametrize("name", ["other__translate", "other.translate", "translate", "english"])
def test_no_other_name_of_a_tool_gets_past_the_gate(name: str):
    """R73"""
    catalog = Catalog(
        {"other": [Tool.from_callable(translate, aliases=["english"])], "local": [forecast]}
    )
    reply = scout_of(catalog).session("s").call_sync(name, {"text": "ja"})

    assert reply.code == "not_loaded"
    assert "select:other__translate" in reply.text


@pytest.mark.requirement("R42")
def test_every_refusal_says_in_its_details_which_tool_and_why():
    """R42: a program reads the same as the model, without parsing its text."""

    def permit(tool: Tool, _: Json) -> Permission:
        return Permission.DENY if tool.leaf == "forecast" else Permission.ASK

    policy = Policy(permit=permit, disabled={"local__off": "broken"})
    off = Tool.define("off", server="local")
    catalog = Catalog({"local": [forecast, off], "other": [translate]})
    session = Scout(catalog, policy=policy, settings=Settings(hiding=Hiding.ON)).session("s")
    hidden = session.call_sync("translate", {"text": "ja"})
    session.describe(["local__forecast", "other__translate"])
    refusals = {
        "not_loaded": hidden,
        "not_allowed": session.call_sync("forecast", {"city": "Oslo"}),
        "approval_needed": session.call_sync("translate", {"text": "ja"}),
        "invalid_arguments": session.call_sync("translate", {"txt": "ja"}),
        "unknown_tool": session.call_sync("nothing", {}),
        "tool_disabled": session.call_sync("local__off", {}),
        "unknown_result": session.call_sync("result_0123456789", {}),
        "invalid_request": session.handle_sync("tool_call", {}),
        "invalid_query": session.handle_sync("tool_search", {}),
    }

    for code, reply in refusals.items():
        assert (reply.is_error, reply.code, reply.details["code"]) == (True, code, code)
        assert reply.text.startswith(reply.details["message"])
    tools = [refusals[code].details["tool"] for code in ("not_loaded", "not_allowed")]
    assert tools == ["other__translate", "local__forecast"]


@pytest.mark.requirement("R74")
def test_arguments_that_do_not_fit_are_not_sent_and_the_refusal_carries_the_schema():
    """R74"""
    fake = FakeServer("local", [])
    tool = plain("forecast", input_schema=FORECAST_SCHEMA)
    session = session_with(tool, executors=fake)

    reply = session.call_sync("local__forecast", {"days": "many"})

    assert fake.calls == []
    assert (reply.code, reply.is_error) == ("invalid_arguments", True)
    assert reply.text == (
        "Not called: the arguments of 'local__forecast' do not match its schema. "
        "city: is required (required); days: expected integer, got the text 'many' (type).\n"
        "Definition of local__forecast:\n"
        '{"name":"local__forecast","description":"Do forecast.","input_schema":'
        + json.dumps(FORECAST_SCHEMA, separators=(",", ":"))
        + "}"
    )


@pytest.mark.requirement("R75")
def test_what_the_host_says_to_a_call_is_done_and_nothing_else():
    """R75: `ask` is allowed by nobody but the host, and `deny` not even by it."""
    answers = {"a": Permission.ALLOW, "b": Permission.ASK, "c": Permission.DENY}
    fake = FakeServer("local", [])
    session = session_with(
        *map(plain, "abc"),
        executors=fake,
        policy=Policy(permit=lambda tool, _: answers[tool.leaf]),
    )

    codes = [session.call_sync(f"local__{leaf}").code for leaf in "abc"]
    approved = [session.call_sync(f"local__{leaf}", approved=True).code for leaf in "abc"]

    assert codes == ["ok", "approval_needed", "not_allowed"]
    assert approved == ["ok", "ok", "not_allowed"]
    assert fake.calls == [("a", {}), ("a", {}), ("b", {})]


@pytest.mark.requirement("R75")
def test_the_host_is_asked_about_the_arguments_that_are_sent():
    """R75"""
    asked: list[Json] = []

    async def permit(_: Tool, arguments: Json) -> Permission:
        asked.append(arguments)
        return Permission.ALLOW

    session = session_with(forecast, policy=Policy(permit=permit))
    session.call_sync("forecast", '{"city": "Oslo", "days": "2"}')

    assert asked == [{"city": "Oslo", "days": 2}]


@pytest.mark.requirement("R76")
def test_a_disabled_tool_is_not_found_and_is_refused_with_the_reason():
    """R76"""
    policy = Policy(disabled={"other__*": "under repair"})
    session = session_with(forecast, policy=policy)

    assert session.search("translate a text into English").hits == ()
    assert session.search("select:other__translate").hits == ()
    reply = session.call_sync("other__translate", {"text": "ja"})
    assert reply.code == "tool_disabled"
    assert reply.text == (
        "Not called: 'other__translate' is disabled: under repair. Use another tool."
    )


@pytest.mark.requirement("R77")
def test_a_denied_tool_is_answered_like_one_that_does_not_exist():
    """R77"""
    policy = Policy(allowed=lambda tool: tool.server != "other")
    session = session_with(forecast, plain("wait"), policy=policy)

    denied = session.call_sync("other__translate", {"text": "ja"})
    absent = session.call_sync("other__xxxxxxxxx", {"text": "ja"})

    assert denied.text.replace("translate", "xxxxxxxxx") == absent.text
    assert denied.details["tool"] == ""


@pytest.mark.requirement("R78")
def test_every_refusal_is_a_result_with_a_code_of_its_own():
    """R78"""
    catalog = Catalog({"local": [forecast, *map(plain, "abc")], "x": [translate]})
    catalog.add("y", [translate])
    policy = Policy(
        disabled={"local__b": ""},
        permit=lambda tool, _: Permission.DENY if tool.leaf == "c" else Permission.ALLOW,
    )
    session = scout_of(catalog, policy=policy).session("s")
    session.describe(["local__forecast", "local__a", "local__c"])
    calls = {
        "local__forecast": "invalid_arguments",
        "local__a": "server_unavailable",
        "local__b": "tool_disabled",
        "x__translate": "not_loaded",
        "translate": "ambiguous_tool",
        "local__c": "not_allowed",
        "": "unknown_tool",
        "result_0123456789": "unknown_result",
    }

    replies = {name: session.call_sync(name, {}) for name in calls}

    assert {name: reply.code for name, reply in replies.items()} == calls
    assert all(reply.is_error for reply in replies.values())
    assert all(reply.details["code"] == reply.code for reply in replies.values())


@pytest.mark.requirement("R85")
def test_what_a_server_says_of_itself_is_cut_and_cleaned():
    """R85"""
    catalog = Catalog({"local": [plain("a"), plain("b")]})
    session = scout_of(catalog).session("s")
    session.describe("local__a")
    catalog.set_failed("local", "no\x1b[1m \u202e<b>route</b> " + "x" * 500)

    text = session.call_sync("local__a").text

    assert text.startswith(
        "Not called: server 'local' has failed (no[1m \u2039b\u203aroute\u2039/b\u203a xxx"
    )
    assert len(text) < 300


def test_a_tool_that_is_gone_with_its_server_is_unavailable_and_not_unknown():
    catalog = Catalog({"local": [plain("a"), plain("b")]})
    store = MemoryStore()
    first = scout_of(catalog, store=store).session("s")
    first.describe("local__a")
    later = Catalog({"other": [translate, forecast]})
    later.set_failed("local", "no <b>route</b>")

    reply = scout_of(later, store=store).session("s").call_sync("local__a")

    assert reply.code == "server_unavailable"
    assert "(no \u2039b\u203aroute\u2039/b\u203a)" in reply.text


def test_a_tool_whose_server_has_no_executor_is_unavailable():
    reply = session_with(plain("act")).call_sync("local__act")

    assert (reply.code, reply.is_error) == ("server_unavailable", True)
    assert reply.text.startswith("Not called: server 'local' is not connected.")


def test_an_asynchronous_tool_is_given_up_after_its_time():
    ended: list[bool] = []

    async def act() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(True)

    reply = called(act, settings=Settings(call_seconds=0.001))

    assert ended == [True]
    assert (reply.code, reply.is_error) == ("timed_out", True)
    assert reply.text == (
        "'local__act' did not answer within 0.001 s; it may still have had an effect. "
        "Check before you call it again."
    )


def test_a_function_that_never_returns_is_given_up_after_its_time():
    never = threading.Event()

    reply = called(lambda: never.wait(), settings=Settings(call_seconds=0.001))
    never.set()

    assert reply.code == "timed_out"


def test_a_time_out_of_the_tools_own_is_its_failure():
    def act() -> None:
        raise TimeoutError("the disk is slow")

    assert called(act).text == "'local__act' failed: TimeoutError: the disk is slow"


def test_giving_up_a_call_reaches_the_executor():
    started, stopped = asyncio.Event(), asyncio.Event()

    async def wait(*_: object) -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            stopped.set()
            raise

    async def give_up() -> None:
        call = asyncio.create_task(session.call("local__act"))
        await asyncio.wait_for(started.wait(), 120)
        call.cancel()
        await call

    session = session_with(plain("act"), executors={"local": wait})
    with pytest.raises(asyncio.CancelledError):
        asyncio.run(give_up())

    assert stopped.is_set()


def test_a_call_that_the_tool_itself_cancels_has_failed():
    async def act() -> None:
        raise asyncio.CancelledError

    assert called(act).text == "'local__act' failed: it was cancelled"


def test_a_synchronous_function_runs_off_the_loop_in_the_callers_context():
    async def both() -> tuple[int, Reply]:
        setting.set("mine")
        return threading.get_ident(), await session.call("local__act")

    session = session_with(
        plain("act", function=lambda: {"thread": threading.get_ident(), "setting": setting.get()})
    )
    loop_thread, reply = asyncio.run(both())

    assert reply.details["data"]["setting"] == "mine"
    assert reply.details["data"]["thread"] != loop_thread


def test_an_asynchronous_executor_runs_in_the_loop():
    async def both() -> tuple[int, Reply]:
        return threading.get_ident(), await session.call("local__act")

    async def here(*_: object) -> int:
        return threading.get_ident()

    session = session_with(plain("act"), executors=here)
    loop_thread, reply = asyncio.run(both())

    assert reply.details["data"] == loop_thread


def test_a_function_may_give_something_to_be_awaited():
    async def later(_: object) -> str:
        return "done"

    assert called(lambda: later(None)).text == "done"


@pytest.mark.requirement("R81")
def test_calls_of_one_session_run_concurrently():
    """R81: each waits for the other, which in turn would take for ever."""
    first, second = asyncio.Event(), asyncio.Event()

    async def meet(tool: Tool, _: Json) -> str:
        mine, other = (first, second) if tool.leaf == "a" else (second, first)
        mine.set()
        await other.wait()
        return "met"

    async def both() -> tuple[Reply, Reply]:
        return await asyncio.gather(session.call("local__a"), session.call("local__b"))

    session = session_with(plain("a"), plain("b"), executors=meet)

    assert [reply.text for reply in asyncio.run(both())] == ["met", "met"]


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (
            ValueError("no\n\x1b <b>such</b> city"),
            "ValueError: no\n\u2039b\u203asuch\u2039/b\u203a city",
        ),
        (ValueError("x" * 2000), f"ValueError: {'x' * 586} … {'x' * 599}"),
        (StopIteration(3), "RuntimeError: StopIteration(3)"),
        (SystemExit(1), "RuntimeError: SystemExit(1)"),
    ],
)
def test_a_tools_own_failure_is_a_result(error: BaseException, told: str):
    def act() -> None:
        raise error

    reply = called(act)

    assert (reply.code, reply.is_error) == ("call_failed", True)
    assert reply.text == f"'local__act' failed: {told}"


def test_a_failure_that_a_server_reports_is_a_result():
    result = {"content": [{"type": "text", "text": "no such city"}], "isError": True}

    reply = called(lambda: result)

    assert (reply.code, reply.is_error, reply.text) == ("tool_error", True, "no such city")


def test_images_are_passed_on_with_the_text():
    image = {"type": "image", "data": "aGk=", "mimeType": "image/png"}

    reply = called(lambda: {"content": [{"type": "text", "text": "a cat"}, image]})

    assert (reply.text, reply.blocks) == ("a cat", (image,))
    assert image in reply.to_message("mcp")["content"]


def test_a_tool_without_output_is_reported_as_such():
    assert called(lambda: "").text == "(no content)"
    assert called(lambda: None).text == "(no content)"


def test_a_long_result_is_cut_and_read_on_by_its_handle():
    session = session_with(plain("log", function=lambda: LONG))
    first = session.call_sync("local__log")
    handle = first.details["handle"]
    end = first.details["shown"][1]

    def read(arguments: Json) -> str:
        return session.handle_sync("tool_call", {"name": handle, "arguments": arguments}).text

    assert first.text.startswith("line 1 of the log\n")
    assert f'tool_call(name="{handle}", arguments={{"start": {end}}})' in first.text
    assert read({}).startswith(LONG[end:][:40])
    assert read({"start": 0, "end": 17}).startswith("line 1 of the log\nCharacters 0 to 17")
    assert read({"lines": [500, 501]}).startswith("line 500 of the log\nline 501 of the log\n")
    assert "777: line 777 of the log" in read({"find": "LINE 777"})


def test_a_long_result_of_json_is_read_by_path():
    session = session_with(plain("items", function=lambda: ITEMS))
    handle = session.call_sync("local__items").details["handle"]

    reply = session.call_sync(handle, {"path": "$[1234].name"})

    assert (reply.code, reply.text) == ("ok", '"item 1234"')


def test_an_invalid_way_to_read_on_is_answered_with_the_valid_ones():
    session = session_with(plain("log", function=lambda: LONG))
    handle = session.call_sync("local__log").details["handle"]

    reply = session.call_sync(handle, {"page": 2})

    assert (reply.code, reply.is_error) == ("invalid_request", True)
    assert '{"lines": [120, 180]}' in reply.text


def test_a_long_result_is_there_in_another_process(tmp_path: Path):
    catalog = Catalog({"local": [plain("log", function=lambda: LONG, always_load=True)]})
    with SqliteStore(tmp_path / "state.db") as store:
        session = scout_of(catalog, store=store).session("s")
        handle = session.call_sync("local__log").details["handle"]

    with SqliteStore(tmp_path / "state.db") as store:
        reply = scout_of(catalog, store=store).session("s").call_sync(handle, {"lines": [3, 3]})

    assert reply.text.startswith("line 3 of the log\n")


@pytest.mark.parametrize("store", [None, MemoryStore()])
def test_a_long_result_of_one_session_cannot_be_read_in_another(store: MemoryStore | None):
    catalog = Catalog({"local": [plain("log", function=lambda: LONG, always_load=True)]})
    scout = scout_of(catalog, store=store)
    handle = scout.session("mine").call_sync("local__log").details["handle"]

    reply = scout.session("yours").call_sync(handle)

    assert (reply.code, reply.is_error) == ("unknown_result", True)
    assert "line" not in reply.text


def test_when_a_result_cannot_be_kept_nobody_says_that_nothing_was_called():
    class Full(MemoryStore):
        def write(self, kind: str, key: str, value: bytes | None) -> None:
            if kind == "result":
                raise InvalidFile("state.db", "cannot grow", remedy="Free some space.")
            super().write(kind, key, value)

    catalog = Catalog({"local": [plain("log", function=lambda: LONG, always_load=True)]})
    reply = scout_of(catalog, store=Full()).session("s").call_sync("local__log")

    assert reply.is_error
    assert "the tool may have been called" in reply.text
    assert "state.db" not in reply.text


def pick(value: object, path: object, **options: Any) -> Reply:
    """Return what `tool_call` says that picks a part of what a tool returns."""
    session = session_with(plain("act", function=lambda: value), **options)
    return session.handle_sync("tool_call", {"name": "local__act", "pick": path})


def test_a_call_returns_the_picked_part_of_a_result():
    assert pick(ITEMS, "$[3].name").text == '"item 3"'
    assert pick({"items": [{"id": 1, "x": "y"}, {"id": 2}]}, "$.items[*].id").text == "[1, 2]"
    wrapped = {
        "content": [{"type": "text", "text": '[{"id": 7}]'}],
        "structuredContent": {"result": [{"id": 7}]},
        "isError": False,
    }
    assert [pick(wrapped, path).text for path in ("$.result[0].id", "$[0].id")] == ["7", "7"]


def test_a_part_that_does_not_exist_costs_nothing_of_the_result():
    missed = pick({"items": [1, 2]}, "$.rows")
    words = pick("no JSON at all", "$.rows")

    assert '"items": [1, 2]' in missed.text
    assert "'$' has nothing at '.rows'. Keys there: items." in missed.text
    assert words.text.endswith("no JSON at all")
    assert "It is not JSON." in words.text


@pytest.mark.parametrize("path", ["$.a b", "$..a", "[", ["$.a"], 7, "$" + ".a" * 400])
def test_a_call_that_picks_at_no_path_is_not_made(path: object):
    made: list[int] = []
    session = session_with(plain("act", function=lambda: made.append(1)))

    reply = session.handle_sync("tool_call", {"name": "local__act", "pick": path})

    assert (reply.code, made) == ("invalid_request", [])
    assert reply.text.startswith("Not called: ")
    assert "Write one like $.items[0].name" in reply.text


def test_a_long_part_is_cut_and_a_handle_can_be_picked_from():
    session = session_with(plain("list", function=lambda: {"items": json.loads(ITEMS)}))
    first = session.handle_sync("tool_call", {"name": "local__list", "pick": "$.items"})
    handle = first.details["handle"]

    part = session.handle_sync("tool_call", {"name": handle, "pick": "$[1999].id"})

    assert first.text.startswith('[\n{"id": 0')
    assert part.text == "1999"


@pytest.mark.parametrize("is_structured", [False, True])
def test_a_path_into_a_long_result_that_does_not_exist_is_answered_with_its_keys(
    is_structured: bool,
):
    made: list[int] = []
    value: Json = {"items": json.loads(ITEMS), "total": 2_000}
    result = {"content": [{"type": "text", "text": "2,000 items"}], "structuredContent": value}

    def act() -> object:
        made.append(1)
        return result if is_structured else json.dumps(value)

    session = session_with(plain("act", function=act))
    missed = session.handle_sync("tool_call", {"name": "local__act", "pick": "$.rows[*].id"})
    handle = missed.details["handle"]
    found = session.handle_sync("tool_call", {"name": handle, "arguments": {"path": "$.total"}})

    assert "'$' has nothing at '.rows'. Keys there: items, total." in missed.text
    assert handle in missed.text
    assert "item 3" not in missed.text
    assert (missed.code, found.text, made) == ("ok", "2000", [1])


def test_a_handle_is_read_by_a_path_or_in_another_way_and_not_by_both():
    session = session_with(plain("list", function=lambda: {"items": json.loads(ITEMS)}))
    handle = session.call_sync("local__list").details["handle"]

    both = {"name": handle, "arguments": {"start": 40}, "pick": "$.items[0]"}

    assert "cannot be read by start, path" in session.handle_sync("tool_call", both).text


def test_a_part_can_be_picked_in_python():
    session = session_with(plain("act", function=lambda: {"a": [1, 2]}))

    assert session.call_sync("local__act", pick="$.a[1]").text == "2"


def test_the_error_of_a_tool_is_shown_whole():
    failed = {"content": [{"type": "text", "text": '{"why": "no"}'}], "isError": True}

    assert pick(failed, "$.items").text == '{"why": "no"}'
