"""`toolscout servers search` and `add`: from a registry, a server.json or a bundle to a tool."""

import asyncio
import json
import os
import re
import sys
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pytest
from click.testing import CliRunner, Result
from mcp.client import Client

from foreign import needs_packer, pack
from gateway.fleet import always, text_of
from serving import DEADLINE_SECONDS, eventually
from toolscout.cli import main
from toolscout.config.bundles import read_bundle
from toolscout.config.file import read_config
from toolscout.config.servers import ServerConfig
from toolscout.gateway.gateway import Gateway
from toolscout.gateway.middleware import Principal
from toolscout.gateway.server import build_server
from toolscout.stores import MemoryStore

if sys.platform == "win32":
    pytest.skip("runs shell scripts", allow_module_level=True)

from terminals import terminal

OFFICIAL = "io.modelcontextprotocol.registry/official"
WEATHER: dict[str, Any] = {
    "$schema": "https://static.modelcontextprotocol.io/schemas/2025-12-11/server.schema.json",
    "name": "io.github.ann/weather",
    "title": "Weather",
    "description": "Forecasts for any city.",
    "version": "1.2.3",
    "repository": {"url": "https://github.com/ann/weather", "source": "github"},
    "packages": [
        {
            "registryType": "npm",
            "identifier": "@ann/weather",
            "version": "1.2.3",
            "transport": {"type": "stdio"},
            "packageArguments": [
                {"type": "named", "name": "--units", "choices": ["metric", "imperial"]},
                {
                    "type": "positional",
                    "valueHint": "folder",
                    "format": "filepath",
                    "isRequired": True,
                },
            ],
            "environmentVariables": [
                {"name": "API_KEY", "isRequired": True, "isSecret": True, "description": "Key."}
            ],
        }
    ],
    "remotes": [{"type": "streamable-http", "url": "https://weather.ann.example/mcp"}],
}
TIME = {
    **WEATHER,
    "name": "io.github.ann/time",
    "title": "Time",
    "packages": [
        {
            "registryType": "pypi",
            "identifier": "mcp-server-time",
            "version": "2026.10.19",
            "transport": {"type": "stdio"},
            "packageArguments": [
                {
                    "type": "named",
                    "name": "--local-timezone",
                    "description": "Your \x1b[2Jtime zone",
                    "isRequired": True,
                }
            ],
            "environmentVariables": [
                {"name": "TIME_KEY", "isRequired": True, "isSecret": True, "description": "A key."}
            ],
        }
    ],
}
CLOCK = {
    "manifest_version": "0.3",
    "name": "clock",
    "display_name": "Clock",
    "version": "1.0.0",
    "description": "Greets people.",
    "author": {"name": "Ann"},
    "server": {
        "type": "python",
        "entry_point": "server/main.py",
        "mcp_config": {
            "command": "python",
            "args": ["${__dirname}/server/main.py", "${user_config.word}"],
            "env": {"PYTHONPATH": "${__dirname}/server/lib"},
        },
    },
    "user_config": {
        "word": {"type": "string", "title": "Word", "description": "How to greet", "required": True}
    },
}
CLOCK_SERVER = """
import sys
from greetings import greet
from mcp.server import MCPServer

server = MCPServer("clock")

@server.tool()
def greet_person(name: str) -> str:
    "Greet a person by name."
    return greet(sys.argv[1], name)

server.run()
"""


