"""`toolscout tokens`."""

import json

import pytest
from click.testing import CliRunner

from toolscout.cli import main

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


def test_a_price_shows_what_all_figures_and_those_of_each_server_cost():
    command = ["tokens", "--price", "2", "--requests", "500"]

    figures = json.loads(CliRunner().invoke(main, [*command, "--json"]).stdout)
    shown = CliRunner().invoke(main, command).stdout

    money = figures["money"]
    assert money["definitions"] == pytest.approx(figures["definitions"] * 2 * 500 / 1_000_000)
    assert money["saved"] == pytest.approx(money["definitions"] - money["request"])
    assert set(money["by_server"]) == set(figures["by_server"])
    assert "500 requests" in shown
    assert f"${money['definitions']:,.2f}" in shown
    assert "At $2 per million input tokens, with nothing cached." in shown
