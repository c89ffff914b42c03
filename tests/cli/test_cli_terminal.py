"""Commands in a terminal: questions, colour, narrow windows, bars, Ctrl-C."""

import json
import sys
from pathlib import Path
from typing import Any

import pyte
import pytest

if sys.platform == "win32":
    pytest.skip("there are no pseudo-terminals", allow_module_level=True)

from serving import DEADLINE_SECONDS, TIME, served
from terminals import terminal
from toolscout.config.file import read_config
from toolscout.demo import load_demo_tools
from toolscout.files import write_tools
from toolscout.tools import Tool

SECRET = "ghp_0123456789abcdefSECRET"
SERVERS = {
    "github": {"command": "npx", "args": ["-y", "gh"], "env": {"TOKEN": SECRET}},
    "web": {"url": "https://web.example/mcp"},
}


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A home with Cursor in it, and the only place that the program may know."""
    path = tmp_path / ".cursor" / "mcp.json"
    path.parent.mkdir()
    path.write_text(json.dumps({"mcpServers": SERVERS}, indent=2), encoding="utf-8")
    return tmp_path


def at_home(home: Path) -> dict[str, str]:
    (home / "project").mkdir(exist_ok=True)
    return {
        "HOME": str(home),
        "XDG_CONFIG_HOME": str(home / ".config"),
        "XDG_CACHE_HOME": str(home / ".cache"),
        "CODEX_HOME": str(home / ".codex"),
        "CLAUDE_CONFIG_DIR": str(home),
        "PYTHON_KEYRING_BACKEND": "keyring.backends.null.Keyring",
    }


def test_init_offers_the_keychain_for_secrets_and_undo_says_what_stays_there(home: Path):
    cursor = home / ".cursor" / "mcp.json"
    own = home / ".config" / "toolscout" / "toolscout.toml"
    keychain = home / "keychain.json"
    keychain.write_text("{}")
    env = at_home(home) | {
        "PYTHONPATH": str(Path(__file__).parents[1]),
        "PYTHON_KEYRING_BACKEND": "config.keychain.Keychain",
        "KEYCHAIN_FILE": str(keychain),
    }
    before = cursor.read_bytes()
    place: Any = {"cwd": home / "project", "columns": 200, "lines": 60, "env": env}

    with terminal("init", "--no-test", **place) as view:
        view.wait_for("Move 1 secret in plain text into the keychain of this system? [y/N]:")
        view.press("y", "enter")
        view.wait_for("toolscout.toml? [y/N]:")
        assert keychain.read_text() == "{}"
        view.press("y", "enter")
        view.wait_for("(Cursor)? [y/N]:")
        view.press("y", "enter")
        assert view.wait() == 0
        assert SECRET.encode() not in view.raw
    assert json.loads(keychain.read_text()) == {"toolscout/github.TOKEN": SECRET}
    assert SECRET not in own.read_text()
    assert read_config(own).servers[0].env == {"TOKEN": "${keyring:github.TOKEN}"}

    with terminal("init", "--no-test", "--yes", **place) as view:
        view.wait_for("Nothing to change.")
    with terminal("init", "--undo", "--yes", **place) as view:
        view.wait_for("The keychain keeps github.TOKEN. To delete one: keyring del toolscout NAME")
    assert cursor.read_bytes() == before
    assert SECRET in keychain.read_text()


def test_init_asks_for_each_file_and_undo_puts_the_client_back(home: Path):
    cursor = home / ".cursor" / "mcp.json"
    own = home / ".config" / "toolscout" / "toolscout.toml"
    before, env = cursor.read_bytes(), at_home(home)

    with terminal(
        "init", "--no-test", cwd=home / "project", columns=200, lines=60, env=env
    ) as view:
        shown = view.wait_for("toolscout.toml? [y/N]:")
        assert "Cursor would start toolscout instead of 2 servers (github, web):" in shown
        assert view.style_of('-    "github": {').fg == "red"
        assert view.style_of('+    "toolscout": {').fg == "green"
        assert SECRET.encode() not in view.raw
        view.press("y", "enter")
        view.wait_for("mcp.json (Cursor)? [y/N]:")
        assert [server.name for server in read_config(own).servers] == ["github", "web"]
        assert cursor.read_bytes() == before
        view.press("y", "enter")
        assert view.wait() == 0
        assert "Next: restart Cursor. `toolscout init --undo` restores the old files." in view.text

    entry = json.loads(cursor.read_text(encoding="utf-8"))["mcpServers"]["toolscout"]
    assert entry["args"] == ["serve", "--config", str(own)]
    assert Path(entry["command"]).exists()

    with terminal("init", "--undo", cwd=home / "project", columns=200, lines=60, env=env) as view:
        view.wait_for("(Cursor)? [y/N]:")
        view.press("y", "enter")
        assert view.wait() == 0

    assert cursor.read_bytes() == before


def test_what_a_person_does_not_agree_to_is_not_done(home: Path):
    cursor = home / ".cursor" / "mcp.json"
    before = cursor.read_bytes()

    with terminal("init", "--no-test", cwd=home / "project", lines=60, env=at_home(home)) as view:
        view.wait_for("toolscout.toml? [y/N]:")
        view.press("y", "enter")
        view.wait_for("(Cursor)? [y/N]:")
        view.press("n", "enter")
        assert view.wait() == 0

    assert cursor.read_bytes() == before
    assert list(cursor.parent.iterdir()) == [cursor]


def test_ctrl_c_at_a_question_changes_nothing_and_is_exit_code_130(home: Path):
    with terminal("init", cwd=home / "project", lines=60, env=at_home(home)) as view:
        view.wait_for("toolscout.toml? [y/N]:")
        view.press("ctrl-c")

        assert view.wait() == 130
        assert "Traceback" not in view.text
    assert not (home / ".config").exists()


def test_no_color_is_obeyed_by_every_way_of_drawing(home: Path):
    env = {**at_home(home), "NO_COLOR": "1"}
    for arguments in (
        ("init", "--dry-run"),
        ("doctor",),
        ("search", "open a pull request", "--explain"),
        ("try",),
    ):
        with terminal(*arguments, cwd=home / "project", env=env) as view:
            view.wait()
            assert b"\x1b[3" not in view.raw, arguments
            assert b"\x1b[9" not in view.raw, arguments


def test_doctor_colours_how_things_are(home: Path):
    with terminal("doctor", cwd=home / "project", lines=60, env=at_home(home)) as view:
        assert view.wait() == 0
        assert view.style_of("ok    python").fg == "green"
        assert view.style_of("warn  configuration").fg == "brown"


@pytest.mark.requirement("R52")
@pytest.mark.parametrize("columns", [40, 80])
def test_explain_and_try_fit_a_narrow_window(columns: int):
    """R52"""
    for arguments in (("search", "open a pull request", "--explain", "--limit", "2"), ("try",)):
        with terminal(*arguments, columns=columns, lines=200) as view:
            assert view.wait() == 0
            written = view.raw.decode().replace("\r", "")

        wide = pyte.Screen(1_000, 400)
        pyte.Stream(wide).feed(written.replace("\n", "\r\n"))
        # The line on the catalogue goes to stderr, where the terminal wraps it.
        shown = [line for line in wide.display if not line.startswith("Using the demo")]
        widths = [len(line.rstrip()) for line in shown]
        longest = max(widths)
        assert 20 < longest <= columns, shown[widths.index(longest)].rstrip()


def test_a_bar_shows_how_far_an_index_is(tmp_path: Path):
    texts = [tool.description for tool in load_demo_tools()]
    tools = [
        Tool.define(f"do_{n}", server=f"s{n % 9}", description=texts[n % len(texts)])
        for n in range(2_500)
    ]
    write_tools(tmp_path / "t.jsonl", tools)

    with terminal("search", "open", "--catalog", tmp_path / "t.jsonl", columns=100) as view:
        assert view.wait() == 0
        assert b"Indexing 2,500 tools" in view.raw
        assert b"2500/2500" in view.raw
        # The bar goes when it is done.
        assert "Indexing" not in view.text


def test_status_is_watched_until_ctrl_c_and_follows_the_window():
    with served(TIME) as gateway:
        assert gateway.known.wait(DEADLINE_SECONDS)
        arguments = ("status", "--watch", "--every", "0.1", "--url", gateway.url)
        with terminal(*arguments, lines=30) as view:
            view.wait_for("Tokens not sent")
            assert view.style_of("ready").fg == "green"
            view.resize(40, 8)
            view.wait_for(lambda: "Tokens not sent" not in view.text and "time" in view.text)
            view.resize(80, 30)
            view.wait_for("Tokens not sent")
            gateway.stop()
            view.wait_for("No gateway answers at")
            assert "Tokens not sent" in view.text  # what it told last stays
            view.press("ctrl-c")

            assert view.wait() == 130
            assert view.is_as_before()
            assert b"\x1b[?1049l" in view.raw
            assert b"Traceback" not in view.raw


def test_serving_by_hand_says_what_it_waits_for_answers_and_ends_with_ctrl_c(tmp_path: Path):
    about = {"name": "hand", "version": "1"}
    params = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": about}
    request = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params}

    with terminal("serve", "--demo", "--cache", tmp_path, columns=200, lines=60) as view:
        view.wait_for("Waiting for an MCP client on stdin")
        view.press(json.dumps(request), "enter")
        # The answer shows that it waits for the next line.
        view.wait_for('"serverInfo"')
        view.press("ctrl-c")

        assert view.wait() == 0
        assert "Traceback" not in view.text


def test_serving_by_hand_ends_with_ctrl_c_before_it_has_begun(tmp_path: Path):
    with terminal("serve", "--demo", "--cache", tmp_path, columns=200) as view:
        view.wait_for("Waiting for an MCP client on stdin")
        view.press("ctrl-c")

        assert view.wait() == 0
