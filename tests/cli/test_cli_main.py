import os
import re
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from typing import NoReturn

import pytest
from click.testing import CliRunner, Result

from toolscout.cli import COMMANDS, ExitCode, main
from toolscout.errors import InvalidEncoder

COMMAND = [sys.executable, "-m", "toolscout"]


def run(*arguments: object) -> Result:
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


def test_the_help_lists_every_command_and_the_exit_codes():
    result = run("--help")

    assert result.exit_code == 0
    listed = result.stdout.split("Commands:\n")[1].splitlines()
    assert [line.split()[0] for line in listed] == list(COMMANDS)
    assert "Exit codes: 1" in result.stdout


def test_the_version_is_that_of_the_package():
    assert run("--version").stdout == f"toolscout {version('toolscout')}\n"


def test_an_unknown_command_is_a_usage_error():
    result = run("serch")

    assert result.exit_code == 2
    assert "No such command 'serch'. Did you mean 'search'?" in result.stderr


def test_commands_of_groups_are_guessed_too():
    result = run("servers", "lst")

    assert result.exit_code == 2
    assert "No such command 'lst'. Did you mean 'list'?" in result.stderr


def test_an_unknown_command_is_answered_with_the_list_of_commands():
    result = run("zzzzzz")

    assert f"Commands: {', '.join(COMMANDS)}." in result.stderr


def test_the_page_has_every_exit_code():
    page = Path(__file__).parents[2] / "docs" / "commands.md"
    section = page.read_text(encoding="utf-8").split("## Exit codes")[1]
    codes = [int(code) for code in re.findall(r"^\| (\d+) \|", section, re.MULTILINE)]

    assert codes == [0, *ExitCode]


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["search", "open a pull request"], 0),
        (["servers", "test", "--config", "{config}"], ExitCode.FAILED),
        (["doctor", "--config", "{config}"], ExitCode.FAILED),
        (["search"], ExitCode.USAGE),
        (["servers", "list", "--config", "{folder}/none.toml"], ExitCode.USAGE),
        (["search", "/^zzz/"], ExitCode.NOT_FOUND),
        (["servers", "test", "nobody", "--config", "{config}"], ExitCode.NOT_FOUND),
        (["status", "--url", "http://127.0.0.1:1"], ExitCode.UPSTREAM),
    ],
)
def test_commands_end_with_the_codes_of_the_page(tmp_path: Path, arguments: list[str], code: int):
    config = tmp_path / "toolscout.toml"
    text = "[gateway]\ncache = 'c.db'\n[servers.a]\ncommand = 'no-such-program'\n"
    config.write_text(text, encoding="utf-8")

    result = run(*(word.format(config=config, folder=tmp_path) for word in arguments))

    assert result.exit_code == code, result.output


def test_errors_of_every_command_are_shown_without_a_traceback(tmp_path: Path):
    result = run("evaluate", tmp_path / "nowhere")

    assert result.exit_code == 2
    assert result.stderr.startswith("Error: ")
    assert "nowhere" in result.stderr


def test_a_file_that_cannot_be_written_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    place = tmp_path / "missing" / "file"
    monkeypatch.setattr("toolscout.cli.inputs.load_demo_catalog", lambda: place.write_bytes(b""))

    result = run("search", "x")

    assert result.exit_code == 2
    assert result.stderr.startswith(f"Error: {place}: ")


def test_an_encoder_that_fails_is_exit_code_4(monkeypatch: pytest.MonkeyPatch):
    def fail() -> NoReturn:
        raise InvalidEncoder("far", "did not answer", remedy="Check the address.")

    monkeypatch.setattr("toolscout.cli.inputs.load_demo_catalog", fail)

    result = run("search", "x")

    assert result.exit_code == 4
    assert result.stderr == "Error: Encoder 'far' did not answer. Check the address.\n"


def test_an_interrupt_ends_quietly_with_130(monkeypatch: pytest.MonkeyPatch):
    def interrupt() -> NoReturn:
        raise KeyboardInterrupt

    monkeypatch.setattr("toolscout.cli.inputs.load_demo_catalog", interrupt)

    result = run("search", "x")

    assert (result.exit_code, result.output) == (130, "")


def test_a_bug_is_not_hidden(monkeypatch: pytest.MonkeyPatch):
    def fail() -> NoReturn:
        raise ZeroDivisionError

    monkeypatch.setattr("toolscout.cli.inputs.load_demo_catalog", fail)

    assert isinstance(run("search", "x").exception, ZeroDivisionError)


def test_the_module_runs_as_the_command_does():
    done = subprocess.run(
        [*COMMAND, "search", "server:nobody x"], capture_output=True, text=True, check=False
    )

    assert done.returncode == 3
    assert done.stdout == ""
    assert "\nError: There is no server 'nobody'." in done.stderr
    assert "Traceback" not in done.stderr


def test_a_reader_that_goes_away_leaves_no_message():
    reading, writing = os.pipe()
    os.close(reading)

    done = subprocess.run(
        [*COMMAND, "search", "open a pull request"],
        stdout=writing,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    os.close(writing)

    assert done.stderr == "Using the demo catalogue; name your own with --catalog or --config.\n"


@pytest.mark.skipif(sys.platform == "win32", reason="there are no pseudo-terminals")
def test_a_terminal_gets_colour_and_lines_that_fit():
    watching, terminal = os.openpty()
    environment = {**os.environ, "COLUMNS": "70", "TERM": "xterm-256color"}
    environment.pop("NO_COLOR", None)

    running = subprocess.Popen(
        [*COMMAND, "search", "create_pull_request", "--explain", "--limit", "1"],
        stdout=terminal,
        env=environment,
    )
    os.close(terminal)
    shown = _read_all(watching)

    assert running.wait() == 0
    assert "\x1b[1;36mgithub__create_pull_request\x1b[0m" in shown
    assert "\N{FULL BLOCK}" in shown
    assert "(owner*, repo*, " in shown


def _read_all(terminal: int) -> str:
    data = b""
    try:
        while part := os.read(terminal, 4096):
            data += part
    except OSError:  # Linux's way to say that the other side is closed
        pass
    os.close(terminal)
    return data.decode()
