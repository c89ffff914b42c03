"""What is kept of a server's lists between runs."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving import TIME
from toolscout.servers.listings import read_stored_manifest, save_manifest
from toolscout.servers.manifest import Manifest, manifest_from_bytes
from toolscout.stores import MemoryStore

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
VALUES = st.none() | st.booleans() | st.integers() | TEXTS
JSON = VALUES | st.lists(VALUES, max_size=2) | st.dictionaries(TEXTS, VALUES, max_size=2)
ROWS = st.lists(st.dictionaries(TEXTS, JSON, max_size=2), max_size=2).map(tuple)
MANIFESTS = st.builds(
    Manifest,
    tools=ROWS,
    resources=ROWS,
    templates=ROWS,
    prompts=ROWS,
    problems=st.lists(TEXTS).map(tuple),
    instructions=TEXTS,
    protocol=TEXTS,
)


@pytest.mark.requirement("R86")
@given(MANIFESTS)
def test_what_is_kept_reads_back_equal(manifest: Manifest):
    """R86"""
    store = MemoryStore()
    save_manifest(store, TIME, manifest)

    assert read_stored_manifest(store, TIME) == manifest


def test_what_was_kept_for_another_configuration_is_not_used():
    store = MemoryStore()
    save_manifest(store, TIME, Manifest())

    assert read_stored_manifest(store, replace(TIME, args=("other",))) is None


@given(st.binary() | JSON.map(lambda value: repr(value).encode()))
def test_what_is_no_manifest_is_not_used(data: bytes):
    assert manifest_from_bytes(data, "key") is None


@pytest.mark.parametrize(
    "data",
    [
        b'{"layout": 2, "key": "key"}',
        b"[]",
        b"[" * 100_000,
        b'{"layout": 1}',
    ],
)
def test_another_layout_is_not_used(data: bytes):
    assert manifest_from_bytes(data, "key") is None


def test_members_of_a_wrong_kind_are_passed_over():
    data = b'{"layout": 1, "key": "key", "tools": ["no", {"name": "a"}], "prompts": 3}'

    assert manifest_from_bytes(data, "key") == Manifest(tools=({"name": "a"},))
