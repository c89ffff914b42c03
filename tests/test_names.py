import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolscout.names import (
    clean_text,
    find_near_names,
    fold_name,
    make_exposed_name,
    to_error_text,
    to_one_line,
)

ALLOWED = re.compile(r"[A-Za-z0-9_-]{1,64}")


@pytest.mark.requirement("R84")
def test_an_exposed_name_is_server_and_leaf():
    """R84"""
    assert make_exposed_name("github", "create_issue") == "github__create_issue"
    assert make_exposed_name("", "create_issue") == "create_issue"


@pytest.mark.requirement("R85")
@given(st.text(max_size=90), st.text(min_size=1, max_size=90))
def test_every_exposed_name_is_accepted_by_providers(server: str, leaf: str):
    """R85"""
    assert ALLOWED.fullmatch(make_exposed_name(server, leaf))


def test_separators_become_underscores_without_a_hash():
    assert make_exposed_name("acme/tools", "files.read all") == "acme_tools__files_read_all"


@pytest.mark.parametrize(
    ("first", "second"), [("查询", "搜索"), ("run_c++", "run_c#"), ("café", "cafe"), ("😀", "😃")]
)
def test_names_that_lose_characters_stay_different(first: str, second: str):
    assert make_exposed_name("s", first) != make_exposed_name("s", second)


def test_a_name_in_another_script_is_a_word_and_a_hash():
    assert re.fullmatch(r"tool_[0-9a-f]{8}", make_exposed_name("", "运行"))
    assert re.fullmatch(r"cafe_[0-9a-f]{8}", make_exposed_name("", "café"))


def test_a_server_in_another_script_gives_all_its_tools_one_prefix():
    first, second = make_exposed_name("服务", "read"), make_exposed_name("服务", "write")

    assert first.removesuffix("read") == second.removesuffix("write")


@pytest.mark.requirement("R84")
def test_long_names_are_shortened_by_a_stable_hash_and_stay_different():
    """R84"""
    names = {make_exposed_name("server" * 8, "leaf" * 20 + end) for end in "abc"}

    assert len(names) == 3
    assert all(len(name) == 64 for name in names)
    assert make_exposed_name("s" * 40, "l" * 40).endswith("_07303005")


@pytest.mark.requirement("R3")
@pytest.mark.parametrize("text", ["createIssue", "create_issue", "Create-Issue", "create.issue"])
def test_case_and_separators_do_not_count(text: str):
    """R3"""
    assert fold_name(text) == "createissue"


@given(st.text())
def test_folding_twice_is_folding_once(text: str):
    assert fold_name(fold_name(text)) == fold_name(text)


def test_near_names_are_ordered_by_likeness_and_then_by_name():
    names = ["gitlab__create_issue", "github__create_issue", "slack__post_message"]

    assert find_near_names("create_isue", names) == ["github__create_issue", "gitlab__create_issue"]
    assert find_near_names("github__create_isue", names)[0] == "github__create_issue"
    assert find_near_names("weather", names) == []
    assert find_near_names("anything", []) == []


def test_cleaning_removes_what_a_reader_cannot_see():
    assert clean_text("a\x00b\u202ec\U000e0041d\ud800\r\ne", 100) == "abcd\ufffd\ne"


def test_cleaning_keeps_the_joiners_of_scripts_and_emoji():
    text = "\u0645\u06cc\u200c\u062e 👩\u200d💻"

    assert clean_text(text, 100) == text


@given(st.text(), st.integers(min_value=4, max_value=50))
def test_one_line_is_one_line_of_bounded_length_without_tags(text: str, limit: int):
    line = to_one_line(text, limit)

    assert len(line) <= limit
    assert not set(line) & set("\n\r\t<>\x00")


def test_a_long_error_keeps_its_head_and_its_tail():
    text = "Request failed\n" + "at frame <x>\n" * 10_000 + "connection refused"

    line = to_error_text(text, 100)
    lines = to_error_text(text, 100, keep_lines=True)

    assert len(line) <= 100
    assert line.startswith("Request failed at frame \u2039x\u203a")
    assert " … " in line
    assert line.endswith("connection refused")
    assert lines.startswith("Request failed\nat frame")
    assert lines.endswith("\nconnection refused")


def test_a_short_error_is_only_cleaned():
    assert to_error_text("a\r\n\r\n  b\u202e  c", 100) == "a b c"
    assert to_error_text("a\r\n\r\n  b\u202e  c", 100, keep_lines=True) == "a\nb c"
