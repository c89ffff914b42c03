import asyncio
import json
import re
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from demos import index_demo, make_demo_scout
from hostile import ANYTHING, Tools, catalog_of, is_safe, queries, tool_lists
from toolscout import Catalog, Mode, Policy, Scout, Session, Settings, Tool
from toolscout.demo import load_demo_catalog
from toolscout.encoders.encoder import Floats, Kind, StaticEncoder
from toolscout.search.hits import Confidence, Result
from toolscout.search.index import Index
from toolscout.sessions.replies import Reply
from toolscout.tokens import count_definition_tokens


def demo(**members: Any) -> Session:
    chosen = Settings(**members)
    return make_demo_scout(settings=chosen, executors=answered).session("a")


def answered(tool: Tool, arguments: dict[str, Any]) -> str:
    return f"{tool.name} was run"


def small(*leaves: str, **members: Any) -> Session:
    """Return a session over tools without parameters, each with a description of its own."""
    tools = [Tool.define(leaf, description=f"Does {leaf} well.") for leaf in leaves]
    chosen = Settings(essential=(), **members)
    catalog = Catalog({"": tools})
    return Scout(catalog, settings=chosen, executors=answered).session("a")


def names(reply: Reply) -> list[str]:
    return [hit.tool.name for hit in reply.hits]


def test_the_reply_to_a_search():
    session = Scout(
        Catalog(
            {
                "mail": [
                    Tool.define(
                        "send_mail",
                        server="mail",
                        description="Send a mail. It cannot be called back.",
                        input_schema={"properties": {"to": {}}, "required": ["to"]},
                    ),
                    Tool.define("list_folders", server="mail", description="List all folders."),
                ]
            }
        ),
    ).session("a")

    reply = session.search("send mail")

    assert reply.text == (
        "Found for 'send mail':\n"
        "- mail__send_mail(to*: any) \N{EN DASH} Send a mail. [exact]\n"
        "Definition of mail__send_mail:\n"
        '{"name":"mail__send_mail","description":"Send a mail. It cannot be called back.",'
        '"input_schema":{"properties":{"to":{}},"required":["to"]}}\n'
        "Next: tool_call with one of these names and its arguments."
    )
    assert (reply.code, reply.is_error, reply.references) == ("ok", False, ("mail__send_mail",))


@pytest.mark.requirement("R7")
def test_searching_the_index_and_discovering_change_nothing():
    """R7: `discover:` shows even a clear winner's definition without noting it."""
    session = demo()
    session.search("zzz qqq")
    before = session.to_json()

    index_demo()[1].search("send an email")
    reply = session.search("discover: send an email")

    assert names(reply)[0] == "gmail__send_email"
    assert "Definition of" in reply.text
    assert reply.references == () and session.loaded == ()
    assert session.to_json() == before


@pytest.mark.requirement("R9")
@pytest.mark.parametrize("query", ["", "   ", "!!!", "?", "+", "«»", "\ud800"])
def test_a_query_without_words_is_answered_with_the_forms(query: str):
    """R9"""
    session = demo()

    reply = session.search(query)

    assert (reply.code, reply.is_error) == ("invalid_query", True)
    assert "Describe what the tool should do" in reply.text
    assert "'select:name,name'" in reply.text
    assert session.loaded == () and reply.hits == ()


@pytest.mark.requirement("R52")
def test_a_query_that_cannot_be_read_does_not_spoil_the_others():
    """R52: it is shown without its control characters."""
    reply = demo().search(["effect:\x9b31mred", "send email"])

    assert (reply.code, reply.is_error) == ("ok", False)
    assert [query["code"] for query in reply.details["queries"]] == ["invalid_query", "ok"]
    assert reply.references[0] == "gmail__send_email"
    assert is_safe(json.dumps([reply.text, reply.details], ensure_ascii=False))


@pytest.mark.requirement("R11")
def test_a_clamped_limit_is_stated_in_the_reply():
    """R11: 5 hits unless told, 20 at most."""
    session = demo()

    usual = session.search("discover: server:github")
    most = session.search("discover: server:github", limit=21, max_tokens=5_000)

    assert len(usual.hits) == 5 and usual.details["limit"] == 5
    assert len(most.hits) == 20 and most.details["limit"] == 20
    assert "limit must be 1 to 20; 20 was used." in most.text


