"""References to variables, files, the keychain and commands."""

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Generator
from pathlib import Path

import keyring
import pytest
from hypothesis import given
from hypothesis import strategies as st

from config.keychain import Keychain
from serving import TIME_SERVER
from toolscout.config import references
from toolscout.config.file import Config, read_config
from toolscout.config.references import (
    MAX_FILE_BYTES,
    anchor,
    anchor_path,
    escape,
    expand,
    expand_path,
    forget_secrets,
    is_literal,
)
from toolscout.config.servers import ServerConfig, Transport
from toolscout.errors import InvalidConfig

ENV = {"TOKEN": "s3cret", "EMPTY": "", "HOME": "/home/ada"}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("plain $HOME text", "plain $HOME text"),
        ("Bearer ${TOKEN}", "Bearer s3cret"),
        ("${env:TOKEN}", "s3cret"),
        ("${EMPTY}", ""),
        ("${EMPTY:-x}", "x"),
        ("${NOBODY:-}", ""),
        ("${NOBODY:-a:-b}", "a:-b"),
        ("${env:NOBODY:-x}", "x"),
        ("${TOKEN}${TOKEN}", "s3crets3cret"),
        ("$${TOKEN}", "${TOKEN}"),
        ("$$${TOKEN}", "$${TOKEN}"),
    ],
)
def test_references_are_replaced_by_variables(text: str, value: str):
    assert expand(text, ENV) == value


def test_values_are_not_expanded_again():
    assert expand("${A}", {"A": "${B}", "B": "no"}) == "${B}"


def test_a_file_is_read_from_the_folder_without_its_last_line_break(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    (tmp_path / "key.txt").write_bytes(b"one\ntwo\r\n")
    monkeypatch.chdir(tmp_path)

    assert expand("<${file:key.txt}>", {}) == "<one\ntwo>"
    assert expand(f"${{file:{tmp_path / 'key.txt'}}}", {}) == "one\ntwo"


def test_an_unset_variable_is_named_with_its_key_and_what_to_do():
    with pytest.raises(InvalidConfig) as caught:
        expand("s3cret ${NOBODY}", ENV, key="servers.mail.token")

    assert str(caught.value) == (
        "Setting 'servers.mail.token' refers to the variable 'NOBODY', which is not set. "
        "Set NOBODY, or write ${NOBODY:-default}."
    )


@pytest.mark.parametrize("text", ["${s3cret text}", "${", "${TOKEN", "${}", "${A:-${B}}", "${x:y}"])
def test_an_invalid_reference_is_refused_without_being_shown(text: str):
    with pytest.raises(InvalidConfig) as caught:
        expand(f"s3cret {text}", ENV)

    assert "s3cret" not in str(caught.value)


def test_files_that_cannot_be_read_as_text_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "large").write_bytes(b"a" * (MAX_FILE_BYTES + 1))
    (tmp_path / "binary").write_bytes(b"s3cret\xff")

    for name, problem in (
        ("nobody", "no such file"),
        (".", "no such file"),
        ("large", "too large"),
        ("binary", "not UTF-8"),
        ("~nobody-has-this-name/x", "cannot be read"),
        ("a\0b", "cannot be read"),
    ):
        with pytest.raises(InvalidConfig, match=problem) as caught:
            expand(f"${{file:{name}}}", {})
        assert "s3cret" not in str(caught.value)


def test_a_tilde_is_expanded_only_at_the_beginning_of_a_path():
    assert expand_path("~/x", ENV) == "/home/ada/x"
    assert expand_path("~", ENV) == "/home/ada"
    assert expand_path("a~/x", ENV) == "a~/x"
    assert expand_path("~/x", {}) == "~/x"


def test_a_text_without_references_is_literal():
    assert is_literal("plain $${x}")
    assert not is_literal("a ${x} b")
    assert not is_literal("${file:x}")


