"""`toolscout servers`: listing, trying, adding and removing."""

import json
import re
import stat
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from serving import TIME
from toolscout.cli import main
from toolscout.config.file import read_config

SECRET = "ghp_0123456789abcdefSECRET"
PYTHON = json.dumps(sys.executable)
CONFIG = f"""\
include = ["mcp.json"]

[gateway]
cache = "cache/gateway.db"

[servers.time]
command = {PYTHON}
args = {json.dumps(TIME.args)}
deny = ["convert_*"]

[servers.missing]
command = "toolscout-test-no-such-command"
env = {{ API_KEY = "{SECRET}" }}

[servers.unset]
url = "https://${{TOOLSCOUT_TEST_UNSET}}/mcp"
oauth = true

[servers.off]
command = "off"
disabled = true
"""
IMPORTED = {
    "mcpServers": {
        "web": {
            "url": f"https://web.example/mcp?key={SECRET}",
            "headers": {"Authorization": SECRET},
        }
    }
}


@pytest.fixture
def folder(home: Path) -> Path:
    return home


@pytest.fixture
def config(folder: Path) -> Path:
    (folder / "mcp.json").write_text(json.dumps(IMPORTED))
    path = folder / "toolscout.toml"
    path.write_text(CONFIG)
    return path


def run(*arguments: object) -> Result:
    return CliRunner().invoke(main, ["servers", *map(str, arguments)])


def test_all_servers_are_listed_without_starting_one_or_showing_a_secret(config: Path):
    result = run("list")

    own, other = config, config.with_name("mcp.json")
    assert result.stdout == (
        "server   transport  state     tools  login   configured in\n"
        f"time     stdio      unknown   -      none    {own}\n"
        f"missing  stdio      unknown   -      none    {own}\n"
        f"unset    http       unknown   -      needed  {own}\n"
        f"off      stdio      disabled  -      none    {own}\n"
        f"web      http       unknown   -      token   {other}\n"
    )
    assert not (config.parent / "cache").exists()


def test_a_list_for_programs_says_the_same(config: Path):
    result = run("list", "--json")

    told = json.loads(result.stdout)
    assert SECRET not in result.stdout
    assert told["config"] == str(config)
    assert [row["name"] for row in told["servers"]] == ["time", "missing", "unset", "off", "web"]
    assert told["servers"][4] == {
        "name": "web",
        "transport": "http",
        "starts": "https://web.example/…",
        "state": "unknown",
        "tools": None,
        "login": "token",
        "file": str(config.with_name("mcp.json")),
    }


def test_a_server_that_works_is_ok_and_known_from_then_on(config: Path):
    result = run("test", "time")

    assert result.exit_code == 0, result.output
    assert re.fullmatch(r"time  ok      1 tool \(\d+\.\d s\)\n", result.stdout)
    assert re.search(r"^time +stdio +known +1 ", run("list").stdout, re.MULTILINE)


def test_failing_servers_are_reported_with_a_remedy(config: Path):
    result = run("test", "missing", "time", "unset")

    missing, time, unset = sorted(result.stdout.splitlines())
    assert result.exit_code == 1
    assert missing == (
        "missing  failed  Its command or folder was not found. "
        "Install toolscout-test-no-such-command, or name another command."
    )
    assert time.startswith("time     ok      1 tool")
    assert "'TOOLSCOUT_TEST_UNSET', which is not set. Set TOOLSCOUT_TEST_UNSET" in unset