@pytest.mark.requirement("R31")
def test_hits_far_behind_better_ones_are_not_shown():
    """R31: below the floor there is no match."""
    session = demo()

    result = index_demo()[1].search("create an issue", 20)
    reply = session.search("create an issue", limit=20)

    assert names(reply) == [hit.tool.name for hit in result.best]
    assert 0 < len(result.best) < len(result.hits)


@pytest.mark.requirement("R31")
@pytest.mark.requirement("R54")
def test_where_there_are_only_guesses_a_few_are_shown_as_weak_and_not_loaded():
    """R31, R54: but a call of one is accepted."""
    session = demo()

    reply = session.search("polish the silver")

    assert 0 < len(reply.hits) <= 3
    assert all(hit.confidence is Confidence.WEAK for hit in reply.hits)
    assert reply.text.startswith("Nothing fits ")
    assert "[weak]" in reply.text
    assert session.loaded == () and reply.references == ()
    assert all(session.may_call(hit.tool) for hit in reply.hits)


@pytest.mark.requirement("R34")
def test_scores_and_reasons_are_for_programs_only():
    """R34"""
    reply = demo().search("create a pull request", detail="names")

    best = reply.hits[0]
    assert 0 < best.score <= 1 and best.why.matched
    assert reply.details["queries"][0]["hits"][0]["score"] == best.score
    assert not re.search(r"\d\.\d|score|matched", reply.text)


@pytest.mark.requirement("R39")
def test_a_full_definition_comes_for_a_clear_winner_once():
    """R39: it is not sent twice."""
    session = demo()

    first = session.search("send an email")
    second = session.search("send an email", detail="schemas")

    assert first.described == ("gmail__send_email",)
    assert "Already loaded: gmail__send_email" in second.text
    assert "gmail__send_email" not in second.described


@pytest.mark.requirement("R39")
def test_full_definitions_come_where_they_are_asked_for():
    """R39: every hit that is not weak, and none at all with `names`."""
    whole = demo().search("create an issue", detail="schemas", max_tokens=5_000)
    bare = demo().search("create an issue", detail="names")

    sure = [hit.tool.name for hit in whole.hits if hit.confidence is not Confidence.WEAK]
    assert list(whole.described) == sure and len(sure) > 1
    assert bare.described == () and "(" not in bare.text


@pytest.mark.requirement("R39")
def test_a_winner_with_a_long_definition_is_shown_by_its_signature():
    """R39"""
    session = demo(schema_tokens=10)

    assert session.search("send an email").described == ()


@pytest.mark.requirement("R42")
@pytest.mark.requirement("R46")
def test_details_hold_what_the_text_says():
    """R42, R46: totals of hits, hidden, loaded and catalogued tools."""
    session = demo()

    reply = session.search(["select:gmail__send_email,nope", "merg pul reqest"], limit=2)

    assert json.loads(json.dumps(reply.details)) == reply.details
    first, second = reply.details["queries"]
    assert [found["name"] for found in first["hits"]] == ["gmail__send_email"]
    assert [found["name"] for found in first["missing"]] == ["nope"]
    assert second["corrected"] == {"reqest": "request"}
    assert [found["loaded"] for found in second["hits"]] == [True, False]  # the second is weak
    assert reply.details["loaded"] == list(reply.references) == list(names(reply))[:2]
    assert reply.details["totals"] == {
        "hits": 3,
        "loaded": 2,
        "hidden": 246 - 2 - 2,
        "catalogued": 246,
    }


@pytest.mark.requirement("R43")
def test_loaded_and_pinned_hits_use_no_slots_also_after_a_refresh():
    """R43"""
    catalog = load_demo_catalog()
    session = Scout(catalog).session("a", pins=["linear__create_issue"])
    first = session.search("create an issue", limit=1)
    catalog.add("new", [Tool.define("other", server="new")])

    second = session.search("create an issue", limit=1)

    assert names(first) == ["jira__createIssue"]
    assert "Already among your tools: linear__create_issue." in first.text
    assert names(second) == ["github__create_issue"]
    already = second.details["queries"][0]["already_loaded"]
    assert sorted(already) == ["jira__createIssue", "linear__create_issue"]
    assert "Already among your tools: linear__create_issue." in second.text
    assert "Already loaded: jira__createIssue." in second.text


