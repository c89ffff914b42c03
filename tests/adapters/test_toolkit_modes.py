"""Which mode fits an endpoint."""

import pytest

from toolscout.adapters._toolkit import (
    ANTHROPIC,
    ANTHROPIC_ELSEWHERE,
    FIXED,
    GROWING,
    Addition,
    Capabilities,
    choose_mode,
    choose_settings,
    detect_anthropic,
    detect_openai,
)
from toolscout.errors import InvalidConfig
from toolscout.settings import Mode, Settings


@pytest.mark.parametrize(
    ("capabilities", "mode"),
    [
        (ANTHROPIC, Mode.REFERENCE),
        (ANTHROPIC_ELSEWHERE, Mode.BRIDGE),
        (Capabilities(addition=Addition.WITH_DEFINITIONS), Mode.DEFINITIONS),
        (GROWING, Mode.NATIVE),
        (FIXED, Mode.BRIDGE),
    ],
)
def test_the_mode_follows_from_what_an_endpoint_can_do(capabilities: Capabilities, mode: Mode):
    assert choose_mode(capabilities) is mode


@pytest.mark.parametrize("override", ["native", Mode.BRIDGE, "reference"])
def test_an_override_wins(override: Mode | str):
    for capabilities in (ANTHROPIC, ANTHROPIC_ELSEWHERE, GROWING, FIXED):
        assert choose_mode(capabilities, override) == override


def test_an_override_that_is_no_mode_is_refused_with_those_that_are():
    with pytest.raises(InvalidConfig, match=r"'magic'.*bridge"):
        choose_mode(ANTHROPIC, "magic")


@pytest.mark.parametrize(
    "address",
    [
        "https://api.anthropic.com",
        "https://api.anthropic.com/v1/",
        "https://API.Anthropic.com:443/",
        "https://eu.api.anthropic.com.",
    ],
)
def test_hosts_of_anthropic_take_references(address: str):
    assert detect_anthropic(address) is ANTHROPIC


@pytest.mark.parametrize(
    "address",
    [
        "",
        "api.anthropic.com",
        "http://127.0.0.1:8080",
        "https://bedrock-runtime.us-east-1.amazonaws.com",
        "https://europe-west1-aiplatform.googleapis.com/v1",
        "https://anthropic.com.proxy.example/v1",
        "https://notanthropic.com",
        "https://proxy.example/api.anthropic.com",
        "https://api.anthropic.com@proxy.example",
    ],
)
def test_any_other_address_never_gets_a_reference(address: str):
    assert choose_mode(detect_anthropic(address)) is Mode.BRIDGE


def test_settings_that_are_given_keep_their_mode_unless_another_is_asked_for():
    chosen = Settings(mode=Mode.NATIVE, limit=3)

    assert choose_settings(ANTHROPIC).mode is Mode.REFERENCE
    assert choose_settings(ANTHROPIC, chosen) is chosen
    assert choose_settings(ANTHROPIC, chosen, "bridge") == Settings(mode=Mode.BRIDGE, limit=3)


@pytest.mark.parametrize(
    "model", ["gpt-5.4", "gpt-5.4-mini", "gpt-5.10", "gpt-6", "gpt-5.4-2026-03-05"]
)
@pytest.mark.parametrize(
    "address",
    ["", "https://api.openai.com/v1", "https://mine.openai.azure.com/openai/v1/"],
)
def test_newer_models_at_openais_hosts_take_definitions(model: str, address: str):
    assert choose_mode(detect_openai(model, address)) is Mode.DEFINITIONS


@pytest.mark.parametrize(
    "model", ["gpt-5.4-nano", "gpt-5", "gpt-5.3", "gpt-4.1", "gpt-4o", "o3", "my-gpt-9", ""]
)
def test_other_models_are_told_found_tools_with_the_request(model: str):
    assert choose_mode(detect_openai(model)) is Mode.NATIVE


@pytest.mark.parametrize("address", ["http://localhost:1/v1", "https://api.openai.com.example.org"])
def test_an_unknown_host_never_gets_a_search_of_openais(address: str):
    assert choose_mode(detect_openai("gpt-5.4", address)) is Mode.NATIVE
