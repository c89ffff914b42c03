"""References to variables and files."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolscout.config.references import (
    MAX_FILE_BYTES,
    anchor,
    anchor_path,
    escape,
    expand,
    expand_path,
    is_literal,
)
from toolscout.errors import InvalidConfig

ENV = {"TOKEN": "s3cret", "EMPTY": "", "HOME": "/home/ada"}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("plain $HOME text", "plain $HOME text"),
        ("Bearer ${TOKEN}", "Bearer s3cret"),
        ("${env:TOKEN}", "s3cret"),
        ("${EMPTY}", ""),
        ("${EMPTY:-x}", "x"),
        ("${NOBODY:-}", ""),
        ("${NOBODY:-a:-b}", "a:-b"),
        ("${env:NOBODY:-x}", "x"),
        ("${TOKEN}${TOKEN}", "s3crets3cret"),
        ("$${TOKEN}", "${TOKEN}"),
        ("$$${TOKEN}", "$${TOKEN}"),
    ],
)
def test_references_are_replaced_by_variables(text: str, value: str):
    assert expand(text, ENV) == value


def test_values_are_not_expanded_again():
    assert expand("${A}", {"A": "${B}", "B": "no"}) == "${B}"


def test_a_file_is_read_from_the_folder_without_its_last_line_break(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    (tmp_path / "key.txt").write_bytes(b"one\ntwo\r\n")
    monkeypatch.chdir(tmp_path)

    assert expand("<${file:key.txt}>", {}) == "<one\ntwo>"
    assert expand(f"${{file:{tmp_path / 'key.txt'}}}", {}) == "one\ntwo"


def test_an_unset_variable_is_named_with_its_key_and_what_to_do():
    with pytest.raises(InvalidConfig) as caught:
        expand("s3cret ${NOBODY}", ENV, key="servers.mail.token")

    assert str(caught.value) == (
        "Setting 'servers.mail.token' refers to the variable 'NOBODY', which is not set. "
        "Set NOBODY, or write ${NOBODY:-default}."
    )


@pytest.mark.parametrize("text", ["${s3cret text}", "${", "${TOKEN", "${}", "${A:-${B}}", "${x:y}"])
def test_an_invalid_reference_is_refused_without_being_shown(text: str):
    with pytest.raises(InvalidConfig) as caught:
        expand(f"s3cret {text}", ENV)

    assert "s3cret" not in str(caught.value)


def test_files_that_cannot_be_read_as_text_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "large").write_bytes(b"a" * (MAX_FILE_BYTES + 1))
    (tmp_path / "binary").write_bytes(b"s3cret\xff")

    for name, problem in (
        ("nobody", "no such file"),
        (".", "no such file"),
        ("large", "too large"),
        ("binary", "not UTF-8"),
        ("~nobody-has-this-name/x", "cannot be read"),
        ("a\0b", "cannot be read"),
    ):
        with pytest.raises(InvalidConfig, match=problem) as caught:
            expand(f"${{file:{name}}}", {})
        assert "s3cret" not in str(caught.value)


def test_a_tilde_is_expanded_only_at_the_beginning_of_a_path():
    assert expand_path("~/x", ENV) == "/home/ada/x"
    assert expand_path("~", ENV) == "/home/ada"
    assert expand_path("a~/x", ENV) == "a~/x"
    assert expand_path("~/x", {}) == "~/x"


def test_a_text_without_references_is_literal():
    assert is_literal("plain $${x}")
    assert not is_literal("a ${x} b")
    assert not is_literal("${file:x}")


def test_anchored_files_are_found_from_anywhere(tmp_path: Path):
    (tmp_path / "key").write_text("k", encoding="utf-8")

    assert expand(anchor("${file:key} $${file:key} ${HOME}", tmp_path), ENV) == (
        "k ${file:key} /home/ada"
    )
    assert anchor("${file:/abs} ${file:~/x}", tmp_path) == "${file:/abs} ${file:~/x}"


def test_anchored_paths_leave_addresses_references_and_whole_paths_alone(tmp_path: Path):
    for text in ("", "/abs/path", "https://host/spec.json", "${DIR}/x", "~/x"):
        assert anchor_path(text, tmp_path) == text
    assert expand(anchor_path("sub/x", tmp_path / "${odd"), {}) == str(tmp_path / "${odd/sub/x")


@given(st.text(alphabet="${}ab:-f", max_size=30) | st.text(max_size=30))
def test_an_escaped_text_expands_to_itself(text: str):
    assert expand(escape(text), {}) == text
    assert is_literal(escape(text))


@given(st.text(alphabet="${}AB:-file/.", max_size=40))
def test_expanding_gives_a_text_or_says_what_is_wrong(text: str):
    try:
        assert isinstance(expand(text, {"A": "1"}), str)
    except InvalidConfig as error:
        assert str(error).startswith("Setting 'reference' ")
