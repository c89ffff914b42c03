"""Configuration files: our own, and those of other programs."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolscout.config.edits import to_toml
from toolscout.config.file import Config, import_servers, read_config
from toolscout.config.gateway import GatewayConfig, GatewayMode, LogFormat, Profile, TokenConfig
from toolscout.config.servers import ServerConfig, Transport
from toolscout.errors import InvalidConfig, InvalidFile, UsageError
from toolscout.settings import Hiding, Route, Settings
from toolscout.tools import Effect

SECRET = "sk-7f3b9c2e-SECRET"

OWN = """
include = ["more.json"]

[servers.github]
command = "npx"
args = ["-y", "@modelcontextprotocol/server-github"]
env = { GITHUB_TOKEN = "${GITHUB_TOKEN}" }
cwd = "work"
allow = ["*_issue", "list_*"]
deny = ["delete_*"]
renames = { create_issue = "open_issue" }
pins = ["list_*"]
effects = { "delete_*" = "destructive" }
hints = { "list_*" = "show all" }
hint = "git forge"
start_seconds = 5
call_seconds = 2.5
concurrency = 2
lazy = false
idle_stop = 0

[servers.docs]
url = "https://docs.example/mcp"
token = "${file:docs.key}"

[servers.shop]
spec = "shop.json"
url = "https://shop.example/v1"

[gateway]
mode = "auto"
split_calls = true
port = 9000
log = "json"
cache = "state/gateway.db"

[gateway.profiles.readers]
servers = ["docs", "git*"]
effects = ["read"]

[gateway.tokens.ci]
token = "${CI_TOKEN}"
profile = "readers"

[sessions]
limit = 7
hiding = "auto"

[sessions.routes."github__*"]
keywords = ["issue"]
"""

CLAUDE = """{
  "globalShortcut": "Ctrl+Space",
  "mcpServers": {
    "files": {"command": "npx", "args": ["-y", "server-filesystem", "/data"], "env": {"DEBUG": 1}},
    "remote": {"type": "streamableHttp", "url": "https://r.example/mcp",
               "headers": {"Authorization": "Bearer ${REMOTE:-none}"}, "disabled": true,
               "autoApprove": ["x"], "description": "far"},
    "old": {"url": "https://o.example/sse"},
    "surf": {"serverUrl": "https://w.example/mcp", "disabledTools": ["drop[x]"]}
  }
}"""

VS_CODE = """{
  // what the editor asks for
  "inputs": [{"id": "api-key", "type": "promptString", "password": true,},],
  "servers": {
    /* two
       lines */
    "search": {
      "type": "stdio", "command": "${workspaceFolder}/run.sh", "args": ["--url", "http://x//y",],
      "env": {"API_KEY": "${input:api-key}", "NAME": "${env:USER}", "GONE": null},
      "envFile": ".env",
    },
    "web": {"type": "http", "url": "https://web.example/mcp"},
  },
}"""

CODEX = """
model = "some-model"

[mcp_servers.docs]
command = "docs-server"
args = ["--pattern", "${x}"]
env_vars = ["LANG", { name = "TERM", source = "local" }]
env = { A = "1" }
startup_timeout_sec = 12
tool_timeout_sec = 99
enabled_tools = ["search"]

