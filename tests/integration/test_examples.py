"""The examples run as they are."""

import runpy
import subprocess
import sys
from pathlib import Path

import pytest

# A name of two parts begins with an SDK's; those run where that SDK is, in tests/adapters.
SCRIPTS = sorted((Path(__file__).parents[2] / "examples").glob("*.py"))
EXAMPLES = [path for path in SCRIPTS if "_" not in path.stem]


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_an_example_runs_from_the_shell(path: Path):
    done = subprocess.run([sys.executable, path], capture_output=True, text=True, check=False)

    assert (done.returncode, done.stderr) == (0, "")


def test_the_agent_does_its_task_in_three_modes(capsys: pytest.CaptureFixture[str]):
    runpy.run_path(str(EXAMPLES[0]), run_name="__main__")

    shown = capsys.readouterr().out
    assert shown.count("I filed it as issue 7 and wrote to Anna.") == 3
    assert "tools by request: [3, 3, 3, 3]" in shown  # bridge: never changes
    assert "tools by request: [3, 5, 5, 5]" in shown  # native: grows once
    assert "tools by request: [8, 8, 8, 8]" in shown  # reference: all, deferred


def test_the_sessions_page_shows_what_the_agent_prints(capsys: pytest.CaptureFixture[str]):
    runpy.run_path(str(EXAMPLES[0]), run_name="__main__")

    bridge = capsys.readouterr().out.split("\n\n")[0].removeprefix("== bridge ==\n")
    assert bridge in (EXAMPLES[0].parents[1] / "docs" / "sessions.md").read_text(encoding="utf-8")
