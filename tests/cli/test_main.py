import os
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from typing import NoReturn

import pytest
from click.testing import CliRunner, Result

from toolscout.cli import COMMANDS, main
from toolscout.errors import InvalidEncoder

COMMAND = [sys.executable, "-m", "toolscout"]


def run(*arguments: object) -> Result:
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


def test_the_help_lists_every_command_and_the_exit_codes():
    result = run("--help")

    assert result.exit_code == 0
    listed = result.stdout.split("Commands:\n")[1].splitlines()
    assert [line.split()[0] for line in listed] == list(COMMANDS)
    assert "Exit codes: 2" in result.stdout


def test_the_version_is_that_of_the_package():
    assert run("--version").stdout == f"toolscout {version('toolscout')}\n"


def test_an_unknown_command_is_a_usage_error():
    result = run("serch")

    assert result.exit_code == 2
    assert "No such command 'serch'" in result.stderr


def test_errors_of_every_command_are_told_without_a_traceback(tmp_path: Path):
    result = run("bench", "quality", tmp_path / "nowhere")

    assert result.exit_code == 2
    assert result.stderr.startswith("Error: ")
    assert "nowhere" in result.stderr


def test_a_file_that_cannot_be_written_is_told_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    place = tmp_path / "missing" / "file"
    monkeypatch.setattr("toolscout.demo.demo_catalog", lambda: place.write_bytes(b""))

    result = run("search", "x")

    assert result.exit_code == 2
    assert result.stderr.startswith(f"Error: {place}: ")


def test_an_encoder_that_fails_is_exit_code_4(monkeypatch: pytest.MonkeyPatch):
    def fail() -> NoReturn:
        raise InvalidEncoder("far", "did not answer", remedy="Check the address.")

    monkeypatch.setattr("toolscout.demo.demo_catalog", fail)

    result = run("search", "x")

    assert result.exit_code == 4
    assert result.stderr == "Error: Encoder 'far' did not answer. Check the address.\n"


def test_an_interrupt_ends_quietly_with_130(monkeypatch: pytest.MonkeyPatch):
    def interrupt() -> NoReturn:
        raise KeyboardInterrupt

    monkeypatch.setattr("toolscout.demo.demo_catalog", interrupt)

    result = run("search", "x")

    assert (result.exit_code, result.output) == (130, "")


def test_a_bug_is_not_hidden(monkeypatch: pytest.MonkeyPatch):
    def fail() -> NoReturn:
        raise ZeroDivisionError

    monkeypatch.setattr("toolscout.demo.demo_catalog", fail)

    assert isinstance(run("search", "x").exception, ZeroDivisionError)


def test_the_module_runs_as_the_command_does():
    done = subprocess.run(
        [*COMMAND, "search", "server:nobody x"], capture_output=True, text=True, check=False
    )

    assert done.returncode == 3
    assert done.stdout == ""
    assert done.stderr.startswith("Error: There is no server 'nobody'.")
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

    assert done.stderr == ""


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
