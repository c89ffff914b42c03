"""`toolscout init`."""

import json
import stat
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from serving import MISSING, TIME
from toolscout.cli import main
from toolscout.config.file import read_config

SAMPLES = Path(__file__).parents[1] / "clients" / "samples"
SECRET = "ghp_0123456789abcdefSECRET"
CURSOR = {
    "mcpServers": {
        "github": {
            "command": "npx",
            "args": ["-y", "server-github", "--api-key", SECRET],
            "env": {"GITHUB_TOKEN": SECRET},
        },
        "web": {
            "url": f"https://web.example/mcp?key={SECRET}",
            "headers": {"Authorization": SECRET},
            "disabled": True,
        },
        "toolscout": {"command": "toolscout", "args": ["serve"]},
    }
}
NOTES = (
    "- {cursor}: server 'toolscout' is toolscout itself. It was left out.\n"
    "- servers.github.env.GITHUB_TOKEN contains a secret in plain text. "
    "Write ${{keyring:NAME}}, ${{VARIABLE}} or ${{file:PATH}} instead.\n"
    "- servers.github.args contains a secret in plain text. "
    "Write ${{keyring:NAME}}, ${{VARIABLE}} or ${{file:PATH}} instead.\n"
    "- servers.web.headers.Authorization contains a secret in plain text. "
    "Write ${{keyring:NAME}}, ${{VARIABLE}} or ${{file:PATH}} instead.\n"
    "- servers.web.url contains a secret in plain text. "
    "Write ${{keyring:NAME}}, ${{VARIABLE}} or ${{file:PATH}} instead.\n"
)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine on which nothing is installed yet."""
    for name in ("XDG_CONFIG_HOME", "XDG_CACHE_HOME", "APPDATA", "CODEX_HOME", "CLAUDE_CONFIG_DIR"):
        monkeypatch.delenv(name, raising=False)
    for name in ("HOME", "USERPROFILE"):
        monkeypatch.setenv(name, str(tmp_path / "home"))
    monkeypatch.setattr(sys, "platform", "linux")
    (tmp_path / "project").mkdir()
    monkeypatch.chdir(tmp_path / "project")
    return tmp_path / "home"


@pytest.fixture
def cursor(home: Path) -> Path:
    path = home / ".cursor" / "mcp.json"
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps(CURSOR), encoding="utf-8")
    return path


def run(*arguments: object, answer: str = "", test: bool = False) -> Result:
    """Run `toolscout init`; most servers here do not exist, so they are tested only if asked."""
    options = [*map(str, arguments), *([] if test else ["--no-test"])]
    return CliRunner().invoke(main, ["init", *options], input=answer)


def own_file(home: Path) -> Path:
    return home / ".config" / "toolscout" / "toolscout.toml"


def test_init_shows_what_it_found_and_writes_one_private_file(home: Path, cursor: Path):
    result = run("--yes", "--keep-clients")

    path = own_file(home)
    assert result.exit_code == 0, result.output
    assert result.stderr == ""
    assert result.stdout == (
        f"Cursor: {cursor}\n"
        "  github  stdio    npx -y server-github --api-key …\n"
        "  web     http     https://web.example/… (disabled)\n"
        "\nNotes:\n" + NOTES.format(cursor=cursor) + f"\nThis puts 2 servers into {path}.\n"
        f"Wrote {path}.\n"
        f"Next: toolscout serve --config {path}\n"
    )
    assert [server.name for server in read_config(path).servers] == ["github", "web"]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert read_config(path).servers[0].env == {"GITHUB_TOKEN": SECRET}
    assert [entry.name for entry in path.parent.iterdir()] == ["toolscout.toml"]


def test_nothing_that_is_printed_holds_a_secret(cursor: Path):
    for options in (["--dry-run"], ["--dry-run", "--json"], ["--yes"], ["--yes", "--force"]):
        assert SECRET not in run(*options).output


def test_json_has_the_same_facts_for_programs(home: Path, cursor: Path):
    result = json.loads(run("--yes", "--json", "--keep-clients").stdout)

    assert result == {
        "config": str(own_file(home)),
        "written": True,
        "servers": [
            {
                "name": "github",
                "transport": "stdio",
                "starts": "npx -y server-github --api-key …",
                "disabled": False,
                "program": "Cursor",
                "file": str(cursor),
                "new": True,
                "secrets": ["servers.github.env.GITHUB_TOKEN", "servers.github.args"],
            },
            {
                "name": "web",
                "transport": "http",
                "starts": "https://web.example/…",
                "disabled": True,
                "program": "Cursor",
                "file": str(cursor),
                "new": True,
                "secrets": ["servers.web.headers.Authorization", "servers.web.url"],
            },
        ],
        "notes": [line[2:] for line in NOTES.format(cursor=cursor).splitlines()],
        "keychain": [],
        "clients": [],
        "by_hand": [],
        "tests": [],
        "tokens": None,
    }


def test_a_dry_run_writes_nothing(home: Path, cursor: Path):
    result = run("--dry-run")

    assert result.exit_code == 0
    assert "github" in result.stdout
    assert not own_file(home).exists()


@pytest.mark.parametrize(("answer", "written"), [("y\n", True), ("n\n", False), ("\n", False)])
def test_a_person_is_asked_first(home: Path, cursor: Path, answer: str, written: bool):
    result = run("--keep-clients", answer=answer)

    assert result.exit_code == 0
    assert f"Write {own_file(home)}? [y/N]" in result.stderr
    assert own_file(home).exists() is written
    assert ("Nothing was written." in result.stderr) is not written


def test_without_a_terminal_yes_is_required(home: Path, cursor: Path):
    silent, as_json = run(), run("--json")

    assert (silent.exit_code, as_json.exit_code) == (2, 2)
    assert "Not a terminal: pass --yes to confirm." in silent.stderr
    assert "--json cannot ask questions: add --yes or --dry-run." in as_json.stderr
    assert not own_file(home).exists()


def test_running_it_again_adds_only_what_is_new_and_keeps_every_edit(home: Path, cursor: Path):
    run("--yes", "--keep-clients")
    path = own_file(home)
    edited = (
        "# mine\n[gateway]\nport = 9000 # not the usual one\n\n"
        "[servers.hub] # was github\ncommand = 'npx'\n"
        "args = ['-y', 'server-github', '--api-key', '${KEY}']\nhint = 'issues'\n\n"
        "[servers.web]\nurl = 'https://web.example/mcp?key=${KEY}'\n"
    )
    path.write_text(edited, encoding="utf-8")
    servers = {**CURSOR["mcpServers"], "new": {"command": "new"}}
    cursor.write_text(json.dumps({"mcpServers": servers}), encoding="utf-8")

    again = run("--yes", "--keep-clients")

    assert again.exit_code == 0, again.output
    assert f"\nThis adds 1 server to {path}.\n" in again.stdout
    assert path.read_text(encoding="utf-8") == edited + (
        '\n[servers.new]\ntransport = "stdio"\ncommand = "new"\n'
    )
    backup = path.with_name("toolscout.toml.bak")
    assert backup.read_text(encoding="utf-8") == edited
    assert stat.S_IMODE(backup.stat().st_mode) == 0o600


@pytest.mark.parametrize("options", [["--yes"], ["--yes", "--force"]])
def test_twenty_servers_stay_twenty_however_often_it_runs(home: Path, options: list[str]):
    servers = {
        f"s{number}": {"command": "npx", "args": [f"s{number}"], "env": {"K": f"k{number}"}}
        for number in range(20)
    }
    path = home / ".cursor" / "mcp.json"
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps({"mcpServers": servers}), encoding="utf-8")
    run("--yes")
    own = own_file(home)
    edited = own.read_text(encoding="utf-8").replace('K = "k', 'OTHER = "k').replace("s.s1", "s.b1")
    own.write_text(edited, encoding="utf-8")
    assert run("--undo", "--yes").exit_code == 0

    again = run(*options)

    assert again.exit_code == 0, again.output
    assert own.read_text(encoding="utf-8") == edited
    assert len(read_config(own).servers) == 20
    assert list(json.loads(path.read_text(encoding="utf-8"))["mcpServers"]) == ["toolscout"]


@pytest.mark.usefixtures("cursor")
def test_a_file_that_cannot_be_read_is_replaced_only_by_force_and_backed_up(home: Path):
    path = own_file(home)
    path.parent.mkdir(parents=True)
    path.write_text("[gateway\n", encoding="utf-8")

    refused, forced = run("--yes"), run("--yes", "--force")

    assert refused.exit_code == 2
    assert refused.stderr.startswith(f"Error: {path}, line 1, column 9: is not TOML. ")
    assert refused.stderr.endswith(
        "Or use --force to overwrite the file; the old one is kept as toolscout.toml.bak.\n"
    )
    assert forced.exit_code == 0
    assert [server.name for server in read_config(path).servers] == ["github", "web"]
    assert path.with_name("toolscout.toml.bak").read_text(encoding="utf-8") == "[gateway\n"


def test_another_programs_file_is_not_the_file_to_write(cursor: Path):
    before = cursor.read_bytes()

    for options in (["--yes"], ["--yes", "--force"]):
        result = run(*options, "--config", cursor)

        assert result.exit_code == 2
        assert "belongs to another program" in result.stderr
        assert "--force" not in result.stderr
        assert cursor.read_bytes() == before


def test_named_files_are_read_in_place_of_the_known_ones(cursor: Path, tmp_path: Path):
    Path("mine.json").write_text('{"servers": {"a": {"command": "run"}}}', encoding="utf-8")

    result = run("--from", "mine.json", "--config", tmp_path / "new" / "x.toml", "--yes")

    assert result.exit_code == 0, result.output
    assert result.stdout.startswith(f"Named: {Path('mine.json').absolute()}\n  a  stdio    run\n")
    assert [server.name for server in read_config(tmp_path / "new" / "x.toml").servers] == ["a"]


def test_folders_are_created_for_the_file_to_write(cursor: Path):
    result = run("--yes", "--keep-clients", "--config", "new/folder/toolscout.toml")

    assert result.exit_code == 0, result.output
    assert len(read_config("new/folder/toolscout.toml").servers) == 2


def test_a_named_file_that_cannot_be_read_is_an_error(home: Path):
    Path("mine.json").write_text('{"servers": ', encoding="utf-8")

    result = run("--from", "mine.json", "--yes")

    assert result.exit_code == 2
    assert "mine.json, line 1, column 13: is not JSON." in result.stderr


@pytest.mark.parametrize("options", [["--yes"], [], ["--yes", "--json"]])
def test_a_machine_without_servers_is_exit_code_3(home: Path, options: list[str]):
    result = run(*options)

    assert result.exit_code == 3
    assert result.stderr == (
        "Error: No MCP servers found. Add one with `toolscout servers add`, or name a file that "
        "lists some with --from PATH.\n"
    )
    assert not own_file(home).exists()


def test_names_that_steer_a_terminal_are_shown_without_their_power(home: Path):
    servers = {"a": {"command": "\x1b[31mred", "\x1b]0;x": 1, "args": ["b\nc"]}}
    Path(".mcp.json").write_text(json.dumps({"mcpServers": servers}), encoding="utf-8")

    result = run("--dry-run", "--project")

    assert "\x1b" not in result.output
    assert "  a  stdio    [31mred b c\n" in result.stdout


def test_a_file_that_cannot_be_written_is_named(cursor: Path, tmp_path: Path):
    (tmp_path / "plain").write_text("x", encoding="utf-8")

    result = run("--config", tmp_path / "plain" / "x.toml", "--yes")

    assert result.exit_code == 2
    assert f"Error: {tmp_path / 'plain' / 'x.toml'}: cannot be written" in result.stderr


@pytest.mark.skipif(sys.platform == "win32", reason="links need a privilege there")
def test_a_link_is_written_through(cursor: Path, tmp_path: Path):
    real, link = tmp_path / "real.toml", tmp_path / "link.toml"
    real.write_text("", encoding="utf-8")
    link.symlink_to(real)

    assert run("--config", link, "--yes", "--force").exit_code == 0
    assert link.is_symlink()
    assert len(read_config(real).servers) == 2


def test_the_servers_of_a_client_go_behind_toolscout_and_come_back(home: Path, cursor: Path):
    before = cursor.read_bytes()

    done = run("--yes")
    entry = json.loads(cursor.read_text(encoding="utf-8"))["mcpServers"]

    assert done.exit_code == 0, done.output
    assert list(entry) == ["toolscout"]
    assert entry["toolscout"]["args"][-2:] == ["--config", str(own_file(home))]
    assert "Next: restart Cursor. `toolscout init --undo` restores the old files.\n" in done.stdout
    assert SECRET not in done.output

    undone = run("--undo", "--yes")

    assert undone.exit_code == 0, undone.output
    assert SECRET not in undone.output
    assert undone.stdout.endswith(
        f"{own_file(home)} stays, with the secrets that were copied into it. "
        f"To delete it: rm {own_file(home)}\n"
    )
    assert cursor.read_bytes() == before
    assert own_file(home).exists()
    assert [path.name for path in cursor.parent.iterdir()] == ["mcp.json"]


def test_a_second_run_finds_nothing_to_change(home: Path, cursor: Path):
    run("--yes")
    first = cursor.read_bytes(), own_file(home).read_bytes()

    second = run("--yes")

    assert second.exit_code == 0, second.output
    assert second.stdout.endswith("Nothing to change.\n")
    assert (cursor.read_bytes(), own_file(home).read_bytes()) == first


def test_having_nothing_to_undo_is_reported_and_is_no_failure(home: Path, cursor: Path):
    result = run("--undo")

    assert result.exit_code == 0
    assert result.stdout.startswith("Nothing to undo")


def test_only_the_client_that_is_named_is_changed(cursor: Path, desktop: Path):
    desktop.write_text('{"mcpServers": {"x": {"command": "x"}}}', encoding="utf-8")
    before = cursor.read_bytes()

    told = json.loads(run("--yes", "--json", "--client", "claude-desktop").stdout)

    assert [client["program"] for client in told["clients"]] == ["Claude Desktop"]
    assert (told["clients"][0]["taken"], told["clients"][0]["changed"]) == (["x"], True)
    assert Path(told["clients"][0]["backup"]).exists()
    assert cursor.read_bytes() == before


@pytest.fixture
def desktop(home: Path) -> Path:
    path = home / ".config" / "Claude" / "claude_desktop_config.json"
    path.parent.mkdir(parents=True)
    servers = {"files": {"command": "files"}, "odd [1]": {"command": "odd"}}
    path.write_text(json.dumps({"mcpServers": servers}), encoding="utf-8")
    return path


def test_a_client_starts_toolscout_by_uvx_if_uvx_has_run_init(
    home: Path, cursor: Path, monkeypatch: pytest.MonkeyPatch
):
    """The cache in which uvx keeps toolscout may be emptied."""
    uvx = home / "bin" / "uvx"
    uvx.parent.mkdir()
    uvx.touch(mode=0o755)
    monkeypatch.setenv("PATH", str(uvx.parent))
    monkeypatch.setattr(sys, "prefix", str(home / ".cache/uv/archive-v0/abc"))

    assert run("--yes").exit_code == 0

    entry = json.loads(cursor.read_text("utf-8"))["mcpServers"]["toolscout"]
    starts = ["--from", "toolscout[gateway]", "toolscout", "serve", "--config"]
    assert entry == {"command": str(uvx), "args": [*starts, str(own_file(home))]}


def test_it_says_which_servers_a_client_gets_in_addition(cursor: Path, desktop: Path):
    result = run("--dry-run")

    assert (
        "\nCursor can then also use 2 servers that it did not have: files, odd [1].\n"
        in result.stdout
    )
    assert (
        "\nClaude Desktop can then also use 1 server that it did not have: github.\n"
        in result.stdout
    )
    assert "To keep each client to the servers that it has now, add --profiles.\n" in result.stdout


def test_profiles_keep_each_client_to_the_servers_it_had(home: Path, cursor: Path, desktop: Path):
    result = run("--yes", "--profiles")

    assert result.exit_code == 0, result.output
    assert "did not have" not in result.stdout
    assert "Its profile 'cursor' admits github, web.\n" in result.stdout
    profiles = read_config(own_file(home)).gateway.profiles
    assert {name: profile.servers for name, profile in profiles.items()} == {
        "claude-desktop": ("files", "odd [[]1]"),
        "cursor": ("github", "web"),
    }
    entry = json.loads(cursor.read_text(encoding="utf-8"))["mcpServers"]["toolscout"]
    assert entry["args"][-2:] == ["--profile", "cursor"]


def test_a_profile_can_be_had_later_and_names_what_was_moved_before(
    home: Path, cursor: Path, desktop: Path
):
    run("--yes")
    tables = json.loads(cursor.read_text(encoding="utf-8"))
    tables["mcpServers"]["new"] = {"command": "new"}
    cursor.write_text(json.dumps(tables), encoding="utf-8")

    result = run("--yes", "--profiles")

    assert result.exit_code == 0, result.output
    profiles = read_config(own_file(home)).gateway.profiles
    assert profiles["cursor"].servers == ("github", "web", "new")
    assert profiles["claude-desktop"].servers == ("files", "odd [[]1]")
    for path, name in ((cursor, "cursor"), (desktop, "claude-desktop")):
        entry = json.loads(path.read_text(encoding="utf-8"))["mcpServers"]["toolscout"]
        assert entry["args"][-2:] == ["--profile", name]


def test_the_file_of_a_yaml_client_is_read_and_its_change_is_shown(home: Path):
    path = home / ".config" / "goose" / "config.yaml"
    path.parent.mkdir(parents=True)
    path.write_bytes((SAMPLES / "goose.yaml").read_bytes())

    result = run("--yes", "--profiles")
    told = json.loads(run("--yes", "--json", "--client", "goose").stdout)

    assert result.exit_code == 0, result.output
    assert [server.name for server in read_config(own_file(home)).servers] == ["github", "remote"]
    assert f"Under 'extensions' in {path}, remove github, remote and add:\n" in result.stdout
    assert f'args: ["serve", "--config", "{own_file(home)}", "--profile", "goose"]' in result.stdout
    assert path.read_bytes() == (SAMPLES / "goose.yaml").read_bytes()
    assert told["by_hand"][0]["program"] == "Goose"


def test_a_profile_grows_with_the_servers_of_its_client(home: Path, cursor: Path, desktop: Path):
    run("--yes", "--profiles")
    tables = json.loads(cursor.read_text(encoding="utf-8"))
    tables["mcpServers"]["new"] = {"command": "new"}
    cursor.write_text(json.dumps(tables), encoding="utf-8")

    result = run("--yes")

    assert result.exit_code == 0, result.output
    profiles = read_config(own_file(home)).gateway.profiles
    assert profiles["cursor"].servers == ("github", "web", "new")
    assert profiles["claude-desktop"].servers == ("files", "odd [[]1]")
    entry = json.loads(cursor.read_text(encoding="utf-8"))["mcpServers"]["toolscout"]
    assert entry["args"][-2:] == ["--profile", "cursor"]


@pytest.mark.processes
def test_the_new_servers_are_tested_and_their_tokens_counted(home: Path):
    servers = {
        "time": {"command": TIME.command, "args": list(TIME.args)},
        "git": {"command": sys.executable, "args": ["-m", "mcp_server_git"]},
        "bad": {"command": MISSING.command},
        "off": {"command": "off", "disabled": True},
    }
    path = home / ".cursor" / "mcp.json"
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps({"mcpServers": servers}), encoding="utf-8")

    result = run("--yes", test=True)

    assert result.exit_code == 0, result.output
    tested = result.stdout.partition("Testing 3 servers; skip this with --no-test.\n")[2]
    lines = tested.splitlines()
    assert sorted(line.split("(")[0].rstrip() for line in lines[:3])[1:] == [
        "git   ok      12 tools",
        "time  ok      2 tools",
    ]
    assert any(line.startswith("bad   failed  ") for line in lines[:3])
    assert "2 of 3 servers answered. When you have fixed the others, run " in tested
    assert "`toolscout servers test bad`.\n" in tested
    assert "All 14 definitions of 2 servers" in tested
    assert "With toolscout, in every request" in tested
    assert lines[-1].startswith("Next: restart Cursor.")


@pytest.mark.processes
def test_json_has_the_results_of_the_tests(home: Path):
    servers = {"time": {"command": TIME.command, "args": list(TIME.args)}}
    Path("mine.json").write_text(json.dumps({"mcpServers": servers}), encoding="utf-8")

    told = json.loads(run("--from", "mine.json", "--yes", "--json", test=True).stdout)

    [trial] = told["tests"]
    assert (trial["name"], trial["ok"], trial["counts"]) == ("time", True, {"tool": 2})
    assert told["tokens"]["tools"] == 2
    assert told["tokens"]["definitions"] > 0


def test_a_second_run_tests_nothing(home: Path, cursor: Path):
    run("--yes")

    assert "Testing" not in run("--yes", test=True).stdout


def test_a_client_that_is_not_installed_is_a_mistake_with_a_remedy(cursor: Path):
    result = run("--yes", "--client", "codex")

    assert result.exit_code == 2
    assert "Codex has no configuration file of yours. Start it once" in result.stderr


def test_files_that_others_share_change_only_when_asked_for(home: Path):
    shared = Path(".mcp.json").absolute()
    text = '{"mcpServers": {"x": {"command": "x"}}}'
    shared.write_text(text, encoding="utf-8")

    careful = run("--yes")
    assert shared.read_text(encoding="utf-8") == text
    assert f"{shared}: 1 server for this project not moved. Add --project" in careful.stdout
    assert not own_file(home).exists()

    assert run("--yes", "--project").exit_code == 0
    assert list(json.loads(shared.read_text(encoding="utf-8"))["mcpServers"]) == ["toolscout"]
    assert run("--undo", "--yes", "--project").exit_code == 0
    assert shared.read_text(encoding="utf-8") == text


def test_a_dry_run_shows_the_diff_and_leaves_the_client_alone(home: Path, cursor: Path):
    before = cursor.read_bytes()

    result = run("--dry-run")

    assert '-    "github": {' in result.stdout
    assert '+      "args": ["serve", "--config", ' in result.stdout
    assert cursor.read_bytes() == before
    assert [path.name for path in cursor.parent.iterdir()] == ["mcp.json"]


def test_an_undo_that_would_lose_something_is_refused_with_the_diff(cursor: Path):
    run("--yes")
    later = {"mcpServers": {"github": {"command": "mine"}, "toolscout": {"command": "toolscout"}}}
    cursor.write_text(json.dumps(later), encoding="utf-8")

    refused = run("--undo", "--yes")

    assert refused.exit_code == 2
    assert '-      "command": "mine"' in refused.stdout
    assert "would undo that: github. Merge it by hand with " in refused.stderr
    assert json.loads(cursor.read_text(encoding="utf-8")) == later
    assert SECRET not in refused.output

    assert run("--undo", "--yes", "--force").exit_code == 0
    assert json.loads(cursor.read_text(encoding="utf-8")) == CURSOR


def test_a_client_is_never_changed_without_the_file_that_it_would_need(home: Path, cursor: Path):
    before = cursor.read_bytes()

    result = run(answer="n\n")

    assert result.exit_code == 0
    assert not own_file(home).exists()
    assert cursor.read_bytes() == before