@pytest.mark.skipif(sys.platform == "win32", reason="runs a shell script")
def test_a_test_says_that_a_server_may_still_be_installed(
    config: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("toolscout.cli.inputs.PATIENT_SECONDS", 0.1)
    npx = config.with_name("npx")
    npx.write_text("#!/bin/sh\nsleep 1\necho 'npm error code E404' >&2\nexit 1\n")
    npx.chmod(0o755)
    config.write_text(f"[servers.new]\ncommand = {json.dumps(str(npx))}\n")

    result = run("test", "new")

    waiting = "new: npx may still be installing it; waiting up to 600 s.\n"
    assert result.stderr == waiting
    assert result.stdout == (
        "new  failed  It ended with code 1: its package was not found. "
        "Check the name of the package in its `args`.\n"
        "     npm error code E404\n"
    )


@pytest.mark.skipif(sys.platform == "win32", reason="runs a shell script")
def test_a_server_that_has_answered_before_is_not_said_to_be_installing(
    config: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("toolscout.cli.inputs.PATIENT_SECONDS", 0.1)
    npx = config.with_name("npx")
    npx.write_text(f"#!/bin/sh\nsleep 1\nexec {PYTHON} {TIME.args[0]}\n")
    npx.chmod(0o755)
    config.write_text(f"[servers.time]\ncommand = {json.dumps(str(npx))}\n")

    first = run("test", "time")
    second = run("test", "time")

    assert (first.exit_code, second.exit_code) == (0, 0)
    assert "may still be installing" in first.stderr
    assert second.stderr == ""


def test_without_names_all_that_are_not_disabled_are_tried(config: Path):
    config.write_text("[servers.off]\ncommand = 'off'\ndisabled = true\n")

    assert (run("test").exit_code, run("test").stdout) == (0, "")
    assert run("test", "off").exit_code == 1


def test_a_trial_for_programs_says_the_same(config: Path):
    result = run("test", "time", "missing", "--json")

    time, missing = json.loads(result.stdout)["servers"]
    assert result.exit_code == 1
    assert (time["ok"], time["counts"], time["problem"]) == (True, {"tool": 1}, "")
    assert (missing["ok"], missing["counts"]) == (False, {})
    assert missing["remedy"].startswith("Install")


def test_what_a_server_wrote_before_it_failed_is_shown_without_its_secrets(folder: Path):
    code = "import os, sys; print('bad', os.environ['KEY'], file=sys.stderr); sys.exit(3)"
    (folder / "toolscout.toml").write_text(
        f"[servers.a]\ncommand = {PYTHON}\nargs = ['-c', \"{code}\"]\n"
        f"env = {{ KEY = '{SECRET}' }}\n"
    )

    result = run("test")

    assert result.exit_code == 1
    assert "bad …" in result.stdout
    assert SECRET not in result.output


@pytest.mark.parametrize("command", ["login", "logout", "test"])
def test_a_server_that_does_not_exist_is_exit_code_3_with_near_names(config: Path, command: str):
    near, far = run(command, "tme"), run(command, "zzzzzzzz")

    assert (near.exit_code, far.exit_code) == (3, 3)
    assert near.stderr == "Error: There is no server 'tme'. Near: time.\n"
    assert far.stderr == ("Error: There is no server 'zzzzzzzz'. See `toolscout servers list`.\n")


def test_without_a_file_the_next_command_is_named(folder: Path):
    result = run("list")

    assert result.exit_code == 2
    assert "does not exist. Run `toolscout init` or `toolscout servers add`" in result.stderr


def test_a_file_without_servers_says_how_to_get_some(folder: Path):
    (folder / "toolscout.toml").write_text("")

    assert run("list").stdout == (
        "No servers. Add some with `toolscout init` or `toolscout servers add`.\n"
    )


def test_servers_are_added_to_a_new_file_that_its_owner_alone_may_read(folder: Path):
    first = run("add", "time", "--command", "uvx", "mcp-server-time")
    second = run(
        *("add", "git hub", "--command", "npx", "--env", "GITHUB_TOKEN=${GITHUB_TOKEN}"),
        *("--env", "LEVEL=debug", "--", "-y", "server-github"),
    )
    third = run(
        *("add", "web", "--url", "https://web.example/sse", "--sse", "--oauth"),
        *("--header", "X-Key=${file:key.txt}"),
    )

    path = folder / "toolscout.toml"
    time, github, web = read_config(path).servers
    assert first.stdout == f"Added 'time' to {path}.\nNext: toolscout servers test time\n"
    assert second.stdout.endswith("Next: toolscout servers test 'git hub'\n")
    assert third.stdout.endswith("Next: toolscout servers login web\n")
    assert (time.command, time.args) == ("uvx", ("mcp-server-time",))
    assert github.args == ("-y", "server-github")
    assert github.env == {"GITHUB_TOKEN": "${GITHUB_TOKEN}", "LEVEL": "debug"}
    assert (web.transport, web.oauth) == ("sse", True)
    assert 'X-Key = "${file:key.txt}"' in path.read_text()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


@pytest.mark.parametrize(
    ("options", "key"),
    [
        (["--command", "x", "--env", f"API_KEY={SECRET}"], "servers.new.env.API_KEY"),
        (["--url", "https://a.example", "--header", f"Authorization=Bearer {SECRET}"], "headers"),
        (["--command", "x", "--", "--token", SECRET], "servers.new.args"),
        (["--url", f"https://a.example/?token={SECRET}"], "servers.new.url"),
    ],
)
def test_a_secret_in_plain_text_is_refused_and_not_repeated(
    config: Path, options: list[str], key: str
):
    result = run("add", "new", *options)

    assert result.exit_code == 2
    assert key in result.stderr
    assert "Write ${VARIABLE} or ${file:PATH} instead" in result.stderr
    assert SECRET not in result.output
    assert config.read_text() == CONFIG


@pytest.mark.parametrize(
    "options",
    [
        [],
        ["--command", "x", "--url", "https://a.example"],
        ["--command", "x", "--env", "NO_VALUE"],
        ["--command", "x", "--oauth"],
        ["--url", "no address"],
        ["--url", "https://a.example", "an argument"],
    ],
)
def test_a_server_that_makes_no_sense_is_not_written(config: Path, options: list[str]):
    assert run("add", "new", *options).exit_code == 2
    assert config.read_text() == CONFIG


def test_a_taken_name_is_not_written_over(config: Path):
    result = run("add", "time", "--command", "other")

    assert result.exit_code == 2
    assert "exists already" in result.stderr
    assert config.read_text() == CONFIG


def test_a_removed_server_leaves_the_rest_and_a_copy(config: Path):
    result = run("remove", "missing")

    assert result.stdout == f"Removed 'missing' from {config}.\n"
    begin, end = CONFIG.index("[servers.missing]"), CONFIG.index("[servers.unset]")
    assert config.read_text() == CONFIG[:begin] + CONFIG[end:]
    assert config.with_name("toolscout.toml.bak").read_text() == CONFIG


def test_a_server_of_another_program_is_removed_there(config: Path):
    included = run("remove", "web")
    directly = run("remove", "web", "--config", config.with_name("mcp.json"))
    added = run("add", "new", "--command", "x", "--config", config.with_name("mcp.json"))

    assert (included.exit_code, directly.exit_code, added.exit_code) == (2, 2, 2)
    assert f"is in {config.with_name('mcp.json')}" in included.stderr
    assert (
        "belongs to another program, so toolscout reads it but does not write it" in directly.stderr
    )
    assert "name toolscout's own file with --config" in added.stderr
    assert json.loads(config.with_name("mcp.json").read_text()) == IMPORTED


def test_each_result_is_printed_as_soon_as_it_is_known(config: Path):
    result = run("test", "time", "missing")

    order = [
        line.split()[0]
        for line in result.stdout.splitlines()
        if "  ok  " in line or "failed" in line
    ]
    assert order == ["missing", "time"]  # what cannot be started is known at once