@pytest.mark.requirement("R44")
def test_each_unknown_name_is_reported_with_near_names():
    """R44"""
    reply = demo().search("select:github__create_isue,gmail__send_email,qqqq")

    assert "- gmail__send_email(" in reply.text
    near = "github__create_issue, github__get_issue, github__update_issue"
    assert f"There is no tool 'github__create_isue'. Near: {near}." in reply.text
    assert "There is no tool 'qqqq'." in reply.text
    assert reply.details["queries"][0]["missing"][0]["near"] == near.split(", ")


@pytest.mark.requirement("R45")
@pytest.mark.parametrize("query", ["send an email", "zzz qqq", "select:nope", "server:slow"])
def test_pending_and_failed_servers_are_named_whenever_they_could_have_matched(query: str):
    """R45"""
    catalog = load_demo_catalog()
    catalog.set_pending("slow")
    catalog.set_failed("broken", "no such host\nin the network")
    session = Scout(catalog).session("a")

    reply = session.search(query)

    assert "Still connecting, may have more: slow." in reply.text
    assert "Failed to connect: broken (no such host in the network)." in reply.text
    assert reply.details["pending"] == ["slow"]
    assert reply.details["failed"] == [
        {"server": "broken", "reason": "no such host\nin the network"}
    ]


def test_absent_servers_are_named_once_and_again_when_that_changes():
    catalog = load_demo_catalog()
    catalog.set_pending("slow", "npx may still be installing it")
    catalog.set_failed("broken", "no such host")
    session = Scout(catalog).session("a")

    first = session.search("send an email")
    second = session.search("create an issue")
    catalog.set_failed("slow", "it ended")
    third = session.search("list files")
    fourth = session.search("list pull requests")
    session.compact()
    fifth = session.search("send an email")

    waiting = "Still connecting, may have more: slow (npx may still be installing it)."
    assert waiting in first.text
    assert "Failed to connect: broken (no such host)." in first.text
    assert "Still connecting" not in second.text
    assert "Failed to connect" not in second.text
    assert second.details["pending"] == ["slow"]
    assert second.details["failed"] == [{"server": "broken", "reason": "no such host"}]
    changed = "Failed to connect: broken (no such host), slow (it ended)."
    assert changed in third.text
    assert "Failed to connect" not in fourth.text
    assert changed in fifth.text


def test_nobody_is_told_that_no_tool_fits_while_servers_are_still_connecting():
    catalog = load_demo_catalog()
    catalog.set_pending("slow")
    session = Scout(catalog).session("a")

    waiting = [session.search("+zzz qqq").text for _ in range(6)]
    catalog.replace("slow", [])
    after = [session.search("+zzz qqq").text for _ in range(6)]

    assert not any("no tool here fits" in text for text in waiting)
    assert all(text.endswith("tool_search again shortly, or with other words.") for text in waiting)
    assert "no tool here fits" not in after[0]
    assert "no tool here fits" in after[-1]


def test_a_search_that_is_given_up_points_at_servers_that_failed():
    catalog = load_demo_catalog()
    catalog.set_failed("broken", "no such host")
    session = Scout(catalog).session("a")

    last = [session.search("+zzz qqq").text for _ in range(6)][-1]

    assert "no tool of the connected servers fits" in last
    assert last.endswith("tell the user which servers have failed.")


@pytest.mark.requirement("R45")
def test_a_selection_that_found_all_its_names_waits_for_nobody():
    """R45"""
    catalog = load_demo_catalog()
    catalog.set_pending("slow")
    session = Scout(catalog).session("a")

    assert "slow" not in session.search("SELECT: gmail__send_email").text


