"""A confused or hostile model has the meta-tools: it must not hang or flood anybody."""

import asyncio
import subprocess
import sys
from typing import Any

import pytest

from security.counting import DOUBLE, count_lines
from toolscout import Catalog, Reply, Scout, Session, Tool
from toolscout.demo import load_demo_catalog
from toolscout.query import TERMS_LIMIT, query_from_text
from toolscout.schemas import Json

ZONES = [f"Region/City {number}" for number in range(600)]
TOO_SLOW = "Checking all arguments would take too long."
WRONG_ITEMS = """
import asyncio, json, resource, sys
from toolscout import Catalog, Scout, Tool

schema, count = json.loads(sys.argv[1]), int(sys.argv[2])
catalog = Catalog({"s": [Tool.define("t", server="s", input_schema=schema)]})
session = Scout(catalog, encoder=None).session("x")
session.search("select:s__t")
print(session.call_sync("s__t", {"zones": ["nowhere"] * 10}).code)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
session.call_sync("s__t", {"zones": ["nowhere"] * count})
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""
MEGABYTE = 1024
"""In the unit of `ru_maxrss`."""


def session_with(schema: Json) -> Session:
    tools = [Tool.define("t", server="s", input_schema=schema)]
    session = Scout(Catalog({"s": tools})).session("x")
    session.search("select:s__t")
    return session


def call(session: Session, arguments: Json) -> Reply:
    request = {"name": "s__t", "arguments": arguments}
    return asyncio.run(session.handle("tool_call", request))


def test_twice_as_many_unknown_arguments_are_no_more_than_twice_the_work():
    schema = {"properties": {"a": {"type": "string"}}, "additionalProperties": False}
    session = session_with({"type": "object", **schema})

    def send(count: int) -> int:
        return count_lines(lambda: call(session, {f"k{number}": 1 for number in range(count)}))

    send(10)  # until everything that a call remembers is there
    assert send(2_000) < DOUBLE * send(1_000)


def test_twice_as_many_arguments_to_repair_are_no_more_than_twice_the_work():
    numbers: Json = {"type": "array", "items": {"type": "integer"}}
    session = session_with({"type": "object", "properties": {"a": numbers}})

    def send(count: int) -> int:
        return count_lines(lambda: call(session, {"a": ["x"] * count}))

    send(10)
    assert send(4_000) < DOUBLE * send(2_000)


def test_unknown_arguments_are_still_named():
    schema = {"properties": {"a": {"type": "string"}}, "additionalProperties": False}

    reply = call(session_with({"type": "object", **schema}), dict.fromkeys(map(str, range(5_000))))

    assert reply.code == "invalid_arguments"
    assert reply.text.count("is not a parameter") == 5


def test_wrong_items_of_a_long_enumeration_take_little_memory():
    zones = {"type": "array", "items": {"type": "string", "enum": ZONES}}
    schema = f'{{"type": "object", "properties": {{"zones": {zones}}}}}'.replace("'", '"')
    command = [sys.executable, "-c", WRONG_ITEMS, schema, "60000"]

    answer = subprocess.run(command, check=True, capture_output=True, text=True)

    code, grown = answer.stdout.split()
    assert code == "invalid_arguments"
    assert int(grown) < 100 * MEGABYTE


def test_some_thousand_wrong_items_are_refused_with_the_first():
    zones = {"type": "array", "items": {"type": "string", "enum": ZONES}}
    session = session_with({"type": "object", "properties": {"zones": zones}})

    reply = call(session, {"zones": ["nowhere"] * 3_000})

    assert reply.code == "invalid_arguments"
    assert "zones[0]: must be one of" in reply.text
    assert "zones[1]" not in reply.text


def bomb(levels: int) -> Json:
    """Return a small schema that means 2 ** levels others."""
    parts: Json = {f"d{levels}": {"type": "integer"}}
    for level in range(levels):
        below = {"$ref": f"#/$defs/d{level + 1}"}
        parts[f"d{level}"] = {"allOf": [below, below]}
    return {"type": "object", "$defs": parts, "properties": {"a": {"$ref": "#/$defs/d0"}}}


@pytest.mark.parametrize(
    ("schema", "arguments"),
    [
        (bomb(40), {"a": 1}),
        (
            {"type": "object", "allOf": [{"properties": {"a": {"items": {"minimum": 0}}}}] * 2_000},
            {"a": list(range(3_000))},
        ),
        (
            {
                "type": "object",
                "patternProperties": {f"^x{n}.*y$": {"type": "string"} for n in range(1_000)},
            },
            {f"x{number}y": "" for number in range(4_000)},
        ),
    ],
    ids=["references", "allOf", "patterns"],
)
def test_a_check_that_would_take_long_is_not_begun(schema: Json, arguments: Json):
    def run(**_: Any) -> str:
        return "done"

    tool = Tool.define("t", server="s", input_schema=schema)
    scout = Scout(Catalog({"s": [tool]}), executors={"s": lambda tool, given: run(**given)})
    session = scout.session("x")
    session.search("select:s__t")

    reply = call(session, arguments)

    assert reply.details["unchecked"] == TOO_SLOW


def test_arguments_with_ordinary_references_are_checked_however_many():
    row = {"type": "object", "properties": {"n": {"type": "integer"}, "tag": {"type": "string"}}}
    rows = {"type": "array", "items": {"$ref": "#/$defs/row"}}
    session = session_with({"type": "object", "$defs": {"row": row}, "properties": {"rows": rows}})
    good = [{"n": number, "tag": "x"} for number in range(10_000)]

    reply = call(session, {"rows": [*good, {"n": "many", "tag": "x"}]})

    assert reply.code == "invalid_arguments"
    assert "rows[10000].n: expected integer" in reply.text


def test_twice_as_many_unknown_names_and_tools_are_no_more_than_twice_the_work():
    def select(count: int) -> int:
        tools = [Tool.define(f"tool_{number}", server="s") for number in range(count)]
        session = Scout(Catalog({"s": tools}), encoder=None).session("x")
        session.search("select:nothing")  # until everything that a search remembers is there
        names = ",".join(f"n{number}" for number in range(count))
        request = {"queries": [f"select:{names}"]}
        return count_lines(lambda: asyncio.run(session.handle("tool_search", request)))

    assert select(1_000) < DOUBLE * select(500)


def test_only_the_first_terms_of_a_query_are_looked_for_in_all_tools():
    query = query_from_text(" ".join(f"+w{number} -x{number}" for number in range(1_000)))

    assert len(query.required) + len(query.excluded) == TERMS_LIMIT
    assert "+w999" in query.words.split()


def test_the_first_unknown_names_of_a_selection_still_have_near_ones():
    session = Scout(load_demo_catalog()).session("x")
    names = [f"github__create_issu{letter}" for letter in "abcdfg"]

    reply = session.search(f"select:{','.join(names)},github__create_issue")

    assert [hit.tool.name for hit in reply.hits] == ["github__create_issue"]
    near = [row["near"] for row in reply.details["queries"][0]["missing"]]
    assert [bool(found) for found in near] == [True] * 3 + [False] * 3
