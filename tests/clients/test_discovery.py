"""Finding configuration files and the servers in them."""

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from toolscout.clients.discovery import (
    Discovery,
    Machine,
    Source,
    find_secret_places,
    find_servers,
    format_secret_notes,
    list_known_files,
    starts_own,
)
from toolscout.clients.programs import CLIENTS
from toolscout.config.file import Config
from toolscout.config.gateway import GatewayConfig
from toolscout.config.servers import ServerConfig, Transport
from toolscout.errors import InvalidFile

HOME = Path("/home/ada")
HERE = Path("/code/shop")


def machine(platform: str = "linux", **env: str) -> Machine:
    return Machine(home=HOME, platform=platform, env=env, cwd=HERE)


def stdio(command: str = "run", *args: str, name: str = "a", **values: Any) -> ServerConfig:
    return ServerConfig(name=name, transport=Transport.STDIO, command=command, args=args, **values)


def http(url: str, **values: Any) -> ServerConfig:
    return ServerConfig(name="a", transport=Transport.HTTP, url=url, **values)


def client_file(folder: Path, name: str, servers: Mapping[str, object]) -> Source:
    path = folder / name
    path.write_text(json.dumps({"mcpServers": servers}), encoding="utf-8")
    return Source(program=name, path=path)


def names(findings: Discovery) -> dict[str, str]:
    return {found.server.name: found.source.program for found in findings.found}


def test_files_of_programs_on_linux():
    found = [(source.program, str(source.path)) for source in list_known_files(machine())]

    assert found[:9] == [
        ("toolscout", "/home/ada/.config/toolscout/toolscout.toml"),
        ("toolscout", "/code/shop/toolscout.toml"),
        ("Claude Desktop", "/home/ada/.config/Claude/claude_desktop_config.json"),
        ("Claude Code", "/home/ada/.claude.json"),
        ("Claude Code", "/code/shop/.mcp.json"),
        ("Cursor", "/home/ada/.cursor/mcp.json"),
        ("Cursor", "/code/shop/.cursor/mcp.json"),
        ("VS Code", "/home/ada/.config/Code/User/mcp.json"),
        ("VS Code", "/home/ada/.config/Code/User/settings.json"),
    ]
    assert len(dict(found)) == len(CLIENTS) + 1


def test_a_file_in_the_home_folder_is_the_users_even_if_it_is_the_working_folder():
    at_home = Machine(home=HOME, platform="linux", env={}, cwd=HOME)

    [cursor] = [source for source in list_known_files(at_home) if source.program == "Cursor"]

    assert not cursor.is_project


@pytest.mark.parametrize(
    ("platform", "env", "desktop", "own"),
    [
        ("darwin", {}, "/home/ada/Library/Application Support", "/home/ada/.config"),
        ("win32", {}, "/home/ada/AppData/Roaming", "/home/ada/AppData/Roaming"),
        ("win32", {"APPDATA": "/roam"}, "/roam", "/roam"),
        ("linux", {"XDG_CONFIG_HOME": "/conf"}, "/conf", "/conf"),
        ("linux", {"XDG_CONFIG_HOME": "relative"}, "/home/ada/.config", "/home/ada/.config"),
    ],
)
def test_the_settings_folder_depends_on_the_system(
    platform: str, env: dict[str, str], desktop: str, own: str
):
    paths = {str(source.path) for source in list_known_files(machine(platform, **env))}

    assert f"{desktop}/Claude/claude_desktop_config.json" in paths
    assert f"{desktop}/Code/User/mcp.json" in paths
    assert f"{own}/toolscout/toolscout.toml" in paths


def test_environment_variables_move_the_files_of_programs():
    moved = list_known_files(machine(CODEX_HOME="/codex", CLAUDE_CONFIG_DIR="/claude"))

    paths = {str(source.path) for source in moved}
    assert {"/codex/config.toml", "/claude/.claude.json"} <= paths


