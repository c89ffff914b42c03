"""`toolscout tokens`."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from demos import make_demo_scout
from toolscout import Catalog, Scout, Tool
from toolscout.cli import main
from toolscout.cli.tokens import measure_costs
from toolscout.config.file import Config
from toolscout.demo import load_demo_catalog
from toolscout.dialects import Dialect
from toolscout.gateway.gateway import Gateway
from toolscout.schemas import Json
from toolscout.sessions.metatools import INSTRUCTIONS
from toolscout.stores import MemoryStore
from toolscout.tokens import count_tokens

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
    assert figures["listing"] <= 900
    assert figures["definitions"] == sum(figures["by_server"].values())
    assert figures["estimated"] is True


def test_what_is_counted_is_what_is_sent_by_every_way_in():
    figures = json.loads(CliRunner().invoke(main, ["tokens", "--json"]).stdout)
    session = make_demo_scout().session("a")
    gateway = Gateway(Config(), MemoryStore())
    for server in load_demo_catalog().servers:
        gateway.catalog.replace(server, [t for t in load_demo_catalog() if t.server == server])
    listed = gateway.list_tools(gateway.open_session("client"))

    def count(definitions: list[Json], prompt: str) -> int:
        return count_tokens(json.dumps(definitions, ensure_ascii=False)) + count_tokens(prompt)

    assert figures["requests"] == {
        "gateway": count(listed, INSTRUCTIONS),
        **{d.value: count(session.tools(d), session.system_prompt()) for d in Dialect},
    }
    assert figures["request"] == max(figures["requests"].values())


def test_the_settings_of_a_configuration_count(tmp_path: Path):
    config = tmp_path / "toolscout.toml"
    config.write_text('[servers.time]\ncommand = "uvx"\n[sessions]\nlisting = "off"\n')

    result = CliRunner().invoke(main, ["tokens", "--config", str(config), "--json"])

    assert json.loads(result.stdout)["listing"] == 0


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


def test_resources_and_prompts_are_no_part_of_a_request():
    tool = Tool(name="notes__add", server="notes", leaf="add", description="Add a note.")
    page = Tool(name="notes__page", server="notes", leaf="page", kind="resource")

    alone = measure_costs(Scout(Catalog({"notes": [tool]}), encoder=None), lambda _: None)
    both = measure_costs(Scout(Catalog({"notes": [tool, page]}), encoder=None), lambda _: None)

    assert (both.tools, both.definitions) == (1, alone.definitions)


def test_skills_count_with_what_clients_announce_in_every_prompt(tmp_path: Path):
    (tmp_path / "skills" / "pdf").mkdir(parents=True)
    text = "---\nname: pdf\ndescription: Fill in PDF forms.\n---\n\nA long text about forms.\n"
    (tmp_path / "skills" / "pdf" / "SKILL.md").write_text(text)
    (tmp_path / "toolscout.toml").write_text('[skills]\nfolders = ["skills"]\n')
    command = ["tokens", "--config", str(tmp_path / "toolscout.toml")]

    figures = json.loads(CliRunner().invoke(main, [*command, "--json"]).stdout)
    shown = CliRunner().invoke(main, command).stdout

    assert figures["skills"] == 1
    assert figures["announced"] == count_tokens("- pdf: Fill in PDF forms.\n")
    assert figures["total"] == figures["definitions"] + figures["announced"]
    assert "Names and descriptions of skills: 1" in shown