@pytest.mark.requirement("R47")
def test_an_empty_catalogue_a_miss_and_a_broken_index_are_three_answers():
    """R47"""

    class Broken(Index):
        def search(self, *args: object, **options: object) -> Result:
            raise RuntimeError("the disk is gone")

    class Failing(StaticEncoder):
        def encode(self, texts: Sequence[str], *, kind: Kind) -> Floats:
            if kind == "question" and "mail" in texts:
                raise ValueError("the disk is gone")
            return super().encode(texts, kind=kind)

    catalog = Catalog()
    empty = Scout(catalog).session("a").search("mail")
    catalog.set_pending("slow")
    waiting = Scout(catalog).session("b").search("mail")
    missed = demo().search("+zzz qqq")
    guessed = demo().search("put it off for later")
    demo_tools = load_demo_catalog()
    index = Broken(demo_tools)
    broken = Scout(demo_tools, index=index).session("a").search("mail")
    unencoded = Scout(demo_tools, encoder=Failing()).session("a").search("mail")

    assert empty.text == "There are no tools here yet. Continue without a tool."
    assert waiting.text.endswith("There are no tools here yet. Search again shortly.")
    assert missed.text.startswith(
        "No tool found for '+zzz qqq'.\nServers with tools: github (20), "
    )
    assert guessed.text.startswith("Nothing fits 'put it off for later' well. Guesses:\n")
    assert broken.text.startswith("The tool search failed")
    assert unencoded == broken
    assert "disk" not in json.dumps([broken.text, broken.details])
    replies = (empty, waiting, missed, broken)
    assert [(reply.code, reply.is_error) for reply in replies] == [
        ("empty_catalog", False),
        ("empty_catalog", False),
        ("no_match", False),
        ("broken_index", True),
    ]
    assert empty.details["totals"] == {"hits": 0, "loaded": 0, "hidden": 0, "catalogued": 0}


@pytest.mark.requirement("R47")
def test_a_caller_who_may_see_nothing_reads_that_there_are_no_tools():
    """R47"""
    scout = make_demo_scout(policy=Policy(allowed=lambda tool: False))

    assert scout.session("a").search("mail").code == "empty_catalog"


@pytest.mark.requirement("R48")
def test_a_long_selection_is_cut_between_entries_and_counted():
    """R48: what is left off is not loaded."""
    session = demo()
    wanted = [tool.name for tool in load_demo_catalog()][:100]

    reply = session.search(f"select:{','.join(wanted)}", max_tokens=400)

    left = reply.details["queries"][0]["left_off"]
    assert reply.tokens <= 400
    assert f"Left out for length: {len(left)}. Raise max_tokens" in reply.text
    assert set(names(reply)) | set(left) == set(wanted) - set(session.pinned)
    assert set(session.loaded) == set(names(reply))


@pytest.mark.requirement("R49")
@pytest.mark.requirement("R55")
@pytest.mark.parametrize(
    ("mode", "step"),
    [
        ("bridge", "Next: tool_call with one of these names and its arguments."),
        (
            "native",
            "Next: call one by name; those not marked weak join your tools from your next step on.",
        ),
        ("reference", "Next: call one that is not marked weak, by name."),
        ("definitions", "Next: call one that is not marked weak, by name."),
    ],
)
def test_a_reply_ends_with_the_next_call_of_its_mode(mode: str, step: str):
    """R49, R55: it says whether tools are usable at once or from the next step on."""
    session = demo(mode=mode)

    reply = session.search("send an email")

    assert reply.text.splitlines()[-1] == step
    assert session.handle_sync("gmail__send_email", {}).code == "invalid_arguments"


@pytest.mark.requirement("R49")
@pytest.mark.parametrize(
    ("mode", "dialect"),
    [
        (Mode.BRIDGE, "openai-chat"),
        (Mode.NATIVE, "openai-chat"),
        (Mode.REFERENCE, "anthropic"),
        (Mode.DEFINITIONS, "openai-responses"),
    ],
)
@pytest.mark.parametrize("verb", ["search", "describe"])
def test_a_model_that_follows_the_next_step_makes_a_call_that_it_can_make(
    mode: Mode, dialect: str, verb: str
):
    """R49: by its own name only a tool whose definition the model has or is about to get."""
    session = demo(mode=mode)
    name = "gmail__send_email"

    reply = session.search(f"select:{name}") if verb == "search" else session.describe(name)

    shown = [entry.get("function", entry) for entry in session.tools(dialect)]
    declared = {entry.get("name") for entry in shown} | {tool.name for tool in reply.definitions}
    step = reply.text.splitlines()[-1]
    assert ("by name" in step) is (name in declared)
    assert ("tool_call" in step) is (name not in declared)