def test_a_file_in_the_working_directory_is_known_but_is_not_the_users(tmp_path: Path):
    asked = Machine(home=HOME, platform="linux", env={}, cwd=tmp_path)

    assert asked.local_file is None
    (tmp_path / "toolscout.toml").touch()
    assert asked.local_file == tmp_path / "toolscout.toml"
    assert asked.user_file == HOME / ".config/toolscout/toolscout.toml"


def test_the_cache_folder_depends_on_the_system():
    default = GatewayConfig()

    assert machine().find_cache_file(default) == HOME / ".cache/toolscout/gateway.db"
    assert machine(XDG_CACHE_HOME="/c").find_cache_file(default) == Path("/c/toolscout/gateway.db")
    assert machine("win32", LOCALAPPDATA="/l").find_cache_file(default) == Path(
        "/l/toolscout/gateway.db"
    )
    named = GatewayConfig(cache="${STATE}/x.db")
    assert machine(STATE="/state").find_cache_file(named) == Path("/state/x.db")


def test_servers_that_start_the_same_way_are_merged(tmp_path: Path):
    entry = {"command": "npx", "args": ["x"], "env": {"K": "plain"}}
    first = client_file(tmp_path, "one", {"git": {**entry, "env": {"K": "${K}"}}})
    second = client_file(tmp_path, "two", {"git": {**entry, "disabledTools": ["x"]}})

    findings = find_servers([first, second, first], machine())

    assert names(findings) == {"git": "one"}
    assert findings.found[0].server.env == {"K": "${K}"}
    assert findings.notes == ()
    assert findings.sources == (first, second)


def test_different_servers_with_the_same_name_are_both_kept(tmp_path: Path):
    sources = [
        client_file(tmp_path, f"file{number}", {"git": {"command": "git", "env": {"K": key}}})
        for number, key in enumerate(["one", "two", "two", "three"])
    ]

    findings = find_servers(sources, machine())

    assert names(findings) == {"git": "file0", "git-2": "file1", "git-3": "file3"}
    assert findings.notes == (
        f"{tmp_path}/file1: another server is 'git' already. This one is 'git-2'.",
        f"{tmp_path}/file3: another server is 'git' already. This one is 'git-3'.",
    )


def test_toolscout_itself_is_left_out(tmp_path: Path):
    source = client_file(
        tmp_path,
        "one",
        {"gate": {"command": "toolscout", "args": ["serve"]}, "b": {"command": "b"}},
    )

    findings = find_servers([source], machine())

    assert names(findings) == {"b": "one"}
    assert findings.notes == (
        f"{tmp_path}/one: server 'gate' is toolscout itself. It was left out.",
    )


@pytest.mark.parametrize(
    ("server", "own"),
    [
        (stdio("/usr/bin/toolscout"), True),
        (stdio("C:\\bin\\toolscout.EXE", "serve"), True),
        (stdio("uvx", "--from", "toolscout[gateway]", "toolscout", "serve"), True),
        (stdio("uvx", "toolscout@latest", "serve", "--config", "x"), True),
        (stdio("python", "-m", "toolscout", "serve"), True),
        (http("http://localhost:8765/mcp"), True),
        (http("http://[::1]:8765/mcp"), True),
        (http("http://localhost:9000/mcp"), False),
        (http("https://toolscout.example:8765/mcp"), False),
        (http("${URL}"), False),
        (stdio("uvx", "mcp-server-git", "--repository", "toolscout"), False),
        (stdio("mytoolscout"), False),
    ],
)
def test_toolscout_is_recognised_however_it_is_started(server: ServerConfig, own: bool):
    assert starts_own(server.command, server.url, server.args) is own


def test_a_known_file_that_cannot_be_read_is_a_note_and_a_named_one_an_error(tmp_path: Path):
    path = tmp_path / "broken.json"
    path.write_text('{"mcpServers": ', encoding="utf-8")
    good = client_file(tmp_path, "good", {"a": {"command": "a"}})

    findings = find_servers([Source(program="Cursor", path=path), good], machine())

    assert names(findings) == {"a": "good"}
    assert findings.notes[0].startswith(f"{path}, line 1, column 16: is not JSON. ")
    assert findings.notes[0].endswith(" The file was left out.")
    with pytest.raises(InvalidFile):
        find_servers([Source(program="", path=path)], machine())
    with pytest.raises(InvalidFile):
        find_servers([Source(program="", path=tmp_path / "nowhere")], machine())