[mcp_servers.far]
url = "https://far.example/mcp"
bearer_token_env_var = "FAR_TOKEN"
http_headers = { "X-Team" = "a" }
env_http_headers = { "X-Key" = "FAR_KEY" }
enabled = false
"""


def write(folder: Path, text: str, name: str = "toolscout.toml") -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def by_name(config: Config) -> dict[str, ServerConfig]:
    return {server.name: server for server in config.servers}


def stdio(name: str = "mail", **values: Any) -> ServerConfig:
    values.setdefault("command", "run")
    return ServerConfig(name=name, transport=Transport.STDIO, **values)


def error_of(folder: Path, text: str) -> str:
    with pytest.raises(UsageError) as caught:
        read_config(write(folder, text))
    return str(caught.value).replace(str(folder), "DIR")


def test_our_own_file_can_set_everything(tmp_path: Path):
    write(tmp_path, '{"mcpServers": {"time": {"command": "mcp-server-time"}}}', "more.json")

    config = read_config(write(tmp_path, OWN))

    assert config.servers == (
        ServerConfig(
            name="github",
            transport=Transport.STDIO,
            command="npx",
            args=("-y", "@modelcontextprotocol/server-github"),
            env={"GITHUB_TOKEN": "${GITHUB_TOKEN}"},
            cwd=str(tmp_path / "work"),
            allow=("*_issue", "list_*"),
            deny=("delete_*",),
            renames={"create_issue": "open_issue"},
            pins=("list_*",),
            effects={"delete_*": Effect.DESTRUCTIVE},
            hints={"list_*": "show all"},
            hint="git forge",
            start_seconds=5,
            call_seconds=2.5,
            concurrency=2,
            lazy=False,
            idle_stop=0,
        ),
        ServerConfig(
            name="docs",
            transport=Transport.HTTP,
            url="https://docs.example/mcp",
            token=f"${{file:{tmp_path / 'docs.key'}}}",
        ),
        ServerConfig(
            name="shop",
            transport=Transport.OPENAPI,
            spec=str(tmp_path / "shop.json"),
            url="https://shop.example/v1",
        ),
        ServerConfig(name="time", transport=Transport.STDIO, command="mcp-server-time"),
    )
    assert config.gateway == GatewayConfig(
        mode=GatewayMode.AUTO,
        split_calls=True,
        port=9000,
        log=LogFormat.JSON,
        cache=str(tmp_path / "state/gateway.db"),
        profiles={"readers": Profile(servers=("docs", "git*"), effects=(Effect.READ,))},
        tokens={"ci": TokenConfig(token="${CI_TOKEN}", profile="readers")},
    )
    assert config.sessions == Settings(
        limit=7, hiding=Hiding.AUTO, routes={"github__*": Route(keywords=("issue",))}
    )
    assert (config.source, config.notes) == (tmp_path / "toolscout.toml", ())


def test_an_empty_file_configures_the_defaults(tmp_path: Path):
    assert read_config(write(tmp_path, "")) == Config()


def test_claude_cursor_and_windsurf_share_a_format(tmp_path: Path):
    config = read_config(write(tmp_path, CLAUDE, "claude_desktop_config.json"))

    assert by_name(config) == {
        "files": stdio(
            "files",
            command="npx",
            args=("-y", "server-filesystem", "/data"),
            env={"DEBUG": "1"},
        ),
        "remote": ServerConfig(
            name="remote",
            transport=Transport.HTTP,
            url="https://r.example/mcp",
            headers={"Authorization": "Bearer ${REMOTE:-none}"},
            disabled=True,
        ),
        "old": ServerConfig(name="old", transport=Transport.SSE, url="https://o.example/sse"),
        "surf": ServerConfig(
            name="surf",
            transport=Transport.HTTP,
            url="https://w.example/mcp",
            deny=("drop[[]x]",),
        ),
    }
    assert config.notes == (
        f"{config.source}: Server 'remote': toolscout does not use 'autoApprove'.",
    )


def test_vs_code_writes_json_with_comments_and_asks_for_inputs(tmp_path: Path):
    config = read_config(write(tmp_path, VS_CODE, ".vscode/mcp.json"))

    assert by_name(config) == {
        "search": stdio(
            "search",
            command=f"{tmp_path}/run.sh",
            args=("--url", "http://x//y"),
            env={"API_KEY": "${TOOLSCOUT_INPUT_API_KEY}", "NAME": "${env:USER}"},
        ),
        "web": ServerConfig(name="web", transport=Transport.HTTP, url="https://web.example/mcp"),
    }
    assert config.notes == (
        f"{config.source}: Server 'search' asks for the input 'api-key'. "
        "Set the variable TOOLSCOUT_INPUT_API_KEY instead.",
        f"{config.source}: Server 'search': toolscout does not use 'envFile'.",
    )


@pytest.mark.parametrize("key", ['"mcp": {"servers": %s}', '"mcp.servers": %s'])
def test_vs_code_may_list_servers_in_its_settings(tmp_path: Path, key: str):
    text = '{"editor.fontSize": 12, ' + key % '{"a": {"command": "run"}}' + "}"

    assert read_config(write(tmp_path, text, "settings.json")).servers == (stdio("a"),)


def test_strings_of_codex_are_plain_and_variables_are_named(tmp_path: Path):
    config = read_config(write(tmp_path, CODEX, "config.toml"))

    docs, far = config.servers
    assert docs == stdio(
        "docs",
        command="docs-server",
        args=("--pattern", "$${x}"),
        env={"LANG": "${LANG:-}", "TERM": "${TERM:-}", "A": "1"},
        start_seconds=12,
        call_seconds=99,
        allow=("search",),
    )
    assert docs.resolve({"LANG": "C"}).args == ("--pattern", "${x}")
    assert far == ServerConfig(
        name="far",
        transport=Transport.HTTP,
        url="https://far.example/mcp",
        token="${FAR_TOKEN}",
        headers={"X-Team": "a", "X-Key": "${FAR_KEY}"},
        disabled=True,
    )
    assert config.notes == ()


def test_options_of_another_kind_of_server_are_ignored_with_a_note(tmp_path: Path):
    servers: dict[str, dict[str, Any]] = {
        "web": {"url": "https://w.example/mcp", "env": {"A": "1"}, "args": []},
        "run": {"command": "run", "headers": {"A": "1"}},
    }

    config = read_config(write(tmp_path, json.dumps({"mcpServers": servers}), "mcp.json"))

    assert config.servers == (
        ServerConfig(name="web", transport=Transport.HTTP, url="https://w.example/mcp"),
        stdio("run"),
    )
    assert config.notes == (
        f"{config.source}: Server 'web': toolscout does not use 'env'.",
        f"{config.source}: Server 'run': toolscout does not use 'headers'.",
    )


def test_claude_code_has_servers_for_each_project(tmp_path: Path):
    projects = {
        "/code/shop": {"mcpServers": {"db": {"command": "./db", "args": ["a"]}}},
        "/code/other": {"mcpServers": {"db": {"command": "db2"}}},
    }
    path = write(tmp_path, json.dumps({"mcpServers": {}, "projects": projects}), ".claude.json")

    everything, here = read_config(path), import_servers(path, [Path("/code/shop")])

    assert here.servers == (stdio("db", command="./db", args=("a",), cwd="/code/shop"),)
    assert [server.name for server in everything.servers] == ["db", "db-2"]
    assert everything.notes == (f"{path}: Several servers are named 'db'. One is now 'db-2'.",)


def test_a_server_of_another_program_that_cannot_be_used_is_left_out_with_a_note(tmp_path: Path):
    text = '{"mcpServers": {"a": {"type": "ws", "url": "ws://x"}, "b": 3, "c": {"command": "c"}}}'

    config = read_config(write(tmp_path, text, "mcp.json"))

    assert [server.name for server in config.servers] == ["c"]
    assert config.notes == (
        f"{config.source}: Setting 'servers.a.transport' is 'ws'. "
        "Use one of stdio, http, sse, openapi, skills. The server was left out.",
        f"{config.source}: Setting 'servers.b' is 3. Use a table. The server was left out.",
    )


def test_a_list_that_admits_all_tools_and_a_table_of_tools_limit_nothing(tmp_path: Path):
    listed = '{"mcpServers": {"a": {"command": "a", "tools": ["*"]}}}'
    table = "[mcp_servers.a]\ncommand = 'a'\n[mcp_servers.a.tools.x]\napproval_mode = 'approve'\n"

    for text, name in ((listed, "mcp-config.json"), (table, "config.toml")):
        [server] = read_config(write(tmp_path, text, name)).servers
        assert server.allow == ("*",)


def test_a_yaml_file_that_cannot_be_read_is_named_with_its_line(tmp_path: Path):
    path = write(tmp_path, "a: b\nextensions: [secret\n", "config.yaml")

    with pytest.raises(InvalidFile, match=r"config\.yaml, line 3, column 1: is not YAML") as caught:
        read_config(path)

    assert "secret" not in str(caught.value)


def test_a_format_is_recognised_by_content_not_by_file_name(tmp_path: Path):
    assert len(read_config(write(tmp_path, CODEX, "odd.json")).servers) == 2
    assert len(read_config(write(tmp_path, "\ufeff" + CLAUDE, "odd.toml")).servers) == 4


@pytest.mark.requirement("R109")
@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "[serverz.x]",
            "Setting 'serverz' in DIR/toolscout.toml does not exist. Use 'servers'.",
        ),
        (
            "[servers.github]\ncomand = 'x'",
            "Setting 'servers.github.comand' in DIR/toolscout.toml does not exist. Use 'command'.",
        ),
        (
            "[servers.github]\ncommand = 'x'\nargs = 'a b'",
            "Setting 'servers.github.args' in DIR/toolscout.toml is a string. "
            "Use a list of strings.",
        ),
        (
            "[servers.'my git'.env]\nA = 1",
            "Setting 'servers.\"my git\".env.A' in DIR/toolscout.toml is 1. Use a string.",
        ),
        (
            "[servers.a]\nlazy = true",
            "Setting 'servers.a.command' in DIR/toolscout.toml is missing, and transport stdio "
            "needs it. Add it.",
        ),
        (
            "[servers.a]\nurl = 'https://x'\ncommand = 'y'",
            "Setting 'servers.a.url' in DIR/toolscout.toml cannot be used with transport stdio. "
            "Leave it out, or change the transport.",
        ),
        (
            "[servers.a]\nurl = 'ftp://x'",
            "Setting 'servers.a.url' in DIR/toolscout.toml is not a web address. "
            "Begin it with https:// or http://.",
        ),
        (
            "[servers.a]\ncommand = 'x'\nallow = []",
            "Setting 'servers.a.allow' in DIR/toolscout.toml is empty. "
            "Leave it out to allow everything.",
        ),
        (
            "[servers.a]\ncommand = 'x'\nidle_stop = -1",
            "Setting 'servers.a.idle_stop' in DIR/toolscout.toml is -1. "
            "Use a number from 0 to 604,800.",
        ),
        (
            "[gateway]\nmode = 'serch'",
            "Setting 'gateway.mode' in DIR/toolscout.toml is 'serch'. "
            "Use one of search, direct, dynamic, auto.",
        ),
        (
            "[gateway.profiles.x]\nserver = ['a']",
            "Setting 'gateway.profiles.x.server' in DIR/toolscout.toml does not exist. "
            "Use 'servers'.",
        ),
        (
            "[gateway.profiles.readers]\n[gateway.tokens.x]\ntoken = 'a'\nprofile = 'reader'",
            "Setting 'gateway.tokens.x.profile' in DIR/toolscout.toml names a profile that "
            "does not exist. Use 'readers'.",
        ),
        (
            "[gateway.tokens.x]\nprofile = ''",
            "Setting 'gateway.tokens.x.token' in DIR/toolscout.toml is missing. Add it.",
        ),
        (
            "[sessions]\nlimitt = 3",
            "Setting 'sessions.limitt' in DIR/toolscout.toml does not exist. Use 'limit'.",
        ),
        (
            "[sessions.routes.x]\npriority = 3",
            "Setting 'sessions.routes.x.keywords' in DIR/toolscout.toml is missing. Add it.",
        ),
        (
            "[servers\n",
            "DIR/toolscout.toml, line 1, column 9: is not TOML. "
            "Correct what stands there, or just before.",
        ),
        (
            "[gateway]\nport = [1,",
            "DIR/toolscout.toml, line 2, column 11: is not TOML. "
            "Correct what stands there, or just before.",
        ),
        (
            '{\n"mcpServers": {]}',
            "DIR/toolscout.toml, line 2, column 16: is not JSON. "
            "Correct what stands there, or just before.",
        ),
        (
            '// Mine.\n{"a": /* a\nb */ [1, 2,], "mcpServers": {]}',
            "DIR/toolscout.toml, line 3, column 30: is not JSON. "
            "Correct what stands there, or just before.",
        ),
        (
            "[servers.a]\ncommand = 'x'\nisolate = 'docker'",
            "Setting 'servers.a.image' in DIR/toolscout.toml is missing, and isolate 'docker' "
            "needs it. Name an image that has the program, such as node:22.",
        ),
        (
            "[servers.a]\nurl = 'https://a.example/mcp'\nisolate = 'bwrap'",
            "Setting 'servers.a.isolate' in DIR/toolscout.toml cannot be used with transport http. "
            "Leave it out, or change the transport.",
        ),
        (
            '{"tools": []}',
            "DIR/toolscout.toml: contains no list of MCP servers. "
            "Name a file with 'mcpServers', 'servers' or [servers.NAME].",
        ),
    ],
)
def test_a_mistake_names_file_key_and_remedy(tmp_path: Path, text: str, message: str):
    """R109"""
    assert error_of(tmp_path, text) == message


@pytest.mark.parametrize(
    ("values", "key"),
    [
        ({"env": {"A=B": "x"}}, "env"),
        ({"env": {"A": "\0"}}, "env.A"),
        ({"env": {" ": "x"}}, "env"),
        ({"args": ["a", 3]}, "args[1]"),
        ({"args": ["\ud800"]}, "args[0]"),
        ({"command": "x" * 200_000}, "command"),
        ({"pins": [""]}, "pins"),
        ({"renames": {"a": "c", "b": "c"}}, "renames"),
        ({"renames": {"a": ""}}, "renames"),
        ({"effects": {"a": "rites"}}, "effects.a"),
        ({"effects": {"a": 3}}, "effects.a"),
        ({"concurrency": True}, "concurrency"),
        ({"concurrency": 1.5}, "concurrency"),
        ({"lazy": "yes"}, "lazy"),
        ({"token": "x"}, "token"),
        ({"isolate": "jail"}, "isolate"),
        ({"isolate": True}, "isolate"),
        ({"isolate": "docker"}, "image"),
        ({"isolate": "docker", "image": " "}, "image"),
        ({"isolate": "bwrap", "image": "node:22"}, "image"),
        ({"image": "node:22"}, "image"),
        ({"folders": ["/srv"]}, "folders"),
        ({"isolate": "bwrap", "folders": "/srv"}, "folders"),
        ({"network": False}, "network"),
        ({"limits": {"memory": 100}}, "limits.memory"),
        ({"limits": {"memory_mb": 0}}, "limits.memory_mb"),
        ({"limits": {"open_files": "many"}}, "limits.open_files"),
        ({"limits": ["memory_mb"]}, "limits"),
    ],
)
def test_values_are_checked_when_a_server_is_created_in_python(values: dict[str, Any], key: str):
    with pytest.raises(InvalidConfig) as caught:
        stdio(**values)

    assert caught.value.key == f"servers.mail.{key}"


def test_a_header_cannot_smuggle_in_another_header():
    def headers(name: str, text: str) -> None:
        ServerConfig(name="a", transport=Transport.HTTP, url="http://x", headers={name: text})

    headers("X-Key", "plain")
    for name, text in (("X-Key", f"{SECRET}\r\nHost: evil"), ("X Key", "a"), ("", "a")):
        with pytest.raises(InvalidConfig) as caught:
            headers(name, text)
        assert SECRET not in str(caught.value)


@pytest.mark.parametrize("name", ["", "  ", "a\nb", "\x1b[31m", "x" * 101])
def test_names_that_no_server_can_have_are_refused(name: str):
    with pytest.raises(InvalidConfig, match="'servers'"):
        stdio(name)


def test_two_servers_cannot_have_the_same_name():
    with pytest.raises(InvalidConfig, match=r"servers\.mail"):
        Config(servers=(stdio(), stdio()))


def test_a_server_is_resolved_when_it_is_started(tmp_path: Path):
    (tmp_path / "key").write_text(f"{SECRET}\n", encoding="utf-8")
    text = """
        [servers.a]
        command = "${BIN}/run"
        args = ["--home", "${HOME}"]
        env = { KEY = "${file:key}", PLAIN = "$${x}" }
        cwd = "~/work"
    """
    server = read_config(write(tmp_path, text)).servers[0]

    plain = server.resolve({"BIN": "/bin", "HOME": "/home/ada"})

    assert plain == stdio(
        "a",
        command="/bin/run",
        args=("--home", "/home/ada"),
        env={"KEY": SECRET, "PLAIN": "${x}"},
        cwd="/home/ada/work",
    )
    with pytest.raises(InvalidConfig, match=r"'servers\.a\.command' refers to the variable 'BIN'"):
        server.resolve({})


def test_variables_come_from_the_process_by_default(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("MAIL_KEY", "k")

    assert stdio(env={"K": "${MAIL_KEY}"}).resolve().env == {"K": "k"}
    assert TokenConfig(token="${MAIL_KEY}").resolve().token == "k"


def test_resolved_values_are_checked_again():
    server = ServerConfig(
        name="a", transport=Transport.HTTP, url="${URL}", headers={"X-Key": "${KEY}"}
    )

    for env in ({"URL": f"ftp://{SECRET}", "KEY": ""}, {"URL": "http://x", "KEY": f"{SECRET}\n"}):
        with pytest.raises(InvalidConfig) as caught:
            server.resolve(env)
        assert SECRET not in str(caught.value)


def test_a_token_that_resolves_to_nothing_is_refused():
    with pytest.raises(InvalidConfig, match="is empty"):
        TokenConfig(token="${CI:-}").resolve({})


def test_a_profile_admits_tools_that_match_all_its_parts():
    profile = Profile(servers=("git*",), tools=("*__list_*",), effects=(Effect.READ,))

    assert profile.admits("github", "github__list_issues", Effect.READ)
    assert not profile.admits("mail", "mail__list_all", Effect.READ)
    assert not profile.admits("github", "github__get", Effect.READ)
    assert not profile.admits("github", "github__list_issues", Effect.UNKNOWN)
    assert Profile().admits("x", "x__y", Effect.DESTRUCTIVE)
    with pytest.raises(InvalidConfig, match="is empty"):
        Profile(effects=())


def test_the_including_file_wins(tmp_path: Path):
    write(tmp_path, "[servers.a]\ncommand = 'theirs'\n[servers.b]\ncommand = 'b'", "sub/one.toml")
    write(tmp_path, '{"servers": {"b": {"command": "b"}, "c": {"command": "c"}}}', "two.json")
    text = "include = ['sub/one.toml', 'two.json', 'two.json']\n[servers.a]\ncommand = 'ours'"

    config = read_config(write(tmp_path, text))

    assert config.servers == (
        stdio("a", command="ours"),
        stdio("b", command="b"),
        stdio("c", command="c"),
    )
    assert config.notes == (
        f"{tmp_path / 'sub/one.toml'}: the including file replaces server 'a'.",
    )


def test_files_that_include_each_other_are_read_once(tmp_path: Path):
    write(tmp_path, "include = ['toolscout.toml']\n[servers.b]\ncommand = 'b'", "other.toml")
    path = write(tmp_path, "include = ['other.toml', 'toolscout.toml']")

    assert [server.name for server in read_config(path).servers] == ["b"]


def test_an_error_in_an_included_file_names_that_file(tmp_path: Path):
    other = write(tmp_path, "[servers.b]\nargs = 3", "other.toml")
    path = write(tmp_path, "include = ['other.toml']")

    with pytest.raises(InvalidConfig) as caught:
        read_config(path)

    assert str(caught.value) == f"Setting 'servers.b.args' in {other} is 3. Use a list of strings."


@pytest.mark.parametrize(
    ("other", "problem"),
    [
        ("[gateway]", "'gateway' in DIR/other.toml is not allowed in an included file"),
        (
            "include = ['./x/../other.toml']",
            "'include' in DIR/(x/../)+other.toml leads to too many",
        ),
        ("include = ['nowhere.toml']", "nowhere.toml: does not exist"),
        ("include = ['.']", "is not a file"),
        ("include = ['~nobody-has-this-name/x']", "names the home folder of an unknown user"),
        ("include = 'x'", "is a string"),
    ],
)
def test_what_cannot_be_included_is_refused(tmp_path: Path, other: str, problem: str):
    (tmp_path / "x").mkdir()
    write(tmp_path, other, "other.toml")

    with pytest.raises(UsageError, match=problem.replace("DIR", str(tmp_path))):
        read_config(write(tmp_path, "include = ['other.toml']"))


def test_more_than_a_thousand_servers_are_refused(tmp_path: Path):
    servers = {f"s{number}": {"command": "x"} for number in range(1_001)}

    with pytest.raises(InvalidConfig, match="are too many"):
        read_config(write(tmp_path, json.dumps({"mcpServers": servers})))


def test_a_file_that_is_missing_or_not_text_is_refused(tmp_path: Path):
    (tmp_path / "binary").write_bytes(b"\xff\xfe{")

    for name in ("nowhere", "binary", ".", "nul\0"):
        with pytest.raises(InvalidFile):
            read_config(tmp_path / name)


def test_importing_a_file_without_servers_gives_none(tmp_path: Path):
    assert import_servers(write(tmp_path, "model = 'm'", "config.toml")).servers == ()
    assert import_servers(write(tmp_path, '{"a": 1}', "settings.json")).servers == ()


SAFE_TEXT = st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\0"), max_size=12)
LINE = st.text(st.characters(exclude_categories=("Cs", "Cc")), min_size=1, max_size=12)
WORDS = LINE.filter(str.strip)
HEADER_NAMES = st.from_regex(r"[A-Za-z][A-Za-z0-9-]{0,8}", fullmatch=True)


def tables(values: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.dictionaries(WORDS.filter(lambda key: "=" not in key), values, max_size=3)


def names() -> st.SearchStrategy[tuple[str, ...]]:
    return st.lists(WORDS, min_size=1, max_size=3, unique=True).map(tuple)


@st.composite
def servers(draw: st.DrawFn) -> ServerConfig:
    common: dict[str, Any] = {
        "allow": draw(names()),
        "pins": draw(names()),
        "hint": draw(SAFE_TEXT),
        "effects": draw(tables(st.sampled_from(Effect))),
        "start_seconds": draw(st.floats(0.1, 3_600)),
        "concurrency": draw(st.integers(1, 1_000)),
        "lazy": draw(st.booleans()),
    }
    name = draw(WORDS)
    if draw(st.booleans()):
        args = tuple(draw(st.lists(SAFE_TEXT, max_size=3)))
        return stdio(name, args=args, env=draw(tables(SAFE_TEXT)), **common)
    return ServerConfig(
        name=name,
        transport=draw(st.sampled_from([Transport.HTTP, Transport.SSE])),
        url="https://x.example/mcp",
        headers=draw(st.dictionaries(HEADER_NAMES, LINE, max_size=2)),
        token=draw(SAFE_TEXT),
        oauth=draw(st.booleans()),
        **common,
    )


GATEWAYS = st.builds(
    GatewayConfig,
    mode=st.sampled_from(GatewayMode),
    port=st.integers(0, 65_535),
    host=SAFE_TEXT,
    profiles=tables(st.builds(Profile, servers=names(), tools=names())),
    tokens=tables(st.builds(TokenConfig, token=WORDS)),
)
SESSIONS = st.builds(
    Settings,
    limit=st.integers(1, 20),
    auto_share=st.floats(0, 100),
    pins=names(),
    routes=tables(st.builds(Route, keywords=names())),
)
CONFIGS = st.builds(
    Config,
    servers=st.lists(servers(), max_size=3, unique_by=lambda server: server.name).map(tuple),
    gateway=GATEWAYS,
    sessions=SESSIONS,
)


@given(CONFIGS)
def test_a_written_configuration_reads_back_equal(
    tmp_path_factory: pytest.TempPathFactory, config: Config
):
    path = write(tmp_path_factory.getbasetemp(), to_toml(config), "round.toml")

    assert read_config(path) == config


def test_defaults_are_not_written():
    text = to_toml(Config(servers=(stdio(env={"A": "${A}"}),)))

    assert text == (
        '[servers.mail]\ntransport = "stdio"\ncommand = "run"\n\n[servers.mail.env]\nA = "${A}"\n'
    )


@given(st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\0"), min_size=1))
def test_repr_shows_no_secret(text: str):
    secret = f"{SECRET}{text}"
    config = Config(
        servers=(
            stdio(args=("--key", secret), env={"A": secret}),
            ServerConfig(
                name="web",
                transport=Transport.HTTP,
                url=f"https://user:{SECRET}@x.example/{SECRET}?key={SECRET}",
                headers={"A": SECRET},
                token=secret,
            ),
        ),
        gateway=GatewayConfig(tokens={"ci": TokenConfig(token=secret)}),
    )

    assert SECRET not in repr(config)
    assert SECRET not in str(config.servers)


@given(st.data())
def test_errors_and_notes_show_no_secret(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
):
    value = data.draw(
        st.sampled_from(
            [
                SECRET,
                [SECRET],
                {"A": SECRET},
                {"A": [SECRET]},
                {"A": f"{SECRET}\r\n"},
                f"{SECRET}\0",
            ]
        )
    )
    keys = ["args", "env", "cwd", "url", "headers", "disabled", "oauth", "disabledTools"]
    entry = {data.draw(st.sampled_from(keys)): value, "command": "x"}
    entry[data.draw(st.sampled_from(keys))] = value
    text = json.dumps({"mcpServers": {"a": entry}})
    if data.draw(st.booleans()):
        text = text[: data.draw(st.integers(0, len(text)))]
    path = write(tmp_path_factory.getbasetemp(), text, "secret.json")

    try:
        config = read_config(path)
        told = f"{config!r} {config.notes}"
    except UsageError as error:
        told = f"{error} {error.__cause__}"

    assert SECRET not in told


@pytest.mark.parametrize("value", [f"'{SECRET}'", f"['{SECRET}']", f"{{ A = ['{SECRET}'] }}"])
@pytest.mark.parametrize("key", ["args", "env", "headers", "token", "url", "lazy", "idle_stop"])
def test_errors_about_our_own_file_show_no_secret(tmp_path: Path, key: str, value: str):
    try:
        told = repr(read_config(write(tmp_path, f"[servers.a]\ncommand = 'x'\n{key} = {value}")))
    except UsageError as error:
        told = str(error)

    assert SECRET not in told


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner),
    max_leaves=8,
)
KEYS = st.sampled_from(
    [
        *(
            "command",
            "args",
            "env",
            "cwd",
            "url",
            "headers",
            "type",
            "disabled",
            "oauth",
            "env_vars",
        ),
        *("env_http_headers", "enabled", "enabled_tools", "startup_timeout_ms", "http_headers"),
    ]
)
ENTRIES = st.dictionaries(KEYS, JSON_VALUES, max_size=4) | JSON_VALUES
PLACES = st.sampled_from(["mcpServers", "servers", "mcp", "mcp.servers", "projects", "inputs"])
FILES = st.dictionaries(
    PLACES, st.dictionaries(st.text(max_size=5), ENTRIES, max_size=3) | JSON_VALUES, max_size=3
)


@given(
    st.binary(max_size=60)
    | FILES.map(lambda value: json.dumps(value).encode())
    | JSON_VALUES.map(lambda value: json.dumps(value).encode())
    | st.text(alphabet="[]{}=\"'#,.abservers\n/*", max_size=60).map(str.encode)
)
def test_anything_in_a_file_is_read_or_refused(
    tmp_path_factory: pytest.TempPathFactory, data: bytes
):
    path = tmp_path_factory.getbasetemp() / "anything"
    path.write_bytes(data)

    try:
        assert read_config(path).source == path
    except UsageError as error:
        assert str(path) in str(error)


CODEX_KEYS = st.sampled_from(
    [
        *("command", "url", "args", "env", "headers", "http_headers", "env_http_headers"),
        *("env_vars", "startup_timeout_ms", "startup_timeout_sec", "enabled", "enabled_tools"),
        *("bearer_token_env_var", "scopes", "cwd"),
    ]
)
TOML_VALUES = st.sampled_from(
    [
        *("9" * 400, "['x', {name = 'y'}]", "{a = 'b'}"),
        "1",
        "-1.5",
        "nan",
        "inf",
        "true",
        "'x'",
        "[]",
        "[1]",
        "['x']",
        "{}",
        "{a = 1}",
        "1979-05-27",
    ]
)
TOML_KEYS = st.sampled_from(
    [
        *("servers.a.command", "servers.a.url", "servers.a.args", "servers.a.env", "servers.a"),
        *("servers.a.effects", "servers.a.idle_stop", "servers", "gateway", "gateway.tokens"),
        *("gateway.tokens.a", "gateway.profiles.a.tools", "gateway.port", "sessions", "include"),
        *("sessions.routes", "sessions.routes.a.priority", "sessions.limit", "mcp_servers.a.env"),
        *("sessions.mode", "sessions.pins", "mcp_servers", "mcp_servers.a.env_vars"),
    ]
)


@given(
    st.lists(st.tuples(TOML_KEYS, TOML_VALUES), max_size=5)
    | st.lists(st.tuples(CODEX_KEYS.map("mcp_servers.a.{}".format), TOML_VALUES), max_size=5)
)
def test_any_value_at_any_key_is_read_or_refused(
    tmp_path_factory: pytest.TempPathFactory, lines: list[tuple[str, str]]
):
    text = "\n".join(f"{key} = {value}" for key, value in lines)
    path = write(tmp_path_factory.getbasetemp(), text, "any.toml")

    try:
        assert isinstance(read_config(path), Config)
    except UsageError as error:
        assert str(error)


@pytest.mark.parametrize(
    "text",
    [
        '{"a": ' + "[" * 100_000,
        "a = " + "[" * 100_000,
        '{"mcpServers": {"a": {"command": ' + "9" * 5_000 + "}}}",
        "a = " + "9" * 5_000,
        "{" + "/*" * 200_000,
        '{"' + '\\"' * 200_000,
        "{" + "," * 200_000,
    ],
)
def test_hostile_files_are_refused_at_once(tmp_path: Path, text: str):
    with pytest.raises(InvalidFile):
        read_config(write(tmp_path, text))


@pytest.mark.parametrize("table", ["gateway", "sessions"])
def test_the_encoder_may_be_set_for_the_gateway_or_its_sessions(table: str, tmp_path: Path):
    config = read_config(tmp_path / "toolscout.toml", f'[{table}]\nencoder = "onnx"\n')

    assert config.sessions.encoder == "onnx"


@pytest.mark.parametrize("table", ["gateway", "sessions"])
def test_an_unknown_encoder_is_refused_where_it_stands(table: str, tmp_path: Path):
    with pytest.raises(InvalidConfig, match=f"'{table}.encoder' .* Use one of static, onnx, none"):
        read_config(tmp_path / "toolscout.toml", f'[{table}]\nencoder = "fast"\n')


@pytest.mark.parametrize("table", ["gateway", "sessions"])
def test_which_hints_a_search_uses_can_be_set_in_both_places(table: str, tmp_path: Path):
    config = read_config(tmp_path / "toolscout.toml", f'[{table}]\nhints = "own"\n')

    assert config.sessions.hints == "own"
    with pytest.raises(InvalidConfig, match=f"'{table}.hints' .* Use one of shipped, own, off"):
        read_config(tmp_path / "toolscout.toml", f'[{table}]\nhints = "all"\n')


@pytest.mark.parametrize(("name", "values"), [("encoder", "onnx static"), ("hints", "own off")])
def test_what_both_places_set_is_one_too_many(name: str, values: str, tmp_path: Path):
    first, second = values.split()
    text = f'[gateway]\n{name} = "{first}"\n[sessions]\n{name} = "{second}"\n'

    with pytest.raises(
        InvalidConfig, match=rf"'gateway\.{name}' .* is also set under \[sessions\]"
    ):
        read_config(tmp_path / "toolscout.toml", text)


def test_folders_of_skills_are_a_server_with_options_of_its_own(tmp_path: Path):
    file = tmp_path / "toolscout.toml"
    file.write_text(
        '[skills]\nfolders = ["mine"]\nplaces = ["claude-code"]\n'
        '[servers.skills]\nchanges = "allow"\npins = ["pdf"]\n'
        '[servers.legal]\nskills = ["~/legal"]\n'
    )

    config = read_config(file)
    servers = {server.name: server for server in config.servers}

    assert servers["skills"].transport is Transport.SKILLS
    assert servers["skills"].skills == (f"{tmp_path}/mine", "~/.claude/skills")
    assert (servers["skills"].changes, servers["skills"].pins) == ("allow", ("pdf",))
    assert servers["legal"].skills == ("~/legal",)


def test_an_unknown_place_of_skills_is_refused_with_those_that_exist(tmp_path: Path):
    file = tmp_path / "toolscout.toml"
    file.write_text('[skills]\nplaces = ["emacs"]\n')

    with pytest.raises(InvalidConfig, match=r"'skills\.places' .*'emacs'.*claude-code, codex"):
        read_config(file)


def test_without_folders_there_is_no_server_of_skills(tmp_path: Path):
    file = tmp_path / "toolscout.toml"
    file.write_text("[skills]\nlisted_tokens = 100\n")

    assert read_config(file).servers == ()
