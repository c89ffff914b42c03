"""`toolscout doctor`, on machines that are in order and on others."""

import json
import os
import socket
import sqlite3
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from serving import TIME, served
from toolscout.cli import main
from toolscout.config.file import read_config

PYTHON = f"command = {json.dumps(sys.executable)}"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine on which toolscout is installed and nothing is configured."""
    for name in ("XDG_CONFIG_HOME", "XDG_CACHE_HOME", "APPDATA", "CODEX_HOME", "CLAUDE_CONFIG_DIR"):
        monkeypatch.delenv(name, raising=False)
    for name in ("HOME", "USERPROFILE"):
        monkeypatch.setenv(name, str(tmp_path / "home"))
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:/usr/bin:/bin")
    monkeypatch.setattr(sys, "platform", "linux")
    (tmp_path / "home" / ".cache" / "toolscout").mkdir(parents=True)
    (tmp_path / "project").mkdir()
    monkeypatch.chdir(tmp_path / "project")
    return tmp_path / "home"


def run(*arguments: object) -> Result:
    return CliRunner().invoke(main, ["doctor", *map(str, arguments)])


def checked(name: str, *arguments: object) -> tuple[str, str, str]:
    """Return state, text and remedy of what is worst under a name."""
    result = run("--json", *arguments)
    told = json.loads(result.stdout)
    order = ("fail", "warn", "ok")
    rows: list[dict[str, Any]] = [row for row in told["checks"] if row["name"] == name]
    worst = min(rows, key=lambda row: order.index(row["state"]))
    states = [row["state"] for row in told["checks"]]
    assert told["ok"] is ("fail" not in states)
    assert result.exit_code == (1 if "fail" in states else 0)
    return worst["state"], worst["text"], worst["remedy"]


def configure(text: str, port: int = 0) -> Path:
    path = Path.home() / ".config" / "toolscout" / "toolscout.toml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"[gateway]\nport = {port}\n{text}", encoding="utf-8")
    path.chmod(0o600)
    return path


def test_a_machine_in_order_is_all_ok_with_exit_code_0(home: Path):
    configure(f"[servers.a]\n{PYTHON}\n")

    result = run()

    assert result.exit_code == 0
    states = [line.split()[0] for line in result.stdout.splitlines()[:-2]]
    assert set(states) == {"ok"}
    assert f"ok    server a: starts {sys.executable}\n" in result.stdout
    assert result.stdout.endswith(f"\n{len(states)} checks: 0 warnings, 0 failed.\n")
    assert "\x1b" not in result.stdout


def test_without_a_configuration_it_names_init(home: Path):
    state, text, remedy = checked("configuration")

    assert (state, remedy) == ("warn", "toolscout init")
    assert text == f"{home / '.config' / 'toolscout' / 'toolscout.toml'} does not exist."


def test_a_configuration_that_cannot_be_read_fails(home: Path):
    configure("[servers.a]\ncomand = 'x'\n")

    state, text, _ = checked("configuration")

    assert state == "fail"
    assert "'servers.a.comand'" in text


@pytest.mark.skipif(os.name == "nt", reason="modes say nothing there")
def test_secrets_that_others_may_read_fail_with_the_command(home: Path):
    path = configure(f"[servers.a]\n{PYTHON}\nenv = {{ API_KEY = 'hunter2' }}\n")
    path.chmod(0o644)

    assert checked("configuration") == (
        "fail",
        f"Others can read {path}, which contains secrets in plain text.",
        f"chmod 600 {path}",
    )
    assert "hunter2" not in run().output


@pytest.mark.parametrize(
    ("table", "text", "remedy"),
    [
        (
            "command = 'no-such-program'",
            "Its command 'no-such-program' was not found.",
            "Install no-such-program, or change its 'command'.",
        ),
        (
            f"{PYTHON}\ncwd = '/no/such/folder'",
            "Its folder /no/such/folder does not exist.",
            "Change its 'cwd'.",
        ),
        (
            f"{PYTHON}\nenv = {{ K = '${{NOT_SET_ANYWHERE}}' }}",
            "Setting 'servers.a.env.K' refers to the variable 'NOT_SET_ANYWHERE', "
            "which is not set.",
            "Set NOT_SET_ANYWHERE, or write ${NOT_SET_ANYWHERE:-default}.",
        ),
    ],
)
def test_a_server_that_cannot_start_fails(home: Path, table: str, text: str, remedy: str):
    configure(f"[servers.a]\n{table}\n")

    assert checked("server a") == ("fail", text, remedy)


# Isolation

DOCKER = "isolate = 'docker'\nimage = 'node:22'"


def install(home: Path, name: str, script: str) -> None:
    """Put a program into the only folder where this machine looks for programs."""
    program = home / "bin" / name
    program.parent.mkdir(exist_ok=True)
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    os.environ["PATH"] = str(program.parent)


def test_isolation_that_is_not_installed_fails_with_what_to_install(home: Path):
    install(home, "docker", "exit 0")
    configure(f"[servers.a]\n{PYTHON}\nisolate = 'bwrap'\n[servers.b]\n{PYTHON}\n{DOCKER}\n")

    state, text, remedy = checked("server a")

    assert (state, text) == ("fail", "'isolate' cannot be followed: bwrap is not installed.")
    assert "apt install bubblewrap" in remedy
    assert checked("server b") == ("ok", f"starts {sys.executable} in docker", "")


def test_a_container_program_that_does_not_work_fails_with_what_it_said(home: Path):
    install(home, "docker", "echo no permission >&2; exit 1")
    configure(f"[servers.a]\n{PYTHON}\n{DOCKER}\n")

    state, text, remedy = checked("server a")

    assert state == "fail"
    assert "no permission" in text
    assert remedy == "Start Docker, and check that you may use it."


def test_a_folder_that_does_not_exist_fails_with_its_path(home: Path):
    install(home, "bwrap", "exit 0")
    configure(f"[servers.a]\n{PYTHON}\nisolate = 'bwrap'\nfolders = ['/no/such/folder']\n")

    state, text, _ = checked("server a")

    assert state == "fail"
    assert text == ("'folders' cannot be followed: one of them does not exist (/no/such/folder).")


def test_a_machine_that_cannot_take_privileges_away_is_told(home: Path):
    install(home, "nothing", "exit 0")
    configure(f"[servers.a]\n{PYTHON}\n")

    state, text, remedy = checked("privileges")

    assert state == "warn"
    assert "setpriv is not installed" in text
    assert remedy == "Install util-linux."


@pytest.mark.parametrize(
    ("system", "table", "text"),
    [
        ("darwin", "isolate = 'bwrap'", "'isolate' cannot be followed: bubblewrap exists only for"),
        ("darwin", "limits = { memory_mb = 100 }", "'limits' cannot be followed: this system"),
        ("win32", DOCKER, "'isolate' cannot be followed: toolscout cannot do this on Windows"),
    ],
)
def test_isolation_that_a_system_does_not_have_fails(
    home: Path, monkeypatch: pytest.MonkeyPatch, system: str, table: str, text: str
):
    install(home, "docker", "exit 0")
    path = configure(f"[servers.a]\n{PYTHON}\n{table}\n")

    def find(name: str, **options: object) -> str:
        return str(home / "bin" / "docker")

    monkeypatch.setattr(sys, "platform", system)
    monkeypatch.setattr("shutil.which", find)  # which asks Windows from Python 3.12 on
    monkeypatch.setattr("toolscout.servers.isolation.IS_LINUX", False)

    state, told, remedy = checked("server a", "--config", path)

    assert state == "fail"
    assert told.startswith(text)
    assert remedy


# Effects

READING = "[gateway.profiles.readers]\neffects = ['read']\n"


def test_a_profile_that_sees_nothing_of_a_server_is_told_with_what_to_do(home: Path):
    configure(f"{READING}[servers.a]\n{PYTHON}\n[servers.b]\n{PYTHON}\n")

    state, text, remedy = checked("profiles")

    assert state == "warn"
    assert text.startswith("Profile 'readers' sees no tools of a, b, because")
    assert "'trust_effects = true'" in remedy


@pytest.mark.parametrize(
    "text",
    [
        f"{READING}[servers.a]\n{PYTHON}\ntrust_effects = true\n",
        f"{READING}[servers.a]\n{PYTHON}\neffects = {{ get_x = 'read' }}\n",
        f"{READING}servers = ['b']\n[servers.a]\n{PYTHON}\n",
        f"{READING}[servers.a]\n{PYTHON}\ndisabled = true\n",
        f"[gateway.profiles.all]\n[servers.a]\n{PYTHON}\n",
    ],
)
def test_a_profile_that_sees_tools_is_not_mentioned(home: Path, text: str):
    configure(text)

    assert "profiles" not in run().stdout


def test_a_server_that_wants_a_login_names_the_command(home: Path):
    configure("[servers.a]\nurl = 'https://a.example/mcp'\noauth = true\n")

    assert checked("server a") == (
        "warn",
        "The login at https://a.example/mcp is needed.",
        "toolscout servers login a",
    )


def test_a_disabled_server_is_not_looked_at(home: Path):
    configure("[servers.a]\ncommand = 'no-such-program'\ndisabled = true\n")

    assert checked("server a") == ("ok", "disabled", "")


@pytest.mark.parametrize(
    ("told", "state", "text"),
    [
        ("v12.1.0", "warn", "Node v12.1.0 is too old for most servers."),
        ("v22.0.0", "ok", "Node v22.0.0"),
        ("what?", "fail", ""),
        (None, "fail", "Servers start with npx, but Node is not on PATH."),
    ],
)
@pytest.mark.skipif(os.name == "nt", reason="the program is a shell script")
def test_node_is_looked_at_where_a_server_needs_it(
    home: Path, monkeypatch: pytest.MonkeyPatch, told: str | None, state: str, text: str
):
    folder = home / "bin"
    folder.mkdir()
    for name in ("npx", *(["node"] if told else [])):
        (folder / name).write_text(f"#!/bin/sh\necho {told!r}\n", encoding="utf-8")
        (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(folder))
    configure("[servers.a]\ncommand = 'npx'\n")

    found = checked("node")

    assert found[0] == state
    assert found[1] == text or not text


def test_node_is_nobodys_business_without_a_server_in_it(home: Path):
    configure(f"[servers.a]\n{PYTHON}\n")

    assert "node:" not in run().stdout


def test_a_damaged_cache_fails_with_the_command(home: Path):
    configure("")
    file = home / ".cache" / "toolscout" / "gateway.db"
    file.write_bytes(b"not a database at all" * 100)
    file.chmod(0o600)

    assert checked("cache") == (
        "fail",
        f"{file} is damaged, or not a database.",
        f"mv {file} {file}.old",
    )


def test_a_cache_that_another_process_holds_is_reported(home: Path):
    configure("")
    file = home / ".cache" / "toolscout" / "gateway.db"
    with closing(sqlite3.connect(file, isolation_level=None)) as holding:
        holding.execute("CREATE TABLE t (x)")
        file.chmod(0o600)
        free = checked("cache")[0]
        holding.execute("BEGIN EXCLUSIVE")
        state, text, remedy = checked("cache")

    assert free == "ok"
    assert (state, text) == ("warn", f"{file} is locked by another process.")
    assert "toolscout serve" in remedy


@pytest.mark.skipif(os.name == "nt", reason="modes say nothing there")
def test_token_files_that_others_may_read_fail(home: Path):
    configure("")
    folder = home / ".cache" / "toolscout" / "tokens"
    folder.mkdir()
    good, bad = folder / "good.json", folder / "bad.json"
    for file, mode in ((good, 0o600), (bad, 0o640)):
        file.write_text("{}", encoding="utf-8")
        file.chmod(mode)

    state, text, remedy = checked("token files")

    assert (state, remedy) == ("fail", f"chmod 600 {bad}")
    assert text == f"Others can read the tokens in {bad}."


def test_leftovers_of_an_interrupted_write_are_reported(home: Path):
    place = configure("")
    left = place.with_name(".toolscout.toml.0a1b2c3d")
    left.write_text("", encoding="utf-8")

    assert checked("leftovers")[0::2] == ("warn", f"rm {left}")


def test_a_port_in_use_is_reported(home: Path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        number = taken.getsockname()[1]
        configure("", port=number)

        state, text, remedy = checked("port")

    assert (state, text) == ("warn", f"127.0.0.1:{number} is used by another program.")
    assert remedy == f"toolscout serve --http --port {number + 1}"


def test_a_gateway_that_runs_is_recognised(home: Path):
    with served(TIME) as gateway:
        number = int(gateway.url.rpartition(":")[2])
        configure("", port=number)

        assert checked("port") == ("ok", f"a gateway answers at 127.0.0.1:{number}", "")


@pytest.mark.parametrize(
    ("entry", "state", "text"),
    [
        ({"command": "/gone/toolscout", "args": ["serve"]}, "fail", "/gone/toolscout"),
        (
            {"command": "toolscout", "args": ["serve", "--config", "/gone/t.toml"]},
            "fail",
            "/gone/t.toml, which does not exist",
        ),
        ({"command": "toolscout", "args": ["serve"]}, "ok", "starts toolscout"),
        (
            {"command": "other"},
            "ok",
            "own; `toolscout init --client cursor` puts them",
        ),
    ],
)
def test_a_client_that_starts_a_missing_toolscout_fails_with_the_command(
    home: Path, entry: object, state: str, text: str
):
    configure("")
    path = home / ".cursor" / "mcp.json"
    path.parent.mkdir()
    path.write_text(json.dumps({"mcpServers": {"x": entry}}), encoding="utf-8")

    found = checked("client Cursor")

    assert found[0] == state
    assert text in found[1]
    if state == "fail" and "t.toml" in text:
        assert found[2] == f"Restore /gone/t.toml, or remove toolscout from {path}."
    else:
        assert found[2] == ("toolscout init --client cursor" if state == "fail" else "")


def init(remedy: str) -> None:
    """Run the command that a check suggests."""
    words = [*remedy.removeprefix("toolscout ").split(), "--yes", "--no-test"]
    done = CliRunner().invoke(main, words)
    assert done.exit_code == 0, done.output


def test_the_command_that_repairs_a_client_works(home: Path):
    own = configure("[servers.a]\ncommand = 'other'\n")
    path = home / ".cursor" / "mcp.json"
    path.parent.mkdir(parents=True)
    broken = {"command": "/gone/toolscout", "args": ["serve"]}
    path.write_text(json.dumps({"mcpServers": {"x": broken}}), encoding="utf-8")

    init(checked("client Cursor")[2])

    assert checked("client Cursor") == ("ok", f"{path} starts toolscout", "")

    own.unlink()
    state, _, remedy = checked("client Cursor")
    assert (state, remedy) == ("fail", "toolscout init --client cursor --undo")
    init(remedy)
    assert json.loads(path.read_text(encoding="utf-8")) == {"mcpServers": {"x": broken}}


def test_the_command_for_a_client_with_new_servers_works_again_and_again(home: Path):
    configure("[servers.a]\ncommand = 'other'\n")
    shared = Path(".mcp.json").absolute()
    for name in ("first", "second"):
        servers = {name: {"command": name}}
        shared.write_text(json.dumps({"mcpServers": servers}), encoding="utf-8")

        _, text, _ = checked("client Claude Code")

        remedy = text.split("`")[1]
        assert remedy == "toolscout init --client claude-code --project"
        init(remedy)
        assert checked("client Claude Code")[1] == f"{shared} starts toolscout"
    assert len(read_config(Path.home() / ".config/toolscout/toolscout.toml").servers) == 3


def test_servers_are_started_only_when_asked_for(home: Path):
    args = json.dumps(list(TIME.args))
    configure(f"[servers.time]\n{PYTHON}\nargs = {args}\n[servers.bad]\ncommand = 'false'\n")

    assert "start time" not in run().stdout
    started = run("--start")

    assert started.exit_code == 1
    assert "ok    start time: 2 tools (" in started.stdout
    assert "fail  start bad: " in started.stdout


def test_a_change_to_a_tool_that_its_server_does_not_have_is_told(home: Path):
    words = json.dumps(TIME.args)
    place = configure(
        f"[servers.time]\n{PYTHON}\nargs = {words}\n"
        "[servers.time.tools.convert_tme]\nenabled = false\n"
    )
    CliRunner().invoke(main, ["servers", "test"])

    state, text, remedy = checked("tools")

    assert (state, remedy) == ("warn", f"Change {place}.")
    assert text.startswith("Setting 'servers.time.tools.convert_tme' is for a tool that the")
    assert text.endswith("Use 'convert_time'.")


def test_servers_whose_tools_are_not_known_are_named_once_there_is_a_cache(home: Path):
    configure(f"[servers.time]\n{PYTHON}\nargs = {json.dumps(TIME.args)}\n[servers.b]\n{PYTHON}")

    before = run()
    CliRunner().invoke(main, ["servers", "test", "time"])
    after = checked("tools")

    assert "tools:" not in before.stdout
    assert after == (
        "warn",
        "The tools of b are not known yet.",
        "toolscout servers test b",
    )
