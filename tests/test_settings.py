"""Settings: defaults, a file, and what is refused."""

import re
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from toolscout import Mode, Settings
from toolscout.errors import InvalidConfig, InvalidFile, UsageError
from toolscout.options import list_options
from toolscout.settings import (
    EncoderName,
    Hiding,
    HintUse,
    Learning,
    Listing,
    Programs,
    Route,
    Scope,
)

RANGES = {
    declared.name: declared.check.bounds
    for declared in list_options(Settings)
    if declared.check.bounds is not None
}
EVERYTHING = """
[sessions]
mode = "native"
hiding = "auto"
auto_tools = 10
auto_share = 2.5
context_window = 8000
encoder = "none"
hints = "own"
limit = 3
reply_tokens = 600
schema_tokens = 100
describe_tokens = 900
result_tokens = 300
listing_tokens = 200
listing = "servers"
fruitless = 2
scope = "turn"
loaded_tokens = 1000
pins = ["github", "slack__*"]
essential = ["bash"]
routed = 2
suggest = true
suggestions = 5
calls_by_name = true
shared = true
call_seconds = 1.5
hash_queries = true
learning = "shared"
learn_results = false

[sessions.routes]
slack = "channel"

[sessions.routes.github]
keywords = ["pull request", "issue"]
priority = 90
prefer = false
[programs]
enabled = true
calls = 7
"""


def written(path: Path, text: str) -> Path:
    file = path / "toolscout.toml"
    file.write_text(text, encoding="utf-8")
    return file


@pytest.mark.requirement("R109")
def test_one_file_sets_everything_but_what_is_code(tmp_path: Path):
    """R109"""
    settings = Settings.from_file(written(tmp_path, EVERYTHING))

    assert settings == Settings(
        mode=Mode.NATIVE,
        hiding=Hiding.AUTO,
        auto_tools=10,
        auto_share=2.5,
        context_window=8000,
        encoder=EncoderName.NONE,
        hints=HintUse.OWN,
        limit=3,
        reply_tokens=600,
        schema_tokens=100,
        describe_tokens=900,
        result_tokens=300,
        listing_tokens=200,
        listing=Listing.SERVERS,
        fruitless=2,
        scope=Scope.TURN,
        loaded_tokens=1000,
        pins=("github", "slack__*"),
        essential=("bash",),
        routes={
            "slack": Route(keywords=("channel",)),
            "github": Route(keywords=("pull request", "issue"), priority=90, prefer=False),
        },
        routed=2,
        suggest=True,
        suggestions=5,
        calls_by_name=True,
        shared=True,
        call_seconds=1.5,
        hash_queries=True,
        learning=Learning.SHARED,
        learn_results=False,
        programs=Programs(enabled=True, calls=7),
    )
    named = {name for name in (item.name for item in fields(Settings)) if name in EVERYTHING}
    assert named == {item.name for item in fields(Settings)} - {"hide"}


def test_the_other_tables_of_a_configuration_file_are_left_alone(tmp_path: Path):
    text = """
        include = ["other.json"]
        [servers.time]
        command = "mcp-server-time"
        [gateway]
        port = 0
        [sessions]
        limit = 8
    """

    assert Settings.from_file(written(tmp_path, text)) == Settings(limit=8)


def test_a_file_without_settings_gives_the_defaults(tmp_path: Path):
    assert Settings.from_file(written(tmp_path, "")) == Settings()
    assert Settings.from_mapping({}) == Settings()


@pytest.mark.requirement("R109")
@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("[sessions]\nlimt = 3", "Setting 'sessions.limt' does not exist. Use 'limit'."),
        (
            "[sessions]\ncall_second = 3",
            "Setting 'sessions.call_second' does not exist. Use 'call_seconds'.",
        ),
        ("[session]\nlimit = 3", "Setting 'session' does not exist. Use 'sessions'."),
        (
            "limit = 3",
            "Setting 'limit' does not exist. Use one of gateway, include, "
            "programs, servers, sessions, skills.",
        ),
        (
            "[sessions.routes.github]\nkeyword = ['x']",
            "Setting 'sessions.routes.github.keyword' does not exist. Use 'keywords'.",
        ),
    ],
)
def test_an_unknown_key_is_refused_with_the_nearest_one(tmp_path: Path, text: str, problem: str):
    """R109"""
    with pytest.raises(InvalidConfig) as caught:
        Settings.from_file(written(tmp_path, text))

    assert str(caught.value) == problem