def test_anchored_files_are_found_from_anywhere(tmp_path: Path):
    (tmp_path / "key").write_text("k", encoding="utf-8")

    assert expand(anchor("${file:key} $${file:key} ${HOME}", tmp_path), ENV) == (
        "k ${file:key} /home/ada"
    )
    assert anchor("${file:/abs} ${file:~/x}", tmp_path) == "${file:/abs} ${file:~/x}"


def test_anchored_paths_leave_addresses_references_and_whole_paths_alone(tmp_path: Path):
    for text in ("", "/abs/path", "https://host/spec.json", "${DIR}/x", "~/x"):
        assert anchor_path(text, tmp_path) == text
    assert expand(anchor_path("sub/x", tmp_path / "${odd"), {}) == str(tmp_path / "${odd/sub/x")


@given(st.text(alphabet="${}ab:-f", max_size=30) | st.text(max_size=30))
def test_an_escaped_text_expands_to_itself(text: str):
    assert expand(escape(text), {}) == text
    assert is_literal(escape(text))


@given(st.text(alphabet="${}AB:-file/.", max_size=40))
def test_expanding_gives_a_text_or_says_what_is_wrong(text: str):
    try:
        assert isinstance(expand(text, {"A": "1"}), str)
    except InvalidConfig as error:
        assert str(error).startswith("Setting 'reference' ")


