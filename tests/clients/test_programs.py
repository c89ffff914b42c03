"""The table of clients: each one's servers are found, moved and put back, from a sample file.

The samples are written as each client's documentation shows them.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from toolscout.clients.discovery import Machine, Source, find_servers, list_known_files
from toolscout.clients.programs import CLIENTS, Client, find_client
from toolscout.clients.rewrite import Launch, format_manual_change, parse_document, plan_rewrite
from toolscout.clients.undo import find_undos, put_back, write_rewrite
from toolscout.config.documents import ConfigDocument
from toolscout.config.file import Config, import_servers
from toolscout.config.formats import find_value

SAMPLES = Path(__file__).with_name("samples")
PAGE = Path(__file__).parents[2] / "docs" / "gateway.md"
LAUNCH = Launch(command="/opt/toolscout", args=("serve", "--config", "/etc/t.toml"))
PLAIN = {"command": "/opt/toolscout", "args": ["serve", "--config", "/etc/t.toml"]}
STORAGE = ".config/Code/User/globalStorage"

EXPECTED: list[tuple[str, str, str, dict[str, dict[str, Any]]]] = [
    (
        "opencode",
        ".config/opencode/opencode.json",
        "opencode.json",
        {
            "my-local-mcp-server": {
                "transport": "stdio",
                "command": "npx",
                "args": ["-y", "my-mcp-command"],
                "env": {"MY_ENV_VAR": "${MY_ENV_VAR}"},
            },
            "my-remote-mcp": {
                "transport": "http",
                "url": "https://my-mcp-server.com",
                "headers": {"Authorization": "Bearer MY_API_KEY"},
                "disabled": True,
            },
        },
    ),
    (
        "opencode",
        ".config/opencode/opencode.jsonc",
        "opencode2.jsonc",
        {
            "everything": {
                "transport": "stdio",
                "command": "npx",
                "args": ["-y", "@modelcontextprotocol/server-everything"],
                "env": {"LOG_LEVEL": "info"},
                "disabled": True,
            },
        },
    ),
    (
        "gemini-cli",
        ".gemini/settings.json",
        "gemini.json",
        {
            "pythonTools": {
                "transport": "stdio",
                "command": "python",
                "args": ["-m", "my_mcp_server", "--port", "8080"],
                "cwd": "/srv/mcp-servers/python",
                "env": {
                    "DATABASE_URL": "${DB_CONNECTION_STRING}",
                    "API_KEY": "${EXTERNAL_API_KEY}",
                },
            },
            "httpServerWithAuth": {
                "transport": "http",
                "url": "https://mcp.example.com/mcp",
                "headers": {"Authorization": "Bearer ${API_TOKEN}"},
                "allow": ["safe_tool", "file_reader"],
            },
            "sseServer": {"transport": "sse", "url": "https://mcp.example.com/sse"},
        },
    ),
    (
        "copilot-cli",
        ".copilot/mcp-config.json",
        "copilot.json",
        {
            "playwright": {
                "transport": "stdio",
                "command": "npx",
                "args": ["@playwright/mcp@latest"],
            },
            "context7": {
                "transport": "http",
                "url": "https://mcp.context7.com/mcp",
                "headers": {"CONTEXT7_API_KEY": "YOUR-API-KEY"},
                "allow": ["resolve-library-id"],
            },
        },
    ),
    (
        "zed",
        ".config/zed/settings.json",
        "zed.json",
        {
            "local-mcp-server": {
                "transport": "stdio",
                "command": "some-command",
                "args": ["arg-1", "arg-2"],
            },
            "remote-mcp-server": {
                "transport": "http",
                "url": "https://example.com/mcp",
                "headers": {"Authorization": "Bearer <token>"},
            },
            "older": {
                "transport": "stdio",
                "command": "node",
                "args": ["server.js"],
                "env": {"A": "b"},
            },
        },
    ),
    (
        "cline",
        f"{STORAGE}/saoudrizwan.claude-dev/settings/cline_mcp_settings.json",
        "cline.json",
        {
            "local-server": {
                "transport": "stdio",
                "command": "node",
                "args": ["/path/to/server.js"],
                "env": {"API_KEY": "your_api_key"},
            },
            "remote-server": {
                "transport": "http",
                "url": "https://your-server-url.com/mcp",
                "headers": {"Authorization": "Bearer your-token"},
                "disabled": True,
            },
        },
    ),
    (
        "roo",
        f"{STORAGE}/rooveterinaryinc.roo-cline/settings/mcp_settings.json",
        "roo.json",
        {
            "server1": {
                "transport": "stdio",
                "command": "python",
                "args": ["/path/to/server.py"],
                "env": {"API_KEY": "${env:API_KEY}"},
            },
            "modern-remote": {
                "transport": "http",
                "url": "https://your-modern-server-url.com/mcp-endpoint",
                "headers": {"X-API-Key": "your-secure-api-key"},
                "deny": ["newToolB"],
            },
        },
    ),
    (
        "kiro",
        ".kiro/settings/mcp.json",
        "kiro.json",
        {
            "local-server-name": {
                "transport": "stdio",
                "command": "command-to-run-server",
                "args": ["arg1", "arg2"],
                "env": {"ENV_VAR1": "hard-coded-variable", "ENV_VAR2": "${EXPANDED_VARIABLE}"},
                "deny": ["tool_name3"],
            },
            "remote-server-name": {
                "transport": "http",
                "url": "https://endpoint.to.connect.to",
                "headers": {"Authorization": "Bearer ${TOKEN}"},
            },
        },
    ),
    (
        "lm-studio",
        ".lmstudio/mcp.json",
        "lmstudio.json",
        {
            "hf-mcp-server": {
                "transport": "http",
                "url": "https://huggingface.co/mcp",
                "headers": {"Authorization": "Bearer <YOUR_HF_TOKEN>"},
            },
            "filesystem": {
                "transport": "stdio",
                "command": "npx",
                "args": ["-y", "@modelcontextprotocol/server-filesystem", "/tmp"],
            },
        },
    ),
    (
        "amp",
        ".config/amp/settings.json",
        "amp.json",
        {
            "playwright": {
                "transport": "stdio",
                "command": "npx",
                "args": ["-y", "@playwright/mcp@latest", "--headless", "--isolated"],
            },
            "linear": {"transport": "sse", "url": "https://mcp.linear.app/sse"},
            "monday": {
                "transport": "http",
                "url": "https://mcp.monday.com/mcp",
                "headers": {"Authorization": "Bearer ${MONDAY_API_TOKEN}"},
                "allow": ["get_board_items"],
            },
        },
    ),
    (
        "junie",
        ".junie/mcp/mcp.json",
        "junie.json",
        {
            "context7": {
                "transport": "stdio",
                "command": "npx",
                "args": ["-y", "@upstash/context7-mcp"],
            },
        },
    ),
    (
        "goose",
        ".config/goose/config.yaml",
        "goose.yaml",
        {
            "github": {
                "transport": "stdio",
                "command": "npx",
                "args": ["-y", "@modelcontextprotocol/server-github"],
                "env": {
                    "GITHUB_PERSONAL_ACCESS_TOKEN": "${GITHUB_PERSONAL_ACCESS_TOKEN}",
                    "LOG": "info",
                },
            },
            "remote": {
                "transport": "http",
                "url": "https://example.com/mcp",
                "headers": {"Authorization": "Bearer abcdef"},
                "disabled": True,
            },
        },
    ),
    (
        "continue",
        ".continue/config.yaml",
        "continue.yaml",
        {
            "My MCP Server": {
                "transport": "stdio",
                "command": "uvx",
                "args": ["mcp-server-sqlite", "--db-path", "./test.db"],
                "cwd": "/Users/NAME/project",
                "env": {"NODE_ENV": "production", "KEY": "${API_KEY}"},
            },
            "Remote": {
                "transport": "http",
                "url": "https://example.com/mcp",
                "headers": {"Authorization": "Bearer ${TOKEN}"},
            },
        },
    ),
]
REWRITTEN = [row[:3] for row in EXPECTED if not row[1].endswith(".yaml")]
ENTRIES = {
    "opencode": {
        "type": "local",
        "command": ["/opt/toolscout", "serve", "--config", "/etc/t.toml"],
    },
    "copilot-cli": {"type": "local", "tools": ["*"], **PLAIN},
}


def install(home: Path, name: str, place: str, sample: str) -> Source:
    """Put a sample where its client keeps it, and return the file as toolscout finds it."""
    path = home / place
    path.parent.mkdir(parents=True)
    path.write_bytes((SAMPLES / sample).read_bytes())
    [found] = [source for source in list_known_files(machine(home)) if source.path == path]
    assert found.program == client_named(name).title
    return found


def machine(home: Path) -> Machine:
    return Machine(home=home, platform="linux", env={}, cwd=home / "project")


def client_named(name: str) -> Client:
    client = find_client(name)
    assert client.name == name
    return client


@pytest.mark.parametrize(("name", "place", "sample", "servers"), EXPECTED)
def test_the_servers_of_a_client_are_found(
    tmp_path: Path, name: str, place: str, sample: str, servers: dict[str, dict[str, Any]]
):
    source = install(tmp_path, name, place, sample)

    findings = find_servers(list_known_files(machine(tmp_path)), machine(tmp_path))

    assert {found.source for found in findings.found} == {source}
    assert {one.server.name: one.server.to_mapping() for one in findings.found} == servers


@pytest.mark.parametrize(("name", "place", "sample"), REWRITTEN)
def test_the_servers_of_a_client_go_behind_toolscout_and_come_back(
    tmp_path: Path, name: str, place: str, sample: str
):
    source = install(tmp_path, name, place, sample)
    before = parsed(source)
    config = import_servers(source.path)

    plan = plan_rewrite(source, LAUNCH, config)
    write_rewrite(plan)

    after = parsed(source)
    keys = next(keys for keys in (("mcp", "servers"), client_named(name).keys) if at(after, keys))
    assert set(plan.taken) == {server.name for server in config.servers}
    assert at(after, keys) == {
        "toolscout": ENTRIES.get(name, PLAIN),
        **{kept: at(before, keys)[kept] for kept in plan.kept},
    }
    at(after, keys).clear()
    at(before, keys).clear()
    assert after.tables == before.tables
    assert not plan_rewrite(source, LAUNCH, config).is_change
    assert find_servers([source], machine(tmp_path)).found == ()

    [undo] = find_undos([source])
    put_back(undo)

    assert source.path.read_bytes() == (SAMPLES / sample).read_bytes()


@pytest.mark.parametrize(("name", "place", "sample"), REWRITTEN)
def test_edits_of_a_client_outlive_the_undo(tmp_path: Path, name: str, place: str, sample: str):
    source = install(tmp_path, name, place, sample)
    before = parsed(source)
    write_rewrite(plan_rewrite(source, LAUNCH, import_servers(source.path)))
    text = source.path.read_text(encoding="utf-8")
    brace = text.index("{\n")
    source.path.write_text(
        text[: brace + 1] + ' "theme": "light",' + text[brace + 1 :].replace('"One Dark"', "1"),
        encoding="utf-8",
    )

    [undo] = find_undos([source])
    put_back(undo)

    restored = parsed(source).tables
    assert "theme" in restored
    servers = next(
        keys for keys in (("mcp", "servers"), client_named(name).keys) if at(before, keys)
    )
    assert find_value(restored, servers) == at(before, servers)


@pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.name)
def test_every_client_can_get_an_entry_in_an_empty_file(tmp_path: Path, client: Client):
    if client.is_yaml:
        return
    path = tmp_path / Path(client.files[0]).name
    path.write_text("", encoding="utf-8")
    source = Source(program=client.title, path=path)

    write_rewrite(plan_rewrite(source, LAUNCH, Config(), always=True))

    assert find_value(parsed(source).tables, client.keys) == {
        "toolscout": client.build_entry(LAUNCH.command, LAUNCH.args)
    }
    assert find_servers([source], machine(tmp_path)).notes == (
        f"{path}: server 'toolscout' is toolscout itself. It was left out.",
    )


def test_the_lines_for_a_yaml_file_make_its_client_start_toolscout(tmp_path: Path):
    for name, place, sample, servers in EXPECTED:
        if not client_named(name).is_yaml:
            continue
        source = install(tmp_path, name, place, sample)

        head, *lines = format_manual_change(source, LAUNCH, servers)

        key = client_named(name).keys[0]
        assert head == f"Under '{key}' in {source.path}, remove {', '.join(servers)} and add:"
        source.path.write_text("\n".join(lines), encoding="utf-8")
        [server] = import_servers(source.path).servers
        assert (server.name, server.command) == ("toolscout", LAUNCH.command)
        assert server.args == LAUNCH.args
        assert find_servers([source], machine(tmp_path)).found == ()


def test_the_page_on_the_gateway_lists_every_client():
    files = {
        client.name: ", ".join(f"`{show(file)}`" for file in client.files) for client in CLIENTS
    }
    rows = [f"| {one.title} | `{one.name}` | {files[one.name]} |" for one in CLIENTS]

    page = PAGE.read_text(encoding="utf-8")

    assert "\n".join(rows) in page


def show(place: str) -> str:
    """Return a place as the page writes it."""
    folders = {"{home}": "~", "{claude}": "~", "{codex}": "~/.codex", "{copilot}": "~/.copilot"}
    folders |= {"{config}": "~/.config", "{settings}": "SETTINGS"}
    for name, folder in folders.items():
        place = place.replace(name, folder)
    return place


def parsed(source: Source) -> ConfigDocument:
    return parse_document(source.path, source.path.read_text(encoding="utf-8"))


def at(document: ConfigDocument, keys: tuple[str, ...]) -> dict[str, Any]:
    found: Any = find_value(document.tables, keys)
    return found or {}


def test_names_and_titles_are_unique():
    names = [client.name for client in CLIENTS]
    titles = [client.title for client in CLIENTS]

    assert len({*names, *titles}) == 2 * len(CLIENTS)
    assert json.dumps(sorted(names)).islower()