@pytest.mark.requirement("R109")
def test_a_key_that_resembles_none_is_answered_with_all():
    """R109"""
    with pytest.raises(InvalidConfig, match="Use one of auto_share, auto_tools, "):
        Settings.from_mapping({"xyzzy": 1})


@pytest.mark.requirement("R109")
@pytest.mark.parametrize("key", RANGES)
def test_a_number_out_of_its_range_is_refused_and_not_moved_into_it(key: str):
    """R109"""
    least, most = RANGES[key]
    odd: list[Any] = [least - 1, most + 1, float("nan"), True, "5", None]

    assert getattr(Settings.from_mapping({key: least}), key) == least
    assert getattr(Settings.from_mapping({key: most}), key) == most
    for value in odd:
        with pytest.raises(InvalidConfig) as caught:
            Settings.from_mapping({key: value})
        assert caught.value.key == key
        assert f"from {least:,} to {most:,}" in str(caught.value)


@pytest.mark.requirement("R109")
@pytest.mark.parametrize(
    ("values", "problem"),
    [
        ({"limit": 2.0}, "Setting 'limit' is 2.0. Use a whole number from 1 to 20."),
        (
            {"mode": "brigde"},
            "Setting 'mode' is 'brigde'. Use one of bridge, native, reference, definitions.",
        ),
        ({"hiding": "no"}, "Setting 'hiding' is 'no'. Use one of on, off, auto."),
        ({"scope": None}, "Setting 'scope' is null. Use one of session, turn."),
        ({"suggest": "yes"}, "Setting 'suggest' is a string. Use true or false."),
        ({"pins": 3}, "Setting 'pins' is 3. Use a string or a list of strings."),
        ({"pins": ["a", ""]}, "Setting 'pins' contains an empty name. Remove it."),
        ({"pins": ["a", 3]}, "Setting 'pins[1]' is 3. Use a string."),
        ({"routes": ["a"]}, "Setting 'routes' is a list. Use a table."),
        (
            {"routes": {"a": {"keywords": ["x"], "priority": 101}}},
            "Setting 'routes.a.priority' is 101. Use a whole number from 0 to 100.",
        ),
    ],
)
def test_a_value_that_cannot_be_is_refused_with_what_can(values: dict[str, Any], problem: str):
    """R109"""
    with pytest.raises(InvalidConfig) as caught:
        Settings.from_mapping(values)

    assert str(caught.value) == problem


def test_a_single_string_is_a_list_of_one_and_duplicates_are_dropped():
    settings = Settings.from_mapping({"pins": "github", "essential": ["a", "b", "a"]})

    assert settings.pins == ("github",)
    assert settings.essential == ("a", "b")


def test_mode_auto_means_bridge_with_automatic_hiding():
    settings = Settings.from_mapping({"mode": "auto"})

    assert (settings.mode, settings.hiding) == (Mode.BRIDGE, Hiding.AUTO)


@pytest.mark.parametrize("text", [None, "no = toml = at all", "limit = \xff"])
def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, text: str | None):
    file = tmp_path / "toolscout.toml"
    if text is not None:
        file.write_bytes(text.encode("latin-1"))

    with pytest.raises(InvalidFile, match=r"toolscout\.toml: cannot be read"):
        Settings.from_file(file)


def test_invalid_settings_are_usage_errors():
    assert issubclass(InvalidConfig, UsageError)


@pytest.mark.requirement("R109")
@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("sessions = 3", "'sessions' is 3"),
        ("[[sessions]]\nlimit = 3", "'sessions' is a list"),
        ("[sessions.routes.slack]\npriority = 3", "'sessions.routes.slack.keywords' is missing"),
        ("[sessions.routes.slack]\nkeywords = []", "'sessions.routes.slack.keywords' is empty"),
        (
            '[sessions.routes.slack]\nkeywords = "chat"\nprefer = "no"',
            "'sessions.routes.slack.prefer' is a string",
        ),
        (
            '[sessions]\nmode = "auto"\nhiding = "off"',
            "'sessions.mode' is 'auto', but hiding is 'off'",
        ),
    ],
)
def test_a_value_of_a_wrong_kind_is_refused_by_name(text: str, said: str, tmp_path: Path):
    """R109: nothing that cannot be meant is taken silently."""
    (tmp_path / "toolscout.toml").write_text(text, encoding="utf-8")

    with pytest.raises(InvalidConfig, match=re.escape(said)):
        Settings.from_file(tmp_path / "toolscout.toml")
