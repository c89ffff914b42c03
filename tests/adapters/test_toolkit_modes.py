"""Which mode fits an endpoint."""

import pytest

from toolscout.adapters._toolkit import choose_anthropic_mode, choose_openai_mode
from toolscout.settings import Mode


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
    assert choose_anthropic_mode(address) is Mode.REFERENCE


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
    assert choose_anthropic_mode(address) is Mode.BRIDGE


@pytest.mark.parametrize(
    "model", ["gpt-5.4", "gpt-5.4-mini", "gpt-5.10", "gpt-6", "gpt-5.4-2026-03-05"]
)
@pytest.mark.parametrize(
    "address",
    ["", "https://api.openai.com/v1", "https://mine.openai.azure.com/openai/v1/"],
)
def test_newer_models_at_openais_hosts_take_definitions(model: str, address: str):
    assert choose_openai_mode(model, address) is Mode.DEFINITIONS


@pytest.mark.parametrize(
    "model", ["gpt-5.4-nano", "gpt-5", "gpt-5.3", "gpt-4.1", "gpt-4o", "o3", "my-gpt-9", ""]
)
def test_other_models_get_found_tools_with_the_request(model: str):
    assert choose_openai_mode(model) is Mode.NATIVE


@pytest.mark.parametrize("address", ["http://localhost:1/v1", "https://api.openai.com.example.org"])
def test_an_unknown_host_never_gets_a_search_of_openais(address: str):
    assert choose_openai_mode("gpt-5.4", address) is Mode.NATIVE
