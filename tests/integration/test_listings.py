"""What registries and clients read about toolscout says what the package says, and works."""

import json
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from jsonschema_rs import validator_for

from foreign import needs_packer, pack
from serving import DEADLINE_SECONDS
from toolscout import Confidence, Effect, Scout, Session, Settings, Tool
from toolscout.cli import main
from toolscout.clients.discovery import starts_own
from toolscout.config.bundles import read_bundle
from toolscout.config.file import import_servers, read_config
from toolscout.config.registry import RUNNERS, read_offer
from toolscout.demo import load_demo_catalog
from toolscout.query import QUERIES_LIMIT, query_from_text
from toolscout.schemas import Json
from toolscout.sessions.metatools import (
    CALL,
    CALL_VARIANTS,
    CALLS_LIMIT,
    LIMIT_MAX,
    NAMES_LIMIT,
    SEARCH,
    build_meta_tools,
)

ROOT = Path(__file__).parents[2]
REPOSITORY = "https://github.com/toolscout/toolscout"
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
VERSION: str = PROJECT["version"]
EXACT = f"toolscout[gateway]=={VERSION}"
MOST_CHARS = 100
"""Of a title and a description in the registry."""
PLUGIN = "plugins/claude-code"
SKILL = (ROOT / PLUGIN / "skills/tool-search/SKILL.md").read_text(encoding="utf-8")
META_TOOLS = {tool.name: tool for tool in build_meta_tools(runs_calls=True)}

_REQUEST = re.compile(r"```json\n(.*?)```", re.DOTALL)
_META_NAME = re.compile(rf"`({'|'.join(META_TOOLS)})`")


def read_json(path: str) -> Any:
    return json.loads((ROOT / path).read_text(encoding="utf-8"))


def test_the_registry_learns_the_version_and_the_repository_of_the_package():
    server = read_json("server.json")
    [package] = server["packages"]

    assert server["version"] == package["version"] == VERSION
    assert server["repository"] == {"url": REPOSITORY, "source": "github"}
    assert PROJECT["urls"]["Repository"] == server["websiteUrl"] == REPOSITORY
    assert package["identifier"] == PROJECT["name"]
    assert package["runtimeHint"] == RUNNERS[package["registryType"]] == "uvx"
    assert package["transport"] == {"type": "stdio"}
    assert 0 < len(server["title"]) <= MOST_CHARS
    assert 0 < len(server["description"]) <= MOST_CHARS


def test_server_json_obeys_its_schema_and_the_plugin_the_rules_of_clients(tmp_path: Path):
    copy_listings(tmp_path)
    assert find_violations(tmp_path) == []

    entry = read_json("server.json") | {"description": "x" * (MOST_CHARS + 1)}
    (tmp_path / "server.json").write_text(json.dumps(entry), encoding="utf-8")

    [found] = find_violations(tmp_path)
    assert "does not conform to MCP Registry" in found


def copy_listings(folder: Path) -> None:
    """Copy what registries and clients read, without the environments beside it."""
    for name in (".claude-plugin", PLUGIN):
        shutil.copytree(ROOT / name, folder / name)
    shutil.copy(ROOT / "server.json", folder)


def find_violations(folder: Path) -> list[str]:
    """Return what a linter finds that brings the schema of the registry with it."""
    words = [sys.executable, "-m", "skillsaw", "lint", "--no-plugins", "--format", "json"]
    ran = subprocess.run(
        [*words, str(folder)], capture_output=True, timeout=DEADLINE_SECONDS, check=False
    )
    report = json.loads(ran.stdout)
    assert report["stats"]["repo_types"] == ["agentskills", "marketplace", "mcp-registry"]
    return [one["message"] for one in report["violations"]]


def test_the_registry_can_see_that_the_package_is_ours():
    """It looks for the name in the description of the package, which is the README."""
    name = read_json("server.json")["name"]

    assert f"\n<!-- mcp-name: {name} -->\n" in (ROOT / "README.md").read_text(encoding="utf-8")
    owner = REPOSITORY.split("/")[3]
    assert name == f"io.github.{owner}/{PROJECT['name']}"


def test_the_entry_for_the_registry_starts_the_gateway_with_what_it_needs():
    offer = read_offer(ROOT / "server.json")
    [template] = offer.templates

    server = template.fill("own", {})
    other = template.fill("own", {"config": ["servers.toml"]})

    assert template.problem == ""
    assert (offer.version, offer.website) == (VERSION, REPOSITORY)
    assert server.command == "uvx"
    assert server.args == ("--with", EXACT, f"toolscout=={VERSION}", "serve")
    assert other.args == (*server.args, "--config", "servers.toml")
    assert starts_own(server.command, server.url, server.args)


def test_our_own_entry_for_the_registry_can_be_added(tmp_path: Path):
    file = tmp_path / "toolscout.toml"
    words = ["servers", "add", str(ROOT / "server.json"), "--config", str(file), "--yes"]

    result = CliRunner().invoke(main, [*words, "--no-test"])

    assert result.exit_code == 0, result.output
    assert f"Runs       uvx --with '{EXACT}' toolscout=={VERSION} serve\n" in result.stdout
    [server] = read_config(file).servers
    [template] = read_offer(ROOT / "server.json").templates
    assert server == template.fill("toolscout", {})


