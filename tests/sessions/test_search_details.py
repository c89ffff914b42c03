"""What programs read of a search: the same as the model, as JSON."""

import json

import pytest

from demos import make_demo_scout
from toolscout import Catalog, Index, Scout, Session, Tool
from toolscout.search.hits import Result

SEND = Tool.define(
    "send_mail",
    server="mail",
    title="Send a mail",
    description="Send a mail to <someone>.\nIt cannot be called back.",
    input_schema={
        "properties": {
            "cc": {"type": "array", "items": {"type": "string"}},
            "priority": {"enum": ["low", "high"]},
            "to": {"type": "string", "description": "An address."},
            "options": {"type": "object", "properties": {"plain": {"type": "boolean"}}},
        },
        "required": ["to"],
    },
)
NOTHING_FOUND = {"hits": 0, "loaded": 0, "hidden": 244, "catalogued": 246}


def open_session(*tools: Tool) -> Session:
    return Scout(Catalog({"mail": list(tools)})).session("a")


def test_a_hit_carries_its_title_description_kind_and_parameters():
    [query] = open_session(SEND).search("send mail").details["queries"]
    [hit] = query["hits"]

    assert hit["title"] == "Send a mail"
    assert hit["description"] == "Send a mail to \u2039someone\u203a. It cannot be called back."
    assert hit["kind"] == "tool"
    assert hit["parameters"] == [
        {"name": "to", "type": "string", "required": True},
        {"name": "cc", "type": "string[]", "required": False},
        {"name": "priority", "type": "string", "required": False, "enum": ["low", "high"]},
        {"name": "options", "type": "object", "required": False},
    ]


def test_many_parameters_are_those_of_the_signature():
    properties = {f"p{number}": {"type": "string"} for number in range(40)}
    schema = {"properties": properties, "required": ["p39", "p38"]}
    wide = Tool.define("wide", server="mail", description="Wide.", input_schema=schema)

    [query] = open_session(wide).search("wide").details["queries"]

    names = [parameter["name"] for parameter in query["hits"][0]["parameters"]]
    assert names == ["p38", "p39", *(f"p{number}" for number in range(12))]


@pytest.mark.parametrize("queries", [[], "", [None], {}])
def test_a_search_without_a_query_still_carries_queries_and_totals(queries: object):
    session = make_demo_scout().session("a")

    reply = session.handle_sync("tool_search", {"queries": queries})

    assert reply.is_error
    assert reply.details["queries"] == []
    assert reply.details["totals"] == NOTHING_FOUND
    assert reply.details["code"] == reply.code
    json.dumps(reply.details)


def test_a_search_that_fails_says_so_for_each_query(monkeypatch: pytest.MonkeyPatch):
    def fail(*_: object, **__: object) -> Result:
        raise RuntimeError("broken")

    session = make_demo_scout().session("a")
    monkeypatch.setattr(Index, "search", fail)

    reply = session.search(["send mail", "open issue"])

    assert reply.code == "broken_index"
    assert [query["query"] for query in reply.details["queries"]] == ["send mail", "open issue"]
    assert {query["code"] for query in reply.details["queries"]} == {"broken_index"}
    assert {query["error"] for query in reply.details["queries"]} == {reply.text}
    assert reply.details["totals"] == NOTHING_FOUND


def test_a_refused_query_carries_the_same_members_as_an_answered_one():
    session = make_demo_scout().session("a")

    refused = session.search("server:nothing").details
    answered = session.search("send mail").details

    assert refused.keys() == answered.keys()
    assert refused["queries"][0].keys() == answered["queries"][0].keys()
    assert refused["totals"] == NOTHING_FOUND
