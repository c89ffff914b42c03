"""`toolscout completion`, and what shells are told to complete."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from gateway.fleet import TIME, configuration
from toolscout.cli import main

SCRIPT = "import sys; from toolscout.cli import main; main(prog_name='toolscout')"


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_gets_a_script_that_asks_the_command(shell: str):
    result = CliRunner().invoke(main, ["completion", shell])

    assert result.exit_code == 0
    assert f"_TOOLSCOUT_COMPLETE={shell}_complete" in result.stdout


@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash here")
def test_bash_takes_the_script():
    script = CliRunner().invoke(main, ["completion", "bash"]).stdout

    subprocess.run(["bash", "-c", f"{script}\ncomplete -p toolscout"], check=True)


def test_another_shell_is_a_usage_error():
    assert CliRunner().invoke(main, ["completion", "tcsh"]).exit_code == 2


def test_commands_tools_and_servers_are_completed_from_what_is_known(home: Path):
    configuration(home, {"time": TIME})
    CliRunner().invoke(main, ["servers", "test"])

    assert complete_by_process("des") == completed("des") == ["plain,describe"]
    assert completed("describe", "time__c") == ["plain,time__convert_time"]
    assert completed("call", "time__") == [
        "plain,time__convert_time",
        "plain,time__get_current_time",
    ]
    assert completed("catalog", "import", "ti") == ["plain,time"]


def test_a_broken_configuration_completes_nothing_and_prints_nothing(home: Path):
    (home / "toolscout.toml").write_text("servers = 1")

    assert complete_by_process("describe", "time") == []


def completed(*words: str) -> list[str]:
    """Return what bash would be told, with these words typed and the last still open."""
    done = CliRunner().invoke(main, env=ask_for(words), prog_name="toolscout")
    assert done.stderr == ""
    return done.stdout.split()


def ask_for(words: tuple[str, ...]) -> dict[str, str]:
    line = " ".join(("toolscout", *words))
    asked = {"COMP_WORDS": line, "COMP_CWORD": str(len(words))}
    return {**asked, "_TOOLSCOUT_COMPLETE": "bash_complete"}


def complete_by_process(*words: str) -> list[str]:
    """Return the same as a shell gets it, which starts a process each time."""
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        env={**os.environ, **ask_for(words)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stderr == ""
    return done.stdout.split()
