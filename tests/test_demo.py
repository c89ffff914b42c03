import json
from collections import Counter
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

from toolscout.demo import load_demo_catalog, load_demo_tools
from toolscout.schemas import Json, is_object
from toolscout.tools import Effect, Tool

GOLDEN = Path(__file__).parent / "integration" / "golden.jsonl"
KINDS = {"words", "paraphrase", "request", "keywords", "foreign"}
TYPES = {"object", "array", "string", "integer", "number", "boolean", "null"}
TOOLS = load_demo_tools()


def golden() -> list[Json]:
    return [json.loads(line) for line in GOLDEN.read_text(encoding="utf-8").splitlines()]


def subschemas(schema: Json) -> Iterator[Json]:
    yield schema
    children: list[Any] = [schema.get("items"), schema.get("additionalProperties")]
    for keyword in ("properties", "$defs"):
        children += schema.get(keyword, {}).values()
    for keyword in ("oneOf", "anyOf", "allOf"):
        children += schema.get(keyword, [])
    for child in children:
        if is_object(child):
            yield from subschemas(child)


def types_of(schema: Json) -> list[str]:
    said = schema.get("type", [])
    return [said] if isinstance(said, str) else said


def fits(value: object, schema: Json) -> bool:
    python: dict[str, type | tuple[type, ...]] = {
        "object": dict,
        "array": list,
        "string": str,
        "integer": int,
        "number": (int, float),
        "boolean": bool,
        "null": type(None),
    }
    if isinstance(value, bool):
        return "boolean" in types_of(schema)
    return any(isinstance(value, python[name]) for name in types_of(schema))


def assert_sound(schema: Json, definitions: Json) -> None:
    assert {"type", "oneOf", "anyOf", "$ref"} & schema.keys()
    assert set(types_of(schema)) <= TYPES
    assert set(schema.get("required", [])) <= schema.get("properties", {}).keys()
    assert len(set(schema.get("required", []))) == len(schema.get("required", []))
    assert "items" in schema or "array" not in types_of(schema)
    if "enum" in schema:
        assert schema["enum"]
        assert len(set(schema["enum"])) == len(schema["enum"])
        assert schema.get("default", schema["enum"][0]) in schema["enum"]
    if "default" in schema:
        assert fits(schema["default"], schema)
    if "$ref" in schema:
        assert schema["$ref"].removeprefix("#/$defs/") in definitions
    for low, high in [("minimum", "maximum"), ("minItems", "maxItems"), ("minLength", "maxLength")]:
        if low in schema and high in schema:
            assert schema[low] <= schema[high]


def test_the_catalogue_is_large_enough_to_make_searching_a_problem() -> None:
    assert len(TOOLS) >= 150
    assert len({tool.server for tool in TOOLS}) >= 18


def test_the_catalogue_holds_exactly_the_tools() -> None:
    catalog = load_demo_catalog()

    assert len(catalog) == len(TOOLS)
    assert set(catalog) == set(TOOLS)
    assert set(catalog.servers) == {tool.server for tool in TOOLS}


def test_every_call_gives_a_catalogue_of_its_own() -> None:
    changed = load_demo_catalog()
    changed.replace("weather", [])

    assert len(changed) < len(load_demo_catalog())


def test_each_file_is_named_after_its_server() -> None:
    for entry in files("toolscout.demo").iterdir():
        if entry.name.endswith(".json"):
            listing = json.loads(entry.read_text(encoding="utf-8"))

            assert entry.name == f"{listing['server']}.json"
            assert listing["tools"]


def test_servers_come_in_sorted_order() -> None:
    servers = list(dict.fromkeys(tool.server for tool in TOOLS))

    assert servers == sorted(servers)


def test_names_are_unique_and_fit_every_provider() -> None:
    names = [tool.name for tool in TOOLS]

    assert len(set(names)) == len(names)
    assert max(map(len, names)) <= 64


def test_all_effects_occur_and_none_is_unknown() -> None:
    assert {tool.effect for tool in TOOLS} == {Effect.READ, Effect.WRITE, Effect.DESTRUCTIVE}


def test_some_tools_carry_hints_output_schemas_and_always_load() -> None:
    assert sum(bool(tool.hint) for tool in TOOLS) >= 10
    assert sum(tool.output_schema is not None for tool in TOOLS) >= 5
    assert 1 <= sum(tool.always_load for tool in TOOLS) <= 3


def test_no_two_tools_share_a_description() -> None:
    descriptions = Counter(tool.description for tool in TOOLS)

    assert max(descriptions.values()) == 1


@pytest.mark.parametrize("tool", TOOLS, ids=lambda tool: tool.name)
def test_a_tool_is_described_and_its_schemas_are_sound(tool: Tool) -> None:
    assert tool.description.endswith(".")
    assert tool.input_schema["type"] == "object"
    assert all(p.get("description") for p in tool.input_schema["properties"].values())
    for schema in filter(None, (tool.input_schema, tool.output_schema)):
        for part in subschemas(schema):
            assert_sound(part, schema.get("$defs", {}))


def test_every_golden_query_names_existing_tools_once() -> None:
    names = {tool.name for tool in TOOLS}
    for row in golden():
        assert row.keys() == {"query", "relevant", "kind"}
        assert row["query"].strip()
        assert row["relevant"]
        assert set(row["relevant"]) <= names, row["query"]
        assert len(set(row["relevant"])) == len(row["relevant"])


def test_golden_queries_are_many_distinct_and_of_every_kind() -> None:
    rows = golden()
    kinds = Counter(row["kind"] for row in rows)

    assert len({row["query"] for row in rows}) == len(rows) >= 150
    assert set(kinds) == KINDS
    assert min(kinds.values()) >= 20


def test_every_tool_is_wanted_by_some_golden_query() -> None:
    wanted = {name for row in golden() for name in row["relevant"]}

    assert wanted == {tool.name for tool in TOOLS}