def test_a_bundle_tells_what_the_package_tells():
    manifest = read_json("plugins/bundle/manifest.json")

    assert (manifest["name"], manifest["version"]) == (PROJECT["name"], VERSION)
    assert manifest["license"] == PROJECT["license"]
    assert manifest["homepage"] == manifest["repository"]["url"] == REPOSITORY
    assert manifest["support"] == PROJECT["urls"]["Issues"]
    assert [tool["name"] for tool in manifest["tools"]] == [
        tool.name for tool in build_meta_tools()
    ]
    assert manifest["description"] == read_json("server.json")["description"]


@needs_packer
def test_a_bundle_of_the_official_packer_starts_the_gateway_through_uvx(tmp_path: Path):
    packed = tmp_path / "toolscout.mcpb"
    pack(ROOT / "plugins/bundle", packed)

    bundle = read_bundle(packed, tmp_path, tmp_path / "bundles", sys.platform)

    [template] = bundle.offer.templates
    server = template.fill("own", {})
    assert (bundle.offer.version, bundle.offer.website) == (VERSION, REPOSITORY)
    assert (server.command, server.args) == ("uvx", ("--from", EXACT, "toolscout", "serve"))
    assert starts_own(server.command, server.url, server.args)
    assert template.warnings == ()
    assert template.list_inputs() == []


def test_the_plugin_and_its_marketplace_tell_what_the_package_tells():
    plugin = read_json(f"{PLUGIN}/.claude-plugin/plugin.json")
    market = read_json(".claude-plugin/marketplace.json")
    [listed] = market["plugins"]

    assert (plugin["name"], plugin["version"]) == (PROJECT["name"], VERSION)
    assert plugin["license"] == PROJECT["license"]
    assert plugin["homepage"] == plugin["repository"] == REPOSITORY
    assert plugin["description"] == read_json("server.json")["description"]
    assert listed["source"] == f"./{PLUGIN}"
    assert (listed["name"], listed["description"]) == (plugin["name"], plugin["description"])


def test_the_plugin_starts_the_gateway_of_its_own_version():
    [server] = import_servers(ROOT / PLUGIN / ".mcp.json").servers

    assert (server.name, server.command) == ("toolscout", "uvx")
    assert server.args == ("--from", EXACT, "toolscout", "serve")
    assert starts_own(server.command, server.url, server.args)


def test_the_skill_has_the_head_that_clients_read():
    head = re.match(r"---\nname: ([a-z-]+)\ndescription: ([^\n]+)\n---\n", SKILL)

    assert head is not None
    assert head[1] == "tool-search"  # as its folder is called
    assert len(head[2]) <= 1_024


def test_the_skill_names_the_limits_labels_and_effects_of_the_code():
    for sentence in (
        f"up to {QUERIES_LIMIT} go into one search",
        f"up to {Settings().limit} hits for each query",
        f"`limit` allows up to {LIMIT_MAX}.",
        f"`tool_describe` takes up to {NAMES_LIMIT} names",
        f"go into one `tool_call`, up to {CALLS_LIMIT}.",
    ):
        assert sentence in SKILL
    for name in (*Confidence, *Effect, *CALL_VARIANTS):
        assert f"`{name}`" in SKILL or f"`effect:{name}" in SKILL, name


@pytest.mark.parametrize("query", re.findall(r"^\| `([^`]+)` \|", SKILL, re.MULTILINE))
def test_the_queries_of_the_skill_find_tools(query: str):
    reply = open_session().search([query])

    assert query_from_text(query).words != query, "It has no operator."
    # No server of the demo catalogue has prompts.
    assert reply.hits or query == "kind:prompt", reply.text


def test_the_skill_shows_every_form_of_a_query_that_the_model_is_told_of():
    told = META_TOOLS[SEARCH].input_schema["properties"]["queries"]["description"]
    shown = " ".join(re.findall(r"^\| `([^`]+)` \|", SKILL, re.MULTILINE))

    forms = {"select:", "*", "+", "-", "server:", "effect:", "/", "discover:"}
    assert {form for form in forms if form in told} == forms
    assert {form for form in forms if form in shown} == forms


def test_the_requests_of_the_skill_do_what_it_says():
    requests = list_requests()
    session = open_session()

    assert len(requests) >= 5
    for name, request in requests:
        validator_for(META_TOOLS[name].input_schema).validate(request)
        names = [one["name"] for one in request.get("calls", [request]) if "name" in one]
        session.search([f"select:{','.join(names)}"] if names else ["tool"])
        reply = session.handle_sync(name, request)
        assert reply.code == "ok", reply.text
    [picked] = [one for name, one in requests if name == CALL and "pick" in one]
    assert session.handle_sync(CALL, picked).text == '["Login fails"]'


def list_requests() -> list[tuple[str, Any]]:
    """Return the blocks of the skill, each with the meta-tool that the text names before it."""
    found: list[tuple[str, Any]] = []
    for block in _REQUEST.finditer(SKILL):
        found.append((_META_NAME.findall(SKILL[: block.start()])[-1], json.loads(block[1])))
    return found


def open_session() -> Session:
    def run(tool: Tool, arguments: Json) -> Json:
        return {"items": [{"title": "Login fails", "number": 7}]}

    return Scout(load_demo_catalog(), executors=run).session("skill")
