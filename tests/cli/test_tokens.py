"""`toolscout tokens`."""

import json

import pytest
from click.testing import CliRunner

from toolscout.cli import main
from toolscout.prices import AS_OF, PRICES

pytestmark = pytest.mark.usefixtures("home")


def test_tokens_shows_what_the_demo_catalogue_costs():
    result = CliRunner().invoke(main, ["tokens"])

    assert result.exit_code == 0
    assert result.stdout.startswith("All 246 definitions of 26 servers")
    assert "the three meta-tools" in result.stdout
    assert "github" in result.stdout


def test_the_meta_tools_cost_less_than_900_tokens_in_every_dialect():
    figures = json.loads(CliRunner().invoke(main, ["tokens", "--json"]).stdout)

    assert set(figures["meta_tools"]) == {"openai-chat", "openai-responses", "anthropic", "mcp"}
    assert all(100 < cost < 900 for cost in figures["meta_tools"].values())
    assert figures["request"] <= 900 + 4_000 + figures["pinned"]
    assert figures["definitions"] == sum(figures["by_server"].values())
    assert figures["estimated"] is True


def test_a_model_prices_all_figures_and_those_of_each_server():
    command = ["tokens", "--model", "Claude-Sonnet-5-5", "--requests", "500"]

    figures = json.loads(CliRunner().invoke(main, [*command, "--json"]).stdout)
    shown = CliRunner().invoke(main, command).stdout

    money = figures["money"]
    dollars = PRICES["claude-sonnet-5-5"] * 500 / 1_000_000
    assert (money["model"], money["as_of"]) == ("claude-sonnet-5-5", AS_OF)
    assert money["definitions"] == pytest.approx(figures["definitions"] * dollars)
    assert money["saved"] == pytest.approx(money["definitions"] - money["request"])
    assert set(money["by_server"]) == set(figures["by_server"])
    assert "500 requests" in shown
    assert f"${money['definitions']:,.2f}" in shown
    assert f"list price of {AS_OF}" in shown


def test_a_price_of_ones_own_overrides_the_list():
    command = ["tokens", "--model", "gpt-5", "--price", "8", "--requests", "1000"]

    figures = json.loads(CliRunner().invoke(main, [*command, "--json"]).stdout)

    assert figures["money"]["definitions"] == pytest.approx(figures["definitions"] * 0.008)
    assert "(as given)" in CliRunner().invoke(main, command).stdout


def test_a_model_without_a_price_is_told_with_near_ones():
    result = CliRunner().invoke(main, ["tokens", "--model", "claude-sonet-5"])

    assert result.exit_code == 2
    assert "Near: claude-sonnet-5-5" in result.stderr
    assert "--price" in result.stderr
