"""Parsers of outside text raise the errors that they document, and nothing else, for any input."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from security.counting import count_lines
from security.fuzzing import (
    CORPUS,
    MESSAGES,
    MOST_LINES,
    TARGETS,
    find_failure,
    iterate_inputs,
    iterate_messages,
    send_messages,
)
from serving import TIME, served

INPUTS = 250
"""For each parser; `make fuzz` runs a million."""
REQUESTS = 200
FOUND_BEFORE = sorted(
    path for path in CORPUS.rglob("*") if path.is_file() and path.parent.name != MESSAGES
)

texts = st.text(st.characters(), max_size=30)
scalars = st.none() | st.booleans() | st.integers() | st.floats() | texts
keywords = st.sampled_from(
    ["$ref", "type", "properties", "items", "anyOf", "enum", "required", "name", "description"]
)
values = st.recursive(
    scalars | st.sampled_from(["#", "#/$defs/a", "object", "array"]),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(keywords | texts, inner, max_size=4)
    ),
    max_leaves=12,
)


@pytest.mark.parametrize("name", TARGETS)
def test_a_parser_survives_mutated_inputs(name: str):
    failures = [(find_failure(name, data), data) for data in iterate_inputs(name, INPUTS, seed=7)]

    assert [failure for failure in failures if failure[0]] == []


@pytest.mark.parametrize("name", TARGETS)
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(first=values, second=values)
def test_a_parser_survives_any_json(name: str, first: Any, second: Any):
    data = "\n".join(json.dumps(value) for value in (first, second))

    assert find_failure(name, data.encode()) == ""
    assert (
        find_failure(name, json.dumps(first, ensure_ascii=False).encode("utf-8", "replace")) == ""
    )


@pytest.mark.parametrize("path", FOUND_BEFORE, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_an_input_that_failed_before_does_not_fail_again(path: Path):
    name = path.parent.name.replace("-", " ")
    data = path.read_bytes()

    assert find_failure(name, data) == ""
    assert count_lines(lambda: find_failure(name, data)) < MOST_LINES


@pytest.mark.processes
def test_the_gateway_survives_mutated_messages():
    found_before = [path.read_bytes() for path in sorted((CORPUS / MESSAGES).glob("*"))]

    with served(TIME) as gateway:
        messages = [*found_before, *iterate_messages(REQUESTS, seed=5)]
        results = list(send_messages(gateway.url, messages))

    assert len(results) >= REQUESTS
    assert [found for found in results if found[1]] == []