def test_programs_without_servers_give_no_note(tmp_path: Path):
    path = tmp_path / "config.toml"
    path.write_text("model = 'm'\n[features]\nx = true", encoding="utf-8")

    sources = [Source(program="Codex", path=path), Source(program="Cursor", path=tmp_path / "no")]

    assert find_servers(sources, machine()) == Discovery(found=(), sources=(sources[0],), notes=())


@pytest.mark.parametrize(
    "edited",
    [
        {"name": "renamed"},
        {"env": {"K": "${FROM_ELSEWHERE}"}},
        {"env": {"K": "rotated"}},
        {"env": {"K": "plain", "MORE": "1"}},
        {"env": {}},
        {"disabled": True, "hint": "words", "lazy": False},
        {"name": "renamed", "env": {"K": "${K}"}, "call_seconds": 5.0},
    ],
)
def test_a_server_with_the_same_command_is_the_same_whatever_was_edited(
    tmp_path: Path, edited: dict[str, Any]
):
    source = client_file(
        tmp_path, "one", {"git": {"command": "npx", "args": ["x"], "env": {"K": "plain"}}}
    )
    values: dict[str, Any] = {"name": "git", "env": {"K": "plain"}, **edited}
    own = Config(servers=(stdio("npx", "x", **values),), source=tmp_path / "toolscout.toml")

    findings = find_servers([source], machine(), own)

    assert [found.server for found in findings.found] == list(own.servers)
    assert [found.is_new for found in findings.found] == [False]


def test_a_secret_that_was_replaced_by_a_reference_is_the_same_server(tmp_path: Path):
    source = client_file(
        tmp_path,
        "one",
        {
            "a": {"command": "x", "args": ["--api-key", "abc", "--port=1"]},
            "b": {"url": "https://web.example/mcp?key=abc"},
            "c": {"url": "https://other.example/mcp"},
        },
    )
    kept = (
        stdio("x", "--api-key", "${KEY}", "--port=1"),
        replace(http("https://web.example/mcp?key=${KEY}"), name="b"),
    )

    findings = find_servers([source], machine(), Config(servers=kept))

    assert [found.server.name for found in findings.found if found.is_new] == ["c"]


def test_a_second_account_with_the_same_command_is_another_server(tmp_path: Path):
    first = client_file(tmp_path, "one", {"git": {"command": "x", "env": {"K": "first"}}})
    second = client_file(tmp_path, "two", {"git": {"command": "x", "env": {"K": "second"}}})
    own = Config(servers=(stdio("x", name="git", env={"K": "first"}),))

    findings = find_servers([first, second], machine(), own)

    assert [found.server.name for found in findings.found] == ["git", "git-2"]


def test_a_server_with_other_values_under_another_name_stays_with_its_client(tmp_path: Path):
    source = client_file(tmp_path, "one", {"home": {"command": "x", "env": {"K": "second"}}})
    own = Config(
        servers=(stdio("x", name="work", env={"K": "first"}),), source=tmp_path / "toolscout.toml"
    )

    findings = find_servers([source], machine(), own)

    assert [found.server.name for found in findings.found] == ["work"]
    assert findings.notes == (
        f"{tmp_path}/one: server 'home' starts like 'work' in {own.source}, but with other "
        "variables or headers. It stays there. If both are needed, add it under another name.",
    )