@pytest.mark.requirement("R55")
def test_what_is_found_is_usable_when_the_reply_says():
    """R55: by `tool_call` at once, or in the tools of the next request."""
    bridge, native = demo(), demo(mode="native")
    before = bridge.tools("mcp")

    for session in (bridge, native):
        session.search("list the tables of a database")

    assert bridge.tools("mcp") == before
    assert native.tools("mcp")[: len(before)] == before
    assert [shown["name"] for shown in native.tools("mcp")][len(before) :] == list(native.loaded)


@pytest.mark.requirement("R49")
def test_repeated_fruitless_searches_end_in_plain_words():
    """R49: the third in a row says that no tool fits; a success starts again."""
    session = demo()

    replies = [session.search(query) for query in ("+zzz", "polish the silver", "+qqww")]
    session.search("send an email")
    after = session.search("+zzz")

    search_again = "Next: tool_search with other words, or list a server with 'server:name'."
    last = [reply.text.splitlines()[-1] for reply in replies]
    assert last == [
        search_again,
        "Next: tool_search with other words; if one of these is right, tool_describe it.",
        "Several searches in a row found nothing: no tool here fits. Continue without one, or tell "
        "the user.",
    ]
    assert after.text.endswith(search_again)


@pytest.mark.requirement("R50")
def test_a_tool_reported_as_loaded_is_not_evicted_for_a_new_one():
    """R50: what has no room beside it is marked as not loaded."""
    session = small("alpha_one", "alpha_two", "alpha_three", loaded_tokens=1)
    session.search("select:alpha_one")

    reply = session.search("alpha_one alpha_two")

    assert "Already loaded: alpha_one." in reply.text
    assert session.loaded == ("alpha_one",)
    assert re.search(r"- alpha_two\(\) .*\[\w+, not loaded\]", reply.text)
    assert "Those marked 'not loaded' need tool_describe first." in reply.text


@pytest.mark.requirement("R50")
def test_found_again_counts_as_used_when_something_new_needs_room():
    """R50: then another one is evicted."""
    tools = {leaf: Tool.define(leaf, description="x") for leaf in ("aaa", "bbb", "ccc")}
    budget = sum(map(count_definition_tokens, tools.values())) - 1
    chosen = Settings(essential=(), loaded_tokens=budget)
    scout = Scout(Catalog({"": list(tools.values())}), settings=chosen)
    session = scout.session("a")
    session.search("select:aaa")
    session.search("select:bbb")

    reply = session.search(["select:aaa", "select:ccc"])

    assert "Already loaded: aaa." in reply.text
    assert set(session.loaded) == {"aaa", "ccc"}
    assert "Unloaded to make room: bbb." in session.search("select:ccc").text


@pytest.mark.requirement("R50")
def test_tools_of_a_failed_server_are_not_shown_as_callable():
    """R50: they are marked, and the next step does not name them."""
    catalog = Catalog({"mail": [Tool.define("send_mail", server="mail")]})
    session = Scout(catalog, executors=answered).session("a")
    catalog.set_failed("mail", "no answer")

    fresh, known = session.search("send mail"), session.search("send mail")

    assert "- mail__send_mail() [exact, unavailable]" in fresh.text
    assert "Already loaded: mail__send_mail (unavailable)." in known.text
    assert not any("tool_call" in reply.text for reply in (fresh, known))
    assert fresh.details["queries"][0]["hits"][0]["available"] is False
    assert session.call_sync("mail__send_mail").code == "server_unavailable"