@pytest.fixture
def keychain(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Generator[Path]:
    """Make a file the keychain of this system."""
    file = tmp_path / "keychain.json"
    file.write_text(json.dumps({"toolscout/github": "gh-value"}))
    monkeypatch.setenv("KEYCHAIN_FILE", str(file))
    before = keyring.get_keyring()
    keyring.set_keyring(Keychain())
    forget_secrets()
    yield file
    keyring.set_keyring(before)
    forget_secrets()


def command(code: str) -> str:
    """Return a reference to a command that runs Python code, which must have no `}` and `$`."""
    return f"${{command:{shlex.join([sys.executable, '-c', code])}}}"


def server(**options: object) -> ServerConfig:
    return ServerConfig(name="s", transport=Transport.HTTP, url="https://s.example", **options)  # pyright: ignore[reportArgumentType]  # checked by the class


def test_a_password_comes_from_the_keychain_once(keychain: Path):
    assert expand("Bearer ${keyring:github}", {}) == "Bearer gh-value"

    keychain.write_text(json.dumps({"toolscout/github": "new"}))
    assert expand("${keyring:github}", {}) == "gh-value"
    forget_secrets()
    assert expand("${keyring:github}", {}) == "new"


@pytest.mark.parametrize(
    ("name", "is_locked", "problem"),
    [
        ("gone", False, "which the keychain does not have. Run `keyring set toolscout gone`."),
        ("github", True, r"but the keychain cannot be read \(The collection is locked\). Unlock"),
    ],
)
def test_a_keychain_without_the_password_or_that_is_locked_is_told(
    keychain: Path, name: str, is_locked: bool, problem: str
):
    if is_locked:
        keychain.unlink()

    with pytest.raises(InvalidConfig, match=rf"refers to \$\{{keyring:{name}\}}, {problem}"):
        expand(f"${{keyring:{name}}}", {}, key="servers.s.token")


def test_without_the_package_the_keychain_says_what_to_install(monkeypatch: pytest.MonkeyPatch):
    forget_secrets()
    monkeypatch.setitem(sys.modules, "keyring", None)

    with pytest.raises(InvalidConfig, match=r"Run `pip install 'toolscout\[keyring\]'`"):
        expand("${keyring:absent}", {})


def test_a_server_starts_with_what_the_keychain_of_its_process_has(tmp_path: Path):
    file = tmp_path / "toolscout.toml"
    words = json.dumps([TIME_SERVER, "--local-timezone", "${keyring:zone}"])
    file.write_text(
        f"[servers.time]\ncommand = {json.dumps(sys.executable)}\nargs = {words}\n"
        f"[gateway]\ncache = {json.dumps(str(tmp_path / 'gateway.db'))}\n"
    )
    keychain = tmp_path / "keychain.json"
    env = os.environ | {
        "PYTHONPATH": str(Path(__file__).parents[1]),
        "PYTHON_KEYRING_BACKEND": "config.keychain.Keychain",
        "KEYCHAIN_FILE": str(keychain),
    }
    keychain.write_text("{}")
    command = [sys.executable, "-m", "toolscout", "servers", "test", "--config", str(file)]

    def test() -> subprocess.CompletedProcess[str]:
        return subprocess.run(command, env=env, capture_output=True, text=True, check=False)

    said = test().stdout
    assert "refers to ${keyring:zone}, which the keychain does not have." in " ".join(said.split())
    keychain.write_text(json.dumps({"toolscout/zone": "Asia/Tokyo"}))
    done = test()
    assert done.returncode == 0, done.stdout
    assert "Tokyo" not in done.stdout


def test_a_command_runs_once_and_gives_what_it_prints(tmp_path: Path):
    runs = tmp_path / "runs"
    text = command(f"open({str(runs)!r}, 'a').write('x'); print('one'); print('two')")

    assert [expand(text, ENV), expand(f"<{text}>", ENV)] == ["one\ntwo", "<one\ntwo>"]
    assert runs.read_text() == "x"
    forget_secrets()
    expand(text, ENV)
    assert runs.read_text() == "xx"


def test_a_command_has_the_environment_and_no_shell():
    assert expand("${command:printenv TOKEN}", ENV | {"PATH": "/usr/bin:/bin"}) == "s3cret"
    assert expand("${command:echo one | cat; echo `two`}", {"PATH": "/usr/bin:/bin"}) == (
        "one | cat; echo `two`"
    )


@pytest.mark.parametrize(
    ("code", "problem"),
    [
        (
            "import sys; print('hunter2-hunter2'); sys.exit('no hunter2-hunter2 for "
            "ghp_abcdefghijklmnopqrstuvwxyz0123456789')",
            r"which ended with exit code 1 \(no … for \[",
        ),
        ("pass", "which printed no value"),
        (r"import sys; sys.stdout.buffer.write(b'\xff')", r"which cannot be run \(not UTF-8\)"),
    ],
)
def test_a_command_that_fails_is_told_without_its_output(code: str, problem: str):
    with pytest.raises(InvalidConfig, match=problem) as caught:
        expand(command(code), {}, key="servers.s.token")

    assert "servers.s.token" in str(caught.value)
    assert caught.value.problem.startswith("refers to ${command:")
    assert "hunter2" not in caught.value.problem.rpartition("which")[2]
    assert "ghp_abc" not in caught.value.problem.rpartition("which")[2]


def test_a_command_that_does_not_end_is_stopped(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(references, "COMMAND_SECONDS", 0.1)
    text = command("import time; time.sleep(1000)")

    with pytest.raises(InvalidConfig, match=r"took longer than 0\.1 s"):
        expand(text, {})


def test_what_the_keychain_and_commands_give_is_masked(keychain: Path):
    config = server(token="${keyring:github}", headers={"X-Team": command("print('blue-team')")})

    # Nobody has read it, so no text can contain it, and to read it may take long.
    assert config.build_mask().apply("gh-value") == "gh-value"
    secrets = Config(servers=(config,)).list_secrets()
    assert {"gh-value", "blue-team"} <= set(secrets)
    assert config.build_mask().apply("gh-value of blue-team") == "… of …"
    assert Config(servers=(config,)).list_variables() == frozenset()


def test_no_command_of_another_programs_file_is_run(tmp_path: Path):
    text = "${command:touch here} ${keyring:x}"
    file = tmp_path / "mcp.json"
    file.write_text(json.dumps({"mcpServers": {"s": {"command": "x", "env": {"A": text}}}}))

    [found] = read_config(file).servers

    assert found.resolve({}).env == {"A": text}


def test_a_relative_command_starts_at_the_folder_of_its_file():
    assert anchor("${command:./get it}", Path("/etc/t")) == "${command:/etc/t/get it}"
    assert anchor("${command:get ./it}", Path("/etc/t")) == "${command:get ./it}"