def test_servers_of_a_project_stay_there_unless_asked_for(tmp_path: Path):
    here = str(HERE)
    tables = {
        "mcpServers": {"mine": {"command": "mine"}},
        "projects": {here: {"mcpServers": {"theirs": {"command": "theirs"}}}},
    }
    code = tmp_path / ".claude.json"
    code.write_text(json.dumps(tables), encoding="utf-8")
    shared = replace(
        client_file(tmp_path, ".mcp.json", {"x": {"command": "x"}, "y": {"command": "y"}}),
        is_project=True,
    )
    sources = [Source(program="Claude Code", path=code), shared]

    careful = find_servers(sources, machine())
    asked = find_servers(sources, machine(), project=True)

    assert [found.server.name for found in careful.found] == ["mine"]
    assert careful.notes == (
        f"{code}: 1 server for this project not moved. Add --project to include projects.",
        f"{shared.path}: 2 servers for this project not moved. Add --project to include projects.",
    )
    assert [found.server.name for found in asked.found] == ["mine", "theirs", "x", "y"]


@pytest.mark.parametrize(
    ("server", "places"),
    [
        (
            stdio(env={"GITHUB_TOKEN": "x", "DEBUG": "1", "MY_KEY": "${K}", "PWD_X": " "}),
            ["env.GITHUB_TOKEN"],
        ),
        (
            http("https://x", headers={"Authorization": "Bearer x", "Accept": "a"}),
            ["headers.Authorization"],
        ),
        (http("https://x", headers={"X-Forwarded": "Bearer abcdef"}), ["headers.X-Forwarded"]),
        (http("https://x", headers={"Authorization": "Bearer ${TOKEN}"}), []),
        (
            stdio(env={"OPENAPI_MCP_HEADERS": '{"Authorization": "Bearer ntn_1", "V": "1"}'}),
            ["env.OPENAPI_MCP_HEADERS"],
        ),
        (
            stdio("npx", "mcp-remote", "https://x", "--header", "Authorization: Bearer abc"),
            ["args"],
        ),
        (stdio("npx", "mcp-remote", "https://x", "--header=Authorization: Bearer abc"), ["args"]),
        (stdio("npx", "mcp-remote", "https://x", "--header", "Authorization:${AUTH}"), []),
        (http("https://x", token="x"), ["token"]),
        (http("https://x", token="${T}"), []),
        (http("https://u:p@x"), ["url"]),
        (http("https://x/?api_key=1"), ["url"]),
        (http("https://x/?api_key=${K}&page=2"), []),
        (stdio("x", "--api-key", "abc"), ["args"]),
        (stdio("x", "--api-key=abc"), ["args"]),
        (stdio("x", "--api-key", "${K}"), []),
        (stdio("x", "-H", "X-Team: abc"), ["args"]),
        (stdio("x", "postgresql://u:p@host/db"), ["args"]),
        (stdio("x", "--db=postgresql://u:p@host/db"), ["args"]),
        (stdio("x", "ghp_0123456789abcdefABCDEF"), ["args"]),
        (stdio("npx", "-y", "@modelcontextprotocol/server-filesystem", "/home/ada"), []),
    ],
)
def test_secrets_in_plain_text_are_reported_by_key(server: ServerConfig, places: list[str]):
    assert find_secret_places(server) == [f"servers.a.{place}" for place in places]


def test_a_note_on_a_secret_says_what_to_write():
    assert format_secret_notes([stdio(env={"API_KEY": "hunter2"}, name="my mail")]) == [
        'servers."my mail".env.API_KEY contains a secret in plain text. '
        "Write ${keyring:NAME}, ${VARIABLE} or ${file:PATH} instead."
    ]


def test_a_bearer_token_in_a_variable_is_noted_with_the_variable():
    servers = [
        http("https://x", headers={"Authorization": "Bearer ${TOKEN}"}),
        stdio("npx", "mcp-remote", "https://x", "--header", "Authorization: Bearer ${env:OTHER}"),
    ]

    assert format_secret_notes(servers) == [
        "servers.a.headers.Authorization takes a bearer token from the variable TOKEN. "
        "Set it where toolscout runs.",
        "servers.a.args takes a bearer token from the variable OTHER. Set it where toolscout runs.",
    ]