@pytest.mark.requirement("R50")
def test_queries_next_to_a_discovering_one_still_load_their_hits():
    """R50: what only `discover:` shows is marked and refused; the rest may be called."""
    session = demo()

    reply = session.search(["discover: create an issue", "send email"])

    assert re.search(r"- jira__createIssue\(.*\[likely, not loaded\]", reply.text)
    assert reply.text.endswith("Those marked 'not loaded' need tool_describe first.")
    assert session.call_sync("jira__createIssue", {}).code == "not_loaded"
    assert session.call_sync("gmail__send_email", {}).code == "invalid_arguments"


@pytest.mark.requirement("R54")
def test_a_search_loads_what_it_returned_and_a_selection_what_it_named():
    """R54"""
    session = demo()

    found = session.search("create an issue")
    selected = session.search("select:slack__post_message,stripe__list_customers,nope")

    sure = [hit.tool.name for hit in found.hits if hit.confidence is not Confidence.WEAK]
    assert list(found.references) == sure
    assert list(selected.references) == names(selected)
    assert session.loaded == (*found.references, *selected.references)


@pytest.mark.requirement("R12")
@pytest.mark.requirement("R48")
@pytest.mark.requirement("R50")
@given(
    tool_lists(),
    st.lists(queries(), min_size=1, max_size=4) | queries(),
    st.sampled_from((None, 1, 3, 99, -1, "7", 2.0)) | ANYTHING,
    st.sampled_from((None, "names", "schemas")) | ANYTHING,
    st.sampled_from((None, 200, 300, 5_000, "400")) | ANYTHING,
    st.sampled_from((0, 300, 16_000)),
)
@example(Tools(), ["mail"], None, None, None, 0)
@settings(max_examples=60)
def test_any_search_of_any_catalogue_is_answered_within_its_budget_and_truly(
    tools: Tools, asked: Any, limit: object, detail: object, tokens: object, room: int
):
    """R12, R48, R50, R40: and every signature has all required parameters."""
    chosen = Settings(loaded_tokens=room)
    scout = Scout(catalog_of(tools), settings=chosen)
    session = scout.session("a")
    words = [asked] if isinstance(asked, str) else asked
    for wanted in (words, ["create mail report", *words], select_all(tools)):
        before = set(session.loaded)
        request = {"queries": wanted, "limit": limit, "detail": detail, "max_tokens": tokens}

        reply = session.handle_sync("tool_search", request)

        assert reply.code != "broken_index"
        assert reply.tokens <= reply.details.get("max_tokens", chosen.reply_tokens)
        assert len(reply.references) == len(set(reply.references))
        assert set(reply.references) == set(session.loaded) - before
        assert_signatures_are_whole(reply, tools)
        assert_promises_hold(session, reply)
        json.dumps(reply.details, ensure_ascii=False).encode()
        assert is_safe(reply.text.replace("\ufffd", ""))


def select_all(tools: Tools) -> str:
    return f"select:{','.join(tool.name for tool in tools)}"


def assert_signatures_are_whole(reply: Reply, tools: Tools) -> None:
    by_name = {tool.name: tool for tool in tools}
    for name, parameters in re.findall(r"^- ([\w-]+)\((.*)$", reply.text, re.MULTILINE):
        for required in by_name[name].input_schema["required"]:
            assert re.search(rf"\b{required}\*", parameters)


def assert_promises_hold(session: Session, reply: Reply) -> None:
    by_name = {tool.name: tool for tool in session.list_visible()}
    claimed = re.findall(r"^- ([\w-]+).*\[\w+\]$", reply.text, re.MULTILINE)
    told = reply.details.get("queries", [])
    claimed += [name for query in told for name in query["already_loaded"]]
    assert all(session.may_call(by_name[name]) for name in (*claimed, *reply.references))


@pytest.mark.requirement("R12")
@given(st.sampled_from(("tool_search", "tool_describe", "tool_call")), ANYTHING)
@settings(max_examples=100)
def test_whatever_a_model_sends_to_a_meta_tool_is_answered(name: str, arguments: object):
    """R12"""
    session = small("alpha", "beta")

    for sent in (arguments, {"queries": arguments, "names": arguments, "name": arguments}):
        reply = asyncio.run(session.handle(name, sent))

        assert reply.text and reply.code not in ("broken_index", "broken_policy")