@pytest.fixture(autouse=True)
def has_npx(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine with Node: packages that nothing here could run are not chosen."""
    npx = tmp_path / "bin" / "npx"
    npx.parent.mkdir()
    npx.touch(mode=0o755)
    monkeypatch.setenv("PATH", os.pathsep.join((os.environ["PATH"], str(npx.parent))))


def run(*arguments: object, text: str = "") -> Result:
    return CliRunner().invoke(main, ["servers", *map(str, arguments)], input=text)


def write_json(path: Path, value: object) -> Path:
    path.write_text(json.dumps(value), encoding="utf-8")
    return path


def read_only_server(folder: Path) -> ServerConfig:
    [server] = read_config(folder / "toolscout.toml").servers
    return server


def call_through_gateway(config: Path, tool: str, **arguments: object) -> str:
    """Return what a tool answers a client of a gateway with this configuration."""

    async def conversation() -> str:
        opened = Gateway(read_config(config), MemoryStore())
        async with asyncio.timeout(DEADLINE_SECONDS), opened:
            await eventually(lambda: opened.scout.preview(f"select:{tool}").hits)
            session = opened.open_session("ann", Principal(name="ann"))
            async with Client(build_server(opened, always(session))) as client:
                await client.call_tool("tool_search", {"queries": [f"select:{tool}"]})
                found = await client.call_tool("tool_call", {"name": tool, "arguments": arguments})
                return text_of(found)

    return asyncio.run(conversation())


@pytest.mark.timeout(300)
def test_a_person_answers_confirms_and_the_gateway_serves_the_tools(
    home: Path, monkeypatch: pytest.MonkeyPatch
):
    source = write_json(home / "server.json", TIME)
    uvx = home / "uvx"
    uvx.write_text(
        "#!/bin/sh\n"
        '[ "$1" = mcp-server-time==2026.10.19 ] && [ "$TIME_KEY" = hunter2 ] && shift\n'
        f'exec {sys.executable} -m mcp_server_time "$@"\n'
    )
    uvx.chmod(0o755)
    monkeypatch.setenv("PATH", f"{home}:{os.environ['PATH']}")
    monkeypatch.setenv("IO_KEY", "hunter2")

    with terminal("servers", "add", source, columns=160, lines=50, cwd=home) as view:
        shown = view.wait_for("local-timezone (Your [2Jtime zone):")
        assert "Uses       pypi mcp-server-time 2026.10.19" in shown
        assert "Publisher  io.github.ann" in shown
        assert b"\x1b[2J" not in view.raw
        assert not (home / "toolscout.toml").exists()
        view.press("UTC", "enter")
        view.wait_for("Enter for ${TIME_KEY}:")
        view.press("plain-secret", "enter")
        view.wait_for("because it is a secret.")
        view.press("${IO_KEY}", "enter")
        shown = view.wait_for("as 'time'? [y/N]:")
        assert "Runs       uvx mcp-server-time==2026.10.19 --local-timezone UTC" in shown
        assert "Variable   TIME_KEY=${IO_KEY}" in shown
        assert b"plain-secret" not in view.raw
        assert not (home / "toolscout.toml").exists()
        view.press("y", "enter")
        assert view.wait() == 0
        assert "time  ok      2 tools" in view.text

    told = call_through_gateway(
        home / "toolscout.toml", "time__get_current_time", timezone="Europe/Berlin"
    )
    assert "Europe/Berlin" in told
    assert "plain-secret" not in (home / "toolscout.toml").read_text()


@needs_packer
@pytest.mark.timeout(300)
def test_a_bundle_of_the_official_packer_is_unpacked_served_and_removed(
    home: Path, monkeypatch: pytest.MonkeyPatch
):
    made = home / "made"
    (made / "server" / "lib").mkdir(parents=True)
    write_json(made / "manifest.json", CLOCK)
    (made / "server" / "main.py").write_text(CLOCK_SERVER)
    (made / "server" / "lib" / "greetings.py").write_text(
        "def greet(word, name):\n    return f'{word}, {name}!'\n"
    )
    packed = home / "clock.mcpb"
    pack(made, packed)
    # Its `python` is the one of the tests, which has the SDK.
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")

    refused = run("add", packed, "--set", "word=Hello", text="n\n")
    assert (refused.exit_code, refused.stderr.count("Nothing was added.")) == (0, 1)
    assert not (home / "home").exists()
    assert not (home / "toolscout.toml").exists()

    added = run("add", packed, "--set", "word=Hello", text="y\n")
    assert added.exit_code == 0, added.output
    folder = Path(read_only_server(home).cwd)
    assert f"In         {folder}\n" in added.stdout
    assert "clock  ok      1 tool" in added.stdout
    told = call_through_gateway(home / "toolscout.toml", "clock__greet_person", name="Ann")
    assert told == "Hello, Ann!"

    removed = run("remove", "clock")
    assert removed.stdout.endswith(f"Deleted {folder}.\n")
    assert list(folder.parent.iterdir()) == []


def test_nothing_is_written_before_a_person_has_confirmed(home: Path):
    source = write_json(home / "server.json", WEATHER)

    asked = run("add", source)
    told = run("add", source, "--yes")
    unsure = run("add", source, "--set", "folder=.", text="\n")

    assert (asked.exit_code, told.exit_code, unsure.exit_code) == (2, 2, 2)
    assert "Not a terminal: pass --set folder=VALUE." in asked.stderr
    assert "'weather' needs --set folder=…." in told.stderr
    assert sorted(path.name for path in home.iterdir()) == ["server.json"]


def test_with_yes_secrets_are_references_and_paths_are_whole(home: Path):
    source = write_json(home / "server.json", WEATHER)

    result = run("add", source, "--set", "folder=data", "--yes", "--no-test", "--name", "sky")

    server = read_only_server(home)
    assert result.exit_code == 0, result.output
    assert result.stdout == (
        "Server     Weather 1.2.3\n"
        "About      Forecasts for any city.\n"
        "Name       io.github.ann/weather\n"
        "Publisher  io.github.ann\n"
        "Website    https://github.com/ann/weather\n"
        "Uses       npm @ann/weather 1.2.3\n"
        "Or         --package 2: streamable-http https://weather.ann.example/mcp\n"
        f"Runs       npx -y @ann/weather@1.2.3 {home / 'data'}\n"
        "Variable   API_KEY=${API_KEY}\n"
        "Option     --set units=… (metric, imperial)\n"
        f"Added 'sky' to {home / 'toolscout.toml'}.\n"
        "Next: toolscout servers test sky\n"
    )
    assert server.name == "sky"
    assert server.args == ("-y", "@ann/weather@1.2.3", str(home / "data"))
    assert server.env == {"API_KEY": "${API_KEY}"}


def test_another_package_is_chosen_by_number_or_because_its_program_is_missing(
    home: Path, monkeypatch: pytest.MonkeyPatch
):
    source = write_json(home / "server.json", WEATHER)

    chosen = run("add", source, "--package", "2", "--oauth", "--yes")
    monkeypatch.setenv("PATH", str(home))
    usual = run("add", source, "--name", "second", "--no-test", "--yes")
    beyond = run("add", source, "--package", "3", "--yes")

    first, second = read_config(home / "toolscout.toml").servers
    assert chosen.stdout.endswith("Next: toolscout servers login weather\n")
    assert usual.exit_code == 0, usual.output
    assert (first.url, first.oauth) == ("https://weather.ann.example/mcp", True)
    assert second.url == first.url
    assert "--package is at most 2" in beyond.stderr


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (["--set", "API_KEY=ghp_0123456789abcdefSECRET"], "because it is a secret"),
        (["--set", "units=kelvin"], "'units' takes one of metric, imperial."),
        (["--set", "unit=metric"], "--set 'unit' means nothing here. It takes units."),
        (["--set", "folder=a", "--set", "folder=b"], "'folder' takes one value only."),
        (["an argument"], "need --command or --url"),
        (["--env", "A=b"], "need --command or --url"),
        (["--command", "x"], "need a SOURCE"),
    ],
)
def test_a_mistake_is_told_and_nothing_is_written(home: Path, options: list[str], problem: str):
    source = write_json(home / "server.json", WEATHER)

    result = run("add", source, "--set", "folder=.", "--yes", *options)

    assert result.exit_code == 2
    assert problem in result.stderr
    assert "SECRET" not in result.output
    assert not (home / "toolscout.toml").exists()


def test_a_hostile_document_cannot_draw_or_hide_on_the_screen(home: Path):
    evil = "\x1b[2J\x1b]0;x\x07\u202e\u200bgood"
    package = {
        **WEATHER["packages"][0],
        "packageArguments": [{"type": "positional", "value": "a\u202eb\u200bc"}],
        "environmentVariables": [{"name": "LD_PRELOAD", "value": "/tmp/x.so"}],
    }
    document = {
        **WEATHER,
        "title": evil,
        "description": evil,
        "version": evil,
        "repository": {"url": evil},
        "packages": [package, {"registryType": evil, "identifier": evil}],
        "_meta": {OFFICIAL: {"status": "deprecated", "statusMessage": evil}},
    }

    result = run("add", write_json(home / "server.json", document), "--yes", "--no-test")

    assert result.exit_code == 0, result.output
    assert not {"\x1b", "\x07", "\u202e", "\u200b"} & set(result.output)
    assert r"Runs       npx -y @ann/weather@1.2.3 'a\u202eb\u200bc'" in result.stdout
    assert "Warning    It sets LD_PRELOAD" in result.stdout
    assert "Status     deprecated. " in result.stdout


def test_a_command_that_is_too_long_to_check_is_not_added(home: Path):
    long = [{"type": "positional", "value": "x" * 5_000}] * 3
    package = {**WEATHER["packages"][0], "packageArguments": long}
    source = write_json(home / "server.json", {**WEATHER, "packages": [package]})

    result = run("add", source, "--yes")

    assert result.exit_code == 2
    assert "more than a person can check" in result.stderr
    assert not (home / "toolscout.toml").exists()


def test_a_server_without_a_usable_package_says_why(home: Path):
    packages = [{"registryType": "npm", "identifier": "--call=evil", "version": "1.0.0"}]
    document = {**WEATHER, "packages": packages, "remotes": []}
    source = write_json(home / "server.json", document)

    result = run("add", source, "--yes")

    assert result.exit_code == 2
    assert "npm --call=evil 1.0.0: its identifier is not one" in result.stderr


def test_a_bundle_that_a_registry_names_has_to_be_there_with_the_same_digest(home: Path):
    with ZipFile(home / "clock.mcpb", "w") as file:
        file.writestr("manifest.json", json.dumps(CLOCK))
        file.writestr("server/main.py", "")
    digest = read_bundle(home / "clock.mcpb", home, home, sys.platform).sha256
    package = {"registryType": "mcpb", "identifier": "https://ann.example/v1/clock.mcpb"}
    document = {**WEATHER, "packages": [{**package, "fileSha256": digest}]}
    source = write_json(home / "server.json", document)
    options = ("--package", "1", "--set", "word=Hi", "--yes", "--no-test")

    added = run("add", source, *options)
    document["packages"][0]["fileSha256"] = "0" * 64
    write_json(source, document)
    changed = run("add", source, *options, "--name", "other")
    (home / "clock.mcpb").unlink()
    missing = run("add", source, *options, "--name", "other")

    assert added.exit_code == 0, added.output
    assert (Path(read_only_server(home).cwd) / "server" / "main.py").is_file()
    assert (changed.exit_code, missing.exit_code) == (2, 2)
    assert "its publisher names 0000" in changed.stderr
    assert "`curl -LO https://ann.example/v1/clock.mcpb`" in missing.stderr


def entry(name: str, description: str, **official: Any) -> dict[str, Any]:
    document = {**WEATHER, "name": name, "title": "", "description": description}
    return {"server": document, "_meta": {OFFICIAL: {"status": "active", **official}}}


@pytest.fixture
def registry(home: Path) -> Path:
    entries = [
        entry("io.github.ann/weather", "Forecasts for any city."),
        entry("com.example/pg", "Query a PostgreSQL database with SQL."),
        entry("com.example/postgres", "Old.", status="deprecated", statusMessage="Use pg."),
        entry("com.example/evil-postgres", "Query a PostgreSQL database.", status="deleted"),
        entry("com.example/mail", "Send and read mail."),
    ]
    pages = [{"servers": entries[:3], "metadata": {"nextCursor": "x"}}, {"servers": entries[3:]}]
    path = home / "registry.json"
    path.write_text("\n".join(map(json.dumps, pages)), encoding="utf-8")
    return path


def test_servers_of_the_registry_are_found_by_what_they_do(registry: Path):
    found = run("search", "run a sql query", "--limit", "1")
    named = run("search", "postgres", "--json")
    nothing = run("search", "+zzzzqqq")

    assert found.exit_code == 0, found.output
    assert re.split(r"\s{2,}", found.stdout.splitlines()[1]) == [
        "com.example/pg",
        "1.2.3",
        "npm @ann/weather",
        "Query a PostgreSQL database with SQL.",
    ]
    assert "Next: toolscout servers add com.example/pg" in found.stderr
    names = {row["name"]: row["status"] for row in json.loads(named.stdout)["servers"]}
    assert names["com.example/postgres"] == "deprecated"
    assert "com.example/evil-postgres" not in names
    assert nothing.exit_code == 3


def test_a_server_of_the_registry_is_added_by_its_whole_name(registry: Path):
    elsewhere = registry.rename(registry.with_name("export.json"))
    options = ("--registry", elsewhere, "--package", "2", "--yes", "--no-test")

    added = run("add", "com.example/postgres", *options)
    near = run("add", "postgras", *options)
    deleted = run("add", "com.example/evil-postgres", *options)
    without = run("add", "com.example/postgres", "--yes")

    assert added.exit_code == 0, added.output
    assert "Status     deprecated. Use pg.\n" in added.stdout
    assert read_only_server(elsewhere.parent).name == "postgres"
    assert near.exit_code == 3
    assert "There is no server 'postgras'. Near: com.example/postgres" in near.stderr
    assert "The registry has deleted com.example/evil-postgres." in deleted.stderr
    assert without.exit_code == 2
    assert f"{registry}: does not exist. Fetch the MCP registry" in without.stderr


def test_a_plain_name_without_a_command_is_told_how_to_add_a_server(home: Path):
    result = run("add", "weather")

    assert result.exit_code == 2
    assert "To add a new server, say what starts it with --command" in result.stderr


@pytest.mark.parametrize("name", ["server.json", "x.mcpb", "./no/x.json"])
def test_a_file_that_does_not_exist_is_told(home: Path, name: str):
    result = run("add", name, "--yes")

    assert result.exit_code == 2
    assert "cannot be read" in result.stderr
