"""Records of calls, and queries that are kept as hashes."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolscout.search.feedback import (
    Forgetting,
    Usage,
    bytes_from_forgetting,
    bytes_from_usage,
    forgetting_from_bytes,
    hash_query,
    is_hashed,
    usage_from_bytes,
)

CALL = Usage(session="s1", query="open an issue", tool="github__create_issue", code="ok", at=12.5)
BYTES = (
    b'{"session":"s1","query":"open an issue","tool":"github__create_issue","code":"ok","at":12.5,'
    b'"principal":"","chance":null,"writer":""}'
)

# Surrogates too: a model may send what UTF-8 cannot hold.
texts = st.text(st.characters(), max_size=30)
usages = st.builds(
    Usage,
    session=texts,
    query=texts,
    tool=texts,
    code=texts,
    at=st.floats(allow_nan=False, allow_infinity=False),
    principal=texts,
    chance=st.none() | st.floats(0, 1),
    writer=texts,
)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=5,
)


def changed(**members: object) -> bytes:
    return json.dumps({**json.loads(BYTES), **members}).encode()


def test_a_usage_is_stored_as_json():
    assert bytes_from_usage(CALL) == BYTES
    assert usage_from_bytes(BYTES) == CALL


@pytest.mark.parametrize(("code", "succeeded"), [("ok", True), ("timed_out", False), ("", False)])
def test_only_ok_is_success(code: str, succeeded: bool):
    usage = Usage(session="", query="", tool="t", code=code, at=0.0)

    assert usage.succeeded is succeeded


@given(usages)
def test_writing_and_reading_gives_the_same_usage(usage: Usage):
    assert usage_from_bytes(bytes_from_usage(usage)) == usage


def test_rows_of_earlier_versions_have_no_principal_and_no_chance():
    row = json.loads(BYTES)
    for name in ("principal", "chance", "writer"):
        del row[name]

    assert usage_from_bytes(json.dumps(row).encode()) == CALL


@given(st.builds(Forgetting, at=st.floats(0, 1e12), tool=texts, request=texts, writer=texts))
def test_an_order_to_forget_is_no_usage_and_reads_back(order: Forgetting):
    data = bytes_from_forgetting(order)

    assert forgetting_from_bytes(data) == order
    assert usage_from_bytes(data) is None
    assert forgetting_from_bytes(BYTES) is None


def test_members_of_a_later_version_are_ignored():
    assert usage_from_bytes(changed(cost=3)) == CALL


def test_a_whole_number_is_a_time():
    found = usage_from_bytes(changed(at=12))

    assert found is not None
    assert (found.at, type(found.at)) == (12.0, float)


@pytest.mark.parametrize(
    "data",
    [
        *(b"", b"{", b"null", b"[]", b'"at"', b"{}", b"\xff\xfe\xfa", b"[" * 100_000),
        *(changed(tool=None), changed(code=3), changed(at="12"), changed(at=True)),
        *(changed(at=float("nan")), changed(at=float("inf")), changed(at=10**400)),
        changed(at=0).replace(b"0", b"9" * 5_000),
        BYTES[:-9] + b"}",
    ],
)
def test_what_is_no_usage_is_none(data: bytes):
    assert usage_from_bytes(data) is None


@given(values)
def test_any_json_is_read_or_refused(value: object):
    usage_from_bytes(json.dumps(value).encode())


@given(st.binary(max_size=40))
def test_any_bytes_are_read_or_refused(data: bytes):
    usage_from_bytes(data)


def test_a_hash_is_the_same_everywhere():
    assert hash_query("open an issue") == "#9c7b4f2d5fd46f3c"


@pytest.mark.parametrize("same", ["Open an Issue", "  open\tan \n issue "])
def test_case_and_blanks_make_no_difference_to_a_hash(same: str):
    assert hash_query(same) == hash_query("open an issue")


def test_other_words_have_another_hash():
    assert hash_query("open an issue") != hash_query("open a issue")


@given(texts)
def test_a_hash_is_recognised_and_not_hashed_again(query: str):
    once = hash_query(query)

    assert is_hashed(once)
    assert hash_query(once) == once


@pytest.mark.parametrize("query", ["", "#general", "# 0123456789abcdef", "#0123456789abcdef0"])
def test_a_query_with_a_number_sign_is_no_hash(query: str):
    assert not is_hashed(query)
